//! Calls that are not selected are not counted, and selected ones are counted exactly.

use super::counts::ALL_LAYERS;
use super::report::{Report, Tool};
use crate::family;
use crate::guest::{Check, Guest, Running, as_booted as check, wait_for};
use crate::workload::{Calls, END_BOUND, EXT4, Spec, VFS, Workload, prepare};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, fork};
use std::process::Command;
use std::time::Duration;

pub const CHECKS: &[Check] = &[
    check("filters: -p inside a PID namespace", pid_namespace),
    check("filters: -p of two processes out of three", |guest| {
        two_of_three(guest, ALL_LAYERS, &SPEC)
    }),
    check("filters: -p and -f, children from before and after", |guest| {
        descendants(guest, &[VFS, EXT4], &SPEC)
    }),
    check("filters: --comm", |guest| thread_name(guest, ALL_LAYERS, &SPEC)),
    check("filters: --cgroup, and one below it", |guest| {
        control_group(guest, ALL_LAYERS, &SPEC)
    }),
    check("filters: -d, a partition and a disk", disk),
    check("filters: --all-files", all_files),
];

pub const SPEC: Spec = Spec {
    set: "mix",
    threads: 2,
    rounds: 3,
    file: "/mnt/ext4/filters/file",
    name: "worker",
};
const MINUTE: Duration = Duration::from_secs(60);

fn layers() -> String {
    ALL_LAYERS.join(",")
}

/// Whether the operations are these. Excluded calls are not compared: without a filter they include other processes'
/// pipes.
fn operations_are(report: &Report, truth: &Calls) -> Result<(), String> {
    let mut reported = report.calls();
    let layers: Vec<&String> = report.layers.iter().map(|layer| &layer.name).collect();
    let mut truth = truth.clone();
    truth.ops.retain(|(layer, _), _| layers.contains(&layer));
    reported.ops.retain(|_, count| count.calls > 0);
    if reported.ops == truth.ops {
        Ok(())
    } else {
        Err(format!("reported {:?},\nis {:?}", reported.ops, truth.ops))
    }
}

/// The truth this many times.
fn times(n: u64, spec: &Spec) -> Calls {
    (1..n).fold(spec.truth(), |sum, _| sum.with(&spec.truth()))
}

/// Numbers are those of the namespace, which has its own /proc; the kernel's numbers of the same processes differ.
fn pid_namespace(guest: &Guest) -> Result<(), String> {
    const SAID: &str = "/tmp/namespace";
    prepare(SPEC.file)?;
    unshare(CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWNS).map_err(|e| format!("unshare: {e}"))?;
    // A process that has left its children's namespace cannot create threads, so the check continues in its first
    // child.
    // SAFETY: a check's process has a single thread.
    match unsafe { fork() }.map_err(|e| format!("fork: {e}"))? {
        ForkResult::Child => {
            let said = inside(guest).err().unwrap_or_default();
            let status = i32::from(std::fs::write(SAID, said).is_err());
            // SAFETY: ends the child without running the parent's destructors.
            unsafe { libc::_exit(status) }
        }
        ForkResult::Parent { child } => {
            let status = waitpid(child, None).map_err(|e| format!("waitpid: {e}"))?;
            let said = std::fs::read_to_string(SAID).map_err(|e| format!("{SAID}, {status:?}: {e}"))?;
            if said.is_empty() { Ok(()) } else { Err(said) }
        }
    }
}

/// As process 1 of the namespace.
fn inside(guest: &Guest) -> Result<(), String> {
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).map_err(|e| format!("/: {e}"))?;
    mount(Some("proc"), "/proc", Some("proc"), MsFlags::empty(), none).map_err(|e| format!("/proc: {e}"))?;
    let workload = Workload::start(&SPEC)?;
    if workload.pid > 20 {
        return Err(format!("PID {} is not of a new namespace", workload.pid));
    }
    let tool = Tool::start(guest, &["-T", &layers(), "-p", &workload.pid.to_string()])?;
    workload.work()?;
    let ended = tool.finish()?;
    // The end of the namespace kills everything in it, including the helpers that restore what the tool changed.
    wait_for("the tool's helpers to end", END_BOUND, || {
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let mut names = entries.filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok());
        !names.any(|stat| stat.contains("(iosb-") && !stat.contains(") Z "))
    })?;
    ended.report()?.is_exactly(&SPEC.truth())
}

pub fn two_of_three(guest: &Guest, layers: &[&str], spec: &Spec) -> Result<(), String> {
    prepare(spec.file)?;
    let [one, other, two] = [(); 3].map(|()| Workload::start(spec));
    let all = [one?, other?, two?];
    let pids = format!("{},{}", all[0].pid, all[2].pid);
    let tool = Tool::start(guest, &["-T", &layers.join(","), "-p", &pids])?;
    for workload in all {
        workload.work()?;
    }
    tool.finish()?.report()?.is_exactly(&times(2, spec))
}

