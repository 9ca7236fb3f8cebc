//! Hand-written reports with options for printing them: the scenes of `tests/golden`, which guests read back, too.

#[path = "../groups/mod.rs"]
pub mod groups;
pub mod kept;
pub mod reader;
#[path = "../stacks/mod.rs"]
pub mod stacks;

use std::time::Duration;

use iostackbreakdown::budget::{CpuShare, Detached};
use iostackbreakdown::model::histogram::{Histogram, STEPS, step_of};
use iostackbreakdown::model::ids::{Hook, Layer, Op};
use iostackbreakdown::model::report::group::By;
use iostackbreakdown::model::report::neighbour::{Neighbour, Neighbours};
use iostackbreakdown::model::report::slow::LeftOut;
use iostackbreakdown::model::report::stack::StackReport;
use iostackbreakdown::model::report::{
    Agreement, Budget, Cause, CauseKind, Cost, Diskstats, Excluded, LayerReport, Loss, LossReason, NotMeasured,
    OpReport, Probe, Report, Runs, SetAside,
};
use iostackbreakdown::view::text::{TextOptions, Unit};
use stacks::slots;

pub const NANOSECONDS: TextOptions = TextOptions {
    unit: Unit::Nanoseconds,
    summary_only: false,
    verbose: false,
    interval: None,
    is_first: false,
    width: None,
    is_colored: false,
};
pub const MICROSECONDS: TextOptions = TextOptions {
    unit: Unit::Microseconds,
    ..NANOSECONDS
};
pub const MILLISECONDS: TextOptions = TextOptions {
    unit: Unit::Milliseconds,
    ..NANOSECONDS
};
pub const SUMMARY: TextOptions = TextOptions {
    summary_only: true,
    ..NANOSECONDS
};

const VERBOSE: TextOptions = TextOptions {
    verbose: true,
    ..SUMMARY
};
/// Of each report that has no other length.
const LENGTH: Duration = Duration::from_millis(12_412);

