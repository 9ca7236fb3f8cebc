//! Runs the commands of the documentation that need probes on functions, as written. The others run on any machine
//! (`tests/docs.rs`).

use crate::commands::{self, Place};
use crate::guest::{Check, Guest, Running};
use crate::target::BLOCK;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

// On one kernel, since this checks options. `--check` is checked on each (`trust.rs`).
pub const CHECKS: &[Check] = &[Check::new("docs: every command that probes functions runs", all_run)
    .when(|guest| guest.as_booted() && guest.kernel == "6.12")
    .limit(900)];

const PAGES: [&str; 7] = [
    include_str!("../../../README.md"),
    include_str!("../../../docs/coming-from.md"),
    include_str!("../../../docs/containers.md"),
    include_str!("../../../docs/cost.md"),
    include_str!("../../../docs/faq.md"),
    include_str!("../../../docs/investigations.md"),
    include_str!("../../../docs/reports.md"),
];
/// For one of several concurrent runs.
const LONG: Duration = Duration::from_secs(200);
/// The number of concurrent runs, which mostly wait for the kernel to remove probes.
const TOGETHER: usize = 6;
const FOLDER: &str = "/mnt/ext4/docs";
const FILE: &str = "/mnt/ext4/docs/shop.db";
const GROUP: &str = "/sys/fs/cgroup/tested";

fn all_run(guest: &Guest) -> Result<(), String> {
    fs::create_dir_all(FOLDER).map_err(|e| format!("{FOLDER}: {e}"))?;
    fs::write(FILE, [1; BLOCK]).map_err(|e| format!("{FILE}: {e}"))?;
    // For the control groups of the pages.
    fs::create_dir_all(GROUP).map_err(|e| format!("{GROUP}: {e}"))?;
    let process = Running::start(Command::new("/init").arg("pause"))?;
    let place = Place {
        pid: &process.pid().to_string(),
        file: FILE,
        disk: "nvme0n1",
        cgroup: GROUP,
        command: &["/init", "target", "cached", FILE, "3"],
    };
    let tool = guest.tool().ok_or("there is no tool")?;
    let start = |command: &String| {
        let arguments = commands::arguments(command, &place).ok_or("a quote has no end")?;
        let mut command = Command::new(tool);
        command.args(arguments).current_dir(FOLDER);
        Running::start(&mut command)
    };

    let all = PAGES.iter().flat_map(|page| commands::of(page));
    let is_here = |command: &String| !commands::needs_tracepoints_only(command) && !command.contains("--check");
    let all: BTreeSet<String> = all.filter(is_here).collect();
    if all.len() < 15 {
        return Err(format!("only {all:?}"));
    }
    let all: Vec<String> = all.into_iter().collect();
    for together in all.chunks(TOGETHER) {
        let started: Result<Vec<Running>, String> = together.iter().map(start).collect();
        for (command, running) in together.iter().zip(started?) {
            let output = running.finish(LONG)?;
            let said = format!("{}{}", output.stdout, output.stderr);
            commands::verdict(command, output.status, &said, Path::new(FOLDER))?;
        }
    }
    fs::remove_dir(GROUP).map_err(|e| format!("{GROUP}: {e}"))
}
