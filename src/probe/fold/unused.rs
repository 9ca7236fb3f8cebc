//! Leaves out what nobody looks at afterwards.

use libbpf_sys as sys;
use libbpf_sys::bpf_insn;

use super::layout::at_or_after;
use super::state::{STACK, Value};
use super::{
    CALL, EXIT, FRAME, JUMP, Kept, LOAD_CONSTANT, MODE, OPERATION, class, has_register, is_arithmetic, size_of_access,
};

/// Registers, a bit each.
type Set = u16;

const fn bit(register: u8) -> Set {
    1 << register
}

/// What an instruction reads.
fn uses(instruction: &bpf_insn) -> Set {
    let (first, second) = (bit(instruction.dst_reg()), bit(instruction.src_reg()));
    let second_if_register = if has_register(instruction) { second } else { 0 };
    let operation = u32::from(instruction.code & OPERATION);
    match instruction.code {
        JUMP | LOAD_CONSTANT => 0,
        CALL if takes_nothing(instruction) => 0,
        CALL => bit(1) | bit(2) | bit(3) | bit(4) | bit(5),
        EXIT => bit(0),
        _ => match class(instruction) {
            sys::BPF_ALU | sys::BPF_ALU64 => match operation {
                sys::BPF_MOV => second_if_register,
                sys::BPF_NEG | sys::BPF_END => first,
                _ => first | second_if_register,
            },
            sys::BPF_LDX => second,
            sys::BPF_ST => first,
            // An exchange looks at the first register.
            sys::BPF_STX => first | second | bit(0),
            _ => first | second_if_register,
        },
    }
}

/// A call of a helper that has no arguments.
pub(super) fn takes_nothing(call: &bpf_insn) -> bool {
    let helper = call.imm as u32;
    call.src_reg() == 0
        && matches!(
            helper,
            sys::BPF_FUNC_ktime_get_ns
                | sys::BPF_FUNC_get_current_pid_tgid
                | sys::BPF_FUNC_get_smp_processor_id
                | sys::BPF_FUNC_get_current_task
                | sys::BPF_FUNC_get_current_task_btf
        )
}

/// What is lost by an instruction, whatever it was.
fn overwrites(instruction: &bpf_insn) -> Set {
    match instruction.code {
        CALL => bit(0) | bit(1) | bit(2) | bit(3) | bit(4) | bit(5),
        LOAD_CONSTANT => bit(instruction.dst_reg()),
        _ if is_arithmetic(instruction) || class(instruction) == sys::BPF_LDX => bit(instruction.dst_reg()),
        _ => 0,
    }
}

/// Whether all that it does is write a register.
fn only_writes_a_register(instruction: &bpf_insn) -> bool {
    instruction.code == LOAD_CONSTANT || is_arithmetic(instruction) || class(instruction) == sys::BPF_LDX
}

/// Leaves out what writes registers that nobody reads afterwards.
pub(super) fn drop_unused(kept: &mut Vec<Kept>) {
    let targets: Vec<Option<usize>> = kept
        .iter()
        .map(|it| it.target.map(|target| at_or_after(kept, target)))
        .collect();
    // Registers that are read later, before each instruction.
    let mut needed: Vec<Set> = vec![0; kept.len() + 1];
    loop {
        let mut is_settled = true;
        for (index, it) in kept.iter().enumerate().rev() {
            let after = needed_after(it, index, &targets, &needed);
            let before = if is_unused(it, after) {
                after
            } else {
                after & !overwrites(&it.instruction) | uses(&it.instruction)
            };
            is_settled &= needed[index] == before;
            needed[index] = before;
        }
        if is_settled {
            break;
        }
    }
    let mut index = 0;
    kept.retain(|it| {
        let after = needed_after(it, index, &targets, &needed);
        index += 1;
        !is_unused(it, after)
    });
}

/// Leaves out what is stored on the stack where nobody reads it.
pub(super) fn drop_unread(kept: &mut Vec<Kept>) {
    // Whoever has an address may read from there on, upwards.
    let mut given = i64::MAX;
    let mut read = [false; STACK as usize];
    for it in kept.iter() {
        match it.result {
            Value::Stack(address) => given = given.min(address),
            Value::Anything => return,
            Value::Unknown | Value::Number(_) | Value::Constant(_) | Value::Address => {}
        }
        match it.from {
            Value::Stack(address) => read[bytes_from(address, &it.instruction)].fill(true),
            Value::Anything => return,
            Value::Unknown | Value::Number(_) | Value::Constant(_) | Value::Address => {}
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
}

/// The bytes of the stack that are accessed.
fn bytes_from(address: i64, access: &bpf_insn) -> std::ops::Range<usize> {
    let place = |address: i64| (address + STACK).clamp(0, STACK) as usize;
    place(address)..place(address + i64::from(size_of_access(access)))
}

fn needed_after(it: &Kept, index: usize, targets: &[Option<usize>], needed: &[Set]) -> Set {
    let next = match it.instruction.code {
        JUMP | EXIT => 0,
        _ => needed[index + 1],
    };
    next | targets[index].map_or(0, |target| needed[target])
}

fn is_unused(it: &Kept, needed: Set) -> bool {
    only_writes_a_register(&it.instruction) && needed & bit(it.instruction.dst_reg()) == 0
}
