//! Removes the code of a program that its constants make unreachable, before the kernel sees it.
//!
//! A template has the code of every shape, filter and view; a copy of it needs a twentieth. The kernel's verifier would
//! find that out as well, but only after it has parsed and rewritten the whole program, and it leaves the loads of
//! constants in the path that every call takes.

mod layout;
mod state;
#[cfg(test)]
mod tests;
mod unused;

use std::collections::BTreeSet;
use std::ops::Range;

use libbpf_sys as sys;
use libbpf_sys::bpf_insn;

use crate::model::abi::POINT_UNSET;
use layout::{assemble, drop_jumps_to_next, drop_unreached, invert_branches, shorten_jumps};
use state::{STACK, State, Value, may_be_stack};
use unused::{Liveness, bit, drop_unread, drop_unused};

/// What the loader has written into the object's read-only data.
#[derive(Debug, Clone, Copy)]
pub struct Constants<'a> {
    /// The descriptor of the map that contains it.
    pub map: i32,
    pub bytes: &'a [u8],
}

const REGISTERS: usize = 11;
const MOST_ARGUMENTS: u8 = 5;
/// The frame pointer, which is never written.
const FRAME: usize = 10;
const CLASS: u8 = 0x07;
const SOURCE_IS_REGISTER: u8 = sys::BPF_X as u8;
const OPERATION: u8 = 0xf0;
const SIZE: u8 = 0x18;
const MODE: u8 = 0xe0;
const LOAD_CONSTANT: u8 = (sys::BPF_LD | sys::BPF_IMM | sys::BPF_DW) as u8;
const JUMP: u8 = (sys::BPF_JMP | sys::BPF_JA) as u8;
const CALL: u8 = (sys::BPF_JMP | sys::BPF_CALL) as u8;
const EXIT: u8 = (sys::BPF_JMP | sys::BPF_EXIT) as u8;
const MOVE_NUMBER: u8 = (sys::BPF_ALU64 | sys::BPF_MOV | sys::BPF_K) as u8;
const MOVE_SHORT_NUMBER: u8 = (sys::BPF_ALU | sys::BPF_MOV | sys::BPF_K) as u8;

/// An instruction of the result.
#[derive(Debug, Clone, Copy)]
struct Kept {
    /// Its index in the original program.
    index: usize,
    instruction: bpf_insn,
    /// The upper half of a 64-bit immediate: `ld_imm64` is two instructions.
    high: Option<i32>,
    /// The target of a jump, as an index in the original program.
    target: Option<usize>,
    /// What it writes to its register, if it writes one.
    result: Value,
    /// The address that it loads from, if it loads.
    from: Value,
}

impl Kept {
    fn unchanged(index: usize, instruction: bpf_insn) -> Self {
        Self {
            index,
            instruction,
            high: None,
            target: None,
            result: Value::NotStack,
            from: Value::NotStack,
        }
    }
}

/// A program that was folded.
#[derive(Debug, Clone)]
pub struct Folded {
    pub program: Vec<bpf_insn>,
    /// Where each of its functions begins, and where it began before. The first is the main function.
    pub functions: Vec<Moved>,
    /// Whether folding succeeded; otherwise it is the original.
    pub is_folded: bool,
}

/// Where a function of a program was, and where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    pub from: usize,
    pub to: usize,
}

/// The same program without the code that its constants make unreachable, and without functions that are no longer
/// called. Each function is folded separately. `None`: it contains an instruction that is not supported, and has to be
/// loaded unchanged.
#[must_use]
pub fn fold(program: &[bpf_insn], constants: &Constants<'_>) -> Option<Folded> {
    let arguments = |function: &[bpf_insn]| Some(argument_count(&all_kept(function)?));
    each_function(program, arguments, |_, function| {
        assemble(&folded(function, constants)?)
    })
}

/// Folds a folded program again, but only the functions that have changed since; `is_changed` gets the range of a
/// function. `None`: as from [`fold`].
#[must_use]
pub fn fold_again(
    program: &[bpf_insn],
    constants: &Constants<'_>,
    is_changed: impl Fn(&Range<usize>) -> bool,
) -> Option<Folded> {
    // Folding may have removed reads of arguments, but the kernel checks all that the signature has.
    let arguments = |_: &[bpf_insn]| Some(MOST_ARGUMENTS);
    each_function(program, arguments, |range, function| {
        if is_changed(&range) {
            assemble(&folded(function, constants)?)
        } else {
            Some(function.to_vec())
        }
    })
}

