//! Reports for programs: one JSON object per line (JSON Lines), fully described by `schema/report.schema.json`.
//!
//! [`form`] defines the fields, for writing and for reading.

mod compact;
mod escape;
pub mod form;
mod of;
pub mod records;
pub mod replay;

use std::io;

use serde::Serialize;

pub(crate) use self::escape::Escaping;
use self::form::Line;
use super::{Sheet, View};
use crate::model::events::Events;
use crate::model::report::Report;
use crate::model::report::slow::{LeftOut, SlowCall};

/// Incremented when a field is removed or its meaning, name or type changes.
pub const SCHEMA_VERSION: u32 = 1;

/// How much of a report is printed. The schema is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Form {
    /// Everything, including operations that were never called
    Full,
    /// Without operations that were never called
    Compact,
}

/// Reports as JSON Lines.
#[derive(Debug, Clone, Copy)]
pub struct Json(pub Form);

impl View for Json {
    fn events(&mut self, events: &Events, sheet: &mut Sheet<'_>) -> io::Result<()> {
        for call in &events.slow_calls {
            print_slow(call, &mut sheet.out)?;
        }
        if events.left_out.sum() > 0 {
            print_left_out(events.left_out, &mut sheet.out)?;
        }
        Ok(())
    }

    fn report(&mut self, report: &Report, sheet: &mut Sheet<'_>) -> io::Result<()> {
        print(report, self.0, &mut sheet.out)
    }
}

/// Prints `report` as one line, in a single write, so that a concurrent reader of the file never sees half of it.
///
/// # Errors
///
/// Any error from writing to `out`.
pub fn print(report: &Report, form: Form, out: &mut impl io::Write) -> io::Result<()> {
    let mut object = form::Report::from(report);
    if form == Form::Compact {
        object.leave_out_unused();
    }
    print_line(&object, out)
}

/// Prints one slow call as one line.
///
/// # Errors
///
/// Any error from writing to `out`.
pub fn print_slow(call: &SlowCall, out: &mut impl io::Write) -> io::Result<()> {
    let object = Line {
        schema_version: SCHEMA_VERSION,
        slow_call: Some(call.into()),
        slow_calls_not_told: None,
    };
    print_line(&object, out)
}

/// Prints the number of slow calls that have no line.
///
/// # Errors
///
/// Any error from writing to `out`.
pub fn print_left_out(left_out: LeftOut, out: &mut impl io::Write) -> io::Result<()> {
    let object = Line {
        schema_version: SCHEMA_VERSION,
        slow_call: None,
        slow_calls_not_told: Some(left_out),
    };
    print_line(&object, out)
}

fn print_line(object: &impl Serialize, out: &mut impl io::Write) -> io::Result<()> {
    let mut line = Vec::new();
    object.serialize(&mut serde_json::Serializer::with_formatter(&mut line, Escaping))?;
    line.push(b'\n');
    out.write_all(&line)
}
