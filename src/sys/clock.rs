//! The kernel's clocks, in nanoseconds.

use nix::time::{ClockId, clock_gettime};

/// `CLOCK_MONOTONIC`: the clock of the programs (`bpf_ktime_get_ns`).
#[must_use]
pub fn monotonic_ns() -> u64 {
    now_ns(ClockId::CLOCK_MONOTONIC)
}

/// `CLOCK_BOOTTIME`: the clock of the starts of processes, which does not stop in sleep modes.
#[must_use]
pub fn since_boot_ns() -> u64 {
    now_ns(ClockId::CLOCK_BOOTTIME)
}

fn now_ns(clock: ClockId) -> u64 {
    clock_gettime(clock).map_or(0, |time| time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
}
