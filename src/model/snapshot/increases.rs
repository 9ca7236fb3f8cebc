//! What the whole stack has counted for groups in an interval.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{FamilyCounters, OriginCounters, StackCounters, StackTotals, combined};

/// What the whole stack has counted for groups, without what has counted nothing; in ascending order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackIncreases {
    /// Groups that were not there before, whether they have counted anything or not.
    pub new: Vec<u32>,
    pub families: Vec<FamilyIncrease>,
    pub origins: Vec<OriginIncrease>,
}

/// What a group has counted of a family.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FamilyIncrease {
    pub group: u32,
    pub index: usize,
    #[serde(with = "few")]
    pub counted: FamilyCounters,
}

/// What a group has counted of an origin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OriginIncrease {
    pub group: u32,
    pub index: usize,
    pub counted: OriginCounters,
}

/// Serialises the counters of a family by those that are not 0: in a second, a process has calls of few kinds.
mod few {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::model::snapshot::FamilyCounters;
    use crate::model::steps::Steps;

    /// As a bit for each number, those whose bit is set, steps and extremes.
    pub fn serialize<S: Serializer>(family: &FamilyCounters, to: S) -> Result<S::Ok, S::Error> {
        let mut used = ([0; FamilyCounters::NUMBERS], 0);
        let mut bits = 0_u64;
        for (bit, n) in family.numbers().into_iter().enumerate().filter(|(_, n)| *n > 0) {
            bits |= 1 << bit;
            used.0[used.1] = n;
            used.1 += 1;
        }
        (bits, &used.0[..used.1], &family.steps, family.extremes).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<FamilyCounters, D::Error> {
        let (bits, used, steps, extremes) = <(u64, Vec<u64>, Steps, Option<(u64, u64)>)>::deserialize(from)?;
        let mut numbers = [0; FamilyCounters::NUMBERS];
        let set = numbers.iter_mut().enumerate().filter(|(bit, _)| bits >> bit & 1 == 1);
        set.zip(used).for_each(|((_, number), n)| *number = n);
        Ok(FamilyCounters {
            steps,
            extremes,
            ..FamilyCounters::of_numbers(&numbers)
        })
    }
}

impl StackIncreases {
    /// What totals have more than those of an earlier moment.
    #[must_use]
    pub fn since(before: &StackTotals, after: &StackTotals) -> Self {
        let none = StackCounters::default();
        let mut all = Self::default();
        for (group, stack) in after {
            let known = before.get(group);
            if known.is_none() {
                all.new.push(*group);
            }
            all.add_difference(*group, known.unwrap_or(&none), stack);
        }
        all
    }

    /// Adds those of the interval that follows.
    pub fn add(&mut self, later: Self) {
        self.new.extend(later.new);
        self.new.sort_unstable();
        add_sorted(
            (&mut self.families, later.families),
            |of| (of.group, of.index),
            |sum, more| sum.counted = sum.counted.combined(&more.counted, u64::wrapping_add),
        );
        add_sorted(
            (&mut self.origins, later.origins),
            |of| (of.group, of.index),
            |sum, more| sum.counted = combined(&sum.counted, &more.counted, u64::wrapping_add),
        );
    }

    fn add_difference(&mut self, group: u32, before: &StackCounters, after: &StackCounters) {
        let none = Arc::default();
        for (index, family) in after.families.iter().enumerate() {
            let known = before.families.get(index).unwrap_or(&none);
            // What is shared is not even looked at: of many groups, that alone would take long.
            if Arc::ptr_eq(known, family) || (family.extremes.is_none() && known.counts_as(family)) {
                continue;
            }
            let counted = FamilyCounters {
                extremes: family.extremes,
                ..family.combined(known, u64::wrapping_sub)
            };
            self.families.push(FamilyIncrease { group, index, counted });
        }
        if Arc::ptr_eq(&before.origins, &after.origins) {
            return;
        }
        for (index, origin) in after.origins.iter().enumerate() {
            let known = before.origins.get(index).unwrap_or(&[0; 4]);
            if known != origin {
                let counted = combined(origin, known, u64::wrapping_sub);
                self.origins.push(OriginIncrease { group, index, counted });
            }
        }
    }

