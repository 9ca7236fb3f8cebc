//! The second pass: moments in the order of time.
//!
//! Records arrive at their ends. Those that began before a moment that is computed from the batches before, the same in
//! both passes, were kept by the first pass; all others wait until that moment has passed their own.

use std::cell::{Cell, OnceCell};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::rc::Rc;

use super::names::Names;
use super::record::{Caller, Moment, Point, Record, all};
use super::select::Resolved;
use crate::model::direct::{DirectAccess, DirectAccesses, Submitter};
use crate::model::record::{FileNumber, Kind, Records, Request};

/// Records that arrived after another one before its moments are passed on. The rings of all CPUs are read in turn, so
/// that neighbours in time may be some thousand records from each other.
const ROOM: usize = 1 << 16;

/// The moment before which no record begins that still arrives, except those that the first pass kept.
#[derive(Debug, Default)]
pub struct Window {
    /// The latest batches: their numbers of records and their earliest ends.
    batches: VecDeque<(usize, u64)>,
    records: usize,
    low_ns: u64,
}

impl Window {
    /// As of the batches so far; never falls.
    pub fn low_ns(&self) -> u64 {
        self.low_ns
    }

    pub fn take(&mut self, batch: &Records) {
        let calls = batch.calls.iter().filter_map(|call| call.end_ns);
        let requests = batch.requests.iter().map(|request| request.ended_ns);
        let sleeps = batch.sleeps.iter().map(|sleep| sleep.in_ns);
        let asynchronous = batch.asynchronous.iter().map(|call| call.end_ns);
        let faults = batch.faults.iter().map(|fault| fault.end_ns);
        let ends = calls.chain(requests).chain(sleeps).chain(asynchronous).chain(faults);
        let Some(earliest) = ends.min() else {
            return;
        };
        self.batches.push_back((batch.len(), earliest));
        self.records += batch.len();
        while let Some((records, earliest)) = self.batches.front().copied() {
            if self.records - records < ROOM {
                break;
            }
            self.records -= records;
            self.low_ns = self.low_ns.max(earliest);
            self.batches.pop_front();
        }
    }
}

/// A moment that waits for earlier ones.
struct Waiting {
    key: (u64, u8),
    point: Point,
    entry: Rc<Entry>,
}

/// A record, and what is known of it since it has begun.
struct Entry {
    record: Record,
    /// Others are only accesses whose requests may be selected, and requests whose file is not known yet.
    is_selected: Cell<bool>,
    /// A request with the file of the access that submitted it.
    with_file: OnceCell<Box<Record>>,
}

/// Puts moments in order.
pub struct InOrder<'a> {
    window: Window,
    /// In the order of their begins.
    long: VecDeque<Record>,
    waiting: Vec<Waiting>,
    /// How many of them are in order.
    sorted: usize,
    points: &'static [Point],
    selection: &'a Resolved,
    names: &'a Names,
    records: u64,
    lost: BTreeMap<Kind, u64>,
    callers: Callers,
    direct: DirectAccesses<FileNumber>,
}

/// The last call of each thread that has begun.
#[derive(Debug, Default)]
pub struct Callers(HashMap<u32, Caller>);

impl Callers {
    /// Notes the begin of a call, or finds that of a request.
    pub fn look(&mut self, record: &Record) -> Option<Caller> {
        match record {
            Record::Call(call) => {
                self.0.insert(call.tid, Caller::of(call));
                None
            }
            Record::Request(request) => {
                let at_ns = request.submitted_ns?;
                let caller = self.0.get(&request.tid)?;
                caller.has(at_ns).then_some(*caller)
            }
            _ => None,
        }
    }
}

impl<'a> InOrder<'a> {
    /// `long`: what the first pass kept.
    pub fn new(long: Vec<Record>, points: &'static [Point], selection: &'a Resolved, names: &'a Names) -> Self {
        Self {
            window: Window::default(),
            long: long.into(),
            waiting: Vec::new(),
            sorted: 0,
            points,
            selection,
            names,
            records: 0,
            lost: BTreeMap::new(),
            callers: Callers::default(),
            direct: DirectAccesses::default(),
        }
    }

    /// Records so far that were selected, without definitions and losses.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Losses so far.
    pub fn lost(&self) -> Vec<(Kind, u64)> {
        self.lost.iter().map(|(kind, records)| (*kind, *records)).collect()
    }

    pub fn take(&mut self, batch: Records) {
        let low = self.window.low_ns();
        self.window.take(&batch);
        for record in all(batch) {
            if record.begin_ns() >= low || record.is_definition() {
                self.add(record);
            }
        }
    }

