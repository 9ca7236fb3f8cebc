//! Kretprobes with enough instances for many simultaneous calls, as kprobe events created through tracefs.
//!
//! Perf's own kretprobes have about ten instances, and calls that find none free are lost. Only an event created
//! through tracefs can have more. Unlike everything else, such an event outlives the process that created it. So a
//! second process, the keeper, which is forked before the first event is created, waits until this process ends for any
//! reason, and removes the events.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::unistd::{ForkResult, Pid};

use crate::signals;
use crate::turn::Detaching;

/// The number of instances, that is of simultaneous calls of a function whose return is traced: the kernel's limit
/// (KRETPROBE_MAXACTIVE_MAX, kernel/trace/trace_kprobe.c).
pub const INSTANCES: u32 = 4096;

/// The prefix of the group names of our events; the process number follows.
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
    /// A pipe that closes when this process ends; the keeper reads the other end.
    _alive: OwnedFd,
}

impl KprobeEvents {
    /// Removes events that earlier runs may have left and starts the keeper. Call it while the process has one thread.
    ///
    /// # Errors
    /// If the keeper cannot be forked.
    pub fn new(tracefs: &Path) -> io::Result<Self> {
        remove_orphans(tracefs);
        let group = format!("{GROUP_PREFIX}{}", Pid::this());
        let (reader, alive) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
        // SAFETY: the process has one thread, so the child is not restricted to async-signal-safe functions.
        match unsafe { nix::unistd::fork() }? {
            ForkResult::Parent { .. } => Ok(Self {
                tracefs: tracefs.to_owned(),
                group,
                made: 0,
                _alive: alive,
            }),
            ForkResult::Child => keep(tracefs, &group, reader),
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

/// Writes a command to `kprobe_events`.
fn append(events: &Path, line: &str) -> io::Result<()> {
    OpenOptions::new()
        .append(true)
        .open(events)?
        .write_all(format!("{line}\n").as_bytes())
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

/// Removes events whose creator has ended while their keeper was killed as well, as at the end of a PID namespace. A
/// creator in another namespace seems to have ended, too, but events in use cannot be removed.
fn remove_orphans(tracefs: &Path) {
    let name_of = |pid: &str| fs::read_to_string(format!("/proc/{pid}/comm")).ok();
    let ours = name_of("self");
    let is_orphan = |group: &str| {
        group
            .strip_prefix(GROUP_PREFIX)
            .is_some_and(|creator| name_of(creator) != ours)
    };
    remove(tracefs, is_orphan, || {});
}

/// The keeper: waits until the process that forked it has ended, and removes its events.
fn keep(tracefs: &Path, group: &str, alive: OwnedFd) -> ! {
    // If this fails, the keeper receives the signals of our terminal.
    let _ = nix::unistd::setsid();
    signals::ignore();
    // SAFETY: the name is a NUL-terminated string.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"iosb-keeper".as_ptr()) };
    close_all_but(&alive);

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
fn close_all_but(kept: &OwnedFd) {
    let kept = kept.as_raw_fd() as u32;
    for (first, last) in [(0, kept.wrapping_sub(1)), (kept + 1, u32::MAX)] {
        if first <= last {
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

    #[test]
    fn events_are_orphans_if_their_creator_has_ended() {
        let folder = std::env::temp_dir().join(format!("iosb-orphans-{}", Pid::this()));
        fs::create_dir_all(&folder).unwrap();
        let gone = u32::MAX;
        let text = format!("r:{GROUP_PREFIX}{gone}/a f\nr:{GROUP_PREFIX}{}/b g\n", Pid::this());
        fs::write(folder.join("kprobe_events"), &text).unwrap();
        remove_orphans(&folder);
        let after = fs::read_to_string(folder.join("kprobe_events")).unwrap();
        assert_eq!(after, format!("{text}-:{GROUP_PREFIX}{gone}/a\n"));
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
