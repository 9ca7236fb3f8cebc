//! The report for people: a histogram per op in the form BCC users know, a table of totals per layer, and below it
//! everything that limits how far the numbers can be trusted. No line is wider than the terminal, or [`WIDTH`] columns
//! if there is none, except lines with a name that a user may want to copy.

mod block;
mod color;
pub mod estimate;
mod family;
mod group;
mod interval;
pub mod label;
pub(crate) mod name;
mod neighbour;
pub mod notes;
pub(crate) use crate::number;
pub mod oneline;
pub mod records;
pub mod replay;
pub(super) mod slow;
mod stack;
pub mod trigger;
mod trust;

use std::io;
use std::time::Duration;

use jiff::tz::Offset;

use self::color::{Mark, Marked};
use self::name::{beginning, shortened};
use self::notes::Printed;
use self::number::{
    BYTE_COLUMNS, ColumnUnit, TIME_COLUMNS, column_units, decimal_bytes, thousands, time_each, time_sum,
};
use self::oneline::OneLine;
use super::errno::errno_name;
use super::{Sheet, View};
use crate::model::abi::UNIT_SLOTS;
use crate::model::events::Events;
use crate::model::histogram::TOP_BIT;
use crate::model::ids::{Hook, Layer, joined};
use crate::model::report::stack::FamilyReport;
use crate::model::report::{CauseKind, Excluded, LayerReport, Loss, NotMeasured, OpReport, Report};
use crate::printable::printable;

/// The width of a report that does not go to a terminal.
pub const WIDTH: usize = 80;
/// On a narrower terminal than this, the terminal itself breaks the lines.
const LEAST_WIDTH: usize = 40;

/// Stars of a full histogram bar, in the narrow and the wide form of BCC's rows.
const STARS: usize = 40;
const STARS_WIDE: usize = 20;
/// Columns of these rows without count and stars.
const ROW: usize = 30;
const ROW_WIDE: usize = 50;

/// The unit of histograms and totals: `-u`, `-m`, or neither.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unit {
    /// Histograms in nanoseconds, totals in the most readable unit.
    #[default]
    Nanoseconds,
    Microseconds,
    Milliseconds,
}

/// The width of a line on a terminal of this width, `None` without one.
fn columns(terminal: Option<usize>) -> usize {
    terminal.unwrap_or(WIDTH).max(LEAST_WIDTH)
}

/// How to print a report.
#[derive(Debug, Clone, Copy, Default)]
pub struct TextOptions {
    pub unit: Unit,
    /// Tables only, no histograms.
    pub summary_only: bool,
    /// Also exact totals and the statistics of each probe and, for the whole stack, the rows of every family.
    pub verbose: bool,
    /// One report of many, each of this length: the whole stack has one line per family.
    pub interval: Option<Duration>,
    /// The first of them, which is followed by a legend of its columns.
    pub is_first: bool,
    /// Columns of the terminal; `None` if it is not one.
    pub width: Option<usize>,
    /// Parts that deserve attention are marked with colours.
    pub is_colored: bool,
}

/// Reports for people.
#[derive(Debug)]
pub struct Text {
    /// The options; the width, colour and the position among the reports are set for each report.
    options: TextOptions,
    /// Prints each report as one line, if requested.
    lines: Option<OneLine>,
    /// Notes that are not repeated. `None`: each report has all of them.
    printed: Option<Printed>,
    /// The headings of slow calls were printed.
    has_slow_heading: bool,
}

impl Text {
    /// `is_oneline`: each report is one line.
    #[must_use]
    pub fn new(options: TextOptions, is_oneline: bool) -> Self {
        Self {
            options: TextOptions {
                is_first: true,
                ..options
            },
            lines: is_oneline.then(OneLine::default),
            printed: None,
            has_slow_heading: false,
        }
    }

    fn print_slow_heading(&mut self, sheet: &mut Sheet<'_>) -> io::Result<()> {
        if std::mem::replace(&mut self.has_slow_heading, true) {
            return Ok(());
        }
        slow::print_heading(sheet.screen.width, &mut sheet.out)
    }
}

impl View for Text {
    /// Verbose reports repeat all notes.
    fn begin(&mut self, first: &Report, sheet: &mut Sheet<'_>) -> io::Result<()> {
        self.printed = (!self.options.verbose).then(|| Printed::of(first));
        if first.stack.as_ref().is_some_and(|stack| stack.slow.is_some()) {
            self.print_slow_heading(sheet)?;
        }
        Ok(())
    }

    fn events(&mut self, events: &Events, sheet: &mut Sheet<'_>) -> io::Result<()> {
        let zone = Offset::from_seconds(events.utc_offset).unwrap_or(Offset::UTC);
        // Reports of single layers do not say at the beginning that they have slow calls.
        if !events.slow_calls.is_empty() {
            self.print_slow_heading(sheet)?;
        }
        for call in &events.slow_calls {
            slow::print(call, zone, sheet.screen, &mut sheet.out)?;
        }
        if events.left_out.sum() > 0 {
            slow::print_left_out(events.left_out, sheet.screen, &mut sheet.out)?;
        }
        Ok(())
    }

