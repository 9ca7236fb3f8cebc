//! Numbers by step of a histogram, most of which are 0: in a second, a process has calls of few lengths.

use std::ops::Range;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::histogram::STEPS;

/// The numbers that are not 0, each with its step, in ascending order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Steps(Vec<(u16, u64)>);

impl From<&[u64]> for Steps {
    /// From the number of each step, step 0 first. Missing steps are 0; numbers past the last step are added to it.
    fn from(all: &[u64]) -> Self {
        let (steps, beyond) = all.split_at(all.len().min(STEPS));
        let mut steps = Self::default().increase(0, steps);
        for n in beyond.iter().filter(|n| **n > 0) {
            steps.add(STEPS - 1, *n);
        }
        steps
    }
}

impl Steps {
    /// The numbers that are not 0, by step.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (usize, u64)> + '_ {
        self.0.iter().map(|(step, n)| (usize::from(*step), *n))
    }

    /// The steps from the first number that is not 0 to the last one.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        let of = |step: Option<&(u16, u64)>| step.map(|(step, _)| usize::from(*step));
        of(self.0.first()).unwrap_or(0)..of(self.0.last()).map_or(0, |last| last + 1)
    }

    /// Whether all are 0.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Their sum.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.0.iter().fold(0, |sum, (_, n)| sum.saturating_add(*n))
    }

    /// Each number as another one. `of` makes 0 of 0.
    #[must_use]
    pub fn each(&self, of: impl Fn(u64) -> u64) -> Self {
        let numbers = self.0.iter().map(|(step, n)| (*step, of(*n)));
        Self(numbers.filter(|(_, n)| *n > 0).collect())
    }

    /// Adds `n`, which is not 0, to a step; larger steps are treated as the last one.
    pub fn add(&mut self, step: usize, n: u64) {
        let step = step.min(STEPS - 1) as u16;
        match self.0.binary_search_by_key(&step, |(step, _)| *step) {
            Ok(index) => self.0[index].1 = self.0[index].1.saturating_add(n),
            Err(index) => self.0.insert(index, (step, n)),
        }
    }

    /// Adds others, of which there are few.
    pub fn add_all(&mut self, others: &Self) {
        others.iter().for_each(|(step, n)| self.add(step, n));
    }

    /// What `numbers`, those of the steps from `first` on, have more.
    #[must_use]
    pub fn increase(&self, first: usize, numbers: &[u64]) -> Self {
        // With all steps, so that what most of them have in common is passed over quickly.
        let mut all = [0; STEPS];
        let from = self.0.partition_point(|(step, _)| usize::from(*step) < first);
        let known = self.0[from..].iter().map(|(step, n)| (usize::from(*step), *n));
        known
            .take_while(|(step, _)| *step < first + numbers.len())
            .for_each(|(step, n)| all[step] = n);
        let pairs = numbers.iter().zip(all.iter().skip(first)).zip(first as u16..);
        let more = pairs.filter(|((now, before), _)| now != before);
        let mut steps = Vec::with_capacity(more.clone().count());
        steps.extend(more.map(|((now, before), step)| (step, now.wrapping_sub(*before))));
        Self(steps)
    }

    /// Combines number by number. `how` makes 0 of twice 0.
    #[must_use]
    pub fn combined(&self, other: &Self, how: impl Fn(u64, u64) -> u64) -> Self {
        // Without room for all: the difference of two readings has few of them.
        let mut all = Vec::new();
        let mut theirs = other.0.iter().peekable();
        let mut push = |step, n| {
            if n > 0 {
                all.push((step, n));
            }
        };
        for (step, n) in &self.0 {
            while let Some((before, other)) = theirs.next_if(|(known, _)| known < step) {
                push(*before, how(0, *other));
            }
            let other = theirs.next_if(|(known, _)| known == step).map_or(0, |(_, n)| *n);
            push(*step, how(*n, other));
        }
        for (step, n) in theirs {
            push(*step, how(0, *n));
        }
        Self(all)
    }
}

/// As the length of the list without the zeros at its end, and the step and value of each number that is not 0.
impl Serialize for Steps {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let length = self.0.last().map_or(0, |(last, _)| last + 1);
        (length, &self.0).serialize(to)
    }
}

