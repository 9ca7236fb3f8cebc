//! The cost of measuring, in instructions: the guest's clock counts them, one per nanosecond, so that figures can be
//! reproduced.
//!
//! `benches/figures.rs` has the limits. Some figures are checked in every run, others are only measured for the table
//! (`benches/run`).

use super::peers::{interrupted, measuring};
use crate::disks::{NullDisks, set_queue};
use crate::figures;
use crate::guest::{Check, Guest, Running, all_detached, measured, wait_for};
use crate::peers::Peers;
use crate::workload::prepare;
use nix::sys::signal::Signal;
use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_gettime};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Once;
use std::time::{Duration, Instant};

pub const CHECKS: &[Check] = &[
    watched("costs: a pread, -T vfs by fentry", |guest| {
        pread(guest, "vfs fentry", &["-T", "vfs", "--probe", "fentry"])
    })
    .when(is_watched),
    watched("costs: a pread, -T ext4 by fentry", |guest| {
        pread(guest, "ext4 fentry", &["-T", "ext4", "--probe", "fentry"])
    })
    .when(|guest| guest.kernel == "6.1"),
    watched("costs: a pread, -T vfs by kprobe pairs", |guest| {
        pread(guest, "vfs kprobe", &["-T", "vfs", "--probe", "kprobe"])
    })
    .when(|guest| guest.kernel == "6.1"),
    table("costs: a pread, -T vfs by fsession", |guest| {
        pread(guest, "vfs fsession", &["-T", "vfs", "--probe", "fsession"])
    })
    .when(|guest| guest.table && guest.kernel == "7"),
    table("costs: a pread, -T vfs by what loses nothing", |guest| {
        pread(guest, "vfs lossless", &["-T", "vfs"])
    })
    .when(|guest| guest.table && guest.kernel == "7"),
    watched("costs: a pread of another process", another).when(|guest| guest.kernel == "6.1"),
    watched("costs: a direct read, -T blk", |guest| blk(guest, "blk", &[])).when(is_watched),
    watched("costs: the start, -T vfs", |guest| {
        // The first start in a guest takes some 20 million more.
        let arguments = ["-T", "vfs"];
        spent_by_start(guest, &arguments)?;
        start(guest, "start", &arguments)
    })
    .when(|guest| guest.kernel == "6.1"),
    watched("costs: a pread, all layers", all_layers).when(is_watched),
    table("costs: a pread, -T vfs --sample", |guest| {
        pread(guest, "vfs sampled", &["-T", "vfs", "--sample", "1/1000"])
    }),
    table("costs: a pread, all layers, --sample", |guest| {
        pread(guest, "all layers sampled", &["--sample", "1/1000"])
    }),
    table("costs: a pread, all layers, --json", |guest| {
        pread(guest, "all layers json", &["--json"])
    })
    .when(|guest| guest.table && guest.kernel == "6.1"),
    watched("costs: a pread, all layers, -f", |guest| {
        pread(guest, "all layers -f", &["-f"])
    })
    .when(|guest| guest.kernel == "6.1" && !guest.table),
    table("costs: a pread, all layers, --by process", |guest| {
        pread(guest, "all layers by process", &["--by", "process"])
    }),
    watched("costs: a pread, all layers, --by file", |guest| {
        pread(guest, "all layers by file", &["--by", "file"])
    })
    .when(is_watched),
    watched("costs: a pread, all layers, --slower", |guest| {
        pread(guest, "all layers slower", &["--slower", "1s"])?;
        // All batches.
        let report = has_reads()?;
        let all = report.contains("0 of 8,000 I/O calls took");
        all.then_some(()).ok_or_else(|| format!("not what was read:\n{report}"))
    })
    .when(is_watched),
    watched("costs: a pread, all layers, recorded", |guest| {
        let own = std::process::id().to_string();
        recorded(guest, "all layers recorded", &["-p", &own], cached()?)
    })
    .when(is_watched),
    watched("costs: a direct read, -T blk, recorded", |guest| {
        let (_disk, read) = direct(guest)?;
        recorded(guest, "blk recorded", &["-T", "blk", "-d", NULL], read)
    })
    .when(is_watched),
    table("costs: a direct read, -T blk -p", |guest| {
        let own = std::process::id().to_string();
        blk(guest, "blk -p", &["-p", &own])
    }),
    table("costs: a direct read, -T blk -p, recorded", |guest| {
        let (_disk, read) = direct(guest)?;
        let own = std::process::id().to_string();
        recorded(guest, "blk -p recorded", &["-T", "blk", "-d", NULL, "-p", &own], read)
    }),
    table("costs: a pread, -T vfs --by process", |guest| {
        pread(guest, "vfs by process", &["-T", "vfs", "--by", "process"])
    }),
    table("costs: a pread, -T vfs --by file", |guest| {
        pread(guest, "vfs by file", &["-T", "vfs", "--by", "file"])
    }),
    table("costs: a pread, -T vfs --cgroup", |guest| {
        in_cgroup(|name| pread_of_all(guest, "vfs cgroup", &["-T", "vfs", "--cgroup", name]))
    }),
    table("costs: a pread, all layers, --cgroup", |guest| {
        in_cgroup(|name| pread_of_all(guest, "all layers cgroup", &["--cgroup", name]))
    }),
    table("costs: a direct read, -T blk -Q --by disk", |guest| {
        blk(guest, "blk queue by disk", &["-Q", "--by", "disk"])
    }),
    watched("costs: the start, -T syscall", |guest| {
        start(guest, "start syscall", &["-T", "syscall"])
    })
    .when(|guest| guest.kernel == "6.1"),
    watched("costs: the start, -T blk", |guest| {
        start(guest, "start blk", &["-T", "blk"])
    })
    .when(|guest| guest.kernel == "6.1"),
    watched("costs: the start, -T ext4", |guest| {
        start(guest, "start ext4", &["-T", "ext4"])
    })
    .when(|guest| guest.kernel == "6.1"),
    table("costs: a pread, ext4dist", ext4dist).when(|guest| guest.table && guest.kernel == "6.1"),
    table("costs: a direct read, biolatency", biolatency),
    watched("costs: the start, all layers by fentry", |guest| {
        start(guest, "start all fentry", &[])
    })
    .when(|guest| guest.kernel == "6.1"),
    watched("costs: the start, all layers by kprobes", |guest| {
        start(guest, "start all kprobe", &["--probe", "kprobe"])
    })
    .when(|guest| guest.kernel == "6.1"),
    table("costs: the start, all layers by kprobe.session", |guest| {
        start(guest, "start all", &[])
    })
    .when(|guest| guest.table && guest.kernel == "7"),
    table("costs: the start, all layers, --by file", |guest| {
        start(guest, "start all by file", &["--by", "file"])
    })
    .when(|guest| guest.table && guest.kernel == "7"),
    table("costs: the start, all layers, --slower", |guest| {
        start(guest, "start all slower", &["--slower", "1s"])
    })
    .when(|guest| guest.table && guest.kernel == "7"),
    table("costs: attaching and detaching all layers", attach_and_detach),
    watched("costs: memory", memory).when(|guest| guest.kernel == "6.1"),
    watched("costs: the executable", executable).when(|guest| guest.kernel == "6.1"),
];

