//! Waiting for whatever happens first: time, a signal, the end of a process.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
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

static ENDING: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// Whether a signal has asked for the end. From then on nobody waits long for a reader.
#[must_use]
pub fn is_ending() -> bool {
    ENDING.load(Ordering::SeqCst)
}

impl Signals {
    /// Takes over the signals that end a run. A second Ctrl-C ends the process at once.
    ///
    /// # Errors
    /// When a handler cannot be installed.
    pub fn install() -> io::Result<Self> {
        let pipe = || nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).map_err(io::Error::from);
        let (interrupt, interrupt_writer) = pipe()?;
        ctrlc::set_handler(move || {
            ENDING.store(true, Ordering::SeqCst);
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
            signal_hook::flag::register(signal as i32, Arc::clone(&ENDING))?;
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
    /// Something that was to be written is, or cannot be.
    Written,
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
    Output,
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

/// Waits for the first thing to happen, at most until `wake`. A signal always comes first, and slow calls, of which there may be more
/// than anybody can read, last.
///
/// # Errors
/// What the kernel says.
pub fn wait(
    signals: &Signals,
    processes: &[Process],
    child: Option<&OwnedFd>,
    outputs: &[BorrowedFd<'_>],
    slow_calls: Option<BorrowedFd<'_>>,
    wake: Option<Instant>,
) -> io::Result<Event> {
    loop {
        let timeout = timeout(wake);
        let is_time = timeout == PollTimeout::ZERO;
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
        for output in outputs {
            fds.push(PollFd::new(*output, PollFlags::POLLIN));
            sources.push(Source::Output);
        }
        if let Some(slow_calls) = slow_calls {
            fds.push(PollFd::new(slow_calls, PollFlags::POLLIN));
            sources.push(Source::SlowCalls);
        }
        match nix::poll::poll(&mut fds, timeout) {
            Ok(0) if is_time => return Ok(Event::Time),
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
            Source::Output => Event::Written,
            Source::SlowCalls if is_time => Event::Time,
            Source::SlowCalls => Event::SlowCalls,
        });
    }
}

/// How long to wait at most, if something is to be done at this time.
fn timeout(wake: Option<Instant>) -> PollTimeout {
    let Some(at) = wake else { return PollTimeout::NONE };
    // Rounded up, so as not to spin through the last millisecond.
    let left = at.saturating_duration_since(Instant::now()) + Duration::from_micros(999);
    PollTimeout::try_from(left.min(Duration::from_secs(3600))).unwrap_or(PollTimeout::MAX)
}

/// Waits until `output` is readable; until this time, or if there is none, for a signal, which stays for [`wait`] to take.
///
/// # Errors
/// What the kernel says.
pub fn wait_for_output(signals: &Signals, output: BorrowedFd<'_>, until: Option<Instant>) -> io::Result<()> {
    let mut fds = vec![PollFd::new(output, PollFlags::POLLIN)];
    if until.is_none() {
        let all = [&signals.interrupt, &signals.terminate]
            .into_iter()
            .chain(&signals.hang_up);
        fds.extend(all.map(|fd| PollFd::new(fd.as_fd(), PollFlags::POLLIN)));
    }
    match nix::poll::poll(&mut fds, timeout(until)) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Takes one signal's byte out of its pipe.
fn swallow(pipe: &OwnedFd) -> io::Result<()> {
    let mut byte = [0];
    File::from(pipe.try_clone()?).read_exact(&mut byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pipe() -> (OwnedFd, OwnedFd) {
        nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).unwrap()
    }

    #[test]
    fn a_signal_comes_first_and_slow_calls_come_last() {
        let (interrupt, to_interrupt) = pipe();
        let (terminate, to_terminate) = pipe();
        let signals = Signals {
            interrupt,
            terminate,
            hang_up: None,
        };
        let ((written, to_written), (slow, to_slow)) = (pipe(), pipe());
        let put = |pipe: &OwnedFd| assert_eq!(nix::unistd::write(pipe, &[1]), Ok(1));
        let (past, future) = (Instant::now(), Instant::now() + Duration::from_secs(3600));
        let next = |wake| wait(&signals, &[], None, &[written.as_fd()], Some(slow.as_fd()), Some(wake)).unwrap();
        assert_eq!(next(past), Event::Time);
        // They are always there.
        put(&to_slow);
        assert_eq!(next(past), Event::Time);
        assert_eq!(next(future), Event::SlowCalls);
        put(&to_written);
        assert_eq!(next(past), Event::Written);
        put(&to_terminate);
        assert_eq!(next(past), Event::Signal(Signal::SIGTERM));
        put(&to_terminate);
        put(&to_interrupt);
        wait_for_output(&signals, slow.as_fd(), None).unwrap();
        assert_eq!(
            [next(future), next(past)],
            [Event::Interrupt, Event::Signal(Signal::SIGTERM)]
        );
        assert_eq!(next(past), Event::Written);
    }
}
