//! The groups of a report: the difference of two snapshots.

use std::collections::BTreeMap;

use super::stack::{self, Measured};
use crate::analyse::ranking::{in_steps, largest, merged};
use crate::catalog::REQUESTS;
use crate::model::abi::{GROUP_NO_ROOM, GROUP_NONE};
use crate::model::ids::{By, Layer, Op};
use crate::model::report::OpReport;
use crate::model::report::group::{GroupsReport, Numbers, Who};
use crate::model::run_info::RunInfo;
use crate::model::snapshot::{GroupsCounters, OpCounters, StackIncreases};

/// The difference of two snapshots. `measured`: what is measured of the whole stack, of which `stacks` has the difference.
pub fn report(
    by: By,
    run: &RunInfo,
    measured: Option<&Measured<'_>>,
    (before, after): (&GroupsCounters, &GroupsCounters),
    stacks: &StackIncreases,
) -> GroupsReport {
    let mut numbers = numbers(run, measured, (before, after), stacks);
    let left_over = numbers.remove(&GROUP_NO_ROOM).unwrap_or_default();
    let who = |group: u32| match group {
        GROUP_NONE => Who::Unknown(by),
        _ => after.who.get(&group).cloned().unwrap_or(Who::Unknown(by)),
    };
    if by == By::Process {
        let numbers = numbers.into_iter().map(|(group, numbers)| (u64::from(group), numbers));
        return largest(by, numbers.collect(), left_over, run.top).named(|number| who(number as u32));
    }
    // A disk includes its partitions' calls, and a path those of all files that had it one after another.
    let named = numbers.into_iter().map(|(group, numbers)| (who(group), numbers));
    let (all, numbers): (Vec<Who>, Vec<Numbers>) = merged(named).into_iter().unzip();
    let ranked = largest(by, (0..).zip(numbers).collect(), left_over, run.top);
    ranked.named(|index| all.get(index as usize).cloned().unwrap_or(Who::Unknown(by)))
}

/// What each group counted between the snapshots.
fn numbers(
    run: &RunInfo,
    measured: Option<&Measured<'_>>,
    (before, after): (&GroupsCounters, &GroupsCounters),
    stacks: &StackIncreases,
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
    for of in &stacks.families {
        let numbers = groups.entry(of.group).or_default();
        numbers
            .families
            .extend(stack::of_group(measured, &slots, (of.index, &of.counted)));
    }
    for of in &stacks.origins {
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