/// Debian replaces the newest kernel every few weeks, which changes what probes cost there: the table has these figures
/// without limits.
fn is_watched(guest: &Guest) -> bool {
    guest.table || guest.kernel == "6.1"
}

/// Measured in every run.
const fn watched(name: &'static str, run: fn(&Guest) -> Result<(), String>) -> Check {
    Check::counted(name, run)
}

/// Measured only for the table.
pub(super) const fn table(name: &'static str, run: fn(&Guest) -> Result<(), String>) -> Check {
    Check::counted(name, run).when(|guest| guest.table)
}

const FILE: &str = "/mnt/ext4/costs/file";
const NULL: &str = "nullb0";
const REPORT: &str = "/tmp/costs";
const RECORDING: &str = "/tmp/costs.iosb";
/// A command that reads once [`BEGIN`] exists, and ends.
pub(super) const READS: &[&str] = &["/init", "reads"];
const BEGIN: &str = "/tmp/costs.begin";
pub(super) const MINUTE: Duration = Duration::from_secs(60);
/// Functions of the whole stack are attached one by one.
const TO_ATTACH: Duration = Duration::from_secs(180);
/// The cheapest of these batches counts, which was not interrupted.
const BATCHES: u32 = 40;
const BATCH: u32 = 200;
/// At most.
const STARTS: u32 = 3;

