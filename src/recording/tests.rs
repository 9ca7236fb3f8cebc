//! Recordings are written, read, cut and damaged.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use jiff::Timestamp;

use super::*;
use crate::model::abi::{ROW_DEVICE, ROW_FS, ROW_SYSCALL, ROW_VFS, ROWS};
use crate::model::ids::{Layer, Op, Origin, ReadClass};
use crate::model::record::{
    AsyncCall, Call, Fault, Folder, GivenPath, Kind, Lost, Mark, OpenFile, Paths, Records, Request, Sleep, Thread,
};
use crate::model::recording::{Clocks, Names};
use crate::model::report::slow::{CallPath, Inode, PathKind};
use crate::model::run_info::{OpInfo, RunInfo};
use crate::model::snapshot::{OpCounters, Snapshot};

const START: u64 = 7_000_000_000_000;
const SECOND: u64 = 1_000_000_000;

/// A directory that is removed with its owner.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("iosb-recording-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn recording(&self) -> PathBuf {
        self.0.join("x.iosb")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn meta() -> Meta {
    let mut rows = vec![String::new(); ROWS as usize];
    for (slot, name) in [
        (ROW_SYSCALL, "syscall"),
        (ROW_VFS, "vfs"),
        (ROW_FS, "ext4"),
        (ROW_FS + 1, "overlay"),
    ] {
        name.clone_into(&mut rows[slot as usize]);
    }
    for (row, name) in (9..).zip([
        "queue",
        "device",
        "others' I/O",
        "journal",
        "lock",
        "other",
        "run queue",
    ]) {
        name.clone_into(&mut rows[row]);
    }
    let op = |layer| OpInfo {
        layer,
        op: Op::Read,
        moves_bytes: true,
        points: std::sync::Arc::default(),
        refused: std::sync::Arc::default(),
        not_measured: Vec::new(),
        absent: None,
        is_partial: false,
    };
    Meta {
        schema: SCHEMA,
        clocks: Clocks {
            offset_ns: 1_790_000_000_123_456_789,
            utc_offset: 3600,
        },
        rows,
        has_records: true,
        run: RunInfo {
            began_ns: START,
            ops: vec![op(Layer::Syscall), op(Layer::Blk)],
            ..RunInfo::default()
        },
        ..Meta::default()
    }
}

/// A call that ended `at` nanoseconds after the start.
fn call(at: u64, file: u32, tid: u32) -> Call {
    let mut rows = [0; ROWS as usize];
    rows[ROW_SYSCALL as usize] = 300;
    rows[ROW_VFS as usize] = 100;
    rows[ROW_FS as usize] = 77;
    rows[ROW_FS as usize + 1] = 23;
    rows[ROW_DEVICE as usize] = 500;
    Call {
        tid,
        pid: 4711,
        begin_ns: START + at - 1000,
        end_ns: Some(START + at),
        cpus: [2, 3],
        op: Op::Pread64,
        is_32bit: true,
        value: -5,
        offset: Some(81_920_000),
        size: None,
        files: [file, 0],
        fd: Some(-1),
        extra: u64::MAX,
        arguments: Some(Box::new([i64::MIN, -1, 0, 1, 2, i64::MAX])),
        class: Some(ReadClass::WaitedForOwn),
        is_direct: true,
        rows,
        paths: None,
        number: 0,
    }
}

/// A request, with every field used.
pub fn request() -> Request {
    let inode = Some(Inode::on([8, 1], 131));
    Request {
        disk: [8, 0],
        partition: [8, 1],
        sector: 1 << 40,
        bytes: 4096,
        op: Op::Flush,
        flags: 0x8001,
        is_sync: true,
        is_meta: true,
        is_readahead: true,
        is_fua: true,
        is_preflush: true,
        errno: 5,
        submitted_ns: Some(START + 1),
        started_ns: None,
        issued_ns: Some(START + 3),
        ended_ns: START + 4000,
        tid: 4711,
        pid: 4711,
        origin: Origin::Journal,
        inode,
        cpu: 1,
    }
}

/// One definition of each kind.
fn definitions() -> Records {
    let inode = Some(Inode::on([8, 1], 131));
    Records {
        files: vec![OpenFile {
            number: 7,
            at_ns: START + 1,
            inode,
            generation: 3,
            mode: 0o100_644,
            links: 2,
            size: 1 << 33,
            blocks: 16,
            flags: 2,
            position: 4,
            mount: 36,
            file_system: "ext4".to_owned(),
            path: Some(CallPath::new(PathKind::Cut, "/srv/db")),
            found_at: Some((4711, 12)),
        }],
        folders: vec![Folder {
            pid: 4711,
            at_ns: START + 1,
            is_root: true,
            path: "/".to_owned(),
        }],
        threads: vec![Thread {
            tid: 4711,
            pid: 4711,
            at_ns: START + 1,
            parent: 1,
            started_ns: 99,
            comm: "postgres".to_owned(),
            uid: 26,
            cgroup: 1 << 50,
            exe: "/usr/bin/postgres".to_owned(),
            command: "postgres -D /srv".to_owned(),
            has_ended: true,
        }],
        ..Records::default()
    }
}

