//! The counters of selected calls and requests, as the programs would have counted them alone.
//!
//! They are the differences of two snapshots, so that everything that is made of snapshots can be made of records.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use super::groups::{GroupKey, is_of_kernel};
use super::lost::LostRecords;
use super::names::Names;
use super::quick::{Quick, QuickMap};
use super::run::IN_RECORDS;
use super::slow::slow_call;
use super::waited::{OUT_OF_ORDER, Undecided};
use crate::catalog::syscall_of;
use crate::model::abi::{
    ASIDE_UNTIMED, DIRECTIONS, GROUP_FIRST, GROUP_NO_ROOM, GROUP_NONE, READ_CLASSES, ROW_QUEUE, ROW_SYSCALL, ROWS,
    SLOW_REPORTED, UNIT_SLOTS,
};
use crate::model::clock::Clock;
use crate::model::histogram::{step_of, widest};
use crate::model::ids::{By, Family, Layer, Op, Origin, ReadClass};
use crate::model::record::{Call, Kind, Records, Request, errno_of};
use crate::model::report::group::Who;
use crate::model::report::records::Incomplete;
use crate::model::report::slow::SlowCall;
use crate::model::run_info::RunInfo;
use crate::model::snapshot::{
    FamilyCounters, GroupsCounters, OpCounters, OriginCounters, StackCounters, StackIncreases, StackTotals,
};
use crate::model::steps::Steps;

/// The most groups that are distinguished: each has a histogram for each of its operations.
pub const GROUPS: usize = 4096;

/// What is folded.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    pub by: Option<By>,
    /// Calls that take this long or longer are returned one by one.
    pub slower_ns: Option<u64>,
    /// The unit in which powers of two are counted; 0: none.
    pub unit_ns: u64,
    pub clock: Clock,
    /// The start of the first interval, and the end of each, in nanoseconds of the programs' clock.
    pub from_ns: u64,
    pub ends_ns: Vec<u64>,
}

/// Folds records into the counters of intervals.
#[derive(Debug)]
pub struct Counters {
    run: RunInfo,
    shape: Shape,
    by: Option<By>,
    slower_ns: Option<u64>,
    unit_ns: u64,
    clock: Clock,
    from_ns: u64,
    /// Those that were not taken, and those that no record reached.
    intervals: VecDeque<Interval>,
    ends_ns: VecDeque<u64>,
    undecided: Undecided<NotWaited>,
    slow: Vec<(u64, SlowCall)>,
    groups: HashSet<GroupKey, Quick>,
    /// The latest end of a record.
    now_ns: u64,
    /// Records whose interval had been taken when they arrived.
    after_end: u64,
}

/// How the ops of a run are found.
#[derive(Debug)]
struct Shape {
    /// By [`Op`].
    calls: Vec<Option<CallShape>>,
    requests: Vec<Option<u32>>,
    is_stack: bool,
    is_queued: bool,
    /// Requests of kernel threads have no op.
    is_by_process: bool,
}

#[derive(Debug, Clone, Copy)]
struct CallShape {
    index: u32,
    moves_bytes: bool,
    /// `None`: its time is in no row.
    family: Option<Family>,
}

/// A request that perhaps no call waited for.
#[derive(Debug)]
struct NotWaited {
    ended_ns: u64,
    origin: usize,
    counters: OriginCounters,
    group: Option<GroupKey>,
}

/// The counters of an interval.
#[derive(Debug, Default)]
pub struct Interval {
    sums: Sums,
    groups: QuickMap<GroupKey, Sums>,
    lost: LostRecords,
    /// Calls whose rows could not be read.
    pub without_rows: u64,
}

/// The sums of some calls and requests; few have more than a dozen ops.
#[derive(Debug, Default)]
struct Sums {
    ops: Vec<(u32, OpSum)>,
    families: Vec<(usize, FamilySum)>,
    origins: Vec<(usize, OriginCounters)>,
}

#[derive(Debug, Default)]
struct OpSum {
    total_ns: u128,
    bytes: u128,
    errors: u128,
    queue_ns: u128,
    untimed: u128,
    extremes: Option<(u64, u64)>,
    errnos: BTreeMap<i32, u128>,
    steps: Vec<u64>,
    unit_slots: Vec<u64>,
}

