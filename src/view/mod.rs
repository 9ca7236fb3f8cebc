//! The forms in which reports are printed.

pub mod check;
mod cost;
pub mod errno;
pub mod folded;
pub mod html;
pub mod icicle;
pub mod json;
pub mod live;
mod markup;
pub mod metrics;
pub mod svg;
pub mod text;

use std::io;

use crate::model::events::Events;
use crate::model::report::Report;

pub use self::folded::Folded;
pub use self::html::Html;
pub use self::json::Json;
pub use self::svg::Svg;
pub use self::text::Text;

/// A form of reports. A run may use several, each with its own output.
pub trait View {
    /// Prints what does not change during the run: `first` is a report without numbers.
    ///
    /// # Errors
    /// Any error from writing to `sheet`.
    fn begin(&mut self, first: &Report, sheet: &mut Sheet<'_>) -> io::Result<()> {
        let _ = (first, sheet);
        Ok(())
    }

    /// Prints the events since the last call.
    ///
    /// # Errors
    /// As above.
    fn events(&mut self, events: &Events, sheet: &mut Sheet<'_>) -> io::Result<()> {
        let _ = (events, sheet);
        Ok(())
    }

    /// Prints the report of an interval, or of the whole run.
    ///
    /// # Errors
    /// As above.
    fn report(&mut self, report: &Report, sheet: &mut Sheet<'_>) -> io::Result<()>;

    /// Called once, after the last report.
    ///
    /// # Errors
    /// As above.
    fn end(&mut self, sheet: &mut Sheet<'_>) -> io::Result<()> {
        let _ = sheet;
        Ok(())
    }
}

/// Where a view prints.
pub struct Sheet<'a> {
    pub out: &'a mut dyn io::Write,
    pub screen: Screen,
}

/// The dimensions of a terminal, if there is one, and whether it shows colours.
#[derive(Debug, Clone, Copy, Default)]
pub struct Screen {
    /// Columns; `None` if it is not a terminal.
    pub width: Option<usize>,
    /// Lines; `None` if it is not a terminal, or they are not known.
    pub height: Option<usize>,
    /// What is printed may have colours.
    pub is_colored: bool,
}
