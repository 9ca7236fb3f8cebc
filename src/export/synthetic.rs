//! Records for tests: a database and tar, as a machine could have recorded them, with everything that is hard.

use iostackbreakdown::model::abi::{ROW_DEVICE, ROW_FS, ROW_JOURNAL, ROW_QUEUE, ROW_SYSCALL, ROW_VFS, ROWS};
use iostackbreakdown::model::ids::{Layer, Op, Origin, ReadClass};
use iostackbreakdown::model::record::{
    AsyncCall, Call, Fault, Kind, Lost, Mark, OpenFile, Records, Request, Sleep, Thread,
};
use iostackbreakdown::model::recording::{Clocks, Disk, Meta, Partition};
use iostackbreakdown::model::report::slow::{CallPath, Inode};

/// A process with two threads; one that opens files; and the thread of the journal.
pub const POSTGRES: u32 = 4711;
pub const WORKER: u32 = 4715;
pub const TAR: u32 = 812;
/// A thread of tar that waits all the time.
pub const HUNG: u32 = 813;
pub const JOURNAL: u32 = 300;
pub const BEGAN_NS: u64 = 1_000_000_000_000;
pub const TABLE: &str = "/srv/db/base/16602";
/// A name that is hostile to every format.
pub const HOSTILE: &str = "/srv/a;b\n\"c' \u{1b}[31m\\d";
pub const LOST_FROM: u64 = BEGAN_NS + 31_000_000;
pub const LOST_TO: u64 = BEGAN_NS + 35_000_000;
/// Iterations of [`batches`], each of which has a fixed set of calls.
pub const ROUNDS: u64 = 100;

pub fn longest() -> String {
    format!("/srv/{}", "n".repeat(255))
}

pub fn call(tid: u32, op: Op, begin_ns: u64, end_ns: Option<u64>) -> Call {
    Call {
        tid,
        pid: if tid == WORKER { POSTGRES } else { tid },
        begin_ns,
        end_ns,
        op,
        ..Call::default()
    }
}

pub fn meta() -> Meta {
    let mut rows = vec![String::new(); ROWS as usize];
    for (slot, name) in [
        (ROW_SYSCALL, "syscall"),
        (ROW_VFS, "vfs"),
        (ROW_FS, "ext4"),
        (ROW_QUEUE, "queue"),
        (ROW_DEVICE, "device"),
        (ROW_QUEUE + 2, "others' I/O"),
        (ROW_JOURNAL, "journal"),
        (ROW_JOURNAL + 1, "lock"),
        (ROW_JOURNAL + 2, "other"),
        (ROW_JOURNAL + 3, "run queue"),
    ] {
        rows[slot as usize] = name.to_owned();
    }
    let mut meta = Meta {
        schema: 1,
        tool: "0.1.0".to_owned(),
        kernel: "6.1.0-50-amd64".to_owned(),
        host: "db7".to_owned(),
        boot_id: "6b1f6a7e-5a8f-4c5e-9f7e-0d6f2b1c3a4d".to_owned(),
        cpus: 2,
        clocks: Clocks {
            offset_ns: 1_795_500_000_000_000_000,
            utc_offset: 0,
        },
        disks: vec![Disk {
            name: "sda".to_owned(),
            number: [8, 0],
            sectors: 1 << 30,
            partitions: vec![Partition {
                name: "sda1".to_owned(),
                number: [8, 1],
                start: 2048,
                sectors: 1 << 29,
            }],
            ..Disk::default()
        }],
        rows,
        has_records: true,
        ..Meta::default()
    };
    meta.run.began_ns = BEGAN_NS;
    meta
}

fn thread(tid: u32, pid: u32, comm: &str) -> Thread {
    Thread {
        tid,
        pid,
        at_ns: BEGAN_NS,
        parent: 1,
        comm: comm.to_owned(),
        ..Thread::default()
    }
}

pub fn file(number: u32, path: &str, size: u64, found_at: Option<(u32, i32)>) -> OpenFile {
    OpenFile {
        number,
        at_ns: BEGAN_NS,
        inode: Some(Inode::on([8, 1], 100 + u64::from(number))),
        mode: 0o100_644,
        links: 1,
        size,
        file_system: "ext4".to_owned(),
        path: Some(CallPath::whole(path)),
        found_at,
        ..OpenFile::default()
    }
}

