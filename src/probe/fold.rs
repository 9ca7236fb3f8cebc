//! Leaves out of a program all that its constants decide, before the kernel sees it.
//!
//! A template has the code of every shape, filter and view; a copy of it needs a twentieth. The kernel's verifier would find that
//! out as well, but only after it has taken apart and moved the whole, and it leaves the loads of constants in the path that
//! every call takes.

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
    /// The descriptor of the map that holds it.
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

/// An instruction that stays, as it will be.
#[derive(Debug, Clone, Copy)]
struct Kept {
    /// Where it was.
    place: usize,
    instruction: bpf_insn,
    /// Of a load of 64 bits, which takes two places.
    high: Option<i32>,
    /// Where a jump went.
    target: Option<usize>,
    /// What it writes into its register, if it does.
    result: Value,
    /// Where it loads from, if it does.
    from: Value,
}

impl Kept {
    fn as_it_is(place: usize, instruction: bpf_insn) -> Self {
        Self {
            place,
            instruction,
            high: None,
            target: None,
            result: Value::Unknown,
            from: Value::Unknown,
        }
    }
}

/// A program that was folded.
#[derive(Debug, Clone)]
pub struct Folded {
    pub program: Vec<bpf_insn>,
    /// Where each of its functions begins, and where it began. The first is the program's own.
    pub functions: Vec<Moved>,
    /// It is no longer what it was made of.
    pub is_folded: bool,
}

/// A function of a program's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    pub from: usize,
    pub to: usize,
}

/// The same program, less what its constants decide; of its functions, each by itself, those that are still called. `None`: it has
/// something that is not known here, and has to stay as it is.
#[must_use]
pub fn fold(program: &[bpf_insn], constants: &Constants<'_>) -> Option<Folded> {
    let arguments = |function: &[bpf_insn]| Some(taken(&as_they_are(function)?));
    each_function(program, arguments, |_, function| {
        assemble(&folded(function, constants)?)
    })
}

/// A program that was folded, folded again where it changed since, which `is_changed` tells of functions by their places. `None`: as of
/// [`fold`].
#[must_use]
pub fn fold_again(
    program: &[bpf_insn],
    constants: &Constants<'_>,
    is_changed: impl Fn(&Range<usize>) -> bool,
) -> Option<Folded> {
    // A function may look at fewer by now, but the kernel asks for all.
    let arguments = |_: &[bpf_insn]| Some(MOST_ARGUMENTS);
    each_function(program, arguments, |places, function| {
        if is_changed(&places) {
            assemble(&folded(function, constants)?)
        } else {
            Some(function.to_vec())
        }
    })
}

/// The program as it is.
#[must_use]
pub fn unfolded(program: &[bpf_insn]) -> Folded {
    let calls = program.iter().enumerate().filter(|(_, it)| is_own_call(it));
    let callees = calls.filter_map(|(place, it)| place.checked_add_signed(it.imm as isize + 1));
    let starts: BTreeSet<usize> = callees.chain([0]).collect();
    Folded {
        program: program.to_vec(),
        functions: starts.into_iter().map(|from| Moved { from, to: from }).collect(),
        is_folded: false,
    }
}

/// A program of such functions as `become_other` makes of its own. `arguments`: how many one takes.
fn each_function(
    program: &[bpf_insn],
    arguments: impl Fn(&[bpf_insn]) -> Option<u8>,
    mut become_other: impl FnMut(Range<usize>, &[bpf_insn]) -> Option<Vec<bpf_insn>>,
) -> Option<Folded> {
    let calls: Vec<(usize, usize)> = callees(program).collect::<Option<_>>()?;
    let mut starts = BTreeSet::from([0]);
    starts.extend(calls.iter().map(|&(_, callee)| callee));
    let starts: Vec<usize> = starts.into_iter().collect();
    let end_of = |number: usize| starts.get(number + 1).copied().unwrap_or(program.len());
    // The first is the program's own, which nobody calls.
    let callees = 1..starts.len();
    let taken = callees.map(|number| arguments(program.get(starts[number]..end_of(number))?));
    let taken: Vec<u8> = taken.collect::<Option<_>>()?;
    // Calls lead from one to the next.
    let mut functions: Vec<Option<Vec<bpf_insn>>> = vec![None; starts.len()];
    let mut open = vec![0];
    while let Some(number) = open.pop() {
        if functions[number].is_some() {
            continue;
        }
        let places = starts[number]..end_of(number);
        let mut function = program.get(places.clone())?.to_vec();
        // Meanwhile a call has its function's number, and where it goes how many arguments that takes.
        for (place, callee) in calls.iter().filter(|(place, _)| places.contains(place)) {
            let callee = starts.binary_search(callee).ok()?;
            let call = &mut function[place - places.start];
            call.imm = callee as i32;
            call.off = taken.get(callee.checked_sub(1)?).copied()?.into();
        }
        let function = become_other(places, &function)?;
        open.extend(function.iter().filter(|it| is_own_call(it)).map(|it| it.imm as usize));
        functions[number] = Some(function);
    }
    let mut folded = Folded {
        program: Vec::new(),
        functions: Vec::new(),
        is_folded: true,
    };
    let mut places = vec![0; functions.len()];
    for (number, function) in functions.iter().enumerate() {
        let Some(function) = function else {
            continue;
        };
        places[number] = folded.program.len();
        folded.functions.push(Moved {
            from: starts[number],
            to: places[number],
        });
        folded.program.extend(function);
    }
    for (place, call) in folded.program.iter_mut().enumerate().filter(|(_, it)| is_own_call(it)) {
        call.imm = (places[call.imm as usize] as i64 - place as i64 - 1) as i32;
        call.off = 0;
    }
    Some(folded)
}

