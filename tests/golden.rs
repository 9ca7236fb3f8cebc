//! Reports made by hand, printed, and compared byte for byte with the files of `tests/golden`.
//!
//! `UPDATE_GOLDEN=1 cargo test --test golden` writes the files anew and fails wherever it changed one, so that no
//! change goes unseen: look at the difference, then run the test again without it.

#[allow(dead_code, reason = "shared with the tests of JSON")]
mod groups;
#[allow(dead_code, reason = "shared with the tests of JSON")]
mod stacks;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use iostackbreakdown::budget::{CpuShare, Detached};
use iostackbreakdown::model::histogram::{Histogram, STEPS, step_of};
use iostackbreakdown::model::ids::{Hook, Layer, Op};
use iostackbreakdown::model::report::group::By;
use iostackbreakdown::model::report::neighbour::{Neighbour, Neighbours};
use iostackbreakdown::model::report::slow::LeftOut;
use iostackbreakdown::model::report::stack::StackReport;
use iostackbreakdown::model::report::{
    Agreement, Apart, Budget, Cause, CauseKind, Cost, Diskstats, Excluded, LayerReport, Loss, LossReason, NotMeasured,
    OpReport, Probe, Report, Runs,
};
use iostackbreakdown::view::json::{self, Form, form};
use iostackbreakdown::view::text::{self, TextOptions, Unit};

const NANOSECONDS: TextOptions = TextOptions {
    unit: Unit::Nanoseconds,
    summary_only: false,
    verbose: false,
    is_interval: false,
    is_first: false,
    width: None,
};
const MICROSECONDS: TextOptions = TextOptions {
    unit: Unit::Microseconds,
    summary_only: false,
    verbose: false,
    is_interval: false,
    is_first: false,
    width: None,
};
const MILLISECONDS: TextOptions = TextOptions {
    unit: Unit::Milliseconds,
    summary_only: false,
    verbose: false,
    is_interval: false,
    is_first: false,
    width: None,
};
const SUMMARY: TextOptions = TextOptions {
    unit: Unit::Nanoseconds,
    summary_only: true,
    verbose: false,
    is_interval: false,
    is_first: false,
    width: None,
};

const VERBOSE: TextOptions = TextOptions {
    verbose: true,
    ..SUMMARY
};
const INTERVAL: TextOptions = TextOptions {
    is_interval: true,
    is_first: true,
    ..NANOSECONDS
};

const fn on_columns(width: usize, options: TextOptions) -> TextOptions {
    TextOptions {
        width: Some(width),
        ..options
    }
}

const FEW: LeftOut = LeftOut {
    limited: 1_204,
    no_room: 1,
};

/// The histogram of DESIGN.md, section 3.
const DESIGN_ROWS: &str = "\
operation = read
     nsecs               : count     distribution
     65536 -> 131071     : 1532     |********************************        |
    131072 -> 262143     : 1901     |****************************************|
    262144 -> 524287     : 377      |*******                                 |
    524288 -> 1048575    : 41       |                                        |
   1048576 -> 2097151    : 9        |                                        |
";

