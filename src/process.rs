//! The traced processes: checks that they exist, and that they still do when everything is attached.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};

use libbpf_rs::Iter;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::cause::Cause;
use crate::kernel::interface::skeleton::IostackbreakdownSkelBuilder;
use crate::kernel::processes::numbers_in_proc;
use crate::sys::text_of;

/// One process of `-p`.
#[derive(Debug)]
pub struct Process {
    /// Its number in the caller's PID namespace.
    pub pid: u32,
    /// Its number in the initial PID namespace.
    pub global: u32,
    /// Its name, for the report.
    pub comm: String,
    /// Readable when the process has ended. It never refers to another process; the number may, once a process that has
    /// ended was waited for.
    pub pidfd: OwnedFd,
}

impl Process {
    /// Whether the end of the process is over, or has begun: the event of its exit may have passed.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        let mut fds = [PollFd::new(self.pidfd.as_fd(), PollFlags::POLLIN)];
        let is_over = poll(&mut fds, PollTimeout::ZERO).is_ok_and(|ready| ready > 0);
        is_over || is_exiting(self.pid) == Some(true)
    }
}

/// Why a process cannot be traced.
#[derive(Debug)]
pub enum ProcessError {
    Absent(u32),
    Thread {
        thread: u32,
        process: u32,
    },
    Open(u32, io::Error),
    /// The number could not be translated to the initial namespace.
    Namespace(String),
}

impl std::fmt::Display for ProcessError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Absent(pid) => write!(f, "no process has PID {pid} here (in this PID namespace)"),
            Self::Thread { thread, process } => {
                write!(f, "{thread} is a thread of process {process}; use -p {process}")
            }
            Self::Open(pid, error) => write!(f, "cannot open process {pid}: {error}"),
            Self::Namespace(why) => write!(
                f,
                "cannot translate PIDs of this PID namespace ({why}); run in the host's (docker, podman: --pid=host)"
            ),
        }
    }
}

impl From<ProcessError> for Cause {
    fn from(error: ProcessError) -> Self {
        Self {
            line: error.to_string(),
            errno: match error {
                ProcessError::Open(_, error) => error.raw_os_error(),
                ProcessError::Absent(_) | ProcessError::Thread { .. } | ProcessError::Namespace(_) => None,
            },
        }
    }
}

/// Finds the processes and opens a pidfd for each.
///
/// # Errors
/// If one does not exist, cannot be opened, or its number cannot be translated.
pub fn find(pids: &[u32]) -> Result<Vec<Process>, ProcessError> {
    let mut processes = Vec::new();
    for &pid in pids {
        let pidfd = open_pidfd(pid)?;
        let comm = text_of(format!("/proc/{pid}/comm"))
            .unwrap_or_default()
            .trim_end()
            .to_owned();
        processes.push(Process {
            pid,
            global: pid,
            comm,
            pidfd,
        });
    }
    if !processes.is_empty() && !in_first_pid_namespace() {
        let global = global_numbers()?;
        for process in &mut processes {
            process.global = *global.get(&process.pid).ok_or(ProcessError::Absent(process.pid))?;
        }
    }
    Ok(processes)
}

/// The number of one of our processes in the initial PID namespace.
///
/// # Errors
/// If it has ended, or the numbers cannot be read.
pub fn global_number(pid: u32) -> Result<u32, ProcessError> {
    if in_first_pid_namespace() {
        return Ok(pid);
    }
    global_numbers()?.get(&pid).copied().ok_or(ProcessError::Absent(pid))
}

/// Opens a pidfd.
///
/// # Errors
/// If there is no such process, or the kernel refuses.
pub fn open_pidfd(pid: u32) -> Result<OwnedFd, ProcessError> {
    // SAFETY: integers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if fd >= 0 {
        // SAFETY: the kernel has just given us this descriptor.
        return Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) });
    }
    let error = io::Error::last_os_error();
    let leader = status_number(pid, "Tgid:").filter(|&leader| leader != pid);
    Err(match (error.raw_os_error(), leader) {
        // EINVAL before 6.14, ENOENT since (pidfd: improve uapi when task isn't found).
        (_, Some(process)) => ProcessError::Thread { thread: pid, process },
        (Some(libc::ESRCH | libc::EINVAL | libc::ENOENT), None) => ProcessError::Absent(pid),
        _ => ProcessError::Open(pid, error),
    })
}

