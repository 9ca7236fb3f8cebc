use super::super::Answers;
use super::super::synthetic::{asynchronous, call, definitions, inode, open_file, process, random, request};
use super::*;
use crate::model::record::{Fault, Kind, Lost};
use crate::model::report::records::{Questions, RecordsReport};

fn answered(batches: impl IntoIterator<Item = Records>) -> RecordsReport {
    answered_by(Names::default(), batches)
}

fn answered_by(names: Names, batches: impl IntoIterator<Item = Records>) -> RecordsReport {
    let questions = Questions {
        access: true,
        ..Questions::default()
    };
    let mut answers = Answers::new(&questions, names);
    answers.take(&definitions());
    for batch in batches {
        answers.take(&batch);
    }
    answers.finish()
}

fn report(records: Records) -> AccessReport {
    answered([records]).access.unwrap()
}

/// Of what is selected by the file `/data`.
fn report_of_data(records: Records) -> AccessReport {
    let selection = crate::model::selection::Selection {
        files: vec!["/data".to_owned()],
        ..Default::default()
    };
    answered_by(Names::new(selection), [records]).access.unwrap()
}

fn of_calls(calls: Vec<Call>) -> AccessReport {
    report(Records {
        calls,
        ..Records::default()
    })
}

fn level(report: &AccessReport, level: AccessLevel) -> &LevelAccess {
    let found = report.files[0].levels.iter().find(|known| known.level == level);
    found.unwrap()
}

#[test]
fn an_access_at_the_end_of_the_previous_one_is_sequential_whatever_it_does() {
    let ops = [Op::Read, Op::Pwrite64, Op::Readv, Op::Pwritev2];
    let calls = ops
        .iter()
        .zip(0..)
        .map(|(op, n)| call(*op, n * 100, 1_000 + n * 4096, 4096));
    let report = of_calls(calls.collect());
    let vfs = level(&report, AccessLevel::Vfs);
    assert_eq!((vfs.read.count, vfs.read.sequential, vfs.read.bytes), (2, 2, 8192));
    assert_eq!((vfs.write.count, vfs.write.sequential, vfs.write.bytes), (2, 2, 8192));
    assert_eq!(vfs.span_ns, 300);
    assert_eq!(report.files[0].file.path.as_ref().unwrap().text, "/data");
}

#[test]
fn strided_reads_are_random_but_for_the_first() {
    let report = of_calls((0..100).map(|n| call(Op::Pread64, n, n * 8192, 4096)).collect());
    let vfs = level(&report, AccessLevel::Vfs);
    assert_eq!((vfs.read.count, vfs.read.sequential), (100, 1));
    assert_eq!(vfs.read.sequential_in_streams, Some(1));
}

#[test]
fn two_sequential_readers_are_random_together_and_sequential_each() {
    let calls = (0..200).map(|n| Call {
        pid: 7 + (n % 2) as u32,
        ..call(Op::Read, n, (n % 2) * 1_000_000 + n / 2 * 4096, 4096)
    });
    let report = of_calls(calls.collect());
    let vfs = level(&report, AccessLevel::Vfs);
    assert_eq!((vfs.read.sequential, vfs.read.sequential_in_streams), (1, Some(200)));
    let streams: Vec<_> = report.files[0]
        .streams
        .iter()
        .map(|stream| (stream.process.pid, stream.read.count, stream.read.sequential_in_streams))
        .collect();
    assert_eq!(streams, [(7, 100, Some(100)), (8, 100, Some(100))]);
    assert_eq!(report.files[0].streams[0].process.comm.as_deref(), Some("app"));
}

#[test]
fn calls_that_end_out_of_order_are_compared_by_their_begins() {
    let mut calls: Vec<Call> = (0..1_000).map(|n| call(Op::Read, n, n * 512, 512)).collect();
    // The order of ends: each ten in reverse.
    for ten in calls.chunks_mut(10) {
        ten.reverse();
    }
    // In batches of another size than the tens.
    let batches = calls.chunks(7).map(|calls| Records {
        calls: calls.to_vec(),
        ..Records::default()
    });
    let report = answered(batches).access.unwrap();
    let vfs = level(&report, AccessLevel::Vfs);
    assert_eq!((vfs.read.count, vfs.read.sequential), (1_000, 1_000));
    assert_eq!(report.out_of_order, 0);
}

