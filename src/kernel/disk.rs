//! Resolves the disk of `-d` to the device numbers that the kernel compares.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::sys::stat::{major, minor};

use crate::cause::Cause;
use crate::sys::text_of;

/// A disk or partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// The kernel's name for it, as in /proc/diskstats.
    pub name: String,
    /// The kernel's `dev_t` values (`MKDEV` of include/linux/kdev_t.h: major << 20 | minor) of the device itself, which
    /// is first, of its partitions, and of every device-mapper or md device on any of them: files on a logical volume
    /// carry the volume's number, not the disk's. Also the anonymous numbers of mounted btrfs file systems on any of
    /// them, which may span several disks.
    pub devices: Vec<u32>,
    /// Whether it is a partition of a disk.
    pub is_partition: bool,
    /// It has no requests of its own, like device-mapper and md devices, so its bios are timed.
    pub is_bio_based: bool,
    /// The kernel keeps no statistics for it, and so no start times of its requests (`queue/iostats` is 0).
    pub is_uncounted: bool,
}

/// Disks with requests, by name, and whether the kernel keeps no statistics for them (`queue/iostats` is 0).
#[must_use]
pub fn with_requests() -> Vec<(String, bool)> {
    let names = entries(Path::new("/sys/block")).filter(|path| has_requests(path));
    names
        .filter_map(|path| {
            let name = path.file_name()?.to_str()?.replace('!', "/");
            Some((name, is_uncounted(&path)))
        })
        .collect()
}

/// Whether a disk, given by its directory in sysfs, has hardware queues for requests.
pub(super) fn has_requests(directory: &Path) -> bool {
    directory.join("mq").exists()
}

fn is_uncounted(directory: &Path) -> bool {
    text_of(directory.join("queue/iostats")).is_ok_and(|text| text.trim() == "0")
}

/// Why the disk of `-d` cannot be used.
#[derive(Debug)]
pub enum Error {
    /// `known`: the disks of this machine.
    NoSuchDisk {
        name: String,
        known: Vec<String>,
    },
    NotABlockDevice {
        path: PathBuf,
    },
    Unreadable {
        path: PathBuf,
        error: io::Error,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchDisk { name, known } if known.is_empty() => {
                write!(formatter, "there is no disk '{name}', and no other; is /sys mounted?")
            }
            Self::NoSuchDisk { name, known } => {
                write!(
                    formatter,
                    "there is no disk '{name}'; this machine has {}",
                    known.join(", ")
                )
            }
            Self::NotABlockDevice { path } => write!(
                formatter,
                "'{}' is not a block device; -d takes a disk or a partition",
                path.display()
            ),
            Self::Unreadable { path, error } => write!(formatter, "cannot examine '{}': {error}", path.display()),
        }
    }
}

impl From<Error> for Cause {
    fn from(error: Error) -> Self {
        Self {
            line: error.to_string(),
            errno: match error {
                Error::Unreadable { error, .. } => error.raw_os_error(),
                Error::NoSuchDisk { .. } | Error::NotABlockDevice { .. } => None,
            },
        }
    }
}

impl std::error::Error for Error {}

impl Disk {
    /// Finds a disk by the kernel's name (`nvme0n1`, `nvme0n1p1`, `dm-0`), a device-mapper name, or any path of a block
    /// device, including links.
    pub fn find(name: &str) -> Result<Self, Error> {
        Machine::this().find(name)
    }
}

/// The disks of this machine, each followed by its partitions, with descriptions.
#[must_use]
pub fn names() -> Vec<(String, String)> {
    Machine::this().names()
}

/// Major and minor number of a block device.
type Number = (u64, u64);

/// The numbers of the block device at `path`, which may be a link; `None` for another kind of file.
fn block_number(path: &Path) -> io::Result<Option<Number>> {
    let metadata = fs::metadata(path)?;
    let number = metadata.rdev();
    Ok(metadata
        .file_type()
        .is_block_device()
        .then(|| (major(number), minor(number))))
}

/// The directories and mounts to search.
struct Machine<'a> {
    sys: &'a Path,
    dev: &'a Path,
    /// The lines of `/proc/self/mountinfo`, and of that of the first process: what is mounted outside of a container.
    mounts: String,
    block_number: fn(&Path) -> io::Result<Option<Number>>,
}