/// How many arguments a function takes.
fn taken(function: &[Kept]) -> u8 {
    let read = Liveness::of(function).at_entry;
    let taken = (1..=MOST_ARGUMENTS).rev().find(|&register| read & bit(register) != 0);
    taken.unwrap_or(0)
}

/// All instructions of a function, of which nothing is known.
fn as_they_are(function: &[bpf_insn]) -> Option<Vec<Kept>> {
    let mut kept = Vec::with_capacity(function.len());
    let mut places = function.iter().enumerate();
    while let Some((place, instruction)) = places.next() {
        let mut it = Kept::as_it_is(place, *instruction);
        (it.result, it.from) = (Value::Anything, Value::Anything);
        if instruction.code == JUMP || is_branch(instruction) {
            it.target = Some(target_of(place, instruction)?);
        } else if instruction.code == LOAD_CONSTANT {
            it.high = Some(places.next()?.1.imm);
        }
        kept.push(it);
    }
    Some(kept)
}

/// Calls of the program's own functions: where they are, and where these begin. `None`: that is before the program.
fn callees(program: &[bpf_insn]) -> impl Iterator<Item = Option<(usize, usize)>> {
    let calls = program.iter().enumerate();
    let calls = calls.filter(|(_, it)| is_own_call(it));
    calls.map(|(place, it)| Some((place, place.checked_add_signed(it.imm as isize + 1)?)))
}

/// A call of one of the program's own functions.
fn is_own_call(instruction: &bpf_insn) -> bool {
    instruction.code == CALL && u32::from(instruction.src_reg()) == sys::BPF_PSEUDO_CALL
}

/// What stays of a function.
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

/// Whether a program may go on with the next instruction.
fn goes_on(instruction: &bpf_insn) -> bool {
    !matches!(instruction.code, JUMP | EXIT)
}

/// A jump on a condition.
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

fn target_of(place: usize, instruction: &bpf_insn) -> Option<usize> {
    place.checked_add_signed(isize::from(instruction.off) + 1)
}

/// Where the program may come from more than one place, and where it begins.
fn find_heads(program: &[bpf_insn]) -> Option<Vec<bool>> {
    let mut heads = vec![false; program.len()];
    *heads.first_mut()? = true;
    for (place, instruction) in program.iter().enumerate() {
        if instruction.code == JUMP || is_branch(instruction) {
            *heads.get_mut(target_of(place, instruction)?)? = true;
        }
    }
    Some(heads)
}

/// What is known at each head; `None` where there is none, and where the program never comes.
type Heads = Vec<Option<Box<State>>>;

fn run(program: &[bpf_insn], is_head: &[bool], constants: &Constants<'_>) -> Option<Heads> {
    let mut heads: Heads = vec![None; program.len()];
    heads[0] = Some(Box::new(State::at_entry()));
    // Those before others first, since nearly all of a program's jumps go forward: each is then gone through about once.
    let mut open = BTreeSet::from([0]);
    while let Some(head) = open.pop_first() {
        let mut state = (**heads[head].as_ref()?).clone();
        let mut place = head;
        loop {
            let [next, target] = step(program, place, &mut state, constants)?;
            for place in [target, next.filter(|&next| is_head.get(next) == Some(&true))]
                .into_iter()
                .flatten()
            {
                let is_news = match heads.get_mut(place)? {
                    Some(known) => known.merge(&state),
                    none => {
                        *none = Some(Box::new(state.clone()));
                        true
                    }
                };
                if is_news {
                    open.insert(place);
                }
            }
            match next {
                Some(next) if !*is_head.get(next)? => place = next,
                _ => break,
            }
        }
    }
    Some(heads)
}

