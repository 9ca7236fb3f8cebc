//! Records of calls, requests and sleeps: drains the rings of the CPUs, and decodes what is in them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use plain::Plain;

use super::counters::ReadError;
use super::slow::alone;
use super::string::{comm, text};
use crate::catalog::{RECORDED, syscall_of};
use crate::kernel::cgroup;
use crate::kernel::interface::types::{
    async_record, call_record, call_record_all, call_record_arguments, call_record_few, call_record_wide, call_shape,
    fault_record, file_record, folder_record, path_record, recorder, request_record, sleep_record, thread_record,
};
use crate::kernel::interface::{
    CALL_HAS_FD, CALL_HAS_OFFSET, CALL_HAS_PATH, CALL_HAS_POSITION, CALL_HAS_SIZE, CALL_IS_COMPAT, CALL_IS_DIRECT,
    CALL_NEEDS_ALL, CALL_POSITION, CALL_ROWS_ALL, CALL_ROWS_ARGUMENTS, CALL_ROWS_FEW, CALL_ROWS_WIDE, PATH_ALONE,
    RECORD_ASYNC, RECORD_CALL, RECORD_FAULT, RECORD_FILE, RECORD_FOLDER, RECORD_KINDS, RECORD_PATH, RECORD_REQUEST,
    RECORD_SLEEP, RECORD_THREAD, ROW_VFS,
};
use crate::kernel::names;
use crate::model::abi::{RECORD_ARGUMENTS, ROWS};
use crate::model::ids::{Layer, Op, Origin, ReadClass};
use crate::model::record::{
    AsyncCall, Call, Fault, Folder, GivenPath, Kind, Lost, OpenFile, Paths, Records, Request, Sleep, Thread, owners,
};
use crate::model::report::slow::{CallPath, Inode, PathKind};
use crate::model::run_info::{BlockInfo, RunInfo};
use crate::probe::attach::Attached;
use crate::probe::config::recorded_shape;
use crate::probe::records::{Frames, RecordRings};
use crate::process;
use crate::sys::clock::monotonic_ns;
use crate::sys::counters::Counters;
use crate::sys::table;

/// The time between two drains of the rings. A ring that fills up earlier wakes the reader.
const PERIOD: Duration = Duration::from_millis(50);
/// Bytes of a command line that are kept.
const COMMAND_BYTES: usize = 256;
/// Threads that are known to be defined, and paths that wait for the end of their call, before they are forgotten.
const MOST_THREADS: usize = 1 << 18;
/// The longest time between two looks at the name of a thread without calls, in nanoseconds.
const MOST_BETWEEN_NAMES_NS: u64 = 1_000_000_000;
/// From this number of waiting paths on, those whose call was lost are looked for.
const MANY_PATHS: usize = 1 << 12;

/// The state of reading records.
#[derive(Debug)]
pub struct RecordReader {
    decoder: Decoder,
    /// Records that were drained when their definitions may not have been yet.
    held: Records,
    /// Losses so far, by element of the table.
    lost: Vec<u64>,
    /// When they were last read, by the programs' clock.
    lost_until_ns: u64,
    next: Instant,
    /// Process numbers are those of `/proc` here.
    sees_processes: bool,
    /// The executable and the command line of each process.
    described: BTreeMap<u32, [String; 2]>,
    /// Threads that records define.
    defined: BTreeSet<u32>,
    /// Other threads, which were looked up in `/proc`.
    found: BTreeMap<u32, Submitter>,
}

/// A thread without calls that are recorded.
#[derive(Debug)]
struct Submitter {
    /// `None`: it had ended.
    name: Option<String>,
    /// When it was first and last looked up.
    looked_up_ns: (u64, u64),
}

impl Submitter {
    /// Whether its name is to be looked up again. Most programs begin as a copy of a shell, which has the shell's name until it
    /// executes another program: so that is done more often while it is new.
    fn is_due(&self, now_ns: u64) -> bool {
        let (first, last) = self.looked_up_ns;
        now_ns > last && now_ns - last >= last.saturating_sub(first).min(MOST_BETWEEN_NAMES_NS)
    }
}

impl RecordReader {
    #[must_use]
    pub fn new(run: &RunInfo) -> Self {
        let own = std::process::id();
        Self {
            decoder: Decoder::new(run),
            held: Records::default(),
            lost: Vec::new(),
            lost_until_ns: monotonic_ns(),
            next: Instant::now() + PERIOD,
            sees_processes: process::global_number(own).is_ok_and(|global| global == own),
            described: BTreeMap::new(),
            defined: BTreeSet::new(),
            found: BTreeMap::new(),
        }
    }

    /// When the rings are to be drained next.
    #[must_use]
    pub fn next(&self) -> Instant {
        self.next
    }

    /// The records that have arrived, each after the definitions that it needs, and what was lost. `is_last`: the calls
    /// under way are returned as well.
    ///
    /// # Errors
    /// If the kernel does not return them.
    pub fn take(&mut self, attached: &mut Attached, is_last: bool) -> Result<Records, ReadError> {
        let Some(rings) = &attached.records else {
            return Ok(Records::default());
        };
        self.next = Instant::now() + PERIOD;
        rings.settle();
        // Before the rings are drained: a call that ends in between is in both, and not in neither.
        let open = if is_last {
            recorders_in_calls(attached, u64::MAX, true)?
        } else {
            Vec::new()
        };
        let mut records = std::mem::take(&mut self.held);
        self.decoder.add(&rings.take()?, &mut records);
        // A definition is written before the record that needs it, perhaps to a ring that had been drained already.
        let mut later = Records::default();
        self.decoder.add(&rings.take()?, &mut later);
        records.files.append(&mut later.files);
        records.folders.append(&mut later.folders);
        records.threads.append(&mut later.threads);
        records.lost.append(&mut later.lost);
        // Each CPU has rings of its own: of the names of a file, and of the files of a name, the first in time counts.
        records.files.sort_by_key(|file| file.at_ns);
        if is_last {
            records.append(later);
        } else {
            self.held = later;
        }
        let waiting = self.decoder.give_paths(&mut records, is_last);
        self.held.calls.extend(waiting);
        if is_last {
            let ended: BTreeSet<(u32, u64)> = records.calls.iter().map(|call| (call.tid, call.begin_ns)).collect();
            let open = open.iter().filter_map(|recorder| self.decoder.open_call(recorder));
            let open: Vec<Call> = open
                .filter(|call| !ended.contains(&(call.tid, call.begin_ns)))
                .collect();
            records.calls.extend(open);
        }
        let (first, read_ns) = (self.first_losses(rings), monotonic_ns());
        attached.control(|control| control.drain += 1);
        if let Some(rings) = &attached.records {
            self.add_losses(rings, &first, read_ns, &mut records);
        }
        if self.sees_processes {
            self.define_submitters(&mut records, read_ns);
            self.describe(&mut records.threads);
        }
        Ok(records)
    }

