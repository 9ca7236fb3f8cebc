//! `--events` of the running kernel: each call and request as a line, as they come.

use std::io;
use std::path::Path;

use crate::analyse::records::lost::LostRecords;
use crate::args::{Events, Options, Target};
use crate::catalog::Layer;
use crate::cause::Cause;
use crate::export::{Exporter, Following, LeftOut, Output, PATIENCE_NS, Resolved, Selection};
use crate::kernel::file::FileNumber;
use crate::kernel::names::numbers_of;
use crate::kernel::root::whole_path;
use crate::model::clock::Clock;
use crate::model::record::{Call, Kind, Records};
use crate::model::report::Report;
use crate::model::report::slow::Inode;
use crate::model::run_info::RunInfo;
use crate::model::snapshot::Snapshot;
use crate::say;
use crate::view::text::records::missing;

use super::super::export::say_left_out_of_format;
use super::super::notes::Attention;
use super::super::record;
use super::{LastLines, Shown, heading_of};

/// Makes lines of the records of a run.
pub struct EventLines {
    following: Following,
    exporter: Box<dyn Exporter>,
    lines: Lines,
    has_begun: bool,
    /// The last lines are to be printed.
    is_asked: bool,
    lost: LostRecords,
    clock: Clock,
    attention: Attention,
    trouble: Option<String>,
}

/// Where lines go.
enum Lines {
    /// To be printed.
    All(Chunk),
    /// Kept until they are requested.
    Last(LastLines),
}

/// Lines to be printed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Chunk {
    pub bytes: Vec<u8>,
    pub lines: u64,
}

impl Output for Chunk {
    /// `bytes`: a line.
    fn write(&mut self, _: &str, bytes: &[u8]) -> io::Result<()> {
        self.bytes.extend_from_slice(bytes);
        self.lines += 1;
        Ok(())
    }
}

impl Output for Lines {
    fn write(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::All(text) => text.write(name, bytes),
            Self::Last(last) => last.write(name, bytes),
        }
    }
}

impl EventLines {
    /// `first`: a report without numbers, `start`: the counters of the start, `width`: columns of the terminal, if the lines
    /// go to one.
    ///
    /// # Errors
    /// If a selected file or directory is not there, in one line.
    pub fn begin(
        events: Events,
        options: &Options,
        info: &RunInfo,
        first: &Report,
        start: &Snapshot,
        width: Option<usize>,
    ) -> Result<Self, Cause> {
        let meta = record::meta(info, start);
        let form = Shown {
            form: events.form,
            width,
        };
        let Selected { selection, inodes } = selected(&options.measure.target)?;
        Ok(Self {
            following: Following::new(
                Resolved::new(&selection, inodes),
                options.measure.scope.has(Layer::Syscall),
            ),
            exporter: form.lines(&meta, info.began_ns),
            lines: match events.last {
                Some(last) => Lines::Last(LastLines::new(heading_of(events.form), last)),
                None => Lines::All(Chunk::default()),
            },
            has_begun: false,
            is_asked: false,
            lost: LostRecords::default(),
            clock: Clock {
                zero_ns: meta.clocks.offset_ns,
                utc_offset: meta.clocks.utc_offset,
            },
            attention: Attention::new(first),
            trouble: None,
        })
    }

    /// Whether lines are printed as they come.
    pub fn is_printed_as_it_comes(&self) -> bool {
        matches!(self.lines, Lines::All(_))
    }

    /// See [`Following::looks_for_calls`].
    pub fn looks_for_calls(&self, now_ns: u64) -> Option<bool> {
        self.following.looks_for_calls(now_ns)
    }

    /// See [`Following::under_way`].
    pub fn under_way(&mut self, calls: &[Call]) {
        self.following.under_way(calls);
    }

    /// Adds records.
    pub fn take(&mut self, records: Records) {
        self.lost.take(&records);
        self.following.take(records);
    }

