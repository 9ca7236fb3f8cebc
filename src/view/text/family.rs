//! Families of calls, with a row for each part of their time, and the requests that no call waited for.

use super::color::{Mark, Marked};
use super::number::{
    BYTE_COLUMNS, ColumnUnit, TIME_COLUMNS, column_units, decimal_bytes, percent, rounded, thousands, time_each,
};
use super::{Page, TextOptions, Unit, WIDTH, bar_length, counted, print_table};
use crate::model::ids::{Layer, Origin, ReadClass, Row};
use crate::model::report::stack::{FamilyReport, OriginReport, RowReport};

/// A family with less than this share of all time, in percent, has rows only with `--verbose`.
const SMALL: u128 = 5;

/// Columns of a row's name.
const NAMES: usize = 11;

/// Stars of a row with all of its family's time, on the widest terminals.
const STARS: usize = 80;

/// Families that were called, by decreasing time.
pub fn by_time(families: &[FamilyReport]) -> Vec<&FamilyReport> {
    let mut called: Vec<&FamilyReport> = families.iter().filter(|family| family.count() > 0).collect();
    called.sort_by_key(|family| std::cmp::Reverse(family.total_ns));
    called
}

pub fn sum_of(called: &[&FamilyReport]) -> u64 {
    called
        .iter()
        .fold(0_u64, |sum, family| sum.saturating_add(family.total_ns))
}

/// Prints where the time of each family was spent, and the requests that no call waited for. `is_by_process`: only the
/// calls of some processes are measured.
pub fn print_families(
    families: &[FamilyReport],
    not_waited_for: Option<&[OriginReport]>,
    is_by_process: bool,
    options: &TextOptions,
    page: &mut Page,
) {
    let called = by_time(families);
    let total = sum_of(&called);
    let width = called
        .iter()
        .map(|family| family.family.name().len())
        .max()
        .unwrap_or(0);
    for family in &called {
        let start = format!("  {:<width$} {:>7}  ", family.family, percent(family.total_ns, total));
        let room = page.width.saturating_sub(start.chars().count());
        let verdict = verdict(family, room);
        let mut line = Marked::from(start);
        let name = verdict.find([':', ',']).unwrap_or(verdict.len());
        line.push(&verdict[..name], Some(Mark::Guilty));
        line.push(&verdict[name..], None);
        page.marked(&line);
    }
    page.blank();
    let is_small = |family: &FamilyReport| u128::from(family.total_ns) * 100 < u128::from(total) * SMALL;
    let has_rows = |(index, family): &(usize, &&FamilyReport)| *index == 0 || options.verbose || !is_small(family);
    let (large, small): (Vec<_>, Vec<_>) = called.iter().enumerate().partition(has_rows);
    for (_, family) in large {
        let unit = unit_of([family.total_ns].into_iter(), options.unit);
        print_heading(family, unit, page);
        for (is_largest, line) in rows(family, unit, page.width) {
            if is_largest {
                page.mark(Mark::Guilty, &line);
            } else {
                page.line(&line);
            }
        }
        for line in [reached(family), classes(family)].into_iter().flatten() {
            page.line(&line);
        }
        page.blank();
    }
    if !small.is_empty() {
        let unit = unit_of(small.iter().map(|(_, family)| family.total_ns), options.unit);
        for (_, family) in &small {
            print_heading(family, unit, page);
        }
        page.line(&format!(
            "(families with less than {SMALL} % of the time: --verbose shows their rows)"
        ));
    }
    page.blank();
    if let Some(origins) = not_waited_for.filter(|origins| !origins.is_empty()) {
        print_not_waited(origins, is_by_process, page);
        page.blank();
    }
}

pub fn average(family: &FamilyReport) -> Option<u64> {
    rounded(family.total_ns.into(), family.count().into())
}

