//! The counters of groups (`--by`).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::Counters;
use crate::kernel::interface::skeleton::IostackbreakdownSkel;
use crate::kernel::interface::types::{cell_key, family_stats, group, op_stats, origin_stats};
use crate::kernel::interface::{DIRECTIONS, FAMILIES, ORIGINS};
use crate::kernel::owners::KnownOwners;
use crate::model::report::group::{By, Who};
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
    /// The processes that were named last.
    pub who: RefCell<Arc<BTreeMap<u32, Who>>>,
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
            who: RefCell::default(),
        })
    }
}
