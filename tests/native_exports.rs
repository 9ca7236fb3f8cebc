//! Exports of what SQLite, fio with six engines, git and direct I/O did on this kernel, in the tools that they are for: all
//! have the numbers of `report`. Run it as root; `tests/run` installs the tools. `IOSB_RECORDING` is a recording of such a
//! workload that was made elsewhere, as `tests/exports/guests` does in guests, and `IOSB_LOST` one that lost calls.

#[path = "exports/analyses.rs"]
mod analyses;
mod folder;
mod left_out;
#[path = "exports/outside.rs"]
mod outside;
#[path = "exports/tables.rs"]
mod tables;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use folder::Folder;
use iostackbreakdown::model::ids::Origin;
use iostackbreakdown::model::record::{Kind, Lost, Records, Request, Sleep};
use iostackbreakdown::recording::Recording;
use left_out::left_out;
use serde_json::{Value, json};

use self::outside::{python, run};

const TOOL: &str = env!("CARGO_BIN_EXE_IOStackBreakdown");

fn record(folder: &Path) {
    let workload = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/exports/workload");
    let recording = ["record", "-q", "-T", "syscall,blk", "-o", "x.iosb", "--"];
    let (_, said) = run(
        folder,
        &[&[TOOL], &recording[..], &[workload.to_str().unwrap()]].concat(),
    );
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
    folder: Folder,
    /// Calls by their names, and requests.
    calls: BTreeMap<String, Value>,
    requests: Vec<Value>,
    records: Records,
    /// Numbers of the disks, by their names.
    disks: BTreeMap<String, [u32; 2]>,
}