/// The cost of a call.
pub(super) fn per_call(mut call: impl FnMut() -> Result<(), String>) -> Result<f64, String> {
    let mut least = Duration::MAX;
    for _ in 0..BATCHES {
        let start = Instant::now();
        for _ in 0..BATCH {
            call()?;
        }
        least = least.min(start.elapsed());
    }
    Ok(least.as_nanos() as f64 / f64::from(BATCH))
}

/// Reports a figure, and compares it with its limit.
pub(super) fn tell(guest: &Guest, figure: &str, value: f64) -> Result<(), String> {
    let value = value.round() as u64;
    measured(figure, value)?;
    figures::gate(&guest.kernel, figure, value)
}

/// Makes this process multithreaded, as it is while it reads a tool's output: each call then takes a reference to its
/// file, which is not a cost of the tool.
fn have_another_thread() {
    static ANOTHER: Once = Once::new();
    ANOTHER.call_once(|| {
        std::thread::spawn(|| {
            loop {
                std::thread::park();
            }
        });
    });
}

/// Reads of a cached byte.
pub(super) fn cached() -> Result<impl FnMut() -> Result<(), String>, String> {
    have_another_thread();
    if !fs::exists(FILE).map_err(|e| format!("{FILE}: {e}"))? {
        prepare(FILE)?;
    }
    let file = File::open(FILE).map_err(|e| format!("{FILE}: {e}"))?;
    let mut byte = [0];
    Ok(move || match file.read_at(&mut byte, 0) {
        Ok(1) => Ok(()),
        other => Err(format!("{FILE}: {other:?}")),
    })
}

