//! The kernel's own description of its types and functions, read through libbpf.

mod excerpt;

pub use excerpt::essential;

use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::rc::Rc;

use libbpf_sys as sys;

use super::block::BlockFacts;
use super::{FactsError, Fprobe};

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

/// BTF that libbpf has parsed. A module's refers to vmlinux's, which has to outlive it.
pub struct Btf<'base> {
    raw: *mut sys::btf,
    module: Option<ModuleBtf>,
    /// Types below this number are vmlinux's.
    first_id: u32,
    base: PhantomData<&'base ()>,
}

impl Drop for Btf<'_> {
    fn drop(&mut self) {
        // SAFETY: `raw` came from libbpf and is freed once.
        unsafe { sys::btf__free(self.raw) };
    }
}

/// What one pass over the types found.
#[derive(Debug)]
pub struct Scan {
    pub functions: Vec<(String, BtfFunction)>,
    pub fentry: bool,
    pub fprobe: Fprobe,
    pub session: bool,
    pub task_storage: bool,
    pub answering_atomics: bool,
    pub block: BlockFacts,
}

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
        // SAFETY: no arguments; a null result is checked.
        let raw = unsafe { sys::btf__load_vmlinux_btf() };
        if raw.is_null() {
            let error = io::Error::last_os_error();
            return Err(if error.kind() == io::ErrorKind::PermissionDenied {
                FactsError::Btf(error)
            } else {
                FactsError::NoBtf
            });
        }
        Ok(Self {
            raw,
            module: None,
            first_id: 1,
            base: PhantomData,
        })
    }

    /// BTF that is not the kernel's.
    #[cfg(test)]
    fn of_bytes(bytes: &[u8]) -> Option<Self> {
        // SAFETY: libbpf copies the bytes, which are valid for the call.
        let raw = unsafe { sys::btf__new(bytes.as_ptr().cast(), bytes.len() as u32) };
        (!raw.is_null()).then_some(Self {
            raw,
            module: None,
            first_id: 1,
            base: PhantomData,
        })
    }

    /// The BTF of a loaded module; `None` when it is not one, or the kernel has no BTF for modules (before 5.11).
    #[must_use]
    pub fn module<'a>(&'a self, name: &'static str) -> Option<Btf<'a>> {
        let c_name = CString::new(name).ok()?;
        // SAFETY: `self.raw` is valid for as long as `self`, which the result borrows.
        let raw = unsafe { sys::btf__load_module_btf(c_name.as_ptr(), self.raw) };
        // SAFETY: `self.raw` is valid.
        let first_id = unsafe { sys::btf__type_cnt(self.raw) };
        if raw.is_null() {
            return None;
        }
        let object = open_module_object(&c_name).map(Rc::new);
        Some(Btf {
            raw,
            module: Some(ModuleBtf { name, object }),
            first_id,
            base: PhantomData,
        })
    }

    /// Goes over all types once.
    #[must_use]
    pub fn scan(&self, wanted: &BTreeSet<&str>) -> Scan {
        let mut scan = Scan {
            functions: Vec::new(),
            fentry: false,
            fprobe: Fprobe::Absent,
            session: false,
            task_storage: false,
            answering_atomics: false,
            block: BlockFacts::default(),
        };
        for id in self.ids() {
            let Some(kind) = self.type_at(id) else { continue };
            let entries = kind.info & 0xffff;
            match kind_of(kind) {
                KIND_FUNC => {
                    let name = self.string(kind.name_off);
                    if wanted.contains(name) {
                        // SAFETY: a function's type is in this member of the union.
                        let prototype = unsafe { kind.__bindgen_anon_1.type_ };
                        let args = self.type_at(prototype).map_or(0, |p| p.info & 0xffff);
                        let function = BtfFunction {
                            id,
                            args,
                            module: self.module.clone(),
                        };
                        scan.functions.push((name.to_owned(), function));
                    }
                }
                KIND_STRUCT if self.module.is_none() && self.string(kind.name_off) == "fprobe" => {
                    let rethook = self
                        .members(kind, entries)
                        .iter()
                        .any(|m| self.string(m.name_off) == "rethook");
                    scan.fprobe = if rethook { Fprobe::Rethook } else { Fprobe::Graph };
                }
                KIND_ENUM if self.module.is_none() => match self.string(kind.name_off) {
                    "bpf_attach_type" => {
                        for entry in self.enumerators(kind, entries) {
                            match self.string(entry.name_off) {
                                "BPF_TRACE_FENTRY" => scan.fentry = true,
                                "BPF_TRACE_KPROBE_SESSION" => scan.session = true,
                                _ => {}
                            }
                        }
                    }
                    "bpf_func_id" => {
                        for entry in self.enumerators(kind, entries) {
                            match self.string(entry.name_off) {
                                "BPF_FUNC_get_current_task_btf" => scan.task_storage = true,
                                // It came with 5.12, as they did (5ca419f2864a), which have no name in BTF.
                                "BPF_FUNC_check_mtu" => scan.answering_atomics = true,
                                _ => {}
                            }
                        }
                    }
                    // The name changed in 6.0 (ff07a02e9e8e).
                    "req_op" | "req_opf" => {
                        let codes = self.enumerators(kind, entries).iter();
                        scan.block
                            .codes
                            .extend(codes.map(|entry| (self.string(entry.name_off).to_owned(), entry.val as u32)));
                    }
                    _ => {}
                },
                // What libbpf looks for when a program is for a tracepoint.
                KIND_TYPEDEF if self.module.is_none() => {
                    if let Some(name) = self.string(kind.name_off).strip_prefix("btf_trace_block_") {
                        scan.block
                            .tracepoints
                            .insert(format!("block_{name}"), self.arguments(kind));
                    }
                }
                _ => {}
            }
        }
        scan
    }

    /// Names of the types that a tracepoint's arguments are of, or point to.
    fn arguments(&self, typedef: &sys::btf_type) -> Vec<String> {
        let Some(prototype) = self.behind(typedef).filter(|kind| kind_of(kind) == KIND_FUNC_PROTO) else {
            return Vec::new();
        };
        let count = (prototype.info & 0xffff) as usize;
        // SAFETY: libbpf has checked that a prototype's parameters follow it.
        let parameters: &[sys::btf_param] =
            unsafe { std::slice::from_raw_parts(std::ptr::from_ref(prototype).add(1).cast(), count) };
        // The first is the tracepoint's own.
        let types = parameters.iter().skip(1);
        let name = |parameter: &sys::btf_param| {
            let kind = self.type_at(parameter.type_)?;
            let kind = if kind_of(kind) == KIND_PTR {
                self.behind(kind)?
            } else {
                kind
            };
            Some(self.string(kind.name_off).to_owned())
        };
        types.map(|parameter| name(parameter).unwrap_or_default()).collect()
    }

    /// What a pointer points to, or a typedef names, without qualifiers and pointers on the way.
    fn behind(&self, kind: &sys::btf_type) -> Option<&sys::btf_type> {
        // SAFETY: of these kinds, the type referred to is in this member of the union.
        let mut next = self.type_at(unsafe { kind.__bindgen_anon_1.type_ })?;
        // A pointer that points to itself has no end.
        for _ in 0..MAX_DEPTH {
            if !matches!(kind_of(next), KIND_PTR | KIND_CONST) {
                return Some(next);
            }
            // SAFETY: as above.
            next = self.type_at(unsafe { next.__bindgen_anon_1.type_ })?;
        }
        None
    }

    /// The numbers of its own types.
    fn ids(&self) -> std::ops::Range<u32> {
        // SAFETY: `raw` is valid.
        self.first_id..unsafe { sys::btf__type_cnt(self.raw) }
    }

    fn type_at(&self, id: u32) -> Option<&sys::btf_type> {
        // SAFETY: libbpf answers null for a number it does not have, else a pointer that lives as long as `self`.
        unsafe { sys::btf__type_by_id(self.raw, id).as_ref() }
    }

    fn string(&self, offset: u32) -> &str {
        // SAFETY: libbpf answers null for an offset outside its strings, else a string that lives as long as `self`.
        unsafe {
            let text = sys::btf__name_by_offset(self.raw, offset);
            if text.is_null() {
                ""
            } else {
                CStr::from_ptr(text).to_str().unwrap_or_default()
            }
        }
    }

    fn members<'a>(&'a self, of: &'a sys::btf_type, count: u32) -> &'a [sys::btf_member] {
        // SAFETY: libbpf has checked that a structure's `count` members follow it.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(of).add(1).cast(), count as usize) }
    }

    fn enumerators<'a>(&'a self, of: &'a sys::btf_type, count: u32) -> &'a [sys::btf_enum] {
        // SAFETY: as for members.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(of).add(1).cast(), count as usize) }
    }
}

fn kind_of(kind: &sys::btf_type) -> u32 {
    kind.info >> 24 & 0x1f
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
