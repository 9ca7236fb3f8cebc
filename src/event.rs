//! Waiting for whatever happens first: time, a signal, the end of a process.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::signal::Signal;

use crate::kernel::privileges;
use crate::leave::leave;
use crate::process::Process;

const SECOND_CTRL_C: u8 = 130;

/// Signals as bytes in pipes, so that one poll waits for all that can happen.
pub struct Signals {
    interrupt: OwnedFd,
    terminate: OwnedFd,
    /// `None`: it is ignored, and stays so.
    hang_up: Option<OwnedFd>,
}

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

impl Signals {
    /// Takes over the signals that end a run. A second Ctrl-C ends the process at once.
    ///
    /// # Errors
    /// When a handler cannot be installed.
    pub fn install() -> io::Result<Self> {
        let pipe = || nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).map_err(io::Error::from);
        let (interrupt, interrupt_writer) = pipe()?;
        ctrlc::set_handler(move || {
            if INTERRUPTED.swap(true, Ordering::SeqCst) {
                leave(SECOND_CTRL_C);
            }
            // The reader is there for as long as the process is.
            let _ = nix::unistd::write(&interrupt_writer, &[1]);
        })
        .map_err(|error| match error {
            ctrlc::Error::System(error) => privileges::of_a_thread(error),
            other => io::Error::other(other),
        })?;
        let watched = |signal: Signal| -> io::Result<OwnedFd> {
            let (reader, writer) = pipe()?;
            signal_hook::low_level::pipe::register(signal as i32, writer)?;
            Ok(reader)
        };
        Ok(Self {
            interrupt,
            terminate: watched(Signal::SIGTERM)?,
            hang_up: if hang_ups_are_ignored() {
                None
            } else {
                Some(watched(Signal::SIGHUP)?)
            },
        })
    }
}

/// Whether whoever started this process wants it to outlive its terminal, as `nohup` does.
#[must_use]
pub fn hang_ups_are_ignored() -> bool {
    // SAFETY: all bytes zero are a valid structure, which is only filled in, and that is a system call on our own memory.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGHUP, std::ptr::null(), &raw mut action) == 0 && action.sa_sigaction == libc::SIG_IGN
    }
}

/// What woke the wait.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    Time,
    Interrupt,
    Signal(Signal),
    /// The process of this place in the list has ended.
    ProcessEnded(usize),
    ChildEnded,
    /// Slow calls have ended.
    SlowCalls,
}

/// Whose descriptor it is that the wait looks at.
enum Source<'a> {
    Interrupt,
    Signal(&'a OwnedFd, Signal),
    Child,
    /// Of this place in the list.
    Process(usize),
    SlowCalls,
}

/// Readable when the command has ended.
///
/// # Errors
/// What the kernel says.
pub fn pidfd_of(child: &Child) -> io::Result<OwnedFd> {
    use std::os::fd::FromRawFd;
    // SAFETY: plain numbers; the child is not reaped before `wait`.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, child.id(), 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Waits for the first thing to happen, at most until `wake`.
///
/// # Errors
/// What the kernel says.
pub fn wait(
    signals: &Signals,
    processes: &[Process],
    child: Option<&OwnedFd>,
    slow_calls: Option<BorrowedFd<'_>>,
    wake: Option<Instant>,
) -> io::Result<Event> {
    loop {
        let timeout = match wake {
            None => PollTimeout::NONE,
            Some(at) => {
                let left = at.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Ok(Event::Time);
                }
                // Rounded up, so as not to spin through the last millisecond.
                let left = (left + Duration::from_micros(999)).min(Duration::from_secs(3600));
                PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
            }
        };
        fn watched(fd: &OwnedFd) -> PollFd<'_> {
            PollFd::new(fd.as_fd(), PollFlags::POLLIN)
        }
        let mut fds = vec![watched(&signals.interrupt), watched(&signals.terminate)];
        let mut sources = vec![Source::Interrupt, Source::Signal(&signals.terminate, Signal::SIGTERM)];
        if let Some(hang_up) = &signals.hang_up {
            fds.push(watched(hang_up));
            sources.push(Source::Signal(hang_up, Signal::SIGHUP));
        }
        if let Some(child) = child {
            fds.push(watched(child));
            sources.push(Source::Child);
        }
        for (index, process) in processes.iter().enumerate() {
            fds.push(watched(&process.pidfd));
            sources.push(Source::Process(index));
        }
        if let Some(slow_calls) = slow_calls {
            fds.push(PollFd::new(slow_calls, PollFlags::POLLIN));
            sources.push(Source::SlowCalls);
        }
        match nix::poll::poll(&mut fds, timeout) {
            Ok(0) | Err(nix::errno::Errno::EINTR) => continue,
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        let Some(first) = fds.iter().position(|fd| fd.any() == Some(true)) else {
            continue;
        };
        return Ok(match sources[first] {
            Source::Interrupt => {
                swallow(&signals.interrupt)?;
                Event::Interrupt
            }
            Source::Signal(pipe, signal) => {
                swallow(pipe)?;
                Event::Signal(signal)
            }
            Source::Child => Event::ChildEnded,
            Source::Process(index) => Event::ProcessEnded(index),
            Source::SlowCalls => Event::SlowCalls,
        });
    }
}

/// Takes one signal's byte out of its pipe.
fn swallow(pipe: &OwnedFd) -> io::Result<()> {
    let mut byte = [0];
    File::from(pipe.try_clone()?).read_exact(&mut byte)
}