    fn report(&mut self, report: &Report, sheet: &mut Sheet<'_>) -> io::Result<()> {
        let mut report = report.clone();
        if let Some(printed) = &mut self.printed {
            printed.take_from(&mut report);
        }
        if let Some(lines) = &mut self.lines {
            return sheet.out.write_all(lines.next(&report, sheet.screen).as_bytes());
        }
        self.options.width = sheet.screen.width;
        self.options.is_colored = sheet.screen.is_colored;
        print(&report, &self.options, &mut sheet.out)?;
        self.options.is_first = false;
        Ok(())
    }
}

impl TextOptions {
    /// Whether a report has at most one line besides its numbers.
    fn is_brief(self) -> bool {
        self.interval.is_some() && !self.verbose
    }
}

impl Unit {
    /// As in the header of a histogram.
    fn header(self) -> &'static str {
        match self {
            Self::Nanoseconds => "nsecs",
            Self::Microseconds => "usecs",
            Self::Milliseconds => "msecs",
        }
    }

    /// Short name and length in nanoseconds of the unit chosen for totals.
    fn of_totals(self) -> Option<(&'static str, u64)> {
        match self {
            Self::Nanoseconds => None,
            Self::Microseconds => Some(("us", 1_000)),
            Self::Milliseconds => Some(("ms", 1_000_000)),
        }
    }
}

/// Prints `report` and a blank line in a single write, so that a report makes as few system calls as possible on the
/// measured machine.
///
/// # Errors
///
/// Any error from writing to `out`.
pub fn print(report: &Report, options: &TextOptions, out: &mut impl io::Write) -> io::Result<()> {
    let mut page = Page::of(options);
    let lines = report.stack.as_ref().filter(|_| options.interval.is_some());
    if let (Some(stack), None) = (lines, &report.groups) {
        stack::print_interval(report, stack, options, &mut page);
        print_end(report, options, &mut page);
        return out.write_all(page.text.as_bytes());
    }
    let heading = format!("{}  {}  ", report.time_of_day, number::length(report.length));
    // A command may be long, and the banner has shown all of it.
    let room = match options.width {
        Some(_) => page.width.saturating_sub(heading.chars().count()),
        None => usize::MAX,
    };
    page.line(&(heading + &beginning(&report.subject, room)));
    page.blank();
    if let Some(stack) = &report.stack {
        // With `--slower`, the calls themselves should stay on the screen.
        match stack.slow.filter(|_| !options.verbose) {
            Some(slow) => stack::print_slow(report, stack, slow, options, &mut page),
            None => stack::print(report, stack, options, &mut page),
        }
    } else if let Some(groups) = &report.groups {
        group::print(report, groups, options, &mut page);
    }
    for layer in &report.layers {
        if report.stack.is_none() {
            let mut part = Page::of(options);
            match &report.groups {
                Some(groups) if group::has_calls(groups, layer) => print_conditions(layer, options, &mut part),
                _ => print_layer(report, layer, options, &mut part),
            }
            if report.layers.len() > 1 && !part.is_blank() {
                page.line(&format!("layer = {}", layer.layer));
                page.blank();
            }
            page.part(&part);
        }
        let probes = report.probes.iter().filter(|probe| probe.layer == Some(layer.layer));
        trust::print_probes(layer, probes, report.cost.has_runs, options, &mut page);
    }
    print_end(report, options, &mut page);
    out.write_all(page.text.as_bytes())
}

/// The sentence that sums up a report: of the whole stack, or of each layer.
pub(super) fn opening(report: &Report) -> String {
    if let Some(stack) = &report.stack {
        let called = family::by_time(&stack.families);
        return stack::opening(&called, family::sum_of(&called), report);
    }
    let layers = report.layers.iter().filter(|layer| !layer.ops.is_empty());
    let parts = layers.map(|layer| {
        let total = sum(layer.ops.iter().map(|op| op.total_ns));
        let count = counted(samples(layer), layer.unit());
        format!("{}: {count} took {} in total", layer.layer, time_sum(total))
    });
    let parts: Vec<String> = parts.collect();
    if parts.is_empty() {
        return "no I/O calls".to_owned();
    }
    parts.join("; ") + "."
}

/// The families that were called, by decreasing time, each with its largest row in words.
pub(super) fn verdicts(report: &Report) -> Vec<(&FamilyReport, String)> {
    let families = report.stack.iter().flat_map(|stack| family::by_time(&stack.families));
    families
        .map(|family| (family, family::verdict(family, usize::MAX)))
        .collect()
}

