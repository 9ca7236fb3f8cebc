//! `compare BEFORE AFTER`: what became faster or slower between two runs, and which differences may be
//! chance.
//!
//! Every difference is shown, and marked `within noise` if it is no larger than three standard errors, which are
//! estimated from the measured data only. The variance of a call's time in a row is at most `mean × (longest call −
//! mean)`, whatever its distribution; a quantile is between the steps of the calls that are three standard errors of
//! its rank away; where so few calls were measured that this is beyond all of them, it has no bound. One call says nothing
//! about the mean. Each call is assumed to move the average number of bytes. Of a sample (`--sample`), all of this is that of the measured
//! calls only.

mod lines;
mod replay;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::path::Path;

use serde::de::Error;

use self::lines::Lines;
pub use self::replay::{Comparison, Measured, Recorded, Same, TimedCalls};
use crate::analyse;
use crate::document;
use crate::model::ids::{self, NOT_SPLIT};
use crate::printable::printable;
use crate::recording::{Recording, Replayed, Span, is_recording};
use crate::source::{Item, Source, Until};
use crate::view::html::page::{COLUMNS_BEGIN, DATA_BEGIN, DATA_END, FIRST_LINE};
use crate::view::html::{Columns, Compared, comparison};
use crate::view::json::form::{Bucket, Family, Layer, Line, Op, Report};
use crate::view::json::{Form, SCHEMA_VERSION};
use crate::view::text::WIDTH;
use crate::view::text::estimate::estimates;
use crate::view::text::name::beginning;
use crate::view::text::number::{ColumnUnit, decimal_bytes, signed, time_each, time_sum, unit_of_bytes, unit_of_times};
use crate::view::{Json, Screen, Sheet, View};

/// The number of standard errors that count as noise.
const ERRORS: f64 = 3.0;
const QUANTILES: [(&str, f64); 3] = [("p50", 0.50), ("p90", 0.90), ("p99", 0.99)];

/// All reports of a run, summed up.
#[derive(Debug, Default)]
struct Run {
    start: String,
    subject: String,
    duration_ns: u64,
    has_stack: bool,
    /// The layers that were selected, of a run of single layers.
    layers: BTreeSet<String>,
    /// Times of requests include the queue (`-Q`).
    is_queued: bool,
    /// Of how many calls one was measured. `None`: all were.
    sample: Option<u64>,
    /// Layers that were not measured to the end (`--budget`), and for how many nanoseconds each was.
    detached: BTreeMap<String, u64>,
    /// Rows and ops that were not measured. Others that are missing from the groups were not called.
    missing: BTreeSet<String>,
    groups: Vec<Group>,
    /// The intervals, for a page.
    columns: Columns,
}

/// Calls that are compared: those of a family, or of a layer's op.
#[derive(Debug, Clone, Default)]
struct Group {
    name: String,
    count: u64,
    /// Each measured call stands for so many, all of them in `count`; 0: for itself.
    one_in: u64,
    bytes: u64,
    total_ns: u64,
    max_ns: u64,
    rows: Vec<(String, u64)>,
    /// Of reads, how many got their data from where.
    classes: Vec<(String, u64)>,
    /// Bounds and counts, in ascending order.
    buckets: Vec<Bucket>,
}

/// Compares two files of `--json` or `--html`, or two recordings, in lines of `width` columns: those of the terminal,
/// `None` if there is none. `page`: where to write the comparison as a page, if requested. `remark` gets lines on what is
/// wrong with recordings.
///
/// # Errors
/// One line: what cannot be read, compared or written.
pub fn compare(
    before: &Path,
    after: &Path,
    page: Option<&Path>,
    width: Option<usize>,
    remark: &mut dyn FnMut(&str),
) -> Result<String, String> {
    let (before, after) = (read(before, remark)?, read(after, remark)?);
    comparable(&before, &after)?;
    if let Some(path) = page {
        let page = page_of(&before, &after);
        let mut options = OpenOptions::new();
        let written = document::write(path, options.write(true).create(true).truncate(true), page.as_bytes());
        written.map_err(|error| format!("cannot write '{}': {error}", path.display()))?;
    }
    Ok(text(&before, &after, width))
}

/// Whether the numbers of two runs have the same meaning.
///
/// # Errors
/// One line: they do not.
fn comparable(before: &Run, after: &Run) -> Result<(), String> {
    let differ = if before.has_stack != after.has_stack {
        "a report of the whole stack with one of single layers (-T)"
    } else if before.is_queued != after.is_queued && before.has_requests() && after.has_requests() {
        "requests whose times include the queue (-Q) with requests without it"
    } else {
        return Ok(());
    };
    Err(format!("cannot compare {differ}; record both in one way"))
}

/// The comparison as a page.
fn page_of(before: &Run, after: &Run) -> String {
    let runs = [("before", before), ("after", after)].map(|(name, run)| {
        let mut columns = run.columns.clone();
        name.clone_into(&mut columns.name);
        columns
    });
    let line = |name: &str, run: &Run| {
        let subject = if run.subject.is_empty() {
            "all processes"
        } else {
            &run.subject
        };
        let sampled = run.sampled().map_or_else(String::new, |words| format!(", {words}"));
        format!(
            "{name}: {}, {}, {subject}{sampled}",
            run.start,
            time_sum(run.duration_ns)
        )
    };
    let sections = sections(before, after).into_iter().map(|section| {
        let rows = section.rows.into_iter().map(|row| {
            let (difference, relative, is_noise) = match row.difference {
                Some(it) => (it.text, it.relative, it.is_noise),
                None => ("-".to_owned(), String::new(), false),
            };
            Compared {
                cells: [row.name, row.before, row.after, difference, relative],
                is_noise,
            }
        });
        (section.name, rows.collect())
    });
    let sections: Vec<(String, Vec<Compared>)> = sections.collect();
    comparison(&[line("before", before), line("after", after)], &sections, &runs)
}

/// Limits the groups of a run, and the rows and steps of a group, so that input cannot use unbounded memory. Real runs
/// have fewer.
const MOST: usize = 1000;
/// An error is cut to this many characters, since it may quote all of a file.
const LONGEST_ERROR: usize = 200;

