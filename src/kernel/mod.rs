//! The facts about this machine's kernel that `probe::plan` decides on.
//!
//! No fact is derived from the kernel's version. Each is read once from where the kernel exposes it.

mod beginnings;
pub mod block;
pub mod btf;
pub mod builder;
pub mod cgroup;
pub mod description;
pub mod disk;
pub mod disks;
pub mod diskstats;
pub mod file;
pub mod file_operations;
#[cfg(feature = "kernel-side")]
pub mod interface;
pub mod kallsyms;
pub mod lookup;
pub mod names;
pub mod owners;
pub mod preemption;
pub mod privileges;
pub mod processes;
pub mod root;
pub mod vmlinux;

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use self::block::BlockFacts;
use self::btf::{Btf, BtfFunction};
use self::builder::{FactsBuilder, MachineFacts};
use self::kallsyms::Symbols;
use self::lookup::Lookup;
use self::preemption::Preemption;
use crate::catalog::FileSystem;
use crate::cause::Cause;
use crate::model::abi::KERNEL_TYPES;
use crate::sys::{self, text_of};

/// A kernel function, as known from BTF and kallsyms.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Function {
    /// What the tracing hooks (fentry, fexit) need. `None`: it is not in BTF, so they cannot be used.
    pub btf: Option<BtfFunction>,
    /// Whether the kernel's symbol table has it as code. `None`: not looked up.
    pub symbol: Option<bool>,
    /// Its address; that of the first one if several have the name, as in the kernel's own lookup. `None`: not looked
    /// up ([`Facts::locate`]), or hidden.
    pub address: Option<NonZeroU64>,
}

impl Function {
    /// Whether there may be something to attach to. If the function was not looked up, attaching will show.
    #[must_use]
    pub fn may_exist(&self) -> bool {
        self.btf.is_some() || self.symbol != Some(false)
    }
}

/// How a `struct fprobe` keeps track of returns, which decides whether kprobe.multi and kprobe.session lose any.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Fprobe {
    /// This kernel has no fprobe (`CONFIG_FPROBE` off, or before 5.18).
    #[default]
    Absent,
    /// A pool of rethook nodes, which is exhausted when many tasks sleep.
    Rethook,
    /// The function graph tracer's stack of each task (4346ba160409, 6.14): no returns are lost.
    Graph,
}

/// Everything that decides how ops are measured on this kernel. The default is a kernel without any of it.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// The requested functions by their names in the kernel, including absent ones.
    pub functions: BTreeMap<String, Function>,
    pub preemption: Preemption,
    /// Whether trampolines can trace functions: the kernel has BTF and `CONFIG_FUNCTION_TRACER`'s direct calls.
    pub fentry: bool,
    /// `BPF_TRACE_FSESSION` (7.0), where `fentry` is available.
    pub fsession: bool,
    /// `BPF_TRACE_FENTRY_MULTI` (7.x): one program at the entries of several functions, by one link.
    pub fentry_multi: bool,
    /// The PMU `kprobe`.
    pub kprobe: bool,
    pub fprobe: Fprobe,
    /// Whether programs can address their CPU's value of a map without a lookup.
    pub per_cpu_values: bool,
    /// `BPF_TRACE_KPROBE_SESSION` (6.10).
    pub session: bool,
    /// Where tracefs is mounted, if it is accessible.
    pub tracefs: Option<PathBuf>,
    /// Whether tracing programs have task storage.
    pub task_storage: bool,
    /// Task storage cannot be allocated here: since 6.19 it uses `kmalloc_nolock`, which fails on a CPU without a
    /// 16-byte compare-and-exchange.
    pub storage_refused: bool,
    /// Whether programs may use atomic instructions that return the old value (5.12; on arm64 5.18).
    pub answering_atomics: bool,
    /// Numbers of the types that programs may cast pointers to (`bpf_rdonly_cast`, 6.2). Empty: they may not.
    pub cast_types: BTreeMap<&'static str, u32>,
    /// Type numbers of kernel functions that programs may call, by the identifiers used in the programs (`KFUNC_*`).
    pub kfuncs: BTreeMap<u32, u32>,
    /// Type numbers by which programs on events are attached, by section name: `tp_btf/sched_switch`.
    pub events: BTreeMap<String, u32>,
    pub block: BlockFacts,
    /// BTF of only the kernel types that the programs read. Empty: not extracted.
    pub types: Rc<[u8]>,
}

