//! The counters at one moment, summed over all CPUs. They only grow: a report is the difference of two snapshots. The whole
//! stack's counters of groups are an exception, as there are hundreds of them and few are called in a second: a snapshot has
//! what they have counted since the one before it. Recordings keep them as sums, like all others.

pub mod difference;
pub mod increases;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use self::difference::Difference;
pub use self::increases::StackIncreases;
use super::abi::{
    ASIDE_KINDS, DIRECTIONS, FAMILIES, LOST_REASONS, ORIGINS, READ_CLASSES, ROW_SYSCALL, ROWS, SLOW_KINDS,
    UNBALANCED_KINDS,
};
use super::cost::{Detached, Runs};
use super::histogram::wider;
use super::ids::Layer;
use super::steps::Steps;
use crate::model::report::group::Who;

/// All counters at one moment. `S`: the whole stack's counters of groups.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot<S = StackIncreases> {
    /// By the programs' clock (`CLOCK_MONOTONIC`), in nanoseconds.
    pub at_ns: u64,
    /// The same moment by the wall clock, which may be set during the run.
    #[serde(with = "super::since_epoch")]
    pub wall: Timestamp,
    /// Seconds east of UTC; 0 in the first snapshot of a run, which ends no report.
    pub utc_offset: i32,
    /// In the order of [`RunInfo::ops`](super::run_info::RunInfo::ops). Those that have counted nothing share
    /// [`OpCounters::nothing`]: most ops are never called.
    pub ops: Vec<Arc<OpCounters>>,
    /// In the order of [`RunInfo::probes`](super::run_info::RunInfo::probes).
    pub probes: Vec<ProbeCounts>,
    /// CPU time of the tool's own process, in nanoseconds.
    pub own_ns: u64,
    /// Children that did not fit into the set of traced processes.
    pub not_followed: u64,
    /// Those of the whole stack, if requested.
    pub stack: Option<StackCounters>,
    /// Those of groups, if requested.
    pub groups: Option<GroupsCounters<S>>,
    /// If the requests of others are measured as well.
    pub neighbours: Option<NeighbourCounters>,
    /// The kernel's counters of the disks before and after this snapshot, if they are compared.
    pub disks: Option<[DiskCounters; 2]>,
    /// Only known at the end of a run.
    pub under_way: Option<UnderWay>,
    /// The layers detached so far, in that order.
    pub detached: Vec<Detached>,
    /// Why the last calls at vfs are missing, if their counters could not be read.
    pub unread: Option<String>,
    /// What else could not be read, one sentence each.
    pub warnings: Vec<String>,
}

/// The whole stack's counters by group, since the start of a run.
pub type StackTotals = BTreeMap<u32, StackCounters>;

impl<S: Default> Snapshot<S> {
    /// Of a run that measures nothing.
    #[must_use]
    pub fn empty(at_ns: u64) -> Self {
        Self {
            at_ns,
            ..Self::default()
        }
    }
}

impl<S> Snapshot<S> {
    /// See [`OpCounters::hold_back`]; `earlier` is the previous snapshot. The whole stack's counters of groups are held back
    /// when they are read.
    pub fn hold_back<T>(&mut self, earlier: &Snapshot<T>) {
        for (op, earlier) in self.ops.iter_mut().zip(&earlier.ops) {
            if !Arc::ptr_eq(op, earlier) {
                Arc::make_mut(op).hold_back(earlier);
            }
        }
        if let (Some(stack), Some(earlier)) = (&mut self.stack, &earlier.stack) {
            stack.hold_back(earlier);
        }
        if let (Some(groups), Some(earlier)) = (&mut self.groups, &earlier.groups) {
            groups.hold_back(earlier);
        }
    }

    /// The same with other counters of the whole stack for groups.
    fn with_stacks<T>(self, of: impl FnOnce(S) -> T) -> Snapshot<T> {
        Snapshot {
            at_ns: self.at_ns,
            wall: self.wall,
            utc_offset: self.utc_offset,
            ops: self.ops,
            probes: self.probes,
            own_ns: self.own_ns,
            not_followed: self.not_followed,
            stack: self.stack,
            groups: self.groups.map(|groups| GroupsCounters {
                ops: groups.ops,
                stacks: of(groups.stacks),
                who: groups.who,
            }),
            neighbours: self.neighbours,
            disks: self.disks,
            under_way: self.under_way,
            detached: self.detached,
            unread: self.unread,
            warnings: self.warnings,
        }
    }
}

impl Snapshot<StackTotals> {
    /// Takes out what the whole stack has counted for groups.
    pub fn take_totals(&mut self) -> StackTotals {
        self.groups
            .as_mut()
            .map_or_else(StackTotals::default, |groups| std::mem::take(&mut groups.stacks))
    }

