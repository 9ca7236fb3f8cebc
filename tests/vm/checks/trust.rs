//! How far a report can be trusted, compared with the kernel's own counts.

use super::report::Tool;
use crate::ftrace::Calls;
use crate::guest::{Check, Guest};
use crate::schema;
use crate::workload::{EXT4, SYSCALL, Spec, VFS, Workload, prepare};
use iostackbreakdown::exercise::Exercise;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

pub const CHECKS: &[Check] = &[
    check("trust: --check, auto", |guest| everything_fires(guest, "auto")),
    check("trust: --check, kprobe", |guest| everything_fires(guest, "kprobe")),
    check("trust: --check, fsession", |guest| everything_fires(guest, "fsession"))
        .when(|guest| guest.tool().is_some() && guest.kernel == "7"),
    check(
        "trust: the calls of --check, as the kernel's tracer counts them",
        as_traced,
    ),
    check("overload: counted and lost are what was done, auto", |guest| {
        overload(guest, "auto")
    }),
    check("overload: counted and lost are what was done, fentry", |guest| {
        overload(guest, "fentry")
    }),
    check("overload: counted and lost are what was done, kprobe", |guest| {
        overload(guest, "kprobe")
    })
    .when(Guest::as_booted),
];

const fn check(name: &'static str, run: fn(&Guest) -> Result<(), String>) -> Check {
    Check::new(name, run).when(|guest| guest.tool().is_some())
}

const MINUTE: Duration = Duration::from_secs(60);

/// Ops that `--check` exercises, in addition to all those of the layers above.
const REQUESTS: [&str; 3] = ["read", "write", "flush"];

/// Each op of each layer is counted, and no probe was refused.
fn everything_fires(guest: &Guest, probe: &str) -> Result<(), String> {
    let mut tool = Command::new(guest.tool().ok_or("there is no tool")?);
    tool.args(["--check", "--probe", probe]).env("TMPDIR", "/mnt/ext4");
    let output = crate::guest::run(&mut tool, 2 * MINUTE)?.success()?;
    let page = &output.stdout;
    let wrong = |what: String| Err(format!("{what}:\n{page}"));
    let summary = |layer: &str| {
        let line = page.lines().find_map(|line| line.strip_prefix(&format!("{layer}: ")));
        line.ok_or_else(|| format!("no verdict on {layer}:\n{page}"))
    };
    let not_counted = |layer: &str| -> Result<Vec<&str>, String> {
        let (_, names) = summary(layer)?.split_once("; not counted: ").unwrap_or_default();
        Ok(names.split(", ").filter(|name| !name.is_empty()).collect())
    };
    // Only with functions; by number, an unknown call would be counted as well.
    let is_there = |call: &&str| {
        let mut rows = page.lines().filter(|line| line.starts_with("syscall  "));
        !rows.any(|row| row.split_whitespace().nth(1) == Some(call) && row.ends_with("not in this kernel"))
    };
    let calls = not_counted(SYSCALL)?.into_iter().filter(is_there);
    if calls.collect::<Vec<&str>>() != ["sync", "syncfs"] {
        return wrong("other system calls than those of all files are not counted".into());
    }
    for layer in [VFS, EXT4] {
        if !not_counted(layer)?.is_empty() {
            return wrong(format!("not all of {layer} is counted"));
        }
    }
    if not_counted("blk")?.iter().any(|op| REQUESTS.contains(op)) {
        return wrong("requests are not counted".into());
    }
    if let Some(line) = page.lines().find(|line| line.contains("refused: ")) {
        return wrong(format!("refused: {line}"));
    }
    // A more expensive hook replaces a refused first choice.
    let of_vfs = page.lines().filter(|line| line.starts_with("vfs  "));
    let hooks = of_vfs.filter_map(|line| line.split("  ").map(str::trim).filter(|word| !word.is_empty()).nth(3));
    let hooks: BTreeSet<&str> = hooks.filter(|hook| *hook != "-").collect();
    // A session is only used for ops that it can measure.
    let is_one = hooks.len() == 1 || probe == "fsession";
    if !is_one {
        return wrong(format!("vfs by {hooks:?}"));
    }
    if !page
        .lines()
        .any(|line| line.starts_with("ext4 ") && line.ends_with(" yes"))
    {
        return wrong("nothing of ext4 is hit".into());
    }
    Ok(())
}

/// System calls that the calls of `--check` are at least.
const DIFFERENT: usize = if cfg!(target_arch = "x86_64") { 75 } else { 60 };

