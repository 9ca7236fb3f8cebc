//! How far a disk has to go from one request to the next, and whose requests send it there.

use std::collections::{BTreeMap, HashMap};

use super::names::{FileKey, Names};
use super::order::InOrder;
use crate::model::ids::Op;
use crate::model::record::Records;
use crate::model::report::records::{
    DiskSeeks, DiskUsage, FileName, Owner, SeekPair, SeekRow, SeekSums, SeeksBy, SeeksReport,
};

/// Bytes of a sector.
const SECTOR: u64 = 512;
/// Pairs of owners that are distinguished on each disk.
const PAIRS: usize = 1 << 16;
/// Rows of one sign: distances from 2^0 to 2^63 sectors.
const ROWS: usize = 64;

/// Folds requests in the order of their issues.
#[derive(Debug)]
pub struct Seeks {
    by: SeeksBy,
    /// The requests of all disks.
    order: InOrder<One>,
    disks: BTreeMap<[u32; 2], Disk>,
}

#[derive(Debug, Default)]
struct Disk {
    before: Option<(u128, OwnerKey)>,
    requests: u64,
    zero: u64,
    backward: Rows,
    forward: Rows,
    sums: SeekSums,
    pairs: HashMap<(OwnerKey, OwnerKey), SeekSums>,
    other_pairs: SeekSums,
    left_out: u64,
}

#[derive(Debug)]
struct Rows([u64; ROWS]);

impl Default for Rows {
    fn default() -> Self {
        Self([0; ROWS])
    }
}

/// A request that reads or writes.
#[derive(Debug)]
struct One {
    disk: [u32; 2],
    sector: u64,
    bytes: u64,
    device_ns: u64,
    owner: OwnerKey,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum OwnerKey {
    Process(u32),
    /// `None`: unknown.
    File(Option<FileKey>),
    Disk,
}

/// Whether a request moves the head: it reads or writes sectors.
fn moves(op: Op) -> bool {
    matches!(
        op,
        Op::Read | Op::Write | Op::WriteSame | Op::WriteZeroes | Op::ZoneAppend
    )
}

impl Seeks {
    #[must_use]
    pub fn new(by: SeeksBy) -> Self {
        Self {
            by,
            order: InOrder::default(),
            disks: BTreeMap::new(),
        }
    }

    /// Folds the next records.
    pub fn take(&mut self, records: &Records, names: &Names) {
        for request in records.requests.iter().filter(|request| names.selects_disk(request)) {
            let owner = match self.by {
                SeeksBy::Process => OwnerKey::Process(request.pid),
                SeeksBy::File => OwnerKey::File(names.counted_file_of(request)),
                SeeksBy::Disk => OwnerKey::Disk,
            };
            let Some(issued_ns) = request.issued_ns.filter(|_| moves(request.op) && request.bytes > 0) else {
                self.disks.entry(request.disk).or_default().left_out += 1;
                continue;
            };
            let one = One {
                disk: request.disk,
                sector: request.sector,
                bytes: request.bytes,
                device_ns: request.ended_ns.saturating_sub(issued_ns),
                owner,
            };
            if let Some((_, one)) = self.order.push(issued_ns, one) {
                self.disks.entry(one.disk).or_default().compare(&one);
            }
        }
    }

    /// The report, without the use of disks. `top`: at most so many pairs.
    #[must_use]
    pub fn report(mut self, names: &Names, top: usize) -> SeeksReport {
        while let Some((_, one)) = self.order.pop() {
            self.disks.entry(one.disk).or_default().compare(&one);
        }
        let disks = self.disks.into_iter();
        SeeksReport {
            by: self.by,
            out_of_order: self.order.out_of_order(),
            disks: disks.map(|(numbers, disk)| disk.finish(numbers, names, top)).collect(),
        }
    }
}

impl Disk {
    fn compare(&mut self, one: &One) {
        self.requests += 1;
        let start = u128::from(one.sector);
        let end = start + u128::from(one.bytes.div_ceil(SECTOR));
        let Some((before, after)) = self.before.replace((end, one.owner)) else {
            return;
        };
        if start == before {
            self.zero += 1;
            return;
        }
        let sectors = u64::try_from(start.abs_diff(before)).unwrap_or(u64::MAX);
        let rows = if start > before {
            &mut self.forward
        } else {
            &mut self.backward
        };
        rows.0[sectors.ilog2() as usize] += 1;
        let sums = SeekSums {
            seeks: 1,
            sectors,
            device_ns: one.device_ns,
        };
        self.sums.add(sums);
        if one.owner == OwnerKey::Disk {
            return;
        }
        let pair = (one.owner, after);
        if self.pairs.len() < PAIRS || self.pairs.contains_key(&pair) {
            self.pairs.entry(pair).or_default().add(sums);
        } else {
            self.other_pairs.add(sums);
        }
    }

