//! The exact counters of each second.
//!
//! They are stored as they were read, from the start of the run, so that a report of any span is the difference of two
//! of them.

use crate::model::snapshot::Snapshot;

use super::read::Rows;
use super::table::{Second, Table};
use super::{Recording, SegmentFolder};

/// See [`Recording::seconds`].
pub struct Seconds {
    recording: Recording,
    next: usize,
    rows: Option<Rows<Second>>,
    batch: std::vec::IntoIter<Option<Second>>,
    /// The start was returned.
    has_begun: bool,
}

impl Seconds {
    pub(super) fn of(recording: &Recording) -> Self {
        Self {
            recording: recording.clone(),
            next: 0,
            rows: None,
            batch: Vec::new().into_iter(),
            has_begun: false,
        }
    }

    fn row(&mut self) -> Option<Second> {
        loop {
            if let Some(row) = self.batch.next() {
                match row {
                    Some(row) => return Some(row),
                    None => continue,
                }
            }
            if let Some(batch) = self.rows.as_mut().and_then(Rows::next) {
                self.batch = batch.into_iter();
                continue;
            }
            let segment: &SegmentFolder = self.recording.segments.get(self.next)?;
            self.next += 1;
            self.rows = Some(Rows::open(&self.recording, segment));
        }
    }
}

/// The moment of the last second.
pub fn last_ns(recording: &Recording) -> Option<u64> {
    let last_of = |segment| {
        let mut batches = Rows::<Second>::open(recording, segment);
        let rows = std::iter::from_fn(|| batches.next()).flatten().flatten();
        rows.map(|row| row.at_ns).max()
    };
    recording.segments.iter().rev().find_map(last_of)
}

impl Iterator for Seconds {
    type Item = Snapshot;

    fn next(&mut self) -> Option<Snapshot> {
        loop {
            let row = self.row()?;
            // Each segment repeats the counters of its start.
            if row.span_ns == 0 && self.has_begun {
                continue;
            }
            match serde_json::from_str::<Snapshot>(&row.counters) {
                Ok(snapshot) => {
                    self.has_begun = true;
                    return Some(snapshot);
                }
                Err(error) => {
                    let what = format!("counters cannot be understood, and are left out: {error}");
                    let span = (row.at_ns.saturating_sub(row.span_ns), row.at_ns);
                    self.recording
                        .damage
                        .add(format!("{}.arrow", Second::NAME), what, Some(span));
                }
            }
        }
    }
}
