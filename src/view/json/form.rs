//! The fields of a line of JSON, each defined once for writing and reading. `schema/report.schema.json` describes them.
//!
//! Every field is always present. `null` means not measured, and comes with a reason; 0 was measured. Times are in
//! nanoseconds, and all numbers are integers, exact up to 2^64 - 1.
//!
//! Names of layers, operations, hooks and the like are strings here: a file of another version may have more of them.

use serde::{Deserialize, Deserializer};

use crate::model::cost::Runs;
use crate::model::object::{self, Named, objects};
use crate::model::report::estimate::Estimate;
use crate::model::report::neighbour::Neighbours;
use crate::model::report::slow::{Inode, LeftOut};
use crate::model::report::stack::Unbalanced;
use crate::model::report::{Excluded as ByKind, Filter, NotMeasured, SetAside};

objects! {
    /// A run, or an interval of one.
    pub struct Report {
        pub schema_version: u32,
        pub version: String,
        pub kernel: String,
        pub start: String,
        pub duration_ns: u64,
        pub subject: String,
        pub filter: Filter,
        /// `None`: all calls were measured.
        pub sample: Option<Sampling>,
        pub layers: Vec<Layer>,
        pub stack: Option<Stack>,
        pub groups: Option<Groups>,
        pub excluded: Excluded,
        pub in_flight: InFlight,
        pub lost: Named<Option<u64>>,
        pub lost_up_to: Vec<String>,
        pub cost: Cost,
        pub probes: Vec<Probe>,
        pub warnings: Vec<String>,
    }

    /// Numbers of calls are estimates.
    pub struct Sampling {
        pub one_in: u64,
        /// Of the intervals, in percent.
        pub confidence: u64,
    }

    /// A line between reports: one of its fields is present.
    pub struct Line {
        pub schema_version: u32,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub slow_call: Option<SlowCall>,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub slow_calls_not_told: Option<LeftOut>,
    }

    pub struct SlowCall {
        pub end: String,
        pub pid: u32,
        pub tid: u32,
        pub comm: String,
        pub op: String,
        pub path: Option<String>,
        pub path_is: Option<String>,
        pub inode: Option<Inode>,
        pub offset: Option<u64>,
        pub size: Option<u64>,
        pub bytes: Option<u64>,
        pub error: Option<String>,
        pub total_ns: u64,
        pub rows: Vec<SlowRow>,
        pub guilty: Option<String>,
        pub kernel_time_split: bool,
    }

    pub struct SlowRow {
        pub row: String,
        pub kind: String,
        pub ns: u64,
    }

    /// The cost of measuring. That of the process is `None` if the counters cannot be read, that of the probes if the kernel did
    /// not count it, for the given reason.
    pub struct Cost {
        pub process_ns: Option<u64>,
        pub probes_ns: Option<u64>,
        pub probe_runs: Option<u64>,
        pub reason: Option<String>,
        pub budget: Option<Budget>,
    }

    /// Shares are nanoseconds of CPU time per second.
    pub struct Budget {
        pub limit_ns_per_s: u64,
        pub detached: Vec<Detached>,
    }

    pub struct Detached {
        pub layer: String,
        pub after_ns: u64,
        pub until_ns: Option<u64>,
        pub layer_ns_per_s: u64,
        pub all_ns_per_s: u64,
        pub under_way: Option<u64>,
    }

    pub struct Probe {
        pub layer: Option<String>,
        pub hook: String,
        pub functions: Vec<String>,
        pub entry: Option<Runs>,
        pub leave: Option<Runs>,
        pub skipped: Option<u64>,
    }

    pub struct Layer {
        pub layer: String,
        pub measured: bool,
        pub reason: Option<String>,
        pub hooks: Vec<String>,
        pub ops: Vec<Op>,
        pub excluded: Excluded,
        pub in_flight: InFlight,
        pub lost: Named<Option<u64>>,
        pub lost_up_to: Vec<String>,
        pub lost_causes: Vec<LossCause>,
        pub not_measured: Vec<NotMeasured>,
        pub warnings: Vec<String>,
        pub queue_from: Option<String>,
        pub diskstats: Option<Diskstats>,
        pub neighbours: Option<Neighbours>,
    }

    /// An `Option` is `None` if it was not measured.
    pub struct Op {
        pub op: String,
        pub measured: bool,
        pub reason: Option<String>,
        pub count: Option<u64>,
        /// By name, the most frequent first.
        pub errors: Option<Named<u64>>,
        pub bytes: Option<u64>,
        pub total_ns: Option<u64>,
        pub min_ns: Option<u64>,
        pub max_ns: Option<u64>,
        pub p50_ns: Option<u64>,
        pub p90_ns: Option<u64>,
        pub p99_ns: Option<u64>,
        pub queue_ns: Option<u64>,
        pub async_not_timed: Option<u64>,
        pub apart: Option<SetAside>,
        pub buckets: Option<Vec<Bucket>>,
        pub attach: Vec<Attach>,
        pub refused: Vec<Refused>,
        /// Losses known to be those of this op.
        pub lost: Option<Named<u64>>,
        /// `None`: all calls were measured.
        pub estimate: Option<Estimate>,
    }

    /// A step of a histogram.
    #[derive(Copy)]
    pub struct Bucket {
        pub ge_ns: u64,
        pub lt_ns: Option<u64>,
        pub count: u64,
    }

    pub struct Attach {
        pub function: String,
        pub hook: String,
    }

    pub struct Refused {
        pub function: String,
        pub hook: String,
        pub error: String,
    }

    pub struct Excluded {
        pub not_file: Option<u64>,
        /// Absent in reports of earlier versions.
        pub by_kind: Option<ByKind>,
    }

    pub struct InFlight {
        pub start: Option<u64>,
        pub end: Option<u64>,
    }

    /// Why the kernel ran no program that would have seen the lost samples.
    pub struct LossCause {
        pub reason: String,
        pub cause: String,
        pub event: String,
        pub count: u64,
    }

    pub struct Diskstats {
        pub reads: u64,
        pub writes: u64,
        pub discards: u64,
        pub flushes: Option<u64>,
        pub agreement: String,
        pub detail: Option<String>,
    }

    pub struct Stack {
        /// `None` in reports of an early version, which always split it.
        pub kernel_time_split: Option<bool>,
        pub families: Vec<Family>,
        pub not_waited: Option<Vec<Origin>>,
        pub unbalanced: Unbalanced,
        pub not_measured: Vec<NotMeasured>,
        pub slow: Option<SlowCalls>,
    }

    /// The slow calls of a report's span.
    pub struct SlowCalls {
        pub threshold_ns: u64,
        pub told: u64,
        pub limited: u64,
        pub no_room: u64,
    }

    pub struct Family {
        pub family: String,
        pub count: u64,
        pub errors: u64,
        pub bytes: u64,
        pub total_ns: u64,
        pub min_ns: Option<u64>,
        pub max_ns: Option<u64>,
        pub p50_ns: Option<u64>,
        pub p90_ns: Option<u64>,
        pub p99_ns: Option<u64>,
        pub rows: Vec<Row>,
        pub classes: Vec<Class>,
        pub buckets: Vec<Bucket>,
        /// `None`: all calls were measured.
        pub estimate: Option<Estimate>,
    }

    pub struct Row {
        pub row: String,
        pub kind: String,
        pub ns: Option<u64>,
        pub calls: Option<u64>,
    }

    pub struct Class {
        pub class: String,
        pub count: u64,
        pub bytes: u64,
    }

    pub struct Origin {
        pub origin: String,
        pub direction: String,
        pub count: u64,
        pub bytes: u64,
        pub queue_ns: u64,
        pub device_ns: u64,
    }

    pub struct Groups {
        pub by: String,
        pub groups: Vec<Group>,
        pub others: Option<Others>,
    }

    pub struct Group {
        pub name: String,
        /// The owner of these calls or requests is not known.
        pub nobody: bool,
        /// The records of these calls or requests were lost.
        pub no_record: bool,
        pub pid: Option<u64>,
        pub tid: Option<u64>,
        pub comm: Option<String>,
        pub fd: Option<u32>,
        pub uid: Option<u32>,
        pub inode: Option<Inode>,
        pub path_is: Option<String>,
        pub numbers: Numbers,
    }

    pub struct Others {
        pub groups: u64,
        pub no_room: u64,
        pub numbers: Numbers,
    }

    /// Entries without calls are left out.
    pub struct Numbers {
        pub layers: Vec<GroupLayer>,
        pub families: Vec<Family>,
        pub not_waited: Vec<Origin>,
    }

    pub struct GroupLayer {
        pub layer: String,
        pub ops: Vec<GroupOp>,
    }

    pub struct GroupOp {
        pub op: String,
        pub count: u64,
        pub errors: u64,
        pub bytes: Option<u64>,
        pub total_ns: u64,
        pub min_ns: Option<u64>,
        pub max_ns: Option<u64>,
        pub p50_ns: Option<u64>,
        pub p90_ns: Option<u64>,
        pub p99_ns: Option<u64>,
        pub queue_ns: Option<u64>,
        pub buckets: Vec<Bucket>,
        /// `None`: all calls were measured.
        pub estimate: Option<Estimate>,
    }
}

impl<'de> Deserialize<'de> for Report {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        object::read(from, &["start", "duration_ns", "subject"])
    }
}

impl<'de> Deserialize<'de> for Line {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        object::read(from, &["schema_version"])
    }
}
