//! Recordings on this kernel: their reports are those of the run, and what ends a recording early leaves it whole. Run it as root.

mod folder;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use folder::Folder;
use iostackbreakdown::model::ids::Op;
use iostackbreakdown::model::record::{Call, Kind, Records, Request};
use iostackbreakdown::model::snapshot::Snapshot;
use iostackbreakdown::recording::Recording;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::time::{ClockId, clock_gettime};

const TOOL: &str = env!("CARGO_BIN_EXE_IOStackBreakdown");
const LIMIT: Duration = Duration::from_secs(60);

/// Calls of several families for longer than two seconds.
const WORKLOAD: &str =
    "for i in 1 2 3 4 5 6 7 8; do dd if=/dev/zero of=f$i bs=4096 count=64 conv=fsync; cat f$i none; sleep 0.3; done";

fn words(arguments: &str) -> Vec<&str> {
    arguments.split(' ').collect()
}

fn tool(folder: &Path, arguments: &[&str]) -> Output {
    let mut tool = Command::new(TOOL);
    tool.env("TZ", "Asia/Kolkata")
        .current_dir(folder)
        .args(arguments)
        .output()
        .unwrap()
}

fn succeed(folder: &Path, arguments: &[&str]) -> Vec<u8> {
    let done = tool(folder, arguments);
    assert!(
        done.status.success(),
        "{arguments:?}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
    done.stdout
}

fn refused(folder: &Path, arguments: &[&str]) -> String {
    let done = tool(folder, arguments);
    assert_eq!(done.status.code(), Some(1), "{arguments:?}");
    String::from_utf8(done.stderr).unwrap()
}

/// What is measured, and the same selected in the report.
const RUNS: &[(&[&str], &[&str])] = &[
    (&[], &[]),
    (&["-T", "syscall,blk", "-Q"], &["-Q"]),
    (&["--by", "process"], &["--by", "process"]),
    (&["-T", "syscall", "--by", "file", "--top", "2"], &[]),
    (&["--budget", "90", "--all-files"], &["--all-files"]),
];

#[test]
fn requests_that_write_the_recording_have_no_records() {
    let folder = Folder::new("recording-own");
    let recorder = ["record", "-T", "syscall,blk", "--duration", "3s", "-o", "x.iosb"];
    let mut tool = Command::new(TOOL);
    let tool = tool.current_dir(&folder).args(recorder).stderr(Stdio::piped());
    let mut tool = tool.spawn().unwrap();
    let directory = fs::File::open(&folder).unwrap();
    let limit = Instant::now() + LIMIT;
    let mut number = 0;
    // The kernel writes what the tool has written.
    while tool.try_wait().unwrap().is_none() {
        assert!(Instant::now() < limit);
        number += 1;
        fs::write(folder.join(number.to_string()), [7; 8192]).unwrap();
        nix::unistd::syncfs(&directory).unwrap();
    }
    let said = String::from_utf8(tool.wait_with_output().unwrap().stderr).unwrap();
    assert!(said.contains("; own writes: "), "{said}");
    let recording = Recording::open(&folder.join("x.iosb")).unwrap();
    let end: serde_json::Value = serde_json::from_slice(&fs::read(folder.join("x.iosb/end.json")).unwrap()).unwrap();
    assert!(end["own_writes"]["requests"].as_u64() > Some(0), "{end}");
    let clocks = recording.meta().clocks;
    // A file that was deleted before may have had the same inode number.
    let inode = |path: PathBuf| {
        let file = fs::metadata(path).unwrap();
        let made = file.created().unwrap().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        (file.ino(), clocks.monotonic_ns(made.as_nanos() as i64))
    };
    let tables = fs::read_dir(folder.join("x.iosb/000001")).unwrap();
    let own: BTreeMap<u64, u64> = tables.map(|entry| inode(entry.unwrap().path())).collect();
    let others = (1..=number).map(|number: u32| inode(folder.join(number.to_string())));
    let others: BTreeMap<u64, u64> = others.collect();
    let requests = recording.batches(None, None).flat_map(|records| records.requests);
    let requests: Vec<Request> = requests.collect();
    let are_written = |files: &BTreeMap<u64, u64>| {
        let is_of = |request: &Request| {
            let made_ns = request.inode.and_then(|inode| files.get(&inode.number));
            made_ns.is_some_and(|made_ns| request.ended_ns > *made_ns)
        };
        requests.iter().any(is_of)
    };
    assert!(!are_written(&own), "{said}");
    assert!(are_written(&others), "{said}");
    let lost = String::from_utf8(succeed(&folder, &["report", "x.iosb", "--lost"])).unwrap();
    assert!(lost.contains("wrote the recording itself"), "{lost}");
    groups_add_up(&folder);
}

/// A group has what has no record: the totals are those of the counters.
fn groups_add_up(folder: &Path) {
    let requests = |more: &[&str]| -> u64 {
        let text = succeed(folder, &[&["report", "x.iosb", "--json"], more].concat());
        let report: serde_json::Value = serde_json::from_slice(&text).unwrap();
        let layers = report["layers"].as_array().unwrap().iter();
        let blk = layers.filter(|layer| layer["layer"] == "blk");
        let ops = blk.flat_map(|layer| layer["ops"].as_array().unwrap());
        ops.filter_map(|op| op["count"].as_u64()).sum()
    };
    let all = requests(&[]);
    assert!(all > 0);
    assert_eq!(requests(&["--by", "disk"]), all);
}

/// The length of a report of `--json`.
fn duration_ns(report: &str) -> u64 {
    let report: serde_json::Value = serde_json::from_str(report).unwrap();
    report["duration_ns"].as_u64().unwrap()
}

#[test]
fn a_report_of_a_recording_is_that_of_the_run() {
    let folder = Folder::new("recording-equal");
    for (number, (measured, selected)) in RUNS.iter().enumerate() {
        let (name, json) = (format!("{number}.iosb"), format!("{number}.json"));
        let recording = ["record", "-q", "-o", &name, "--export-json", &json];
        let command = ["--", "sh", "-c", WORKLOAD];
        let done = tool(&folder, &[&recording[..], measured, &command].concat());
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(
            said.contains(&format!("report it: IOStackBreakdown report {name}")),
            "{said}"
        );
        let live = fs::read_to_string(folder.join(&json)).unwrap();
        assert_eq!(live.lines().count(), 1, "{live}");
        let report = ["report", &name, "--json"];
        let later = succeed(&folder, &[&report[..], selected].concat());
        assert_eq!(String::from_utf8(later).unwrap(), live, "{measured:?}");
        // Each but the last one is a second, or more on a busy machine.
        let intervals = String::from_utf8(succeed(&folder, &["report", &name, "--json", "1"])).unwrap();
        let durations: Vec<u64> = intervals.lines().map(duration_ns).collect();
        assert_eq!(
            durations.iter().sum::<u64>(),
            duration_ns(&live),
            "{measured:?}: {durations:?}"
        );
        let (_, seconds) = durations.split_last().unwrap();
        let are_seconds = seconds.iter().all(|ns| *ns >= 900_000_000);
        assert!(!seconds.is_empty() && are_seconds, "{measured:?}: {durations:?}");
        let text = String::from_utf8(succeed(
            &folder,
            &["report", &name, "-S", "--from", "+1s", "--to", "+2s"],
        ))
        .unwrap();
        assert!(text.contains("recorded on"), "{text}");
    }
    let text = String::from_utf8(succeed(&folder, &["compare", "0.iosb", "0.iosb"])).unwrap();
    assert!(text.contains("write"), "{text}");
    assert!(
        String::from_utf8(succeed(&folder, &["report", "0.iosb", "--folded"]))
            .unwrap()
            .contains("write;")
    );
    let lost = String::from_utf8(succeed(&folder, &["report", "0.iosb", "--lost"])).unwrap();
    // Whenever another process has all files written, the kernel writes those of the recording as well, which is no loss.
    let are_own = !lost.is_empty() && lost.lines().all(|line| line.contains(" wrote the recording itself: "));
    assert!(lost.starts_with("nothing is missing") || are_own, "{lost}");
    for (arguments, message) in [
        (&["report", "0.iosb", "-Q"][..], "recorded without -Q"),
        (&["report", "3.iosb", "-T", "blk"], "it has syscall"),
        (&["report", "0.iosb", "--from", "+1h"], "nothing was recorded then"),
        (&["report", "0.json"], "is no recording"),
        (&["report", "none.iosb"], "No such file"),
        (&["record", "-o", "0.iosb", "--duration", "1s"], "never written over"),
    ] {
        let said = refused(&folder, arguments);
        assert!(
            said.contains(message) && said.lines().count() == 1,
            "{arguments:?}: {said}"
        );
    }
}

/// A whole stack without JSON counts its calls by family, and only failed ones by operation.
#[test]
fn operations_that_were_not_counted_have_no_numbers() {
    let folder = Folder::new("recording-operations");
    let command = ["--", "sh", "-c", "cat $0 /none; cat $0", "/bin/sh"];
    tool(&folder, &[&["record", "-q", "-o", "x.iosb"][..], &command].concat());
    let operations = |more: &[&str]| -> BTreeMap<String, Option<u64>> {
        let text = succeed(&folder, &[&["report", "x.iosb", "--json"][..], more].concat());
        let report: serde_json::Value = serde_json::from_slice(&text).unwrap();
        let layers = report["layers"].as_array().unwrap().iter();
        let calls = layers.filter(|layer| layer["layer"] == "syscall");
        let ops = calls.flat_map(|layer| layer["ops"].as_array().unwrap());
        ops.map(|op| (op["op"].as_str().unwrap().to_owned(), op["count"].as_u64()))
            .collect()
    };
    let (counted, recorded) = (operations(&[]), operations(&["-T", "syscall"]));
    assert!(
        recorded["read"] > Some(0) && recorded["openat"] > Some(0),
        "{recorded:?}"
    );
    assert_eq!(counted["read"], None);
    let differ = |(op, count): (&String, &Option<u64>)| count.is_some() && *count != recorded[op];
    assert!(!counted.iter().any(differ), "{counted:?}, recorded {recorded:?}");
}

/// Programs as they were compiled verify for seconds, and cost each call a third more.
#[test]
fn programs_that_record_are_folded() {
    let folder = Folder::new("recording-folded");
    for (number, (arguments, _)) in RUNS.iter().enumerate() {
        let name = format!("{number}.iosb");
        let recorder = ["record", "--verbose", "-o", &name];
        let done = tool(&folder, &[&recorder, *arguments, &["--", "true"]].concat());
        let said = String::from_utf8(done.stderr).unwrap();
        assert!(
            done.status.success() && said.contains(" programs loaded in "),
            "{arguments:?}: {said}"
        );
        assert!(!said.contains("loaded as they were compiled"), "{arguments:?}: {said}");
    }
}

#[test]
fn names_are_not_in_a_recording_that_hides_them() {
    let folder = Folder::new("recording-names");
    let command = ["--", "sh", "-c", "cat secret-name; sleep 1.2"];
    fs::write(folder.join("secret-name"), "x").unwrap();
    for names in ["full", "hash", "none"] {
        let name = format!("{names}.iosb");
        let recording = [
            "record", "-q", "-o", &name, "--names", names, "-T", "syscall", "--by", "file",
        ];
        tool(&folder, &[&recording[..], &command].concat());
        assert_eq!(
            fs::metadata(folder.join(&name)).unwrap().permissions().mode() & 0o777,
            0o700
        );
        // Files are compressed: look at what is read from them.
        let report = String::from_utf8(succeed(&folder, &["report", &name, "--json"])).unwrap();
        let meta = fs::read_to_string(folder.join(&name).join("meta.json")).unwrap();
        assert_eq!(report.contains("secret-name"), names == "full", "{report}");
        assert_eq!(meta.contains("secret-name"), names == "full", "{meta}");
    }
    for (name, words, names) in [
        ("none.iosb", ["--comm", "cat"], "none"),
        ("none.iosb", ["--file", "secret-name"], "none"),
        ("hash.iosb", ["--dir", "secret-folder"], "hash"),
    ] {
        let said = refused(&folder, &[&["report", name][..], &words].concat());
        assert!(
            said.ends_with(&format!("is in the recording, which was made with --names {names}\n")),
            "{said}"
        );
    }
}

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap();
    now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64
}

