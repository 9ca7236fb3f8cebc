//! Waits for the first of several events: a time, a signal, the end of a process.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::Child;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::signal::Signal;

use crate::process::Process;
pub use crate::signals::Signals;
use crate::signals::swallow;

/// What ended the wait.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    Time,
    Interrupt,
    Signal(Signal),
    /// The process at this index has ended.
    ProcessEnded(usize),
    ChildEnded,
    /// A pending write has finished or failed.
    Written,
    /// A client wants metrics.
    Metrics,
    /// Keys were pressed.
    Keys,
    /// Slow calls have ended.
    SlowCalls,
}

/// Whose descriptor is polled.
enum Source<'a> {
    Signal(Signal, &'a OwnedFd),
    Child,
    /// The process at this index.
    Process(usize),
    Other(Other),
    SlowCalls,
}

/// What else a descriptor may be of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Other {
    /// A pending write.
    Written,
    Metrics,
    /// A terminal.
    Keys,
}

/// A descriptor that becomes readable when the command has ended.
///
/// # Errors
/// The kernel's error.
pub fn pidfd_of(child: &Child) -> io::Result<OwnedFd> {
    use std::os::fd::FromRawFd;
    // SAFETY: integers; the child is not reaped before `wait`.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, child.id(), 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Waits for the first event, at most until `wake`. Signals have priority; slow calls, which may arrive faster than
/// they can be read, come last.
///
/// # Errors
/// The kernel's error.
pub fn wait(
    signals: &Signals,
    processes: &[Process],
    child: Option<&OwnedFd>,
    others: &[(Other, BorrowedFd<'_>)],
    slow_calls: Option<BorrowedFd<'_>>,
    wake: Option<Instant>,
) -> io::Result<Event> {
    loop {
        let timeout = timeout(wake);
        let is_time = timeout == PollTimeout::ZERO;
        let is_over = || wake.is_some_and(|at| Instant::now() >= at);
        fn watched(fd: &OwnedFd) -> PollFd<'_> {
            PollFd::new(fd.as_fd(), PollFlags::POLLIN)
        }
        let (mut sources, mut fds): (Vec<_>, Vec<_>) = signals
            .pipes()
            .map(|(signal, pipe)| (Source::Signal(signal, pipe), watched(pipe)))
            .unzip();
        if let Some(child) = child {
            fds.push(watched(child));
            sources.push(Source::Child);
        }
        for (index, process) in processes.iter().enumerate() {
            fds.push(watched(&process.pidfd));
            sources.push(Source::Process(index));
        }
        for (other, fd) in others {
            fds.push(PollFd::new(*fd, PollFlags::POLLIN));
            sources.push(Source::Other(*other));
        }
        if let Some(slow_calls) = slow_calls {
            fds.push(PollFd::new(slow_calls, PollFlags::POLLIN));
            sources.push(Source::SlowCalls);
        }
        match nix::poll::poll(&mut fds, timeout) {
            Ok(0) if is_over() => return Ok(Event::Time),
            Ok(0) | Err(nix::errno::Errno::EINTR) => continue,
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        let Some(first) = fds.iter().position(|fd| fd.any() == Some(true)) else {
            continue;
        };
        return Ok(match sources[first] {
            Source::Signal(signal, pipe) => {
                swallow(pipe)?;
                match signal {
                    Signal::SIGINT => Event::Interrupt,
                    other => Event::Signal(other),
                }
            }
            Source::Child => Event::ChildEnded,
            Source::Process(index) => Event::ProcessEnded(index),
            Source::Other(Other::Written) => Event::Written,
            Source::Other(Other::Metrics) => Event::Metrics,
            Source::Other(Other::Keys) => Event::Keys,
            Source::SlowCalls if is_time => Event::Time,
            Source::SlowCalls => Event::SlowCalls,
        });
    }
}

/// The longest time to wait, if something is due at `wake`.
fn timeout(wake: Option<Instant>) -> PollTimeout {
    let Some(at) = wake else { return PollTimeout::NONE };
    // Rounded up, so as not to spin through the last millisecond.
    let left = at.saturating_duration_since(Instant::now()) + Duration::from_micros(999);
    PollTimeout::try_from(left.min(Duration::from_secs(3600))).unwrap_or(PollTimeout::MAX)
}

/// Waits until `output` is readable, until a time or, without one, until a signal, which stays for [`wait`] to take.
///
/// # Errors
/// The kernel's error.
pub fn wait_for_output(signals: &Signals, output: BorrowedFd<'_>, until: Option<Instant>) -> io::Result<()> {
    let mut fds = vec![PollFd::new(output, PollFlags::POLLIN)];
    if until.is_none() {
        fds.extend(
            signals
                .pipes()
                .map(|(_, pipe)| PollFd::new(pipe.as_fd(), PollFlags::POLLIN)),
        );
    }
    match nix::poll::poll(&mut fds, timeout(until)) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
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
        let signals = Signals::of(interrupt, terminate);
        let ((written, to_written), (slow, to_slow)) = (pipe(), pipe());
        let put = |pipe: &OwnedFd| assert_eq!(nix::unistd::write(pipe, &[1]), Ok(1));
        let (past, future) = (Instant::now(), Instant::now() + Duration::from_secs(3600));
        let next = |wake| {
            wait(
                &signals,
                &[],
                None,
                &[(Other::Written, written.as_fd())],
                Some(slow.as_fd()),
                Some(wake),
            )
            .unwrap()
        };
        assert_eq!(next(past), Event::Time);
        // These are always included.
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
