//! How fast a replay reads a long recording, and what memory and disk that takes.
//!
//! The recording has calls, processes and open files in the proportions of one of a busy server: 55 million calls of 19,000
//! processes on 4 million open files of half a million paths. `IOSB_CALLS`, for measuring in a release build: so many calls;
//! else a hundredth.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use iostackbreakdown::model::ids::Op;
use iostackbreakdown::model::record::{Call, GivenPath, OpenFile, Records, Thread};
use iostackbreakdown::model::recording::{Meta, Names};
use iostackbreakdown::model::report::slow::{CallPath, Inode};
use iostackbreakdown::recording::{Limits, Recording, Unneeded, Writer};
use iostackbreakdown::replay::load::{Loaded, Selection};
use iostackbreakdown::replay::order::Order;
use iostackbreakdown::replay::path::Roots;
use iostackbreakdown::replay::plan;
use iostackbreakdown::sys::memory::keep_freed;

/// Calls of a hundredth of that server.
const CALLS: u64 = 550_000;
/// Calls of a process.
const OF_PROCESS: u64 = 55_000_000 / 19_000;
/// Processes at the same time.
const AT_ONCE: u64 = 16;
/// Nanoseconds from one call of a process to its next one.
const GAP: u64 = 40_000;
const BEGAN: u64 = 1_000_000_000;
/// Records of a batch.
const BATCH: usize = 8192;

/// How much a recording has.
#[derive(Clone, Copy)]
struct Amount {
    calls: u64,
    /// Calls of an open file.
    of_file: u64,
    paths: u64,
}

impl Amount {
    /// With eight open files of each path.
    fn of_server(calls: u64) -> Self {
        let of_file = 14;
        Self {
            calls,
            of_file,
            paths: (calls / of_file / 8).max(1),
        }
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// The calls of one open file, the number of which is `number`, and what defines it.
fn open_file(records: &mut Records, number: u64, pid: u32, begin: u64, amount: Amount, random: &mut Random) {
    let path = random.below(amount.paths);
    let text = format!("/srv/data/{:03}/table-{path}.dat", path % 1000);
    let mut at = begin;
    let calls = &mut records.calls;
    let mut call = |op, value: i64, range: Option<(u64, u64)>, random: &mut Random| {
        at += GAP / 2 + random.below(GAP);
        let took = 400 + random.below(GAP / 4);
        calls.push(Call {
            tid: pid,
            pid,
            begin_ns: at,
            end_ns: Some(at + took),
            cpus: [random.below(AT_ONCE) as u16; 2],
            op,
            value,
            files: [number as u32, 0],
            fd: Some(3),
            offset: range.map(|(offset, _)| offset),
            size: range.map(|(_, size)| size),
            ..Call::default()
        });
        calls.len() - 1
    };
    let opened = call(Op::Openat, 3, None, random);
    call(Op::Fstat, 0, None, random);
    for _ in 0..amount.of_file - 4 {
        let op = [Op::Pread64, Op::Pread64, Op::Pwrite64, Op::Read][random.below(4) as usize];
        let size = 512 << random.below(5);
        call(op, size, Some((random.below(256) * 4096, size.unsigned_abs())), random);
    }
    call(Op::Fdatasync, 0, None, random);
    call(Op::Close, 0, None, random);
    let first = &mut records.calls[opened];
    first.extra = 2;
    first.paths.get_or_insert_default().first = Some(GivenPath::new(text.clone(), 0));
    let at_ns = first.begin_ns + 100;
    records.files.push(OpenFile {
        number: number as u32,
        at_ns,
        inode: Some(Inode::on([8, 1], path + 100)),
        mode: 0o100_644,
        links: 1,
        size: 2 << 20,
        blocks: 4096,
        flags: 2,
        path: Some(CallPath::whole(text)),
        ..OpenFile::default()
    });
}

/// Writes a recording with so many calls, or a few more. Returns how many.
fn write(path: &Path, amount: Amount) -> u64 {
    let Amount { calls, of_file, .. } = amount;
    let meta = Meta {
        schema: 1,
        has_records: true,
        host: "db7".to_owned(),
        kernel: "6.1.0".to_owned(),
        machine: "x86_64".to_owned(),
        ..Meta::default()
    };
    let mut writer = Writer::create(path, meta, Names::Full, Limits::default()).unwrap();
    let mut random = Random(88_172_645_463_325_252);
    let (mut made, mut number, mut round, mut now) = (0, 0, 0, BEGAN);
    let mut records = Records::default();
    while made < calls {
        for slot in 0..AT_ONCE {
            // Each slot is of one process after the other.
            let pid = 1000 + slot + AT_ONCE * (round * of_file / OF_PROCESS);
            number += 1;
            if round == 0 || pid != 1000 + slot + AT_ONCE * ((round - 1) * of_file / OF_PROCESS) {
                records.threads.push(Thread {
                    at_ns: now,
                    pid: pid as u32,
                    tid: pid as u32,
                    comm: "worker".to_owned(),
                    ..Thread::default()
                });
            }
            open_file(&mut records, number, pid as u32, now, amount, &mut random);
            made += of_file;
        }
        round += 1;
        now += (of_file + 2) * GAP * 3 / 2;
        if records.calls.len() >= BATCH || made >= calls {
            let mut batch = std::mem::take(&mut records);
            batch.calls.sort_by_key(|call| call.end_ns);
            writer.records(batch, now).unwrap();
            writer.tick(now).unwrap();
        }
    }
    writer.end("test", now).unwrap();
    made
}

fn bytes_of(path: &Path) -> u64 {
    let state = fs::symlink_metadata(path).unwrap();
    if !state.is_dir() {
        return state.len();
    }
    let entries = fs::read_dir(path).unwrap();
    entries.map(|entry| bytes_of(&entry.unwrap().path())).sum()
}

/// The most memory that this process has had, in bytes.
fn memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// Makes the plan of the recording and all its windows, and prints how many calls they have, nanoseconds and bytes of memory
/// until the recording was read, and until it was planned; bytes of all, and open files.
#[test]
#[ignore = "what the test below runs in a process of its own"]
fn load() {
    let path = PathBuf::from(std::env::var_os("IOSB_WORK").expect("the test below runs it"));
    // As the tool does.
    keep_freed();
    let before = memory();
    let begun = Instant::now();
    let recording = Recording::open(&path).unwrap();
    let mut loaded = Loaded::new(Selection::default());
    let batches = recording.batches(None, None);
    let batches = batches.without(&[Unneeded::Waits, Unneeded::Requests, Unneeded::Sleeps]);
    batches.ahead().for_each(|batch| loaded.take(batch));
    loaded.finish();
    let (read, of_reading) = (begun.elapsed(), memory());
    let calls = || recording.calls().unwrap().ahead();
    let mut plan = plan(loaded, calls(), recording.meta(), &Roots::default(), 1, Order::Files).unwrap();
    let (planned, of_planning) = (begun.elapsed(), memory());
    plan.prepared = Vec::new();
    let parts = plan.windows(calls()).flat_map(|window| window.parts);
    let made: usize = parts.map(|part| part.actions.len()).sum();
    assert_eq!(made as u64, plan.calls());
    println!(
        "loaded: {} {} {} {} {} {} {}",
        plan.calls(),
        read.as_nanos(),
        of_reading - before,
        planned.as_nanos(),
        of_planning - before,
        memory() - before,
        plan.files.len()
    );
}

/// What loading a recording took.
struct Loading {
    made: u64,
    read_ns: u64,
    of_reading: u64,
    planned_ns: u64,
    of_planning: u64,
    memory: u64,
    disk: u64,
}

/// Writes a recording, and loads it in a process of its own.
fn measure(name: &str, amount: Amount) -> Loading {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("replay-scale-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join("x.iosb");
    let made = write(&path, amount);
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "load", "--ignored", "--nocapture"])
        .env("IOSB_WORK", &path)
        .output()
        .unwrap();
    let disk = bytes_of(&path);
    fs::remove_dir_all(&folder).unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text
        .lines()
        .find_map(|line| line.split_once("loaded: ").map(|(_, rest)| rest));
    let line = line.unwrap_or_else(|| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)));
    let numbers: Vec<u64> = line.split_whitespace().map(|number| number.parse().unwrap()).collect();
    let [planned, read_ns, of_reading, planned_ns, of_planning, memory, files] = numbers[..] else {
        panic!("{line}");
    };
    assert_eq!((planned, files), (made, made / amount.of_file));
    Loading {
        made,
        read_ns,
        of_reading,
        planned_ns,
        of_planning,
        memory,
        disk,
    }
}

