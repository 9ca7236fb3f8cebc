//! The block layer: every request is counted with its correct operation, time and owner.
//!
//! The tool is compared with three independent sources: what a workload did, what the kernel counted meanwhile
//! (`/proc/diskstats`), and known delays and queues of disks that the checks create.

use super::fallback::Sysctl;
use super::filters;
use super::report::{Ended, Layer, Tool};
use crate::disks::{DiskStats, LoopDisk, MappedDisk, Mirror, NullDisks, NvmeDisk, ZonedDisk, in_flight, set_queue};
use crate::guest::{Check, Guest, Running, run, wait_for};
use crate::target::{BLOCK, Reads};
use crate::workload::{BLK, Calls, Count, Spec, Workload, prepare};
use nix::sys::signal::Signal;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::process::Command;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

pub const CHECKS: &[Check] = &[
    Check::new("block: disks created by checks behave as configured", disks),
    check("block: 5 processes read, write and discard, auto", |guest| {
        mixed(guest, "auto")
    }),
    check("block: 5 processes read, write and discard, kprobe", |guest| {
        mixed(guest, "kprobe")
    }),
    check("block: flushes and FUA writes of a disk without FUA, auto", |guest| {
        flushed(guest, "auto")
    }),
    check("block: flushes and FUA writes of a disk without FUA, kprobe", |guest| {
        flushed(guest, "kprobe")
    }),
    check("block: flushes and FUA writes of a disk with FUA", flushed_with_fua),
    check("block: zeroes written by the disk", zeroed),
    check("block: zones that are reset and finished, auto", |guest| {
        zones(guest, "auto")
    }),
    check("block: zones that are reset and finished, kprobe", |guest| {
        zones(guest, "kprobe")
    }),
    check("block: a controller's commands without data", passed_through),
    check("block: partitions, and their disk", partitions),
    check("block: bios of dm-linear", dm_linear),
    check("block: bios of dm-crypt", dm_crypt),
    check("block: bios of md raid1", raid1),
    check("block: every read takes the disk's 50 ms, auto", |guest| {
        delayed(guest, "auto")
    }),
    check("block: every read takes the disk's 50 ms, kprobe", |guest| {
        delayed(guest, "kprobe")
    }),
    check("block: the k-th of 8 reads is queued for (k - 1) times 50 ms", queued),
    check(
        "block: queue times with each scheduler, and without iostats, auto",
        |guest| schedulers(guest, "auto"),
    ),
    check(
        "block: queue times with each scheduler, and without iostats, kprobe",
        |guest| schedulers(guest, "kprobe"),
    ),
    check("block: 8 processes at once, auto", |guest| crowd(guest, "auto")),
    check("block: 8 processes at once, kprobe", |guest| crowd(guest, "kprobe")),
    check("block: 8 processes on two disks at once", crowd_on_two_disks),
    check("block: direct reads of a file, with the layers above", whole_stack),
    check(
        "block: -p of one of two readers, in whatever task reads end",
        of_process,
    ),
    check("block: -p, whose writes a kernel thread makes", written_back),
    check("block: -p of two processes out of three", |guest| {
        on_disk(guest, filters::two_of_three)
    }),
    check("block: -p and -f, children from before and after", |guest| {
        on_disk(guest, filters::descendants)
    }),
    check("block: --comm", |guest| on_disk(guest, filters::thread_name)),
    check("block: --cgroup, and one below it", |guest| {
        on_disk(guest, filters::control_group)
    }),
    check(
        "block: requests under way at the start are counted separately",
        |guest| {
            let _disk = NullDisks::slow(guest, UNDER_WAY, &[])?;
            found_at_start(guest, &["-T", BLK, "-d", NULL], READERS)
        },
    ),
    check("block: requests that wait at the start are counted once", |guest| {
        let _disk = NullDisks::slow(guest, UNDER_WAY, &[("hw_queue_depth", "1")])?;
        set_queue(NULL, &[("scheduler", "mq-deadline")])?;
        found_at_start(guest, &["-T", BLK, "-Q", "-d", NULL], 1)
    })
    .when(|guest| guest.as_booted() && guest.kernel == "6.12"),
    check("block: errors have their names", |guest| errors(guest, "auto")),
    check("block: errors have their names, kprobe", |guest| {
        errors(guest, "kprobe")
    }),
    check("block: errors of bios have their names", errors_of_bios),
    check("block: the original's commands", commands),
];

const fn check(name: &'static str, run: fn(&Guest) -> Result<(), String>) -> Check {
    Check::new(name, run).when(|guest| guest.tool().is_some())
}

const MINUTE: Duration = Duration::from_secs(60);
const NULL: &str = "nullb0";
const DELAY: Duration = Duration::from_millis(50);
/// The maximum overhead of the disk and an idle machine.
const BOUND: Duration = Duration::from_millis(60);
/// How often a check is repeated on a busy host.
const ATTEMPTS: u32 = 20;

const SPEC: Spec = Spec {
    set: "disk",
    threads: 2,
    rounds: 8,
    file: NullDisks::FIRST,
    name: "worker",
};