/// How a report was measured, and everything that limits how far its numbers can be trusted: a line for each.
pub(super) fn conditions(report: &Report) -> Vec<String> {
    let options = TextOptions::default();
    let mut page = Page::new(Some(usize::MAX));
    estimate::print_sentence(report, &mut page);
    match &report.stack {
        Some(stack) => {
            let mut hooks: Vec<Hook> = report.layers.iter().flat_map(|layer| &layer.hooks).copied().collect();
            hooks.sort_unstable();
            hooks.dedup();
            if !hooks.is_empty() {
                page.line(&format!("hooks: {}", joined(&hooks, Hook::name)));
            }
            stack::print_trouble(report, stack, &options, &mut page);
        }
        None => {
            for layer in &report.layers {
                page.line(&format!("layer = {}", layer.layer));
                print_conditions(layer, &options, &mut page);
            }
        }
    }
    print_end(report, &options, &mut page);
    page.text
        .lines()
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Prints what concerns the report as a whole, and a blank line.
fn print_end(report: &Report, options: &TextOptions, page: &mut Page) {
    if options.is_brief() {
        if let Some(changes) = notes::changes(report, true) {
            page.marked(&changes);
        }
    } else {
        print_warnings(&report.warnings, page);
        trust::print(report, options, page);
    }
    page.blank();
}

fn print_layer(report: &Report, layer: &LayerReport, options: &TextOptions, page: &mut Page) {
    let called: Vec<&OpReport> = layer.ops.iter().filter(|op| op.count() > 0).collect();
    if called.is_empty()
        && let Some(why) = why_no_table(layer)
    {
        page.line(why);
    }
    print_ops(&called, options, page);
    let estimates: Vec<_> = called.iter().map(|op| (op.op.name(), op.estimate())).collect();
    estimate::print_intervals(report, &estimates, page);
    print_conditions(layer, options, page);
}

/// Prints histograms and totals of ops that were called.
fn print_ops(called: &[&OpReport], options: &TextOptions, page: &mut Page) {
    if !options.summary_only {
        for op in called {
            page.line(&format!("operation = {}", op.op));
            print_histogram(op, options.unit, page);
            page.blank();
        }
    }
    if !called.is_empty() {
        for row in table(called, options.unit, page.width) {
            page.line(&row);
        }
    }
    if options.verbose {
        for op in called {
            page.line(&exact(op));
        }
    }
    page.blank();
}

/// Prints how a layer was measured, and everything that limits how far its numbers can be trusted.
fn print_conditions(layer: &LayerReport, options: &TextOptions, page: &mut Page) {
    if options.is_brief() {
        block::print_neighbours(layer, page);
        return;
    }
    if !layer.hooks.is_empty() {
        page.line(&format!("hooks: {}", joined(&layer.hooks, Hook::name)));
    }
    block::print(layer, page);
    print_trouble(layer, options, page);
    page.blank();
}

/// An op's exact numbers without commas, for programs that compare or add them.
fn exact(op: &OpReport) -> String {
    let (min, max) = op.extremes.unwrap_or_default();
    let (count, total, bytes) = (op.count(), op.total_ns, op.bytes.unwrap_or(0));
    let queued = op
        .queue_ns
        .map_or_else(String::new, |queue_ns| format!(" {queue_ns} queued"));
    format!(
        "exact: {} {count} calls {total} ns {bytes} bytes {min} min {max} max{queued}",
        op.op
    )
}

/// Why a measured layer has no table; `None` for one that is not measured, which a line below says.
fn why_no_table(layer: &LayerReport) -> Option<&'static str> {
    let seen = layer.excluded.calls() > 0
        || layer.in_flight.is_some_and(|n| n > 0)
        || layer.losses.iter().any(|loss| loss.count > 0)
        || layer.ops.iter().any(|op| op.queued > 0 || op.requests_ended() > 0);
    match (layer.ops.is_empty(), layer.layer == Layer::Blk) {
        (true, _) => None,
        (false, true) => Some(if seen { "no requests timed" } else { "no requests" }),
        (false, false) => Some(if seen { "no I/O calls timed" } else { "no I/O calls" }),
    }
}

