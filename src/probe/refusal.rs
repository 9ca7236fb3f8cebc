//! What the kernel refused, and why: what is tried next, and what a user is told, is decided by these.

use std::fmt;
use std::io;

use super::Hook;

/// An attempt that the kernel refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub of: Refused,
    pub hook: Hook,
    pub why: Why,
}

/// What it refused to attach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// To this function, while a program of the kind was loaded.
    Function(String),
    /// To any function: not one program of the kind was loaded.
    EveryFunction,
    /// To the tracepoints of system calls.
    Calls,
    /// To all that the block layer is seen by.
    BlockEvents,
}

/// The tracepoints that see all system calls.
pub(super) const CALL_EVENTS: [&str; 2] = ["sys_enter", "sys_exit"];

impl Refused {
    /// Whether it is about this function.
    #[must_use]
    pub fn is_of(&self, function: &str) -> bool {
        match self {
            Self::Function(name) => name == function,
            Self::EveryFunction => true,
            Self::Calls | Self::BlockEvents => false,
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Function(name) => f.write_str(name),
            Self::EveryFunction => f.write_str("every function"),
            Self::Calls => f.write_str(&CALL_EVENTS.join(", ")),
            Self::BlockEvents => f.write_str("block events"),
        }
    }
}

/// Why the kernel does not do something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Why {
    /// Its number for that. `None`: it was not the kernel that refused.
    pub errno: Option<i32>,
    /// One line.
    words: String,
}

impl Why {
    /// The same, with what it is about before it.
    #[must_use]
    pub fn at(self, place: &str) -> Self {
        let words = format!("{place}: {}", self.words);
        Self { words, ..self }
    }

    /// Whether it is for want of a privilege, or of the system call.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        matches!(self.errno, Some(libc::EPERM | libc::EACCES | libc::ENOSYS))
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

impl From<io::Error> for Why {
    fn from(error: io::Error) -> Self {
        Self {
            errno: error.raw_os_error(),
            words: without_number(&error.to_string()).to_owned(),
        }
    }
}

impl From<libbpf_rs::Error> for Why {
    /// libbpf-rs chains its errors over lines; a user gets one.
    fn from(error: libbpf_rs::Error) -> Self {
        let words = format!("{error:#}").split_whitespace().collect::<Vec<_>>().join(" ");
        Self {
            errno: errno_of(&words),
            words: without_number(&words).to_owned(),
        }
    }
}

/// What the standard library says of a kernel's error, without the number at its end.
fn without_number(words: &str) -> &str {
    match (errno_of(words), words.rsplit_once(" (os error ")) {
        (Some(_), Some((words, _))) => words,
        _ => words,
    }
}

/// The number at the end of what the standard library says of a kernel's error: libbpf-rs keeps it to itself.
fn errno_of(words: &str) -> Option<i32> {
    let (_, end) = words.rsplit_once(" (os error ")?;
    end.strip_suffix(')')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use libbpf_rs::ErrorExt;

    use super::*;

    #[test]
    fn an_error_keeps_its_number_whoever_brings_it() {
        for (errno, is_denied) in [
            (libc::EPERM, true),
            (libc::EACCES, true),
            (libc::ENOSYS, true),
            (libc::EINVAL, false),
            (libc::EMFILE, false),
            (libc::EOPNOTSUPP, false),
        ] {
            let plain = Why::from(io::Error::from_raw_os_error(errno));
            let chained = libbpf_rs::Error::from_raw_os_error(errno).context("a map\n  cannot be made");
            let chained = Why::from(chained);
            for why in [&plain, &chained, &plain.clone().at("block_rq_issue")] {
                assert_eq!((why.errno, why.is_denied()), (Some(errno), is_denied), "{why}");
            }
            assert_eq!(chained.to_string(), format!("a map cannot be made: {plain}"));
        }
    }

    /// A name may say anything.
    #[test]
    fn words_alone_deny_nothing() {
        for words in [
            "permission denied",
            "not implemented",
            "no (os error",
            "Not permitted (os error x)",
        ] {
            let whys = [
                Why::from(io::Error::other(words)),
                Why::from(libbpf_rs::Error::from(io::Error::other(words))),
            ];
            for why in whys {
                assert_eq!((why.errno, why.is_denied()), (None, false), "{why}");
            }
        }
    }

    #[test]
    fn what_is_refused_of_every_function_is_refused_of_one() {
        let one = Refused::Function("vfs_read".to_owned());
        assert!(one.is_of("vfs_read") && !one.is_of("vfs_write") && Refused::EveryFunction.is_of("vfs_write"));
        assert!(!Refused::Calls.is_of("sys_enter") && !Refused::BlockEvents.is_of("block events"));
        assert_eq!(
            [one, Refused::EveryFunction, Refused::Calls, Refused::BlockEvents].map(|of| of.to_string()),
            ["vfs_read", "every function", "sys_enter, sys_exit", "block events"]
        );
    }
}
