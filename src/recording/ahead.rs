//! Reads batches on a thread of its own, while those before them are looked at.

use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{Builder, JoinHandle};

use super::Batches;
use crate::model::record::Records;

/// Batches that wait to be looked at. One has some 8,192 records of 300 bytes.
const WAITING: usize = 2;

/// Batches that a thread reads, as [`Batches`] has them.
pub struct Ahead {
    batches: Receiver<Records>,
    thread: Option<JoinHandle<()>>,
    /// What reads them if there is no thread.
    own: Option<Batches>,
}

impl Batches {
    /// Reads batches ahead, if there may be another thread.
    #[must_use]
    pub fn ahead(self) -> Ahead {
        let (sender, batches) = sync_channel(WAITING);
        let (give, given) = sync_channel::<Self>(1);
        let read = move || {
            // Without a receiver, no more are needed.
            for records in given.into_iter().flatten() {
                if sender.send(records).is_err() {
                    return;
                }
            }
        };
        let thread = Builder::new().name("iosb-read".to_owned()).spawn(read);
        let own = match &thread {
            Ok(_) => give.send(self).err().map(|error| error.0),
            Err(_) => Some(self),
        };
        Ahead {
            batches,
            thread: thread.ok(),
            own,
        }
    }
}

impl Iterator for Ahead {
    type Item = Records;

    fn next(&mut self) -> Option<Records> {
        if let Some(own) = &mut self.own {
            return own.next();
        }
        let next = self.batches.recv().ok();
        if next.is_none()
            && let Some(Err(panic)) = self.thread.take().map(JoinHandle::join)
        {
            std::panic::resume_unwind(panic);
        }
        next
    }
}
