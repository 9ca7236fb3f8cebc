//! Slow calls, a line each: when, how long, who, what, where its time went, and in which file.

use std::io;

use jiff::tz::TimeZone;

use super::number::{decimal_bytes, percent, thousands, time_each};
use crate::printable::printable;
use crate::report::errno::errno_name;
use crate::report::slow::{LeftOut, SlowCall, SlowRow};

/// Terminals of fewer columns have no room for thread, offset and size, nor for more than the first row.
const WIDE: usize = 150;
/// Of a file's name, as much is shown at least.
const LEAST: usize = 12;
/// Rows that are told, the largest first, each of at least this part of the call, in percent.
const ROWS: usize = 3;
const SMALL: u128 = 1;

/// What stands above the lines. `width`: columns of the terminal; `None` where it is none, and nothing is cut.
///
/// # Errors
///
/// What writing to `out` fails with.
pub fn print_heading(width: Option<usize>, out: &mut impl io::Write) -> io::Result<()> {
    let line = if is_wide(width) {
        wide(["TIME", "TOTAL", "OP", "PROCESS", "OFFSET", "SIZE", "WHERE IT WAS"])
    } else {
        narrow(["TIME", "TOTAL", "OP", "PROCESS", "WHERE IT WAS"])
    };
    out.write_all(format!("{line}FILE\n").as_bytes())
}

/// One call.
///
/// # Errors
///
/// What writing to `out` fails with.
pub fn print(call: &SlowCall, width: Option<usize>, out: &mut impl io::Write) -> io::Result<()> {
    out.write_all(format!("{}\n", line(call, width, &TimeZone::system())).as_bytes())
}

/// Calls that have no line.
///
/// # Errors
///
/// What writing to `out` fails with.
pub fn print_left_out(left_out: LeftOut, out: &mut impl io::Write) -> io::Result<()> {
    let calls = left_out.sum();
    let more = if calls == 1 { "call" } else { "calls" };
    let line = format!(
        "... {} more slow {more} not told: {}\n",
        thousands(calls),
        why(left_out)
    );
    out.write_all(line.as_bytes())
}

/// `2 beyond 1,000 in a second, 1 for want of room`
pub fn why(left_out: LeftOut) -> String {
    let most = thousands(crate::kernel::interface::SLOW_PER_SECOND.into());
    let reasons = [
        (left_out.limited, format!("beyond {most} in a second")),
        (left_out.no_room, "for want of room".to_owned()),
    ];
    let reasons = reasons.iter().filter(|(n, _)| *n > 0);
    let reasons: Vec<String> = reasons.map(|(n, why)| format!("{} {why}", thousands(*n))).collect();
    reasons.join(", ")
}

fn is_wide(width: Option<usize>) -> bool {
    width.is_none_or(|width| width >= WIDE)
}

fn wide([time, total, op, process, offset, size, rows]: [&str; 7]) -> String {
    format!("{time:<12} {total:>7} {op:<10} {process:<20} {offset:>13} {size:>8}  {rows:<48} ")
}

fn narrow([time, total, op, process, rows]: [&str; 5]) -> String {
    format!("{time:<8} {total:>7} {op:<10} {process:<14} {rows:<16} ")
}

/// A call's line, in the zone's time of day.
fn line(call: &SlowCall, width: Option<usize>, zone: &TimeZone) -> String {
    let ended = call.ended.to_zoned(zone.clone());
    let total = time_each(call.total_ns);
    let mut process = format!("{} {}", call.comm, call.pid);
    if is_wide(width) && call.pid != call.tid {
        process.push_str(&format!("/{}", call.tid));
    }
    let offset = call.offset.map_or_else(|| "-".to_owned(), thousands);
    let size = match (call.errno, call.bytes.or(call.size)) {
        (Some(errno), _) => errno_name(errno),
        (None, Some(bytes)) => decimal_bytes(bytes),
        (None, None) => "-".to_owned(),
    };
    let mut rows: Vec<SlowRow> = call.rows.clone();
    rows.sort_by_key(|row| std::cmp::Reverse(row.ns));
    let start = if is_wide(width) {
        let rows = rows_told(&rows, call.total_ns);
        let time = ended.strftime("%H:%M:%S%.3f").to_string();
        wide([&time, &total, call.op, &process, &offset, &size, &rows])
    } else {
        let guilty = rows.first().map_or_else(
            || "-".to_owned(),
            |row| format!("*{} {}", row.row, share(row.ns, call.total_ns)),
        );
        let time = ended.strftime("%H:%M:%S").to_string();
        narrow([&time, &total, call.op, &process, &guilty])
    };
    let start = printable(&start);
    let file = printable(call.path.as_ref().map_or("…", |path| &path.text));
    let room = width.map(|width| width.saturating_sub(start.chars().count()).max(LEAST));
    format!(
        "{start}{}",
        room.map_or_else(|| file.clone(), |room| end_of(&file, room))
    )
}

