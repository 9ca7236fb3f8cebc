//! The kernel's description of its types and functions.
//!
//! It has a hundred thousand types and more, of which few are needed. The others are skipped in place, and the needed
//! ones are recognised by the offset of their name, since each name is stored only once.

mod excerpt;
mod image;

pub use excerpt::essential;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;

use libbpf_sys as sys;

use self::image::{Image, Type, Wanted};
use super::beginnings::{Beginnings, LETTERS};
use super::block::BlockFacts;
use super::{FactsError, Fprobe};
use crate::model::abi::{
    KFUNC_PREEMPT_DISABLE, KFUNC_PREEMPT_ENABLE, KFUNC_RDONLY_CAST, KFUNC_SESSION_COOKIE, KFUNC_SESSION_COOKIE_CTX,
    KFUNC_SESSION_IS_RETURN, KFUNC_SESSION_IS_RETURN_CTX,
};

/// Where the kernel shows its BTF and that of its modules.
const FOLDER: &str = "/sys/kernel/btf";

/// A function that tracing programs can attach to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BtfFunction {
    /// Its type number, in the numbering of its module or of vmlinux.
    pub id: u32,
    /// The number of arguments; fexit finds the return value after them.
    pub args: u32,
    /// The module that contains it.
    pub module: Option<ModuleBtf>,
}

/// A module's BTF in the kernel. It cannot change while the descriptor is open.
#[derive(Debug, Clone)]
pub struct ModuleBtf {
    pub name: &'static str,
    /// `None` if it could not be opened (this needs CAP_SYS_ADMIN): then the function cannot be attached to.
    pub object: Option<Rc<OwnedFd>>,
}

impl PartialEq for ModuleBtf {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for ModuleBtf {}

/// Parsed BTF. A module's refers to vmlinux's.
pub struct Btf<'base> {
    image: Image<'base>,
    module: Option<ModuleBtf>,
}

/// The results of one pass over the types.
#[derive(Debug, Default)]
pub struct Scan {
    pub functions: Vec<(String, BtfFunction)>,
    pub fentry: bool,
    pub fprobe: Fprobe,
    pub per_cpu_values: bool,
    pub lockless_memory: bool,
    pub session: bool,
    pub fsession: bool,
    pub fentry_multi: bool,
    pub task_storage: bool,
    pub answering_atomics: bool,
    /// Whether static functions are included; before pahole 1.18 they were not.
    pub has_static: bool,
    /// Type numbers of kernel functions that programs may call, by the identifiers used in the programs (`KFUNC_*`).
    pub kfuncs: BTreeMap<u32, u32>,
    /// Type numbers by which programs on events and iterators are attached, by section name.
    pub events: BTreeMap<String, u32>,
    /// Numbers of the types of [`CAST_TYPES`], by name.
    pub cast_types: BTreeMap<&'static str, u32>,
    pub block: BlockFacts,
}

/// Types that programs cast pointers to.
pub const CAST_TYPES: [&str; 11] = [
    "file",
    "inode",
    "kiocb",
    "super_block",
    "request",
    "request_queue",
    "bio",
    "block_device",
    "gendisk",
    "pt_regs",
    "page",
];
/// Kernel functions that programs may call, their number of arguments, and their identifiers in the programs.
const KFUNCS: [(&str, u32, u32); 7] = [
    ("bpf_rdonly_cast", 2, KFUNC_RDONLY_CAST),
    ("bpf_preempt_disable", 0, KFUNC_PREEMPT_DISABLE),
    ("bpf_preempt_enable", 0, KFUNC_PREEMPT_ENABLE),
    ("bpf_session_is_return", 0, KFUNC_SESSION_IS_RETURN),
    ("bpf_session_is_return", 1, KFUNC_SESSION_IS_RETURN_CTX),
    ("bpf_session_cookie", 0, KFUNC_SESSION_COOKIE),
    ("bpf_session_cookie", 1, KFUNC_SESSION_COOKIE_CTX),
];
/// The function that represents the iterator over tasks.
const TASKS: &str = "bpf_iter_task";

