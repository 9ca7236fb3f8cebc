//! Asynchronous requests: each is counted once, whichever way it takes, and timed from its first attempt to its
//! completion.

use super::report::{Ended, Tool};
use super::times::SlowDisk;
use crate::async_io::{BLOCK, BLOCKS};
use crate::guest::{Check, Guest};
use crate::workload::{Count, EXT4, VFS, Workload};
use std::fs;
use std::time::Duration;

pub const CHECKS: &[Check] = &[
    Check::new("asynchronous: 10,000 io_uring reads, -p", |guest| {
        depth(guest, "uring-direct", true)
    })
    .when(has_tool),
    Check::new("asynchronous: 10,000 libaio reads, -p", |guest| {
        depth(guest, "aio-direct", true)
    })
    .when(has_tool),
    Check::new("asynchronous: 2,000 io_uring reads of whomever, ext4 alone", |guest| {
        whomever(guest, "uring-direct")
    })
    .when(has_tool),
    Check::new("asynchronous: 2,000 libaio reads of whomever, ext4 alone", |guest| {
        whomever(guest, "aio-direct")
    })
    .when(has_tool),
    Check::new("asynchronous: every way that a request takes", ways).when(has_tool),
];

fn has_tool(guest: &Guest) -> bool {
    guest.tool().is_some()
}

/// What the disk takes for each request at least.
const DELAY: Duration = Duration::from_millis(2);

/// A slow disk with a file of `BLOCKS`, in memory, too.
fn stage(guest: &Guest) -> Result<SlowDisk, String> {
    let disk = SlowDisk::new(guest, DELAY)?;
    fs::write(SlowDisk::FILE, vec![b'x'; BLOCKS as usize * BLOCK as usize])
        .and_then(|()| fs::File::open(SlowDisk::FILE)?.sync_all())
        .map_err(|e| format!("{}: {e}", SlowDisk::FILE))?;
    Ok(disk)
}

/// Traces so many requests of each kind, made by one process.
fn traced(guest: &Guest, steps: &[&str], arguments: &[&str], by_pid: bool) -> Result<Ended, String> {
    let mut command = ["/init", "async", SlowDisk::FILE].map(String::from).to_vec();
    command.extend(steps.iter().map(|step| (*step).to_owned()));
    let workload = Workload::launch(&command)?;
    let pid = workload.pid.to_string();
    let mut arguments = arguments.to_vec();
    if by_pid {
        arguments.extend(["-p", &pid]);
    }
    let tool = Tool::start(guest, &arguments)?;
    workload.go()?;
    workload.finish()?;
    if !by_pid {
        tool.interrupt()?;
    }
    tool.finish()
}

/// Exactly these calls of an op, none lost, none shorter than `at_least`.
fn is_exactly(ended: &Ended, layer: &str, op: &str, count: &Count, at_least: Duration) -> Result<(), String> {
    let told = ended.report()?.layer(layer)?;
    let wrong = |what: &str| Err(format!("{layer} {op}: {what}, not {count:?}\n{}", ended.text));
    if told.count(op) != *count {
        return wrong(&format!("{:?}", told.count(op)));
    }
    if told.lost.is_some() || told.unfinished > 0 || !told.not_measured.is_empty() {
        return wrong("something is missing");
    }
    let shortest = told.ops.get(op).map_or(u64::MAX, |op| op.min_ns);
    if Duration::from_nanos(shortest) < at_least {
        return wrong(&format!("one that took {shortest} ns"));
    }
    Ok(())
}

fn calls(calls: u64) -> Count {
    Count {
        calls,
        bytes: calls * u64::from(BLOCK),
        errors: 0,
    }
}

fn depth(guest: &Guest, kind: &str, by_pid: bool) -> Result<(), String> {
    const REQUESTS: u64 = 10_000;
    let _disk = stage(guest)?;
    let ended = traced(guest, &[&format!("{kind}:{REQUESTS}")], &["-T", "vfs,ext4"], by_pid)?;
    for layer in [VFS, EXT4] {
        is_exactly(&ended, layer, "read", &calls(REQUESTS), DELAY)?;
    }
    Ok(())
}

/// Nobody else uses ext4.
fn whomever(guest: &Guest, kind: &str) -> Result<(), String> {
    const REQUESTS: u64 = 2000;
    let _disk = stage(guest)?;
    let ended = traced(guest, &[&format!("{kind}:{REQUESTS}")], &["-T", EXT4], false)?;
    is_exactly(&ended, EXT4, "read", &calls(REQUESTS), DELAY)
}

/// Kind, requests, op, and whether each waits for the disk.
const WAYS: &[(&str, u64, &str, bool)] = &[
    ("uring-direct", 301, "read", true),
    ("uring-cached", 307, "read", false),
    ("uring-forced", 311, "read", true),
    ("uring-forced-cached", 313, "read", false),
    ("uring-sqpoll", 317, "read", true),
    ("uring-write", 331, "write", true),
    ("uring-write-cached", 337, "write", false),
    ("uring-fsync", 11, "fsync", false),
    ("aio-direct", 347, "read", true),
    ("aio-cached", 349, "read", false),
    ("aio-write", 353, "write", true),
];

fn ways(guest: &Guest) -> Result<(), String> {
    let _disk = stage(guest)?;
    let mut wrong = Vec::new();
    for &(kind, requests, op, waits) in WAYS {
        let ended = traced(guest, &[&format!("{kind}:{requests}")], &["-T", "vfs,ext4"], true)?;
        let mut count = calls(requests);
        if op == "fsync" {
            count.bytes = 0;
        }
        let at_least = if waits { DELAY } else { Duration::ZERO };
        for layer in [VFS, EXT4] {
            if let Err(reason) = is_exactly(&ended, layer, op, &count, at_least) {
                wrong.push(format!("{kind}: {reason}"));
            }
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
}
