//! The names of files as they were at each moment of a recording, and what must have existed at its start.
//!
//! A node is a file or directory, a slot a name in a directory. What a call found existed at the start, unless a call had
//! made it before; what a call did not find did not exist. A node that existed has the slot of its first name, so that a
//! file that was renamed before it was opened is prepared under its old name.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::path::Components;
use super::ranges::Ranges;

pub type NodeId = u32;
pub type SlotId = u32;

/// The root of all paths.
pub const ROOT: NodeId = 0;

/// Directories below each other: more than any path has (`PATH_MAX`, include/uapi/linux/limits.h).
const DEEPEST: usize = 4096;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Kind {
    /// It was looked up, and not used.
    #[default]
    Unknown,
    File,
    Folder,
    Link,
}

#[derive(Debug, Clone, Default)]
pub struct Node {
    pub kind: Kind,
    /// The name under which it is prepared; `None`: a call made it, or it appeared without one.
    pub first: Option<SlotId>,
    /// One of its names now.
    pub slot: Option<SlotId>,
    /// Its size now, in bytes.
    pub size: u64,
    pub start: Start,
    /// Its size or data were changed by a call.
    pub is_changed: bool,
    /// What is before this, in bytes, has not been cut off since the start.
    pub kept: u64,
    pub written: Ranges,
    /// All that was written where the file may have had no blocks, in bytes.
    pub grown: u64,
    /// Of a directory.
    children: BTreeMap<Arc<str>, SlotId>,
}

/// A node at the start, as far as it is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Start {
    /// From the definition of an open file.
    pub is_defined: bool,
    pub size: u64,
    /// Of 512 bytes.
    pub blocks: u64,
    pub mode: u32,
    /// What must be data: it was read before it was written, or overwritten.
    pub data: Ranges,
    /// What of that was in the page cache when it was first read.
    pub cached: Ranges,
    /// Of a link: the length of its text.
    pub length: u64,
}

impl Node {
    /// Part of it had no blocks at the start.
    #[must_use]
    pub fn has_holes(&self) -> bool {
        self.start.blocks.saturating_mul(512) < self.start.size
    }

    /// `[from, to)` gets blocks, and is not read from the start's data any more.
    pub fn fills(&mut self, from: u64, to: u64) {
        // What it had at the start counts as prepared, unless it is not known where it had none.
        let had = match self.first {
            Some(_) if !self.has_holes() => self.start.size,
            _ => 0,
        };
        let new = self.written.missing(from.max(had), to.max(had));
        let new: u64 = new.iter().map(|(from, to)| to - from).sum();
        self.grown = self.grown.saturating_add(new);
        for (from, to) in self.start.data.missing(from, to) {
            self.written.add(from, to);
        }
    }

    /// Bytes that it needs: what is prepared, and what calls add.
    #[must_use]
    pub fn needed(&self) -> u64 {
        let start = if self.first.is_some() && matches!(self.kind, Kind::File | Kind::Unknown) {
            self.start.data.bytes().max(self.start.blocks.saturating_mul(512))
        } else {
            0
        };
        let all = start.saturating_add(self.grown);
        // Of a file with holes it is not known which of them are filled: all, at most.
        let end = self.written.iter().last().map_or(0, |(_, to)| to);
        all.min(start.max(self.start.size).max(end))
    }
}

impl Start {
    /// `[from, to)` is read before it is written.
    pub fn reads(&mut self, from: u64, to: u64, is_cached: bool) {
        if is_cached {
            for (from, to) in self.data.missing(from, to) {
                self.cached.add(from, to);
            }
        }
        self.data.add(from, to);
    }
}

/// What a name leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Unseen,
    Absent,
    Is(NodeId),
}

#[derive(Debug, Clone)]
pub struct Slot {
    pub parent: NodeId,
    pub name: Arc<str>,
    pub at_start: State,
    pub now: State,
    /// Only calls that follow links did not find it: it may be a link that leads nowhere.
    may_be_link: bool,
}

#[derive(Debug)]
pub struct Tree {
    pub nodes: Vec<Node>,
    pub slots: Vec<Slot>,
}

/// A path that was walked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Walk {
    /// The slots of its components, as far as the directories above exist.
    pub slots: Vec<SlotId>,
    /// The slot of the whole path; `None`: a directory above it does not exist.
    pub last: Option<SlotId>,
}

impl Default for Tree {
    fn default() -> Self {
        Self {
            nodes: vec![Node {
                kind: Kind::Folder,
                ..Node::default()
            }],
            slots: Vec::new(),
        }
    }
}

