//! CTF 1.8 as LTTng's kernel tracer writes it: a directory with `metadata` and a stream for each CPU, for babeltrace2,
//! Trace Compass and LTTng's analyses.
//!
//! The analyses know which thread runs on a CPU from `sched_switch` alone, so one is written wherever another thread
//! appears on a CPU. They read the span that all streams share, so each stream begins and ends with the recording. The
//! records that a CPU lost are in `events_discarded` of the packet that ends with the loss.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::io;
use std::rc::Rc;

use super::output::Output;
use super::{About, Exporter, LeftOut, Moment, Point, Record};
use crate::model::ids::Op;
use crate::model::record::{AsyncCall, Call, Fault, FileNumber, Request, Sleep};

const MAGIC: u32 = 0xC1FC_1FC1;
/// Bytes of events after which a packet is written.
const PACKET: usize = 1 << 16;
const PACKET_HEADER: usize = 4 + 16 + 4 + 5 * 8 + 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Type {
    I32,
    U32,
    I64,
    U64,
    Text,
}

/// A value of a field.
enum Value<'v> {
    Number(i64),
    Text(&'v str),
}

use Value::{Number, Text};

const fn number(value: u64) -> Value<'static> {
    Number(value.cast_signed())
}

type Fields = &'static [(&'static str, Type)];

macro_rules! fields {
    ($($name:ident: $Type:ident),* $(,)?) => {
        &[$((stringify!($name), Type::$Type)),*]
    };
}

const PROCESS: (&str, Fields) = (
    "lttng_statedump_process_state",
    fields![
        _tid: I32, _vtid: I32, _pid: I32, _vpid: I32, _ppid: I32, _vppid: I32, _name: Text, _type: I32, _mode: I32,
        _submode: I32, _status: I32, _ns_level: I32,
    ],
);
const DESCRIPTOR: (&str, Fields) = (
    "lttng_statedump_file_descriptor",
    fields![_pid: I32, _fd: I32, _flags: U32, _fmode: U32, _filename: Text],
);
const DISK: (&str, Fields) = ("lttng_statedump_block_device", fields![_dev: U32, _diskname: Text]);
const SWITCH: (&str, Fields) = (
    "sched_switch",
    fields![
        _prev_comm: Text, _prev_tid: I32, _prev_prio: I32, _prev_state: I64, _next_comm: Text, _next_tid: I32,
        _next_prio: I32,
    ],
);
const RQ_ISSUE: (&str, Fields) = (
    "block_rq_issue",
    fields![_dev: U32, _sector: U64, _nr_sector: U32, _bytes: U32, _tid: I32, _rwbs: U32, _comm: Text],
);
const RQ_COMPLETE: (&str, Fields) = (
    "block_rq_complete",
    fields![_dev: U32, _sector: U64, _nr_sector: U32, _errors: I32, _rwbs: U32],
);
const MARK: (&str, Fields) = ("iosb_mark", fields![_text: Text]);
const REQUEST: (&str, Fields) = (
    "iosb_request_submit",
    fields![_dev: U32, _sector: U64, _bytes: U64, _tid: I32, _op: Text, _origin: Text],
);
const ASYNC_BEGIN: (&str, Fields) = (
    "iosb_async_begin",
    fields![_op: Text, _key: U64, _filename: Text, _offset: I64, _count: I64],
);
const ASYNC_END: (&str, Fields) = ("iosb_async_end", fields![_op: Text, _key: U64, _ret: I64]);
const FAULT_BEGIN: (&str, Fields) = ("iosb_fault_begin", fields![_filename: Text, _offset: U64, _write: U32]);
const FAULT_END: (&str, Fields) = ("iosb_fault_end", fields![_ret: I64]);

/// Arguments of a system call, by the names that LTTng's analyses look for.
fn arguments(op: Op) -> Fields {
    match op {
        Op::Open | Op::Creat => fields![_filename: Text, _flags: I32],
        Op::Openat | Op::Openat2 => fields![_dfd: I32, _filename: Text, _flags: I32],
        Op::Read | Op::Write => fields![_fd: U32, _count: U64],
        Op::Pread64 | Op::Pwrite64 => fields![_fd: U32, _count: U64, _pos: I64],
        Op::Readv | Op::Writev | Op::Preadv | Op::Pwritev | Op::Preadv2 | Op::Pwritev2 => {
            fields![_fd: U32, _vlen: U64, _count: U64, _pos: I64]
        }
        Op::SyncFileRange => fields![_fd: U32, _offset: I64, _nbytes: I64],
        Op::Splice => fields![_fd_in: I32, _fd_out: I32, _len: U64],
        Op::Lseek => fields![_fd: U32, _offset: I64, _whence: U32],
        Op::Dup => fields![_fildes: U32],
        Op::Dup2 | Op::Dup3 => fields![_oldfd: U32, _newfd: U32],
        Op::Fcntl => fields![_fd: U32, _cmd: U32, _arg: U64],
        Op::Sendfile64 => fields![_out_fd: I32, _in_fd: I32, _count: U64],
        _ => fields![_fd: I32, _filename: Text, _offset: I64, _count: I64],
    }
}

