//! What records name by number: open files, processes and disks.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::model::record::{FileNumber, Records, Request};
use crate::model::report::records::{DiskName, FileName, ProcessName};
use crate::model::report::slow::{CallPath, Inode};

/// The definitions that were seen so far.
#[derive(Debug, Default)]
pub struct Names {
    files: HashMap<FileNumber, FileKey>,
    paths: HashMap<FileKey, CallPath>,
    processes: HashMap<u32, Process>,
    disks: HashMap<[u32; 2], (String, Option<u64>)>,
    selection: Selection,
    /// The selected file, under each of its numbers.
    selected: HashSet<FileKey>,
    /// Names of threads; empty if none is selected by its name.
    threads: HashMap<u32, String>,
}

/// Which calls and requests are looked at; the default is all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// Of these processes; empty: all.
    pub pids: BTreeSet<u32>,
    /// Of threads of this name.
    pub comm: Option<String>,
    /// On the file of this path.
    pub file: Option<String>,
    /// On these disks and partitions, as major and minor numbers, and calls on files on them; empty: all.
    pub devices: BTreeSet<[u32; 2]>,
}

/// What makes two open files one file: the inode, if it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileKey {
    Inode { major: u32, minor: u32, number: u64 },
    Open(FileNumber),
}

impl From<Inode> for FileKey {
    fn from(inode: Inode) -> Self {
        Self::Inode {
            major: inode.major,
            minor: inode.minor,
            number: inode.number,
        }
    }
}

impl FileKey {
    /// The device of its file system, as major and minor number.
    #[must_use]
    pub fn device(self) -> Option<[u32; 2]> {
        match self {
            Self::Inode { major, minor, .. } => Some([major, minor]),
            Self::Open(_) => None,
        }
    }
}

#[derive(Debug)]
struct Process {
    comm: String,
    /// It is the name of its first thread.
    is_of_first: bool,
}

impl Names {
    /// Without definitions.
    #[must_use]
    pub fn new(selection: Selection) -> Self {
        Self {
            selection,
            ..Self::default()
        }
    }

    /// Whether a call of this process and thread on this file is selected.
    #[must_use]
    pub fn selects(&self, pid: u32, tid: u32, file: Option<FileKey>) -> bool {
        let is_on = |file: FileKey| {
            file.device()
                .is_some_and(|device| self.selection.devices.contains(&device))
        };
        self.selects_thread(pid, tid)
            && (self.selection.devices.is_empty() || file.is_some_and(is_on))
            && self.selects_file(file)
    }

    /// Whether a request is selected.
    #[must_use]
    pub fn selects_request(&self, request: &Request) -> bool {
        self.selects_thread(request.pid, request.tid)
            && self.selects_disk(request)
            && self.selects_file(request.inode.map(FileKey::from))
    }

    /// Whether the disk or partition of a request is selected.
    #[must_use]
    pub fn selects_disk(&self, request: &Request) -> bool {
        let devices = &self.selection.devices;
        devices.is_empty() || devices.contains(&request.disk) || devices.contains(&request.partition)
    }

    fn selects_thread(&self, pid: u32, tid: u32) -> bool {
        let Selection { pids, comm, .. } = &self.selection;
        (pids.is_empty() || pids.contains(&pid))
            && comm.as_ref().is_none_or(|comm| self.threads.get(&tid) == Some(comm))
    }

    fn selects_file(&self, file: Option<FileKey>) -> bool {
        self.selection.file.is_none() || file.is_some_and(|file| self.selected.contains(&file))
    }

    /// Names a disk; `bytes`: its size.
    pub fn define_disk(&mut self, numbers: [u32; 2], name: String, bytes: Option<u64>) {
        self.disks.insert(numbers, (name, bytes));
    }

    /// Adds the definitions among these records. The records may use them.
    pub fn learn(&mut self, records: &Records) {
        for file in &records.files {
            let key = file.inode.map_or(FileKey::Open(file.number), FileKey::from);
            self.files.insert(file.number, key);
            if let Some(path) = &file.path {
                // The first name stays: a later one is a hard link, or that of a new file with the same number.
                self.paths.entry(key).or_insert_with(|| path.clone());
                if self.selection.file.as_ref() == Some(&path.text) {
                    self.selected.insert(key);
                }
            }
        }
        for thread in records.threads.iter().filter(|thread| !thread.comm.is_empty()) {
            if self.selection.comm.is_some() {
                self.threads.insert(thread.tid, thread.comm.clone());
            }
            let is_of_first = thread.tid == thread.pid;
            let known = self.processes.get(&thread.pid);
            if known.is_none_or(|known| is_of_first || !known.is_of_first) {
                let comm = thread.comm.clone();
                self.processes.insert(thread.pid, Process { comm, is_of_first });
            }
        }
    }

