//! Records of a run that goes on, as they come, in the order in which they began.
//!
//! A record arrives when what it is about has ended, so that one that began earlier may follow. Each waits for
//! [`PATIENCE_NS`] after its begin: what takes no longer is in order, and what takes longer comes when it ends, with the
//! moment at which it began. A request waits for its call, which may still be under way, no longer than for two looks
//! at the calls under way.

use std::collections::{HashMap, VecDeque};
use std::io;

use super::names::Names;
use super::record::{Caller, Moment, Point, Record, all};
use super::select::Resolved;
use crate::model::ids::Origin;
use crate::model::record::{Call, FileNumber, Records, Request};

/// How long a record waits for others that began before it, in nanoseconds since its begin. Records are read every 50 ms.
pub const PATIENCE_NS: u64 = 100_000_000;
/// Definitions that are kept without use.
const MOST_NAMES: usize = 1 << 18;
/// Ended calls that are kept for requests that end later.
const MOST_CALLS: usize = 1 << 17;
/// How often the call of a request is looked for among those under way: first among threads whose state is mapped, then
/// among all.
const LOOKS: u8 = 2;

/// Puts records in order, and names what they refer to.
pub struct Following {
    selection: Resolved,
    names: Names,
    waiting: Vec<Waiting>,
    calls: LatestCalls,
    /// Calls under way before the last records were read, by thread.
    under_way: HashMap<u32, Caller>,
    /// Calls are recorded, not only requests.
    has_calls: bool,
    records: u64,
}

struct Waiting {
    record: Box<Record>,
    /// Of a request.
    caller: Option<Caller>,
    looks: u8,
}

impl Waiting {
    /// A request whose call is not known, and may be under way.
    fn is_looking(&self) -> bool {
        self.looks < LOOKS && self.caller.is_none()
    }
}

impl Following {
    /// `has_calls`: calls are recorded, and not requests alone.
    #[must_use]
    pub fn new(selection: Resolved, has_calls: bool) -> Self {
        Self {
            selection,
            names: Names::default(),
            waiting: Vec::new(),
            calls: LatestCalls::default(),
            under_way: HashMap::new(),
            has_calls,
            records: 0,
        }
    }

    /// Records that were passed on, without definitions and losses.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Whether the calls under way are to be given ([`Self::under_way`]) before records are read the next time; if so,
    /// whether those of all threads are. `now_ns`: this moment.
    #[must_use]
    pub fn looks_for_calls(&self, now_ns: u64) -> Option<bool> {
        let due_ns = now_ns.saturating_sub(PATIENCE_NS);
        let looking = self.waiting.iter().filter(|waiting| waiting.is_looking());
        let due = looking.filter(|waiting| waiting.record.begin_ns() < due_ns);
        due.map(|waiting| waiting.looks + 1 == LOOKS).max()
    }

    /// Takes the calls under way. A call that ends after this is among the next records.
    pub fn under_way(&mut self, calls: &[Call]) {
        self.under_way = calls.iter().map(|call| (call.tid, Caller::of(call))).collect();
        for waiting in self.waiting.iter_mut().filter(|waiting| waiting.is_looking()) {
            waiting.looks += 1;
        }
    }

    /// Adds records that have arrived.
    pub fn take(&mut self, records: Records) {
        for thread in &records.threads {
            self.names.thread(thread);
        }
        for file in &records.files {
            self.names.file(file);
            if let Some(named) = self.names.file_of(file.number) {
                self.selection.learn(file.number, named);
            }
        }
        for call in &records.calls {
            self.calls.add(call);
            // That one has ended, or one after it has.
            if self
                .under_way
                .get(&call.tid)
                .is_some_and(|known| known.begin_ns <= call.begin_ns)
            {
                self.under_way.remove(&call.tid);
            }
            self.names.touch(call.tid, &call.files);
        }
        for request in &records.requests {
            self.names.touch(request.tid, &[]);
        }
        self.waiting.reserve(records.len());
        for record in all(records) {
            let looks = match &record {
                Record::Request(request) if self.has_calls && may_be_of_a_call(request) => 0,
                Record::Request(_) => LOOKS,
                other if !self.selection.passes(other, &self.names) => continue,
                _ => LOOKS,
            };
            self.waiting.push(Waiting {
                record: Box::new(record),
                caller: None,
                looks,
            });
        }
        self.names.forget(MOST_NAMES);
    }

