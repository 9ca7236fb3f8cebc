//! Plans of recordings that are made here.

use proptest::prelude::*;

use super::does::{Does, Why};
use super::load::{Loaded, Selection};
use super::order::{Edge, Order};
use super::path::{Roots, canonical};
use super::plan::{AT_POSITION, Action, Plan, What};
use super::ranges::Ranges;
use super::windows::Window;
use super::{Impossible, MOST_THREADS, flags, plan};
use crate::fuzz;
use crate::model::ids::{Family, Op, ReadClass};
use crate::model::record::{AsyncCall, Call, Folder, GivenPath, Kind, Lost, OpenFile, Paths, Records};
use crate::model::recording::{Meta, Mount};
use crate::model::report::slow::{CallPath, Inode};

/// A recording whose calls follow each other, unless they say something else.
#[derive(Default)]
struct Made {
    records: Records,
    now_ns: u64,
}

impl Made {
    fn call(&mut self, tid: u32, op: Op, value: i64) -> &mut Call {
        self.now_ns += 100;
        self.records.calls.push(Call {
            tid,
            pid: tid,
            begin_ns: self.now_ns,
            end_ns: Some(self.now_ns + 50),
            op,
            value,
            ..Call::default()
        });
        self.records.calls.last_mut().unwrap()
    }

    fn on_path(&mut self, tid: u32, op: Op, value: i64, path: &str) -> &mut Call {
        let call = self.call(tid, op, value);
        call.paths.get_or_insert_default().first = Some(given(path));
        call
    }

    fn open(&mut self, tid: u32, path: &str, flags: u32, file: OpenFile) -> &mut Call {
        let number = file.number;
        self.define(path, file);
        let call = self.on_path(tid, Op::Openat, 3, path);
        call.files[0] = number;
        call.extra = flags.into();
        call
    }

    fn define(&mut self, path: &str, file: OpenFile) {
        self.records.files.push(OpenFile {
            at_ns: self.now_ns + 100,
            path: Some(CallPath::whole(path)),
            ..file
        });
    }

    fn on_file(&mut self, tid: u32, op: Op, value: i64, number: u32) -> &mut Call {
        let call = self.call(tid, op, value);
        call.files[0] = number;
        call
    }

    fn at(&mut self, tid: u32, op: Op, number: u32, offset: u64, bytes: u64) -> &mut Call {
        let call = self.on_file(tid, op, bytes.cast_signed(), number);
        (call.offset, call.size) = (Some(offset), Some(bytes));
        call
    }

    fn loaded(&self, selection: Selection) -> Loaded {
        let mut loaded = Loaded::new(selection);
        loaded.take(self.records.clone());
        loaded.finish();
        loaded
    }

    /// What is read again.
    fn again(&self) -> std::option::IntoIter<Records> {
        Some(self.records.clone()).into_iter()
    }

    fn plan_as(&self, selection: Selection, order: Order) -> Result<Whole, Impossible> {
        self.plan_of(self.loaded(selection), &Meta::default(), &Roots::default(), 1, order)
    }

    fn plan_of(
        &self,
        loaded: Loaded,
        meta: &Meta,
        roots: &Roots,
        root_count: usize,
        order: Order,
    ) -> Result<Whole, Impossible> {
        let plan = plan(loaded, self.again(), meta, roots, root_count, order)?;
        Ok(Whole::new(plan, self, usize::MAX))
    }

    fn plan(&self) -> Whole {
        self.plan_as(Selection::default(), Order::Files).unwrap()
    }
}

/// A plan with all its calls, by thread.
#[derive(Debug)]
struct Whole {
    plan: Plan,
    actions: Vec<Vec<Action>>,
    edges: Vec<Vec<Vec<Edge>>>,
    /// The window of each call.
    windows: Vec<Vec<usize>>,
    /// Of each window: the calls of each thread that are made before it.
    after: Vec<Vec<u32>>,
}

impl Whole {
    /// With windows of so many calls.
    fn new(plan: Plan, made_of: &Made, window: usize) -> Self {
        let mut whole = Self {
            actions: vec![Vec::new(); plan.threads.len()],
            edges: vec![Vec::new(); plan.threads.len()],
            windows: vec![Vec::new(); plan.threads.len()],
            after: Vec::new(),
            plan,
        };
        for Window { after, parts } in whole.plan.windows(made_of.again()).of(window) {
            for part in parts {
                let thread = part.thread as usize;
                for action in &part.actions {
                    whole.edges[thread].push(part.edges_of(action).to_vec());
                    whole.windows[thread].push(whole.after.len());
                    // Where a part has the edges is its own affair.
                    whole.actions[thread].push(Action {
                        edges: (0, 0),
                        ..*action
                    });
                }
            }
            whole.after.push(after);
        }
        whole
    }
}

impl std::ops::Deref for Whole {
    type Target = Plan;

    fn deref(&self) -> &Plan {
        &self.plan
    }
}

fn given(path: &str) -> GivenPath {
    GivenPath::new(path, 0)
}

/// A regular file of this size, which is allocated.
fn file(number: u32, size: u64) -> OpenFile {
    OpenFile {
        number,
        inode: Some(Inode::on([8, 1], u64::from(number) + 100)),
        mode: 0o100_640,
        links: 1,
        size,
        blocks: size.div_ceil(512),
        ..OpenFile::default()
    }
}

fn folder(number: u32) -> OpenFile {
    OpenFile {
        mode: 0o040_755,
        ..file(number, 4096)
    }
}

/// The paths that are prepared; files with their size.
fn prepared(plan: &Plan) -> Vec<String> {
    let one = |spot: u32, what: &What| {
        let path = &plan.spots[spot as usize].inside;
        match what {
            What::Folder { .. } => format!("{path}/"),
            What::File { size, .. } => format!("{path} {size}"),
            What::Link { length } => format!("{path} -> {length}"),
            What::Same { spot } => format!("{path} = {}", plan.spots[*spot as usize].inside),
        }
    };
    plan.prepared
        .iter()
        .map(|prepared| one(prepared.spot, &prepared.what))
        .collect()
}

fn made(plan: &Plan) -> Vec<&str> {
    plan.made
        .iter()
        .map(|spot| plan.spots[*spot as usize].inside.as_str())
        .collect()
}

fn does(plan: &Whole) -> Vec<Does> {
    plan.actions.iter().flatten().map(|action| action.does).collect()
}

/// All edges, by thread and call.
fn edges(plan: &Whole) -> Vec<(usize, usize, Vec<Edge>)> {
    let mut all = Vec::new();
    for (thread, of) in plan.edges.iter().enumerate() {
        for (number, edges) in of.iter().enumerate().filter(|(_, edges)| !edges.is_empty()) {
            all.push((thread, number, edges.clone()));
        }
    }
    all
}

