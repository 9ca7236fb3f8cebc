//! Privileges that this process lacks for tracing, with what to do about them.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use crate::sys::text_of;

// include/uapi/linux/capability.h
const CAP_DAC_OVERRIDE: u32 = 1;
const CAP_SYS_ADMIN: u32 = 21;
const CAP_SYS_RESOURCE: u32 = 24;
const CAP_PERFMON: u32 = 38;
/// Loading programs and, before Linux 5.19, reading maps.
pub const CAP_BPF: u32 = 39;

/// What prevents loading any program. `None`: nothing known in advance.
#[must_use]
pub fn missing() -> Option<String> {
    let status = text_of("/proc/self/status").unwrap_or_default();
    let lockdown = text_of("/sys/kernel/security/lockdown").unwrap_or_default();
    missing_by(effective(&status)?, &lockdown)
}

/// What the kernel did not permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denied {
    /// Loading programs, for reasons other than those that [`missing`] checks.
    Load,
    /// A perf event: a kprobe, or a classic tracepoint.
    PerfEvent,
    /// A perf event that is first created in tracefs.
    TracefsEvent,
}

/// The privileges that this process lacks for it, as far as they are known.
#[must_use]
pub fn lacking(denied: Denied) -> Option<String> {
    let status = text_of("/proc/self/status").unwrap_or_default();
    let paranoid = text_of("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    let process = Process {
        capabilities: effective(&status)?,
        is_root: nix::unistd::geteuid().is_root(),
        paranoid: paranoid.trim().parse().unwrap_or(0),
        memory_is_limited: denied == Denied::Load && memory_is_limited(),
        bpf: if denied == Denied::Load {
            table(1).map(drop)
        } else {
            Ok(())
        },
        has_filter: has_filter(&status),
        is_in_namespace: text_of("/proc/self/uid_map").is_ok_and(|map| !has_every_user(&map)),
    };
    lacking_by(denied, process)
}

/// Whether a map larger than RLIMIT_MEMLOCK is refused. Since 5.11 BPF memory is charged to control groups instead.
fn memory_is_limited() -> bool {
    let Ok((limit, _)) = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_MEMLOCK) else {
        return false;
    };
    let Ok(pages) = u32::try_from(limit / u64::from(PAGE)) else {
        return false;
    };
    // Otherwise the refusal is not due to the size.
    table(1).is_ok() && table(pages.saturating_add(1)).is_err_and(|error| error == libc::EPERM)
}

const PAGE: u32 = 4096;

/// Creates a map of this many pages. The error is the kernel's.
fn table(pages: u32) -> Result<OwnedFd, i32> {
    // SAFETY: no name and no options are passed.
    let table = unsafe {
        libbpf_sys::bpf_map_create(
            libbpf_sys::BPF_MAP_TYPE_ARRAY,
            std::ptr::null(),
            size_of::<u32>() as u32,
            PAGE,
            pages,
            std::ptr::null(),
        )
    };
    if table < 0 {
        return Err(-table);
    }
    // SAFETY: the kernel has just given us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(table) })
}

/// The error of a thread that could not be created. If a container's filter does not answer clone3 with ENOSYS, the C
/// library does not fall back to clone.
#[must_use]
pub fn of_a_thread(error: io::Error) -> io::Error {
    let status = text_of("/proc/self/status").unwrap_or_default();
    if error.raw_os_error() == Some(libc::EPERM) && has_filter(&status) {
        io::Error::other(format!(
            "cannot create a thread: this process's seccomp filter refuses clone3; {WITHOUT_FILTER}"
        ))
    } else {
        error
    }
}

/// What to do about it.
const WITHOUT_FILTER: &str = "run without the filter (docker, podman: --security-opt seccomp=unconfined)";

/// Whether system calls are filtered (`SECCOMP_MODE_FILTER`).
fn has_filter(status: &str) -> bool {
    let mode = status.lines().find_map(|line| line.strip_prefix("Seccomp:"));
    mode.is_some_and(|mode| mode.trim() == "2")
}

#[derive(Debug, Clone, Copy)]
struct Process {
    capabilities: u64,
    /// Whether it owns root's files.
    is_root: bool,
    paranoid: i32,
    /// BPF memory counts against RLIMIT_MEMLOCK.
    memory_is_limited: bool,
    /// The kernel's error, if it refuses even the smallest map.
    bpf: Result<(), i32>,
    /// Whether its system calls are filtered.
    has_filter: bool,
    /// Whether its privileges are those of a user namespace of its own, which BPF does not accept.
    is_in_namespace: bool,
}