fn read(path: &Path, remark: &mut dyn FnMut(&str)) -> Result<Run, String> {
    if is_recording(path) {
        let (report, remarks) = report_of(path)?;
        remarks
            .iter()
            .for_each(|line| remark(&format!("{}: {line}", path.display())));
        run_of(Lines::of(path, report))
    } else {
        run_of(Lines::open(path)?)
    }
}

fn run_of(mut lines: Lines) -> Result<Run, String> {
    let mut run: Option<Run> = None;
    let mut part = Part::Lines;
    let mut columns = None;
    while let Some(line) = lines.next()? {
        part = part.at(line);
        match part {
            Part::Lines | Part::Data => {}
            Part::Columns => {
                // A page of another program has no columns that can be drawn.
                columns = columns.or_else(|| columns_in(line));
                continue;
            }
            Part::Markup => continue,
        }
        if part == Part::Data && line == DATA_BEGIN.as_bytes() {
            continue;
        }
        let report = report_in(line).map_err(|error| no_report(&lines.location(), &error))?;
        let Some(report) = report else { continue };
        let run = run.get_or_insert_with(|| Run::of(&report));
        run.add(&report);
        if !run.is_possible() {
            let location = lines.location();
            return Err(format!(
                "{location} is not a report of --json: too many groups, rows or histogram steps"
            ));
        }
    }
    if let (Some(run), Some(columns)) = (&mut run, columns) {
        run.columns = columns;
    }
    run.ok_or_else(|| lines.nothing())
}

/// The report of a whole recording, as JSON, and what is wrong with it.
fn report_of(path: &Path) -> Result<(Vec<u8>, Vec<String>), String> {
    let recording = Recording::open(path).map_err(|cause| cause.line)?;
    if recording.seconds().next().is_none() {
        return Err(recording.without_counters().line);
    }
    let mut source = Replayed::new(&recording, Span::ALL, None);
    let mut next = || match source.next(Until::End) {
        Ok(Item::Snapshot(snapshot)) => Ok(snapshot),
        Ok(_) => Err(format!(
            "there is no report in '{}': it was cut in its first second",
            path.display()
        )),
        Err(error) => Err(error.to_string()),
    };
    let (before, after) = (next()?, next()?);
    let report = analyse::report(&recording.meta().run, &before, &after);
    let mut text = Vec::new();
    let mut sheet = Sheet {
        out: &mut text,
        screen: Screen::default(),
    };
    let printed = Json(Form::Full).report(&report, &mut sheet);
    printed.map_err(|error| error.to_string())?;
    Ok((text, recording.remarks()))
}

/// The part of a file that a line is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Not a page: JSON Lines.
    Lines,
    /// The part of a page in which its lines are JSON.
    Data,
    /// The data of a page's pictures.
    Columns,
    /// Another part of a page.
    Markup,
}

impl Part {
    /// The part of this line, after one of `self`.
    fn at(self, line: &[u8]) -> Self {
        match line {
            _ if line == FIRST_LINE.as_bytes() => Self::Markup,
            _ if self == Self::Lines => Self::Lines,
            _ if line == DATA_BEGIN.as_bytes() => Self::Data,
            _ if line == COLUMNS_BEGIN.as_bytes() => Self::Columns,
            _ if line == DATA_END.as_bytes() => Self::Markup,
            _ => self,
        }
    }
}

/// The columns of a page, which has those of one run.
fn columns_in(line: &[u8]) -> Option<Columns> {
    let runs: Vec<Columns> = serde_json::from_slice(line).ok()?;
    let mut runs = runs.into_iter();
    runs.next().filter(|columns| columns.is_possible() && runs.len() == 0)
}

/// The line's number is known; only the column is taken from the error.
fn no_report(location: &str, error: &serde_json::Error) -> String {
    let text = error.to_string();
    let known = format!(" at line {} column {}", error.line(), error.column());
    let why: String = text.trim_end_matches(&known).chars().take(LONGEST_ERROR).collect();
    let column = match error.column() {
        0 => String::new(),
        column => format!(" (column {column})"),
    };
    format!("{location} is not a report of --json: {why}{column}")
}

/// The report on a line, if it is one.
fn report_in(line: &[u8]) -> serde_json::Result<Option<Report>> {
    let kind: Line = serde_json::from_slice(line)?;
    if kind.schema_version != SCHEMA_VERSION {
        let text = format!(
            "its schema_version is {}, and compare reads {SCHEMA_VERSION}; use the version that wrote it",
            kind.schema_version
        );
        return Err(serde_json::Error::custom(text));
    }
    if kind.slow_call.is_some() || kind.slow_calls_not_told.is_some() {
        return Ok(None);
    }
    serde_json::from_slice(line).map(Some)
}

impl Run {
    /// A run without reports, with the properties of `first`.
    fn of(first: &Report) -> Self {
        Self {
            start: printable(&first.start),
            subject: printable(&first.subject),
            duration_ns: 0,
            has_stack: first.stack.is_some(),
            layers: BTreeSet::new(),
            is_queued: first.filter.queued,
            sample: first.sample.as_ref().map(|sample| sample.one_in),
            detached: BTreeMap::new(),
            missing: BTreeSet::new(),
            groups: Vec::new(),
            columns: Columns::default(),
        }
    }

    fn add(&mut self, report: &Report) {
        self.duration_ns = self.duration_ns.saturating_add(report.duration_ns);
        self.columns.push(report);
        let detached = report.cost.budget.iter().flat_map(|budget| &budget.detached);
        let detached = detached.map(|it| (printable(&it.layer), it.after_ns));
        self.detached.extend(detached);
        // One more than allowed is enough to detect excess.
        let most = MOST + 1;
        if let Some(stack) = &report.stack {
            let is_split = stack.kernel_time_split != Some(false);
            let missing = stack.not_measured.iter().take(most);
            self.missing.extend(missing.map(|row| row.what.clone()));
            for family in &stack.families {
                self.add_group(Group::of_family(family, is_split).sampled(report, family.estimate.is_some()));
            }
            return;
        }
        self.layers
            .extend(report.layers.iter().take(most).map(|layer| printable(&layer.layer)));
        for layer in &report.layers {
            let missing = layer.not_measured.iter().take(most);
            let missing = missing.map(|op| format!("{} {}", printable(&layer.layer), op.what));
            self.missing.extend(missing);
            for op in layer.ops.iter().filter(|op| op.count.is_some()) {
                self.add_group(Group::of_op(layer, op).sampled(report, op.estimate.is_some()));
            }
        }
    }

