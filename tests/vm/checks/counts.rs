//! Counts and bytes are exact for known processes, at every layer, with every hook that loses nothing.

use super::hard::Mounted;
use super::report::{Ended, Report, Tool};
use crate::guest::{Check, Guest};
use crate::workload::{EXT4, SYSCALL, Spec, VFS, Workload, prepare};
use iostackbreakdown::catalog::Layer;
use iostackbreakdown::probe::plan::function_name;

pub const CHECKS: &[Check] = &[
    Check::new("counts: -p, auto", |guest| process(guest, &AUTO)).when(AUTO.exact),
    Check::new("counts: -p, kprobe", |guest| process(guest, &KPROBE)).when(KPROBE.exact),
    Check::new("counts: -p, kprobe-event", |guest| process(guest, &KPROBE_EVENT)).when(KPROBE_EVENT.exact),
    Check::new("counts: -p, kprobe-session", |guest| process(guest, &SESSION)).when(SESSION.exact),
    Check::new("counts: -p, fentry", |guest| process(guest, &FENTRY)).when(FENTRY.exact),
    Check::new("counts: -p, fsession", cookies).when(FSESSION.exact),
    Check::new("counts: -p, tracepoint", |guest| process(guest, &TRACEPOINT)).when(TRACEPOINT.exact),
    Check::new("counts: -p, raw-tracepoint", |guest| process(guest, &RAW_TRACEPOINT)).when(RAW_TRACEPOINT.exact),
    Check::new("counts: -- COMMAND, auto", command).when(AUTO.exact),
    Check::new("counts: splice, sendfile, copy_file_range and mapped pages", others).when(AUTO.exact),
];

/// A hook, and where it loses nothing. docs/dev/kernels.md has the measurements.
pub struct Hook {
    /// Its name in `--probe`.
    pub probe: &'static str,
    /// Its name in reports; empty if the tool chooses.
    pub name: &'static str,
    pub layers: &'static [&'static str],
    /// Where a few threads are counted exactly.
    pub exact: fn(&Guest) -> bool,
}

pub const ALL_LAYERS: &[&str] = &[SYSCALL, VFS, EXT4];

const fn hook(
    probe: &'static str,
    name: &'static str,
    layers: &'static [&'static str],
    exact: fn(&Guest) -> bool,
) -> Hook {
    Hook {
        probe,
        name,
        layers,
        exact,
    }
}

pub const AUTO: Hook = hook("auto", "", ALL_LAYERS, |guest| guest.tool().is_some());
/// A pool of ten returns for all tasks that sleep in a function; on 5.10 one for each CPU.
pub const KPROBE: Hook = hook("kprobe", "kprobe/kretprobe", ALL_LAYERS, |guest| {
    guest.tool().is_some() && guest.kernel != "5.10"
});
pub const KPROBE_EVENT: Hook = hook("kprobe-event", "kprobe event", ALL_LAYERS, |guest| {
    guest.tool().is_some()
});
/// Before 7, if it exists, returns come from a small pool.
pub const SESSION: Hook = hook("kprobe-session", "kprobe.session", ALL_LAYERS, |guest| {
    guest.tool().is_some() && guest.kernel == "7"
});
/// A task that is preempted inside it makes it skip other tasks' calls.
pub const FENTRY: Hook = hook("fentry", "fentry/fexit", ALL_LAYERS, |guest| {
    guest.tool().is_some() && !guest.preemptible() && guest.has_trampolines()
});
/// Reads and writes, in addition to ops with frames. With a single thread no call is skipped.
const FSESSION: Hook = hook("fsession", "fsession, fentry/fexit", &[VFS], SESSION.exact);
pub const TRACEPOINT: Hook = hook("tracepoint", "tracepoint", &[SYSCALL], |guest| guest.tool().is_some());
pub const RAW_TRACEPOINT: Hook = hook("raw-tracepoint", "tp_btf", &[SYSCALL], |guest| {
    guest.tool().is_some() && !guest.preemptible()
});

const FILE: &str = "/mnt/ext4/counts/file";
pub const SPEC: Spec = Spec {
    set: "mix",
    threads: 4,
    rounds: 5,
    file: FILE,
    name: "worker",
};
/// The same executable on the same file, while the check runs.
const NOISE: Spec = Spec {
    threads: 1,
    rounds: u64::MAX,
    name: "noise",
    ..SPEC
};

/// The shared file, and a process that uses it but is not traced.
fn noise() -> Result<Workload, String> {
    prepare(FILE)?;
    let noise = Workload::start(&NOISE)?;
    noise.go()?;
    Ok(noise)
}