/// Whether the map is that of the initial user namespace, which maps each user to itself.
fn has_every_user(map: &str) -> bool {
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

fn effective(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

fn has(capabilities: u64, capability: u32) -> bool {
    capabilities >> capability & 1 == 1
}

fn missing_by(capabilities: u64, lockdown: &str) -> Option<String> {
    let lacking: Vec<&str> = [(CAP_BPF, "CAP_BPF"), (CAP_PERFMON, "CAP_PERFMON")]
        .into_iter()
        .filter(|&(capability, _)| !has(capabilities, capability) && !has(capabilities, CAP_SYS_ADMIN))
        .map(|(_, name)| name)
        .collect();
    if !lacking.is_empty() {
        return Some(format!(
            "tracing needs {}, which this process does not have; run as root, or see docs/permissions.md",
            lacking.join(" and ")
        ));
    }
    lockdown.contains("[confidentiality]").then(|| {
        "the kernel is locked down (confidentiality), which forbids BPF to read its memory; boot with lockdown=integrity or without"
            .to_owned()
    })
}

fn lacking_by(denied: Denied, process: Process) -> Option<String> {
    let has = |capability| has(process.capabilities, capability);
    let mut lacking = Vec::new();
    // Debian's perf_event_paranoid 3 requires it for every event; for mainline's 2, CAP_PERFMON is enough.
    if denied != Denied::Load && process.paranoid >= 2 && !has(CAP_SYS_ADMIN) {
        lacking.push(format!(
            "CAP_SYS_ADMIN while kernel.perf_event_paranoid is {}",
            process.paranoid
        ));
    }
    if denied == Denied::TracefsEvent && !process.is_root && !has(CAP_DAC_OVERRIDE) {
        lacking.push("CAP_DAC_OVERRIDE to write to tracefs".to_owned());
    }
    if process.memory_is_limited && !has(CAP_SYS_RESOURCE) {
        lacking.push("CAP_SYS_RESOURCE before Linux 5.11 (or ulimit -l unlimited)".to_owned());
    }
    let what = match denied {
        Denied::Load => "loading BPF programs",
        Denied::PerfEvent => "a kprobe or tracepoint",
        Denied::TracefsEvent => "a kprobe event",
    };
    if process.is_in_namespace {
        return Some(format!(
            "{what} needs privileges of the initial user namespace, and this process runs in another one (rootless container?); run it as root on the host"
        ));
    }
    if !lacking.is_empty() {
        let only_paranoid = matches!(lacking.as_slice(), [one] if one.contains("perf_event_paranoid"));
        let or = if only_paranoid {
            ", or set kernel.perf_event_paranoid to 1"
        } else {
            ""
        };
        return Some(format!("{what} needs {}; run as root{or}", lacking.join(", and ")));
    }
    // It has all privileges, and is refused nevertheless.
    match process.bpf {
        Err(libc::EPERM | libc::EACCES | libc::ENOSYS) if process.has_filter => Some(format!(
            "{what} needs bpf(), which this process's seccomp filter refuses; {WITHOUT_FILTER}"
        )),
        Err(libc::ENOSYS) => Some(format!("{what} needs bpf(); this kernel lacks CONFIG_BPF_SYSCALL=y")),
        Err(libc::EPERM | libc::EACCES) => Some(format!(
            "{what} needs bpf(), which a security module (SELinux, AppArmor) denies this process; see dmesg or the audit log"
        )),
        _ if denied == Denied::PerfEvent && process.has_filter => Some(format!(
            "{what} needs perf_event_open(), which this process's seccomp filter may refuse; {WITHOUT_FILTER}"
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fuzz;

    #[test]
    fn what_is_missing_is_named() {
        let all = u64::MAX;
        assert_eq!(missing_by(all, "none [integrity] confidentiality"), None);
        assert!(missing_by(all, "none integrity [confidentiality]").is_some_and(|line| line.contains("locked down")));
        let line = missing_by(0, "").unwrap_or_default();
        assert!(line.contains("CAP_BPF and CAP_PERFMON"), "{line}");
        let only_bpf = missing_by(1 << CAP_BPF, "").unwrap_or_default();
        assert!(
            only_bpf.contains("CAP_PERFMON") && !only_bpf.contains("CAP_BPF"),
            "{only_bpf}"
        );
        assert_eq!(missing_by(1 << CAP_SYS_ADMIN, ""), None);
    }

    #[test]
    fn what_a_refused_hook_lacks_is_named() {
        let line = |denied, capabilities: u64, is_root, paranoid| {
            let process = Process {
                capabilities,
                is_root,
                paranoid,
                memory_is_limited: denied == Denied::Load,
                bpf: Ok(()),
                has_filter: false,
                is_in_namespace: false,
            };
            lacking_by(denied, process)
        };
        let perf = line(Denied::PerfEvent, 1 << CAP_PERFMON, false, 3).unwrap_or_default();
        assert!(
            perf.contains("CAP_SYS_ADMIN while kernel.perf_event_paranoid is 3") && !perf.contains("DAC"),
            "{perf}"
        );
        // CAP_PERFMON is enough there, and was checked before.
        assert_eq!(line(Denied::PerfEvent, 1 << CAP_PERFMON, false, 1), None);
        let both = line(Denied::TracefsEvent, 0, false, 3).unwrap_or_default();
        assert!(
            both.contains("CAP_SYS_ADMIN") && both.contains("CAP_DAC_OVERRIDE"),
            "{both}"
        );
        let write = line(Denied::TracefsEvent, 1 << CAP_SYS_ADMIN, false, 3).unwrap_or_default();
        assert!(
            !write.contains("CAP_SYS_ADMIN") && write.contains("CAP_DAC_OVERRIDE"),
            "{write}"
        );
        assert_eq!(line(Denied::TracefsEvent, 1 << CAP_SYS_ADMIN, true, 3), None);
        let memory = line(Denied::Load, 1 << CAP_BPF, false, 3).unwrap_or_default();
        assert!(
            memory.contains("CAP_SYS_RESOURCE") && memory.contains("ulimit -l"),
            "{memory}"
        );
        for denied in [Denied::Load, Denied::PerfEvent, Denied::TracefsEvent] {
            assert_eq!(line(denied, u64::MAX, true, 3), None);
        }
    }

    #[test]
    fn privileges_of_another_user_namespace_are_none() {
        assert!(has_every_user("         0          0 4294967295\n"));
        assert!(!has_every_user("         0       1000          1\n"));
        let process = Process {
            capabilities: u64::MAX,
            is_root: true,
            paranoid: 0,
            memory_is_limited: false,
            bpf: Ok(()),
            has_filter: false,
            is_in_namespace: true,
        };
        let line = lacking_by(Denied::Load, process).unwrap_or_default();
        assert!(line.contains("initial user namespace"), "{line}");
    }

    #[test]
    fn what_refuses_the_privileged_is_named() {
        let line = |denied, bpf, has_filter| {
            let process = Process {
                capabilities: u64::MAX,
                is_root: true,
                paranoid: 3,
                memory_is_limited: false,
                bpf,
                has_filter,
                is_in_namespace: false,
            };
            lacking_by(denied, process).unwrap_or_default()
        };
        for errno in [libc::EPERM, libc::ENOSYS] {
            let filtered = line(Denied::Load, Err(errno), true);
            assert!(filtered.contains("seccomp") && !filtered.contains("CAP_"), "{filtered}");
        }
        assert!(line(Denied::Load, Err(libc::EPERM), false).contains("security module"));
        assert!(line(Denied::Load, Err(libc::ENOSYS), false).contains("CONFIG_BPF_SYSCALL"));
        assert!(line(Denied::PerfEvent, Ok(()), true).contains("perf_event_open()"));
        assert_eq!(line(Denied::Load, Ok(()), true), "");
        assert_eq!(line(Denied::Load, Err(libc::EMFILE), false), "");
    }

    #[test]
    fn a_filter_is_seen() {
        assert!(has_filter("NoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t1\n"));
        assert!(!has_filter("Seccomp:\t0\nSeccomp_filters:\t2\n"));
    }

    #[test]
    fn the_effective_set_is_found() {
        assert_eq!(
            effective("CapPrm:\t0\nCapEff:\t000001ffffffffff\n"),
            Some(0x1ff_ffff_ffff)
        );
        assert_eq!(effective("CapEff:\tzzz"), None);
    }

    proptest! {
        #![proptest_config(fuzz::config())]

        #[test]
        fn any_texts_are_read(status in fuzz::text_like("CapPrm:\t0\nCapEff:\t000001ffffffffff\n"), lockdown in fuzz::text_like("none [integrity]\n"), paranoid: i32) {
            if let Some(capabilities) = effective(&status) {
                let process = Process { capabilities, is_root: false, paranoid, memory_is_limited: true, bpf: Ok(()), has_filter: false, is_in_namespace: false };
                let _ = (missing_by(capabilities, &lockdown), lacking_by(Denied::TracefsEvent, process));
            }
        }
    }
}