#[test]
fn a_file_that_was_read_is_prepared_with_data_where_it_was_read() {
    let mut made_of = Made::default();
    made_of.open(1, "/srv/db/a", 0, file(5, 100_000));
    made_of.at(1, Op::Pread64, 5, 8192, 4096);
    made_of.at(1, Op::Pwrite64, 5, 0, 4096);
    made_of.at(1, Op::Pread64, 5, 0, 8192);
    made_of.on_file(1, Op::Close, 0, 5);
    let plan = made_of.plan();
    assert_eq!(prepared(&plan), ["srv/", "srv/db/", "srv/db/a 100000"]);
    let What::File {
        mode, allocated, data, ..
    } = &plan.prepared[2].what
    else {
        panic!()
    };
    assert_eq!((*mode, *allocated), (0o640, Some(196 * 512)));
    // What was overwritten is data, too: to write to blocks without any costs more.
    assert_eq!(data.iter().collect::<Vec<_>>(), [(0, 12_288)]);
    assert_eq!(
        does(&plan),
        [Does::Open, Does::Pread, Does::Pwrite, Does::Pread, Does::Close]
    );
    assert_eq!((plan.files[0].uses, plan.files[0].found.as_ref()), (5, None));
    assert_eq!(plan.needed, [196 * 512]);
    assert!(made(&plan).is_empty());
}

/// To write to blocks that have no data yet takes a file system longer, so what was overwritten is data, if it is known to have
/// been: it was not cut off before, and the file has no holes.
#[test]
fn what_is_overwritten_is_data() {
    let mut made_of = Made::default();
    made_of.open(1, "/srv/log", 0, file(5, 65_536));
    made_of.at(1, Op::Pwrite64, 5, 4096, 8192);
    made_of.at(1, Op::Pwrite64, 5, 61_440, 8192);
    made_of.open(1, "/srv/cut", 0, file(6, 65_536));
    made_of.on_file(1, Op::Ftruncate, 0, 6).extra = 4096;
    made_of.at(1, Op::Pwrite64, 6, 0, 16_384);
    let sparse = OpenFile {
        blocks: 8,
        ..file(7, 65_536)
    };
    made_of.open(1, "/srv/sparse", 0, sparse);
    made_of.at(1, Op::Pwrite64, 7, 0, 4096);
    let plan = made_of.plan();
    let data = plan.prepared.iter().filter_map(|one| match &one.what {
        What::File { data, .. } => Some(data.iter().collect::<Vec<_>>()),
        _ => None,
    });
    let expected = [vec![(0, 4096)], vec![(4096, 12_288), (61_440, 65_536)], vec![]];
    assert_eq!(data.collect::<Vec<_>>(), expected);
}

#[test]
fn what_was_in_the_page_cache_when_it_was_first_read_is_known() {
    let mut made_of = Made::default();
    made_of.define("/a", file(5, 1 << 20));
    for (offset, class) in [
        (0, ReadClass::FromCache),
        (8192, ReadClass::WaitedForOwn),
        // By then, the earlier read had brought it there.
        (8192, ReadClass::FromCache),
        (4096, ReadClass::FromCache),
    ] {
        made_of.at(1, Op::Pread64, 5, offset, 4096).class = Some(class);
    }
    let plan = made_of.plan();
    let What::File { data, cached, .. } = &plan.prepared[0].what else {
        panic!()
    };
    let all = |ranges: &Ranges| ranges.iter().collect::<Vec<_>>();
    assert_eq!((all(data), all(cached)), (vec![(0, 12_288)], vec![(0, 8192)]));
    assert!(plan.has_classes);
}

#[test]
fn a_file_that_a_call_made_is_not_prepared() {
    let mut made_of = Made::default();
    made_of.on_path(1, Op::Mkdir, 0, "/new").extra = 0o755;
    made_of.open(1, "/new/a", flags::CREATE | 1, file(5, 0));
    made_of.at(1, Op::Write, 5, 0, 1000);
    made_of.on_path(1, Op::Stat, -2, "/nothing");
    made_of.on_path(1, Op::Stat, 0, "/new/a");
    let rename = made_of.on_path(1, Op::Rename, 0, "/new");
    rename.paths.as_mut().unwrap().second = Some(given("/newer"));
    made_of.on_path(1, Op::Unlink, 0, "/newer/a");
    let plan = made_of.plan();
    assert!(prepared(&plan).is_empty(), "{:?}", prepared(&plan));
    // All that any call makes, and what moves with a directory.
    let mut all = made(&plan);
    all.sort_unstable();
    assert_eq!(all, ["new", "new/a", "newer", "newer/a"]);
    assert_eq!(plan.needed, [1000]);
}

#[test]
fn directories_in_which_nothing_was_found_are_prepared() {
    let mut made_of = Made::default();
    made_of.on_path(1, Op::Stat, -2, "/opt/lib/nothing");
    // That a call did not find the directory itself shows that it did not exist.
    made_of.on_path(1, Op::Stat, -2, "/opt/lib/avx/more/nothing");
    made_of.on_path(1, Op::Stat, -2, "/opt/lib/avx");
    // So does that it is made later.
    made_of.on_path(1, Op::Stat, -2, "/srv/made/nothing");
    made_of.on_path(1, Op::Mkdir, 0, "/srv/made");
    // This one existed until it was removed.
    made_of.on_path(1, Op::Rmdir, 0, "/srv/removed");
    made_of.on_path(1, Op::Stat, -2, "/srv/removed/below/nothing");
    // Nothing is in a file.
    made_of.open(1, "/srv/file", 0, file(5, 10));
    made_of.on_path(1, Op::Stat, -20, "/srv/file/in/nothing");
    let plan = made_of.plan();
    assert_eq!(
        prepared(&plan),
        ["opt/", "opt/lib/", "srv/", "srv/file 10", "srv/removed/"]
    );
}

#[test]
fn a_file_that_was_open_before_is_opened_with_its_position() {
    let mut made_of = Made::default();
    let flags = flags::CREATE | flags::TRUNCATE | flags::EXCLUSIVE | 2;
    let position = 4096;
    made_of.define(
        "/a",
        OpenFile {
            flags,
            position,
            ..file(5, 9000)
        },
    );
    made_of.at(1, Op::Read, 5, 4096, 100);
    made_of.at(1, Op::Read, 5, 4196, 100);
    // Moved by a call that was not recorded.
    made_of.at(1, Op::Read, 5, 50, 100);
    let plan = made_of.plan();
    let found = plan.files[0].found.as_ref().unwrap();
    assert_eq!((found.flags, found.position), (2, 4096));
    let seeks: Vec<bool> = plan.actions[0].iter().map(|action| action.seeks).collect();
    assert_eq!(seeks, [false, false, true]);
    assert_eq!(plan.most_open, 1);
}

#[test]
fn a_recorded_seek_moves_the_position_and_descriptors_need_nothing() {
    let mut made_of = Made::default();
    made_of.open(1, "/a", 0, file(5, 9000));
    made_of.on_file(1, Op::Lseek, 4096, 5);
    made_of.on_file(1, Op::Dup, 4, 5);
    made_of.at(1, Op::Read, 5, 4096, 10);
    made_of.on_file(1, Op::Lseek, -22, 5);
    made_of.at(1, Op::Read, 5, 4106, 10);
    let plan = made_of.plan();
    let actions: Vec<_> = plan.actions[0]
        .iter()
        .map(|action| (action.does, action.seeks))
        .collect();
    let expected = [
        (Does::Open, false),
        (Does::Seek, false),
        (Does::Read, false),
        (Does::Seek, false),
        (Does::Read, false),
    ];
    assert_eq!(actions, expected);
    let to: Vec<i64> = plan.actions[0]
        .iter()
        .map(|action| action.offset.cast_signed())
        .collect();
    assert_eq!((to[1], to[3]), (4096, -1));
    assert_eq!(plan.left_out, [((Op::Dup, Why::NotNeeded), 1)].into());
}

