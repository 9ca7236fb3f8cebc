//! Loads programs of the BPF object, either unchanged or as copies that are specialised to one function each.
//!
//! libbpf relocates the programs but loads none. The object has one program per hook, not one per function: a copy has
//! the same instructions with the function's configuration (its point, [`super::PointWord`]) written into them, and is
//! loaded for its own target. Code that the run or the function does not need is removed ([`super::fold`]). The BTF
//! numbers of the targets come from [`Facts`], so that libbpf need not read the kernel's BTF.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, CString, OsString};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use libbpf_rs::skel::Skel;
use libbpf_rs::{AsRawLibbpf, OpenObject, PrintLevel, Program, ProgramType};
use libbpf_sys as sys;

use super::atomics;
use super::fold::{Constants, Folded, fold, fold_again, unfolded};
use crate::kernel::Facts;
use crate::kernel::btf::BtfFunction;
use crate::kernel::interface::POINT_UNSET;
use crate::kernel::interface::skeleton::IostackbreakdownSkel;
use crate::kernel::interface::types::rodata;
use crate::model::cost::Runs;
use crate::sys::own;

/// Must agree with LICENSE in the BPF object.
const LICENSE: &CStr = c"Dual MIT/GPL";

/// The program type that libbpf sees for tracing programs, for which it would otherwise read all of the kernel's BTF.
/// The object has no programs that really are of this type.
const STAND_IN: (ProgramType, sys::bpf_prog_type) = (ProgramType::RawTracepoint, sys::BPF_PROG_TYPE_RAW_TRACEPOINT);

/// The program for a link of several trampolines, and `BPF_TRACE_FENTRY_MULTI`, which libbpf does not know.
const MULTI: (&str, sys::bpf_attach_type) = ("complete_multi", 59);

/// The maximum size of the verifier's log of a refused program, in bytes.
const LOG_SIZE: usize = 1 << 20;

/// The opcodes of a move of an immediate to a register, 32-bit and 64-bit.
const MOV32_IMM: u8 = (sys::BPF_ALU | sys::BPF_MOV | sys::BPF_K) as u8;
const MOV64_IMM: u8 = (sys::BPF_ALU64 | sys::BPF_MOV | sys::BPF_K) as u8;

/// Replaces [`POINT_UNSET`] by `point` in all instructions. Returns the indices of the changed instructions.
fn specialise(instructions: &mut [sys::bpf_insn], point: u32) -> Vec<usize> {
    let mut changed = Vec::new();
    for (index, instruction) in instructions.iter_mut().enumerate() {
        if matches!(instruction.code, MOV32_IMM | MOV64_IMM) && instruction.imm == POINT_UNSET as i32 {
            instruction.imm = point as i32;
            changed.push(index);
        }
    }
    changed
}

/// Makes libbpf create the maps and relocate the programs of `object` that are to be loaded. Returns their names.
///
/// # Errors
/// The error of libbpf.
pub fn relocate(object: &mut OpenObject) -> io::Result<Relocated> {
    let mut relocated = Relocated::new();
    for mut program in object.progs_mut().filter(|program| program.autoload()) {
        relocated.insert(program.name().to_owned());
        if program.prog_type() == ProgramType::Tracing {
            program.set_prog_type(STAND_IN.0);
        }
    }
    // SAFETY: the object is open.
    let failed = unsafe { sys::bpf_object__prepare(object.as_libbpf_object().as_ptr()) };
    if failed < 0 {
        return Err(io::Error::from_raw_os_error(-failed));
    }
    for mut program in object.progs_mut() {
        program.set_autoload(false);
    }
    Ok(relocated)
}

/// The names of the programs that can be loaded.
pub type Relocated = BTreeSet<OsString>;

/// The name of a program, and the point that a copy is specialised to.
type Copied = (OsString, Option<u32>);

/// The programs of an object that can be loaded.
pub struct Programs {
    relocated: Relocated,
    /// Whether they are loaded as they were compiled, without folding.
    as_compiled: bool,
    /// The programs by name, after folding the configuration of the run: copies are made from these.
    templates: RefCell<BTreeMap<OsString, Rc<Folded>>>,
    /// The copies in the form in which they are loaded.
    finished: RefCell<BTreeMap<Copied, Rc<Folded>>>,
    /// The loaded programs that are not specialised, by name.
    loaded: RefCell<BTreeMap<OsString, Rc<OwnedFd>>>,
    loading: Cell<Loading>,
}

/// The cost of loading programs, most of which is the kernel's verifier.
#[derive(Debug, Clone, Copy, Default)]
pub struct Loading {
    pub programs: usize,
    /// The number of those that could not be folded.
    pub as_compiled: usize,
    pub time: Duration,
}