/// The rows of BCC's `print_log2_hist` without leading empty ones, so that parsers of one can parse the other.
fn print_histogram(op: &OpReport, unit: Unit, page: &mut Page) {
    // If slots in this unit were not counted, the histogram in nanoseconds is printed instead.
    let in_units = unit.of_totals().filter(|_| op.unit_slots.iter().any(|n| *n > 0));
    let (slots, name, unit_ns, longest_slot) = match in_units {
        Some((_, unit_ns)) => (op.unit_slots.clone(), unit.header(), unit_ns, UNIT_SLOTS - 1),
        None => (op.histogram.powers_of_two(), Unit::Nanoseconds.header(), 1, TOP_BIT),
    };
    let (Some(first), Some(last)) = (slots.iter().position(|n| *n > 0), slots.iter().rposition(|n| *n > 0)) else {
        return;
    };
    // The last slot also holds all longer calls, and is labelled so.
    let has_longest = last == longest_slot as usize;
    let wide = last >= 32 || has_longest;
    let most = slots.iter().copied().max().unwrap_or(0);
    // BCC's rows have 78 columns and grow with counts of more than 8 digits; the bar is shortened if the line is too
    // narrow.
    let longest = most.to_string().len();
    let others = if wide { ROW_WIDE } else { ROW } + longest.max(8);
    let stars = if wide { STARS_WIDE } else { STARS };
    let stars = stars.min(page.width.saturating_sub(others));
    let bounds = if wide { 20 } else { 10 };
    let (indent, header) = if wide { (15, 29) } else { (5, 19) };
    page.line(&format!("{:indent$}{name:<header$} : count     distribution", ""));
    for (slot, count) in slots.iter().enumerate().take(last + 1).skip(first) {
        let low = if slot == 0 { 0 } else { 1_u128 << slot };
        let high = if slot == last && has_longest {
            u128::from(u64::MAX / unit_ns)
        } else {
            (1_u128 << (slot + 1)) - 1
        };
        let bar = "*".repeat(bar_length(*count, most, stars));
        page.line(&format!(
            "{low:>bounds$} -> {high:<bounds$} : {count:<8} |{bar:<stars$}|"
        ));
    }
}

/// The number of stars for `count` if the fullest row, `most`, has `width` stars.
fn bar_length(count: u64, most: u64, width: usize) -> usize {
    // Integers give the same result as BCC's floating point up to 2^48 calls, and the correct one beyond.
    (count as u128 * width as u128).checked_div(most.into()).unwrap_or(0) as usize
}

const COLUMNS: usize = 9;
/// Widths for usual numbers, so that columns are aligned from one interval to the next.
const USUAL_WIDTHS: [usize; COLUMNS] = [9, 8, 9, 6, 6, 6, 6, 6, 7];
/// The column that is left out if no op has queue times.
const QUEUED: usize = 3;
/// Columns that are left out one after another if the line is too narrow: bytes, p50, queued, max.
const LESS_IMPORTANT: [usize; 4] = [8, 5, QUEUED, 7];

/// The units of the columns of the table of totals. `None`: each number has its own.
#[derive(Clone, Copy)]
struct Units {
    total: ColumnUnit,
    each: ColumnUnit,
    bytes: ColumnUnit,
}

/// One layout of the table of totals.
#[derive(Clone, Copy)]
struct Form {
    gap: usize,
    units: Option<Units>,
    /// The unit of totals if each number has its own.
    chosen: Unit,
    short_counts: bool,
    /// How many of [`LESS_IMPORTANT`] are left out.
    left_out: usize,
}

/// The table of totals, heading first.
fn table(ops: &[&OpReport], unit: Unit, width: usize) -> Vec<String> {
    // From the preferred layout to one that fits any numbers.
    let units = units_of(ops, unit);
    let form = Form {
        gap: 2,
        units: None,
        chosen: unit,
        short_counts: false,
        left_out: 0,
    };
    let mut narrowest = Vec::new();
    for left_out in 0..=LESS_IMPORTANT.len() {
        let in_units = units.iter().flat_map(|units| {
            [2, 1].map(|gap| Form {
                gap,
                units: Some(*units),
                left_out,
                ..form
            })
        });
        let mixed = [
            Form { left_out, ..form },
            Form {
                gap: 1,
                left_out,
                ..form
            },
            Form {
                gap: 1,
                chosen: Unit::Nanoseconds,
                left_out,
                ..form
            },
            Form {
                gap: 1,
                chosen: Unit::Nanoseconds,
                short_counts: true,
                left_out,
                ..form
            },
        ];
        for form in in_units.chain(mixed) {
            narrowest = lay_out(ops, form);
            if narrowest.iter().all(|row| row.chars().count() <= width) {
                return narrowest;
            }
        }
    }
    narrowest
}

/// Units for the columns, the finest first: one for all times of single calls, one for totals, one for bytes.
fn units_of(ops: &[&OpReport], chosen: Unit) -> Vec<Units> {
    let quantiles = |op: &OpReport| [0.50, 0.99].map(|q| op.histogram.quantile(q, op.extremes));
    let average = |op: &OpReport| number::rounded(op.total_ns.into(), op.count().into());
    let longest = |op: &OpReport| op.extremes.map(|(_, max)| max);
    let each = ops
        .iter()
        .flat_map(|op| quantiles(op).into_iter().chain([average(op), longest(op)]));
    let each = column_units(TIME_COLUMNS, each.flatten());
    let totals = || ops.iter().map(|op| op.total_ns);
    let totals = match chosen.of_totals() {
        None => column_units(TIME_COLUMNS, totals()),
        // Whole units as in the histogram's slots, with as many decimals as needed so that nothing becomes 0.
        Some((_, size)) => {
            let chosen = match size {
                1_000 => MICROSECONDS,
                _ => MILLISECONDS,
            };
            let least = totals().filter(|total| *total > 0).min().unwrap_or(size);
            let fits = chosen.iter().position(|unit| unit.steps(least) > 0);
            let fits = fits.unwrap_or(chosen.len() - 1);
            &chosen[fits..=fits]
        }
    };
    let bytes = column_units(BYTE_COLUMNS, ops.iter().filter_map(|op| op.bytes))[0];
    let of_each = |each: &ColumnUnit| {
        let each = *each;
        totals.iter().map(move |total| Units {
            total: *total,
            each,
            bytes,
        })
    };
    each.iter().flat_map(of_each).collect()
}

