//! Leaves out copies: what a register has already, what need not come from the stack, and registers that another one can stand for.

use std::collections::BTreeMap;

use libbpf_sys as sys;
use libbpf_sys::bpf_insn;

use super::layout::at_or_after;
use super::state::Value;
use super::unused::{Liveness, Set, bit, lowest_given, only_writes_a_register, overwrites, uses};
use super::{
    CALL, FRAME, Kept, LOAD_CONSTANT, MODE, OPERATION, REGISTERS, class, goes_on, has_register, is_arithmetic,
    size_of_access,
};

/// Which registers and places on the stack have the same value: those of the same number. Of the stack, the places of eight bytes that nobody
/// else has an address of.
#[derive(Clone)]
struct Known {
    registers: [usize; REGISTERS],
    /// Since when each has it.
    since: [usize; REGISTERS],
    stack: Vec<(i64, usize)>,
    next: usize,
}

impl Known {
    /// `next`: a number that no value has, nor any above it.
    fn nothing(next: usize) -> Self {
        Self {
            registers: std::array::from_fn(|register| next + register),
            since: [next; REGISTERS],
            stack: Vec::new(),
            next: next + REGISTERS,
        }
    }

    /// What is known where both lead.
    fn merge(&mut self, other: &Self) {
        self.next = self.next.max(other.next);
        for register in 0..REGISTERS {
            if self.registers[register] == other.registers[register] {
                self.since[register] = self.since[register].max(other.since[register]);
            } else {
                self.forget(register);
            }
        }
        self.stack.retain(|it| other.stack.contains(it));
    }

    /// A register has a value that is not known.
    fn forget(&mut self, register: usize) {
        self.set(register, self.next);
    }

    fn set(&mut self, register: usize, value: usize) {
        self.registers[register] = value;
        self.since[register] = self.next;
        self.next += 1;
    }

    /// The register that has had the value of one for longest.
    fn first_with(&self, register: usize) -> usize {
        let same = (0..FRAME).filter(|&other| self.registers[other] == self.registers[register]);
        same.min_by_key(|&other| self.since[other]).unwrap_or(register)
    }

    fn on_stack(&self, address: i64) -> Option<usize> {
        let place = self.stack.iter().find(|(place, _)| *place == address);
        place.map(|&(_, value)| value)
    }

    /// Bytes of the stack are written.
    fn forget_stack(&mut self, address: i64, size: u8) {
        self.stack
            .retain(|&(place, _)| place + 8 <= address || place >= address + i64::from(size));
    }
}

/// A move of all 64 bits from one register to another.
fn is_copy(instruction: &bpf_insn) -> bool {
    class(instruction) == sys::BPF_ALU64
        && u32::from(instruction.code & OPERATION) == sys::BPF_MOV
        && has_register(instruction)
        && instruction.off == 0
}

/// An atomic addition that does not answer.
fn is_added(instruction: &bpf_insn) -> bool {
    u32::from(instruction.code & MODE) == sys::BPF_ATOMIC && instruction.imm as u32 == sys::BPF_ADD
}

fn is_plain(instruction: &bpf_insn) -> bool {
    u32::from(instruction.code & MODE) == sys::BPF_MEM
}

/// How many jumps lead to each instruction.
fn jumps_to(kept: &[Kept]) -> Vec<usize> {
    let mut jumps = vec![0; kept.len() + 1];
    for target in kept.iter().filter_map(|it| it.target) {
        jumps[at_or_after(kept, target)] += 1;
    }
    jumps
}

/// Which instructions jumps lead to.
fn targets_of(kept: &[Kept]) -> Vec<bool> {
    jumps_to(kept).into_iter().map(|jumps| jumps > 0).collect()
}

/// Leaves out what is copied to where it is, and takes out of registers what is on the stack as well.
pub(super) fn drop_copies(kept: &mut Vec<Kept>) {
    let given = lowest_given(kept).unwrap_or(i64::MIN);
    let jumps = jumps_to(kept);
    let targets: Vec<Option<usize>> = kept.iter().map(|it| Some(at_or_after(kept, it.target?))).collect();
    let mut known = Known::nothing(0);
    // What is known at the jumps to a place so far, and how many those are.
    let mut at_jumps: BTreeMap<usize, (usize, Known)> = BTreeMap::new();
    // From the instruction before.
    let mut is_entered = true;
    let mut index = 0;
    kept.retain_mut(|it| {
        if jumps[index] > 0 {
            let next = known.next;
            // Otherwise there are some from below.
            let all = at_jumps.remove(&index).filter(|&(seen, _)| seen == jumps[index]);
            match all {
                Some((_, there)) if is_entered => known.merge(&there),
                Some((_, there)) => known = there,
                None => known = Known::nothing(next),
            }
            known.next = known.next.max(next);
        }
        is_entered = goes_on(&it.instruction);
        let stays = stays(it, &mut known, given);
        if let Some(target) = targets[index].filter(|&target| target > index) {
            if let Some((seen, there)) = at_jumps.get_mut(&target) {
                *seen += 1;
                there.merge(&known);
                // A number that was given there is not given here.
                known.next = there.next;
            } else {
                at_jumps.insert(target, (1, known.clone()));
            }
        }
        index += 1;
        stays
    });
}

