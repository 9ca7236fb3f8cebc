//! What a run requests from the kernel side, besides the layers.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::time::Duration;

use super::plan::BlockWish;
use crate::catalog::{Guard, Layer};
use crate::kernel::file::FileNumber;
use crate::model::ids::By;
use crate::model::sample::Sample;

/// The request of a run, which does not change with what attempts to attach find out.
#[derive(Debug, Default)]
pub struct Request {
    /// Processes traced from the start, by their numbers in the initial PID namespace. Empty, and not `follow`: all
    /// processes.
    pub traced: Vec<u32>,
    /// Descendants of these processes, and a command, are traced as well.
    pub follow: bool,
    /// A command is traced from its exec on.
    pub has_command: bool,
    /// The number of this process, which is never traced.
    pub own: u32,
    pub disk: Option<SelectedDisk>,
    pub cgroup: Option<OwnedFd>,
    /// Only threads of this name are traced.
    pub comm: Option<String>,
    pub file: Option<FileNumber>,
    /// Calls on all kinds of files are traced, not only on regular files and directories.
    pub all_files: bool,
    /// Calls that take this time or more are reported individually.
    pub slower: Option<Duration>,
    /// Calls, requests and sleeps are recorded one by one (`bpf/events.bpf.h`).
    pub records: Option<RecordWish>,
    /// Only some calls are measured.
    pub sample: Option<Sample>,
    /// The unit in which the kernel side counts powers of two (`-u`, `-m`), in nanoseconds; 0: it does not count them.
    pub unit_ns: u32,
    /// There is only one report, at the end.
    pub one_report: bool,
    /// The whole-stack view: all time of a call is assigned to rows.
    pub whole_stack: bool,
    /// In the whole-stack view: the functions inside a system call only assign time to rows, and their calls are not
    /// counted.
    pub rows_only: bool,
    /// Calls are counted by group (`--by`).
    pub groups: Option<GroupWish>,
    pub block: BlockWish,
    /// How calls of shared functions are assigned to each file system: what is compared, and the value.
    pub guards: BTreeMap<Layer, (Guard, u64)>,
    /// The length of the hash table of starts if it is not the default. Starts are then in that table by thread number,
    /// not in task storage.
    pub starts: Option<u32>,
    /// Each function gets programs of its own, even if one could serve many, so that the kernel counts their runs
    /// separately.
    pub each_alone: bool,
    /// Programs are loaded as they were compiled, without constant folding ([`super::fold`]).
    pub as_compiled: bool,
    /// Called with each stage of attaching.
    pub progress: Option<fn(Stage)>,
}

/// The disk whose calls and requests are selected.
#[derive(Debug, Clone, Default)]
pub struct SelectedDisk {
    /// Device numbers (`dev_t`, as the kernel encodes them): first that of the disk, then those of its partitions, and
    /// of devices and file systems on them ([`crate::kernel::disk`]).
    pub devices: Vec<u32>,
    pub is_partition: bool,
}

/// The groups of `--by`.
#[derive(Debug, Clone, Copy)]
pub struct GroupWish {
    pub by: By,
    /// The maximum number of groups.
    pub room: u32,
}

/// How a run records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordWish {
    /// The size of each CPU's rings in bytes: a power of two.
    pub ring_bytes: u32,
    /// The CPUs in use, read once, so that all rings are made for the same ones; `None`: unknown.
    pub online: Option<Vec<u32>>,
}

/// The rings of slots for usual records (`bpf/slot_ring.bpf.h`); by default there are none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RingSlots {
    /// The slots of each ring: a power of two.
    pub each: u32,
    /// CPUs that have one: those with lower numbers.
    pub cpus: u32,
}

impl RingSlots {
    /// The size of a ring in bytes.
    #[must_use]
    pub fn ring_bytes(self) -> u32 {
        SLOT_RING + self.each * RECORD_SLOT
    }