/// One record of each kind, with every field used.
fn all_kinds() -> Records {
    let path = |text: &str, base| Some(GivenPath::new(text, base));
    let open = Call {
        paths: Some(Box::new(Paths {
            first: path("a/ü", 7),
            second: path("", 0),
        })),
        end_ns: None,
        rows: [0; ROWS as usize],
        class: None,
        fd: None,
        offset: None,
        ..call(2000, 7, 4712)
    };
    Records {
        calls: vec![call(1500, 7, 4711), open],
        requests: vec![request()],
        sleeps: vec![Sleep {
            tid: 4711,
            out_ns: START + 10,
            woken_ns: Some(START + 20),
            in_ns: START + 30,
            row: ROW_DEVICE as u8,
            waker_tid: 9,
            waker_pid: 8,
            cpus: [0, 1],
        }],
        asynchronous: vec![AsyncCall {
            pid: 1,
            tid: 2,
            op: Op::Read,
            begin_ns: START + 5,
            attempt_end_ns: START + 6,
            end_ns: START + 7,
            key: u64::MAX,
            file: 7,
            offset: None,
            size: Some(9),
            value: 9,
            context: 1 << 60,
            flags: 4,
            attempts: 3,
            is_aio: true,
            is_direct: false,
        }],
        faults: vec![Fault {
            tid: 1,
            pid: 2,
            begin_ns: START + 1,
            end_ns: START + 2,
            layer: Layer::Ext4,
            file: 7,
            offset: 4096,
            is_write: true,
            errno: 14,
        }],
        lost: vec![Lost {
            cpu: 3,
            kind: Kind::Sleep,
            records: 12,
            from_ns: START + 8,
            to_ns: START + 9,
        }],
        marks: vec![Mark {
            at_ns: START + 11,
            text: "here".to_owned(),
        }],
        ..definitions()
    }
}

fn snapshot(at: u64, calls: u128) -> Snapshot {
    let op = OpCounters {
        steps: vec![0, calls, 0],
        extremes: Some((at % 97, at)),
        ..OpCounters::default()
    };
    Snapshot {
        wall: Timestamp::from_second(1_790_000_000).unwrap(),
        utc_offset: 3600,
        ops: vec![op.into(), OpCounters::nothing()],
        own_ns: at,
        ..Snapshot::empty(START + at)
    }
}

fn writer(folder: &Path, names: Names) -> Writer {
    Writer::create(folder, meta(), names, Limits::default()).unwrap()
}

fn read(folder: &Path) -> Records {
    let (all, damage) = read_damaged(folder);
    assert_eq!(damage, []);
    all
}

fn read_damaged(folder: &Path) -> (Records, Vec<Damage>) {
    let recording = Recording::open(folder).unwrap();
    let mut all = Records::default();
    recording.batches(None, None).for_each(|records| all.append(records));
    (all, recording.damage())
}

/// A small recording that ended by itself.
fn small(folder: &Path) {
    let mut writer = writer(folder, Names::Full);
    writer.second(&snapshot(0, 0)).unwrap();
    writer.records(all_kinds(), START + 5000).unwrap();
    writer.second(&snapshot(SECOND, 5)).unwrap();
    writer.second(&snapshot(2 * SECOND, 9)).unwrap();
    writer.end("the run ended", START + 2 * SECOND).unwrap();
}

#[test]
fn what_is_written_is_read() {
    let scratch = Scratch::new();
    small(&scratch.recording());
    assert_eq!(read(&scratch.recording()), all_kinds());
    let recording = Recording::open(&scratch.recording()).unwrap();
    assert_eq!(*recording.meta(), meta());
    let seconds: Vec<Snapshot> = recording.seconds().collect();
    assert_eq!(seconds, [snapshot(0, 0), snapshot(SECOND, 5), snapshot(2 * SECOND, 9)]);
    let end = recording.end().unwrap();
    assert_eq!(
        (end.rows["calls"], end.lost[&Kind::Sleep], &*end.why),
        (2, 12, "the run ended")
    );
    let size = |folder: &Path| -> u64 {
        let files = fs::read_dir(folder.join("000001")).unwrap().map(|file| file.unwrap());
        files
            .filter(|file| file.path().extension().unwrap() == "arrow")
            .map(|file| file.metadata().unwrap().len())
            .sum()
    };
    assert_eq!(end.bytes, size(&scratch.recording()));
}

#[test]
fn what_cannot_be_written_is_counted_to_the_last_row() {
    const CALLS: u64 = 20_000;
    let scratch = Scratch::new();
    let mut writer = writer(&scratch.recording(), Names::Full);
    writer.second(&snapshot(0, 0)).unwrap();
    // It cannot be made.
    fs::create_dir(scratch.recording().join("000001/calls.arrow")).unwrap();
    let call = |begin_ns| Call {
        begin_ns,
        end_ns: Some(begin_ns + 1),
        ..Call::default()
    };
    let records = Records {
        calls: (0..CALLS).map(|nth| call(START + nth)).collect(),
        requests: vec![Request::default()],
        ..Records::default()
    };
    assert!(writer.records(records, START + CALLS).is_err());
    let end = writer.abandon("the disk is full", START + CALLS);
    assert_eq!(end.not_written, [(Kind::Call, CALLS), (Kind::Request, 1)].into());
    assert!(end.rows.values().all(|rows| *rows == 0), "{:?}", end.rows);
}

#[test]
fn it_is_for_its_owner_and_is_never_written_over() {
    use std::os::unix::fs::PermissionsExt;

    let scratch = Scratch::new();
    small(&scratch.recording());
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&scratch.recording()), 0o700);
    assert_eq!(mode(&scratch.recording().join("000001/calls.arrow")), 0o600);
    let again = Writer::create(&scratch.recording(), meta(), Names::Full, Limits::default());
    assert!(again.err().unwrap().line.contains("never written over"));
    assert_eq!(read(&scratch.recording()), all_kinds());
}

/// Four segments of 61 seconds.
fn long(folder: &Path) {
    let mut writer = writer(folder, Names::Full);
    writer.second(&snapshot(0, 0)).unwrap();
    writer.records(all_kinds(), START + 5000).unwrap();
    for minute in 1..=3 {
        let at = minute * 61 * SECOND;
        writer.second(&snapshot(at, u128::from(minute))).unwrap();
        // The third segment uses another thread, which nothing defines.
        let tid = if minute == 3 { 5 } else { 4711 };
        let calls = vec![call(at + 1500, 7, tid), call(at + 1600, 7, tid)];
        writer
            .records(
                Records {
                    calls,
                    ..Records::default()
                },
                START + at + 2000,
            )
            .unwrap();
    }
    writer.end("the run ended", START + 200 * SECOND).unwrap();
}

