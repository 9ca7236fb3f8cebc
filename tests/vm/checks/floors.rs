//! The kernel's cost of its hooks, in instructions: empty programs at the tool's hooks. No tool with these hooks can
//! cost less.

use super::budget::probed;
use super::costs::{MINUTE, cached, direct, millions_of, per_call, table, tell, tool};
use crate::guest::{Check, Guest, all_detached, measured};
use iostackbreakdown::catalog::{COMPLETIONS, Layer};
use iostackbreakdown::kernel::btf::BtfFunction;
use iostackbreakdown::kernel::interface::types::call_record_few;
use iostackbreakdown::kernel::{self, Function, LazySymbols};
use iostackbreakdown::probe::Choice;
use iostackbreakdown::probe::attach::{Targets, attach_multi, attach_multi_to, attach_tracing};
use iostackbreakdown::probe::plan;
use iostackbreakdown::sys::own;
use iostackbreakdown::sys::perf::{self, PerfLink};
use libbpf_sys as sys;
use nix::sys::signal::Signal;
use nix::time::ClockId;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr;
use std::time::Instant;

pub const CHECKS: &[Check] = &[
    table("floors: a pread, empty programs", pread),
    table("floors: a record, the kernel's ring", ring),
    table("floors: a request, empty programs where recording sees it", submission),
    table("floors: the start, the kernel's types", types),
    table("floors: the start, -T vfs", |guest| {
        start(guest, "floor start", Hook::Fentry, &["-T", "vfs", "--probe", "fentry"])
    })
    .when(|guest| guest.table && guest.kernel == "6.1"),
    table("floors: the start, -T ext4", |guest| {
        start(guest, "floor start ext4", Hook::Fentry, &["-T", "ext4"])
    })
    .when(|guest| guest.table && guest.kernel == "6.1"),
    table("floors: the start, all layers by fentry", |guest| {
        start(guest, "floor start all fentry", Hook::Fentry, &[])
    })
    .when(|guest| guest.table && guest.kernel == "6.1"),
    table("floors: the start, all layers by kprobes", |guest| {
        start(guest, "floor start all kprobe", Hook::Kprobe, &["--probe", "kprobe"])
    })
    .when(|guest| guest.table && guest.kernel == "6.1"),
    table("floors: the start, all layers by kprobe.session", |guest| {
        start(guest, "floor start all", Hook::Session, &[])
    })
    .when(|guest| guest.table && guest.kernel == "7"),
];

#[derive(Clone, Copy)]
enum Hook {
    Fentry,
    /// At the entry only.
    FentryAlone,
    Fsession,
    /// Two on the same function: what the first skips because it is running on this CPU, the second sees, unless it is
    /// running as well.
    TwoFsessions,
    Kprobe,
    /// At the entry only.
    KprobeEntry,
    Multi,
    MultiEntry,
    Session,
    /// At system calls, whatever layer is below.
    RawTracepoint,
    Tracepoint,
}

impl Hook {
    /// The same at entries only.
    fn at_entry(self) -> Self {
        match self {
            Self::Fentry => Self::FentryAlone,
            Self::Kprobe => Self::KprobeEntry,
            Self::Session => Self::MultiEntry,
            other => other,
        }
    }
}

const SYSTEM_CALLS: &str = "/sys/kernel/tracing/events/raw_syscalls";

/// What each hook adds to a read: the name of its figure, and where the hook exists.
const AT_A_READ: [(Hook, &str, &[&str]); 10] = [
    (Hook::Fentry, "floor", &["6.1", "7"]),
    (Hook::Kprobe, "floor kprobe", &["6.1", "7"]),
    (Hook::Fsession, "floor fsession", &["7"]),
    (Hook::TwoFsessions, "floor fsessions", &["7"]),
    (Hook::Multi, "floor multi", &["7"]),
    (Hook::KprobeEntry, "floor kprobe entry", &["7"]),
    (Hook::MultiEntry, "floor multi entry", &["7"]),
    (Hook::Session, "floor session", &["7"]),
    (Hook::RawTracepoint, "floor raw tracepoint", &["7"]),
    (Hook::Tracepoint, "floor tracepoint", &["7"]),
];

fn pread(guest: &Guest) -> Result<(), String> {
    let known = known(&["vfs_read"])?;
    let mut read = cached()?;
    let without = per_call(&mut read)?;
    measured("pread", without.round() as u64)?;
    for (hook, figure, kernels) in AT_A_READ {
        if kernels.contains(&guest.kernel.as_str()) {
            let attached = match hook {
                Hook::RawTracepoint | Hook::Tracepoint => at_system_calls(hook)?,
                _ => attach(hook, &["vfs_read"], &known)?,
            };
            let with = per_call(&mut read)?;
            drop(attached);
            tell(guest, figure, with - without)?;
        }
    }
    Ok(())
}

