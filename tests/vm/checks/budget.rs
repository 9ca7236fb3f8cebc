//! `--budget`: the most expensive layer is detached with its probes; the rest is right, and the report says what is
//! missing.

use super::report::Tool;
use crate::guest::{Check, Guest, wait_for};
use crate::schema;
use crate::workload::{EXT4, VFS, prepare};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::Duration;

pub const CHECKS: &[Check] = &[
    check("budget: the costliest layer of two, auto", |guest| {
        costliest(guest, "auto")
    })
    .when(|guest| guest.tool().is_some() && guest.has_trampolines()),
    check("budget: the costliest layer of two, kprobe", |guest| {
        costliest(guest, "kprobe")
    })
    // On arm64 kprobes are not made of ftrace, whose list shows what is probed.
    .when(|guest| guest.tool().is_some() && guest.as_booted() && cfg!(target_arch = "x86_64")),
    check("budget: a layer is detached and the other continues", one_of_two),
    check("budget: the whole stack without a layer", whole_stack),
    check("budget: layers within the budget stay", kept),
];

const fn check(name: &'static str, run: fn(&Guest) -> Result<(), String>) -> Check {
    Check::new(name, run).when(|guest| guest.tool().is_some())
}

const FILE: &str = "/mnt/ext4/budget/file";
/// Percent of a CPU: less than the probes cost while a thread reads continuously, more than the tool costs while
/// nothing happens.
const LIMIT: &str = "8";
/// Reads between checks of the tool's messages; checking takes a moment without reads.
const BURST: u64 = 5_000;
/// Reads after the cost has dropped below the limit.
const LATER: u64 = 1_000;
/// The time between the tool's checks of its cost.
const LOOK: Duration = Duration::from_secs(1);
const MINUTES: Duration = Duration::from_secs(300);

/// Reads a cached byte this many times.
fn read(file: &File, times: u64) -> Result<(), String> {
    (0..times).try_for_each(|_| match file.read_at(&mut [0], 0) {
        Ok(1) => Ok(()),
        other => Err(format!("{FILE}: {other:?}")),
    })
}

/// The probed functions.
pub(super) fn probed() -> Result<Vec<String>, String> {
    const LIST: &str = "/sys/kernel/tracing/enabled_functions";
    let text = fs::read_to_string(LIST).map_err(|e| format!("{LIST}: {e}"))?;
    let lines = text.lines().filter(|line| !line.starts_with(char::is_whitespace));
    let names = lines.filter_map(|line| line.split_whitespace().next());
    Ok(names.map(str::to_owned).collect())
}

/// A run in which reads cost too much until a layer was detached.
struct Ran {
    report: Value,
    /// The detached layer.
    layer: String,
    /// The reads until that was reported.
    before: u64,
    /// The probed functions at the beginning and at the end.
    probed: [Vec<String>; 2],
}

/// Ends the tool, and returns its report and its messages.
fn end(tool: Tool) -> Result<(Value, String), String> {
    tool.interrupt()?;
    let said = tool.said();
    let mut reports = schema::reports(&tool.written()?)?;
    match (reports.len(), reports.pop()) {
        (1, Some(report)) => Ok((report, said)),
        (count, _) => Err(format!("{count} reports")),
    }
}

fn run(guest: &Guest, arguments: &[&str]) -> Result<Ran, String> {
    if !fs::exists(FILE).map_err(|e| format!("{FILE}: {e}"))? {
        prepare(FILE)?;
    }
    let file = File::open(FILE).map_err(|e| format!("{FILE}: {e}"))?;
    read(&file, 1)?;
    let tool = Tool::start(guest, &[&["--json", "--budget", LIMIT], arguments].concat())?;
    let first = probed()?;
    let reported = |tool: &Tool| {
        let said = tool.said();
        // Wait for its end, since it may still be written.
        let line = said
            .lines()
            .find(|line| line.starts_with("budget: ") && line.ends_with(')'))?;
        let (_, detached) = line.split_once("; detaching ")?;
        Some(detached.split(' ').next()?.to_owned())
    };
    let mut before = 0;
    let mut failed = None;
    wait_for("a layer to be detached", MINUTES, || {
        let done = read(&file, BURST);
        before += BURST;
        failed = done.err();
        failed.is_some() || reported(&tool).is_some()
    })
    .map_err(|e| format!("{e}: {}", tool.said()))?;
    failed.map_or(Ok(()), Err)?;
    let layer = reported(&tool).ok_or("no layer")?;
    let mut last = first.clone();
    wait_for("its probes to be gone", MINUTES, || {
        let now = probed();
        last = now.unwrap_or_default();
        !last.iter().any(|name| is_of(name, &layer))
    })
    .map_err(|e| format!("{e}: {last:?}"))?;
    // Its last counts are read at the next check.
    std::thread::sleep(3 * LOOK);
    read(&file, LATER)?;
    let (report, said) = end(tool)?;
    let detached = schema::array(&report["cost"]["budget"]["detached"]);
    let [one] = detached else {
        return Err(format!("not one layer: {}\n{said}", report["cost"]));
    };
    let is_told = one["layer"] == layer.as_str()
        && !one["until_ns"].is_null()
        && one["under_way"].as_u64().is_some_and(|n| n <= 1)
        && one["layer_ns_per_s"].as_u64() <= one["all_ns_per_s"].as_u64()
        && one["all_ns_per_s"].as_u64() > report["cost"]["budget"]["limit_ns_per_s"].as_u64();
    if !is_told {
        return Err(format!("{}\n{said}", report["cost"]));
    }
    Ok(Ran {
        report,
        layer,
        before,
        probed: [first, last],
    })
}

