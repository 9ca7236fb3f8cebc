//! The whole stack's view: verdicts first, then each family of calls with a row for wherever its time was.

use super::super::slow::SlowReport;
use super::super::stack::{FamilyReport, OriginReport, RowReport, StackReport};
use super::super::{LayerReport, Report};
use super::neighbour;
use super::number::{decimal_bytes, percent, rounded, thousands, time_each, time_sum};
use super::{Page, TextOptions, Unit, WIDTH, bar_length, counted, errors, excluded, losses, samples, sum};
use crate::layer::Layer;

/// A family of less than this part of all time, in percent, has no rows unless they are asked for.
const SMALL: u128 = 5;
/// Stars of a row that has all of its family's time.
const STARS: usize = 40;

/// The whole report.
pub fn print(report: &Report, stack: &StackReport, options: &TextOptions, page: &mut Page) {
    let called = by_time(&stack.families);
    page.line(&opening(&called, sum_of(&called), report));
    match &report.groups {
        Some(groups) => {
            page.blank();
            super::group::print(report, groups, options, page);
        }
        None => print_families(
            &stack.families,
            stack.not_waited.as_deref(),
            report.filter.is_by_process(),
            options,
            page,
        ),
    }
    for neighbours in report.layers.iter().filter_map(|layer| layer.neighbours.as_ref()) {
        neighbour::print(neighbours, page);
        page.blank();
    }
    if options.is_brief() {
        return;
    }
    let mut hooks: Vec<&str> = Vec::new();
    for hook in report.layers.iter().flat_map(|layer| &layer.hooks) {
        if !hooks.contains(hook) {
            hooks.push(hook);
        }
    }
    if !hooks.is_empty() {
        page.line(&format!("hook: {}", hooks.join(", ")));
    }
    print_trouble(report, stack, page);
}

/// Families that were called, those with most of the time first.
fn by_time(families: &[FamilyReport]) -> Vec<&FamilyReport> {
    let mut called: Vec<&FamilyReport> = families.iter().filter(|family| family.count() > 0).collect();
    called.sort_by_key(|family| std::cmp::Reverse(family.total_ns));
    called
}

fn sum_of(called: &[&FamilyReport]) -> u64 {
    called
        .iter()
        .fold(0_u64, |sum, family| sum.saturating_add(family.total_ns))
}

/// Where the time of each family was, and the requests that nobody waited for. `is_by_process`: only some processes' calls were asked
/// for.
pub fn print_families(
    families: &[FamilyReport],
    not_waited_for: Option<&[OriginReport]>,
    is_by_process: bool,
    options: &TextOptions,
    page: &mut Page,
) {
    let called = by_time(families);
    let total = sum_of(&called);
    let width = called.iter().map(|family| family.family.len()).max().unwrap_or(0);
    for family in &called {
        page.line(&format!(
            "  {:<width$} {:>7}  {}",
            family.family,
            percent(family.total_ns, total),
            verdict(family)
        ));
    }
    page.blank();
    let is_small = |family: &FamilyReport| u128::from(family.total_ns) * 100 < u128::from(total) * SMALL;
    let seen = fs_reached(families);
    let mut left_out = false;
    for (place, family) in called.iter().enumerate() {
        let unit = unit_of(family.total_ns, options.unit);
        page.line(&heading(family, unit));
        if place > 0 && is_small(family) && !options.verbose {
            left_out = true;
            continue;
        }
        for line in rows(family, &seen, unit) {
            page.line(&line);
        }
        for line in [reached(family), classes(family)].into_iter().flatten() {
            page.line(&line);
        }
        page.blank();
    }
    if left_out {
        page.line("(rows of the small ones: --verbose)");
    }
    page.blank();
    if let Some(origins) = not_waited_for.filter(|origins| !origins.is_empty()) {
        page.line(&format!(
            "{:<30}{:>8} {:>9} {:>11} {:>12}",
            "Not waited for here", "requests", "bytes", "queue avg", "device avg"
        ));
        let (theirs, others): (Vec<_>, Vec<_>) =
            (origins.iter()).partition(|origin| !is_by_process || is_of_traced(origin));
        theirs.into_iter().for_each(|origin| page.line(&not_waited(origin)));
        if !others.is_empty() {
            page.line("  and of the whole machine, not only of those traced:");
        }
        others.into_iter().for_each(|origin| page.line(&not_waited(origin)));
        page.blank();
    }
}