    /// Adds them to totals, whose extremes are those of this interval afterwards.
    pub fn add_to(&self, totals: &mut StackTotals) {
        totals.values_mut().for_each(StackCounters::forget_extremes);
        for group in &self.new {
            totals.entry(*group).or_insert_with(StackCounters::nothing);
        }
        for FamilyIncrease { group, index, counted } in &self.families {
            let families = &mut totals.entry(*group).or_insert_with(StackCounters::nothing).families;
            if let Some(family) = families.get_mut(*index) {
                *family = Arc::new(FamilyCounters {
                    extremes: counted.extremes,
                    ..family.combined(counted, u64::wrapping_add)
                });
            }
        }
        for OriginIncrease { group, index, counted } in &self.origins {
            let origins = &mut totals.entry(*group).or_insert_with(StackCounters::nothing).origins;
            if let Some(origin) = Arc::make_mut(origins).get_mut(*index) {
                *origin = combined(origin, counted, u64::wrapping_add);
            }
        }
    }
}

/// Adds what is later to what has the same key, or keeps it in the order of the keys.
fn add_sorted<T>((all, later): (&mut Vec<T>, Vec<T>), key: impl Fn(&T) -> (u32, usize), add: impl Fn(&mut T, &T)) {
    let known = all.len();
    for more in later {
        match all[..known].binary_search_by_key(&key(&more), &key) {
            Ok(at) => add(&mut all[at], &more),
            Err(_) => all.push(more),
        }
    }
    all.sort_by_key(key);
}

#[cfg(test)]
pub mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::fuzz;
    use crate::model::report::group::Who;
    use crate::model::snapshot::{GroupsCounters, OpCounters, ProbeCounts, Snapshot};

    /// Without groups.
    pub fn base<S: Default>(at_ns: u64) -> Snapshot<S> {
        Snapshot {
            ops: vec![OpCounters::nothing()],
            probes: vec![ProbeCounts::default()],
            own_ns: at_ns / 7,
            warnings: vec!["a warning".to_owned()],
            ..Snapshot::empty(at_ns)
        }
    }

    /// Counts of a family of as many calls; the last one took this long.
    fn family(calls: u64, longest: Option<u64>) -> FamilyCounters {
        let mut family = FamilyCounters {
            bytes: calls * 4096,
            steps: [0, 0, calls][..].into(),
            extremes: longest.map(|ns| (1, ns)),
            ..FamilyCounters::default()
        };
        (family.rows[3], family.reached[0]) = (calls * 900, calls);
        family
    }

    /// With these calls of each group's first family, and of its third one. If the third has calls, the last of them has just
    /// ended.
    pub fn with_groups(at_ns: u64, calls: &[(u32, u64, u64)]) -> Snapshot<StackTotals> {
        let name = |group: &u32| Who::Process {
            pid: u64::from(*group),
            comm: "fio".to_owned(),
        };
        let stack = |first: u64, third: u64| {
            let mut stack = StackCounters::nothing();
            stack.families[0] = Arc::new(family(first, None));
            stack.families[2] = Arc::new(family(third, (third > 0).then_some(at_ns)));
            Arc::make_mut(&mut stack.origins)[1] = [first, first * 4096, 0, 0];
            stack
        };
        let stacks = calls
            .iter()
            .map(|(group, first, third)| (*group, stack(*first, *third)));
        Snapshot {
            groups: Some(GroupsCounters {
                stacks: stacks.collect(),
                who: Arc::new(calls.iter().map(|(group, ..)| (*group, name(group))).collect()),
                ops: BTreeMap::new(),
            }),
            ..base(at_ns)
        }
    }

