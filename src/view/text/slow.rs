//! Slow calls, one per line: when, how long, who, what, where its time was spent, and on which file.

use std::io;

use jiff::tz::Offset;

use super::Page;
use super::color::{Mark, Marked};
use super::label::short;
use super::name::shortened;
use super::number::{ColumnUnit, percent, thousands, time_each};
use crate::model::ids::NOT_SPLIT;
use crate::model::report::slow::{LeftOut, SlowCall, SlowRow};
use crate::printable::printable;
use crate::view::Screen;
use crate::view::errno::errno_name;

/// Narrower terminals show no thread, offset and size, and only the largest row.
const WIDE: usize = 160;
/// Even narrower ones show no time of day.
const NARROW: usize = 80;
/// Minimum width of a file's name.
const LEAST: usize = 9;
/// Times of calls are in milliseconds with three decimals, so that they are aligned.
const TOTAL: ColumnUnit = ColumnUnit {
    name: "ms",
    size: 1_000_000,
    decimals: 3,
};
/// The largest rows are shown, each with at least this share of the call, in percent.
const ROWS: usize = 3;
/// Width of these in the wide layout.
const OF_ROWS: usize = 48;
const SMALL: u128 = 1;

/// Prints the headings. `width`: columns of the terminal; `None` if it is not one, and nothing is cut.
///
/// # Errors
///
/// Any error from writing to `out`.
pub fn print_heading(width: Option<usize>, out: &mut impl io::Write) -> io::Result<()> {
    let total = format!("TOTAL {}", TOTAL.name);
    let line = match width.filter(|width| *width < WIDE) {
        None => wide(
            width,
            ["TIME", &total, "OP", "PROCESS", "OFFSET", "BYTES", "TIME SPENT IN"],
        ),
        Some(width) => narrow(width, ["TIME", &total, "OP", "PROCESS", "TIME SPENT IN"]),
    };
    out.write_all(format!("{line}FILE\n").as_bytes())
}

/// Prints one call.
///
/// # Errors
///
/// Any error from writing to `out`.
pub fn print(call: &SlowCall, zone: Offset, screen: Screen, out: &mut impl io::Write) -> io::Result<()> {
    let line = line(call, screen.width, zone).shown(screen.is_colored);
    out.write_all(format!("{line}\n").as_bytes())
}

/// Prints the number of calls without a line.
///
/// # Errors
///
/// Any error from writing to `out`.
pub fn print_left_out(left_out: LeftOut, screen: Screen, out: &mut impl io::Write) -> io::Result<()> {
    let calls = left_out.sum();
    let more = if calls == 1 { "call" } else { "calls" };
    let mut page = Page::colored(screen.width, screen.is_colored);
    let line = format!(
        "... {} more slow {more} not shown ({})",
        thousands(calls),
        why(left_out)
    );
    page.mark(Mark::Lost, &line);
    out.write_all(page.text.as_bytes())
}

/// `2 over the limit of 1,000 per second, 1 because the buffer was full; raise --slower`
pub fn why(left_out: LeftOut) -> String {
    let most = thousands(crate::model::abi::SLOW_PER_SECOND.into());
    let reasons = [
        (left_out.limited, format!("over the limit of {most} per second")),
        (left_out.no_room, "because the buffer was full".to_owned()),
    ];
    let reasons = reasons.iter().filter(|(n, _)| *n > 0);
    let reasons: Vec<String> = reasons.map(|(n, why)| format!("{} {why}", thousands(*n))).collect();
    format!("{}; raise --slower", reasons.join(", "))
}

/// Widths of an operation and of a process. Without a terminal, the longest thread name with two numbers fits.
const OP: (usize, usize) = (10, 17);
const PROCESS: (usize, usize) = (20, 31);

/// A terminal's cells are cut to the width of their column. On a wider terminal the columns of names get a quarter of
/// the additional width each.
fn wide(width: Option<usize>, [time, total, op, process, offset, bytes, rows]: [&str; 7]) -> String {
    let room =
        |(least, most): (usize, usize)| width.map_or(most, |width| (least + width.saturating_sub(WIDE) / 4).min(most));
    let [op, process] = [(op, OP), (process, PROCESS)].map(|(cell, limits)| {
        let room = room(limits);
        match width {
            Some(_) => format!("{:<room$}", shortened(cell, room)),
            None => format!("{cell:<room$}"),
        }
    });
    format!("{time:<12} {total:>9} {op} {process} {offset:>13} {bytes:>11}  {rows:<OF_ROWS$} ")
}