/// Name of the golden file, and what is printed today.
fn cases() -> Vec<(&'static str, String)> {
    let vfs = || vec![layer(Layer::Vfs, vec![read(), write(), fsync()])];
    let no_subject = Report {
        subject: String::new(),
        ..report(vec![layer(Layer::Ext4, vec![fsync()])])
    };
    vec![
        ("one_layer", printed(&report(vfs()), NANOSECONDS)),
        ("several_layers", printed(&several_layers(), NANOSECONDS)),
        ("trouble", printed(&trouble(), SUMMARY)),
        ("loss_up_to", printed(&loss_up_to(), SUMMARY)),
        ("microseconds", printed(&report(vfs()), MICROSECONDS)),
        ("milliseconds", printed(&milliseconds(), MILLISECONDS)),
        ("summary_only", printed(&several_layers(), SUMMARY)),
        ("empty_layers", printed(&empty_layers(), NANOSECONDS)),
        ("no_subject", printed(&no_subject, NANOSECONDS)),
        ("long_subject", printed(&long_subject(), SUMMARY)),
        ("intervals", intervals()),
        ("huge", printed(&huge(), NANOSECONDS)),
        ("huge_microseconds", printed(&huge(), MICROSECONDS)),
        ("huge_counts", printed(&huge_counts(), NANOSECONDS)),
        ("requests", printed(&report(vec![requests()]), NANOSECONDS)),
        (
            "requests_of_a_process",
            printed(&report(vec![requests_of_a_process()]), SUMMARY),
        ),
        (
            "requests_and_trouble",
            printed(&report(vec![requests_and_trouble()]), SUMMARY),
        ),
        ("requests_missed", printed(&report(vec![requests_missed()]), SUMMARY)),
        ("verbose", printed(&verbose(), VERBOSE)),
        ("verbose_uncounted", printed(&verbose_uncounted(), VERBOSE)),
        ("budget", printed(&detached(), SUMMARY)),
        ("stack", printed(&stack(stacks::database()), NANOSECONDS)),
        ("stack_microseconds", printed(&stack(stacks::database()), MICROSECONDS)),
        ("stack_verbose", printed(&stack(stacks::database()), VERBOSE)),
        ("stack_bare", printed(&stack(stacks::bare()), NANOSECONDS)),
        ("stack_trouble", printed(&stack(stacks::troubled()), NANOSECONDS)),
        (
            "stack_slow",
            printed(&stack(stacks::slow(10_000_000, FEW)), NANOSECONDS),
        ),
        (
            "stack_slow_all",
            printed(&stack(stacks::slow(0, LeftOut::default())), NANOSECONDS),
        ),
        ("stack_idle", printed(&stack(stacks::idle()), NANOSECONDS)),
        ("stack_interval", printed(&stack(stacks::database()), INTERVAL)),
        ("stack_interval_bare", printed(&stack(stacks::bare()), INTERVAL)),
        ("stack_interval_idle", printed(&stack(stacks::idle()), INTERVAL)),
        (
            "by_process",
            printed(&groups::by(report(vfs()), By::Process, 2, 0), NANOSECONDS),
        ),
        (
            "by_file",
            printed(&groups::by(by_several_layers(), By::File, 3, 1), SUMMARY),
        ),
        (
            "by_disk",
            printed(&groups::by(report(vec![requests()]), By::Disk, 9, 0), SUMMARY),
        ),
        (
            "stack_by_file",
            printed(&groups::by(stack(stacks::database()), By::File, 3, 1), NANOSECONDS),
        ),
        (
            "stack_by_cgroup_interval",
            printed(&groups::by(stack(stacks::database()), By::Cgroup, 2, 0), INTERVAL),
        ),
        ("narrow", of_width(60)),
        ("less_narrow", of_width(120)),
        ("wide", of_width(200)),
        (
            "by_process_idle",
            printed(&groups::by(empty_layers(), By::Process, 2, 0), SUMMARY),
        ),
    ]
}

/// Reports of every kind on a terminal of so many columns.
fn of_width(width: usize) -> String {
    let on = |options| on_columns(width, options);
    let mut waiting = requests_of_a_process();
    waiting.ops.push(fsync());
    [
        printed(&report(vec![requests()]), on(NANOSECONDS)),
        printed(&report(vec![waiting]), on(SUMMARY)),
        printed(&groups::by(by_several_layers(), By::File, 3, 1), on(SUMMARY)),
        printed(&stack(stacks::database()), on(NANOSECONDS)),
        printed(&stack(stacks::bare()), on(NANOSECONDS)),
        printed(&stack(stacks::database()), on(INTERVAL)),
        printed(&groups::by(stack(stacks::bare()), By::Cgroup, 2, 0), on(INTERVAL)),
    ]
    .concat()
}

