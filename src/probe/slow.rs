//! Reads the records of slow calls from a BPF ring buffer, which is mapped, so that reading needs no system call.

use std::cell::RefCell;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;

use libbpf_rs::{MapCore, RingBuffer, RingBufferBuilder};

use crate::kernel::interface::types::slow_call;

/// The reader of the ring buffer.
#[derive(Debug)]
pub struct SlowRing {
    ring: RingBuffer<'static>,
    taken: Rc<RefCell<Vec<slow_call>>>,
}

impl SlowRing {
    /// Maps the ring buffer.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn open(table: &impl MapCore) -> libbpf_rs::Result<Self> {
        let taken = Rc::new(RefCell::new(Vec::new()));
        let into = Rc::clone(&taken);
        let mut builder = RingBufferBuilder::new();
        builder.add(table, move |bytes| {
            let mut call = slow_call::default();
            // Both sides use the same structure, so this cannot fail.
            if plain::copy_from_bytes(&mut call, bytes).is_ok() {
                into.borrow_mut().push(call);
            }
            0
        })?;
        Ok(Self {
            ring: builder.build()?,
            taken,
        })
    }

    /// Removes and returns all records, in the order in which the calls ended.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn take(&self) -> libbpf_rs::Result<Vec<slow_call>> {
        self.ring.consume()?;
        Ok(self.taken.take())
    }
}

impl AsFd for SlowRing {
    /// The descriptor is readable if there are records.
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: it is open as long as the ring is.
        unsafe { BorrowedFd::borrow_raw(self.ring.epoll_fd()) }
    }
}
