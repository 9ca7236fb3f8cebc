//! Converts hand-written reports to the counters from which the tool would calculate them: the facts about a run, and
//! snapshots at the beginning and the end of the report's span.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use iostackbreakdown::analyse;
use iostackbreakdown::model::abi::{
    ASIDE_AT_START, ASIDE_BY_KERNEL, ASIDE_NEVER_ISSUED, ASIDE_UNOWNED, ASIDE_UNTIMED, DIRECTIONS, EXCLUDED_CHARACTER,
    EXCLUDED_OTHER, EXCLUDED_PIPE, EXCLUDED_SOCKET, GROUP_NO_ROOM, GROUP_NONE, LOST_CLOCK, LOST_RETURN, LOST_STORAGE,
    LOST_TABLE_FULL, SLOW_LIMITED, SLOW_NO_ROOM, SLOW_REPORTED, UNBALANCED_DEPTH, UNBALANCED_ENTRY, UNBALANCED_RETURN,
    UNBALANCED_SLEEP,
};
use iostackbreakdown::model::histogram::{Histogram, STEPS, step_of};
use iostackbreakdown::model::ids::{CauseKind, Family, Hook, Layer, LossReason, Origin, ReadClass, Row};
use iostackbreakdown::model::report::group::Numbers;
use iostackbreakdown::model::report::neighbour::Neighbours;
use iostackbreakdown::model::report::stack::{FamilyReport, OriginReport, StackReport};
use iostackbreakdown::model::report::{Agreement, AttachPoint, Diskstats, LayerReport, OpReport, Report, nanoseconds};
use iostackbreakdown::model::run_info::{
    BlockEvent, BlockInfo, DisksInfo, LayerInfo, OpInfo, ProbeInfo, RunInfo, StackInfo,
};
use iostackbreakdown::model::snapshot::{
    DiskCounters, FamilyCounters, GroupsCounters, NeighbourCounters, OpCounters, OriginCounters, ProbeCounts,
    ServedCounters, Snapshot, StackCounters, StackIncreases, StackTotals, UnderWay,
};
use iostackbreakdown::source::saved::Keeper;

use super::{Part, Split, groups};

/// The time of the first snapshot, in nanoseconds since the start of the run.
const BEFORE_NS: u64 = 5_000_000_000;
/// The date of all reports.
const DAY: &str = "2026-11-20";
/// The prefix of the reason why a detached layer is missing. It is not copied to the counters, since the tool derives
/// it from the list of detached layers.
const DETACHED: &str = "detached ";

/// The inputs of a report.
pub struct Kept {
    pub run: RunInfo,
    pub before: Snapshot,
    pub after: Snapshot,
}

impl Kept {
    pub fn of(part: &Part) -> Self {
        let report = &part.whole;
        let mut probes = probes(report);
        let run = RunInfo {
            by: part.split.map(|split| split.by),
            top: part.split.map_or(0, |split| split.top),
            ..run(report, &probes)
        };
        let counts = probes.iter_mut().map(|(_, counts)| std::mem::take(counts)).collect();
        let after = Snapshot {
            probes: counts,
            groups: part.split.map(|split| groups_counters(report, split, &run)),
            ..after(report)
        };
        Self {
            before: before(report, &after),
            run,
            after,
        }
    }

    pub fn report(&self) -> Report {
        analyse::report(&self.run, &self.before, &self.after)
    }

    /// The report without numbers that begins the output of a run.
    pub fn first_report(&self) -> Report {
        analyse::report(&self.run, &self.before, &self.before)
    }

    /// Writes the file that `--from-snapshots` reads.
    pub fn save(&self, path: &Path) -> Result<(), String> {
        let mut keeper = Keeper::create(path).map_err(|cause| cause.line)?;
        keeper.run(&self.run)?;
        keeper.snapshot(&self.before)?;
        keeper.snapshot(&self.after)
    }
}

