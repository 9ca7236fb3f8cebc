//! What a selection from the records of a recording means, and whether the recording has it.

use std::collections::BTreeSet;

use crate::cause::Cause;
use crate::model::recording::Meta;

/// The cause why a selection cannot be answered: the recording was made with another one.
fn others(option: &str, recorded: &str) -> Cause {
    format!("recorded with {option} {recorded}: others are not in it").into()
}

/// These processes.
///
/// # Errors
/// If the recording has only others, in one line.
pub fn pids(meta: &Meta, wanted: &[u32]) -> Result<BTreeSet<u32>, Cause> {
    let recorded = &meta.run.filter;
    let is_recorded = |pid: &u32| recorded.follow || recorded.pids.is_empty() || recorded.pids.contains(pid);
    if !wanted.iter().all(is_recorded) {
        let all: Vec<String> = recorded.pids.iter().map(u32::to_string).collect();
        return Err(others("-p", &all.join(",")));
    }
    Ok(wanted.iter().copied().collect())
}

/// Checks an option with which the recording may have been made, too.
///
/// # Errors
/// If it was made with another value of it, in one line.
pub fn check(option: &str, wanted: Option<&str>, recorded: Option<&str>) -> Result<(), Cause> {
    match (wanted, recorded) {
        (Some(wanted), Some(recorded)) if wanted != recorded => Err(others(option, recorded)),
        _ => Ok(()),
    }
}

/// The numbers of a disk with its partitions, or of a partition, as they were named when it was recorded; none if `name`
/// is `None`.
///
/// # Errors
/// If there is no such disk, in one line with those that there are.
pub fn devices(meta: &Meta, name: Option<&str>) -> Result<BTreeSet<[u32; 2]>, Cause> {
    let mut devices = BTreeSet::new();
    let Some(name) = name else { return Ok(devices) };
    let name = name.trim_start_matches("/dev/");
    for disk in &meta.disks {
        if disk.name == name {
            devices.insert(disk.number);
            devices.extend(disk.partitions.iter().map(|partition| partition.number));
        }
        let partitions = disk.partitions.iter().filter(|partition| partition.name == name);
        devices.extend(partitions.map(|partition| partition.number));
    }
    if devices.is_empty() {
        let known: Vec<&str> = meta.disks.iter().map(|disk| disk.name.as_str()).collect();
        let known = known.join(", ");
        return Err(format!("no such disk in the recording: '{name}'; it has {known}").into());
    }
    Ok(devices)
}
