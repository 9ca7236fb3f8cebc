//! Functions that a kernel lacks: alternatives count the same, or the report says what is missing.

use super::exact::{Traced, trace};
use crate::guest::{Check, Guest, as_booted as check, run};
use crate::protocol::LARGE;
use crate::target::BLOCK;
use object::write::{Object, StandardSection, Symbol, SymbolSection};
use object::{Architecture, BinaryFormat, Endianness, SectionKind, SymbolFlags, SymbolKind, SymbolScope};
use std::fs;
use std::process::Command;
use std::time::Duration;

pub const CHECKS: &[Check] = &[
    check("fallback: other file systems pass the shared function, too", shared),
    check("fallback: ext4 reads, recognised by the kernel's symbols", by_symbols).when(shows_data),
    check("fallback: ext4 reads, recognised by vmlinux", by_vmlinux).when(|guest| built_in(guest) && shows_data(guest)),
    check("fallback: ext4 reads, recognised by vmlinux and kcore", by_kcore)
        .when(|guest| built_in(guest) && shows_data(guest)),
    check("fallback: ext4 reads, recognised by the super block", by_magic),
    check("fallback: ext4 reads, when nothing shows an address", hidden),
    check("fallback: a vmlinux that does not help says why", wrong_vmlinux).when(shows_data),
    Check::new("fallback: counters of more CPUs than one value has room for", looked_up)
        .when(|guest| guest.variant == LARGE),
    check(
        "fallback: other candidates count, or it says that none does",
        candidates,
    )
    // What other candidates have is that of the kernels for x86-64.
    .when(|guest| guest.as_booted() && cfg!(target_arch = "x86_64")),
];

/// Debian's 6.1 for arm64 shows functions alone (`CONFIG_KALLSYMS_ALL`).
fn shows_data(guest: &Guest) -> bool {
    guest.as_booted() && (cfg!(target_arch = "x86_64") || guest.kernel != "6.1")
}

fn built_in(guest: &Guest) -> bool {
    guest.as_booted() && !is_module(guest)
}

/// Only Debian's full kernels have it as a module.
fn is_module(guest: &Guest) -> bool {
    guest.kernel.ends_with("-full")
}

const EXT4: &str = "/mnt/ext4/fallback";
const XFS: &str = "/mnt/xfs/fallback";
const TMPFS: &str = "/tmp/fallback";
const VMLINUX: &str = "/tmp/vmlinux";
/// Reads of each file through the page cache; and direct reads of the first one.
const CACHED: [(&str, u64); 3] = [(EXT4, 101), (XFS, 57), (TMPFS, 31)];
const DIRECT: u64 = 13;
const MINUTE: Duration = Duration::from_secs(60);
const NOT_MEASURED: &str = "not measured: ";
const SOURCE: &str = "ext4 files in functions that file systems share are recognised by ";

/// The tool's counts of reads on three file systems.
fn trace_reads(guest: &Guest, options: &[&str]) -> Result<Traced, String> {
    let mut arguments = vec!["-T", "ext4", "-S"];
    arguments.extend(options);
    let steps = steps(DIRECT)?;
    arguments.extend(["--", "/init"]);
    arguments.extend(steps.iter().map(String::as_str));
    trace(guest, &arguments)
}

/// The arguments of a target that reads all files.
fn steps(direct: u64) -> Result<Vec<String>, String> {
    let mut steps = vec!["target".to_string()];
    for (file, count) in CACHED {
        fs::write(file, [1; BLOCK]).map_err(|e| format!("{file}: {e}"))?;
        steps.extend(["cached".into(), file.into(), count.to_string()]);
    }
    steps.extend(["direct".into(), EXT4.into(), direct.to_string()]);
    Ok(steps)
}

