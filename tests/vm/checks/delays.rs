//! Known delays: the configured delay of a disk is what is reported, for single requests and in total.
//!
//! How much longer a request takes in an emulated guest is not known in advance. The kernel's own tracer measures it at
//! the same time, with its own events and clock: its result less the known delay is the emulation's part.

use super::report::{Op, Tool};
use crate::async_io::DEPTH;
use crate::disks::{MappedDisk, NullDisks, ScsiDisk, VirtioDisk, set_queue};
use crate::ftrace::{BIOS, REQUESTS, Trace};
use crate::guest::{Check, Guest, run};
use crate::protocol::{THROTTLED, THROTTLED_IOPS};
use crate::target::Reads;
use crate::workload::{BLK, Workload};
use std::process::Command;
use std::time::{Duration, Instant};

pub const CHECKS: &[Check] = &[
    check("delays: null_blk's timer, 100 us", |guest| {
        null_blk(guest, Duration::from_micros(100), ONE_BY_ONE)
    })
    .when(|guest| guest.tool().is_some()),
    check("delays: null_blk's timer, 2 ms", |guest| {
        null_blk(guest, Duration::from_millis(2), ONE_BY_ONE)
    }),
    check("delays: null_blk's timer, 20 ms", |guest| {
        null_blk(guest, Duration::from_millis(20), TOGETHER)
    }),
    check("delays: null_blk's timer, 200 ms", |guest| {
        null_blk(guest, Duration::from_millis(200), TOGETHER)
    }),
    check("delays: dm-delay, 100 ms", dm_delay),
    // Not all of Debian's cloud kernels for arm64 include it.
    check("delays: scsi_debug, 5 ms", scsi_debug).when(|guest| guest.as_booted() && guest.has_module("scsi_debug")),
    check("delays: a throttled disk, 32 requests at a time", throttled),
];

/// For each kernel without words on its command line. Where tasks are preempted inside the kernel, one is enough to
/// show that the hooks used there measure the same.
const fn check(name: &'static str, run: fn(&Guest) -> Result<(), String>) -> Check {
    Check::new(name, run).when(Guest::as_booted).timed()
}

const MINUTE: Duration = Duration::from_secs(60);
/// How often a check is repeated on a busy host.
const ATTEMPTS: u32 = 20;
/// A delay that is long compared with the emulation's part on any host.
const LONG: Duration = Duration::from_millis(20);
const NULL: &str = "nullb0";

/// The kind of a target's reads, and their number.
type Load = (&'static str, u32);
const ONE_BY_ONE: Load = ("direct", 300);
const TOGETHER: Load = ("together", 64);

/// A disk with a delay.
struct Slow<'a> {
    disk: &'a str,
    delay: Duration,
    /// How much earlier it may complete nevertheless.
    early: Duration,
    /// Its number for the kernel's tracer.
    events: [&'static str; 2],
}

fn null_blk(guest: &Guest, delay: Duration, load: Load) -> Result<(), String> {
    let _disk = NullDisks::slow(guest, delay, &[])?;
    let slow = Slow {
        disk: NULL,
        delay,
        early: Duration::ZERO,
        events: REQUESTS,
    };
    slow.holds(guest, load)
}

/// Its clock is the tick, of at most 10 ms.
fn dm_delay(guest: &Guest) -> Result<(), String> {
    const DELAY: Duration = Duration::from_millis(100);
    const SECTORS: u64 = 65_536;
    let _below = NullDisks::new(guest, 1, &[])?;
    let parameters = format!("/dev/{NULL} 0 {}", DELAY.as_millis());
    let disk = MappedDisk::new(guest, "dm_delay", "delay", SECTORS, &parameters)?;
    let slow = Slow {
        disk: &disk.name,
        delay: DELAY,
        early: Duration::from_millis(10),
        events: BIOS,
    };
    slow.holds(guest, TOGETHER)
}

fn scsi_debug(guest: &Guest) -> Result<(), String> {
    let delay = Duration::from_millis(5);
    let disk = ScsiDisk::slow(guest, delay)?;
    let slow = Slow {
        disk: &disk.name,
        delay,
        early: Duration::ZERO,
        events: REQUESTS,
    };
    slow.holds(guest, ONE_BY_ONE)
}

/// The results of one run.
#[derive(Debug)]
struct Measured {
    reported: Op,
    /// As seen by the kernel's tracer.
    traced: Vec<Duration>,
    /// As seen by the process, including everything above the disk.
    own: Reads,
}

impl Slow<'_> {
    fn holds(&self, guest: &Guest, (kind, reads): Load) -> Result<(), String> {
        let mut last = Ok(());
        for _ in 0..ATTEMPTS {
            let measured = self.measure(guest, kind, reads)?;
            let with_numbers = |why: String| {
                let Measured { reported, traced, own } = &measured;
                let added = traced.iter().sum::<Duration>().saturating_sub(self.delay * reads);
                let delay = self.delay;
                format!(
                    "{why}: {reads} times {delay:?}, and {added:?} of the emulation's; reported {reported:?}, waited {own:?}"
                )
            };
            self.is_certain(&measured, reads).map_err(with_numbers)?;
            last = self.is_close(&measured).map_err(with_numbers);
            if last.is_ok() {
                break;
            }
        }
        last
    }

    /// Whatever the host does, all are counted, each takes at least its delay, and together they take no more than the
    /// process waited.
    fn is_certain(&self, Measured { reported, traced, own }: &Measured, reads: u32) -> Result<(), String> {
        let shortest = traced
            .iter()
            .min()
            .copied()
            .unwrap_or_default()
            .min(Duration::from_nanos(reported.min_ns));
        if (reported.count.calls, traced.len()) != (reads.into(), reads as usize) {
            return Err(format!("{} were traced", traced.len()));
        }
        // The tracer's clock has a resolution of one microsecond.
        if shortest + self.early + Duration::from_micros(1) < self.delay {
            return Err(format!("one took {shortest:?}"));
        }
        if Duration::from_nanos(reported.total_ns) > own.total {
            return Err("more than the process waited for".into());
        }
        Ok(())
    }

    /// A host that takes the CPU away between the tracer's hook and ours makes a difference. Otherwise the sums, which
    /// are the known delays and the emulation's part, differ by at most 1 %. The histograms differ by 1 % of the
    /// requests, not counting those near a row's edge. If the emulation's part is small, they are known as well: 99 %
    /// of all requests are in the delay's row or the next.
    fn is_close(&self, Measured { reported, traced, .. }: &Measured) -> Result<(), String> {
        let total: Duration = traced.iter().sum();
        if Duration::from_nanos(reported.total_ns).abs_diff(total) * 100 > total {
            return Err(format!("{total:?} were traced"));
        }
        let slack = reported.count.calls / 100;
        for edge in reported.rows.keys().flat_map(|row| [*row, 2 * row]) {
            let told_below: u64 = reported.rows.range(..edge).map(|(_, count)| count).sum();
            let traced_below = |ns: u64| traced.iter().filter(|time| time.as_nanos() < ns.into()).count() as u64;
            let (least, most) = (traced_below(edge - edge / 20), traced_below(edge + edge / 20));
            if told_below + slack < least || told_below > most + slack {
                return Err(format!(
                    "{told_below} are below {edge} ns, and {least} to {most} were traced there"
                ));
            }
        }
        let known = [row(self.delay), 2 * row(self.delay)];
        let inside: u64 = known.iter().filter_map(|row| reported.rows.get(row)).sum();
        if self.delay >= LONG && inside * 100 < reported.count.calls * 99 {
            return Err(format!("{inside} are in the rows {known:?}"));
        }
        Ok(())
    }

    fn measure(&self, guest: &Guest, kind: &str, reads: u32) -> Result<Measured, String> {
        let trace = Trace::start(self.events)?;
        let tool = Tool::start(guest, &["-T", BLK, "-d", self.disk])?;
        let device = format!("/dev/{}", self.disk);
        let words = ["target", kind, &device, &reads.to_string()];
        run(Command::new("/init").args(words), MINUTE)?.success()?;
        tool.interrupt()?;
        let ended = tool.finish()?;
        let layer = ended.report()?.layer(BLK)?;
        if layer.lost.is_some() || layer.unfinished > 0 {
            return Err(format!("something is missing:\n{}", ended.text));
        }
        let own = match Reads::said()?[..] {
            [own] => own,
            ref other => return Err(format!("{other:?}")),
        };
        Ok(Measured {
            reported: layer.ops.get("read").cloned().unwrap_or_default(),
            traced: trace.times(self.disk)?,
            own,
        })
    }
}

