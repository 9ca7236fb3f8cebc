//! The kernel's own description of its types and functions.
//!
//! It has a hundred thousand types and more, of which few matter. So nothing is made of the others: they are stepped over where
//! they lie, and most names are told apart by their first letters.

mod excerpt;
mod image;

pub use excerpt::essential;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;

use libbpf_sys as sys;

use self::image::{Image, Type};
use super::beginnings::Beginnings;
use super::block::BlockFacts;
use super::{FactsError, Fprobe};

/// Where the kernel shows its BTF and that of its modules.
const FOLDER: &str = "/sys/kernel/btf";

/// A function that tracing programs can attach to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BtfFunction {
    /// Its type number, in the numbering of its module or of vmlinux.
    pub id: u32,
    /// How many arguments it takes; behind them fexit finds the return value.
    pub args: u32,
    /// The module that it is in.
    pub module: Option<ModuleBtf>,
}

/// A module's BTF in the kernel. It stays as it is while the descriptor is open.
#[derive(Debug, Clone)]
pub struct ModuleBtf {
    pub name: &'static str,
    /// `None` where it could not be opened (CAP_SYS_ADMIN is needed): then the function cannot be attached to.
    pub object: Option<Rc<OwnedFd>>,
}

impl PartialEq for ModuleBtf {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for ModuleBtf {}

/// BTF that was read. A module's refers to vmlinux's.
pub struct Btf<'base> {
    image: Image<'base>,
    module: Option<ModuleBtf>,
}

/// What one pass over the types found.
#[derive(Debug)]
pub struct Scan {
    pub functions: Vec<(String, BtfFunction)>,
    pub fentry: bool,
    pub fprobe: Fprobe,
    pub session: bool,
    pub fsession: bool,
    pub task_storage: bool,
    pub answering_atomics: bool,
    /// Static functions are among the functions; before pahole 1.18 they were not.
    pub has_static: bool,
    /// `bpf_rdonly_cast` (6.2).
    pub casts: bool,
    /// Numbers of the types of [`CAST_TYPES`], by name.
    pub cast_types: BTreeMap<&'static str, u32>,
    pub block: BlockFacts,
}

/// Types that programs say pointers are of.
pub const CAST_TYPES: [&str; 9] = [
    "file",
    "inode",
    "kiocb",
    "super_block",
    "request",
    "request_queue",
    "bio",
    "block_device",
    "gendisk",
];
/// What they say it by.
const CAST: &str = "bpf_rdonly_cast";

/// A static function of fs/pipe.c, in every kernel and always out of line: its address is in a table.
const STATIC_FUNCTION: &str = "pipe_poll";
const FPROBE: &str = "fprobe";
const ATTACH_TYPES: &str = "bpf_attach_type";
const HELPERS: &str = "bpf_func_id";
/// The name changed in 6.0 (ff07a02e9e8e).
const REQUEST_CODES: [&str; 2] = ["req_op", "req_opf"];
/// What libbpf looks for when a program is for a tracepoint.
const BLOCK_TRACEPOINT: &str = "btf_trace_block_";

/// Pointers and qualifiers that are followed in a row.
const MAX_DEPTH: u32 = 32;

const KIND_PTR: u32 = sys::BTF_KIND_PTR;
const KIND_CONST: u32 = sys::BTF_KIND_CONST;
const KIND_TYPEDEF: u32 = sys::BTF_KIND_TYPEDEF;
const KIND_FUNC_PROTO: u32 = sys::BTF_KIND_FUNC_PROTO;
const KIND_STRUCT: u32 = sys::BTF_KIND_STRUCT;
const KIND_ENUM: u32 = sys::BTF_KIND_ENUM;
const KIND_FUNC: u32 = sys::BTF_KIND_FUNC;