/// What the kernel's ring takes for a record of a call: reserving room and submitting it, at the return of a system call.
fn ring(guest: &Guest) -> Result<(), String> {
    let mut read = cached()?;
    let empty = at_raw_tracepoint("sys_exit", empty(sys::BPF_PROG_TYPE_RAW_TRACEPOINT, 0, None)?)?;
    let without = per_call(&mut read)?;
    drop(empty);
    let (ring, program) = one_record()?;
    let attached = at_raw_tracepoint("sys_exit", program)?;
    let with = per_call(&mut read)?;
    drop((attached, ring));
    tell(guest, "floor ring", with - without)
}

/// What the kernel takes to call the program that a recording needs beside those that time requests: who submits, and when.
/// Where tasks are preempted inside the kernel, a kprobe sees it, which is not skipped then.
fn submission(guest: &Guest) -> Result<(), String> {
    let (_disk, mut read) = direct(guest)?;
    let without = per_call(&mut read)?;
    let submit = ["submit_bio_noacct"];
    let attached = match guest.kernel.as_str() {
        "7" => attach(Hook::KprobeEntry, &submit, &known(&submit)?)?,
        _ => {
            let empty = empty(sys::BPF_PROG_TYPE_RAW_TRACEPOINT, 0, None)?;
            at_raw_tracepoint("block_bio_queue", empty)?
        }
    };
    let with = per_call(&mut read)?;
    drop(attached);
    tell(guest, "floor blk recorded", with - without)
}

/// libbpf parsing the kernel's types, as it must for every portable program, in millions.
fn types(guest: &Guest) -> Result<(), String> {
    let before = millions_of(ClockId::CLOCK_PROCESS_CPUTIME_ID)?;
    // SAFETY: the result is freed below, and not used afterwards.
    let types = unsafe { sys::btf__load_vmlinux_btf() };
    if types.is_null() {
        return Err(format!("the kernel's types: {}", std::io::Error::last_os_error()));
    }
    let after = millions_of(ClockId::CLOCK_PROCESS_CPUTIME_ID)?;
    // SAFETY: it is libbpf's own, and not shared.
    unsafe { sys::btf__free(types) };
    tell(guest, "floor start types", after - before)
}

/// Attaches empty programs to the functions that the tool attaches to, in millions.
fn start(guest: &Guest, figure: &str, hook: Hook, arguments: &[&str]) -> Result<(), String> {
    let running = tool(guest, arguments)?;
    let functions = probed()?;
    running.signal(Signal::SIGINT)?;
    running.finish(MINUTE)?.success()?;
    all_detached()?;
    let functions = functions.iter().map(String::as_str);
    let is_whole_stack = !arguments.contains(&"-T");
    let (entered, passed): (Vec<&str>, Vec<&str>) =
        functions.partition(|function| plan::functions_entered(is_whole_stack).any(|entered| entered == *function));
    if passed.is_empty() {
        return Err(format!("nothing was probed by {arguments:?}"));
    }
    let known = known(&passed.iter().chain(&entered).copied().collect::<Vec<_>>())?;
    // Two trampolines each: what one of them skips in an interrupt, the other sees.
    let is_twice = |function: &&str| {
        matches!(hook, Hook::Fentry) && COMPLETIONS.iter().any(|completion| completion.function == *function)
    };
    let twice: Vec<&str> = entered.iter().copied().filter(is_twice).collect();
    let before = millions_of(ClockId::CLOCK_PROCESS_CPUTIME_ID)?;
    let attached = [
        attach(hook, &passed, &known)?,
        attach(hook.at_entry(), &entered, &known)?,
        attach(hook.at_entry(), &twice, &known)?,
    ];
    let after = millions_of(ClockId::CLOCK_PROCESS_CPUTIME_ID)?;
    let begun = Instant::now();
    drop(attached);
    all_detached()?;
    if is_whole_stack && matches!(hook, Hook::Fentry) {
        tell(guest, "floor detach", begun.elapsed().as_millis() as f64)?;
    }
    tell(guest, figure, after - before)
}

/// The number of a new link: the kernel numbers all of them consecutively (`bpf_link_prime()`).
pub(super) fn link_number() -> Result<u32, String> {
    let program = empty(sys::BPF_PROG_TYPE_KPROBE, sys::BPF_TRACE_KPROBE_MULTI, None)?;
    let link = attach_multi(
        &program,
        Targets::Names(&["vfs_read"]),
        &[],
        sys::BPF_TRACE_KPROBE_MULTI,
        0,
    );
    let link = link.map_err(|e| format!("vfs_read: {e}"))?;
    let info = perf::link_info(&link);
    info.map(|info| info.id)
        .ok_or_else(|| "a link has no number".to_owned())
}

