//! Disks created by checks, with known speed and features, and the kernel's own statistics of a disk.
//!
//! | disk | purpose |
//! | --- | --- |
//! | [`NullDisks`] | any delay, any queue, bad blocks, a write cache that knows FUA, zones ([`ZonedDisk`]) |
//! | [`LoopDisk`] | a write cache that does not know FUA, and the writing of zeroes |
//! | [`MappedDisk`], [`Mirror`] | disks over others, which have bios and no requests |
//! | [`NvmeDisk`] | commands that a program sends to the controller itself |
//! | [`ScsiDisk`] | a delay that another driver than `null_blk` makes |
//! | [`VirtioDisk`] | disks of the machine that only some checks may see |

use crate::guest::{Guest, Loaded, wait_for};
use crate::target::BLOCK;
use nix::mount::{MsFlags, mount};
use nix::{request_code_readwrite, request_code_write};
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a device may take to appear, to become idle or to be released.
const BOUND: Duration = Duration::from_secs(30);

/// Configures a directory of configfs or sysfs, setting by setting.
fn configure(folder: &Path, settings: &[(&str, &str)]) -> Result<(), String> {
    for (name, value) in settings {
        let file = folder.join(name);
        fs::write(&file, value).map_err(|e| format!("{}: {value}: {e}", file.display()))?;
    }
    Ok(())
}

/// Sets values in `/sys/block/DISK/queue`: `scheduler`, `nr_requests`, `iostats`.
pub fn set_queue(disk: &str, settings: &[(&str, &str)]) -> Result<(), String> {
    configure(&Path::new("/sys/block").join(disk).join("queue"), settings)
}

fn appears(device: &str) -> Result<(), String> {
    wait_for(device, BOUND, || Path::new(device).exists())
}

/// Prints a device that cannot be removed on the console: its module stays in use and makes the next check fail.
fn tell(what: &str, result: Result<(), String>) {
    if let Err(error) = result {
        eprintln!("{what}: {error}");
    }
}

/// `nullb0` and on: disks in memory with a configured delay.
pub struct NullDisks {
    folders: Vec<PathBuf>,
    // Dropped after the disks.
    _module: Loaded,
}

impl NullDisks {
    const CONFIG: &str = "/sys/kernel/config";
    pub const FIRST: &str = "/dev/nullb0";

    /// This many of them. By default they store what is written to them, and have 64 MB.
    pub fn new(guest: &Guest, count: usize, settings: &[(&str, &str)]) -> Result<Self, String> {
        let mut disks = Self {
            folders: Vec::new(),
            _module: guest.load("null_blk", "nr_devices=0")?,
        };
        // A mount left by an earlier check is fine.
        if !Path::new(Self::CONFIG).join("nullb").exists() {
            let kind = Some("configfs");
            mount(kind, Self::CONFIG, kind, MsFlags::empty(), None::<&str>).map_err(|e| format!("configfs: {e}"))?;
        }
        for _ in 0..count {
            disks.add(settings)?;
        }
        Ok(disks)
    }

    /// Adds one.
    pub fn add(&mut self, settings: &[(&str, &str)]) -> Result<(), String> {
        let name = format!("nullb{}", self.folders.len());
        let folder = Path::new(Self::CONFIG).join("nullb").join(&name);
        fs::create_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        self.folders.push(folder.clone());
        configure(&folder, &[("size", "64"), ("memory_backed", "1")])?;
        configure(&folder, settings)?;
        configure(&folder, &[("power", "1")])?;
        appears(&format!("/dev/{name}"))
    }

    /// One that completes every request after this delay, however many there are.
    pub fn slow(guest: &Guest, delay: Duration, settings: &[(&str, &str)]) -> Result<Self, String> {
        let delay = delay.as_nanos().to_string();
        let mut all = vec![("irqmode", "2"), ("completion_nsec", &*delay)];
        all.extend(settings);
        Self::new(guest, 1, &all)
    }