impl Recorded {
    fn new() -> Self {
        let folder = Folder::new("native-exports");
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
        let is_of_process =
            |request: &&Request| matches!(request.origin, Origin::Own | Origin::Readahead | Origin::Asynchronous);
        let of_processes = records.requests.iter().filter(is_of_process).count() as u64;
        let counted: u64 = requests.iter().map(|op| op["count"].as_u64().unwrap()).sum();
        assert!(
            layers.is_empty() || of_processes == counted,
            "{of_processes}: {requests:?}"
        );
        if of_processes < records.requests.len() as u64 {
            requests = sums(&records.requests);
        }
        let disks = recording
            .meta()
            .disks
            .iter()
            .map(|disk| (disk.name.clone(), disk.number));
        let named = |op: Value| (op["op"].as_str().unwrap().to_owned(), op);
        Self {
            calls: ops("syscall").into_iter().map(named).collect(),
            requests,
            records,
            disks: disks.collect(),
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

    fn requests_of(&self, disk: &str) -> impl Iterator<Item = &Request> {
        let numbers = self.disks[disk];
        self.records
            .requests
            .iter()
            .filter(move |request| request.disk == numbers)
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
        analyses::have_the_same_numbers(&recorded);
    } else {
        left_out(Some("the analyses of LTTng"), "they are not installed");
    }
}

/// Where a buffer is too small: `report --lost`, babeltrace2 and LTTng's analyses have the same intervals and numbers.
#[test]
fn what_was_lost_is_lost_in_the_tools_that_read_exports() {
    let folder = Folder::new("native-exports-lost");
    if let Some(other) = std::env::var_os("IOSB_LOST") {
        std::os::unix::fs::symlink(other, folder.join("x.iosb")).unwrap();
    } else {
        let recording: Vec<&str> = "record -q -T syscall,blk --buffer 64k -o x.iosb --"
            .split(' ')
            .collect();
        let workload = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/exports/overload");
        run(
            &folder,
            &[&[TOOL], &recording[..], &[workload.to_str().unwrap()]].concat(),
        );
    }
    run(&folder, &[TOOL, "export", "x.iosb", "--to", "ctf", "-o", "ctf"]);
    // "12:00:01.250-12:00:01.262  CPU 1  2,543 calls have no record; ...".
    let (report, _) = run(&folder, &[TOOL, "report", "x.iosb", "--lost"]);
    let line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (from, to) = words[0].split_once('-').unwrap();
        (to.to_owned(), words[3].replace(',', ""), from.to_owned())
    };
    // Definitions have no events, and are in no total.
    let is_of_events = |line: &&str| line.contains(" CPU ") && line.ends_with("in the totals");
    let lost = report.lines().filter(is_of_events).map(line);
    let mut lost: Vec<(String, String, String)> = lost.collect();
    lost.sort();
    assert!(!lost.is_empty(), "{report}");
    is_skipped(&folder);
    is_discarded(&run(&folder, &["babeltrace2", "ctf"]).1, &lost);
    if Path::new("/usr/bin/lttng-syscallstats").exists() {
        is_discarded(&run(&folder, &["lttng-syscallstats", "--no-progress", "ctf"]).1, &lost);
    } else {
        left_out(Some("the analyses of LTTng"), "they are not installed");
    }
}

/// Whether blkparse skips as many requests of each disk as were lost: it is not known of which disk they were. It sees a
/// gap between two events of a CPU.
fn is_skipped(folder: &Path) {
    run(
        folder,
        &[TOOL, "export", "x.iosb", "--to", "blktrace", "-o", "blktrace"],
    );
    let recording = Recording::open(&folder.join("x.iosb")).unwrap();
    let mut records = Records::default();
    recording.batches(None, None).for_each(|batch| records.append(batch));
    let disks = disks_of(&folder.join("blktrace"));
    assert!(!disks.is_empty());
    for disk in disks {
        let known = recording.meta().disks.iter().find(|known| known.name == disk);
        let number = known.unwrap().number;
        let is_between = |lost: &&Lost| {
            let its = || {
                records
                    .requests
                    .iter()
                    .filter(|request| (request.disk, request.cpu) == (number, lost.cpu))
            };
            // A request has an event for each of its times that is known.
            let first = |request: &Request| request.submitted_ns.or(request.started_ns).or(request.issued_ns);
            its().any(|request| first(request).unwrap_or(request.ended_ns) < lost.to_ns)
                && its().any(|request| request.ended_ns >= lost.to_ns)
        };
        let lost = records.lost.iter().filter(|lost| lost.kind == Kind::Request);
        let expected: u64 = lost.filter(is_between).map(|lost| lost.records).sum();
        // By CPU: it takes events in the order in which it reads them.
        let script = format!("for cpu in blktrace/{disk}.blktrace.*; do blkparse -i - <$cpu; done");
        let (out, _) = run(folder, &["sh", "-c", &script]);
        // "Skips: 5 forward (900 -  16.9%)".
        let skips = out
            .lines()
            .filter_map(|line| line.strip_prefix("Skips: ")?.split_once('('));
        let skipped = skips.map(|(_, rest)| rest.split_whitespace().next().unwrap().parse::<u64>().unwrap());
        assert_eq!(skipped.sum::<u64>(), expected, "{disk}: {out}");
    }
}

/// The disks that an export in blktrace's format is of.
fn disks_of(folder: &Path) -> BTreeSet<String> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let disk = |name: std::ffi::OsString| Some(name.to_str()?.split_once(".blktrace.")?.0.to_owned());
    names.filter_map(disk).collect()
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
    let lines = recorded.export("jsonl");
    // "/mnt/ext4/recorded.x/raw", which dd writes and reads.
    let files = recorded.records.files.iter().filter_map(|file| file.path.as_ref());
    let raw = files.map(|path| path.text.as_str()).find(|path| path.ends_with("/raw"));
    tables::agree(&lines, raw.unwrap(), &recorded.records);
    let text = fs::read_to_string(lines).unwrap();
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
    let disks = disks_of(&folder);
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
        fio_of_block_trace(recorded, &folder, disk);
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

/// fio replays the requests of a disk from blktrace's format, here in a sparse file, which takes no discards.
fn fio_of_block_trace(recorded: &Recorded, folder: &Path, disk: &str) {
    let requests: Vec<&Request> = recorded.requests_of(disk).collect();
    let end = requests
        .iter()
        .map(|request| request.sector * 512 + request.bytes)
        .max();
    let image = fs::File::create(folder.join("image")).unwrap();
    image.set_len(end.unwrap()).unwrap();
    let log = format!("--read_iolog={disk}.bin");
    let (out, _) = run(
        folder,
        &[
            "fio",
            "--name=replay",
            &log,
            "--replay_redirect=image",
            "--replay_no_stall=1",
            "--replay_skip=trim",
            "--ioengine=psync",
            "--output-format=json",
        ],
    );
    // What is written after a flush that belongs to it is for fio a flush only.
    let bytes = ["read", "write"].map(|op| {
        let moving = requests
            .iter()
            .filter(|request| request.op.name() == op && !request.is_preflush);
        moving.map(|request| request.bytes).sum::<u64>()
    });
    fs::remove_file(folder.join("image")).unwrap();
    assert_eq!(moved_by(&out), bytes, "{disk}");
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
    let numbers = recorded.disks[disk];
    let name = format!("{disk}.seeks_{},{}_d2d_c.dat", numbers[0], numbers[1]);
    let text = fs::read_to_string(folder.join(name)).unwrap();
    // The first is the distance from the start of the disk.
    let lines = text.lines().skip(1).map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (words[1].parse::<i64>().unwrap(), words[2].to_owned())
    });
    let lines: Vec<(i64, String)> = lines.collect();
    let mut requests: Vec<&Request> = recorded.requests_of(disk).filter(|request| request.bytes > 0).collect();
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
    let strace: Vec<&str> = "strace -f -y -qq -s 0 -e trace=pread64,pwrite64 -o calls"
        .split(' ')
        .collect();
    let fio = ["fio", "--output-format=json", "--replay_no_stall=1", "thread.fio"];
    let (out, _) = run(&folder, &[&strace[..], &fio].concat());
    // Requests of io_uring and AIO are recorded where vfs is measured.
    let of_async = |op: &str| -> u64 {
        let requests = recorded.records.asynchronous.iter();
        let requests = requests.filter(|request| request.op.name() == op);
        requests.map(|request| request.value.max(0).cast_unsigned()).sum()
    };
    assert_eq!(
        moved_by(&out),
        [
            recorded.bytes(&READS) + of_async("read"),
            recorded.bytes(&WRITES) + of_async("write")
        ]
    );
    let calls = fs::read_to_string(folder.join("calls")).unwrap();
    let job = fs::read_to_string(folder.join("thread.fio")).unwrap();
    assert_eq!(
        moved_in_files(&calls, &folder, &job),
        recorded_in_files(&recorded.records)
    );
}

