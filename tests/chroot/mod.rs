//! Paths as the tool reports them: from the root of the mount namespace, which differs from the root that a test in a
//! chroot sees.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::sched::{CloneFlags, setns, unshare};

/// Needs root, as do the tests that use it.
pub fn from_root(path: &Path) -> PathBuf {
    // Opening a FIFO would wait for its other end.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_PATH)
        .open(path)
        .unwrap();
    let namespace = File::open("/proc/self/ns/mnt").unwrap();
    // Entering a mount namespace changes the thread's root to that of the namespace, and requires that the thread
    // shares no file system state.
    let outside = move || {
        unshare(CloneFlags::CLONE_FS).unwrap();
        setns(namespace, CloneFlags::CLONE_NEWNS).unwrap();
        std::fs::read_link(format!("/proc/thread-self/fd/{}", file.as_raw_fd())).unwrap()
    };
    std::thread::spawn(outside).join().unwrap()
}
