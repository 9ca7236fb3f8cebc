//! A trace of Perfetto, for ui.perfetto.dev and `trace_processor`: a track for each thread with its calls, and in them its
//! sleeps; for each disk the requests that wait in the queue and those at the device, on as many tracks as are needed so
//! that none overlap, and the number at the device.
//!
//! Field numbers are those of `protos/perfetto/trace/perfetto_trace.proto`.

use std::collections::{HashMap, HashSet};
use std::io;

use super::output::Output;
use super::protobuf::Message;
use super::{About, Exporter, Leaving, LeftOut, Moment, Point, Record};
use crate::model::record::{AsyncCall, Call, Fault, Lost, Request, Sleep};

/// Of the packet.
mod packet {
    pub const PACKET: u32 = 1;
    pub const CLOCKS: u32 = 6;
    pub const TIMESTAMP: u32 = 8;
    pub const SEQUENCE: u32 = 10;
    pub const EVENT: u32 = 11;
    pub const INTERNED: u32 = 12;
    pub const FLAGS: u32 = 13;
    pub const DROPPED: u32 = 42;
    pub const CLOCK: u32 = 58;
    pub const DEFAULTS: u32 = 59;
    pub const TRACK: u32 = 60;
}

/// Of a track event.
mod event {
    pub const ANNOTATION: u32 = 4;
    pub const TYPE: u32 = 9;
    pub const NAME: u32 = 10;
    pub const TRACK: u32 = 11;
    pub const COUNTER: u32 = 30;
    pub const FLOW: u32 = 47;
    pub const END_OF_FLOW: u32 = 48;

    pub const BEGIN: u64 = 1;
    pub const END: u64 = 2;
    pub const INSTANT: u64 = 3;
    pub const VALUE: u64 = 4;
}

/// Of interned data.
const EVENT_NAMES: u32 = 2;
const ANNOTATION_NAMES: u32 = 3;
const ANNOTATION_TEXTS: u32 = 29;

const STATE_CLEARED: u64 = 1;
const NEEDS_STATE: u64 = 2;
const MONOTONIC: u64 = 3;
/// A clock of this sequence: timestamps are differences from the packet before.
const DELTA: u64 = 64;

/// Texts after which interning starts anew, so that memory is bounded.
const MOST_TEXTS: usize = 1 << 16;

/// A kind of track, in the upper bits of its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Process = 1,
    Thread = 2,
    Disk = 3,
    Queue = 4,
    Device = 5,
    InFlight = 6,
    Asynchronous = 7,
    Recording = 8,
}

/// Number of a track.
fn track(kind: Kind, what: u64, lane: usize) -> u64 {
    (kind as u64) << 60 | (lane as u64 & 0xfff_ffff) << 32 | what
}

#[derive(Default)]
struct Interned {
    names: HashMap<String, u64>,
    annotations: HashMap<String, u64>,
    texts: HashMap<String, u64>,
    /// What is new since the last packet.
    new: Message,
}

impl Interned {
    fn of(which: u32, map: &mut HashMap<String, u64>, new: &mut Message, text: &str) -> u64 {
        if let Some(id) = map.get(text) {
            return *id;
        }
        let id = map.len() as u64 + 1;
        map.insert(text.to_owned(), id);
        let mut entry = Message::default();
        new.message(which, entry.number(1, id).text(2, text));
        id
    }

    fn name(&mut self, text: &str) -> u64 {
        Self::of(EVENT_NAMES, &mut self.names, &mut self.new, text)
    }

    fn annotation(&mut self, text: &str) -> u64 {
        Self::of(ANNOTATION_NAMES, &mut self.annotations, &mut self.new, text)
    }

    fn text(&mut self, text: &str) -> u64 {
        Self::of(ANNOTATION_TEXTS, &mut self.texts, &mut self.new, text)
    }
}

/// Tracks on which nothing overlaps.
#[derive(Default)]
struct Lanes {
    free: Vec<usize>,
    made: usize,
}

impl Lanes {
    /// A free lane, and whether it is new.
    fn take(&mut self) -> (usize, bool) {
        if let Some(lane) = self.free.pop() {
            return (lane, false);
        }
        self.made += 1;
        (self.made - 1, true)
    }
}

/// What is open on a thread's track, by address of the record.
type Stack = Vec<usize>;

