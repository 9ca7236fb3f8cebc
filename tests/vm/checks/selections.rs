//! The cost of calls and of starts for each way to say which processes are measured ([`Selection`]), but for `-p`,
//! which `costs.rs` has.

use super::costs::{READS, pread_of_all, pread_of_command, start_of_all, table};
use crate::figures::Selection;
use crate::guest::{Check, Guest, all_detached};

pub const CHECKS: &[Check] = &[
    on_each("selections: a pread, -T vfs", |guest| match guest.kernel.as_str() {
        "7" => preads(guest, "vfs lossless", &["-T", "vfs"]),
        _ => preads(guest, "vfs fentry", &["-T", "vfs"]),
    }),
    on_each("selections: a pread, all layers", |guest| {
        preads(guest, "all layers", &[])
    }),
    on_each("selections: a pread, all layers, --by process", |guest| {
        preads(guest, "all layers by process", &["--by", "process"])
    }),
    on_each("selections: a pread, all layers, --by file", |guest| {
        preads(guest, "all layers by file", &["--by", "file"])
    }),
    on_each("selections: a pread, all layers, --slower", |guest| {
        preads(guest, "all layers slower", &["--slower", "1s"])
    }),
    on_6_1("selections: the start, -T syscall", |guest| {
        starts(guest, "start syscall", &["-T", "syscall"])
    }),
    on_6_1("selections: the start, -T blk", |guest| {
        starts(guest, "start blk", &["-T", "blk"])
    }),
    on_6_1("selections: the start, -T ext4", |guest| {
        starts(guest, "start ext4", &["-T", "ext4"])
    }),
    on_6_1("selections: the start, -T vfs", |guest| {
        starts(guest, "start", &["-T", "vfs"])
    }),
    on_6_1("selections: the start, all layers by fentry", |guest| {
        starts(guest, "start all fentry", &[])
    }),
    on_6_1("selections: the start, all layers by kprobes", |guest| {
        starts(guest, "start all kprobe", &["--probe", "kprobe"])
    }),
    on_7("selections: the start, all layers by kprobe.session", |guest| {
        starts(guest, "start all", &[])
    }),
    on_7("selections: the start, all layers, --by file", |guest| {
        starts(guest, "start all by file", &["--by", "file"])
    }),
    on_7("selections: the start, all layers, --slower", |guest| {
        starts(guest, "start all slower", &["--slower", "1s"])
    }),
];

/// In seconds: three runs each, of which each attaches to all functions one by one.
const LIMIT: u64 = 1_800;

/// Measured for the table, on each kernel of it.
const fn on_each(name: &'static str, run: fn(&Guest) -> Result<(), String>) -> Check {
    table(name, run).limit(LIMIT)
}

const fn on_6_1(name: &'static str, run: fn(&Guest) -> Result<(), String>) -> Check {
    on_each(name, run).when(|guest| guest.table && guest.kernel == "6.1")
}

const fn on_7(name: &'static str, run: fn(&Guest) -> Result<(), String>) -> Check {
    on_each(name, run).when(|guest| guest.table && guest.kernel == "7")
}

fn preads(guest: &Guest, figure: &str, arguments: &[&str]) -> Result<(), String> {
    for_each(figure, |figure, selection, own| match selection {
        Selection::Command => pread_of_command(guest, figure, arguments),
        _ => pread_of_all(guest, figure, &[arguments, &selection.words(own, &[])].concat()),
    })
}

fn starts(guest: &Guest, figure: &str, arguments: &[&str]) -> Result<(), String> {
    for_each(figure, |figure, selection, own| {
        start_of_all(guest, figure, &[arguments, &selection.words(own, READS)].concat())
    })
}

/// Measures each selection but the first, by the name of its figure, and the number of this process.
fn for_each(figure: &str, measure: impl Fn(&str, Selection, &str) -> Result<(), String>) -> Result<(), String> {
    let own = std::process::id().to_string();
    Selection::EACH[1..].iter().try_for_each(|selection| {
        // The last run detaches behind its end, and until then a call costs more without a tool as well.
        all_detached()?;
        measure(&format!("{figure}{}", selection.end()), *selection, &own)
    })
}
