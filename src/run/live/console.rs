//! The terminal of the live view: raw mode and the alternate screen, keys, and frames. What a terminal does not take at once, a
//! thread of its own writes. However the process ends, except by SIGKILL, the terminal is as before.

use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

use nix::fcntl::{OFlag, open};
use nix::sys::signal::{Signal, raise};
use nix::sys::stat::Mode;
use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};
use nix::unistd::{getpgrp, tcgetpgrp};
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;

use crate::args::When;
use crate::cause::Cause;
use crate::leave;
use crate::run::color;
use crate::run::output::{Output, Piece};
use crate::say;
use crate::signals;
use crate::view::live::key::{Decoder, Key};
use crate::view::live::{Look, Model, draw, frame};

/// The shortest time between two frames.
const FRAME: Duration = Duration::from_millis(100);
/// How long the rest of a key may take after ESC.
const ESCAPE: Duration = Duration::from_millis(50);
/// How often a process in the background looks whether the terminal is its own: not every shell sends SIGCONT at `fg`.
const BACKGROUND: Duration = Duration::from_secs(1);
/// The alternate screen, without a cursor; and back.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l";
/// An empty screen.
const CLEAR: &str = "\x1b[0m\x1b[2J";
const LEAVE: &[u8] = b"\x1b[0m\x1b[2J\x1b[?25h\x1b[?1049l";

/// The settings of the terminal before the view, while it is shown.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// Shows a view.
pub struct Console {
    /// The terminal, opened again so that only writing here does not wait; `None`: it cannot be.
    at_once: Option<OwnedFd>,
    /// For what the terminal has no room.
    output: Output,
    /// What the terminal shows; `None`: not known.
    shown: Option<Buffer>,
    look: Look,
    decoder: Decoder,
    /// When an ESC becomes a key.
    escape_at: Option<Instant>,
    /// Something has changed since the last frame.
    is_dirty: bool,
    drawn: Option<Instant>,
    /// When it last tried to take over the terminal.
    entered: Instant,
    /// The settings of the terminal before the view, if the process was stopped while it was shown, and is in the background.
    stopped: Option<Termios>,
    /// What was written to files: the last screen does not have these messages.
    written: Vec<String>,
}

/// Checks that there is a terminal for the view.
///
/// # Errors
/// If there is none, in one line.
pub fn check_terminal() -> Result<(), Cause> {
    let is_terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    let is_able = std::env::var_os("TERM").is_some_and(|term| !term.is_empty() && term != "dumb");
    match (is_terminal, is_able) {
        (true, true) => Ok(()),
        (false, _) => Err(
            "--live needs a terminal; for output to a file or a pipe, give an INTERVAL instead"
                .to_owned()
                .into(),
        ),
        (true, false) => Err(
            "--live needs a terminal that can move its cursor (TERM is dumb or not set); give an INTERVAL instead"
                .to_owned()
                .into(),
        ),
    }
}