pub struct Perfetto<'a> {
    about: About<'a>,
    last_ns: u64,
    interned: Interned,
    is_begun: bool,
    dropped: bool,
    tracks: HashSet<u64>,
    stacks: HashMap<u32, Stack>,
    lanes: HashMap<(Kind, u64), Lanes>,
    /// The lanes of requests and asynchronous calls, by address of the record.
    taken: HashMap<usize, (Kind, usize)>,
    in_flight: HashMap<u64, i64>,
    flows: u64,
    leaving: Leaving,
}

/// An annotation of an event.
enum Note<'n> {
    Number(&'n str, i64),
    Text(&'n str, &'n str),
}

impl<'a> Perfetto<'a> {
    #[must_use]
    pub fn new(about: About<'a>) -> Self {
        Self {
            about,
            last_ns: about.outline.from_ns,
            interned: Interned::default(),
            is_begun: false,
            dropped: false,
            tracks: HashSet::new(),
            stacks: HashMap::new(),
            lanes: HashMap::new(),
            taken: HashMap::new(),
            in_flight: HashMap::new(),
            flows: 0,
            leaving: Leaving::default(),
        }
    }

    /// Clears what the reader has interned, at the start and when there is too much.
    fn clear(&mut self, at_ns: u64, output: &mut dyn Output) -> io::Result<()> {
        self.interned = Interned::default();
        let [mut packet, mut snapshot, mut defaults] = [(); 3].map(|()| Message::default());
        for (clock, is_delta) in [(MONOTONIC, false), (DELTA, true)] {
            let mut message = Message::default();
            message.number(1, clock).number(2, at_ns);
            if is_delta {
                message.number(3, 1);
            }
            snapshot.message(1, &message);
        }
        snapshot.number(2, MONOTONIC);
        packet.number(packet::SEQUENCE, 1).number(packet::FLAGS, STATE_CLEARED);
        packet.message(packet::CLOCKS, &snapshot);
        packet.message(packet::DEFAULTS, defaults.number(packet::CLOCK, DELTA));
        // The snapshot itself has no timestamp of the clock that it defines.
        packet.number(packet::TIMESTAMP, at_ns).number(packet::CLOCK, MONOTONIC);
        self.last_ns = at_ns;
        write(&packet, output)
    }

    /// Describes a track once. Its parent is described by the caller.
    fn describe(
        &mut self,
        id: u64,
        parent: Option<u64>,
        name: &str,
        add: impl FnOnce(&mut Message),
        output: &mut dyn Output,
    ) -> io::Result<()> {
        if !self.tracks.insert(id) {
            return Ok(());
        }
        let [mut packet, mut track] = [(); 2].map(|()| Message::default());
        track.number(1, id).text(2, name);
        if let Some(parent) = parent {
            track.number(5, parent);
        }
        add(&mut track);
        packet.number(packet::SEQUENCE, 1).message(packet::TRACK, &track);
        write(&packet, output)
    }

    fn thread(&mut self, tid: u32, at_ns: u64, output: &mut dyn Output) -> io::Result<u64> {
        let id = track(Kind::Thread, tid.into(), 0);
        if self.tracks.contains(&id) {
            return Ok(id);
        }
        let names = &self.about.outline.names;
        let pid = names.thread_at(tid, at_ns).map_or(tid, |thread| thread.pid);
        let process = self.process(pid, at_ns, output)?;
        let comm = names.comm_at(tid, at_ns);
        let add = |track: &mut Message| {
            let mut thread = Message::default();
            thread.number(1, pid.into()).number(2, tid.into()).text(5, comm);
            track.message(4, &thread);
        };
        self.describe(id, Some(process), comm, add, output)?;
        Ok(id)
    }

    fn process(&mut self, pid: u32, at_ns: u64, output: &mut dyn Output) -> io::Result<u64> {
        let id = track(Kind::Process, pid.into(), 0);
        let comm = self.about.outline.names.comm_at(pid, at_ns);
        let add = |track: &mut Message| {
            let mut process = Message::default();
            process.number(1, pid.into()).text(6, comm);
            track.message(3, &process);
        };
        self.describe(id, None, comm, add, output)?;
        Ok(id)
    }

