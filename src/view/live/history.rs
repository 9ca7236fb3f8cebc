//! A digest of each second that the live view can show again, from which time series are drawn. Its counters are kept
//! outside.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::model::histogram::step_of;
use crate::model::ids::Family;
use crate::model::report::Report;
use crate::model::report::moment::{DiskUse, Moment};
use crate::model::report::slow::SlowCall;

/// A second, as far as it is shown beside others.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Digest {
    /// At its end: `HH:MM:SS`.
    pub time_of_day: String,
    /// Those that were called.
    pub families: Vec<FamilyDigest>,
    /// By their ends; at most [`SLOW_CALLS`], the slowest.
    pub slow_calls: Vec<SlowCall>,
    /// Slow calls that are not in the list.
    pub left_out: u64,
}

/// Slow calls of a second that are kept.
pub const SLOW_CALLS: usize = 100;

/// A family's calls in a second.
#[derive(Debug, Clone, PartialEq)]
pub struct FamilyDigest {
    pub family: Family,
    /// `None`: too few calls.
    pub p99: Option<u64>,
    /// Calls by step of the histogram, without empty ones.
    pub steps: Vec<(u16, u64)>,
}

impl Digest {
    fn of(report: &Report, mut slow_calls: Vec<SlowCall>, mut left_out: u64) -> Self {
        if let Some(beyond) = slow_calls.len().checked_sub(SLOW_CALLS).filter(|beyond| *beyond > 0) {
            slow_calls.select_nth_unstable_by_key(SLOW_CALLS, |call| std::cmp::Reverse(call.total_ns));
            slow_calls.truncate(SLOW_CALLS);
            slow_calls.sort_by_key(|call| call.ended);
            left_out = left_out.saturating_add(beyond as u64);
        }
        let families = report.stack.iter().flat_map(|stack| &stack.families);
        let families = families.filter(|family| family.count() > 0);
        let families = families.map(|family| FamilyDigest {
            family: family.family,
            p99: family.histogram.quantile(0.99, family.extremes),
            steps: family
                .histogram
                .buckets()
                .map(|bucket| (step_of(bucket.ge) as u16, bucket.count))
                .collect(),
        });
        Self {
            time_of_day: report.time_of_day.clone(),
            families: families.collect(),
            slow_calls,
            left_out,
        }
    }

    #[must_use]
    pub fn family(&self, family: Family) -> Option<&FamilyDigest> {
        self.families.iter().find(|known| known.family == family)
    }

    fn bytes(&self) -> usize {
        let families = self.families.iter();
        let families = families.map(|family| size_of::<FamilyDigest>() + size_of::<(u16, u64)>() * family.steps.len());
        let calls = self.slow_calls.iter().map(|call| {
            let path = call.path.as_ref().map_or(0, |path| path.text.len());
            size_of::<SlowCall>() + call.comm.len() + path + size_of_val(&*call.rows)
        });
        size_of::<Self>() + self.time_of_day.len() + families.sum::<usize>() + calls.sum::<usize>()
    }
}

/// What a second has besides its counters.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Beside {
    /// What deserves attention, in one line: losses, what was detached.
    pub trouble: Option<String>,
    /// As the kernel counted them; `None`: not known.
    pub disks: Option<Vec<DiskUse>>,
    /// `None`: there are no records of it, or they were not read.
    pub moment: Option<Moment>,
}

/// The seconds, the oldest first. They are numbered from 0 on, whether they are still kept or not.
#[derive(Debug, Default)]
pub struct History {
    digests: VecDeque<Digest>,
    /// The number of the oldest that is kept.
    first: usize,
    bytes: usize,
}

impl History {
    /// Adds a second, with its slow calls, and how many of them are not in the list. Returns its number.
    pub fn push(&mut self, report: &Report, slow: (Vec<SlowCall>, u64)) -> usize {
        let digest = Digest::of(report, slow.0, slow.1);
        self.bytes += digest.bytes();
        self.digests.push_back(digest);
        self.first + self.digests.len() - 1
    }

    /// Drops the seconds before this one.
    pub fn drop_before(&mut self, number: usize) {
        while self.first < number
            && let Some(oldest) = self.digests.pop_front()
        {
            self.bytes -= oldest.bytes();
            self.first += 1;
        }
    }

    /// The numbers of the oldest and the newest second; `None`: there is none.
    #[must_use]
    pub fn range(&self) -> Option<(usize, usize)> {
        let last = self.digests.len().checked_sub(1)?;
        Some((self.first, self.first + last))
    }

    #[must_use]
    pub fn digest(&self, number: usize) -> Option<&Digest> {
        self.digests.get(number.checked_sub(self.first)?)
    }

    /// Bytes that are kept.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;

    fn push(history: &mut History, second: usize) {
        history.push(&example::report(second), example::slow(second));
    }

    #[test]
    fn a_digest_is_that_of_its_second() {
        let mut history = History::default();
        assert_eq!(history.range(), None);
        for second in 0..5 {
            push(&mut history, second);
        }
        assert_eq!(history.range(), Some((0, 4)));
        for second in 0..5 {
            let report = example::report(second);
            let digest = history.digest(second).unwrap();
            let family = &report.stack.as_ref().unwrap().families[0];
            assert_eq!(digest.time_of_day, report.time_of_day);
            assert_eq!(digest.slow_calls, example::slow(second).0);
            let steps = &digest.family(family.family).unwrap().steps;
            assert_eq!(steps.iter().map(|(_, calls)| calls).sum::<u64>(), family.count());
        }
        assert!(history.digest(5).is_none());
    }

    #[test]
    fn the_slowest_calls_are_kept_and_the_others_counted() {
        let (calls, _) = example::slow(3);
        let many: Vec<SlowCall> = (0..SLOW_CALLS as u64 + 7)
            .map(|ns| SlowCall {
                total_ns: 1_000 + ns,
                ..calls[0].clone()
            })
            .collect();
        let mut history = History::default();
        history.push(&example::report(0), (many, 3));
        let digest = history.digest(0).unwrap();
        assert_eq!((digest.slow_calls.len(), digest.left_out), (SLOW_CALLS, 10));
        assert!(digest.slow_calls.iter().all(|call| call.total_ns >= 1_007));
    }

    #[test]
    fn the_oldest_are_dropped_and_numbers_stay() {
        let mut history = History::default();
        for second in 0..50 {
            push(&mut history, second);
        }
        let all = history.bytes();
        history.drop_before(40);
        assert_eq!(history.range(), Some((40, 49)));
        assert!((1..all / 4).contains(&history.bytes()));
        assert!(history.digest(39).is_none());
        assert_eq!(history.digest(49).unwrap().time_of_day, example::report(49).time_of_day);
        history.drop_before(99);
        assert_eq!((history.range(), history.bytes()), (None, 0));
    }
}