/// Whatever the process of `--check` does, each system call is counted as often as the kernel's own tracer saw it entered. What it does
/// is in the tool's library, and so are the names of what is counted: the tracer knows neither.
fn as_traced(guest: &Guest) -> Result<(), String> {
    let directory = Path::new("/mnt/ext4");
    let exercise = Exercise::fork(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let pid = exercise.pid;
    let arguments = ["-T", "syscall", "--all-files", "--json", "-p", &pid.to_string()];
    let tool = Tool::start(guest, &arguments)?;
    let calls = Calls::start(pid)?;
    exercise
        .run()
        .map_err(|error| format!("the calls of --check: {error}"))?;
    let lines = tool.written()?;
    let entered = calls.entered()?;
    let reports = schema::reports(&lines)?;
    let layers: Vec<_> = reports
        .iter()
        .flat_map(|report| schema::array(&report["layers"]))
        .collect();
    let [layer] = layers.as_slice() else {
        return Err(format!("{} layers", layers.len()));
    };
    let mut different = 0;
    for op in schema::ops(layer) {
        let name = op["op"].as_str().unwrap_or_default();
        let (counted, seen) = (schema::number(&op["count"]), entered.get(name).copied().unwrap_or(0));
        // Calls that the kernel does not implement fail, without an event of the tracer.
        let expected = if calls.has(name) {
            seen
        } else {
            schema::number(&op["errors"]["ENOSYS"])
        };
        if counted != expected {
            return Err(format!("{name}: {counted} counted, {expected} entered: {layer}"));
        }
        different += usize::from(seen > 0);
    }
    if different < DIFFERENT {
        return Err(format!(
            "{different} system calls were made: this check proves nothing: {entered:?}"
        ));
    }
    Ok(())
}

/// The maximum for two CPUs.
const STORM: Spec = Spec {
    set: "mix",
    threads: 16,
    rounds: 60,
    file: "/mnt/ext4/trust/file",
    name: "storm",
};

/// With every layer measured and no filter: timed and lost calls add up to what was done; and if a function has
/// programs of its own, the kernel ran or skipped them as often.
fn overload(guest: &Guest, probe: &str) -> Result<(), String> {
    prepare(STORM.file)?;
    let workload = Workload::start(&STORM)?;
    let arguments = ["-T", "all", "--json", "--probe", probe];
    let tool = Tool::start(guest, &arguments)?;
    workload.work()?;
    tool.interrupt()?;
    let lines = tool.written()?;
    let reports = schema::reports(&lines)?;
    let [report] = reports.as_slice() else {
        return Err(format!("{} reports", reports.len()));
    };
    if report["cost"]["probe_runs"].as_u64().is_none_or(|runs| runs == 0) {
        return Err(format!("the probes' cost: {}", report["cost"]));
    }
    let layer = schema::array(&report["layers"])
        .iter()
        .find(|layer| layer["layer"] == EXT4)
        .ok_or_else(|| format!("no {EXT4} in {report}"))?;
    let is_known = !layer["lost"]["entry_missed"].is_null();
    let truth = STORM.truth();
    // Only the workload uses ext4.
    let done = |op: &str| truth.ops.get(&(EXT4.into(), op.into())).map_or(0, |count| count.calls);
    let (mut counted, mut all) = (0, 0);
    for reported in schema::ops(layer) {
        let name = reported["op"].as_str().unwrap_or_default();
        let (calls, truth) = (schema::number(&reported["count"]), done(name));
        if calls > truth {
            return Err(format!("{name}: {calls} counted, {truth} done: {layer}"));
        }
        (counted, all) = (counted + calls, all + truth);
    }
    let lost: u64 = layer["lost"]
        .as_object()
        .into_iter()
        .flat_map(|reasons| reasons.values())
        .map(schema::number)
        .sum();
    // If this kernel does not count skips, the report says that they are unknown.
    if counted + lost != all && (is_known || counted + lost > all) {
        return Err(format!("{counted} counted and {lost} lost of {all}: {layer}"));
    }
    let mut apart = 0;
    for (op, function) in FUNCTIONS {
        let probe = schema::array(&report["probes"])
            .iter()
            .find(|probe| probe["layer"] == EXT4 && probe["functions"] == serde_json::json!([function]));
        let Some(probe) = probe else { continue };
        apart += 1;
        // One program for the entry and the return runs at both.
        let runs_of_a_call = if probe["hook"] == "kprobe.session" { 2 } else { 1 };
        let (ran, skipped) = (
            schema::number(&probe["entry"]["count"]) / runs_of_a_call,
            schema::number(&probe["skipped"]),
        );
        if ran + skipped != done(op) && (is_known || ran + skipped > done(op)) {
            return Err(format!(
                "{function}: ran {ran} times and skipped {skipped} of {}: {probe}",
                done(op)
            ));
        }
    }
    let has_own = probe == "fentry" || probe == "kprobe";
    if all == 0 || (has_own && apart != FUNCTIONS.len()) {
        return Err(format!(
            "{all} calls, {apart} functions with programs of their own: this check proves nothing"
        ));
    }
    Ok(())
}

/// Ops of ext4 with exactly one function each.
const FUNCTIONS: [(&str, &str); 4] = [
    ("read", "ext4_file_read_iter"),
    ("write", "ext4_file_write_iter"),
    ("open", "ext4_file_open"),
    ("fsync", "ext4_sync_file"),
];
