//! The names that records refer to by number.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::rc::Rc;

use crate::model::over_time::OverTime;
use crate::model::record::{FileNumber, OpenFile, Thread};
use crate::model::report::slow::{Inode, PathKind};

/// The longest chain of parents that is followed.
const MOST_PARENTS: usize = 64;

/// All threads and open files that a recording defines.
#[derive(Debug, Default)]
pub struct Names {
    threads: HashMap<u32, KnownThread>,
    /// The first parent of each process.
    parents: HashMap<u32, u32>,
    files: HashMap<FileNumber, FileName>,
    /// The generation of each inode from a moment on, and its first path: the number of a deleted file is used again.
    inodes: HashMap<Inode, OverTime<(u32, Rc<str>)>>,
    /// Equal texts are stored once: the same path is opened again and again.
    texts: HashSet<Rc<str>>,
    /// Goes up as definitions are added, if old ones are forgotten ([`Names::forget`]).
    generation: u32,
    /// Definitions since it went up, and the latest of them.
    learned: usize,
    latest_ns: u64,
}

/// A thread, and the last generation in which a record named it.
#[derive(Debug, Default)]
struct KnownThread {
    used: u32,
    names: OverTime<ThreadName>,
}

/// A thread from a moment on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadName {
    pub pid: u32,
    /// The parent process; 0: unknown.
    pub parent: u32,
    pub comm: Rc<str>,
    pub cgroup: u64,
    /// It has ended by then, and another thread may have its number.
    until_ns: u64,
}

/// An open file, by its first definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileName {
    /// Its path, or what is known instead, such as `inode:[8:1 131]`.
    pub path: Rc<str>,
    /// The path is whole, from the root.
    pub is_whole: bool,
    pub inode: Option<Inode>,
    pub generation: u32,
    pub mode: u32,
    pub size: u64,
    pub flags: u32,
    /// The last generation in which a record named it.
    used: u32,
}

impl Names {
    /// Adds the definition of a thread.
    pub fn thread(&mut self, thread: &Thread) {
        let name = ThreadName {
            pid: thread.pid,
            parent: thread.parent,
            comm: self.text(&thread.comm),
            cgroup: thread.cgroup,
            until_ns: thread.until_ns(),
        };
        if thread.parent != 0 {
            // A process whose parent has ended gets another one.
            self.parents.entry(thread.pid).or_insert(thread.parent);
        }
        let is_same = |a: &ThreadName, b: &ThreadName| {
            (a.pid, a.cgroup, a.until_ns) == (b.pid, b.cgroup, b.until_ns) && a.comm == b.comm
        };
        self.learned += 1;
        self.latest_ns = self.latest_ns.max(thread.at_ns);
        let known = self.threads.entry(thread.tid).or_default();
        known.used = self.generation;
        known.names.learn(thread.at_ns, name, is_same);
    }

    /// Adds the definition of an open file. Its size and flags stay those of the first definition.
    pub fn file(&mut self, file: &OpenFile) {
        let path = match &file.path {
            Some(path) if path.kind == PathKind::Cut => format!("…{}", path.text),
            Some(path) => path.text.clone(),
            None => match file.inode {
                Some(inode) => format!("inode:[{}:{} {}]", inode.major, inode.minor, inode.number),
                None => format!("file:[{}]", file.number),
            },
        };
        let is_whole = file.path.as_ref().is_some_and(|path| path.kind == PathKind::Whole);
        let path = self.text(&path);
        if let Some(inode) = file.inode.filter(|_| file.path.is_some()) {
            let known = self.inodes.entry(inode).or_default();
            known.learn(file.at_ns, (file.generation, Rc::clone(&path)), |(a, _), (b, _)| a == b);
        }
        self.learned += 1;
        self.latest_ns = self.latest_ns.max(file.at_ns);
        let used = self.generation;
        let name = self.files.entry(file.number).or_insert_with(|| FileName {
            used,
            path: path.clone(),
            is_whole,
            inode: file.inode,
            generation: file.generation,
            mode: file.mode,
            size: file.size,
            flags: file.flags,
        });
        if file.path.is_some() {
            (name.path, name.is_whole) = (path, is_whole);
        }
    }

