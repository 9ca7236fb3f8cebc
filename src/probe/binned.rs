//! The counters of calls whose start is in a session cookie: an element of a per-CPU map, whose address the programs
//! get without a lookup (`bpf/bins.bpf.h`).

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};

use libbpf_rs::MapType;
use libbpf_sys as sys;

use crate::kernel::interface::BINNED_OPS;
use crate::kernel::interface::types::binned;
use crate::kernel::possible_cpus;
use crate::sys::assembly::{self, SystemCall, one_value};
use crate::sys::counters::{Counters, at_one_moment, of_bytes};

/// The value of one CPU.
#[repr(C)]
#[derive(Default)]
struct OfCpu {
    ops: [binned; BINNED_OPS as usize],
}

// SAFETY: a C structure of integers, without padding and valid for every bit pattern.
unsafe impl plain::Plain for OfCpu {}

/// Reads the counters with a BPF program that copies the value of a CPU to memory that this process has mapped.
pub struct BinnedCounters {
    program: SystemCall,
    copy: Counters<OfCpu>,
    /// The numbers of all possible CPUs.
    cpus: Vec<u32>,
    /// The index of each op in the plan, in the order of their bins.
    ops: Vec<usize>,
    /// The values read last, by CPU.
    last: RefCell<Vec<OfCpu>>,
}

impl BinnedCounters {
    /// Reads the counters in `map`, whose bins belong to `ops`.
    ///
    /// # Errors If the possible CPUs are not known, or the kernel refuses to load or run the program; `InvalidInput` if
    /// there are more than [`BINNED_OPS`] ops.
    pub fn new(map: RawFd, ops: Vec<usize>) -> io::Result<Self> {
        if ops.len() > BINNED_OPS as usize {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let copy = one_value(MapType::Array, None, size_of::<OfCpu>() as u32, sys::BPF_F_MMAPABLE)
            .map_err(io::Error::other)?;
        let program = SystemCall::load(c"copy_binned", &program(map, copy.as_fd().as_raw_fd()))?;
        let cpus = possible_cpus().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
        let mut counters = Self {
            program,
            copy: Counters::map(&copy, 1)?,
            cpus,
            ops,
            last: RefCell::default(),
        };
        let first: io::Result<_> = counters.cpus.iter().map(|&cpu| counters.of_cpu(cpu)).collect();
        counters.last = RefCell::new(first?);
        Ok(counters)
    }

    /// The counters of each op that has bins, by CPU; those of a CPU are consistent. With an error if the kernel does
    /// not run the program, for example for lack of memory: then the counters of that CPU are those of the previous
    /// reading.
    pub fn read(&self) -> (Vec<(usize, binned)>, Option<io::Error>) {
        let mut failed = None;
        let mut last = self.last.borrow_mut();
        let mut all = Vec::new();
        for (&cpu, last) in self.cpus.iter().zip(last.iter_mut()) {
            match self.of_cpu(cpu) {
                Ok(counters) => *last = counters,
                Err(error) => failed = Some(error),
            }
            all.extend(self.ops.iter().copied().zip(last.ops));
        }
        (all, failed)
    }

    fn of_cpu(&self, cpu: u32) -> io::Result<OfCpu> {
        let copy = || {
            self.program.run(&mut u64::from(cpu).to_ne_bytes())?;
            Ok::<_, io::Error>(self.copy.copy(0))
        };
        at_one_moment(copy).map(|bytes| of_bytes(&bytes))
    }
}

/// A program that copies the value of a CPU in `map` to `copy`. The number of the CPU is in the program's context.
fn program(map: RawFd, copy: RawFd) -> Vec<sys::bpf_insn> {
    /// The register that points to the end of the stack.
    const STACK: u8 = 10;
    const KEY: i16 = -4;
    let mut cpu = assembly::instruction(sys::BPF_LDX | sys::BPF_MEM | sys::BPF_DW, 3, 0);
    cpu.set_src_reg(1);
    let mut key = assembly::instruction(sys::BPF_ST | sys::BPF_MEM | sys::BPF_W, STACK, 0);
    key.off = KEY;
    let its_address = [assembly::copied(2, STACK), assembly::added(2, KEY.into())];
    let found = [
        &[assembly::copied(3, 0)][..],
        &assembly::address_of(1, copy, 0),
        &[
            assembly::number(2, size_of::<OfCpu>()),
            assembly::call(sys::BPF_FUNC_probe_read_kernel),
            assembly::exit(),
        ],
    ];
    let found = found.concat();
    let mut unless_found = assembly::instruction(sys::BPF_JMP | sys::BPF_JEQ | sys::BPF_K, 0, 0);
    unless_found.off = found.len() as i16;
    let look_up = [assembly::call(sys::BPF_FUNC_map_lookup_percpu_elem), unless_found];
    let not_found = [assembly::number(0, 1), assembly::exit()];
    [
        &[cpu, key][..],
        &assembly::map(1, map),
        &its_address,
        &look_up,
        &found,
        &not_found,
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, AsRawFd};

    use libbpf_rs::{MapCore, MapFlags, MapType};

    use super::*;

    /// Run as root, which may create maps.
    #[test]
    fn counters_are_assigned_to_their_cpu_and_op() {
        let size = size_of::<OfCpu>();
        let key = 0_u32.to_ne_bytes();
        let map = one_value(MapType::PercpuArray, None, size as u32, 0).unwrap();
        let cpus = libbpf_rs::num_possible_cpus().unwrap();
        // The value of each word contains its index and the CPU.
        let word = |cpu: usize, word: usize| ((cpu << 32) + word) as u64;
        let value = |cpu| {
            (0..size / 8)
                .flat_map(|index| word(cpu, index).to_ne_bytes())
                .collect::<Vec<u8>>()
        };
        let values: Vec<Vec<u8>> = (0..cpus).map(value).collect();
        map.update_percpu(&key, &values, MapFlags::ANY).unwrap();

        let counters = BinnedCounters::new(map.as_fd().as_raw_fd(), vec![3, 7]).unwrap();
        let (all, failed) = counters.read();
        assert!(failed.is_none());
        assert_eq!(all.len(), cpus * 2);
        let words = size_of::<binned>() / 8;
        for (index, (op, counters)) in all.iter().enumerate() {
            let (cpu, first) = (index / 2, index % 2 * words);
            assert_eq!(*op, [3, 7][index % 2]);
            assert_eq!(counters.begun, word(cpu, first));
            let last = counters.bins.last().unwrap();
            assert_eq!(last.calls, word(cpu, first + words - 1));
        }
    }

    #[test]
    fn more_ops_than_bins_are_refused() {
        let refused = BinnedCounters::new(0, vec![1, 2, 3]).err().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    }
}
