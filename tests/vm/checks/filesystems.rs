//! File systems other than ext4: every op of each is counted exactly, with any hook, on a file system created for the
//! check.

use super::counts::{AUTO, FENTRY, Hook, KPROBE_EVENT};
use super::hard::Mounted;
use super::report::{Report, Tool};
use crate::async_io::BLOCK;
use crate::disks::NullDisks;
use crate::guest::{Check, Guest, Loaded, as_booted as check, run};
use crate::nfs::Nfs;
use crate::peers::{self, Peers};
use crate::workload::{Calls, Count, EXT4, Spec, Workload, prepare};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

pub const CHECKS: &[Check] = &[
    check("filesystems: a module that is not loaded is an error", not_loaded),
    check("filesystems: xfs", |guest| counts(guest, &XFS, "")),
    Check::new("filesystems: ext4 and xfs are distinguished", distinguished).when(|guest| guest.tool().is_some()),
    check("filesystems: nfs", |guest| counts(guest, &NFS, Nfs::new(guest)?)),
    check("filesystems: tmpfs", |guest| {
        counts(guest, &TMPFS, Mounted::mount("tmpfs", TMPFS.folder, "tmpfs", "")?)
    }),
    check("filesystems: overlay", |guest| {
        counts(guest, &OVERLAY, OnExt4::new(guest)?)
    })
    .when(sees_completions),
    Check::new("filesystems: overlay, and ext4 below it", both).when(sees_completions),
    check(
        "filesystems: tmpfs is in the whole stack where it is named",
        named_beside_all,
    ),
];

/// Their tools create the file systems.
pub const WITH_PEERS: &[Check] = &[
    check("filesystems: btrfs", |guest| {
        counts(guest, &BTRFS, OnDisk::new(guest, &BTRFS, &["mkfs.btrfs", "-q", "-f"])?)
    }),
    // Debian's cloud kernels do not include it.
    check("filesystems: f2fs", |guest| {
        counts(guest, &F2FS, OnDisk::new(guest, &F2FS, &["mkfs.f2fs", "-q", "-f"])?)
    })
    .when(|guest| guest.as_booted() && guest.has_module(F2FS.name)),
];

/// Its asynchronous requests complete in interrupts, where kprobes miss some, and the report says so.
fn sees_completions(guest: &Guest) -> bool {
    guest.as_booted() && guest.has_trampolines()
}

const MINUTE: Duration = Duration::from_secs(60);

/// A file system to check.
struct FileSystem {
    name: &'static str,
    folder: &'static str,
    /// The device that it is on, if it is a disk.
    disk: Option<&'static str>,
    /// How its calls differ from ext4's. A synchronous write is no fsync on NFS, and looking up a file opens it.
    calls: &'static str,
    /// The same for calls that are neither reads nor writes.
    ways: &'static str,
    requests: Requests,
    /// Ops that it does not implement.
    lacks: &'static [&'static str],
}

/// Asynchronous requests, their op, and the number of each kind.
type Requests = &'static [(&'static [&'static str], &'static str, u64)];
const REQUESTS: Requests = &[
    (
        &["uring-direct", "uring-forced", "aio-direct", "uring-cached"],
        "read",
        67,
    ),
    (&["uring-write", "aio-write"], "write", 41),
    (&["uring-fsync"], "fsync", 5),
];
/// Requests that use the page cache.
const CACHED: Requests = &[
    (&["uring-cached", "aio-cached"], "read", 67),
    (&["uring-write-cached"], "write", 41),
    (&["uring-fsync"], "fsync", 5),
];

const XFS: FileSystem = FileSystem {
    name: "xfs",
    folder: Guest::XFS,
    disk: Some("nvme0n1"),
    calls: "local",
    ways: "ways",
    requests: REQUESTS,
    lacks: &[],
};
const BTRFS: FileSystem = FileSystem {
    name: "btrfs",
    folder: "/mnt/btrfs",
    disk: Some("nullb0"),
    ..XFS
};
const F2FS: FileSystem = FileSystem {
    name: "f2fs",
    folder: "/mnt/f2fs",
    disk: Some("nullb0"),
    ..XFS
};
const NFS: FileSystem = FileSystem {
    name: "nfs",
    folder: Nfs::FOLDER,
    disk: None,
    calls: "remote",
    ..XFS
};
/// It may lack direct I/O, has no device to write back to, and its mapped pages are always writable.
const TMPFS: FileSystem = FileSystem {
    name: "tmpfs",
    folder: "/mnt/tmpfs",
    disk: None,
    calls: "memory",
    requests: CACHED,
    lacks: &["mkwrite"],
    ..XFS
};
/// The file system below performs synchronous writes, and its files are the mapped ones.
const OVERLAY: FileSystem = FileSystem {
    name: "overlay",
    folder: "/mnt/overlay",
    disk: None,
    calls: "remote",
    ways: "splices",
    ..XFS
};