fn run(report: &Report, probes: &[(ProbeInfo, ProbeCounts)]) -> RunInfo {
    let blk = report.layers.iter().find(|layer| layer.layer == Layer::Blk);
    let losses = report.layers.iter().flat_map(|layer| &layer.losses);
    let ops = report.layers.iter().flat_map(|layer| {
        let hook = hook(layer);
        layer.ops.iter().map(move |op| op_info(layer.layer, hook, op))
    });
    RunInfo {
        kernel: report.kernel.clone(),
        subject: report.subject.clone(),
        filter: report.filter.clone(),
        is_filtered: losses.clone().any(|loss| loss.up_to),
        slower_ns: report.stack.as_ref().and_then(|stack| Some(stack.slow?.threshold_ns)),
        has_runs: report.cost.has_runs,
        no_runs: report.cost.no_runs.clone(),
        budget: report.cost.budget.as_ref().map(|budget| budget.limit),
        layers: report.layers.iter().map(layer_info).collect(),
        ops: ops.collect(),
        probes: probes.iter().map(|(probe, _)| probe.clone()).collect(),
        block: blk.map(block_info),
        stack: report.stack.as_ref().map(stack_info),
        disks: blk.and_then(|blk| blk.diskstats.as_ref()).map(|stats| DisksInfo {
            is_partition: stats.flushes.is_none(),
            ..DisksInfo::default()
        }),
        ..RunInfo::default()
    }
}

fn hook(layer: &LayerReport) -> Hook {
    let usual = match layer.layer {
        Layer::Blk => Hook::RawTracepoint,
        _ => Hook::Fentry,
    };
    layer.hooks.first().copied().unwrap_or(usual)
}

fn op_info(layer: Layer, hook: Hook, op: &OpReport) -> OpInfo {
    OpInfo {
        layer,
        op: op.op,
        moves_bytes: op.bytes.is_some(),
        points: [AttachPoint {
            function: format!("{layer}_{}", op.op),
            hook,
        }]
        .into(),
        refused: [].into(),
        not_measured: Vec::new(),
        absent: None,
        is_partial: false,
    }
}

fn layer_info(layer: &LayerReport) -> LayerInfo {
    let missing = || {
        let missing = layer.not_measured.iter();
        missing.filter(|missing| !missing.reason.starts_with(DETACHED))
    };
    let everything = missing().find(|missing| missing.what == "everything");
    LayerInfo {
        layer: layer.layer,
        refused: everything.map(|everything| everything.reason.clone()),
        not_measured: missing().cloned().collect(),
        completions_skip_interrupts: !layer.warnings.is_empty(),
    }
}

const ISSUE: (&str, &str) = ("block_rq_issue", "blk_mq_start_request");
const END: (&str, &str) = ("block_rq_complete", "blk_update_request");

fn block_info(layer: &LayerReport) -> BlockInfo {
    let event = |(tracepoint, function): (&str, &str)| BlockEvent {
        tracepoint: tracepoint.to_owned(),
        functions: vec![function.to_owned()],
    };
    BlockInfo {
        hook: hook(layer),
        is_bio_based: false,
        issue: event(ISSUE),
        end: event(END),
        queue_from: layer.queue_from.clone(),
        lossy: None,
        flags: BTreeMap::new(),
    }
}

/// The probes of the report. For layers without probes in the report, probes with the counts that result in its losses.
fn probes(report: &Report) -> Vec<(ProbeInfo, ProbeCounts)> {
    let known = report.probes.iter().map(|probe| {
        let info = ProbeInfo {
            layer: probe.layer,
            hook: probe.hook,
            functions: probe.functions.clone(),
        };
        let counts = ProbeCounts {
            entry: probe.entry,
            leave: probe.leave,
            skipped: probe.skipped,
            skipped_alone: None,
        };
        (info, counts)
    });
    let has_probes = |layer: &&LayerReport| report.probes.iter().any(|probe| probe.layer == Some(layer.layer));
    let others = report.layers.iter().filter(|layer| !has_probes(layer));
    known.chain(others.flat_map(probes_of)).collect()
}

