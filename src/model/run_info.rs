//! What does not change while a run lasts: what was asked for, and what of it could be attached.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::cost::CpuShare;
use super::ids::{By, Hook, Layer, Op, Row};
use crate::model::report::{AttachPoint, Filter, NotMeasured, Refused};

/// All that a report needs to know of a run besides its counters.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RunInfo {
    /// Release of the kernel that is measured, for example `6.1.0-50-amd64`.
    pub kernel: String,
    /// What was asked for, for example `PID 4711 (postgres)`; empty without a filter.
    pub subject: String,
    /// The same, piece by piece.
    pub filter: Filter,
    /// What concerns no single layer, one sentence each.
    pub notes: Vec<String>,
    /// By the clock of the programs (`CLOCK_MONOTONIC`), in nanoseconds.
    pub began_ns: u64,
    /// Somebody's calls are filtered out, so what the kernel skips may be theirs.
    pub is_filtered: bool,
    /// From how long on calls are reported one by one, in nanoseconds, if they are.
    pub slower_ns: Option<u64>,
    /// How many groups are reported by themselves.
    pub top: usize,
    /// What calls and requests are grouped by, if they are.
    pub by: Option<By>,
    /// The kernel counts the runs of the programs.
    pub has_runs: bool,
    /// Why it was asked for and does not.
    pub no_runs: Option<String>,
    /// What measuring may take; `None`: no limit was given.
    pub budget: Option<CpuShare>,
    /// Those that were asked for, in the order of the stack.
    pub layers: Vec<LayerInfo>,
    /// In the order of their counters.
    pub ops: Vec<OpInfo>,
    /// In the order of their counters.
    pub probes: Vec<ProbeInfo>,
    /// How the block layer is measured, if it is.
    pub block: Option<BlockInfo>,
    /// The whole stack's view, where it was asked for.
    pub stack: Option<StackInfo>,
    /// Hooks in use that lose calls on this machine, and why.
    pub lossy: BTreeMap<Hook, String>,
    /// The disks whose requests are compared with the kernel's own counters, if they are.
    pub disks: Option<DisksInfo>,
}

/// A layer that was asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LayerInfo {
    pub layer: Layer,
    /// Why nothing of it is measured, if that is so.
    pub refused: Option<String>,
    /// What is missing from all its ops.
    pub not_measured: Vec<NotMeasured>,
    /// Completions of asynchronous calls are seen by kprobes alone, which skip interrupts.
    pub completions_skip_interrupts: bool,
}

/// An op, which has counters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpInfo {
    pub layer: Layer,
    pub op: Op,
    /// Moves bytes, so that a report has a number for them.
    pub moves_bytes: bool,
    /// Where it is timed. Empty: it is not measured.
    pub points: Vec<AttachPoint>,
    /// What was tried before.
    pub refused: Vec<Refused>,
    /// What is missing from its numbers, or why it has none.
    pub not_measured: Vec<NotMeasured>,
    /// Why it has no numbers, where it has none.
    pub absent: Option<NotMeasured>,
}

/// Programs attached to a function, to many, or to an event.
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
    /// How the issue and the end of a request are seen, or all of a bio.
    pub hook: Hook,
    pub is_bio_based: bool,
    /// The tracepoint or the functions of the issue of requests, and those of their ends.
    pub issue: BlockEvent,
    pub end: BlockEvent,
    /// What queue times begin with, where they are asked for and known.
    pub queue_from: Option<String>,
    /// Why it loses requests on this machine, if it does.
    pub lossy: Option<String>,
}

/// Where an event of requests can be seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockEvent {
    pub tracepoint: String,
    /// Those that this kernel has, where the hook is on functions.
    pub functions: Vec<String>,
}

/// What of the whole stack is measured.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackInfo {
    /// Layers, in the order of the stack, and whether each is measured.
    pub layers: Vec<(Layer, bool)>,
    /// Rows that have functions of their own, as far as this kernel has them.
    pub planned: BTreeSet<Row>,
    /// Those of them that are seen.
    pub seen: BTreeSet<Row>,
}

/// Disks whose requests are compared with `/proc/diskstats`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DisksInfo {
    /// The kernel keeps no statistics of one of them.
    pub is_uncounted: bool,
    /// Bios are counted by us, and by the kernel as the driver sees fit.
    pub is_bio_based: bool,
    /// Flushes are the whole disk's.
    pub is_partition: bool,
}

impl RunInfo {
    /// The ops of a layer, with their places among all.
    pub fn ops_of(&self, layer: Layer) -> impl Iterator<Item = (usize, &OpInfo)> {
        self.ops.iter().enumerate().filter(move |(_, op)| op.layer == layer)
    }
}
