//! The output of reports.
//!
//! A thread of its own writes them, so that a slow reader delays neither signals nor the handling of a process's end.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::args::When;
use crate::cause::Cause;
use crate::document;
use crate::event::{self, Signals};
use crate::say;
use crate::signals;
use crate::view::Screen;
use crate::view::text::counted;

use super::color;

/// How long the reader may take for the rest after a signal has ended the run.
const PATIENCE: Duration = Duration::from_secs(1);
/// Linux's largest page: the capacity of a pipe is counted in pages.
const PAGE: usize = 1 << 16;

/// Standard output, standard error, or a file.
pub struct Output {
    file: Arc<File>,
    is_colored: bool,
    /// The file was named with `-o`, so it may be truncated.
    is_named: bool,
    /// What errors call it.
    called: String,
    /// The file did not exist before, and is removed with this unless there will be a report.
    made: Option<PathBuf>,
    /// It is of no use unless it is complete: a page or a picture, with the path of its file.
    document: Option<PathBuf>,
    /// There is a COMMAND: the run waits for its end even if the reader is gone.
    has_command: bool,
    /// `None`: nothing has been written so far.
    writer: Option<Writer>,
    /// What the writer has not finished, in order, with the length in bytes.
    under_way: VecDeque<(Piece, usize)>,
    /// What was dropped.
    not_written: Piece,
}

/// One unit of output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Piece {
    pub reports: u64,
    pub slow_calls: u64,
    /// Of `--events`.
    pub lines: u64,
}

/// The main thread's side of the writer.
struct Writer {
    texts: mpsc::Sender<Vec<u8>>,
    /// One result for each text.
    results: mpsc::Receiver<io::Result<()>>,
    /// Readable when there is a result.
    written: Arc<EventFd>,
}

impl Output {
    /// Opens the output; a file keeps its contents until [`Self::begin`].
    /// `path`: `None` is standard output, or standard error if there is a COMMAND; `-` is standard output.
    pub fn open(path: Option<&Path>, has_command: bool, color: When) -> Result<Self, Cause> {
        let name = path.filter(|path| path.as_os_str() != "-");
        let (opened, called) = match name {
            Some(path) => (open_file(path), format!("'{}'", path.display())),
            // Standard output belongs to the command.
            None if has_command && path.is_none() => (
                duplicate(io::stderr()).map(|file| (file, false)),
                "the report to stderr".to_owned(),
            ),
            None => (
                duplicate(io::stdout()).map(|file| (file, false)),
                "the report to stdout".to_owned(),
            ),
        };
        let (file, is_new) = opened.map_err(|error| cannot_write(&called, &error))?;
        Ok(Self {
            made: name.filter(|_| is_new).map(Path::to_owned),
            is_colored: color::is_colored(color, file.is_terminal()),
            file: Arc::new(file),
            is_named: name.is_some(),
            called,
            document: None,
            has_command,
            writer: None,
            under_way: VecDeque::new(),
            not_written: Piece::default(),
        })
    }

    /// Opens the output of a page or a picture, which is written at once, and of which no part is left if that fails.
    pub fn open_document(path: &Path) -> Result<Self, Cause> {
        let mut output = Self::open(Some(path), false, When::Never)?;
        output.document = output.is_named.then(|| path.to_owned());
        // It can be made. If the run is killed, there is no empty one.
        if let Some(made) = output.made.take() {
            let _ = fs::remove_file(made);
        }
        Ok(output)
    }

    /// Truncates the file, since there will be a report. A document keeps its contents until it is written.
    pub fn begin(&mut self) -> Result<(), Cause> {
        match self.document {
            Some(_) => Ok(()),
            None => self.truncate().map_err(|error| self.cannot_write(&error)),
        }
    }

    fn truncate(&mut self) -> io::Result<()> {
        self.made = None;
        // A device or a pipe cannot be truncated.
        if self.is_named && self.file.metadata().is_ok_and(|file| file.is_file()) {
            self.file.set_len(0)?;
        }
        Ok(())
    }

    /// Why it cannot be written, with its name: a run may have several outputs.
    pub fn cannot_write(&self, error: &io::Error) -> Cause {
        cannot_write(&self.called, error)
    }

    /// Makes the thread write what `print` prints. [`Self::settle`] returns any error.
    pub fn write(&mut self, piece: Piece, print: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
        let mut text = Vec::new();
        print(&mut text)?;
        if text.is_empty() {
            return Ok(());
        }
        if let Some(path) = &self.document {
            self.file = Arc::new(open_file(path)?.0);
            self.truncate()?;
        }
        say::erase();
        let writer = match &mut self.writer {
            Some(writer) => writer,
            none => none.insert(Writer::start(&self.file, self.has_command)?),
        };
        self.under_way.push_back((piece, text.len()));
        // The thread only ends with the process.
        writer.texts.send(text).map_err(io::Error::other)
    }

    /// Whether something is still to be written, because the reader is slow.
    pub fn is_busy(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// A descriptor to poll while something is still to be written; it is readable when [`Self::settle`] has news.
    pub fn progress(&self) -> Option<BorrowedFd<'_>> {
        let writer = self.writer.as_ref().filter(|_| self.is_busy())?;
        Some(writer.written.as_fd())
    }

    /// Processes the results of the writer. A reader that has closed the pipe, as `head` does, is an error of the kind
    /// [`ErrorKind::BrokenPipe`] unless there is a COMMAND to wait for.
    pub fn settle(&mut self) -> io::Result<()> {
        let Some(writer) = self.writer.as_ref().filter(|_| self.is_busy()) else {
            return Ok(());
        };
        // There may be nothing to read, which is fine.
        let _ = writer.written.read();
        for result in writer.results.try_iter() {
            self.under_way.pop_front();
            if result.is_err() {
                self.discard();
            }
            result?;
        }
        Ok(())
    }

