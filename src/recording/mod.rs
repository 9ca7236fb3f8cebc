//! Recordings: directories of tables in the Arrow IPC format, written while a run measures, and read later.
//!
//! ```text
//! NAME.iosb/
//!   meta.json         the machine and the run ([`Meta`]), written first
//!   000001/           a segment; a table without rows has no file
//!     calls.arrow waits.arrow requests.arrow sleeps.arrow async.arrow faults.arrow
//!     files.arrow processes.arrow folders.arrow    what the others name by number
//!     seconds.arrow   the exact counters of each second
//!     lost.arrow marks.arrow
//!     segment.json    written last: without it, the segment was cut
//!   end.json          without it, the recording was cut
//! ```
//!
//! [`Recording`] reads one, [`Writer`] writes one as it arises, [`Ring`] keeps the last part of a run until it is written, and [`Replayed`] is the run that was recorded as a source of reports.

mod ahead;
mod column;
mod file;
mod names;
mod own;
mod read;
mod ring;
mod sealed;
mod seconds;
mod segment;
mod segments;
mod source;
mod table;
mod write;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::cause::Cause;
use crate::model::clock::Clock;
use crate::model::recording::{Damage, End, Meta, SCHEMA, Segment};
use crate::number::length;

use self::table::Context;

pub use self::ahead::Ahead;
pub use self::names::Namer;
pub use self::read::{Batches, Unneeded};
pub use self::ring::{Kept, Ring, RingLimits};
pub use self::seconds::Seconds;
pub use self::source::{Replayed, Span};
pub use self::table::row_words;
pub use self::write::{Limits, Writer};

/// The end of a recording's name.
pub const EXTENSION: &str = "iosb";

const META: &str = "meta.json";
const SEGMENT: &str = "segment.json";
const END: &str = "end.json";
/// The largest JSON file that is read, in bytes.
const LARGEST_JSON: u64 = 64 << 20;

/// The cause why a recording cannot have this name.
#[must_use]
pub fn exists(folder: &Path) -> Cause {
    Cause::from(format!(
        "'{}' exists, and a recording is never written over; name another with -o",
        folder.display()
    ))
}

/// Whether a path is that of a recording, and not of a report.
#[must_use]
pub fn is_recording(path: &Path) -> bool {
    path.join(META).is_file()
}

/// A recording, opened for reading. Reading streams: memory does not grow with its length.
#[derive(Debug, Clone)]
pub struct Recording {
    folder: PathBuf,
    meta: Meta,
    end: Option<End>,
    segments: Vec<SegmentFolder>,
    context: Context,
    damage: Damages,
}

/// A segment's directory.
#[derive(Debug, Clone)]
struct SegmentFolder {
    /// Below the recording's directory.
    name: String,
    /// `None`: it was cut.
    summary: Option<Segment>,
}

/// What was found damaged so far, each once.
#[derive(Debug, Clone, Default)]
struct Damages(Arc<Mutex<Vec<Damage>>>);

impl Damages {
    fn add(&self, file: String, what: impl Into<String>, span: Option<(u64, u64)>) {
        let damage = Damage {
            file,
            what: what.into(),
            span,
        };
        // A thread that panicked while it held the lock has left the list whole.
        let mut all = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if !all.contains(&damage) {
            all.push(damage);
        }
    }

    fn all(&self) -> Vec<Damage> {
        let all = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        all.clone()
    }
}

