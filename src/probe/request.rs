//! What a run requests from the kernel side, besides the layers.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::time::Duration;

use super::plan::BlockWish;
use crate::catalog::{Guard, Layer};
use crate::kernel::file::FileNumber;
use crate::model::ids::By;

/// The request of a run, which does not change with what attempts to attach find out.
#[derive(Debug, Default)]
pub struct Request {
    /// Processes traced from the start, by their numbers in the initial PID namespace. Empty, and not `follow`: all
    /// processes.
    pub traced: Vec<u32>,
    /// Descendants of these processes, and a command, are traced as well.
    pub follow: bool,
    /// The number of this process, which is never traced.
    pub own: u32,
    pub disk: Option<SelectedDisk>,
    pub cgroup: Option<OwnedFd>,
    /// Only threads of this name are traced.
    pub comm: Option<String>,
    pub file: Option<FileNumber>,
    /// Calls on all kinds of files are traced, not only on regular files and directories.
    pub all_files: bool,
    /// Calls that take this time or more are reported individually.
    pub slower: Option<Duration>,
    /// The unit in which the kernel side counts powers of two (`-u`, `-m`), in nanoseconds; 0: it does not count them.
    pub unit_ns: u32,
    /// There is only one report, at the end.
    pub one_report: bool,
    /// The whole-stack view: all time of a call is assigned to rows.
    pub whole_stack: bool,
    /// In the whole-stack view: the functions inside a system call only assign time to rows, and their calls are not
    /// counted.
    pub rows_only: bool,
    /// Calls are counted by group (`--by`).
    pub groups: Option<GroupWish>,
    pub block: BlockWish,
    /// How calls of shared functions are assigned to each file system: what is compared, and the value.
    pub guards: BTreeMap<Layer, (Guard, u64)>,
    /// The length of the hash table of starts if it is not the default. Starts are then in that table by thread number,
    /// not in task storage.
    pub starts: Option<u32>,
    /// Each function gets programs of its own, even if one could serve many, so that the kernel counts their runs
    /// separately.
    pub each_alone: bool,
    /// Programs are loaded as they were compiled, without constant folding ([`super::fold`]).
    pub as_compiled: bool,
    /// Called with each stage of attaching.
    pub progress: Option<fn(Stage)>,
}

/// The disk whose calls and requests are selected.
#[derive(Debug, Clone, Default)]
pub struct SelectedDisk {
    /// Device numbers (`dev_t`, as the kernel encodes them): first that of the disk, then those of its partitions, and
    /// of devices and file systems on them ([`crate::kernel::disk`]).
    pub devices: Vec<u32>,
    pub is_partition: bool,
}

/// The groups of `--by`.
#[derive(Debug, Clone, Copy)]
pub struct GroupWish {
    pub by: By,
    /// The maximum number of groups.
    pub room: u32,
}

impl Request {
    /// The process if exactly one is traced during the whole run.
    #[must_use]
    pub fn only_process(&self) -> Option<u32> {
        match *self.traced {
            [one] if !self.follow => Some(one),
            _ => None,
        }
    }
}

/// The progress of attaching.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Nothing is loaded yet: facts about the kernel are collected.
    Looking,
    Loading,
    /// `done` functions were begun with, of at most `of`.
    Attaching {
        done: usize,
        of: usize,
    },
    /// Waiting until an earlier run is detached from this number of functions.
    Waiting {
        functions: usize,
    },
}