#[test]
fn flags_that_an_open_file_gets_later_are_replayed() {
    /// `F_SETFL` with `O_APPEND` and a flag of signals, which no replay needs; `F_DUPFD`.
    const SET: (u64, i64) = (4, 0o22_000);
    const DUPLICATE: (u64, i64) = (0, 10);
    let mut made_of = Made::default();
    made_of.open(1, "/a", 0, file(5, 9000));
    for (command, argument) in [DUPLICATE, SET] {
        let call = made_of.on_file(1, Op::Fcntl, 0, 5);
        call.extra = command;
        call.arguments = Some(Box::new([3, command.cast_signed(), argument, 0, 0, 0]));
    }
    made_of.at(1, Op::Write, 5, 9000, 10);
    // Its arguments were not recorded.
    made_of.on_file(1, Op::Fcntl, 0, 5).extra = SET.0;
    let plan = made_of.plan();
    let actions: Vec<_> = plan.actions[0].iter().map(|it| (it.does, it.extra, it.seeks)).collect();
    // What appends is not moved to where it wrote.
    let expected = [
        (Does::Open, 0, false),
        (Does::SetFlags, flags::APPEND, false),
        (Does::Write, 0, false),
    ];
    assert_eq!(actions, expected);
    let left_out = [((Op::Fcntl, Why::NotNeeded), 1), ((Op::Fcntl, Why::NotRecorded), 1)];
    assert_eq!(plan.left_out, left_out.into());
}

#[test]
fn what_is_not_replayed_is_counted_with_its_reason() {
    let mut made_of = Made::default();
    made_of.open(1, "/a", 0, file(5, 1));
    made_of.on_path(1, Op::Stat, 0, "/proc/self/stat");
    made_of.on_path(1, Op::Chown, 0, "/a");
    made_of.on_path(1, Op::Mknod, 0, "/pipe");
    made_of.on_path(1, Op::Stat, 0, "relative");
    made_of.on_path(1, Op::Stat, 0, "/a\0b");
    made_of.on_file(1, Op::Read, 0, 77);
    made_of.call(1, Op::IoUringEnter, 1);
    let mut socket = file(9, 0);
    socket.mode = 0o140_777;
    made_of.define("/x", socket);
    made_of.on_file(1, Op::Read, 0, 9);
    made_of.define("/srv/../../etc/passwd", file(10, 0));
    made_of.on_file(1, Op::Read, 0, 10);
    made_of.on_file(1, Op::Fsync, 0, 5).end_ns = None;
    made_of.records.asynchronous.push(AsyncCall {
        pid: 1,
        tid: 1,
        op: Op::Read,
        begin_ns: 1,
        attempt_end_ns: 2,
        end_ns: 3,
        file: 5,
        ..AsyncCall::default()
    });
    made_of.records.lost.push(Lost {
        cpu: 0,
        kind: Kind::Call,
        records: 7,
        from_ns: 0,
        to_ns: 1,
    });
    let plan = made_of.plan();
    let left: Vec<(Op, Why, u64)> = plan
        .left_out
        .iter()
        .map(|((op, why), calls)| (*op, *why, *calls))
        .collect();
    assert_eq!(
        left,
        [
            (Op::Read, Why::NotAFile, 1),
            (Op::Read, Why::UnknownFile, 1),
            (Op::Read, Why::Damaged, 1),
            (Op::Fsync, Why::UnderWay, 1),
            (Op::IoUringEnter, Why::Asynchronous, 1),
            (Op::Stat, Why::NotAFile, 1),
            (Op::Stat, Why::UnknownPath, 1),
            (Op::Stat, Why::Damaged, 1),
            (Op::Mknod, Why::NotMade, 1),
            (Op::Chown, Why::Owners, 1),
        ]
    );
    assert_eq!(
        (plan.calls(), plan.recorded, plan.asynchronous, plan.lost[&Kind::Call]),
        (1, 11, 1, 7)
    );
}

/// All calls, and those that change owners.
fn with_owners() -> Selection {
    Selection {
        owners: true,
        ..Selection::default()
    }
}

#[test]
fn owners_are_changed_if_they_are_selected() {
    let mut made_of = Made::default();
    made_of.open(1, "/a", 0, file(5, 1));
    made_of.on_path(1, Op::Lchown, 0, "/a").extra = 7 << 32 | 9;
    made_of.on_file(1, Op::Fchown, 0, 5).extra = 8;
    let plan = made_of.plan_as(with_owners(), Order::Files).unwrap();
    let actions = plan.actions[0].iter();
    let changes: Vec<(Does, u64)> = actions.map(|action| (action.does, action.offset)).skip(1).collect();
    assert_eq!(changes, [(Does::Chown, 7 << 32 | 9), (Does::Fchown, 8)]);
    assert_eq!(plan.changes_of_owners, 2);
}

#[test]
fn threads_are_alone_if_no_other_needs_their_descriptors() {
    let mut made_of = Made::default();
    for tid in [1, 2, 3] {
        made_of.open(tid, "/a", 0, file(tid, 1));
        made_of.at(tid, Op::Pread64, tid, 0, 1);
    }
    // 3 uses a file of 2 as well, and 4 one that was open before. 5 changes an owner.
    made_of.at(3, Op::Pread64, 2, 0, 1);
    made_of.define("/b", file(9, 1));
    made_of.at(4, Op::Pread64, 9, 0, 1);
    made_of.on_path(5, Op::Lchown, 0, "/a").extra = 7 << 32 | 9;
    // 6 only has no descriptor, and 8 uses one that 7 opened, alone.
    made_of.on_path(6, Op::Stat, 0, "/a");
    made_of.open(7, "/a", 0, file(8, 1));
    made_of.at(8, Op::Pread64, 8, 0, 1);
    let plan = made_of.plan_as(with_owners(), Order::Files).unwrap();
    let alone = plan.threads.iter().filter(|thread| thread.is_alone);
    assert_eq!(alone.map(|thread| thread.tid).collect::<Vec<_>>(), [1, 6]);
    assert_eq!(plan.threads.len(), 8);
}

