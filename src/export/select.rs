//! Which records are exported.

use std::collections::BTreeSet;

use super::names::Names;
use super::outline::Outline;
use super::record::Record;
use crate::model::ids::Layer;
use crate::model::report::slow::Inode;

/// Selected records; the default selects all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// Of these processes; empty: all.
    pub pids: BTreeSet<u32>,
    /// Of threads of this name.
    pub comm: Option<String>,
    /// On these disks and partitions, as major and minor numbers, and calls on files on them; empty: all.
    pub devices: BTreeSet<[u32; 2]>,
    /// On the file of this path.
    pub file: Option<String>,
    /// Only calls (`syscall`) or only requests (`blk`); empty: both.
    pub layers: BTreeSet<Layer>,
}

/// A selection, and what its names mean in one recording.
#[derive(Debug)]
pub struct Resolved {
    selection: Selection,
    /// The inode of the selected path.
    inodes: Vec<Inode>,
}

impl Selection {
    #[must_use]
    pub fn resolved(&self, outline: &Outline) -> Resolved {
        let inodes = self.file.as_ref().map(|path| outline.names.inodes_of(path));
        Resolved {
            selection: self.clone(),
            inodes: inodes.unwrap_or_default(),
        }
    }
}

impl Resolved {
    /// Definitions always pass.
    #[must_use]
    pub fn passes(&self, record: &Record, names: &Names) -> bool {
        if record.is_definition() {
            return true;
        }
        let Selection {
            pids,
            comm,
            devices,
            file,
            layers,
        } = &self.selection;
        if matches!(record, Record::Lost(_) | Record::Mark(_)) {
            return true;
        }
        let is_of_layer = |layer| layers.is_empty() || layers.contains(&layer);
        let layer = match record {
            Record::Request(_) => Layer::Blk,
            _ => Layer::Syscall,
        };
        let (tid, at_ns) = (tid_of(record), record.begin_ns());
        let pid = || pid_of(record).or_else(|| Some(names.thread_at(tid, at_ns)?.pid));
        is_of_layer(layer)
            && (pids.is_empty() || pid().is_some_and(|pid| pids.contains(&pid)))
            && comm.as_ref().is_none_or(|comm| names.comm_at(tid, at_ns) == comm)
            && (devices.is_empty() || is_on(record, devices, names))
            && (file.is_none() || inode_of(record, names).is_some_and(|inode| self.inodes.contains(&inode)))
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
        batches.iter().for_each(|batch| outline.take(batch.clone()));
        outline.finish();
        let resolved = selection.resolved(&outline);
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
            file: Some(synthetic::TABLE.to_owned()),
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
