//! The seconds that the live view can show again: a digest of each, from which time series are drawn, and its report,
//! compressed. The oldest are dropped if there is no room.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::histogram::step_of;
use crate::model::ids::Family;
use crate::model::packed::Packed;
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
            slow_calls.sort_by_key(|call| std::cmp::Reverse(call.total_ns));
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

/// A second that is kept.
#[derive(Debug)]
struct Second {
    digest: Digest,
    shown: Packed<(Report, Beside)>,
}

impl Second {
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.digest.bytes() + self.shown.bytes()
    }
}

/// The seconds, the oldest first. They are numbered from 0 on, whether they are still kept or not.
#[derive(Debug)]
pub struct History {
    seconds: VecDeque<Second>,
    /// The number of the oldest that is kept.
    first: usize,
    bytes: usize,
    /// `None`: no limit.
    limit: Option<usize>,
}

impl History {
    /// `limit`: bytes; `None`: no limit.
    #[must_use]
    pub fn new(limit: Option<usize>) -> Self {
        Self {
            seconds: VecDeque::new(),
            first: 0,
            bytes: 0,
            limit,
        }
    }

    /// Adds a second, with its slow calls, and how many of them are not in the list. Returns it as it is kept.
    ///
    /// # Errors
    /// If its report cannot be kept, which is an error of the program.
    pub fn push(&mut self, report: Report, slow: (Vec<SlowCall>, u64), beside: Beside) -> io::Result<(Report, Beside)> {
        let shown = (slim(report), beside);
        let second = Second {
            digest: Digest::of(&shown.0, slow.0, slow.1),
            shown: Packed::new(&shown)?,
        };
        self.bytes += second.bytes();
        self.seconds.push_back(second);
        while self.limit.is_some_and(|limit| self.bytes > limit) && self.seconds.len() > 1 {
            if let Some(oldest) = self.seconds.pop_front() {
                self.bytes = self.bytes.saturating_sub(oldest.bytes());
                self.first += 1;
            }
        }
        Ok(shown)
    }

    /// The numbers of the oldest and the newest second; `None`: there is none.
    #[must_use]
    pub fn range(&self) -> Option<(usize, usize)> {
        let last = self.seconds.len().checked_sub(1)?;
        Some((self.first, self.first + last))
    }

    fn at(&self, number: usize) -> Option<&Second> {
        self.seconds.get(number.checked_sub(self.first)?)
    }

    #[must_use]
    pub fn digest(&self, number: usize) -> Option<&Digest> {
        self.at(number).map(|second| &second.digest)
    }

    /// The report of a second, and what it has besides.
    #[must_use]
    pub fn shown(&self, number: usize) -> Option<(Report, Beside)> {
        self.at(number)?.shown.get().ok()
    }

    /// Bytes that are kept.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether seconds were dropped.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.first > 0
    }
}

/// A report without what is not shown, and the same in each second.
fn slim(mut report: Report) -> Report {
    report.probes.clear();
    for layer in &mut report.layers {
        layer.absent.clear();
        for op in &mut layer.ops {
            op.attach = Arc::default();
            op.refused = Arc::default();
        }
    }
    report
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;

    fn push(history: &mut History, second: usize) {
        history
            .push(example::report(second), example::slow(second), example::beside(second))
            .unwrap();
    }

    #[test]
    fn seconds_are_shown_again_as_they_were() {
        let mut history = History::new(None);
        assert_eq!(history.range(), None);
        for second in 0..5 {
            push(&mut history, second);
        }
        assert_eq!(history.range(), Some((0, 4)));
        for second in 0..5 {
            let (kept, beside) = history.shown(second).unwrap();
            let made = slim(example::report(second));
            assert_eq!(
                serde_json::to_string(&kept).unwrap(),
                serde_json::to_string(&made).unwrap()
            );
            assert_eq!(beside, example::beside(second));
            let digest = history.digest(second).unwrap();
            let family = &kept.stack.as_ref().unwrap().families[0];
            assert_eq!(digest.slow_calls, example::slow(second).0);
            let steps = &digest.family(family.family).unwrap().steps;
            assert_eq!(steps.iter().map(|(_, calls)| calls).sum::<u64>(), family.count());
        }
        assert!(history.shown(5).is_none() && !history.is_cut());
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
        let mut history = History::new(None);
        history.push(example::report(0), (many, 3), example::beside(0)).unwrap();
        let digest = history.digest(0).unwrap();
        assert_eq!((digest.slow_calls.len(), digest.left_out), (SLOW_CALLS, 10));
        assert!(digest.slow_calls.iter().all(|call| call.total_ns >= 1_007));
    }

    #[test]
    fn the_oldest_are_dropped_and_numbers_stay() {
        let mut history = History::new(None);
        push(&mut history, 0);
        let limit = history.bytes() * 4;
        let mut history = History::new(Some(limit));
        for second in 0..50 {
            push(&mut history, second);
            assert!(history.bytes() <= limit, "{}", history.bytes());
        }
        let (first, last) = history.range().unwrap();
        assert!(last == 49 && first > 40 && history.is_cut(), "{first}");
        assert!(history.shown(first - 1).is_none());
        assert_eq!(history.digest(49).unwrap().time_of_day, example::report(49).time_of_day);
        // One second is kept, however large it is.
        let mut tiny = History::new(Some(1));
        push(&mut tiny, 0);
        assert_eq!(tiny.range(), Some((0, 0)));
    }
}