    /// The same with what the whole stack has counted for groups between two moments.
    #[must_use]
    pub fn since(self, before: &StackTotals, after: &StackTotals) -> Snapshot {
        self.with_stacks(|_| StackIncreases::since(before, after))
    }
}

impl Snapshot {
    /// The same with what the whole stack has counted for groups since the start, from what it had at the snapshot before.
    #[must_use]
    pub fn added_to(self, mut before: StackTotals) -> Snapshot<StackTotals> {
        self.with_stacks(|increases| {
            increases.add_to(&mut before);
            before
        })
    }

    /// All of it but the ops and the groups.
    fn without_ops_and_groups(&self) -> Self {
        Self {
            ops: Vec::new(),
            probes: self.probes.clone(),
            stack: self.stack.clone(),
            groups: None,
            neighbours: self.neighbours.clone(),
            under_way: self.under_way.clone(),
            detached: self.detached.clone(),
            unread: self.unread.clone(),
            warnings: self.warnings.clone(),
            ..*self
        }
    }

    /// Takes out what the whole stack has counted for groups. Without it, this snapshot is the start of an interval.
    pub fn take_stacks(&mut self) -> StackIncreases {
        self.groups
            .as_mut()
            .map_or_else(StackIncreases::default, |groups| std::mem::take(&mut groups.stacks))
    }

    /// Makes this snapshot the end of a longer interval, whose first part ended with `earlier`: what each snapshot has
    /// of its own interval is combined.
    pub fn widen(&mut self, mut earlier: Self) {
        for (op, earlier) in self.ops.iter_mut().zip(&earlier.ops) {
            if earlier.extremes.is_some() {
                Arc::make_mut(op).extremes = wider(op.extremes, earlier.extremes);
            }
        }
        if let (Some(stack), Some(earlier)) = (&mut self.stack, &earlier.stack) {
            stack.widen(earlier);
        }
        if let (Some(groups), Some(earlier)) = (&mut self.groups, &mut earlier.groups) {
            for (key, op) in &mut groups.ops {
                op.extremes = wider(op.extremes, earlier.ops.get(key).and_then(|op| op.extremes));
            }
            let later = std::mem::replace(&mut groups.stacks, std::mem::take(&mut earlier.stacks));
            groups.stacks.add(later);
        }
        self.unread = self.unread.take().or(earlier.unread);
        let new = std::mem::replace(&mut self.warnings, earlier.warnings);
        for line in new {
            if !self.warnings.contains(&line) {
                self.warnings.push(line);
            }
        }
    }
}
impl StackCounters {
    fn widen(&mut self, earlier: &Self) {
        for (family, earlier) in self.families.iter_mut().zip(&earlier.families) {
            if earlier.extremes.is_some() {
                Arc::make_mut(family).extremes = wider(family.extremes, earlier.extremes);
            }
        }
    }
}

/// Calls under way when the run ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnderWay {
    pub by_layer: BTreeMap<Layer, u64>,
    /// By op, for starts kept in cookies; calls whose return was skipped look the same.
    pub in_cookies: Vec<u64>,
}

/// One op's counters. Sums are wider than those of the kernel side, so that they cannot overflow with any number of
/// CPUs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpCounters {
    pub total_ns: u128,
    pub bytes: u128,
    pub errors: u128,
    /// Asynchronous calls that complete elsewhere.
    pub queued: u128,
    pub queue_ns: u128,
    /// In the order of `enum apart`, or for calls in that of `enum excluded`.
    pub set_aside: [u128; ASIDE_KINDS as usize],
    /// In the order of `enum lost_reason`.
    pub lost: [u128; LOST_REASONS as usize],
    /// Calls of which only the return was seen, for hooks that detect this.
    pub unmatched_ends: u128,
    /// Shortest and longest time of the interval that this snapshot ends.
    pub extremes: Option<(u64, u64)>,
    /// Calls by errno.
    pub errnos: BTreeMap<i32, u128>,
    /// Calls by step of [`crate::model::histogram`]; missing steps are empty.
    #[serde(with = "super::sparse")]
    pub steps: Vec<u128>,
    /// Calls by power of two of the chosen unit; missing ones are empty.
    #[serde(with = "super::sparse")]
    pub unit_slots: Vec<u128>,
}

impl OpCounters {
    /// The counters of an op that has counted nothing, which all of them share.
    #[must_use]
    pub fn nothing() -> Arc<Self> {
        static NOTHING: LazyLock<Arc<OpCounters>> = LazyLock::new(Arc::default);
        Arc::clone(&NOTHING)
    }

