//! Segments of a recording while they are made: the tables of each, and the definitions that it repeats.

use std::collections::{BTreeMap, HashMap};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Arc;

use arrow_ipc::writer::{FileWriter, IpcWriteOptions};
use arrow_ipc::{CompressionType, MetadataVersion};
use arrow_schema::{ArrowError, Schema};

use crate::model::ids::Layer;
use crate::model::record::{
    AsyncCall, Call, Fault, FileNumber, Folder, Kind, Lost, Mark, OpenFile, Records, Request, Sleep, Thread,
};
use crate::model::recording::{Meta, Names, Segment, SegmentFile};
use crate::model::report::slow::Inode;
use crate::model::snapshot::{Snapshot, StackTotals};

use super::column::{Dictionaries, batch};
use super::names::Namer;
use super::table::{Context, Second, Table, Wait};

/// Of buffers in files, in bytes: the least that the format allows, since they are compressed.
const ALIGNMENT: usize = 8;
/// A batch is written when it has this many rows, or when its first row is [`BATCH_AGE`] old.
const BATCH_ROWS: usize = 8192;
const BATCH_AGE: u64 = 1_000_000_000;
/// Definitions kept for later segments; beyond that, those that were not used for longest are in earlier ones only.
const MOST_DEFINITIONS: usize = 1 << 18;

/// Encodes the records and counters of a run into segments, one after another. Times are those of the programs' clock.
pub struct Encoder {
    context: Context,
    namer: Namer,
    /// The last snapshot: the start of the next segment.
    last: Option<Snapshot<StackTotals>>,
    layers: Vec<Layer>,
    definitions: Definitions,
    pub segment: OpenSegment,
}

impl Encoder {
    /// Without a segment. Names are written as `names` says, also in `meta`.
    pub fn new(meta: &mut Meta, names: Names) -> Self {
        let namer = Namer::new(names);
        namer.meta(meta);
        Self {
            context: Context::of(meta),
            namer,
            last: None,
            layers: meta.run.ops.iter().map(|op| op.layer).collect(),
            definitions: Definitions::default(),
            segment: OpenSegment::default(),
        }
    }

    /// The last definition of an open file.
    pub fn file(&self, number: FileNumber) -> Option<&OpenFile> {
        self.definitions.files.get(&number).map(|known| &known.row)
    }

    /// The last definition of a thread.
    pub fn thread(&self, tid: u32) -> Option<&Thread> {
        self.definitions.threads.get(&tid).map(|known| &known.row)
    }

    /// When the last counters were read.
    pub fn last_ns(&self) -> Option<u64> {
        Some(self.last.as_ref()?.at_ns)
    }

    /// Begins the next segment. `folder`: an empty directory for its files; `None`: they are in memory.
    pub fn begin(&mut self, folder: Option<PathBuf>, now_ns: u64) -> io::Result<()> {
        let number = self.segment.number + 1;
        self.segment = OpenSegment::new(number, folder, now_ns)?;
        limit(&mut self.definitions.files, number);
        limit(&mut self.definitions.threads, number);
        limit(&mut self.definitions.folders, number);
        match &self.last {
            Some(last) => {
                let row = Second {
                    at_ns: last.at_ns,
                    counters: text_of(last),
                    ..Second::default()
                };
                self.push_second(row, now_ns)
            }
            None => Ok(()),
        }
    }