/// A static function of fs/pipe.c, in every kernel and never inlined, since its address is in a table.
const STATIC_FUNCTION: &str = "pipe_poll";
/// A function of kernel/bpf/arraymap.c that exists if programs can address their CPU's value without a lookup.
const PER_CPU_VALUES: &str = "percpu_array_map_direct_value_addr";
/// The function of kernel/bpf/syscall.c that allocates task storage since 6.19 (f484f4a3e058).
const LOCKLESS_MEMORY: &str = "bpf_map_kmalloc_nolock";
const FPROBE: &str = "fprobe";
const RETHOOK: &str = "rethook";
const ATTACH_TYPES: &str = "bpf_attach_type";
const FENTRY: &str = "BPF_TRACE_FENTRY";
const FSESSION: &str = "BPF_TRACE_FSESSION";
const FENTRY_MULTI: &str = "BPF_TRACE_FENTRY_MULTI";
const SESSION: &str = "BPF_TRACE_KPROBE_SESSION";
const HELPERS: &str = "bpf_func_id";
/// A helper that tracing programs got together with task storage.
const TASK_STORAGE: &str = "BPF_FUNC_get_current_task_btf";
/// A helper as old as atomic instructions with a result, which have no name in BTF: of 5.12 (5ca419f2864a) as the verifier knows
/// them, and on arm64 of 5.18, as they can be compiled there (arch/arm64/net/bpf_jit_comp.c, "bpf, arm64: Support more atomic
/// operations").
const AS_OLD_AS_ANSWERING_ATOMICS: &str = match cfg!(target_arch = "aarch64") {
    true => "BPF_FUNC_copy_from_user_task",
    false => "BPF_FUNC_check_mtu",
};
/// The name changed in 6.0 (ff07a02e9e8e).
const REQUEST_CODES: [&str; 2] = ["req_op", "req_opf"];
const REQUEST_FLAGS: &str = "req_flag_bits";
/// The prefix of types that represent tracepoints.
const TRACEPOINT: &str = "btf_trace_";
/// Tracepoints that programs are attached to, in addition to those of the block layer.
const EVENTS: [&str; 8] = [
    "sys_enter",
    "sys_exit",
    "sched_switch",
    "sched_wakeup",
    "sched_process_exec",
    "sched_process_exit",
    "sched_process_fork",
    "task_rename",
];

/// Names, and prefixes of names, that are always needed.
const NAMES: [&str; 17] = [
    STATIC_FUNCTION,
    PER_CPU_VALUES,
    LOCKLESS_MEMORY,
    TASKS,
    FPROBE,
    RETHOOK,
    ATTACH_TYPES,
    FENTRY,
    FSESSION,
    FENTRY_MULTI,
    SESSION,
    HELPERS,
    TASK_STORAGE,
    AS_OLD_AS_ANSWERING_ATOMICS,
    REQUEST_CODES[0],
    REQUEST_CODES[1],
    REQUEST_FLAGS,
];
const PREFIXES: [&str; 3] = [TRACEPOINT, "REQ_OP_", "__REQ_"];
/// [`Beginnings`] would not find what has a shorter one.
const _: () = {
    let mut index = 0;
    while index < PREFIXES.len() {
        assert!(PREFIXES[index].len() >= LETTERS);
        index += 1;
    }
};

/// Maximum length of a chain of pointers and qualifiers.
const MAX_DEPTH: u32 = 32;

const KIND_PTR: u32 = sys::BTF_KIND_PTR;
const KIND_CONST: u32 = sys::BTF_KIND_CONST;
const KIND_TYPEDEF: u32 = sys::BTF_KIND_TYPEDEF;
const KIND_FUNC_PROTO: u32 = sys::BTF_KIND_FUNC_PROTO;
const KIND_STRUCT: u32 = sys::BTF_KIND_STRUCT;
const KIND_ENUM: u32 = sys::BTF_KIND_ENUM;
const KIND_FUNC: u32 = sys::BTF_KIND_FUNC;