/// Width of the row with most of a call's time.
fn of_largest(width: usize) -> usize {
    if width >= NARROW { 17 } else { 15 }
}

/// Cells are cut to the width of their column, so a call fits on one line.
fn narrow(width: usize, [time, total, op, process, rows]: [&str; 5]) -> String {
    let has_time = width >= NARROW;
    // A third of the additional width goes to processes, the rest to files.
    let of_process = (13 + width.saturating_sub(NARROW) / 3).min(23);
    let time = if has_time { format!("{time:<8} ") } else { String::new() };
    let [op, process, rows] = [(op, 10), (process, of_process), (rows, of_largest(width))]
        .map(|(cell, room)| format!("{:<room$}", shortened(cell, room)));
    format!("{time}{total:>9} {op} {process} {rows} ")
}

/// A call's line, with the time of day in this time zone, and without unprintable characters.
fn line(call: &SlowCall, width: Option<usize>, zone: Offset) -> Marked {
    let ended = zone.to_datetime(call.ended);
    let total = TOTAL.number(call.total_ns);
    let process = format!("{} {}", call.comm, call.pid);
    let mut rows: Vec<SlowRow> = call.rows.clone();
    rows.sort_by_key(|row| std::cmp::Reverse(row.ns));
    let start = match width.filter(|width| *width < WIDE) {
        None => {
            let process = if call.pid == call.tid {
                process
            } else {
                format!("{process}/{}", call.tid)
            };
            let offset = call.offset.map_or_else(|| "-".to_owned(), thousands);
            let bytes = match (call.errno, call.bytes.or(call.size)) {
                (Some(errno), _) => errno_name(errno),
                (None, bytes) => bytes.map_or_else(|| "-".to_owned(), thousands),
            };
            let time = ended.strftime("%H:%M:%S%.3f").to_string();
            wide(
                width,
                [
                    &time,
                    &total,
                    call.op.name(),
                    &process,
                    &offset,
                    &bytes,
                    &rows_shown(call, &rows),
                ],
            )
        }
        Some(width) => {
            let largest = rows
                .first()
                .map_or_else(|| "-".to_owned(), |row| largest_row(call, row, of_largest(width)));
            let time = ended.strftime("%H:%M:%S").to_string();
            narrow(width, [&time, &total, call.op.name(), &process, &largest])
        }
    };
    let start = printable(&start);
    let of_rows = width.filter(|width| *width < WIDE).map_or(OF_ROWS, of_largest);
    let mut line = marked(&start, of_rows + 1);
    let file = printable(call.path.as_ref().map_or("…", |path| &path.text));
    let room = width.map(|width| width.saturating_sub(start.chars().count()).max(LEAST));
    line.push(&room.map_or_else(|| file.clone(), |room| shortened(&file, room)), None);
    line
}

/// Marks the largest row. `room`: the columns of the rows, which are the last of the line.
fn marked(line: &str, room: usize) -> Marked {
    let column = line.chars().count().saturating_sub(room);
    let at = line.char_indices().nth(column).map_or(line.len(), |(at, _)| at);
    let (start, rows) = line.split_at(at);
    let (first, rest) = rows.split_at(rows.find(", ").unwrap_or(rows.len()));
    let mut line = Marked::from(start.to_owned());
    line.push(first, first.starts_with('*').then_some(Mark::Guilty));
    line.push(rest, None);
    line
}

/// `*device 98 %`
fn largest_row(call: &SlowCall, row: &SlowRow, room: usize) -> String {
    let form = |label: &str| format!("*{label} {}", share(row.ns, call.total_ns));
    let whole = form(narrow_label(call, row));
    if whole.chars().count() <= room {
        whole
    } else {
        form(short(call.label(row)))
    }
}

/// A row's short name if its full name never fits.
fn narrow_label(call: &SlowCall, row: &SlowRow) -> &'static str {
    match call.label(row) {
        NOT_SPLIT => short(NOT_SPLIT),
        label => label,
    }
}

