//! The whole stack's counters, and what a report says of the difference of two readings.

use std::collections::{BTreeMap, BTreeSet};

use super::op::{extremes_of, widest};
use crate::histogram::{Histogram, STEPS};
use crate::kernel::interface::types::{family_stats, origin_stats};
use crate::kernel::interface::{
    DIRECTIONS, FAMILIES, ORIGINS, READ_CLASSES as CLASSES, ROWS, SLOW_KINDS, SLOW_LIMITED, SLOW_NO_ROOM, SLOW_TOLD,
    UNBALANCED_DEPTH, UNBALANCED_ENTRY, UNBALANCED_KINDS, UNBALANCED_RETURN, UNBALANCED_SLEEP,
};
use crate::layer::Layer;
use crate::layer::{Family, Origin, ReadClass, Row};
use crate::probe::attach::AttachedStack;
use crate::report::NotMeasured;
use crate::report::group::in_steps;
use crate::report::slow::{LeftOut, SlowReport};
use crate::report::stack::{ClassReport, FamilyReport, OriginReport, RowReport, StackReport, Unbalanced};

/// All of them at one moment, every CPU together.
#[derive(Debug, Clone)]
pub struct StackReading {
    families: Vec<FamilyReading>,
    origins: Origins,
}

impl StackReading {
    /// As [`OpReading::hold_back`](super::op::OpReading::hold_back).
    pub fn hold_back(&mut self, earlier: &Self) {
        hold_back(&mut self.families, &earlier.families);
    }
}

/// Of families in the same order.
pub fn hold_back(families: &mut [FamilyReading], earlier: &[FamilyReading]) {
    for (family, earlier) in families.iter_mut().zip(earlier) {
        family.hold_back(earlier);
    }
}

/// Requests, bytes, queue and device time, by origin and direction.
pub type Origins = Vec<[u64; 4]>;

#[derive(Debug, Clone)]
pub struct FamilyReading {
    bytes: u64,
    errors: u64,
    unbalanced: [u64; UNBALANCED_KINDS as usize],
    rows: [u64; ROWS as usize],
    reached: [u64; ROWS as usize],
    class_calls: [u64; CLASSES as usize],
    class_bytes: [u64; CLASSES as usize],
    steps: [u64; STEPS],
    slow: [u64; SLOW_KINDS as usize],
    /// Of the generation that the reading ends.
    extremes: Option<(u64, u64)>,
}

/// Reads all of it; see [`super::read`] for `epoch`.
pub fn read(stack: &AttachedStack, epoch: u64) -> StackReading {
    let family = |place| {
        let cpus = stack.families.of_op_whole(place, is_whole);
        let mut cpus = cpus.map(|cpu| FamilyReading::of(&cpu, epoch));
        let first = cpus
            .next()
            .unwrap_or_else(|| FamilyReading::of(&family_stats::default(), epoch));
        cpus.fold(first, |sum, cpu| sum.combined(&cpu, u64::wrapping_add))
    };
    let sum = |place| {
        let cpus = stack.origins.of_op(place).map(origin);
        cpus.fold([0; 4], |sum, cpu| combined(&sum, &cpu, u64::wrapping_add))
    };
    StackReading {
        families: (0..FAMILIES as usize).map(family).collect(),
        origins: (0..(ORIGINS * DIRECTIONS) as usize).map(sum).collect(),
    }
}

/// Whether all of each call is in it: `count_in_family()` writes the step of a call's time first, and that it was one last.
fn is_whole(cpu: &family_stats) -> bool {
    let calls = cpu.steps.iter().copied().fold(0, u64::wrapping_add);
    calls == cpu.reached[Row::Layer(Layer::Syscall).place()]
}

/// One CPU's.
pub fn origin(cpu: origin_stats) -> [u64; 4] {
    [cpu.requests, cpu.bytes, cpu.queue_ns, cpu.device_ns]
}

/// Slow calls that were left out so far. Less is read than for a report.
pub fn left_out(stack: &AttachedStack) -> LeftOut {
    let families = (0..FAMILIES as usize).flat_map(|place| stack.families.of_op(place));
    families.fold(LeftOut::default(), |sum, cpu| LeftOut {
        limited: sum.limited.wrapping_add(cpu.slow[SLOW_LIMITED as usize]),
        no_room: sum.no_room.wrapping_add(cpu.slow[SLOW_NO_ROOM as usize]),
    })
}