/// The counts are the reads of ext4 except the direct ones, which the report names as missing; and the source is the
/// expected one.
fn falls_back(guest: &Guest, options: &[&str], source: &[&str]) -> Result<(), String> {
    let traced = trace_reads(guest, &[&["--without", "ext4_file_read_iter"], options].concat())?;
    counted(&traced, CACHED[0].1)?;
    let reported = traced.stderr.lines().find_map(|line| line.strip_prefix(SOURCE));
    let reported = reported.ok_or_else(|| format!("no source is named:\n{}", traced.stderr))?;
    if let Some(missing) = source.iter().find(|part| !reported.contains(**part)) {
        return Err(format!("recognised by {reported:?}, which is not {missing:?}"));
    }
    match traced.lines(NOT_MEASURED)[..] {
        [missed] if missed.starts_with("direct reads at ext4 (ext4_file_read_iter: ") => Ok(()),
        _ => Err(format!("not measured are not the direct reads:\n{}", traced.report)),
    }
}

fn counted(traced: &Traced, reads: u64) -> Result<(), String> {
    let op = traced.op("ext4", "read")?;
    if (op.calls, op.bytes) == (reads, reads * BLOCK as u64) && traced.lines("LOST ").is_empty() {
        Ok(())
    } else {
        Err(format!("{reads} reads were to be counted:\n{}", traced.all()))
    }
}

/// One layer's counters fit into a single value, those of three do not.
fn looked_up(guest: &Guest) -> Result<(), String> {
    let steps = steps(DIRECT)?;
    for (layers, place) in [("ext4", "a single value"), ("syscall,vfs,ext4", "array elements")] {
        let mut arguments = vec!["-T", layers, "-S", "--", "/init"];
        arguments.extend(steps.iter().map(String::as_str));
        let traced = trace(guest, &arguments)?;
        counted(&traced, CACHED[0].1 + DIRECT)?;
        let line = format!("counters are kept in {place}");
        if !traced.stderr.lines().any(|reported| reported == line) {
            return Err(format!("{layers}: it is not reported that {line}:\n{}", traced.stderr));
        }
    }
    Ok(())
}

/// The kernel's own count of calls. Without a filter the tool would count all of them.
fn shared(_: &Guest) -> Result<(), String> {
    const TRACEFS: &str = "/sys/kernel/tracing";
    const EVENT: &str = "iosb_check/shared";
    let write = |file: &str, text: &str| {
        let path = format!("{TRACEFS}/{file}");
        let mut options = fs::OpenOptions::new();
        let file = options.append(true).open(&path);
        file.and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()))
            .map_err(|e| format!("{path}: {text:?}: {e}"))
    };
    write("kprobe_events", &format!("p:{EVENT} generic_file_read_iter\n"))?;
    write(&format!("events/{EVENT}/enable"), "1")?;
    let ran = run(Command::new("/init").args(steps(0)?), MINUTE).and_then(|output| output.success());
    write(&format!("events/{EVENT}/enable"), "0")?;
    let profile = fs::read_to_string(format!("{TRACEFS}/kprobe_profile")).map_err(|e| format!("kprobe_profile: {e}"));
    write("kprobe_events", &format!("-:{EVENT}\n"))?;
    ran?;
    let profile = profile?;
    let mut words = profile.split_whitespace().skip_while(|word| *word != "shared").skip(1);
    let hits: u64 = words
        .next()
        .and_then(|word| word.parse().ok())
        .ok_or_else(|| format!("no hits in {profile:?}"))?;
    let (ext4, xfs) = (CACHED[0].1, CACHED[1].1);
    (hits >= ext4 + xfs)
        .then_some(())
        .ok_or_else(|| format!("only {hits} calls reached generic_file_read_iter, of {ext4} at ext4 and {xfs} at xfs"))
}

/// A kernel that cannot look up a single name (before 5.16) lists all of them.
fn by_symbols(guest: &Guest) -> Result<(), String> {
    let as_before = trace_reads(guest, &[])?;
    counted(&as_before, CACHED[0].1 + DIRECT)?;
    if !as_before.lines(NOT_MEASURED).is_empty() {
        return Err(format!(
            "something is not measured with all functions:\n{}",
            as_before.report
        ));
    }
    let source = if guest.kernel == "5.10" {
        "/proc/kallsyms"
    } else {
        "the kernel's symbols"
    };
    falls_back(guest, &[], &[source])
}

