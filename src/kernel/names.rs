//! Names of disks and mounts by their numbers, and names that the kernel side recorded in pieces.

use std::fs;

use crate::model::abi::{PATH_ALONE, PATH_CUT, PATH_GIVEN, PATH_INSIDE, PATH_WHOLE};
use crate::model::report::slow::{CallPath, PathKind};
use crate::sys::text_of;

/// The bits of minor number in the kernel's device numbers.
const MINOR_BITS: u32 = 20;

/// Major and minor number of the kernel's `dev_t`.
#[must_use]
pub fn numbers_of(device: u32) -> (u32, u32) {
    (device >> MINOR_BITS, device & ((1 << MINOR_BITS) - 1))
}

/// Looks up current names.
pub trait Names {
    /// The disk of a device number, or the disk that contains the partition; otherwise the kind of a file system
    /// without a disk. `recorded`: the disk's name when its requests were seen; a path of a multipath disk cannot be
    /// found by its number.
    fn disk(&self, device: u32, recorded: Option<&str>) -> String;
    /// Where the root of the file system with this device number is mounted.
    fn mount(&self, device: u32) -> Option<String>;
}

/// This machine, by its `/proc` and `/sys`.
#[derive(Debug)]
pub struct Machine {
    mounts: String,
}

impl Machine {
    /// Its current state.
    #[must_use]
    pub fn now() -> Self {
        Self {
            mounts: text_of("/proc/self/mountinfo").unwrap_or_default(),
        }
    }
}

impl Names for Machine {
    fn disk(&self, device: u32, recorded: Option<&str>) -> String {
        let (major, minor) = numbers_of(device);
        let link = format!("/sys/dev/block/{major}:{minor}");
        // The directory of a partition is in that of its disk.
        let found = fs::canonicalize(link).ok().and_then(|directory| {
            let is_partition = directory.join("partition").exists();
            let disk = if is_partition { directory.parent()? } else { &directory };
            Some(disk.file_name()?.to_string_lossy().replace('!', "/"))
        });
        let found = found.or_else(|| Some(recorded?.replace('!', "/")));
        found.unwrap_or_else(|| match kind_of(&self.mounts, (major, minor)) {
            Some(kind) => format!("{kind} ({major}:{minor})"),
            None => format!("{major}:{minor}"),
        })
    }

    fn mount(&self, device: u32) -> Option<String> {
        mount_of(&self.mounts, numbers_of(device))
    }
}

/// The lines of `/proc/self/mountinfo` with this device, as root, mount point and kind: `28 1 259:2 / / rw,relatime
/// shared:1 - ext4 /dev/nvme0n1p2 rw`.
fn mounts_of(mounts: &str, (major, minor): (u32, u32)) -> impl Iterator<Item = (&str, &str, &str)> {
    let device = format!("{major}:{minor}");
    mounts.lines().filter_map(move |line| {
        let mut words = line.split(' ');
        let _ = words.nth(1)?;
        let found = words.next()? == device;
        let (root, point) = (words.next()?, words.next()?);
        let kind = words.skip_while(|word| *word != "-").nth(1)?;
        found.then_some((root, point, kind))
    })
}

/// The file system on a device, likewise.
#[must_use]
pub fn kind_of(mounts: &str, device: (u32, u32)) -> Option<String> {
    mounts_of(mounts, device).next().map(|(_, _, kind)| kind.to_owned())
}

/// Where a device is mounted, by `/proc/self/mountinfo`.
#[must_use]
pub fn mount_of(mounts: &str, device: (u32, u32)) -> Option<String> {
    let mut all = mounts_of(mounts, device);
    let (_, point, _) = all.find(|(root, _, _)| *root == "/")?;
    Some(unescaped(point))
}

