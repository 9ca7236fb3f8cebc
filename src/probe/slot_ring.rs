//! Reads the records of usual calls and of requests from rings of slots (`bpf/slot_ring.bpf.h`), which are mapped: reading
//! needs no system call, and frees slots by a store.

use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use libbpf_rs::MapCore;

use crate::kernel::interface::types::{record_slot, slot_ring};

use super::records::Frames;
use super::request::RingSlots;

/// The rings of all CPUs that have one.
#[derive(Debug)]
pub struct SlotRings {
    rings: Mapped<slot_ring>,
    slots: Mapped<record_slot>,
    of: RingSlots,
}

impl SlotRings {
    /// Maps the rings and their slots.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn map(rings: &impl MapCore, slots: &impl MapCore, of: RingSlots) -> io::Result<Self> {
        Ok(Self {
            rings: Mapped::new(rings, of.cpus as usize)?,
            slots: Mapped::new(slots, of.each as usize * of.cpus as usize)?,
            of,
        })
    }

    /// Removes the records that are complete, those of each CPU in their order, up to one that is not. Programs go on: what they
    /// add meanwhile is for the next time.
    pub fn take(&self, into: &mut Frames) {
        for cpu in 0..self.of.cpus as usize {
            let Some(ring) = self.rings.element(cpu) else { return };
            // SAFETY: the positions are in the mapping, and aligned; only this process writes the second.
            let (taken, read) = unsafe {
                let ring = ring.as_ptr();
                (
                    AtomicU64::from_ptr(&raw mut (*ring).taken),
                    AtomicU64::from_ptr(&raw mut (*ring).read),
                )
            };
            let (end, mut at) = (taken.load(Ordering::Acquire), read.load(Ordering::Relaxed));
            while at != end {
                let index = cpu * self.of.each as usize + at as usize % self.of.each.max(1) as usize;
                let Some(slot) = self.slots.element(index) else { break };
                // SAFETY: as above.
                let turn = unsafe { AtomicU64::from_ptr(&raw mut (*slot.as_ptr()).turn) };
                let next = at.wrapping_add(1);
                if turn.load(Ordering::Acquire) != next {
                    break;
                }
                // SAFETY: the record is complete, and no program writes to the slot before `read` has passed it.
                into.push(unsafe {
                    let record = &raw const (*slot.as_ptr()).record;
                    std::slice::from_raw_parts(record.cast::<u8>(), size_of_val(&(*slot.as_ptr()).record))
                });
                at = next;
            }
            read.store(at, Ordering::Release);
        }
    }
}

/// The elements of an array that programs change.
#[derive(Debug)]
struct Mapped<T> {
    first: NonNull<T>,
    len: usize,
}

impl<T> Mapped<T> {
    /// # Errors
    /// The error of the kernel.
    fn new(array: &impl MapCore, len: usize) -> io::Result<Self> {
        // SAFETY: a new mapping of an open descriptor.
        let mapping = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len * size_of::<T>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                array.as_fd().as_raw_fd(),
                0,
            )
        };
        let first = NonNull::new(mapping.cast()).filter(|_| mapping != libc::MAP_FAILED);
        first
            .map(|first| Self { first, len })
            .ok_or_else(io::Error::last_os_error)
    }

    fn element(&self, index: usize) -> Option<NonNull<T>> {
        // SAFETY: the element is in the mapping.
        (index < self.len).then(|| unsafe { self.first.add(index) })
    }
}

impl<T> Drop for Mapped<T> {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and nothing refers to it any more.
        unsafe { libc::munmap(self.first.as_ptr().cast(), self.len * size_of::<T>()) };
    }
}

#[cfg(test)]
mod tests {
    use libbpf_rs::{MapFlags, MapHandle, MapType};
    use libbpf_sys as sys;

    use super::*;
    use crate::probe::request::RECORD_SLOT;

    fn array(value: usize, len: u32) -> MapHandle {
        let options = sys::bpf_map_create_opts {
            sz: size_of::<sys::bpf_map_create_opts>() as sys::size_t,
            map_flags: sys::BPF_F_MMAPABLE,
            ..Default::default()
        };
        MapHandle::create(MapType::Array, Some("test"), 4, value as u32, len, &options).unwrap()
    }

    /// The kernel side's part is tested in `tests/kernel_side.rs`.
    #[test]
    fn complete_records_are_taken_out_once_and_in_their_order() {
        assert_eq!(RECORD_SLOT as usize, size_of::<record_slot>());
        let of = RingSlots { each: 4, cpus: 2 };
        let maps = [array(size_of::<slot_ring>(), 2), array(size_of::<record_slot>(), 8)];
        let rings = SlotRings::map(&maps[0], &maps[1], of).unwrap();
        let complete = |cpu: u32, turn: u64| {
            let element = cpu * of.each + ((turn - 1) % 4) as u32;
            let mut words = [0_u64; size_of::<record_slot>() / 8];
            // The second word of a record is the begin of its call.
            (words[1], words[words.len() - 1]) = (turn, turn);
            let bytes = words.map(u64::to_ne_bytes).concat();
            maps[1].update(&element.to_ne_bytes(), &bytes, MapFlags::ANY).unwrap();
        };
        let taken = |cpu: usize, n: u64| {
            let ring = rings.rings.element(cpu).unwrap().as_ptr();
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
