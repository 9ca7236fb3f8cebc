//! Reads the tables of a recording, in the order of time.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::PathBuf;

use crate::model::record::{AsyncCall, Call, Fault, Folder, Lost, Mark, OpenFile, Records, Request, Sleep, Thread};
use crate::model::recording::SegmentFile;
use crate::number::thousands;

use super::column::rows;
use super::file::{Stop, TableFile};
use super::table::{Bounds, Context, Table, Wait};
use super::{Damages, Recording, SEGMENT, SegmentFolder, open_file};

/// A table that is not read, because what a reader makes of the records does not need it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unneeded {
    /// Calls have only the rows that are in the table of calls then.
    Waits,
    Requests,
    Sleeps,
}

/// See [`Recording::batches`].
pub struct Batches {
    recording: Recording,
    part: Bounds,
    /// Index of the next segment.
    next: usize,
    tables: Vec<Box<dyn Cursor>>,
    /// Only definitions are read.
    only_definitions: bool,
    /// The files of calls by segment, if only calls are read.
    only_calls: Option<Vec<Option<File>>>,
    unneeded: &'static [Unneeded],
}

impl Batches {
    pub(super) fn of(recording: &Recording, from_ns: u64, to_ns: u64) -> Self {
        // The end of a recording that was cut is after all that it has.
        let end_ns = recording.end.as_ref().map_or(u64::MAX, |end| end.to_ns);
        Self {
            recording: recording.clone(),
            part: Bounds::new(from_ns, to_ns, end_ns),
            next: 0,
            tables: Vec::new(),
            only_definitions: false,
            only_calls: None,
            unneeded: &[],
        }
    }

    pub(super) fn of_definitions(recording: &Recording) -> Self {
        Self {
            only_definitions: true,
            ..Self::of(recording, 0, u64::MAX)
        }
    }

    pub(super) fn of_calls(recording: &Recording) -> io::Result<Self> {
        let mut files = Vec::with_capacity(recording.segments.len());
        for segment in &recording.segments {
            files.push(match open_file(&path::<Call>(recording, segment)) {
                Ok(file) => Some(file),
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => return Err(error),
            });
        }
        Ok(Self {
            only_calls: Some(files),
            ..Self::of(recording, 0, u64::MAX)
        })
    }

    /// Without these tables.
    #[must_use]
    pub fn without(self, unneeded: &'static [Unneeded]) -> Self {
        Self { unneeded, ..self }
    }

    /// Opens the tables of the next segment that has anything of the span.
    fn open_next(&mut self) -> bool {
        while let Some(segment) = self.recording.segments.get(self.next) {
            self.next += 1;
            let Bounds { from_ns, to_ns, .. } = self.part;
            let is_outside = segment
                .summary
                .as_ref()
                .is_some_and(|known| known.to_ns < from_ns || known.from_ns >= to_ns);
            if !is_outside {
                let open = Open {
                    recording: &self.recording,
                    segment,
                };
                self.tables = if let Some(files) = &mut self.only_calls {
                    let file = files.get_mut(self.next - 1).and_then(Option::take);
                    let rows = file.map(|file| Rows::of(open.recording, open.segment, Ok(file)));
                    rows.map(|rows| calls(rows, None)).into_iter().collect()
                } else {
                    open.definitions()
                };
                if !self.only_definitions && self.only_calls.is_none() {
                    self.tables.extend(open.records(self.unneeded));
                }
                return true;
            }
        }
        false
    }

    /// The batch that comes first, which has no record outside the span.
    fn take(&mut self, into: &mut Records) -> Option<bool> {
        let keys = self.tables.iter_mut().map(|table| table.key());
        let first = keys.enumerate().filter_map(|(index, key)| Some((key?, index))).min();
        let table = self.tables.get_mut(first?.1)?;
        table.take(into, self.part);
        Some(table.is_definition())
    }
}

impl Iterator for Batches {
    type Item = Records;

    fn next(&mut self) -> Option<Records> {
        let mut records = Records::default();
        loop {
            match self.take(&mut records) {
                Some(is_definition) if is_definition || records.is_empty() => {}
                Some(_) => return Some(records),
                None if !records.is_empty() => return Some(records),
                None => {
                    if !self.open_next() {
                        return None;
                    }
                }
            }
        }
    }
}

/// The tables of a segment.
struct Open<'a> {
    recording: &'a Recording,
    segment: &'a SegmentFolder,
}