    /// Removes the extremes of the interval before; what has none stays shared.
    pub fn forget_extremes(op: &mut Arc<Self>) {
        if op.extremes.is_some() {
            Arc::make_mut(op).extremes = None;
        }
    }

    /// Removes what was added since `earlier` if no call has ended since: the snapshot then caught a call that had been
    /// counted in part. What is held back appears together with the op's next call, since no report shows it without
    /// one.
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

/// The kernel's statistics of a probe so far, for the calls of all processes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeCounts {
    /// `None`: there is no such program.
    pub entry: Option<Runs>,
    pub leave: Option<Runs>,
    /// Skipped entries, for fsession entries and returns. `None`: the kernel does not count them, or another probe sees
    /// them.
    pub skipped: Option<u64>,
    /// For an event of requests: how often this program was skipped, even if another one saw the event. `None`: the
    /// kernel does not count it.
    pub skipped_alone: Option<u64>,
}

impl ProbeCounts {
    /// The increase since an earlier snapshot.
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
    /// In the order of [`Family::ALL`](super::ids::Family::ALL). Totals share what did not change between them: of
    /// hundreds of groups, most have calls of few families.
    pub families: Vec<Arc<FamilyCounters>>,
    /// Shared as a whole: few groups have requests that no call waited for.
    pub origins: Arc<Vec<OriginCounters>>,
}

impl StackCounters {
    /// Each family and origin, which have counted nothing.
    #[must_use]
    pub fn nothing() -> Self {
        Self {
            families: (0..FAMILIES).map(|_| Arc::default()).collect(),
            origins: Arc::new(vec![[0; 4]; (ORIGINS * DIRECTIONS) as usize]),
        }
    }

    /// Removes the extremes of the interval before.
    pub fn forget_extremes(&mut self) {
        self.families.iter_mut().for_each(FamilyCounters::forget_extremes);
    }

    /// Like [`OpCounters::hold_back`].
    fn hold_back(&mut self, earlier: &Self) {
        for (family, earlier) in self.families.iter_mut().zip(&earlier.families) {
            if family.calls() == earlier.calls() {
                Arc::make_mut(family).hold_back(earlier);
            }
        }
    }
}

/// Requests, bytes, queue time and device time in nanoseconds; one set for each origin and direction, in that order.
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
    pub steps: Steps,
    pub slow: [u64; SLOW_KINDS as usize],
    /// Shortest and longest time of the interval that this snapshot ends.
    pub extremes: Option<(u64, u64)>,
}

impl FamilyCounters {
    /// How many numbers it has, without steps and extremes.
    const NUMBERS: usize =
        2 + UNBALANCED_KINDS as usize + 2 * ROWS as usize + 2 * READ_CLASSES as usize + SLOW_KINDS as usize;

    /// These numbers, in the order of the members.
    fn numbers(&self) -> [u64; Self::NUMBERS] {
        let mut all = [0; Self::NUMBERS];
        let mut rest = &mut all[..];
        let lists: [&[u64]; 7] = [
            &[self.bytes, self.errors],
            &self.unbalanced,
            &self.rows,
            &self.reached,
            &self.class_calls,
            &self.class_bytes,
            &self.slow,
        ];
        for list in lists {
            let (part, more) = rest.split_at_mut(list.len());
            part.copy_from_slice(list);
            rest = more;
        }
        all
    }

    /// A family of these numbers.
    fn of_numbers(numbers: &[u64; Self::NUMBERS]) -> Self {
        let mut family = Self::default();
        let mut rest = &numbers[..];
        let lists: [&mut [u64]; 8] = [
            std::slice::from_mut(&mut family.bytes),
            std::slice::from_mut(&mut family.errors),
            &mut family.unbalanced,
            &mut family.rows,
            &mut family.reached,
            &mut family.class_calls,
            &mut family.class_bytes,
            &mut family.slow,
        ];
        for list in lists {
            let (part, more) = rest.split_at(list.len());
            list.copy_from_slice(part);
            rest = more;
        }
        family
    }

    /// Removes the extremes; what has none stays shared.
    pub fn forget_extremes(family: &mut Arc<Self>) {
        if family.extremes.is_some() {
            Arc::make_mut(family).extremes = None;
        }
    }

    /// The time of all calls, which is that of the rows: a separate sum could include a call whose rows are not yet
    /// complete.
    #[must_use]
    pub fn total_ns(&self) -> u64 {
        self.rows.iter().fold(0, |sum, ns| sum.saturating_add(*ns))
    }