    fn add_group(&mut self, group: Group) {
        let is_full = self.groups.len() > MOST;
        match self.groups.iter_mut().find(|known| known.name == group.name) {
            Some(known) => known.add(group),
            None if is_full => {}
            None => self.groups.push(group),
        }
    }

    /// Whether the numbers are within what a run can have.
    fn is_possible(&self) -> bool {
        let is_possible = |group: &Group| {
            [group.rows.len(), group.classes.len(), group.buckets.len()]
                .iter()
                .all(|length| *length <= MOST)
        };
        self.groups.len() <= MOST
            && self.detached.len() <= MOST
            && self.missing.len() <= MOST
            && self.layers.len() <= MOST
            && self.groups.iter().all(is_possible)
    }

    /// Whether times of requests are compared; of the whole stack, those of calls are.
    fn has_requests(&self) -> bool {
        self.layers.contains(ids::Layer::Blk.name())
    }

    /// That its numbers are estimates.
    fn sampled(&self) -> Option<String> {
        self.sample.map(estimates)
    }

    /// Calls by their name; `None` if they were not measured.
    fn group(&self, name: &str) -> Option<Group> {
        // Families are no operations of a layer.
        let layer = name.split_once(' ').map(|(layer, _)| layer);
        let lacks = |layer: &str| !self.layers.contains(layer) || self.missing.contains(&format!("{layer} everything"));
        let is_missing = self.missing.contains(name) || layer.is_some_and(lacks);
        match self.groups.iter().find(|group| group.name == name) {
            Some(group) => Some(group.clone()),
            None if is_missing => None,
            None => Some(Group::default()),
        }
    }

    /// The time of some calls in a row; `None` if it was not measured.
    fn in_row(&self, group: &Group, row: &str) -> Option<u64> {
        let found = group.rows.iter().find(|(name, _)| name == row);
        // A report has one of these two rows, never both.
        let is_missing = [NOT_SPLIT, "syscall"].contains(&row) || self.missing.contains(row);
        found.map_or((!is_missing).then_some(0), |(_, ns)| Some(*ns))
    }

    /// The rate per second of a number that belongs to a group's calls, and its standard error, which is that of the
    /// measured ones.
    fn per_second(&self, number: u64, group: &Group) -> (f64, f64) {
        let seconds = (self.duration_ns as f64 / 1e9).max(f64::MIN_POSITIVE);
        let rate = number as f64 / seconds;
        (rate, rate / group.measured().max(1.0).sqrt())
    }
}

impl Group {
    fn of_family(family: &Family, is_split: bool) -> Self {
        let name = |row: &str| match row {
            "syscall" if !is_split => NOT_SPLIT.to_owned(),
            _ => printable(row),
        };
        let measured = family.rows.iter().filter_map(|row| Some((name(&row.row), row.ns?)));
        // One more than allowed is enough to detect excess.
        let measured = measured.take(MOST + 1);
        let classes = family.classes.iter().take(MOST + 1);
        Self {
            name: printable(&family.family),
            count: family.count,
            one_in: 0,
            bytes: family.bytes,
            total_ns: family.total_ns,
            max_ns: family.max_ns.unwrap_or(0),
            rows: measured.collect(),
            classes: classes
                .map(|class| (printable(&class.class).replace('_', " "), class.count))
                .collect(),
            buckets: family.buckets.iter().copied().take(MOST + 1).collect(),
        }
    }

    fn of_op(layer: &Layer, op: &Op) -> Self {
        let buckets = op.buckets.iter().flatten().copied();
        Self {
            name: printable(&format!("{} {}", layer.layer, op.op)),
            count: op.count.unwrap_or(0),
            one_in: 0,
            bytes: op.bytes.unwrap_or(0),
            total_ns: op.total_ns.unwrap_or(0),
            max_ns: op.max_ns.unwrap_or(0),
            rows: Vec::new(),
            classes: Vec::new(),
            buckets: buckets.take(MOST + 1).collect(),
        }
    }

    /// `is_estimated`: its numbers are estimates from the sample of the report.
    fn sampled(self, report: &Report, is_estimated: bool) -> Self {
        let one_in = report.sample.as_ref().filter(|_| is_estimated);
        Self {
            one_in: one_in.map_or(0, |sample| sample.one_in),
            ..self
        }
    }

    /// The number of its calls that were measured.
    fn measured(&self) -> f64 {
        self.count as f64 / self.one_in.max(1) as f64
    }

    fn add(&mut self, other: Self) {
        self.one_in = self.one_in.max(other.one_in);
        self.count = self.count.saturating_add(other.count);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        add_named(&mut self.rows, other.rows);
        add_named(&mut self.classes, other.classes);
        self.buckets.extend(other.buckets);
        self.buckets.sort_unstable_by_key(|bucket| (bucket.ge_ns, bucket.lt_ns));
        self.buckets.dedup_by(|again, kept| {
            let is_same = (again.ge_ns, again.lt_ns) == (kept.ge_ns, kept.lt_ns);
            if is_same {
                kept.count = kept.count.saturating_add(again.count);
            }
            is_same
        });
    }

    /// The share of the calls of a class among those of all classes, and its standard error; `None`: there are none.
    fn share(&self, class: &str) -> Option<(f64, f64)> {
        let all = self.classes.iter().map(|(_, calls)| *calls as f64).sum::<f64>();
        let of = self.classes.iter().find(|(name, _)| name == class);
        let share = of.map_or(0.0, |(_, calls)| *calls as f64) / all;
        (all > 0.0).then(|| (share * 100.0, (share * (1.0 - share) / all).sqrt() * 100.0))
    }

    /// The mean of a time summed over all calls, and its largest possible standard error.
    fn mean(&self, ns: u64) -> (f64, f64) {
        let mean = ns as f64 / self.count as f64;
        // A single call is as long as the longest, and does not say how long another one would be.
        if self.measured() < 2.0 {
            return (mean, f64::INFINITY);
        }
        let variance = mean * (self.max_ns as f64 - mean).max(0.0);
        (mean, (variance / self.measured()).sqrt())
    }

