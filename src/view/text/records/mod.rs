//! Answers from records: accesses, seeks, limits.

mod access;
#[cfg(test)]
pub(crate) mod example;
mod limits;
mod seeks;

use std::io;

use super::color::Mark;
use super::number::thousands;
use super::{Page, counted};
use crate::model::clock::Clock;
use crate::model::record::Kind;
use crate::model::report::records::{FileName, Incomplete, ProcessName, RecordsReport};
use crate::view::Screen;

/// On a terminal of this width or more, what else takes several lines is one.
const WIDE: usize = 110;
/// Intervals of losses that are printed.
const INTERVALS: usize = 5;

/// Prints the answers, in a single write.
///
/// # Errors
///
/// Any error from writing to `out`.
pub fn print(report: &RecordsReport, clock: Clock, screen: Screen, out: &mut impl io::Write) -> io::Result<()> {
    let mut page = Page::colored(screen.width, screen.is_colored);
    if let Some(access) = &report.access {
        access::print(access, &mut page);
        page.blank();
    }
    if let Some(seeks) = &report.seeks {
        seeks::print(seeks, &mut page);
        page.blank();
    }
    if let Some(limits) = &report.limits {
        limits::print(limits, &mut page);
        page.blank();
    }
    incomplete(&report.incomplete, clock, &mut page);
    out.write_all(page.text.as_bytes())
}

/// `INCOMPLETE 12:03:07.120-12:03:07.164: 2,113 calls have no record`
fn incomplete(all: &[Incomplete], clock: Clock, page: &mut Page) {
    for one in all.iter().take(INTERVALS) {
        page.mark(Mark::Lost, &missing(one, clock, false));
    }
    let rest = &all[all.len().min(INTERVALS)..];
    if !rest.is_empty() {
        let records = rest.iter().map(|one| one.records).fold(0, u64::saturating_add);
        let line = format!(
            "INCOMPLETE: {} more without a record, in {}",
            thousands(records),
            counted(rest.len() as u64, "other interval")
        );
        page.mark(Mark::Lost, &line);
    }
}

/// `INCOMPLETE 12:03:07.120-12:03:07.164: 2,113 calls have no record`. `is_in_totals`: as [`without_record`] has it.
#[must_use]
pub fn missing(one: &Incomplete, clock: Clock, is_in_totals: bool) -> String {
    let [from, to] = [one.from_ns, one.to_ns].map(|at_ns| clock.milliseconds(at_ns));
    let what = without_record(one.records, one.kind, is_in_totals);
    format!("INCOMPLETE {from}-{to}: {what}")
}

/// `2,113 calls have no record; they are in the totals`, `1 definition of a file has no record: names may be missing`.
/// `is_in_totals`: there are totals, which have the operations without a record.
#[must_use]
pub fn without_record(records: u64, kind: Kind, is_in_totals: bool) -> String {
    let of = |one: &'static str, more: &'static str| if records == 1 { one } else { more };
    let rest = match kind {
        Kind::File | Kind::Folder | Kind::Thread => ": names may be missing",
        Kind::Path => of(": the call with it has none", ": the calls with them have none"),
        _ if is_in_totals => of("; it is in the totals", "; they are in the totals"),
        _ => "",
    };
    format!("{} {} no record{rest}", of_kind(records, kind), of("has", "have"))
}

/// `at the end: 2,113 calls could not be written`.
#[must_use]
pub fn not_written(records: u64, kind: Kind) -> String {
    format!("at the end: {} could not be written", of_kind(records, kind))
}

/// `2,113 calls`, `1 definition of a directory`. A file whose definition is lost is defined by the next call on it, so that
/// definitions are not as many files.
#[must_use]
pub fn of_kind(records: u64, kind: Kind) -> String {
    let of_definitions = |one: &str, more: &str| match records {
        1 => format!("1 definition of a {one}"),
        _ => format!("{} definitions of {more}", thousands(records)),
    };
    let what = match kind {
        Kind::Call => "call",
        Kind::Request => "request",
        Kind::Sleep => "sleep",
        Kind::Async => "asynchronous request",
        Kind::Fault => "page fault",
        Kind::File => return of_definitions("file", "files"),
        Kind::Folder => return of_definitions("directory", "directories"),
        Kind::Thread => return of_definitions("thread", "threads"),
        Kind::Path => "path",
    };
    counted(records, what)
}

/// `postgres 4711`
fn process(process: &ProcessName) -> String {
    match process {
        ProcessName { pid: 0, .. } => "(unknown)".to_owned(),
        ProcessName { pid, comm: None } => format!("PID {pid}"),
        ProcessName { pid, comm: Some(comm) } => format!("{comm} {pid}"),
    }
}

/// Its path, or else its number.
fn file(file: &FileName) -> String {
    match (&file.path, file.inode) {
        (Some(path), _) => path.text.clone(),
        (None, Some(inode)) => format!("… (inode {} on {}:{})", inode.number, inode.major, inode.minor),
        (None, None) => "(no file)".to_owned(),
    }
}

#[cfg(test)]
mod tests;
