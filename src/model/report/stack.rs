//! What the whole stack's view has to say: every moment of every call in one row.

use super::NotMeasured;
use super::slow::SlowReport;
use crate::model::histogram::Histogram;
use crate::model::ids::{Family, Layer, Origin, ReadClass, Row};
use crate::model::object::objects;
use serde::{Deserialize, Serialize};

/// The whole stack's part of a report.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct StackReport {
    /// Every family, in the order of the table, those without a call included.
    pub families: Vec<FamilyReport>,
    /// Requests that nobody slept for, by origin, those without any left out. `None`: the block layer is not measured.
    pub not_waited: Option<Vec<OriginReport>>,
    /// What did not go in pairs.
    pub unbalanced: Unbalanced,
    /// Rows that could not be measured on this machine: their time is in the row above.
    pub not_measured: Vec<NotMeasured>,
    /// `None`: slow calls were not asked for.
    pub slow: Option<SlowReport>,
}

/// One family of system calls.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FamilyReport {
    pub family: Family,
    /// Sum of the times of all calls: that of the rows.
    pub total_ns: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Calls that failed.
    pub errors: u64,
    /// Shortest and longest call; `None` without a call.
    pub extremes: Option<(u64, u64)>,
    /// All calls' times. Its count is the family's.
    pub histogram: Histogram,
    /// Layers, then waits, in the order of the stack.
    pub rows: Vec<RowReport>,
    /// How reads came by their data, in the order of [`ReadClass::ALL`]; empty for other families, and
    /// where the block layer is not measured, or not to the end.
    pub classes: Vec<ClassReport>,
}

/// One row of a family.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowReport {
    pub row: Row,
    /// `None`: not measured.
    pub ns: Option<u64>,
    /// Calls that came by the layer; `None` for waits, and where it is not measured.
    pub calls: Option<u64>,
}

/// Reads that came by their data in one way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassReport {
    pub class: ReadClass,
    pub calls: u64,
    pub bytes: u64,
}

/// Requests of one origin and direction that nobody slept for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OriginReport {
    pub origin: Origin,
    /// They wrote: what is no read.
    pub is_write: bool,
    pub requests: u64,
    pub bytes: u64,
    /// From the start of the requests to their issue, together.
    pub queue_ns: u64,
    /// From their issue to their end, together.
    pub device_ns: u64,
}

objects! {
    /// Events that did not go in pairs. The rows add up all the same.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Unbalanced {
        /// Entries whose return was not seen.
        pub entries: u64,
        /// Returns whose entry was not seen.
        pub returns: u64,
        /// Functions deeper than there is room for.
        pub too_deep: u64,
        /// Sleeps whose end was not seen, or for which there was no room.
        pub sleeps: u64,
    }
}

impl Unbalanced {
    /// All of them together.
    #[must_use]
    pub fn sum(&self) -> u64 {
        let Self {
            entries,
            returns,
            too_deep,
            sleeps,
        } = *self;
        [entries, returns, too_deep, sleeps]
            .into_iter()
            .fold(0, u64::saturating_add)
    }
}

impl RowReport {
    /// Whether it is a layer that the calls ran in, not something that they waited for.
    #[must_use]
    pub fn is_layer(&self) -> bool {
        !self.row.is_wait()
    }
}

impl OriginReport {
    /// Without a request.
    #[must_use]
    pub fn new(origin: Origin, is_write: bool) -> Self {
        Self {
            origin,
            is_write,
            requests: 0,
            bytes: 0,
            queue_ns: 0,
            device_ns: 0,
        }
    }
}

impl FamilyReport {
    /// Without a call.
    #[must_use]
    pub fn new(family: Family) -> Self {
        Self {
            family,
            total_ns: 0,
            bytes: 0,
            errors: 0,
            extremes: None,
            histogram: Histogram::default(),
            rows: Vec::new(),
            classes: Vec::new(),
        }
    }

    /// Whether a layer below the system calls is measured. It is the same for all families of a report.
    #[must_use]
    pub fn is_split(&self) -> bool {
        let mut below = self
            .rows
            .iter()
            .filter(|row| row.is_layer() && row.row != Row::Layer(Layer::Syscall));
        below.any(|row| row.ns.is_some())
    }

    /// A row's name for people.
    #[must_use]
    pub fn label(&self, row: &RowReport) -> &'static str {
        row.row.label(self.is_split())
    }

    /// Calls that have ended.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.histogram.count()
    }
}
