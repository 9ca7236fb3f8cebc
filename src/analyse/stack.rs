//! The whole stack's part of a report, as the difference of two snapshots.

use std::collections::{BTreeMap, BTreeSet};

use crate::analyse::ranking::in_steps;
use crate::model::abi::{
    DIRECTIONS, ROWS, SLOW_LIMITED, SLOW_NO_ROOM, SLOW_REPORTED, UNBALANCED_DEPTH, UNBALANCED_ENTRY, UNBALANCED_RETURN,
    UNBALANCED_SLEEP,
};
use crate::model::histogram::Histogram;
use crate::model::ids::{Family, Layer, Origin, ReadClass, Row};
use crate::model::report::NotMeasured;
use crate::model::report::slow::{LeftOut, SlowReport};
use crate::model::report::stack::{ClassReport, FamilyReport, OriginReport, RowReport, StackReport, Unbalanced};
use crate::model::run_info::StackInfo;
use crate::model::sample::Sample;
use crate::model::snapshot::{FamilyCounters, OriginCounters, StackCounters, combined};

/// What of the stack is measured in a span.
pub struct Measured<'a> {
    pub info: &'a StackInfo,
    /// Only some calls are measured. `None`: all are.
    pub sample: Option<Sample>,
    /// Calls that take this many nanoseconds are reported one by one, if requested.
    pub slower_ns: Option<u64>,
    /// Detached layers, with the time and the reason.
    pub detached: BTreeMap<Layer, String>,
    /// Detached layers that have no numbers at all in the span.
    pub gone: BTreeSet<Layer>,
    /// Layers of which nothing could be probed, with the reason.
    pub refused: BTreeMap<Layer, &'a str>,
}

impl Measured<'_> {
    /// The measured rows, in the order of the stack.
    pub fn rows(&self) -> impl Iterator<Item = Row> {
        rows(self).into_iter().filter(|row| self.has(*row))
    }

    /// Whether a layer below the system calls is measured.
    pub fn is_split(&self) -> bool {
        let mut layers = self.rows().filter(|row| !row.is_wait());
        layers.any(|row| row != Row::Layer(Layer::Syscall))
    }

    /// Where a row's counters are; `None`: it is not measured.
    #[must_use]
    pub fn slot(&self, row: Row) -> Option<usize> {
        let layers = self.info.layers.iter().map(|(layer, _)| *layer);
        let slot = row.slot(layers).filter(|_| self.has(row))?;
        // A damaged file may name more file systems than there are rows.
        (slot < ROWS as usize).then_some(slot)
    }

    fn has(&self, row: Row) -> bool {
        if row.layer().is_some_and(|layer| self.gone.contains(&layer)) {
            return false;
        }
        match row {
            Row::Layer(layer) => self.info.layers.contains(&(layer, true)),
            Row::Queue | Row::Device => self.info.layers.contains(&(Layer::Blk, true)),
            Row::Journal | Row::Lock => self.info.seen.contains(&row),
            Row::Others | Row::Other | Row::RunQueue => true,
        }
    }
}

/// A row of a family, and where its counters are; `None`: it is not measured.
pub type Slot = (Row, Option<usize>);

/// The rows of every family, found once for all groups of a report.
pub fn slots(measured: &Measured<'_>) -> Vec<Slot> {
    let rows = rows(measured).into_iter();
    rows.map(|row| (row, measured.slot(row))).collect()
}

/// The rows of every family, in the order of the stack, without file systems that the kernel does not have.
fn rows(measured: &Measured<'_>) -> Vec<Row> {
    let layers = measured.info.layers.iter().map(|(layer, _)| *layer);
    let layers = layers.filter(|layer| *layer != Layer::Blk).map(Row::Layer);
    layers.chain(Row::WAITS).collect()
}

/// The difference of two readings.
pub fn report(measured: &Measured<'_>, before: &StackCounters, after: &StackCounters) -> StackReport {
    let slots = slots(measured);
    let has_requests = measured.has(Row::Device);
    let pairs = Family::ALL.into_iter().zip(after.families.iter().zip(&before.families));
    let differences: Vec<(Family, FamilyCounters)> = pairs
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
            reported: slow(SLOW_REPORTED),
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
        not_measured: slots
            .iter()
            .filter_map(|(row, _)| not_measured(*row, measured))
            .collect(),
        families: differences
            .iter()
            .map(|(family, difference)| family_report(*family, difference, &slots, measured))
            .collect(),
    }
}

/// Why a row lacks some or all of its time; `None` if it is complete.
fn not_measured(row: Row, measured: &Measured<'_>) -> Option<NotMeasured> {
    let is_of_requests = matches!(row, Row::Queue | Row::Device);
    let known = measured.has(row);
    let detached = row.layer().and_then(|layer| measured.detached.get(&layer));
    // Functions of the journal, of locks and of overlayfs are probed like those of vfs.
    let refused = measured.refused.get(&row.layer().unwrap_or(Layer::Vfs)).copied();
    let why = match detached {
        Some(since) => since,
        None if known => return None,
        None if is_of_requests => refused.unwrap_or("the block layer is not measured"),
        None => refused.unwrap_or("none of its functions could be probed"),
    };
    let instead = match row {
        Row::Layer(Layer::Syscall) => "later calls are in no row",
        Row::Layer(_) if !measured.is_split() => "the time is in the row kernel (not split)",
        Row::Layer(_) => "the time is in the row above",
        Row::Queue | Row::Device => "waits for requests are in the row of others' I/O",
        _ => "these waits are in other rows",
    };
    Some(NotMeasured::new(row.name(), format!("{why}: {instead}")))
}