/// The row with most of a family's time, by its displayed name, and its meaning if there is room.
pub(super) fn verdict(family: &FamilyReport, room: usize) -> String {
    let Some((row, ns)) = largest(family) else {
        return String::new();
    };
    let of = |wanted: ReadClass| {
        family
            .classes
            .iter()
            .find(move |known| known.class == wanted && known.calls > 0)
    };
    // Of direct reads it is not known which of them slept.
    let waited = of(ReadClass::WaitedForOwn).filter(|_| of(ReadClass::Direct).is_none());
    let meaning = match (row.row, waited) {
        (Row::Device, Some(class)) => {
            let calls = counted(family.count(), "call");
            format!(", waiting in {} of {calls}", thousands(class.calls))
        }
        (Row::Device, None) => ", waiting for the device".to_owned(),
        (Row::Queue, _) => ", waiting for a request to be issued".to_owned(),
        (Row::Others, _) => ", waiting for I/O of other threads".to_owned(),
        (Row::Journal, _) => ", waiting for a commit".to_owned(),
        (Row::Lock, _) => ", waiting for a lock".to_owned(),
        (Row::Other, _) => ", asleep for another reason".to_owned(),
        (Row::RunQueue, _) => ", waiting for a CPU".to_owned(),
        _ if row.is_layer() => ", running".to_owned(),
        _ => String::new(),
    };
    let share = rounded(u128::from(ns) * 100, family.total_ns.into()).unwrap_or(0);
    let mut text = format!("{}: {share} % of it", family.label(row));
    if text.chars().count() + meaning.chars().count() <= room {
        text.push_str(&meaning);
    }
    text
}

/// One unit for a family, so that its rows visibly add up and are exact to 0.1 % of it; or one for several families
/// whose headings follow each other, with as many decimals as needed so that none becomes 0.
pub(super) fn unit_of(totals_ns: impl Iterator<Item = u64> + Clone, chosen: Unit) -> ColumnUnit {
    let most = totals_ns.clone().max().unwrap_or(0);
    let (name, size) = match chosen {
        Unit::Microseconds => ("us", 1_000),
        Unit::Milliseconds => ("ms", 1_000_000),
        Unit::Nanoseconds => match most {
            ..10_000 => ("ns", 1),
            10_000..10_000_000 => ("us", 1_000),
            10_000_000..10_000_000_000 => ("ms", 1_000_000),
            _ => ("s", 1_000_000_000),
        },
    };
    let decimals = match most / size {
        _ if size == 1 => 0,
        ..100 => 2,
        _ => 1,
    };
    let unit = |decimals| ColumnUnit { name, size, decimals };
    let is_there = |decimals: &u32| {
        let mut totals = totals_ns.clone();
        totals.all(|ns| ns == 0 || unit(*decimals).steps(ns) > 0)
    };
    unit((decimals..=9).find(is_there).unwrap_or(decimals))
}

/// Rounds parts to integers that add up to `sum`, each within 1 of its value: the remainder goes to those that were
/// rounded down most.
fn apportion(parts: &[u64], sum: u64) -> Vec<u64> {
    let whole: u128 = parts.iter().map(|part| u128::from(*part)).sum();
    if whole == 0 {
        return vec![0; parts.len()];
    }
    let exact = |part: u64| u128::from(part) * u128::from(sum);
    let mut shares: Vec<u64> = parts.iter().map(|part| (exact(*part) / whole) as u64).collect();
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by_key(|&index| std::cmp::Reverse(exact(parts[index]) % whole));
    let left = sum.saturating_sub(shares.iter().sum());
    for index in order.into_iter().take(left as usize) {
        shares[index] += 1;
    }
    shares
}

/// A family's heading: one line, or two if the terminal is narrower than [`WIDTH`] or one line is too short.
fn print_heading(family: &FamilyReport, unit: ColumnUnit, page: &mut Page) {
    let (sums, each) = heading(family, unit);
    let line = format!("{sums} {each}");
    let is_narrow = page.width < WIDTH;
    if line.chars().count() <= page.width && !is_narrow {
        page.line(&line);
        return;
    }
    // Very large numbers are not aligned.
    let words = |text: &str| text.split_whitespace().collect::<Vec<&str>>().join(" ");
    let line = words(&line);
    if line.chars().count() <= page.width && !is_narrow {
        page.line(&line);
        return;
    }
    // All families of a narrow terminal have the same layout.
    if is_narrow && sums.chars().count() <= page.width {
        page.line(&sums);
    } else {
        page.line(&words(&sums));
    }
    page.line(&format!("  {each}"));
}

