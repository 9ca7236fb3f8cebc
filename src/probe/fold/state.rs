//! What is known of the registers and the stack at an instruction.

use libbpf_sys::bpf_insn;

use super::{FRAME, REGISTERS};

/// What is known of a register, or of a slot of the stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value {
    /// Any value but a stack address.
    NotStack,
    /// Any value, perhaps a stack address.
    MaybeStack,
    Number(u64),
    /// An address in the constants, as an offset.
    Constant(u64),
    /// An address in another map, or of a map: not 0.
    Address,
    /// A stack address, relative to the frame pointer.
    Stack(i64),
}

/// Bytes of the stack; the frame pointer is its upper end.
pub(super) const STACK: i64 = 512;
/// Bytes of a slot, the unit in which the stack is tracked.
const SLOT: i64 = 4;
const SLOTS: u8 = (STACK / SLOT) as u8;

/// A value that was stored on the stack, and its size; a value of 8 bytes takes the next slot too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stored {
    slot: u8,
    bytes: u8,
    value: Value,
}

/// What is known before an instruction.
#[derive(Debug, Clone)]
pub(super) struct State {
    pub(super) registers: [Value; REGISTERS],
    /// In the order of slots. Nothing is known of slots that are not here, usually all but a few.
    stack: Vec<Stored>,
    /// A bit for each slot that had a stack address at some time: what is not known of it may be one. No callee stores
    /// any: helpers know none, and functions that are not static are given none.
    had_address: u128,
}

impl State {
    pub(super) fn at_entry() -> Self {
        let mut registers = [Value::NotStack; REGISTERS];
        registers[FRAME] = Value::Stack(0);
        Self {
            registers,
            stack: Vec::new(),
            had_address: 0,
        }
    }

    /// Reduces the state to what both agree on. Returns whether that is less than before.
    pub(super) fn merge(&mut self, other: &Self) -> bool {
        let mut is_less = other.had_address & !self.had_address != 0;
        self.had_address |= other.had_address;
        for (one, other) in self.registers.iter_mut().zip(other.registers) {
            let both = merged(*one, other);
            is_less |= both != *one;
            *one = both;
        }
        self.stack.retain_mut(|one| {
            let other = other.at(one.slot).filter(|other| other.bytes == one.bytes);
            let both = other.map_or(Value::NotStack, |other| merged(one.value, other.value));
            is_less |= both != one.value;
            one.value = both;
            both != Value::NotStack
        });
        is_less
    }

    pub(super) fn source(&self, instruction: &bpf_insn) -> Value {
        self.registers[usize::from(instruction.src_reg())]
    }

    pub(super) fn destination(&self, instruction: &bpf_insn) -> Value {
        self.registers[usize::from(instruction.dst_reg())]
    }

    /// Sets the register that an instruction writes. `None`: it may not be written.
    pub(super) fn write(&mut self, instruction: &bpf_insn, value: Value) -> Option<()> {
        *self.registers[..FRAME].get_mut(usize::from(instruction.dst_reg()))? = value;
        Some(())
    }

    /// What is known of a slot.
    fn at(&self, slot: u8) -> Option<&Stored> {
        let found = self.stack.binary_search_by_key(&slot, |stored| stored.slot);
        found.ok().map(|index| &self.stack[index])
    }

    /// Forgets the stack from this address upwards, which a callee may overwrite.
    pub(super) fn forget_from(&mut self, address: i64) {
        let first = (address + STACK).div_euclid(SLOT);
        // A value that begins below may reach into it.
        self.stack.retain(|stored| stored.end() <= first);
    }

    pub(super) fn store(&mut self, base: Value, offset: i16, size: u8, value: Value) {
        let address = match base {
            Value::Stack(address) => address + i64::from(offset),
            Value::MaybeStack => return self.forget_from(-STACK),
            Value::NotStack | Value::Number(_) | Value::Constant(_) | Value::Address => return,
        };
        let Some(slot) = slot_of(address) else {
            return self.forget_from(-STACK);
        };
        if may_be_stack(value) {
            self.had_address |= 1 << slot;
        }
        let new = Stored {
            slot,
            bytes: size,
            value,
        };
        self.stack
            .retain(|old| old.end() <= i64::from(slot) || i64::from(old.slot) >= new.end());
        if address % SLOT == 0 && value != Value::NotStack {
            let index = self.stack.partition_point(|old| old.slot < slot);
            self.stack.insert(index, new);
        }
    }

    pub(super) fn load(&self, base: Value, offset: i16, size: u8) -> Value {
        let of_these = |slots: u128| {
            if size == 8 && self.had_address & slots != 0 {
                Value::MaybeStack
            } else {
                Value::NotStack
            }
        };
        let address = match base {
            Value::Stack(address) => address + i64::from(offset),
            Value::MaybeStack => return of_these(u128::MAX),
            Value::NotStack | Value::Number(_) | Value::Constant(_) | Value::Address => return Value::NotStack,
        };
        let Some(slot) = slot_of(address).filter(|_| address % SLOT == 0) else {
            return Value::NotStack;
        };
        match self.at(slot) {
            Some(&Stored {
                value: Value::Number(number),
                bytes,
                ..
            }) if bytes == size || bytes == 8 => Value::Number(cut(number, size)),
            Some(&Stored { value, bytes: 8, .. }) if size == 8 => value,
            _ => of_these(1 << slot),
        }
    }
}

impl Stored {
    /// The first slot after it.
    fn end(&self) -> i64 {
        i64::from(self.slot) + if self.bytes == 8 { 2 } else { 1 }
    }
}

fn merged(one: Value, other: Value) -> Value {
    if one == other {
        one
    } else if may_be_stack(one) || may_be_stack(other) {
        Value::MaybeStack
    } else {
        Value::NotStack
    }
}

pub(super) fn may_be_stack(value: Value) -> bool {
    matches!(value, Value::Stack(_) | Value::MaybeStack)
}

fn slot_of(address: i64) -> Option<u8> {
    let slot = u8::try_from((address + STACK).div_euclid(SLOT)).ok()?;
    (slot < SLOTS).then_some(slot)
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
