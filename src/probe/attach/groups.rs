//! The counters of groups (`--by`).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::mem::offset_of;
use std::sync::Arc;

use super::Counters;
use crate::kernel::interface::skeleton::IostackbreakdownSkel;
use crate::kernel::interface::types::{cell_key, family_stats, group, op_stats, origin_stats};
use crate::kernel::interface::{DIRECTIONS, FAMILIES, ORIGINS, ROW_SYSCALL};
use crate::kernel::names::ProcessNames;
use crate::kernel::owners::KnownOwners;
use crate::model::report::group::{By, Who};
use crate::model::snapshot::{FamilyCounters, StackCounters};
use crate::probe::attach::AttachError;

/// The maps of groups; unlike other counters, they are not per CPU.
#[derive(Debug)]
pub struct AttachedGroups {
    pub by: By,
    /// The groups by their number.
    pub groups: Counters<group>,
    pub counters: GroupCounters,
    /// By which control groups are named.
    pub owners: RefCell<KnownOwners>,
    /// By which processes are named.
    pub processes: RefCell<ProcessNames>,
    /// The processes that were named last.
    pub who: RefCell<Arc<BTreeMap<u32, Who>>>,
    /// What was read last of the whole-stack view: most of it is the same at the next time.
    pub last: RefCell<LastStacks>,
}

/// The first words of a family: those up to the count of calls. Each call changes one of them.
pub const FIRST_WORDS: usize = offset_of!(family_stats, reached) / size_of::<u64>() + ROW_SYSCALL as usize + 1;

/// What was read last of the whole-stack view.
#[derive(Debug, Default)]
pub struct LastStacks {
    /// By group.
    pub stacks: BTreeMap<u32, StackCounters>,
    /// Those of each element of the table of families, one after the other: all are compared each time.
    pub first_words: Vec<u64>,
    /// The elements of families that had changed.
    pub called: Vec<usize>,
}

impl LastStacks {
    /// Makes it have these groups, whose numbers ascend.
    pub fn keep(&mut self, groups: &[u32]) {
        let room = groups.last().map_or(0, |last| (last + 1) * FAMILIES) as usize * FIRST_WORDS;
        if self.first_words.len() < room {
            self.first_words.resize(room, 0);
        }
        let new = StackCounters {
            families: vec![Arc::default(); FAMILIES as usize],
            origins: Arc::new(vec![[0; 4]; (ORIGINS * DIRECTIONS) as usize]),
        };
        for group in groups {
            self.stacks.entry(*group).or_insert_with(|| new.clone());
        }
        // One that a second CPU had begun for the same owner; it has counted nothing.
        if self.stacks.len() > groups.len() {
            self.stacks.retain(|group, _| groups.binary_search(group).is_ok());
        }
    }

    /// The family of an element; `None`: its group is not known.
    pub fn family(&mut self, element: usize) -> Option<&mut Arc<FamilyCounters>> {
        let (group, family) = (element as u32 / FAMILIES, element % FAMILIES as usize);
        self.stacks.get_mut(&group)?.families.get_mut(family)
    }
}

/// The counters of groups.
#[derive(Debug)]
pub enum GroupCounters {
    /// The counters of an op of a group, and the group and op of each element. The first elements, one for each row of
    /// counters, count calls of groups without an element of their own because the map was full.
    Ops {
        cells: Counters<op_stats>,
        keys: Counters<cell_key>,
    },
    /// The whole-stack view: `families` by group and family, `origins` by group, origin and direction.
    Stack {
        families: Counters<family_stats>,
        origins: Counters<origin_stats>,
    },
}

impl AttachedGroups {
    /// Maps the counters.
    ///
    /// # Errors
    /// The error of the kernel.
    pub(super) fn map(skeleton: &IostackbreakdownSkel<'_>, by: By, whole_stack: bool) -> Result<Self, AttachError> {
        let maps = &skeleton.maps;
        let cannot = |name| move |error: std::io::Error| AttachError::Map(name, error.into());
        let counters = if whole_stack {
            let origins = (ORIGINS * DIRECTIONS) as usize;
            GroupCounters::Stack {
                families: Counters::map(&maps.group_families, FAMILIES as usize).map_err(cannot("group_families"))?,
                origins: Counters::map(&maps.group_origins, origins).map_err(cannot("group_origins"))?,
            }
        } else {
            GroupCounters::Ops {
                cells: Counters::map(&maps.group_cells, 1).map_err(cannot("group_cells"))?,
                keys: Counters::map(&maps.cell_keys, 1).map_err(cannot("cell_keys"))?,
            }
        };
        Ok(Self {
            by,
            groups: Counters::map(&maps.groups, 1).map_err(cannot("groups"))?,
            counters,
            owners: RefCell::default(),
            processes: RefCell::default(),
            who: RefCell::default(),
            last: RefCell::default(),
        })
    }
}
