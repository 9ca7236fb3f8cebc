//! The whole stack's counters, summed over all CPUs.

use std::collections::BTreeMap;
use std::mem::offset_of;
use std::sync::Arc;

use super::op::extremes_of;
use crate::kernel::interface::types::{family_stats, origin_stats};
use crate::model::abi::{DIRECTIONS, FAMILIES, ORIGINS, ROW_SYSCALL, SLOW_LIMITED, SLOW_NO_ROOM};
use crate::model::histogram::{step_of, widest};
use crate::model::report::slow::LeftOut;
use crate::model::snapshot::{FamilyCounters, OriginCounters, StackCounters, combined};
use crate::model::steps::Steps;
use crate::probe::attach::{AttachedStack, FIRST_WORDS, LastStacks};
use crate::sys::counters::Counters;

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
        origins: Arc::new((0..(ORIGINS * DIRECTIONS) as usize).map(sum).collect()),
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

/// Reads the stacks of these groups, whose numbers ascend; see [`super::read`] for `epoch`. Only what changed since the last
/// time is read: most groups have calls of few families, and there may be hundreds of groups without any.
pub fn read_groups(
    (families, origins): (&Counters<family_stats>, &Counters<origin_stats>),
    groups: &[u32],
    epoch: u64,
    last: &mut LastStacks,
) -> BTreeMap<u32, StackCounters> {
    last.keep(groups);
    // All are looked at before the first of them is read, so that the processor waits for the memory of several at once.
    let (known, _) = last.first_words.as_chunks::<FIRST_WORDS>();
    let changed = elements(groups, FAMILIES).filter(|&element| !families.begins_with(element, &known[element]));
    let changed: Vec<usize> = changed.collect();
    for element in std::mem::replace(&mut last.called, changed.clone()) {
        // What has changed again gets other extremes.
        if changed.binary_search(&element).is_err()
            && let Some(family) = last.family(element)
        {
            FamilyCounters::forget_extremes(family);
        }
    }
    let mut room = family_stats::default();
    for element in changed {
        let Some(family) = last.family(element) else { continue };
        let Some(now) = read_family(families, element, epoch, (&mut room, family)) else {
            continue;
        };
        let words = first_words(&now);
        *family = Arc::new(now);
        last.first_words[element * FIRST_WORDS..][..FIRST_WORDS].copy_from_slice(&words);
    }
    for (group, stack) in &mut last.stacks {
        for (index, element) in elements(&[*group], ORIGINS * DIRECTIONS).enumerate() {
            if origins.begins_with(element, &stack.origins[index]) {
                continue;
            }
            if let Some(now) = origins.element(element) {
                Arc::make_mut(&mut stack.origins)[index] = origin(now);
            }
        }
    }
    last.stacks.clone()
}

/// The elements of these groups, in a table with so many of each.
fn elements(groups: &[u32], of_each: u32) -> impl Iterator<Item = usize> {
    groups
        .iter()
        .flat_map(move |group| (group * of_each) as usize..((group + 1) * of_each) as usize)
}

/// The first words of a family that was read: if they have not changed, it has counted nothing since.
fn first_words(last: &FamilyCounters) -> [u64; FIRST_WORDS] {
    let mut words = [0; FIRST_WORDS];
    let counters = last.slow.iter().chain(&last.unbalanced);
    let counters = counters.chain(&last.reached[..=ROW_SYSCALL as usize]);
    words.iter_mut().zip(counters).for_each(|(word, n)| *word = *n);
    words
}

/// A family of a group, of which `last` was read before; see [`super::read`] for `epoch`. `None`: there is no such
/// element. `room`: for one.
///
/// Calls since then are in the steps from the shortest of them to the longest. CPUs that end calls at the same moment may
/// overwrite each other's extremes; then those steps have fewer calls than there were, and all are read.
pub fn read_family(
    families: &Counters<family_stats>,
    element: usize,
    epoch: u64,
    (room, last): (&mut family_stats, &FamilyCounters),
) -> Option<FamilyCounters> {
    const STEPS: usize = offset_of!(family_stats, steps) / size_of::<u64>();
    if !families.words_into(element, 0..STEPS, room) {
        return None;
    }
    let extremes = extremes_of(&room.extremes, epoch).reduce(widest);
    let (first, end) = extremes.map_or((0, 0), |(min, max)| (step_of(min), step_of(max) + 1));
    let has_part = families.words_into(element, STEPS + first..STEPS + end, room);
    let part = room.steps.get(first..end).filter(|_| has_part);
    let steps = part.map(|part| last.steps.replaced(first, part));
    if let Some(steps) = steps.filter(|steps| steps.sum() == room.reached[ROW_SYSCALL as usize]) {
        return Some(with_steps(room, steps, epoch));
    }
    let is_read = families.element_into(element, room);
    is_read.then(|| family(room, epoch))
}

