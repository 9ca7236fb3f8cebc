//! Hard cases: calls that end in unusual ways, nest, fail, or lack a resource of the machine. Counts are exact, and
//! anything else is reported as lost.

use super::counts::ALL_LAYERS;
use super::report::{Ended, Op, Tool};
use crate::disks::{DiskStats, LoopDisk, MappedDisk, NullDisks, ScsiDisk, in_flight, set_queue};
use crate::guest::{Check, Guest, Running, run, wait_for};
use crate::trouble::{REFUSED, SHORT};
use crate::workload::{BLK, Calls, Count, EXT4, SYSCALL, Spec, VFS, Workload, prepare};
use nix::mount::{MntFlags, MsFlags, mount, umount, umount2};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::time::Duration;

pub const CHECKS: &[Check] = &[
    check("hard: O_SYNC, O_DSYNC and flags of single calls", flags),
    check("hard: 512 threads, each of them all calls", crowd).when(newest_of_each_kind),
    check("hard: processes killed inside their calls", killed),
    check("hard: threads that their process ends inside their calls", exited),
    check("hard: reads that signals interrupt", interrupted),
    check("hard: -- COMMAND with a storm of forks and execs", storm).when(newest_of_each_kind),
    check("hard: overlayfs on ext4 on loop on ext4", overlay),
    check("hard: a disk that fails, below a file system", failing_disk),
    check("hard: a disk that fails, by dm-error and scsi_debug", failing_target),
    check("hard: a file system without space, and read-only", no_space),
    check("hard: a file system that was shut down", shut_down),
    check("hard: requests that are split, merged and discarded in pieces", pieces),
    check("hard: memory is short", little_memory).when(newest_of_each_kind),
    check("hard: CPUs go and come back", hotplug).when(newest_of_each_kind),
    check("hard: a disk is taken away under its readers", taken_away),
    check("hard: calls by the 32-bit table are what that table says", compat)
        .when(|guest| guest.as_booted() && cfg!(target_arch = "x86_64")),
    check("hard: a command has the limits that the tool was given", limits),
];

/// On every kernel without words on its command line. Kernels with file systems as modules do not differ here.
const fn check(name: &'static str, run: fn(&Guest) -> Result<(), String>) -> Check {
    Check::new(name, run).when(|guest| guest.as_booted() && !guest.kernel.ends_with("-full"))
}

/// A kernel that preempts its tasks, and one that does not: for slow checks.
fn newest_of_each_kind(guest: &Guest) -> bool {
    guest.as_booted() && matches!(guest.kernel.as_str(), "6.12" | "7")
}

const FOLDER: &str = "/mnt/hard";
const FILE: &str = "/mnt/hard/file";
const NULL: &str = "nullb0";
const MINUTE: Duration = Duration::from_secs(60);
const SPEC: Spec = Spec {
    set: "mix",
    threads: 2,
    rounds: 3,
    file: "/mnt/ext4/hard/file",
    name: "worker",
};