/// The program unchanged, with its functions.
#[must_use]
pub fn unfolded(program: &[bpf_insn]) -> Folded {
    let calls = program.iter().enumerate().filter(|(_, it)| is_own_call(it));
    let callees = calls.filter_map(|(index, it)| index.checked_add_signed(it.imm as isize + 1));
    let starts: BTreeSet<usize> = callees.chain([0]).collect();
    Folded {
        program: program.to_vec(),
        functions: starts.into_iter().map(|from| Moved { from, to: from }).collect(),
        is_folded: false,
    }
}

/// Rebuilds a program from its functions, each transformed. `arguments`: how many a function takes.
fn each_function(
    program: &[bpf_insn],
    arguments: impl Fn(&[bpf_insn]) -> Option<u8>,
    mut transform: impl FnMut(Range<usize>, &[bpf_insn]) -> Option<Vec<bpf_insn>>,
) -> Option<Folded> {
    let calls: Vec<(usize, usize)> = callees(program).collect::<Option<_>>()?;
    let mut starts = BTreeSet::from([0]);
    starts.extend(calls.iter().map(|&(_, callee)| callee));
    let starts: Vec<usize> = starts.into_iter().collect();
    let end_of = |number: usize| starts.get(number + 1).copied().unwrap_or(program.len());
    // How many arguments each takes, for those that are asked about: many are called only by others that are not kept.
    let mut taken: Vec<Option<u8>> = vec![None; starts.len()];
    // Only functions that are still called are kept.
    let mut functions: Vec<Option<Vec<bpf_insn>>> = vec![None; starts.len()];
    let mut open = vec![0];
    while let Some(number) = open.pop() {
        if functions[number].is_some() {
            continue;
        }
        let range = starts[number]..end_of(number);
        let mut function = program.get(range.clone())?.to_vec();
        // Until the end, `imm` of a call is the number of its function, and `off` is how many arguments that takes.
        for (index, callee) in calls.iter().filter(|(index, _)| range.contains(index)) {
            // The first one is the main function, which has no caller.
            let callee = starts.binary_search(callee).ok().filter(|&callee| callee > 0)?;
            if taken[callee].is_none() {
                taken[callee] = Some(arguments(program.get(starts[callee]..end_of(callee))?)?);
            }
            let call = &mut function[index - range.start];
            call.imm = callee as i32;
            call.off = taken[callee]?.into();
        }
        let function = transform(range, &function)?;
        open.extend(function.iter().filter(|it| is_own_call(it)).map(|it| it.imm as usize));
        functions[number] = Some(function);
    }
    let mut folded = Folded {
        program: Vec::new(),
        functions: Vec::new(),
        is_folded: true,
    };
    let mut offsets = vec![0; functions.len()];
    for (number, function) in functions.iter().enumerate() {
        let Some(function) = function else {
            continue;
        };
        offsets[number] = folded.program.len();
        folded.functions.push(Moved {
            from: starts[number],
            to: offsets[number],
        });
        folded.program.extend(function);
    }
    for (index, call) in folded.program.iter_mut().enumerate().filter(|(_, it)| is_own_call(it)) {
        call.imm = (offsets[call.imm as usize] as i64 - index as i64 - 1) as i32;
        call.off = 0;
    }
    Some(folded)
}

/// How many arguments a function takes.
fn argument_count(function: &[Kept]) -> u8 {
    let read = Liveness::of(function).at_entry;
    let taken = (1..=MOST_ARGUMENTS).rev().find(|&register| read & bit(register) != 0);
    taken.unwrap_or(0)
}

/// All instructions of a function, with nothing known about their results.
fn all_kept(function: &[bpf_insn]) -> Option<Vec<Kept>> {
    let mut kept = Vec::with_capacity(function.len());
    let mut numbered = function.iter().enumerate();
    while let Some((index, instruction)) = numbered.next() {
        let mut it = Kept::unchanged(index, *instruction);
        (it.result, it.from) = (Value::MaybeStack, Value::MaybeStack);
        if instruction.code == JUMP || is_branch(instruction) {
            it.target = Some(target_of(index, instruction)?);
        } else if instruction.code == LOAD_CONSTANT {
            it.high = Some(numbered.next()?.1.imm);
        }
        kept.push(it);
    }
    Some(kept)
}

