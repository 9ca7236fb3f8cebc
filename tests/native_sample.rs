//! `--sample` on this machine, whatever it allows: true numbers lie in the intervals that are reported. Run it as root.
//!
//! `IOSB_SAMPLES` is the number of runs; `tests/run --long` makes 200.

mod folder;
mod here;

use std::collections::BTreeMap;
use std::ffi::c_long;
use std::fs;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use folder::Folder;
use here::process::run;
use here::{TOOL, schema};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);
/// The variable with the directory of the workload, which is this executable.
const WORKLOAD: &str = "IOSB_SAMPLE_WORKLOAD";
const RUNS: &str = "IOSB_SAMPLES";
const USUAL_RUNS: u32 = 10;

/// Calls that nothing else in the process makes, and how many of them the workload makes. Reads and writes alternate, so
/// that a choice by counting would see only one of them.
const CALLS: [(&str, u64); 5] = [
    ("pread64", 4000),
    ("pwrite64", 4000),
    ("readv", 600),
    ("fdatasync", 40),
    ("ftruncate", 3),
];
/// Reads of a timer, and the times that they wait for in microseconds: most of them short, few of them long.
const WAITS: u64 = 600;

fn wait_of(number: u64) -> Duration {
    Duration::from_micros(match number % 60 {
        0 => 2_000,
        1..6 => 400,
        _ => 60,
    })
}

impl Folder {
    /// Runs the workload under the tool. Returns the report, and what the tool printed.
    fn traced(&self, arguments: &[&str]) -> (String, String) {
        let report = self.join("report");
        let mut tool = Command::new(TOOL);
        tool.args(arguments).arg("-o").arg(&report).arg("--");
        tool.arg(std::env::current_exe().unwrap());
        tool.args(["--exact", "workload", "--test-threads", "1"]);
        tool.env(WORKLOAD, &**self);
        let output = run(&mut tool, LIMIT).unwrap().success().unwrap();
        (fs::read_to_string(report).unwrap(), output.stderr)
    }

    /// The mean duration of the waits in the last run, in nanoseconds, by the workload's own clock.
    fn mean_wait(&self) -> u64 {
        let total = fs::read_to_string(self.join("waited")).unwrap();
        total.parse::<u64>().unwrap() / WAITS
    }
}

fn timer() -> OwnedFd {
    // SAFETY: the descriptor is new.
    unsafe {
        let fd = libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC);
        assert!(fd >= 0);
        OwnedFd::from_raw_fd(fd)
    }
}

/// Waits until a timer has expired. Returns how long the read took.
fn wait(timer: &OwnedFd, span: Duration) -> Duration {
    let none = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let once = libc::itimerspec {
        it_interval: none,
        it_value: libc::timespec {
            tv_nsec: span.subsec_nanos().into(),
            ..none
        },
    };
    let mut expired = [0_u8; 8];
    let into = libc::iovec {
        iov_base: expired.as_mut_ptr().cast(),
        iov_len: expired.len(),
    };
    // SAFETY: all of it is valid for the calls.
    unsafe {
        assert_eq!(
            libc::timerfd_settime(timer.as_raw_fd(), 0, &raw const once, std::ptr::null_mut()),
            0
        );
        let before = Instant::now();
        assert_eq!(libc::syscall(libc::SYS_readv, timer.as_raw_fd(), &raw const into, 1), 8);
        before.elapsed()
    }
}

/// Not a test: the workload, when this executable is started as one. Every call by its number, so that no library
/// chooses another one.
#[test]
fn workload() {
    let Some(folder) = std::env::var_os(WORKLOAD) else {
        return;
    };
    let folder = PathBuf::from(folder);
    let file = fs::File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(folder.join("data"))
        .unwrap();
    let (fd, timer) = (file.as_raw_fd(), timer());
    let mut byte = 0_u8;
    let at = &raw mut byte;
    let mut waited = Duration::ZERO;
    let of = |name: &str| CALLS.iter().find(|(known, _)| *known == name).unwrap().1;
    let expect = |answer: c_long, expected: c_long| assert_eq!(answer, expected);
    // SAFETY: the byte is valid for each of them.
    unsafe {
        for n in 0..of("pread64") {
            expect(libc::syscall(libc::SYS_pwrite64, fd, at, 1, 0), 1);
            expect(libc::syscall(libc::SYS_pread64, fd, at, 1, 0), 1);
            if n < of("fdatasync") {
                expect(libc::syscall(libc::SYS_fdatasync, fd), 0);
            }
            if n < of("ftruncate") {
                expect(libc::syscall(libc::SYS_ftruncate, fd, 1), 0);
            }
            if n < WAITS {
                waited += wait(&timer, wait_of(n));
            }
        }
    }
    fs::write(folder.join("waited"), waited.as_nanos().to_string()).unwrap();
}

/// How many intervals had the true number.
#[derive(Debug, Default)]
struct Coverage {
    intervals: u32,
    covered: u32,
}

impl Coverage {
    fn add(&mut self, is_covered: bool) {
        self.intervals += 1;
        self.covered += u32::from(is_covered);
    }

    fn share(&self) -> f64 {
        f64::from(self.covered) / f64::from(self.intervals)
    }

