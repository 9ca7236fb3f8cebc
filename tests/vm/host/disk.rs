//! The scratch NVMe disk: one image for every kernel and every run. Guests write to temporary copies of it.

use super::packages::{atomically, command};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

const MIB: u64 = 1 << 20;
/// Part of the cached image's name: increment it with every change of the image.
const EDITION: u32 = 1;
/// 300 MiB is the minimum for `mkfs.xfs`.
const EXT4: Partition = Partition {
    start: MIB,
    size: 512 * MIB,
};
const XFS: Partition = Partition {
    start: 513 * MIB,
    size: 320 * MIB,
};
const DISK_SIZE: u64 = 834 * MIB;

/// Features are listed one by one, since defaults of current tools may be more than 5.10 can mount. Tables are
/// initialised at once: a kernel thread that does so later would disturb counts.
pub const EXT4_OPTIONS: [&str; 6] = [
    "-q",
    "-F",
    "-O",
    "none,has_journal,ext_attr,resize_inode,dir_index,filetype,extent,64bit,flex_bg,sparse_super,large_file,huge_file,\
     dir_nlink,extra_isize,metadata_csum",
    "-E",
    "lazy_itable_init=0,lazy_journal_init=0",
];
/// The same for XFS. `mkfs.xfs` refuses names that it does not know, and needs all that it does: the first line that it
/// accepts is the right one. (xfsprogs 6.1 refuses its own `lts_5.10.conf`.)
const XFS_OPTIONS: [&[&str]; 3] = [
    &[
        "-m",
        "bigtime=0,inobtcount=0,rmapbt=0",
        "-i",
        "nrext64=0,exchange=0",
        "-n",
        "parent=0",
    ],
    &["-m", "bigtime=0,inobtcount=0,rmapbt=0", "-i", "nrext64=0"],
    &["-m", "rmapbt=0"],
];

struct Partition {
    start: u64,
    size: u64,
}

/// The image, created unless an earlier run has done so.
pub fn scratch(cache: &Path) -> Result<PathBuf, String> {
    let image = cache.join(format!("scratch-{EDITION}.img"));
    if !image.exists() {
        atomically(&image, |folder| -> Result<PathBuf, String> {
            let ext4 = folder.join("ext4");
            empty(&ext4, EXT4.size)?;
            command(Command::new("mkfs.ext4").args(EXT4_OPTIONS).arg(&ext4))?;
            let xfs = folder.join("xfs");
            empty(&xfs, XFS.size)?;
            make_xfs(&xfs)?;
            let disk = folder.join("disk");
            assemble(&disk, &[(&EXT4, &ext4), (&XFS, &xfs)]).map_err(|e| format!("{}: {e}", disk.display()))?;
            Ok(disk)
        })?;
    }
    Ok(image)
}

fn empty(path: &Path, size: u64) -> Result<(), String> {
    File::create(path)
        .and_then(|file| file.set_len(size))
        .map_err(|e| format!("{}: {e}", path.display()))
}

fn make_xfs(path: &Path) -> Result<(), String> {
    let mut last = Ok(Vec::new());
    for options in XFS_OPTIONS {
        last = command(Command::new("mkfs.xfs").args(["-q", "-f"]).args(options).arg(path));
        if last.is_ok() {
            break;
        }
    }
    last.map(drop)
}

fn assemble(disk: &Path, partitions: &[(&Partition, &Path)]) -> std::io::Result<()> {
    let mut out = File::create(disk)?;
    out.set_len(DISK_SIZE)?;
    out.write_all(&boot_record(partitions.iter().map(|(partition, _)| *partition)))?;
    let mut chunk = vec![0; 64 << 10];
    for (partition, content) in partitions {
        let mut content = File::open(content)?;
        let mut at = partition.start;
        loop {
            let n = content.read(&mut chunk)?;
            if n == 0 {
                break;
            }
            // Zeroes are left as holes.
            if chunk[..n].iter().any(|byte| *byte != 0) {
                out.seek(SeekFrom::Start(at))?;
                out.write_all(&chunk[..n])?;
            }
            at += n as u64;
        }
    }
    Ok(())
}

/// A PC partition table: four entries from byte 446 on, then the signature.
fn boot_record<'a>(partitions: impl Iterator<Item = &'a Partition>) -> [u8; 512] {
    const SECTOR: u64 = 512;
    const LINUX: u8 = 0x83;
    /// "Too large for cylinders and heads": only the sector numbers are used.
    const NO_GEOMETRY: [u8; 3] = [0xfe, 0xff, 0xff];
    let mut record = [0; 512];
    for (i, partition) in partitions.enumerate() {
        let entry = &mut record[446 + 16 * i..][..16];
        entry[1..4].copy_from_slice(&NO_GEOMETRY);
        entry[4] = LINUX;
        entry[5..8].copy_from_slice(&NO_GEOMETRY);
        entry[8..12].copy_from_slice(&((partition.start / SECTOR) as u32).to_le_bytes());
        entry[12..16].copy_from_slice(&((partition.size / SECTOR) as u32).to_le_bytes());
    }
    record[510..].copy_from_slice(&[0x55, 0xaa]);
    record
}
