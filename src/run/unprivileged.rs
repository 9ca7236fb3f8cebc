//! What is measured once all programs are attached needs hardly any privileges: they are given up.

use std::io;

use crate::kernel::privileges::CAP_BPF;
use crate::sys::capabilities::{Sets, get, set};

/// Gives up the capabilities of this thread, and so of those that it starts from now on. CAP_BPF stays if reading the
/// counters needs it, as before Linux 5.19 (c8644cd0efe7): `may_read` tries that. Processes that this one has started before
/// keep theirs.
///
/// # Errors
/// The error of the kernel.
pub fn give_up(may_read: impl Fn() -> bool) -> io::Result<()> {
    // A program that is executed gets none of them back, not even of root.
    nix::sys::prctl::set_no_new_privs()?;
    let before = get()?;
    let bpf = before.permitted & (1 << CAP_BPF);
    set(Sets {
        effective: 0,
        permitted: bpf,
    })?;
    let is_needed = !may_read();
    let kept = if is_needed { bpf } else { 0 };
    set(Sets {
        effective: kept,
        permitted: kept,
    })
}
