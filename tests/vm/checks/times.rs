//! Times, not only counts: reads of a disk with a delay of 50 ms, also measured by the process itself.

use super::exact::{Op, Traced, trace};
use crate::disks::NullDisks;
use crate::guest::{Check, Guest, run};
use crate::target::{BLOCK, Reads};
use nix::mount::{MsFlags, mount, umount};
use std::fs;
use std::process::Command;
use std::time::Duration;

pub const CHECKS: &[Check] = &[
    Check::new("times: every direct read takes the disk's 50 ms", direct)
        .when(|guest| guest.tool().is_some())
        .timed(),
    Check::new("times: cached reads do not take the disk's time", cached)
        .when(|guest| guest.tool().is_some())
        .timed(),
];

const DELAY: Duration = Duration::from_millis(50);
/// The maximum overhead of the disk and an idle machine.
const BOUND: Duration = Duration::from_millis(60);
const READS: u32 = 20;
const DISK: &str = "nullb0";
const LAYERS: [&str; 2] = ["vfs", "ext4"];
const MINUTE: Duration = Duration::from_secs(60);

/// An ext4 file system in memory with a delay for every request, and a file of one block.
pub struct SlowDisk {
    _disk: NullDisks,
}

impl SlowDisk {
    pub const FOLDER: &str = "/mnt/slow";
    pub const FILE: &str = "/mnt/slow/file";

    pub fn new(guest: &Guest, delay: Duration) -> Result<Self, String> {
        Self::with(guest, delay, &[])
    }

    /// One with these settings as well.
    pub fn with(guest: &Guest, delay: Duration, settings: &[(&str, &str)]) -> Result<Self, String> {
        let device = NullDisks::FIRST;
        let disk = Self {
            _disk: NullDisks::slow(guest, delay, settings)?,
        };
        // No journal: only the check's reads may use the disk. Features are named, since 5.10 cannot mount today's
        // defaults.
        let options = ["-q", "-F", "-O", "none,extent,filetype,sparse_super,large_file", device];
        run(Command::new("mkfs.ext4").args(options), MINUTE)?.success()?;
        fs::create_dir_all(Self::FOLDER).map_err(|e| format!("{}: {e}", Self::FOLDER))?;
        let flags = MsFlags::MS_NOATIME;
        mount(Some(device), Self::FOLDER, Some("ext4"), flags, None::<&str>)
            .map_err(|e| format!("{device} on {}: {e}", Self::FOLDER))?;
        fs::write(Self::FILE, [1; BLOCK]).map_err(|e| format!("{}: {e}", Self::FILE))?;
        nix::unistd::sync();
        Ok(disk)
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        let _ = umount(Self::FOLDER);
    }
}

/// The report of a process with these reads, and its own measurements.
fn measure(guest: &Guest, options: &[&str], steps: &[&str]) -> Result<(Traced, Vec<Reads>), String> {
    let own = "/tmp/own-times";
    let _ = fs::remove_file(own);
    // Calls on other files, such as those of its start, do not count.
    let layers = LAYERS.join(",");
    let mut arguments = vec!["-T", &layers, "-d", DISK];
    arguments.extend(options);
    arguments.extend(["--", "/init", "target"]);
    arguments.extend(steps);
    let traced = trace(guest, &arguments)?;
    Ok((traced, Reads::said()?))
}

/// The time counted by the kernel side lies within what the process sees, and no read can be shorter than the disk's
/// delay. So [50 ms, what the process saw) is certain, and a busy host lengthens both. The host may break the bound of
/// 60 ms: the process's own clock shows whether it did.
fn direct(guest: &Guest) -> Result<(), String> {
    const ATTEMPTS: u32 = 5;
    let _disk = SlowDisk::new(guest, DELAY)?;
    let reads = READS.to_string();
    let mut quiet = false;
    for _ in 0..ATTEMPTS {
        let (traced, own) = measure(guest, &[], &["direct", SlowDisk::FILE, &reads])?;
        let [own] = own[..] else { return Err(format!("{own:?}")) };
        quiet = own.max < BOUND;
        for name in LAYERS {
            let Op {
                calls,
                bytes,
                total,
                min,
                max,
            } = traced.op(name, "read")?;
            let wrong = (calls, bytes) != (u64::from(READS), u64::from(READS) * BLOCK as u64)
                || !(DELAY..=own.max).contains(&min)
                || !(min..=own.max).contains(&max)
                || !(DELAY * READS..=own.total).contains(&total)
                || quiet && (max >= BOUND || total >= BOUND * READS);
            if wrong {
                return Err(format!("{name}, while the process says {own:?}:\n{}", traced.all()));
            }
        }
        if quiet {
            break;
        }
    }
    quiet
        .then_some(())
        .ok_or_else(|| format!("in {ATTEMPTS} runs the process itself always saw a read of {BOUND:?} or more"))
}

/// In milliseconds a histogram has a row from 32 to 63, for those of 50, and others below it.
fn cached(guest: &Guest) -> Result<(), String> {
    const SLOW_ROW: u64 = 32;
    let _disk = SlowDisk::new(guest, DELAY)?;
    let reads = READS.to_string();
    // Direct reads do not affect the page cache, so what one reader has cached stays for another.
    let steps = ["cached", SlowDisk::FILE, "7", "direct", SlowDisk::FILE, &reads];
    run(
        Command::new("/init").args(["target", "cached", SlowDisk::FILE, "1"]),
        MINUTE,
    )?
    .success()?;
    let (traced, own) = measure(guest, &["-m"], &steps)?;
    if own.first().is_none_or(|cached| cached.max >= DELAY) {
        return Err(format!("the cached reads were slow to the process itself: {own:?}"));
    }
    for name in LAYERS {
        let part = traced
            .layer(name)
            .split("operation = read\n")
            .nth(1)
            .unwrap_or_default();
        let rows = part.lines().skip(1).take_while(|line| line.contains(" -> "));
        let (mut slow, mut fast) = (0, 0);
        for row in rows {
            let words: Vec<&str> = row.split_whitespace().collect();
            let number = |place: usize| words.get(place).and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
            let (low, count) = (number(0), number(4));
            *(if low >= SLOW_ROW { &mut slow } else { &mut fast }) += count;
        }
        if (slow, fast) != (u64::from(READS), 7) {
            return Err(format!(
                "{name}: {slow} slow reads and {fast} fast ones in\n{}",
                traced.all()
            ));
        }
        let Op { min, max, .. } = traced.op(name, "read")?;
        if min >= DELAY || max < DELAY {
            return Err(format!("{name}: {min:?} to {max:?}"));
        }
    }
    Ok(())
}
