//! Calls and requests by process, file, disk and control group. Every report is checked for groups and others that add
//! up.

use super::filters;
use super::hard::Mounted;
use super::report::Tool;
use crate::disks::NullDisks;
use crate::guest::{Check, Guest, as_booted as check, run};
use crate::scene::BLOCK;
use crate::schema;
use crate::workload::{BLK, EXT4, SYSCALL, Spec, VFS, Workload, prepare};
use nix::mount::{MsFlags, mount, umount};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

pub const CHECKS: &[Check] = &[
    check("dimensions: three processes, each with its own calls", processes).when(|guest| guest.tool().is_some()),
    check("dimensions: the whole stack by file and by process", whole_stack)
        .when(|guest| is_oldest_or_newest(guest) || is_preempted_with_others(guest)),
    check(
        "dimensions: three processes, each with its own calls, by kprobes",
        |guest| by_process(guest, &["--probe", "kprobe-event"]),
    )
    .when(is_oldest_or_newest),
    check(
        "dimensions: a thread that changes its file at each call",
        changing_files,
    ),
    check("dimensions: a process that changes its control group", changing_group),
    check("dimensions: twelve files, five of them by name", files).when(is_oldest_or_newest),
    check("dimensions: requests by process, file and disk", requests),
    check("dimensions: more files than there is room for", no_room).when(is_oldest_or_newest),
    check("dimensions: two control groups of version 2", cgroups),
    check("dimensions: two control groups of version 1", cgroups_of_version_1).when(has_version_1),
    check("dimensions: control groups of both versions", cgroups_of_both_versions).when(has_version_1),
];

/// Where programs can preempt each other on a CPU's counters, and starts are in a table.
fn is_preempted_with_others(guest: &Guest) -> bool {
    guest.tool().is_some() && guest.kernel == "6.1" && guest.preemptible()
}

/// Kernels differ in how a group is found: names from other structures, tables by other hooks.
fn is_oldest_or_newest(guest: &Guest) -> bool {
    guest.as_booted() && ["5.10", "7"].contains(&guest.kernel.as_str())
}

const FOLDER: &str = "/mnt/ext4/dimensions";

/// The only report of a run.
fn report_of(tool: Tool) -> Result<Value, String> {
    tool.interrupt()?;
    only(tool)
}

fn only(tool: Tool) -> Result<Value, String> {
    let text = tool.written()?;
    let reports = schema::reports(&text)?;
    let [report] = <[Value; 1]>::try_from(reports).map_err(|all| format!("{} reports", all.len()))?;
    let lost = report["lost"].as_object().into_iter().flatten();
    if lost.map(|(_, n)| schema::number(n)).sum::<u64>() > 0 {
        return Err(format!("lost {}", report["lost"]));
    }
    Ok(report)
}

fn groups(report: &Value) -> &[Value] {
    schema::array(&report["groups"]["groups"])
}

/// Calls of each op of a group.
fn calls(group: &Value) -> BTreeMap<(String, String), u64> {
    let mut calls = BTreeMap::new();
    for layer in schema::array(&group["numbers"]["layers"]) {
        for op in schema::array(&layer["ops"]) {
            let name = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            calls.insert((name(&layer["layer"]), name(&op["op"])), schema::number(&op["count"]));
        }
    }
    calls
}

fn called(group: &Value, layer: &str, op: &str) -> u64 {
    calls(group)
        .get(&(layer.to_owned(), op.to_owned()))
        .copied()
        .unwrap_or(0)
}

fn scene(name: &str, file: &str, count: u64) -> Result<Workload, String> {
    let command = ["/init", "scene", name, file, &count.to_string()];
    Workload::launch(&command.map(String::from))
}

fn processes(guest: &Guest) -> Result<(), String> {
    by_process(guest, &[])
}

