//! Reports computed from saved counters: by another process without privileges, and identical to those of the run.

use super::report::Tool;
use crate::guest::{Check, Guest};
use crate::scenes::kept::Kept;
use crate::scenes::reader::{Way, expected, printed};
use crate::scenes::{self, Scene};
use crate::workload::{Spec, prepare};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

pub const CHECKS: &[Check] = &[
    check("snapshots: the whole stack, read back", |guest| {
        [&[][..], &["--json"]]
            .into_iter()
            .try_for_each(|options| same(guest, options))
    }),
    check("snapshots: layers and groups, read back", |guest| {
        const LAYERS: &[&[&str]] = &[
            &["-T", "syscall,vfs,ext4,blk", "-Q", "-u"],
            &["-T", "vfs,ext4,blk", "--json"],
            &["--by", "file", "--top", "1"],
            &["-T", "vfs,blk", "--by", "process", "0.2"],
        ];
        LAYERS.iter().try_for_each(|options| same(guest, options))
    }),
    check("snapshots: every golden scene, read back", |guest| {
        let tool = guest.tool().ok_or("there is no tool")?;
        scenes::all().iter().try_for_each(|scene| same_scene(tool, scene))
    }),
];

const fn check(name: &'static str, run: fn(&Guest) -> Result<(), String>) -> Check {
    Check::new(name, run).when(|guest| guest.as_booted() && guest.tool().is_some())
}

const SPEC: Spec = Spec {
    set: "mix",
    threads: 2,
    rounds: 20,
    file: "/mnt/ext4/snapshots/file",
    name: "worker",
};
const SAVED: &str = "/tmp/snapshots";
const NOBODY: u32 = 65_534;

fn same(guest: &Guest, options: &[&str]) -> Result<(), String> {
    prepare(SPEC.file)?;
    let command = SPEC.command();
    let mut arguments = [options, &["--save-snapshots", SAVED, "--"]].concat();
    arguments.extend(command.iter().map(String::as_str));
    let printed = Tool::start(guest, &arguments)?.written()?;
    if printed.lines().count() < 2 && !options.contains(&"--json") {
        return Err(format!("{options:?}: nothing was reported: {printed}"));
    }
    let tool = guest.tool().ok_or("there is no tool")?;
    for _ in 0..2 {
        let mut command = Command::new(tool);
        command.args(["--verbose", "--from-snapshots", SAVED]).args(options);
        let back = command.uid(NOBODY).gid(NOBODY).output();
        let back = back.map_err(|error| format!("{options:?}: {error}"))?;
        if back.stdout != printed.as_bytes() {
            return Err(format!(
                "{options:?}: {}, {}\n{}\ninstead of\n{printed}",
                back.status,
                String::from_utf8_lossy(&back.stderr),
                String::from_utf8_lossy(&back.stdout)
            ));
        }
    }
    Ok(())
}

/// Counters that are kept here make the report of the scene there: as text, as wide as the scene's, and as JSON.
fn same_scene(tool: &Path, scene: &Scene) -> Result<(), String> {
    let saved = Path::new(SAVED);
    for part in &scene.parts {
        let kept = Kept::of(part);
        kept.save(saved)?;
        for way in Way::ALL {
            let name = scene.name;
            let printed = printed(tool, saved, part, way).map_err(|error| format!("{name} as {way:?}: {error}"))?;
            let expected = expected(part, &kept, way);
            if printed != expected {
                return Err(format!("{name} as {way:?}:\n{printed}\ninstead of\n{expected}"));
            }
        }
    }
    Ok(())
}
