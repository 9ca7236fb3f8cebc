//! What is known of registers and stack at a place of a program.

use libbpf_sys::bpf_insn;

use super::{FRAME, REGISTERS};

/// What is known of a register, or of a place on the stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value {
    /// No address on the stack.
    Unknown,
    /// It may be an address on the stack, and nobody knows which.
    Anything,
    Number(u64),
    /// An address in the constants.
    Constant(u64),
    /// An address in another map, or of a map: it is not 0.
    Address,
    /// An address on the stack, from its upper end.
    Stack(i64),
}

/// Bytes of the stack; the frame pointer is its upper end.
pub(super) const STACK: i64 = 512;
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
#[derive(Debug, Clone)]
pub(super) struct State {
    pub(super) registers: [Value; REGISTERS],
    stack: [Place; PLACES],
}

impl State {
    pub(super) fn at_entry() -> Self {
        let mut registers = [Value::Unknown; REGISTERS];
        registers[FRAME] = Value::Stack(0);
        Self {
            registers,
            stack: [Place::Anything; PLACES],
        }
    }

    /// What is known where both lead. Says whether that is less than before.
    pub(super) fn merge(&mut self, other: &Self) -> bool {
        let mut is_less = false;
        for (one, other) in self.registers.iter_mut().zip(other.registers) {
            let both = merged(*one, other);
            is_less |= both != *one;
            *one = both;
        }
        for (one, other) in self.stack.iter_mut().zip(other.stack) {
            let both = match (*one, other) {
                (one, other) if one == other => one,
                (Place::Stored(one, size), Place::Stored(other, same)) if size == same => {
                    Place::Stored(merged(one, other), size)
                }
                _ => Place::Anything,
            };
            is_less |= both != *one;
            *one = both;
        }
        is_less
    }

    pub(super) fn source(&self, instruction: &bpf_insn) -> Value {
        self.registers[usize::from(instruction.src_reg())]
    }

    pub(super) fn destination(&self, instruction: &bpf_insn) -> Value {
        self.registers[usize::from(instruction.dst_reg())]
    }

    /// Writes the register that an instruction writes. `None`: it may not be written.
    pub(super) fn write(&mut self, instruction: &bpf_insn, value: Value) -> Option<()> {
        *self.registers[..FRAME].get_mut(usize::from(instruction.dst_reg()))? = value;
        Some(())
    }

    /// Somebody may write from this address on, upwards.
    pub(super) fn forget_from(&mut self, address: i64) {
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

    pub(super) fn store(&mut self, base: Value, offset: i16, size: u8, value: Value) {
        let address = match base {
            Value::Stack(address) => address + i64::from(offset),
            Value::Anything => return self.forget_from(-STACK),
            Value::Unknown | Value::Number(_) | Value::Constant(_) | Value::Address => return,
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
    pub(super) fn load(&self, base: Value, offset: i16, size: u8) -> Value {
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

pub(super) fn may_be_stack(value: Value) -> bool {
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
