//! What changed between two snapshots: of most groups, and of most families of the others, nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{FamilyCounters, GroupsCounters, OpCounters, OriginCounters, Snapshot, StackCounters, combined};
use crate::model::report::group::Who;

/// A snapshot, without the ops and groups that are as in the one before it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// All is as it is now, because something is gone.
    is_whole: bool,
    /// All but the ops and the groups.
    rest: Snapshot,
    /// Those that changed, as they are now.
    ops: Vec<(usize, OpCounters)>,
    groups: Option<GroupsDifference>,
}

/// The groups that changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct GroupsDifference {
    /// As they are now.
    ops: Vec<((u32, u32), OpCounters)>,
    stacks: StackIncreases,
    /// New names.
    who: Vec<(u32, Who)>,
}

/// What the whole stack has counted for groups, without what has counted nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackIncreases {
    /// Groups that were not there before, whether they have counted anything or not.
    pub new: Vec<u32>,
    /// The extremes are those of the later snapshot.
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

impl Difference {
    /// `stacks` is what the groups have counted between the snapshots.
    #[must_use]
    pub fn between(before: &Snapshot, after: &Snapshot, stacks: StackIncreases) -> Self {
        let nothing = Snapshot::default();
        let groups = before.groups.as_ref().zip(after.groups.as_ref());
        let is_whole =
            before.ops.len() > after.ops.len() || groups.is_some_and(|(before, after)| before.is_beyond(after));
        let (before, stacks) = match is_whole {
            true => (&nothing, StackIncreases::between(&nothing, after)),
            false => (before, stacks),
        };
        let ops = after.ops.iter().enumerate();
        let ops = ops.filter(|(index, op)| op.extremes.is_some() || before.ops.get(*index) != Some(op));
        let none = GroupsCounters::default();
        let groups = after.groups.as_ref();
        let groups =
            groups.map(|after| GroupsDifference::between(before.groups.as_ref().unwrap_or(&none), after, stacks));
        Self {
            is_whole,
            rest: after.without_ops_and_groups(),
            ops: ops.map(|(index, op)| (index, op.clone())).collect(),
            groups,
        }
    }

    /// The later snapshot.
    #[must_use]
    pub fn after(self, mut before: Snapshot) -> Snapshot {
        if self.is_whole {
            before = Snapshot::default();
        }
        let mut ops = before.ops;
        // As for groups.
        ops.iter_mut().for_each(|op| op.extremes = None);
        for (index, after) in self.ops {
            match ops.get_mut(index) {
                Some(op) => *op = after,
                // They were added in their order.
                None => ops.push(after),
            }
        }
        let groups = before.groups.unwrap_or_default();
        Snapshot {
            ops,
            groups: self.groups.map(|difference| difference.after(groups)),
            ..self.rest
        }
    }
}

impl GroupsCounters {
    /// Whether it has a group or a name that `after` lacks.
    fn is_beyond(&self, after: &Self) -> bool {
        let has_names =
            || Arc::ptr_eq(&self.who, &after.who) || self.who.keys().all(|group| after.who.contains_key(group));
        !self.ops.keys().all(|key| after.ops.contains_key(key))
            || !self.stacks.keys().all(|group| after.stacks.contains_key(group))
            || !has_names()
    }
}

impl GroupsDifference {
    fn between(before: &GroupsCounters, after: &GroupsCounters, stacks: StackIncreases) -> Self {
        let has_same_names = Arc::ptr_eq(&before.who, &after.who);
        let ops = after.ops.iter();
        let ops = ops.filter(|(key, op)| op.extremes.is_some() || before.ops.get(key) != Some(op));
        let who = after.who.iter().filter(|_| !has_same_names);
        let who = who.filter(|(group, who)| before.who.get(group) != Some(who));
        Self {
            ops: ops.map(|(key, op)| (*key, op.clone())).collect(),
            stacks,
            who: who.map(|(group, who)| (*group, who.clone())).collect(),
        }
    }

    fn after(self, mut groups: GroupsCounters) -> GroupsCounters {
        // Extremes are those of one interval: what did not change has none.
        groups.ops.values_mut().for_each(|op| op.extremes = None);
        groups.stacks.values_mut().for_each(StackCounters::forget_extremes);
        groups.ops.extend(self.ops);
        if !self.who.is_empty() {
            Arc::make_mut(&mut groups.who).extend(self.who);
        }
        self.stacks.add_to(&mut groups.stacks);
        groups
    }
}

