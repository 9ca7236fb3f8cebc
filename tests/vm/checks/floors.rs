//! What the kernel takes for its hooks alone, in instructions: programs that do nothing, where the tool has its own. No tool that is
//! hooked there can take less.

use super::budget::probed;
use super::costs::{MINUTE, cached, millions_of, per_call, table, tell, tool};
use crate::guest::{Check, Guest, measured, ours, wait_for};
use iostackbreakdown::probe::attach::{Targets, attach_multi, attach_tracing};
use iostackbreakdown::probe::perf::{self, PerfLink};
use iostackbreakdown::probe::program::own;
use libbpf_sys as sys;
use nix::sys::signal::Signal;
use nix::time::ClockId;
use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr;

pub const CHECKS: &[Check] = &[
    table("floors: a pread, empty programs", pread),
    table("floors: the start, -T vfs", |guest| {
        start(guest, "floor start", Hook::Fentry, &["-T", "vfs", "--probe", "fentry"])
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
    Fsession,
    /// One on the other: what the first skips, because its CPU is inside it, the second sees, if it is not inside that as well.
    TwoFsessions,
    Kprobe,
    /// At the entry alone.
    KprobeEntry,
    Multi,
    MultiEntry,
    Session,
    /// At the system call, whatever layer is below it.
    RawTracepoint,
    Tracepoint,
}

const SYSTEM_CALLS: &str = "/sys/kernel/tracing/events/raw_syscalls";

/// What each hook adds to a read: its figure's name, and where there is one.
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
    let types = Types::load()?;
    let mut read = cached()?;
    let without = per_call(&mut read)?;
    measured("pread", without.round() as u64)?;
    for (hook, figure, kernels) in AT_A_READ {
        if kernels.contains(&guest.kernel.as_str()) {
            let attached = match hook {
                Hook::RawTracepoint | Hook::Tracepoint => at_system_calls(hook)?,
                _ => attach(hook, &["vfs_read"], &types)?,
            };
            let with = per_call(&mut read)?;
            drop(attached);
            tell(guest, figure, with - without)?;
        }
    }
    Ok(())
}

/// Attaches empty programs to the functions that the tool has its own at, in millions.
fn start(guest: &Guest, figure: &str, hook: Hook, arguments: &[&str]) -> Result<(), String> {
    let running = tool(guest, arguments)?;
    let functions = probed()?;
    running.signal(Signal::SIGINT)?;
    running.finish(MINUTE)?.success()?;
    wait_for("all to be detached", MINUTE, || ours().is_empty())?;
    let types = Types::load()?;
    // Those of modules would need the module's types; without them it is so much less.
    let functions = functions.iter().filter(|function| types.find(function).is_ok());
    let functions: Vec<&str> = functions.map(String::as_str).collect();
    if functions.is_empty() {
        return Err(format!("nothing was probed by {arguments:?}"));
    }
    let before = millions_of(ClockId::CLOCK_PROCESS_CPUTIME_ID)?;
    let attached = attach(hook, &functions, &types)?;
    let after = millions_of(ClockId::CLOCK_PROCESS_CPUTIME_ID)?;
    drop(attached);
    tell(guest, figure, after - before)
}

/// The number of a link that is made now: the kernel numbers all of them, one after the other (`bpf_link_prime()`).
pub(super) fn link_number() -> Result<u32, String> {
    let program = empty(sys::BPF_PROG_TYPE_KPROBE, sys::BPF_TRACE_KPROBE_MULTI, 0)?;
    let link = attach_multi(&program, Targets::Names(&["vfs_read"]), sys::BPF_TRACE_KPROBE_MULTI, 0);
    let link = link.map_err(|e| format!("vfs_read: {e}"))?;
    let info = perf::link_info(&link);
    info.map(|info| info.id)
        .ok_or_else(|| "a link has no number".to_owned())
}

/// The types of the kernel, which are read once.
struct Types(*mut sys::btf);

impl Types {
    fn load() -> Result<Self, String> {
        // SAFETY: takes nothing.
        let types = unsafe { sys::btf__load_vmlinux_btf() };
        if types.is_null() {
            return Err(format!("the kernel's BTF: {}", std::io::Error::last_os_error()));
        }
        Ok(Self(types))
    }

    fn find(&self, function: &str) -> Result<u32, String> {
        let name = CString::new(function).map_err(|e| format!("{function}: {e}"))?;
        // SAFETY: both live as long as the call.
        let id = unsafe { sys::btf__find_by_name_kind(self.0, name.as_ptr(), sys::BTF_KIND_FUNC) };
        u32::try_from(id).map_err(|_| format!("{function} is not in the kernel's BTF"))
    }
}

impl Drop for Types {
    fn drop(&mut self) {
        // SAFETY: it is ours.
        unsafe { sys::btf__free(self.0) };
    }
}

/// What is attached as long as it is not closed, and the programs.
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
            let program = empty(sys::BPF_PROG_TYPE_RAW_TRACEPOINT, 0, 0)?;
            let name = CString::new(event).map_err(|e| format!("{event}: {e}"))?;
            // SAFETY: the name and the program live until the call returns.
            let link = own(unsafe { sys::bpf_raw_tracepoint_open(name.as_ptr(), program.as_raw_fd()) });
            attached._fds.extend([link.map_err(failed)?, program]);
        } else {
            let program = empty(sys::BPF_PROG_TYPE_TRACEPOINT, 0, 0)?;
            let id = perf::read_number(format!("{SYSTEM_CALLS}/{event}/id")).map_err(failed)?;
            let link = perf::attach_event(program.as_fd(), id.into());
            attached._events.push(link.map_err(failed)?);
            attached._fds.push(program);
        }
    }
    Ok(attached)
}

