//! Which records are exported.

use std::collections::{BTreeSet, HashSet};

use super::names::{FileName, Names};
use super::outline::Outline;
use super::record::Record;
use crate::model::ids::Layer;
use crate::model::record::FileNumber;
use crate::model::report::slow::Inode;
use crate::model::selection::Selection;

/// A selection, and what its names mean in one recording.
#[derive(Debug)]
pub struct Resolved {
    selection: Selection,
    /// Selected files, whatever their paths.
    inodes: HashSet<Inode>,
    /// The inodes of the selected paths, with their generations.
    files: HashSet<(Inode, u32)>,
    /// Open files without an inode, likewise.
    numbers: HashSet<FileNumber>,
}

impl Resolved {
    /// In a recording, all of whose names are known.
    #[must_use]
    pub fn of(selection: &Selection, outline: &Outline) -> Self {
        let mut resolved = Self::new(selection, []);
        for (number, file) in outline.names.files() {
            resolved.learn(number, file);
        }
        resolved
    }

    /// Before anything is named. `inodes`: selected files, whatever their paths.
    #[must_use]
    pub fn new(selection: &Selection, inodes: impl IntoIterator<Item = Inode>) -> Self {
        Self {
            selection: selection.clone(),
            inodes: inodes.into_iter().collect(),
            files: HashSet::new(),
            numbers: HashSet::new(),
        }
    }

    /// Whether records are selected by their files.
    #[must_use]
    pub fn is_by_file(&self) -> bool {
        self.selection.is_by_file()
    }

    /// Looks at an open file.
    pub fn learn(&mut self, number: FileNumber, file: &FileName) {
        if self.selection.is_by_file() && self.selection.has_path(&file.path) {
            match file.inode {
                Some(inode) => self.files.insert((inode, file.generation)),
                None => self.numbers.insert(number),
            };
        }
    }

    /// Definitions always pass.
    #[must_use]
    pub fn passes(&self, record: &Record, names: &Names) -> bool {
        if record.is_definition() {
            return true;
        }
        let Selection {
            pids,
            follow,
            comm,
            cgroups,
            devices,
            layers,
            ..
        } = &self.selection;
        if matches!(record, Record::Lost(_) | Record::Mark(_)) {
            return true;
        }
        let is_of_layer = |layer| layers.is_empty() || layers.contains(&layer);
        let layer = match record {
            Record::Request(_) => Layer::Blk,
            _ => Layer::Syscall,
        };
        // A thread is defined after the begin of its first call.
        let (tid, at_ns) = (tid_of(record), record.named_ns());
        let pid = || pid_of(record).or_else(|| Some(names.thread_at(tid, at_ns)?.pid));
        let is_of = |pid: u32| pids.contains(&pid) || (*follow && names.descends(pid, pids));
        is_of_layer(layer)
            && (pids.is_empty() || pid().is_some_and(is_of))
            && comm.as_ref().is_none_or(|comm| names.comm_at(tid, at_ns) == comm)
            && (cgroups.is_empty()
                || names
                    .thread_at(tid, at_ns)
                    .is_some_and(|thread| cgroups.contains(&thread.cgroup)))
            && (devices.is_empty() || is_on(record, devices, names))
            && (!self.selection.is_by_file() || self.is_on_file(record, names))
    }

    fn is_on_file(&self, record: &Record, names: &Names) -> bool {
        let has_inode = |inode: Option<Inode>, generation: Option<u32>| {
            let is_of_path = |inode| generation.is_some_and(|generation| self.files.contains(&(inode, generation)));
            inode.is_some_and(|inode| self.inodes.contains(&inode) || is_of_path(inode))
        };
        let has_number = |number: FileNumber| {
            number != 0
                && (self.numbers.contains(&number)
                    || names
                        .file_of(number)
                        .is_some_and(|file| has_inode(file.inode, Some(file.generation))))
        };
        match record {
            Record::Call(call) => call.files.into_iter().any(has_number),
            Record::Async(call) => has_number(call.file),
            Record::Fault(fault) => has_number(fault.file),
            Record::Request(request) => {
                let generation = |inode| names.generation_at(inode, request.begin_ns());
                has_inode(request.inode, request.inode.and_then(generation))
            }
            _ => false,
        }
    }
}

