//! The difference of an op's counters, and the op of a report computed from it.
//!
//! Arithmetic saturates: a number that is too large is reported as the maximum, never as a small one.

use std::sync::Arc;

use crate::model::abi::{
    ASIDE_AT_START, ASIDE_BY_KERNEL, ASIDE_NEVER_ISSUED, ASIDE_UNOWNED, ASIDE_UNTIMED, EXCLUDED_CHARACTER,
    EXCLUDED_OTHER, EXCLUDED_PIPE, EXCLUDED_SOCKET, LOST_REASONS,
};
use crate::model::histogram::Histogram;
use crate::model::ids::Op;
use crate::model::report::{Excluded, OpReport, SetAside};
use crate::model::snapshot::OpCounters;

impl OpCounters {
    /// The increase since `earlier`, an older reading of the same counters.
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
            queued: growth(self.queued, earlier.queued),
            queue_ns: growth(self.queue_ns, earlier.queue_ns),
            set_aside: std::array::from_fn(|i| growth(self.set_aside[i], earlier.set_aside[i])),
            lost: std::array::from_fn(|i| growth(self.lost[i], earlier.lost[i])),
            unmatched_ends: growth(self.unmatched_ends, earlier.unmatched_ends),
            extremes: self.extremes,
            errnos: self.errnos.iter().map(of_errno).collect(),
            steps: all(&self.steps, &earlier.steps),
            unit_slots: all(&self.unit_slots, &earlier.unit_slots),
        }
    }

    /// For an op of calls: calls on kinds of files that are not measured.
    #[must_use]
    pub fn excluded(&self) -> Excluded {
        let calls = |kind: u32| limited(self.set_aside[kind as usize]);
        Excluded {
            socket: calls(EXCLUDED_SOCKET),
            pipe: calls(EXCLUDED_PIPE),
            character_device: calls(EXCLUDED_CHARACTER),
            other: calls(EXCLUDED_OTHER),
        }
    }

    /// For an op of requests: those that are not in its count.
    #[must_use]
    pub fn requests_set_aside(&self) -> SetAside {
        let requests = |kind: u32| limited(self.set_aside[kind as usize]);
        SetAside {
            at_start: requests(ASIDE_AT_START),
            never_issued: requests(ASIDE_NEVER_ISSUED),
            by_kernel: requests(ASIDE_BY_KERNEL),
            unowned: requests(ASIDE_UNOWNED),
            untimed: requests(ASIDE_UNTIMED),
        }
    }

    /// Lost samples, in the order of `enum lost_reason`.
    #[must_use]
    pub fn lost_samples(&self) -> [u64; LOST_REASONS as usize] {
        self.lost.map(limited)
    }

    /// Calls of which only the return was seen, for hooks that detect this.
    #[must_use]
    pub fn half_seen_calls(&self) -> u64 {
        limited(self.unmatched_ends)
    }

    /// The part of the total that requests spent in the queue.
    #[must_use]
    pub fn queue_time_ns(&self) -> u64 {
        limited(self.queue_ns)
    }

    /// The difference of two readings as a report's op, without the requests counted separately.
    #[must_use]
    pub fn report(&self, op: Op, moves_bytes: bool) -> OpReport {
        let counts = |slots: &[u128]| -> Vec<u64> { slots.iter().copied().map(limited).collect() };
        let mut errors: Vec<(i32, u64)> = self
            .errnos
            .iter()
            .map(|(&errno, &calls)| (errno, limited(calls)))
            .filter(|&(_, calls)| calls > 0)
            .collect();
        errors.sort_unstable_by_key(|&(errno, n)| (std::cmp::Reverse(n), errno));
        let named: u128 = self.errnos.values().sum();
        let histogram = Histogram::from_steps(counts(&self.steps));
        let counted = histogram.count() > 0;
        OpReport {
            op,
            attach: Arc::default(),
            refused: Arc::default(),
            losses: Vec::new(),
            total_ns: limited(self.total_ns),
            bytes: moves_bytes.then_some(limited(self.bytes)),
            extremes: self.extremes.filter(|_| counted),
            errors_unnamed: limited(self.errors.saturating_sub(named)),
            errors,
            queued: limited(self.queued),
            queue_ns: None,
            set_aside: SetAside::default(),
            histogram,
            unit_slots: if self.unit_slots.iter().any(|&n| n > 0) {
                counts(&self.unit_slots)
            } else {
                Vec::new()
            },
        }
    }
}

/// The increase of a sum of counters. Counters only grow, so one that is smaller than before has wrapped at 2^64.
fn growth(now: u128, before: u128) -> u128 {
    now.checked_sub(before)
        .unwrap_or_else(|| (now + (1 << 64)).saturating_sub(before))
}

fn limited(n: u128) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}