#[test]
fn reports_are_as_recorded() {
    let update = std::env::var_os("UPDATE_GOLDEN").is_some_and(|value| value == "1");
    let mut complaints = String::new();
    for (name, now) in cases() {
        let path = golden(name);
        let recorded = fs::read_to_string(&path).unwrap_or_default();
        if recorded == now {
            continue;
        }
        if update {
            fs::write(&path, &now).unwrap();
            writeln!(complaints, "{}: written anew", path.display()).unwrap();
        } else {
            writeln!(complaints, "{}: {}", path.display(), first_difference(&recorded, &now)).unwrap();
        }
    }
    assert!(
        complaints.is_empty(),
        "UPDATE_GOLDEN=1 writes the files anew\n{complaints}"
    );
}

#[test]
fn every_golden_file_has_its_case() {
    let files: BTreeSet<PathBuf> = fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    let used: BTreeSet<PathBuf> = cases().iter().map(|(name, _)| golden(name)).collect();
    assert_eq!(files, used);
}

/// The rows of DESIGN.md, section 3, as far as one histogram serves.
#[test]
fn requests_have_a_column_of_the_queue_and_calls_have_none() {
    let text = printed(&report(vec![requests()]), SUMMARY);
    assert!(
        text.contains("operation     count   total ms  queued  avg us"),
        "{text}"
    );
    assert!(text.contains("read          3,860      667.0   8.0 %"), "{text}");
    assert!(
        text.contains("diskstats agrees: 3,867 reads, 412 writes, 24 flushes; 7 in flight at start"),
        "{text}"
    );
    assert!(!printed(&report(vec![layer(Layer::Vfs, vec![read()])]), SUMMARY).contains("queued"));
}

#[test]
fn histogram_rows_are_those_of_the_design() {
    let text = printed(&report(vec![layer(Layer::Vfs, vec![read()])]), NANOSECONDS);
    assert!(text.contains(DESIGN_ROWS), "{text}");
}

#[test]
fn without_slots_in_the_unit_the_rows_are_nanoseconds_and_say_so() {
    let uncounted = OpReport {
        unit_slots: Vec::new(),
        ..read()
    };
    let text = printed(&report(vec![layer(Layer::Vfs, vec![uncounted])]), MICROSECONDS);
    assert!(text.contains(DESIGN_ROWS), "{text}");
}

#[test]
fn reports_keep_their_form() {
    for (name, text) in cases() {
        assert_narrow(name, &text, width_of(name));
        assert!(
            text.lines().all(|line| !line.ends_with(' ')),
            "{name}: blanks at the end of a line"
        );
        assert!(
            text.ends_with("\n\n") && !text.contains("\n\n\n"),
            "{name}: paragraphs are parted by one blank line"
        );
    }
}

#[test]
fn no_number_makes_a_report_wide() {
    let numbers: Vec<u64> = (0..20)
        .map(|digits| 10_u64.pow(digits) - 1)
        .chain([u64::MAX / 1000, u64::MAX])
        .collect();
    for count in &numbers {
        for other in &numbers {
            for op in [Op::Read, Op::SyncFileRange] {
                let mut steps = vec![0; STEPS];
                steps[step_of(*other)] = *count;
                let op = OpReport {
                    total_ns: *other,
                    bytes: Some(*other),
                    extremes: Some((0, *other)),
                    histogram: Histogram::from_steps(&steps),
                    errors: vec![(5, *other), (12345, *other)],
                    queued: *other,
                    queue_ns: Some(*other),
                    apart: Apart {
                        at_start: *other,
                        never_issued: *other,
                        by_kernel: *other,
                        unowned: *other,
                        untimed: *other,
                    },
                    unit_slots: vec![0, *count, *other],
                    ..OpReport::new(op)
                };
                let report = report(vec![LayerReport {
                    excluded: Excluded {
                        socket: *other,
                        pipe: *count,
                        character_device: *other,
                        other: *count,
                    },
                    in_flight: Some(*other),
                    losses: vec![loss(LossReason::EntryMissed, *other, true)],
                    diskstats: Some(Diskstats {
                        reads: *other,
                        writes: *other,
                        discards: *other,
                        flushes: Some(*other),
                        agreement: Agreement::Agrees,
                    }),
                    ..layer(Layer::Syscall, vec![op])
                }]);
                for options in [NANOSECONDS, MICROSECONDS, MILLISECONDS] {
                    assert_narrow(
                        &format!("{count} calls, {other}, {options:?}"),
                        &printed(&report, options),
                        text::WIDTH,
                    );
                }
            }
        }
    }
}