    /// The size of all rings.
    #[must_use]
    pub fn bytes(self) -> u32 {
        self.ring_bytes().saturating_mul(self.cpus)
    }
}

/// Limits of the size of a CPU's ring in bytes, unless a total is named.
const RING_BYTES: [u64; 2] = [256 << 10, 8 << 20];
/// The default total of all rings in bytes, and the part of the machine's memory that it is at most.
const ALL_RINGS_BYTES: u64 = 64 << 20;
const PART_OF_MEMORY: u64 = 64;
/// The part of the memory that a named total is at most: the kernel allocates all of it at the start.
const LARGEST_PART_OF_MEMORY: u64 = 8;
/// Bytes of a ring of slots without its slots (`struct slot_ring`), and of a slot (`struct record_slot`).
pub const SLOT_RING: u32 = 128;
pub const RECORD_SLOT: u32 = 96;
/// All rings of slots are in one value, in which programs may compute distances up to this size in bytes
/// (`BPF_MAX_VAR_OFF` of include/linux/bpf_verifier.h).
const LARGEST_RINGS: u64 = 1 << 29;
/// A ring of the kernel has room for any record, the longest of which is a path.
const SMALLEST_RING: u64 = 16 << 10;
/// The kernel's limit is beyond this, and so is any use.
const LARGEST_RING: u64 = 1 << 30;

impl RecordWish {
    /// The largest total that can be named, in bytes. `memory`: of the machine, in bytes.
    #[must_use]
    pub fn largest_total(memory: u64) -> u64 {
        memory / LARGEST_PART_OF_MEMORY
    }

    /// `total`: the size of all rings together in bytes (`--buffer`); by default 64 MiB, but at most a 64th of the
    /// memory. `online`: the CPUs in use, `None` if that is unknown. `memory`: of the machine, in bytes.
    #[must_use]
    pub fn new(total: Option<u64>, online: Option<Vec<u32>>, memory: u64) -> Self {
        let cpus = online.as_ref().map_or(1, Vec::len).max(1) as u64;
        let [least, most] = match total {
            Some(_) => [SMALLEST_RING, LARGEST_RING],
            None => RING_BYTES,
        };
        let total = total.unwrap_or(ALL_RINGS_BYTES.min(memory / PART_OF_MEMORY));
        let each = (total / cpus).clamp(least, most);
        let is_more = each.is_power_of_two();
        let ring = if is_more { each } else { each.next_power_of_two() / 2 };
        Self {
            ring_bytes: u32::try_from(ring).unwrap_or(u32::MAX / 2 + 1),
            online,
        }
    }

    /// The rings of slots, which take half of what each CPU in use has; CPUs that come later have none.
    #[must_use]
    pub fn ring_slots(&self) -> RingSlots {
        let cpus = self
            .online
            .iter()
            .flatten()
            .max()
            .map_or(0, |last| last.saturating_add(1));
        let of_all = LARGEST_RINGS / u64::from(cpus.max(1));
        let ring = u64::from(self.ring_bytes / 2).min(of_all);
        if cpus == 0 || ring < SMALLEST_RING {
            return RingSlots::default();
        }
        let each = (ring - u64::from(SLOT_RING)) / u64::from(RECORD_SLOT);
        RingSlots {
            each: 1 << each.ilog2(),
            cpus,
        }
    }

    /// The size of the kernel's ring of a CPU, in bytes. Virtual machines may have many more CPUs than those in use, which have
    /// a ring in case that they are used later. `page`: of memory, in bytes.
    #[must_use]
    pub fn ring_of(&self, cpu: u32, page: u64, slots: RingSlots) -> u32 {
        let is_used = self.online.as_ref().is_none_or(|online| online.contains(&cpu));
        let bytes = match (is_used, slots.each) {
            (false, _) => SMALLEST_RING as u32,
            (true, 0) => self.ring_bytes,
            (true, _) => self.ring_bytes / 2,
        };
        // The kernel makes rings of whole pages.
        bytes.max(u32::try_from(page).unwrap_or(0))
    }
}

