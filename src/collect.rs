//! Reads the kernel side's counters and makes reports of their differences.

mod cause;
mod group;
mod neighbour;
mod op;
mod slow;
mod stack;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use libbpf_rs::MapCore;

use self::cause::Seen;
use self::group::{GroupSpan, GroupsReading};
use self::neighbour::NeighbourReading;
use self::op::OpReading;
use crate::budget::{CpuTimes, Detached};
use crate::kernel::Facts;
use crate::kernel::diskstats::Diskstats;
use crate::kernel::interface::types::{
    async_call, binned, bio_place, bio_state, request_place, request_state, thread_state,
};
use crate::kernel::interface::{LOST_CLOCK, LOST_REASONS, LOST_RETURN, LOST_STORAGE, LOST_TABLE_FULL, REQUEST_ISSUED};
use crate::kernel::names::Machine;
use crate::layer::{COMPAT, Counter, Layer, REQUESTS};
use crate::probe::attach::{Attached, AttachedOp, ProbeCounts};
use crate::probe::binned::BinnedCounters;
use crate::probe::counters::Counters;
use crate::probe::plan::{Plan, PlannedOp, function_name, loses, loses_requests};
use crate::probe::{Hook, PointWord};
use crate::probe::{attach, program, table};
use crate::report::group::GroupsReport;
use crate::report::slow::{LeftOut, SlowCall};
use crate::report::stack::StackReport;
use crate::report::text::number;
use crate::report::{self, Agreement, AttachPoint, LayerReport, Loss, LossReason, NotMeasured, OpReport, Refused};

pub use self::slow::Clocks;
use self::stack::{Measured, StackReading};

/// All counters at one moment, every CPU together.
#[derive(Debug, Clone)]
pub struct Reading {
    pub at: Instant,
    /// The same moment by the clock on the wall, which may be set while we run.
    pub wall: Timestamp,
    /// In the order of the plan.
    ops: Vec<OpReading>,
    /// In the order of [`Attached::probes`].
    probes: Vec<ProbeCounts>,
    /// CPU time of this process so far.
    own: Duration,
    /// Children that did not fit into the set of traced processes.
    pub not_followed: u64,
    /// The whole stack's, where it was asked for.
    stack: Option<StackReading>,
    /// Those of groups, where they were asked for.
    groups: Option<GroupsReading>,
    /// Where others' requests are looked at, too.
    neighbours: Option<NeighbourReading>,
    /// Why the last usual calls are not among those of the ops, where they could not be read.
    unread: Option<ReadError>,
}

impl Reading {
    /// See [`OpReading::hold_back`]; `earlier` is the reading before.
    pub fn hold_back(&mut self, earlier: &Self) {
        for (op, earlier) in self.ops.iter_mut().zip(&earlier.ops) {
            op.hold_back(earlier);
        }
        if let (Some(stack), Some(earlier)) = (&mut self.stack, &earlier.stack) {
            stack.hold_back(earlier);
        }
        if let (Some(groups), Some(earlier)) = (&mut self.groups, &earlier.groups) {
            groups.hold_back(earlier);
        }
    }
}

/// Why the calls under way could not be read.
#[derive(Debug, Clone)]
pub struct ReadError(String);

impl std::fmt::Display for ReadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl From<libbpf_rs::Error> for ReadError {
    fn from(error: libbpf_rs::Error) -> Self {
        Self(error.to_string())
    }
}

/// Reads everything. `epoch` is the generation of the extremes that ends; calls that were counted since the next one
/// began are in the counts, so its extremes are looked at too. `counts_runs` says that the kernel counts the programs' runs.
#[must_use]
pub fn read(attached: &Attached, plan: &Plan, epoch: u64, counts_runs: bool) -> Reading {
    let completions: BTreeMap<usize, usize> = plan.completion_rows().collect();
    let (usual, unread) = usual_calls(attached);
    let unit_ns = attached
        .skeleton
        .maps
        .rodata_data
        .map_or(0, |rodata| rodata.config.unit_ns);
    let op = |index| {
        let mut merged = OpReading::default();
        for row in [Some(index), completions.get(&index).copied()].into_iter().flatten() {
            attached.counters.of_op(row).for_each(|cpu| merged.add(&cpu, epoch));
        }
        let cpus = usual.iter().filter(|(op, _)| *op == index);
        cpus.for_each(|(_, cpu)| merged.add_binned(cpu, unit_ns));
        merged
    };
    Reading {
        at: Instant::now(),
        wall: Timestamp::now(),
        ops: (0..attached.ops.len()).map(op).collect(),
        unread,
        probes: probe_counts(attached, counts_runs),
        own: own_time(),
        not_followed: attached
            .skeleton
            .maps
            .bss_data
            .as_deref()
            .map_or(0, |bss| bss.control.not_followed),
        stack: attached.stack.as_ref().map(|attached| stack::read(attached, epoch)),
        groups: attached.groups.as_ref().map(|groups| group::read(groups, plan, epoch)),
        neighbours: neighbour::read(attached),
    }
}