fn argument<'v>(name: &str, call: &Call, path: &'v str) -> Value<'v> {
    /// `AT_FDCWD`: relative to the working directory.
    const HERE: i64 = -100;
    let maybe = |value: Option<u64>| value.map_or(-1, u64::cast_signed);
    let fd = i64::from(call.fd.unwrap_or(-1));
    let given = |index: usize| call.arguments.as_ref().map_or(-1, |arguments| arguments[index]);
    match name {
        "_newfd" | "_cmd" => Number(given(1)),
        "_whence" | "_arg" => Number(given(2)),
        "_offset" if call.op == Op::Lseek => Number(given(1)),
        "_filename" => Text(path),
        "_dfd" => Number(HERE),
        "_flags" | "_vlen" => number(call.extra),
        "_pos" | "_offset" => Number(maybe(call.offset)),
        "_count" | "_nbytes" | "_len" => Number(maybe(call.size)),
        // Of the second file the descriptor is not recorded.
        "_fd_out" | "_out_fd" => Number(-1),
        _ => Number(fd),
    }
}

/// The ids of all events, and how they are encoded.
struct Events {
    metadata: String,
    next: u16,
}

impl Events {
    fn define(&mut self, name: &str, fields: &[(&str, Type)]) -> u16 {
        let id = self.next;
        self.next += 1;
        // Writing to a String cannot fail.
        let _ = write!(
            self.metadata,
            "event {{ name = \"{name}\"; id = {id}; stream_id = 0; loglevel = 13; fields := struct {{"
        );
        for (field, kind) in fields {
            let kind = match kind {
                Type::I32 => "int32_t",
                Type::U32 => "uint32_t",
                Type::I64 => "int64_t",
                Type::U64 => "uint64_t",
                Type::Text => "string",
            };
            let _ = write!(self.metadata, " {kind} {field};");
        }
        self.metadata.push_str(" }; };\n");
        id
    }
}

fn encode(fields: &[(&str, Type)], values: &[Value<'_>], to: &mut Vec<u8>) {
    debug_assert_eq!(fields.len(), values.len());
    for ((_, kind), value) in fields.iter().zip(values) {
        match (kind, value) {
            (Type::Text, Text(text)) => encode_text(text, to),
            (Type::Text, Number(_)) => to.push(0),
            (Type::I32 | Type::U32, Number(value)) => to.extend((*value as u32).to_le_bytes()),
            (Type::I64 | Type::U64, Number(value)) => to.extend(value.to_le_bytes()),
            (_, Text(_)) => {}
        }
    }
}

fn encode_text(text: &str, to: &mut Vec<u8>) {
    // A string ends at its first 0.
    to.extend(text.bytes().map(|byte| if byte == 0 { b'?' } else { byte }));
    to.push(0);
}

/// One CPU.
#[derive(Default)]
struct Stream {
    name: String,
    events: Vec<u8>,
    begin_ns: u64,
    discarded: u64,
    /// The thread that runs on it; 0: idle.
    running: u32,
    comm: Rc<str>,
}

pub struct Ctf<'a> {
    about: About<'a>,
    events: Events,
    /// By event: ids of the entry and the exit of system calls, and of all others.
    calls: HashMap<Op, [u16; 2]>,
    others: HashMap<&'static str, u16>,
    rows: u16,
    row_fields: Vec<String>,
    streams: BTreeMap<u16, Stream>,
    /// The CPU that a thread runs on.
    cpus: HashMap<u32, u16>,
    /// The file of a descriptor, as far as the analyses know it.
    descriptors: HashMap<(u32, i32), FileNumber>,
    uuid: [u8; 16],
    unnamed: Rc<str>,
}