/// The totals of a family's calls, and the statistics of single calls.
fn heading(family: &FamilyReport, unit: ColumnUnit) -> (String, String) {
    let quantile = |q| {
        let time = family.histogram.quantile(q, family.extremes);
        time.map_or_else(|| "-".to_owned(), time_each)
    };
    let bytes = if family.bytes > 0 {
        decimal_bytes(family.bytes)
    } else {
        String::new()
    };
    let sums = format!(
        "{:<8} {:>7} {:<5} {:>10} {bytes:>8}",
        family.family,
        thousands(family.count()),
        if family.count() == 1 { "call" } else { "calls" },
        format!("{} {}", unit.number(family.total_ns), unit.name),
    );
    let each = format!(
        "avg {}  p50 {}  p99 {}",
        time_each(average(family).unwrap_or(0)),
        quantile(0.50),
        quantile(0.99)
    );
    (sums, each)
}

/// File systems that any call reached.
pub fn fs_reached(families: &[FamilyReport]) -> Vec<Row> {
    let rows = families.iter().flat_map(|family| &family.rows);
    rows.filter(|row| row.calls.is_some_and(|calls| calls > 0))
        .map(|row| row.row)
        .collect()
}

/// Measured layers are always shown, but file systems only if they were reached.
pub fn is_shown_layer(row: &RowReport, reached: &[Row]) -> bool {
    !row.is_layer() || matches!(row.row, Row::Layer(Layer::Syscall | Layer::Vfs)) || reached.contains(&row.row)
}

/// The row with most of a family's time.
fn largest(family: &FamilyReport) -> Option<(&RowReport, u64)> {
    let known = family.rows.iter().filter_map(|row| Some((row, row.ns?)));
    known.max_by_key(|(_, ns)| *ns).filter(|(_, ns)| *ns > 0)
}

/// Where a family's time was spent, and whether a row has most of it. Rows that are not measured are left out, and named
/// below the report.
pub(super) fn rows(family: &FamilyReport, unit: ColumnUnit, width: usize) -> Vec<(bool, String)> {
    let most = largest(family).map(|(row, _)| row.row);
    let times: Vec<u64> = family.rows.iter().map(|row| row.ns.unwrap_or(0)).collect();
    let values = apportion(&times, unit.steps(family.total_ns));
    let percents = apportion(&times, 1000);
    let labels = family.rows.iter().map(|row| family.label(row).chars().count());
    let names = labels.max().unwrap_or(0).max(NAMES);
    let shown = family.rows.iter().zip(values.into_iter().zip(percents));
    let shown = shown.filter_map(|(row, parts)| Some((row, row.ns?, parts)));
    let shown = shown.filter(|(row, ns, _)| *ns > 0 || row.calls.is_some_and(|calls| calls > 0));
    let line = |(row, ns, (value, percent)): (&RowReport, u64, (u64, u64))| {
        let value = format!("{} {}", unit.of_steps(value), unit.name);
        let percent = format!("{}.{} %", percent / 10, percent % 10);
        let text = format!("  {:<names$}{value:>14}{percent:>9}", family.label(row));
        let stars = width.saturating_sub(text.chars().count() + 4).min(STARS);
        let bar = "*".repeat(bar_length(ns, family.total_ns, stars));
        (most == Some(row.row), format!("{text}  |{bar:<stars$}|"))
    };
    shown.map(line).collect()
}

/// Layers that some of the calls did not reach: `  calls that reached vfs: 403 of 2,058; ext4: 1,228`.
fn reached(family: &FamilyReport) -> Option<String> {
    let count = family.count();
    let parts = family.rows.iter().filter_map(|row| {
        let calls = row.calls.filter(|calls| (1..count).contains(calls))?;
        Some((row.row, calls))
    });
    let parts = parts.enumerate().map(|(index, (row, calls))| match index {
        0 => format!("{row}: {} of {}", thousands(calls), thousands(count)),
        _ => format!("{row}: {}", thousands(calls)),
    });
    let parts: Vec<String> = parts.collect();
    (!parts.is_empty()).then(|| format!("  calls that reached {}", parts.join("; ")))
}

