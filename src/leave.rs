//! Leaving without waiting for the kernel to detach.
//!
//! Detaching tens of probes takes seconds: each waits until no task can be inside. Whoever closes the last descriptor
//! pays, so a second process keeps them open until we are gone, and pays behind the prompt's back.
//!
//! The kernel attaches under the locks that it holds while it waits, so that a run which starts meanwhile would wait for each of these
//! probes, too. It says that it attaches by a lock on a file that each kernel has, and until it is done the others' are not detached.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::OnceLock;

use nix::fcntl::{FcntlArg, fcntl};

/// What makes detaching quicker as long as it is open, if something does.
type Last = Box<dyn Fn() -> io::Result<OwnedFd> + Send + Sync>;

static LAST: OnceLock<Last> = OnceLock::new();

/// Has the process that detaches open something first, which it closes after all else. `open` is called after a fork, and so may make
/// system calls only. Only the first is kept.
pub fn close_last(open: impl Fn() -> io::Result<OwnedFd> + Send + Sync + 'static) {
    let _ = LAST.set(Box::new(open));
}

/// Everybody may read it, so that everybody may lock it for reading, and nobody can open it for more. It is the same one for all who see the
/// same network namespace; the runs of others wait for each other, as they would without it.
const LOCKED: &str = "/sys/kernel/btf/vmlinux";

/// As long as it lives, probes of earlier runs are not detached.
pub struct Attaching {
    _locked: Option<File>,
}

impl Attaching {
    /// A failure means that attaching takes longer.
    #[must_use]
    pub fn begin() -> Self {
        let locked = File::open(LOCKED).ok();
        let is_held = |file: &File| fcntl(file, FcntlArg::F_OFD_SETLK(&whole_file(libc::F_RDLCK))).is_ok();
        Self {
            _locked: locked.filter(is_held),
        }
    }
}

/// A lock of this kind on all of a file.
fn whole_file(kind: i32) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

/// Ends the process with `status`; its probes are detached after it. May be called from any thread. Output has to be
/// flushed before.
pub fn leave(status: u8) -> ! {
    // A failure means that our own end takes as long as detaching does.
    let _ = hand_over();
    // SAFETY: ends the process; the destructors that it skips would only detach.
    unsafe { libc::_exit(i32::from(status)) }
}

/// Name of the process that detaches.
pub const DETACHING: &str = "iosb-detach";

/// As many descriptors as somebody may have given us.
const MANY: i32 = 1024;

/// How long detaching waits for runs that attach, all together.
const PATIENCE_MS: i32 = 60_000;
/// How long it waits before it looks again.
const LOOK_MS: i32 = 20;
/// While so many other processes detach, one more does not wait: where runs follow each other without a pause, what is left attached is to
/// have an end, too.
const MOST_WAITING: usize = 4;

/// Forks a process that holds our descriptors until we have ended.
fn hand_over() -> io::Result<()> {
    let (reader, _writer) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
    let locked = File::open(LOCKED);
    let locked = locked.as_ref().map_or(-1, AsRawFd::as_raw_fd);
    let highest = highest_descriptor();
    let patience = if detaching().take(MOST_WAITING).count() < MOST_WAITING {
        PATIENCE_MS
    } else {
        0
    };
    // SAFETY: the child makes system calls only: other threads may have held locks when it was forked.
    match unsafe { nix::unistd::fork() }? {
        nix::unistd::ForkResult::Parent { .. } => {
            // Neither end may close before the process does: that is the child's signal.
            std::mem::forget((reader, _writer));
            Ok(())
        }
        nix::unistd::ForkResult::Child => {
            // SAFETY: plain system calls on our own descriptors and a constant string.
            unsafe {
                libc::setsid();
                libc::prctl(libc::PR_SET_NAME, c"iosb-detach".as_ptr());
                // The folder may be of a file system that is to be unmounted.
                libc::chdir(c"/".as_ptr());
                // What we were given, as a terminal, a pipe or a lock, is not to outlive us; ours would not outlive an exec.
                for descriptor in 0..MANY {
                    if libc::fcntl(descriptor, libc::F_GETFD) == 0 {
                        libc::close(descriptor);
                    }
                }
                libc::close(_writer.as_raw_fd());
                let last = LAST.get().and_then(|open| open().ok());
                let mut byte = 0u8;
                // Nobody writes: this returns when our parent's end is closed, which is when it has ended.
                while libc::read(reader.as_raw_fd(), (&raw mut byte).cast(), 1) < 0
                    && *libc::__errno_location() == libc::EINTR
                {}
                let last = last.as_ref().map_or(-1, AsRawFd::as_raw_fd);
                close_one_by_one(highest, [last, locked], locked, patience);
                if last >= 0 {
                    close_all_but(last);
                }
                libc::_exit(0)
            }
        }
    }
}

/// Processes that detach what other runs had attached.
pub fn detaching() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim_end() == DETACHING)
    })
}

/// `None` where that cannot be read: they are closed all at once then.
fn highest_descriptor() -> Option<i32> {
    let entries = fs::read_dir("/proc/self/fd").ok()?.flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .max()
}

/// Closes descriptors in the order of their numbers, each when no run attaches. Makes system calls only.
fn close_one_by_one(highest: Option<i32>, but: [i32; 2], locked: i32, mut patience: i32) {
    for descriptor in (0..=highest.unwrap_or(-1)).filter(|descriptor| !but.contains(descriptor)) {
        while patience > 0 && is_attaching(locked) {
            // SAFETY: waits, and looks at nothing.
            unsafe { libc::poll(std::ptr::null_mut(), 0, LOOK_MS) };
            patience -= LOOK_MS;
        }
        // SAFETY: the number of a descriptor, which nobody uses any more, or of none.
        unsafe { libc::close(descriptor) };
    }
}

/// Whether a run has the lock that says so.
fn is_attaching(locked: i32) -> bool {
    let mut lock = whole_file(libc::F_WRLCK);
    // SAFETY: the kernel writes to what it is given, which lives until then.
    let asked = unsafe { libc::fcntl(locked, libc::F_OFD_GETLK, &raw mut lock) };
    asked == 0 && i32::from(lock.l_type) != libc::F_UNLCK
}

/// Closes all other descriptors. Where the kernel cannot (before 5.9), the end of the process closes them in the order of their numbers.
fn close_all_but(descriptor: i32) {
    let close = |first: i32, last: libc::c_uint| {
        // SAFETY: numbers of descriptors, which nobody uses any more.
        unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    };
    if descriptor > 0 {
        close(0, (descriptor - 1).cast_unsigned());
    }
    close(descriptor + 1, libc::c_uint::MAX);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Other runs may attach meanwhile, so that nothing is said of a time without this one.
    #[test]
    fn a_run_that_attaches_is_seen() {
        assert!(!is_attaching(-1), "there is nothing to ask");
        // Where a package is built there may be no kernel's files.
        let Ok(file) = File::open(LOCKED) else { return };
        let attaching = Attaching::begin();
        assert!(attaching._locked.is_some() && is_attaching(file.as_raw_fd()));
    }
}