impl<'a> Ctf<'a> {
    #[must_use]
    pub fn new(about: About<'a>) -> Self {
        let mut events = Events {
            metadata: String::new(),
            next: 0,
        };
        let mut others = HashMap::new();
        let list = [
            PROCESS,
            DESCRIPTOR,
            DISK,
            SWITCH,
            RQ_ISSUE,
            RQ_COMPLETE,
            MARK,
            REQUEST,
            ASYNC_BEGIN,
            ASYNC_END,
            FAULT_BEGIN,
            FAULT_END,
        ];
        for (name, fields) in list {
            others.insert(name, events.define(name, fields));
        }
        let row_fields: Vec<String> = about.outline.rows.iter().enumerate().map(row_field).collect();
        let fields: Vec<(&str, Type)> = row_fields.iter().map(|name| (name.as_str(), Type::U64)).collect();
        let rows = events.define("iosb_rows", &fields);
        let uuid = uuid(about);
        Self {
            about,
            events,
            calls: HashMap::new(),
            others,
            rows,
            row_fields,
            streams: BTreeMap::new(),
            cpus: HashMap::new(),
            descriptors: HashMap::new(),
            uuid,
            unnamed: "".into(),
        }
    }

    /// The ids of a system call's entry and exit. They are defined at first use: metadata is written last.
    fn ids(&mut self, op: Op) -> [u16; 2] {
        if let Some(ids) = self.calls.get(&op) {
            return *ids;
        }
        let entry = self.events.define(&format!("syscall_entry_{op}"), arguments(op));
        let exit = self.events.define(&format!("syscall_exit_{op}"), fields![_ret: I64]);
        self.calls.insert(op, [entry, exit]);
        [entry, exit]
    }