const fn chosen(name: &'static str, size: u64, decimals: u32) -> ColumnUnit {
    ColumnUnit { name, size, decimals }
}
const MICROSECONDS: &[ColumnUnit] = &[chosen("us", 1_000, 0), chosen("us", 1_000, 3)];
const MILLISECONDS: &[ColumnUnit] = &[
    chosen("ms", 1_000_000, 0),
    chosen("ms", 1_000_000, 2),
    chosen("ms", 1_000_000, 6),
];

fn lay_out(ops: &[&OpReport], form: Form) -> Vec<String> {
    let is_queued = ops.iter().any(|op| op.queue_ns.is_some());
    let left_out = &LESS_IMPORTANT[..form.left_out];
    let shown = |column: &usize| (is_queued || *column != QUEUED) && !left_out.contains(column);
    let mut rows = vec![headings(form)];
    rows.extend(ops.iter().map(|op| cells(op, form)));

    let mut widths = USUAL_WIDTHS;
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    // Names may use the padding that usual counts leave before them.
    let names = widths[0] - USUAL_WIDTHS[0];
    let longest_count = rows.iter().map(|row| row[1].len()).max().unwrap_or(0);
    widths[1] = longest_count.max(widths[1].saturating_sub(names));

    let mut lines = Vec::new();
    for row in &rows {
        let mut line = format!("{:<1$}", row[0], widths[0]);
        for column in (1..COLUMNS).filter(shown) {
            line.push_str(&format!("{:>1$}", row[column], widths[column] + form.gap));
        }
        lines.push(line);
    }
    lines
}

/// Headings, with the column's unit if it has one.
fn headings(form: Form) -> [String; COLUMNS] {
    let names = [
        "operation",
        "count",
        "total",
        "queued",
        "avg",
        "p50",
        "p99",
        "max",
        "bytes",
    ]
    .map(String::from);
    let Some(units) = form.units else { return names };
    let [operation, count, total, queued, average, p50, p99, max, _] = names;
    let each = |name: String| format!("{name} {}", units.each.name);
    [
        operation,
        count,
        format!("{total} {}", units.total.name),
        queued,
        each(average),
        each(p50),
        each(p99),
        each(max),
        units.bytes.name.to_owned(),
    ]
}

/// One op's row.
fn cells(op: &OpReport, form: Form) -> [String; COLUMNS] {
    let none = || String::from("-");
    let count = op.count();
    let total = match (form.units, form.chosen.of_totals()) {
        (Some(units), _) => units.total.number(op.total_ns),
        // Whole elapsed units, as in the histogram's slots, but less than one unit does not become 0.
        (None, Some((name, size))) if op.total_ns >= size || op.total_ns == 0 => {
            format!("{} {name}", thousands(op.total_ns / size))
        }
        _ => time_sum(op.total_ns),
    };
    let time = |ns| form.units.map_or_else(|| time_each(ns), |units| units.each.number(ns));
    let average = number::rounded(op.total_ns.into(), count.into());
    let longest = op.extremes.map(|(_, max)| max);
    let quantile = |q| match op.histogram.quantile(q, op.extremes) {
        // A lower bound, unless it is the time of the longest call.
        Some(ns) if ns >> TOP_BIT > 0 && longest != Some(ns) => format!("{}+", time(ns)),
        known => known.map_or_else(none, time),
    };
    let bytes = |bytes| {
        form.units
            .map_or_else(|| decimal_bytes(bytes), |units| units.bytes.number(bytes))
    };
    [
        op.op.to_string(),
        if form.short_counts {
            number::short(count)
        } else {
            thousands(count)
        },
        total,
        op.queue_ns
            .map_or_else(none, |queue_ns| number::percent(queue_ns, op.total_ns)),
        average.map_or_else(none, time),
        quantile(0.50),
        quantile(0.99),
        longest.map_or_else(none, time),
        op.bytes.map_or_else(none, bytes),
    ]
}

/// Columns of a table's names; fewer if the line is too narrow.
const NAMES: usize = 30;
const LEAST_NAMES: usize = 12;