fn probes_of(layer: &LayerReport) -> Vec<(ProbeInfo, ProbeCounts)> {
    let probe = |function: &str, counts| {
        let info = ProbeInfo {
            layer: Some(layer.layer),
            hook: hook(layer),
            functions: vec![function.to_owned()],
        };
        (info, counts)
    };
    let lost = |reason| layer.losses.iter().filter(move |loss| loss.reason == reason);
    let entries = lost(LossReason::EntryMissed).map(|loss| loss.count).sum();
    let skipped = ProbeCounts {
        skipped: Some(entries),
        ..ProbeCounts::default()
    };
    if layer.layer != Layer::Blk {
        return vec![probe("any", skipped)];
    }
    // The counts of skipped runs of the programs on an event; `None`: the kernel does not count them.
    let events = [(LossReason::ReturnMissed, END), (LossReason::IssueMissed, ISSUE)];
    let mut probes = vec![probe("another", skipped)];
    for (reason, (tracepoint, function)) in events {
        let causes: Vec<_> = lost(reason)
            .filter_map(|loss| Some((loss.count, loss.cause.as_ref()?)))
            .collect();
        let is_counted = !causes.is_empty();
        let skips = causes.iter().filter(|(_, cause)| cause.kind == CauseKind::Skipped);
        let counts = ProbeCounts {
            skipped_alone: is_counted.then_some(skips.map(|(count, _)| count).sum()),
            ..ProbeCounts::default()
        };
        let programs = causes.first().map_or(1, |(_, cause)| cause.programs);
        let on = if hook(layer) == Hook::RawTracepoint {
            tracepoint
        } else {
            function
        };
        probes.extend((0..programs).map(|_| probe(on, counts)));
    }
    probes
}

fn before(report: &Report, after: &Snapshot) -> Snapshot {
    let no_family = |_: &Arc<FamilyCounters>| Arc::default();
    Snapshot {
        at_ns: BEFORE_NS,
        wall: report.start,
        utc_offset: 0,
        ops: vec![OpCounters::nothing(); after.ops.len()],
        probes: vec![ProbeCounts::default(); after.probes.len()],
        own_ns: 0,
        not_followed: 0,
        stack: after.stack.as_ref().map(|stack| StackCounters {
            families: stack.families.iter().map(no_family).collect(),
            origins: Arc::new(vec![OriginCounters::default(); stack.origins.len()]),
        }),
        groups: after.groups.as_ref().map(|_| GroupsCounters::default()),
        neighbours: after.neighbours.as_ref().map(|_| NeighbourCounters::default()),
        disks: after.disks.map(|counters| {
            counters.map(|last| DiskCounters {
                disks: last.disks,
                ..DiskCounters::default()
            })
        }),
        under_way: None,
        detached: Vec::new(),
        unread: None,
        warnings: Vec::new(),
    }
}

fn after(report: &Report) -> Snapshot {
    let blk = report.layers.iter().find(|layer| layer.layer == Layer::Blk);
    let under_way: BTreeMap<Layer, u64> = report
        .layers
        .iter()
        .filter_map(|layer| Some((layer.layer, layer.in_flight?)))
        .collect();
    Snapshot {
        at_ns: BEFORE_NS + nanoseconds(report.length),
        wall: format!("{DAY}T{}Z", report.time_of_day).parse().unwrap(),
        utc_offset: 0,
        ops: report.layers.iter().flat_map(ops_counters).map(Arc::new).collect(),
        probes: Vec::new(),
        own_ns: nanoseconds(report.cost.process),
        not_followed: 0,
        stack: report.stack.as_ref().map(stack_counters),
        groups: None,
        neighbours: blk.and_then(|blk| blk.neighbours.as_ref()).map(neighbour_counters),
        disks: blk.and_then(|blk| blk.diskstats.as_ref()).map(disk_counters),
        under_way: (!under_way.is_empty()).then_some(UnderWay {
            by_layer: under_way,
            in_cookies: Vec::new(),
        }),
        detached: report
            .cost
            .budget
            .iter()
            .flat_map(|budget| budget.detached.clone())
            .collect(),
        unread: None,
        warnings: report.warnings.clone(),
    }
}

fn steps(histogram: &Histogram) -> Vec<u64> {
    let mut steps = vec![0; STEPS];
    for bucket in histogram.buckets() {
        steps[step_of(bucket.ge)] = bucket.count;
    }
    steps
}

fn wide(counts: &[u64]) -> Vec<u128> {
    counts.iter().copied().map(u128::from).collect()
}