    /// Changes one of them while it is in use.
    pub fn set(&self, number: usize, settings: &[(&str, &str)]) -> Result<(), String> {
        configure(&self.folders[number], settings)
    }
}

impl Drop for NullDisks {
    fn drop(&mut self) {
        for folder in &self.folders {
            tell(
                &folder.display().to_string(),
                fs::remove_dir(folder).map_err(|e| e.to_string()),
            );
        }
    }
}

/// A file as a disk. Flushes reach it; for FUA writes the kernel adds a flush.
pub struct LoopDisk {
    /// `loop0`
    pub name: String,
    file: &'static str,
    disk: File,
    _module: Loaded,
}

// include/uapi/linux/loop.h
const LOOP_SET_FD: libc::c_ulong = 0x4c00;
const LOOP_CLR_FD: libc::c_ulong = 0x4c01;
const LOOP_CTL_GET_FREE: libc::c_ulong = 0x4c82;

impl LoopDisk {
    const SIZE: u64 = 64 << 20;

    /// In memory.
    pub fn new(guest: &Guest) -> Result<Self, String> {
        Self::of(guest, "/tmp/loop")
    }

    /// On this file, which is removed with it.
    pub fn of(guest: &Guest, path: &'static str) -> Result<Self, String> {
        let module = guest.load("loop", "")?;
        File::create(path)
            .and_then(|file| file.set_len(Self::SIZE))
            .map_err(|e| format!("{path}: {e}"))?;
        let file = open(path)?;
        appears("/dev/loop-control")?;
        let control = open("/dev/loop-control")?;
        let number = ioctl(&control, LOOP_CTL_GET_FREE, 0)?;
        let name = format!("loop{number}");
        let device = format!("/dev/{name}");
        appears(&device)?;
        let disk = open(&device)?;
        ioctl(&disk, LOOP_SET_FD, file.as_raw_fd().into())?;
        Ok(Self {
            name,
            file: path,
            disk,
            _module: module,
        })
    }

    pub fn device(&self) -> String {
        format!("/dev/{}", self.name)
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        tell(&self.name, ioctl(&self.disk, LOOP_CLR_FD, 0).map(drop));
        let _ = fs::remove_file(self.file);
    }
}

fn open(path: &str) -> Result<File, String> {
    let file = OpenOptions::new().read(true).write(true).open(path);
    file.map_err(|e| format!("{path}: {e}"))
}

fn ioctl(file: &File, request: libc::c_ulong, argument: i64) -> Result<i32, String> {
    // SAFETY: the argument is an integer, or an address that is valid for the call.
    match unsafe { libc::ioctl(file.as_raw_fd(), request, argument) } {
        -1 => Err(format!("ioctl {request:#x}: {}", std::io::Error::last_os_error())),
        answer => Ok(answer),
    }
}

/// A disk with zones that are written sequentially and reset as a whole.
pub struct ZonedDisk(File);

impl ZonedDisk {
    // include/uapi/linux/blkzoned.h
    pub const RESET: libc::c_ulong = request_code_write!(0x12, 131, 16);
    pub const FINISH: libc::c_ulong = request_code_write!(0x12, 136, 16);

    pub fn open(device: &str) -> Result<Self, String> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).custom_flags(libc::O_DIRECT).open(device);
        file.map(Self).map_err(|e| format!("{device}: {e}"))
    }

    /// Writes a block at this byte.
    pub fn write(&self, offset: u64) -> Result<(), String> {
        let memory = vec![7; 2 * BLOCK];
        let aligned = memory.as_ptr().align_offset(BLOCK);
        let written = self.0.write_all_at(&memory[aligned..][..BLOCK], offset);
        written.map_err(|e| format!("{offset}: {e}"))
    }

    /// Applies an operation to the zone that begins at this byte.
    pub fn manage(&self, what: libc::c_ulong, offset: u64, length: u64) -> Result<(), String> {
        let range = [offset / 512, length / 512];
        ioctl(&self.0, what, range.as_ptr() as i64).map(drop)
    }
}

