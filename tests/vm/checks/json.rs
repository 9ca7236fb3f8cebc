//! `--json`: valid, consistent and true.

use super::report::{Layer, Op, Report, Tool};
use crate::guest::{Check, Guest, as_booted as check};
use crate::schema;
use crate::workload::{Calls, Count, EXT4, SYSCALL, Spec, VFS, Workload, prepare};
use serde_json::{Value, json};

pub const CHECKS: &[Check] = &[
    check("json: valid, consistent and true at every layer", process),
    check("json: one line per interval, and nothing between them", intervals),
    check("json: of a command", command),
    check("json: requests of a disk", requests),
];

/// The scope of a report.
const LAYERS: &[&str] = &[SYSCALL, VFS, EXT4];

const SPEC: Spec = Spec {
    set: "mix",
    threads: 4,
    rounds: 5,
    file: "/mnt/ext4/json/file",
    name: "worker",
};
/// Long enough for several intervals.
const LONG: Spec = Spec { rounds: 200, ..SPEC };
/// The maximum difference of two clocks that are read one after the other, by a process that may be preempted in
/// between.
const CLOCKS_MS: u64 = 1_000;

/// The report about a workload, by its number.
fn reports_of(guest: &Guest, spec: &Spec, options: &[&str]) -> Result<(u32, Vec<Value>, String), String> {
    prepare(spec.file)?;
    let workload = Workload::start(spec)?;
    let pid = workload.pid;
    let (layers, number) = (LAYERS.join(","), pid.to_string());
    let arguments = [&["-T", &layers, "--json", "-p", &number], options].concat();
    let tool = Tool::start(guest, &arguments)?;
    workload.work()?;
    let lines = tool.written()?;
    Ok((pid, schema::reports(&lines)?, lines))
}

/// The same as in a text report.
fn taken(report: &Value) -> Report {
    let words = |value: &Value| -> Vec<String> {
        schema::array(value)
            .iter()
            .map(|word| word.as_str().map_or_else(|| word.to_string(), Into::into))
            .collect()
    };
    let layer = |reported: &Value| {
        let lost = reported["lost"].as_object().into_iter().flat_map(|lost| lost.values());
        let lost: u64 = lost.map(schema::number).sum();
        let kinds = reported["excluded"]["by_kind"].as_object().into_iter().flatten();
        let excluded = kinds.map(|(kind, calls)| (kind.clone(), schema::number(calls)));
        let excluded = excluded.filter(|&(_, calls)| calls > 0);
        Layer {
            name: reported["layer"].as_str().unwrap_or_default().into(),
            ops: schema::ops(reported)
                .map(|op| (op["op"].as_str().unwrap_or_default().into(), taken_op(op)))
                .collect(),
            hooks: words(&reported["hooks"]),
            excluded: excluded.collect(),
            unfinished: schema::number(&reported["in_flight"]["end"]),
            lost: (lost > 0).then(|| (lost, reported["lost"].to_string())),
            not_measured: words(&reported["not_measured"]),
            warnings: words(&reported["warnings"]),
            // Numbers of requests are compared where they are measured.
            ..Layer::default()
        }
    };
    Report {
        layers: schema::array(&report["layers"]).iter().map(layer).collect(),
    }
}

fn taken_op(reported: &Value) -> Op {
    let errors = reported["errors"]
        .as_object()
        .into_iter()
        .flat_map(|errors| errors.values());
    let [total_ns, min_ns, max_ns] = ["total_ns", "min_ns", "max_ns"].map(|field| schema::number(&reported[field]));
    Op {
        count: Count {
            calls: schema::number(&reported["count"]),
            bytes: schema::number(&reported["bytes"]),
            errors: errors.map(schema::number).sum(),
        },
        total_ns,
        min_ns,
        max_ns,
        ..Op::default()
    }
}

/// A single report with exactly this.
fn is_exactly(report: &Value, truth: &Calls) -> Result<(), String> {
    let layers: Vec<&str> = schema::array(&report["layers"])
        .iter()
        .filter(|layer| layer["measured"] == true)
        .filter_map(|layer| layer["layer"].as_str())
        .collect();
    if layers != LAYERS {
        return Err(format!("measured were {layers:?}, in {report}"));
    }
    taken(report)
        .is_exactly(truth)
        .map_err(|error| format!("{error} in {report}"))
}

