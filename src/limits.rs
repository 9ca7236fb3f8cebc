//! What this process may have more of than it was given, while a command that it starts may not: descriptors, of which each
//! program and each place that it is attached at takes one, and locked memory, which is what maps are before 5.11.

use std::io;
use std::sync::OnceLock;

use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};

/// libbpf raises the second one where the kernel wants it (`bump_rlimit_memlock()`).
const RAISED: [Resource; 2] = [Resource::RLIMIT_NOFILE, Resource::RLIMIT_MEMLOCK];

/// What they were before, soft and hard; `None`: not known.
static GIVEN: OnceLock<[Option<(rlim_t, rlim_t)>; 2]> = OnceLock::new();

/// Allows this process as many descriptors as it may allow itself, and keeps in mind what it was given.
pub fn raise() {
    let given = RAISED.map(|resource| getrlimit(resource).ok());
    if GIVEN.set(given).is_ok()
        && let Some((_, hard)) = given[0]
    {
        // Else it is as it was, and may suffice.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

/// Takes all of that back, in a process that is to become somebody else's. Allocates nothing.
///
/// # Errors
/// What the kernel says.
pub fn restore() -> io::Result<()> {
    let given = GIVEN.get().copied().unwrap_or_default();
    for (resource, given) in RAISED.into_iter().zip(given) {
        if let Some((soft, hard)) = given {
            setrlimit(resource, soft, hard)?;
        }
    }
    Ok(())
}
