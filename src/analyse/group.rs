//! The groups of a report: the difference of two snapshots.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::stack::{self, Measured};
use crate::analyse::ranking::{in_steps, largest, merged, share};
use crate::catalog::REQUESTS;
use crate::model::abi::{DIRECTIONS, GROUP_NO_ROOM, GROUP_NONE};
use crate::model::ids::{By, Family, Layer, Op, Origin};
use crate::model::report::OpReport;
use crate::model::report::group::{GroupsReport, Numbers, OthersReport, Who};
use crate::model::run_info::RunInfo;
use crate::model::snapshot::{FamilyCounters, GroupsCounters, OpCounters, OriginCounters, StackIncreases, combined};

/// The difference of two snapshots. `top`: how many groups have numbers of their own; `measured`: what is measured of the whole
/// stack, of which `stacks` has the difference.
pub fn report(
    (by, top): (By, usize),
    run: &RunInfo,
    measured: Option<&Measured<'_>>,
    (before, after): (&GroupsCounters, &GroupsCounters),
    stacks: &StackIncreases,
) -> GroupsReport {
    // Only processes have names of their own: others may be one group together.
    let small = measured.filter(|_| by == By::Process);
    let small = small
        .map(|measured| small_groups(measured, stacks, top))
        .unwrap_or_default();
    let mut numbers = numbers(run, measured, (before, after), (stacks, &small));
    let left_over = numbers.remove(&GROUP_NO_ROOM).unwrap_or_default();
    let mut rest = OthersReport::without_room(left_over);
    if let Some(measured) = measured.filter(|_| !small.is_empty()) {
        rest.groups = small.len() as u64;
        rest.numbers.add(&together(measured, (stacks, &small)));
    }
    let who = |group: u32| match group {
        GROUP_NONE => Who::Unknown(by),
        _ => after.who.get(&group).cloned().unwrap_or(Who::Unknown(by)),
    };
    if by == By::Process {
        let numbers = numbers.into_iter().map(|(group, numbers)| (u64::from(group), numbers));
        return largest(by, numbers.collect(), rest, top).named(|number| who(number as u32));
    }
    // A disk includes its partitions' calls, and a path those of all files that had it one after another.
    let named = numbers.into_iter().map(|(group, numbers)| (who(group), numbers));
    let (all, numbers): (Vec<Who>, Vec<Numbers>) = merged(named).into_iter().unzip();
    let ranked = largest(by, (0..).zip(numbers).collect(), rest, top);
    ranked.named(|index| all.get(index as usize).cloned().unwrap_or(Who::Unknown(by)))
}

/// The groups of the whole stack that are not among the `top` largest, in ascending order: these are not named.
fn small_groups(measured: &Measured<'_>, stacks: &StackIncreases, top: usize) -> Vec<u32> {
    // The time of a group's calls, and that of requests that no call waited for.
    let mut sizes: Vec<(u32, (u64, u64))> = Vec::new();
    let mut add = |group: u32, calls: u64, background: u64| {
        let at = match sizes.binary_search_by_key(&group, |(known, _)| *known) {
            Ok(at) => at,
            Err(at) => {
                sizes.insert(at, (group, (0, 0)));
                at
            }
        };
        let size = &mut sizes[at].1;
        *size = (size.0.saturating_add(calls), size.1.saturating_add(background));
    };
    for of in &stacks.families {
        if stack::called((of.index, &of.counted)).is_some() {
            add(of.group, of.counted.total_ns(), 0);
        }
    }
    for of in &stacks.origins {
        if let Some(origin) = stack::origin_of_group(measured, (of.index, of.counted)) {
            add(of.group, 0, origin.device_ns);
        }
    }
    let whole = sizes.iter().fold(0, |sum: u64, (_, (ns, _))| sum.saturating_add(*ns));
    sizes.retain(|(group, _)| *group != GROUP_NO_ROOM);
    sizes.sort_by_key(|(group, (ns, background))| (Reverse((share(*ns, whole), *background)), *group));
    let mut small: Vec<u32> = sizes.into_iter().skip(top).map(|(group, _)| group).collect();
    small.sort_unstable();
    small
}

/// The numbers of these groups together. What they have counted is added before a report is made of it, as there may be
/// hundreds of them.
fn together(measured: &Measured<'_>, (stacks, groups): (&StackIncreases, &[u32])) -> Numbers {
    let mut families = vec![FamilyCounters::default(); Family::ALL.len()];
    let mut origins = vec![OriginCounters::default(); Origin::ALL.len() * DIRECTIONS as usize];
    for of in stacks.families.iter().filter(|of| is_in(groups, of.group)) {
        if let Some(sum) = families.get_mut(of.index) {
            *sum = sum.combined(&of.counted, u64::wrapping_add);
        }
    }
    for of in stacks.origins.iter().filter(|of| is_in(groups, of.group)) {
        if let Some(sum) = origins.get_mut(of.index) {
            *sum = combined(sum, &of.counted, u64::wrapping_add);
        }
    }
    let slots = stack::slots(measured);
    let families = families.iter().enumerate();
    let origins = origins.into_iter().enumerate();
    Numbers {
        families: families
            .filter_map(|of| stack::of_group(measured, &slots, of))
            .collect(),
        not_waited: origins.filter_map(|of| stack::origin_of_group(measured, of)).collect(),
        ..Numbers::default()
    }
}

fn is_in(groups: &[u32], group: u32) -> bool {
    groups.binary_search(&group).is_ok()
}

