//! Hand-written groups (`--by`) for the tests of text and of JSON: hand-written reports without groups are split into
//! them.

use iostackbreakdown::analyse::ranking::{in_steps, largest, make_sums};
use iostackbreakdown::model::owner::{Container, Pod};
use iostackbreakdown::model::report::group::{By, GroupsReport, Numbers, OthersReport, Who};
use iostackbreakdown::model::report::slow::{CallPath, Inode, PathKind};
use iostackbreakdown::model::report::stack::FamilyReport;
use iostackbreakdown::model::report::{OpReport, Report};

/// The multiple of a report's numbers that each group has, the largest first. It also identifies the group.
pub const PARTS: [u64; 5] = [9, 5, 3, 2, 1];

/// The numbers of a group: `parts` times those of the ops of a report's layers, or of its families.
pub fn split(report: &Report, parts: u64) -> Numbers {
    let op = |op: &OpReport| OpReport {
        extremes: in_steps(op.extremes, &op.histogram, op.total_ns),
        ..op.clone()
    };
    let ops = |ops: &[OpReport]| -> Vec<OpReport> { ops.iter().filter(|op| op.count() > 0).map(op).collect() };
    let family = |family: &FamilyReport| FamilyReport {
        extremes: in_steps(family.extremes, &family.histogram, family.total_ns),
        ..family.clone()
    };
    let one = Numbers {
        layers: match &report.stack {
            Some(_) => Vec::new(),
            None => report
                .layers
                .iter()
                .map(|layer| (layer.layer, ops(&layer.ops)))
                .collect(),
        },
        families: report
            .stack
            .iter()
            .flat_map(|stack| &stack.families)
            .filter(|called| called.count() > 0)
            .map(family)
            .collect(),
        not_waited: report
            .stack
            .iter()
            .flat_map(|stack| &stack.not_waited)
            .flatten()
            .cloned()
            .collect(),
    };
    let mut sum = Numbers::default();
    (0..parts).for_each(|_| sum.add(&one));
    sum
}

fn file(number: u64, path: Option<(PathKind, &str)>) -> Who {
    Who::File {
        inode: Some(Inode::on([259, 2], number)),
        path: path.map(|(kind, text)| CallPath::new(kind, text)),
    }
}

fn pod(parts: u64) -> Pod {
    Pod {
        namespace: "shop".to_owned(),
        name: format!("orders-{parts}"),
    }
}

/// The name of the group with this number of parts.
pub fn who(by: By, parts: u64) -> Who {
    match (by, parts) {
        (By::Process, 9) => Who::Process {
            pid: 4711,
            comm: "postgres".to_owned(),
        },
        (By::Process, _) => Who::Process {
            pid: 30_000 + parts,
            comm: "kworker/u8:4-events_unbound".to_owned(),
        },
        (By::File, 9) => file(12, Some((PathKind::Whole, "/srv/shop/orders.db"))),
        (By::File, 5) => file(
            13,
            Some((
                PathKind::Cut,
                "…/a/long/way/down/to/where/nobody/ever/looks/for/files/of/any/kind/or/name/segment-000001.log",
            )),
        ),
        (By::File, 3) => Who::Unknown(By::File),
        (By::File, _) => file(4_000_000 + parts, None),
        (By::Disk, _) => Who::Disk {
            name: format!("nvme{parts}n1"),
        },
        (By::Cgroup, _) => Who::Cgroup {
            path: format!("/system.slice/unit-{parts}.service"),
        },
        (By::Thread, _) => Who::Thread {
            tid: parts,
            pid: 30_000,
            comm: "postgres".to_owned(),
        },
        (By::Comm, 9) => Who::NoRecord,
        (By::Comm, _) => Who::Comm {
            comm: format!("worker-{parts}"),
        },
        (By::Fd, _) => Who::Fd {
            pid: 4711,
            comm: "postgres".to_owned(),
            fd: parts as i32,
            path: None,
        },
        (By::User, _) => Who::User { uid: parts as u32 },
        (By::Unit, _) => Who::Unit {
            name: format!("unit-{parts}.service"),
        },
        (By::Pod, _) => Who::Pod(pod(parts)),
        (By::Container, _) => Who::Container(Container {
            name: "main".to_owned(),
            pod: Some(pod(parts)).filter(|_| parts < 9),
        }),
    }
}

/// The report with groups. Its numbers become the sums over all groups; `no_room` parts belong to groups that the
/// kernel side had no room for.
pub fn by(mut report: Report, by: By, top: usize, no_room: u64) -> Report {
    let groups = PARTS.map(|parts| (parts, split(&report, parts)));
    let no_room = OthersReport::without_room(split(&report, no_room));
    let ranked = largest(by, groups.to_vec(), no_room, top);
    let groups: GroupsReport = ranked.named(|parts| who(by, parts));
    make_sums(&groups.total, &mut report.layers, report.stack.as_mut());
    report.groups = Some(groups);
    report
}