#[test]
fn calls_on_one_path_or_file_keep_their_order_and_no_others() {
    let mut made_of = Made::default();
    made_of.on_path(1, Op::Mkdir, 0, "/d").extra = 0o755;
    made_of.open(2, "/d/a", flags::CREATE | 1, file(5, 0));
    made_of.at(2, Op::Write, 5, 0, 4096);
    made_of.on_path(3, Op::Stat, 0, "/other");
    made_of.open(3, "/d/a", 0, file(6, 4096));
    made_of.at(3, Op::Pread64, 6, 0, 4096);
    made_of.on_path(1, Op::Unlink, 0, "/d/a");
    let plan = made_of.plan();
    let edge = |thread, number| Edge { thread, number };
    assert_eq!(
        edges(&plan),
        [
            // The unlink waits for both opens.
            (0, 1, vec![edge(2, 1), edge(1, 0)]),
            // The open waits for the directory.
            (1, 0, vec![edge(0, 0)]),
            // The second open waits for what the first one made, and for the write.
            (2, 1, vec![edge(1, 1), edge(0, 0)]),
        ]
    );
}

#[test]
fn a_directory_is_listed_before_it_is_removed() {
    for removal in [Op::Rmdir, Op::Rename] {
        let mut made_of = Made::default();
        made_of.open(1, "/d", flags::DIRECTORY, folder(5));
        made_of.on_file(1, Op::Getdents64, 600, 5);
        // What it lists may change meanwhile.
        made_of.on_path(2, Op::Unlink, 0, "/d/a");
        let removes = made_of.on_path(3, removal, 0, "/d");
        if removal == Op::Rename {
            let paths = removes.paths.as_mut().unwrap();
            (paths.first, paths.second) = (Some(given("/new")), Some(given("/d")));
        }
        made_of.on_file(1, Op::Getdents64, -2, 5);
        let plan = made_of.plan();
        let edge = |thread, number| Edge { thread, number };
        let expected = [(0, 2, vec![edge(2, 0)]), (2, 0, vec![edge(1, 0), edge(0, 1)])];
        assert_eq!(edges(&plan), expected, "{removal}");
    }
}

/// Otherwise the replay may find what it may not open, or the other way round.
#[test]
fn permissions_change_after_the_calls_before_and_before_those_after() {
    let edge = |thread, number| Edge { thread, number };
    for (path, is_open) in [("/d", true), ("/d", false), ("/d/a", true), ("/d/a", false)] {
        for op in [Op::Chmod, Op::Chown] {
            let mut made_of = Made::default();
            match path {
                "/d" => made_of.open(2, path, flags::DIRECTORY, folder(5)),
                _ => made_of.open(2, path, 0, file(5, 0)),
            };
            made_of.on_path(1, Op::Access, 0, "/d/a");
            if is_open {
                let of_open = if op == Op::Chmod { Op::Fchmod } else { Op::Fchown };
                made_of.on_file(2, of_open, 0, 5);
            } else {
                made_of.on_path(2, op, 0, path);
            }
            made_of.on_path(3, Op::Access, -13, "/d/a");
            let plan = made_of.plan_as(with_owners(), Order::Files).unwrap();
            let expected = [(1, 1, vec![edge(0, 0)]), (2, 0, vec![edge(1, 1)])];
            assert_eq!(edges(&plan), expected, "{op} {path} {is_open}");
        }
    }
}

#[test]
fn overlapping_calls_stay_free_to_overlap() {
    let mut made_of = Made::default();
    made_of.define("/a", file(5, 1 << 20));
    for tid in [1, 2] {
        let call = made_of.at(tid, Op::Pwrite64, 5, 0, 4096);
        (call.begin_ns, call.end_ns) = (1000, Some(2000));
    }
    let third = made_of.at(3, Op::Pwrite64, 5, 0, 4096);
    (third.begin_ns, third.end_ns) = (2000, Some(3000));
    // Another block.
    let fourth = made_of.at(4, Op::Pwrite64, 5, 1 << 16, 4096);
    (fourth.begin_ns, fourth.end_ns) = (4000, Some(5000));
    let plan = made_of.plan();
    let all = edges(&plan);
    assert_eq!(all.len(), 1, "{all:?}");
    assert_eq!((all[0].0, all[0].2.len()), (2, 2));
}

#[test]
fn threads_alone_keep_their_order_and_offsets() {
    let mut made_of = Made::default();
    made_of.open(1, "/a", 2, file(5, 100));
    made_of.at(1, Op::Write, 5, 0, 10);
    made_of.at(2, Op::Read, 5, 10, 10);
    let order = |order| made_of.plan_as(Selection::default(), order).unwrap();
    assert_eq!(does(&order(Order::Threads)), [Does::Open, Does::Pwrite, Does::Pread]);
    assert_eq!(does(&order(Order::Files)), [Does::Open, Does::Write, Does::Read]);
    // A file has to be open in any order.
    let open = Edge { thread: 0, number: 0 };
    assert_eq!(edges(&order(Order::Threads)), [(1, 0, vec![open])]);
    let write = Edge { thread: 0, number: 1 };
    assert_eq!(edges(&order(Order::Files)), [(1, 0, vec![write])]);
    assert_eq!(edges(&order(Order::Total)), [(1, 0, vec![write])]);
}

#[test]
fn what_is_not_selected_is_prepared_for_what_is() {
    let mut made_of = Made::default();
    made_of.on_path(1, Op::Mkdir, 0, "/d").extra = 0o755;
    made_of.open(
        1,
        "/d/a",
        flags::CREATE | flags::EXCLUSIVE | 1,
        OpenFile { flags: 1, ..file(5, 0) },
    );
    made_of.at(1, Op::Pread64, 5, 0, 4096);
    let selection = Selection {
        only: [Family::Read].into(),
        ..Selection::default()
    };
    let plan = made_of.plan_as(selection, Order::Files).unwrap();
    assert_eq!(does(&plan), [Does::Pread]);
    assert_eq!(prepared(&plan), ["d/", "d/a 4096"]);
    let found = plan.files[0].found.as_ref().unwrap();
    assert_eq!((found.flags, plan.not_selected), (1, 2));
    let threads = Selection {
        threads: [7].into(),
        ..Selection::default()
    };
    assert_eq!(made_of.plan_as(threads, Order::Files).unwrap_err(), Impossible::Nothing);
}

#[test]
fn relative_paths_start_from_the_directory_of_their_process_or_of_an_open_one() {
    let mut made_of = Made::default();
    made_of.records.folders.push(Folder {
        pid: 1,
        path: "/home".to_owned(),
        ..Folder::default()
    });
    made_of.open(1, "/srv", flags::DIRECTORY, folder(5));
    let from_open = made_of.on_path(1, Op::Newfstatat, 0, "x");
    from_open.paths.as_mut().unwrap().first.as_mut().unwrap().base = 5;
    made_of.on_path(1, Op::Chdir, 0, "user");
    made_of.on_path(1, Op::Stat, 0, "../y");
    made_of.on_path(1, Op::Stat, 0, "z");
    let plan = made_of.plan();
    assert_eq!(
        prepared(&plan),
        ["home/", "home/user/", "home/user/z 0", "home/y 0", "srv/", "srv/x 0"]
    );
}