/// Each segment defines what it uses, and the calls of all of them come in the order of their ends.
#[test]
fn segments_can_be_read_alone() {
    let scratch = Scratch::new();
    let folder = scratch.recording();
    long(&folder);
    let all = read(&folder);
    assert_eq!(all.calls.len(), 8);
    let ended = all.calls.iter().filter_map(|call| call.end_ns);
    assert!(ended.is_sorted());
    let recording = Recording::open(&folder).unwrap();
    assert_eq!(recording.segments.len(), 4);
    assert_eq!(
        recording.seconds().count(),
        4,
        "the counters at the start of a segment are not a second"
    );
    // Without the others.
    for (gone, files, threads) in [(1, 3, 2), (2, 3, 2), (3, 3, 2)] {
        fs::rename(folder.join(format!("{gone:06}")), folder.join("hidden")).unwrap();
        let (some, _) = read_damaged(&folder);
        assert_eq!(
            (some.files.len(), some.threads.len()),
            (files, threads),
            "without {gone}"
        );
        fs::rename(folder.join("hidden"), folder.join(format!("{gone:06}"))).unwrap();
    }
    // A span has what ended in it, and the definitions up to then.
    let from = START + 61 * SECOND;
    let mut part = Records::default();
    recording
        .batches(Some(from), Some(from + 1600))
        .for_each(|records| part.append(records));
    assert_eq!(part.calls, [call(61 * SECOND + 1500, 7, 4711)]);
    assert!(part.files.iter().any(|file| file.number == 7) && part.requests.is_empty());
}

/// A recording of one second that begins `seconds` later than others.
fn a_second_later(folder: &Path, seconds: u64) {
    let began_ns = START + seconds * SECOND;
    let later = Meta {
        run: RunInfo { began_ns, ..meta().run },
        ..meta()
    };
    let mut writer = Writer::create(folder, later, Names::Full, Limits::default()).unwrap();
    writer.second(&snapshot(seconds * SECOND, 0)).unwrap();
    writer.end("the run ended", began_ns + SECOND).unwrap();
}

#[test]
fn a_segment_that_is_missing_or_of_another_recording_is_said_with_its_span() {
    let at = |second: u64| START + second * SECOND;
    let said = |prepare: &dyn Fn(&Path, &Path)| {
        let scratch = Scratch::new();
        let (folder, other) = (scratch.recording(), scratch.0.join("other.iosb"));
        long(&folder);
        a_second_later(&other, 1000);
        prepare(&folder, &other);
        let (records, damage) = read_damaged(&folder);
        let lines = damage.into_iter().map(|one| (one.file, one.what, one.span));
        (records.calls.len(), lines.collect::<Vec<_>>())
    };
    let line = |file: &str, what: &str, from, to| (file.to_owned(), what.to_owned(), Some((at(from), at(to))));
    let rename = |folder: &Path, from: &str, to: &str| fs::rename(folder.join(from), folder.join(to)).unwrap();
    let gone = |folder: &Path, name: &str| rename(folder, name, "hidden");
    assert_eq!(said(&|_, _| ()), (8, vec![]));
    assert_eq!(
        said(&|folder, _| gone(folder, "000001")),
        (6, vec![line("000001", "the segment is missing", 0, 61)])
    );
    assert_eq!(
        said(&|folder, _| gone(folder, "000002")),
        (6, vec![line("000002", "the segment is missing", 61, 122)])
    );
    assert_eq!(
        said(&|folder, _| gone(folder, "000004")),
        (6, vec![line("000004", "the segment is missing", 183, 200)])
    );
    let two = |folder: &Path, _: &Path| {
        gone(folder, "000002");
        rename(folder, "000003", "hidden-too");
    };
    assert_eq!(
        said(&two),
        (4, vec![line("000002 to 000003", "2 segments are missing", 61, 183)])
    );
    let exchanged = |folder: &Path, _: &Path| {
        gone(folder, "000002");
        rename(folder, "000003", "000002");
        rename(folder, "hidden", "000003");
    };
    assert_eq!(
        said(&exchanged),
        (
            4,
            vec![
                line("000002", "it is segment 3: it is left out", 61, 183),
                line("000003", "it is segment 2: it is left out", 61, 183)
            ]
        )
    );
    let foreign = |folder: &Path, other: &Path| {
        gone(folder, "000001");
        fs::rename(other.join("000001"), folder.join("000001")).unwrap();
    };
    assert_eq!(
        said(&foreign),
        (
            6,
            vec![line("000001", "it is of another recording: it is left out", 0, 61)]
        )
    );
    // A recording may begin with a later number, but not with a later time.
    let later = |folder: &Path, _: &Path| {
        gone(folder, "000001");
        let path = folder.join("meta.json");
        let text = fs::read_to_string(&path).unwrap();
        let began = |at: u64| format!("\"began_ns\": {at}");
        assert!(text.contains(&began(START)));
        fs::write(path, text.replace(&began(START), &began(at(61)))).unwrap();
        fs::remove_file(folder.join("end.json")).unwrap();
    };
    assert_eq!(said(&later), (6, vec![]));
    let fewer = |folder: &Path, _: &Path| {
        let path = folder.join("end.json");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(path, text.replace("\"calls\": 8", "\"calls\": 9")).unwrap();
    };
    let what = "the recording had 9 calls, and its segments have 8".to_owned();
    assert_eq!(said(&fewer), (8, vec![("end.json".to_owned(), what, None)]));
}

