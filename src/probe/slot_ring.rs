//! Reads the records of usual calls and of requests from rings of slots (`bpf/slot_ring.bpf.h`), which are mapped: reading
//! needs no system call, and frees slots by a store.

use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use libbpf_rs::MapCore;

use crate::kernel::interface::types::{record_slot, slot_ring};

use super::records::Frames;
use super::request::{RECORD_SLOT, RingSlots, SLOT_RING};

/// The rings of all CPUs that have one.
#[derive(Debug)]
pub struct SlotRings {
    first: NonNull<u8>,
    of: RingSlots,
}

impl SlotRings {
    /// Maps the rings with their slots.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn map(rings: &impl MapCore, of: RingSlots) -> io::Result<Self> {
        // SAFETY: a new mapping of an open descriptor.
        let mapping = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                of.bytes() as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                rings.as_fd().as_raw_fd(),
                0,
            )
        };
        let first = NonNull::new(mapping.cast()).filter(|_| mapping != libc::MAP_FAILED);
        first
            .map(|first| Self { first, of })
            .ok_or_else(io::Error::last_os_error)
    }

    /// The ring of a CPU, and its first slot.
    fn ring(&self, cpu: u32) -> (*mut slot_ring, *mut record_slot) {
        debug_assert!(cpu < self.of.cpus);
        // SAFETY: both are in the mapping.
        unsafe {
            let ring = self.first.add(cpu as usize * self.of.ring_bytes() as usize);
            (ring.cast().as_ptr(), ring.add(SLOT_RING as usize).cast().as_ptr())
        }
    }

    /// Removes the records that are complete, those of each CPU in their order, up to one that is not. Programs go on: what they
    /// add meanwhile is for the next time.
    pub fn take(&self, into: &mut Frames) {
        for cpu in 0..self.of.cpus {
            let (ring, slots) = self.ring(cpu);
            // SAFETY: the positions are in the mapping, and aligned; only this process writes the second.
            let (taken, read) = unsafe {
                (
                    AtomicU64::from_ptr(&raw mut (*ring).taken),
                    AtomicU64::from_ptr(&raw mut (*ring).read),
                )
            };
            let (end, mut at) = (taken.load(Ordering::Acquire), read.load(Ordering::Relaxed));
            while at != end {
                // SAFETY: each ring has so many slots.
                let slot = unsafe { slots.add(at as usize % self.of.each as usize) };
                // SAFETY: as above.
                let turn = unsafe { AtomicU64::from_ptr(&raw mut (*slot).turn) };
                let next = at.wrapping_add(1);
                if turn.load(Ordering::Acquire) != next {
                    break;
                }
                // SAFETY: the record is complete, and no program writes to the slot before `read` has passed it.
                into.push(unsafe {
                    let record = &raw const (*slot).record;
                    std::slice::from_raw_parts(record.cast::<u8>(), RECORD_SLOT as usize - size_of::<u64>())
                });
                at = next;
            }
            read.store(at, Ordering::Release);
        }
    }
}

impl Drop for SlotRings {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and nothing refers to it any more.
        unsafe { libc::munmap(self.first.as_ptr().cast(), self.of.bytes() as usize) };
    }
}

#[cfg(test)]
mod tests {
    use libbpf_rs::{MapHandle, MapType};
    use libbpf_sys as sys;

    use super::*;
    use crate::sys::assembly::one_value;

    /// The kernel side's part is tested in `tests/kernel_side.rs`.
    #[test]
    fn complete_records_are_taken_out_once_and_in_their_order() {
        assert_eq!(RECORD_SLOT as usize, size_of::<record_slot>());
        assert_eq!(SLOT_RING as usize, size_of::<slot_ring>());
        let of = RingSlots { each: 4, cpus: 2 };
        let map: MapHandle = one_value(MapType::Array, None, of.bytes(), sys::BPF_F_MMAPABLE).unwrap();
        let rings = SlotRings::map(&map, of).unwrap();
        let complete = |cpu: u32, turn: u64| {
            let (_, slots) = rings.ring(cpu);
            // SAFETY: the ring has four slots.
            unsafe {
                let slot = slots.add((turn - 1) as usize % 4);
                // The second word of a record is the begin of its call.
                (*slot).record[1] = turn;
                (*slot).turn = turn;
            }
        };
        let taken = |cpu: u32, n: u64| {
            let (ring, _) = rings.ring(cpu);
            // SAFETY: the ring is in the mapping.
            unsafe { AtomicU64::from_ptr(&raw mut (*ring).taken) }.store(n, Ordering::Release);
        };
        let take = || {
            let mut frames = Frames::default();
            rings.take(&mut frames);
            let begins = frames.iter().map(|frame| {
                assert_eq!(frame.len(), RECORD_SLOT as usize - 8);
                u64::from_ne_bytes(frame[8..16].try_into().unwrap())
            });
            begins.collect::<Vec<_>>()
        };
        assert_eq!(take(), [0; 0]);
        taken(1, 3);
        complete(1, 1);
        // The second is not complete, and holds the third back.
        complete(1, 3);
        assert_eq!(take(), [1]);
        complete(1, 2);
        assert_eq!(take(), [2, 3]);
        assert_eq!(take(), [0; 0]);
        // The next slots have been used before.
        taken(1, 7);
        taken(0, 1);
        assert_eq!(take(), [0; 0]);
        (4..8).for_each(|turn| complete(1, turn));
        complete(0, 1);
        assert_eq!(take(), [1, 4, 5, 6, 7]);
    }
}