    /// 95 % of them, but for three standard deviations of what chance does.
    fn check(&self, what: &str) {
        let tolerance = 3.0 * (0.95 * 0.05 / f64::from(self.intervals)).sqrt();
        println!(
            "{what}: {} of {} intervals have the true number",
            self.covered, self.intervals
        );
        assert!(self.share() >= 0.95 - tolerance, "{what}: {self:?}");
    }
}

/// The only report of a run; `None`: the kernel has skipped probes, which it does where tasks are preempted inside it.
fn lossless(lines: &str) -> Option<Value> {
    let reports = schema::reports(lines).unwrap();
    let [report] = &reports[..] else {
        panic!("{lines}");
    };
    (schema::sum(&report["lost"]) == 0).then(|| report.clone())
}

fn op<'a>(report: &'a Value, name: &str) -> &'a Value {
    let mut layers = schema::layers(report);
    let calls = layers.find(|layer| layer["layer"] == "syscall").unwrap();
    schema::ops(calls).find(|op| op["op"] == name).unwrap()
}

fn is_inside(estimate: &Value, n: u64, [low, high]: [&str; 2]) -> bool {
    (schema::number(&estimate[low])..=schema::number(&estimate[high])).contains(&n)
}

#[test]
fn true_numbers_lie_in_the_intervals() {
    let runs = std::env::var(RUNS).map_or(USUAL_RUNS, |runs| runs.parse().unwrap());
    let folder = Folder::new("sample");
    let mut counts: BTreeMap<&str, Coverage> = BTreeMap::new();
    let (mut all, mut means) = (Coverage::default(), Coverage::default());
    // What a choice by counting would never change.
    let mut reads = Vec::new();
    for _ in 0..runs {
        let (report, _) = folder.traced(&["-T", "syscall", "--all-files", "--sample", "1/4", "--json"]);
        let Some(report) = lossless(&report) else { continue };
        assert_eq!(report["sample"]["one_in"], 4);
        for (name, calls) in CALLS {
            let op = op(&report, name);
            let is_covered = is_inside(&op["estimate"], calls, ["count_low", "count_high"]);
            counts.entry(name).or_default().add(is_covered);
            all.add(is_covered);
            let bytes = schema::number(&op["bytes"]);
            let each = if name == "readv" { 8 } else { 1 };
            let moves = !["fdatasync", "ftruncate"].contains(&name);
            assert!(!moves || bytes == each * schema::number(&op["count"]), "{op}");
        }
        reads.push(schema::number(&op(&report, "pread64")["count"]));
        let waits = &op(&report, "readv")["estimate"];
        means.add(is_inside(waits, folder.mean_wait(), ["avg_low_ns", "avg_high_ns"]));
    }
    assert!(reads.len() as u32 > runs / 2, "the kernel skipped probes in most runs");
    for (name, coverage) in &counts {
        println!("{name}: {} of {}", coverage.covered, coverage.intervals);
    }
    all.check("numbers of calls");
    means.check("means");
    // On average the estimate is the true number: 4 standard deviations, each of sqrt(4000 * 3 / runs).
    let mean = reads.iter().sum::<u64>() as f64 / reads.len() as f64;
    let deviation = (4000.0 * 3.0 / reads.len() as f64).sqrt();
    assert!((mean - 4000.0).abs() < 4.0 * deviation, "{mean} of 4,000: {reads:?}");
    reads.dedup();
    assert!(reads.len() > 1, "each run chose the same number of calls");
}

#[test]
fn the_whole_stack_is_estimated() {
    let folder = Folder::new("sample");
    let mut coverage = Coverage::default();
    for _ in 0..3 {
        let (report, stderr) = folder.traced(&["--all-files", "--sample", "1/4", "--json"]);
        assert!(stderr.contains(", 1 in 4 calls"), "{stderr}");
        let Some(report) = lossless(&report) else { continue };
        // Validated: its rows add up to its time. Other calls of the process are in the families, too.
        let families = schema::array(&report["stack"]["families"]);
        let write = families.iter().find(|family| family["family"] == "write").unwrap();
        coverage.add(schema::number(&write["estimate"]["count_high"]) >= 4000);
        coverage.add(schema::number(&write["estimate"]["count_low"]) <= 4100);
        let unbalanced = &report["stack"]["unbalanced"];
        assert!(
            schema::sum(unbalanced) * 10 < schema::number(&write["count"]),
            "{unbalanced}"
        );
    }
    coverage.check("writes");
}

#[test]
fn a_report_in_text_says_that_it_is_estimated() {
    let folder = Folder::new("sample");
    for (options, table) in [(&["-T", "syscall", "-S"][..], "pwrite64"), (&[], "write")] {
        let (report, stderr) = folder.traced(&[options, &["--sample", "1/10"]].concat());
        let words = "estimates from 1 in 10 calls (--sample): counts, totals and bytes";
        assert_eq!(report.matches(words).count(), 1, "{report}");
        let intervals = report.split("95 % confidence:\n").nth(1).unwrap();
        assert!(intervals.contains(&format!("\n{table} ")), "{report}");
        assert!(
            stderr.contains("note: --sample 1/10: numbers of calls are estimates"),
            "{stderr}"
        );
    }
}