/// How many of the calls were slow, and what else has to be known of them.
pub fn print_slow(report: &Report, stack: &StackReport, slow: SlowReport, page: &mut Page) {
    let calls = stack.families.iter().map(FamilyReport::count);
    let calls = calls.fold(0, u64::saturating_add);
    page.line(&match slow.threshold_ns {
        0 => format!("{}.", counted(calls, "I/O call")),
        threshold => format!(
            "{} of {} took {} or longer.",
            thousands(slow.calls()),
            counted(calls, "I/O call"),
            time_each(threshold)
        ),
    });
    print_trouble(report, stack, page);
}

/// One line per family: for those who watch.
pub fn print_interval(report: &Report, stack: &StackReport, options: &TextOptions, page: &mut Page) {
    print_lines(report, &stack.families, &stack.families, page);
    if !options.is_brief() {
        print_trouble(report, stack, page);
    }
}

/// The lines of `families`, with the columns of `all`.
pub fn print_lines(report: &Report, all: &[FamilyReport], families: &[FamilyReport], page: &mut Page) {
    let called: Vec<&FamilyReport> = families.iter().filter(|family| family.count() > 0).collect();
    let seen = fs_reached(all);
    let columns: Vec<&RowReport> = all
        .first()
        .map(|family| family.rows.iter().filter(|row| is_shown_layer(row, &seen)).collect())
        .unwrap_or_default();
    let mut columns: Vec<&str> = columns.iter().map(|row| row.row).collect();
    let has_time = |name: &str| {
        let rows = all
            .iter()
            .filter(|family| family.count() > 0)
            .flat_map(|family| &family.rows);
        rows.filter(|row| row.row == name)
            .any(|row| row.ns.is_none_or(|ns| ns > 0))
    };
    let table = |columns: &[&str]| interval_table(report, &called, columns);
    let mut lines = table(&columns);
    if lines.iter().any(|line| line.chars().count() > WIDTH) {
        columns.retain(|name| has_time(name));
        lines = table(&columns);
    }
    for line in lines {
        page.line(&line);
    }
}

fn interval_table(report: &Report, called: &[&FamilyReport], columns: &[&str]) -> Vec<String> {
    let short = |name: &str| -> String {
        match name {
            "syscall" => "sys",
            "queue" => "que",
            "device" => "dev",
            "others' I/O" => "o.I/O",
            "journal" => "jrnl",
            "run queue" => "runq",
            name => name,
        }
        .to_owned()
    };
    let names: Vec<String> = columns.iter().map(|name| short(name)).collect();
    let seconds = report.length.as_secs_f64();
    let per_second = |n: f64| if seconds > 0.0 { n / seconds } else { 0.0 };
    let mut head = format!("{:<8} {:>7} {:>6} {:>7}", report.time_of_day, "call/s", "ms/s", "avg");
    for name in &names {
        head.push_str(&format!("{name:>0$}", name.chars().count().max(3) + 1));
    }
    let mut lines = vec![head];
    for family in called {
        let average = rounded(family.total_ns.into(), family.count().into()).unwrap_or(0);
        let mut line = format!(
            "{:<8} {:>7} {:>6} {:>7}",
            family.family,
            thousands(per_second(family.count() as f64).round() as u64),
            thousands(per_second(family.total_ns as f64 / 1e6).round() as u64),
            time_each(average)
        );
        for (column, name) in columns.iter().zip(&names) {
            let row = family.rows.iter().find(|row| row.row == *column);
            let cell = match row.and_then(|row| row.ns) {
                None => "-".to_owned(),
                Some(0) => ".".to_owned(),
                Some(ns) => rounded(u128::from(ns) * 100, family.total_ns.into())
                    .unwrap_or(0)
                    .to_string(),
            };
            line.push_str(&format!("{cell:>0$}", name.chars().count().max(3) + 1));
        }
        lines.push(line);
    }
    if called.is_empty() {
        lines.push("no calls".to_owned());
    }
    lines
}

