//! The forms that a report is printed in.

pub mod check;
mod errno;
pub mod folded;
pub mod json;
pub mod text;

use std::io;

use crate::model::report::Report;
use crate::model::report::slow::{LeftOut, SlowCall};

use self::text::TextOptions;

/// The form that a report is printed in.
#[derive(Debug, Clone, Copy)]
pub enum View {
    /// For people.
    Text(TextOptions),
    /// For programs: one line each.
    Json(json::Form),
    /// For flame graph tools.
    Folded,
}

impl View {
    /// Prints `report`, in one piece.
    ///
    /// # Errors
    /// What writing to `out` fails with.
    pub fn print(self, report: &Report, out: &mut impl io::Write) -> io::Result<()> {
        match self {
            Self::Text(options) => text::print(report, &options, out),
            Self::Json(form) => json::print(report, form, out),
            Self::Folded => folded::print(report, out),
        }
    }

    /// Prints what stands above slow calls.
    ///
    /// # Errors
    /// As above.
    pub fn print_slow_heading(self, out: &mut impl io::Write) -> io::Result<()> {
        match self {
            Self::Text(options) => text::slow::print_heading(options.width, out),
            Self::Json(_) | Self::Folded => Ok(()),
        }
    }

    /// Prints one slow call. Folded stacks have none.
    ///
    /// # Errors
    /// As above.
    pub fn print_slow(self, call: &SlowCall, out: &mut impl io::Write) -> io::Result<()> {
        match self {
            Self::Text(options) => text::slow::print(call, options.width, out),
            Self::Json(_) => json::print_slow(call, out),
            Self::Folded => Ok(()),
        }
    }

    /// Prints how many slow calls are not shown.
    ///
    /// # Errors
    /// As above.
    pub fn print_left_out(self, left_out: LeftOut, out: &mut impl io::Write) -> io::Result<()> {
        match self {
            Self::Text(options) => text::slow::print_left_out(left_out, options.width, out),
            Self::Json(_) => json::print_left_out(left_out, out),
            Self::Folded => Ok(()),
        }
    }
}