    /// Calls that have ended.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.reached[ROW_SYSCALL as usize]
    }

    /// Like [`OpCounters::hold_back`], if no call has ended since.
    fn hold_back(&mut self, earlier: &Self) {
        *self = Self {
            unbalanced: self.unbalanced,
            slow: self.slow,
            extremes: self.extremes,
            ..earlier.clone()
        };
    }

    /// Whether all counts are equal; extremes are none.
    fn counts_as(&self, other: &Self) -> bool {
        // The steps come last: they are the longest, and differ only if another number does.
        self.reached == other.reached
            && self.rows == other.rows
            && [self.bytes, self.errors] == [other.bytes, other.errors]
            && self.unbalanced == other.unbalanced
            && self.class_calls == other.class_calls
            && self.class_bytes == other.class_bytes
            && self.slow == other.slow
            && self.steps == other.steps
    }

    /// Combines number by number, and keeps the wider extremes. Counters may wrap, and differences remain correct.
    #[must_use]
    pub fn combined(&self, other: &Self, how: impl Fn(u64, u64) -> u64 + Copy) -> Self {
        Self {
            bytes: how(self.bytes, other.bytes),
            errors: how(self.errors, other.errors),
            unbalanced: combined(&self.unbalanced, &other.unbalanced, how),
            rows: combined(&self.rows, &other.rows, how),
            reached: combined(&self.reached, &other.reached, how),
            class_calls: combined(&self.class_calls, &other.class_calls, how),
            class_bytes: combined(&self.class_bytes, &other.class_bytes, how),
            steps: self.steps.combined(&other.steps, how),
            slow: combined(&self.slow, &other.slow, how),
            extremes: wider(self.extremes, other.extremes),
        }
    }
}

/// Combines number by number.
#[must_use]
pub fn combined<const N: usize>(a: &[u64; N], b: &[u64; N], how: impl Fn(u64, u64) -> u64) -> [u64; N] {
    std::array::from_fn(|i| how(a[i], b[i]))
}

/// The counters of groups, without those that are still 0. `S`: those of the whole stack.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupsCounters<S = StackIncreases> {
    /// By group and index of the op.
    #[serde(with = "pairs")]
    pub ops: BTreeMap<(u32, u32), OpCounters>,
    pub stacks: S,
    /// The names of the groups, which snapshots share.
    pub who: Arc<BTreeMap<u32, Who>>,
}

impl<S> GroupsCounters<S> {
    /// Like [`OpCounters::hold_back`].
    fn hold_back<T>(&mut self, earlier: &GroupsCounters<T>) {
        let none = OpCounters::default();
        for (key, op) in &mut self.ops {
            op.hold_back(earlier.ops.get(key).unwrap_or(&none));
        }
    }
}

/// Serialises a map as a list of pairs, since its keys are not strings.
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
    /// Time before the earliest kept completion, in waits during which more requests completed than are kept.
    pub untold_ns: u64,
    /// Completions of requests on disks for which there was no room.
    pub disks_full: u64,
    /// In the order of their slots, without slots that were never used.
    pub neighbours: Vec<ServedCounters>,
}

/// What a disk served for one process, or for all that have no slot of their own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServedCounters {
    pub tgid: u32,
    /// The name of its first thread when it last submitted a request.
    pub comm: String,
    pub is_kernel: bool,
    pub ns: u64,
    pub requests: u64,
    pub bytes: u64,
}

/// Requests completed since boot, as in `/proc/diskstats`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskCounters {
    pub reads: u64,
    pub writes: u64,
    pub discards: u64,
    pub flushes: u64,
    /// The number of selected disks that exist. A disk that is removed takes its counters along.
    pub disks: usize,
    /// The number of disks that were added since the start of a run of all disks: these counters are without theirs.
    /// Not in each recording: earlier versions did not look for them.
    #[serde(default)]
    pub added: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ops_without_another_call_are_held_back_and_nothing_stays_shared() {
        let of = |calls: u128, total_ns: u128| {
            let op = OpCounters {
                total_ns,
                steps: vec![0, calls],
                ..OpCounters::default()
            };
            Arc::new(op)
        };
        let snapshot = |ops: [Arc<OpCounters>; 3]| Snapshot {
            ops: ops.to_vec(),
            ..Snapshot::<StackIncreases>::default()
        };
        let before = snapshot([of(1, 5), of(1, 5), OpCounters::nothing()]);
        let mut after = snapshot([of(1, 9), of(2, 9), OpCounters::nothing()]);
        after.hold_back(&before);
        assert_eq!(after.ops, [of(1, 5), of(2, 9), OpCounters::nothing()]);
        assert!(Arc::ptr_eq(&after.ops[2], &before.ops[2]));
    }
}
