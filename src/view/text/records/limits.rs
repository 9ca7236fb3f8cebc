//! Which limits were broken: `report FILE --limit`.

use super::super::color::Mark;
use super::super::number::{percent, rounded, thousands, time_each, time_sum};
use super::super::{NAMES, Page, counted, print_table};
use super::WIDE;
use super::process;
use super::seeks::mean_depth;
use crate::model::report::records::{DiskUsage, LimitReport, LimitsReport, Served};

/// Processes that are named.
const SHOWN: usize = 3;

pub fn print(report: &LimitsReport, page: &mut Page) {
    let lines: Vec<Line> = report.limits.iter().map(Line::of).collect();
    let width = |of: fn(&Line) -> &str, heading: &str| {
        let longest = lines.iter().map(|line| of(line).chars().count()).max();
        longest.unwrap_or(0).max(heading.len())
    };
    let names = width(|line| &line.name, "limit");
    let limits = width(|line| &line.limit, "");
    let [broken, counts, longest] = [
        width(|line| &line.broken, "broken"),
        width(|line| &line.count, "of"),
        width(|line| &line.longest, "longest"),
    ];
    let numbers = |name: &str, limit: &str, [one, two, three]: [&str; 3]| {
        format!("{name:<names$}  {limit:>limits$}  {one:>broken$}  {two:>counts$}  {three:>longest$}")
    };
    let heading = numbers("limit", "", ["broken", "of", "longest"]);
    let waiters = width(|line| &line.waited, "who waited");
    let served = width(|line| &line.served, "served meanwhile");
    let is_beside = page.width >= WIDE && heading.chars().count() + waiters + served + 6 <= page.width;
    if is_beside {
        page.line(&format!(
            "{heading}   {:<waiters$}   who was served meanwhile",
            "who waited"
        ));
    } else {
        page.line(&heading);
    }
    for line in &lines {
        let cells = numbers(&line.name, &line.limit, [&line.broken, &line.count, &line.longest]);
        if is_beside {
            let beside = format!("{cells}   {:<waiters$}   {}", line.waited, line.served);
            print_row(line, &beside, page);
            continue;
        }
        print_row(line, &cells, page);
        if !line.waited.is_empty() {
            page.line(&format!("  waited: {}", line.waited));
        }
        if !line.served.is_empty() {
            page.line(&format!("  served meanwhile: {}", line.served));
        }
    }
    page.blank();
    remarks(report, page);
    page.blank();
    disks(&report.disks, page);
}

/// A limit that is broken is marked.
fn print_row(line: &Line, text: &str, page: &mut Page) {
    if line.is_broken {
        page.mark(Mark::Guilty, text);
    } else {
        page.line(text);
    }
}

struct Line {
    is_broken: bool,
    name: String,
    limit: String,
    broken: String,
    count: String,
    longest: String,
    waited: String,
    served: String,
}

impl Line {
    fn of(report: &LimitReport) -> Self {
        Self {
            is_broken: report.broken > 0,
            name: report.limit.of.name().to_owned(),
            limit: exact_time(report.limit.ns),
            broken: thousands(report.broken),
            count: thousands(report.count),
            longest: match report.broken {
                0 => "-".to_owned(),
                _ => time_each(report.longest_ns),
            },
            waited: waited(report),
            served: report.served.as_ref().map(served).unwrap_or_default(),
        }
    }
}

/// `10 ms`: without decimals if it is a whole number of a unit.
fn exact_time(ns: u64) -> String {
    let units = [
        (3_600_000_000_000, "h"),
        (60_000_000_000, "min"),
        (1_000_000_000, "s"),
        (1_000_000, "ms"),
        (1_000, "us"),
    ];
    let unit = units.iter().find(|(size, _)| ns >= *size && ns.is_multiple_of(*size));
    unit.map_or_else(
        || format!("{} ns", thousands(ns)),
        |(size, name)| format!("{} {name}", thousands(ns / size)),
    )
}

/// `postgres 4711, tar 812`; how often is said if several waited.
fn waited(report: &LimitReport) -> String {
    let is_one = report.waited.len() == 1;
    let shown = report.waited.iter().take(SHOWN);
    let mut words: Vec<String> = shown
        .map(|waiter| match is_one {
            true => process(&waiter.process),
            false => format!("{} ({})", process(&waiter.process), thousands(waiter.broken)),
        })
        .collect();
    match report.waited.len().saturating_sub(SHOWN) {
        0 => {}
        1 => words.push("1 other".to_owned()),
        rest => words.push(format!("{} others", thousands(rest as u64))),
    }
    words.join(", ")
}

/// `tar 812 88 %, own 12 %`
fn served(served: &Served) -> String {
    let all = served.device_ns();
    if all == 0 {
        return String::new();
    }
    let mut parts: Vec<(String, u64)> = served
        .others
        .iter()
        .take(SHOWN)
        .map(|other| (process(&other.process), other.device_ns))
        .collect();
    let rest = served.others.iter().skip(SHOWN).map(|other| other.device_ns);
    let rest = rest.fold(0, u64::saturating_add);
    if served.own_ns > 0 {
        parts.push(("own".to_owned(), served.own_ns));
    }
    parts.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    if rest > 0 {
        parts.push(("others".to_owned(), rest));
    }
    let words = parts.iter().map(|(name, ns)| {
        let share = rounded(u128::from(*ns) * 100, all.into()).unwrap_or(0);
        match share {
            0 => format!("{name} < 1 %"),
            share => format!("{name} {share} %"),
        }
    });
    words.collect::<Vec<_>>().join(", ")
}

fn remarks(report: &LimitsReport, page: &mut Page) {
    for limit in &report.limits {
        if limit.under_way > 0 {
            page.line(&format!(
                "{}: {} under way at the end of the recording; their times go up to it",
                limit.limit.of.name(),
                counted(limit.under_way, "call")
            ));
        }
        let unknown_ns = limit.served.as_ref().map_or(0, |served| served.unknown_ns);
        if unknown_ns > 0 {
            page.line(&format!(
                "{}: what was served in the first {} of very long waits is not known",
                limit.limit.of.name(),
                time_sum(unknown_ns)
            ));
        }
    }
}

/// How busy the disks were.
fn disks(all: &[DiskUsage], page: &mut Page) {
    if all.is_empty() {
        return;
    }
    let heading = ["requests", "busy", "depth", "max"].map(str::to_owned);
    let rows = all.iter().map(|usage| {
        let cells = [
            thousands(usage.requests),
            percent(usage.busy_ns, usage.span_ns),
            mean_depth(usage),
            thousands(usage.max_depth),
        ];
        (usage.disk.shown(), cells)
    });
    let rows: Vec<_> = std::iter::once(("disk".to_owned(), heading)).chain(rows).collect();
    print_table(&rows, [9, 8, 8, 6], NAMES, page);
    page.line("busy: one or more requests at the device; depth: how many on average");
}
