//! Facts about the kernel's block layer.

use std::collections::BTreeMap;

/// Its tracepoints, operation codes and flags, from BTF.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BlockFacts {
    /// The existing tracepoints, with the names of the types of their arguments, without pointers. They change:
    /// `block_rq_issue` had a `request_queue` before its `request` until 5.11 (a54895fa057c).
    pub tracepoints: BTreeMap<String, Vec<String>>,
    /// Codes of request operations by the names of their enumerators. 6.8 renumbered some of them.
    pub codes: BTreeMap<String, u32>,
    /// Bits of the flags of requests by the names of their enumerators (`enum req_flag_bits`).
    pub flags: BTreeMap<String, u32>,
}

impl BlockFacts {
    /// The index, from 0, of the argument of this type, if there is a tracepoint of this name with one.
    #[must_use]
    pub fn argument(&self, tracepoint: &str, kind: &str) -> Option<u8> {
        let index = self.tracepoints.get(tracepoint)?.iter().position(|name| name == kind)?;
        u8::try_from(index).ok()
    }

    /// Whether there is a tracepoint of this name.
    #[must_use]
    pub fn has(&self, tracepoint: &str) -> bool {
        self.tracepoints.contains_key(tracepoint)
    }
}