impl Open<'_> {
    fn definitions(&self) -> Vec<Box<dyn Cursor>> {
        vec![
            self.table::<OpenFile>(true, |records| &mut records.files),
            self.table::<Folder>(true, |records| &mut records.folders),
            self.table::<Thread>(true, |records| &mut records.threads),
        ]
    }

    fn records(&self, unneeded: &[Unneeded]) -> Vec<Box<dyn Cursor>> {
        let is_needed = |table| !unneeded.contains(&table);
        let waits = is_needed(Unneeded::Waits).then(|| self.rows());
        let mut tables: Vec<Box<dyn Cursor>> = vec![calls(self.rows(), waits)];
        if is_needed(Unneeded::Requests) {
            tables.push(self.table::<Request>(false, |records| &mut records.requests));
        }
        if is_needed(Unneeded::Sleeps) {
            tables.push(self.table::<Sleep>(false, |records| &mut records.sleeps));
        }
        tables.extend([
            self.table::<AsyncCall>(false, |records| &mut records.asynchronous),
            self.table::<Fault>(false, |records| &mut records.faults),
            self.table::<Lost>(false, |records| &mut records.lost),
            self.table::<Mark>(false, |records| &mut records.marks),
        ]);
        tables
    }

    fn table<R: Table>(
        &self,
        is_definition: bool,
        list: for<'r> fn(&'r mut Records) -> &'r mut Vec<R>,
    ) -> Box<dyn Cursor> {
        Box::new(Plain {
            rows: self.rows(),
            batch: None,
            is_definition,
            list,
        })
    }

    fn rows<R: Table>(&self) -> Rows<R> {
        Rows::open(self.recording, self.segment)
    }
}

/// The rows of a table of one segment, batch by batch.
pub struct Rows<R> {
    file: Option<TableFile>,
    /// Below the recording's directory.
    name: String,
    span: Option<(u64, u64)>,
    context: Context,
    damage: Damages,
    /// Something is missing at the end, or all of it.
    pub is_damaged: bool,
    rows: std::marker::PhantomData<R>,
}

/// Where a segment has a table.
fn path<R: Table>(recording: &Recording, segment: &SegmentFolder) -> PathBuf {
    let folder = recording.folder.join(&segment.name);
    folder.join(format!("{}.arrow", R::NAME))
}

impl<R: Table> Rows<R> {
    pub(super) fn open(recording: &Recording, segment: &SegmentFolder) -> Self {
        Self::of(recording, segment, open_file(&path::<R>(recording, segment)))
    }

    fn of(recording: &Recording, segment: &SegmentFolder, file: io::Result<File>) -> Self {
        let file_name = format!("{}.arrow", R::NAME);
        let summary = segment.summary.as_ref();
        let known = summary.and_then(|summary| summary.files.get(&file_name));
        let mut rows = Self {
            file: None,
            name: format!("{}/{file_name}", segment.name),
            span: known.map(|known| (known.from_ns, known.to_ns)),
            context: recording.context.clone(),
            damage: recording.damage.clone(),
            is_damaged: false,
            rows: std::marker::PhantomData,
        };
        let file = match (known, summary.is_some()) {
            (Some(known), _) => match file
                .map_err(|error| error.to_string())
                .and_then(|file| checked(file, known))
            {
                Ok(file) => Ok(file),
                Err(what) => {
                    rows.damaged(format!("{what}: its {} rows are left out", thousands(known.rows)));
                    return rows;
                }
            },
            (None, true) => {
                // A complete segment without this table, unless its summary is damaged.
                if file.is_ok() {
                    rows.damaged(format!("it is not in {SEGMENT}: it is left out"));
                }
                return rows;
            }
            (None, false) => file,
        };
        match file.map_err(Stop::from).and_then(TableFile::open) {
            Ok(file) => rows.keep(file),
            Err(Stop::Missing) => {}
            // What a writer that was killed left.
            Err(Stop::Cut) if summary.is_none() => rows.is_damaged = true,
            Err(stop) => rows.damaged(format!("{stop}: it is left out")),
        }
        rows
    }

    fn keep(&mut self, file: TableFile) {
        let is_unknown = |column: &&str| R::COLUMNS.iter().all(|known| known.name != *column);
        for column in file.columns().filter(is_unknown) {
            let column = crate::printable::printable(column);
            let what = format!("this version does not know the column {column}, and skips it");
            self.damage.add(format!("{}.arrow", R::NAME), what, None);
        }
        self.file = Some(file);
    }

    fn damaged(&mut self, what: String) {
        self.is_damaged = true;
        self.file = None;
        self.damage.add(self.name.clone(), what, self.span);
    }

    /// The next batch; `None` at the end. `None` in it is a row that cannot be read.
    pub fn next(&mut self) -> Option<Vec<Option<R>>> {
        let batch = match self.file.as_mut()?.next() {
            Ok(Some(batch)) => batch,
            Ok(None) => {
                self.file = None;
                return None;
            }
            Err(Stop::Cut | Stop::Missing) => {
                // The end of a recording that was cut is said once, for all tables.
                (self.file, self.is_damaged) = (None, true);
                return None;
            }
            Err(stop) => {
                self.damaged(format!("{stop}: the rest of it is left out"));
                return None;
            }
        };
        match rows(&batch, &self.context) {
            Ok(rows) => {
                let refused = rows.iter().filter(|row| row.is_none()).count();
                if refused > 0 {
                    let refused = thousands(refused as u64);
                    let what = format!("{refused} rows of a batch have values that this version does not know");
                    self.damage.add(self.name.clone(), what, self.span);
                }
                Some(rows)
            }
            Err(what) => {
                self.damaged(format!("{what}: the rest of it is left out"));
                None
            }
        }
    }
}