    /// The file that an open file is of; `None`: it was not defined.
    #[must_use]
    pub fn key(&self, file: FileNumber) -> Option<FileKey> {
        self.files.get(&file).copied()
    }

    #[must_use]
    pub fn file(&self, key: FileKey) -> FileName {
        FileName {
            inode: match key {
                FileKey::Inode { major, minor, number } => Some(Inode { number, major, minor }),
                FileKey::Open(_) => None,
            },
            path: self.paths.get(&key).cloned(),
        }
    }

    #[must_use]
    pub fn process(&self, pid: u32) -> ProcessName {
        let comm = self.processes.get(&pid).map(|process| process.comm.clone());
        ProcessName { pid, comm }
    }

    #[must_use]
    pub fn disk(&self, numbers: [u32; 2]) -> DiskName {
        let known = self.disks.get(&numbers);
        DiskName {
            major: numbers[0],
            minor: numbers[1],
            name: known.map(|(name, _)| name.clone()),
            bytes: known.and_then(|(_, bytes)| *bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::record::{OpenFile, Thread};
    use crate::model::report::slow::PathKind;

    fn open_file(number: FileNumber, inode: Option<u64>, path: &str) -> OpenFile {
        OpenFile {
            number,
            inode: inode.map(|number| Inode {
                number,
                major: 8,
                minor: 1,
            }),
            path: Some(CallPath {
                kind: PathKind::Whole,
                text: path.to_owned(),
            }),
            ..OpenFile::default()
        }
    }

    #[test]
    fn open_files_of_one_inode_are_one_file_under_its_first_name() {
        let mut names = Names::default();
        names.learn(&Records {
            files: vec![
                open_file(1, Some(7), "/a"),
                open_file(2, Some(7), "/b"),
                open_file(3, None, "pipe:[1]"),
            ],
            ..Records::default()
        });
        assert_eq!(names.key(1), names.key(2));
        let key = names.key(2).unwrap();
        assert_eq!(key.device(), Some([8, 1]));
        assert_eq!(names.file(key).path.unwrap().text, "/a");
        assert_eq!(names.key(3), Some(FileKey::Open(3)));
        assert_eq!(names.key(4), None);
    }

    #[test]
    fn calls_and_requests_are_selected_by_owner_disk_and_file() {
        use super::super::synthetic::{definitions, process, request};
        use crate::model::ids::Op;
        let select = |selection| {
            let mut names = Names::new(selection);
            names.learn(&definitions());
            names.learn(&Records {
                files: vec![open_file(2, Some(200), "/b")],
                threads: vec![process(8, "tar")],
                ..Records::default()
            });
            let calls = [(7, 1), (8, 2)];
            let calls = calls.map(|(pid, file)| names.selects(pid, pid, names.key(file)));
            (calls, names.selects_request(&request(Op::Read, 1, 0, 512)))
        };
        let all = Selection::default();
        assert_eq!(select(all.clone()), ([true, true], true));
        let pids = BTreeSet::from([8]);
        assert_eq!(select(Selection { pids, ..all.clone() }), ([false, true], false));
        let comm = Some("app".to_owned());
        assert_eq!(select(Selection { comm, ..all.clone() }), ([true, false], true));
        let file = Some("/b".to_owned());
        assert_eq!(select(Selection { file, ..all.clone() }), ([false, true], false));
        let on = |device| Selection {
            devices: BTreeSet::from([device]),
            ..all.clone()
        };
        assert_eq!(select(on([8, 1])), ([true, true], true));
        assert_eq!(select(on([9, 0])), ([false, false], false));
    }

    #[test]
    fn a_process_has_the_name_of_its_first_thread_if_it_is_known() {
        let thread = |tid, pid, comm: &str| Thread {
            tid,
            pid,
            comm: comm.to_owned(),
            ..Thread::default()
        };
        let mut names = Names::default();
        let mut learn = |threads| {
            names.learn(&Records {
                threads,
                ..Records::default()
            });
            names.process(7).comm
        };
        assert_eq!(learn(vec![thread(8, 7, "worker")]).as_deref(), Some("worker"));
        assert_eq!(learn(vec![thread(7, 7, "main")]).as_deref(), Some("main"));
        assert_eq!(
            learn(vec![thread(9, 7, "worker"), thread(7, 7, "")]).as_deref(),
            Some("main")
        );
        assert_eq!(names.process(9).comm, None);
    }
}
