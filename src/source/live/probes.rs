//! When the kernel's counts of probes are read, which takes a system call for each program.

use std::time::{Duration, Instant};

use crate::model::snapshot::{ProbeCounts, Snapshot};

/// The counts as they were read last.
#[derive(Debug, Default)]
pub struct ProbeReader {
    /// The time for which they are used again.
    pause: Duration,
    last: Option<Reading>,
}

#[derive(Debug)]
struct Reading {
    counts: Vec<ProbeCounts>,
    lost: u128,
    at: Instant,
}

impl ProbeReader {
    pub fn every(pause: Duration) -> Self {
        Self { pause, last: None }
    }

    /// The counts at a moment. They are read if that `must` be, after the pause, and if more was `lost` than before: why, is
    /// found by what was skipped.
    pub fn counts(
        &mut self,
        lost: u128,
        must: bool,
        now: Instant,
        read: impl FnOnce() -> Vec<ProbeCounts>,
    ) -> Vec<ProbeCounts> {
        let is_recent = |last: &&Reading| last.lost == lost && now.saturating_duration_since(last.at) < self.pause;
        if let Some(last) = self.last.as_ref().filter(is_recent).filter(|_| !must) {
            return last.counts.clone();
        }
        let counts = read();
        self.last = Some(Reading {
            counts: counts.clone(),
            lost,
            at: now,
        });
        counts
    }
}

/// What programs have found missing so far.
pub fn lost(snapshot: &Snapshot) -> u128 {
    let ops = snapshot.ops.iter();
    let ops = ops.flat_map(|op| op.lost.into_iter().chain([op.unmatched_ends]));
    let families = snapshot.stack.iter().flat_map(|stack| &stack.families);
    let families = families.flat_map(|family| family.unbalanced.map(u128::from));
    ops.chain(families).sum()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::snapshot::{FamilyCounters, OpCounters, StackCounters};

    #[test]
    fn probes_are_looked_at_now_and_then_after_a_loss_and_at_the_end() {
        let mut reader = ProbeReader::every(Duration::from_secs(5));
        let begin = Instant::now();
        // Each reading finds more.
        let mut readings = 0;
        let mut at = |second: u64, lost, must| {
            let read = || {
                readings += 1;
                vec![ProbeCounts {
                    skipped: Some(readings),
                    ..ProbeCounts::default()
                }]
            };
            // A second is never exactly as long as that.
            let now = begin + Duration::from_millis(second * 1_001);
            reader.counts(lost, must, now, read)[0].skipped
        };
        let seconds: Vec<_> = (0..11).map(|second| at(second, 0, false)).collect();
        assert_eq!(seconds, [1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 3].map(Some));
        assert_eq!(
            [at(11, 7, false), at(12, 7, false), at(12, 7, true)],
            [4, 4, 5].map(Some)
        );
        let mut always = ProbeReader::default();
        let read = |skipped| {
            vec![ProbeCounts {
                skipped,
                ..ProbeCounts::default()
            }]
        };
        let readings = [Some(1), Some(2)].map(|skipped| always.counts(0, false, begin, || read(skipped))[0].skipped);
        assert_eq!(readings, [Some(1), Some(2)]);
    }

    #[test]
    fn every_loss_counts() {
        let none = Snapshot {
            ops: vec![OpCounters::nothing(); 2],
            stack: Some(StackCounters {
                families: vec![Arc::default(); 2],
                ..StackCounters::default()
            }),
            ..Snapshot::empty(0)
        };
        let (mut lost_one, mut unmatched, mut unbalanced) = (none.clone(), none.clone(), none.clone());
        Arc::make_mut(&mut lost_one.ops[1]).lost[0] = 1;
        Arc::make_mut(&mut unmatched.ops[0]).unmatched_ends = 2;
        let mut family = FamilyCounters::default();
        family.unbalanced[1] = 3;
        if let Some(stack) = &mut unbalanced.stack {
            stack.families[1] = family.into();
        }
        assert_eq!(
            [none, lost_one, unmatched, unbalanced].map(|snapshot| lost(&snapshot)),
            [0, 1, 2, 3]
        );
    }
}
