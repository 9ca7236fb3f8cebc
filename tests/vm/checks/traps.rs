//! The two situations in which other tools lose calls silently, and the reports of hooks that do lose them.

use super::counts::ALL_LAYERS;
use super::report::{Ended, Report, Tool};
use super::times::SlowDisk;
use crate::guest::{Check, Guest, Running, ours, wait_for};
use crate::workload::{EXT4, SYSCALL, Spec, VFS, Workload, prepare};
use nix::sys::signal::Signal;
use std::process::Command;
use std::time::Duration;

pub const CHECKS: &[Check] = &[
    Check::new("traps: 40,000 cached reads by 8 threads, auto", |guest| {
        exact(guest, &CROWD)
    })
    .when(|guest| has_tool(guest) && guest.has_trampolines()),
    Check::new("traps: 512 threads asleep in direct reads, auto", |guest| {
        exact(guest, &SLEEPERS)
    })
    .when(|guest| has_tool(guest) && guest.has_trampolines()),
    Check::new(
        "traps: 64 threads asleep beside the detaching of the last run, auto",
        beside_detaching,
    )
    .when(has_tool),
    Check::new(
        "loss: another tool is detached from the same functions",
        left_by_another,
    )
    .when(|guest| has_tool(guest) && !guest.preemptible() && guest.has_trampolines()),
    Check::new("loss: a table of starts that is too small", small_table).when(has_tool),
    Check::new("loss: fentry where tasks are preempted", |guest| {
        lossy(guest, &CROWD, "fentry", false)
    })
    .when(|guest| has_tool(guest) && guest.preemptible()),
    Check::new("loss: fsession where tasks are preempted", skipped_ends)
        .when(|guest| has_tool(guest) && guest.preemptible() && guest.kernel == "7"),
    Check::new("loss: kprobe with 512 threads asleep", |guest| {
        lossy(guest, &SLEEPERS, "kprobe", true)
    })
    .when(has_tool),
    Check::new("loss: kprobe-multi with 512 threads asleep", |guest| {
        lossy(guest, &SLEEPERS, "kprobe-multi", true)
    })
    .when(has_multi),
    Check::new("loss: kprobe-session with 512 threads asleep", |guest| {
        lossy(guest, &SLEEPERS, "kprobe-session", true)
    })
    .when(has_multi),
    Check::new("intervals: their sum is the whole", interval_sums).when(has_tool),
    Check::new("intervals: as many as requested", interval_count).when(has_tool),
];

/// arm64 has them since 6.14, where they are made of the function graph tracer.
fn has_multi(guest: &Guest) -> bool {
    has_tool(guest) && guest.kernel == "6.12" && cfg!(target_arch = "x86_64")
}

fn has_tool(guest: &Guest) -> bool {
    guest.tool().is_some()
}

/// Two CPUs with constant preemption inside the kernel.
const CROWD: Spec = Spec {
    set: "cached",
    threads: 8,
    rounds: 5000,
    file: "/mnt/ext4/traps/file",
    name: "crowd",
};
/// All of them wait for the disk at the same time.
const SLEEPERS: Spec = Spec {
    set: "direct",
    threads: 512,
    rounds: 5,
    file: SlowDisk::FILE,
    name: "sleeper",
};
/// The same, long enough for others to begin and end meanwhile.
const LONG_SLEEPERS: Spec = Spec {
    threads: 64,
    rounds: 300,
    ..SLEEPERS
};
const DELAY: Duration = Duration::from_millis(20);
/// With this one, [`LONG_SLEEPERS`] sleep for half a minute, in which another tool ends on a busy machine, too.
const LONG_DELAY: Duration = Duration::from_millis(100);
/// The number of attempts, since the event does not always happen.
const ATTEMPTS: usize = 4;
/// How long a tool may take to begin, or to end.
const BEGIN_BOUND: Duration = Duration::from_secs(240);

/// The disk, if the workload needs its own, and its file.
fn stage(guest: &Guest, spec: &Spec, delay: Duration) -> Result<Option<SlowDisk>, String> {
    let disk = (spec.file == SlowDisk::FILE)
        .then(|| SlowDisk::new(guest, delay))
        .transpose()?;
    prepare(spec.file)?;
    Ok(disk)
}

