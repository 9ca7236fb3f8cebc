//! The calls and requests of a second, for the live view.

use std::collections::HashMap;

use super::names::{FileKey, Names};
use super::slow::{given_path, is_not_split};
use super::usage::Usage;
use crate::catalog::families;
use crate::model::clock::Clock;
use crate::model::ids::{By, Family, Layer, Op, Row};
use crate::model::record::{Call, FileNumber, Records, Request, errno_of};
use crate::model::report::group::Who;
use crate::model::report::moment::{DiskUse, Moment, MomentGroup, OpenFileUse};
use crate::model::report::records::{Limit, Limited};
use crate::model::report::slow::{SlowCall, SlowRow};
use crate::model::run_info::RunInfo;

/// Groups of each kind, open files and slow calls that are kept.
const MOST: usize = 100;

/// What does not change from second to second.
#[derive(Debug, Clone)]
pub struct Rules {
    pub clock: Clock,
    /// The row of each slot of a call's rows.
    pub rows: Vec<Option<Row>>,
    /// No layer below the system calls is measured.
    not_split: bool,
    pub slower_ns: u64,
    pub limits: Vec<Limit>,
    families: HashMap<Op, Family>,
    /// The whole disk of each partition.
    pub disks: HashMap<[u32; 2], [u32; 2]>,
}

impl Rules {
    /// `rows`: the names of a call's rows, by slot, also of those that were not measured.
    #[must_use]
    pub fn new(clock: Clock, run: &RunInfo, rows: &[String], slower_ns: u64, limits: &[Limit]) -> Self {
        Self {
            clock,
            not_split: is_not_split(run),
            rows: rows.iter().map(|name| name.parse().ok()).collect(),
            slower_ns,
            limits: limits.to_vec(),
            families: families().collect(),
            disks: HashMap::new(),
        }
    }
}

/// Folds the records of a second.
#[derive(Debug, Default)]
pub struct Fold {
    /// When the second began, by the programs' clock.
    from_ns: u64,
    processes: HashMap<u32, Sum>,
    files: HashMap<Option<FileKey>, Sum>,
    disks: HashMap<Option<[u32; 2]>, Sum>,
    open: HashMap<(u32, FileNumber), Open>,
    /// Calls that were slow, the shortest of which are dropped if there are too many.
    slow: Vec<Call>,
    /// With those that are dropped.
    slow_seen: u64,
    limits: Vec<[u64; 2]>,
    usage: Usage,
    bytes: HashMap<[u32; 2], [u64; 2]>,
    lost: u64,
}

#[derive(Debug, Default, Clone)]
struct Sum {
    calls: u64,
    ns: u64,
    bytes: u64,
    longest_ns: u64,
    rows: Vec<u64>,
}

#[derive(Debug, Default)]
struct Open {
    fd: Option<i32>,
    calls: u64,
    read_bytes: u64,
    written_bytes: u64,
    ns: u64,
    longest_ns: u64,
}

impl Sum {
    fn add(&mut self, call: &Call, ns: u64, bytes: u64) {
        self.calls += 1;
        self.ns = self.ns.saturating_add(ns);
        self.bytes = self.bytes.saturating_add(bytes);
        self.longest_ns = self.longest_ns.max(ns);
        self.rows.resize(self.rows.len().max(call.rows.len()), 0);
        for (sum, ns) in self.rows.iter_mut().zip(&call.rows) {
            *sum = sum.saturating_add(*ns);
        }
    }

    fn group(self, who: Who, rules: &Rules) -> MomentGroup {
        MomentGroup {
            who,
            calls: self.calls,
            ns: self.ns,
            bytes: self.bytes,
            longest_ns: self.longest_ns,
            rows: by_time(&self.rows, rules),
        }
    }
}

/// The rows with time in them, the largest first.
fn by_time(rows: &[u64], rules: &Rules) -> Vec<(Row, u64)> {
    let named = rules.rows.iter().zip(rows);
    let mut rows: Vec<(Row, u64)> = named
        .filter_map(|(row, ns)| Some(((*row)?, *ns)))
        .filter(|(_, ns)| *ns > 0)
        .collect();
    rows.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    rows
}