/// A recording, once it has at least this much.
struct Running(Child);

impl Running {
    fn start(folder: &Path, name: &str, more: &[&str]) -> Self {
        let recording = ["record", "-q", "-T", "syscall,blk", "-o", name];
        let mut tool = Command::new(TOOL);
        tool.args(recording)
            .args(more)
            .current_dir(folder)
            .stderr(Stdio::piped());
        Self(tool.spawn().unwrap())
    }

    fn wait_until(&mut self, is_true: impl Fn() -> bool) {
        let begin = Instant::now();
        while !is_true() {
            assert!(begin.elapsed() < LIMIT && self.0.try_wait().unwrap().is_none());
            std::thread::sleep(Duration::from_millis(7));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A recording is complete up to this long before the tool is killed.
const LOST_BY_KILL: u64 = 1_100_000_000;
/// The machine may be busy with other tests: so often is the longest time allowed to be longer.
const ATTEMPTS: u32 = 5;
/// The number of kills, `IOSB_KILLS` or this one.
const KILLS: u64 = 4;

/// Reads a byte of a file each millisecond, at offsets that count up.
struct Reader {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<(u32, Vec<[u64; 2]>)>,
}

impl Reader {
    fn start(file: fs::File) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            let mut reads = Vec::new();
            while !ends.load(Ordering::Relaxed) {
                let begin_ns = now_ns();
                assert_eq!(file.read_at(&mut [0], reads.len() as u64).unwrap(), 1);
                reads.push([begin_ns, now_ns()]);
                std::thread::sleep(Duration::from_millis(1));
            }
            (nix::unistd::gettid().as_raw().cast_unsigned(), reads)
        });
        Self { is_over, thread }
    }

