//! The report of a longer span, as the sum of those of its parts.

use super::group::{GroupsReport, OthersReport, add_family, add_op, add_origin, add_to, added, merge};
use super::neighbour::Neighbours;
use super::stack::StackReport;
use super::{Agreement, Cost, Diskstats, LayerReport, Loss, NotMeasured, OpReport, Probe, Report, Runs, SetAside};

impl Report {
    /// Adds the report of the span that follows. Both are of the same run: what does not change during a run stays
    /// unchanged.
    ///
    /// A group that was among the others of one span has the rest of its numbers there: the numbers of groups are lower
    /// bounds, while the total is exact.
    pub fn add(&mut self, later: &Self) {
        self.time_of_day.clone_from(&later.time_of_day);
        self.length = self.length.saturating_add(later.length);
        for layer in &later.layers {
            match self.layers.iter_mut().find(|known| known.layer == layer.layer) {
                Some(known) => known.add(layer),
                None => self.layers.push(layer.clone()),
            }
        }
        either(&mut self.stack, later.stack.as_ref(), StackReport::add);
        either(&mut self.groups, later.groups.as_ref(), GroupsReport::add);
        for (probe, later) in self.probes.iter_mut().zip(&later.probes) {
            probe.add(later);
        }
        self.cost.add(&later.cost);
        add_new(&mut self.warnings, &later.warnings);
    }
}

/// Adds to a part of a report that one of them may lack.
fn either<T: Clone>(sum: &mut Option<T>, later: Option<&T>, add: impl Fn(&mut T, &T)) {
    match (sum, later) {
        (Some(sum), Some(later)) => add(sum, later),
        (sum @ None, Some(later)) => *sum = Some(later.clone()),
        (_, None) => {}
    }
}

/// Appends what is not yet in the list.
fn add_new<T: Clone + PartialEq>(all: &mut Vec<T>, later: &[T]) {
    for one in later {
        if !all.contains(one) {
            all.push(one.clone());
        }
    }
}

/// The same by what is missing: a reason may contain a number that changes.
fn add_missing(all: &mut Vec<NotMeasured>, later: &[NotMeasured]) {
    for one in later {
        match all.iter_mut().find(|known| known.what == one.what) {
            Some(known) => known.reason.clone_from(&one.reason),
            None => all.push(one.clone()),
        }
    }
}

fn add_losses(sum: &mut Vec<Loss>, later: &[Loss]) {
    for loss in later {
        let is_same = |known: &&mut Loss| known.reason == loss.reason && known.cause == loss.cause;
        match sum.iter_mut().find(is_same) {
            Some(known) => {
                add_to(&mut known.count, loss.count);
                known.up_to |= loss.up_to;
            }
            None => sum.push(loss.clone()),
        }
    }
}

impl LayerReport {
    fn add(&mut self, later: &Self) {
        merge(&mut self.ops, &later.ops, |op| op.op, add_whole_op);
        add_missing(&mut self.not_measured, &later.not_measured);
        for op in &later.absent {
            let is_known = self.ops.iter().any(|known| known.op.name() == op.what);
            if !is_known {
                add_missing(&mut self.absent, std::slice::from_ref(op));
            }
        }
        add_new(&mut self.partial, &later.partial);
        add_new(&mut self.hooks, &later.hooks);
        self.excluded.add(later.excluded);
        add_losses(&mut self.losses, &later.losses);
        self.skips_unknown |= later.skips_unknown;
        self.losses_unknown |= later.losses_unknown;
        self.in_flight = later.in_flight;
        add_new(&mut self.warnings, &later.warnings);
        either(&mut self.diskstats, later.diskstats.as_ref(), Diskstats::add);
        either(&mut self.neighbours, later.neighbours.as_ref(), Neighbours::add);
    }
}

