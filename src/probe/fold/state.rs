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
const PLACES: u8 = (STACK / PLACE) as u8;

/// What was stored at a place on the stack, and how many bytes of it; of eight, the next place has the upper half.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stored {
    place: u8,
    bytes: u8,
    value: Value,
}

/// What is known before an instruction.
#[derive(Debug, Clone)]
pub(super) struct State {
    pub(super) registers: [Value; REGISTERS],
    /// From the lowest place up. Of what is not here nothing is known; mostly that is all but a few.
    stack: Vec<Stored>,
}

impl State {
    pub(super) fn at_entry() -> Self {
        let mut registers = [Value::Unknown; REGISTERS];
        registers[FRAME] = Value::Stack(0);
        Self {
            registers,
            stack: Vec::new(),
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
        self.stack.retain_mut(|one| {
            let other = other.at(one.place).filter(|other| other.bytes == one.bytes);
            let both = other.map_or(Value::Unknown, |other| merged(one.value, other.value));
            is_less |= both != one.value;
            one.value = both;
            both != Value::Unknown
        });
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

    /// What is known of a place.
    fn at(&self, place: u8) -> Option<&Stored> {
        let found = self.stack.binary_search_by_key(&place, |stored| stored.place);
        found.ok().map(|index| &self.stack[index])
    }

    /// Somebody may write from this address on, upwards.
    pub(super) fn forget_from(&mut self, address: i64) {
        let first = (address + STACK).div_euclid(PLACE);
        // One before may reach into it.
        self.stack.retain(|stored| stored.end() <= first);
    }

    pub(super) fn store(&mut self, base: Value, offset: i16, size: u8, value: Value) {
        let address = match base {
            Value::Stack(address) => address + i64::from(offset),
            Value::Anything => return self.forget_from(-STACK),
            Value::Unknown | Value::Number(_) | Value::Constant(_) | Value::Address => return,
        };
        let Some(place) = place_of(address) else {
            return self.forget_from(-STACK);
        };
        let new = Stored {
            place,
            bytes: size,
            value,
        };
        self.stack
            .retain(|old| old.end() <= i64::from(place) || i64::from(old.place) >= new.end());
        if address % PLACE == 0 && value != Value::Unknown {
            let index = self.stack.partition_point(|old| old.place < place);
            self.stack.insert(index, new);
        }
    }

    /// No address on the stack is ever stored, so none is loaded.
    pub(super) fn load(&self, base: Value, offset: i16, size: u8) -> Value {
        let Value::Stack(address) = base else {
            return Value::Unknown;
        };
        let address = address + i64::from(offset);
        let known = place_of(address).filter(|_| address % PLACE == 0);
        match known.and_then(|place| self.at(place)) {
            Some(&Stored {
                value: Value::Number(number),
                bytes,
                ..
            }) if bytes == size || bytes == 8 => Value::Number(cut(number, size)),
            Some(&Stored { value, bytes: 8, .. }) if size == 8 => value,
            _ => Value::Unknown,
        }
    }
}

impl Stored {
    /// The first place behind it.
    fn end(&self) -> i64 {
        i64::from(self.place) + if self.bytes == 8 { 2 } else { 1 }
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

fn place_of(address: i64) -> Option<u8> {
    let place = u8::try_from((address + STACK).div_euclid(PLACE)).ok()?;
    (place < PLACES).then_some(place)
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
