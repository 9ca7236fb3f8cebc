//! Reads records from the rings of each CPU, which are mapped, so that reading needs no system call: a BPF ring buffer, and one
//! of slots for usual calls and requests.

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;

use libbpf_rs::{AsRawLibbpf, MapHandle, RingBuffer, RingBufferBuilder};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use crate::kernel::interface::RECORD_KINDS;
use crate::kernel::interface::skeleton::IostackbreakdownSkel;
use crate::kernel::interface::types::{lost_records, sleep_record};
use crate::sys::counters::Counters;

use super::load::make_rings;
use super::refusal::Why;
use super::request::{RecordWish, RingSlots};
use super::slot_ring::SlotRings;

/// Bytes of the smallest record in a ring, with the ring's own header (kernel/bpf/ringbuf.c, `BPF_RINGBUF_HDR_SZ`).
const LEAST: usize = 8 + size_of::<sleep_record>();

/// The rings of all CPUs, and the counts of what they had no room for.
pub struct RecordRings {
    rings: RingBuffer<'static>,
    /// `None`: all records are in `rings`.
    slots: Option<SlotRings>,
    /// Readable when a ring was filled so far that it woke its reader. Not libbpf's descriptor, which stays readable as
    /// long as there is any record.
    wakeups: Epoll,
    taken: Rc<RefCell<Frames>>,
    /// An element per CPU and kind.
    pub lost: Counters<lost_records>,
    /// The map of each ring.
    maps: Vec<MapHandle>,
}

impl RecordRings {
    /// Creates and maps the rings.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn open(skeleton: &IostackbreakdownSkel<'_>, wish: &RecordWish) -> Result<Self, Why> {
        let slots = skeleton.maps.rodata_data.map(|rodata| RingSlots {
            each: rodata.config.ring_slots,
            cpus: rodata.config.ring_cpus,
        });
        let slots = slots.unwrap_or_default();
        let maps = make_rings(skeleton, wish, slots)?;
        let of_slots = (slots.each > 0).then(|| SlotRings::map(&skeleton.maps.bss_rings, slots));
        let taken = Rc::new(RefCell::new(Frames::default()));
        let wakeups = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(io::Error::from)?;
        let mut builder = RingBufferBuilder::new();
        for ring in &maps {
            let into = Rc::clone(&taken);
            builder.add(ring, move |record| {
                into.borrow_mut().push(record);
                0
            })?;
            let edges = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, 0);
            wakeups.add(ring, edges).map_err(io::Error::from)?;
        }
        Ok(Self {
            rings: builder.build()?,
            slots: of_slots.transpose()?,
            wakeups,
            taken,
            lost: Counters::map(&skeleton.maps.record_losses, RECORD_KINDS as usize)?,
            maps,
        })
    }

    /// Removes and returns the records, those of each ring in the order of their ends. All that were there at the start are among
    /// them; of those that arrive meanwhile, at most so many that it ends.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn take(&self) -> libbpf_rs::Result<Frames> {
        // First: calls need definitions, which were written to the other rings before them.
        if let Some(slots) = &self.slots {
            slots.take(&mut self.taken.borrow_mut());
        }
        for index in 0..self.maps.len() {
            // SAFETY: the rings were added in the order of their maps, and live as long as what they were added to.
            let taken = unsafe {
                let ring = libbpf_sys::ring_buffer__ring(self.rings.as_libbpf_object().as_ptr(), index as u32);
                let most = libbpf_sys::ring__size(ring) / LEAST as u64;
                libbpf_sys::ring__consume_n(ring, most)
            };
            if taken < 0 {
                return Err(libbpf_rs::Error::from_raw_os_error(-taken));
            }
        }
        Ok(self.taken.take())
    }

    /// Ends the wakeups so far.
    pub fn settle(&self) {
        let mut events = [EpollEvent::empty(); 64];
        // What is not reported this time is reported the next time.
        let _ = self.wakeups.wait(&mut events, EpollTimeout::ZERO);
    }
}

impl AsFd for RecordRings {
    /// The descriptor is readable if a ring woke its reader.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wakeups.0.as_fd()
    }
}

impl fmt::Debug for RecordRings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordRings").finish_non_exhaustive()
    }
}

/// Records as the programs wrote them, one after another.
#[derive(Debug, Clone, Default)]
pub struct Frames {
    bytes: Vec<u8>,
    lengths: Vec<u32>,
}

impl Frames {
    /// Appends a record.
    pub fn push(&mut self, record: &[u8]) {
        self.bytes.extend_from_slice(record);
        self.lengths.push(record.len() as u32);
    }

    /// The records in their order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.bytes[..];
        self.lengths.iter().map(move |&length| {
            let (record, after) = rest.split_at(length as usize);
            rest = after;
            record
        })
    }
}
