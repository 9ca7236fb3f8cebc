//! COMMAND: forked first, executed when the probes are attached.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::thread::JoinHandle;

use crate::cause::Cause;
use crate::environment;
use crate::kernel::privileges;
use crate::limits;
use crate::signals;
use crate::user::User;

/// A process that is about to become COMMAND.
pub struct Waiting {
    /// Its number in our PID namespace.
    pub pid: u32,
    gate: File,
    starting: JoinHandle<io::Result<Child>>,
}

/// Why COMMAND did not start.
#[derive(Debug)]
pub enum CommandError {
    NoUser(String),
    /// The exec failed.
    Exec(OsString, io::Error),
    /// The process could not be created.
    Spawn(io::Error),
}

impl CommandError {
    /// The exit status that shells and `env` use.
    #[must_use]
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::NoUser(_) | Self::Spawn(_) => 125,
            Self::Exec(_, error) if error.kind() == io::ErrorKind::NotFound => 127,
            Self::Exec(..) => 126,
        }
    }
}

impl std::fmt::Display for CommandError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoUser(name) => write!(f, "no user '{name}' in /etc/passwd; a numeric user ID works, too"),
            Self::Exec(program, error) if error.kind() == io::ErrorKind::NotFound => {
                write!(f, "command not found: {}", Path::new(program).display())
            }
            Self::Exec(program, error) => write!(f, "cannot execute {}: {error}", Path::new(program).display()),
            Self::Spawn(error) => write!(f, "cannot start COMMAND: {error}"),
        }
    }
}

impl From<&CommandError> for Cause {
    fn from(error: &CommandError) -> Self {
        Self {
            line: error.to_string(),
            errno: match error {
                CommandError::Spawn(error) | CommandError::Exec(_, error) => error.raw_os_error(),
                CommandError::NoUser(_) => None,
            },
        }
    }
}

/// Forks. The child waits for [`Waiting::release`].
///
/// # Errors
/// If the user does not exist or the process cannot be created.
pub fn fork(program: &OsStr, arguments: &[OsString], user: Option<&str>) -> Result<Waiting, CommandError> {
    let user = user
        .map(|name| User::find(name).ok_or_else(|| CommandError::NoUser(name.to_owned())))
        .transpose()?;
    let pipe = || nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).map_err(|error| CommandError::Spawn(error.into()));
    let (gate_reader, gate) = pipe()?;
    let (pid_reader, pid_writer) = pipe()?;

    let mut child = Command::new(program);
    child.args(arguments);
    if environment::is_the_callers(user.is_some()) {
        child.envs(environment::removed());
    }
    let writer_of_ours = gate.as_raw_fd();
    // SAFETY: between fork and exec the closure only makes system calls on what it owns, and allocates nothing.
    unsafe {
        child.pre_exec(move || prepare_child(&gate_reader, &pid_writer, writer_of_ours, user.as_ref()));
    }
    // `spawn` returns once the exec has succeeded or failed, which is after the release.
    let starting = std::thread::Builder::new()
        .spawn(move || child.spawn())
        .map_err(|error| CommandError::Spawn(privileges::of_a_thread(error)))?;
    let mut number = [0; 4];
    match File::from(pid_reader).read_exact(&mut number) {
        Ok(()) => Ok(Waiting {
            pid: u32::from_ne_bytes(number),
            gate: File::from(gate),
            starting,
        }),
        Err(_) => Err(CommandError::Spawn(match starting.join() {
            Ok(Err(error)) => error,
            _ => io::ErrorKind::Other.into(),
        })),
    }
}

/// Runs in the child, before the exec.
fn prepare_child(gate: &OwnedFd, pid_out: &OwnedFd, parents_end: i32, user: Option<&User>) -> io::Result<()> {
    // Otherwise the child itself would keep the gate open when the parent dies.
    nix::unistd::close(parents_end)?;
    signals::give_back();
    limits::restore()?;
    if let Some(user) = user {
        nix::unistd::setgroups(&user.groups)?;
        nix::unistd::setgid(user.gid)?;
        nix::unistd::setuid(user.uid)?;
    }
    nix::unistd::write(pid_out, &std::process::id().to_ne_bytes())?;
    let mut byte = [0];
    loop {
        return match nix::unistd::read(gate, &mut byte) {
            Err(nix::errno::Errno::EINTR) => continue,
            // The gate was closed without a release: the tracer has died, so the child ends, too.
            Ok(0) => Err(io::ErrorKind::Interrupted.into()),
            Ok(_) => Ok(()),
            Err(error) => Err(error.into()),
        };
    }
}

impl Waiting {
    /// Lets the child execute COMMAND.
    ///
    /// # Errors
    /// If the exec fails.
    pub fn release(mut self, program: &OsString) -> Result<Child, CommandError> {
        // If the child has died, `spawn` reports it.
        let _ = self.gate.write_all(&[1]);
        match self.starting.join() {
            Ok(Ok(child)) => Ok(child),
            Ok(Err(error)) => Err(CommandError::Exec(program.clone(), error)),
            Err(_) => Err(CommandError::Spawn(io::ErrorKind::Other.into())),
        }
    }
}

/// COMMAND's own exit status, or 128 + the signal that ended it.
#[must_use]
pub fn exit_status(status: ExitStatus) -> u8 {
    let number = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal))
        .unwrap_or(125);
    u8::try_from(number).unwrap_or(125)
}
