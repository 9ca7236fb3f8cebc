//! Whose requests the disks served meanwhile: counters, and what a report says of the difference of two readings.

use crate::kernel::interface::types::{neighbour, waits};
use crate::kernel::interface::{NEIGHBOUR_FIRST, NEIGHBOUR_OWN, NEIGHBOUR_REST, NEIGHBOURS};
use crate::probe::attach::Attached;
use crate::report::neighbour::{Neighbour, Neighbours};

/// All of it at one moment.
#[derive(Debug, Clone, Default)]
pub struct NeighbourReading {
    waits: waits,
    /// By place; those that nobody has had so far are left out.
    neighbours: Vec<neighbour>,
}

/// Reads it; `None` where nobody is told apart.
pub fn read(attached: &Attached) -> Option<NeighbourReading> {
    let counters = attached.neighbours.as_ref()?;
    let waits = attached.skeleton.maps.bss_data.as_deref()?.waits;
    let places = (waits.places + u64::from(NEIGHBOUR_FIRST)).min(NEIGHBOURS.into()) as usize;
    Some(NeighbourReading {
        neighbours: (0..places).flat_map(|place| counters.of_op(place)).collect(),
        waits,
    })
}

/// The difference of two readings.
pub fn report(before: &NeighbourReading, after: &NeighbourReading) -> Neighbours {
    let nobody = neighbour::default();
    let earlier = before.neighbours.iter().chain(std::iter::repeat(&nobody));
    let pairs = after.neighbours.iter().zip(earlier).enumerate();
    let mut all: Vec<Neighbour> = pairs
        .map(|(place, (now, then))| Neighbour {
            pid: (place != NEIGHBOUR_REST as usize).then_some(now.tgid),
            comm: (place != NEIGHBOUR_REST as usize).then(|| name(&now.comm)),
            is_kernel_thread: now.is_kernel != 0,
            ns: now.ns.wrapping_sub(then.ns),
            requests: now.requests.wrapping_sub(then.requests),
            bytes: now.bytes.wrapping_sub(then.bytes),
        })
        .collect();
    let own = (all.len() > NEIGHBOUR_OWN as usize).then(|| all.remove(NEIGHBOUR_OWN as usize));
    let own = own.unwrap_or_default();
    let mut others: Vec<Neighbour> = all.into_iter().filter(|other| other.requests > 0).collect();
    others.sort_by_key(|other| std::cmp::Reverse((other.ns, other.requests)));
    let (now, then) = (&after.waits, &before.waits);
    Neighbours {
        waited_ns: now.ns.wrapping_sub(then.ns),
        own_ns: own.ns,
        own_requests: own.requests,
        others,
        untold_ns: now.untold_ns.wrapping_sub(then.untold_ns),
        unseen: now.disks_full.wrapping_sub(then.disks_full),
    }
}

fn name(comm: &[u64]) -> String {
    let bytes: Vec<u8> = comm.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(waited_ns: u64, neighbours: &[(u32, u64, u64)]) -> NeighbourReading {
        let neighbour = |&(tgid, ns, requests): &(u32, u64, u64)| neighbour {
            tgid,
            ns,
            requests,
            bytes: requests * 4096,
            comm: [u64::from_ne_bytes(*b"rsync\0\0\0"), 0],
            ..Default::default()
        };
        NeighbourReading {
            waits: waits {
                ns: 1_000 + waited_ns,
                ..Default::default()
            },
            neighbours: neighbours.iter().map(neighbour).collect(),
        }
    }

    #[test]
    fn a_report_is_the_difference_and_the_busiest_come_first() {
        let before = reading(100, &[(0, 0, 0), (0, 70, 1), (7, 50, 5)]);
        let after = reading(1_000, &[(0, 3, 1), (0, 370, 31), (7, 60, 6), (8, 0, 0), (9, 500, 2)]);
        let report = report(&before, &after);
        let others: Vec<_> = report
            .others
            .iter()
            .map(|o| (o.pid, o.ns, o.requests, o.bytes))
            .collect();
        assert_eq!(
            others,
            [(Some(9), 500, 2, 8192), (Some(7), 10, 1, 4096), (None, 3, 1, 4096)]
        );
        assert_eq!(report.others[0].comm.as_deref(), Some("rsync"));
        assert_eq!(report.others[2].comm, None);
        assert_eq!((report.waited_ns, report.own_ns, report.own_requests), (900, 300, 30));
        assert_eq!(report.idle_ns(), 87);
    }

    #[test]
    fn what_no_part_has_is_idle() {
        let neighbours = Neighbours {
            waited_ns: 100,
            own_ns: 30,
            untold_ns: 5,
            others: vec![Neighbour {
                ns: 25,
                ..Default::default()
            }],
            ..Default::default()
        };
        assert_eq!(neighbours.idle_ns(), 40);
    }
}
