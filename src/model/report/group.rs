//! Calls and requests by process, file, disk or control group, for `--by`.

use serde::{Deserialize, Serialize};

use super::super::histogram::wider;
pub use super::super::ids::By;
use super::super::ids::Layer;
use super::super::owner::{Container, Pod};
use super::OpReport;
use super::slow::{CallPath, Inode};
use super::stack::{FamilyReport, OriginReport};

/// A report's groups.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GroupsReport {
    pub by: By,
    /// The largest first.
    pub groups: Vec<GroupReport>,
    /// Everything in none of them; `None`: nothing.
    pub others: Option<OthersReport>,
    /// The sum of them all.
    pub total: Numbers,
}

/// One group.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GroupReport {
    pub who: Who,
    pub numbers: Numbers,
}

/// Everything that is not reported individually.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct OthersReport {
    /// The number of groups in it, without those for which there was no room.
    pub groups: u64,
    /// Calls and requests for whose group there was no room, so that the number of these groups is not known. They are
    /// counted at each layer.
    pub no_room: u64,
    pub numbers: Numbers,
}

impl OthersReport {
    /// What groups have counted for which there was no room.
    #[must_use]
    pub fn without_room(numbers: Numbers) -> Self {
        Self {
            groups: 0,
            no_room: numbers.count(),
            numbers,
        }
    }
}

/// Whose calls a group has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Who {
    Process {
        pid: u64,
        comm: String,
    },
    File {
        /// `None`: several files had this path, one after another.
        inode: Option<Inode>,
        /// `None`: the file has no name any more.
        path: Option<CallPath>,
    },
    /// A disk with all its partitions, or the device of another file system.
    Disk {
        name: String,
    },
    /// The path from the root of its hierarchy.
    Cgroup {
        path: String,
    },
    Thread {
        tid: u64,
        pid: u64,
        comm: String,
    },
    /// Threads of this name.
    Comm {
        comm: String,
    },
    /// An open file of a process.
    Fd {
        pid: u64,
        comm: String,
        fd: i32,
        /// `None`: the file has no name.
        path: Option<CallPath>,
    },
    User {
        uid: u32,
    },
    /// A unit of systemd.
    Unit {
        name: String,
    },
    Pod(Pod),
    Container(Container),
    /// Calls on no file, or requests without a known owner.
    Unknown(By),
    /// What the counters have, and of which the record was lost.
    NoRecord,
}

impl Who {
    /// As in reports.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Process { pid, comm } => format!("{comm} {pid}"),
            Self::File { path: Some(path), .. } => path.text.clone(),
            Self::File { inode, path: None } => inode.map_or_else(
                || "…".to_owned(),
                |inode| format!("… (inode {} on {}:{})", inode.number, inode.major, inode.minor),
            ),
            Self::Disk { name } => name.clone(),
            Self::Cgroup { path } => path.clone(),
            Self::Thread { tid, pid, comm } if tid == pid => format!("{comm} {pid}"),
            Self::Thread { tid, pid, comm } => format!("{comm} {pid}/{tid}"),
            Self::Comm { comm } => comm.clone(),
            Self::Fd { pid, comm, fd, path } => {
                let path = path.as_ref().map_or("…", |path| &path.text);
                format!("{comm} {pid} fd {fd} {path}")
            }
            Self::User { uid } => format!("uid {uid}"),
            Self::Unit { name } | Self::Container(Container { name, pod: None }) => name.clone(),
            Self::Pod(Pod { namespace, name }) => format!("{namespace}/{name}"),
            Self::Container(Container { name, pod: Some(pod) }) => format!("{}/{}/{name}", pod.namespace, pod.name),
            Self::Unknown(by) => format!("(no {})", by.name()),
            Self::NoRecord => "(no record)".to_owned(),
        }
    }
}

/// The numbers of a group, or of several together.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Numbers {
    /// Ops that were called, by layer, in the order of the stack. Empty for the whole stack.
    pub layers: Vec<(Layer, Vec<OpReport>)>,
    /// For the whole stack: families that were called, in the order of their table.
    pub families: Vec<FamilyReport>,
    /// For the whole stack: requests that no call waited for.
    pub not_waited: Vec<OriginReport>,
}

