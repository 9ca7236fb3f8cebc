//! Reads the kernel side's counters and makes reports of their differences.

use std::collections::BTreeMap;
use std::io::Read;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use libbpf_rs::{Iter, MapCore, MapFlags};

use crate::histogram::Histogram;
use crate::kernel::Facts;
use crate::kernel::diskstats::Diskstats;
use crate::kernel::interface::types::{async_call, op_stats, request_state, task_frames};
use crate::kernel::interface::{
    APART_AT_START, APART_BY_KERNEL, APART_KINDS, APART_NEVER_ISSUED, APART_UNOWNED, APART_UNTIMED, LOST_CLOCK,
    LOST_REASONS, LOST_RETURN, LOST_STORAGE, LOST_TABLE_FULL, REQUEST_ISSUED,
};
use crate::layer::{Counter, Layer, REQUESTS};
use crate::probe::attach::{Attached, AttachedOp, ProbeCounts};
use crate::probe::plan::{Plan, PlannedOp, function_name, loses, loses_requests};
use crate::probe::{Hook, PointWord};
use crate::probe::{attach, program};
use crate::report::{
    self, Agreement, Apart, AttachPoint, LayerReport, Loss, LossReason, NotMeasured, OpReport, Refused,
};

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
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct OpReading {
    total_ns: u64,
    bytes: u64,
    errors: u64,
    excluded: u64,
    queued: u64,
    queue_ns: u64,
    apart: [u64; APART_KINDS as usize],
    lost: [u64; LOST_REASONS as usize],
    /// Of the generation that the reading ends.
    extremes: Option<(u64, u64)>,
    /// Calls by errno.
    errnos: BTreeMap<i32, u64>,
    steps: Vec<u64>,
    unit_slots: Vec<u64>,
}

/// Why the calls under way could not be read.
#[derive(Debug)]
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
    let op = |index| {
        let mut merged = OpReading::default();
        for row in [Some(index), completions.get(&index).copied()].into_iter().flatten() {
            attached.counters.of_op(row).for_each(|cpu| merged.add(cpu, epoch));
        }
        merged
    };
    Reading {
        at: Instant::now(),
        wall: Timestamp::now(),
        ops: (0..attached.ops.len()).map(op).collect(),
        probes: attached.probes.iter().map(|probe| probe.read(counts_runs)).collect(),
        own: own_time(),
        not_followed: attached
            .skeleton
            .maps
            .bss_data
            .as_deref()
            .map_or(0, |bss| bss.control.not_followed),
    }
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

impl OpReading {
    fn add(&mut self, cpu: op_stats, epoch: u64) {
        // Counters wrap like the kernel's; none comes near in practice, and differences stay right if one does.
        fn add(sum: &mut u64, n: u64) {
            *sum = sum.wrapping_add(n);
        }
        add(&mut self.total_ns, cpu.total_ns);
        add(&mut self.bytes, cpu.bytes);
        add(&mut self.errors, cpu.errors);
        add(&mut self.excluded, cpu.excluded);
        add(&mut self.queued, cpu.queued);
        add(&mut self.queue_ns, cpu.queue_ns);
        let counters = self.lost.iter_mut().zip(cpu.lost);
        for (sum, n) in counters.chain(self.apart.iter_mut().zip(cpu.apart)) {
            add(sum, n);
        }
        for (sums, slots) in [
            (&mut self.steps, &cpu.steps[..]),
            (&mut self.unit_slots, &cpu.unit_slots[..]),
        ] {
            sums.resize(slots.len(), 0);
            for (sum, &n) in sums.iter_mut().zip(slots) {
                add(sum, n);
            }
        }
        for place in cpu.errnos.iter().filter(|place| place.error != 0) {
            add(self.errnos.entry(place.error as i32).or_default(), place.calls);
        }
        for generation in cpu
            .extremes
            .iter()
            .filter(|generation| (epoch..=epoch + 1).contains(&generation.epoch))
        {
            let (min, max) = self.extremes.unwrap_or((u64::MAX, 0));
            self.extremes = Some((min.min(generation.min_ns), max.max(generation.max_ns)));
        }
    }