/// The tool's report about a disk, and the kernel's counts over the same time.
struct Measured {
    ended: Ended,
    stats: DiskStats,
    /// Whether the tool was forced to use kprobes.
    by_kprobe: bool,
    /// The hook that it should use in addition to tracepoints where tasks are preempted.
    beside: Option<&'static str>,
}

/// Measures a disk for all processes while this is done. The disk is idle before and after.
fn measure(
    guest: &Guest,
    disk: &str,
    options: &[&str],
    act: impl FnOnce() -> Result<(), String>,
) -> Result<Measured, String> {
    let before = DiskStats::of(disk)?;
    let mut arguments = vec!["-T", BLK, "-d", disk];
    arguments.extend(options);
    let tool = Tool::start(guest, &arguments)?;
    act()?;
    let stats = DiskStats::of(disk)?.since(&before);
    Measured::end(guest, tool, stats, options.contains(&"kprobe"))
}

/// The same while workloads run concurrently, from their first call to their last.
fn measure_all(guest: &Guest, disk: &str, options: &[&str], specs: &[Spec]) -> Result<Measured, String> {
    let workloads = start_all(specs)?;
    measure(guest, disk, options, || run_all(workloads))
}

fn start_all(specs: &[Spec]) -> Result<Vec<Workload>, String> {
    specs.iter().map(Workload::start).collect()
}

fn run_all(workloads: Vec<Workload>) -> Result<(), String> {
    workloads.iter().try_for_each(Workload::go)?;
    workloads.into_iter().try_for_each(Workload::finish)
}

/// The sum of all of these.
fn truth(specs: &[Spec]) -> Calls {
    specs.iter().fold(Calls::default(), |sum, spec| sum.with(&spec.truth()))
}

impl Measured {
    /// Ends the tool and returns its report.
    fn end(guest: &Guest, tool: Tool, stats: DiskStats, by_kprobe: bool) -> Result<Self, String> {
        tool.interrupt()?;
        Ok(Self {
            ended: tool.finish()?,
            stats,
            by_kprobe,
            beside: guest.preemptible().then_some("kprobe/kretprobe"),
        })
    }

    fn layer(&self) -> Result<&Layer, String> {
        self.ended.report()?.layer(BLK)
    }

    /// An error with everything that was printed.
    fn wrong<T>(&self, why: &str) -> Result<T, String> {
        Err(format!(
            "{why}; diskstats {:?}; the report:\n{}",
            self.stats, self.ended.text
        ))
    }

    /// Kprobes alone may lose requests, and this report says that they did.
    fn has_lost(&self) -> bool {
        self.by_kprobe && self.layer().is_ok_and(|layer| layer.lost.is_some())
    }

    /// The counts are the truth; if requests were lost, at least as many are reported as lost.
    fn is_exactly(&self, truth: &Calls) -> Result<(), String> {
        if self.has_lost() {
            return self.agrees();
        }
        let exactly = self.ended.report()?.is_exactly(truth);
        exactly.or_else(|error| self.wrong(&error))
    }

    /// The counts equal the kernel's, and the report says so.
    fn agrees(&self) -> Result<(), String> {
        self.is_as_counted_by_the_kernel("agrees: ")
    }

    /// The same, with this in the report's line about diskstats. Those also count as writes what is never issued:
    /// requests that only carry a flush.
    fn is_as_counted_by_the_kernel(&self, verdict: &str) -> Result<(), String> {
        let layer = self.layer()?;
        let sum = |ops: &[&str]| {
            let counts = ops.iter().map(|op| layer.count(op));
            counts.fold((0, 0), |(calls, bytes), count| {
                (calls + count.calls, bytes + count.bytes)
            })
        };
        let (writes, written) = sum(&["write", "write_zeroes"]);
        let reported = DiskStats {
            reads: sum(&["read"]).0,
            read_bytes: sum(&["read"]).1,
            writes: writes + layer.never_issued(),
            written_bytes: written,
            discards: sum(&["discard"]).0,
            discarded_bytes: sum(&["discard"]).1,
            flushes: sum(&["flush"]).0,
        };
        let in_flight = layer.in_diskstats(" unfinished at start");
        if self.has_lost() {
            return self.lost_as_much_as_is_missing(layer, &reported);
        }
        let complains = layer.lost.is_some() || layer.unfinished + in_flight > 0 || !layer.not_measured.is_empty();
        if reported != self.stats || !layer.says_of_diskstats(verdict) || complains || !self.hook_is_right(layer) {
            return self.wrong(&format!("reported {reported:?}"));
        }
        Ok(())
    }

    /// Kprobes may lose some, and then at most as many are missing as are reported.
    fn lost_as_much_as_is_missing(&self, layer: &Layer, reported: &DiskStats) -> Result<(), String> {
        let lost = layer.lost.as_ref().map_or(0, |(lost, _)| *lost);
        let counts = |stats: &DiskStats| [stats.reads, stats.writes, stats.discards, stats.flushes];
        let missing = counts(&self.stats)
            .iter()
            .zip(counts(reported))
            .try_fold(0, |sum, (is, reported)| Some(sum + is.checked_sub(reported)?));
        match missing {
            Some(missing) if missing <= lost && self.hook_is_right(layer) => Ok(()),
            missing => self.wrong(&format!("{missing:?} missing, {lost} lost, reported {reported:?}")),
        }
    }