fn op_counters(op: &OpReport) -> OpCounters {
    OpCounters {
        total_ns: op.total_ns.into(),
        bytes: op.bytes.unwrap_or(0).into(),
        errors: op.errors.iter().map(|(_, n)| u128::from(*n)).sum::<u128>() + u128::from(op.errors_unnamed),
        queued: op.queued.into(),
        queue_ns: op.queue_ns.unwrap_or(0).into(),
        extremes: op.extremes,
        errnos: op.errors.iter().map(|(errno, n)| (*errno, u128::from(*n))).collect(),
        steps: wide(&steps(&op.histogram)),
        unit_slots: wide(&op.unit_slots),
        ..OpCounters::default()
    }
}

/// The counters of the ops of a layer. Excluded calls and losses of the layer are counted at its first op.
fn ops_counters(layer: &LayerReport) -> Vec<OpCounters> {
    let mut ops: Vec<OpCounters> = layer.ops.iter().map(op_counters).collect();
    if layer.layer == Layer::Blk {
        for (counters, op) in ops.iter_mut().zip(&layer.ops) {
            for (kind, requests) in [
                (ASIDE_AT_START, op.set_aside.at_start),
                (ASIDE_NEVER_ISSUED, op.set_aside.never_issued),
                (ASIDE_BY_KERNEL, op.set_aside.by_kernel),
                (ASIDE_UNOWNED, op.set_aside.unowned),
                (ASIDE_UNTIMED, op.set_aside.untimed),
            ] {
                counters.set_aside[kind as usize] = requests.into();
            }
        }
    }
    let Some(first) = ops.first_mut() else { return ops };
    if layer.layer != Layer::Blk {
        for (kind, calls) in [
            (EXCLUDED_SOCKET, layer.excluded.socket),
            (EXCLUDED_PIPE, layer.excluded.pipe),
            (EXCLUDED_CHARACTER, layer.excluded.character_device),
            (EXCLUDED_OTHER, layer.excluded.other),
        ] {
            first.set_aside[kind as usize] = calls.into();
        }
    }
    for loss in &layer.losses {
        let kind = match loss.reason {
            LossReason::ReturnMissed => LOST_RETURN,
            LossReason::NoStorage => LOST_STORAGE,
            LossReason::TableFull => LOST_TABLE_FULL,
            LossReason::ClockBackwards => LOST_CLOCK,
            LossReason::IssueMissed => {
                first.unmatched_ends += u128::from(loss.count);
                continue;
            }
            // This loss is in the counts of the probes.
            LossReason::EntryMissed => continue,
        };
        first.lost[kind as usize] += u128::from(loss.count);
    }
    ops
}

fn disk_counters(stats: &Diskstats) -> [DiskCounters; 2] {
    assert!(!matches!(stats.agreement, Agreement::NotComparable(_)));
    [DiskCounters {
        reads: stats.reads,
        writes: stats.writes,
        discards: stats.discards,
        flushes: stats.flushes.unwrap_or(0),
        disks: 1,
        added: 0,
    }; 2]
}

/// The counters of processes by slot: the first one is for all processes without a slot, the second for the selected
/// processes.
fn neighbour_counters(neighbours: &Neighbours) -> NeighbourCounters {
    let mut served = vec![ServedCounters::default(); 2];
    served[1].ns = neighbours.own_ns;
    served[1].requests = neighbours.own_requests;
    for other in &neighbours.others {
        let counters = ServedCounters {
            tgid: other.pid.unwrap_or(0),
            comm: other.comm.clone().unwrap_or_default(),
            is_kernel: other.is_kernel_thread,
            ns: other.ns,
            requests: other.requests,
            bytes: other.bytes,
        };
        match other.pid {
            Some(_) => served.push(counters),
            None => served[0] = counters,
        }
    }
    NeighbourCounters {
        waited_ns: neighbours.waited_ns,
        untold_ns: neighbours.untold_ns,
        disks_full: neighbours.unseen,
        neighbours: served,
    }
}

fn stack_info(stack: &StackReport) -> StackInfo {
    let rows = &stack.families[0].rows;
    let is_measured = |row: Row| rows.iter().any(|known| known.row == row && known.ns.is_some());
    let layers = rows.iter().filter_map(|row| match row.row {
        Row::Layer(layer) => Some((layer, row.ns.is_some())),
        _ => None,
    });
    let seen = [Row::Journal, Row::Lock].into_iter().filter(|row| is_measured(*row));
    StackInfo {
        layers: layers.chain([(Layer::Blk, is_measured(Row::Device))]).collect(),
        seen: seen.collect(),
    }
}

