//! Where reports go.

use std::fs::File;
use std::io::{self, IsTerminal, Write};

use crate::cli::Options;

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

    /// Writes what `print` prints, in one piece.
    pub fn write(&mut self, print: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
        let mut text = Vec::new();
        print(&mut text)?;
        match self {
            Self::Stdout => {
                let mut out = io::stdout().lock();
                out.write_all(&text).and_then(|()| out.flush())
            }
            Self::Stderr => io::stderr().lock().write_all(&text),
            Self::File(file) => file.write_all(&text),
        }
    }

    /// Columns, if it is a terminal.
    pub fn width(&self) -> Option<usize> {
        let size = match self {
            Self::Stdout if io::stdout().is_terminal() => terminal_size::terminal_size_of(io::stdout()),
            Self::Stderr if io::stderr().is_terminal() => terminal_size::terminal_size_of(io::stderr()),
            Self::File(file) if file.is_terminal() => terminal_size::terminal_size_of(file),
            _ => None,
        };
        size.map(|(width, _)| width.0.into()).filter(|width| *width > 0)
    }
}
