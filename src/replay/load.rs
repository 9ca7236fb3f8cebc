//! What is learnt of a recording before its calls are followed: the definitions that they refer to, links, working
//! directories and threads. The calls themselves are read again: [`Loaded::calls`] has them in the order of their begins.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use super::does::{Does, does};
use super::flags;
use super::in_order::{InOrder, Sorter};
use super::path::{self, Components};
use super::working::Working;
use crate::catalog::SYSCALLS;
use crate::model::abi::RECORD_ARGUMENTS;
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
    /// Calls are in this order; those that began and ended at the same moments keep that in which they came.
    #[must_use]
    pub fn key(&self) -> (u64, u64) {
        (self.begin_ns, self.end_ns)
    }

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

/// The definition of an open file, without what a replay does not use.
#[derive(Debug, Clone, Copy)]
pub struct Defined<'a> {
    pub at_ns: u64,
    pub size: u64,
    pub blocks: u64,
    pub position: u64,
    pub file: &'a DefinedFile,
}

/// A definition as it is held. There may be millions, most of them of a few files.
#[derive(Debug)]
struct Held {
    at_ns: u64,
    size: u64,
    blocks: u64,
    number: FileNumber,
    /// Index of what it has in common with others.
    file: u32,
}

/// What definitions of a file have in common.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DefinedFile {
    pub inode: Option<Inode>,
    pub mode: u32,
    pub flags: u32,
    pub links: u32,
    pub file_system: Arc<str>,
    pub path: Option<DefinedPath>,
}

/// The first definition of each open file.
#[derive(Debug, Default)]
pub struct Definitions {
    /// Until all are known.
    indices: HashMap<FileNumber, u32>,
    /// By number, as soon as all are known.
    all: Vec<Held>,
    files: Vec<Arc<DefinedFile>>,
    /// Positions that are not 0: few open files are defined when they have been used.
    positions: HashMap<FileNumber, u64>,
}

impl Definitions {
    /// By which of them an open file is defined.
    #[must_use]
    pub fn index(&self, number: FileNumber) -> Option<usize> {
        if let Some(index) = self.indices.get(&number) {
            return Some(*index as usize);
        }
        if !self.indices.is_empty() {
            return None;
        }
        // Most numbers follow each other.
        let next = number.checked_sub(self.all.first()?.number)? as usize;
        match self.all.get(next) {
            Some(held) if held.number == number => Some(next),
            _ => self.all.binary_search_by_key(&number, |held| held.number).ok(),
        }
    }

    #[must_use]
    pub fn get(&self, number: FileNumber) -> Option<Defined<'_>> {
        let held = self.all.get(self.index(number)?)?;
        Some(Defined {
            at_ns: held.at_ns,
            size: held.size,
            blocks: held.blocks,
            position: self.positions.get(&number).copied().unwrap_or(0),
            file: self.files.get(held.file as usize)?,
        })
    }

    fn add(&mut self, held: Held, position: u64) {
        if position != 0 {
            self.positions.insert(held.number, position);
        }
        self.indices.insert(held.number, self.all.len() as u32);
        self.all.push(held);
    }

    /// All are known: a table of where each of them is takes half as much as they do.
    fn finish(&mut self) {
        self.all.sort_unstable_by_key(|held| held.number);
        self.indices = HashMap::new();
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DefinedPath {
    pub kind: PathKind,
    pub text: Arc<str>,
}

/// The first begin and the last end of a thread's calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    pub begin_ns: u64,
    pub end_ns: u64,
}

/// Everything that a recording has for a replay, but the calls.
#[derive(Debug, Default)]
pub struct Loaded {
    /// By recorded thread, of calls that can be replayed.
    pub spans: BTreeMap<u32, Span>,
    /// Directories and files that are links in the recording, with what they lead to.
    pub links: HashMap<Components, Components>,
    pub files: Definitions,
    pub working: Working,
    /// Root directories, by process and the moment from which on, of processes that had another one than `/`.
    roots: HashMap<u32, BTreeMap<u64, Components>>,
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
    chosen: Chosen,
    sorter: Sorter,
    /// Calls that took longer than so many others that they do not come in their turn, in the order of their begins.
    overtaken: Vec<Recorded>,
    /// What was opened under another path than its own, and when it was last.
    other_paths: HashMap<OtherPath, u64>,
    /// What definitions share.
    defined: HashMap<Arc<DefinedFile>, u32>,
    texts: HashSet<Arc<str>>,
}

