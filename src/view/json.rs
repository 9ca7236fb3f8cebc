//! The report for programs: one JSON object on a line of its own (JSON Lines), of the form that
//! `schema/report.schema.json` describes to the last field.
//!
//! Every field is always there. What was not measured is `null` and has a reason; a 0 was measured. Times are in
//! nanoseconds, and all numbers are whole and exact up to 2^64 - 1.

use std::io;

use serde::{Serialize, Serializer};
use serde_json::ser::Formatter;

use super::errno::errno_name;
use super::{Sheet, View};
use crate::model::events::Events;
use crate::model::histogram::Histogram;
use crate::model::ids::{By, CauseKind, Family, Hook, Layer, Op, Origin, PathKind, ReadClass, Row};
use crate::model::report::group::{GroupsReport, Numbers, Who};
use crate::model::report::neighbour::{Neighbour, Neighbours};
use crate::model::report::slow::{Inode, LeftOut, SlowCall, SlowReport};
use crate::model::report::stack::{FamilyReport, OriginReport, StackReport, Unbalanced};
use crate::model::report::{
    Agreement, Apart, AttachPoint, Budget, Diskstats, Filter, LayerReport, LossReason, NotMeasured, OpReport, Probe,
    Refused, Report, Runs, nanoseconds,
};
use crate::printable::is_printable;

/// Goes up when a field changes its meaning, its name or its type, or goes away.
pub const SCHEMA_VERSION: u32 = 1;

/// How much of a report is printed. The schema is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Form {
    /// All that can be measured.
    Full,
    /// Without what was measured and never called.
    Compact,
}

/// Reports as JSON Lines.
#[derive(Debug, Clone, Copy)]
pub struct Json(pub Form);

impl View for Json {
    fn events(&mut self, events: &Events, sheet: &mut Sheet<'_>) -> io::Result<()> {
        for call in &events.slow_calls {
            print_slow(call, &mut sheet.out)?;
        }
        if events.left_out.sum() > 0 {
            print_left_out(events.left_out, &mut sheet.out)?;
        }
        Ok(())
    }

    fn report(&mut self, report: &Report, sheet: &mut Sheet<'_>) -> io::Result<()> {
        print(report, self.0, &mut sheet.out)
    }
}

/// Prints `report` as one line. It is written in one piece, so that whoever reads the file meanwhile finds no half of it.
///
/// # Errors
///
/// What writing to `out` fails with.
pub fn print(report: &Report, form: Form, out: &mut impl io::Write) -> io::Result<()> {
    let mut object = ReportObject::of(report);
    if form == Form::Compact {
        object.leave_out_unused();
    }
    print_line(&object, out)
}

/// Prints one slow call as one line.
///
/// # Errors
///
/// What writing to `out` fails with.
pub fn print_slow(call: &SlowCall, out: &mut impl io::Write) -> io::Result<()> {
    let object = SlowLine {
        schema_version: SCHEMA_VERSION,
        slow_call: SlowObject::of(call),
    };
    print_line(&object, out)
}

/// Prints how many slow calls have no line.
///
/// # Errors
///
/// What writing to `out` fails with.
pub fn print_left_out(left_out: LeftOut, out: &mut impl io::Write) -> io::Result<()> {
    let object = LeftOutLine {
        schema_version: SCHEMA_VERSION,
        slow_calls_not_told: left_out,
    };
    print_line(&object, out)
}

fn print_line(object: &impl Serialize, out: &mut impl io::Write) -> io::Result<()> {
    let mut line = Vec::new();
    object.serialize(&mut serde_json::Serializer::with_formatter(&mut line, Escaping))?;
    line.push(b'\n');
    out.write_all(&line)
}

/// JSON asks for escapes of the first 32 characters only; what else is not printable is escaped here, and reads the same when parsed.
struct Escaping;

