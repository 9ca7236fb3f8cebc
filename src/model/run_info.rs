//! What does not change during a run: the options, and what could be attached.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::cost::CpuShare;
use super::ids::{By, Hook, Layer, Op, Row};
use super::sample::Sample;
use crate::model::report::{AttachPoint, Filter, NotMeasured, Refused};

/// Everything that a report needs to know about a run in addition to its counters.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunInfo {
    /// Release of the measured kernel, for example `6.1.0-50-amd64`.
    pub kernel: String,
    /// What is selected, for example `PID 4711 (postgres)`; empty without a filter.
    pub subject: String,
    /// The same as fields.
    pub filter: Filter,
    /// Notes that concern no single layer, one sentence each.
    pub notes: Vec<String>,
    /// The start of the run by the programs' clock (`CLOCK_MONOTONIC`), in nanoseconds.
    pub began_ns: u64,
    /// Some calls are filtered out, so entries that the kernel skipped may belong to these.
    pub is_filtered: bool,
    /// Only some calls are measured. `None`: all are.
    pub sample: Option<Sample>,
    /// Calls that take this many nanoseconds or longer are reported one by one, if requested.
    pub slower_ns: Option<u64>,
    /// The number of groups that are reported individually.
    pub top: usize,
    /// What calls and requests are grouped by, if requested.
    pub by: Option<By>,
    /// The kernel counts the runs of the programs.
    pub has_runs: bool,
    /// Why it does not, although it was requested.
    pub no_runs: Option<String>,
    /// Losses and the own cost are not known: the counters of a recording cannot be read.
    #[serde(skip)]
    pub is_without_counters: bool,
    /// The limit on the cost of measuring; `None`: no limit.
    pub budget: Option<CpuShare>,
    /// The selected layers, in the order of the stack.
    pub layers: Vec<LayerInfo>,
    /// In the order of their counters.
    pub ops: Vec<OpInfo>,
    /// In the order of their counters.
    pub probes: Vec<ProbeInfo>,
    /// How the block layer is measured, if it is.
    pub block: Option<BlockInfo>,
    /// What of the whole stack is measured, if requested.
    pub stack: Option<StackInfo>,
    /// The hooks in use that lose calls on this machine, and why.
    pub lossy: BTreeMap<Hook, String>,
    /// The disks whose requests are compared with the kernel's own counters, if they are.
    pub disks: Option<DisksInfo>,
}

/// A selected layer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LayerInfo {
    pub layer: Layer,
    /// Why nothing of it is measured, if so.
    pub refused: Option<String>,
    /// What is missing from all its ops.
    pub not_measured: Vec<NotMeasured>,
    /// Completions of asynchronous calls are seen only by kprobes, which skip interrupts.
    pub completions_skip_interrupts: bool,
}

/// An op, which has counters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpInfo {
    pub layer: Layer,
    pub op: Op,
    /// Whether the op moves bytes, which a report then shows.
    pub moves_bytes: bool,
    /// The points where it is timed. Empty: it is not measured.
    pub points: Arc<[AttachPoint]>,
    /// Attempts that the kernel refused.
    pub refused: Arc<[Refused]>,
    /// What is missing from its numbers, or why it has none.
    pub not_measured: Vec<NotMeasured>,
    /// Why it has no numbers, if so.
    pub absent: Option<NotMeasured>,
    /// Only its failed calls, or its asynchronous ones, are counted: the others are in the families of the whole stack.
    #[serde(default)]
    pub is_partial: bool,
}

/// Programs attached to one or more functions, or to an event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProbeInfo {
    /// `None`: it serves several layers, or the filters.
    pub layer: Option<Layer>,
    pub hook: Hook,
    /// Functions, or the tracepoint.
    pub functions: Vec<String>,
}

/// How the block layer is measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BlockInfo {
    /// How issues and completions of requests are seen, or whole bios.
    pub hook: Hook,
    pub is_bio_based: bool,
    /// The tracepoint or functions where requests are issued, and those where they complete.
    pub issue: BlockEvent,
    pub end: BlockEvent,
    /// The event at which queue times begin, if they are measured.
    pub queue_from: Option<String>,
    /// Why it loses requests on this machine, if it does.
    pub lossy: Option<String>,
    /// Bits of the flags of requests in this kernel, by the names of their enumerators (`enum req_flag_bits`).
    #[serde(default)]
    pub flags: BTreeMap<String, u32>,
}

/// Where an event of requests can be seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockEvent {
    pub tracepoint: String,
    /// The functions that this kernel has, if the hook is on functions.
    pub functions: Vec<String>,
}

/// What of the whole stack is measured.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackInfo {
    /// The layers in the order of the stack, and whether each is measured.
    pub layers: Vec<(Layer, bool)>,
    /// Rows with functions of their own, at least one of which is measured.
    pub seen: BTreeSet<Row>,
}

/// Disks whose requests are compared with `/proc/diskstats`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DisksInfo {
    /// The kernel keeps no statistics for one of them.
    pub is_uncounted: bool,
    /// We count bios; whether the kernel does depends on the driver.
    pub is_bio_based: bool,
    /// Flushes are counted for the whole disk only.
    pub is_partition: bool,
}

impl RunInfo {
    /// The sample in which calls of a layer are measured. `None`: all are; requests always are.
    #[must_use]
    pub fn sample_at(&self, layer: Layer) -> Option<Sample> {
        self.sample.filter(|_| layer != Layer::Blk)
    }

    /// The ops of a layer, with their indices among all ops.
    pub fn ops_of(&self, layer: Layer) -> impl Iterator<Item = (usize, &OpInfo)> {
        self.ops.iter().enumerate().filter(move |(_, op)| op.layer == layer)
    }
}