impl Tree {
    /// Walks a path that is not the root. `exists`: the directories above its last component exist. `passes`: what exists of
    /// them are directories.
    pub fn walk(&mut self, path: &[String], exists: bool, passes: bool) -> Walk {
        let mut walk = Walk::default();
        let mut folder = ROOT;
        for (index, name) in path.iter().enumerate() {
            let slot = self.slot_in(folder, name);
            walk.slots.push(slot);
            if index + 1 == path.len() {
                walk.last = Some(slot);
                break;
            }
            folder = match self.state(slot) {
                State::Is(node) => node,
                _ if exists => self.touch(slot, Kind::Folder),
                _ => break,
            };
            if passes && self.node(folder).kind == Kind::Unknown {
                self.node_mut(folder).kind = Kind::Folder;
            }
        }
        walk
    }

    /// Whether a path is known to lead to a directory now.
    #[must_use]
    pub fn is_folder(&self, path: &[String]) -> bool {
        let found = path.iter().try_fold(ROOT, |folder, name| {
            let slot = self.node(folder).children.get(name.as_str())?;
            match self.state(*slot) {
                State::Is(node) => Some(node),
                State::Unseen | State::Absent => None,
            }
        });
        found.is_some_and(|node| self.node(node).kind == Kind::Folder)
    }

    /// Takes a directory, and those above it, to have existed at the start, as far as it is not known that one did not.
    pub fn assume(&mut self, path: &[String], is_missing: impl Fn(&[String]) -> bool) {
        let mut folder = ROOT;
        for (index, name) in path.iter().enumerate() {
            if is_missing(&path[..=index]) {
                return;
            }
            let slot = self.slot_in(folder, name);
            folder = match self.at_start(slot) {
                State::Is(node) if self.node(node).kind == Kind::Folder => node,
                State::Unseen if self.state(slot) == State::Unseen => self.touch(slot, Kind::Folder),
                _ => return,
            };
        }
    }

    fn slot_in(&mut self, parent: NodeId, name: &str) -> SlotId {
        if let Some(known) = self.node(parent).children.get(name) {
            return *known;
        }
        let new = self.slots.len() as SlotId;
        let name: Arc<str> = name.into();
        self.slots.push(Slot {
            parent,
            name: Arc::clone(&name),
            at_start: State::Unseen,
            now: State::Unseen,
            may_be_link: false,
        });
        self.node_mut(parent).children.insert(name, new);
        new
    }

    #[must_use]
    pub fn node(&self, node: NodeId) -> &Node {
        &self.nodes[node as usize]
    }

    pub fn node_mut(&mut self, node: NodeId) -> &mut Node {
        &mut self.nodes[node as usize]
    }

    /// What a name leads to. In a directory that a call made, all that no call made is absent.
    #[must_use]
    pub fn state(&self, slot: SlotId) -> State {
        let slot = &self.slots[slot as usize];
        match slot.now {
            State::Unseen if !self.existed(slot.parent) => State::Absent,
            state => state,
        }
    }

    fn existed(&self, node: NodeId) -> bool {
        node == ROOT || self.node(node).first.is_some()
    }

    /// The node of a name that a call found. If no call had made it, it existed at the start; if it did not exist then,
    /// it appeared without a recorded call.
    pub fn touch(&mut self, slot: SlotId, kind: Kind) -> NodeId {
        self.slots[slot as usize].may_be_link = false;
        let node = match self.state(slot) {
            State::Is(node) => node,
            State::Unseen => {
                let node = self.new_node(kind);
                self.node_mut(node).first = Some(slot);
                self.slots[slot as usize].at_start = State::Is(node);
                self.lead(slot, node);
                node
            }
            State::Absent => {
                let node = self.new_node(kind);
                self.lead(slot, node);
                node
            }
        };
        let known = &mut self.node_mut(node).kind;
        if *known == Kind::Unknown {
            *known = kind;
        }
        node
    }

    /// The node of a name that a call found which does not follow it if it is a link. If only calls that do had looked, and
    /// found nothing, it was one that leads nowhere.
    pub fn touch_itself(&mut self, slot: SlotId, kind: Kind) -> NodeId {
        let entry = &mut self.slots[slot as usize];
        if !entry.may_be_link {
            return self.touch(slot, kind);
        }
        (entry.now, entry.at_start) = (State::Unseen, State::Unseen);
        self.touch(slot, Kind::Link)
    }

