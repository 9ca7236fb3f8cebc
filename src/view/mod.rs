//! The forms that a report is printed in.

pub mod check;
mod cost;
mod errno;
pub mod folded;
pub mod json;
pub mod text;

use std::io;

use crate::model::events::Events;
use crate::model::report::Report;

pub use self::folded::Folded;
pub use self::json::Json;
pub use self::text::Text;

/// A form of reports. Each run may have several, each with an output of its own.
pub trait View {
    /// What will not change while the run lasts: `first` is a report without numbers.
    ///
    /// # Errors
    /// Any error from writing to `sheet`.
    fn begin(&mut self, first: &Report, sheet: &mut Sheet<'_>) -> io::Result<()> {
        let _ = (first, sheet);
        Ok(())
    }

    /// What has happened since the last time.
    ///
    /// # Errors
    /// As above.
    fn events(&mut self, events: &Events, sheet: &mut Sheet<'_>) -> io::Result<()> {
        let _ = (events, sheet);
        Ok(())
    }

    /// What came in an interval, or in the whole run.
    ///
    /// # Errors
    /// As above.
    fn report(&mut self, report: &Report, sheet: &mut Sheet<'_>) -> io::Result<()>;

    /// Nothing more will come.
    ///
    /// # Errors
    /// As above.
    fn end(&mut self, sheet: &mut Sheet<'_>) -> io::Result<()> {
        let _ = sheet;
        Ok(())
    }
}

/// What something is printed on.
pub struct Sheet<'a> {
    pub out: &'a mut dyn io::Write,
    pub screen: Screen,
}

/// A terminal, or none.
#[derive(Debug, Clone, Copy, Default)]
pub struct Screen {
    /// Columns; `None` where it is no terminal.
    pub width: Option<usize>,
    /// Lines; `None` where it is no terminal, or that is not known.
    pub height: Option<usize>,
}