impl Programs {
    #[must_use]
    pub fn new(relocated: Relocated, as_compiled: bool) -> Self {
        Self {
            relocated,
            as_compiled,
            templates: RefCell::default(),
            finished: RefCell::default(),
            loaded: RefCell::default(),
            loading: Cell::default(),
        }
    }

    /// Frees the copies, of which no more are loaded: some 250 KiB with the whole stack.
    pub fn forget_copies(&self) {
        self.templates.take();
        self.finished.take();
    }

    /// The programs that were loaded so far, or refused.
    #[must_use]
    pub fn loading(&self) -> Loading {
        self.loading.get()
    }

    /// Whether this run uses a program.
    #[must_use]
    pub fn has(&self, program: &Program<'_>) -> bool {
        self.relocated.contains(program.name())
    }

    /// A program that is not specialised; the first call loads it. The target of a program on a tracepoint is in the
    /// name of its section.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn get(
        &self,
        program: &Program<'_>,
        facts: &Facts,
        skeleton: &IostackbreakdownSkel<'_>,
    ) -> io::Result<Rc<OwnedFd>> {
        if let Some(loaded) = self.loaded.borrow().get(program.name()) {
            return Ok(loaded.clone());
        }
        let section = program.section().to_str().unwrap_or_default();
        let event = facts.events.get(section).map(|&id| BtfFunction {
            id,
            args: 0,
            module: None,
        });
        let loaded = Rc::new(self.load_copy(program, None, event.as_ref(), facts, skeleton)?);
        let mut all = self.loaded.borrow_mut();
        all.insert(program.name().to_owned(), loaded.clone());
        Ok(loaded)
    }

    /// Loads a copy of `template`, specialised to `point` if there is one, and for `target` if it is a tracing program.
    ///
    /// # Errors
    /// The error of the kernel; `InvalidInput` if there is a point, but no instruction of the template uses it.
    pub fn load_copy(
        &self,
        template: &Program<'_>,
        point: Option<u32>,
        target: Option<&BtfFunction>,
        facts: &Facts,
        skeleton: &IostackbreakdownSkel<'_>,
    ) -> io::Result<OwnedFd> {
        let start = Instant::now();
        let copy = self.finished(template, point, facts, skeleton)?;
        let loaded = load(template, &copy, target, skeleton);
        let before = self.loading.get();
        self.loading.set(Loading {
            programs: before.programs + 1,
            as_compiled: before.as_compiled + usize::from(!copy.is_folded),
            time: before.time + start.elapsed(),
        });
        loaded
    }

    /// A copy in the form in which it is loaded. Functions with the same point share it.
    fn finished(
        &self,
        template: &Program<'_>,
        point: Option<u32>,
        facts: &Facts,
        skeleton: &IostackbreakdownSkel<'_>,
    ) -> io::Result<Rc<Folded>> {
        let copy: Copied = (template.name().to_owned(), point);
        if let Some(known) = self.finished.borrow().get(&copy) {
            return Ok(known.clone());
        }
        let constants = Constants {
            map: skeleton.maps.rodata.as_fd().as_raw_fd(),
            bytes: skeleton.maps.rodata_data.map_or(&[], bytes_of),
        };
        let known = self.templates.borrow().get(template.name()).cloned();
        let known = known.unwrap_or_else(|| {
            let new = Rc::new(self.or_as_it_is(template.insns(), |program| fold(program, &constants)));
            let mut known = self.templates.borrow_mut();
            known.insert(template.name().to_owned(), new.clone());
            new
        });
        let mut program = known.program.clone();
        let changed = match point {
            Some(point) => specialise(&mut program, point),
            None => Vec::new(),
        };
        if point.is_some() && changed.is_empty() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the program does not use a point",
            ));
        }
        let is_changed = |function: &Range<usize>| changed.iter().any(|index| function.contains(index));
        let mut finished = self.or_as_it_is(&program, |program| fold_again(program, &constants, is_changed));
        finished.is_folded &= known.is_folded;
        for function in &mut finished.functions {
            let was = known.functions.iter().find(|was| was.to == function.from);
            function.from = was.map_or(function.from, |was| was.from);
        }
        if !facts.answering_atomics {
            atomics::leave_out(&mut finished.program);
        }
        name_functions(&mut finished.program, &facts.kfuncs);
        let finished = Rc::new(finished);
        self.finished.borrow_mut().insert(copy, finished.clone());
        Ok(finished)
    }

    /// A program after folding, if it is enabled and succeeds; otherwise unchanged.
    fn or_as_it_is(&self, program: &[sys::bpf_insn], fold: impl FnOnce(&[sys::bpf_insn]) -> Option<Folded>) -> Folded {
        let folded = if self.as_compiled { None } else { fold(program) };
        folded.unwrap_or_else(|| unfolded(program))
    }
}

