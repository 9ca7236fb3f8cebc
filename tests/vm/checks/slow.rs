//! Slow calls printed one by one, and the calls on one file.

use super::hard::Mounted;
use super::report::{FILE as REPORT, Tool};
use crate::disks::NullDisks;
use crate::guest::{Check, Guest, run, wait_for};
use crate::peers::{self, Peers};
use crate::scene::BLOCK;
use crate::schema;
use crate::workload::{SYSCALL, VFS, Workload, prepare};
use serde_json::Value;
use std::fs;
use std::time::Duration;

pub const CHECKS: &[Check] = &[
    Check::new("slow: each call is printed with its rows, or counted", reported)
        .when(|guest| guest.tool().is_some())
        .timed(),
    Check::new("slow: one file's calls, whatever its name", one_file).when(|guest| guest.tool().is_some()),
];

pub const WITH_PEERS: &[Check] = &[
    Check::new("slow: one file's calls, on overlayfs and btrfs", one_file_elsewhere)
        .when(|guest| guest.as_booted() && guest.kernel == "6.12"),
];

const MINUTE: Duration = Duration::from_secs(60);
/// The duration of each request of the slow disk.
const DELAY: Duration = Duration::from_millis(20);
const DIRECT: u64 = 8;
/// More than are printed in a second, however slow the machine is.
const CACHED: u64 = 40_000;
const FOLDER: &str = "/mnt/ext4/slow";
const FILE: &str = "/mnt/ext4/slow/file";

fn scene(name: &str, file: &str, count: u64) -> Result<Workload, String> {
    let command = ["/init", "scene", name, file, &count.to_string()];
    Workload::launch(&command.map(String::from))
}

/// Calls that wait for a slow disk, and then more at once than are printed.
fn reported(guest: &Guest) -> Result<(), String> {
    let _disks = NullDisks::slow(guest, DELAY, &[])?;
    prepare(FILE)?;
    let (direct, cached) = (
        scene("direct", NullDisks::FIRST, DIRECT)?,
        scene("cached", FILE, CACHED)?,
    );
    let pids = [direct.pid, cached.pid];
    let all = format!("{},{}", pids[0], pids[1]);
    let tool = Tool::start(guest, &["--json", "--slower", "1ns", "-p", &all])?;
    direct.go()?;
    // They are printed as they end, not at the end of the run.
    wait_for("what the disk held", MINUTE, || {
        let text = fs::read_to_string(REPORT).unwrap_or_default();
        text.matches("\"pread64\"").count() as u64 >= DIRECT
    })?;
    direct.finish()?;
    cached.work()?;
    tool.interrupt()?;
    let lines = schema::reports(&tool.written()?)?;
    let calls: Vec<&Value> = lines.iter().filter_map(|line| line.get("slow_call")).collect();
    let of = |pid: u32| {
        calls
            .iter()
            .filter(move |call| call["pid"] == pid && call["op"] == "pread64")
    };
    let held: Vec<&&Value> = of(pids[0]).collect();
    let offsets: Vec<u64> = held.iter().map(|call| schema::number(&call["offset"])).collect();
    let expected: Vec<u64> = (0..DIRECT).map(|number| number % 8 * BLOCK as u64).collect();
    if offsets != expected {
        return Err(format!("direct reads at {offsets:?}"));
    }
    for call in &held {
        let is_the_call = call["path"] == NullDisks::FIRST
            && call["path_is"] == "whole"
            && [&call["bytes"], &call["size"]].map(schema::number) == [BLOCK as u64; 2]
            && call["error"].is_null();
        if !is_the_call || schema::number(&call["total_ns"]) < DELAY.as_nanos() as u64 * 9 / 10 {
            return Err(format!("a call that the disk held: {call}"));
        }
    }
    // Once the disk has begun, a thread that is not asleep yet may lose its CPU for long.
    let marked = held.iter().filter(|call| call["guilty"] == "device").count() as u64;
    if marked < DIRECT / 2 {
        return Err(format!("the disk is marked in {marked} of {DIRECT} calls: {held:?}"));
    }
    // Over a mount.
    let is_cached = |call: &&Value| call["path"] == FILE && call["path_is"] == "whole" && call["offset"] == 0;
    if of(pids[1]).count() == 0 || !of(pids[1]).all(is_cached) {
        return Err(format!("cached reads: {:?}", of(pids[1]).next()));
    }
    let left_out: u64 = lines.iter().map(|line| schema::sum(&line["slow_calls_not_told"])).sum();
    let report = lines
        .iter()
        .find(|line| line.get("stack").is_some())
        .ok_or("no report")?;
    let count = schema::calls(report);
    let slow = &report["stack"]["slow"];
    let (reported, limited) = (schema::number(&slow["told"]), schema::number(&slow["limited"]));
    let not_told = limited + schema::number(&slow["no_room"]);
    if reported != calls.len() as u64 || not_told != left_out || reported + not_told != count || limited == 0 {
        let lines = calls.len();
        return Err(format!(
            "{lines} reported and {left_out} left out of {count} calls: {slow}"
        ));
    }
    if count < DIRECT + CACHED || schema::sum(&report["lost"]) > 0 {
        return Err(format!("{count} calls, lost {}", report["lost"]));
    }
    Ok(())
}