    /// Passes on what began before `low_ns`, in order.
    ///
    /// # Errors
    /// Those of `each`.
    pub fn release(&mut self, low_ns: u64, mut each: impl FnMut(&Moment<'_>) -> io::Result<()>) -> io::Result<()> {
        self.find_callers();
        // What waited is in order already, which makes this cheap.
        self.waiting.sort_by_key(|waiting| waiting.record.at(Point::Begin));
        let is_last = low_ns == u64::MAX;
        let is_due = |waiting: &Waiting| waiting.record.begin_ns() < low_ns && !waiting.is_looking();
        let (due, waiting) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|waiting| is_last || is_due(waiting));
        self.waiting = waiting;
        for Waiting { mut record, caller, .. } in due {
            if let Record::Request(request) = &mut *record {
                give_file(request, caller, &self.names);
                if !self.selection.passes(&record, &self.names) {
                    continue;
                }
            }
            self.records += u64::from(!record.is_definition() && !matches!(*record, Record::Lost(_)));
            each(&Moment {
                at_ns: record.begin_ns(),
                point: Point::Begin,
                record: &record,
                names: &self.names,
                caller,
            })?;
        }
        Ok(())
    }

    fn find_callers(&mut self) {
        for waiting in &mut self.waiting {
            if let (Record::Request(request), None) = (&*waiting.record, waiting.caller)
                && let Some(at_ns) = request.submitted_ns
            {
                let under_way = self.under_way.get(&request.tid).filter(|call| call.has(at_ns));
                waiting.caller = self.calls.find(request.tid, at_ns).or(under_way).copied();
            }
        }
        // By the next time, they may have ended.
        self.under_way.clear();
    }
}

/// Whether a request may have been submitted in a call.
fn may_be_of_a_call(request: &Request) -> bool {
    let is_possible = match request.origin {
        Origin::Unknown | Origin::Own | Origin::Readahead => true,
        Origin::Asynchronous | Origin::Kworker | Origin::Journal | Origin::Kernel | Origin::Writeback => false,
    };
    is_possible && request.tid != 0 && request.submitted_ns.is_some()
}

/// The pages of a request that bypasses the page cache belong to no file: it is on that of its call.
fn give_file(request: &mut Request, caller: Option<Caller>, names: &Names) {
    if let (None, Some(caller)) = (request.inode, caller) {
        request.inode = inode_of(caller.direct, names);
    }
}

fn inode_of(number: FileNumber, names: &Names) -> Option<crate::model::report::slow::Inode> {
    names.file_of(number)?.inode
}

/// The latest calls of each thread.
#[derive(Default)]
struct LatestCalls {
    /// In the order of their begins.
    threads: HashMap<u32, VecDeque<Caller>>,
    /// The thread of each call, in the order of arrival.
    order: VecDeque<u32>,
}

impl LatestCalls {
    fn add(&mut self, call: &Call) {
        let of_thread = self.threads.entry(call.tid).or_default();
        let later = of_thread.iter().rev();
        let later = later.take_while(|known| known.begin_ns > call.begin_ns).count();
        of_thread.insert(of_thread.len() - later, Caller::of(call));
        self.order.push_back(call.tid);
        if self.order.len() > MOST_CALLS {
            self.forget_one();
        }
    }

    fn forget_one(&mut self) {
        let Some(tid) = self.order.pop_front() else { return };
        if let Some(of_thread) = self.threads.get_mut(&tid) {
            of_thread.pop_front();
            if of_thread.is_empty() {
                self.threads.remove(&tid);
            }
        }
    }

