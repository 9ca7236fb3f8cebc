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
    threads: HashMap<u32, OverTime<ThreadName>>,
    /// The first parent of each process.
    parents: HashMap<u32, u32>,
    files: HashMap<FileNumber, FileName>,
    /// The first path of each inode.
    inodes: HashMap<Inode, Rc<str>>,
    /// Equal texts are stored once: the same path is opened again and again.
    texts: HashSet<Rc<str>>,
}

/// A thread from a moment on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadName {
    pub pid: u32,
    /// The parent process; 0: unknown.
    pub parent: u32,
    pub comm: Rc<str>,
    pub cgroup: u64,
}

/// An open file, by its first definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileName {
    /// Its path, or what is known instead, such as `inode:[8:1 131]`.
    pub path: Rc<str>,
    /// The path is whole, from the root.
    pub is_whole: bool,
    pub inode: Option<Inode>,
    pub mode: u32,
    pub size: u64,
    pub flags: u32,
}

impl Names {
    /// Adds the definition of a thread.
    pub fn thread(&mut self, thread: &Thread) {
        let name = ThreadName {
            pid: thread.pid,
            parent: thread.parent,
            comm: self.text(&thread.comm),
            cgroup: thread.cgroup,
        };
        if thread.parent != 0 {
            // A process whose parent has ended gets another one.
            self.parents.entry(thread.pid).or_insert(thread.parent);
        }
        let is_same = |a: &ThreadName, b: &ThreadName| (a.pid, a.cgroup) == (b.pid, b.cgroup) && a.comm == b.comm;
        let names = self.threads.entry(thread.tid).or_default();
        names.learn(thread.at_ns, name, is_same);
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
            self.inodes.entry(inode).or_insert_with(|| Rc::clone(&path));
        }
        let name = self.files.entry(file.number).or_insert_with(|| FileName {
            path: path.clone(),
            is_whole,
            inode: file.inode,
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

    /// The thread at that moment, or else by its first definition.
    #[must_use]
    pub fn thread_at(&self, tid: u32, at_ns: u64) -> Option<&ThreadName> {
        self.threads.get(&tid)?.at(at_ns)
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
            .filter_map(|(tid, names)| Some((*tid, names.values().next()?)))
            .collect();
        all.sort_by_key(|(tid, _)| *tid);
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

    /// The path of a file by its inode; empty: unknown.
    #[must_use]
    pub fn path_of_inode(&self, inode: Inode) -> &str {
        self.inodes.get(&inode).map_or("", |path| path)
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
            names.threads.get(&7).map(|names| names.values().len()),
            Some(2),
            "definitions are repeated in each segment"
        );
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
        file.inode = Some(Inode {
            number: 9,
            major: 8,
            minor: 1,
        });
        file.path = Some(CallPath {
            kind: PathKind::Whole,
            text: "/srv/a".to_owned(),
        });
        file.size = 20;
        names.file(&file);
        assert_eq!(names.path_of(3), "/srv/a");
        assert_eq!(names.file_of(3).map(|file| file.size), Some(10));
        assert_eq!(names.path_of(0), "");
    }
}