fn probe_counts(attached: &Attached, counts_runs: bool) -> Vec<ProbeCounts> {
    // Before what it is held against: never more than that.
    let made_good = attached.made_good();
    let probes = attached.probes.iter();
    probes.map(|probe| probe.read(counts_runs, made_good)).collect()
}

/// CPU time so far, of the layers that are attached, and of all else that measuring takes. The kernel counts runs.
#[must_use]
pub fn cpu_times(attached: &Attached) -> CpuTimes {
    let layers = attached.layers();
    let mut times: CpuTimes = layers.iter().map(|&layer| (Some(layer), 0)).collect();
    times.insert(None, report::nanoseconds(own_time()));
    for probe in &attached.probes {
        // What is detached takes no more.
        if let Some(ns) = times.get_mut(&probe.goes_with) {
            *ns = ns.saturating_add(probe.run_ns());
        }
    }
    times
}

/// CPU time of this process, in the kernel and outside.
fn own_time() -> Duration {
    let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_SELF);
    usage.map_or(Duration::ZERO, |usage| {
        let time = |part: nix::sys::time::TimeVal| {
            Duration::from_secs(part.tv_sec().unsigned_abs()) + Duration::from_micros(part.tv_usec().unsigned_abs())
        };
        time(usage.user_time()) + time(usage.system_time())
    })
}

/// Calls under way, by layer.
///
/// # Errors
/// When the kernel does not let the threads be walked.
pub fn in_flight(attached: &Attached, plan: &Plan) -> Result<BTreeMap<Layer, u64>, ReadError> {
    let maps = &attached.skeleton.maps;
    let mut points = match &attached.in_flight {
        Some(walk) => points_in_task_storage(walk)?,
        None => points_in_table(&maps.threads_by_number)?,
    };
    if maps.bss_places.autocreate() {
        for places in Counters::pieces(&maps.bss_places) {
            let places = places.map_err(|error| ReadError(error.to_string()))?;
            points.extend(points_of((0..places.len()).filter_map(|place| places.element(place))));
        }
    }
    if !plan.completions.is_empty() {
        points.extend(points_of_requests(attached)?);
    }
    let mut by_layer = BTreeMap::new();
    if attached.block_way.is_some() {
        by_layer.insert(Layer::Blk, requests_under_way(attached)?);
    }
    let (usual, unread) = usual_calls(attached);
    if let Some(error) = unread {
        return Err(error);
    }
    for (index, op) in plan.ops.iter().enumerate() {
        *by_layer.entry(op.layer).or_default() += starts_in_cookies(attached, &usual, index);
    }
    for point in points {
        if let Some(op) = plan.ops.get(PointWord::op_of(point)) {
            *by_layer.entry(op.layer).or_default() += 1;
        }
    }
    Ok(by_layer)
}

/// Calls of an op under way whose start is in a cookie, and those whose return was skipped.
fn starts_in_cookies(attached: &Attached, usual: &[(usize, binned)], op: usize) -> u64 {
    let ended = |cpu: &binned| cpu.bins.iter().map(|bin| bin.calls).fold(0, u64::wrapping_add);
    let usual = usual.iter().filter(|(of, _)| *of == op);
    let usual = usual.map(|(_, cpu)| cpu.begun.wrapping_sub(ended(cpu)));
    let others = attached.counters.of_op(op).map(|cpu| cpu.under_way);
    // A call may end on another CPU than it began on.
    let sum = others.chain(usual).fold(0, u64::wrapping_add);
    u64::try_from(sum.cast_signed()).unwrap_or(0)
}

/// Calls that are counted in bins, of which op, and on each CPU; and why the last ones are not among them, if that is so.
fn usual_calls(attached: &Attached) -> (Vec<(usize, binned)>, Option<ReadError>) {
    let read = attached.binned.as_ref().map(BinnedCounters::read);
    let (all, unread) = read.unwrap_or_default();
    (all, unread.map(|error| ReadError(error.to_string())))
}

