//! The cost of calls and of starts for each way to say which processes are measured (`figures::SELECTIONS`), but for `-p`,
//! which `costs.rs` has.

use super::costs::{READS, pread_of_all, pread_of_command, start_of_all, table};
use crate::figures;
use crate::guest::{Check, Guest, all_detached};

pub const CHECKS: &[Check] = &[
    table("selections: a pread, -T vfs", |guest| match guest.kernel.as_str() {
        "7" => preads(guest, "vfs lossless", &["-T", "vfs"]),
        _ => preads(guest, "vfs fentry", &["-T", "vfs"]),
    })
    .limit(LIMIT),
    table("selections: a pread, all layers", |guest| {
        preads(guest, "all layers", &[])
    })
    .limit(LIMIT),
    table("selections: a pread, all layers, --by process", |guest| {
        preads(guest, "all layers by process", &["--by", "process"])
    })
    .limit(LIMIT),
    table("selections: a pread, all layers, --by file", |guest| {
        preads(guest, "all layers by file", &["--by", "file"])
    })
    .limit(LIMIT),
    table("selections: a pread, all layers, --slower", |guest| {
        preads(guest, "all layers slower", &["--slower", "1s"])
    })
    .limit(LIMIT),
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

const fn on_6_1(name: &'static str, run: fn(&Guest) -> Result<(), String>) -> Check {
    table(name, run)
        .when(|guest| guest.table && guest.kernel == "6.1")
        .limit(LIMIT)
}

const fn on_7(name: &'static str, run: fn(&Guest) -> Result<(), String>) -> Check {
    table(name, run)
        .when(|guest| guest.table && guest.kernel == "7")
        .limit(LIMIT)
}

fn preads(guest: &Guest, figure: &str, arguments: &[&str]) -> Result<(), String> {
    for_each(figure, arguments, |figure, words, is_command| {
        if is_command {
            pread_of_command(guest, figure, words)
        } else {
            pread_of_all(guest, figure, words)
        }
    })
}

fn starts(guest: &Guest, figure: &str, arguments: &[&str]) -> Result<(), String> {
    for_each(figure, arguments, |figure, words, is_command| {
        if is_command {
            start_of_all(guest, figure, &[words, &["--"], READS].concat())
        } else {
            start_of_all(guest, figure, words)
        }
    })
}

/// Measures each selection but the first: its figure, its words, and whether they want a command behind them.
fn for_each(
    figure: &str,
    arguments: &[&str],
    measure: impl Fn(&str, &[&str], bool) -> Result<(), String>,
) -> Result<(), String> {
    let own = std::process::id().to_string();
    figures::SELECTIONS[1..].iter().try_for_each(|(head, end)| {
        let (words, is_command): (&[&str], bool) = match *head {
            "-- COMMAND" => (&[], true),
            "-p PID -f" => (&["-p", &own, "-f"], false),
            _ => (&[], false),
        };
        // The last run detaches behind its end, and until then a call costs more without a tool as well.
        all_detached()?;
        measure(&format!("{figure}{end}"), &[arguments, words].concat(), is_command)
    })
}
