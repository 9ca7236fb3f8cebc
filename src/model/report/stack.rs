//! The whole stack: every moment of every call in exactly one row.

use super::NotMeasured;
use super::slow::SlowReport;
use crate::model::histogram::Histogram;
use crate::model::ids::{Family, Layer, Origin, ReadClass, Row};
use crate::model::object::objects;
use crate::model::report::estimate::Estimate;
use crate::model::sample::Sample;
use serde::{Deserialize, Serialize};

/// The whole stack's part of a report.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct StackReport {
    /// Every family, in the order of the table, including those without calls.
    pub families: Vec<FamilyReport>,
    /// Requests that no call waited for, by origin, without empty ones. `None`: the block layer is not measured.
    pub not_waited: Option<Vec<OriginReport>>,
    /// Entries and returns that did not pair up.
    pub unbalanced: Unbalanced,
    /// Rows that could not be measured on this machine: their time is in the row above.
    pub not_measured: Vec<NotMeasured>,
    /// `None`: slow calls were not requested.
    pub slow: Option<SlowReport>,
}

/// One family of system calls.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FamilyReport {
    pub family: Family,
    /// The sum of the times of all calls, which is that of the rows.
    pub total_ns: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Calls that failed.
    pub errors: u64,
    /// Shortest and longest call; `None` without a call.
    pub extremes: Option<(u64, u64)>,
    /// The times of all calls. Its count is the family's.
    pub histogram: Histogram,
    /// Layers, then waits, in the order of the stack.
    pub rows: Vec<RowReport>,
    /// How reads got their data, in the order of [`ReadClass::ALL`]; empty for other families, and if the block layer
    /// is not measured, or not to the end.
    pub classes: Vec<ClassReport>,
}

/// One row of a family.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowReport {
    pub row: Row,
    /// `None`: not measured.
    pub ns: Option<u64>,
    /// Calls that reached the layer; `None` for waits, and if it is not measured.
    pub calls: Option<u64>,
}

/// Reads that got their data in one way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassReport {
    pub class: ReadClass,
    pub calls: u64,
    pub bytes: u64,
}

/// Requests of one origin and direction that no call waited for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OriginReport {
    pub origin: Origin,
    /// Everything that is not a read.
    pub is_write: bool,
    pub requests: u64,
    pub bytes: u64,
    /// The sum of the times from the start of the requests to their issue.
    pub queue_ns: u64,
    /// The sum of the times from their issue to their completion.
    pub device_ns: u64,
}

objects! {
    /// Events that did not pair up. The rows still add up.
    #[derive(Copy, Deserialize)]
    pub struct Unbalanced {
        /// Entries whose return was not seen.
        pub entries: u64,
        /// Returns whose entry was not seen.
        pub returns: u64,
        /// Functions nested too deep for the stack of frames.
        pub too_deep: u64,
        /// Sleeps whose end was not seen, or for which there was no room.
        pub sleeps: u64,
    }
}

impl Unbalanced {
    /// Their sum.
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
    /// Whether it is a layer in which calls ran, not a wait.
    #[must_use]
    pub fn is_layer(&self) -> bool {
        !self.row.is_wait()
    }
}

impl OriginReport {
    /// An origin without requests.
    #[must_use]
    pub fn new(origin: Origin, is_write: bool) -> Self {
        Self {
            origin,
            is_write,
            ..Self::default()
        }
    }
}

impl FamilyReport {
    /// A family without calls.
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

    /// Whether a layer below the system calls is measured, which is the same for all families of a report.
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

    /// The number of calls that ended.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.histogram.count()
    }

    /// The numbers of a sample as estimates for all calls. Shortest and longest call are those of the sample.
    #[must_use]
    pub fn estimated(self, sample: Option<Sample>) -> Self {
        let Some(sample) = sample else { return self };
        let scaled = |n: u64| sample.scaled(n);
        let row = |row: RowReport| RowReport {
            ns: row.ns.map(scaled),
            calls: row.calls.map(scaled),
            ..row
        };
        let class = |class: ClassReport| ClassReport {
            calls: scaled(class.calls),
            bytes: scaled(class.bytes),
            ..class
        };
        Self {
            total_ns: scaled(self.total_ns),
            bytes: scaled(self.bytes),
            errors: scaled(self.errors),
            histogram: self.histogram.estimated(sample),
            rows: self.rows.into_iter().map(row).collect(),
            classes: self.classes.into_iter().map(class).collect(),
            ..self
        }
    }

    /// The intervals of a sample; `None`: all calls were measured.
    #[must_use]
    pub fn estimate(&self) -> Option<Estimate> {
        Estimate::of(&self.histogram, self.total_ns, self.extremes)
    }
}
