//! Which calls and requests took longer than a limit, who waited, and what disks served during these waits.
//!
//! A wait is known at its end, and what was served during it ended before or afterwards. So waits and requests are put
//! into the order of time first. Then each disk keeps, for each limit, the sum over time of the number of waits: the
//! difference between a request's completion and issue is its share, so that neither waits nor requests are compared
//! with each other.

use std::collections::HashMap;

use super::names::Names;
use super::order::InOrder;
use crate::catalog::families;
use crate::model::ids::{Family, Op};
use crate::model::record::{FileNumber, Records, Request};
use crate::model::report::records::{Limit, LimitReport, Limited, Served, ServedOther, Waiter};

/// Folds calls and requests.
#[derive(Debug, Default)]
pub struct Limits {
    limits: Vec<Watched>,
    families: HashMap<Op, Family>,
    /// The whole disk of each device on which a request was seen.
    disks: HashMap<[u32; 2], [u32; 2]>,
    order: InOrder<Change>,
    now_ns: u64,
    last_ns: u64,
    /// By limit, disk (`None`: all disks) and process (`None`: all processes): waits.
    waits: HashMap<WaitsKey, Waits>,
    next_request: u64,
    /// The sums at the issue of each request at the device, by limit: of all waits, and of its own process's.
    at_device: HashMap<u64, Vec<[u64; 2]>>,
    /// Calls under way at the end of the run.
    open: Vec<Open>,
}

type WaitsKey = (u32, Option<[u32; 2]>, Option<u32>);

/// A limit, and how it was kept so far.
#[derive(Debug)]
struct Watched {
    limit: Limit,
    broken: u64,
    count: u64,
    longest_ns: u64,
    under_way: u64,
    waited: HashMap<u32, u64>,
    own_ns: u64,
    served: HashMap<u32, u64>,
    unknown_ns: u64,
}

/// A call without an end.
#[derive(Debug)]
struct Open {
    op: Op,
    begin_ns: u64,
    pid: u32,
    disk: Option<[u32; 2]>,
}

/// An event of the sweep over time.
#[derive(Debug)]
enum Change {
    /// A wait begins (`is_begin`) or ends.
    Wait {
        limit: u32,
        disk: Option<[u32; 2]>,
        pid: u32,
        is_begin: bool,
    },
    Issue {
        request: u64,
        disk: [u32; 2],
        pid: u32,
    },
    End {
        request: u64,
        disk: [u32; 2],
        pid: u32,
    },
}

/// The number of waits now, and its sum over the time until `at_ns`.
#[derive(Debug, Clone, Copy, Default)]
struct Waits {
    number: u64,
    sum: u64,
    at_ns: u64,
}

impl Waits {
    fn sum_at(self, at_ns: u64) -> u64 {
        let elapsed = at_ns.saturating_sub(self.at_ns);
        self.sum.saturating_add(elapsed.saturating_mul(self.number))
    }

    fn change(&mut self, at_ns: u64, is_begin: bool) {
        self.sum = self.sum_at(at_ns);
        self.at_ns = self.at_ns.max(at_ns);
        self.number = if is_begin {
            self.number.saturating_add(1)
        } else {
            self.number.saturating_sub(1)
        };
    }
}

/// A wait of which the length is known.
#[derive(Debug, Clone, Copy)]
struct Wait {
    begin_ns: u64,
    end_ns: u64,
    pid: u32,
    disk: Option<[u32; 2]>,
}

impl Limits {
    #[must_use]
    pub fn new(limits: &[Limit]) -> Self {
        let watched = limits.iter().map(|limit| Watched {
            limit: *limit,
            broken: 0,
            count: 0,
            longest_ns: 0,
            under_way: 0,
            waited: HashMap::new(),
            own_ns: 0,
            served: HashMap::new(),
            unknown_ns: 0,
        });
        Self {
            limits: watched.collect(),
            families: families().collect(),
            ..Self::default()
        }
    }