/// Whether the locale's text is in UTF-8.
fn is_utf8() -> bool {
    let variables = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter();
    let mut set = variables.filter_map(|name| std::env::var_os(name).filter(|value| !value.is_empty()));
    let locale = set.next().unwrap_or_default().to_string_lossy().to_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

impl Console {
    /// Takes over the terminal.
    ///
    /// # Errors
    /// If it cannot, in one line.
    pub fn open(color: When) -> Result<Self, Cause> {
        let output = Output::open(None, false, color)?;
        static HOOKS: Once = Once::new();
        HOOKS.call_once(|| {
            leave::before(restore);
            let then = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                restore();
                then(info);
            }));
        });
        // SAFETY: it tries to take a lock, and makes system calls.
        unsafe { signals::before_ends(restore) }.map_err(|error| Cause::of("cannot handle signals", &error))?;
        let mut console = Self {
            at_once: open_again(),
            output,
            shown: None,
            look: Look {
                is_utf8: is_utf8(),
                is_colored: color::is_colored(color, true),
            },
            decoder: Decoder::default(),
            escape_at: None,
            is_dirty: true,
            drawn: None,
            entered: Instant::now(),
            stopped: None,
            written: Vec::new(),
        };
        console
            .enter()
            .map_err(|error| Cause::of("cannot use the terminal", &error))?;
        say::hold();
        Ok(console)
    }

    /// Takes over the terminal, unless the process is in the background.
    fn enter(&mut self) -> io::Result<()> {
        self.entered = Instant::now();
        let stdin = io::stdin();
        // A terminal that controls no session has no foreground.
        if tcgetpgrp(&stdin).is_ok_and(|foreground| foreground != getpgrp()) {
            return self.hide();
        }
        let mut before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner);
        let mut settings = match before.take().or_else(|| self.stopped.take()) {
            Some(settings) => settings,
            None => tcgetattr(&stdin)?,
        };
        *before = Some(settings.clone());
        cfmakeraw(&mut settings);
        tcsetattr(&stdin, SetArg::TCSADRAIN, &settings)?;
        drop(before);
        // At once, so that it cannot come after what gives the terminal back.
        nix::unistd::write(io::stdout().as_fd(), ENTER)?;
        self.redraw();
        Ok(())
    }

    /// Leaves the screen to others if the process was stopped while it was shown (SIGSTOP cannot be caught), and goes on in the
    /// background. There it cannot change the settings of the terminal; most shells have their own.
    fn hide(&mut self) -> io::Result<()> {
        let Some(before) = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take() else {
            return Ok(());
        };
        self.stopped = Some(before);
        self.wait();
        nix::unistd::write(io::stdout().as_fd(), LEAVE)?;
        Ok(())
    }

    /// Readable when keys were pressed. `None`: in the background, where keys are for others, and reading them would stop
    /// the process.
    pub fn keys_fd(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: standard input stays open until the process ends.
        is_shown().then(|| unsafe { BorrowedFd::borrow_raw(0) })
    }

    /// A descriptor to poll while a frame waits for the one that is being written.
    pub fn progress(&self) -> Option<BorrowedFd<'_>> {
        self.output.progress().filter(|_| self.is_dirty)
    }

    /// The keys that were pressed; `None`: the terminal is closed.
    pub fn keys(&mut self) -> Option<Vec<Key>> {
        let mut bytes = [0; 256];
        let keys = match nix::unistd::read(io::stdin().as_fd(), &mut bytes) {
            Ok(0) => return None,
            Ok(n) => self.decoder.push(bytes.get(..n).unwrap_or_default()),
            Err(nix::errno::Errno::EINTR | nix::errno::Errno::EAGAIN) => Vec::new(),
            Err(_) => return None,
        };
        self.escape_at = self.decoder.is_waiting().then(|| Instant::now() + ESCAPE);
        Some(keys)
    }

    /// The key of an ESC that nothing followed in time.
    pub fn late_keys(&mut self) -> Vec<Key> {
        if self.escape_at.is_none_or(|at| Instant::now() < at) {
            return Vec::new();
        }
        self.escape_at = None;
        self.decoder.flush()
    }

    /// Something has changed.
    pub fn touch(&mut self) {
        self.is_dirty = true;
    }

    /// When something is to be done even if nothing happens.
    pub fn wake(&self) -> Option<Instant> {
        if !is_shown() {
            return Some(self.entered + BACKGROUND);
        }
        let frame = (self.is_dirty && !self.output.is_busy()).then(|| self.next_frame());
        [frame, self.escape_at].into_iter().flatten().min()
    }

    fn next_frame(&self) -> Instant {
        let now = Instant::now();
        self.drawn.map_or(now, |drawn| (drawn + FRAME).max(now))
    }

    /// Draws if something has changed, the last frame was written, and enough time has passed.
    ///
    /// # Errors
    /// If the terminal is closed.
    pub fn show(&mut self, model: &Model) -> io::Result<()> {
        self.output.settle()?;
        if !is_shown() && self.entered.elapsed() >= BACKGROUND {
            self.enter()?;
        }
        if !is_shown() || !self.is_dirty || self.output.is_busy() || self.next_frame() > Instant::now() {
            return Ok(());
        }
        let size = terminal_size::terminal_size_of(io::stdout());
        let (width, height) = size.map_or((80, 24), |(width, height)| (width.0, height.0));
        let area = Rect::new(0, 0, width, height);
        let mut text = String::new();
        let before = self.shown.take().filter(|shown| shown.area == area).unwrap_or_else(|| {
            text.push_str(CLEAR);
            Buffer::empty(area)
        });
        let mut after = Buffer::empty(area);
        draw(model, self.look, area, &mut after);
        frame::change(&before, &after, &mut text);
        self.shown = Some(after);
        self.is_dirty = false;
        self.drawn = Some(Instant::now());
        // Nothing of an earlier frame is left. An error is that of the rest.
        let terminal = self.at_once.as_ref();
        let taken = terminal.and_then(|terminal| nix::unistd::write(terminal, text.as_bytes()).ok());
        let rest = &text.as_bytes()[taken.unwrap_or(0)..];
        self.output.write(Piece::default(), |out| out.write_all(rest))
    }

    /// Keeps a line that is printed after the view.
    pub fn print_at_end(&mut self, line: String) {
        self.written.push(line);
    }

    /// Draws everything again at the next frame.
    pub fn redraw(&mut self) {
        self.shown = None;
        self.is_dirty = true;
    }

    /// Gives the terminal back, and stops the process until it is continued.
    ///
    /// # Errors
    /// If the terminal cannot be taken over again.
    pub fn suspend(&mut self) -> io::Result<()> {
        self.wait();
        restore();
        raise(Signal::SIGSTOP)?;
        self.enter()
    }

    /// Handles a signal that concerns the terminal. Returns whether it was one.
    ///
    /// # Errors
    /// If the terminal cannot be taken over again.
    pub fn signal(&mut self, signal: Signal) -> io::Result<bool> {
        match signal {
            Signal::SIGWINCH => self.is_dirty = true,
            Signal::SIGCONT => self.enter()?,
            Signal::SIGTSTP => self.suspend()?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Waits for the last frame, but not for long.
    fn wait(&mut self) {
        let until = Instant::now() + Duration::from_secs(1);
        while self.output.settle().is_ok() && self.output.is_busy() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Gives the terminal back, and leaves the last screen on it.
    pub fn close(mut self, model: &Model) {
        self.wait();
        restore();
        let area = self.shown.as_ref().map_or(Rect::new(0, 0, 80, 24), |shown| shown.area);
        let mut buffer = Buffer::empty(area);
        let without_color = Look {
            is_colored: false,
            ..self.look
        };
        draw(model, without_color, area, &mut buffer);
        let cells: Vec<&str> = buffer.content().iter().map(|cell| cell.symbol()).collect();
        // Without the line of keys.
        let lines = cells.chunks(usize::from(area.width).max(1)).map(<[&str]>::concat);
        let lines: Vec<String> = lines.take(usize::from(area.height).saturating_sub(1)).collect();
        let text = lines.iter().map(|line| line.trim_end()).collect::<Vec<_>>().join("\n");
        let text = format!("{}\n", text.trim_end());
        // A closed terminal has no reader.
        let _ = io::stdout().write_all(text.as_bytes());
        say::release();
        self.written.iter().for_each(|line| say!("{line}"));
    }
}

/// Opens the terminal of standard output without waiting. It is a file of its own: programs that have the same one expect to wait.
fn open_again() -> Option<OwnedFd> {
    let flags = OFlag::O_WRONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    open("/proc/self/fd/1", flags, Mode::empty()).ok()
}

/// Whether the terminal shows the view. It does not while the process is in the background.
fn is_shown() -> bool {
    BEFORE.lock().unwrap_or_else(PoisonError::into_inner).is_some()
}

/// Gives the terminal back, with the settings from before. May be called at any time, from any thread and signal handler.
fn restore() {
    let mut before = match BEFORE.try_lock() {
        Ok(before) => before,
        Err(std::sync::TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        // The thread that holds it is changing the settings right now.
        Err(std::sync::TryLockError::WouldBlock) => return,
    };
    if let Some(settings) = before.take() {
        let stdout = io::stdout();
        let _ = nix::unistd::write(stdout.as_fd(), LEAVE);
        let _ = tcsetattr(io::stdin().as_fd(), SetArg::TCSADRAIN, &settings);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::{FromRawFd, OwnedFd};
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use super::*;

    /// Run by the test below, on a terminal of its own.
    #[test]
    #[ignore = "panics on purpose"]
    fn panics_on_its_terminal() {
        let _console = Console::open(When::Never).map_err(|cause| cause.line).unwrap();
        panic!("on purpose");
    }

    #[test]
    fn a_panic_gives_the_terminal_back() {
        let (mut master, mut slave) = (-1, -1);
        let none = std::ptr::null_mut();
        // SAFETY: both descriptors are written to, and no name, settings or size are passed.
        let opened = unsafe {
            libc::openpty(
                &raw mut master,
                &raw mut slave,
                none,
                std::ptr::null(),
                std::ptr::null(),
            )
        };
        assert_eq!(opened, 0);
        // SAFETY: the descriptors are new and owned by us.
        let (mut master, slave) = unsafe { (File::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) };
        let before = tcgetattr(&slave).unwrap();
        let mut test = Command::new(std::env::current_exe().unwrap());
        test.args([
            "--exact",
            "run::live::console::tests::panics_on_its_terminal",
            "--ignored",
            "--nocapture",
        ]);
        let end = || slave.try_clone().unwrap();
        test.stdin(end()).stdout(end()).stderr(end()).env("TERM", "xterm");
        // SAFETY: only system calls between fork and exec.
        unsafe {
            test.pre_exec(|| {
                libc::setsid();
                libc::ioctl(0, libc::TIOCSCTTY, 0);
                Ok(())
            });
        }
        let mut child = test.spawn().unwrap();
        // It keeps the terminal open.
        drop(test);
        let reader = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            // Reading a terminal without programs fails with EIO.
            let _ = master.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        });
        assert!(!child.wait().unwrap().success());
        assert_eq!(tcgetattr(&slave).unwrap(), before);
        drop(slave);
        let text = reader.join().unwrap();
        let at = |part: &[u8]| {
            text.find(std::str::from_utf8(part).unwrap())
                .unwrap_or_else(|| panic!("{text:?}"))
        };
        assert!(at(ENTER) < at(LEAVE) && at(LEAVE) < at(b"on purpose"), "{text:?}");
    }
}