fn by_several_layers() -> Report {
    report(vec![layer(Layer::Syscall, vec![read(), fsync()]), requests()])
}

fn several_layers() -> Report {
    let slow = OpReport {
        total_ns: 123_456_789_012,
        extremes: Some((1_023_000_000, 2_950_000_000)),
        histogram: slots(&[(29, 7), (30, 40), (31, 12)]),
        ..OpReport::new(Op::SyncFileRange)
    };
    let mut report = report(vec![
        layer(Layer::Syscall, vec![read(), never(Op::Preadv2), slow, fsync()]),
        LayerReport {
            in_flight: Some(2),
            excluded: Excluded {
                pipe: 1,
                ..Excluded::default()
            },
            ..layer(Layer::Vfs, vec![read(), write(), never(Op::Open), fsync()])
        },
        layer(Layer::Ext4, vec![never(Op::Read), never(Op::Write)]),
    ]);
    report.warnings.push(String::from(
        "3 children were not followed: the table of processes was full",
    ));
    report
}

/// Slow enough for milliseconds, but for one op whose total is less than one.
fn milliseconds() -> Report {
    let slow = OpReport {
        total_ns: 8_032_635_987,
        bytes: Some(655_360),
        extremes: Some((50_061_240, 51_873_011)),
        histogram: slots(&[(25, 160)]),
        unit_slots: vec![0, 0, 0, 0, 0, 160],
        ..OpReport::new(Op::Read)
    };
    let opens = OpReport {
        total_ns: 42_180,
        extremes: Some((1_710, 6_002)),
        histogram: slots(&[(10, 9), (11, 2), (12, 1)]),
        unit_slots: vec![12],
        ..OpReport::new(Op::Open)
    };
    report(vec![layer(
        Layer::Vfs,
        vec![
            slow,
            opens,
            OpReport {
                unit_slots: vec![20 + 4],
                ..fsync()
            },
        ],
    )])
}

fn trouble() -> Report {
    let reads = OpReport {
        errors: vec![(5, 2), (11, 1)],
        queued: 12,
        ..read()
    };
    let writes = OpReport {
        errors: vec![(28, 1_204), (512, 7), (516, 3), (4000, 2)],
        errors_unnamed: 2,
        queued: 3_000,
        ..write()
    };
    let mut report = report(vec![LayerReport {
        excluded: Excluded {
            socket: 8_000,
            pipe: 12,
            character_device: 100,
            other: 1,
        },
        losses: vec![
            loss(LossReason::ReturnMissed, 12, false),
            loss(LossReason::TableFull, 0, false),
        ],
        in_flight: Some(3),
        not_measured: vec![
            reason("fsync", "vfs_fsync_range, do_fsync: refused by this kernel"),
            reason(
                "direct reads",
                "ext4_file_read_iter is not there, and generic_file_read_iter does not see them",
            ),
        ],
        warnings: vec![String::from(
            "kretprobes were asked for (--probe kprobe); this kernel has 10 instances of each, and loses the returns \
             of more calls than that at once",
        )],
        ..layer(Layer::Vfs, vec![reads, writes])
    }]);
    report.warnings.push(String::from(
        "3 children were not followed: the table of processes was full",
    ));
    report
}

fn loss_up_to() -> Report {
    report(vec![LayerReport {
        losses: vec![
            loss(LossReason::EntryMissed, 9, true),
            loss(LossReason::ReturnMissed, 3, false),
            loss(LossReason::ClockBackwards, 1, false),
            loss(LossReason::NoStorage, 1_000_000, false),
        ],
        in_flight: Some(0),
        ..layer(Layer::Vfs, vec![read()])
    }])
}

fn empty_layers() -> Report {
    let submitted = OpReport {
        queued: 40,
        ..never(Op::Read)
    };
    report(vec![
        layer(Layer::Syscall, vec![never(Op::Read), never(Op::Write)]),
        LayerReport {
            in_flight: Some(1),
            ..layer(Layer::Vfs, vec![submitted])
        },
        LayerReport {
            not_measured: vec![reason(
                "everything",
                "ext4 is not in this kernel, neither built in nor as a module",
            )],
            ..layer(Layer::Ext4, vec![])
        },
    ])
}

