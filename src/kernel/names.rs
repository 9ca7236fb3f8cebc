//! Names of processes, disks and mounts by their numbers, and names that the kernel side recorded in pieces.

use std::collections::BTreeMap;
use std::fs;

use crate::model::abi::{PATH_ALONE, PATH_CUT, PATH_GIVEN, PATH_INSIDE, PATH_WHOLE};
use crate::model::report::slow::{CallPath, PathKind};
use crate::sys::text_of;

/// The bits of minor number in the kernel's device numbers.
const MINOR_BITS: u32 = 20;
/// A tick of `/proc/PID/stat`, `USER_HZ` on all architectures, in nanoseconds.
const TICK_NS: u64 = 10_000_000;

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

/// The name of a process by its number, if it is the one that started at this time, in nanoseconds since boot.
#[must_use]
pub fn name_of_process(pid: u64, began_ns: u64) -> Option<String> {
    name_in_stat(&text_of(format!("/proc/{pid}/stat")).ok()?, began_ns)
}

/// The longest time until a process is looked at again, in nanoseconds.
const LOOKED_FOR: u64 = 300_000_000_000;

/// The names of processes, by numbers of groups. A process gets its last name soon after it began, by exec, or later and
/// seldom: it is looked at again when it is twice as old as the last time, and at least every five minutes.
#[derive(Debug, Default)]
pub struct ProcessNames(BTreeMap<u32, KnownName>);

/// A process as the kernel side recorded it: its number, its start in nanoseconds since boot, and its name.
pub type Recorded = [u64; 4];

#[derive(Debug)]
struct KnownName {
    /// `None`: the process has ended.
    name: Option<String>,
    /// What the kernel side had recorded then.
    recorded: Recorded,
    /// When it was looked at, in nanoseconds since boot.
    looked_ns: u64,
}

impl KnownName {
    fn is_due(&self, recorded: Recorded, now_ns: u64) -> bool {
        let [_, began_ns, ..] = recorded;
        let age = self.looked_ns.saturating_sub(began_ns);
        let is_old = now_ns.saturating_sub(self.looked_ns) >= age.min(LOOKED_FOR);
        // The kernel side records the last name when the process ends.
        recorded != self.recorded || (self.name.is_some() && is_old)
    }
}

impl ProcessNames {
    /// The name of the process of a group, at a moment in nanoseconds since boot; `None`: it has ended, and the recorded name
    /// is its last. `look` gets the current one.
    pub fn name(
        &mut self,
        group: u32,
        recorded: Recorded,
        now_ns: u64,
        look: impl FnOnce() -> Option<String>,
    ) -> Option<&str> {
        use std::collections::btree_map::Entry;
        let known = match self.0.entry(group) {
            Entry::Vacant(entry) => entry.insert(KnownName {
                name: look(),
                recorded,
                looked_ns: now_ns,
            }),
            Entry::Occupied(entry) => {
                let known = entry.into_mut();
                if known.is_due(recorded, now_ns) {
                    known.name = look();
                    (known.recorded, known.looked_ns) = (recorded, now_ns);
                }
                known
            }
        };
        known.name.as_deref()
    }
}

/// The name in a line of `/proc/PID/stat`, if the process started at that time. The name may contain blanks and
/// parentheses; field 22 is the start, in ticks since boot.
#[must_use]
pub fn name_in_stat(stat: &str, began_ns: u64) -> Option<String> {
    let (_, rest) = stat.split_once('(')?;
    let (name, rest) = rest.rsplit_once(')')?;
    let began: u64 = rest.split_whitespace().nth(19)?.parse().ok()?;
    (began == began_ns / TICK_NS).then(|| name.to_owned())
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
    const STAT: &str = "165 (sq (l) 3) S 1 165 165 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 0 0";

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
    fn a_process_is_the_one_that_began_then() {
        assert_eq!(name_in_stat(STAT, 47_110_000_000).as_deref(), Some("sq (l) 3"));
        assert_eq!(name_in_stat(STAT, 47_119_999_999).as_deref(), Some("sq (l) 3"));
        assert_eq!(name_in_stat(STAT, 47_120_000_000), None);
    }

    #[test]
    fn a_process_is_looked_at_often_when_it_is_new_and_not_when_it_has_ended() {
        let second = |number: u64| number * 1_000_000_000;
        let of = |comm: u64| [4711, second(1000), comm, 0];
        let mut names = ProcessNames::default();
        let mut looked = Vec::new();
        for age in 1..1000 {
            let look = || {
                looked.push(age);
                Some(format!("at {age}"))
            };
            let last = names.name(2, of(1), second(1000 + age), look).map(str::to_owned);
            assert_eq!(last, Some(format!("at {}", looked.last().unwrap())));
        }
        assert_eq!(looked, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 812]);
        // What it was called last is recorded when it ends.
        let now = second(2000);
        let never = || -> Option<String> { panic!("there is no need to look") };
        assert_eq!(names.name(2, of(1), now, never), Some("at 812"));
        assert_eq!(names.name(2, of(3), now, || None), None);
        assert_eq!(names.name(2, of(3), now + LOOKED_FOR, never), None);
        // One that was there before.
        let old = [4712, second(1), 1, 0];
        assert_eq!(names.name(3, old, now, || Some("other".to_owned())), Some("other"));
        assert_eq!(names.name(3, old, now + second(299), never), Some("other"));
        assert_eq!(
            names.name(3, old, now + second(300), || Some("new".to_owned())),
            Some("new")
        );
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
        fn anything_is_read(mounts in fuzz::text_like(MOUNTS), stat in fuzz::text_like(STAT), minor in 0_u32..30) {
            let _ = (mount_of(&mounts, (259, minor)), kind_of(&mounts, (0, minor)));
            let _ = name_in_stat(&stat, 47_110_000_000);
        }

        #[test]
        fn any_names_are_read(kind in 0_u32..8, names in proptest::collection::vec(any::<u8>(), 0..1280), length: u32) {
            let _ = path(kind, &pieces(&names, length));
        }
    }
}
