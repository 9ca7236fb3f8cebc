//! With the capabilities listed in docs/permissions.md, a user measures as root does, and an error names a missing one.

use super::exact::{Traced, trace_by};
use super::fallback::Sysctl;
use crate::guest::{Check, Guest, run};
use crate::target::{BLOCK, Reads};
use std::ffi::CString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

pub const CHECKS: &[Check] = &[
    Check::new("privileges: the documented capabilities are enough", enough).when(differs),
    Check::new("privileges: the capability that is missing is named", one_less).when(differs),
];

/// Kernels without and with tasks that are preempted inside the kernel, or ext4 as a module; and the oldest kernel,
/// with its memory limit.
fn differs(guest: &Guest) -> bool {
    let wanted = matches!(
        (guest.kernel.as_str(), guest.variant.as_str()),
        ("5.10" | "6.1-full" | "6.12" | "7", "") | ("6.12", "preempt=full")
    );
    guest.tool().is_some() && wanted
}

const PERMISSIONS: &str = include_str!("../../../docs/permissions.md");
const USER: u32 = 1000;
const FOLDER: &str = "/tmp/privileges";
const TOOL: &str = "/tmp/privileges/tool";
const REPORT: &str = "/tmp/privileges/report";
const FILE: &str = "/mnt/ext4/privileges";
const READS: u64 = 29;
const MINUTE: Duration = Duration::from_secs(60);

/// include/uapi/linux/capability.h
const CAPABILITIES: [(&str, u32); 6] = [
    ("cap_dac_override", 1),
    ("cap_dac_read_search", 2),
    ("cap_sys_admin", 21),
    ("cap_sys_resource", 24),
    ("cap_perfmon", 38),
    ("cap_bpf", 39),
];

/// Whether the first of the page's command lines is not enough: tasks are preempted inside the kernel, or ext4 is a
/// module.
fn wants_all(guest: &Guest) -> bool {
    guest.preemptible() || guest.kernel.ends_with("-full")
}

/// The capabilities that the page lists for this kernel.
fn documented(guest: &Guest) -> Result<Vec<&'static str>, String> {
    let mut lines = PERMISSIONS.lines().filter_map(|line| line.strip_prefix("setcap "));
    let line = lines.nth(usize::from(wants_all(guest)));
    let names = line.and_then(|line| line.split_once("=ep ")).map(|(names, _)| names);
    Ok(names
        .ok_or("docs/permissions.md has no line for it")?
        .split(',')
        .collect())
}

/// Debian's settings, while this exists.
fn strict() -> Result<[Sysctl; 3], String> {
    Ok([
        Sysctl::set("kernel/perf_event_paranoid", "3")?,
        Sysctl::set("kernel/kptr_restrict", "2")?,
        Sysctl::set("kernel/unprivileged_bpf_disabled", "2")?,
    ])
}

/// The user's copy of the tool with these capabilities, as set by `setcap NAMES=ep`.
fn tool(guest: &Guest, names: &[&str]) -> Result<Command, String> {
    fs::create_dir_all(FOLDER).map_err(|e| format!("{FOLDER}: {e}"))?;
    fs::set_permissions(FOLDER, fs::Permissions::from_mode(0o777)).map_err(|e| format!("{FOLDER}: {e}"))?;
    // The helper of an earlier run may still be using the file.
    let _ = fs::remove_file(TOOL);
    fs::copy(guest.tool().ok_or("there is no tool")?, TOOL).map_err(|e| format!("{TOOL}: {e}"))?;
    let mut permitted = 0_u64;
    for name in names {
        let known = CAPABILITIES.iter().find(|(known, _)| known == name);
        permitted |= 1 << known.ok_or_else(|| format!("{name} is unknown"))?.1;
    }
    // struct vfs_cap_data, include/uapi/linux/capability.h: version 2, effective; permitted and inheritable by halves.
    let words = [0x0200_0001, permitted as u32, 0, (permitted >> 32) as u32, 0];
    let bytes: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
    let path = CString::new(TOOL).map_err(|e| e.to_string())?;
    // SAFETY: names are terminated, and the value has the given length.
    let set = unsafe {
        libc::setxattr(
            path.as_ptr(),
            c"security.capability".as_ptr(),
            bytes.as_ptr().cast(),
            bytes.len(),
            0,
        )
    };
    if set != 0 {
        return Err(format!("{TOOL}: capabilities: {}", std::io::Error::last_os_error()));
    }
    let mut command = Command::new(TOOL);
    command.uid(USER).gid(USER);
    Ok(command)
}

