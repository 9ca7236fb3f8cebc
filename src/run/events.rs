//! `--events`: calls and requests one by one, in the order of time.

mod live;

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal};
use std::path::Path;

use crate::args::{EventForm, Events, Options, Part, Talk};
use crate::cause::Cause;
use crate::export::lines::{Lines, LinesOf};
use crate::export::output::Stream;
use crate::export::{About, Exporter, Form, Format, Output, Selection, Summary, export_as, iotracer, jsonl};
use crate::model::recording::Meta;
use crate::number::thousands;
use crate::recording::Unneeded;
use crate::say;

use super::export::{say_left_out, unneeded};
use super::progress::Paced;
use super::report::{bounds, open_records, say_damage};
use super::selected;

pub use self::live::{Chunk, EventLines};

/// Prints the calls and requests that `options` select of a recording. Returns the exit status.
pub fn of_recording(from: &Path, part: &Part, events: Events, options: &Options) -> Result<u8, Cause> {
    let recording = open_records(from, "print")?;
    let meta = recording.meta();
    let selection = Selection {
        layers: selected::layers(meta, options)?.into_iter().collect(),
        ..selected::selection(meta, &options.measure.target)?
    };
    let [after, before] = bounds(part, &recording)?;
    let path = options.output.path.as_deref().filter(|path| path.as_os_str() != "-");
    let mut output = open(path)?;
    let mut last = events.last.map(|last| LastLines::new(heading_of(events.form), last));
    // While lines are written to a terminal, progress would be among them.
    let is_quiet = options.measure.talk == Talk::Quiet;
    let is_shown = !is_quiet && (last.is_some() || path.is_some() || !io::stdout().is_terminal());
    let mut shown = Paced::new(is_shown);
    let progress = |pass: usize, records: u64| {
        let what = if pass == 0 { "naming" } else { "reading" };
        shown.show(|| format!("{what}: {} records", thousands(records)));
    };
    let unneeded: &'static [Unneeded] = match events.form {
        EventForm::Text => &[Unneeded::Sleeps],
        EventForm::Iotracer => unneeded(Format::Iotracer),
        EventForm::Json => unneeded(Format::Jsonl),
    };
    let batches = || recording.batches(after, before).without(unneeded);
    let width = path.is_none().then(width).flatten();
    let to: &mut dyn Output = match &mut last {
        Some(last) => last,
        None => &mut *output,
    };
    let form = Shown {
        form: events.form,
        width,
    };
    let written = export_as(&form, meta, &selection, batches, to, progress);
    let written = written.and_then(|summary| match &last {
        Some(last) => last.print(&mut *output).map(|()| summary),
        None => Ok(summary),
    });
    say::erase();
    match written {
        Ok(summary) => {
            if !is_quiet {
                say_summary(&summary);
            }
            say_damage(&recording);
            Ok(0)
        }
        // A closed pipe is not an error.
        Err(error) if error.kind() == ErrorKind::BrokenPipe && path.is_none() => Ok(0),
        Err(error) => Err(Cause::of("cannot write the events", &error)),
    }
}

/// Columns of standard output, if it is a terminal.
fn width() -> Option<usize> {
    let (width, _) = terminal_size::terminal_size_of(io::stdout())?;
    Some(usize::from(width.0)).filter(|width| *width > 0)
}

/// The form of lines, and the columns of the terminal if there is one.
struct Shown {
    form: EventForm,
    width: Option<usize>,
}

impl Shown {
    /// `start_ns`: where the times of iotracer's log begin.
    fn lines(&self, meta: &Meta, start_ns: u64) -> Box<dyn Exporter> {
        match self.form {
            EventForm::Text => Box::new(LinesOf(Lines::new(meta, self.width))),
            EventForm::Iotracer => Box::new(iotracer::Iotracer::new(meta, start_ns)),
            EventForm::Json => Box::new(jsonl::Jsonl::new(meta)),
        }
    }
}

impl Form for Shown {
    fn exporter<'a>(&self, about: About<'a>) -> Box<dyn Exporter + 'a> {
        self.lines(about.meta, iotracer::start_of_recording(about))
    }
}

fn open(path: Option<&Path>) -> Result<Box<dyn Output>, Cause> {
    Ok(match path {
        Some(path) => {
            let cannot = |error: io::Error| Cause::of(format_args!("cannot write '{}'", path.display()), &error);
            Box::new(Stream::new(File::create(path).map_err(cannot)?))
        }
        None => Box::new(Stream::new(io::stdout().lock())),
    })
}

/// What is not in the lines, on standard error.
fn say_summary(summary: &Summary) {
    if summary.records == 0 {
        say!("nothing that is selected was recorded");
    }
    say_left_out(summary);
}

/// The size of all rings together of a run that prints lines, in bytes: what they hold at most is taken out and kept until
/// it is printed, and takes some 15 times as much memory then.
pub const BUFFER: u64 = 8 << 20;

/// How many lines a form begins with that are no records.
fn heading_of(form: EventForm) -> usize {
    match form {
        EventForm::Text | EventForm::Json => 1,
        EventForm::Iotracer => 0,
    }
}

/// Keeps the heading and the last lines of a stream.
#[derive(Debug)]
pub struct LastLines {
    heading: Vec<Vec<u8>>,
    /// Lines of the heading that have not come.
    missing: usize,
    lines: VecDeque<Vec<u8>>,
    most: usize,
}

impl LastLines {
    /// At most `most` lines, after the heading of so many.
    pub fn new(heading: usize, most: usize) -> Self {
        Self {
            heading: Vec::new(),
            missing: heading,
            lines: VecDeque::new(),
            most,
        }
    }

    /// Prints what there is.
    ///
    /// # Errors
    /// Any error from writing.
    pub fn print(&self, to: &mut dyn Output) -> io::Result<()> {
        for line in self.heading.iter().chain(&self.lines) {
            to.write("", line)?;
        }
        to.finish()
    }
}

impl Output for LastLines {
    /// `bytes`: a line.
    fn write(&mut self, _: &str, bytes: &[u8]) -> io::Result<()> {
        if self.missing > 0 {
            self.missing -= 1;
            self.heading.push(bytes.to_vec());
            return Ok(());
        }
        if self.lines.len() >= self.most {
            self.lines.pop_front();
        }
        self.lines.push_back(bytes.to_vec());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept() {
        let mut last = LastLines::new(1, 2);
        let printed = |last: &LastLines| {
            let mut stream = Stream::new(Vec::new());
            last.print(&mut stream).unwrap();
            let written = stream.0.into_inner().map_err(|error| error.to_string()).unwrap();
            String::from_utf8(written).unwrap()
        };
        for line in ["HEADING\n", "a\n", "b\n", "c\n"] {
            last.write("", line.as_bytes()).unwrap();
        }
        // They stay, so that they can be printed again.
        assert_eq!([printed(&last), printed(&last)], ["HEADING\nb\nc\n"; 2]);
        last.write("", b"d\n").unwrap();
        assert_eq!(printed(&last), "HEADING\nc\nd\n");
    }
}