/// A file system, while this exists.
pub struct Mounted(&'static str);

impl Mounted {
    /// A new ext4 on this device.
    pub fn new(device: &str, folder: &'static str) -> Result<Self, String> {
        // No journal: only the check's calls may use the disk. Features are named, since 5.10 cannot mount today's
        // defaults.
        let options = ["-q", "-F", "-O", "none,extent,filetype,sparse_super,large_file", device];
        run(Command::new("mkfs.ext4").args(options), MINUTE)?.success()?;
        Self::mount(device, folder, "ext4", "")
    }

    pub fn mount(device: &str, folder: &'static str, kind: &str, options: &str) -> Result<Self, String> {
        fs::create_dir_all(folder).map_err(|e| format!("{folder}: {e}"))?;
        mount(Some(device), folder, Some(kind), MsFlags::MS_NOATIME, Some(options))
            .map_err(|e| format!("{device} on {folder}: {e}"))?;
        Ok(Self(folder))
    }
}

impl Drop for Mounted {
    /// The last user may have ended only a moment ago.
    fn drop(&mut self) {
        let unmounted = wait_for("the last user to end", MINUTE, || umount(self.0).is_ok());
        if let Err(error) = unmounted {
            eprintln!("{}: {error}", self.0);
            let _ = umount2(self.0, MntFlags::MNT_DETACH);
        }
    }
}

fn trouble(words: &[&str]) -> Result<Workload, String> {
    let command = ["/init", "trouble"].iter().chain(words);
    Workload::launch(&command.map(|word| (*word).to_owned()).collect::<Vec<_>>())
}

/// Measures a process at these layers, from the signal that starts it to its end.
fn measure(
    guest: &Guest,
    layers: &str,
    options: &[&str],
    process: Workload,
    end: impl FnOnce(Workload) -> Result<(), String>,
) -> Result<Ended, String> {
    let pid = process.pid.to_string();
    let mut arguments = vec!["-T", layers, "-p", &pid];
    arguments.extend(options);
    let tool = Tool::start(guest, &arguments)?;
    process.go()?;
    end(process)?;
    tool.finish()
}

fn is_exactly(ended: &Ended, truth: &Calls) -> Result<(), String> {
    let exactly = ended.report()?.is_exactly(truth);
    exactly.map_err(|e| format!("{e}\n{}", ended.text))
}

/// So many reads of a block each, past the page cache.
fn are_direct_reads(ended: &Ended, count: u64) -> Result<(), String> {
    let read = |layer, op| (layer, op, count, count * 4096, 0);
    is_exactly(
        ended,
        &calls(&[read(SYSCALL, "pread64"), read(VFS, "read"), read(BLK, "read")]),
    )
}

/// A workload is counted exactly at these layers.
fn exact(guest: &Guest, layers: &str, spec: &Spec) -> Result<(), String> {
    let ended = measure(guest, layers, &[], Workload::start(spec)?, Workload::finish)?;
    is_exactly(&ended, &spec.truth())
}

fn all_layers() -> String {
    ALL_LAYERS.join(",")
}

/// The truth as a list: layer, op, calls, bytes, errors.
fn calls(counts: &[(&str, &str, u64, u64, u64)]) -> Calls {
    let count = |&(layer, op, calls, bytes, errors): &(&str, &str, u64, u64, u64)| {
        ((layer.into(), op.into()), Count { calls, bytes, errors })
    };
    Calls {
        ops: counts.iter().map(count).collect(),
        ..Calls::default()
    }
}

fn flags(guest: &Guest) -> Result<(), String> {
    prepare(SPEC.file)?;
    exact(guest, &all_layers(), &Spec { set: "flags", ..SPEC })?;
    exact(guest, &all_layers(), &Spec { set: "odd", ..SPEC })
}

fn crowd(guest: &Guest) -> Result<(), String> {
    const CROWD: Spec = Spec {
        threads: 512,
        rounds: 1,
        ..SPEC
    };
    prepare(CROWD.file)?;
    exact(guest, &all_layers(), &CROWD)
}

/// Uninterruptible calls end before their process does; interruptible ones end with an error internal to the kernel.
fn killed(guest: &Guest) -> Result<(), String> {
    const READERS: u64 = 40;
    let _disk = NullDisks::slow(guest, Duration::from_secs(1), &[])?;
    let readers = trouble(&["waits", &READERS.to_string(), NullDisks::FIRST])?;
    let ended = measure(guest, "syscall,vfs,blk", &[], readers, |readers| {
        wait_for("all reads to be under way", MINUTE, || in_flight(NULL) == READERS)?;
        kill(Pid::from_raw(readers.pid as i32), Signal::SIGKILL).map_err(|e| format!("kill: {e}"))?;
        // The signal killed it, so it is no success.
        let _ = readers.finish();
        Ok(())
    })?;
    are_direct_reads(&ended, READERS)
}

/// A thread with a call under way when its process exits ends it before it disappears.
fn exited(guest: &Guest) -> Result<(), String> {
    const READERS: u64 = 16;
    let _disk = NullDisks::slow(guest, Duration::from_secs(1), &[])?;
    let readers = trouble(&["leaves", &READERS.to_string(), NullDisks::FIRST])?;
    let ended = measure(guest, "syscall,vfs,blk", &[], readers, |readers| {
        wait_for("all reads to be under way", MINUTE, || in_flight(NULL) == READERS)?;
        readers.work()
    })?;
    are_direct_reads(&ended, READERS)
}

/// Each signal ends a read with a code that says whether it is restarted, which is another call.
fn interrupted(guest: &Guest) -> Result<(), String> {
    const SIGNALS: u64 = 20;
    for kind in ["restart", "once"] {
        let reader = trouble(&["interrupted", kind])?;
        let ended = measure(guest, "syscall,vfs", &["--all-files"], reader, |reader| {
            for _ in 0..SIGNALS {
                wait_for("a read to be waiting", MINUTE, || waits_in_read(reader.pid))?;
                kill(Pid::from_raw(reader.pid as i32), Signal::SIGUSR2).map_err(|e| format!("kill: {e}"))?;
            }
            wait_for("a read to be waiting", MINUTE, || waits_in_read(reader.pid))?;
            kill(Pid::from_raw(reader.pid as i32), Signal::SIGKILL).map_err(|e| format!("kill: {e}"))?;
            let _ = reader.finish();
            Ok(())
        })?;
        let all = SIGNALS + 1;
        is_exactly(
            &ended,
            &calls(&[(SYSCALL, "read", all, 0, all), (VFS, "read", all, 0, all)]),
        )?;
        for layer in &ended.report()?.layers {
            let errors = layer.ops.get("read").map(|op: &Op| &op.errors);
            if errors.is_none_or(|errors| errors.get("ERESTARTSYS") != Some(&all)) {
                return Err(format!("{kind}, {}: {errors:?}", layer.name));
            }
        }
    }
    Ok(())
}

/// It sleeps in a read, and no signal is pending.
fn waits_in_read(pid: u32) -> bool {
    let text = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let status = text("status");
    let nothing_pending = ["SigPnd:", "ShdPnd:"].iter().all(|name| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.is_some_and(|set| set.trim().bytes().all(|digit| digit == b'0'))
    });
    let in_read = text("syscall").starts_with(&format!("{} ", libc::SYS_read));
    nothing_pending && status.contains("State:\tS") && in_read
}

