//! Liveness of registers and of the stack; removes dead writes.

use libbpf_sys as sys;
use libbpf_sys::bpf_insn;

use crate::model::abi::{
    KFUNC_PREEMPT_DISABLE, KFUNC_PREEMPT_ENABLE, KFUNC_RDONLY_CAST, KFUNC_SESSION_COOKIE, KFUNC_SESSION_COOKIE_CTX,
    KFUNC_SESSION_IS_RETURN, KFUNC_SESSION_IS_RETURN_CTX,
};

use super::layout::at_or_after;
use super::state::{STACK, Value};
use super::{
    CALL, EXIT, FRAME, JUMP, Kept, LOAD_CONSTANT, MODE, MOST_ARGUMENTS, OPERATION, class, goes_on, has_register,
    is_arithmetic, is_own_call, size_of_access,
};

/// Registers, a bit each.
type Set = u16;

pub(super) const fn bit(register: u8) -> Set {
    1 << register
}

/// The registers that an instruction reads.
fn uses(instruction: &bpf_insn) -> Set {
    let (first, second) = (bit(instruction.dst_reg()), bit(instruction.src_reg()));
    let second_if_register = if has_register(instruction) { second } else { 0 };
    let operation = u32::from(instruction.code & OPERATION);
    match instruction.code {
        JUMP | LOAD_CONSTANT => 0,
        CALL => (1..=arguments(instruction)).fold(0, |set, register| set | bit(register)),
        EXIT => bit(0),
        _ => match class(instruction) {
            sys::BPF_ALU | sys::BPF_ALU64 => match operation {
                sys::BPF_MOV => second_if_register,
                sys::BPF_NEG | sys::BPF_END => first,
                _ => first | second_if_register,
            },
            sys::BPF_LDX => second,
            sys::BPF_ST => first,
            // A compare-and-exchange compares with r0.
            sys::BPF_STX if u32::from(instruction.code & MODE) == sys::BPF_ATOMIC => first | second | bit(0),
            sys::BPF_STX => first | second,
            _ => first | second_if_register,
        },
    }
}

/// How many arguments a call has at most.
pub(super) fn arguments(call: &bpf_insn) -> u8 {
    if is_own_call(call) {
        // `each_function` keeps the number of arguments in `off`. Before that it is 0: assume all.
        return u8::try_from(call.off)
            .ok()
            .filter(|&taken| taken > 0)
            .unwrap_or(MOST_ARGUMENTS);
    }
    if call.src_reg() != 0 {
        return MOST_ARGUMENTS;
    }
    match call.imm as u32 {
        sys::BPF_FUNC_ktime_get_ns
        | sys::BPF_FUNC_get_current_pid_tgid
        | sys::BPF_FUNC_get_smp_processor_id
        | sys::BPF_FUNC_get_current_task
        | sys::BPF_FUNC_get_current_task_btf
        | KFUNC_PREEMPT_DISABLE
        | KFUNC_PREEMPT_ENABLE
        | KFUNC_SESSION_IS_RETURN
        | KFUNC_SESSION_COOKIE => 0,
        KFUNC_SESSION_IS_RETURN_CTX | KFUNC_SESSION_COOKIE_CTX => 1,
        sys::BPF_FUNC_map_lookup_elem
        | sys::BPF_FUNC_map_delete_elem
        | sys::BPF_FUNC_get_current_comm
        | KFUNC_RDONLY_CAST => 2,
        sys::BPF_FUNC_probe_read_kernel => 3,
        sys::BPF_FUNC_map_update_elem => 4,
        _ => MOST_ARGUMENTS,
    }
}

/// The registers that an instruction overwrites.
fn overwrites(instruction: &bpf_insn) -> Set {
    match instruction.code {
        CALL => bit(0) | bit(1) | bit(2) | bit(3) | bit(4) | bit(5),
        LOAD_CONSTANT => bit(instruction.dst_reg()),
        _ if is_arithmetic(instruction) || class(instruction) == sys::BPF_LDX => bit(instruction.dst_reg()),
        _ => 0,
    }
}

/// Whether it does nothing but write a register.
fn only_writes_a_register(instruction: &bpf_insn) -> bool {
    instruction.code == LOAD_CONSTANT || is_arithmetic(instruction) || class(instruction) == sys::BPF_LDX
}