#[test]
fn paths_start_from_the_root_directory_of_their_process() {
    let mut made_of = Made::default();
    let root = |pid, at_ns, path: &str| Folder {
        pid,
        at_ns,
        is_root: true,
        path: path.to_owned(),
    };
    made_of.records.folders = vec![root(1, 0, "/jail"), root(2, 0, "/"), root(2, u64::MAX, "/jail")];
    // What is opened has its path from the root of all.
    made_of.open(1, "/jail/x", 0, file(5, 10));
    made_of.records.calls.last_mut().unwrap().paths.as_mut().unwrap().first = Some(given("/x"));
    made_of.on_path(1, Op::Stat, 0, "/../a");
    made_of.on_path(2, Op::Stat, 0, "/b");
    let plan = made_of.plan();
    assert_eq!(prepared(&plan), ["b 0", "jail/", "jail/a 0", "jail/x 10"]);
}

#[test]
fn links_lead_to_where_the_recorded_ones_did() {
    let mut made_of = Made::default();
    // Opened by another path than its own: /lib is a link.
    made_of.open(1, "/usr/lib/x", 0, file(5, 10));
    made_of.records.calls.last_mut().unwrap().paths.as_mut().unwrap().first = Some(given("/lib/x"));
    made_of.on_path(1, Op::Stat, 0, "/lib/y");
    made_of.on_path(1, Op::Readlink, 7, "/lib");
    for (path, text) in [("/a/l", "/a/b/t"), ("/a/m", "../c"), ("/a/n", "../../../../etc")] {
        let call = made_of.on_path(1, Op::Symlink, 0, path);
        call.paths.as_mut().unwrap().second = Some(given(text));
    }
    let plan = made_of.plan();
    assert_eq!(
        prepared(&plan),
        ["a/", "lib -> 7", "usr/", "usr/lib/", "usr/lib/x 10", "usr/lib/y 0"]
    );
    assert_eq!(plan.texts, ["b/t", "../c", "../etc"]);
}

#[test]
fn mapped_directories_are_made_elsewhere() {
    let mut made_of = Made::default();
    made_of.open(1, "/srv/db/a", 0, file(5, 512));
    let roots = Roots::new(vec![canonical("/srv/db").unwrap()]);
    let plan = made_of
        .plan_of(
            made_of.loaded(Selection::default()),
            &Meta::default(),
            &roots,
            2,
            Order::Files,
        )
        .unwrap();
    let spots: Vec<(u32, &str)> = plan
        .spots
        .iter()
        .map(|spot| (spot.root, spot.inside.as_str()))
        .collect();
    assert!(spots.contains(&(1, "a")), "{spots:?}");
    assert_eq!(plan.needed, [0, 512]);
}

#[test]
fn the_mounts_of_the_recorded_machine_decide_what_keeps_data() {
    let mut made_of = Made::default();
    made_of.on_path(1, Op::Stat, 0, "/strange/a");
    made_of.on_path(1, Op::Stat, 0, "/proc/a");
    let mount = |point: &str, file_system: &str| Mount {
        point: point.to_owned(),
        file_system: file_system.to_owned(),
        ..Mount::default()
    };
    let meta = Meta {
        mounts: vec![mount("/", "ext4"), mount("/strange", "proc")],
        ..Meta::default()
    };
    let plan = made_of
        .plan_of(
            made_of.loaded(Selection::default()),
            &meta,
            &Roots::default(),
            1,
            Order::Files,
        )
        .unwrap();
    assert_eq!(prepared(&plan), ["proc/", "proc/a 0"]);
}

#[test]
fn more_threads_than_a_replay_may_have_share_some() {
    let mut made_of = Made::default();
    let many = MOST_THREADS as u32 + 100;
    for tid in 1..=many {
        made_of.on_path(tid, Op::Stat, 0, "/a");
    }
    let plan = made_of.plan();
    assert_eq!((plan.threads.len(), plan.calls()), (1, u64::from(many)));
    made_of
        .records
        .calls
        .iter_mut()
        .for_each(|call| (call.begin_ns, call.end_ns) = (5, Some(6)));
    let why = made_of.plan_as(Selection::default(), Order::Files).unwrap_err();
    assert_eq!(why, Impossible::Threads(many as usize));
}

/// Thread 1 makes calls that follow each other, and thread 2 one that begins with the first of them and takes as long as so
/// many.
fn beside_a_long_one(calls: u64) -> Whole {
    let mut made_of = Made::default();
    made_of.define("/a", file(5, 1 << 20));
    for _ in 0..9 {
        made_of.at(1, Op::Write, 5, 0, 4096);
    }
    let long = made_of.at(2, Op::Fsync, 5, 0, 0);
    (long.begin_ns, long.end_ns) = (110, Some(100 + calls * 100));
    let plan = made_of.plan_as(Selection::default(), Order::Files).unwrap().plan;
    Whole::new(plan, &made_of, 2)
}

#[test]
fn a_window_comes_after_what_had_ended_two_windows_before() {
    let plan = beside_a_long_one(1);
    assert_eq!(plan.windows, [vec![0, 1, 1, 2, 2, 3, 3, 4, 4], vec![0]]);
    assert_eq!(plan.after, [[0, 0], [0, 0], [1, 1], [3, 1], [5, 1]]);
    // What overlapped is free to overlap, however many calls others make meanwhile.
    let plan = beside_a_long_one(6);
    assert_eq!(plan.after, [[0, 0], [0, 0], [1, 0], [3, 0], [5, 1]]);
}

#[test]
fn edges_lead_across_the_borders_of_windows() {
    let mut made_of = Made::default();
    made_of.open(1, "/a", 2, file(5, 1 << 20));
    made_of.at(2, Op::Write, 5, 0, 4096);
    // It begins at the end, and uses what was opened windows before.
    made_of.at(1, Op::Write, 5, 4096, 4096);
    made_of.at(3, Op::Write, 5, 8192, 4096);
    let plan = made_of.plan_as(Selection::default(), Order::Files).unwrap().plan;
    let plan = Whole::new(plan, &made_of, 1);
    assert_eq!(plan.windows, [vec![0, 2], vec![1], vec![3]]);
    let edge = |thread, number| Edge { thread, number };
    assert_eq!(
        edges(&plan),
        [
            (0, 1, vec![edge(1, 0)]),
            (1, 0, vec![edge(0, 0)]),
            (2, 0, vec![edge(0, 1)]),
        ]
    );
    assert_eq!((plan.files.len(), plan.actions[2][0].file), (1, 0));
}

#[test]
fn paths_are_those_that_were_planned() {
    let mut made_of = Made::default();
    let below = |folder: &str| (0..30).map(|at| format!("{folder}/{at}")).collect::<Vec<_>>();
    for path in below("/a") {
        made_of.on_path(1, Op::Stat, 0, &path);
    }
    let rename = made_of.on_path(1, Op::Rename, 0, "/a");
    rename.paths.as_mut().unwrap().second = Some(given("/b"));
    for path in below("/b") {
        made_of.on_path(1, Op::Stat, 0, &path);
    }
    let plan = made_of.plan();
    let spots = plan.actions[0].iter().map(|action| action.spot as usize);
    let paths: Vec<String> = spots.map(|spot| format!("/{}", plan.spots[spot].inside)).collect();
    let expected = [below("/a"), vec!["/a".to_owned()], below("/b")].concat();
    assert_eq!(paths, expected);
}