    /// Its thread, and the begin and end of each read.
    fn end(self) -> (u32, Vec<[u64; 2]>) {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// When the first of these reads since the start of a recording ended that is not in it; those whose loss is there do not
/// count.
fn first_missing(recording: &Recording, (tid, reads): &(u32, Vec<[u64; 2]>)) -> Option<u64> {
    let mut all = Records::default();
    recording.batches(None, None).for_each(|records| all.append(records));
    let is_its = |call: &&Call| call.tid == *tid && call.op == Op::Pread64 && call.end_ns.is_some();
    let offsets: BTreeSet<u64> = all.calls.iter().filter(is_its).filter_map(|call| call.offset).collect();
    let is_lost = |[begin_ns, end_ns]: [u64; 2]| {
        let mut lost = all.lost.iter().filter(|lost| lost.kind == Kind::Call);
        lost.any(|lost| lost.from_ns <= end_ns && begin_ns <= lost.to_ns)
    };
    let (start, _) = recording.span();
    let since = (0..).zip(reads).filter(|(_, [begin_ns, _])| *begin_ns > start);
    let mut missing = since.filter(|(offset, read)| !offsets.contains(offset) && !is_lost(**read));
    missing.next().map(|(_, [_, end_ns])| *end_ns)
}

#[test]
fn a_recording_outlives_the_tool() {
    let folder = Folder::new("recording-killed");
    let data = folder.join("data");
    fs::File::create(&data).unwrap().set_len(1 << 30).unwrap();
    let kills = std::env::var("IOSB_KILLS")
        .ok()
        .map_or(KILLS, |kills| kills.parse().unwrap());
    let mut delayed = 0;
    for kill in 0..kills {
        let name = format!("{kill}.iosb");
        let path = folder.join(&name);
        let reader = Reader::start(fs::File::open(&data).unwrap());
        let mut running = Running::start(&folder, &name, &[]);
        let has_begun = |recording: Recording| recording.seconds().next().is_some();
        running.wait_until(|| Recording::open(&path).is_ok_and(has_begun));
        // At different moments of a second.
        let until = Instant::now() + Duration::from_millis(kill * 379 % 1700);
        running.wait_until(|| Instant::now() >= until);
        let killed_ns = now_ns();
        drop(running);
        let reads = reader.end();
        let recording = Recording::open(&path).unwrap();
        let (start, end) = recording.span();
        assert!(recording.is_cut() && end >= start);
        assert!(recording.seconds().count() >= 1);
        assert_eq!(recording.damage(), []);
        let lost = first_missing(&recording, &reads).map_or(0, |ended_ns| killed_ns.saturating_sub(ended_ns));
        eprintln!(
            "killed after {} ms: the last {} ms are lost",
            (killed_ns - start) / 1_000_000,
            lost / 1_000_000
        );
        delayed += u32::from(lost > LOST_BY_KILL);
        let said = tool(&folder, &["report", &name, "-S"]).stderr;
        assert!(String::from_utf8_lossy(&said).contains("was cut"));
        fs::remove_dir_all(&path).unwrap();
    }
    assert!(
        u64::from(delayed) * u64::from(ATTEMPTS) <= kills,
        "{delayed} of {kills} lost more than 1.1 s"
    );
}

/// The kernel gives an open file the memory of the last one. If that was of the same file, a thread that has used it, and
/// opens none itself, cannot distinguish the two.
#[test]
fn a_thread_reads_from_what_another_has_opened_last() {
    const ROUNDS: usize = 20;
    let folder = Folder::new("recording-reopened");
    let (data, path) = (folder.join("data"), folder.join("x.iosb"));
    fs::write(&data, [7; 8]).unwrap();
    let own = std::process::id().to_string();
    let mut running = Running::start(&folder, "x.iosb", &["-p", &own, "--duration", "4s"]);
    let has_begun = |recording: Recording| recording.seconds().next().is_some();
    running.wait_until(|| Recording::open(&path).is_ok_and(has_begun));
    let (give, take) = std::sync::mpsc::channel::<fs::File>();
    let (give_back, take_back) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        for file in take {
            assert_eq!(file.read_at(&mut [0; 8], 0).unwrap(), 8);
            give_back.send(file).unwrap();
        }
        nix::unistd::gettid().as_raw().cast_unsigned()
    });
    let begin_ns = now_ns();
    for _ in 0..ROUNDS {
        give.send(fs::File::open(&data).unwrap()).unwrap();
        drop(take_back.recv().unwrap());
    }
    let end_ns = now_ns();
    drop(give);
    let reader = thread.join().unwrap();
    let opener = nix::unistd::gettid().as_raw().cast_unsigned();
    assert!(running.0.wait().unwrap().success());
    let recording = Recording::open(&path).unwrap();
    let calls = recording.batches(None, None).flat_map(|records| records.calls);
    let mut calls: Vec<Call> = calls
        .filter(|call| call.begin_ns >= begin_ns && call.begin_ns <= end_ns)
        .collect();
    calls.sort_unstable_by_key(|call| call.begin_ns);
    let of = |tid, op| calls.iter().filter(move |call| call.tid == tid && call.op == op);
    let files = |tid, op| of(tid, op).map(|call| call.files[0]).collect::<Vec<u32>>();
    let (opened, read) = (files(opener, Op::Openat), files(reader, Op::Pread64));
    assert_eq!(opened.iter().collect::<BTreeSet<_>>().len(), ROUNDS, "{opened:?}");
    assert_eq!(read, opened);
}

