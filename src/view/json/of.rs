//! Converts reports and slow calls to JSON.

use super::SCHEMA_VERSION;
use super::form::{
    Attach, Bucket, Budget, Class, Cost, Detached, Diskstats, Excluded, Family, Group, GroupLayer, GroupOp, Groups,
    InFlight, Layer, LossCause, Numbers, Op, Origin, Others, Probe, Refused, Report, Row, Sampling, SlowCall,
    SlowCalls, SlowRow, Stack,
};
use crate::model::histogram::Histogram;
use crate::model::object::Named;
use crate::model::report::estimate::CONFIDENCE;
use crate::model::report::group::{self, GroupReport, GroupsReport, OthersReport, Who};
use crate::model::report::slow;
use crate::model::report::slow::SlowReport;
use crate::model::report::stack::{ClassReport, FamilyReport, OriginReport, RowReport, StackReport};
use crate::model::report::{self, Agreement, LayerReport, Loss, LossReason, NotMeasured, OpReport, nanoseconds};
use crate::model::{cost, ids};
use crate::view::errno::errno_name;

/// Why the numbers of an op of the whole stack are missing.
pub(super) const PARTIAL: &str =
    "the run counted its calls by family, and only failed ones by operation; --export-json counts all";

/// Converts each element.
fn all<'a, From: 'a, To: std::convert::From<&'a From>>(from: &'a [From]) -> Vec<To> {
    from.iter().map(To::from).collect()
}

/// `None` if a part is not known, or there are no parts.
fn sum(parts: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    parts.reduce(|sum, part| Some(sum?.saturating_add(part?))).flatten()
}

/// Samples by reason.
fn by_reason<T>(reasons: &[LossReason], of: impl Fn(LossReason) -> T) -> Named<T> {
    Named(reasons.iter().map(|reason| (reason.to_string(), of(*reason))).collect())
}

fn reasons_where(holds: impl Fn(LossReason) -> bool) -> Vec<String> {
    let reasons = LossReason::ALL.into_iter().filter(|reason| holds(*reason));
    reasons.map(|reason| reason.to_string()).collect()
}

impl From<&report::Report> for Report {
    fn from(report: &report::Report) -> Self {
        let layers: Vec<Layer> = all(&report.layers);
        let measured = || layers.iter().filter(|layer| layer.measured);
        let mut excluded: Option<report::Excluded> = None;
        for by_kind in measured().filter_map(|layer| layer.excluded.by_kind) {
            excluded.get_or_insert_default().add(by_kind);
        }
        let lost = |reason| sum(measured().map(|layer| layer.lost.get(reason).copied().flatten()));
        let is_up_to = |reason: LossReason| {
            layers
                .iter()
                .any(|layer| layer.lost_up_to.iter().any(|it| it == reason.name()))
        };
        let [start, end] = report.under_way();
        Self {
            schema_version: SCHEMA_VERSION,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            kernel: report.kernel.clone(),
            start: report.start.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string(),
            duration_ns: nanoseconds(report.length),
            subject: report.subject.clone(),
            filter: report.filter.clone(),
            sample: report.sample.map(|sample| Sampling {
                one_in: sample.one_in().into(),
                confidence: CONFIDENCE,
            }),
            stack: report.stack.as_ref().map(Stack::from),
            groups: report.groups.as_ref().map(Groups::from),
            excluded: Excluded::from(excluded),
            in_flight: InFlight { start, end },
            lost: by_reason(&LossReason::ALL, |reason| lost(reason.name())),
            lost_up_to: reasons_where(is_up_to),
            cost: Cost::from(report),
            probes: all(&report.probes),
            warnings: report.warnings.clone(),
            layers,
        }
    }
}

impl From<Option<report::Excluded>> for Excluded {
    fn from(by_kind: Option<report::Excluded>) -> Self {
        Self {
            not_file: by_kind.map(report::Excluded::calls),
            by_kind,
        }
    }
}

impl From<&report::Report> for Cost {
    fn from(report: &report::Report) -> Self {
        let probes = report.probes_cost();
        Self {
            process_ns: report.process_cost().map(nanoseconds),
            probes_ns: probes.map(|runs| runs.ns),
            probe_runs: probes.map(|runs| runs.count),
            reason: report.cost.no_runs.clone(),
            budget: report.cost.budget.as_ref().map(Budget::from),
        }
    }
}

