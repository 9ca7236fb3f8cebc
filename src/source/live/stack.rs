//! The whole stack's counters, summed over all CPUs.

use std::array;
use std::hint::black_box;
use std::mem::offset_of;
use std::sync::Arc;

use super::op::extremes_of;
use crate::kernel::interface::types::{family_stats, origin_stats};
use crate::model::abi::{DIRECTIONS, FAMILIES, ORIGINS, ROW_SYSCALL, SLOW_LIMITED, SLOW_NO_ROOM};
use crate::model::histogram::{step_of, widest};
use crate::model::report::slow::LeftOut;
use crate::model::snapshot::increases::{FamilyIncrease, OriginIncrease};
use crate::model::snapshot::{FamilyCounters, OriginCounters, StackCounters, StackIncreases, combined};
use crate::model::steps::Steps;
use crate::probe::attach::AttachedStack;
use crate::sys::counters::{Counters, LINE};

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

/// The first words of a family: those up to the count of calls. Each call changes one of them.
const FIRST_WORDS: usize = offset_of!(family_stats, reached) / size_of::<u64>() + ROW_SYSCALL as usize + 1;

/// The word of a family at which its steps begin.
const STEPS: usize = offset_of!(family_stats, steps) / size_of::<u64>();

/// So many families have room in the cache that is nearest to a processor.
const AT_ONCE: usize = 16;

/// What the whole stack has counted for groups until the last reading. Reports and metrics each have one of their own.
#[derive(Debug, Clone, Default)]
pub struct LastRead {
    /// Ascending.
    groups: Vec<u32>,
    /// The first words of each element of the table of families, one after the other: all are compared each time.
    first_words: Vec<u64>,
    /// Each element of the table of families; `None`: it has counted nothing.
    families: Vec<Option<Box<FamilyCounters>>>,
    /// Each element of the table of origins.
    origins: Vec<OriginCounters>,
}

impl LastRead {
    /// Reads what these groups, whose numbers ascend, have counted since the last time; see [`super::read`] for `epoch`. Only
    /// what has changed is read: most groups have calls of few families, and there may be hundreds of groups without any.
    pub fn read(
        &mut self,
        (families, origins): (&Counters<family_stats>, &Counters<origin_stats>),
        groups: &[u32],
        epoch: u64,
    ) -> StackIncreases {
        let room = |of_each: u32| groups.last().map_or(0, |last| ((last + 1) * of_each) as usize);
        let all = self.families.len().max(room(FAMILIES));
        self.families.resize(all, None);
        self.first_words.resize(all * FIRST_WORDS, 0);
        let all = self.origins.len().max(room(ORIGINS * DIRECTIONS));
        self.origins.resize(all, [0; 4]);
        let new = groups.iter().filter(|group| self.groups.binary_search(group).is_err());
        let mut read = StackIncreases {
            new: new.copied().collect(),
            ..StackIncreases::default()
        };
        self.groups = groups.to_vec();
        // All are looked at before the first of them is read, and without a branch, so that the processor waits for the memory
        // of several at once: each is on another page.
        let (known, _) = self.first_words.as_chunks::<FIRST_WORDS>();
        let all = elements(groups, FAMILIES);
        let has_changed: Vec<bool> = all
            .map(|element| !families.begins_with(element, &known[element]))
            .collect();
        let all = elements(groups, FAMILIES).zip(has_changed);
        let changed: Vec<usize> = all
            .filter_map(|(element, changed)| changed.then_some(element))
            .collect();
        read.families.reserve_exact(changed.len());
        let mut room = family_stats::default();
        for some in changed.chunks(AT_ONCE) {
            self.fetch(families, some);
            for &element in some {
                let last = self.families[element].get_or_insert_default();
                let Some(counted) = read_family(families, element, epoch, (&mut room, last)) else {
                    continue;
                };
                self.first_words[element * FIRST_WORDS..][..FIRST_WORDS].copy_from_slice(&first_words(last));
                let (group, index) = (element as u32 / FAMILIES, element % FAMILIES as usize);
                read.families.push(FamilyIncrease { group, index, counted });
            }
        }
        for element in elements(groups, ORIGINS * DIRECTIONS) {
            let last = &mut self.origins[element];
            if origins.begins_with(element, last) {
                continue;
            }
            let Some(now) = origins.element(element).map(origin) else {
                continue;
            };
            let counted = combined(&now, last, u64::wrapping_sub);
            *last = now;
            let of_each = ORIGINS * DIRECTIONS;
            let (group, index) = (element as u32 / of_each, element % of_each as usize);
            read.origins.push(OriginIncrease { group, index, counted });
        }
        read
    }