/// What is needed to attach to functions.
type Known = BTreeMap<String, Function>;

/// Their types and addresses, found in the same way as by the tool.
fn known(functions: &[&str]) -> Result<Known, String> {
    let modules = plan::functions_of(&Layer::ALL, Choice::Auto, true);
    let modules: BTreeMap<_, _> = modules
        .into_iter()
        .chain(plan::functions_of_rows(&Layer::ALL, Choice::Auto))
        .collect();
    let module = |name: &str| modules.get(name).copied().flatten();
    let functions: BTreeMap<_, _> = functions
        .iter()
        .map(|name| ((*name).to_owned(), module(name)))
        .collect();
    let symbols = LazySymbols::new(functions.keys().cloned(), &[]);
    let mut facts = kernel::gather(&functions, &[], &symbols).map_err(|error| error.to_string())?;
    symbols.get().map_err(|error| error.to_string())?;
    facts.locate(&symbols, true);
    Ok(facts.functions)
}

/// Links, which are attached until they are closed, and the programs.
#[derive(Default)]
struct Attached {
    _fds: Vec<OwnedFd>,
    _events: Vec<PerfLink>,
}

fn at_system_calls(hook: Hook) -> Result<Attached, String> {
    let mut attached = Attached::default();
    for event in ["sys_enter", "sys_exit"] {
        let failed = |error: std::io::Error| format!("{event}: {error}");
        if matches!(hook, Hook::RawTracepoint) {
            let at = at_raw_tracepoint(event, empty(sys::BPF_PROG_TYPE_RAW_TRACEPOINT, 0, None)?)?;
            attached._fds.extend(at._fds);
        } else {
            let program = empty(sys::BPF_PROG_TYPE_TRACEPOINT, 0, None)?;
            let id = perf::read_number(format!("{SYSTEM_CALLS}/{event}/id")).map_err(failed)?;
            let link = perf::attach_event(program.as_fd(), id.into());
            attached._events.push(link.map_err(failed)?);
            attached._fds.push(program);
        }
    }
    Ok(attached)
}

fn at_raw_tracepoint(event: &str, program: OwnedFd) -> Result<Attached, String> {
    let failed = |error: &dyn std::fmt::Display| format!("{event}: {error}");
    let name = CString::new(event).map_err(|e| failed(&e))?;
    // SAFETY: the name and the program outlive the call.
    let link = own(unsafe { sys::bpf_raw_tracepoint_open(name.as_ptr(), program.as_raw_fd()) });
    Ok(Attached {
        _fds: vec![link.map_err(|e| failed(&e))?, program],
        ..Attached::default()
    })
}

fn attach(hook: Hook, functions: &[&str], known: &Known) -> Result<Attached, String> {
    let mut attached = Attached::default();
    let kinds: &[sys::bpf_attach_type] = match hook {
        Hook::Fentry => &[sys::BPF_TRACE_FEXIT, sys::BPF_TRACE_FENTRY],
        Hook::FentryAlone => &[sys::BPF_TRACE_FENTRY],
        Hook::Fsession => &[sys::BPF_TRACE_FSESSION],
        Hook::TwoFsessions => &[sys::BPF_TRACE_FSESSION; 2],
        Hook::Kprobe => &[0, 0],
        Hook::KprobeEntry => &[0],
        Hook::MultiEntry => &[sys::BPF_TRACE_KPROBE_MULTI],
        Hook::Multi => &[sys::BPF_TRACE_KPROBE_MULTI; 2],
        Hook::Session => &[sys::BPF_TRACE_KPROBE_SESSION],
        Hook::RawTracepoint | Hook::Tracepoint => return Err("these are on events".to_owned()),
    };
    if functions.is_empty() {
        return Ok(attached);
    }
    let is_trampoline = matches!(
        hook,
        Hook::Fentry | Hook::FentryAlone | Hook::Fsession | Hook::TwoFsessions
    );
    for (place, &kind) in kinds.iter().enumerate() {
        if is_trampoline {
            for function in functions {
                let target = known.get(*function).and_then(|function| function.btf.as_ref());
                let target = target.ok_or_else(|| format!("{function} is not in BTF"))?;
                let program = empty(sys::BPF_PROG_TYPE_TRACING, kind, Some(target))?;
                let link = attach_tracing(&program).map_err(|e| format!("{function}: {e}"))?;
                attached._fds.extend([link, program]);
            }
            continue;
        }
        let program = empty(sys::BPF_PROG_TYPE_KPROBE, kind, None)?;
        let at_return = kinds.len() == 2 && place == 0;
        if matches!(hook, Hook::Kprobe | Hook::KprobeEntry) {
            for function in functions {
                let event = perf::attach_kprobe(program.as_fd(), function, at_return, 0);
                attached._events.push(event.map_err(|e| format!("{function}: {e}"))?);
            }
        } else {
            let flags = if at_return { sys::BPF_F_KPROBE_MULTI_RETURN } else { 0 };
            let link = attach_multi_to(&program, functions, &[], known, kind, flags);
            let link = link.map_err(|e| format!("{functions:?}: {e}"))?;
            attached._fds.push(link);
        }
        attached._fds.push(program);
    }
    Ok(attached)
}