fn family_report(family: Family, difference: &FamilyCounters, slots: &[Slot], measured: &Measured<'_>) -> FamilyReport {
    let histogram = Histogram::from(difference.steps.clone());
    let row = |(row, slot): &Slot| RowReport {
        row: *row,
        ns: slot.map(|slot| difference.rows[slot]),
        calls: slot.filter(|_| !row.is_wait()).map(|slot| difference.reached[slot]),
    };
    // Without requests, no thread can be seen waiting for its own.
    let all_requests = measured.has(Row::Device) && !measured.detached.contains_key(&Layer::Blk);
    let classes = if family == Family::Read && all_requests {
        &ReadClass::ALL[..]
    } else {
        &[]
    };
    let classes = classes
        .iter()
        .zip(difference.class_calls.iter().zip(difference.class_bytes));
    FamilyReport {
        family,
        total_ns: difference.total_ns(),
        bytes: difference.bytes,
        errors: difference.errors,
        extremes: difference.extremes.filter(|_| histogram.count() > 0),
        rows: slots.iter().map(row).collect(),
        classes: classes
            .map(|(&class, (&calls, bytes))| ClassReport { class, calls, bytes })
            .collect(),
        histogram,
    }
    .estimated(measured.sample)
}

/// The family with this index; `None`: there is none, or a group has no calls of it.
pub fn called((index, counted): (usize, &FamilyCounters)) -> Option<Family> {
    Family::ALL.get(index).copied().filter(|_| !counted.steps.is_empty())
}

/// What a group has counted of a family, by its index; `None`: no calls. `slots`: those of [`slots`].
pub fn of_group(measured: &Measured<'_>, slots: &[Slot], of: (usize, &FamilyCounters)) -> Option<FamilyReport> {
    let report = family_report(called(of)?, of.1, slots, measured);
    Some(FamilyReport {
        extremes: in_steps(report.extremes, &report.histogram, report.total_ns),
        ..report
    })
}

/// The same for requests that no call waited for, by the index of their origin.
pub fn origin_of_group(measured: &Measured<'_>, of: (usize, OriginCounters)) -> Option<OriginReport> {
    origin_report(of).filter(|_| measured.has(Row::Device))
}

fn not_waited(before: &[OriginCounters], after: &[OriginCounters]) -> Vec<OriginReport> {
    let pairs = after.iter().zip(before);
    let increases = pairs.map(|(after, before)| combined(after, before, u64::wrapping_sub));
    increases.enumerate().filter_map(origin_report).collect()
}

/// An origin by its index, if it has requests.
fn origin_report((index, counters): (usize, OriginCounters)) -> Option<OriginReport> {
    let [requests, bytes, queue_ns, device_ns] = counters;
    let directions = DIRECTIONS as usize;
    // A damaged file may have more of them than there are origins.
    let origin = *Origin::ALL.get(index / directions)?;
    let report = OriginReport {
        origin,
        is_write: index % directions == 1,
        requests,
        bytes,
        queue_ns,
        device_ns,
    };
    (requests > 0).then_some(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_whose_layer_was_detached_say_so() {
        let layers = [Layer::Syscall, Layer::Vfs, Layer::Ext4, Layer::Blk];
        let info = StackInfo {
            layers: layers.map(|layer| (layer, true)).to_vec(),
            seen: BTreeSet::from([Row::Journal, Row::Lock]),
        };
        let mut measured = Measured {
            info: &info,
            sample: None,
            slower_ns: None,
            detached: BTreeMap::from([(Layer::Ext4, "detached 3.0 s after the start".to_owned())]),
            gone: BTreeSet::new(),
            refused: BTreeMap::new(),
        };
        let reason = |row, measured: &Measured<'_>| not_measured(row, measured).map(|missing| missing.reason);
        let ext4 = Row::Layer(Layer::Ext4);
        let reported = "detached 3.0 s after the start: the time is in the row above";
        assert_eq!(reason(ext4, &measured).as_deref(), Some(reported));
        assert!(measured.has(ext4));
        measured.gone.insert(Layer::Ext4);
        assert_eq!(reason(ext4, &measured).as_deref(), Some(reported));
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
        let reported = "detached: waits for requests are in the row of others' I/O";
        assert_eq!(reason(Row::Device, &measured).as_deref(), Some(reported));

        // Nothing is above the system calls, whose row is that of all the kernel if nothing below is measured.
        measured.detached.insert(Layer::Syscall, "detached".to_owned());
        let reported = "detached: later calls are in no row";
        assert_eq!(reason(Row::Layer(Layer::Syscall), &measured).as_deref(), Some(reported));
    }
}
