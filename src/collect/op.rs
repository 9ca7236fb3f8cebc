//! An op's counters: every CPU's made one, and the difference of two readings made an op of a report.
//!
//! Sums are wider than the counters, so that none overflows however many CPUs there are; what a report cannot hold is
//! told as the largest number, never as a small one.

use std::collections::BTreeMap;

use crate::histogram::{Histogram, STEPS, step_of};
use crate::kernel::interface::types::{binned, extremes, op_stats};
use crate::kernel::interface::{
    APART_AT_START, APART_BY_KERNEL, APART_KINDS, APART_NEVER_ISSUED, APART_UNOWNED, APART_UNTIMED, BIN_WIDTH,
    EPOCH_STEP, LOST_REASONS, UNIT_SLOTS,
};
use crate::layer::Op;
use crate::report::{Apart, OpReport};

/// One op's counters at one moment, or their growth between two.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpReading {
    total_ns: u128,
    bytes: u128,
    errors: u128,
    excluded: u128,
    queued: u128,
    queue_ns: u128,
    apart: [u128; APART_KINDS as usize],
    lost: [u128; LOST_REASONS as usize],
    /// See `struct op_stats`.
    half_seen: u128,
    /// Of the generation that the reading ends.
    extremes: Option<(u64, u64)>,
    /// Calls by errno.
    errnos: BTreeMap<i32, u128>,
    steps: Vec<u128>,
    unit_slots: Vec<u128>,
}

impl OpReading {
    /// Adds a CPU's counters. `epoch` is the generation of the extremes that the reading ends.
    pub fn add(&mut self, cpu: &op_stats, epoch: u64) {
        fn add(sum: &mut u128, n: u64) {
            *sum += u128::from(n);
        }
        add(&mut self.total_ns, cpu.total_ns);
        add(&mut self.bytes, cpu.bytes);
        add(&mut self.errors, cpu.errors);
        add(&mut self.excluded, cpu.excluded);
        add(&mut self.queued, cpu.queued);
        add(&mut self.queue_ns, cpu.queue_ns);
        add(&mut self.half_seen, cpu.half_seen);
        let counters = self.lost.iter_mut().zip(cpu.lost);
        for (sum, n) in counters.chain(self.apart.iter_mut().zip(cpu.apart)) {
            add(sum, n);
        }
        for (sums, slots) in [
            (&mut self.steps, &cpu.steps[..]),
            (&mut self.unit_slots, &cpu.unit_slots[..]),
        ] {
            sums.resize(slots.len(), 0);
            for (sum, &n) in sums.iter_mut().zip(slots) {
                add(sum, n);
            }
        }
        for place in cpu.errnos.iter().filter(|place| place.error != 0) {
            add(self.errnos.entry(place.error as i32).or_default(), place.calls);
        }
        self.extremes = extremes_of(&cpu.extremes, epoch).chain(self.extremes).reduce(widest);
    }

    /// Adds a CPU's usual calls, which are nowhere else. `unit_ns`: of the powers of two that are counted, 0 where there are none. These
    /// begin with a bin, as steps do: two microseconds are 125 bins.
    pub fn add_binned(&mut self, cpu: &binned, unit_ns: u32) {
        self.bytes += u128::from(cpu.bytes);
        self.steps.resize(STEPS, 0);
        self.unit_slots.resize(UNIT_SLOTS as usize, 0);
        for (bin, first_ns) in cpu.bins.iter().zip((0..).step_by(BIN_WIDTH as usize)) {
            let calls = u128::from(bin.calls);
            self.total_ns += u128::from(bin.total_ns);
            self.steps[step_of(first_ns)] += calls;
            if let Some(units) = first_ns.checked_div(u64::from(unit_ns)) {
                self.unit_slots[units.checked_ilog2().unwrap_or(0).min(UNIT_SLOTS - 1) as usize] += calls;
            }
        }
    }

    /// Takes back what was added since `earlier` when no call has ended since: that reading caught one in the middle, which had
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