impl Formatter for Escaping {
    fn write_string_fragment<W: ?Sized + io::Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let mut rest = fragment;
        while let Some((at, c)) = rest.char_indices().find(|(_, c)| !is_printable(*c)) {
            writer.write_all(&rest.as_bytes()[..at])?;
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(writer, "\\u{unit:04x}")?;
            }
            rest = &rest[at + c.len_utf8()..];
        }
        writer.write_all(rest.as_bytes())
    }
}

#[derive(Serialize)]
struct SlowLine<'a> {
    schema_version: u32,
    slow_call: SlowObject<'a>,
}

#[derive(Serialize)]
struct LeftOutLine {
    schema_version: u32,
    slow_calls_not_told: LeftOut,
}

#[derive(Serialize)]
struct SlowObject<'a> {
    end: String,
    pid: u32,
    tid: u32,
    comm: &'a str,
    op: Op,
    path: Option<&'a str>,
    path_is: Option<PathKind>,
    inode: Option<InodeObject>,
    offset: Option<u64>,
    size: Option<u64>,
    bytes: Option<u64>,
    error: Option<String>,
    total_ns: u64,
    rows: Vec<SlowRowObject>,
    guilty: Option<Row>,
    kernel_time_split: bool,
}

#[derive(Serialize)]
struct InodeObject {
    number: u64,
    major: u32,
    minor: u32,
}

impl InodeObject {
    fn of(inode: Inode) -> Self {
        Self {
            number: inode.number,
            major: inode.major,
            minor: inode.minor,
        }
    }
}

#[derive(Serialize)]
struct SlowRowObject {
    row: Row,
    kind: &'static str,
    ns: u64,
}

/// Slow calls of a report's span.
#[derive(Serialize)]
struct SlowSumObject {
    threshold_ns: u64,
    told: u64,
    limited: u64,
    no_room: u64,
}

impl SlowSumObject {
    fn of(slow: &SlowReport) -> Self {
        Self {
            threshold_ns: slow.threshold_ns,
            told: slow.told,
            limited: slow.left_out.limited,
            no_room: slow.left_out.no_room,
        }
    }
}

impl<'a> SlowObject<'a> {
    fn of(call: &'a SlowCall) -> Self {
        let rows = call.rows.iter().map(|row| SlowRowObject {
            row: row.row,
            kind: kind(row.row),
            ns: row.ns,
        });
        Self {
            end: call.ended.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string(),
            pid: call.pid,
            tid: call.tid,
            comm: &call.comm,
            op: call.op,
            path: call.path.as_ref().map(|path| path.text.as_str()),
            path_is: call.path.as_ref().map(|path| path.kind),
            inode: call.inode.map(InodeObject::of),
            offset: call.offset,
            size: call.size,
            bytes: call.bytes,
            error: call.errno.map(errno_name),
            total_ns: call.total_ns,
            rows: rows.collect(),
            guilty: call.guilty().map(|row| row.row),
            kernel_time_split: !call.not_split,
        }
    }
}

#[derive(Serialize)]
struct ReportObject<'a> {
    schema_version: u32,
    version: &'static str,
    kernel: &'a str,
    start: String,
    duration_ns: u64,
    subject: &'a str,
    filter: &'a Filter,
    layers: Vec<LayerObject<'a>>,
    stack: Option<StackObject<'a>>,
    groups: Option<GroupsObject<'a>>,
    excluded: Excluded,
    in_flight: InFlight,
    lost: Lost,
    lost_up_to: Vec<LossReason>,
    cost: CostObject<'a>,
    probes: Vec<ProbeObject<'a>>,
    warnings: &'a [String],
}

/// What measuring took. Of the probes it is `None` when the kernel did not count it, for the reason given.
#[derive(Serialize)]
struct CostObject<'a> {
    process_ns: u64,
    probes_ns: Option<u64>,
    probe_runs: Option<u64>,
    reason: Option<&'a str>,
    budget: Option<BudgetObject>,
}