/// `*device 18.2 ms 97 %, ext4 2 %`: the largest first, and marked. As many as fit, with full names if possible.
fn rows_shown(call: &SlowCall, rows: &[SlowRow]) -> String {
    let is_shown =
        |(index, row): &(usize, &SlowRow)| *index == 0 || u128::from(row.ns) * 100 >= u128::from(call.total_ns) * SMALL;
    let text = |most: usize, label: &dyn Fn(&SlowRow) -> &'static str| {
        let shown = rows.iter().take(most).enumerate().filter(is_shown);
        let shown: Vec<String> = shown
            .map(|(index, row)| {
                let (label, share) = (label(row), share(row.ns, call.total_ns));
                match index {
                    0 => format!("*{label} {} {share}", time_each(row.ns)),
                    _ => format!("{label} {share}"),
                }
            })
            .collect();
        shown.join(", ")
    };
    let whole = text(ROWS, &|row| call.label(row));
    let narrow = (1..=ROWS).rev().map(|most| text(most, &|row| narrow_label(call, row)));
    let mut forms = std::iter::once(whole).chain(narrow);
    let fits = |form: &String| form.chars().count() <= OF_ROWS;
    // The largest row alone always fits.
    forms
        .find(fits)
        .filter(|form| !form.is_empty())
        .unwrap_or_else(|| "-".to_owned())
}