fn points_in_task_storage(walk: &OwnedFd) -> Result<Vec<u32>, ReadError> {
    let mut bytes = Vec::new();
    program::walk(walk)
        .and_then(|mut walk| walk.read_to_end(&mut bytes))
        .map_err(|error| ReadError(error.to_string()))?;
    Ok(bytes
        .chunks_exact(4)
        .filter_map(|word| Some(u32::from_ne_bytes(word.try_into().ok()?)))
        .collect())
}

fn points_in_table(table: &impl MapCore) -> Result<Vec<u32>, ReadError> {
    let threads: Vec<thread_state> = entries(table)?;
    Ok(points_of(threads.into_iter()).collect())
}

fn points_of(threads: impl Iterator<Item = thread_state>) -> impl Iterator<Item = u32> {
    let frames = threads.flat_map(|thread| thread.calls.frames);
    // A request that is under way is told by its table.
    let under_way = frames.filter(|frame| frame.entered_ns != 0 && frame.kiocb == 0);
    under_way.map(|frame| frame.point)
}

/// Requests, or bios of a disk that has none, that were issued and have not ended.
fn requests_under_way(attached: &Attached) -> Result<u64, ReadError> {
    let maps = &attached.skeleton.maps;
    if attached.block_way.as_ref().is_some_and(|way| way.is_bio_based) {
        let mut places: Vec<bio_place> = Vec::new();
        if maps.bios_by_place.autocreate() {
            places = entries(&maps.bios_by_place)?;
        }
        let taken = places.iter().filter(|place| place.address != 0);
        let others: Vec<bio_state> = entries(&maps.bios)?;
        return Ok((taken.count() + others.len()) as u64);
    }
    let mut states: Vec<request_state> = entries(&maps.requests)?;
    if maps.requests_by_place.autocreate() {
        let places: Vec<request_place> = entries(&maps.requests_by_place)?;
        let taken = places.into_iter().filter(|place| place.address != 0);
        states.extend(taken.map(|place| place.state));
    }
    let issued = states
        .iter()
        .filter(|state| u32::from(state.phase) == REQUEST_ISSUED && state.foreign == 0);
    Ok(issued.count() as u64)
}

/// Asynchronous requests under way, at each layer that counts them.
fn points_of_requests(attached: &Attached) -> Result<Vec<u32>, ReadError> {
    let calls: Vec<async_call> = entries(&attached.skeleton.maps.asynchronous)?;
    let points = calls.iter().flat_map(|call| call.starts).map(|start| start.point);
    Ok(points
        .filter(|&point| point != 0 && !PointWord::is_silent(point))
        .collect())
}

fn entries<T: plain::Plain + Default>(table: &impl MapCore) -> Result<Vec<T>, ReadError> {
    table::entries(table).map_err(|error| ReadError(format!("{}: {error}", table.name().to_string_lossy())))
}

/// What a report is made of beside the readings.
pub struct Span<'a> {
    pub plan: &'a Plan,
    pub facts: &'a Facts,
    pub attached: &'a Attached,
    pub before: &'a Reading,
    pub after: &'a Reading,
    /// Known at the end of a run only.
    pub in_flight: Option<&'a BTreeMap<Layer, u64>>,
    /// Someone's calls were filtered out, so what the kernel skipped may have been theirs.
    pub filtered: bool,
    /// Times of requests include the queue.
    pub queued: bool,
    /// From how long on calls are told one by one, if they are.
    pub slower: Option<Duration>,
    /// How many groups are told by themselves.
    pub top: usize,
    /// What the kernel's own counters of the disks went up by, where they are of the same requests.
    pub diskstats: Option<&'a DiskSpan>,
    /// Layers that were detached so far.
    pub detached: &'a [Detached],
    /// How long the run went on before the first reading.
    pub offset: Duration,
}

/// The kernel's counters of disks before and after each of two readings of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskSpan {
    pub first: [Diskstats; 2],
    pub last: [Diskstats; 2],
    /// The kernel keeps none of one of the disks.
    pub is_uncounted: bool,
    /// Bios are counted by us, and by the kernel as the driver sees fit.
    pub is_bio_based: bool,
    /// Flushes are the whole disk's.
    pub is_partition: bool,
}

