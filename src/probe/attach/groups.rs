//! The counters of groups, for `--by`.

use super::Counters;
use crate::kernel::interface::skeleton::IostackbreakdownSkel;
use crate::kernel::interface::types::{cell_key, family_stats, group, op_stats, origin_stats};
use crate::kernel::interface::{DIRECTIONS, FAMILIES, ORIGINS};
use crate::model::report::group::By;
use crate::probe::attach::AttachError;

/// All of them are shared by the CPUs.
#[derive(Debug)]
pub struct AttachedGroups {
    pub by: By,
    /// By number.
    pub groups: Counters<group>,
    pub counters: GroupCounters,
}

/// What is counted of groups.
#[derive(Debug)]
pub enum GroupCounters {
    /// Ops of groups, and whose each of them is; before those, as many as there are rows, of calls that found no room.
    Ops {
        cells: Counters<op_stats>,
        keys: Counters<cell_key>,
    },
    /// The whole stack's view, by number and family, and by number, origin and direction.
    Stack {
        families: Counters<family_stats>,
        origins: Counters<origin_stats>,
    },
}

impl AttachedGroups {
    /// Maps them.
    ///
    /// # Errors
    /// What the kernel says.
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
        })
    }
}