    /// What was counted since `earlier`, an older reading of the same counters.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let all = |now: &[u128], before: &[u128]| -> Vec<u128> {
            let before = before.iter().copied().chain(std::iter::repeat(0));
            now.iter()
                .zip(before)
                .map(|(&now, before)| growth(now, before))
                .collect()
        };
        let of_errno = |(errno, &calls): (&i32, &u128)| {
            let before = earlier.errnos.get(errno).copied().unwrap_or(0);
            (*errno, growth(calls, before))
        };
        Self {
            total_ns: growth(self.total_ns, earlier.total_ns),
            bytes: growth(self.bytes, earlier.bytes),
            errors: growth(self.errors, earlier.errors),
            excluded: growth(self.excluded, earlier.excluded),
            queued: growth(self.queued, earlier.queued),
            queue_ns: growth(self.queue_ns, earlier.queue_ns),
            apart: std::array::from_fn(|i| growth(self.apart[i], earlier.apart[i])),
            lost: std::array::from_fn(|i| growth(self.lost[i], earlier.lost[i])),
            half_seen: growth(self.half_seen, earlier.half_seen),
            extremes: self.extremes,
            errnos: self.errnos.iter().map(of_errno).collect(),
            steps: all(&self.steps, &earlier.steps),
            unit_slots: all(&self.unit_slots, &earlier.unit_slots),
        }
    }

    /// Calls on files of a kind that was not asked for.
    #[must_use]
    pub fn excluded(&self) -> u64 {
        told(self.excluded)
    }

    /// Samples lost, in the order of `enum lost_reason`.
    #[must_use]
    pub fn lost(&self) -> [u64; LOST_REASONS as usize] {
        self.lost.map(told)
    }

    /// Calls of which the return alone was seen, by hooks that tell.
    #[must_use]
    pub fn half_seen(&self) -> u64 {
        told(self.half_seen)
    }

    /// The part of the total that requests spent in the queue.
    #[must_use]
    pub fn queue_ns(&self) -> u64 {
        told(self.queue_ns)
    }

    /// The difference of two readings as a report has it.
    #[must_use]
    pub fn report(&self, op: Op, moves_bytes: bool) -> OpReport {
        let counts = |slots: &[u128]| -> Vec<u64> { slots.iter().copied().map(told).collect() };
        let mut errors: Vec<(i32, u64)> = self
            .errnos
            .iter()
            .map(|(&errno, &calls)| (errno, told(calls)))
            .filter(|&(_, calls)| calls > 0)
            .collect();
        errors.sort_by_key(|&(errno, n)| (std::cmp::Reverse(n), errno));
        let named: u128 = self.errnos.values().sum();
        let histogram = Histogram::from_steps(&counts(&self.steps));
        let counted = histogram.count() > 0;
        let apart = |kind: u32| told(self.apart[kind as usize]);
        OpReport {
            op,
            attach: Vec::new(),
            refused: Vec::new(),
            losses: Vec::new(),
            total_ns: told(self.total_ns),
            bytes: moves_bytes.then_some(told(self.bytes)),
            extremes: self.extremes.filter(|_| counted),
            errors_unnamed: told(self.errors.saturating_sub(named)),
            errors,
            queued: told(self.queued),
            queue_ns: None,
            apart: Apart {
                at_start: apart(APART_AT_START),
                never_issued: apart(APART_NEVER_ISSUED),
                by_kernel: apart(APART_BY_KERNEL),
                unowned: apart(APART_UNOWNED),
                untimed: apart(APART_UNTIMED),
            },
            histogram,
            unit_slots: if self.unit_slots.iter().any(|&n| n > 0) {
                counts(&self.unit_slots)
            } else {
                Vec::new()
            },
        }
    }
}

/// By how much a sum of counters grew. They only grow, so one that is smaller than before has wrapped at 2^64.
fn growth(now: u128, before: u128) -> u128 {
    now.checked_sub(before)
        .unwrap_or_else(|| (now + (1 << 64)).saturating_sub(before))
}

fn told(n: u128) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

/// The shortest and the longest time of an epoch, and of the next one, if it has begun.
pub(super) fn extremes_of(of: &extremes, epoch: u64) -> impl Iterator<Item = (u64, u64)> {
    let epochs = [epoch, epoch.saturating_add(EPOCH_STEP.into())];
    let known = of.epoch.into_iter().zip(of.min_ns.into_iter().zip(of.max_ns));
    known.filter_map(move |(epoch, times)| epochs.contains(&epoch).then_some(times))
}

pub(super) fn widest(a: (u64, u64), b: (u64, u64)) -> (u64, u64) {
    (a.0.min(b.0), a.1.max(b.1))
}

#[cfg(test)]
mod tests;
