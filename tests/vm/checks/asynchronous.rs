//! Asynchronous requests: each is counted once, whichever path it takes, and timed from its first attempt to its
//! completion.

use super::hard::Mounted;
use super::report::{Ended, Tool};
use super::times::SlowDisk;
use crate::async_io::{BLOCK, BLOCKS, DISK};
use crate::disks::in_flight;
use crate::guest::{Check, Guest, wait_for};
use crate::workload::{Count, EXT4, VFS, Workload};
use nix::mount::umount;
use std::fs;
use std::time::Duration;

pub const CHECKS: &[Check] = &[
    Check::new("asynchronous: 10,000 io_uring reads, -p", |guest| {
        depth(guest, "uring-direct", true)
    })
    .when(sees_completions),
    Check::new("asynchronous: 10,000 libaio reads, -p", |guest| {
        depth(guest, "aio-direct", true)
    })
    .when(sees_completions),
    Check::new("asynchronous: requests that wait, each way, -p", |guest| {
        ways(guest, WAYS, &[], true)
    })
    .when(sees_completions),
    Check::new("asynchronous: requests that wait, each way, without -p", |guest| {
        ways(guest, WAYS, &[], false)
    })
    .when(sees_completions),
    Check::new("asynchronous: a table of requests that is too small", small_table).when(has_tool),
    Check::new("asynchronous: requests done at once, each way, -p", |guest| {
        ways(guest, CACHED_WAYS, &[], true)
    })
    .when(has_tool),
    Check::new("asynchronous: registered buffers and files, -p", |guest| {
        ways(guest, REGISTERED, &[], true)?;
        ways(guest, CACHED_REGISTERED, &[], true)
    })
    .when(has_tool),
    // One function for such buffers jumps to the other; only these hooks see both at the same stack address.
    Check::new("asynchronous: registered buffers, by kprobes, -p", |guest| {
        for probe in ["kprobe", "kprobe-event"] {
            ways(guest, CACHED_REGISTERED, &["--probe", probe], true).map_err(|e| format!("{probe}: {e}"))?;
        }
        Ok(())
    })
    .when(has_tool),
    Check::new("asynchronous: links, whole and broken, -p", links).when(has_tool),
    Check::new("asynchronous: requests that may not wait, -p", without_waiting).when(has_tool),
    // Before 5.16 such disks have no queues to poll.
    Check::new("asynchronous: polled requests, -p", polled).when(is_new),
    // The function that failed requests come to exists since 6.1.
    Check::new("asynchronous: requests that are cancelled, -p", cancelled).when(is_new),
    Check::new("asynchronous: requests that a process leaves behind", abandoned).when(is_new),
    Check::new("asynchronous: direct reads through overlayfs, -p", overlaid).when(has_tool),
];

/// Kprobes miss completions in interrupts, and the report says so.
fn sees_completions(guest: &Guest) -> bool {
    has_tool(guest) && guest.has_trampolines()
}

fn is_new(guest: &Guest) -> bool {
    has_tool(guest) && guest.kernel != "5.10"
}

fn has_tool(guest: &Guest) -> bool {
    guest.tool().is_some()
}

/// The minimum time of the disk for each request.
const DELAY: Duration = Duration::from_millis(2);

/// A slow disk with a file of `BLOCKS`, which is also cached.
fn stage(guest: &Guest) -> Result<SlowDisk, String> {
    let disk = SlowDisk::new(guest, DELAY)?;
    fill(SlowDisk::FILE)?;
    Ok(disk)
}

fn fill(file: &str) -> Result<(), String> {
    fs::write(file, vec![b'x'; BLOCKS as usize * BLOCK as usize])
        .and_then(|()| fs::File::open(file)?.sync_all())
        .map_err(|e| format!("{file}: {e}"))
}

/// A process that is ready to make these requests.
fn launch(file: &str, steps: &[&str]) -> Result<Workload, String> {
    let command = ["/init", "async", file].into_iter().chain(steps.iter().copied());
    Workload::launch(&command.map(str::to_owned).collect::<Vec<_>>())
}

/// Traces this many requests of each kind, made by one process.
fn traced(guest: &Guest, steps: &[&str], arguments: &[&str], by_pid: bool) -> Result<Ended, String> {
    traced_on(guest, SlowDisk::FILE, steps, arguments, by_pid).map(|(ended, _)| ended)
}

/// The same for requests on this file. Also returns what the process prints: how many of them failed, if any may.
fn traced_on(
    guest: &Guest,
    file: &str,
    steps: &[&str],
    arguments: &[&str],
    by_pid: bool,
) -> Result<(Ended, Option<u64>), String> {
    let workload = launch(file, steps)?;
    let pid = workload.pid.to_string();
    let mut arguments = arguments.to_vec();
    if by_pid {
        arguments.extend(["-p", &pid]);
    }
    let tool = Tool::start(guest, &arguments)?;
    workload.go()?;
    let output = workload.output()?;
    if !by_pid {
        tool.interrupt()?;
    }
    let said = output.stderr.lines().find_map(|line| line.strip_prefix("said "));
    let failed = said.and_then(|said| said.split_whitespace().nth(1)?.parse().ok());
    Ok((tool.finish()?, failed))
}