/// `20,684 I/O calls took 3.3 s: 0.33 threads were inside one on average.`
fn opening(called: &[&FamilyReport], total: u64, report: &Report) -> String {
    if called.is_empty() {
        return "no I/O calls".to_owned();
    }
    let calls = called
        .iter()
        .fold(0_u64, |sum, family| sum.saturating_add(family.count()));
    let length = report.length.as_nanos();
    let inside = rounded(u128::from(total) * 100, length).map_or_else(String::new, |hundredths| {
        let (whole, part) = (hundredths / 100, hundredths % 100);
        let were = if hundredths == 100 {
            "thread was"
        } else {
            "threads were"
        };
        format!(": {}.{part:02} {were} inside one on average", thousands(whole))
    });
    format!("{} took {}{inside}.", counted(calls, "I/O call"), time_sum(total))
}

/// What most of a family's time went to.
fn verdict(family: &FamilyReport) -> String {
    let known = family.rows.iter().filter_map(|row| Some((row, row.ns?)));
    let Some((row, ns)) = known.max_by_key(|(_, ns)| *ns).filter(|(_, ns)| *ns > 0) else {
        return String::new();
    };
    let what = match row.row {
        "queue" => "waiting in the queue".to_owned(),
        "device" => "device wait".to_owned(),
        "others' I/O" => "waiting for others' I/O".to_owned(),
        "journal" => "journal commit".to_owned(),
        "lock" => "waiting for a lock".to_owned(),
        "other" => "asleep, for none of what is known here".to_owned(),
        "run queue" => "waiting for a CPU".to_owned(),
        layer => format!("running in {layer}"),
    };
    let share = rounded(u128::from(ns) * 100, family.total_ns.into()).unwrap_or(0);
    let waited = family
        .classes
        .iter()
        .find(|class| class.class == "waited_for_own" && row.row == "device");
    let of_calls = waited
        .filter(|class| class.calls > 0)
        .map_or_else(String::new, |class| {
            format!(", in {} of {}", thousands(class.calls), counted(family.count(), "call"))
        });
    format!("{what}, {share} % of it{of_calls}")
}

/// A unit of times, and how many decimals make them exact enough.
#[derive(Debug, Clone, Copy)]
struct TimeUnit {
    name: &'static str,
    size_ns: u64,
    decimals: u32,
}

/// One unit for a family, so that its rows add up by eye, and are exact to 0.1 % of it.
fn unit_of(total_ns: u64, asked: Unit) -> TimeUnit {
    let (name, size_ns) = match asked {
        Unit::Microseconds => ("us", 1_000),
        Unit::Milliseconds => ("ms", 1_000_000),
        Unit::Nanoseconds => match total_ns {
            ..10_000 => ("ns", 1),
            10_000..10_000_000 => ("us", 1_000),
            10_000_000..10_000_000_000 => ("ms", 1_000_000),
            _ => ("s", 1_000_000_000),
        },
    };
    let decimals = match total_ns / size_ns {
        _ if size_ns == 1 => 0,
        ..100 => 2,
        _ => 1,
    };
    TimeUnit {
        name,
        size_ns,
        decimals,
    }
}

impl TimeUnit {
    /// How many of the last digit's worth a time is, the nearest.
    fn steps(self, ns: u64) -> u64 {
        let steps = u128::from(ns) * 10_u128.pow(self.decimals);
        rounded(steps, self.size_ns.into()).unwrap_or(u64::MAX)
    }

    /// So many of the last digit's worth.
    fn text(self, steps: u64) -> String {
        let one = 10_u64.pow(self.decimals);
        match self.decimals {
            0 => format!("{steps} {}", self.name),
            decimals => format!(
                "{}.{:0decimals$} {}",
                steps / one,
                steps % one,
                self.name,
                decimals = decimals as usize
            ),
        }
    }
}