/// Prints a table of names and numbers, heading first. Columns of numbers are as wide as `widths` says if the line also
/// has room for `names` columns of names, otherwise as wide as necessary. Names are shortened if they have to be. A row
/// without numbers is a line of its own.
fn print_table<const N: usize>(rows: &[(String, [String; N])], widths: [usize; N], names: usize, page: &mut Page) {
    let widest = |column: usize| rows.iter().map(|(_, cells)| cells[column].chars().count()).max();
    let least: [usize; N] = std::array::from_fn(|column| widest(column).unwrap_or(0));
    let usual: [usize; N] = std::array::from_fn(|column| widths[column].max(least[column]));
    let room = |widths: [usize; N]| page.width.saturating_sub(widths.iter().map(|width| width + 2).sum());
    let widths = if room(usual) >= names { usual } else { least };
    let has_numbers = |cells: &[String; N]| cells.iter().any(|cell| !cell.is_empty());
    let longest = rows.iter().filter(|(_, cells)| has_numbers(cells));
    let longest = longest.map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let names = longest.max(names).min(room(widths)).max(LEAST_NAMES);
    for (name, cells) in rows {
        if !has_numbers(cells) {
            page.line(name);
            continue;
        }
        let name = format!("{:<names$}", shortened(name, names));
        let cells = cells.iter().zip(widths);
        page.line(&cells.fold(name, |line, (cell, width)| format!("{line}  {cell:>width$}")));
    }
}

/// Prints everything that readers must know before they trust the table above.
fn print_trouble(layer: &LayerReport, options: &TextOptions, page: &mut Page) {
    let failed: Vec<String> = layer.ops.iter().filter_map(errors).collect();
    if !failed.is_empty() {
        page.line(&format!("errors: {}", failed.join("; ")));
    }
    if let Some(excluded) = excluded(layer.excluded) {
        page.line(&excluded);
    }
    let queued = layer.ops.iter().filter(|op| op.queued > 0);
    let queued: Vec<String> = queued.map(|op| format!("{} {}", op.op, thousands(op.queued))).collect();
    if !queued.is_empty() {
        page.line(&format!("asynchronous: {} submitted, not timed", queued.join(", ")));
    }
    if let Some(lost) = losses(layer, Some(measured(layer))) {
        page.mark(Mark::Lost, &lost);
    }
    for NotMeasured { what, reason } in &layer.not_measured {
        page.mark(
            Mark::NotMeasured,
            &format!("not measured: {what} at {} ({reason})", layer.layer),
        );
    }
    // The last line has the sum over all layers.
    if let Some(unfinished) = layer.in_flight.filter(|n| *n > 0 && options.verbose) {
        page.line(&format!("unfinished: {}", counted(unfinished, layer.unit())));
    }
    print_warnings(&layer.warnings, page);
}

fn print_warnings(warnings: &[String], page: &mut Page) {
    for warning in warnings {
        page.mark(Mark::Warning, &format!("warning: {warning}"));
    }
}

/// `excluded: 5 calls: 3 on sockets, 2 on pipes (--all-files)`, or for a single kind `excluded: 3 calls on sockets
/// (--all-files)`. `None` if there are none.
fn excluded(calls: Excluded) -> Option<String> {
    let all = calls.calls();
    let mut kinds = [
        (calls.socket, "a socket", "sockets"),
        (calls.pipe, "a pipe", "pipes"),
        (calls.character_device, "a character device", "character devices"),
        (calls.other, "an eventfd or the like", "eventfds and the like"),
    ];
    let mut line = format!("excluded: {}", counted(all, "call"));
    let mut before = ": ";
    // The largest first.
    while let Some((calls, one, many)) = kinds.iter_mut().max_by_key(|kind| kind.0).filter(|kind| kind.0 > 0) {
        if *calls < all {
            line = line + before + &thousands(*calls);
            before = ", ";
        }
        line = line + " on " + if *calls == 1 { one } else { many };
        *calls = 0;
    }
    (all > 0).then(|| line + " (--all-files)")
}

/// A number and a noun, in the singular or the plural.
pub(crate) fn counted(n: u64, what: &str) -> String {
    let what = match (n, what.strip_suffix('y')) {
        (1, _) => what.to_owned(),
        (_, Some(stem)) => format!("{stem}ies"),
        _ => format!("{what}s"),
    };
    format!("{} {what}", thousands(n))
}

/// `read 3 (EIO 2, EAGAIN 1)`, `None` for an op without errors.
fn errors(op: &OpReport) -> Option<String> {
    let all = sum(op.errors.iter().map(|(_, n)| *n)).saturating_add(op.errors_unnamed);
    if all == 0 {
        return None;
    }
    let mut kinds: Vec<String> = op
        .errors
        .iter()
        .map(|(errno, n)| format!("{} {}", errno_name(*errno), thousands(*n)))
        .collect();
    if op.errors_unnamed > 0 {
        kinds.push(format!("other {}", thousands(op.errors_unnamed)));
    }
    Some(format!("{} {} ({})", op.op, thousands(all), kinds.join(", ")))
}

