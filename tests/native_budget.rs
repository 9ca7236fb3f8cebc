//! `--budget` on this machine, whatever it allows: system calls by tracepoints only. Run it as root.

mod here;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use here::process::{Output, Running, run, wait_for};
use here::{TOOL, schema};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(60);
/// A limit that any probe exceeds.
const NEXT_TO_NOTHING: &str = "0.001";

fn path_of(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("budget-{name}-{}", std::process::id()))
}

fn the_reports(path: &Path) -> Vec<Value> {
    let lines = fs::read_to_string(path).unwrap();
    fs::remove_file(path).unwrap();
    schema::reports(&lines).unwrap_or_else(|error| panic!("{error}"))
}

fn the_report(reports: Vec<Value>) -> Value {
    let [report] = <[Value; 1]>::try_from(reports).unwrap();
    report
}

fn has_ended(running: &Running) -> bool {
    let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    !matches!(waitid(Id::Pid(running.pid()), look), Ok(WaitStatus::StillAlive))
}

/// Calls of an op at a layer; 0 if it was not measured.
fn counted(report: &Value, layer: &str, op: &str) -> Option<u64> {
    let layer = schema::layers(report).find(|known| known["layer"] == layer)?;
    let op = schema::ops(layer).find(|known| known["op"] == op)?;
    Some(schema::number(&op["count"]))
}

fn count(report: &Value, layer: &str, op: &str) -> u64 {
    counted(report, layer, op).unwrap()
}

/// Reads in this process while the tool measures them with these options, until the tool ends. Returns its messages,
/// its reports, and the number of reads.
fn measured(name: &str, options: &[&str]) -> (Output, Vec<Value>, u64) {
    let (file, report) = (path_of(name), path_of(&format!("{name}-report")));
    fs::write(&file, [7; 4096]).unwrap();
    let own = std::process::id().to_string();
    let mut tool = Command::new(TOOL);
    tool.args(["--json", "-p", &own, "-o", report.to_str().unwrap()])
        .args(options);
    let running = Running::start(&mut tool).unwrap();
    wait_for("the banner", LIMIT, || running.stderr().contains("Tracing "))
        .unwrap_or_else(|error| panic!("{options:?}: {error}: {}", running.stderr()));
    let (reads, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let file = File::open(&file).unwrap();
            while !stop.load(Ordering::Relaxed) {
                assert_eq!(file.read_at(&mut [0; 16], 0).unwrap(), 16);
                reads.fetch_add(1, Ordering::Relaxed);
            }
        });
        let over = wait_for("its end", LIMIT, || has_ended(&running));
        stop.store(true, Ordering::Relaxed);
        over.unwrap_or_else(|error| panic!("{options:?}: {error}: {}", running.stderr()));
    });
    let output = running.finish(LIMIT).unwrap();
    fs::remove_file(&file).unwrap();
    (output, the_reports(&report), reads.into_inner())
}

/// One test at a time may read, since all of them are in this process.
#[test]
fn a_layer_that_costs_too_much_is_detached_and_others_stay() {
    kept();
    // The run ends with the last layer, whatever is reported about its calls.
    for options in [&["-T", "syscall"][..], &["-T", "syscall", "--by", "process"]] {
        goes(options, "; ending the run at 1.", ", since only syscall is left");
    }
    // System calls cost most, and all other layers are inside them.
    goes(&["--slower", "10s"], "; ending the run at 1.", " would save too little");
    intervals();
}

fn kept() {
    let limit = ["-T", "syscall", "--budget", "100", "--duration", "2s"];
    let (output, reports, reads) = measured("kept", &limit);
    let (output, report) = (output.success().unwrap(), the_report(reports));
    assert!(!output.stderr.contains("budget: "), "{}", output.stderr);
    assert_eq!(
        report["cost"]["budget"],
        json!({"limit_ns_per_s": 1_000_000_000, "detached": []})
    );
    let counted = count(&report, "syscall", "pread64");
    assert!(counted > 0 && counted <= reads, "{counted} of {reads}");
}

fn goes(options: &[&str], what: &str, reason: &str) {
    let limited = [options, &["--budget", NEXT_TO_NOTHING]].concat();
    let (output, reports, reads) = measured("ends", &limited);
    let (output, report) = (output.success().unwrap(), the_report(reports));
    let said: Vec<&str> = output
        .stderr
        .lines()
        .filter(|line| line.starts_with("budget: "))
        .collect();
    let [line] = said[..] else {
        panic!("{options:?}: {}", output.stderr)
    };
    assert!(line.contains(what) && line.ends_with(reason), "{options:?}: {line}");
    let allowed = format!(" of a CPU, and {NEXT_TO_NOTHING} % is allowed; ");
    assert!(line.contains(&allowed), "{options:?}: {line}");
    let counted = count(&report, "syscall", "pread64");
    assert!(counted > 0 && counted <= reads, "{options:?}: {counted} of {reads}");
}

