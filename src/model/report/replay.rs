//! What came of a replay.

use serde::{Deserialize, Serialize};

use crate::model::histogram::Bucket;

/// A replay: what was made, and how it compares with the recording. Times are in nanoseconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ReplayReport {
    /// From the first begin to the last end of the calls that are replayed, in the recording.
    pub recorded_ns: u64,
    /// The same in the replay.
    pub took_ns: u64,
    /// The factor; 0: without waiting for any moment.
    pub speed: f64,
    /// `schedule` or `think`.
    pub timing: String,
    /// `files`, `threads` or `total`.
    pub order: String,
    /// Calls of the recording.
    pub recorded_calls: u64,
    /// Those that were not selected.
    pub not_selected: u64,
    /// Those of the plan, and those that were made.
    pub planned: u64,
    pub done: u64,
    pub threads: u64,
    pub open_files: u64,
    /// Records of calls that were lost while recording.
    pub lost_calls: u64,
    pub not_replayed: Vec<NotReplayed>,
    /// Asynchronous requests and page faults, which are not replayed.
    pub asynchronous: u64,
    pub faults: u64,
    /// `None`: calls did not wait for moments.
    pub lateness: Option<Lateness>,
    pub equal: u64,
    pub different: Vec<Different>,
    /// In the order of their time in the recording, the longest first.
    pub operations: Vec<Operation>,
    /// Files that were opened without `O_DIRECT`, since their file system refuses it.
    pub not_direct: u64,
    /// Calls of direct I/O whose offset and size were rounded to blocks.
    pub direct_rounded: u64,
    /// Open files that are neither a regular file nor a directory, and so were not used.
    pub refused: u64,
    /// A signal ended it.
    pub was_ended: bool,
}

/// Calls that were recorded and are not replayed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotReplayed {
    pub op: String,
    pub reason: String,
    pub calls: u64,
}

/// How long after its time a call began.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Lateness {
    /// `None`: of too few calls.
    pub p50_ns: Option<u64>,
    pub p90_ns: Option<u64>,
    pub p99_ns: Option<u64>,
    pub max_ns: u64,
    /// Sums by cause: the timer or a busy CPU, an earlier call of another thread, the previous call of the same thread.
    pub timer_ns: u64,
    pub earlier_call_ns: u64,
    pub thread_busy_ns: u64,
    pub buckets: Vec<Bucket>,
}

/// Calls whose result differs from the recorded one in the same way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Different {
    pub op: String,
    /// `fewer bytes`, `more bytes`, `failed`, `succeeded` or `other`.
    pub how: String,
    /// The error of the replayed call that failed, or of the recorded one whose replay succeeded.
    pub errno: Option<i32>,
    pub calls: u64,
}

/// The times of the calls of an operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    pub op: String,
    pub calls: u64,
    pub recorded_ns: u64,
    pub replayed_ns: u64,
}

/// Calls in the recording and in the replay.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Compared {
    /// A family of the whole stack, or a layer and its operation.
    pub name: String,
    /// `None`: not measured.
    pub recorded_calls: Option<u64>,
    pub replayed_calls: Option<u64>,
    pub rows: Vec<ComparedRow>,
}

/// A number of both.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ComparedRow {
    /// `calls/s` and `bytes` per second, shares of reads in percent, or times in nanoseconds.
    pub row: String,
    /// `None`: not measured.
    pub recorded: Option<f64>,
    pub replayed: Option<f64>,
    /// The difference may be chance; `None`: there is none.
    pub within_noise: Option<bool>,
}