fn by_vmlinux(guest: &Guest) -> Result<(), String> {
    // The link address does not matter: only the distance to the running kernel's counts.
    const INVENTED: u64 = 0x1234_5000;
    let kernel = Kernel::read()?;
    kernel.write_vmlinux(INVENTED, true, &build_id()?)?;
    let source = format!("{VMLINUX} (offset from /proc/kallsyms)");
    falls_back(guest, &["--vmlinux", VMLINUX], &[&source])
}

fn by_kcore(guest: &Guest) -> Result<(), String> {
    let kernel = Kernel::read()?;
    kernel.write_vmlinux(kernel.offset(), true, &build_id()?)?;
    let _hidden = Sysctl::set("kernel/kptr_restrict", "2")?;
    let source = format!("{VMLINUX} (offset from /proc/kcore)");
    falls_back(guest, &["--vmlinux", VMLINUX], &[&source])
}

fn by_magic(guest: &Guest) -> Result<(), String> {
    let without = ["--without", "ext4_file_operations"];
    falls_back(
        guest,
        &without,
        &["super block magic 0xef53", "ext4_file_operations left out by --without"],
    )
}

fn hidden(guest: &Guest) -> Result<(), String> {
    let _hidden = Sysctl::set("kernel/kptr_restrict", "2")?;
    let why = if is_module(guest) {
        "ext4 is a module here"
    } else {
        "no vmlinux of "
    };
    falls_back(
        guest,
        &[],
        &["super block magic 0xef53", "no address of ext4_file_operations", why],
    )
}

fn wrong_vmlinux(guest: &Guest) -> Result<(), String> {
    let kernel = Kernel::read()?;
    let ours = build_id()?;
    let mut other = ours.clone();
    *other.last_mut().ok_or("the kernel has no notes")? ^= 1;
    let options = ["--vmlinux", VMLINUX];
    let magic = "super block magic 0xef53";

    // A file without the symbol: it belongs to a module, or was stripped.
    kernel.write_vmlinux(kernel.offset(), false, &ours)?;
    let why = if is_module(guest) {
        "ext4 is a module here: its symbols are not in vmlinux"
    } else {
        "has no symbol 'ext4_file_operations': use one that is not stripped"
    };
    falls_back(guest, &options, &[magic, why])?;

    kernel.write_vmlinux(kernel.offset(), true, &other)?;
    falls_back(guest, &options, &[magic, "/tmp/vmlinux belongs to another kernel"])?;

    fs::write(VMLINUX, "MZ").map_err(|e| format!("{VMLINUX}: {e}"))?;
    falls_back(
        guest,
        &options,
        &[magic, "/tmp/vmlinux is not an uncompressed 64-bit vmlinux"],
    )
}

/// The remaining functions of an op count the same, as long as the kernel calls any of them.
fn candidates(guest: &Guest) -> Result<(), String> {
    const FILE: &str = "/mnt/ext4/candidates";
    fs::write(FILE, [1; BLOCK]).map_err(|e| format!("{FILE}: {e}"))?;
    let without = |functions: &[&str]| -> Result<Traced, String> {
        let mut arguments = vec!["-T", "vfs", "-S", "-d", "nvme0n1p1"];
        for function in functions {
            arguments.extend(["--without", function]);
        }
        arguments.extend(["--", "/init", "target", "cached", FILE, "17", "sync", FILE, "3"]);
        trace(guest, &arguments)
    };

    let all: &[&str] = &[
        "vfs_fsync_range",
        "vfs_fsync",
        "do_fsync",
        "__x64_sys_fsync",
        "__x64_sys_fdatasync",
    ];
    let traced = without(all)?;
    let reported = format!("fsync at vfs ({}", all[..3].join(", "));
    if traced.op("vfs", "read")?.calls != 17
        || !traced
            .lines(NOT_MEASURED)
            .iter()
            .any(|line| line.starts_with(&reported))
    {
        return Err(traced.all());
    }
    // An inlined function sees nothing by itself, and the report says so.
    let traced = without(&["vfs_fsync_range", "do_fsync", "__x64_sys_fsync", "__x64_sys_fdatasync"])?;
    if !traced
        .lines(NOT_MEASURED)
        .iter()
        .any(|line| line.starts_with("most fsync calls"))
    {
        return Err(traced.all());
    }
    // Any other one is enough, whichever this kernel's fsync(2) calls.
    for functions in [&["vfs_fsync_range"][..], &["do_fsync"], &["vfs_fsync", "do_fsync"]] {
        let traced = without(functions)?;
        let counts = ["read", "fsync"].map(|op| traced.op("vfs", op).map(|op| op.calls));
        if counts != [Ok(17), Ok(3)] || !traced.lines(NOT_MEASURED).is_empty() {
            return Err(format!("without {functions:?}:\n{}", traced.all()));
        }
    }
    Ok(())
}

