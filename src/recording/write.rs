//! Writes a recording.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use arrow_ipc::writer::{FileWriter, IpcWriteOptions};
use arrow_ipc::{CompressionType, MetadataVersion};
use arrow_schema::{ArrowError, Schema};
use serde::Serialize;

use crate::cause::Cause;
use crate::model::ids::Layer;
use crate::model::record::{
    AsyncCall, Call, Fault, FileNumber, Folder, Kind, Lost, Mark, OpenFile, Records, Request, Sleep, Thread,
};
use crate::model::recording::{End, Meta, Names, Segment, SegmentFile};
use crate::model::snapshot::Snapshot;

use super::column::{Dictionaries, batch};
use super::names::Namer;
use super::table::{Context, Second, Table, Wait};
use super::{END, META, SEGMENT};

/// Of buffers in files, in bytes: the least that the format allows, since they are compressed.
const ALIGNMENT: usize = 8;
/// A batch is written when it has this many rows, or when its first row is [`BATCH_AGE`] old.
const BATCH_ROWS: usize = 8192;
const BATCH_AGE: u64 = 1_000_000_000;
/// A segment ends when one of these is reached.
const SEGMENT_BYTES: u64 = 64 << 20;
const SEGMENT_AGE: u64 = 60_000_000_000;
/// Definitions kept for later segments; beyond that, those that were not used for longest are in earlier ones only.
const MOST_DEFINITIONS: usize = 1 << 18;

/// When a recording is written to the disk itself, and when it ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// Files are synchronised this often, besides at the end of a segment.
    pub sync: Option<Duration>,
    /// The recording ends when it has this many bytes.
    pub max_bytes: Option<u64>,
    /// It ends when its file system has less than this left, in bytes.
    pub keep_free: u64,
}

