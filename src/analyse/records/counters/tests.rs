use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::super::synthetic::{self, call, definitions, inode, open_file, process, request};
use super::*;
use crate::analyse::report;
use crate::model::abi::ROW_DEVICE;
use crate::model::ids::Hook;
use crate::model::record::{Lost, Sleep};
use crate::model::report::stack::StackReport;
use crate::model::report::{AttachPoint, LayerReport, Report};
use crate::model::run_info::{LayerInfo, OpInfo, StackInfo};
use crate::model::selection::Selection;
use crate::model::snapshot::Snapshot;

/// A run of these layers, and of the whole stack.
fn run(layers: &[Layer], is_stack: bool) -> RunInfo {
    let ops = layers.iter().flat_map(|layer| {
        layer.ops().iter().map(|spec| OpInfo {
            layer: *layer,
            op: spec.op,
            moves_bytes: spec.moves_bytes,
            points: [AttachPoint {
                function: "f".to_owned(),
                hook: Hook::Tracepoint,
            }]
            .into(),
            refused: Arc::default(),
            not_measured: Vec::new(),
            absent: None,
            is_partial: false,
        })
    });
    RunInfo {
        ops: ops.collect(),
        layers: layers
            .iter()
            .map(|layer| LayerInfo {
                layer: *layer,
                refused: None,
                not_measured: Vec::new(),
                completions_skip_interrupts: false,
            })
            .collect(),
        stack: is_stack.then(|| StackInfo {
            layers: layers.iter().map(|layer| (*layer, true)).collect(),
            seen: BTreeSet::new(),
        }),
        top: 10,
        ..RunInfo::default()
    }
}

fn snapshot(at_ns: u64, totals: &mut Totals) -> Snapshot {
    Snapshot {
        ops: totals.ops.clone(),
        stack: totals.stack.clone(),
        groups: totals.groups_since(),
        ..Snapshot::empty(at_ns)
    }
}

/// The reports of intervals that end at these moments, the first of which begins at 0.
fn reports(run: &RunInfo, by: Option<By>, ends_ns: &[u64], batches: &[Records], selection: Selection) -> Vec<Report> {
    let run = RunInfo { by, ..run.clone() };
    let wanted = Wanted {
        by,
        ends_ns: ends_ns.to_vec(),
        ..Wanted::default()
    };
    let mut names = Names::new(selection);
    names.learn(&definitions());
    let mut counters = Counters::new(&run, wanted);
    for batch in batches {
        names.learn(batch);
        counters.take(batch, &names);
    }
    let mut totals = Totals::new(&run, by);
    let mut before = snapshot(0, &mut totals);
    let mut all = Vec::new();
    for end_ns in ends_ns {
        totals.add(&counters.next_interval().unwrap(), &names);
        let after = snapshot(*end_ns, &mut totals);
        all.push(report(&run, &before, &after));
        before = after;
    }
    assert!(counters.next_interval().is_none());
    all
}

fn layer(report: &Report, layer: Layer) -> &LayerReport {
    report.layers.iter().find(|known| known.layer == layer).unwrap()
}

/// Count, total, bytes and errors of an op.
fn numbers(report: &Report, of: Layer, op: Op) -> (u64, u64, u64, u64) {
    let found = layer(report, of).ops.iter().find(|known| known.op == op).unwrap();
    (
        found.count(),
        found.total_ns,
        found.bytes.unwrap_or(0),
        found.error_count(),
    )
}

fn returned(op: Op, begin_ns: u64, value: i64) -> Call {
    Call {
        value,
        ..call(op, begin_ns, 0, 512)
    }
}

const BOTH: &[Layer] = &[Layer::Syscall, Layer::Blk];

fn some_records() -> Records {
    let mut other = returned(Op::Read, 50, 7);
    (other.pid, other.tid, other.files) = (8, 8, [2, 0]);
    let mut open = returned(Op::Read, 60, 0);
    open.end_ns = None;
    let mut failed = request(Op::Write, 40, 0, 4096);
    failed.errno = 5;
    Records {
        calls: vec![
            returned(Op::Read, 10, 512),
            returned(Op::Read, 30, -5),
            returned(Op::Fsync, 40, 0),
            other,
            open,
        ],
        requests: vec![request(Op::Read, 20, 8, 512), failed],
        threads: vec![process(8, "other")],
        files: vec![open_file(2, 200, "/b")],
        ..Records::default()
    }
}