/// `  from cache 11,840 (95.6 %), own I/O 483, others' I/O 61`
fn classes(family: &FamilyReport) -> Option<String> {
    let names = [
        (ReadClass::FromCache, "from cache"),
        (ReadClass::WaitedForOwn, "own I/O"),
        (ReadClass::WaitedForOthers, "others' I/O"),
        (ReadClass::ReadAheadOnly, "readahead only"),
        (ReadClass::Direct, "direct"),
    ];
    let parts = family.classes.iter().filter(|class| class.calls > 0).map(|class| {
        let name = names
            .iter()
            .find(|(name, _)| *name == class.class)
            .map_or(class.class.name(), |(_, words)| words);
        let share = if class.class == ReadClass::FromCache {
            format!(" ({})", percent(class.calls, family.count()))
        } else {
            String::new()
        };
        format!("{name} {}{share}", thousands(class.calls))
    });
    let parts: Vec<String> = parts.collect();
    (!parts.is_empty()).then(|| format!("  {}", parts.join(", ")))
}

/// Whether requests are known to be those of traced calls. Those of kernel threads, and flushes, may be for any
/// process.
fn is_of_traced(origin: &OriginReport) -> bool {
    matches!(
        origin.origin,
        Origin::Own | Origin::Readahead | Origin::Asynchronous | Origin::Writeback
    )
}

/// Prints the requests that no call waited for. `is_by_process`: those that may be of the whole machine follow a line
/// that says so.
fn print_not_waited(origins: &[OriginReport], is_by_process: bool, page: &mut Page) {
    let average = |ns: u64, origin: &OriginReport| rounded(ns.into(), origin.requests.into());
    let is_narrow = page.width < WIDTH;
    let averages = origins
        .iter()
        .flat_map(|origin| [origin.queue_ns, origin.device_ns].map(|ns| average(ns, origin)));
    let time = column_units(TIME_COLUMNS, averages.flatten())[0];
    let bytes = column_units(BYTE_COLUMNS, origins.iter().map(|origin| origin.bytes))[0];
    let average_of = if is_narrow { "" } else { "avg " };
    let heading = [
        "requests".to_owned(),
        bytes.name.to_owned(),
        format!("{average_of}queue {}", time.name),
        format!("{average_of}device {}", time.name),
    ];
    let row = |origin: &OriginReport| {
        let average = |ns| average(ns, origin).map_or_else(|| "-".to_owned(), |ns| time.number(ns));
        let cells = [
            thousands(origin.requests),
            bytes.number(origin.bytes),
            average(origin.queue_ns),
            average(origin.device_ns),
        ];
        (format!("  {}", origin_name(origin, is_narrow)), cells)
    };
    let (theirs, others): (Vec<_>, Vec<_>) =
        (origins.iter()).partition(|origin| !is_by_process || is_of_traced(origin));
    let title = if is_narrow {
        "Not waited for; avg"
    } else {
        "Not waited for by any call"
    };
    let mut rows = vec![(title.to_owned(), heading)];
    rows.extend(theirs.into_iter().map(row));
    if !others.is_empty() {
        let of_whom = "  of all processes:";
        rows.push((of_whom.to_owned(), Default::default()));
    }
    rows.extend(others.into_iter().map(row));
    let names = rows.iter().map(|(name, _)| name.chars().count()).max();
    print_table(&rows, [8, 8, 12, 13], names.unwrap_or(0).max(super::NAMES), page);
}

