//! An interval of the whole stack: a line for each family that shows where its time was spent.

use super::Page;
use super::color::{Mark, Marked};
use super::family::{average, fs_reached, is_shown_layer};
use super::label::{self, short};
use super::number::{ColumnUnit, TIME_COLUMNS, column_units, rounded, thousands};
use crate::model::report::Report;
use crate::model::report::stack::{FamilyReport, RowReport};

/// The heading of the rows if they have no columns of their own.
const LIST: &str = "spent in (%)";

/// Prints the lines of `families`, with the columns of `all`. Returns the columns' legend.
pub fn print_lines(report: &Report, all: &[FamilyReport], families: &[FamilyReport], page: &mut Page) -> String {
    let called: Vec<&FamilyReport> = families.iter().filter(|family| family.count() > 0).collect();
    if called.is_empty() {
        page.line(&format!("{:<8}  no I/O calls", report.time_of_day));
        return String::new();
    }
    let table = Table::fitting(report, &called, columns(all), page.width);
    for line in table.lines() {
        page.marked(&line);
    }
    format!(
        "(ms/s: time inside calls per second, 1,000 is one thread all the time; then % of that time in each row{}{})",
        if table.form == Form::List { ", + the rest" } else { "" },
        table.explained().map_or_else(String::new, |words| format!("; {words}"))
    )
}

/// The rows to show: measured layers and waits.
pub fn columns(all: &[FamilyReport]) -> Vec<Column> {
    let seen = fs_reached(all);
    let Some(first) = all.first() else { return Vec::new() };
    let shown = first.rows.iter().enumerate();
    let shown = shown.filter(|(_, row)| row.ns.is_some() && is_shown_layer(row, &seen));
    let column = |(index, row): (usize, &RowReport)| Column {
        index,
        label: first.label(row),
        is_used: all.iter().any(|family| time_in(family, index) > 0),
        is_listed: all
            .iter()
            .any(|family| listed(family).any(|(of_family, _)| of_family == index)),
    };
    shown.map(column).collect()
}

/// A row as a column.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    /// Index of the row in a family's rows.
    index: usize,
    pub label: &'static str,
    /// Some family has time in it.
    is_used: bool,
    /// Some family has enough time in it to name it in a list.
    is_listed: bool,
}

fn time_in(family: &FamilyReport, index: usize) -> u64 {
    family.rows.get(index).and_then(|row| row.ns).unwrap_or(0)
}

/// A time in percent of its family's.
fn share(family: &FamilyReport, ns: u64) -> u64 {
    rounded(u128::from(ns) * 100, family.total_ns.into()).unwrap_or(0)
}

/// A family's rows by decreasing time, with their shares in percent, without those below half a percent.
fn listed(family: &FamilyReport) -> impl Iterator<Item = (usize, u64)> {
    let mut rows: Vec<(usize, u64)> = (0..family.rows.len())
        .map(|index| (index, time_in(family, index)))
        .collect();
    rows.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    let shares = rows.into_iter().map(|(index, ns)| (index, share(family, ns)));
    shares.filter(|(_, share)| *share > 0)
}

/// How rows are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// A column each, with its full name.
    Whole,
    /// A column each, with its short name.
    Short,
    /// By name, as many for each family as fit. A smaller set of columns would hide the row in which some family spent
    /// most of its time.
    List,
}

struct Table<'a> {
    report: &'a Report,
    called: &'a [&'a FamilyReport],
    each: ColumnUnit,
    columns: Vec<Column>,
    form: Form,
    width: usize,
}