/// The counters of one CPU, or of one group; see [`super::read`] for `epoch`.
pub fn family(cpu: &family_stats, epoch: u64) -> FamilyCounters {
    with_steps(cpu, Steps::from(&cpu.steps[..]), epoch)
}

/// The same with steps that are known otherwise.
fn with_steps(cpu: &family_stats, steps: Steps, epoch: u64) -> FamilyCounters {
    FamilyCounters {
        bytes: cpu.bytes,
        errors: cpu.errors,
        unbalanced: cpu.unbalanced,
        rows: cpu.rows,
        reached: cpu.reached,
        class_calls: cpu.class_calls,
        class_bytes: cpu.class_bytes,
        steps,
        slow: cpu.slow,
        extremes: extremes_of(&cpu.extremes, epoch).reduce(widest),
    }
}

#[cfg(test)]
mod tests {
    use libbpf_rs::MapCore;
    use plain::as_bytes;

    use super::*;
    use crate::model::abi::UNBALANCED_KINDS;
    use crate::sys::counters::tests::mappable;

    /// Each counter that can change before the count of calls does.
    #[test]
    fn a_family_is_unchanged_until_something_is_counted() {
        let is_unchanged = |last: &family_stats, now: &family_stats| {
            // SAFETY: all of it is 8-byte numbers.
            let bytes = unsafe { as_bytes(now) };
            let last = first_words(&family(last, 0));
            let now = bytes.chunks(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap()));
            now.take(last.len()).eq(last)
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
            assert!(is_unchanged(&last, &last));
            assert!(![called, unbalanced, slow].iter().any(|now| is_unchanged(&last, now)));
        }
        assert!(family(&family_stats::default(), 0).steps.is_empty());
    }

    /// Run as root.
    #[test]
    fn steps_are_read_where_calls_were_counted() {
        const EPOCH: u64 = 8;
        let table = mappable::<family_stats>(1);
        let families = Counters::map(&table, 1).unwrap();
        let read = |now: &family_stats, last: &FamilyCounters| {
            // SAFETY: all of it is 8-byte numbers.
            let bytes = unsafe { as_bytes(now) };
            table
                .update(&0_u32.to_ne_bytes(), bytes, libbpf_rs::MapFlags::ANY)
                .unwrap();
            read_family(&families, 0, EPOCH, (&mut family_stats::default(), last)).unwrap()
        };
        let mut now = family_stats::default();
        (
            now.steps[10],
            now.steps[60],
            now.bytes,
            now.reached[ROW_SYSCALL as usize],
        ) = (2, 1, 7, 3);
        now.extremes.epoch[0] = EPOCH;
        (now.extremes.min_ns[0], now.extremes.max_ns[0]) = (11, 900);
        let first = read(&now, &FamilyCounters::default());
        assert_eq!(first, family(&now, EPOCH));
        now.steps[10] += 1;
        now.reached[ROW_SYSCALL as usize] += 1;
        (now.extremes.min_ns[0], now.extremes.max_ns[0]) = (10, 10);
        assert_eq!(read(&now, &first), family(&now, EPOCH));
        // The others are those of the last time.
        let mut other = first.clone();
        (other.steps, other.reached[ROW_SYSCALL as usize]) = (first.steps.replaced(60, &[0, 1]), 3);
        assert_eq!(read(&now, &other).steps, other.steps.replaced(10, &[3]));
        // A longer call, whose time another CPU has overwritten.
        now.steps[70] += 1;
        now.reached[ROW_SYSCALL as usize] += 1;
        assert_eq!(read(&now, &first), family(&now, EPOCH));
        // As extremes are while they are written.
        (now.extremes.min_ns[0], now.extremes.max_ns[0]) = (u64::MAX, 0);
        assert_eq!(read(&now, &first), family(&now, EPOCH));
        let elsewhere = (&mut now, &first);
        assert_eq!(read_family(&families, 1, EPOCH, elsewhere), None);
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
