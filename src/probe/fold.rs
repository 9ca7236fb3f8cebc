//! Leaves out of a program all that its constants decide, before the kernel sees it.
//!
//! A template has the code of every shape, filter and view; a copy of it needs a twentieth. The kernel's verifier would find that
//! out as well, but only after it has taken apart and moved the whole, and it leaves the loads of constants in the path that
//! every call takes.

use libbpf_sys as sys;
use libbpf_sys::bpf_insn;

/// What the loader has written into the object's read-only data.
#[derive(Debug, Clone, Copy)]
pub struct Constants<'a> {
    /// The descriptor of the map that holds it.
    pub map: i32,
    pub bytes: &'a [u8],
}

const REGISTERS: usize = 11;
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

/// What is known of a register, or of a place on the stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Value {
    /// No address on the stack.
    Unknown,
    /// It may be an address on the stack, and nobody knows which.
    Anything,
    Number(u64),
    /// An address in the constants.
    Constant(u64),
    /// An address on the stack, from its upper end.
    Stack(i64),
}

/// Bytes of the stack; the frame pointer is its upper end.
const STACK: i64 = 512;
/// Bytes of a place, the unit in which it is looked at.
const PLACE: i64 = 4;
const PLACES: usize = (STACK / PLACE) as usize;

/// What is known of some bytes on the stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Less than what a load could use.
    Anything,
    /// What was stored here, and how many bytes of it; of eight, the next place has the upper half.
    Stored(Value, u8),
    /// The upper half of what the place before has.
    UpperHalf,
}

/// What is known before an instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
struct State {
    registers: [Value; REGISTERS],
    stack: [Place; PLACES],
}

impl State {
    fn at_entry() -> Self {
        let mut registers = [Value::Unknown; REGISTERS];
        registers[FRAME] = Value::Stack(0);
        Self {
            registers,
            stack: [Place::Anything; PLACES],
        }
    }

    /// What is known where both lead. Says whether that is less than before.
    fn merge(&mut self, other: &Self) -> bool {
        let before = self.clone();
        for (one, other) in self.registers.iter_mut().zip(other.registers) {
            *one = merged(*one, other);
        }
        for (one, other) in self.stack.iter_mut().zip(other.stack) {
            *one = match (*one, other) {
                (one, other) if one == other => one,
                (Place::Stored(one, size), Place::Stored(other, same)) if size == same => {
                    Place::Stored(merged(one, other), size)
                }
                _ => Place::Anything,
            };
        }
        *self != before
    }

    fn source(&self, instruction: &bpf_insn) -> Value {
        self.registers[usize::from(instruction.src_reg())]
    }

    fn destination(&self, instruction: &bpf_insn) -> Value {
        self.registers[usize::from(instruction.dst_reg())]
    }

    /// Writes the register that an instruction writes. `None`: it may not be written.
    fn write(&mut self, instruction: &bpf_insn, value: Value) -> Option<()> {
        *self.registers[..FRAME].get_mut(usize::from(instruction.dst_reg()))? = value;
        Some(())
    }

    /// Somebody may write from this address on, upwards.
    fn forget_from(&mut self, address: i64) {
        let first = usize::try_from((address + STACK) / PLACE).unwrap_or(0).min(PLACES);
        self.stack[first..].fill(Place::Anything);
        self.split(first);
    }

    /// The place at this index is not the upper half of what the one before has any more.
    fn split(&mut self, index: usize) {
        if let Some(before) = index.checked_sub(1)
            && matches!(self.stack[before], Place::Stored(_, 8))
        {
            self.stack[before] = Place::Anything;
        }
    }

    fn store(&mut self, base: Value, offset: i16, size: u8, value: Value) {
        let address = match base {
            Value::Stack(address) => address + i64::from(offset),
            Value::Anything => return self.forget_from(-STACK),
            Value::Unknown | Value::Number(_) | Value::Constant(_) => return,
        };
        let Some(index) = place_of(address) else {
            return self.forget_from(-STACK);
        };
        self.split(index);
        let is_whole = address % PLACE == 0;
        let had_eight = matches!(self.stack[index], Place::Stored(_, 8));
        self.stack[index] = if is_whole {
            Place::Stored(value, size)
        } else {
            Place::Anything
        };
        if let Some(next) = self.stack.get_mut(index + 1)
            && (size == 8 || had_eight)
        {
            *next = if size == 8 { Place::UpperHalf } else { Place::Anything };
        }
    }

