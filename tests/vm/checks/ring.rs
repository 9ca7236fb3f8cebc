//! `record --ring`: what a slow or a hung disk does to a call is in the recording, with what preceded it.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::disks::{MappedDisk, NullDisks};
use crate::guest::{Check, Guest, Running, wait_for};
use crate::records::{Recorded, numbered, open};
use iostackbreakdown::recording::Recording;

pub const CHECKS: &[Check] = &[
    Check::new("ring: an fsync that takes 800 ms", |guest| {
        slow_fsync(guest, &["-T", "syscall,blk"])
    })
    .when(is_here),
    Check::new("ring: an fsync that takes 800 ms, by the whole stack", |guest| {
        slow_fsync(guest, &[])
    })
    .when(is_here),
    Check::new("ring: a read of a disk that hangs", hung_read).when(is_here),
];

const RECORDING: &str = "/tmp/ring.iosb";
const MINUTE: Duration = Duration::from_secs(60);
/// Functions of the whole stack are attached one by one.
const TO_ATTACH: Duration = Duration::from_secs(180);
/// 32 MB.
const SECTORS: u64 = 32 << 11;
const BLOCK: usize = 4096;
/// Reads before what happens.
const READS: u64 = 20;
const DELAY_MS: u64 = 800;
/// By how much that may be less: dm-delay counts ticks, which begin before the call, and which an emulated machine gets in
/// bursts.
const TICKS_MS: u64 = 20;

fn is_here(guest: &Guest) -> bool {
    guest.tool().is_some()
}

/// A disk whose writes take so long, in milliseconds.
fn delayed(write_ms: u64) -> String {
    let below = NullDisks::FIRST;
    format!("{below} 0 0 {below} 0 {write_ms}")
}

/// The last part of this process, as long as `span`, kept until `trigger`.
fn kept(guest: &Guest, span: &str, trigger: &[&str], arguments: &[&str]) -> Result<Running, String> {
    let _ = fs::remove_dir_all(RECORDING);
    let (path, own) = (guest.tool().ok_or("there is no tool")?, std::process::id().to_string());
    let mut tool = Command::new(path);
    tool.args([
        "record", "-o", RECORDING, "-p", &own, "--ring", span, "--after", "500ms",
    ]);
    let running = Running::start(tool.args(trigger).args(arguments))?;
    wait_for("the banner", TO_ATTACH, || running.stderr().contains("SIGUSR1 writes"))
        .map_err(|e| format!("{e}: {}", running.stderr()))?;
    Ok(running)
}

/// The recording, and what it was written for.
fn written(running: Running) -> Result<(Recorded, String), String> {
    let said = running.finish(MINUTE)?.success()?.stderr;
    if !said.contains("nothing lost") {
        return Err(said);
    }
    let recording = Recording::open(Path::new(RECORDING)).map_err(|cause| cause.to_string())?;
    let trigger = recording.end().map(|end| end.trigger.clone()).ok_or("it was cut")?;
    let recorded = Recorded::open(Path::new(RECORDING));
    let _ = fs::remove_dir_all(RECORDING);
    Ok((recorded?, trigger))
}

/// Whether it has the reads that preceded what happened at `before_ns`.
fn has_reads(recorded: &Recorded, before_ns: u64) -> Result<(), String> {
    let calls = recorded.calls("pread64");
    let offsets: Vec<Option<u64>> = calls
        .iter()
        .filter(|call| call.end_ns < Some(before_ns))
        .map(|call| call.offset)
        .collect();
    let wanted = (0..READS).map(|number| Some(number * BLOCK as u64));
    match offsets.iter().copied().eq(wanted) {
        true => Ok(()),
        false => Err(format!("the reads before it are {offsets:?}")),
    }
}

/// Writes to a disk that takes 800 ms for it are waited for by an fsync.
fn slow_fsync(guest: &Guest, arguments: &[&str]) -> Result<(), String> {
    let _below = NullDisks::new(guest, 1, &[])?;
    let disk = MappedDisk::new(guest, "dm_delay", "delay", SECTORS, &delayed(0))?;
    let device = disk.device();
    let direct = open(Path::new(&device), libc::O_RDONLY | libc::O_DIRECT);
    let cached = open(Path::new(&device), libc::O_RDWR);
    let running = kept(guest, "5s", &["--until-slower", "500ms,fsync"], arguments)?;
    numbered(direct, 0..READS * BLOCK as u64, 1, BLOCK, BLOCK as u64);
    disk.reload(SECTORS, &delayed(DELAY_MS))?;
    // SAFETY: the memory is as long as said; the descriptor is open.
    unsafe {
        libc::pwrite(cached, [7_u8; BLOCK].as_ptr().cast(), BLOCK, 0);
        libc::fsync(cached);
        libc::close(cached);
        libc::close(direct);
    }
    let (recorded, trigger) = written(running)?;
    let calls = recorded.calls("fsync");
    let [fsync] = calls[..] else {
        return Err(format!("{calls:?}"));
    };
    if !trigger.starts_with("fsync of ") || fsync.duration_ns() < Some((DELAY_MS - TICKS_MS) * 1_000_000) {
        return Err(format!("{trigger}: {fsync:?}"));
    }
    has_reads(&recorded, fsync.begin_ns)?;
    if !arguments.is_empty() {
        return Ok(());
    }
    // A worker of the kernel submits it, so that only the whole stack knows whose it is.
    let is_inside = |at_ns: u64| fsync.begin_ns <= at_ns && Some(at_ns) <= fsync.end_ns;
    let mut requests = recorded
        .records
        .requests
        .iter()
        .filter(|request| request.op.name() == "write");
    if !requests.any(|request| is_inside(request.ended_ns)) {
        return Err(format!("no write ended during it: {:?}", recorded.records.requests));
    }
    let rows: u64 = fsync.rows.iter().sum();
    match Some(rows) == fsync.duration_ns() {
        true => Ok(()),
        false => Err(format!("its rows do not add up: {fsync:?}")),
    }
}

/// A read of a suspended disk does not return until that is resumed.
fn hung_read(guest: &Guest) -> Result<(), String> {
    let _below = NullDisks::new(guest, 1, &[])?;
    let disk = MappedDisk::new(guest, "dm_delay", "delay", SECTORS, &delayed(0))?;
    let direct = open(Path::new(&disk.device()), libc::O_RDONLY | libc::O_DIRECT);
    // Suspending the disk may take seconds of an emulated CPU, after which the reads are still to be there.
    let running = kept(guest, "30s", &["--until-stuck", "2s"], &["-T", "syscall,blk"])?;
    numbered(direct, 0..READS * BLOCK as u64, 1, BLOCK, BLOCK as u64);
    disk.suspend()?;
    let (recorded, trigger) = std::thread::scope(|scope| {
        scope.spawn(|| numbered(direct, 0..BLOCK as u64, 1, BLOCK, BLOCK as u64));
        let written = written(running);
        // Otherwise the read would hang for ever.
        disk.resume().and(written)
    })?;
    // SAFETY: the descriptor is open.
    unsafe { libc::close(direct) };
    let open = recorded.records.calls.iter().filter(|call| call.end_ns.is_none());
    let open: Vec<_> = open.collect();
    let is_it = matches!(open[..], [call] if call.op.name() == "pread64" && call.pid == std::process::id());
    if !is_it || !trigger.contains("pread64") {
        return Err(format!("{trigger}: {open:?}"));
    }
    has_reads(&recorded, open[0].begin_ns)
}