impl Span<'_> {
    /// How a layer was detached, if it was.
    fn detached(&self, layer: Layer) -> Option<&Detached> {
        self.detached.iter().find(|detached| detached.layer == layer)
    }

    /// Whether that was over when the span began, so that it has nothing of the layer.
    fn is_gone(&self, layer: Layer) -> bool {
        let until = self.detached(layer).and_then(|detached| detached.until);
        until.is_some_and(|until| until <= self.offset)
    }

    /// What the kernel counted of each probe in the span.
    fn probes(&self) -> impl Iterator<Item = (&attach::Probe, ProbeCounts)> {
        let counts = self.before.probes.iter().zip(&self.after.probes);
        let probes = self.attached.probes.iter().zip(counts);
        probes.map(|(probe, (before, after))| (probe, after.since(before)))
    }
}

/// All probes of a report.
#[must_use]
pub fn probes(span: &Span<'_>) -> Vec<report::Probe> {
    let runs = |runs: program::Runs| report::Runs {
        count: runs.runs,
        ns: runs.ns,
    };
    span.probes()
        .map(|(probe, counts)| report::Probe {
            layer: probe.layer,
            hook: probe.hook,
            functions: probe.functions.clone(),
            entry: counts.entry.map(runs),
            leave: counts.leave.map(runs),
            skipped: counts.skipped,
        })
        .collect()
}

/// CPU time that this process took in the span.
#[must_use]
pub fn own(span: &Span<'_>) -> Duration {
    span.after.own.saturating_sub(span.before.own)
}

/// The layers of a report: the difference of two readings.
#[must_use]
pub fn layers(span: &Span<'_>) -> Vec<LayerReport> {
    Layer::ALL
        .into_iter()
        .filter(|&layer| span.plan.has(layer))
        .map(|layer| layer_report(layer, span))
        .collect()
}

/// The whole stack's part of a report; `None` where it was not asked for.
#[must_use]
pub fn stack(span: &Span<'_>) -> Option<StackReport> {
    let measured = measured_in(span, span.slower)?;
    Some(stack::report(
        &measured,
        span.before.stack.as_ref()?,
        span.after.stack.as_ref()?,
    ))
}

/// The same by process, file, disk or control group; `None` where that was not asked for.
#[must_use]
pub fn groups(span: &Span<'_>) -> Option<GroupsReport> {
    let measured = measured_in(span, None);
    let group_span = GroupSpan {
        plan: span.plan,
        measured: measured.as_ref(),
        queued: queue_from(span).is_some(),
        top: span.top,
    };
    Some(group::report(
        span.attached.groups.as_ref()?,
        &group_span,
        span.before.groups.as_ref()?,
        span.after.groups.as_ref()?,
        &Machine::now(),
    ))
}

/// What of the whole stack was measured in a span; `None` where it was not asked for.
fn measured_in(span: &Span<'_>, slower: Option<Duration>) -> Option<Measured> {
    let measured = measured(span.attached, span.plan, slower)?;
    let detached = span.detached.iter();
    Some(Measured {
        detached: detached.map(|detached| (detached.layer, since(detached))).collect(),
        gone: Layer::ALL.into_iter().filter(|&layer| span.is_gone(layer)).collect(),
        ..measured
    })
}

/// When a layer was detached, and why.
fn since(detached: &Detached) -> String {
    format!(
        "detached {} after the start, to keep to --budget",
        number::length(detached.after)
    )
}

/// What of the whole stack is attached to; `None` where it was not asked for.
fn measured(attached: &Attached, plan: &Plan, slower: Option<Duration>) -> Option<Measured> {
    let layers = Layer::ALL.into_iter().filter(|&layer| plan.has(layer));
    let is_measured = |layer: Layer| {
        let mut ops = plan.ops.iter().zip(&attached.ops);
        ops.any(|(op, how)| op.layer == layer && !how.points.is_empty())
    };
    Some(Measured {
        layers: layers.map(|layer| (layer, is_measured(layer))).collect(),
        planned: plan.row_functions.iter().map(|row| row.function.row).collect(),
        seen: attached.stack.as_ref()?.rows(),
        slower_ns: slower.map(report::nanoseconds),
        detached: BTreeMap::new(),
        gone: BTreeSet::new(),
    })
}

/// The slow calls that have ended since the last time.
///
/// # Errors
/// When the kernel does not give them.
pub fn slow_calls(attached: &Attached, plan: &Plan, clocks: &Clocks) -> Result<Vec<SlowCall>, ReadError> {
    let ring = attached.stack.as_ref().and_then(|stack| stack.slow.as_ref());
    let (Some(ring), Some(measured)) = (ring, measured(attached, plan, None)) else {
        return Ok(Vec::new());
    };
    let records = ring.take()?;
    let calls = records.iter();
    Ok(calls
        .filter_map(|record| slow::slow_call(record, plan, &measured, clocks))
        .collect())
}