/// What is known after an instruction, and where the program goes from there: on to the next, or to a target.
fn step(
    program: &[bpf_insn],
    place: usize,
    state: &mut State,
    constants: &Constants<'_>,
) -> Option<[Option<usize>; 2]> {
    let instruction = program.get(place)?;
    let mut next = Some(place + 1);
    match instruction.code {
        JUMP => return Some([None, Some(target_of(place, instruction)?)]),
        EXIT => return Some([None, None]),
        CALL => {
            // It may write to what it is given.
            for argument in 1..=5 {
                match state.registers[argument] {
                    Value::Stack(address) => state.forget_from(address),
                    Value::Anything => state.forget_from(-STACK),
                    Value::Unknown | Value::Number(_) | Value::Constant(_) | Value::Address => {}
                }
            }
            state.registers[..=5].fill(Value::Unknown);
        }
        LOAD_CONSTANT => {
            let value = loaded(instruction, program.get(place + 1)?, constants)?;
            state.write(instruction, value)?;
            next = Some(place + 2);
        }
        _ if is_branch(instruction) => {
            let target = Some(target_of(place, instruction)?);
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
                // Who loads an address would have to be asked what it is; what an exchange does to the stack is not followed.
                if may_be_stack(value) || is_atomic && may_be_stack(base) {
                    return None;
                }
                if is_atomic {
                    // What was there, or what an exchange found.
                    state.registers[0] = Value::Unknown;
                    *state.registers[..FRAME].get_mut(usize::from(instruction.src_reg()))? = Value::Unknown;
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
        // A function's address: it would have to be found again.
        sys::BPF_PSEUDO_FUNC => return None,
        _ => Value::Unknown,
    })
}

/// What a load reads.
fn read(instruction: &bpf_insn, state: &State, constants: &Constants<'_>) -> Value {
    let (base, size) = (state.source(instruction), size_of_access(instruction));
    if u32::from(instruction.code & MODE) != sys::BPF_MEM {
        return Value::Unknown;
    }
    match base {
        Value::Constant(address) => {
            constant_at(address, instruction.off, size, constants).map_or(Value::Unknown, Value::Number)
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

/// The second operand: a number that is written in the instruction, or what is known of its register.
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
    // An address that is not followed any further.
    let lost = if may_be_stack(second) && operation != sys::BPF_END || has_two && may_be_stack(first) {
        Value::Anything
    } else {
        Value::Unknown
    };
    // It is written in later.
    if operation == sys::BPF_MOV && !has_register(instruction) && instruction.imm == POINT_UNSET as i32 {
        return Value::Unknown;
    }
    // Forms with a sign, which programs have only since 6.6, and other orders of bytes.
    if instruction.off != 0 || operation == sys::BPF_END {
        return lost;
    }
    let result = match (first, second) {
        _ if operation == sys::BPF_MOV && !is_short => return second,
        (_, Value::Number(second)) if operation == sys::BPF_MOV => Some(second),
        (Value::Number(first), _) if operation == sys::BPF_NEG => Some(first.wrapping_neg()),
        (Value::Number(first), Value::Number(second)) => computed(operation, first, second, is_short),
        (Value::Constant(address), Value::Number(n)) if operation == sys::BPF_ADD && !is_short => {
            return Value::Constant(address.wrapping_add(n));
        }
        // The kernel lets nobody leave a map.
        (Value::Address, Value::Unknown | Value::Number(_)) | (Value::Unknown | Value::Number(_), Value::Address)
            if operation == sys::BPF_ADD && !is_short =>
        {
            return Value::Address;
        }
        (Value::Stack(address), Value::Number(n)) if operation == sys::BPF_ADD && !is_short => {
            return address.checked_add(n as i64).map_or(Value::Anything, Value::Stack);
        }
        _ => None,
    };
    match result {
        Some(number) if is_short => Value::Number(u64::from(number as u32)),
        Some(number) => Value::Number(number),
        None => lost,
    }
}

/// The result of an operation; of a short one, its lower half is.
fn computed(operation: u32, first: u64, second: u64, is_short: bool) -> Option<u64> {
    let (first, signed, places) = if is_short {
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
        sys::BPF_LSH => first << places,
        sys::BPF_RSH => first >> places,
        sys::BPF_ARSH => (signed >> places) as u64,
        _ => return None,
    })
}

/// Whether a branch is taken; `None`: that is not known before it is run.
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

/// The instructions that the program comes by, with what is known written into them.
fn rewrite(program: &[bpf_insn], is_head: &[bool], heads: &Heads, constants: &Constants<'_>) -> Option<Vec<Kept>> {
    let mut kept = Vec::new();
    let reached = heads
        .iter()
        .enumerate()
        .filter_map(|(place, head)| Some((place, head.as_ref()?)));
    for (head, state) in reached {
        let mut state = (**state).clone();
        let mut place = head;
        loop {
            let instruction = program.get(place)?;
            let (source, before) = (state.source(instruction), state.destination(instruction));
            let goes = step(program, place, &mut state, constants)?;
            let [next, target] = goes;
            match target
                .filter(|_| next.is_none())
                .and_then(|target| answer(program, target, &state, constants))
            {
                // It is told here as well as there.
                Some(answer) => kept.extend(ended(place, answer)),
                None => kept.extend(rewritten(program, place, [before, source], &state, goes)),
            }
            match next {
                Some(next) if !*is_head.get(next)? => place = next,
                Some(next) if target.is_none() => {
                    if let Some(answer) = answer(program, next, &state, constants) {
                        kept.extend(ended(place, answer));
                    }
                    break;
                }
                _ => break,
            }
        }
    }
    Some(kept)
}

/// An instruction with what is known written into it: of its registers before it, and of all after it. `None`: a branch that
/// is not taken.
fn rewritten(
    program: &[bpf_insn],
    place: usize,
    [before, source]: [Value; 2],
    after: &State,
    [next, target]: [Option<usize>; 2],
) -> Option<Kept> {
    let instruction = program[place];
    let mut it = Kept {
        target,
        ..Kept::as_it_is(place, instruction)
    };
    if instruction.code == LOAD_CONSTANT {
        it.high = program.get(place + 1).map(|high| high.imm);
    } else if is_branch(&instruction) {
        target?;
        if next.is_some() {
            let first = after.destination(&instruction);
            if matches!((first, source), (Value::Number(_), Value::Unknown)) {
                turn_round(&mut it.instruction);
                with_number(&mut it.instruction, first);
            } else {
                with_number(&mut it.instruction, source);
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
            // It is there.
            Value::Number(_) if before == it.result => return None,
            Value::Number(number) => move_number(&mut it, number),
            _ if changes_nothing(&instruction, source) => return None,
            _ if class(&instruction) == sys::BPF_LDX => {
                it.from = match source {
                    Value::Stack(address) => Value::Stack(address + i64::from(instruction.off)),
                    base => base,
                };
            }
            _ => with_number(&mut it.instruction, source),
        }
    }
    Some(it)
}

/// The answer of a program that goes to a place where it ends, if that is known.
fn answer(program: &[bpf_insn], mut place: usize, state: &State, constants: &Constants<'_>) -> Option<u64> {
    // Jumps in a circle end nowhere.
    for _ in 0..program.len() {
        let instruction = program.get(place)?;
        if instruction.code != JUMP {
            break;
        }
        place = target_of(place, instruction)?;
    }
    let [first, second] = *program.get(place..place + 2)?.first_chunk()?;
    if first.dst_reg() != 0 || second.code != EXIT {
        return None;
    }
    let is_move = is_arithmetic(&first)
        && u32::from(first.code & OPERATION) == sys::BPF_MOV
        && has_register(&first)
        && first.off == 0;
    let answer = match class(&first) {
        sys::BPF_LDX => read(&first, state, constants),
        _ if is_move => state.source(&first),
        _ => return None,
    };
    match answer {
        Value::Number(number) if class(&first) == sys::BPF_ALU => Some(u64::from(number as u32)),
        Value::Number(number) => Some(number),
        _ => None,
    }
}

/// The end of a program, with its answer.
fn ended(place: usize, answer: u64) -> [Kept; 2] {
    let exit = bpf_insn {
        code: EXIT,
        ..Default::default()
    };
    let mut number = Kept::as_it_is(place, bpf_insn::default());
    move_number(&mut number, answer);
    [number, Kept::as_it_is(place, exit)]
}

/// Whether it leaves all 64 bits of its register as they are.
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

/// Makes it the same comparison of two registers, the second one first.
fn turn_round(branch: &mut bpf_insn) {
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

/// Writes into the instruction what is known of its second operand.
fn with_number(instruction: &mut bpf_insn, source: Value) {
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

/// Makes it a move of a number into the register that it writes.
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