/// Whether an instruction does anything, with what is `known` before it.
fn stays(it: &mut Kept, known: &mut Known, given: i64) -> bool {
    let instruction = it.instruction;
    let (to, from) = (usize::from(instruction.dst_reg()), usize::from(instruction.src_reg()));
    let size = size_of_access(&instruction);
    let place = Some(i64::from(instruction.off)).filter(|place| size == 8 && place + 8 <= given);
    match class(&instruction) {
        _ if is_copy(&instruction) => {
            if known.registers[to] == known.registers[from] {
                return false;
            }
            known.set(to, known.registers[from]);
            return true;
        }
        sys::BPF_LDX if from == FRAME && is_plain(&instruction) => {
            let Some(place) = place else {
                known.forget(to);
                return true;
            };
            let Some(value) = known.on_stack(place) else {
                known.forget(to);
                known.stack.push((place, known.registers[to]));
                return true;
            };
            if known.registers[to] == value {
                return false;
            }
            if let Some(from) = known.registers.iter().position(|&it| it == value) {
                let mut copy = bpf_insn {
                    code: (sys::BPF_ALU64 | sys::BPF_MOV | sys::BPF_X) as u8,
                    ..Default::default()
                };
                copy.set_dst_reg(to as u8);
                copy.set_src_reg(from as u8);
                it.instruction = copy;
                it.from = Value::Unknown;
            }
            known.set(to, value);
            return true;
        }
        sys::BPF_LDX if from != FRAME && is_plain(&instruction) => {
            it.instruction.set_src_reg(known.first_with(from) as u8);
        }
        sys::BPF_STX if to != FRAME && is_plain(&instruction) => {
            it.instruction.set_src_reg(known.first_with(from) as u8);
            return true;
        }
        sys::BPF_STX if is_added(&instruction) => {
            it.instruction.set_src_reg(known.first_with(from) as u8);
            if to == FRAME {
                known.forget_stack(instruction.off.into(), size);
            }
            return true;
        }
        sys::BPF_STX if to == FRAME && is_plain(&instruction) => {
            let value = known.registers[from];
            if place.is_some_and(|place| known.on_stack(place) == Some(value)) {
                return false;
            }
            known.forget_stack(instruction.off.into(), size);
            known.stack.extend(place.map(|place| (place, value)));
            return true;
        }
        sys::BPF_ST | sys::BPF_STX if to == FRAME => known.forget_stack(instruction.off.into(), size),
        sys::BPF_STX if !is_plain(&instruction) => {
            // What it found there.
            known.forget(0);
            known.forget(from);
        }
        _ => {}
    }
    let written = overwrites(&instruction);
    (0..FRAME)
        .filter(|&register| written & bit(register as u8) != 0)
        .for_each(|register| known.forget(register));
    true
}

/// Writes what is only copied from there to where it goes.
pub(super) fn write_at_once(kept: &mut Vec<Kept>) {
    let liveness = Liveness::of(kept);
    let is_target = targets_of(kept);
    let mut stays = vec![true; kept.len()];
    for index in 0..kept.len() {
        let copy = kept[index].instruction;
        let (to, from) = (copy.dst_reg(), copy.src_reg());
        if !is_copy(&copy) || usize::from(from) == FRAME || liveness.after(index) & bit(from) != 0 || is_target[index] {
            continue;
        }
        let both = bit(to) | bit(from);
        for before in (0..index).rev() {
            if !stays[before] {
                continue;
            }
            let instruction = &mut kept[before].instruction;
            let written = overwrites(instruction);
            if written == bit(from) && only_writes_a_register(instruction) && uses(instruction) & bit(from) == 0 {
                instruction.set_dst_reg(to);
                stays[index] = false;
            }
            let is_between = (written | uses(instruction)) & both == 0 && kept[before].target.is_none();
            if !is_between || is_target[before] {
                break;
            }
        }
    }
    let mut stays = stays.into_iter();
    kept.retain(|_| stays.next().unwrap_or(true));
}

