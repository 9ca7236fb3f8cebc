//! What is printed on standard error, and the one line there that is erased again.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::event;
use crate::printable::printable;

/// The text of the line that will be erased; empty where there is none.
static STATUS: Mutex<String> = Mutex::new(String::new());
/// Columns of a terminal that does not say how many it has.
const WIDTH: usize = 80;

/// Prints a line. A run whose standard error nobody reads any more, or which has no room left, goes on: its report is what counts.
pub fn line(line: fmt::Arguments<'_>) {
    erase();
    let line = printable(&line.to_string()) + "\n";
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
            Ok(0) if patience == Patience::None || event::is_ending() => return false,
            Ok(0) | Err(Errno::EINTR) => {}
            // What is wrong with it, the write finds out.
            Ok(_) | Err(_) => break,
        }
    }
    stderr.write_all(text.as_bytes()).is_ok()
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
    if !can_erase() {
        return;
    }
    let size = terminal_size::terminal_size_of(io::stderr());
    let width = size.map_or(WIDTH, |(width, _)| width.0.into());
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