/// Slow calls that were counted and not told so far.
#[must_use]
pub fn slow_left_out(attached: &Attached) -> LeftOut {
    attached.stack.as_ref().map_or_else(LeftOut::default, stack::left_out)
}

fn layer_report(layer: Layer, span: &Span<'_>) -> LayerReport {
    let mut report = LayerReport::new(layer);
    if let Some(detached) = span.detached(layer) {
        let not_measured = |what: &str| NotMeasured {
            what: what.to_owned(),
            reason: since(detached),
        };
        if span.is_gone(layer) {
            let ops = span.plan.ops.iter().filter(|op| op.layer == layer);
            report.absent = ops.map(|op| not_measured(op.spec.op.name())).collect();
            report.not_measured.push(not_measured("everything"));
            return report;
        }
        report.not_measured.push(not_measured("everything since then"));
    }
    let mut lost = [0u64; LOST_REASONS as usize];
    let mut unseen_issues = 0_u64;
    let mut hooks = Vec::new();
    let mut queue_times = Vec::new();
    if layer == Layer::Syscall {
        report.not_measured.extend(programs_left_out(span));
    }
    for (index, planned) in span.plan.ops.iter().enumerate().filter(|(_, op)| op.layer == layer) {
        let attached = &span.attached.ops[index];
        report.not_measured.extend(planned.not_measured.clone());
        if attached.points.is_empty() {
            // A system call that the kernel does not have leaves nothing out.
            let is_no_call = layer == Layer::Syscall && planned.points.is_empty();
            if planned.not_measured.is_none() && !is_no_call {
                report.not_measured.push(refused(planned, attached));
            }
            report.absent.push(absent(planned, attached));
            continue;
        }
        for &(_, hook) in &attached.points {
            if !hooks.contains(&hook) {
                hooks.push(hook);
            }
        }
        report.not_measured.extend(asynchronous_left_out(planned, attached));
        let difference = span.after.ops[index].since(&span.before.ops[index]);
        if layer == Layer::Blk {
            queue_times.push((report.ops.len(), difference.queue_ns()));
        }
        report.excluded = report.excluded.saturating_add(difference.excluded());
        for (sum, n) in lost.iter_mut().zip(difference.lost()) {
            *sum = sum.saturating_add(n);
        }
        unseen_issues = unseen_issues.saturating_add(unseen_issues_of(layer, &difference));
        report.ops.push(OpReport {
            attach: attach_points(attached),
            refused: refusals(attached),
            losses: losses_of_op(layer, &difference),
            ..difference.report(planned.spec.op, planned.spec.moves_bytes)
        });
    }
    if layer == Layer::Blk {
        block_report(&mut report, &queue_times, span);
    }
    report.losses = losses(layer, &lost, unseen_issues, span);
    report.skips_unknown = skips_unknown(layer, span);
    report.in_flight = span.in_flight.map(|known| known.get(&layer).copied().unwrap_or(0));
    report.hooks.clone_from(&hooks);
    if let Some(error) = span.after.unread.as_ref().filter(|_| layer == Layer::Vfs) {
        report.warnings.push(format!(
            "the last calls at {} are missing, since their counters could not be read: {error}",
            layer.name()
        ));
    }
    let by_kprobe_alone = |hooks: &Vec<Hook>| matches!(hooks[..], [Hook::Kprobe | Hook::Multi]);
    let has_doors = !matches!(layer, Layer::Syscall | Layer::Blk);
    if has_doors && span.attached.completions.values().any(by_kprobe_alone) {
        report.warnings.push(format!(
            "asynchronous calls at {} can be lost: their completions are seen by kprobes alone, which skip interrupts",
            layer.name()
        ));
    }
    for hook in hooks {
        let way = span.attached.block_way.as_ref().filter(|_| layer == Layer::Blk);
        let why = match way {
            // Which of its hooks is the weaker does not matter.
            Some(way) if way.hook != hook => None,
            Some(way) => loses_requests(way, span.facts),
            None => loses(hook, span.facts),
        };
        let Some(why) = why else { continue };
        report
            .warnings
            .push(format!("{} at {} can lose calls: {why}", hook.name(), layer.name()));
        // A call whose return was missed looks like one under way.
        if let Some(under_way) = report.in_flight.take().filter(|&n| n > 0) {
            match report
                .losses
                .iter_mut()
                .find(|loss| loss.reason == LossReason::ReturnMissed && loss.cause.is_none())
            {
                Some(loss) => (loss.count, loss.up_to) = (loss.count.saturating_add(under_way), true),
                None => {
                    report.losses.insert(
                        0,
                        Loss {
                            reason: LossReason::ReturnMissed,
                            count: under_way,
                            up_to: true,
                            cause: None,
                        },
                    );
                }
            }
        }
    }
    report
}