/// Exactly these calls of an op, none lost, none shorter than `at_least`.
fn is_exactly(ended: &Ended, layer: &str, op: &str, count: &Count, at_least: Duration) -> Result<(), String> {
    let reported = ended.report()?.layer(layer)?;
    let wrong = |what: &str| Err(format!("{layer} {op}: {what}, not {count:?}\n{}", ended.text));
    if reported.count(op) != *count {
        return wrong(&format!("{:?}", reported.count(op)));
    }
    if reported.lost.is_some()
        || reported.unfinished > 0
        || reported.submitted_alone.is_some()
        || !reported.not_measured.is_empty()
    {
        return wrong("something is missing");
    }
    let shortest = reported.ops.get(op).map_or(u64::MAX, |op| op.min_ns);
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

/// Combinations of kinds, their op, whether each waits for the disk, and the number of each.
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

/// With registered buffers, and on a registered file.
const REGISTERED: &[(&[&str], &str, bool, u64)] = &[
    (&["uring-fixed", "uring-file"], "read", true, 101),
    (&["uring-write-fixed"], "write", true, 103),
];

const CACHED_REGISTERED: &[(&[&str], &str, bool, u64)] = &[
    (&["uring-cached-fixed"], "read", false, 199),
    (&["uring-write-cached-fixed"], "write", false, 197),
];

fn ways(guest: &Guest, ways: &[(&[&str], &str, bool, u64)], arguments: &[&str], by_pid: bool) -> Result<(), String> {
    let _disk = stage(guest)?;
    let steps: Vec<String> = ways
        .iter()
        .flat_map(|(kinds, _, _, requests)| kinds.iter().map(move |kind| format!("{kind}:{requests}")))
        .collect();
    let steps: Vec<&str> = steps.iter().map(String::as_str).collect();
    // At vfs all processes are seen.
    let layers: &[&str] = if by_pid { &[VFS, EXT4] } else { &[EXT4] };
    let all = layers.join(",");
    let arguments: Vec<&str> = ["-T", &all].iter().chain(arguments).copied().collect();
    let ended = traced(guest, &steps, &arguments, by_pid)?;
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

/// Requests without an entry are reported as lost, so that the sum is complete.
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

/// Each second request begins when the first one has ended; if that fails, it is never begun, and no layer sees a call.
fn links(guest: &Guest) -> Result<(), String> {
    const REQUESTS: u64 = 100;
    let _disk = stage(guest)?;
    let ended = traced(guest, &[&format!("uring-linked:{REQUESTS}")], &["-T", "vfs,ext4"], true)?;
    for layer in [VFS, EXT4] {
        is_exactly(&ended, layer, "read", &calls(REQUESTS), DELAY)?;
    }
    let ended = traced(
        guest,
        &[&format!("uring-broken-links:{REQUESTS}")],
        &["-T", "vfs,ext4"],
        true,
    )?;
    let failed = Count {
        calls: REQUESTS / 2,
        bytes: 0,
        errors: REQUESTS / 2,
    };
    for layer in [VFS, EXT4] {
        is_exactly(&ended, layer, "read", &failed, Duration::ZERO)?;
    }
    Ok(())
}

/// This many requests, of which these failed.
fn of_which_failed(requests: u64, failed: u64) -> Count {
    Count {
        calls: requests,
        errors: failed,
        ..calls(requests - failed)
    }
}

/// `RWF_NOWAIT`: a request that would have to wait fails, and is not tried again.
fn without_waiting(guest: &Guest) -> Result<(), String> {
    const REQUESTS: u64 = 64;
    let _disk = stage(guest)?;
    let of_kind = |kind: &str| {
        // 5.10 refuses a direct read without waiting if the page cache has pages in its range (`iomap_dio_rw()`).
        fs::write("/proc/sys/vm/drop_caches", "1").map_err(|e| format!("drop_caches: {e}"))?;
        let step = format!("{kind}:{REQUESTS}");
        let (ended, failed) = traced_on(guest, SlowDisk::FILE, &[&step], &["-T", "vfs,ext4"], true)?;
        Ok::<_, String>((
            ended,
            failed.ok_or_else(|| format!("{kind} did not say how many failed"))?,
        ))
    };
    let (ended, failed) = of_kind("uring-nowait")?;
    if failed == REQUESTS {
        return Err("every direct request had to wait: this check checks nothing".into());
    }
    // A refused request did not reach the disk.
    let at_least = if failed == 0 { DELAY } else { Duration::ZERO };
    for layer in [VFS, EXT4] {
        is_exactly(&ended, layer, "read", &of_which_failed(REQUESTS, failed), at_least)?;
    }
    let (ended, failed) = of_kind("uring-nowait-cached")?;
    if failed == 0 {
        return Err("no request had to wait: this check checks nothing".into());
    }
    for layer in [VFS, EXT4] {
        is_exactly(
            &ended,
            layer,
            "read",
            &of_which_failed(REQUESTS, failed),
            Duration::ZERO,
        )?;
    }
    Ok(())
}

/// They complete while their process polls, without an interrupt.
fn polled(guest: &Guest) -> Result<(), String> {
    const REQUESTS: u64 = 500;
    let _disk = SlowDisk::with(guest, DELAY, &[("poll_queues", "1")])?;
    fill(SlowDisk::FILE)?;
    let ended = traced(guest, &[&format!("uring-polled:{REQUESTS}")], &["-T", "vfs,ext4"], true)?;
    for layer in [VFS, EXT4] {
        is_exactly(&ended, layer, "read", &calls(REQUESTS), Duration::ZERO)?;
    }
    Ok(())
}

/// Long enough for others to arrive while one waits.
const LONG_DELAY: Duration = Duration::from_millis(250);
/// In addition to the one that they wait for.
const WAITING: u64 = 9;

/// Requests are cancelled before a worker has begun them. The file system has seen those that were not cancelled.
fn cancelled(guest: &Guest) -> Result<(), String> {
    let _disk = SlowDisk::new(guest, LONG_DELAY)?;
    fill(SlowDisk::FILE)?;
    let step = format!("uring-cancelled:{WAITING}");
    let (ended, failed) = traced_on(guest, SlowDisk::FILE, &[&step], &["-T", "vfs,ext4"], true)?;
    let failed = failed.filter(|failed| *failed > 0);
    let failed = failed.ok_or("no request was cancelled: this check checks nothing")?;
    let all = WAITING + 1;
    is_exactly(&ended, VFS, "write", &of_which_failed(all, failed), Duration::ZERO)?;
    is_exactly(&ended, EXT4, "write", &calls(all - failed), LONG_DELAY)
}

/// When their pages arrive, the process that would copy them has exited, and they end with an error.
fn abandoned(guest: &Guest) -> Result<(), String> {
    let _disk = SlowDisk::new(guest, LONG_DELAY)?;
    fill(SlowDisk::FILE)?;
    let workload = launch(SlowDisk::FILE, &[&format!("uring-abandoned:{WAITING}")])?;
    let tool = Tool::start(guest, &["-T", "vfs,ext4", "--file", SlowDisk::FILE])?;
    fs::write("/proc/sys/vm/drop_caches", "1").map_err(|e| format!("drop_caches: {e}"))?;
    workload.go()?;
    wait_for("the disk to be asked", MINUTE, || in_flight(DISK) > 0)?;
    workload.work()?;
    // Requests keep their file, and so the file system, in use; they end after their process.
    wait_for("the requests to be gone", MINUTE, || umount(SlowDisk::FOLDER).is_ok())?;
    tool.interrupt()?;
    let ended = tool.finish()?;
    for layer in [VFS, EXT4] {
        is_exactly(
            &ended,
            layer,
            "read",
            &of_which_failed(WAITING, WAITING),
            Duration::ZERO,
        )?;
    }
    Ok(())
}

const MINUTE: Duration = Duration::from_secs(60);

/// Overlayfs calls the lower file system with requests of its own, each of which is part of the original request.
fn overlaid(guest: &Guest) -> Result<(), String> {
    const REQUESTS: u64 = 100;
    const OVERLAY: &str = "/mnt/slow-overlay";
    const FILE: &str = "/mnt/slow-overlay/file";
    let _module = guest.load("overlay", "")?;
    let _disk = SlowDisk::new(guest, DELAY)?;
    let folders = ["lower", "upper", "work"].map(|name| format!("{}/{name}", SlowDisk::FOLDER));
    for folder in &folders {
        fs::create_dir_all(folder).map_err(|e| format!("{folder}: {e}"))?;
    }
    let [lower, upper, work] = folders;
    let options = format!("lowerdir={lower},upperdir={upper},workdir={work}");
    let _overlay = Mounted::mount("overlay", OVERLAY, "overlay", &options)?;
    fill(FILE)?;
    let (ended, _) = traced_on(
        guest,
        FILE,
        &[&format!("uring-direct:{REQUESTS}")],
        &["-T", "vfs,overlay,ext4"],
        true,
    )?;
    for layer in [VFS, "overlay", EXT4] {
        is_exactly(&ended, layer, "read", &calls(REQUESTS), DELAY)?;
    }
    Ok(())
}
