//! What the disks served while the measured requests waited.

use serde::Deserialize;

use crate::model::object::objects;

objects! {
    /// Sums over all disks. A moment is counted once for each disk on which one or more of the requests waited: from the
    /// start of their queue time to their completion.
    #[derive(Deserialize)]
    pub struct Neighbours {
        /// All such moments, in nanoseconds. The parts below are disjoint, and their sum is this.
        pub waited_ns: u64,
        /// The disk served one of the requests themselves.
        pub own_ns: u64,
        /// The number of these requests that completed.
        pub own_requests: u64,
        /// The disk served other processes: the one with most of the time first.
        pub others: Vec<Neighbour>,
        /// Time before the earliest kept completion, in waits during which more requests completed than are kept.
        pub untold_ns: u64,
        /// The remaining time: no request had been issued.
        pub idle_ns: u64,
        /// Completions of requests on disks for which there was no room: their waits are not in the numbers.
        pub unseen: u64,
    }

    /// A process or kernel thread whose requests were served meanwhile.
    #[derive(Deserialize)]
    pub struct Neighbour {
        /// `None`: all processes without a slot, and requests without a single owner (flushes).
        pub pid: Option<u32>,
        /// The name of its first thread when it last submitted a request.
        pub comm: Option<String>,
        pub is_kernel_thread: bool,
        /// The time in which the disk served it.
        pub ns: u64,
        /// The number of its requests that completed.
        pub requests: u64,
        pub bytes: u64,
    }
}

impl Neighbours {
    /// Sets `idle_ns` to what the other parts leave of the wait.
    #[must_use]
    pub fn with_rest(mut self) -> Self {
        let others = self.others.iter().map(|other| other.ns);
        let known = others.fold(self.own_ns.saturating_add(self.untold_ns), u64::saturating_add);
        self.idle_ns = self.waited_ns.saturating_sub(known);
        self
    }
}