/// The bytes of the object's constants (`.rodata`).
fn bytes_of(constants: &rodata) -> &[u8] {
    // SAFETY: a structure of integers with the layout of the BPF programs, which stays mapped while it is borrowed.
    unsafe { plain::as_bytes(constants) }
}

/// Writes the BTF numbers of kfuncs into calls of them. A call of a kfunc that this kernel lacks stays unchanged; the
/// kernel refuses the program if the call is reachable.
fn name_functions(instructions: &mut [sys::bpf_insn], kfuncs: &BTreeMap<u32, u32>) {
    const CALL: u8 = (sys::BPF_JMP | sys::BPF_CALL) as u8;
    for instruction in instructions {
        if instruction.code == CALL
            && instruction.src_reg() == 0
            && let Some(&id) = kfuncs.get(&(instruction.imm as u32))
        {
            instruction.set_src_reg(sys::BPF_PSEUDO_KFUNC_CALL as u8);
            instruction.imm = id as i32;
        }
    }
}

fn load(
    template: &Program<'_>,
    copy: &Folded,
    target: Option<&BtfFunction>,
    skeleton: &IostackbreakdownSkel<'_>,
) -> io::Result<OwnedFd> {
    let instructions = &copy.program;
    let object = template.as_libbpf_object().as_ptr();
    // SAFETY: libbpf's program lives as long as the template.
    let (kind, attach_type) = unsafe {
        (
            sys::bpf_program__type(object),
            sys::bpf_program__expected_attach_type(object),
        )
    };
    let kind = if kind == STAND_IN.1 {
        sys::BPF_PROG_TYPE_TRACING
    } else {
        kind
    };
    let is_multi = template.name() == MULTI.0;
    let mut options = sys::bpf_prog_load_opts {
        sz: size_of::<sys::bpf_prog_load_opts>() as sys::size_t,
        // libbpf-rs lacks names for some attach types, so these are numbers.
        expected_attach_type: if is_multi { MULTI.1 } else { attach_type },
        ..Default::default()
    };
    if let Some(target) = target {
        options.attach_btf_id = target.id;
        if let Some(module) = &target.module {
            let Some(object) = &module.object else {
                return Err(io::Error::from_raw_os_error(libc::EPERM));
            };
            options.attach_btf_obj_fd = object.as_raw_fd() as u32;
        }
    }
    // The kernel verifies a global function only once, independent of its callers, if it has the BTF of its arguments.
    let functions = types_of_functions(template, copy);
    if functions.len() > 1 {
        // SAFETY: the skeleton has an object.
        options.prog_btf_fd = unsafe { sys::bpf_object__btf_fd(skeleton.object().as_libbpf_object().as_ptr()) } as u32;
        options.func_info = functions.as_ptr().cast();
        options.func_info_cnt = functions.len() as u32;
        options.func_info_rec_size = size_of::<sys::bpf_func_info>() as u32;
    }
    let name = CString::new(template.name().to_string_lossy().as_bytes())?;
    let load = |options: &mut sys::bpf_prog_load_opts| {
        // SAFETY: all pointers are valid for the call, and the count is that of the instructions.
        let fd = unsafe {
            sys::bpf_prog_load(
                kind,
                name.as_ptr(),
                LICENSE.as_ptr(),
                instructions.as_ptr(),
                instructions.len() as sys::size_t,
                options,
            )
        };
        own(fd)
    };
    load(&mut options).inspect_err(|error| {
        // The verifier's log is for developers: `--verbose` prints it.
        if let Some((_, print)) = libbpf_rs::get_print() {
            let mut log = vec![0u8; LOG_SIZE];
            options.log_level = 1;
            options.log_size = log.len() as u32;
            options.log_buf = log.as_mut_ptr().cast();
            let _ = load(&mut options);
            let log = CStr::from_bytes_until_nul(&log).unwrap_or_default();
            if !log.is_empty() {
                let name = template.name().display();
                print(
                    PrintLevel::Warn,
                    format!("{name}: {error}\n{}\n", log.to_string_lossy()),
                );
            }
        }
    })
}

