//! What this process may have more of than it was given, while a command that it starts may not: descriptors, of which each
//! program and each of its attachments takes one, and locked memory, which is what maps are before 5.11.

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

/// Standard input, output and error.
const STANDARD: rlim_t = 3;

/// Whether the kernel refused something for want of descriptors.
#[must_use]
pub fn is_reached(errno: Option<i32>) -> bool {
    errno == Some(libc::EMFILE)
}

/// What to say instead of what the kernel said, where one or more of its refusals are for want of descriptors.
#[must_use]
pub fn advice(is_reached: bool) -> Option<String> {
    let (limit, _) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    // Where the standard ones are all that there may be, copying one of them is an invalid argument (fcntl(2)).
    (is_reached || limit <= STANDARD).then(|| {
        format!(
            "this process may have {limit} open files, and each probe takes one or two; raise the limit (ulimit -n)"
        )
    })
}

/// Fewer descriptors than that may be too few for the probes of a run.
const ENOUGH: rlim_t = 256;

/// What to add to the reason why probes were refused, if it may have been for want of descriptors: where one way fails, libbpf and
/// the tool try others, and have the error of the last one.
#[must_use]
pub fn doubt() -> Option<String> {
    let (limit, _) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    (limit < ENOUGH).then(|| format!("or this process may have too few open files, {limit}: ulimit -n {ENOUGH}"))
}

/// Takes all of that back, in a process that is to become somebody else's. Allocates nothing.
///
/// # Errors
/// The kernel's error.
pub fn restore() -> io::Result<()> {
    let given = GIVEN.get().copied().unwrap_or_default();
    for (resource, given) in RAISED.into_iter().zip(given) {
        if let Some((soft, hard)) = given {
            setrlimit(resource, soft, hard)?;
        }
    }
    Ok(())
}
