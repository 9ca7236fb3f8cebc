//! What a plan is made of: the selected calls in the order of their begins, and the definitions that they refer to.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::rc::Rc;

use super::working::Working;
use crate::catalog::SYSCALLS;
use crate::model::ids::{Family, Op, PathKind, ReadClass};
use crate::model::record::{Call, FileNumber, GivenPath, Kind, OpenFile, Paths, Records};
use crate::model::report::slow::Inode;

/// Which calls are replayed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// Of these families; empty: of all.
    pub only: BTreeSet<Family>,
    /// Not of these families.
    pub without: BTreeSet<Family>,
    /// Of these threads; empty: of all.
    pub threads: BTreeSet<u32>,
    /// Also those that change owners.
    pub owners: bool,
}

/// A call that is to be replayed, without what a replay does not use.
#[derive(Debug, Clone)]
pub struct Recorded {
    pub tid: u32,
    pub pid: u32,
    pub begin_ns: u64,
    pub end_ns: u64,
    pub op: Op,
    pub value: i64,
    pub offset: Option<u64>,
    pub size: Option<u64>,
    pub files: [FileNumber; 2],
    pub extra: u64,
    pub paths: Option<Box<Paths>>,
    /// A read whose data came from the page cache.
    pub is_cached: bool,
}

impl Recorded {
    pub fn first_path(&self) -> Option<&GivenPath> {
        self.paths.as_ref()?.first.as_ref()
    }

    pub fn second_path(&self) -> Option<&GivenPath> {
        self.paths.as_ref()?.second.as_ref()
    }

    /// The error as a positive number; 0: it succeeded.
    pub fn errno(&self) -> i32 {
        i32::try_from(self.value.min(0).unsigned_abs()).unwrap_or(i32::MAX)
    }
}

/// The definition of an open file, without what a replay does not use. There may be millions, most of them of a few files.
#[derive(Debug, Clone)]
pub struct Defined {
    pub at_ns: u64,
    pub inode: Option<Inode>,
    pub mode: u32,
    pub links: u32,
    pub size: u64,
    pub blocks: u64,
    pub flags: u32,
    pub position: u64,
    pub file_system: Rc<str>,
    pub path: Option<DefinedPath>,
}

#[derive(Debug, Clone)]
pub struct DefinedPath {
    pub kind: PathKind,
    pub text: Rc<str>,
}

/// Everything that a recording has for a replay.
#[derive(Debug, Default)]
pub struct Loaded {
    pub calls: Vec<Recorded>,
    /// The first definition of each open file.
    pub files: HashMap<FileNumber, Defined>,
    pub working: Working,
    /// Calls of the recording, whether selected or not.
    pub recorded: u64,
    /// Calls that were not selected.
    pub not_selected: u64,
    /// Calls that had not ended, by operation.
    pub under_way: BTreeMap<Op, u64>,
    /// Asynchronous requests and page faults.
    pub asynchronous: u64,
    pub faults: u64,
    /// Reads say where their data came from.
    pub has_classes: bool,
    /// Records that were lost while recording, by kind.
    pub lost: BTreeMap<Kind, u64>,
    pub selection: Selection,
    families: HashMap<Op, Family>,
    /// Paths and the like that definitions share.
    texts: HashSet<Rc<str>>,
}

impl Loaded {
    #[must_use]
    pub fn new(selection: Selection) -> Self {
        Self {
            selection,
            families: SYSCALLS
                .iter()
                .filter_map(|call| Some((call.op, call.family?)))
                .collect(),
            ..Self::default()
        }
    }

    /// Adds the next batch of a recording.
    pub fn take(&mut self, batch: Records) {
        for thread in batch.threads {
            self.working.parent(thread.pid, thread.parent);
        }
        for folder in batch.folders.into_iter().filter(|folder| !folder.is_root) {
            if let Ok(path) = super::path::canonical(&folder.path) {
                self.working.set(folder.pid, folder.at_ns, path);
            }
        }
        for file in batch.files {
            // Every segment defines it again.
            if !self.files.contains_key(&file.number) {
                self.define(file);
            }
        }
        for lost in batch.lost {
            let sum = self.lost.entry(lost.kind).or_default();
            *sum = sum.saturating_add(lost.records);
        }
        self.asynchronous += batch.asynchronous.len() as u64;
        self.faults += batch.faults.len() as u64;
        batch.calls.into_iter().for_each(|call| self.call(call));
    }

    fn define(&mut self, file: OpenFile) {
        let path = file.path.map(|path| DefinedPath {
            kind: path.kind,
            text: self.text(path.text),
        });
        let defined = Defined {
            at_ns: file.at_ns,
            inode: file.inode,
            mode: file.mode,
            links: file.links,
            size: file.size,
            blocks: file.blocks,
            flags: file.flags,
            position: file.position,
            file_system: self.text(file.file_system),
            path,
        };
        self.files.insert(file.number, defined);
    }

    fn text(&mut self, text: String) -> Rc<str> {
        if let Some(known) = self.texts.get(text.as_str()) {
            return Rc::clone(known);
        }
        let new: Rc<str> = text.into();
        self.texts.insert(Rc::clone(&new));
        new
    }

    fn call(&mut self, call: Call) {
        self.recorded += 1;
        if matches!(call.op, Op::Chdir | Op::Fchdir) && call.value == 0 {
            self.working.changes(call.pid);
        }
        self.has_classes |= call.class.is_some();
        let family = self.families.get(&call.op);
        let Selection {
            only, without, threads, ..
        } = &self.selection;
        let is_of = |families: &BTreeSet<Family>| family.is_some_and(|family| families.contains(family));
        // Without its working directory, the relative paths of a process are unknown.
        let is_needed = call.op == Op::Chdir;
        if (!threads.is_empty() && !threads.contains(&call.tid))
            || (!is_needed && ((!only.is_empty() && !is_of(only)) || is_of(without)))
        {
            self.not_selected += 1;
            return;
        }
        let Some(end_ns) = call.end_ns else {
            *self.under_way.entry(call.op).or_default() += 1;
            return;
        };
        self.calls.push(Recorded {
            tid: call.tid,
            pid: call.pid,
            begin_ns: call.begin_ns,
            end_ns: end_ns.max(call.begin_ns),
            op: call.op,
            value: call.value,
            offset: call.offset,
            size: call.size,
            files: call.files,
            extra: call.extra,
            paths: call.paths,
            is_cached: call.class == Some(ReadClass::FromCache),
        });
    }

    /// Ends the recording: puts the calls in order, and learns from what they say about each other.
    pub fn finish(&mut self) {
        // Stable: calls that began at the same moment keep the order of their ends.
        self.calls.sort_by_key(|call| (call.begin_ns, call.end_ns));
        for call in &self.calls {
            let Some(given) = call.first_path().filter(|given| given.base == 0) else {
                continue;
            };
            let is_relative = !given.text.is_empty() && !given.text.starts_with('/');
            let opened = self.files.get(&call.files[0]).and_then(|file| file.path.as_ref());
            if let Some(path) = opened.filter(|path| is_relative && path.kind == PathKind::Whole && call.value >= 0) {
                self.working.opened(call.pid, call.begin_ns, &given.text, &path.text);
            }
        }
        self.working.finish();
    }
}