    fn annotations(&mut self, notes: &[Note<'_>], to: &mut Message) {
        for note in notes {
            let mut annotation = Message::default();
            match note {
                Note::Number(name, value) => {
                    let name = self.interned.annotation(name);
                    annotation.number(1, name).signed(4, *value);
                }
                Note::Text(name, text) => {
                    let name = self.interned.annotation(name);
                    let text = self.interned.text(text);
                    annotation.number(1, name).number(17, text);
                }
            }
            to.message(event::ANNOTATION, &annotation);
        }
    }

    /// Writes an event of a track.
    fn event(
        &mut self,
        at_ns: u64,
        (kind, track, name): (u64, u64, Option<&str>),
        notes: &[Note<'_>],
        add: impl FnOnce(&mut Message),
        output: &mut dyn Output,
    ) -> io::Result<()> {
        let too_many = self.interned.texts.len() + self.interned.names.len() > MOST_TEXTS;
        if !self.is_begun || too_many {
            self.is_begun = true;
            self.clear(self.last_ns.min(at_ns), output)?;
        }
        let [mut packet, mut message] = [(); 2].map(|()| Message::default());
        message.number(event::TYPE, kind).number(event::TRACK, track);
        if let Some(name) = name {
            let name = self.interned.name(name);
            message.number(event::NAME, name);
        }
        self.annotations(notes, &mut message);
        add(&mut message);
        let since = at_ns.saturating_sub(self.last_ns);
        self.last_ns = self.last_ns.max(at_ns);
        packet.number(packet::TIMESTAMP, since);
        packet.number(packet::SEQUENCE, 1).number(packet::FLAGS, NEEDS_STATE);
        if !self.interned.new.0.is_empty() {
            let new = std::mem::take(&mut self.interned.new);
            packet.message(packet::INTERNED, &new);
        }
        if std::mem::take(&mut self.dropped) {
            packet.number(packet::DROPPED, 1);
        }
        packet.message(packet::EVENT, &message);
        write(&packet, output)
    }

    /// Opens a slice on a thread's track.
    fn open(
        &mut self,
        at_ns: u64,
        (tid, record, name): (u32, usize, &str),
        notes: &[Note<'_>],
        output: &mut dyn Output,
    ) -> io::Result<()> {
        let track = self.thread(tid, at_ns, output)?;
        self.stacks.entry(tid).or_default().push(record);
        self.event(at_ns, (event::BEGIN, track, Some(name)), notes, |_| (), output)
    }

    /// Closes it, and before it what is open inside it: slices of a track must nest.
    fn close(
        &mut self,
        at_ns: u64,
        (tid, record): (u32, usize),
        notes: &[Note<'_>],
        output: &mut dyn Output,
    ) -> io::Result<()> {
        let stack = self.stacks.entry(tid).or_default();
        let Some(depth) = stack.iter().position(|open| *open == record) else {
            return Ok(());
        };
        let inside = stack.len() - depth - 1;
        stack.truncate(depth);
        let track = track(Kind::Thread, tid.into(), 0);
        for _ in 0..inside {
            self.event(at_ns, (event::END, track, None), &[], |_| (), output)?;
        }
        self.event(at_ns, (event::END, track, None), notes, |_| (), output)
    }

    fn call(&mut self, at_ns: u64, point: Point, call: &Call, output: &mut dyn Output) -> io::Result<()> {
        let (outline, address) = (self.about.outline, std::ptr::from_ref(call).addr());
        if point == Point::End {
            let mut notes = vec![Note::Number("result", call.value)];
            let rows = outline.rows_of(&call.rows);
            notes.extend(rows.map(|(name, ns)| Note::Number(name, ns.cast_signed())));
            return self.close(at_ns, (call.tid, address), &notes, output);
        }
        let mut notes = Vec::new();
        match outline.names.path_of(call.files[0]) {
            "" => {}
            path => notes.push(Note::Text("file", path)),
        }
        let numbers = [("offset", call.offset), ("size", call.size)];
        let numbers = numbers.into_iter().filter_map(|(name, value)| Some((name, value?)));
        notes.extend(numbers.map(|(name, value)| Note::Number(name, value.cast_signed())));
        if let Some(class) = call.class {
            notes.push(Note::Text("class", class.name()));
        }
        self.open(at_ns, (call.tid, address, call.op.name()), &notes, output)
    }

    fn sleep(&mut self, at_ns: u64, point: Point, sleep: &Sleep, output: &mut dyn Output) -> io::Result<()> {
        let address = std::ptr::from_ref(sleep).addr();
        if point == Point::End {
            return self.close(at_ns, (sleep.tid, address), &[], output);
        }
        // The call is excluded, or its record was lost: as the only slice, the sleep would look like a call.
        if self.stacks.get(&sleep.tid).is_none_or(Vec::is_empty) {
            self.leaving.count("sleeps in calls that have no record");
            return Ok(());
        }
        let name = match self.about.outline.row(sleep.row) {
            "" => "sleep",
            row => row,
        };
        let mut notes = Vec::new();
        if sleep.waker_tid > 0 {
            notes.push(Note::Number("waker", sleep.waker_tid.into()));
        }
        self.open(at_ns, (sleep.tid, address, name), &notes, output)
    }

    fn fault(&mut self, at_ns: u64, point: Point, fault: &Fault, output: &mut dyn Output) -> io::Result<()> {
        let address = std::ptr::from_ref(fault).addr();
        if point == Point::End {
            return self.close(at_ns, (fault.tid, address), &[], output);
        }
        let path = self.about.outline.names.path_of(fault.file);
        let notes = [
            Note::Text("file", path),
            Note::Number("offset", fault.offset.cast_signed()),
        ];
        self.open(at_ns, (fault.tid, address, "page fault"), &notes, output)
    }

    /// Begins a slice on a free lane of tracks below `parent`.
    fn begin_in_lane(
        &mut self,
        at_ns: u64,
        (kind, what, parent): (Kind, u64, u64),
        (record, label, name): (usize, &str, &str),
        (notes, flow): (&[Note<'_>], Option<u64>),
        output: &mut dyn Output,
    ) -> io::Result<()> {
        let (lane, _) = self.lanes.entry((kind, what)).or_default().take();
        let id = track(kind, what, lane);
        self.describe(id, Some(parent), label, |_| (), output)?;
        self.taken.insert(record, (kind, lane));
        let add = |message: &mut Message| {
            if let Some(flow) = flow {
                message.fixed(event::END_OF_FLOW, flow);
            }
        };
        self.event(at_ns, (event::BEGIN, id, Some(name)), notes, add, output)
    }

    fn end_in_lane(
        &mut self,
        at_ns: u64,
        what: u64,
        record: usize,
        output: &mut dyn Output,
    ) -> io::Result<Option<Kind>> {
        let Some((kind, lane)) = self.taken.remove(&record) else {
            return Ok(None);
        };
        self.lanes.entry((kind, what)).or_default().free.push(lane);
        self.event(at_ns, (event::END, track(kind, what, lane), None), &[], |_| (), output)?;
        Ok(Some(kind))
    }

    fn request(&mut self, at_ns: u64, point: Point, request: &Request, output: &mut dyn Output) -> io::Result<()> {
        let outline = self.about.outline;
        let address = std::ptr::from_ref(request).addr();
        let what = outline
            .disks
            .keys()
            .position(|disk| *disk == request.disk)
            .unwrap_or_default() as u64;
        let disk = track(Kind::Disk, what, 0);
        let name = outline.disks.get(&request.disk).map_or("disk", String::as_str);
        self.describe(disk, None, name, |_| (), output)?;
        let notes = [
            Note::Number("sector", request.sector.cast_signed()),
            Note::Number("bytes", request.bytes.cast_signed()),
            Note::Text("origin", request.origin.name()),
        ];
        let lane = |kind, label| ((kind, what, disk), (address, label, request.op.name()));
        match point {
            Point::Begin if request.submitted_ns.is_none() && request.started_ns.is_none() => Ok(()),
            Point::Begin => {
                let flow = self.submission(at_ns, request, output)?;
                let (at, slice) = lane(Kind::Queue, "queue");
                self.begin_in_lane(at_ns, at, slice, (&notes, flow), output)
            }
            Point::Issue => {
                self.end_in_lane(at_ns, what, address, output)?;
                let (at, slice) = lane(Kind::Device, "device");
                self.begin_in_lane(at_ns, at, slice, (&notes, None), output)?;
                self.count(at_ns, what, 1, output)
            }
            Point::End => {
                let ended = self.end_in_lane(at_ns, what, address, output)?;
                if ended == Some(Kind::Device) {
                    self.count(at_ns, what, -1, output)
                } else {
                    Ok(())
                }
            }
        }
    }

    /// Marks where a call submitted a request. Returns the flow that begins there; `None`: no call is known to have.
    fn submission(&mut self, at_ns: u64, request: &Request, output: &mut dyn Output) -> io::Result<Option<u64>> {
        let in_call = self.stacks.get(&request.tid).is_some_and(|stack| !stack.is_empty());
        if request.submitted_ns.is_none() || !in_call {
            return Ok(None);
        }
        self.flows += 1;
        let (flow, track) = (self.flows, self.thread(request.tid, at_ns, output)?);
        let add = |message: &mut Message| {
            message.fixed(event::FLOW, flow);
        };
        self.event(at_ns, (event::INSTANT, track, Some("submit")), &[], add, output)?;
        Ok(Some(flow))
    }

    /// Changes the number of requests at a device.
    fn count(&mut self, at_ns: u64, what: u64, by: i64, output: &mut dyn Output) -> io::Result<()> {
        let id = track(Kind::InFlight, what, 0);
        let counter = |track: &mut Message| {
            track.message(8, &Message::default());
        };
        self.describe(
            id,
            Some(track(Kind::Disk, what, 0)),
            "requests at the device",
            counter,
            output,
        )?;
        let value = self.in_flight.entry(what).or_default();
        *value += by;
        let value = *value;
        let add = |message: &mut Message| {
            message.signed(event::COUNTER, value);
        };
        self.event(at_ns, (event::VALUE, id, None), &[], add, output)
    }

    fn asynchronous(&mut self, at_ns: u64, point: Point, call: &AsyncCall, output: &mut dyn Output) -> io::Result<()> {
        let address = std::ptr::from_ref(call).addr();
        let what = u64::from(call.pid);
        if point == Point::End {
            return self.end_in_lane(at_ns, what, address, output).map(drop);
        }
        let process = self.process(call.pid, at_ns, output)?;
        let mut notes = vec![Note::Text("file", self.about.outline.names.path_of(call.file))];
        let numbers = [("offset", call.offset), ("size", call.size)];
        let numbers = numbers.into_iter().filter_map(|(name, value)| Some((name, value?)));
        notes.extend(numbers.map(|(name, value)| Note::Number(name, value.cast_signed())));
        let label = if call.is_aio { "AIO" } else { "io_uring" };
        let at = (Kind::Asynchronous, what, process);
        self.begin_in_lane(at_ns, at, (address, label, call.op.name()), (&notes, None), output)
    }

    /// An instant on the recording's own track.
    fn remark(&mut self, at_ns: u64, name: &str, notes: &[Note<'_>], output: &mut dyn Output) -> io::Result<()> {
        let id = track(Kind::Recording, 0, 0);
        self.describe(id, None, "recording", |_| (), output)?;
        self.event(at_ns, (event::INSTANT, id, Some(name)), notes, |_| (), output)
    }

    fn lost(&mut self, at_ns: u64, lost: &Lost, output: &mut dyn Output) -> io::Result<()> {
        self.dropped = true;
        let notes = [
            Note::Text("kind", lost.kind.name()),
            Note::Number("records", lost.records.cast_signed()),
            Note::Number("cpu", lost.cpu.into()),
            Note::Number("from_ns", lost.from_ns.cast_signed()),
            Note::Number("to_ns", lost.to_ns.cast_signed()),
        ];
        self.remark(at_ns, "lost", &notes, output)
    }
}

fn write(packet: &Message, output: &mut dyn Output) -> io::Result<()> {
    let mut message = Message::default();
    message.message(packet::PACKET, packet);
    output.write("", &message.0)
}

impl Exporter for Perfetto<'_> {
    fn points(&self) -> &'static [Point] {
        &[Point::Begin, Point::Issue, Point::End]
    }

    fn begin(&mut self, output: &mut dyn Output) -> io::Result<()> {
        self.is_begun = true;
        self.clear(self.last_ns, output)
    }

    fn moment(&mut self, moment: &Moment<'_>, output: &mut dyn Output) -> io::Result<()> {
        let Moment {
            at_ns, point, record, ..
        } = *moment;
        match record {
            Record::Call(call) => self.call(at_ns, point, call, output),
            Record::Request(request) => self.request(at_ns, point, request, output),
            Record::Sleep(sleep) => self.sleep(at_ns, point, sleep, output),
            Record::Async(call) => self.asynchronous(at_ns, point, call, output),
            Record::Fault(fault) => self.fault(at_ns, point, fault, output),
            Record::Lost(lost) if point == Point::End => self.lost(at_ns, lost, output),
            Record::Mark(mark) => self.remark(at_ns, &mark.text, &[], output),
            _ => Ok(()),
        }
    }

    fn end(&mut self, _: &mut dyn Output) -> io::Result<Vec<LeftOut>> {
        Ok(self.leaving.take())
    }
}
