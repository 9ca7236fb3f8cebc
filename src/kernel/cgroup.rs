//! Control groups: which version is used, both for `--by cgroup` and for `--cgroup`.
//!
//! Version 2 wherever it is mounted, even beside version 1 (hybrid): every process is in it, by the paths that
//! `systemd-cgls` shows and that follow `0::` in `/proc/PID/cgroup`. Version 1, where a process may be in a different
//! group for each controller, only if version 2 is not mounted; `--cgroup` does not work there.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};

use crate::cause::Cause;

/// Where version 2 is mounted: alone, or beside version 1.
const MOUNTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];

/// Which of a process's groups is used, as defined in `bpf/abi.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hierarchy {
    /// Version 2.
    Unified,
    /// Version 1, the controller blkio.
    Io,
    /// Version 1, the controller memory.
    Memory,
}

impl Hierarchy {
    /// The hierarchy used on this machine.
    #[must_use]
    pub fn here() -> Self {
        // If it cannot be read, no version 1 hierarchy is known to be mounted.
        let controllers = fs::read_to_string("/proc/cgroups").unwrap_or_default();
        hierarchy(&controllers, is_unified_mounted())
    }
}

fn is_version_2(path: &Path) -> bool {
    statfs(path).is_ok_and(|stat| stat.filesystem_type() == CGROUP2_SUPER_MAGIC)
}

fn is_unified_mounted() -> bool {
    MOUNTS.into_iter().any(|mount| is_version_2(Path::new(mount)))
}

/// Decides from the lines of `/proc/cgroups`: name, number of the hierarchy, and so on. Controllers of version 2, and
/// those that are not mounted, have the number 0.
#[must_use]
pub fn hierarchy(controllers: &str, is_unified_mounted: bool) -> Hierarchy {
    let is_mounted = |name: &str| {
        controllers.lines().any(|line| {
            let mut words = line.split_whitespace();
            words.next() == Some(name) && words.next().is_some_and(|number| number != "0")
        })
    };
    let all = [("blkio", Hierarchy::Io), ("memory", Hierarchy::Memory)];
    let mounted = all.into_iter().find(|(name, _)| is_mounted(name));
    mounted
        .filter(|_| !is_unified_mounted)
        .map_or(Hierarchy::Unified, |(_, hierarchy)| hierarchy)
}

/// Opens the group of a path, either in the file system or as in `/proc/PID/cgroup`.
///
/// # Errors
/// One line: there is no such group, or the kernel side cannot compare it.
pub fn open(path: &Path) -> Result<OwnedFd, Cause> {
    let name = path.display();
    File::open(find(path)?)
        .map(OwnedFd::from)
        .map_err(|error| Cause::of(format_args!("cannot open '{name}'"), &error))
}

/// The group of a path and those below it: the kernel's numbers, and their paths from the root of the hierarchy.
///
/// # Errors
/// One line: there is no such group.
pub fn below(path: &Path) -> Result<BTreeMap<u64, String>, Cause> {
    let top = find(path)?;
    // The one in the other is the last.
    let is_root = |mount: &&&str| top.starts_with(mount) && is_version_2(Path::new(mount));
    let root = MOUNTS.iter().rev().find(is_root);
    let root = Path::new(root.unwrap_or(&MOUNTS[0])).to_owned();
    let mut groups = BTreeMap::new();
    let mut folders = vec![top];
    while let Some(folder) = folders.pop() {
        // One that is removed meanwhile has no number.
        let Ok(known) = fs::metadata(&folder) else { continue };
        let path = folder.strip_prefix(&root).unwrap_or(&folder);
        groups.insert(known.ino(), format!("/{}", path.display()));
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        let entries = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        folders.extend(entries.map(|entry| entry.path()));
    }
    Ok(groups)
}

/// The kernel's number of the group that a process is in; `None`: unknown, or of version 1.
#[must_use]
pub fn number_of(pid: u32) -> Option<u64> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let group = fs::metadata(find(Path::new(path)).ok()?).ok()?;
    Some(group.ino())
}

/// The path of a group from the root of the hierarchy, as its name says it, whether there is one or not.
#[must_use]
pub fn from_root(path: &Path) -> PathBuf {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let in_mount = MOUNTS.iter().rev().find_map(|mount| whole.strip_prefix(mount).ok());
    let path = in_mount.unwrap_or_else(|| path.strip_prefix("/").unwrap_or(path));
    Path::new("/").join(path)
}

/// The directory of a group.
fn find(path: &Path) -> Result<PathBuf, Cause> {
    let name = path.display();
    let below = |mount: &str| Path::new(mount).join(path.strip_prefix("/").unwrap_or(path));
    let candidates = std::iter::once(path.to_owned()).chain(MOUNTS.map(below));
    let mut groups = candidates.filter(|candidate| candidate.is_dir() && is_version_2(candidate));
    match groups.next() {
        Some(group) => Ok(group),
        None if is_unified_mounted() => {
            Err(format!("'{name}' is not a version 2 cgroup below /sys/fs/cgroup").into())
        }
        None => Err(format!(
            "--cgroup '{name}' needs cgroup version 2, which is not mounted at {}; --by cgroup shows groups of version 1",
            MOUNTS.join(" or ")
        )
        .into()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fuzz;

    fn lines(io: u32, memory: u32) -> String {
        format!("#subsys_name\thierarchy\tnum_cgroups\tenabled\nblkio\t{io}\t1\t1\nmemory\t{memory}\t1\t1\n")
    }

    #[test]
    fn version_2_is_meant_wherever_it_is_mounted() {
        for (io, memory, alone) in [
            (0, 0, Hierarchy::Unified),
            (3, 4, Hierarchy::Io),
            (0, 4, Hierarchy::Memory),
        ] {
            assert_eq!(hierarchy(&lines(io, memory), false), alone);
            assert_eq!(hierarchy(&lines(io, memory), true), Hierarchy::Unified);
        }
        assert_eq!(hierarchy("", false), Hierarchy::Unified);
    }

    #[test]
    fn what_is_no_group_is_refused() {
        let error = open(Path::new("/proc/self")).unwrap_err();
        assert!(error.line.contains("cgroup"), "{error}");
    }

    #[test]
    fn groups_below_one_have_their_numbers() {
        if !is_unified_mounted() {
            return;
        }
        let all = below(Path::new("/")).unwrap();
        assert!(all.values().any(|path| path == "/"), "{all:?}");
        assert!(below(Path::new("/no such group")).is_err());
    }

    proptest! {
        #![proptest_config(fuzz::config())]

        #[test]
        fn any_controllers_are_read(text in fuzz::text_like("#subsys_name\thierarchy\nblkio\t3\t1\t1\nmemory\t0\t1\t1\n")) {
            prop_assert_eq!(hierarchy(&text, true), Hierarchy::Unified);
            let _ = hierarchy(&text, false);
        }
    }
}