fn stack_counters(stack: &StackReport) -> StackCounters {
    let mut counters = StackCounters {
        families: families_counters(&stack.families),
        origins: origins_counters(stack.not_waited.as_deref().unwrap_or_default()),
    };
    let first = Arc::make_mut(&mut counters.families[0]);
    let unbalanced = stack.unbalanced;
    first.unbalanced[UNBALANCED_ENTRY as usize] = unbalanced.entries;
    first.unbalanced[UNBALANCED_RETURN as usize] = unbalanced.returns;
    first.unbalanced[UNBALANCED_DEPTH as usize] = unbalanced.too_deep;
    first.unbalanced[UNBALANCED_SLEEP as usize] = unbalanced.sleeps;
    if let Some(slow) = &stack.slow {
        first.slow[SLOW_REPORTED as usize] = slow.reported;
        first.slow[SLOW_LIMITED as usize] = slow.left_out.limited;
        first.slow[SLOW_NO_ROOM as usize] = slow.left_out.no_room;
    }
    counters
}

fn families_counters(families: &[FamilyReport]) -> Vec<Arc<FamilyCounters>> {
    let of = |family| families.iter().find(|known| known.family == family);
    let counters =
        Family::ALL.map(|family| of(family).map_or_else(Arc::default, |family| Arc::new(family_counters(family))));
    counters.into()
}

fn family_counters(family: &FamilyReport) -> FamilyCounters {
    let mut counters = FamilyCounters {
        bytes: family.bytes,
        errors: family.errors,
        steps: steps(&family.histogram)[..].into(),
        extremes: family.extremes,
        ..FamilyCounters::default()
    };
    for row in &family.rows {
        let Some(slot) = row.row.slot(family.rows.iter().filter_map(|row| row.row.layer())) else {
            continue;
        };
        counters.rows[slot] = row.ns.unwrap_or(0);
        counters.reached[slot] = row.calls.unwrap_or(0);
    }
    for class in &family.classes {
        let index = ReadClass::ALL.iter().position(|known| *known == class.class).unwrap();
        (counters.class_calls[index], counters.class_bytes[index]) = (class.calls, class.bytes);
    }
    counters
}

fn origins_counters(origins: &[OriginReport]) -> Arc<Vec<OriginCounters>> {
    let mut counters = vec![OriginCounters::default(); Origin::ALL.len() * DIRECTIONS as usize];
    for origin in origins {
        let index = Origin::ALL.iter().position(|known| *known == origin.origin).unwrap();
        counters[index * DIRECTIONS as usize + usize::from(origin.is_write)] =
            [origin.requests, origin.bytes, origin.queue_ns, origin.device_ns];
    }
    Arc::new(counters)
}

/// The counters of groups. Their numbers are derived from their parts, and follow the reserved numbers.
fn groups_counters(report: &Report, split: Split, run: &RunInfo) -> GroupsCounters {
    let mut counters = GroupsCounters::default();
    let mut stacks = StackTotals::new();
    let mut add = |group: u32, numbers: Numbers| {
        for (layer, ops) in &numbers.layers {
            for op in ops {
                let mut ops = run.ops_of(*layer);
                let (index, _) = ops.find(|(_, known)| known.op == op.op).unwrap();
                counters.ops.insert((group, index as u32), op_counters(op));
            }
        }
        if report.stack.is_some() {
            let stack = StackCounters {
                families: families_counters(&numbers.families),
                origins: origins_counters(&numbers.not_waited),
            };
            stacks.insert(group, stack);
        }
    };
    for parts in groups::PARTS {
        add(group_of(parts), groups::split(report, parts));
    }
    if split.no_room > 0 {
        add(GROUP_NO_ROOM, groups::split(report, split.no_room));
    }
    let who = groups::PARTS.map(|parts| (group_of(parts), groups::who(split.by, parts)));
    counters.who = Arc::new(who.into());
    counters.stacks = StackIncreases::since(&StackTotals::new(), &stacks);
    counters
}

fn group_of(parts: u64) -> u32 {
    GROUP_NONE + parts as u32
}
