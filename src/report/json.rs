//! The report for programs: one JSON object on a line of its own (JSON Lines), of the form that
//! `schema/report.schema.json` describes to the last field.
//!
//! Every field is always there. What was not measured is `null` and has a reason; a 0 was measured. Times are in
//! nanoseconds, and all numbers are whole and exact up to 2^64 - 1.

use std::io;
use std::time::Duration;

use serde::{Serialize, Serializer};

use super::errno::errno_name;
use super::{
    Agreement, Apart, AttachPoint, BLK, Diskstats, Filter, LayerReport, LossReason, NotMeasured, OpReport, Probe,
    Refused, Report, Runs,
};
use crate::histogram::Histogram;

/// Goes up when a field changes its meaning, its name or its type, or goes away.
pub const SCHEMA_VERSION: u32 = 1;

/// Prints `report` as one line. It is written in one piece, so that whoever reads the file meanwhile finds no half of it.
///
/// # Errors
///
/// What writing to `out` fails with.
pub fn print(report: &Report, out: &mut impl io::Write) -> io::Result<()> {
    let mut line = serde_json::to_vec(&ReportObject::of(report))?;
    line.push(b'\n');
    out.write_all(&line)
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
    excluded: Excluded,
    in_flight: InFlight,
    lost: Lost,
    lost_up_to: Vec<&'static str>,
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
}

#[derive(Serialize)]
struct ProbeObject<'a> {
    layer: Option<&'static str>,
    hook: &'static str,
    functions: &'a [String],
    entry: Option<Runs>,
    leave: Option<Runs>,
    skipped: Option<u64>,
}

#[derive(Serialize)]
struct LayerObject<'a> {
    layer: &'static str,
    measured: bool,
    reason: Option<String>,
    hooks: &'a [&'static str],
    ops: Vec<OpObject<'a>>,
    excluded: Excluded,
    in_flight: InFlight,
    lost: Lost,
    lost_up_to: Vec<&'static str>,
    not_measured: &'a [NotMeasured],
    warnings: &'a [String],
    queue_from: Option<&'static str>,
    diskstats: Option<DiskstatsObject<'a>>,
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
    min_ns: Option<u64>,
    max_ns: Option<u64>,
    p50_ns: Option<u64>,
    p90_ns: Option<u64>,
    p99_ns: Option<u64>,
    queue_ns: Option<u64>,
    async_not_timed: Option<u64>,
    apart: Option<Apart>,
    buckets: Option<Vec<BucketObject>>,
    attach: &'a [AttachPoint],
    refused: &'a [Refused],
    /// Those that are known to be this op's.
    lost: Option<OpLost>,
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

/// Samples of an op by reason. Entries that the kernel skipped are counted by probe, not by op.
#[derive(Serialize)]
struct OpLost {
    return_missed: u64,
    no_storage: u64,
    table_full: u64,
    clock_backwards: u64,
}

impl OpLost {
    fn of(op: &OpReport) -> Self {
        let lost = |reason| {
            let losses = op.losses.iter().filter(|loss| loss.reason == reason);
            losses.fold(0_u64, |sum, loss| sum.saturating_add(loss.count))
        };
        Self {
            return_missed: lost(LossReason::ReturnMissed),
            no_storage: lost(LossReason::NoStorage),
            table_full: lost(LossReason::TableFull),
            clock_backwards: lost(LossReason::ClockBackwards),
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

impl<'a> ReportObject<'a> {
    fn of(report: &'a Report) -> Self {
        let layers: Vec<LayerObject<'a>> = report.layers.iter().map(LayerObject::of).collect();
        let measured: Vec<&LayerObject<'_>> = layers.iter().filter(|layer| layer.measured).collect();
        let with_files = measured
            .iter()
            .map(|layer| layer.excluded.not_file)
            .filter(Option::is_some);
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
            in_flight: InFlight {
                start: sum(&|layer| layer.in_flight.start),
                end: sum(&|layer| layer.in_flight.end),
            },
            lost: Lost(std::array::from_fn(|reason| sum(&|layer| layer.lost.0[reason]))),
            lost_up_to: keys_where(|reason| layers.iter().any(|layer| layer.lost_up_to.contains(&key(reason)))),
            cost: CostObject::of(report),
            probes: report.probes.iter().map(ProbeObject::of).collect(),
            warnings: &report.warnings,
            layers,
        }
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
        let ops = layer.ops.iter().map(|op| OpObject::of(op, layer.layer == BLK));
        Self {
            layer: layer.layer,
            measured,
            reason: (!measured).then(|| why(layer)),
            hooks: &layer.hooks,
            ops: ops.chain(layer.absent.iter().map(OpObject::absent)).collect(),
            excluded: Excluded {
                // Requests have no files.
                not_file: known((layer.layer != BLK).then_some(layer.excluded)),
            },
            in_flight: InFlight {
                start: known(layer.under_way_at_start()),
                end: known(layer.in_flight),
            },
            lost: Lost(LossReason::ALL.map(lost)),
            lost_up_to: keys_where(is_up_to),
            not_measured: &layer.not_measured,
            warnings: &layer.warnings,
            queue_from: layer.queue_from,
            diskstats: layer.diskstats.as_ref().map(DiskstatsObject::of),
        }
    }
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
        let quantile = |q| op.histogram.quantile(q, op.extremes);
        Self {
            op: op.op,
            measured: true,
            reason: None,
            count: Some(op.count()),
            errors: Some(errors(op)),
            bytes: op.bytes,
            total_ns: Some(op.total_ns),
            min_ns: op.extremes.map(|(min, _)| min),
            max_ns: op.extremes.map(|(_, max)| max),
            p50_ns: quantile(0.50),
            p90_ns: quantile(0.90),
            p99_ns: quantile(0.99),
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
    let object = |bucket: crate::histogram::Bucket| BucketObject {
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

/// A reason's name in JSON.
fn key(reason: LossReason) -> &'static str {
    match reason {
        LossReason::ReturnMissed => "return_missed",
        LossReason::EntryMissed => "entry_missed",
        LossReason::NoStorage => "no_storage",
        LossReason::TableFull => "table_full",
        LossReason::ClockBackwards => "clock_backwards",
    }
}

fn keys_where(holds: impl Fn(LossReason) -> bool) -> Vec<&'static str> {
    LossReason::ALL
        .into_iter()
        .filter(|reason| holds(*reason))
        .map(key)
        .collect()
}

/// `None` when a part is not known, or there is none.
fn sum(parts: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    parts.reduce(|sum, part| Some(sum?.saturating_add(part?))).flatten()
}

/// Up to 584 years.
fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

impl Serialize for Lost {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(LossReason::ALL.map(key).into_iter().zip(self.0))
    }
}

fn optional_map<S: Serializer>(pairs: &Option<Vec<(String, u64)>>, to: S) -> Result<S::Ok, S::Error> {
    match pairs {
        Some(pairs) => to.collect_map(pairs.iter().map(|(key, value)| (key, value))),
        None => to.serialize_none(),
    }
}