fn tid_of(record: &Record) -> u32 {
    match record {
        Record::Call(call) => call.tid,
        Record::Request(request) => request.tid,
        Record::Sleep(sleep) => sleep.tid,
        Record::Async(call) => call.tid,
        Record::Fault(fault) => fault.tid,
        _ => 0,
    }
}

fn pid_of(record: &Record) -> Option<u32> {
    match record {
        Record::Call(call) => Some(call.pid),
        Record::Request(request) => Some(request.pid),
        Record::Async(call) => Some(call.pid),
        Record::Fault(fault) => Some(fault.pid),
        _ => None,
    }
}

/// Of a sleep, which has no file: `None`.
fn inode_of(record: &Record, names: &Names) -> Option<Inode> {
    let number = match record {
        Record::Call(call) => call.files[0],
        Record::Async(call) => call.file,
        Record::Fault(fault) => fault.file,
        Record::Request(request) => return request.inode,
        _ => return None,
    };
    names.file_of(number)?.inode
}

fn is_on(record: &Record, devices: &BTreeSet<[u32; 2]>, names: &Names) -> bool {
    match record {
        Record::Request(request) => devices.contains(&request.disk) || devices.contains(&request.partition),
        other => inode_of(other, names).is_some_and(|inode| devices.contains(&[inode.major, inode.minor])),
    }
}

#[cfg(test)]
mod tests {
    use super::super::synthetic::{self, POSTGRES, TAR};
    use super::*;
    use crate::model::recording::Meta;

    /// How many calls, requests and sleeps pass.
    fn passed(selection: &Selection) -> [usize; 3] {
        let mut outline = Outline::new(&Meta::default());
        let batches = synthetic::batches();
        batches.iter().for_each(|batch| outline.take(batch));
        outline.finish();
        let resolved = Resolved::of(selection, &outline);
        let mut counts = [0; 3];
        for record in batches.into_iter().flat_map(super::super::record::all) {
            let kind = match record {
                Record::Call(_) => 0,
                Record::Request(_) => 1,
                Record::Sleep(_) => 2,
                _ => continue,
            };
            counts[kind] += usize::from(resolved.passes(&record, &outline.names));
        }
        counts
    }

    #[test]
    fn each_filter_selects_its_own_and_all_of_them_together_nothing_twice() {
        let all = passed(&Selection::default());
        let of = |pid| {
            passed(&Selection {
                pids: BTreeSet::from([pid]),
                ..Selection::default()
            })
        };
        let (postgres, tar) = (of(POSTGRES), of(TAR));
        assert!(postgres[0] > 0 && tar[0] > 0);
        assert_eq!(postgres[0] + tar[0], all[0], "every call is of one of two processes");
        let comm = passed(&Selection {
            comm: Some("tar".to_owned()),
            ..Selection::default()
        });
        assert_eq!(comm, tar);
        let layers = |layer| {
            passed(&Selection {
                layers: BTreeSet::from([layer]),
                ..Selection::default()
            })
        };
        assert_eq!(layers(Layer::Blk), [0, all[1], 0]);
        assert_eq!(layers(Layer::Syscall), [all[0], 0, all[2]]);
        let file = passed(&Selection {
            files: vec![synthetic::TABLE.to_owned()],
            ..Selection::default()
        });
        assert!(
            file[0] > 0 && file[0] < all[0] && file[1] > 0 && file[1] < all[1],
            "{file:?}"
        );
        let other = passed(&Selection {
            devices: BTreeSet::from([[9, 9]]),
            ..Selection::default()
        });
        assert_eq!(other, [0; 3]);
        let disk = passed(&Selection {
            devices: BTreeSet::from([[8, 0]]),
            ..Selection::default()
        });
        assert_eq!(disk[1], all[1]);
    }
}