    /// No address on the stack is ever stored, so none is loaded.
    fn load(&self, base: Value, offset: i16, size: u8) -> Value {
        let Value::Stack(address) = base else {
            return Value::Unknown;
        };
        let address = address + i64::from(offset);
        let known = place_of(address).filter(|_| address % PLACE == 0);
        match known.map(|index| self.stack[index]) {
            Some(Place::Stored(Value::Number(number), stored)) if stored == size || stored == 8 => {
                Value::Number(cut(number, size))
            }
            Some(Place::Stored(value, 8)) if size == 8 => value,
            _ => Value::Unknown,
        }
    }
}

fn merged(one: Value, other: Value) -> Value {
    if one == other {
        one
    } else if may_be_stack(one) || may_be_stack(other) {
        Value::Anything
    } else {
        Value::Unknown
    }
}

fn may_be_stack(value: Value) -> bool {
    matches!(value, Value::Stack(_) | Value::Anything)
}

fn place_of(address: i64) -> Option<usize> {
    let index = usize::try_from((address + STACK).div_euclid(PLACE)).ok()?;
    (index < PLACES).then_some(index)
}

/// The lower bytes of a number.
fn cut(number: u64, size: u8) -> u64 {
    match size {
        1 => number & 0xff,
        2 => number & 0xffff,
        4 => number & 0xffff_ffff,
        _ => number,
    }
}

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

/// The same program, less what its constants decide. `None`: it has something that is not known here, and has to stay as it is.
#[must_use]
pub fn fold(program: &[bpf_insn], constants: &Constants<'_>) -> Option<Vec<bpf_insn>> {
    let heads = run(program, constants)?;
    let mut kept = rewrite(program, &heads, constants)?;
    loop {
        let before = kept.len();
        drop_unused(&mut kept);
        drop_unread(&mut kept);
        if kept.len() == before {
            break;
        }
    }
    drop_jumps_to_next(&mut kept);
    assemble(&kept)
}

fn class(instruction: &bpf_insn) -> u32 {
    u32::from(instruction.code & CLASS)
}

