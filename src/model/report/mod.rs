//! What a run has to say, independent of the form it is said in. Times are in nanoseconds throughout, counts and bytes are plain
//! numbers.

pub mod group;
pub mod neighbour;
pub mod slow;
pub mod stack;

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use self::group::GroupsReport;
use self::neighbour::Neighbours;
use self::stack::StackReport;
pub use super::cost::Runs;
use super::cost::{CpuShare, Detached};
use super::histogram::Histogram;
pub use super::ids::{CauseKind, Hook, LossReason};
use super::ids::{Layer, Op};
use super::object::objects;

/// Up to 584 years; a longer span is told as that.
#[must_use]
pub fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// One report: the whole run, or one interval of it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Report {
    /// When the span began.
    #[serde(with = "super::since_epoch")]
    pub start: Timestamp,
    /// Time of day at the end of the span, already in the form `HH:MM:SS` of the local time zone.
    pub time_of_day: String,
    /// Length of the span that the numbers are of.
    pub length: Duration,
    /// What was asked for, for example `PID 4711 (postgres)` or `nvme0n1`; empty without a filter.
    pub subject: String,
    /// The same, piece by piece.
    pub filter: Filter,
    /// Release of the kernel that was measured, for example `6.1.0-50-amd64`.
    pub kernel: String,
    /// In the order of the stack, system call first.
    pub layers: Vec<LayerReport>,
    /// Every moment of every call in one row; `None` where single layers were asked for.
    pub stack: Option<StackReport>,
    /// The same by process, file, disk or control group; `None` where that was not asked for.
    pub groups: Option<GroupsReport>,
    /// All that was attached, whichever layer it serves.
    pub probes: Vec<Probe>,
    /// What measuring took.
    pub cost: Cost,
    /// What concerns no single layer, for example children that were not followed. One sentence each.
    pub warnings: Vec<String>,
}

/// What measuring took of the machine in the span of a report.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// CPU time of the tool's own process.
    pub process: Duration,
    /// The run time of its programs in the kernel was counted too; it is told of each probe.
    pub has_runs: bool,
    /// Why it was asked for and is not.
    pub no_runs: Option<String>,
    /// What it may be; `None` when nobody has said.
    pub budget: Option<Budget>,
}

/// What measuring may take, and what was detached so far to keep to it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    pub limit: CpuShare,
    /// In the order in which they went.
    pub detached: Vec<Detached>,
}

/// Programs attached to a function, to many, or to an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// `None`: it serves several layers, or the filters.
    pub layer: Option<Layer>,
    pub hook: Hook,
    pub functions: Vec<String>,
    /// Runs of the program at the entry, whosever calls they were; of a session those at both ends. `None`: not counted.
    pub entry: Option<Runs>,
    /// Runs of the program at the return, if there is one. `None`: not counted, or there is none.
    pub leave: Option<Runs>,
    /// Entries that the kernel skipped; of fsession entries and returns. `None`: not counted by this kernel, or seen by another probe.
    pub skipped: Option<u64>,
}

/// An attempt to attach that the kernel refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// A function or tracepoint, or words for many.
    pub function: String,
    pub hook: Hook,
    pub error: String,
}

objects! {
    /// Whose I/O a report is of; without any, everybody's.
    #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Filter {
        /// As numbered in the PID namespace that the run was started in.
        pub pids: Vec<u32>,
        /// The descendants of `pids`, or of the command, too.
        pub follow: bool,
        /// Name of the disk as the kernel has it.
        pub disk: Option<String>,
        /// Times at `blk` are from the request's start, not from its issue.
        pub queued: bool,
        /// As it was asked for.
        pub cgroup: Option<String>,
        /// Name of the threads.
        pub comm: Option<String>,
        /// The command that was started, word by word.
        pub command: Option<Vec<String>>,
        /// The one file, as it was asked for.
        pub file: Option<String>,
        /// Files of every kind, not only those that can live on a disk.
        pub all_files: bool,
    }
}

impl Filter {
    /// Whether only some processes' calls are asked for.
    #[must_use]
    pub fn is_by_process(&self) -> bool {
        !self.pids.is_empty() || self.command.is_some() || self.cgroup.is_some() || self.comm.is_some()
    }
}

/// One layer of a report.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LayerReport {
    pub layer: Layer,
    /// Every op that was measured, in the order of the layer's table, those without a call included.
    pub ops: Vec<OpReport>,
    /// Ops, or parts of ops, that could not be measured on this machine.
    pub not_measured: Vec<NotMeasured>,
    /// Those of the layer's ops that are not in `ops`, by name, in the order of its table.
    pub absent: Vec<NotMeasured>,
    /// The kinds of hook that measured it.
    pub hooks: Vec<Hook>,
    /// Calls left out because of the kind of their file.
    pub excluded: Excluded,
    /// Samples that are in no histogram, by reason; reasons without one are absent.
    pub losses: Vec<Loss>,
    /// This kernel does not count the entries that it skips, so that [`LossReason::EntryMissed`] is not known.
    pub skips_unknown: bool,
    /// Calls under way when the span ended. `None`: not known.
    pub in_flight: Option<u64>,
    /// What the reader must know of how this layer was measured, for example that a hook was forced that loses
    /// calls here. One sentence each.
    pub warnings: Vec<String>,
    /// At `blk`: what the kernel's own counters say of the same span. `None` at the other layers, and where they cannot be
    /// compared because only some processes' requests were asked for.
    pub diskstats: Option<Diskstats>,
    /// At `blk`, where only some processes' requests were asked for: whose the disks served meanwhile. `None` where that is
    /// not known.
    pub neighbours: Option<Neighbours>,
    /// At `blk`, with `-Q`: what tells when a request's queue time began.
    pub queue_from: Option<String>,
}