    /// The bounds of the step that contains the call of this rank, from 1 on; that of the last call, if there is none.
    fn step_of_rank(&self, rank: f64) -> (u64, u64) {
        let mut seen = 0.0;
        let mut bounds = (0, 0);
        for bucket in &self.buckets {
            bounds = (bucket.ge_ns, bucket.lt_ns.unwrap_or(u64::MAX));
            seen += bucket.count as f64;
            if seen >= rank {
                break;
            }
        }
        bounds
    }

    /// A quantile, with its smallest and largest possible values. `None` if there are too few calls.
    fn quantile(&self, q: f64) -> Option<(u64, u64, u64)> {
        let (count, measured) = (self.count as f64, self.measured());
        if measured < 1.0 / (1.0 - q) {
            return None;
        }
        // Ranks are among all calls, and the error is that of the measured ones.
        let error = ERRORS * (measured * q * (1.0 - q)).sqrt() * count / measured;
        let rank = count * q;
        let (ge, lt) = self.step_of_rank(rank);
        let middle = (ge + lt.saturating_sub(ge) / 2).min(self.max_ns);
        // Where so few calls were measured that the quantile may be beyond all of them, there is no bound.
        let (least, most) = (rank - error, rank + error);
        Some((
            middle,
            if least < 1.0 { 0 } else { self.step_of_rank(least).0 },
            if most > count {
                u64::MAX
            } else {
                self.step_of_rank(most).1
            },
        ))
    }
}

fn add_named(sums: &mut Vec<(String, u64)>, more: Vec<(String, u64)>) {
    for (name, number) in more {
        match sums.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum = sum.saturating_add(number),
            None => sums.push((name, number)),
        }
    }
}

fn text(before: &Run, after: &Run, terminal: Option<usize>) -> String {
    let mut text = String::new();
    let width = terminal.unwrap_or(WIDTH);
    for (name, run) in [("before", before), ("after", after)] {
        let line = format!("{name:<7} {}  {}  ", run.start, time_sum(run.duration_ns));
        let room = terminal.map_or(usize::MAX, |width| width.saturating_sub(line.chars().count()));
        text.push_str((line + &beginning(&run.subject, room)).trim_end());
        text.push('\n');
        if let Some(words) = run.sampled() {
            let _ = writeln!(text, "        {words}");
        }
        for (layer, &after_ns) in &run.detached {
            let after = time_sum(after_ns);
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "        {layer} was detached at {after} (--budget):\n          its numbers cover less time"
            );
        }
    }
    let sections = sections(before, after);
    // From the preferred layout to the narrowest.
    let form = |gap, is_wide, most| section_lines(&sections, gap, is_wide, most);
    let forms = [
        form(2, true, usize::MAX),
        form(2, false, usize::MAX),
        form(1, false, usize::MAX),
        form(1, false, NAMES),
    ];
    let fits = |lines: &&Vec<String>| lines.iter().all(|line| line.chars().count() <= width);
    for line in forms.iter().find(fits).unwrap_or(&forms[3]) {
        text.push_str(line);
        text.push('\n');
    }
    text
}

fn sections(before: &Run, after: &Run) -> Vec<Section> {
    let names = names(before, after).into_iter();
    names.map(|name| Section::of(before, after, name)).collect()
}

/// Groups with calls on either side.
fn names<'a>(before: &'a Run, after: &'a Run) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for group in before.groups.iter().chain(&after.groups) {
        if group.count > 0 && !names.contains(&group.name.as_str()) {
            names.push(&group.name);
        }
    }
    names
}

/// A comparison of one kind of calls.
struct Section {
    name: String,
    rows: Vec<Row>,
}

/// One number of both runs.
struct Row {
    name: String,
    /// `-` if it was not measured.
    before: String,
    after: String,
    /// The same as numbers: per second, in nanoseconds or in percent.
    numbers: [Option<f64>; 2],
    /// `None`: one of them was not measured.
    difference: Option<Difference>,
}

struct Difference {
    text: String,
    /// Relative to the number before; empty if that is 0.
    relative: String,
    is_noise: bool,
}

impl Section {
    fn of(before: &Run, after: &Run, name: &str) -> Self {
        let [old, new] = [before, after].map(|run| run.group(name));
        let calls = [(before, &old), (after, &new)].map(|(run, group)| {
            let group = group.as_ref();
            group.map(|group| run.per_second(group.count, group))
        });
        let most = calls.iter().flatten().map(|(rate, _)| *rate).fold(0.0, f64::max);
        let decimals = u32::from(most < 100.0);
        let number = move |n: f64| tenths(n, decimals);
        let mut rows = vec![row("calls/s", calls, number)];
        if let (Some(old), Some(new)) = (&old, &new)
            && old.count > 0
            && new.count > 0
        {
            rows.extend(rows_of_both(before, after, old, new));
        }
        Self {
            name: name.to_owned(),
            rows,
        }
    }
}

fn rows_of_both(before: &Run, after: &Run, old: &Group, new: &Group) -> Vec<Row> {
    let mut rows = Vec::new();
    if old.bytes > 0 || new.bytes > 0 {
        let bytes = [(before, old), (after, new)].map(|(run, group)| run.per_second(group.bytes, group));
        let unit = unit_of_bytes(bytes.map(|(rate, _)| rate.round() as u64));
        rows.push(row("bytes", bytes.map(Some), |n| {
            format!("{}/s", in_unit(unit, n, decimal_bytes))
        }));
    }
    let mut times = vec![("avg", [old, new].map(|group| Some(group.mean(group.total_ns))))];
    for name in names_of_both(&old.rows, &new.rows) {
        let of = |run: &Run, group: &Group| run.in_row(group, name).map(|ns| group.mean(ns));
        let both = [of(before, old), of(after, new)];
        if both.iter().flatten().any(|(mean, _)| *mean > 0.0) {
            times.push((name, both));
        }
    }
    let quantiles = QUANTILES
        .iter()
        .filter_map(|(name, q)| Some((*name, old.quantile(*q)?, new.quantile(*q)?)));
    let time = |both: [u64; 2]| {
        let unit = unit_of_times(both);
        move |ns| in_unit(unit, ns, time_each)
    };
    let mut times = times.into_iter().map(|(name, both)| {
        let means = both.map(|mean| mean.map_or(0, |(mean, _)| mean.round() as u64));
        row(name, both, time(means))
    });
    rows.extend(times.next());
    rows.extend(quantiles.map(|(name, old, new)| quantile_row(name, old, new, time([old.0, new.0]))));
    rows.extend(times);
    for class in names_of_both(&old.classes, &new.classes) {
        let both = [old, new].map(|group| group.share(class));
        if both.iter().flatten().any(|(share, _)| *share > 0.0) {
            rows.push(row(class, both, |share| format!("{} %", tenths(share, 1))));
        }
    }
    rows
}