const INTERVAL: TextOptions = TextOptions {
    interval: Some(LENGTH),
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

/// A golden file: the consecutive reports of a run.
pub struct Scene {
    pub name: &'static str,
    pub parts: Vec<Part>,
}

/// A report, and the options for printing it.
pub struct Part {
    /// The report without groups.
    whole: Report,
    split: Option<Split>,
    pub options: TextOptions,
}

/// The groups of a report.
#[derive(Clone, Copy)]
pub struct Split {
    pub by: By,
    pub top: usize,
    /// Parts of the numbers that belong to groups for which the kernel side had no room.
    pub no_room: u64,
}

impl Part {
    /// The report with its groups.
    pub fn report(&self) -> Report {
        match self.split {
            Some(Split { by, top, no_room }) => groups::by(self.whole.clone(), by, top, no_room),
            None => self.whole.clone(),
        }
    }
}

fn whole(whole: Report, options: TextOptions) -> Part {
    Part {
        whole,
        split: None,
        options,
    }
}

fn split(whole: Report, by: By, top: usize, no_room: u64, options: TextOptions) -> Part {
    Part {
        whole,
        split: Some(Split { by, top, no_room }),
        options,
    }
}

/// All scenes.
pub fn all() -> Vec<Scene> {
    let vfs = || report(vec![layer(Layer::Vfs, vec![read(), write(), fsync()])]);
    let no_subject = Report {
        subject: String::new(),
        ..report(vec![layer(Layer::Ext4, vec![fsync()])])
    };
    let of = |layer| report(vec![layer]);
    let files = |layers, options| split(layers, By::File, 3, 1, options);
    let slow = |left_out, ns| whole(stack(stacks::slow(ns, left_out)), NANOSECONDS);
    let database = |options| whole(stack(stacks::database()), options);
    let scene = |name, part| Scene {
        name,
        parts: vec![part],
    };
    let mut scenes = vec![
        scene("one_layer", whole(vfs(), NANOSECONDS)),
        scene("several_layers", whole(several_layers(), NANOSECONDS)),
        scene("trouble", whole(trouble(), SUMMARY)),
        scene("loss_up_to", whole(loss_up_to(), SUMMARY)),
        scene("microseconds", whole(vfs(), MICROSECONDS)),
        scene("milliseconds", whole(milliseconds(), MILLISECONDS)),
        scene("summary_only", whole(several_layers(), SUMMARY)),
        scene("empty_layers", whole(empty_layers(), NANOSECONDS)),
        scene("no_subject", whole(no_subject, NANOSECONDS)),
        scene("long_subject", whole(long_subject(), SUMMARY)),
        scene("huge", whole(huge(), NANOSECONDS)),
        scene("huge_microseconds", whole(huge(), MICROSECONDS)),
        scene("huge_counts", whole(huge_counts(), NANOSECONDS)),
        scene("requests", whole(of(requests()), NANOSECONDS)),
        scene("requests_of_a_process", whole(of(requests_of_a_process()), SUMMARY)),
        scene("requests_and_trouble", whole(of(requests_and_trouble()), SUMMARY)),
        scene("verbose", whole(verbose(), VERBOSE)),
        scene("verbose_uncounted", whole(verbose_uncounted(), VERBOSE)),
        scene("budget", whole(detached(), SUMMARY)),
        scene("stack", database(NANOSECONDS)),
        scene("stack_microseconds", database(MICROSECONDS)),
        scene("stack_verbose", database(VERBOSE)),
        scene("stack_bare", whole(stack(stacks::bare()), NANOSECONDS)),
        scene("stack_trouble", whole(stack(stacks::troubled()), NANOSECONDS)),
        scene("stack_slow", slow(FEW, 10_000_000)),
        scene("stack_slow_all", slow(LeftOut::default(), 0)),
        scene("stack_idle", whole(stack(stacks::idle()), NANOSECONDS)),
        scene("stack_interval", database(INTERVAL)),
        scene("stack_interval_bare", whole(stack(stacks::bare()), INTERVAL)),
        scene("stack_interval_idle", whole(stack(stacks::idle()), INTERVAL)),
        scene("stack_interval_last", whole(shorter(stack(stacks::bare())), INTERVAL)),
        scene("by_process", split(vfs(), By::Process, 2, 0, NANOSECONDS)),
        scene("by_process_idle", split(empty_layers(), By::Process, 2, 0, SUMMARY)),
        scene("by_file", files(by_several_layers(), SUMMARY)),
        scene("by_disk", split(of(requests()), By::Disk, 9, 0, SUMMARY)),
        scene("stack_by_file", files(stack(stacks::database()), NANOSECONDS)),
        scene(
            "stack_by_cgroup_interval",
            split(stack(stacks::database()), By::Cgroup, 2, 0, INTERVAL),
        ),
    ];
    let missed = requests_missed().map(|layer| whole(of(layer), SUMMARY)).into();
    let several = [
        ("requests_missed", missed),
        ("intervals", intervals()),
        ("narrow", of_width(60)),
        ("less_narrow", of_width(120)),
        ("wide", of_width(200)),
    ];
    scenes.extend(several.map(|(name, parts)| Scene { name, parts }));
    scenes
}

/// As a run ends within an interval.
fn shorter(report: Report) -> Report {
    Report {
        length: Duration::from_millis(400),
        ..report
    }
}

/// Reports of every kind on a terminal of this width.
fn of_width(width: usize) -> Vec<Part> {
    let on = |options| on_columns(width, options);
    let mut waiting = requests_of_a_process();
    waiting.ops.push(fsync());
    vec![
        whole(report(vec![requests()]), on(NANOSECONDS)),
        whole(report(vec![waiting]), on(SUMMARY)),
        split(by_several_layers(), By::File, 3, 1, on(SUMMARY)),
        whole(stack(stacks::database()), on(NANOSECONDS)),
        whole(stack(stacks::bare()), on(NANOSECONDS)),
        whole(stack(stacks::database()), on(INTERVAL)),
        split(stack(stacks::bare()), By::Cgroup, 2, 0, on(INTERVAL)),
    ]
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
        "3 child processes were not followed: the table of traced processes was full",
    ));
    report
}

/// Ops slow enough for milliseconds, except one whose total is less than 1 ms.
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
        losses: vec![loss(LossReason::ReturnMissed, 12, false)],
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
            NotMeasured::new("fsync", "vfs_fsync_range, do_fsync: refused by this kernel"),
            NotMeasured::new(
                "direct reads",
                "ext4_file_read_iter: not in this kernel; they do not pass generic_file_read_iter",
            ),
        ],
        warnings: vec![String::from(
            "asynchronous calls at vfs can be lost: completions are seen only by kprobes, which miss some in interrupts",
        )],
        ..layer(Layer::Vfs, vec![reads, writes])
    }]);
    report.warnings.push(String::from(
        "3 child processes were not followed: the table of traced processes was full",
    ));
    report
}

