//! How files are accessed: `report FILE --access`.

use super::super::name::shortened;
use super::super::number::{decimal_bytes, exact_bytes, percent, thousands};
use super::super::{Page, counted};
use super::{WIDE, file};
use crate::model::report::records::{AccessReport, Accesses, FileAccess, LevelAccess};

const HEADINGS: [&str; 7] = [
    "level",
    "R/W",
    "accesses",
    "bytes",
    "sequential",
    "random",
    "in streams",
];
/// The same, and the widths of columns, on a narrow terminal.
const SHORT: [&str; 7] = ["level", "R/W", "accesses", "bytes", "seq", "random", "streams"];
/// Columns of common sizes beside the table.
const SIZES: usize = 26;
/// Sizes that are named.
const SHOWN: usize = 4;

pub fn print(report: &AccessReport, page: &mut Page) {
    if report.files.is_empty() {
        page.line("no reads or writes of files");
    } else {
        let rows: Vec<_> = report.files.iter().map(|file| (file, rows(file))).collect();
        if page.width >= WIDE {
            beside(&rows, page);
        } else {
            below(&rows, page);
        }
        page.blank();
        page.line("in streams: sequential within the accesses of one process to the file");
    }
    remarks(report, page);
}

/// A line of the table: its cells, and the common sizes.
type Line = ([String; 7], String);

fn rows(file: &FileAccess) -> Vec<Line> {
    let levels = file.levels.iter();
    levels
        .flat_map(|level| {
            let directions = [("R", level.read), ("W", level.write)];
            let directions = directions.into_iter().filter(|(_, accesses)| accesses.count > 0);
            directions.enumerate().map(|(index, (name, accesses))| {
                let sizes = if index == 0 { sizes(level) } else { String::new() };
                (cells(level, name, accesses), sizes)
            })
        })
        .collect()
}

/// Shares are of all accesses of the level, as iotracer computes them.
fn cells(level: &LevelAccess, name: &str, accesses: Accesses) -> [String; 7] {
    let all = level.count();
    [
        level.level.name().to_owned(),
        name.to_owned(),
        thousands(accesses.count),
        decimal_bytes(accesses.bytes),
        percent(accesses.sequential, all),
        percent(accesses.count.saturating_sub(accesses.sequential), all),
        accesses
            .sequential_in_streams
            .map_or_else(|| "-".to_owned(), |sequential| percent(sequential, all)),
    ]
}

/// `8 KiB 97 %, 16 KiB 3 %`, the most frequent first.
fn sizes(level: &LevelAccess) -> String {
    let mut sizes = level.sizes.clone();
    sizes.sort_unstable_by_key(|size| (std::cmp::Reverse(size.count), size.bytes));
    let whole = |share: String| share.replace(".0 %", " %");
    let shown = sizes.iter().take(SHOWN);
    let mut words: Vec<String> = shown
        .map(|size| {
            format!(
                "{} {}",
                exact_bytes(size.bytes),
                whole(percent(size.count, level.count()))
            )
        })
        .collect();
    if sizes.len() > SHOWN {
        words.push(format!("{} more", sizes.len() - SHOWN));
    }
    if level.sizes_are_incomplete {
        words.push("too many to count all".to_owned());
    }
    words.join(", ")
}

/// The widths of columns: two of words on the left, five of numbers.
fn widths(rows: &[(&FileAccess, Vec<Line>)], headings: [&str; 7]) -> [usize; 7] {
    std::array::from_fn(|column| {
        let cells = rows.iter().flat_map(|(_, lines)| lines);
        let cells = cells.map(|(cells, _)| cells[column].chars().count());
        cells.max().unwrap_or(0).max(headings[column].len())
    })
}

fn joined(cells: [&str; 7], widths: [usize; 7], gap: usize) -> String {
    let mut line = format!("{:<width$}", cells[0], width = widths[0]);
    for (column, cell) in cells.iter().enumerate().skip(1) {
        let width = widths[column];
        let cell = if column == 1 {
            format!("{cell:<width$}")
        } else {
            format!("{cell:>width$}")
        };
        line.push_str(&" ".repeat(gap));
        line.push_str(&cell);
    }
    line
}

fn texts(cells: &[String; 7]) -> [&str; 7] {
    std::array::from_fn(|column| cells[column].as_str())
}

/// On a wide terminal, files and common sizes are columns.
fn beside(rows: &[(&FileAccess, Vec<Line>)], page: &mut Page) {
    let widths = widths(rows, HEADINGS);
    let of_table = widths.iter().sum::<usize>() + 2 * 6;
    let longest = rows.iter().map(|(of, _)| file(&of.file).chars().count()).max();
    let room = page.width.saturating_sub(of_table + 2 + 2 + SIZES);
    let names = longest.unwrap_or(0).clamp(4, room.max(4));
    let heading = joined(HEADINGS, widths, 2);
    page.line(&format!("{:<names$}  {heading}  common sizes", "file"));
    for (of, lines) in rows {
        let mut name = shortened(&file(&of.file), names);
        for (cells, sizes) in lines {
            let room = page.width.saturating_sub(names + of_table + 4);
            let sizes = super::super::name::beginning(sizes, room);
            page.line(&format!("{name:<names$}  {}  {sizes}", joined(texts(cells), widths, 2)));
            name.clear();
        }
    }
}

/// On a narrow terminal, each file has a line of its own, and so have its common sizes.
fn below(rows: &[(&FileAccess, Vec<Line>)], page: &mut Page) {
    let widths = widths(rows, SHORT);
    let columns = 2 + widths.iter().sum::<usize>();
    let gap = if columns + 2 * 6 <= page.width { 2 } else { 1 };
    page.line(&format!("  {}", joined(SHORT, widths, gap)));
    for (of, lines) in rows {
        page.whole(&file(&of.file));
        for (cells, sizes) in lines {
            page.line(&format!("  {}", joined(texts(cells), widths, gap)));
            if !sizes.is_empty() {
                page.line(&format!("    sizes: {sizes}"));
            }
        }
    }
}

/// What the table does not have.
fn remarks(report: &AccessReport, page: &mut Page) {
    if report.more_files > 0 {
        page.line(&format!("not shown: {} (--top)", counted(report.more_files, "file")));
    }
    let all = [
        (report.without_file, "of no known file, or metadata of file systems"),
        (report.without_range, "without a known offset or size"),
        (
            report.on_two_files,
            "on two files (sendfile64, splice, copy_file_range)",
        ),
        (report.faults, "page faults on mapped files"),
    ];
    let parts = all.iter().filter(|(n, _)| *n > 0);
    let parts: Vec<String> = parts.map(|(n, what)| format!("{} {what}", thousands(*n))).collect();
    if !parts.is_empty() {
        page.line(&format!("left out: {}", parts.join(", ")));
    }
    if report.out_of_order > 0 {
        page.line(&format!(
            "compared in another order than they began, since they took very long: {}",
            thousands(report.out_of_order)
        ));
    }
}