/// A file was opened under one path, and has another one.
#[derive(Debug, PartialEq, Eq, Hash)]
struct OtherPath {
    given: Arc<str>,
    real: Arc<str>,
    /// The process, of a relative path; else 0.
    pid: u32,
}

/// The choice of calls.
#[derive(Debug, Clone, Default)]
struct Chosen {
    selection: Selection,
    families: HashMap<Op, Family>,
}

/// Why a call is not among those that are replayed.
enum Left {
    NotSelected,
    UnderWay,
}

impl Chosen {
    /// What is kept of a call.
    fn choose(&self, call: Call) -> Result<Recorded, Left> {
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
            return Err(Left::NotSelected);
        }
        let end_ns = call.end_ns.ok_or(Left::UnderWay)?;
        Ok(Recorded {
            tid: call.tid,
            pid: call.pid,
            begin_ns: call.begin_ns,
            end_ns: end_ns.max(call.begin_ns),
            op: call.op,
            value: call.value,
            offset: call.offset,
            size: call
                .size
                .or_else(|| argument_of_fcntl(call.op, call.arguments.as_deref()?)),
            files: call.files,
            extra: call.extra,
            paths: call.paths,
            is_cached: call.class == Some(ReadClass::FromCache),
        })
    }
}

/// The third argument of fcntl, which is kept as its size.
fn argument_of_fcntl(op: Op, arguments: &[i64; RECORD_ARGUMENTS as usize]) -> Option<u64> {
    (op == Op::Fcntl).then_some(arguments[2].cast_unsigned())
}

impl Loaded {
    #[must_use]
    pub fn new(selection: Selection) -> Self {
        Self {
            chosen: Chosen {
                selection,
                families: SYSCALLS
                    .iter()
                    .filter_map(|call| Some((call.op, call.family?)))
                    .collect(),
            },
            ..Self::default()
        }
    }

    /// Holds so many calls to put them in order, in place of many.
    #[cfg(test)]
    pub(super) fn hold(&mut self, calls: usize) {
        self.sorter = Sorter::new(calls);
    }

    /// How many calls were overtaken.
    #[cfg(test)]
    pub(super) fn overtaken(&self) -> usize {
        self.overtaken.len()
    }

    /// Calls that change owners are replayed.
    #[must_use]
    pub fn owners(&self) -> bool {
        self.chosen.selection.owners
    }

    /// Adds the next batch of a recording.
    pub fn take(&mut self, batch: Records) {
        for thread in batch.threads {
            self.working.parent(thread.pid, thread.parent);
        }
        for folder in batch.folders {
            let Ok(path) = path::canonical(&folder.path) else {
                continue;
            };
            if !folder.is_root {
                self.working.set(folder.pid, folder.at_ns, path);
            } else if !path.is_empty() || self.roots.contains_key(&folder.pid) {
                self.roots.entry(folder.pid).or_default().insert(folder.at_ns, path);
            }
        }
        for file in batch.files {
            // Every segment defines it again.
            if self.files.index(file.number).is_none() {
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
            text: self.text(&path.text),
        });
        let of = DefinedFile {
            inode: file.inode,
            mode: file.mode,
            flags: file.flags,
            links: file.links,
            file_system: self.text(&file.file_system),
            path,
        };
        let shared = if let Some(known) = self.defined.get(&of) {
            *known
        } else {
            let (new, index) = (Arc::new(of), self.files.files.len() as u32);
            self.files.files.push(Arc::clone(&new));
            self.defined.insert(new, index);
            index
        };
        let held = Held {
            at_ns: file.at_ns,
            size: file.size,
            blocks: file.blocks,
            number: file.number,
            file: shared,
        };
        self.files.add(held, file.position);
    }

    fn text(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.texts.get(text) {
            return Arc::clone(known);
        }
        let new: Arc<str> = text.into();
        self.texts.insert(Arc::clone(&new));
        new
    }

    fn call(&mut self, call: Call) {
        self.recorded += 1;
        if matches!(call.op, Op::Chdir | Op::Fchdir) && call.value == 0 {
            self.working.changes(call.pid);
        }
        self.has_classes |= call.class.is_some();
        let op = call.op;
        match self.chosen.choose(call) {
            Ok(call) => {
                self.learn(&call);
                // Only what is overtaken is kept.
                self.sorter.add(call, &mut self.overtaken);
            }
            Err(Left::NotSelected) => self.not_selected += 1,
            Err(Left::UnderWay) => *self.under_way.entry(op).or_default() += 1,
        }
    }