/// `*device 18.2 ms 97 %, ext4 2 %`: the guilty one first, and marked.
fn rows_told(rows: &[SlowRow], total_ns: u64) -> String {
    let told = rows.iter().take(ROWS).enumerate();
    let told = told.filter(|(place, row)| *place == 0 || u128::from(row.ns) * 100 >= u128::from(total_ns) * SMALL);
    let told: Vec<String> = told
        .map(|(place, row)| {
            let share = share(row.ns, total_ns);
            match place {
                0 => format!("*{} {} {share}", row.row, time_each(row.ns)),
                _ => format!("{} {share}", row.row),
            }
        })
        .collect();
    if told.is_empty() {
        "-".to_owned()
    } else {
        told.join(", ")
    }
}

/// A part in whole percent. A whole that is shared has no `100 %`.
fn share(ns: u64, total_ns: u64) -> String {
    match super::number::rounded(u128::from(ns) * 100, total_ns.into()) {
        Some(100) if ns < total_ns => "99 %".to_owned(),
        Some(whole) => format!("{whole} %"),
        None => percent(ns, total_ns),
    }
}

/// The last characters of a name, with a `…` before them where some are missing.
pub fn end_of(name: &str, room: usize) -> String {
    let length = name.chars().count();
    if length <= room {
        return name.to_owned();
    }
    let rest = name.chars().skip(length + 1 - room);
    std::iter::once('…').chain(rest).collect()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use proptest::prelude::*;

    use super::*;
    use crate::fuzz;
    use crate::printable::is_printable;
    use crate::report::slow::{CallPath, PathKind};

    fn call() -> SlowCall {
        let row = |row, is_layer, ns| SlowRow { row, is_layer, ns };
        SlowCall {
            ended: Timestamp::from_millisecond(1_000_000_000_512).unwrap(),
            pid: 4711,
            tid: 4712,
            comm: "postgres".to_owned(),
            op: "pread64",
            path: Some(CallPath {
                kind: PathKind::Whole,
                text: "/var/lib/postgresql/17/main/base/16384/16385".to_owned(),
            }),
            offset: Some(1_228_800),
            size: Some(8192),
            bytes: Some(8192),
            total_ns: 21_400_000,
            rows: vec![
                row("syscall", true, 2_000),
                row("ext4", true, 398_000),
                row("device", false, 21_000_000),
            ],
            ..SlowCall::default()
        }
    }

    #[test]
    fn a_line_says_it_all() {
        assert_eq!(
            line(&call(), None, &TimeZone::UTC),
            "01:46:40.512 21.4 ms pread64    postgres 4711/4712       1,228,800   8.2 kB  *device 21.0 ms 98 %, ext4 2 %                   /var/lib/postgresql/17/main/base/16384/16385"
        );
        let failed = SlowCall {
            errno: Some(5),
            bytes: None,
            tid: 4711,
            path: None,
            offset: None,
            rows: Vec::new(),
            ..call()
        };
        assert_eq!(
            line(&failed, None, &TimeZone::UTC),
            "01:46:40.512 21.4 ms pread64    postgres 4711                    -      EIO  -                                                …"
        );
    }

    #[test]
    fn a_narrow_terminal_has_what_matters_most() {
        assert_eq!(
            line(&call(), Some(80), &TimeZone::UTC),
            "01:46:40 21.4 ms pread64    postgres 4711  *device 98 %     …in/base/16384/16385"
        );
    }

    #[test]
    fn the_end_of_a_name_is_kept() {
        assert_eq!(end_of("/a/b", 4), "/a/b");
        assert_eq!(end_of("/a/bc", 4), "…/bc");
        assert_eq!(end_of("/ä/bc", 4), "…/bc");
    }

    #[test]
    fn a_shared_whole_is_not_all() {
        assert_eq!(share(999, 1000), "99 %");
        assert_eq!(share(1000, 1000), "100 %");
        assert_eq!(share(0, 0), "-");
    }

    proptest! {
        #![proptest_config(fuzz::config())]

        #[test]
        fn any_name_stays_on_its_line(comm in fuzz::text_like("post\u{1b}[31mgr\u{202e}es"), path in fuzz::text_like("/var/\u{1b}]0;x\nb\u{2028}"), width in 0_usize..200) {
            let mut call = call();
            call.comm = comm;
            call.path = Some(CallPath { kind: PathKind::Asked, text: path });
            for width in [None, Some(width)] {
                let line = line(&call, width, &TimeZone::UTC);
                prop_assert!(line.chars().all(is_printable), "{:?}", line);
            }
        }
    }
}