    fn event(
        &mut self,
        cpu: u16,
        at_ns: u64,
        (id, fields): (u16, &[(&str, Type)]),
        values: &[Value<'_>],
        output: &mut dyn Output,
    ) -> io::Result<()> {
        let names = &self.about.outline.names;
        let Some(stream) = self.streams.get_mut(&cpu) else {
            return Ok(());
        };
        let (tid, to) = (stream.running, &mut stream.events);
        to.extend(id.to_le_bytes());
        to.extend(at_ns.to_le_bytes());
        let pid = names.thread_at(tid, at_ns).map_or(tid, |thread| thread.pid);
        to.extend(pid.to_le_bytes());
        to.extend(tid.to_le_bytes());
        encode_text(&stream.comm, to);
        encode(fields, values, to);
        if stream.events.len() >= PACKET {
            self.packet(cpu, at_ns, output)?;
        }
        Ok(())
    }

    fn other(
        &mut self,
        cpu: u16,
        at_ns: u64,
        (name, fields): (&'static str, Fields),
        values: &[Value<'_>],
        output: &mut dyn Output,
    ) -> io::Result<()> {
        let id = self.others.get(name).copied().unwrap_or_default();
        self.event(cpu, at_ns, (id, fields), values, output)
    }

    /// Writes the events of a CPU so far as a packet that ends at this time.
    fn packet(&mut self, cpu: u16, end_ns: u64, output: &mut dyn Output) -> io::Result<()> {
        let uuid = self.uuid;
        let Some(stream) = self.streams.get_mut(&cpu) else {
            return Ok(());
        };
        let mut header = Vec::with_capacity(PACKET_HEADER);
        header.extend(MAGIC.to_le_bytes());
        header.extend(uuid);
        header.extend(0_u32.to_le_bytes());
        let bits = ((PACKET_HEADER + stream.events.len()) * 8) as u64;
        for field in [stream.begin_ns, end_ns, bits, bits, stream.discarded] {
            header.extend(field.to_le_bytes());
        }
        header.extend(u32::from(cpu).to_le_bytes());
        output.write(&stream.name, &header)?;
        output.write(&stream.name, &stream.events)?;
        stream.events.clear();
        stream.begin_ns = end_ns;
        Ok(())
    }

    /// Lets a thread run on a CPU, and nowhere else; 0: lets the CPU be idle.
    fn run(&mut self, cpu: u16, tid: u32, at_ns: u64, output: &mut dyn Output) -> io::Result<()> {
        /// The kernel's priority of a thread with nice 0.
        const PRIORITY: i64 = 20;
        let Some(stream) = self.streams.get(&cpu) else {
            return Ok(());
        };
        let (previous, previous_comm) = (stream.running, Rc::clone(&stream.comm));
        if previous == tid {
            return Ok(());
        }
        if let Some(elsewhere) = self.cpus.get(&tid).copied().filter(|_| tid != 0) {
            self.run(elsewhere, 0, at_ns, output)?;
        }
        let names = &self.about.outline.names;
        let comm = names
            .thread_at(tid, at_ns)
            .map_or_else(|| Rc::clone(&self.unnamed), |thread| Rc::clone(&thread.comm));
        let values = [
            Text(&previous_comm),
            number(previous.into()),
            Number(PRIORITY),
            Number(0),
            Text(&comm),
            number(tid.into()),
            Number(PRIORITY),
        ];
        self.other(cpu, at_ns, SWITCH, &values, output)?;
        self.cpus.remove(&previous);
        if tid != 0 {
            self.cpus.insert(tid, cpu);
        }
        if let Some(stream) = self.streams.get_mut(&cpu) {
            (stream.running, stream.comm) = (tid, comm);
        }
        Ok(())
    }

    fn call(&mut self, at_ns: u64, point: Point, call: &Call, output: &mut dyn Output) -> io::Result<()> {
        let about = self.about;
        let ids = self.ids(call.op);
        let path = match about.outline.names.path_of(call.files[0]) {
            "" => call
                .paths
                .as_ref()
                .and_then(|paths| paths.first.as_ref())
                .map_or("", |path| &path.text),
            path => path,
        };
        let is_open = matches!(
            call.op,
            Op::Open | Op::Openat | Op::Openat2 | Op::Creat | Op::OpenByHandleAt
        );
        if point == Point::Begin {
            self.run(call.cpus[0], call.tid, at_ns, output)?;
            if let Some(fd) = call.fd.filter(|_| !is_open && call.files[0] > 0) {
                self.descriptor(call, fd, path, output)?;
            }
            let fields = arguments(call.op);
            let values: Vec<Value<'_>> = fields.iter().map(|(name, _)| argument(name, call, path)).collect();
            return self.event(call.cpus[0], at_ns, (ids[0], fields), &values, output);
        }
        self.run(call.cpus[1], call.tid, at_ns, output)?;
        if call.rows.iter().any(|ns| *ns > 0) && !self.row_fields.is_empty() {
            let values: Vec<Value<'_>> = call
                .rows
                .iter()
                .take(self.row_fields.len())
                .map(|ns| number(*ns))
                .collect();
            let names = std::mem::take(&mut self.row_fields);
            let fields: Vec<(&str, Type)> = names.iter().map(|name| (name.as_str(), Type::U64)).collect();
            let written = self.event(call.cpus[1], at_ns, (self.rows, &fields), &values, output);
            self.row_fields = names;
            written?;
        }
        match (call.op, i32::try_from(call.value)) {
            (_, Ok(fd)) if is_open && fd >= 0 => drop(self.descriptors.insert((call.pid, fd), call.files[0])),
            (Op::Close, _) => drop(call.fd.and_then(|fd| self.descriptors.remove(&(call.pid, fd)))),
            _ => {}
        }
        let fields = [("_ret", Type::I64)];
        self.event(call.cpus[1], at_ns, (ids[1], &fields), &[Number(call.value)], output)
    }

    /// Names a descriptor that was opened before the recording, or by a call that was lost.
    fn descriptor(&mut self, call: &Call, fd: i32, path: &str, output: &mut dyn Output) -> io::Result<()> {
        let known = self.descriptors.insert((call.pid, fd), call.files[0]);
        if known == Some(call.files[0]) {
            return Ok(());
        }
        let flags = self
            .about
            .outline
            .names
            .file_of(call.files[0])
            .map_or(0, |file| file.flags);
        let values = [
            number(call.pid.into()),
            Number(fd.into()),
            number(flags.into()),
            Number(0),
            Text(path),
        ];
        self.other(call.cpus[0], call.begin_ns, DESCRIPTOR, &values, output)
    }

    fn request(&mut self, at_ns: u64, point: Point, request: &Request, output: &mut dyn Output) -> io::Result<()> {
        let about = self.about;
        let device = number(device(request.disk));
        let sectors = number(request.bytes / 512);
        // The analyses know two kinds: odd numbers are writes.
        let rwbs = Number(i64::from(!matches!(request.op, Op::Read)));
        let comm = about.outline.names.comm_at(request.tid, at_ns);
        let (cpu, sector) = (request.cpu, number(request.sector));
        match point {
            Point::Begin => {
                let values = [
                    device,
                    sector,
                    number(request.bytes),
                    number(request.tid.into()),
                    Text(request.op.name()),
                    Text(request.origin.name()),
                ];
                self.other(cpu, at_ns, REQUEST, &values, output)
            }
            Point::Issue => {
                let bytes = number(request.bytes);
                let values = [
                    device,
                    sector,
                    sectors,
                    bytes,
                    number(request.tid.into()),
                    rwbs,
                    Text(comm),
                ];
                self.other(cpu, at_ns, RQ_ISSUE, &values, output)
            }
            // The request was part of another one.
            Point::End if request.issued_ns.is_none() => Ok(()),
            Point::End => {
                let values = [device, sector, sectors, Number(-i64::from(request.errno)), rwbs];
                self.other(cpu, at_ns, RQ_COMPLETE, &values, output)
            }
        }
    }

    fn sleep(&mut self, at_ns: u64, point: Point, sleep: &Sleep, output: &mut dyn Output) -> io::Result<()> {
        if point == Point::End {
            return self.run(sleep.cpus[1], sleep.tid, at_ns, output);
        }
        // Another thread may have been seen on the CPU since.
        let runs_there = self
            .streams
            .get(&sleep.cpus[0])
            .is_some_and(|stream| stream.running == sleep.tid);
        if runs_there {
            self.run(sleep.cpus[0], 0, at_ns, output)
        } else {
            Ok(())
        }
    }

    fn asynchronous(&mut self, at_ns: u64, point: Point, call: &AsyncCall, output: &mut dyn Output) -> io::Result<()> {
        let about = self.about;
        let cpu = self.cpu_of(call.tid);
        let maybe = |value: Option<u64>| Number(value.map_or(-1, u64::cast_signed));
        if point == Point::Begin {
            let path = about.outline.names.path_of(call.file);
            let values = [
                Text(call.op.name()),
                number(call.key),
                Text(path),
                maybe(call.offset),
                maybe(call.size),
            ];
            return self.other(cpu, at_ns, ASYNC_BEGIN, &values, output);
        }
        let values = [Text(call.op.name()), number(call.key), Number(call.value)];
        self.other(cpu, at_ns, ASYNC_END, &values, output)
    }

    fn fault(&mut self, at_ns: u64, point: Point, fault: &Fault, output: &mut dyn Output) -> io::Result<()> {
        let about = self.about;
        let cpu = self.cpu_of(fault.tid);
        if point == Point::Begin {
            let path = about.outline.names.path_of(fault.file);
            let values = [Text(path), number(fault.offset), Number(fault.is_write.into())];
            return self.other(cpu, at_ns, FAULT_BEGIN, &values, output);
        }
        self.other(cpu, at_ns, FAULT_END, &[Number(-i64::from(fault.errno))], output)
    }

    /// The CPU that a thread runs on, or else any.
    fn cpu_of(&self, tid: u32) -> u16 {
        let first = || self.streams.keys().next().copied();
        self.cpus.get(&tid).copied().or_else(first).unwrap_or_default()
    }

    /// The state before the first event: threads and disks.
    fn dump(&mut self, output: &mut dyn Output) -> io::Result<()> {
        let (about, cpu) = (self.about, self.cpu_of(0));
        let at_ns = about.outline.from_ns;
        for (tid, thread) in about.outline.names.threads() {
            let [tid, pid, parent] = [tid, thread.pid, thread.parent].map(|id| Number(id.into()));
            let [vtid, vpid, vparent] = [&tid, &pid, &parent].map(|id| match id {
                Number(id) => Number(*id),
                Text(_) => Number(0),
            });
            let name = Text(&thread.comm);
            let rest = [0, 5, 0, 5, 0].map(Number);
            let mut values = vec![tid, vtid, pid, vpid, parent, vparent, name];
            values.extend(rest);
            self.other(cpu, at_ns, PROCESS, &values, output)?;
        }
        for (number_of, name) in &about.outline.disks {
            self.other(cpu, at_ns, DISK, &[number(device(*number_of)), Text(name)], output)?;
        }
        Ok(())
    }

    fn metadata(&self) -> String {
        let meta = self.about.meta;
        let uuid = uuid_text(self.uuid);
        let offset = meta.clocks.offset_ns;
        let (host, kernel) = (quoted(&meta.host), quoted(&meta.kernel));
        format!(
            "/* CTF 1.8 */
typealias integer {{ size = 8; align = 8; signed = false; }} := uint8_t;
typealias integer {{ size = 16; align = 8; signed = false; }} := uint16_t;
typealias integer {{ size = 32; align = 8; signed = false; }} := uint32_t;
typealias integer {{ size = 64; align = 8; signed = false; }} := uint64_t;
typealias integer {{ size = 32; align = 8; signed = true; }} := int32_t;
typealias integer {{ size = 64; align = 8; signed = true; }} := int64_t;
trace {{ major = 1; minor = 8; uuid = \"{uuid}\"; byte_order = le;
 packet.header := struct {{ uint32_t magic; uint8_t uuid[16]; uint32_t stream_id; }}; }};
env {{ hostname = \"{host}\"; domain = \"kernel\"; sysname = \"Linux\"; kernel_release = \"{kernel}\"; kernel_version = \"\"; \
tracer_name = \"lttng-modules\"; tracer_major = 2; tracer_minor = 13; tracer_patchlevel = 0; }};
clock {{ name = monotonic; uuid = \"{uuid}\"; description = \"Monotonic Clock\"; freq = 1000000000; offset = {offset}; }};
typealias integer {{ size = 64; align = 8; signed = false; map = clock.monotonic.value; }} := uint64_clock_t;
stream {{ id = 0;
 packet.context := struct {{ uint64_clock_t timestamp_begin; uint64_clock_t timestamp_end; uint64_t content_size; \
uint64_t packet_size; uint64_t events_discarded; uint32_t cpu_id; }};
 event.header := struct {{ uint16_t id; uint64_clock_t timestamp; }};
 event.context := struct {{ int32_t _pid; int32_t _tid; string _procname; }};
}};
{}",
            self.events.metadata
        )
    }
}

fn device([major, minor]: [u32; 2]) -> u64 {
    u64::from(major) << 20 | u64::from(minor)
}

/// The name of a row as a field: `others' I/O` becomes `_others_I_O`.
fn row_field((index, name): (usize, &String)) -> String {
    let name: String = name.chars().filter(|c| *c != '\'').collect();
    let name: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .collect();
    match &*name {
        "" => format!("_row_{index}"),
        name => format!("_{name}"),
    }
}

/// For a string of the metadata.
fn quoted(text: &str) -> String {
    let is_safe = |c: &char| c.is_ascii_graphic() && !['"', '\\'].contains(c);
    text.chars().filter(is_safe).collect()
}

/// The same for the same recording: made of its boot, start and end.
fn uuid(about: About<'_>) -> [u8; 16] {
    let boot: String = about.meta.boot_id.chars().filter(char::is_ascii_hexdigit).collect();
    let boot = u128::from_str_radix(&boot, 16).unwrap_or(0);
    let span = u128::from(about.outline.from_ns) << 64 | u128::from(about.outline.to_ns);
    let mut bytes = (boot ^ span).to_be_bytes();
    // Version 8 is for what applications choose.
    bytes[6] = bytes[6] & 0x0f | 0x80;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    bytes
}

fn uuid_text(uuid: [u8; 16]) -> String {
    let hex: Vec<String> = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    [&hex[..4], &hex[4..6], &hex[6..8], &hex[8..10], &hex[10..]]
        .map(<[String]>::concat)
        .join("-")
}

impl Exporter for Ctf<'_> {
    fn points(&self) -> &'static [Point] {
        &[Point::Begin, Point::Issue, Point::End]
    }

    fn begin(&mut self, output: &mut dyn Output) -> io::Result<()> {
        let cpus = &self.about.outline.cpus;
        for cpu in cpus.iter().copied().chain(cpus.is_empty().then_some(0)) {
            let stream = Stream {
                name: format!("channel_{cpu}"),
                begin_ns: self.about.outline.from_ns,
                ..Stream::default()
            };
            self.streams.insert(cpu, stream);
        }
        self.dump(output)
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
            // Definitions and paths are no events of the trace.
            Record::Lost(lost) if !lost.kind.is_operation() => Ok(()),
            Record::Lost(lost) => {
                if let (Point::End, Some(stream)) = (point, self.streams.get_mut(&lost.cpu)) {
                    stream.discarded = stream.discarded.wrapping_add(lost.records);
                }
                self.packet(lost.cpu, at_ns, output)
            }
            Record::Mark(mark) => self.other(self.cpu_of(0), at_ns, MARK, &[Text(&mark.text)], output),
            Record::File(_) | Record::Folder(_) | Record::Thread(_) => Ok(()),
        }
    }

    fn end(&mut self, output: &mut dyn Output) -> io::Result<Vec<LeftOut>> {
        let cpus: Vec<u16> = self.streams.keys().copied().collect();
        for cpu in cpus {
            self.packet(cpu, self.about.outline.to_ns, output)?;
        }
        output.write("metadata", self.metadata().as_bytes())?;
        Ok(Vec::new())
    }
}
