//! Kretprobes with enough instances for many simultaneous calls, as kprobe events created through tracefs.
//!
//! Perf's own kretprobes have about ten instances, and calls that find none free are lost. Only an event created
//! through tracefs can have more. Unlike everything else, such an event outlives the process that created it. So a
//! second process, the keeper, which is forked before the first event is created, waits until this process ends for any
//! reason, and removes the events.
//!
//! If the keeper is killed as well, the next run removes them. Runs may be in different PID namespaces and cannot see each
//! other, but they write the same file of tracefs. The number of a run's events is therefore claimed by a lock on the byte
//! of that file at this offset: while the run or its keeper exists, the lock is held.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::unistd::{ForkResult, Pid};

use crate::signals;
use crate::turn::Detaching;

/// The number of instances, that is of simultaneous calls of a function whose return is traced: the kernel's limit
/// (KRETPROBE_MAXACTIVE_MAX, kernel/trace/trace_kprobe.c).
pub const INSTANCES: u32 = 4096;

/// The prefix of the group names of our events; the number of the run follows, which is usually the process number.
const GROUP_PREFIX: &str = "iostackbreakdown_";

/// How long the keeper retries to remove events that the ending process still uses.
const REMOVAL_BOUND: Duration = Duration::from_secs(120);
const REMOVAL_PAUSE: Duration = Duration::from_millis(50);

/// The events of this process, and the process that will remove them.
#[derive(Debug)]
pub struct KprobeEvents {
    tracefs: PathBuf,
    group: String,
    made: usize,
    /// Holds the lock.
    _claim: File,
    /// A pipe that closes when this process ends; the keeper reads the other end.
    _alive: OwnedFd,
}

impl KprobeEvents {
    /// Removes events that earlier runs may have left and starts the keeper. Call it while the process has one thread.
    ///
    /// # Errors
    /// If the events cannot be written, or the keeper cannot be forked.
    pub fn new(tracefs: &Path) -> io::Result<Self> {
        let claim = opened(&tracefs.join("kprobe_events"))?;
        remove_orphans(tracefs, &claim);
        let group = group_of(claim_from(&claim, Pid::this().as_raw().unsigned_abs())?);
        let (reader, alive) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
        // SAFETY: the process has one thread, so the child is not restricted to async-signal-safe functions.
        match unsafe { nix::unistd::fork() }? {
            ForkResult::Parent { .. } => Ok(Self {
                tracefs: tracefs.to_owned(),
                group,
                made: 0,
                _claim: claim,
                _alive: alive,
            }),
            ForkResult::Child => keep(tracefs, &group, reader, &claim),
        }
    }

    /// Creates an event at the return of `function` and returns its number.
    ///
    /// # Errors
    /// If the kernel refuses the function.
    pub fn make_return(&mut self, function: &str) -> io::Result<u64> {
        let name = format!("r{}_{function}", self.made);
        let line = format!("r{INSTANCES}:{}/{name} {function}", self.group);
        append(&self.tracefs.join("kprobe_events"), &line)?;
        self.made += 1;
        let id = self.tracefs.join("events").join(&self.group).join(&name).join("id");
        let id = fs::read_to_string(id)?;
        id.trim()
            .parse()
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "an event has no number"))
    }
}

/// The name of the group of a run's events.
fn group_of(number: u32) -> String {
    format!("{GROUP_PREFIX}{number}")
}

/// The number of the run to whose events a group belongs; `None`: it is not one of ours.
fn number_of(group: &str) -> Option<u32> {
    group.strip_prefix(GROUP_PREFIX)?.parse().ok()
}

/// `kprobe_events` for writing. (Opened with `O_TRUNC`, it would remove all events.)
fn opened(events: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).open(events)
}