/// Shares are nanoseconds of CPU time in each second.
#[derive(Serialize)]
struct BudgetObject {
    limit_ns_per_s: u64,
    detached: Vec<DetachedObject>,
}

#[derive(Serialize)]
struct DetachedObject {
    layer: Layer,
    after_ns: u64,
    until_ns: Option<u64>,
    layer_ns_per_s: u64,
    all_ns_per_s: u64,
    under_way: Option<u64>,
}

impl BudgetObject {
    fn of(budget: &Budget) -> Self {
        let detached = budget.detached.iter().map(|detached| DetachedObject {
            layer: detached.layer,
            after_ns: nanoseconds(detached.after),
            until_ns: detached.until.map(nanoseconds),
            layer_ns_per_s: detached.of_layer.ns_per_s,
            all_ns_per_s: detached.of_all.ns_per_s,
            under_way: detached.under_way,
        });
        Self {
            limit_ns_per_s: budget.limit.ns_per_s,
            detached: detached.collect(),
        }
    }
}

#[derive(Serialize)]
struct ProbeObject<'a> {
    layer: Option<Layer>,
    hook: Hook,
    functions: &'a [String],
    entry: Option<Runs>,
    leave: Option<Runs>,
    skipped: Option<u64>,
}

#[derive(Serialize)]
struct LayerObject<'a> {
    layer: Layer,
    measured: bool,
    reason: Option<String>,
    hooks: &'a [Hook],
    ops: Vec<OpObject<'a>>,
    excluded: Excluded,
    in_flight: InFlight,
    lost: Lost,
    lost_up_to: Vec<LossReason>,
    lost_causes: Vec<LossCauseObject<'a>>,
    not_measured: &'a [NotMeasured],
    warnings: &'a [String],
    queue_from: Option<&'a str>,
    diskstats: Option<DiskstatsObject<'a>>,
    neighbours: Option<NeighboursObject<'a>>,
}

/// What the disks did while the requests waited.
#[derive(Serialize)]
struct NeighboursObject<'a> {
    waited_ns: u64,
    own_ns: u64,
    own_requests: u64,
    others: &'a [Neighbour],
    untold_ns: u64,
    idle_ns: u64,
    unseen: u64,
}

impl<'a> NeighboursObject<'a> {
    fn of(neighbours: &'a Neighbours) -> Self {
        Self {
            waited_ns: neighbours.waited_ns,
            own_ns: neighbours.own_ns,
            own_requests: neighbours.own_requests,
            others: &neighbours.others,
            untold_ns: neighbours.untold_ns,
            idle_ns: neighbours.idle_ns(),
            unseen: neighbours.unseen,
        }
    }
}

/// An op. All that is an `Option` is `None` when it was not measured.
#[derive(Serialize, Default)]
struct OpObject<'a> {
    op: &'a str,
    measured: bool,
    reason: Option<&'a str>,
    count: Option<u64>,
    #[serde(serialize_with = "optional_map")]
    errors: Option<Vec<(String, u64)>>,
    bytes: Option<u64>,
    total_ns: Option<u64>,
    #[serde(flatten)]
    times: Times,
    queue_ns: Option<u64>,
    async_not_timed: Option<u64>,
    apart: Option<Apart>,
    buckets: Option<Vec<BucketObject>>,
    attach: &'a [AttachPoint],
    refused: &'a [Refused],
    /// Those that are known to be this op's.
    lost: Option<OpLost>,
}

/// How long calls took, one by one.
#[derive(Serialize, Default)]
struct Times {
    min_ns: Option<u64>,
    max_ns: Option<u64>,
    p50_ns: Option<u64>,
    p90_ns: Option<u64>,
    p99_ns: Option<u64>,
}

impl Times {
    fn of(histogram: &Histogram, extremes: Option<(u64, u64)>) -> Self {
        let quantile = |q| histogram.quantile(q, extremes);
        Self {
            min_ns: extremes.map(|(min, _)| min),
            max_ns: extremes.map(|(_, max)| max),
            p50_ns: quantile(0.50),
            p90_ns: quantile(0.90),
            p99_ns: quantile(0.99),
        }
    }
}