impl Btf<'_> {
    /// The kernel's BTF, with functions and types of these names.
    ///
    /// # Errors
    /// If the kernel has none, or it may not be read.
    pub fn vmlinux(functions: &BTreeSet<&str>, types: &BTreeSet<&str>) -> Result<Self, FactsError> {
        let file = File::open(Path::new(FOLDER).join("vmlinux")).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => FactsError::NoBtf,
            _ => FactsError::Btf(error),
        })?;
        Self::of_file(file, functions, types).map_err(FactsError::Btf)
    }

    /// The BTF in a file, for these names.
    ///
    /// # Errors
    /// When it is none, or cannot be read.
    pub fn of_file(file: File, functions: &BTreeSet<&str>, types: &BTreeSet<&str>) -> io::Result<Self> {
        let all = functions.iter().chain(types).copied();
        let names: BTreeSet<&str> = all
            .chain(NAMES)
            .chain(CAST_TYPES)
            .chain(KFUNCS.map(|(name, ..)| name))
            .collect();
        let wanted = Wanted {
            beginnings: Beginnings::new(names.iter().copied().chain(PREFIXES)),
            is_wanted: |name: &str| names.contains(essential(name)) || PREFIXES.iter().any(|it| name.starts_with(it)),
        };
        let image = Image::new(file, None, &wanted)?;
        Ok(Self { image, module: None })
    }

    /// The BTF of a loaded module, with functions of these names; `None` if it is not one, or the kernel has no BTF for
    /// modules (before 5.11).
    #[must_use]
    pub fn module<'a>(&'a self, name: &'static str, functions: &BTreeSet<&str>) -> Option<Btf<'a>> {
        let file = File::open(Path::new(FOLDER).join(name)).ok()?;
        let wanted = Wanted {
            beginnings: Beginnings::new(functions.iter().copied()),
            is_wanted: |name: &str| functions.contains(name),
        };
        let image = Image::new(file, Some(&self.image), &wanted).ok()?;
        let object = open_module_object(&CString::new(name).ok()?).map(Rc::new);
        let module = Some(ModuleBtf { name, object });
        Some(Btf { image, module })
    }

    /// Makes one pass over all types.
    #[must_use]
    pub fn scan(&self, wanted: &BTreeSet<&str>) -> Scan {
        let mut scan = Scan::default();
        for (id, kind, name) in self.image.wanted_types() {
            match kind.kind() {
                KIND_FUNC => {
                    scan.has_static |= name == STATIC_FUNCTION;
                    scan.per_cpu_values |= name == PER_CPU_VALUES;
                    scan.lockless_memory |= name == LOCKLESS_MEMORY;
                    if self.module.is_none() {
                        self.scan_function(name, id, &kind, &mut scan);
                    }
                    if wanted.contains(name) {
                        let prototype = self.image.type_at(kind.size_or_type);
                        let function = BtfFunction {
                            id,
                            args: prototype.map_or(0, |prototype| prototype.entries()),
                            module: self.module.clone(),
                        };
                        scan.functions.push((name.to_owned(), function));
                    }
                }
                KIND_STRUCT | KIND_ENUM | KIND_TYPEDEF if self.module.is_none() => {
                    self.scan_type(name, id, &kind, &mut scan);
                }
                _ => {}
            }
        }
        scan
    }

    fn scan_function(&self, name: &str, id: u32, kind: &Type<'_>, scan: &mut Scan) {
        if name == TASKS {
            scan.events.insert("iter/task".to_owned(), id);
        }
        let args = self
            .image
            .type_at(kind.size_or_type)
            .map(|prototype| prototype.entries());
        for (_, _, number) in KFUNCS.iter().filter(|known| (known.0, Some(known.1)) == (name, args)) {
            scan.kfuncs.entry(*number).or_insert(id);
        }
    }

    fn scan_type(&self, name: &str, id: u32, kind: &Type<'_>, scan: &mut Scan) {
        let known = |row: [u32; 2]| self.image.known(row[0]);
        match kind.kind() {
            KIND_STRUCT if name == FPROBE => {
                let mut members = kind.rows::<3>();
                let rethook = members.any(|[name, ..]| self.image.known(name) == Some(RETHOOK));
                scan.fprobe = if rethook { Fprobe::Rethook } else { Fprobe::Graph };
            }
            KIND_STRUCT => {
                if let Some(name) = CAST_TYPES.into_iter().find(|known| *known == name) {
                    scan.cast_types.entry(name).or_insert(id);
                }
            }
            KIND_ENUM if name == ATTACH_TYPES => {
                for entry in kind.rows().filter_map(known) {
                    scan.fentry |= entry == FENTRY;
                    scan.fsession |= entry == FSESSION;
                    scan.fentry_multi |= entry == FENTRY_MULTI;
                    scan.session |= entry == SESSION;
                }
            }
            KIND_ENUM if name == HELPERS => {
                for entry in kind.rows().filter_map(known) {
                    scan.task_storage |= entry == TASK_STORAGE;
                    scan.answering_atomics |= entry == AS_OLD_AS_ANSWERING_ATOMICS;
                }
            }
            KIND_ENUM if name == REQUEST_FLAGS || REQUEST_CODES.contains(&name) => {
                let rows = kind.rows();
                let rows = rows.filter_map(|[name, value]| Some((self.image.known(name)?.to_owned(), value)));
                match name {
                    REQUEST_FLAGS => scan.block.flags.extend(rows),
                    _ => scan.block.codes.extend(rows),
                }
            }
            KIND_TYPEDEF => {
                let Some(name) = name.strip_prefix(TRACEPOINT) else {
                    return;
                };
                if name.starts_with("block_") {
                    scan.block.tracepoints.insert(name.to_owned(), self.arguments(kind));
                } else if !EVENTS.contains(&name) {
                    return;
                }
                scan.events.insert(format!("tp_btf/{name}"), id);
            }
            _ => {}
        }
    }

    /// Names of the types of a tracepoint's arguments, without pointers.
    fn arguments(&self, typedef: &Type<'_>) -> Vec<String> {
        let Some(prototype) = self.behind(typedef).filter(|kind| kind.kind() == KIND_FUNC_PROTO) else {
            return Vec::new();
        };
        let name = |[_, of]: [u32; 2]| {
            let kind = self.image.type_at(of)?;
            let kind = if kind.kind() == KIND_PTR {
                self.behind(&kind)?
            } else {
                kind
            };
            Some(self.image.string(kind.name))
        };
        // The first is the tracepoint's own.
        let arguments = prototype.rows().skip(1);
        arguments.map(|argument| name(argument).unwrap_or_default()).collect()
    }

    /// The type behind pointers, typedefs and qualifiers.
    fn behind(&self, kind: &Type<'_>) -> Option<Type<'_>> {
        let mut next = self.image.type_at(kind.size_or_type)?;
        // A pointer to itself would never end.
        for _ in 0..MAX_DEPTH {
            if !matches!(next.kind(), KIND_PTR | KIND_CONST) {
                return Some(next);
            }
            next = self.image.type_at(next.size_or_type)?;
        }
        None
    }
}

