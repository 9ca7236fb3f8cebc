//! What is told on standard error.

use std::fmt;
use std::io::{self, Write};

/// Tells a line. A run whose standard error nobody reads any more, or which has no room left, goes on: its report is what counts.
pub fn line(line: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// [`line`] as `eprintln!` would, which panics where nothing can be written.
#[macro_export]
macro_rules! say {
    ($($what:tt)*) => {
        $crate::say::line(format_args!($($what)*))
    };
}