impl Recording {
    /// Opens a recording. One that was cut is opened as well; see [`Self::is_cut`].
    ///
    /// # Errors
    /// In one line, if there is none, if it cannot be read, or if a later version with another format wrote it.
    pub fn open(folder: &Path) -> Result<Self, Cause> {
        let cannot = |error: &io::Error| Cause::of(format_args!("cannot read '{}'", folder.display()), error);
        if !fs::metadata(folder).map_err(|error| cannot(&error))?.is_dir() {
            return Err(format!(
                "'{}' is no recording: recordings are directories; reports that --json wrote are for compare",
                folder.display()
            )
            .into());
        }
        let meta = match read_json(&folder.join(META)) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(format!("'{}' is no recording: it has no {META}", folder.display()).into());
            }
            Err(error) => {
                let path = folder.join(META);
                return Err(Cause::of(format_args!("cannot read '{}'", path.display()), &error));
            }
        };
        check_schema(&meta, folder)?;
        let meta: Meta = serde_json::from_slice(&meta)
            .map_err(|error| format!("'{}' is damaged: {META}: {error}", folder.display()))?;
        let damage = Damages::default();
        let end = match read_json(&folder.join(END)).map(|text| serde_json::from_slice(&text)) {
            Ok(Ok(end)) => Some(end),
            Ok(Err(error)) => {
                damage.add(END.to_owned(), format!("it cannot be understood: {error}"), None);
                None
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                damage.add(END.to_owned(), error.to_string(), None);
                None
            }
        };
        let segments = segments::segments(folder, &meta, end.as_ref(), &damage).map_err(|error| cannot(&error))?;
        let last_ns = last_of(&segments).unwrap_or(meta.run.began_ns).max(meta.run.began_ns);
        let end = end.filter(|end| {
            let is_possible = end.to_ns >= last_ns;
            if !is_possible {
                damage.add(END.to_owned(), "it ends before what the recording has", None);
            }
            is_possible
        });
        Ok(Self {
            folder: folder.to_owned(),
            context: Context::of(&meta),
            meta,
            end,
            segments,
            damage,
        })
    }

    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    #[must_use]
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// How it ended; `None`: it was cut, or that is damaged.
    #[must_use]
    pub fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// Whether the tool was killed, or the machine stopped, before the recording was complete; or whether that is not known.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.end.is_none()
    }

    /// The records that ended in `[from_ns, to_ns)` of the programs' clock (`None`: from the start, to the end), batch by
    /// batch in the order of their ends; a call without an end is where the recording ends. Definitions come with or before
    /// the first record that uses them, at most a batch early; each segment repeats those that it uses.
    #[must_use]
    pub fn batches(&self, from_ns: Option<u64>, to_ns: Option<u64>) -> Batches {
        Batches::of(self, from_ns.unwrap_or(0), to_ns.unwrap_or(u64::MAX))
    }

    /// The definitions of files, directories and threads alone, segment by segment.
    #[must_use]
    pub fn definitions(&self) -> Batches {
        Batches::of_definitions(self)
    }

    /// The calls alone, without their waits. Their files are opened now: a process that may not open them any more can read
    /// them.
    ///
    /// # Errors
    /// If a file cannot be opened.
    pub fn calls(&self) -> io::Result<Batches> {
        Batches::of_calls(self)
    }

    /// How many files [`Self::calls`] opens, at most.
    #[must_use]
    pub fn segments(&self) -> usize {
        self.segments.len()
    }

    /// The exact counters, as one snapshot for the start and one for each second.
    #[must_use]
    pub fn seconds(&self) -> Seconds {
        Seconds::of(self)
    }

    /// The start and the end of what it has, by the programs' clock; of one that was cut, the last second or the end of the
    /// last segment that is complete.
    #[must_use]
    pub fn span(&self) -> (u64, u64) {
        let start = self.meta.run.began_ns;
        let end = match &self.end {
            // Measuring ends with the last counters; a busy machine takes a while to complete the recording.
            Some(end) if self.segments.last().is_some_and(|segment| segment.summary.is_some()) => {
                let last = seconds::last_ns(self).filter(|last| *last > start);
                last.map_or(end.to_ns, |last| last.min(end.to_ns))
            }
            Some(end) => end.to_ns,
            None => seconds::last_ns(self).max(last_of(&self.segments)).unwrap_or(start),
        };
        (start, end)
    }

    /// What cannot be read and is left out, as far as damage was found so far: what is not read is not checked.
    #[must_use]
    pub fn damage(&self) -> Vec<Damage> {
        self.damage.all()
    }

    /// What is known to be wrong with it, in lines.
    #[must_use]
    pub fn remarks(&self) -> Vec<String> {
        let clock = Clock {
            zero_ns: self.meta.clocks.offset_ns,
            utc_offset: self.meta.clocks.utc_offset,
        };
        let mut lines = Vec::new();
        for damage in self.damage() {
            let span = damage.span.map_or_else(String::new, |(from, to)| {
                let [from, to] = [from, to].map(|at| clock.milliseconds(at));
                format!(" ({from} to {to})")
            });
            lines.push(format!("{}: {}{span}", damage.file, damage.what));
        }
        if self.is_cut() {
            let (start, end) = self.span();
            let why = if self.damage().iter().any(|damage| damage.file == END) {
                "the end of the recording is not known"
            } else {
                "the recording was cut"
            };
            lines.push(format!(
                "{why}: it has {} up to {}",
                length(Duration::from_nanos(end.saturating_sub(start))),
                clock.milliseconds(end)
            ));
        }
        lines
    }

    /// The cause why there is no report of its counters, none of which can be read.
    #[must_use]
    pub fn without_counters(&self) -> Cause {
        let folder = self.folder.display();
        let damage = self.damage().into_iter().next();
        let why = damage.map_or_else(
            || "it was cut in its first second".to_owned(),
            |damage| format!("{}: {}", damage.file, damage.what),
        );
        let instead = if self.meta.has_records {
            "; --events, --access, --seeks, --limit, --lost and export need none"
        } else {
            ""
        };
        format!("'{folder}' has no counters of its seconds: {why}{instead}").into()
    }
}

/// The last moment of the segments that are complete.
fn last_of(segments: &[SegmentFolder]) -> Option<u64> {
    let summaries = segments.iter().filter_map(|segment| segment.summary.as_ref());
    summaries.map(|summary| summary.to_ns).max()
}

/// Reads a JSON file of limited length.
fn read_json(path: &Path) -> io::Result<Vec<u8>> {
    use io::Read;

    let mut text = Vec::new();
    open_file(path)?.take(LARGEST_JSON).read_to_end(&mut text)?;
    Ok(text)
}

/// Opens a regular file: a pipe would wait for a writer.
fn open_file(path: &Path) -> io::Result<fs::File> {
    use std::os::unix::fs::OpenOptionsExt;

    let file = fs::File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"))
    }
}

/// Checks the version alone: the rest may have changed.
fn check_schema(meta: &[u8], folder: &Path) -> Result<(), Cause> {
    #[derive(serde::Deserialize)]
    struct Version {
        schema: u32,
        #[serde(default)]
        tool: String,
    }
    let version: Version =
        serde_json::from_slice(meta).map_err(|error| format!("'{}' is damaged: {META}: {error}", folder.display()))?;
    if version.schema > SCHEMA {
        let tool = crate::printable::printable(&version.tool);
        return Err(format!(
            "'{}' has format {}, written by version {tool}, and this version reads up to {SCHEMA}; use a later version",
            folder.display(),
            version.schema
        )
        .into());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
