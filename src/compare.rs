//! `compare BEFORE.json AFTER.json`: what became faster or slower between two runs, and what only looks so.
//!
//! A difference is told as one when it is larger than the noise that so few calls have: three standard errors, of which
//! nothing is assumed but what was measured. The variance of a call's time in a row is at most `mean × (longest call − mean)`,
//! whatever its distribution; a quantile is between the steps of the calls three standard errors of its rank away.

mod lines;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use serde::de::{Error, IgnoredAny};
use serde::{Deserialize, Deserializer};

use self::lines::Lines;
use crate::printable::printable;
use crate::report::json::SCHEMA_VERSION;
use crate::report::text::number::{decimal_bytes, thousands, time_each, time_sum};

/// How many standard errors are noise.
const ERRORS: f64 = 3.0;
const QUANTILES: [(&str, f64); 3] = [("p50", 0.50), ("p90", 0.90), ("p99", 0.99)];

/// What tells the lines of `--slower` from reports.
#[derive(Debug, Deserialize)]
struct Kind {
    schema_version: u32,
    slow_call: Option<IgnoredAny>,
    slow_calls_not_told: Option<IgnoredAny>,
}

/// What is read of a report.
#[derive(Debug, Deserialize)]
struct Line {
    #[serde(deserialize_with = "shown")]
    start: String,
    duration_ns: u64,
    #[serde(deserialize_with = "shown")]
    subject: String,
    layers: Vec<LayerLine>,
    stack: Option<StackLine>,
    cost: Option<CostLine>,
}

#[derive(Debug, Deserialize)]
struct CostLine {
    budget: Option<BudgetLine>,
}

#[derive(Debug, Deserialize)]
struct BudgetLine {
    detached: Vec<DetachedLine>,
}

#[derive(Debug, Deserialize)]
struct DetachedLine {
    #[serde(deserialize_with = "shown")]
    layer: String,
    after_ns: u64,
}

#[derive(Debug, Deserialize)]
struct LayerLine {
    #[serde(deserialize_with = "shown")]
    layer: String,
    ops: Vec<OpLine>,
}

#[derive(Debug, Deserialize)]
struct OpLine {
    #[serde(deserialize_with = "shown")]
    op: String,
    count: Option<u64>,
    bytes: Option<u64>,
    total_ns: Option<u64>,
    max_ns: Option<u64>,
    buckets: Option<Vec<BucketLine>>,
}

#[derive(Debug, Deserialize)]
struct StackLine {
    families: Vec<FamilyLine>,
}

#[derive(Debug, Deserialize)]
struct FamilyLine {
    #[serde(deserialize_with = "shown")]
    family: String,
    count: u64,
    bytes: u64,
    total_ns: u64,
    max_ns: Option<u64>,
    rows: Vec<RowLine>,
    buckets: Vec<BucketLine>,
}

#[derive(Debug, Deserialize)]
struct RowLine {
    #[serde(deserialize_with = "shown")]
    row: String,
    ns: Option<u64>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
struct BucketLine {
    ge_ns: u64,
    lt_ns: Option<u64>,
    count: u64,
}

/// Text that is printed as it is. Whoever wrote the file has chosen it.
fn shown<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    String::deserialize(from).map(|text| printable(&text))
}

/// A run: all of its reports together.
#[derive(Debug)]
struct Run {
    start: String,
    subject: String,
    duration_ns: u64,
    has_stack: bool,
    /// Layers that were not measured to the end (`--budget`), and how long each was, in nanoseconds.
    detached: BTreeMap<String, u64>,
    groups: Vec<Group>,
}

/// Calls that are compared: a family, or an op of a layer.
#[derive(Debug, Default)]
struct Group {
    name: String,
    count: u64,
    bytes: u64,
    total_ns: u64,
    max_ns: u64,
    rows: Vec<(String, u64)>,
    /// Bounds and counts, in order.
    buckets: Vec<BucketLine>,
}

/// The comparison of two files of `--json`.
///
/// # Errors
/// One line: what cannot be read, or cannot be compared.
pub fn compare(before: &Path, after: &Path) -> Result<String, String> {
    let (before, after) = (read(before)?, read(after)?);
    if before.has_stack != after.has_stack {
        return Err("one of them is of the whole stack and the other one of single layers (-T)".to_owned());
    }
    Ok(tell(&before, &after))
}