/// By which path each open file is opened at the start, with the flags.
fn opened_at_start(plan: &Plan) -> Vec<(&str, u32)> {
    let found = plan.files.iter().filter_map(|file| Some((file, file.found.as_ref()?)));
    found
        .map(|(file, found)| (plan.spots[file.spot as usize].inside.as_str(), found.flags))
        .collect()
}

#[test]
fn what_was_open_before_is_opened_by_the_name_that_it_had_at_the_start() {
    let mut made_of = Made::default();
    let rename = made_of.on_path(1, Op::Rename, 0, "/srv/log");
    rename.paths.as_mut().unwrap().second = Some(given("/srv/log.1"));
    // Its first use comes after the rename.
    made_of.define("/srv/log.1", file(5, 100));
    made_of.at(1, Op::Write, 5, 100, 10);
    let plan = made_of.plan();
    assert_eq!(prepared(&plan), ["srv/", "srv/log 100"]);
    assert_eq!(opened_at_start(&plan), [("srv/log", 0)]);
}

#[test]
fn what_is_in_a_made_directory_and_was_opened_by_no_call_has_a_name_of_its_own() {
    let mut made_of = Made::default();
    made_of.on_path(1, Op::Mkdir, 0, "/d").extra = 0o755;
    let flags = flags::CREATE | flags::EXCLUSIVE | 1;
    made_of.open(1, "/d/f", flags, OpenFile { flags: 1, ..file(5, 0) });
    made_of.at(1, Op::Write, 5, 0, 4096);
    made_of.open(1, "/d", flags::DIRECTORY, folder(6));
    made_of.on_file(1, Op::Fsync, 0, 6);
    // The same file again.
    let again = OpenFile {
        number: 7,
        ..file(5, 4096)
    };
    made_of.open(1, "/d/f", 0, again);
    made_of.at(1, Op::Pread64, 7, 0, 4096);
    let selection = Selection {
        without: [Family::Open].into(),
        ..Selection::default()
    };
    let plan = made_of.plan_as(selection, Order::Files).unwrap();
    assert_eq!(does(&plan), [Does::Mkdir, Does::Write, Does::Fsync, Does::Pread]);
    assert_eq!(prepared(&plan), [".iosb-open-5 0", ".iosb-open-6/"]);
    let names = [(".iosb-open-5", 1), (".iosb-open-6", 0), (".iosb-open-5", 0)];
    assert_eq!(opened_at_start(&plan), names);
}

#[test]
fn an_unnamed_file_that_was_open_before_is_opened_by_its_name_in_the_replay() {
    let mut made_of = Made::default();
    let unnamed = OpenFile {
        flags: flags::UNNAMED | flags::DIRECTORY | 2,
        links: 0,
        ..file(5, 100)
    };
    made_of.define("/tmp/#123 (deleted)", unnamed);
    made_of.at(1, Op::Pwrite64, 5, 0, 10);
    assert_eq!(opened_at_start(&made_of.plan()), [(".iosb-open-5", 2)]);
}

/// A call on no bytes would succeed whatever the file is.
#[test]
fn a_failed_call_on_several_buffers_has_a_byte_to_fail_on() {
    let mut made_of = Made::default();
    made_of.define("/a", file(5, 4096));
    for (op, value) in [(Op::Preadv2, -21), (Op::Writev, -9), (Op::Readv, 0)] {
        made_of.on_file(1, op, value, 5);
    }
    let plan = made_of.plan();
    let sizes: Vec<_> = plan.actions[0].iter().map(|it| it.size).collect();
    assert_eq!(sizes, [1, 1, 0]);
    assert_eq!(plan.needed, [4096]);
}

#[test]
fn flags_of_single_reads_and_writes_are_kept() {
    /// `RWF_DSYNC`, `RWF_APPEND` (include/uapi/linux/fs.h).
    const FLAGS: u64 = 0x12;
    let mut made_of = Made::default();
    made_of.define("/a", file(5, 4096));
    let call = made_of.on_file(1, Op::Pwritev2, 8192, 5);
    (call.offset, call.extra) = (Some(0), FLAGS);
    let call = made_of.on_file(1, Op::Preadv2, 100, 5);
    (call.offset, call.extra) = (Some(4096), 1);
    let plan = made_of.plan();
    let actions: Vec<_> = plan.actions[0].iter().map(|it| (it.does, it.size, it.extra)).collect();
    assert_eq!(actions, [(Does::Pwritev, 8192, 0x12), (Does::Preadv, 100, 1)]);
    // It appends, whatever its offset is.
    assert_eq!(plan.needed, [4096 + 8192]);
    let What::File { data, .. } = &plan.prepared[0].what else {
        panic!()
    };
    assert!(data.is_empty(), "{data:?}");
}

#[test]
fn what_is_copied_from_the_position_of_a_file_is_data() {
    let mut made_of = Made::default();
    for (number, path) in [(5, "/sent"), (6, "/copied")] {
        made_of.open(1, path, 0, file(number, 65_536));
        made_of.at(1, Op::Read, number, 0, 100);
    }
    made_of.open(1, "/to", flags::CREATE | 1, file(7, 0));
    for _ in 0..2 {
        made_of.call(1, Op::Sendfile64, 8192).files = [0, 5];
        let call = made_of.call(1, Op::CopyFileRange, 8192);
        (call.files, call.extra) = ([6, 7], AT_POSITION);
    }
    // A 32-bit program may have given an offset, which is not recorded: nothing follows for the size.
    made_of.call(1, Op::Sendfile64, 65_536).files = [0, 5];
    let plan = made_of.plan();
    let data = plan.prepared.iter().filter_map(|one| match &one.what {
        What::File { size, data, .. } => Some((*size, data.iter().collect::<Vec<_>>())),
        _ => None,
    });
    let expected = [(65_536, vec![(0, 16_484)]), (65_536, vec![(0, 65_536)])];
    assert_eq!(data.collect::<Vec<_>>(), expected);
}

#[test]
fn copies_at_offsets_leave_positions() {
    let mut made_of = Made::default();
    made_of.open(1, "/from", 0, file(5, 65_536));
    made_of.open(1, "/to", flags::CREATE | 1, file(6, 0));
    let call = made_of.call(1, Op::Sendfile64, 100);
    (call.files, call.offset) = ([0, 5], Some(8192));
    let call = made_of.call(1, Op::CopyFileRange, 100);
    (call.files, call.offset, call.extra) = ([5, 6], Some(16_384), 4096);
    made_of.at(1, Op::Read, 5, 0, 10);
    made_of.at(1, Op::Write, 6, 0, 10);
    let plan = made_of.plan();
    let offsets: Vec<_> = plan.actions[0]
        .iter()
        .map(|it| (it.offset, it.other_offset, it.seeks))
        .collect();
    let copies = [(8192, 0, false), (16_384, 4096, false)];
    assert_eq!((&offsets[2..4], &offsets[4..]), (&copies[..], &[(0, 0, false); 2][..]));
    let What::File { data, .. } = &plan.prepared[0].what else {
        panic!()
    };
    let read: Vec<_> = data.iter().collect();
    assert_eq!(read, [(0, 10), (8192, 8292), (16_384, 16_484)]);
    assert_eq!(plan.needed, [65_536 + 100 + 10]);
}