#[derive(Serialize)]
struct BucketObject {
    ge_ns: u64,
    lt_ns: Option<u64>,
    count: u64,
}

#[derive(Serialize)]
struct Excluded {
    not_file: Option<u64>,
}

#[derive(Serialize)]
struct InFlight {
    start: Option<u64>,
    end: Option<u64>,
}

/// Why the kernel ran no program that would have seen what is lost.
#[derive(Serialize)]
struct LossCauseObject<'a> {
    reason: LossReason,
    cause: CauseKind,
    event: &'a str,
    count: u64,
}

/// Samples of an op by reason. Entries that the kernel skipped are counted by probe, not by op.
#[derive(Serialize)]
struct OpLost {
    return_missed: u64,
    issue_missed: u64,
    no_storage: u64,
    table_full: u64,
    clock_backwards: u64,
}

impl OpLost {
    fn is_none(&self) -> bool {
        [
            self.return_missed,
            self.issue_missed,
            self.no_storage,
            self.table_full,
            self.clock_backwards,
        ] == [0; 5]
    }

    fn of(op: &OpReport) -> Self {
        Self {
            return_missed: op.lost_by(LossReason::ReturnMissed),
            issue_missed: op.lost_by(LossReason::IssueMissed),
            no_storage: op.lost_by(LossReason::NoStorage),
            table_full: op.lost_by(LossReason::TableFull),
            clock_backwards: op.lost_by(LossReason::ClockBackwards),
        }
    }
}

/// Samples by reason, in the order of [`LossReason::ALL`].
struct Lost([Option<u64>; LossReason::ALL.len()]);

#[derive(Serialize)]
struct DiskstatsObject<'a> {
    reads: u64,
    writes: u64,
    discards: u64,
    flushes: Option<u64>,
    agreement: &'static str,
    detail: Option<&'a str>,
}

#[derive(Serialize)]
struct StackObject<'a> {
    kernel_time_split: bool,
    families: Vec<FamilyObject>,
    not_waited: Option<Vec<OriginObject>>,
    unbalanced: Unbalanced,
    not_measured: &'a [NotMeasured],
    slow: Option<SlowSumObject>,
}

#[derive(Serialize)]
struct GroupsObject<'a> {
    by: By,
    groups: Vec<GroupObject<'a>>,
    others: Option<OthersObject>,
}

#[derive(Serialize)]
struct GroupObject<'a> {
    name: String,
    /// Nothing tells whose they are.
    nobody: bool,
    pid: Option<u64>,
    comm: Option<&'a str>,
    inode: Option<InodeObject>,
    path_is: Option<PathKind>,
    numbers: NumbersObject,
}

#[derive(Serialize)]
struct OthersObject {
    groups: u64,
    no_room: u64,
    numbers: NumbersObject,
}

/// What is without a call is left out.
#[derive(Serialize)]
struct NumbersObject {
    layers: Vec<GroupLayerObject>,
    families: Vec<FamilyObject>,
    not_waited: Vec<OriginObject>,
}

#[derive(Serialize)]
struct GroupLayerObject {
    layer: Layer,
    ops: Vec<GroupOpObject>,
}

#[derive(Serialize)]
struct GroupOpObject {
    op: Op,
    count: u64,
    errors: u64,
    bytes: Option<u64>,
    total_ns: u64,
    #[serde(flatten)]
    times: Times,
    queue_ns: Option<u64>,
    buckets: Vec<BucketObject>,
}