    /// The best hook loses nothing. Kprobes alone may, and the report says so. There may be no function to probe at a
    /// request's start.
    fn hook_is_right(&self, layer: &Layer) -> bool {
        let has = |name: &str| layer.hooks.iter().any(|hook| hook == name);
        if let Some(beside) = self.beside.filter(|_| !self.by_kprobe) {
            return has(beside) && has("tp_btf") && layer.warnings.is_empty();
        }
        let is_kprobe = has("kprobe/kretprobe");
        let warns = layer.warnings.iter().any(|warning| warning.contains("can lose calls"));
        is_kprobe == self.by_kprobe && warns == self.by_kprobe && layer.warnings.len() <= usize::from(warns)
    }
}

/// Without the tool: checks that the kernel counts what each kind of disk is expected to do.
fn disks(guest: &Guest) -> Result<(), String> {
    {
        let _disk = NullDisks::new(guest, 1, &[("discard", "1"), ("cache_size", "4")])?;
        asked(NULL, &["disk", "discards", "flushed"], true)?;
    }
    {
        let disk = LoopDisk::new(guest)?;
        asked(&disk.name, &["disk", "discards", "zeroed", "flushed"], false)?;
    }
    let _below = NullDisks::new(guest, 2, &[("discard", "1")])?;
    {
        let disk = linear(guest)?;
        asked(&disk.name, &["disk", "discards"], true)?;
    }
    {
        let disk = crypt(guest)?;
        asked(&disk.name, &["disk"], true)?;
    }
    let _disk = mirror(guest)?;
    asked(Mirror::NAME, &["disk", "discards"], true)
}

/// The workloads run one after another.
fn asked(disk: &str, sets: &[&str], knows_fua: bool) -> Result<(), String> {
    let file = &format!("/dev/{disk}");
    for &set in sets {
        let spec = Spec {
            set,
            file,
            threads: 1,
            ..SPEC
        };
        let before = DiskStats::of(disk)?;
        let workload = Workload::start(&spec)?;
        workload.work().map_err(|e| format!("{set} on {disk}: {e}"))?;
        let stats = DiskStats::of(disk)?.since(&before);
        let truth = spec.truth();
        let [read, write, zeroes, discard, flush] =
            ["read", "write", "write_zeroes", "discard", "flush"].map(|op| of(&truth, op));
        let fsyncs = if flush.calls > 0 { fsyncs(&spec) } else { 0 };
        let expected = DiskStats {
            reads: read.calls,
            read_bytes: read.bytes,
            writes: write.calls + zeroes.calls + fsyncs,
            written_bytes: write.bytes + zeroes.bytes,
            discards: discard.calls,
            discarded_bytes: discard.bytes,
            flushes: if knows_fua { fsyncs } else { flush.calls },
        };
        if stats != expected {
            return Err(format!("{set} on {disk}: {stats:?}, not {expected:?}"));
        }
    }
    Ok(())
}

/// Reads and writes by several processes, and discards by two others, none of which the kernel merges.
fn mixed(guest: &Guest, probe: &str) -> Result<(), String> {
    const DISCARDS: Spec = Spec {
        set: "discards",
        ..SPEC
    };
    let _disk = NullDisks::new(guest, 1, &[("discard", "1")])?;
    let specs = [SPEC, DISCARDS, SPEC, DISCARDS, SPEC];
    let measured = measure_all(guest, NULL, &["--probe", probe], &specs)?;
    measured.is_exactly(&truth(&specs))?;
    measured.agrees()
}

/// With one process, flushes are exact; the kernel merges flushes that several processes request at the same time.
fn flushed(guest: &Guest, probe: &str) -> Result<(), String> {
    let disk = LoopDisk::new(guest)?;
    let device = disk.device();
    let alone = Spec {
        set: "flushed",
        threads: 1,
        file: &device,
        ..SPEC
    };
    let measured = measure_all(guest, &disk.name, &["--probe", probe], &[alone])?;
    measured.is_exactly(&alone.truth())?;
    measured.agrees()?;
    let never = measured.layer()?.never_issued();
    let asked = fsyncs(&alone);
    if never != asked && !measured.has_lost() {
        return measured.wrong(&format!("{never} writes never issued, not {asked}"));
    }
    let crowd = Spec { threads: 4, ..alone };
    let reader = Spec { file: &device, ..SPEC };
    let measured = measure_all(guest, &disk.name, &["--probe", probe], &[crowd, reader])?;
    measured.agrees()?;
    let truth = truth(&[crowd, reader]);
    for op in ["read", "write"] {
        let is = of(&truth, op);
        if measured.layer()?.count(op) != is && !measured.has_lost() {
            return measured.wrong(&format!("{op}: is {is:?}"));
        }
    }
    Ok(())
}

fn of(truth: &Calls, op: &str) -> Count {
    truth.ops.get(&(BLK.into(), op.into())).cloned().unwrap_or_default()
}

/// How many of its calls flush the disk's cache, alone or after a write: all flushes except the write's own.
fn fsyncs(spec: &Spec) -> u64 {
    let truth = spec.truth();
    of(&truth, "flush").calls - of(&truth, "write").calls
}

