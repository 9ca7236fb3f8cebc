//! The counters of calls whose start is in a cookie, where each CPU's values are at an address that the kernel computes (`bpf/bins.bpf.h`).

use std::fs;
use std::io;
use std::os::fd::RawFd;

use libbpf_sys as sys;

use super::assembly::{self, SystemCall};
use crate::kernel::interface::BINNED_OPS;
use crate::kernel::interface::types::binned;

/// What the program is asked for, and its answer.
#[repr(C)]
#[derive(Default)]
struct OfCpu {
    cpu: u64,
    ops: [binned; BINNED_OPS as usize],
}

// SAFETY: a plain C structure of integers, without padding and valid for every bit pattern.
unsafe impl plain::Plain for OfCpu {}

/// Reads them, by a program that copies a CPU's values.
pub struct BinnedCounters {
    program: SystemCall,
    /// Numbers of those that there may be.
    cpus: Vec<u32>,
    /// In the order of their bins: each op's place in the plan.
    ops: Vec<usize>,
}

impl BinnedCounters {
    /// Those in `map`.
    ///
    /// # Errors
    /// When the kernel does not say which CPUs there may be, or does not load or run the program; `InvalidInput` when there are more
    /// ops than have bins.
    pub fn new(map: RawFd, ops: Vec<usize>) -> io::Result<Self> {
        if ops.len() > BINNED_OPS as usize {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let program = SystemCall::load(c"copy_binned", &program(map))?;
        let cpus = numbers(&fs::read_to_string("/sys/devices/system/cpu/possible")?)
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
        let counters = Self { program, cpus, ops };
        counters.cpus.iter().try_for_each(|&cpu| counters.copy(cpu).map(drop))?;
        Ok(counters)
    }

    /// The counters of each op that has bins, CPU by CPU, each CPU's as they stood at one moment.
    ///
    /// # Errors
    /// When the kernel does not run the program, as for want of memory.
    pub fn all(&self) -> io::Result<Vec<(usize, binned)>> {
        let mut all = Vec::new();
        for &cpu in &self.cpus {
            all.extend(self.ops.iter().copied().zip(self.read(cpu)?.ops));
        }
        Ok(all)
    }

    /// As [`Counters`](super::counters::Counters) reads: two copies that agree were taken while no program changed what they are of.
    fn read(&self, cpu: u32) -> io::Result<OfCpu> {
        const ATTEMPTS: usize = 16;
        let mut copy = self.copy(cpu)?;
        for _ in 0..ATTEMPTS {
            let again = self.copy(cpu)?;
            if again == copy {
                break;
            }
            copy = again;
        }
        let mut counters = OfCpu::default();
        // The sizes are the same by construction.
        let _ = plain::copy_from_bytes(&mut counters, &copy);
        Ok(counters)
    }

    /// The bytes of a [`OfCpu`].
    fn copy(&self, cpu: u32) -> io::Result<Vec<u8>> {
        let mut context = vec![0_u8; size_of::<OfCpu>()];
        let first = context.first_chunk_mut().ok_or(io::ErrorKind::InvalidData)?;
        *first = u64::from(cpu).to_ne_bytes();
        self.program.run(&mut context)?;
        Ok(context)
    }
}

/// Copies the value of the CPU that a [`OfCpu`] names into it.
fn program(map: RawFd) -> Vec<sys::bpf_insn> {
    /// Registers: the program's context, and the end of its stack.
    const CONTEXT: u8 = 6;
    const STACK: u8 = 10;
    const KEY: i16 = -4;
    let mut key = assembly::instruction(sys::BPF_ST | sys::BPF_MEM | sys::BPF_W, STACK, 0);
    key.off = KEY;
    let mut cpu = assembly::instruction(sys::BPF_LDX | sys::BPF_MEM | sys::BPF_DW, 3, 0);
    cpu.set_src_reg(CONTEXT);
    let begin = [assembly::copied(CONTEXT, 1), key];
    let arguments = [assembly::copied(2, STACK), assembly::added(2, KEY.into()), cpu];
    let look_up = assembly::call(sys::BPF_FUNC_map_lookup_percpu_elem);
    let copy = [
        assembly::copied(3, 0),
        assembly::copied(1, CONTEXT),
        assembly::added(1, std::mem::offset_of!(OfCpu, ops) as i32),
        assembly::number(2, size_of::<OfCpu>() - std::mem::offset_of!(OfCpu, ops)),
        assembly::call(sys::BPF_FUNC_probe_read_kernel),
        assembly::exit(),
    ];
    let mut unless_found = assembly::instruction(sys::BPF_JMP | sys::BPF_JEQ | sys::BPF_K, 0, 0);
    unless_found.off = copy.len() as i16;
    let not_found = [assembly::number(0, 1), assembly::exit()];
    [
        &begin[..],
        &assembly::map(1, map),
        &arguments,
        &[look_up, unless_found],
        &copy,
        &not_found,
    ]
    .concat()
}

/// What a list of the kernel's names: `0-3,5`. `None`: it is none.
fn numbers(list: &str) -> Option<Vec<u32>> {
    let mut numbers = Vec::new();
    for range in list.trim_end().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        numbers.extend(first.parse::<u32>().ok()?..=last.parse().ok()?);
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_numbers_are_read() {
        assert_eq!(numbers("0\n"), Some(vec![0]));
        assert_eq!(numbers("0-3,5,7-8\n"), Some(vec![0, 1, 2, 3, 5, 7, 8]));
        assert_eq!(numbers(""), None);
        assert_eq!(numbers("0-x"), None);
    }
}