/// Lets a number be computed in the register that it came in, and copied then: what else it is computed of has a place for less long. What
/// is read later is the same, but for the two registers between the two.
fn copy_later(kept: &mut [Kept], liveness: &Liveness) {
    let is_target = targets_of(kept);
    for second in 1..kept.len() {
        let (copy, operation) = (kept[second - 1].instruction, kept[second].instruction);
        let from = copy.src_reg();
        let is_read_later = liveness.after(second) & bit(from) != 0;
        let changes_copy = is_arithmetic(&operation)
            && u32::from(operation.code & OPERATION) != sys::BPF_MOV
            && operation.dst_reg() == copy.dst_reg();
        let is_of_others = has_register(&operation) && ![from, copy.dst_reg()].contains(&operation.src_reg());
        if !is_copy(&copy) || !changes_copy || !is_of_others || is_read_later || is_target[second] {
            continue;
        }
        let mut operation = operation;
        operation.set_dst_reg(from);
        kept[second - 1].instruction = operation;
        kept[second - 1].result = kept[second].result;
        kept[second].instruction = copy;
    }
}

/// Lets bits be tested where they are, and not in a copy that is cut down to them.
pub(super) fn test_bits(kept: &mut Vec<Kept>) {
    let liveness = Liveness::of(kept);
    let is_target = targets_of(kept);
    let mut stays = vec![true; kept.len()];
    for second in 1..kept.len() {
        let (mask, test) = (kept[second - 1].instruction, kept[second].instruction);
        let (is_mask, is_wide) = match class(&mask) {
            sys::BPF_ALU => (true, false),
            sys::BPF_ALU64 => (true, true),
            _ => (false, false),
        };
        let is_and = is_mask && u32::from(mask.code & OPERATION) == sys::BPF_AND && !has_register(&mask);
        let is_test = match class(&test) {
            sys::BPF_JMP32 => true,
            sys::BPF_JMP => is_wide,
            _ => false,
        };
        let is_not_zero = u32::from(test.code & OPERATION) == sys::BPF_JNE && !has_register(&test) && test.imm == 0;
        let register = mask.dst_reg();
        let is_read_later = liveness.after(second) & bit(register) != 0;
        if !is_and || !is_test || !is_not_zero || test.dst_reg() != register || is_read_later || is_target[second] {
            continue;
        }
        let wide = if is_wide && class(&test) == sys::BPF_JMP {
            sys::BPF_JMP
        } else {
            sys::BPF_JMP32
        };
        kept[second].instruction.code = (wide | sys::BPF_JSET | sys::BPF_K) as u8;
        kept[second].instruction.imm = mask.imm;
        stays[second - 1] = false;
    }
    let mut stays = stays.into_iter();
    kept.retain(|_| stays.next().unwrap_or(true));
}

/// Registers that calls leave as they are. What a program writes of them, it saves first.
const SAVED: std::ops::RangeInclusive<u8> = 6..=9;

/// Lets as few registers as can be stand for those that calls leave alone: two of which never both have something that is read later are one.
pub(super) fn merge_saved(kept: &mut [Kept]) {
    let liveness = Liveness::of(kept);
    copy_later(kept, &liveness);
    let mut apart = apart(kept, &liveness);
    // Which register stands for each.
    let mut stands: [u8; REGISTERS] = std::array::from_fn(|register| register as u8);
    for second in SAVED {
        let first = SAVED.take_while(|&first| first < second);
        let mut first = first.filter(|&first| stands[usize::from(first)] == first);
        if let Some(first) = first.find(|&first| apart[usize::from(first)] & bit(second) == 0) {
            stands[usize::from(second)] = first;
            let others = apart[usize::from(second)];
            apart[usize::from(first)] |= others;
            for register in SAVED.filter(|&register| others & bit(register) != 0) {
                apart[usize::from(register)] |= bit(first);
            }
        }
    }
    for it in kept {
        let instruction = &mut it.instruction;
        instruction.set_dst_reg(stands[usize::from(instruction.dst_reg())]);
        if reads_second(instruction) {
            instruction.set_src_reg(stands[usize::from(instruction.src_reg())]);
        }
    }
}

/// By register: those that have something of their own at some place where it has, too.
fn apart(kept: &[Kept], liveness: &Liveness) -> [Set; REGISTERS] {
    let mut apart = [0; REGISTERS];
    let mut part = |register: u8, others: Set| {
        let others = others & !bit(register);
        apart[usize::from(register)] |= others;
        for other in SAVED.filter(|&other| others & bit(other) != 0) {
            apart[usize::from(other)] |= bit(register);
        }
    };
    for (index, it) in kept.iter().enumerate() {
        let written = overwrites(&it.instruction);
        // What one is written with is not what the other has.
        let same = if is_copy(&it.instruction) {
            bit(it.instruction.src_reg())
        } else {
            0
        };
        for register in SAVED.filter(|&register| written & bit(register) != 0) {
            part(register, liveness.after(index) & !same);
        }
    }
    // Whoever is read before it is written has what nobody here knows.
    for register in SAVED.filter(|&register| liveness.at_entry & bit(register) != 0) {
        part(register, Set::MAX);
    }
    apart
}

/// Whether it has a second register, and not another kind of number at its place.
fn reads_second(instruction: &bpf_insn) -> bool {
    !matches!(instruction.code, LOAD_CONSTANT | CALL)
}
