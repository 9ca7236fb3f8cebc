//! fio's engines and patterns, as iotracer's own tests have them, and io_uring: each access of each job is recorded once, in the
//! process and at the disk, where the file has its extents.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use iostackbreakdown::model::ids::Op;
use iostackbreakdown::model::record::Request;
use nix::ioctl_readwrite;
use serde_json::Value;

use super::times::SlowDisk;
use crate::guest::{Check, Guest, run};
use crate::peers::{self, Peers};
use crate::records::Recorded;

pub const CHECKS: &[Check] = &[Check::new("matrix: fio's engines and patterns", matrix)
    // Kprobes miss completions in interrupts, and the report says so.
    .when(|guest| guest.tool().is_some() && guest.has_trampolines())];

const ENGINES: [&str; 7] = ["libaio", "posixaio", "sync", "psync", "vsync", "pvsync", "io_uring"];
const PATTERNS: [&str; 4] = ["write", "randwrite", "read", "randread"];
const BLOCK: u64 = 4096;
/// The blocks of each file.
const BLOCKS: u64 = 128;
const RECORDING: &str = "/tmp/matrix.iosb";
/// The whole stack is attached, and 28 jobs start.
const LIMIT: Duration = Duration::from_secs(300);

fn matrix(guest: &Guest) -> Result<(), String> {
    let tool = guest.tool().ok_or("there is no tool")?;
    let _disk = SlowDisk::new(guest, Duration::from_micros(20))?;
    let _peers = Peers::new(guest)?;
    let jobs = || {
        ENGINES
            .into_iter()
            .flat_map(|engine| PATTERNS.map(|pattern| (engine, pattern)))
    };
    for (engine, pattern) in jobs() {
        let path = path_of(engine, pattern);
        fs::write(&path, vec![b'x'; (BLOCK * BLOCKS) as usize]).map_err(|e| format!("{path}: {e}"))?;
    }
    nix::unistd::sync();
    let mut words: Vec<String> = [
        "fio",
        "--output=/tmp/matrix.txt",
        "--bs=4k",
        "--direct=1",
        "--thread",
        "--invalidate=0",
        "--allow_file_create=0",
        "--overwrite=1",
        "--clocksource=clock_gettime",
    ]
    .map(Into::into)
    .into();
    words.push(format!("--size={}", BLOCK * BLOCKS));
    for (engine, pattern) in jobs() {
        words.push(format!("--name={engine}-{pattern}"));
        words.push("--stonewall".into());
        words.push(format!("--filename={}", path_of(engine, pattern)));
        words.push(format!("--ioengine={engine}"));
        words.push(format!("--rw={pattern}"));
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let _ = fs::remove_dir_all(RECORDING);
    let mut record = Command::new(tool);
    record
        .args(["record", "-o", RECORDING, "--"])
        .args(peers::words(&words));
    let said = run(&mut record, LIMIT)?.success()?.stderr;
    if said.contains("INCOMPLETE") {
        return Err(said);
    }
    let mut report = Command::new(tool);
    report.args(["report", RECORDING, "--access", "--json", "--top", "1000"]);
    let answers: Value =
        serde_json::from_str(&run(&mut report, LIMIT)?.success()?.stdout).map_err(|e| e.to_string())?;
    let recorded = Recorded::open(Path::new(RECORDING))?;
    let _ = fs::remove_dir_all(RECORDING);
    let mut wrong = Vec::new();
    for (engine, pattern) in jobs() {
        let path = path_of(engine, pattern);
        if let Err(reason) = of_calls(&answers, &path, pattern).and_then(|()| of_requests(&recorded, &path, pattern)) {
            wrong.push(format!("{engine}-{pattern}: {reason}"));
        }
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "{} of {}: {}\n{said}",
            wrong.len(),
            jobs().count(),
            wrong.join("\n")
        )),
    }
}

fn path_of(engine: &str, pattern: &str) -> String {
    format!("{}/{engine}-{pattern}", SlowDisk::FOLDER)
}

/// Each block of the file is read or written once, by a call and by a request; all but the first follow the one before, or
/// most do not.
fn of_calls(answers: &Value, path: &str, pattern: &str) -> Result<(), String> {
    let files = answers["access"]["files"].as_array().ok_or("no files")?;
    // The job has another root than this check.
    let is_its = |file: &&Value| {
        file["file"]["path"]["text"]
            .as_str()
            .is_some_and(|text| text.ends_with(path))
    };
    let file = files.iter().find(is_its).ok_or("it has no accesses")?;
    let levels = file["levels"].as_array().ok_or("no levels")?;
    for (name, pieces) in [("VFS", 1), ("BLK", extents_of(path)?.len() as u64)] {
        let level = levels.iter().find(|level| level["level"] == name);
        of_level(level.ok_or_else(|| format!("no {name}"))?, pattern, pieces)?;
    }
    Ok(())
}

