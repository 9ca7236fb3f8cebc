//! Computes reports from the data of a run and two snapshots, and from nothing else, so that the same snapshots always
//! give the same report.

mod cause;
mod disks;
mod group;
mod layers;
mod neighbour;
mod op;
pub mod ranking;
pub mod records;
mod stack;
pub mod trigger;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::tz::{Offset, TimeZone};

use crate::model::cost::Detached;
use crate::model::ids::Layer;
use crate::model::report::{Budget, Cost, Probe, Report, group as groups};
use crate::model::run_info::{ProbeInfo, RunInfo, StackInfo};
use crate::model::snapshot::{OpCounters, ProbeCounts, Snapshot, StackIncreases};
use crate::number;

pub use self::stack::Measured;

/// The report of what happened between a snapshot and the next one.
#[must_use]
pub fn report(run: &RunInfo, before: &Snapshot, after: &Snapshot) -> Report {
    let none = StackIncreases::default();
    let groups = after.groups.as_ref();
    report_with(run, before, after, groups.map_or(&none, |groups| &groups.stacks))
}

/// The report before anything has happened.
#[must_use]
pub fn report_of_nothing(run: &RunInfo, start: &Snapshot) -> Report {
    report_with(run, start, start, &StackIncreases::default())
}

/// The groups of the report between any two snapshots. `stacks`: what the whole stack has counted for groups between them.
#[must_use]
pub fn groups(
    run: &RunInfo,
    before: &Snapshot,
    after: &Snapshot,
    stacks: &StackIncreases,
) -> Option<groups::GroupsReport> {
    groups_report(&Span { run, before, after }, stacks, run.top)
}

/// The same with all of the report.
#[must_use]
pub fn report_with(run: &RunInfo, before: &Snapshot, after: &Snapshot, stacks: &StackIncreases) -> Report {
    report_of_largest(run, (before, after), stacks, run.top)
}

/// The same; `top`: how many groups have numbers of their own.
#[must_use]
pub fn report_of_largest(
    run: &RunInfo,
    (before, after): (&Snapshot, &Snapshot),
    stacks: &StackIncreases,
    top: usize,
) -> Report {
    let span = Span { run, before, after };
    let mut layers = layers::report(&span);
    let mut stack = stack_report(&span);
    let groups = groups_report(&span, stacks, top);
    if let Some(groups) = &groups {
        ranking::make_sums(&groups.total, &mut layers, stack.as_mut());
    }
    Report {
        start: before.wall,
        time_of_day: time_of_day(after),
        length: Duration::from_nanos(after.at_ns.saturating_sub(before.at_ns)),
        subject: run.subject.clone(),
        sample: run.sample,
        filter: run.filter.clone(),
        kernel: run.kernel.clone(),
        layers,
        stack,
        groups,
        probes: probes(&span),
        cost: Cost {
            process: Duration::from_nanos(after.own_ns.saturating_sub(before.own_ns)),
            has_runs: run.has_runs,
            no_runs: run.no_runs.clone(),
            budget: run.budget.map(|limit| Budget {
                limit,
                detached: after.detached.clone(),
            }),
        },
        warnings: run.notes.iter().cloned().chain(warnings(&span)).collect(),
    }
}

/// The time of day in the time zone of the run: `11:02:43`.
fn time_of_day(after: &Snapshot) -> String {
    let offset = Offset::from_seconds(after.utc_offset).unwrap_or(Offset::UTC);
    after
        .wall
        .to_zoned(TimeZone::fixed(offset))
        .strftime("%H:%M:%S")
        .to_string()
}

/// What could not be read, or for which there was no room.
fn warnings(span: &Span<'_>) -> Vec<String> {
    let mut warnings = span.after.warnings.clone();
    let not_followed = span.after.not_followed.saturating_sub(span.before.not_followed);
    if not_followed > 0 {
        warnings.push(format!(
            "{} not followed: the table of traced processes was full",
            match not_followed {
                1 => "1 child process was".to_owned(),
                n => format!("{} child processes were", number::thousands(n)),
            }
        ));
    }
    warnings
}

