//! The counters of groups, and what a report says of the difference of two readings.

use std::collections::BTreeMap;
use std::mem::offset_of;

use super::op::OpReading;
use super::slow::text;
use super::stack::{self, FamilyReading, Measured, Origins};
use crate::kernel::interface::types::{self, cell_key, family_stats, op_stats, origin_stats};
use crate::kernel::interface::{DIRECTIONS, FAMILIES, GROUP_FIRST, GROUP_NONE, GROUP_UNPLACED, ORIGINS};
use crate::kernel::names::{self, Names};
use crate::layer::{Layer, Op, REQUESTS};
use crate::probe::attach::{AttachedGroups, GroupCounters};
use crate::probe::counters::Counters;
use crate::probe::plan::Plan;
use crate::report::OpReport;
use crate::report::group::{By, GroupsReport, Numbers, Who, in_steps, largest, merged};
use crate::report::slow::{CallPath, Inode, PathKind};

/// All groups at one moment. What was not counted so far is not in it.
#[derive(Debug, Clone, Default)]
pub struct GroupsReading {
    /// By group and row.
    ops: BTreeMap<(u32, u32), OpReading>,
    /// By group; of the whole stack's view.
    stacks: BTreeMap<u32, (Vec<FamilyReading>, Origins)>,
}

impl GroupsReading {
    /// As [`OpReading::hold_back`].
    pub fn hold_back(&mut self, earlier: &Self) {
        let none = OpReading::default();
        for (key, op) in &mut self.ops {
            op.hold_back(earlier.ops.get(key).unwrap_or(&none));
        }
        for (group, (families, _)) in &mut self.stacks {
            let earlier = earlier.stacks.get(group).map_or(&[][..], |(families, _)| families);
            stack::hold_back(families, earlier);
        }
    }
}

/// Reads all of them; see [`super::read`] for `epoch`.
pub fn read(groups: &AttachedGroups, plan: &Plan, epoch: u64) -> GroupsReading {
    match &groups.counters {
        GroupCounters::Ops { cells, keys } => GroupsReading {
            ops: read_ops(cells, keys, plan.rows(), epoch),
            ..GroupsReading::default()
        },
        GroupCounters::Stack { families, origins } => {
            let of_group = |group| (group, read_stack(families, origins, group, epoch));
            GroupsReading {
                stacks: known(groups).map(of_group).collect(),
                ..GroupsReading::default()
            }
        }
    }
}

/// By group and row. The first `rows` cells are those of calls that found no room.
fn read_ops(
    cells: &Counters<op_stats>,
    keys: &Counters<cell_key>,
    rows: usize,
    epoch: u64,
) -> BTreeMap<(u32, u32), OpReading> {
    let mut ops: BTreeMap<(u32, u32), OpReading> = BTreeMap::new();
    for place in 0..cells.len() {
        let key = match keys.element(place) {
            _ if place < rows => (GROUP_UNPLACED, place as u32),
            Some(key) if key.group != GROUP_UNPLACED => (key.group, key.row),
            _ => continue,
        };
        if let Some(cell) = cells.element(place) {
            ops.entry(key).or_default().add(&cell, epoch);
        }
    }
    ops
}

fn read_stack(
    families: &Counters<family_stats>,
    origins: &Counters<origin_stats>,
    group: u32,
    epoch: u64,
) -> (Vec<FamilyReading>, Origins) {
    let family = |place: u32| {
        let found = families.element((group * FAMILIES + place) as usize);
        found.map(|family| FamilyReading::of(&family, epoch))
    };
    let origin = |place: u32| {
        let found = origins.element((group * ORIGINS * DIRECTIONS + place) as usize);
        found.map(stack::origin).unwrap_or_default()
    };
    (
        (0..FAMILIES).filter_map(family).collect(),
        (0..ORIGINS * DIRECTIONS).map(origin).collect(),
    )
}

/// Numbers of groups that there are, the two that are nobody's among them.
fn known(groups: &AttachedGroups) -> impl Iterator<Item = u32> {
    const IS_KNOWN: usize = offset_of!(types::group, is_known) / size_of::<u64>();
    let all = 0..groups.groups.len() as u32;
    all.filter(|&group| group < GROUP_FIRST || groups.groups.word(group as usize, IS_KNOWN) == Some(1))
}

/// What there is besides the readings to make a report of.
pub struct GroupSpan<'a> {
    pub plan: &'a Plan,
    pub measured: Option<&'a Measured>,
    /// Times of requests include the queue, and the part of it is known.
    pub queued: bool,
    pub top: usize,
}

/// The difference of two readings.
pub fn report(
    groups: &AttachedGroups,
    span: &GroupSpan<'_>,
    before: &GroupsReading,
    after: &GroupsReading,
    names: &dyn Names,
) -> GroupsReport {
    let mut numbers = numbers(span, before, after);
    let left_over = numbers.remove(&GROUP_UNPLACED).unwrap_or_default();
    if groups.by == By::Process {
        let numbers = numbers.into_iter().map(|(group, numbers)| (u64::from(group), numbers));
        let ranked = largest(groups.by, numbers.collect(), left_over, span.top);
        return ranked.named(|number| who(groups, number as u32, names));
    }
    // A disk has its partitions' calls, and a path those of all files that had it one after the other.
    let named = numbers
        .into_iter()
        .map(|(group, numbers)| (who(groups, group, names), numbers));
    let (all, numbers): (Vec<Who>, Vec<Numbers>) = merged(named).into_iter().unzip();
    let ranked = largest(groups.by, (0..).zip(numbers).collect(), left_over, span.top);
    ranked.named(|place| all.get(place as usize).cloned().unwrap_or(Who::Nobody(groups.by)))
}