/// A run without reads does the same otherwise.
fn storm(guest: &Guest) -> Result<(), String> {
    const CHILDREN: u64 = 90;
    const READS: u64 = 7;
    prepare(SPEC.file)?;
    let storm = |reads: u64| -> Result<Ended, String> {
        let (children, reads) = (CHILDREN.to_string(), reads.to_string());
        let layers = all_layers();
        let command = ["/init", "trouble", "storm", &children, &reads, SPEC.file];
        let arguments: Vec<&str> = ["-T", &layers, "--"].into_iter().chain(command).collect();
        Tool::start(guest, &arguments)?.finish()
    };
    let start = storm(0)?;
    let ended = storm(READS)?;
    // A third of them execute a program that reads; the others have a child that does so as well.
    let reads = (CHILDREN / 3 + 2 * (CHILDREN - CHILDREN / 3)) * READS;
    let read = |layer, op| (layer, op, reads, reads * SHORT, 0);
    let reads = calls(&[read(SYSCALL, "pread64"), read(VFS, "read"), read(EXT4, "read")]);
    is_exactly(&ended, &reads.with(&start.report()?.calls()))
}

/// A call of the upper file system makes the same calls below it in the same thread: each counts once.
fn overlay(guest: &Guest) -> Result<(), String> {
    const LOWER: &str = "/mnt/hard";
    const OVERLAY: &str = "/mnt/hard-overlay";
    let _module = guest.load("overlay", "")?;
    fs::create_dir_all("/mnt/ext4/hard").map_err(|e| format!("/mnt/ext4/hard: {e}"))?;
    let disk = LoopDisk::of(guest, "/mnt/ext4/hard/disk")?;
    let _below = Mounted::new(&disk.device(), LOWER)?;
    for folder in ["lower", "upper", "work"] {
        fs::create_dir_all(format!("{LOWER}/{folder}")).map_err(|e| format!("{folder}: {e}"))?;
    }
    let options = "lowerdir=/mnt/hard/lower,upperdir=/mnt/hard/upper,workdir=/mnt/hard/work";
    let _overlay = Mounted::mount("overlay", OVERLAY, "overlay", options)?;
    let spec = Spec {
        file: "/mnt/hard-overlay/file",
        ..SPEC
    };
    prepare(spec.file)?;
    for set in ["mix", "flags"] {
        exact(guest, &all_layers(), &Spec { set, ..spec }).map_err(|e| format!("{set}: {e}"))?;
    }
    Ok(())
}