fn long_subject() -> Report {
    let mut report = report(vec![layer(Layer::Vfs, vec![fsync()])]);
    report.subject = String::from(
        "cgroup /sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod3f0c9e3a_51b2_4c53.slice \
         thread 'evil\u{1b}[2J' PIDs 4711, 4712, 4713, 4714, 4715",
    );
    report.length = Duration::from_millis(93);
    report
}

/// The table of DESIGN.md, section 3, and what stands below it.
fn requests() -> LayerReport {
    let reads = OpReport {
        queue_ns: Some(53_360_000),
        apart: Apart {
            at_start: 7,
            ..Apart::default()
        },
        ..read()
    };
    let writes = OpReport {
        queue_ns: Some(264_000),
        ..write()
    };
    let flushes = OpReport {
        op: Op::Flush,
        ..fsync()
    };
    LayerReport {
        hooks: vec![Hook::RawTracepoint],
        queue_from: Some("block_io_start".to_owned()),
        diskstats: Some(Diskstats {
            reads: 3_867,
            writes: 412,
            discards: 0,
            flushes: Some(24),
            agreement: Agreement::Agrees,
        }),
        in_flight: Some(1),
        ..layer(Layer::Blk, vec![reads, writes, flushes, never(Op::Discard)])
    }
}

fn requests_of_a_process() -> LayerReport {
    let writes = OpReport {
        apart: Apart {
            at_start: 1,
            never_issued: 12,
            by_kernel: 2_120,
            ..Apart::default()
        },
        ..write()
    };
    let flushes = OpReport {
        apart: Apart {
            unowned: 1_024,
            ..Apart::default()
        },
        ..never(Op::Flush)
    };
    LayerReport {
        hooks: vec![Hook::RawTracepoint],
        neighbours: Some(neighbours()),
        ..layer(Layer::Blk, vec![read(), writes, flushes])
    }
}

/// More of them than have a line.
fn neighbours() -> Neighbours {
    let other = |pid, comm: &str, ns, requests| Neighbour {
        pid: Some(pid),
        comm: Some(comm.into()),
        is_kernel_thread: comm.contains('/'),
        ns,
        requests,
        bytes: requests * 65_536,
    };
    Neighbours {
        waited_ns: 3_400_000_000,
        own_ns: 1_100_000_000,
        own_requests: 402,
        others: vec![
            other(991, "rsync", 2_000_000_000, 11_000),
            other(211, "jbd2/nvme0n1p2-8", 60_000_000, 12),
            other(4_194_303, "a-name-of-15-ch", 50_000_000, 3),
            Neighbour {
                pid: None,
                comm: None,
                ns: 40_000_000,
                requests: 24,
                ..Neighbour::default()
            },
            other(17, "kworker/3:1H", 30_000_000, 2),
            other(18, "cat", 20_000_000, 1),
            other(19, "dd", 10_000_000, 1),
        ],
        untold_ns: 1_000_000,
        unseen: 0,
    }
}

/// Nothing was timed, and the kernel says something else.
fn requests_and_trouble() -> LayerReport {
    let untimed = |op, untimed, never_issued| OpReport {
        apart: Apart {
            untimed,
            never_issued,
            ..Apart::default()
        },
        ..never(op)
    };
    LayerReport {
        hooks: vec![Hook::Kprobe],
        queue_from: Some("the request's start_time_ns".to_owned()),
        diskstats: Some(Diskstats {
            reads: 3,
            writes: 2,
            discards: 1,
            flushes: Some(1),
            agreement: Agreement::Differs("reads 3, seen 2; writes 2, seen 13".into()),
        }),
        losses: vec![loss(LossReason::ReturnMissed, 1, false)],
        ..layer(Layer::Blk, vec![untimed(Op::Read, 2, 0), untimed(Op::Write, 1, 12)])
    }
}

