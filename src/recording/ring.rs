//! The last part of a run, in memory as complete segments, until something worth keeping happens.
//!
//! A segment has its files as they will be on the disk, and defines all that it uses. So the oldest one can be dropped
//! without a look at the others, and writing them is copying.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use crate::cause::Cause;
use crate::model::record::{Call, FileNumber, OpenFile, Records, Request, Thread};
use crate::model::recording::{End, Meta, Names, OwnWrites, Segment};
use crate::model::snapshot::Snapshot;

use super::segment::{Counts, Defined, Encoder};
use super::table::Table;
use super::write::{cannot_write, create_folder, segment_folder, write_json};
use super::{END, META, SEGMENT};

/// A segment ends after this part of the time that is kept, and with this part of the bytes: what is kept is longer than
/// requested by at most one of them.
const PARTS: u32 = 12;

/// How much is kept: the shorter of both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingLimits {
    pub span: Duration,
    /// Of encoded segments.
    pub bytes: u64,
}

/// Keeps the last part of a run. Times are those of the programs' clock.
pub struct Ring {
    meta: Meta,
    limits: RingLimits,
    encoder: Encoder,
    /// Oldest first.
    kept: VecDeque<KeptSegment>,
    /// Their bytes.
    bytes: u64,
    /// What precedes this moment by more than the span may go, however much time passes.
    held_ns: Option<u64>,
    /// The end of the last segment that was dropped for its size.
    dropped_ns: u64,
}

/// A complete segment.
#[derive(Clone)]
struct KeptSegment {
    summary: Segment,
    files: Vec<(String, Vec<u8>)>,
    counts: Counts,
    defined: Defined,
}

impl KeptSegment {
    fn bytes(&self) -> u64 {
        self.summary.files.values().map(|file| file.bytes).sum()
    }
}

/// What a ring kept, taken out of it to be written.
pub struct Kept {
    meta: Meta,
    segments: Vec<KeptSegment>,
    /// Totals; its `bytes` do not include files that have no rows.
    pub end: End,
    /// It is shorter than requested, since the ring was full.
    pub is_cut_by_size: bool,
}

impl Ring {
    /// Begins with the counters at the start of the run.
    ///
    /// # Errors
    /// If they cannot be encoded, in one line.
    pub fn new(mut meta: Meta, names: Names, limits: RingLimits, first: &Snapshot) -> Result<Self, Cause> {
        let encoder = Encoder::new(&mut meta, names);
        let mut ring = Self {
            meta,
            limits,
            encoder,
            kept: VecDeque::new(),
            bytes: 0,
            held_ns: None,
            dropped_ns: 0,
        };
        let begun = ring.encoder.begin(None, first.at_ns);
        begun
            .and_then(|()| ring.encoder.second(first))
            .map_err(|error| cannot_encode(&error))?;
        Ok(ring)
    }

    #[must_use]
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// The last definition of an open file, with its name as it is written.
    #[must_use]
    pub fn file(&self, number: FileNumber) -> Option<&OpenFile> {
        self.encoder.file(number)
    }

    /// The last definition of a thread.
    #[must_use]
    pub fn thread(&self, tid: u32) -> Option<&Thread> {
        self.encoder.thread(tid)
    }

    /// The start of what is kept, and its calls, requests and bytes.
    #[must_use]
    pub fn contents(&self) -> (u64, u64, u64, u64) {
        let open = &self.encoder.segment;
        let from_ns = self.kept.front().map_or(open.from_ns, |first| first.summary.from_ns);
        let all = || self.kept.iter().map(|segment| &segment.counts).chain([&open.counts]);
        let rows = |table: &str| all().map(|counts| counts.rows(table)).sum();
        (
            from_ns,
            rows(Call::NAME),
            rows(Request::NAME),
            self.bytes + open.bytes(),
        )
    }

    /// Adds records that arrived by `now_ns`.
    ///
    /// # Errors
    /// If they cannot be encoded, in one line.
    pub fn records(&mut self, records: Records, now_ns: u64) -> Result<(), Cause> {
        self.encoder
            .records(records, now_ns)
            .map_err(|error| cannot_encode(&error))
    }

    /// Adds the counters at the end of a second, and drops what is too old or too much.
    ///
    /// # Errors
    /// As above.
    pub fn second(&mut self, snapshot: &Snapshot) -> Result<(), Cause> {
        self.encoder
            .second(snapshot)
            .and_then(|()| self.turn(snapshot.at_ns))
            .map_err(|error| cannot_encode(&error))
    }

    /// Encodes batches that are old enough. Call it several times a second.
    ///
    /// # Errors
    /// As above.
    pub fn tick(&mut self, now_ns: u64) -> Result<(), Cause> {
        self.encoder.flush_due(now_ns).map_err(|error| cannot_encode(&error))
    }

    /// From now on, keeps what is in the span before this moment, in addition to what follows it.
    pub fn hold(&mut self, at_ns: u64) {
        self.held_ns.get_or_insert(at_ns);
    }

    /// Ends a segment that is long or large enough. Segments end with a second, so that each has the counters of its
    /// start and its end.
    fn turn(&mut self, now_ns: u64) -> io::Result<()> {
        let segment = &self.encoder.segment;
        let age = u128::from(now_ns.saturating_sub(segment.from_ns));
        if age >= (self.limits.span / PARTS).as_nanos() || segment.bytes() >= self.limits.bytes / u64::from(PARTS) {
            self.end_segment(now_ns)?;
        }
        self.trim(now_ns);
        Ok(())
    }