/// As many groups as a run may have, rows and steps of a group: more than there are. What is read stays as small.
const MOST: usize = 1000;
/// Characters that are shown of an error. One may quote all of a file.
const LONGEST_ERROR: usize = 200;

fn read(path: &Path) -> Result<Run, String> {
    let mut lines = Lines::open(path)?;
    let mut run: Option<Run> = None;
    while let Some(line) = lines.next()? {
        let report = report_in(line).map_err(|error| no_report(&lines.place(), &error))?;
        let Some(report) = report else { continue };
        let run = run.get_or_insert_with(|| Run::of(&report));
        run.add(report);
        if !run.is_possible() {
            let place = lines.place();
            return Err(format!(
                "{place} is no report of --json: there is more in it than is ever measured"
            ));
        }
    }
    run.ok_or_else(|| lines.nothing())
}

/// The line is known already; a place in it is a column.
fn no_report(place: &str, error: &serde_json::Error) -> String {
    let text = error.to_string();
    let known = format!(" at line {} column {}", error.line(), error.column());
    let why: String = text.trim_end_matches(&known).chars().take(LONGEST_ERROR).collect();
    let column = match error.column() {
        0 => String::new(),
        column => format!(" (column {column})"),
    };
    format!("{place} is no report of --json: {why}{column}")
}