    /// The call of a thread that a moment is inside.
    fn find(&self, tid: u32, at_ns: u64) -> Option<&Caller> {
        let of_thread = self.threads.get(&tid)?;
        let after = of_thread.partition_point(|call| call.begin_ns <= at_ns);
        of_thread.get(after.checked_sub(1)?).filter(|call| call.has(at_ns))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::synthetic::{self, POSTGRES, call, file};
    use super::*;
    use crate::fuzz;
    use crate::model::ids::Op;
    use crate::model::record::{Lost, Thread};
    use crate::model::selection::Selection;

    const MS: u64 = 1_000_000;

    fn following() -> Following {
        Following::new(Resolved::new(&Selection::default(), []), true)
    }

    fn request(tid: u32, submitted_ns: u64, ended_ns: u64) -> Request {
        let requests = synthetic::batches().into_iter().flat_map(|batch| batch.requests);
        Request {
            tid,
            origin: Origin::Own,
            submitted_ns: Some(submitted_ns),
            started_ns: None,
            issued_ns: None,
            ended_ns,
            ..requests.last().unwrap()
        }
    }

    fn calls(calls: impl IntoIterator<Item = Call>) -> Records {
        Records {
            calls: calls.into_iter().collect(),
            ..Records::default()
        }
    }

    fn requests(requests: Vec<Request>) -> Records {
        Records {
            requests,
            ..Records::default()
        }
    }

    /// The begins of what is due, with that of the call of a request.
    fn due(following: &mut Following, low_ns: u64) -> Vec<(u64, Option<u64>)> {
        let mut all = Vec::new();
        let each = |moment: &Moment<'_>| {
            all.push((moment.at_ns, moment.caller.map(|caller| caller.begin_ns)));
            Ok(())
        };
        following.release(low_ns, each).unwrap();
        all
    }

    #[test]
    fn what_is_due_comes_in_the_order_of_its_begin() {
        let mut following = following();
        following.take(calls([
            call(1, Op::Read, 50, Some(60)),
            call(2, Op::Read, 20, Some(70)),
        ]));
        assert_eq!(due(&mut following, 50), [(20, None)]);
        following.take(calls([call(2, Op::Read, 30, Some(80))]));
        assert_eq!(due(&mut following, 51), [(30, None), (50, None)]);
        // One that took longer than the patience comes when it has ended.
        following.take(calls([call(3, Op::Read, 1, Some(500))]));
        assert_eq!(due(&mut following, 90), [(1, None)]);
        assert_eq!(following.records(), 4);
        following.take(Records {
            lost: vec![Lost {
                cpu: 0,
                kind: crate::model::record::Kind::Call,
                records: 3,
                from_ns: 95,
                to_ns: 99,
            }],
            ..Records::default()
        });
        assert_eq!(due(&mut following, u64::MAX), [(95, None)]);
        assert_eq!(following.records(), 4, "a loss is no record");
    }

    #[test]
    fn a_request_names_its_call_whether_that_has_ended_or_not() {
        let mut following = following();
        let now = 1_000 * MS;
        following.take(requests(vec![
            request(7, 10 * MS, 20 * MS),
            request(8, 11 * MS, 20 * MS),
        ]));
        assert_eq!(following.looks_for_calls(50 * MS), None, "they are not due");
        assert_eq!(following.looks_for_calls(now), Some(false));
        assert_eq!(due(&mut following, now), [], "their calls may be under way");
        // That of one is; that of the other has just ended.
        following.under_way(&[call(7, Op::Fsync, 5 * MS, None), call(9, Op::Fsync, MS, None)]);
        following.take(calls([call(8, Op::Write, 6 * MS, Some(900 * MS))]));
        let all = [(6 * MS, None), (10 * MS, Some(5 * MS)), (11 * MS, Some(6 * MS))];
        assert_eq!(due(&mut following, now), all);
        // A request ends long after its call, and after many other calls of the thread.
        let many = (0..5_000).map(|at| call(7, Op::Pread64, now + at * 10, Some(now + at * 10 + 5)));
        following.take(calls(many));
        following.take(requests(vec![
            request(7, now + 12, now + MS),
            request(7, now + 16, now + MS),
        ]));
        let of_calls = due(&mut following, u64::MAX);
        let found: Vec<_> = of_calls
            .iter()
            .filter(|(at, _)| *at == now + 12 || *at == now + 16)
            .collect();
        assert_eq!(found, [&(now + 12, Some(now + 10)), &(now + 16, None)]);
    }

