//! Thin, safe wrappers of system interfaces: bpf(2), perf events, mapped tables, files of the kernel. Used by all other
//! rooms, and uses none of them.

pub mod assembly;
pub mod capabilities;
pub mod counters;
pub mod perf;
pub mod table;

use std::fs;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::Path;

/// Takes ownership of a descriptor that a system call returned, or returns its error.
///
/// # Errors
/// The kernel's error.
pub fn own(fd: i32) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: it is open and ours.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The text of a file. Names in it may contain anything: invalid UTF-8 is replaced, so that it cannot hide the rest.
///
/// # Errors
/// When it cannot be read.
pub fn text_of(path: impl AsRef<Path>) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&fs::read(path)?).into_owned())
}
