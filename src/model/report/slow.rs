//! Slow calls, told one by one as they end.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use crate::model::ids::PathKind;
use crate::model::ids::{Op, Row};
use crate::model::object::objects;

/// One call that took as long as asked for, or longer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowCall {
    /// When it returned.
    #[serde(with = "crate::model::since_epoch")]
    pub ended: Timestamp,
    /// As the kernel numbers them.
    pub pid: u32,
    pub tid: u32,
    /// The thread's name.
    pub comm: String,
    /// Of the layer `syscall`.
    pub op: Op,
    /// `None`: it worked on no file, or its name cannot be had any more.
    pub path: Option<CallPath>,
    /// Of the file it worked on, where that is known.
    pub inode: Option<Inode>,
    /// Where in the file, in bytes: as it was asked for, else the file's own position before the call.
    pub offset: Option<u64>,
    /// Bytes asked for, where an argument says so.
    pub size: Option<u64>,
    /// Bytes moved; `None` for calls that move none, and those that failed.
    pub bytes: Option<u64>,
    /// Positive; `None` for a call that did not fail.
    pub errno: Option<i32>,
    pub total_ns: u64,
    /// Where the time went, in the order of the stack; their sum is `total_ns`. Layers that the call did not come by, and
    /// what it did not wait for, are left out.
    pub rows: Vec<SlowRow>,
    /// No layer below the system calls is measured: the row of these is all time in the kernel that was no wait.
    pub not_split: bool,
}

objects! {
    /// A file by its number.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Inode {
        pub number: u64,
        /// Of the file system, which is not always the one that `stat` tells (btrfs).
        pub major: u32,
        pub minor: u32,
    }
}

/// A row of the whole stack's view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowRow {
    pub row: Row,
    /// More than 0.
    pub ns: u64,
}

/// The name of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallPath {
    pub kind: PathKind,
    pub text: String,
}

/// Slow calls of the span of a report.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowReport {
    /// From how long on they are told, in nanoseconds.
    pub threshold_ns: u64,
    pub told: u64,
    pub left_out: LeftOut,
}

objects! {
    /// Slow calls that were counted and not told.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct LeftOut {
        /// More in a second than are told.
        pub limited: u64,
        /// The reader was late, and there was no room.
        pub no_room: u64,
    }
}

impl LeftOut {
    /// All of them together.
    #[must_use]
    pub fn sum(self) -> u64 {
        self.limited.saturating_add(self.no_room)
    }

    /// What came since `before`. Counters may wrap.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            limited: self.limited.wrapping_sub(before.limited),
            no_room: self.no_room.wrapping_sub(before.no_room),
        }
    }
}

impl SlowReport {
    /// All of them, told or not.
    #[must_use]
    pub fn calls(self) -> u64 {
        self.told.saturating_add(self.left_out.sum())
    }
}

impl SlowCall {
    /// One of which nothing else is known.
    #[must_use]
    pub fn new(op: Op, ended: Timestamp) -> Self {
        Self {
            ended,
            pid: 0,
            tid: 0,
            comm: String::new(),
            op,
            path: None,
            inode: None,
            offset: None,
            size: None,
            bytes: None,
            errno: None,
            total_ns: 0,
            rows: Vec::new(),
            not_split: false,
        }
    }

    /// A row's name for people.
    #[must_use]
    pub fn label(&self, row: &SlowRow) -> &'static str {
        row.row.label(!self.not_split)
    }

    /// The row with most of the time: the first one of equals.
    #[must_use]
    pub fn guilty(&self) -> Option<&SlowRow> {
        self.rows.iter().rev().max_by_key(|row| row.ns)
    }
}