/// FUA needs only the write itself, which is followed by the flush that its process requests.
fn flushed_with_fua(guest: &Guest) -> Result<(), String> {
    const ALONE: Spec = Spec {
        set: "flushed",
        threads: 1,
        ..SPEC
    };
    let _disk = NullDisks::new(guest, 1, &[("cache_size", "4")])?;
    let measured = measure_all(guest, NULL, &[], &[ALONE])?;
    measured.agrees()?;
    let mut truth = ALONE.truth();
    if let Some(flush) = truth.ops.get_mut(&(BLK.into(), "flush".into())) {
        flush.calls = fsyncs(&ALONE);
    }
    measured.is_exactly(&truth)
}

fn zeroed(guest: &Guest) -> Result<(), String> {
    let disk = LoopDisk::new(guest)?;
    let device = disk.device();
    let zeroed = Spec {
        set: "zeroed",
        file: &device,
        ..SPEC
    };
    let discards = Spec {
        set: "discards",
        ..zeroed
    };
    let specs = [zeroed, discards];
    let measured = measure_all(guest, &disk.name, &[], &specs)?;
    measured.is_exactly(&truth(&specs))?;
    measured.agrees()
}

/// Reads of one block each from the scratch disk, by one process after another.
fn read_direct(device: &str, count: u64) -> Result<Reads, String> {
    timed_reads("direct", device, count)
}

fn timed_reads(kind: &str, device: &str, count: u64) -> Result<Reads, String> {
    let count = count.to_string();
    run(Command::new("/init").args(["target", kind, device, &count]), MINUTE)?.success()?;
    match Reads::said()?[..] {
        [reads] => Ok(reads),
        ref other => Err(format!("{other:?}")),
    }
}

/// Requests without data, which are issued like others.
fn zones(guest: &Guest, probe: &str) -> Result<(), String> {
    const ZONE: u64 = 4 << 20;
    const ZONES: u64 = 8;
    let _disk = NullDisks::new(guest, 1, &[("zoned", "1"), ("zone_size", "4")])?;
    let measured = measure(guest, NULL, &["--probe", probe], || {
        let disk = ZonedDisk::open(NullDisks::FIRST)?;
        for zone in 0..ZONES {
            disk.write(zone * ZONE)?;
            disk.manage(ZonedDisk::FINISH, zone * ZONE, ZONE)?;
            disk.manage(ZonedDisk::RESET, zone * ZONE, ZONE)?;
        }
        Ok(())
    })?;
    if measured.has_lost() {
        return measured.agrees();
    }
    let layer = measured.layer()?;
    let (write, managed) = (layer.count("write").calls, layer.count("zone_mgmt").calls);
    let is_right = (write, managed) == (ZONES, 2 * ZONES) && !measured.ended.text.contains("never issued");
    // 5.10 takes a finish for a read.
    let finishes_read = if guest.kernel == "5.10" { ZONES } else { 0 };
    let counted = (measured.stats.reads, measured.stats.writes);
    if !is_right
        || counted != (finishes_read, 3 * ZONES - finishes_read)
        || !layer.says_of_diskstats("agrees: ")
        || layer.lost.is_some()
    {
        return measured.wrong(&format!("{ZONES} zones are written to, finished and reset"));
    }
    Ok(())
}

/// Flushes that a program sends to the controller itself, which the kernel does not count.
fn passed_through(guest: &Guest) -> Result<(), String> {
    const COMMANDS: u64 = 15;
    let measured = measure(guest, "nvme0n1", &[], || {
        let disk = NvmeDisk::open("/dev/nvme0n1")?;
        (0..COMMANDS).try_for_each(|_| disk.flush())
    })?;
    let layer = measured.layer()?;
    let commands = layer.count("driver").calls;
    let agrees = layer.says_of_diskstats("agrees: ");
    let twice = measured.ended.text.contains("never issued");
    if commands != COMMANDS || twice || !agrees || layer.lost.is_some() {
        return measured.wrong(&format!("{COMMANDS} commands, not {commands}"));
    }
    Ok(())
}

/// Their file systems may write at any time, but only the workload reads.
fn partitions(guest: &Guest) -> Result<(), String> {
    const READS: [(&str, u64); 3] = [("/dev/nvme0n1p1", 5), ("/dev/nvme0n1p2", 7), ("/dev/nvme0n1", 3)];
    for (disk, reads) in [("nvme0n1p1", 5), ("nvme0n1p2", 7), ("nvme0n1", 15)] {
        let measured = measure(guest, disk, &[], || {
            READS
                .iter()
                .try_for_each(|(device, count)| read_direct(device, *count).map(drop))
        })?;
        let layer = measured.layer()?;
        let expected = Count {
            calls: reads,
            bytes: reads * BLOCK as u64,
            errors: 0,
        };
        if layer.count("read") != expected || measured.stats.reads != reads {
            return measured.wrong(&format!("{disk}: {expected:?}"));
        }
        measured.agrees()?;
    }
    Ok(())
}

