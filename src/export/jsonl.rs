//! JSON Lines: an object for each record, in the order in which they began. `schema/events.schema.json` describes them.

use std::borrow::Cow;
use std::io;

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use super::outline::name_of;
use super::output::Output;
use super::{Caller, Exporter, LeftOut, Moment, Names, Record};
use crate::model::ids::{Layer, Op, Origin, ReadClass};
use crate::model::record::{AsyncCall, Call, Fault, FileNumber, Folder, GivenPath, Mark, OpenFile, Request};
use crate::model::record::{Lost, Sleep, Thread};
use crate::model::recording::{Disk, Meta};
use crate::view::json::Escaping;

/// Goes up when a field changes its meaning, its name or its type, or is removed.
pub const SCHEMA_VERSION: u32 = 1;

pub struct Jsonl {
    meta: Meta,
    line: Vec<u8>,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Line<'a> {
    Recording(RecordingLine<'a>),
    Call(CallLine<'a>),
    Request(RequestLine<'a>),
    Sleep(SleepLine<'a>),
    AsyncCall(AsyncLine<'a>),
    Fault(FaultLine<'a>),
    File(FileLine<'a>),
    Folder(&'a Folder),
    Thread(&'a Thread),
    Lost(&'a Lost),
    Mark(&'a Mark),
}

#[derive(Serialize)]
struct RecordingLine<'a> {
    schema_version: u32,
    tool: &'a str,
    host: &'a str,
    kernel: &'a str,
    subject: &'a str,
    began_ns: u64,
    wall_offset_ns: i64,
}

#[derive(Serialize)]
struct CallLine<'a> {
    begin_ns: u64,
    end_ns: Option<u64>,
    cpu: [u16; 2],
    pid: u32,
    tid: u32,
    comm: &'a str,
    op: Op,
    is_32bit: bool,
    value: i64,
    file: Option<FileNumber>,
    file2: Option<FileNumber>,
    path: Option<&'a str>,
    fd: Option<i32>,
    offset: Option<u64>,
    size: Option<u64>,
    extra: u64,
    arguments: Option<&'a [i64]>,
    class: Option<ReadClass>,
    direct: bool,
    rows: Rows<'a>,
    given: [Option<&'a GivenPath>; 2],
}

/// The rows that are not 0, by name.
struct Rows<'a>(&'a [String], &'a [u64]);

impl Serialize for Rows<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        let rows = self.0.iter().zip(self.1);
        for (name, ns) in rows.filter(|(_, ns)| **ns > 0) {
            map.serialize_entry(name, ns)?;
        }
        map.end()
    }
}

#[derive(Serialize)]
struct RequestLine<'a> {
    disk: Cow<'a, str>,
    device: [u32; 2],
    partition: [u32; 2],
    sector: u64,
    bytes: u64,
    op: Op,
    flags: u32,
    sync: bool,
    meta: bool,
    readahead: bool,
    fua: bool,
    preflush: bool,
    errno: u32,
    submitted_ns: Option<u64>,
    started_ns: Option<u64>,
    issued_ns: Option<u64>,
    ended_ns: u64,
    pid: u32,
    tid: u32,
    comm: &'a str,
    origin: Origin,
    /// Of the call in which it was submitted.
    call_op: Option<Op>,
    call_begin_ns: Option<u64>,
    inode: Option<crate::model::report::slow::Inode>,
    cpu: u16,
}

#[derive(Serialize)]
struct SleepLine<'a> {
    out_ns: u64,
    woken_ns: Option<u64>,
    in_ns: u64,
    tid: u32,
    row: &'a str,
    waker_pid: u32,
    waker_tid: u32,
    cpu: [u16; 2],
}

#[derive(Serialize)]
struct AsyncLine<'a> {
    begin_ns: u64,
    attempt_end_ns: u64,
    end_ns: u64,
    pid: u32,
    tid: u32,
    comm: &'a str,
    op: Op,
    key: u64,
    file: Option<FileNumber>,
    path: Option<&'a str>,
    offset: Option<u64>,
    size: Option<u64>,
    value: i64,
    context: u64,
    flags: u32,
    attempts: u32,
    aio: bool,
    direct: bool,
}

#[derive(Serialize)]
struct FaultLine<'a> {
    begin_ns: u64,
    end_ns: u64,
    pid: u32,
    tid: u32,
    comm: &'a str,
    layer: Layer,
    file: Option<FileNumber>,
    path: Option<&'a str>,
    offset: u64,
    write: bool,
    errno: u32,
}

#[derive(Serialize)]
struct FileLine<'a> {
    id: FileNumber,
    at_ns: u64,
    path: Option<&'a str>,
    path_kind: Option<crate::model::ids::PathKind>,
    file_system: &'a str,
    device: Option<[u32; 2]>,
    inode: Option<u64>,
    generation: u32,
    mode: u32,
    links: u32,
    size: u64,
    blocks: u64,
    flags: u32,
    position: u64,
    mount: u32,
    found_at: Option<(u32, i32)>,
}

fn some(number: FileNumber) -> Option<FileNumber> {
    (number > 0).then_some(number)
}

fn path(names: &Names, number: FileNumber) -> Option<&str> {
    Some(&*names.file_of(number)?.path)
}

impl Jsonl {
    #[must_use]
    pub fn new(meta: &Meta) -> Self {
        Self {
            meta: meta.clone(),
            line: Vec::new(),
        }
    }
}

/// `text`: reused memory.
fn print(line: &Line<'_>, text: &mut Vec<u8>, output: &mut dyn Output) -> io::Result<()> {
    text.clear();
    line.serialize(&mut serde_json::Serializer::with_formatter(&mut *text, Escaping))?;
    text.push(b'\n');
    output.write("", text)
}

fn call<'a>(rows: &'a [String], names: &'a Names, call: &'a Call) -> CallLine<'a> {
    let given = call.paths.as_deref();
    CallLine {
        begin_ns: call.begin_ns,
        end_ns: call.end_ns,
        cpu: call.cpus,
        pid: call.pid,
        tid: call.tid,
        comm: names.comm_at(call.tid, call.end_ns.unwrap_or(call.begin_ns)),
        op: call.op,
        is_32bit: call.is_32bit,
        value: call.value,
        file: some(call.files[0]),
        file2: some(call.files[1]),
        path: path(names, call.files[0]),
        fd: call.fd,
        offset: call.offset,
        size: call.size,
        extra: call.extra,
        arguments: call.arguments.as_deref().map(|arguments| &arguments[..]),
        class: call.class,
        direct: call.is_direct,
        rows: Rows(rows, &call.rows),
        given: [
            given.and_then(|paths| paths.first.as_ref()),
            given.and_then(|paths| paths.second.as_ref()),
        ],
    }
}

fn request<'a>(disks: &'a [Disk], names: &'a Names, request: &'a Request, caller: Option<Caller>) -> RequestLine<'a> {
    let at_ns = request.submitted_ns.unwrap_or(request.ended_ns);
    RequestLine {
        disk: name_of(disks, request.disk),
        device: request.disk,
        partition: request.partition,
        sector: request.sector,
        bytes: request.bytes,
        op: request.op,
        flags: request.flags,
        sync: request.is_sync,
        meta: request.is_meta,
        readahead: request.is_readahead,
        fua: request.is_fua,
        preflush: request.is_preflush,
        errno: request.errno,
        submitted_ns: request.submitted_ns,
        started_ns: request.started_ns,
        issued_ns: request.issued_ns,
        ended_ns: request.ended_ns,
        pid: request.pid,
        tid: request.tid,
        comm: names.comm_at(request.tid, at_ns),
        origin: request.origin,
        call_op: caller.map(|caller| caller.op),
        call_begin_ns: caller.map(|caller| caller.begin_ns),
        inode: request.inode,
        cpu: request.cpu,
    }
}

