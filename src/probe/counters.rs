//! The kernel side's counters, mapped into our memory.

use std::io;
use std::os::fd::AsRawFd;

use libbpf_rs::MapCore;

use crate::kernel::interface::types::op_stats;

/// Every CPU's counters of every op. Reading them costs no system call, which would keep programs from running.
#[derive(Debug)]
pub struct Counters {
    place: *const u8,
    size: usize,
    ops: usize,
    cpus: usize,
}

impl Counters {
    /// Maps the table, which has `ops` elements for each CPU.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn map(table: &impl MapCore, ops: usize) -> io::Result<Self> {
        let elements = table.max_entries() as usize;
        let size = elements * size_of::<op_stats>();
        // SAFETY: a new mapping of a descriptor that is open, read only.
        let place = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size,
                libc::PROT_READ,
                libc::MAP_SHARED,
                table.as_fd().as_raw_fd(),
                0,
            )
        };
        if place == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            place: place.cast(),
            size,
            ops,
            cpus: elements / ops.max(1),
        })
    }

    /// One op's counters, CPU by CPU, each as it stood at one moment.
    pub fn of_op(&self, op: usize) -> impl Iterator<Item = op_stats> + '_ {
        /// A program changes a few words at a time, in less time than a copy takes: two copies that agree were taken
        /// while none ran. More attempts than this are needed only where a forced hook is preempted half-way.
        const ATTEMPTS: usize = 16;
        (0..self.cpus).map(move |cpu| {
            let mut bytes = self.copy(cpu, op);
            for _ in 0..ATTEMPTS {
                let again = self.copy(cpu, op);
                if again == bytes {
                    break;
                }
                bytes = again;
            }
            let mut stats = op_stats::default();
            // The sizes are the same by construction.
            let _ = plain::copy_from_bytes(&mut stats, &bytes);
            stats
        })
    }

    fn copy(&self, cpu: usize, op: usize) -> [u8; size_of::<op_stats>()] {
        let mut bytes = [0u8; size_of::<op_stats>()];
        let from = (cpu * self.ops + op) * bytes.len();
        for (place, word) in bytes.chunks_exact_mut(8).enumerate() {
            // SAFETY: the element is inside the mapping, whose words are aligned and always readable.
            let value = unsafe { self.place.add(from).cast::<u64>().add(place).read_volatile() };
            word.copy_from_slice(&value.to_ne_bytes());
        }
        bytes
    }
}

impl Drop for Counters {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing borrows from it.
        unsafe { libc::munmap(self.place.cast_mut().cast(), self.size) };
    }
}
