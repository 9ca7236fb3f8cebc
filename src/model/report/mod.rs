//! Reports, independent of the form in which they are printed. All times are in nanoseconds.

pub mod estimate;
pub mod group;
pub mod moment;
pub mod neighbour;
pub mod records;
pub mod replay;
pub mod slow;
pub mod stack;
mod sum;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use self::estimate::Estimate;
use self::group::GroupsReport;
use self::neighbour::Neighbours;
use self::stack::StackReport;
pub use super::cost::Runs;
use super::cost::{CpuShare, Detached};
use super::histogram::Histogram;
pub use super::ids::{CauseKind, Hook, LossReason};
use super::ids::{Layer, Op};
use super::object::objects;
use super::sample::Sample;

/// Up to 584 years; longer spans are cut to that.
#[must_use]
pub fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// One report: the whole run, or one interval of it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Report {
    /// The start of the span.
    #[serde(with = "super::since_epoch")]
    pub start: Timestamp,
    /// The time of day at the end of the span, as `HH:MM:SS` in the local time zone.
    pub time_of_day: String,
    /// The length of the span.
    pub length: Duration,
    /// What is selected, for example `PID 4711 (postgres)` or `nvme0n1`; empty without a filter.
    pub subject: String,
    /// The same as fields.
    pub filter: Filter,
    /// Only some calls were measured: the numbers of calls, above the block layer, are estimates. `None`: all were.
    #[serde(default)]
    pub sample: Option<Sample>,
    /// Release of the measured kernel, for example `6.1.0-50-amd64`.
    pub kernel: String,
    /// In the order of the stack, system calls first.
    pub layers: Vec<LayerReport>,
    /// The whole stack; `None` if single layers are measured.
    pub stack: Option<StackReport>,
    /// The same by process, file, disk or control group; `None` if not requested.
    pub groups: Option<GroupsReport>,
    /// All attached probes, whichever layer they serve.
    pub probes: Vec<Probe>,
    /// The cost of measuring.
    pub cost: Cost,
    /// Warnings that concern no single layer, for example children that were not followed. One sentence each.
    pub warnings: Vec<String>,
}

/// The cost of measuring in the span of a report.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// CPU time of the tool's own process.
    pub process: Duration,
    /// Whether the run time of the programs was counted; it is reported for each probe.
    pub has_runs: bool,
    /// Why it was requested, but not counted.
    pub no_runs: Option<String>,
    /// The limit on it; `None` if there is none.
    pub budget: Option<Budget>,
}

/// The limit on the cost, and the layers detached so far to keep it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    pub limit: CpuShare,
    /// In the order in which they were detached.
    pub detached: Vec<Detached>,
}

/// Programs attached to one or more functions, or to an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// `None`: it serves several layers, or the filters.
    pub layer: Option<Layer>,
    pub hook: Hook,
    pub functions: Vec<String>,
    /// Runs of the program at the entry, for the calls of all processes; for a session those at both ends. `None`: not
    /// counted.
    pub entry: Option<Runs>,
    /// Runs of the program at the return. `None`: not counted, or there is no such program.
    pub leave: Option<Runs>,
    /// Entries skipped by the kernel, for fsession entries and returns. `None`: not counted by this kernel, or seen by
    /// another probe.
    pub skipped: Option<u64>,
}

/// A refused attempt to attach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// A function or tracepoint, or a word for many.
    pub function: String,
    pub hook: Hook,
    pub error: String,
}

objects! {
    /// Whose I/O a report covers; without any filter, that of all processes.
    #[derive(Deserialize)]
    pub struct Filter {
        /// As numbered in the PID namespace in which the run was started.
        pub pids: Vec<u32>,
        /// Whether descendants of `pids` or of the command are included.
        pub follow: bool,
        /// The kernel's name of the disk.
        pub disk: Option<String>,
        /// Times at `blk` begin at the request's start, not at its issue.
        pub queued: bool,
        /// As given on the command line.
        pub cgroup: Option<String>,
        /// The name of the threads.
        pub comm: Option<String>,
        /// The command, split into words.
        pub command: Option<Vec<String>>,
        /// The single file, as given on the command line; in a recording with its path from the root on.
        pub file: Option<String>,
        /// Include files of every kind, not only those that can be on a disk.
        pub all_files: bool,
    }
}

impl Filter {
    /// Whether only some processes' calls are measured.
    #[must_use]
    pub fn is_by_process(&self) -> bool {
        !self.pids.is_empty() || self.command.is_some() || self.cgroup.is_some() || self.comm.is_some()
    }
}