/// The addresses of the running kernel.
struct Kernel {
    stext: u64,
    /// The addresses of modules.
    operations: u64,
}

impl Kernel {
    /// The link address of x86-64 kernels (`__START_KERNEL`, arch/x86/include/asm/page_64_types.h).
    const LINKED: u64 = 0xffff_ffff_8100_0000;

    fn read() -> Result<Self, String> {
        let text = fs::read_to_string("/proc/kallsyms").map_err(|e| format!("/proc/kallsyms: {e}"))?;
        let address = |name: &str| {
            let line = text.lines().find(|line| line.split_whitespace().nth(2) == Some(name));
            let address = line.and_then(|line| u64::from_str_radix(line.split(' ').next()?, 16).ok());
            address
                .filter(|address| *address != 0)
                .ok_or_else(|| format!("/proc/kallsyms does not show {name}"))
        };
        Ok(Self {
            stext: address("_stext")?,
            operations: address("ext4_file_operations")?,
        })
    }

    /// The random offset at boot.
    fn offset(&self) -> u64 {
        self.stext.wrapping_sub(Self::LINKED)
    }

    /// An ELF file linked `offset` below the running kernel, with that build ID.
    fn write_vmlinux(&self, offset: u64, with_operations: bool, notes: &[u8]) -> Result<(), String> {
        let mut elf = Object::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
        elf.section_id(StandardSection::Text);
        let section = elf.add_section(Vec::new(), b".notes".to_vec(), SectionKind::Note);
        elf.append_section_data(section, notes, 4);
        let mut symbols = vec![("_stext", self.stext)];
        if with_operations {
            symbols.push(("ext4_file_operations", self.operations));
        }
        for (name, address) in symbols {
            elf.add_symbol(Symbol {
                name: name.into(),
                value: address.wrapping_sub(offset),
                size: 0,
                kind: SymbolKind::Data,
                scope: SymbolScope::Dynamic,
                weak: false,
                section: SymbolSection::Absolute,
                flags: SymbolFlags::None,
            });
        }
        let bytes = elf.write().map_err(|e| format!("{VMLINUX}: {e}"))?;
        fs::write(VMLINUX, bytes).map_err(|e| format!("{VMLINUX}: {e}"))
    }
}

/// The running kernel's build ID, as a note.
fn build_id() -> Result<Vec<u8>, String> {
    const NOTES: &str = "/sys/kernel/notes";
    let notes = fs::read(NOTES).map_err(|e| format!("{NOTES}: {e}"))?;
    let word = |at: usize| -> Option<usize> {
        let bytes: [u8; 4] = notes.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(bytes)).ok()
    };
    let mut at = 0;
    while let (Some(name), Some(size), Some(kind)) = (word(at), word(at + 4), word(at + 8)) {
        let end = at + 12 + name.next_multiple_of(4) + size.next_multiple_of(4);
        let note = notes.get(at..end).ok_or("a note is longer than all notes")?;
        if kind == 3 && note[12..].starts_with(b"GNU\0") {
            return Ok(note.to_vec());
        }
        at = end;
    }
    Err(format!("{NOTES} has no build id"))
}

/// A sysctl of the kernel, restored when this is dropped.
pub struct Sysctl {
    path: String,
    before: String,
}

impl Sysctl {
    pub fn set(name: &str, value: &str) -> Result<Self, String> {
        let path = format!("/proc/sys/{name}");
        let before = fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
        fs::write(&path, value).map_err(|e| format!("{path}: {e}"))?;
        Ok(Self { path, before })
    }
}

impl Drop for Sysctl {
    fn drop(&mut self) {
        if let Err(error) = fs::write(&self.path, &self.before) {
            eprintln!("{}: {error}", self.path);
        }
    }
}