/// Locks the byte of a run, or unlocks it. Returns whether it is possible: whether no other run has the lock.
///
/// # Errors
/// The kernel's error.
fn lock(events: &File, number: u32, kind: libc::c_int) -> io::Result<bool> {
    let range = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: number.into(),
        l_len: 1,
        l_pid: 0,
    };
    // The lock belongs to the open file, so the keeper, which inherits it, holds it as well.
    match fcntl(events, FcntlArg::F_OFD_SETLK(&range)) {
        Ok(_) => Ok(true),
        Err(Errno::EAGAIN | Errno::EACCES) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Claims the first number from `first` on that no other run has: a run in another PID namespace may have the same
/// process number.
///
/// # Errors
/// The kernel's error.
fn claim_from(events: &File, first: u32) -> io::Result<u32> {
    let mut number = first;
    while !lock(events, number, libc::F_WRLCK)? {
        number = number.wrapping_add(1);
    }
    Ok(number)
}

/// Writes a command to `kprobe_events`.
fn append(events: &Path, line: &str) -> io::Result<()> {
    opened(events)?.write_all(format!("{line}\n").as_bytes())
}

/// The events in the text of `kprobe_events` whose group `select` accepts, as `group/name`.
fn events_of(text: &str, select: impl Fn(&str) -> bool) -> Vec<String> {
    let names = text
        .lines()
        .filter_map(|line| line.split_whitespace().next()?.split_once(':').map(|(_, name)| name));
    names
        .filter(|name| name.split_once('/').is_some_and(|(group, _)| select(group)))
        .map(str::to_owned)
        .collect()
}

/// Removes the events of the groups that `select` accepts, and calls `before` before each. Returns whether any could
/// not be removed.
fn remove(tracefs: &Path, select: impl Fn(&str) -> bool, mut before: impl FnMut()) -> bool {
    let events = tracefs.join("kprobe_events");
    let Ok(text) = fs::read_to_string(&events) else {
        return false;
    };
    let mut left = false;
    for name in events_of(&text, select) {
        before();
        left |= append(&events, &format!("-:{name}")).is_err();
    }
    left
}

/// Removes events whose creator has ended while their keeper was killed as well, as at the end of a PID namespace:
/// those whose number is not claimed. It stays claimed here until they are removed, so that no run takes it meanwhile.
fn remove_orphans(tracefs: &Path, claim: &File) {
    let text = fs::read_to_string(tracefs.join("kprobe_events")).unwrap_or_default();
    let ours = events_of(&text, |group| number_of(group).is_some());
    let groups = ours.iter().filter_map(|name| Some(name.split_once('/')?.0));
    for group in groups.collect::<BTreeSet<_>>() {
        let free = number_of(group).filter(|number| lock(claim, *number, libc::F_WRLCK).unwrap_or(false));
        if let Some(number) = free {
            remove(tracefs, |of| of == group, || {});
            // The lock is also released with the file.
            let _ = lock(claim, number, libc::F_UNLCK);
        }
    }
}

/// The keeper: waits until the process that forked it has ended, and removes its events. `claim` has the lock of their
/// number.
fn keep(tracefs: &Path, group: &str, alive: OwnedFd, claim: &File) -> ! {
    // If this fails, the keeper receives the signals of our terminal.
    let _ = nix::unistd::setsid();
    signals::ignore();
    // SAFETY: NUL-terminated strings.
    unsafe {
        libc::prctl(libc::PR_SET_NAME, c"iosb-keeper".as_ptr());
        // The current directory may be on a file system that is to be unmounted.
        libc::chdir(c"/".as_ptr());
    }
    close_all_but([alive.as_raw_fd(), claim.as_raw_fd()]);

    let mut byte = [0];
    let mut pipe = File::from(alive);
    // There is no writer: this returns when the last descriptor for writing is closed. An interrupted read is retried.
    while pipe
        .read(&mut byte)
        .is_err_and(|error| error.kind() == io::ErrorKind::Interrupted)
    {}
    let mut turn = Detaching::new(Vec::new());
    let begun = Instant::now();
    while remove(tracefs, |of| of == group, || turn.pause()) && begun.elapsed() < REMOVAL_BOUND {
        std::thread::sleep(REMOVAL_PAUSE);
    }
    // SAFETY: ends this process without running exit handlers that belong to its parent.
    unsafe { libc::_exit(0) }
}

/// Closes all inherited descriptors but `kept`: they would keep the programs attached, and our caller's terminal or
/// pipe open.
fn close_all_but(kept: [RawFd; 2]) {
    let [low, high] = [kept[0].min(kept[1]) as u32, kept[0].max(kept[1]) as u32];
    let ranges = [
        (0, low.checked_sub(1)),
        (low + 1, high.checked_sub(1)),
        (high + 1, Some(u32::MAX)),
    ];
    for (first, last) in ranges {
        if let Some(last) = last.filter(|last| first <= *last) {
            // SAFETY: this process does not use the descriptors that are closed.
            unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fuzz;

    const TEXT: &str = "r4096:iostackbreakdown_12/r0_vfs_read vfs_read\n\
                        p:kprobes/mine do_sys_open\n\
                        r:iostackbreakdown_13/r1_vfs_write vfs_write\n\
                        \n\
                        garbage\n";

    #[test]
    fn only_the_events_of_the_group_are_found() {
        assert_eq!(
            events_of(TEXT, |group| group == "iostackbreakdown_12"),
            ["iostackbreakdown_12/r0_vfs_read"]
        );
        assert_eq!(events_of(TEXT, |group| group.starts_with(GROUP_PREFIX)).len(), 2);
    }

    /// Processes of neither number exist here. One is of a run in another PID namespace.
    #[test]
    fn events_are_orphans_if_no_run_claims_their_number() {
        let folder = std::env::temp_dir().join(format!("iosb-orphans-{}", Pid::this()));
        fs::create_dir_all(&folder).unwrap();
        let events = folder.join("kprobe_events");
        let (gone, lives) = (u32::MAX, u32::MAX - 1);
        let text = format!("r:{GROUP_PREFIX}{gone}/a f\nr:{GROUP_PREFIX}{lives}/b g\nr:{GROUP_PREFIX}x/c h\n");
        fs::write(&events, &text).unwrap();
        let other = opened(&events).unwrap();
        assert_eq!(claim_from(&other, lives).unwrap(), lives);
        let claim = opened(&events).unwrap();
        remove_orphans(&folder, &claim);
        let removed = format!("{text}-:{GROUP_PREFIX}{gone}/a\n");
        assert_eq!(fs::read_to_string(&events).unwrap(), removed);
        // The number of the orphan is free again; that of the other run is not while it lives.
        assert_eq!(claim_from(&claim, lives).unwrap(), gone);
        drop(other);
        assert_eq!(claim_from(&claim, lives).unwrap(), lives);
        fs::remove_dir_all(&folder).unwrap();
    }

    proptest! {
        #![proptest_config(fuzz::config())]

        #[test]
        fn any_text_is_read(text in fuzz::text_like(TEXT)) {
            prop_assert!(events_of(&text, |group| group.starts_with(GROUP_PREFIX)).iter().all(|name| name.contains('/')));
        }
    }
}