/// A controller that accepts commands of programs.
pub struct NvmeDisk {
    file: File,
    namespace: u32,
}

impl NvmeDisk {
    // include/uapi/linux/nvme_ioctl.h
    const ID: libc::c_ulong = 0x4e40;
    const COMMAND: libc::c_ulong = request_code_readwrite!(b'N', 0x43, 72);

    pub fn open(device: &str) -> Result<Self, String> {
        let file = open(device)?;
        let namespace = ioctl(&file, Self::ID, 0)? as u32;
        Ok(Self { file, namespace })
    }

    /// The Flush command, opcode 0, which has no data.
    pub fn flush(&self) -> Result<(), String> {
        let mut command = [0_u32; 18];
        command[1] = self.namespace;
        match ioctl(&self.file, Self::COMMAND, command.as_mut_ptr() as i64)? {
            0 => Ok(()),
            status => Err(format!("the controller refuses a flush: {status:#x}")),
        }
    }
}

/// `dm-0` and on: disks made of others by the device mapper.
pub struct MappedDisk {
    /// `dm-0`
    pub name: String,
    /// Also its label.
    target: &'static str,
    control: File,
    _module: Loaded,
}

// include/uapi/linux/dm-ioctl.h
const DM_DEV_CREATE: u8 = 3;
const DM_DEV_REMOVE: u8 = 4;
/// Resumes the device, unless flags say otherwise.
const DM_DEV_SUSPEND: u8 = 6;
/// Suspends it.
const DM_SUSPEND_FLAG: u32 = 1 << 1;
/// Requests under way are kept, and not waited for.
const DM_NOFLUSH_FLAG: u32 = 1 << 11;
const DM_TABLE_LOAD: u8 = 9;
const DM_HEADER: usize = 312;
const DM_TARGET: usize = 40;

impl MappedDisk {
    /// A disk of this many sectors with one target: `linear` with `/dev/nullb0 0`, from this module.
    pub fn new(
        guest: &Guest,
        module: &str,
        target: &'static str,
        sectors: u64,
        parameters: &str,
    ) -> Result<Self, String> {
        let module = guest.load(module, "")?;
        let control = "/dev/mapper/control";
        appears(control)?;
        let mut disk = Self {
            name: String::new(),
            target,
            control: open(control)?,
            _module: module,
        };
        let number = disk.command(DM_DEV_CREATE, 0, None)?;
        disk.name = format!("dm-{}", number & 0xff);
        disk.reload(sectors, parameters)?;
        appears(&disk.device())?;
        Ok(disk)
    }

    pub fn device(&self) -> String {
        format!("/dev/{}", self.name)
    }

    /// Replaces the target by one with other parameters.
    pub fn reload(&self, sectors: u64, parameters: &str) -> Result<(), String> {
        self.command(DM_TABLE_LOAD, 0, Some((sectors, parameters)))?;
        self.resume()
    }

    /// From now on, requests wait until [`Self::resume`].
    pub fn suspend(&self) -> Result<(), String> {
        self.command(DM_DEV_SUSPEND, DM_SUSPEND_FLAG | DM_NOFLUSH_FLAG, None)
            .map(drop)
    }

    pub fn resume(&self) -> Result<(), String> {
        self.command(DM_DEV_SUSPEND, 0, None).map(drop)
    }