    /// Folds the next records, whose files `names` knows.
    pub fn take(&mut self, records: &Records, names: &Names) {
        for request in &records.requests {
            self.disks.insert(request.disk, request.disk);
            self.disks.insert(request.partition, request.disk);
        }
        for request in &records.requests {
            self.request(request, names.selects_request(request));
        }
        for call in records.calls.iter().filter(|call| names.selects_call(call)) {
            let disk = self.disk_of(call.files[0], names);
            match call.end_ns {
                Some(end_ns) => {
                    let wait = Wait {
                        begin_ns: call.begin_ns,
                        end_ns,
                        pid: call.pid,
                        disk,
                    };
                    self.call(call.op, wait, false);
                }
                None => self.open.push(Open {
                    op: call.op,
                    begin_ns: call.begin_ns,
                    pid: call.pid,
                    disk,
                }),
            }
        }
        let calls = records.asynchronous.iter();
        for call in calls.filter(|call| names.selects(call.pid, call.tid, names.key(call.file), call.end_ns)) {
            let wait = Wait {
                begin_ns: call.begin_ns,
                end_ns: call.end_ns,
                pid: call.pid,
                disk: self.disk_of(call.file, names),
            };
            self.call(call.op, wait, false);
        }
    }

    /// The disk with an open file; `None`: unknown, so that its calls may wait for any disk.
    fn disk_of(&self, file: FileNumber, names: &Names) -> Option<[u32; 2]> {
        let device = names.key(file)?.device()?;
        // A disk of which no request was recorded so far is idle.
        names.serving_disk(device).or_else(|| self.disks.get(&device).copied())
    }

    /// Compares a call with its limits.
    fn call(&mut self, op: Op, wait: Wait, is_under_way: bool) {
        self.last_ns = self.last_ns.max(wait.end_ns);
        let family = self.families.get(&op).copied();
        for index in 0..self.limits.len() {
            let is_of = match self.limits[index].limit.of {
                Limited::Family(limited) => family == Some(limited),
                Limited::Op(limited) => op == limited,
                Limited::Queue | Limited::Device => false,
            };
            if is_of {
                self.compare(index, wait, is_under_way);
            }
        }
    }

    /// A request that is not selected is served, and breaks no limit.
    fn request(&mut self, request: &Request, is_selected: bool) {
        self.last_ns = self.last_ns.max(request.ended_ns);
        let Some(issued_ns) = request.issued_ns else {
            return;
        };
        let (disk, pid) = (request.disk, request.pid);
        let id = self.next_request;
        self.next_request += 1;
        let ended_ns = request.ended_ns.max(issued_ns);
        self.push(issued_ns, Change::Issue { request: id, disk, pid });
        self.push(ended_ns, Change::End { request: id, disk, pid });
        for index in (0..self.limits.len()).filter(|_| is_selected) {
            let (begin_ns, end_ns) = match self.limits[index].limit.of {
                Limited::Device => (Some(issued_ns), ended_ns),
                Limited::Queue => (request.submitted_ns.or(request.started_ns), issued_ns),
                Limited::Family(_) | Limited::Op(_) => continue,
            };
            if let Some(begin_ns) = begin_ns {
                let wait = Wait {
                    begin_ns,
                    end_ns,
                    pid,
                    disk: Some(disk),
                };
                self.compare(index, wait, false);
            }
        }
    }