#[test]
fn calls_and_requests_are_counted_as_the_programs_count_them() {
    let all = reports(&run(BOTH, false), None, &[100], &[some_records()], Selection::default());
    let read = numbers(&all[0], Layer::Syscall, Op::Read);
    assert_eq!(read, (3, 30, 519, 1));
    assert_eq!(numbers(&all[0], Layer::Syscall, Op::Fsync), (1, 10, 0, 0));
    assert_eq!(numbers(&all[0], Layer::Blk, Op::Read), (1, 10, 512, 0));
    assert_eq!(numbers(&all[0], Layer::Blk, Op::Write), (1, 10, 0, 1));
    let ops = &layer(&all[0], Layer::Syscall).ops;
    let read = ops.iter().find(|op| op.op == Op::Read).unwrap();
    assert_eq!((read.extremes, &read.errors[..]), (Some((10, 10)), &[(5, 1)][..]));
}

#[test]
fn the_shortest_and_the_longest_call_are_those_of_the_interval() {
    let long = Call {
        end_ns: Some(70),
        ..returned(Op::Read, 10, 512)
    };
    let records = Records {
        calls: vec![long, returned(Op::Read, 110, 512)],
        ..Records::default()
    };
    let all = reports(&run(BOTH, false), None, &[100, 200], &[records], Selection::default());
    let extremes = all.iter().map(|report| {
        let ops = &layer(report, Layer::Syscall).ops;
        ops.iter().find(|op| op.op == Op::Read).unwrap().extremes
    });
    assert_eq!(extremes.collect::<Vec<_>>(), [Some((60, 60)), Some((10, 10))]);
}

#[test]
fn a_selection_leaves_out_the_calls_of_others() {
    let selected = |selection| reports(&run(BOTH, false), None, &[100], &[some_records()], selection);
    let pids = BTreeSet::from([8]);
    let other = selected(Selection {
        pids,
        ..Selection::default()
    });
    assert_eq!(numbers(&other[0], Layer::Syscall, Op::Read), (1, 10, 7, 0));
    assert_eq!(numbers(&other[0], Layer::Blk, Op::Read).0, 0);
    let files = vec!["/data".to_owned()];
    let file = selected(Selection {
        files,
        ..Selection::default()
    });
    assert_eq!(numbers(&file[0], Layer::Syscall, Op::Read), (2, 20, 512, 1));
    // By the file of its pages, which no run can select.
    assert_eq!(numbers(&file[0], Layer::Blk, Op::Read).0, 1);
}

#[test]
fn requests_are_timed_from_their_start_if_queue_times_are() {
    let mut queued = run(&[Layer::Blk], false);
    queued.block = Some(crate::model::run_info::BlockInfo {
        hook: Hook::Tracepoint,
        is_bio_based: false,
        issue: crate::model::run_info::BlockEvent {
            tracepoint: String::new(),
            functions: Vec::new(),
        },
        end: crate::model::run_info::BlockEvent {
            tracepoint: String::new(),
            functions: Vec::new(),
        },
        queue_from: Some("start".to_owned()),
        lossy: None,
        flags: BTreeMap::new(),
    });
    let mut unknown = request(Op::Read, 60, 0, 512);
    unknown.started_ns = None;
    let records = Records {
        requests: vec![request(Op::Read, 20, 0, 512), unknown],
        ..Records::default()
    };
    let all = reports(&queued, None, &[100], &[records], Selection::default());
    let read = &layer(&all[0], Layer::Blk).ops[0];
    assert_eq!((read.count(), read.total_ns, read.queue_ns), (1, 12, Some(2)));
    assert_eq!(read.set_aside.untimed, 1);
}

/// In the first, the second and after the last interval, and at a boundary.
#[test]
fn each_call_is_in_the_interval_in_which_it_ends() {
    let calls = [(0, 1), (90, 2), (91, 4), (150, 8), (195, 16)];
    let records = Records {
        calls: calls.map(|(begin, bytes)| returned(Op::Read, begin, bytes)).to_vec(),
        ..Records::default()
    };
    let all = reports(&run(BOTH, false), None, &[100, 200], &[records], Selection::default());
    let bytes: Vec<u64> = all
        .iter()
        .map(|report| numbers(report, Layer::Syscall, Op::Read).2)
        .collect();
    assert_eq!(bytes, [1 + 2, 4 + 8]);
}

fn stack(report: &Report) -> &StackReport {
    report.stack.as_ref().unwrap()
}