/// Traces the workload from its first call to its last, `by_pid` or for all processes.
fn traced(guest: &Guest, spec: &Spec, arguments: &[&str], by_pid: bool) -> Result<Ended, String> {
    let workload = Workload::start(spec)?;
    let pid = workload.pid.to_string();
    let mut all = arguments.to_vec();
    if by_pid {
        all.extend(["-p", &pid]);
    }
    let tool = Tool::start(guest, &all)?;
    workload.work()?;
    if !by_pid {
        tool.interrupt()?;
    }
    tool.finish()
}

fn exact(guest: &Guest, spec: &Spec) -> Result<(), String> {
    let _disk = stage(guest, spec, DELAY)?;
    let ended = traced(guest, spec, &["-T", &ALL_LAYERS.join(",")], true)?;
    let report = ended.report()?;
    for layer in &report.layers {
        if !layer.warnings.is_empty() {
            return Err(format!("{}: {:?}", layer.name, layer.warnings));
        }
    }
    report.is_exactly(&spec.truth())
}

/// A layer's counted calls, and those reported as lost.
fn reported(report: &Report, name: &str) -> Result<(u64, u64, String), String> {
    let layer = report.layer(name)?;
    let counted = layer.ops.values().map(|op| op.count.calls).sum();
    let (lost, why) = layer.lost.clone().unwrap_or_default();
    Ok((counted, lost, why))
}

/// The actual calls of a layer.
fn calls_of(spec: &Spec, name: &str) -> u64 {
    let truth = spec.truth();
    truth
        .ops
        .iter()
        .filter(|((layer, _), _)| layer == name)
        .map(|(_, count)| count.calls)
        .sum()
}

fn small_table(guest: &Guest) -> Result<(), String> {
    let _disk = stage(guest, &SLEEPERS, DELAY)?;
    let ended = traced(guest, &SLEEPERS, &["-T", &ALL_LAYERS.join(","), "--starts", "8"], true)?;
    let report = ended.report()?;
    for name in [SYSCALL, VFS, EXT4] {
        let (counted, lost, why) = reported(report, name)?;
        let hooks = report.layer(name).map(|layer| &layer.hooks)?;
        // Reads at vfs whose start is in a cookie need no table.
        let is_needed = !(name == VFS && hooks.iter().any(|hook| hook.contains("kprobe.session")));
        let lost_some = lost > 0 && why.contains("table full");
        if counted + lost != calls_of(&SLEEPERS, name) || lost_some != is_needed || (lost > 0 && !is_needed) {
            return Err(format!(
                "{name}: {counted} counted, {lost} lost ({why})\n{}",
                ended.text
            ));
        }
    }
    Ok(())
}

/// When a program is detached from a function, the kernel skips the other ones at the returns of tasks that sleep in
/// it.
fn beside_detaching(guest: &Guest) -> Result<(), String> {
    let _disk = stage(guest, &LONG_SLEEPERS, DELAY)?;
    let layers = ALL_LAYERS.join(",");
    let earlier = Tool::start(guest, &["-T", &layers])?;
    earlier.interrupt()?;
    earlier.end()?;
    if !ours().iter().any(|process| process.contains("(iosb-detach)")) {
        return Err("the last run is detached already: this check checks nothing".into());
    }
    let ended = traced(guest, &LONG_SLEEPERS, &["-T", &layers], true)?;
    ended.report()?.is_exactly(&LONG_SLEEPERS.truth())
}

/// The tool cannot wait for other tools; the loss is reported.
fn left_by_another(guest: &Guest) -> Result<(), String> {
    let _disk = stage(guest, &LONG_SLEEPERS, LONG_DELAY)?;
    // The other tool's programs may be detached at a moment without sleeping tasks.
    for _ in 0..ATTEMPTS {
        let (lost, why) = beside_one_that_detaches(guest)?;
        if lost > 0 && why.contains("missed") {
            return Ok(());
        }
        if lost > 0 {
            return Err(format!("{lost} lost: {why}"));
        }
    }
    Err(format!(
        "nothing was lost in {ATTEMPTS} attempts: this check checks nothing"
    ))
}

