//! Other tools on the same work: fio and strace above, blktrace, biolatency and the kernel's histograms at the disk,
//! ext4dist in between.
//!
//! They use the same hooks and the same clock, or enclosing ones. So counts are equal, and a time is within the
//! enclosing one. Where another tool is wrong, its check says why, prints its number, and compares ours with the truth.

use super::report::{Ended, Layer, Op, Tool};
use super::times::SlowDisk;
use crate::disks::NullDisks;
use crate::guest::{Check, Guest, Output, Running, note, run, wait_for};
use crate::peers::{self, Peers};
use crate::target::Reads;
use crate::workload::{BLK, Count, EXT4, SYSCALL, Spec, VFS, Workload, prepare};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::time::Duration;

pub const CHECKS: &[Check] = &[
    check(
        "peers: fio, synchronous and direct, each layer inside the one above",
        fio_direct,
    ),
    // Kprobes miss completions in interrupts, and the report says so.
    check("peers: fio, buffered, O_SYNC, libaio and io_uring", fio_engines)
        .when(|guest| is_wanted(guest) && guest.has_trampolines()),
    check("peers: strace -c", strace),
    check("peers: blktrace and btt", blktrace),
    // Debian's 5.10 is built without them.
    check("peers: ftrace's histograms", histograms).when(|guest| guest.kernel != "5.10" && is_wanted(guest)),
    // It looks for disks in /proc/partitions, where 5.10 does not list null_blk's.
    check("peers: biolatency", biolatency).when(|guest| guest.kernel != "5.10" && is_wanted(guest)),
    Check::new("peers: ext4dist", ext4dist).when(|guest| guest.tool().is_some()),
];

/// For each kernel version once, without words on the command line: what another tool sees does not depend on modules.
const fn check(name: &'static str, run: fn(&Guest) -> Result<(), String>) -> Check {
    Check::new(name, run).when(is_wanted).timed()
}

fn is_wanted(guest: &Guest) -> bool {
    guest.as_booted() && guest.kernel != "6.1-full"
}

const MINUTE: Duration = Duration::from_secs(60);
const NULL: &str = "nullb0";

/// Runs another tool to its end, which must be a success.
fn peer(words: &[&str]) -> Result<Output, String> {
    run(&mut peers::command(words), MINUTE)?
        .success()
        .map_err(|e| format!("{words:?}: {e}"))
}

/// Starts one that measures until it is interrupted, and waits for its message that it does.
pub fn measuring(words: &[&str]) -> Result<Running, String> {
    // Otherwise its output is only visible when it has ended.
    let words = [&["stdbuf", "-oL"], words].concat();
    let running = Running::start(&mut peers::command(&words))?;
    wait_for("its banner", MINUTE, || running.stdout().contains("Hit Ctrl-C to end"))
        .map_err(|e| format!("{words:?}: {e}\n{}{}", running.stdout(), running.stderr()))?;
    Ok(running)
}

pub fn interrupted(running: Running) -> Result<String, String> {
    running.signal(Signal::SIGINT)?;
    Ok(running.finish(MINUTE)?.success()?.stdout)
}

/// The layer of the only report, which must be complete.
fn complete<'a>(ended: &'a Ended, layer: &str) -> Result<&'a Layer, String> {
    let reported = ended.report()?.layer(layer)?;
    if reported.lost.is_some() || reported.unfinished > 0 {
        return Err(format!("something is missing at {layer}:\n{}", ended.text));
    }
    Ok(reported)
}

fn op(layer: &Layer, name: &str) -> Op {
    layer.ops.get(name).cloned().unwrap_or_default()
}

fn differ_by_percent(a: u64, b: u64, percent: u64) -> bool {
    a.abs_diff(b) * 100 > a.max(b) * percent
}

/// fio's numbers for the reads or the writes of a job.
#[derive(Debug, Default, Clone, Copy)]
struct Told {
    calls: u64,
    bytes: u64,
    /// From its call to its completion, and from when fio prepared it.
    completion_ns: u64,
    all_ns: u64,
}

impl Told {
    fn plus(self, other: Self) -> Self {
        Self {
            calls: self.calls + other.calls,
            bytes: self.bytes + other.bytes,
            completion_ns: self.completion_ns + other.completion_ns,
            all_ns: self.all_ns + other.all_ns,
        }
    }
}

