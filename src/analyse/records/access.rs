//! Whether files are read and written sequentially, by file and level, and by process and file.

use std::collections::HashMap;

use super::names::{FileKey, Names};
use super::order::InOrder;
use super::quick::QuickMap;
use crate::model::direct::{DirectAccess, DirectAccesses, Submitter};
use crate::model::ids::Op;
use crate::model::record::{AsyncCall, Call, FileNumber, Records, Request};
use crate::model::report::records::{
    AccessLevel, AccessReport, Accesses, FileAccess, LevelAccess, SizeCount, StreamAccess,
};

/// Different sizes that are counted for each file and level.
const SIZES: usize = 1024;
/// Bytes of a sector, the unit of addresses at the level `BLK`.
const SECTOR: u64 = 512;
/// A request follows what submits it at the same moment.
const RANK_REQUEST: u8 = 2;
/// Sizes with less than this share of the accesses are not reported, in percent.
const COMMON: u128 = 1;

/// Folds reads and writes, in the order of their begins.
#[derive(Debug, Default)]
pub struct Access {
    order: InOrder<One>,
    /// The index of each file in `files`.
    known: QuickMap<FileKey, u32>,
    files: Vec<File>,
    streams: QuickMap<(u32, u32), Stream>,
    direct: DirectAccesses<u32>,
    without_file: u64,
    without_range: u64,
    on_two_files: u64,
    faults: u64,
}

/// A read or a write.
#[derive(Debug, Clone, Copy)]
struct One {
    /// `None`: of a request that carries no page of a file.
    file: Option<u32>,
    by: Submitter,
    level: AccessLevel,
    is_write: bool,
    address: u64,
    bytes: u64,
    /// The end of a direct call, whose requests carry no page of its file.
    direct_until: Option<u64>,
    /// Others are only there for the requests that they submit.
    is_selected: bool,
}

/// What is known of a call that reads or writes.
struct Accessed {
    begin_ns: u64,
    /// Which of those that begin at the same moment is first.
    rank: u8,
    by: Submitter,
    is_write: bool,
    file: FileNumber,
    range: (Option<u64>, Option<u64>),
    direct_until: Option<u64>,
    is_selected: bool,
}

#[derive(Debug)]
struct File {
    key: FileKey,
    vfs: Option<Box<Level>>,
    blk: Option<Box<Level>>,
}

#[derive(Debug)]
struct Level {
    begin_ns: u64,
    end_ns: u64,
    /// The end of the previous access; `None`: beyond all addresses.
    next: Option<u64>,
    /// Reads and writes.
    sums: [Sums; 2],
    /// Ascending.
    sizes: Vec<(u64, u64)>,
    has_more_sizes: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    count: u64,
    bytes: u64,
    sequential: u64,
    /// Within streams.
    in_streams: u64,
}

#[derive(Debug)]
struct Stream {
    next: Option<u64>,
    sums: [Sums; 2],
}

/// The requested size, or else the number of bytes that were read or written: a vector's size is no argument.
fn size(requested: Option<u64>, value: i64) -> Option<u64> {
    requested.or_else(|| u64::try_from(value).ok())
}

/// Calls on two files.
fn is_on_two_files(op: Op) -> bool {
    matches!(op, Op::Sendfile64 | Op::Splice | Op::CopyFileRange)
}

impl Access {
    /// Folds the next records, whose files `names` knows.
    pub fn take(&mut self, records: &Records, names: &Names) {
        for call in &records.calls {
            self.call(call, names);
        }
        for call in &records.asynchronous {
            self.asynchronous(call, names);
        }
        for request in &records.requests {
            self.request(request, names);
        }
        let faults = records.faults.iter();
        let faults = faults.filter(|fault| names.selects(fault.pid, fault.tid, names.key(fault.file), fault.end_ns));
        self.faults = self.faults.saturating_add(faults.count() as u64);
    }

    fn call(&mut self, call: &Call, names: &Names) {
        if !names.selects_call(call) {
            return;
        }
        if is_on_two_files(call.op) {
            self.on_two_files += 1;
        } else if let Some(is_write) = call.op.is_write() {
            let accessed = Accessed {
                begin_ns: call.begin_ns,
                rank: 0,
                by: Submitter::of_call(call),
                is_write,
                file: call.files[0],
                range: (call.offset, size(call.size, call.value)),
                direct_until: call.direct_until(),
                is_selected: true,
            };
            self.on_file(accessed, names);
        }
    }