impl StackIncreases {
    /// Of all groups.
    #[must_use]
    pub fn between(before: &Snapshot, after: &Snapshot) -> Self {
        let none = StackCounters::default();
        let mut all = Self::default();
        for (group, stack) in after.groups.iter().flat_map(|after| &after.stacks) {
            let known = before.groups.as_ref().and_then(|before| before.stacks.get(group));
            if known.is_none() {
                all.new.push(*group);
            }
            all.add(*group, known.unwrap_or(&none), stack);
        }
        all
    }

    fn add(&mut self, group: u32, before: &StackCounters, after: &StackCounters) {
        let none = FamilyCounters::default();
        for (index, family) in after.families.iter().enumerate() {
            let known = before.families.get(index);
            // What is shared is not even looked at: of many groups, that alone would take long.
            let is_same = |known: &Arc<FamilyCounters>| {
                Arc::ptr_eq(known, family) || (family.extremes.is_none() && known.counts_as(family))
            };
            if known.is_some_and(is_same) {
                continue;
            }
            let counted = FamilyCounters {
                extremes: family.extremes,
                ..family.combined(known.map_or(&none, |known| known), u64::wrapping_sub)
            };
            self.families.push(FamilyIncrease { group, index, counted });
        }
        if Arc::ptr_eq(&before.origins, &after.origins) {
            return;
        }
        for (index, origin) in after.origins.iter().enumerate() {
            let known = before.origins.get(index);
            if known != Some(origin) {
                let counted = combined(origin, known.unwrap_or(&[0; 4]), u64::wrapping_sub);
                self.origins.push(OriginIncrease { group, index, counted });
            }
        }
    }

    fn add_to(self, stacks: &mut BTreeMap<u32, StackCounters>) {
        for group in self.new {
            stacks.entry(group).or_default();
        }
        for FamilyIncrease { group, index, counted } in self.families {
            let families = &mut stacks.entry(group).or_default().families;
            match families.get_mut(index) {
                Some(family) => {
                    *family = Arc::new(FamilyCounters {
                        extremes: counted.extremes,
                        ..family.combined(&counted, u64::wrapping_add)
                    });
                }
                // They were added in their order.
                None => families.push(Arc::new(counted)),
            }
        }
        for OriginIncrease { group, index, counted } in self.origins {
            let origins = Arc::make_mut(&mut stacks.entry(group).or_default().origins);
            match origins.get_mut(index) {
                Some(origin) => *origin = combined(origin, &counted, u64::wrapping_add),
                None => origins.push(counted),
            }
        }
    }
}