/// Bytes moved by a call, read and written.
fn bytes(call: &Call, rules: &Rules) -> [u64; 2] {
    let moved = u64::try_from(call.value).unwrap_or(0);
    match rules.families.get(&call.op) {
        Some(Family::Read) => [moved, 0],
        Some(Family::Write) => [0, moved],
        _ => [0, 0],
    }
}

impl Fold {
    /// Of a second that begins at this moment of the programs' clock.
    #[must_use]
    pub fn begin(from_ns: u64) -> Self {
        let mut usage = Usage::default();
        usage.set_span(from_ns, u64::MAX);
        Self {
            from_ns,
            usage,
            ..Self::default()
        }
    }

    /// Adds records, whose definitions `names` knows.
    pub fn take(&mut self, records: &Records, names: &Names, rules: &Rules) {
        self.limits.resize(rules.limits.len(), [0, 0]);
        for call in &records.calls {
            let key = names.key(call.files[0]).map(|key| names.counted_as(key));
            if let Some(ns) = call.duration_ns().filter(|_| names.selects_call(call)) {
                self.call(call, ns, key, rules);
            }
        }
        self.usage.take(records, names);
        for request in records.requests.iter().filter(|request| names.selects_request(request)) {
            self.request(request, rules);
        }
        self.lost += records.lost.iter().map(|lost| lost.records).sum::<u64>();
    }

    fn call(&mut self, call: &Call, ns: u64, key: Option<FileKey>, rules: &Rules) {
        let [read, written] = bytes(call, rules);
        let both = read.saturating_add(written);
        self.processes.entry(call.pid).or_default().add(call, ns, both);
        self.files.entry(key).or_default().add(call, ns, both);
        let device = key.and_then(FileKey::device);
        let disk = device.and_then(|device| rules.disks.get(&device).copied());
        self.disks.entry(disk).or_default().add(call, ns, both);
        if call.files[0] != 0 {
            let open = self.open.entry((call.pid, call.files[0])).or_default();
            open.fd = call.fd.or(open.fd);
            open.calls += 1;
            open.read_bytes = open.read_bytes.saturating_add(read);
            open.written_bytes = open.written_bytes.saturating_add(written);
            open.ns = open.ns.saturating_add(ns);
            open.longest_ns = open.longest_ns.max(ns);
        }
        let family = rules.families.get(&call.op);
        for (limit, sums) in rules.limits.iter().zip(&mut self.limits) {
            let is_of = match limit.of {
                Limited::Family(limited) => family == Some(&limited),
                Limited::Op(limited) => call.op == limited,
                Limited::Queue | Limited::Device => false,
            };
            if is_of {
                count(sums, ns > limit.ns);
            }
        }
        if ns >= rules.slower_ns {
            self.slow_seen += 1;
            self.slow.push(call.clone());
            if self.slow.len() >= 2 * MOST {
                self.keep_slowest();
            }
        }
    }

    fn request(&mut self, request: &Request, rules: &Rules) {
        let sums = self.bytes.entry(request.disk).or_default();
        let sum = match request.op {
            Op::Read => &mut sums[0],
            _ => &mut sums[1],
        };
        *sum = sum.saturating_add(request.bytes);
        let Some(issued_ns) = request.issued_ns else { return };
        for (limit, sums) in rules.limits.iter().zip(&mut self.limits) {
            let ns = match limit.of {
                Limited::Device => Some(request.ended_ns.saturating_sub(issued_ns)),
                Limited::Queue => {
                    let from = request.submitted_ns.or(request.started_ns);
                    from.map(|from| issued_ns.saturating_sub(from))
                }
                Limited::Family(_) | Limited::Op(_) => None,
            };
            if let Some(ns) = ns {
                count(sums, ns > limit.ns);
            }
        }
    }