/// An op with its errors by number, which groups do not have.
fn add_whole_op(sum: &mut OpReport, later: &OpReport) {
    let (errors, unnamed) = (sum.errors.clone(), sum.errors_unnamed);
    add_op(sum, later);
    sum.errors = errors;
    for (errno, n) in &later.errors {
        match sum.errors.iter_mut().find(|(known, _)| known == errno) {
            Some((_, sum)) => add_to(sum, *n),
            None => sum.errors.push((*errno, *n)),
        }
    }
    sum.errors.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    sum.errors_unnamed = unnamed.saturating_add(later.errors_unnamed);
    add_losses(&mut sum.losses, &later.losses);
    add_to(&mut sum.queued, later.queued);
    let SetAside {
        at_start,
        never_issued,
        by_kernel,
        unowned,
        untimed,
    } = later.set_aside;
    let aside = &mut sum.set_aside;
    add_to(&mut aside.at_start, at_start);
    add_to(&mut aside.never_issued, never_issued);
    add_to(&mut aside.by_kernel, by_kernel);
    add_to(&mut aside.unowned, unowned);
    add_to(&mut aside.untimed, untimed);
}

impl StackReport {
    fn add(&mut self, later: &Self) {
        merge(&mut self.families, &later.families, |family| family.family, add_family);
        either(&mut self.not_waited, later.not_waited.as_ref(), |sum, later| {
            merge(sum, later, |origin| (origin.origin, origin.is_write), add_origin);
        });
        let (sum, more) = (&mut self.unbalanced, later.unbalanced);
        add_to(&mut sum.entries, more.entries);
        add_to(&mut sum.returns, more.returns);
        add_to(&mut sum.too_deep, more.too_deep);
        add_to(&mut sum.sleeps, more.sleeps);
        add_missing(&mut self.not_measured, &later.not_measured);
        either(&mut self.slow, later.slow.as_ref(), |sum, later| {
            add_to(&mut sum.reported, later.reported);
            add_to(&mut sum.left_out.limited, later.left_out.limited);
            add_to(&mut sum.left_out.no_room, later.left_out.no_room);
        });
    }
}

impl GroupsReport {
    fn add(&mut self, later: &Self) {
        for group in &later.groups {
            match self.groups.iter_mut().find(|known| known.who == group.who) {
                Some(known) => known.numbers.add(&group.numbers),
                None => self.groups.push(group.clone()),
            }
        }
        either(&mut self.others, later.others.as_ref(), OthersReport::add);
        self.total.add(&later.total);
        self.groups.sort_by_key(|group| std::cmp::Reverse(group.numbers.ns()));
    }
}

impl OthersReport {
    /// The same groups may be among the others of both.
    fn add(&mut self, later: &Self) {
        self.groups = self.groups.max(later.groups);
        add_to(&mut self.no_room, later.no_room);
        self.numbers.add(&later.numbers);
    }
}

impl Neighbours {
    fn add(&mut self, later: &Self) {
        for (sum, more) in [
            (&mut self.waited_ns, later.waited_ns),
            (&mut self.own_ns, later.own_ns),
            (&mut self.own_requests, later.own_requests),
            (&mut self.untold_ns, later.untold_ns),
            (&mut self.idle_ns, later.idle_ns),
            (&mut self.unseen, later.unseen),
        ] {
            add_to(sum, more);
        }
        for other in &later.others {
            match self.others.iter_mut().find(|known| known.pid == other.pid) {
                Some(known) => {
                    add_to(&mut known.ns, other.ns);
                    add_to(&mut known.requests, other.requests);
                    add_to(&mut known.bytes, other.bytes);
                    known.comm.clone_from(&other.comm);
                }
                None => self.others.push(other.clone()),
            }
        }
        self.others.sort_by_key(|other| std::cmp::Reverse(other.ns));
    }
}

impl Diskstats {
    /// If the counts of one span differ or cannot be compared, so do those of both.
    fn add(&mut self, later: &Self) {
        add_to(&mut self.reads, later.reads);
        add_to(&mut self.writes, later.writes);
        add_to(&mut self.discards, later.discards);
        self.flushes = self
            .flushes
            .zip(later.flushes)
            .map(|(sum, more)| sum.saturating_add(more));
        if self.agreement == Agreement::Agrees {
            self.agreement.clone_from(&later.agreement);
        }
    }
}

