//! The kernel's clock, in nanoseconds.

use nix::time::{ClockId, clock_gettime};

/// `CLOCK_MONOTONIC`: the clock of the programs (`bpf_ktime_get_ns`).
#[must_use]
pub fn monotonic_ns() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC)
        .map_or(0, |time| time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
}