#[test]
fn requests_are_addressed_by_the_sector_and_belong_to_an_inode() {
    let mut requests: Vec<Request> = (0..10)
        .map(|n| request(Op::Write, n * 100, 2048 + n * 8, 4096))
        .collect();
    requests.push(request(Op::Flush, 2_000, 0, 0));
    requests.push(Request {
        inode: None,
        ..request(Op::Read, 3_000, 0, 4096)
    });
    requests.push(Request {
        inode: Some(inode(200)),
        ..request(Op::Read, 4_000, 9, 100)
    });
    let report = report(Records {
        requests,
        ..Records::default()
    });
    let blk = level(&report, AccessLevel::Blk);
    assert_eq!(
        (blk.write.count, blk.write.sequential, blk.write.bytes),
        (10, 10, 40_960)
    );
    assert_eq!((blk.write.sequential_in_streams, blk.read.count), (None, 0));
    assert_eq!((report.files.len(), report.without_file), (2, 1));
    assert_eq!(report.files[1].file.path, None);
    assert_eq!(report.files[1].file.inode, Some(inode(200)));
}

#[test]
fn asynchronous_requests_are_accesses_and_what_cannot_be_compared_is_counted() {
    let mut no_range = call(Op::Read, 3, 0, 0);
    no_range.offset = None;
    let report = report(Records {
        asynchronous: vec![asynchronous(Op::Read, 2, 4096, 4096), asynchronous(Op::Fsync, 9, 0, 0)],
        calls: vec![
            call(Op::Read, 1, 0, 4096),
            no_range,
            Call {
                size: None,
                value: -5,
                ..call(Op::Preadv, 20, 8192, 0)
            },
            Call {
                size: None,
                value: 512,
                ..call(Op::Preadv, 21, 8192, 0)
            },
            call(Op::Splice, 4, 0, 1),
            call(Op::Fsync, 5, 0, 0),
            Call {
                files: [9, 0],
                ..call(Op::Read, 6, 0, 1)
            },
        ],
        faults: vec![Fault {
            tid: 7,
            pid: 7,
            begin_ns: 0,
            end_ns: 1,
            layer: crate::model::ids::Layer::Ext4,
            file: 1,
            offset: 0,
            is_write: false,
            errno: 0,
        }],
        ..Records::default()
    });
    let vfs = level(&report, AccessLevel::Vfs);
    assert_eq!((vfs.read.count, vfs.read.sequential), (3, 3));
    assert_eq!(vfs.read.bytes, 4096 + 4096 + 512);
    assert_eq!((report.without_range, report.on_two_files), (2, 1));
    assert_eq!((report.without_file, report.faults), (1, 1));
}

#[test]
fn sizes_of_one_percent_or_more_are_common() {
    let sizes = (0..1_000).map(|n| match n {
        0..9 => 1,
        9..19 => 2,
        _ => 4096,
    });
    let calls = sizes.zip(0..).map(|(size, n)| call(Op::Read, n, 0, size));
    let sizes = &level(&of_calls(calls.collect()), AccessLevel::Vfs).sizes.clone();
    let counted: Vec<_> = sizes.iter().map(|size| (size.bytes, size.count)).collect();
    assert_eq!(counted, [(2, 10), (4096, 981)]);
}

#[test]
fn too_many_sizes_are_reported_as_such() {
    let calls = |n: u64| of_calls((0..n).map(|n| call(Op::Read, n, 0, n)).collect());
    assert!(!level(&calls(1_024), AccessLevel::Vfs).sizes_are_incomplete);
    assert!(level(&calls(1_025), AccessLevel::Vfs).sizes_are_incomplete);
}

