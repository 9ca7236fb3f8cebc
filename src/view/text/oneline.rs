//! Reports as one line each, like `vmstat`: for the whole stack all calls together and where their time was spent, for
//! layers the number of calls and their latency.

use super::color::{Mark, Marked};
use super::label::{self, FILE_SYSTEMS, short as short_label};
use super::number::{ColumnUnit, rounded, short, thousands};
use super::{WIDTH, notes};
use crate::model::histogram::{Histogram, widest};
use crate::model::ids::{Layer, Row};
use crate::model::report::stack::{FamilyReport, RowReport, StackReport};
use crate::model::report::{LayerReport, OpReport, Report};
use crate::view::Screen;

/// The unit of a call's times, in every line.
const EACH: ColumnUnit = ColumnUnit {
    name: "us",
    size: 1_000,
    decimals: 1,
};
const AVERAGE: &str = "avg us";
const P99: &str = "p99 us";

/// Prints the lines of a run.
#[derive(Debug, Default)]
pub struct OneLine {
    heading: Vec<String>,
    /// Lines since the heading, including it.
    since: usize,
}

impl OneLine {
    /// The next line, preceded by the heading if it is the first one, if the heading changes, and on each new screen. A
    /// line with what deserves attention may follow.
    pub fn next(&mut self, report: &Report, screen: Screen) -> String {
        let (heading, line) = table(report, screen.width.unwrap_or(WIDTH));
        // Failed calls are common, and would add a line to each interval.
        let changes = notes::changes(report, false);
        let lines: Vec<Marked> = [Some(line), changes].into_iter().flatten().collect();
        let is_full = screen.height.is_some_and(|height| self.since + lines.len() >= height);
        let mut page = super::Page::colored(screen.width, screen.is_colored);
        if heading != self.heading || is_full {
            heading.iter().for_each(|line| page.line(line));
            self.since = 0;
            self.heading = heading;
        }
        lines.iter().for_each(|line| page.marked(line));
        self.since += page.text.lines().count();
        page.text
    }
}

/// A heading and a report's line.
fn table(report: &Report, width: usize) -> (Vec<String>, Marked) {
    match &report.stack {
        Some(stack) => {
            let (head, line) = stack_line(report, stack, width);
            (vec![head], line)
        }
        None => layer_line(report, width),
    }
}

fn per_second(n: u64, report: &Report) -> u64 {
    let ns = report.length.as_nanos();
    rounded(u128::from(n) * 1_000_000_000, ns).unwrap_or(0)
}

/// A count in seven columns.
fn count(n: u64) -> String {
    let whole = thousands(n);
    if whole.len() <= 7 { whole } else { short(n) }
}

/// A time in microseconds, in seven columns.
fn each(ns: u64) -> String {
    let in_tenths = EACH.number(ns);
    if in_tenths.len() <= 7 {
        in_tenths
    } else {
        count(rounded(ns.into(), EACH.size.into()).unwrap_or(0))
    }
}

fn average(total_ns: u64, calls: u64) -> String {
    rounded(total_ns.into(), calls.into()).map_or_else(|| "-".to_owned(), each)
}

fn quantile(histogram: &Histogram, extremes: Option<(u64, u64)>) -> String {
    histogram.quantile(0.99, extremes).map_or_else(|| "-".to_owned(), each)
}

/// One row, or several, as a column.
#[derive(Debug, Clone, Copy)]
enum Column {
    One(Row),
    FileSystems,
}

/// All that there are.
const ROWS: [Column; 10] = [
    Column::One(Row::Layer(Layer::Syscall)),
    Column::One(Row::Layer(Layer::Vfs)),
    Column::FileSystems,
    Column::One(Row::Queue),
    Column::One(Row::Device),
    Column::One(Row::Others),
    Column::One(Row::Journal),
    Column::One(Row::Lock),
    Column::One(Row::Other),
    Column::One(Row::RunQueue),
];

impl Column {
    fn has(self, row: &RowReport) -> bool {
        match self {
            Self::One(only) => row.row == only,
            Self::FileSystems => row.is_layer() && !matches!(row.row, Row::Layer(Layer::Syscall | Layer::Vfs)),
        }
    }
}