/// `/init reads`: waits until it may begin, and prints what a read took.
pub fn reads() -> ExitCode {
    let began = wait_for("its turn", TO_ATTACH, || Path::new(BEGIN).exists());
    match began.and_then(|()| per_call(cached()?)) {
        Ok(took) => {
            println!("{took}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("reads: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Lets the commands [`READS`] begin.
fn begin_reading() -> Result<(), String> {
    fs::write(BEGIN, "").map_err(|e| format!("{BEGIN}: {e}"))
}

/// The instructions that the tool adds to a cached read of a command that it starts.
pub(super) fn pread_of_command(guest: &Guest, figure: &str, arguments: &[&str]) -> Result<(), String> {
    let took = |running: Running| -> Result<f64, String> {
        let text = running.finish(MINUTE)?.success()?.stdout;
        text.trim().parse().map_err(|e| format!("{text:?}: {e}"))
    };
    // The file is made first.
    drop(cached()?);
    begin_reading()?;
    let without = took(Running::start(Command::new(READS[0]).args(&READS[1..]))?)?;
    let with = took(tool(guest, &[arguments, &["--"], READS].concat())?)?;
    fs::remove_file(BEGIN).map_err(|e| format!("{BEGIN}: {e}"))?;
    has_reads()?;
    tell(guest, figure, with - without)
}

/// The running tool, started as by its users. Its final output goes to a file.
pub(super) fn tool(guest: &Guest, arguments: &[&str]) -> Result<Running, String> {
    started(guest, &[&["-o", REPORT], arguments].concat(), "Tracing ")
}

/// The running tool, which records to [`RECORDING`].
pub(super) fn recorder(guest: &Guest, arguments: &[&str]) -> Result<Running, String> {
    let _ = fs::remove_dir_all(RECORDING);
    started(guest, &[&["record", "-o", RECORDING], arguments].concat(), "Recording ")
}

fn started(guest: &Guest, words: &[&str], banner: &str) -> Result<Running, String> {
    let path = guest.tool().ok_or("there is no tool")?;
    let running = Running::start(Command::new(path).args(words))?;
    wait_for("the banner", TO_ATTACH, || running.stderr().contains(banner))
        .map_err(|e| format!("{words:?}: {e}: {}", running.stderr()))?;
    Ok(running)
}

/// The instructions that the tool adds to a call while it records.
fn recorded(
    guest: &Guest,
    figure: &str,
    arguments: &[&str],
    mut call: impl FnMut() -> Result<(), String>,
) -> Result<(), String> {
    let without = per_call(&mut call)?;
    let running = recorder(guest, arguments)?;
    let with = per_call(&mut call)?;
    running.signal(Signal::SIGINT)?;
    let said = running.finish(MINUTE)?.success()?.stderr;
    let _ = fs::remove_dir_all(RECORDING);
    if said.contains("INCOMPLETE") {
        return Err(format!("records were lost, which costs less: {said}"));
    }
    tell(guest, figure, with - without)
}

/// Ends it, and returns its report.
pub(super) fn end(running: Running) -> Result<String, String> {
    running.signal(Signal::SIGINT)?;
    running.finish(MINUTE)?.success()?;
    has_reads()
}

/// The report of the run that has ended. It must have the reads: by their name, or, if it lists slow calls, of which there
/// are none, by the number of all.
fn has_reads() -> Result<String, String> {
    let report = fs::read_to_string(REPORT).map_err(|e| format!("{REPORT}: {e}"))?;
    let of_slow = report.split_once(" I/O calls took").map(|(before, _)| before);
    let has = match of_slow.and_then(|before| before.rsplit_once(" of ")) {
        Some((slow, calls)) => {
            let calls = calls.replace(',', "").parse::<u32>();
            slow.split_whitespace().next_back() == Some("0") && calls.is_ok_and(|calls| calls >= BATCHES * BATCH)
        }
        None => report.contains("read"),
    };
    if report.contains("LOST ") || !has {
        return Err(format!("not what was read:\n{report}"));
    }
    Ok(report)
}

/// The instructions that the tool adds to a cached read of this process.
fn pread(guest: &Guest, figure: &str, arguments: &[&str]) -> Result<(), String> {
    let own = std::process::id().to_string();
    pread_of_all(guest, figure, &[arguments, &["-p", &own]].concat())
}

/// The same of a run without `-p`.
pub(super) fn pread_of_all(guest: &Guest, figure: &str, arguments: &[&str]) -> Result<(), String> {
    let mut read = cached()?;
    let without = per_call(&mut read)?;
    let running = tool(guest, arguments)?;
    let with = per_call(&mut read)?;
    end(running)?;
    tell(guest, figure, with - without)
}

/// Runs this while this process is in a control group of its own, whose path it is given.
fn in_cgroup(act: impl FnOnce(&str) -> Result<(), String>) -> Result<(), String> {
    const GROUP: &str = "/sys/fs/cgroup/costs";
    let enter = |folder: &str| {
        let procs = format!("{folder}/cgroup.procs");
        fs::write(&procs, std::process::id().to_string()).map_err(|e| format!("{procs}: {e}"))
    };
    fs::create_dir_all(GROUP).map_err(|e| format!("{GROUP}: {e}"))?;
    enter(GROUP)?;
    let result = act(GROUP);
    enter("/sys/fs/cgroup")?;
    // The tool, which was started in it, detaches.
    wait_for("the group to be empty", MINUTE, || fs::remove_dir(GROUP).is_ok())?;
    result
}

fn all_layers(guest: &Guest) -> Result<(), String> {
    pread(guest, "all layers", &[])
}

/// The instructions added to the reads of a process that is not traced.
fn another(guest: &Guest) -> Result<(), String> {
    let mut read = cached()?;
    let without = per_call(&mut read)?;
    let other = Running::start(Command::new("/init").arg("pause"))?;
    let pid = other.pid().to_string();
    let running = tool(guest, &["-T", "vfs", "--probe", "fentry", "-p", &pid])?;
    let with = per_call(&mut read)?;
    running.signal(Signal::SIGINT)?;
    running.finish(MINUTE)?.success()?;
    tell(guest, "vfs another", with - without)
}

fn ext4dist(guest: &Guest) -> Result<(), String> {
    let mut read = cached()?;
    let without = per_call(&mut read)?;
    let _peers = Peers::new(guest)?;
    let own = std::process::id().to_string();
    let peer = measuring(&["ext4dist-libbpf", "-p", &own])?;
    let with = per_call(&mut read)?;
    interrupted(peer)?;
    tell(guest, "ext4dist", with - without)
}

/// A disk that completes requests on submission, and reads of it.
pub(super) fn direct(guest: &Guest) -> Result<(NullDisks, impl FnMut() -> Result<(), String>), String> {
    const BLOCK: usize = 4096;
    have_another_thread();
    let disks = NullDisks::new(guest, 1, &[("irqmode", "0"), ("memory_backed", "0")])?;
    set_queue(NULL, &[("scheduler", "none")])?;
    let path = NullDisks::FIRST;
    let file = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path);
    let file = file.map_err(|e| format!("{path}: {e}"))?;
    let mut bytes = vec![0; 2 * BLOCK];
    let start = bytes.as_ptr().align_offset(BLOCK);
    let read = move || match file.read_at(&mut bytes[start..][..BLOCK], 0) {
        Ok(BLOCK) => Ok(()),
        other => Err(format!("{path}: {other:?}")),
    };
    Ok((disks, read))
}

fn blk(guest: &Guest, figure: &str, arguments: &[&str]) -> Result<(), String> {
    let (_disk, mut read) = direct(guest)?;
    let without = per_call(&mut read)?;
    let running = tool(guest, &[&["-T", "blk", "-d", NULL], arguments].concat())?;
    let with = per_call(&mut read)?;
    let report = end(running)?;
    if report.contains("can lose") {
        return Err(format!("not by what loses nothing:\n{report}"));
    }
    tell(guest, figure, with - without)
}

fn biolatency(guest: &Guest) -> Result<(), String> {
    let (_disk, mut read) = direct(guest)?;
    let without = per_call(&mut read)?;
    let _peers = Peers::new(guest)?;
    let peer = measuring(&["biolatency-libbpf", "-d", NULL])?;
    let with = per_call(&mut read)?;
    interrupted(peer)?;
    tell(guest, "biolatency", with - without)
}

/// How long attaching takes once programs are loaded, how long the prompt takes, and how long detaching continues in
/// the background. The guest's clock counts a nanosecond for each instruction, and the real duration of the kernel's
/// grace periods.
fn attach_and_detach(guest: &Guest) -> Result<(), String> {
    let start = Instant::now();
    let running = tool(guest, &["--verbose"])?;
    let attached = start.elapsed();
    let attaching = attaching_of(&running.stderr())?;
    let start = Instant::now();
    running.signal(Signal::SIGINT)?;
    running.finish(MINUTE)?.success()?;
    let prompt = start.elapsed();
    all_detached()?;
    let detaching = start.elapsed();
    measured("prompt", prompt.as_millis() as u64)?;
    measured("attach and detach", (attaching + detaching).as_millis() as u64)?;
    measured("start and detach", (attached + detaching).as_millis() as u64)
}

/// How long attaching took, from the output of `--verbose`.
fn attaching_of(text: &str) -> Result<Duration, String> {
    let mut lines = text.lines().filter(|line| line.contains(" programs loaded in "));
    let reported = lines.next().and_then(|line| line.rsplit_once(" attached in "));
    let ms = reported.and_then(|(_, took)| took.strip_suffix(" ms")?.parse().ok());
    ms.map(Duration::from_millis)
        .ok_or_else(|| format!("the time of attaching is not reported:\n{text}"))
}

/// Its peak memory in KiB, of two starts that of the one with less: the kernel backs a heap that happens to cover an aligned
/// 2 MiB by a huge page, of which the tool uses a small part.
fn memory(guest: &Guest) -> Result<(), String> {
    tell(guest, "memory", peak(guest)?.min(peak(guest)?))
}

/// The peak memory of one start, with a report each second: from the second on, a report has an earlier reading.
fn peak(guest: &Guest) -> Result<f64, String> {
    const REPORTS: usize = 3;
    let _ = fs::remove_file(REPORT);
    let running = tool(guest, &["1"])?;
    let begins_report = |line: &&str| line.get(2..3) == Some(":") && line.get(5..6) == Some(":");
    let reports = || fs::read_to_string(REPORT).map_or(0, |text| text.lines().filter(begins_report).count());
    wait_for("reports", MINUTE, || reports() >= REPORTS)?;
    let file = format!("/proc/{}/status", running.pid());
    let text = fs::read_to_string(&file).map_err(|e| format!("{file}: {e}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().split(' ').next()?.parse().ok());
    running.signal(Signal::SIGINT)?;
    running.finish(MINUTE)?.success()?;
    kib.ok_or_else(|| format!("no VmHWM in {text}"))
}

/// In KiB.
fn executable(guest: &Guest) -> Result<(), String> {
    let tool = guest.tool().ok_or("there is no tool")?;
    let size = fs::metadata(tool).map_err(|e| format!("{}: {e}", tool.display()))?;
    tell(guest, "size", (size.len() / 1024) as f64)
}

/// The start of a run that measures this process.
fn start(guest: &Guest, figure: &str, arguments: &[&str]) -> Result<(), String> {
    let own = std::process::id().to_string();
    start_of_all(guest, figure, &[arguments, &["-p", &own]].concat())
}

/// The same of a run without `-p`. As for calls, the minimum counts, and more starts are tried if the first is too slow:
/// kernel threads run meanwhile.
pub(super) fn start_of_all(guest: &Guest, figure: &str, arguments: &[&str]) -> Result<(), String> {
    let mut least = spent_by_start(guest, arguments)?;
    for _ in 1..STARTS {
        if figures::gate(&guest.kernel, figure, least.round() as u64).is_err() {
            least = least.min(spent_by_start(guest, arguments)?);
        }
    }
    tell(guest, figure, least)
}

/// Instructions until the tool measures, in millions. It is detached on return, so that the next start does not wait
/// for it.
fn spent_by_start(guest: &Guest, arguments: &[&str]) -> Result<f64, String> {
    let running = tool(guest, arguments)?;
    // Everything its threads have done so far.
    let clock = ClockId::pid_cpu_clock_id(running.pid()).map_err(|e| format!("its clock: {e}"))?;
    let spent = millions_of(clock)?;
    // A COMMAND is waited for.
    begin_reading()?;
    running.signal(Signal::SIGINT)?;
    running.finish(MINUTE)?.success()?;
    fs::remove_file(BEGIN).map_err(|e| format!("{BEGIN}: {e}"))?;
    all_detached()?;
    Ok(spent)
}

/// A clock of CPU time, in millions of instructions.
pub(super) fn millions_of(clock: ClockId) -> Result<f64, String> {
    let spent = clock_gettime(clock).map_err(|e| format!("a clock of CPU time: {e}"))?;
    Ok(spent.num_nanoseconds() as f64 / 1e6)
}
