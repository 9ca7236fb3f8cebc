//! From calls to printed numbers: the kernel side's counting code, compiled for this machine, and the user side's on
//! top of it, checked against the calls themselves.

#[path = "../../../../tests/kernel_side/compile.rs"]
mod compile;

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::catalog::{Layer, Op};
use crate::kernel::interface::{BINS, BINS_FROM, ERRNOS};
use crate::model::histogram::{TOP_BIT, step_of};
use crate::model::report::{LayerReport, OpReport, Report};
use crate::view;
use crate::view::json::Form;
use crate::view::text::{TextOptions, Unit};

const CPUS: u32 = 4;

/// As in `tests/kernel_side/record.c`.
/// The first epoch.
const FIRST: u64 = EPOCH_STEP as u64;

#[derive(Debug, Clone, Copy)]
struct Call {
    ns: u64,
    value: i64,
    epoch: u64,
    cpu: u32,
    moves_bytes: bool,
}

/// `tests/kernel_side/record.c`, compiled once.
static RECORDER: LazyLock<PathBuf> = LazyLock::new(|| compile::compile("record", env!("OUT_DIR")));

/// The kernel side's counters after these calls, CPU by CPU.
fn record(calls: &[Call], cpus: u32, unit_ns: u32) -> Vec<op_stats> {
    let (counters, _) = record_in(calls, cpus, unit_ns, false, false);
    let epoch = calls.last().map_or(FIRST, |call| call.epoch);
    let readings = |counters: &[op_stats]| -> Vec<_> { counters.chunks(1).map(|cpu| reading(cpu, epoch)).collect() };
    let is_one_epoch = calls.iter().all(|call| call.epoch == FIRST);
    let may_have_bins = calls.iter().all(|call| call.moves_bytes);
    // With a single report and with several, and with bins for usual calls.
    for (one_epoch, bins) in [(true, false), (true, true), (false, true)] {
        if (one_epoch && !is_one_epoch) || (bins && !may_have_bins) {
            continue;
        }
        let (others, binned) = record_in(calls, cpus, unit_ns, one_epoch, bins);
        let mut others = readings(&others);
        others
            .iter_mut()
            .zip(&binned)
            .for_each(|(of_cpu, usual)| add_binned(of_cpu, usual, unit_ns));
        assert_eq!(readings(&counters), others);
    }
    counters
}

fn record_in(calls: &[Call], cpus: u32, unit_ns: u32, one_epoch: bool, bins: bool) -> (Vec<op_stats>, Vec<binned>) {
    let mut input = Vec::new();
    for call in calls {
        input.extend(call.ns.to_ne_bytes());
        input.extend(call.value.to_ne_bytes());
        input.extend(call.epoch.to_ne_bytes());
        input.extend(call.cpu.to_ne_bytes());
        input.extend(u32::from(call.moves_bytes).to_ne_bytes());
    }
    let mut command = Command::new(&*RECORDER);
    let flags = [one_epoch, bins].map(|flag| u8::from(flag).to_string());
    command.args([cpus.to_string(), unit_ns.to_string()]).args(flags);
    let mut recorder = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    recorder.stdin.take().unwrap().write_all(&input).unwrap();
    let output = recorder.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", output.status);
    let (counters, binned) = output.stdout.split_at(cpus as usize * size_of::<op_stats>());
    let (counters, binned): (Vec<op_stats>, Vec<binned>) = (decode(counters), decode(binned));
    assert_eq!(binned.len(), if bins { cpus as usize } else { 0 });
    (counters, binned)
}

fn decode<T: plain::Plain + Default>(bytes: &[u8]) -> Vec<T> {
    let decoded = |bytes: &[u8]| {
        let mut one = T::default();
        plain::copy_from_bytes(&mut one, bytes).unwrap();
        one
    };
    bytes.chunks_exact(size_of::<T>()).map(decoded).collect()
}

/// The sum over all CPUs.
fn reading(cpus: &[op_stats], epoch: u64) -> OpCounters {
    let mut merged = OpCounters::default();
    cpus.iter().for_each(|cpu| add(&mut merged, cpu, epoch));
    merged
}

