//! The views of a run, each with its output.

use std::io;
use std::os::fd::BorrowedFd;

use crate::args::{Form, Options, Talk, When};
use crate::cause::Cause;
use crate::event::Signals;
use crate::leave::leave;
use crate::model::events::Events;
use crate::model::report::Report;
use crate::say;
use crate::view::json;
use crate::view::text::TextOptions;
use crate::view::{Folded, Html, Json, Sheet, Svg, Text, View};

use super::events::Chunk;
use super::output::{Output, Piece};

/// A view and its output.
struct Sink {
    view: Box<dyn View>,
    output: Output,
}

/// All views of a run.
pub struct Sinks {
    /// Those that still have a reader.
    sinks: Vec<Sink>,
    /// The reports are what the run is for. Otherwise it goes on without those that have no reader, or cannot be written.
    has_report: bool,
    /// A reader of what the run is for has closed its pipe.
    is_closed: bool,
    /// The run goes on without what could not be written.
    has_failed: bool,
}

impl Sinks {
    /// Opens all outputs. Files keep their contents until [`Self::begin`].
    pub fn open(options: &Options) -> Result<Self, Cause> {
        Self::open_with(options, true)
    }

    /// The same; `has_report`: reports are printed, and not only written to files that were named.
    pub fn open_with(options: &Options, has_report: bool) -> Result<Self, Cause> {
        let mut sinks = Vec::new();
        if has_report {
            sinks.push(Sink {
                view: view(options),
                output: Output::open(
                    options.output.path.as_deref(),
                    options.measure.target.command().is_some(),
                    options.output.color,
                )?,
            });
        }
        if let Some(path) = &options.output.export_json {
            let form = match options.output.form {
                Form::Json(form) => form,
                Form::Text { .. } | Form::Folded => json::Form::Full,
            };
            sinks.push(Sink {
                view: Box::new(Json(form)),
                output: Output::open(Some(path), false, When::Never)?,
            });
        }
        if let Some(path) = &options.output.svg {
            sinks.push(Sink {
                view: Box::new(Svg::default()),
                output: Output::open_document(path)?,
            });
        }
        if let Some(path) = &options.output.html {
            sinks.push(Sink {
                view: Box::new(Html::default()),
                output: Output::open_document(path)?,
            });
        }
        Ok(Self {
            sinks,
            has_report,
            is_closed: false,
            has_failed: false,
        })
    }

    /// Truncates the files, since there will be reports. `first` is a report without numbers.
    pub fn begin(&mut self, first: &Report) -> Result<(), Cause> {
        self.sinks.iter_mut().try_for_each(|sink| sink.output.begin())?;
        self.write(Piece::default(), |view, sheet| view.begin(first, sheet))
    }

    pub fn events(&mut self, events: &Events) -> Result<(), Cause> {
        let piece = Piece {
            slow_calls: events.slow_calls.len() as u64,
            ..Piece::default()
        };
        self.write(piece, |view, sheet| view.events(events, sheet))
    }

    /// Prints lines that are made elsewhere.
    pub fn lines(&mut self, chunk: Chunk) -> Result<(), Cause> {
        let piece = Piece {
            lines: chunk.lines,
            ..Piece::default()
        };
        self.each(|sink| sink.output.write(piece, |out| out.write_all(&chunk.bytes)))
    }

    /// Columns of the terminal that is printed on.
    pub fn width(&self) -> Option<usize> {
        self.sinks.first()?.output.screen().width
    }

    pub fn report(&mut self, report: &Report) -> Result<(), Cause> {
        let piece = Piece {
            reports: 1,
            ..Piece::default()
        };
        self.write(piece, |view, sheet| view.report(report, sheet))
    }

    fn write(
        &mut self,
        piece: Piece,
        print: impl Fn(&mut dyn View, &mut Sheet<'_>) -> io::Result<()>,
    ) -> Result<(), Cause> {
        self.each(|Sink { view, output }| {
            let screen = output.screen();
            output.write(piece, |out| print(view.as_mut(), &mut Sheet { out, screen }))
        })
    }

    /// Calls `act` for each sink. A reader that has closed the pipe, as `head` does, is not an error: the run ends if
    /// there is no other, and reports are what it is for.
    fn each(&mut self, mut act: impl FnMut(&mut Sink) -> io::Result<()>) -> Result<(), Cause> {
        let mut failed = None;
        let has_report = self.has_report;
        self.sinks.retain_mut(|sink| match act(sink) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.is_closed |= has_report;
                false
            }
            Err(error) => {
                failed.get_or_insert_with(|| sink.output.cannot_write(&error));
                has_report
            }
            Ok(()) => true,
        });
        if self.sinks.is_empty() && self.is_closed {
            leave(0);
        }
        let Some(cause) = failed else { return Ok(()) };
        if has_report {
            return Err(cause);
        }
        say!("error: {cause}");
        self.has_failed = true;
        Ok(())
    }

    /// Whether the run has gone on without something that could not be written.
    pub fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Whether a reader of what the run is for has closed its pipe.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Whether something is still to be written, because a reader is slow.
    pub fn is_busy(&self) -> bool {
        self.sinks.iter().any(|sink| sink.output.is_busy())
    }

    /// Descriptors to poll while something is still to be written.
    pub fn progress(&self) -> Vec<BorrowedFd<'_>> {
        self.sinks.iter().filter_map(|sink| sink.output.progress()).collect()
    }

    /// Processes the results of writing; see [`Output::settle`].
    pub fn settle(&mut self) -> Result<(), Cause> {
        self.each(|sink| sink.output.settle())
    }

    /// Waits until everything is written, but only briefly once a signal has ended the run.
    pub fn finish(&mut self, signals: &Signals) -> Result<(), Cause> {
        self.write(Piece::default(), |view, sheet| view.end(sheet))?;
        self.each(|sink| sink.output.finish(signals))
    }

    /// What was dropped, in words.
    pub fn not_written(&self) -> impl Iterator<Item = String> {
        self.sinks.iter().filter_map(|sink| sink.output.not_written())
    }
}

/// Of lines that are made elsewhere.
struct OnlyLines;

impl View for OnlyLines {
    fn report(&mut self, _: &Report, _: &mut Sheet<'_>) -> io::Result<()> {
        Ok(())
    }
}

/// The view for these options.
fn view(options: &Options) -> Box<dyn View> {
    if options.events.is_some() {
        return Box::new(OnlyLines);
    }
    match options.output.form {
        Form::Json(form) => Box::new(Json(form)),
        Form::Folded => Box::new(Folded),
        Form::Text { unit, summary, oneline } => {
            let text = TextOptions {
                unit,
                summary_only: summary,
                verbose: options.measure.talk == Talk::Verbose,
                interval: options.span.intervals.map(|intervals| intervals.length),
                ..TextOptions::default()
            };
            Box::new(Text::new(text, oneline))
        }
    }
}
