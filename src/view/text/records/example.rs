//! Reports for tests, with names that would command a terminal.

use crate::model::ids::Op;
use crate::model::record::Kind;
use crate::model::report::records::{
    AccessLevel, AccessReport, Accesses, DiskName, DiskSeeks, DiskUsage, FileAccess, FileName, Incomplete, LevelAccess,
    Limit, LimitReport, Limited, LimitsReport, Owner, ProcessName, RecordsReport, SeekPair, SeekRow, SeekSums, SeeksBy,
    SeeksReport, Served, ServedOther, SizeCount, StreamAccess, Waiter,
};
use crate::model::report::slow::{CallPath, Inode};

fn process(pid: u32, comm: &str) -> ProcessName {
    ProcessName {
        pid,
        comm: Some(comm.to_owned()),
    }
}

fn file(path: &str) -> FileName {
    FileName {
        inode: Some(Inode::on([8, 1], 131)),
        path: Some(CallPath::whole(path)),
    }
}

fn accesses(count: u64, sequential: u64, in_streams: Option<u64>) -> Accesses {
    Accesses {
        count,
        bytes: count * 8192,
        sequential,
        sequential_in_streams: in_streams,
    }
}

fn level(level: AccessLevel, read: Accesses, write: Accesses, sizes: &[(u64, u64)]) -> LevelAccess {
    LevelAccess {
        level,
        read,
        write,
        span_ns: 10_000_000_000,
        sizes: sizes.iter().map(|&(bytes, count)| SizeCount { bytes, count }).collect(),
        sizes_are_incomplete: false,
    }
}

pub fn access() -> AccessReport {
    let none = Accesses::default();
    AccessReport {
        files: vec![
            FileAccess {
                file: file("/srv/db/base/16384/16602"),
                levels: vec![
                    level(
                        AccessLevel::Vfs,
                        accesses(61_302, 7_601, Some(43_524)),
                        none,
                        &[(8192, 61_302)],
                    ),
                    level(
                        AccessLevel::Blk,
                        accesses(9_911, 307, None),
                        none,
                        &[(8192, 9_613), (16_384, 298)],
                    ),
                ],
                streams: vec![StreamAccess {
                    process: process(4711, "postgres"),
                    read: accesses(61_302, 43_524, Some(43_524)),
                    write: none,
                }],
            },
            FileAccess {
                file: file("/srv/db/pg_wal/\u{1b}[31m00000001000000A3"),
                levels: vec![level(
                    AccessLevel::Vfs,
                    accesses(10, 0, Some(0)),
                    accesses(8_192, 8_000, Some(8_192)),
                    &[(100, 100), (512, 100), (1024, 100), (4096, 100), (8192, 7_802)],
                )],
                streams: vec![],
            },
        ],
        more_files: 3,
        without_file: 2,
        on_two_files: 1_000,
        out_of_order: 1,
        ..AccessReport::default()
    }
}

fn disk() -> DiskName {
    DiskName {
        major: 8,
        minor: 0,
        name: Some("sda".to_owned()),
        bytes: Some(1_000_204_886_016),
    }
}

fn usage() -> DiskUsage {
    DiskUsage {
        disk: disk(),
        requests: 48_210,
        busy_ns: 4_510_000_000,
        device_ns: 8_000_000_000,
        max_depth: 32,
        span_ns: 10_000_000_000,
    }
}

pub fn seeks() -> SeeksReport {
    let row = |from, to, count| SeekRow { from, to, count };
    let pair = |mover, after, seeks, sectors, device_ns| SeekPair {
        mover: Owner::Process(mover),
        after: Owner::Process(after),
        sums: SeekSums {
            seeks,
            sectors,
            device_ns,
        },
    };
    let (tar, postgres) = (process(812, "tar"), process(4711, "postgres"));
    SeeksReport {
        by: SeeksBy::Process,
        disks: vec![DiskSeeks {
            disk: disk(),
            requests: 48_210,
            seeks: 31_004,
            sectors: 31_004 * 80_000_000,
            rows: vec![
                row(-268_435_455, -134_217_728, 4_011),
                row(-1, -1, 0),
                row(0, 0, 17_206),
                row(1, 1, 12),
            ],
            pairs: vec![
                pair(tar.clone(), postgres.clone(), 9_112, 1_200_000_000_000, 61_900_000_000),
                pair(postgres.clone(), postgres, 98, 610_400, 58_100_000),
            ],
            other_pairs: SeekSums {
                seeks: 1,
                sectors: 1,
                device_ns: 1,
            },
            left_out: 24,
            usage: usage(),
        }],
        out_of_order: 0,
    }
}

pub fn limits() -> LimitsReport {
    let limit = |of, ns| Limit { of, ns };
    let waiter = |pid, comm, broken| Waiter {
        process: process(pid, comm),
        broken,
    };
    LimitsReport {
        limits: vec![
            LimitReport {
                limit: limit(Limited::Family(crate::model::ids::Family::Read), 10_000_000),
                broken: 483,
                count: 61_302,
                longest_ns: 71_200_000,
                under_way: 1,
                waited: vec![waiter(4711, "postgres", 483)],
                served: Some(Served {
                    own_ns: 12,
                    others: vec![ServedOther {
                        process: process(812, "tar\u{202e}"),
                        device_ns: 88,
                    }],
                    unknown_ns: 3,
                }),
            },
            LimitReport {
                limit: limit(Limited::Op(Op::Fsync), 50_500_000),
                broken: 0,
                count: 801,
                longest_ns: 0,
                under_way: 0,
                waited: vec![],
                served: Some(Served::default()),
            },
            LimitReport {
                limit: limit(Limited::Device, 20_000_000),
                broken: 611,
                count: 48_210,
                longest_ns: 69_800_000,
                under_way: 0,
                waited: vec![
                    waiter(812, "tar", 400),
                    waiter(4711, "postgres", 200),
                    waiter(211, "jbd2/sda1-8", 10),
                    waiter(0, "", 1),
                ],
                served: None,
            },
        ],
        disks: vec![usage()],
    }
}

pub fn full() -> RecordsReport {
    RecordsReport {
        access: Some(access()),
        seeks: Some(seeks()),
        limits: Some(limits()),
        incomplete: vec![Incomplete {
            kind: Kind::Call,
            records: 2_113,
            from_ns: 7_120_000_000,
            to_ns: 7_164_000_000,
        }],
    }
}