    /// Adds records that arrived by `now_ns`.
    pub fn records(&mut self, mut records: Records, now_ns: u64) -> io::Result<()> {
        self.namer.records(&mut records);
        self.segment.counts.add(&records);
        self.definitions.learn(&records, self.segment.number);
        let Records {
            calls,
            requests,
            sleeps,
            asynchronous,
            faults,
            files,
            folders,
            threads,
            lost,
            marks,
        } = records;
        self.segment.define(files, folders, threads, now_ns);
        let used = Used::of(&calls, &requests, &sleeps, &asynchronous, &faults);
        self.definitions.repeat(&used, &mut self.segment, now_ns);
        let tables = &mut self.segment.tables;
        // All of them before one cannot be written: what is in no file is counted by what is in the tables.
        tables.requests.keep(requests, now_ns);
        tables.sleeps.keep(sleeps, now_ns);
        tables.asynchronous.keep(asynchronous, now_ns);
        tables.faults.keep(faults, now_ns);
        tables.lost.keep(lost, now_ns);
        tables.marks.keep(marks, now_ns);
        let mut written = Ok(());
        for call in calls {
            let is_full = self.segment.keep_call(call, now_ns);
            if is_full && written.is_ok() {
                written = self.segment.tables.flush_calls(&self.context);
            }
        }
        written?;
        self.segment.tables.flush_full(&self.context)?;
        self.flush_due(now_ns)
    }

    /// Adds the counters at the end of a second, or of the start. They are encoded on return.
    pub fn second(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        let mut snapshot = snapshot.clone();
        self.namer.snapshot(&mut snapshot);
        let snapshot = snapshot.added_to(self.last.as_mut().map(Snapshot::take_totals).unwrap_or_default());
        let span_ns = self
            .last
            .as_ref()
            .map_or(0, |last| snapshot.at_ns.saturating_sub(last.at_ns));
        let [calls, requests] = self.counted(&snapshot);
        let row = Second {
            at_ns: snapshot.at_ns,
            span_ns,
            calls,
            requests,
            counters: text_of(&snapshot),
        };
        let now_ns = snapshot.at_ns;
        self.last = Some(snapshot);
        self.push_second(row, now_ns)?;
        self.flush_due(now_ns)
    }

    fn push_second(&mut self, row: Second, now_ns: u64) -> io::Result<()> {
        let seconds = &mut self.segment.tables.seconds;
        seconds.keep([row], now_ns);
        seconds.flush(&self.context)
    }

    /// Calls and requests of a snapshot since the last one.
    fn counted(&self, snapshot: &Snapshot<StackTotals>) -> [u64; 2] {
        let sum = |snapshot: &Snapshot<StackTotals>, is_in: fn(Layer) -> bool| {
            let ops = snapshot
                .ops
                .iter()
                .zip(&self.layers)
                .filter(|(_, layer)| is_in(**layer));
            let steps = ops.flat_map(|(op, _)| &op.steps).copied();
            steps.fold(0_u128, u128::saturating_add)
        };
        let kinds: [fn(Layer) -> bool; 2] = [|layer| layer == Layer::Syscall, |layer| layer == Layer::Blk];
        kinds.map(|is_in| {
            let before = self.last.as_ref().map_or(0, |last| sum(last, is_in));
            u64::try_from(sum(snapshot, is_in).saturating_sub(before)).unwrap_or(u64::MAX)
        })
    }
    /// Encodes the batches that are old enough.
    pub fn flush_due(&mut self, now_ns: u64) -> io::Result<()> {
        let than_ns = now_ns.saturating_sub(BATCH_AGE);
        self.segment.tables.flush_older(than_ns, &self.context)
    }

    /// Encodes all batches.
    pub fn flush_all(&mut self) -> io::Result<()> {
        self.segment.tables.flush_all(&self.context)
    }

    /// Completes the segment.
    pub fn end(&mut self, now_ns: u64) -> io::Result<Segment> {
        self.segment.end(&self.context, now_ns)
    }
}

/// Rows by table, without definitions that are repeated, and lost records by kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    pub rows: BTreeMap<String, u64>,
    pub lost: BTreeMap<Kind, u64>,
}

impl Counts {
    pub fn rows(&self, table: &str) -> u64 {
        self.rows.get(table).copied().unwrap_or(0)
    }

