//! Addresses of the kernel's symbols, asked for by name: what `/proc/kallsyms` would say of one, without a line for each of the others.

use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use libbpf_sys as sys;

use crate::probe::program::own;

/// Bytes of a name and the zeros behind it; the kernel has no longer ones that are asked for.
const NAME_SIZE: usize = 128;

/// A program that answers where a symbol is (`bpf_kallsyms_lookup_name`, 5.16). It has to be run for each.
#[derive(Debug)]
pub struct Lookup {
    program: OwnedFd,
    /// One value: the name, and behind it the address.
    place: MapHandle,
}

impl Lookup {
    /// # Errors
    /// What the kernel says: EINVAL before 5.16, EPERM without CAP_BPF and CAP_PERFMON.
    pub fn load() -> io::Result<Self> {
        let options = sys::bpf_map_create_opts {
            sz: size_of::<sys::bpf_map_create_opts>() as sys::size_t,
            ..Default::default()
        };
        let (key, value) = (size_of::<u32>(), NAME_SIZE + size_of::<u64>());
        let place = MapHandle::create(MapType::Array, None::<&str>, key as u32, value as u32, 1, &options)
            .map_err(io::Error::other)?;
        let instructions = program(place.as_fd().as_raw_fd());
        let mut options = sys::bpf_prog_load_opts {
            sz: size_of::<sys::bpf_prog_load_opts>() as sys::size_t,
            // There are no others of its type.
            prog_flags: sys::BPF_F_SLEEPABLE,
            ..Default::default()
        };
        // SAFETY: all pointers are valid for the call, and the count is that of the instructions.
        let fd = unsafe {
            sys::bpf_prog_load(
                sys::BPF_PROG_TYPE_SYSCALL,
                c"symbols".as_ptr(),
                c"GPL".as_ptr(),
                instructions.as_ptr(),
                instructions.len() as sys::size_t,
                &raw mut options,
            )
        };
        let program = own(fd)?;
        Ok(Self { program, place })
    }

    /// The address of the first symbol of that name, vmlinux's before a module's. `None`: there is none, or addresses are hidden
    /// (kernel.kptr_restrict), or the kernel would not say.
    #[must_use]
    pub fn address(&self, name: &str) -> Option<NonZeroU64> {
        let mut value = name.as_bytes().to_vec();
        if value.len() >= NAME_SIZE {
            return None;
        }
        value.resize(NAME_SIZE + size_of::<u64>(), 0);
        let key = 0_u32.to_ne_bytes();
        self.place.update(&key, &value, MapFlags::ANY).ok()?;
        let mut options = sys::bpf_test_run_opts {
            sz: size_of::<sys::bpf_test_run_opts>() as sys::size_t,
            ..Default::default()
        };
        // SAFETY: the program is open, and there is nothing that it is given or gives.
        let failed = unsafe { sys::bpf_prog_test_run_opts(self.program.as_raw_fd(), &raw mut options) };
        if failed != 0 || options.retval != 0 {
            return None;
        }
        let answer = self.place.lookup(&key, MapFlags::ANY).ok()??;
        let address = answer.get(NAME_SIZE..)?.try_into().ok()?;
        NonZeroU64::new(u64::from_ne_bytes(address))
    }
}

/// `bpf_kallsyms_lookup_name(name, NAME_SIZE, 0, address)`, whose answer is the program's.
fn program(map: i32) -> Vec<sys::bpf_insn> {
    let instruction = |code: u32, register: u8, imm: i32| {
        let mut instruction = sys::bpf_insn {
            code: code as u8,
            imm,
            ..Default::default()
        };
        instruction.set_dst_reg(register);
        instruction
    };
    let place = |register: u8, offset: usize| {
        let mut low = instruction(sys::BPF_LD | sys::BPF_IMM | sys::BPF_DW, register, map);
        low.set_src_reg(sys::BPF_PSEUDO_MAP_VALUE as u8);
        [low, instruction(0, 0, offset as i32)]
    };
    let number =
        |register: u8, imm: usize| instruction(sys::BPF_ALU64 | sys::BPF_MOV | sys::BPF_K, register, imm as i32);
    let mut instructions = Vec::new();
    instructions.extend(place(1, 0));
    instructions.push(number(2, NAME_SIZE));
    instructions.push(number(3, 0));
    instructions.extend(place(4, NAME_SIZE));
    let helper = sys::BPF_FUNC_kallsyms_lookup_name as i32;
    instructions.push(instruction(sys::BPF_JMP | sys::BPF_CALL, 0, helper));
    instructions.push(instruction(sys::BPF_JMP | sys::BPF_EXIT, 0, 0));
    instructions
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::kernel::kallsyms::Symbols;

    /// Run as root: the others would not be shown addresses in either way.
    #[test]
    fn says_what_kallsyms_says() {
        const NAMES: [&str; 3] = ["vfs_read", "proc_reg_file_ops", "no such symbol"];
        let lookup = Lookup::load().unwrap();
        let symbols = Symbols::read(&BTreeSet::from(NAMES)).unwrap();
        assert!(symbols.address(NAMES[0]).is_some(), "addresses are hidden");
        assert_eq!(
            NAMES.map(|name| lookup.address(name)),
            NAMES.map(|name| symbols.address(name))
        );
        assert_eq!(lookup.address(&"v".repeat(NAME_SIZE)), None);
        assert_eq!(lookup.address(""), None);
    }
}