/// The report of a line, if it is one.
fn report_in(line: &[u8]) -> serde_json::Result<Option<Line>> {
    let kind: Kind = serde_json::from_slice(line)?;
    if kind.schema_version != SCHEMA_VERSION {
        let text = format!(
            "its schema_version is {}, and what is read here is {SCHEMA_VERSION}",
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
    /// One without reports, such as `first` is.
    fn of(first: &Line) -> Self {
        Self {
            start: first.start.clone(),
            subject: first.subject.clone(),
            duration_ns: 0,
            has_stack: first.stack.is_some(),
            detached: BTreeMap::new(),
            groups: Vec::new(),
        }
    }

    fn add(&mut self, line: Line) {
        self.duration_ns = self.duration_ns.saturating_add(line.duration_ns);
        let budget = line.cost.and_then(|cost| cost.budget);
        let detached = budget.into_iter().flat_map(|budget| budget.detached);
        self.detached.extend(detached.map(|it| (it.layer, it.after_ns)));
        let groups = match line.stack {
            Some(stack) => stack.families.into_iter().map(Group::of_family).collect(),
            None => line.layers.into_iter().flat_map(Group::of_layer).collect::<Vec<_>>(),
        };
        for group in groups {
            let is_full = self.groups.len() > MOST;
            match self.groups.iter_mut().find(|known| known.name == group.name) {
                Some(known) => known.add(group),
                None if is_full => return,
                None => self.groups.push(group),
            }
        }
    }

    /// No more than can have been measured.
    fn is_possible(&self) -> bool {
        let is_possible = |group: &Group| group.rows.len() <= MOST && group.buckets.len() <= MOST;
        self.groups.len() <= MOST && self.detached.len() <= MOST && self.groups.iter().all(is_possible)
    }

    fn group(&self, name: &str) -> Option<&Group> {
        self.groups.iter().find(|group| group.name == name && group.count > 0)
    }

    fn seconds(&self) -> f64 {
        self.duration_ns as f64 / 1e9
    }
}

impl Group {
    fn of_family(line: FamilyLine) -> Self {
        let measured = line.rows.into_iter().filter_map(|row| Some((row.row, row.ns?)));
        // One more is enough to see that they are too many.
        let measured = measured.take(MOST + 1);
        Self {
            name: line.family,
            count: line.count,
            bytes: line.bytes,
            total_ns: line.total_ns,
            max_ns: line.max_ns.unwrap_or(0),
            rows: measured.collect(),
            buckets: line.buckets,
        }
    }

    fn of_layer(line: LayerLine) -> Vec<Self> {
        let ops = line.ops.into_iter().filter(|op| op.count.is_some());
        ops.map(|op| Self {
            name: format!("{} {}", line.layer, op.op),
            count: op.count.unwrap_or(0),
            bytes: op.bytes.unwrap_or(0),
            total_ns: op.total_ns.unwrap_or(0),
            max_ns: op.max_ns.unwrap_or(0),
            rows: Vec::new(),
            buckets: op.buckets.unwrap_or_default(),
        })
        .collect()
    }

    fn add(&mut self, other: Self) {
        self.count = self.count.saturating_add(other.count);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        for (name, ns) in other.rows {
            match self.rows.iter_mut().find(|(known, _)| *known == name) {
                Some((_, sum)) => *sum = sum.saturating_add(ns),
                None => self.rows.push((name, ns)),
            }
        }
        self.buckets.extend(other.buckets);
        self.buckets.sort_by_key(|bucket| (bucket.ge_ns, bucket.lt_ns));
        self.buckets.dedup_by(|again, kept| {
            let is_same = (again.ge_ns, again.lt_ns) == (kept.ge_ns, kept.lt_ns);
            if is_same {
                kept.count = kept.count.saturating_add(again.count);
            }
            is_same
        });
    }

    /// Of a time that all calls had together: the mean of a call, and the largest standard error that it can have.
    fn mean(&self, ns: u64) -> (f64, f64) {
        let count = self.count as f64;
        let mean = ns as f64 / count;
        let variance = mean * (self.max_ns as f64 - mean).max(0.0);
        (mean, (variance / count).sqrt())
    }

    /// Bounds of the step that the call of this rank is in; ranks beyond the calls are the outermost ones'.
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

    /// A quantile: its value, and the least and the most that it may be. `None` with too few calls to tell it.
    fn quantile(&self, q: f64) -> Option<(u64, u64, u64)> {
        let count = self.count as f64;
        if count < 1.0 / (1.0 - q) {
            return None;
        }
        let (rank, error) = (count * q, ERRORS * (count * q * (1.0 - q)).sqrt());
        let (ge, lt) = self.step_of_rank(rank);
        let middle = (ge + lt.saturating_sub(ge) / 2).min(self.max_ns);
        Some((
            middle,
            self.step_of_rank((rank - error).max(1.0)).0,
            self.step_of_rank((rank + error).min(count)).1,
        ))
    }
}

fn tell(before: &Run, after: &Run) -> String {
    let mut text = String::new();
    for (name, run) in [("before", before), ("after", after)] {
        let line = format!(
            "{name:<7} {}  {}  {}",
            run.start,
            time_sum(run.duration_ns),
            run.subject
        );
        text.push_str(line.trim_end());
        text.push('\n');
        for (layer, &after_ns) in &run.detached {
            let after = time_sum(after_ns);
            // A String can be written to.
            let _ = writeln!(
                text,
                "        without {layer} after {after} (--budget): differences in it may be those of the time"
            );
        }
    }
    for name in names(before, after) {
        // A String can be written to.
        let _ = writeln!(
            text,
            "\n{name:<20}{:>12}{:>12}  {:>14}",
            "before", "after", "difference"
        );
        for line in rows(before, after, name) {
            text.push_str(line.trim_end());
            text.push('\n');
        }
    }
    text
}

/// Groups that have calls on either side.
fn names<'a>(before: &'a Run, after: &'a Run) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for group in before.groups.iter().chain(&after.groups) {
        if group.count > 0 && !names.contains(&group.name.as_str()) {
            names.push(&group.name);
        }
    }
    names
}