/// A recording that is being written. Times are those of the programs' clock.
pub struct Writer {
    folder: PathBuf,
    context: Context,
    namer: Namer,
    limits: Limits,
    segment: OpenSegment,
    synced_ns: u64,
    disk: Disk,
    /// The last snapshot: the start of the next segment.
    last: Option<Snapshot>,
    layers: Vec<Layer>,
    definitions: Definitions,
    end: End,
    /// Bytes of all complete segments.
    bytes: u64,
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

impl Writer {
    /// Creates the directory, which must not exist, and writes what is known of the run.
    ///
    /// # Errors
    /// If it exists, or cannot be written, in one line.
    pub fn create(folder: &Path, mut meta: Meta, names: Names, limits: Limits) -> Result<Self, Cause> {
        create_folder(folder).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => super::exists(folder),
            _ => Cause::of(format_args!("cannot create '{}'", folder.display()), &error),
        })?;
        let namer = Namer::new(names);
        namer.meta(&mut meta);
        let from_ns = meta.run.began_ns;
        // It is synchronised with the first segment: measuring has begun, and a disk may take its time.
        write_json(folder, META, &meta, false).map_err(|error| cannot_write(folder, &error))?;
        let mut writer = Self {
            folder: folder.to_owned(),
            context: Context::of(&meta),
            namer,
            limits,
            segment: OpenSegment::default(),
            synced_ns: from_ns,
            disk: Disk::default(),
            last: None,
            layers: meta.run.ops.iter().map(|op| op.layer).collect(),
            definitions: Definitions::default(),
            end: End {
                from_ns,
                ..End::default()
            },
            bytes: 0,
        };
        writer
            .begin_segment(from_ns)
            .map_err(|error| cannot_write(folder, &error))?;
        Ok(writer)
    }

    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Rows by table and bytes so far, including rows that are not in a file yet.
    #[must_use]
    pub fn written(&self) -> (u64, u64, u64) {
        let rows = |table: &str| self.end.rows.get(table).copied().unwrap_or(0);
        (rows(Call::NAME), rows(Request::NAME), self.bytes())
    }

    /// Bytes of all files so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes + self.segment.bytes()
    }

    /// Adds records that arrived by `now_ns`.
    ///
    /// # Errors
    /// If they cannot be written, in one line.
    pub fn records(&mut self, mut records: Records, now_ns: u64) -> Result<(), Cause> {
        self.namer.records(&mut records);
        self.add(records, now_ns)
            .map_err(|error| cannot_write(&self.folder, &error))
    }

    fn add(&mut self, records: Records, now_ns: u64) -> io::Result<()> {
        self.count(&records);
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
        let context = &self.context;
        for call in calls {
            self.segment.call(call, context, now_ns)?;
        }
        let tables = &mut self.segment.tables;
        tables.requests.extend(requests, context, now_ns)?;
        tables.sleeps.extend(sleeps, context, now_ns)?;
        tables.asynchronous.extend(asynchronous, context, now_ns)?;
        tables.faults.extend(faults, context, now_ns)?;
        tables.lost.extend(lost, context, now_ns)?;
        tables.marks.extend(marks, context, now_ns)?;
        self.keep_up(now_ns)
    }

    fn count(&mut self, records: &Records) {
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
                *self.end.rows.entry(name.to_owned()).or_default() += rows as u64;
            }
        }
        for lost in &records.lost {
            *self.end.lost.entry(lost.kind).or_default() += lost.records;
        }
    }

    /// Adds the counters at the end of a second, or of the start. They are in the file on return.
    ///
    /// # Errors
    /// As above.
    pub fn second(&mut self, snapshot: &Snapshot) -> Result<(), Cause> {
        let mut snapshot = snapshot.clone();
        self.namer.snapshot(&mut snapshot);
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
        self.write_second(row, now_ns)
            .map_err(|error| cannot_write(&self.folder, &error))
    }

    fn write_second(&mut self, row: Second, now_ns: u64) -> io::Result<()> {
        let seconds = &mut self.segment.tables.seconds;
        seconds.push(row, &self.context, now_ns)?;
        seconds.flush(&self.context)?;
        self.keep_up(now_ns)
    }

    /// Calls and requests of a snapshot since the last one.
    fn counted(&self, snapshot: &Snapshot) -> [u64; 2] {
        let sum = |snapshot: &Snapshot, is_in: fn(Layer) -> bool| {
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

    /// Writes batches that are old enough, and ends the segment if it is. Call it several times a second.
    ///
    /// # Errors
    /// As above.
    pub fn tick(&mut self, now_ns: u64) -> Result<(), Cause> {
        self.keep_up(now_ns).map_err(|error| cannot_write(&self.folder, &error))
    }

    fn keep_up(&mut self, now_ns: u64) -> io::Result<()> {
        let segment = &mut self.segment;
        segment
            .tables
            .flush_older(now_ns.saturating_sub(BATCH_AGE), &self.context)?;
        let is_over = segment.bytes() >= SEGMENT_BYTES || now_ns.saturating_sub(segment.from_ns) >= SEGMENT_AGE;
        if is_over {
            self.end_segment(now_ns)?;
            self.begin_segment(now_ns)?;
        }
        let is_due = |sync: Duration| u128::from(now_ns.saturating_sub(self.synced_ns)) >= sync.as_nanos();
        if self.limits.sync.is_some_and(is_due) {
            self.segment.tables.flush_all(&self.context)?;
            self.disk.keep_up(&self.segment.tables)?;
            self.synced_ns = now_ns;
        }
        Ok(())
    }

    /// Why the recording has to end, if it has.
    #[must_use]
    pub fn is_full(&self, free_bytes: Option<u64>) -> Option<String> {
        use crate::number::decimal_bytes;

        let bytes = self.bytes();
        if let Some(max) = self.limits.max_bytes.filter(|max| bytes >= *max) {
            return Some(format!(
                "it has {} (--max-size {})",
                decimal_bytes(bytes),
                decimal_bytes(max)
            ));
        }
        let free = free_bytes.filter(|free| *free < self.limits.keep_free)?;
        Some(format!(
            "its file system has {} left, and --keep-free is {}",
            decimal_bytes(free),
            decimal_bytes(self.limits.keep_free)
        ))
    }

    fn begin_segment(&mut self, now_ns: u64) -> io::Result<()> {
        let number = self.segment.number + 1;
        let folder = self.folder.join(format!("{number:06}"));
        create_folder(&folder)?;
        self.segment = OpenSegment::new(number, folder, now_ns)?;
        limit(&mut self.definitions.files, number);
        limit(&mut self.definitions.threads, number);
        limit(&mut self.definitions.folders, number);
        if let Some(last) = &self.last {
            let row = Second {
                at_ns: last.at_ns,
                counters: text_of(last),
                ..Second::default()
            };
            let seconds = &mut self.segment.tables.seconds;
            seconds.push(row, &self.context, now_ns)?;
            seconds.flush(&self.context)?;
        }
        Ok(())
    }

    fn end_segment(&mut self, now_ns: u64) -> io::Result<()> {
        let summary = self.segment.end(&self.context, now_ns)?;
        self.bytes += summary.files.values().map(|file| file.bytes).sum::<u64>();
        let mut files = self.segment.tables.files()?;
        if summary.number == 1 {
            files.push(File::open(self.folder.join(META))?);
            files.push(File::open(&self.folder)?);
        }
        self.disk.complete(files, self.segment.folder.clone(), summary)?;
        self.segment.tables = Tables::default();
        Ok(())
    }

    /// Completes the recording. `why`: for people.
    ///
    /// # Errors
    /// If something could not be written: the recording then has what it had, and says how it ended if that fits.
    pub fn end(&mut self, why: &str, now_ns: u64) -> Result<End, Cause> {
        let ended = self.end_segment(now_ns).and_then(|()| self.disk.wait());
        self.finish(why, now_ns, ended.map_err(|error| cannot_write(&self.folder, &error)))
    }

    /// After a failure: writes only how the recording ended, if that fits.
    pub fn abandon(&mut self, why: &str, now_ns: u64) -> End {
        let end = self.finish(why, now_ns, Ok(()));
        end.unwrap_or_else(|_| self.end.clone())
    }

    fn finish(&mut self, why: &str, now_ns: u64, ended: Result<(), Cause>) -> Result<End, Cause> {
        self.end.not_written = self.segment.tables.not_written();
        self.end.to_ns = now_ns;
        why.clone_into(&mut self.end.why);
        if let Err(cause) = &ended {
            self.end.why.clone_from(&cause.line);
        }
        self.end.bytes = self.bytes();
        let written =
            write_json(&self.folder, END, &self.end, true).map_err(|error| cannot_write(&self.folder, &error));
        ended.and(written)?;
        Ok(self.end.clone())
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
            self.files.insert(
                file.number,
                Known {
                    row: file.clone(),
                    segment,
                },
            );
        }
        for thread in &records.threads {
            self.threads.insert(
                thread.tid,
                Known {
                    row: thread.clone(),
                    segment,
                },
            );
        }
        for folder in &records.folders {
            self.folders.insert(
                (folder.pid, folder.is_root),
                Known {
                    row: folder.clone(),
                    segment,
                },
            );
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

/// The segment that is being written.
#[derive(Default)]
struct OpenSegment {
    number: u32,
    folder: PathBuf,
    from_ns: u64,
    /// Rows in the table of calls.
    calls: u64,
    tables: Tables,
}

/// One of each.
#[derive(Default)]
struct Tables {
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
    fn new(number: u32, folder: PathBuf, from_ns: u64) -> io::Result<Self> {
        let mut segment = Self {
            number,
            folder,
            from_ns,
            ..Self::default()
        };
        let folder = &segment.folder;
        segment.tables.each(|table| {
            table.set_folder(folder);
            Ok(())
        })?;
        Ok(segment)
    }

    fn define(&mut self, files: Vec<OpenFile>, folders: Vec<Folder>, threads: Vec<Thread>, now_ns: u64) {
        // They are written with what uses them, or before.
        self.tables.files.keep(files, now_ns);
        self.tables.folders.keep(folders, now_ns);
        self.tables.threads.keep(threads, now_ns);
    }

    fn call(&mut self, call: Call, context: &Context, now_ns: u64) -> io::Result<()> {
        let Tables { waits, calls, .. } = &mut self.tables;
        waits.keep(Wait::of(&call, self.calls), now_ns);
        self.calls += 1;
        calls.keep([call], now_ns);
        if calls.rows.len() >= BATCH_ROWS {
            self.tables.flush_calls(context)?;
        }
        Ok(())
    }

    fn bytes(&self) -> u64 {
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

    /// Writes all batches if one has a row from before this time.
    fn flush_older(&mut self, than_ns: u64, context: &Context) -> io::Result<()> {
        let is_due = self
            .all()
            .iter()
            .any(|table| table.since_ns().is_some_and(|since| since <= than_ns));
        if is_due { self.flush_all(context) } else { Ok(()) }
    }

    /// The files that are there, once more.
    fn files(&self) -> io::Result<Vec<File>> {
        self.all()
            .iter()
            .filter_map(|table| table.file())
            .map(File::try_clone)
            .collect()
    }

    fn not_written(&self) -> std::collections::BTreeMap<Kind, u64> {
        let rows = self.all().map(|table| Some((table.kind()?, table.waiting())));
        rows.into_iter().flatten().filter(|(_, rows)| *rows > 0).collect()
    }
}

/// A table of any rows.
trait AnyTable {
    fn name(&self) -> &'static str;
    fn kind(&self) -> Option<Kind>;
    fn set_folder(&mut self, folder: &Path);
    /// Bytes in its file.
    fn bytes(&self) -> u64;
    /// Rows that are not in its file.
    fn waiting(&self) -> u64;
    /// When the first of them came.
    fn since_ns(&self) -> Option<u64>;
    fn flush(&mut self, context: &Context) -> io::Result<()>;
    fn file(&self) -> Option<&File>;
    /// Completes its file, if it has one.
    fn finish(&mut self) -> io::Result<Option<SegmentFile>>;
}

/// A table of one segment.
struct OpenTable<R> {
    /// `None`: there was no row so far.
    file: Option<ArrowFile>,
    folder: PathBuf,
    rows: Vec<R>,
    since_ns: Option<u64>,
    summary: SegmentFile,
}

/// Its file.
struct ArrowFile {
    writer: FileWriter<Counted>,
    schema: Arc<Schema>,
    dictionaries: Dictionaries,
}

impl<R> Default for OpenTable<R> {
    fn default() -> Self {
        Self {
            file: None,
            folder: PathBuf::new(),
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

    fn push(&mut self, row: R, context: &Context, now_ns: u64) -> io::Result<()> {
        self.extend([row], context, now_ns)
    }

    /// Adds rows, and writes the batch if it has enough.
    fn extend(&mut self, rows: impl IntoIterator<Item = R>, context: &Context, now_ns: u64) -> io::Result<()> {
        self.keep(rows, now_ns);
        if self.rows.len() >= BATCH_ROWS {
            self.flush(context)
        } else {
            Ok(())
        }
    }

    fn open(&self) -> io::Result<ArrowFile> {
        let path = self.folder.join(format!("{}.arrow", R::NAME));
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        let schema = super::table::schema::<R>();
        let options = IpcWriteOptions::try_new(ALIGNMENT, false, MetadataVersion::V5)
            .and_then(|options| options.try_with_compression(Some(CompressionType::ZSTD)));
        let writer = FileWriter::try_new_with_options(Counted::new(file), &schema, options.map_err(io_error)?);
        Ok(ArrowFile {
            writer: writer.map_err(io_error)?,
            schema,
            dictionaries: Dictionaries::of::<R>(),
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

    fn set_folder(&mut self, folder: &Path) {
        folder.clone_into(&mut self.folder);
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
        self.file.as_ref().map(|file| &file.writer.get_ref().file)
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

/// A file that knows its length and checksum.
struct Counted {
    file: File,
    /// What is not in the file yet.
    waiting: Vec<u8>,
    /// Including what is waiting.
    bytes: u64,
    crc: u32,
}

impl Counted {
    fn new(file: File) -> Self {
        Self {
            file,
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
        let _ = self.file.set_len(bytes);
    }
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.waiting.extend_from_slice(bytes);
        self.bytes += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_all(&self.waiting)?;
        self.crc = crc32c::crc32c_append(self.crc, &self.waiting);
        self.waiting.clear();
        Ok(())
    }
}

fn cannot_write(folder: &Path, error: &io::Error) -> Cause {
    Cause::of(format_args!("cannot write '{}'", folder.display()), error)
}

/// Only for its owner: names of files and command lines are not for all.
fn create_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(folder)
}

fn text_of(snapshot: &Snapshot) -> String {
    // A snapshot has no map whose keys are not texts or numbers, which is what JSON refuses.
    serde_json::to_string(snapshot).unwrap_or_default()
}

/// Synchronises files in a thread of its own: a disk may take seconds, in which records would be lost.
#[derive(Default)]
struct Disk {
    /// At most one, so that a slow disk has no queue of them.
    running: Option<JoinHandle<io::Result<()>>>,
}

impl Disk {
    /// Synchronises the files of an open segment, unless the last time is not over.
    fn keep_up(&mut self, tables: &Tables) -> io::Result<()> {
        if self.running.as_ref().is_some_and(|running| !running.is_finished()) {
            return Ok(());
        }
        let files = tables.files()?;
        self.start(move || files.iter().try_for_each(File::sync_data))
    }

    /// Synchronises a segment, and then writes its summary.
    fn complete(&mut self, files: Vec<File>, folder: PathBuf, summary: Segment) -> io::Result<()> {
        self.start(move || {
            files.iter().try_for_each(File::sync_data)?;
            write_json(&folder, SEGMENT, &summary, true)
        })
    }

    fn start(&mut self, work: impl FnOnce() -> io::Result<()> + Send + 'static) -> io::Result<()> {
        self.wait()?;
        self.running = Some(thread::Builder::new().name("iosb-disk".to_owned()).spawn(work)?);
        Ok(())
    }

    /// Waits for what is under way.
    fn wait(&mut self) -> io::Result<()> {
        let Some(running) = self.running.take() else {
            return Ok(());
        };
        running
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the thread that synchronises files has failed")))
    }
}

/// Writes a file that is there as a whole or not at all.
fn write_json(folder: &Path, name: &str, value: &impl Serialize, is_synced: bool) -> io::Result<()> {
    let new = folder.join(format!("{name}.new"));
    let written = (|| {
        let mut text = serde_json::to_vec_pretty(value)?;
        text.push(b'\n');
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&new)?;
        file.write_all(&text)?;
        if is_synced {
            file.sync_data()?;
        }
        fs::rename(&new, folder.join(name))?;
        if is_synced {
            File::open(folder)?.sync_all()
        } else {
            Ok(())
        }
    })();
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written
}