/// One op of a layer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OpReport {
    pub op: Op,
    /// Where it was timed.
    pub attach: Vec<AttachPoint>,
    /// What was tried before.
    pub refused: Vec<Refused>,
    /// Samples lost that are known to be this op's.
    pub losses: Vec<Loss>,
    /// Sum of the times of all calls.
    pub total_ns: u64,
    /// Bytes moved; `None` for an op that moves none.
    pub bytes: Option<u64>,
    /// Shortest and longest call; `None` without a call.
    pub extremes: Option<(u64, u64)>,
    /// Calls that failed, by errno (positive), most frequent first.
    pub errors: Vec<(i32, u64)>,
    /// Failed calls whose errno found no place: the rest of the errors.
    pub errors_unnamed: u64,
    /// Asynchronous calls that were submitted here and complete elsewhere: not timed, not in the count.
    pub queued: u64,
    /// At `blk`, with `-Q`: the part of `total_ns` between the request's start and its issue. `None` where it is not known.
    pub queue_ns: Option<u64>,
    /// At `blk`: requests that are not in the count, by what is special about them.
    pub apart: Apart,
    /// All calls' times in nanoseconds, in fine steps. Its count is the op's count.
    pub histogram: Histogram,
    /// Powers of two in the unit asked for (`-u`, `-m`), counted by the kernel; empty in nanoseconds, where they are
    /// sums of the histogram's steps. Element k counts times in [2^k, 2^(k+1)) units, element 0 also those below 1.
    pub unit_slots: Vec<u64>,
}

/// One place in the kernel where an op was timed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachPoint {
    /// A function's name, or a tracepoint's.
    pub function: String,
    pub hook: Hook,
}

objects! {
    /// Calls on files of a kind that was not asked for.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Excluded {
        pub socket: u64,
        pub pipe: u64,
        pub character_device: u64,
        /// What lives on no file system, such as an eventfd.
        pub other: u64,
    }

    /// Requests that are counted apart.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Apart {
        /// Issued before the run began, completed in this span.
        pub at_start: u64,
        /// Completed without ever being issued: what a flush was asked for with, when it carries no data, and what the driver refused.
        pub never_issued: u64,
        /// Submitted by kernel threads (writeback, journal), when only some processes' requests were asked for.
        pub by_kernel: u64,
        /// Without a known submitter, when only some processes' requests were asked for: flushes, which the kernel sends
        /// for whoever asked.
        pub unowned: u64,
        /// With `-Q`: the start of their queue time is not known, so they are not timed.
        pub untimed: u64,
    }
}

impl Excluded {
    /// All together.
    #[must_use]
    pub fn calls(self) -> u64 {
        let kinds = [self.socket, self.pipe, self.character_device, self.other];
        kinds.into_iter().fold(0, u64::saturating_add)
    }

    pub fn add(&mut self, others: Self) {
        for (sum, calls) in [
            (&mut self.socket, others.socket),
            (&mut self.pipe, others.pipe),
            (&mut self.character_device, others.character_device),
            (&mut self.other, others.other),
        ] {
            *sum = sum.saturating_add(calls);
        }
    }
}

/// What `/proc/diskstats` counted in the span of a report, and whether it is the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diskstats {
    pub reads: u64,
    /// Those that were never issued included, as the kernel counts them.
    pub writes: u64,
    pub discards: u64,
    /// `None`: not told of a partition, or before 5.5.
    pub flushes: Option<u64>,
    pub agreement: Agreement,
}

/// Whether two counts of the same requests are the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Agreement {
    Agrees,
    /// What differs, for example `reads 3,861, seen 3,860`.
    Differs(String),
    /// Why they cannot be compared, for example `queue/iostats is 0`.
    NotComparable(String),
}

objects! {
    /// Something that is not in the numbers because it could not be measured.
    #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct NotMeasured {
        /// `fsync`, `direct reads`.
        pub what: String,
        /// Why, for example `vfs_fsync_range, do_fsync: refused by this kernel`.
        pub reason: String,
    }
}

/// Samples lost for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    pub reason: LossReason,
    pub count: u64,
    /// The kernel counted these before the filters: some of them may be other processes' calls.
    pub up_to: bool,
    /// Why the kernel ran no program that would have seen it, where that is known.
    pub cause: Option<Cause>,
}