/// A file system on a disk in memory, while this exists.
struct OnDisk {
    // Dropped in this order.
    _mounted: Mounted,
    _disks: NullDisks,
    _peers: Peers,
    _module: Loaded,
    /// The modules that it requests by an alias.
    _crc32: Option<Loaded>,
}

impl OnDisk {
    fn new(guest: &Guest, file_system: &FileSystem, mkfs: &[&str]) -> Result<Self, String> {
        let crc32 = guest.load("crc32_generic", "").ok();
        let module = guest.load(file_system.name, "")?;
        let peers = Peers::new(guest)?;
        let disks = NullDisks::new(guest, 1, &[("size", "256")])?;
        let mkfs = [mkfs, &[NullDisks::FIRST]].concat();
        run(&mut peers::command(&mkfs), MINUTE)?.success()?;
        Ok(Self {
            _mounted: Mounted::mount(NullDisks::FIRST, file_system.folder, file_system.name, "")?,
            _disks: disks,
            _peers: peers,
            _module: module,
            _crc32: crc32,
        })
    }
}

/// An overlay above ext4, while this exists.
struct OnExt4 {
    // Dropped in this order.
    _mounted: Mounted,
    _module: Loaded,
}

impl OnExt4 {
    fn new(guest: &Guest) -> Result<Self, String> {
        let module = guest.load("overlay", "")?;
        let [lower, upper, work] = ["lower", "upper", "work"].map(|name| format!("/mnt/ext4/overlay/{name}"));
        for folder in [&lower, &upper, &work] {
            fs::create_dir_all(folder).map_err(|e| format!("{folder}: {e}"))?;
        }
        let layers = format!("lowerdir={lower},upperdir={upper},workdir={work}");
        Ok(Self {
            _mounted: Mounted::mount("overlay", OVERLAY.folder, "overlay", &layers)?,
            _module: module,
        })
    }
}

/// A file system's processes, and what they do.
struct Load {
    processes: Vec<Workload>,
    truth: Calls,
}

impl Load {
    /// On files of its own with this name, so that loads do not affect each other.
    fn new(file_system: &FileSystem, own: &str) -> Result<Self, String> {
        let FileSystem {
            name,
            folder,
            calls,
            ways,
            ..
        } = file_system;
        let [calls_on, ways_on, requests_on] =
            ["calls", "ways", "requests"].map(|file| format!("{folder}/filesystems/{own}/{file}"));
        for file in [&calls_on, &ways_on, &requests_on] {
            prepare(file)?;
        }
        let spec = |set, threads, file| Spec {
            set,
            threads,
            rounds: 3,
            file,
            name: "worker",
        };
        let (calls, ways) = (spec(calls, 2, &*calls_on), spec(ways, 1, &*ways_on));
        let mut command = ["/init", "async", &requests_on].map(String::from).to_vec();
        let mut requests = Calls::default();
        for &(kinds, op, number) in file_system.requests {
            command.extend(kinds.iter().map(|kind| format!("{kind}:{number}")));
            let calls = number * kinds.len() as u64;
            let count = Count {
                calls,
                bytes: if op == "fsync" { 0 } else { calls * u64::from(BLOCK) },
                errors: 0,
            };
            requests.ops.insert(((*name).into(), op.into()), count);
        }
        let mut truth = calls.truth().with(&ways.truth()).on(name).with(&requests);
        truth.ops.retain(|(_, op), _| !file_system.lacks.contains(&&**op));
        Ok(Self {
            truth,
            processes: vec![
                Workload::start(&calls)?,
                Workload::start(&ways)?,
                Workload::launch(&command)?,
            ],
        })
    }
}

/// Traces all of it.
fn traced(guest: &Guest, arguments: &[&str], loads: Vec<Load>) -> Result<Report, String> {
    let processes = loads.iter().flat_map(|load| &load.processes);
    let pids: Vec<String> = processes.map(|process| process.pid.to_string()).collect();
    let tool = Tool::start(guest, &[arguments, &["-p", &pids.join(",")]].concat())?;
    let truth = loads.iter().fold(Calls::default(), |sum, load| sum.with(&load.truth));
    for process in loads.into_iter().flat_map(|load| load.processes) {
        process.work()?;
    }
    let mut ended = tool.finish()?;
    let reported = ended.report()?;
    reported.is_exactly(&truth).map_err(|e| format!("{arguments:?}: {e}"))?;
    Ok(ended.reports.remove(0))
}