/// The kernel called no program for some of them, and skipped all programs for others.
fn requests_missed() -> LayerReport {
    let reads = OpReport {
        apart: Apart {
            never_issued: 2,
            ..Apart::default()
        },
        ..read()
    };
    let caused = |reason, count, kind, event: &str| Loss {
        cause: Some(Cause {
            kind,
            event: event.into(),
            is_tracepoint: event.starts_with("block_rq"),
            programs: if event.ends_with("issue") { 1 } else { 2 },
        }),
        ..loss(reason, count, false)
    };
    use CauseKind::{NotCalled, Skipped};
    LayerReport {
        hooks: vec![Hook::RawTracepoint],
        losses: vec![
            caused(LossReason::ReturnMissed, 1_174, NotCalled, "block_rq_complete"),
            caused(LossReason::ReturnMissed, 3, Skipped, "block_rq_complete"),
            caused(LossReason::IssueMissed, 1, NotCalled, "block_rq_issue"),
            caused(LossReason::IssueMissed, 2, Skipped, "block_rq_issue"),
            caused(LossReason::ReturnMissed, 4, NotCalled, "blk_update_request"),
            loss(LossReason::IssueMissed, 5, false),
        ],
        in_flight: Some(0),
        ..layer(Layer::Blk, vec![reads])
    }
}

/// Two whole intervals and a last partial one, as they follow each other on a screen.
fn intervals() -> String {
    let mut text = String::new();
    for (time, length, calls) in [
        ("11:05:10", 1000, 900),
        ("11:05:11", 1000, 12_345),
        ("11:05:12", 412, 0),
    ] {
        let reads = OpReport {
            total_ns: calls * 1_510,
            bytes: Some(calls * 4096),
            extremes: (calls > 0).then_some((811, 11_020)),
            histogram: slots(&[(9, calls / 3), (10, calls - calls / 3)]),
            ..OpReport::new(Op::Read)
        };
        let mut report = report(vec![layer(Layer::Vfs, vec![reads])]);
        report.time_of_day = String::from(time);
        report.length = Duration::from_millis(length);
        text.push_str(&printed(&report, NANOSECONDS));
    }
    text
}

fn huge() -> Report {
    // From 2^32 ns on BCC's rows take their wide form; the last step has no end.
    let reads = OpReport {
        total_ns: u64::MAX,
        bytes: Some(u64::MAX),
        extremes: Some((17, u64::MAX)),
        histogram: slots(&[(4, 3_123_456_789), (31, 99_999_999), (32, 2_000_000_000), (40, 1)]),
        unit_slots: vec![3_123_456_789, 0, 0, 99_999_999, 2_000_000_001],
        ..OpReport::new(Op::Read)
    };
    let writes = OpReport {
        op: Op::CopyFileRange,
        histogram: slots(&[(20, 11), (31, 9_999_999_999), (30, 123)]),
        unit_slots: vec![0, 11, 9_999_999_999, 123],
        ..reads.clone()
    };
    let mut report = report(vec![layer(Layer::Syscall, vec![reads, writes])]);
    report.length = Duration::from_secs(400_000);
    report
}

fn huge_counts() -> Report {
    let reads = OpReport {
        total_ns: u64::MAX,
        bytes: Some(1),
        extremes: Some((1, u64::MAX)),
        histogram: slots(&[(0, u64::MAX), (3, u64::MAX / 2)]),
        errors: vec![(5, u64::MAX)],
        errors_unnamed: u64::MAX,
        ..OpReport::new(Op::Read)
    };
    let writes = OpReport {
        op: Op::SyncFileRange,
        histogram: slots(&[(35, u64::MAX)]),
        ..reads.clone()
    };
    report(vec![LayerReport {
        losses: vec![
            loss(LossReason::ReturnMissed, u64::MAX, false),
            loss(LossReason::EntryMissed, u64::MAX, true),
        ],
        ..layer(Layer::Syscall, vec![reads, writes])
    }])
}

