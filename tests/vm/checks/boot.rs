//! The guest itself, on which all other checks depend.

use super::costs::{MINUTE, recorder, tool as tool_with};
use crate::guest::{Check, Guest, Running, ran_out, run, wait_for};
use nix::sys::signal::Signal;
use nix::sys::statfs::{EXT4_SUPER_MAGIC, FsType, XFS_SUPER_MAGIC, statfs};
use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

pub const CHECKS: &[Check] = &[
    Check::new("guest: preemption is as requested", preemption),
    Check::new("guest: ext4 and xfs on nvme, tracefs", file_systems),
    Check::new("guest: null_blk waits as configured", null_blk),
    Check::new("guest: helpers capture, signal and time out", helpers).limit(30),
    Check::new("guest: the tool starts", tool).when(|guest| guest.tool().is_some()),
    Check::new("guest: the kernel refuses no program", no_program_is_refused)
        .when(|guest| guest.tool().is_some())
        .limit(300),
];

fn preemption(guest: &Guest) -> Result<(), String> {
    let asked = guest.variant.strip_prefix("preempt=");
    // 5.10 has a fixed model, and 7.x only preemptible ones.
    let preemptible = asked == Some("full") || guest.kernel == "7";
    if asked.is_some_and(|model| model != guest.preemption) || guest.preemptible() != preemptible {
        return Err(format!("it is {} ({})", guest.preemption, guest.version));
    }
    Ok(())
}

fn file_systems(_: &Guest) -> Result<(), String> {
    let wanted: [(&str, FsType); 2] = [(Guest::EXT4, EXT4_SUPER_MAGIC), (Guest::XFS, XFS_SUPER_MAGIC)];
    for (path, magic) in wanted {
        let found = statfs(path).map_err(|e| format!("{path}: {e}"))?.filesystem_type();
        if found != magic {
            return Err(format!("{path}: magic {found:x?}, not {magic:x?}"));
        }
    }
    let functions = "/sys/kernel/tracing/available_filter_functions";
    let list = std::fs::read_to_string(functions).map_err(|e| format!("{functions}: {e}"))?;
    if !list
        .lines()
        .any(|function| function.split(' ').next() == Some("vfs_read"))
    {
        return Err(format!(
            "{functions} has {} lines and no vfs_read",
            list.lines().count()
        ));
    }
    Ok(())
}

fn null_blk(guest: &Guest) -> Result<(), String> {
    const DEVICE: &str = "/dev/nullb0";
    const DELAY: Duration = Duration::from_millis(50);
    let parameters = format!("nr_devices=1 gb=1 irqmode=2 completion_nsec={}", DELAY.as_nanos());
    let _loaded = guest.load("null_blk", &parameters)?;
    wait_for(DEVICE, Duration::from_secs(10), || Path::new(DEVICE).exists())?;
    let disk = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open(DEVICE)
        .map_err(|e| format!("{DEVICE}: {e}"))?;
    let mut memory = vec![0; 8192];
    let aligned = memory.as_ptr().align_offset(4096);
    let start = Instant::now();
    disk.read_exact_at(&mut memory[aligned..aligned + 4096], 0)
        .map_err(|e| format!("{DEVICE}: {e}"))?;
    if start.elapsed() < DELAY {
        return Err(format!("a read took {:?}", start.elapsed()));
    }
    Ok(())
}

fn helpers(_: &Guest) -> Result<(), String> {
    let minute = Duration::from_secs(60);
    let list = run(Command::new("/init").arg("--list"), minute)?.success()?;
    if !list.stdout.contains("helpers capture") {
        return Err(format!("stdout: {:?}", list.stdout));
    }
    let wrong = Running::start(Command::new("/init").arg("--no-such-option"))?;
    wait_for("an error message", minute, || {
        wrong.stderr().contains("--no-such-option")
    })?;
    let wrong = wrong.finish(minute)?;
    if wrong.status.code() != Some(2) || wrong.success().is_ok() {
        return Err("wrong usage was no failure".into());
    }

    let paused = Running::start(Command::new("/init").arg("pause"))?;
    paused.signal(Signal::SIGTERM)?;
    let ended = paused.finish(minute)?.status;
    if ended.signal() != Some(Signal::SIGTERM as i32) {
        return Err(format!("after SIGTERM: {ended}"));
    }

    let paused = Running::start(Command::new("/init").arg("pause"))?;
    let pid = paused.pid();
    match paused.finish(Duration::from_millis(100)) {
        Err(reason) if ran_out(&reason) => {}
        other => return Err(format!("no time limit: {other:?}")),
    }
    if Path::new(&format!("/proc/{pid}")).exists() {
        return Err(format!("process {pid} outlived its limit"));
    }
    Ok(())
}

fn tool(guest: &Guest) -> Result<(), String> {
    let tool = guest.tool().ok_or("it is gone")?;
    run(Command::new(tool).arg("--version"), Duration::from_secs(60))?
        .success()
        .map(drop)
}

/// Views with different programs: code that none of them needs is removed from those that are loaded.
const VIEWS: [&[&str]; 2] = [&["--slower", "10ms"], &["-T", "vfs,ext4,xfs,blk", "-Q", "-p", "1"]];
/// With the operations of each layer, groups, and records.
const RECORDED: &[&str] = &["-p", "1", "--by", "process", "--export-json", "/tmp/refused.json"];

/// A refused program is replaced, or something is not measured, and one that is not folded costs more; the report says so, but it may
/// not be noticed.
fn no_program_is_refused(guest: &Guest) -> Result<(), String> {
    let views = VIEWS.iter().map(|view| (*view, false));
    for (view, is_recorded) in views.chain([(RECORDED, true)]) {
        let arguments: Vec<&str> = view.iter().copied().chain(["--verbose"]).collect();
        let start = if is_recorded { recorder } else { tool_with };
        let running = start(guest, &arguments)?;
        let said = running.stderr();
        running.signal(Signal::SIGINT)?;
        running.finish(MINUTE)?.success()?;
        // The end of the verifier's log.
        if let Some(line) = said
            .lines()
            .find(|line| line.starts_with("processed ") && line.contains(" insns"))
        {
            return Err(format!("{view:?}: {line}:\n{said}"));
        }
        if said.contains("loaded as they were compiled") {
            return Err(format!("{view:?}: not all programs are folded:\n{said}"));
        }
    }
    Ok(())
}
