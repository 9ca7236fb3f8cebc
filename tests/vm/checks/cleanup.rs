//! Nothing remains in the kernel, neither after a normal end nor after SIGKILL at any moment.

use super::floors::link_number;
use crate::guest::{Check, Guest, Running, all_detached, note, ours, run, wait_for};
use libbpf_sys::{bpf_link_get_next_id, bpf_map_get_next_id, bpf_prog_get_next_id};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

pub const CHECKS: &[Check] = &[
    // Functions without task storage, with it, with ext4 as a module, and kprobe.session.
    check("cleanup: many runs leave nothing", cycles)
        .when(|guest| guest.as_booted() && ["5.10", "6.1-full", "7"].contains(&guest.kernel.as_str()))
        .limit(900),
    check("cleanup: SIGKILL, auto", |guest| killed(guest, "auto")),
    check("cleanup: SIGKILL, fentry", |guest| killed(guest, "fentry")).when(has_trampolines),
    check("cleanup: SIGKILL, kprobe", |guest| killed(guest, "kprobe")),
    check("cleanup: SIGKILL, kprobe-event", |guest| killed(guest, "kprobe-event")),
    check("cleanup: SIGKILL of the keeper of events, too", keeper),
    check("cleanup: the detaching process holds all functions", held)
        .when(|guest| guest.as_booted() && guest.kernel == "7"),
    // Where tasks are preempted everywhere, detaching a probe takes a second, during which nothing can be attached.
    check(
        "cleanup: a run starts as fast while another one is detached",
        next_start,
    )
    .limit(900)
    .timed(),
];

/// A start waits only for functions that both runs are attached to.
fn next_start(guest: &Guest) -> Result<(), String> {
    const LONG: Duration = Duration::from_secs(240);
    /// It was 7 on a real-time kernel when a start waited for each probe of the previous run.
    const MOST: u32 = 3;
    let start = || -> Result<(Running, Duration), String> {
        let begun = Instant::now();
        let mut tool = Command::new(guest.tool().ok_or("there is no tool")?);
        let running = Running::start(tool.args(["-T", "vfs,ext4"]))?;
        wait_for("the banner", LONG, || running.stderr().contains(BANNER))?;
        Ok((running, begun.elapsed()))
    };
    let end = |running: Running| -> Result<(), String> {
        running.signal(Signal::SIGINT)?;
        running.finish(MINUTE)?.success().map(drop)
    };
    let detaching = || ours().iter().any(|process| process.contains("(iosb-detach)"));
    let (first, alone) = start()?;
    end(first)?;
    let was_detaching = detaching();
    let (second, beside) = start()?;
    let state = if detaching() { "goes on" } else { "is over" };
    note(&format!(
        "{alone:?} alone, {beside:?} beside the detaching of another run, which {state}"
    ))?;
    end(second)?;
    wait_for("all to be detached", LONG, || ours().is_empty())?;
    if !was_detaching {
        return Err("the first run was detached already: this check checks nothing".into());
    }
    if beside > alone * MOST {
        return Err(format!(
            "{beside:?} beside the detaching of another run, {alone:?} alone"
        ));
    }
    Ok(())
}

fn has_trampolines(guest: &Guest) -> bool {
    guest.as_booted() && guest.has_trampolines()
}

/// If links share a trampoline, the tool creates one more link: src/probe/attach/hold.rs. (A report does so as well if
/// starts are in task storage, which this kernel has on arm64, and refuses on the guests' CPUs of x86-64.)
fn held(guest: &Guest) -> Result<(), String> {
    let tool = guest.tool().ok_or("there is no tool")?;
    let of_report = u32::from(cfg!(target_arch = "aarch64"));
    for (arguments, held) in [(["-T", "vfs"], 1 + of_report), (["-T", "blk"], of_report)] {
        let running = Running::start(Command::new(tool).args(arguments))?;
        wait_for("the banner", MINUTE, || running.stderr().contains(BANNER))?;
        let before = link_number()?;
        running.signal(Signal::SIGINT)?;
        running.finish(MINUTE)?.success()?;
        all_detached()?;
        let made = link_number()? - before - 1;
        if made != held {
            return Err(format!(
                "{arguments:?}: {made} links were made to detach, and not {held}"
            ));
        }
    }
    Traces::gone()
}

