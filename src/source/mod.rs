//! Sources of counters and events: the running kernel, or a file in which a run was saved.

#[cfg(feature = "kernel-side")]
pub mod live;
pub mod saved;

use std::fmt;

use crate::model::events::Events;
use crate::model::run_info::RunInfo;
use crate::model::snapshot::Snapshot;

/// Returns what a run has measured, in chronological order.
pub trait Source {
    /// Data of the run in addition to its counters, the same for all items.
    fn info(&self) -> &RunInfo;

    /// The next item up to `until`. The first snapshot is that of the start of measuring.
    ///
    /// # Errors
    /// If it cannot be read.
    fn next(&mut self, until: Until) -> Result<Item, SourceError>;
}

/// How far to go. A source of a finished run ignores it, and returns one item after another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// To the events that have arrived so far.
    Now,
    /// To a snapshot that ends an interval, and the events before it.
    Interval,
    /// To the last snapshot; measuring ends with it.
    End,
}

/// An item of a source.
#[derive(Debug, Clone, PartialEq)]
pub enum Item {
    Snapshot(Box<Snapshot>),
    Events(Events),
    /// There is nothing more up to that point.
    Nothing,
}

/// Why a source cannot continue, in one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceError(pub String);

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
