//! What changed between two snapshots: of most groups, and of most families of the others, nothing.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{GroupsCounters, OpCounters, Snapshot, StackIncreases};
use crate::model::report::group::Who;

/// A snapshot, without the ops and groups that are as in the one before it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// All is as it is now, because something is gone.
    is_whole: bool,
    /// All but the ops and the groups.
    rest: Snapshot,
    /// Those that changed, as they are now.
    ops: Vec<(usize, Arc<OpCounters>)>,
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

impl Difference {
    /// Between a snapshot and the next one. `stacks` was taken out of that one.
    #[must_use]
    pub fn between(before: &Snapshot, after: &Snapshot, stacks: StackIncreases) -> Self {
        let nothing = Snapshot::default();
        let groups = before.groups.as_ref().zip(after.groups.as_ref());
        let is_whole =
            before.ops.len() > after.ops.len() || groups.is_some_and(|(before, after)| before.is_beyond(after));
        let before = if is_whole { &nothing } else { before };
        let ops = after.ops.iter().enumerate();
        let ops = ops.filter(|(index, op)| op.extremes.is_some() || before.ops.get(*index) != Some(op));
        let none = GroupsCounters::default();
        let groups = after.groups.as_ref();
        let groups =
            groups.map(|after| GroupsDifference::between(before.groups.as_ref().unwrap_or(&none), after, stacks));
        Self {
            is_whole,
            rest: after.without_ops_and_groups(),
            ops: ops.map(|(index, op)| (index, Arc::clone(op))).collect(),
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
        !self.ops.keys().all(|key| after.ops.contains_key(key)) || !has_names()
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
        groups.ops.extend(self.ops);
        if !self.who.is_empty() {
            Arc::make_mut(&mut groups.who).extend(self.who);
        }
        groups.stacks = self.stacks;
        groups
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::fuzz;
    use crate::model::snapshot::increases::tests::{base, in_order, with_groups};
    use crate::model::snapshot::{StackCounters, StackTotals};

    fn between(before: &Snapshot, after: &Snapshot) -> Difference {
        let mut after = after.clone();
        let stacks = after.take_stacks();
        Difference::between(before, &after, stacks)
    }

    #[test]
    fn what_did_not_change_is_not_in_it_and_comes_back() {
        let totals = [
            with_groups(1, &[(2, 5, 0), (3, 7, 1)]),
            with_groups(2, &[(2, 5, 0), (3, 7, 4), (4, 0, 0)]),
        ];
        let [mut before, mut after]: [Snapshot; 2] = in_order(&totals).try_into().unwrap();
        let who = &mut after.groups.as_mut().unwrap().who;
        Arc::make_mut(who).insert(3, Who::Unknown(crate::model::ids::By::Process));
        let difference = between(&before, &after);
        let groups = difference.groups.as_ref().unwrap();
        assert_eq!(groups.who.iter().map(|(group, _)| *group).collect::<Vec<_>>(), [3, 4]);
        assert_eq!(difference.after(before.clone()), after);
        assert!(between(&base(2), &base(3)).ops.is_empty());
        // Something is gone.
        let who = &mut before.groups.as_mut().unwrap().who;
        Arc::make_mut(who).insert(9, Who::Unknown(crate::model::ids::By::Process));
        let mut other: Snapshot = base(3);
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

    /// Some more calls in each interval.
    fn run() -> impl Strategy<Value = Vec<Snapshot>> {
        let interval = proptest::collection::vec((2_u32..9, 0_u64..3, 0_u64..1 << 40, any::<bool>()), 0..6);
        proptest::collection::vec(interval, 1..6).prop_map(|intervals| {
            let mut all = StackTotals::new();
            let mut ops: BTreeMap<(u32, u32), OpCounters> = BTreeMap::new();
            let mut who = BTreeMap::new();
            let mut whole = vec![OpCounters::nothing(); 4];
            let intervals = intervals.into_iter().zip(1..);
            let snapshots = intervals.map(|(interval, at_ns)| {
                all.values_mut().for_each(StackCounters::forget_extremes);
                ops.values_mut().for_each(|op| op.extremes = None);
                whole.iter_mut().for_each(OpCounters::forget_extremes);
                for (group, index, ns, is_op) in interval {
                    let whole = Arc::make_mut(&mut whole[index as usize]);
                    whole.total_ns += u128::from(ns);
                    whole.extremes = is_op.then_some((ns, ns));
                    let op = ops.entry((group, index as u32)).or_default();
                    let stack = all.entry(group).or_insert_with(StackCounters::nothing);
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
            in_order(&snapshots.collect::<Vec<_>>())
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