#[test]
fn rows_and_classes_add_up_to_the_calls() {
    let mut read = returned(Op::Pread64, 100, 512);
    (read.rows[0], read.rows[1], read.rows[ROW_DEVICE as usize]) = (2, 3, 5);
    read.class = Some(ReadClass::WaitedForOwn);
    let mut cached = returned(Op::Read, 200, 100);
    cached.rows[0] = 10;
    cached.class = Some(ReadClass::FromCache);
    let records = Records {
        calls: vec![read, cached, returned(Op::Read, 300, 1)],
        ..Records::default()
    };
    let layers = [Layer::Syscall, Layer::Vfs, Layer::Blk];
    let all = reports(&run(&layers, true), None, &[1_000], &[records], Selection::default());
    let family = &stack(&all[0]).families[Family::Read as usize];
    // The third one has no rows.
    assert_eq!((family.count(), family.total_ns, family.bytes), (2, 20, 612));
    let rows: Vec<(Option<u64>, Option<u64>)> = family.rows.iter().map(|row| (row.ns, row.calls)).collect();
    assert_eq!(rows[..2], [(Some(12), Some(2)), (Some(3), Some(1))]);
    let device = family.rows.iter().find(|row| row.row == crate::model::ids::Row::Device);
    assert_eq!(device.map(|row| row.ns), Some(Some(5)));
    let classes: Vec<(u64, u64)> = family.classes.iter().map(|class| (class.calls, class.bytes)).collect();
    assert_eq!(classes[..2], [(1, 100), (1, 512)]);
}

#[test]
fn requests_that_end_in_no_sleep_of_their_thread_are_counted_by_origin() {
    let mut writeback = request(Op::Write, 20, 0, 4096);
    (writeback.origin, writeback.tid, writeback.pid) = (Origin::Writeback, 99, 0);
    let sleep = Sleep {
        tid: 7,
        out_ns: 195,
        woken_ns: Some(215),
        in_ns: 220,
        row: 0,
        waker_tid: 0,
        waker_pid: 0,
        cpus: [0, 0],
    };
    let records = Records {
        requests: vec![
            request(Op::Read, 100, 0, 512),
            request(Op::Read, 200, 0, 512),
            writeback,
        ],
        sleeps: vec![sleep],
        ..Records::default()
    };
    let layers = [Layer::Syscall, Layer::Vfs, Layer::Blk];
    let not_waited = |selection| {
        let all = reports(
            &run(&layers, true),
            None,
            &[1_000],
            std::slice::from_ref(&records),
            selection,
        );
        let not_waited = stack(&all[0]).not_waited.clone().unwrap();
        let numbers = not_waited
            .iter()
            .map(|one| (one.origin, one.requests, one.queue_ns, one.device_ns));
        (numbers.collect::<Vec<_>>(), numbers_of_blk(&all[0]))
    };
    let own = (Origin::Own, 1, 2, 10);
    let kernel = (Origin::Writeback, 1, 2, 10);
    assert_eq!(not_waited(Selection::default()), (vec![own, kernel], 3));
    // As a run with -p has it: what kernel threads write is of no process.
    let pids = BTreeSet::from([7]);
    let of_one = Selection {
        pids,
        ..Selection::default()
    };
    assert_eq!(not_waited(of_one), (vec![own, kernel], 2));
}

fn numbers_of_blk(report: &Report) -> u64 {
    layer(report, Layer::Blk).ops.iter().map(|op| op.count()).sum()
}

/// The names and the calls of each group.
fn groups(by: By) -> Vec<(String, u64)> {
    let all = reports(
        &run(BOTH, false),
        Some(by),
        &[100],
        &[some_records()],
        Selection::default(),
    );
    let groups = all[0].groups.as_ref().unwrap();
    assert_eq!(groups.total.count(), 6, "{by}");
    let mut named: Vec<(String, u64)> = groups
        .groups
        .iter()
        .map(|group| (group.who.name(), group.numbers.count()))
        .collect();
    named.sort();
    named
}

#[test]
fn each_call_and_request_is_in_one_group() {
    let named = |names: &[(&str, u64)]| -> Vec<(String, u64)> {
        names.iter().map(|(name, calls)| ((*name).to_owned(), *calls)).collect()
    };
    assert_eq!(groups(By::Process), named(&[("app 7", 5), ("other 8", 1)]));
    assert_eq!(groups(By::Thread), named(&[("app 7", 5), ("other 8", 1)]));
    assert_eq!(groups(By::Comm), named(&[("app", 5), ("other", 1)]));
    assert_eq!(groups(By::File), named(&[("/b", 1), ("/data", 5)]));
    assert_eq!(groups(By::Disk), named(&[("8:0", 2), ("8:1", 4)]));
    assert_eq!(groups(By::User), named(&[("uid 0", 6)]));
    assert_eq!(groups(By::Cgroup), named(&[("(no cgroup)", 6)]));
    assert_eq!(
        groups(By::Fd),
        named(&[("(no fd)", 2), ("app 7 fd 3 /data", 3), ("other 8 fd 3 /b", 1)])
    );
}