#[test]
fn a_long_recording_is_small_and_is_loaded_in_little_memory() {
    let calls = std::env::var("IOSB_CALLS").map_or(CALLS, |calls| calls.parse().unwrap());
    let loading = measure("server", Amount::of_server(calls));
    let each = |bytes: u64| bytes as f64 / loading.made as f64;
    let rate = |ns: u64| loading.made as f64 / ns as f64 * 1e3;
    println!(
        "{} calls: {:.1} bytes of disk a call; read at {:.2} M/s in {:.1} bytes a call; planned at {:.2} M/s in {:.1} bytes a call; made in {:.1}",
        loading.made,
        each(loading.disk),
        rate(loading.read_ns),
        each(loading.of_reading),
        rate(loading.planned_ns),
        each(loading.of_planning),
        each(loading.memory)
    );
    assert!(each(loading.disk) <= 20.0, "{} bytes of disk", loading.disk);
    assert!(each(loading.memory) <= 140.0, "{} bytes of memory", loading.memory);
}

/// More calls on as many open files of as few paths.
#[test]
fn memory_does_not_grow_with_calls() {
    let amount = |of_file| Amount {
        calls: 11_000 * of_file,
        of_file,
        paths: 8,
    };
    // More than two windows.
    let [few, many] = [amount(28), amount(42)].map(|amount| measure(&format!("{}", amount.of_file), amount));
    let calls = many.made - few.made;
    let more = |bytes: fn(&Loading) -> u64| bytes(&many).saturating_sub(bytes(&few));
    let bytes = more(|loading| loading.memory);
    println!(
        "{calls} more calls: {} more bytes for reading, {} for planning, {bytes} for all",
        more(|loading| loading.of_reading),
        more(|loading| loading.of_planning)
    );
    // What was held of a call took more than 200.
    assert!(bytes <= 32 * calls, "{calls} more calls take {bytes} more bytes");
}
