//! The plan of a replay: what is prepared, how many calls each thread makes, and what all of them need. The calls
//! themselves are made [window](Plan::windows) by window.

use std::collections::BTreeMap;

use super::does::{Does, Why};
use super::load::Recorded;
use super::making::Making;
use super::order::Edge;
use super::path::Spot;
use super::ranges::Ranges;
use super::windows::Windows;
use crate::model::ids::Op;
use crate::model::record::{Kind, Records};

/// No file, path or text.
pub const NONE: u32 = u32::MAX;

/// A call of a replay. `file`, `spot` and the like are indices into the lists of its [`Plan`], or [`NONE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Action {
    /// Nanoseconds since the first call of the recording, and how long it took there.
    pub begin_ns: u64,
    pub took_ns: u64,
    pub op: Op,
    pub does: Does,
    /// What it returned in the recording: a negative errno, bytes, or 0; of an open, 0.
    pub value: i64,
    /// The offset in the file, the new length of one that is cut, or its new owners; of a copy, [`AT_POSITION`] if it has none.
    pub offset: u64,
    /// Of a copy to another file, the offset in that, or [`AT_POSITION`].
    pub other_offset: u64,
    /// Bytes; of an open, the mode of the file that it makes.
    pub size: u64,
    /// Flags or a mode, as the call has them; of reads and writes of several buffers without flags, their number.
    pub extra: u32,
    /// The position of the open file has to be set before the call, to `offset`: it was moved without a recorded call.
    pub seeks: bool,
    pub file: u32,
    pub file2: u32,
    pub spot: u32,
    /// Of a symbolic link, the index of its text.
    pub spot2: u32,
    pub(super) edges: (u32, u16),
}

/// A copy uses the position of its file.
pub const AT_POSITION: u64 = u64::MAX;

/// A thread of a replay.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Thread {
    /// The recorded thread; of several that never overlapped, the first one.
    pub tid: u32,
    pub calls: u32,
    /// It needs no descriptors of other threads, and they need none of its own.
    pub is_alone: bool,
    /// Bytes of the largest read and write.
    pub largest_read: u64,
    pub largest_write: u64,
}

/// Calls of a thread that follow each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    pub thread: u32,
    pub actions: Vec<Action>,
    edges: Vec<Edge>,
}

impl Part {
    /// Without calls.
    #[must_use]
    pub fn new(thread: u32) -> Self {
        Self {
            thread,
            actions: Vec::new(),
            edges: Vec::new(),
        }
    }

    /// Adds the next call, and those that it waits for.
    pub(super) fn add(&mut self, mut action: Action, edges: Vec<Edge>) {
        let from = u32::try_from(self.edges.len()).unwrap_or(u32::MAX);
        let count = u16::try_from(edges.len()).unwrap_or(u16::MAX);
        action.edges = (from, count);
        self.edges.extend(edges.into_iter().take(usize::from(count)));
        self.actions.push(action);
    }

    /// The calls that this one waits for.
    #[must_use]
    pub fn edges_of(&self, action: &Action) -> &[Edge] {
        let (from, count) = action.edges;
        let from = from as usize;
        self.edges.get(from..from + usize::from(count)).unwrap_or_default()
    }
}

/// An open file of a replay.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Opened {
    /// Its path when it was opened, as index of a spot.
    pub spot: u32,
    /// Calls that use it. It is closed by the last one.
    pub uses: u32,
    /// Of one that was opened before the recording; `None`: a call opens it. Few are.
    pub found: Option<Box<Found>>,
}

/// An open file before the recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// With the numbers of x86-64.
    pub flags: u32,
    pub position: u64,
}

/// What must exist before the first call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prepared {
    pub spot: u32,
    pub what: What,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    Folder {
        /// Permissions; 0: unknown.
        mode: u32,
    },
    File {
        mode: u32,
        size: u64,
        /// Bytes that are allocated, rounded up to blocks of 512; `None`: unknown.
        allocated: Option<u64>,
        /// What is read before it is written, or overwritten, and so must be data.
        data: Ranges,
        /// What of that was in the page cache when it was first read.
        cached: Ranges,
    },
    /// A symbolic link that leads nowhere, with a text of this length.
    Link { length: u64 },
    /// Another name of a file that is prepared before it.
    Same { spot: u32 },
}

/// See the module.
#[derive(Debug)]
pub struct Plan {
    pub threads: Vec<Thread>,
    pub files: Vec<Opened>,
    pub spots: Vec<Spot>,
    pub texts: Vec<String>,
    /// Directories before what is in them.
    pub prepared: Vec<Prepared>,
    /// What calls may make, as indices of spots.
    pub made: Vec<u32>,
    /// Bytes that are needed for what is prepared, and by what is written beyond it, by root.
    pub needed: Vec<u64>,
    /// Open files at the same time, at most.
    pub most_open: usize,
    /// Calls that are not replayed.
    pub left_out: BTreeMap<(Op, Why), u64>,
    /// Calls of the recording, and those that were not selected.
    pub recorded: u64,
    pub not_selected: u64,
    pub asynchronous: u64,
    pub faults: u64,
    pub lost: BTreeMap<Kind, u64>,
    /// The recording says which reads came from the page cache.
    pub has_classes: bool,
    /// Nanoseconds from the first begin to the last end of a call.
    pub span_ns: u64,
    /// Calls that change owners.
    pub changes_of_owners: usize,
    pub(super) making: Making,
}

impl Plan {
    /// All calls that are replayed.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.threads.iter().map(|thread| u64::from(thread.calls)).sum()
    }

    /// The calls themselves, window by window. `batches` are those that the plan was made of, which are read again.
    pub fn windows<'a, B>(&'a self, batches: B) -> Windows<'a, impl Iterator<Item = Recorded> + use<'a, B>>
    where
        B: Iterator<Item = Records>,
    {
        Windows::new(&self.making, self.threads.len(), self.making.loaded.calls(batches))
    }
}

impl Action {
    pub(super) fn new(op: Op, does: Does) -> Self {
        Self {
            begin_ns: 0,
            took_ns: 0,
            op,
            does,
            value: 0,
            offset: 0,
            other_offset: 0,
            size: 0,
            extra: 0,
            seeks: false,
            file: NONE,
            file2: NONE,
            spot: NONE,
            spot2: NONE,
            edges: (0, 0),
        }
    }
}
