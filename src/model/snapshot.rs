//! The counters of one moment, every CPU together. They only grow: a report is made of the difference of two.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::abi::{APART_KINDS, LOST_REASONS, READ_CLASSES, ROWS, SLOW_KINDS, UNBALANCED_KINDS};
use super::cost::{Detached, Runs};
use super::histogram::wider;
use super::ids::Layer;
use crate::model::report::group::Who;

/// All counters at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// By the clock of the programs (`CLOCK_MONOTONIC`), in nanoseconds.
    pub at_ns: u64,
    /// The same moment by the clock on the wall, which may be set while we run.
    #[serde(with = "super::since_epoch")]
    pub wall: Timestamp,
    /// East of UTC, in seconds; 0 at the first moment of a run, which ends no report.
    pub utc_offset: i32,
    /// In the order of [`RunInfo::ops`](super::run_info::RunInfo::ops).
    pub ops: Vec<OpCounters>,
    /// In the order of [`RunInfo::probes`](super::run_info::RunInfo::probes).
    pub probes: Vec<ProbeCounts>,
    /// CPU time of the tool's own process, in nanoseconds.
    pub own_ns: u64,
    /// Children that did not fit into the set of traced processes.
    pub not_followed: u64,
    /// The whole stack's, where it was asked for.
    pub stack: Option<StackCounters>,
    /// Those of groups, where they were asked for.
    pub groups: Option<GroupsCounters>,
    /// Where others' requests are looked at, too.
    pub neighbours: Option<NeighbourCounters>,
    /// What the kernel has counted of the disks before and after all this, where it is compared.
    pub disks: Option<[DiskCounters; 2]>,
    /// Known at the end of a run only.
    pub under_way: Option<UnderWay>,
    /// Layers that were detached so far, in the order in which they went.
    pub detached: Vec<Detached>,
    /// Why the last calls at vfs are not among those of the ops, where their counters could not be read.
    pub unread: Option<String>,
    /// What else could not be read, one sentence each.
    pub warnings: Vec<String>,
}

impl Snapshot {
    /// See [`OpCounters::hold_back`]; `earlier` is the one before.
    pub fn hold_back(&mut self, earlier: &Self) {
        for (op, earlier) in self.ops.iter_mut().zip(&earlier.ops) {
            op.hold_back(earlier);
        }
        if let (Some(stack), Some(earlier)) = (&mut self.stack, &earlier.stack) {
            hold_back_families(&mut stack.families, &earlier.families);
        }
        if let (Some(groups), Some(earlier)) = (&mut self.groups, &earlier.groups) {
            groups.hold_back(earlier);
        }
    }
}

/// Calls under way when the run ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnderWay {
    pub by_layer: BTreeMap<Layer, u64>,
    /// By op, those whose start is in a cookie; calls whose return was skipped look the same.
    pub in_cookies: Vec<u64>,
}

/// One op's counters. Sums are wider than the kernel side's, so that none overflows however many CPUs there are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpCounters {
    pub total_ns: u128,
    pub bytes: u128,
    pub errors: u128,
    /// Asynchronous calls that complete elsewhere.
    pub queued: u128,
    pub queue_ns: u128,
    /// In the order of `enum apart`, or of calls in that of `enum excluded`.
    pub apart: [u128; APART_KINDS as usize],
    /// In the order of `enum lost_reason`.
    pub lost: [u128; LOST_REASONS as usize],
    /// Calls of which the return alone was seen, by hooks that tell.
    pub half_seen: u128,
    /// Shortest and longest time of the interval that the moment ends.
    pub extremes: Option<(u64, u64)>,
    /// Calls by errno.
    pub errnos: BTreeMap<i32, u128>,
    /// Calls by step of [`crate::model::histogram`].
    pub steps: Vec<u128>,
    /// Calls by power of two of the unit asked for.
    pub unit_slots: Vec<u128>,
}

impl OpCounters {
    /// Takes back what was added since `earlier` when no call has ended since: that moment caught one in the middle, which had
    /// been counted and its time and bytes had not. What is held back comes with the op's next call, as no report has it
    /// without one.
    pub fn hold_back(&mut self, earlier: &Self) {
        if self.calls() != earlier.calls() {
            return;
        }
        self.total_ns = earlier.total_ns;
        self.bytes = earlier.bytes;
        self.errors = earlier.errors;
        self.queue_ns = earlier.queue_ns;
        self.errnos.clone_from(&earlier.errnos);
        self.unit_slots.clone_from(&earlier.unit_slots);
    }

    fn calls(&self) -> u128 {
        self.steps.iter().sum()
    }
}

/// What the kernel counted of a probe so far, whosever calls it were.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeCounts {
    /// `None`: there is no such program.
    pub entry: Option<Runs>,
    pub leave: Option<Runs>,
    /// Entries that it skipped; of fsession entries and returns. `None`: it does not count them, or another probe sees them.
    pub skipped: Option<u64>,
    /// Of an event of requests: what it skipped of this program, whether another one saw it or not. `None`: it does not count that.
    pub skipped_alone: Option<u64>,
}

impl ProbeCounts {
    /// What was counted since an earlier moment.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let runs = |now: Option<Runs>, before: Option<Runs>| {
            let (now, before) = (now?, before.unwrap_or_default());
            Some(Runs {
                count: now.count.saturating_sub(before.count),
                ns: now.ns.saturating_sub(before.ns),
            })
        };
        let skips = |now: Option<u64>, before: Option<u64>| Some(now?.saturating_sub(before.unwrap_or(0)));
        Self {
            entry: runs(self.entry, earlier.entry),
            leave: runs(self.leave, earlier.leave),
            skipped: skips(self.skipped, earlier.skipped),
            skipped_alone: skips(self.skipped_alone, earlier.skipped_alone),
        }
    }
}