impl From<&report::Budget> for Budget {
    fn from(budget: &report::Budget) -> Self {
        Self {
            limit_ns_per_s: budget.limit.ns_per_s,
            detached: all(&budget.detached),
        }
    }
}

impl From<&cost::Detached> for Detached {
    fn from(detached: &cost::Detached) -> Self {
        Self {
            layer: detached.layer.to_string(),
            after_ns: nanoseconds(detached.after),
            until_ns: detached.until.map(nanoseconds),
            layer_ns_per_s: detached.of_layer.ns_per_s,
            all_ns_per_s: detached.of_all.ns_per_s,
            under_way: detached.under_way,
        }
    }
}

impl From<&report::Probe> for Probe {
    fn from(probe: &report::Probe) -> Self {
        Self {
            layer: probe.layer.map(|layer| layer.to_string()),
            hook: probe.hook.to_string(),
            functions: probe.functions.clone(),
            entry: probe.entry,
            leave: probe.leave,
            skipped: probe.skipped,
        }
    }
}

impl From<&LayerReport> for Layer {
    fn from(layer: &LayerReport) -> Self {
        let measured = !layer.ops.is_empty();
        let known = |n: Option<u64>| n.filter(|_| measured);
        let lost = |reason: LossReason| {
            let losses = layer.losses.iter().filter(|loss| loss.reason == reason);
            let unknown = layer.losses_unknown || (reason == LossReason::EntryMissed && layer.skips_unknown);
            known((!unknown).then(|| losses.fold(0_u64, |sum, loss| sum.saturating_add(loss.count))))
        };
        let is_up_to = |reason| layer.losses.iter().any(|loss| loss.up_to && loss.reason == reason);
        let has_requests = layer.layer == ids::Layer::Blk;
        let ops = layer.ops.iter().map(|op| match layer.partial.contains(&op.op) {
            true => partial(op),
            false => Op {
                apart: has_requests.then_some(op.set_aside),
                ..Op::from(op)
            },
        });
        let by_operation = (!layer.partial.is_empty()).then(|| NotMeasured {
            what: "single operations".to_owned(),
            reason: PARTIAL.to_owned(),
        });
        Self {
            layer: layer.layer.to_string(),
            measured,
            reason: (!measured).then(|| why(layer)),
            hooks: layer.hooks.iter().map(ids::Hook::to_string).collect(),
            ops: ops.chain(layer.absent.iter().map(Op::from)).collect(),
            // Requests have no files.
            excluded: Excluded::from(Some(layer.excluded).filter(|_| measured && !has_requests)),
            in_flight: InFlight {
                start: known(layer.under_way_at_start()),
                end: known(layer.in_flight),
            },
            lost: by_reason(&LossReason::ALL, lost),
            lost_up_to: reasons_where(is_up_to),
            lost_causes: layer.losses.iter().filter_map(cause).collect(),
            not_measured: layer.not_measured.iter().cloned().chain(by_operation).collect(),
            warnings: layer.warnings.clone(),
            queue_from: layer.queue_from.clone(),
            diskstats: layer.diskstats.as_ref().map(Diskstats::from),
            neighbours: layer.neighbours.clone(),
        }
    }
}

