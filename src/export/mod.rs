//! Recordings in the formats of other tools: `export FILE --to FORMAT`.
//!
//! A recording is read twice. The first pass makes the [`Outline`]: the names that are defined anywhere in it, and the
//! few records that began long before they arrived. The second pass passes each [`Moment`] of each record, in the order
//! of time, to an [`Exporter`]. So the order is exact whatever the order of arrival, and memory grows with the files and
//! threads that a recording names, not with its length.

pub mod blktrace;
pub mod ctf;
pub mod fio;
mod follow;
pub mod iotracer;
pub mod jsonl;
pub mod lines;
mod names;
mod order;
mod outline;
pub mod output;
pub mod perfetto;
mod protobuf;
mod record;
mod select;
#[cfg(test)]
mod synthetic;

use std::io;

use crate::model::record::{Kind, Records};
use crate::model::recording::Meta;

pub use self::follow::{Following, PATIENCE_NS};
pub use self::names::Names;
pub use self::order::Callers;
pub use self::outline::Outline;
pub use self::output::Output;
pub use self::record::{Caller, Moment, Point, Record, all};
pub use self::select::Resolved;
pub use crate::model::selection::Selection;

use self::order::InOrder;

crate::model::ids::names! {
    /// A format that other tools read.
    "format" Format {
        Jsonl = "jsonl",
        Iotracer = "iotracer",
        Fio = "fio",
        Blktrace = "blktrace",
        Ctf = "ctf",
        Perfetto = "perfetto",
    }
}

impl Format {
    /// Whether it consists of several files in a directory.
    #[must_use]
    pub const fn is_directory(self) -> bool {
        matches!(self, Self::Fio | Self::Blktrace | Self::Ctf)
    }

    /// Whether it is not text.
    #[must_use]
    pub const fn is_binary(self) -> bool {
        matches!(self, Self::Blktrace | Self::Ctf | Self::Perfetto)
    }
}

impl Form for Format {
    fn exporter<'a>(&self, about: About<'a>) -> Box<dyn Exporter + 'a> {
        match self {
            Self::Jsonl => Box::new(jsonl::Jsonl::new(about.meta)),
            Self::Iotracer => Box::new(iotracer::Iotracer::new(about.meta, iotracer::start_of_recording(about))),
            Self::Fio => Box::new(fio::Fio::new(about)),
            Self::Blktrace => Box::new(blktrace::Blktrace::new(about)),
            Self::Ctf => Box::new(ctf::Ctf::new(about)),
            Self::Perfetto => Box::new(perfetto::Perfetto::new(about)),
        }
    }
}

/// In which form records are written.
pub trait Form {
    /// What writes them.
    fn exporter<'a>(&self, about: About<'a>) -> Box<dyn Exporter + 'a>;
}

/// What is known before the first moment.
#[derive(Debug, Clone, Copy)]
pub struct About<'a> {
    pub meta: &'a Meta,
    pub outline: &'a Outline,
}

/// Writes one format.
pub trait Exporter {
    /// The moments of records that it needs.
    fn points(&self) -> &'static [Point] {
        &[Point::Begin]
    }

    /// Writes what comes before the first moment; by default nothing.
    ///
    /// # Errors
    /// Any error from writing.
    fn begin(&mut self, _output: &mut dyn Output) -> io::Result<()> {
        Ok(())
    }

    /// Writes the next moment; none is earlier than the one before.
    ///
    /// # Errors
    /// As above.
    fn moment(&mut self, moment: &Moment<'_>, output: &mut dyn Output) -> io::Result<()>;

    /// Writes what comes last, and returns what the format could not hold.
    ///
    /// # Errors
    /// As above.
    fn end(&mut self, output: &mut dyn Output) -> io::Result<Vec<LeftOut>>;
}

/// Records that a format cannot hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    pub records: u64,
    /// What they are and why, such as `calls whose offset is unknown`.
    pub what: &'static str,
}

/// Counts records that a format cannot hold, by reason.
#[derive(Debug, Default)]
struct Leaving(Vec<LeftOut>);

impl Leaving {
    fn count(&mut self, what: &'static str) {
        self.add(what, 1);
    }

    fn add(&mut self, what: &'static str, records: u64) {
        match self.0.iter_mut().find(|left| left.what == what) {
            Some(left) => left.records += records,
            None => self.0.push(LeftOut { records, what }),
        }
    }

    fn take(&mut self) -> Vec<LeftOut> {
        std::mem::take(&mut self.0)
    }
}

/// What was exported.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// Selected records, without definitions and losses.
    pub records: u64,
    /// Those of them that the format cannot hold, by reason.
    pub left_out: Vec<LeftOut>,
    /// Records that were lost while recording, by kind.
    pub lost: Vec<(Kind, u64)>,
}

impl Summary {
    /// Records that were written.
    #[must_use]
    pub fn written(&self) -> u64 {
        let left_out = self.left_out.iter().map(|left| left.records);
        self.records.saturating_sub(left_out.fold(0, u64::saturating_add))
    }
}

/// Exports the selected records. `batches` reads all records from the start, and is called twice. `progress` is called
/// at each batch with the pass (0 or 1) and the number of records so far.
///
/// # Errors
/// Any error from writing.
pub fn export<I: Iterator<Item = Records>>(
    format: Format,
    meta: &Meta,
    selection: &Selection,
    batches: impl Fn() -> I,
    output: &mut dyn Output,
    progress: impl FnMut(usize, u64),
) -> io::Result<Summary> {
    export_as(&format, meta, selection, batches, output, progress)
}

/// The same in any form.
///
/// # Errors
/// Any error from writing.
pub fn export_as<I: Iterator<Item = Records>>(
    form: &impl Form,
    meta: &Meta,
    selection: &Selection,
    batches: impl Fn() -> I,
    output: &mut dyn Output,
    mut progress: impl FnMut(usize, u64),
) -> io::Result<Summary> {
    let mut done = 0;
    let mut outline = Outline::new(meta);
    for batch in batches() {
        done += batch.len() as u64;
        outline.take(&batch);
        progress(0, done);
    }
    let long = outline.finish();
    let about = About {
        meta,
        outline: &outline,
    };
    let mut exporter = form.exporter(about);
    let mut summary = Summary::default();
    exporter.begin(output)?;
    let selection = Resolved::of(selection, &outline);
    let mut order = InOrder::new(long, exporter.points(), &selection, &outline.names);
    done = 0;
    for batch in batches() {
        done += batch.len() as u64;
        order.take(batch);
        order.drain(|moment| exporter.moment(moment, output))?;
        progress(1, done);
    }
    order.finish(|moment| exporter.moment(moment, output))?;
    summary.records = order.records();
    summary.lost = order.lost();
    summary.left_out = exporter.end(output)?;
    output.finish()?;
    Ok(summary)
}

#[cfg(test)]
mod tests;