#[derive(Debug, Default)]
struct FamilySum {
    bytes: u64,
    errors: u64,
    rows: [u64; ROWS as usize],
    reached: [u64; ROWS as usize],
    class_calls: [u64; READ_CLASSES as usize],
    class_bytes: [u64; READ_CLASSES as usize],
    steps: Vec<u64>,
    slow: u64,
    extremes: Option<(u64, u64)>,
}

impl Shape {
    fn of(run: &RunInfo) -> Self {
        let is_shown = |layer: Layer| {
            run.layers
                .iter()
                .any(|info| info.layer == layer && info.refused.is_none())
        };
        let mut calls = vec![None; Op::ALL.len()];
        let mut requests = vec![None; Op::ALL.len()];
        let ops = run.ops.iter().zip(0..);
        for (info, index) in ops.filter(|(info, _)| is_shown(info.layer) && IN_RECORDS.contains(&info.layer)) {
            match info.layer {
                Layer::Blk => requests[info.op as usize] = Some(index),
                _ => {
                    calls[info.op as usize] = syscall_of(info.op).map(|call| CallShape {
                        index,
                        moves_bytes: info.moves_bytes,
                        family: call.family,
                    });
                }
            }
        }
        Self {
            calls,
            requests,
            is_stack: run.stack.is_some(),
            is_queued: run.block.as_ref().is_some_and(|block| block.queue_from.is_some()),
            is_by_process: run.filter.is_by_process(),
        }
    }
}

impl Counters {
    /// `run`: as the reports describe it.
    #[must_use]
    pub fn new(run: &RunInfo, wanted: Wanted) -> Self {
        let intervals = wanted.ends_ns.iter().map(|_| Interval::default());
        Self {
            shape: Shape::of(run),
            run: run.clone(),
            by: wanted.by,
            slower_ns: wanted.slower_ns,
            unit_ns: wanted.unit_ns,
            clock: wanted.clock,
            from_ns: wanted.from_ns,
            intervals: intervals.collect(),
            ends_ns: wanted.ends_ns.into(),
            undecided: Undecided::default(),
            slow: Vec::new(),
            groups: HashSet::default(),
            now_ns: 0,
            after_end: 0,
        }
    }

    /// Folds the next records, whose definitions `names` has.
    pub fn take(&mut self, records: &Records, names: &Names) {
        for lost in &records.lost {
            if lost.to_ns <= self.from_ns {
                continue;
            }
            // Any of the intervals may lack all of them.
            let of = |at_ns| self.ends_ns.partition_point(|end| *end < at_ns);
            let (first, last) = (of(lost.from_ns), of(lost.to_ns));
            let within = self.intervals.iter_mut().take(last + 1).skip(first);
            within.for_each(|interval| interval.lost.add(lost));
        }
        for call in &records.calls {
            self.call(call, names);
        }
        if self.shape.is_stack {
            records.sleeps.iter().for_each(|sleep| self.undecided.sleep(sleep));
        }
        for request in &records.requests {
            self.request(request, names);
        }
        for request in self.undecided.known() {
            self.add_not_waited(request);
        }
    }

    /// The slow calls since the last time with the moments of their ends, in the order in which they arrived.
    pub fn slow_calls(&mut self) -> Vec<(u64, SlowCall)> {
        std::mem::take(&mut self.slow)
    }

