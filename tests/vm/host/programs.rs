//! Programs of guests with another architecture than this machine: Debian's, unpacked with what they need.

use super::apt::{self, Apt};
use super::machine::Machine;
use super::packages::{atomically, command, of_architecture};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Part of the cached folder's name: increment it with every change of the packages.
const EDITION: u32 = 1;
/// One release for every kernel, like the other tools.
const SUITE: &str = "trixie";
const PACKAGES: [&str; 2] = ["busybox-static", "e2fsprogs"];
/// Where they have programs.
const FOLDERS: [&str; 4] = ["usr/sbin", "usr/bin", "sbin", "bin"];

/// A tree of unpacked packages.
pub struct Programs {
    tree: PathBuf,
    machine: &'static Machine,
}

impl Programs {
    /// From the cache, or else from the first mirror that has them; the preferred mirror's error is the one to report.
    pub fn get(machine: &'static Machine, cache: &Path) -> Result<Self, String> {
        let tree = of_architecture(cache, machine.architecture).join(format!("programs-{EDITION}"));
        if !tree.exists() {
            atomically(&tree, |folder| -> Result<PathBuf, String> {
                let mut first = None;
                for (number, mirror) in apt::mirrors()?.iter().enumerate() {
                    let apt = Apt::new(mirror, SUITE, machine.architecture, &folder.join(number.to_string()))?;
                    match apt.list().and_then(|_| apt.download(&PACKAGES)) {
                        Ok(packages) => return unpack(&packages, &folder.join("tree")),
                        Err(reason) => first = first.or(Some(reason)),
                    }
                }
                Err(first.unwrap_or_else(|| "there is no mirror".into()))
            })?;
        }
        Ok(Self { tree, machine })
    }

    /// The file of a program.
    pub fn find(&self, name: &str) -> Result<PathBuf, String> {
        let mut places = FOLDERS.iter().map(|folder| self.tree.join(folder).join(name));
        let found = places.find(|place| place.is_file());
        found.ok_or_else(|| format!("{name}: not in {}", self.tree.display()))
    }

    /// The shared libraries that the dynamic loader would load, and the loader itself, with their paths in the guest; none
    /// for a static program.
    pub fn libraries(&self, program: &Path) -> Result<Vec<(PathBuf, String)>, String> {
        let folders = ["usr/lib", "lib"].map(|folder| self.tree.join(folder).join(self.machine.libraries));
        let mut all: Vec<(PathBuf, String)> = Vec::new();
        let mut next = vec![program.to_path_buf()];
        while let Some(file) = next.pop() {
            let said = command(Command::new("readelf").arg("-d").arg(&file))?;
            for name in needed(&String::from_utf8_lossy(&said)) {
                let mut places = folders.iter().map(|folder| folder.join(name));
                let place = places.find(|place| place.is_file());
                let place = place.ok_or_else(|| format!("{}: needs {name}", file.display()))?;
                // The loader looks there as well, and programs look there for the loader.
                let entry = (place.clone(), format!("/lib/{name}"));
                if !all.contains(&entry) {
                    all.push(entry);
                    next.push(place);
                }
            }
        }
        Ok(all)
    }
}

fn unpack(packages: &[PathBuf], tree: &Path) -> Result<PathBuf, String> {
    for package in packages {
        command(Command::new("dpkg-deb").arg("-x").arg(package).arg(tree))?;
    }
    Ok(tree.into())
}

/// The names of libraries in the output of `readelf -d`, which ends such a line with `Shared library: [libc.so.6]`.
fn needed(said: &str) -> impl Iterator<Item = &str> {
    let needs = said.lines().filter(|line| line.contains("(NEEDED)"));
    needs.filter_map(|line| line.split_once('[')?.1.strip_suffix(']'))
}
