//! Reports and lines that are made of the records of a recording, on this kernel. Run it as root.
//!
//! What is selected of a recording is compared with the exact counters of the same run, and with what a workload is known
//! to do.

mod chroot;
mod folder;

use std::path::Path;
use std::process::{Command, Output, Stdio};

use folder::Folder;
use iostackbreakdown::catalog::RECORDED;
use iostackbreakdown::model::record::{Call, Records, Thread};
use iostackbreakdown::recording::Recording;
use serde_json::Value;

/// As reports name it.
fn reported(path: &Path) -> String {
    chroot::from_root(path).display().to_string()
}

const TOOL: &str = env!("CARGO_BIN_EXE_IOStackBreakdown");

fn tool(folder: &Path, arguments: &[&str]) -> Output {
    let mut tool = Command::new(TOOL);
    tool.current_dir(folder).args(arguments).output().unwrap()
}

fn succeed(folder: &Path, arguments: &[&str]) -> String {
    let done = tool(folder, arguments);
    assert!(
        done.status.success(),
        "{arguments:?}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
    String::from_utf8(done.stdout).unwrap()
}

fn refused(folder: &Path, arguments: &[&str]) -> String {
    let done = tool(folder, arguments);
    assert_eq!(done.status.code(), Some(1), "{arguments:?}");
    let said = String::from_utf8(done.stderr).unwrap();
    assert_eq!(said.lines().count(), 1, "{said}");
    said
}

fn json(text: &str) -> Value {
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

/// Each file is written by 64 calls of 4 KiB, synchronised once, and read again. Longer than two seconds.
const WORKLOAD: &str =
    "for i in 1 2 3 4 5 6; do dd if=/dev/zero of=f$i bs=4096 count=64 conv=fsync; cat f$i none; sleep 0.4; done";

/// Records the workload. Returns the numbers of its processes, the first one of which started the others.
fn record(folder: &Path, name: &str, more: &[&str]) -> Vec<u32> {
    let mut words = vec!["record", "-q", "-o", name];
    words.extend(more);
    words.extend(["--", "sh", "-c", WORKLOAD]);
    let done = tool(folder, &words);
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(said.contains("report it"), "{said}");
    let recording = Recording::open(&folder.join(name)).unwrap();
    let mut all = Records::default();
    recording.definitions().for_each(|records| all.append(records));
    assert!(all.lost.is_empty());
    let is_first = |thread: &&Thread| !all.threads.iter().any(|parent| parent.pid == thread.parent);
    let first = all.threads.iter().find(is_first).unwrap().pid;
    let mut pids: Vec<u32> = all.threads.iter().map(|thread| thread.pid).collect();
    pids.sort_unstable();
    pids.dedup();
    pids.retain(|pid| *pid != first);
    [vec![first], pids].concat()
}

/// The ops of the layers in which records have them, without those that were not called.
fn ops(report: &Value) -> Vec<Value> {
    let layers = report["layers"].as_array().unwrap().iter();
    let layers = layers.filter(|layer| layer["layer"] == "syscall" || layer["layer"] == "blk");
    let ops = layers.flat_map(|layer| layer["ops"].as_array().unwrap());
    let called = ops.filter(|op| op["count"].as_u64().is_some_and(|count| count > 0));
    called
        .map(|op| {
            let mut op = op.clone();
            // It is not known of a selection.
            op.as_object_mut().unwrap().remove("apart");
            op
        })
        .collect()
}

fn count_of(report: &Value, op: &str) -> u64 {
    let found = ops(report).into_iter().find(|known| known["op"] == op);
    found.map_or(0, |op| op["count"].as_u64().unwrap())
}

/// All selected processes are all that were recorded: every number is that of the kernel's counters.
#[test]
fn a_selection_of_everything_has_the_numbers_of_the_run() {
    let folder = Folder::new("selected-all");
    for (name, measured) in [
        ("layers.iosb", &["-T", "syscall,blk"][..]),
        ("queued.iosb", &["-T", "syscall,blk", "-Q"]),
        // Counts the calls of single operations, too.
        ("whole.iosb", &["--export-json", "whole.json"]),
    ] {
        let pids = record(&folder, name, measured);
        let exact = json(&succeed(&folder, &["report", name, "--json"]));
        let all: Vec<String> = pids.iter().map(u32::to_string).collect();
        let first = pids[0].to_string();
        for words in [&["-p", &all.join(",")][..], &["-f", "-p", &first], &["--dir", "/"]] {
            let selected = json(&succeed(&folder, &[&["report", name, "--json"][..], words].concat()));
            if words[0] == "--dir" {
                // Calls that take a path are on no file.
                assert!(count_of(&selected, "write") > 0);
                assert!(ops(&selected).len() < ops(&exact).len());
                continue;
            }
            let (selected_ops, exact_ops) = (ops(&selected), ops(&exact));
            assert_eq!(selected_ops.len(), exact_ops.len(), "{name} {words:?}");
            for (selected, exact) in selected_ops.iter().zip(&exact_ops) {
                assert_eq!(selected, exact, "{name} {words:?}");
            }
            assert_eq!(
                selected["whole_stack"]["families"], exact["whole_stack"]["families"],
                "{name} {words:?}"
            );
            assert_eq!(
                selected["whole_stack"]["not_waited"], exact["whole_stack"]["not_waited"],
                "{name} {words:?}"
            );
        }
    }
}

#[test]
fn each_filter_selects_what_the_workload_is_known_to_do() {
    let folder = Folder::new("selected-some");
    record(&folder, "x.iosb", &["-T", "syscall,blk"]);
    let report = |words: &[&str]| {
        json(&succeed(
            &folder,
            &[&["report", "x.iosb", "--json"][..], words].concat(),
        ))
    };
    let [one, two] = ["f1", "f2"].map(|name| reported(&folder.join(name)));
    let here = reported(&folder);
    let only = report(&["--file", &one]);
    assert_eq!((count_of(&only, "write"), count_of(&only, "fsync")), (64, 1));
    // A path may be given from the current directory, as far as its name in a chroot is that in the recording.
    if here == folder.display().to_string() {
        assert_eq!(count_of(&report(&["--file", "f1"]), "write"), 64);
    }
    assert_eq!(count_of(&report(&["--file", &one, "--file", &two]), "write"), 128);
    assert_eq!(count_of(&report(&["--dir", &here]), "write"), 6 * 64);
    let dd = report(&["--comm", "dd"]);
    assert_eq!(count_of(&dd, "fsync"), 6);
    assert_eq!(count_of(&dd, "getdents64"), 0);
    let cat = report(&["--comm", "cat", "--dir", &here]);
    assert_eq!(count_of(&cat, "write"), 0);
    assert!(count_of(&cat, "read") >= 6);
    let only = report(&["-T", "syscall", "--file", &one]);
    assert_eq!(only["layers"].as_array().unwrap().len(), 1);
    assert_eq!(only["filter"]["file"].as_str(), Some(&*one));
    // Each moment is in one of two parts.
    let whole = report(&[]);
    let parts = [report(&["--to", "+1.3s"]), report(&["--from", "+1.3s"])];
    let sum: u64 = parts.iter().map(|part| count_of(part, "write")).sum();
    assert_eq!(sum, count_of(&whole, "write"));
    assert!(count_of(&parts[0], "write") > 0 && count_of(&parts[1], "write") > 0);
    let warnings = parts[0]["warnings"].to_string();
    assert!(warnings.contains("made of records"), "{warnings}");
    // Intervals add up as well.
    let text = succeed(&folder, &["report", "x.iosb", "--json", "--comm", "dd", "1"]);
    let sum: u64 = text.lines().map(|line| count_of(&json(line), "write")).sum();
    assert_eq!(sum, count_of(&dd, "write"));
    assert!(text.lines().count() > 2);
    for (words, message) in [
        (&["-T", "vfs"][..], "vfs is not in the recording; it has syscall, blk"),
        (&["-d", "nodisk"], "no such disk in the recording"),
        (&["--cgroup", "/no/such/group"], "cgroup"),
        (
            &["--dir", "/nowhere"],
            "no file of that path or below that directory is in the recording",
        ),
        (&["--comm", "nosuch"], "no thread named 'nosuch' is in the recording"),
    ] {
        let said = refused(&folder, &[&["report", "x.iosb"][..], words].concat());
        assert!(said.contains(message), "{words:?}: {said}");
    }
}

/// Calls of all groups together, and the names.
fn grouped(report: &Value) -> (u64, Vec<String>) {
    let groups = report["groups"]["groups"].as_array().unwrap();
    let others = &report["groups"]["others"];
    let all = groups.iter().chain((!others.is_null()).then_some(others));
    let calls = |group: &Value| -> u64 {
        let layers = group["numbers"]["layers"].as_array().unwrap().iter();
        let ops = layers.flat_map(|layer| layer["ops"].as_array().unwrap());
        ops.map(|op| op["count"].as_u64().unwrap()).sum()
    };
    let names = groups.iter().map(|group| group["name"].as_str().unwrap().to_owned());
    (all.map(calls).sum(), names.collect())
}

#[test]
fn groups_from_records_are_those_of_the_kernel_and_add_up() {
    let folder = Folder::new("selected-groups");
    record(
        &folder,
        "x.iosb",
        &["-T", "syscall,blk", "--by", "process", "--top", "100"],
    );
    let report = |words: &[&str]| {
        json(&succeed(
            &folder,
            &[&["report", "x.iosb", "--json"][..], words].concat(),
        ))
    };
    let exact = report(&["--by", "process", "--top", "100"]);
    let all: u64 = ops(&exact).iter().map(|op| op["count"].as_u64().unwrap()).sum();
    for by in ["thread", "comm", "file", "disk", "cgroup", "fd", "user"] {
        let report = report(&["--by", by, "--top", "1000"]);
        let (calls, names) = grouped(&report);
        assert_eq!(calls, all, "{by}: {names:?}");
        let expected = match by {
            "comm" => "dd".to_owned(),
            "user" => "uid 0".to_owned(),
            "file" => reported(&folder.join("f1")),
            "fd" => format!("fd 1 {}", reported(&folder.join("f1"))),
            "thread" => "dd ".to_owned(),
            _ => continue,
        };
        assert!(names.iter().any(|name| name.contains(&expected)), "{by}: {names:?}");
    }
    // The same by the kernel and from records, which a selection of everything makes it.
    let (calls, mut names) = grouped(&exact);
    let from_records = report(&["--by", "process", "--top", "100", "--from", "+0.0001s"]);
    let (again, mut names_again) = grouped(&from_records);
    names.sort();
    names_again.sort();
    assert!(again <= calls && calls - again < 30, "{again} of {calls}");
    let of_dd = |names: &[String]| names.iter().filter(|name| name.starts_with("dd ")).count();
    assert_eq!(of_dd(&names), of_dd(&names_again));
}

#[test]
fn slow_calls_of_a_recording_are_printed_one_by_one() {
    let folder = Folder::new("selected-slow");
    record(&folder, "x.iosb", &[]);
    let recording = Recording::open(&folder.join("x.iosb")).unwrap();
    let mut all = Records::default();
    recording.batches(None, None).for_each(|records| all.append(records));
    // A report has no calls that only runs that record measure.
    let is_reported = |call: &&Call| !RECORDED.iter().any(|known| known.op == call.op);
    let calls = all.calls.iter().filter(is_reported).count();
    let text = succeed(&folder, &["report", "x.iosb", "--slower", "0"]);
    let summary = text.lines().find(|line| line.ends_with("all listed above.")).unwrap();
    let listed: usize = summary.split(' ').next().unwrap().replace(',', "").parse().unwrap();
    assert_eq!(
        text.lines()
            .skip(1)
            .take_while(|line| !line.is_empty() && line.contains(':'))
            .count(),
        listed + 1
    );
    assert!(listed <= calls && calls - listed < 5, "{listed} of {calls}");
    let some = succeed(
        &folder,
        &["report", "x.iosb", "--slower", "0", "--comm", "dd", "--json"],
    );
    let slow: Vec<Value> = some.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let slow: Vec<&Value> = slow.iter().filter(|line| line["slow_call"].is_object()).collect();
    assert!(slow.iter().all(|call| call["slow_call"]["comm"] == "dd") && slow.len() > 6 * 64);
}

#[test]
fn events_are_lines_in_the_order_of_time() {
    let folder = Folder::new("selected-events");
    record(&folder, "x.iosb", &["-T", "syscall,blk"]);
    let recording = Recording::open(&folder.join("x.iosb")).unwrap();
    let mut all = Records::default();
    recording.batches(None, None).for_each(|records| all.append(records));
    let text = succeed(&folder, &["report", "x.iosb", "--events"]);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 1 + all.calls.len() + all.requests.len());
    assert!(lines[1..].is_sorted_by_key(|line| line[..15].to_owned()));
    let one = reported(&folder.join("f1"));
    let of_file = succeed(&folder, &["report", "x.iosb", "--events", "--file", &one]);
    let writes = of_file.lines().filter(|line| line.contains(" call  write "));
    assert_eq!(writes.count(), 64, "{of_file}");
    let last = succeed(&folder, &["report", "x.iosb", "--events", "--last", "3"]);
    assert_eq!(
        last.lines().collect::<Vec<_>>(),
        [&lines[..1], &lines[lines.len() - 3..]].concat()
    );
    for (form, format) in [("json", "jsonl"), ("iotracer", "iotracer")] {
        let form = format!("--events={form}");
        let printed = succeed(&folder, &["report", "x.iosb", &form]);
        let exported = succeed(&folder, &["export", "x.iosb", "--to", format]);
        assert_eq!(printed, exported, "{format}");
        assert!(printed.lines().count() > 6 * 64);
    }
    // A reader that closes its pipe ends it quietly.
    let mut closed = Command::new(TOOL);
    closed.current_dir(&folder).args(["report", "x.iosb", "--events=json"]);
    let mut closed = closed.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(closed.stdout.take());
    let closed = closed.wait_with_output().unwrap();
    assert!(closed.status.success() && closed.stderr.is_empty(), "{closed:?}");
}