/// Preemption changes what a run attaches, not how it is detached.
const fn check(name: &'static str, run: fn(&Guest) -> Result<(), String>) -> Check {
    Check::new(name, run).when(Guest::as_booted)
}

/// Leaks of single runs are visible after a few of them; with all checks selected, the newest kernel shows that nothing
/// accumulates.
fn runs(guest: &Guest) -> u32 {
    match guest.kernel.as_str() {
        _ if !guest.every => 20,
        "7" => 200,
        _ => 60,
    }
}

/// Concurrent runs. Attaching and detaching wait for the kernel, and others can use that time.
const AT_ONCE: u32 = 4;
/// Every function takes an emulated machine a tenth of a second: reads are kept, including those by AIO, which are
/// enough to leave something behind.
const FEWER: [&str; 19] = [
    "ext4_file_write_iter",
    "ext4_file_open",
    "ext4_sync_file",
    "ext4_fallocate",
    "ext4_page_mkwrite",
    "ext4_filemap_fault",
    "filemap_fault",
    "ext4_file_splice_read",
    "generic_file_splice_read",
    "iter_file_splice_write",
    "io_read",
    "io_write",
    "io_write_fixed",
    "aio_write",
    "io_read_fixed",
    "io_complete_rw",
    "io_complete_rw_iopoll",
    "kiocb_done",
    "io_rw_fail",
];
/// About half of it is used on an otherwise idle machine.
const RUNS_BOUND: Duration = Duration::from_secs(840);
const MINUTE: Duration = Duration::from_secs(60);
const BANNER: &str = "Tracing ";

/// What a tracer may leave in the kernel.
#[derive(Debug, Default, PartialEq)]
struct Traces {
    events: BTreeSet<String>,
    kprobes: BTreeSet<String>,
    /// Functions with a tracing callback.
    hooked: BTreeSet<String>,
    programs: Vec<u32>,
    maps: Vec<u32>,
    links: Vec<u32>,
    processes: BTreeSet<String>,
    /// Code generated for programs: trampolines and the programs themselves.
    symbols: BTreeSet<String>,
}

impl Traces {
    fn read() -> Result<Self, String> {
        Ok(Self {
            events: lines("/sys/kernel/tracing/kprobe_events")?,
            kprobes: lines("/sys/kernel/debug/kprobes/list")?,
            hooked: lines("/sys/kernel/tracing/enabled_functions")?,
            programs: ids(bpf_prog_get_next_id),
            maps: ids(bpf_map_get_next_id),
            links: ids(bpf_link_get_next_id),
            processes: ours(),
            symbols: BTreeSet::new(),
        })
    }

    /// Including what takes long to read.
    fn all() -> Result<Self, String> {
        let symbols = lines("/proc/kallsyms")?;
        let symbols = symbols.into_iter().filter(|line| line.ends_with("[bpf]")).collect();
        Ok(Self {
            symbols,
            ..Self::read()?
        })
    }

    /// Waits until a guest has none, as after boot: detaching continues after the tool has ended.
    fn gone() -> Result<(), String> {
        let mut now = Self::default();
        let mut failed = None;
        let waited = wait_for("everything to be detached", MINUTE, || {
            let quick = Self::read();
            let read = match quick {
                Ok(quick) if quick == Self::default() => Self::all(),
                other => other,
            };
            match read {
                Ok(read) => now = read,
                Err(error) => failed = Some(error),
            }
            failed.is_some() || now == Self::default()
        });
        match failed {
            Some(error) => Err(error),
            None => waited.map_err(|error| format!("{error}: {now:#?}")),
        }
    }
}

fn lines(path: &str) -> Result<BTreeSet<String>, String> {
    let text = fs::read_to_string(path).map_err(|e| format!("{path}: {e}"))?;
    Ok(text.lines().map(Into::into).collect())
}

