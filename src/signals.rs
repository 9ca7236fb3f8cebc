//! Signal handling of this process and of those that it forks. No other code changes it.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use nix::sys::signal::{SigHandler, SigSet, Signal, signal};
use signal_hook::low_level::emulate_default_handler;

use crate::kernel::privileges;
use crate::leave::leave;

const SECOND_CTRL_C: u8 = 130;

/// Signals that end a process by default and that may be sent to a whole process group or terminal.
const ENDING: [Signal; 4] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];

/// Signals that end a process by default, and of which no run handles more than SIGUSR1.
const UNHANDLED: [Signal; 9] = [
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
    Signal::SIGVTALRM,
    Signal::SIGPROF,
    Signal::SIGXCPU,
    Signal::SIGXFSZ,
    Signal::SIGABRT,
];

/// The signals that a run handles, as bytes in pipes, so that one poll waits for every event.
pub struct Signals {
    interrupt: OwnedFd,
    terminate: OwnedFd,
    /// `None`: the signal is ignored, and stays so.
    hang_up: Option<OwnedFd>,
    /// SIGUSR1, if the run handles it.
    user: Option<OwnedFd>,
    /// Signals that concern the terminal, if they are watched.
    of_terminal: Vec<(Signal, OwnedFd)>,
}

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

static IS_ENDING: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// Whether a signal has requested the end of the run. From then on no write waits long for its reader.
#[must_use]
pub fn is_ending() -> bool {
    IS_ENDING.load(Ordering::SeqCst)
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
            IS_ENDING.store(true, Ordering::SeqCst);
            if INTERRUPTED.swap(true, Ordering::SeqCst) {
                leave(SECOND_CTRL_C);
            }
            // The pipe's reader exists as long as the process.
            let _ = nix::unistd::write(&interrupt_writer, &[1]);
        })
        .map_err(|error| match error {
            ctrlc::Error::System(error) => privileges::of_a_thread(error),
            other => io::Error::other(other),
        })?;
        // ctrlc does not distinguish these signals.
        let watched = |signal: Signal| -> io::Result<OwnedFd> {
            let (reader, writer) = pipe()?;
            signal_hook::flag::register(signal as i32, Arc::clone(&IS_ENDING))?;
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
            user: None,
            of_terminal: Vec::new(),
        })
    }

    /// Takes over SIGUSR1, which does not end a run.
    ///
    /// # Errors
    /// When a handler cannot be installed.
    pub fn take_user(&mut self) -> io::Result<()> {
        let (reader, writer) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).map_err(io::Error::from)?;
        signal_hook::low_level::pipe::register(Signal::SIGUSR1 as i32, writer)?;
        self.user = Some(reader);
        Ok(())
    }

    /// Also watches the signals that concern a terminal that is used as a whole: its size changes, and the process is
    /// to stop (Ctrl-Z) or is continued.
    ///
    /// # Errors
    /// When a handler cannot be installed.
    pub fn watch_terminal(&mut self) -> io::Result<()> {
        for signal in [Signal::SIGWINCH, Signal::SIGTSTP, Signal::SIGCONT] {
            let (reader, writer) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
            signal_hook::low_level::pipe::register(signal as i32, writer)?;
            self.of_terminal.push((signal, reader));
        }
        Ok(())
    }

    /// Pipes that become readable on a signal, in order of priority: what SIGUSR1 asks of a run comes before its end.
    pub fn pipes(&self) -> impl Iterator<Item = (Signal, &OwnedFd)> {
        let always = [(Signal::SIGINT, &self.interrupt), (Signal::SIGTERM, &self.terminate)];
        let hang_up = self.hang_up.iter().map(|pipe| (Signal::SIGHUP, pipe));
        let user = self.user.iter().map(|pipe| (Signal::SIGUSR1, pipe));
        let of_terminal = self.of_terminal.iter().map(|(signal, pipe)| (*signal, pipe));
        user.chain(always).chain(hang_up).chain(of_terminal)
    }

    /// Uses these pipes instead, for tests.
    #[cfg(test)]
    pub fn of(interrupt: OwnedFd, terminate: OwnedFd) -> Self {
        Self {
            interrupt,
            terminate,
            hang_up: None,
            user: None,
            of_terminal: Vec::new(),
        }
    }
}

/// Takes one signal's byte out of its pipe.
///
/// # Errors
/// The error of the read.
pub fn swallow(pipe: &OwnedFd) -> io::Result<()> {
    let mut byte = [0];
    File::from(pipe.try_clone()?).read_exact(&mut byte)
}

/// Whether SIGHUP is ignored, because the process is to outlive its terminal, as under `nohup`.
#[must_use]
pub fn hang_ups_are_ignored() -> bool {
    is(libc::SIGHUP, libc::SIG_IGN)
}

