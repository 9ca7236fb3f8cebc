//! What a disk did while the requests that were asked for waited.

use serde::{Deserialize, Serialize};

use crate::model::object::objects;

objects! {
    /// Of all disks together. A moment is counted once for each disk on which one or more of the requests waited: from the start
    /// of their queue time to their end.
    #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Neighbours {
        /// All such moments, in nanoseconds. The parts below are disjoint, and together this.
        pub waited_ns: u64,
        /// The disk worked for one of the requests themselves.
        pub own_ns: u64,
        /// Those that ended meanwhile.
        pub own_requests: u64,
        /// It worked for others: the one that took most of it first.
        pub others: Vec<Neighbour>,
        /// More requests ended in one wait than are kept: what was before them is not known.
        pub untold_ns: u64,
        /// The rest: no request had been issued.
        pub idle_ns: u64,
        /// Ends of requests on disks for which there was no room: their waits are not in the numbers.
        pub unseen: u64,
    }

    /// A process, or a kernel thread, whose requests were served meanwhile.
    #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Neighbour {
        /// `None`: all for whom there was no place, and requests that the kernel sends for whoever asked (flushes).
        pub pid: Option<u32>,
        /// Name of its first thread, when it last submitted something.
        pub comm: Option<String>,
        pub is_kernel_thread: bool,
        /// Time that the disk worked for it.
        pub ns: u64,
        /// Its requests that ended.
        pub requests: u64,
        pub bytes: u64,
    }
}

impl Neighbours {
    /// What is left of the wait goes to the time without a request.
    #[must_use]
    pub fn with_rest(mut self) -> Self {
        let others = self.others.iter().map(|other| other.ns);
        let known = others.fold(self.own_ns.saturating_add(self.untold_ns), u64::saturating_add);
        self.idle_ns = self.waited_ns.saturating_sub(known);
        self
    }
}