impl<'de> Deserialize<'de> for Steps {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let (_, mut numbers) = <(u16, Vec<(u16, u64)>)>::deserialize(from)?;
        let is_in_order = numbers.is_sorted_by(|(a, _), (b, _)| a < b);
        if !is_in_order || numbers.last().is_some_and(|(last, _)| usize::from(*last) >= STEPS) {
            return Err(D::Error::custom("the steps of a histogram are not in order"));
        }
        numbers.retain(|(_, n)| *n > 0);
        Ok(Self(numbers))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fuzz;

    fn some() -> impl Strategy<Value = Vec<u64>> {
        proptest::collection::vec(prop_oneof![3 => Just(0), 1 => 1_u64..4], 0..STEPS)
    }

    proptest! {
        #![proptest_config(fuzz::config())]

        #[test]
        fn they_are_as_a_list_with_all_steps(mut a in some(), mut b in some(), step in 0..STEPS) {
            a.resize(STEPS, 0);
            b.resize(STEPS, 0);
            let of = |list: &[u64]| Steps::from(list);
            for how in [u64::wrapping_add, u64::wrapping_sub, u64::saturating_sub, u64::max] {
                let both: Vec<u64> = a.iter().zip(&b).map(|(a, b)| how(*a, *b)).collect();
                prop_assert_eq!(of(&a).combined(&of(&b), how), of(&both));
            }
            let mut both = of(&a);
            both.add_all(&of(&b));
            prop_assert_eq!(both, of(&a).combined(&of(&b), u64::saturating_add));
            prop_assert_eq!(of(&a).sum(), a.iter().sum::<u64>());
            prop_assert_eq!(of(&a).is_empty(), a.iter().all(|n| *n == 0));
            prop_assert_eq!(of(&a).each(|n| n / 2), of(&a.iter().map(|n| n / 2).collect::<Vec<_>>()));
            let mut more = of(&a);
            more.add(step, 7);
            let mut known = a.clone();
            known[step] += 7;
            prop_assert_eq!(&more, &of(&known));
            let end = step + (STEPS - step) / 2;
            let grown: Vec<u64> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
            let increase = [&vec![0; step], &b[step..end]].concat();
            prop_assert_eq!(of(&a).increase(step, &grown[step..end]), of(&increase));
            let bytes = postcard::to_stdvec(&more).unwrap();
            prop_assert_eq!(postcard::from_bytes::<Steps>(&bytes).unwrap(), more);
        }
    }

    #[test]
    fn what_is_beyond_the_last_step_is_in_it() {
        let mut long = vec![0; STEPS + 3];
        (long[STEPS - 1], long[STEPS], long[STEPS + 2]) = (1, 5, u64::MAX);
        let steps = Steps::from(&long[..]);
        assert_eq!(steps.iter().collect::<Vec<_>>(), [(STEPS - 1, u64::MAX)]);
    }

    #[test]
    fn they_are_written_as_other_lists_that_are_mostly_0() {
        #[derive(Serialize)]
        struct List(#[serde(with = "crate::model::sparse")] Vec<u64>);

        let list = vec![0, 0, 7, 0, 300];
        let steps = Steps::from(&list[..]);
        let text = serde_json::to_string(&steps).unwrap();
        assert_eq!(text, "[5,[[2,7],[4,300]]]");
        assert_eq!(postcard::to_stdvec(&steps), postcard::to_stdvec(&List(list)));
        assert_eq!(serde_json::from_str::<Steps>(&text).unwrap(), steps);
        // What a damaged file may have.
        for damaged in [
            "[5,[[4,300],[2,7]]]",
            "[5,[[2,7],[2,7]]]",
            "[400,[[305,1]]]",
            "[5,[[2]]]",
            "[5]",
        ] {
            assert!(serde_json::from_str::<Steps>(damaged).is_err(), "{damaged}");
        }
        let zeros: Steps = serde_json::from_str("[5,[[2,0]]]").unwrap();
        assert!(zeros.is_empty());
    }
}