/// The input of a report.
struct Span<'a> {
    run: &'a RunInfo,
    before: &'a Snapshot,
    after: &'a Snapshot,
}

impl<'a> Span<'a> {
    /// How a layer was detached, if it was.
    fn detached(&self, layer: Layer) -> Option<&'a Detached> {
        self.after.detached.iter().find(|detached| detached.layer == layer)
    }

    /// Whether the layer was detached before the span began, so that the span has none of its calls.
    fn is_gone(&self, layer: Layer) -> bool {
        let offset = Duration::from_nanos(self.before.at_ns.saturating_sub(self.run.began_ns));
        let until = self.detached(layer).and_then(|detached| detached.until);
        until.is_some_and(|until| until <= offset)
    }

    /// The counts of the op at this index. An op without counters, which only a damaged file has, counted nothing.
    fn counted(&self, index: usize) -> OpCounters {
        let none = OpCounters::nothing();
        let of = |moment: &'a Snapshot| moment.ops.get(index);
        let [before, after] = [self.before, self.after].map(|moment| of(moment).unwrap_or(&none));
        if Arc::ptr_eq(before, after) && before.extremes.is_none() {
            return OpCounters::default();
        }
        after.since(before)
    }

    /// The kernel's counts for each probe over the span.
    fn probes(&self) -> impl Iterator<Item = (&'a ProbeInfo, ProbeCounts)> {
        let counts = self.before.probes.iter().zip(&self.after.probes);
        let probes = self.run.probes.iter().zip(counts);
        probes.map(|(probe, (before, after))| (probe, after.since(before)))
    }

    /// What of the whole stack was measured; `None` if it was not requested.
    fn measured(&self, slower_ns: Option<u64>) -> Option<Measured<'a>> {
        let detached = self.after.detached.iter();
        let layers = self.run.layers.iter();
        let refused = layers.filter_map(|info| Some((info.layer, info.refused.as_deref()?)));
        Some(Measured {
            slower_ns,
            sample: self.run.sample,
            detached: detached.map(|detached| (detached.layer, since(detached))).collect(),
            gone: Layer::ALL.into_iter().filter(|&layer| self.is_gone(layer)).collect(),
            refused: refused.collect(),
            ..Measured::of(self.run.stack.as_ref()?)
        })
    }
}

impl<'a> Measured<'a> {
    /// With nothing detached.
    #[must_use]
    pub fn of(info: &'a StackInfo) -> Self {
        Self {
            info,
            sample: None,
            slower_ns: None,
            detached: BTreeMap::new(),
            gone: BTreeSet::new(),
            refused: BTreeMap::new(),
        }
    }
}

/// When a layer was detached, and why.
fn since(detached: &Detached) -> String {
    format!(
        "detached {} after the start, to stay within --budget",
        number::length(detached.after)
    )
}

fn stack_report(span: &Span<'_>) -> Option<crate::model::report::stack::StackReport> {
    let measured = span.measured(span.run.slower_ns)?;
    Some(stack::report(
        &measured,
        span.before.stack.as_ref()?,
        span.after.stack.as_ref()?,
    ))
}

fn groups_report(span: &Span<'_>, stacks: &StackIncreases, top: usize) -> Option<groups::GroupsReport> {
    let measured = span.measured(None);
    let of_both = (span.before.groups.as_ref()?, span.after.groups.as_ref()?);
    Some(group::report(
        (span.run.by?, top),
        span.run,
        measured.as_ref(),
        of_both,
        stacks,
    ))
}

fn probes(span: &Span<'_>) -> Vec<Probe> {
    span.probes()
        .map(|(probe, counts)| Probe {
            layer: probe.layer,
            hook: probe.hook,
            functions: probe.functions.clone(),
            entry: counts.entry,
            leave: counts.leave,
            skipped: counts.skipped,
        })
        .collect()
}