#[test]
fn a_call_without_an_end_is_in_the_part_with_the_end_of_the_recording() {
    let scratch = Scratch::new();
    small(&scratch.recording());
    let recording = Recording::open(&scratch.recording()).unwrap();
    let open = |from: u64, to: u64| {
        let batches = recording.batches(Some(START + from), Some(START + to));
        let calls = batches.flat_map(|records| records.calls);
        calls.filter(|call| call.end_ns.is_none()).count()
    };
    assert_eq!(
        [open(0, SECOND), open(SECOND, 2 * SECOND), open(2 * SECOND, 3 * SECOND)],
        [0, 1, 0]
    );
    assert_eq!([open(0, 2 * SECOND - 1), open(2 * SECOND - 1, 3 * SECOND)], [0, 1]);
    // The end of a recording that was cut is not known.
    fs::remove_file(scratch.recording().join("end.json")).unwrap();
    let recording = Recording::open(&scratch.recording()).unwrap();
    let calls = |to| {
        recording
            .batches(Some(START + SECOND), to)
            .map(|records| records.calls.len())
            .sum::<usize>()
    };
    assert_eq!([calls(None), calls(Some(START + 2 * SECOND))], [1, 0]);
}

/// Many calls: several batches, with their waits.
#[test]
fn batches_are_joined_with_their_waits() {
    let scratch = Scratch::new();
    let folder = scratch.recording();
    let calls: Vec<Call> = (0..20_000)
        .map(|index| {
            let mut call = call(2000 + index, 7, 4711);
            call.offset = Some(index);
            // Some calls have no row of their own in the other table.
            if index % 3 == 0 {
                call.rows[ROW_FS as usize + 1] = 0;
                call.rows[ROW_DEVICE as usize] = 0;
                call.rows[ROW_SYSCALL as usize] = 823;
            }
            call
        })
        .collect();
    let mut writer = writer(&folder, Names::Full);
    writer.second(&snapshot(0, 0)).unwrap();
    for part in calls.chunks(777) {
        writer
            .records(
                Records {
                    calls: part.to_vec(),
                    ..Records::default()
                },
                START + 5000,
            )
            .unwrap();
    }
    writer.end("the run ended", START + 6000).unwrap();
    let recording = Recording::open(&folder).unwrap();
    let largest = recording.batches(None, None).map(|records| records.len()).max();
    assert_eq!(largest, Some(8192), "memory does not grow with the recording");
    // A thread that reads ahead has the same batches, and ends with who takes them.
    let ahead: Vec<Records> = recording.batches(None, None).ahead().collect();
    assert_eq!(ahead, recording.batches(None, None).collect::<Vec<_>>());
    assert_eq!(ahead.len(), 3);
    assert_eq!(recording.batches(None, None).ahead().next().as_ref(), ahead.first());
    assert_eq!(read(&folder).calls, calls);
}

/// Random reads by 8 threads, one in ten of which waits for the disk, with times that differ in every bit: nothing real
/// compresses worse.
#[test]
fn a_call_takes_few_bytes() {
    const CALLS: u64 = 60_000;
    let mut state = 2026_u64;
    let mut below = |limit: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % limit
    };
    let scratch = Scratch::new();
    let folder = scratch.recording();
    let mut writer = writer(&folder, Names::Full);
    writer.second(&snapshot(0, 0)).unwrap();
    let mut at = 2000;
    let mut calls = Vec::new();
    for _ in 0..CALLS {
        at += 1 + below(3000);
        let rows = [150 + below(200), 80 + below(100), 300 + below(900)];
        let device = if below(10) == 0 { 50_000 + below(100_000) } else { 0 };
        let tid = 4711 + below(8) as u32;
        let cpu = below(8) as u16;
        let mut call = Call {
            cpus: [cpu, cpu],
            is_32bit: false,
            value: 4096,
            offset: Some(below(1 << 18) * 4096),
            size: Some(4096),
            fd: Some(7),
            extra: 0,
            arguments: None,
            is_direct: false,
            class: Some(if device > 0 {
                ReadClass::WaitedForOwn
            } else {
                ReadClass::FromCache
            }),
            rows: [0; ROWS as usize],
            ..call(at, 7, tid)
        };
        call.begin_ns = START + at - rows.iter().sum::<u64>() - device;
        call.rows[ROW_SYSCALL as usize] = rows[0];
        call.rows[ROW_VFS as usize] = rows[1];
        call.rows[ROW_FS as usize] = rows[2];
        call.rows[ROW_DEVICE as usize] = device;
        calls.push(call);
    }
    for part in calls.chunks(5000) {
        writer
            .records(
                Records {
                    calls: part.to_vec(),
                    ..Records::default()
                },
                START + at,
            )
            .unwrap();
    }
    let end = writer.end("the run ended", START + at).unwrap();
    let each = end.bytes as f64 / CALLS as f64;
    assert!(each <= 20.0, "{each:.1} bytes a call");
    assert_eq!(read(&folder).calls, calls);
}

/// A process that is killed leaves files without a footer, and no summary.
#[test]
fn a_recording_that_was_cut_has_its_last_batch() {
    let scratch = Scratch::new();
    let folder = scratch.recording();
    let mut writer = writer(&folder, Names::Full);
    writer.second(&snapshot(0, 0)).unwrap();
    writer.records(all_kinds(), START + 5000).unwrap();
    writer.tick(START + 500_000_000).unwrap();
    assert!(read(&folder).is_empty(), "the batch is not a second old");
    writer.tick(START + 5000 + SECOND).unwrap();
    writer.second(&snapshot(SECOND, 5)).unwrap();
    assert_eq!(read(&folder), all_kinds());
    let recording = Recording::open(&folder).unwrap();
    assert!(recording.is_cut());
    assert_eq!(recording.span(), (START, START + SECOND));
    assert_eq!(recording.seconds().count(), 2);
}