/// `LOST 12 of 84,201 calls (0.01 %): 12 returns missed. Times do not include them.`
/// `seen`: the number of counted calls or requests, if known.
fn losses(layer: &LayerReport, seen: Option<u64>) -> Option<String> {
    let losses = || layer.losses.iter().filter(|loss| loss.count > 0);
    let lost = sum(losses().map(|loss| loss.count));
    if lost == 0 {
        return None;
    }
    let bound = up_to(losses().any(|loss| loss.up_to));
    let of = seen.map(|seen| {
        let all = seen.saturating_add(lost);
        let unit = match is_sampled(layer) {
            true => format!("measured {}", layer.unit()),
            false => layer.unit().to_owned(),
        };
        format!(" of {} ({bound}{})", counted(all, &unit), number::share(lost, all))
    });
    let reasons: Vec<String> = losses().map(loss_line).collect();
    Some(format!(
        "LOST {}{}: {}. Times do not include {}.",
        bound,
        of.map_or_else(|| counted(lost, layer.unit()), |of| format!("{}{of}", thousands(lost))),
        // A sentence contains commas of its own.
        reasons.join(if losses().any(|loss| loss.cause.is_some()) {
            "; "
        } else {
            ", "
        }),
        if lost == 1 { "it" } else { "them" },
    ))
}

fn up_to(is_upper_bound: bool) -> &'static str {
    if is_upper_bound { "up to " } else { "" }
}

/// `12 returns missed`, or what the kernel did that caused the loss.
fn loss_line(loss: &Loss) -> String {
    let Some(cause) = &loss.cause else {
        return format!(
            "{}{} {}",
            up_to(loss.up_to),
            thousands(loss.count),
            loss.reason.describe(loss.count)
        );
    };
    let (programs, all_programs) = match cause.programs {
        1 => ("the program", "the program"),
        2 => ("the programs", "both programs"),
        _ => ("the programs", "all programs"),
    };
    let requests = format!("{}{}", up_to(loss.up_to), counted(loss.count, "request"));
    let event = &cause.event;
    match (cause.kind, cause.is_tracepoint) {
        (CauseKind::NotCalled, true) => format!(
            "the tracepoint {event} did not fire for {requests} (this kernel does not fire it while some tasks run)"
        ),
        (CauseKind::NotCalled, false) => format!("the kernel did not call {programs} on {event} for {requests}"),
        (CauseKind::Skipped, _) => format!("the kernel skipped {all_programs} on {event} for {requests}"),
    }
}

/// Whether only some calls of a layer were measured.
fn is_sampled(layer: &LayerReport) -> bool {
    layer.ops.iter().any(|op| op.histogram.one_in().is_some())
}

/// The calls or requests of a layer that were measured.
fn measured(layer: &LayerReport) -> u64 {
    sum(layer.ops.iter().map(|op| op.histogram.measured()))
}

fn samples(layer: &LayerReport) -> u64 {
    sum(layer.ops.iter().map(OpReport::count))
}

fn sum(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}

/// The report so far. Paragraphs are separated by exactly one blank line.
struct Page {
    text: String,
    /// Columns of a line.
    width: usize,
    is_terminal: bool,
    is_colored: bool,
}

impl Page {
    fn new(terminal: Option<usize>) -> Self {
        Self {
            text: String::new(),
            width: columns(terminal),
            is_terminal: terminal.is_some(),
            is_colored: false,
        }
    }

    fn colored(terminal: Option<usize>, is_colored: bool) -> Self {
        Self {
            is_colored,
            ..Self::new(terminal)
        }
    }

    fn of(options: &TextOptions) -> Self {
        Self::colored(options.width, options.is_colored)
    }

    fn is_blank(&self) -> bool {
        self.text.trim().is_empty()
    }

    /// Appends another page.
    fn part(&mut self, part: &Self) {
        self.text.push_str(if self.text.ends_with("\n\n") {
            part.text.trim_start_matches('\n')
        } else {
            &part.text
        });
    }

    fn blank(&mut self) {
        if !self.text.ends_with("\n\n") {
            self.text.push('\n');
        }
    }

    /// Adds `line` with a file's name that a user may want to copy: unbroken if there is no terminal, otherwise wrapped
    /// after a directory.
    fn whole(&mut self, line: &str) {
        if self.is_terminal {
            let line = Marked::from(line.to_owned());
            self.wrapped(&line, |text, cut| text[..cut].rfind('/').map(|slash| slash + 1));
        } else {
            self.text.push_str(printable(line).trim_end());
            self.text.push('\n');
        }
    }

    /// Adds `line`, wrapped at words with a hanging indent if it is too wide. Anybody can choose the names of processes
    /// and files, so control characters in them are replaced.
    fn line(&mut self, line: &str) {
        self.marked(&Marked::from(line.to_owned()));
    }

    /// The same for a line that is marked as a whole.
    fn mark(&mut self, mark: Mark, line: &str) {
        self.marked(&Marked::all(mark, line));
    }

    /// The same for a line with marks. They are commands to a terminal, and are added after unprintable characters are
    /// replaced.
    fn marked(&mut self, line: &Marked) {
        // The blank that ends a line may be one column past the edge.
        let word = |text: &str, cut: usize| {
            let past = text[cut..].chars().next().map_or(0, char::len_utf8);
            text[..cut + past].rfind(' ')
        };
        self.wrapped(line, word);
    }