/// One layer of a report.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct LayerReport {
    pub layer: Layer,
    /// Every measured op, in the order of the layer's table, including those without calls.
    pub ops: Vec<OpReport>,
    /// Ops, or parts of ops, that could not be measured on this machine.
    pub not_measured: Vec<NotMeasured>,
    /// The layer's ops that are not in `ops`, by name, in the order of its table.
    pub absent: Vec<NotMeasured>,
    /// Ops of which only some calls were counted, the failed ones among them.
    pub partial: Vec<Op>,
    /// The kinds of hooks that measured it.
    pub hooks: Vec<Hook>,
    /// Calls left out because of the kind of their file.
    pub excluded: Excluded,
    /// Samples that are in no histogram, by reason; reasons without any are absent.
    pub losses: Vec<Loss>,
    /// This kernel does not count the entries that it skips, so [`LossReason::EntryMissed`] is not known.
    pub skips_unknown: bool,
    /// Nothing is known of losses: the counters of a recording cannot be read.
    #[serde(default)]
    pub losses_unknown: bool,
    /// Calls under way at the end of the span. `None`: not known.
    pub in_flight: Option<u64>,
    /// What readers must know about how this layer was measured, for example that a forced hook loses calls here. One
    /// sentence each.
    pub warnings: Vec<String>,
    /// At `blk`: the kernel's own counts of the same span. `None` at the other layers, and if they cannot be compared
    /// because only some processes' requests are measured.
    pub diskstats: Option<Diskstats>,
    /// At `blk`, if only some processes' requests are measured: whose requests the disks served meanwhile. `None` if it
    /// is not known.
    pub neighbours: Option<Neighbours>,
    /// At `blk`, with `-Q`: the event at which the queue time of requests begins.
    pub queue_from: Option<String>,
}

/// One op of a layer.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct OpReport {
    pub op: Op,
    /// The points where it was timed, which all reports of a run share.
    pub attach: Arc<[AttachPoint]>,
    /// Attempts that the kernel refused, likewise.
    pub refused: Arc<[Refused]>,
    /// Lost samples known to be this op's.
    pub losses: Vec<Loss>,
    /// Sum of the times of all calls.
    pub total_ns: u64,
    /// Bytes moved; `None` for an op that does not move any.
    pub bytes: Option<u64>,
    /// Shortest and longest call; `None` without a call.
    pub extremes: Option<(u64, u64)>,
    /// Calls that failed, by errno (positive), most frequent first.
    pub errors: Vec<(i32, u64)>,
    /// Failed calls for whose errno there was no slot.
    pub errors_unnamed: u64,
    /// Asynchronous calls that were submitted here and complete elsewhere: not timed, and not in the count.
    pub queued: u64,
    /// At `blk`, with `-Q`: the part of `total_ns` between the start and the issue of requests. `None` if it is not
    /// known.
    pub queue_ns: Option<u64>,
    /// At `blk`: requests that are not in the count, by reason.
    pub set_aside: SetAside,
    /// The times of all calls in nanoseconds, in fine steps. Its count is the op's count.
    pub histogram: Histogram,
    /// Powers of two in the chosen unit (`-u`, `-m`), counted by the kernel; empty for nanoseconds, for which they are
    /// sums of the histogram's steps. Element k counts times in [2^k, 2^(k+1)) units, element 0 also those below 1.
    pub unit_slots: Vec<u64>,
}

/// A point in the kernel where an op was timed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachPoint {
    /// A function's name, or a tracepoint's.
    pub function: String,
    pub hook: Hook,
}

objects! {
    /// Calls on kinds of files that are not measured.
    #[derive(Copy, Deserialize)]
    pub struct Excluded {
        pub socket: u64,
        pub pipe: u64,
        pub character_device: u64,
        /// Files of no file system, such as eventfds.
        pub other: u64,
    }

    /// Requests that are counted separately.
    #[derive(Copy, Deserialize)]
    pub struct SetAside {
        /// Issued before the run began, completed in this span.
        pub at_start: u64,
        /// Completed without being issued: requests that carry only a flush, and requests that the driver refused.
        pub never_issued: u64,
        /// Submitted by kernel threads (writeback, journal), if only some processes' requests are measured.
        pub by_kernel: u64,
        /// Without a known submitter, if only some processes' requests are measured: flushes, each of which the kernel
        /// sends for several processes.
        pub unowned: u64,
        /// With `-Q`: not timed, because the start of their queue time is not known.
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

    /// The numbers of a sample as estimates for all calls.
    #[must_use]
    pub fn estimated(self, sample: Option<Sample>) -> Self {
        let scaled = |n: u64| sample.map_or(n, |sample| sample.scaled(n));
        Self {
            socket: scaled(self.socket),
            pipe: scaled(self.pipe),
            character_device: scaled(self.character_device),
            other: scaled(self.other),
        }
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

/// The counts of `/proc/diskstats` in the span of a report, and whether they agree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diskstats {
    pub reads: u64,
    /// Including those that were never issued, as the kernel counts them.
    pub writes: u64,
    pub discards: u64,
    /// `None`: not available for a partition, or before 5.5.
    pub flushes: Option<u64>,
    pub agreement: Agreement,
}

/// Whether two counts of the same requests agree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Agreement {
    Agrees,
    /// What differs, for example `it counted 3,861 reads, this run 3,860`.
    Differs(String),
    /// Why they cannot be compared, for example `queue/iostats is 0`.
    NotComparable(String),
}

objects! {
    /// Something that is missing from the numbers because it could not be measured.
    #[derive(Deserialize)]
    pub struct NotMeasured {
        /// `fsync`, `direct reads`.
        pub what: String,
        /// Why, for example `vfs_fsync_range, do_fsync: refused by this kernel`.
        pub reason: String,
    }
}

impl NotMeasured {
    #[must_use]
    pub fn new(what: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            reason: reason.into(),
        }
    }
}