    fn keep_slowest(&mut self) {
        self.slow.sort_by_key(|call| std::cmp::Reverse(call.duration_ns()));
        self.slow.truncate(MOST);
    }

    /// The second, which ends at this moment of the programs' clock.
    #[must_use]
    pub fn finish(mut self, to_ns: u64, names: &Names, rules: &Rules) -> Moment {
        self.keep_slowest();
        self.slow.sort_by_key(|call| call.end_ns);
        let slow = std::mem::take(&mut self.slow);
        let mut usage = std::mem::take(&mut self.usage);
        usage.set_span(self.from_ns, to_ns);
        let usage = usage.finish(names);
        let bytes = std::mem::take(&mut self.bytes);
        let disks = usage.into_iter().map(|usage| {
            let [read, written] = bytes
                .get(&[usage.disk.major, usage.disk.minor])
                .copied()
                .unwrap_or_default();
            DiskUse {
                name: disk_name(names, [usage.disk.major, usage.disk.minor]),
                requests: usage.requests,
                read_bytes: Some(read),
                written_bytes: Some(written),
                busy_ns: usage.busy_ns,
                requests_ns: usage.device_ns,
                max_depth: Some(usage.max_depth),
                span_ns: usage.span_ns,
            }
        });
        let disks = disks.collect();
        Moment {
            open_files: self.open_files(names),
            groups: self.groups(names, rules),
            slow_left_out: self.slow_seen - slow.len() as u64,
            slow_calls: slow.iter().map(|call| slow_call(call, names, rules)).collect(),
            limits: self.limits,
            disks,
            lost: self.lost,
        }
    }

    fn open_files(&mut self, names: &Names) -> Vec<OpenFileUse> {
        let open = std::mem::take(&mut self.open).into_iter();
        let open = open.map(|((pid, file), open)| OpenFileUse {
            pid,
            fd: open.fd,
            who: file_of(names, names.key(file)),
            calls: open.calls,
            read_bytes: open.read_bytes,
            written_bytes: open.written_bytes,
            ns: open.ns,
            longest_ns: open.longest_ns,
        });
        let mut open: Vec<OpenFileUse> = open.collect();
        open.sort_unstable_by_key(|open| (std::cmp::Reverse(open.ns), open.pid, open.fd));
        open.truncate(MOST);
        open
    }

    fn groups(&mut self, names: &Names, rules: &Rules) -> Vec<(By, Vec<MomentGroup>)> {
        let processes = std::mem::take(&mut self.processes).into_iter();
        let processes = processes.map(|(pid, sum)| {
            let comm = names.process(pid).comm.unwrap_or_default();
            sum.group(Who::Process { pid: pid.into(), comm }, rules)
        });
        let files = std::mem::take(&mut self.files).into_iter();
        let files = files.map(|(key, sum)| sum.group(file_of(names, key), rules));
        let disks = std::mem::take(&mut self.disks).into_iter();
        let disks = disks.map(|(disk, sum)| {
            let who = disk.map_or(Who::Unknown(By::Disk), |disk| Who::Disk {
                name: disk_name(names, disk),
            });
            sum.group(who, rules)
        });
        vec![
            (By::Process, largest(processes)),
            (By::File, largest(files)),
            (By::Disk, largest(disks)),
        ]
    }
}

fn count([broken, all]: &mut [u64; 2], is_broken: bool) {
    *broken += u64::from(is_broken);
    *all += 1;
}

fn largest(groups: impl Iterator<Item = MomentGroup>) -> Vec<MomentGroup> {
    let mut groups: Vec<MomentGroup> = groups.collect();
    groups.sort_by_cached_key(|group| (std::cmp::Reverse(group.ns), group.who.name()));
    groups.truncate(MOST);
    groups
}

fn file_of(names: &Names, key: Option<FileKey>) -> Who {
    key.map_or(Who::Unknown(By::File), |key| {
        let file = names.file(key);
        Who::File {
            inode: file.inode,
            path: file.path,
        }
    })
}