fn rows(before: &Run, after: &Run, name: &str) -> Vec<String> {
    let (old, new) = match (before.group(name), after.group(name)) {
        (Some(old), Some(new)) => (old, new),
        (Some(old), None) => return vec![format!("  calls             {:>12}           -", thousands(old.count))],
        (None, Some(new)) => return vec![format!("  calls                        -{:>12}", thousands(new.count))],
        (None, None) => return Vec::new(),
    };
    let mut lines = Vec::new();
    let per_second = |group: &Group, run: &Run| {
        let seconds = run.seconds().max(f64::MIN_POSITIVE);
        (group.count as f64 / seconds, (group.count as f64).sqrt() / seconds)
    };
    let calls = [per_second(old, before), per_second(new, after)];
    let number = |n: f64| thousands(n.round() as u64);
    lines.push(line("calls/s", calls, number));
    if old.bytes > 0 || new.bytes > 0 {
        let [a, b] = [(old, before), (new, after)].map(|(group, run)| {
            let seconds = run.seconds().max(f64::MIN_POSITIVE);
            format!("{}/s", decimal_bytes((group.bytes as f64 / seconds) as u64))
        });
        lines.push(format!("  {:<18}{a:>12}{b:>12}", "bytes"));
    }
    lines.push(line(
        "avg",
        [old.mean(old.total_ns), new.mean(new.total_ns)],
        nanoseconds,
    ));
    for (name, q) in QUANTILES {
        if let (Some(old), Some(new)) = (old.quantile(q), new.quantile(q)) {
            lines.push(quantile_line(name, old, new));
        }
    }
    let of = |group: &Group, row: &str| group.rows.iter().find(|(name, _)| name == row).map(|(_, ns)| *ns);
    let new_ones = new.rows.iter().filter(|(row, _)| of(old, row).is_none());
    for (row, _) in old.rows.iter().chain(new_ones) {
        match (of(old, row), of(new, row)) {
            (Some(0), Some(0)) => {}
            (Some(a), Some(b)) => lines.push(line(row, [old.mean(a), new.mean(b)], nanoseconds)),
            // Measured in one of the runs only.
            (a, b) => {
                let [a, b] = [(old, a), (new, b)].map(|(group, ns)| match ns {
                    Some(ns) => nanoseconds(group.mean(ns).0),
                    None => "-".to_owned(),
                });
                lines.push(format!("  {row:<18}{a:>12}{b:>12}"));
            }
        }
    }
    lines
}

fn nanoseconds(ns: f64) -> String {
    time_each(ns.round() as u64)
}

/// Two means with their standard errors.
fn line(name: &str, [old, new]: [(f64, f64); 2], text: impl Fn(f64) -> String) -> String {
    let noise = ERRORS * (old.1 * old.1 + new.1 * new.1).sqrt();
    let difference = difference(old.0, new.0, noise, &text);
    format!("  {name:<18}{:>12}{:>12}  {difference}", text(old.0), text(new.0))
}

fn quantile_line(name: &str, old: (u64, u64, u64), new: (u64, u64, u64)) -> String {
    // Where the ranges overlap, both may be the same.
    let noise = if old.1 < new.2 && new.1 < old.2 {
        f64::INFINITY
    } else {
        0.0
    };
    let difference = difference(old.0 as f64, new.0 as f64, noise, &nanoseconds);
    format!(
        "  {name:<18}{:>12}{:>12}  {difference}",
        time_each(old.0),
        time_each(new.0)
    )
}