/// The first op of DESIGN.md's example, and its classic slots in microseconds.
fn read() -> OpReport {
    OpReport {
        total_ns: 667_000_000,
        bytes: Some(15_810_560),
        extremes: Some((66_120, 1_704_113)),
        histogram: slots(&[(16, 1532), (17, 1901), (18, 377), (19, 41), (20, 9)]),
        unit_slots: vec![0, 0, 0, 0, 0, 0, 1500, 1925, 385, 43, 7, 0],
        ..OpReport::new(Op::Read)
    }
}

fn write() -> OpReport {
    OpReport {
        total_ns: 1_234_567,
        bytes: Some(6_700_032),
        extremes: Some((0, 14_650)),
        histogram: slots(&[(0, 2), (10, 380), (11, 29), (13, 1)]),
        unit_slots: vec![382, 29, 0, 1],
        ..OpReport::new(Op::Write)
    }
}

/// Too few for a p99, and an op that moves no bytes.
fn fsync() -> OpReport {
    OpReport {
        total_ns: 19_896_000,
        extremes: Some((786_000, 1_400_000)),
        histogram: slots(&[(19, 20), (20, 4)]),
        unit_slots: vec![0, 0, 0, 0, 0, 0, 0, 0, 0, 20, 4],
        ..OpReport::new(Op::Fsync)
    }
}

fn never(op: Op) -> OpReport {
    OpReport {
        bytes: Some(0),
        ..OpReport::new(op)
    }
}

/// Calls in the powers of two named, spread over their steps as evenly as they can be.
fn slots(counts: &[(u32, u64)]) -> Histogram {
    let mut steps = vec![0; STEPS];
    for (slot, count) in counts {
        let first = if *slot == 0 { 0 } else { step_of(1 << slot) };
        let last = step_of((1 << (slot + 1)) - 1);
        let wide = (last - first + 1) as u64;
        for (calls, place) in steps[first..=last].iter_mut().zip(0..) {
            *calls = count / wide + u64::from(place < count % wide);
        }
    }
    Histogram::from_steps(&steps)
}

fn report(layers: Vec<LayerReport>) -> Report {
    Report {
        time_of_day: String::from("11:05:10"),
        length: Duration::from_millis(12_412),
        subject: String::from("PID 4711 (postgres)"),
        layers,
        cost: Cost {
            process: Duration::from_micros(6_204),
            ..Cost::default()
        },
        ..Report::default()
    }
}

/// A report of a run that was asked to tell all it knows.
fn verbose() -> Report {
    let runs = |count, ns| Some(Runs { count, ns });
    let on = |layer, hook, functions: &[&str]| {
        let functions = functions.iter().map(|&name| name.to_owned());
        Probe::new(layer, hook, functions.collect())
    };
    let vfs = LayerReport {
        losses: vec![
            loss(LossReason::ReturnMissed, 12, false),
            loss(LossReason::EntryMissed, 2, true),
        ],
        in_flight: Some(3),
        ..layer(
            Layer::Vfs,
            vec![
                OpReport {
                    losses: vec![loss(LossReason::ReturnMissed, 12, false)],
                    ..read()
                },
                write(),
            ],
        )
    };
    let probes = vec![
        Probe {
            entry: runs(84_201, 3_452_241),
            leave: runs(84_189, 4_377_828),
            skipped: Some(2),
            ..on(Some(Layer::Vfs), Hook::Fentry, &["vfs_read"])
        },
        Probe {
            entry: runs(2_048, 122_880),
            skipped: Some(0),
            ..on(
                Some(Layer::Vfs),
                Hook::Session,
                &["vfs_write", "vfs_writev", "vfs_iter_write"],
            )
        },
        Probe {
            entry: runs(0, 0),
            ..on(None, Hook::RawTracepoint, &["sched_process_exit"])
        },
    ];
    Report {
        probes,
        cost: Cost {
            process: Duration::from_micros(6_204),
            has_runs: true,
            ..Cost::default()
        },
        ..report(vec![vfs])
    }
}

/// The kernel did not let the cost be counted.
fn verbose_uncounted() -> Report {
    let mut report = verbose();
    for probe in &mut report.probes {
        (probe.entry, probe.leave, probe.skipped) = (None, None, None);
    }
    report.layers[0].losses.clear();
    report.layers[0].skips_unknown = true;
    report.cost = Cost {
        process: Duration::from_micros(6_204),
        has_runs: false,
        no_runs: Some(String::from("Operation not permitted")),
        ..Cost::default()
    };
    report
}

