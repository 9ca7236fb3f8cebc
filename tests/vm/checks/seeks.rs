//! `report --seeks`: a known pattern on a disk has its distances.

use std::fs;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::disks::NullDisks;
use crate::guest::{Check, Guest, run};
use crate::peers::{self, Peers};

pub const CHECKS: &[Check] = &[Check::new("seeks: reads with a stride", strided).when(|guest| guest.tool().is_some())];

const READS: u64 = 64;
const BLOCK: u64 = 4096;
/// From the end of a read to the begin of the next.
const GAP: u64 = 60 << 10;
const SECTOR: u64 = 512;
const RECORDING: &str = "/tmp/seeks.iosb";
const LIMIT: Duration = Duration::from_secs(120);

fn strided(guest: &Guest) -> Result<(), String> {
    let tool = guest.tool().ok_or("there is no tool")?;
    let _disk = NullDisks::new(guest, 1, &[])?;
    let _peers = Peers::new(guest)?;
    let fio = format!(
        "fio --output=/tmp/seeks.txt --name=strided --filename={} --rw=read:{GAP} --bs={BLOCK} --number_ios={READS} \
         --size=64m --direct=1 --thread --invalidate=0 --clocksource=clock_gettime",
        NullDisks::FIRST
    );
    let words: Vec<&str> = fio.split(' ').filter(|word| !word.is_empty()).collect();
    let _ = fs::remove_dir_all(RECORDING);
    let mut record = Command::new(tool);
    record.args(["record", "-T", "blk", "-o", RECORDING, "--"]);
    let said = run(record.args(peers::words(&words)), LIMIT)?.success()?.stderr;
    let mut report = Command::new(tool);
    // The program itself is read from another disk.
    let disk = NullDisks::FIRST.trim_start_matches("/dev/");
    report.args(["report", RECORDING, "--seeks", "-d", disk, "--json"]);
    let report = run(&mut report, LIMIT)?.success()?.stdout;
    let _ = fs::remove_dir_all(RECORDING);
    let report: Value = serde_json::from_str(&report).map_err(|e| e.to_string())?;
    let disk = &report["seeks"]["disks"][0];
    let number = |field: &str| disk[field].as_u64();
    let gap = GAP / SECTOR;
    let sums = [number("requests"), number("seeks"), number("sectors")];
    let rows = disk["rows"].as_array().ok_or("no rows")?;
    let has_gap = |row: &&Value| {
        let end = |field: &str| row[field].as_i64();
        end("from") <= Some(gap.cast_signed()) && Some(gap.cast_signed()) <= end("to")
    };
    let counted = rows.iter().find(has_gap).and_then(|row| row["count"].as_u64());
    let seeks = READS - 1;
    if sums != [READS, seeks, seeks * gap].map(Some) || counted != Some(seeks) {
        return Err(format!("{disk}\n{said}"));
    }
    Ok(())
}
