//! `--sample`: estimates are near the true numbers, at single layers and in the whole stack.

use super::report::Tool;
use crate::guest::{Check, Guest};
use crate::schema;
use crate::workload::{EXT4, SYSCALL, Spec, VFS, Workload, prepare};
use serde_json::Value;

pub const CHECKS: &[Check] = &[
    Check::new("sample: single layers", layers).when(Guest::as_booted),
    Check::new("sample: reads of vfs alone", vfs).when(Guest::as_booted),
    Check::new("sample: the whole stack", stack)
        .when(Guest::as_booted)
        .limit(900),
];

const SPEC: Spec = Spec {
    set: "mix",
    threads: 4,
    rounds: 100,
    file: "/mnt/ext4/sample/file",
    name: "worker",
};
const ONE_IN: u64 = 4;
/// The standard deviations by which an estimate may differ from the true number.
const DEVIATIONS: f64 = 6.0;

/// The report about the workload, which lost nothing.
fn report(guest: &Guest, options: &[&str]) -> Result<Value, String> {
    prepare(SPEC.file)?;
    let workload = Workload::start(&SPEC)?;
    let (pid, sample) = (workload.pid.to_string(), format!("1/{ONE_IN}"));
    let arguments = [options, &["--json", "--sample", &sample, "-p", &pid]].concat();
    let tool = Tool::start(guest, &arguments)?;
    workload.work()?;
    let lines = tool.written()?;
    let [report] = &schema::reports(&lines)?[..] else {
        return Err(format!("not one report:\n{lines}"));
    };
    if schema::sum(&report["lost"]) > 0 || report["sample"]["one_in"] != ONE_IN {
        return Err(format!("lost, or no sample:\n{lines}"));
    }
    if schema::sum(&report["stack"]["unbalanced"]) > 0 {
        return Err(format!("unbalanced:\n{lines}"));
    }
    Ok(report.clone())
}

/// Whether an estimate is near the true number.
fn is_near(what: &str, estimate: u64, truth: u64) -> Result<(), String> {
    // The number of measured calls is binomial.
    let deviation = (truth as f64 * (ONE_IN - 1) as f64).sqrt();
    let difference = estimate as f64 - truth as f64;
    if difference.abs() > DEVIATIONS * deviation {
        return Err(format!("{what}: {estimate} of {truth}"));
    }
    Ok(())
}

/// The operations of these layers.
fn ops_are_near(report: &Value, layers: &[&str]) -> Result<(), String> {
    let truth = SPEC.truth();
    let mut checked = 0;
    for layer in schema::layers(report) {
        let name = layer["layer"].as_str().unwrap_or_default();
        for op in schema::ops(layer).filter(|_| layers.contains(&name)) {
            let op_name = op["op"].as_str().unwrap_or_default();
            let known = truth.ops.get(&(name.to_owned(), op_name.to_owned()));
            let known = known.cloned().unwrap_or_default();
            is_near(&format!("{name} {op_name}"), schema::number(&op["count"]), known.calls)?;
            checked += u64::from(known.calls > 0);
        }
    }
    let expected = truth.ops.keys().filter(|(layer, _)| layers.contains(&layer.as_str()));
    if checked != expected.count() as u64 {
        return Err(format!("{checked} operations with calls: {report}"));
    }
    Ok(())
}

fn layers(guest: &Guest) -> Result<(), String> {
    let report = report(guest, &["-T", "syscall,vfs,ext4"])?;
    ops_are_near(&report, &[SYSCALL, VFS, EXT4])
}

/// The start of a read may be in a cookie.
fn vfs(guest: &Guest) -> Result<(), String> {
    ops_are_near(&report(guest, &["-T", "vfs"])?, &[VFS])
}

/// Rows add up to the time of their calls, as the schema's rules check.
fn stack(guest: &Guest) -> Result<(), String> {
    let report = report(guest, &[])?;
    ops_are_near(&report, &[SYSCALL, VFS, EXT4])?;
    for family in schema::array(&report["stack"]["families"]) {
        let rows = schema::array(&family["rows"]);
        let time = |row: &str| {
            let row = rows.iter().find(|known| known["row"] == row);
            row.map_or(0, |row| schema::number(&row["ns"]))
        };
        let name = family["family"].as_str().unwrap_or_default();
        if ["read", "write", "fsync"].contains(&name) && (time(VFS) == 0 || time(EXT4) == 0) {
            return Err(format!("nothing at vfs or ext4: {family}"));
        }
    }
    Ok(())
}
