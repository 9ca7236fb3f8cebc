//! Paths from the root of the mount namespace, from which the kernel side names files. In a chroot, this process has others.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread;

use nix::sched::{CloneFlags, setns, unshare};

/// The whole path of a file that exists, without links. Without the privileges to leave a chroot, it is that from the root of
/// this process.
///
/// # Errors
/// If there is no such file, or it cannot be examined.
pub fn whole_path(path: &Path) -> io::Result<PathBuf> {
    let real = path.canonicalize()?;
    Ok(from_namespace(&real).unwrap_or(real))
}

/// `None`: without privileges, or without `/proc` at that root.
fn from_namespace(path: &Path) -> Option<PathBuf> {
    // To open a FIFO would wait for its other end.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_PATH)
        .open(path)
        .ok()?;
    let namespace = File::open("/proc/self/ns/mnt").ok()?;
    // Entering a mount namespace sets the thread's root to that of the namespace (mntns_install() of fs/namespace.c), if it
    // shares its root with no other thread.
    let outside = move || {
        unshare(CloneFlags::CLONE_FS).ok()?;
        setns(namespace, CloneFlags::CLONE_NEWNS).ok()?;
        std::fs::read_link(format!("/proc/thread-self/fd/{}", file.as_raw_fd())).ok()
    };
    let thread = thread::Builder::new().spawn(outside).ok()?;
    thread.join().ok()?.filter(|path| path.is_absolute())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where tests run in a chroot, it is longer.
    #[test]
    fn a_whole_path_ends_with_the_one_without_links() {
        let own = std::env::current_exe().unwrap();
        let whole = whole_path(&own).unwrap();
        let real = own.canonicalize().unwrap();
        assert!(whole.ends_with(real.strip_prefix("/").unwrap()), "{}", whole.display());
        assert!(whole_path(Path::new("/no/such")).is_err());
    }
}