impl Facts {
    /// Looks up the addresses of functions, if that is fast. `for_links`: links are created by address, since for links
    /// created by name the kernel searches all of its symbols (`ftrace_lookup_symbols`).
    pub fn locate(&mut self, symbols: &LazySymbols, for_links: bool) {
        // Before 6.2 (60443c88f3a8), which also introduced `bpf_rdonly_cast`, each lookup by name does that as well.
        let is_quick = for_links && !self.cast_types.is_empty();
        for (name, function) in &mut self.functions {
            function.address = symbols.known_text_address(name, is_quick);
        }
    }
}

/// The memory of the machine in bytes.
#[must_use]
pub fn memory_bytes() -> u64 {
    sys::number_of(libc::_SC_PHYS_PAGES).saturating_mul(sys::page_bytes())
}

/// Numbers of the possible CPUs, in ascending order. `None`: not available.
#[must_use]
pub fn possible_cpus() -> Option<Vec<u32>> {
    numbers(&fs::read_to_string("/sys/devices/system/cpu/possible").ok()?)
}

/// Numbers of the CPUs that are in use now, in ascending order. `None`: not available.
#[must_use]
pub fn online_cpus() -> Option<Vec<u32>> {
    numbers(&fs::read_to_string("/sys/devices/system/cpu/online").ok()?)
}

/// Parses a list in the kernel's format: `0-3,5`. `None`: it is malformed.
fn numbers(list: &str) -> Option<Vec<u32>> {
    let mut numbers = Vec::new();
    for range in list.trim_end().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        numbers.extend(first.parse::<u32>().ok()?..=last.parse().ok()?);
    }
    Some(numbers)
}

/// `uname -r`; empty if it is not available.
#[must_use]
pub fn release() -> String {
    nix::sys::utsname::uname().map_or_else(
        |_| String::new(),
        |names| names.release().to_string_lossy().into_owned(),
    )
}

/// Why the facts could not be gathered.
#[derive(Debug)]
pub enum FactsError {
    NoBtf,
    Btf(std::io::Error),
    Kallsyms(std::io::Error),
}

impl std::fmt::Display for FactsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoBtf => f.write_str(
                "no BTF: /sys/kernel/btf/vmlinux does not exist; mount /sys, or use a kernel with CONFIG_DEBUG_INFO_BTF=y",
            ),
            Self::Btf(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                write!(f, "cannot read the kernel's BTF: {error}; run as root")
            }
            Self::Btf(error) => write!(f, "cannot read the kernel's BTF: {error}"),
            Self::Kallsyms(error) => write!(f, "cannot read /proc/kallsyms: {error}; mount /proc"),
        }
    }
}

impl From<FactsError> for Cause {
    fn from(error: FactsError) -> Self {
        Self {
            line: error.to_string(),
            errno: match error {
                FactsError::Btf(error) | FactsError::Kallsyms(error) => error.raw_os_error(),
                FactsError::NoBtf => None,
            },
        }
    }
}

/// The kernel's symbols. Addresses are looked up one by one if the kernel supports that; all symbols are read when
/// something else is needed.
pub struct LazySymbols {
    wanted: BTreeSet<String>,
    symbols: OnceCell<Symbols>,
    /// Contains `None` if this kernel does not support it.
    lookup: OnceCell<Option<Lookup>>,
}

impl LazySymbols {
    /// For these names, without those that this run must ignore.
    #[must_use]
    pub fn new(wanted: impl IntoIterator<Item = String>, without: &[String]) -> Self {
        let wanted = wanted.into_iter().filter(|name| !without.contains(name)).collect();
        Self {
            wanted,
            symbols: OnceCell::new(),
            lookup: OnceCell::new(),
        }
    }

    /// # Errors
    /// If `/proc/kallsyms` cannot be read.
    pub fn get(&self) -> Result<&Symbols, FactsError> {
        if let Some(symbols) = self.symbols.get() {
            return Ok(symbols);
        }
        let wanted: BTreeSet<&str> = self.wanted.iter().map(String::as_str).collect();
        let symbols = Symbols::read(&wanted).map_err(FactsError::Kallsyms)?;
        Ok(self.symbols.get_or_init(|| symbols))
    }

