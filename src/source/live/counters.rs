//! Reads the counters of all programs as one snapshot.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::budget::CpuTimes;
use crate::kernel::interface::types::{binned, control};
use crate::model::snapshot::{OpCounters, ProbeCounts, Snapshot};
use crate::probe::attach::{Attached, Skipped};
use crate::probe::binned::BinnedCounters;
use crate::probe::plan::Plan;
use crate::sys::clock::monotonic_ns;

use super::stack::LastRead;
use super::{groups, neighbours, op, stack};

/// Why something could not be read from the kernel.
#[derive(Debug, Clone)]
pub struct ReadError(pub(super) String);

impl std::fmt::Display for ReadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl From<libbpf_rs::Error> for ReadError {
    fn from(error: libbpf_rs::Error) -> Self {
        Self(error.to_string())
    }
}

/// Reads everything that the programs have counted, and the kernel's counts of probes; see [`read_programs`].
#[must_use]
pub fn read(attached: &Attached, plan: &Plan, epoch: u64, counts_runs: bool, last: &mut LastRead) -> Snapshot {
    let snapshot = read_programs(attached, plan, epoch, last);
    Snapshot {
        probes: probe_counts(attached, counts_runs),
        ..snapshot
    }
}

/// Reads everything that the programs have counted, without the kernel's counts of probes; what the whole stack has counted
/// for groups since `last`. `epoch` is the generation of extremes that ends; the counts may include calls since the next
/// one began, so its extremes are read as well.
pub(super) fn read_programs(attached: &Attached, plan: &Plan, epoch: u64, last: &mut LastRead) -> Snapshot {
    let (ops, unread) = read_ops(attached, plan, epoch);
    let control = |counter: fn(&control) -> u64| {
        let bss = attached.skeleton.maps.bss_data.as_deref();
        bss.map_or(0, |bss| counter(&bss.control))
    };
    let taken = control(|control| control.groups_taken);
    let groups = attached.groups.as_ref();
    Snapshot {
        at_ns: monotonic_ns(),
        wall: Timestamp::now(),
        utc_offset: 0,
        ops,
        unread: unread.map(|error| error.0),
        probes: Vec::new(),
        own_ns: own_ns(),
        not_followed: control(|control| control.not_followed),
        stack: attached.stack.as_ref().map(|attached| stack::read(attached, epoch)),
        groups: groups.map(|attached| groups::read(attached, plan, taken, epoch, last)),
        neighbours: neighbours::read(attached),
        disks: None,
        under_way: None,
        detached: Vec::new(),
        warnings: Vec::new(),
    }
}

/// Reads the counters of all ops, and why the last calls are missing, if they are; see [`read_programs`] for `epoch`.
pub(super) fn read_ops(attached: &Attached, plan: &Plan, epoch: u64) -> (Vec<Arc<OpCounters>>, Option<ReadError>) {
    let completions: BTreeMap<usize, usize> = plan.completion_counters().collect();
    let (usual, unread) = usual_calls(attached);
    let unit_ns = attached
        .skeleton
        .maps
        .rodata_data
        .map_or(0, |rodata| rodata.config.unit_ns);
    let op = |index| {
        let mut merged = OpCounters::nothing();
        for row in [Some(index), completions.get(&index).copied()].into_iter().flatten() {
            let cpus = attached.counters.counted(row, &op::SIGNS);
            cpus.for_each(|cpu| op::add(Arc::make_mut(&mut merged), &cpu, epoch));
        }
        let cpus = usual.iter().filter(|(op, _)| *op == index);
        cpus.for_each(|(_, cpu)| op::add_binned(Arc::make_mut(&mut merged), cpu, unit_ns));
        merged
    };
    ((0..attached.ops.len()).map(op).collect(), unread)
}

/// The local time zone's offset at this time, in seconds east of UTC. This reads the time zone's file.
#[must_use]
pub fn utc_offset(at: Timestamp) -> i32 {
    at.to_zoned(jiff::tz::TimeZone::system()).offset().seconds()
}

/// The kernel's counts of each probe. `counts_runs`: the kernel counts the runs of programs.
pub(super) fn probe_counts(attached: &Attached, counts_runs: bool) -> Vec<ProbeCounts> {
    // Before what it is held against: never more than that.
    let recovered = attached.recovered();
    let programs = Skipped::default();
    let probes = attached.probes.iter();
    probes
        .map(|probe| probe.read(counts_runs, recovered, &programs))
        .collect()
}

/// CPU time so far of the attached layers, and of everything else that measuring costs. Requires that the kernel counts
/// runs.
#[must_use]
pub fn cpu_times(attached: &Attached) -> CpuTimes {
    let layers = attached.layers();
    let mut times: CpuTimes = layers.iter().map(|&layer| (Some(layer), 0)).collect();
    times.insert(None, own_ns());
    for probe in &attached.probes {
        // Detached probes cost nothing more.
        if let Some(ns) = times.get_mut(&probe.goes_with) {
            *ns = ns.saturating_add(probe.run_ns());
        }
    }
    times
}

/// CPU time of this process, in user and kernel mode, in nanoseconds.
fn own_ns() -> u64 {
    let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_SELF);
    usage.map_or(0, |usage| {
        let time = |part: nix::sys::time::TimeVal| {
            Duration::from_secs(part.tv_sec().unsigned_abs()) + Duration::from_micros(part.tv_usec().unsigned_abs())
        };
        crate::model::report::nanoseconds(time(usage.user_time()) + time(usage.system_time()))
    })
}

/// Calls counted in bins, by op and CPU; and why the last ones are missing, if they are.
pub(super) fn usual_calls(attached: &Attached) -> (Vec<(usize, binned)>, Option<ReadError>) {
    let read = attached.binned.as_ref().map(BinnedCounters::read);
    let (all, unread) = read.unwrap_or_default();
    (all, unread.map(|error| ReadError(error.to_string())))
}