    /// Issues an ioctl to the device mapper, and returns the device number.
    fn command(&self, command: u8, flags: u32, table: Option<(u64, &str)>) -> Result<u64, String> {
        let mut message = vec![0_u8; DM_HEADER];
        let mut put = |at: usize, bytes: &[u8]| message[at..at + bytes.len()].copy_from_slice(bytes);
        // Version 4.0.0 of the interface.
        put(0, &4_u32.to_ne_bytes());
        put(16, &(DM_HEADER as u32).to_ne_bytes());
        put(20, &u32::from(table.is_some()).to_ne_bytes());
        put(28, &flags.to_ne_bytes());
        put(48, self.target.as_bytes());
        if let Some((sectors, parameters)) = table {
            let mut line = vec![0; DM_TARGET];
            line[8..16].copy_from_slice(&sectors.to_ne_bytes());
            line[24..24 + self.target.len()].copy_from_slice(self.target.as_bytes());
            message.extend(line);
            message.extend(parameters.as_bytes());
            message.push(0);
            message.resize(message.len().next_multiple_of(8), 0);
        }
        let size = message.len() as u32;
        message[12..16].copy_from_slice(&size.to_ne_bytes());
        let request = request_code_readwrite!(0xfd, command, DM_HEADER);
        ioctl(&self.control, request, message.as_mut_ptr() as i64).map_err(|e| format!("{}: {e}", self.target))?;
        let number = message[40..48].try_into().map_err(|_| "no number")?;
        Ok(u64::from_ne_bytes(number))
    }
}

impl Drop for MappedDisk {
    /// The last user may have closed it only a moment ago.
    fn drop(&mut self) {
        let removed = wait_for("the last user to end", BOUND, || {
            self.command(DM_DEV_REMOVE, 0, None).is_ok()
        });
        tell(&self.name, removed);
    }
}

/// `md0`: a mirror of other disks.
pub struct Mirror {
    _module: Loaded,
}

impl Mirror {
    pub const NAME: &str = "md0";
    pub const DEVICE: &str = "/dev/md0";
    const FOLDER: &str = "/sys/block/md0/md";

    /// Writes no metadata to the disks: neither a superblock nor a bitmap.
    pub fn new(guest: &Guest, disks: &[&str]) -> Result<Self, String> {
        let mirror = Self {
            _module: guest.load("raid1", "")?,
        };
        let folder = Path::new(Self::FOLDER);
        configure(Path::new("/sys/module/md_mod/parameters"), &[("new_array", Self::NAME)])?;
        wait_for(Self::FOLDER, BOUND, || folder.exists())?;
        let count = disks.len().to_string();
        configure(
            folder,
            &[("metadata_version", "none"), ("level", "raid1"), ("raid_disks", &count)],
        )?;
        let mut smallest = u64::MAX;
        for (place, disk) in disks.iter().enumerate() {
            let number = fs::metadata(disk).map_err(|e| format!("{disk}: {e}"))?.rdev();
            let number = format!("{}:{}", libc::major(number), libc::minor(number));
            configure(folder, &[("new_dev", &number)])?;
            let name = disk.rsplit('/').next().unwrap_or_default();
            let part = folder.join(format!("dev-{name}"));
            // In kilobytes, while sysfs has sectors.
            let size = Path::new("/sys/block").join(name).join("size");
            let size = fs::read_to_string(&size).map_err(|e| format!("{}: {e}", size.display()))?;
            let size = size.trim().parse().unwrap_or(0) / 2_u64;
            configure(&part, &[("slot", &place.to_string()), ("size", &size.to_string())])?;
            smallest = smallest.min(size);
        }
        configure(
            folder,
            &[
                ("component_size", &smallest.to_string()),
                ("resync_start", "none"),
                ("array_state", "active"),
            ],
        )?;
        appears(Self::DEVICE)?;
        // The first open makes the kernel scan for partitions.
        File::open(Self::DEVICE).map_err(|e| format!("{}: {e}", Self::DEVICE))?;
        Ok(mirror)
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        let folder = Path::new(Self::FOLDER);
        let mut last = Ok(());
        let _ = wait_for("the last user to end", BOUND, || {
            last = configure(folder, &[("array_state", "clear")]);
            last.is_ok()
        });
        let gone = wait_for("its end", BOUND, || !folder.exists());
        tell(Self::NAME, last.and(gone));
    }
}

/// `sda`: a disk in memory behind the SCSI layer, which completes requests after a delay.
pub struct ScsiDisk {
    /// `sda`
    pub name: String,
    // Dropped in this order.
    _module: Loaded,
    _driver: Loaded,
}