    fn add(&mut self, records: &Records) {
        for (name, rows) in [
            (Call::NAME, records.calls.len()),
            (Request::NAME, records.requests.len()),
            (Sleep::NAME, records.sleeps.len()),
            (AsyncCall::NAME, records.asynchronous.len()),
            (Fault::NAME, records.faults.len()),
            (OpenFile::NAME, records.files.len()),
            (Folder::NAME, records.folders.len()),
            (Thread::NAME, records.threads.len()),
            (Mark::NAME, records.marks.len()),
        ] {
            if rows > 0 {
                *self.rows.entry(name.to_owned()).or_default() += rows as u64;
            }
        }
        for lost in &records.lost {
            *self.lost.entry(lost.kind).or_default() += lost.records;
        }
    }
    /// Appends those of a segment.
    pub fn append(&mut self, other: &Self) {
        for (table, rows) in &other.rows {
            *self.rows.entry(table.clone()).or_default() += rows;
        }
        for (kind, records) in &other.lost {
            *self.lost.entry(*kind).or_default() += records;
        }
    }
}

/// What later segments define again, if they use it.
#[derive(Default)]
struct Definitions {
    files: HashMap<FileNumber, Known<OpenFile>>,
    threads: HashMap<u32, Known<Thread>>,
    /// By process, and whether it is the root.
    folders: HashMap<(u32, bool), Known<Folder>>,
}

struct Known<R> {
    row: R,
    /// The segment that has it.
    segment: u32,
}

impl<R: Clone> Known<R> {
    /// The definition, if the segment does not have it yet.
    fn needed(&mut self, segment: u32) -> Option<R> {
        let is_new = self.segment != segment;
        self.segment = segment;
        is_new.then(|| self.row.clone())
    }
}

/// Removes those that were not used for longest.
fn limit<K: Copy + Eq + std::hash::Hash, R>(all: &mut HashMap<K, Known<R>>, segment: u32) {
    let mut age = 8;
    while all.len() > MOST_DEFINITIONS && age > 0 {
        age /= 2;
        all.retain(|_, known| known.segment.saturating_add(age) > segment);
    }
}

/// Keeps the newest definition. They come by CPU, and a process that moves to another one may come with its older definition
/// last.
fn learn_one<K: Eq + std::hash::Hash, R: Clone>(
    all: &mut HashMap<K, Known<R>>,
    key: K,
    row: &R,
    at_ns: fn(&R) -> u64,
    segment: u32,
) {
    if all.get(&key).is_none_or(|known| at_ns(&known.row) <= at_ns(row)) {
        let row = row.clone();
        all.insert(key, Known { row, segment });
    }
}

/// The numbers that records use.
struct Used {
    files: Vec<FileNumber>,
    threads: Vec<u32>,
    processes: Vec<u32>,
}

impl Used {
    fn of(calls: &[Call], requests: &[Request], sleeps: &[Sleep], others: &[AsyncCall], faults: &[Fault]) -> Self {
        let of_calls = calls.iter().flat_map(|call| call.files);
        // A relative path begins at an open file.
        let bases = calls.iter().filter_map(|call| call.paths.as_deref());
        let bases = bases
            .flat_map(|paths| [&paths.first, &paths.second])
            .flatten()
            .map(|path| path.base);
        let files = of_calls
            .chain(bases)
            .chain(others.iter().map(|call| call.file))
            .chain(faults.iter().map(|fault| fault.file));
        let threads = calls
            .iter()
            .map(|call| call.tid)
            .chain(requests.iter().map(|request| request.tid))
            .chain(sleeps.iter().flat_map(|sleep| [sleep.tid, sleep.waker_tid]))
            .chain(others.iter().map(|call| call.tid))
            .chain(faults.iter().map(|fault| fault.tid));
        let mut used = Self {
            files: files.filter(|file| *file > 0).collect(),
            threads: threads.filter(|tid| *tid > 0).collect(),
            processes: calls.iter().map(|call| call.pid).collect(),
        };
        for numbers in [&mut used.files, &mut used.threads, &mut used.processes] {
            numbers.sort_unstable();
            numbers.dedup();
        }
        used
    }
}

