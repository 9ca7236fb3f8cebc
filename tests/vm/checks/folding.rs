//! Programs count the same whether they are folded before they are loaded or not.

use super::counts::{self, AUTO, FENTRY, Hook, KPROBE_EVENT};
use super::report::Tool;
use crate::disks::NullDisks;
use crate::guest::{Check, Guest};
use crate::schema;
use crate::workload::{Spec, Workload, prepare};
use std::collections::BTreeMap;

pub const CHECKS: &[Check] = &[
    Check::new("folding: calls, auto", |guest| calls(guest, &AUTO)).when(AUTO.exact),
    Check::new("folding: calls, fentry", |guest| calls(guest, &FENTRY)).when(FENTRY.exact),
    Check::new("folding: calls, kprobe-event", |guest| calls(guest, &KPROBE_EVENT)).when(KPROBE_EVENT.exact),
    Check::new("folding: the whole stack", |guest| stack(guest, &[])).when(AUTO.exact),
    Check::new("folding: the whole stack by file", |guest| {
        stack(guest, &["--by", "file"])
    })
    .when(AUTO.exact),
    Check::new("folding: the whole stack with slow calls", |guest| {
        stack(guest, &["--slower", "1ns"])
    })
    .when(AUTO.exact),
    Check::new("folding: requests", requests).when(AUTO.exact),
];

const FILE: &str = "/mnt/ext4/folding/file";
/// The calls of the checks `counts: `, whose numbers are known.
const SPEC: Spec = Spec {
    file: FILE,
    ..counts::SPEC
};

/// What the tool reports of a workload, by programs as they were compiled or not. It says which they were.
fn reported(
    guest: &Guest,
    as_compiled: bool,
    arguments: &[&str],
    launch: impl Fn() -> Result<Workload, String>,
) -> Result<Tool, String> {
    let workload = launch()?;
    let pid = workload.pid.to_string();
    let mut arguments = [arguments, &["-p", &pid]].concat();
    if as_compiled {
        arguments.push("--as-compiled");
    }
    let tool = Tool::start(guest, &arguments)?;
    let said = tool.said();
    let mut loaded = said.lines().filter(|line| line.contains(" loaded "));
    let all = loaded.next().and_then(|line| line.split(' ').next());
    let whole = loaded.next().and_then(|line| line.split(' ').next());
    if all.is_none() || whole != all.filter(|_| as_compiled) {
        return Err(format!(
            "{arguments:?}: {all:?} programs, {whole:?} of them as compiled"
        ));
    }
    workload.work()?;
    Ok(tool)
}

/// Layers one by one.
fn calls(guest: &Guest, hook: &Hook) -> Result<(), String> {
    prepare(FILE)?;
    let layers = hook.layers.join(",");
    for as_compiled in [false, true] {
        let arguments = ["-T", &layers, "--probe", hook.probe];
        let ended = reported(guest, as_compiled, &arguments, || Workload::start(&SPEC))?.finish()?;
        let exact = ended.report()?.is_exactly(&SPEC.truth());
        exact.map_err(|e| format!("as compiled: {as_compiled}: {e}"))?;
    }
    Ok(())
}

/// Counts and bytes of what is in a JSON report, by where it is. Without the requests of writes: how many a journal makes of a workload depends
/// on when it writes them.
type Counts = BTreeMap<String, (u64, u64)>;

fn counts_of(text: &str) -> Result<Counts, String> {
    let mut counts = Counts::new();
    let mut add = |place: String, it: &serde_json::Value| {
        let sum = counts.entry(place).or_default();
        sum.0 += schema::number(&it["count"]);
        sum.1 += schema::number(&it["bytes"]);
    };
    for report in schema::reports(text)? {
        for family in schema::array(&report["stack"]["families"]) {
            add(family["family"].to_string(), family);
        }
        for layer in schema::layers(&report) {
            for op in schema::ops(layer).filter(|op| layer["layer"] != "blk" || op["op"] != "write") {
                add(format!("{} {}", layer["layer"], op["op"]), op);
            }
        }
    }
    Ok(counts)
}

/// Those of folded programs, and of the same as they were compiled. They have to be the same.
fn same_counts(
    guest: &Guest,
    arguments: &[&str],
    launch: impl Fn() -> Result<Workload, String>,
) -> Result<Counts, String> {
    let arguments = [&["--json"], arguments].concat();
    let run = |as_compiled| counts_of(&reported(guest, as_compiled, &arguments, &launch)?.written()?);
    let (folded, compiled) = (run(false)?, run(true)?);
    if folded == compiled {
        Ok(folded)
    } else {
        Err(format!("folded: {folded:?}, as compiled: {compiled:?}"))
    }
}

fn stack(guest: &Guest, arguments: &[&str]) -> Result<(), String> {
    prepare(FILE)?;
    let counts = same_counts(guest, arguments, || Workload::start(&SPEC))?;
    let read = counts.get("\"read\"").map_or(0, |&(calls, _)| calls);
    if read == 0 {
        return Err(format!("no reads: {counts:?}"));
    }
    Ok(())
}

fn requests(guest: &Guest) -> Result<(), String> {
    const READS: u64 = 100;
    const DEVICE: &str = NullDisks::FIRST;
    let _disk = NullDisks::new(guest, 1, &[])?;
    let count = READS.to_string();
    let words = ["/init", "scene", "direct", DEVICE, &count].map(String::from);
    let counts = same_counts(guest, &["-T", "blk"], || Workload::launch(&words))?;
    let read = counts.get("\"blk\" \"read\"").map_or(0, |&(calls, _)| calls);
    if read != READS {
        return Err(format!("{read} reads, not {READS}: {counts:?}"));
    }
    Ok(())
}