/// Two threads use each of these files for the first time at the same moment. They were opened before the recording began, so
/// the programs give them their numbers then.
#[test]
fn an_open_file_that_two_threads_meet_at_once_has_one_number() {
    const FILES: usize = 200;
    let folder = Folder::new("recording-met-at-once");
    let (data, path) = (folder.join("data"), folder.join("x.iosb"));
    fs::write(&data, [7; 8]).unwrap();
    let files: Vec<fs::File> = (0..FILES).map(|_| fs::File::open(&data).unwrap()).collect();
    let own = std::process::id().to_string();
    let mut running = Running::start(&folder, "x.iosb", &["-p", &own, "--duration", "4s"]);
    let has_begun = |recording: Recording| recording.seconds().next().is_some();
    running.wait_until(|| Recording::open(&path).is_ok_and(has_begun));
    // They wait for each other without a system call.
    let at = [AtomicUsize::new(0), AtomicUsize::new(0)];
    let read_all = |own: usize| {
        for (nth, file) in files.iter().enumerate() {
            at[own].store(nth + 1, Ordering::Release);
            while at[1 - own].load(Ordering::Acquire) <= nth {
                std::hint::spin_loop();
            }
            assert_eq!(file.read_at(&mut [0; 8], 0).unwrap(), 8);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| read_all(1));
        read_all(0);
    });
    assert!(running.0.wait().unwrap().success());
    let recording = Recording::open(&path).unwrap();
    let descriptors: BTreeSet<i32> = files.iter().map(AsRawFd::as_raw_fd).collect();
    let mut numbers: BTreeMap<i32, BTreeSet<u32>> = BTreeMap::new();
    for call in recording.batches(None, None).flat_map(|records| records.calls) {
        let its = call.fd.filter(|fd| call.op == Op::Pread64 && descriptors.contains(fd));
        if let Some(fd) = its {
            numbers.entry(fd).or_default().insert(call.files[0]);
        }
    }
    assert_eq!(numbers.len(), FILES);
    assert!(numbers.values().all(|numbers| numbers.len() == 1), "{numbers:?}");
}

