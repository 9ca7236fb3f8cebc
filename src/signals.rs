//! What this process, and those that it forks, do with signals. Nothing else changes that.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use nix::sys::signal::{SigHandler, SigSet, Signal, signal};

use crate::kernel::privileges;
use crate::leave::leave;

const SECOND_CTRL_C: u8 = 130;

/// Those that end a process which does nothing about them, and that somebody may send to all of a group or a terminal.
const ENDING: [Signal; 4] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];

/// Those that end a run, as bytes in pipes, so that one poll waits for all that can happen.
pub struct Signals {
    interrupt: OwnedFd,
    terminate: OwnedFd,
    /// `None`: it is ignored, and stays so.
    hang_up: Option<OwnedFd>,
}

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

static IS_ENDING: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// Whether a signal has asked for the end. From then on nobody waits long for a reader.
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
            // The reader is there for as long as the process is.
            let _ = nix::unistd::write(&interrupt_writer, &[1]);
        })
        .map_err(|error| match error {
            ctrlc::Error::System(error) => privileges::of_a_thread(error),
            other => io::Error::other(other),
        })?;
        // ctrlc does not tell one from the other.
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
        })
    }

    /// Pipes that can be read when a signal has come, the first before the others.
    pub fn pipes(&self) -> impl Iterator<Item = (Signal, &OwnedFd)> {
        let always = [(Signal::SIGINT, &self.interrupt), (Signal::SIGTERM, &self.terminate)];
        let hang_up = self.hang_up.iter().map(|pipe| (Signal::SIGHUP, pipe));
        always.into_iter().chain(hang_up)
    }

    /// These pipes, into which a test writes.
    #[cfg(test)]
    pub fn of(interrupt: OwnedFd, terminate: OwnedFd) -> Self {
        Self {
            interrupt,
            terminate,
            hang_up: None,
        }
    }
}

/// Takes one signal's byte out of its pipe.
///
/// # Errors
/// What the kernel says.
pub fn swallow(pipe: &OwnedFd) -> io::Result<()> {
    let mut byte = [0];
    File::from(pipe.try_clone()?).read_exact(&mut byte)
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

/// For a process that is to become somebody else's. Signals that our caller had ignored, as a shell does for a job in the background, are
/// not its business; but what is to outlive its terminal is. Allocates nothing.
pub fn give_back() {
    let stays = hang_ups_are_ignored();
    for signal in (1..=31).filter(|&signal| signal != libc::SIGHUP || !stays) {
        // SAFETY: the default disposition runs no code of ours; SIGKILL and SIGSTOP refuse, harmlessly.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// For a process whose end only we tell: a terminal's signals, and those to our process group, are not for it. A failure leaves it exposed
/// to them.
pub fn ignore() {
    for ending in ENDING {
        // SAFETY: ignoring a signal runs no code of ours.
        let _ = unsafe { signal(ending, SigHandler::SigIgn) };
    }
}

/// Signals that would end this process, kept from it while a process is forked that never gets any.
pub struct Kept(SigSet);

impl Kept {
    /// # Errors
    /// What the kernel says.
    pub fn back() -> io::Result<Self> {
        let ending: SigSet = ENDING.into_iter().collect();
        ending.thread_block()?;
        Ok(Self(ending))
    }

    /// Not in the process that was forked.
    ///
    /// # Errors
    /// What the kernel says.
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

    /// The status of a process that does this, by itself, and then nothing.
    fn end_of(work: fn()) -> WaitStatus {
        // SAFETY: the child makes system calls alone.
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
