//! A report as a page that travels: `--html FILE`. One file, which makes no requests: its policy (CSP) forbids them, and
//! allows only the page's own script.
//!
//! Tables and the icicle need no script. The pictures over time are drawn by `page.js` from [`Columns`]. The data
//! of the report is in the page as JSON Lines, in the form of `--json=compact`.

mod columns;
pub mod page;

use std::io;

use self::page::{body, document, inert, subject};
use super::json::{self, Form, form};
use super::{Sheet, View};
use crate::model::events::Events;
use crate::model::report::Report;
use crate::model::report::slow::SlowCall;

pub use self::columns::Columns;

/// The slowest calls that are listed.
const SLOW_CALLS: usize = 500;

/// Writes the page of a run at its end.
#[derive(Debug, Default)]
pub struct Html {
    sum: Option<Box<Report>>,
    columns: Columns,
    /// At most twice [`SLOW_CALLS`].
    slow_calls: Vec<SlowCall>,
    /// Slow calls that are not in the list, because others were slower or there was no room.
    left_out: u64,
}

impl View for Html {
    fn events(&mut self, events: &Events, _: &mut Sheet<'_>) -> io::Result<()> {
        self.slow_calls.extend(events.slow_calls.iter().cloned());
        self.left_out = self.left_out.saturating_add(events.left_out.sum());
        if self.slow_calls.len() >= 2 * SLOW_CALLS {
            self.keep_slowest();
        }
        Ok(())
    }

    fn report(&mut self, report: &Report, _: &mut Sheet<'_>) -> io::Result<()> {
        self.columns.push(&form::Report::from(report));
        match &mut self.sum {
            Some(sum) => sum.add(report),
            None => self.sum = Some(Box::new(report.clone())),
        }
        Ok(())
    }

    fn end(&mut self, sheet: &mut Sheet<'_>) -> io::Result<()> {
        let Some(report) = self.sum.take() else { return Ok(()) };
        self.keep_slowest();
        let mut data = Vec::new();
        json::print(&report, Form::Compact, &mut data)?;
        for call in &self.slow_calls {
            json::print_slow(call, &mut data)?;
        }
        let body = body(&report, &self.columns, (&self.slow_calls, self.left_out));
        let data = inert(&String::from_utf8_lossy(&data));
        let title = format!("{}: where the time of I/O calls was spent", subject(&report));
        let page = document(&title, &body, &data, std::slice::from_ref(&self.columns));
        sheet.out.write_all(page.as_bytes())
    }
}

/// A row of a comparison.
#[derive(Debug, Clone)]
pub struct Compared {
    /// The name, the number before and after, and the difference, absolute and relative.
    pub cells: [String; 5],
    /// The difference may be chance.
    pub is_noise: bool,
}

/// The page of a comparison: its tables, and the pictures of both runs on the same scale. `heading`: a line for each run.
#[must_use]
pub fn comparison(heading: &[String], sections: &[(String, Vec<Compared>)], runs: &[Columns]) -> String {
    let body = page::comparison(heading, sections);
    document("What differs between two runs", &body, "", runs)
}

impl Html {
    fn keep_slowest(&mut self) {
        self.slow_calls.sort_by_key(|call| std::cmp::Reverse(call.total_ns));
        let beyond = self.slow_calls.len().saturating_sub(SLOW_CALLS);
        self.left_out = self.left_out.saturating_add(beyond as u64);
        self.slow_calls.truncate(SLOW_CALLS);
    }
}
