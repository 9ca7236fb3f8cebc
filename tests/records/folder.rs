//! A directory of one test, with a file of data on the disk.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

pub struct Folder(pub PathBuf);

impl Folder {
    /// With 64 KiB in the file `data`.
    pub fn new(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("data"), vec![7; 64 << 10]).unwrap();
        // Direct reads would write it first.
        File::open(folder.join("data")).unwrap().sync_all().unwrap();
        Self(folder)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
