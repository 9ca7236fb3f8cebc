//! What the records of a run answer: how files are accessed, how far disks seek, and which limits were broken.

use serde::Serialize;

use super::slow::{CallPath, Inode};
use crate::model::ids::{Family, Op};
use crate::model::record::Kind;

/// What to answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Questions {
    pub access: bool,
    pub seeks: Option<SeeksBy>,
    /// Empty: no limits.
    pub limits: Vec<Limit>,
    /// Lists have at most so many elements; 0: all.
    pub top: usize,
}

impl Questions {
    /// Whether nothing is asked.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.access && self.seeks.is_none() && self.limits.is_empty()
    }
}

/// The answers that were requested.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RecordsReport {
    pub access: Option<AccessReport>,
    pub seeks: Option<SeeksReport>,
    pub limits: Option<LimitsReport>,
    /// In which intervals records are missing, so that the answers are incomplete.
    pub incomplete: Vec<Incomplete>,
}

/// Records of one kind that were lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Incomplete {
    pub kind: Kind,
    pub records: u64,
    /// The first and the last moment at which one was lost, in nanoseconds of the programs' clock.
    pub from_ns: u64,
    pub to_ns: u64,
}

/// A process as it is shown.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ProcessName {
    /// 0: unknown.
    pub pid: u32,
    /// `None`: it was not defined.
    pub comm: Option<String>,
}

/// A file as it is shown.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct FileName {
    /// `None`: unknown.
    pub inode: Option<Inode>,
    /// `None`: it has no name, or was not defined.
    pub path: Option<CallPath>,
}

/// A disk as it is shown.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct DiskName {
    pub major: u32,
    pub minor: u32,
    /// `None`: it was not defined.
    pub name: Option<String>,
    /// Its size; `None`: unknown.
    pub bytes: Option<u64>,
}

impl DiskName {
    /// Its name, or else its numbers: `8:0`.
    #[must_use]
    pub fn shown(&self) -> String {
        let numbers = || format!("{}:{}", self.major, self.minor);
        self.name.clone().unwrap_or_else(numbers)
    }
}

crate::model::ids::names! {
    /// Where an access is seen.
    "level of accesses" AccessLevel {
        /// Reads and writes of programs, addressed by the byte.
        Vfs = "VFS",
        /// Requests of a disk, addressed by the sector of 512 bytes.
        Blk = "BLK",
    }
}

/// Whether files are read and written sequentially, as iotracer defines it: an access is sequential if its address is the
/// end of the access before it, of either direction, to the same file at the same level. The first one is sequential.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct AccessReport {
    /// Those with most accesses first.
    pub files: Vec<FileAccess>,
    /// Files that are not in the list.
    pub more_files: u64,
    /// Accesses of no known file.
    pub without_file: u64,
    /// Calls whose offset or size is not known.
    pub without_range: u64,
    /// Calls on two files, whose offsets are not both known.
    pub on_two_files: u64,
    /// Page faults on mapped files, which are not accesses at these levels.
    pub faults: u64,
    /// Accesses that were compared in the order of their ends, since they took too long.
    pub out_of_order: u64,
}

/// The accesses to a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct FileAccess {
    pub file: FileName,
    pub levels: Vec<LevelAccess>,
    /// At the level `VFS`, by process: interleaved streams of several readers are sequential here.
    pub streams: Vec<StreamAccess>,
}

/// The accesses to a file at one level.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LevelAccess {
    pub level: AccessLevel,
    pub read: Accesses,
    pub write: Accesses,
    /// From the first access to the last one, by their begins.
    pub span_ns: u64,
    /// Each size of one percent of the accesses or more, in ascending order.
    pub sizes: Vec<SizeCount>,
    /// There were too many sizes to count each.
    pub sizes_are_incomplete: bool,
}

/// Accesses in one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Accesses {
    pub count: u64,
    pub bytes: u64,
    pub sequential: u64,
    /// Sequential within the accesses of one process to the file; `None` at the level `BLK`.
    pub sequential_in_streams: Option<u64>,
}

/// How often accesses had this size.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct SizeCount {
    pub bytes: u64,
    pub count: u64,
}

/// The accesses of one process to one file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct StreamAccess {
    pub process: ProcessName,
    pub read: Accesses,
    pub write: Accesses,
}

impl LevelAccess {
    /// Accesses in both directions.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.read.count.saturating_add(self.write.count)
    }
}

/// What seeks are attributed to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SeeksBy {
    #[default]
    Process,
    File,
    Disk,
}

/// The distances between successive requests of each disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SeeksReport {
    pub by: SeeksBy,
    /// By their numbers.
    pub disks: Vec<DiskSeeks>,
    /// Requests that were compared in the order of their ends, since they took too long.
    pub out_of_order: u64,
}