fn combined<const N: usize>(a: &[u64; N], b: &[u64; N], how: fn(u64, u64) -> u64) -> [u64; N] {
    std::array::from_fn(|i| how(a[i], b[i]))
}

impl FamilyReading {
    /// One CPU's, or one group's; see [`super::read`] for `epoch`.
    pub fn of(cpu: &family_stats, epoch: u64) -> Self {
        Self {
            bytes: cpu.bytes,
            errors: cpu.errors,
            unbalanced: cpu.unbalanced,
            rows: cpu.rows,
            reached: cpu.reached,
            class_calls: cpu.class_calls,
            class_bytes: cpu.class_bytes,
            steps: cpu.steps,
            slow: cpu.slow,
            extremes: extremes_of(&cpu.extremes, epoch).reduce(widest),
        }
    }

    /// As [`OpReading::hold_back`](super::op::OpReading::hold_back).
    fn hold_back(&mut self, earlier: &Self) {
        if self.steps == earlier.steps {
            *self = Self {
                unbalanced: self.unbalanced,
                slow: self.slow,
                extremes: self.extremes,
                ..earlier.clone()
            };
        }
    }

    /// Number by number. Counters may wrap; their differences stay right.
    fn combined(&self, other: &Self, how: fn(u64, u64) -> u64) -> Self {
        Self {
            bytes: how(self.bytes, other.bytes),
            errors: how(self.errors, other.errors),
            unbalanced: combined(&self.unbalanced, &other.unbalanced, how),
            rows: combined(&self.rows, &other.rows, how),
            reached: combined(&self.reached, &other.reached, how),
            class_calls: combined(&self.class_calls, &other.class_calls, how),
            class_bytes: combined(&self.class_bytes, &other.class_bytes, how),
            steps: combined(&self.steps, &other.steps, how),
            slow: combined(&self.slow, &other.slow, how),
            extremes: match (self.extremes, other.extremes) {
                (Some(a), Some(b)) => Some(widest(a, b)),
                (a, b) => a.or(b),
            },
        }
    }
}

/// What of the stack is measured.
pub struct Measured {
    /// Layers, in the order of the stack, and whether each is measured.
    pub layers: Vec<(Layer, bool)>,
    /// Rows that have functions of their own, as far as this kernel has them.
    pub planned: BTreeSet<Row>,
    /// Those of them that are seen.
    pub seen: BTreeSet<Row>,
    /// From how many nanoseconds on calls are told one by one, if they are.
    pub slower_ns: Option<u64>,
    /// Layers that were detached, and when and why.
    pub detached: BTreeMap<Layer, String>,
    /// Those of them of which nothing is left in the numbers.
    pub gone: BTreeSet<Layer>,
}

impl Measured {
    /// Those that are measured, in the order of the stack, and whether each is a layer.
    pub fn rows(&self) -> Vec<(Row, bool)> {
        let measured = rows(self).into_iter().filter(|row| self.has(*row));
        measured.map(|row| (row, !Row::WAITS.contains(&row))).collect()
    }

    /// Whether a layer below the system calls is.
    pub fn is_split(&self) -> bool {
        let mut layers = self.rows().into_iter().filter(|(_, is_layer)| *is_layer);
        layers.any(|(row, _)| row != Row::Layer(Layer::Syscall))
    }

    fn has(&self, row: Row) -> bool {
        if row.layer().is_some_and(|layer| self.gone.contains(&layer)) {
            return false;
        }
        match row {
            Row::Layer(layer) => self.layers.contains(&(layer, true)),
            Row::Queue | Row::Device => self.layers.contains(&(Layer::Blk, true)),
            Row::Journal | Row::Lock | Row::Overlay => self.seen.contains(&row),
            Row::Others | Row::Other | Row::RunQueue => true,
        }
    }
}