impl Definitions {
    fn learn(&mut self, records: &Records, segment: u32) {
        for file in &records.files {
            learn_one(&mut self.files, file.number, file, |file| file.at_ns, segment);
        }
        for thread in &records.threads {
            learn_one(&mut self.threads, thread.tid, thread, |thread| thread.at_ns, segment);
        }
        for folder in &records.folders {
            let of = (folder.pid, folder.is_root);
            learn_one(&mut self.folders, of, folder, |folder| folder.at_ns, segment);
        }
    }

    /// Defines again what is used in a segment that does not have it.
    fn repeat(&mut self, used: &Used, segment: &mut OpenSegment, now_ns: u64) {
        let number = segment.number;
        let files = used
            .files
            .iter()
            .filter_map(|file| self.files.get_mut(file)?.needed(number))
            .collect();
        let threads = used
            .threads
            .iter()
            .filter_map(|tid| self.threads.get_mut(tid)?.needed(number))
            .collect();
        let folders = used.processes.iter().flat_map(|pid| [(*pid, false), (*pid, true)]);
        let folders = folders
            .filter_map(|key| self.folders.get_mut(&key)?.needed(number))
            .collect();
        segment.define(files, folders, threads, now_ns);
    }
}

/// The segment that is being made.
#[derive(Default)]
pub struct OpenSegment {
    /// From 1.
    pub number: u32,
    pub from_ns: u64,
    pub counts: Counts,
    /// If it is in memory: the open files and the threads that it defines.
    pub defined: Defined,
    /// `None`: it is in memory.
    folder: Option<PathBuf>,
    /// Rows in the table of calls.
    calls: u64,
    pub tables: Tables,
}

/// Numbers that have a definition, perhaps several times.
#[derive(Clone, Default)]
pub struct Defined {
    pub files: Vec<FileNumber>,
    pub threads: Vec<u32>,
}

/// One of each.
#[derive(Default)]
pub struct Tables {
    files: OpenTable<OpenFile>,
    folders: OpenTable<Folder>,
    threads: OpenTable<Thread>,
    waits: OpenTable<Wait>,
    calls: OpenTable<Call>,
    requests: OpenTable<Request>,
    sleeps: OpenTable<Sleep>,
    asynchronous: OpenTable<AsyncCall>,
    faults: OpenTable<Fault>,
    lost: OpenTable<Lost>,
    marks: OpenTable<Mark>,
    seconds: OpenTable<Second>,
}

impl OpenSegment {
    fn new(number: u32, folder: Option<PathBuf>, from_ns: u64) -> io::Result<Self> {
        let mut segment = Self {
            number,
            folder,
            from_ns,
            ..Self::default()
        };
        let folder = &segment.folder;
        segment.tables.each(|table| {
            table.set_folder(folder.as_ref());
            Ok(())
        })?;
        Ok(segment)
    }

    fn define(&mut self, files: Vec<OpenFile>, folders: Vec<Folder>, threads: Vec<Thread>, now_ns: u64) {
        if self.folder.is_none() {
            self.defined.files.extend(files.iter().map(|file| file.number));
            self.defined.threads.extend(threads.iter().map(|thread| thread.tid));
        }
        // They are written with what uses them, or before.
        self.tables.files.keep(files, now_ns);
        self.tables.folders.keep(folders, now_ns);
        self.tables.threads.keep(threads, now_ns);
    }

    /// Returns whether there are enough calls for a batch.
    fn keep_call(&mut self, call: Call, now_ns: u64) -> bool {
        let Tables { waits, calls, .. } = &mut self.tables;
        waits.keep(Wait::of(&call, self.calls), now_ns);
        self.calls += 1;
        calls.keep([call], now_ns);
        calls.rows.len() >= BATCH_ROWS
    }

    /// Bytes of its files so far.
    pub fn bytes(&self) -> u64 {
        self.tables.all().iter().map(|table| table.bytes()).sum()
    }

