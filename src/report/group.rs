//! Calls and requests by process, file, disk or control group: what `--by` splits a report into.
//!
//! Every number of a report is the sum of its groups' and of the others'. So the sums are made here, out of the groups.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::slow::{CallPath, Inode};
use super::stack::{FamilyReport, OriginReport};
use super::{LayerReport, OpReport};
use crate::histogram::Histogram;
pub use crate::model::ids::By;
use crate::model::ids::Layer;

/// A report's groups.
#[derive(Debug, Clone)]
pub struct GroupsReport {
    pub by: By,
    /// The largest first.
    pub groups: Vec<GroupReport>,
    /// What is in none of them; `None`: nothing.
    pub others: Option<OthersReport>,
    /// The sum of them all.
    pub total: Numbers,
}

/// One group.
#[derive(Debug, Clone)]
pub struct GroupReport {
    pub who: Who,
    pub numbers: Numbers,
}

/// All that is not told by itself.
#[derive(Debug, Clone, Default)]
pub struct OthersReport {
    /// Groups in it, those for which there was no room left out.
    pub groups: u64,
    /// Calls and requests in it whose group found no room: nobody knows of how many groups they are. They are counted at each
    /// layer.
    pub no_room: u64,
    pub numbers: Numbers,
}

/// Whose calls a group is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Who {
    Process {
        pid: u64,
        comm: String,
    },
    File {
        /// `None`: several had this path, one after the other.
        inode: Option<Inode>,
        /// `None`: it has none any more.
        path: Option<CallPath>,
    },
    /// A disk with all its partitions, or what else a file system is on.
    Disk {
        name: String,
    },
    /// From the root of its hierarchy.
    Cgroup {
        path: String,
    },
    /// Calls on no file, or requests of which nothing tells whose they are.
    Nobody(By),
}

impl Who {
    /// As in reports.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Process { pid, comm } => format!("{comm} {pid}"),
            Self::File { path: Some(path), .. } => path.text.clone(),
            Self::File { inode, path: None } => inode.map_or_else(
                || "…".to_owned(),
                |inode| format!("… (inode {} on {}:{})", inode.number, inode.major, inode.minor),
            ),
            Self::Disk { name } => name.clone(),
            Self::Cgroup { path } => path.clone(),
            Self::Nobody(by) => format!("(no {})", by.name()),
        }
    }
}

/// What was counted of a group, or of several together.
#[derive(Debug, Clone, Default)]
pub struct Numbers {
    /// Ops that were called, by layer, in the order of the stack. Empty in the whole stack's view.
    pub layers: Vec<(Layer, Vec<OpReport>)>,
    /// Families that were called, in the order of their table; of the whole stack's view.
    pub families: Vec<FamilyReport>,
    /// Requests that nobody slept for; of the whole stack's view.
    pub not_waited: Vec<OriginReport>,
}

impl Numbers {
    /// Whether nothing was counted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.layers.iter().all(|(_, ops)| ops.is_empty()) && self.families.is_empty() && self.not_waited.is_empty()
    }

    /// Calls and requests, at each layer.
    #[must_use]
    pub fn count(&self) -> u64 {
        let ops = self.layers.iter().flat_map(|(_, ops)| ops).map(OpReport::count);
        let families = self.families.iter().map(FamilyReport::count);
        ops.chain(families).fold(0, u64::saturating_add)
    }

    /// The ops of a layer.
    #[must_use]
    pub fn ops(&self, layer: Layer) -> &[OpReport] {
        let found = self.layers.iter().find(|(known, _)| *known == layer);
        found.map_or(&[], |(_, ops)| ops)
    }

    /// Sums over a layer's ops, or over all families: calls, nanoseconds, bytes.
    #[must_use]
    pub fn sums(&self, layer: Option<Layer>) -> Sums {
        let families = self.families.iter().filter(|_| layer.is_none());
        let families = families.map(|family| (family.count(), family.total_ns, family.bytes));
        let ops = layer.map_or(&[][..], |layer| self.ops(layer)).iter();
        let ops = ops.map(|op| (op.count(), op.total_ns, op.bytes.unwrap_or(0)));
        families
            .chain(ops)
            .fold(Sums::default(), |sum, (count, ns, bytes)| Sums {
                count: sum.count.saturating_add(count),
                ns: sum.ns.saturating_add(ns),
                bytes: sum.bytes.saturating_add(bytes),
            })
    }

    /// Adds what was counted of others. `layers`, the names of ops and families are in the same order in both.
    pub fn add(&mut self, other: &Self) {
        for (layer, ops) in &other.layers {
            let place = match self.layers.iter().position(|(known, _)| known == layer) {
                Some(place) => place,
                None => {
                    self.layers.push((*layer, Vec::new()));
                    self.layers.len() - 1
                }
            };
            merge(&mut self.layers[place].1, ops, |op| op.op, add_op);
        }
        merge(&mut self.families, &other.families, |family| family.family, add_family);
        merge(
            &mut self.not_waited,
            &other.not_waited,
            |origin| (origin.origin, origin.is_write),
            add_origin,
        );
    }
}