/// The lower edge of a time's row.
fn row(time: Duration) -> u64 {
    let ns = time.as_nanos() as u64;
    ns.checked_ilog2().map_or(0, |power| 1 << power)
}

/// A disk behind its controller serves a fixed number of requests per second. Of 32 under way, each waits for the 31
/// before it, inside the device. The number per second shows that the host was idle.
fn throttled(guest: &Guest) -> Result<(), String> {
    const REQUESTS: u32 = 800;
    /// The first ones find fewer before them: 1, 2, 3, and so on.
    const IN_TURN: u32 = (REQUESTS - DEPTH) * DEPTH + DEPTH * (DEPTH + 1) / 2;
    let disk = VirtioDisk::new(guest, THROTTLED)?;
    // Adjacent requests must not be merged.
    set_queue(&disk.name, &[("nomerges", "2")])?;
    let device = format!("/dev/{}", disk.name);
    let expected = Duration::from_secs(IN_TURN.into()) / THROTTLED_IOPS;
    let planned = Duration::from_secs(REQUESTS.into()) / THROTTLED_IOPS;
    let mut last = String::new();
    for _ in 0..ATTEMPTS {
        let workload = ["/init", "async", &device, &format!("aio-direct:{REQUESTS}")].map(String::from);
        let workload = Workload::launch(&workload)?;
        let tool = Tool::start(guest, &["-T", BLK, "-d", &disk.name, "-Q"])?;
        let start = Instant::now();
        workload.work()?;
        let took = start.elapsed();
        tool.interrupt()?;
        let ended = tool.finish()?;
        let read = ended.report()?.layer(BLK)?.ops.get("read").cloned().unwrap_or_default();
        let total = Duration::from_nanos(read.total_ns);
        let queued = Duration::from_nanos(read.queued_ns.ok_or_else(|| format!("no queue:\n{}", ended.text))?);
        let device = total.saturating_sub(queued);
        let summary = format!("{device:?} in the device, {queued:?} queued, {took:?} in all: {read:?}");
        if read.count.calls != u64::from(REQUESTS) {
            return Err(summary);
        }
        // No more than 32 are under way at any time.
        if device > took * DEPTH {
            return Err(format!("more than there was time for: {summary}"));
        }
        if took.abs_diff(planned) * 10 <= planned {
            let wrong = device.abs_diff(expected) * 100 > expected * 15 || queued * 20 > total;
            return if wrong {
                Err(format!("{expected:?} in the device would be right: {summary}"))
            } else {
                Ok(())
            };
        }
        last = summary;
    }
    Err(format!(
        "in {ATTEMPTS} runs there were never {THROTTLED_IOPS} requests a second; {last}"
    ))
}