/// The names in either list, those of the old one first: the compact form has no classes without calls.
fn names_of_both<'a>(old: &'a [(String, u64)], new: &'a [(String, u64)]) -> impl Iterator<Item = &'a str> {
    let new_ones = new
        .iter()
        .filter(|(name, _)| !old.iter().any(|(known, _)| known == name));
    old.iter().chain(new_ones).map(|(name, _)| name.as_str())
}

/// A number in the unit of its row, or in its own (`other`) if it would become 0.
fn in_unit(unit: ColumnUnit, n: f64, other: fn(u64) -> String) -> String {
    let n = n.round() as u64;
    if n > 0 && unit.steps(n) == 0 {
        return other(n);
    }
    format!("{} {}", unit.number(n), unit.name)
}

/// A number with 0 or 1 decimals.
fn tenths(n: f64, decimals: u32) -> String {
    let unit = ColumnUnit {
        name: "",
        size: 10,
        decimals,
    };
    unit.number((n * 10.0).round() as u64)
}

/// A row for two means with their standard errors.
fn row(name: &str, [old, new]: [Option<(f64, f64)>; 2], text: impl Fn(f64) -> String) -> Row {
    let cell = |mean: Option<(f64, f64)>| mean.map_or_else(|| "-".to_owned(), |(mean, _)| text(mean));
    Row {
        name: name.to_owned(),
        before: cell(old),
        after: cell(new),
        numbers: [old, new].map(|mean| mean.map(|(mean, _)| mean)),
        difference: old.zip(new).map(|(old, new)| {
            let noise = ERRORS * (old.1 * old.1 + new.1 * new.1).sqrt();
            difference(old.0, new.0, (new.0 - old.0).abs() <= noise, &text)
        }),
    }
}

/// A row for two quantiles with their smallest and largest possible values.
fn quantile_row(name: &str, old: (u64, u64, u64), new: (u64, u64, u64), text: impl Fn(f64) -> String) -> Row {
    // If the ranges overlap, the values may be equal.
    let is_noise = old.1 < new.2 && new.1 < old.2;
    Row {
        name: name.to_owned(),
        before: text(old.0 as f64),
        after: text(new.0 as f64),
        numbers: [Some(old.0 as f64), Some(new.0 as f64)],
        difference: Some(difference(old.0 as f64, new.0 as f64, is_noise, &text)),
    }
}

fn difference(old: f64, new: f64, is_noise: bool, text: &impl Fn(f64) -> String) -> Difference {
    let change = new - old;
    let sign = match change {
        change if change < 0.0 => "-",
        change if change > 0.0 => "+",
        _ => "",
    };
    Difference {
        text: signed(sign, text(change.abs())),
        relative: if old > 0.0 {
            signed(sign, format!("{} %", tenths(change.abs() / old * 100.0, 1)))
        } else {
            String::new()
        },
        is_noise,
    }
}

/// Minimum width of names: that of `others' I/O`.
const NAMES: usize = 13;

