//! The first pass over a recording.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::names::Names;
use super::order::Window;
use super::record::Record;
use crate::model::record::Records;
use crate::model::recording::{Disk, Meta};

/// What the first pass found.
#[derive(Debug, Default)]
pub struct Outline {
    pub names: Names,
    /// First and last moment of the programs' clock.
    pub from_ns: u64,
    pub to_ns: u64,
    /// CPUs on which something happened, or was lost.
    pub cpus: BTreeSet<u16>,
    /// Whole disks with requests, by number, with their names.
    pub disks: BTreeMap<[u32; 2], String>,
    /// Names of the rows of calls, by index.
    pub rows: Vec<String>,
    window: Window,
    long: Vec<Record>,
}

impl Outline {
    #[must_use]
    pub fn new(meta: &Meta) -> Self {
        Self {
            from_ns: u64::MAX,
            rows: meta.rows.clone(),
            disks: meta.disks.iter().map(|disk| (disk.number, disk.name.clone())).collect(),
            ..Self::default()
        }
    }

    /// Looks at the next batch.
    pub fn take(&mut self, batch: &Records) {
        let low = self.window.low_ns();
        self.window.take(batch);
        batch.threads.iter().for_each(|thread| self.names.thread(thread));
        batch.files.iter().for_each(|file| self.names.file(file));
        // Looked at where they are, since most records are of these kinds.
        for call in &batch.calls {
            self.cpus.extend(call.cpus);
            self.extend(call.begin_ns, call.end_ns);
            if call.begin_ns < low {
                self.long.push(Record::Call(call.clone()));
            }
        }
        for sleep in &batch.sleeps {
            self.cpus.extend(sleep.cpus);
            self.extend(sleep.out_ns, Some(sleep.in_ns));
            if sleep.out_ns < low {
                self.long.push(Record::Sleep(sleep.clone()));
            }
        }
        for request in &batch.requests {
            self.cpus.insert(request.cpu);
            let name = || name_of(&[], request.disk).into_owned();
            self.disks.entry(request.disk).or_insert_with(name);
            self.other(Record::Request(request.clone()), low);
        }
        for lost in &batch.lost {
            self.cpus.insert(lost.cpu);
            self.other(Record::Lost(lost.clone()), low);
        }
        let marks = batch.marks.iter().cloned().map(Record::Mark);
        let asynchronous = batch.asynchronous.iter().cloned().map(Record::Async);
        let faults = batch.faults.iter().cloned().map(Record::Fault);
        let others = marks.chain(asynchronous).chain(faults);
        others.for_each(|record| self.other(record, low));
    }

    fn other(&mut self, record: Record, low: u64) {
        let begin_ns = record.begin_ns();
        self.extend(begin_ns, record.end_ns());
        if begin_ns < low {
            self.long.push(record);
        }
    }

    /// Extends the span by that of a record.
    fn extend(&mut self, begin_ns: u64, end_ns: Option<u64>) {
        self.from_ns = self.from_ns.min(begin_ns);
        self.to_ns = self.to_ns.max(begin_ns).max(end_ns.unwrap_or(0));
    }

    /// Ends the pass. Returns the records that began long before they arrived, by their begin.
    pub fn finish(&mut self) -> Vec<Record> {
        self.from_ns = self.from_ns.min(self.to_ns);
        let mut long = std::mem::take(&mut self.long);
        long.sort_by_key(Record::begin_ns);
        long
    }

    /// The rows of a call that are not 0, with their names.
    pub fn rows_of<'a>(&'a self, rows: &'a [u64]) -> impl Iterator<Item = (&'a str, u64)> {
        let named = self.rows.iter().map(String::as_str).zip(rows.iter().copied());
        named.filter(|(_, ns)| *ns > 0)
    }

    /// The name of a row; empty: unknown.
    #[must_use]
    pub fn row(&self, index: u8) -> &str {
        self.rows.get(usize::from(index)).map_or("", String::as_str)
    }
}

/// The name of a disk, or else its numbers: `8-16`.
#[must_use]
pub fn name_of(disks: &[Disk], number: [u32; 2]) -> Cow<'_, str> {
    let known = disks.iter().find(|disk| disk.number == number);
    let [major, minor] = number;
    known.map_or_else(|| format!("{major}-{minor}").into(), |disk| disk.name.as_str().into())
}

/// The first sector of a partition on its disk; 0 of the disk itself, and if it is unknown.
#[must_use]
pub fn start_of(disks: &[Disk], partition: [u32; 2]) -> u64 {
    let partitions = disks.iter().flat_map(|disk| &disk.partitions);
    let mut found = partitions.filter(|known| known.number == partition);
    found.next().map_or(0, |known| known.start)
}