/// Numbers of several ops together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sums {
    pub count: u64,
    pub ns: u64,
    pub bytes: u64,
}

fn merge<T: Clone, K: PartialEq>(into: &mut Vec<T>, from: &[T], key: fn(&T) -> K, add: fn(&mut T, &T)) {
    for one in from {
        match into.iter_mut().find(|known| key(known) == key(one)) {
            Some(known) => add(known, one),
            None => into.push(one.clone()),
        }
    }
}

fn add_to(sum: &mut u64, n: u64) {
    *sum = sum.saturating_add(n);
}

fn add_op(sum: &mut OpReport, op: &OpReport) {
    add_to(&mut sum.total_ns, op.total_ns);
    add_to(&mut sum.errors_unnamed, op.error_count());
    sum.bytes = added(sum.bytes, op.bytes);
    sum.queue_ns = added(sum.queue_ns, op.queue_ns);
    sum.extremes = wider(sum.extremes, op.extremes);
    sum.histogram.add(&op.histogram);
    if sum.unit_slots.len() < op.unit_slots.len() {
        sum.unit_slots.resize(op.unit_slots.len(), 0);
    }
    for (slot, n) in sum.unit_slots.iter_mut().zip(&op.unit_slots) {
        add_to(slot, *n);
    }
}

fn add_family(sum: &mut FamilyReport, family: &FamilyReport) {
    add_to(&mut sum.total_ns, family.total_ns);
    add_to(&mut sum.bytes, family.bytes);
    add_to(&mut sum.errors, family.errors);
    sum.extremes = wider(sum.extremes, family.extremes);
    sum.histogram.add(&family.histogram);
    for (row, other) in sum.rows.iter_mut().zip(&family.rows) {
        row.ns = added(row.ns, other.ns);
        row.calls = added(row.calls, other.calls);
    }
    for (class, other) in sum.classes.iter_mut().zip(&family.classes) {
        add_to(&mut class.calls, other.calls);
        add_to(&mut class.bytes, other.bytes);
    }
}

fn add_origin(sum: &mut OriginReport, origin: &OriginReport) {
    add_to(&mut sum.requests, origin.requests);
    add_to(&mut sum.bytes, origin.bytes);
    add_to(&mut sum.queue_ns, origin.queue_ns);
    add_to(&mut sum.device_ns, origin.device_ns);
}

/// What is not known of both is not known of their sum, unless one has none of it.
fn added(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.saturating_add(b)),
        (a, b) => a.or(b),
    }
}

