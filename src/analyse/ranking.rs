//! Selects the groups that are reported individually, and sums up the others.
//!
//! Every number of a report is the sum of the groups and the others, so the sums are computed here from the groups.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::model::histogram::{Histogram, wider};
use crate::model::ids::{By, Layer};
use crate::model::report::group::{GroupReport, GroupsReport, Numbers, OthersReport, Who};
use crate::model::report::stack::{FamilyReport, StackReport};
use crate::model::report::{LayerReport, OpReport};

/// The shortest and longest call, limited by the histogram and by the sum. CPUs that update a group at the same moment
/// may have overwritten each other's extremes; then the bound of the step that must contain the value is reported.
#[must_use]
pub fn in_steps(extremes: Option<(u64, u64)>, histogram: &Histogram, total_ns: u64) -> Option<(u64, u64)> {
    let first = histogram.buckets().next()?;
    let last = histogram.buckets().next_back()?;
    let (min, max) = extremes.unwrap_or((u64::MAX, 0));
    let end = |lt: Option<u64>| lt.map_or(u64::MAX, |lt| lt - 1);
    let count = histogram.count().max(1);
    // No call is longer than the sum, and the shortest is at most the average.
    let min = min.min(total_ns / count).clamp(first.ge, end(first.lt));
    let max = max.max(total_ns.div_ceil(count)).clamp(last.ge, end(last.lt));
    Some((min, max.max(min)))
}

/// Merges groups with the same name, keeping the order of their first occurrence.
#[must_use]
pub fn merged(groups: impl IntoIterator<Item = (Who, Numbers)>) -> Vec<(Who, Numbers)> {
    let mut all: Vec<(Who, Numbers)> = Vec::new();
    let mut slots: BTreeMap<String, usize> = BTreeMap::new();
    for (who, numbers) in groups {
        let slot = *slots.entry(who.name()).or_insert(all.len());
        let Some((known, sum)) = all.get_mut(slot) else {
            all.push((who, numbers));
            continue;
        };
        sum.add(&numbers);
        if let (Who::File { inode, .. }, Who::File { inode: other, .. }) = (known, &who)
            && inode != other
        {
            *inode = None;
        }
    }
    all
}

/// Returns the `top` largest groups, and the sum of all others, to which what is in `others` belongs. `groups` may be in
/// any order.
#[must_use]
pub fn largest(by: By, mut groups: Vec<(u64, Numbers)>, mut others: OthersReport, top: usize) -> Ranked {
    groups.retain(|(_, numbers)| !numbers.is_empty());
    let whole = times(groups.iter().map(|(_, numbers)| numbers).chain([&others.numbers]));
    groups.sort_by_cached_key(|(number, numbers)| (Reverse(weight(numbers, &whole)), *number));
    let small = groups.split_off(top.min(groups.len()));
    others.groups += small.len() as u64;
    for (_, numbers) in &small {
        others.numbers.add(numbers);
    }
    sort_like_tables(&mut others.numbers);
    let mut total = others.numbers.clone();
    for (_, numbers) in &groups {
        total.add(numbers);
    }
    sort_like_tables(&mut total);
    Ranked {
        by,
        groups,
        others: Some(others).filter(|others| !others.numbers.is_empty()),
        total,
    }
}

/// The ranked groups, identified by numbers that are still to be turned into names.
#[derive(Debug, Clone)]
pub struct Ranked {
    pub by: By,
    pub groups: Vec<(u64, Numbers)>,
    pub others: Option<OthersReport>,
    pub total: Numbers,
}

impl Ranked {
    /// Names the groups.
    #[must_use]
    pub fn named(self, mut who: impl FnMut(u64) -> Who) -> GroupsReport {
        let groups = self.groups.into_iter().map(|(number, numbers)| GroupReport {
            who: who(number),
            numbers,
        });
        GroupsReport {
            by: self.by,
            groups: groups.collect(),
            others: self.others,
            total: self.total,
        }
    }
}

/// The time of all groups together in each layer, and in families, in nanoseconds.
fn times<'a>(all: impl Iterator<Item = &'a Numbers>) -> BTreeMap<Option<Layer>, u64> {
    let mut times: BTreeMap<_, u64> = BTreeMap::new();
    for numbers in all {
        let layers = numbers.layers.iter().map(|(layer, _)| Some(*layer));
        for layer in layers.chain([None]) {
            let sum = times.entry(layer).or_default();
            *sum = sum.saturating_add(numbers.sums(layer).ns);
        }
    }
    times
}