    #[test]
    fn a_request_without_a_call_waits_for_two_looks_only() {
        let mut following = following();
        following.take(requests(vec![request(7, 10, 20)]));
        for of_all in [false, true] {
            assert_eq!(due(&mut following, MS), []);
            assert_eq!(following.looks_for_calls(MS + PATIENCE_NS), Some(of_all));
            following.under_way(&[]);
        }
        assert_eq!(due(&mut following, MS), [(10, None)]);
        // Of a kernel thread, and where no calls are recorded, there is none to wait for.
        let mut journal = request(7, 10, 20);
        journal.origin = Origin::Journal;
        following.take(requests(vec![journal]));
        assert_eq!(due(&mut following, MS), [(10, None)]);
        let mut following = Following::new(Resolved::new(&Selection::default(), []), false);
        following.take(requests(vec![request(7, 10, 20)]));
        assert_eq!(due(&mut following, MS), [(10, None)]);
    }

    #[test]
    fn files_are_selected_by_path_and_inode_and_so_are_their_requests() {
        let selection = Selection {
            files: vec!["/srv/gone".to_owned()],
            folders: vec!["/srv/db".to_owned()],
            ..Selection::default()
        };
        let named = |number: u32, path: &str| file(number, path, 0, None);
        let [inside, outside, linked] = [named(1, "/srv/db/x"), named(2, "/srv/a"), named(3, "/mnt/link")];
        let inode = linked.inode.unwrap();
        let mut following = Following::new(Resolved::new(&selection, [inode]), true);
        let on = |number: u32, begin_ns: u64| {
            let mut call = call(POSTGRES, Op::Pread64, begin_ns, Some(begin_ns + 5));
            (call.files, call.is_direct) = ([number, 0], true);
            call
        };
        let direct = |at_ns: u64| Request {
            inode: None,
            ..request(POSTGRES, at_ns, at_ns + 1)
        };
        let mut of_pages = request(9, 100, 110);
        of_pages.inode = inside.inode;
        following.take(Records {
            calls: vec![on(1, 10), on(2, 20), on(3, 30)],
            requests: vec![direct(11), direct(21), direct(31), of_pages],
            files: vec![inside, outside, linked],
            threads: vec![Thread::default()],
            ..Records::default()
        });
        let begins: Vec<u64> = due(&mut following, u64::MAX).into_iter().map(|(at, _)| at).collect();
        let begins: Vec<u64> = begins.into_iter().filter(|at| (1..1000).contains(at)).collect();
        assert_eq!(begins, [10, 11, 30, 31, 100]);
    }

    #[test]
    fn memory_for_calls_has_a_limit() {
        let mut latest = LatestCalls::default();
        for at in 0..MOST_CALLS as u64 + 5_000 {
            latest.add(&call((at % 1000) as u32, Op::Read, at, Some(at)));
        }
        assert_eq!(latest.order.len(), MOST_CALLS);
        assert_eq!(latest.threads.values().map(VecDeque::len).sum::<usize>(), MOST_CALLS);
        assert!(latest.find(999, 999).is_none() && latest.find(999, 6_999).is_some());
    }

    proptest! {
        #![proptest_config(fuzz::config())]

        /// Whatever arrives when, each record comes once, and what is released together is in order.
        #[test]
        fn nothing_is_lost_between_any_drains(
            drains in proptest::collection::vec((0..1_000_u64, proptest::collection::vec((0..4_u32, 0..1_000_u64, 0..300_u64, any::<bool>()), 0..20)), 0..10),
        ) {
            let mut following = following();
            let (mut added, mut seen) = (0, 0);
            for (low_ns, records) in drains {
                for (tid, begin_ns, length, is_request) in records {
                    let end_ns = begin_ns + length;
                    following.take(match is_request {
                        true => requests(vec![request(tid, begin_ns, end_ns)]),
                        false => calls([call(tid, Op::Read, begin_ns, Some(end_ns))]),
                    });
                    added += 1;
                }
                let released = due(&mut following, low_ns);
                prop_assert!(released.is_sorted_by_key(|(at, _)| *at));
                prop_assert!(released.iter().all(|(at, _)| *at < low_ns));
                seen += released.len();
                if following.looks_for_calls(u64::MAX).is_some() {
                    following.under_way(&[]);
                }
            }
            seen += due(&mut following, u64::MAX).len();
            prop_assert_eq!(seen, added);
        }
    }
}
