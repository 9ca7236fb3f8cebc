//! What the targets share.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use nix::sys::memfd::{MFdFlags, memfd_create};

/// A file of these bytes that is in memory alone, for what takes a file or its path.
pub struct Bytes {
    pub file: File,
    path: PathBuf,
}

impl Bytes {
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        let mut file = File::from(memfd_create(c"fuzz", MFdFlags::MFD_CLOEXEC).expect("there is memory"));
        file.write_all(bytes).expect("there is memory");
        let path = format!("/proc/self/fd/{}", file.as_raw_fd()).into();
        Self { file, path }
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}