    fn since(&self, earlier: &Self) -> Self {
        let difference = |now: &[u64], before: &[u64]| -> Vec<u64> {
            now.iter()
                .enumerate()
                .map(|(i, n)| n.wrapping_sub(before.get(i).copied().unwrap_or(0)))
                .collect()
        };
        Self {
            total_ns: self.total_ns.wrapping_sub(earlier.total_ns),
            bytes: self.bytes.wrapping_sub(earlier.bytes),
            errors: self.errors.wrapping_sub(earlier.errors),
            excluded: self.excluded.wrapping_sub(earlier.excluded),
            queued: self.queued.wrapping_sub(earlier.queued),
            queue_ns: self.queue_ns.wrapping_sub(earlier.queue_ns),
            apart: std::array::from_fn(|i| self.apart[i].wrapping_sub(earlier.apart[i])),
            lost: std::array::from_fn(|i| self.lost[i].wrapping_sub(earlier.lost[i])),
            extremes: self.extremes,
            errnos: self
                .errnos
                .iter()
                .map(|(errno, calls)| {
                    (
                        *errno,
                        calls.wrapping_sub(earlier.errnos.get(errno).copied().unwrap_or(0)),
                    )
                })
                .collect(),
            steps: difference(&self.steps, &earlier.steps),
            unit_slots: difference(&self.unit_slots, &earlier.unit_slots),
        }
    }
}

/// Calls under way, by layer.
///
/// # Errors
/// When the kernel does not let the threads be walked.
pub fn in_flight(attached: &Attached, plan: &Plan) -> Result<BTreeMap<Layer, u64>, ReadError> {
    let mut points = if attached.skeleton.progs.in_flight.autoload() {
        points_in_task_storage(attached)?
    } else {
        points_in_table(attached)?
    };
    if !plan.completions.is_empty() {
        points.extend(points_of_requests(attached)?);
    }
    let mut by_layer = BTreeMap::new();
    if attached.block_way.is_some() {
        by_layer.insert(Layer::Blk, requests_under_way(attached)?);
    }
    for point in points {
        if let Some(op) = plan.ops.get(PointWord::op_of(point)) {
            *by_layer.entry(op.layer).or_default() += 1;
        }
    }
    Ok(by_layer)
}

fn points_in_task_storage(attached: &Attached) -> Result<Vec<u32>, ReadError> {
    let link = attached.skeleton.progs.in_flight.attach()?;
    let mut bytes = Vec::new();
    Iter::new(&link)?
        .read_to_end(&mut bytes)
        .map_err(|error| ReadError(error.to_string()))?;
    Ok(bytes
        .chunks_exact(4)
        .filter_map(|word| Some(u32::from_ne_bytes(word.try_into().ok()?)))
        .collect())
}

fn points_in_table(attached: &Attached) -> Result<Vec<u32>, ReadError> {
    let threads: Vec<task_frames> = entries(&attached.skeleton.maps.frames_by_thread)?;
    // A request that is under way is told by its table.
    let under_way = threads
        .iter()
        .flat_map(|thread| thread.frames)
        .filter(|frame| frame.entered_ns != 0 && frame.kiocb == 0);
    Ok(under_way.map(|frame| frame.point).collect())
}

