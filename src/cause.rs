//! The cause of a failure.

use std::fmt;
use std::io;

/// One line, and the kernel's error number if the kernel refused something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    pub line: String,
    pub errno: Option<i32>,
}

impl Cause {
    /// `what: error`
    #[must_use]
    pub fn of(what: impl fmt::Display, error: &io::Error) -> Self {
        Self {
            line: format!("{what}: {error}"),
            errno: error.raw_os_error(),
        }
    }
}

/// A cause without an error of the kernel.
impl From<String> for Cause {
    fn from(line: String) -> Self {
        Self { line, errno: None }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)
    }
}