fn request(op: Op, tid: u32, sector: u64, bytes: u64, times: [u64; 3]) -> Request {
    let [submitted, issued, ended] = times;
    Request {
        disk: [8, 0],
        partition: [8, 1],
        sector,
        bytes,
        op,
        is_sync: op == Op::Read,
        submitted_ns: Some(submitted),
        started_ns: Some(submitted),
        issued_ns: Some(issued),
        ended_ns: ended,
        tid,
        pid: if tid == WORKER { POSTGRES } else { tid },
        origin: if tid == JOURNAL { Origin::Journal } else { Origin::Own },
        inode: Some(Inode::on([8, 1], 101)),
        cpu: 1,
        ..Request::default()
    }
}

/// A read that waits for its request, with the request and the sleep.
fn read_from_disk(at: u64, round: u64, to: &mut Records) {
    let (offset, end) = (round * 8192, at + 812_000);
    let mut read = call(POSTGRES, Op::Pread64, at, Some(end));
    (read.cpus, read.files, read.fd) = ([0, 1], [1, 0], Some(7));
    (read.offset, read.size, read.value, read.class) = (Some(offset), Some(8192), 8192, Some(ReadClass::WaitedForOwn));
    read.rows[ROW_SYSCALL as usize] = 2_000;
    read.rows[ROW_VFS as usize] = 3_000;
    read.rows[ROW_FS as usize] = 5_000;
    read.rows[ROW_QUEUE as usize] = 12_000;
    read.rows[ROW_DEVICE as usize] = 790_000;
    let sector = 2048 + 1000 + round * 16;
    to.requests.push(request(
        Op::Read,
        POSTGRES,
        sector,
        8192,
        [at + 6_000, at + 18_000, at + 808_000],
    ));
    to.sleeps.push(Sleep {
        tid: POSTGRES,
        out_ns: at + 7_000,
        woken_ns: Some(at + 808_500),
        in_ns: at + 809_000,
        row: ROW_DEVICE as u8,
        waker_tid: 0,
        waker_pid: 0,
        cpus: [0, 1],
    });
    to.calls.push(read);
}

/// A cached read of the other thread, during the first one's read.
fn cached_read(at: u64, round: u64, to: &mut Records) {
    let mut read = call(WORKER, Op::Read, at, Some(at + 1_900));
    (read.files, read.fd, read.class) = ([2, 0], Some(8), Some(ReadClass::FromCache));
    (read.offset, read.size, read.value) = (Some(round * 100), Some(4096), 100);
    read.rows[ROW_SYSCALL as usize] = 400;
    read.rows[ROW_VFS as usize] = 1_500;
    to.calls.push(read);
}

/// An fsync that waits for the journal, whose thread writes and flushes.
fn fsync(at: u64, to: &mut Records) {
    let mut write = call(POSTGRES, Op::Write, at, Some(at + 5_000));
    (write.files, write.fd, write.offset, write.size, write.value) = ([1, 0], Some(7), Some(4096), Some(512), 512);
    write.rows[ROW_VFS as usize] = 5_000;
    to.calls.push(write);
    let at = at + 10_000;
    let end = at + 5_000_000;
    let mut fsync = call(POSTGRES, Op::Fsync, at, Some(end));
    (fsync.files, fsync.fd) = ([1, 0], Some(7));
    fsync.rows[ROW_SYSCALL as usize] = 1_000;
    fsync.rows[ROW_JOURNAL as usize] = 4_999_000;
    let mut journal = request(
        Op::Write,
        JOURNAL,
        900_000,
        16_384,
        [at + 20_000, at + 30_000, at + 2_000_000],
    );
    (journal.is_fua, journal.is_sync, journal.inode) = (true, true, None);
    to.requests.push(journal);
    to.requests.push(request(
        Op::Flush,
        JOURNAL,
        0,
        0,
        [at + 2_100_000, at + 2_100_500, at + 4_800_000],
    ));
    to.sleeps.push(Sleep {
        tid: POSTGRES,
        out_ns: at + 1_000,
        woken_ns: None,
        in_ns: end,
        row: ROW_JOURNAL as u8,
        waker_tid: JOURNAL,
        waker_pid: JOURNAL,
        cpus: [0, 0],
    });
    to.calls.push(fsync);
}