impl<'a> GroupsObject<'a> {
    fn of(report: &'a GroupsReport) -> Self {
        let groups = report.groups.iter().map(|group| {
            let (pid, comm) = match &group.who {
                Who::Process { pid, comm } => (Some(*pid), Some(comm.as_str())),
                _ => (None, None),
            };
            let (inode, path) = match &group.who {
                Who::File { inode, path } => (*inode, path.as_ref()),
                _ => (None, None),
            };
            GroupObject {
                name: group.who.name(),
                nobody: matches!(group.who, Who::Nobody(_)),
                pid,
                comm,
                inode: inode.map(InodeObject::of),
                path_is: path.map(|path| path.kind),
                numbers: NumbersObject::of(&group.numbers),
            }
        });
        Self {
            by: report.by,
            groups: groups.collect(),
            others: report.others.as_ref().map(|others| OthersObject {
                groups: others.groups,
                no_room: others.no_room,
                numbers: NumbersObject::of(&others.numbers),
            }),
        }
    }
}

impl NumbersObject {
    fn of(numbers: &Numbers) -> Self {
        let layer = |(layer, ops): &(Layer, Vec<OpReport>)| GroupLayerObject {
            layer: *layer,
            ops: ops.iter().map(GroupOpObject::of).collect(),
        };
        Self {
            layers: numbers.layers.iter().map(layer).collect(),
            families: numbers.families.iter().map(FamilyObject::of).collect(),
            not_waited: numbers.not_waited.iter().map(OriginObject::of).collect(),
        }
    }
}

impl GroupOpObject {
    fn of(op: &OpReport) -> Self {
        Self {
            op: op.op,
            count: op.count(),
            errors: op.error_count(),
            bytes: op.bytes,
            total_ns: op.total_ns,
            times: Times::of(&op.histogram, op.extremes),
            queue_ns: op.queue_ns,
            buckets: buckets(&op.histogram),
        }
    }
}

#[derive(Serialize)]
struct FamilyObject {
    family: Family,
    count: u64,
    errors: u64,
    bytes: u64,
    total_ns: u64,
    #[serde(flatten)]
    times: Times,
    rows: Vec<RowObject>,
    classes: Vec<ClassObject>,
    buckets: Vec<BucketObject>,
}

#[derive(Serialize)]
struct RowObject {
    row: Row,
    kind: &'static str,
    ns: Option<u64>,
    calls: Option<u64>,
}

#[derive(Serialize)]
struct ClassObject {
    class: ReadClass,
    count: u64,
    bytes: u64,
}

#[derive(Serialize)]
struct OriginObject {
    origin: Origin,
    direction: &'static str,
    count: u64,
    bytes: u64,
    queue_ns: u64,
    device_ns: u64,
}

impl<'a> StackObject<'a> {
    fn of(stack: &'a StackReport) -> Self {
        let not_waited = stack.not_waited.as_ref();
        Self {
            kernel_time_split: stack.families.iter().any(FamilyReport::is_split),
            families: stack.families.iter().map(FamilyObject::of).collect(),
            not_waited: not_waited.map(|origins| origins.iter().map(OriginObject::of).collect()),
            unbalanced: stack.unbalanced,
            not_measured: &stack.not_measured,
            slow: stack.slow.as_ref().map(SlowSumObject::of),
        }
    }
}

fn kind(row: Row) -> &'static str {
    if row.is_wait() { "wait" } else { "layer" }
}

impl FamilyObject {
    fn of(family: &FamilyReport) -> Self {
        let row = |row: &crate::model::report::stack::RowReport| RowObject {
            row: row.row,
            kind: kind(row.row),
            ns: row.ns,
            calls: row.calls,
        };
        let class = |class: &crate::model::report::stack::ClassReport| ClassObject {
            class: class.class,
            count: class.calls,
            bytes: class.bytes,
        };
        Self {
            family: family.family,
            count: family.count(),
            errors: family.errors,
            bytes: family.bytes,
            total_ns: family.total_ns,
            times: Times::of(&family.histogram, family.extremes),
            rows: family.rows.iter().map(row).collect(),
            classes: family.classes.iter().map(class).collect(),
            buckets: buckets(&family.histogram),
        }
    }
}