/// Every call and byte of each process, including those that have ended.
fn by_process(guest: &Guest, how: &[&str]) -> Result<(), String> {
    const ROUNDS: [u64; 3] = [1, 2, 3];
    let specs = ROUNDS.map(|rounds| Spec {
        set: "mix",
        threads: 2,
        rounds,
        file: "/mnt/ext4/dimensions/file",
        name: "worker",
    });
    prepare(specs[0].file)?;
    let [one, two, three] = specs.each_ref().map(Workload::start);
    let workloads = [one?, two?, three?];
    let numbers = workloads.each_ref().map(|workload| workload.pid);
    let pids = numbers.map(|pid| pid.to_string());
    let layers = [SYSCALL, VFS, EXT4].join(",");
    let all = pids.join(",");
    let mut arguments = vec!["--json", "-T", &layers, "--by", "process", "-p", &all];
    arguments.extend(how);
    let tool = Tool::start(guest, &arguments)?;
    for workload in workloads {
        workload.work()?;
    }
    let report = only(tool)?;
    if groups(&report).len() != specs.len() || !report["groups"]["others"].is_null() {
        return Err(format!("groups: {}", report["groups"]));
    }
    for (spec, pid) in specs.iter().zip(numbers) {
        let group = groups(&report).iter().find(|group| group["pid"] == pid);
        let group = group.ok_or_else(|| format!("no process {pid}: {}", report["groups"]))?;
        let reported = calls(group);
        let truth = spec.truth().ops.into_iter().filter(|(_, count)| count.calls > 0);
        let truth: BTreeMap<(String, String), u64> = truth
            .filter(|((layer, _), _)| [SYSCALL, VFS, EXT4].contains(&layer.as_str()))
            .map(|(op, count)| (op, count.calls))
            .collect();
        if reported != truth {
            return Err(format!("{pid}: reported {reported:?},\nis {truth:?}"));
        }
    }
    Ok(())
}

/// The name of the most frequently read file.
fn file_name(number: u64) -> String {
    format!("{FOLDER}/{number}")
}

fn files(guest: &Guest) -> Result<(), String> {
    const FILES: u64 = 12;
    const TOP: usize = 5;
    let _ = fs::remove_dir_all(FOLDER);
    let workload = scene("many", FOLDER, FILES)?;
    let pid = workload.pid.to_string();
    let layers = [SYSCALL, VFS, EXT4].join(",");
    let arguments = ["--json", "-T", &layers, "--by", "file", "--top", "5", "-p", &pid];
    let tool = Tool::start(guest, &arguments)?;
    workload.work()?;
    let report = only(tool)?;
    let others = &report["groups"]["others"];
    if groups(&report).len() != TOP || schema::number(&others["no_room"]) != 0 {
        return Err(format!("groups: {}", report["groups"]));
    }
    for (layer, op) in [(SYSCALL, "pread64"), (VFS, "read"), (EXT4, "read")] {
        let parts = schema::parts(&report).map(|part| called(&serde_json::json!({ "numbers": part }), layer, op));
        let (reported, is) = (parts.sum::<u64>(), FILES * (FILES + 1) / 2);
        if reported != is {
            return Err(format!("{reported} of {is} reads at {layer}: {}", report["groups"]));
        }
    }
    // In another run for all processes, the ranking depends on how long each took.
    let _ = fs::remove_dir_all(FOLDER);
    let workload = scene("many", FOLDER, FILES)?;
    let pid = workload.pid.to_string();
    let tool = Tool::start(
        guest,
        &["--json", "-T", &layers, "--by", "file", "--top", "99", "-p", &pid],
    )?;
    workload.work()?;
    let report = only(tool)?;
    for number in 1..=FILES {
        // By the name used to open them, whatever happened to it.
        let name = file_name(number);
        let group = groups(&report).iter().find(|group| group["name"] == name.as_str());
        let group = group.ok_or_else(|| format!("no {name}: {}", report["groups"]))?;
        let reads = [(SYSCALL, "read"), (SYSCALL, "pread64"), (VFS, "read"), (EXT4, "read")]
            .map(|(layer, op)| called(group, layer, op));
        let opens = [(SYSCALL, "openat"), (VFS, "open"), (EXT4, "open")].map(|(layer, op)| called(group, layer, op));
        if reads != [0, number, number, number] || opens != [1; 3] || group["path_is"] != "whole" {
            return Err(format!("{name}: reads {reads:?}, opens {opens:?}: {group}"));
        }
    }
    let nobody = groups(&report).iter().find(|group| group["nobody"] == true);
    let unlinks = nobody.map(|group| called(group, SYSCALL, "unlink") + called(group, SYSCALL, "unlinkat"));
    if unlinks != Some(1) {
        return Err(format!("calls that take a path: {nobody:?}"));
    }
    Ok(())
}