/// The effect of an instruction on registers.
#[derive(Debug, Clone, Copy)]
struct Effect {
    reads: Set,
    writes: Set,
    /// The register that it writes, if it does nothing else.
    only_writes: Set,
    goes_on: bool,
    target: Option<usize>,
}

impl Effect {
    fn of(it: &Kept, kept: &[Kept]) -> Self {
        let writes = overwrites(&it.instruction);
        Self {
            reads: uses(&it.instruction),
            writes,
            only_writes: if only_writes_a_register(&it.instruction) {
                writes
            } else {
                0
            },
            goes_on: goes_on(&it.instruction),
            target: it.target.map(|target| at_or_after(kept, target)),
        }
    }
}

/// The registers that are read later, after each instruction and at the beginning.
pub(super) struct Liveness {
    after: Vec<Set>,
    pub(super) at_entry: Set,
}

impl Liveness {
    /// As if instructions that only write an unused register had been removed.
    pub(super) fn of(kept: &[Kept]) -> Self {
        let effects: Vec<Effect> = kept.iter().map(|it| Effect::of(it, kept)).collect();
        let mut is_loop_head = vec![false; effects.len() + 1];
        for (index, it) in effects.iter().enumerate() {
            if let Some(target) = it.target.filter(|&target| target <= index) {
                is_loop_head[target] = true;
            }
        }
        let mut after: Vec<Set> = vec![0; effects.len()];
        // Before each instruction; nothing is live after the last one.
        let mut before: Vec<Set> = vec![0; effects.len() + 1];
        loop {
            // Liveness at the target of a jump back is complete only in the next round.
            let mut is_settled = true;
            for (index, it) in effects.iter().enumerate().rev() {
                let next = if it.goes_on { before[index + 1] } else { 0 };
                let needed = next | it.target.map_or(0, |target| before[target]);
                after[index] = needed;
                let is_unused = it.only_writes != 0 && it.only_writes & needed == 0;
                let now = if is_unused {
                    needed
                } else {
                    needed & !it.writes | it.reads
                };
                is_settled &= before[index] == now || !is_loop_head[index];
                before[index] = now;
            }
            if is_settled {
                break;
            }
        }
        let at_entry = before[0];
        Self { after, at_entry }
    }
}

/// Removes instructions that only write a register that is not read afterwards.
pub(super) fn drop_unused(kept: &mut Vec<Kept>) {
    let liveness = Liveness::of(kept);
    let mut after = liveness.after.iter();
    kept.retain(|it| {
        let needed = after.next().copied().unwrap_or(0);
        !only_writes_a_register(&it.instruction) || needed & bit(it.instruction.dst_reg()) != 0
    });
}

/// The lowest stack address in a register: code that has one may access memory from there upwards. `None`: unknown.
fn lowest_given(kept: &[Kept]) -> Option<i64> {
    let given = |lowest: i64, it: &Kept| match it.result {
        Value::Stack(address) => Some(lowest.min(address)),
        Value::MaybeStack => None,
        Value::NotStack | Value::Number(_) | Value::Constant(_) | Value::Address => Some(lowest),
    };
    kept.iter().try_fold(i64::MAX, given)
}

/// Removes stores to parts of the stack that are never read. Returns whether there were any.
pub(super) fn drop_unread(kept: &mut Vec<Kept>) -> bool {
    let Some(given) = lowest_given(kept) else {
        return false;
    };
    let before = kept.len();
    let mut read = [false; STACK as usize];
    for it in kept.iter() {
        match it.from {
            Value::Stack(address) => read[bytes_from(address, &it.instruction)].fill(true),
            Value::MaybeStack => return false,
            Value::NotStack | Value::Number(_) | Value::Constant(_) | Value::Address => {}
        }
    }
    kept.retain(|it| {
        let instruction = &it.instruction;
        let is_store = matches!(class(instruction), sys::BPF_ST | sys::BPF_STX)
            && u32::from(instruction.code & MODE) == sys::BPF_MEM
            && usize::from(instruction.dst_reg()) == FRAME;
        let bytes = bytes_from(instruction.off.into(), instruction);
        let is_unread = is_store && bytes.end as i64 - STACK <= given && !read[bytes].contains(&true);
        !is_unread
    });
    kept.len() < before
}

/// The bytes of the stack that are accessed.
fn bytes_from(address: i64, access: &bpf_insn) -> std::ops::Range<usize> {
    let index = |address: i64| (address + STACK).clamp(0, STACK) as usize;
    index(address)..index(address + i64::from(size_of_access(access)))
}