/// The rows of every family, in the order of the stack. A file system that the kernel does not have is none of them.
fn rows(measured: &Measured) -> Vec<Row> {
    let layers = measured.layers.iter().map(|(layer, _)| *layer);
    let layers = layers.filter(|layer| *layer != Layer::Blk).map(Row::Layer);
    let overlay = Some(Row::Overlay).filter(|row| measured.planned.contains(row));
    layers.chain(overlay).chain(Row::WAITS).collect()
}

/// The difference of two readings.
pub fn report(measured: &Measured, before: &StackReading, after: &StackReading) -> StackReport {
    let rows = rows(measured);
    let has_requests = measured.has(Row::Device);
    let pairs = Family::ALL.into_iter().zip(after.families.iter().zip(&before.families));
    let differences: Vec<(Family, FamilyReading)> = pairs
        .map(|(family, (after, before))| {
            let mut difference = after.combined(before, u64::wrapping_sub);
            difference.extremes = after.extremes;
            (family, difference)
        })
        .collect();
    let unbalanced = |kind: u32| {
        let numbers = differences.iter().map(|(_, family)| family.unbalanced[kind as usize]);
        numbers.fold(0, u64::saturating_add)
    };
    let slow = |kind: u32| {
        let numbers = differences.iter().map(|(_, family)| family.slow[kind as usize]);
        numbers.fold(0, u64::saturating_add)
    };
    StackReport {
        slow: measured.slower_ns.map(|threshold_ns| SlowReport {
            threshold_ns,
            told: slow(SLOW_TOLD),
            left_out: LeftOut {
                limited: slow(SLOW_LIMITED),
                no_room: slow(SLOW_NO_ROOM),
            },
        }),
        not_waited: has_requests.then(|| not_waited(&before.origins, &after.origins)),
        unbalanced: Unbalanced {
            entries: unbalanced(UNBALANCED_ENTRY),
            returns: unbalanced(UNBALANCED_RETURN),
            too_deep: unbalanced(UNBALANCED_DEPTH),
            sleeps: unbalanced(UNBALANCED_SLEEP),
        },
        not_measured: rows.iter().filter_map(|row| not_measured(*row, measured)).collect(),
        families: differences
            .into_iter()
            .map(|(family, difference)| family_report(family, difference, &rows, measured))
            .collect(),
    }
}

/// Why a row has none of what it should have, or none since its layer was detached; `None` when it has all of it.
fn not_measured(row: Row, measured: &Measured) -> Option<NotMeasured> {
    let is_of_requests = matches!(row, Row::Queue | Row::Device);
    let known = measured.has(row);
    let detached = row.layer().and_then(|layer| measured.detached.get(&layer));
    let why = match detached {
        Some(since) => since,
        None if known => return None,
        None if is_of_requests => "the block layer is not measured",
        None => "no functions to hook here",
    };
    let instead = match row {
        Row::Layer(_) | Row::Overlay => "what they do is in the layer above",
        Row::Queue | Row::Device => "waits for requests are in the row of others' I/O",
        _ => "these waits are in other rows",
    };
    Some(NotMeasured {
        what: row.name().to_owned(),
        reason: format!("{why}: {instead}"),
    })
}

fn family_report(family: Family, difference: FamilyReading, rows: &[Row], measured: &Measured) -> FamilyReport {
    let histogram = Histogram::from_steps(&difference.steps);
    let row = |row: &Row| {
        let known = measured.has(*row);
        let is_layer = !Row::WAITS.contains(row);
        RowReport {
            row: *row,
            ns: known.then_some(difference.rows[row.place()]),
            calls: (known && is_layer).then_some(difference.reached[row.place()]),
        }
    };
    let classes = ReadClass::ALL
        .into_iter()
        .zip(difference.class_calls.iter().zip(difference.class_bytes));
    // Without requests nobody waits for own ones.
    let all_requests = measured.has(Row::Device) && !measured.detached.contains_key(&Layer::Blk);
    let classes = classes.filter(|_| family == Family::Read && all_requests);
    FamilyReport {
        family,
        // The rows of a call are its time. A sum of its own could be read while a call is in it, and not yet in its rows.
        total_ns: difference.rows.iter().fold(0, |sum, ns| sum.saturating_add(*ns)),
        bytes: difference.bytes,
        errors: difference.errors,
        extremes: difference.extremes.filter(|_| histogram.count() > 0),
        rows: rows.iter().map(row).collect(),
        classes: classes
            .map(|(class, (&calls, bytes))| ClassReport { class, calls, bytes })
            .collect(),
        histogram,
    }
}