impl Machine<'_> {
    fn this() -> Self {
        Self {
            sys: Path::new("/sys"),
            dev: Path::new("/dev"),
            mounts: ["/proc/self/mountinfo", "/proc/1/mountinfo"]
                .map(|list| text_of(list).unwrap_or_default())
                .concat(),
            block_number,
        }
    }

    fn names(&self) -> Vec<(String, String)> {
        let mut names = Vec::new();
        for disk in self.disks() {
            let directory = self.sys.join("block").join(disk.replace('/', "!"));
            let partitions = entries(&directory).filter(|path| path.join("partition").exists());
            let partitions = partitions.filter_map(|path| Some(path.file_name()?.to_str()?.replace('!', "/")));
            let partitions: Vec<String> = partitions.collect();
            names.push((disk.clone(), "disk".to_owned()));
            names.extend(
                partitions
                    .into_iter()
                    .map(|name| (name, format!("partition of {disk}"))),
            );
        }
        names
    }

    fn find(&self, name: &str) -> Result<Disk, Error> {
        let no_such_disk = || Error::NoSuchDisk {
            name: name.to_owned(),
            known: self.disks(),
        };
        let directory = self.directory(name)?.ok_or_else(no_such_disk)?;
        let mut devices = Vec::new();
        add_devices(&directory, &mut devices);
        devices.extend(self.btrfs_on(&devices));
        let is_partition = directory.join("partition").exists();
        let whole = directory.parent().filter(|_| is_partition).unwrap_or(&directory);
        match directory.file_name() {
            // sysfs replaces the `/` of names such as cciss/c0d0 by `!`.
            Some(kernel_name) if !devices.is_empty() => Ok(Disk {
                name: kernel_name.to_string_lossy().replace('!', "/"),
                devices,
                is_partition,
                is_bio_based: !has_requests(whole),
                is_uncounted: is_uncounted(whole),
            }),
            _ => Err(no_such_disk()),
        }
    }

    /// The device's directory in sysfs. The kernel's names are tried first: they need no /dev, which a container may
    /// lack.
    fn directory(&self, name: &str) -> Result<Option<PathBuf>, Error> {
        let kernel_name = Path::new(name)
            .strip_prefix("/dev")
            .unwrap_or(Path::new(name))
            .to_string_lossy();
        let by_name = self.sys.join("class/block").join(kernel_name.replace('/', "!"));
        let is_path = name.contains('/');
        if !is_path && by_name.join("dev").exists() {
            return Ok(by_name.canonicalize().ok());
        }
        let paths = match is_path {
            true => vec![PathBuf::from(name)],
            false => vec![self.dev.join(name), self.dev.join("mapper").join(name)],
        };
        for path in paths {
            match (self.block_number)(&path) {
                Ok(Some((major, minor))) => {
                    let by_number = self.sys.join(format!("dev/block/{major}:{minor}"));
                    return Ok(by_number.canonicalize().ok());
                }
                Ok(None) if is_path => return Err(Error::NotABlockDevice { path }),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    return Err(Error::Unreadable { path, error });
                }
                Ok(None) | Err(_) => {}
            }
        }
        Ok(by_name.canonicalize().ok())
    }

    /// Device numbers of the btrfs file systems that include one of these devices.
    fn btrfs_on(&self, devices: &[u32]) -> Vec<u32> {
        let number_of = |device: PathBuf| parse_number(&text_of(device.join("dev")).ok()?);
        let members: Vec<Vec<u32>> = entries(&self.sys.join("fs/btrfs"))
            .map(|path| entries(&path.join("devices")).filter_map(number_of).collect())
            .collect();
        let is_on = |source: &str| {
            let source = self.number_of_source(Path::new(source))?;
            let all = members.iter().find(|members| members.contains(&source));
            let all = all.map_or(std::slice::from_ref(&source), Vec::as_slice);
            all.iter().any(|member| devices.contains(member)).then_some(())
        };
        let mounts = self.mounts.lines().filter_map(btrfs_mount);
        let found: BTreeSet<u32> = mounts
            .filter(|(_, source)| is_on(source).is_some())
            .map(|(number, _)| number)
            .collect();
        found.into_iter().collect()
    }

    /// The number of the device of a mount. A container may lack its node in /dev; sysfs has it by the kernel's name,
    /// or that of the device mapper.
    fn number_of_source(&self, source: &Path) -> Option<u32> {
        if let Ok(number) = (self.block_number)(source) {
            return number.and_then(|(major, minor)| parse_number(&format!("{major}:{minor}")));
        }
        let all = self.sys.join("class/block");
        let name = source.file_name()?.to_str()?;
        let is_mapped =
            |device: &PathBuf| text_of(device.join("dm/name")).is_ok_and(|mapped| mapped.trim_end() == name);
        let mapped = || entries(&all).find(is_mapped);
        let device = Some(all.join(name)).filter(|device| device.exists()).or_else(mapped)?;
        parse_number(&text_of(device.join("dev")).ok()?)
    }

    /// The disks to suggest for a wrong name: real disks first, then stacked ones, each sorted by number. Loop devices,
    /// RAM disks and compressed swap are only included if there is nothing else.
    fn disks(&self) -> Vec<String> {
        let mut disks: Vec<String> = entries(&self.sys.join("block"))
            .filter(|path| path.join("dev").exists())
            .filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()))
            .collect();
        let is_virtual = |name: &str| ["loop", "ram", "zram"].iter().any(|prefix| name.starts_with(prefix));
        if disks.iter().any(|name| !is_virtual(name)) {
            disks.retain(|name| !is_virtual(name));
        }
        let has_hardware = |name: &str| self.sys.join("block").join(name).join("device").exists();
        disks.sort_by_cached_key(|name| (Reverse(has_hardware(name)), natural_key(name)));
        disks.into_iter().map(|name| name.replace('!', "/")).collect()
    }
}