    /// `end` finds where to break a line within so many bytes. If there is no such point, the line is cut.
    fn wrapped(&mut self, line: &Marked, end: impl Fn(&str, usize) -> Option<usize>) {
        let clean = printable(&line.text);
        let marks = if self.is_colored {
            line.in_bytes(&clean)
        } else {
            Vec::new()
        };
        let whole = clean.trim_end();
        let mut rest = whole;
        let mut indent = "";
        while let Some((cut, _)) = rest.char_indices().nth(self.width - indent.len()) {
            let end = end(rest, cut).filter(|end| *end > 0).unwrap_or(cut);
            self.text.push_str(indent);
            let start = whole.len() - rest.len();
            color::push(
                &mut self.text,
                whole,
                start..start + rest[..end].trim_end().len(),
                &marks,
            );
            self.text.push('\n');
            rest = rest[end..].trim_start();
            indent = "  ";
        }
        self.text.push_str(indent);
        color::push(&mut self.text, whole, whole.len() - rest.len()..whole.len(), &marks);
        self.text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fuzz;
    use crate::printable::is_printable;

    fn wrapped(line: &str) -> String {
        let mut page = Page::new(None);
        page.line(line);
        page.text
    }

    #[test]
    fn lines_wrap_at_words() {
        let exact = "x".repeat(80);
        assert_eq!(wrapped(&exact), format!("{exact}\n"));
        assert_eq!(wrapped(&format!("{exact} y")), format!("{exact}\n  y\n"));
        let long = "y".repeat(100);
        assert_eq!(
            wrapped(&format!("a  b {long}")),
            format!("a  b\n  {}\n  {}\n", &long[..78], &long[78..])
        );
        let umlauts = "ä".repeat(81);
        assert_eq!(wrapped(&umlauts), format!("{}\n  ä\n", "ä".repeat(80)));
        assert_eq!(wrapped("PID 1 (\u{1b}[31m\n)  "), "PID 1 (?[31m )\n");
    }

    #[test]
    fn slow_calls_of_single_layers_have_headings_once() {
        let options = TextOptions {
            unit: Unit::Nanoseconds,
            summary_only: false,
            verbose: false,
            interval: None,
            is_first: true,
            width: None,
            is_colored: false,
        };
        let mut view = Text::new(options, false);
        let mut out = Vec::new();
        let mut sheet = Sheet {
            out: &mut out,
            screen: crate::view::Screen::default(),
        };
        let events = Events {
            slow_calls: vec![crate::model::report::slow::SlowCall::default()],
            ..Events::default()
        };
        for _ in 0..2 {
            view.events(&events, &mut sheet).unwrap();
        }
        let text = String::from_utf8(out).unwrap();
        let headings: Vec<bool> = text.lines().map(|line| line.starts_with("TIME ")).collect();
        assert_eq!(headings, [true, false, false], "{text}");
    }

    #[test]
    fn a_line_with_a_name_stays_one() {
        let mut page = Page::new(None);
        page.whole(&format!("file = /a b/{}: \u{1b}1 call", "y".repeat(100)));
        assert_eq!(page.text, format!("file = /a b/{}: ?1 call\n", "y".repeat(100)));
    }

    #[test]
    fn on_a_terminal_a_name_ends_lines_behind_its_directories() {
        let mut page = Page::new(Some(60));
        page.whole("file = /var/lib/postgresql/17/main/base/16384/a-name-with blanks.16385.1: 1 call");
        assert_eq!(
            page.text,
            "file = /var/lib/postgresql/17/main/base/16384/\n  a-name-with blanks.16385.1: 1 call\n"
        );
        let mut page = Page::new(Some(60));
        page.whole(&"x".repeat(100));
        assert_eq!(page.text, format!("{}\n  {}\n", "x".repeat(60), "x".repeat(40)));
    }

    #[test]
    fn bars_are_cut_not_rounded() {
        let bars = [1532, 1901, 377, 41, 9, 0].map(|count| bar_length(count, 1901, 40));
        assert_eq!(bars, [32, 40, 7, 0, 0, 0]);
        assert_eq!(bar_length(u64::MAX, u64::MAX, 40), 40);
        assert_eq!(bar_length(u64::MAX - 1, u64::MAX, 40), 39);
        assert_eq!(bar_length(1, 41, 40), 0);
        assert_eq!(bar_length(0, 0, 40), 0);
    }

    proptest! {
        #![proptest_config(fuzz::config())]

        #[test]
        fn any_line_fits_and_commands_no_terminal(line in fuzz::text_like("PID 1 (\u{1b}[31mä\n\u{202e}) a long line of more words than fit on the screen, which is folded")) {
            let text = wrapped(&line);
            prop_assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{:?}", text);
            prop_assert!(text.chars().all(|c| c == '\n' || is_printable(c)), "{:?}", text);
        }
    }
}