/// Parts of a whole as whole numbers that add up to `sum`, each within 1 of what it is: what is left over goes to those that
/// were cut by most.
fn apportion(parts: &[u64], sum: u64) -> Vec<u64> {
    let whole: u128 = parts.iter().map(|part| u128::from(*part)).sum();
    if whole == 0 {
        return vec![0; parts.len()];
    }
    let exact = |part: u64| u128::from(part) * u128::from(sum);
    let mut shares: Vec<u64> = parts.iter().map(|part| (exact(*part) / whole) as u64).collect();
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by_key(|&place| std::cmp::Reverse(exact(parts[place]) % whole));
    let left = sum.saturating_sub(shares.iter().sum());
    for place in order.into_iter().take(left as usize) {
        shares[place] += 1;
    }
    shares
}

fn heading(family: &FamilyReport, unit: TimeUnit) -> String {
    let average = rounded(family.total_ns.into(), family.count().into()).unwrap_or(0);
    let quantile = |q| {
        let time = family.histogram.quantile(q, family.extremes);
        time.map_or_else(|| "-".to_owned(), time_each)
    };
    let bytes = if family.bytes > 0 {
        decimal_bytes(family.bytes)
    } else {
        String::new()
    };
    let line = format!(
        "{:<8} {:>7} {:<5} {:>10} {bytes:>8} avg {}  p50 {}  p99 {}",
        family.family,
        thousands(family.count()),
        if family.count() == 1 { "call" } else { "calls" },
        unit.text(unit.steps(family.total_ns)),
        time_each(average),
        quantile(0.50),
        quantile(0.99)
    );
    if line.chars().count() <= WIDTH {
        return line;
    }
    // Very large numbers stand in no column.
    let words: Vec<&str> = line.split_whitespace().collect();
    words.join(" ")
}

/// File systems that any call came by.
fn fs_reached(families: &[FamilyReport]) -> Vec<&'static str> {
    let rows = families.iter().flat_map(|family| &family.rows);
    rows.filter(|row| row.calls.is_some_and(|calls| calls > 0))
        .map(|row| row.row)
        .collect()
}

/// Layers are always shown, of the file systems those that are used. Of those that are not measured, the ones that have ops.
fn is_shown_layer(row: &RowReport, reached: &[&str]) -> bool {
    let is_layer = Layer::ALL.iter().any(|layer| layer.name() == row.row);
    !row.is_layer
        || matches!(row.row, "syscall" | "vfs")
        || (row.ns.is_none() && is_layer)
        || reached.contains(&row.row)
}

fn rows(family: &FamilyReport, fs_reached: &[&str], unit: TimeUnit) -> Vec<String> {
    let times: Vec<u64> = family.rows.iter().map(|row| row.ns.unwrap_or(0)).collect();
    let values = apportion(&times, unit.steps(family.total_ns));
    let percents = apportion(&times, 1000);
    let shown = family.rows.iter().zip(values.into_iter().zip(percents));
    let shown = shown.filter(|(row, _)| match row.ns {
        None => row.is_layer && is_shown_layer(row, fs_reached),
        Some(ns) => ns > 0 || row.calls.is_some_and(|calls| calls > 0),
    });
    let width = 12 + unit.name.len();
    let line = |(row, (value, percent)): (&RowReport, (u64, u64))| {
        let (value, percent, stars) = match row.ns {
            None => ("-".to_owned(), "-".to_owned(), 0),
            Some(ns) => (
                unit.text(value),
                format!("{}.{} %", percent / 10, percent % 10),
                bar_length(ns, family.total_ns, STARS),
            ),
        };
        let bar = "*".repeat(stars);
        format!("  {:<11}{value:>width$}{percent:>9}  |{bar:<STARS$}|", row.row)
    };
    shown.map(line).collect()
}