/// Why an event of requests was not seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cause {
    pub kind: CauseKind,
    /// The tracepoint, or the functions.
    pub event: String,
    pub is_tracepoint: bool,
    /// How many programs see each of these events.
    pub programs: u8,
}

impl LossReason {
    /// As in `LOST 12 of 84,201 samples (0.01 %): 12 returns missed.`
    #[must_use]
    pub fn describe(self, count: u64) -> &'static str {
        let (one, many) = match self {
            Self::ReturnMissed => ("return missed", "returns missed"),
            Self::IssueMissed => ("issue missed", "issues missed"),
            Self::EntryMissed => ("entry skipped by the kernel", "entries skipped by the kernel"),
            Self::NoStorage => (
                "start refused storage by the kernel",
                "starts refused storage by the kernel",
            ),
            Self::TableFull => ("start found its table full", "starts found their table full"),
            Self::ClockBackwards => ("return earlier than its entry", "returns earlier than their entries"),
        };
        if count == 1 { one } else { many }
    }
}

impl OpReport {
    /// Without a call.
    #[must_use]
    pub fn new(op: Op) -> Self {
        Self {
            op,
            attach: Vec::new(),
            refused: Vec::new(),
            losses: Vec::new(),
            total_ns: 0,
            bytes: None,
            extremes: None,
            errors: Vec::new(),
            errors_unnamed: 0,
            queued: 0,
            queue_ns: None,
            apart: Apart::default(),
            histogram: Histogram::default(),
            unit_slots: Vec::new(),
        }
    }

    /// Calls timed.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.histogram.count()
    }

    /// At `blk`: requests whose end was seen, timed or not.
    #[must_use]
    pub fn requests_ended(&self) -> u64 {
        let Apart {
            at_start,
            never_issued,
            untimed,
            ..
        } = self.apart;
        [at_start, never_issued, untimed]
            .into_iter()
            .fold(self.count(), u64::saturating_add)
            .saturating_add(self.lost_by(LossReason::IssueMissed))
    }

    /// Samples of this op that are known to be lost for this reason.
    #[must_use]
    pub fn lost_by(&self, reason: LossReason) -> u64 {
        let losses = self.losses.iter().filter(|loss| loss.reason == reason);
        losses.fold(0, |sum, loss| sum.saturating_add(loss.count))
    }

    /// Calls that failed.
    #[must_use]
    pub fn error_count(&self) -> u64 {
        self.errors
            .iter()
            .fold(self.errors_unnamed, |sum, (_, n)| sum.saturating_add(*n))
    }
}

impl Report {
    /// Run time of all programs in the kernel; `None` when it was not counted.
    #[must_use]
    pub fn probes_cost(&self) -> Option<Runs> {
        let runs = self
            .probes
            .iter()
            .flat_map(|probe| [probe.entry, probe.leave])
            .flatten();
        let sum = runs.fold(Runs::default(), |sum, runs| Runs {
            count: sum.count.saturating_add(runs.count),
            ns: sum.ns.saturating_add(runs.ns),
        });
        self.cost.has_runs.then_some(sum)
    }

    /// Calls and requests under way at the start and at the end, all measured layers together; `None` where one of them does not
    /// know. In the whole stack they are the system calls: one is under way at several layers at once.
    #[must_use]
    pub fn under_way(&self) -> [Option<u64>; 2] {
        let counts = |layer: &&LayerReport| self.stack.is_none() || layer.layer == Layer::Syscall;
        let measured = self.layers.iter().filter(|layer| !layer.ops.is_empty()).filter(counts);
        let sum = |of: fn(&LayerReport) -> Option<u64>| {
            let parts = measured.clone().map(of);
            parts.reduce(|sum, part| Some(sum?.saturating_add(part?))).flatten()
        };
        [sum(LayerReport::under_way_at_start), sum(|layer| layer.in_flight)]
    }
}

impl Probe {
    /// Of which nothing is counted.
    #[must_use]
    pub fn new(layer: Option<Layer>, hook: Hook, functions: Vec<String>) -> Self {
        Self {
            layer,
            hook,
            functions,
            entry: None,
            leave: None,
            skipped: None,
        }
    }
}

impl LayerReport {
    /// Without anything measured.
    #[must_use]
    pub fn new(layer: Layer) -> Self {
        Self {
            layer,
            ops: Vec::new(),
            not_measured: Vec::new(),
            absent: Vec::new(),
            hooks: Vec::new(),
            excluded: Excluded::default(),
            losses: Vec::new(),
            skips_unknown: false,
            in_flight: None,
            warnings: Vec::new(),
            diskstats: None,
            neighbours: None,
            queue_from: None,
        }
    }

    /// Requests that were under way when the run began, and ended in this span. `None` at layers of calls: a call whose
    /// entry was not seen leaves no trace at its return.
    #[must_use]
    pub fn under_way_at_start(&self) -> Option<u64> {
        let requests = self.ops.iter().map(|op| op.apart.at_start);
        (self.layer == Layer::Blk).then(|| requests.fold(0, u64::saturating_add))
    }

    /// Samples lost, all reasons together.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.losses.iter().fold(0, |sum, loss| sum.saturating_add(loss.count))
    }
}