/// The whole stack's counters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackCounters {
    /// In the order of [`Family::ALL`](super::ids::Family::ALL).
    pub families: Vec<FamilyCounters>,
    pub origins: Vec<OriginCounters>,
}

/// Of families in the same order.
fn hold_back_families(families: &mut [FamilyCounters], earlier: &[FamilyCounters]) {
    for (family, earlier) in families.iter_mut().zip(earlier) {
        family.hold_back(earlier);
    }
}

/// Requests, bytes, queue and device time in nanoseconds; of an origin and a direction, which is their order.
pub type OriginCounters = [u64; 4];

/// One family's counters, which may wrap.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FamilyCounters {
    pub bytes: u64,
    pub errors: u64,
    pub unbalanced: [u64; UNBALANCED_KINDS as usize],
    /// Nanoseconds by row.
    pub rows: [u64; ROWS as usize],
    /// Calls by row.
    pub reached: [u64; ROWS as usize],
    pub class_calls: [u64; READ_CLASSES as usize],
    pub class_bytes: [u64; READ_CLASSES as usize],
    /// Calls by step of [`crate::model::histogram`].
    pub steps: Vec<u64>,
    pub slow: [u64; SLOW_KINDS as usize],
    /// Shortest and longest time of the interval that the moment ends.
    pub extremes: Option<(u64, u64)>,
}

impl FamilyCounters {
    /// As [`OpCounters::hold_back`].
    fn hold_back(&mut self, earlier: &Self) {
        if self.steps == earlier.steps {
            *self = Self {
                unbalanced: self.unbalanced,
                slow: self.slow,
                extremes: self.extremes,
                ..earlier.clone()
            };
        }
    }

    /// Number by number; the extremes are the wider ones. Counters may wrap, and their differences stay right.
    #[must_use]
    pub fn combined(&self, other: &Self, how: fn(u64, u64) -> u64) -> Self {
        let steps = self.steps.len().max(other.steps.len());
        let step = |steps: &[u64], place: usize| steps.get(place).copied().unwrap_or(0);
        Self {
            bytes: how(self.bytes, other.bytes),
            errors: how(self.errors, other.errors),
            unbalanced: combined(&self.unbalanced, &other.unbalanced, how),
            rows: combined(&self.rows, &other.rows, how),
            reached: combined(&self.reached, &other.reached, how),
            class_calls: combined(&self.class_calls, &other.class_calls, how),
            class_bytes: combined(&self.class_bytes, &other.class_bytes, how),
            steps: (0..steps)
                .map(|place| how(step(&self.steps, place), step(&other.steps, place)))
                .collect(),
            slow: combined(&self.slow, &other.slow, how),
            extremes: wider(self.extremes, other.extremes),
        }
    }
}

/// Number by number.
#[must_use]
pub fn combined<const N: usize>(a: &[u64; N], b: &[u64; N], how: fn(u64, u64) -> u64) -> [u64; N] {
    std::array::from_fn(|i| how(a[i], b[i]))
}

/// The counters of groups. What was not counted so far is not in them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupsCounters {
    /// By group and by place among the ops.
    #[serde(with = "pairs")]
    pub ops: BTreeMap<(u32, u32), OpCounters>,
    /// By group; of the whole stack's view.
    pub stacks: BTreeMap<u32, StackCounters>,
    /// Whose they are, by group.
    pub who: BTreeMap<u32, Who>,
}

impl GroupsCounters {
    /// As [`OpCounters::hold_back`].
    fn hold_back(&mut self, earlier: &Self) {
        let none = OpCounters::default();
        for (key, op) in &mut self.ops {
            op.hold_back(earlier.ops.get(key).unwrap_or(&none));
        }
        for (group, stack) in &mut self.stacks {
            let earlier = earlier.stacks.get(group).map_or(&[][..], |stack| &stack.families);
            hold_back_families(&mut stack.families, earlier);
        }
    }
}

/// A map whose keys are no words, as a list of pairs.
mod pairs {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<K: Serialize, V: Serialize, S: Serializer>(
        map: &BTreeMap<K, V>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_seq(map)
    }

    pub fn deserialize<'de, K, V, D>(from: D) -> Result<BTreeMap<K, V>, D::Error>
    where
        K: Deserialize<'de> + Ord,
        V: Deserialize<'de>,
        D: Deserializer<'de>,
    {
        Ok(Vec::<(K, V)>::deserialize(from)?.into_iter().collect())
    }
}

/// Whose requests the disks served meanwhile.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NeighbourCounters {
    /// Time in which one or more of the requests waited, in nanoseconds.
    pub waited_ns: u64,
    /// More requests ended in one wait than are kept: what was before them is not known.
    pub untold_ns: u64,
    /// Ends of requests on disks for which there was no room.
    pub disks_full: u64,
    /// By place; those that nobody has had so far are left out.
    pub neighbours: Vec<ServedCounters>,
}

/// What a disk served for one process, or for all that have no place of their own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServedCounters {
    pub tgid: u32,
    /// Name of its first thread, when it last submitted something.
    pub comm: String,
    pub is_kernel: bool,
    pub ns: u64,
    pub requests: u64,
    pub bytes: u64,
}

/// Requests that have ended since the kernel was started, as `/proc/diskstats` has them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskCounters {
    pub reads: u64,
    pub writes: u64,
    pub discards: u64,
    pub flushes: u64,
    /// How many of the disks that were asked for there are. One that is taken away takes its counters along.
    pub disks: usize,
}