/// Reads, writes and discards of a bio-based disk over one or two others.
fn bios(guest: &Guest, disk: &str, sets: &[&str]) -> Result<(), String> {
    let device = format!("/dev/{disk}");
    let specs: Vec<Spec> = sets
        .iter()
        .map(|&set| Spec {
            set,
            file: &device,
            ..SPEC
        })
        .collect();
    let measured = measure_all(guest, disk, &[], &specs)?;
    measured.is_exactly(&truth(&specs))?;
    // These bios are not split; the tool cannot know that.
    measured.is_as_counted_by_the_kernel("not compared: ")
}

const MAPPED_SECTORS: u64 = 65_536;

fn linear(guest: &Guest) -> Result<MappedDisk, String> {
    MappedDisk::new(guest, "dm_mod", "linear", MAPPED_SECTORS, "/dev/nullb0 2048")
}

fn crypt(guest: &Guest) -> Result<MappedDisk, String> {
    let parameters = format!("aes-cbc-plain64 {} 0 /dev/nullb0 0", "00112233".repeat(4));
    MappedDisk::new(guest, "dm_crypt", "crypt", MAPPED_SECTORS, &parameters)
}

fn mirror(guest: &Guest) -> Result<Mirror, String> {
    Mirror::new(guest, &["/dev/nullb0", "/dev/nullb1"])
}

fn dm_linear(guest: &Guest) -> Result<(), String> {
    let _below = NullDisks::new(guest, 1, &[("discard", "1")])?;
    let disk = linear(guest)?;
    bios(guest, &disk.name, &["disk", "discards"])
}

fn dm_crypt(guest: &Guest) -> Result<(), String> {
    let _below = NullDisks::new(guest, 1, &[])?;
    let disk = crypt(guest)?;
    bios(guest, &disk.name, &["disk", "disk"])
}

fn raid1(guest: &Guest) -> Result<(), String> {
    let _below = NullDisks::new(guest, 2, &[("discard", "1")])?;
    let _disk = mirror(guest)?;
    bios(guest, Mirror::NAME, &["disk", "discards"])
}

/// The time counted by the kernel side lies within what the process sees, and no read can be shorter than the disk's
/// delay. The host may break the bound of 60 ms: the process's own clock shows whether it did.
fn delayed(guest: &Guest, probe: &str) -> Result<(), String> {
    const READS: u32 = 20;
    let _disk = NullDisks::slow(guest, DELAY, &[])?;
    for _ in 0..ATTEMPTS {
        let mut own = None;
        let measured = measure(guest, NULL, &["--probe", probe], || {
            own = Some(read_direct(NullDisks::FIRST, READS.into())?);
            Ok(())
        })?;
        let own = own.ok_or("no reads")?;
        measured.agrees()?;
        let read = Times::of(measured.layer()?, "read");
        let quiet = own.max < BOUND;
        let wrong = read.calls != READS
            || !(DELAY..=own.max).contains(&read.min)
            || !(read.min..=own.max).contains(&read.max)
            || !(DELAY * READS..=own.total).contains(&read.total)
            || quiet && read.max >= BOUND;
        if wrong {
            return measured.wrong(&format!("{read:?}, the process says {own:?}"));
        }
        if quiet {
            return Ok(());
        }
    }
    Err(format!(
        "in {ATTEMPTS} runs the process itself always saw a read of {BOUND:?} or more"
    ))
}

/// The reported numbers of an op.
#[derive(Debug)]
struct Times {
    calls: u32,
    total: Duration,
    min: Duration,
    max: Duration,
    queued: Option<Duration>,
}

impl Times {
    fn of(layer: &Layer, op: &str) -> Self {
        let op = layer.ops.get(op).cloned().unwrap_or_default();
        let [total, min, max] = [op.total_ns, op.min_ns, op.max_ns].map(Duration::from_nanos);
        Self {
            calls: op.count.calls as u32,
            total,
            min,
            max,
            queued: op.queued_ns.map(Duration::from_nanos),
        }
    }
}

/// A disk that serves one request at a time: in a queue of 8 they wait for 0 to 7 others, 28 times 50 ms in total.
fn queued(guest: &Guest) -> Result<(), String> {
    const READS: u32 = 8;
    const WAITS: u32 = READS * (READS - 1) / 2;
    let total = DELAY * (WAITS + READS);
    let _disk = one_by_one(guest)?;
    for options in [&["-Q"][..], &[]] {
        let mut quiet = false;
        for _ in 0..ATTEMPTS {
            let mut own = None;
            let measured = measure(guest, NULL, options, || {
                own = Some(timed_reads("together", NullDisks::FIRST, READS.into())?);
                Ok(())
            })?;
            let own = own.ok_or("no reads")?;
            measured.agrees()?;
            // Delayed readers have less to wait for, and a delayed kernel more.
            quiet = within(own.total, total, 4) && own.min < BOUND;
            let read = Times::of(measured.layer()?, "read");
            let wrong = if options.is_empty() {
                read.queued.is_some()
                    || read.min < DELAY
                    || read.total < DELAY * READS
                    || quiet && !within(read.total, DELAY * READS, 20)
            } else {
                let queued = read.queued.unwrap_or_default();
                let device = read.total.saturating_sub(queued);
                read.min < DELAY
                    || device < DELAY * READS
                    || read.total > own.total
                    || quiet && !(within(queued, DELAY * WAITS, 10) && within(device, DELAY * READS, 20))
                    || quiet && !within(read.max, DELAY * READS, 10)
            };
            if read.calls != READS || wrong {
                return measured.wrong(&format!("{read:?}, the process says {own:?}"));
            }
            if quiet {
                break;
            }
        }
        if !quiet {
            return Err(format!(
                "{options:?}: in {ATTEMPTS} runs the process itself never saw about {total:?}"
            ));
        }
    }
    Ok(())
}