/// Calls of the program's own functions: the index of each, and that of the function. `None`: the function would begin
/// before the program.
fn callees(program: &[bpf_insn]) -> impl Iterator<Item = Option<(usize, usize)>> {
    let calls = program.iter().enumerate();
    let calls = calls.filter(|(_, it)| is_own_call(it));
    calls.map(|(index, it)| Some((index, index.checked_add_signed(it.imm as isize + 1)?)))
}

/// Whether it is a call of one of the program's own functions.
fn is_own_call(instruction: &bpf_insn) -> bool {
    instruction.code == CALL && u32::from(instruction.src_reg()) == sys::BPF_PSEUDO_CALL
}

/// A function after folding.
fn folded(program: &[bpf_insn], constants: &Constants<'_>) -> Option<Vec<Kept>> {
    let is_head = find_heads(program)?;
    let heads = run(program, &is_head, constants)?;
    let mut kept = rewrite(program, &is_head, &heads, constants)?;
    drop_unused(&mut kept);
    while drop_unread(&mut kept) {
        drop_unused(&mut kept);
    }
    drop_jumps_to_next(&mut kept);
    shorten_jumps(&mut kept);
    drop_unreached(&mut kept);
    invert_branches(&mut kept);
    drop_unreached(&mut kept);
    while drop_jumps_to_next(&mut kept) {
        drop_unused(&mut kept);
    }
    Some(kept)
}

fn class(instruction: &bpf_insn) -> u32 {
    u32::from(instruction.code & CLASS)
}

fn is_arithmetic(instruction: &bpf_insn) -> bool {
    matches!(class(instruction), sys::BPF_ALU | sys::BPF_ALU64)
}

/// Whether the next instruction can run after this one.
fn goes_on(instruction: &bpf_insn) -> bool {
    !matches!(instruction.code, JUMP | EXIT)
}

/// Whether it is a conditional jump.
fn is_branch(instruction: &bpf_insn) -> bool {
    matches!(class(instruction), sys::BPF_JMP | sys::BPF_JMP32)
        && !matches!(
            u32::from(instruction.code & OPERATION),
            sys::BPF_JA | sys::BPF_CALL | sys::BPF_EXIT
        )
}

fn has_register(instruction: &bpf_insn) -> bool {
    instruction.code & SOURCE_IS_REGISTER != 0
}

fn target_of(index: usize, instruction: &bpf_insn) -> Option<usize> {
    index.checked_add_signed(isize::from(instruction.off) + 1)
}

/// The entry, and all targets of jumps: instructions that may have several predecessors.
fn find_heads(program: &[bpf_insn]) -> Option<Vec<bool>> {
    let mut heads = vec![false; program.len()];
    *heads.first_mut()? = true;
    for (index, instruction) in program.iter().enumerate() {
        if instruction.code == JUMP || is_branch(instruction) {
            *heads.get_mut(target_of(index, instruction)?)? = true;
        }
    }
    Some(heads)
}

/// The state at each head; `None` at other instructions, and at heads that are never reached.
type Heads = Vec<Option<Box<State>>>;

fn run(program: &[bpf_insn], is_head: &[bool], constants: &Constants<'_>) -> Option<Heads> {
    let mut heads: Heads = vec![None; program.len()];
    heads[0] = Some(Box::new(State::at_entry()));
    // In the order of the program, since nearly all jumps go forward: most heads are then processed once.
    let mut open = BTreeSet::from([0]);
    while let Some(head) = open.pop_first() {
        let mut state = (**heads[head].as_ref()?).clone();
        let mut index = head;
        loop {
            let [next, target] = step(program, index, &mut state, constants)?;
            for index in [target, next.filter(|&next| is_head.get(next) == Some(&true))]
                .into_iter()
                .flatten()
            {
                let is_news = match heads.get_mut(index)? {
                    Some(known) => known.merge(&state),
                    none => {
                        *none = Some(Box::new(state.clone()));
                        true
                    }
                };
                if is_news {
                    open.insert(index);
                }
            }
            match next {
                Some(next) if !*is_head.get(next)? => index = next,
                _ => break,
            }
        }
    }
    Some(heads)
}