/// Decodes blanks and the like, which are written as `\040`.
fn unescaped(point: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = point.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|_| byte == b'\\');
        let number = octal
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match number {
            Some(number) => {
                bytes.push(number);
                rest = &after[3..];
            }
            None => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Splits names that the kernel side recorded from the file upwards, and puts them in the usual order.
#[must_use]
pub fn pieces(names: &[u8], length: u32) -> Vec<String> {
    let names = &names[..names.len().min(length as usize)];
    let Some(names) = names.strip_suffix(&[0]) else {
        return Vec::new();
    };
    let pieces = names.split(|byte| *byte == 0);
    let mut pieces: Vec<String> = pieces.map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    pieces.reverse();
    pieces
}

/// Joins such names; `enum path_kind`. The name of a file without a directory depends on its kind.
#[must_use]
pub fn path(kind: u32, pieces: &[String]) -> Option<CallPath> {
    let joined = || pieces.iter().flat_map(|name| ["/", name]).collect::<String>();
    // The root itself has no name.
    let from_root = || if pieces.is_empty() { "/".to_owned() } else { joined() };
    let (kind, text) = match kind {
        PATH_WHOLE => (PathKind::Whole, from_root()),
        PATH_INSIDE => (PathKind::Inside, from_root()),
        PATH_CUT if !pieces.is_empty() => (PathKind::Cut, format!("…{}", joined())),
        PATH_ALONE => {
            let name = pieces.last().filter(|name| !name.is_empty() && *name != "/")?;
            (PathKind::Alone, name.clone())
        }
        PATH_GIVEN => (PathKind::Given, pieces.last().filter(|name| !name.is_empty())?.clone()),
        _ => return None,
    };
    Some(CallPath { kind, text })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fuzz;

    const MOUNTS: &str = "\
22 28 0:21 / /sys rw,nosuid - sysfs sysfs rw
28 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw
40 28 259:3 /home /home rw - ext4 /dev/nvme0n1p3 rw
41 28 259:3 / /mnt/a\\040b rw - ext4 /dev/nvme0n1p3 rw
";

    #[test]
    fn mounts_are_found_by_device() {
        assert_eq!(mount_of(MOUNTS, (259, 2)).as_deref(), Some("/"));
        assert_eq!(mount_of(MOUNTS, (259, 3)).as_deref(), Some("/mnt/a b"));
        assert_eq!(mount_of(MOUNTS, (8, 1)), None);
        assert_eq!(kind_of(MOUNTS, (0, 21)).as_deref(), Some("sysfs"));
    }

    #[test]
    fn a_disk_that_is_not_listed_has_the_name_that_its_requests_had() {
        let machine = Machine {
            mounts: MOUNTS.to_owned(),
        };
        // No block device has this major number, which is that of file systems without a disk.
        assert_eq!(machine.disk(21, Some("nvme0c0n1")), "nvme0c0n1");
        assert_eq!(machine.disk(21, Some("cciss!c0d0")), "cciss/c0d0");
        assert_eq!(machine.disk(21, None), "sysfs (0:21)");
        assert_eq!(machine.disk(99, None), "0:99");
    }

    #[test]
    fn pieces_are_put_together() {
        let reported = |kind, names: &[u8]| path(kind, &pieces(names, names.len() as u32)).map(|path| path.text);
        assert_eq!(reported(PATH_WHOLE, b"file\0b\0a\0").as_deref(), Some("/a/b/file"));
        assert_eq!(reported(PATH_WHOLE, b"").as_deref(), Some("/"));
        assert_eq!(reported(PATH_INSIDE, b"x\0").as_deref(), Some("/x"));
        assert_eq!(reported(PATH_CUT, b"file\0b\0").as_deref(), Some("…/b/file"));
        assert_eq!(reported(PATH_CUT, b""), None);
        assert_eq!(reported(PATH_GIVEN, b"../b\0").as_deref(), Some("../b"));
        assert_eq!(reported(PATH_GIVEN, b"\0"), None);
        assert_eq!(reported(PATH_ALONE, b"memfd:x\0").as_deref(), Some("memfd:x"));
        assert_eq!(reported(PATH_ALONE, b"/\0"), None);
        assert_eq!(reported(0, b""), None);
    }

    proptest! {
        #![proptest_config(fuzz::config())]

        #[test]
        fn anything_is_read(mounts in fuzz::text_like(MOUNTS), minor in 0_u32..30) {
            let _ = (mount_of(&mounts, (259, minor)), kind_of(&mounts, (0, minor)));
        }

        #[test]
        fn any_names_are_read(kind in 0_u32..8, names in proptest::collection::vec(any::<u8>(), 0..1280), length: u32) {
            let _ = path(kind, &pieces(&names, length));
        }
    }
}