impl OriginObject {
    fn of(origin: &OriginReport) -> Self {
        Self {
            origin: origin.origin,
            direction: if origin.is_write { "write" } else { "read" },
            count: origin.requests,
            bytes: origin.bytes,
            queue_ns: origin.queue_ns,
            device_ns: origin.device_ns,
        }
    }
}

impl<'a> ReportObject<'a> {
    fn of(report: &'a Report) -> Self {
        let layers: Vec<LayerObject<'a>> = report.layers.iter().map(LayerObject::of).collect();
        let measured: Vec<&LayerObject<'_>> = layers.iter().filter(|layer| layer.measured).collect();
        let with_files = measured
            .iter()
            .map(|layer| layer.excluded.not_file)
            .filter(Option::is_some);
        let [start, end] = report.under_way();
        let sum = |of: &dyn Fn(&LayerObject<'_>) -> Option<u64>| sum(measured.iter().map(|layer| of(layer)));
        Self {
            schema_version: SCHEMA_VERSION,
            version: env!("CARGO_PKG_VERSION"),
            kernel: &report.kernel,
            start: report.start.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string(),
            duration_ns: nanoseconds(report.length),
            subject: &report.subject,
            filter: &report.filter,
            excluded: Excluded {
                not_file: self::sum(with_files),
            },
            in_flight: InFlight { start, end },
            lost: Lost(std::array::from_fn(|reason| sum(&|layer| layer.lost.0[reason]))),
            lost_up_to: reasons_where(|reason| layers.iter().any(|layer| layer.lost_up_to.contains(&reason))),
            cost: CostObject::of(report),
            probes: report.probes.iter().map(ProbeObject::of).collect(),
            warnings: &report.warnings,
            stack: report.stack.as_ref().map(StackObject::of),
            groups: report.groups.as_ref().map(GroupsObject::of),
            layers,
        }
    }
}

impl ReportObject<'_> {
    /// Leaves out what was measured and never called. What is named in `not_measured` stays, even with numbers: they are not all.
    fn leave_out_unused(&mut self) {
        for layer in &mut self.layers {
            // Of a layer that was not measured, its own reason says all.
            let (is_measured, not_measured) = (layer.measured, layer.not_measured);
            layer
                .ops
                .retain(|op| is_measured && (!op.is_unused() || is_named(not_measured, op.op)));
        }
        if let Some(stack) = &mut self.stack {
            stack.families.retain(|family| family.count > 0 || family.errors > 0);
            for family in &mut stack.families {
                family.classes.retain(|class| class.count > 0);
                family
                    .rows
                    .retain(|row| !row.is_unused() || is_named(stack.not_measured, row.row.name()));
            }
        }
        self.probes.retain(|probe| !probe.is_unused());
    }
}

fn is_named(not_measured: &[NotMeasured], name: &str) -> bool {
    not_measured.iter().any(|part| part.what == name)
}

impl OpObject<'_> {
    /// Nothing was counted, nor lost.
    fn is_unused(&self) -> bool {
        let is_apart = self
            .apart
            .is_some_and(|it| [it.at_start, it.never_issued, it.by_kernel, it.unowned, it.untimed] != [0; 5]);
        self.count == Some(0)
            && self.errors.as_ref().is_none_or(Vec::is_empty)
            && self.async_not_timed.is_none_or(|calls| calls == 0)
            && !is_apart
            && self.lost.as_ref().is_none_or(OpLost::is_none)
    }
}

impl RowObject {
    /// The row of the system calls themselves always stays: it is what says whether time in the kernel was split.
    fn is_unused(&self) -> bool {
        self.row != Row::Layer(Layer::Syscall) && self.ns == Some(0) && self.calls.is_none_or(|calls| calls == 0)
    }
}

impl ProbeObject<'_> {
    /// It was counted, and never ran.
    fn is_unused(&self) -> bool {
        let has_run = self.entry.iter().chain(&self.leave).any(|runs| runs.count > 0);
        self.entry.is_some() && !has_run && self.skipped.is_none_or(|entries| entries == 0)
    }
}