/// Calls that wait when counting stops are finished while the last counters are read. They are counted as often as they have
/// records.
#[test]
fn calls_that_end_with_the_run_are_counted_and_recorded() {
    const THREADS: usize = 40;
    let folder = Folder::new("recording-last-calls");
    let is_over = Arc::new(AtomicBool::new(false));
    let sync = |number: usize| {
        let (file, ends) = (
            fs::File::create(folder.join(number.to_string())).unwrap(),
            is_over.clone(),
        );
        std::thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                file.write_at(&[1], 0).unwrap();
                file.sync_data().unwrap();
            }
        })
    };
    let threads: Vec<JoinHandle<()>> = (0..THREADS).map(sync).collect();
    let own = std::process::id().to_string();
    let names = ["a.iosb", "b.iosb", "c.iosb"];
    let done = names.map(|name| {
        let record = words("record -q -T syscall --duration 300ms -p");
        tool(&folder, &[&record[..], &[&own, "-o", name]].concat())
    });
    is_over.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    for (name, done) in names.iter().zip(done) {
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let recording = Recording::open(&folder.join(name)).unwrap();
        let (mut ended, mut lost) = (0, 0);
        for records in recording.batches(None, None) {
            ended += records.calls.iter().filter(|call| call.end_ns.is_some()).count() as u128;
            let calls = records.lost.iter().filter(|lost| lost.kind == Kind::Call);
            lost += calls.map(|lost| u128::from(lost.records)).sum::<u128>();
        }
        let counted = |second: Snapshot| second.ops.iter().flat_map(|op| &op.steps).sum::<u128>();
        let seconds: Vec<u128> = recording.seconds().map(counted).collect();
        let counted = seconds[seconds.len() - 1] - seconds[0];
        assert!(counted > THREADS as u128);
        assert_eq!(ended + lost, counted, "{lost} lost");
    }
}