fn within(is: Duration, about: Duration, percent: u32) -> bool {
    is.abs_diff(about) * 100 <= about * percent
}

/// It serves one request at a time, and the others wait in the scheduler's queue.
fn one_by_one(guest: &Guest) -> Result<NullDisks, String> {
    let disk = NullDisks::slow(guest, DELAY, &[("submit_queues", "1"), ("hw_queue_depth", "1")])?;
    set_queue(NULL, &[("scheduler", "mq-deadline"), ("nr_requests", "64")])?;
    Ok(disk)
}

/// The queue time is known with each scheduler. If the kernel does not count, it does not stamp requests either: then
/// the time begins at the bio's submission, or the report says that it is not measured.
fn schedulers(guest: &Guest, probe: &str) -> Result<(), String> {
    let _disk = NullDisks::new(guest, 1, &[])?;
    let asked = [("none", "1"), ("mq-deadline", "1"), ("none", "0"), ("mq-deadline", "0")];
    for (scheduler, iostats) in asked {
        set_queue(NULL, &[("scheduler", scheduler), ("iostats", iostats)])?;
        let measured = measure_all(guest, NULL, &["-Q", "--probe", probe], &[SPEC])?;
        measured.is_exactly(&SPEC.truth())?;
        let layer = measured.layer()?;
        for op in ["read", "write"] {
            let times = Times::of(layer, op);
            let is_known = times.queued.is_some_and(|queued| queued <= times.total);
            let says_so = layer.not_timed.as_deref().is_some_and(|line| line.contains(op));
            if !is_known && (iostats == "1" || !says_so) {
                return measured.wrong(&format!("{scheduler}, iostats {iostats}, {op}: {times:?}"));
            }
        }
        if iostats == "1" {
            measured.agrees()?;
        } else if !layer.says_of_diskstats("not compared: ") {
            return measured.wrong("nothing about queue/iostats");
        }
    }
    Ok(())
}

/// Load on one of two disks: its requests complete in soft interrupts, those of the other one in timer interrupts,
/// which interrupt any running task.
const CROWD: Spec = Spec {
    threads: 1,
    rounds: 60,
    ..SPEC
};
const CROWDED: [(&str, &[(&str, &str)]); 2] = [
    ("/dev/nullb0", &[("irqmode", "1")]),
    ("/dev/nullb1", &[("irqmode", "2"), ("completion_nsec", "20000")]),
];

/// Tasks are preempted inside the kernel all the time, where possible. The best hook loses nothing. Kprobes may, and
/// then the sum of counted and lost requests is at least the truth.
fn crowd(guest: &Guest, probe: &str) -> Result<(), String> {
    let mut disks = NullDisks::new(guest, 0, &[])?;
    for (file, settings) in CROWDED {
        disks.add(settings)?;
        let specs = [Spec { file, ..CROWD }; 8];
        let truth = truth(&specs);
        let disk = file.trim_start_matches("/dev/");
        let measured = measure_all(guest, disk, &["--probe", probe], &specs)?;
        if probe == "auto" || measured.layer()?.lost.is_none() {
            measured.is_exactly(&truth)?;
            measured.agrees()?;
        } else {
            losses_are_told(&measured.ended, &truth)?;
        }
    }
    Ok(())
}

/// The sum of counted and lost requests is at least the truth.
fn losses_are_told(ended: &Ended, truth: &Calls) -> Result<(), String> {
    let layer = ended.report()?.layer(BLK)?;
    let lost = layer.lost.as_ref().map_or(0, |(lost, _)| *lost);
    let counted: u64 = layer.ops.values().map(|op| op.count.calls).sum();
    let all = of(truth, "read").calls + of(truth, "write").calls;
    if counted + lost < all || lost == 0 && !layer.says_of_diskstats("agrees: ") {
        return Err(format!("{counted} counted and {lost} lost of {all}:\n{}", ended.text));
    }
    Ok(())
}

/// A hook is skipped on its CPU while it is running, and one disk's timer may interrupt it at the completion of another
/// one's request: that is rare, and reported. Other disks are measured as well.
fn crowd_on_two_disks(guest: &Guest) -> Result<(), String> {
    let mut disks = NullDisks::new(guest, 0, &[])?;
    let mut specs = Vec::new();
    for (file, settings) in CROWDED {
        disks.add(settings)?;
        specs.extend([Spec { file, ..CROWD }; 4]);
    }
    let workloads = start_all(&specs)?;
    let tool = Tool::start(guest, &["-T", BLK])?;
    run_all(workloads)?;
    tool.interrupt()?;
    losses_are_told(&tool.finish()?, &truth(&specs))
}

