//! What the kernel refused to attach, and why. It determines what is tried next, and what the report says.

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

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}: refused ({})", self.hook.name(), self.of, self.why)
    }
}

/// What it refused to attach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// To this function, although programs of the same hook were loaded.
    Function(String),
    /// To any function: no program of the hook could be loaded.
    EveryFunction,
    /// To the tracepoints of system calls.
    Calls,
    /// To the tracepoints and functions of the block layer.
    BlockEvents,
}

/// The tracepoints of all system calls.
pub(super) const CALL_EVENTS: [&str; 2] = ["sys_enter", "sys_exit"];

impl Refused {
    /// Whether the function was refused.
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

/// Why the kernel refused something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Why {
    /// The errno. `None`: the kernel was not the one that refused.
    pub errno: Option<i32>,
    /// The message, one line.
    words: String,
}

impl Why {
    /// The same with a prefix that names what was refused.
    #[must_use]
    pub fn at(self, what: &str) -> Self {
        let words = format!("{what}: {}", self.words);
        Self { words, ..self }
    }

    /// Whether a privilege or the system call is missing.
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
    /// libbpf-rs chains its errors over several lines; messages have one.
    fn from(error: libbpf_rs::Error) -> Self {
        let words = format!("{error:#}").split_whitespace().collect::<Vec<_>>().join(" ");
        Self {
            errno: errno_of(&words),
            words: without_number(&words).to_owned(),
        }
    }
}

/// The standard library's message of an errno, without the number at its end.
fn without_number(words: &str) -> &str {
    match (errno_of(words), words.rsplit_once(" (os error ")) {
        (Some(_), Some((words, _))) => words,
        _ => words,
    }
}

/// The errno at the end of the standard library's message: libbpf-rs does not provide the number itself.
fn errno_of(words: &str) -> Option<i32> {
    let (_, end) = words.rsplit_once(" (os error ")?;
    end.strip_suffix(')')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use libbpf_rs::ErrorExt;

    use super::*;

    #[test]
    fn an_error_keeps_its_errno_through_conversions() {
        for (errno, is_denied) in [
            (libc::EPERM, true),
            (libc::EACCES, true),
            (libc::ENOSYS, true),
            (libc::EINVAL, false),
            (libc::EMFILE, false),
            (libc::EOPNOTSUPP, false),
        ] {
            let direct = Why::from(io::Error::from_raw_os_error(errno));
            let chained = libbpf_rs::Error::from_raw_os_error(errno).context("a map\n  cannot be made");
            let chained = Why::from(chained);
            for why in [&direct, &chained, &direct.clone().at("block_rq_issue")] {
                assert_eq!((why.errno, why.is_denied()), (Some(errno), is_denied), "{why}");
            }
            assert_eq!(chained.to_string(), format!("a map cannot be made: {direct}"));
        }
    }

    /// A message may contain names, which are arbitrary text.
    #[test]
    fn only_an_errno_means_a_missing_privilege() {
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
    fn a_refusal_of_every_function_includes_each_function() {
        let one = Refused::Function("vfs_read".to_owned());
        assert!(one.is_of("vfs_read") && !one.is_of("vfs_write") && Refused::EveryFunction.is_of("vfs_write"));
        assert!(!Refused::Calls.is_of("sys_enter") && !Refused::BlockEvents.is_of("block events"));
        assert_eq!(
            [one, Refused::EveryFunction, Refused::Calls, Refused::BlockEvents].map(|of| of.to_string()),
            ["vfs_read", "every function", "sys_enter, sys_exit", "block events"]
        );
    }
}