/// Times of all sizes up to 2^54 ns, which is 208 days: uniform, over many powers of two, close together, at the end of
/// the scale. The kernel side's totals have room for 584 years of them.
fn time() -> BoxedStrategy<u64> {
    prop_oneof![
        4 => (10_u32..64, any::<u64>()).prop_map(|(shift, bits)| bits >> shift),
        2 => 0_u64..5000,
        2 => (0_u32..42, 0_u64..20).prop_map(|(bit, more)| (1 << bit) + more),
        1 => prop::sample::select(vec![0, (1 << 40) - 1, 1 << 40, (1 << 40) + 1, 1 << 54]),
    ]
    .boxed()
}

/// Samples that are all alike, or spread.
fn times() -> BoxedStrategy<Vec<u64>> {
    let alike = (time(), 0_u64..200).prop_flat_map(|(least, more)| vec(least..=least + more, 1..400));
    prop_oneof![vec(time(), 1..400), alike].boxed()
}

/// Byte counts, and errors of no more kinds than a CPU has slots for.
fn value() -> BoxedStrategy<i64> {
    prop_oneof![
        4 => 0_i64..1 << 20,
        1 => prop::sample::select(vec![0, 1 << 40, 1 << 54]),
        2 => (1_i64..=i64::from(ERRNOS)).prop_map(|errno| -errno),
    ]
    .boxed()
}

fn calls() -> BoxedStrategy<Vec<Call>> {
    let call = |ns| {
        (value(), 0..CPUS).prop_map(move |(value, cpu)| Call {
            ns,
            value,
            epoch: FIRST,
            cpu,
            moves_bytes: true,
        })
    };
    times()
        .prop_flat_map(move |times| times.into_iter().map(call).collect::<Vec<_>>())
        .boxed()
}

/// A report of this op alone.
fn report_of(op: OpReport) -> Report {
    let layer = LayerReport {
        ops: vec![op],
        ..LayerReport::new(Layer::Vfs)
    };
    Report {
        layers: vec![layer],
        ..Report::default()
    }
}