#[test]
fn addresses_at_the_end_of_all_numbers_overflow_nothing() {
    let report = report(Records {
        calls: vec![
            call(Op::Read, 0, u64::MAX, u64::MAX),
            call(Op::Read, u64::MAX, u64::MAX - 1, u64::MAX),
            call(Op::Write, 1, 0, u64::MAX),
        ],
        requests: vec![
            request(Op::Read, u64::MAX, u64::MAX, u64::MAX),
            request(Op::Read, 0, u64::MAX, 512),
        ],
        ..Records::default()
    });
    let vfs = level(&report, AccessLevel::Vfs);
    assert_eq!((vfs.read.bytes, vfs.read.sequential), (u64::MAX, 1));
    assert_eq!(vfs.span_ns, u64::MAX);
}

#[test]
fn without_records_there_are_no_files_and_losses_make_a_report_incomplete() {
    assert_eq!(report(Records::default()), AccessReport::default());
    let lost = |kind, from_ns| Lost {
        cpu: 3,
        kind,
        records: 5,
        from_ns,
        to_ns: from_ns + 10,
    };
    let report = answered([Records {
        lost: vec![lost(Kind::Call, 100), lost(Kind::Sleep, 100)],
        ..Records::default()
    }]);
    assert_eq!(report.incomplete.len(), 1);
    assert_eq!((report.incomplete[0].records, report.incomplete[0].from_ns), (5, 100));
}

#[test]
fn the_files_with_most_accesses_are_listed() {
    let questions = Questions {
        access: true,
        top: 2,
        ..Questions::default()
    };
    let mut answers = Answers::new(&questions, Names::default());
    answers.take(&Records {
        files: (1..=5)
            .map(|n| open_file(n, n.into(), &format!("/\u{1b}[31m{n}")))
            .collect(),
        threads: vec![process(7, "a;b\n")],
        calls: (1..=5_u32)
            .flat_map(|file| (0..file).map(move |n| (file, n)))
            .map(|(file, n)| Call {
                files: [file, 0],
                ..call(Op::Read, n.into(), 0, 1)
            })
            .collect(),
        ..Records::default()
    });
    let report = answers.finish().access.unwrap();
    let counts: Vec<u64> = report.files.iter().map(|file| file.levels[0].count()).collect();
    assert_eq!((counts, report.more_files), (vec![5, 4], 3));
}

/// What iotracer's script computes, from its definition and not from the fold: a list of all events, each compared with
/// the one before.
#[test]
fn rates_are_those_of_iotracers_definition() {
    let mut offsets = random(42);
    let mut position = 0;
    let calls: Vec<Call> = (0..5_000)
        .map(|n| {
            let choice = offsets.next().unwrap();
            if choice.is_multiple_of(5) {
                position = choice % 1_000_000;
            }
            let size = 512 << (choice % 3);
            let op = if choice % 7 < 3 { Op::Pwrite64 } else { Op::Pread64 };
            let call = call(op, n * 1_000, position, size);
            position += size;
            call
        })
        .collect();
    let mut random_accesses = [0; 2];
    let mut sequential = [0; 2];
    for (index, call) in calls.iter().enumerate() {
        let is_random = index > 0 && {
            let before = &calls[index - 1];
            call.offset.unwrap() != before.offset.unwrap() + before.size.unwrap()
        };
        let counts = if is_random {
            &mut random_accesses
        } else {
            &mut sequential
        };
        counts[usize::from(call.op == Op::Pwrite64)] += 1;
    }
    assert!(random_accesses.iter().chain(&sequential).all(|n| *n > 100));
    let report = of_calls(calls);
    let vfs = level(&report, AccessLevel::Vfs);
    for (accesses, direction) in [(vfs.read, 0), (vfs.write, 1)] {
        assert_eq!(accesses.sequential, sequential[direction]);
        assert_eq!(accesses.count - accesses.sequential, random_accesses[direction]);
    }
}

/// A request without a page of a file.
fn direct_request(tid: u32, submitted_ns: u64, sector: u64) -> Request {
    Request {
        tid,
        submitted_ns: Some(submitted_ns),
        inode: None,
        ..request(Op::Read, submitted_ns + 4, sector, 4096)
    }
}