    fn finish(self, numbers: [u32; 2], names: &Names, top: usize) -> DiskSeeks {
        let rows = self.rows();
        let mut pairs: Vec<_> = self.pairs.into_iter().collect();
        pairs.sort_unstable_by_key(|(pair, sums)| (std::cmp::Reverse((sums.sectors, sums.seeks)), *pair));
        let mut other_pairs = self.other_pairs;
        for (_, sums) in pairs.drain(top.min(pairs.len())..) {
            other_pairs.add(sums);
        }
        let pairs = pairs.into_iter().map(|((mover, after), sums)| SeekPair {
            mover: mover.named(names),
            after: after.named(names),
            sums,
        });
        DiskSeeks {
            disk: names.disk(numbers),
            requests: self.requests,
            seeks: self.sums.seeks,
            sectors: self.sums.sectors,
            rows,
            pairs: pairs.collect(),
            other_pairs,
            left_out: self.left_out,
            usage: DiskUsage {
                disk: names.disk(numbers),
                ..DiskUsage::default()
            },
        }
    }

    /// All rows between the first and the last that are not empty.
    fn rows(&self) -> Vec<SeekRow> {
        let bound = |sectors: u128| i64::try_from(sectors).unwrap_or(i64::MAX);
        let row = |slot: usize, count: u64| SeekRow {
            from: bound(1 << slot),
            to: bound((1 << (slot + 1)) - 1),
            count,
        };
        let backward = self.backward.0.iter().enumerate().rev().map(|(slot, count)| {
            let SeekRow { from, to, count } = row(slot, *count);
            SeekRow {
                from: -to,
                to: -from,
                count,
            }
        });
        let zero = SeekRow {
            from: 0,
            to: 0,
            count: self.zero,
        };
        let forward = self.forward.0.iter().enumerate().map(|(slot, count)| row(slot, *count));
        let mut all: Vec<SeekRow> = backward.chain([zero]).chain(forward).collect();
        let last = all.iter().rposition(|row| row.count > 0);
        let first = all.iter().position(|row| row.count > 0);
        all.truncate(last.map_or(0, |last| last + 1));
        all.drain(..first.unwrap_or(0));
        all
    }
}

impl OwnerKey {
    fn named(self, names: &Names) -> Owner {
        match self {
            Self::Process(pid) => Owner::Process(names.process(pid)),
            Self::File(file) => Owner::File(file.map(|key| names.file(key)).unwrap_or_default()),
            Self::Disk => Owner::File(FileName::default()),
        }
    }
}

impl SeekSums {
    fn add(&mut self, other: Self) {
        self.seeks = self.seeks.saturating_add(other.seeks);
        self.sectors = self.sectors.saturating_add(other.sectors);
        self.device_ns = self.device_ns.saturating_add(other.device_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Answers;
    use super::super::synthetic::{definitions, inode, open_file, process, random, request};
    use super::*;
    use crate::model::record::Request;
    use crate::model::report::records::Questions;

    fn answered(by: SeeksBy, top: usize, requests: Vec<Request>) -> SeeksReport {
        let questions = Questions {
            seeks: Some(by),
            top,
            ..Questions::default()
        };
        let mut names = Names::default();
        names.define_disk([8, 0], "sda".to_owned(), Some(1 << 40));
        let mut answers = Answers::new(&questions, names);
        answers.take(&definitions());
        answers.take(&Records {
            threads: vec![process(8, "tar")],
            files: vec![open_file(2, 200, "/b")],
            ..Records::default()
        });
        for batch in requests.chunks(3) {
            answers.take(&Records {
                requests: batch.to_vec(),
                ..Records::default()
            });
        }
        answers.finish().seeks.unwrap()
    }

    fn rows(disk: &DiskSeeks) -> Vec<(i64, i64, u64)> {
        let filled = disk.rows.iter().filter(|row| row.count > 0);
        filled.map(|row| (row.from, row.to, row.count)).collect()
    }

    #[test]
    fn strided_reads_have_one_distance() {
        // 4 KiB of each 64 KiB: 8 sectors read, 120 skipped.
        let requests = (0..100).map(|n| request(Op::Read, n * 100, n * 128, 4096));
        let report = answered(SeeksBy::Disk, 0, requests.collect());
        let disk = &report.disks[0];
        assert_eq!(
            (disk.requests, disk.seeks, disk.sectors, disk.left_out),
            (100, 99, 99 * 120, 0)
        );
        assert_eq!(rows(disk), [(64, 127, 99)]);
        assert_eq!(disk.disk.name.as_deref(), Some("sda"));
        assert!(disk.pairs.is_empty());
    }

    #[test]
    fn sequential_requests_do_not_seek() {
        let requests = (0..10).map(|n| request(Op::Write, n * 100, n * 8, 4096));
        let report = answered(SeeksBy::Process, 0, requests.collect());
        assert_eq!(rows(&report.disks[0]), [(0, 0, 9)]);
        assert_eq!((report.disks[0].seeks, report.disks[0].pairs.len()), (0, 0));
    }

    #[test]
    fn two_readers_send_the_head_to_and_fro() {
        let requests = (0..10).map(|n| Request {
            pid: 7 + (n % 2) as u32,
            ..request(Op::Read, n * 100, (n % 2) * 1_000 + n / 2 * 8, 4096)
        });
        let report = answered(SeeksBy::Process, 0, requests.collect());
        let disk = &report.disks[0];
        // Forward from the end of the first one's to the other's, backward over its own 8 sectors as well.
        assert_eq!(rows(disk), [(-1023, -512, 4), (512, 1023, 5)]);
        let pairs: Vec<_> = disk
            .pairs
            .iter()
            .map(|pair| {
                let name = |owner: &Owner| match owner {
                    Owner::Process(process) => process.comm.clone().unwrap_or_default(),
                    Owner::File(_) => unreachable!(),
                };
                let sums = pair.sums;
                (
                    name(&pair.mover),
                    name(&pair.after),
                    sums.seeks,
                    sums.sectors,
                    sums.device_ns,
                )
            })
            .collect();
        assert_eq!(
            pairs,
            [
                ("tar".to_owned(), "app".to_owned(), 5, 5 * 992, 50),
                ("app".to_owned(), "tar".to_owned(), 4, 4 * 1_000, 40)
            ]
        );
    }

    #[test]
    fn by_file_the_files_are_named_and_the_rest_of_the_pairs_is_summed() {
        let requests = (0..9).map(|n| Request {
            inode: (n % 3 < 2).then(|| inode(100 * (1 + n % 3))),
            ..request(Op::Read, n * 100, n % 3 * 1_000, 512)
        });
        let report = answered(SeeksBy::File, 1, requests.collect());
        let disk = &report.disks[0];
        assert_eq!((disk.pairs.len(), disk.pairs[0].sums.seeks), (1, 2));
        let Owner::File(mover) = &disk.pairs[0].mover else {
            panic!("{disk:?}")
        };
        assert_eq!(mover.path.as_ref().unwrap().text, "/data");
        assert_eq!(disk.pairs[0].after, Owner::File(FileName::default()));
        assert_eq!(disk.other_pairs.seeks, 6);
    }

    #[test]
    fn requests_are_compared_in_the_order_of_their_issues() {
        let mut requests: Vec<Request> = (0..50).map(|n| request(Op::Read, n * 100, n * 8, 4096)).collect();
        requests.reverse();
        let report = answered(SeeksBy::Process, 0, requests);
        assert_eq!((report.disks[0].seeks, report.out_of_order), (0, 0));
    }

    #[test]
    fn what_moves_no_head_is_left_out_and_counted() {
        let mut unissued = request(Op::Read, 5, 0, 512);
        unissued.issued_ns = None;
        let report = answered(
            SeeksBy::Process,
            0,
            vec![
                request(Op::Flush, 1, 0, 0),
                request(Op::Discard, 2, 9_999, 512),
                request(Op::Driver, 3, 0, 512),
                unissued,
                request(Op::Read, 4, 5, 512),
            ],
        );
        let disk = &report.disks[0];
        assert_eq!(
            (disk.left_out, disk.requests, disk.seeks, disk.rows.len()),
            (4, 1, 0, 0)
        );
        assert!(answered(SeeksBy::Process, 0, vec![]).disks.is_empty());
    }

    #[test]
    fn the_largest_distances_overflow_nothing() {
        let requests = vec![
            request(Op::Read, 1, 0, 512),
            request(Op::Read, 2, u64::MAX, u64::MAX),
            request(Op::Read, 3, 0, 512),
            request(Op::Read, 4, u64::MAX, 512),
        ];
        let report = answered(SeeksBy::Process, 0, requests);
        let rows = rows(&report.disks[0]);
        assert_eq!(rows[0], (-i64::MAX, -i64::MAX, 1));
        assert_eq!(rows[1], (i64::MAX, i64::MAX, 2));
        assert_eq!(report.disks[0].sectors, u64::MAX);
    }

    #[test]
    fn random_requests_keep_every_distance() {
        let sectors = random(3).map(|n| n % (1 << 31)).take(2_000);
        let requests: Vec<Request> = sectors
            .zip(0..)
            .map(|(sector, n)| request(Op::Read, n * 10, sector, 4096))
            .collect();
        let distances: Vec<i64> = requests
            .windows(2)
            .map(|pair| pair[1].sector as i64 - (pair[0].sector as i64 + 8))
            .collect();
        let report = answered(SeeksBy::Disk, 0, requests);
        for row in &report.disks[0].rows {
            let inside = distances
                .iter()
                .filter(|distance| (row.from..=row.to).contains(distance));
            assert_eq!(inside.count() as u64, row.count, "{row:?}");
        }
        let sum: u64 = distances.iter().map(|distance| distance.unsigned_abs()).sum();
        assert_eq!(report.disks[0].sectors, sum);
    }
}