/// `pieces`: of the file at this level, which need not follow each other.
fn of_level(level: &Value, pattern: &str, pieces: u64) -> Result<(), String> {
    let (direction, other) = match pattern.ends_with("write") {
        true => ("write", "read"),
        false => ("read", "write"),
    };
    let number = |direction: &str, field: &str| level[direction][field].as_u64().unwrap_or(0);
    let (count, bytes) = (number(direction, "count"), number(direction, "bytes"));
    let sequential = number(direction, "sequential") + pieces.saturating_sub(1);
    let is_right = is_pattern(pattern, sequential.min(count), count);
    match (count, bytes, number(other, "count"), is_right) == (BLOCKS, BLOCKS * BLOCK, 0, true) {
        true => Ok(()),
        false => Err(level.to_string()),
    }
}

fn is_pattern(pattern: &str, sequential: u64, count: u64) -> bool {
    match pattern.starts_with("rand") {
        true => sequential * 2 < count,
        false => sequential == count,
    }
}

/// linux/fiemap.h: struct fiemap, with room for so many extents.
#[repr(C)]
pub struct Fiemap {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
    extents: [Extent; EXTENTS],
}

const EXTENTS: usize = 64;
/// Delayed allocations are allocated first.
const FIEMAP_FLAG_SYNC: u32 = 1;

/// struct fiemap_extent
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Extent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved: [u64; 2],
    flags: u32,
    reserved_too: [u32; 3],
}

// FS_IOC_FIEMAP is for the header alone.
const HEADER: usize = std::mem::size_of::<Fiemap>() - EXTENTS * std::mem::size_of::<Extent>();
ioctl_readwrite!(fiemap, b'f', 11, [u8; HEADER]);

/// The extents of a file, which `filefrag -v` prints, in bytes of the disk.
fn extents_of(path: &str) -> Result<Vec<Extent>, String> {
    let file = File::open(path).map_err(|e| format!("{path}: {e}"))?;
    let mut map = Fiemap {
        start: 0,
        length: u64::MAX,
        flags: FIEMAP_FLAG_SYNC,
        mapped: 0,
        count: EXTENTS as u32,
        reserved: 0,
        extents: [Extent::default(); EXTENTS],
    };
    // SAFETY: the header is followed by room for as many extents as it says.
    unsafe { fiemap(file.as_raw_fd(), (&raw mut map).cast()) }.map_err(|e| format!("{path}: its extents: {e}"))?;
    Ok(map.extents[..map.mapped as usize].to_vec())
}

/// The requests within the extents of the file have each block once, in the order of the calls.
fn of_requests(recorded: &Recorded, path: &str, pattern: &str) -> Result<(), String> {
    let extents = extents_of(path)?;
    let disk = fs::metadata(path).map_err(|e| format!("{path}: {e}"))?.dev();
    let disk = [libc::major(disk), libc::minor(disk)];
    let is_its = |request: &&Request| {
        let (from, to) = (request.sector * 512, request.sector * 512 + request.bytes);
        let has = |extent: &Extent| extent.physical <= from && to <= extent.physical + extent.length;
        request.disk == disk && extents.iter().any(has) && [Op::Read, Op::Write].contains(&request.op)
    };
    let mut requests: Vec<&Request> = recorded.records.requests.iter().filter(is_its).collect();
    requests.sort_by_key(|request| request.submitted_ns);
    let bytes: u64 = requests.iter().map(|request| request.bytes).sum();
    let is_write = pattern.ends_with("write");
    let of_kind = requests.iter().filter(|request| (request.op == Op::Write) == is_write);
    let number = of_kind.count() as u64;
    let follows = |pair: &&[&Request]| pair[0].sector * 512 + pair[0].bytes == pair[1].sector * 512;
    // The first one follows none, and an extent need not follow the one before.
    let sequential = requests.windows(2).filter(follows).count() as u64 + extents.len() as u64;
    let is_right = is_pattern(pattern, sequential.min(number), number);
    match (number, requests.len() as u64, bytes, is_right) == (BLOCKS, BLOCKS, BLOCKS * BLOCK, true) {
        true => Ok(()),
        false => Err(format!(
            "{number} requests of {}, {bytes} bytes, {sequential} sequential, in {} extents",
            requests.len(),
            extents.len()
        )),
    }
}