/// The numbers of all programs, maps or links of the machine.
fn ids(next: unsafe extern "C" fn(u32, *mut u32) -> i32) -> Vec<u32> {
    let mut all = Vec::new();
    let mut id = 0;
    // SAFETY: the pointer is valid for the call, which writes no more than an integer.
    while unsafe { next(id, &raw mut id) } == 0 {
        all.push(id);
    }
    all
}

/// Bytes of memory that runs could leak, after everything reclaimable was released.
fn memory() -> Result<[(&'static str, i64); 4], String> {
    fs::write("/proc/sys/vm/drop_caches", "3").map_err(|e| format!("drop_caches: {e}"))?;
    shrink_slabs()?;
    let text = fs::read_to_string("/proc/meminfo").map_err(|e| format!("meminfo: {e}"))?;
    let number = |name: &str| -> Result<i64, String> {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let number = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<i64>().ok());
        number
            .map(|kib| kib << 10)
            .ok_or_else(|| format!("no {name} in\n{text}"))
    };
    let mut all = [("SUnreclaim", 0), ("VmallocUsed", 0), ("Percpu", 0), ("MemFree", 0)];
    for (name, value) in &mut all {
        *value = number(name)?;
    }
    // Used memory is what is not free. Pages in per-CPU lists are free as well, but not in MemFree: since 6.7 they may
    // be an eighth of the memory (51a755c56dc0 "mm: tune PCP high automatically"). Memory of existing processes belongs
    // to no run: this one's threads keep stacks and heaps.
    all[3].1 = -(all[3].1 + kept_by_cpus()? + number("AnonPages")?);
    Ok(all)
}

/// Releases empty slabs: each cache keeps some for each CPU, which for a hundred caches is more than a leak would be.
fn shrink_slabs() -> Result<(), String> {
    const CACHES: &str = "/sys/kernel/slab";
    for cache in fs::read_dir(CACHES).map_err(|e| format!("{CACHES}: {e}"))?.flatten() {
        // Links are aliases of caches that are listed as well.
        if cache.file_type().is_ok_and(|kind| kind.is_dir()) {
            let shrink = cache.path().join("shrink");
            fs::write(&shrink, "1").map_err(|e| format!("{}: {e}", shrink.display()))?;
        }
    }
    Ok(())
}

/// Bytes in the per-CPU lists of free pages.
fn kept_by_cpus() -> Result<i64, String> {
    const PAGE: i64 = 4096;
    let text = fs::read_to_string("/proc/zoneinfo").map_err(|e| format!("zoneinfo: {e}"))?;
    let counts = text.lines().filter_map(|line| line.trim().strip_prefix("count:"));
    let pages: i64 = counts.filter_map(|count| count.trim().parse::<i64>().ok()).sum();
    Ok(pages * PAGE)
}

/// Less than two pages for each run, and less than the maps of one run for all.
const LEAK: [i64; 4] = [400 << 10, 400 << 10, 400 << 10, 8 << 20];

fn cycles(guest: &Guest) -> Result<(), String> {
    let all = runs(guest);
    Traces::gone()?;
    // The newest kernel takes twice as long for everything; there the layer that starts fastest is used.
    let layer = if guest.kernel == "7" { "blk" } else { "ext4" };
    let once = |without: &[&str]| -> Result<(), String> {
        let mut tool = Command::new(guest.tool().ok_or("there is no tool")?);
        tool.args(["-T", layer, "-S", "--duration", "1ms"]).args(without);
        run(&mut tool, 2 * MINUTE)?.success().map(drop)
    };
    let many = |runs: u32, without: &[&str]| {
        let (begun, start) = (AtomicU32::new(0), Instant::now());
        let failed = Mutex::new(None);
        std::thread::scope(|scope| {
            for _ in 0..AT_ONCE {
                scope.spawn(|| {
                    while begun.fetch_add(1, Ordering::SeqCst) < runs {
                        let done = if start.elapsed() > RUNS_BOUND {
                            Err(format!("about {begun:?} of {runs} runs in {RUNS_BOUND:?}"))
                        } else {
                            once(without)
                        };
                        if let Err(error) = done {
                            begun.store(runs, Ordering::SeqCst);
                            failed.lock().unwrap().get_or_insert(error);
                        }
                    }
                });
            }
        });
        failed.into_inner().unwrap().map_or(Ok(()), Err)
    };
    // The first runs fill caches: file pages, slabs, per-CPU chunks.
    many(2 * AT_ONCE, &[])?;
    Traces::gone()?;
    let memory_before = memory()?;
    let start = Instant::now();
    let fewer: Vec<&str> = FEWER.iter().flat_map(|function| ["--without", function]).collect();
    many(all, &fewer)?;
    let took = start.elapsed();
    Traces::gone()?;
    eprintln!("{all} runs: {took:?}, and {:?} to detach", start.elapsed() - took);
    let mut leaked = Vec::new();
    let settled = wait_for("memory to be given back", Duration::from_secs(20), || {
        leaked.clear();
        let Ok(now) = memory() else { return false };
        for (((name, now), (_, before)), bound) in now.into_iter().zip(memory_before).zip(LEAK) {
            if now - before > bound {
                leaked.push(format!("{name} grew by {} bytes", now - before));
            }
        }
        leaked.is_empty()
    });
    settled.map_err(|error| format!("{error}: {}", leaked.join(", ")))
}

