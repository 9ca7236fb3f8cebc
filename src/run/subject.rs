//! The selected processes, files and disks, in words and as fields.

use crate::args::{ControlGroup, Measure, Paths, Target};
use crate::kernel::disk::Disk;
use crate::model::report::Filter;
use crate::process::Process;

pub fn subject(target: &Target, processes: &[Process], disk: Option<&Disk>) -> String {
    let processes: Vec<String> = match processes {
        [one] => vec![format!("{} ({})", one.pid, one.comm)],
        many => many.iter().map(|process| process.pid.to_string()).collect(),
    };
    let disk = disk.map(|disk| disk.name.clone());
    let on: Vec<String> = disk.into_iter().chain(files(target)).collect();
    words(target, &processes, &on)
}

/// The selected files and directories.
fn files(target: &Target) -> Vec<String> {
    let Paths { files, folders } = &target.paths;
    let files = match &target.file {
        Some(file) if files.is_empty() => std::slice::from_ref(file),
        _ => files,
    };
    let files = files.iter().map(|file| file.display().to_string());
    let folders = folders.iter().map(|folder| format!("files below {}", folder.display()));
    files.chain(folders).collect()
}

/// A target in words; empty: everything. `processes`: as they are named. `on`: the disks, files and directories.
pub fn words(target: &Target, processes: &[String], on: &[String]) -> String {
    let mut parts = Vec::new();
    match processes {
        [] => {}
        [one] => parts.push(format!("PID {one}")),
        many => parts.push(format!("PIDs {}", many.join(", "))),
    }
    if target.follows()
        && let Some(last) = parts.last_mut()
    {
        last.push_str(match processes {
            [_] => " and its descendants",
            _ => " and their descendants",
        });
    }
    if let Some(command) = target.command() {
        let words: Vec<_> = command.words().map(|word| word.to_string_lossy()).collect();
        parts.push(format!("'{}'", words.join(" ")));
    }
    if let Some(comm) = &target.comm {
        parts.push(format!("threads named {comm}"));
    }
    if let Some(cgroup) = &target.cgroup {
        parts.push(match cgroup {
            ControlGroup::Path(path) => format!("cgroup {}", path.display()),
            owned @ ControlGroup::Owned { .. } => owned.to_string(),
        });
    }
    match (parts.is_empty(), on.is_empty()) {
        (true, _) => on.join(", "),
        (false, true) => parts.join(", "),
        (false, false) => format!("{} on {}", parts.join(", "), on.join(", ")),
    }
}

/// The fields behind [`subject`]. Paths and words that are not UTF-8 are converted as well as possible.
pub fn filter(measure: &Measure, disk: Option<&Disk>) -> Filter {
    let target = &measure.target;
    let command = target.command().map(|command| {
        let words = command.words();
        words.map(|word| word.to_string_lossy().into_owned()).collect()
    });
    Filter {
        pids: target.pids().to_vec(),
        follow: target.follows(),
        disk: disk.map(|disk| disk.name.clone()),
        queued: measure.scope.is_queued(),
        cgroup: target.cgroup.as_ref().map(ControlGroup::to_string),
        comm: target.comm.clone(),
        command,
        file: target.file.as_ref().map(|path| path.display().to_string()),
        all_files: target.all_files,
    }
}