/// Runs an instruction on the state. Returns its possible successors: the next instruction, and the target of a jump.
fn step(
    program: &[bpf_insn],
    index: usize,
    state: &mut State,
    constants: &Constants<'_>,
) -> Option<[Option<usize>; 2]> {
    let instruction = program.get(index)?;
    let mut next = Some(index + 1);
    match instruction.code {
        JUMP => return Some([None, Some(target_of(index, instruction)?)]),
        EXIT => return Some([None, None]),
        CALL => {
            // It may write to memory that its arguments point to.
            for argument in 1..=5 {
                match state.registers[argument] {
                    Value::Stack(address) => state.forget_from(address),
                    Value::MaybeStack => state.forget_from(-STACK),
                    Value::NotStack | Value::Number(_) | Value::Constant(_) | Value::Address => {}
                }
            }
            state.registers[..=5].fill(Value::NotStack);
        }
        LOAD_CONSTANT => {
            let value = loaded(instruction, program.get(index + 1)?, constants)?;
            state.write(instruction, value)?;
            next = Some(index + 2);
        }
        _ if is_branch(instruction) => {
            let target = Some(target_of(index, instruction)?);
            return Some(match branch(instruction, state) {
                Some(true) => [None, target],
                Some(false) => [next, None],
                None => [next, target],
            });
        }
        _ if is_arithmetic(instruction) => {
            let value = arithmetic(instruction, state);
            state.write(instruction, value)?;
        }
        _ => match class(instruction) {
            sys::BPF_LDX => {
                let value = read(instruction, state, constants);
                state.write(instruction, value)?;
            }
            sys::BPF_ST => {
                let number = Value::Number(i64::from(instruction.imm) as u64);
                state.store(
                    state.destination(instruction),
                    instruction.off,
                    size_of_access(instruction),
                    number,
                );
            }
            sys::BPF_STX => {
                let (base, value) = (state.destination(instruction), state.source(instruction));
                let is_atomic = u32::from(instruction.code & MODE) == sys::BPF_ATOMIC;
                // In memory, stack addresses are tracked only where the compiler spills them, whole, to the stack. Atomics on
                // the stack are not tracked.
                let is_spill = !is_atomic && matches!(base, Value::Stack(_)) && size_of_access(instruction) == 8;
                if may_be_stack(value) && !is_spill || is_atomic && may_be_stack(base) {
                    return None;
                }
                if is_atomic {
                    // The old value of an atomic with fetch, or of a compare-and-exchange.
                    state.registers[0] = Value::NotStack;
                    *state.registers[..FRAME].get_mut(usize::from(instruction.src_reg()))? = Value::NotStack;
                } else {
                    state.store(base, instruction.off, size_of_access(instruction), value);
                }
            }
            _ => return None,
        },
    }
    Some([next, None])
}

fn size_of_access(instruction: &bpf_insn) -> u8 {
    match u32::from(instruction.code & SIZE) {
        sys::BPF_B => 1,
        sys::BPF_H => 2,
        sys::BPF_W => 4,
        _ => 8,
    }
}

fn loaded(low: &bpf_insn, high: &bpf_insn, constants: &Constants<'_>) -> Option<Value> {
    Some(match u32::from(low.src_reg()) {
        0 => Value::Number(u64::from(low.imm as u32) | u64::from(high.imm as u32) << 32),
        sys::BPF_PSEUDO_MAP_VALUE if low.imm == constants.map => Value::Constant(u64::from(high.imm as u32)),
        sys::BPF_PSEUDO_MAP_VALUE | sys::BPF_PSEUDO_MAP_FD => Value::Address,
        // The address of a function: it would have to be relocated.
        sys::BPF_PSEUDO_FUNC => return None,
        _ => Value::NotStack,
    })
}

/// The value that a load reads.
fn read(instruction: &bpf_insn, state: &State, constants: &Constants<'_>) -> Value {
    let (base, size) = (state.source(instruction), size_of_access(instruction));
    if u32::from(instruction.code & MODE) != sys::BPF_MEM {
        return Value::NotStack;
    }
    match base {
        Value::Constant(address) => {
            constant_at(address, instruction.off, size, constants).map_or(Value::NotStack, Value::Number)
        }
        _ => state.load(base, instruction.off, size),
    }
}