/// Adds the device of a sysfs directory, its partitions and the devices stacked on them, each once.
fn add_devices(directory: &Path, devices: &mut Vec<u32>) {
    let number = text_of(directory.join("dev")).ok().and_then(|text| parse_number(&text));
    let Some(number) = number.filter(|number| !devices.contains(number)) else {
        return;
    };
    devices.push(number);
    let partitions = entries(directory).filter(|path| path.join("partition").exists());
    for path in partitions.chain(entries(&directory.join("holders"))) {
        add_devices(&path, devices);
    }
}

/// The number and the device of a btrfs file system, from a line such as `31 28 0:35 /home /home rw - btrfs /dev/sda
/// rw`.
fn btrfs_mount(line: &str) -> Option<(u32, &str)> {
    let (mount, of) = line.split_once(" - ")?;
    let mut words = of.split(' ');
    words.next().filter(|kind| *kind == "btrfs")?;
    Some((parse_number(mount.split(' ').nth(2)?)?, words.next()?))
}

/// The entries of a directory in natural order, so that the result does not depend on the file system; none if it does
/// not exist.
fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let mut paths: Vec<PathBuf> = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .map(|e| e.path())
        .collect();
    paths.sort_by_cached_key(|path| path.file_name().map(|name| natural_key(&name.to_string_lossy())));
    paths.into_iter()
}

/// Parses a `dev_t` such as `259:0`, from a sysfs `dev` file or a line of `mountinfo`. The kernel has 12 bits of major
/// and 20 of minor.
pub(super) fn parse_number(text: &str) -> Option<u32> {
    let (major, minor) = text.trim_end().split_once(':')?;
    let (major, minor): (u32, u32) = (major.parse().ok()?, minor.parse().ok()?);
    (major < 1 << 12 && minor < 1 << 20).then_some(major << 20 | minor)
}