impl Btf<'_> {
    /// The kernel's BTF.
    ///
    /// # Errors
    /// When the kernel has none, or it may not be read.
    pub fn vmlinux() -> Result<Self, FactsError> {
        let bytes = fs::read(Path::new(FOLDER).join("vmlinux")).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => FactsError::NoBtf,
            _ => FactsError::Btf(error),
        })?;
        let image = Image::new(bytes, None).map_err(FactsError::Btf)?;
        Ok(Self { image, module: None })
    }

    /// BTF that is not the kernel's.
    #[cfg(test)]
    fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let image = Image::new(bytes.to_vec(), None).ok()?;
        Some(Self { image, module: None })
    }

    /// The BTF of a loaded module; `None` when it is not one, or the kernel has no BTF for modules (before 5.11).
    #[must_use]
    pub fn module<'a>(&'a self, name: &'static str) -> Option<Btf<'a>> {
        let bytes = fs::read(Path::new(FOLDER).join(name)).ok()?;
        let image = Image::new(bytes, Some(&self.image)).ok()?;
        let object = open_module_object(&CString::new(name).ok()?).map(Rc::new);
        let module = Some(ModuleBtf { name, object });
        Some(Btf { image, module })
    }

    /// Goes over all types once.
    #[must_use]
    pub fn scan(&self, wanted: &BTreeSet<&str>) -> Scan {
        let mut scan = Scan {
            functions: Vec::new(),
            fentry: false,
            fprobe: Fprobe::Absent,
            session: false,
            fsession: false,
            task_storage: false,
            answering_atomics: false,
            has_static: false,
            casts: false,
            cast_types: BTreeMap::new(),
            block: BlockFacts::default(),
        };
        let functions = Beginnings::new(wanted.iter().copied().chain([STATIC_FUNCTION, CAST]));
        let types = [FPROBE, ATTACH_TYPES, HELPERS, BLOCK_TRACEPOINT];
        let types = Beginnings::new(types.into_iter().chain(REQUEST_CODES).chain(CAST_TYPES));
        for (id, kind) in self.image.own_types() {
            match kind.kind() {
                KIND_FUNC => {
                    let Some(name) = self.image.name_among(&kind, &functions) else {
                        continue;
                    };
                    scan.has_static |= name == STATIC_FUNCTION;
                    scan.casts |= self.module.is_none() && name == CAST;
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
                    if let Some(name) = self.image.name_among(&kind, &types) {
                        self.scan_type(name, id, &kind, &mut scan);
                    }
                }
                _ => {}
            }
        }
        scan
    }

    fn scan_type(&self, name: &str, id: u32, kind: &Type<'_>, scan: &mut Scan) {
        let name_of = |row: [u32; 2]| self.image.string(row[0]);
        match kind.kind() {
            KIND_STRUCT if name == FPROBE => {
                let mut members = kind.rows::<3>();
                let rethook = members.any(|[name, ..]| self.image.string(name) == "rethook");
                scan.fprobe = if rethook { Fprobe::Rethook } else { Fprobe::Graph };
            }
            KIND_STRUCT => {
                if let Some(name) = CAST_TYPES.into_iter().find(|known| *known == name) {
                    scan.cast_types.entry(name).or_insert(id);
                }
            }
            KIND_ENUM if name == ATTACH_TYPES => {
                for entry in kind.rows().map(name_of) {
                    scan.fentry |= entry == "BPF_TRACE_FENTRY";
                    scan.fsession |= entry == "BPF_TRACE_FSESSION";
                    scan.session |= entry == "BPF_TRACE_KPROBE_SESSION";
                }
            }
            KIND_ENUM if name == HELPERS => {
                for entry in kind.rows().map(name_of) {
                    scan.task_storage |= entry == "BPF_FUNC_get_current_task_btf";
                    // It came with 5.12, as they did (5ca419f2864a), which have no name in BTF.
                    scan.answering_atomics |= entry == "BPF_FUNC_check_mtu";
                }
            }
            KIND_ENUM if REQUEST_CODES.contains(&name) => {
                let codes = kind
                    .rows()
                    .map(|[name, code]| (self.image.string(name).to_owned(), code));
                scan.block.codes.extend(codes);
            }
            KIND_TYPEDEF => {
                if let Some(name) = name.strip_prefix(BLOCK_TRACEPOINT) {
                    let arguments = self.arguments(kind);
                    scan.block.tracepoints.insert(format!("block_{name}"), arguments);
                }
            }
            _ => {}
        }
    }

    /// Names of the types that a tracepoint's arguments are of, or point to.
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
            Some(self.image.string(kind.name).to_owned())
        };
        // The first is the tracepoint's own.
        let arguments = prototype.rows().skip(1);
        arguments.map(|argument| name(argument).unwrap_or_default()).collect()
    }

    /// What a pointer points to, or a typedef names, without qualifiers and pointers on the way.
    fn behind(&self, kind: &Type<'_>) -> Option<Type<'_>> {
        let mut next = self.image.type_at(kind.size_or_type)?;
        // A pointer that points to itself has no end.
        for _ in 0..MAX_DEPTH {
            if !matches!(next.kind(), KIND_PTR | KIND_CONST) {
                return Some(next);
            }
            next = self.image.type_at(next.size_or_type)?;
        }
        None
    }
}

/// Finds the kernel's object for a module's BTF by going over all of them.
fn open_module_object(name: &CStr) -> Option<OwnedFd> {
    let mut id = 0;
    loop {
        // SAFETY: writes one number through a valid pointer.
        if unsafe { sys::bpf_btf_get_next_id(id, &raw mut id) } != 0 {
            return None;
        }
        // SAFETY: answers a descriptor that is ours, or an error.
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
    use proptest::prelude::*;

    use super::*;
    use crate::fuzz;

    /// BTF that a test has made, as the kernel shows it.
    ///
    /// # Safety
    /// `btf` is libbpf's, and nobody uses it afterwards.
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

    /// What the kernel's BTF has of all that is looked for, and little else.
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
        let btf = Btf::of_bytes(&kernel_like()).unwrap();
        let scan = btf.scan(&BTreeSet::from(["vfs_read"]));
        let [(name, function)] = &scan.functions[..] else {
            panic!("{scan:?}")
        };
        assert_eq!((name.as_str(), function.args), ("vfs_read", 2));
        assert!(scan.fentry && scan.task_storage && !scan.session);
        assert_eq!(scan.fprobe, Fprobe::Rethook);
        assert_eq!(scan.block.argument("block_rq_issue", "request"), Some(0));
        assert_eq!(scan.block.codes.get("REQ_OP_FLUSH"), Some(&2));
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
        let scan = Btf::of_bytes(&bytes).unwrap().scan(&BTreeSet::new());
        assert_eq!(scan.block.tracepoints.get("block_rq_issue"), Some(&Vec::new()));
    }

    proptest! {
        #![proptest_config(fuzz::config())]

        #[test]
        fn any_bytes_are_read_or_refused(bytes in fuzz::bytes_like(kernel_like())) {
            libbpf_rs::set_print(None);
            if let Some(btf) = Btf::of_bytes(&bytes) {
                let _ = btf.scan(&BTreeSet::from(["vfs_read", ""]));
            }
        }
    }
}