/// Attaches a program to the entries of several functions by one link (`bpf_tracing_multi_attach()`, 7.x). `functions`: their BTF type
/// numbers in vmlinux.
///
/// # Errors
/// The error of the kernel.
pub fn attach_to_entries(program: &OwnedFd, functions: &[u32]) -> io::Result<OwnedFd> {
    /// `union bpf_attr` for `BPF_LINK_CREATE`, with `tracing_multi` (include/uapi/linux/bpf.h).
    #[repr(C)]
    struct Attributes {
        program: i32,
        target: u32,
        attach_type: u32,
        flags: u32,
        ids: u64,
        cookies: u64,
        count: u32,
        unused: u32,
    }
    let attributes = Attributes {
        program: program.as_raw_fd(),
        target: 0,
        attach_type: MULTI.1,
        flags: 0,
        ids: functions.as_ptr() as u64,
        cookies: 0,
        count: functions.len() as u32,
        unused: 0,
    };
    let size = size_of_val(&attributes);
    // SAFETY: the kernel reads the attributes and the numbers during the call.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, sys::BPF_LINK_CREATE, &raw const attributes, size) };
    if fd < 0 {
        Err(io::Error::last_os_error())
    } else {
        own(fd as i32)
    }
}

/// Starts a BPF iterator; reading the file runs the program and returns its output.
///
/// # Errors
/// The error of the kernel.
pub fn walk(program: &OwnedFd) -> io::Result<File> {
    // SAFETY: the descriptor is open; no options are passed.
    let link = unsafe { sys::bpf_link_create(program.as_raw_fd(), 0, sys::BPF_TRACE_ITER, std::ptr::null()) };
    let link = own(link)?;
    // SAFETY: the link is open.
    own(unsafe { sys::bpf_iter_create(link.as_raw_fd()) }).map(File::from)
}

/// The BTF of the functions of a copy, in their order.
fn types_of_functions(template: &Program<'_>, copy: &Folded) -> Vec<sys::bpf_func_info> {
    let object = template.as_libbpf_object().as_ptr();
    // SAFETY: libbpf returns an array of this length, or null; it lives as long as the template.
    let known = unsafe {
        let first = sys::bpf_program__func_info(object);
        match sys::bpf_program__func_info_cnt(object) as usize {
            count if !first.is_null() => std::slice::from_raw_parts(first, count),
            _ => &[],
        }
    };
    let typed = known.iter().filter_map(|of| {
        let mut moved = copy.functions.iter();
        let moved = moved.find(|moved| moved.from == of.insn_off as usize)?;
        Some(sys::bpf_func_info {
            insn_off: moved.to as u32,
            ..*of
        })
    });
    typed.collect()
}

/// The kernel's information about a program; `None` if the kernel is too old to fill in the field at offset `until`.
fn info(program: &OwnedFd, until: usize) -> Option<sys::bpf_prog_info> {
    let mut info = sys::bpf_prog_info::default();
    let mut size = size_of::<sys::bpf_prog_info>() as u32;
    // SAFETY: `info` is valid for `size` bytes.
    let failed = unsafe { sys::bpf_obj_get_info_by_fd(program.as_raw_fd(), (&raw mut info).cast(), &raw mut size) };
    (failed == 0 && size as usize > until).then_some(info)
}

/// How often the kernel skipped this program (`recursion_misses`, 5.12). `None`: this kernel does not count that.
#[must_use]
pub fn skipped(program: &OwnedFd) -> Option<u64> {
    info(program, std::mem::offset_of!(sys::bpf_prog_info, recursion_misses)).map(|info| info.recursion_misses)
}

/// How often a program ran so far, and for how long on all CPUs together, while the kernel counted runs
/// ([`count_runs`]; 5.1). `None`: this kernel does not report that.
#[must_use]
pub fn runs(program: &OwnedFd) -> Option<Runs> {
    let info = info(program, std::mem::offset_of!(sys::bpf_prog_info, run_cnt))?;
    Some(Runs {
        count: info.run_cnt,
        ns: info.run_time_ns,
    })
}

/// Makes the kernel count the runs of all BPF programs on the machine until the descriptor is closed
/// (`BPF_ENABLE_STATS`, 5.8). Each run then reads the clock twice.
///
/// # Errors
/// The error of the kernel: EPERM without CAP_SYS_ADMIN, EINVAL before 5.8.
pub fn count_runs() -> io::Result<OwnedFd> {
    // SAFETY: the argument is an integer.
    own(unsafe { sys::bpf_enable_stats(sys::BPF_STATS_RUN_TIME) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mov(code: u8, imm: i32) -> sys::bpf_insn {
        sys::bpf_insn {
            code,
            imm,
            ..Default::default()
        }
    }

    #[test]
    fn every_unset_point_is_replaced_and_nothing_else() {
        let unset = POINT_UNSET as i32;
        let add = (sys::BPF_ALU64 | sys::BPF_ADD | sys::BPF_K) as u8;
        let mut program = [
            mov(MOV64_IMM, unset),
            mov(MOV64_IMM, 7),
            mov(add, unset),
            mov(MOV32_IMM, unset),
        ];
        assert_eq!(specialise(&mut program, 0x1234), [0, 3]);
        assert_eq!(program.map(|i| i.imm), [0x1234, 7, unset, 0x1234]);
    }
}