    fn asynchronous(&mut self, call: &AsyncCall, names: &Names) {
        let is_selected = names.selects(call.pid, call.tid, names.key(call.file), call.end_ns);
        let by = Submitter::of_async(call);
        if !is_selected && !by.is_by_worker {
            return;
        }
        if let Some(is_write) = call.op.is_write() {
            let accessed = Accessed {
                begin_ns: call.begin_ns,
                rank: 1,
                by,
                is_write,
                file: call.file,
                range: (call.offset, size(call.size, call.value)),
                direct_until: call.direct_until(),
                is_selected,
            };
            self.on_file(accessed, names);
        }
    }

    fn on_file(&mut self, accessed: Accessed, names: &Names) {
        let Some(key) = names.key(accessed.file) else {
            self.without_file += u64::from(accessed.is_selected);
            return;
        };
        let (Some(address), Some(bytes)) = accessed.range else {
            self.without_range += u64::from(accessed.is_selected);
            return;
        };
        let one = One {
            file: Some(self.index(names.counted_as(key))),
            by: accessed.by,
            level: AccessLevel::Vfs,
            is_write: accessed.is_write,
            address,
            bytes,
            direct_until: accessed.direct_until,
            is_selected: accessed.is_selected,
        };
        self.push(accessed.begin_ns, accessed.rank, one, names);
    }

    fn request(&mut self, request: &Request, names: &Names) {
        let Some(is_write) = request.op.is_write() else {
            return;
        };
        let is_selected = match request.inode {
            Some(_) => names.selects_request(request),
            None => names.selects_request_on_any_file(request),
        };
        if !is_selected {
            return;
        }
        if names.is_of_metadata(request) {
            self.without_file += 1;
            return;
        }
        let one = One {
            file: names.counted_file_of(request).map(|key| self.index(key)),
            by: Submitter::of_request(request),
            level: AccessLevel::Blk,
            is_write,
            address: request.sector,
            bytes: request.bytes,
            direct_until: None,
            is_selected: true,
        };
        self.push(request.begin_ns(), RANK_REQUEST, one, names);
    }

    /// The index of a file.
    fn index(&mut self, key: FileKey) -> u32 {
        let next = self.files.len() as u32;
        let index = *self.known.entry(key).or_insert(next);
        if index == next {
            self.files.push(File {
                key,
                vfs: None,
                blk: None,
            });
        }
        index
    }

    fn push(&mut self, begin_ns: u64, rank: u8, one: One, names: &Names) {
        if let Some((begin_ns, one)) = self.order.push_ranked(begin_ns, rank, one) {
            self.next(begin_ns, one, names);
        }
    }

    /// The next access in the order of time.
    fn next(&mut self, begin_ns: u64, one: One, names: &Names) {
        if let (Some(file), Some(end_ns)) = (one.file, one.direct_until) {
            let by = one.by;
            self.direct.note(DirectAccess {
                by,
                file,
                begin_ns,
                end_ns,
            });
        }
        if !one.is_selected {
            return;
        }
        if let Some(file) = one.file {
            self.compare(begin_ns, file, one);
            return;
        }
        let file = self.direct.file_of(begin_ns, one.by);
        let key = file.map(|file| self.files[file as usize].key);
        match file {
            // One without a file is not selected if only some files are.
            _ if !names.selects_file(key) => {}
            Some(file) => self.compare(begin_ns, file, one),
            None => self.without_file += 1,
        }
    }

    /// Compares an access with the one before it.
    fn compare(&mut self, begin_ns: u64, index: u32, one: One) {
        let file = &mut self.files[index as usize];
        let (level, after) = match one.level {
            AccessLevel::Vfs => (&mut file.vfs, one.address.checked_add(one.bytes)),
            AccessLevel::Blk if one.bytes.is_multiple_of(SECTOR) => {
                (&mut file.blk, one.address.checked_add(one.bytes / SECTOR))
            }
            AccessLevel::Blk => (&mut file.blk, None),
        };
        let level = level.get_or_insert_with(|| Box::new(Level::new(begin_ns, one.address)));
        let mut sums = Sums {
            count: 1,
            bytes: one.bytes,
            sequential: u64::from(level.next == Some(one.address)),
            in_streams: 0,
        };
        level.next = after;
        level.begin_ns = level.begin_ns.min(begin_ns);
        level.end_ns = level.end_ns.max(begin_ns);
        level.count_size(one.bytes);
        if one.level == AccessLevel::Vfs {
            let stream = self.streams.entry((index, one.by.pid)).or_insert_with(|| Stream {
                next: Some(one.address),
                sums: Default::default(),
            });
            sums.in_streams = u64::from(stream.next == Some(one.address));
            stream.next = after;
            stream.sums[usize::from(one.is_write)].add(sums);
        }
        level.sums[usize::from(one.is_write)].add(sums);
    }

