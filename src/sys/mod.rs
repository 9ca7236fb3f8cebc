//! The machine's interfaces, thin and safe: bpf(2), perf events, mapped tables, files of the kernel's. Used by all that is above, and
//! uses nothing of it.

pub mod assembly;
pub mod counters;
pub mod perf;
pub mod table;

use std::fs;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::Path;

/// A descriptor that the kernel has just given us, or its error.
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

/// What a file says. Names in it are anyone's to choose: what is no text is replaced, and hides nothing else.
///
/// # Errors
/// When it cannot be read.
pub fn text_of(path: impl AsRef<Path>) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&fs::read(path)?).into_owned())
}