/// A file on a slow disk for jobs of fio that the tool traces, with the results of both.
fn fio(guest: &Guest, layers: &str, jobs: &[&[&str]]) -> Result<(BTreeMap<&'static str, Told>, Ended), String> {
    const FILE: &str = "/mnt/slow/fio";
    const SIZE: usize = 1 << 20;
    const SAID: &str = "/tmp/fio.json";
    const COMMON: &[&str] = &[
        "fio",
        "--output-format=json",
        "--size=1m",
        "--bs=4k",
        "--number_ios=100",
        "--thread",
        "--invalidate=0",
        "--allow_file_create=0",
        "--overwrite=1",
        // Its clock must be calibrated first.
        "--clocksource=clock_gettime",
    ];
    let _disk = SlowDisk::new(guest, Duration::from_micros(500))?;
    fs::write(FILE, vec![b'x'; SIZE])
        .and_then(|()| fs::File::open(FILE)?.sync_all())
        .map_err(|e| format!("{FILE}: {e}"))?;
    let _peers = Peers::new(guest)?;
    let (output, file) = (format!("--output={SAID}"), format!("--filename={FILE}"));
    let mut words = [COMMON, &[&output, &file]].concat();
    for job in jobs {
        words.extend(["--name=job", "--stonewall"]);
        words.extend(*job);
    }
    let arguments = [&["-T", layers, "-d", NULL, "--"][..], &peers::words(&words)].concat();
    let ended = Tool::start(guest, &arguments)?.finish()?;
    let text = fs::read_to_string(SAID).map_err(|e| format!("{SAID}: {e}"))?;
    // Notes precede it.
    let json = text.find('{').map_or("", |start| &text[start..]);
    let said: Value = serde_json::from_str(json).map_err(|e| format!("{e} in {text}"))?;
    let said = said["jobs"].as_array().ok_or_else(|| format!("no jobs in {text}"))?;
    if said.len() != jobs.len() {
        return Err(format!("{} jobs of {} in {text}", said.len(), jobs.len()));
    }
    let sum = |op: &str| {
        let reported = said.iter().map(|job| &job[op]).map(|reported| {
            let total = |kind: &str| {
                let mean = reported[kind]["mean"].as_f64().unwrap_or(0.0);
                (mean * reported[kind]["N"].as_f64().unwrap_or(0.0)).round() as u64
            };
            Told {
                calls: reported["total_ios"].as_u64().unwrap_or(0),
                bytes: reported["io_bytes"].as_u64().unwrap_or(0),
                completion_ns: total("clat_ns"),
                all_ns: total("lat_ns"),
            }
        });
        reported.fold(Told::default(), Told::plus)
    };
    Ok((["read", "write"].map(|op| (op, sum(op))).into(), ended))
}

/// For a single process that waits for each, fio's time encloses the system call's, and so on down to the disk.
fn fio_direct(guest: &Guest) -> Result<(), String> {
    let jobs: &[&[&str]] = &[&["--ioengine=psync", "--direct=1", "--rw=randrw"]];
    let (said, ended) = fio(guest, &[SYSCALL, VFS, EXT4, BLK].join(","), jobs)?;
    for (kind, call) in [("read", "pread64"), ("write", "pwrite64")] {
        let ops = [(SYSCALL, call), (VFS, kind), (EXT4, kind), (BLK, kind)];
        nested(&said[kind], said[kind].completion_ns, &ops, &ended)?;
    }
    Ok(())
}

/// Each I/O engine's operation is a read or a write at vfs and ext4, enclosed by fio's time.
fn fio_engines(guest: &Guest) -> Result<(), String> {
    const JOBS: &[&[&str]] = &[
        &["--ioengine=psync", "--rw=randrw"],
        &["--ioengine=psync", "--sync=1", "--rw=randwrite"],
        &["--ioengine=libaio", "--direct=1", "--iodepth=8", "--rw=randrw"],
        &["--ioengine=io_uring", "--direct=1", "--iodepth=8", "--rw=randrw"],
        &["--ioengine=io_uring", "--iodepth=8", "--rw=randrw"],
    ];
    let (said, ended) = fio(guest, &[VFS, EXT4].join(","), JOBS)?;
    for kind in ["read", "write"] {
        nested(&said[kind], said[kind].all_ns, &[(VFS, kind), (EXT4, kind)], &ended)?;
    }
    Ok(())
}