/// Bytes that are needed for a new file, and for one with holes, on which these calls are made.
fn needed(calls: impl Fn(&mut Made)) -> [u64; 2] {
    let sparse = OpenFile {
        blocks: 8,
        ..file(5, 65_536)
    };
    [(flags::CREATE | flags::EXCLUSIVE | 2, file(5, 0)), (2, sparse)].map(|(flags, file)| {
        let mut made_of = Made::default();
        made_of.open(1, "/a", flags, file);
        calls(&mut made_of);
        made_of.plan().needed[0]
    })
}

#[test]
fn what_is_written_where_nothing_was_is_needed() {
    let long = |made_of: &mut Made| made_of.on_file(1, Op::Ftruncate, 0, 5).extra = 65_536;
    let write = |made_of: &mut Made, from, bytes| {
        made_of.at(1, Op::Pwrite64, 5, from, bytes);
    };
    assert_eq!(needed(long), [0, 4096]);
    // Once, however often.
    let written = needed(|made_of| {
        long(made_of);
        (0..3).for_each(|_| write(made_of, 8192, 8192));
    });
    assert_eq!(written, [8192, 4096 + 8192]);
    // No more than the whole file.
    let whole = needed(|made_of| {
        long(made_of);
        write(made_of, 0, 65_536);
    });
    assert_eq!(whole, [65_536; 2]);
    let again = needed(|made_of| {
        write(made_of, 0, 65_536);
        made_of.on_file(1, Op::Ftruncate, 0, 5).extra = 0;
        write(made_of, 0, 65_536);
    });
    assert_eq!(again, [65_536; 2]);
    let allocated = needed(|made_of| {
        let call = made_of.at(1, Op::Fallocate, 5, 65_536, 4096);
        (call.value, call.extra) = (0, 1);
        write(made_of, 65_536, 4096);
    });
    assert_eq!(allocated, [4096, 8192]);
}

#[test]
fn what_is_copied_is_needed_where_it_is_copied_to() {
    let mut made_of = Made::default();
    made_of.open(1, "/from", 0, file(5, 65_536));
    made_of.open(1, "/srv/to", flags::CREATE | 1, file(6, 0));
    for _ in 0..2 {
        let call = made_of.call(1, Op::CopyFileRange, 8192);
        (call.files, call.extra) = ([5, 6], AT_POSITION);
    }
    made_of.at(1, Op::Write, 6, 16_384, 100);
    let roots = Roots::new(vec![canonical("/srv").unwrap()]);
    let loaded = made_of.loaded(Selection::default());
    let plan = made_of
        .plan_of(loaded, &Meta::default(), &roots, 2, Order::Files)
        .unwrap();
    assert_eq!(plan.needed, [65_536, 16_484]);
    // The copies have moved the position to where the write begins.
    let seeks: Vec<bool> = plan.actions[0].iter().map(|action| action.seeks).collect();
    assert_eq!(seeks, [false; 5]);
}

#[test]
fn that_one_of_two_paths_was_not_found_says_nothing_about_either() {
    for op in [Op::Rename, Op::Link] {
        let mut made_of = Made::default();
        made_of.on_path(1, Op::Stat, 0, "/d/b");
        let call = made_of.on_path(1, op, -2, "/d/a");
        call.paths.as_mut().unwrap().second = Some(given("/d/nothing/x"));
        made_of.open(1, "/d/a", 0, file(5, 10));
        assert_eq!(prepared(&made_of.plan()), ["d/", "d/a 10", "d/b 0"], "{op}");
    }
}

#[test]
fn a_link_that_leads_nowhere_is_prepared() {
    let mut made_of = Made::default();
    for path in ["/d/link", "/d/appears", "/d/other"] {
        made_of.on_path(1, Op::Stat, 0, "/d/a");
        made_of.on_path(1, Op::Stat, -2, path);
    }
    made_of.on_path(1, Op::Lstat, 0, "/d/link");
    made_of.on_path(1, Op::Readlink, 5, "/d/link");
    made_of.on_path(1, Op::Unlink, 0, "/d/link");
    // What a call that follows links finds later was made without a recorded call.
    made_of.on_path(1, Op::Stat, 0, "/d/appears");
    made_of.on_path(1, Op::Unlink, 0, "/d/appears");
    // It does not exist at all.
    made_of.on_path(1, Op::Lstat, -2, "/d/other");
    made_of.on_path(1, Op::Unlink, 0, "/d/other");
    assert_eq!(prepared(&made_of.plan()), ["d/", "d/a 0", "d/link -> 5"]);
}

#[test]
fn a_truncate_that_failed_has_its_length_and_changes_no_size() {
    for value in [-13, -22] {
        let mut made_of = Made::default();
        made_of.open(1, "/a", 0, file(5, 8192));
        made_of.on_path(1, Op::Truncate, value, "/a").extra = 4096;
        made_of.at(1, Op::Pwrite64, 5, 4096, 4096);
        let plan = made_of.plan();
        assert_eq!(plan.actions[0][1].offset, 4096);
        let What::File { data, .. } = &plan.prepared[0].what else {
            panic!()
        };
        assert_eq!(data.iter().collect::<Vec<_>>(), [(4096, 8192)]);
    }
}

#[test]
fn openat2_makes_what_did_not_exist() {
    let mut made_of = Made::default();
    made_of.on_path(1, Op::Mkdir, 0, "/d").extra = 0o755;
    for value in [3, -17, 3, -2] {
        // Its flags are in memory of the program; the open file has those that it keeps.
        made_of.define("/d/f", OpenFile { flags: 1, ..file(5, 0) });
        let call = made_of.on_path(1, Op::Openat2, value, "/d/f");
        call.files[0] = if value < 0 { 0 } else { 5 };
    }
    let plan = made_of.plan();
    let flags: Vec<u32> = plan.actions[0].iter().skip(1).map(|action| action.extra).collect();
    assert_eq!(flags, [flags::CREATE | 1, flags::CREATE | flags::EXCLUSIVE, 1, 0]);
    assert!(prepared(&plan).is_empty() && made(&plan).contains(&"d/f"));
}

#[test]
fn a_file_with_names_in_two_mapped_directories_is_two_files() {
    let mut made_of = Made::default();
    for (number, path) in [(5, "/a/x"), (6, "/a/y"), (7, "/b/x")] {
        let file = OpenFile {
            number,
            links: 3,
            ..file(5, 4096)
        };
        made_of.open(1, path, 0, file);
    }
    let roots = Roots::new(vec![canonical("/b").unwrap()]);
    let loaded = made_of.loaded(Selection::default());
    let plan = made_of
        .plan_of(loaded, &Meta::default(), &roots, 2, Order::Files)
        .unwrap();
    assert_eq!(prepared(&plan), ["a/", "a/x 4096", "a/y = a/x", "x 4096"]);
    assert_eq!(plan.needed, [4096; 2]);
}