/// A part that ends with the recording is no longer than what was measured, and '-1s' is its last second.
#[test]
fn a_recording_ends_with_its_last_counters() {
    let scratch = Scratch::new();
    let folder = scratch.recording();
    let mut writer = writer(&folder, Names::Full);
    writer.second(&snapshot(0, 0)).unwrap();
    writer.records(all_kinds(), START + 5000).unwrap();
    writer.second(&snapshot(SECOND, 5)).unwrap();
    writer.end("the run ended", START + SECOND + 300_000_000).unwrap();
    let recording = Recording::open(&folder).unwrap();
    assert!(!recording.is_cut());
    assert_eq!(recording.span(), (START, START + SECOND));
    assert_eq!(recording.remarks(), [""; 0]);
}

#[test]
fn a_recording_whose_end_is_damaged_ends_where_its_segments_do() {
    let at = |second: u64| START + second * SECOND;
    let of = |prepare: &dyn Fn(&str) -> Option<String>| {
        let scratch = Scratch::new();
        let folder = scratch.recording();
        long(&folder);
        let path = folder.join("end.json");
        match prepare(&fs::read_to_string(&path).unwrap()) {
            Some(text) => fs::write(&path, text).unwrap(),
            None => fs::remove_file(&path).unwrap(),
        }
        let recording = Recording::open(&folder).unwrap();
        // Of one whose end is known, measuring ended with the last counters.
        let end = if recording.is_cut() { at(200) } else { at(183) };
        assert_eq!(recording.span(), (START, end));
        assert_eq!(
            recording.batches(None, None).flat_map(|records| records.calls).count(),
            8
        );
        let lines = recording.remarks().into_iter();
        let without_time = lines.map(|line| line.split(" up to ").next().unwrap().to_owned());
        without_time.collect::<Vec<_>>()
    };
    assert!(of(&|text| Some(text.to_owned())).is_empty());
    assert_eq!(of(&|_| None), ["the recording was cut: it has 3m 20s"]);
    let unknown = "the end of the recording is not known: it has 3m 20s";
    let not_json = "end.json: it cannot be understood: EOF while parsing a value at line 1 column 0";
    assert_eq!(of(&|_| Some(String::new())), [not_json, unknown]);
    // What is missing from it is 0.
    let early = "end.json: it ends before what the recording has";
    assert_eq!(of(&|_| Some("{}".to_owned())), [early, unknown]);
    let ended = |text: &str, to: u64| text.replace(&format!("\"to_ns\": {}", at(200)), &format!("\"to_ns\": {to}"));
    assert_eq!(of(&|text| Some(ended(text, at(199)))), [early, unknown]);
}

/// Every record that is read from a damaged recording is one that was written, and each file that lacks some is named.
fn assert_sound(folder: &Path, what: &str) {
    let recording = match Recording::open(folder) {
        Ok(recording) => recording,
        Err(cause) => {
            assert!(
                cause.line.contains("damaged") || cause.line.contains("format"),
                "{what}: {}",
                cause.line
            );
            return;
        }
    };
    let mut all = Records::default();
    recording.batches(None, None).for_each(|records| all.append(records));
    let seconds = recording.seconds().count();
    let is_whole = all == all_kinds() && seconds == 3;
    assert!(
        is_whole || !recording.damage().is_empty() || recording.is_cut(),
        "{what}: damage is not reported"
    );
    let written = all_kinds();
    if recording.segments.iter().all(|segment| segment.summary.is_some()) {
        assert!(all.files.is_empty() || all.files == written.files, "{what}");
        assert!(all.requests.is_empty() || all.requests == written.requests, "{what}");
    }
}

/// All files below a directory.
fn files_of(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            files.extend(files_of(&entry));
        } else {
            files.push(entry);
        }
    }
    files.sort_unstable();
    files
}

/// Damages each file in each way that `damage` returns for it, with and without the checksums.
fn damaged(mut damage: impl FnMut(&Path, &[u8]) -> Vec<Vec<u8>>) {
    let scratch = Scratch::new();
    let folder = scratch.recording();
    small(&folder);
    for has_summary in [true, false] {
        if !has_summary {
            fs::remove_file(folder.join("000001/segment.json")).unwrap();
            fs::remove_file(folder.join("end.json")).unwrap();
        }
        for path in files_of(&folder) {
            let whole = fs::read(&path).unwrap();
            for (index, bytes) in damage(&path, &whole).into_iter().enumerate() {
                fs::write(&path, bytes).unwrap();
                assert_sound(&folder, &format!("{} {index}", path.display()));
            }
            fs::write(&path, whole).unwrap();
        }
    }
}

/// A tool that tests this quickly takes every few bytes; the fuzz target takes any.
const STEP: usize = 97;

#[test]
fn a_file_may_be_cut_anywhere() {
    damaged(|_, whole| {
        (0..whole.len())
            .step_by(STEP)
            .map(|length| whole[..length].to_vec())
            .collect()
    });
}

#[test]
fn any_byte_may_be_wrong() {
    let mut round = 0;
    damaged(|path, whole| {
        // The description of the run is JSON, whose reader has tests of its own.
        let step = if path.ends_with("meta.json") { 10 * STEP } else { STEP };
        round += 1;
        let flipped = (round % step..whole.len()).step_by(step).map(|at| {
            let mut bytes = whole.to_vec();
            bytes[at] ^= 1 << (at % 8);
            bytes
        });
        flipped.collect()
    });
}

#[test]
fn a_later_format_is_refused_with_both_numbers() {
    let scratch = Scratch::new();
    small(&scratch.recording());
    let path = scratch.recording().join("meta.json");
    let text = fs::read_to_string(&path)
        .unwrap()
        .replacen("\"schema\": 1", "\"schema\": 9", 1);
    fs::write(&path, text).unwrap();
    let error = Recording::open(&scratch.recording()).err().unwrap();
    assert!(
        error.line.contains("has format 9") && error.line.contains("reads up to 1"),
        "{error}"
    );
}

