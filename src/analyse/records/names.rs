//! What records name by number: open files, threads, processes and disks.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::quick::QuickMap;
use crate::model::over_time::OverTime;
use crate::model::record::{Call, FileNumber, OpenFile, Records, Request, Thread};
use crate::model::recording::Meta;
use crate::model::report::records::{DiskName, FileName, ProcessName};
use crate::model::report::slow::{CallPath, Inode, PathKind};
use crate::model::selection::Selection;

/// Sectors of disks have 512 bytes, whatever the disk itself uses.
const SECTOR: u64 = 512;
/// The longest chain of parents that is followed: a damaged recording may have a circle.
const MOST_PARENTS: usize = 64;

/// The kernel's number of the root of control groups, on every machine.
const ROOT_CGROUP: u64 = 1;

/// The definitions that were seen so far.
#[derive(Debug, Default)]
pub struct Names {
    files: QuickMap<FileNumber, FileKey>,
    paths: HashMap<FileKey, Rc<CallPath>>,
    /// The generation of each inode from a moment on: requests only have its number, which is used again.
    generations: HashMap<Inode, OverTime<u32>>,
    /// The first file of each path, on each device.
    first_of_path: HashMap<([u32; 2], Rc<CallPath>), FileKey>,
    /// The file as which another one with its path is counted.
    counted_as: QuickMap<FileKey, FileKey>,
    processes: HashMap<u32, Process>,
    threads: QuickMap<u32, OverTime<ThreadName>>,
    disks: HashMap<[u32; 2], (String, Option<u64>)>,
    /// The whole disk of each partition.
    whole: HashMap<[u32; 2], [u32; 2]>,
    /// Disks with requests of their own.
    with_requests: HashSet<[u32; 2]>,
    /// The types of file systems by device.
    file_systems: HashMap<[u32; 2], String>,
    /// Paths of control groups, by the kernel's numbers.
    cgroups: HashMap<u64, String>,
    selection: Selection,
    /// The selected files.
    selected: HashSet<FileKey>,
}

/// What makes two open files one file: the inode, if it is known. File systems use the number of a deleted one again, with
/// another generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileKey {
    Inode { inode: Inode, generation: u32 },
    Open(FileNumber),
}

impl FileKey {
    fn of(file: &OpenFile) -> Self {
        let generation = file.generation;
        file.inode
            .map_or(Self::Open(file.number), |inode| Self::Inode { inode, generation })
    }

    /// The device of its file system, as major and minor number.
    #[must_use]
    pub fn device(self) -> Option<[u32; 2]> {
        match self {
            Self::Inode { inode, .. } => Some([inode.major, inode.minor]),
            Self::Open(_) => None,
        }
    }
}

#[derive(Debug)]
struct Process {
    comm: Rc<str>,
    /// It is the name of its first thread.
    is_of_first: bool,
    /// By its first definition: a process whose parent has ended gets another one. 0: unknown.
    parent: u32,
}

