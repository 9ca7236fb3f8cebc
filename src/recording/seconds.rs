//! The exact counters of each second.
//!
//! They are stored from the start of the run on, so that a report of any span is the difference of two of them.

use crate::model::snapshot::{Snapshot, StackTotals};

use super::read::Rows;
use super::table::{Second, Table};
use super::{Recording, SegmentFolder};

/// See [`Recording::seconds`].
pub struct Seconds {
    recording: Recording,
    next: usize,
    rows: Option<Rows<Second>>,
    batch: std::vec::IntoIter<Option<Second>>,
    /// What groups had counted when the last second ended; `None`: the start was not returned.
    last: Option<StackTotals>,
}

impl Seconds {
    pub(super) fn of(recording: &Recording) -> Self {
        Self {
            recording: recording.clone(),
            next: 0,
            rows: None,
            batch: Vec::new().into_iter(),
            last: None,
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
            if row.span_ns == 0 && self.last.is_some() {
                continue;
            }
            match serde_json::from_str::<Snapshot<StackTotals>>(&row.counters) {
                Ok(mut totals) => {
                    let now = totals.take_totals();
                    let before = self.last.get_or_insert_with(|| now.clone());
                    let snapshot = totals.since(before, &now);
                    self.last = Some(now);
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
