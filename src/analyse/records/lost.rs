//! Which records are missing, and when.

use std::collections::BTreeMap;

use crate::model::record::{Kind, Lost, Records};
use crate::model::report::records::Incomplete;

/// Intervals of one kind that are kept separately. Beyond it, the closest ones are joined.
const INTERVALS: usize = 16;

/// Lost records by kind, as intervals in the order of time.
#[derive(Debug, Default)]
pub struct LostRecords(BTreeMap<Kind, Vec<Incomplete>>);

impl LostRecords {
    /// Adds those among these records.
    pub fn take(&mut self, records: &Records) {
        records.lost.iter().for_each(|lost| self.add(lost));
    }

    /// Adds one loss.
    pub fn add(&mut self, lost: &Lost) {
        let intervals = self.0.entry(lost.kind).or_default();
        let new = Incomplete {
            kind: lost.kind,
            records: lost.records,
            from_ns: lost.from_ns.min(lost.to_ns),
            to_ns: lost.to_ns.max(lost.from_ns),
        };
        let at = intervals.partition_point(|known| known.from_ns <= new.from_ns);
        intervals.insert(at, new);
        join_overlapping(intervals);
        if intervals.len() > INTERVALS {
            join_closest(intervals);
        }
    }

    /// The intervals of these kinds.
    #[must_use]
    pub fn of(&self, kinds: &[Kind]) -> Vec<Incomplete> {
        let selected = self.0.iter().filter(|(kind, _)| kinds.contains(kind));
        selected.flat_map(|(_, intervals)| intervals.iter().copied()).collect()
    }
}

fn joined(a: Incomplete, b: Incomplete) -> Incomplete {
    Incomplete {
        records: a.records.saturating_add(b.records),
        from_ns: a.from_ns.min(b.from_ns),
        to_ns: a.to_ns.max(b.to_ns),
        ..a
    }
}

fn join_overlapping(intervals: &mut Vec<Incomplete>) {
    intervals.dedup_by(|next, before| {
        let is_one = next.from_ns <= before.to_ns;
        if is_one {
            *before = joined(*before, *next);
        }
        is_one
    });
}

fn join_closest(intervals: &mut Vec<Incomplete>) {
    let gaps = intervals.windows(2).map(|pair| pair[1].from_ns - pair[0].to_ns);
    let closest = gaps.enumerate().min_by_key(|(_, gap)| *gap);
    if let Some((at, _)) = closest {
        let next = intervals.remove(at + 1);
        intervals[at] = joined(intervals[at], next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(kind: Kind, from_ns: u64, to_ns: u64) -> Lost {
        Lost {
            cpu: 1,
            kind,
            records: 2,
            from_ns,
            to_ns,
        }
    }

    fn taken(lost: Vec<Lost>) -> LostRecords {
        let mut all = LostRecords::default();
        all.take(&Records {
            lost,
            ..Records::default()
        });
        all
    }

    #[test]
    fn overlapping_intervals_are_one_and_kinds_are_separate() {
        let all = taken(vec![
            lost(Kind::Call, 50, 60),
            lost(Kind::Call, 10, 20),
            lost(Kind::Sleep, 12, 13),
            lost(Kind::Call, 20, 30),
        ]);
        let of = |kind| -> Vec<(u64, u64, u64)> {
            let found = all.of(&[kind]);
            found.iter().map(|one| (one.records, one.from_ns, one.to_ns)).collect()
        };
        assert_eq!(of(Kind::Call), [(4, 10, 30), (2, 50, 60)]);
        assert_eq!(of(Kind::Sleep), [(2, 12, 13)]);
        assert!(of(Kind::Request).is_empty());
    }

    #[test]
    fn many_intervals_are_joined_and_no_loss_is_forgotten() {
        let many = (0..1_000).rev().map(|n| lost(Kind::Call, n * 10, n * 10 + 1 + n % 3));
        let all = taken(many.collect()).of(&[Kind::Call]);
        assert!(all.len() <= INTERVALS);
        assert_eq!(all.iter().map(|one| one.records).sum::<u64>(), 2_000);
        assert_eq!((all[0].from_ns, all[all.len() - 1].to_ns), (0, 9_991));
        let extremes = taken(vec![lost(Kind::Call, u64::MAX, 0), lost(Kind::Call, 5, 6)]).of(&[Kind::Call]);
        assert_eq!(extremes.len(), 1);
    }
}
