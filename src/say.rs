//! Messages on standard error, and the status line that is erased again.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::printable::printable;
use crate::signals;

/// The current status line; empty if there is none.
static STATUS: Mutex<String> = Mutex::new(String::new());
/// Lines that wait until the screen is free again; `None`: lines are printed.
static HELD: Mutex<Option<Vec<String>>> = Mutex::new(None);
/// Lines that are kept while they wait: what follows repeats them.
const MOST_HELD: usize = 100;
/// Width of a terminal that does not report one.
const WIDTH: usize = 80;
/// Indentation of continuation lines.
const INDENT: &str = "  ";

/// Prints a line, wrapped at words on a terminal. The run continues even if standard error is closed or full: its
/// report is what counts.
pub fn line(line: fmt::Arguments<'_>) {
    let mut line = printable(&without_numbers(&line.to_string()));
    if let Some(held) = &mut *HELD.lock().unwrap_or_else(PoisonError::into_inner) {
        if held.len() < MOST_HELD {
            held.push(line);
        }
        return;
    }
    erase();
    if let Some(width) = terminal_width() {
        line = wrapped(&line, width);
    }
    line.push('\n');
    write(&line, Patience::UntilTheEnd);
}

/// Keeps lines until [`release`], because the terminal shows something else.
pub fn hold() {
    *HELD.lock().unwrap_or_else(PoisonError::into_inner) = Some(Vec::new());
}

/// The newest line that waits.
#[must_use]
pub fn last_held() -> Option<String> {
    let held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    held.as_ref().and_then(|held| held.last().cloned())
}

/// Prints what has waited.
pub fn release() {
    let held = HELD.lock().unwrap_or_else(PoisonError::into_inner).take();
    held.into_iter().flatten().for_each(|text| line(format_args!("{text}")));
}

/// Prints lines of text in which unprintable characters are replaced already, and which fit the terminal: unlike other
/// lines they may have colours.
pub fn shown(text: &str) {
    erase();
    write(text, Patience::UntilTheEnd);
}

/// Without the numbers of errors, which the standard library puts behind their words: ` (os error 2)`.
fn without_numbers(line: &str) -> String {
    let mut parts = line.split(" (os error ");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once(')') {
            Some((number, rest)) if number.parse::<i32>().is_ok() => text.push_str(rest),
            _ => text = text + " (os error " + part,
        }
    }
    text
}

/// How long to wait for a slow reader.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Patience {
    /// Until a signal ends the run, and then only briefly.
    UntilTheEnd,
    None,
}

/// Interval, in milliseconds, at which a blocked write checks for a signal.
const STEP: u8 = 100;

/// Returns whether the line was written. A failure cannot be reported anywhere.
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
            // The write itself will report any error.
            Ok(_) | Err(_) => break,
        }
    }
    stderr.write_all(text.as_bytes()).is_ok()
}

/// Width of standard error, if it is a terminal.
fn terminal_width() -> Option<usize> {
    if !io::stderr().is_terminal() {
        return None;
    }
    let size = terminal_size::terminal_size_of(io::stderr());
    let known = size.map(|(width, _)| width.0.into()).filter(|width| *width > 0);
    Some(known.unwrap_or(WIDTH))
}

/// Wraps a line at so many columns, with continuation lines indented. A longer word is left whole, for the terminal to
/// break.
#[must_use]
pub fn wrapped(line: &str, width: usize) -> String {
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

/// Prints a line like `eprintln!`, but does not panic if nothing can be written.
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

/// Shows a status line until something else is printed or it is erased; does nothing if the line could not be erased.
pub fn status(text: &str) {
    if HELD.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
        return;
    }
    let Some(width) = terminal_width().filter(|_| can_erase()) else {
        return;
    };
    // A line that reaches the last column cannot be erased on every terminal.
    let text: String = printable(text).chars().take(width.saturating_sub(1)).collect();
    let mut shown = STATUS.lock().unwrap_or_else(PoisonError::into_inner);
    if *shown != text && write(&format!("\r{text}\x1b[K"), Patience::None) {
        *shown = text;
    }
}

/// Erases the status line. Call it before writing anything that may go to the same terminal.
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

    #[test]
    fn errors_have_words_and_no_numbers() {
        assert_eq!(
            without_numbers("cannot read 'x': No such file or directory (os error 2); y (os error 13)"),
            "cannot read 'x': No such file or directory; y"
        );
        assert_eq!(
            without_numbers("'a (os error b)' (os error"),
            "'a (os error b)' (os error"
        );
    }
}