fn attach(hook: Hook, functions: &[&str], types: &Types) -> Result<Attached, String> {
    let mut attached = Attached::default();
    let kinds: &[sys::bpf_attach_type] = match hook {
        Hook::Fentry => &[sys::BPF_TRACE_FEXIT, sys::BPF_TRACE_FENTRY],
        Hook::Fsession => &[sys::BPF_TRACE_FSESSION],
        Hook::TwoFsessions => &[sys::BPF_TRACE_FSESSION; 2],
        Hook::Kprobe => &[0, 0],
        Hook::KprobeEntry => &[0],
        Hook::MultiEntry => &[sys::BPF_TRACE_KPROBE_MULTI],
        Hook::Multi => &[sys::BPF_TRACE_KPROBE_MULTI; 2],
        Hook::Session => &[sys::BPF_TRACE_KPROBE_SESSION],
        Hook::RawTracepoint | Hook::Tracepoint => return Err("these are on events".to_owned()),
    };
    let is_trampoline = matches!(hook, Hook::Fentry | Hook::Fsession | Hook::TwoFsessions);
    for (place, &kind) in kinds.iter().enumerate() {
        if is_trampoline {
            for function in functions {
                let program = empty(sys::BPF_PROG_TYPE_TRACING, kind, types.find(function)?)?;
                let link = attach_tracing(&program).map_err(|e| format!("{function}: {e}"))?;
                attached._fds.extend([link, program]);
            }
            continue;
        }
        let program = empty(sys::BPF_PROG_TYPE_KPROBE, kind, 0)?;
        let at_return = kinds.len() == 2 && place == 0;
        if matches!(hook, Hook::Kprobe | Hook::KprobeEntry) {
            for function in functions {
                let event = perf::attach_kprobe(program.as_fd(), function, at_return);
                attached._events.push(event.map_err(|e| format!("{function}: {e}"))?);
            }
        } else {
            let flags = if at_return { sys::BPF_F_KPROBE_MULTI_RETURN } else { 0 };
            let link = attach_multi(&program, Targets::Names(functions), kind, flags)
                .map_err(|e| format!("{functions:?}: {e}"))?;
            attached._fds.push(link);
        }
        attached._fds.push(program);
    }
    Ok(attached)
}

/// A program that does nothing.
fn empty(kind: sys::bpf_prog_type, attach_type: sys::bpf_attach_type, target: u32) -> Result<OwnedFd, String> {
    let leave = [
        // r0 = 0; exit
        sys::bpf_insn {
            code: (sys::BPF_ALU64 | sys::BPF_MOV | sys::BPF_K) as u8,
            ..Default::default()
        },
        sys::bpf_insn {
            code: (sys::BPF_JMP | sys::BPF_EXIT) as u8,
            ..Default::default()
        },
    ];
    let mut options = sys::bpf_prog_load_opts {
        sz: size_of::<sys::bpf_prog_load_opts>() as sys::size_t,
        expected_attach_type: attach_type,
        attach_btf_id: target,
        ..Default::default()
    };
    // SAFETY: all pointers are valid for the call, and the count is that of the instructions.
    let program = unsafe {
        sys::bpf_prog_load(
            kind,
            c"empty".as_ptr(),
            c"GPL".as_ptr(),
            leave.as_ptr(),
            leave.len() as sys::size_t,
            ptr::from_mut(&mut options),
        )
    };
    own(program).map_err(|e| format!("an empty program: {e}"))
}