/// An empty program.
fn empty(
    kind: sys::bpf_prog_type,
    attach_type: sys::bpf_attach_type,
    target: Option<&BtfFunction>,
) -> Result<OwnedFd, String> {
    load(kind, attach_type, target, &leave()).map_err(|e| format!("an empty program: {e}"))
}

/// A ring, and a program that writes one record to it, which has the size of that of most calls.
fn one_record() -> Result<(OwnedFd, OwnedFd), String> {
    // More than a measurement writes: there is no reader.
    const BYTES: u32 = 16 << 20;
    let size = size_of::<call_record_few>() as i32;
    // SAFETY: the name outlives the call; there are no options.
    let ring = unsafe { sys::bpf_map_create(sys::BPF_MAP_TYPE_RINGBUF, c"ring".as_ptr(), 0, 0, BYTES, ptr::null()) };
    let ring = own(ring).map_err(|e| format!("a ring: {e}"))?;
    let set = |register, n| insn(sys::BPF_ALU64 | sys::BPF_MOV | sys::BPF_K, register, 0, n);
    let call = |helper: sys::bpf_func_id| insn(sys::BPF_JMP | sys::BPF_CALL, 0, 0, helper as i32);
    let mut no_room = insn(sys::BPF_JMP | sys::BPF_JEQ | sys::BPF_K, 0, 0, 0);
    no_room.off = 3;
    let write = [
        insn(
            sys::BPF_LD | sys::BPF_DW | sys::BPF_IMM,
            1,
            sys::BPF_PSEUDO_MAP_FD as u8,
            ring.as_raw_fd(),
        ),
        insn(0, 0, 0, 0),
        set(2, size),
        set(3, 0),
        call(sys::BPF_FUNC_ringbuf_reserve),
        no_room,
        insn(sys::BPF_ALU64 | sys::BPF_MOV | sys::BPF_X, 1, 0, 0),
        set(2, sys::BPF_RB_NO_WAKEUP as i32),
        call(sys::BPF_FUNC_ringbuf_submit),
    ];
    let program = load(
        sys::BPF_PROG_TYPE_RAW_TRACEPOINT,
        0,
        None,
        &[&write[..], &leave()].concat(),
    );
    Ok((
        ring,
        program.map_err(|e| format!("a program that writes a record: {e}"))?,
    ))
}

fn insn(code: u32, destination: u8, source: u8, imm: i32) -> sys::bpf_insn {
    let mut insn = sys::bpf_insn {
        code: code as u8,
        imm,
        ..Default::default()
    };
    insn.set_dst_reg(destination);
    insn.set_src_reg(source);
    insn
}

/// Returns 0.
fn leave() -> [sys::bpf_insn; 2] {
    [
        insn(sys::BPF_ALU64 | sys::BPF_MOV | sys::BPF_K, 0, 0, 0),
        insn(sys::BPF_JMP | sys::BPF_EXIT, 0, 0, 0),
    ]
}

fn load(
    kind: sys::bpf_prog_type,
    attach_type: sys::bpf_attach_type,
    target: Option<&BtfFunction>,
    insns: &[sys::bpf_insn],
) -> std::io::Result<OwnedFd> {
    let module = target.and_then(|target| target.module.as_ref()?.object.as_ref());
    let mut options = sys::bpf_prog_load_opts {
        sz: size_of::<sys::bpf_prog_load_opts>() as sys::size_t,
        expected_attach_type: attach_type,
        attach_btf_id: target.map_or(0, |target| target.id),
        attach_btf_obj_fd: module.map_or(0, |module| module.as_raw_fd() as u32),
        ..Default::default()
    };
    // SAFETY: all pointers are valid for the call, and the count is that of the instructions.
    own(unsafe {
        sys::bpf_prog_load(
            kind,
            c"floor".as_ptr(),
            c"GPL".as_ptr(),
            insns.as_ptr(),
            insns.len() as sys::size_t,
            ptr::from_mut(&mut options),
        )
    })
}
