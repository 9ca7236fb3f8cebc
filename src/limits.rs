//! Raises resource limits for this process, but not for the command that it starts: descriptors, of which each program
//! and each attachment needs one, and locked memory, which maps use before 5.11.

use std::io;
use std::sync::OnceLock;

use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};

/// libbpf raises the second one if the kernel requires it (`bump_rlimit_memlock()`).
const RAISED: [Resource; 2] = [Resource::RLIMIT_NOFILE, Resource::RLIMIT_MEMLOCK];

/// The original soft and hard limits; `None`: not known.
static GIVEN: OnceLock<[Option<(rlim_t, rlim_t)>; 2]> = OnceLock::new();

/// Raises the limit on descriptors to the maximum that this process may set, and remembers the original limits.
pub fn raise() {
    let given = RAISED.map(|resource| getrlimit(resource).ok());
    if GIVEN.set(given).is_ok()
        && let Some((_, hard)) = given[0]
    {
        // On failure the limit stays unchanged, and may suffice.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

/// Standard input, output and error.
const STANDARD: rlim_t = 3;

/// Whether the kernel refused something because of the limit on descriptors.
#[must_use]
pub fn is_reached(errno: Option<i32>) -> bool {
    errno == Some(libc::EMFILE)
}

/// The message to print instead of the kernel's errors, if any of them is due to the limit on descriptors.
#[must_use]
pub fn advice(is_reached: bool) -> Option<String> {
    let (limit, _) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    // If no more than the standard ones are allowed, duplicating one of them fails with an invalid argument (fcntl(2)).
    (is_reached || limit <= STANDARD).then(|| {
        format!(
            "this process may open only {limit} files, and each probe needs one or two; raise the limit, for example: ulimit -n 4096"
        )
    })
}

/// With fewer descriptors than this, there may be too few for a run's probes.
const ENOUGH: rlim_t = 256;

/// A hint to add to the reason why probes were refused, if the limit on descriptors may be the cause: after a failure,
/// libbpf and the tool try other ways, and report the error of the last one.
#[must_use]
pub fn doubt() -> Option<String> {
    let (limit, _) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    (limit < ENOUGH).then(|| format!("or the limit of {limit} open files is too low; try ulimit -n {ENOUGH}"))
}

/// Restores the original limits before exec. Allocates nothing.
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