/// Bytes that fio read and wrote, by its own report.
fn moved_by(fio: &str) -> [u64; 2] {
    let report: Value = serde_json::from_str(&fio[fio.find('{').unwrap()..]).unwrap();
    let jobs = report["jobs"].as_array().unwrap();
    ["read", "write"].map(|what| jobs.iter().map(|job| job[what]["io_bytes"].as_u64().unwrap()).sum())
}

/// Bytes that were read and written in each recorded file, by what strace saw of fio.
fn moved_in_files(calls: &str, folder: &Path, job: &str) -> BTreeMap<String, [u64; 2]> {
    let below = format!("{}/files/", folder.display());
    let aliases = job
        .lines()
        .filter_map(|line| line.strip_prefix("; files/")?.split_once(" is "));
    let aliases: BTreeMap<&str, &str> = aliases.collect();
    let mut moved = BTreeMap::<String, [u64; 2]>::new();
    // Where a thread's call began, if another thread's line is between its two.
    let mut begun = BTreeMap::<&str, (usize, String)>::new();
    for line in calls.lines() {
        let (tid, call) = line.split_once(' ').unwrap();
        let call = call.trim_start();
        if let Some((name, rest)) = call.split_once('(')
            && let Some((path, _)) = rest.split_once(">, ")
        {
            let path = path.split_once('<').unwrap().1.trim_end_matches(" (deleted)");
            begun.insert(tid, (usize::from(name == "pwrite64"), path.to_owned()));
        }
        let Some(bytes) = call
            .rsplit_once(" = ")
            .and_then(|(_, result)| result.parse::<u64>().ok())
        else {
            continue;
        };
        let (direction, path) = begun.remove(tid).unwrap_or_else(|| panic!("{line}"));
        if let Some(name) = path.strip_prefix(&below) {
            let path = aliases
                .get(name)
                .map_or_else(|| format!("/{name}"), |path| (*path).to_owned());
            moved.entry(path).or_default()[direction] += bytes;
        }
    }
    moved
}

/// The same by the records, of regular files: fio replays no pipes. (`report --access` has a new file with the inode number
/// of a deleted one as that file.)
fn recorded_in_files(records: &Records) -> BTreeMap<String, [u64; 2]> {
    let regular = records
        .files
        .iter()
        .filter(|file| file.mode & libc::S_IFMT == libc::S_IFREG);
    let paths = regular.filter_map(|file| Some((file.number, file.path.as_ref()?.text.as_str())));
    let paths: BTreeMap<u32, &str> = paths.collect();
    let calls = records
        .calls
        .iter()
        .map(|call| (call.op.name(), call.files[0], call.value));
    let requests = records
        .asynchronous
        .iter()
        .map(|request| (request.op.name(), request.file, request.value));
    let mut moved = BTreeMap::<String, [u64; 2]>::new();
    for (op, file, bytes) in calls.chain(requests).filter(|(_, _, bytes)| *bytes > 0) {
        let direction = [&READS[..], &WRITES].iter().position(|names| names.contains(&op));
        if let (Some(direction), Some(path)) = (direction, paths.get(&file)) {
            moved.entry((*path).to_owned()).or_default()[direction] += bytes.cast_unsigned();
        }
    }
    moved
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
