//! A directory of one test, which is removed with its owner.

#![allow(dead_code, reason = "each test needs a part of it")]

use std::fs::{self, File};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

pub struct Folder(PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// With 64 KiB in the file `data`, on the disk: direct reads would write it first.
    pub fn with_data(name: &str) -> Self {
        let folder = Self::new(name);
        folder.file("data", [7; 64 << 10]);
        File::open(folder.join("data")).unwrap().sync_all().unwrap();
        folder
    }

    /// Writes a file. Returns its path.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        fs::write(self.join(name), content).unwrap();
        self.text(name)
    }

    /// The path of a file.
    pub fn text(&self, name: &str) -> String {
        self.join(name).to_str().unwrap().to_owned()
    }
}

impl Deref for Folder {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl AsRef<Path> for Folder {
    fn as_ref(&self) -> &Path {
        self
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