    fn add(&mut self, record: Record) {
        let is_selected = self.selection.passes(&record, self.names);
        let may_matter = match &record {
            Record::Call(_) => true,
            Record::Async(call) => call.is_direct,
            Record::Request(request) => request.inode.is_none() && self.selection.is_by_file(),
            _ => false,
        };
        if !is_selected && !may_matter {
            return;
        }
        match &record {
            _ if !is_selected => {}
            Record::Lost(lost) => *self.lost.entry(lost.kind).or_default() += lost.records,
            record => self.records += u64::from(!record.is_definition()),
        }
        let is_request = matches!(record, Record::Request(_));
        let entry = Rc::new(Entry {
            record,
            is_selected: Cell::new(is_selected),
            with_file: OnceCell::new(),
        });
        for point in self.points {
            let is_needed = is_selected || is_request || *point == Point::Begin;
            if let Some(key) = entry.record.at(*point).filter(|_| is_needed) {
                self.waiting.push(Waiting {
                    key,
                    point: *point,
                    entry: Rc::clone(&entry),
                });
            }
        }
    }

    /// What a record that begins changes for others and for itself: returns the call of a request.
    fn begin(&mut self, entry: &Entry) -> Option<Caller> {
        note_direct(&mut self.direct, &entry.record);
        if let Record::Request(request) = &entry.record
            && let Some(with_file) = self.with_file(entry.record.begin_ns(), request)
        {
            let is_selected = entry.is_selected.get();
            if !is_selected && self.selection.passes(&with_file, self.names) {
                entry.is_selected.set(true);
                self.records += 1;
            }
            // It begins once.
            let _ = entry.with_file.set(Box::new(with_file));
        }
        self.callers.look(&entry.record)
    }

    /// A request whose pages belong to no file, with that of the access that submitted it.
    fn with_file(&self, begin_ns: u64, request: &Request) -> Option<Record> {
        if request.inode.is_some() {
            return None;
        }
        let file = self.direct.file_of(begin_ns, Submitter::of_request(request))?;
        let inode = self.names.file_of(file)?.inode;
        Some(Record::Request(Request {
            inode,
            ..request.clone()
        }))
    }