/// More calls than any reader takes out of the rings in time.
#[test]
fn a_recording_ends_in_time_under_overload() {
    let folder = Folder::new("recording-overload");
    fs::File::create(folder.join("zeros"))
        .unwrap()
        .set_len(1 << 40)
        .unwrap();
    let read = || {
        let mut dd = Command::new("dd");
        dd.args(["if=zeros", "of=/dev/null", "bs=1", "status=none"]);
        dd.current_dir(&folder).spawn().unwrap()
    };
    let mut readers: Vec<Child> = (0..4).map(|_| read()).collect();
    let started = Instant::now();
    let done = tool(
        &folder,
        &words("record -q -T syscall -o a.iosb --comm dd --buffer 1M --duration 1s"),
    );
    let took = started.elapsed();
    for reader in &mut readers {
        reader.kill().unwrap();
        reader.wait().unwrap();
    }
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert!(took < LIMIT, "{took:?}");
    let recording = Recording::open(&folder.join("a.iosb")).unwrap();
    let (start, end) = recording.span();
    assert!(end - start < 20_000_000_000, "{} ns", end - start);
}

/// A small file system in memory.
struct Small(PathBuf);

impl Small {
    fn new(path: PathBuf, bytes: u64) -> Self {
        fs::create_dir_all(&path).unwrap();
        let size = format!("size={bytes}");
        mount(Some("tmpfs"), &path, Some("tmpfs"), MsFlags::empty(), Some(&*size)).unwrap();
        Self(path)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = umount2(&self.0, MntFlags::MNT_DETACH);
    }
}

