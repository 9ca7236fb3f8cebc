//! Comparison with the kernel's own counters of disks over the same span.

use crate::catalog::{Counter, REQUESTS};
use crate::model::report::{Agreement, Diskstats, OpReport};
use crate::model::run_info::DisksInfo;
use crate::model::snapshot::DiskCounters;
use crate::number::thousands;

impl DiskCounters {
    fn get(&self, counter: Counter) -> u64 {
        match counter {
            Counter::Reads => self.reads,
            Counter::Writes => self.writes,
            Counter::Discards => self.discards,
            Counter::Flushes => self.flushes,
        }
    }

    /// The increase since `earlier`. Counters wrap as the kernel's do.
    fn since(self, earlier: Self) -> Self {
        Self {
            reads: self.reads.wrapping_sub(earlier.reads),
            writes: self.writes.wrapping_sub(earlier.writes),
            discards: self.discards.wrapping_sub(earlier.discards),
            flushes: self.flushes.wrapping_sub(earlier.flushes),
            disks: self.disks,
            added: self.added,
        }
    }
}

/// The kernel's counts of the span, and whether they agree with ours: `first` and `last` are its counters before and
/// after our readings at the start and at the end. Its increase is at most that from the first reading at the start to
/// the last one at the end, and at least that from the last one at the start to the first one at the end.
pub fn report(disks: &DisksInfo, first: [DiskCounters; 2], last: [DiskCounters; 2], ops: &[OpReport]) -> Diskstats {
    let moments = [first[0], first[1], last[0], last[1]];
    let is_gone = moments.iter().any(|moment| moment.disks != moments[0].disks);
    let is_added = moments.iter().any(|moment| moment.added > 0);
    let (most, least) = if is_gone {
        Default::default()
    } else {
        (last[1].since(first[0]), last[0].since(first[1]))
    };
    let ended = |counter: Option<Counter>| {
        let counted = ops.iter().zip(REQUESTS);
        let of_it = counted.filter(|(_, request)| request.counted_as == counter);
        of_it.fold(0u64, |sum, (op, _)| sum.saturating_add(op.requests_ended()))
    };
    let seen = |counter: Counter| ended(Some(counter));
    // Any of these may be a read or a write to the kernel.
    let doubtful = |counter: Counter| match counter {
        Counter::Reads | Counter::Writes => ended(None),
        Counter::Discards | Counter::Flushes => 0,
    };
    let differs = |counter: Counter| {
        let most_seen = seen(counter).saturating_add(doubtful(counter));
        seen(counter) > most.get(counter) || most_seen < least.get(counter)
    };
    // Reading takes time, during which the kernel counts on: of the possible values, take the one nearest to ours.
    let nearest = |counter: Counter| seen(counter).max(least.get(counter)).min(most.get(counter));
    let counters = [
        (Counter::Reads, "reads"),
        (Counter::Writes, "writes"),
        (Counter::Discards, "discards"),
        (Counter::Flushes, "flushes"),
    ];
    let counters = counters
        .into_iter()
        .filter(|(counter, _)| !(disks.is_partition && *counter == Counter::Flushes));
    let differences: Vec<String> = counters
        .filter(|&(counter, _)| differs(counter))
        .map(|(counter, name)| {
            let [theirs, ours] = [nearest(counter), seen(counter)].map(thousands);
            format!("it counted {theirs} {name}, this run {ours}")
        })
        .collect();
    let agreement = if is_gone {
        Agreement::NotComparable("a disk was removed during the run".to_owned())
    } else if disks.is_uncounted {
        Agreement::NotComparable("statistics of a disk are off (queue/iostats is 0)".to_owned())
    } else if disks.is_bio_based {
        Agreement::NotComparable("this driver counts the parts into which it splits bios".to_owned())
    } else if differences.is_empty() {
        Agreement::Agrees
    } else if is_added {
        Agreement::NotComparable("a disk was added during the run".to_owned())
    } else {
        Agreement::Differs(differences.join("; "))
    };
    Diskstats {
        reads: nearest(Counter::Reads),
        writes: nearest(Counter::Writes),
        discards: nearest(Counter::Discards),
        flushes: (!disks.is_partition).then_some(nearest(Counter::Flushes)),
        agreement,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Layer;
    use crate::model::ids::Op;
    use crate::model::report::SetAside;

    /// The kernel's reads before and after each of our readings, and the result for `seen`.
    fn reported(first: [u64; 2], last: [u64; 2], seen: u64) -> Diskstats {
        let op = ended(Op::Read, seen);
        report(&DisksInfo::default(), first.map(reads), last.map(reads), &[op])
    }

    fn reads(reads: u64) -> DiskCounters {
        DiskCounters {
            reads,
            disks: 1,
            ..DiskCounters::default()
        }
    }

    fn ended(op: Op, requests: u64) -> OpReport {
        OpReport {
            set_aside: SetAside {
                at_start: requests,
                ..SetAside::default()
            },
            ..OpReport::new(op)
        }
    }

    #[test]
    fn commands_may_be_reads_or_writes_or_neither_to_the_kernel() {
        // The order of the table of requests decides which of them an op is.
        let ops: Vec<OpReport> = Layer::Blk
            .ops()
            .iter()
            .map(|spec| match spec.op {
                Op::Read => ended(Op::Read, 4),
                Op::ZoneMgmt => ended(Op::ZoneMgmt, 2),
                Op::Driver => ended(Op::Driver, 1),
                op => ended(op, 0),
            })
            .collect();
        for (counted, agrees) in [(3, false), (4, true), (6, true), (7, true), (8, false)] {
            let diskstats = report(&DisksInfo::default(), [reads(0); 2], [reads(counted); 2], &ops);
            assert_eq!(diskstats.agreement == Agreement::Agrees, agrees, "{counted}");
        }
    }

    /// The programs see its requests.
    #[test]
    fn a_disk_that_is_added_explains_a_difference() {
        let last = |added| DiskCounters { added, ..reads(4) };
        let with = |added, seen| {
            let op = ended(Op::Read, seen);
            report(&DisksInfo::default(), [reads(0); 2], [reads(4), last(added)], &[op]).agreement
        };
        let reason = "a disk was added during the run".to_owned();
        assert_eq!(with(1, 9), Agreement::NotComparable(reason));
        assert_eq!(with(1, 4), Agreement::Agrees);
        assert!(matches!(with(0, 9), Agreement::Differs(_)));
    }

    #[test]
    fn recordings_of_earlier_versions_have_no_added_disks() {
        let text = r#"{"reads":4,"writes":0,"discards":0,"flushes":0,"disks":1}"#;
        assert_eq!(serde_json::from_str::<DiskCounters>(text).unwrap(), reads(4));
    }

    #[test]
    fn counters_may_wrap() {
        let stats = |reads, writes| DiskCounters {
            reads,
            writes,
            ..DiskCounters::default()
        };
        assert_eq!(stats(1, 5).since(stats(u64::MAX, 3)), stats(2, 2));
    }

    #[test]
    fn the_kernel_counts_on_while_it_is_read() {
        let reads = |seen| {
            let reported = reported([100, 104], [200, 210], seen);
            (reported.reads, reported.agreement)
        };
        assert_eq!(reads(96), (96, Agreement::Agrees));
        assert_eq!(reads(103), (103, Agreement::Agrees));
        assert_eq!(reads(110), (110, Agreement::Agrees));
        assert_eq!(
            reads(95),
            (96, Agreement::Differs("it counted 96 reads, this run 95".to_owned()))
        );
        assert_eq!(
            reads(111),
            (110, Agreement::Differs("it counted 110 reads, this run 111".to_owned()))
        );
    }
}