fn sleep<'a>(rows: &'a [String], sleep: &Sleep) -> SleepLine<'a> {
    SleepLine {
        out_ns: sleep.out_ns,
        woken_ns: sleep.woken_ns,
        in_ns: sleep.in_ns,
        tid: sleep.tid,
        row: rows.get(usize::from(sleep.row)).map_or("", String::as_str),
        waker_pid: sleep.waker_pid,
        waker_tid: sleep.waker_tid,
        cpu: sleep.cpus,
    }
}

fn asynchronous<'a>(names: &'a Names, call: &AsyncCall) -> AsyncLine<'a> {
    AsyncLine {
        begin_ns: call.begin_ns,
        attempt_end_ns: call.attempt_end_ns,
        end_ns: call.end_ns,
        pid: call.pid,
        tid: call.tid,
        comm: names.comm_at(call.tid, call.begin_ns),
        op: call.op,
        key: call.key,
        file: some(call.file),
        path: path(names, call.file),
        offset: call.offset,
        size: call.size,
        value: call.value,
        context: call.context,
        flags: call.flags,
        attempts: call.attempts,
        aio: call.is_aio,
        direct: call.is_direct,
    }
}

fn fault<'a>(names: &'a Names, fault: &Fault) -> FaultLine<'a> {
    FaultLine {
        begin_ns: fault.begin_ns,
        end_ns: fault.end_ns,
        pid: fault.pid,
        tid: fault.tid,
        comm: names.comm_at(fault.tid, fault.begin_ns),
        layer: fault.layer,
        file: some(fault.file),
        path: path(names, fault.file),
        offset: fault.offset,
        write: fault.is_write,
        errno: fault.errno,
    }
}

