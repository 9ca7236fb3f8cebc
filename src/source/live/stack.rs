//! The whole stack's counters, summed over all CPUs.

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

/// The counters of one CPU, or of one group; see [`super::read`] for `epoch`.
pub fn family(cpu: &family_stats, epoch: u64) -> FamilyCounters {
    FamilyCounters {
        bytes: cpu.bytes,
        errors: cpu.errors,
        unbalanced: cpu.unbalanced,
        rows: cpu.rows,
        reached: cpu.reached,
        class_calls: cpu.class_calls,
        class_bytes: cpu.class_bytes,
        steps: cpu.steps.to_vec(),
        slow: cpu.slow,
        extremes: extremes_of(&cpu.extremes, epoch).reduce(widest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
