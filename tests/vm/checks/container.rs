//! In a container: namespaces and a root of its own, with only the mounts listed in `docs/containers.md`.

use super::report::Tool;
use crate::guest::{Check, Guest};
use crate::workload::{EXT4, Spec, VFS, Workload, prepare};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

pub const CHECKS: &[Check] = &[
    Check::new("container: a process outside is counted exactly", outside).when(Guest::as_booted),
    Check::new("container: without debugfs and tracefs it says so", bare)
        .when(|guest| guest.as_booted() && guest.kernel == "6.12" && can_choose_preemption()),
];

/// Debian's kernels for arm64 of this version cannot.
fn can_choose_preemption() -> bool {
    fs::read_to_string("/proc/version").is_ok_and(|version| version.contains("PREEMPT_DYNAMIC"))
}

const ROOT: &str = "/tmp/container";
const TOOL: &str = "/IOStackBreakdown";
const SPEC: Spec = Spec {
    set: "mix",
    threads: 2,
    rounds: 3,
    file: "/mnt/ext4/container/file",
    name: "worker",
};
/// Mounts of the host's directories, by `-v`.
const BY_WISH: [(&str, &str); 2] = [("tracefs", "sys/kernel/tracing"), ("debugfs", "sys/kernel/debug")];
/// Mounts that every container has; `/tmp`, where reports go, is the host's.
const ALWAYS: [(&str, &str); 3] = [("tmpfs", ""), ("sysfs", "sys"), ("proc", "proc")];

/// The tool in a container with the host's PID namespace.
fn container(guest: &Guest, mounts: &[(&str, &str)]) -> Result<Command, String> {
    let apart = CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWUTS
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWNET
        | CloneFlags::CLONE_NEWCGROUP;
    unshare(apart).map_err(|e| format!("unshare: {e}"))?;
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).map_err(|e| format!("/: {e}"))?;
    for (kind, place) in ALWAYS.iter().chain(mounts) {
        let place = Path::new(ROOT).join(place);
        fs::create_dir_all(&place).map_err(|e| format!("{}: {e}", place.display()))?;
        mount(Some(*kind), &place, Some(*kind), MsFlags::empty(), none)
            .map_err(|e| format!("{}: {e}", place.display()))?;
    }
    let reports = format!("{ROOT}/tmp");
    fs::create_dir_all(&reports).map_err(|e| format!("{reports}: {e}"))?;
    mount(Some("/tmp"), reports.as_str(), none, MsFlags::MS_BIND, none).map_err(|e| format!("{reports}: {e}"))?;
    let binary = format!("{ROOT}{TOOL}");
    fs::copy(guest.tool().ok_or("there is no tool")?, &binary).map_err(|e| format!("{binary}: {e}"))?;

    let mut command = Command::new(TOOL);
    let enter = || {
        std::os::unix::fs::chroot(ROOT)?;
        std::env::set_current_dir("/")
    };
    // SAFETY: it makes system calls only.
    unsafe { command.pre_exec(enter) };
    Ok(command)
}

fn outside(guest: &Guest) -> Result<(), String> {
    prepare(SPEC.file)?;
    let workload = Workload::start(&SPEC)?;
    let command = container(guest, &BY_WISH)?;
    let layers = [VFS, EXT4].join(",");
    // The disk is found without /dev.
    let arguments = ["-T", &layers, "-d", "nvme0n1p1", "-p", &workload.pid.to_string()];
    let tool = Tool::start_by(command, &arguments)?;
    workload.work()?;
    tool.finish()?.report()?.is_exactly(&SPEC.truth())
}

fn bare(guest: &Guest) -> Result<(), String> {
    prepare(SPEC.file)?;
    let workload = Workload::start(&SPEC)?;
    let command = container(guest, &[])?;
    let tool = Tool::start_by(command, &["-T", EXT4, "-p", &workload.pid.to_string()])?;
    workload.work()?;
    let report = tool.written()?;
    let said: String = report.split_whitespace().collect::<Vec<_>>().join(" ");
    if said.contains("cannot tell whether this kernel is preemptible") && said.contains("can lose calls") {
        Ok(())
    } else {
        Err(format!("nothing of it is said:\n{report}"))
    }
}