fn origin_name(origin: &OriginReport, is_narrow: bool) -> &'static str {
    let (name, short) = match (origin.origin, origin.is_write) {
        (Origin::Readahead, _) => ("readahead by traced threads", "readahead"),
        (Origin::Own, false) => ("reads by traced threads", "reads"),
        (Origin::Own, true) => ("writes by traced threads", "writes"),
        (Origin::Asynchronous, false) => ("asynchronous reads", "async reads"),
        (Origin::Asynchronous, true) => ("asynchronous writes", "async writes"),
        (Origin::Writeback, _) => ("writeback for traced threads", "writeback"),
        (Origin::Kworker, false) => ("reads by other kworkers", "kworker reads"),
        (Origin::Kworker, true) => ("writes by other kworkers", "kworker writes"),
        (Origin::Journal, false) => ("journal reads by jbd2", "jbd2 reads"),
        (Origin::Journal, true) => ("journal writes by jbd2", "jbd2 writes"),
        (Origin::Kernel, false) => ("reads by other kernel threads", "kernel reads"),
        (Origin::Kernel, true) => ("writes by other kernel threads", "kernel writes"),
        (_, false) => ("reads by an unknown process", "unowned reads"),
        (_, true) => ("flushes for several processes", "unowned flushes"),
    };
    if is_narrow { short } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ids::Family;

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
    fn requests_of_each_origin_fit_with_their_whole_name() {
        for (requests, width) in [(9, 60), (9, 80), (9, 200), (1_234_567, 60), (1_234_567, 80)] {
            let mut page = Page::new(Some(width));
            let origin = OriginReport {
                requests,
                bytes: 123_456_789_012,
                queue_ns: 77_000_000 * requests,
                device_ns: 999_000_000 * requests,
                ..OriginReport::new(Origin::Unknown, true)
            };
            print_not_waited(&[origin], true, &mut page);
            let text = page.text;
            let name = if width < WIDTH {
                "unowned flushes"
            } else {
                "flushes for several processes"
            };
            assert!(text.contains(name), "{text}");
            assert!(
                text.lines().all(|line| line.chars().count() <= width),
                "{width}: {text}"
            );
        }
    }

    #[test]
    fn requests_of_each_origin_and_direction_have_a_name() {
        let mut names = std::collections::BTreeSet::new();
        for origin in [
            Origin::Own,
            Origin::Asynchronous,
            Origin::Kworker,
            Origin::Journal,
            Origin::Kernel,
            Origin::Unknown,
        ] {
            for is_write in [false, true] {
                for (is_narrow, room) in [(false, super::super::NAMES), (true, 18)] {
                    let name = origin_name(&OriginReport::new(origin, is_write), is_narrow);
                    assert!(names.insert(name), "{name}");
                    assert!(name.chars().count() <= room, "{name}");
                }
            }
        }
    }

    #[test]
    fn a_heading_is_one_line() {
        let mut steps = vec![0; crate::model::histogram::STEPS];
        steps[250] = 987_654_321;
        let family = FamilyReport {
            family: Family::Metadata,
            total_ns: 1_000_000_000_000_000,
            bytes: u64::MAX,
            errors: 0,
            extremes: None,
            rows: Vec::new(),
            classes: Vec::new(),
            histogram: crate::model::histogram::Histogram::from_steps(steps),
        };
        let unit = unit_of([family.total_ns].into_iter(), Unit::Nanoseconds);
        for width in [60, 80, 120] {
            let mut page = Page::new(Some(width));
            print_heading(&family, unit, &mut page);
            let lines: Vec<&str> = page.text.lines().collect();
            assert!(lines[0].starts_with("metadata 987,654,321 calls "), "{lines:?}");
            assert!(lines.iter().all(|line| line.chars().count() <= width), "{lines:?}");
            assert_eq!(lines.len(), if width <= 80 { 2 } else { 1 }, "{lines:?}");
        }
    }

    #[test]
    fn a_unit_is_exact_to_a_thousandth() {
        let unit_of = |totals: &[u64]| unit_of(totals.iter().copied(), Unit::Nanoseconds);
        let text = |unit: ColumnUnit, ns| format!("{} {}", unit.number(ns), unit.name);
        for total in [1, 9_999, 10_000, 99_999, 100_000, 9_999_999, 10_000_000, u64::MAX] {
            let unit = unit_of(&[total]);
            assert!(unit.size == 1 || unit.steps(total) >= 1000, "{total}");
        }
        assert_eq!(text(unit_of(&[41_204_999]), 41_204_999), "41.20 ms");
        assert_eq!(text(unit_of(&[1_843_849_999]), 1_843_849_999), "1,843.8 ms");
        // If there are several, none becomes 0.
        assert_eq!(text(unit_of(&[41_204_999, 22_000]), 22_000), "0.02 ms");
        assert_eq!(text(unit_of(&[41_204_999, 220, 0]), 220), "0.0002 ms");
    }
}