    /// Completes its files.
    fn end(&mut self, context: &Context, now_ns: u64) -> io::Result<Segment> {
        self.tables.flush_all(context)?;
        let mut summary = Segment {
            number: self.number,
            from_ns: self.from_ns,
            to_ns: now_ns,
            ..Segment::default()
        };
        self.tables.each(|table| {
            if let Some(file) = table.finish()? {
                summary.files.insert(format!("{}.arrow", table.name()), file);
            }
            Ok(())
        })?;
        Ok(summary)
    }
}

impl Tables {
    /// What defines precedes what uses it, and waits precede their calls: a recording that is cut in between has no
    /// call without its waits.
    fn all_mut(&mut self) -> [&mut dyn AnyTable; 12] {
        [
            &mut self.files,
            &mut self.folders,
            &mut self.threads,
            &mut self.waits,
            &mut self.calls,
            &mut self.requests,
            &mut self.sleeps,
            &mut self.asynchronous,
            &mut self.faults,
            &mut self.lost,
            &mut self.marks,
            &mut self.seconds,
        ]
    }

    fn all(&self) -> [&dyn AnyTable; 12] {
        [
            &self.files,
            &self.folders,
            &self.threads,
            &self.waits,
            &self.calls,
            &self.requests,
            &self.sleeps,
            &self.asynchronous,
            &self.faults,
            &self.lost,
            &self.marks,
            &self.seconds,
        ]
    }

    fn each(&mut self, act: impl FnMut(&mut dyn AnyTable) -> io::Result<()>) -> io::Result<()> {
        self.all_mut().into_iter().try_for_each(act)
    }

    /// The calls, and what they need.
    fn flush_calls(&mut self, context: &Context) -> io::Result<()> {
        self.files.flush(context)?;
        self.threads.flush(context)?;
        self.waits.flush(context)?;
        self.calls.flush(context)
    }

    fn flush_all(&mut self, context: &Context) -> io::Result<()> {
        self.each(|table| table.flush(context))
    }

    /// Writes the batches that have enough rows, but not those of definitions, which precede what uses them.
    fn flush_full(&mut self, context: &Context) -> io::Result<()> {
        let mut others: [&mut dyn AnyTable; 6] = [
            &mut self.requests,
            &mut self.sleeps,
            &mut self.asynchronous,
            &mut self.faults,
            &mut self.lost,
            &mut self.marks,
        ];
        let full = others.iter_mut().filter(|table| table.waiting() >= BATCH_ROWS as u64);
        full.into_iter().try_for_each(|table| table.flush(context))
    }

    /// Writes all batches if one has a row from before this time.
    fn flush_older(&mut self, than_ns: u64, context: &Context) -> io::Result<()> {
        let is_due = self
            .all()
            .iter()
            .any(|table| table.since_ns().is_some_and(|since| since <= than_ns));
        if is_due { self.flush_all(context) } else { Ok(()) }
    }

    /// Removes and returns its files, if they are in memory, each with its name.
    pub fn take(&mut self) -> Vec<(String, Vec<u8>)> {
        let files = self.all_mut().into_iter();
        let files = files.filter_map(|table| Some((format!("{}.arrow", table.name()), table.take()?)));
        files.collect()
    }

    /// Second handles of its files, if they are not in memory.
    pub fn files(&self) -> io::Result<Vec<File>> {
        self.all()
            .iter()
            .filter_map(|table| table.file())
            .map(File::try_clone)
            .collect()
    }

    /// Its files, if they are not in memory.
    pub fn inodes(&self) -> impl Iterator<Item = Inode> {
        self.all().into_iter().filter_map(AnyTable::inode)
    }

    /// Rows that are not in a file, by table and kind.
    pub fn not_written(&self) -> impl Iterator<Item = (&'static str, Option<Kind>, u64)> {
        let rows = self.all().map(|table| (table.name(), table.kind(), table.waiting()));
        rows.into_iter().filter(|(_, _, rows)| *rows > 0)
    }
}

