//! The measured disks, and the kernel's own counters of them.

use std::cell::Cell;
use std::rc::Rc;

use crate::model::run_info::DisksInfo;
use crate::model::snapshot::DiskCounters;

use super::disk::{self, Disk};
use super::diskstats::Diskstats;

/// The measured disks, as named in `/proc/diskstats`.
#[derive(Debug, Default)]
pub struct Disks {
    names: Vec<String>,
    /// `None`: it cannot be read.
    pub stats: Option<Rc<Diskstats>>,
    /// The kernel keeps no statistics for one of them.
    pub is_uncounted: bool,
    is_bio_based: bool,
    is_partition: bool,
    /// `None` if a disk is selected: then others do not matter.
    seen: Option<Cell<Seen>>,
}

/// What was seen when disks were looked for last.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    /// The length of `/proc/diskstats`, by which a change is noticed: looking for disks takes many system calls.
    lines: usize,
    /// The number of disks that are not among those of the start.
    added: usize,
}

impl Disks {
    /// The selected disk, or all disks with requests.
    pub fn of(disk: Option<&Disk>) -> Self {
        match disk {
            Some(disk) => Self {
                names: vec![disk.name.clone()],
                stats: Diskstats::open().ok().map(Rc::new),
                is_uncounted: disk.is_uncounted,
                is_bio_based: disk.is_bio_based,
                is_partition: disk.is_partition,
                seen: None,
            },
            None => {
                let all = disk::with_requests();
                Self {
                    is_uncounted: all.iter().any(|(_, is_uncounted)| *is_uncounted),
                    names: all.into_iter().map(|(name, _)| name).collect(),
                    stats: Diskstats::open().ok().map(Rc::new),
                    seen: Some(Cell::default()),
                    ..Self::default()
                }
            }
        }
    }

    /// The kernel's counters so far; `None` if they are not available.
    pub fn read(&self) -> Option<DiskCounters> {
        let stats = self.stats.as_ref()?;
        stats.read().ok()?;
        let added = self.seen.as_ref().map_or(0, |seen| self.added(seen, stats.lines()));
        Some(DiskCounters {
            added,
            ..stats.counters(&self.names)
        })
    }

    /// The number of disks that were added since the start.
    fn added(&self, seen: &Cell<Seen>, lines: usize) -> usize {
        if seen.get().lines != lines {
            let added = added(&self.names, disk::with_requests().into_iter().map(|(name, _)| name));
            seen.set(Seen { lines, added });
        }
        seen.get().added
    }

    /// What a report needs to know about them.
    pub fn info(&self) -> DisksInfo {
        DisksInfo {
            is_uncounted: self.is_uncounted,
            is_bio_based: self.is_bio_based,
            is_partition: self.is_partition,
        }
    }
}

/// The number of names in `now` that were not there `before`.
fn added(before: &[String], now: impl Iterator<Item = String>) -> usize {
    now.filter(|name| !before.contains(name)).count()
}

/// An NVMe namespace with native multipath has no requests, and its bios end as requests of its paths
/// (nvme_ns_head_submit_bio of drivers/nvme/host/multipath.c), so nothing of its own reports their completion.
pub fn check_paths(disk: Option<&Disk>) -> Result<(), String> {
    match disk {
        Some(disk) if disk.is_bio_based && disk.name.starts_with("nvme") => Err(format!(
            "requests to '{}' are made at its paths (native multipath); leave out -d to measure all disks",
            disk.name
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_are_added_by_name() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let before = names(&["sda", "sdb"]);
        for (now, expected) in [(&["sda", "sdb"][..], 0), (&["sdb"], 0), (&["sda", "sdc", "sdd"], 2)] {
            assert_eq!(added(&before, names(now).into_iter()), expected, "{now:?}");
        }
    }

    #[test]
    fn a_namespace_with_several_paths_is_no_disk_to_measure() {
        let disk = |name: &str, is_bio_based| Disk {
            name: name.to_owned(),
            devices: vec![1],
            is_partition: false,
            is_bio_based,
            is_uncounted: false,
        };
        assert!(check_paths(Some(&disk("nvme0n1", true))).is_err());
        assert_eq!(check_paths(Some(&disk("nvme0n1", false))), Ok(()));
        assert_eq!(check_paths(Some(&disk("dm-0", true))), Ok(()));
        assert_eq!(check_paths(None), Ok(()));
    }
}
