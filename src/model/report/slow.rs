//! Slow calls, reported one by one as they end.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use crate::model::ids::PathKind;
use crate::model::ids::{Op, Row};
use crate::model::object::objects;

/// One call that took at least as long as the threshold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowCall {
    /// When it returned.
    #[serde(with = "crate::model::since_epoch")]
    pub ended: Timestamp,
    /// Numbers in the initial PID namespace.
    pub pid: u32,
    pub tid: u32,
    /// The thread's name.
    pub comm: String,
    /// An op of the layer `syscall`.
    pub op: Op,
    /// `None`: the call was on no file, or the file's name is no longer available.
    pub path: Option<CallPath>,
    /// The call's file, if it is known.
    pub inode: Option<Inode>,
    /// The offset in the file, in bytes: the one given to the call, otherwise the file's own position before the call.
    pub offset: Option<u64>,
    /// The requested number of bytes, if an argument says so.
    pub size: Option<u64>,
    /// Bytes moved; `None` for calls that do not move any, and for those that failed.
    pub bytes: Option<u64>,
    /// Positive; `None` if the call succeeded.
    pub errno: Option<i32>,
    pub total_ns: u64,
    /// Where the time was spent, in the order of the stack; the sum is `total_ns`. Layers that the call did not reach,
    /// and waits that it did not have, are left out.
    pub rows: Vec<SlowRow>,
    /// No layer below the system calls is measured: the row `syscall` is all time in the kernel that was not a wait.
    pub not_split: bool,
}

objects! {
    /// A file by its number.
    #[derive(Copy, PartialOrd, Ord, Hash, Deserialize)]
    pub struct Inode {
        pub number: u64,
        /// The device of the file system, which is not always the one that `stat` returns (btrfs).
        pub major: u32,
        pub minor: u32,
    }
}

impl Inode {
    /// On a device, by its major and minor number.
    #[must_use]
    pub const fn on([major, minor]: [u32; 2], number: u64) -> Self {
        Self { number, major, minor }
    }
}

/// A row of the whole stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowRow {
    pub row: Row,
    /// More than 0.
    pub ns: u64,
}

/// The name of a file.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CallPath {
    pub kind: PathKind,
    pub text: String,
}

impl CallPath {
    #[must_use]
    pub fn new(kind: PathKind, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { kind, text }
    }

    /// From the root of the mount namespace.
    #[must_use]
    pub fn whole(text: impl Into<String>) -> Self {
        Self::new(PathKind::Whole, text)
    }
}

/// The slow calls in the span of a report.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowReport {
    /// The threshold, in nanoseconds.
    pub threshold_ns: u64,
    pub reported: u64,
    pub left_out: LeftOut,
}

objects! {
    /// Slow calls that were counted, but not reported.
    #[derive(Copy, Deserialize)]
    pub struct LeftOut {
        /// Calls beyond the maximum per second.
        pub limited: u64,
        /// Calls for which there was no room, because the reader was slow.
        pub no_room: u64,
    }
}

impl LeftOut {
    /// Their sum.
    #[must_use]
    pub fn sum(self) -> u64 {
        self.limited.saturating_add(self.no_room)
    }

    /// The increase since `before`. Counters may wrap.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            limited: self.limited.wrapping_sub(before.limited),
            no_room: self.no_room.wrapping_sub(before.no_room),
        }
    }
}

impl SlowReport {
    /// All slow calls, reported or not.
    #[must_use]
    pub fn calls(self) -> u64 {
        self.reported.saturating_add(self.left_out.sum())
    }
}

impl SlowCall {
    /// A row's name for people.
    #[must_use]
    pub fn label(&self, row: &SlowRow) -> &'static str {
        row.row.label(!self.not_split)
    }

    /// The row with most of the time; the first one if there are several.
    #[must_use]
    pub fn largest_row(&self) -> Option<&SlowRow> {
        self.rows.iter().rev().max_by_key(|row| row.ns)
    }
}