/// At several moments between the first program and the first report, alternating between the process and its group.
fn killed(guest: &Guest, probe: &str) -> Result<(), String> {
    Traces::gone()?;
    let start = || {
        let mut tool = Command::new(guest.tool().ok_or("there is no tool")?);
        tool.args(["-T", "ext4", "--probe", probe, "0.01"]).process_group(0);
        Running::start(&mut tool)
    };
    let has = |what: fn(&Traces) -> bool| Traces::read().is_ok_and(|now| what(&now));
    type Moment = (&'static str, fn(&Traces) -> bool);
    let moments: [Moment; 4] = [
        ("programs", |now| !now.programs.is_empty()),
        ("hooked functions", |now| {
            !now.hooked.is_empty() || !now.kprobes.is_empty()
        }),
        ("five hooked functions", |now| {
            now.hooked.len() > 4 || now.kprobes.len() > 4
        }),
        ("the banner", |_| false),
    ];
    for ((what, reached), group) in moments.into_iter().zip([false, true, false, true]) {
        let tool = start()?;
        wait_for(what, MINUTE, || has(reached) || tool.stderr().contains(BANNER))?;
        let killed = if group {
            killpg(tool.pid(), Signal::SIGKILL)
        } else {
            kill(tool.pid(), Signal::SIGKILL)
        };
        killed.map_err(|e| format!("SIGKILL: {e}"))?;
        tool.finish(MINUTE)?;
        Traces::gone().map_err(|error| format!("killed at {what}: {error}"))?;
    }
    Ok(())
}

/// Events outlive the process that created them and the one that should remove them. The next run removes them.
fn keeper(guest: &Guest) -> Result<(), String> {
    Traces::gone()?;
    let tool = || Command::new(guest.tool().unwrap_or(std::path::Path::new("/nonexistent")));
    let running = Running::start(tool().args(["-T", "ext4", "--probe", "kprobe-event"]))?;
    wait_for("the banner", MINUTE, || running.stderr().contains(BANNER))?;
    let keeper = ours().into_iter().find(|process| process.contains("iosb-keeper"));
    let keeper = keeper.and_then(|process| process.split(' ').next()?.parse().ok());
    let keeper = keeper.ok_or_else(|| format!("no keeper: {:?}", ours()))?;
    for pid in [Pid::from_raw(keeper), running.pid()] {
        kill(pid, Signal::SIGKILL).map_err(|e| format!("SIGKILL: {e}"))?;
    }
    running.finish(MINUTE)?;
    let left = Traces::read()?;
    if left.events.is_empty() {
        return Err("the events went without their keeper: this check checks nothing".into());
    }
    wait_for("the events to be unused", MINUTE, || {
        ids(bpf_link_get_next_id).is_empty()
    })?;
    run(
        tool().args(["-T", "ext4", "--probe", "kprobe-event", "--duration", "1ms"]),
        MINUTE,
    )?
    .success()?;
    Traces::gone()
}
