//! Whose requests a disk served while the measured requests waited. The disk serves one request at a time.

use super::report::Tool;
use crate::disks::{NullDisks, set_queue};
use crate::guest::{Check, Guest};
use crate::schema;
use crate::workload::{Spec, Workload};
use serde_json::Value;
use std::time::Duration;

pub const CHECKS: &[Check] = &[
    check("neighbours: two readers of one disk, auto", |guest| {
        beside(guest, ONE, &["-T", "blk"])
    }),
    check("neighbours: two readers of one disk, kprobe", |guest| {
        beside(guest, ONE, &["-T", "blk", "--probe", "kprobe"])
    }),
    check("neighbours: two readers of one disk, the whole stack", |guest| {
        beside(guest, ONE, &[])
    }),
    check("neighbours: many readers of one disk", |guest| {
        beside(guest, MANY, &["-T", "blk"])
    }),
    check("neighbours: a reader that has the disk for itself", alone),
];

const fn check(name: &'static str, run: fn(&Guest) -> Result<(), String>) -> Check {
    Check::new(name, run).when(|guest| guest.tool().is_some()).timed()
}

/// The other readers, each a thread that waits for one request after another.
#[derive(Clone, Copy)]
struct Others {
    threads: u64,
    /// How long the disk takes for a request.
    delay: Duration,
}
const ONE: Others = Others {
    threads: 1,
    delay: Duration::from_millis(20),
};
/// While one request waits, the disk serves so many that the programs account them in several parts (`ENDS_AT_ONCE` of
/// bpf/neighbour.bpf.h).
const MANY: Others = Others {
    threads: 60,
    delay: Duration::from_millis(5),
};
/// The number of ends that the programs account in one part.
const PART: u64 = 16;

const DISK: &str = "nullb0";
const READS: u64 = 20;
/// Before 5.12 programs have no atomic instructions with a result.
const WITHOUT: &str = "5.10";

const READER: Spec = Spec {
    set: "direct",
    threads: 1,
    rounds: READS,
    file: NullDisks::FIRST,
    name: "reader",
};

/// Its requests wait in a scheduler, so that the time is theirs; without one, threads wait for a free request.
fn slow_disk(guest: &Guest, others: Others) -> Result<NullDisks, String> {
    let disk = NullDisks::slow(guest, others.delay, &[("submit_queues", "1"), ("hw_queue_depth", "1")])?;
    let requests = (others.threads + 1).to_string();
    set_queue(DISK, &[("scheduler", "mq-deadline"), ("nr_requests", &requests)])?;
    Ok(disk)
}

/// The report about the reader's requests, and their time including the queue's.
fn reported(guest: &Guest, options: &[&str]) -> Result<(Value, u64), String> {
    let reader = Workload::start(&READER)?;
    let pid = reader.pid.to_string();
    let tool = Tool::start(guest, &[&["-Q", "--json", "-p", &pid], options].concat())?;
    reader.work()?;
    let report = schema::reports(&tool.written()?)?.pop().ok_or("no report")?;
    let layer = schema::layers(&report).find(|layer| layer["layer"] == "blk");
    let layer = layer.ok_or_else(|| format!("no requests: {report}"))?;
    let read = schema::ops(layer).find(|op| op["op"] == "read");
    let read = read.ok_or_else(|| format!("no reads: {layer}"))?;
    if schema::number(&read["count"]) != READS {
        return Err(format!("{} of {READS} reads: {layer}", read["count"]));
    }
    Ok((layer["neighbours"].clone(), schema::number(&read["total_ns"])))
}

/// `None` if it is not known, and not reported.
fn is_told(guest: &Guest, neighbours: &Value) -> Result<bool, String> {
    match (guest.kernel == WITHOUT, neighbours.is_null()) {
        (without, null) if without == null => Ok(!null),
        _ => Err(format!("on this kernel: {neighbours}")),
    }
}

/// Two numbers that may differ by 5 %.
fn are_close(a: u64, b: u64) -> bool {
    a.abs_diff(b) <= a.max(b) / 20
}

/// While one reader waits, the disk mostly serves the others, whose requests come first.
fn beside(guest: &Guest, others: Others, options: &[&str]) -> Result<(), String> {
    let _disk = slow_disk(guest, others)?;
    let other = Workload::start(&Spec {
        threads: others.threads,
        rounds: u64::MAX,
        name: "other",
        ..READER
    })?;
    other.go()?;
    let (neighbours, total) = reported(guest, options)?;
    if !is_told(guest, &neighbours)? {
        return Ok(());
    }
    let number = |name: &str| schema::number(&neighbours[name]);
    let processes = schema::array(&neighbours["others"]).iter();
    let (known, unknown): (Vec<&Value>, Vec<&Value>) = processes.partition(|other| other["pid"].is_u64());
    let [of_other] = known[..] else {
        return Err(format!("others than one: {neighbours}"));
    };
    // The owner of a request that was submitted before the run is not known: one of each thread, and one that ends.
    if unknown
        .iter()
        .any(|other| schema::number(&other["requests"]) > others.threads + 1)
    {
        return Err(format!("more than were under way: {neighbours}"));
    }
    let (served, requests) = (schema::number(&of_other["ns"]), schema::number(&of_other["requests"]));
    let one = u64::try_from(others.delay.as_nanos()).unwrap_or(u64::MAX);
    let wrong = |what: &str| Err(format!("{what}: {neighbours}, of {total} ns"));
    if schema::number(&of_other["pid"]) != u64::from(other.pid) || of_other["is_kernel_thread"] != false {
        return wrong("it is not the other reader");
    }
    // A single thread waits for one request after another.
    if !are_close(number("waited_ns"), total) {
        return wrong("the waits are not the requests' time");
    }
    if number("own_requests") != READS || number("own_ns") < READS * one / 100 * 99 {
        return wrong("not each of its requests was served");
    }
    if requests == 0 || served < requests.saturating_sub(READS) * one {
        return wrong("the other's requests took less than the disk's time");
    }
    // The disk is always busy. The rest of the time is its driver's.
    if served + number("own_ns") < total / 100 * 80 {
        return wrong("the disk was idle");
    }
    if served < total / 4 {
        return wrong("the other one had less than a quarter");
    }
    if others.threads > PART && requests < 2 * PART * READS {
        return wrong("no wait was accounted in several parts");
    }
    Ok(())
}

fn alone(guest: &Guest) -> Result<(), String> {
    let _disk = slow_disk(guest, ONE)?;
    let (neighbours, total) = reported(guest, &["-T", "blk"])?;
    if !is_told(guest, &neighbours)? {
        return Ok(());
    }
    let is_quiet = schema::array(&neighbours["others"]).is_empty();
    let own = schema::number(&neighbours["own_ns"]);
    if !is_quiet || own < total / 100 * 80 || schema::number(&neighbours["untold_ns"]) > 0 {
        return Err(format!("its own requests are the most of {total} ns: {neighbours}"));
    }
    Ok(())
}