impl Numbers {
    /// Whether nothing was counted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.layers.iter().all(|(_, ops)| ops.is_empty()) && self.families.is_empty() && self.not_waited.is_empty()
    }

    /// Calls and requests, at each layer.
    #[must_use]
    pub fn count(&self) -> u64 {
        let ops = self.layers.iter().flat_map(|(_, ops)| ops).map(OpReport::count);
        let families = self.families.iter().map(FamilyReport::count);
        ops.chain(families).fold(0, u64::saturating_add)
    }

    /// The time of all calls and requests, at all layers.
    #[must_use]
    pub fn ns(&self) -> u64 {
        let ops = self.layers.iter().flat_map(|(_, ops)| ops).map(|op| op.total_ns);
        let families = self.families.iter().map(|family| family.total_ns);
        ops.chain(families).fold(0, u64::saturating_add)
    }

    /// The ops of a layer.
    #[must_use]
    pub fn ops(&self, layer: Layer) -> &[OpReport] {
        let found = self.layers.iter().find(|(known, _)| *known == layer);
        found.map_or(&[], |(_, ops)| ops)
    }

    /// Sums over a layer's ops, or over all families: calls, nanoseconds, bytes.
    #[must_use]
    pub fn sums(&self, layer: Option<Layer>) -> Sums {
        let families = self.families.iter().filter(|_| layer.is_none());
        let families = families.map(|family| (family.count(), family.total_ns, family.bytes));
        let ops = layer.map_or(&[][..], |layer| self.ops(layer)).iter();
        let ops = ops.map(|op| (op.count(), op.total_ns, op.bytes.unwrap_or(0)));
        families
            .chain(ops)
            .fold(Sums::default(), |sum, (count, ns, bytes)| Sums {
                count: sum.count.saturating_add(count),
                ns: sum.ns.saturating_add(ns),
                bytes: sum.bytes.saturating_add(bytes),
            })
    }

    /// Adds other numbers. `layers`, the names of ops and families are in the same order in both.
    pub fn add(&mut self, other: &Self) {
        for (layer, ops) in &other.layers {
            let index = match self.layers.iter().position(|(known, _)| known == layer) {
                Some(index) => index,
                None => {
                    self.layers.push((*layer, Vec::new()));
                    self.layers.len() - 1
                }
            };
            merge(&mut self.layers[index].1, ops, |op| op.op, add_op);
        }
        merge(&mut self.families, &other.families, |family| family.family, add_family);
        merge(
            &mut self.not_waited,
            &other.not_waited,
            |origin| (origin.origin, origin.is_write),
            add_origin,
        );
    }
}

/// Sums over several ops.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sums {
    pub count: u64,
    pub ns: u64,
    pub bytes: u64,
}

pub(super) fn merge<T: Clone, K: PartialEq>(into: &mut Vec<T>, from: &[T], key: fn(&T) -> K, add: fn(&mut T, &T)) {
    for one in from {
        match into.iter_mut().find(|known| key(known) == key(one)) {
            Some(known) => add(known, one),
            None => into.push(one.clone()),
        }
    }
}

pub(super) fn add_to(sum: &mut u64, n: u64) {
    *sum = sum.saturating_add(n);
}

pub(super) fn add_op(sum: &mut OpReport, op: &OpReport) {
    add_to(&mut sum.total_ns, op.total_ns);
    add_to(&mut sum.errors_unnamed, op.error_count());
    sum.bytes = added(sum.bytes, op.bytes);
    sum.queue_ns = added(sum.queue_ns, op.queue_ns);
    sum.extremes = wider(sum.extremes, op.extremes);
    sum.histogram.add(&op.histogram);
    if sum.unit_slots.len() < op.unit_slots.len() {
        sum.unit_slots.resize(op.unit_slots.len(), 0);
    }
    for (slot, n) in sum.unit_slots.iter_mut().zip(&op.unit_slots) {
        add_to(slot, *n);
    }
}

pub(super) fn add_family(sum: &mut FamilyReport, family: &FamilyReport) {
    add_to(&mut sum.total_ns, family.total_ns);
    add_to(&mut sum.bytes, family.bytes);
    add_to(&mut sum.errors, family.errors);
    sum.extremes = wider(sum.extremes, family.extremes);
    sum.histogram.add(&family.histogram);
    for (row, other) in sum.rows.iter_mut().zip(&family.rows) {
        row.ns = added(row.ns, other.ns);
        row.calls = added(row.calls, other.calls);
    }
    for (class, other) in sum.classes.iter_mut().zip(&family.classes) {
        add_to(&mut class.calls, other.calls);
        add_to(&mut class.bytes, other.bytes);
    }
}

pub(super) fn add_origin(sum: &mut OriginReport, origin: &OriginReport) {
    add_to(&mut sum.requests, origin.requests);
    add_to(&mut sum.bytes, origin.bytes);
    add_to(&mut sum.queue_ns, origin.queue_ns);
    add_to(&mut sum.device_ns, origin.device_ns);
}

/// A sum is not known if one of its parts is not, unless the other has none of it.
pub(super) fn added(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.saturating_add(b)),
        (a, b) => a.or(b),
    }
}
