//! Which records are looked at.

use std::collections::BTreeSet;

use super::ids::Layer;

/// Selected records; the default selects all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// Of these processes, as numbered in the initial PID namespace; empty: all.
    pub pids: BTreeSet<u32>,
    /// Include the descendants of `pids`, as far as records name their parents.
    pub follow: bool,
    /// Of threads of this name.
    pub comm: Option<String>,
    /// Of threads in these control groups, by the kernel's numbers; empty: all.
    pub cgroups: BTreeSet<u64>,
    /// On files of these paths.
    pub files: Vec<String>,
    /// On files below these directories. With `files`: on one or the other.
    pub folders: Vec<String>,
    /// On these disks and partitions, as major and minor numbers, and calls on files on them; empty: all.
    pub devices: BTreeSet<[u32; 2]>,
    /// Only calls (`syscall`) or only requests (`blk`); empty: both.
    pub layers: BTreeSet<Layer>,
}

impl Selection {
    /// Whether everything is selected.
    #[must_use]
    pub fn is_all(&self) -> bool {
        *self == Self::default()
    }

    /// Whether only some threads are.
    #[must_use]
    pub fn is_by_thread(&self) -> bool {
        !self.pids.is_empty() || self.comm.is_some() || !self.cgroups.is_empty()
    }

    /// Whether only some files are.
    #[must_use]
    pub fn is_by_file(&self) -> bool {
        !self.files.is_empty() || !self.folders.is_empty()
    }

    /// Whether a path is that of a selected file.
    #[must_use]
    pub fn has_path(&self, path: &str) -> bool {
        let is_below = |folder: &String| {
            let rest = path.strip_prefix(folder.trim_end_matches('/'));
            rest.is_some_and(|rest| rest.starts_with('/') && rest.len() > 1)
        };
        self.files.iter().any(|file| file == path) || self.folders.iter().any(is_below)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_selected_by_its_path_or_by_a_directory_above_it() {
        let selection = Selection {
            files: vec!["/srv/a".to_owned()],
            folders: vec!["/var/lib/db/".to_owned(), "/opt".to_owned()],
            ..Selection::default()
        };
        let selected = ["/srv/a", "/var/lib/db/x", "/var/lib/db/x/y", "/opt/z"];
        assert!(selected.iter().all(|path| selection.has_path(path)));
        let others = ["/srv/ab", "/srv", "/var/lib/db", "/var/lib/dbx", "opt/z", ""];
        assert!(!others.iter().any(|path| selection.has_path(path)));
        let folders = vec!["/".to_owned()];
        let all = Selection {
            folders,
            ..Selection::default()
        };
        assert!(all.has_path("/a") && !all.has_path("pipe:[7]"));
        assert!(!all.is_all() && Selection::default().is_all());
    }
}