/// All layers see its error.
fn failing_disk(guest: &Guest) -> Result<(), String> {
    let disk = NullDisks::new(guest, 1, &[])?;
    let _mounted = Mounted::new(NullDisks::FIRST, FOLDER)?;
    prepare(FILE)?;
    let spec = Spec {
        set: "failing",
        file: FILE,
        ..SPEC
    };
    let workload = Workload::start(&spec)?;
    nix::unistd::sync();
    set_bad(&disk, "+")?;
    let ended = measure(guest, "syscall,vfs,ext4,blk", &[], workload, Workload::finish);
    set_bad(&disk, "-")?;
    let ended = ended?;
    is_exactly(&ended, &spec.truth())?;
    for layer in &ended.report()?.layers {
        if layer.ops.values().any(|op| op.errors.keys().any(|name| name != "EIO")) {
            return Err(format!("another error:\n{}", ended.text));
        }
    }
    Ok(())
}

/// Every sector of 64 MB, in ranges of 512: kernels before 6.8 handle longer ones wrongly (block/badblocks.c).
fn set_bad(disk: &NullDisks, sign: &str) -> Result<(), String> {
    for first in (0..131_072).step_by(512) {
        disk.set(0, &[("badblocks", &format!("{sign}{first}-{}", first + 511))])?;
    }
    Ok(())
}

/// Errors of other drivers: one without requests of its own, and one that only fails in a few sectors.
fn failing_target(guest: &Guest) -> Result<(), String> {
    const READS: u64 = 9;
    let read_at = |device: &str, offset: u64, layers: &str| {
        let reader = trouble(&["fails", &READS.to_string(), &offset.to_string(), device])?;
        measure(guest, layers, &[], reader, Workload::finish)
    };
    let failed = |layer, op| (layer, op, READS, 0, READS);
    {
        let disk = MappedDisk::new(guest, "dm_mod", "error", 65_536, "")?;
        let ended = read_at(&disk.device(), 0, "syscall,vfs")?;
        is_exactly(&ended, &calls(&[failed(SYSCALL, "pread64"), failed(VFS, "read")]))
            .map_err(|e| format!("dm: {e}"))?;
    }
    // drivers/scsi/scsi_debug.c: SDEBUG_OPT_MEDIUM_ERR, OPT_MEDIUM_ERR_ADDR.
    let disk = ScsiDisk::new(guest, "opts=2")?;
    let ended = read_at(&format!("/dev/{}", disk.name), 0x1234 / 8 * 4096, "syscall,vfs,blk")?;
    let failed = [failed(SYSCALL, "pread64"), failed(VFS, "read"), failed(BLK, "read")];
    is_exactly(&ended, &calls(&failed)).map_err(|e| format!("scsi_debug: {e}"))
}

