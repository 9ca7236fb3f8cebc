//! Whose requests the disks served meanwhile, as the difference of two snapshots.

use crate::model::abi::{NEIGHBOUR_OWN, NEIGHBOUR_REST};
use crate::model::report::neighbour::{Neighbour, Neighbours};
use crate::model::snapshot::{NeighbourCounters, ServedCounters};

/// The difference of two readings.
pub fn report(before: &NeighbourCounters, after: &NeighbourCounters) -> Neighbours {
    let unused = ServedCounters::default();
    let earlier = before.neighbours.iter().chain(std::iter::repeat(&unused));
    let pairs = after.neighbours.iter().zip(earlier).enumerate();
    let mut all: Vec<Neighbour> = pairs
        .map(|(index, (now, then))| Neighbour {
            pid: (index != NEIGHBOUR_REST as usize).then_some(now.tgid),
            comm: (index != NEIGHBOUR_REST as usize).then(|| now.comm.clone()),
            is_kernel_thread: now.is_kernel,
            ns: now.ns.wrapping_sub(then.ns),
            requests: now.requests.wrapping_sub(then.requests),
            bytes: now.bytes.wrapping_sub(then.bytes),
        })
        .collect();
    let own = (all.len() > NEIGHBOUR_OWN as usize).then(|| all.remove(NEIGHBOUR_OWN as usize));
    let own = own.unwrap_or_default();
    let mut others: Vec<Neighbour> = all.into_iter().filter(|other| other.requests > 0).collect();
    others.sort_by_key(|other| std::cmp::Reverse((other.ns, other.requests)));
    Neighbours {
        waited_ns: after.waited_ns.wrapping_sub(before.waited_ns),
        own_ns: own.ns,
        own_requests: own.requests,
        others,
        untold_ns: after.untold_ns.wrapping_sub(before.untold_ns),
        idle_ns: 0,
        unseen: after.disks_full.wrapping_sub(before.disks_full),
    }
    .with_rest()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(waited_ns: u64, neighbours: &[(u32, u64, u64)]) -> NeighbourCounters {
        let neighbour = |&(tgid, ns, requests): &(u32, u64, u64)| ServedCounters {
            tgid,
            ns,
            requests,
            bytes: requests * 4096,
            comm: "rsync".to_owned(),
            ..Default::default()
        };
        NeighbourCounters {
            waited_ns: 1_000 + waited_ns,
            neighbours: neighbours.iter().map(neighbour).collect(),
            ..Default::default()
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
        assert_eq!(report.idle_ns, 87);
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
        assert_eq!(neighbours.with_rest().idle_ns, 40);
    }
}