fn difference(old: f64, new: f64, noise: f64, text: &impl Fn(f64) -> String) -> String {
    let change = new - old;
    if change.abs() <= noise {
        return format!("{:>14}", "no difference");
    }
    let sign = if change < 0.0 { '-' } else { '+' };
    let relative = if old > 0.0 {
        format!("{sign}{:.1} %", change.abs() / old * 100.0)
    } else {
        String::new()
    };
    format!("{:>14} {relative:>10}", format!("{sign}{}", text(change.abs())))
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
            buckets: vec![BucketLine {
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
    fn a_layer_that_was_detached_is_told() {
        let report = r#"{"schema_version":1,"start":"","duration_ns":1,"subject":"","layers":[],"stack":null,
            "cost":{"budget":{"detached":[{"layer":"vfs","after_ns":12000000000}]}}}"#;
        let report = report_in(report.as_bytes()).unwrap().unwrap();
        let mut run = Run::of(&report);
        run.add(report);
        let whole = Run {
            detached: BTreeMap::new(),
            ..self::run(group(1, 1, 1))
        };
        let text = tell(&whole, &run);
        assert_eq!(text.matches("without ").count(), 1, "{text}");
        assert!(text.contains("        without vfs after 12.0 s (--budget)"), "{text}");
    }

    fn run(group: Group) -> Run {
        Run {
            start: "2026-11-20T11:02:33.120Z".into(),
            subject: "PID 4711 (postgres)".into(),
            duration_ns: 10_000_000_000,
            has_stack: true,
            detached: BTreeMap::new(),
            groups: vec![group],
        }
    }

    #[test]
    fn a_row_that_one_run_has_not_measured_is_no_difference() {
        let whole = run(group(10_000, 100_000, 90_000));
        let without = run(Group {
            rows: Vec::new(),
            ..group(10_000, 100_000, 0)
        });
        let text = tell(&whole, &without);
        assert!(
            text.contains("  device                 90.0 us           -\n"),
            "{text}"
        );
        let text = tell(&without, &whole);
        assert!(
            text.contains("  device                       -     90.0 us\n"),
            "{text}"
        );
    }

    #[test]
    fn what_is_larger_than_the_noise_is_a_difference() {
        let text = tell(
            &run(group(10_000, 100_000, 90_000)),
            &run(group(10_000, 150_000, 140_000)),
        );
        assert!(
            text.contains("  avg                     100 us      150 us        +50.0 us    +50.0 %"),
            "{text}"
        );
        assert!(
            text.contains("  device                 90.0 us      140 us        +50.0 us    +55.6 %"),
            "{text}"
        );
        assert!(
            text.contains("  calls/s                  1,000       1,000   no difference"),
            "{text}"
        );
        assert!(!text.contains("lock"), "{text}");
    }

    #[test]
    fn what_few_calls_say_is_noise() {
        let text = tell(&run(group(10, 100_000, 90_000)), &run(group(10, 105_000, 95_000)));
        for name in ["avg", "p50", "device"] {
            let line = text.lines().find(|line| line.trim_start().starts_with(name));
            assert!(
                line.is_some_and(|line| line.ends_with("no difference")),
                "{name}: {text}"
            );
        }
        assert!(!text.contains("p99"), "{text}");
    }

    #[test]
    fn nothing_compares_to_nothing() {
        let text = tell(&run(group(5, 10, 1)), &run(Group::default()));
        assert!(text.contains("  calls                        5           -"), "{text}");
    }

    /// All that is read of one, in a few words.
    const REPORT: &str = r#"{"schema_version":1,"start":"2026-11-20T11:02:33.120Z","duration_ns":1000000000,"subject":"PID 1 (sh)",
        "layers":[{"layer":"vfs","ops":[{"op":"read","count":3,"bytes":9,"total_ns":300,"max_ns":200,"buckets":[]}]}],
        "stack":{"families":[{"family":"read","count":3,"bytes":9,"total_ns":300,"max_ns":200,"rows":[{"row":"device","ns":300}],
        "buckets":[{"ge_ns":96,"lt_ns":104,"count":2},{"ge_ns":192,"lt_ns":null,"count":1}]}]},
        "cost":{"budget":{"detached":[{"layer":"vfs","after_ns":5}]}}}"#;

    fn run_of(line: &[u8]) -> Option<Run> {
        let report = report_in(line).ok()??;
        let mut run = Run::of(&report);
        run.add(report);
        run.is_possible().then_some(run)
    }

    /// A report in which every text is this one.
    fn with_text(value: &mut serde_json::Value, text: &str) {
        match value {
            serde_json::Value::String(old) => *old = text.to_owned(),
            serde_json::Value::Array(all) => all.iter_mut().for_each(|value| with_text(value, text)),
            serde_json::Value::Object(all) => all.values_mut().for_each(|value| with_text(value, text)),
            _ => {}
        }
    }

    #[test]
    fn what_nobody_can_have_measured_is_refused() {
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
        (0..10_000).for_each(|_| run.add(report()));
        let steps: Vec<u64> = run.groups[0].buckets.iter().map(|step| step.count).collect();
        assert_eq!(steps, [20_000, 10_000]);
    }

    proptest! {
        #![proptest_config(fuzz::config())]

        #[test]
        fn any_report_is_compared_or_refused(line in fuzz::bytes_like(REPORT)) {
            if let Some(run) = run_of(&line) {
                prop_assert!(!tell(&run, &run).is_empty());
            }
        }

        #[test]
        fn any_text_in_a_report_is_printable(text in any::<String>()) {
            let mut report: serde_json::Value = serde_json::from_str(REPORT).unwrap();
            for has_stack in [true, false] {
                if !has_stack {
                    report["stack"] = serde_json::Value::Null;
                }
                let mut told_with = |text: &str| {
                    with_text(&mut report, text);
                    let run = run_of(report.to_string().as_bytes()).unwrap();
                    tell(&run, &run)
                };
                let told = told_with(&text);
                prop_assert!(told.chars().all(|c| c == '\n' || is_printable(c)), "{:?}", told);
                prop_assert_eq!(told.lines().count(), told_with("x").lines().count());
            }
        }
    }
}
