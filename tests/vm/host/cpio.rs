//! Writes the "newc" format of cpio, which a kernel unpacks as its first file system.

use std::collections::BTreeSet;

const FOLDER: u32 = 0o040_755;
const FILE: u32 = 0o100_644;
const PROGRAM: u32 = 0o100_755;
const LINK: u32 = 0o120_777;
const DEVICE: u32 = 0o020_600;

#[derive(Default)]
pub struct Archive {
    bytes: Vec<u8>,
    entries: u32,
    known: BTreeSet<String>,
}

impl Archive {
    pub fn file(&mut self, path: &str, data: &[u8]) {
        self.entry(path, FILE, (0, 0), data);
    }

    pub fn program(&mut self, path: &str, data: &[u8]) {
        self.entry(path, PROGRAM, (0, 0), data);
    }

    pub fn link(&mut self, path: &str, target: &str) {
        self.entry(path, LINK, (0, 0), target.as_bytes());
    }

    pub fn folder(&mut self, path: &str) {
        self.entry(path, FOLDER, (0, 0), &[]);
    }

    pub fn character_device(&mut self, path: &str, major: u32, minor: u32) {
        self.entry(path, DEVICE, (major, minor), &[]);
    }

    pub fn finish(mut self) -> Vec<u8> {
        self.append("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }

    /// An existing path is kept: several programs bring the same libraries.
    fn entry(&mut self, path: &str, mode: u32, device: (u32, u32), data: &[u8]) {
        let path = path.trim_start_matches('/');
        if path.is_empty() || !self.known.insert(path.into()) {
            return;
        }
        // The kernel does not create missing directories.
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.folder(parent);
        }
        self.append(path, mode, device, data);
    }

    fn append(&mut self, name: &str, mode: u32, (major, minor): (u32, u32), data: &[u8]) {
        self.entries += 1;
        // inode, mode, uid, gid, links, mtime, size, device of the file system (2), device (2), name with NUL, checksum
        let size = u32::try_from(data.len()).expect("no file of an initramfs has 4 GiB");
        let name_size = u32::try_from(name.len() + 1).expect("no name has 4 GiB");
        let header = [self.entries, mode, 0, 0, 1, 0, size, 0, 0, major, minor, name_size, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in header {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(data);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}