    /// Removes the part of a document that was written.
    fn discard(&self) {
        if let Some(path) = &self.document {
            document::discard(path, &self.file);
        }
    }

    /// Waits until everything is written, but only briefly once a signal has ended the run.
    pub fn finish(&mut self, signals: &Signals) -> io::Result<()> {
        let mut until = None;
        loop {
            self.settle()?;
            let Some(progress) = self.progress() else { return Ok(()) };
            if signals::is_ending() && until.is_none() {
                self.make_room();
                until = Instant::now().checked_add(PATIENCE);
            }
            if until.is_some_and(|until| until <= Instant::now()) {
                self.give_up();
                return Ok(());
            }
            event::wait_for_output(signals, progress, until)?;
        }
    }

    /// Enlarges a pipe to hold the rest, so that its reader finds complete lines. Other files have no such limit, and
    /// an unprivileged process can raise it only to `/proc/sys/fs/pipe-max-size`.
    fn make_room(&self) {
        let bytes: usize = self
            .under_way
            .iter()
            .map(|(_, length)| length.next_multiple_of(PAGE) + PAGE)
            .sum();
        let now = fcntl(&self.file, FcntlArg::F_GETPIPE_SZ).ok();
        if let Some(now) = now
            && let Ok(more) = i32::try_from(bytes)
        {
            // If refused, the reader has the remaining time.
            let _ = fcntl(&self.file, FcntlArg::F_SETPIPE_SZ(now.saturating_add(more)));
        }
    }

    fn give_up(&mut self) {
        self.discard();
        for (piece, _) in self.under_way.drain(..) {
            self.not_written.reports += piece.reports;
            self.not_written.slow_calls += piece.slow_calls;
            self.not_written.lines += piece.lines;
        }
    }

    /// What was dropped, in words.
    pub fn not_written(&self) -> Option<String> {
        let Piece {
            reports,
            slow_calls,
            lines,
        } = self.not_written;
        let parts = [(reports, "report"), (slow_calls, "slow call"), (lines, "line")];
        let parts: Vec<String> = parts
            .into_iter()
            .filter(|(n, _)| *n > 0)
            .map(|(n, what)| counted(n, what))
            .collect();
        let were = if reports + slow_calls + lines == 1 {
            "was"
        } else {
            "were"
        };
        (!parts.is_empty()).then(|| format!("{} {were} not written: the reader was too slow", parts.join(" and ")))
    }

    /// Columns and lines of a terminal, and whether it gets colours.
    pub fn screen(&self) -> Screen {
        let size = (self.file.is_terminal()).then(|| terminal_size::terminal_size_of(&self.file));
        let size = size.flatten();
        let known = |n: u16| Some(usize::from(n)).filter(|n| *n > 0);
        Screen {
            width: size.and_then(|(width, _)| known(width.0)),
            height: size.and_then(|(_, height)| known(height.0)),
            is_colored: self.is_colored,
        }
    }
}

impl Drop for Output {
    /// A run that could not begin leaves no file behind that it has made, unless another process has written to it.
    fn drop(&mut self) {
        if let Some(path) = &self.made
            && self.file.metadata().is_ok_and(|file| file.len() == 0)
        {
            let _ = fs::remove_file(path);
        }
    }
}

fn cannot_write(called: &str, error: &io::Error) -> Cause {
    Cause::of(format_args!("cannot write {called}"), error)
}

/// Opens a file without truncating it. Returns whether it is new as well.
fn open_file(path: &Path) -> io::Result<(File, bool)> {
    match OpenOptions::new().write(true).create_new(true).open(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let file = OpenOptions::new().write(true).create(true).truncate(false).open(path);
            file.map(|file| (file, false))
        }
        opened => opened.map(|file| (file, true)),
    }
}

impl Writer {
    fn start(file: &Arc<File>, has_command: bool) -> io::Result<Self> {
        let (texts, incoming) = mpsc::channel::<Vec<u8>>();
        let (outgoing, results) = mpsc::channel();
        let written = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        let written = Arc::new(written);
        let (file, signal) = (Arc::clone(file), Arc::clone(&written));
        thread::Builder::new().spawn(move || {
            let mut has_reader = true;
            for text in incoming {
                let mut result = if has_reader { write_all(&file, &text) } else { Ok(()) };
                if result
                    .as_ref()
                    .is_err_and(|error| error.kind() == ErrorKind::BrokenPipe)
                    && has_command
                {
                    has_reader = false;
                    result = Ok(());
                }
                if outgoing.send(result).is_err() {
                    return;
                }
                // The counter cannot overflow in practice.
                let _ = signal.write(1);
            }
        })?;
        Ok(Self {
            texts,
            results,
            written,
        })
    }
}

/// Duplicates the descriptor, bypassing the library's locks and buffers: a thread that waits for a lock cannot be
/// interrupted.
fn duplicate(stream: impl AsFd) -> io::Result<File> {
    stream.as_fd().try_clone_to_owned().map(File::from)
}

/// Like [`Write::write_all`], but also waits if another process has made the file non-blocking.
fn write_all(mut file: &File, mut text: &[u8]) -> io::Result<()> {
    while !text.is_empty() {
        match file.write(text) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(n) => text = &text[n..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let mut fds = [PollFd::new(file.as_fd(), PollFlags::POLLOUT)];
                match poll(&mut fds, PollTimeout::NONE) {
                    Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
