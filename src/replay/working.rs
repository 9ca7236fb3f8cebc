//! Working directories of processes: recorded, changed by calls, or inferred from files that were opened by a relative
//! path and whose whole path is known.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::path::{Components, canonical};

/// Generations of processes that are looked at.
const ANCESTORS: usize = 64;

#[derive(Debug, Clone, Default)]
pub struct Working {
    /// Directories by process and moment.
    known: HashMap<u32, BTreeMap<u64, Components>>,
    parents: HashMap<u32, u32>,
    /// Processes that changed theirs.
    changing: HashSet<u32>,
    /// The directory of all processes, if it is the only one.
    only: Option<Components>,
}

impl Working {
    pub fn parent(&mut self, pid: u32, parent: u32) {
        if parent != 0 && parent != pid {
            self.parents.insert(pid, parent);
        }
    }

    /// It is known to be in this directory.
    pub fn set(&mut self, pid: u32, at_ns: u64, folder: Components) {
        self.known.entry(pid).or_default().insert(at_ns, folder);
    }

    /// A call of the process will change it.
    pub fn changes(&mut self, pid: u32) {
        self.changing.insert(pid);
    }

    /// A file was opened by a relative path, and has this whole path. Returns whether that says where the process was.
    pub fn opened(&mut self, pid: u32, at_ns: u64, given: &str, path: &str) -> bool {
        let names: Vec<&str> = given
            .split('/')
            .filter(|name| !name.is_empty() && *name != ".")
            .collect();
        let Ok(mut folder) = canonical(path) else { return false };
        if names.is_empty() || names.contains(&"..") || folder.len() < names.len() {
            return false;
        }
        let below = folder.split_off(folder.len() - names.len());
        let is_there = below == names;
        if is_there {
            self.set(pid, at_ns, folder);
        }
        is_there
    }

    /// Call it when all is known that was not changed by calls.
    pub fn finish(&mut self) {
        let mut all = self.known.values().flat_map(BTreeMap::values);
        let first = all.next();
        if self.changing.is_empty() && all.all(|folder| Some(folder) == first) {
            self.only = first.cloned();
        }
    }

    /// The directory of a process at a moment; `None`: unknown.
    #[must_use]
    pub fn at(&self, pid: u32, at_ns: u64) -> Option<&Components> {
        let mut process = pid;
        for _ in 0..ANCESTORS {
            if let Some(known) = self.known.get(&process) {
                let before = known.range(..=at_ns).next_back();
                let after = known.iter().next().filter(|_| !self.changing.contains(&process));
                if let Some((_, folder)) = before.or(after) {
                    return Some(folder);
                }
            }
            // A child has the directory of its parent, unless it changed its own before.
            let Some(parent) = self.parents.get(&process).filter(|_| !self.changing.contains(&process)) else {
                break;
            };
            process = *parent;
        }
        self.only.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::super::path::joined;
    use super::*;

    fn at(working: &Working, pid: u32, at_ns: u64) -> Option<String> {
        working.at(pid, at_ns).map(|folder| joined(folder))
    }

    #[test]
    fn an_opened_file_says_where_its_process_is() {
        let mut working = Working::default();
        working.parent(8, 7);
        working.opened(7, 100, "./b/c", "/srv/a/b/c");
        working.opened(9, 100, "../c", "/srv/c");
        working.opened(9, 100, "x", "/srv/other");
        working.finish();
        for pid in [7, 8, 9] {
            assert_eq!(at(&working, pid, 5).as_deref(), Some("/srv/a"), "{pid}");
        }
    }

    #[test]
    fn a_change_holds_from_its_moment_on() {
        let mut working = Working::default();
        working.set(7, 0, canonical("/a").unwrap());
        working.changes(7);
        working.parent(8, 7);
        working.finish();
        working.set(7, 200, canonical("/b").unwrap());
        assert_eq!(at(&working, 7, 199).as_deref(), Some("/a"));
        assert_eq!(at(&working, 7, 200).as_deref(), Some("/b"));
        assert_eq!(at(&working, 8, 300).as_deref(), Some("/b"));
        assert_eq!(at(&working, 9, 300), None, "another process may be anywhere");
    }
}