    /// A call did not find it. `follows`: it would have followed a link.
    pub fn miss(&mut self, slot: SlotId, follows: bool) {
        let slot = &mut self.slots[slot as usize];
        slot.may_be_link &= follows;
        if slot.now == State::Unseen {
            (slot.now, slot.at_start) = (State::Absent, State::Absent);
            slot.may_be_link = follows;
        }
    }

    pub fn new_node(&mut self, kind: Kind) -> NodeId {
        self.nodes.push(Node {
            kind,
            ..Node::default()
        });
        (self.nodes.len() - 1) as NodeId
    }

    fn lead(&mut self, slot: SlotId, node: NodeId) {
        self.slots[slot as usize].now = State::Is(node);
        self.node_mut(node).slot = Some(slot);
    }

    /// A call made the name lead to this node; `None`: it removed the name.
    pub fn set(&mut self, slot: SlotId, node: Option<NodeId>) {
        let entry = &mut self.slots[slot as usize];
        if entry.at_start == State::Unseen {
            entry.at_start = State::Absent;
        }
        let before = entry.now;
        (entry.now, entry.may_be_link) = (State::Absent, false);
        if let State::Is(before) = before
            && self.node(before).slot == Some(slot)
        {
            self.node_mut(before).slot = None;
        }
        if let Some(node) = node {
            self.lead(slot, node);
        }
    }

    /// Whether renaming a node into this directory would make it its own parent.
    #[must_use]
    pub fn is_within(&self, folder: NodeId, node: NodeId) -> bool {
        let mut at = folder;
        for _ in 0..DEEPEST {
            if at == node {
                return true;
            }
            match self.node(at).slot {
                Some(slot) => at = self.slots[slot as usize].parent,
                None => return false,
            }
        }
        true
    }

    /// The names below a directory that lead to something now.
    #[must_use]
    pub fn below(&self, folder: NodeId) -> Vec<SlotId> {
        let mut found = Vec::new();
        let mut left = vec![folder];
        while let Some(node) = left.pop() {
            for slot in self.node(node).children.values() {
                // Of a node with several names, one is its own.
                if let State::Is(child) = self.slots[*slot as usize].now {
                    found.push(*slot);
                    if self.node(child).slot == Some(*slot) && found.len() < self.slots.len() {
                        left.push(child);
                    }
                }
            }
        }
        found
    }

    /// A name that existed at the start, of a node with another name.
    pub fn link_at_start(&mut self, slot: SlotId, node: NodeId) {
        self.slots[slot as usize].at_start = State::Is(node);
        self.slots[slot as usize].now = State::Is(node);
    }

    /// A node that no name led to at the start gets this one for it, and keeps those that it has now.
    pub fn start_as(&mut self, slot: SlotId, node: NodeId) {
        self.slots[slot as usize].at_start = State::Is(node);
        self.node_mut(node).first = Some(slot);
    }

    /// What a name led to at the start.
    #[must_use]
    pub fn at_start(&self, slot: SlotId) -> State {
        self.slots[slot as usize].at_start
    }

    /// The first names of all nodes that existed at the start: directories before what is in them, and by name.
    #[must_use]
    pub fn firsts(&self) -> Vec<SlotId> {
        let mut found = Vec::new();
        let mut left = self.firsts_in(ROOT);
        while let Some(slot) = left.pop() {
            found.push(slot);
            if let State::Is(node) = self.at_start(slot) {
                left.extend(self.firsts_in(node));
            }
        }
        found
    }

    /// Those in a directory, the last one first.
    fn firsts_in(&self, folder: NodeId) -> Vec<SlotId> {
        let is_first = |slot: &SlotId| match self.at_start(*slot) {
            State::Is(node) => self.node(node).first == Some(*slot),
            State::Unseen | State::Absent => false,
        };
        let slots = self.node(folder).children.values().copied();
        let mut firsts: Vec<SlotId> = slots.filter(is_first).collect();
        let name = |slot: SlotId| &self.slots[slot as usize].name;
        firsts.sort_unstable_by(|a, b| name(*b).cmp(name(*a)));
        firsts
    }

    /// The path of a name now; `None`: a directory above it was removed.
    #[must_use]
    pub fn path_now(&self, slot: SlotId) -> Option<Components> {
        self.path(slot, |node| node.slot)
    }

    /// The path that a name had at the start; `None`: a directory above it did not exist.
    #[must_use]
    pub fn path_at_start(&self, slot: SlotId) -> Option<Components> {
        self.path(slot, |node| node.first)
    }