/// A table of any rows.
trait AnyTable {
    fn name(&self) -> &'static str;
    fn kind(&self) -> Option<Kind>;
    /// `None`: the file is in memory.
    fn set_folder(&mut self, folder: Option<&PathBuf>);
    /// Bytes in its file.
    fn bytes(&self) -> u64;
    /// Rows that are not in its file.
    fn waiting(&self) -> u64;
    /// When the first of them came.
    fn since_ns(&self) -> Option<u64>;
    fn flush(&mut self, context: &Context) -> io::Result<()>;
    fn file(&self) -> Option<&File>;
    fn inode(&self) -> Option<Inode>;
    /// Removes and returns the contents of its file, if it is in memory.
    fn take(&mut self) -> Option<Vec<u8>>;
    /// Completes its file, if it has one.
    fn finish(&mut self) -> io::Result<Option<SegmentFile>>;
}

/// A table of one segment.
struct OpenTable<R> {
    /// `None`: there was no row so far.
    file: Option<ArrowFile>,
    /// `None`: the file is in memory.
    folder: Option<PathBuf>,
    rows: Vec<R>,
    since_ns: Option<u64>,
    summary: SegmentFile,
}

/// Its file.
struct ArrowFile {
    writer: FileWriter<Counted>,
    schema: Arc<Schema>,
    dictionaries: Dictionaries,
    /// `None`: it is in memory.
    inode: Option<Inode>,
}

impl<R> Default for OpenTable<R> {
    fn default() -> Self {
        Self {
            file: None,
            folder: None,
            rows: Vec::new(),
            since_ns: None,
            summary: SegmentFile::default(),
        }
    }
}

impl<R: Table> OpenTable<R> {
    /// Adds rows to the open batch.
    fn keep(&mut self, rows: impl IntoIterator<Item = R>, now_ns: u64) {
        let before = self.rows.len();
        self.rows.extend(rows);
        if self.rows.len() > before {
            self.since_ns.get_or_insert(now_ns);
        }
    }

    fn open(&self) -> io::Result<ArrowFile> {
        let contents = match &self.folder {
            Some(folder) => {
                let path = folder.join(format!("{}.arrow", R::NAME));
                Contents::File(OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?)
            }
            None => Contents::Memory(Vec::new()),
        };
        let inode = contents.inode()?;
        let schema = super::table::schema::<R>();
        let options = IpcWriteOptions::try_new(ALIGNMENT, false, MetadataVersion::V5)
            .and_then(|options| options.try_with_compression(Some(CompressionType::ZSTD)));
        let writer = FileWriter::try_new_with_options(Counted::new(contents), &schema, options.map_err(io_error)?);
        Ok(ArrowFile {
            writer: writer.map_err(io_error)?,
            schema,
            dictionaries: Dictionaries::of::<R>(),
            inode,
        })
    }
}