#[test]
fn a_damaged_table_is_left_out_with_its_span() {
    let scratch = Scratch::new();
    small(&scratch.recording());
    let path = scratch.recording().join("000001/requests.arrow");
    let mut bytes = fs::read(&path).unwrap();
    bytes[900] ^= 4;
    fs::write(&path, bytes).unwrap();
    let recording = Recording::open(&scratch.recording()).unwrap();
    let mut all = Records::default();
    recording.batches(None, None).for_each(|records| all.append(records));
    assert_eq!(
        all,
        Records {
            requests: Vec::new(),
            ..all_kinds()
        }
    );
    let damage = recording.damage();
    assert_eq!(damage[0].file, "000001/requests.arrow");
    assert_eq!(damage[0].span, Some((START + 4000, START + 4000)));
    assert_eq!(damage[0].what, "its checksum is wrong: its 1 rows are left out");
}

/// It has no writer, so that opening it would wait for ever.
#[test]
fn a_pipe_in_place_of_a_file_is_damage() {
    let scratch = Scratch::new();
    let folder = scratch.recording();
    small(&folder);
    for name in ["000001/calls.arrow", "000001/segment.json", "end.json"] {
        fs::remove_file(folder.join(name)).unwrap();
        nix::unistd::mkfifo(&folder.join(name), nix::sys::stat::Mode::S_IRWXU).unwrap();
    }
    let (records, damage) = read_damaged(&folder);
    assert_eq!((records.calls.len(), records.requests.len()), (0, 1));
    let lines: Vec<String> = damage.iter().map(|one| format!("{}: {}", one.file, one.what)).collect();
    assert_eq!(
        lines,
        [
            "end.json: it is no regular file",
            "000001/segment.json: it is no regular file",
            "000001/calls.arrow: it is no regular file: it is left out"
        ]
    );
    // A replay opens the calls ahead.
    assert!(Recording::open(&folder).unwrap().calls().is_err());
    fs::remove_file(folder.join("meta.json")).unwrap();
    nix::unistd::mkfifo(&folder.join("meta.json"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let refused = Recording::open(&folder).err().unwrap().line;
    assert!(refused.ends_with("meta.json': it is no regular file"), "{refused}");
}

#[test]
fn tables_that_are_not_needed_are_not_read() {
    let scratch = Scratch::new();
    small(&scratch.recording());
    // Its damage does not matter then.
    fs::write(scratch.recording().join("000001/sleeps.arrow"), "x").unwrap();
    let recording = Recording::open(&scratch.recording()).unwrap();
    let batches = recording.batches(None, None);
    let mut all = Records::default();
    let unneeded = &[
        super::Unneeded::Waits,
        super::Unneeded::Requests,
        super::Unneeded::Sleeps,
    ];
    batches.without(unneeded).for_each(|records| all.append(records));
    assert_eq!((all.requests.len(), all.sleeps.len()), (0, 0));
    assert_eq!(
        (all.calls.len(), all.asynchronous),
        (all_kinds().calls.len(), all_kinds().asynchronous)
    );
    assert!(recording.damage().is_empty());
}

/// A number that is wrong in it would leave no other trace; its tables are as they were.
#[test]
fn a_wrong_number_in_the_summary_of_a_segment_is_found() {
    let scratch = Scratch::new();
    small(&scratch.recording());
    let path = scratch.recording().join("000001/segment.json");
    let mut text = fs::read(&path).unwrap();
    let name = b"\"number\": ";
    let at = text.windows(name.len()).position(|window| window == name).unwrap();
    text[at + name.len()] ^= 2;
    fs::write(&path, text).unwrap();
    let recording = Recording::open(&scratch.recording()).unwrap();
    let mut all = Records::default();
    recording.batches(None, None).for_each(|records| all.append(records));
    assert_eq!(all, all_kinds());
    let damage = recording.damage();
    assert_eq!(damage[0].file, "000001/segment.json");
    assert_eq!(damage[0].what, "its checksum is wrong");
}

#[test]
fn names_are_hidden_in_all_tables() {
    let scratch = Scratch::new();
    let folder = scratch.recording();
    let mut writer = writer(&folder, Names::None);
    writer.second(&snapshot(0, 0)).unwrap();
    writer.records(all_kinds(), START + 5000).unwrap();
    writer.end("the run ended", START + SECOND).unwrap();
    let all = read(&folder);
    assert_eq!(all.files[0].path, None);
    assert_eq!((&*all.threads[0].exe, &*all.threads[0].comm), ("", ""));
    assert_eq!(all.calls[1].paths.as_ref().unwrap().first.as_ref().unwrap().text, "");
    assert_eq!(all.calls[0], all_kinds().calls[0]);
}

/// A report of several seconds has the extremes of all of them, and nothing else of the seconds between.
#[test]
fn seconds_become_intervals() {
    use crate::source::{Item, Source, Until};

    let scratch = Scratch::new();
    let folder = scratch.recording();
    let mut writer = writer(&folder, Names::Full);
    writer.second(&snapshot(0, 0)).unwrap();
    for second in 1..=7 {
        // Each is read some time after its end.
        writer
            .second(&snapshot(second * SECOND + 2_000_000, u128::from(second)))
            .unwrap();
    }
    writer.end("the run ended", START + 7 * SECOND + 2_000_000).unwrap();
    let recording = Recording::open(&folder).unwrap();
    let moments = |span: Span, interval: Option<u64>, limit: Option<u64>| {
        let interval = interval.map(std::time::Duration::from_secs);
        let mut source = Replayed::new(&recording, span, interval);
        if let Some(limit) = limit {
            source.limit(limit);
        }
        let mut moments = Vec::new();
        while let Ok(Item::Snapshot(snapshot)) = source.next(Until::End) {
            let extremes = snapshot.ops[0].extremes.unwrap();
            moments.push(((snapshot.at_ns - START) / SECOND, extremes.1 / SECOND));
        }
        moments
    };
    assert_eq!(moments(Span::ALL, None, None), [(0, 0), (7, 7)]);
    assert_eq!(moments(Span::ALL, Some(3), None), [(0, 0), (3, 3), (6, 6), (7, 7)]);
    assert_eq!(moments(Span::ALL, Some(3), Some(2)), [(0, 0), (3, 3), (6, 6)]);
    let span = |from, to| Span {
        from_ns: START + from + 2_000_000,
        to_ns: START + to + 2_000_000,
    };
    assert_eq!(moments(span(2 * SECOND, 4 * SECOND), None, None), [(2, 2), (4, 4)]);
    // Whole seconds around a moment inside one.
    assert_eq!(
        moments(span(2 * SECOND + SECOND / 2, 4 * SECOND + SECOND / 2), None, None),
        [(2, 2), (5, 5)]
    );
    let mut source = Replayed::new(&recording, span(SECOND, 3 * SECOND), None);
    source.next(Until::End).unwrap();
    let Item::Snapshot(last) = source.next(Until::End).unwrap() else {
        panic!("a report has two ends")
    };
    let lowest = [2, 3]
        .map(|second: u64| (second * SECOND + 2_000_000) % 97)
        .into_iter()
        .min();
    assert_eq!(last.ops[0].extremes.map(|(min, _)| min), lowest);
}

/// A run ends whenever it does, perhaps a moment after its last whole second.
#[test]
fn a_short_last_second_is_a_part_of_its_own() {
    use crate::source::{Item, Source, Until};

    let scratch = Scratch::new();
    let folder = scratch.recording();
    let mut writer = writer(&folder, Names::Full);
    let ends = [0, SECOND, 2 * SECOND, 2 * SECOND + SECOND / 20];
    for (at_ns, calls) in ends.into_iter().zip(0..) {
        writer.second(&snapshot(at_ns, calls)).unwrap();
    }
    writer.end("the run ended", START + ends[3]).unwrap();
    let recording = Recording::open(&folder).unwrap();
    for (from, to) in [(0, 2), (2, 3), (1, 3), (0, 3)] {
        let (from_ns, to_ns) = (START + ends[from], START + ends[to]);
        let mut source = Replayed::new(&recording, Span { from_ns, to_ns }, None);
        let mut moments = Vec::new();
        while let Ok(Item::Snapshot(snapshot)) = source.next(Until::End) {
            moments.push(snapshot.at_ns);
        }
        assert_eq!(moments, [from_ns, to_ns]);
    }
}

/// What version 1 wrote; it stays as long as its format is read.
const VERSION_1: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/recordings/version-1.iosb");

#[test]
fn what_version_1_wrote_is_read() {
    let folder = Path::new(VERSION_1);
    let size: u64 = files_of(folder)
        .iter()
        .map(|file| fs::metadata(file).unwrap().len())
        .sum();
    assert!(size <= 100_000, "{size} bytes");
    let mut kept = all_kinds();
    // It had no columns for these.
    kept.calls.iter_mut().for_each(|call| call.arguments = None);
    for call in &mut kept.asynchronous {
        (call.context, call.flags, call.attempts) = (0, 0, 0);
    }
    assert_eq!(read(folder), kept);
    assert_eq!(*Recording::open(folder).unwrap().meta(), meta());
    let seconds: Vec<Snapshot> = Recording::open(folder).unwrap().seconds().collect();
    assert_eq!(seconds, [snapshot(0, 0), snapshot(SECOND, 5), snapshot(2 * SECOND, 9)]);
}

/// Run it by hand when the format gets a new version, with another path.
#[test]
#[ignore = "writes the recording that the test above reads"]
fn write_version_1() {
    let _ = fs::remove_dir_all(VERSION_1);
    fs::create_dir_all(Path::new(VERSION_1).parent().unwrap()).unwrap();
    small(Path::new(VERSION_1));
}

fn ring(span: u64, bytes: u64) -> Ring {
    let limits = RingLimits {
        span: std::time::Duration::from_secs(span),
        bytes,
    };
    Ring::new(meta(), Names::Full, limits, &snapshot(0, 0)).unwrap()
}

/// Adds a call for each of these seconds, and its counters. All use the same file and thread.
fn fill(ring: &mut Ring, seconds: std::ops::RangeInclusive<u64>) {
    for second in seconds {
        let records = Records {
            calls: vec![call(second * SECOND - 500, 7, 4711)],
            ..Records::default()
        };
        ring.records(records, START + second * SECOND - 400).unwrap();
        ring.tick(START + second * SECOND - 300).unwrap();
        ring.second(&snapshot(second * SECOND, second.into())).unwrap();
    }
}

/// The seconds in which the calls of a recording ended.
fn seconds_of(records: &Records) -> Vec<u64> {
    let calls = records.calls.iter();
    calls
        .map(|call| (call.end_ns.unwrap() - START).div_ceil(SECOND))
        .collect()
}

#[test]
fn a_ring_has_the_last_part_of_a_run_with_all_that_it_uses() {
    let scratch = Scratch::new();
    let mut ring = ring(12, 64 << 20);
    ring.records(definitions(), START + 5).unwrap();
    fill(&mut ring, 1..=100);
    assert_eq!(ring.file(7), Some(&definitions().files[0]));
    assert_eq!(ring.thread(4711), Some(&definitions().threads[0]));
    // What precedes this moment stays.
    ring.hold(START + 100 * SECOND);
    fill(&mut ring, 101..=105);
    let (from_ns, calls, requests, bytes) = ring.contents();
    assert_eq!((from_ns, calls, requests), (START + 88 * SECOND, 17, 0));
    let kept = ring.cut("an fsync").unwrap();
    assert!(!kept.is_cut_by_size && kept.end.bytes >= bytes);
    let folder = scratch.recording();
    let mut progress = Vec::new();
    kept.write(&folder, |bytes| progress.push(bytes)).unwrap();
    assert_eq!(progress.last(), Some(&kept.end.bytes));
    let all = read(&folder);
    assert_eq!(seconds_of(&all), (89..=105).collect::<Vec<u64>>());
    let recording = Recording::open(&folder).unwrap();
    assert_eq!(recording.span(), (START + 88 * SECOND, START + 105 * SECOND));
    let expected = End {
        from_ns: START + 88 * SECOND,
        to_ns: START + 105 * SECOND,
        why: "the ring was written".to_owned(),
        trigger: "an fsync".to_owned(),
        rows: [("calls", 17), ("files", 1), ("processes", 1)]
            .into_iter()
            .map(|(table, rows)| (table.to_owned(), rows))
            .collect(),
        bytes: kept.end.bytes,
        ..End::default()
    };
    assert_eq!(recording.end(), Some(&expected));
    // The counters of its start, and of each second.
    let seconds: Vec<Snapshot> = recording.seconds().collect();
    let expected: Vec<Snapshot> = (88..=105)
        .map(|second| snapshot(second * SECOND, second.into()))
        .collect();
    assert_eq!(seconds, expected);
    // Each segment can be read alone.
    let numbers = recording.segments.len();
    assert!(numbers >= 12, "{numbers}");
    for kept in 1..=numbers {
        let alone = scratch.0.join(format!("{kept}.iosb"));
        fs::create_dir(&alone).unwrap();
        fs::copy(folder.join("meta.json"), alone.join("meta.json")).unwrap();
        let name = format!("{kept:06}");
        fs::rename(folder.join(&name), alone.join(&name)).unwrap();
        let (records, damage) = read_damaged(&alone);
        assert_eq!(damage.len(), usize::from(kept > 1), "what precedes it is missing");
        if !records.calls.is_empty() {
            assert_eq!(records.files, definitions().files, "{kept}");
            assert_eq!(records.threads, definitions().threads, "{kept}");
        }
        assert!(Recording::open(&alone).unwrap().seconds().count() >= 1);
    }
}

/// Recordings that follow each other have each call once, and no name is written over.
#[test]
fn what_was_written_is_not_written_again() {
    let scratch = Scratch::new();
    let mut ring = ring(12, 64 << 20);
    ring.records(definitions(), START + 5).unwrap();
    fill(&mut ring, 1..=20);
    let first = ring.cut("one").unwrap();
    assert_eq!(ring.contents(), (START + 20 * SECOND, 0, 0, ring.contents().3));
    fill(&mut ring, 21..=25);
    let second = ring.cut("two").unwrap();
    let folder = scratch.recording();
    first.write(&folder, |_| ()).unwrap();
    let error = second.write(&folder, |_| ()).unwrap_err();
    assert!(
        error.errno == Some(17) && error.line.contains("never written over"),
        "{error}"
    );
    let other = scratch.0.join("y.iosb");
    second.write(&other, |_| ()).unwrap();
    assert_eq!(seconds_of(&read(&folder)), (9..=20).collect::<Vec<u64>>());
    assert_eq!(seconds_of(&read(&other)), (21..=25).collect::<Vec<u64>>());
    assert!(read(&other).files.contains(&definitions().files[0]));
    assert!(second.write(&scratch.0.join("none/z.iosb"), |_| ()).is_err());
}

/// Definitions come by CPU: of a process that moved to another one the older may come last, and does not replace the newer.
#[test]
fn the_newest_definition_is_written_again() {
    let scratch = Scratch::new();
    let mut ring = ring(12, 64 << 20);
    let older = definitions();
    let mut newer = definitions();
    newer.folders[0].at_ns += 1;
    newer.folders[0].path = "/srv".to_owned();
    newer.threads[0].at_ns += 1;
    newer.threads[0].comm = "walwriter".to_owned();
    ring.records(newer, START + 5).unwrap();
    ring.records(older, START + 6).unwrap();
    // Far enough for the segment with the first definitions to leave the ring.
    fill(&mut ring, 1..=40);
    let folder = scratch.recording();
    ring.cut("late").unwrap().write(&folder, |_| ()).unwrap();
    let records = read(&folder);
    let folders: Vec<&str> = records.folders.iter().map(|folder| &*folder.path).collect();
    let threads: Vec<&str> = records.threads.iter().map(|thread| &*thread.comm).collect();
    assert!(
        folders.last() == Some(&"/srv") && !folders.contains(&"/"),
        "{folders:?}"
    );
    assert!(
        threads.last() == Some(&"walwriter") && !threads.contains(&"postgres"),
        "{threads:?}"
    );
}

/// The shorter of time and size.
#[test]
fn a_ring_does_not_grow_beyond_its_size() {
    const SIZE: u64 = 200 << 10;
    let (mut ring, mut small) = (ring(1000, SIZE), ring(1000, 10 << 10));
    ring.records(definitions(), START + 5).unwrap();
    fill(&mut ring, 1..=200);
    let (from_ns, calls, _, bytes) = ring.contents();
    assert!(bytes <= SIZE && bytes > SIZE / 2, "{bytes} bytes");
    assert_eq!(calls, 200 - (from_ns - START) / SECOND);
    assert!(ring.cut("x").unwrap().is_cut_by_size);
    // A second that has more than all of it is kept.
    let many = Records {
        calls: (0..30_000)
            .map(|index| call(200 * SECOND + 1000 + index * 7919, 7, 4711))
            .collect(),
        ..Records::default()
    };
    small.records(many, START + 201 * SECOND).unwrap();
    fill(&mut small, 201..=201);
    let (_, calls, _, bytes) = small.contents();
    assert!(calls == 30_001 && bytes > 10 << 10, "{calls} calls in {bytes} bytes");
    // After that, there is room again.
    fill(&mut ring, 201..=203);
    assert!(!ring.cut("x").unwrap().is_cut_by_size);
}