    /// The calls under way that began before this moment. `of_all`: also those of threads that have no slot of their own.
    /// Their table takes a system call, during which other programs do not run on this CPU.
    ///
    /// # Errors
    /// As above.
    pub fn under_way(&self, attached: &Attached, before_ns: u64, of_all: bool) -> Result<Vec<Call>, ReadError> {
        if attached.records.is_none() {
            return Ok(Vec::new());
        }
        let recorders = recorders_in_calls(attached, before_ns, of_all)?;
        let calls = recorders.iter().filter_map(|recorder| self.decoder.open_call(recorder));
        Ok(calls.collect())
    }

    /// Whether a call may be under way, as far as `/proc` shows it: one whose return was missed looks the same.
    #[must_use]
    pub fn may_be_under_way(&self, call: &Call) -> bool {
        let known = syscall_of(call.op).filter(|_| !call.is_32bit);
        let numbers: Vec<i64> = known.map(|known| known.number).into_iter().collect();
        !self.sees_processes || process::may_be_in_call(call.pid, call.tid, &numbers)
    }

    /// The first moment of each loss since the last time, by element of the table, as far as they have happened. To be
    /// read before `control.drain` grows: a later loss may replace the first moment then.
    fn first_losses(&self, rings: &RecordRings) -> BTreeMap<usize, u64> {
        let elements = 0..rings.lost.len();
        let is_new = |element: &usize| rings.lost.word(*element, 0) != self.lost.get(*element).copied().or(Some(0));
        let first = |element: usize| Some((element, rings.lost.element(element)?.first_ns));
        elements.filter(is_new).filter_map(first).collect()
    }

    /// Adds the losses since the last time. `first`: those before `control.drain` has grown, which were read at `read_ns`.
    fn add_losses(&mut self, rings: &RecordRings, first: &BTreeMap<usize, u64>, read_ns: u64, records: &mut Records) {
        self.lost.resize(rings.lost.len(), 0);
        for (element, before) in self.lost.iter_mut().enumerate() {
            let kind = Kind::ALL.get(element % RECORD_KINDS as usize);
            let Some(&kind) = kind.filter(|_| rings.lost.word(element, 0) != Some(*before)) else {
                continue;
            };
            let Some(now) = rings.lost.element(element) else {
                continue;
            };
            let from_ns = began_ns(first.get(&element).copied(), now.first_ns, read_ns, self.lost_until_ns);
            records.lost.push(Lost {
                cpu: (element / RECORD_KINDS as usize) as u16,
                kind,
                records: now.records.wrapping_sub(*before),
                from_ns,
                to_ns: now.last_ns.max(from_ns),
            });
            *before = now.records;
        }
        self.lost_until_ns = read_ns;
    }

    /// Defines threads that requests name and no record does, as they made no call that is recorded. It misses those that have
    /// ended since. Nothing says when such a thread executes another program, or ends and its number is used again, so its name
    /// is looked up again and again.
    fn define_submitters(&mut self, records: &mut Records, now_ns: u64) {
        if self.defined.len() >= MOST_THREADS {
            self.defined.clear();
        }
        if self.found.len() >= MOST_THREADS {
            self.found.clear();
        }
        for thread in &records.threads {
            match thread.has_ended {
                true => self.defined.remove(&thread.tid),
                false => self.defined.insert(thread.tid),
            };
        }
        for request in records.requests.iter().filter(|request| request.pid != 0) {
            for tid in [request.pid, request.tid] {
                let known = self.found.get(&tid);
                if self.defined.contains(&tid) || known.is_some_and(|known| !known.is_due(now_ns)) {
                    continue;
                }
                let name = name_now(request.pid, tid);
                let before = known.and_then(|known| known.name.as_ref());
                if let Some(name) = name.as_ref().filter(|name| Some(*name) != before) {
                    let thread = thread_now(request.pid, tid, name.clone(), request.begin_ns());
                    records.threads.extend(thread);
                }
                let first = known.map_or(now_ns, |known| known.looked_up_ns.0);
                let looked_up_ns = (first, now_ns);
                self.found.insert(tid, Submitter { name, looked_up_ns });
            }
        }
    }

    /// Adds what only `/proc` has. It may miss processes that have ended since.
    fn describe(&mut self, threads: &mut [Thread]) {
        for thread in threads {
            let is_process = thread.tid == thread.pid;
            // Once per process; a new name of its first thread may mean another program.
            if !self.described.contains_key(&thread.pid) || (is_process && !thread.has_ended) {
                let folder = format!("/proc/{}", thread.pid);
                let exe = fs::read_link(format!("{folder}/exe")).unwrap_or_default();
                let mut command = fs::read(format!("{folder}/cmdline")).unwrap_or_default();
                command.truncate(COMMAND_BYTES);
                let command = text(&command).replace('\0', " ").trim_end().to_owned();
                let exe = exe.to_string_lossy().into_owned();
                self.described.insert(thread.pid, [exe, command]);
            }
            if let Some([exe, command]) = self.described.get(&thread.pid) {
                thread.exe.clone_from(exe);
                thread.command.clone_from(command);
            }
            if is_process && thread.has_ended {
                self.described.remove(&thread.pid);
            }
        }
    }
}

fn task_folder(pid: u32, tid: u32) -> String {
    format!("/proc/{pid}/task/{tid}")
}

