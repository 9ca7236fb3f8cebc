//! Lays out the remaining instructions and their jumps.

use libbpf_sys as sys;
use libbpf_sys::bpf_insn;

use super::{JUMP, Kept, OPERATION, goes_on, is_branch};

/// The first remaining instruction from this index of the original program on.
pub(super) fn at_or_after(kept: &[Kept], index: usize) -> usize {
    kept.partition_point(|it| it.index < index)
}

/// Removes jumps to the next instruction, conditional ones too. Returns whether there were conditional ones, since their
/// operands may be unused then.
pub(super) fn drop_jumps_to_next(kept: &mut Vec<Kept>) -> bool {
    let mut stays = vec![true; kept.len()];
    // The next remaining instruction after each.
    let mut next = kept.len();
    let mut had_condition = false;
    for (index, it) in kept.iter().enumerate().rev() {
        let target = it.target.map(|target| at_or_after(kept, target));
        let is_over_nothing = target.is_some_and(|target| (index + 1..=next).contains(&target));
        had_condition |= is_over_nothing && it.instruction.code != JUMP;
        stays[index] = !is_over_nothing;
        if stays[index] {
            next = index;
        }
    }
    let mut stays = stays.into_iter();
    kept.retain(|_| stays.next().unwrap_or(true));
    had_condition
}

/// Redirects each jump to a jump to the final target.
pub(super) fn shorten_jumps(kept: &mut [Kept]) {
    for index in 0..kept.len() {
        // Bounded: jumps may form a cycle.
        for _ in 0..kept.len() {
            let Some(target) = kept[index].target else { break };
            match kept.get(at_or_after(kept, target)) {
                Some(next) if next.instruction.code == JUMP && next.target != kept[index].target => {
                    kept[index].target = next.target;
                }
                _ => break,
            }
        }
    }
}

/// Inverts each branch around a jump, and gives it the target of the jump. No other jump leads to that one, since all are
/// shortened.
pub(super) fn invert_branches(kept: &mut [Kept]) {
    for index in 0..kept.len().saturating_sub(2) {
        let is_around = is_branch(&kept[index].instruction)
            && kept[index + 1].instruction.code == JUMP
            && kept[index]
                .target
                .is_some_and(|target| at_or_after(kept, target) == index + 2);
        if let Some(code) = inverted(kept[index].instruction.code).filter(|_| is_around) {
            kept[index].instruction.code = code;
            (kept[index].target, kept[index + 1].target) = (kept[index + 1].target, kept[index].target);
        }
    }
}

/// Removes unreachable instructions, which the kernel refuses.
pub(super) fn drop_unreached(kept: &mut Vec<Kept>) {
    let mut is_reached = vec![false; kept.len()];
    let mut open = vec![0];
    while let Some(index) = open.pop() {
        let Some(it) = kept.get(index).filter(|_| !is_reached[index]) else {
            continue;
        };
        is_reached[index] = true;
        open.extend(it.target.map(|target| at_or_after(kept, target)));
        if goes_on(&it.instruction) {
            open.push(index + 1);
        }
    }
    let mut is_reached = is_reached.into_iter();
    kept.retain(|_| is_reached.next().unwrap_or(true));
}

/// Puts the instructions one after the other and sets the distances of jumps. `None`: the last instruction falls
/// through, or a jump is too long.
pub(super) fn assemble(kept: &[Kept]) -> Option<Vec<bpf_insn>> {
    if goes_on(&kept.last()?.instruction) {
        return None;
    }
    let mut program = Vec::with_capacity(kept.len());
    let mut starts = Vec::with_capacity(kept.len());
    for it in kept {
        starts.push(program.len());
        program.push(it.instruction);
        let high = it.high.map(|imm| bpf_insn {
            imm,
            ..Default::default()
        });
        program.extend(high);
    }
    for (&start, it) in starts.iter().zip(kept) {
        if let Some(target) = it.target {
            let target = *starts.get(at_or_after(kept, target))?;
            program[start].off = i16::try_from(target as isize - start as isize - 1).ok()?;
        }
    }
    Some(program)
}

/// The opcode of the opposite branch.
fn inverted(code: u8) -> Option<u8> {
    let operation = match u32::from(code & OPERATION) {
        sys::BPF_JEQ => sys::BPF_JNE,
        sys::BPF_JNE => sys::BPF_JEQ,
        sys::BPF_JGT => sys::BPF_JLE,
        sys::BPF_JLE => sys::BPF_JGT,
        sys::BPF_JGE => sys::BPF_JLT,
        sys::BPF_JLT => sys::BPF_JGE,
        sys::BPF_JSGT => sys::BPF_JSLE,
        sys::BPF_JSLE => sys::BPF_JSGT,
        sys::BPF_JSGE => sys::BPF_JSLT,
        sys::BPF_JSLT => sys::BPF_JSGE,
        _ => return None,
    };
    Some(code & !OPERATION | operation as u8)
}