/// The distances between successive requests of a disk: from the end of a request to the start of the one that is issued
/// next, in sectors of 512 bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct DiskSeeks {
    pub disk: DiskName,
    /// Requests that read or write.
    pub requests: u64,
    /// Those that do not begin where the previous one ended.
    pub seeks: u64,
    /// The sum of the distances of seeks, in either direction.
    pub sectors: u64,
    /// From the lowest distance to the highest.
    pub rows: Vec<SeekRow>,
    /// The sums of distances, largest first; empty by disk.
    pub pairs: Vec<SeekPair>,
    /// Seeks that are in no pair of the list.
    pub other_pairs: SeekSums,
    /// Requests that address no sectors (flushes, discards, commands of the driver), and those without an issue.
    pub left_out: u64,
    pub usage: DiskUsage,
}

/// How many distances are in a range of sectors; both ends are included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct SeekRow {
    pub from: i64,
    pub to: i64,
    pub count: u64,
}

/// Seeks of one owner's requests after requests of another one, or its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SeekPair {
    /// Whose requests moved the head.
    pub mover: Owner,
    /// Whose request was issued before.
    pub after: Owner,
    pub sums: SeekSums,
}

/// Sums over seeks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct SeekSums {
    pub seeks: u64,
    pub sectors: u64,
    /// From issue to completion of the requests after the seeks.
    pub device_ns: u64,
}

/// Whose request it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Owner {
    Process(ProcessName),
    File(FileName),
}

/// How busy a disk was.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct DiskUsage {
    pub disk: DiskName,
    /// Requests that were issued.
    pub requests: u64,
    /// The time in which one or more of them were at the device.
    pub busy_ns: u64,
    /// The sum of their times at the device: divided by `span_ns`, it is the mean depth of the queue.
    pub device_ns: u64,
    pub max_depth: u64,
    /// The recorded time.
    pub span_ns: u64,
}

/// What a limit is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Limited {
    /// Calls of a family.
    Family(Family),
    /// Calls of one name.
    Op(Op),
    /// Requests, from their submission to their issue.
    Queue,
    /// Requests, from their issue to their completion.
    Device,
}

impl Limited {
    /// As in options and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Family(family) => family.name(),
            Self::Op(op) => op.name(),
            Self::Queue => "queue",
            Self::Device => "device",
        }
    }
}

impl std::str::FromStr for Limited {
    type Err = crate::model::ids::UnknownName;

    /// A word that is both a family and a call, such as `read`, is the family.
    fn from_str(word: &str) -> Result<Self, Self::Err> {
        match word {
            "queue" => return Ok(Self::Queue),
            "device" => return Ok(Self::Device),
            _ => {}
        }
        let family = word.parse().map(Self::Family);
        family
            .or_else(|_| word.parse().map(Self::Op))
            .map_err(|_: Self::Err| crate::model::ids::UnknownName {
                kind: "family, call, queue or device",
                word: word.to_owned(),
            })
    }
}

crate::model::ids::by_name!(Limited);

/// The longest time that is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Limit {
    pub of: Limited,
    pub ns: u64,
}

/// Which limits were broken.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct LimitsReport {
    /// In the given order.
    pub limits: Vec<LimitReport>,
    /// By their numbers.
    pub disks: Vec<DiskUsage>,
}

impl LimitsReport {
    /// Whether one or more of them were broken.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.limits.iter().any(|limit| limit.broken > 0)
    }
}

/// How a limit was kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LimitReport {
    pub limit: Limit,
    /// Calls or requests that took longer.
    pub broken: u64,
    /// All of them.
    pub count: u64,
    /// The longest one that broke it.
    pub longest_ns: u64,
    /// Those under way at the end of the recording, of which `longest_ns` and `broken` have the part that was recorded.
    pub under_way: u64,
    /// Who waited, and how often; most first.
    pub waited: Vec<Waiter>,
    /// What disks served during these waits; `None` for `device`.
    pub served: Option<Served>,
}

/// How often a process waited longer than the limit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Waiter {
    pub process: ProcessName,
    pub broken: u64,
}

/// Device times of requests during the waits: of a disk, each counted once for each wait that it overlaps.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Served {
    /// Requests of the waiting processes themselves.
    pub own_ns: u64,
    /// Most first.
    pub others: Vec<ServedOther>,
    /// The part of the waits that was too long ago when they ended, and is not in these numbers.
    pub unknown_ns: u64,
}

/// The requests of another process during the waits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ServedOther {
    pub process: ProcessName,
    pub device_ns: u64,
}

impl Served {
    /// The sum of all parts.
    #[must_use]
    pub fn device_ns(&self) -> u64 {
        let others = self.others.iter().map(|other| other.device_ns);
        others.fold(self.own_ns, u64::saturating_add)
    }
}