impl<'a> CostObject<'a> {
    fn of(report: &'a Report) -> Self {
        let probes = report.probes_cost();
        Self {
            process_ns: nanoseconds(report.cost.process),
            probes_ns: probes.map(|runs| runs.ns),
            probe_runs: probes.map(|runs| runs.count),
            reason: report.cost.no_runs.as_deref(),
            budget: report.cost.budget.as_ref().map(BudgetObject::of),
        }
    }
}

impl<'a> ProbeObject<'a> {
    fn of(probe: &'a Probe) -> Self {
        Self {
            layer: probe.layer,
            hook: probe.hook,
            functions: &probe.functions,
            entry: probe.entry,
            leave: probe.leave,
            skipped: probe.skipped,
        }
    }
}

impl<'a> LayerObject<'a> {
    fn of(layer: &'a LayerReport) -> Self {
        let measured = !layer.ops.is_empty();
        let known = |n: Option<u64>| n.filter(|_| measured);
        let lost = |reason: LossReason| {
            let losses = layer.losses.iter().filter(|loss| loss.reason == reason);
            let unknown = reason == LossReason::EntryMissed && layer.skips_unknown;
            known((!unknown).then(|| losses.fold(0_u64, |sum, loss| sum.saturating_add(loss.count))))
        };
        let is_up_to = |reason| layer.losses.iter().any(|loss| loss.up_to && loss.reason == reason);
        let ops = layer.ops.iter().map(|op| OpObject::of(op, layer.layer == Layer::Blk));
        Self {
            layer: layer.layer,
            measured,
            reason: (!measured).then(|| why(layer)),
            hooks: &layer.hooks,
            ops: ops.chain(layer.absent.iter().map(OpObject::absent)).collect(),
            excluded: Excluded {
                // Requests have no files.
                not_file: known((layer.layer != Layer::Blk).then_some(layer.excluded)),
            },
            in_flight: InFlight {
                start: known(layer.under_way_at_start()),
                end: known(layer.in_flight),
            },
            lost: Lost(LossReason::ALL.map(lost)),
            lost_up_to: reasons_where(is_up_to),
            lost_causes: causes(layer),
            not_measured: &layer.not_measured,
            warnings: &layer.warnings,
            queue_from: layer.queue_from.as_deref(),
            diskstats: layer.diskstats.as_ref().map(DiskstatsObject::of),
            neighbours: layer.neighbours.as_ref().map(NeighboursObject::of),
        }
    }
}

/// Why the layer's losses came about, as far as that is known.
fn causes(layer: &LayerReport) -> Vec<LossCauseObject<'_>> {
    let known = layer.losses.iter().filter_map(|loss| {
        let cause = loss.cause.as_ref()?;
        Some(LossCauseObject {
            reason: loss.reason,
            cause: cause.kind,
            event: &cause.event,
            count: loss.count,
        })
    });
    known.collect()
}

/// Why nothing of a layer was measured.
fn why(layer: &LayerReport) -> String {
    let mut reasons: Vec<&str> = layer.not_measured.iter().map(|part| part.reason.as_str()).collect();
    reasons.dedup();
    if reasons.is_empty() {
        return "none of its operations could be attached to".to_owned();
    }
    reasons.join("; ")
}

impl<'a> OpObject<'a> {
    fn of(op: &'a OpReport, has_requests: bool) -> Self {
        Self {
            op: op.op.name(),
            measured: true,
            reason: None,
            count: Some(op.count()),
            errors: Some(errors(op)),
            bytes: op.bytes,
            total_ns: Some(op.total_ns),
            times: Times::of(&op.histogram, op.extremes),
            queue_ns: op.queue_ns,
            async_not_timed: Some(op.queued),
            apart: has_requests.then_some(op.apart),
            buckets: Some(buckets(&op.histogram)),
            attach: &op.attach,
            refused: &op.refused,
            lost: Some(OpLost::of(op)),
        }
    }