#[test]
fn a_full_disk_ends_a_recording_that_is_good() {
    let folder = Folder::new("recording-full");
    tool(&folder, &words("record -q -T syscall,blk -o first.iosb --duration 1s"));
    let meta = fs::metadata(folder.join("first.iosb/meta.json")).unwrap().len();
    // Room for the description of the run, and for what runs meanwhile: a second of it or more, by the machine's speed.
    let small = Small::new(folder.join("small"), (meta.div_ceil(4096) + 512) * 4096);
    let mut calls = Command::new("sh")
        .args(["-c", "while :; do cat /etc/passwd >/dev/null; done"])
        .spawn()
        .unwrap();
    let recording = words("record -q -T syscall,blk -o x.iosb --comm cat --keep-free 0 --duration 50s");
    let said = refused(&small.0, &recording);
    calls.kill().unwrap();
    calls.wait().unwrap();
    assert!(said.contains("ended early") && said.contains("No space left"), "{said}");
    let recording = Recording::open(&small.0.join("x.iosb")).unwrap();
    assert!(recording.seconds().count() >= 1);
    assert_eq!(recording.damage(), []);
    // If it fitted.
    if let Some(end) = recording.end() {
        let calls: usize = recording.batches(None, None).map(|records| records.calls.len()).sum();
        assert_eq!(end.rows["calls"], calls as u64);
    }
    let report = succeed(&small.0, &["report", "x.iosb", "-S"]);
    assert!(String::from_utf8_lossy(&report).contains("layer = syscall"));
    // A command that fills the disk: only its failure hides that of the recording.
    for (name, own, status) in [("y.iosb", 0, 125), ("z.iosb", 7, 7)] {
        fs::remove_dir_all(small.0.join("x.iosb")).ok();
        let command = format!("dd if=/dev/zero of={name}.fill 2>/dev/null; sleep 3; rm {name}.fill; exit {own}");
        let recording = ["record", "-q", "-T", "syscall,blk", "-o", name, "--keep-free", "0"];
        let done = tool(&small.0, &[&recording[..], &["--", "sh", "-c", &command]].concat());
        let said = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(status), "{said}");
        let lines = [
            "error: the recording ended early",
            "No space left",
            " in ",
            "report it: ",
        ];
        assert!(lines.iter().all(|line| said.contains(line)), "{said}");
    }
}

/// What is left would be in the way of the next attempt, and a part of an export would look like all of it.
#[test]
fn what_a_full_disk_has_no_room_for_is_not_left_behind() {
    let folder = Folder::new("recording-no-room");
    tool(
        &folder,
        &words("record -q -T syscall -o first.iosb -- dd if=/dev/zero of=data bs=1 count=4000"),
    );
    let meta = fs::metadata(folder.join("first.iosb/meta.json")).unwrap().len();
    // Room for less than the description of the run, and for nothing else.
    for pages in [1, meta.div_ceil(4096)] {
        let small = Small::new(folder.join(format!("small-{pages}")), pages * 4096);
        let said = refused(
            &small.0,
            &words("record -q -T syscall -o x.iosb --keep-free 0 --duration 1s"),
        );
        assert!(said.contains("No space left"), "{said}");
        for format in ["jsonl", "ctf", "fio"] {
            let said = refused(&small.0, &["export", "../first.iosb", "--to", format, "-o", format]);
            assert!(said.contains("No space left"), "{said}");
        }
        assert_eq!(fs::read_dir(&small.0).unwrap().count(), 0, "{pages} pages");
    }
}

#[test]
fn a_recording_ends_at_its_size_and_leaves_space() {
    let folder = Folder::new("recording-limits");
    let done = tool(
        &folder,
        &["record", "-q", "-o", "a.iosb", "--max-size", "9k", "--duration", "50s"],
    );
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(done.status.success() && said.contains("(--max-size 9.2 kB)"), "{said}");
    let done = tool(&folder, &words("record -q -o b.iosb --keep-free 1000T --duration 50s"));
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(done.status.success() && said.contains("--keep-free is"), "{said}");
    for name in ["a.iosb", "b.iosb"] {
        let recording = Recording::open(&folder.join(name)).unwrap();
        assert!(!recording.is_cut() && recording.end().unwrap().why.contains("--"));
    }
}

