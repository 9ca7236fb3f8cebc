//! What is printed on standard error, and the one line there that is erased again.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::printable::printable;
use crate::signals;

/// The text of the line that will be erased; empty where there is none.
static STATUS: Mutex<String> = Mutex::new(String::new());
/// Columns of a terminal that does not say how many it has.
const WIDTH: usize = 80;
/// Before what a line goes on with on the next one.
const INDENT: &str = "  ";

/// Prints a line. A run whose standard error nobody reads any more, or which has no room left, goes on: its report is what counts.
/// On a terminal it is wrapped at words.
pub fn line(line: fmt::Arguments<'_>) {
    erase();
    let mut line = printable(&line.to_string());
    if let Some(width) = terminal_width() {
        line = wrapped(&line, width);
    }
    line.push('\n');
    write(&line, Patience::UntilTheEnd);
}

/// How long a reader who has fallen behind is waited for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Patience {
    /// Until a signal asks for the end of the run, and hardly longer.
    UntilTheEnd,
    None,
}

/// While it has room for nothing, a signal may come: so it is waited for in steps of so many milliseconds.
const STEP: u8 = 100;

/// Says whether it was written. If not, nobody is left to be informed of it.
fn write(text: &str, patience: Patience) -> bool {
    let mut stderr = io::stderr();
    let step = match patience {
        Patience::UntilTheEnd => PollTimeout::from(STEP),
        Patience::None => PollTimeout::ZERO,
    };
    loop {
        let mut fds = [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)];
        match poll(&mut fds, step) {
            Ok(0) if patience == Patience::None || signals::is_ending() => return false,
            Ok(0) | Err(Errno::EINTR) => {}
            // What is wrong with it, the write finds out.
            Ok(_) | Err(_) => break,
        }
    }
    stderr.write_all(text.as_bytes()).is_ok()
}

/// Columns of the terminal that standard error is, if it is one.
fn terminal_width() -> Option<usize> {
    if !io::stderr().is_terminal() {
        return None;
    }
    let size = terminal_size::terminal_size_of(io::stderr());
    let known = size.map(|(width, _)| width.0.into()).filter(|width| *width > 0);
    Some(known.unwrap_or(WIDTH))
}

/// A line in lines of so many columns, those that follow the first indented. A word that is longer than that is left whole, for the
/// terminal to break.
fn wrapped(line: &str, width: usize) -> String {
    let mut text = String::new();
    let (mut column, mut is_new) = (0, true);
    for word in line.split_inclusive(' ') {
        let length = word.trim_end().chars().count();
        if !is_new && column + length > width {
            text.truncate(text.trim_end().len());
            text.push('\n');
            text.push_str(INDENT);
            column = INDENT.len();
        }
        text.push_str(word);
        column += word.chars().count();
        is_new = false;
    }
    text
}

/// [`line`] as `eprintln!` would, which panics where nothing can be written.
#[macro_export]
macro_rules! say {
    ($($what:tt)*) => {
        $crate::say::line(format_args!($($what)*))
    };
}

/// Whether standard error is a terminal that can erase a line.
#[must_use]
pub fn can_erase() -> bool {
    io::stderr().is_terminal() && std::env::var_os("TERM").is_some_and(|term| term != "dumb")
}

/// Shows a line until something else is printed, or it is erased; nothing where it could not be.
pub fn status(text: &str) {
    let Some(width) = terminal_width().filter(|_| can_erase()) else {
        return;
    };
    // A line that goes to the last column could not be erased on every terminal.
    let text: String = printable(text).chars().take(width.saturating_sub(1)).collect();
    let mut shown = STATUS.lock().unwrap_or_else(PoisonError::into_inner);
    if *shown != text && write(&format!("\r{text}\x1b[K"), Patience::None) {
        *shown = text;
    }
}

/// Erases that line. Call it before anything is written that may come to the same terminal.
pub fn erase() {
    let mut shown = STATUS.lock().unwrap_or_else(PoisonError::into_inner);
    if !shown.is_empty() {
        write("\r\x1b[K", Patience::UntilTheEnd);
        shown.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_wrap_at_words() {
        assert_eq!(wrapped("to the edge", 11), "to the edge");
        assert_eq!(wrapped("to the edge and on", 11), "to the edge\n  and on");
        assert_eq!(wrapped("to the edge  and", 12), "to the edge\n  and");
        assert_eq!(wrapped("a /long/path and on", 8), "a\n  /long/path\n  and on");
        assert_eq!(wrapped("ä ö ü", 3), "ä ö\n  ü");
        assert_eq!(wrapped("", 3), "");
    }
}