/// The weight of a group: its share of the time at the layer where that is largest, then its requests that no call
/// waited for. `whole`: the [`times`] of all groups.
fn weight(numbers: &Numbers, whole: &BTreeMap<Option<Layer>, u64>) -> (u64, u64) {
    let shares = whole
        .iter()
        .map(|(layer, whole)| share(numbers.sums(*layer).ns, *whole));
    let background = numbers.not_waited.iter().map(|origin| origin.device_ns);
    (shares.max().unwrap_or(0), background.fold(0, u64::saturating_add))
}

/// A part of a whole, in parts of 2^32.
#[must_use]
pub fn share(part: u64, whole: u64) -> u64 {
    let parts = (u128::from(part) << 32).checked_div(whole.into()).unwrap_or(0);
    u64::try_from(parts).unwrap_or(u64::MAX)
}

/// Restores the order of the tables, in which sums list their parts.
fn sort_like_tables(numbers: &mut Numbers) {
    numbers.layers.sort_unstable_by_key(|(layer, _)| *layer);
    for (layer, ops) in &mut numbers.layers {
        let table = layer.ops();
        ops.sort_unstable_by_key(|op| table.iter().position(|known| known.op == op.op));
    }
    numbers.families.sort_unstable_by_key(|family| family.family);
}