    /// Whether all records of the next interval have arrived, as far as that can be known before the end.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let end = self.ends_ns.front();
        end.is_some_and(|end| self.now_ns > end.saturating_add(OUT_OF_ORDER))
    }

    /// Takes the next interval; `None`: there is no more.
    pub fn next_interval(&mut self) -> Option<Interval> {
        let end_ns = *self.ends_ns.front()?;
        for request in self.undecided.until(end_ns) {
            self.add_not_waited(request);
        }
        self.from_ns = end_ns;
        self.ends_ns.pop_front();
        self.intervals.pop_front()
    }

    /// Records that arrived after their interval was taken, and are in none.
    #[must_use]
    pub fn after_end(&self) -> u64 {
        self.after_end
    }

    /// The interval in which something ended; `None`: in none.
    fn interval(&mut self, end_ns: u64) -> Option<usize> {
        self.now_ns = self.now_ns.max(end_ns);
        if end_ns <= self.from_ns {
            return None;
        }
        // Usually it is the first one.
        let first = *self.ends_ns.front()?;
        if end_ns <= first {
            return Some(0);
        }
        let at = self.ends_ns.partition_point(|end| *end < end_ns);
        (at < self.ends_ns.len()).then_some(at)
    }

    fn call(&mut self, call: &Call, names: &Names) {
        // A call under way has not ended in any interval.
        let Some(end_ns) = call.end_ns else { return };
        if self.shape.is_stack {
            self.undecided.call(call.tid, end_ns);
        }
        let Some(at) = self.interval(end_ns) else { return };
        let Some(shape) = self.shape.calls.get(call.op as usize).copied().flatten() else {
            return;
        };
        if !names.selects_call(call) {
            return;
        }
        let ns = end_ns.saturating_sub(call.begin_ns);
        // Only calls in a row are reported one by one, as during the run.
        let is_slow = shape.family.is_some() && self.slower_ns.is_some_and(|slower| ns >= slower);
        if is_slow {
            let slow = slow_call(call, &self.run, names, self.clock);
            self.slow.extend(slow.map(|slow| (end_ns, slow)));
        }
        let key = self.by.map(|by| GroupKey::of_call(by, call, names));
        let key = key.map(|key| self.with_room(key));
        let family = shape.family.filter(|_| self.shape.is_stack);
        let has_rows = call.rows.iter().any(|ns| *ns > 0);
        let unit_ns = self.unit_ns;
        let Some(interval) = self.intervals.get_mut(at) else {
            return;
        };
        interval.without_rows += u64::from(family.is_some() && !has_rows && ns > 0);
        let group = key.map(|key| interval.groups.entry(key).or_default());
        for sums in [Some(&mut interval.sums), group].into_iter().flatten() {
            sums.op(shape.index).add(ns, call.value, shape.moves_bytes, unit_ns);
            if let Some(family) = family.filter(|_| has_rows) {
                sums.family(family as usize).add(call, ns, shape, is_slow);
            }
        }
    }

    fn request(&mut self, request: &Request, names: &Names) {
        let Some(at) = self.interval(request.ended_ns) else {
            return;
        };
        let Some(index) = self.shape.requests.get(request.op as usize).copied().flatten() else {
            return;
        };
        let is_of_kernel = is_of_kernel(request.origin);
        let is_own = names.selects_request(request);
        // As in a run with a filter: requests of kernel threads are of no process, and counted by their origin.
        let is_by_thread = self.shape.is_by_process || names.selection().is_by_thread();
        let is_of_all = is_of_kernel && is_by_thread && names.selects_request_of_any(request);
        if !(is_own || is_of_all) {
            return;
        }
        // It was served by another one.
        let Some(issued_ns) = request.issued_ns else { return };
        let key = self.by.map(|by| GroupKey::of_request(by, request, names));
        let key = key.map(|key| self.with_room(key));
        if self.shape.is_stack {
            let not_waited = NotWaited::of(request, issued_ns, key.clone());
            if is_of_kernel {
                self.add_not_waited(not_waited);
            } else {
                self.undecided.request(request, not_waited);
            }
        }
        if !is_own || (is_of_kernel && is_by_thread) {
            return;
        }
        let (is_queued, unit_ns) = (self.shape.is_queued, self.unit_ns);
        let Some(interval) = self.intervals.get_mut(at) else {
            return;
        };
        let group = key.map(|key| interval.groups.entry(key).or_default());
        for sums in [Some(&mut interval.sums), group].into_iter().flatten() {
            sums.op(index).add_request(request, issued_ns, is_queued, unit_ns);
        }
    }

    fn add_not_waited(&mut self, request: NotWaited) {
        let Some(at) = self.interval(request.ended_ns) else {
            self.after_end += 1;
            return;
        };
        let Some(interval) = self.intervals.get_mut(at) else {
            return;
        };
        let group = request.group.map(|key| interval.groups.entry(key).or_default());
        for sums in [Some(&mut interval.sums), group].into_iter().flatten() {
            let sum = entry(&mut sums.origins, request.origin);
            for (sum, number) in sum.iter_mut().zip(request.counters) {
                *sum = sum.wrapping_add(number);
            }
        }
    }

    /// The group, unless there is no room for it.
    fn with_room(&mut self, key: GroupKey) -> GroupKey {
        if self.groups.contains(&key) || key == GroupKey::None {
            return key;
        }
        if self.groups.len() >= GROUPS {
            return GroupKey::NoRoom;
        }
        self.groups.insert(key.clone());
        key
    }
}