/// Whether the layer is measured at this function.
fn is_of(function: &str, layer: &str) -> bool {
    function.starts_with(&format!("{layer}_"))
}

fn reads(report: &Value, layer: &str) -> Result<u64, String> {
    let found = schema::layers(report).find(|known| known["layer"] == layer);
    let layer = found.ok_or_else(|| format!("no {layer} in {report}"))?;
    let op = schema::ops(layer).find(|op| op["op"] == "read");
    Ok(schema::number(
        &op.ok_or_else(|| format!("no reads: {layer}"))?["count"],
    ))
}

/// Cached reads do not reach blk.
fn costliest(guest: &Guest, probe: &str) -> Result<(), String> {
    let own = std::process::id().to_string();
    let ran = run(guest, &["-T", "vfs,blk", "-p", &own, "--probe", probe])?;
    if ran.layer != VFS {
        return Err(format!("{} is detached", ran.layer));
    }
    let [first, last] = &ran.probed;
    let was_probed = first.iter().any(|name| is_of(name, VFS));
    if !was_probed {
        return Err(format!("this check proves nothing: {first:?}, {last:?}"));
    }
    let layer = schema::layers(&ran.report).find(|layer| layer["layer"] == VFS);
    let missing = layer.map(|layer| &layer["not_measured"]);
    let reported = missing.is_some_and(|missing| {
        let all = schema::array(missing).iter();
        all.clone()
            .any(|part| part["what"] == "later calls" || part["what"] == "later requests")
    });
    if !reported {
        return Err(format!("not reported: {missing:?}"));
    }
    Ok(())
}

/// Of this file's reads, the detached layer has at most those until then, and the other layer all.
fn one_of_two(guest: &Guest) -> Result<(), String> {
    let ran = run(guest, &["-T", "vfs,ext4", "--file", FILE])?;
    let [gone, left] = if ran.layer == VFS { [VFS, EXT4] } else { [EXT4, VFS] };
    let (of_gone, of_left) = (reads(&ran.report, gone)?, reads(&ran.report, left)?);
    if of_gone == 0 || of_gone > ran.before || of_left != ran.before + LATER {
        return Err(format!(
            "{gone} {of_gone}, {left} {of_left}, done {} + {LATER}: {}",
            ran.before, ran.report["lost"]
        ));
    }
    Ok(())
}

/// All calls are counted, their rows add up, and the report says which row is incomplete.
fn whole_stack(guest: &Guest) -> Result<(), String> {
    let ran = run(guest, &["--file", FILE])?;
    if ran.layer == "syscall" {
        return Err("system calls are detached before the layers inside them".into());
    }
    let stack = &ran.report["stack"];
    let missing = schema::array(&stack["not_measured"]).iter();
    let reported = missing.clone().any(|row| {
        let reason = row["reason"].as_str().unwrap_or_default();
        row["what"] == ran.layer.as_str() && reason.contains("--budget") && reason.contains("in the row above")
    });
    let families = schema::array(&stack["families"]).iter();
    let family = families.clone().find(|family| family["family"] == "read");
    let family = family.ok_or("no reads")?;
    let rows = schema::array(&family["rows"]).iter();
    let sum: u64 = rows.clone().map(|row| schema::number(&row["ns"])).sum();
    let row = rows.clone().find(|row| row["row"] == ran.layer.as_str());
    let reached = row.map_or(0, |row| schema::number(&row["calls"]));
    let all = schema::number(&family["count"]);
    let unbalanced = stack["unbalanced"]
        .as_object()
        .into_iter()
        .flat_map(|kinds| kinds.values());
    let unbalanced: u64 = unbalanced.map(schema::number).sum();
    if !reported
        || sum != schema::number(&family["total_ns"])
        || all != ran.before + LATER
        || reached == 0
        || reached > ran.before
        || unbalanced > 0
    {
        return Err(format!(
            "{} after {} reads and before {LATER}: {family}, {}, {}",
            ran.layer, ran.before, stack["not_measured"], stack["unbalanced"]
        ));
    }
    Ok(())
}

/// The maximum for two CPUs is not reached.
fn kept(guest: &Guest) -> Result<(), String> {
    const READS: u64 = 20_000;
    prepare(FILE)?;
    let file = File::open(FILE).map_err(|e| format!("{FILE}: {e}"))?;
    let tool = Tool::start(guest, &["--json", "--budget", "200", "-T", "vfs,ext4", "--file", FILE])?;
    read(&file, READS)?;
    std::thread::sleep(3 * LOOK);
    let (report, said) = end(tool)?;
    let kept = json!({"limit_ns_per_s": 2_000_000_000_u64, "detached": []});
    let counted = [reads(&report, VFS)?, reads(&report, EXT4)?];
    if report["cost"]["budget"] != kept || said.contains("budget: ") || counted != [READS; 2] {
        return Err(format!("{counted:?} of {READS}: {}\n{said}", report["cost"]));
    }
    Ok(())
}