impl Request {
    /// The process if exactly one is traced during the whole run.
    #[must_use]
    pub fn only_process(&self) -> Option<u32> {
        match *self.traced {
            [one] if !self.follow => Some(one),
            _ => None,
        }
    }
}

/// The progress of attaching.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Nothing is loaded yet: facts about the kernel are collected.
    Looking,
    Loading,
    /// `done` functions were begun with, of at most `of`.
    Attaching {
        done: usize,
        of: usize,
    },
    /// Waiting until an earlier run is detached from this number of functions.
    Waiting {
        functions: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cpu_has_a_ring_of_a_power_of_two() {
        const MIB: u64 = 1 << 20;
        let ring = |total, cpus, memory| {
            let online = Some((0..cpus).collect());
            u64::from(RecordWish::new(total, online, memory).ring_bytes)
        };
        assert_eq!(ring(None, 2, 64 << 30), 8 * MIB);
        assert_eq!(ring(None, 16, 64 << 30), 4 * MIB);
        assert_eq!(ring(None, 24, 64 << 30), 2 * MIB);
        assert_eq!(ring(None, 2, 512 * MIB), 4 * MIB, "a 64th of the memory");
        assert_eq!(ring(None, 256, 512 * MIB), MIB / 4, "no less");
        assert_eq!(ring(Some(64 << 10), 2, 1 << 30), 32 << 10);
        assert_eq!(ring(Some(100 << 10), 2, 1 << 30), 32 << 10);
        assert_eq!(ring(Some(0), 0, 0), 16 << 10);
        assert_eq!(ring(Some(u64::MAX), 1, 0), 1 << 30);
        assert_eq!(
            RecordWish::new(None, None, 64 << 30).ring_bytes,
            8 << 20,
            "unknown CPUs"
        );
    }

    #[test]
    fn a_cpu_that_is_not_in_use_has_a_small_ring() {
        let rings = |online: Option<&[u32]>, page| {
            let wish = wish(1 << 20, online);
            [0, 5].map(|cpu| wish.ring_of(cpu, page, RingSlots::default()))
        };
        assert_eq!(rings(Some(&[0, 1]), 4096), [1 << 20, 16 << 10]);
        assert_eq!(rings(None, 4096), [1 << 20; 2]);
        assert_eq!(rings(Some(&[0]), 64 << 10), [1 << 20, 64 << 10]);
    }

    #[test]
    fn half_of_what_a_cpu_has_is_for_slots_if_it_is_enough_for_both() {
        let slots = |ring_bytes, online: &[u32]| wish(ring_bytes, Some(online)).ring_slots();
        let (each, cpus) = (32 << 10, 6);
        assert_eq!(slots(8 << 20, &[0, 5]), RingSlots { each, cpus });
        assert_eq!(slots(32 << 10, &[0]), RingSlots { each: 128, cpus: 1 });
        let unknown = wish(8 << 20, None).ring_slots();
        for none in [
            slots(16 << 10, &[0]),
            slots(8 << 20, &[]),
            slots(8 << 20, &[u32::MAX]),
            unknown,
        ] {
            assert_eq!(none, RingSlots::default());
        }
        let most = slots(1 << 30, &[63]);
        assert!(
            u64::from(most.bytes()) < LARGEST_RINGS && most.each == 64 << 10,
            "{most:?}"
        );
        let wish = wish(1 << 20, Some(&[0]));
        let rings = [0, 1].map(|cpu| wish.ring_of(cpu, 4096, wish.ring_slots()));
        assert_eq!(rings, [512 << 10, 16 << 10]);
    }

    fn wish(ring_bytes: u32, online: Option<&[u32]>) -> RecordWish {
        RecordWish {
            ring_bytes,
            online: online.map(<[u32]>::to_vec),
        }
    }
}