impl NotWaited {
    fn of(request: &Request, issued_ns: u64, group: Option<GroupKey>) -> Self {
        let origin = Origin::ALL
            .iter()
            .position(|known| *known == request.origin)
            .unwrap_or(0);
        let started_ns = request.started_ns.unwrap_or(issued_ns);
        Self {
            ended_ns: request.ended_ns,
            origin: origin * DIRECTIONS as usize + usize::from(request.op != Op::Read),
            counters: [
                1,
                request.bytes,
                issued_ns.saturating_sub(started_ns),
                request.ended_ns.saturating_sub(issued_ns),
            ],
            group,
        }
    }
}

/// The element with this key, which is added if there is none.
fn entry<K: PartialEq, V: Default>(list: &mut Vec<(K, V)>, key: K) -> &mut V {
    let at = list.iter().position(|(known, _)| *known == key);
    let at = at.unwrap_or_else(|| {
        list.push((key, V::default()));
        list.len() - 1
    });
    &mut list[at].1
}

fn count_step(steps: &mut Vec<u64>, step: usize) {
    if steps.len() <= step {
        steps.resize(step + 1, 0);
    }
    steps[step] += 1;
}

fn extended(extremes: Option<(u64, u64)>, ns: u64) -> Option<(u64, u64)> {
    Some(extremes.map_or((ns, ns), |known| widest(known, (ns, ns))))
}

impl Sums {
    fn op(&mut self, index: u32) -> &mut OpSum {
        entry(&mut self.ops, index)
    }

    fn family(&mut self, index: usize) -> &mut FamilySum {
        entry(&mut self.families, index)
    }
}

impl OpSum {
    /// `result`: bytes, or a negative errno.
    fn add(&mut self, ns: u64, result: i64, moves_bytes: bool, unit_ns: u64) {
        self.total_ns += u128::from(ns);
        self.extremes = extended(self.extremes, ns);
        count_step(&mut self.steps, step_of(ns));
        if let Some(units) = ns.checked_div(unit_ns) {
            count_step(
                &mut self.unit_slots,
                units.checked_ilog2().unwrap_or(0).min(UNIT_SLOTS - 1) as usize,
            );
        }
        match errno_of(result) {
            Some(errno) => {
                self.errors += 1;
                *self.errnos.entry(errno).or_default() += 1;
            }
            None if moves_bytes => self.bytes += u128::from(result.unsigned_abs()),
            None => {}
        }
    }

    fn add_request(&mut self, request: &Request, issued_ns: u64, is_queued: bool, unit_ns: u64) {
        let mut from_ns = issued_ns;
        if is_queued {
            let Some(started_ns) = request.started_ns else {
                self.untimed += 1;
                return;
            };
            from_ns = from_ns.min(started_ns);
        }
        let result = match request.errno {
            0 => request.bytes.cast_signed(),
            errno => -i64::from(errno),
        };
        self.queue_ns += u128::from(issued_ns - from_ns);
        self.add(request.ended_ns.saturating_sub(from_ns), result, true, unit_ns);
    }

    /// Adds to counters that only grow.
    fn add_to(&self, counters: &mut OpCounters) {
        counters.total_ns += self.total_ns;
        counters.bytes += self.bytes;
        counters.errors += self.errors;
        counters.queue_ns += self.queue_ns;
        counters.set_aside[ASIDE_UNTIMED as usize] += self.untimed;
        counters.extremes = self.extremes;
        for (errno, calls) in &self.errnos {
            *counters.errnos.entry(*errno).or_default() += calls;
        }
        for (sums, slots) in [
            (&mut counters.steps, &self.steps),
            (&mut counters.unit_slots, &self.unit_slots),
        ] {
            if sums.len() < slots.len() {
                sums.resize(slots.len(), 0);
            }
            for (sum, n) in sums.iter_mut().zip(slots) {
                *sum += u128::from(*n);
            }
        }
    }
}