/// The number of lost calls, and the reason: all others are counted.
fn beside_one_that_detaches(guest: &Guest) -> Result<(u64, String), String> {
    let workload = Workload::start(&LONG_SLEEPERS)?;
    let pid = workload.pid.to_string();
    let mut other = Command::new(guest.tool().ok_or("there is no tool")?);
    let other = Running::start(other.args(["-T", EXT4, "--probe", "fentry"]))?;
    wait_for("the other's banner", BEGIN_BOUND, || {
        other.stderr().contains("Tracing ")
    })?;
    let tool = Tool::start(guest, &["-T", EXT4, "--probe", "fentry", "-p", &pid])?;
    workload.go()?;
    other.signal(Signal::SIGINT)?;
    other.finish(BEGIN_BOUND)?.success()?;
    workload.finish()?;
    let ended = tool.finish()?;
    let (counted, lost, why) = reported(ended.report()?, EXT4)?;
    let truth = calls_of(&LONG_SLEEPERS, EXT4);
    if counted + lost == truth {
        return Ok((lost, why));
    }
    Err(format!(
        "{counted} counted and {lost} lost ({why}) of {truth}\n{}",
        ended.text
    ))
}

/// A forced hook that loses calls: the report says so, and the sum of counted and lost calls is at least the truth, and
/// exactly the truth without filters and other processes.
fn lossy(guest: &Guest, spec: &Spec, probe: &str, must_lose: bool) -> Result<(), String> {
    let _disk = stage(guest, spec, DELAY)?;
    let mut lost_any = false;
    for by_pid in [true, false] {
        // Only the workload uses ext4; at vfs all processes are seen.
        let layers = if by_pid { [VFS, EXT4].join(",") } else { EXT4.to_owned() };
        let ended = traced(guest, spec, &["-T", &layers, "--probe", probe], by_pid)?;
        let report = ended.report()?;
        for layer in &report.layers {
            let (counted, lost, why) = reported(report, &layer.name)?;
            let truth = calls_of(spec, &layer.name);
            let all = counted + lost;
            lost_any |= lost > 0;
            let is_right = if by_pid {
                all >= truth && counted <= truth
            } else {
                all == truth
            };
            let says_so = layer.warnings.iter().any(|warning| warning.contains("can lose calls"));
            if !is_right || !says_so || (lost > 0 && why.is_empty()) {
                return Err(format!(
                    "{}: {counted} counted and {lost} lost ({why}) of {truth}\n{}",
                    layer.name, ended.text
                ));
            }
        }
    }
    if must_lose && !lost_any {
        return Err(format!("{probe} lost nothing, so that this check proves nothing"));
    }
    Ok(())
}

/// For one program at both ends of a call the kernel may skip either or both. Calls on other files, which are not
/// counted, are few: their skips limit the excess.
fn skipped_ends(guest: &Guest) -> Result<(), String> {
    prepare(CROWD.file)?;
    let arguments = ["-T", VFS, "--probe", "fsession", "--file", CROWD.file];
    let ended = traced(guest, &CROWD, &arguments, false)?;
    let report = ended.report()?;
    let (counted, lost, why) = reported(report, VFS)?;
    let truth = calls_of(&CROWD, VFS);
    let warnings = &report.layer(VFS)?.warnings;
    let says_so = warnings
        .iter()
        .any(|line| line.contains("fsession at vfs can lose calls"));
    if counted > truth || !(truth..=truth + truth / 100).contains(&(counted + lost)) || !says_so {
        return Err(format!(
            "{counted} counted and {lost} lost ({why}) of {truth}\n{}",
            ended.text
        ));
    }
    Ok(())
}

/// No call falls between two reports.
fn interval_sums(guest: &Guest) -> Result<(), String> {
    prepare(CROWD.file)?;
    let ended = traced(guest, &CROWD, &["-T", "vfs,ext4", "0.03"], true)?;
    if ended.reports.len() < 2 {
        return Err(format!("only {} reports", ended.reports.len()));
    }
    for name in [VFS, EXT4] {
        let (mut calls, mut bytes) = (0, 0);
        for report in &ended.reports {
            let read = report.layer(name)?.count("read");
            calls += read.calls;
            bytes += read.bytes;
        }
        let truth = calls_of(&CROWD, name);
        if (calls, bytes) != (truth, truth) {
            return Err(format!(
                "{name}: {calls} reads of {bytes} bytes, not {truth}\n{}",
                ended.text
            ));
        }
    }
    Ok(())
}

fn interval_count(guest: &Guest) -> Result<(), String> {
    let tool = Tool::start(guest, &["-T", "vfs", "0.1", "3"])?;
    let ended = tool.finish()?;
    match ended.reports.len() {
        3 => Ok(()),
        n => Err(format!("{n} reports instead of 3:\n{}", ended.text)),
    }
}
