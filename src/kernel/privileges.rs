//! What this process lacks to trace, in words that name the way out.

use std::fs;

// include/uapi/linux/capability.h
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// What stands in the way of loading any program. `None`: nothing that can be told beforehand.
#[must_use]
pub fn missing() -> Option<String> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let lockdown = fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
    missing_by(effective(&status)?, &lockdown)
}

/// Whether perf's kprobes may be refused for want of CAP_SYS_ADMIN, as Debian's `perf_event_paranoid` 3 does.
#[must_use]
pub fn perf_hint() -> Option<String> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let paranoid = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    perf_hint_by(effective(&status)?, paranoid.trim().parse().ok()?)
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
            "tracing needs {}, which this process does not have; run as root",
            lacking.join(" and ")
        ));
    }
    lockdown.contains("[confidentiality]").then(|| {
        "the kernel is locked down (confidentiality), which forbids reading its memory; boot with lockdown=integrity"
            .to_owned()
    })
}

fn perf_hint_by(capabilities: u64, paranoid: i32) -> Option<String> {
    (paranoid >= 2 && !has(capabilities, CAP_SYS_ADMIN))
        .then(|| format!("kprobes need CAP_SYS_ADMIN while kernel.perf_event_paranoid is {paranoid}; run as root"))
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(perf_hint_by(1 << CAP_BPF, 3).is_some() && perf_hint_by(all, 3).is_none());
    }

    #[test]
    fn the_effective_set_is_found() {
        assert_eq!(
            effective("CapPrm:\t0\nCapEff:\t000001ffffffffff\n"),
            Some(0x1ff_ffff_ffff)
        );
        assert_eq!(effective("CapEff:\tzzz"), None);
    }
}
