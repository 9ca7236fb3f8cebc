//! `--names`: how names of files and processes are written.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use crate::model::owner::Pod;
use crate::model::record::{Paths, Records};
use crate::model::recording::{Meta, Names};
use crate::model::report::group::Who;
use crate::model::report::slow::{CallPath, PathKind};
use crate::model::snapshot::Snapshot;

/// Replaces names, for one recording.
#[derive(Debug, Default)]
pub struct Namer {
    names: Names,
    /// A key that is in no file: the same name has the same hash in one recording only.
    key: RandomState,
}

impl Namer {
    #[must_use]
    pub fn new(names: Names) -> Self {
        Self {
            names,
            key: RandomState::new(),
        }
    }

    /// In records.
    pub fn records(&self, records: &mut Records) {
        if self.names == Names::Full {
            return;
        }
        for paths in records.calls.iter_mut().filter_map(|call| call.paths.as_deref_mut()) {
            let Paths { first, second } = paths;
            for path in [first, second].into_iter().flatten() {
                path.text = self.path(&path.text);
            }
        }
        for file in &mut records.files {
            self.call_path(&mut file.path);
        }
        for folder in &mut records.folders {
            folder.path = self.path(&folder.path);
        }
        for thread in &mut records.threads {
            thread.exe = self.path(&thread.exe);
            thread.command.clear();
            if self.names == Names::None {
                thread.comm.clear();
            }
        }
    }

    /// In the names of groups.
    pub fn snapshot(&self, snapshot: &mut Snapshot) {
        let Some(groups) = &mut snapshot.groups else { return };
        if self.names == Names::Full {
            return;
        }
        for who in Arc::make_mut(&mut groups.who).values_mut() {
            match who {
                Who::Process { comm, .. } | Who::Thread { comm, .. } | Who::Comm { comm }
                    if self.names == Names::None =>
                {
                    comm.clear();
                }
                Who::File { path, .. } | Who::Fd { path, .. } => self.call_path(path),
                Who::Cgroup { path } => *path = self.path(path),
                Who::Unit { name } => *name = self.path(name),
                Who::Pod(pod) => self.pod(pod),
                Who::Container(container) => {
                    container.name = self.path(&container.name);
                    if let Some(pod) = &mut container.pod {
                        self.pod(pod);
                    }
                }
                Who::Process { .. }
                | Who::Thread { .. }
                | Who::Comm { .. }
                | Who::Disk { .. }
                | Who::User { .. }
                | Who::Unknown(_)
                | Who::NoRecord => {}
            }
        }
    }

    /// In the description of the run.
    pub fn meta(&self, meta: &mut Meta) {
        meta.names = self.names;
        if self.names == Names::Full {
            return;
        }
        meta.command_line.clear();
        meta.disks.iter_mut().for_each(|disk| disk.mapped.clear());
        for mount in &mut meta.mounts {
            mount.root = self.path(&mount.root);
            mount.point = self.path(&mount.point);
        }
        let filter = &mut meta.run.filter;
        meta.run.subject = String::new();
        filter.file = filter.file.as_deref().map(|path| self.path(path));
        filter.cgroup = filter.cgroup.as_deref().map(|path| self.path(path));
        filter.command = filter.command.as_ref().map(|_| Vec::new());
    }

    fn pod(&self, pod: &mut Pod) {
        pod.namespace = self.path(&pod.namespace);
        pod.name = self.path(&pod.name);
    }

    fn call_path(&self, path: &mut Option<CallPath>) {
        match (self.names, path.as_mut()) {
            (Names::None, _) => *path = None,
            (Names::Hash, Some(path)) if path.kind != PathKind::Alone => path.text = self.path(&path.text),
            (Names::Hash, Some(path)) => path.text = self.component(&path.text),
            _ => {}
        }
    }

    /// A path, component by component: the tree stays.
    fn path(&self, path: &str) -> String {
        match self.names {
            Names::Full => path.to_owned(),
            Names::None => String::new(),
            Names::Hash => {
                let parts: Vec<String> = path.split('/').map(|part| self.component(part)).collect();
                parts.join("/")
            }
        }
    }

    fn component(&self, part: &str) -> String {
        match part {
            // These lead through the tree.
            "" | "." | ".." => part.to_owned(),
            part => format!("{:08x}", self.key.hash_one(part) as u32),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::record::{Folder, Thread};

    fn hidden(names: Names) -> Records {
        let mut records = Records {
            folders: ["/srv/db/x", "/srv/db/../y", "x"]
                .map(|path| Folder {
                    path: path.to_owned(),
                    ..Folder::default()
                })
                .to_vec(),
            threads: vec![Thread {
                comm: "postgres".to_owned(),
                command: "postgres -D /srv/db".to_owned(),
                ..Thread::default()
            }],
            ..Records::default()
        };
        Namer::new(names).records(&mut records);
        records
    }

    #[test]
    fn what_people_call_a_disk_is_hidden_and_what_the_kernel_calls_it_is_not() {
        let disk = crate::model::recording::Disk {
            name: "dm-0".to_owned(),
            mapped: "vg-salaries".to_owned(),
            ..Default::default()
        };
        for (names, mapped) in [(Names::Full, "vg-salaries"), (Names::Hash, ""), (Names::None, "")] {
            let mut meta = Meta {
                disks: vec![disk.clone()],
                ..Meta::default()
            };
            Namer::new(names).meta(&mut meta);
            assert_eq!((&*meta.disks[0].name, &*meta.disks[0].mapped), ("dm-0", mapped));
        }
    }

    #[test]
    fn a_hash_keeps_the_tree_and_nothing_of_the_names() {
        let records = hidden(Names::Hash);
        let paths: Vec<Vec<&str>> = records
            .folders
            .iter()
            .map(|folder| folder.path.split('/').collect())
            .collect();
        assert_eq!(paths[0].len(), 4);
        assert_eq!(paths[0][..3], paths[1][..3], "the same directories");
        assert_eq!(paths[1][3], "..");
        assert_eq!(paths[2][0], paths[0][3], "the same name anywhere");
        assert!(
            paths[0][1..]
                .iter()
                .all(|part| part.len() == 8 && part.bytes().all(|b| b.is_ascii_hexdigit()))
        );
        assert_eq!(
            (&*records.threads[0].comm, &*records.threads[0].command),
            ("postgres", "")
        );
        // Another recording has another key.
        assert_ne!(hidden(Names::Hash).folders[0].path, records.folders[0].path);
    }

    #[test]
    fn none_keeps_numbers_only() {
        let records = hidden(Names::None);
        assert!(records.folders.iter().all(|folder| folder.path.is_empty()));
        assert_eq!((&*records.threads[0].comm, &*records.threads[0].command), ("", ""));
        assert_eq!(hidden(Names::Full).folders[0].path, "/srv/db/x");
    }
}