/// Each of them is one operation at each layer.
fn whole_stack(guest: &Guest) -> Result<(), String> {
    const READS: Spec = Spec {
        set: "direct",
        threads: 4,
        rounds: 20,
        file: "/mnt/ext4/block/file",
        name: "reader",
    };
    prepare(READS.file)?;
    let workload = Workload::start(&READS)?;
    let pid = workload.pid.to_string();
    let tool = Tool::start(guest, &["-T", "syscall,vfs,ext4,blk", "-p", &pid])?;
    workload.work()?;
    let ended = tool.finish()?;
    let exactly = ended.report()?.is_exactly(&READS.truth());
    exactly.map_err(|e| format!("{e}\n{}", ended.text))
}

/// Requests complete in timer interrupts, which interrupt any running task.
fn of_process(guest: &Guest) -> Result<(), String> {
    const NOISE: Spec = Spec {
        threads: 1,
        rounds: u64::MAX,
        name: "noise",
        ..SPEC
    };
    let _disk = NullDisks::slow(guest, Duration::from_micros(100), &[("submit_queues", "2")])?;
    let noise = Workload::start(&NOISE)?;
    noise.go()?;
    let workload = Workload::start(&SPEC)?;
    let pid = workload.pid.to_string();
    let tool = Tool::start(guest, &["-T", BLK, "-d", NULL, "-p", &pid])?;
    workload.work()?;
    let ended = tool.finish()?;
    let report = ended.report()?;
    report
        .is_exactly(&SPEC.truth())
        .map_err(|e| format!("{e}\n{}", ended.text))?;
    // This includes what the other process did to the disk.
    if report.layer(BLK)?.diskstats.is_some() {
        return Err(format!("diskstats with a filter:\n{}", ended.text));
    }
    Ok(())
}

/// The traced process is this one.
fn written_back(guest: &Guest) -> Result<(), String> {
    const READS: u64 = 3;
    const WRITTEN: usize = 64 << 10;
    let _disk = NullDisks::new(guest, 1, &[])?;
    // As soon as possible.
    let _soon = [
        Sysctl::set("vm/dirty_expire_centisecs", "1")?,
        Sysctl::set("vm/dirty_writeback_centisecs", "10")?,
    ];
    let device = NullDisks::FIRST;
    let failed = |e: std::io::Error| format!("{device}: {e}");
    let file = File::options().write(true).open(device).map_err(failed)?;
    let pid = std::process::id().to_string();
    let before = DiskStats::of(NULL)?;
    let tool = Tool::start(guest, &["-T", BLK, "-d", NULL, "-p", &pid])?;
    file.write_all_at(&vec![1; WRITTEN], 0).map_err(failed)?;
    wait_for("all to be written", MINUTE, || {
        let stats = DiskStats::of(NULL).map(|now| now.since(&before));
        !stats.is_ok_and(|stats| stats.written_bytes < WRITTEN as u64)
    })?;
    // Only of this process.
    let mut reader = DirectReader::open(device)?;
    (0..READS).try_for_each(|_| reader.read(0))?;
    // Not earlier: bytes are counted first, and their request a moment later.
    let stats = DiskStats::of(NULL)?.since(&before);
    let measured = Measured::end(guest, tool, stats, false)?;
    let layer = measured.layer()?;
    let (read, write) = (layer.count("read"), layer.count("write"));
    if read.calls != READS || write.calls != 0 || layer.of_kernel_threads != Some(stats.writes) {
        return measured.wrong("3 reads are ours, and all writes a kernel thread's");
    }
    Ok(())
}

/// A check's own direct reads.
struct DirectReader {
    file: File,
    memory: Vec<u8>,
}

impl DirectReader {
    fn open(device: &str) -> Result<Self, String> {
        let file = File::options()
            .read(true)
            .custom_flags(libc::O_DIRECT)
            .open(device)
            .map_err(|e| format!("{device}: {e}"))?;
        Ok(Self {
            file,
            memory: vec![0; 2 * BLOCK],
        })
    }

    /// An aligned block.
    fn read(&mut self, offset: u64) -> Result<(), String> {
        let aligned = self.memory.as_ptr().align_offset(BLOCK);
        let block = &mut self.memory[aligned..][..BLOCK];
        self.file.read_exact_at(block, offset).map_err(|e| e.to_string())
    }
}

/// A check of filters, on a disk of its own.
fn on_disk(guest: &Guest, run: fn(&Guest, &[&str], &Spec) -> Result<(), String>) -> Result<(), String> {
    let _disk = NullDisks::slow(guest, Duration::from_micros(100), &[("submit_queues", "2")])?;
    run(guest, &[BLK], &SPEC)
}

/// Each has a read under way.
const READERS: u64 = 4;
/// The duration of each of those reads.
const UNDER_WAY: Duration = Duration::from_secs(1);

/// Each run must be right, and one of them must begin while the disk is busy. Between the completion of a request and
/// the issue of the next one the disk is idle, and a busy host may stop the guest exactly then.
fn found_at_start(guest: &Guest, arguments: &[&str], at_once: u64) -> Result<(), String> {
    for _ in 0..ATTEMPTS {
        if under_way(guest, arguments, at_once)? > 0 {
            return Ok(());
        }
    }
    Err(format!("no request was under way at the start of {ATTEMPTS} runs"))
}

