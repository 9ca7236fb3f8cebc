//! Leaving without waiting for the kernel to detach.
//!
//! Detaching tens of probes takes seconds: each waits until no task can be inside. Whoever closes the last descriptor
//! pays, so a second process keeps them open until we are gone, and pays behind the prompt's back. It lets runs that start go first:
//! [`crate::turn`].

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;

use crate::turn::{Detaching, Link};

/// What makes detaching quicker as long as it is open, if something does.
type Last = Box<dyn Fn() -> io::Result<OwnedFd> + Send + Sync>;

static FIRST: OnceLock<Vec<Link>> = OnceLock::new();
static LAST: OnceLock<Last> = OnceLock::new();

/// Has the process that detaches close these links before all else. Only the first list is kept.
pub fn close_first(links: Vec<Link>) {
    let _ = FIRST.set(links);
}

/// Has the process that detaches open something first, which it closes after all else. `open` is called after a fork, and so may make
/// system calls only. Only the first is kept.
pub fn close_last(open: impl Fn() -> io::Result<OwnedFd> + Send + Sync + 'static) {
    let _ = LAST.set(Box::new(open));
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

/// Forks a process that holds our descriptors until we have ended.
fn hand_over() -> io::Result<()> {
    let (reader, _writer) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
    let links = FIRST.get().cloned().unwrap_or_default();
    let mut detaching = Detaching::new(links);
    let highest = highest_descriptor();
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
                let last = last.as_ref().map(AsRawFd::as_raw_fd);
                let kept = [last, detaching.descriptor()];
                // A layer may have been detached meanwhile, and its numbers be those of something else.
                let close = |descriptor: RawFd| {
                    if !kept.contains(&Some(descriptor)) {
                        libc::close(descriptor);
                    }
                };
                detaching.close_links(close);
                // What was opened first goes last, as what `iosb-keeper` waits for before it removes the events of probes.
                for descriptor in (0..=highest).rev() {
                    detaching.stand_back();
                    close(descriptor);
                }
                if let Some(last) = last {
                    close_all_but(last);
                }
                libc::_exit(0)
            }
        }
    }
}

/// -1 where that is not known: they are closed all at once then.
fn highest_descriptor() -> RawFd {
    let entries = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.max().unwrap_or(-1)
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