    /// The address of the first symbol of a name, from the kernel's lookup. `None`: it is not supported, or there is no
    /// such symbol.
    pub fn lookup(&self, name: &str) -> Option<NonZeroU64> {
        if !self.wanted.contains(name) {
            return None;
        }
        let lookup = self.lookup.get_or_init(|| Lookup::load().ok()).as_ref()?;
        lookup.address(name)
    }

    /// The address of a function, without reading all symbols for it. `None`: not known.
    fn known_text_address(&self, name: &str, may_look_up: bool) -> Option<NonZeroU64> {
        match self.symbols.get() {
            Some(symbols) => symbols.text_address(name),
            None if may_look_up => self.lookup(name),
            None => None,
        }
    }
}

/// Whether a kernel module is in use; for a file system's module, whether one is mounted in any namespace. True if it
/// is not known, for example for built-in code.
#[must_use]
pub fn is_in_use(module: &str) -> bool {
    text_of(format!("/sys/module/{module}/refcnt")).map_or(true, |users| users.trim() != "0")
}

/// Whether something was loaded as a module: built-in code has no state (kernel/module/sysfs.c).
fn is_loaded(module: &str) -> bool {
    Path::new("/sys/module").join(module).join("initstate").exists()
}

/// Whether a file system may be mounted: the kernel has it, and its module is in use. Never makes the kernel load a
/// module.
#[must_use]
pub fn has_mounted(file_system: &FileSystem) -> bool {
    let registered = text_of("/proc/filesystems").unwrap_or_default();
    let folder = Path::new("/sys/fs").join(file_system.name);
    // A network file system has a directory there, but no disks.
    let has_disk = |is_on_disk: bool| !is_on_disk || has_entry(&folder, Path::new("/sys/class/block"));
    is_on_disk(&registered, file_system.name).is_some_and(has_disk) && file_system.module.is_none_or(is_in_use)
}

/// Whether a file system is mounted in the mount namespace of this process or of PID 1.
#[must_use]
pub fn is_seen_mounted(file_system: &str) -> bool {
    let lists = ["/proc/self/mounts", "/proc/1/mounts"].map(|list| text_of(list).unwrap_or_default());
    let mut lines = lists.iter().flat_map(|list| list.lines());
    lines.any(|line| line.split(' ').nth(2) == Some(file_system))
}

/// Whether a file system uses a block device, from lines such as `nodev\tproc`. `None`: the kernel does not have it.
fn is_on_disk(registered: &str, name: &str) -> Option<bool> {
    let mut lines = registered.lines();
    let line = lines.find(|line| line.split_whitespace().last() == Some(name))?;
    Some(!line.starts_with("nodev"))
}

/// Whether a file system's directory in sysfs has an entry for a mounted one in any namespace: named after its disk, or
/// with a list of its disks. True if there is no such directory.
fn has_entry(folder: &Path, disks: &Path) -> bool {
    let Ok(mut entries) = fs::read_dir(folder) else {
        return true;
    };
    entries.any(|entry| {
        entry.is_ok_and(|entry| disks.join(entry.file_name()).exists() || entry.path().join("devices").is_dir())
    })
}

/// Gathers the facts about `functions` (name, and the module it may be in). Those in `without` are treated as missing.
///
/// # Errors
/// Without the kernel's BTF nothing can be measured, since all programs are relocated against it.
pub fn gather(
    functions: &BTreeMap<String, Option<&'static str>>,
    without: &[String],
    symbols: &LazySymbols,
) -> Result<Facts, FactsError> {
    let mut builder = FactsBuilder::new(functions, without);
    let wanted = builder.wanted();
    let types = read_types();
    let vmlinux = Btf::vmlinux(&wanted, &types)?;
    builder = builder.types(vmlinux.scan(&wanted));
    // A function missing from vmlinux may be in the module's own BTF; if there is none, only symbols can show that it
    // exists.
    for (module, missing) in builder.missing() {
        if let Some(btf) = vmlinux.module(module, &missing) {
            builder = builder.listed(btf.scan(&missing).functions);
        } else if is_loaded(module) {
            builder = builder.unlisted(module);
        }
    }
    let machine = MachineFacts {
        preemption: Preemption::read(),
        kprobe: Path::new("/sys/bus/event_source/devices/kprobe/type").exists(),
        tracefs: tracefs(),
        lacks_wide_exchange: !exchanges_16_bytes(),
    };
    // Reading the symbols takes tens of milliseconds.
    let builder = builder.symbols(|name, module| Ok(symbols.get()?.is_text(name, module)))?;
    Ok(builder.machine(machine).excerpt(&vmlinux.excerpt(&types)).build())
}