/// The process itself prints how much it wrote.
fn no_space(guest: &Guest) -> Result<(), String> {
    let _disk = NullDisks::new(guest, 1, &[("size", "16")])?;
    let _mounted = Mounted::new(NullDisks::FIRST, FOLDER)?;
    prepare(FILE)?;
    let process = Running::start(Command::new("/init").args(["trouble", "fills", "/mnt/hard/full", "gated"]))?;
    wait_for("it to be ready", MINUTE, || process.stderr().contains("ready "))?;
    let layers = all_layers();
    let pid = process.pid().to_string();
    let tool = Tool::start(guest, &["-T", &layers, "-p", &pid])?;
    process.signal(crate::workload::GO)?;
    let said = process.finish(MINUTE)?.success()?.stderr;
    let ended = tool.finish()?;
    let numbers = said
        .lines()
        .find_map(|line| line.strip_prefix("said "))
        .unwrap_or_default();
    let numbers: Vec<u64> = numbers.split(' ').filter_map(|word| word.parse().ok()).collect();
    let [writes, bytes, errors] = numbers[..] else {
        return Err(format!("it said {said:?}"));
    };
    let write = |layer, op| (layer, op, writes, bytes, errors);
    let truth = calls(&[write(SYSCALL, "pwrite64"), write(VFS, "write"), write(EXT4, "write")]);
    // It prints to a pipe.
    let mut report = ended.reports.into_iter().next().ok_or("no report")?;
    for layer in &mut report.layers {
        layer.ops.retain(|op, _| op != "write" || layer.name != SYSCALL);
        layer.excluded.clear();
    }
    report.is_exactly(&truth).map_err(|e| format!("{e}\n{}", ended.text))?;

    let flags = MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
    mount(None::<&str>, FOLDER, None::<&str>, flags, None::<&str>).map_err(|e| format!("read-only: {e}"))?;
    let ended = measure(guest, &layers, &[], trouble(&["refused", FILE])?, Workload::finish)?;
    let [opens, reads, writes] = REFUSED;
    let read = |layer, op| (layer, op, reads, reads * SHORT, 0);
    is_exactly(
        &ended,
        &calls(&[
            (SYSCALL, "openat", opens, 0, opens),
            (SYSCALL, "pwrite64", writes, 0, writes),
            // vfs itself refuses a write on a read-only descriptor.
            (VFS, "write", writes, 0, writes),
            read(SYSCALL, "pread64"),
            read(VFS, "read"),
            read(EXT4, "read"),
        ]),
    )
}

fn shut_down(guest: &Guest) -> Result<(), String> {
    // fs/ext4/ext4.h
    const EXT4_IOC_SHUTDOWN: libc::c_ulong = 0x8004_587d;
    let no_log_flush = 2_u32;
    let _disk = NullDisks::new(guest, 1, &[])?;
    let _mounted = Mounted::new(NullDisks::FIRST, FOLDER)?;
    prepare(FILE)?;
    let spec = Spec {
        set: "dead",
        file: FILE,
        ..SPEC
    };
    let workload = Workload::start(&spec)?;
    let folder = fs::File::open(FOLDER).map_err(|e| format!("{FOLDER}: {e}"))?;
    // SAFETY: the call reads an integer.
    let failed = unsafe { libc::ioctl(folder.as_raw_fd(), EXT4_IOC_SHUTDOWN, &raw const no_log_flush) };
    if failed != 0 {
        return Err(format!("shutdown: {}", std::io::Error::last_os_error()));
    }
    drop(folder);
    let ended = measure(guest, &all_layers(), &[], workload, Workload::finish)?;
    is_exactly(&ended, &spec.truth())
}