/// Counts and bytes at each layer equal fio's, each layer's time is within that of the previous one, and the first
/// within fio's.
fn nested(said: &Told, mut around: u64, ops: &[(&str, &str)], ended: &Ended) -> Result<(), String> {
    for (layer, name) in ops {
        let reported = op(complete(ended, layer)?, name);
        let count = Count {
            calls: said.calls,
            bytes: said.bytes,
            errors: 0,
        };
        if reported.count != count || said.calls == 0 || reported.total_ns > around {
            return Err(format!(
                "{name} at {layer}: {reported:?}, {around} ns around it; fio says {said:?}:\n{}",
                ended.text
            ));
        }
        around = reported.total_ns;
    }
    Ok(())
}

/// strace stops the process before and after each call, outside the measured time.
fn strace(guest: &Guest) -> Result<(), String> {
    const SAID: &str = "/tmp/strace";
    const SPEC: Spec = Spec {
        set: "mix",
        threads: 2,
        rounds: 5,
        file: "/mnt/ext4/strace/file",
        name: "worker",
    };
    let _peers = Peers::new(guest)?;
    prepare(SPEC.file)?;
    let workload = Workload::start(&SPEC)?;
    let pid = workload.pid.to_string();
    let columns = "--summary-columns=name,calls,errors,total-time";
    let words = ["strace", "-f", "-c", "-w", columns, "-o", SAID, "-p", &pid];
    let strace = Running::start(&mut peers::command(&words))?;
    wait_for("strace to attach", MINUTE, || strace.stderr().contains(" attached"))
        .map_err(|e| format!("{e}: {}", strace.stderr()))?;
    let tool = Tool::start(guest, &["-T", SYSCALL, "-p", &pid, "--all-files"])?;
    workload.work()?;
    strace.finish(MINUTE)?.success()?;
    let ended = tool.finish()?;
    let text = fs::read_to_string(SAID).map_err(|e| format!("{SAID}: {e}"))?;
    // `pread64 170 10 0.123456`, with the errors left out if there are none.
    let said: BTreeMap<&str, Vec<f64>> = text
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let name = words.next()?;
            let numbers: Option<Vec<f64>> = words.map(|word| word.parse().ok()).collect();
            Some((name, numbers.filter(|numbers| numbers.len() > 1)?))
        })
        .collect();
    let reported = complete(&ended, SYSCALL)?;
    for (name, op) in reported.ops.iter().filter(|(_, op)| op.count.calls > 0) {
        let said = said.get(name.as_str()).map(Vec::as_slice);
        let (calls, errors, seconds) = match said {
            Some(&[calls, seconds]) => (calls, 0.0, seconds),
            Some(&[calls, errors, seconds]) => (calls, errors, seconds),
            _ => return Err(format!("strace does not know {name}:\n{text}")),
        };
        // Its resolution is a microsecond.
        let around = Duration::from_secs_f64(seconds) + Duration::from_micros(1);
        let counts = (op.count.calls as f64, op.count.errors as f64);
        if counts != (calls, errors) || Duration::from_nanos(op.total_ns) > around {
            return Err(format!("{name}: {op:?}, strace says:\n{text}"));
        }
    }
    let truth = SPEC.truth_of_all_files();
    ended
        .report()?
        .is_exactly(&truth)
        .map_err(|e| format!("{e}\n{}", ended.text))
}

/// Reads of the first null disk, one after another, while the tool and another one measure.
fn reads_beside(guest: &Guest, options: &[&str], reads: u32) -> Result<(Op, Reads, Ended), String> {
    let arguments = [&["-T", BLK, "-d", NULL][..], options].concat();
    let tool = Tool::start(guest, &arguments)?;
    read(NullDisks::FIRST, reads)?;
    tool.interrupt()?;
    let ended = tool.finish()?;
    let reported = op(complete(&ended, BLK)?, "read");
    let own = match Reads::said()?[..] {
        [own] => own,
        ref other => return Err(format!("{other:?}")),
    };
    if reported.count.calls != u64::from(reads) {
        return Err(format!("{reads} reads:\n{}", ended.text));
    }
    Ok((reported, own, ended))
}

fn read(device: &str, reads: u32) -> Result<(), String> {
    let words = ["target", "direct", device, &reads.to_string()];
    run(Command::new("/init").args(words), MINUTE)?.success().map(drop)
}

