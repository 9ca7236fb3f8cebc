//! Whose requests the disks served meanwhile.

use super::string::comm;
use crate::kernel::interface::types::neighbour;
use crate::model::abi::{NEIGHBOUR_FIRST, NEIGHBOURS};
use crate::model::snapshot::{NeighbourCounters, ServedCounters};
use crate::probe::attach::Attached;

/// Reads the counters; `None` if the requests of others are not measured.
pub fn read(attached: &Attached) -> Option<NeighbourCounters> {
    let counters = attached.neighbours.as_ref()?;
    let waits = attached.skeleton.maps.bss_data.as_deref()?.waits;
    let used = (waits.slots_taken + u64::from(NEIGHBOUR_FIRST)).min(NEIGHBOURS.into()) as usize;
    let neighbours = (0..used).flat_map(|index| counters.of_op(index));
    Some(NeighbourCounters {
        neighbours: neighbours.map(|served| served_for(&served)).collect(),
        waited_ns: waits.ns,
        untold_ns: waits.untold_ns,
        disks_full: waits.disks_full,
    })
}

fn served_for(served: &neighbour) -> ServedCounters {
    ServedCounters {
        tgid: served.tgid,
        comm: comm(&served.comm),
        is_kernel: served.is_kernel != 0,
        ns: served.ns,
        requests: served.requests,
        bytes: served.bytes,
    }
}
