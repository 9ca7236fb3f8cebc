//! The names of pods and containers, from the files that kubelet and the container runtimes keep them in. No API is
//! asked: these files are there without credentials, and in a container that mounts them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde_json::Value;

use super::cgroup;
use crate::cause::Cause;
use crate::model::ids::By;
use crate::model::owner::{Owners, is_named};
use crate::model::report::group::Who;

/// Links by which log collectors find the containers of pods.
const CONTAINER_LOGS: &str = "/var/log/containers";
/// A directory for each pod.
const POD_LOGS: &str = "/var/log/pods";
/// Docker's, a directory for each container.
const DOCKER: &str = "/var/lib/docker/containers";
/// Podman's, of root.
const PODMAN: &str = "/var/lib/containers/storage/overlay-containers";
const ALL: [&str; 4] = [CONTAINER_LOGS, POD_LOGS, DOCKER, PODMAN];

/// The most bytes that are read of a runtime's file.
const LARGEST: u64 = 16 << 20;

/// What is known now.
#[derive(Debug, Default)]
pub struct KnownOwners {
    owners: Owners,
    /// When the directories changed last; all `None` before the first time.
    changed: [Option<SystemTime>; ALL.len()],
    /// A pod or a container had no name.
    lacks_name: bool,
}

/// Of many names, this many are in a message.
const NAMED: usize = 10;

impl KnownOwners {
    /// Reads the names if one of the directories has changed, or if one was missing.
    pub fn refresh(&mut self) {
        self.refresh_below(Path::new("/"));
    }

    /// The same with another root directory.
    fn refresh_below(&mut self, root: &Path) {
        let folders = ALL.map(|folder| root.join(folder.trim_start_matches('/')));
        let changed = folders
            .each_ref()
            .map(|folder| fs::metadata(folder).and_then(|found| found.modified()).ok());
        if changed != self.changed || self.lacks_name {
            self.changed = changed;
            self.lacks_name = false;
            let [logs, pods, docker, podman] = &folders;
            self.owners = read(logs, pods, docker, podman);
        }
    }

    /// Whose control group it is, by the names that were read; see [`Owners::who`].
    pub fn who(&mut self, by: By, path: String) -> Who {
        let who = self.owners.who(by, path);
        if let Who::Cgroup { path } = &who {
            // A runtime may have made the directory, and not yet written the name.
            self.lacks_name |= by.has_names_in_files() && is_named(path);
        }
        who
    }

    /// The path of the control group of a unit, a pod or a container, by its name in reports; of a unit, `.service` may
    /// be left out.
    ///
    /// # Errors
    /// If there is none, in one line with those that there are.
    pub fn find(&mut self, by: By, name: &str) -> Result<PathBuf, Cause> {
        find_in(&self.all(by)?, by, name).map(PathBuf::from)
    }

    /// The names of all units, pods or containers; none if they are not known.
    pub fn names(&mut self, by: By) -> BTreeSet<String> {
        let all = self.all(by).unwrap_or_default();
        all.into_iter().map(|(name, _)| name).collect()
    }

    /// Names and paths.
    fn all(&mut self, by: By) -> Result<Vec<(String, String)>, Cause> {
        self.refresh();
        let all = cgroup::below(Path::new("/"))?.into_values();
        let owned = all.filter_map(|path| match self.owners.who(by, path.clone()) {
            Who::Cgroup { .. } => None,
            who => Some((who.name(), path)),
        });
        Ok(owned.collect())
    }
}

/// Finds the topmost path of a name. `owned`: names and paths.
fn find_in<'a>(owned: &'a [(String, String)], by: By, name: &str) -> Result<&'a str, Cause> {
    let service = format!("{name}.service");
    let is_meant = |known: &str| known == name || by == By::Unit && known == service;
    let found = owned.iter().filter(|(known, _)| is_meant(known));
    if let Some((_, path)) = found.min_by_key(|(_, path)| path.len()) {
        return Ok(path);
    }
    let names: BTreeSet<&str> = owned.iter().map(|(known, _)| known.as_str()).collect();
    let mut list: Vec<&str> = names.iter().copied().take(NAMED).collect();
    if names.len() > NAMED {
        list.push("...");
    }
    let known = match list.as_slice() {
        [] => format!("this machine has no {} with a name", by.plural()),
        list => format!("this machine has {}", list.join(", ")),
    };
    Err(format!("no such {by} '{name}'; {known}").into())
}

