//! Sets of byte ranges.

use std::collections::BTreeMap;

/// Ranges of a short list, at most: inserting into it moves what follows.
const MOST_FEW: usize = 512;

/// Ranges that neither overlap nor touch, in ascending order. There may be millions of sets, most of them of few ranges.
#[derive(Debug, Clone, Default)]
pub struct Ranges(All);

#[derive(Debug, Clone)]
enum All {
    /// Begins and ends below 4 GiB.
    Few(Vec<(u32, u32)>),
    /// Ends by begins.
    Many(BTreeMap<u64, u64>),
}

impl Default for All {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

impl PartialEq for Ranges {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Ranges {}

impl Ranges {
    /// Adds `[from, to)`.
    pub fn add(&mut self, from: u64, to: u64) {
        if from >= to {
            return;
        }
        match (&mut self.0, u32::try_from(from), u32::try_from(to)) {
            (All::Few(few), Ok(from), Ok(to)) if few.len() < MOST_FEW => add_to_few(few, from, to),
            (All::Many(many), ..) => add_to_many(many, from, to),
            (All::Few(_), ..) => {
                self.0 = All::Many(self.iter().collect());
                self.add(from, to);
            }
        }
    }

    /// The parts of `[from, to)` that are in none of them.
    #[must_use]
    pub fn missing(&self, from: u64, to: u64) -> Vec<(u64, u64)> {
        match &self.0 {
            All::Few(few) => {
                let first = few.partition_point(|(_, end)| u64::from(*end) <= from);
                gaps(from, to, few[first..].iter().map(wide))
            }
            All::Many(many) => {
                let before = many.range(..from).next_back();
                let ranges = before.into_iter().chain(many.range(from..));
                gaps(from, to, ranges.map(|(begin, end)| (*begin, *end)))
            }
        }
    }

    /// Removes what is at `end` and after it.
    pub fn cut(&mut self, end: u64) {
        let kept = self.iter().map(|(from, to)| (from, to.min(end)));
        let kept = kept.filter(|(from, to)| from < to);
        self.0 = match &self.0 {
            All::Few(few) if few.last().is_none_or(|(_, last)| u64::from(*last) <= end) => return,
            // They are no larger than before.
            All::Few(_) => All::Few(kept.map(|(from, to)| (from as u32, to as u32)).collect()),
            All::Many(_) => All::Many(kept.collect()),
        };
    }

    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let (few, many) = match &self.0 {
            All::Few(few) => (few.as_slice(), None),
            All::Many(many) => (&[][..], Some(many)),
        };
        let many = many.into_iter().flatten().map(|(from, to)| (*from, *to));
        few.iter().map(wide).chain(many)
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// Bytes of all of them.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.iter()
            .fold(0, |sum: u64, (from, to)| sum.saturating_add(to - from))
    }
}

fn wide((from, to): &(u32, u32)) -> (u64, u64) {
    ((*from).into(), (*to).into())
}

fn add_to_few(few: &mut Vec<(u32, u32)>, from: u32, to: u32) {
    // Those that overlap or touch it.
    let first = few.partition_point(|(_, end)| *end < from);
    let after = few.partition_point(|(begin, _)| *begin <= to);
    if first < after {
        few[first] = (from.min(few[first].0), to.max(few[after - 1].1));
        few.drain(first + 1..after);
        return;
    }
    if few.len() == few.capacity() {
        few.reserve_exact(few.len() / 4 + 1);
    }
    few.insert(first, (from, to));
}

fn add_to_many(many: &mut BTreeMap<u64, u64>, mut from: u64, mut to: u64) {
    if let Some((&before, &end)) = many.range(..=from).next_back()
        && end >= from
    {
        if end >= to {
            return;
        }
        from = before;
    }
    while let Some((&begin, &end)) = many.range(from..=to).next() {
        to = to.max(end);
        many.remove(&begin);
    }
    many.insert(from, to);
}

/// The parts of `[from, to)` between these ranges; none before the first of them overlaps it.
fn gaps(from: u64, to: u64, ranges: impl Iterator<Item = (u64, u64)>) -> Vec<(u64, u64)> {
    let mut at = from;
    let mut parts = Vec::new();
    for (begin, end) in ranges.take_while(|(begin, _)| *begin < to) {
        if at < begin {
            parts.push((at, begin));
        }
        at = at.max(end);
    }
    if at < to {
        parts.push((at, to));
    }
    parts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fuzz;

    #[test]
    fn ranges_that_touch_become_one() {
        let mut ranges = Ranges::default();
        for (from, to) in [(10, 20), (30, 40), (20, 30), (5, 5), (50, 60)] {
            ranges.add(from, to);
        }
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [(10, 40), (50, 60)]);
        assert_eq!(ranges.bytes(), 40);
        assert_eq!(ranges.missing(0, 70), [(0, 10), (40, 50), (60, 70)]);
        assert_eq!(ranges.missing(15, 35), []);
        assert_eq!(ranges.missing(45, 45), []);
    }

    #[test]
    fn a_set_may_have_many_ranges_and_large_ones() {
        let mut ranges = Ranges::default();
        let count = 2 * MOST_FEW as u64;
        (0..count).for_each(|at| ranges.add(at * 10, at * 10 + 5));
        assert!(matches!(ranges.0, All::Many(_)));
        assert_eq!((ranges.iter().count() as u64, ranges.bytes()), (count, count * 5));
        let mut large = Ranges::default();
        large.add(10, 20);
        large.add(1 << 40, 1 << 41);
        assert_eq!(large.iter().collect::<Vec<_>>(), [(10, 20), (1 << 40, 1 << 41)]);
        assert_eq!(large.missing(15, 1 << 40), [(20, 1 << 40)]);
    }

    proptest! {
        #![proptest_config(fuzz::config())]

        #[test]
        fn each_byte_is_in_a_range_or_missing(
            all in proptest::collection::vec((0..60_u64, 0..20_u64), 0..12), many in any::<bool>(), end in 0..90_u64,
        ) {
            let mut ranges = Ranges::default();
            if many {
                ranges.0 = All::Many(BTreeMap::new());
            }
            let mut bytes = [false; 80];
            for (from, length) in all {
                ranges.add(from, from + length);
                bytes[from as usize..(from + length) as usize].fill(true);
            }
            let mut seen = [false; 80];
            for (from, to) in ranges.iter() {
                seen[from as usize..to as usize].fill(true);
            }
            prop_assert_eq!(seen, bytes);
            let mut missing = [true; 80];
            for (from, to) in ranges.missing(0, 80) {
                missing[from as usize..to as usize].fill(false);
            }
            prop_assert_eq!(missing, bytes);
            let before = ranges.bytes();
            let beyond = bytes.iter().skip(end as usize).filter(|is_in| **is_in).count();
            ranges.cut(end);
            prop_assert_eq!(ranges.bytes(), before - beyond as u64);
            prop_assert!(ranges.iter().all(|(from, to)| from < to && to <= end));
        }
    }
}