fn json(report: &Report) -> String {
    let mut bytes = Vec::new();
    view::json::print(report, Form::Full, &mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

fn text(report: &Report, unit: Unit) -> String {
    let options = TextOptions {
        unit,
        ..TextOptions::default()
    };
    let mut bytes = Vec::new();
    view::text::print(report, &options, &mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

/// The smallest of the sorted times that at least this percentage does not exceed; `None` if there are too few.
fn exact_quantile(sorted: &[u64], percent: usize) -> Option<u64> {
    let enough = sorted.len() * (100 - percent) >= 100;
    enough.then(|| sorted[(sorted.len() * percent).div_ceil(100).max(1) - 1])
}

/// Whether a reported time is the exact one, or within an eighth of it. In the last step it is a lower bound.
fn is_within_a_step(reported: u128, exact: u64) -> bool {
    let exact = u128::from(exact);
    match exact >> TOP_BIT {
        0 => reported.abs_diff(exact) * 8 <= exact,
        _ => reported >> TOP_BIT > 0 && reported <= exact,
    }
}

/// A printed time.
struct Time {
    ns: u128,
    /// The value of its last digit, in nanoseconds. A column has a single unit, even if small numbers lose digits.
    digit: u128,
    /// It is a lower bound.
    is_least: bool,
}

impl Time {
    /// The tolerance due to its last digit.
    fn is_within(&self, exact: u64, share: u128) -> bool {
        let exact = u128::from(exact);
        self.ns.abs_diff(exact) * share <= exact + share * self.digit / 2 + share
    }
}

/// Parses `1.2 ms`.
fn parse_time(cell: &str) -> Time {
    // The sign follows the unit, or the number if the unit is in the heading.
    let is_least = cell.contains('+');
    let cell = cell.replace('+', "");
    let (number, unit) = cell.split_once(' ').unwrap();
    let size = match unit {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "h" => 3600e9,
        "d" => 24.0 * 3600e9,
        "y" => 8766.0 * 3600e9,
        other => panic!("{other:?} is no unit"),
    };
    let decimals = number.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    let number: f64 = number.replace(',', "").parse().unwrap();
    Time {
        ns: (number * size).round() as u128,
        digit: (size / 10_f64.powi(decimals as i32)) as u128,
        is_least,
    }
}

/// The cells of a row after its name: a number, a number with its unit, or `-`.
fn cells(row: &str) -> Vec<String> {
    let mut cells = Vec::new();
    let mut words = row.split_whitespace().skip(1).peekable();
    while let Some(word) = words.next() {
        let unit = words.next_if(|next| next.starts_with(|c: char| c.is_ascii_alphabetic()));
        cells.push(unit.map_or_else(|| word.to_owned(), |unit| format!("{word} {unit}")));
    }
    cells
}

/// The units of the columns after the name, if all rows of a column share one.
fn units(heading: &str) -> Vec<Option<&str>> {
    let mut units = Vec::new();
    let mut words = heading.split_whitespace().skip(1).peekable();
    while words.next().is_some() {
        units.push(words.next_if(|next| ["ns", "us", "ms", "s"].contains(next)));
    }
    units
}

/// The row of the only op in the table, each time with its unit: count, total, avg, p50, p99, max, bytes.
fn row(text: &str) -> Vec<String> {
    let line = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap();
    let with_unit = |(cell, unit): (String, Option<&str>)| match unit {
        Some(unit) if cell != "-" => format!("{cell} {unit}"),
        _ => cell,
    };
    let units = units(line("operation  ")).into_iter().chain(std::iter::repeat(None));
    cells(line("read ")).into_iter().zip(units).map(with_unit).collect()
}

/// Each call on a CPU of its own, so that errors cannot cancel each other out.
#[test]
fn both_sides_have_the_same_steps() {
    let mut times: Vec<u64> = (0..64)
        .flat_map(|bit| (0..16).map(move |sixteenth| (1_u64 << bit) + ((1_u64 << bit) >> 4) * sixteenth))
        .collect();
    times.extend(times.clone().iter().map(|ns| ns - 1));
    let calls: Vec<Call> = (0..)
        .zip(&times)
        .map(|(cpu, &ns)| Call {
            ns,
            value: 0,
            epoch: FIRST,
            cpu,
            moves_bytes: false,
        })
        .collect();
    for unit_ns in [1000, 1_000_000] {
        for (counted, &ns) in record(&calls, calls.len() as u32, unit_ns).iter().zip(&times) {
            let units = ns / u64::from(unit_ns);
            let slot = units.checked_ilog2().unwrap_or(0).min(UNIT_SLOTS - 1);
            let index = |counts: &[u64]| counts.iter().position(|&n| n == 1);
            assert_eq!(index(&counted.steps), Some(step_of(ns)), "{ns} ns");
            assert_eq!(
                index(&counted.unit_slots),
                Some(slot as usize),
                "{ns} ns in units of {unit_ns} ns"
            );
            assert_eq!(counted.steps.iter().chain(&counted.unit_slots).sum::<u64>(), 2);
        }
    }
}

/// Times between the shortest and the longest of successful calls are in bins; the others are in the usual counters.
#[test]
fn usual_calls_have_bins() {
    let call = |(ns, value)| Call {
        ns,
        value,
        epoch: FIRST,
        cpu: 0,
        moves_bytes: true,
    };
    let edge = u64::from(BINS * BIN_WIDTH);
    let first = [(100, 1), (2 * edge, 1)];
    let usual = [(128, 7), (143, 7), (144, 7), (edge - 1, 7)];
    let others = [(127, 1), (edge, 1), (200, -5), (99, 1)];
    let calls: Vec<Call> = [&first[..], &usual, &others].concat().into_iter().map(call).collect();
    let (counters, binned) = record_in(&calls, 1, 0, true, true);
    let filled = binned[0].bins.iter().enumerate().filter(|(_, bin)| bin.calls > 0);
    let filled: Vec<_> = filled.map(|(bin, of)| (bin as u32, of.calls, of.total_ns)).collect();
    assert_eq!(filled, [(8, 2, 128 + 143), (9, 1, 144), (BINS - 1, 1, edge - 1)]);
    assert_eq!(binned[0].bytes, 4 * 7);
    assert_eq!((binned[0].from_ns, binned[0].below_ns), (u64::from(BINS_FROM), edge));
    assert_eq!(
        counters[0].steps.iter().sum::<u64>(),
        (first.len() + others.len()) as u64
    );
    // Each call has ended, and none of them is the one that began there.
    assert_eq!(
        counters[0].under_way.cast_signed(),
        -((first.len() + others.len()) as i64)
    );
    assert_eq!(reading(&counters, FIRST).extremes, Some((99, 2 * edge)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_printed_is_true_of_the_calls(calls in calls(), unit in 0_usize..3) {
        let (unit, unit_ns) = [(Unit::Nanoseconds, 0), (Unit::Microseconds, 1000), (Unit::Milliseconds, 1_000_000)][unit];
        let op = reading(&record(&calls, CPUS, unit_ns), FIRST).report(Op::Read, true);
        let mut times: Vec<u64> = calls.iter().map(|call| call.ns).collect();
        times.sort_unstable();
        let total: u64 = times.iter().sum();
        let bytes: i64 = calls.iter().map(|call| call.value.max(0)).sum();
        let (min, max) = (times[0], times[times.len() - 1]);
        prop_assert_eq!(op.count(), calls.len() as u64);
        prop_assert_eq!((op.total_ns, op.bytes, op.extremes), (total, Some(bytes as u64), Some((min, max))));
        for errno in 1..=ERRNOS as i32 {
            let reported = op.errors.iter().find(|(of, _)| *of == errno).map_or(0, |(_, n)| *n);
            let is = calls.iter().filter(|call| call.value == i64::from(-errno)).count();
            prop_assert_eq!(reported, is as u64);
        }
        prop_assert_eq!(op.errors_unnamed, 0);

        let report = report_of(op);
        let json: serde_json::Value = serde_json::from_str(&json(&report)).unwrap();
        let json = &json["layers"][0]["ops"][0];
        let text = text(&report, unit);
        let row = row(&text);
        for (percent, key, column) in [(50, "p50_ns", Some(3)), (90, "p90_ns", None), (99, "p99_ns", Some(4))] {
            let exact = exact_quantile(&times, percent);
            prop_assert_eq!(json[key].is_null(), exact.is_none());
            let Some(exact) = exact else {
                prop_assert!(column.is_none_or(|column| row[column] == "-"));
                continue;
            };
            let reported = json[key].as_u64().unwrap();
            prop_assert!(is_within_a_step(reported.into(), exact), "p{} of {:?}: {}", percent, times, reported);
            prop_assert!((min..=max).contains(&reported));
            let Some(column) = column else { continue };
            let time = parse_time(&row[column]);
            if time.is_least {
                prop_assert!(exact >> TOP_BIT > 0, "{:?}, {}", row, exact);
            } else {
                prop_assert!(time.is_within(exact, 8), "p{} is {}: {:?}", percent, exact, row);
            }
        }
        // A mean has three digits, or one decimal, or is an integer.
        let mean = total / times.len() as u64;
        prop_assert!(parse_time(&row[2]).is_within(mean, 200), "{:?}, {}", row, mean);
        // The histogram's rows contain all calls, each in the row of its time.
        let per_unit = u64::from(unit_ns.max(1));
        let mut rows = 0;
        for line in text.lines().filter(|line| line.contains(" -> ")) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |index: usize| words[index].parse::<u64>().unwrap();
            let (low, high, reported) = (number(0), number(2), number(4));
            let is = times.iter().filter(|&ns| (low..=high).contains(&(ns / per_unit))).count();
            prop_assert_eq!(reported, is as u64, "{}", line);
            rows += reported;
        }
        prop_assert_eq!(rows, times.len() as u64);
    }

    #[test]
    fn cpus_together_are_the_whole(calls in calls()) {
        let on_one: Vec<Call> = calls.iter().map(|call| Call { cpu: 0, ..*call }).collect();
        let spread = reading(&record(&calls, CPUS, 1000), FIRST);
        let whole = reading(&record(&on_one, CPUS, 1000), FIRST);
        prop_assert_eq!(&spread, &whole);
        let (op, whole) = (spread.report(Op::Read, true), whole.report(Op::Read, true));
        prop_assert_eq!(json(&report_of(op)), json(&report_of(whole)));
    }

    #[test]
    fn intervals_together_are_the_whole(calls in calls(), cut in any::<prop::sample::Index>(), unit_ns in prop::sample::select(vec![0, 1000])) {
        let cut = cut.index(calls.len());
        let second: Vec<Call> = (0..).zip(&calls).map(|(index, call)| Call { epoch: FIRST + FIRST * u64::from(index >= cut), ..*call }).collect();
        let (first, all) = (record(&second[..cut], CPUS, unit_ns), record(&second, CPUS, unit_ns));
        let (first, all) = (reading(&first, FIRST), reading(&all, 2 * FIRST));
        let rest = all.since(&first);
        for (part, calls) in [(&first, &calls[..cut]), (&rest, &calls[cut..])] {
            let op = part.report(Op::Read, true);
            prop_assert_eq!(op.count(), calls.len() as u64);
            prop_assert_eq!(op.total_ns, calls.iter().map(|call| call.ns).sum::<u64>());
            prop_assert_eq!(op.error_count(), calls.iter().filter(|call| call.value < 0).count() as u64);
            let times = || calls.iter().map(|call| call.ns);
            prop_assert_eq!(op.extremes, times().min().zip(times().max()));
        }
    }

    #[test]
    fn a_call_read_half_way_is_reported_whole(calls in calls(), caught in calls(), ends: bool) {
        let on_one = |calls: &[Call]| calls.iter().map(|call| Call { cpu: 0, epoch: FIRST, ..*call }).collect::<Vec<Call>>();
        let (calls, caught) = (on_one(&calls), on_one(&caught));
        let both = [&calls[..], &caught].concat();
        // Of the calls that the first reading caught half-way, it has only their number.
        let mut middle = record(&calls, CPUS, 1000);
        for (caught, whole) in middle.iter_mut().zip(record(&both, CPUS, 1000)) {
            caught.steps = whole.steps;
        }
        let middle = reading(&middle, FIRST);
        let after = if ends { [&both[..], &calls].concat() } else { both.clone() };
        let whole = reading(&record(&after, CPUS, 1000), FIRST);
        let mut next = whole.clone();
        next.hold_back(&middle);
        if ends {
            prop_assert_eq!(next, whole);
        } else {
            prop_assert_eq!(next.since(&middle).report(Op::Read, true).total_ns, 0);
            prop_assert_eq!(next.report(Op::Read, true).bytes, middle.report(Op::Read, true).bytes);
        }
    }

    #[test]
    fn counters_of_any_size_are_added_without_overflow(cpus in vec(counters(), 1..5), earlier in vec(counters(), 1..5)) {
        let (now, before) = (reading(&cpus, FIRST), reading(&earlier, FIRST));
        let sum = |of: fn(&op_stats) -> u64| cpus.iter().fold(0_u64, |sum, cpu| sum.saturating_add(of(cpu)));
        let op = now.report(Op::Read, true);
        prop_assert_eq!(op.total_ns, sum(|cpu| cpu.total_ns));
        prop_assert_eq!(op.bytes, Some(sum(|cpu| cpu.bytes)));
        prop_assert_eq!(now.lost_samples()[1], sum(|cpu| cpu.lost[1]));
        prop_assert_eq!(op.histogram.buckets().find(|bucket| bucket.ge == 3).map_or(0, |b| b.count), sum(|cpu| cpu.steps[3]));
        for op in [op, now.since(&before).report(Op::Read, true)] {
            let report = report_of(op);
            let json: serde_json::Value = serde_json::from_str(&json(&report)).unwrap();
            let reported = &json["layers"][0]["ops"][0];
            prop_assert_eq!(reported["total_ns"].as_u64(), Some(report.layers[0].ops[0].total_ns));
            prop_assert_eq!(reported["count"].as_u64(), Some(report.layers[0].ops[0].count()));
            for unit in [Unit::Nanoseconds, Unit::Microseconds, Unit::Milliseconds] {
                let text = text(&report, unit);
                prop_assert!(text.lines().all(|line| line.chars().count() <= 80), "{}", text);
            }
        }
    }
}

/// Counters with arbitrary contents, including extreme values.
fn counters() -> BoxedStrategy<op_stats> {
    let word = prop_oneof![
        3 => Just(0_u64),
        3 => prop::sample::select(vec![1, 1 << 40, 1 << 63, u64::MAX - 1, u64::MAX]),
        1 => any::<u64>(),
    ];
    vec(word, size_of::<op_stats>() / 8)
        .prop_map(|words| decode(&words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>())[0])
        .boxed()
}

#[test]
fn a_counter_that_wraps_has_grown_all_the_same() {
    let of = |total_ns| op_stats {
        total_ns,
        ..op_stats::default()
    };
    let before = reading(&[of(u64::MAX - 4), of(7)], FIRST);
    let now = reading(&[of(5), of(9)], FIRST);
    assert_eq!(now.since(&before).report(Op::Read, true).total_ns, 12);
}