/// Makes the report's numbers the sums of its groups, which were read at the same time and contain each call once. In
/// the whole stack, groups have no single layers, and these numbers are kept.
pub fn make_sums(total: &Numbers, layers: &mut [LayerReport], stack: Option<&mut StackReport>) {
    for layer in layers.iter_mut().filter(|_| stack.is_none()) {
        for op in &mut layer.ops {
            let known = total.ops(layer.layer).iter().find(|known| known.op == op.op);
            let sum = known.cloned().unwrap_or_else(|| OpReport {
                histogram: op.histogram.emptied(),
                ..OpReport::new(op.op)
            });
            op.total_ns = sum.total_ns;
            op.bytes = op.bytes.map(|_| sum.bytes.unwrap_or(0));
            op.queue_ns = op.queue_ns.map(|_| sum.queue_ns.unwrap_or(0));
            op.unit_slots = sum.unit_slots;
            op.extremes = in_steps(wider(op.extremes, sum.extremes), &sum.histogram, sum.total_ns);
            op.histogram = sum.histogram;
        }
    }
    let Some(stack) = stack else { return };
    for family in &mut stack.families {
        let known = total.families.iter().find(|known| known.family == family.family);
        match known {
            Some(known) => {
                let extremes = in_steps(wider(family.extremes, known.extremes), &known.histogram, known.total_ns);
                *family = FamilyReport {
                    extremes,
                    ..known.clone()
                };
            }
            None => {
                let mut none = FamilyReport {
                    rows: family.rows.clone(),
                    classes: family.classes.clone(),
                    histogram: family.histogram.emptied(),
                    ..FamilyReport::new(family.family)
                };
                for row in &mut none.rows {
                    (row.ns, row.calls) = (row.ns.map(|_| 0), row.calls.map(|_| 0));
                }
                for class in &mut none.classes {
                    (class.calls, class.bytes) = (0, 0);
                }
                *family = none;
            }
        }
    }
    if let Some(not_waited) = &mut stack.not_waited {
        not_waited.clone_from(&total.not_waited);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fuzz;
    use crate::model::ids::{Family, Op, Origin, Row};
    use crate::model::report::slow::{CallPath, Inode};
    use crate::model::report::stack::{OriginReport, RowReport};

    fn op(op: Op, times: &[u64]) -> OpReport {
        let mut histogram = Histogram::default();
        times.iter().for_each(|ns| histogram.record(*ns));
        OpReport {
            total_ns: times.iter().sum(),
            bytes: Some(times.len() as u64),
            extremes: times.iter().min().copied().zip(times.iter().max().copied()),
            histogram,
            ..OpReport::new(op)
        }
    }

    fn vfs(ops: Vec<OpReport>) -> Numbers {
        Numbers {
            layers: vec![(Layer::Vfs, ops)],
            ..Numbers::default()
        }
    }

    #[test]
    fn the_largest_are_first_and_the_rest_is_others() {
        let groups = vec![
            (2, vfs(vec![op(Op::Read, &[10, 20])])),
            (3, vfs(vec![op(Op::Write, &[500])])),
            (4, vfs(vec![op(Op::Read, &[7]), op(Op::Fsync, &[90])])),
            (5, vfs(Vec::new())),
            (6, vfs(vec![op(Op::Read, &[97])])),
        ];
        let left_over = OthersReport::without_room(vfs(vec![op(Op::Open, &[3, 4])]));
        let ranked = largest(By::File, groups, left_over, 2);
        let order: Vec<u64> = ranked.groups.iter().map(|(number, _)| *number).collect();
        // Equal groups keep their order.
        assert_eq!(order, [3, 4]);
        let others = ranked.others.unwrap();
        assert_eq!((others.groups, others.no_room), (2, 2));
        let names: Vec<Op> = others.numbers.ops(Layer::Vfs).iter().map(|op| op.op).collect();
        assert_eq!(names, [Op::Read, Op::Open]);
        assert_eq!(others.numbers.sums(Some(Layer::Vfs)).ns, 134);
        assert_eq!(ranked.total.sums(Some(Layer::Vfs)).ns, 731);
    }

    #[test]
    fn a_group_is_as_large_as_its_largest_share_of_a_layer() {
        let both = |call: u64, request: u64| Numbers {
            layers: vec![
                (Layer::Syscall, vec![op(Op::Read, &[call])]),
                (Layer::Blk, vec![op(Op::Read, &[request])]),
            ],
            ..Numbers::default()
        };
        let groups = vec![(2, both(1_000_000, 1)), (3, both(1, 1_000)), (4, both(500_000, 10))];
        let ranked = largest(By::Process, groups, OthersReport::default(), 2);
        let order: Vec<u64> = ranked.groups.iter().map(|(number, _)| *number).collect();
        assert_eq!(order, [3, 2]);
    }

    #[test]
    fn groups_without_waits_are_ranked_by_requests() {
        let background = |device_ns| Numbers {
            not_waited: vec![OriginReport {
                requests: 1,
                device_ns,
                ..OriginReport::new(Origin::Kworker, true)
            }],
            ..Numbers::default()
        };
        let ranked = largest(
            By::Process,
            vec![(2, background(5)), (3, background(9))],
            OthersReport::default(),
            1,
        );
        assert_eq!(ranked.groups[0].0, 3);
        assert_eq!(ranked.others.unwrap().groups, 1);
        assert_eq!(ranked.total.not_waited[0].requests, 2);
    }

    #[test]
    fn extremes_that_were_overwritten_are_as_the_steps_say() {
        let histogram = op(Op::Read, &[100, 5_000]).histogram;
        assert_eq!(in_steps(Some((100, 5_000)), &histogram, 5_100), Some((100, 5_000)));
        let (min, max) = in_steps(Some((4_000, 4_000)), &histogram, 5_100).unwrap();
        assert!(
            (96..=103).contains(&min) && (4_608..=5_119).contains(&max),
            "{min} {max}"
        );
        assert_eq!(in_steps(None, &Histogram::default(), 0), None);
        let one = op(Op::Read, &[1000]).histogram;
        assert_eq!(in_steps(None, &one, 1000), Some((1000, 1000)));
        let near = op(Op::Read, &[970, 1000]).histogram;
        assert_eq!(in_steps(Some((970, 970)), &near, 1970), Some((970, 985)));
    }

    #[test]
    fn files_that_have_a_path_one_after_the_other_are_one() {
        let file = |number: u64, text: &str| Who::File {
            inode: Some(Inode::on([8, 1], number)),
            path: Some(CallPath::whole(text)),
        };
        let one = |ns| vfs(vec![op(Op::Read, &[ns])]);
        let groups = [
            (file(1, "/a"), one(1)),
            (file(2, "/b"), one(2)),
            (file(3, "/a"), one(4)),
            (file(2, "/b"), one(8)),
        ];
        let merged = merged(groups);
        let reported: Vec<(String, u64)> = merged
            .iter()
            .map(|(who, sum)| (who.name(), sum.sums(Some(Layer::Vfs)).ns))
            .collect();
        assert_eq!(reported, [("/a".to_owned(), 5), ("/b".to_owned(), 10)]);
        assert!(matches!(merged[0].0, Who::File { inode: None, .. }));
        assert_eq!(merged[1].0, file(2, "/b"));
    }

    #[test]
    fn groups_are_called_as_people_know_them() {
        let inode = Inode::on([259, 1], 12);
        let names = [
            Who::Process {
                pid: 165,
                comm: "sqlite3".to_owned(),
            },
            Who::File {
                inode: Some(inode),
                path: None,
            },
            Who::Unknown(By::File),
        ];
        assert_eq!(
            names.map(|who| who.name()),
            ["sqlite3 165", "… (inode 12 on 259:1)", "(no file)"]
        );
    }

    #[test]
    fn sums_are_those_of_the_view() {
        let total = vfs(vec![op(Op::Read, &[5, 7])]);
        let before = || {
            vec![LayerReport {
                ops: vec![op(Op::Read, &[5]), op(Op::Write, &[9])],
                ..LayerReport::new(Layer::Vfs)
            }]
        };
        let mut layers = before();
        make_sums(&total, &mut layers, None);
        let reported = |layers: &[LayerReport]| -> Vec<(u64, u64)> {
            layers[0].ops.iter().map(|op| (op.count(), op.total_ns)).collect()
        };
        assert_eq!(reported(&layers), [(2, 12), (0, 0)]);
        assert_eq!(layers[0].ops[1].extremes, None);
        let mut stack = StackReport {
            families: vec![FamilyReport {
                total_ns: 3,
                ..FamilyReport::new(Family::Read)
            }],
            ..StackReport::default()
        };
        let mut layers = before();
        make_sums(&Numbers::default(), &mut layers, Some(&mut stack));
        assert_eq!(reported(&layers), [(1, 5), (1, 9)]);
        assert_eq!(stack.families[0].total_ns, 0);
    }

    fn any_numbers() -> impl Strategy<Value = Numbers> {
        let times = || proptest::collection::vec(0_u64..1 << 40, 0..4);
        let ops = proptest::collection::vec((0_usize..3, times()), 0..4);
        let family = (times(), 0_u64..1 << 40, any::<bool>());
        (ops, proptest::collection::vec(family, 0..2), 0_u64..1 << 40).prop_map(|(ops, families, device_ns)| {
            let mut numbers = Numbers::default();
            for (index, times) in ops {
                numbers.add(&vfs(vec![op([Op::Read, Op::Write, Op::Open][index], &times)]));
            }
            for (times, ns, fails) in families {
                numbers.add(&Numbers {
                    families: vec![FamilyReport {
                        total_ns: ns,
                        errors: u64::from(fails),
                        histogram: op(Op::Read, &times).histogram,
                        rows: vec![RowReport {
                            row: Row::Device,
                            ns: Some(ns),
                            calls: None,
                        }],
                        ..FamilyReport::new(Family::Read)
                    }],
                    ..Numbers::default()
                });
            }
            if device_ns % 2 == 0 {
                numbers.not_waited.push(OriginReport {
                    device_ns,
                    requests: 1,
                    ..OriginReport::new(Origin::Kernel, true)
                });
            }
            numbers
        })
    }

    /// All of its numbers, with labels.
    fn all_of(numbers: &Numbers) -> Vec<(String, u128)> {
        let mut all = std::collections::BTreeMap::new();
        let mut add = |name: String, n: u64| *all.entry(name).or_insert(0) += u128::from(n);
        let steps = |histogram: &Histogram| -> Vec<(u64, u64)> {
            histogram.buckets().map(|bucket| (bucket.ge, bucket.count)).collect()
        };
        for (layer, ops) in &numbers.layers {
            for op in ops {
                let name = format!("{layer} {}", op.op);
                add(format!("{name} ns"), op.total_ns);
                add(format!("{name} bytes"), op.bytes.unwrap_or(0));
                add(format!("{name} errors"), op.error_count());
                for (ge, count) in steps(&op.histogram) {
                    add(format!("{name} {ge}"), count);
                }
            }
        }
        for family in &numbers.families {
            add("family ns".to_owned(), family.total_ns);
            add("family errors".to_owned(), family.errors);
            for (ge, count) in steps(&family.histogram) {
                add(format!("family {ge}"), count);
            }
            for row in &family.rows {
                add(format!("row {}", row.row), row.ns.unwrap_or(0));
            }
        }
        for origin in &numbers.not_waited {
            add("requests".to_owned(), origin.requests);
            add("device".to_owned(), origin.device_ns);
        }
        all.retain(|_, n| *n > 0);
        all.into_iter().collect()
    }

    proptest! {
        #![proptest_config(fuzz::config())]

        #[test]
        fn groups_and_others_are_all_there_is(
            groups in proptest::collection::vec(any_numbers(), 0..9),
            left_over in any_numbers(),
            top in 0_usize..6,
        ) {
            let mut truth = left_over.clone();
            groups.iter().for_each(|group| truth.add(group));
            let numbered = groups.into_iter().zip(2..).map(|(group, number)| (number, group));
            let ranked = largest(By::File, numbered.collect(), OthersReport::without_room(left_over), top);
            prop_assert!(ranked.groups.len() <= top);
            let mut reported = ranked.others.map(|others| others.numbers).unwrap_or_default();
            ranked.groups.iter().for_each(|(_, group)| reported.add(group));
            prop_assert_eq!(all_of(&reported), all_of(&ranked.total));
            prop_assert_eq!(all_of(&reported), all_of(&truth));
            let whole = times([&ranked.total].into_iter());
            let weights = ranked.groups.iter().map(|(_, group)| weight(group, &whole));
            prop_assert!(weights.is_sorted_by(|a, b| a >= b));
        }
    }
}
