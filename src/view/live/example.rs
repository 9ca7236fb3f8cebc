//! Seconds for tests: a database, whose commits are slow in some of them, and names that would command a terminal.

use std::time::Duration;

use jiff::Timestamp;

use super::history::Beside;
use super::model::{Facts, Model, Shows};
use crate::model::histogram::Histogram;
use crate::model::ids::{By, Family, Layer, Op, Row};
use crate::model::report::group::{GroupReport, GroupsReport, Numbers, OthersReport, Who};
use crate::model::report::moment::{DiskUse, Moment, MomentGroup, OpenFileUse};
use crate::model::report::records::{Limit, Limited};
use crate::model::report::slow::{CallPath, PathKind, SlowCall, SlowRow};
use crate::model::report::stack::{FamilyReport, RowReport, StackReport};
use crate::model::report::{LayerReport, OpReport, Report};

const ROWS: [Row; 10] = [
    Row::Layer(Layer::Syscall),
    Row::Layer(Layer::Vfs),
    Row::Layer(Layer::Ext4),
    Row::Queue,
    Row::Device,
    Row::Others,
    Row::Journal,
    Row::Lock,
    Row::Other,
    Row::RunQueue,
];
pub const HOSTILE: &str = "a\u{1b}[31m\u{202e}b";

fn family(family: Family, calls: u64, each_ns: u64, parts: [u64; 10]) -> FamilyReport {
    let mut histogram = Histogram::default();
    for call in 0..calls {
        histogram.record(each_ns / 2 + each_ns * (call % 16) / 16);
    }
    let total_ns = calls * each_ns;
    let whole: u64 = parts.iter().sum();
    let mut rows: Vec<RowReport> = ROWS
        .iter()
        .zip(parts)
        .map(|(row, part)| RowReport {
            row: *row,
            ns: Some(total_ns * part / whole),
            calls: (!row.is_wait()).then_some(calls),
        })
        .collect();
    let sum: u64 = rows.iter().filter_map(|row| row.ns).sum();
    rows[0].ns = rows[0].ns.map(|ns| ns + total_ns - sum);
    FamilyReport {
        total_ns,
        bytes: if family == Family::Read { calls * 8192 } else { 0 },
        extremes: Some((each_ns / 2, each_ns * 2)),
        histogram,
        rows,
        ..FamilyReport::new(family)
    }
}

fn families(second: u64) -> Vec<FamilyReport> {
    // Each seventh second, the disk is slow.
    let slow = if second % 7 == 3 { 9 } else { 1 };
    vec![
        family(
            Family::Read,
            900 + second * 7 % 90,
            60_000 * slow,
            [10, 5, 10, 5, 60, 5, 0, 0, 0, 5],
        ),
        family(
            Family::Write,
            1_600 + second,
            50_000,
            [10, 30, 50, 0, 0, 0, 0, 0, 0, 10],
        ),
        FamilyReport::new(Family::Open),
        family(Family::Fsync, 120, 3_000_000 * slow, [0, 1, 20, 3, 30, 0, 40, 0, 0, 6]),
        family(Family::Metadata, 40, 70_000, [60, 10, 30, 0, 0, 0, 0, 0, 0, 0]),
    ]
}

fn group(second: u64, pid: u64, comm: &str, share: u64) -> GroupReport {
    let all = families(second).into_iter();
    let families = all.filter(|family| family.count() > 0).map(|mut family| {
        family.total_ns /= share;
        family
            .rows
            .iter_mut()
            .for_each(|row| row.ns = row.ns.map(|ns| ns / share));
        family
    });
    GroupReport {
        who: Who::Process {
            pid,
            comm: comm.to_owned(),
        },
        numbers: Numbers {
            families: families.collect(),
            ..Numbers::default()
        },
    }
}

pub fn report(second: usize) -> Report {
    let number = second as u64;
    let groups = vec![
        group(number, 4711, "postgres", 2),
        group(number, 812, "tar", 4),
        group(number, 99, HOSTILE, 8),
    ];
    let mut device = OpReport::new(Op::Read);
    (0..50_u64).for_each(|request| device.histogram.record(1_000_000 + request * 100_000));
    Report {
        start: Timestamp::from_second(1_795_615_200 + second as i64).unwrap_or_default(),
        time_of_day: format!("03:{:02}:{:02}", second / 60 % 60, second % 60),
        length: Duration::from_secs(1),
        stack: Some(StackReport {
            families: families(number),
            ..StackReport::default()
        }),
        layers: vec![LayerReport {
            ops: vec![device],
            ..LayerReport::new(Layer::Blk)
        }],
        groups: Some(GroupsReport {
            by: By::Process,
            groups,
            others: Some(OthersReport {
                groups: 3,
                ..OthersReport::default()
            }),
            total: Numbers::default(),
        }),
        ..Report::default()
    }
}