impl ScsiDisk {
    pub fn slow(guest: &Guest, delay: Duration) -> Result<Self, String> {
        Self::new(guest, &format!("ndelay={}", delay.as_nanos()))
    }

    /// With these module parameters, and 64 MB.
    pub fn new(guest: &Guest, parameters: &str) -> Result<Self, String> {
        let driver = guest.load("sd_mod", "")?;
        Ok(Self {
            _module: guest.load("scsi_debug", &format!("dev_size_mb=64 {parameters}"))?,
            _driver: driver,
            name: found("a SCSI disk", |name| name.starts_with("sd"))?,
        })
    }
}

/// A disk that the machine always has, but the kernel only while the driver is loaded.
pub struct VirtioDisk {
    /// `vda`
    pub name: String,
    _module: Loaded,
}

impl VirtioDisk {
    /// The disk with this serial number.
    pub fn new(guest: &Guest, serial: &str) -> Result<Self, String> {
        let is_it =
            |name: &str| fs::read_to_string(format!("/sys/block/{name}/serial")).is_ok_and(|is| is.trim() == serial);
        Ok(Self {
            _module: guest.load("virtio_blk", "")?,
            name: found(serial, is_it)?,
        })
    }
}

/// Waits for the disk whose name satisfies this, and for its device node.
fn found(what: &str, is_it: impl Fn(&str) -> bool) -> Result<String, String> {
    let mut name = None;
    wait_for(what, BOUND, || {
        let disks = fs::read_dir("/sys/block").into_iter().flatten().flatten();
        let mut names = disks.filter_map(|disk| disk.file_name().into_string().ok());
        name = names.find(|name| is_it(name) && Path::new("/dev").join(name).exists());
        name.is_some()
    })?;
    name.ok_or_else(|| format!("no {what}"))
}

/// The kernel's statistics of a disk or a partition, from `/proc/diskstats`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DiskStats {
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub written_bytes: u64,
    pub discards: u64,
    pub discarded_bytes: u64,
    pub flushes: u64,
}

impl DiskStats {
    /// Statistics of an idle disk. A request is completed a moment before it is counted, and the counters are read
    /// before the number in flight (block/genhd.c): the next reading includes everything that had completed by then.
    pub fn of(disk: &str) -> Result<Self, String> {
        wait_for("a disk at rest", BOUND, || numbers_of(disk).get(8) == Some(&0))
            .map_err(|e| format!("{disk}: {e}"))?;
        let numbers = numbers_of(disk);
        let number = |field: usize| numbers.get(field).copied().unwrap_or(0);
        let bytes = |field: usize| number(field) * 512;
        Ok(Self {
            reads: number(0),
            read_bytes: bytes(2),
            writes: number(4),
            written_bytes: bytes(6),
            discards: number(11),
            discarded_bytes: bytes(13),
            flushes: number(15),
        })
    }

    pub fn since(&self, start: &Self) -> Self {
        Self {
            reads: self.reads - start.reads,
            read_bytes: self.read_bytes - start.read_bytes,
            writes: self.writes - start.writes,
            written_bytes: self.written_bytes - start.written_bytes,
            discards: self.discards - start.discards,
            discarded_bytes: self.discarded_bytes - start.discarded_bytes,
            flushes: self.flushes - start.flushes,
        }
    }
}

/// The fields after the name of a disk.
fn numbers_of(disk: &str) -> Vec<u64> {
    let text = fs::read_to_string("/proc/diskstats").unwrap_or_default();
    let of_disk = |line: &&str| line.split_whitespace().nth(2) == Some(disk);
    let line = text.lines().find(of_disk).unwrap_or_default();
    line.split_whitespace()
        .skip(3)
        .map_while(|word| word.parse().ok())
        .collect()
}

/// Requests of a disk in flight, as counted by the kernel.
pub fn in_flight(disk: &str) -> u64 {
    numbers_of(disk).get(8).copied().unwrap_or(0)
}