/// The lines of all sections, with aligned columns. Unless `is_wide`, differences within noise have no percentage. A
/// name of more than `most` columns has a line of its own.
fn section_lines(sections: &[Section], gap: usize, is_wide: bool, most: usize) -> Vec<String> {
    const NOISE: &str = "within noise";
    let rows = || sections.iter().flat_map(|section| &section.rows);
    let widest = |of: &dyn Fn(&Row) -> usize, least: usize| rows().map(of).max().unwrap_or(0).max(least);
    let length = |text: &str| text.chars().count();
    let names = widest(&|row| length(&row.name) + 2, 12);
    let names = sections
        .iter()
        .map(|section| length(&section.name))
        .max()
        .unwrap_or(0)
        .max(names)
        .min(most);
    let numbers = widest(&|row| length(&row.before).max(length(&row.after)), 9);
    let differences = widest(&|row| row.difference.as_ref().map_or(1, |it| length(&it.text)), 10);
    let relatives = widest(&|row| row.difference.as_ref().map_or(0, |it| length(&it.relative)), 0);
    let line = |name: &str, before: &str, after: &str, difference: &str, rest: &str| {
        let (own, name) = if length(name) > names {
            (Some(name.to_owned()), "")
        } else {
            (None, name)
        };
        let line = format!(
            "{name:<names$}{:gap$}{before:>numbers$}{:gap$}{after:>numbers$}{:gap$}{difference:>differences$}{:gap$}{rest}",
            "", "", "", ""
        );
        own.into_iter().chain([line.trim_end().to_owned()])
    };
    let mut lines = Vec::new();
    for section in sections {
        lines.push(String::new());
        lines.extend(line(&section.name, "before", "after", "difference", ""));
        for row in &section.rows {
            let (difference, rest) = match &row.difference {
                None => ("-", String::new()),
                Some(it) if !it.is_noise => (it.text.as_str(), format!("{:>relatives$}", it.relative)),
                Some(it) if is_wide => (it.text.as_str(), format!("{:>relatives$}  {NOISE}", it.relative)),
                Some(it) => (it.text.as_str(), NOISE.to_owned()),
            };
            lines.extend(line(
                &format!("  {}", row.name),
                &row.before,
                &row.after,
                difference,
                &rest,
            ));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fuzz;
    use crate::printable::is_printable;

    fn group(count: u64, ns: u64, device: u64) -> Group {
        Group {
            name: "read".into(),
            count,
            total_ns: ns * count,
            max_ns: 2 * ns,
            rows: vec![("device".into(), device * count), ("lock".into(), 0)],
            buckets: vec![Bucket {
                ge_ns: ns,
                lt_ns: Some(ns + ns / 8),
                count,
            }],
            ..Group::default()
        }
    }

    #[test]
    fn slow_calls_are_no_reports() {
        assert!(matches!(
            report_in(br#"{"schema_version":1,"slow_call":{"pid":1}}"#),
            Ok(None)
        ));
        let left_out = br#"{"schema_version":1,"slow_calls_not_told":{"limited":1,"no_room":0}}"#;
        assert!(matches!(report_in(left_out), Ok(None)));
        let report = r#"{"schema_version":1,"start":"","duration_ns":1,"subject":"","layers":[],"stack":null}"#;
        assert!(matches!(report_in(report.as_bytes()), Ok(Some(_))));
        let says =
            |line: &str, what: &str| report_in(line.as_bytes()).is_err_and(|error| error.to_string().contains(what));
        assert!(says("{}", "schema_version"));
        assert!(says(r#"{"schema_version":1}"#, "start"));
        assert!(says(&report.replacen(":1", ":2", 1), "schema_version is 2"));
    }

    #[test]
    fn a_detached_layer_is_reported() {
        let report = r#"{"schema_version":1,"start":"","duration_ns":1,"subject":"","layers":[],"stack":null,
            "cost":{"budget":{"detached":[{"layer":"vfs","after_ns":12000000000}]}}}"#;
        let report = report_in(report.as_bytes()).unwrap().unwrap();
        let mut run = Run::of(&report);
        run.add(&report);
        let whole = Run {
            detached: BTreeMap::new(),
            ..self::run(group(1, 1, 1))
        };
        let text = compared(&whole, &run);
        assert_eq!(text.matches(" was detached ").count(), 1, "{text}");
        assert!(text.contains("        vfs was detached at 12.0 s (--budget)"), "{text}");
    }

    fn run(group: Group) -> Run {
        Run {
            start: "2026-11-20T11:02:33.120Z".into(),
            subject: "PID 4711 (postgres)".into(),
            duration_ns: 10_000_000_000,
            has_stack: true,
            layers: BTreeSet::new(),
            is_queued: false,
            sample: None,
            detached: BTreeMap::new(),
            missing: BTreeSet::new(),
            groups: vec![group],
            columns: Columns::default(),
        }
    }

    fn compared(before: &Run, after: &Run) -> String {
        text(before, after, None)
    }

    /// The words on the line of a row.
    fn words<'a>(text: &'a str, row: &str) -> Vec<&'a str> {
        let line = text.lines().find(|line| line.trim_start().starts_with(row));
        line.unwrap_or_else(|| panic!("{row}: {text}"))
            .split_whitespace()
            .collect()
    }

    #[test]
    fn a_row_that_one_run_has_not_measured_is_no_difference() {
        let whole = run(group(10_000, 100_000, 90_000));
        let without = Run {
            missing: BTreeSet::from(["device".to_owned()]),
            ..run(Group {
                rows: Vec::new(),
                ..group(10_000, 100_000, 0)
            })
        };
        assert_eq!(
            words(&compared(&whole, &without), "device"),
            ["device", "90.00", "us", "-", "-"]
        );
        assert_eq!(
            words(&compared(&without, &whole), "device"),
            ["device", "-", "90.00", "us", "-"]
        );
        // A measured row that is missing had no time.
        let unused = Run {
            missing: BTreeSet::new(),
            ..without
        };
        let text = compared(&whole, &unused);
        assert_eq!(
            words(&text, "device"),
            ["device", "90.00", "us", "0.00", "us", "-90.00", "us", "-100.0", "%"]
        );
    }

    #[test]
    fn reads_are_compared_by_where_their_data_came_from() {
        let of = |cached, waited| Group {
            classes: vec![
                ("from cache".into(), cached),
                ("waited for own".into(), waited),
                ("direct".into(), 0),
            ],
            ..group(cached + waited, 1000, 500)
        };
        let text = compared(&run(of(9000, 1000)), &run(of(5000, 5000)));
        assert_eq!(
            words(&text, "from cache"),
            ["from", "cache", "90.0", "%", "50.0", "%", "-40.0", "%", "-44.4", "%"]
        );
        assert!(words(&text, "waited for own").contains(&"+400.0"), "{text}");
        assert!(!text.contains("direct"), "{text}");
        // The compact form leaves out what had no calls.
        let only_cached = Group {
            classes: vec![("from cache".into(), 9000)],
            ..group(9000, 1000, 500)
        };
        for (before, after, row) in [
            (&only_cached, &of(5000, 5000), ["0.0", "%", "50.0", "%"]),
            (&of(5000, 5000), &only_cached, ["50.0", "%", "0.0", "%"]),
        ] {
            let text = compared(&run(before.clone()), &run(after.clone()));
            assert_eq!(words(&text, "waited for own")[3..7], row, "{text}");
        }
        let text = compared(&run(of(9, 1)), &run(of(5, 5)));
        assert!(words(&text, "from cache").ends_with(&["within", "noise"]), "{text}");
    }

    #[test]
    fn time_that_is_not_split_is_not_compared_with_system_calls() {
        let report = |is_split| {
            let report = format!(
                r#"{{"schema_version":1,"start":"","duration_ns":1000000000,"subject":"","stack":{{"kernel_time_split":{is_split},
                "families":[{{"family":"read","count":2,"bytes":0,"total_ns":2000,"max_ns":1100,
                "rows":[{{"row":"syscall","ns":2000}}],"buckets":[]}}]}}}}"#
            );
            run_of(report.replace('\n', " ").as_bytes()).unwrap()
        };
        let text = compared(&report(false), &report(true));
        assert_eq!(words(&text, "kernel")[3..], ["1.000", "us", "-", "-"], "{text}");
        assert_eq!(words(&text, "syscall"), ["syscall", "-", "1.000", "us", "-"], "{text}");
    }

    #[test]
    fn a_difference_that_is_rounded_to_zero_has_no_sign() {
        let text = |number: f64| format!("{number:.1}");
        let of = |new| difference(100.0, new, true, &text);
        assert_eq!(
            (of(99.99).text, of(99.99).relative),
            ("0.0".to_owned(), "0.0 %".to_owned())
        );
        assert_eq!(
            (of(99.9).text, of(99.9).relative),
            ("-0.1".to_owned(), "-0.1 %".to_owned())
        );
        assert_eq!(of(100.1).text, "+0.1");
    }

    #[test]
    fn what_is_larger_than_the_noise_is_a_difference() {
        let text = compared(
            &run(group(10_000, 100_000, 90_000)),
            &run(group(10_000, 150_000, 140_000)),
        );
        let average = ["avg", "100.0", "us", "150.0", "us", "+50.0", "us", "+50.0", "%"];
        assert_eq!(words(&text, "avg"), average, "{text}");
        let device = ["device", "90.0", "us", "140.0", "us", "+50.0", "us", "+55.6", "%"];
        assert_eq!(words(&text, "device"), device, "{text}");
        let calls = ["calls/s", "1,000", "1,000", "0", "0.0", "%", "within", "noise"];
        assert_eq!(words(&text, "calls/s"), calls, "{text}");
        assert!(!text.contains("lock"), "{text}");
    }

    #[test]
    fn what_few_calls_say_is_shown_and_marked() {
        let few = [run(group(10, 496_000, 90_000)), run(group(10, 446_000, 95_000))];
        let text = compared(&few[0], &few[1]);
        let expected = [
            "avg", "496.0", "us", "446.0", "us", "-50.0", "us", "-10.1", "%", "within", "noise",
        ];
        assert_eq!(words(&text, "avg"), expected, "{text}");
        for name in ["p50", "device"] {
            assert!(words(&text, name).ends_with(&["within", "noise"]), "{name}: {text}");
        }
        assert!(!text.contains("p99"), "{text}");
    }

    #[test]
    fn what_is_beyond_all_measured_calls_has_no_bound() {
        let is_noise = |count, row| {
            let runs = [1_000, 2_000].map(|ns| run(group(count, ns, ns)));
            words(&compared(&runs[0], &runs[1]), row).ends_with(&["within", "noise"])
        };
        // Three standard errors below the rank of the median, there is none of 12 calls, and the first of 13.
        assert_eq!([12, 13].map(|count| is_noise(count, "p50")), [true, false]);
        assert_eq!([80, 82].map(|count| is_noise(count, "p90")), [true, false]);
        assert_eq!([1, 1000].map(|count| is_noise(count, "avg")), [true, false]);
    }

    #[test]
    fn the_noise_of_a_sample_is_that_of_its_measured_calls() {
        let of_sample = |ns, one_in| Run {
            sample: Some(one_in),
            ..run(Group {
                one_in,
                ..group(10_000, ns, ns)
            })
        };
        let marked = |one_in| {
            let text = compared(&of_sample(100_000, one_in), &of_sample(150_000, one_in));
            let is_noise = |row| words(&text, row).ends_with(&["within", "noise"]);
            [is_noise("avg"), is_noise("device")]
        };
        assert_eq!(marked(1), [false; 2]);
        // 10 measured calls.
        assert_eq!(marked(1000), [true; 2]);
        let text = compared(&of_sample(100_000, 1000), &run(group(9_000, 100_000, 1)));
        assert_eq!(
            text.matches("        estimates from 1 in 1,000 calls (--sample)\n")
                .count(),
            1,
            "{text}"
        );
        assert!(words(&text, "calls/s").ends_with(&["within", "noise"]), "{text}");
        // Too few of them for a p99.
        assert!(!text.contains("p99"), "{text}");
        let halves = |few, many, one_in| {
            let step = |ge_ns, count| Bucket {
                ge_ns,
                lt_ns: Some(ge_ns + ge_ns / 8),
                count,
            };
            run(Group {
                one_in,
                buckets: vec![step(10_240, few), step(102_400, many)],
                ..group(10_000, 100_000, 1)
            })
        };
        let is_noise = |one_in| {
            let text = compared(&halves(6_000, 4_000, one_in), &halves(4_000, 6_000, one_in));
            words(&text, "p50").ends_with(&["within", "noise"])
        };
        assert_eq!([is_noise(1), is_noise(1000)], [false, true]);
        let exact = compared(&run(group(10_000, 100_000, 1)), &run(group(9_000, 100_000, 1)));
        assert!(
            !words(&exact, "calls/s").contains(&"noise") && exact.contains("p99"),
            "{exact}"
        );
    }

    #[test]
    fn only_estimates_are_of_the_sample() {
        let run = run_of(REPORT.as_bytes()).unwrap();
        assert_eq!(
            (run.sample, run.groups[0].one_in, run.groups[0].measured()),
            (Some(3), 3, 1.0)
        );
        let exact = REPORT.replace(r#""estimate":{"count_low":1}"#, r#""estimate":null"#);
        let run = run_of(exact.as_bytes()).unwrap();
        assert_eq!((run.groups[0].one_in, run.groups[0].measured()), (0, 3.0));
    }

    #[test]
    fn lines_fit_the_terminal() {
        let few = [(1_496_000, 90_000), (1_046_000, 1_000_000)].map(|(ns, kernel)| {
            let mut group = group(10, ns, 0);
            group.bytes = 12_345_678_000;
            group.rows = vec![
                (NOT_SPLIT.into(), kernel * 10),
                ("others' I/O".into(), (ns - kernel) * 10),
            ];
            Run {
                subject: "'sh -c a command that is longer than most terminals are wide'".into(),
                detached: BTreeMap::from([("syscall".to_owned(), 120_000_000_000)]),
                ..run(group)
            }
        });
        for width in [60, 80, 200] {
            let text = text(&few[0], &few[1], Some(width));
            assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
            assert!(text.contains("within noise"), "{text}");
            let at = text.lines().position(|line| line.starts_with("  kernel (not split)"));
            let rows: Vec<&str> = text.lines().skip(at.unwrap_or_else(|| panic!("{text}"))).collect();
            // If a name does not fit beside its numbers, it has a line of its own.
            let numbers = if width == 60 { rows[1] } else { &rows[0][20..] };
            assert!(numbers.trim_start().starts_with("0.090 ms"), "{text}");
            assert_eq!(rows[0].ends_with("split)"), width == 60, "{text}");
        }
    }

    #[test]
    fn a_row_has_one_unit_and_few_digits() {
        let kernel = |ns| run(group(10_000, 100_000, ns));
        let both = words_of(&kernel(12_355), &kernel(9_871));
        assert_eq!(both[..7], ["device", "12.36", "us", "9.87", "us", "-2.48", "us"]);
        // A difference above 0 is not shown as 0.
        let both = words_of(&kernel(99_000), &kernel(1));
        assert_eq!(both[..7], ["device", "99.000", "us", "0.001", "us", "-98.999", "us"]);
        let small = in_unit(unit_of_times([12_400_000_000, 300]), 300.0, time_each);
        assert_eq!(small, "300 ns");
    }

    fn words_of(before: &Run, after: &Run) -> Vec<String> {
        let text = compared(before, after);
        words(&text, "device").into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn calls_that_one_run_had_not_are_none() {
        let text = compared(&run(group(50, 10, 1)), &run(Group::default()));
        let expected = ["calls/s", "5.0", "0.0", "-5.0", "-100.0", "%"];
        assert_eq!(words(&text, "calls/s"), expected, "{text}");
        assert!(!text.contains("avg"), "{text}");
    }

    #[test]
    fn a_layer_that_one_run_did_not_select_is_no_difference() {
        let of = |layer: &str| {
            format!(
                r#"{{"schema_version":1,"start":"","duration_ns":1000000000,"subject":"","layers":[{{"layer":"{layer}",
                    "ops":[{{"op":"read","count":3,"total_ns":9,"max_ns":3,"buckets":[]}}]}}],"stack":null}}"#
            )
        };
        let [vfs, blk] = ["vfs", "blk"].map(|layer| run_of(of(layer).as_bytes()).unwrap());
        let text = text(&vfs, &blk, None);
        let rates: Vec<Vec<&str>> = text
            .lines()
            .filter(|line| line.contains("calls/s"))
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(
            rates,
            [["calls/s", "3.0", "-", "-"], ["calls/s", "-", "3.0", "-"]],
            "{text}"
        );
    }

    #[test]
    fn requests_with_the_queue_are_not_compared_with_others() {
        let run = |layer: &str, is_queued| Run {
            has_stack: false,
            layers: [layer.to_owned()].into(),
            is_queued,
            ..self::run(group(1, 1, 1))
        };
        let queued = run("blk", true);
        let error = comparable(&queued, &run("blk", false)).unwrap_err();
        assert!(error.contains("(-Q)"), "{error}");
        for other in [run("blk", true), run("syscall", false)] {
            assert_eq!(comparable(&queued, &other), Ok(()));
        }
    }

    /// A report with every field that is read.
    const REPORT: &str = r#"{"schema_version":1,"start":"2026-11-20T11:02:33.120Z","duration_ns":1000000000,"subject":"PID 1 (sh)","sample":{"one_in":3},
        "layers":[{"layer":"vfs","ops":[{"op":"read","count":3,"bytes":9,"total_ns":300,"max_ns":200,"buckets":[]}]}],
        "stack":{"families":[{"family":"read","count":3,"bytes":9,"total_ns":300,"max_ns":200,"rows":[{"row":"device","ns":300}],"estimate":{"count_low":1},
        "buckets":[{"ge_ns":96,"lt_ns":104,"count":2},{"ge_ns":192,"lt_ns":null,"count":1}]}]},
        "cost":{"budget":{"detached":[{"layer":"vfs","after_ns":5}]}}}"#;

    fn run_of(line: &[u8]) -> Option<Run> {
        let report = report_in(line).ok()??;
        let mut run = Run::of(&report);
        run.add(&report);
        run.is_possible().then_some(run)
    }

    /// A report in which every string is replaced by this one.
    fn with_text(value: &mut serde_json::Value, text: &str) {
        match value {
            serde_json::Value::String(old) => *old = text.to_owned(),
            serde_json::Value::Array(all) => all.iter_mut().for_each(|value| with_text(value, text)),
            serde_json::Value::Object(all) => all.values_mut().for_each(|value| with_text(value, text)),
            _ => {}
        }
    }

    #[test]
    fn impossible_numbers_are_refused() {
        let run = run_of(REPORT.as_bytes()).unwrap();
        assert!(run.is_possible());
        for (what, other) in [
            ("families", r#"{"family":"#),
            ("rows", r#"{"row":"#),
            ("buckets", r#"{"ge_ns":"#),
        ] {
            let mut report: serde_json::Value = serde_json::from_str(REPORT).unwrap();
            let stack = &mut report["stack"];
            let all = if what == "families" {
                &mut stack[what]
            } else {
                &mut stack["families"][0][what]
            };
            let (one, name) = (all[0].clone(), other.split('"').nth(1).unwrap());
            let many = (0..=MOST as u64).map(|n| {
                let mut one = one.clone();
                one[name] = if what == "buckets" {
                    n.into()
                } else {
                    n.to_string().into()
                };
                one
            });
            *all = many.collect();
            assert!(run_of(report.to_string().as_bytes()).is_none(), "{what}");
        }
    }

    #[test]
    fn steps_of_many_reports_are_as_many_as_those_of_one() {
        let report = || report_in(REPORT.as_bytes()).unwrap().unwrap();
        let mut run = Run::of(&report());
        (0..10_000).for_each(|_| run.add(&report()));
        let steps: Vec<u64> = run.groups[0].buckets.iter().map(|step| step.count).collect();
        assert_eq!(steps, [20_000, 10_000]);
    }

    proptest! {
        #![proptest_config(fuzz::config())]

        #[test]
        fn any_report_is_compared_or_refused(line in fuzz::bytes_like(REPORT)) {
            if let Some(run) = run_of(&line) {
                prop_assert!(!compared(&run, &run).is_empty());
            }
        }

        #[test]
        fn any_text_in_a_report_is_printable(text in any::<String>()) {
            let mut report: serde_json::Value = serde_json::from_str(REPORT).unwrap();
            for has_stack in [true, false] {
                if !has_stack {
                    report["stack"] = serde_json::Value::Null;
                }
                let mut text_with = |text: &str| {
                    with_text(&mut report, text);
                    let run = run_of(report.to_string().as_bytes()).unwrap();
                    // On a narrower terminal, long names have lines of their own.
                    super::text(&run, &run, Some(usize::MAX))
                };
                let reported = text_with(&text);
                prop_assert!(reported.chars().all(|c| c == '\n' || is_printable(c)), "{:?}", reported);
                prop_assert_eq!(reported.lines().count(), text_with("x").lines().count());
            }
        }
    }
}