    fn text(&mut self, text: &str) -> Rc<str> {
        if let Some(known) = self.texts.get(text) {
            return Rc::clone(known);
        }
        let text: Rc<str> = text.into();
        self.texts.insert(Rc::clone(&text));
        text
    }

    /// Notes that a record names these now.
    pub fn touch(&mut self, tid: u32, files: &[FileNumber]) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.used = self.generation;
        }
        for number in files.iter().filter(|number| **number != 0) {
            if let Some(file) = self.files.get_mut(number) {
                file.used = self.generation;
            }
        }
    }

    /// Forgets what no record has named for the last `most` definitions or longer. A run that does not end defines without
    /// end.
    pub fn forget(&mut self, most: usize) {
        const GENERATIONS: u32 = 4;
        /// How long ago a request may have been submitted whose thread had another name then.
        const LONG: u64 = 60_000_000_000;
        if self.learned < most / GENERATIONS as usize {
            return;
        }
        self.learned = 0;
        self.generation += 1;
        let oldest = self.generation.saturating_sub(GENERATIONS);
        self.files.retain(|_, file| file.used >= oldest);
        self.threads.retain(|_, thread| thread.used >= oldest);
        let before_ns = self.latest_ns.saturating_sub(LONG);
        self.threads
            .values_mut()
            .for_each(|thread| thread.names.forget_before(before_ns));
        let inodes: HashSet<Inode> = self.files.values().filter_map(|file| file.inode).collect();
        self.inodes.retain(|inode, _| inodes.contains(inode));
        self.inodes
            .values_mut()
            .for_each(|known| known.forget_before(before_ns));
        self.parents.retain(|pid, _| self.threads.contains_key(pid));
        self.texts.retain(|text| Rc::strong_count(text) > 1);
    }

    /// The thread at that moment, or else by its first definition; `None`: it is not known, or has ended, and that of a later
    /// thread with its number was lost.
    #[must_use]
    pub fn thread_at(&self, tid: u32, at_ns: u64) -> Option<&ThreadName> {
        let thread = self.threads.get(&tid)?.names.at(at_ns)?;
        (at_ns <= thread.until_ns).then_some(thread)
    }

    /// The name of a thread at that moment; empty: unknown.
    #[must_use]
    pub fn comm_at(&self, tid: u32, at_ns: u64) -> &str {
        self.thread_at(tid, at_ns).map_or("", |name| &*name.comm)
    }

    /// The threads by number, each by its first definition.
    #[must_use]
    pub fn threads(&self) -> Vec<(u32, &ThreadName)> {
        let names = self.threads.iter();
        let mut all: Vec<(u32, &ThreadName)> = names
            .filter_map(|(tid, known)| Some((*tid, known.names.values().next()?)))
            .collect();
        all.sort_unstable_by_key(|(tid, _)| *tid);
        all
    }

    /// `None`: 0, or never defined.
    #[must_use]
    pub fn file_of(&self, number: FileNumber) -> Option<&FileName> {
        self.files.get(&number)
    }

    /// All open files.
    pub fn files(&self) -> impl Iterator<Item = (FileNumber, &FileName)> {
        self.files.iter().map(|(number, file)| (*number, file))
    }

    /// Whether a process is one of these, or descends from one.
    #[must_use]
    pub fn descends(&self, pid: u32, from: &BTreeSet<u32>) -> bool {
        let parents = std::iter::successors(Some(pid), |pid| self.parents.get(pid).copied());
        // A damaged recording may have a circle.
        parents.take(MOST_PARENTS).any(|pid| from.contains(&pid))
    }

    /// The path of the file that has this inode at that moment; empty: unknown.
    #[must_use]
    pub fn path_of_inode(&self, inode: Inode, at_ns: u64) -> &str {
        self.inode_at(inode, at_ns).map_or("", |(_, path)| path)
    }

    /// The generation of an inode at that moment; `None`: unknown.
    #[must_use]
    pub fn generation_at(&self, inode: Inode, at_ns: u64) -> Option<u32> {
        self.inode_at(inode, at_ns).map(|(generation, _)| *generation)
    }

    fn inode_at(&self, inode: Inode, at_ns: u64) -> Option<&(u32, Rc<str>)> {
        self.inodes.get(&inode)?.at(at_ns)
    }

    /// The path of an open file; empty: unknown.
    #[must_use]
    pub fn path_of(&self, number: FileNumber) -> &str {
        self.file_of(number).map_or("", |file| &*file.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::report::slow::CallPath;

    fn thread(at_ns: u64, comm: &str) -> Thread {
        Thread {
            tid: 7,
            pid: 5,
            at_ns,
            comm: comm.to_owned(),
            ..Thread::default()
        }
    }

    #[test]
    fn a_thread_has_the_name_of_the_moment() {
        let mut names = Names::default();
        for definition in [thread(200, "new"), thread(100, "old"), thread(150, "old")] {
            names.thread(&definition);
        }
        let at = |ns| names.comm_at(7, ns);
        assert_eq!(
            [at(0), at(100), at(199), at(200), at(999)],
            ["old", "old", "old", "new", "new"]
        );
        assert_eq!(names.comm_at(8, 100), "");
        assert_eq!(
            names.threads.get(&7).map(|known| known.names.values().len()),
            Some(2),
            "definitions are repeated in each segment"
        );
    }

    #[test]
    fn a_number_that_is_used_again_has_no_name_if_its_definition_was_lost() {
        const ENDING: u64 = Thread::ENDING_NS;
        let mut names = Names::default();
        names.thread(&thread(100, "old"));
        names.thread(&Thread {
            has_ended: true,
            ..thread(200, "old")
        });
        let at = |names: &Names| [100, 200 + ENDING, 201 + ENDING].map(|ns| names.comm_at(7, ns).to_owned());
        assert_eq!(at(&names), ["old", "old", ""]);
        names.thread(&thread(201, "new"));
        assert_eq!(at(&names), ["old", "new", "new"]);
    }

    #[test]
    fn a_new_file_may_have_the_inode_number_of_a_deleted_one() {
        let inode = Inode::on([8, 1], 7);
        let mut names = Names::default();
        for (number, path) in [(1, "/journal"), (2, "/big"), (3, "/linked")] {
            names.file(&OpenFile {
                number,
                at_ns: u64::from(number) * 100,
                inode: Some(inode),
                generation: number.min(2),
                path: Some(CallPath::whole(path)),
                ..OpenFile::default()
            });
        }
        let at = |ns| (names.path_of_inode(inode, ns), names.generation_at(inode, ns));
        assert_eq!(at(199), ("/journal", Some(1)));
        assert_eq!(at(200), ("/big", Some(2)));
        assert_eq!(at(999), ("/big", Some(2)), "a link is the same file");
    }

    #[test]
    fn what_is_not_named_any_more_is_forgotten() {
        const MOST: usize = 400;
        let mut names = Names::default();
        for at in 0..MOST as u32 * 100 {
            let path = format!("/srv/{at}");
            names.file(&OpenFile {
                number: at + 1,
                path: Some(CallPath::whole(path)),
                ..OpenFile::default()
            });
            let comm = format!("{at}");
            names.thread(&Thread {
                tid: at % 50 + 1,
                pid: 1,
                ..thread(u64::from(at) * 1_000_000_000, &comm)
            });
            names.touch(7, &[1, 0]);
            names.forget(MOST);
            assert!(names.files.len() <= MOST + 1 && names.texts.len() <= 3 * MOST);
            assert!(names.threads.values().all(|known| known.names.values().len() < 10));
        }
        assert_eq!((names.path_of(1), names.path_of(2)), ("/srv/0", ""));
        assert_eq!(names.comm_at(7, u64::MAX), (MOST * 100 - 50 + 6).to_string());
        assert_eq!(names.path_of(MOST as u32 * 100), format!("/srv/{}", MOST * 100 - 1));
    }

    #[test]
    fn a_file_has_a_name_even_without_a_path() {
        let mut names = Names::default();
        let mut file = OpenFile {
            number: 3,
            size: 10,
            ..OpenFile::default()
        };
        names.file(&file);
        assert_eq!(names.path_of(3), "file:[3]");
        file.inode = Some(Inode::on([8, 1], 9));
        file.path = Some(CallPath::whole("/srv/a"));
        file.size = 20;
        names.file(&file);
        assert_eq!(names.path_of(3), "/srv/a");
        assert_eq!(names.file_of(3).map(|file| file.size), Some(10));
        assert_eq!(names.path_of(0), "");
    }
}
