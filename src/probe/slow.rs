//! Slow calls on their way from the kernel: a ring that both sides have mapped, so that taking them out needs no system call.

use std::cell::RefCell;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;

use libbpf_rs::{MapCore, RingBuffer, RingBufferBuilder};

use crate::kernel::interface::types::slow_call;

/// The reading end.
#[derive(Debug)]
pub struct SlowRing {
    ring: RingBuffer<'static>,
    taken: Rc<RefCell<Vec<slow_call>>>,
}

impl SlowRing {
    /// Maps the table.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn open(table: &impl MapCore) -> libbpf_rs::Result<Self> {
        let taken = Rc::new(RefCell::new(Vec::new()));
        let into = Rc::clone(&taken);
        let mut builder = RingBufferBuilder::new();
        builder.add(table, move |bytes| {
            let mut call = slow_call::default();
            // The sizes are the same by construction.
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

    /// All that are there, in the order of their ends.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn take(&self) -> libbpf_rs::Result<Vec<slow_call>> {
        self.ring.consume()?;
        Ok(self.taken.take())
    }
}

impl AsFd for SlowRing {
    /// Readable when there are any.
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: it is open for as long as the ring is.
        unsafe { BorrowedFd::borrow_raw(self.ring.epoll_fd()) }
    }
}