fn path(text: &str) -> CallPath {
    CallPath {
        kind: PathKind::Whole,
        text: text.to_owned(),
    }
}

pub fn slow(second: usize) -> (Vec<SlowCall>, u64) {
    if second % 7 != 3 {
        return (Vec::new(), 0);
    }
    let call = |tid: u32, name: &str, total_ns: u64| SlowCall {
        ended: Timestamp::from_millisecond(1_795_615_200_000 + second as i64 * 1000 + i64::from(tid))
            .unwrap_or_default(),
        pid: 4711,
        tid,
        comm: "postgres".to_owned(),
        op: Op::Fdatasync,
        path: Some(path(name)),
        inode: None,
        offset: None,
        size: None,
        bytes: None,
        errno: None,
        total_ns,
        rows: vec![
            SlowRow {
                row: Row::Device,
                ns: total_ns / 4,
            },
            SlowRow {
                row: Row::Journal,
                ns: total_ns - total_ns / 4,
            },
        ],
        not_split: false,
    };
    let calls = vec![
        call(7, "/srv/db/base/16384/16602", 27_000_000),
        call(8, &format!("/srv/{HOSTILE}"), 31_000_000),
    ];
    (calls, 2)
}

pub fn beside(second: usize) -> Beside {
    let disk = |name: &str, busy_ns| DiskUse {
        name: name.to_owned(),
        requests: 300 + second as u64,
        read_bytes: Some(4 << 20),
        written_bytes: Some(1 << 20),
        busy_ns,
        requests_ns: busy_ns * 3,
        max_depth: None,
        span_ns: 1_000_000_000,
    };
    let file = |name: &str| Who::File {
        inode: None,
        path: Some(path(name)),
    };
    let group = |name: &str, ns| MomentGroup {
        who: file(name),
        calls: 70,
        ns,
        bytes: 70 * 8192,
        longest_ns: ns / 10,
        rows: vec![(Row::Journal, ns / 2)],
    };
    let open = |fd, name: &str, read_bytes, written_bytes| OpenFileUse {
        pid: 4711,
        fd: Some(fd),
        who: file(name),
        calls: 60,
        read_bytes,
        written_bytes,
        ns: 20_000_000,
        longest_ns: 3_000_000,
    };
    Beside {
        trouble: None,
        disks: Some(vec![disk("nvme0n1", 720_000_000), disk("sda", 10_000_000)]),
        moment: Some(Moment {
            groups: vec![(
                By::File,
                vec![group("/srv/db/base/16384/16602", 90_000_000), group(HOSTILE, 1_000_000)],
            )],
            open_files: vec![
                open(7, "/srv/db/base/16384/16602", 0, 491_520),
                open(8, "/srv/db/pg_wal/0001", 4 << 20, 0),
            ],
            ..Moment::default()
        }),
    }
}

pub fn facts() -> Facts {
    Facts {
        shows: Shows::Kernel,
        host: "db7".to_owned(),
        subject: String::new(),
        by: Some(By::Process),
        slower_ns: Some(10_000_000),
        limits: vec![
            Limit {
                of: Limited::Family(Family::Fsync),
                ns: 20_000_000,
            },
            Limit {
                of: Limited::Device,
                ns: 5_000_000,
            },
            Limit {
                of: Limited::Op(Op::Pread64),
                ns: 1,
            },
        ],
        missing: None,
        recording: None,
        has_records: false,
        utc_offset: 0,
    }
}

/// After so many seconds.
pub fn model(seconds: usize) -> Model {
    with(facts(), seconds)
}

pub fn with(facts: Facts, seconds: usize) -> Model {
    let mut model = Model::new(facts);
    for second in 0..seconds {
        model.second(report(second), slow(second), beside(second));
    }
    settle(&mut model);
    model
}

/// Gives it the second that it needs.
pub fn settle(model: &mut Model) {
    if let Some(number) = model.needs_second() {
        model.give_second(number, report(number), beside(number));
    }
}