/// Each of two recordings has the calls of its own command.
#[test]
fn two_recordings_at_once() {
    let folder = Folder::new("recording-two");
    let names = ["a.iosb", "b.iosb"];
    let mut tools = names.map(|name| {
        let script = "dd if=/dev/zero of=$0 bs=1 count=1000; sleep 1";
        Command::new(TOOL)
            .args(["record", "-q", "-T", "syscall", "-o", name, "--", "sh", "-c", script])
            .arg(format!("{name}.data"))
            .current_dir(&folder)
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    });
    assert!(tools.iter_mut().all(|tool| tool.wait().unwrap().success()));
    for name in names {
        let report = String::from_utf8(succeed(&folder, &["report", name, "--json"])).unwrap();
        let report: serde_json::Value = serde_json::from_str(&report).unwrap();
        let ops = report["layers"][0]["ops"].as_array().unwrap();
        let write = ops.iter().find(|op| op["op"] == "write").unwrap();
        assert_eq!(write["count"], 1000, "{name}");
    }
}

#[test]
fn a_recording_is_complete_whatever_becomes_of_its_reports() {
    let folder = Folder::new("recording-reports");
    let full = tool(
        &folder,
        &words("record -q -T syscall --duration 0.2 -o full.iosb --export-json /dev/full"),
    );
    let said = String::from_utf8_lossy(&full.stderr);
    assert_eq!(full.status.code(), Some(1), "{said}");
    assert!(
        said.contains("error: cannot write '/dev/full': ") && said.contains("report it: "),
        "{said}"
    );
    // Without a reader.
    for (name, command, status) in [
        ("time.iosb", &["--duration", "0.2"][..], 0),
        ("command.iosb", &["--", "sh", "-c", "exit 7"], 7),
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let done = Command::new(TOOL)
            .args(["record", "-q", "-T", "syscall", "-o", name, "--export-json", "-"])
            .args(command)
            .current_dir(&folder)
            .stdout(writer)
            .status()
            .unwrap();
        assert_eq!(done.code(), Some(status), "{name}");
    }
    for name in ["full.iosb", "time.iosb", "command.iosb"] {
        let recording = Recording::open(&folder.join(name)).unwrap();
        assert!(recording.end().is_some() && !recording.is_cut(), "{name}");
    }
}

#[test]
fn files_are_left_as_they_are_if_there_is_no_such_command() {
    let folder = Folder::new("recording-no-command");
    let command = ["--", "/nonexistent/command"];
    fs::write(folder.join("report"), "of yesterday").unwrap();
    let done = tool(
        &folder,
        &[&["-q", "-T", "syscall", "-o", "report"], &command[..]].concat(),
    );
    assert_eq!(done.status.code(), Some(127));
    assert_eq!(fs::read_to_string(folder.join("report")).unwrap(), "of yesterday");
    let new = ["-q", "-T", "syscall", "-o", "new", "--export-json", "new.json"];
    assert_eq!(tool(&folder, &[&new, &command[..]].concat()).status.code(), Some(127));
    // Not even the process exists that the second run is to be of.
    let none = [
        "-q",
        "-o",
        "new",
        "--html",
        "new.html",
        "-p",
        "4194303",
        "--duration",
        "1s",
    ];
    assert_eq!(tool(&folder, &none).status.code(), Some(1));
    let made = ["new", "new.json", "new.html"].map(|name| folder.join(name).exists());
    assert_eq!(made, [false; 3]);
    let done = tool(
        &folder,
        &[&["record", "-q", "-T", "syscall", "-o", "x.iosb"], &command[..]].concat(),
    );
    assert_eq!(done.status.code(), Some(127));
    assert!(!folder.join("x.iosb").exists());
}

#[test]
fn an_export_in_the_recording_itself_is_refused_before_anything_is_made() {
    let folder = Folder::new("recording-itself");
    let record = ["record", "-q", "-T", "syscall", "--duration", "10ms"];
    let is_refused = |more: [&str; 4], status: i32, line: &str| {
        let done = tool(&folder, &[&record[..], &more].concat());
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!((done.status.code(), said.trim_end()), (Some(status), line), "{more:?}");
    };
    is_refused(
        ["-o", "r9", "--export-json", "./r9"],
        2,
        "error: -o 'r9' and --export-json './r9' name one file; give one of them another name",
    );
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    // The same where the recording is refused.
    fs::create_dir(folder.join("r9")).unwrap();
    is_refused(
        ["-o", "r9", "--export-json", "r9.json"],
        1,
        "error: 'r9' exists, and a recording is never written over; name another with -o",
    );
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
}
