//! Looks up the address of a single kernel symbol, without reading all of `/proc/kallsyms`.

use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd};

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use libbpf_sys as sys;

use crate::sys::assembly::{self, SystemCall, one_value};

/// Bytes for a name and the zeros after it; no longer names are looked up.
const NAME_SIZE: usize = 128;

/// A program that looks up a symbol (`bpf_kallsyms_lookup_name`, 5.16). It is run once for each.
#[derive(Debug)]
pub struct Lookup {
    program: SystemCall,
    /// A single value: the name, followed by the address.
    buffer: MapHandle,
}

impl Lookup {
    /// # Errors
    /// The kernel's error: EINVAL before 5.16, EPERM without CAP_BPF and CAP_PERFMON.
    pub fn load() -> io::Result<Self> {
        let size = NAME_SIZE + size_of::<u64>();
        let buffer = one_value(MapType::Array, None, size as u32, 0).map_err(io::Error::other)?;
        let program = SystemCall::load(c"symbols", &program(buffer.as_fd().as_raw_fd()))?;
        Ok(Self { program, buffer })
    }

    /// The address of the first symbol of that name, vmlinux's before a module's. `None`: there is none, addresses are
    /// hidden (kernel.kptr_restrict), or the lookup failed.
    #[must_use]
    pub fn address(&self, name: &str) -> Option<NonZeroU64> {
        let mut value = name.as_bytes().to_vec();
        if value.len() >= NAME_SIZE {
            return None;
        }
        value.resize(NAME_SIZE + size_of::<u64>(), 0);
        let key = 0_u32.to_ne_bytes();
        self.buffer.update(&key, &value, MapFlags::ANY).ok()?;
        self.program.run(&mut []).ok()?;
        let answer = self.buffer.lookup(&key, MapFlags::ANY).ok()??;
        let address = answer.get(NAME_SIZE..)?.try_into().ok()?;
        NonZeroU64::new(u64::from_ne_bytes(address))
    }
}

/// Calls `bpf_kallsyms_lookup_name(name, NAME_SIZE, 0, address)` and returns its result.
fn program(map: i32) -> Vec<sys::bpf_insn> {
    let name = assembly::address_of(1, map, 0);
    let address = assembly::address_of(4, map, NAME_SIZE);
    let middle = [assembly::number(2, NAME_SIZE), assembly::number(3, 0)];
    let end = [assembly::call(sys::BPF_FUNC_kallsyms_lookup_name), assembly::exit()];
    [&name[..], &middle, &address, &end].concat()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::kernel::kallsyms::Symbols;

    /// Run as root: other users do not see addresses either way.
    #[test]
    fn agrees_with_kallsyms() {
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
