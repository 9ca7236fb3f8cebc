//! Sets of byte ranges.

use std::collections::BTreeMap;

/// Ranges that neither overlap nor touch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ranges {
    /// Ends by begins.
    all: BTreeMap<u64, u64>,
}

impl Ranges {
    /// Adds `[from, to)`.
    pub fn add(&mut self, mut from: u64, mut to: u64) {
        if from >= to {
            return;
        }
        if let Some((&before, &end)) = self.all.range(..=from).next_back()
            && end >= from
        {
            if end >= to {
                return;
            }
            from = before;
        }
        while let Some((&begin, &end)) = self.all.range(from..=to).next() {
            to = to.max(end);
            self.all.remove(&begin);
        }
        self.all.insert(from, to);
    }

    /// The parts of `[from, to)` that are in none of them.
    #[must_use]
    pub fn missing(&self, from: u64, to: u64) -> Vec<(u64, u64)> {
        let mut at = from;
        if let Some((_, &end)) = self.all.range(..=from).next_back() {
            at = at.max(end);
        }
        let mut parts = Vec::new();
        for (&begin, &end) in self.all.range(from..to.max(from)) {
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

    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.all.iter().map(|(from, to)| (*from, *to))
    }

    /// Bytes of all of them.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.iter()
            .fold(0, |sum: u64, (from, to)| sum.saturating_add(to - from))
    }
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

    proptest! {
        #![proptest_config(fuzz::config())]

        #[test]
        fn each_byte_is_in_a_range_or_missing(all in proptest::collection::vec((0..60_u64, 0..20_u64), 0..12)) {
            let mut ranges = Ranges::default();
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
        }
    }
}