fn file(file: &OpenFile) -> FileLine<'_> {
    FileLine {
        id: file.number,
        at_ns: file.at_ns,
        path: file.path.as_ref().map(|path| &*path.text),
        path_kind: file.path.as_ref().map(|path| path.kind),
        file_system: &file.file_system,
        device: file.inode.map(|inode| [inode.major, inode.minor]),
        inode: file.inode.map(|inode| inode.number),
        generation: file.generation,
        mode: file.mode,
        links: file.links,
        size: file.size,
        blocks: file.blocks,
        flags: file.flags,
        position: file.position,
        mount: file.mount,
        found_at: file.found_at,
    }
}

impl Exporter for Jsonl {
    fn begin(&mut self, output: &mut dyn Output) -> io::Result<()> {
        let meta = &self.meta;
        let line = Line::Recording(RecordingLine {
            schema_version: SCHEMA_VERSION,
            tool: &meta.tool,
            host: &meta.host,
            kernel: &meta.kernel,
            subject: &meta.run.subject,
            began_ns: meta.run.began_ns,
            wall_offset_ns: meta.clocks.offset_ns,
        });
        print(&line, &mut self.line, output)
    }

    fn moment(&mut self, moment: &Moment<'_>, output: &mut dyn Output) -> io::Result<()> {
        let Meta { rows, disks, .. } = &self.meta;
        let names = moment.names;
        let line = match moment.record {
            Record::Call(record) => Line::Call(call(rows, names, record)),
            Record::Request(record) => Line::Request(request(disks, names, record, moment.caller)),
            Record::Sleep(record) => Line::Sleep(sleep(rows, record)),
            Record::Async(record) => Line::AsyncCall(asynchronous(names, record)),
            Record::Fault(record) => Line::Fault(fault(names, record)),
            Record::File(record) => Line::File(file(record)),
            Record::Folder(record) => Line::Folder(record),
            Record::Thread(record) => Line::Thread(record),
            Record::Lost(record) => Line::Lost(record),
            Record::Mark(record) => Line::Mark(record),
        };
        print(&line, &mut self.line, output)
    }

    fn end(&mut self, _: &mut dyn Output) -> io::Result<Vec<LeftOut>> {
        Ok(Vec::new())
    }
}
