//! Process 1: from the start of the kernel to the last verdict.

use super::modules::Modules;
use super::process::{ran_out, wait_for};
use super::runner::run_check;
use super::verdict::Verdicts;
use super::{Check, Guest};
use crate::checks;
use crate::protocol::{Event, ORDERS, Orders};
use nix::mount::{MsFlags, mount};
use nix::sys::reboot::{RebootMode, reboot};
use nix::sys::resource::{Resource, setrlimit};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Source, target, type. Each is required: without one, a check would test the wrong thing.
const MOUNTS: [(&str, &str); 10] = [
    ("proc", "/proc"),
    ("sysfs", "/sys"),
    ("devtmpfs", "/dev"),
    ("devpts", "/dev/pts"),
    ("tmpfs", "/dev/shm"),
    ("tmpfs", "/tmp"),
    ("tmpfs", "/run"),
    ("debugfs", "/sys/kernel/debug"),
    ("tracefs", "/sys/kernel/tracing"),
    ("cgroup2", "/sys/fs/cgroup"),
];
/// Loaded if they are modules; otherwise they are built in.
const AT_BOOT: [&str; 6] = ["crc32c_generic", "mq_deadline", "nvme", "ext4", "xfs", "virtio_pci"];
/// The scratch disk's partitions.
const DISKS: [(&str, &str, &str); 2] = [
    ("/dev/nvme0n1p1", "ext4", Guest::EXT4),
    ("/dev/nvme0n1p2", "xfs", Guest::XFS),
];
/// How long the disk may take to appear.
const DISK_BOUND: Duration = Duration::from_secs(60);
/// Enough files and maps for the 512-thread checks.
const FILES: u64 = 65_536;

/// Never returns.
pub fn init() -> ! {
    let verdicts = match mount_all().and_then(|()| Verdicts::open()) {
        Ok(verdicts) => verdicts,
        Err(error) => {
            eprintln!("init: {error}");
            end()
        }
    };
    match catch_unwind(AssertUnwindSafe(|| boot_and_run(&verdicts))) {
        Ok(Ok(())) => {}
        Ok(Err(reason)) => verdicts.send(&Event::Broken(reason)),
        Err(_) => verdicts.send(&Event::Broken("init panicked; see the console".into())),
    }
    verdicts.drain();
    end()
}

/// A reset rather than a power-off: every kernel supports it, and QEMU exits with `-no-reboot`.
fn end() -> ! {
    nix::unistd::sync();
    let Err(error) = reboot(RebootMode::RB_AUTOBOOT);
    panic!("reset refused: {error}");
}

fn mount_all() -> Result<(), String> {
    for (kind, target) in MOUNTS {
        std::fs::create_dir_all(target).map_err(|e| format!("{target}: {e}"))?;
        mount(Some(kind), target, Some(kind), MsFlags::empty(), None::<&str>)
            .map_err(|e| format!("{kind} on {target}: {e}"))?;
    }
    Ok(())
}

/// Whether a mount was made by init, for all checks.
pub fn is_of_init(target: &str) -> bool {
    let targets = MOUNTS.iter().map(|(_, target)| target);
    target == "/"
        || targets
            .chain(DISKS.iter().map(|(_, _, target)| target))
            .any(|&of_init| of_init == target)
}

