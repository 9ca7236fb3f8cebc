//! The environment that this process was started with.
//!
//! The C library removes variables such as `TMPDIR` and `LD_LIBRARY_PATH` from the environment of a binary with more
//! privileges than its caller, such as one with file capabilities. But COMMAND inherits no privilege and should get
//! them. The kernel's copy of the environment still has them.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use crate::sys::text_of;

/// The variables that the C library removed.
#[must_use]
pub fn removed() -> Vec<(OsString, OsString)> {
    // SAFETY: reads a number that the kernel passed to this process.
    if unsafe { libc::getauxval(libc::AT_SECURE) } == 0 {
        return Vec::new();
    }
    let stat = text_of("/proc/self/stat").unwrap_or_default();
    let Some((start, end)) = bounds(&stat) else {
        return Vec::new();
    };
    // SAFETY: the kernel wrote these bytes at exec, above the stack, where they stay until the process ends; the C
    // library only removes pointers to them.
    let bytes = unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance::<u8>(start), end - start) };
    variables(bytes)
        .filter(|(name, _)| std::env::var_os(name).is_none())
        .collect()
}

/// The value of a variable, even if the C library removed it.
#[must_use]
pub fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).or_else(|| Some(removed().into_iter().find(|(removed, _)| removed == name)?.1))
}

/// Whether a command may get the removed variables: only if it runs as the caller.
#[must_use]
pub fn is_the_callers(has_user: bool) -> bool {
    use nix::unistd::{getegid, geteuid, getgid, getuid};
    !has_user && getuid() == geteuid() && getgid() == getegid()
}

/// The bounds of the environment: fields 50 and 51 of `/proc/PID/stat`, 0 if they are hidden.
fn bounds(stat: &str) -> Option<(usize, usize)> {
    // The name, the second field, may contain blanks and parentheses.
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split_whitespace().skip(47);
    let start: usize = fields.next()?.parse().ok()?;
    let end: usize = fields.next()?.parse().ok()?;
    (start > 0 && start <= end).then_some((start, end))
}

/// Parses `NAME=value` strings, each terminated by a zero byte.
fn variables(bytes: &[u8]) -> impl Iterator<Item = (OsString, OsString)> {
    bytes.split(|byte| *byte == 0).filter_map(|entry| {
        let equals = entry.iter().position(|byte| *byte == b'=').filter(|at| *at > 0)?;
        let text = |bytes| OsStr::from_bytes(bytes).to_owned();
        Some((text(&entry[..equals]), text(&entry[equals + 1..])))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fuzz;

    #[test]
    fn variables_end_with_a_zero() {
        let found: Vec<_> = variables(b"TMPDIR=/a=b\0EMPTY=\0=x\0broken\0\0LD_X=\xff\0").collect();
        let expected = [("TMPDIR", &b"/a=b"[..]), ("EMPTY", b""), ("LD_X", b"\xff")];
        let expected = expected.map(|(name, value)| (name.into(), OsStr::from_bytes(value).to_owned()));
        assert_eq!(found, expected);
    }

    #[test]
    fn the_kernel_says_where_they_are() {
        let (start, end) = bounds(&text_of("/proc/self/stat").unwrap()).unwrap();
        let environ = std::fs::read("/proc/self/environ").unwrap();
        assert_eq!(end - start, environ.len());
        let hidden = format!("1 (a) b) S {}0 0 0", "1 ".repeat(46));
        assert_eq!(bounds(&hidden), None);
        assert_eq!(bounds(&hidden.replace(" 0 0 0", " 16 48 0")), Some((16, 48)));
    }

    #[test]
    fn an_ordinary_process_has_lost_nothing() {
        assert_eq!(removed(), []);
        assert_eq!(variable("PATH"), std::env::var_os("PATH"));
    }

    proptest! {
        #![proptest_config(fuzz::config())]

        #[test]
        fn any_text_is_read(stat in fuzz::text_like("1 (x) S 0 0 0"), bytes: Vec<u8>) {
            let _ = (bounds(&stat), variables(&bytes).count());
        }
    }
}