fn one_file(guest: &Guest) -> Result<(), String> {
    reads_of_one_file(guest, FOLDER)
}

/// Where the numbers returned by `stat` are not the kernel's.
fn one_file_elsewhere(guest: &Guest) -> Result<(), String> {
    const LAYERS: [&str; 2] = ["/mnt/ext4/slow-upper", "/mnt/ext4/slow-work"];
    let _modules = [guest.load("overlay", "")?, guest.load("btrfs", "")?];
    let _peers = Peers::new(guest)?;
    let _disks = NullDisks::new(guest, 1, &[("size", "256")])?;
    run(
        &mut peers::command(&["mkfs.btrfs", "-q", "-f", NullDisks::FIRST]),
        MINUTE,
    )?
    .success()?;
    for folder in LAYERS {
        fs::create_dir_all(folder).map_err(|e| format!("{folder}: {e}"))?;
    }
    let layers = format!("lowerdir=/mnt/ext4,upperdir={},workdir={}", LAYERS[0], LAYERS[1]);
    let _mounted = [
        Mounted::mount(NullDisks::FIRST, "/mnt/slow-btrfs", "btrfs", "")?,
        Mounted::mount("overlay", "/mnt/slow-overlay", "overlay", &layers)?,
    ];
    for folder in ["/mnt/slow-btrfs", "/mnt/slow-overlay"] {
        reads_of_one_file(guest, folder).map_err(|e| format!("{folder}: {e}"))?;
    }
    Ok(())
}

/// Reads of a file by another name, while another process reads another file.
fn reads_of_one_file(guest: &Guest, folder: &str) -> Result<(), String> {
    const READS: u64 = 500;
    let [file, other, name, renamed] = ["file", "other", "name", "renamed"].map(|name| format!("{folder}/{name}"));
    for file in [&file, &other] {
        prepare(file)?;
    }
    let error = |error: std::io::Error| error.to_string();
    fs::hard_link(&file, &name).map_err(error)?;
    let (reads, others) = (scene("cached", &name, READS)?, scene("cached", &other, READS)?);
    let pids = format!("{},{}", reads.pid, others.pid);
    let tool = Tool::start(guest, &["--json", "-T", "syscall,vfs", "--file", &file, "-p", &pids])?;
    fs::rename(&file, &renamed).map_err(error)?;
    for workload in [reads, others] {
        workload.work()?;
    }
    tool.interrupt()?;
    let reports = schema::reports(&tool.written()?)?;
    fs::remove_file(&renamed)
        .and_then(|()| fs::remove_file(&name))
        .map_err(error)?;
    let ops = |layer: &'static str| {
        let layers = reports.iter().flat_map(schema::layers);
        let ops = layers
            .filter(move |reported| reported["layer"] == layer)
            .flat_map(schema::ops);
        let called = ops.filter(|op| schema::number(&op["count"]) > 0);
        called
            .map(|op| {
                (
                    op["op"].as_str().unwrap_or_default().to_owned(),
                    schema::number(&op["count"]),
                )
            })
            .collect::<Vec<_>>()
    };
    let expected = [(SYSCALL, ["pread64", "close"]), (VFS, ["read", ""])];
    for (layer, names) in expected {
        let (reported, reads) = (ops(layer), (names[0].to_owned(), READS));
        // How it is closed depends on the process.
        if !reported.contains(&reads) || reported.iter().any(|(name, _)| !names.contains(&name.as_str())) {
            return Err(format!("{layer}: {reported:?}"));
        }
    }
    Ok(())
}
