//! Recorded paths, and where a replay makes them.

/// A path of a recording whose components are names: absolute, without `.`, `..` and empty components.
pub type Components = Vec<String>;

/// Why a path has no components.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// It is not absolute.
    Relative,
    /// A component is `..` where none may be, or has a 0 byte.
    Damaged,
}

/// The components of a path that the kernel gave: it never has `..`.
///
/// # Errors
/// If it is no such path.
pub fn canonical(path: &str) -> Result<Components, Refused> {
    let rest = path.strip_prefix('/').ok_or(Refused::Relative)?;
    let names = rest.split('/').filter(|name| !name.is_empty());
    let is_bad = |name: &str| name == ".." || name == "." || name.contains('\0');
    if names.clone().any(is_bad) {
        return Err(Refused::Damaged);
    }
    Ok(names.map(str::to_owned).collect())
}

/// Appends a path as a program gave it, from `base` on. `..` leaves a directory, and never the root.
///
/// # Errors
/// If it has a 0 byte.
pub fn append(mut base: Components, path: &str) -> Result<Components, Refused> {
    if path.contains('\0') {
        return Err(Refused::Damaged);
    }
    if path.starts_with('/') {
        base.clear();
    }
    for name in path.split('/') {
        match name {
            "" | "." => {}
            ".." => drop(base.pop()),
            name => base.push(name.to_owned()),
        }
    }
    Ok(base)
}

/// `/srv/db`
#[must_use]
pub fn joined(components: &[String]) -> String {
    if components.is_empty() {
        return "/".to_owned();
    }
    components.iter().map(|name| format!("/{name}")).collect()
}

/// Directories below which paths are made: the first one is for all that no other takes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Roots {
    /// Recorded directories, in the order of the roots from the second one on.
    maps: Vec<Components>,
}

/// Where a path is made.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Spot {
    /// 0: the directory of the replay; from 1 on those that recorded directories are mapped to.
    pub root: u32,
    /// Below it, without a leading `/`; empty: the root itself.
    pub inside: String,
}

impl Roots {
    /// `maps`: recorded directories that have a root of their own.
    #[must_use]
    pub fn new(maps: Vec<Components>) -> Self {
        Self { maps }
    }

    #[must_use]
    pub fn spot(&self, path: &[String]) -> Spot {
        let fitting = self.maps.iter().enumerate().filter(|(_, old)| path.starts_with(old));
        let (root, taken) = fitting
            .max_by_key(|(_, old)| old.len())
            .map_or((0, 0), |(index, old)| (index as u32 + 1, old.len()));
        Spot {
            root,
            inside: path[taken..].join("/"),
        }
    }
}

/// File systems that keep no data of their own: what they show is the state of the machine.
const PSEUDO: &[&str] = &[
    "proc",
    "sysfs",
    "devtmpfs",
    "devpts",
    "cgroup",
    "cgroup2",
    "debugfs",
    "tracefs",
    "securityfs",
    "configfs",
    "bpf",
    "pstore",
    "efivarfs",
    "mqueue",
    "fusectl",
    "autofs",
    "binfmt_misc",
    "nsfs",
    "pipefs",
    "sockfs",
    "anon_inodefs",
    "rpc_pipefs",
    "selinuxfs",
];

/// Which paths are on file systems that keep data.
#[derive(Debug, Clone, Default)]
pub struct Mounts {
    points: Vec<(Components, bool)>,
}

impl Mounts {
    /// `mounts`: mount points with the types of their file systems; later ones hide earlier ones.
    pub fn new<'a>(mounts: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let mounts = mounts.filter_map(|(point, kind)| Some((canonical(point).ok()?, is_pseudo(kind))));
        let mut points: Vec<(Components, bool)> = mounts.collect();
        if points.is_empty() {
            // An unknown machine: these are the same on all.
            points = ["proc", "sys", "dev"].map(|name| (vec![name.to_owned()], true)).into();
        }
        Self { points }
    }

    /// Whether a path keeps data.
    #[must_use]
    pub fn keeps_data(&self, path: &[String]) -> bool {
        let above = self.points.iter().filter(|(point, _)| path.starts_with(point));
        above
            .max_by_key(|(point, _)| point.len())
            .is_none_or(|(_, pseudo)| !pseudo)
    }
}

/// Whether a file system keeps no data.
#[must_use]
pub fn is_pseudo(file_system: &str) -> bool {
    PSEUDO.contains(&file_system)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(path: &str) -> Components {
        canonical(path).unwrap()
    }

    #[test]
    fn only_absolute_paths_of_names_are_canonical() {
        assert_eq!(canonical("/srv//db/"), Ok(vec!["srv".to_owned(), "db".to_owned()]));
        assert_eq!(canonical("/"), Ok(Vec::new()));
        assert_eq!(canonical("srv"), Err(Refused::Relative));
        for bad in ["/srv/../etc", "/..", "/a/./b", "/a\0b"] {
            assert_eq!(canonical(bad), Err(Refused::Damaged), "{bad:?}");
        }
    }

    #[test]
    fn a_given_path_never_leaves_the_root() {
        let given = |path: &str| joined(&append(names("/srv/db"), path).unwrap());
        assert_eq!(given("../x/./y"), "/srv/x/y");
        assert_eq!(given("../../../../etc/passwd"), "/etc/passwd");
        assert_eq!(given("/tmp//a/"), "/tmp/a");
        assert_eq!(given(""), "/srv/db");
        assert_eq!(append(Vec::new(), "a\0b"), Err(Refused::Damaged));
    }

    #[test]
    fn the_longest_mapped_directory_takes_a_path() {
        let roots = Roots::new(vec![names("/srv"), names("/srv/db")]);
        let spot = |path: &str| {
            let spot = roots.spot(&names(path));
            (spot.root, spot.inside)
        };
        assert_eq!(spot("/srv/db/a/b"), (2, "a/b".to_owned()));
        assert_eq!(spot("/srv/dbx/a"), (1, "dbx/a".to_owned()));
        assert_eq!(spot("/etc/a"), (0, "etc/a".to_owned()));
        assert_eq!(spot("/srv/db"), (2, String::new()));
    }

    #[test]
    fn paths_of_the_machine_s_state_keep_no_data() {
        let mounts = Mounts::new(
            [
                ("/", "ext4"),
                ("/dev", "devtmpfs"),
                ("/dev/shm", "tmpfs"),
                ("/proc", "proc"),
            ]
            .into_iter(),
        );
        let keeps = |path: &str| mounts.keeps_data(&names(path));
        assert!(keeps("/srv/x") && keeps("/dev/shm/x") && keeps("/process"));
        assert!(!keeps("/proc/self/maps") && !keeps("/dev/null") && !keeps("/dev"));
        assert!(!Mounts::new(std::iter::empty()).keeps_data(&names("/sys/kernel")));
    }
}