/// A call has several requests if the disk limits their size, and adjacent pages are merged.
fn pieces(guest: &Guest) -> Result<(), String> {
    const WRITTEN: u64 = 1 << 20;
    let _disk = NullDisks::new(guest, 1, &[("discard", "1")])?;
    let spec = Spec {
        set: "disk",
        file: NullDisks::FIRST,
        ..SPEC
    };
    set_queue(NULL, &[("max_sectors_kb", "8")])?;
    let before = DiskStats::of(NULL)?;
    let tool = Tool::start(guest, &["-T", BLK, "-d", NULL])?;
    for set in ["disk", "discards"] {
        let workload = Workload::start(&Spec { set, ..spec })?;
        workload.work()?;
    }
    fs::write(NullDisks::FIRST, vec![1; WRITTEN as usize]).map_err(|e| format!("{NULL}: {e}"))?;
    let file = fs::File::open(NullDisks::FIRST).map_err(|e| format!("{NULL}: {e}"))?;
    file.sync_all().map_err(|e| format!("{NULL}: {e}"))?;
    let stats = DiskStats::of(NULL)?.since(&before);
    tool.interrupt()?;
    let ended = tool.finish()?;
    let layer = ended.report()?.layer(BLK)?;
    let rounds = spec.threads * spec.rounds;
    // Of its reads, two are of four blocks, which are two requests of two each; writes are of two blocks.
    let reported = [layer.count("read"), layer.count("write"), layer.count("discard")].map(|c| (c.calls, c.bytes));
    let is = [
        (stats.reads, stats.read_bytes),
        (stats.writes, stats.written_bytes),
        (stats.discards, stats.discarded_bytes),
    ];
    let reads = 9 * rounds;
    let written = WRITTEN + 3 * 2 * 4096 * rounds;
    let is_right = reported == is && stats.reads == reads && stats.written_bytes == written && layer.lost.is_none();
    if !is_right || !layer.says_of_diskstats("agrees: ") {
        return Err(format!(
            "reported {reported:?}, is {is:?}, {reads} reads, {written} bytes written\n{}",
            ended.text
        ));
    }
    Ok(())
}

/// Nearly all memory is used, and a file that does not fit is read over and over.
fn little_memory(guest: &Guest) -> Result<(), String> {
    const LEFT: &str = "40";
    const LARGE: &str = "/mnt/ext4/hard/large";
    prepare(SPEC.file)?;
    fs::write(LARGE, vec![1; 96 << 20]).map_err(|e| format!("{LARGE}: {e}"))?;
    nix::unistd::sync();
    let spec = Spec {
        threads: 64,
        rounds: 1,
        ..SPEC
    };
    let workload = Workload::start(&spec)?;
    let pid = workload.pid.to_string();
    let layers = all_layers();
    let tool = Tool::start(guest, &["-T", &layers, "-p", &pid])?;
    let eater = Running::start(Command::new("/init").args(["trouble", "eats", LEFT, LARGE]))?;
    wait_for("memory to be short", MINUTE, || eater.stderr().contains("ready "))?;
    workload.work()?;
    let ended = tool.finish()?;
    drop(eater);
    fs::remove_file(LARGE).map_err(|e| format!("{LARGE}: {e}"))?;
    let report = ended.report()?;
    if report.layers.iter().all(|layer| layer.lost.is_none()) {
        return is_exactly(&ended, &spec.truth());
    }
    // Calls without storage are reported as lost.
    let truth = spec.truth();
    for layer in &report.layers {
        let counted: u64 = layer.ops.values().map(|op| op.count.calls).sum();
        let lost = layer.lost.as_ref().map_or(0, |(lost, _)| *lost);
        let of_layer = truth.ops.iter().filter(|((name, _), _)| *name == layer.name);
        let is: u64 = of_layer.map(|(_, count)| count.calls).sum();
        if counted + lost != is {
            return Err(format!(
                "{}: {counted} counted and {lost} lost of {is}\n{}",
                layer.name, ended.text
            ));
        }
    }
    Ok(())
}

/// Counters of a CPU are kept when it goes offline, and exist for each possible CPU.
fn hotplug(guest: &Guest) -> Result<(), String> {
    const ONLINE: &str = "/sys/devices/system/cpu/cpu1/online";
    let set = |value: &str| fs::write(ONLINE, value).map_err(|e| format!("{ONLINE}: {e}"));
    prepare(SPEC.file)?;
    let spec = Spec {
        set: "cached",
        threads: 4,
        rounds: 4000,
        ..SPEC
    };
    let ended = measure(guest, &all_layers(), &[], Workload::start(&spec)?, |workload| {
        for _ in 0..3 {
            set("0")?;
            set("1")?;
        }
        workload.finish()
    });
    set("1")?;
    is_exactly(&ended?, &spec.truth())
}