/// Later reports have nothing of a detached layer, and say so.
fn intervals() {
    let (output, reports, reads) = measured("intervals", &["-T", "syscall,blk", "--budget", NEXT_TO_NOTHING, "1"]);
    let output = output.success().unwrap();
    for line in ["; detaching syscall at 1.", ", since only blk is left"] {
        assert!(output.stderr.contains(line), "{}", output.stderr);
    }
    let [first, .., last] = reports.as_slice() else {
        panic!("{reports:?}")
    };
    assert!(count(first, "syscall", "pread64") > 0);
    // Not 0: it was not measured.
    assert_eq!(counted(last, "syscall", "pread64"), None);
    let gone = schema::array(&last["layers"])
        .iter()
        .find(|layer| layer["layer"] == "syscall")
        .unwrap();
    let reason = gone["reason"].as_str().unwrap();
    assert!(reason.starts_with("detached 1."), "{reason}");
    assert_eq!(last["cost"]["budget"]["detached"][0]["layer"], "syscall");
    let sum: u64 = reports
        .iter()
        .filter_map(|report| counted(report, "syscall", "pread64"))
        .sum();
    assert!(sum < reads, "{sum} of {reads}");
}

/// A command is waited for, even when nothing of it is measured any more.
#[test]
fn a_command_goes_on_without_the_layer() {
    const READS: u64 = 200_000;
    let (file, path) = (path_of("command"), path_of("command-report"));
    let dd = format!(
        "dd if={0} of=/dev/null bs=1 count={READS} iflag=fullblock 2>/dev/null; sleep 3; cat {0} >/dev/null; exit 3",
        file.display()
    );
    fs::write(&file, vec![7; READS as usize]).unwrap();
    let mut tool = Command::new(TOOL);
    tool.args([
        "-T",
        "syscall",
        "--json",
        "--budget",
        NEXT_TO_NOTHING,
        "-o",
        path.to_str().unwrap(),
    ]);
    let output = run(tool.args(["--", "sh", "-c", &dd]), LIMIT).unwrap();
    fs::remove_file(&file).unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", output.stderr);
    assert!(output.stderr.contains("; detaching syscall at 1."), "{}", output.stderr);
    let report = the_report(the_reports(&path));
    let detached = &report["cost"]["budget"]["detached"][0];
    assert_eq!(detached["layer"], "syscall", "{detached}");
    let (after, until) = (
        schema::number(&detached["after_ns"]),
        schema::number(&detached["until_ns"]),
    );
    assert!(after >= 1_000_000_000 && until >= after + 1_000_000_000, "{detached}");
    assert!(until < schema::number(&report["duration_ns"]), "{detached}");
    let syscalls = schema::layers(&report).next().unwrap();
    assert_eq!(syscalls["not_measured"][0]["what"], "later calls", "{syscalls}");
    // The programs themselves make a few more at their start.
    let counted = count(&report, "syscall", "read");
    assert!(counted > 0 && counted <= READS + 100, "{counted}");
}

/// A call that is under way when its layer is detached is reported as such. Its thread exits later, and no loss of a layer
/// that is no longer measured.
#[test]
fn a_call_under_way_at_a_layer_that_is_gone_is_not_lost() {
    let (pipe, path) = (path_of("pipe"), path_of("pipe-report"));
    let script = format!(
        "mkfifo {0}; exec 3<>{0}; timeout 4 cat <&3 & \
         dd if=/dev/zero of=/dev/null bs=1 count=200000 2>/dev/null; wait; exit 0",
        pipe.display()
    );
    let options = [
        "-T",
        "syscall,blk",
        "--all-files",
        "--json",
        "--budget",
        NEXT_TO_NOTHING,
    ];
    let mut tool = Command::new(TOOL);
    tool.args(options)
        .arg("-o")
        .arg(&path)
        .args(["--", "sh", "-c", &script]);
    let output = run(&mut tool, LIMIT).unwrap().success().unwrap();
    fs::remove_file(&pipe).unwrap();
    assert!(output.stderr.contains("; detaching syscall at 1."), "{}", output.stderr);
    let report = the_report(the_reports(&path));
    let detached = &report["cost"]["budget"]["detached"][0];
    // Those of the shell, which waits, and of cat.
    assert!(schema::number(&detached["under_way"]) > 0, "{detached}");
    let syscalls = schema::layers(&report).next().unwrap();
    assert_eq!(syscalls["lost"]["return_missed"], json!(0));
}