/// The measured columns, with their full names.
fn columns(stack: &StackReport) -> Vec<(&'static str, Column)> {
    let is_split = stack.families.iter().any(FamilyReport::is_split);
    let is_measured = |column: &Column| {
        let mut rows = stack.families.iter().flat_map(|family| &family.rows);
        rows.any(|row| column.has(row) && row.ns.is_some())
    };
    let named = |column| match column {
        Column::One(row) => (row.label(is_split), column),
        Column::FileSystems => (FILE_SYSTEMS, column),
    };
    ROWS.into_iter().filter(is_measured).map(named).collect()
}

/// The legend of the columns.
#[must_use]
pub fn explained(stack: &StackReport) -> String {
    let words = label::explained(columns(stack).iter().map(|(name, _)| *name));
    let words = words.map_or_else(String::new, |words| format!("; {words}"));
    format!(
        "ms/s: time inside calls per second, 1,000 is one thread all the time; then % of that time in each row{words}"
    )
}

/// The numbers of all calls together, and the share of time in each row; on a narrow terminal with fewer of the former.
fn stack_line(report: &Report, stack: &StackReport, width: usize) -> (String, Marked) {
    let called: Vec<&FamilyReport> = stack.families.iter().filter(|family| family.count() > 0).collect();
    let calls = called.iter().map(|family| family.count()).fold(0, u64::saturating_add);
    let total = called.iter().map(|family| family.total_ns).fold(0, u64::saturating_add);
    let mut histogram = Histogram::default();
    called.iter().for_each(|family| histogram.add(&family.histogram));
    let extremes = called.iter().filter_map(|family| family.extremes).reduce(widest);
    let numbers = [
        ("calls/s", 8, count(per_second(calls, report))),
        (
            "ms/s",
            7,
            count(rounded(per_second(total, report).into(), 1_000_000).unwrap_or(0)),
        ),
        (AVERAGE, 8, average(total, calls)),
        (P99, 8, quantile(&histogram, extremes)),
    ];
    let shares: Vec<(&'static str, String, u64)> = columns(stack)
        .into_iter()
        .map(|(name, column)| {
            let rows = called
                .iter()
                .flat_map(|family| &family.rows)
                .filter(|row| column.has(row));
            let ns = rows.filter_map(|row| row.ns).fold(0, u64::saturating_add);
            let cell = match rounded(u128::from(ns) * 100, total.into()) {
                _ if ns == 0 => ".".to_owned(),
                share => share.unwrap_or(0).to_string(),
            };
            (name, cell, ns)
        })
        .collect();
    let largest = shares.iter().map(|(.., ns)| *ns).max().filter(|ns| *ns > 0);
    let form = |(shown, name_of): &Form| {
        let mut head = format!("{:<TIME$}", "time");
        let mut line = Marked::from(format!("{:<TIME$}", report.time_of_day));
        for (name, width, cell) in numbers.iter().filter(|(name, ..)| shown.contains(name)) {
            head.push_str(&format!("{name:>width$}"));
            line.push(&format!("{cell:>width$}"), None);
        }
        head.push(' ');
        line.push(" ", None);
        for (name, cell, ns) in &shares {
            let name = name_of(name);
            let width = name.chars().count().max(3) + 1;
            head.push_str(&format!("{name:>width$}"));
            line.push(
                &format!("{cell:>width$}"),
                (largest == Some(*ns)).then_some(Mark::Guilty),
            );
        }
        (head, line)
    };
    let forms: [Form; 4] = [
        (&["calls/s", "ms/s", AVERAGE, P99], |name| name),
        (&["calls/s", "ms/s", AVERAGE, P99], short_label),
        (&["calls/s", "ms/s"], short_label),
        (&["ms/s"], short_label),
    ];
    let fits = |candidate: &&Form| form(candidate).0.chars().count() <= width;
    form(forms.iter().find(fits).unwrap_or(&forms[3]))
}

/// The numbers before the rows, and how rows are named.
type Form = (&'static [&'static str], fn(&'static str) -> &'static str);

/// The columns of each layer; the first set that fits is used.
const FORMS: [&[&str]; 3] = [&["calls/s", AVERAGE, P99], &["calls/s", AVERAGE], &[AVERAGE]];
/// Width of a layer's number, with a blank before it.
const CELL: usize = 8;
const TIME: usize = 8;

/// The calls per second of each layer, and their latency.
fn layer_line(report: &Report, width: usize) -> (Vec<String>, Marked) {
    let fits = |form: &&&[&str]| TIME + report.layers.len() * (form.len() * CELL + 1) <= width;
    let form = FORMS.iter().find(fits).unwrap_or(&FORMS[FORMS.len() - 1]);
    let mut names = " ".repeat(TIME);
    let mut head = format!("{:<TIME$}", "time");
    let mut line = Marked::from(format!("{:<TIME$}", report.time_of_day));
    for layer in &report.layers {
        names.push_str(&format!(
            " {:>1$}",
            rule(layer.layer.name(), form.len() * CELL - 1),
            form.len() * CELL
        ));
        head.push(' ');
        line.push(" ", None);
        let mark = layer.ops.is_empty().then_some(Mark::NotMeasured);
        let cells = cells(layer, report);
        for name in *form {
            let cell = cells
                .iter()
                .find(|(known, _)| known == name)
                .map_or("", |(_, cell)| cell);
            head.push_str(&format!("{name:>CELL$}"));
            line.push(&format!("{cell:>CELL$}"), mark);
        }
    }
    (vec![names, head], line)
}

/// `------ vfs ------`; above a single column only the name.
fn rule(name: &str, width: usize) -> String {
    if width < CELL {
        return name.to_owned();
    }
    format!("{:-^width$}", format!(" {name} "))
}

fn cells(layer: &LayerReport, report: &Report) -> [(&'static str, String); 3] {
    let none = || "-".to_owned();
    if layer.ops.is_empty() {
        return [("calls/s", none()), (AVERAGE, none()), (P99, none())];
    }
    let sum = |of: fn(&OpReport) -> u64| layer.ops.iter().map(of).fold(0, u64::saturating_add);
    let (calls, total) = (sum(OpReport::count), sum(|op| op.total_ns));
    let mut histogram = Histogram::default();
    layer.ops.iter().for_each(|op| histogram.add(&op.histogram));
    let called = layer.ops.iter().filter(|op| op.count() > 0);
    let extremes = called.filter_map(|op| op.extremes).reduce(widest);
    [
        ("calls/s", count(per_second(calls, report))),
        (AVERAGE, average(total, calls)),
        (P99, quantile(&histogram, extremes)),
    ]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::ids::{Family, Op};

    const SCREEN: Screen = Screen {
        width: None,
        height: None,
        is_colored: false,
    };

    fn histogram(calls: u64) -> Histogram {
        let mut histogram = Histogram::default();
        (0..calls).for_each(|_| histogram.record(1_000_000));
        histogram
    }

    fn family(family: Family, calls: u64, rows: &[(Row, Option<u64>)]) -> FamilyReport {
        let row = |&(row, ns)| RowReport { row, ns, calls: None };
        FamilyReport {
            total_ns: rows.iter().filter_map(|(_, ns)| *ns).sum(),
            histogram: histogram(calls),
            extremes: (calls > 0).then_some((900_000, 1_000_000)),
            rows: rows.iter().map(row).collect(),
            ..FamilyReport::new(family)
        }
    }

    fn of_stack(families: Vec<FamilyReport>) -> Report {
        Report {
            time_of_day: "11:05:10".to_owned(),
            length: Duration::from_secs(2),
            stack: Some(StackReport {
                families,
                ..StackReport::default()
            }),
            ..Report::default()
        }
    }

    fn of_layers(layers: &[Layer], calls: u64) -> Report {
        let layer = |&layer: &Layer| LayerReport {
            ops: vec![OpReport {
                total_ns: calls * 1_000_000,
                histogram: histogram(calls),
                extremes: (calls > 0).then_some((900_000, 1_000_000)),
                ..OpReport::new(Op::Read)
            }],
            ..LayerReport::new(layer)
        };
        Report {
            time_of_day: "11:05:10".to_owned(),
            length: Duration::from_secs(1),
            layers: layers.iter().map(layer).collect(),
            ..Report::default()
        }
    }

    #[test]
    fn all_calls_are_one_line() {
        let read = family(
            Family::Read,
            300,
            &[
                (Row::Layer(Layer::Syscall), Some(30_000_000)),
                (Row::Layer(Layer::Vfs), None),
                (Row::Layer(Layer::Ext4), Some(100_000_000)),
                (Row::Layer(Layer::Overlay), Some(70_000_000)),
                (Row::Device, Some(780_000_000)),
                (Row::Lock, Some(0)),
                (Row::RunQueue, Some(20_000_000)),
            ],
        );
        let idle = family(Family::Write, 0, &[(Row::Layer(Layer::Syscall), Some(0))]);
        assert_eq!(
            OneLine::default().next(&of_stack(vec![read, idle]), SCREEN),
            "time     calls/s   ms/s  avg us  p99 us  syscall  fs device lock run queue\n\
             11:05:10     150    500 3,333.3 1,000.0        3  17     78    .         2\n"
        );
        let idle = family(Family::Write, 0, &[(Row::Layer(Layer::Syscall), Some(0))]);
        let text = OneLine::default().next(&of_stack(vec![idle]), SCREEN);
        assert!(
            text.contains("11:05:10       0      0       -       -  ") && text.ends_with(" .\n"),
            "{text}"
        );
    }

    #[test]
    fn time_that_is_not_split_is_called_so() {
        let rows = |vfs| {
            let rows = [
                (Row::Layer(Layer::Syscall), Some(30_000_000)),
                (Row::Layer(Layer::Vfs), vfs),
                (Row::Lock, Some(0)),
            ];
            of_stack(vec![family(Family::Read, 300, &rows)])
        };
        let explained = |report: &Report| report.stack.as_ref().map(super::explained).unwrap_or_default();
        let (whole, split) = (rows(None), rows(Some(0)));
        for width in [50, 60, 80, 200] {
            let screen = Screen {
                width: Some(width),
                height: None,
                is_colored: false,
            };
            let text = OneLine::default().next(&whole, screen);
            let lines: Vec<&str> = text.lines().collect();
            let (kernel, sys) = match width {
                50 => (" kernel lck", " sys vfs lck\n"),
                60 => (" kernel lck", " syscall vfs lock\n"),
                _ => (" kernel (not split) lock", " syscall vfs lock\n"),
            };
            assert!(lines[0].ends_with(kernel), "{text}");
            assert_eq!(lines[0].len(), lines[1].len(), "{text}");
            let text = OneLine::default().next(&split, screen);
            assert!(text.contains(sys), "{text}");
        }
        assert!(explained(&whole).ends_with("% of that time in each row; kernel: kernel (not split); lck: lock"));
        assert!(explained(&split).ends_with("% of that time in each row; sys: syscall; lck: lock"));
    }

    #[test]
    fn no_line_is_wider_than_80_columns() {
        let layers = [Layer::Syscall, Layer::Vfs, Layer::Ext4, Layer::Overlay].map(Row::Layer);
        let all = layers.into_iter().chain(Row::WAITS);
        let rows: Vec<_> = all.map(|row| (row, Some(u64::MAX / 32))).collect();
        let text = OneLine::default().next(&of_stack(vec![family(Family::Read, 500, &rows)]), SCREEN);
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert_eq!(text.lines().count(), 2, "{text}");
        let narrow = Screen {
            width: Some(60),
            height: None,
            is_colored: false,
        };
        let text = OneLine::default().next(&of_stack(vec![family(Family::Read, 500, &rows)]), narrow);
        assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
        // As many as there is room for beside each other; more are wrapped.
        for n in 1..=8 {
            let text = OneLine::default().next(&of_layers(&Layer::ALL[..n], 200), SCREEN);
            assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{n}: {text}");
            assert_eq!(text.lines().count(), 3, "{n}: {text}");
        }
    }

    #[test]
    fn layers_are_beside_each_other() {
        assert_eq!(
            OneLine::default().next(&of_layers(&[Layer::Vfs, Layer::Blk], 200), SCREEN),
            "          --------- vfs ---------  --------- blk ---------\n\
             time      calls/s  avg us  p99 us  calls/s  avg us  p99 us\n\
             11:05:10      200 1,000.0 1,000.0      200 1,000.0 1,000.0\n"
        );
    }

    #[test]
    fn the_heading_is_on_each_screen() {
        let headings = |height| {
            let mut lines = OneLine::default();
            let screen = Screen {
                width: None,
                height,
                is_colored: false,
            };
            let text: Vec<String> = (0..7)
                .map(|_| lines.next(&of_layers(&[Layer::Vfs], 1), screen))
                .collect();
            text.iter().map(|text| text.lines().count() == 3).collect::<Vec<_>>()
        };
        // Two lines of heading and two of reports; the cursor is on the fifth line of the terminal.
        assert_eq!(headings(Some(5)), [true, false, true, false, true, false, true]);
        assert_eq!(headings(None), [true, false, false, false, false, false, false]);
        let mut lines = OneLine::default();
        lines.next(&of_layers(&[Layer::Vfs], 1), SCREEN);
        assert_eq!(
            lines
                .next(&of_layers(&[Layer::Vfs, Layer::Blk], 1), SCREEN)
                .lines()
                .count(),
            3
        );
    }
}