fn disk_name(names: &Names, numbers: [u32; 2]) -> String {
    let [major, minor] = numbers;
    names.disk(numbers).name.unwrap_or_else(|| format!("{major}:{minor}"))
}

/// A call as it is reported.
fn slow_call(call: &Call, names: &Names, rules: &Rules) -> SlowCall {
    let file = names.key(call.files[0]).map(|key| names.file(key));
    let is_of_bytes = rules
        .families
        .get(&call.op)
        .is_some_and(|family| matches!(family, Family::Read | Family::Write));
    let mut rows: Vec<SlowRow> = rules
        .rows
        .iter()
        .zip(&call.rows)
        .filter_map(|(row, ns)| Some(SlowRow { row: (*row)?, ns: *ns }).filter(|row| row.ns > 0))
        .collect();
    let order = |row: &SlowRow| match row.row {
        Row::Layer(layer) => Layer::ALL.iter().position(|known| *known == layer),
        wait => Row::WAITS
            .iter()
            .position(|known| *known == wait)
            .map(|at| at + Layer::ALL.len()),
    };
    rows.sort_by_key(order);
    SlowCall {
        ended: rules.clock.wall(call.end_ns.unwrap_or(call.begin_ns)),
        pid: call.pid,
        tid: call.tid,
        comm: names.process(call.pid).comm.unwrap_or_default(),
        op: call.op,
        path: file
            .as_ref()
            .and_then(|file| file.path.clone())
            .or_else(|| given_path(call)),
        inode: file.and_then(|file| file.inode),
        offset: call.offset,
        size: call.size,
        bytes: u64::try_from(call.value).ok().filter(|_| is_of_bytes),
        errno: errno_of(call.value),
        total_ns: call.duration_ns().unwrap_or(0),
        rows,
        not_split: rules.not_split,
    }
}

#[cfg(test)]
mod tests {
    use super::super::synthetic;
    use super::*;
    use crate::model::run_info::StackInfo;

    #[test]
    fn of_many_slow_calls_the_slowest_are_listed_and_the_others_counted() {
        let (names, mut fold) = (Names::default(), Fold::begin(0));
        let rules = Rules::new(Clock::default(), &RunInfo::default(), &[], 10, &[]);
        // Each takes 10 ns more than the one before.
        let calls = (0..250_u64).map(|number| {
            let mut call = synthetic::call(Op::Pread64, 100, 4096, 512);
            call.end_ns = Some(call.begin_ns + 10 * number);
            call
        });
        let records = Records {
            calls: calls.collect(),
            ..Records::default()
        };
        fold.take(&records, &names, &rules);
        let moment = fold.finish(10_000, &names, &rules);
        assert_eq!((moment.slow_calls.len(), moment.slow_left_out), (MOST, 149));
        assert_eq!(moment.slow_calls[0].total_ns, 1500);
    }

    #[test]
    fn the_time_of_slow_calls_is_split_if_a_layer_below_was_measured() {
        let names = Names::default();
        let mut call = synthetic::call(Op::Pread64, 100, 4096, 512);
        (call.rows[0], call.rows[1]) = (3, 7);
        let records = Records {
            calls: vec![call],
            ..Records::default()
        };
        let rows = ["syscall", "vfs"].map(str::to_owned);
        for (has_vfs, label) in [(true, "syscall"), (false, "kernel (not split)")] {
            let run = RunInfo {
                stack: Some(StackInfo {
                    layers: vec![(Layer::Syscall, true), (Layer::Vfs, has_vfs)],
                    ..StackInfo::default()
                }),
                ..RunInfo::default()
            };
            let rules = Rules::new(Clock::default(), &run, &rows, 0, &[]);
            let mut fold = Fold::begin(0);
            fold.take(&records, &names, &rules);
            let moment = fold.finish(1000, &names, &rules);
            let [slow] = &moment.slow_calls[..] else {
                panic!("{moment:?}")
            };
            assert_eq!(slow.label(&slow.rows[0]), label);
        }
    }
}