/// Each request belongs to its submitter.
fn requests(guest: &Guest) -> Result<(), String> {
    const COUNTS: [u64; 2] = [20, 30];
    let _disks = NullDisks::new(guest, 2, &[])?;
    let names = ["/dev/nullb0", "/dev/nullb1"];
    let start = || -> Result<Vec<Workload>, String> {
        let scenes = names.iter().zip(COUNTS);
        scenes.map(|(name, count)| scene("direct", name, count)).collect()
    };
    let finish = |workloads: Vec<Workload>| workloads.into_iter().try_for_each(|workload| workload.work());
    for by in ["process", "disk"] {
        let workloads = start()?;
        let pids: Vec<u32> = workloads.iter().map(|workload| workload.pid).collect();
        let layers = [SYSCALL, BLK].join(",");
        let tool = Tool::start(guest, &["--json", "-T", &layers, "--by", by, "--top", "99"])?;
        finish(workloads)?;
        let report = report_of(tool)?;
        for ((name, pid), count) in names.iter().zip(pids).zip(COUNTS) {
            let disk = name.trim_start_matches("/dev/");
            let is_it = |group: &&Value| match by {
                "process" => group["pid"] == pid,
                _ => group["name"] == disk,
            };
            let group = groups(&report).iter().find(is_it);
            let reported = group.map(|group| [called(group, SYSCALL, "pread64"), called(group, BLK, "read")]);
            if reported != Some([count; 2]) {
                return Err(format!(
                    "by {by}, {name}: {reported:?} of {count} reads: {}",
                    report["groups"]
                ));
            }
        }
    }
    // Written to the page cache, and from there to the disk by any task.
    let file = format!("{FOLDER}/later");
    prepare(&file)?;
    nix::unistd::sync();
    let workload = scene("later", &file, 8)?;
    let tool = Tool::start(guest, &["--json", "-T", BLK, "--by", "file", "--top", "99"])?;
    workload.work()?;
    let report = report_of(tool)?;
    let group = groups(&report).iter().find(|group| group["name"] == file.as_str());
    let ops = group.map(|group| schema::array(&group["numbers"]["layers"]));
    let ops = ops.and_then(<[Value]>::first).map(|layer| schema::array(&layer["ops"]));
    let written = ops.and_then(|ops| ops.iter().find(|op| op["op"] == "write"));
    let bytes = written.map(|op| schema::number(&op["bytes"]));
    if bytes != Some(8 * BLOCK as u64) {
        return Err(format!("{bytes:?} written of {file}: {}", report["groups"]));
    }
    Ok(())
}

/// The calls of a family in a group.
fn of_family(group: &Value, name: &str) -> u64 {
    let families = schema::array(&group["numbers"]["families"]);
    let family = families.iter().find(|family| family["family"] == name);
    family.map_or(0, |family| schema::number(&family["count"]))
}

fn whole_stack(guest: &Guest) -> Result<(), String> {
    const COUNTS: [u64; 3] = [7, 11, 13];
    let names = COUNTS.map(|count| format!("{FOLDER}/{count}"));
    for name in &names {
        prepare(name)?;
    }
    for by in ["file", "process"] {
        let scenes = names
            .iter()
            .zip(COUNTS)
            .map(|(name, count)| scene("commits", name, count));
        let workloads: Vec<Workload> = scenes.collect::<Result<_, _>>()?;
        let pids: Vec<u32> = workloads.iter().map(|workload| workload.pid).collect();
        let all: Vec<String> = pids.iter().map(u32::to_string).collect();
        let tool = Tool::start(guest, &["--json", "--by", by, "-p", &all.join(",")])?;
        for workload in workloads {
            workload.work()?;
        }
        let report = only(tool)?;
        for ((name, pid), count) in names.iter().zip(pids).zip(COUNTS) {
            let is_it = |group: &&Value| match by {
                "process" => group["pid"] == pid,
                _ => group["name"] == name.as_str(),
            };
            let group = groups(&report).iter().find(is_it);
            let group = group.ok_or_else(|| format!("by {by}, no {name}: {}", report["groups"]))?;
            let reported = ["write", "fsync"].map(|family| of_family(group, family));
            if reported != [count; 2] {
                return Err(format!("by {by}, {name}: {reported:?} writes and fsyncs of {count}"));
            }
        }
    }
    Ok(())
}

