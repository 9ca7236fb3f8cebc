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
    Check::new("asynchronous: requests that wait, each way, -p", |guest| {
        ways(guest, WAYS, true)
    })
    .when(has_tool),
    Check::new("asynchronous: requests that wait, each way, of whomever", |guest| {
        ways(guest, WAYS, false)
    })
    .when(has_tool),
    Check::new("asynchronous: a table of requests that is too small", small_table).when(has_tool),
    Check::new("asynchronous: requests done at once, each way, -p", |guest| {
        ways(guest, CACHED_WAYS, true)
    })
    .when(has_tool),
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

/// Kinds that come together, the op that they are, whether each waits for the disk, and how many there are of each.
const WAYS: &[(&[&str], &str, bool, u64)] = &[
    (
        &["uring-direct", "uring-forced", "uring-sqpoll", "aio-direct"],
        "read",
        true,
        211,
    ),
    (&["uring-write", "aio-write"], "write", true, 223),
    (&["uring-fsync"], "fsync", false, 11),
];

const CACHED_WAYS: &[(&[&str], &str, bool, u64)] = &[
    (
        &["uring-cached", "uring-forced-cached", "aio-cached"],
        "read",
        false,
        307,
    ),
    (&["uring-write-cached"], "write", false, 311),
];

fn ways(guest: &Guest, ways: &[(&[&str], &str, bool, u64)], by_pid: bool) -> Result<(), String> {
    let _disk = stage(guest)?;
    let steps: Vec<String> = ways
        .iter()
        .flat_map(|(kinds, _, _, requests)| kinds.iter().map(move |kind| format!("{kind}:{requests}")))
        .collect();
    let steps: Vec<&str> = steps.iter().map(String::as_str).collect();
    // At vfs everybody is seen.
    let layers: &[&str] = if by_pid { &[VFS, EXT4] } else { &[EXT4] };
    let ended = traced(guest, &steps, &["-T", &layers.join(",")], by_pid)?;
    for &(kinds, op, waits, requests) in ways {
        let mut count = calls(requests * kinds.len() as u64);
        if op == "fsync" {
            count.bytes = 0;
        }
        let at_least = if waits { DELAY } else { Duration::ZERO };
        for layer in layers {
            is_exactly(&ended, layer, op, &count, at_least)?;
        }
    }
    Ok(())
}

/// What finds no place in it is told as lost, so that nothing is missing from the sum.
fn small_table(guest: &Guest) -> Result<(), String> {
    const REQUESTS: u64 = 500;
    let _disk = stage(guest)?;
    let step = format!("aio-direct:{REQUESTS}");
    let ended = traced(guest, &[&step], &["-T", "vfs", "--starts", "8"], true)?;
    let vfs = ended.report()?.layer(VFS)?;
    let (counted, (lost, why)) = (vfs.count("read").calls, vfs.lost.clone().unwrap_or_default());
    if counted + lost != REQUESTS || lost == 0 || !why.contains("table full") {
        return Err(format!("{counted} counted, {lost} lost ({why})\n{}", ended.text));
    }
    Ok(())
}