fn taken_away(guest: &Guest) -> Result<(), String> {
    const READERS: u64 = 4;
    let disks = NullDisks::slow(guest, Duration::from_millis(20), &[])?;
    let spec = Spec {
        set: "disk",
        threads: READERS,
        rounds: u64::MAX,
        file: NullDisks::FIRST,
        ..SPEC
    };
    let workload = Workload::start(&spec)?;
    let tool = Tool::start(guest, &["-T", "vfs,blk", "-d", NULL])?;
    workload.go()?;
    wait_for("requests", MINUTE, || in_flight(NULL) > 0)?;
    disks.set(0, &[("power", "0")])?;
    // Its next read fails, which ends it.
    let _ = workload.finish();
    tool.interrupt()?;
    let ended = tool.finish()?;
    let report = ended.report()?;
    let layer = report.layer(BLK)?;
    let requests: u64 = layer.ops.values().map(|op| op.count.calls).sum();
    // Its counters disappear with it.
    let says_so = layer.says_of_diskstats("not compared: ");
    if requests == 0 || layer.unfinished > 0 || layer.lost.is_some() || !says_so {
        return Err(format!("{requests} requests\n{}", ended.text));
    }
    Ok(())
}

/// Before 5.11 maps use locked memory, so libbpf raises the limit.
fn limits(guest: &Guest) -> Result<(), String> {
    const GIVEN: [(Resource, u64); 2] = [(Resource::RLIMIT_NOFILE, 100), (Resource::RLIMIT_MEMLOCK, 64 << 10)];
    // A check has its own process.
    for (resource, limit) in GIVEN {
        let (_, hard) = getrlimit(resource).map_err(|e| format!("{resource:?}: {e}"))?;
        setrlimit(resource, limit, hard).map_err(|e| format!("{resource:?}: {e}"))?;
    }
    let mut tool = Command::new(guest.tool().ok_or("there is no tool")?);
    tool.args(["-T", SYSCALL, "-o", "/dev/null", "--", "/init", "trouble", "limits"]);
    let said = run(&mut tool, MINUTE)?.success()?.stdout;
    if said == format!("{} {}\n", GIVEN[0].1, GIVEN[1].1) {
        Ok(())
    } else {
        Err(format!("the command may have {said}"))
    }
}

/// Their numbers are of different calls: 3 is read there and close here. If they are not counted, the report says so.
fn compat(guest: &Guest) -> Result<(), String> {
    const READS: u64 = 17;
    prepare(SPEC.file)?;
    let read = |layer| (layer, "read", READS, READS, 0);
    let fsync = |layer, op| (layer, op, READS, 0, 0);
    let all = calls(&[
        read(SYSCALL),
        read(VFS),
        read(EXT4),
        fsync(SYSCALL, "fdatasync"),
        fsync(VFS, "fsync"),
        fsync(EXT4, "fsync"),
    ]);
    let measured = |layers: &str, options: &[&str]| {
        let process = trouble(&["compat", &READS.to_string(), SPEC.file])?;
        measure(guest, layers, options, process, Workload::finish)
    };
    let ended = measured(&all_layers(), &[])?;
    is_exactly(&ended, &all)?;
    let is_told = |ended: &Ended| ended.text.contains("not measured: 32-bit programs at syscall");
    if is_told(&ended) {
        return Err(format!("they were counted\n{}", ended.text));
    }
    let ended = measured(SYSCALL, &["--probe", "kprobe"])?;
    if !is_told(&ended) || !ended.report()?.layer(SYSCALL)?.ops.is_empty() {
        return Err(format!(
            "kprobes saw them, or none says that they did not\n{}",
            ended.text
        ));
    }
    Ok(())
}