/// Layers that some of the calls never came by.
fn reached(family: &FamilyReport) -> Option<String> {
    let count = family.count();
    let parts = family.rows.iter().filter_map(|row| {
        let calls = row.calls.filter(|calls| (1..count).contains(calls))?;
        Some(format!("{} {}", row.row, thousands(calls)))
    });
    let parts: Vec<String> = parts.collect();
    (!parts.is_empty()).then(|| format!("  calls that came by: {} of {}", parts.join(", "), thousands(count)))
}

/// `  from cache 11,840 (95.6 %), waited for own I/O 483, for others' 61`
fn classes(family: &FamilyReport) -> Option<String> {
    let names = [
        ("from_cache", "from cache"),
        ("waited_for_own", "waited for own I/O"),
        ("waited_for_others", "for others'"),
        ("read_ahead_only", "read ahead only"),
        ("direct", "direct"),
    ];
    let parts = family.classes.iter().filter(|class| class.calls > 0).map(|class| {
        let name = names
            .iter()
            .find(|(name, _)| *name == class.class)
            .map_or(class.class, |(_, words)| words);
        let share = if class.class == "from_cache" {
            format!(" ({})", percent(class.calls, family.count()))
        } else {
            String::new()
        };
        format!("{name} {}{share}", thousands(class.calls))
    });
    let parts: Vec<String> = parts.collect();
    (!parts.is_empty()).then(|| format!("  {}", parts.join(", ")))
}

/// Whether requests are known to be those of the calls that are traced. Kernel threads, and flushes, may serve anybody.
fn is_of_traced(origin: &OriginReport) -> bool {
    matches!(origin.origin, "own" | "asynchronous" | "writeback")
}

fn not_waited(origin: &OriginReport) -> String {
    let name = match (origin.origin, origin.is_write) {
        ("readahead", _) => "readahead, by those traced",
        ("own", false) => "reads, by those traced",
        ("own", true) => "writes, by those traced",
        ("asynchronous", false) => "asynchronous reads",
        ("asynchronous", true) => "asynchronous writes",
        ("writeback", _) => "writeback of what they wrote",
        ("kworker", false) => "reads, other kworkers",
        ("kworker", true) => "writes, other kworkers",
        ("journal", false) => "journal reads, jbd2",
        ("journal", true) => "journal writes, jbd2",
        ("kernel", false) => "reads, other kernel threads",
        ("kernel", true) => "writes, other kernel threads",
        (_, false) => "reads, for whoever asked",
        (_, true) => "flushes, for whoever asked",
    };
    let average = |ns: u64| rounded(ns.into(), origin.requests.into()).map_or_else(|| "-".to_owned(), time_each);
    format!(
        "  {name:<28}{:>8} {:>9} {:>11} {:>12}",
        thousands(origin.requests),
        decimal_bytes(origin.bytes),
        average(origin.queue_ns),
        average(origin.device_ns)
    )
}

