//! The beginning of a file of the kernel, without a copy of it.

use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::ops::{Deref, Range};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;

/// include/uapi/linux/magic.h
const SYSFS_MAGIC: i64 = 0x6265_6572;

/// A range of a file's bytes.
pub enum FileBytes {
    Mapped { whole: Mapping, range: Range<usize> },
    Read(Vec<u8>),
}

impl FileBytes {
    /// Maps them, or reads them where the file cannot be mapped: only the kernel's own types can, since 6.16 (a539e2a6d51d). Other file
    /// systems are not asked: a mapped file must not become shorter.
    ///
    /// # Errors
    /// When it cannot be read; `InvalidInput` if the range does not fit into memory.
    pub fn of(file: &File, range: Range<u64>) -> io::Result<Self> {
        let index = |at: u64| usize::try_from(at).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput));
        let range = index(range.start)?..index(range.end)?;
        let mapped = NonZeroUsize::new(range.end).filter(|_| is_in_sysfs(file));
        if let Some(whole) = mapped.and_then(|size| Mapping::of(file, size)) {
            return Ok(Self::Mapped { whole, range });
        }
        let mut bytes = vec![0; range.len()];
        file.read_exact_at(&mut bytes, range.start as u64)?;
        Ok(Self::Read(bytes))
    }
}

impl Deref for FileBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            // SAFETY: that many bytes are mapped until the mapping is dropped, and never change.
            Self::Mapped { whole, range } => unsafe {
                &std::slice::from_raw_parts(whole.first.as_ptr(), whole.size.get())[range.clone()]
            },
            Self::Read(bytes) => bytes,
        }
    }
}

/// The first bytes of a file, mapped for reading.
pub struct Mapping {
    first: NonNull<u8>,
    size: NonZeroUsize,
}

impl Mapping {
    fn of(file: &File, size: NonZeroUsize) -> Option<Self> {
        // SAFETY: maps new memory, and takes a descriptor that is open.
        let first = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size.get(),
                libc::PROT_READ,
                libc::MAP_PRIVATE,
                file.as_raw_fd(),
                0,
            )
        };
        let first = NonNull::new(first.cast()).filter(|_| first != libc::MAP_FAILED)?;
        Some(Self { first, size })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this size, and nothing refers to it any more.
        unsafe { libc::munmap(self.first.as_ptr().cast(), self.size.get()) };
    }
}

fn is_in_sysfs(file: &File) -> bool {
    nix::sys::statfs::fstatfs(file).is_ok_and(|it| it.filesystem_type().0 == SYSFS_MAGIC)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_range_is_the_same_mapped_and_read() {
        let mut file = tempfile();
        file.write_all(b"header types names").unwrap();
        let read = FileBytes::of(&file, 7..12).unwrap();
        assert!(matches!(read, FileBytes::Read(_)), "it is not in sysfs");
        let size = NonZeroUsize::new(12).unwrap();
        let whole = Mapping::of(&file, size).unwrap();
        let mapped = FileBytes::Mapped { whole, range: 7..12 };
        assert_eq!([&read[..], &mapped[..]], [b"types"; 2]);
        assert!(FileBytes::of(&file, 7..100).is_err());
    }

    #[test]
    fn the_types_of_this_kernel_are_read_whole() {
        let file = File::open("/sys/kernel/btf/vmlinux").unwrap();
        assert!(is_in_sysfs(&file));
        let size = file.metadata().unwrap().len();
        let mut read = vec![0; size as usize];
        file.read_exact_at(&mut read, 0).unwrap();
        assert!(read == FileBytes::of(&file, 0..size).unwrap()[..]);
    }

    fn tempfile() -> File {
        let flags = nix::sys::memfd::MFdFlags::MFD_CLOEXEC;
        File::from(nix::sys::memfd::memfd_create(c"test", flags).unwrap())
    }
}
