//! Whose I/O was asked for, in words and piece by piece.

use crate::args::Options;
use crate::kernel::disk::Disk;
use crate::model::report::Filter;
use crate::process::Process;

pub fn is_filtered(options: &Options) -> bool {
    is_filtered_by_process(options) || options.disk.is_some() || options.file.is_some()
}

pub fn is_filtered_by_process(options: &Options) -> bool {
    !options.pids.is_empty() || !options.command.is_empty() || options.cgroup.is_some() || options.comm.is_some()
}

pub fn subject(options: &Options, processes: &[Process], disk: Option<&Disk>) -> String {
    let mut parts = Vec::new();
    match processes {
        [] => {}
        [one] => parts.push(format!("PID {} ({})", one.pid, one.comm)),
        many => {
            let pids: Vec<String> = many.iter().map(|process| process.pid.to_string()).collect();
            parts.push(format!("PIDs {}", pids.join(", ")));
        }
    }
    if options.follow && !processes.is_empty() {
        parts.push("descendants".to_owned());
    }
    if !options.command.is_empty() {
        let words: Vec<_> = options.command.iter().map(|word| word.to_string_lossy()).collect();
        parts.push(format!("'{}'", words.join(" ")));
    }
    if let Some(comm) = &options.comm {
        parts.push(format!("threads named {comm}"));
    }
    if let Some(cgroup) = &options.cgroup {
        parts.push(format!("cgroup {}", cgroup.display()));
    }
    if let Some(disk) = disk {
        parts.push(disk.name.clone());
    }
    if let Some(file) = &options.file {
        parts.push(file.display().to_string());
    }
    parts.join(", ")
}

/// What [`subject`] says in words. Paths and words that are not UTF-8 are as readable as they can be.
pub fn filter(options: &Options, disk: Option<&Disk>) -> Filter {
    let words = options.command.iter().map(|word| word.to_string_lossy().into_owned());
    Filter {
        pids: options.pids.clone(),
        follow: options.follow,
        disk: disk.map(|disk| disk.name.clone()),
        queued: options.queued,
        cgroup: options.cgroup.as_ref().map(|path| path.display().to_string()),
        comm: options.comm.clone(),
        command: (!options.command.is_empty()).then(|| words.collect()),
        file: options.file.as_ref().map(|path| path.display().to_string()),
        all_files: options.all_files,
    }
}
