//! Errors are one line with the cause and what to do; and the tool continues without what it does not need.

use super::exact::trace;
use super::fallback::Sysctl;
use crate::guest::{Check, Guest, Output, Running, as_booted as check, run, wait_for};
use crate::target::BLOCK;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::Signal;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

pub const CHECKS: &[Check] = &[
    check("errors: an unprivileged user sees what is missing", unprivileged),
    check("errors: CAP_BPF and CAP_PERFMON are enough", two_capabilities)
        .when(|guest| guest.as_booted() && guest.has_trampolines()),
    check("errors: kprobes of perf want CAP_SYS_ADMIN", perf_kprobes),
    check(
        "errors: without tracefs it measures, or says what is missing",
        no_tracefs,
    ),
    check("errors: without BTF it says which option the kernel lacks", no_btf),
    check("errors: a hook that this kernel lacks", no_such_probe),
    check("errors: hidden addresses do no harm", hidden_addresses),
    check("errors: a closed pipe is the quiet end", closed_pipe),
    check("errors: Ctrl-C prints the report", interrupted),
    check("errors: a second Ctrl-C ends at once", interrupted_twice),
    check("errors: a full disk", full_disk),
];

/// Cannot be undone, so it comes last.
pub const LAST: &[Check] = &[check("errors: lockdown is reported", lockdown)];

const MINUTE: Duration = Duration::from_secs(60);
const BANNER: &str = "Tracing ";
const NOBODY: u32 = 65534;
const FILE: &str = "/mnt/ext4/errors";
/// Reads of it.
const READS: u64 = 23;

fn tool(guest: &Guest, arguments: &[&str]) -> Result<Command, String> {
    let mut command = Command::new(guest.tool().ok_or("there is no tool")?);
    command.args(arguments);
    Ok(command)
}

/// A single error line with these words, and exit status 1.
fn fails(mut command: Command, words: &[&str]) -> Result<(), String> {
    let output = run(&mut command, MINUTE)?;
    is_failure(&output, words).map_err(|error| format!("{command:?}: {error}: {output:?}"))
}

fn is_failure(output: &Output, words: &[&str]) -> Result<(), String> {
    let lines: Vec<&str> = output.stderr.lines().collect();
    let [line] = lines[..] else {
        return Err("not one line".into());
    };
    if output.status.code() != Some(1) || !line.starts_with("error: ") || !output.stdout.is_empty() {
        return Err("no error with status 1".into());
    }
    match words.iter().find(|word| !line.contains(**word)) {
        Some(missing) => Err(format!("nothing about {missing:?}")),
        None => Ok(()),
    }
}

fn is_report(output: &Output) -> Result<(), String> {
    if output.status.success() && output.stdout.contains("own process ") {
        Ok(())
    } else {
        Err(format!("no report: {output:?}"))
    }
}

/// Reads of a file on ext4 are counted exactly at ext4.
fn counts(guest: &Guest) -> Result<(), String> {
    fs::write(FILE, [1; BLOCK]).map_err(|e| format!("{FILE}: {e}"))?;
    let reads = READS.to_string();
    let traced = trace(
        guest,
        &["-T", "ext4", "-S", "--", "/init", "target", "cached", FILE, &reads],
    )?;
    if traced.op("ext4", "read")?.calls == READS && traced.lines("LOST ").is_empty() {
        Ok(())
    } else {
        Err(format!("{READS} reads were to be counted:\n{}", traced.all()))
    }
}

fn unprivileged(guest: &Guest) -> Result<(), String> {
    let mut nobody = tool(guest, &["-T", "vfs"])?;
    nobody.uid(NOBODY).gid(NOBODY);
    fails(nobody, &["CAP_BPF and CAP_PERFMON", "run as root"])?;
    let mut half = tool(guest, &["-T", "vfs"])?;
    with_capabilities(&mut half, &[CAP_BPF]);
    fails(half, &["needs CAP_PERFMON,"])
}

