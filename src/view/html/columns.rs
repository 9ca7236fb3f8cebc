//! The intervals of a run, as the columns of its pictures: for each series of calls the time in its rows and its
//! histogram.

use serde::{Deserialize, Serialize};

use crate::model::histogram::{STEPS, step_of};
use crate::model::ids::Row;
use crate::printable::printable;
use crate::view::json::form;
use crate::view::markup::class;

/// When there are this many columns, each two adjacent ones become one. Few screens have room for more.
const MOST: usize = 1200;
/// Series of a run: families, or ops of all layers. Files of other programs may have any number.
const MOST_SERIES: usize = 400;

/// All columns of a run, as written to the file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Columns {
    /// Which run it is, where there are two.
    #[serde(default)]
    pub name: String,
    /// The start of the run, in milliseconds since the epoch.
    start: i64,
    /// The intervals of a column; the last one may have fewer.
    per: u64,
    series: Vec<Series>,
    columns: Vec<Column>,
    /// The intervals of the last column.
    #[serde(skip)]
    last: u64,
}

/// Calls that are drawn together: their name, and the label and class of each row.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Series(String, Vec<(String, String)>);

/// Milliseconds since the start of the run, nanoseconds of length, and the calls of each series.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Column(i64, u64, Vec<Part>);

/// The time in each row, 0 also where it is not measured, and the counts of adjacent steps of the histogram after the
/// number of the first one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Part(Vec<u64>, Vec<u64>);

impl Columns {
    /// Adds an interval.
    pub fn push(&mut self, report: &form::Report) {
        let start: Option<jiff::Timestamp> = report.start.parse().ok();
        let start = start.map_or(self.start, |start| start.as_millisecond());
        if self.columns.is_empty() {
            (self.start, self.per) = (start, 1);
        }
        let mut column = Column(start.saturating_sub(self.start), report.duration_ns, Vec::new());
        if let Some(stack) = &report.stack {
            let is_split = stack.kernel_time_split != Some(false);
            for family in stack.families.iter().filter(|family| family.count > 0) {
                let rows = family.rows.iter().map(|row| (row.row.as_str(), row.ns.unwrap_or(0)));
                self.add(&family.family, rows, is_split, &family.buckets, &mut column);
            }
        } else {
            for layer in &report.layers {
                for op in layer.ops.iter().filter(|op| op.count.is_some_and(|count| count > 0)) {
                    let name = format!("{} {}", layer.layer, op.op);
                    let buckets = op.buckets.as_deref().unwrap_or_default();
                    self.add(&name, std::iter::empty(), true, buckets, &mut column);
                }
            }
        }
        match self.columns.last_mut() {
            Some(last) if self.last < self.per => {
                last.add(&column);
                self.last += 1;
            }
            _ => {
                self.columns.push(column);
                self.last = 1;
            }
        }
        if self.columns.len() >= MOST && self.last == self.per {
            self.halve();
        }
    }

    /// Sets the numbers of one series in a column.
    fn add<'a>(
        &mut self,
        name: &str,
        rows: impl Iterator<Item = (&'a str, u64)>,
        is_split: bool,
        buckets: &[form::Bucket],
        column: &mut Column,
    ) {
        let name = printable(name);
        let index = match self.series.iter().position(|series| series.0 == name) {
            Some(index) => index,
            None if self.series.len() < MOST_SERIES => {
                self.series.push(Series(name, Vec::new()));
                self.series.len() - 1
            }
            None => return,
        };
        let known = &mut self.series[index].1;
        let mut part = Part(vec![0; known.len()], packed(buckets));
        for (name, ns) in rows.filter(|(_, ns)| *ns > 0) {
            // Rows of later versions have no colour.
            let Ok(row) = name.parse::<Row>() else { continue };
            let label = row.label(is_split);
            let at = known.iter().position(|(known, _)| known == label).unwrap_or_else(|| {
                known.push((label.to_owned(), class(row).to_owned()));
                part.0.push(0);
                known.len() - 1
            });
            part.0[at] = ns;
        }
        if column.2.len() <= index {
            column.2.resize(index + 1, Part::default());
        }
        column.2[index] = part;
    }

    /// Makes one column of each two.
    fn halve(&mut self) {
        let mut halved: Vec<Column> = Vec::with_capacity(MOST);
        for pair in self.columns.chunks(2) {
            let mut column = pair[0].clone();
            pair[1..].iter().for_each(|other| column.add(other));
            halved.push(column);
        }
        // With an odd number, the last column is only half full.
        self.last = if self.columns.len().is_multiple_of(2) {
            self.per * 2
        } else {
            self.per
        };
        self.columns = halved;
        self.per *= 2;
    }

    /// The intervals of a column, and whether there is more than one column.
    #[must_use]
    pub fn extent(&self) -> (u64, bool) {
        (self.per, self.columns.len() > 1)
    }

    /// Whether a file of this program can have these columns: the names of series and rows are drawn as text, classes
    /// name a colour.
    #[must_use]
    pub fn is_possible(&self) -> bool {
        let is_part = |part: &Part| part.1.len() <= STEPS + 1 && part.0.len() <= 100;
        let is_column = |column: &Column| column.2.len() <= self.series.len() && column.2.iter().all(is_part);
        let is_text = |text: &str| printable(text) == text;
        let is_series = |Series(name, rows): &Series| {
            is_text(name) && rows.len() <= 100 && rows.iter().all(|(label, class)| is_text(label) && is_text(class))
        };
        self.columns.len() <= MOST
            && self.series.len() <= MOST_SERIES
            && self.series.iter().all(is_series)
            && self.columns.iter().all(is_column)
    }
}

impl Column {
    fn add(&mut self, other: &Self) {
        self.1 = self.1.saturating_add(other.1);
        if self.2.len() < other.2.len() {
            self.2.resize(other.2.len(), Part::default());
        }
        for (part, other) in self.2.iter_mut().zip(&other.2) {
            part.add(other);
        }
    }
}

impl Part {
    fn add(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (ns, other) in self.0.iter_mut().zip(&other.0) {
            *ns = ns.saturating_add(*other);
        }
        let mut steps = unpacked(&self.1);
        for (step, other) in steps.iter_mut().zip(unpacked(&other.1)) {
            *step = step.saturating_add(other);
        }
        self.1 = packed_steps(&steps);
    }
}

/// The first step with calls, and the counts from there to the last one.
fn packed(buckets: &[form::Bucket]) -> Vec<u64> {
    let mut steps = vec![0_u64; STEPS];
    for bucket in buckets {
        let step = &mut steps[step_of(bucket.ge_ns)];
        *step = step.saturating_add(bucket.count);
    }
    packed_steps(&steps)
}

fn packed_steps(steps: &[u64]) -> Vec<u64> {
    let is_used = |count: &u64| *count > 0;
    let (Some(first), Some(last)) = (steps.iter().position(is_used), steps.iter().rposition(is_used)) else {
        return Vec::new();
    };
    let first_number = first as u64;
    std::iter::once(first_number)
        .chain(steps[first..=last].iter().copied())
        .collect()
}

fn unpacked(packed: &[u64]) -> Vec<u64> {
    let mut steps = vec![0; STEPS];
    if let Some((first, counts)) = packed.split_first() {
        let first = usize::try_from(*first).unwrap_or(STEPS).min(STEPS);
        for (step, count) in steps[first..].iter_mut().zip(counts) {
            *step = *count;
        }
    }
    steps
}