#[test]
fn requests_of_direct_calls_are_on_their_files() {
    let direct = |tid, file, begin_ns| Call {
        tid,
        files: [file, 0],
        is_direct: true,
        ..call(Op::Pread64, begin_ns, 0, 4096)
    };
    let records = || Records {
        files: vec![open_file(2, 200, "/other")],
        // They arrive after the requests that end in them.
        calls: vec![
            direct(7, 1, 100),
            direct(7, 2, 200),
            direct(8, 2, 100),
            call(Op::Read, 300, 0, 4096),
        ],
        requests: vec![
            direct_request(7, 100, 0),
            direct_request(7, 110, 8),
            direct_request(7, 205, 100),
            direct_request(8, 105, 108),
            // Between two calls, in one that is not direct, of a thread without calls, metadata.
            direct_request(7, 111, 0),
            direct_request(7, 305, 0),
            direct_request(9, 105, 0),
            Request {
                is_meta: true,
                ..direct_request(7, 105, 0)
            },
        ],
        asynchronous: vec![asynchronous(Op::Read, 400, 0, 4096)],
        ..Records::default()
    };
    let found = report(records());
    assert_eq!(found.without_file, 4);
    let blk = |report: &AccessReport| -> Vec<_> {
        let level = |file: &FileAccess| {
            let blk = file.levels.iter().find(|level| level.level == AccessLevel::Blk)?;
            let path = file.file.path.as_ref()?.text.clone();
            Some((path, blk.read.count, blk.read.sequential))
        };
        report.files.iter().filter_map(level).collect()
    };
    let (data, other) = (("/data".to_owned(), 2, 2), ("/other".to_owned(), 2, 1));
    assert_eq!(blk(&found), [data.clone(), other]);
    // A request belongs to an asynchronous one while that is submitted.
    let mut with_async = records();
    with_async.requests = vec![direct_request(7, 405, 0), direct_request(7, 406, 8)];
    let found = report(with_async);
    assert_eq!((blk(&found), found.without_file), (vec![("/data".to_owned(), 1, 1)], 1));
    // Those of a selected file are selected by it.
    let found = report_of_data(records());
    assert_eq!((blk(&found), found.without_file), (vec![data], 0));
}

#[test]
fn requests_of_workers_are_on_the_file_of_all_that_were_attempted() {
    let attempted = |pid, file, begin_ns| AsyncCall {
        pid,
        file,
        attempts: 2,
        attempt_end_ns: begin_ns + 50,
        ..asynchronous(Op::Read, begin_ns, 0, 4096)
    };
    let of_worker = |pid, submitted_ns| Request {
        pid,
        origin: crate::model::ids::Origin::Asynchronous,
        ..direct_request(99, submitted_ns, 0)
    };
    let records = || Records {
        files: vec![open_file(2, 200, "/other")],
        asynchronous: vec![
            attempted(7, 1, 100),
            attempted(7, 1, 110),
            attempted(7, 2, 145),
            attempted(8, 2, 300),
            attempted(7, 1, 310),
        ],
        requests: vec![
            of_worker(0, 120),
            of_worker(7, 140),
            of_worker(0, 147),
            of_worker(0, 196),
            of_worker(0, 320),
            of_worker(8, 320),
            Request {
                origin: crate::model::ids::Origin::Own,
                ..of_worker(7, 120)
            },
        ],
        ..Records::default()
    };
    let blk = |report: &AccessReport| -> Vec<_> {
        let files = report.files.iter();
        let levels = files.map(|file| file.levels.iter().find(|level| level.level == AccessLevel::Blk));
        levels.map(|level| level.map_or(0, LevelAccess::count)).collect()
    };
    let found = report(records());
    assert_eq!((blk(&found), found.without_file), (vec![2, 1], 4));
    // Those on other files are known, whatever is selected.
    let found = report_of_data(records());
    assert_eq!(blk(&found), [2]);
}