impl Probe {
    fn add(&mut self, later: &Self) {
        let ran = |sum: &mut Runs, more: &Runs| {
            add_to(&mut sum.count, more.count);
            add_to(&mut sum.ns, more.ns);
        };
        either(&mut self.entry, later.entry.as_ref(), ran);
        either(&mut self.leave, later.leave.as_ref(), ran);
        self.skipped = added(self.skipped, later.skipped);
    }
}

impl Cost {
    fn add(&mut self, later: &Self) {
        self.process = self.process.saturating_add(later.process);
        self.has_runs &= later.has_runs;
        if self.no_runs.is_none() {
            self.no_runs.clone_from(&later.no_runs);
        }
        // It lists all layers detached so far.
        self.budget.clone_from(&later.budget);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::ids::{By, Family, Layer, LossReason, Op, Row};
    use crate::model::report::group::{GroupReport, Numbers, Who};
    use crate::model::report::stack::{FamilyReport, RowReport};

    fn family(ns: u64) -> FamilyReport {
        let mut family = FamilyReport {
            total_ns: ns,
            extremes: Some((ns, ns)),
            rows: vec![RowReport {
                row: Row::Device,
                ns: Some(ns),
                calls: None,
            }],
            ..FamilyReport::new(Family::Read)
        };
        family.histogram.record(ns);
        family
    }

    fn part(ns: u64, who: &str, errno: i32) -> Report {
        let numbers = Numbers {
            families: vec![family(ns)],
            ..Numbers::default()
        };
        let mut op = OpReport::new(Op::Read);
        op.errors = vec![(errno, 1)];
        op.histogram.record(ns);
        let loss = Loss {
            reason: LossReason::TableFull,
            count: 2,
            up_to: false,
            cause: None,
        };
        Report {
            length: Duration::from_secs(1),
            time_of_day: who.to_owned(),
            layers: vec![LayerReport {
                ops: vec![op],
                losses: vec![loss],
                in_flight: Some(ns),
                ..LayerReport::new(Layer::Syscall)
            }],
            stack: Some(StackReport {
                families: vec![family(ns)],
                ..StackReport::default()
            }),
            groups: Some(GroupsReport {
                by: By::Disk,
                groups: vec![GroupReport {
                    who: Who::Disk { name: who.to_owned() },
                    numbers: numbers.clone(),
                }],
                others: None,
                total: numbers,
            }),
            ..Report::default()
        }
    }

    #[test]
    fn a_sum_has_the_numbers_of_all_parts() {
        let mut sum = part(5, "a", 5);
        sum.add(&part(9, "b", 11));
        sum.add(&part(70, "b", 11));
        assert_eq!(sum.length, Duration::from_secs(3));
        assert_eq!(sum.time_of_day, "b");
        let stack = sum.stack.as_ref().unwrap();
        assert_eq!(stack.families[0].count(), 3);
        assert_eq!(stack.families[0].rows[0].ns, Some(84));
        assert_eq!(stack.families[0].extremes, Some((5, 70)));
        let layer = &sum.layers[0];
        assert_eq!(layer.ops[0].errors, [(11, 2), (5, 1)]);
        assert_eq!(layer.ops[0].error_count(), 3);
        assert_eq!((layer.lost(), layer.losses.len(), layer.in_flight), (6, 1, Some(70)));
        let groups = sum.groups.as_ref().unwrap();
        let names: Vec<String> = groups.groups.iter().map(|group| group.who.name()).collect();
        assert_eq!(names, ["b", "a"], "the largest first");
        assert_eq!(groups.groups[0].numbers.ns(), 79);
        assert_eq!(groups.total.ns(), 84);
    }

    #[test]
    fn what_one_part_lacks_is_that_of_the_other() {
        let mut sum = part(5, "a", 5);
        sum.stack = None;
        sum.add(&part(9, "b", 5));
        assert_eq!(sum.stack.as_ref().unwrap().families[0].total_ns, 9);
        let mut last = part(9, "b", 5);
        last.stack = None;
        sum.add(&last);
        assert_eq!(sum.stack.unwrap().families[0].total_ns, 9);
    }
}