impl FamilySum {
    fn add(&mut self, call: &Call, ns: u64, shape: CallShape, is_slow: bool) {
        self.extremes = extended(self.extremes, ns);
        count_step(&mut self.steps, step_of(ns));
        let failed = errno_of(call.value).is_some();
        let bytes = if shape.moves_bytes && !failed {
            call.value.unsigned_abs()
        } else {
            0
        };
        self.bytes = self.bytes.wrapping_add(bytes);
        self.errors += u64::from(failed);
        self.slow += u64::from(is_slow);
        for (slot, (sum, ns)) in self.rows.iter_mut().zip(call.rows).enumerate() {
            *sum = sum.wrapping_add(ns);
            // No function of a layer takes no time at all.
            self.reached[slot] += u64::from(ns > 0 && slot < ROW_QUEUE as usize && slot != ROW_SYSCALL as usize);
        }
        self.reached[ROW_SYSCALL as usize] += 1;
        let class = call.class.filter(|_| shape.family == Some(Family::Read));
        if let Some(class) = class.and_then(|class| ReadClass::ALL.iter().position(|known| *known == class)) {
            self.class_calls[class] += 1;
            self.class_bytes[class] = self.class_bytes[class].wrapping_add(bytes);
        }
    }

    fn add_to(&self, counters: &mut FamilyCounters) {
        let add = |sums: &mut [u64], numbers: &[u64]| {
            for (sum, n) in sums.iter_mut().zip(numbers) {
                *sum = sum.wrapping_add(*n);
            }
        };
        counters.bytes = counters.bytes.wrapping_add(self.bytes);
        counters.errors += self.errors;
        counters.slow[SLOW_REPORTED as usize] += self.slow;
        counters.extremes = self.extremes;
        add(&mut counters.rows, &self.rows);
        add(&mut counters.reached, &self.reached);
        add(&mut counters.class_calls, &self.class_calls);
        add(&mut counters.class_bytes, &self.class_bytes);
        let steps = Steps::from(&self.steps[..]);
        counters.steps = counters.steps.combined(&steps, u64::wrapping_add);
    }
}

impl Sums {
    fn add_to_stack(&self, stack: &mut StackCounters) {
        for (index, family) in &self.families {
            family.add_to(Arc::make_mut(&mut stack.families[*index]));
        }
        for (index, origin) in &self.origins {
            for (sum, n) in Arc::make_mut(&mut stack.origins)[*index].iter_mut().zip(origin) {
                *sum = sum.wrapping_add(*n);
            }
        }
    }
}

impl Interval {
    /// What was lost of these kinds.
    #[must_use]
    pub fn incomplete(&self, kinds: &[Kind]) -> Vec<Incomplete> {
        self.lost.of(kinds)
    }
}

/// The counters of all intervals so far, which only grow, as those of the programs.
#[derive(Debug, Clone, Default)]
pub struct Totals {
    pub ops: Vec<Arc<OpCounters>>,
    /// `None`: the whole stack is not measured.
    pub stack: Option<StackCounters>,
    /// `None`: nothing is grouped.
    pub groups: Option<GroupsCounters<StackTotals>>,
    by: Option<By>,
    /// What [`Self::groups_since`] has returned.
    returned: StackTotals,
    numbers: HashMap<GroupKey, u32>,
    /// The group of what has no record.
    rest: Option<u32>,
}

impl Totals {
    /// Nothing has been counted.
    #[must_use]
    pub fn new(run: &RunInfo, by: Option<By>) -> Self {
        Self {
            ops: vec![OpCounters::nothing(); run.ops.len()],
            stack: run.stack.as_ref().map(|_| StackCounters::nothing()),
            groups: by.map(|_| GroupsCounters::default()),
            by,
            ..Self::default()
        }
    }

    /// Adds an interval.
    pub fn add(&mut self, interval: &Interval, names: &Names) {
        self.ops.iter_mut().for_each(OpCounters::forget_extremes);
        for (index, op) in &interval.sums.ops {
            op.add_to(Arc::make_mut(&mut self.ops[*index as usize]));
        }
        if let Some(stack) = &mut self.stack {
            stack.forget_extremes();
            interval.sums.add_to_stack(stack);
        }
        let (Some(groups), Some(by)) = (&mut self.groups, self.by) else {
            return;
        };
        groups.ops.values_mut().for_each(|op| op.extremes = None);
        groups.stacks.values_mut().for_each(StackCounters::forget_extremes);
        let is_stack = self.stack.is_some();
        for (key, sums) in &interval.groups {
            let next = GROUP_FIRST + self.numbers.len() as u32;
            let number = match key {
                GroupKey::None => GROUP_NONE,
                GroupKey::NoRoom => GROUP_NO_ROOM,
                key => *self.numbers.entry(key.clone()).or_insert(next),
            };
            if number >= GROUP_FIRST {
                Arc::make_mut(&mut groups.who).insert(number, key.who(by, names));
            }
            if is_stack {
                sums.add_to_stack(groups.stacks.entry(number).or_insert_with(StackCounters::nothing));
            } else {
                for (index, op) in &sums.ops {
                    op.add_to(groups.ops.entry((number, *index)).or_default());
                }
            }
        }
    }

