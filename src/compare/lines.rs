//! Reads a user's file line by line, with bounded line length, and without blocking forever.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use nix::fcntl::{FcntlArg, OFlag, fcntl};

use crate::view::text::number::decimal_bytes;

/// The longest line that is read. Reports split by hundreds of files are shorter.
const LONGEST: usize = 64 << 20;

/// A file, or a pipe such as `<(COMMAND)`.
pub struct Lines {
    name: String,
    reader: Box<dyn BufRead>,
    line: Vec<u8>,
    longest: usize,
    is_pipe: bool,
    /// The number of the last line read, from 1.
    number: u64,
}

impl Lines {
    /// # Errors
    /// One line: it cannot be opened, or is neither a file nor a pipe.
    pub fn open(path: &Path) -> Result<Self, String> {
        let name = format!("'{}'", path.display());
        let failed = |error: io::Error| format!("cannot read {name}: {error}");
        // Otherwise opening a FIFO would wait for a writer.
        let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
        let file = File::options()
            .read(true)
            .custom_flags(flags)
            .open(path)
            .map_err(failed)?;
        let kind = file.metadata().map_err(failed)?.file_type();
        if !kind.is_file() && !kind.is_fifo() {
            let is = if kind.is_dir() { "a directory" } else { "a device" };
            return Err(format!(
                "{name} is {is}; compare takes two files written by --json or --html, or two recordings"
            ));
        }
        // Reads from a pipe wait for its writer; without a writer they return end of file.
        fcntl(&file, FcntlArg::F_SETFL(OFlag::empty())).map_err(|error| failed(error.into()))?;
        Ok(Self {
            name,
            reader: Box::new(BufReader::with_capacity(1 << 16, file)),
            line: Vec::new(),
            longest: LONGEST,
            is_pipe: kind.is_fifo(),
            number: 0,
        })
    }

    /// Reports that were made of what `path` has.
    pub fn of(path: &Path, reports: Vec<u8>) -> Self {
        Self {
            name: format!("'{}'", path.display()),
            reader: Box::new(Cursor::new(reports)),
            line: Vec::new(),
            longest: LONGEST,
            is_pipe: false,
            number: 0,
        }
    }

    /// The next line, without its line feed; `None` at the end.
    ///
    /// # Errors
    /// One line: it cannot be read, or is too long.
    pub fn next(&mut self) -> Result<Option<&[u8]>, String> {
        self.line.clear();
        let mut limited = (&mut self.reader).take(self.longest as u64 + 1);
        let read = limited.read_until(b'\n', &mut self.line);
        match read {
            Err(error) => return Err(format!("cannot read {}: {error}", self.name)),
            Ok(0) => return Ok(None),
            Ok(_) => self.number += 1,
        }
        if self.line.ends_with(b"\n") {
            self.line.pop();
        }
        if self.line.len() > self.longest {
            let (location, longest) = (self.location(), decimal_bytes(self.longest as u64));
            return Err(format!("{location} is longer than {longest}, which no report is"));
        }
        Ok(Some(&self.line))
    }

    /// Names the last line read, for an error.
    pub fn location(&self) -> String {
        format!("line {} of {}", self.number, self.name)
    }

    /// The error for a file without reports.
    pub fn nothing(&self) -> String {
        match self.number {
            0 if self.is_pipe => format!("there is no report in {}: no process wrote to it", self.name),
            0 => format!("there is no report in {}: it is empty", self.name),
            _ => format!("there is no report in {}", self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn lines_are_bounded() {
        let path = std::env::temp_dir().join(format!("iosb-lines-{}", std::process::id()));
        fs::write(&path, "1234\n\n12345\n123456\n1").unwrap();
        let mut lines = Lines::open(&path).unwrap();
        lines.longest = 5;
        for expected in ["1234", "", "12345"] {
            assert_eq!(lines.next().unwrap(), Some(expected.as_bytes()));
        }
        let error = lines.next().unwrap_err();
        assert_eq!(
            error,
            format!("line 4 of '{}' is longer than 5 B, which no report is", path.display())
        );
        let mut lines = Lines::open(&path).unwrap();
        let mut read = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            read.push(line.len());
        }
        assert_eq!(read, [4, 0, 5, 6, 1]);
        fs::remove_file(&path).unwrap();
    }
}