    /// SIGUSR1: the last lines are to be printed.
    pub fn ask(&mut self) {
        self.is_asked = true;
    }

    /// Whether the last lines are to be printed.
    pub fn is_asked(&self) -> bool {
        self.is_asked
    }

    /// What is to be printed after the records of all that had ended by `until_ns` were added.
    ///
    /// # Errors
    /// None is known: lines are made in memory.
    pub fn text(&mut self, until_ns: u64) -> io::Result<Chunk> {
        let is_asked = std::mem::take(&mut self.is_asked);
        match is_asked {
            true => self.make(u64::MAX)?,
            false => self.make(until_ns.saturating_sub(PATIENCE_NS))?,
        }
        self.ready(is_asked)
    }

    /// The rest, and what the form could not hold.
    ///
    /// # Errors
    /// As above.
    pub fn rest(&mut self) -> io::Result<(Chunk, Vec<LeftOut>)> {
        self.make(u64::MAX)?;
        let left = self.exporter.end(&mut self.lines)?;
        Ok((self.ready(true)?, left))
    }

    fn make(&mut self, low_ns: u64) -> io::Result<()> {
        if !self.has_begun {
            self.has_begun = true;
            self.exporter.begin(&mut self.lines)?;
        }
        let (exporter, lines) = (&mut self.exporter, &mut self.lines);
        self.following
            .release(low_ns, |moment| exporter.moment(moment, &mut *lines))
    }

    /// The lines that were made; the last ones if `is_asked`.
    fn ready(&mut self, is_asked: bool) -> io::Result<Chunk> {
        match &mut self.lines {
            Lines::All(text) => Ok(std::mem::take(text)),
            Lines::Last(last) => {
                let mut text = Chunk::default();
                if is_asked {
                    last.print(&mut text)?;
                }
                Ok(text)
            }
        }
    }

    /// Takes the report of the run, for what was not measured during it.
    pub fn report(&mut self, report: &Report) {
        self.trouble = self.attention.take_from(&mut report.clone());
    }

    /// Says what is not in the lines. `left`: what the form could not hold.
    pub fn conclude(&self, left: &[LeftOut], is_quiet: bool) {
        for lost in self.lost.of(&Kind::ALL) {
            say!("{}", missing(&lost, self.clock, false));
        }
        if let Some(trouble) = &self.trouble {
            say!("{trouble}");
        }
        if !is_quiet {
            if self.following.records() == 0 {
                say!("nothing that is selected happened");
            }
            say_left_out_of_format(left);
        }
    }
}

/// The files that are selected.
struct Selected {
    selection: Selection,
    inodes: Vec<Inode>,
}

/// Selects files by their inodes, and by the paths that they have now: a path may get another file, and each directory
/// gets new ones. All other filters are those of the programs.
fn selected(target: &Target) -> Result<Selected, Cause> {
    let path = |path: &Path| {
        let real = whole_path(path);
        let real = real.map_err(|error| Cause::of(format_args!("cannot examine '{}'", path.display()), &error))?;
        Ok(real.display().to_string())
    };
    let inode = |path: &Path| {
        let found = FileNumber::find(path);
        let found = found.map_err(|error| Cause::of(format_args!("cannot examine '{}'", path.display()), &error))?;
        let (major, minor) = numbers_of(found.device);
        Ok(Inode::on([major, minor], found.inode))
    };
    let paths = &target.paths;
    Ok(Selected {
        inodes: paths
            .files
            .iter()
            .map(|file| inode(file))
            .collect::<Result<_, Cause>>()?,
        selection: Selection {
            files: paths
                .files
                .iter()
                .map(|file| path(file))
                .collect::<Result<_, Cause>>()?,
            folders: paths
                .folders
                .iter()
                .map(|folder| path(folder))
                .collect::<Result<_, Cause>>()?,
            ..Selection::default()
        },
    })
}