fn boot_and_run(verdicts: &Verdicts) -> Result<(), String> {
    let orders = std::fs::read_to_string(ORDERS).map_err(|e| format!("{ORDERS}: {e}"))?;
    let orders = Orders::parse(&orders)?;
    // SAFETY: init has a single thread.
    unsafe { std::env::set_var("PATH", "/bin:/sbin:/usr/bin:/usr/sbin") };
    setrlimit(Resource::RLIMIT_NOFILE, FILES, FILES).map_err(|e| format!("RLIMIT_NOFILE: {e}"))?;

    let modules = Modules::list()?;
    for module in AT_BOOT {
        if modules.has(module) {
            modules.load(module, "")?.keep();
        }
    }
    for (device, kind, target) in DISKS {
        wait_for(device, DISK_BOUND, || Path::new(device).exists())?;
        std::fs::create_dir_all(target).map_err(|e| format!("{target}: {e}"))?;
        mount(Some(device), target, Some(kind), MsFlags::empty(), None::<&str>)
            .map_err(|e| format!("{device} on {target}: {e}"))?;
    }

    let guest = Guest::new(&orders, modules)?;
    let Guest {
        release,
        version,
        preemption,
        ..
    } = &guest;
    verdicts.send(&Event::Booted(format!(
        "{release} ({version}), preemption: {preemption}"
    )));
    match &orders.exec {
        Some(command) => exec(command, verdicts),
        None => {
            run_all(&orders, &guest, verdicts);
            Ok(())
        }
    }
}

fn run_all(orders: &Orders, guest: &Guest, verdicts: &Verdicts) {
    let (mut passed, mut failed) = (0, 0);
    for check in checks::all().filter(|check| wanted(check, orders, guest)) {
        verdicts.send(&Event::Started(check.name.into()));
        let mut verdict = run_check(check, guest);
        if let Err(reason) = &verdict
            && (check.is_timed || ran_out(reason))
        {
            verdicts.send(&Event::Noted(format!("first attempt of {}: {reason}", check.name)));
            verdict = run_check(check, guest);
        }
        match verdict {
            Ok(()) => {
                passed += 1;
                verdicts.send(&Event::Passed(check.name.into()));
            }
            Err(reason) => {
                failed += 1;
                verdicts.send(&Event::Failed(check.name.into(), reason));
            }
        }
    }
    verdicts.send(&Event::Done(passed, failed));
}

fn wanted(check: &Check, orders: &Orders, guest: &Guest) -> bool {
    orders.filter.as_deref().is_none_or(|part| check.name.contains(part))
        && check.is_for(&guest.variant)
        && (orders.every || checks::is_selected(check.name, &orders.configuration(), orders.once))
        && (check.when)(guest)
}

/// Runs the developer's own command, with both outputs in one stream as on a terminal.
fn exec(command: &[String], verdicts: &Verdicts) -> Result<(), String> {
    let (program, arguments) = command.split_first().ok_or("nothing to run")?;
    install_busybox()?;
    let (output, sink) = nix::unistd::pipe().map_err(|e| format!("pipe: {e}"))?;
    let second = sink.try_clone().map_err(|e| format!("pipe: {e}"))?;
    // The command owns both ends of the pipe and is dropped here; otherwise the read would never end.
    let spawned = Command::new(program)
        .args(arguments)
        .current_dir(Guest::EXT4)
        .stdin(Stdio::null())
        .stdout(sink)
        .stderr(second)
        .spawn();
    let mut child = spawned.map_err(|e| format!("{program}: {e}"))?;
    for line in BufReader::new(File::from(output)).split(b'\n') {
        let line = line.map_err(|e| format!("{program}: {e}"))?;
        verdicts.send(&Event::Output(String::from_utf8_lossy(&line).into_owned()));
    }
    let status = child.wait().map_err(|e| format!("{program}: {e}"))?;
    verdicts.send(&Event::Exited(
        status.code().unwrap_or(128 + status.signal().unwrap_or(0)),
    ));
    Ok(())
}

/// A link per applet, so that scripts find `sh`, `dd` and the like.
fn install_busybox() -> Result<(), String> {
    const BUSYBOX: &str = "/bin/busybox";
    if !Path::new(BUSYBOX).exists() {
        return Ok(());
    }
    let list = Command::new(BUSYBOX)
        .arg("--list")
        .output()
        .map_err(|e| format!("{BUSYBOX}: {e}"))?;
    for applet in String::from_utf8_lossy(&list.stdout).lines() {
        let link = format!("/bin/{applet}");
        match symlink(BUSYBOX, &link) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(format!("{link}: {error}")),
            _ => {}
        }
    }
    Ok(())
}