/// The name of a thread; `None`: it has ended.
fn name_now(pid: u32, tid: u32) -> Option<String> {
    let name = fs::read(format!("{}/comm", task_folder(pid, tid))).ok()?;
    Some(text(name.strip_suffix(b"\n").unwrap_or(&name)))
}

/// A thread with this name as it is now, defined for records from this moment on; `None`: it has ended.
fn thread_now(pid: u32, tid: u32, comm: String, at_ns: u64) -> Option<Thread> {
    Some(Thread {
        tid,
        pid,
        at_ns,
        comm,
        uid: fs::metadata(task_folder(pid, tid)).ok()?.uid(),
        cgroup: cgroup::number_of(pid).unwrap_or(0),
        ..Thread::default()
    })
}

/// When records of one kind began to be lost on one CPU. `first_ns`: the first moment by a reading at `read_ns`, after which
/// a program may have replaced it by `now_ns`. `until_ns`: of the reading before.
fn began_ns(first_ns: Option<u64>, now_ns: u64, read_ns: u64, until_ns: u64) -> u64 {
    match first_ns.unwrap_or(now_ns.min(read_ns)) {
        // A program that was interrupted has counted a loss, and not noted its moment.
        0 => until_ns,
        first_ns => first_ns,
    }
}

/// The recorders of threads with a call in flight that began before this moment. `of_all`: also of those without a slot.
fn recorders_in_calls(attached: &Attached, before_ns: u64, of_all: bool) -> Result<Vec<recorder>, ReadError> {
    let maps = &attached.skeleton.maps;
    let failed = |error: std::io::Error| ReadError(format!("recorders: {error}"));
    let is_old = |begin_ns: u64| begin_ns != 0 && begin_ns < before_ns;
    let mut all: Vec<recorder> = Vec::new();
    if of_all || !maps.bss_recorders.autocreate() {
        all = table::entries(&maps.recorders).map_err(failed)?;
    }
    if maps.bss_recorders.autocreate() {
        for slots in Counters::<recorder>::pieces(&maps.bss_recorders) {
            let slots = slots.map_err(failed)?;
            // The begin of its call is its second word.
            let old = (0..slots.len()).filter(|slot| slots.word(*slot, 1).is_some_and(is_old));
            all.extend(old.filter_map(|slot| slots.element(slot)));
        }
    }
    all.retain(|recorder| recorder.call.thread != 0 && is_old(recorder.call.begin_ns));
    Ok(all)
}

/// Named flags of requests, as they are set in this kernel; 0: it does not have the flag.
#[derive(Debug, Clone, Copy, Default)]
struct RequestFlags {
    sync: u32,
    meta: u32,
    readahead: u32,
    fua: u32,
    preflush: u32,
}

impl RequestFlags {
    fn new(block: &BlockInfo) -> Self {
        let flag = |name: &str| {
            block
                .flags
                .get(name)
                .and_then(|&bit| 1_u32.checked_shl(bit))
                .unwrap_or(0)
        };
        Self {
            sync: flag("__REQ_SYNC"),
            meta: flag("__REQ_META"),
            readahead: flag("__REQ_RAHEAD"),
            fua: flag("__REQ_FUA"),
            preflush: flag("__REQ_PREFLUSH"),
        }
    }
}

/// Decodes records; pure.
#[derive(Debug, Default)]
pub struct Decoder {
    /// By their index in the run.
    ops: Vec<(Layer, Op)>,
    /// Likewise: what the arguments of a system call are.
    shapes: Vec<call_shape>,
    /// The index of the first op of the block layer.
    first_of_blk: usize,
    flags: RequestFlags,
    /// The paths of calls that have not been returned, by the thread and the number of the call: a thread that changes its
    /// CPU has several, since one ring is read after the other.
    paths: BTreeMap<(u32, u16), GivenPaths>,
    /// Calls that were held back once, because their paths had not arrived.
    waited: BTreeSet<(u32, u16)>,
    /// How many paths have arrived.
    arrived: u64,
    /// How often the rings were drained.
    drains: u64,
}

/// Paths that wait for their call.
#[derive(Debug, Default)]
struct GivenPaths {
    paths: Paths,
    /// The drain in which the last one arrived, and how many had arrived before it.
    drain: u64,
    after: u64,
}

impl Decoder {
    #[must_use]
    pub fn new(run: &RunInfo) -> Self {
        let ops: Vec<(Layer, Op)> = run.ops.iter().map(|op| (op.layer, op.op)).collect();
        Self {
            first_of_blk: ops
                .iter()
                .position(|(layer, _)| *layer == Layer::Blk)
                .unwrap_or(ops.len()),
            shapes: ops.iter().map(|(layer, op)| recorded_shape(*layer, *op)).collect(),
            flags: run.block.as_ref().map(RequestFlags::new).unwrap_or_default(),
            ops,
            ..Self::default()
        }
    }

    /// Decodes records and appends them. One that cannot be decoded is counted as lost.
    pub fn add(&mut self, frames: &Frames, records: &mut Records) {
        for frame in frames.iter() {
            let kind = frame.first().copied().map_or(RECORD_KINDS, u32::from);
            if self.add_one(kind, frame, records).is_none()
                && let Some(&kind) = Kind::ALL.get(kind as usize)
            {
                let now = monotonic_ns();
                records.lost.push(Lost {
                    cpu: 0,
                    kind,
                    records: 1,
                    from_ns: now,
                    to_ns: now,
                });
            }
        }
    }

    fn add_one(&mut self, kind: u32, frame: &[u8], records: &mut Records) -> Option<()> {
        match kind {
            RECORD_CALL => records.calls.push(self.call(frame)?),
            RECORD_REQUEST => records.requests.push(self.request(&prefix(frame)?)?),
            RECORD_SLEEP => records.sleeps.push(sleep(&prefix(frame)?)),
            RECORD_ASYNC => records.asynchronous.push(self.asynchronous(&prefix(frame)?)?),
            RECORD_FAULT => records.faults.push(self.fault(&prefix(frame)?)?),
            RECORD_FILE => records.files.push(file(frame)?),
            RECORD_FOLDER => records.folders.extend(folder(frame)?),
            RECORD_THREAD => records.threads.push(Self::thread(&prefix(frame)?)),
            RECORD_PATH => self.path(frame)?,
            _ => return None,
        }
        Some(())
    }