    fn path(&self, mut slot: SlotId, up: impl Fn(&Node) -> Option<SlotId>) -> Option<Components> {
        let mut names = Vec::new();
        while names.len() < DEEPEST {
            let Slot { parent, name, .. } = &self.slots[slot as usize];
            names.push(name.to_string());
            if *parent == ROOT {
                names.reverse();
                return Some(names);
            }
            slot = up(self.node(*parent))?;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::path::{canonical, joined};
    use super::*;

    fn at(tree: &mut Tree, path: &str) -> SlotId {
        tree.walk(&canonical(path).unwrap(), true, true).last.unwrap()
    }

    fn at_start(tree: &Tree) -> Vec<String> {
        let nodes = tree.nodes.iter().filter_map(|node| node.first);
        nodes.map(|slot| joined(&tree.path_at_start(slot).unwrap())).collect()
    }

    #[test]
    fn a_file_that_was_renamed_before_it_was_used_is_prepared_under_its_old_name() {
        let mut tree = Tree::default();
        let (from, to) = (at(&mut tree, "/srv/a"), at(&mut tree, "/srv/new/b"));
        let node = tree.touch(from, Kind::Unknown);
        tree.set(from, None);
        tree.set(to, Some(node));
        let again = at(&mut tree, "/srv/new/b");
        assert_eq!(tree.touch(again, Kind::File), node);
        assert_eq!(tree.node(node).kind, Kind::File);
        assert_eq!(at_start(&tree), ["/srv", "/srv/new", "/srv/a"]);
        assert_eq!(joined(&tree.path_now(to).unwrap()), "/srv/new/b");
    }

    #[test]
    fn what_is_below_a_renamed_directory_existed_below_its_old_name() {
        let mut tree = Tree::default();
        let old = at(&mut tree, "/old");
        let folder = tree.touch(old, Kind::Folder);
        let new = at(&mut tree, "/new");
        tree.set(old, None);
        tree.set(new, Some(folder));
        let file = at(&mut tree, "/new/file");
        tree.touch(file, Kind::File);
        assert_eq!(at_start(&tree), ["/old", "/old/file"]);
        assert_eq!(joined(&tree.path_now(file).unwrap()), "/new/file");
    }

    #[test]
    fn a_directory_that_a_call_made_is_empty() {
        let mut tree = Tree::default();
        let slot = at(&mut tree, "/made");
        let folder = tree.new_node(Kind::Folder);
        tree.set(slot, Some(folder));
        let file = at(&mut tree, "/made/file");
        assert_eq!(tree.state(file), State::Absent);
        // It appeared: no call made it, and it cannot have existed.
        tree.touch(file, Kind::File);
        assert!(at_start(&tree).is_empty());
    }

    #[test]
    fn a_call_that_finds_nothing_says_nothing_about_the_directories_above() {
        let mut tree = Tree::default();
        let walk = tree.walk(&canonical("/a/b/c").unwrap(), false, true);
        assert_eq!((walk.slots.len(), walk.last), (1, None));
        assert!(at_start(&tree).is_empty());
        let seen = at(&mut tree, "/a/x");
        tree.miss(seen, false);
        assert_eq!(tree.state(seen), State::Absent);
        assert_eq!(at_start(&tree), ["/a"]);
    }

    #[test]
    fn what_a_lookup_passes_is_a_directory() {
        let mut tree = Tree::default();
        let folder = at(&mut tree, "/etc/x");
        let node = tree.touch(folder, Kind::Unknown);
        let path = canonical("/etc/x/y").unwrap();
        // It failed since a component is no directory.
        tree.walk(&path, false, false);
        assert_eq!(tree.node(node).kind, Kind::Unknown);
        tree.walk(&path, false, true);
        assert_eq!(tree.node(node).kind, Kind::Folder);
    }

    #[test]
    fn directories_come_before_what_is_in_them() {
        let mut tree = Tree::default();
        for path in ["/b/x", "/a b", "/a/c", "/a"] {
            let slot = at(&mut tree, path);
            tree.touch(slot, Kind::Unknown);
        }
        let firsts = tree.firsts().into_iter();
        let paths: Vec<String> = firsts.map(|slot| joined(&tree.path_at_start(slot).unwrap())).collect();
        assert_eq!(paths, ["/a", "/a/c", "/a b", "/b", "/b/x"]);
    }

    #[test]
    fn a_directory_cannot_be_within_itself() {
        let mut tree = Tree::default();
        let slot = at(&mut tree, "/a");
        let folder = tree.touch(slot, Kind::Folder);
        let below = at(&mut tree, "/a/b");
        let inner = tree.touch(below, Kind::Folder);
        assert!(tree.is_within(inner, folder) && tree.is_within(folder, folder));
        assert!(!tree.is_within(folder, inner));
    }
}