/// With the best hook and with kprobes, with which files are also recognised by their disk. `_made`: the file system,
/// which is dropped at the end.
fn counts<T>(guest: &Guest, file_system: &FileSystem, _made: T) -> Result<(), String> {
    // Before 5.11 modules have no BTF, and so no fentry.
    let best: &Hook = if (FENTRY.exact)(guest) && guest.kernel != "5.10" {
        &FENTRY
    } else {
        &AUTO
    };
    let on_disk = file_system.disk.map_or(vec![], |disk| vec!["-d", disk]);
    // There may be more concurrent io_uring workers than a kretprobe's pool has instances.
    for (hook, filter) in [(best, &[][..]), (&KPROBE_EVENT, &on_disk)] {
        let arguments = [&["-T", file_system.name, "--probe", hook.probe], filter].concat();
        // Before 6.6, tmpfs has no open operation.
        let lacks_open = file_system.name == TMPFS.name && ["5.10", "6.1"].contains(&&*guest.kernel);
        let mut load = Load::new(file_system, hook.probe)?;
        load.truth.ops.retain(|(_, op), _| !(lacks_open && op == "open"));
        let report = traced(guest, &arguments, vec![load])?;
        let layer = report.layer(file_system.name)?;
        if layer.not_measured.is_empty() == lacks_open || !(hook.name.is_empty() || layer.hooks == [hook.name]) {
            return Err(format!("by {:?}, not measured: {:?}", layer.hooks, layer.not_measured));
        }
    }
    Ok(())
}

/// Calls of shared functions belong to the file system of the file.
fn distinguished(guest: &Guest) -> Result<(), String> {
    const EXT: FileSystem = FileSystem {
        name: EXT4,
        folder: Guest::EXT4,
        disk: None,
        ..XFS
    };
    let loads = vec![Load::new(&EXT, "apart")?, Load::new(&XFS, "apart")?];
    traced(guest, &["-T", "ext4,xfs"], loads).map(drop)
}

/// Each call to the overlay is one call to ext4.
fn both(guest: &Guest) -> Result<(), String> {
    let _made = OnExt4::new(guest)?;
    // Some kernels implement a splice as a read.
    let file_system = FileSystem {
        ways: "none",
        ..OVERLAY
    };
    for hook in [&AUTO, &KPROBE_EVENT] {
        let mut load = Load::new(&file_system, hook.probe)?;
        let below = load.truth.clone().moved(OVERLAY.name, EXT4);
        load.truth = load.truth.with(&below);
        traced(guest, &["-T", "overlay,ext4", "--probe", hook.probe], vec![load])?;
    }
    Ok(())
}

/// The row appears if tmpfs is named, and only then.
fn named_beside_all(guest: &Guest) -> Result<(), String> {
    let _mounted = Mounted::mount("tmpfs", TMPFS.folder, "tmpfs", "")?;
    let file = "/mnt/tmpfs/stack/file";
    prepare(file)?;
    let path = guest.tool().ok_or("there is no tool")?;
    for (arguments, is_there) in [(&["-T", "all,tmpfs"][..], true), (&[][..], false)] {
        let workload = ["--", "/init", "workload", "memory", "1", "3", file, "worker"];
        let output = run(
            Command::new(path)
                .args(arguments)
                .args(["-o", "-", "--verbose"])
                .args(workload),
            MINUTE,
        )?;
        let output = output.success()?;
        let rows = output
            .stdout
            .lines()
            .filter(|line| line.trim_start().starts_with("tmpfs "));
        if (rows.count() > 0) != is_there {
            return Err(format!("{arguments:?}: {}", output.stdout));
        }
    }
    Ok(())
}

/// A one-line error, and the module is not loaded for it.
fn not_loaded(guest: &Guest) -> Result<(), String> {
    const MODULE: &str = "/sys/module/btrfs";
    let path = guest.tool().ok_or("there is no tool")?;
    for (arguments, status) in [(&["-T", "ext4,btrfs"][..], 1), (&["-T", "btrfs", "--", "/init"], 125)] {
        if Path::new(MODULE).exists() {
            return Err("btrfs is loaded".into());
        }
        let output = run(Command::new(path).args(arguments), MINUTE)?;
        let reported =
            "error: -T btrfs: the module btrfs is not loaded; mount such a file system first, or run: modprobe btrfs\n";
        if output.stderr != reported || output.status.code() != Some(status) || !output.stdout.is_empty() {
            return Err(format!("{arguments:?}: {output:?}"));
        }
    }
    if Path::new(MODULE).exists() {
        return Err("btrfs was loaded".into());
    }
    Ok(())
}