/// Everything the reader must know before trusting the rows above.
fn print_trouble(report: &Report, stack: &StackReport, page: &mut Page) {
    if let Some(slow) = stack.slow.filter(|slow| slow.left_out.sum() > 0) {
        page.line(&format!(
            "NOT TOLD: {} of {}: {}",
            thousands(slow.left_out.sum()),
            counted(slow.calls(), "slow call"),
            super::slow::why(slow.left_out)
        ));
    }
    if let Some(calls) = report.layers.first() {
        let failed: Vec<String> = calls.ops.iter().filter_map(errors).collect();
        if !failed.is_empty() {
            page.line(&format!("errors: {}", failed.join("; ")));
        }
        if calls.excluded > 0 {
            page.line(&excluded(calls.excluded));
        }
    }
    for missing in stack.not_measured.chunk_by(|a, b| a.reason == b.reason) {
        let rows: Vec<&str> = missing.iter().map(|row| row.what.as_str()).collect();
        page.line(&format!("not measured: {} ({})", rows.join(", "), missing[0].reason));
    }
    for LayerReport {
        layer, not_measured, ..
    } in report.layers.iter().filter(|layer| !layer.ops.is_empty())
    {
        for missing in not_measured {
            page.line(&format!(
                "not measured: {} at {layer} ({})",
                missing.what, missing.reason
            ));
        }
    }
    for layer in &report.layers {
        // Of calls there are families. The functions inside them have rows, and only some need to be counted.
        let seen = if layer.layer == Layer::Syscall.name() {
            Some(sum(stack.families.iter().map(FamilyReport::count)))
        } else {
            Some(samples(layer)).filter(|_| layer.layer == Layer::Blk.name())
        };
        if let Some(lost) = losses(layer, seen) {
            page.line(&format!("{}: {lost}", layer.layer));
        }
    }
    let unbalanced = stack.unbalanced;
    if unbalanced.sum() > 0 {
        page.line(&format!(
            "UNBALANCED: {} entries without return, {} returns without entry, {} too deep, {} sleeps without end. \
             The rows add up all the same; some time is in a row next to its own.",
            thousands(unbalanced.entries),
            thousands(unbalanced.returns),
            thousands(unbalanced.too_deep),
            thousands(unbalanced.sleeps)
        ));
    }
    for layer in &report.layers {
        if let Some(under_way) = layer
            .in_flight
            .filter(|n| *n > 0 && layer.layer == Layer::Syscall.name())
        {
            page.line(&format!(
                "unfinished: {} under way at the end",
                counted(under_way, "call")
            ));
        }
        super::print_warnings(&layer.warnings, page);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_parts_add_up_to_the_printed_whole() {
        assert_eq!(apportion(&[1, 1, 1], 10), [4, 3, 3]);
        assert_eq!(apportion(&[0, 0], 10), [0, 0]);
        assert_eq!(apportion(&[u64::MAX, u64::MAX, 0], 1000), [500, 500, 0]);
        let parts = [5_149, 4_251, 38_749, 19_349, 1_650_049, 120_449, 6_149];
        let shares = apportion(&parts, 18_441);
        assert_eq!(shares.iter().sum::<u64>(), 18_441);
        for (part, share) in parts.iter().zip(shares) {
            assert!(share.abs_diff(part / 100) <= 1);
        }
    }

    #[test]
    fn requests_of_each_origin_and_direction_have_a_name() {
        let mut names = std::collections::BTreeSet::new();
        for origin in ["own", "asynchronous", "kworker", "journal", "kernel", "unknown"] {
            for is_write in [false, true] {
                let line = not_waited(&OriginReport {
                    origin,
                    is_write,
                    requests: 1,
                    ..OriginReport::default()
                });
                let (name, numbers) = line.split_at(30);
                assert!(names.insert(name.to_owned()), "{line}");
                assert!(line.chars().count() <= WIDTH && numbers.starts_with(' '), "{line}");
            }
        }
    }

    #[test]
    fn a_heading_is_one_line() {
        let mut steps = vec![0; crate::histogram::STEPS];
        steps[250] = 987_654_321;
        let family = FamilyReport {
            family: "metadata",
            total_ns: 1_000_000_000_000_000,
            bytes: u64::MAX,
            errors: 0,
            extremes: None,
            rows: Vec::new(),
            classes: Vec::new(),
            histogram: crate::histogram::Histogram::from_steps(&steps),
        };
        let heading = heading(&family, unit_of(family.total_ns, Unit::Nanoseconds));
        assert!(heading.chars().count() <= WIDTH, "{heading}");
        assert!(heading.starts_with("metadata 987,654,321 calls "), "{heading}");
    }

    #[test]
    fn a_unit_is_exact_to_a_thousandth() {
        for total in [1, 9_999, 10_000, 99_999, 100_000, 9_999_999, 10_000_000, u64::MAX] {
            let unit = unit_of(total, Unit::Nanoseconds);
            assert!(unit.size_ns == 1 || unit.steps(total) >= 1000, "{total}");
        }
        let unit = unit_of(41_204_999, Unit::Nanoseconds);
        assert_eq!(unit.text(unit.steps(41_204_999)), "41.20 ms");
        let unit = unit_of(1_843_849_999, Unit::Nanoseconds);
        assert_eq!(unit.text(unit.steps(1_843_849_999)), "1843.8 ms");
    }
}
