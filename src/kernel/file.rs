//! The selected file, as the kernel identifies it.
//!
//! `stat` may return numbers made up by a file system: btrfs has a device number for each subvolume, overlayfs returns
//! those of the layer that contains a file. The kernel's own numbers are in `/proc`, for an open file.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::sys::statfs::{BTRFS_SUPER_MAGIC, FsType, fstatfs};

use super::disk::parse_number;

/// `OVERLAYFS_SUPER_MAGIC` (include/uapi/linux/magic.h).
const OVERLAYFS: FsType = FsType(0x794c_7630);

/// A file by its inode number, independent of its names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileNumber {
    pub inode: u64,
    /// The kernel's `dev_t` of the file system: major << 20 | minor.
    pub device: u32,
    /// What readers must know about it, in one sentence.
    pub note: Option<String>,
}

impl FileNumber {
    /// The file that has this name now.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn find(path: &Path) -> io::Result<Self> {
        // O_PATH needs no permission on the file itself, and does not wait for the other end of a FIFO.
        let file = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path)?;
        let metadata = file.metadata()?;
        let number = file.as_raw_fd();
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{number}")).unwrap_or_default();
        let mounts = fs::read("/proc/self/mountinfo").unwrap_or_default();
        let device = field(&info, "mnt_id:").and_then(|mount| device_of(&String::from_utf8_lossy(&mounts), mount));
        let (major, minor) = (libc::major(metadata.dev()), libc::minor(metadata.dev()));
        Ok(Self {
            // Absent before 5.14 (3845f256a8b5 "procfs: add inode number to fdinfo").
            inode: field(&info, "ino:").unwrap_or(metadata.ino()),
            device: device.unwrap_or(major << 20 | minor),
            note: note(&file),
        })
    }
}

fn note(file: &File) -> Option<String> {
    let note = match fstatfs(file).ok()?.filesystem_type() {
        OVERLAYFS => "the file is on overlayfs: the work of the file systems below is in the row overlay",
        BTRFS_SUPER_MAGIC => {
            "the file is on btrfs: a file with the same inode number in another subvolume is also counted"
        }
        _ => return None,
    };
    Some(note.to_owned())
}

/// A number in `/proc/self/fdinfo`.
fn field(info: &str, name: &str) -> Option<u64> {
    info.lines()
        .find_map(|line| line.strip_prefix(name))?
        .trim()
        .parse()
        .ok()
}

/// The device number of a mount's file system, from the lines of `/proc/self/mountinfo`: `23 28 0:21 / /proc ...`.
fn device_of(mounts: &str, mount: u64) -> Option<u32> {
    mounts.lines().find_map(|line| {
        let mut words = line.split(' ');
        let number: u64 = words.next()?.parse().ok()?;
        parse_number(words.nth(1).filter(|_| number == mount)?)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fuzz;

    const MOUNTS: &str = "\
22 28 0:21 / /sys rw,nosuid - sysfs sysfs rw
28 1 259:2 / / rw,relatime - ext4 /dev/nvme0n1p2 rw
31 28 0:35 /home /home rw - btrfs /dev/sda rw,subvol=/home
";

    #[test]
    fn the_device_is_that_of_the_mount() {
        assert_eq!(device_of(MOUNTS, 28), Some(259 << 20 | 2));
        assert_eq!(device_of(MOUNTS, 31), Some(35));
        assert_eq!(device_of(MOUNTS, 1), None);
        assert_eq!(field("pos:\t0\nmnt_id:\t31\nino:\t257\n", "ino:"), Some(257));
    }

    #[test]
    fn a_file_has_one_number_under_all_its_names() {
        let folder = std::env::temp_dir().join(format!("iosb-file-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (name, other) = (folder.join("a"), folder.join("b"));
        fs::write(&name, "x").unwrap();
        fs::hard_link(&name, &other).unwrap();
        let found = FileNumber::find(&name).unwrap();
        assert_eq!(FileNumber::find(&other).unwrap(), found);
        assert_ne!(FileNumber::find(&folder).unwrap().inode, found.inode);
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(FileNumber::find(&name).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    proptest! {
        #![proptest_config(fuzz::config())]

        #[test]
        fn any_mounts_are_read(mounts in fuzz::text_like(MOUNTS), mount in 0_u64..40) {
            let _ = (device_of(&mounts, mount), field(&mounts, "28"));
        }
    }
}