    /// Has the processor fetch what is read of these families, so that it waits for the memory of several at once.
    fn fetch(&self, families: &Counters<family_stats>, some: &[usize]) {
        let known = |element: &usize| Some((*element, self.families[*element].as_deref()?));
        for &element in some {
            families.fetch(element, 0..STEPS);
        }
        for (_, last) in some.iter().filter_map(known) {
            fetch(last);
        }
        // Times are mostly as before.
        for (element, last) in some.iter().filter_map(known) {
            let steps = last.steps.range();
            families.fetch(element, STEPS + steps.start..STEPS + steps.end);
        }
    }
}

/// Has the processor fetch the counters of a family from memory.
fn fetch(last: &FamilyCounters) {
    let numbers = [&last.rows, &last.reached].into_iter().flatten();
    numbers.step_by(LINE / size_of::<u64>()).for_each(|n| _ = black_box(*n));
    let steps = last.steps.iter().step_by(LINE / size_of::<(u16, u64)>());
    steps.for_each(|step| _ = black_box(step));
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

/// What a family of a group has counted since `last`, which becomes what it has counted now; see [`super::read`] for
/// `epoch`. `None`: there is no such element. `room`: for one.
///
/// Calls since then are in the steps from the shortest of them to the longest. CPUs that end calls at the same moment may
/// overwrite each other's extremes; then those steps have fewer calls than there were, and all are read.
///
/// What a call adds before it is counted as one is read together with the next call: no report shows it without one.
fn read_family(
    families: &Counters<family_stats>,
    element: usize,
    epoch: u64,
    (room, last): (&mut family_stats, &mut FamilyCounters),
) -> Option<FamilyCounters> {
    if !families.words_into(element, 0..STEPS, room) {
        return None;
    }
    let calls = room.reached[ROW_SYSCALL as usize].wrapping_sub(last.calls());
    if calls == 0 {
        return Some(FamilyCounters {
            unbalanced: grown(&mut last.unbalanced, &room.unbalanced),
            slow: grown(&mut last.slow, &room.slow),
            ..FamilyCounters::default()
        });
    }
    let extremes = extremes_of(&room.extremes, epoch).reduce(widest);
    let (first, end) = extremes.map_or((0, 0), |(min, max)| (step_of(min), step_of(max) + 1));
    let has_part = families.words_into(element, STEPS + first..STEPS + end, room);
    let part = room.steps.get(first..end).filter(|_| has_part);
    let steps = part.map(|part| last.steps.increase(first, part));
    let steps = match steps.filter(|steps| steps.sum() == calls) {
        Some(steps) => steps,
        None if families.element_into(element, room) => last.steps.increase(0, &room.steps),
        None => return None,
    };
    last.steps.add_all(&steps);
    let [bytes] = grown(array::from_mut(&mut last.bytes), &[room.bytes]);
    let [errors] = grown(array::from_mut(&mut last.errors), &[room.errors]);
    Some(FamilyCounters {
        bytes,
        errors,
        unbalanced: grown(&mut last.unbalanced, &room.unbalanced),
        rows: grown(&mut last.rows, &room.rows),
        reached: grown(&mut last.reached, &room.reached),
        class_calls: grown(&mut last.class_calls, &room.class_calls),
        class_bytes: grown(&mut last.class_bytes, &room.class_bytes),
        steps,
        slow: grown(&mut last.slow, &room.slow),
        // Read again, if all was.
        extremes: extremes_of(&room.extremes, epoch).reduce(widest),
    })
}

/// What numbers have more than at the last time, which becomes this one.
fn grown<const N: usize>(last: &mut [u64; N], now: &[u64; N]) -> [u64; N] {
    let more = combined(now, last, u64::wrapping_sub);
    *last = *now;
    more
}

/// The counters of one CPU, or of one group; see [`super::read`] for `epoch`.
fn family(cpu: &family_stats, epoch: u64) -> FamilyCounters {
    FamilyCounters {
        bytes: cpu.bytes,
        errors: cpu.errors,
        unbalanced: cpu.unbalanced,
        rows: cpu.rows,
        reached: cpu.reached,
        class_calls: cpu.class_calls,
        class_bytes: cpu.class_bytes,
        steps: Steps::from(&cpu.steps[..]),
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

    const EPOCH: u64 = 8;

    /// A table of a group's families, of which the first one has these counters, and what it had counted at the last time.
    struct Table {
        map: libbpf_rs::MapHandle,
        families: Counters<family_stats>,
        last: FamilyCounters,
    }

    impl Table {
        fn new() -> Self {
            let map = mappable::<family_stats>(FAMILIES);
            Self {
                families: Counters::map(&map, FAMILIES as usize).unwrap(),
                map,
                last: FamilyCounters::default(),
            }
        }

        fn set(&self, now: &family_stats) {
            // SAFETY: all of it is 8-byte numbers.
            let bytes = unsafe { as_bytes(now) };
            let first = 0_u32.to_ne_bytes();
            self.map.update(&first, bytes, libbpf_rs::MapFlags::ANY).unwrap();
        }

        fn read(&mut self, now: &family_stats) -> FamilyCounters {
            self.set(now);
            let last = (&mut family_stats::default(), &mut self.last);
            let counted = read_family(&self.families, 0, EPOCH, last).unwrap();
            assert_eq!(self.last.extremes, None);
            counted
        }
    }

    fn call(now: &mut family_stats, step: usize, (min, max): (u64, u64)) {
        now.steps[step] += 1;
        now.reached[ROW_SYSCALL as usize] += 1;
        now.extremes.epoch[0] = EPOCH;
        (now.extremes.min_ns[0], now.extremes.max_ns[0]) = (min, max);
    }

    /// Run as root.
    #[test]
    fn steps_are_read_where_calls_were_counted() {
        let mut table = Table::new();
        let mut now = family_stats::default();
        for step in [10, 10, 60] {
            call(&mut now, step, (11, 900));
        }
        now.bytes = 7;
        assert_eq!(table.read(&now), family(&now, EPOCH));
        let one = |step: usize| Steps::default().increase(step, &[1]);
        call(&mut now, 10, (10, 10));
        let counted = table.read(&now);
        assert_eq!(
            (counted.steps, counted.bytes, counted.extremes),
            (one(10), 0, Some((10, 10)))
        );
        // The others are those of the last time: they are not read.
        let mut other = now;
        other.steps[60] = 5;
        call(&mut other, 10, (10, 10));
        assert_eq!(table.read(&other).steps, one(10));
        call(&mut now, 10, (10, 10));
        // A longer call, whose time another CPU has overwritten.
        call(&mut now, 70, (10, 10));
        assert_eq!(table.read(&now).steps, one(70));
        // As extremes are while they are written.
        call(&mut now, 80, (u64::MAX, 0));
        assert_eq!(table.read(&now).steps, one(80));
        let all = FamilyCounters {
            extremes: None,
            ..family(&now, EPOCH)
        };
        assert_eq!(table.last, all);
        let elsewhere = (&mut now, &mut table.last);
        assert_eq!(read_family(&table.families, FAMILIES as usize, EPOCH, elsewhere), None);
    }

    /// Run as root.
    #[test]
    fn what_a_call_adds_before_it_is_counted_is_held_back() {
        let mut table = Table::new();
        let mut now = family_stats::default();
        call(&mut now, 10, (10, 10));
        now.rows[3] = 10;
        table.read(&now);
        (now.rows[3], now.bytes, now.steps[12], now.unbalanced[0]) = (19, 4096, 1, 2);
        let counted = table.read(&now);
        let only_unbalanced = FamilyCounters {
            unbalanced: counted.unbalanced,
            ..FamilyCounters::default()
        };
        assert_eq!((counted.unbalanced[0], &counted), (2, &only_unbalanced));
        now.reached[ROW_SYSCALL as usize] += 1;
        (now.extremes.min_ns[0], now.extremes.max_ns[0]) = (12, 12);
        let counted = table.read(&now);
        assert_eq!((counted.rows[3], counted.bytes, counted.unbalanced[0]), (9, 4096, 0));
        assert_eq!((counted.calls(), counted.steps.sum()), (1, 1));
    }

    /// Run as root.
    #[test]
    fn each_reader_has_all_that_groups_have_counted() {
        let table = Table::new();
        let none = mappable::<origin_stats>(ORIGINS * DIRECTIONS);
        let origins = Counters::map(&none, (ORIGINS * DIRECTIONS) as usize).unwrap();
        let read = |last: &mut LastRead| last.read((&table.families, &origins), &[0], EPOCH);
        let calls = |read: &StackIncreases| read.families.iter().map(|of| of.counted.calls()).collect::<Vec<_>>();
        let (mut each, mut rare) = (LastRead::default(), LastRead::default());
        let mut now = family_stats::default();
        let mut sum = StackIncreases::default();
        for second in 0..3 {
            call(&mut now, 10, (10, 10));
            table.set(&now);
            let of_second = read(&mut each);
            assert_eq!(of_second.new.len(), usize::from(second == 0));
            assert_eq!(calls(&of_second), [1]);
            assert_eq!(read(&mut each), StackIncreases::default());
            sum.add(of_second);
        }
        let all = read(&mut rare);
        assert_eq!(calls(&all), [3]);
        assert_eq!(all, sum);
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
