//! The counters of groups, and their names.

use std::collections::BTreeMap;
use std::mem::offset_of;
use std::sync::Arc;

use super::op;
use super::stack::LastRead;
use super::string::{comm, is_comm};
use crate::kernel::interface::types::{self, cell_key, op_stats};
use crate::kernel::names::{self, Machine, Names};
use crate::kernel::owners::KnownOwners;
use crate::model::abi::{GROUP_FIRST, GROUP_NO_ROOM};
use crate::model::ids::{By, PathKind};
use crate::model::report::group::Who;
use crate::model::report::slow::{CallPath, Inode};
use crate::model::snapshot::{GroupsCounters, OpCounters};
use crate::probe::attach::{AttachedGroups, GroupCounters};
use crate::probe::plan::Plan;
use crate::sys::counters::Counters;

/// Reads all of them; those of the whole stack since `last`. `taken`: how many numbers of groups the programs have taken;
/// see [`super::read`] for `epoch`.
pub fn read(groups: &AttachedGroups, plan: &Plan, taken: u64, epoch: u64, last: &mut LastRead) -> GroupsCounters {
    let mut read = GroupsCounters::default();
    let mut numbered: Vec<u32> = match &groups.counters {
        GroupCounters::Ops { cells, keys } => {
            read.ops = read_ops(cells, keys, plan.counters(), epoch);
            read.ops.keys().map(|(group, _)| *group).collect()
        }
        GroupCounters::Stack { families, origins } => {
            let known: Vec<u32> = known(groups, taken).collect();
            read.stacks = last.read((families, origins), &known, epoch);
            known
        }
    };
    numbered.retain(|group| *group >= GROUP_FIRST);
    numbered.dedup();
    if numbered.is_empty() {
        return read;
    }
    read.who = match groups.by {
        By::Process => processes(groups, &numbered),
        _ => Arc::new(others(groups, numbered)),
    };
    read
}

/// The processes of groups. Snapshots share them, unless one is new or renamed.
fn processes(groups: &AttachedGroups, numbered: &[u32]) -> Arc<BTreeMap<u32, Who>> {
    const NUMBER: usize = offset_of!(types::group, number) / size_of::<u64>();
    const COMM: usize = offset_of!(types::group, comm) / size_of::<u64>();
    let mut known = groups.who.borrow_mut();
    for &number in numbered {
        let word = |word| groups.groups.word(number as usize, word);
        let (Some(pid), Some(first), Some(second)) = (word(NUMBER), word(COMM), word(COMM + 1)) else {
            continue;
        };
        let name = [first, second];
        let is_known =
            |who: &Who| matches!(who, Who::Process { pid: known, comm } if *known == pid && is_comm(comm, name));
        if known.get(&number).is_some_and(is_known) {
            continue;
        }
        let who = Who::Process { pid, comm: comm(&name) };
        if known.get(&number) != Some(&who) {
            Arc::make_mut(&mut known).insert(number, who);
        }
    }
    Arc::clone(&known)
}

/// The names of groups that are no processes.
fn others(groups: &AttachedGroups, numbered: Vec<u32>) -> BTreeMap<u32, Who> {
    let machine = Machine::now();
    let mut owners = groups.owners.borrow_mut();
    if groups.by.has_names_in_files() {
        owners.refresh();
    }
    let numbered = numbered.into_iter().filter_map(|number| {
        let group = groups.groups.element(number as usize)?;
        Some((number, describe(groups.by, &group, &machine, &mut owners)))
    });
    numbered.collect()
}

/// By group and row. The first `rows` cells are those of calls without room for their group.
fn read_ops(
    cells: &Counters<op_stats>,
    keys: &Counters<cell_key>,
    rows: usize,
    epoch: u64,
) -> BTreeMap<(u32, u32), OpCounters> {
    let mut ops: BTreeMap<(u32, u32), OpCounters> = BTreeMap::new();
    for index in 0..cells.len() {
        let key = match keys.element(index) {
            _ if index < rows => (GROUP_NO_ROOM, index as u32),
            Some(key) if key.group != GROUP_NO_ROOM => (key.group, key.counter),
            _ => continue,
        };
        if let Some(cell) = cells.element(index) {
            op::add(ops.entry(key).or_default(), &cell, epoch);
        }
    }
    ops
}

/// Numbers of the existing groups, including the two without an owner. `taken`: as above; numbers beyond have no group.
fn known(groups: &AttachedGroups, taken: u64) -> impl Iterator<Item = u32> {
    const IS_KNOWN: usize = offset_of!(types::group, is_known) / size_of::<u64>();
    let room = groups.groups.len() as u32;
    let end = u32::try_from(taken).map_or(room, |taken| room.min(taken.saturating_add(GROUP_FIRST)));
    (0..end).filter(|&group| group < GROUP_FIRST || groups.groups.word(group as usize, IS_KNOWN) == Some(1))
}

/// The name of a group, from its record and from other sources.
fn describe(by: By, group: &types::group, names: &dyn Names, owners: &mut KnownOwners) -> Who {
    let pieces = || names::pieces(&group.names, group.names_length);
    match by {
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
        By::Cgroup | By::Unit | By::Pod | By::Container => match names::path(u32::from(group.path), &pieces()) {
            Some(path) => owners.who(by, path.text),
            None => Who::Cgroup {
                path: format!("… ({})", group.number),
            },
        },
        // Processes are named otherwise, and by the rest only records are grouped.
        By::Process | By::Thread | By::Comm | By::Fd | By::User => Who::Unknown(by),
    }
}

/// Turns a name relative to the root of its file system into an absolute one.
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

    /// A machine without disks.
    struct Nothing;

    impl Names for Nothing {
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
        let name = |group: &types::group| describe(By::Disk, group, &Nothing, &mut KnownOwners::default()).name();
        assert_eq!(name(&group), "7 None");
        let recorded = b"nvme0c0n1\0";
        group.names[..recorded.len()].copy_from_slice(recorded);
        group.names_length = recorded.len() as u32;
        assert_eq!(name(&group), "7 Some(\"nvme0c0n1\")");
    }
}
