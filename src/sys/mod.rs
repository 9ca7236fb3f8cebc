//! Thin, safe wrappers of system interfaces: bpf(2), perf events, mapped tables, files of the kernel. Used by all other
//! rooms, and uses none of them.

pub mod assembly;
pub mod capabilities;
pub mod clock;
pub mod counters;
pub mod mapped;
pub mod memory;
pub mod perf;
pub mod table;

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The size of a page of memory in bytes; 0: the C library does not say.
#[must_use]
pub fn page_bytes() -> u64 {
    number_of(libc::_SC_PAGESIZE)
}

/// What sysconf(3) says; 0: nothing.
#[must_use]
pub fn number_of(name: i32) -> u64 {
    // SAFETY: takes an integer.
    u64::try_from(unsafe { libc::sysconf(name) }).unwrap_or(0)
}

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

/// More than most of the kernel's files have. They have no size: with less room, they would be read in small pieces.
const ROOM: usize = 8 << 10;

/// The text of a file. Names in it may contain anything: invalid UTF-8 is replaced, so that it cannot hide the rest.
///
/// # Errors
/// When it cannot be read.
pub fn text_of(path: impl AsRef<Path>) -> io::Result<String> {
    let mut bytes = Vec::with_capacity(ROOM);
    // The limit is none; without it, the size would be looked up.
    File::open(path)?.take(u64::MAX).read_to_end(&mut bytes)?;
    Ok(text(bytes))
}

/// The same of a file of the kernel that is open: it is made anew for each reading from its begin.
///
/// # Errors
/// When it cannot be read.
pub fn text_again(file: &File) -> io::Result<String> {
    let mut bytes = vec![0; ROOM];
    let mut length = 0;
    loop {
        match file.read_at(&mut bytes[length..], length as u64)? {
            0 => break,
            more => length += more,
        }
        if bytes.len() - length < ROOM / 2 {
            bytes.resize(bytes.len() * 2, 0);
        }
    }
    bytes.truncate(length);
    Ok(text(bytes))
}

/// Most files need no second copy.
fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_to_its_end() {
        let path = std::env::temp_dir().join(format!("text-of-{}", std::process::id()));
        let text = "0123456789 ".repeat(5_000);
        std::fs::write(&path, &text).unwrap();
        assert!(text_of(&path).unwrap() == text);
        let file = File::open(&path).unwrap();
        assert!([(); 2].map(|()| text_again(&file).unwrap()) == [text.clone(), text]);
        std::fs::remove_file(&path).unwrap();
        let stat = text_of("/proc/self/stat").unwrap();
        assert!(
            stat.starts_with(&std::process::id().to_string()) && stat.ends_with('\n'),
            "{stat}"
        );
        assert!(text_of(&path).is_err());
    }
}