impl<R: Table> AnyTable for OpenTable<R> {
    fn name(&self) -> &'static str {
        R::NAME
    }

    fn kind(&self) -> Option<Kind> {
        R::KIND
    }

    fn set_folder(&mut self, folder: Option<&PathBuf>) {
        self.folder = folder.cloned();
    }

    fn bytes(&self) -> u64 {
        self.file.as_ref().map_or(0, |file| file.writer.get_ref().bytes)
    }

    fn waiting(&self) -> u64 {
        self.rows.len() as u64
    }

    fn since_ns(&self) -> Option<u64> {
        self.since_ns
    }

    /// Rows stay in the open batch if they cannot be written.
    fn flush(&mut self, context: &Context) -> io::Result<()> {
        if self.rows.is_empty() {
            return Ok(());
        }
        if self.file.is_none() {
            self.file = Some(self.open()?);
        }
        let Some(file) = &mut self.file else { return Ok(()) };
        for rows in self.rows.chunks(BATCH_ROWS) {
            let batch = batch(rows, &file.schema, &file.dictionaries, context).map_err(io_error)?;
            let good = file.writer.get_ref().bytes;
            let written = file.writer.write(&batch).and_then(|()| file.writer.flush());
            if let Err(error) = written {
                // Half a batch cannot be read, and its bytes may be what the end needs.
                file.writer.get_mut().cut(good);
                return Err(io_error(error));
            }
        }
        let summary = &mut self.summary;
        let times = || self.rows.iter().map(Table::at_ns);
        let (from, to) = (times().min().unwrap_or(0), times().max().unwrap_or(0));
        summary.from_ns = if summary.rows == 0 {
            from
        } else {
            summary.from_ns.min(from)
        };
        summary.to_ns = summary.to_ns.max(to);
        summary.rows += self.rows.len() as u64;
        self.rows.clear();
        self.since_ns = None;
        Ok(())
    }

    fn file(&self) -> Option<&File> {
        match &self.file.as_ref()?.writer.get_ref().contents {
            Contents::File(file) => Some(file),
            Contents::Memory(_) => None,
        }
    }

    fn inode(&self) -> Option<Inode> {
        self.file.as_ref()?.inode
    }

    fn take(&mut self) -> Option<Vec<u8>> {
        match &mut self.file.as_mut()?.writer.get_mut().contents {
            Contents::File(_) => None,
            Contents::Memory(bytes) => Some(std::mem::take(bytes)),
        }
    }

    fn finish(&mut self) -> io::Result<Option<SegmentFile>> {
        let Some(file) = &mut self.file else { return Ok(None) };
        file.writer.finish().map_err(io_error)?;
        let counted = file.writer.get_ref();
        Ok(Some(SegmentFile {
            bytes: counted.bytes,
            crc32c: counted.crc,
            ..self.summary
        }))
    }
}

fn io_error(error: ArrowError) -> io::Error {
    match error {
        ArrowError::IoError(_, error) => error,
        error => io::Error::other(error),
    }
}

/// Where the contents of a file are.
enum Contents {
    File(File),
    Memory(Vec<u8>),
}

impl Contents {
    fn inode(&self) -> io::Result<Option<Inode>> {
        let Self::File(file) = self else { return Ok(None) };
        let found = file.metadata()?;
        Ok(Some(Inode::on(
            [libc::major(found.dev()), libc::minor(found.dev())],
            found.ino(),
        )))
    }
}

/// A file that knows its length and checksum.
struct Counted {
    contents: Contents,
    /// What is not in the file yet.
    waiting: Vec<u8>,
    /// Including what is waiting.
    bytes: u64,
    crc: u32,
}

impl Counted {
    fn new(contents: Contents) -> Self {
        Self {
            contents,
            waiting: Vec::new(),
            bytes: 0,
            crc: 0,
        }
    }

    /// Removes what follows this length. The checksum is then wrong, so the file cannot be completed.
    fn cut(&mut self, bytes: u64) {
        self.waiting.clear();
        self.bytes = bytes;
        // Otherwise a reader finds the half batch, and stops there.
        match &mut self.contents {
            Contents::File(file) => drop(file.set_len(bytes)),
            Contents::Memory(written) => written.truncate(usize::try_from(bytes).unwrap_or(usize::MAX)),
        }
    }
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.waiting.extend_from_slice(bytes);
        self.bytes += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.contents {
            Contents::File(file) => file.write_all(&self.waiting)?,
            Contents::Memory(written) => written.extend_from_slice(&self.waiting),
        }
        self.crc = crc32c::crc32c_append(self.crc, &self.waiting);
        self.waiting.clear();
        Ok(())
    }
}

fn text_of(snapshot: &Snapshot<StackTotals>) -> String {
    // A snapshot has no map whose keys are not texts or numbers, which is what JSON refuses.
    serde_json::to_string(snapshot).unwrap_or_default()
}
