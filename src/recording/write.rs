//! Writes a recording.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde::Serialize;

use crate::cause::Cause;
use crate::model::record::{Call, Records, Request};
use crate::model::recording::{End, Meta, Names, Segment};
use crate::model::snapshot::Snapshot;

use super::own::Own;
use super::sealed::seal;
use super::segment::{Counts, Encoder, Tables};
use super::table::Table;
use super::{END, META, SEGMENT};

/// A segment ends when one of these is reached.
const SEGMENT_BYTES: u64 = 64 << 20;
const SEGMENT_AGE: u64 = 60_000_000_000;

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
    limits: Limits,
    encoder: Encoder,
    synced_ns: u64,
    disk: Disk,
    own: Own,
    /// Of all complete segments.
    counts: Counts,
    bytes: u64,
    end: End,
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
        let encoder = Encoder::new(&mut meta, names);
        let from_ns = meta.run.began_ns;
        let mut writer = Self {
            folder: folder.to_owned(),
            limits,
            encoder,
            synced_ns: from_ns,
            disk: Disk::default(),
            own: Own::default(),
            counts: Counts::default(),
            bytes: 0,
            end: End {
                from_ns,
                ..End::default()
            },
        };
        // It is synchronised with the first segment: measuring has begun, and a disk may take its time.
        let written = write_json(folder, META, &meta, false).and_then(|()| writer.begin_segment(from_ns));
        match written {
            Ok(()) => Ok(writer),
            Err(error) => {
                writer.discard();
                Err(cannot_write(folder, &error))
            }
        }
    }

    /// Removes the directory, which this has created. One that cannot be removed stays, and says by itself that nothing is
    /// in it.
    pub fn discard(self) {
        let folder = self.folder.clone();
        drop(self);
        let _ = fs::remove_dir_all(folder);
    }

    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Rows by table and bytes so far, including rows that are not in a file yet.
    #[must_use]
    pub fn written(&self) -> (u64, u64, u64) {
        let rows = |table: &str| self.counts.rows(table) + self.encoder.segment.counts.rows(table);
        (rows(Call::NAME), rows(Request::NAME), self.bytes())
    }

    /// Bytes of all files so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes + self.encoder.segment.bytes()
    }

    /// Adds records that arrived by `now_ns`, without those of requests that write the recording.
    ///
    /// # Errors
    /// If they cannot be written, in one line.
    pub fn records(&mut self, mut records: Records, now_ns: u64) -> Result<(), Cause> {
        self.own.leave_out(&mut records.requests);
        let added = self.encoder.records(records, now_ns);
        added
            .and_then(|()| self.keep_up(now_ns))
            .map_err(|error| cannot_write(&self.folder, &error))
    }

    /// Adds the counters at the end of a second, or of the start. They are in the file on return.
    ///
    /// # Errors
    /// As above.
    pub fn second(&mut self, snapshot: &Snapshot) -> Result<(), Cause> {
        let added = self.encoder.second(snapshot);
        added
            .and_then(|()| self.keep_up(snapshot.at_ns))
            .map_err(|error| cannot_write(&self.folder, &error))
    }

    /// Writes batches that are old enough, and ends the segment if it is. Call it several times a second.
    ///
    /// # Errors
    /// As above.
    pub fn tick(&mut self, now_ns: u64) -> Result<(), Cause> {
        let flushed = self.encoder.flush_due(now_ns);
        flushed
            .and_then(|()| self.keep_up(now_ns))
            .map_err(|error| cannot_write(&self.folder, &error))
    }

    fn keep_up(&mut self, now_ns: u64) -> io::Result<()> {
        let segment = &self.encoder.segment;
        self.own.learn(segment.tables.inodes());
        let is_over = segment.bytes() >= SEGMENT_BYTES || now_ns.saturating_sub(segment.from_ns) >= SEGMENT_AGE;
        if is_over {
            self.end_segment(now_ns)?;
            self.begin_segment(now_ns)?;
        }
        let is_due = |sync: Duration| u128::from(now_ns.saturating_sub(self.synced_ns)) >= sync.as_nanos();
        if self.limits.sync.is_some_and(is_due) {
            self.encoder.flush_all()?;
            self.disk.keep_up(&self.encoder.segment.tables)?;
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
        let folder = segment_folder(&self.folder, self.encoder.segment.number + 1);
        create_folder(&folder)?;
        self.encoder.begin(Some(folder), now_ns)
    }

    fn end_segment(&mut self, now_ns: u64) -> io::Result<()> {
        let summary = self.encoder.end(now_ns)?;
        self.settle_counts();
        self.bytes += summary.files.values().map(|file| file.bytes).sum::<u64>();
        let segment = &mut self.encoder.segment;
        let mut files = segment.tables.files()?;
        segment.tables = Tables::default();
        if summary.number == 1 {
            files.push(File::open(self.folder.join(META))?);
            files.push(File::open(&self.folder)?);
        }
        let folder = segment_folder(&self.folder, summary.number);
        self.disk.complete(files, folder, summary)
    }

    /// Adds the rows of the segment to those of all.
    fn settle_counts(&mut self) {
        let counts = std::mem::take(&mut self.encoder.segment.counts);
        self.counts.append(&counts);
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
        self.settle_counts();
        self.end.rows.clone_from(&self.counts.rows);
        self.end.lost.clone_from(&self.counts.lost);
        self.end.own_writes = self.own.writes;
        for (table, kind, rows) in self.encoder.segment.tables.not_written() {
            if let Some(all) = self.end.rows.get_mut(table) {
                *all = all.saturating_sub(rows);
            }
            self.end.not_written.extend(kind.map(|kind| (kind, rows)));
        }
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

pub(super) fn cannot_write(folder: &Path, error: &io::Error) -> Cause {
    Cause::of(format_args!("cannot write '{}'", folder.display()), error)
}

/// Only for its owner: names of files and command lines are not for all.
pub(super) fn create_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(folder)
}

/// The directory of a segment.
pub(super) fn segment_folder(folder: &Path, number: u32) -> PathBuf {
    folder.join(format!("{number:06}"))
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

/// Writes a file that is there as a whole or not at all. The summary of a segment has a checksum of its own.
pub(super) fn write_json(folder: &Path, name: &str, value: &impl Serialize, is_synced: bool) -> io::Result<()> {
    let new = folder.join(format!("{name}.new"));
    let written = (|| {
        let mut text = serde_json::to_vec_pretty(value)?;
        text.push(b'\n');
        if name == SEGMENT {
            text = seal(text);
        }
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