fn loss_up_to() -> Report {
    report(vec![LayerReport {
        losses: vec![
            loss(LossReason::ReturnMissed, 3, false),
            loss(LossReason::NoStorage, 1_000_000, false),
            loss(LossReason::ClockBackwards, 1, false),
            loss(LossReason::EntryMissed, 9, true),
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
            not_measured: vec![NotMeasured::new(
                "everything",
                "none of its functions exist in this kernel",
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

/// The table of DESIGN.md, section 3, and the lines below it.
pub fn requests() -> LayerReport {
    let reads = OpReport {
        queue_ns: Some(53_360_000),
        set_aside: SetAside {
            at_start: 7,
            ..SetAside::default()
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
        set_aside: SetAside {
            at_start: 1,
            never_issued: 12,
            by_kernel: 2_120,
            ..SetAside::default()
        },
        ..write()
    };
    let flushes = OpReport {
        set_aside: SetAside {
            unowned: 1_024,
            ..SetAside::default()
        },
        ..never(Op::Flush)
    };
    LayerReport {
        hooks: vec![Hook::RawTracepoint],
        neighbours: Some(neighbours()),
        ..layer(Layer::Blk, vec![read(), writes, flushes])
    }
}

/// More processes than a report has lines for.
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
        idle_ns: 0,
        untold_ns: 1_000_000,
        unseen: 0,
    }
    .with_rest()
}

/// No request was timed, and the kernel's statistics differ.
fn requests_and_trouble() -> LayerReport {
    let untimed = |op, untimed, never_issued| OpReport {
        set_aside: SetAside {
            untimed,
            never_issued,
            ..SetAside::default()
        },
        ..never(op)
    };
    LayerReport {
        hooks: vec![Hook::Kprobe],
        queue_from: Some("the request's start_time_ns".to_owned()),
        diskstats: Some(Diskstats {
            reads: 3,
            writes: 2,
            discards: 0,
            flushes: Some(0),
            agreement: Agreement::Differs("it counted 3 reads, this run 2; it counted 2 writes, this run 13".into()),
        }),
        losses: vec![loss(LossReason::ReturnMissed, 1, false)],
        ..layer(Layer::Blk, vec![untimed(Op::Read, 2, 0), untimed(Op::Write, 1, 12)])
    }
}

/// Lost requests: the kernel called no program for some, and skipped all programs for others; with tracepoints, and
/// with functions.
fn requests_missed() -> [LayerReport; 2] {
    let reads = OpReport {
        set_aside: SetAside {
            never_issued: 2,
            ..SetAside::default()
        },
        ..read()
    };
    let caused = |reason, count, kind, event: &str| Loss {
        cause: Some(Cause {
            kind,
            event: event.into(),
            is_tracepoint: event.starts_with("block_rq"),
            programs: if event == "block_rq_complete" { 2 } else { 1 },
        }),
        ..loss(reason, count, false)
    };
    use CauseKind::{NotCalled, Skipped};
    let of = |hook, losses| LayerReport {
        hooks: vec![hook],
        losses,
        in_flight: Some(0),
        ..layer(Layer::Blk, vec![reads.clone()])
    };
    [
        of(
            Hook::RawTracepoint,
            vec![
                caused(LossReason::ReturnMissed, 1_174, NotCalled, "block_rq_complete"),
                caused(LossReason::ReturnMissed, 3, Skipped, "block_rq_complete"),
                caused(LossReason::IssueMissed, 1, NotCalled, "block_rq_issue"),
                caused(LossReason::IssueMissed, 2, Skipped, "block_rq_issue"),
            ],
        ),
        of(
            Hook::Kprobe,
            vec![
                caused(LossReason::ReturnMissed, 4, NotCalled, "blk_update_request"),
                loss(LossReason::IssueMissed, 5, false),
            ],
        ),
    ]
}

/// Two complete intervals and a partial last one.
fn intervals() -> Vec<Part> {
    let intervals = [
        ("11:05:10", 1000, 900),
        ("11:05:11", 1000, 12_345),
        ("11:05:12", 412, 0),
    ];
    let part = |(time, length, calls): (&str, u64, u64)| {
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
        whole(report, NANOSECONDS)
    };
    intervals.map(part).into()
}

fn huge() -> Report {
    // From 2^32 ns on, BCC's rows have a wider format; the last step has no upper limit.
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

/// The first op of DESIGN.md's example, with its powers of two in microseconds.
pub fn read() -> OpReport {
    OpReport {
        total_ns: 667_000_000,
        bytes: Some(15_810_560),
        extremes: Some((66_120, 1_704_113)),
        histogram: between(
            (66_120, 1_704_113),
            &slots(&[(16, 1532), (17, 1901), (18, 377), (19, 41), (20, 9)]),
        ),
        unit_slots: vec![0, 0, 0, 0, 0, 0, 1500, 1925, 385, 43, 7, 0],
        ..OpReport::new(Op::Read)
    }
}

fn write() -> OpReport {
    OpReport {
        total_ns: 1_234_567,
        bytes: Some(6_700_032),
        extremes: Some((0, 14_650)),
        histogram: between((0, 14_650), &slots(&[(0, 2), (10, 380), (11, 29), (13, 1)])),
        unit_slots: vec![382, 29, 0, 1],
        ..OpReport::new(Op::Write)
    }
}

/// Too few calls for a p99, of an op that moves no bytes.
fn fsync() -> OpReport {
    OpReport {
        total_ns: 19_896_000,
        extremes: Some((786_000, 1_400_000)),
        histogram: between((786_000, 1_400_000), &slots(&[(19, 20), (20, 4)])),
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

/// The histogram after limiting all times to this range, with one call moved to each of its ends.
fn between((min, max): (u64, u64), calls: &Histogram) -> Histogram {
    let mut steps = vec![0; STEPS];
    for bucket in calls.buckets() {
        steps[step_of(bucket.ge.clamp(min, max))] += bucket.count;
    }
    for (end, first) in [(min, true), (max, false)] {
        let used = |(_, calls): &(usize, &u64)| **calls > 0;
        let mut all = steps.iter().enumerate().filter(used).map(|(step, _)| step);
        let from = if first { all.next() } else { all.next_back() };
        if let Some(from) = from {
            steps[from] -= 1;
            steps[step_of(end)] += 1;
        }
    }
    Histogram::from_steps(steps)
}

/// A report of these layers. If one of them has a number of active calls, all measured layers get one.
pub fn report(mut layers: Vec<LayerReport>) -> Report {
    if layers.iter().any(|layer| layer.in_flight.is_some()) {
        for layer in layers.iter_mut().filter(|layer| !layer.ops.is_empty()) {
            layer.in_flight.get_or_insert(0);
        }
    }
    Report {
        time_of_day: String::from("11:05:10"),
        length: LENGTH,
        subject: String::from("PID 4711 (postgres)"),
        layers,
        cost: Cost {
            process: Duration::from_micros(6_204),
            ..Cost::default()
        },
        ..Report::default()
    }
}

/// A report of a run with `--verbose`.
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

/// A report of a run in which the kernel refused to count the cost.
fn verbose_uncounted() -> Report {
    let mut report = verbose();
    for probe in &mut report.probes {
        (probe.entry, probe.leave, probe.skipped) = (None, None, None);
    }
    report.layers[0].losses.clear();
    report.layers[0].ops[0].losses.clear();
    report.layers[0].skips_unknown = true;
    report.cost = Cost {
        process: Duration::from_micros(6_204),
        has_runs: false,
        no_runs: Some(String::from("needs CAP_SYS_ADMIN")),
        ..Cost::default()
    };
    report
}

/// A report with one layer that was detached in its span, and another one that was detached before.
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
    let why = |what, when: &str| {
        NotMeasured::new(
            what,
            format!("detached {when} after the start, to stay within --budget"),
        )
    };
    let vfs = LayerReport {
        not_measured: vec![why("later calls", "12.0 s")],
        ..layer(Layer::Vfs, vec![read(), write()])
    };
    let ext4 = LayerReport {
        not_measured: vec![why("everything", "3.0 s")],
        ..layer(Layer::Ext4, Vec::new())
    };
    let mut report = verbose();
    report.layers = vec![vfs, ext4];
    report.probes[0].skipped = Some(0);
    report.cost.budget = Some(Budget {
        limit: percent(5),
        detached: vec![
            gone(Layer::Ext4, 3, Some(Duration::from_secs(4))),
            gone(Layer::Vfs, 12, None),
        ],
    });
    report
}

/// A report of the whole-stack view, with problems of its layers.
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

pub fn layer(layer: Layer, ops: Vec<OpReport>) -> LayerReport {
    LayerReport {
        ops,
        ..LayerReport::new(layer)
    }
}

pub fn loss(reason: LossReason, count: u64, up_to: bool) -> Loss {
    Loss {
        reason,
        count,
        up_to,
        cause: None,
    }
}