    fn call(&mut self, frame: &[u8]) -> Option<Call> {
        let record: call_record = prefix(frame)?;
        let (mut rows, mut arguments) = ([0; _], None);
        match u32::from(record.rows) {
            CALL_ROWS_FEW => {
                let few: call_record_few = prefix(frame)?;
                let [vfs, file_system] = few.rows.map(u64::from);
                rows[ROW_VFS as usize] = vfs;
                *rows.get_mut(usize::from(record.row))? = file_system;
                let all = record.end_ns.saturating_sub(record.begin_ns);
                rows[0] = all.saturating_sub(vfs + file_system);
            }
            CALL_ROWS_ALL => rows = prefix::<call_record_all>(frame)?.rows.map(u64::from),
            CALL_ROWS_WIDE => rows = prefix::<call_record_wide>(frame)?.rows,
            CALL_ROWS_ARGUMENTS => arguments = Some(Box::new(prefix::<call_record_arguments>(frame)?.arguments)),
            _ => {}
        }
        self.as_recorded(&record, rows, arguments)
    }

    /// A call with the fields that all records of calls have.
    fn as_recorded(
        &self,
        record: &call_record,
        rows: [u64; ROWS as usize],
        arguments: Option<Box<[i64; RECORD_ARGUMENTS as usize]>>,
    ) -> Option<Call> {
        let has = |flag: u32| u32::from(record.has) & flag != 0;
        let op = self.ops.get(usize::from(record.op))?.1;
        let (offset, size, extra) = numbers(record, self.shapes.get(usize::from(record.op))?);
        let (extra, size) = split_owners(op, extra, size);
        Some(Call {
            tid: record.thread,
            pid: record.tgid,
            begin_ns: record.begin_ns,
            end_ns: Some(record.end_ns),
            cpus: record.cpus,
            op,
            is_32bit: has(CALL_IS_COMPAT),
            value: record.value,
            offset,
            size,
            files: record.files,
            fd: has(CALL_HAS_FD).then_some(record.fd),
            extra,
            arguments,
            class: ReadClass::ALL.get(usize::from(record.read_class)).copied(),
            is_direct: has(CALL_IS_DIRECT),
            rows,
            // Empty until give_paths(): they may be in another ring.
            paths: has(CALL_HAS_PATH).then(Box::default),
            number: if has(CALL_HAS_PATH) { record.number } else { 0 },
        })
    }

    /// A call under way, as far as it is known. `None` if its op is unknown.
    fn open_call(&self, recorder: &recorder) -> Option<Call> {
        let begun = &recorder.call;
        let call = self.as_recorded(begun, [0; _], None)?;
        let given = self.paths.get(&(begun.thread, begun.number));
        let arguments = || Box::new(std::array::from_fn(|n| recorder.arguments[n + 1].cast_signed()));
        Some(Call {
            end_ns: None,
            cpus: [begun.cpus[0]; 2],
            class: None,
            arguments: is_recorded_only(call.op).then(arguments),
            paths: given.map(|given| Box::new(given.paths.clone())),
            number: 0,
            ..call
        })
    }

    fn asynchronous(&self, record: &async_record) -> Option<AsyncCall> {
        let has = |flag: u32| u32::from(record.has) & flag != 0;
        Some(AsyncCall {
            pid: record.tgid,
            tid: record.thread,
            op: self.ops.get(usize::from(record.op))?.1,
            begin_ns: record.begin_ns,
            attempt_end_ns: match record.attempt_end_ns {
                0 => record.end_ns,
                end_ns => end_ns,
            },
            end_ns: record.end_ns,
            key: record.key,
            file: record.file,
            offset: has(CALL_HAS_OFFSET).then_some(record.offset),
            size: has(CALL_HAS_SIZE).then_some(record.size),
            value: record.value,
            context: record.context,
            flags: record.flags,
            attempts: record.attempts,
            is_aio: record.is_aio != 0,
            is_direct: has(CALL_IS_DIRECT),
        })
    }

    fn fault(&self, record: &fault_record) -> Option<Fault> {
        Some(Fault {
            tid: record.thread,
            pid: record.tgid,
            begin_ns: record.begin_ns,
            end_ns: record.end_ns,
            layer: self.ops.get(usize::from(record.op))?.0,
            file: record.file,
            offset: record.offset,
            is_write: record.is_write != 0,
            errno: record.error.into(),
        })
    }

    fn request(&self, record: &request_record) -> Option<Request> {
        let (flags, asked) = (record.cmd_flags, record.cmd_flags | record.bio_flags);
        let is_readahead = flags & self.flags.readahead != 0;
        let known = |at_ns: u64| (at_ns != 0).then_some(at_ns);
        let numbers = |device: u32| <[u32; 2]>::from(names::numbers_of(device));
        let disk = numbers(record.disk);
        let (layer, op) = *self.ops.get(self.first_of_blk + usize::from(record.op))?;
        Some(Request {
            disk,
            partition: if record.partition == 0 {
                disk
            } else {
                numbers(record.partition)
            },
            sector: sector_of(record.sector),
            bytes: record.bytes.into(),
            op: (layer == Layer::Blk).then_some(op)?,
            flags: record.cmd_flags,
            is_sync: flags & self.flags.sync != 0,
            is_meta: flags & self.flags.meta != 0,
            is_readahead,
            is_fua: asked & self.flags.fua != 0,
            is_preflush: asked & self.flags.preflush != 0,
            errno: record.error.into(),
            submitted_ns: known(record.submitted_ns),
            started_ns: known(record.started_ns),
            issued_ns: known(record.issued_ns),
            ended_ns: record.ended_ns,
            tid: record.thread,
            pid: record.tgid,
            origin: match *Origin::ALL.get(usize::from(record.origin))? {
                Origin::Own if is_readahead => Origin::Readahead,
                origin => origin,
            },
            inode: (record.inode != 0).then(|| inode(record.inode, record.inode_device)),
            cpu: record.cpu,
        })
    }

