//! Return probes with room for many calls under way, as kprobe events made through tracefs.
//!
//! Perf's own kretprobes have about ten instances, and calls that find none are lost. Only an event made through tracefs
//! can have more. Unlike everything else, such an event does not go away with the process that made it, so a second
//! process, forked before the first event is made, waits for our end, however it comes, and removes them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::unistd::{ForkResult, Pid};

use crate::signals;
use crate::turn::Detaching;

/// Calls under way at once for which a return is certain; the most that the kernel takes (KRETPROBE_MAXACTIVE_MAX,
/// kernel/trace/trace_kprobe.c).
pub const INSTANCES: u32 = 4096;

/// All groups of events that we make begin like this; the process number follows.
const GROUP_PREFIX: &str = "iostackbreakdown_";

/// How long the keeper tries to remove events that are still in use by the process that is dying.
const REMOVAL_BOUND: Duration = Duration::from_secs(120);
const REMOVAL_PAUSE: Duration = Duration::from_millis(50);

/// The events of this process, and the process that will remove them.
#[derive(Debug)]
pub struct KprobeEvents {
    tracefs: PathBuf,
    group: String,
    made: usize,
    /// Closed by our end; the keeper reads it.
    _alive: OwnedFd,
}

impl KprobeEvents {
    /// Removes what earlier runs may have left and starts the keeper. Call it while the process has one thread.
    ///
    /// # Errors
    /// When no process can be made.
    pub fn new(tracefs: &Path) -> io::Result<Self> {
        remove_orphans(tracefs);
        let group = format!("{GROUP_PREFIX}{}", Pid::this());
        let (reader, alive) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
        // SAFETY: the process has one thread, so the child may do what it likes.
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

    /// Makes an event at the return of `function` and gives its number.
    ///
    /// # Errors
    /// What the kernel says of the function.
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

/// One command to `kprobe_events`.
fn append(events: &Path, line: &str) -> io::Result<()> {
    OpenOptions::new()
        .append(true)
        .open(events)?
        .write_all(format!("{line}\n").as_bytes())
}

/// Our events, as `group/name`, out of the text of `kprobe_events`, when `select` wants their group.
fn events_of(text: &str, select: impl Fn(&str) -> bool) -> Vec<String> {
    let names = text
        .lines()
        .filter_map(|line| line.split_whitespace().next()?.split_once(':').map(|(_, name)| name));
    names
        .filter(|name| name.split_once('/').is_some_and(|(group, _)| select(group)))
        .map(str::to_owned)
        .collect()
}

/// Removes what can be removed, each after a call of `before`; says whether anything is left.
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

/// Events whose maker is gone: their keeper was killed too, as at the end of a PID namespace. A maker in another
/// namespace looks gone as well, but what is in use cannot be removed.
fn remove_orphans(tracefs: &Path) {
    let name_of = |pid: &str| fs::read_to_string(format!("/proc/{pid}/comm")).ok();
    let ours = name_of("self");
    let is_orphan = |group: &str| {
        group
            .strip_prefix(GROUP_PREFIX)
            .is_some_and(|maker| name_of(maker) != ours)
    };
    remove(tracefs, is_orphan, || {});
}

/// The keeper: waits for the end of the process that forked it, and removes its events.
fn keep(tracefs: &Path, group: &str, alive: OwnedFd) -> ! {
    // A failure leaves the keeper exposed to what our terminal sends.
    let _ = nix::unistd::setsid();
    signals::ignore();
    // SAFETY: the name is a string that ends with a zero.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"iosb-keeper".as_ptr()) };
    close_all_but(&alive);

    let mut byte = [0];
    let mut pipe = File::from(alive);
    // Nobody writes: this returns when the last writer is gone. An interrupted read is tried again.
    while pipe
        .read(&mut byte)
        .is_err_and(|error| error.kind() == io::ErrorKind::Interrupted)
    {}
    let mut turn = Detaching::new(Vec::new());
    let begun = Instant::now();
    while remove(tracefs, |of| of == group, || turn.pause()) && begun.elapsed() < REMOVAL_BOUND {
        std::thread::sleep(REMOVAL_PAUSE);
    }
    // SAFETY: ends this process without running what belongs to the other one.
    unsafe { libc::_exit(0) }
}

/// Inherited descriptors would keep the programs attached, and the terminal or pipe of our caller open.
fn close_all_but(kept: &OwnedFd) {
    let kept = kept.as_raw_fd() as u32;
    for (first, last) in [(0, kept.wrapping_sub(1)), (kept + 1, u32::MAX)] {
        if first <= last {
            // SAFETY: nothing in this process uses the descriptors that are closed.
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
    fn orphans_are_those_whose_maker_is_gone() {
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