/// One of two layers was detached in its span, another one before it.
fn detached() -> Report {
    let percent = |percent: u64| CpuShare {
        ns_per_s: percent * 10_000_000,
    };
    let gone = |layer, seconds, until| Detached {
        layer,
        after: Duration::from_secs(seconds),
        until,
        of_layer: percent(4),
        of_all: percent(6),
        under_way: Some(0),
    };
    let why = |what: &str, when: &str| NotMeasured {
        what: what.into(),
        reason: format!("detached {when} after the start, to keep to --budget"),
    };
    let vfs = LayerReport {
        not_measured: vec![why("everything since then", "12.0 s")],
        ..layer(Layer::Vfs, vec![read(), write()])
    };
    let ext4 = LayerReport {
        not_measured: vec![why("everything", "3.0 s")],
        ..layer(Layer::Ext4, Vec::new())
    };
    let mut report = verbose();
    report.layers = vec![vfs, LayerReport { hooks: vec![], ..ext4 }];
    report.cost.budget = Some(Budget {
        limit: percent(5),
        detached: vec![
            gone(Layer::Ext4, 3, Some(Duration::from_secs(4))),
            gone(Layer::Vfs, 12, None),
        ],
    });
    report
}

/// The whole stack's, and some trouble of the layers that it was made of.
fn stack(stack: StackReport) -> Report {
    let mut report = trouble();
    report.filter.pids = vec![4711];
    report.stack = Some(stack);
    let calls = LayerReport {
        in_flight: Some(1),
        ..layer(Layer::Syscall, vec![read()])
    };
    report.layers.insert(0, calls);
    report
}

fn layer(layer: Layer, ops: Vec<OpReport>) -> LayerReport {
    LayerReport {
        ops,
        ..LayerReport::new(layer)
    }
}

fn loss(reason: LossReason, count: u64, up_to: bool) -> Loss {
    Loss {
        reason,
        count,
        up_to,
        cause: None,
    }
}

fn reason(what: &str, reason: &str) -> NotMeasured {
    NotMeasured {
        what: String::from(what),
        reason: String::from(reason),
    }
}

/// As text; and the same when the report has been written and read by another process, as JSON, too. That itself is read back.
fn printed(report: &Report, options: TextOptions) -> String {
    let text = |report: &Report| {
        let mut out = Vec::new();
        text::print(report, &options, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    let json = |report: &Report| {
        let mut out = Vec::new();
        json::print(report, Form::Full, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    let bytes = postcard::to_allocvec(report).unwrap();
    let back: Report = postcard::from_bytes(&bytes).unwrap();
    assert_eq!((text(&back), json(&back)), (text(report), json(report)));
    let back: form::Report = serde_json::from_str(&json(report)).unwrap();
    assert_eq!(back, form::Report::from(report));
    text(report)
}

/// Columns that a golden file is made for.
fn width_of(name: &str) -> usize {
    match name {
        "narrow" => 60,
        "less_narrow" => 120,
        "wide" => 200,
        _ => text::WIDTH,
    }
}

/// But for lines with a file's name, which stays whole.
fn assert_narrow(name: &str, text: &str, width: usize) {
    for line in text.lines().filter(|line| !line.starts_with("file = …/a/long/way/")) {
        assert!(
            line.chars().count() <= width,
            "{name}: {} columns: {line}",
            line.chars().count()
        );
    }
}

fn first_difference(recorded: &str, now: &str) -> String {
    let (mut was, mut is) = (recorded.lines(), now.lines());
    for number in 1.. {
        match (was.next(), is.next()) {
            (None, None) => break,
            (a, b) if a == b => {}
            (a, b) => return format!("line {number}\n  recorded: {a:?}\n  now:      {b:?}"),
        }
    }
    String::from("differs in line ends only")
}

fn golden(name: &str) -> PathBuf {
    folder().join(name).with_extension("txt")
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}
