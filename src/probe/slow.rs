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
            // Both sides use the same structure, so this cannot fail.
            if let Ok(call) = plain::from_bytes::<slow_call>(bytes) {
                into.borrow_mut().push(*call);
            }
            0
        })?;
        Ok(Self {
            ring: builder.build()?,
            taken,
        })
    }

    /// Removes and passes on all records, in the order in which the calls ended.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn take(&self, act: impl FnMut(&slow_call)) -> libbpf_rs::Result<()> {
        self.ring.consume()?;
        let mut taken = self.taken.borrow_mut();
        taken.iter().for_each(act);
        // Its memory is kept: records are large.
        taken.clear();
        Ok(())
    }
}

impl AsFd for SlowRing {
    /// The descriptor is readable if there are records.
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: it is open as long as the ring is.
        unsafe { BorrowedFd::borrow_raw(self.ring.epoll_fd()) }
    }
}