/// A thread from a moment on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadName {
    pub pid: u32,
    pub comm: Rc<str>,
    pub uid: u32,
    pub cgroup: u64,
    /// It has ended by then, and another thread may have its number.
    until_ns: u64,
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

    /// With the disks of a recording.
    #[must_use]
    pub fn of(meta: &Meta, selection: Selection) -> Self {
        let mut names = Self::new(selection);
        names.define_cgroup(ROOT_CGROUP, "/".to_owned());
        for disk in &meta.disks {
            let bytes = disk.sectors.saturating_mul(SECTOR);
            names.define_disk(disk.number, disk.name.clone(), Some(bytes));
            if disk.has_requests == Some(true) {
                names.with_requests.insert(disk.number);
            }
            let partitions = disk.partitions.iter().map(|partition| partition.number);
            names.whole.extend(partitions.map(|partition| (partition, disk.number)));
        }
        for mount in &meta.mounts {
            names
                .file_systems
                .entry(mount.device)
                .or_insert_with(|| mount.file_system.clone());
        }
        names
    }

    /// What is selected.
    #[must_use]
    pub fn selection(&self) -> &Selection {
        &self.selection
    }

    /// Whether a call of this process and thread on this file is selected. `at_ns`: a moment inside it, as close to its
    /// end as possible: what defines its thread is written after its begin.
    #[must_use]
    pub fn selects(&self, pid: u32, tid: u32, file: Option<FileKey>, at_ns: u64) -> bool {
        let is_on = |file: FileKey| {
            file.device()
                .is_some_and(|device| self.selection.devices.contains(&device))
        };
        self.selects_thread(pid, tid, at_ns)
            && (self.selection.devices.is_empty() || file.is_some_and(is_on))
            && self.selects_file(file)
    }

    /// Whether a call is selected. One on two files is if either is.
    #[must_use]
    pub fn selects_call(&self, call: &Call) -> bool {
        if self.selection.is_all() {
            return true;
        }
        let at_ns = call.end_ns.unwrap_or(call.begin_ns);
        let [first, second] = call.files;
        self.selects(call.pid, call.tid, self.key(first), at_ns)
            || (second != 0 && self.selects(call.pid, call.tid, self.key(second), at_ns))
    }

    /// Whether a request is selected.
    #[must_use]
    pub fn selects_request(&self, request: &Request) -> bool {
        self.selects_request_on_any_file(request) && self.selects_file(self.key_of_request(request))
    }

    /// The same, whatever file it is on.
    #[must_use]
    pub fn selects_request_on_any_file(&self, request: &Request) -> bool {
        self.selects_thread(self.process_of(request), request.tid, request.begin_ns()) && self.selects_disk(request)
    }

    /// Whether a request is selected, whatever thread submitted it.
    #[must_use]
    pub fn selects_request_of_any(&self, request: &Request) -> bool {
        self.selects_disk(request) && self.selects_file(self.key_of_request(request))
    }

    /// Whether the disk or partition of a request is selected.
    #[must_use]
    pub fn selects_disk(&self, request: &Request) -> bool {
        let devices = &self.selection.devices;
        devices.is_empty() || devices.contains(&request.disk) || devices.contains(&request.partition)
    }

    fn selects_thread(&self, pid: u32, tid: u32, at_ns: u64) -> bool {
        if !self.selection.is_by_thread() {
            return true;
        }
        let Selection { comm, cgroups, .. } = &self.selection;
        let thread = || self.thread_at(tid, at_ns);
        self.selects_process(pid)
            && comm
                .as_ref()
                .is_none_or(|comm| thread().is_some_and(|thread| *thread.comm == **comm))
            && (cgroups.is_empty() || thread().is_some_and(|thread| cgroups.contains(&thread.cgroup)))
    }

    fn selects_process(&self, pid: u32) -> bool {
        let Selection { pids, follow, .. } = &self.selection;
        if pids.is_empty() || pids.contains(&pid) {
            return true;
        }
        let parent = |pid: &u32| {
            let process = self.processes.get(pid)?;
            (process.parent != 0).then_some(process.parent)
        };
        let mut ancestors = std::iter::successors(Some(pid), parent).take(MOST_PARENTS);
        *follow && ancestors.any(|ancestor| pids.contains(&ancestor))
    }

    /// Whether calls and requests on this file are selected; `None`: on none.
    #[must_use]
    pub fn selects_file(&self, file: Option<FileKey>) -> bool {
        !self.selection.is_by_file() || file.is_some_and(|file| self.selected.contains(&file))
    }

    /// Whether a selected path was defined.
    #[must_use]
    pub fn has_selected_file(&self) -> bool {
        !self.selected.is_empty()
    }

    /// Whether a thread of a selected process was defined.
    #[must_use]
    pub fn has_selected_process(&self) -> bool {
        self.processes.keys().any(|pid| self.selects_process(*pid))
    }

    /// Whether a thread had the selected name.
    #[must_use]
    pub fn has_selected_comm(&self) -> bool {
        let is_meant = |thread: &ThreadName| self.selection.comm.as_deref() == Some(&*thread.comm);
        self.selection.comm.is_none() || self.threads.values().any(|names| names.values().any(is_meant))
    }

    /// The first selected file that is a directory: files below it were defined.
    #[must_use]
    pub fn selected_directory(&self) -> Option<&str> {
        let is_directory = |folder: &&String| {
            let below = Selection {
                folders: vec![(*folder).clone()],
                ..Selection::default()
            };
            self.paths.values().any(|path| below.has_path(&path.text))
        };
        self.selection.files.iter().find(is_directory).map(String::as_str)
    }

    /// Names a disk; `bytes`: its size.
    pub fn define_disk(&mut self, numbers: [u32; 2], name: String, bytes: Option<u64>) {
        self.disks.insert(numbers, (name, bytes));
    }

    /// Names a control group by its path from the root of its hierarchy.
    pub fn define_cgroup(&mut self, number: u64, path: String) {
        self.cgroups.insert(number, path);
    }

    /// The path of a control group, or else its number: `… (4711)`.
    #[must_use]
    pub fn cgroup(&self, number: u64) -> String {
        let path = self.cgroups.get(&number);
        path.cloned().unwrap_or_else(|| format!("… ({number})"))
    }

    /// Adds the definitions among these records. The records may use them.
    pub fn learn(&mut self, records: &Records) {
        for file in &records.files {
            let key = FileKey::of(file);
            self.files.insert(file.number, key);
            if let FileKey::Inode { inode, generation } = key {
                let generations = self.generations.entry(inode).or_default();
                generations.learn(file.at_ns, generation, u32::eq);
            }
            if let Some(path) = &file.path {
                // The first name stays: a later one is a hard link, or it was renamed.
                if !self.paths.contains_key(&key) {
                    self.name_file(key, path);
                }
                if self.selection.is_by_file() && self.selection.has_path(&path.text) {
                    self.selected.insert(key);
                }
            }
            if let Some(device) = key.device().filter(|_| !file.file_system.is_empty()) {
                self.file_systems
                    .entry(device)
                    .or_insert_with(|| file.file_system.clone());
            }
        }
        for thread in &records.threads {
            self.learn_thread(thread);
        }
    }

    fn name_file(&mut self, key: FileKey, path: &CallPath) {
        let path = Rc::new(path.clone());
        // Where bytes are not UTF-8, the paths of several files have the same text.
        let is_exact = path.kind == PathKind::Whole && !path.text.contains(char::REPLACEMENT_CHARACTER);
        if let Some(device) = key.device().filter(|_| is_exact) {
            let first = *self.first_of_path.entry((device, Rc::clone(&path))).or_insert(key);
            if first != key {
                self.counted_as.insert(key, first);
            }
        }
        self.paths.insert(key, path);
    }

    fn learn_thread(&mut self, thread: &Thread) {
        if thread.comm.is_empty() {
            return;
        }
        let known = self.processes.get(&thread.pid);
        let comm: Rc<str> = match known.map(|known| &known.comm) {
            // Most threads have the name of their process.
            Some(comm) if **comm == *thread.comm => Rc::clone(comm),
            _ => thread.comm.as_str().into(),
        };
        let name = ThreadName {
            pid: thread.pid,
            comm: Rc::clone(&comm),
            uid: thread.uid,
            cgroup: thread.cgroup,
            until_ns: thread.until_ns(),
        };
        let names = self.threads.entry(thread.tid).or_default();
        names.learn(thread.at_ns, name, ThreadName::eq);
        let is_of_first = thread.tid == thread.pid;
        let process = self.processes.entry(thread.pid).or_insert_with(|| Process {
            comm: Rc::clone(&comm),
            is_of_first,
            parent: thread.parent,
        });
        if is_of_first || !process.is_of_first {
            (process.comm, process.is_of_first) = (comm, is_of_first);
        }
    }

    /// The thread at that moment, or else by its first definition; `None`: it is not known, or has ended, and that of a later
    /// thread with its number was lost.
    #[must_use]
    pub fn thread_at(&self, tid: u32, at_ns: u64) -> Option<&ThreadName> {
        let thread = self.threads.get(&tid)?.at(at_ns)?;
        (at_ns <= thread.until_ns).then_some(thread)
    }

    /// The last name of a thread.
    #[must_use]
    pub fn last_comm(&self, tid: u32) -> Option<&str> {
        let last = self.threads.get(&tid)?.values().last()?;
        Some(&last.comm)
    }

    /// The process that submitted a request; 0: unknown.
    #[must_use]
    pub fn process_of(&self, request: &Request) -> u32 {
        match request.pid {
            0 => self
                .thread_at(request.tid, request.ended_ns)
                .map_or(0, |thread| thread.pid),
            pid => pid,
        }
    }

    /// The file that an open file is of; `None`: it was not defined.
    #[must_use]
    pub fn key(&self, file: FileNumber) -> Option<FileKey> {
        self.files.get(&file).copied()
    }

    /// The file whose data a request carries; `None`: of none, or it is not known.
    #[must_use]
    pub fn key_of_request(&self, request: &Request) -> Option<FileKey> {
        let inode = request.inode.filter(|inode| !self.is_device(*inode))?;
        let generations = self.generations.get(&inode);
        let generation = generations.and_then(|generations| generations.at(request.begin_ns()));
        Some(FileKey::Inode {
            inode,
            generation: generation.copied().unwrap_or_default(),
        })
    }

    /// The same, as it is counted.
    #[must_use]
    pub fn counted_file_of(&self, request: &Request) -> Option<FileKey> {
        self.key_of_request(request).map(|key| self.counted_as(key))
    }

    /// Whether a request carries metadata of a file system: pages of a disk itself, and of no file on it.
    #[must_use]
    pub fn is_of_metadata(&self, request: &Request) -> bool {
        request.inode.is_some_and(|inode| self.is_device(inode))
    }

    /// Whether an inode is that of a disk or a partition. The kernel keeps these on a file system of their own without a
    /// device, and their numbers are those of the disks (block/bdev.c).
    fn is_device(&self, inode: Inode) -> bool {
        const MINOR_BITS: u32 = 20;
        let minor = inode.number & ((1 << MINOR_BITS) - 1);
        let is_disk = |major| {
            let disk = [major, minor as u32];
            self.disks.contains_key(&disk) || self.whole.contains_key(&disk)
        };
        inode.major == 0 && u32::try_from(inode.number >> MINOR_BITS).is_ok_and(is_disk)
    }

    /// The file as which it is counted among files: those that were created one after the other under one path, such as a
    /// journal, are one.
    #[must_use]
    pub fn counted_as(&self, key: FileKey) -> FileKey {
        self.counted_as.get(&key).copied().unwrap_or(key)
    }

    #[must_use]
    pub fn file(&self, key: FileKey) -> FileName {
        FileName {
            inode: match key {
                FileKey::Inode { inode, .. } => Some(inode),
                FileKey::Open(_) => None,
            },
            path: self.paths.get(&key).map(|path| CallPath::clone(path)),
        }
    }

    /// A path as in reports: what is left of one that is not whole begins with an ellipsis.
    #[must_use]
    pub fn path(&self, key: FileKey) -> Option<CallPath> {
        let path = self.paths.get(&key)?;
        Some(match path.kind {
            PathKind::Inside => CallPath::new(PathKind::Cut, format!("…{}", path.text)),
            _ => CallPath::clone(path),
        })
    }

    #[must_use]
    pub fn process(&self, pid: u32) -> ProcessName {
        let comm = self.processes.get(&pid).map(|process| process.comm.to_string());
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

    /// The disk of a partition, or the device itself.
    #[must_use]
    pub fn whole_disk(&self, device: [u32; 2]) -> [u32; 2] {
        self.whole.get(&device).copied().unwrap_or(device)
    }

    /// The disk that serves what is on a device; `None`: it is not known, as below a logical volume.
    #[must_use]
    pub fn serving_disk(&self, device: [u32; 2]) -> Option<[u32; 2]> {
        let disk = self.whole_disk(device);
        self.with_requests.contains(&disk).then_some(disk)
    }

    /// The name of a disk, or else the kind of a file system without one: `tmpfs (0:31)`.
    #[must_use]
    pub fn device(&self, device: [u32; 2]) -> String {
        let [major, minor] = device;
        match (self.disks.get(&device), self.file_systems.get(&device)) {
            (Some((name, _)), _) => name.clone(),
            (None, Some(kind)) => format!("{kind} ({major}:{minor})"),
            (None, None) => format!("{major}:{minor}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::model::record::OpenFile;

    fn open_file(number: FileNumber, inode: Option<u64>, path: &str) -> OpenFile {
        OpenFile {
            number,
            inode: inode.map(|number| Inode::on([8, 1], number)),
            path: Some(CallPath::whole(path)),
            ..OpenFile::default()
        }
    }

    /// Pages of a disk itself are metadata of the file system on it.
    #[test]
    fn the_inode_of_a_disk_is_no_file() {
        let mut names = Names::default();
        names.define_disk([254, 0], "vda".to_owned(), None);
        names.whole.insert([254, 1], [254, 0]);
        let inode = |major: u32, number: u64| Inode::on([major, 3], number);
        assert!(names.is_device(inode(0, 254 << 20)) && names.is_device(inode(0, 254 << 20 | 1)));
        let files = [
            inode(0, 254 << 20 | 2),
            inode(0, 7),
            inode(8, 254 << 20),
            inode(0, u64::MAX),
        ];
        assert!(!files.into_iter().any(|inode| names.is_device(inode)));
    }

    #[test]
    fn the_root_of_control_groups_has_its_name() {
        let names = Names::of(&Meta::default(), Selection::default());
        assert_eq!((names.cgroup(1), names.cgroup(7)), ("/".into(), "… (7)".into()));
    }

    #[test]
    fn what_is_selected_is_known_by_definitions() {
        let found = |selection: Selection| {
            let mut names = Names::new(selection);
            names.learn(&Records {
                files: vec![open_file(1, Some(7), "/srv/a"), open_file(2, Some(8), "/srv")],
                threads: vec![Thread {
                    pid: 7,
                    tid: 8,
                    parent: 5,
                    comm: "app".to_owned(),
                    ..Thread::default()
                }],
                ..Records::default()
            });
            let directory = names.selected_directory().map(str::to_owned);
            let process = names.has_selected_process();
            (process, names.has_selected_comm(), names.has_selected_file(), directory)
        };
        let of = |pid: u32, follow: bool| Selection {
            pids: BTreeSet::from([pid]),
            follow,
            ..Selection::default()
        };
        assert!(found(of(7, false)).0 && found(of(5, true)).0);
        assert!(!found(of(5, false)).0 && !found(of(1, true)).0);
        let named = |comm: &str| Selection {
            comm: Some(comm.to_owned()),
            ..Selection::default()
        };
        assert!(found(named("app")).1 && !found(named("other")).1);
        let on = |file: &str| Selection {
            files: vec![file.to_owned()],
            ..Selection::default()
        };
        assert_eq!(found(on("/srv/a")), (true, true, true, None));
        assert_eq!(found(on("/srv")), (true, true, true, Some("/srv".to_owned())));
        assert_eq!(found(on("/other")), (true, true, false, None));
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
    fn a_file_with_the_inode_number_of_a_deleted_one_is_another() {
        use super::super::synthetic::request;
        use crate::model::ids::Op;
        let defined = |file: FileNumber, generation: u32, path: &str| OpenFile {
            generation,
            at_ns: u64::from(generation) * 100,
            ..open_file(file, Some(7), path)
        };
        let mut names = Names::new(Selection {
            files: vec!["/big".to_owned()],
            ..Selection::default()
        });
        names.learn(&Records {
            files: vec![
                defined(1, 1, "/journal"),
                defined(2, 2, "/big"),
                defined(3, 3, "/journal"),
            ],
            ..Records::default()
        });
        let keys = [1, 2, 3].map(|file| names.key(file).unwrap());
        let of_request = |at_ns: u64| Request {
            inode: Some(Inode::on([8, 1], 7)),
            ..request(Op::Read, at_ns + 4, 0, 512)
        };
        for (at_ns, key) in [(0, keys[0]), (199, keys[0]), (200, keys[1]), (300, keys[2])] {
            assert_eq!(names.key_of_request(&of_request(at_ns)), Some(key), "{at_ns}");
            assert_eq!(
                names.selects_request_of_any(&of_request(at_ns)),
                key == keys[1],
                "{at_ns}"
            );
        }
        assert_eq!(
            keys.map(|key| names.file(key).path.unwrap().text),
            ["/journal", "/big", "/journal"]
        );
        // The journal is created for each commit.
        assert_eq!(keys.map(|key| names.counted_as(key)), [keys[0], keys[1], keys[0]]);
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
            let calls = calls.map(|(pid, file)| names.selects(pid, pid, names.key(file), 0));
            (calls, names.selects_request(&request(Op::Read, 1, 0, 512)))
        };
        let all = Selection::default();
        assert_eq!(select(all.clone()), ([true, true], true));
        let pids = BTreeSet::from([8]);
        assert_eq!(select(Selection { pids, ..all.clone() }), ([false, true], false));
        let comm = Some("app".to_owned());
        assert_eq!(select(Selection { comm, ..all.clone() }), ([true, false], true));
        let files = vec!["/b".to_owned()];
        assert_eq!(select(Selection { files, ..all.clone() }), ([false, true], false));
        let on = |device| Selection {
            devices: BTreeSet::from([device]),
            ..all.clone()
        };
        assert_eq!(select(on([8, 1])), ([true, true], true));
        assert_eq!(select(on([9, 0])), ([false, false], false));
    }

    #[test]
    fn files_of_one_path_are_counted_as_one_if_the_path_is_exact() {
        let mut names = Names::default();
        names.learn(&Records {
            files: vec![
                open_file(1, Some(100), "/journal"),
                open_file(2, Some(101), "/journal"),
                // Two names of a byte that is not UTF-8.
                open_file(3, Some(102), "/o\u{fffd}"),
                open_file(4, Some(103), "/o\u{fffd}"),
            ],
            ..Records::default()
        });
        let [first, second, third, fourth] = [1, 2, 3, 4].map(|number| names.counted_as(names.key(number).unwrap()));
        assert_eq!(first, second);
        assert_ne!(third, fourth);
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

    #[test]
    fn descendants_are_found_by_the_parents_that_they_had_first() {
        let child = |pid: u32, parent: u32| Thread {
            parent,
            ..super::super::synthetic::process(pid, "sh")
        };
        let mut names = Names::new(Selection {
            pids: BTreeSet::from([7]),
            follow: true,
            ..Selection::default()
        });
        names.learn(&Records {
            threads: vec![
                child(7, 1),
                child(8, 7),
                child(9, 8),
                child(9, 1),
                child(5, 1),
                child(6, 6),
            ],
            ..Records::default()
        });
        let selected = [7, 8, 9, 5, 6, 4].map(|pid| names.selects(pid, pid, None, 0));
        assert_eq!(selected, [true, true, true, false, false, false]);
    }

    #[test]
    fn a_number_that_is_used_again_has_no_name_if_its_definition_was_lost() {
        let at = |at_ns, comm: &str, has_ended| Thread {
            at_ns,
            has_ended,
            ..super::super::synthetic::process(7, comm)
        };
        const ENDING: u64 = Thread::ENDING_NS;
        let mut names = Names::default();
        let mut learn = |thread: Thread| {
            names.learn(&Records {
                threads: vec![thread],
                ..Records::default()
            });
            let at = [100, 200, 200 + ENDING, 201 + ENDING, 300 + ENDING];
            at.map(|at_ns| names.thread_at(7, at_ns).map(|thread| thread.comm.to_string()))
        };
        let name = |name: &str| Some(name.to_owned());
        learn(at(100, "old", false));
        let known = learn(at(200, "old", true));
        assert_eq!(known, [name("old"), name("old"), name("old"), None, None]);
        // It may be used again at once.
        let known = learn(at(201, "new", false));
        assert_eq!(known, [name("old"), name("old"), name("new"), name("new"), name("new")]);
        assert_eq!(names.last_comm(7), Some("new"));
    }

    #[test]
    fn a_thread_is_selected_by_what_it_was_at_that_moment() {
        let at = |at_ns, comm: &str, cgroup| Thread {
            at_ns,
            cgroup,
            ..super::super::synthetic::process(7, comm)
        };
        let selected = |selection: Selection| {
            let mut names = Names::new(selection);
            names.learn(&Records {
                threads: vec![at(100, "sh", 1), at(200, "dd", 1), at(300, "dd", 2), at(400, "dd", 2)],
                ..Records::default()
            });
            [50, 150, 250, 350].map(|at_ns| names.selects(7, 7, None, at_ns))
        };
        let comm = Some("dd".to_owned());
        let all = Selection::default();
        assert_eq!(selected(Selection { comm, ..all.clone() }), [false, false, true, true]);
        let cgroups = BTreeSet::from([2]);
        assert_eq!(selected(Selection { cgroups, ..all }), [false, false, false, true]);
    }
}