/// What cannot be read has no names.
fn read(logs: &Path, pods: &Path, docker: &Path, podman: &Path) -> Owners {
    let mut owners = Owners::default();
    names_in(pods).for_each(|name| owners.add_pod_folder(&name));
    names_in(logs).for_each(|name| owners.add_container_log(&name));
    for id in names_in(docker) {
        if let Some(name) = json(&docker.join(&id).join("config.v2.json")).and_then(|config| docker_name(&config)) {
            owners.add_container(&id, &name, None);
        }
    }
    let containers = json(&podman.join("containers.json"));
    for (id, name) in containers.iter().flat_map(podman_names) {
        owners.add_container(id, name, None);
    }
    owners
}

fn names_in(folder: &Path) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok())
}

fn json(path: &Path) -> Option<Value> {
    if fs::metadata(path).ok()?.len() > LARGEST {
        return None;
    }
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// Its names begin with a slash.
fn docker_name(config: &Value) -> Option<String> {
    let name = config.get("Name")?.as_str()?.trim_start_matches('/');
    (!name.is_empty()).then(|| name.to_owned())
}

/// IDs and first names.
fn podman_names(containers: &Value) -> impl Iterator<Item = (&str, &str)> {
    let containers = containers.as_array().into_iter().flatten();
    containers.filter_map(|container| {
        let name = container.get("names")?.as_array()?.first()?.as_str()?;
        Some((container.get("id")?.as_str()?, name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_topmost_group_of_a_name_is_found() {
        let owned = [
            ("cron.service", "/system.slice/cron.service/worker"),
            ("cron.service", "/system.slice/cron.service"),
            ("user.slice", "/user.slice"),
        ];
        let owned = owned.map(|(name, path)| (name.to_owned(), path.to_owned()));
        for name in ["cron", "cron.service"] {
            assert_eq!(find_in(&owned, By::Unit, name).unwrap(), "/system.slice/cron.service");
        }
        assert_eq!(
            find_in(&owned, By::Unit, "ssh").unwrap_err().line,
            "no such unit 'ssh'; this machine has cron.service, user.slice"
        );
        assert_eq!(
            find_in(&[], By::Pod, "a/b").unwrap_err().line,
            "no such pod 'a/b'; this machine has no pods with a name"
        );
    }

    #[test]
    fn names_are_those_of_the_files() {
        let root = std::env::temp_dir().join(format!("owners-{}", std::process::id()));
        let below = |path: &str| root.join(path.trim_start_matches('/'));
        let (web, db, app) = ("a".repeat(64), "b".repeat(64), "c".repeat(64));
        let mut known = KnownOwners::default();
        let mut name = |by, path: &str| {
            known.refresh_below(&root);
            known.who(by, path.to_owned()).name()
        };
        assert_eq!(name(By::Container, &format!("/docker/{web}")), format!("/docker/{web}"));
        fs::create_dir_all(below(DOCKER).join(&web)).unwrap();
        fs::write(below(DOCKER).join(&web).join("config.v2.json"), r#"{"Name":"/web"}"#).unwrap();
        fs::create_dir_all(below(PODMAN)).unwrap();
        let podman = format!(r#"[{{"id":"{db}","names":["db","other"]}},{{"id":"{web}"}}]"#);
        fs::write(below(PODMAN).join("containers.json"), podman).unwrap();
        fs::create_dir_all(below(POD_LOGS).join("shop_app-1_0b2a4f6e-1c3d")).unwrap();
        fs::create_dir_all(below(CONTAINER_LOGS)).unwrap();
        fs::write(below(CONTAINER_LOGS).join(format!("app-1_shop_main-{app}.log")), "").unwrap();
        assert_eq!(name(By::Container, &format!("/docker/{web}")), "web");
        assert_eq!(name(By::Container, &format!("/machine.slice/libpod-{db}.scope")), "db");
        assert_eq!(name(By::Pod, "/kubepods/pod0b2a4f6e-1c3d"), "shop/app-1");
        assert_eq!(name(By::Container, &format!("/kubepods/pod1/{app}")), "shop/app-1/main");
        // A damaged file has no names.
        fs::create_dir_all(below(DOCKER).join(&db)).unwrap();
        fs::write(below(DOCKER).join(&db).join("config.v2.json"), "{").unwrap();
        assert_eq!(name(By::Container, &format!("/docker/{db}")), "db");
        fs::remove_dir_all(&root).unwrap();
    }
}
