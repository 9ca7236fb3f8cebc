//! An op's counters, summed over all CPUs.

use std::mem::offset_of;
use std::ops::Range;

use crate::kernel::interface::types::{binned, extremes, op_stats};
use crate::model::abi::{BIN_WIDTH, EPOCH_STEP, UNIT_SLOTS};
use crate::model::histogram::{step_of, widest};
use crate::model::snapshot::OpCounters;

/// Words of an op's counters, one of which is not 0 if it has counted anything: all but the steps, and the step of calls of
/// 0 ns, which add no time.
pub(super) const SIGNS: [Range<usize>; 2] = {
    const WORD: usize = size_of::<u64>();
    const STEPS: usize = offset_of!(op_stats, steps) / WORD;
    [0..offset_of!(op_stats, errnos) / WORD, STEPS..STEPS + 1]
};

/// Adds a CPU's counters. `epoch` is the generation of extremes that the reading ends.
pub fn add(op: &mut OpCounters, cpu: &op_stats, epoch: u64) {
    fn add(sum: &mut u128, n: u64) {
        *sum += u128::from(n);
    }
    add(&mut op.total_ns, cpu.total_ns);
    add(&mut op.bytes, cpu.bytes);
    add(&mut op.errors, cpu.errors);
    add(&mut op.queued, cpu.queued);
    add(&mut op.queue_ns, cpu.queue_ns);
    add(&mut op.unmatched_ends, cpu.unmatched_ends);
    let counters = op.lost.iter_mut().zip(cpu.lost);
    for (sum, n) in counters.chain(op.set_aside.iter_mut().zip(cpu.set_aside)) {
        add(sum, n);
    }
    for (sums, slots) in [
        (&mut op.steps, &cpu.steps[..]),
        (&mut op.unit_slots, &cpu.unit_slots[..]),
    ] {
        let calls = slots.iter().map(|n| u128::from(*n));
        calls.enumerate().for_each(|(index, calls)| add_at(sums, index, calls));
    }
    for slot in cpu.errnos.iter().filter(|slot| slot.error != 0) {
        add(op.errnos.entry(slot.error as i32).or_default(), slot.calls);
    }
    op.extremes = extremes_of(&cpu.extremes, epoch).chain(op.extremes).reduce(widest);
}

/// Adds a CPU's calls that are counted in bins, and nowhere else. `unit_ns`: the unit in which powers of two are
/// counted, or 0. A bin never crosses a power of two of the unit, nor a step: two microseconds are 125 bins.
pub fn add_binned(op: &mut OpCounters, cpu: &binned, unit_ns: u32) {
    op.bytes += u128::from(cpu.bytes);
    for (bin, first_ns) in cpu.bins.iter().zip((0..).step_by(BIN_WIDTH as usize)) {
        let calls = u128::from(bin.calls);
        op.total_ns += u128::from(bin.total_ns);
        add_at(&mut op.steps, step_of(first_ns), calls);
        if let Some(units) = first_ns.checked_div(u64::from(unit_ns)) {
            let slot = units.checked_ilog2().unwrap_or(0).min(UNIT_SLOTS - 1);
            add_at(&mut op.unit_slots, slot as usize, calls);
        }
    }
}

/// Makes the list as long as it must be: most ops are never called, and no op takes all times.
fn add_at(sums: &mut Vec<u128>, index: usize, calls: u128) {
    if calls == 0 {
        return;
    }
    if sums.len() <= index {
        sums.resize(index + 1, 0);
    }
    sums[index] += calls;
}

/// The shortest and the longest time of an epoch, and of the next one if it has begun.
pub(super) fn extremes_of(of: &extremes, epoch: u64) -> impl Iterator<Item = (u64, u64)> {
    let epochs = [epoch, epoch.saturating_add(EPOCH_STEP.into())];
    let known = of.epoch.into_iter().zip(of.min_ns.into_iter().zip(of.max_ns));
    known.filter_map(move |(epoch, times)| epochs.contains(&epoch).then_some(times))
}

#[cfg(test)]
mod tests;
