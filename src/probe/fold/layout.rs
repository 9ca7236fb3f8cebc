//! In which order the instructions that stay are put, and with which jumps.

use libbpf_sys as sys;
use libbpf_sys::bpf_insn;

use super::{EXIT, JUMP, Kept, OPERATION, goes_on, is_branch};

/// The first that stays of those from a place on.
pub(super) fn at_or_after(kept: &[Kept], place: usize) -> usize {
    kept.partition_point(|it| it.place < place)
}

/// Leaves out jumps over nothing.
pub(super) fn drop_jumps_to_next(kept: &mut Vec<Kept>) {
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

/// Lets each jump go where the jump that it leads to goes.
pub(super) fn shorten_jumps(kept: &mut [Kept]) {
    for index in 0..kept.len() {
        // Jumps in a circle end nowhere.
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

/// Lets a branch around a jump go where that one goes. No other way leads to the jump, since all are shortened.
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

/// Leaves out what no way leads to any more: the kernel refuses it.
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

/// Instructions that are run one after the other: their first, and the one behind their last.
#[derive(Debug, Clone, Copy)]
struct Block {
    first: usize,
    end: usize,
}

/// Where a program goes from a block: on to the next one, or where its last instruction jumps.
#[derive(Debug, Clone, Copy)]
struct Ways {
    next: Option<usize>,
    target: Option<usize>,
}

fn blocks_of(kept: &[Kept], targets: &[Option<usize>]) -> Vec<Block> {
    let mut is_first = vec![false; kept.len()];
    for (index, it) in kept.iter().enumerate() {
        let ends = it.target.is_some() || it.instruction.code == EXIT;
        is_first[index] |= index == 0;
        if let Some(next) = is_first.get_mut(index + 1).filter(|_| ends) {
            *next = true;
        }
        if let Some(target) = targets[index] {
            is_first[target] = true;
        }
    }
    let firsts: Vec<usize> = (0..kept.len()).filter(|&index| is_first[index]).collect();
    let ends = firsts.iter().skip(1).copied().chain([kept.len()]);
    firsts
        .iter()
        .zip(ends)
        .map(|(&first, end)| Block { first, end })
        .collect()
}

/// Whether it is over soon, whatever comes: what a program ends early for is mostly rare.
fn ends_soon(mut number: usize, ways: &[Ways]) -> bool {
    const BLOCKS: usize = 3;
    for _ in 0..BLOCKS {
        match (ways[number].next, ways[number].target) {
            (None, None) => return true,
            (Some(_), Some(_)) => return false,
            (Some(way), None) | (None, Some(way)) => number = way,
        }
    }
    false
}

/// The blocks in the order that they are to have: behind each one of those that it leads to, as far as they are not elsewhere, so that few
/// jumps are left.
fn order_of(ways: &[Ways]) -> Vec<usize> {
    let mut order = Vec::with_capacity(ways.len());
    let mut is_placed = vec![false; ways.len()];
    for first in 0..ways.len() {
        let mut block = Some(first).filter(|&first| !is_placed[first]);
        while let Some(number) = block {
            order.push(number);
            is_placed[number] = true;
            let (next, target) = (ways[number].next, ways[number].target);
            let end_soon = [next, target].map(|way| way.is_some_and(|way| ends_soon(way, ways)));
            let by_preference = match end_soon {
                [true, false] => [target, next],
                _ => [next, target],
            };
            block = by_preference.into_iter().flatten().find(|&way| !is_placed[way]);
        }
    }
    order
}

/// In which order blocks are put.
#[derive(Debug, Clone, Copy)]
pub(super) enum Order {
    /// Jumps go forward, as far as they did: what looks at the program again comes by each instruction about once.
    AsItWas,
    /// As few jumps are left as can be.
    ByWays,
}

/// Puts them one after the other, with jumps to where their targets are then. `None`: there is something that nothing comes behind,
/// though it goes on, or a jump is too long.
pub(super) fn assemble(kept: &[Kept], order: Order) -> Option<Vec<bpf_insn>> {
    let targets = kept.iter().map(|it| it.target.map(|place| at_or_after(kept, place)));
    let targets: Vec<Option<usize>> = targets.collect();
    // Behind the last one there is nothing to jump to.
    if targets.contains(&Some(kept.len())) {
        return None;
    }
    let blocks = blocks_of(kept, &targets);
    let block_at = |index: usize| blocks.partition_point(|block| block.first <= index) - 1;
    let ways = |(number, block): (usize, &Block)| {
        let last = block.end - 1;
        let next = goes_on(&kept[last].instruction).then_some(number + 1);
        if next == Some(blocks.len()) {
            return None;
        }
        let target = targets[last].map(block_at);
        Some(Ways { next, target })
    };
    let ways: Vec<Ways> = blocks.iter().enumerate().map(ways).collect::<Option<_>>()?;
    let order = match order {
        Order::AsItWas => (0..ways.len()).collect(),
        Order::ByWays => order_of(&ways),
    };

    let mut program: Vec<bpf_insn> = Vec::new();
    let mut starts = vec![0; blocks.len()];
    // Where jumps are, and the blocks that they lead to.
    let mut jumps: Vec<(usize, usize)> = Vec::new();
    for (place, &number) in order.iter().enumerate() {
        starts[number] = program.len();
        let (Block { first, end }, Ways { next, target }) = (blocks[number], ways[number]);
        let behind = order.get(place + 1).copied();
        for it in &kept[first..end] {
            program.push(it.instruction);
            let high = it.high.map(|imm| bpf_insn {
                imm,
                ..Default::default()
            });
            program.extend(high);
        }
        let (mut next, mut target) = (next, target);
        if next == target || next.is_none() {
            // It goes one way only.
            if target.is_some() {
                program.pop();
            }
            next = target.take();
        } else if target.is_some() && target == behind {
            let branch = program.last_mut()?;
            if let Some(code) = inverted(branch.code) {
                branch.code = code;
                (next, target) = (target, next);
            }
        }
        jumps.extend(target.map(|target| (program.len() - 1, target)));
        if let Some(next) = next.filter(|_| next != behind) {
            jumps.push((program.len(), next));
            program.push(bpf_insn {
                code: JUMP,
                ..Default::default()
            });
        }
    }
    for (place, block) in jumps {
        program[place].off = i16::try_from(starts[block] as isize - place as isize - 1).ok()?;
    }
    Some(program)
}

/// The branch that is taken where this one is not.
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