/// Readers with a read under way nearly always: when the tool begins, the disk serves this many of them. (The kernel
/// may count one more: 6.12 sometimes does for a disk with a single request under way.) Returns how many the tool
/// found.
fn under_way(guest: &Guest, arguments: &[&str], at_once: u64) -> Result<u64, String> {
    let (begin, over) = (Barrier::new(READERS as usize), AtomicBool::new(false));
    let answered = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..READERS)
            .map(|number| {
                let (begin, over, answered) = (&begin, &over, &answered);
                scope.spawn(move || {
                    let mut reader = DirectReader::open(NullDisks::FIRST)?;
                    begin.wait();
                    reader.read(number * 2 * BLOCK as u64)?;
                    answered.fetch_add(1, Ordering::Relaxed);
                    while !over.load(Ordering::Relaxed) {
                        reader.read(number * 2 * BLOCK as u64)?;
                    }
                    Ok::<(), String>(())
                })
            })
            .collect();
        let all_again = || answered.load(Ordering::Relaxed) == READERS && in_flight(NULL) >= at_once;
        let measured = wait_for("reads under way", MINUTE, all_again).and_then(|()| Tool::start(guest, arguments));
        over.store(true, Ordering::Relaxed);
        for reader in readers {
            reader.join().map_err(|_| "a reader panicked")??;
        }
        let tool = measured?;
        let stats = DiskStats::of(NULL)?;
        let measured = Measured::end(guest, tool, stats, false)?;
        let layer = measured.layer()?;
        let at_start = layer.in_diskstats(" unfinished at start");
        let agrees = layer.says_of_diskstats("agrees: ");
        // Each may begin another read before it sees the end, or none if all were under way at the start.
        let counted = layer.count("read").calls;
        let seen = counted + at_start;
        if at_start > READERS || !agrees || layer.lost.is_some() || counted > 2 * READERS || seen == 0 {
            return measured.wrong("4 reads were under way");
        }
        Ok(at_start)
    })
}

/// A bad block is EIO for the reader and in the report; good ones beside it are not errors.
fn errors(guest: &Guest, probe: &str) -> Result<(), String> {
    let disk = NullDisks::new(guest, 1, &[])?;
    // In sectors.
    let first = BAD_BLOCK * BLOCK as u64 / 512;
    disk.set(0, &[("badblocks", &format!("+{first}-{}", first + 7))])?;
    failing_reads(guest, NULL, &["--probe", probe], 5)
}

/// For a disk all of whose bios fail.
fn errors_of_bios(guest: &Guest) -> Result<(), String> {
    let disk = MappedDisk::new(guest, "dm_mod", "error", MAPPED_SECTORS, "")?;
    failing_reads(guest, &disk.name, &[], 0)
}

const BAD_BLOCK: u64 = 16;

/// A few reads that succeed, and three that do not.
fn failing_reads(guest: &Guest, disk: &str, options: &[&str], good: u64) -> Result<(), String> {
    const BAD: u64 = 3;
    let measured = measure(guest, disk, options, || {
        let mut reader = DirectReader::open(&format!("/dev/{disk}"))?;
        (0..good).try_for_each(|_| reader.read(0))?;
        for _ in 0..BAD {
            if reader.read(BAD_BLOCK * BLOCK as u64).is_ok() {
                return Err("a bad block was read".into());
            }
        }
        Ok(())
    })?;
    let read = measured.layer()?.ops.get("read").cloned().unwrap_or_default();
    let is_right = (read.count.calls, read.count.errors) == (good + BAD, BAD)
        && read.errors.iter().eq([(&"EIO".to_string(), &BAD)]);
    if !is_right {
        return measured.wrong(&format!("{good} reads and {BAD} failures: {read:?}"));
    }
    Ok(())
}

/// The commands of the original's users. They run until Ctrl-C.
fn commands(guest: &Guest) -> Result<(), String> {
    let tool = guest.tool().ok_or("there is no tool")?;
    let pid = std::process::id().to_string();
    let examples: [&[&str]; 4] = [
        &["-T", "syscall", "-p", &pid],
        &["-T", "vfs", "-p", &pid],
        &["-T", "ext4", "-p", &pid],
        &["-T", "blk", "-d", "nvme0n1", "-Q"],
    ];
    let mut payload = Vec::new();
    for arguments in examples {
        let running = Running::start(Command::new(tool).args(arguments))?;
        wait_for("the banner", MINUTE, || running.stderr().contains("Hit Ctrl-C to end."))
            .map_err(|e| format!("{arguments:?}: {e}: {}", running.stderr()))?;
        // There must be something to measure for each of them.
        let file = format!("{}/commands", Guest::EXT4);
        File::create(&file)
            .and_then(|mut file| {
                file.write_all(&[1; BLOCK])?;
                file.sync_all()
            })
            .and_then(|()| File::open(&file)?.read_to_end(&mut payload))
            .map_err(|e| format!("{file}: {e}"))?;
        running.signal(Signal::SIGINT)?;
        let output = running.finish(MINUTE)?;
        if !output.status.success() || !output.stdout.contains("operation = write\n") {
            return Err(format!("{arguments:?}: {output:?}"));
        }
    }
    Ok(())
}