/// Requests, or bios of a disk that has none, that were issued and have not ended.
fn requests_under_way(attached: &Attached) -> Result<u64, ReadError> {
    let maps = &attached.skeleton.maps;
    if attached.block_way.as_ref().is_some_and(|way| way.is_bio_based) {
        return Ok(maps.bios.keys().count() as u64);
    }
    let states: Vec<request_state> = entries(&maps.requests)?;
    let issued = states.iter().filter(|state| u32::from(state.phase) == REQUEST_ISSUED);
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

/// All that is in a table; what goes away meanwhile is left out.
fn entries<T: plain::Plain + Default>(table: &impl MapCore) -> Result<Vec<T>, ReadError> {
    let mut entries = Vec::new();
    for key in table.keys() {
        let Some(bytes) = table.lookup(&key, MapFlags::ANY)? else {
            continue;
        };
        let mut entry = T::default();
        plain::copy_from_bytes(&mut entry, &bytes)
            .map_err(|error| ReadError(format!("{}: {error:?}", table.name().to_string_lossy())))?;
        entries.push(entry);
    }
    Ok(entries)
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
    /// What the kernel's own counters of the disks went up by, where they are of the same requests.
    pub diskstats: Option<&'a DiskSpan>,
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
            layer: probe.layer.map(Layer::name),
            hook: probe.hook.name(),
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

fn layer_report(layer: Layer, span: &Span<'_>) -> LayerReport {
    let mut report = LayerReport {
        layer: layer.name(),
        ..Default::default()
    };
    let mut lost = [0u64; LOST_REASONS as usize];
    let mut hooks = Vec::new();
    let mut queue_times = Vec::new();
    for (index, planned) in span.plan.ops.iter().enumerate().filter(|(_, op)| op.layer == layer) {
        let attached = &span.attached.ops[index];
        report.not_measured.extend(planned.not_measured.clone());
        if attached.points.is_empty() {
            if planned.not_measured.is_none() {
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
            queue_times.push((report.ops.len(), difference.queue_ns));
        }
        report.excluded += difference.excluded;
        for (sum, n) in lost.iter_mut().zip(difference.lost) {
            *sum += n;
        }
        report.ops.push(OpReport {
            attach: attach_points(attached),
            refused: refusals(attached),
            losses: own_losses(&difference.lost),
            ..op_report(planned.op.name, planned.op.moves_bytes, difference)
        });
    }
    if layer == Layer::Blk {
        block_report(&mut report, &queue_times, span);
    }
    report.losses = losses(layer, &lost, span);
    report.skips_unknown = skips_unknown(layer, span);
    report.in_flight = span.in_flight.map(|known| known.get(&layer).copied().unwrap_or(0));
    report.hooks = hooks.iter().map(|hook| hook.name()).collect();
    let by_kprobe_alone = |hooks: &Vec<Hook>| *hooks == [Hook::Kprobe];
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
                .find(|loss| loss.reason == LossReason::ReturnMissed)
            {
                Some(loss) => (loss.count, loss.up_to) = (loss.count + under_way, true),
                None => {
                    report.losses.insert(
                        0,
                        Loss {
                            reason: LossReason::ReturnMissed,
                            count: under_way,
                            up_to: true,
                        },
                    );
                }
            }
        }
    }
    report
}

/// What the block layer has beside the others.
fn block_report(report: &mut LayerReport, queue_times: &[(usize, u64)], span: &Span<'_>) {
    let from = span
        .attached
        .block_way
        .as_ref()
        .and_then(|way| way.start.describe(way.bio_stamps));
    report.queue_from = from.filter(|_| span.queued);
    for &(place, queue_ns) in queue_times {
        let is_queued = REQUESTS.get(place).is_some_and(|request| request.queued);
        report.ops[place].queue_ns = (report.queue_from.is_some() && is_queued).then_some(queue_ns);
    }
    report.diskstats = span.diskstats.map(|disks| diskstats(disks, &report.ops));
}

/// The kernel's counts of the span, and whether ours are the same. Theirs went up by no more than from the first reading
/// before our first one to the last after our last one, and by no less than from the last to the first of these.
fn diskstats(disks: &DiskSpan, ops: &[OpReport]) -> report::Diskstats {
    let most = disks.last[1] - disks.first[0];
    let least = disks.last[0] - disks.first[1];
    let seen = |counter: Counter| {
        let counted = ops.iter().zip(REQUESTS);
        let of_it = counted.filter(|(_, request)| request.counted_as == Some(counter));
        of_it.fold(0u64, |sum, (op, _)| sum.saturating_add(op.requests_ended()))
    };
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
        .map(|(counter, name)| format!("{name} {}, seen {}", most.get(counter), seen(counter)))
        .collect();
    let agreement = if disks.is_uncounted {
        Agreement::NotComparable("queue/iostats is 0".to_owned())
    } else if disks.is_bio_based {
        Agreement::NotComparable("it counts bios as the driver cuts them".to_owned())
    } else if differences.is_empty() {
        Agreement::Agrees
    } else {
        Agreement::Differs(differences.join("; "))
    };
    report::Diskstats {
        reads: most.reads,
        writes: most.writes,
        discards: most.discards,
        flushes: (!disks.is_partition).then_some(most.flushes),
        agreement,
    }
}

fn op_report(name: &'static str, moves_bytes: bool, difference: OpReading) -> OpReport {
    let mut errors: Vec<(i32, u64)> = difference.errnos.into_iter().filter(|&(_, calls)| calls > 0).collect();
    errors.sort_by_key(|&(errno, n)| (std::cmp::Reverse(n), errno));
    let named: u64 = errors.iter().map(|(_, n)| n).sum();
    let histogram = Histogram::from_steps(&difference.steps);
    let counted = histogram.count() > 0;
    OpReport {
        op: name,
        attach: Vec::new(),
        refused: Vec::new(),
        losses: Vec::new(),
        total_ns: difference.total_ns,
        bytes: moves_bytes.then_some(difference.bytes),
        extremes: difference.extremes.filter(|_| counted),
        errors_unnamed: difference.errors.saturating_sub(named),
        errors,
        queued: difference.queued,
        queue_ns: None,
        apart: Apart {
            at_start: difference.apart[APART_AT_START as usize],
            never_issued: difference.apart[APART_NEVER_ISSUED as usize],
            by_kernel: difference.apart[APART_BY_KERNEL as usize],
            unowned: difference.apart[APART_UNOWNED as usize],
            untimed: difference.apart[APART_UNTIMED as usize],
        },
        histogram,
        unit_slots: if difference.unit_slots.iter().any(|&n| n > 0) {
            difference.unit_slots
        } else {
            Vec::new()
        },
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
        })
        .filter(|loss| loss.count > 0)
        .collect()
}

