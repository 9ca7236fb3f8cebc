//! Exports of what SQLite, fio with six engines, git and direct I/O did on this kernel, in the tools that they are for: all
//! have the numbers of `report`. Run it as root; `tests/run` installs the tools. `IOSB_RECORDING` is a recording of such a
//! workload that was made elsewhere, as `tests/exports/guests` does in guests.

#[path = "exports/outside.rs"]
mod outside;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use iostackbreakdown::model::record::{Records, Request, Sleep};
use iostackbreakdown::recording::Recording;
use serde_json::{Value, json};

use self::outside::{python, run};

const TOOL: &str = env!("CARGO_BIN_EXE_IOStackBreakdown");

const WORKLOAD: &str = r#"set -e
python3 - <<'END'
import sqlite3
db = sqlite3.connect("shop.db")
db.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT)")
for order in range(20):
    db.execute("INSERT INTO orders (item) VALUES (?)", ("x" * 100,))
    db.commit()
END
for engine in libaio posixaio sync psync vsync pvsync; do
    fio --name=$engine --ioengine=$engine --rw=randrw --bs=4k --size=256k --filename=fio.$engine --direct=1 --end_fsync=1 --output=fio.out
done
git init -q repo
cp /etc/*.conf repo
git -C repo add .
git -C repo -c user.name=x -c user.email=x@example.org commit -q -m all
dd if=/dev/zero of=raw bs=64k count=16 oflag=direct
dd if=raw of=/dev/null bs=16k iflag=direct"#;

fn record(folder: &Path) {
    let recording = ["record", "-q", "-T", "syscall,blk", "-o", "x.iosb", "--", "sh", "-c"];
    let (_, said) = run(folder, &[&[TOOL], &recording[..], &[WORKLOAD]].concat());
    assert!(!said.contains("INCOMPLETE"), "{said}");
}

/// What a report has of each op of requests.
fn sums(requests: &[Request]) -> Vec<Value> {
    let mut ops = BTreeMap::<&str, [u64; 3]>::new();
    for request in requests {
        let [count, bytes, total_ns] = ops.entry(request.op.name()).or_default();
        *count += 1;
        *bytes += request.bytes;
        *total_ns += request.ended_ns - request.issued_ns.unwrap();
    }
    let ops = ops.into_iter();
    ops.map(|(op, [count, bytes, total_ns])| json!({ "op": op, "count": count, "bytes": bytes, "total_ns": total_ns }))
        .collect()
}

/// A recording, its report, and its records.
struct Recorded {
    folder: PathBuf,
    /// Calls by their names, and requests.
    calls: BTreeMap<String, Value>,
    requests: Vec<Value>,
    records: Records,
}

impl Recorded {
    fn new() -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("native-exports");
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        // The whole stack counts most system calls by their families only: its report by system call is made of records.
        let mut layers: &[&str] = &[];
        if let Some(other) = std::env::var_os("IOSB_RECORDING") {
            std::os::unix::fs::symlink(other, folder.join("x.iosb")).unwrap();
            layers = &["-T", "syscall,blk"];
        } else {
            record(&folder);
        }
        let (report, _) = run(&folder, &[&[TOOL, "report", "x.iosb", "--json"], layers].concat());
        let report: Value = serde_json::from_str(&report).unwrap();
        let ops = |layer: &str| -> Vec<Value> {
            let layers = report["layers"].as_array().unwrap();
            let ops = layers.iter().find(|found| found["layer"] == layer).unwrap()["ops"]
                .as_array()
                .unwrap();
            ops.iter()
                .filter(|op| op["count"].as_u64() > Some(0))
                .cloned()
                .collect()
        };
        let mut records = Records::default();
        let recording = Recording::open(&folder.join("x.iosb")).unwrap();
        recording.batches(None, None).for_each(|batch| records.append(batch));
        // Exports have the requests of kernel threads for the recorded calls, too: those of the journal.
        let mut requests = ops("blk");
        let of_processes = records.requests.iter().filter(|request| request.pid > 0).count() as u64;
        let counted: u64 = requests.iter().map(|op| op["count"].as_u64().unwrap()).sum();
        assert!(
            layers.is_empty() || of_processes == counted,
            "{of_processes}: {requests:?}"
        );
        if of_processes < records.requests.len() as u64 {
            requests = sums(&records.requests);
        }
        let named = |op: Value| (op["op"].as_str().unwrap().to_owned(), op);
        Self {
            calls: ops("syscall").into_iter().map(named).collect(),
            requests,
            records,
            folder,
        }
    }

    /// Exports it to a file or directory of that name.
    fn export(&self, format: &str) -> PathBuf {
        run(&self.folder, &[TOOL, "export", "x.iosb", "--to", format, "-o", format]);
        self.folder.join(format)
    }

    fn sum(&self, what: &str) -> u64 {
        self.calls.values().map(|op| op[what].as_u64().unwrap()).sum()
    }

    fn sum_of_requests(&self, what: &str) -> u64 {
        self.requests.iter().map(|op| op[what].as_u64().unwrap()).sum()
    }

    /// Bytes that were moved by calls with one of these names.
    fn bytes(&self, names: &[&str]) -> u64 {
        let calls = names.iter().filter_map(|name| self.calls.get(*name)?["bytes"].as_u64());
        calls.sum()
    }
}

const READS: [&str; 4] = ["read", "pread64", "readv", "preadv"];
const WRITES: [&str; 4] = ["write", "pwrite64", "writev", "pwritev"];

#[test]
fn exports_of_a_recording_have_the_numbers_of_its_report() {
    let recorded = Recorded::new();
    for (name, least) in [
        ("fdatasync", 20),
        ("io_submit", 10),
        ("preadv", 10),
        ("rename", 1),
        ("openat", 100),
    ] {
        assert!(
            recorded.calls[name]["count"].as_u64() >= Some(least),
            "{name}: {:?}",
            recorded.calls
        );
    }
    json_lines(&recorded);
    trace_for_babeltrace(&recorded);
    block_trace(&recorded);
    fio_job(&recorded);
    perfetto(&recorded);
    iotracer(&recorded);
    otf2(&recorded);
    if Path::new("/usr/bin/lttng-iolog").exists() {
        analyses_of_lttng(&recorded);
    } else {
        println!("left out: the analyses of LTTng, which this release does not have");
    }
}

/// Where a buffer is too small: `report --lost`, babeltrace2 and LTTng's analyses have the same intervals and numbers.
#[test]
fn what_was_lost_is_lost_in_the_tools_that_read_exports() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("native-exports-lost");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let recording = ["record", "-q", "-T", "syscall", "--buffer", "64k", "-o", "x.iosb", "--"];
    let workload = ["dd", "if=/dev/zero", "of=bytes", "bs=1", "count=50000"];
    run(&folder, &[&[TOOL], &recording[..], &workload[..]].concat());
    run(&folder, &[TOOL, "export", "x.iosb", "--to", "ctf", "-o", "ctf"]);
    // "12:00:01.250-12:00:01.262  CPU 1  2,543 calls have no record; ...".
    let (report, _) = run(&folder, &[TOOL, "report", "x.iosb", "--lost"]);
    let line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (from, to) = words[0].split_once('-').unwrap();
        (to.to_owned(), words[3].replace(',', ""), from.to_owned())
    };
    let lost = report.lines().filter(|line| line.contains(" CPU ")).map(line);
    let mut lost: Vec<(String, String, String)> = lost.collect();
    lost.sort();
    assert!(!lost.is_empty(), "{report}");
    is_discarded(&run(&folder, &["babeltrace2", "ctf"]).1, &lost);
    if Path::new("/usr/bin/lttng-syscallstats").exists() {
        is_discarded(&run(&folder, &["lttng-syscallstats", "--no-progress", "ctf"]).1, &lost);
    } else {
        println!("left out: the analyses of LTTng, which this release does not have");
    }
}

/// Whether a tool has the same losses, by their ends, numbers and beginnings. Packets of a trace follow each other: a loss
/// that began before another one of its CPU had ended begins at that end.
fn is_discarded(text: &str, lost: &[(String, String, String)]) {
    // "Tracer discarded 2543 events between [12:00:01.250123456] and [12:00:01.262123456] in ...".
    let lines = text.lines().filter_map(|line| line.split_once("Tracer discarded "));
    let interval = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let milliseconds = |word: &str| word[1..13].to_owned();
        (milliseconds(words[5]), words[0].to_owned(), milliseconds(words[3]))
    };
    let mut discarded: Vec<_> = lines.map(|(_, line)| interval(line)).collect();
    discarded.sort();
    let is_same = |(one, other): (&(String, String, String), &(String, String, String))| {
        (&one.0, &one.1) == (&other.0, &other.1) && (&other.2..=&other.0).contains(&&one.2)
    };
    assert_eq!(discarded.len(), lost.len(), "{discarded:?}, {lost:?}");
    assert!(discarded.iter().zip(lost).all(is_same), "{discarded:?}, {lost:?}");
    let is_any_within_another = lost.windows(2).any(|pair| pair[0].0 >= pair[1].2);
    assert!(is_any_within_another || discarded == lost, "{discarded:?}, {lost:?}");
}

fn json_lines(recorded: &Recorded) {
    let text = fs::read_to_string(recorded.export("jsonl")).unwrap();
    let mut counts = BTreeMap::<String, u64>::new();
    let schema: Value = serde_json::from_str(include_str!("../schema/events.schema.json")).unwrap();
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        // Validating is slow: each kind often enough.
        let (kind, record) = line.as_object().unwrap().iter().next().unwrap();
        let seen = counts.entry(format!("{kind}s")).or_default();
        *seen += 1;
        assert!(*seen > 500 || validator.is_valid(&line), "{line}");
        if kind == "call" {
            *counts.entry(record["op"].as_str().unwrap().to_owned()).or_default() += 1;
        }
    }
    for (name, op) in &recorded.calls {
        assert_eq!(op["count"], json!(counts[name]), "{name}");
    }
    assert_eq!(counts["calls"], recorded.sum("count"));
    assert_eq!(counts["requests"], recorded.records.requests.len() as u64);
}

fn trace_for_babeltrace(recorded: &Recorded) {
    recorded.export("ctf");
    let (out, err) = run(&recorded.folder, &["babeltrace2", "ctf"]);
    assert_eq!(err, "");
    let count = |what: &str| out.lines().filter(|line| line.contains(what)).count() as u64;
    let calls = recorded.sum("count");
    assert_eq!([count(" syscall_entry_"), count(" syscall_exit_")], [calls, calls]);
    let requests = recorded.sum_of_requests("count");
    assert_eq!(
        [count(" block_rq_issue:"), count(" block_rq_complete:")],
        [requests, requests]
    );
}

fn block_trace(recorded: &Recorded) {
    let folder = recorded.export("blktrace");
    let disks: BTreeSet<String> = fs::read_dir(&folder)
        .unwrap()
        .filter_map(|entry| {
            Some(
                entry
                    .unwrap()
                    .file_name()
                    .to_str()?
                    .split_once(".blktrace.")?
                    .0
                    .to_owned(),
            )
        })
        .collect();
    let (mut sums, mut device_s, mut all_s) = ([0; 2], 0.0, 0.0);
    for disk in &disks {
        let script = format!("cat {disk}.blktrace.* | blkparse -i - -f '%a %d %N\\n'");
        let (out, _) = run(&folder, &["sh", "-c", &script]);
        assert!(out.contains("Skips: 0 forward"), "{out}");
        let count = |action: &str| out.lines().filter(|line| line.starts_with(action)).count() as u64;
        sums[0] += count("D ");
        sums[1] += count("C ");
        let script = format!("blkparse -i {disk} -d {disk}.bin >/dev/null && btt -i {disk}.bin -o {disk}");
        run(&folder, &["sh", "-c", &script]);
        seeks(recorded, &folder, disk);
        let stats = fs::read_to_string(folder.join(format!("{disk}.avg"))).unwrap();
        // Means with nanoseconds, which are multiplied by their number.
        let sum = |what: &str| -> f64 {
            let line = stats.lines().find(|line| line.starts_with(what));
            let line = line.unwrap_or_else(|| panic!("{what}: {stats}"));
            let numbers = line.split_whitespace().skip(1).map(|word| word.parse().unwrap());
            let numbers: Vec<f64> = numbers.collect();
            numbers[1] * numbers[3]
        };
        device_s += sum("D2C");
        all_s += sum("Q2C");
    }
    assert_eq!(
        sums,
        [
            recorded.sum_of_requests("count"),
            recorded.records.requests.len() as u64
        ]
    );
    let expected = recorded.sum_of_requests("total_ns") as f64 / 1e9;
    let from_begin = recorded.records.requests.iter().filter_map(|request| {
        let begin_ns = request.submitted_ns.or(request.started_ns)?;
        Some(request.ended_ns - begin_ns)
    });
    let expected_all = from_begin.sum::<u64>() as f64 / 1e9;
    assert!(
        (device_s - expected).abs() < 1e-4 && (all_s - expected_all).abs() < 1e-4,
        "D2C {device_s} s instead of {expected} s, Q2C {all_s} s instead of {expected_all} s"
    );
}

/// btt's file of seeks has the same lines as the requests, and adds up to `--seeks`.
fn seeks(recorded: &Recorded, folder: &Path, disk: &str) {
    let script = format!("btt -a -i {disk}.bin -s {disk}.seeks -o {disk}.with-seeks");
    run(folder, &["sh", "-c", &script]);
    let (out, _) = run(
        &recorded.folder,
        &[TOOL, "report", "x.iosb", "--seeks", "-d", disk, "--json"],
    );
    let report: Value = serde_json::from_str(&out).unwrap();
    let report = &report["seeks"]["disks"][0];
    let number = |what: &str| report["disk"][what].as_u64().unwrap() as u32;
    let numbers = [number("major"), number("minor")];
    let name = format!("{disk}.seeks_{},{}_d2d_c.dat", numbers[0], numbers[1]);
    let text = fs::read_to_string(folder.join(name)).unwrap();
    // The first is the distance from the start of the disk.
    let lines = text.lines().skip(1).map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (words[1].parse::<i64>().unwrap(), words[2].to_owned())
    });
    let lines: Vec<(i64, String)> = lines.collect();
    let requests = recorded.records.requests.iter();
    let requests = requests.filter(|request| request.disk == numbers && request.bytes > 0);
    let mut requests: Vec<&Request> = requests.collect();
    requests.sort_by_key(|request| request.issued_ns);
    assert_eq!(lines, distances(&requests), "{disk}");
    // btt has discards, which move no head, among them.
    requests.retain(|request| request.op.name() != "discard");
    let counted = distances(&requests);
    for row in report["rows"].as_array().unwrap() {
        let within = row["from"].as_i64().unwrap()..=row["to"].as_i64().unwrap();
        let count = counted.iter().filter(|(distance, _)| within.contains(distance)).count();
        assert_eq!(row["count"], json!(count), "{disk}: {within:?}");
    }
    let sectors: u64 = counted.iter().map(|(distance, _)| distance.unsigned_abs()).sum();
    assert_eq!(report["sectors"], json!(sectors), "{disk}");
}

/// Sectors from the end of each request to the start of the next, and the direction of that one, as btt writes it.
fn distances(requests: &[&Request]) -> Vec<(i64, String)> {
    let distance = |pair: &[&Request]| {
        let end = pair[0].sector + pair[0].bytes / 512;
        let direction = if pair[1].op.name() == "read" { "r" } else { "w" };
        (pair[1].sector.cast_signed() - end.cast_signed(), direction.to_owned())
    };
    requests.windows(2).map(distance).collect()
}

fn fio_job(recorded: &Recorded) {
    let folder = recorded.export("fio");
    run(&folder, &["sh", "prepare.sh"]);
    let (out, _) = run(
        &folder,
        &["fio", "--output-format=json", "--replay_no_stall=1", "thread.fio"],
    );
    let report: Value = serde_json::from_str(&out[out.find('{').unwrap()..]).unwrap();
    let jobs = report["jobs"].as_array().unwrap();
    let bytes = |what: &str| -> u64 { jobs.iter().map(|job| job[what]["io_bytes"].as_u64().unwrap()).sum() };
    // Requests of io_uring and AIO are recorded where vfs is measured.
    let of_async = |op: &str| -> u64 {
        let requests = recorded.records.asynchronous.iter();
        let requests = requests.filter(|request| request.op.name() == op);
        requests.map(|request| request.value.max(0).cast_unsigned()).sum()
    };
    assert_eq!(
        [bytes("read"), bytes("write")],
        [
            recorded.bytes(&READS) + of_async("read"),
            recorded.bytes(&WRITES) + of_async("write")
        ]
    );
}

fn perfetto(recorded: &Recorded) {
    let path = recorded.export("perfetto");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/exports/perfetto_slices.py");
    let (out, _) = run(
        &recorded.folder,
        &[&python(), script.to_str().unwrap(), path.to_str().unwrap()],
    );
    let trace: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (&trace["badly_nested"], &trace["open_slices"], &trace["lost"]),
        (&json!(0), &json!(0), &json!(0))
    );
    assert_eq!(trace["calls_ns"], json!(recorded.sum("total_ns")));
    let records = &recorded.records;
    // Those in calls that are excluded have no slice.
    let is_inside = |sleep: &&Sleep| {
        let calls = records.calls.iter().filter(|call| call.tid == sleep.tid);
        let calls = calls.map(|call| (call.begin_ns, call.end_ns.unwrap_or(u64::MAX)));
        let faults = records.faults.iter().filter(|fault| fault.tid == sleep.tid);
        let faults = faults.map(|fault| (fault.begin_ns, fault.end_ns));
        let mut all = calls.chain(faults);
        all.any(|(begin_ns, end_ns)| begin_ns <= sleep.out_ns && sleep.in_ns <= end_ns)
    };
    let sleeps = records.sleeps.iter().filter(is_inside);
    let sleeps_ns: u64 = sleeps.map(|sleep| sleep.in_ns - sleep.out_ns).sum();
    let rows_ns: u64 = records.calls.iter().map(|call| call.rows.iter().sum::<u64>()).sum();
    assert_eq!(
        (&trace["sleeps_ns"], &trace["rows_ns"]),
        (&json!(sleeps_ns), &json!(rows_ns))
    );
    assert_eq!(trace["device_ns"], json!(recorded.sum_of_requests("total_ns")));
    assert_eq!(trace["deepest_at_device"], trace["deepest_counted"]);
    assert_eq!(trace["flows_without_end"], json!(0));
    assert!(trace["flows"].as_u64() > Some(100), "{out}");
}

fn iotracer(recorded: &Recorded) {
    let text = fs::read_to_string(recorded.export("iotracer")).unwrap();
    let mut bytes = BTreeMap::<(&str, &str), u64>::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split(';').collect();
        let [_, direction, _, size, level, _, _] = fields[..] else {
            panic!("{line}")
        };
        *bytes.entry((level, direction)).or_default() += size.parse::<u64>().unwrap();
    }
    let of_requests = |op: &str| -> u64 {
        let requests = recorded.records.requests.iter();
        requests
            .filter(|request| request.op.name() == op)
            .map(|request| request.bytes)
            .sum()
    };
    assert_eq!(bytes[&("BLK", "R")], of_requests("read"));
    assert_eq!(bytes[&("BLK", "W")], of_requests("write"));
}

/// Counts, ids that are unique, and moments in their order.
fn otf2(recorded: &Recorded) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/otf2");
    run(
        &recorded.folder,
        &[&python(), script.to_str().unwrap(), "x.iosb", "otf2"],
    );
    let (out, _) = run(&recorded.folder, &["otf2-print", "otf2/traces.otf2"]);
    let mut moments = BTreeMap::<u64, [Vec<u64>; 3]>::new();
    let mut bytes = 0;
    for line in out.lines().filter(|line| line.starts_with("IO_OPERATION_")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |name: &str| -> u64 {
            let rest = &line[line.find(name).unwrap_or_else(|| panic!("{line}")) + name.len()..];
            rest.split(',').next().unwrap().trim().parse().unwrap()
        };
        let kind = ["IO_OPERATION_BEGIN", "IO_OPERATION_ISSUED", "IO_OPERATION_COMPLETE"];
        let kind = kind
            .iter()
            .position(|kind| *kind == words[0])
            .unwrap_or_else(|| panic!("{line}"));
        moments.entry(number("Matching Id:")).or_default()[kind].push(words[2].parse().unwrap());
        if kind == 2 && line.contains("\"/dev/") && !line.contains("\"/dev/null\"") {
            bytes += number("Bytes Result:");
        }
    }
    let [mut calls, mut requests] = [0, 0];
    for (id, [begin, issued, complete]) in &moments {
        assert!(begin.len() == 1 && complete.len() == 1 && issued.len() <= 1, "{id}");
        assert!(begin[0] <= complete[0]);
        match issued.first() {
            Some(issued) => {
                assert!(begin[0] <= *issued && *issued <= complete[0], "{id}");
                requests += 1;
            }
            None => calls += 1,
        }
    }
    let names = [&READS[..], &WRITES, &["fsync", "fdatasync"]].concat();
    let expected = names
        .iter()
        .filter_map(|name| recorded.calls.get(*name)?["count"].as_u64());
    assert_eq!(calls, expected.sum::<u64>());
    let moving = |op: &&Value| op["op"] == "read" || op["op"] == "write";
    let moving: Vec<&Value> = recorded.requests.iter().filter(moving).collect();
    assert_eq!(
        requests,
        moving.iter().map(|op| op["count"].as_u64().unwrap()).sum::<u64>()
    );
    assert_eq!(
        bytes,
        moving.iter().map(|op| op["bytes"].as_u64().unwrap()).sum::<u64>()
    );
}

fn analyses_of_lttng(recorded: &Recorded) {
    let analysis = |words: &[&str]| run(&recorded.folder, &[words, &["--no-progress", "ctf"]].concat()).0;
    // Microseconds with three digits, so nothing is rounded but means.
    let us = |text: &str| -> u64 {
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        whole.parse::<u64>().unwrap() * 1000 + format!("{part:0<3}").parse::<u64>().unwrap()
    };
    let mut of_ops = BTreeMap::<&str, [u64; 3]>::new();
    let statistics = analysis(&["lttng-syscallstats"]);
    for line in statistics.lines().filter_map(|line| line.strip_prefix(" - ")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let all = of_ops.entry(words[0]).or_insert([0, u64::MAX, 0]);
        all[0] += words[1].parse::<u64>().unwrap();
        all[1] = all[1].min(us(words[2]));
        all[2] = all[2].max(us(words[4]));
    }
    assert_eq!(of_ops.len(), recorded.calls.len());
    for (name, op) in &recorded.calls {
        let [count, min_ns, max_ns] = of_ops[name.as_str()];
        assert_eq!(
            (&op["count"], &op["min_ns"], &op["max_ns"]),
            (&json!(count), &json!(min_ns), &json!(max_ns)),
            "{name}"
        );
    }
    // The log has those calls that it knows.
    let mut lines = BTreeMap::<&str, u64>::new();
    let log = analysis(&["lttng-iolog"]);
    for line in log.lines().filter(|line| line.starts_with('[')) {
        *lines.entry(line.split_whitespace().nth(2).unwrap()).or_default() += 1;
    }
    assert!(lines.len() >= 12, "{lines:?}");
    for (name, count) in lines {
        assert_eq!(recorded.calls[name]["count"], json!(count), "{name}");
    }
    usage_top(recorded, &analysis(&["lttng-iousagetop", "--limit", "100000"]));
}

/// Rows of each table: a bar, a number with its unit, and what it is of.
fn usage_top(recorded: &Recorded, out: &str) {
    let table = |title: &str| -> Vec<Vec<&str>> {
        let lines = out.lines().skip_while(|line| !line.starts_with(title)).skip(2);
        let rows = lines.take_while(|line| !line.trim().is_empty());
        rows.map(|line| line.trim_start_matches(['█', ' ']).split_whitespace().collect())
            .collect()
    };
    let sum = |title: &str| -> u64 { table(title).iter().map(|row| row[0].parse::<u64>().unwrap()).sum() };
    assert_eq!(sum("Disk Request Count"), recorded.sum_of_requests("count"));
    assert_eq!(
        sum("Disk Requests Sector Count") * 512,
        recorded.sum_of_requests("bytes")
    );
    for (title, names) in [("Per-process I/O Read", READS), ("Per-process I/O Write", WRITES)] {
        // A row is of a thread, and names its process.
        let mut of_threads = BTreeMap::<(u32, u32), i64>::new();
        let calls = recorded
            .records
            .calls
            .iter()
            .filter(|call| names.contains(&call.op.name()));
        for call in calls.filter(|call| call.value > 0) {
            *of_threads.entry((call.pid, call.tid)).or_default() += call.value;
        }
        let expected = of_threads.iter().map(|((pid, _), bytes)| (*pid, binary(*bytes)));
        let mut expected: Vec<(u32, String)> = expected.collect();
        expected.sort();
        let number = |word: &&str| word.strip_prefix('(')?.strip_suffix(')')?.parse::<u32>().ok();
        let rows = table(title).into_iter().filter(|row| row[0] != "0");
        let rows = rows.map(|row| (row.iter().find_map(number).unwrap(), format!("{} {}", row[0], row[1])));
        let mut rows: Vec<(u32, String)> = rows.collect();
        rows.sort();
        assert_eq!(rows, expected, "{title}");
    }
}

/// As the analyses print bytes.
fn binary(bytes: i64) -> String {
    let mut number = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if number < 1024.0 {
            return if unit == "B" {
                format!("{bytes} {unit}")
            } else {
                format!("{number:.2} {unit}")
            };
        }
        number /= 1024.0;
    }
    panic!("{bytes}")
}