/// The cause of a layer's losses, if it is known.
fn cause(loss: &Loss) -> Option<LossCause> {
    let cause = loss.cause.as_ref()?;
    Some(LossCause {
        reason: loss.reason.to_string(),
        cause: cause.kind.to_string(),
        event: cause.event.clone(),
        count: loss.count,
    })
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

/// Shortest and longest call, and the quantiles.
fn times(histogram: &Histogram, extremes: Option<(u64, u64)>) -> [Option<u64>; 5] {
    let quantile = |q| histogram.quantile(q, extremes);
    let (min, max) = extremes.unzip();
    [min, max, quantile(0.50), quantile(0.90), quantile(0.99)]
}

fn buckets(histogram: &Histogram) -> Vec<Bucket> {
    let bucket = |step: crate::model::histogram::Bucket| Bucket {
        ge_ns: step.ge,
        lt_ns: step.lt,
        count: step.count,
    };
    histogram.buckets().map(bucket).collect()
}

impl From<&OpReport> for Op {
    fn from(op: &OpReport) -> Self {
        // Entries skipped by the kernel are counted by probe, not by op.
        const REASONS: [LossReason; 5] = [
            LossReason::ReturnMissed,
            LossReason::IssueMissed,
            LossReason::NoStorage,
            LossReason::TableFull,
            LossReason::ClockBackwards,
        ];
        let [min_ns, max_ns, p50_ns, p90_ns, p99_ns] = times(&op.histogram, op.extremes);
        let errors = op.errors.iter().map(|(errno, n)| (errno_name(*errno), *n));
        let others = (op.errors_unnamed > 0).then(|| ("other".to_owned(), op.errors_unnamed));
        Self {
            op: op.op.to_string(),
            measured: true,
            reason: None,
            count: Some(op.count()),
            errors: Some(Named(errors.chain(others).collect())),
            bytes: op.bytes,
            total_ns: Some(op.total_ns),
            min_ns,
            max_ns,
            p50_ns,
            p90_ns,
            p99_ns,
            queue_ns: op.queue_ns,
            async_not_timed: Some(op.queued),
            apart: Some(op.set_aside),
            buckets: Some(buckets(&op.histogram)),
            attach: all(&op.attach),
            refused: all(&op.refused),
            lost: Some(by_reason(&REASONS, |reason| op.lost_by(reason))),
            estimate: op.estimate(),
        }
    }
}

/// One of which only some calls were counted: their number would look like that of all.
fn partial(op: &OpReport) -> Op {
    Op {
        op: op.op.to_string(),
        reason: Some(PARTIAL.to_owned()),
        ..Op::default()
    }
}

/// One that was not measured.
impl From<&NotMeasured> for Op {
    fn from(op: &NotMeasured) -> Self {
        Self {
            op: op.what.clone(),
            reason: Some(op.reason.clone()),
            ..Self::default()
        }
    }
}

impl From<&report::AttachPoint> for Attach {
    fn from(point: &report::AttachPoint) -> Self {
        Self {
            function: point.function.clone(),
            hook: point.hook.to_string(),
        }
    }
}

impl From<&report::Refused> for Refused {
    fn from(refused: &report::Refused) -> Self {
        Self {
            function: refused.function.clone(),
            hook: refused.hook.to_string(),
            error: refused.error.clone(),
        }
    }
}

impl From<&report::Diskstats> for Diskstats {
    fn from(stats: &report::Diskstats) -> Self {
        let (agreement, detail) = match &stats.agreement {
            Agreement::Agrees => ("agrees", None),
            Agreement::Differs(how) => ("differs", Some(how.clone())),
            Agreement::NotComparable(why) => ("not_comparable", Some(why.clone())),
        };
        Self {
            reads: stats.reads,
            writes: stats.writes,
            discards: stats.discards,
            flushes: stats.flushes,
            agreement: agreement.to_owned(),
            detail,
        }
    }
}

impl From<&StackReport> for Stack {
    fn from(stack: &StackReport) -> Self {
        Self {
            kernel_time_split: Some(stack.families.iter().any(FamilyReport::is_split)),
            families: all(&stack.families),
            not_waited: stack.not_waited.as_deref().map(all),
            unbalanced: stack.unbalanced,
            not_measured: stack.not_measured.clone(),
            slow: stack.slow.as_ref().map(SlowCalls::from),
        }
    }
}

impl From<&SlowReport> for SlowCalls {
    fn from(slow: &SlowReport) -> Self {
        Self {
            threshold_ns: slow.threshold_ns,
            told: slow.reported,
            limited: slow.left_out.limited,
            no_room: slow.left_out.no_room,
        }
    }
}

impl From<&FamilyReport> for Family {
    fn from(family: &FamilyReport) -> Self {
        let [min_ns, max_ns, p50_ns, p90_ns, p99_ns] = times(&family.histogram, family.extremes);
        Self {
            family: family.family.to_string(),
            count: family.count(),
            errors: family.errors,
            bytes: family.bytes,
            total_ns: family.total_ns,
            min_ns,
            max_ns,
            p50_ns,
            p90_ns,
            p99_ns,
            rows: all(&family.rows),
            classes: all(&family.classes),
            buckets: buckets(&family.histogram),
            estimate: family.estimate(),
        }
    }
}

fn kind(row: ids::Row) -> String {
    if row.is_wait() { "wait" } else { "layer" }.to_owned()
}

impl From<&RowReport> for Row {
    fn from(row: &RowReport) -> Self {
        Self {
            row: row.row.to_string(),
            kind: kind(row.row),
            ns: row.ns,
            calls: row.calls,
        }
    }
}

impl From<&ClassReport> for Class {
    fn from(class: &ClassReport) -> Self {
        Self {
            class: class.class.to_string(),
            count: class.calls,
            bytes: class.bytes,
        }
    }
}

impl From<&OriginReport> for Origin {
    fn from(origin: &OriginReport) -> Self {
        Self {
            origin: origin.origin.to_string(),
            direction: if origin.is_write { "write" } else { "read" }.to_owned(),
            count: origin.requests,
            bytes: origin.bytes,
            queue_ns: origin.queue_ns,
            device_ns: origin.device_ns,
        }
    }
}

impl From<&GroupsReport> for Groups {
    fn from(report: &GroupsReport) -> Self {
        Self {
            by: report.by.to_string(),
            groups: all(&report.groups),
            others: report.others.as_ref().map(Others::from),
        }
    }
}

impl From<&GroupReport> for Group {
    fn from(group: &GroupReport) -> Self {
        let whole = Self {
            name: group.who.name(),
            numbers: Numbers::from(&group.numbers),
            ..Self::default()
        };
        match &group.who {
            Who::Process { pid, comm } => Self {
                pid: Some(*pid),
                comm: Some(comm.clone()),
                ..whole
            },
            Who::File { inode, path } => Self {
                inode: *inode,
                path_is: path.as_ref().map(|path| path.kind.to_string()),
                ..whole
            },
            Who::Thread { tid, pid, comm } => Self {
                pid: Some(*pid),
                tid: Some(*tid),
                comm: Some(comm.clone()),
                ..whole
            },
            Who::Comm { comm } => Self {
                comm: Some(comm.clone()),
                ..whole
            },
            Who::Fd { pid, comm, fd, path } => Self {
                pid: Some(*pid),
                comm: Some(comm.clone()),
                fd: u32::try_from(*fd).ok(),
                path_is: path.as_ref().map(|path| path.kind.to_string()),
                ..whole
            },
            Who::User { uid } => Self {
                uid: Some(*uid),
                ..whole
            },
            Who::Unknown(_) => Self { nobody: true, ..whole },
            Who::NoRecord => Self {
                no_record: true,
                ..whole
            },
            Who::Disk { .. } | Who::Cgroup { .. } | Who::Unit { .. } | Who::Pod(_) | Who::Container(_) => whole,
        }
    }
}

impl From<&OthersReport> for Others {
    fn from(others: &OthersReport) -> Self {
        Self {
            groups: others.groups,
            no_room: others.no_room,
            numbers: Numbers::from(&others.numbers),
        }
    }
}

impl From<&group::Numbers> for Numbers {
    fn from(numbers: &group::Numbers) -> Self {
        Self {
            layers: all(&numbers.layers),
            families: all(&numbers.families),
            not_waited: all(&numbers.not_waited),
        }
    }
}

impl From<&(ids::Layer, Vec<OpReport>)> for GroupLayer {
    fn from((layer, ops): &(ids::Layer, Vec<OpReport>)) -> Self {
        Self {
            layer: layer.to_string(),
            ops: all(ops),
        }
    }
}

impl From<&OpReport> for GroupOp {
    fn from(op: &OpReport) -> Self {
        let [min_ns, max_ns, p50_ns, p90_ns, p99_ns] = times(&op.histogram, op.extremes);
        Self {
            op: op.op.to_string(),
            count: op.count(),
            errors: op.error_count(),
            bytes: op.bytes,
            total_ns: op.total_ns,
            min_ns,
            max_ns,
            p50_ns,
            p90_ns,
            p99_ns,
            queue_ns: op.queue_ns,
            buckets: buckets(&op.histogram),
            estimate: op.estimate(),
        }
    }
}

impl From<&slow::SlowCall> for SlowCall {
    fn from(call: &slow::SlowCall) -> Self {
        Self {
            end: call.ended.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string(),
            pid: call.pid,
            tid: call.tid,
            comm: call.comm.clone(),
            op: call.op.to_string(),
            path: call.path.as_ref().map(|path| path.text.clone()),
            path_is: call.path.as_ref().map(|path| path.kind.to_string()),
            inode: call.inode,
            offset: call.offset,
            size: call.size,
            bytes: call.bytes,
            error: call.errno.map(errno_name),
            total_ns: call.total_ns,
            rows: all(&call.rows),
            guilty: call.largest_row().map(|row| row.row.to_string()),
            kernel_time_split: !call.not_split,
        }
    }
}

impl From<&slow::SlowRow> for SlowRow {
    fn from(row: &slow::SlowRow) -> Self {
        Self {
            row: row.row.to_string(),
            kind: kind(row.row),
            ns: row.ns,
        }
    }
}