/// What was tried of an op before what it is measured by.
fn refusals(attached: &AttachedOp) -> Vec<Refused> {
    let refused = |refusal: &attach::Refusal| Refused {
        function: refusal.function.clone(),
        hook: refusal.hook.name(),
        error: refusal.error.clone(),
    };
    attached.refused.iter().map(refused).collect()
}

/// Losses that the programs counted, and the entries that the kernel did not let them see.
fn losses(layer: Layer, lost: &[u64], span: &Span<'_>) -> Vec<Loss> {
    let mut losses = own_losses(lost);
    let skipped: u64 = span
        .probes()
        .filter(|(probe, _)| probe.layer == Some(layer))
        .filter_map(|(_, counts)| counts.skipped)
        .sum();
    if skipped > 0 {
        losses.push(Loss {
            reason: LossReason::EntryMissed,
            count: skipped,
            up_to: span.filtered,
        });
    }
    losses
}

/// Whether nothing that the layer is measured by has its skipped entries counted.
fn skips_unknown(layer: Layer, span: &Span<'_>) -> bool {
    span.probes()
        .all(|(probe, counts)| probe.layer != Some(layer) || counts.skipped.is_none())
}

/// Functions and tracepoints that an op is timed at. A pair of tracepoints is two.
fn attach_points(attached: &AttachedOp) -> Vec<AttachPoint> {
    let of_point = |(names, hook): &(String, Hook)| {
        let hook = hook.name();
        let point = |function: &str| AttachPoint {
            function: function.to_owned(),
            hook,
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
            let functions: Vec<String> = planned.op.points.iter().map(function_name).collect();
            format!("{}: not in this kernel", functions.join(", "))
        }
        _ => refused(planned, attached).reason,
    };
    NotMeasured {
        what: planned.op.name.to_owned(),
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
        what: format!("asynchronous {}", planned.op.name),
        reason: format!("{}: refused by this kernel", missing.join(", ")),
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
        what: planned.op.name.to_owned(),
        reason,
    }
}