    /// The counters of groups; those of the whole stack since the last time.
    pub fn groups_since(&mut self) -> Option<GroupsCounters> {
        let groups = self.groups.as_ref()?;
        let since = GroupsCounters {
            ops: groups.ops.clone(),
            stacks: StackIncreases::since(&self.returned, &groups.stacks),
            who: Arc::clone(&groups.who),
        };
        self.returned.clone_from(&groups.stacks);
        Some(since)
    }

    /// Makes a group of what counters have and the records so far have not, so that the sum of all groups is exact.
    /// `ops`, `stack`: what was counted since the start.
    pub fn add_rest(&mut self, ops: &[OpCounters], stack: Option<&StackCounters>) {
        let Some(groups) = &mut self.groups else { return };
        let number = *self.rest.get_or_insert(u32::MAX);
        let mut is_any = false;
        match (stack, &self.stack) {
            (Some(all), Some(known)) => {
                let rest = groups.stacks.entry(number).or_insert_with(StackCounters::nothing);
                let families = rest.families.iter_mut().zip(all.families.iter().zip(&known.families));
                for (rest, (all, known)) in families {
                    let missing = all.combined(known, u64::saturating_sub);
                    // Counters only grow.
                    *rest = Arc::new(FamilyCounters {
                        extremes: None,
                        ..rest.combined(&missing, u64::max)
                    });
                    is_any |= !rest.steps.is_empty();
                }
                let origins = Arc::make_mut(&mut rest.origins).iter_mut();
                let origins = origins.zip(all.origins.iter().zip(known.origins.iter()));
                for (rest, (all, known)) in origins {
                    for (rest, (all, known)) in rest.iter_mut().zip(all.iter().zip(known)) {
                        *rest = (*rest).max(all.saturating_sub(*known));
                    }
                    is_any |= rest[0] > 0;
                }
            }
            _ => {
                for (index, (all, known)) in (0..).zip(ops.iter().zip(&self.ops)) {
                    let missing = rest_of(all, known);
                    let rest = groups.ops.entry((number, index)).or_default();
                    *rest = larger(rest, &missing);
                    is_any |= rest.steps.iter().any(|n| *n > 0);
                }
            }
        }
        if is_any {
            Arc::make_mut(&mut groups.who).insert(number, Who::NoRecord);
        }
    }
}

/// What `all` has more than `known`.
fn rest_of(all: &OpCounters, known: &OpCounters) -> OpCounters {
    combined(all, known, u128::saturating_sub)
}

fn larger(a: &OpCounters, b: &OpCounters) -> OpCounters {
    combined(a, b, u128::max)
}

fn combined(a: &OpCounters, b: &OpCounters, how: fn(u128, u128) -> u128) -> OpCounters {
    let all = |a: &[u128], b: &[u128]| -> Vec<u128> {
        let at = |list: &[u128], index: usize| list.get(index).copied().unwrap_or(0);
        (0..a.len().max(b.len()))
            .map(|index| how(at(a, index), at(b, index)))
            .collect()
    };
    let errnos = a.errnos.keys().chain(b.errnos.keys());
    let of = |op: &OpCounters, errno: &i32| op.errnos.get(errno).copied().unwrap_or(0);
    OpCounters {
        total_ns: how(a.total_ns, b.total_ns),
        bytes: how(a.bytes, b.bytes),
        errors: how(a.errors, b.errors),
        queue_ns: how(a.queue_ns, b.queue_ns),
        errnos: errnos.map(|errno| (*errno, how(of(a, errno), of(b, errno)))).collect(),
        steps: all(&a.steps, &b.steps),
        unit_slots: all(&a.unit_slots, &b.unit_slots),
        ..OpCounters::default()
    }
}

#[cfg(test)]
mod tests;