/// Whether this happens at a signal.
fn is(signal: i32, disposition: libc::sighandler_t) -> bool {
    // SAFETY: a structure of zero bytes is valid, and the system call only fills it in.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0 && action.sa_sigaction == disposition
    }
}

/// Calls `act` when a signal ends the process that the run does not handle. The signal ends it as before.
///
/// # Safety
/// `act` may only do what a signal handler may: no waiting for locks, no memory.
///
/// # Errors
/// When a handler cannot be installed.
pub unsafe fn before_ends(act: fn()) -> io::Result<()> {
    for signal in UNHANDLED {
        let signal = signal as i32;
        if is(signal, libc::SIG_DFL) {
            let end = move || {
                act();
                // It does not return.
                let _ = emulate_default_handler(signal);
            };
            // SAFETY: the caller promises it of `act`, and the library of the other function.
            unsafe { signal_hook::low_level::register(signal, end) }?;
        }
    }
    Ok(())
}

/// Ignores SIGUSR1, for which a run that will handle it is not ready yet.
///
/// # Errors
/// The error of the system call.
pub fn ignore_user() -> io::Result<()> {
    // SAFETY: ignoring a signal runs no code of ours.
    unsafe { signal(Signal::SIGUSR1, SigHandler::SigIgn) }?;
    Ok(())
}

/// Restores default dispositions before exec. Signals that the caller ignores, as a shell does for background jobs, are
/// reset as well; only an ignored SIGHUP is kept, so that the command outlives its terminal. Allocates nothing.
pub fn give_back() {
    let stays = hang_ups_are_ignored();
    for signal in (1..=31).filter(|&signal| signal != libc::SIGHUP || !stays) {
        // SAFETY: the default disposition runs no code of ours; SIGKILL and SIGSTOP refuse, harmlessly.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Ignores signals sent to a terminal or a process group, in a process whose end is decided elsewhere. On failure it
/// stays exposed to them.
pub fn ignore() {
    for ending in ENDING {
        // SAFETY: ignoring a signal runs no code of ours.
        let _ = unsafe { signal(ending, SigHandler::SigIgn) };
    }
}

/// Signals that are blocked while a process is forked that must never receive them.
pub struct Kept(SigSet);

impl Kept {
    /// # Errors
    /// The error of the system call.
    pub fn back() -> io::Result<Self> {
        let ending: SigSet = ENDING.into_iter().collect();
        ending.thread_block()?;
        Ok(Self(ending))
    }

    /// Restores the signal mask; not to be called in the forked process.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn let_come(self) -> io::Result<()> {
        Ok(self.0.thread_unblock()?)
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::signal::raise;
    use nix::sys::wait::{WaitStatus, waitpid};
    use nix::unistd::{ForkResult, fork};

    use super::*;

    /// The wait status of a forked process that only does this.
    fn end_of(work: fn()) -> WaitStatus {
        // SAFETY: the child only makes system calls.
        match unsafe { fork() }.unwrap() {
            ForkResult::Parent { child } => waitpid(child, None).unwrap(),
            ForkResult::Child => {
                work();
                // SAFETY: ends the process.
                unsafe { libc::_exit(0) }
            }
        }
    }

    fn raise_all() {
        for ending in ENDING {
            let _ = raise(ending);
        }
    }

    #[test]
    fn those_that_end_a_process_are_ignored_or_kept_back_or_end_it() {
        let is_over = |status| matches!(status, WaitStatus::Exited(_, 0));
        let is_ended = |status| matches!(status, WaitStatus::Signaled(_, by, _) if ENDING.contains(&by));
        assert!(is_over(end_of(|| {
            ignore();
            raise_all();
        })));
        assert!(is_over(end_of(|| {
            let _kept = Kept::back();
            raise_all();
        })));
        assert!(is_ended(end_of(|| {
            ignore();
            give_back();
            raise_all();
        })));
        assert!(is_ended(end_of(|| {
            let kept = Kept::back();
            raise_all();
            let _ = kept.map(Kept::let_come);
        })));
    }

    #[test]
    fn what_is_to_outlive_its_terminal_still_does_when_signals_are_given_back() {
        let end = end_of(|| {
            ignore();
            give_back();
            let _ = raise(Signal::SIGHUP);
        });
        assert!(matches!(end, WaitStatus::Exited(_, 0)), "{end:?}");
        let end = end_of(|| {
            // SAFETY: the default disposition runs no code of ours.
            let _ = unsafe { signal(Signal::SIGHUP, SigHandler::SigDfl) };
            give_back();
            let _ = raise(Signal::SIGHUP);
        });
        assert!(matches!(end, WaitStatus::Signaled(_, Signal::SIGHUP, _)), "{end:?}");
    }
}