/// A number of `/proc/PID/status`.
fn status_number(pid: u32, name: &str) -> Option<u32> {
    number_in(&text_of(format!("/proc/{pid}/status")).ok()?, name)
}

fn number_in(status: &str, name: &str) -> Option<u32> {
    let mut lines = status.lines();
    lines.find_map(|line| line.strip_prefix(name))?.trim().parse().ok()
}

/// Whether this process is in the initial PID namespace.
fn in_first_pid_namespace() -> bool {
    // PROC_PID_INIT_INO, include/linux/proc_ns.h.
    fs::read_link("/proc/self/ns/pid").is_ok_and(|link| link.as_os_str() == "pid:[4026531836]")
}

/// Maps each process number of our namespace to that of the initial one. The kernel is asked, because a namespace
/// cannot see outside itself.
fn global_numbers() -> Result<BTreeMap<u32, u32>, ProcessError> {
    fn failed(error: impl std::fmt::Display) -> ProcessError {
        ProcessError::Namespace(error.to_string())
    }
    let mut storage = MaybeUninit::uninit();
    let mut open = IostackbreakdownSkelBuilder::default()
        .open(&mut storage)
        .map_err(failed)?;
    for mut program in open.open_object_mut().progs_mut() {
        let wanted = program.name() == "resolve_pids";
        program.set_autoload(wanted);
    }
    // The program uses none of them.
    for mut map in open.open_object_mut().maps_mut() {
        map.set_autocreate(false).map_err(failed)?;
    }
    let skeleton = open.load().map_err(failed)?;
    let link = skeleton.progs.resolve_pids.attach().map_err(failed)?;
    let mut bytes = Vec::new();
    Iter::new(&link)
        .map_err(failed)?
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    let numbers = bytes
        .chunks_exact(4)
        .filter_map(|word| Some(u32::from_ne_bytes(word.try_into().ok()?)));
    let numbers: Vec<u32> = numbers.collect();
    Ok(numbers.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect())
}

/// All current descendants of these processes, without the processes themselves.
#[must_use]
pub fn descendants(of: &[u32]) -> BTreeSet<u32> {
    let parents: Vec<(u32, u32)> = numbers_in_proc()
        .filter_map(|pid| Some((pid, status_number(pid, "PPid:")?)))
        .collect();
    descendants_among(&parents, of)
}

/// Whether all threads of a process are exiting, or have exited; `None`: `/proc` has no such process. The first thread
/// alone does not decide: others may go on after its exit.
#[must_use]
pub fn is_exiting(pid: u32) -> Option<bool> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
    let mut stats = threads.filter_map(|thread| text_of(thread.path().join("stat")).ok());
    let first = stats.next()?;
    Some(shows_exit(&first) && stats.all(|stat| shows_exit(&stat)))
}

/// Of `/proc/PID/task/TID/stat`: `PID (NAME) STATE`, then five numbers and the flags of the task. A name may contain
/// parentheses. A task has PF_EXITING (include/linux/sched.h) from before the event of its exit on.
fn shows_exit(stat: &str) -> bool {
    const PF_EXITING: u64 = 0x4;
    let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
    let flags = fields.split(' ').nth(6).and_then(|flags| flags.parse::<u64>().ok());
    flags.is_some_and(|flags| flags & PF_EXITING != 0)
}

/// Selects descendants from pairs of process and parent.
fn descendants_among(parents: &[(u32, u32)], of: &[u32]) -> BTreeSet<u32> {
    let mut found: BTreeSet<u32> = of.iter().copied().collect();
    loop {
        let before = found.len();
        found.extend(
            parents
                .iter()
                .filter(|(_, parent)| found.contains(parent))
                .map(|(pid, _)| *pid)
                .collect::<Vec<_>>(),
        );
        if found.len() == before {
            break;
        }
    }
    found.retain(|pid| !of.contains(pid));
    found
}

/// Whether a thread may be in one of these system calls (of none: in any), as `/proc` shows it; `true` if it shows nothing.
#[must_use]
pub fn may_be_in_call(pid: u32, tid: u32, numbers: &[i64]) -> bool {
    match fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")) {
        Ok(text) => shows_call(&text, numbers),
        // Some kernels have no such file; then the thread's directory shows whether it exists.
        Err(_) => fs::symlink_metadata(format!("/proc/{pid}/task/{tid}")).is_ok(),
    }
}