    fn learn(&mut self, call: &Recorded) {
        if does(call.op).is_ok() {
            let span = self.spans.entry(call.tid).or_insert(Span {
                begin_ns: call.begin_ns,
                end_ns: call.end_ns,
            });
            span.begin_ns = span.begin_ns.min(call.begin_ns);
            span.end_ns = span.end_ns.max(call.end_ns);
        }
        let is_given = |given: &&GivenPath| given.base == 0 && !given.text.is_empty() && call.value >= 0;
        let Some(given) = call.first_path().filter(is_given) else {
            return;
        };
        let opened = self
            .files
            .get(call.files[0])
            .and_then(|defined| defined.file.path.as_ref());
        let Some(real) = opened.filter(|path| path.kind == PathKind::Whole) else {
            return;
        };
        let real = Arc::clone(&real.text);
        let is_relative = !given.text.starts_with('/');
        let root = self.root_of(call.pid, call.begin_ns).filter(|_| !is_relative);
        let text = root.map(|root| format!("{}{}", path::joined(root), given.text));
        let text = text.as_ref().unwrap_or(&given.text);
        if is_relative && self.working.opened(call.pid, call.begin_ns, &given.text, &real) {
            return;
        }
        let is_unnamed = call.extra as u32 & flags::UNNAMED == flags::UNNAMED;
        if does(call.op) == Ok(Does::Open) && !is_unnamed && **text != *real {
            let key = OtherPath {
                given: self.text(text),
                real,
                pid: if is_relative { call.pid } else { 0 },
            };
            let last_ns = self.other_paths.entry(key).or_default();
            *last_ns = call.begin_ns.max(*last_ns);
        }
    }

    /// Ends the recording: learns from what calls say about each other.
    pub fn finish(&mut self) {
        let mut sorter = std::mem::take(&mut self.sorter);
        sorter.end(&mut self.overtaken);
        self.overtaken.sort_by_key(Recorded::key);
        self.sorter = sorter;
        self.working.finish();
        self.files.finish();
        (self.defined, self.texts) = Default::default();
        let mut others: Vec<(OtherPath, u64)> = std::mem::take(&mut self.other_paths).into_iter().collect();
        others.sort_by(|(a, a_ns), (b, b_ns)| (a_ns, &a.given, &a.real).cmp(&(b_ns, &b.given, &b.real)));
        for (other, at_ns) in others {
            self.learn_link(&other, at_ns);
        }
    }

    /// What was opened under one path and has another one is behind a link.
    fn learn_link(&mut self, other: &OtherPath, at_ns: u64) {
        let Ok(mut real) = path::canonical(&other.real) else {
            return;
        };
        let start = if other.pid == 0 {
            Components::new()
        } else {
            match self.working.at(other.pid, at_ns) {
                Some(folder) => folder.clone(),
                None => return,
            }
        };
        let Ok(mut given) = path::append(start, &other.given) else {
            return;
        };
        // A directory may have the name of the link that leads to it.
        while given.len() > 1 && given.last() == real.last() {
            given.pop();
            real.pop();
        }
        if given != real && !given.is_empty() && !real.starts_with(&given) {
            self.links.insert(given, real);
        }
    }

    /// The root directory of a process at a moment; `None`: `/`.
    #[must_use]
    pub fn root_of(&self, pid: u32, at_ns: u64) -> Option<&Components> {
        let (_, root) = self.roots.get(&pid)?.range(..=at_ns).next_back()?;
        Some(root)
    }

    /// The path of an open file, if it is whole.
    #[must_use]
    pub fn whole_path(&self, number: FileNumber) -> Option<Components> {
        let path = self.files.get(number)?.file.path.as_ref()?;
        (path.kind == PathKind::Whole)
            .then(|| path::canonical(&path.text).ok())
            .flatten()
    }

    /// The selected calls in the order of their begins, from the batches that were taken, which are read again.
    pub fn calls<B: Iterator<Item = Records>>(&self, batches: B) -> impl Iterator<Item = Recorded> + use<'_, B> {
        let chosen = batches
            .flat_map(|batch| batch.calls)
            .filter_map(|call| self.chosen.choose(call).ok());
        InOrder::new(chosen, self.sorter.fresh(), &self.overtaken)
    }
}
