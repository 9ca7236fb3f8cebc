//! Numbers for people. Sums (totals, bytes) have one decimal, times of single calls at most three digits, as in `667.0
//! ms` and `173 us`: no time or size is wider than 9 columns. A table's column has a single unit ([`ColumnUnit`]),
//! since `900 us` and `2.9 ms` are hard to compare at a glance.

use std::time::Duration;

/// A unit: its name, its size, and the number of units from which the next one is used.
type Scale = [(&'static str, u64, u64)];

const SECOND: u64 = 1_000_000_000;
const HOUR: u64 = 3600 * SECOND;
/// A year is a Julian year of 365.25 days.
const TIMES: &Scale = &[
    ("ns", 1, 1000),
    ("us", 1000, 1000),
    ("ms", 1_000_000, 1000),
    ("s", SECOND, 10_000),
    ("h", HOUR, 1000),
    ("d", 24 * HOUR, 10_000),
    ("y", 8766 * HOUR, u64::MAX),
];
const BYTES: &Scale = &[
    ("B", 1, 1000),
    ("kB", 1000, 1000),
    ("MB", 1_000_000, 1000),
    ("GB", 1_000_000_000, 1000),
    ("TB", 1_000_000_000_000, 1000),
    ("PB", 1_000_000_000_000_000, 1000),
    ("EB", 1_000_000_000_000_000_000, u64::MAX),
];

/// A sum of the times of many calls.
pub fn time_sum(ns: u64) -> String {
    scaled(ns, TIMES, u128::MAX)
}

/// The time of a single call.
pub fn time_each(ns: u64) -> String {
    scaled(ns, TIMES, 100)
}

pub fn decimal_bytes(bytes: u64) -> String {
    scaled(bytes, BYTES, u128::MAX)
}

/// `value` in the suitable unit of `scale`, with one decimal below `whole_from` units. The unit is chosen by the
/// rounded number, so that 999.96 us is 1.0 ms and never 1000.0 us.
fn scaled(value: u64, scale: &Scale, whole_from: u128) -> String {
    let mut text = String::new();
    for (name, size, limit) in scale {
        let (size, limit) = (u128::from(*size), u128::from(*limit));
        let tenths = (u128::from(value) * 10 + size / 2) / size;
        let (number, fits) = if size == 1 || tenths >= whole_from.saturating_mul(10) {
            let whole = (u128::from(value) + size / 2) / size;
            (whole.to_string(), whole < limit)
        } else {
            (format!("{}.{}", tenths / 10, tenths % 10), tenths < limit * 10)
        };
        text = format!("{} {name}", group(&number));
        if fits {
            break;
        }
    }
    text
}

/// A size that is usually a power of two, exactly: `8 KiB`, `4,000 B`.
pub fn exact_bytes(bytes: u64) -> String {
    let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let unit = units.iter().find(|(size, _)| bytes > 0 && bytes.is_multiple_of(*size));
    unit.map_or_else(
        || format!("{} B", thousands(bytes)),
        |(size, name)| format!("{} {name}", thousands(bytes / size)),
    )
}

/// `84,201`.
pub fn thousands(n: u64) -> String {
    group(&n.to_string())
}

/// Inserts commas between the thousands of a decimal number.
fn group(number: &str) -> String {
    let whole = number.find('.').unwrap_or(number.len());
    let mut text = String::new();
    for (i, digit) in number.chars().enumerate() {
        if i > 0 && i < whole && (whole - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count too large for its column: `1.8e19`.
pub fn short(n: u64) -> String {
    let exact = thousands(n);
    let short = format!("{:.1e}", n as f64);
    if exact.len() <= short.len() { exact } else { short }
}

/// `part` of `whole`, rounded to the nearest integer; `None` if `whole` is 0.
pub fn rounded(part: u128, whole: u128) -> Option<u64> {
    (part + whole / 2)
        .checked_div(whole)
        .and_then(|n| u64::try_from(n).ok())
}

/// `0.01 %`. A share above 0 is never shown as 0.
pub fn share(part: u64, whole: u64) -> String {
    match rounded(u128::from(part) * 10_000, whole.into()) {
        None | Some(0) => String::from("< 0.01 %"),
        Some(hundredths) => format!("{}.{:02} %", hundredths / 100, hundredths % 100),
    }
}

/// A part of a whole, `8.0 %`; `-` if the whole is 0.
pub fn percent(part: u64, whole: u64) -> String {
    rounded(u128::from(part) * 1000, whole.into()).map_or_else(
        || String::from("-"),
        |tenths| format!("{}.{} %", thousands(tenths / 10), tenths % 10),
    )
}

/// What is rounded to zero has no sign.
pub fn signed(sign: &str, number: String) -> String {
    match number.contains(|c| matches!(c, '1'..='9')) {
        true => format!("{sign}{number}"),
        false => number,
    }
}

/// The unit of a column, and the number of decimals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ColumnUnit {
    pub name: &'static str,
    pub size: u64,
    pub decimals: u32,
}

const fn column(name: &'static str, size: u64, decimals: u32) -> ColumnUnit {
    ColumnUnit { name, size, decimals }
}

/// From the finest to the coarsest.
pub const TIME_COLUMNS: &[ColumnUnit] = &[
    column("ns", 1, 0),
    column("us", 1_000, 1),
    column("us", 1_000, 0),
    column("ms", 1_000_000, 1),
    column("ms", 1_000_000, 0),
    column("s", SECOND, 1),
    column("s", SECOND, 0),
];
pub const BYTE_COLUMNS: &[ColumnUnit] = &[
    column("B", 1, 0),
    column("kB", 1_000, 1),
    column("kB", 1_000, 0),
    column("MB", 1_000_000, 1),
    column("MB", 1_000_000, 0),
    column("GB", 1_000_000_000, 1),
    column("GB", 1_000_000_000, 0),
    column("TB", 1_000_000_000_000, 1),
];

/// Digits before the decimal point, in the preferred unit.
const DIGITS: u32 = 6;

/// The units in which all of `values` can be shown, the preferred one first: in it the smallest value is one or more,
/// with a decimal below 100, unless the largest value then has too many digits. Coarser units follow, which need less
/// room. No value becomes 0 in any of them.
pub fn column_units(units: &'static [ColumnUnit], values: impl Iterator<Item = u64>) -> &'static [ColumnUnit] {
    let mut range = (u64::MAX, 0);
    for value in values.filter(|value| *value > 0) {
        range = (range.0.min(value), range.1.max(value));
    }
    let (smallest, largest) = range;
    if largest == 0 {
        return &units[..1];
    }
    let is_large = |unit: &ColumnUnit| unit.steps(smallest) >= if unit.decimals > 0 { 10 } else { 100 };
    let is_short = |unit: &ColumnUnit| largest / unit.size < 10_u64.pow(DIGITS);
    let last = units.iter().rposition(|unit| unit.steps(smallest) >= 1).unwrap_or(0);
    let best = units.iter().rposition(is_large).unwrap_or(0);
    let best = (best..last).find(|index| is_short(&units[*index])).unwrap_or(last);
    &units[best..=last]
}

/// Digits of the larger of two compared numbers; one more if the smaller one would become 0.
const COMPARED: u32 = 4;

/// The unit in which two times of calls are compared.
pub fn unit_of_times(both: [u64; 2]) -> ColumnUnit {
    unit_of_both(TIME_COLUMNS, both)
}

/// The unit in which two numbers of bytes are compared.
pub fn unit_of_bytes(both: [u64; 2]) -> ColumnUnit {
    unit_of_both(BYTE_COLUMNS, both)
}

fn unit_of_both(units: &[ColumnUnit], both: [u64; 2]) -> ColumnUnit {
    let (small, large) = (both[0].min(both[1]), both[0].max(both[1]));
    let unit = units.iter().rfind(|unit| unit.size <= large).unwrap_or(&units[0]);
    let whole = (large / unit.size).max(1).ilog10() + 1;
    let with = |digits: u32| ColumnUnit {
        decimals: if unit.size == 1 {
            0
        } else {
            digits.saturating_sub(whole)
        },
        ..*unit
    };
    let unit = with(COMPARED);
    if small > 0 && unit.steps(small) == 0 {
        with(COMPARED + 1)
    } else {
        unit
    }
}

impl ColumnUnit {
    /// A value in units of its last digit, rounded.
    pub fn steps(self, value: u64) -> u64 {
        let steps = u128::from(value) * 10_u128.pow(self.decimals);
        rounded(steps, self.size.into()).unwrap_or(u64::MAX)
    }

    /// A value without its unit, for a column whose heading has the unit.
    pub fn number(self, value: u64) -> String {
        self.of_steps(self.steps(value))
    }

    /// The number for a value in units of its last digit.
    pub fn of_steps(self, steps: u64) -> String {
        let one = 10_u64.pow(self.decimals);
        match self.decimals {
            0 => thousands(steps),
            decimals => format!("{}.{:02$}", thousands(steps / one), steps % one, decimals as usize),
        }
    }
}

/// The length of a span: `53.1 ms`, `12.4 s`, `3m 25s`, `2h 0m 5s`.
pub fn length(span: Duration) -> String {
    let tenths_of = |unit_ns: u128| (span.as_nanos() + unit_ns / 20) * 10 / unit_ns;
    // The unit is chosen by the rounded number, as above.
    let (ms, s) = (tenths_of(1_000_000), tenths_of(SECOND.into()));
    if ms < 1000 {
        return format!("{}.{} ms", ms / 10, ms % 10);
    }
    if s < 1000 {
        return format!("{}.{} s", s / 10, s % 10);
    }
    let s = (span.as_nanos() + u128::from(SECOND / 2)) / u128::from(SECOND);
    let (days, hours, minutes, seconds) = (s / 86_400, s / 3600 % 24, s / 60 % 60, s % 60);
    let mut text = String::new();
    if days > 0 {
        text.push_str(&format!("{days}d "));
    }
    if s >= 3600 {
        text.push_str(&format!("{hours}h "));
    }
    text.push_str(&format!("{minutes}m {seconds}s"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_change_unit_where_they_round_to_it() {
        let each = [
            (0, "0 ns"),
            (811, "811 ns"),
            (999, "999 ns"),
            (1000, "1.0 us"),
            (2_449, "2.4 us"),
            (9_950, "10.0 us"),
            (14_650, "14.7 us"),
            (99_949, "99.9 us"),
            (99_950, "100 us"),
            (172_798, "173 us"),
            (999_499, "999 us"),
            (999_500, "1.0 ms"),
            (12_400_000_000, "12.4 s"),
            (9_999_499_999_999, "9,999 s"),
            (9_999_500_000_000, "2.8 h"),
            (u64::MAX, "585 y"),
        ];
        for (ns, text) in each {
            assert_eq!(time_each(ns), text, "{ns} ns");
        }
        let sums = [
            (999, "999 ns"),
            (999_949, "999.9 us"),
            (999_950, "1.0 ms"),
            (667_000_000, "667.0 ms"),
            (1_843_800_000, "1.8 s"),
            (9_999_949_999_999, "9,999.9 s"),
            (9_999_950_000_000, "2.8 h"),
            (3_599_819_999_999_999, "999.9 h"),
            (3_599_820_000_000_000, "41.7 d"),
            (u64::MAX, "584.5 y"),
        ];
        for (ns, text) in sums {
            assert_eq!(time_sum(ns), text, "{ns} ns");
        }
    }

    #[test]
    fn no_number_outgrows_its_column() {
        let mut value = u64::MAX;
        while value > 0 {
            for near in [value, value - 1, value - value / 3, value / 10 * 9] {
                assert!(time_each(near).len() <= 7, "{}", time_each(near));
                assert!(time_sum(near).len() <= 9, "{}", time_sum(near));
                assert!(decimal_bytes(near).len() <= 8, "{}", decimal_bytes(near));
                assert!(short(near).len() <= 6, "{}", short(near));
            }
            value /= 2;
        }
    }

    #[test]
    fn bytes_counts_and_shares() {
        assert_eq!(decimal_bytes(0), "0 B");
        assert_eq!(decimal_bytes(999), "999 B");
        assert_eq!(decimal_bytes(15_810_560), "15.8 MB");
        assert_eq!(decimal_bytes(u64::MAX), "18.4 EB");
        let exact = [0, 512, 4_000, 8192, 1 << 20, 3 << 30, u64::MAX].map(exact_bytes);
        let texts = [
            "0 B",
            "512 B",
            "4,000 B",
            "8 KiB",
            "1 MiB",
            "3 GiB",
            "18,446,744,073,709,551,615 B",
        ];
        assert_eq!(exact, texts);
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(84_201), "84,201");
        assert_eq!(thousands(u64::MAX), "18,446,744,073,709,551,615");
        assert_eq!(short(9_999), "9,999");
        assert_eq!(short(u64::MAX), "1.8e19");
        assert_eq!(share(12, 84_201), "0.01 %");
        assert_eq!(share(1, u64::MAX), "< 0.01 %");
        assert_eq!(share(u64::MAX, u64::MAX), "100.00 %");
        assert_eq!(rounded(5, 2), Some(3));
        assert_eq!(rounded(1, 0), None);
    }

    #[test]
    fn a_column_has_the_unit_that_its_smallest_number_reads_best_in() {
        let best = |values: &[u64]| {
            let units = column_units(TIME_COLUMNS, values.iter().copied());
            let texts: Vec<String> = values.iter().map(|value| units[0].number(*value)).collect();
            (units[0].name, texts.join(" "))
        };
        assert_eq!(best(&[2_900_000, 900_000]), ("us", "2,900 900".into()));
        assert_eq!(best(&[14_650, 0, 1_704_113]), ("us", "14.7 0.0 1,704.1".into()));
        assert_eq!(best(&[811, 900_000]), ("ns", "811 900,000".into()));
        assert_eq!(best(&[811, 30_000_000]), ("us", "0.8 30,000.0".into()));
        assert_eq!(best(&[49_000, 30_000_000_000]), ("us", "49 30,000,000".into()));
        assert_eq!(best(&[12_400_000_000]), ("s", "12.4".into()));
        assert_eq!(best(&[0]), ("ns", "0".into()));
        assert_eq!(best(&[]), ("ns", String::new()));
        // No value becomes 0 where there is less room.
        let coarser = |value: u64| {
            column_units(TIME_COLUMNS, [value].into_iter())
                .last()
                .map(|unit| unit.number(value))
        };
        assert_eq!(coarser(811).as_deref(), Some("1"));
        assert_eq!(coarser(49_000).as_deref(), Some("49"));
        assert_eq!(coarser(50_000).as_deref(), Some("0.1"));
        let bytes = column_units(BYTE_COLUMNS, [15_810_560, 6_700_032].into_iter())[0];
        assert_eq!((bytes.number(15_810_560), bytes.name), ("15.8".into(), "MB"));
    }

    #[test]
    fn two_numbers_have_one_unit_and_few_digits() {
        let texts = |unit: ColumnUnit, both: [u64; 2]| {
            let [a, b] = both.map(|value| unit.number(value));
            format!("{a} {b} {}", unit.name)
        };
        let times = |both| texts(unit_of_times(both), both);
        assert_eq!(times([0, 0]), "0 0 ns");
        assert_eq!(times([12, 811]), "12 811 ns");
        assert_eq!(times([12_355, 9_871]), "12.36 9.87 us");
        assert_eq!(times([1_999, 1_234]), "1.999 1.234 us");
        assert_eq!(times([172_798, 172_798]), "172.8 172.8 us");
        assert_eq!(times([2_900_000, 900_000]), "2.900 0.900 ms");
        assert_eq!(times([12_400_000_000, 3_000_000]), "12.400 0.003 s");
        assert_eq!(times([999_999, 1]), "1,000.00 0.00 us");
        let bytes = |both| texts(unit_of_bytes(both), both);
        assert_eq!(bytes([15_810_560, 6_700_032]), "15.81 6.70 MB");
        assert_eq!(bytes([811, 0]), "811 0 B");
    }

    #[test]
    fn lengths() {
        let of = |ms| length(Duration::from_micros((ms * 1000.0) as u64));
        assert_eq!(of(0.04), "0.0 ms");
        assert_eq!(of(53.14), "53.1 ms");
        assert_eq!(of(99.94), "99.9 ms");
        assert_eq!(of(99.95), "0.1 s");
        assert_eq!(of(12_449.0), "12.4 s");
        assert_eq!(of(99_949.0), "99.9 s");
        assert_eq!(of(99_950.0), "1m 40s");
        assert_eq!(of(205_000.0), "3m 25s");
        assert_eq!(of(7_205_000.0), "2h 0m 5s");
        assert_eq!(length(Duration::from_secs(90_000)), "1d 1h 0m 0s");
        assert!(
            length(Duration::MAX).ends_with("d 7h 0m 16s"),
            "{}",
            length(Duration::MAX)
        );
    }
}