/// Reads of this process, one after the other, of two files in turn: a group must not be that of the call before.
fn changing_files(guest: &Guest) -> Result<(), String> {
    const ROUNDS: u64 = 50;
    let names = ["first", "second"].map(|name| format!("{FOLDER}/{name}"));
    let mut files = Vec::new();
    for name in &names {
        prepare(name)?;
        files.push(fs::File::open(name).map_err(|e| format!("{name}: {e}"))?);
    }
    let own = std::process::id().to_string();
    for layers in [&[][..], &["-T", VFS], &["-T", SYSCALL]] {
        let tool = Tool::start(guest, &[&["--json", "--by", "file", "-p", &own], layers].concat())?;
        for _ in 0..ROUNDS {
            for file in [&files[0], &files[1], &files[1]] {
                read_byte(file)?;
            }
        }
        check_reads(
            &report_of(tool)?,
            layers.last().copied(),
            names.each_ref().map(String::as_str),
            [ROUNDS, 2 * ROUNDS],
        )?;
    }
    Ok(())
}

fn read_byte(file: &fs::File) -> Result<(), String> {
    match std::os::unix::fs::FileExt::read_at(file, &mut [0], 0) {
        Ok(1) => Ok(()),
        other => Err(format!("a read: {other:?}")),
    }
}

/// Each of two groups must have so many reads, of a layer or of the whole stack.
fn check_reads(report: &Value, layer: Option<&str>, names: [&str; 2], counts: [u64; 2]) -> Result<(), String> {
    for (name, count) in names.into_iter().zip(counts) {
        let group = groups(report).iter().find(|group| group["name"] == name);
        let reported = group.map(|group| reads_of(group, layer));
        if reported != Some(count) {
            return Err(format!(
                "{layer:?}, {name}: {reported:?} of {count}: {}",
                report["groups"]
            ));
        }
    }
    Ok(())
}

/// The reads of a group, of a layer or of the whole stack.
fn reads_of(group: &Value, layer: Option<&str>) -> u64 {
    match layer {
        Some(layer) if layer == VFS => called(group, layer, "read"),
        Some(layer) => called(group, layer, "pread64"),
        None => of_family(group, "read"),
    }
}

/// Reads of this process in one control group, and then in another.
fn changing_group(guest: &Guest) -> Result<(), String> {
    const COUNTS: [u64; 2] = [21, 34];
    let name = format!("{FOLDER}/moving");
    prepare(&name)?;
    let file = fs::File::open(&name).map_err(|e| format!("{name}: {e}"))?;
    let own = std::process::id().to_string();
    let enter = |group: &str| {
        let procs = format!("{UNIFIED}{group}/cgroup.procs");
        fs::write(&procs, &own).map_err(|e| format!("{procs}: {e}"))
    };
    let names = ["/from", "/to"];
    for name in names {
        fs::create_dir_all(format!("{UNIFIED}{name}")).map_err(|e| format!("{name}: {e}"))?;
    }
    for layers in [&[][..], &["-T", SYSCALL]] {
        let tool = Tool::start(guest, &[&["--json", "--by", "cgroup", "-p", &own], layers].concat())?;
        for (name, count) in names.iter().zip(COUNTS) {
            enter(name)?;
            for _ in 0..count {
                read_byte(&file)?;
            }
        }
        enter("")?;
        check_reads(&report_of(tool)?, layers.last().copied(), names, COUNTS)?;
    }
    for name in names {
        fs::remove_dir(format!("{UNIFIED}{name}")).map_err(|e| format!("{name}: {e}"))?;
    }
    Ok(())
}

/// All are in the sum, and the report says that some have no name.
fn no_room(guest: &Guest) -> Result<(), String> {
    const FILES: u64 = 40;
    let _ = fs::remove_dir_all(FOLDER);
    for whole_stack in [false, true] {
        let workload = scene("many", FOLDER, FILES)?;
        let pid = workload.pid.to_string();
        let mut arguments = vec!["--json", "--by", "file", "--groups", "16", "--top", "8", "-p", &pid];
        if !whole_stack {
            arguments.extend(["-T", SYSCALL]);
        }
        let tool = Tool::start(guest, &arguments)?;
        workload.work()?;
        let report = only(tool)?;
        let reads: u64 = schema::parts(&report)
            .map(|part| match whole_stack {
                true => of_family(&serde_json::json!({ "numbers": part }), "read"),
                false => called(&serde_json::json!({ "numbers": part }), SYSCALL, "pread64"),
            })
            .sum();
        let others = &report["groups"]["others"];
        let no_room = schema::number(&others["no_room"]);
        if reads != FILES * (FILES + 1) / 2 || no_room == 0 || schema::number(&others["groups"]) > 16 {
            return Err(format!("{reads} reads, {no_room} without room: {others}"));
        }
    }
    Ok(())
}