    fn absent(op: &'a NotMeasured) -> Self {
        Self {
            op: &op.what,
            reason: Some(&op.reason),
            ..Self::default()
        }
    }
}

fn buckets(histogram: &Histogram) -> Vec<BucketObject> {
    let object = |bucket: crate::model::histogram::Bucket| BucketObject {
        ge_ns: bucket.ge,
        lt_ns: bucket.lt,
        count: bucket.count,
    };
    histogram.buckets().map(object).collect()
}

/// By name, the most frequent first.
fn errors(op: &OpReport) -> Vec<(String, u64)> {
    let named = op.errors.iter().map(|(errno, n)| (errno_name(*errno), *n));
    let others = (op.errors_unnamed > 0).then(|| ("other".to_owned(), op.errors_unnamed));
    named.chain(others).collect()
}

impl<'a> DiskstatsObject<'a> {
    fn of(stats: &'a Diskstats) -> Self {
        let (agreement, detail) = match &stats.agreement {
            Agreement::Agrees => ("agrees", None),
            Agreement::Differs(how) => ("differs", Some(how.as_str())),
            Agreement::NotComparable(why) => ("not_comparable", Some(why.as_str())),
        };
        Self {
            reads: stats.reads,
            writes: stats.writes,
            discards: stats.discards,
            flushes: stats.flushes,
            agreement,
            detail,
        }
    }
}

fn reasons_where(holds: impl Fn(LossReason) -> bool) -> Vec<LossReason> {
    LossReason::ALL.into_iter().filter(|reason| holds(*reason)).collect()
}

/// `None` when a part is not known, or there is none.
fn sum(parts: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    parts.reduce(|sum, part| Some(sum?.saturating_add(part?))).flatten()
}

impl Serialize for Lost {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(LossReason::ALL.map(LossReason::name).into_iter().zip(self.0))
    }
}

fn optional_map<S: Serializer>(pairs: &Option<Vec<(String, u64)>>, to: S) -> Result<S::Ok, S::Error> {
    match pairs {
        Some(pairs) => to.collect_map(pairs.iter().map(|(key, value)| (key, value))),
        None => to.serialize_none(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fuzz;
    use crate::model::report::slow::{CallPath, PathKind};

    fn line_of(comm: &str, path: &str) -> String {
        let call = SlowCall {
            comm: comm.to_owned(),
            path: Some(CallPath {
                kind: PathKind::Asked,
                text: path.to_owned(),
            }),
            ..SlowCall::new(Op::Read, jiff::Timestamp::UNIX_EPOCH)
        };
        let mut line = Vec::new();
        print_slow(&call, &mut line).unwrap();
        String::from_utf8(line).unwrap()
    }

    #[test]
    fn what_is_not_printable_is_escaped() {
        let line = line_of("a\u{9b}31m\u{7f}ß", "/\u{202e}txt\u{2028}\u{e0041}\u{1b}\"日本");
        assert!(line.contains(r#""comm":"a\u009b31m\u007fß""#), "{line}");
        assert!(
            line.contains(r#""path":"/\u202etxt\u2028\udb40\udc41\u001b\"日本""#),
            "{line}"
        );
    }

    proptest! {
        #![proptest_config(fuzz::config())]

        #[test]
        fn any_text_is_printable_and_the_same_when_parsed(comm in any::<String>(), path in fuzz::text_like("/var/\u{1b}]0;x\nb\u{202e}\u{9b}")) {
            let line = line_of(&comm, &path);
            let line = line.strip_suffix('\n').unwrap();
            prop_assert!(line.chars().all(is_printable), "{:?}", line);
            let parsed: serde_json::Value = serde_json::from_str(line).unwrap();
            prop_assert_eq!(parsed["slow_call"]["comm"].as_str(), Some(&comm[..]));
            prop_assert_eq!(parsed["slow_call"]["path"].as_str(), Some(&path[..]));
        }
    }
}