/// Finds the kernel's BTF object of a module by iterating over all of them.
fn open_module_object(name: &CStr) -> Option<OwnedFd> {
    let mut id = 0;
    loop {
        // SAFETY: writes one number through a valid pointer.
        if unsafe { sys::bpf_btf_get_next_id(id, &raw mut id) } != 0 {
            return None;
        }
        // SAFETY: returns a descriptor that we own, or an error.
        let fd = unsafe { sys::bpf_btf_get_fd_by_id(id) };
        if fd < 0 {
            continue;
        }
        // SAFETY: `fd` was just opened.
        let object = unsafe { OwnedFd::from_raw_fd(fd) };
        let mut label = [0u8; 64];
        let mut info = sys::bpf_btf_info {
            name: label.as_mut_ptr() as u64,
            name_len: label.len() as u32,
            ..Default::default()
        };
        let mut size = size_of::<sys::bpf_btf_info>() as u32;
        // SAFETY: `info` and the name it points at are valid for the call.
        let failed = unsafe { sys::bpf_obj_get_info_by_fd(object.as_raw_fd(), (&raw mut info).cast(), &raw mut size) };
        if failed == 0 && CStr::from_bytes_until_nul(&label).is_ok_and(|found| found == name) {
            return Some(object);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use nix::sys::memfd::{MFdFlags, memfd_create};
    use proptest::prelude::*;

    use super::*;
    use crate::fuzz;

    /// BTF built by a test, in the kernel's format.
    ///
    /// # Safety
    /// `btf` is libbpf's, and is not used afterwards.
    pub(super) unsafe fn into_bytes(btf: *mut sys::btf) -> Vec<u8> {
        let mut size = 0;
        // SAFETY: libbpf's bytes live until it is freed, which is here.
        unsafe {
            let bytes = sys::btf__raw_data(btf, &raw mut size);
            let copy = std::slice::from_raw_parts(bytes.cast::<u8>(), size as usize).to_vec();
            sys::btf__free(btf);
            copy
        }
    }

    /// Parses BTF from memory.
    pub(super) fn of_bytes(bytes: &[u8], functions: &[&str], types: &[&str]) -> Option<Btf<'static>> {
        let mut file = File::from(memfd_create(c"btf", MFdFlags::MFD_CLOEXEC).unwrap());
        file.write_all(bytes).unwrap();
        let [functions, types] = [functions, types].map(|names| names.iter().copied().collect());
        Btf::of_file(file, &functions, &types).ok()
    }

    /// BTF with everything that is looked for, and little else.
    pub(super) fn kernel_like() -> Vec<u8> {
        // SAFETY: all strings end with a zero, and all numbers of types are of types that were added before.
        unsafe {
            let btf = sys::btf__new_empty();
            let int = sys::btf__add_int(btf, c"int".as_ptr(), 4, sys::BTF_INT_SIGNED as i32);
            sys::btf__add_struct(btf, c"fprobe".as_ptr(), 8);
            sys::btf__add_field(btf, c"rethook".as_ptr(), int, 0, 0);
            sys::btf__add_field(btf, c"flags".as_ptr(), int, 32, 0);
            for (name, value) in [
                (c"bpf_attach_type", c"BPF_TRACE_FENTRY"),
                (c"bpf_func_id", c"BPF_FUNC_get_current_task_btf"),
                (c"req_op", c"REQ_OP_FLUSH"),
                (c"req_flag_bits", c"__REQ_SYNC"),
            ] {
                sys::btf__add_enum(btf, name.as_ptr(), 4);
                sys::btf__add_enum_value(btf, value.as_ptr(), 2);
                sys::btf__add_enum_value(btf, c"OTHER".as_ptr(), -1);
            }
            let request = sys::btf__add_struct(btf, c"request".as_ptr(), 8);
            let constant = sys::btf__add_const(btf, request);
            let pointer = sys::btf__add_ptr(btf, constant);
            let prototype = sys::btf__add_func_proto(btf, 0);
            sys::btf__add_func_param(btf, c"".as_ptr(), pointer);
            sys::btf__add_func_param(btf, c"rq".as_ptr(), pointer);
            let to_prototype = sys::btf__add_ptr(btf, prototype);
            sys::btf__add_typedef(btf, c"btf_trace_block_rq_issue".as_ptr(), to_prototype);
            sys::btf__add_func(btf, c"vfs_read".as_ptr(), sys::BTF_FUNC_GLOBAL, prototype);
            into_bytes(btf)
        }
    }

    #[test]
    fn all_that_is_looked_for_is_found() {
        let btf = of_bytes(&kernel_like(), &["vfs_read"], &[]).unwrap();
        let scan = btf.scan(&BTreeSet::from(["vfs_read"]));
        let [(name, function)] = &scan.functions[..] else {
            panic!("{scan:?}")
        };
        assert_eq!((name.as_str(), function.args), ("vfs_read", 2));
        assert!(scan.fentry && scan.task_storage && !scan.session);
        assert_eq!(scan.fprobe, Fprobe::Rethook);
        assert_eq!(scan.block.argument("block_rq_issue", "request"), Some(0));
        assert_eq!(scan.block.codes, BTreeMap::from([("REQ_OP_FLUSH".to_owned(), 2)]));
        assert_eq!(scan.block.flags, BTreeMap::from([("__REQ_SYNC".to_owned(), 2)]));
        assert!(!scan.has_static);
    }

    #[test]
    fn a_pointer_to_itself_is_nothing() {
        // SAFETY: as above.
        let bytes = unsafe {
            let btf = sys::btf__new_empty();
            sys::btf__add_ptr(btf, 1);
            sys::btf__add_typedef(btf, c"btf_trace_block_rq_issue".as_ptr(), 1);
            into_bytes(btf)
        };
        let scan = of_bytes(&bytes, &[], &[]).unwrap().scan(&BTreeSet::new());
        assert_eq!(scan.block.tracepoints.get("block_rq_issue"), Some(&Vec::new()));
    }

    proptest! {
        #![proptest_config(fuzz::config())]

        #[test]
        fn any_bytes_are_read_or_refused(bytes in fuzz::bytes_like(kernel_like())) {
            libbpf_rs::set_print(None);
            if let Some(btf) = of_bytes(&bytes, &["vfs_read", ""], &[]) {
                let _ = btf.scan(&BTreeSet::from(["vfs_read", ""]));
            }
        }
    }
}