fn process(guest: &Guest) -> Result<(), String> {
    let (pid, reports, lines) = reports_of(guest, &SPEC, &[])?;
    let [report] = &reports[..] else {
        return Err(format!("{} reports instead of one:\n{lines}", reports.len()));
    };
    is_exactly(report, &SPEC.truth())?;
    if report["filter"]["pids"] != json!([pid]) || report["kernel"] != guest.release {
        return Err(format!("not of {pid} on {}: {lines}", guest.release));
    }
    let mut measured = schema::layers(report).flat_map(schema::ops);
    match measured.find(|op| schema::array(&op["attach"]).is_empty()) {
        Some(op) => Err(format!("measured nowhere: {op}")),
        None => Ok(()),
    }
}

fn intervals(guest: &Guest) -> Result<(), String> {
    let (_, reports, lines) = reports_of(guest, &LONG, &["0.2"])?;
    let Some((last, others)) = reports.split_last().filter(|(_, others)| !others.is_empty()) else {
        return Err(format!("no intervals: {lines}"));
    };
    let mut sum = Report {
        layers: taken(last).layers,
    };
    for report in others {
        for (total, part) in sum.layers.iter_mut().zip(taken(report).layers) {
            for (name, op) in part.ops {
                let count = &mut total.ops.entry(name).or_default().count;
                count.calls += op.count.calls;
                count.bytes += op.count.bytes;
                count.errors += op.count.errors;
            }
            for (kind, calls) in part.excluded {
                *total.excluded.entry(kind).or_default() += calls;
            }
            total.lost = total.lost.take().or(part.lost);
        }
    }
    sum.is_exactly(&LONG.truth())
        .map_err(|error| format!("{error} in {lines}"))?;
    for (report, next) in reports.iter().zip(&reports[1..]) {
        let length = schema::number(&report["duration_ns"]);
        let apart = start(next)?.abs_diff(start(report)? + (length / 1_000_000) as i64);
        if apart > CLOCKS_MS {
            return Err(format!("{apart} ms between two reports, of {length} ns: {lines}"));
        }
    }
    Ok(())
}

/// In milliseconds.
fn start(report: &Value) -> Result<i64, String> {
    let text = report["start"].as_str().unwrap_or_default();
    let parsed = text.parse::<jiff::Timestamp>();
    parsed
        .map(jiff::Timestamp::as_millisecond)
        .map_err(|e| format!("{text}: {e}"))
}

fn command(guest: &Guest) -> Result<(), String> {
    prepare(SPEC.file)?;
    let command = SPEC.command();
    let layers = LAYERS.join(",");
    let mut arguments = vec!["-T", &layers, "--json", "--"];
    arguments.extend(command.iter().map(String::as_str));
    let lines = Tool::start(guest, &arguments)?.written()?;
    let [report] = &schema::reports(&lines)?[..] else {
        return Err(format!("not one report: {lines}"));
    };
    if report["filter"]["command"] != json!(command) || report["filter"]["follow"] != true {
        return Err(format!("not of {command:?}: {lines}"));
    }
    // Its start makes calls, but none of these.
    let (reported, truth) = (taken(report).calls(), SPEC.truth());
    for op in ["preadv", "pwrite64", "fdatasync"] {
        let key = (SYSCALL.to_owned(), op.to_owned());
        if reported.ops.get(&key) != truth.ops.get(&key) {
            return Err(format!("{op}: {lines}"));
        }
    }
    Ok(())
}

/// Of the disk below the file system, which the kernel counts as well.
fn requests(guest: &Guest) -> Result<(), String> {
    const DIRECT: Spec = Spec { set: "direct", ..SPEC };
    prepare(DIRECT.file)?;
    let workload = Workload::start(&DIRECT)?;
    let tool = Tool::start(guest, &["-T", "blk", "-d", "nvme0n1", "-Q", "--json"])?;
    workload.work()?;
    tool.interrupt()?;
    let lines = tool.written()?;
    let [report] = &schema::reports(&lines)?[..] else {
        return Err(format!("not one report: {lines}"));
    };
    let blk = &report["layers"][0];
    let reads = &blk["ops"][0];
    let least = DIRECT.threads * DIRECT.rounds;
    let is_right = blk["layer"] == "blk"
        && blk["diskstats"]["agreement"] == "agrees"
        && blk["queue_from"].is_string()
        && report["filter"]["disk"] == "nvme0n1"
        && reads["op"] == "read"
        && schema::number(&reads["count"]) >= least
        && schema::number(&reads["queue_ns"]) <= schema::number(&reads["total_ns"]);
    if is_right { Ok(()) } else { Err(lines) }
}