/// Of `/proc/PID/task/TID/syscall`: `running`, or else the number of the call, which is -1 outside of calls
/// (proc_pid_syscall(), fs/proc/base.c).
fn shows_call(text: &str, numbers: &[i64]) -> bool {
    let first = text.split_whitespace().next().unwrap_or_default();
    match first.parse::<i64>() {
        Ok(number) => number >= 0 && (numbers.is_empty() || numbers.contains(&number)),
        Err(_) => first == "running",
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::wait::{Id, WaitPidFlag, waitid};
    use nix::unistd::Pid;
    use proptest::prelude::*;

    use super::*;
    use crate::fuzz;

    #[test]
    fn descendants_are_found_in_any_order() {
        let parents = [(9, 8), (2, 1), (8, 5), (5, 1), (7, 2), (1, 0)];
        assert_eq!(descendants_among(&parents, &[5]), BTreeSet::from([8, 9]));
        assert_eq!(descendants_among(&parents, &[2, 8]), BTreeSet::from([7, 9]));
        assert!(descendants_among(&parents, &[9]).is_empty());
    }

    #[test]
    fn ourselves_are_found_and_a_number_beyond_all_is_not() {
        let this = std::process::id();
        assert_eq!(find(&[this]).map(|found| found[0].pid).unwrap(), this);
        assert!(matches!(find(&[4_194_305]), Err(ProcessError::Absent(4_194_305))));
    }

    proptest! {
        #![proptest_config(fuzz::config())]

        #[test]
        fn any_status_is_read(status in fuzz::text_like("Name:\tpostgres\nTgid:\t4711\nPPid:\t1\n")) {
            let _ = (number_in(&status, "Tgid:"), number_in(&status, "PPid:"));
        }


        #[test]
        fn any_parents_have_an_end(parents in proptest::collection::vec((0_u32..20, 0_u32..20), 0..60), of in proptest::collection::vec(0_u32..20, 0..5)) {
            prop_assert!(descendants_among(&parents, &of).iter().all(|found| !of.contains(found)));
        }
    }

    #[test]
    fn proc_shows_whether_a_thread_is_in_a_call() {
        for (text, numbers, expected) in [
            ("running\n", &[0][..], true),
            ("0 0x3 0x7ffd 0x1000 0x0 0x0 0x0 0x7ffd 0x7f\n", &[0], true),
            ("202 0x3 0x7ffd 0x1000 0x0 0x0 0x0 0x7ffd 0x7f\n", &[0], false),
            ("202 0x3 0x7ffd 0x1000 0x0 0x0 0x0 0x7ffd 0x7f\n", &[], true),
            ("-1 0x7ffd 0x7f\n", &[], false),
            ("", &[0], false),
        ] {
            assert_eq!(shows_call(text, numbers), expected, "{text}");
        }
        assert!(!may_be_in_call(4_194_305, 4_194_305, &[]));
    }

    #[test]
    fn a_thread_that_exits_shows_it_whatever_its_name_is() {
        for (stat, exits) in [
            ("4711 (cat) S 1 4711 4711 0 -1 4194304 90 0\n", false),
            ("4711 (cat) Z 1 4711 4711 0 -1 4194572 90 0\n", true),
            ("4711 (cat) R 1 4711 4711 34816 4711 4194308 90 0\n", true),
            ("4711 (a) Z 1 2 3 4 5 4 (b) S 1 4711 4711 0 -1 4194304 90 0\n", false),
            ("", false),
        ] {
            assert_eq!(shows_exit(stat), exits, "{stat}");
        }
        assert_eq!(is_exiting(std::process::id()), Some(false));
        assert_eq!(is_exiting(4_194_305), None);
    }

    #[test]
    fn a_process_that_was_not_waited_for_is_ending() {
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let found = find(&[child.id()]).unwrap().remove(0);
        assert!(!found.is_ending());
        child.kill().unwrap();
        // It stays a zombie.
        let pid = Pid::from_raw(child.id().cast_signed());
        waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT).unwrap();
        assert!(found.is_ending());
        child.wait().unwrap();
        assert!(found.is_ending());
    }

    #[test]
    fn a_name_that_is_no_text_hides_no_number() {
        let status = String::from_utf8_lossy(b"Name:\t\xff\xfe\nTgid:\t12\nPPid:\t7\n");
        assert_eq!(number_in(&status, "PPid:"), Some(7));
    }
}