/// What each group counted between the snapshots, without these groups of the whole stack.
fn numbers(
    run: &RunInfo,
    measured: Option<&Measured<'_>>,
    (before, after): (&GroupsCounters, &GroupsCounters),
    (stacks, without): (&StackIncreases, &[u32]),
) -> BTreeMap<u32, Numbers> {
    let is_queued = run.block.as_ref().is_some_and(|block| block.queue_from.is_some());
    let mut groups: BTreeMap<u32, Numbers> = BTreeMap::new();
    let none = OpCounters::default();
    for (key, counters) in &after.ops {
        let (group, index) = *key;
        let Some(info) = run.ops.get(index as usize) else {
            continue;
        };
        // Of a recording, not all layers may be shown.
        if !run.layers.iter().any(|shown| shown.layer == info.layer) {
            continue;
        }
        let difference = counters.since(before.ops.get(key).unwrap_or(&none));
        let op = difference.report(info.op, info.moves_bytes);
        let op = op.estimated(run.sample_at(info.layer));
        if op.count() == 0 {
            continue;
        }
        let has_queue = is_queued && info.layer == Layer::Blk && waits_in_queue(info.op);
        let op = OpReport {
            extremes: in_steps(op.extremes, &op.histogram, op.total_ns),
            queue_ns: has_queue.then_some(difference.queue_time_ns()),
            ..op
        };
        groups.entry(group).or_default().add(&Numbers {
            layers: vec![(info.layer, vec![op])],
            ..Numbers::default()
        });
    }
    let Some(measured) = measured else {
        return groups;
    };
    let slots = stack::slots(measured);
    for group in &stacks.new {
        groups.entry(*group).or_default();
    }
    for of in stacks.families.iter().filter(|of| !is_in(without, of.group)) {
        let numbers = groups.entry(of.group).or_default();
        numbers
            .families
            .extend(stack::of_group(measured, &slots, (of.index, &of.counted)));
    }
    for of in stacks.origins.iter().filter(|of| !is_in(without, of.group)) {
        let numbers = groups.entry(of.group).or_default();
        numbers
            .not_waited
            .extend(stack::origin_of_group(measured, (of.index, of.counted)));
    }
    groups
}

/// Whether requests of this op spend time in the queue.
fn waits_in_queue(op: Op) -> bool {
    let mut ops = Layer::Blk.ops().iter().zip(REQUESTS);
    ops.any(|(known, request)| known.op == op && request.queued)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fuzz;
    use crate::model::histogram::{step_of, wider};
    use crate::model::run_info::StackInfo;
    use crate::model::snapshot::increases::{FamilyIncrease, OriginIncrease};

    /// Calls and requests that no call waited for: group, family or origin, time.
    fn increases(all: Vec<(u32, usize, u64)>) -> StackIncreases {
        let mut families: BTreeMap<(u32, usize), FamilyCounters> = BTreeMap::new();
        let mut origins: BTreeMap<(u32, usize), OriginCounters> = BTreeMap::new();
        for (group, index, ns) in all {
            if ns % 5 == 0 {
                let sum = origins.entry((group, index)).or_default();
                *sum = combined(sum, &[1, 4096, ns, ns], u64::wrapping_add);
                continue;
            }
            let family = families.entry((group, index)).or_default();
            family.bytes += 512;
            family.rows[index] += ns;
            family.reached[0] += 1;
            family.steps.add(step_of(ns), 1);
            family.extremes = wider(family.extremes, Some((ns, ns)));
        }
        let families = families.into_iter();
        let origins = origins.into_iter();
        StackIncreases {
            new: Vec::new(),
            families: families
                .map(|((group, index), counted)| FamilyIncrease { group, index, counted })
                .collect(),
            origins: origins
                .map(|((group, index), counted)| OriginIncrease { group, index, counted })
                .collect(),
        }
    }

    /// The order of requests is that in which groups were added.
    fn json(numbers: &Numbers) -> String {
        let mut numbers = numbers.clone();
        numbers
            .not_waited
            .sort_unstable_by_key(|origin| (origin.origin, origin.is_write));
        numbers.families.sort_unstable_by_key(|family| family.family);
        serde_json::to_string(&numbers).unwrap()
    }

    proptest! {
        #![proptest_config(fuzz::config())]

        #[test]
        fn those_that_are_not_named_are_the_sum_of_their_reports(
            all in proptest::collection::vec((0_u32..9, 0_usize..3, 1_u64..1 << 42), 0..60),
            top in 0_usize..7,
        ) {
            let stacks = increases(all);
            let layers = [Layer::Syscall, Layer::Vfs, Layer::Blk];
            let info = StackInfo {
                layers: layers.map(|layer| (layer, true)).to_vec(),
                ..StackInfo::default()
            };
            let nothing = GroupsCounters::default();
            let run = RunInfo::default();
            let report = |top| {
                report((By::Process, top), &run, Some(&Measured::of(&info)), (&nothing, &nothing), &stacks)
            };
            let (each, some) = (report(usize::MAX), report(top));
            let (named, small) = each.groups.split_at(top.min(each.groups.len()));
            prop_assert_eq!(named.len(), some.groups.len());
            for (all, some) in named.iter().zip(&some.groups) {
                prop_assert_eq!(json(&all.numbers), json(&some.numbers));
            }
            let mut others = each.others.unwrap_or_default();
            small.iter().for_each(|group| others.numbers.add(&group.numbers));
            let reported = some.others.unwrap_or_default();
            prop_assert_eq!(json(&others.numbers), json(&reported.numbers));
            prop_assert_eq!(others.groups + small.len() as u64, reported.groups);
            prop_assert_eq!(others.no_room, reported.no_room);
            prop_assert_eq!(json(&each.total), json(&some.total));
        }
    }
}
