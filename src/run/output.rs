//! Where reports go.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, IsTerminal, Write};

use crate::cli::Options;
use crate::report::text::oneline::Screen;
use crate::say;

/// Standard output, standard error, or a file.
pub struct Output {
    place: Place,
    /// There is a COMMAND, whose end is waited for even where nobody reads any more.
    has_command: bool,
}

enum Place {
    Stdout,
    Stderr,
    File(File),
    /// The reader has gone.
    Nowhere,
}

impl Output {
    /// A file keeps what it has until [`Self::begin`].
    pub fn open(options: &Options) -> Result<Self, String> {
        let has_command = !options.command.is_empty();
        let place = match &options.output {
            Some(path) if path.as_os_str() == "-" => Place::Stdout,
            Some(path) => OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .open(path)
                .map(Place::File)
                .map_err(|error| format!("cannot write '{}': {error}", path.display()))?,
            // A command's standard output is its own.
            None if !has_command => Place::Stdout,
            None => Place::Stderr,
        };
        Ok(Self { place, has_command })
    }

    /// There will be a report: what a file had is gone now.
    pub fn begin(&self) -> Result<(), String> {
        match &self.place {
            // A device or a pipe has nothing to be taken away.
            Place::File(file) if file.metadata().is_ok_and(|file| file.is_file()) => file
                .set_len(0)
                .map_err(|error| format!("the file of the report cannot be emptied: {error}")),
            _ => Ok(()),
        }
    }

    /// Writes what `print` prints, in one piece. A reader that has seen enough, as `head` has, is an error of the kind
    /// [`ErrorKind::BrokenPipe`] where nothing else is waited for.
    pub fn write(&mut self, print: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
        let mut text = Vec::new();
        print(&mut text)?;
        say::erase();
        let written = match &mut self.place {
            Place::Stdout => {
                let mut out = io::stdout().lock();
                out.write_all(&text).and_then(|()| out.flush())
            }
            Place::Stderr => io::stderr().lock().write_all(&text),
            Place::File(file) => file.write_all(&text),
            Place::Nowhere => Ok(()),
        };
        match written {
            Err(error) if error.kind() == ErrorKind::BrokenPipe && self.has_command => {
                self.place = Place::Nowhere;
                Ok(())
            }
            written => written,
        }
    }

    /// Columns, if it is a terminal.
    pub fn width(&self) -> Option<usize> {
        self.screen().width
    }

    /// Columns and lines, if it is a terminal.
    pub fn screen(&self) -> Screen {
        let size = match &self.place {
            Place::Stdout if io::stdout().is_terminal() => terminal_size::terminal_size_of(io::stdout()),
            Place::Stderr if io::stderr().is_terminal() => terminal_size::terminal_size_of(io::stderr()),
            Place::File(file) if file.is_terminal() => terminal_size::terminal_size_of(file),
            _ => None,
        };
        let known = |n: u16| Some(usize::from(n)).filter(|n| *n > 0);
        Screen {
            width: size.and_then(|(width, _)| known(width.0)),
            height: size.and_then(|(_, height)| known(height.0)),
        }
    }
}