fn constant_at(address: u64, offset: i16, size: u8, constants: &Constants<'_>) -> Option<u64> {
    let first = usize::try_from(address.checked_add_signed(i64::from(offset))?).ok()?;
    let bytes = constants.bytes.get(first..first.checked_add(size.into())?)?;
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    Some(u64::from_le_bytes(word))
}

/// The second operand: the immediate, or what is known of the register.
fn operand(instruction: &bpf_insn, state: &State) -> Value {
    if has_register(instruction) {
        state.source(instruction)
    } else {
        Value::Number(i64::from(instruction.imm) as u64)
    }
}

fn arithmetic(instruction: &bpf_insn, state: &State) -> Value {
    let operation = u32::from(instruction.code & OPERATION);
    let is_short = class(instruction) == sys::BPF_ALU;
    let first = state.destination(instruction);
    let second = operand(instruction, state);
    let has_two = !matches!(operation, sys::BPF_MOV | sys::BPF_NEG | sys::BPF_END);
    // Of an address that is not tracked any further.
    let untracked = if may_be_stack(second) && operation != sys::BPF_END || has_two && may_be_stack(first) {
        Value::MaybeStack
    } else {
        Value::NotStack
    };
    // The point, which is written into this instruction later.
    if operation == sys::BPF_MOV && !has_register(instruction) && instruction.imm == POINT_UNSET as i32 {
        return Value::NotStack;
    }
    // Signed forms, which exist since 6.6, and byte swaps.
    if instruction.off != 0 || operation == sys::BPF_END {
        return untracked;
    }
    let result = match (first, second) {
        _ if operation == sys::BPF_MOV && !is_short => return second,
        (_, Value::Number(second)) if operation == sys::BPF_MOV => Some(second),
        (Value::Number(first), _) if operation == sys::BPF_NEG => Some(first.wrapping_neg()),
        (Value::Number(first), Value::Number(second)) => computed(operation, first, second, is_short),
        (Value::Constant(address), Value::Number(n)) if operation == sys::BPF_ADD && !is_short => {
            return Value::Constant(address.wrapping_add(n));
        }
        // The verifier keeps pointers inside the map, so the sum is not 0 either.
        (Value::Address, Value::NotStack | Value::Number(_)) | (Value::NotStack | Value::Number(_), Value::Address)
            if operation == sys::BPF_ADD && !is_short =>
        {
            return Value::Address;
        }
        (Value::Stack(address), Value::Number(n)) if operation == sys::BPF_ADD && !is_short => {
            return address.checked_add(n as i64).map_or(Value::MaybeStack, Value::Stack);
        }
        _ => None,
    };
    match result {
        Some(number) if is_short => Value::Number(u64::from(number as u32)),
        Some(number) => Value::Number(number),
        None => untracked,
    }
}

/// The result of an operation; of a 32-bit one, only the lower half is meaningful.
fn computed(operation: u32, first: u64, second: u64, is_short: bool) -> Option<u64> {
    let (first, signed, bits) = if is_short {
        (u64::from(first as u32), i64::from(first as i32), second & 31)
    } else {
        (first, first as i64, second & 63)
    };
    Some(match operation {
        sys::BPF_ADD => first.wrapping_add(second),
        sys::BPF_SUB => first.wrapping_sub(second),
        sys::BPF_MUL => first.wrapping_mul(second),
        sys::BPF_OR => first | second,
        sys::BPF_AND => first & second,
        sys::BPF_XOR => first ^ second,
        sys::BPF_LSH => first << bits,
        sys::BPF_RSH => first >> bits,
        sys::BPF_ARSH => (signed >> bits) as u64,
        _ => return None,
    })
}

