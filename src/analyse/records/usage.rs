//! How busy each disk was: the time with one or more requests at the device, and how many there were at once.

use std::collections::BTreeMap;

use super::names::Names;
use super::order::InOrder;
use crate::model::record::Records;
use crate::model::report::records::DiskUsage;

/// Folds issues and completions in the order of time.
#[derive(Debug, Default)]
pub struct Usage {
    order: InOrder<Change>,
    disks: BTreeMap<[u32; 2], Disk>,
    /// The recorded time; `None`: that of the records.
    span: Option<(u64, u64)>,
    /// The first and the last moment of all records; `None`: there were none.
    seen: Option<(u64, u64)>,
}

#[derive(Debug)]
struct Change {
    disk: [u32; 2],
    is_issue: bool,
}

#[derive(Debug, Default)]
struct Disk {
    at_ns: u64,
    depth: u64,
    max_depth: u64,
    requests: u64,
    busy_ns: u64,
    device_ns: u64,
}

impl Usage {
    /// Sets the recorded time: what a request was at the device before and afterwards is not counted. The begin is to be
    /// known before the first record, the end at the last.
    pub const fn set_span(&mut self, from_ns: u64, to_ns: u64) {
        self.span = Some((from_ns, to_ns));
    }

    /// Folds the next records.
    pub fn take(&mut self, records: &Records, names: &Names) {
        for call in &records.calls {
            self.see(call.begin_ns, call.end_ns.unwrap_or(call.begin_ns));
        }
        for request in &records.requests {
            self.see(request.begin_ns(), request.ended_ns);
            let Some(issued_ns) = request.issued_ns.filter(|_| names.selects_disk(request)) else {
                continue;
            };
            let changes = [(issued_ns, true), (request.ended_ns.max(issued_ns), false)];
            for (at_ns, is_issue) in changes {
                let disk = request.disk;
                let ready = self.order.push(at_ns, Change { disk, is_issue });
                if let Some((at_ns, change)) = ready {
                    self.apply(at_ns, &change);
                }
            }
        }
    }

    fn apply(&mut self, at_ns: u64, change: &Change) {
        let (from_ns, to_ns) = self.span.unwrap_or((0, u64::MAX));
        let disk = self.disks.entry(change.disk).or_default();
        disk.change(at_ns.max(from_ns).min(to_ns), change.is_issue);
    }

    fn see(&mut self, from_ns: u64, to_ns: u64) {
        let (first, last) = self.seen.unwrap_or((from_ns, to_ns));
        self.seen = Some((first.min(from_ns), last.max(to_ns)));
    }

    /// The use of each disk.
    #[must_use]
    pub fn finish(mut self, names: &Names) -> Vec<DiskUsage> {
        while let Some((at_ns, change)) = self.order.pop() {
            self.apply(at_ns, &change);
        }
        let (from_ns, to_ns) = self.span.or(self.seen).unwrap_or_default();
        let disks = self.disks.into_iter().map(|(numbers, disk)| DiskUsage {
            disk: names.disk(numbers),
            requests: disk.requests,
            busy_ns: disk.busy_ns,
            device_ns: disk.device_ns,
            max_depth: disk.max_depth,
            span_ns: to_ns.saturating_sub(from_ns),
        });
        disks.collect()
    }
}

impl Disk {
    fn change(&mut self, at_ns: u64, is_issue: bool) {
        // A change that arrives after later ones adds no time.
        let elapsed = at_ns.saturating_sub(self.at_ns);
        if self.depth > 0 {
            self.busy_ns = self.busy_ns.saturating_add(elapsed);
            self.device_ns = self.device_ns.saturating_add(elapsed.saturating_mul(self.depth));
        }
        self.at_ns = self.at_ns.max(at_ns);
        if is_issue {
            self.requests += 1;
            self.depth += 1;
            self.max_depth = self.max_depth.max(self.depth);
        } else {
            self.depth = self.depth.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::synthetic::{call, request};
    use super::*;
    use crate::model::ids::Op;
    use crate::model::record::Request;

    fn usage(requests: Vec<Request>, span: Option<(u64, u64)>) -> Vec<DiskUsage> {
        let mut usage = Usage::default();
        let records = Records {
            requests,
            calls: vec![call(Op::Read, 0, 0, 1)],
            ..Records::default()
        };
        if let Some((from_ns, to_ns)) = span {
            usage.set_span(from_ns, to_ns);
        }
        usage.take(&records, &Names::default());
        usage.finish(&Names::default())
    }

    fn at_device(from: u64, to: u64) -> Request {
        Request {
            ended_ns: to,
            ..request(Op::Read, from, 0, 512)
        }
    }

    #[test]
    fn a_moment_with_two_requests_is_busy_once_and_deep_twice() {
        let mut other = at_device(10, 60);
        other.disk = [8, 16];
        let mut flushed = at_device(0, 1_000);
        flushed.issued_ns = None;
        let all = usage(
            vec![
                at_device(30, 50),
                at_device(10, 40),
                other,
                at_device(90, 100),
                flushed,
                at_device(70, 70),
            ],
            Some((0, 200)),
        );
        let first = &all[0];
        assert_eq!((first.busy_ns, first.device_ns, first.max_depth), (50, 60, 2));
        assert_eq!((first.requests, first.span_ns, all[1].busy_ns), (4, 200, 50));
        assert_eq!(usage(vec![at_device(30, 50)], None)[0].span_ns, 50);
        assert!(usage(vec![], None).is_empty());
    }

    #[test]
    fn a_request_is_busy_only_inside_the_span() {
        let requests = vec![at_device(10, 120), at_device(20, 130), at_device(190, 250)];
        let all = usage(requests, Some((100, 200)));
        let disk = &all[0];
        assert_eq!((disk.busy_ns, disk.device_ns, disk.span_ns), (40, 60, 100));
        assert_eq!((disk.requests, disk.max_depth), (3, 2));
    }

    #[test]
    fn the_end_of_time_overflows_nothing() {
        let all = usage(vec![at_device(0, u64::MAX), at_device(0, u64::MAX)], None);
        assert_eq!((all[0].busy_ns, all[0].device_ns), (u64::MAX, u64::MAX));
        assert_eq!(usage(vec![at_device(50, 20)], None)[0].busy_ns, 0);
    }
}