impl<'a> Table<'a> {
    /// Full names if they fit, otherwise short ones, then without columns that have no time, otherwise a list.
    fn fitting(report: &'a Report, called: &'a [&'a FamilyReport], columns: Vec<Column>, width: usize) -> Self {
        let times = || {
            called.iter().flat_map(|family| {
                let quantile = family.histogram.quantile(0.99, family.extremes);
                average(family).into_iter().chain(quantile)
            })
        };
        let units = column_units(TIME_COLUMNS, times());
        let is_narrow = |unit: &&ColumnUnit| times().all(|ns| unit.number(ns).len() <= 7);
        let mut table = Self {
            report,
            called,
            each: *units.iter().find(is_narrow).unwrap_or(&units[0]),
            columns,
            form: Form::Whole,
            width,
        };
        let fits = |table: &Self| table.lines().iter().all(|line| line.width() <= width);
        if fits(&table) {
            return table;
        }
        table.form = Form::Short;
        if fits(&table) {
            return table;
        }
        // On a terminal that is only slightly too narrow, the layout still does not change between intervals.
        if width >= super::WIDTH {
            let all = table.columns.clone();
            table.columns.retain(|column| column.is_used);
            if fits(&table) {
                return table;
            }
            table.columns = all;
        }
        table.form = Form::List;
        table.columns.retain(|column| column.is_listed);
        table
    }

    fn lines(&self) -> Vec<Marked> {
        let seconds = self.report.length.as_secs_f64();
        let per_second = |n: f64| if seconds > 0.0 { n / seconds } else { 0.0 };
        let each = |name: &str| format!("{name} {}", self.each.name);
        let head = format!(
            "{:<8} {:>7} {:>6} {:>7} {:>7}",
            self.report.time_of_day,
            "calls/s",
            "ms/s",
            each("avg"),
            each("p99")
        );
        let mut lines = vec![Marked::from(head + &self.heads())];
        for family in self.called {
            let time = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), |ns| self.each.number(ns));
            let numbers = format!(
                "{:<8} {:>7} {:>6} {:>7} {:>7}",
                family.family.name(),
                thousands(per_second(family.count() as f64).round() as u64),
                thousands(per_second(family.total_ns as f64 / 1e6).round() as u64),
                time(average(family)),
                time(family.histogram.quantile(0.99, family.extremes))
            );
            let mut line = Marked::from(numbers);
            match self.form {
                Form::List => {
                    let list = self.list(family, self.width.saturating_sub(line.width()));
                    // The first one is the largest.
                    let first = list.find([',', '+']).unwrap_or(list.len());
                    line.push(&list[..first], Some(Mark::Guilty));
                    line.push(&list[first..], None);
                }
                Form::Whole | Form::Short => line.append(&self.cells(family)),
            }
            lines.push(line);
        }
        lines
    }

    fn heads(&self) -> String {
        if self.form == Form::List {
            return format!("  {LIST}");
        }
        let heads = self.columns.iter().map(|column| {
            let (name, width) = self.head(column);
            format!("{name:>width$}")
        });
        heads.collect()
    }

    /// A column's heading, and its width with a blank before it.
    fn head(&self, column: &Column) -> (&'static str, usize) {
        let name = if self.form == Form::Whole {
            column.label
        } else {
            short(column.label)
        };
        (name, name.chars().count().max(3) + 1)
    }

    fn cells(&self, family: &FamilyReport) -> Marked {
        let largest = listed(family).next().map(|(index, _)| index);
        let mut cells = Marked::default();
        for column in &self.columns {
            let (cell, mark) = match family.rows.get(column.index).and_then(|row| row.ns) {
                None => ("-".to_owned(), Some(Mark::NotMeasured)),
                Some(0) => (".".to_owned(), None),
                Some(ns) => {
                    let is_largest = largest == Some(column.index);
                    (share(family, ns).to_string(), is_largest.then_some(Mark::Guilty))
                }
            };
            let (_, width) = self.head(column);
            cells.push(&format!("{cell:>width$}"), mark);
        }
        cells
    }

    /// `  dev 89, ext4 8 +3`: as many rows as fit, and the sum of the others where that fits, too.
    fn list(&self, family: &FamilyReport, room: usize) -> String {
        let shares: Vec<(usize, u64)> = listed(family).collect();
        let part = |(index, share): &(usize, u64)| {
            let label = family.rows.get(*index).map_or("", |row| family.label(row));
            format!("{} {share}", short(label))
        };
        let fits = |list: &String| list.chars().count() <= room;
        let mut forms = (1..=shares.len()).rev().flat_map(|shown| {
            let parts: Vec<String> = shares.iter().take(shown).map(part).collect();
            let list = format!("  {}", parts.join(", "));
            let known = shares.iter().take(shown).map(|(_, share)| share).sum();
            let rest = 100_u64.saturating_sub(known);
            let whole = (shown < shares.len() && rest > 0).then(|| format!("{list} +{rest}"));
            whole.into_iter().chain([list])
        });
        forms.find(fits).unwrap_or_default()
    }

    /// `dev: device; run: run queue`
    fn explained(&self) -> Option<String> {
        if self.form == Form::Whole {
            return None;
        }
        label::explained(self.columns.iter().map(|column| column.label))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Unit;
    use super::super::family::{rows, unit_of, verdict};
    use super::*;
    use crate::model::ids::{Family, Layer, Row};

    const ROWS: [Row; 5] = [
        Row::Layer(Layer::Syscall),
        Row::Layer(Layer::Ext4),
        Row::Queue,
        Row::Device,
        Row::RunQueue,
    ];

    fn family(family: Family, rows: [u64; 5]) -> FamilyReport {
        let row = |(row, ns)| RowReport {
            row,
            ns: Some(ns),
            calls: Some(1),
        };
        let mut histogram = crate::model::histogram::Histogram::default();
        histogram.record(1_000);
        FamilyReport {
            total_ns: rows.iter().sum(),
            histogram,
            rows: ROWS.into_iter().zip(rows).map(row).collect(),
            ..FamilyReport::new(family)
        }
    }

    fn shown(all: &[FamilyReport], width: usize) -> Vec<String> {
        let called: Vec<&FamilyReport> = all.iter().collect();
        let report = Report {
            time_of_day: "11:05:10".to_owned(),
            ..Report::default()
        };
        let lines = Table::fitting(&report, &called, columns(all), width).lines();
        lines.into_iter().map(|line| line.text).collect()
    }

    #[test]
    fn each_familys_largest_row_is_shown_whatever_the_width() {
        let all = [
            family(Family::Read, [1_000, 2_000, 300_000, 900_000, 50_000]),
            family(Family::Open, [90, 10, 0, 0, 0]),
            family(Family::Write, [0, 0, 0, 0, 0]),
        ];
        let rows = |width| -> Vec<String> {
            let lines = shown(&all, width);
            assert!(lines.iter().all(|line| line.chars().count() <= width), "{lines:?}");
            lines.iter().map(|line| line[39..].to_owned()).collect()
        };
        assert_eq!(
            rows(200),
            [
                " syscall ext4 queue device run queue",
                "       0    0    24     72         4",
                "      90   10     .      .         .",
                "       .    .     .      .         ."
            ]
        );
        assert_eq!(
            rows(60),
            [
                " sys ext4 que dev run",
                "   0    0  24  72   4",
                "  90   10   .   .   .",
                "   .    .   .   .   ."
            ]
        );
        assert_eq!(
            rows(58),
            ["  spent in (%)", "  dev 72, que 24 +4", "  sys 90, ext4 10", ""].map(str::to_owned)
        );
        // No row is left out to make room for the sum of the others.
        assert_eq!(rows(57)[1], "  dev 72, que 24");
    }

    #[test]
    fn columns_without_time_go_first_on_a_usual_terminal() {
        let mut all = [family(Family::Read, [10, 20, 0, 0, 0])];
        let layers = [Layer::Btrfs, Layer::Xfs, Layer::F2fs, Layer::Nfs].map(Row::Layer);
        let waits = [Row::Layer(Layer::Overlay), Row::Journal, Row::Lock, Row::Other];
        for row in layers.into_iter().chain(waits) {
            all[0].rows.push(RowReport {
                row,
                ns: Some(0),
                calls: Some(1),
            });
        }
        let lines = shown(&all, 80);
        assert!(lines[0].ends_with("p99 ns sys ext4"), "{lines:?}");
        let lines = shown(&all, 60);
        assert!(lines[1].ends_with("  ext4 67, sys 33"), "{lines:?}");
        let lines = shown(&all, 200);
        assert!(lines[0].ends_with(" overlay journal lock other"), "{lines:?}");
    }

    #[test]
    fn headline_row_and_column_have_one_name() {
        for row in [
            Row::Device,
            Row::RunQueue,
            Row::Journal,
            Row::Layer(Layer::Ext4),
            Row::Layer(Layer::Syscall),
        ] {
            let parts = [(row, 9), (Row::Layer(Layer::Vfs), 1)].map(|(row, ns)| RowReport {
                row,
                ns: Some(ns),
                calls: (!row.is_wait()).then_some(1),
            });
            let family = FamilyReport {
                total_ns: 10,
                rows: parts.to_vec(),
                ..FamilyReport::new(Family::Read)
            };
            assert!(verdict(&family, 80).starts_with(&format!("{row}: 90 % of it")), "{row}");
            assert_eq!(verdict(&family, 0), format!("{row}: 90 % of it"));
            let unit = unit_of([10].into_iter(), Unit::Nanoseconds);
            assert!(rows(&family, unit, 80)[0].1.starts_with(&format!("  {row} ")), "{row}");
            let column = columns(std::slice::from_ref(&family))
                .first()
                .map(|column| column.label);
            assert_eq!(column, Some(row.name()));
        }
    }
}