/// What each group has counted between the readings.
fn numbers(span: &GroupSpan<'_>, before: &GroupsReading, after: &GroupsReading) -> BTreeMap<u32, Numbers> {
    let mut groups: BTreeMap<u32, Numbers> = BTreeMap::new();
    let none = OpReading::default();
    for (key, reading) in &after.ops {
        let (group, row) = *key;
        let Some(planned) = span.plan.ops.get(row as usize) else {
            continue;
        };
        let difference = reading.since(before.ops.get(key).unwrap_or(&none));
        let op = difference.report(planned.spec.op, planned.spec.moves_bytes);
        if op.count() == 0 {
            continue;
        }
        let is_queued = span.queued && planned.layer == Layer::Blk && waits_in_queue(planned.spec.op);
        let op = OpReport {
            extremes: in_steps(op.extremes, &op.histogram, op.total_ns),
            queue_ns: is_queued.then_some(difference.queue_ns()),
            ..op
        };
        groups.entry(group).or_default().add(&Numbers {
            layers: vec![(planned.layer, vec![op])],
            ..Numbers::default()
        });
    }
    let Some(measured) = span.measured else {
        return groups;
    };
    for (group, (families, origins)) in &after.stacks {
        let earlier = before.stacks.get(group);
        let (families, not_waited) = stack::of_group(
            measured,
            earlier.map(|(families, origins)| (&families[..], origins)),
            (families, origins),
        );
        groups.insert(
            *group,
            Numbers {
                families,
                not_waited,
                ..Numbers::default()
            },
        );
    }
    groups
}

/// Whether requests of this op have a time in the queue.
fn waits_in_queue(op: Op) -> bool {
    let mut ops = Layer::Blk.ops().iter().zip(REQUESTS);
    ops.any(|(known, request)| known.op == op && request.queued)
}

/// Whose group this is.
fn who(groups: &AttachedGroups, number: u32, names: &dyn Names) -> Who {
    match number {
        GROUP_NONE => Who::Nobody(groups.by),
        _ => groups
            .groups
            .element(number as usize)
            .map_or(Who::Nobody(groups.by), |group| describe(groups.by, &group, names)),
    }
}

/// What is written about a group, and what is known of it elsewhere.
fn describe(by: By, group: &types::group, names: &dyn Names) -> Who {
    let comm: Vec<u8> = group.comm.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let recorded = || text(comm.split(|byte| *byte == 0).next().unwrap_or_default());
    let pieces = || names::pieces(&group.names, group.names_length);
    match by {
        By::Process => Who::Process {
            pid: group.number,
            // It may have a new name since, and if it has ended, the last one is here.
            comm: names.process(group.number, group.more).unwrap_or_else(recorded),
        },
        By::File => {
            let device = (group.more >> 32) as u32;
            let (major, minor) = names::numbers_of(device);
            let inode = Inode {
                number: group.number,
                major,
                minor,
            };
            Who::File {
                inode: Some(inode),
                path: names::path(u32::from(group.path), &pieces()).map(|path| mounted(path, names.mount(device))),
            }
        }
        By::Disk => Who::Disk {
            name: names.disk(group.number as u32, pieces().first().map(String::as_str)),
        },
        By::Cgroup => Who::Cgroup {
            path: match names::path(u32::from(group.path), &pieces()) {
                Some(path) => path.text,
                None => format!("… ({})", group.number),
            },
        },
    }
}

/// A name from the root of its file system, made one from the root.
fn mounted(path: CallPath, mount: Option<String>) -> CallPath {
    match (path.kind, mount) {
        (PathKind::Inside, Some(mount)) => CallPath {
            kind: PathKind::Whole,
            text: format!("{}{}", mount.trim_end_matches('/'), path.text),
        },
        (PathKind::Inside, None) => CallPath {
            kind: PathKind::Cut,
            text: format!("…{}", path.text),
        },
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine that lists no disk.
    struct Nothing;

    impl Names for Nothing {
        fn process(&self, _: u64, _: u64) -> Option<String> {
            None
        }

        fn disk(&self, device: u32, recorded: Option<&str>) -> String {
            format!("{device} {recorded:?}")
        }

        fn mount(&self, _: u32) -> Option<String> {
            None
        }
    }

    #[test]
    fn a_disk_is_looked_for_with_the_name_that_was_recorded() {
        let mut group = types::group {
            number: 7,
            ..Default::default()
        };
        let name = |group: &types::group| describe(By::Disk, group, &Nothing).name();
        assert_eq!(name(&group), "7 None");
        let recorded = b"nvme0c0n1\0";
        group.names[..recorded.len()].copy_from_slice(recorded);
        group.names_length = recorded.len() as u32;
        assert_eq!(name(&group), "7 Some(\"nvme0c0n1\")");
    }
}