#[cfg(test)]
pub mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fuzz;
    use crate::model::snapshot::ProbeCounts;

    fn between(before: &Snapshot, after: &Snapshot) -> Difference {
        Difference::between(before, after, StackIncreases::between(before, after))
    }

    /// Without groups.
    fn base(at_ns: u64) -> Snapshot {
        Snapshot {
            ops: vec![OpCounters::default()],
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

    /// With these calls of each group's first family, and of its last one.
    pub fn with_groups(at_ns: u64, calls: &[(u32, u64, u64)]) -> Snapshot {
        let name = |group: &u32| Who::Process {
            pid: u64::from(*group),
            comm: "fio".to_owned(),
        };
        let stack = |first: u64, last: u64| StackCounters {
            families: vec![
                Arc::new(family(first, None)),
                Arc::default(),
                Arc::new(family(last, Some(at_ns))),
            ],
            origins: Arc::new(vec![[first, first * 4096, 0, 0]; 2]),
        };
        let stacks = calls.iter().map(|(group, first, last)| (*group, stack(*first, *last)));
        Snapshot {
            groups: Some(GroupsCounters {
                stacks: stacks.collect(),
                who: Arc::new(calls.iter().map(|(group, ..)| (*group, name(group))).collect()),
                ops: BTreeMap::new(),
            }),
            ..base(at_ns)
        }
    }

    #[test]
    fn a_group_that_did_not_change_is_not_in_it_and_comes_back() {
        let mut before = with_groups(1, &[(2, 5, 0), (3, 7, 1), (4, 0, 0)]);
        let mut after = with_groups(2, &[(2, 5, 0), (3, 7, 4), (4, 0, 0), (5, 0, 0)]);
        // No call has ended in it.
        for group in [2, 4, 5] {
            let stacks = &mut after.groups.as_mut().unwrap().stacks;
            stacks.get_mut(&group).unwrap().forget_extremes();
        }
        let who = &mut after.groups.as_mut().unwrap().who;
        Arc::make_mut(who).insert(4, Who::Unknown(crate::model::ids::By::Process));
        let difference = between(&before, &after);
        let groups = difference.groups.as_ref().unwrap();
        let changed = groups.stacks.families.iter();
        let changed: Vec<_> = changed.map(|family| (family.group, family.index)).collect();
        assert_eq!(changed, [(3, 2), (5, 0), (5, 1), (5, 2)]);
        assert_eq!(groups.stacks.families[0].counted.reached[0], 3);
        assert_eq!(groups.stacks.new, [5]);
        assert_eq!(groups.who.iter().map(|(group, _)| *group).collect::<Vec<_>>(), [4, 5]);
        assert_eq!(difference.after(before.clone()), after);
        assert!(between(&base(2), &base(3)).ops.is_empty());
        // Something is gone.
        before
            .groups
            .as_mut()
            .unwrap()
            .stacks
            .insert(9, StackCounters::default());
        let mut other = base(3);
        other.ops.clear();
        for (before, after) in [
            (&before, &after),
            (&before, &base(3)),
            (&base(2), &after),
            (&base(2), &other),
            (&other, &base(2)),
        ] {
            assert_eq!(&between(before, after).after(before.clone()), after);
        }
    }

    #[test]
    fn only_what_was_counted_in_part_is_held_back() {
        let family = |of: &Snapshot| Arc::clone(&of.groups.as_ref().unwrap().stacks[&2].families[2]);
        let first = with_groups(1, &[(2, 5, 3)]);
        // As it is read in the next intervals, in which no call ends.
        let mut read = first.clone();
        let stacks = &mut read.groups.as_mut().unwrap().stacks;
        stacks.values_mut().for_each(StackCounters::forget_extremes);
        let [mut second, mut third] = [read.clone(), read.clone()];
        second.hold_back(&first);
        third.hold_back(&second);
        for next in [second, third] {
            assert!(Arc::ptr_eq(&family(&next), &family(&read)));
        }
        let mut in_part = read.clone();
        let stacks = &mut in_part.groups.as_mut().unwrap().stacks;
        let of_call = stacks.get_mut(&2).and_then(|stack| stack.families.get_mut(2));
        Arc::make_mut(of_call.unwrap()).rows[3] += 7;
        in_part.hold_back(&read);
        assert_eq!(family(&in_part), family(&read));
    }

    /// Some more calls in each interval.
    fn run() -> impl Strategy<Value = Vec<Snapshot>> {
        let interval = proptest::collection::vec((2_u32..9, 0_u64..3, 0_u64..1 << 40, any::<bool>()), 0..6);
        proptest::collection::vec(interval, 1..6).prop_map(|intervals| {
            let mut all: BTreeMap<u32, StackCounters> = BTreeMap::new();
            let mut ops: BTreeMap<(u32, u32), OpCounters> = BTreeMap::new();
            let mut who = BTreeMap::new();
            let mut whole = vec![OpCounters::default(); 4];
            let intervals = intervals.into_iter().zip(1..);
            let snapshots = intervals.map(|(interval, at_ns)| {
                all.values_mut().for_each(StackCounters::forget_extremes);
                ops.values_mut().for_each(|op| op.extremes = None);
                whole.iter_mut().for_each(|op| op.extremes = None);
                for (group, index, ns, is_op) in interval {
                    let whole = &mut whole[index as usize];
                    whole.total_ns += u128::from(ns);
                    whole.extremes = is_op.then_some((ns, ns));
                    let op = ops.entry((group, index as u32)).or_default();
                    let stack = all.entry(group).or_insert_with(|| StackCounters {
                        families: (0..3).map(|_| Arc::default()).collect(),
                        origins: Arc::new(vec![[0; 4]; 2]),
                    });
                    who.insert(group, Who::Comm { comm: ns.to_string() });
                    if is_op {
                        op.total_ns += u128::from(ns);
                        op.extremes = Some((ns, ns));
                        Arc::make_mut(&mut stack.origins)[index as usize % 2][3] += ns;
                        continue;
                    }
                    let family = Arc::make_mut(&mut stack.families[index as usize]);
                    family.rows[7] = family.rows[7].wrapping_add(ns << 23);
                    family.reached[0] += 1;
                    family.extremes = Some((ns, ns));
                    family.steps.add(ns as usize % 40, 1);
                }
                let groups = GroupsCounters {
                    ops: ops.clone(),
                    stacks: all.clone(),
                    who: Arc::new(who.clone()),
                };
                Snapshot {
                    ops: whole.clone(),
                    groups: Some(groups),
                    ..base(at_ns)
                }
            });
            snapshots.collect()
        })
    }

    proptest! {
        #![proptest_config(fuzz::config())]

        #[test]
        fn each_snapshot_comes_back_from_the_one_before(run in run()) {
            for pair in run.windows(2) {
                let difference = between(&pair[0], &pair[1]);
                let bytes = postcard::to_stdvec(&difference).unwrap();
                let read: Difference = postcard::from_bytes(&bytes).unwrap();
                prop_assert_eq!(&read.after(pair[0].clone()), &pair[1]);
            }
        }
    }
}