// include/uapi/linux/capability.h
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// Makes the command run with only these capabilities.
fn with_capabilities(command: &mut Command, capabilities: &'static [u32]) {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }
    const VERSION_3: u32 = 0x2008_0522;
    let become_them = move || {
        let mut sets = [[0_u32; 3]; 2];
        for capability in capabilities {
            sets[*capability as usize / 32]
                .iter_mut()
                .for_each(|set| *set |= 1 << (capability % 32));
        }
        let header = Header {
            version: VERSION_3,
            pid: 0,
        };
        // Before 5.11 programs and maps count against it, and raising it needs another privilege.
        let unlimited = libc::rlimit {
            rlim_cur: libc::RLIM_INFINITY,
            rlim_max: libc::RLIM_INFINITY,
        };
        // SAFETY: system calls on our own credentials, with structures that outlive the calls.
        let failed = unsafe {
            libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const unlimited) != 0
                || libc::prctl(libc::PR_SET_KEEPCAPS, 1, 0, 0, 0) != 0
                || libc::setgroups(0, std::ptr::null()) != 0
                || libc::setresgid(NOBODY, NOBODY, NOBODY) != 0
                || libc::setresuid(NOBODY, NOBODY, NOBODY) != 0
                || libc::syscall(libc::SYS_capset, &raw const header, &raw const sets) != 0
                || capabilities.iter().any(|capability| {
                    libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_RAISE, *capability, 0, 0) != 0
                })
        };
        if failed {
            Err(std::io::Error::last_os_error())
        } else {
            Ok(())
        }
    };
    // SAFETY: it makes system calls only.
    unsafe { command.pre_exec(become_them) };
}

/// Without CAP_SYSLOG addresses are hidden, so files in shared functions are recognised by the super block.
fn two_capabilities(guest: &Guest) -> Result<(), String> {
    let arguments = [
        "-T",
        "ext4",
        "--without",
        "ext4_file_read_iter",
        "--verbose",
        "--duration",
        "20ms",
    ];
    let mut command = tool(guest, &arguments)?;
    with_capabilities(&mut command, &[CAP_BPF, CAP_PERFMON]);
    let output = run(&mut command, MINUTE)?;
    is_report(&output)?;
    let reported = [
        "recognised by super block magic 0xef53",
        "no address of ext4_file_operations",
    ];
    if !reported.iter().all(|part| output.stderr.contains(part)) {
        return Err(output.stderr);
    }
    Ok(())
}

fn perf_kprobes(guest: &Guest) -> Result<(), String> {
    let _paranoid = Sysctl::set("kernel/perf_event_paranoid", "3")?;
    let mut command = tool(guest, &["-T", "vfs", "--probe", "kprobe"])?;
    with_capabilities(&mut command, &[CAP_BPF, CAP_PERFMON]);
    fails(command, &["CAP_SYS_ADMIN", "kernel.perf_event_paranoid is 3"])
}

/// In a mount namespace of its own.
fn own_mounts() -> Result<(), String> {
    unshare(CloneFlags::CLONE_NEWNS).map_err(|e| format!("unshare: {e}"))?;
    let flags = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(None::<&str>, "/", None::<&str>, flags, None::<&str>).map_err(|e| format!("private mounts: {e}"))
}

fn no_tracefs(guest: &Guest) -> Result<(), String> {
    own_mounts()?;
    for place in ["/sys/kernel/tracing", "/sys/kernel/debug"] {
        umount2(place, MntFlags::MNT_DETACH).map_err(|e| format!("{place}: {e}"))?;
    }
    counts(guest)?;
    // What the tool cannot work without.
    fails(tool(guest, &["-T", "vfs", "--probe", "kprobe-event"])?, &["tracefs"])?;
    fails(tool(guest, &["-T", "syscall", "--probe", "tracepoint"])?, &["tracefs"])
}

fn no_btf(guest: &Guest) -> Result<(), String> {
    own_mounts()?;
    mount(
        Some("tmpfs"),
        "/sys/kernel/btf",
        Some("tmpfs"),
        MsFlags::empty(),
        None::<&str>,
    )
    .map_err(|e| format!("/sys/kernel/btf: {e}"))?;
    fails(tool(guest, &["-T", "vfs"])?, &["CONFIG_DEBUG_INFO_BTF"])
}

fn no_such_probe(guest: &Guest) -> Result<(), String> {
    let absent: &[(&str, &str)] = match guest.kernel.as_str() {
        "5.10" | "6.1" | "6.1-full" => &[
            ("kprobe-multi", "no kprobe-multi;"),
            ("kprobe-session", "no kprobe-session;"),
            ("fsession", "no fsession;"),
        ],
        // It could crash the kernel.
        "7" => &[("kprobe-multi", "use --probe kprobe-session")],
        _ => &[],
    };
    // Functions have no tracepoints on any kernel.
    let everywhere = [
        ("tracepoint", "--probe tracepoint"),
        ("raw-tracepoint", "--probe raw-tracepoint"),
    ];
    for (probe, name) in absent.iter().chain(&everywhere) {
        fails(tool(guest, &["-T", "vfs", "--probe", probe])?, &[name])?;
    }
    Ok(())
}

