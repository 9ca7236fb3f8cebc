//! Runs one check in a process of its own, so that its effects on itself do not reach the next one.

use super::init::is_of_init;
use super::process::{wait_for, waited};
use super::{Check, Guest};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::mount::{MntFlags, umount2};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, pipe2, setpgid};
use std::fs::File;
use std::io::{Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often init checks whether a process has ended.
const POLL: Duration = Duration::from_millis(5);
/// How long killed processes may take to disappear: one in an uninterruptible sleep ends only when its I/O does.
const TO_DIE: Duration = Duration::from_secs(30);
/// How long the tool's helpers may take to detach a hundred probes.
const TO_DETACH: Duration = Duration::from_secs(120);
/// What a check writes if it passed; anything else is the reason why it failed.
const PASSED: &str = "passed";
/// How much of a reason is kept. All of it must fit into the pipe, which is only read when the check has ended.
const REASON_MAX: usize = 32 << 10;

/// The check's panic, for the verdict: the payload alone does not say where it happened.
static PANIC: Mutex<Option<String>> = Mutex::new(None);

pub fn run_check(check: &Check, guest: &Guest) -> Result<(), String> {
    // Closed on exec: a process that cannot be killed must not hold up the result.
    let (answer, sink) = pipe2(OFlag::O_CLOEXEC).map_err(|e| format!("pipe: {e}"))?;
    let (mut answer, sink) = (File::from(answer), File::from(sink));
    // SAFETY: init has a single thread, so all locks are free in the child.
    let verdict = match unsafe { fork() } {
        Err(error) => return Err(format!("fork: {error}")),
        Ok(ForkResult::Child) => in_child(check, guest, sink),
        Ok(ForkResult::Parent { child }) => {
            drop(sink);
            reap_until(child, check.limit)
        }
    };
    let cleared = clear();
    if !matches!(verdict, Ok(WaitStatus::Exited(_, 0))) {
        unmount_rest();
    }
    match verdict? {
        WaitStatus::Exited(_, 0) => {}
        WaitStatus::Exited(_, status) => return Err(format!("the check's process exited with {status}")),
        WaitStatus::Signaled(_, signal, _) => return Err(format!("the check's process died of {signal}")),
        other => return Err(format!("the check's process: {other:?}")),
    }
    let mut text = Vec::new();
    answer
        .read_to_end(&mut text)
        .map_err(|e| format!("the check's answer: {e}"))?;
    match String::from_utf8_lossy(&text).as_ref() {
        PASSED => cleared,
        "" => Err("the check's process ended without an answer".into()),
        reason => Err(reason.into()),
    }
}

fn in_child(check: &Check, guest: &Guest, mut sink: File) -> ! {
    // A process group of its own, so that a signal to the group does not reach init.
    let _ = setpgid(Pid::from_raw(0), Pid::from_raw(0));
    std::panic::set_hook(Box::new(|panic| {
        *PANIC.lock().unwrap_or_else(PoisonError::into_inner) = Some(panic.to_string());
    }));
    let text = match catch_unwind(AssertUnwindSafe(|| (check.run)(guest))) {
        Ok(Ok(())) => PASSED.into(),
        Ok(Err(reason)) => reason,
        Err(_) => PANIC
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
            .unwrap_or_else(|| "panicked".into()),
    };
    let status = i32::from(sink.write_all(&text.as_bytes()[..text.len().min(REASON_MAX)]).is_err());
    // SAFETY: the child must not run the parent's destructors, nor flush what was buffered before the fork.
    unsafe { libc::_exit(status) }
}

/// Waits for one child; every other process that ends meanwhile is an orphan, which process 1 must reap.
fn reap_until(child: Pid, limit: Duration) -> Result<WaitStatus, String> {
    let start = Instant::now();
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) if start.elapsed() > limit => {
                return Err(waited("the end of the check", limit));
            }
            Ok(WaitStatus::StillAlive) => std::thread::sleep(POLL),
            Ok(status) if status.pid() == Some(child) => return Ok(status),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(format!("waiting for the check: {error}")),
        }
    }
}

/// Kills every process except this one (kernel threads are not affected) and waits until they have ended. The tool's
/// own helpers must end by themselves: they restore what it has changed in the kernel.
fn clear() -> Result<(), String> {
    let helpers = wait_for("the tool's helpers to end", TO_DETACH, || {
        for pid in others().into_iter().filter(|&pid| !is_helper(pid)) {
            // One that has ended meanwhile needs no signal.
            let _ = kill(pid, Signal::SIGKILL);
        }
        !bury() || others().is_empty()
    });
    wait_for("a check's processes to die", TO_DIE, || {
        // Without remaining processes the call fails with ESRCH; which of the two calls does so first does not matter.
        let _ = kill(Pid::from_raw(-1), Signal::SIGKILL);
        !bury()
    })?;
    helpers
}

/// Unmounts what a killed check could not: file systems keep their modules and disks in use, which the next check may
/// need.
fn unmount_rest() {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let targets = mounts.lines().rev().filter_map(|line| line.split(' ').nth(1));
    for target in targets.filter(|target| !is_of_init(target)) {
        if let Err(error) = umount2(target, MntFlags::MNT_DETACH) {
            eprintln!("{target}: {error}");
        }
    }
}

/// Reaps ended children; returns whether any child is left.
fn bury() -> bool {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => return true,
            Err(Errno::ECHILD) => return false,
            Ok(_) | Err(_) => {}
        }
    }
}

/// Other processes with a program: kernel threads have no command line.
fn others() -> Vec<Pid> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let has_program = |pid: &i32| std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty());
    pids.filter(|&pid| pid != 1)
        .filter(has_program)
        .map(Pid::from_raw)
        .collect()
}

fn is_helper(pid: Pid) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.starts_with("iosb-"))
}
