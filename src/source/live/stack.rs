//! The whole stack's counters, summed over all CPUs.

use std::mem::offset_of;
use std::sync::Arc;

use super::op::extremes_of;
use crate::kernel::interface::types::{family_stats, origin_stats};
use crate::model::abi::{DIRECTIONS, FAMILIES, ORIGINS, ROW_SYSCALL, SLOW_LIMITED, SLOW_NO_ROOM};
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
        families: (0..FAMILIES as usize).map(|index| Arc::new(of_family(index))).collect(),
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

/// Whether a family has counted nothing since it was read last, as far as its words show: each call changes one of these.
/// `None` for a word: there is no such family.
pub fn is_unchanged(last: &FamilyCounters, word: impl Fn(usize) -> Option<u64>) -> bool {
    const WORD: usize = size_of::<u64>();
    const CALLS: usize = offset_of!(family_stats, reached) / WORD + ROW_SYSCALL as usize;
    const UNBALANCED: usize = offset_of!(family_stats, unbalanced) / WORD;
    const SLOW: usize = offset_of!(family_stats, slow) / WORD;
    let unbalanced = last.unbalanced.iter().zip(UNBALANCED..);
    let slow = last.slow.iter().zip(SLOW..);
    std::iter::once((&last.reached[ROW_SYSCALL as usize], CALLS))
        .chain(unbalanced)
        .chain(slow)
        .all(|(last, index)| word(index) == Some(*last))
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
    use crate::model::abi::UNBALANCED_KINDS;

    /// Each counter that can change before the count of calls does.
    #[test]
    fn a_family_is_unchanged_until_something_is_counted() {
        let is_unchanged = |last: &family_stats, now: &family_stats| {
            // SAFETY: all of it is 8-byte numbers.
            let bytes = unsafe { as_bytes(now) };
            let word = |index: usize| {
                Some(u64::from_ne_bytes(
                    bytes.get(index * 8..index * 8 + 8)?.try_into().ok()?,
                ))
            };
            super::is_unchanged(&family(last, 0), word)
        };
        let mut used = family_stats::default();
        (used.reached[ROW_SYSCALL as usize], used.unbalanced[0], used.slow[0]) = (7, 2, 1);
        for last in [family_stats::default(), used] {
            let mut called = last;
            called.reached[ROW_SYSCALL as usize] += 1;
            let mut unbalanced = last;
            unbalanced.unbalanced[UNBALANCED_KINDS as usize - 1] += 1;
            let mut slow = last;
            slow.slow[SLOW_LIMITED as usize] += 1;
            assert!(is_unchanged(&last, &last) && !super::is_unchanged(&family(&last, 0), |_| None));
            assert!(![called, unbalanced, slow].iter().any(|now| is_unchanged(&last, now)));
        }
        assert!(family(&family_stats::default(), 0).steps.is_empty());
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
