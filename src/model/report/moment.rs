//! What the live view has of a second in addition to its report: the use of disks, and what only records have.

use serde::{Deserialize, Serialize};

use super::group::Who;
use super::slow::SlowCall;
use crate::model::ids::{By, Row};

/// A second's single calls and requests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// Calls by process, file and disk, the groups with most time first.
    pub groups: Vec<(By, Vec<MomentGroup>)>,
    /// Calls by process and open file, those with most time first.
    pub open_files: Vec<OpenFileUse>,
    /// Calls that were slow, in the order of their ends; of many, the slowest.
    pub slow_calls: Vec<SlowCall>,
    /// Slow calls that are not in the list.
    pub slow_left_out: u64,
    /// By limit: how many calls or requests took longer, of how many.
    pub limits: Vec<[u64; 2]>,
    pub disks: Vec<DiskUse>,
    /// Records that were lost: what is here is incomplete by them.
    pub lost: u64,
}

/// Calls of one process, on one file, or on the files of one disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MomentGroup {
    pub who: Who,
    pub calls: u64,
    pub ns: u64,
    pub bytes: u64,
    pub longest_ns: u64,
    /// Where their time was spent, the largest row first, without rows of 0.
    pub rows: Vec<(Row, u64)>,
}

/// The calls of one process on one of its open files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenFileUse {
    pub pid: u32,
    /// `None`: not known.
    pub fd: Option<i32>,
    pub who: Who,
    pub calls: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    pub ns: u64,
    pub longest_ns: u64,
}

/// How busy a disk was.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskUse {
    pub name: String,
    pub requests: u64,
    /// `None`: not known.
    pub read_bytes: Option<u64>,
    pub written_bytes: Option<u64>,
    /// The time in which requests were under way.
    pub busy_ns: u64,
    /// The sum of the times of all requests: divided by the span, it is the mean depth.
    pub requests_ns: u64,
    /// The most requests at a time; `None`: not known.
    pub max_depth: Option<u64>,
    pub span_ns: u64,
}
