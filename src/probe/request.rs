//! What is asked of the kernel side, beside the layers.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::time::Duration;

use super::plan::BlockWish;
use crate::catalog::{Guard, Layer};
use crate::kernel::file::FileNumber;
use crate::model::ids::By;

/// All that a run asks for, and nothing that an attempt finds out.
#[derive(Debug, Default)]
pub struct Request {
    /// Processes traced from the start, as the kernel numbers them. None of them, and nobody followed: all.
    pub traced: Vec<u32>,
    /// And their children, and a command.
    pub follow: bool,
    /// The process that is never traced.
    pub own: u32,
    pub disk: Option<SelectedDisk>,
    pub cgroup: Option<OwnedFd>,
    /// The name of a thread.
    pub comm: Option<String>,
    pub file: Option<FileNumber>,
    /// Not regular files and directories alone.
    pub all_files: bool,
    /// Calls of this length and more are told one by one.
    pub slower: Option<Duration>,
    /// In what lengths are counted, in nanoseconds; 0: as the clock has them.
    pub unit_ns: u32,
    /// There is one report, at the end.
    pub one_report: bool,
    /// Every moment of a call is to be given to a row.
    pub whole_stack: bool,
    /// And nothing is told of what is inside a system call but the rows.
    pub rows_only: bool,
    /// Calls are told apart by what they are of.
    pub groups: Option<GroupWish>,
    pub block: BlockWish,
    /// How shared functions are narrowed to each file system: by what, and its value.
    pub guards: BTreeMap<Layer, (Guard, u64)>,
    /// Places in the table of starts, where there is another number than ours to be. Starts are then in a table by thread, not in task
    /// storage.
    pub starts: Option<u32>,
    /// Each function gets programs of its own, also where one could serve many, so that the kernel counts their runs apart.
    pub each_alone: bool,
    /// Programs are loaded as they were compiled, and not folded beforehand.
    pub as_compiled: bool,
    /// Called with each stage of attaching.
    pub progress: Option<fn(Stage)>,
}

/// The one disk whose calls and requests are asked for.
#[derive(Debug, Clone, Default)]
pub struct SelectedDisk {
    /// It (`dev_t`), and what is made of it.
    pub devices: Vec<u32>,
    pub is_partition: bool,
}

/// What calls are told apart by.
#[derive(Debug, Clone, Copy)]
pub struct GroupWish {
    pub by: By,
    /// Groups that there is room for.
    pub room: u32,
}

impl Request {
    /// The one process that is traced from the start to the end, if it is one.
    #[must_use]
    pub fn only_process(&self) -> Option<u32> {
        match *self.traced {
            [one] if !self.follow => Some(one),
            _ => None,
        }
    }
}

/// How far attaching is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Nothing is loaded: the kernel is looked at.
    Looking,
    Loading,
    /// So many functions, of those that will be tried at most.
    Attaching {
        done: usize,
        of: usize,
    },
    /// For an earlier run to let go of so many functions.
    Waiting {
        functions: usize,
    },
}