    /// The snapshots of a run with these totals.
    pub fn in_order(totals: &[Snapshot<StackTotals>]) -> Vec<Snapshot> {
        let stacks = |totals: &Snapshot<StackTotals>| totals.clone().take_totals();
        let mut before = totals.first().map(stacks).unwrap_or_default();
        let snapshot = |totals: &Snapshot<StackTotals>| {
            let after = stacks(totals);
            let before = std::mem::replace(&mut before, after.clone());
            totals.clone().since(&before, &after)
        };
        totals.iter().map(snapshot).collect()
    }

    #[test]
    fn what_has_counted_nothing_is_not_in_them() {
        let mut totals = [
            with_groups(1, &[(2, 5, 0), (3, 7, 1), (4, 0, 0)]),
            with_groups(2, &[(2, 5, 0), (3, 9, 4), (4, 0, 0), (5, 0, 0), (6, 0, 1)]),
        ]
        .map(|mut totals| totals.take_totals());
        let [before, after] = &mut totals;
        let increases = StackIncreases::since(before, after);
        assert_eq!(increases.new, [5, 6]);
        let families = increases.families.iter();
        let families = families.map(|of| (of.group, of.index, of.counted.calls(), of.counted.extremes));
        let expected = [(3, 0, 2, None), (3, 2, 3, Some((1, 2))), (6, 2, 1, Some((1, 2)))];
        assert_eq!(families.collect::<Vec<_>>(), expected);
        let origins = increases.origins.iter().map(|of| (of.group, of.index, of.counted));
        assert_eq!(origins.collect::<Vec<_>>(), [(3, 1, [2, 2 * 4096, 0, 0])]);
        increases.add_to(before);
        assert_eq!(before, after);
        assert_eq!(
            StackIncreases::since(before, after).families.len(),
            2,
            "those with extremes"
        );
        after.values_mut().for_each(StackCounters::forget_extremes);
        assert_eq!(StackIncreases::since(before, after), StackIncreases::default());
    }

    /// Calls of groups in intervals: group, family, time.
    fn intervals() -> impl Strategy<Value = Vec<Vec<(u32, usize, u64)>>> {
        let call = (2_u32..6, 0_usize..4, 0_u64..1 << 40);
        proptest::collection::vec(proptest::collection::vec(call, 0..8), 1..6)
    }

    proptest! {
        #![proptest_config(fuzz::config())]

        #[test]
        fn those_of_intervals_are_those_of_the_whole(intervals in intervals()) {
            let mut totals = vec![StackTotals::new()];
            for calls in intervals {
                let mut all = totals.last().cloned().unwrap_or_default();
                all.values_mut().for_each(StackCounters::forget_extremes);
                for (group, index, ns) in calls {
                    let stack = all.entry(group).or_insert_with(StackCounters::nothing);
                    let family = Arc::make_mut(&mut stack.families[index]);
                    family.reached[0] += 1;
                    family.rows[3] += ns;
                    family.steps.add(ns as usize % 40, 1);
                    family.extremes = crate::model::histogram::wider(family.extremes, Some((ns, ns)));
                    Arc::make_mut(&mut stack.origins)[index][2] += ns;
                }
                totals.push(all);
            }
            let mut sum = StackIncreases::default();
            for pair in totals.windows(2) {
                let increases = StackIncreases::since(&pair[0], &pair[1]);
                let bytes = postcard::to_stdvec(&increases).unwrap();
                prop_assert_eq!(postcard::from_bytes::<StackIncreases>(&bytes).unwrap(), increases.clone());
                let mut after = pair[0].clone();
                increases.add_to(&mut after);
                prop_assert_eq!(&after, &pair[1]);
                sum.add(increases);
            }
            // The extremes of all are the widest of the intervals, which totals do not have.
            let extremes: Vec<_> = sum.families.iter().map(|of| of.counted.extremes).collect();
            let mut whole = StackIncreases::since(&totals[0], &totals[totals.len() - 1]);
            prop_assert_eq!(whole.families.len(), extremes.len());
            for (of, extremes) in whole.families.iter_mut().zip(extremes) {
                prop_assert!(extremes.is_some());
                of.counted.extremes = extremes;
            }
            prop_assert_eq!(sum, whole);
        }
    }
}