/// A sort key that orders numbers in names by value: nvme2n1 before nvme10n1.
fn natural_key(name: &str) -> Vec<(String, u64)> {
    let mut key = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let (text, tail) = rest.split_at(digits);
        let end = tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len());
        let (number, tail) = tail.split_at(end);
        key.push((text.to_owned(), number.parse().unwrap_or(0)));
        rest = tail;
    }
    key
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::fuzz;

    /// A sysfs and a /dev in a temporary directory. A device node is a file that contains its number.
    struct Tree(PathBuf);

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn number_in_file(path: &Path) -> io::Result<Option<Number>> {
        let text = fs::read_to_string(path)?;
        Ok(text
            .split_once(':')
            .map(|(major, minor)| (major.parse().unwrap(), minor.parse().unwrap())))
    }

    impl Tree {
        fn new() -> Self {
            static COUNT: AtomicU32 = AtomicU32::new(0);
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let root = std::env::temp_dir().join(format!("iostackbreakdown-disk-{}-{count}", std::process::id()));
            for directory in ["sys/block", "sys/class/block", "sys/dev/block", "dev/mapper"] {
                fs::create_dir_all(root.join(directory)).unwrap();
            }
            Self(root)
        }

        /// Two NVMe disks; an encrypted volume over the first one's second partition and the second disk; a striped
        /// array with a partition; and devices that are not suggested.
        fn server() -> Self {
            let tree = Self::new();
            tree.add("pci/nvme0n1", "259:0");
            tree.add("pci/nvme0n1/nvme0n1p1", "259:1");
            tree.add("pci/nvme0n1/nvme0n1p2", "259:2");
            tree.add("pci/nvme1n1", "259:3");
            tree.add("pci/nvme10n1", "259:10");
            tree.add("pci/cciss!c0d0", "104:0");
            tree.add("virtual/dm-0", "254:0");
            tree.add("virtual/dm-1", "254:1");
            tree.add("virtual/md0", "9:0");
            tree.add("virtual/md0/md0p1", "259:1048575");
            tree.add("virtual/loop0", "7:0");
            tree.add("virtual/zram0", "253:0");
            tree.hold("pci/nvme0n1/nvme0n1p2", "virtual/dm-0");
            tree.hold("pci/nvme1n1", "virtual/dm-0");
            tree.hold("virtual/dm-0", "virtual/dm-1");
            tree.hold("pci/nvme10n1", "virtual/md0");
            fs::write(tree.0.join("dev/null"), "").unwrap();
            for name in ["pci/nvme0n1", "pci/nvme1n1", "pci/nvme10n1"] {
                fs::create_dir(tree.device(name).join("device")).unwrap();
            }
            symlink("../dm-1", tree.0.join("dev/mapper/vg-root")).unwrap();
            tree
        }

        fn device(&self, path: &str) -> PathBuf {
            self.0.join("sys/devices").join(path)
        }

        fn add(&self, path: &str, number: &str) {
            let device = self.device(path);
            let name = device.file_name().unwrap().to_str().unwrap();
            fs::create_dir_all(device.join("holders")).unwrap();
            fs::write(device.join("dev"), format!("{number}\n")).unwrap();
            match path.matches('/').count() {
                1 => symlink(&device, self.0.join("sys/block").join(name)).unwrap(),
                _ => fs::write(device.join("partition"), "1\n").unwrap(),
            }
            symlink(&device, self.0.join("sys/class/block").join(name)).unwrap();
            symlink(&device, self.0.join("sys/dev/block").join(number)).unwrap();
            fs::write(self.0.join("dev").join(name), number).unwrap();
        }

        fn hold(&self, held: &str, holder: &str) {
            let holder = self.device(holder);
            symlink(
                &holder,
                self.device(held).join("holders").join(holder.file_name().unwrap()),
            )
            .unwrap();
        }

        fn find(&self, name: &str) -> Result<Disk, Error> {
            let (sys, dev) = (self.0.join("sys"), self.0.join("dev"));
            Machine {
                sys: &sys,
                dev: &dev,
                mounts: fs::read_to_string(self.0.join("mounts")).unwrap_or_default(),
                block_number: number_in_file,
            }
            .find(name)
        }

        /// The same for a path below this tree's /dev.
        fn find_path(&self, name: &str) -> Result<Disk, Error> {
            self.find(self.0.join("dev").join(name).to_str().unwrap())
        }

        fn numbers(&self, name: &str) -> Vec<(u32, u32)> {
            self.find(name)
                .unwrap()
                .devices
                .iter()
                .map(|device| (device >> 20, device & 0xf_ffff))
                .collect()
        }
    }

    #[test]
    fn a_disk_is_all_that_lives_on_it() {
        let tree = Tree::server();
        assert_eq!(
            tree.numbers("nvme0n1"),
            [(259, 0), (259, 1), (259, 2), (254, 0), (254, 1)]
        );
        assert_eq!(tree.numbers("nvme1n1"), [(259, 3), (254, 0), (254, 1)]);
        assert_eq!(tree.numbers("nvme10n1"), [(259, 10), (9, 0), (259, 0xf_ffff)]);
    }

    #[test]
    fn a_btrfs_lives_on_all_its_disks_under_a_number_of_its_own() {
        let tree = Tree::server();
        let members = tree.0.join("sys/fs/btrfs/0b7ad9e0/devices");
        fs::create_dir_all(&members).unwrap();
        for disk in ["nvme1n1", "nvme10n1"] {
            symlink(tree.device("pci").join(disk), members.join(disk)).unwrap();
        }
        let mount = |number: &str, kind: &str, source: &str| {
            let source = tree.0.join("dev").join(source);
            format!(
                "31 28 {number} /home /home rw shared:1 - {kind} {} rw,subvol=/home\n",
                source.display()
            )
        };
        let mounts = [
            mount("0:35", "btrfs", "nvme1n1"),
            mount("0:35", "btrfs", "nvme1n1"),
            // The kernel names only one of its disks.
            mount("0:36", "btrfs", "nvme0n1p1"),
            mount("0:37", "tmpfs", "nvme0n1p1"),
            mount("0:38", "btrfs", "gone"),
        ];
        fs::write(tree.0.join("mounts"), mounts.concat()).unwrap();
        assert_eq!(tree.numbers("nvme0n1p1"), [(259, 1), (0, 36)]);
        assert_eq!(tree.numbers("nvme1n1"), [(259, 3), (254, 0), (254, 1), (0, 35)]);
        assert_eq!(tree.numbers("nvme10n1"), [(259, 10), (9, 0), (259, 0xf_ffff), (0, 35)]);
        assert_eq!(tree.numbers("cciss!c0d0"), [(104, 0)]);
    }

    /// As in a container.
    #[test]
    fn a_btrfs_is_found_by_the_names_of_its_disks_where_dev_lacks_them() {
        let tree = Tree::server();
        fs::create_dir(tree.device("virtual/dm-1/dm")).unwrap();
        fs::write(tree.device("virtual/dm-1/dm/name"), "vg-root\n").unwrap();
        let mounts = "31 28 0:35 / / rw - btrfs /gone/nvme0n1p1 rw,subvol=/\n\
                      32 28 0:36 / /home rw - btrfs /gone/mapper/vg-root rw,subvol=/\n\
                      33 28 0:37 / /srv rw - btrfs /gone/nvme9n1 rw,subvol=/\n";
        fs::write(tree.0.join("mounts"), mounts).unwrap();
        assert_eq!(tree.numbers("nvme0n1p1"), [(259, 1), (0, 35)]);
        assert_eq!(tree.numbers("nvme1n1"), [(259, 3), (254, 0), (254, 1), (0, 36)]);
    }

    #[test]
    fn a_partition_or_a_stacked_device_is_no_more_than_itself() {
        let tree = Tree::server();
        assert_eq!(tree.numbers("nvme0n1p1"), [(259, 1)]);
        assert_eq!(tree.numbers("nvme0n1p2"), [(259, 2), (254, 0), (254, 1)]);
        assert_eq!(tree.numbers("dm-1"), [(254, 1)]);
        assert_eq!(tree.numbers("md0"), [(9, 0), (259, 0xf_ffff)]);
    }

    #[test]
    fn requests_and_statistics_are_the_whole_disks() {
        let tree = Tree::server();
        let facts = |name: &str| {
            let disk = tree.find(name).unwrap();
            (disk.is_partition, disk.is_bio_based, disk.is_uncounted)
        };
        fs::create_dir(tree.device("pci/nvme0n1/mq")).unwrap();
        fs::create_dir(tree.device("pci/nvme0n1/queue")).unwrap();
        fs::write(tree.device("pci/nvme0n1/queue/iostats"), "0\n").unwrap();
        assert_eq!(facts("nvme0n1"), (false, false, true));
        assert_eq!(facts("nvme0n1p1"), (true, false, true));
        fs::write(tree.device("pci/nvme0n1/queue/iostats"), "1\n").unwrap();
        assert_eq!(facts("nvme0n1p2"), (true, false, false));
        assert_eq!(facts("dm-1"), (false, true, false));
    }

    #[test]
    fn any_path_of_it_will_do() {
        let tree = Tree::server();
        symlink("nvme0n1p1", tree.0.join("dev/by-label")).unwrap();
        assert_eq!(tree.find_path("nvme0n1").unwrap(), tree.find("nvme0n1").unwrap());
        assert_eq!(tree.find_path("by-label").unwrap(), tree.find("nvme0n1p1").unwrap());
        assert_eq!(tree.find_path("mapper/vg-root").unwrap(), tree.find("dm-1").unwrap());
        assert_eq!(tree.find("vg-root").unwrap().name, "dm-1");
        assert_eq!(
            tree.find("/dev/nvme10n1").unwrap().name,
            "nvme10n1",
            "sysfs knows it where /dev lacks it"
        );
        assert_eq!(tree.find("/dev/cciss/c0d0").unwrap().name, "cciss/c0d0");
    }

    #[test]
    fn names_the_disks_there_are() {
        let tree = Tree::server();
        for name in [
            "nvme0n2",
            "",
            ".",
            "..",
            "/",
            "nvme0n1/",
            "../block/nvme0n1",
            "null",
            "\0",
        ] {
            let error = match tree.find(name) {
                Err(error @ Error::NoSuchDisk { .. }) => error.to_string(),
                Err(Error::NotABlockDevice { .. } | Error::Unreadable { .. }) if name.contains('/') => continue,
                other => panic!("{name}: {other:?}"),
            };
            assert_eq!(
                error,
                format!(
                    "there is no disk '{name}'; this machine has nvme0n1, nvme1n1, nvme10n1, cciss/c0d0, dm-0, dm-1, md0"
                )
            );
        }
    }

    #[test]
    fn names_loop_devices_only_where_there_is_nothing_else() {
        let tree = Tree::new();
        assert_eq!(
            tree.find("sda").unwrap_err().to_string(),
            "there is no disk 'sda', and no other; is /sys mounted?"
        );
        tree.add("virtual/loop10", "7:10");
        tree.add("virtual/loop9", "7:9");
        assert_eq!(
            tree.find("sda").unwrap_err().to_string(),
            "there is no disk 'sda'; this machine has loop9, loop10"
        );
    }

    #[test]
    fn a_path_must_be_a_block_device() {
        let tree = Tree::server();
        let error = tree.find_path("null").unwrap_err().to_string();
        assert!(
            error.ends_with("/dev/null' is not a block device; -d takes a disk or a partition"),
            "{error}"
        );
        assert_eq!(
            Disk::find("/dev/null").unwrap_err().to_string(),
            "'/dev/null' is not a block device; -d takes a disk or a partition"
        );
    }

    #[test]
    fn survives_a_strange_sysfs() {
        let tree = Tree::server();
        tree.hold("virtual/dm-1", "virtual/dm-0");
        assert_eq!(tree.numbers("dm-0"), [(254, 0), (254, 1)], "a loop of holders");
        for text in [
            "",
            "8",
            "8:",
            ":0",
            "4096:0",
            "8:1048576",
            "-8:0",
            "8:0:0",
            "8:99999999999",
        ] {
            fs::write(tree.device("virtual/dm-1").join("dev"), text).unwrap();
            assert_eq!(tree.numbers("dm-0"), [(254, 0)], "{text}");
            assert!(matches!(tree.find("dm-1"), Err(Error::NoSuchDisk { .. })), "{text}");
        }
    }

    proptest! {
        #![proptest_config(fuzz::config())]

        #[test]
        fn any_names_and_numbers_are_read(name in fuzz::text_like("nvme10n1p128"), number in fuzz::text_like("259:1048575\n")) {
            let letters: usize = natural_key(&name).iter().map(|(text, _)| text.len()).sum();
            prop_assert!(letters <= name.len());
            let _ = parse_number(&number);
        }
    }

    #[test]
    fn any_name_is_looked_for() {
        let tree = Tree::new();
        let mut runner = proptest::test_runner::TestRunner::new(fuzz::config());
        let names = fuzz::text_like("../block/nvme0n1");
        let found = runner.run(&names, |name| {
            let _ = tree.find(&name);
            Ok(())
        });
        assert_eq!(found, Ok(()));
    }
}