    fn thread(record: &thread_record) -> Thread {
        Thread {
            tid: record.thread,
            pid: record.tgid,
            at_ns: record.at_ns,
            parent: record.parent,
            started_ns: record.started_ns,
            comm: comm(&record.comm),
            uid: record.uid,
            cgroup: record.cgroup,
            exe: String::new(),
            command: String::new(),
            has_ended: record.has_ended != 0,
        }
    }

    /// Keeps a path until its call ends.
    fn path(&mut self, frame: &[u8]) -> Option<()> {
        let record: path_record = prefix(frame)?;
        let bytes = frame.get(size_of::<path_record>()..)?;
        let bytes = &bytes[..bytes.len().min(record.length.into())];
        let given = GivenPath {
            text: text(bytes.strip_suffix(&[0]).unwrap_or(bytes)),
            base: record.base,
        };
        if self.paths.len() >= MOST_THREADS {
            self.paths.clear();
        }
        let of_call = self.paths.entry((record.thread, record.number)).or_default();
        of_call.drain = self.drains;
        of_call.after = self.arrived;
        self.arrived += 1;
        match record.which {
            0 => of_call.paths.first = Some(given),
            _ => of_call.paths.second = Some(given),
        }
        Some(())
    }

    /// Gives calls that have ended the paths that were read when they began. Removes and returns those whose paths have not
    /// arrived, once for each: a ring is read up to a record that is being written. `is_last`: none are returned.
    fn give_paths(&mut self, records: &mut Records, is_last: bool) -> Vec<Call> {
        self.drains += 1;
        let mut waiting = false;
        for call in records.calls.iter_mut().filter(|call| call.paths.is_some()) {
            let key = (call.tid, call.number);
            let given = self.paths.remove(&key).map(|given| given.paths);
            if given.is_none() && !is_last && !self.waited.contains(&key) {
                self.waited.insert(key);
                waiting = true;
            } else {
                self.waited.remove(&key);
                call.paths = given.map(Box::new);
                call.number = 0;
            }
        }
        self.forget_paths();
        if !waiting {
            return Vec::new();
        }
        let waits = |call: &Call| self.waited.contains(&(call.tid, call.number)) && call.paths.is_some();
        let (waiting, complete) = std::mem::take(&mut records.calls).into_iter().partition(waits);
        records.calls = complete;
        waiting
    }

    /// Forgets paths of calls that were lost or are not selected: all but the last ones of each thread, which may be
    /// those of a call under way.
    fn forget_paths(&mut self) {
        if self.paths.len() < MANY_PATHS {
            return;
        }
        let mut last: BTreeMap<u32, u64> = BTreeMap::new();
        for ((tid, _), given) in &self.paths {
            let of_thread = last.entry(*tid).or_default();
            *of_thread = given.after.max(*of_thread);
        }
        self.paths
            .retain(|(tid, _), given| given.drain + 2 >= self.drains || last.get(tid) == Some(&given.after));
    }
}

/// Whether only runs that record measure this call.
fn is_recorded_only(op: Op) -> bool {
    RECORDED.iter().any(|call| call.op == op)
}

/// The structure that bytes begin with; `None` if there are too few.
fn prefix<T: Plain + Default>(bytes: &[u8]) -> Option<T> {
    let mut record = T::default();
    plain::copy_from_bytes(&mut record, bytes.get(..size_of::<T>())?).ok()?;
    Some(record)
}

fn inode(number: u64, device: u32) -> Inode {
    let (major, minor) = names::numbers_of(device);
    Inode { number, major, minor }
}

fn sleep(record: &sleep_record) -> Sleep {
    Sleep {
        tid: record.thread,
        out_ns: record.out_ns,
        woken_ns: (record.woken_ns != 0).then_some(record.woken_ns),
        in_ns: record.in_ns,
        row: record.row,
        waker_tid: record.waker,
        waker_pid: record.waker_tgid,
        cpus: record.cpus,
    }
}

fn file(frame: &[u8]) -> Option<OpenFile> {
    let record: file_record = prefix(frame)?;
    let bytes = frame.get(size_of::<file_record>()..)?;
    let pieces = names::pieces(bytes, record.names_length);
    let path = match u32::from(record.path) {
        PATH_ALONE => alone(record.mode, record.inode, pieces.last().map_or("", String::as_str)).map(|text| CallPath {
            kind: PathKind::Alone,
            text,
        }),
        kind => names::path(kind, &pieces),
    };
    Some(OpenFile {
        number: record.number,
        at_ns: record.at_ns,
        inode: Some(inode(record.inode, record.device)),
        generation: record.generation,
        mode: record.mode.into(),
        links: record.links,
        size: record.size,
        blocks: record.blocks,
        flags: record.flags,
        position: record.position,
        mount: record.mount,
        file_system: text(record.file_system.split(|byte| *byte == 0).next().unwrap_or_default()),
        path,
        found_at: None,
    })
}

/// The outer `None`: there are too few bytes; the inner one: its path is not whole, so that it would say nothing.
#[allow(clippy::option_option)]
fn folder(frame: &[u8]) -> Option<Option<Folder>> {
    let record: folder_record = prefix(frame)?;
    let pieces = names::pieces(frame.get(size_of::<folder_record>()..)?, record.names_length);
    let path = names::path(record.path.into(), &pieces).filter(|path| path.kind == PathKind::Whole);
    Some(path.map(|path| Folder {
        pid: record.tgid,
        at_ns: record.at_ns,
        is_root: record.is_root != 0,
        path: path.text,
    }))
}

/// The offset and the size of a call, if it has them, and the argument that is particular to its op.
fn numbers(record: &call_record, shape: &call_shape) -> (Option<u64>, Option<u64>, u64) {
    let has = |flag: u32| u32::from(record.has | shape.has) & flag != 0;
    let [first, second, third] = record.numbers;
    let (offset, size, extra, position) = if u32::from(shape.effect) & CALL_NEEDS_ALL != 0 {
        (first, second, third, first)
    } else {
        let argument = |number: u8| match number {
            3 => first,
            4 => second,
            _ => 0,
        };
        let [offset, size, extra] = [shape.offset, shape.recorded_size, shape.extra].map(argument);
        (offset, size, extra, third)
    };
    // 32-bit programs pass an offset in two arguments, which moves those after it.
    let is_split = has(CALL_IS_COMPAT) && shape.offset != 0 && u32::from(shape.offset) != CALL_POSITION;
    let has_offset = has(CALL_HAS_OFFSET) && !is_split && offset != u64::MAX;
    let has_size = has(CALL_HAS_SIZE) && !(is_split && shape.recorded_size > shape.offset);
    let offset = if has(CALL_HAS_POSITION) {
        Some(position)
    } else {
        has_offset.then_some(offset)
    };
    (offset, has_size.then_some(size), extra)
}