fn reads() -> Result<[String; 5], String> {
    // The user cannot write root's files.
    let _ = Reads::said();
    fs::write(FILE, [1; BLOCK]).map_err(|e| format!("{FILE}: {e}"))?;
    Ok(["/init", "target", "cached", FILE, &READS.to_string()].map(Into::into))
}

fn is_exact(traced: &Traced) -> Result<(), String> {
    let calls = traced.op("ext4", "read")?.calls;
    if calls == READS && traced.lines("LOST ").is_empty() {
        Ok(())
    } else {
        Err(format!("{calls} of {READS} reads:\n{}", traced.all()))
    }
}

fn enough(guest: &Guest) -> Result<(), String> {
    let _strict = strict()?;
    let names = documented(guest)?;
    let reads = reads()?;
    let ext4 = ["-T", "ext4", "-S", "--"].into_iter();
    let arguments: Vec<&str> = ext4.chain(reads.iter().map(String::as_str)).collect();
    is_exact(&trace_by(&mut tool(guest, &names)?, REPORT, &arguments)?)?;
    // The whole stack needs every kind of hook.
    let arguments: Vec<&str> = ["--"].into_iter().chain(reads.iter().map(String::as_str)).collect();
    let traced = trace_by(&mut tool(guest, &names)?, REPORT, &arguments)?;
    let is_whole = traced.lines("LOST ").is_empty() && traced.lines("lost 0").len() == 1;
    if is_whole && traced.report.contains(" calls ") {
        Ok(())
    } else {
        Err(format!("no whole stack:\n{}", traced.all()))
    }
}

/// Missing what the kernel requires is an error; what worsens the choice of hooks is in a note after the banner.
fn one_less(guest: &Guest) -> Result<(), String> {
    let _strict = strict()?;
    let names = documented(guest)?;
    let wanted: &[&str] = match (guest.kernel.as_str(), guest.preemptible()) {
        ("6.1-full", _) => &["cap_sys_admin"],
        ("5.10", _) => &["cap_bpf", "cap_perfmon", "cap_sys_resource"],
        (_, false) => &["cap_bpf", "cap_perfmon", "cap_dac_read_search"],
        // CAP_SYS_ADMIN includes the first two.
        (_, true) => &["cap_sys_admin", "cap_dac_override"],
    };
    let reads = reads()?;
    for missing in wanted {
        let rest: Vec<&str> = names.iter().copied().filter(|name| name != missing).collect();
        if rest.len() + 1 != names.len() {
            return Err(format!("docs/permissions.md does not have {missing}"));
        }
        let _ = fs::remove_file(REPORT);
        let mut tool = tool(guest, &rest)?;
        let output = run(tool.args(["-T", "ext4", "-S", "-o", REPORT, "--"]).args(&reads), MINUTE)?;
        let report = fs::read_to_string(REPORT).unwrap_or_default();
        let name = missing.to_uppercase();
        let reported = match output.status.code() {
            Some(0) => output.stderr.split_whitespace().any(|word| word.contains(&name)),
            Some(125) => output.stderr.lines().count() == 1 && output.stderr.contains(&name),
            _ => false,
        };
        if !reported {
            return Err(format!("without {missing}: {output:?}\n{report}"));
        }
    }
    Ok(())
}