/// Whether a branch is taken; `None`: not known.
fn branch(instruction: &bpf_insn, state: &State) -> Option<bool> {
    let operation = u32::from(instruction.code & OPERATION);
    let (first, second) = match (state.destination(instruction), operand(instruction, state)) {
        (Value::Number(first), Value::Number(second)) => (first, second),
        // An address is not zero.
        (Value::Constant(_) | Value::Address | Value::Stack(_), Value::Number(0))
            if class(instruction) == sys::BPF_JMP =>
        {
            return match operation {
                sys::BPF_JEQ => Some(false),
                sys::BPF_JNE => Some(true),
                _ => None,
            };
        }
        _ => return None,
    };
    let (first, second, signed) = if class(instruction) == sys::BPF_JMP32 {
        let (first, second) = (first as u32, second as u32);
        let signed = (i64::from(first as i32), i64::from(second as i32));
        (u64::from(first), u64::from(second), signed)
    } else {
        (first, second, (first as i64, second as i64))
    };
    Some(match operation {
        sys::BPF_JEQ => first == second,
        sys::BPF_JNE => first != second,
        sys::BPF_JSET => first & second != 0,
        sys::BPF_JGT => first > second,
        sys::BPF_JGE => first >= second,
        sys::BPF_JLT => first < second,
        sys::BPF_JLE => first <= second,
        sys::BPF_JSGT => signed.0 > signed.1,
        sys::BPF_JSGE => signed.0 >= signed.1,
        sys::BPF_JSLT => signed.0 < signed.1,
        sys::BPF_JSLE => signed.0 <= signed.1,
        _ => return None,
    })
}

/// The instructions that are reached, with known values written into them.
fn rewrite(program: &[bpf_insn], is_head: &[bool], heads: &Heads, constants: &Constants<'_>) -> Option<Vec<Kept>> {
    let mut kept = Vec::new();
    let reached = heads
        .iter()
        .enumerate()
        .filter_map(|(index, head)| Some((index, head.as_ref()?)));
    for (head, state) in reached {
        let mut state = (**state).clone();
        let mut index = head;
        loop {
            let instruction = program.get(index)?;
            let (source, before) = (state.source(instruction), state.destination(instruction));
            let goes = step(program, index, &mut state, constants)?;
            let [next, target] = goes;
            match target
                .filter(|_| next.is_none())
                .and_then(|target| result_at(program, target, &state, constants))
            {
                // The jump leads to an exit with a known result: exit here.
                Some(result) => kept.extend(exit_with(index, result)),
                None => kept.extend(rewritten(program, index, [before, source], &state, goes)),
            }
            match next {
                Some(next) if !*is_head.get(next)? => index = next,
                Some(next) if target.is_none() => {
                    if let Some(result) = result_at(program, next, &state, constants) {
                        kept.extend(exit_with(index, result));
                    }
                    break;
                }
                _ => break,
            }
        }
    }
    Some(kept)
}

/// An instruction with known values written into it. `before` and `source`: its registers before it runs; `after`: the
/// state after it. `None`: it is not needed.
fn rewritten(
    program: &[bpf_insn],
    index: usize,
    [before, source]: [Value; 2],
    after: &State,
    [next, target]: [Option<usize>; 2],
) -> Option<Kept> {
    let instruction = program[index];
    let mut it = Kept {
        target,
        ..Kept::unchanged(index, instruction)
    };
    if instruction.code == LOAD_CONSTANT {
        it.high = program.get(index + 1).map(|high| high.imm);
    } else if is_branch(&instruction) {
        target?;
        if next.is_some() {
            let first = after.destination(&instruction);
            if matches!((first, source), (Value::Number(_), Value::NotStack)) {
                swap_operands(&mut it.instruction);
                set_immediate(&mut it.instruction, first);
            } else {
                set_immediate(&mut it.instruction, source);
            }
        } else {
            it.instruction = bpf_insn {
                code: JUMP,
                ..Default::default()
            };
        }
    } else if is_arithmetic(&instruction) || class(&instruction) == sys::BPF_LDX {
        it.result = after.destination(&instruction);
        match it.result {
            // The register already has this value.
            Value::Number(_) if before == it.result => return None,
            Value::Number(number) => move_number(&mut it, number),
            _ if changes_nothing(&instruction, source) => return None,
            _ if class(&instruction) == sys::BPF_LDX => {
                it.from = match source {
                    Value::Stack(address) => Value::Stack(address + i64::from(instruction.off)),
                    base => base,
                };
            }
            _ => set_immediate(&mut it.instruction, source),
        }
    }
    Some(it)
}