/// What tells when a request's queue time began, where that was asked for.
fn queue_from(span: &Span<'_>) -> Option<&'static str> {
    let way = span.attached.block_way.as_ref().filter(|_| span.queued)?;
    way.start.describe(way.bio_stamps)
}

/// What the block layer has beside the others.
fn block_report(report: &mut LayerReport, queue_times: &[(usize, u64)], span: &Span<'_>) {
    report.queue_from = queue_from(span).map(str::to_owned);
    for &(place, queue_ns) in queue_times {
        let is_queued = REQUESTS.get(place).is_some_and(|request| request.queued);
        report.ops[place].queue_ns = (report.queue_from.is_some() && is_queued).then_some(queue_ns);
    }
    let readings = span.before.neighbours.as_ref().zip(span.after.neighbours.as_ref());
    report.neighbours = readings.map(|(before, after)| neighbour::report(before, after));
    report.diskstats = span.diskstats.map(|disks| diskstats(disks, &report.ops));
    if let (Some(stats), Some(_)) = (&mut report.diskstats, span.detached(Layer::Blk)) {
        stats.agreement = Agreement::NotComparable("requests were not counted to the end".to_owned());
    }
}

/// The kernel's counts of the span, and whether ours are the same. Theirs went up by no more than from the first reading
/// before our first one to the last after our last one, and by no less than from the last to the first of these.
fn diskstats(disks: &DiskSpan, ops: &[OpReport]) -> report::Diskstats {
    let moments = [disks.first[0], disks.first[1], disks.last[0], disks.last[1]];
    let is_gone = moments.iter().any(|moment| moment.disks != moments[0].disks);
    let (most, least) = if is_gone {
        Default::default()
    } else {
        (disks.last[1] - disks.first[0], disks.last[0] - disks.first[1])
    };
    let seen = |counter: Counter| {
        let counted = ops.iter().zip(REQUESTS);
        let of_it = counted.filter(|(_, request)| request.counted_as == Some(counter));
        of_it.fold(0u64, |sum, (op, _)| sum.saturating_add(op.requests_ended()))
    };
    // Both moments take a while, in which the kernel counts on: of what it may have counted between them, that nearest to ours.
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
        .filter(|&(counter, _)| !(least.get(counter)..=most.get(counter)).contains(&seen(counter)))
        .map(|(counter, name)| format!("{name} {}, seen {}", nearest(counter), seen(counter)))
        .collect();
    let agreement = if is_gone {
        Agreement::NotComparable("a disk was taken away, and its counters with it".to_owned())
    } else if disks.is_uncounted {
        Agreement::NotComparable("queue/iostats is 0".to_owned())
    } else if disks.is_bio_based {
        Agreement::NotComparable("it counts bios as the driver cuts them".to_owned())
    } else if differences.is_empty() {
        Agreement::Agrees
    } else {
        Agreement::Differs(differences.join("; "))
    };
    report::Diskstats {
        reads: nearest(Counter::Reads),
        writes: nearest(Counter::Writes),
        discards: nearest(Counter::Discards),
        flushes: (!disks.is_partition).then_some(nearest(Counter::Flushes)),
        agreement,
    }
}

/// Losses that the programs counted.
fn own_losses(lost: &[u64]) -> Vec<Loss> {
    let own = [
        (LOST_RETURN, LossReason::ReturnMissed),
        (LOST_STORAGE, LossReason::NoStorage),
        (LOST_TABLE_FULL, LossReason::TableFull),
        (LOST_CLOCK, LossReason::ClockBackwards),
    ];
    own.into_iter()
        .map(|(place, reason)| Loss {
            reason,
            count: lost[place as usize],
            up_to: false,
            cause: None,
        })
        .filter(|loss| loss.count > 0)
        .collect()
}

/// Requests whose end was seen and whose issue was not. One that found no room when it was issued is lost as that.
fn unseen_issues_of(layer: Layer, difference: &OpReading) -> u64 {
    let lost = difference.lost();
    let no_room = lost[LOST_STORAGE as usize].saturating_add(lost[LOST_TABLE_FULL as usize]);
    let unseen = if layer == Layer::Blk { difference.half_seen() } else { 0 };
    unseen.saturating_sub(no_room)
}

/// Losses that the programs counted of one op.
fn losses_of_op(layer: Layer, difference: &OpReading) -> Vec<Loss> {
    let issues = Loss {
        reason: LossReason::IssueMissed,
        count: unseen_issues_of(layer, difference),
        up_to: false,
        cause: None,
    };
    let mut losses = own_losses(&difference.lost());
    losses.extend(Some(issues).filter(|issues| issues.count > 0));
    losses
}

/// What was tried of an op before what it is measured by.
fn refusals(attached: &AttachedOp) -> Vec<Refused> {
    let refused = |refusal: &attach::Refusal| Refused {
        function: refusal.function.clone(),
        hook: refusal.hook,
        error: refusal.error.clone(),
    };
    attached.refused.iter().map(refused).collect()
}

/// Losses that the programs counted, and the entries that the kernel did not let them see. `unseen_issues`: at the block layer.
fn losses(layer: Layer, lost: &[u64], unseen_issues: u64, span: &Span<'_>) -> Vec<Loss> {
    let mut losses = own_losses(lost);
    let mut skipped_and_known = 0;
    let way = span.attached.block_way.as_ref();
    if let Some(way) = way.filter(|way| layer == Layer::Blk && !way.is_bio_based) {
        let missed = losses.extract_if(.., |loss| loss.reason == LossReason::ReturnMissed);
        let missed = missed.fold(0, |sum, loss| loss.count.saturating_add(sum));
        let issues = Seen::issues(span, way);
        // Their ends were seen: the rest of what was skipped is lost beside them.
        skipped_and_known = unseen_issues.min(issues.skipped());
        losses.splice(..0, issues.losses(LossReason::IssueMissed, unseen_issues));
        losses.splice(..0, Seen::ends(span, way).losses(LossReason::ReturnMissed, missed));
    }
    let skipped = |is_counted: fn(Hook) -> bool| -> u64 {
        span.probes()
            .filter(|(probe, _)| probe.layer == Some(layer) && is_counted(probe.hook))
            .filter_map(|(_, counts)| counts.skipped)
            .fold(0, u64::saturating_add)
    };
    let ends = skipped(|hook| hook == Hook::Fsession);
    let entries = skipped(|hook| hook != Hook::Fsession).saturating_sub(skipped_and_known);
    let entries = entries.saturating_add(entries_of_ends(layer, ends, span));
    if entries > 0 {
        losses.push(Loss {
            reason: LossReason::EntryMissed,
            count: entries,
            up_to: span.filtered || ends > 0,
            cause: None,
        });
    }
    losses
}

/// How many calls had their entries skipped, of so many entries and returns. Those with one of two seen are known: the others lack
/// both. A return that was skipped alone looks like a call under way, which the end of the run takes for lost.
fn entries_of_ends(layer: Layer, ends: u64, span: &Span<'_>) -> u64 {
    if ends == 0 {
        return 0;
    }
    let ops = span.plan.ops.iter().enumerate().filter(|(_, op)| op.layer == layer);
    let (mut half_seen, mut under_way) = (0u64, 0u64);
    let (usual, _) = usual_calls(span.attached);
    for (index, _) in ops {
        half_seen = half_seen.saturating_add(span.after.ops[index].since(&span.before.ops[index]).half_seen());
        if span.in_flight.is_some() {
            under_way = under_way.saturating_add(starts_in_cookies(span.attached, &usual, index));
        }
    }
    ends.saturating_add(half_seen).saturating_sub(under_way).div_ceil(2)
}

/// Whether nothing that the layer is measured by has its skipped entries counted.
fn skips_unknown(layer: Layer, span: &Span<'_>) -> bool {
    span.probes()
        .all(|(probe, counts)| probe.layer != Some(layer) || counts.skipped.is_none())
}

/// Functions and tracepoints that an op is timed at. A pair of tracepoints is two.
fn attach_points(attached: &AttachedOp) -> Vec<AttachPoint> {
    let of_point = |(names, hook): &(String, Hook)| {
        let point = |function: &str| AttachPoint {
            function: function.to_owned(),
            hook: *hook,
        };
        names.split(", ").map(point).collect::<Vec<_>>()
    };
    attached.points.iter().flat_map(of_point).collect()
}

/// An op without numbers, and why it has none. What is missing of it on other grounds does not matter then.
fn absent(planned: &PlannedOp, attached: &AttachedOp) -> NotMeasured {
    let reason = match &planned.not_measured {
        Some(known) if planned.points.is_empty() => known.reason.clone(),
        None if planned.points.is_empty() && attached.refused.is_empty() => {
            let functions: Vec<String> = planned.spec.points.iter().map(function_name).collect();
            format!("{}: not in this kernel", functions.join(", "))
        }
        _ => refused(planned, attached).reason,
    };
    NotMeasured {
        what: planned.spec.op.to_string(),
        reason,
    }
}

/// What of an op is missing where asynchronous requests are not seen coming in.
fn asynchronous_left_out(planned: &PlannedOp, attached: &AttachedOp) -> Option<NotMeasured> {
    let doors = planned
        .points
        .iter()
        .filter(|door| door.point.returns.is_door() && door.silent.is_none());
    let missing: Vec<&str> = doors
        .map(|door| door.function.as_str())
        .filter(|name| !attached.points.iter().any(|(function, _)| function == name))
        .collect();
    (!missing.is_empty()).then(|| NotMeasured {
        what: format!("asynchronous {}", planned.spec.op),
        reason: format!("{}: refused by this kernel", missing.join(", ")),
    })
}

/// What of the system calls is missing where only some of an op's functions are probed.
fn programs_left_out(span: &Span<'_>) -> Option<NotMeasured> {
    let ops = span.plan.ops.iter().zip(&span.attached.ops);
    let mut left_out = ops.filter(|(planned, attached)| {
        let is_probed = |name: &str| attached.points.iter().any(|(function, _)| function == name);
        let by_function = attached.points.iter().any(|(_, hook)| hook.is_on_functions());
        let mut compat = planned.points.iter().filter(|point| point.is_compat());
        by_function && compat.any(|point| !is_probed(&point.function))
    });
    let reason = match left_out.next() {
        Some(_) => "their calls are functions of their own, probed by kprobe.session and kprobe.multi only",
        None if COMPAT.is_empty() => "their table of numbers is not known on this architecture",
        None => return None,
    };
    Some(NotMeasured {
        what: "32-bit programs".to_owned(),
        reason: reason.to_owned(),
    })
}

/// Why an op that was planned is not measured.
fn refused(planned: &PlannedOp, attached: &AttachedOp) -> NotMeasured {
    let mut tried: Vec<&str> = attached
        .refused
        .iter()
        .map(|refusal| refusal.function.as_str())
        .collect();
    tried.dedup();
    let reason = if tried.is_empty() {
        let functions: Vec<&str> = planned.points.iter().map(|point| point.function.as_str()).collect();
        format!("{}: not within reach of the hooks in use", functions.join(", "))
    } else {
        format!("{}: refused by this kernel", tried.join(", "))
    };
    NotMeasured {
        what: planned.spec.op.to_string(),
        reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layer::Op;
    use crate::report::Apart;

    /// Reads that the kernel counted before and after each reading of ours, and what is told of `seen`.
    fn told(first: [u64; 2], last: [u64; 2], seen: u64) -> report::Diskstats {
        let counted = |reads| Diskstats {
            reads,
            disks: 1,
            ..Diskstats::default()
        };
        let span = DiskSpan {
            first: first.map(counted),
            last: last.map(counted),
            is_uncounted: false,
            is_bio_based: false,
            is_partition: false,
        };
        let op = OpReport {
            apart: Apart {
                at_start: seen,
                ..Apart::default()
            },
            ..OpReport::new(Op::Read)
        };
        diskstats(&span, &[op])
    }

    #[test]
    fn the_kernel_counts_on_while_it_is_read() {
        let reads = |seen| {
            let told = told([100, 104], [200, 210], seen);
            (told.reads, told.agreement)
        };
        assert_eq!(reads(96), (96, Agreement::Agrees));
        assert_eq!(reads(103), (103, Agreement::Agrees));
        assert_eq!(reads(110), (110, Agreement::Agrees));
        assert_eq!(reads(95), (96, Agreement::Differs("reads 96, seen 95".to_owned())));
        assert_eq!(reads(111), (110, Agreement::Differs("reads 110, seen 111".to_owned())));
    }
}
