//! How many descriptors this process may have: each program and each place that it is attached at takes one.

use std::io;
use std::sync::OnceLock;

use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};

/// What it was before, soft and hard.
static GIVEN: OnceLock<(rlim_t, rlim_t)> = OnceLock::new();

/// Allows this process as many as it may allow itself.
pub fn allow_many() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && GIVEN.set((soft, hard)).is_ok()
    {
        // Else it is as it was, and may suffice.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

/// Takes that back, in a process that is to become somebody else's. Allocates nothing.
///
/// # Errors
/// What the kernel says.
pub fn allow_as_given() -> io::Result<()> {
    match GIVEN.get() {
        Some(&(soft, hard)) => setrlimit(Resource::RLIMIT_NOFILE, soft, hard).map_err(io::Error::from),
        None => Ok(()),
    }
}