    /// The report, with the files that have most accesses; `top`: at most so many.
    #[must_use]
    pub fn finish(mut self, names: &Names, top: usize) -> AccessReport {
        while let Some((begin_ns, one)) = self.order.pop() {
            self.next(begin_ns, one, names);
        }
        // Others only belong to calls that are not selected.
        let accessed = (0_u32..).zip(&self.files).filter(|(_, file)| file.count() > 0);
        let mut largest: Vec<u32> = accessed.map(|(index, _)| index).collect();
        let number = largest.len();
        largest.sort_by_key(|index| {
            let file = &self.files[*index as usize];
            (std::cmp::Reverse(file.count()), file.key)
        });
        largest.truncate(top);
        let positions: HashMap<u32, usize> = largest.iter().copied().zip(0..).collect();
        let mut files: Vec<FileAccess> = largest
            .iter()
            .map(|index| self.files[*index as usize].report(names))
            .collect();
        for ((index, pid), stream) in &self.streams {
            if let Some(position) = positions.get(index) {
                files[*position].streams.push(StreamAccess {
                    process: names.process(*pid),
                    read: stream.sums[0].report(true),
                    write: stream.sums[1].report(true),
                });
            }
        }
        for file in &mut files {
            file.streams.sort_by_key(|stream| {
                let count = stream.read.count.saturating_add(stream.write.count);
                (std::cmp::Reverse(count), stream.process.pid)
            });
        }
        AccessReport {
            more_files: (number - files.len()) as u64,
            files,
            without_file: self.without_file,
            without_range: self.without_range,
            on_two_files: self.on_two_files,
            faults: self.faults,
            out_of_order: self.order.out_of_order(),
        }
    }
}

impl File {
    fn count(&self) -> u64 {
        let levels = self.vfs.iter().chain(&self.blk);
        levels
            .flat_map(|level| level.sums)
            .map(|sums| sums.count)
            .fold(0, u64::saturating_add)
    }

    fn report(&self, names: &Names) -> FileAccess {
        let levels = [(AccessLevel::Vfs, &self.vfs), (AccessLevel::Blk, &self.blk)];
        let levels = levels.into_iter();
        FileAccess {
            file: names.file(self.key),
            levels: levels
                .filter_map(|(name, level)| Some(level.as_ref()?.report(name)))
                .collect(),
            streams: Vec::new(),
        }
    }
}

impl Level {
    fn new(begin_ns: u64, address: u64) -> Self {
        Self {
            begin_ns,
            end_ns: begin_ns,
            next: Some(address),
            sums: Default::default(),
            sizes: Vec::new(),
            has_more_sizes: false,
        }
    }

    fn count_size(&mut self, bytes: u64) {
        match self.sizes.binary_search_by_key(&bytes, |(size, _)| *size) {
            Ok(at) => self.sizes[at].1 += 1,
            Err(at) if self.sizes.len() < SIZES => self.sizes.insert(at, (bytes, 1)),
            Err(_) => self.has_more_sizes = true,
        }
    }

    fn report(&self, name: AccessLevel) -> LevelAccess {
        let count = self.sums[0].count.saturating_add(self.sums[1].count);
        let is_common = |n: u64| u128::from(n) * 100 >= u128::from(count) * COMMON;
        let sizes = self.sizes.iter().filter(|(_, n)| is_common(*n));
        let has_streams = name == AccessLevel::Vfs;
        LevelAccess {
            level: name,
            read: self.sums[0].report(has_streams),
            write: self.sums[1].report(has_streams),
            span_ns: self.end_ns - self.begin_ns,
            sizes: sizes.map(|&(bytes, count)| SizeCount { bytes, count }).collect(),
            sizes_are_incomplete: self.has_more_sizes,
        }
    }
}

impl Sums {
    fn add(&mut self, other: Self) {
        self.count = self.count.saturating_add(other.count);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.sequential = self.sequential.saturating_add(other.sequential);
        self.in_streams = self.in_streams.saturating_add(other.in_streams);
    }

    fn report(self, has_streams: bool) -> Accesses {
        Accesses {
            count: self.count,
            bytes: self.bytes,
            sequential: self.sequential,
            sequential_in_streams: has_streams.then_some(self.in_streams),
        }
    }
}

#[cfg(test)]
mod tests;