fn hidden_addresses(guest: &Guest) -> Result<(), String> {
    let _hidden = Sysctl::set("kernel/kptr_restrict", "2")?;
    counts(guest)
}

/// `IOStackBreakdown -T vfs 1 5 | head -3`
fn closed_pipe(guest: &Guest) -> Result<(), String> {
    // Without notes, stderr only has the banner.
    let mut command = tool(guest, &["-q", "-T", "vfs", "1", "5"])?;
    let spawned = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = spawned.map_err(|e| format!("{command:?}: {e}"))?;
    let stdout = child.stdout.take().ok_or("no stdout")?;
    let lines: Vec<String> = BufReader::new(stdout).lines().take(3).map_while(Result::ok).collect();
    // The read end has been closed by now.
    let ended = wait_for("its end", MINUTE, || !matches!(child.try_wait(), Ok(None)));
    let _ = child.kill();
    let output = child.wait_with_output().map_err(|e| format!("{command:?}: {e}"))?;
    ended?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    let quiet = stderr.lines().count() == 1 && stderr.starts_with(BANNER);
    if lines.len() == 3 && quiet && output.status.success() {
        Ok(())
    } else {
        Err(format!("{lines:?} {} {stderr}", output.status))
    }
}

fn interrupted(guest: &Guest) -> Result<(), String> {
    let running = Running::start(&mut tool(guest, &["-T", "vfs"])?)?;
    wait_for("the banner", MINUTE, || running.stderr().contains(BANNER))?;
    running.signal(Signal::SIGINT)?;
    is_report(&running.finish(MINUTE)?)
}

/// The first one waits for the command, which never ends.
fn interrupted_twice(guest: &Guest) -> Result<(), String> {
    let running = Running::start(&mut tool(guest, &["-T", "vfs", "--", "/init", "pause"])?)?;
    wait_for("the banner", MINUTE, || running.stderr().contains(BANNER))?;
    running.signal(Signal::SIGINT)?;
    let stat = format!("/proc/{}/stat", running.pid());
    let is_over = || fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z "));
    if wait_for("patience", Duration::from_millis(500), is_over).is_ok() {
        return Err("one Ctrl-C ended it while its command ran".into());
    }
    running.signal(Signal::SIGINT)?;
    wait_for("the second Ctrl-C to end it", Duration::from_secs(2), is_over)?;
    // The command ends with this check.
    let pids = fs::read_dir("/proc").map_err(|e| format!("/proc: {e}"))?.flatten();
    for pid in pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok()) {
        if fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|words| words == b"/init\0pause\0") {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
    let status = running.finish(MINUTE)?.status;
    (status.code() == Some(130))
        .then_some(())
        .ok_or_else(|| format!("{status}"))
}

fn full_disk(guest: &Guest) -> Result<(), String> {
    let output = run(
        &mut tool(guest, &["-T", "vfs", "--duration", "20ms", "-o", "/dev/full"])?,
        MINUTE,
    )?;
    let last = output.stderr.lines().last().unwrap_or_default();
    if output.status.code() == Some(1) && last.starts_with("error: cannot write '/dev/full': No space left") {
        Ok(())
    } else {
        Err(format!("{output:?}"))
    }
}

/// It can only be undone by a reboot.
fn lockdown(guest: &Guest) -> Result<(), String> {
    const SECURITY: &str = "/sys/kernel/security";
    const LOCKDOWN: &str = "/sys/kernel/security/lockdown";
    if !std::path::Path::new(LOCKDOWN).exists() {
        mount(
            Some("securityfs"),
            SECURITY,
            Some("securityfs"),
            MsFlags::empty(),
            None::<&str>,
        )
        .map_err(|e| format!("{SECURITY}: {e}"))?;
    }
    fs::write(LOCKDOWN, "integrity").map_err(|e| format!("{LOCKDOWN}: {e}"))?;
    counts(guest)?;
    fs::write(LOCKDOWN, "confidentiality").map_err(|e| format!("{LOCKDOWN}: {e}"))?;
    fails(
        tool(guest, &["-T", "vfs"])?,
        &["the kernel is locked down (confidentiality)", "lockdown=integrity"],
    )
}
