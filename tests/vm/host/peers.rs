//! Other tools for comparison, as packaged by Debian: unpacked with their dependencies on a disk of their own.

use super::apt::{self, Apt, Mirror};
use super::disk;
use super::packages::{atomically, command, of_architecture};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Part of the cached image's name: increment it with every change of the image.
const EDITION: u32 = 3;
/// One release for every kernel: the tools depend on the kernel's interface, not on its version.
const SUITE: &str = "trixie";
/// `coreutils` is for `stdbuf`, without which a program's output is only visible when it ends.
const PACKAGES: [&str; 8] = [
    "fio",
    "blktrace",
    "strace",
    "libbpf-tools",
    "coreutils",
    "sqlite3",
    "btrfs-progs",
    "f2fs-tools",
];
/// Mount points for directories of the guest.
const FOLDERS: [&str; 5] = ["dev", "proc", "sys", "tmp", "mnt"];
/// Directories that the packages expect on an installed system.
const MERGED: [&str; 4] = ["bin", "sbin", "lib", "lib64"];
/// Most of it is a hole.
const SIZE: &str = "512M";

/// The image for guests of an architecture, created unless an earlier run has done so.
pub fn image(architecture: &str, cache: &Path, note: &dyn Fn(&str)) -> Result<PathBuf, String> {
    let image = of_architecture(cache, architecture).join(format!("peers-{EDITION}.img"));
    if !image.exists() {
        note(&format!("getting {}, and what they need", PACKAGES.join(", ")));
        atomically(&image, |folder| -> Result<PathBuf, String> {
            let tree = folder.join("tree");
            make_folders(&tree)?;
            for package in download(architecture, &folder.join("apt"), &apt::mirrors()?)? {
                command(Command::new("dpkg-deb").arg("-x").arg(&package).arg(&tree))?;
            }
            let made = folder.join("image");
            let mut mkfs = Command::new("mkfs.ext4");
            command(mkfs.args(disk::EXT4_OPTIONS).arg("-d").args([&tree, &made]).arg(SIZE))?;
            Ok(made)
        })?;
    }
    Ok(image)
}

fn make_folders(tree: &Path) -> Result<(), String> {
    for folder in FOLDERS {
        make_folder(&tree.join(folder))?;
    }
    for name in MERGED {
        make_folder(&tree.join("usr").join(name))?;
        let link = tree.join(name);
        std::os::unix::fs::symlink(format!("usr/{name}"), &link).map_err(|e| format!("{}: {e}", link.display()))?;
    }
    Ok(())
}

fn make_folder(folder: &Path) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))
}

/// From the first mirror that has all of them; the preferred mirror's error is the one to report.
fn download(architecture: &str, folder: &Path, mirrors: &[Mirror]) -> Result<Vec<PathBuf>, String> {
    let mut first = None;
    for (number, mirror) in mirrors.iter().enumerate() {
        match download_from(mirror, architecture, &folder.join(number.to_string())) {
            Ok(packages) => return Ok(packages),
            Err(reason) => first = first.or(Some(reason)),
        }
    }
    Err(first.unwrap_or_else(|| "there is no mirror".into()))
}

/// Apt resolves and downloads dependencies as for a machine without installed packages.
fn download_from(mirror: &Mirror, architecture: &str, folder: &Path) -> Result<Vec<PathBuf>, String> {
    let apt = Apt::new(mirror, SUITE, architecture, folder)?;
    apt.list()?;
    apt.download(&PACKAGES)
}