/// Whether the CPU can compare and exchange 16 bytes at once.
#[cfg(target_arch = "x86_64")]
fn exchanges_16_bytes() -> bool {
    std::arch::is_x86_feature_detected!("cmpxchg16b")
}

/// All CPUs of this architecture can.
#[cfg(target_arch = "aarch64")]
fn exchanges_16_bytes() -> bool {
    true
}

/// Names of the kernel's types that the programs read.
fn read_types() -> BTreeSet<&'static str> {
    KERNEL_TYPES.iter().map(|name| btf::essential(name)).collect()
}

/// Prefixes of the functions by which system calls enter: on x86-64, and on arm64
/// (arch/arm64/include/asm/syscall_wrapper.h).
pub const SYSCALL_PREFIXES: [&str; 2] = ["__x64_sys_", "__arm64_sys_"];
/// The prefix on this architecture.
#[cfg(target_arch = "x86_64")]
pub const SYSCALL_PREFIX: &str = SYSCALL_PREFIXES[0];
#[cfg(target_arch = "aarch64")]
pub const SYSCALL_PREFIX: &str = SYSCALL_PREFIXES[1];
/// System calls without arguments have no wrapper function: the two names have the same address (`__SYS_STUB0`,
/// arch/x86/include/asm/syscall_wrapper.h), and the kernel's types list the second one.
const WITHOUT_ARGUMENTS: [(&str, &str); 1] = [("__x64_sys_sync", "__do_sys_sync")];

/// The other name of such a function.
#[must_use]
pub fn other_name(function: &str) -> Option<&'static str> {
    let mut all = WITHOUT_ARGUMENTS.into_iter();
    all.find_map(|(name, other)| (name == function).then_some(other))
}

/// Prefix of the functions by which calls of 32-bit programs enter: arch/x86/include/asm/syscall_wrapper.h. Other
/// architectures have no such functions.
pub const COMPAT_SYSCALL_PREFIX: &str = "__ia32_";

/// Where tracefs is mounted and writable.
fn tracefs() -> Option<PathBuf> {
    ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"]
        .into_iter()
        .map(PathBuf::from)
        .find(|mount| mount.join("kprobe_events").exists() || mount.join("events/raw_syscalls").exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_numbers_are_read() {
        assert_eq!(numbers("0\n"), Some(vec![0]));
        assert_eq!(numbers("0-3,5,7-8\n"), Some(vec![0, 1, 2, 3, 5, 7, 8]));
        assert_eq!(numbers(""), None);
        assert_eq!(numbers("0-x"), None);
    }

    #[test]
    fn a_file_system_is_on_a_disk_unless_the_kernel_says_otherwise() {
        let registered = "nodev\tsysfs\nnodev\tnfs\n\text4\n\txfs\n";
        let reported = ["nfs", "ext4", "xfs", "btrfs"].map(|name| is_on_disk(registered, name));
        assert_eq!(reported, [Some(false), Some(true), Some(true), None]);
    }

    #[test]
    fn a_file_system_is_mounted_when_sysfs_has_its_disk() {
        let top = std::env::temp_dir().join(format!("iosb-mounted-{}", std::process::id()));
        let disks = top.join("block");
        let folder = |name: &str| top.join("fs").join(name);
        for path in [
            disks.join("sda1"),
            folder("ext4/features"),
            folder("xfs/stats"),
            folder("xfs/sda1"),
        ] {
            fs::create_dir_all(path).unwrap();
        }
        fs::create_dir_all(folder("btrfs/features")).unwrap();
        assert!(has_entry(&folder("xfs"), &disks));
        assert!(!has_entry(&folder("ext4"), &disks));
        assert!(!has_entry(&folder("btrfs"), &disks));
        fs::create_dir_all(folder("btrfs/0b7ad9e0/devices")).unwrap();
        assert!(has_entry(&folder("btrfs"), &disks));
        assert!(has_entry(&folder("nfs"), &disks), "it cannot be reported");
        fs::remove_dir_all(&top).unwrap();
    }
}