    fn compare(&mut self, index: usize, wait: Wait, is_under_way: bool) {
        let watched = &mut self.limits[index];
        let ns = wait.end_ns.saturating_sub(wait.begin_ns);
        watched.count += 1;
        if ns <= watched.limit.ns {
            return;
        }
        watched.broken += 1;
        watched.under_way += u64::from(is_under_way);
        watched.longest_ns = watched.longest_ns.max(ns);
        *watched.waited.entry(wait.pid).or_default() += 1;
        if watched.limit.of == Limited::Device {
            return;
        }
        // What is before the sweep is not known any more.
        let begin_ns = wait.begin_ns.max(self.now_ns).min(wait.end_ns);
        watched.unknown_ns = watched.unknown_ns.saturating_add(begin_ns - wait.begin_ns);
        for (at_ns, is_begin) in [(begin_ns, true), (wait.end_ns, false)] {
            let change = Change::Wait {
                limit: index as u32,
                disk: wait.disk,
                pid: wait.pid,
                is_begin,
            };
            self.push(at_ns, change);
        }
    }

    fn push(&mut self, at_ns: u64, change: Change) {
        if let Some((at_ns, change)) = self.order.push(at_ns, change) {
            self.apply(at_ns, &change);
        }
    }

    fn apply(&mut self, at_ns: u64, change: &Change) {
        self.now_ns = self.now_ns.max(at_ns);
        match *change {
            Change::Wait {
                limit,
                disk,
                pid,
                is_begin,
            } => {
                for whose in [None, Some(pid)] {
                    let waits = self.waits.entry((limit, disk, whose)).or_default();
                    waits.change(at_ns, is_begin);
                }
            }
            Change::Issue { request, disk, pid } => {
                let sums = self.sums(at_ns, disk, pid);
                self.at_device.insert(request, sums);
            }
            Change::End { request, disk, pid } => {
                // A completion that was returned before its issue is not added.
                let Some(before) = self.at_device.remove(&request) else {
                    return;
                };
                let after = self.sums(at_ns, disk, pid);
                for (watched, (before, after)) in self.limits.iter_mut().zip(before.iter().zip(after)) {
                    let all = after[0].saturating_sub(before[0]);
                    let own = after[1].saturating_sub(before[1]);
                    watched.own_ns = watched.own_ns.saturating_add(own);
                    let others = all.saturating_sub(own);
                    if others > 0 {
                        let served = watched.served.entry(pid).or_default();
                        *served = served.saturating_add(others);
                    }
                }
            }
        }
    }

    /// For each limit, the sums of waits on a disk: of all processes, and of one.
    fn sums(&self, at_ns: u64, disk: [u32; 2], pid: u32) -> Vec<[u64; 2]> {
        let of = |limit: u32, whose: Option<u32>| {
            let disks = [Some(disk), None];
            let found = disks.iter().filter_map(|disk| self.waits.get(&(limit, *disk, whose)));
            found.map(|waits| waits.sum_at(at_ns)).fold(0, u64::saturating_add)
        };
        let limits = 0..self.limits.len() as u32;
        limits
            .map(|limit| [of(limit, None), if pid == 0 { 0 } else { of(limit, Some(pid)) }])
            .collect()
    }

    /// The report. `end_ns`: the end of the recorded time; `None`: the last end of a record.
    #[must_use]
    pub fn finish(mut self, names: &Names, end_ns: Option<u64>) -> Vec<LimitReport> {
        let end_ns = end_ns.unwrap_or(self.last_ns);
        for open in std::mem::take(&mut self.open) {
            let wait = Wait {
                begin_ns: open.begin_ns,
                end_ns: end_ns.max(open.begin_ns),
                pid: open.pid,
                disk: open.disk,
            };
            self.call(open.op, wait, true);
        }
        while let Some((at_ns, change)) = self.order.pop() {
            self.apply(at_ns, &change);
        }
        self.limits.into_iter().map(|watched| watched.report(names)).collect()
    }
}

