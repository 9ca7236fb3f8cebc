//! The whole stack's counters, summed over all CPUs.

use std::mem::offset_of;

use super::op::extremes_of;
use crate::kernel::interface::types::{family_stats, origin_stats};
use crate::model::abi::{
    DIRECTIONS, FAMILIES, ORIGINS, ROW_SYSCALL, SLOW_KINDS, SLOW_LIMITED, SLOW_NO_ROOM, UNBALANCED_KINDS,
};
use crate::model::histogram::widest;
use crate::model::report::slow::LeftOut;
use crate::model::snapshot::{FamilyCounters, OriginCounters, StackCounters, combined};
use crate::probe::attach::AttachedStack;

/// Reads all of them; see [`super::read`] for `epoch`.
pub fn read(stack: &AttachedStack, epoch: u64) -> StackCounters {
    let of_family = |index| {
        let cpus = stack.families.of_op_whole(index, is_whole);
        let mut cpus = cpus.map(|cpu| family(&cpu, epoch));
        let first = cpus.next().unwrap_or_else(|| family(&family_stats::default(), epoch));
        cpus.fold(first, |sum, cpu| sum.combined(&cpu, u64::wrapping_add))
    };
    let sum = |index| {
        let cpus = stack.origins.of_op(index).map(origin);
        cpus.fold([0; 4], |sum, cpu| combined(&sum, &cpu, u64::wrapping_add))
    };
    StackCounters {
        families: (0..FAMILIES as usize).map(of_family).collect(),
        origins: (0..(ORIGINS * DIRECTIONS) as usize).map(sum).collect(),
    }
}

/// Whether the counters are consistent: `count_in_family()` writes the step of a call's time first, and increments the
/// count last.
fn is_whole(cpu: &family_stats) -> bool {
    let calls = cpu.steps.iter().copied().fold(0, u64::wrapping_add);
    calls == cpu.reached[ROW_SYSCALL as usize]
}

/// One CPU's counters.
pub fn origin(cpu: origin_stats) -> OriginCounters {
    [cpu.requests, cpu.bytes, cpu.queue_ns, cpu.device_ns]
}

/// Slow calls left out so far, without reading the other counters.
pub fn left_out(stack: &AttachedStack) -> LeftOut {
    let families = (0..FAMILIES as usize).flat_map(|index| stack.families.of_op(index));
    families.fold(LeftOut::default(), |sum, cpu| LeftOut {
        limited: sum.limited.wrapping_add(cpu.slow[SLOW_LIMITED as usize]),
        no_room: sum.no_room.wrapping_add(cpu.slow[SLOW_NO_ROOM as usize]),
    })
}

/// Whether a family has counted no call, as far as its words show; `None` for a word: there is no such family.
pub fn is_unused(word: impl Fn(usize) -> Option<u64>) -> bool {
    const WORD: usize = size_of::<u64>();
    let calls = offset_of!(family_stats, reached) / WORD + ROW_SYSCALL as usize;
    let unbalanced = offset_of!(family_stats, unbalanced) / WORD;
    let slow = offset_of!(family_stats, slow) / WORD;
    let unbalanced = unbalanced..unbalanced + UNBALANCED_KINDS as usize;
    let slow = slow..slow + SLOW_KINDS as usize;
    std::iter::once(calls)
        .chain(unbalanced)
        .chain(slow)
        .all(|index| word(index) == Some(0))
}

/// The counters of one CPU, or of one group; see [`super::read`] for `epoch`.
pub fn family(cpu: &family_stats, epoch: u64) -> FamilyCounters {
    let used = cpu
        .steps
        .iter()
        .rposition(|calls| *calls > 0)
        .map_or(0, |last| last + 1);
    FamilyCounters {
        bytes: cpu.bytes,
        errors: cpu.errors,
        unbalanced: cpu.unbalanced,
        rows: cpu.rows,
        reached: cpu.reached,
        class_calls: cpu.class_calls,
        class_bytes: cpu.class_bytes,
        steps: cpu.steps[..used].to_vec(),
        slow: cpu.slow,
        extremes: extremes_of(&cpu.extremes, epoch).reduce(widest),
    }
}

#[cfg(test)]
mod tests {
    use plain::as_bytes;

    use super::*;

    /// Each counter that can be more than 0 before the count of calls is.
    #[test]
    fn a_family_is_unused_until_something_is_counted() {
        let is_unused = |cpu: &family_stats| {
            // SAFETY: all of it is 8-byte numbers.
            let bytes = unsafe { as_bytes(cpu) };
            let word = |index: usize| {
                Some(u64::from_ne_bytes(
                    bytes.get(index * 8..index * 8 + 8)?.try_into().ok()?,
                ))
            };
            super::is_unused(word)
        };
        let unused = family_stats::default();
        assert!(is_unused(&unused) && !super::is_unused(|_| None));
        let mut called = unused;
        called.reached[ROW_SYSCALL as usize] = 1;
        let mut unbalanced = unused;
        unbalanced.unbalanced[UNBALANCED_KINDS as usize - 1] = 1;
        let mut slow = unused;
        slow.slow[SLOW_LIMITED as usize] = 1;
        assert!(![called, unbalanced, slow].iter().any(is_unused));
        assert!(family(&unused, 0).steps.is_empty());
    }

    #[test]
    fn a_partly_counted_call_is_detected() {
        let mut cpu = family_stats::default();
        assert!(is_whole(&cpu));
        cpu.steps[7] = 2;
        cpu.steps[70] = 1;
        cpu.reached[ROW_SYSCALL as usize] = 2;
        assert!(!is_whole(&cpu));
        cpu.reached[ROW_SYSCALL as usize] = 3;
        assert!(is_whole(&cpu));
    }
}
