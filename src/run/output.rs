//! Where reports go.

use std::fs::File;
use std::io::{self, Write};

use crate::cli::Options;
use crate::report::{Report, View};

/// Standard output, standard error, or a file.
pub enum Output {
    Stdout,
    Stderr,
    File(File),
}

impl Output {
    pub fn open(options: &Options) -> Result<Self, String> {
        match &options.output {
            Some(path) if path.as_os_str() == "-" => Ok(Self::Stdout),
            Some(path) => File::create(path)
                .map(Self::File)
                .map_err(|error| format!("cannot write '{}': {error}", path.display())),
            // A command's standard output is its own.
            None if options.command.is_empty() => Ok(Self::Stdout),
            None => Ok(Self::Stderr),
        }
    }

    pub fn print(&mut self, report: &Report, view: View) -> io::Result<()> {
        match self {
            Self::Stdout => view
                .print(report, &mut io::stdout().lock())
                .and_then(|()| io::stdout().flush()),
            Self::Stderr => view.print(report, &mut io::stderr().lock()),
            Self::File(file) => view.print(report, file),
        }
    }
}