impl Watched {
    fn report(self, names: &Names) -> LimitReport {
        let mut waited: Vec<(u32, u64)> = self.waited.into_iter().collect();
        waited.sort_unstable_by_key(|(pid, broken)| (std::cmp::Reverse(*broken), *pid));
        let waited = waited.into_iter().map(|(pid, broken)| Waiter {
            process: names.process(pid),
            broken,
        });
        let mut others: Vec<(u32, u64)> = self.served.into_iter().collect();
        others.sort_unstable_by_key(|(pid, ns)| (std::cmp::Reverse(*ns), *pid));
        let others = others.into_iter().map(|(pid, device_ns)| ServedOther {
            process: names.process(pid),
            device_ns,
        });
        LimitReport {
            limit: self.limit,
            broken: self.broken,
            count: self.count,
            longest_ns: self.longest_ns,
            under_way: self.under_way,
            waited: waited.collect(),
            served: (self.limit.of != Limited::Device).then(|| Served {
                own_ns: self.own_ns,
                others: others.collect(),
                unknown_ns: self.unknown_ns,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Answers;
    use super::super::synthetic::{asynchronous, call, definitions, open_file, process, random, request};
    use super::*;
    use crate::model::record::Call;
    use crate::model::recording::{Disk, Meta, Partition};
    use crate::model::report::records::{LimitsReport, Questions, Served};
    use crate::model::report::slow::Inode;
    use crate::model::selection::Selection;

    fn limit(of: &str, ns: u64) -> Limit {
        Limit {
            of: of.parse().unwrap(),
            ns,
        }
    }

    fn answered(limits: &[Limit], batches: &[Records]) -> LimitsReport {
        answered_by(Names::default(), limits, batches)
    }

    fn answered_by(names: Names, limits: &[Limit], batches: &[Records]) -> LimitsReport {
        let questions = Questions {
            limits: limits.to_vec(),
            ..Questions::default()
        };
        let mut answers = Answers::new(&questions, names);
        answers.take(&definitions());
        answers.take(&Records {
            threads: vec![process(8, "tar"), process(9, "cp")],
            ..Records::default()
        });
        for batch in batches {
            answers.take(batch);
        }
        answers.finish().limits.unwrap()
    }

    fn took(op: Op, begin_ns: u64, ns: u64) -> Call {
        Call {
            end_ns: Some(begin_ns + ns),
            ..call(op, begin_ns, 0, 4096)
        }
    }

    fn of(pid: u32, from: u64, to: u64) -> Request {
        Request {
            pid,
            ended_ns: to,
            ..request(Op::Read, from, 0, 4096)
        }
    }

    #[test]
    fn words_of_limits() {
        assert_eq!("read".parse(), Ok(Limited::Family(Family::Read)));
        assert_eq!("pread64".parse(), Ok(Limited::Op(Op::Pread64)));
        assert_eq!("device".parse(), Ok(Limited::Device));
        let error = "reed".parse::<Limited>().unwrap_err().to_string();
        assert_eq!(error, "'reed' is no family, call, queue or device");
    }

    #[test]
    fn what_takes_longer_breaks_a_limit_and_what_takes_as_long_does_not() {
        let records = Records {
            calls: vec![
                took(Op::Read, 0, 10),
                took(Op::Pread64, 100, 11),
                took(Op::Fsync, 200, 99),
                Call {
                    pid: 8,
                    ..took(Op::Preadv2, 300, 40)
                },
                took(Op::Readv, 400, 12),
            ],
            asynchronous: vec![asynchronous(Op::Read, 500, 0, 1)],
            ..Records::default()
        };
        let report = answered(
            &[limit("read", 10), limit("fsync", 99), limit("pread64", 5)],
            &[records],
        );
        let summary: Vec<_> = report
            .limits
            .iter()
            .map(|limit| (limit.broken, limit.count, limit.longest_ns))
            .collect();
        assert_eq!(summary, [(3, 5, 40), (0, 1, 0), (1, 1, 11)]);
        assert!(report.is_broken());
        let waited = &report.limits[0].waited;
        let waited: Vec<_> = waited
            .iter()
            .map(|waiter| (waiter.process.pid, waiter.broken))
            .collect();
        assert_eq!(waited, [(7, 2), (8, 1)]);
        assert!(!answered(&[limit("fsync", 1)], &[]).is_broken());
    }

    #[test]
    fn a_call_without_an_end_lasts_until_the_end_of_the_recording() {
        let open = Call {
            end_ns: None,
            ..call(Op::Fsync, 1_000, 0, 0)
        };
        let records = Records {
            calls: vec![open, took(Op::Read, 4_990, 10)],
            ..Records::default()
        };
        let report = answered(&[limit("fsync", 3_000)], &[records]);
        let fsync = &report.limits[0];
        assert_eq!((fsync.broken, fsync.under_way, fsync.longest_ns), (1, 1, 4_000));
    }

    #[test]
    fn requests_are_compared_at_the_device_and_in_the_queue() {
        let mut queued = of(8, 1_000, 1_005);
        queued.submitted_ns = Some(100);
        let mut flushed = of(8, 0, 9_999);
        flushed.issued_ns = None;
        let records = Records {
            requests: vec![of(7, 0, 50), queued, of(9, 900, 1_020), flushed],
            ..Records::default()
        };
        let report = answered(&[limit("device", 40), limit("queue", 4)], &[records]);
        let device = &report.limits[0];
        assert_eq!((device.broken, device.count, device.longest_ns), (2, 3, 120));
        assert_eq!(device.served, None);
        let queue = &report.limits[1];
        assert_eq!((queue.broken, queue.longest_ns), (1, 900));
        let served = queue.served.as_ref().unwrap();
        assert_eq!((served.own_ns, served.others[0].device_ns), (0, 100));
    }

    #[test]
    fn what_disks_served_meanwhile_is_that_of_the_files_disk() {
        let on_another = Request {
            disk: [8, 16],
            partition: [8, 17],
            ..of(9, 0, 5_000)
        };
        let records = Records {
            requests: vec![
                of(7, 1_050, 1_100),
                // Half of it is before the wait; it ends after it.
                of(8, 900, 1_100),
                of(9, 1_150, 9_000),
                on_another,
            ],
            calls: vec![took(Op::Read, 1_000, 200)],
            ..Records::default()
        };
        let report = answered(&[limit("read", 100)], &[records]);
        let served = report.limits[0].served.clone().unwrap();
        let others: Vec<_> = served
            .others
            .iter()
            .map(|other| (other.process.comm.as_deref().unwrap(), other.device_ns))
            .collect();
        assert_eq!((served.own_ns, served.unknown_ns), (50, 0));
        assert_eq!(others, [("tar", 100), ("cp", 50)]);
        assert_eq!(served.device_ns(), 200);
        assert_eq!(report.disks.len(), 2);
    }

    /// What disks served while a call on a file of this device waited, during which another disk serves for 50 ns.
    fn served_on([major, minor]: [u32; 2], names: Names) -> Served {
        let mut file = open_file(5, 1, "/mounted/a");
        file.inode = Some(Inode::on([major, minor], 1));
        let records = Records {
            files: vec![file],
            requests: vec![of(8, 0, 50)],
            calls: vec![Call {
                files: [5, 0],
                ..took(Op::Read, 0, 100)
            }],
            ..Records::default()
        };
        let mut report = answered_by(names, &[limit("read", 10)], &[records]);
        report.limits.remove(0).served.unwrap()
    }

    /// For how long disks served a call on a file of a disk without recorded requests.
    fn served_meanwhile(has_requests: Option<bool>) -> u64 {
        let idle = Disk {
            number: [253, 0],
            partitions: vec![Partition {
                number: [253, 1],
                ..Partition::default()
            }],
            has_requests,
            ..Disk::default()
        };
        let meta = Meta {
            disks: vec![idle],
            ..Meta::default()
        };
        served_on([253, 1], Names::of(&meta, Selection::default())).device_ns()
    }

    #[test]
    fn a_disk_without_requests_serves_nothing_unless_it_passes_them_on() {
        assert_eq!(served_meanwhile(Some(true)), 0);
        // A logical volume, and a disk in what an earlier version recorded.
        assert_eq!([Some(false), None].map(served_meanwhile), [50, 50]);
    }

    #[test]
    fn a_file_on_an_unknown_device_waits_for_every_disk() {
        assert_eq!(served_on([0, 44], Names::default()).others[0].device_ns, 50);
    }

    /// The sums of the sweep, against a comparison of each wait with each request.
    #[test]
    fn the_sweep_gives_what_comparing_each_wait_with_each_request_gives() {
        let mut numbers = random(9);
        let mut next = |below: u64| numbers.next().unwrap() % below;
        let calls: Vec<Call> = (0..300)
            .map(|_| Call {
                pid: 7 + next(3) as u32,
                ..took(Op::Read, next(10_000), next(400))
            })
            .collect();
        let requests: Vec<Request> = (0..500)
            .map(|_| {
                let from = next(10_000);
                of(7 + next(3) as u32, from, from + next(300))
            })
            .collect();
        let overlap = |call: &Call, request: &Request| {
            let from = call.begin_ns.max(request.issued_ns.unwrap());
            call.end_ns.unwrap().min(request.ended_ns).saturating_sub(from)
        };
        let mut own = 0;
        let mut others = [0; 3];
        for call in calls.iter().filter(|call| call.duration_ns().unwrap() > 200) {
            for request in &requests {
                if request.pid == call.pid {
                    own += overlap(call, request);
                } else {
                    others[request.pid as usize - 7] += overlap(call, request);
                }
            }
        }
        let batches: Vec<Records> = calls
            .chunks(10)
            .zip(requests.chunks(17))
            .map(|(calls, requests)| Records {
                calls: calls.to_vec(),
                requests: requests.to_vec(),
                ..Records::default()
            })
            .collect();
        let known = Records {
            requests: vec![of(0, 20_000, 20_000)],
            ..Records::default()
        };
        let batches = [vec![known], batches].concat();
        let served = answered(&[limit("read", 200)], &batches).limits[0]
            .served
            .clone()
            .unwrap();
        assert_eq!(served.own_ns, own);
        for other in &served.others {
            assert_eq!(other.device_ns, others[other.process.pid as usize - 7]);
        }
        assert_eq!(served.others.len(), 3);
    }

    #[test]
    fn a_wait_that_began_before_what_is_kept_is_counted_without_that_part() {
        let mut limits = Limits::new(&[limit("read", 10)]);
        limits.order = InOrder::with_room(2);
        let mut names = Names::default();
        names.learn(&definitions());
        let fold = |limits: &mut Limits, records: Records| limits.take(&records, &names);
        fold(
            &mut limits,
            Records {
                requests: vec![of(8, 0, 100), of(8, 100, 1_000), of(8, 1_000, 2_000)],
                ..Records::default()
            },
        );
        fold(
            &mut limits,
            Records {
                calls: vec![took(Op::Read, 0, 2_000)],
                ..Records::default()
            },
        );
        let report = limits.finish(&names, None);
        let served = report[0].served.as_ref().unwrap();
        assert_eq!(served.unknown_ns + served.device_ns(), 2_000);
        assert!(served.unknown_ns > 0);
    }

    #[test]
    fn the_end_of_time_and_unknown_owners_overflow_nothing() {
        let records = Records {
            requests: vec![of(0, 0, u64::MAX), of(0, 0, u64::MAX), of(7, u64::MAX, 0)],
            calls: vec![
                took(Op::Read, 0, u64::MAX),
                Call {
                    end_ns: Some(5),
                    ..call(Op::Read, u64::MAX, 0, 0)
                },
            ],
            ..Records::default()
        };
        let report = answered(&[limit("read", 0), limit("queue", 0)], &[records]);
        let served = report.limits[0].served.as_ref().unwrap();
        assert_eq!((served.own_ns, served.others[0].device_ns), (0, u64::MAX));
    }
}