/// The tool reports the hook that it was forced to use.
fn hooked(guest: &Guest, report: &Report, hook: &Hook) -> Result<(), String> {
    for name in hook.layers {
        let layer = report.layer(name)?;
        let reported = layer.hooks.iter().map(String::as_str).collect::<Vec<_>>();
        if !hook.name.is_empty() && reported.join(", ") != hook.name {
            return Err(format!("{name} was measured by {reported:?}, not {}", hook.name));
        }
        // The tables of 32-bit programs are those of x86 alone.
        let is_usual = |line: &&String| cfg!(target_arch = "aarch64") && line.starts_with("32-bit programs ");
        let not_measured: Vec<&String> = layer.not_measured.iter().filter(|line| !is_usual(line)).collect();
        // By kprobes, asynchronous calls can be lost.
        let is_warned = guest.has_trampolines() && !layer.warnings.is_empty();
        if hook.name.is_empty() && (is_warned || !not_measured.is_empty()) {
            return Err(format!("{name}: {not_measured:?} {:?}", layer.warnings));
        }
    }
    Ok(())
}

fn process(guest: &Guest, hook: &Hook) -> Result<(), String> {
    let _noise = noise()?;
    let workload = Workload::start(&SPEC)?;
    let (layers, pid) = (hook.layers.join(","), workload.pid.to_string());
    let mut arguments = vec!["-T", &layers, "--probe", hook.probe, "-p", &pid];
    let unused = unused(hook);
    arguments.extend(unused.iter().flat_map(|function| ["--without", function.as_str()]));
    let tool = Tool::start(guest, &arguments)?;
    workload.work()?;
    let ended = tool.finish()?;
    let report = ended.report()?;
    hooked(guest, report, hook)?;
    report.is_exactly(&SPEC.truth())
}

/// Calls of a thread whose starts are in cookies, on a file on ext4 and on one on overlayfs, with nested calls.
fn cookies(guest: &Guest) -> Result<(), String> {
    const LAYERS: [&str; 3] = ["/mnt/ext4/lower", "/mnt/ext4/upper", "/mnt/ext4/work"];
    const OVERLAY: &str = "/mnt/counts-overlay";
    let _module = guest.load("overlay", "")?;
    for folder in LAYERS {
        std::fs::create_dir_all(folder).map_err(|e| format!("{folder}: {e}"))?;
    }
    let [lower, upper, work] = LAYERS;
    let options = format!("lowerdir={lower},upperdir={upper},workdir={work}");
    let _overlay = Mounted::mount("overlay", OVERLAY, "overlay", &options)?;
    for file in [FILE, "/mnt/counts-overlay/file"] {
        let spec = Spec {
            threads: 1,
            file,
            ..SPEC
        };
        prepare(file)?;
        let workload = Workload::start(&spec)?;
        let pid = workload.pid.to_string();
        let tool = Tool::start(guest, &["-T", VFS, "--probe", FSESSION.probe, "-p", &pid])?;
        workload.work()?;
        let ended = tool.finish()?;
        let report = ended.report()?;
        hooked(guest, report, &FSESSION)?;
        report.is_exactly(&spec.truth()).map_err(|e| format!("{file}: {e}"))?;
    }
    Ok(())
}

/// Functions of system calls that the workload does not make. With a forced hook, each would only cost time to attach
/// and detach.
fn unused(hook: &Hook) -> Vec<String> {
    let ops = Layer::Syscall
        .ops()
        .iter()
        .filter(|op| !hook.name.is_empty() && !SPEC.makes(op.op.name()));
    ops.flat_map(|op| op.points).map(function_name).collect()
}

/// Nothing before the exec is counted, and everything after it: the calls of the program's start, measured by a run
/// without rounds, and those of the table.
fn command(guest: &Guest) -> Result<(), String> {
    let _noise = noise()?;
    let run = |rounds| -> Result<Ended, String> {
        let command = Spec { rounds, ..SPEC }.command();
        let mut arguments = vec!["-T", "syscall,vfs,ext4", "--"];
        arguments.extend(command.iter().map(String::as_str));
        Tool::start(guest, &arguments)?.finish()
    };
    let start = run(0)?;
    let start = start.report()?;
    // Before its exec the child closes a pipe, writes to one and reads from one: excluded calls. The exec itself opens
    // the program, at vfs only. After it, each thread opens the file five times.
    let opens = |layer, op| -> Result<u64, String> { Ok(start.layer(layer)?.count(op).calls) };
    if opens(EXT4, "open")? != 5 * SPEC.threads
        || opens(VFS, "open")? != opens(SYSCALL, "openat")?
        || start.layers.iter().any(|layer| !layer.excluded.is_empty())
    {
        return Err(format!("the start of a command: {start:?}"));
    }
    let all = run(SPEC.rounds)?;
    let report = all.report()?;
    hooked(guest, report, &AUTO)?;
    report.is_exactly(&SPEC.truth().with(&start.calls()))
}

/// Their calls at vfs differ between kernels, and are not traced.
fn others(guest: &Guest) -> Result<(), String> {
    const OTHERS: Spec = Spec {
        set: "others",
        threads: 1,
        rounds: 5,
        file: FILE,
        name: "other",
    };
    prepare(FILE)?;
    let workload = Workload::start(&OTHERS)?;
    let pid = workload.pid.to_string();
    let tool = Tool::start(guest, &["-T", "syscall,ext4", "-p", &pid])?;
    workload.work()?;
    let ended = tool.finish()?;
    ended.report()?.is_exactly(&OTHERS.truth())
}
