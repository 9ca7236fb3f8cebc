//! Where the counters and events of a run come from: the running kernel, or a file that they were kept in.

#[cfg(feature = "kernel-side")]
pub mod live;
pub mod saved;

use std::fmt;

use crate::model::events::Events;
use crate::model::run_info::RunInfo;
use crate::model::snapshot::Snapshot;

/// Gives what a run has measured, in the order of time.
pub trait Source {
    /// What is known of the run beside its counters: the same from the first item to the last.
    fn info(&self) -> &RunInfo;

    /// The next of what there is up to `until`. The first snapshot is that of the moment at which measuring began.
    ///
    /// # Errors
    /// When it cannot be read.
    fn next(&mut self, until: Until) -> Result<Item, SourceError>;
}

/// How far a source is asked to go. One whose run is over has no need to be asked so: it goes from one item to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// The events that have come so far.
    Now,
    /// A snapshot that ends an interval, and the events before it.
    Interval,
    /// The same, and measuring ends with it.
    End,
}

/// What a source gives.
#[derive(Debug, Clone, PartialEq)]
pub enum Item {
    Snapshot(Box<Snapshot>),
    Events(Events),
    /// There is nothing more up to the moment that was asked for.
    Nothing,
}

/// Why a source could not go on, in one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceError(pub String);

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