/// The difference of two readings of one group, of which the first one may not have been there; families without a call left
/// out.
pub fn of_group(
    measured: &Measured,
    before: Option<(&[FamilyReading], &Origins)>,
    after: (&[FamilyReading], &Origins),
) -> (Vec<FamilyReport>, Vec<OriginReport>) {
    let rows = rows(measured);
    let nothing = FamilyReading::of(&family_stats::default(), 0);
    let pairs = Family::ALL.into_iter().zip(after.0).enumerate();
    let families = pairs.map(|(place, (family, after))| {
        let before = before.and_then(|(families, _)| families.get(place)).unwrap_or(&nothing);
        let mut difference = after.combined(before, u64::wrapping_sub);
        difference.extremes = after.extremes;
        let report = family_report(family, difference, &rows, measured);
        FamilyReport {
            extremes: in_steps(report.extremes, &report.histogram, report.total_ns),
            ..report
        }
    });
    let families = families.filter(|family| family.count() > 0).collect();
    let no_origins = vec![[0; 4]; after.1.len()];
    let origins = not_waited(before.map_or(&no_origins, |(_, origins)| origins), after.1);
    (families, if measured.has(Row::Device) { origins } else { Vec::new() })
}

fn not_waited(before: &Origins, after: &Origins) -> Vec<OriginReport> {
    let pairs = after.iter().zip(before);
    let reports = pairs.enumerate().map(|(place, (after, before))| {
        let [requests, bytes, queue_ns, device_ns] = combined(after, before, u64::wrapping_sub);
        let place = place as u32;
        OriginReport {
            origin: Origin::ALL[(place / DIRECTIONS) as usize],
            is_write: place % DIRECTIONS == 1,
            requests,
            bytes,
            queue_ns,
            device_ns,
        }
    });
    reports.filter(|origin| origin.requests > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_is_only_partly_counted_is_told() {
        let mut cpu = family_stats::default();
        assert!(is_whole(&cpu));
        cpu.steps[7] = 2;
        cpu.steps[70] = 1;
        cpu.reached[Row::Layer(Layer::Syscall).place()] = 2;
        assert!(!is_whole(&cpu));
        cpu.reached[Row::Layer(Layer::Syscall).place()] = 3;
        assert!(is_whole(&cpu));
    }

    #[test]
    fn rows_whose_layer_was_detached_say_so() {
        let layers = [Layer::Syscall, Layer::Vfs, Layer::Ext4, Layer::Blk];
        let mut measured = Measured {
            layers: layers.map(|layer| (layer, true)).to_vec(),
            planned: BTreeSet::new(),
            seen: BTreeSet::from([Row::Journal, Row::Lock]),
            slower_ns: None,
            detached: BTreeMap::from([(Layer::Ext4, "detached 3.0 s after the start".to_owned())]),
            gone: BTreeSet::new(),
        };
        let reason = |row, measured: &Measured| not_measured(row, measured).map(|missing| missing.reason);
        let ext4 = Row::Layer(Layer::Ext4);
        let told = "detached 3.0 s after the start: what they do is in the layer above";
        assert_eq!(reason(ext4, &measured).as_deref(), Some(told));
        assert!(measured.has(ext4));
        measured.gone.insert(Layer::Ext4);
        assert_eq!(reason(ext4, &measured).as_deref(), Some(told));
        assert!(!measured.has(ext4));
        let others = rows(&measured).into_iter().filter(|row| *row != ext4);
        assert!(
            others
                .clone()
                .all(|row| measured.has(row) && reason(row, &measured).is_none())
        );

        measured.gone.insert(Layer::Blk);
        measured.detached.insert(Layer::Blk, "detached".to_owned());
        let gone: Vec<Row> = rows(&measured).into_iter().filter(|row| !measured.has(*row)).collect();
        assert_eq!(gone, [ext4, Row::Queue, Row::Device]);
        let told = "detached: waits for requests are in the row of others' I/O";
        assert_eq!(reason(Row::Device, &measured).as_deref(), Some(told));
    }
}