/// tar opens, reads and closes a file, and an open fails.
fn tar(at: u64, number: u32, to: &mut Records) {
    let mut open = call(TAR, Op::Openat, at, Some(at + 20_000));
    (open.files, open.value, open.fd, open.cpus) = ([number, 0], 3, Some(3), [1, 1]);
    to.calls.push(open);
    let mut read = call(TAR, Op::Read, at + 30_000, Some(at + 40_000));
    (read.files, read.fd, read.offset, read.size, read.value) = ([number, 0], Some(3), Some(0), Some(10_240), 777);
    read.cpus = [1, 1];
    read.class = Some(ReadClass::FromCache);
    to.calls.push(read);
    let mut close = call(TAR, Op::Close, at + 50_000, Some(at + 51_000));
    (close.files, close.fd, close.cpus) = ([number, 0], Some(3), [1, 1]);
    to.calls.push(close);
    let mut failed = call(TAR, Op::Newfstatat, at + 60_000, Some(at + 61_000));
    (failed.value, failed.cpus) = (-2, [1, 1]);
    to.calls.push(failed);
}

/// A direct read by io_uring.
fn asynchronous(at: u64) -> AsyncCall {
    AsyncCall {
        pid: TAR,
        tid: TAR,
        op: Op::Read,
        begin_ns: at,
        attempt_end_ns: at + 100,
        end_ns: at + 3_000_000,
        key: 0xffff_8880_0000_1000,
        file: 1,
        offset: Some(0),
        size: Some(4096),
        value: 4096,
        is_direct: true,
        ..AsyncCall::default()
    }
}

/// The records, as they arrive.
pub fn batches() -> Vec<Records> {
    let mut first = Records {
        threads: vec![
            thread(POSTGRES, POSTGRES, "postgres"),
            thread(WORKER, POSTGRES, "pg;work\n\"er"),
            thread(TAR, TAR, "tar"),
            thread(HUNG, TAR, "tar"),
            thread(JOURNAL, JOURNAL, "jbd2/sda1-8"),
        ],
        files: vec![
            file(1, TABLE, 10 << 20, Some((POSTGRES, 7))),
            file(2, "/srv/db/pg_wal/1", 20_000, None),
            file(3, HOSTILE, 777, None),
            file(4, &longest(), 777, None),
        ],
        ..Records::default()
    };
    let mut batches = Vec::new();
    for round in 0..ROUNDS {
        let at = BEGAN_NS + 1_000_000 + round * 1_000_000;
        let mut batch = std::mem::take(&mut first);
        match round % 10 {
            // An fsync takes as long as five rounds.
            0 => fsync(at, &mut batch),
            1..=5 => {}
            _ => read_from_disk(at, round, &mut batch),
        }
        cached_read(at + 100_000, round, &mut batch);
        tar(at + 200_000, 3 + (round % 2) as u32, &mut batch);
        batches.push(batch);
    }
    let mut last = Records::default();
    let at = BEGAN_NS + 50_000_000;
    // It was merged into another one, and never issued itself.
    let mut merged = request(Op::Write, TAR, 500_000, 4096, [at + 10, at + 20, at + 900_000]);
    merged.issued_ns = None;
    last.requests.push(merged);
    last.asynchronous.push(asynchronous(at));
    last.faults.push(Fault {
        tid: WORKER,
        pid: POSTGRES,
        begin_ns: at,
        end_ns: at + 2_000,
        layer: Layer::Ext4,
        file: 2,
        offset: 4096,
        is_write: false,
        errno: 0,
    });
    last.marks.push(Mark {
        at_ns: at,
        text: "slow: fsync of 500 ms\n\"'".to_owned(),
    });
    for (kind, records) in [(Kind::Call, 2113), (Kind::Request, 7)] {
        last.lost.push(Lost {
            cpu: 1,
            kind,
            records,
            from_ns: LOST_FROM,
            to_ns: LOST_TO,
        });
    }
    // A read that hangs from the start to the end.
    let mut hung = call(HUNG, Op::Read, BEGAN_NS + 500, None);
    (hung.files, hung.fd, hung.size, hung.cpus) = ([2, 0], Some(1), Some(1), [1, 1]);
    hung.pid = TAR;
    last.calls.push(hung);
    batches.push(last);
    batches
}