pub fn descendants(guest: &Guest, layers: &[&str], spec: &Spec) -> Result<(), String> {
    prepare(spec.file)?;
    let layers = layers.join(",");
    // The calls of a workload's start, which is traced for the second child.
    let start = Spec { rounds: 0, ..*spec }.command();
    let mut arguments = vec!["-T", &layers, "--"];
    arguments.extend(start.iter().map(String::as_str));
    let start = Tool::start(guest, &arguments)?.finish()?;
    let start = start.report()?.calls();

    let command = spec.command();
    let mut words = command.iter().map(String::as_str);
    let program = words.next().ok_or("no program")?;
    let parent = Running::start(Command::new(program).arg("family").args(words.skip(1)))?;
    let mut pid = None;
    wait_for("a family", MINUTE, || {
        let said = parent.stderr();
        pid = said
            .lines()
            .find_map(|line| Some(line.strip_prefix("family ")?.to_owned()));
        pid.is_some() && said.lines().any(|line| line.starts_with("ready "))
    })?;
    let pid = pid.ok_or("a family has no number")?;
    let tool = Tool::start(guest, &["-T", &layers, "-f", "-p", &pid])?;
    parent.signal(family::GO)?;
    parent.finish(END_BOUND)?.success()?;
    let ended = tool.finish()?;
    let mut truth = times(2, spec).with(&start);
    // The second one is traced from its fork, a command from its exec: the open of its program is in between.
    truth.ops.entry((VFS.into(), "open".into())).or_default().calls += 1;
    operations_are(ended.report()?, &truth).map_err(|e| format!("{e}\n{}", ended.text))
}

/// Threads are named `worker-0` and on.
pub fn thread_name(guest: &Guest, layers: &[&str], spec: &Spec) -> Result<(), String> {
    prepare(spec.file)?;
    let workload = Workload::start(spec)?;
    let tool = Tool::start(guest, &["-T", &layers.join(","), "--comm", "worker-1"])?;
    workload.work()?;
    tool.interrupt()?;
    tool.finish()?
        .report()?
        .is_exactly(&Spec { threads: 1, ..*spec }.truth())
}

pub fn control_group(guest: &Guest, layers: &[&str], spec: &Spec) -> Result<(), String> {
    prepare(spec.file)?;
    const GROUP: &str = "/sys/fs/cgroup/filters";
    let below = format!("{GROUP}/below");
    std::fs::create_dir_all(&below).map_err(|e| format!("{below}: {e}"))?;
    let [inside, deeper, outside] = [(); 3].map(|()| Workload::start(spec));
    let all = [inside?, deeper?, outside?];
    for (workload, group) in all.iter().zip([GROUP, &below]) {
        let procs = format!("{group}/cgroup.procs");
        std::fs::write(&procs, workload.pid.to_string()).map_err(|e| format!("{procs}: {e}"))?;
    }
    let tool = Tool::start(guest, &["-T", &layers.join(","), "--cgroup", GROUP])?;
    for workload in all {
        workload.work()?;
    }
    tool.interrupt()?;
    tool.finish()?.report()?.is_exactly(&times(2, spec))
}

fn disk(guest: &Guest) -> Result<(), String> {
    const OTHER: Spec = Spec {
        file: "/mnt/xfs/filters/file",
        ..SPEC
    };
    // A partition belongs to ext4 only, the disk to both file systems.
    for (name, ext4, all) in [("nvme0n1p1", 1, 1), ("/dev/nvme0n1", 1, 2)] {
        prepare(SPEC.file)?;
        prepare(OTHER.file)?;
        let workloads = [Workload::start(&SPEC)?, Workload::start(&OTHER)?];
        let tool = Tool::start(guest, &["-T", &layers(), "-d", name])?;
        for workload in workloads {
            workload.work()?;
        }
        tool.interrupt()?;
        let ended = tool.finish()?;
        let times = |n: u64| (1..n).fold(SPEC.truth_of_disk(), |sum, _| sum.with(&SPEC.truth_of_disk()));
        let mut truth = times(all);
        let of_ext4 = times(ext4);
        truth.ops.retain(|(layer, _), _| layer != EXT4);
        truth
            .ops
            .extend(of_ext4.ops.into_iter().filter(|((layer, _), _)| layer == EXT4));
        operations_are(ended.report()?, &truth).map_err(|e| format!("{name}: {e}\n{}", ended.text))?;
    }
    Ok(())
}

fn all_files(guest: &Guest) -> Result<(), String> {
    prepare(SPEC.file)?;
    let workload = Workload::start(&SPEC)?;
    let tool = Tool::start(
        guest,
        &["-T", &layers(), "--all-files", "-p", &workload.pid.to_string()],
    )?;
    workload.work()?;
    tool.finish()?.report()?.is_exactly(&SPEC.truth_of_all_files())
}