/// A share in whole percent, below `100 %` unless there is only one part.
fn share(ns: u64, total_ns: u64) -> String {
    match super::number::rounded(u128::from(ns) * 100, total_ns.into()) {
        Some(100) if ns < total_ns => "99 %".to_owned(),
        Some(whole) => format!("{whole} %"),
        None => percent(ns, total_ns),
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use proptest::prelude::*;

    use super::*;
    use crate::fuzz;
    use crate::model::ids::{Layer, Op, Row};
    use crate::model::report::slow::{CallPath, PathKind};
    use crate::printable::is_printable;

    fn call() -> SlowCall {
        let row = |row, ns| SlowRow { row, ns };
        SlowCall {
            pid: 4711,
            tid: 4712,
            comm: "postgres".to_owned(),
            path: Some(CallPath::whole("/var/lib/postgresql/17/main/base/16384/16385")),
            offset: Some(1_228_800),
            size: Some(8192),
            bytes: Some(8192),
            total_ns: 21_400_000,
            rows: vec![
                row(Row::Layer(Layer::Syscall), 2_000),
                row(Row::Layer(Layer::Ext4), 398_000),
                row(Row::Device, 21_000_000),
            ],
            op: Op::Pread64,
            ended: Timestamp::from_millisecond(1_000_000_000_512).unwrap(),
            ..SlowCall::default()
        }
    }

    #[test]
    fn the_largest_row_is_marked_and_nothing_else() {
        let mut named = call();
        named.comm = "*a, b".to_owned();
        for call in [call(), named] {
            for width in [None, Some(60), Some(80), Some(120), Some(200)] {
                let line = line(&call, width, Offset::UTC);
                let shown = line.shown(true);
                assert_eq!(shown.matches("\x1b[1;35m*").count(), 1, "{shown:?}");
                assert_eq!(shown.matches('\x1b').count(), 2, "{shown:?}");
                assert!(shown.contains("%\x1b[0m"), "{shown:?}");
                assert_eq!(super::super::color::without_marks(&shown), line.text);
            }
        }
    }

    #[test]
    fn a_line_says_it_all() {
        assert_eq!(
            line(&call(), None, Offset::UTC).text,
            "01:46:40.512    21.400 pread64           postgres 4711/4712                  1,228,800       8,192  *device 21.0 ms 98 %, ext4 2 %                   /var/lib/postgresql/17/main/base/16384/16385"
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
            line(&failed, None, Offset::UTC).text,
            "01:46:40.512    21.400 pread64           postgres 4711                               -         EIO  -                                                …"
        );
    }

    #[test]
    fn a_narrow_terminal_has_what_matters_most() {
        assert_eq!(
            line(&call(), Some(80), Offset::UTC).text,
            "01:46:40    21.400 pread64    postgres 4711 *device 98 %      /var/…/16384/16385"
        );
        assert_eq!(
            line(&call(), Some(60), Offset::UTC).text,
            "   21.400 pread64    postgres 4711 *device 98 %    …84/16385"
        );
        assert_eq!(
            line(&call(), Some(120), Offset::UTC).text,
            "01:46:40    21.400 pread64    postgres 4711           *device 98 %      /var/lib/postgresql/17/main/base/16384/16385"
        );
    }

    #[test]
    fn time_that_is_not_split_is_called_so() {
        let call = SlowCall {
            not_split: true,
            rows: vec![SlowRow {
                row: Row::Layer(Layer::Syscall),
                ns: 21_400_000,
            }],
            ..call()
        };
        let wide = line(&call, None, Offset::UTC).text;
        assert!(wide.contains("*kernel (not split) 21.4 ms 100 %"), "{wide}");
        let narrow = line(&call, Some(80), Offset::UTC).text;
        assert!(narrow.contains(" *kernel 100 % "), "{narrow}");
    }

    #[test]
    fn no_name_pushes_the_file_out_of_its_column() {
        let ops = crate::catalog::SYSCALLS.iter().map(|call| call.op);
        let longest = ops.max_by_key(|op| op.name().len());
        let call = SlowCall {
            op: longest.unwrap(),
            comm: "kworker/u64:12+".to_owned(),
            pid: 4_194_303,
            tid: 4_194_302,
            path: Some(CallPath::whole("#")),
            rows: vec![SlowRow {
                row: Row::Others,
                ns: 18_190_000,
            }],
            ..call()
        };
        let columns = |text: &str| text.chars().count();
        for width in [None, Some(60), Some(80), Some(100), Some(160), Some(200), Some(400)] {
            let mut heading = Vec::new();
            print_heading(width, &mut heading).unwrap();
            let heading = String::from_utf8(heading).unwrap();
            let line = line(&call, width, Offset::UTC).text;
            let file = heading.trim_end().strip_suffix("FILE").map(columns);
            assert_eq!(line.strip_suffix('#').map(columns), file, "{heading}{line}");
            // The last digits of a thread's number distinguish it from others.
            let is_wide = width.is_none_or(|width| width >= WIDE);
            assert!(!is_wide || line.contains("4194302"), "{line}");
            let name = if width == Some(60) { "*oIO 85 %" } else { "*others' I/O" };
            assert!(line.contains(name), "{line}");
        }
    }

    #[test]
    fn the_files_names_are_below_each_other() {
        let row = |row, ns| SlowRow { row, ns };
        let mut heading = Vec::new();
        print_heading(Some(200), &mut heading).unwrap();
        let heading = String::from_utf8(heading).unwrap();
        let expected = [
            (
                [
                    row(Row::Layer(Layer::Syscall), 18_400_000),
                    row(Row::RunQueue, 3_000_000),
                    row(Row::Lock, 0),
                ],
                "*kernel (not split) 18.4 ms 86 %, run queue 14 % ",
            ),
            (
                [
                    row(Row::Others, 11_400_000),
                    row(Row::Layer(Layer::Syscall), 6_000_000),
                    row(Row::RunQueue, 4_000_000),
                ],
                "*others' I/O 11.4 ms 53 %, kernel 28 % ",
            ),
            (
                [
                    row(Row::Layer(Layer::Syscall), 21_400_000),
                    row(Row::RunQueue, 0),
                    row(Row::Lock, 0),
                ],
                "*kernel (not split) 21.4 ms 100 % ",
            ),
        ];
        for (rows, shown) in expected {
            let call = SlowCall {
                not_split: true,
                rows: rows.to_vec(),
                ..call()
            };
            let line = line(&call, Some(200), Offset::UTC).text;
            assert!(line.contains(shown), "{line}");
            assert_eq!(line.find("/var/"), heading.find("FILE"), "{heading}{line}");
            assert!(line.ends_with("/16385") && line.len() <= 200, "{line}");
        }
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
            call.path = Some(CallPath { kind: PathKind::Given, text: path });
            for width in [None, Some(width)] {
                let line = line(&call, width, Offset::UTC).text;
                prop_assert!(line.chars().all(is_printable), "{:?}", line);
                let is_narrow = width.is_none_or(|width| line.chars().count() <= width.max(60) || width >= WIDE);
                prop_assert!(is_narrow, "{:?} {:?}", width, line);
            }
        }
    }
}
