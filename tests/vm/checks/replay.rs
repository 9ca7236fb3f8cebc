//! `replay --measure`: what a slower disk adds to each request is in its row, and all else keeps its counts.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::hard::Mounted;
use crate::disks::{MappedDisk, NullDisks};
use crate::guest::{Check, Guest, run};

pub const CHECKS: &[Check] = &[
    Check::new("replay: 5 ms more for each request of a disk", slower).when(|guest| {
        // Kernels with file systems as modules do not differ here.
        guest.as_booted() && !guest.kernel.ends_with("-full")
    }),
];

const FOLDER: &str = "/mnt/replay";
const USERS: &str = "/etc/passwd";
const RECORDING: &str = "/tmp/replay.iosb";
/// All of the disk below.
const SECTORS: u64 = 131_072;
const READS: u64 = 30;
const DELAY_MS: u64 = 5;
/// Timers of the kernel may expire a tick early: at 250 Hz.
const EARLY_MS: u64 = 1;
const LIMIT: Duration = Duration::from_secs(180);

fn slower(guest: &Guest) -> Result<(), String> {
    let tool = guest.tool().ok_or("there is no tool")?;
    let _below = NullDisks::new(guest, 1, &[])?;
    let delayed = |ms: u64| format!("{} 0 {ms}", NullDisks::FIRST);
    let disk = MappedDisk::new(guest, "dm_delay", "delay", SECTORS, &delayed(0))?;
    let _mounted = Mounted::new(&disk.device(), FOLDER)?;
    let file = format!("{FOLDER}/file");
    fs::write(&file, [7; READS as usize * 4096]).map_err(|e| format!("{file}: {e}"))?;
    // The guest has no users.
    fs::create_dir_all("/etc").map_err(|e| format!("/etc: {e}"))?;
    fs::write(USERS, "replayer:x:1000:1000::/:/bin/sh\n").map_err(|e| format!("{USERS}: {e}"))?;
    let into = format!("{FOLDER}/into");
    fs::create_dir(&into).map_err(|e| format!("{into}: {e}"))?;
    std::os::unix::fs::chown(&into, Some(1000), Some(1000)).map_err(|e| format!("{into}: {e}"))?;

    let _ = fs::remove_dir_all(RECORDING);
    let reads = READS.to_string();
    let mut record = Command::new(tool);
    record.args([
        "record", "-q", "-o", RECORDING, "--", "/init", "target", "direct", &file, &reads,
    ]);
    run(&mut record, LIMIT)?.success()?;
    let replayed = || -> Result<Value, String> {
        let mut replay = Command::new(tool);
        replay.args([
            "replay",
            RECORDING,
            "--into",
            &into,
            "--user",
            "replayer",
            "-s",
            "0",
            "--measure",
            "--json",
        ]);
        let output = run(&mut replay, LIMIT)?.success()?;
        let line: Value = serde_json::from_str(&output.stdout).map_err(|e| format!("{e}: {}", output.stdout))?;
        Ok(line["measured"]["replayed"].clone())
    };
    let fast = replayed()?;
    disk.reload(SECTORS, &delayed(DELAY_MS))?;
    let slow = replayed()?;
    disk.reload(SECTORS, &delayed(0))?;
    let _ = fs::remove_dir_all(RECORDING);
    fs::remove_file(USERS).map_err(|e| format!("{USERS}: {e}"))?;

    let device = |report: &Value| row(report, "device");
    let least = READS * (DELAY_MS - EARLY_MS) * 1_000_000;
    let more = device(&slow)?.saturating_sub(device(&fast)?);
    if more < least {
        return Err(format!("{more} ns more in device, and not {least}: {fast:#}\n{slow:#}"));
    }
    let (before, after) = (counts(&fast), counts(&slow));
    if before != after || !before.values().any(|calls| *calls == READS) {
        return Err(format!("{before:?} without the delay, {after:?} with it"));
    }
    Ok(())
}

/// The family of reads.
fn reads(report: &Value) -> Result<&Value, String> {
    let families = report["stack"]["families"].as_array().into_iter().flatten();
    let mut reads = families.filter(|family| family["family"] == "read");
    reads.next().ok_or_else(|| format!("no reads: {report:#}"))
}

/// The time of reads in a row, in nanoseconds.
fn row(report: &Value, name: &str) -> Result<u64, String> {
    let rows = reads(report)?["rows"].as_array().into_iter().flatten();
    let ns = rows.filter(|row| row["row"] == name).find_map(|row| row["ns"].as_u64());
    ns.ok_or_else(|| format!("no row {name}: {report:#}"))
}

/// Calls by family, and those of reads by layer.
fn counts(report: &Value) -> BTreeMap<String, u64> {
    let families = report["stack"]["families"].as_array().into_iter().flatten();
    let of_family = |family: &Value| Some((family["family"].to_string(), family["count"].as_u64()?));
    let rows = reads(report)
        .ok()
        .and_then(|reads| reads["rows"].as_array())
        .into_iter()
        .flatten();
    let layers = rows.filter_map(|row| Some((row["row"].to_string(), row["calls"].as_u64()?)));
    families.filter_map(of_family).chain(layers).collect()
}
