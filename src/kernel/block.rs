//! What the kernel tells of its block layer.

use std::collections::BTreeMap;

/// Its tracepoints and its codes, out of BTF.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BlockFacts {
    /// The tracepoints that there are, with the names of the types that their arguments are of, or point to. They change:
    /// `block_rq_issue` had a `request_queue` before its `request` until 5.11 (a54895fa057c).
    pub tracepoints: BTreeMap<String, Vec<String>>,
    /// Codes of request operations by the names of their enumerators. 6.8 gave some of them other numbers.
    pub codes: BTreeMap<String, u32>,
}

impl BlockFacts {
    /// Whether there is a tracepoint of this name, with an argument of this type; and which one it is, from 0.
    #[must_use]
    pub fn argument(&self, tracepoint: &str, kind: &str) -> Option<u8> {
        let place = self.tracepoints.get(tracepoint)?.iter().position(|name| name == kind)?;
        u8::try_from(place).ok()
    }

    /// Whether there is a tracepoint of this name.
    #[must_use]
    pub fn has(&self, tracepoint: &str) -> bool {
        self.tracepoints.contains_key(tracepoint)
    }
}