fn cgroups(guest: &Guest) -> Result<(), String> {
    two_cgroups(guest, UNIFIED)
}

/// Where the kernel still has it.
fn has_version_1(guest: &Guest) -> bool {
    let controllers = fs::read_to_string("/proc/cgroups").unwrap_or_default();
    guest.as_booted() && controllers.lines().any(|line| line.starts_with("blkio"))
}

/// The hierarchy of version 2, until this is dropped.
struct Unmounted;

const UNIFIED: &str = "/sys/fs/cgroup";

impl Unmounted {
    fn new() -> Result<Self, String> {
        umount(UNIFIED).map_err(|e| format!("{UNIFIED}: {e}"))?;
        Ok(Self)
    }
}

impl Drop for Unmounted {
    fn drop(&mut self) {
        let mounted = mount(
            Some("cgroup2"),
            UNIFIED,
            Some("cgroup2"),
            MsFlags::empty(),
            None::<&str>,
        );
        if let Err(error) = mounted {
            eprintln!("{UNIFIED}: {error}");
        }
    }
}

/// Version 1 alone, as on a machine configured before version 2. `--cgroup` cannot work there, and says so.
fn cgroups_of_version_1(guest: &Guest) -> Result<(), String> {
    const FOLDER: &str = "/mnt/blkio";
    let _mounted = Mounted::mount("blkio", FOLDER, "cgroup", "blkio")?;
    let _unmounted = Unmounted::new()?;
    two_cgroups(guest, FOLDER)?;
    let mut refused = Command::new(guest.tool().ok_or("there is no tool")?);
    let refused = run(
        refused.args(["-T", SYSCALL, "--cgroup", FOLDER]),
        Duration::from_secs(60),
    )?;
    if refused.status.code() != Some(1) || !refused.stderr.contains("needs cgroup version 2") {
        return Err(format!("--cgroup: {}\n{}", refused.status, refused.stderr));
    }
    Ok(())
}

/// Systemd's hybrid mode: `--by cgroup` and `--cgroup` use the same groups, those of version 2.
fn cgroups_of_both_versions(guest: &Guest) -> Result<(), String> {
    let _mounted = Mounted::mount("blkio", "/mnt/blkio", "cgroup", "blkio")?;
    two_cgroups(guest, UNIFIED)?;
    filters::control_group(guest, &[SYSCALL], &filters::SPEC)
}

fn two_cgroups(guest: &Guest, hierarchy: &str) -> Result<(), String> {
    const COUNTS: [u64; 2] = [21, 34];
    let file = format!("{FOLDER}/cgroup");
    prepare(&file)?;
    let names = ["/one", "/one/below"];
    let mut workloads = Vec::new();
    for (name, count) in names.iter().zip(COUNTS) {
        let folder = format!("{hierarchy}{name}");
        fs::create_dir_all(&folder).map_err(|e| format!("{folder}: {e}"))?;
        let workload = scene("cached", &file, count)?;
        let procs = Path::new(&folder).join("cgroup.procs");
        fs::write(&procs, workload.pid.to_string()).map_err(|e| format!("{}: {e}", procs.display()))?;
        workloads.push(workload);
    }
    let tool = Tool::start(guest, &["--json", "-T", SYSCALL, "--by", "cgroup", "--top", "99"])?;
    for workload in workloads {
        workload.work()?;
    }
    // A removed group still has its name.
    for name in names.iter().rev() {
        let folder = format!("{hierarchy}{name}");
        fs::remove_dir(&folder).map_err(|e| format!("{folder}: {e}"))?;
    }
    let report = report_of(tool)?;
    for (name, count) in names.iter().zip(COUNTS) {
        let group = groups(&report).iter().find(|group| group["name"] == *name);
        let reported = group.map(|group| called(group, SYSCALL, "pread64"));
        if reported != Some(count) {
            return Err(format!("{name}: {reported:?} of {count} reads: {}", report["groups"]));
        }
    }
    Ok(())
}