const READS: u32 = 200;
/// Far from the edges of a histogram's rows, 2,048 and 4,096 us, so that both tools put a request into the same row.
const DELAY: Duration = Duration::from_millis(3);

/// D2C is our device time. Q2C begins with the bio, a little before a request's start; btt calls it Q2Cdm, since it
/// takes null_blk's major number for that of the device mapper.
fn blktrace(guest: &Guest) -> Result<(), String> {
    const FOLDER: &str = "/tmp/blktrace";
    let mut disks = NullDisks::slow(guest, DELAY, &[])?;
    // Its output begins with the disks in the given order, and is written in blocks of a kilobyte.
    disks.add(&[])?;
    let _peers = Peers::new(guest)?;
    let _ = fs::remove_dir_all(FOLDER);
    fs::create_dir(FOLDER).map_err(|e| format!("{FOLDER}: {e}"))?;
    let words = [
        "blktrace",
        "-d",
        NullDisks::FIRST,
        "-d",
        "/dev/nullb1",
        "-D",
        FOLDER,
        "-b",
        "1",
        "-n",
        "512",
    ];
    let blktrace = Running::start(&mut peers::command(&words))?;
    wait_for("blktrace to trace", MINUTE, || {
        let _ = read("/dev/nullb1", 4);
        let _ = Reads::said();
        let written = |cpu: u32| fs::metadata(format!("{FOLDER}/nullb1.blktrace.{cpu}")).map_or(0, |data| data.len());
        written(0) + written(1) > 0
    })
    .map_err(|e| format!("{e}: {}{}", blktrace.stdout(), blktrace.stderr()))?;
    let (reported, _, ended) = reads_beside(guest, &["-Q"], READS)?;
    blktrace.signal(Signal::SIGINT)?;
    let said = blktrace.finish(MINUTE)?.success()?;
    let binary = format!("{FOLDER}/all");
    peer(&["blkparse", "-q", "-O", "-D", FOLDER, "-i", NULL, "-d", &binary])?;
    let text = peer(&["btt", "-i", &binary])?.stdout;
    // `D2C               0.002012345   0.002123456   0.003123456         200`
    let line = |name: &str| {
        let is_it = |line: &&str| {
            let first = line.split_whitespace().next();
            first.is_some_and(|first| first.trim_end_matches("dm") == name)
        };
        let line = text.lines().find(is_it);
        let words: Vec<&str> = line.unwrap_or_default().split_whitespace().collect();
        let number = |place: usize| {
            words
                .get(place)
                .and_then(|word| word.parse::<f64>().ok())
                .unwrap_or(0.0)
        };
        let (average, calls) = (number(2), number(4));
        (calls as u64, (average * calls * 1e9) as u64)
    };
    let (d2c, q2c) = (line("D2C"), line("Q2C"));
    let queued = reported.queued_ns.ok_or_else(|| format!("no queue:\n{}", ended.text))?;
    let device = reported.total_ns - queued;
    let wrong = (d2c.0, q2c.0) != (READS.into(), READS.into())
        || differ_by_percent(device, d2c.1, 5)
        || reported.total_ns > q2c.1 + q2c.1 / 20
        || device > reported.total_ns;
    if wrong {
        return Err(format!(
            "{reported:?}, btt: D2C {d2c:?}, Q2C {q2c:?}\n{text}\n{}{}",
            said.stdout, said.stderr
        ));
    }
    Ok(())
}

