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
        page.mark(Mark::Lost, &missing(one, clock));
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

/// `INCOMPLETE 12:03:07.120-12:03:07.164: 2,113 calls have no record`
#[must_use]
pub fn missing(one: &Incomplete, clock: Clock) -> String {
    let [from, to] = [one.from_ns, one.to_ns].map(|at_ns| clock.milliseconds(at_ns));
    format!("INCOMPLETE {from}-{to}: {} no record", have(one.records, one.kind))
}

/// `2,113 calls have`
fn have(records: u64, kind: Kind) -> String {
    let what = match kind {
        Kind::Call => "call",
        Kind::Request => "request",
        Kind::Sleep => "sleep",
        Kind::Async => "asynchronous request",
        Kind::Fault => "page fault",
        Kind::File => "file",
        Kind::Folder => "directory",
        Kind::Thread => "thread",
        Kind::Path => "path",
    };
    let has = if records == 1 { "has" } else { "have" };
    match (records, kind) {
        (2.., Kind::Folder) | (0, Kind::Folder) => format!("{} directories have", thousands(records)),
        _ => format!("{} {has}", counted(records, what)),
    }
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
