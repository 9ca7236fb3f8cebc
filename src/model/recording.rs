//! What a recording says about itself, in `meta.json`, `segment.json` and `end.json`.
//!
//! Fields are only added: a field that an older version did not write has its default, and unknown fields are skipped.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::record::Kind;
use super::run_info::RunInfo;

/// Version of the directory's format. It rises only if an older reader would misread a newer recording.
pub const SCHEMA: u32 = 1;

/// `meta.json`: what does not change during a recording.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Meta {
    /// [`SCHEMA`] of the writer.
    pub schema: u32,
    /// Version of the tool.
    pub tool: String,
    /// Release of the kernel, for example `6.1.0-50-amd64`.
    pub kernel: String,
    pub host: String,
    /// `/proc/sys/kernel/random/boot_id`; empty: unknown.
    pub boot_id: String,
    /// Possible CPUs.
    pub cpus: u32,
    /// Architecture, for example `x86_64`: flags of files differ between architectures.
    pub machine: String,
    /// The words of the command line; empty unless names are written in full.
    pub command_line: Vec<String>,
    /// Operations by hook, as `layer/op`.
    pub hooks: BTreeMap<String, Vec<String>>,
    pub disks: Vec<Disk>,
    pub mounts: Vec<Mount>,
    pub clocks: Clocks,
    pub names: Names,
    /// The run: what was measured and selected.
    pub run: RunInfo,
    /// Names of the rows, in the order in which the counters of seconds have them; empty: unused.
    pub rows: Vec<String>,
    /// There are records of single calls and requests, and not only counters.
    pub has_records: bool,
}

/// The clocks of a recording.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Clocks {
    /// Nanoseconds to add to `CLOCK_MONOTONIC` for the wall clock since 1970, as they were at the start. The same for
    /// the whole recording, so that differences of times are exact.
    pub offset_ns: i64,
    /// Seconds east of UTC at the start.
    pub utc_offset: i32,
}

impl Clocks {
    /// Nanoseconds since 1970 of a moment of the programs' clock.
    #[must_use]
    pub fn wall_ns(self, at_ns: u64) -> i64 {
        at_ns.cast_signed().wrapping_add(self.offset_ns)
    }

    /// The moment of the programs' clock.
    #[must_use]
    pub fn monotonic_ns(self, wall_ns: i64) -> u64 {
        wall_ns.wrapping_sub(self.offset_ns).cast_unsigned()
    }
}

/// A disk, when recording began.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Disk {
    pub name: String,
    /// Its name below `/dev/mapper`; empty: unknown, or none.
    pub mapped: String,
    /// Major and minor number.
    pub number: [u32; 2],
    /// Size in sectors of 512 bytes.
    pub sectors: u64,
    /// Empty: unknown, or none.
    pub scheduler: String,
    /// Empty: unknown.
    pub model: String,
    pub is_rotational: bool,
    /// It has requests of its own. One without (device mapper, md) passes its I/O on to other disks. `None`: unknown.
    pub has_requests: Option<bool>,
    pub partitions: Vec<Partition>,
}

/// A partition of a disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Partition {
    pub name: String,
    pub number: [u32; 2],
    /// First sector on the disk, and their number.
    pub start: u64,
    pub sectors: u64,
}

/// A mount, as in `/proc/self/mountinfo`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Mount {
    pub id: u32,
    pub parent: u32,
    /// Major and minor number.
    pub device: [u32; 2],
    /// The folder of the file system that is mounted.
    pub root: String,
    pub point: String,
    pub file_system: String,
}

super::ids::names! {
    /// How names of files and processes are written.
    #[derive(Default)]
    "form of names" Names {
        #[default]
        Full = "full",
        /// Each component of a path as 8 hexadecimal digits of a hash, whose key is in no file. Threads keep their names.
        Hash = "hash",
        /// Numbers only.
        None = "none",
    }
}

/// `segment.json`, written when all files of a segment are complete.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Segment {
    /// From 1.
    pub number: u32,
    /// The span by the programs' clock, in nanoseconds.
    pub from_ns: u64,
    pub to_ns: u64,
    /// By name.
    pub files: BTreeMap<String, SegmentFile>,
}

/// A complete file of a segment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SegmentFile {
    pub rows: u64,
    pub bytes: u64,
    /// CRC-32C of the whole file.
    pub crc32c: u32,
    /// First and last moment of its rows, by the programs' clock; 0 without rows.
    pub from_ns: u64,
    pub to_ns: u64,
}

/// `end.json`: written when a recording ended by itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct End {
    /// The span by the programs' clock, in nanoseconds.
    pub from_ns: u64,
    pub to_ns: u64,
    /// Why it ended, for people.
    pub why: String,
    /// What happened that made `record --ring` write it, for people; empty: it was written from the start.
    pub trigger: String,
    /// Rows by table that are in its files, without definitions that later segments repeat.
    pub rows: BTreeMap<String, u64>,
    /// Bytes of all files.
    pub bytes: u64,
    /// Records that were lost, by kind.
    pub lost: BTreeMap<Kind, u64>,
    /// Records that arrived and could not be written, by kind.
    pub not_written: BTreeMap<Kind, u64>,
    /// Requests that wrote the recording itself: they have no record, and are in the counters.
    pub own_writes: OwnWrites,
}

/// Requests that wrote a recording.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OwnWrites {
    pub requests: u64,
    pub bytes: u64,
}

/// Something that a recording has and that cannot be read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Damage {
    /// The file below the recording's directory.
    pub file: String,
    /// What is wrong and what is left out, in one line.
    pub what: String,
    /// The span that it affects, by the programs' clock, if it is known.
    pub span: Option<(u64, u64)>,
}
