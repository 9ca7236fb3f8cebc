//! Exits without waiting for the kernel to detach the probes.
//!
//! Detaching tens of probes takes seconds, because each waits until no task can be inside, and the process that closes
//! the last descriptor waits. So a forked process keeps the descriptors open until this process has exited, and closes
//! them in the background. It yields to runs that start: see [`crate::turn`]. What has nothing to do with probes it
//! closes before this process exits: then an address can be listened at again, and a file system be unmounted.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::turn::{Detaching, Link};

/// Opens a descriptor that makes detaching faster while it is open.
type Last = Box<dyn Fn() -> io::Result<OwnedFd> + Send + Sync>;

static FIRST: OnceLock<Vec<Link>> = OnceLock::new();
static LAST: OnceLock<Last> = OnceLock::new();

/// Makes the detaching process close these links first. Only the first call has an effect.
pub fn close_first(links: Vec<Link>) {
    let _ = FIRST.set(links);
}

/// Makes the detaching process open a descriptor first and close it last. `open` is called after a fork, so it may only
/// make system calls. Only the first call has an effect.
pub fn close_last(open: impl Fn() -> io::Result<OwnedFd> + Send + Sync + 'static) {
    let _ = LAST.set(Box::new(open));
}

static BEFORE: OnceLock<fn()> = OnceLock::new();

/// Calls `act` at the end of the process, perhaps from another thread. Only the first call has an effect.
pub fn before(act: fn()) {
    let _ = BEFORE.set(act);
}

/// Ends the process with `status`; its probes are detached afterwards. May be called from any thread. Flush output
/// first.
pub fn leave(status: u8) -> ! {
    if let Some(act) = BEFORE.get() {
        act();
    }
    // On failure, the exit of this process takes as long as detaching does.
    let _ = hand_over();
    // SAFETY: ends the process; the skipped destructors would only detach.
    unsafe { libc::_exit(i32::from(status)) }
}

/// Name of the process that detaches.
pub const DETACHING: &str = "iosb-detach";

/// The highest number of an inherited descriptor to look for.
const MANY: i32 = 1024;

/// Forks a process that holds the descriptors until this one has exited.
fn hand_over() -> io::Result<()> {
    let (reader, _writer) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
    let (released, releasing) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
    let links = FIRST.get().cloned().unwrap_or_default();
    let mut detaching = Detaching::new(links);
    let open = open_descriptors();
    // -1 if it is not known; all are then closed at once.
    let highest = open.iter().map(|(descriptor, _)| *descriptor).max().unwrap_or(-1);
    let locks = detaching.descriptor();
    let unneeded = open
        .iter()
        .filter(|(descriptor, link)| Some(*descriptor) != locks && !may_hold_probes(link));
    let unneeded: Vec<RawFd> = unneeded.map(|(descriptor, _)| *descriptor).collect();
    // SAFETY: the child only makes system calls, since other threads may have held locks at the fork.
    match unsafe { nix::unistd::fork() }? {
        nix::unistd::ForkResult::Parent { .. } => {
            drop(releasing);
            let mut byte = [0];
            // Nothing is written to the pipe, so the read returns when the child has closed its end.
            while nix::unistd::read(&released, &mut byte) == Err(nix::errno::Errno::EINTR) {}
            // Both ends must stay open until the process exits: that is the child's signal.
            std::mem::forget((reader, _writer));
            Ok(())
        }
        nix::unistd::ForkResult::Child => {
            // SAFETY: system calls on our own descriptors and a constant string.
            unsafe {
                libc::setsid();
                libc::prctl(libc::PR_SET_NAME, c"iosb-detach".as_ptr());
                // The current directory may be on a file system that is to be unmounted.
                libc::chdir(c"/".as_ptr());
                // Inherited descriptors, such as a terminal, a pipe or a lock, must not outlive this process. Our own
                // are close-on-exec.
                for descriptor in 0..MANY {
                    if libc::fcntl(descriptor, libc::F_GETFD) == 0 {
                        libc::close(descriptor);
                    }
                }
                for descriptor in &unneeded {
                    libc::close(*descriptor);
                }
                libc::close(_writer.as_raw_fd());
                libc::close(releasing.as_raw_fd());
                let last = LAST.get().and_then(|open| open().ok());
                let mut byte = 0u8;
                // Nothing is written to the pipe, so the read returns when the parent has exited.
                while libc::read(reader.as_raw_fd(), (&raw mut byte).cast(), 1) < 0
                    && *libc::__errno_location() == libc::EINTR
                {}
                let last = last.as_ref().map(AsRawFd::as_raw_fd);
                let kept = [last, detaching.descriptor()];
                // A layer may have been detached meanwhile, and its descriptor number may have been reused.
                let close = |descriptor: RawFd| {
                    if !kept.contains(&Some(descriptor)) {
                        libc::close(descriptor);
                    }
                };
                detaching.close_links(close);
                // The descriptor opened first is closed last: `iosb-keeper` waits for it before it removes the probe
                // events.
                for descriptor in (0..=highest).rev() {
                    detaching.pause();
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

/// Each open descriptor, and what it refers to; none without `/proc`.
fn open_descriptors() -> Vec<(RawFd, PathBuf)> {
    let entries = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let open = entries.filter_map(|entry| {
        let descriptor = entry.file_name().to_str()?.parse().ok()?;
        Some((descriptor, fs::read_link(entry.path()).unwrap_or_default()))
    });
    open.collect()
}

/// Whether closing what a descriptor refers to may detach a probe, or let `iosb-keeper` begin: links, programs and perf
/// events have no path, and it waits for a pipe. Files, devices and sockets are neither.
fn may_hold_probes(link: &Path) -> bool {
    !link.is_absolute() && !link.as_os_str().as_bytes().starts_with(b"socket:")
}

/// Closes all other descriptors. If the kernel cannot (before 5.9), process exit closes them in numerical order.
fn close_all_but(descriptor: i32) {
    let close = |first: i32, last: libc::c_uint| {
        // SAFETY: the descriptors are not used any more.
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

    #[test]
    fn files_and_sockets_hold_no_probes() {
        for (link, holds) in [
            ("anon_inode:bpf_link", true),
            ("anon_inode:bpf-prog", true),
            ("anon_inode:[perf_event]", true),
            ("pipe:[4711]", true),
            // Unknown.
            ("", true),
            ("socket:[4711]", false),
            ("/srv/out.txt", false),
            ("/srv/out.txt (deleted)", false),
            ("/dev/tty", false),
        ] {
            assert_eq!(may_hold_probes(Path::new(link)), holds, "{link}");
        }
    }

    #[test]
    fn descriptors_are_found_with_their_files() {
        let file = fs::File::open("/proc/self/status").unwrap();
        let path = PathBuf::from(format!("/proc/{}/status", std::process::id()));
        assert!(open_descriptors().contains(&(file.as_raw_fd(), path)));
    }
}