/// The result of a function that goes on at this index, if it exits there with a known one.
fn result_at(program: &[bpf_insn], mut index: usize, state: &State, constants: &Constants<'_>) -> Option<u64> {
    // Bounded: jumps may form a cycle.
    for _ in 0..program.len() {
        let instruction = program.get(index)?;
        if instruction.code != JUMP {
            break;
        }
        index = target_of(index, instruction)?;
    }
    let [first, second] = *program.get(index..index + 2)?.first_chunk()?;
    if first.dst_reg() != 0 || second.code != EXIT {
        return None;
    }
    let is_move = is_arithmetic(&first)
        && u32::from(first.code & OPERATION) == sys::BPF_MOV
        && has_register(&first)
        && first.off == 0;
    let result = match class(&first) {
        sys::BPF_LDX => read(&first, state, constants),
        _ if is_move => state.source(&first),
        _ => return None,
    };
    match result {
        Value::Number(number) if class(&first) == sys::BPF_ALU => Some(u64::from(number as u32)),
        Value::Number(number) => Some(number),
        _ => None,
    }
}

/// An exit with this result.
fn exit_with(index: usize, result: u64) -> [Kept; 2] {
    let exit = bpf_insn {
        code: EXIT,
        ..Default::default()
    };
    let mut number = Kept::unchanged(index, bpf_insn::default());
    move_number(&mut number, result);
    [number, Kept::unchanged(index, exit)]
}

/// Whether it leaves all 64 bits of its register unchanged.
fn changes_nothing(instruction: &bpf_insn, source: Value) -> bool {
    let second = match source {
        Value::Number(number) if has_register(instruction) => number,
        _ if !has_register(instruction) => i64::from(instruction.imm) as u64,
        _ => return false,
    };
    let operation = u32::from(instruction.code & OPERATION);
    let is_neutral = match operation {
        sys::BPF_ADD | sys::BPF_SUB | sys::BPF_OR | sys::BPF_XOR | sys::BPF_LSH | sys::BPF_RSH | sys::BPF_ARSH => {
            second == 0
        }
        sys::BPF_MUL => second == 1,
        sys::BPF_AND => second == u64::MAX,
        _ => false,
    };
    is_neutral && class(instruction) == sys::BPF_ALU64 && instruction.off == 0
}

/// Swaps the operands of a comparison of two registers.
fn swap_operands(branch: &mut bpf_insn) {
    let operation = match u32::from(branch.code & OPERATION) {
        sys::BPF_JGT => sys::BPF_JLT,
        sys::BPF_JLT => sys::BPF_JGT,
        sys::BPF_JGE => sys::BPF_JLE,
        sys::BPF_JLE => sys::BPF_JGE,
        sys::BPF_JSGT => sys::BPF_JSLT,
        sys::BPF_JSLT => sys::BPF_JSGT,
        sys::BPF_JSGE => sys::BPF_JSLE,
        sys::BPF_JSLE => sys::BPF_JSGE,
        same => same,
    };
    branch.code = branch.code & !OPERATION | operation as u8;
    let (first, second) = (branch.dst_reg(), branch.src_reg());
    branch.set_dst_reg(second);
    branch.set_src_reg(first);
}

/// Replaces the second operand by its number, if that is known.
fn set_immediate(instruction: &mut bpf_insn, source: Value) {
    let is_end = is_arithmetic(instruction) && u32::from(instruction.code & OPERATION) == sys::BPF_END;
    let is_short = matches!(class(instruction), sys::BPF_ALU | sys::BPF_JMP32);
    if !has_register(instruction) || is_end || is_arithmetic(instruction) && instruction.off != 0 {
        return;
    }
    if let Value::Number(number) = source {
        let fits = is_short || i64::from(number as i32) as u64 == number;
        if fits {
            instruction.code &= !SOURCE_IS_REGISTER;
            instruction.set_src_reg(0);
            instruction.imm = number as i32;
        }
    }
}

/// Makes it a move of a number into its register.
fn move_number(it: &mut Kept, number: u64) {
    let register = it.instruction.dst_reg();
    let mut instruction = bpf_insn {
        imm: number as i32,
        ..Default::default()
    };
    instruction.set_dst_reg(register);
    if i64::from(number as i32) as u64 == number {
        instruction.code = MOVE_NUMBER;
    } else if u64::from(number as u32) == number {
        instruction.code = MOVE_SHORT_NUMBER;
    } else {
        instruction.code = LOAD_CONSTANT;
        it.high = Some((number >> 32) as i32);
    }
    it.instruction = instruction;
}