#[test]
fn what_may_be_executed_is_prepared_so() {
    let mut made_of = Made::default();
    made_of.on_path(1, Op::Access, 0, "/a").extra = 1;
    made_of.on_path(1, Op::Access, -13, "/b").extra = 1;
    made_of.on_path(1, Op::Access, 0, "/b").extra = 4;
    made_of.open(1, "/c", 0, file(5, 0));
    made_of.on_path(1, Op::Access, 0, "/c").extra = 1;
    let plan = made_of.plan();
    let modes = plan.prepared.iter().filter_map(|one| match one.what {
        What::File { mode, .. } => Some(mode),
        _ => None,
    });
    assert_eq!(modes.collect::<Vec<_>>(), [0o755, 0, 0o640]);
}

#[test]
fn a_directory_that_replaces_a_link_is_none() {
    let mut made_of = Made::default();
    made_of.open(1, "/v2/x", 0, file(5, 10));
    made_of.records.calls.last_mut().unwrap().paths.as_mut().unwrap().first = Some(given("/cur/x"));
    made_of.on_path(1, Op::Stat, 0, "/cur/z");
    made_of.on_path(1, Op::Unlink, 0, "/cur");
    made_of.on_path(1, Op::Mkdir, 0, "/cur").extra = 0o755;
    let rename = made_of.on_path(1, Op::Rename, 0, "/cur/x");
    rename.paths.as_mut().unwrap().second = Some(given("/cur/y"));
    let plan = made_of.plan();
    let paths = plan.actions[0]
        .iter()
        .map(|action| plan.spots[action.spot as usize].inside.as_str());
    assert_eq!(paths.collect::<Vec<_>>(), ["v2/x", "v2/z", "cur", "cur", "cur/x"]);
}

/// Any call on some of few paths and files.
fn any_call() -> impl Strategy<Value = Call> {
    let paths = [
        "/",
        "/a",
        "/a/b",
        "/a/b/c",
        "b",
        "../x",
        "/proc/1",
        "",
        "/a/../../b",
        "/\0",
    ];
    let path = (0..paths.len(), 0..4_u32).prop_map(move |(path, base)| GivenPath::new(paths[path], base));
    let path = || proptest::option::of(path.clone());
    let ops = crate::model::ids::Layer::Syscall.ops();
    let value = prop_oneof![
        Just(0),
        Just(-2),
        Just(-17),
        Just(i64::MIN),
        Just(i64::MAX),
        -40..5000_i64
    ];
    let number = || proptest::option::of(prop_oneof![0..1_000_000_u64, any::<u64>()]);
    (
        (0..ops.len(), 1..5_u32, 0..1000_u64, 0..300_u64, value),
        (number(), number(), 0..5_u32, 0..5_u32, any::<u64>(), path(), path()),
    )
        .prop_map(
            move |((op, tid, begin_ns, length, value), (offset, size, first, second, extra, one, two))| {
                let mut made_of = Made::default();
                let call = made_of.call(tid, ops[op].op, value);
                (call.begin_ns, call.end_ns) = (begin_ns, Some(begin_ns + length));
                (call.offset, call.size, call.files, call.extra) = (offset, size, [first, second], extra);
                call.paths = Some(Box::new(Paths {
                    first: one,
                    second: two,
                }));
                made_of.records.calls.remove(0)
            },
        )
}

/// Shortens calls that another one of their thread interrupts: a thread makes one after the other.
fn one_after_the_other(mut calls: Vec<Call>) -> Vec<Call> {
    let mut begins: Vec<(u32, u64)> = calls.iter().map(|call| (call.tid, call.begin_ns)).collect();
    begins.sort_unstable();
    for call in &mut calls {
        let mine = begins.partition_point(|begin| *begin <= (call.tid, call.begin_ns));
        if let Some((_, next)) = begins.get(mine).filter(|(tid, _)| *tid == call.tid) {
            call.end_ns = call.end_ns.map(|end| end.min(*next));
        }
    }
    calls
}

proptest! {
    #![proptest_config(fuzz::config())]

    #[test]
    fn whatever_was_recorded_each_call_is_replayed_or_counted(
        calls in proptest::collection::vec(any_call(), 1..60), order in 0..3_usize,
    ) {
        let mut made_of = Made::default();
        made_of.define("/a/b", file(1, 5000));
        made_of.define("/a", folder(2));
        made_of.define("/a/../c", file(3, u64::MAX));
        let all = calls.len() as u64;
        made_of.records.calls = calls;
        let order = [Order::Files, Order::Threads, Order::Total][order];
        match made_of.plan_as(Selection::default(), order) {
            Err(why) => prop_assert_eq!(why, Impossible::Nothing),
            Ok(plan) => {
                let left: u64 = plan.left_out.values().sum();
                prop_assert_eq!(plan.calls() + left, all);
                for spot in &plan.spots {
                    prop_assert!(!spot.inside.split('/').any(|name| name == ".."), "{:?}", spot);
                }
                for text in plan.texts.iter().filter(|text| !text.is_empty()) {
                    prop_assert!(!text.starts_with('/'), "{}", text);
                }
                // Only earlier calls are waited for, so that none waits for ever.
                for (thread, of) in plan.actions.iter().enumerate() {
                    prop_assert_eq!(of.len(), plan.threads[thread].calls as usize);
                    for (action, edges) in of.iter().zip(&plan.edges[thread]) {
                        for edge in edges {
                            let before = &plan.actions[edge.thread as usize][edge.number as usize];
                            prop_assert!(edge.thread as usize != thread);
                            prop_assert!(before.begin_ns + before.took_ns <= action.begin_ns);
                        }
                    }
                }
            }
        }
    }
    /// Nothing is missing but edges to calls that have been made before the window.
    #[test]
    fn windows_have_the_calls_and_edges_of_the_whole_plan(
        calls in proptest::collection::vec(any_call(), 1..60), order in 0..3_usize, held in 1..9_usize, window in 1..9_usize,
    ) {
        let mut made_of = Made::default();
        made_of.define("/a/b", file(1, 5000));
        made_of.define("/a", folder(2));
        made_of.records.calls = one_after_the_other(calls);
        let order = [Order::Files, Order::Threads, Order::Total][order];
        let Ok(whole) = made_of.plan_as(Selection::default(), order) else { return Ok(()) };
        let mut loaded = Loaded::new(Selection::default());
        loaded.hold(held);
        loaded.take(made_of.records.clone());
        loaded.finish();
        let plan = plan(loaded, made_of.again(), &Meta::default(), &Roots::default(), 1, order).unwrap();
        let parts = Whole::new(plan, &made_of, window);
        prop_assert_eq!(&parts.actions, &whole.actions);
        prop_assert_eq!((&parts.prepared, parts.span_ns), (&whole.prepared, whole.span_ns));
        for (thread, of) in parts.edges.iter().enumerate() {
            for (number, edges) in of.iter().enumerate() {
                let after = &parts.after[parts.windows[thread][number]];
                let is_open = |edge: &&Edge| edge.number >= after[edge.thread as usize];
                let expected: Vec<&Edge> = whole.edges[thread][number].iter().filter(is_open).collect();
                prop_assert_eq!(edges.iter().filter(is_open).collect::<Vec<_>>(), expected);
            }
        }
    }
}