    /// Completes the segment and begins the next one.
    fn end_segment(&mut self, now_ns: u64) -> io::Result<()> {
        let summary = self.encoder.end(now_ns)?;
        let segment = &mut self.encoder.segment;
        let mut files = segment.tables.take();
        files.iter_mut().for_each(|(_, bytes)| bytes.shrink_to_fit());
        let kept = KeptSegment {
            summary,
            files,
            counts: std::mem::take(&mut segment.counts),
            defined: std::mem::take(&mut segment.defined),
        };
        self.bytes += kept.bytes();
        self.kept.push_back(kept);
        self.encoder.begin(None, now_ns)
    }

    fn trim(&mut self, now_ns: u64) {
        let span = u64::try_from(self.limits.span.as_nanos()).unwrap_or(u64::MAX);
        let from_ns = self.held_ns.unwrap_or(now_ns).saturating_sub(span);
        while let Some(first) = self.kept.front() {
            let is_old = first.summary.to_ns <= from_ns;
            let is_too_much = self.bytes + self.encoder.segment.bytes() > self.limits.bytes;
            // A second may have more than all of the size: the last complete segment stays.
            if !is_old && (!is_too_much || self.kept.len() == 1) {
                return;
            }
            if !is_old {
                self.dropped_ns = first.summary.to_ns;
            }
            self.bytes -= first.bytes();
            self.kept.pop_front();
        }
    }

    /// Removes and returns all that is kept, up to the last counters. What follows has nothing of it. `trigger`: why it is
    /// written, for people.
    ///
    /// # Errors
    /// As above.
    pub fn cut(&mut self, trigger: &str) -> Result<Kept, Cause> {
        let now_ns = self.complete()?;
        let segments = self.kept.drain(..).collect();
        self.bytes = 0;
        let wanted_ns = self.held_ns.take().unwrap_or(now_ns);
        Ok(self.kept(segments, (wanted_ns, now_ns), trigger))
    }

    /// Returns a copy of all that is kept, up to the last counters. `trigger`: as above.
    ///
    /// # Errors
    /// As above.
    pub fn copy(&mut self, trigger: &str) -> Result<Kept, Cause> {
        let now_ns = self.complete()?;
        let segments = self.kept.iter().cloned().collect();
        Ok(self.kept(segments, (now_ns, now_ns), trigger))
    }

    /// Completes the segment at the last counters, whose moment is returned.
    fn complete(&mut self) -> Result<u64, Cause> {
        let now_ns = self.encoder.last_ns().unwrap_or(self.encoder.segment.from_ns);
        self.end_segment(now_ns).map_err(|error| cannot_encode(&error))?;
        Ok(now_ns)
    }

    /// `wanted_ns`: all of the span before it was wanted.
    fn kept(&self, mut segments: Vec<KeptSegment>, (wanted_ns, now_ns): (u64, u64), trigger: &str) -> Kept {
        for (number, segment) in (1..).zip(&mut segments) {
            segment.summary.number = number;
        }
        let from_ns = segments.first().map_or(now_ns, |first| first.summary.from_ns);
        let span = Duration::from_nanos(wanted_ns.saturating_sub(from_ns));
        let mut meta = self.meta.clone();
        meta.run.began_ns = from_ns;
        let mut counts = Counts::default();
        segments.iter().for_each(|segment| counts.append(&segment.counts));
        let files: BTreeSet<u32> = segments.iter().flat_map(|one| &one.defined.files).copied().collect();
        let threads: BTreeSet<u32> = segments.iter().flat_map(|one| &one.defined.threads).copied().collect();
        for (table, defined) in [(OpenFile::NAME, files.len()), (Thread::NAME, threads.len())] {
            counts.rows.insert(table.to_owned(), defined as u64);
        }
        counts.rows.retain(|_, rows| *rows > 0);
        let end = End {
            from_ns,
            to_ns: now_ns,
            why: "the ring was written".to_owned(),
            trigger: trigger.to_owned(),
            rows: counts.rows,
            bytes: segments.iter().map(KeptSegment::bytes).sum(),
            lost: counts.lost,
            not_written: BTreeMap::new(),
            // Nothing is written while it is kept.
            own_writes: OwnWrites::default(),
        };
        Kept {
            meta,
            segments,
            end,
            is_cut_by_size: self.dropped_ns == from_ns && span < self.limits.span,
        }
    }
}

impl Kept {
    /// Writes it as a recording to a directory, which must not exist. `progress` gets the bytes that are written so far.
    ///
    /// # Errors
    /// If it exists (`EEXIST` of the cause), or cannot be written, in one line.
    pub fn write(&self, folder: &Path, mut progress: impl FnMut(u64)) -> Result<(), Cause> {
        create_folder(folder).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => Cause {
                errno: error.raw_os_error(),
                ..super::exists(folder)
            },
            _ => Cause::of(format_args!("cannot create '{}'", folder.display()), &error),
        })?;
        let mut written = 0;
        let mut write = || {
            write_json(folder, META, &self.meta, true)?;
            for segment in &self.segments {
                let within = segment_folder(folder, segment.summary.number);
                create_folder(&within)?;
                for (name, bytes) in &segment.files {
                    write_file(&within.join(name), bytes)?;
                    written += bytes.len() as u64;
                    progress(written);
                }
                write_json(&within, SEGMENT, &segment.summary, true)?;
            }
            write_json(folder, END, &self.end, true)?;
            File::open(folder)?.sync_all()
        };
        write().map_err(|error| cannot_write(folder, &error))
    }
}

fn write_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_data()
}

fn cannot_encode(error: &io::Error) -> Cause {
    Cause::of("cannot encode records", error)
}