/// Samples lost for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    pub reason: LossReason,
    pub count: u64,
    /// The kernel counted these before the filters: some may be other processes' calls.
    pub up_to: bool,
    /// Why the kernel ran no program that would have seen them, if it is known.
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
    /// As in `LOST 12 of 84,201 calls (0.01 %): 12 returns missed.`
    #[must_use]
    pub fn describe(self, count: u64) -> &'static str {
        let (one, many) = match self {
            Self::ReturnMissed => ("return missed", "returns missed"),
            Self::IssueMissed => ("issue missed", "issues missed"),
            Self::EntryMissed => ("entry skipped by the kernel", "entries skipped by the kernel"),
            Self::NoStorage => (
                "entry for which the kernel had no storage",
                "entries for which the kernel had no storage",
            ),
            Self::TableFull => (
                "entry without a slot (table full)",
                "entries without a slot (table full)",
            ),
            Self::ClockBackwards => (
                "return before its entry (clock)",
                "returns before their entries (clock)",
            ),
        };
        if count == 1 { one } else { many }
    }
}

impl OpReport {
    /// An op without calls.
    #[must_use]
    pub fn new(op: Op) -> Self {
        Self { op, ..Self::default() }
    }

    /// The number of timed calls.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.histogram.count()
    }

    /// The numbers of a sample as estimates for all calls. Shortest and longest call, and losses, are those of the
    /// sample.
    #[must_use]
    pub fn estimated(self, sample: Option<Sample>) -> Self {
        let Some(sample) = sample else { return self };
        let scaled = |n: u64| sample.scaled(n);
        Self {
            total_ns: scaled(self.total_ns),
            bytes: self.bytes.map(scaled),
            errors: self.errors.into_iter().map(|(errno, n)| (errno, scaled(n))).collect(),
            errors_unnamed: scaled(self.errors_unnamed),
            queued: scaled(self.queued),
            histogram: self.histogram.estimated(sample),
            unit_slots: self.unit_slots.into_iter().map(scaled).collect(),
            ..self
        }
    }

    /// The intervals of a sample; `None`: all calls were measured.
    #[must_use]
    pub fn estimate(&self) -> Option<Estimate> {
        Estimate::of(&self.histogram, self.total_ns, self.extremes)
    }

    /// At `blk`: requests whose completion was seen, timed or not.
    #[must_use]
    pub fn requests_ended(&self) -> u64 {
        let SetAside {
            at_start,
            never_issued,
            untimed,
            ..
        } = self.set_aside;
        [at_start, never_issued, untimed]
            .into_iter()
            .fold(self.count(), u64::saturating_add)
            .saturating_add(self.lost_by(LossReason::IssueMissed))
    }

    /// Samples of this op known to be lost for this reason.
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
    /// CPU time of the tool's own process; `None` if the counters of that time cannot be read.
    #[must_use]
    pub fn process_cost(&self) -> Option<Duration> {
        let is_unknown = self.layers.iter().any(|layer| layer.losses_unknown);
        (!is_unknown).then_some(self.cost.process)
    }

    /// Run time of all programs in the kernel; `None` if it was not counted.
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

    /// Calls and requests under way at the start and at the end, at all measured layers; `None` if it is not known for
    /// one of them. For the whole stack only system calls are counted, since a call is under way at several layers at
    /// once.
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
    /// A probe without counts.
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
    /// A layer of which nothing is measured.
    #[must_use]
    pub fn new(layer: Layer) -> Self {
        Self {
            layer,
            ..Self::default()
        }
    }

    /// Requests that were under way when the run began, and ended in this span. `None` at layers of calls: a call whose
    /// entry was not seen leaves no trace at its return.
    #[must_use]
    pub fn under_way_at_start(&self) -> Option<u64> {
        let requests = self.ops.iter().map(|op| op.set_aside.at_start);
        (self.layer == Layer::Blk).then(|| requests.fold(0, u64::saturating_add))
    }

    /// What is counted: `call`, or `request` at the block layer.
    #[must_use]
    pub fn unit(&self) -> &'static str {
        if self.layer == Layer::Blk { "request" } else { "call" }
    }

    /// The number of lost samples, for all reasons.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.losses.iter().fold(0, |sum, loss| sum.saturating_add(loss.count))
    }
}