    /// Passes on all moments that no record can precede any more.
    pub fn drain(&mut self, each: impl FnMut(&Moment<'_>) -> io::Result<()>) -> io::Result<()> {
        // Sorting looks at all that wait, which is too much for a batch of a few records.
        if self.waiting.len() - self.sorted < ROOM / 4 {
            return Ok(());
        }
        self.until(self.window.low_ns(), each)
    }

    /// Passes on all others.
    pub fn finish(&mut self, each: impl FnMut(&Moment<'_>) -> io::Result<()>) -> io::Result<()> {
        self.until(u64::MAX, each)
    }

    fn until(&mut self, low: u64, mut each: impl FnMut(&Moment<'_>) -> io::Result<()>) -> io::Result<()> {
        while self.long.front().is_some_and(|record| record.begin_ns() <= low) {
            self.long.pop_front().into_iter().for_each(|record| self.add(record));
        }
        // Equal moments keep the order of arrival. What waited is in order already, which makes this cheap.
        self.waiting.sort_by_key(|waiting| waiting.key);
        let is_last = low == u64::MAX;
        let ready = self.waiting.partition_point(|waiting| is_last || waiting.key.0 < low);
        for Waiting { key, point, entry } in self.waiting.drain(..ready).collect::<Vec<_>>() {
            let caller = match point {
                Point::Begin => self.begin(&entry),
                Point::Issue | Point::End => None,
            };
            if !entry.is_selected.get() {
                continue;
            }
            each(&Moment {
                at_ns: key.0,
                point,
                caller,
                record: entry.with_file.get().map_or(&entry.record, |with_file| with_file),
                names: self.names,
            })?;
        }
        self.sorted = self.waiting.len();
        Ok(())
    }
}

/// Notes a read or write that bypasses the page cache.
fn note_direct(direct: &mut DirectAccesses<FileNumber>, record: &Record) {
    let (op, by, file, direct_until) = match record {
        Record::Call(call) => (call.op, Submitter::of_call(call), call.files[0], call.direct_until()),
        Record::Async(call) => (call.op, Submitter::of_async(call), call.file, call.direct_until()),
        _ => return,
    };
    if let (Some(_), Some(end_ns)) = (op.is_write(), direct_until) {
        direct.note(DirectAccess {
            by,
            file,
            begin_ns: record.begin_ns(),
            end_ns,
        });
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::outline::Outline;
    use super::super::synthetic::{self, POSTGRES, call, file};
    use super::*;
    use crate::fuzz;
    use crate::model::ids::{Layer, Op};
    use crate::model::record::Call;
    use crate::model::recording::Meta;
    use crate::model::selection::Selection;

    /// Begins and ends of the calls of batches, as they are passed on, and the most that waited.
    fn ordered(batches: &[Records]) -> (Vec<(u64, bool)>, usize) {
        let mut outline = Outline::new(&Meta::default());
        batches.iter().for_each(|batch| outline.take(batch));
        let long = outline.finish();
        let selection = Resolved::of(&Selection::default(), &outline);
        let mut order = InOrder::new(long, &[Point::Begin, Point::End], &selection, &outline.names);
        let (mut moments, mut most) = (Vec::new(), 0);
        let note = |moments: &mut Vec<(u64, bool)>, moment: &Moment<'_>| {
            moments.push((moment.at_ns, moment.point == Point::End));
            Ok(())
        };
        for batch in batches {
            order.take(batch.clone());
            most = most.max(order.waiting.len());
            order.drain(|moment| note(&mut moments, moment)).unwrap();
        }
        order.finish(|moment| note(&mut moments, moment)).unwrap();
        (moments, most)
    }

    fn batches(spans: &[(u64, u64)], size: usize) -> Vec<Records> {
        let calls = spans.chunks(size).map(|spans| Records {
            calls: spans
                .iter()
                .map(|(from, to)| call(1, Op::Read, *from, Some(*to)))
                .collect(),
            ..Records::default()
        });
        calls.collect()
    }

    #[test]
    fn a_call_of_an_hour_neither_breaks_the_order_nor_fills_the_memory() {
        // Ends in order; each thousandth call began at the start.
        let spans: Vec<(u64, u64)> = (1..300_000)
            .map(|at| (if at % 1000 == 0 { 5 } else { at * 10 - 9 }, at * 10))
            .collect();
        let (moments, most) = ordered(&batches(&spans, 1000));
        assert_eq!(moments.len(), spans.len() * 2);
        assert!(moments.is_sorted_by_key(|(at, _)| *at));
        assert!(most < 4 * ROOM, "{most}");
    }

    /// Each request is submitted inside a call by the same thread, and carries no page of a file.
    #[test]
    fn a_request_without_pages_is_selected_with_the_file_of_its_direct_call() {
        let on = |number: u32, begin_ns: u64, is_direct: bool| Call {
            files: [number, 0],
            is_direct,
            ..call(POSTGRES, Op::Pread64, begin_ns, Some(begin_ns + 5))
        };
        let any = synthetic::batches().into_iter().flat_map(|batch| batch.requests);
        let any = any.last().unwrap();
        let submitted = |at_ns: u64| Request {
            tid: POSTGRES,
            inode: None,
            submitted_ns: Some(at_ns),
            started_ns: Some(at_ns),
            issued_ns: Some(at_ns + 1),
            ended_ns: at_ns + 2,
            ..any.clone()
        };
        let files = vec![file(1, "/srv/a", 0, None), file(2, "/srv/b", 0, None)];
        let expected = files[0].inode;
        let batch = Records {
            calls: vec![on(1, 10, true), on(2, 20, true), on(1, 30, false)],
            requests: vec![submitted(12), submitted(22), submitted(32)],
            files,
            ..Records::default()
        };
        let mut outline = Outline::new(&Meta::default());
        outline.take(&batch);
        let long = outline.finish();
        let selection = Selection {
            files: vec!["/srv/a".to_owned()],
            layers: [Layer::Blk].into(),
            ..Selection::default()
        };
        let selection = Resolved::of(&selection, &outline);
        let points = &[Point::Begin, Point::Issue, Point::End];
        let mut order = InOrder::new(long, points, &selection, &outline.names);
        order.take(batch);
        let mut moments = Vec::new();
        let each = |moment: &Moment<'_>| {
            if let Record::Request(request) = moment.record {
                moments.push((moment.at_ns, request.inode));
            }
            Ok(())
        };
        order.finish(each).unwrap();
        assert_eq!(moments, [12, 13, 14].map(|at_ns| (at_ns, expected)));
        assert_eq!(order.records(), 1);
    }

    proptest! {
        #![proptest_config(fuzz::config())]

        #[test]
        fn any_order_of_arrival_becomes_the_order_of_time(
            spans in proptest::collection::vec((0..10_000_u64, 0..3_000_u64), 0..200), size in 1..20_usize,
        ) {
            let spans: Vec<(u64, u64)> = spans.into_iter().map(|(from, length)| (from, from + length)).collect();
            let (moments, _) = ordered(&batches(&spans, size));
            prop_assert_eq!(moments.len(), spans.len() * 2);
            prop_assert!(moments.is_sorted_by_key(|(at, _)| *at));
        }
    }
}
