//! Processes, as /proc lists them.

use std::fs;

use crate::printable::printable;
use crate::sys::text_of;

/// All processes that have a command line, which kernel threads lack, and their names.
pub fn names() -> impl Iterator<Item = (u32, String)> {
    let is_a_program = |pid: u32| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty());
    let mut pids: Vec<u32> = numbers_in_proc().filter(|&pid| is_a_program(pid)).collect();
    pids.sort_unstable();
    pids.into_iter().filter_map(|pid| {
        let comm = text_of(format!("/proc/{pid}/comm")).ok()?;
        Some((pid, printable(comm.trim_end_matches('\n'))))
    })
}

/// Numbers of all processes, as this namespace has them.
pub fn numbers_in_proc() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}