fn wider(a: Option<(u64, u64)>, b: Option<(u64, u64)>) -> Option<(u64, u64)> {
    match (a, b) {
        (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
        (a, b) => a.or(b),
    }
}

/// Shortest and longest call as far as the steps allow, and the sum of all. CPUs that tell of one at once may have overwritten
/// each other's; then the bound of the step that it must be in is told.
#[must_use]
pub fn in_steps(extremes: Option<(u64, u64)>, histogram: &Histogram, total_ns: u64) -> Option<(u64, u64)> {
    let first = histogram.buckets().next()?;
    let last = histogram.buckets().last()?;
    let (min, max) = extremes.unwrap_or((u64::MAX, 0));
    let end = |lt: Option<u64>| lt.map_or(u64::MAX, |lt| lt - 1);
    let count = histogram.count().max(1);
    // Nothing is longer than the sum, nor all of them than the average.
    let min = min.min(total_ns / count).clamp(first.ge, end(first.lt));
    let max = max.max(total_ns.div_ceil(count)).clamp(last.ge, end(last.lt));
    Some((min, max.max(min)))
}

/// Makes one of those that have the same name, in the order in which these came.
#[must_use]
pub fn merged(groups: impl IntoIterator<Item = (Who, Numbers)>) -> Vec<(Who, Numbers)> {
    let mut all: Vec<(Who, Numbers)> = Vec::new();
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for (who, numbers) in groups {
        let place = *places.entry(who.name()).or_insert(all.len());
        let Some((known, sum)) = all.get_mut(place) else {
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

/// Puts the `top` largest first, and all else into one. `groups` are in any order, and `left_over` is of groups for which there
/// was no room.
#[must_use]
pub fn largest(by: By, mut groups: Vec<(u64, Numbers)>, left_over: Numbers, top: usize) -> Ranked {
    let mut total = left_over.clone();
    for (_, numbers) in &groups {
        total.add(numbers);
    }
    sort_like_tables(&mut total);
    groups.retain(|(_, numbers)| !numbers.is_empty());
    groups.sort_by_cached_key(|(number, numbers)| (Reverse(weight(numbers, &total)), *number));
    let rest = groups.split_off(top.min(groups.len()));
    let mut others = OthersReport {
        groups: rest.len() as u64,
        no_room: left_over.count(),
        numbers: left_over,
    };
    for (_, numbers) in &rest {
        others.numbers.add(numbers);
    }
    sort_like_tables(&mut others.numbers);
    Ranked {
        by,
        groups,
        others: Some(others).filter(|others| !others.numbers.is_empty()),
        total,
    }
}

/// Groups in their order, which have numbers instead of names so far.
#[derive(Debug, Clone)]
pub struct Ranked {
    pub by: By,
    pub groups: Vec<(u64, Numbers)>,
    pub others: Option<OthersReport>,
    pub total: Numbers,
}

impl Ranked {
    /// Gives the groups their names.
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

/// What a group is measured by: its share of the time at the layer where that is largest; then its requests that nobody
/// waited for.
fn weight(numbers: &Numbers, total: &Numbers) -> (u64, u64) {
    let share = |layer| {
        let (part, whole) = (numbers.sums(layer).ns, total.sums(layer).ns);
        let parts = (u128::from(part) << 32).checked_div(whole.into()).unwrap_or(0);
        u64::try_from(parts).unwrap_or(u64::MAX)
    };
    let layers = total.layers.iter().map(|(layer, _)| share(Some(*layer)));
    let background = numbers.not_waited.iter().map(|origin| origin.device_ns);
    (
        layers.chain([share(None)]).max().unwrap_or(0),
        background.fold(0, u64::saturating_add),
    )
}

/// Sums have their parts in the order in which these came.
fn sort_like_tables(numbers: &mut Numbers) {
    numbers.layers.sort_by_key(|(layer, _)| *layer);
    for (layer, ops) in &mut numbers.layers {
        let table = layer.ops();
        ops.sort_by_key(|op| table.iter().position(|known| known.op == op.op));
    }
    numbers.families.sort_by_key(|family| family.family);
}

/// Makes the numbers of a report the sums of its groups: those were read at once, and each call is in one of them. In the whole
/// stack's view, groups have no single layers, and these stay as they are.
pub fn make_sums(total: &Numbers, layers: &mut [LayerReport], stack: Option<&mut super::stack::StackReport>) {
    for layer in layers.iter_mut().filter(|_| stack.is_none()) {
        for op in &mut layer.ops {
            let known = total.ops(layer.layer).iter().find(|known| known.op == op.op);
            let sum = known.cloned().unwrap_or_else(|| OpReport::new(op.op));
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

    use super::super::slow::PathKind;
    use super::super::stack::RowReport;
    use super::*;
    use crate::fuzz;
    use crate::model::ids::{Family, Op, Origin, Row};

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
        let ranked = largest(By::File, groups, vfs(vec![op(Op::Open, &[3, 4])]), 2);
        let order: Vec<u64> = ranked.groups.iter().map(|(number, _)| *number).collect();
        // Equals are in the order in which they came.
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
        let ranked = largest(By::Process, groups, Numbers::default(), 2);
        let order: Vec<u64> = ranked.groups.iter().map(|(number, _)| *number).collect();
        assert_eq!(order, [3, 2]);
    }

    #[test]
    fn who_waits_for_nothing_is_told_by_requests() {
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
            Numbers::default(),
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
            inode: Some(Inode {
                number,
                major: 8,
                minor: 1,
            }),
            path: Some(CallPath {
                kind: PathKind::Whole,
                text: text.to_owned(),
            }),
        };
        let one = |ns| vfs(vec![op(Op::Read, &[ns])]);
        let groups = [
            (file(1, "/a"), one(1)),
            (file(2, "/b"), one(2)),
            (file(3, "/a"), one(4)),
            (file(2, "/b"), one(8)),
        ];
        let merged = merged(groups);
        let told: Vec<(String, u64)> = merged
            .iter()
            .map(|(who, sum)| (who.name(), sum.sums(Some(Layer::Vfs)).ns))
            .collect();
        assert_eq!(told, [("/a".to_owned(), 5), ("/b".to_owned(), 10)]);
        assert!(matches!(merged[0].0, Who::File { inode: None, .. }));
        assert_eq!(merged[1].0, file(2, "/b"));
    }

    #[test]
    fn groups_are_called_as_people_know_them() {
        let inode = Inode {
            number: 12,
            major: 259,
            minor: 1,
        };
        let names = [
            Who::Process {
                pid: 165,
                comm: "sqlite3".to_owned(),
            },
            Who::File {
                inode: Some(inode),
                path: None,
            },
            Who::Nobody(By::File),
        ];
        assert_eq!(
            names.map(|who| who.name()),
            ["sqlite3 165", "… (inode 12 on 259:1)", "(no file)"]
        );
    }

    #[test]
    fn sums_are_those_of_the_view() {
        use super::super::stack::StackReport;
        let total = vfs(vec![op(Op::Read, &[5, 7])]);
        let before = || {
            vec![LayerReport {
                ops: vec![op(Op::Read, &[5]), op(Op::Write, &[9])],
                ..LayerReport::new(Layer::Vfs)
            }]
        };
        let mut layers = before();
        make_sums(&total, &mut layers, None);
        let told = |layers: &[LayerReport]| -> Vec<(u64, u64)> {
            layers[0].ops.iter().map(|op| (op.count(), op.total_ns)).collect()
        };
        assert_eq!(told(&layers), [(2, 12), (0, 0)]);
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
        assert_eq!(told(&layers), [(1, 5), (1, 9)]);
        assert_eq!(stack.families[0].total_ns, 0);
    }

    fn any_numbers() -> impl Strategy<Value = Numbers> {
        let times = || proptest::collection::vec(0_u64..1 << 40, 0..4);
        let ops = proptest::collection::vec((0_usize..3, times()), 0..4);
        let family = (times(), 0_u64..1 << 40, any::<bool>());
        (ops, proptest::collection::vec(family, 0..2), 0_u64..1 << 40).prop_map(|(ops, families, device_ns)| {
            let mut numbers = Numbers::default();
            for (place, times) in ops {
                numbers.add(&vfs(vec![op([Op::Read, Op::Write, Op::Open][place], &times)]));
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

    /// Every number of it, in an order of its own.
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
            let ranked = largest(By::File, numbered.collect(), left_over, top);
            prop_assert!(ranked.groups.len() <= top);
            let mut told = ranked.others.map(|others| others.numbers).unwrap_or_default();
            ranked.groups.iter().for_each(|(_, group)| told.add(group));
            prop_assert_eq!(all_of(&told), all_of(&ranked.total));
            prop_assert_eq!(all_of(&told), all_of(&truth));
            let weights = ranked.groups.iter().map(|(_, group)| weight(group, &ranked.total));
            prop_assert!(weights.is_sorted_by(|a, b| a >= b));
        }
    }
}
