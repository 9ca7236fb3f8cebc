//! What a recording says about the machine: disks, mounts, boot. What cannot be read is left empty.

use std::fs;
use std::path::Path;

use super::disk::has_requests;
use crate::model::recording::{Disk, Mount, Partition};
use crate::sys::text_of;

/// The identifier of this boot; empty: unknown.
#[must_use]
pub fn boot_id() -> String {
    line("/proc/sys/kernel/random/boot_id").unwrap_or_default()
}

/// Disks with a size, and their partitions.
#[must_use]
pub fn disks() -> Vec<Disk> {
    let mut disks: Vec<Disk> = folders("/sys/block").iter().filter_map(|name| disk(name)).collect();
    disks.retain(|disk| disk.sectors > 0);
    disks
}

/// The mounts of the tool's mount namespace.
#[must_use]
pub fn mounts() -> Vec<Mount> {
    let text = fs::read("/proc/self/mountinfo").unwrap_or_default();
    String::from_utf8_lossy(&text).lines().filter_map(mount).collect()
}

fn line(path: impl AsRef<Path>) -> Option<String> {
    Some(text_of(path).ok()?.trim().to_owned())
}

fn folders(path: &str) -> Vec<String> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort_unstable();
    names
}

fn disk(name: &str) -> Option<Disk> {
    let folder = format!("/sys/block/{name}");
    let scheduler = line(format!("{folder}/queue/scheduler")).unwrap_or_default();
    let partitions = folders(&folder).into_iter().filter_map(|part| {
        let folder = format!("{folder}/{part}");
        fs::metadata(format!("{folder}/partition")).ok()?;
        Some(Partition {
            number: numbers(&line(format!("{folder}/dev"))?)?,
            start: line(format!("{folder}/start"))?.parse().ok()?,
            sectors: line(format!("{folder}/size"))?.parse().ok()?,
            name: part,
        })
    });
    Some(Disk {
        name: name.replace('!', "/"),
        mapped: line(format!("{folder}/dm/name")).unwrap_or_default(),
        number: numbers(&line(format!("{folder}/dev"))?)?,
        sectors: line(format!("{folder}/size"))?.parse().ok()?,
        scheduler: current(&scheduler).to_owned(),
        model: line(format!("{folder}/device/model")).unwrap_or_default(),
        is_rotational: line(format!("{folder}/queue/rotational")).as_deref() == Some("1"),
        has_requests: Some(has_requests(Path::new(&folder))),
        partitions: partitions.collect(),
    })
}

/// The scheduler in brackets: `none [mq-deadline]`.
fn current(schedulers: &str) -> &str {
    let chosen = schedulers.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    chosen.map_or(schedulers, |(chosen, _)| chosen)
}

/// `8:16`
fn numbers(text: &str) -> Option<[u32; 2]> {
    let (major, minor) = text.split_once(':')?;
    Some([major.parse().ok()?, minor.parse().ok()?])
}

/// A line of `mountinfo`: `36 35 98:0 /root /mnt rw,noatime master:1 - ext4 /dev/sda1 rw`.
fn mount(line: &str) -> Option<Mount> {
    let (front, back) = line.split_once(" - ")?;
    let mut words = front.split(' ');
    Some(Mount {
        id: words.next()?.parse().ok()?,
        parent: words.next()?.parse().ok()?,
        device: numbers(words.next()?)?,
        root: unescaped(words.next()?),
        point: unescaped(words.next()?),
        file_system: back.split(' ').next()?.to_owned(),
    })
}

/// The kernel writes a space, tab, newline and backslash as `\` and three octal digits.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let octal = after.first_chunk::<3>().filter(|_| first == b'\\');
        let value = octal.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        match value {
            Some(byte) => {
                bytes.push(byte);
                rest = after.get(3..).unwrap_or_default();
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::super::root::whole_path;
    use super::*;

    #[test]
    fn a_mount_is_read_from_its_line() {
        let mount =
            mount(r"36 35 98:0 /a\040b /mnt\134x rw,noatime master:1 shared:2 - ext4 /dev/root rw,errors=continue");
        let mount = mount.unwrap();
        assert_eq!((mount.id, mount.parent, mount.device), (36, 35, [98, 0]));
        assert_eq!(
            (&*mount.root, &*mount.point, &*mount.file_system),
            ("/a b", r"/mnt\x", "ext4")
        );
        assert_eq!(super::mount("36 35 98:0 / /mnt rw"), None);
    }

    #[test]
    fn the_scheduler_is_the_one_in_brackets() {
        assert_eq!(current("none [mq-deadline] kyber"), "mq-deadline");
        assert_eq!(current("none"), "none");
    }

    #[test]
    fn this_machine_has_mounts() {
        let root = Path::new("/");
        // In a chroot, `/` is none.
        let point = match whole_path(root).unwrap() == root {
            true => "/",
            false => "/proc",
        };
        assert!(mounts().iter().any(|mount| mount.point == point));
        assert_eq!(boot_id().len(), 36);
    }
}