/// A complete file that is as its segment's summary says, at its start.
fn checked(mut file: File, known: &SegmentFile) -> Result<File, String> {
    let (mut bytes, mut crc) = (0_u64, 0);
    let mut part = vec![0; 256 << 10];
    loop {
        match file.read(&mut part) {
            Ok(0) => break,
            Ok(length) => {
                bytes += length as u64;
                crc = crc32c::crc32c_append(crc, part.get(..length).unwrap_or_default());
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    if bytes != known.bytes {
        let [bytes, known] = [bytes, known.bytes].map(thousands);
        return Err(format!("it has {bytes} bytes, and had {known}"));
    }
    if crc != known.crc32c {
        return Err("its checksum is wrong".to_owned());
    }
    file.rewind().map_err(|error| error.to_string())?;
    Ok(file)
}

/// A table, at some batch.
trait Cursor: Send {
    /// The time by which its next batch is ordered; `None`: there is no more.
    fn key(&mut self) -> Option<u64>;
    /// Appends the rows of the next batch that are in the part.
    fn take(&mut self, into: &mut Records, part: Bounds);
    fn is_definition(&self) -> bool;
}

/// A table whose rows are records.
struct Plain<R: Table> {
    rows: Rows<R>,
    batch: Option<Vec<Option<R>>>,
    is_definition: bool,
    list: for<'r> fn(&'r mut Records) -> &'r mut Vec<R>,
}

/// The time by which a batch is ordered: definitions by their first row, so that they precede what they define.
fn key<R: Table>(batch: &[Option<R>], is_definition: bool) -> u64 {
    let times = batch.iter().flatten().map(Table::at_ns);
    let time = if is_definition { times.min() } else { times.max() };
    time.unwrap_or(0)
}

/// Appends those rows of a batch that are known and in the part: in the memory of the batch if there are no others.
fn append<R: Table>(into: &mut Vec<R>, batch: Vec<Option<R>>, part: Bounds) {
    let rows = batch.into_iter().filter_map(|row| row.filter(|row| row.is_in(part)));
    if into.is_empty() {
        *into = rows.collect();
    } else {
        into.extend(rows);
    }
}

impl<R: Table> Cursor for Plain<R> {
    fn key(&mut self) -> Option<u64> {
        if self.batch.is_none() {
            self.batch = self.rows.next();
        }
        Some(key(self.batch.as_ref()?, self.is_definition))
    }

    fn take(&mut self, into: &mut Records, part: Bounds) {
        // A definition holds from its moment on.
        let from_ns = if self.is_definition { 0 } else { part.from_ns };
        let part = Bounds { from_ns, ..part };
        append((self.list)(into), self.batch.take().unwrap_or_default(), part);
    }

    fn is_definition(&self) -> bool {
        self.is_definition
    }
}

/// The table of calls.
fn calls(rows: Rows<Call>, waits: Option<Rows<Wait>>) -> Box<dyn Cursor> {
    Box::new(Calls {
        rows,
        batch: None,
        waits,
        waiting: Vec::new().into_iter(),
        behind: 0,
    })
}

/// The table of calls, with their waits from another one.
struct Calls {
    rows: Rows<Call>,
    batch: Option<Vec<Option<Call>>>,
    /// `None`: they are not needed.
    waits: Option<Rows<Wait>>,
    /// The waits that follow.
    waiting: std::vec::IntoIter<Option<Wait>>,
    /// The calls of earlier batches.
    behind: u64,
}

impl Calls {
    /// The next wait of a call before this one.
    fn wait_before(&mut self, call: u64) -> Option<Wait> {
        loop {
            match self.waiting.as_slice().first() {
                Some(Some(wait)) if wait.call >= call => return None,
                Some(_) => {
                    if let Some(wait) = self.waiting.next().flatten() {
                        return Some(wait);
                    }
                }
                None => self.waiting = self.waits.as_mut()?.next()?.into_iter(),
            }
        }
    }

    fn read(&mut self) -> Option<Vec<Option<Call>>> {
        let mut calls = self.rows.next()?;
        let from = self.behind;
        self.behind += calls.len() as u64;
        while let Some(wait) = self.wait_before(self.behind) {
            let index = wait
                .call
                .checked_sub(from)
                .and_then(|index| usize::try_from(index).ok());
            let call = index.and_then(|index| calls.get_mut(index)?.as_mut());
            if let Some(row) = call.and_then(|call| call.rows.get_mut(wait.slot)) {
                *row = wait.ns;
            }
        }
        if self.waits.as_ref().is_some_and(|waits| waits.is_damaged) {
            for call in calls.iter_mut().flatten() {
                let sum = call.rows.iter().copied().fold(0, u64::saturating_add);
                if call.duration_ns().is_some_and(|ns| ns != sum) {
                    call.rows.fill(0);
                }
            }
        }
        Some(calls)
    }
}

impl Cursor for Calls {
    fn key(&mut self) -> Option<u64> {
        if self.batch.is_none() {
            self.batch = self.read();
        }
        Some(key(self.batch.as_ref()?, false))
    }

    fn take(&mut self, into: &mut Records, part: Bounds) {
        append(&mut into.calls, self.batch.take().unwrap_or_default(), part);
    }

    fn is_definition(&self) -> bool {
        false
    }
}