#[test]
fn beyond_the_room_groups_are_counted_together() {
    let calls = (0..GROUPS as u32 + 10).map(|pid| Call {
        pid,
        ..returned(Op::Read, 1, 1)
    });
    let records = Records {
        calls: calls.collect(),
        ..Records::default()
    };
    let all = reports(
        &run(BOTH, false),
        Some(By::Process),
        &[100],
        &[records],
        Selection::default(),
    );
    let groups = all[0].groups.as_ref().unwrap();
    assert_eq!(groups.others.as_ref().unwrap().no_room, 10);
    assert_eq!(groups.total.count(), GROUPS as u64 + 10);
}

#[test]
fn a_loss_is_said_of_each_interval_that_it_may_be_of() {
    let wanted = Wanted {
        ends_ns: vec![100, 200, 300, 400],
        ..Wanted::default()
    };
    let mut counters = Counters::new(&run(BOTH, false), wanted);
    let lost = |from_ns, to_ns| Lost {
        cpu: 0,
        kind: Kind::Call,
        records: 7,
        from_ns,
        to_ns,
    };
    let records = Records {
        lost: vec![lost(150, 300), lost(390, 900)],
        ..Records::default()
    };
    counters.take(&records, &Names::default());
    let of_intervals: Vec<u64> = std::iter::from_fn(|| counters.next_interval())
        .map(|interval| interval.incomplete(&[Kind::Call]).iter().map(|one| one.records).sum())
        .collect();
    assert_eq!(of_intervals, [0, 7, 7, 7]);
}

/// What has no record is in the sum of the groups, and never falls.
#[test]
fn what_has_no_record_is_a_group_of_its_own() {
    let run = run(BOTH, false);
    let mut names = Names::default();
    names.learn(&definitions());
    let wanted = Wanted {
        by: Some(By::Process),
        ends_ns: vec![100],
        ..Wanted::default()
    };
    let mut counters = Counters::new(&run, wanted);
    let mut records = some_records();
    let lost = Lost {
        cpu: 0,
        kind: Kind::Call,
        records: 1,
        from_ns: 50,
        to_ns: 51,
    };
    records.lost.push(lost);
    counters.take(&records, &names);
    let interval = counters.next_interval().unwrap();
    assert_eq!(interval.incomplete(&[Kind::Call]).len(), 1);
    let mut totals = Totals::new(&run, Some(By::Process));
    totals.add(&interval, &names);
    let mut exact: Vec<OpCounters> = totals.ops.iter().map(|op| (**op).clone()).collect();
    let read = run.ops.iter().position(|op| op.op == Op::Read).unwrap();
    let mut more = OpSum::default();
    more.add(500, 99, true, 0);
    more.add_to(&mut exact[read]);
    totals.add_rest(&exact, None);
    let rest = |totals: &Totals| {
        let groups = totals.groups.as_ref().unwrap();
        let (number, _) = groups.who.iter().find(|(_, who)| **who == Who::NoRecord).unwrap();
        let op = &groups.ops[&(*number, read as u32)];
        (op.total_ns, op.bytes, op.steps.iter().sum::<u128>())
    };
    assert_eq!(rest(&totals), (500, 99, 1));
    let none = vec![OpCounters::default(); run.ops.len()];
    totals.add_rest(&none, None);
    assert_eq!(rest(&totals), (500, 99, 1));
}

#[test]
fn slow_calls_are_returned_one_by_one() {
    let run = run(BOTH, true);
    let wanted = Wanted {
        slower_ns: Some(11),
        ends_ns: vec![1_000],
        ..Wanted::default()
    };
    let mut counters = Counters::new(&run, wanted);
    let mut slow = returned(Op::Read, 100, 1);
    slow.end_ns = Some(111);
    slow.rows[0] = 11;
    let records = Records {
        calls: vec![returned(Op::Read, 100, 1), slow],
        ..Records::default()
    };
    counters.take(&records, &Names::default());
    let found = counters.slow_calls();
    assert_eq!((found.len(), found[0].0, found[0].1.total_ns), (1, 111, 11));
    assert!(counters.slow_calls().is_empty());
    assert!(!counters.is_ready());
    let later = synthetic::call(Op::Read, 1_001 + OUT_OF_ORDER, 0, 0);
    let records = Records {
        calls: vec![later],
        ..Records::default()
    };
    counters.take(&records, &Names::default());
    assert!(counters.is_ready());
    assert_eq!(inode(1).major, 8);
}