/// What a call has as its argument and as its size, of which calls that change owners have none: their records have the
/// group there.
fn split_owners(op: Op, extra: u64, size: Option<u64>) -> (u64, Option<u64>) {
    match (op, size) {
        (Op::Chown | Op::Lchown | Op::Fchown | Op::Fchownat, Some(group)) => (owners(extra as u32, group as u32), None),
        _ => (extra, size),
    }
}

/// The sector of a request. One without, such as a flush, has the highest number (`blk_rq_init()`, block/blk-mq.c), and 0
/// here, as in the kernel's own traces (`blk_rq_trace_sector()`, include/linux/blktrace_api.h).
fn sector_of(sector: u64) -> u64 {
    if sector == u64::MAX { 0 } else { sector }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fuzz;
    use crate::kernel::interface::types::{file_record_few, path_record_few};
    use crate::kernel::interface::{ORIGIN_OWN, PATH_WHOLE};

    /// A run with a system call, a function of vfs, and reads of the block layer.
    fn decoder() -> Decoder {
        let ops = vec![
            (Layer::Syscall, Op::Pread64),
            (Layer::Vfs, Op::Read),
            (Layer::Blk, Op::Read),
        ];
        Decoder {
            shapes: ops.iter().map(|(layer, op)| recorded_shape(*layer, *op)).collect(),
            ops,
            first_of_blk: 2,
            flags: RequestFlags {
                sync: 1 << 11,
                fua: 1 << 17,
                readahead: 1 << 19,
                ..RequestFlags::default()
            },
            ..Decoder::default()
        }
    }

    /// Numbers as the programs write them, of a call with these `has`.
    fn numbers_of(op: Op, numbers: [u64; 3], more: u32) -> (Option<u64>, Option<u64>, u64) {
        let shape = recorded_shape(Layer::Syscall, op);
        let record = call_record {
            numbers,
            has: more as u8,
            ..call_record::default()
        };
        super::numbers(&record, &shape)
    }

    #[test]
    fn the_numbers_of_a_call_are_what_its_op_says() {
        // The third argument and the fourth, and the position.
        assert_eq!(numbers_of(Op::Pread64, [10, 20, 30], 0), (Some(20), Some(10), 0));
        assert_eq!(numbers_of(Op::Pread64, [10, u64::MAX, 30], 0), (None, Some(10), 0));
        assert_eq!(numbers_of(Op::Read, [10, 20, 30], 0), (None, Some(10), 0));
        assert_eq!(
            numbers_of(Op::Read, [10, 20, 30], CALL_HAS_POSITION),
            (Some(30), Some(10), 0)
        );
        // A number of buffers, and no size.
        assert_eq!(numbers_of(Op::Preadv, [10, 20, 30], 0), (Some(20), None, 10));
        // Offset, size and extra, as the programs have resolved them.
        assert_eq!(numbers_of(Op::Fallocate, [10, 20, 30], 0), (Some(10), Some(20), 30));
        assert_eq!(numbers_of(Op::Preadv2, [u64::MAX, 0, 30], 0), (None, None, 30));
        assert_eq!(
            numbers_of(Op::Preadv2, [10, 0, 30], CALL_HAS_POSITION),
            (Some(10), None, 30)
        );
        // Two arguments for the offset, after or before the size.
        assert_eq!(
            numbers_of(Op::Pread64, [10, 20, 30], CALL_IS_COMPAT),
            (None, Some(10), 0)
        );
        assert_eq!(
            numbers_of(Op::Fallocate, [10, 20, 30], CALL_IS_COMPAT),
            (None, None, 30)
        );
        assert_eq!(numbers_of(Op::Read, [10, 20, 30], CALL_IS_COMPAT), (None, Some(10), 0));
    }

    #[test]
    fn owners_are_no_size() {
        assert_eq!(
            split_owners(Op::Lchown, 7, Some(u64::MAX)),
            (0xffff_ffff_0000_0007, None)
        );
        assert_eq!(split_owners(Op::Fallocate, 7, Some(9)), (7, Some(9)));
        assert_eq!(crate::model::record::users(owners(7, 9)), (7, 9));
    }

    fn bytes<T>(record: &T) -> Vec<u8> {
        // SAFETY: structures without padding.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(record).cast(), size_of::<T>()) }.to_vec()
    }

    fn decoded(decoder: &mut Decoder, all: &[Vec<u8>]) -> Records {
        let (mut frames, mut records) = (Frames::default(), Records::default());
        all.iter().for_each(|record| frames.push(record));
        decoder.add(&frames, &mut records);
        records
    }

    fn call() -> call_record {
        call_record {
            kind: RECORD_CALL as u8,
            thread: 12,
            tgid: 11,
            begin_ns: 1000,
            end_ns: 1900,
            value: -5,
            numbers: [8, 7, 0],
            fd: -1,
            has: CALL_IS_DIRECT as u8,
            read_class: 4,
            ..call_record::default()
        }
    }

    #[test]
    fn the_rows_of_a_call_add_up_in_each_form() {
        let mut few = call_record_few {
            call: call(),
            rows: [200, 300],
        };
        few.call.rows = CALL_ROWS_FEW as u8;
        few.call.row = 3;
        let mut all = call_record_all {
            call: call(),
            ..call_record_all::default()
        };
        all.call.rows = CALL_ROWS_ALL as u8;
        (all.rows[0], all.rows[15]) = (1, u32::MAX);
        let mut wide = call_record_wide {
            call: call(),
            ..call_record_wide::default()
        };
        wide.call.rows = CALL_ROWS_WIDE as u8;
        wide.rows[10] = u64::MAX;
        let records = decoded(
            &mut decoder(),
            &[bytes(&few), bytes(&all), bytes(&wide), bytes(&call())],
        );
        let rows: Vec<_> = records.calls.iter().map(|call| call.rows).collect();
        assert_eq!(rows[0][..5], [400, 200, 0, 300, 0]);
        assert_eq!((rows[1][0], rows[1][15]), (1, u64::from(u32::MAX)));
        assert_eq!((rows[2][10], rows[3]), (u64::MAX, [0; 16]));
        let call = &records.calls[3];
        assert_eq!((call.offset, call.size, call.fd), (Some(7), Some(8), None));
        assert_eq!((call.class, call.is_direct), (Some(ReadClass::Direct), true));
        assert_eq!((call.tid, call.pid, call.op), (12, 11, Op::Pread64));
    }

    fn path(number: u16, which: u8, name: &[u8]) -> Vec<u8> {
        let mut record = path_record_few::default();
        record.path.kind = RECORD_PATH as u8;
        (record.path.thread, record.path.number) = (12, number);
        (record.path.which, record.path.length) = (which, name.len() as u16);
        record.text[..name.len()].copy_from_slice(name);
        bytes(&record)
    }

    #[test]
    fn a_path_belongs_to_the_call_in_which_it_was_read() {
        let mut decoder = decoder();
        let mut with = call();
        (with.has, with.number) = (CALL_HAS_PATH as u8, 10);
        let all = [
            path(9, 0, b"of a call without a record\0"),
            path(10, 0, b"a\0"),
            path(10, 1, b"b\0"),
        ];
        let mut records = decoded(&mut decoder, &[&all[..], &[bytes(&with)]].concat());
        assert!(decoder.give_paths(&mut records, false).is_empty());
        let paths = records.calls[0].paths.clone().unwrap();
        let texts = [paths.first, paths.second].map(|path| path.unwrap().text);
        assert_eq!(texts, ["a", "b"]);
        // The thread changes its CPU and back: the ring of one CPU has the paths of later calls, too.
        let mut next = with;
        (with.number, next.number) = (11, 12);
        let all = [path(11, 0, b"c\0"), path(12, 0, b"d\0"), bytes(&with), bytes(&next)];
        let mut records = decoded(&mut decoder, &all);
        assert!(decoder.give_paths(&mut records, false).is_empty());
        assert_eq!(texts_of(&records), [Some("c"), Some("d")]);
        // It arrives in the next drain, and in none.
        for (arrives, text) in [(true, Some("e")), (false, None)] {
            with.number += 10;
            let mut records = decoded(&mut decoder, &[bytes(&with)]);
            let held = decoder.give_paths(&mut records, false);
            assert_eq!((records.calls.len(), held.len()), (0, 1));
            let after = [path(with.number, 0, b"e\0")];
            let mut records = decoded(&mut decoder, if arrives { &after } else { &[] });
            records.calls.extend(held);
            assert!(decoder.give_paths(&mut records, false).is_empty());
            assert_eq!(texts_of(&records), [text]);
        }
        assert!(decoder.waited.is_empty());
        assert_eq!(decoder.paths.len(), 1, "that of the call without a record");
    }

    fn texts_of(records: &Records) -> Vec<Option<&str>> {
        fn text(call: &Call) -> Option<&str> {
            Some(&call.paths.as_ref()?.first.as_ref()?.text)
        }
        records.calls.iter().map(text).collect()
    }

    #[test]
    fn paths_of_lost_calls_are_forgotten() {
        let mut decoder = decoder();
        // The numbers begin again.
        let mut numbers = (0..MANY_PATHS as u16).map(|number| number.wrapping_add(u16::MAX - 5));
        let all: Vec<_> = numbers.clone().map(|number| path(number, 0, b"a\0")).collect();
        let mut records = decoded(&mut decoder, &all);
        for _ in 0..3 {
            assert_eq!(decoder.paths.len(), MANY_PATHS);
            decoder.give_paths(&mut records, false);
        }
        let left: Vec<_> = decoder.paths.keys().collect();
        assert_eq!(left, [&(12, numbers.next_back().unwrap())], "it may be under way");
    }

    #[test]
    fn files_threads_and_requests_are_decoded() {
        let mut file = file_record_few::default();
        (file.file.kind, file.file.path) = (RECORD_FILE as u8, PATH_WHOLE as u8);
        (file.file.number, file.file.inode, file.file.device) = (3, 99, 8 << 20 | 1);
        file.file.file_system[..4].copy_from_slice(b"ext4");
        file.file.names_length = 9;
        file.names[..9].copy_from_slice(b"file\0dir\0");
        let thread = thread_record {
            kind: RECORD_THREAD as u8,
            thread: 12,
            tgid: 11,
            comm: [u64::from_ne_bytes(*b"postgres"), 0],
            ..thread_record::default()
        };
        let request = request_record {
            kind: RECORD_REQUEST as u8,
            thread: 12,
            tgid: 11,
            origin: ORIGIN_OWN as u8,
            issued_ns: 5,
            cmd_flags: 1 << 11,
            bio_flags: 1 << 11 | 1 << 17,
            disk: 8 << 20,
            sector: u64::MAX,
            ..request_record::default()
        };
        let ahead = request_record {
            cmd_flags: 1 << 19,
            ..request
        };
        let frames = [bytes(&request), bytes(&file), bytes(&thread), bytes(&ahead)];
        let records = decoded(&mut decoder(), &frames);
        let file = &records.files[0];
        assert_eq!(file.path.as_ref().unwrap().text, "/dir/file");
        assert_eq!((&*file.file_system, file.number), ("ext4", 3));
        assert_eq!(file.inode.unwrap(), inode(99, 8 << 20 | 1));
        assert_eq!(records.threads[0].comm, "postgres");
        let request = &records.requests[0];
        assert_eq!((request.disk, request.partition, request.pid), ([8, 0], [8, 0], 11));
        assert_eq!((request.submitted_ns, request.issued_ns), (None, Some(5)));
        assert_eq!(request.sector, 0);
        let flags = [request.is_sync, request.is_fua, request.is_meta, request.is_preflush];
        assert_eq!(flags, [true, true, false, false]);
        let origins = [0, 1].map(|at: usize| records.requests[at].origin);
        assert_eq!(origins, [Origin::Own, Origin::Readahead]);
    }

    #[test]
    fn submitters_without_calls_are_defined_once_as_long_as_they_exist() {
        let mut reader = RecordReader::new(&RunInfo::default());
        let own = std::process::id();
        // No process has the highest number (PID_MAX_LIMIT of include/linux/threads.h).
        let gone = 1 << 22;
        let of = |pid| Request {
            pid,
            tid: pid,
            ended_ns: 7,
            ..Request::default()
        };
        let mut define = |pids: &[u32]| {
            let mut records = Records {
                requests: pids.iter().map(|&pid| of(pid)).collect(),
                ..Records::default()
            };
            reader.define_submitters(&mut records, 1);
            records.threads
        };
        let threads = define(&[0, own, gone, own]);
        let name = fs::read_to_string("/proc/self/comm").unwrap();
        // SAFETY: takes nothing.
        let uid = unsafe { libc::getuid() };
        let [thread] = &threads[..] else { panic!("{threads:?}") };
        assert_eq!((thread.tid, thread.pid, thread.at_ns, thread.uid), (own, own, 7, uid));
        assert_eq!(thread.comm, name.trim_end());
        assert_eq!(define(&[own, gone]), []);
    }

    #[test]
    fn a_submitter_without_calls_has_the_name_of_its_program() {
        let mut reader = RecordReader::new(&RunInfo::default());
        let own = std::process::id();
        // SAFETY: takes nothing.
        let tid = unsafe { libc::gettid() }.cast_unsigned();
        let mut names = Vec::new();
        // As if it executed another program, or its number were that of another thread.
        for (name, ended_ns) in [("first", 7), ("first", 8), ("second", 9)] {
            fs::write(format!("/proc/self/task/{tid}/comm"), name).unwrap();
            let mut records = Records {
                requests: vec![Request {
                    pid: own,
                    tid,
                    ended_ns,
                    ..Request::default()
                }],
                ..Records::default()
            };
            reader.define_submitters(&mut records, ended_ns * 1_000_000_000);
            let of_thread = records.threads.into_iter().filter(|thread| thread.tid == tid);
            names.extend(of_thread.map(|thread| (thread.comm, thread.at_ns)));
        }
        assert_eq!(names, [("first".to_owned(), 7), ("second".to_owned(), 9)]);
    }

    #[test]
    fn a_submitter_is_looked_up_less_often_as_it_lives() {
        const SECOND: u64 = 1_000_000_000;
        let mut submitter = Submitter {
            name: None,
            looked_up_ns: (5, 5),
        };
        // One drain has many of its requests.
        assert!(!submitter.is_due(5) && submitter.is_due(6));
        submitter.looked_up_ns = (5, 105);
        assert!(!submitter.is_due(204) && submitter.is_due(205));
        submitter.looked_up_ns = (5, 60 * SECOND);
        assert!(!submitter.is_due(61 * SECOND - 1) && submitter.is_due(61 * SECOND));
    }

    #[test]
    fn an_asynchronous_request_ends_after_its_attempt_or_with_it() {
        let mut record = async_record {
            kind: RECORD_ASYNC as u8,
            op: 1,
            has: (CALL_HAS_OFFSET | CALL_IS_DIRECT) as u8,
            is_aio: 1,
            begin_ns: 10,
            attempt_end_ns: 20,
            end_ns: 30,
            offset: 4096,
            attempts: 2,
            ..async_record::default()
        };
        let after = bytes(&record);
        record.attempt_end_ns = 0;
        let requests = decoded(&mut decoder(), &[after, bytes(&record)]).asynchronous;
        let ends: Vec<u64> = requests.iter().map(|request| request.attempt_end_ns).collect();
        assert_eq!(ends, [20, 30]);
        let first = &requests[0];
        assert_eq!((first.op, first.offset, first.size), (Op::Read, Some(4096), None));
        assert_eq!((first.is_aio, first.is_direct, first.attempts), (true, true, 2));
    }

    #[test]
    fn a_loss_begins_with_its_first_record() {
        assert_eq!(began_ns(Some(70), 70, 90, 50), 70);
        assert_eq!(began_ns(Some(70), 95, 90, 50), 70, "replaced since it was read");
        assert_eq!(
            began_ns(None, 95, 90, 50),
            90,
            "one before it was replaced between both readings"
        );
        assert_eq!(began_ns(Some(0), 95, 90, 50), 50);
    }

    #[test]
    fn what_cannot_be_decoded_is_lost() {
        let mut unknown_op = call();
        unknown_op.op = 77;
        let records = decoded(&mut decoder(), &[bytes(&unknown_op), vec![RECORD_SLEEP as u8], vec![]]);
        let kinds: Vec<_> = records.lost.iter().map(|lost| (lost.kind, lost.records)).collect();
        assert_eq!(kinds, [(Kind::Call, 1), (Kind::Sleep, 1)]);
        assert!(records.calls.is_empty());
    }

    #[test]
    fn the_kinds_have_the_numbers_of_the_programs() {
        let numbers = [
            (Kind::Call, RECORD_CALL),
            (Kind::Request, RECORD_REQUEST),
            (Kind::Sleep, RECORD_SLEEP),
            (Kind::Async, RECORD_ASYNC),
            (Kind::Fault, RECORD_FAULT),
            (Kind::File, RECORD_FILE),
            (Kind::Folder, RECORD_FOLDER),
            (Kind::Thread, RECORD_THREAD),
            (Kind::Path, RECORD_PATH),
        ];
        assert!(
            numbers
                .iter()
                .all(|(kind, number)| Kind::ALL.get(*number as usize) == Some(kind))
        );
    }

    proptest! {
        #![proptest_config(fuzz::config())]

        #[test]
        fn any_bytes_are_decoded(all in proptest::collection::vec(
            (0_u8..12, proptest::collection::vec(any::<u8>(), 0..300)), 0..20))
        {
            let all: Vec<Vec<u8>> = all.into_iter().map(|(kind, rest)| [&[kind][..], &rest].concat()).collect();
            let mut decoder = decoder();
            let mut records = decoded(&mut decoder, &all);
            decoder.give_paths(&mut records, true);
        }
    }
}