fn is_arithmetic(instruction: &bpf_insn) -> bool {
    matches!(class(instruction), sys::BPF_ALU | sys::BPF_ALU64)
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

fn run(program: &[bpf_insn], constants: &Constants<'_>) -> Option<Heads> {
    let is_head = find_heads(program)?;
    let mut heads: Heads = vec![None; program.len()];
    heads[0] = Some(Box::new(State::at_entry()));
    let mut open = vec![0];
    while let Some(head) = open.pop() {
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
                    open.push(place);
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
            // Where a call of the program's own goes is not looked at.
            if u32::from(instruction.src_reg()) == sys::BPF_PSEUDO_CALL {
                return None;
            }
            // It may write to what it is given.
            for argument in 1..=5 {
                match state.registers[argument] {
                    Value::Stack(address) => state.forget_from(address),
                    Value::Anything => state.forget_from(-STACK),
                    Value::Unknown | Value::Number(_) | Value::Constant(_) => {}
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
                // Who loads it would have to be asked what it is.
                if may_be_stack(value) {
                    return None;
                }
                let is_atomic = u32::from(instruction.code & MODE) == sys::BPF_ATOMIC;
                let stored = if is_atomic { Value::Unknown } else { value };
                state.store(base, instruction.off, size_of_access(instruction), stored);
                if is_atomic {
                    // What was there, or what an exchange found.
                    state.registers[0] = Value::Unknown;
                    *state.registers[..FRAME].get_mut(usize::from(instruction.src_reg()))? = Value::Unknown;
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
    // Forms with a sign, which programs have only since 6.6, and other orders of bytes.
    if instruction.off != 0 || operation == sys::BPF_END {
        return lost;
    }
    let result = match (first, second) {
        _ if operation == sys::BPF_MOV && !is_short => return second,
        (_, Value::Number(second)) if operation == sys::BPF_MOV => Some(second),
        (Value::Number(first), _) if operation == sys::BPF_NEG => Some(first.wrapping_neg()),
        (Value::Number(first), Value::Number(second)) if is_short => short(operation, first as u32, second as u32),
        (Value::Number(first), Value::Number(second)) => long(operation, first, second),
        (Value::Constant(address), Value::Number(n)) if operation == sys::BPF_ADD && !is_short => {
            return Value::Constant(address.wrapping_add(n));
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

fn long(operation: u32, first: u64, second: u64) -> Option<u64> {
    Some(match operation {
        sys::BPF_ADD => first.wrapping_add(second),
        sys::BPF_SUB => first.wrapping_sub(second),
        sys::BPF_MUL => first.wrapping_mul(second),
        sys::BPF_OR => first | second,
        sys::BPF_AND => first & second,
        sys::BPF_XOR => first ^ second,
        sys::BPF_LSH => first << (second & 63),
        sys::BPF_RSH => first >> (second & 63),
        sys::BPF_ARSH => ((first as i64) >> (second & 63)) as u64,
        _ => return None,
    })
}

fn short(operation: u32, first: u32, second: u32) -> Option<u64> {
    Some(u64::from(match operation {
        sys::BPF_ADD => first.wrapping_add(second),
        sys::BPF_SUB => first.wrapping_sub(second),
        sys::BPF_MUL => first.wrapping_mul(second),
        sys::BPF_OR => first | second,
        sys::BPF_AND => first & second,
        sys::BPF_XOR => first ^ second,
        sys::BPF_LSH => first << (second & 31),
        sys::BPF_RSH => first >> (second & 31),
        sys::BPF_ARSH => ((first as i32) >> (second & 31)) as u32,
        _ => return None,
    }))
}

/// Whether a branch is taken; `None`: that is not known before it is run.
fn branch(instruction: &bpf_insn, state: &State) -> Option<bool> {
    let operation = u32::from(instruction.code & OPERATION);
    let (first, second) = match (state.destination(instruction), operand(instruction, state)) {
        (Value::Number(first), Value::Number(second)) => (first, second),
        // An address is not zero.
        (Value::Constant(_) | Value::Stack(_), Value::Number(0)) if class(instruction) == sys::BPF_JMP => {
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
fn rewrite(program: &[bpf_insn], heads: &Heads, constants: &Constants<'_>) -> Option<Vec<Kept>> {
    let is_head = find_heads(program)?;
    let mut kept = Vec::new();
    let reached = heads
        .iter()
        .enumerate()
        .filter_map(|(place, head)| Some((place, head.as_ref()?)));
    for (head, state) in reached {
        let mut state = (**state).clone();
        let mut place = head;
        loop {
            let before = state.clone();
            let [next, target] = step(program, place, &mut state, constants)?;
            kept.extend(rewritten(program, place, &before, &state, (next, target)));
            match next {
                Some(next) if !*is_head.get(next)? => place = next,
                _ => break,
            }
        }
    }
    Some(kept)
}

/// An instruction with what is known written into it. `None`: a branch that is not taken.
fn rewritten(
    program: &[bpf_insn],
    place: usize,
    before: &State,
    after: &State,
    (next, target): (Option<usize>, Option<usize>),
) -> Option<Kept> {
    let instruction = program[place];
    let mut it = Kept {
        place,
        instruction,
        high: None,
        target,
        result: Value::Unknown,
        from: Value::Unknown,
    };
    if instruction.code == LOAD_CONSTANT {
        it.high = program.get(place + 1).map(|high| high.imm);
    } else if is_branch(&instruction) {
        target?;
        if next.is_some() {
            with_number(&mut it.instruction, before);
        } else {
            it.instruction = bpf_insn {
                code: JUMP,
                ..Default::default()
            };
        }
    } else if is_arithmetic(&instruction) || class(&instruction) == sys::BPF_LDX {
        it.result = after.destination(&instruction);
        match it.result {
            Value::Number(number) => move_number(&mut it, number),
            _ if class(&instruction) == sys::BPF_LDX => {
                it.from = match before.source(&instruction) {
                    Value::Stack(address) => Value::Stack(address + i64::from(instruction.off)),
                    base => base,
                };
            }
            _ if is_arithmetic(&instruction) => with_number(&mut it.instruction, before),
            _ => {}
        }
    }
    Some(it)
}

/// Writes into the instruction what is known of its second operand.
fn with_number(instruction: &mut bpf_insn, state: &State) {
    let is_end = is_arithmetic(instruction) && u32::from(instruction.code & OPERATION) == sys::BPF_END;
    let is_short = matches!(class(instruction), sys::BPF_ALU | sys::BPF_JMP32);
    if !has_register(instruction) || is_end || is_arithmetic(instruction) && instruction.off != 0 {
        return;
    }
    if let Value::Number(number) = state.source(instruction) {
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

/// The first that stays of those from a place on.
fn at_or_after(kept: &[Kept], place: usize) -> usize {
    kept.partition_point(|it| it.place < place)
}

/// Leaves out what writes registers that nobody reads afterwards.
fn drop_unused(kept: &mut Vec<Kept>) {
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
fn drop_unread(kept: &mut Vec<Kept>) {
    // Whoever has an address may read from there on, upwards.
    let mut given = i64::MAX;
    let mut read = [false; STACK as usize];
    for it in kept.iter() {
        match it.result {
            Value::Stack(address) => given = given.min(address),
            Value::Anything => return,
            Value::Unknown | Value::Number(_) | Value::Constant(_) => {}
        }
        match it.from {
            Value::Stack(address) => read[bytes_from(address, &it.instruction)].fill(true),
            Value::Anything => return,
            Value::Unknown | Value::Number(_) | Value::Constant(_) => {}
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

/// Leaves out jumps over nothing.
fn drop_jumps_to_next(kept: &mut Vec<Kept>) {
    let mut stays = vec![true; kept.len()];
    // Where the program goes on behind each, of those that stay.
    let mut next = kept.len();
    for (index, it) in kept.iter().enumerate().rev() {
        let target = it.target.map(|target| at_or_after(kept, target));
        let is_over_nothing =
            it.instruction.code == JUMP && target.is_some_and(|target| (index + 1..=next).contains(&target));
        stays[index] = !is_over_nothing;
        if stays[index] {
            next = index;
        }
    }
    let mut stays = stays.into_iter();
    kept.retain(|_| stays.next().unwrap_or(true));
}

/// Puts them one after the other, with jumps to where their targets are now.
fn assemble(kept: &[Kept]) -> Option<Vec<bpf_insn>> {
    let mut starts = Vec::with_capacity(kept.len());
    let mut size = 0;
    for it in kept {
        starts.push(size);
        size += 1 + usize::from(it.high.is_some());
    }
    let mut program = Vec::with_capacity(size);
    for (it, start) in kept.iter().zip(&starts) {
        let mut instruction = it.instruction;
        if let Some(target) = it.target {
            // Behind the last one there is nothing to jump to.
            let target = *starts.get(at_or_after(kept, target))?;
            instruction.off = i16::try_from(target as isize - *start as isize - 1).ok()?;
        }
        program.push(instruction);
        if let Some(imm) = it.high {
            program.push(bpf_insn {
                imm,
                ..Default::default()
            });
        }
    }
    Some(program)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fuzz;

    const MAP: i32 = 77;
    const BYTES: [u8; 16] = [1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0x80];

    fn instruction(code: u32, first: u8, second: u8, off: i16, imm: i32) -> bpf_insn {
        let mut instruction = bpf_insn {
            code: code as u8,
            off,
            imm,
            ..Default::default()
        };
        instruction.set_dst_reg(first);
        instruction.set_src_reg(second);
        instruction
    }

    fn number(register: u8, imm: i32) -> bpf_insn {
        instruction(sys::BPF_ALU64 | sys::BPF_MOV | sys::BPF_K, register, 0, 0, imm)
    }

    fn constant(register: u8, offset: i32) -> [bpf_insn; 2] {
        let low = instruction(
            sys::BPF_LD | sys::BPF_IMM | sys::BPF_DW,
            register,
            sys::BPF_PSEUDO_MAP_VALUE as u8,
            0,
            MAP,
        );
        [low, instruction(0, 0, 0, 0, offset)]
    }

    fn load(size: u32, register: u8, from: u8, off: i16) -> bpf_insn {
        instruction(sys::BPF_LDX | sys::BPF_MEM | size, register, from, off, 0)
    }

    fn jump_if_equal(register: u8, imm: i32, off: i16) -> bpf_insn {
        instruction(sys::BPF_JMP | sys::BPF_JEQ | sys::BPF_K, register, 0, off, imm)
    }

    fn call(helper: i32) -> bpf_insn {
        instruction(sys::BPF_JMP | sys::BPF_CALL, 0, 0, 0, helper)
    }

    fn exit() -> bpf_insn {
        instruction(sys::BPF_JMP | sys::BPF_EXIT, 0, 0, 0, 0)
    }

    fn folded(program: &[bpf_insn]) -> Option<Vec<bpf_insn>> {
        let constants = Constants {
            map: MAP,
            bytes: &BYTES,
        };
        fold(program, &constants)
    }

    fn shown(program: &[bpf_insn]) -> Vec<(u8, u8, u8, i16, i32)> {
        let fields = |i: &bpf_insn| (i.code, i.dst_reg(), i.src_reg(), i.off, i.imm);
        program.iter().map(fields).collect()
    }

    #[test]
    fn what_a_constant_turns_off_is_gone() {
        let [low, high] = constant(7, 0);
        let program = [
            low,
            high,
            load(sys::BPF_W, 6, 7, 8),
            jump_if_equal(6, 0, 2),
            call(1),
            call(2),
            number(0, 0),
            exit(),
        ];
        assert_eq!(shown(&folded(&program).unwrap()), shown(&[number(0, 0), exit()]));
    }

    #[test]
    fn what_it_turns_on_stays_without_the_question() {
        let [low, high] = constant(7, 0);
        let program = [
            low,
            high,
            load(sys::BPF_W, 6, 7, 0),
            jump_if_equal(6, 0, 1),
            call(1),
            number(0, 0),
            exit(),
        ];
        assert_eq!(
            shown(&folded(&program).unwrap()),
            shown(&[call(1), number(0, 0), exit()])
        );
    }

    #[test]
    fn jumps_end_where_they_did() {
        let program = [
            jump_if_equal(1, 0, 4),
            number(6, 5),
            jump_if_equal(6, 5, 1),
            call(1),
            call(2),
            number(0, 0),
            exit(),
        ];
        let expected = [jump_if_equal(1, 0, 1), call(2), number(0, 0), exit()];
        assert_eq!(shown(&folded(&program).unwrap()), shown(&expected));
    }

    #[test]
    fn a_large_constant_takes_two_places() {
        let [low, high] = constant(2, 8);
        let program = [low, high, load(sys::BPF_DW, 0, 2, 0), exit()];
        let expected = [
            instruction(sys::BPF_LD | sys::BPF_IMM | sys::BPF_DW, 0, 0, 0, 0),
            instruction(0, 0, 0, 0, i32::MIN),
            exit(),
        ];
        assert_eq!(shown(&folded(&program).unwrap()), shown(&expected));
    }

    #[test]
    fn a_constant_is_known_on_the_stack_as_well() {
        let spill = |from| instruction(sys::BPF_STX | sys::BPF_MEM | sys::BPF_DW, FRAME as u8, from, -168, 0);
        let program = [
            number(6, 5),
            spill(6),
            call(1),
            load(sys::BPF_W, 6, FRAME as u8, -168),
            jump_if_equal(6, 5, 1),
            call(2),
            number(0, 0),
            exit(),
        ];
        assert_eq!(
            shown(&folded(&program).unwrap()),
            shown(&[call(1), number(0, 0), exit()])
        );
        // Somebody may have written there.
        let address = [
            instruction(sys::BPF_ALU64 | sys::BPF_MOV | sys::BPF_X, 1, FRAME as u8, 0, 0),
            instruction(sys::BPF_ALU64 | sys::BPF_ADD | sys::BPF_K, 1, 0, 0, -176),
        ];
        let program = [&program[..2], &address, &program[2..]].concat();
        assert_eq!(shown(&folded(&program).unwrap()), shown(&program));
    }

    #[test]
    fn what_is_not_known_here_stays_as_it_is() {
        let own = instruction(sys::BPF_JMP | sys::BPF_CALL, 0, sys::BPF_PSEUDO_CALL as u8, 0, 1);
        assert!(folded(&[own, exit(), exit()]).is_none());
        assert!(folded(&[number(0, 0)]).is_none(), "it has no end");
        assert!(folded(&[]).is_none());
    }

    /// Where the stack of a program that runs begins, and its constants: numbers that arithmetic on others does not come by.
    const FLOOR: u64 = 0x5bd1_e995_7a00_0000;
    const ADDRESS: u64 = 0x3c6e_f372_6b00_0000;

    /// Bytes of the stack from an address on, if it is one.
    fn on_stack(stack: &mut [u8], address: u64) -> Option<&mut [u8]> {
        stack.get_mut(usize::try_from(address.checked_sub(FLOOR)?).ok()?..)
    }

    /// Where an instruction loads from.
    fn source(registers: &[u64; REGISTERS], i: &bpf_insn) -> u64 {
        registers[usize::from(i.src_reg())].wrapping_add_signed(i64::from(i.off))
    }

    /// Where it stores to.
    fn destination(registers: &[u64; REGISTERS], i: &bpf_insn) -> u64 {
        registers[usize::from(i.dst_reg())].wrapping_add_signed(i64::from(i.off))
    }

    /// What somebody sees of a program that runs: what it stores elsewhere, what it calls and lets it see, and its answer.
    fn trace(program: &[bpf_insn], mut registers: [u64; REGISTERS]) -> Vec<[u64; 6]> {
        let mut trace = Vec::new();
        let mut stack = [0; STACK as usize];
        registers[FRAME] = FLOOR + STACK as u64;
        let mut place = 0;
        loop {
            let i = &program[place];
            let mut known = State::at_entry();
            known.registers = registers.map(Value::Number);
            let constants = Constants {
                map: MAP,
                bytes: &BYTES,
            };
            place += 1;
            match i.code {
                EXIT => {
                    trace.push([registers[0]; 6]);
                    return trace;
                }
                JUMP => place = place.strict_add_signed(isize::from(i.off)),
                CALL => {
                    trace.push(std::array::from_fn(
                        |n| if n == 0 { i.imm as u64 } else { registers[n] },
                    ));
                    for (nth, argument) in registers[1..=5].iter().enumerate() {
                        let Some(seen) = on_stack(&mut stack, *argument) else {
                            continue;
                        };
                        trace.extend(seen.iter().map(|byte| [u64::from(*byte); 6]));
                        for byte in seen.iter_mut().take(9) {
                            *byte ^= 0x11 << nth;
                        }
                    }
                    for (number, register) in registers[..=5].iter_mut().enumerate() {
                        *register = (trace.len() * 10 + number) as u64;
                    }
                }
                LOAD_CONSTANT => {
                    registers[usize::from(i.dst_reg())] = match loaded(i, &program[place], &constants).unwrap() {
                        Value::Number(number) => number,
                        // An address that nothing else has.
                        Value::Constant(offset) => ADDRESS + offset,
                        _ => unreachable!("there are no others"),
                    };
                    place += 1;
                }
                _ if is_branch(i) => {
                    if branch(i, &known).unwrap() {
                        place = place.strict_add_signed(isize::from(i.off));
                    }
                }
                _ if is_arithmetic(i) => {
                    let Value::Number(number) = arithmetic(i, &known) else {
                        unreachable!("all operands are numbers")
                    };
                    registers[usize::from(i.dst_reg())] = number;
                }
                _ if class(i) == sys::BPF_LDX && on_stack(&mut stack, source(&registers, i)).is_some() => {
                    let mut word = [0; 8];
                    let seen = on_stack(&mut stack, source(&registers, i)).unwrap();
                    let size = usize::from(size_of_access(i)).min(seen.len());
                    word[..size].copy_from_slice(&seen[..size]);
                    registers[usize::from(i.dst_reg())] = u64::from_le_bytes(word);
                }
                _ if class(i) == sys::BPF_LDX => {
                    let from = registers[usize::from(i.src_reg())];
                    known.registers[usize::from(i.src_reg())] = Value::Constant(from & 0xff);
                    registers[usize::from(i.dst_reg())] = match read(i, &known, &constants) {
                        Value::Number(number) if from & !0xff == ADDRESS => number,
                        _ => from ^ 0x5a5a,
                    };
                }
                _ if on_stack(&mut stack, destination(&registers, i)).is_some() => {
                    let word = registers[usize::from(i.src_reg())].to_le_bytes();
                    let place = on_stack(&mut stack, destination(&registers, i)).unwrap();
                    let size = usize::from(size_of_access(i)).min(place.len());
                    place[..size].copy_from_slice(&word[..size]);
                }
                _ => trace.push([
                    registers[usize::from(i.dst_reg())],
                    registers[usize::from(i.src_reg())],
                    0,
                    0,
                    0,
                    0,
                ]),
            }
        }
    }

    #[derive(Debug, Clone)]
    enum Step {
        Number(u8, i32),
        Arithmetic(u32, u8, u8, i32),
        Constant(u8, i32),
        Load(u8, u8),
        Branch(u32, u8, u8, i32, usize),
        Jump(usize),
        Store(u8, u8),
        Call(i32),
        Spill(u8, u32, i16),
        Fill(u8, u32, i16),
        Address(u8, i16),
    }

    fn step() -> impl Strategy<Value = Step> {
        let register = || 0..6u8;
        let small = || -3..4i32;
        let sizes = || prop::sample::select(vec![sys::BPF_B, sys::BPF_W, sys::BPF_DW]);
        let operations = prop::sample::select(vec![
            sys::BPF_ADD,
            sys::BPF_SUB,
            sys::BPF_MUL,
            sys::BPF_OR,
            sys::BPF_AND,
            sys::BPF_XOR,
            sys::BPF_LSH,
            sys::BPF_RSH,
            sys::BPF_ARSH,
            sys::BPF_MOV,
        ]);
        let classes = prop::sample::select(vec![sys::BPF_ALU, sys::BPF_ALU64]);
        let sources = || prop::sample::select(vec![sys::BPF_K, sys::BPF_X]);
        let conditions = prop::sample::select(vec![
            sys::BPF_JEQ,
            sys::BPF_JNE,
            sys::BPF_JSET,
            sys::BPF_JGT,
            sys::BPF_JGE,
            sys::BPF_JLT,
            sys::BPF_JLE,
            sys::BPF_JSGT,
            sys::BPF_JSGE,
            sys::BPF_JSLT,
            sys::BPF_JSLE,
        ]);
        let widths = prop::sample::select(vec![sys::BPF_JMP, sys::BPF_JMP32]);
        prop_oneof![
            (register(), small()).prop_map(|(a, n)| Step::Number(a, n)),
            (operations, classes, sources(), register(), register(), small())
                .prop_map(|(operation, class, source, a, b, n)| Step::Arithmetic(operation | class | source, a, b, n)),
            (register(), prop::sample::select(vec![0, 4, 8])).prop_map(|(a, n)| Step::Constant(a, n)),
            (register(), register()).prop_map(|(a, b)| Step::Load(a, b)),
            (
                conditions,
                widths,
                sources(),
                register(),
                register(),
                small(),
                0..6usize
            )
                .prop_map(|(condition, width, source, a, b, n, over)| Step::Branch(
                    condition | width | source,
                    a,
                    b,
                    n,
                    over
                )),
            (0..4usize).prop_map(Step::Jump),
            (register(), register()).prop_map(|(a, b)| Step::Store(a, b)),
            (0..9i32).prop_map(Step::Call),
            (register(), sizes(), 1..5i16).prop_map(|(a, size, n)| Step::Spill(a, size, n)),
            (register(), sizes(), 1..5i16).prop_map(|(a, size, n)| Step::Fill(a, size, n)),
            (register(), 1..5i16).prop_map(|(a, n)| Step::Address(a, n)),
        ]
    }

    /// Jumps are over so many steps, which may be of two instructions.
    fn program_of(steps: &[Step]) -> Vec<bpf_insn> {
        let mut starts = Vec::new();
        let mut size = 0;
        for step in steps {
            starts.push(size);
            size += if matches!(step, Step::Constant(..) | Step::Address(..)) {
                2
            } else {
                1
            };
        }
        let off = |index: usize, over: usize| {
            let target = starts.get(index + 1 + over).copied().unwrap_or(size);
            (target - starts[index] - 1) as i16
        };
        // So that accesses of different sizes meet.
        let offset = |size: u32, n: i16| if size == sys::BPF_DW { -8 * n } else { -4 * n };
        let mut program = Vec::new();
        for (index, step) in steps.iter().enumerate() {
            match *step {
                Step::Number(a, n) => program.push(number(a, n)),
                Step::Arithmetic(code, a, b, _) if code as u8 & SOURCE_IS_REGISTER != 0 => {
                    program.push(instruction(code, a, b, 0, 0));
                }
                Step::Arithmetic(code, a, _, n) => program.push(instruction(code, a, 0, 0, n)),
                Step::Constant(a, n) => program.extend(constant(a, n)),
                Step::Load(a, b) => program.push(load(sys::BPF_W, a, b, 0)),
                Step::Branch(code, a, b, _, over) if code as u8 & SOURCE_IS_REGISTER != 0 => {
                    program.push(instruction(code, a, b, off(index, over), 0));
                }
                Step::Branch(code, a, _, n, over) => program.push(instruction(code, a, 0, off(index, over), n)),
                Step::Jump(over) => program.push(instruction(u32::from(JUMP), 0, 0, off(index, over), 0)),
                Step::Store(a, b) => {
                    program.push(instruction(sys::BPF_STX | sys::BPF_MEM | sys::BPF_DW, a, b, 0, 0));
                }
                Step::Call(helper) => program.push(call(helper)),
                Step::Spill(a, size, n) => {
                    let code = sys::BPF_STX | sys::BPF_MEM | size;
                    program.push(instruction(code, FRAME as u8, a, offset(size, n), 0));
                }
                Step::Fill(a, size, n) => program.push(load(size, a, FRAME as u8, offset(size, n))),
                Step::Address(a, n) => {
                    let code = sys::BPF_ALU64 | sys::BPF_MOV | sys::BPF_X;
                    program.push(instruction(code, a, FRAME as u8, 0, 0));
                    let code = sys::BPF_ALU64 | sys::BPF_ADD | sys::BPF_K;
                    program.push(instruction(code, a, 0, 0, i32::from(-8 * n)));
                }
            }
        }
        program.push(exit());
        program
    }

    proptest! {
        #![proptest_config(fuzz::config())]

        #[test]
        fn a_folded_program_does_what_the_whole_one_does(
            steps in prop::collection::vec(step(), 0..40),
            registers in prop::array::uniform11(0..5u64),
        ) {
            let whole = program_of(&steps);
            // Where an address is stored, it stays as it is.
            let Some(less) = folded(&whole) else { return Ok(()) };
            prop_assert!(less.len() <= whole.len() + steps.len());
            let (whole, less_shown, less) = (trace(&whole, registers), shown(&less), trace(&less, registers));
            let first = whole.iter().zip(&less).position(|(whole, less)| whole != less);
            prop_assert!(whole.len() == less.len() && first.is_none(), "from {first:?} on: {less_shown:?}");
        }
    }
}