/// The kernel itself can sum up the time between two events.
fn histograms(guest: &Guest) -> Result<(), String> {
    const TRACING: &str = "/sys/kernel/tracing";
    /// Dropping it undoes what was written, in reverse order.
    struct Written(Vec<(String, String)>);
    impl Written {
        fn write(&mut self, file: &str, line: &str) -> Result<(), String> {
            let file = format!("{TRACING}/{file}");
            append(&file, line)?;
            self.0.push((file, format!("!{line}")));
            Ok(())
        }
    }
    impl Drop for Written {
        fn drop(&mut self) {
            for (file, line) in self.0.iter().rev() {
                if let Err(error) = append(file, line) {
                    eprintln!("{error}");
                }
            }
        }
    }
    fn append(file: &str, line: &str) -> Result<(), String> {
        use std::io::Write;
        let written = fs::File::options()
            .append(true)
            .open(file)
            .and_then(|mut file| file.write_all(line.as_bytes()));
        written.map_err(|e| format!("{file}: {line}: {e}"))
    }
    let _disk = NullDisks::slow(guest, DELAY, &[])?;
    let mut triggers = Written(Vec::new());
    triggers.write("synthetic_events", "request u32 disk; u64 time")?;
    let begin = "hist:keys=dev,sector:begin=common_timestamp.usecs";
    triggers.write("events/block/block_rq_issue/trigger", begin)?;
    let end = "hist:keys=dev,sector:time=common_timestamp.usecs-$begin:\
               onmatch(block.block_rq_issue).request(dev,$time)";
    triggers.write("events/block/block_rq_complete/trigger", end)?;
    triggers.write("events/synthetic/request/trigger", "hist:keys=disk:vals=time")?;
    let (reported, own, _) = reads_beside(guest, &[], READS)?;
    let file = format!("{TRACING}/events/synthetic/request/hist");
    let text = fs::read_to_string(&file).map_err(|e| format!("{file}: {e}"))?;
    // `{ disk:  264241152 } hitcount:        200  time:     412345`
    let row = text
        .lines()
        .find(|line| line.starts_with("{ disk:"))
        .unwrap_or_default();
    let after = |word: &str| {
        let rest = row.split(word).nth(1)?;
        rest.split_whitespace().next()?.parse::<u64>().ok()
    };
    let (calls, micros) = (after("hitcount:").unwrap_or(0), after(" time:").unwrap_or(0));
    if calls != u64::from(READS) || differ_by_percent(reported.total_ns, micros * 1000, 5) {
        return Err(format!(
            "{reported:?}, the process waited for {own:?}, the kernel says:\n{text}"
        ));
    }
    Ok(())
}

/// Rows of a histogram as printed by libbpf-tools: the lower edge of each, and its count.
fn rows(text: &str) -> BTreeMap<u64, u64> {
    let row = |line: &str| {
        let (from, rest) = line.split_once("->")?;
        let count = rest.split(':').nth(1)?.split('|').next()?;
        Some((from.trim().parse().ok()?, count.trim().parse().ok()?))
    };
    text.lines().filter_map(row).collect()
}

/// Its events are the same, and so are its rows, except for requests at their edges.
fn biolatency(guest: &Guest) -> Result<(), String> {
    let _disk = NullDisks::slow(guest, DELAY, &[])?;
    let _peers = Peers::new(guest)?;
    let peer = measuring(&["biolatency-libbpf", "-d", NULL])?;
    let (reported, _, ended) = reads_beside(guest, &["-u"], READS)?;
    let text = interrupted(peer)?;
    let said = rows(&text);
    let calls: u64 = said.values().sum();
    let elsewhere: u64 = said
        .iter()
        .map(|(row, count)| count.abs_diff(reported.rows.get(row).copied().unwrap_or(0)))
        .sum();
    if calls != u64::from(READS) || elsewhere * 20 > calls {
        return Err(format!("{}\nbiolatency:\n{text}", ended.text));
    }
    Ok(())
}

/// It uses fentry, which loses calls where tasks are preempted inside the kernel: while one of them is preempted in its
/// program, the program is skipped for all others on the CPU. It does not report that. Elsewhere it sees what the tool
/// sees.
fn ext4dist(guest: &Guest) -> Result<(), String> {
    const SPEC: Spec = Spec {
        set: "cached",
        threads: 8,
        rounds: 5_000,
        file: "/mnt/ext4/ext4dist/file",
        name: "reader",
    };
    let _peers = Peers::new(guest)?;
    prepare(SPEC.file)?;
    let workload = Workload::start(&SPEC)?;
    let pid = workload.pid.to_string();
    let peer = measuring(&["ext4dist-libbpf", "-p", &pid])?;
    let tool = Tool::start(guest, &["-T", EXT4, "-p", &pid])?;
    workload.work()?;
    let ended = tool.finish()?;
    let text = interrupted(peer)?;
    let said: u64 = rows(&text).values().sum();
    let truth = SPEC.truth();
    ended
        .report()?
        .is_exactly(&truth)
        .map_err(|e| format!("{e}\n{}", ended.text))?;
    let is = SPEC.threads * SPEC.rounds;
    note(&format!("of {is} cached reads, ext4dist saw {said}, we {is}"))?;
    let wrong = if guest.preemptible() { said > is } else { said != is };
    if wrong {
        return Err(format!("{is} reads, ext4dist says:\n{text}"));
    }
    Ok(())
}
