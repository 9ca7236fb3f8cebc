//! Copies of the BPF object's template programs, specialised to one function each.
//!
//! libbpf relocates and loads each template once. A copy is the same instructions with the point written in, loaded for
//! another target. So the object has one program per hook, not one per function; what the function does not need is left out
//! ([`super::fold`]).

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use libbpf_rs::{AsRawLibbpf, Program};
use libbpf_sys as sys;

use super::fold::{Constants, fold};
use crate::kernel::btf::BtfFunction;
use crate::kernel::interface::POINT_UNSET;

/// Must agree with LICENSE in the BPF object.
const LICENSE: &std::ffi::CStr = c"Dual MIT/GPL";

/// Opcode of a move of an immediate into a register, the 32-bit and the 64-bit form.
const MOV32_IMM: u8 = (sys::BPF_ALU | sys::BPF_MOV | sys::BPF_K) as u8;
const MOV64_IMM: u8 = (sys::BPF_ALU64 | sys::BPF_MOV | sys::BPF_K) as u8;

/// Writes `point` wherever the compiler put [`POINT_UNSET`]; says how often.
fn specialise(instructions: &mut [sys::bpf_insn], point: u32) -> usize {
    let mut places = 0;
    for instruction in instructions {
        if matches!(instruction.code, MOV32_IMM | MOV64_IMM) && instruction.imm == POINT_UNSET as i32 {
            instruction.imm = point as i32;
            places += 1;
        }
    }
    places
}

/// The instructions of a copy of `template`: for `point` where it is specialised, less what the constants decide.
///
/// # Errors
/// `InvalidInput` when the template has no place for a point.
pub fn copy(template: &Program<'_>, constants: &Constants<'_>, point: Option<u32>) -> io::Result<Vec<sys::bpf_insn>> {
    let mut instructions = template.insns().to_vec();
    if let Some(point) = point
        && specialise(&mut instructions, point) == 0
    {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the program has no place for a point",
        ));
    }
    Ok(fold(&instructions, constants).unwrap_or(instructions))
}

/// Loads a copy of `template`, for `target` where it is a tracing program.
///
/// # Errors
/// What the kernel says.
pub fn load_copy(
    template: &Program<'_>,
    instructions: &[sys::bpf_insn],
    target: Option<&BtfFunction>,
) -> io::Result<OwnedFd> {
    let object = template.as_libbpf_object().as_ptr();
    // SAFETY: the template is loaded, so libbpf's program behind it is valid.
    let (kind, attach_type) = unsafe {
        (
            sys::bpf_program__type(object),
            sys::bpf_program__expected_attach_type(object),
        )
    };
    let mut options = sys::bpf_prog_load_opts {
        sz: size_of::<sys::bpf_prog_load_opts>() as sys::size_t,
        // libbpf-rs does not know all of them by name.
        expected_attach_type: attach_type,
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
    let name = CString::new(template.name().to_string_lossy().as_bytes())?;
    // SAFETY: all pointers are valid for the call, and the count is that of the instructions.
    let fd = unsafe {
        sys::bpf_prog_load(
            kind,
            name.as_ptr(),
            LICENSE.as_ptr(),
            instructions.as_ptr(),
            instructions.len() as sys::size_t,
            &raw mut options,
        )
    };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: `fd` was just opened and is ours.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// What the kernel knows of a program; `None` where it is too old to tell as much as `until`.
fn info(program: &OwnedFd, until: usize) -> Option<sys::bpf_prog_info> {
    let mut info = sys::bpf_prog_info::default();
    let mut size = size_of::<sys::bpf_prog_info>() as u32;
    // SAFETY: `info` is valid for `size` bytes.
    let failed = unsafe { sys::bpf_obj_get_info_by_fd(program.as_raw_fd(), (&raw mut info).cast(), &raw mut size) };
    (failed == 0 && size as usize > until).then_some(info)
}

/// How often the kernel skipped this program (`recursion_misses`, 5.12). `None`: this kernel does not count it.
#[must_use]
pub fn skipped(program: &OwnedFd) -> Option<u64> {
    info(program, std::mem::offset_of!(sys::bpf_prog_info, recursion_misses)).map(|info| info.recursion_misses)
}

/// How often a program ran, and for how long, while the kernel counted that ([`count_runs`]).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Runs {
    pub runs: u64,
    /// Nanoseconds, of all CPUs together.
    pub ns: u64,
}

/// What the kernel has counted of a program's runs so far (5.1). `None`: it does not tell.
#[must_use]
pub fn runs(program: &OwnedFd) -> Option<Runs> {
    let info = info(program, std::mem::offset_of!(sys::bpf_prog_info, run_cnt))?;
    Some(Runs {
        runs: info.run_cnt,
        ns: info.run_time_ns,
    })
}

/// Lets the kernel count runs of BPF programs, all on the machine, until the descriptor is closed (`BPF_ENABLE_STATS`,
/// 5.8). It costs each run two readings of the clock.
///
/// # Errors
/// What the kernel says: EPERM without CAP_SYS_ADMIN, EINVAL before 5.8.
pub fn count_runs() -> io::Result<OwnedFd> {
    // SAFETY: takes a number.
    let fd = unsafe { sys::bpf_enable_stats(sys::BPF_STATS_RUN_TIME) };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: `fd` was just opened and is ours.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
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
    fn every_unset_point_is_written_and_nothing_else() {
        let unset = POINT_UNSET as i32;
        let add = (sys::BPF_ALU64 | sys::BPF_ADD | sys::BPF_K) as u8;
        let mut program = [
            mov(MOV64_IMM, unset),
            mov(MOV64_IMM, 7),
            mov(add, unset),
            mov(MOV32_IMM, unset),
        ];
        assert_eq!(specialise(&mut program, 0x1234), 2);
        assert_eq!(program.map(|i| i.imm), [0x1234, 7, unset, 0x1234]);
    }
}
