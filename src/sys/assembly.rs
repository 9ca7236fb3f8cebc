//! Small programs that are run on request (`BPF_PROG_TYPE_SYSCALL`, 5.14), with input and output in a context of ours.

use std::ffi::{CStr, OsStr};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use libbpf_rs::{MapHandle, MapType};
use libbpf_sys as sys;

use super::own;

/// A program, loaded.
#[derive(Debug)]
pub struct SystemCall(OwnedFd);

impl SystemCall {
    /// # Errors
    /// The kernel's error: EINVAL before 5.14 or if it lacks a helper, EPERM without CAP_BPF and CAP_PERFMON.
    pub fn load(name: &CStr, instructions: &[sys::bpf_insn]) -> io::Result<Self> {
        let mut options = sys::bpf_prog_load_opts {
            sz: size_of::<sys::bpf_prog_load_opts>() as sys::size_t,
            // Programs of this type must be sleepable.
            prog_flags: sys::BPF_F_SLEEPABLE,
            ..Default::default()
        };
        // SAFETY: all pointers are valid for the call, and the count is that of the instructions.
        let fd = unsafe {
            sys::bpf_prog_load(
                sys::BPF_PROG_TYPE_SYSCALL,
                name.as_ptr(),
                c"GPL".as_ptr(),
                instructions.as_ptr(),
                instructions.len() as sys::size_t,
                &raw mut options,
            )
        };
        own(fd).map(Self)
    }

    /// Runs the program. It may change `context`.
    ///
    /// # Errors
    /// The kernel's error; `NotFound` if the program does not return 0.
    pub fn run(&self, context: &mut [u8]) -> io::Result<()> {
        let mut options = sys::bpf_test_run_opts {
            sz: size_of::<sys::bpf_test_run_opts>() as sys::size_t,
            ctx_in: match context {
                [] => std::ptr::null(),
                _ => context.as_mut_ptr().cast(),
            },
            ctx_size_in: context.len() as u32,
            ..Default::default()
        };
        // SAFETY: the program is open, and the context valid for its length, against which the kernel checks the
        // program's accesses.
        let failed = unsafe { sys::bpf_prog_test_run_opts(self.0.as_raw_fd(), &raw mut options) };
        match (failed, options.retval) {
            (0, 0) => Ok(()),
            (0, _) => Err(io::ErrorKind::NotFound.into()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Creates a map with a single value.
///
/// # Errors
/// The kernel's error.
pub fn one_value(kind: MapType, name: Option<&OsStr>, size: u32, flags: u32) -> libbpf_rs::Result<MapHandle> {
    let options = sys::bpf_map_create_opts {
        sz: size_of::<sys::bpf_map_create_opts>() as sys::size_t,
        map_flags: flags,
        ..Default::default()
    };
    MapHandle::create(kind, name, size_of::<u32>() as u32, size, 1, &options)
}

/// An instruction with a register and an immediate.
pub fn instruction(code: u32, register: u8, imm: i32) -> sys::bpf_insn {
    let mut instruction = sys::bpf_insn {
        code: code as u8,
        imm,
        ..Default::default()
    };
    instruction.set_dst_reg(register);
    instruction
}

/// `register = number`
pub fn number(register: u8, number: usize) -> sys::bpf_insn {
    instruction(sys::BPF_ALU64 | sys::BPF_MOV | sys::BPF_K, register, number as i32)
}

/// `register = other`
pub fn copied(register: u8, other: u8) -> sys::bpf_insn {
    let mut copied = instruction(sys::BPF_ALU64 | sys::BPF_MOV | sys::BPF_X, register, 0);
    copied.set_src_reg(other);
    copied
}

/// `register += number`
pub fn added(register: u8, number: i32) -> sys::bpf_insn {
    instruction(sys::BPF_ALU64 | sys::BPF_ADD | sys::BPF_K, register, number)
}

/// `register = map`
pub fn map(register: u8, map: RawFd) -> [sys::bpf_insn; 2] {
    of_map(register, map, sys::BPF_PSEUDO_MAP_FD, 0)
}

/// `register =` the address of `offset` in the only value of `map`
pub fn address_of(register: u8, map: RawFd, offset: usize) -> [sys::bpf_insn; 2] {
    of_map(register, map, sys::BPF_PSEUDO_MAP_VALUE, offset)
}

fn of_map(register: u8, map: RawFd, what: u32, offset: usize) -> [sys::bpf_insn; 2] {
    let mut low = instruction(sys::BPF_LD | sys::BPF_IMM | sys::BPF_DW, register, map);
    low.set_src_reg(what as u8);
    [low, instruction(0, 0, offset as i32)]
}

/// Calls a helper of the kernel.
pub fn call(helper: sys::bpf_func_id) -> sys::bpf_insn {
    instruction(sys::BPF_JMP | sys::BPF_CALL, 0, helper as i32)
}

/// Returns the value of register 0.
pub fn exit() -> sys::bpf_insn {
    instruction(sys::BPF_JMP | sys::BPF_EXIT, 0, 0)
}
