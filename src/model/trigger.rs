//! What makes a recording in memory be written: a call or request that took too long, failed, or does not return.

use super::ids::Op;
use super::record::FileNumber;
use super::report::records::Limited;

/// A condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    /// A call or request took this time or longer. `None`: any call.
    Slower { ns: u64, of: Option<Limited> },
    /// A call or request failed with this error. `None`: any call or request.
    Error { errno: u32, of: Option<Limited> },
    /// A call has been under way for this time.
    Stuck { ns: u64 },
}

/// What met a condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fired {
    /// When it ended; of a call under way, when it was noticed. By the programs' clock, in nanoseconds.
    pub at_ns: u64,
    pub op: Op,
    /// 0: unknown.
    pub tid: u32,
    /// 0: unknown.
    pub pid: u32,
    /// The open file of a call; 0: none.
    pub file: FileNumber,
    /// Of a request: the disk.
    pub disk: Option<[u32; 2]>,
    /// Of a call in the whole-stack view: the index of its largest row in [`Call::rows`](super::record::Call::rows), and
    /// its nanoseconds.
    pub row: Option<(usize, u64)>,
    pub outcome: Outcome,
}

/// How it met the condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It took this many nanoseconds; of a request, from its submission or its issue.
    Took(u64),
    /// It was in the queue for this many nanoseconds.
    Queued(u64),
    /// It failed with this error.
    Failed(u32),
    /// It has been under way for this many nanoseconds.
    UnderWay(u64),
}
