//! Hand-written reports of the whole-stack view, for the tests of text and of JSON.

use iostackbreakdown::model::histogram::{Histogram, STEPS, step_of};
use iostackbreakdown::model::ids::{Family, Layer, Origin, ReadClass, Row};
use iostackbreakdown::model::report::NotMeasured;
use iostackbreakdown::model::report::slow::{LeftOut, SlowReport};
use iostackbreakdown::model::report::stack::{
    ClassReport, FamilyReport, OriginReport, RowReport, StackReport, Unbalanced,
};

const LAYERS: [Layer; 3] = [Layer::Syscall, Layer::Vfs, Layer::Ext4];

/// A histogram of the given counts by power of two, each of which is distributed evenly over its steps.
pub fn slots(counts: &[(u32, u64)]) -> Histogram {
    let mut steps = vec![0; STEPS];
    for (slot, count) in counts {
        let first = if *slot == 0 { 0 } else { step_of(1 << slot) };
        let last = step_of((1 << (slot + 1)) - 1);
        let wide = (last - first + 1) as u64;
        for (calls, index) in steps[first..=last].iter_mut().zip(0..) {
            *calls = count / wide + u64::from(index < count % wide);
        }
    }
    Histogram::from_steps(steps)
}

/// The calls of a family. `times`: times in nanoseconds with the number of calls; `rows`: the time of each row in
/// nanoseconds; `reached`: the number of calls that reached each of [`LAYERS`].
fn family(family: Family, times: &[(u64, u64)], rows: [u64; 10], reached: [u64; 3]) -> FamilyReport {
    let mut steps = vec![0; STEPS];
    for (ns, calls) in times {
        steps[step_of(*ns)] += calls;
    }
    let layers = LAYERS.into_iter().zip(reached);
    let layers = layers.map(|(layer, calls)| (Row::Layer(layer), Some(calls)));
    let rows: Vec<RowReport> = layers
        .chain(Row::WAITS.map(|row| (row, None)))
        .zip(rows)
        .map(|((row, calls), ns)| RowReport {
            row,
            ns: Some(ns),
            calls,
        })
        .collect();
    let all = times.iter().map(|(ns, _)| *ns);
    FamilyReport {
        total_ns: rows.iter().filter_map(|row| row.ns).fold(0, u64::saturating_add),
        extremes: all.clone().min().zip(all.max()),
        histogram: Histogram::from_steps(steps),
        rows,
        ..FamilyReport::new(family)
    }
}

fn unused(which: Family) -> FamilyReport {
    family(which, &[], [0; 10], [0; 3])
}

/// A database: reads from a disk, commits, writes to the page cache.
pub fn database() -> StackReport {
    let classes = [11_840, 483, 61, 0, 0];
    let read = FamilyReport {
        bytes: 101_449_728,
        classes: ReadClass::ALL
            .into_iter()
            .zip(classes)
            .map(|(class, calls)| ClassReport {
                class,
                calls,
                bytes: calls * 8192,
            })
            .collect(),
        ..family(
            Family::Read,
            &[(2_800, 11_840), (3_400_000, 440), (7_100_000, 104)],
            [
                5_132_101,
                4_204_404,
                38_703_339,
                19_301_000,
                1_650_012_345,
                120_400_001,
                0,
                0,
                0,
                6_101_212,
            ],
            [12_384; 3],
        )
    };
    let fsync = family(
        Family::Fsync,
        &[(13_900_000, 95), (31_000_000, 1)],
        [
            311_000,
            402_133,
            9_400_111,
            2_300_000,
            183_500_009,
            0,
            1_202_000_777,
            0,
            2_100,
            14_100_321,
        ],
        [96, 96, 90],
    );
    let write = FamilyReport {
        bytes: 67_108_864,
        errors: 1,
        ..family(
            Family::Write,
            &[(5_000, 8_000), (9_000, 192)],
            [3_000_321, 4_200_123, 33_000_544, 0, 0, 0, 0, 991_119, 0, 0],
            [8_192; 3],
        )
    };
    let open = family(
        Family::Open,
        &[(16_000, 10), (19_000, 2)],
        [150_000, 30_000, 18_222, 0, 0, 0, 0, 0, 0, 0],
        [12, 11, 11],
    );
    // A family of little time, whose rows are shown only with those of all families.
    let metadata = family(
        Family::Metadata,
        &[(22_000, 1)],
        [22_000, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        [1, 0, 0],
    );
    StackReport {
        families: vec![read, write, open, fsync, metadata, unused(Family::Asynchronous)],
        not_waited: Some(vec![
            origin(Origin::Journal, true, 196, 1_605_632, 12_000, 900_000),
            origin(Origin::Writeback, true, 212, 13_893_632, 44_000, 1_100_000),
            origin(Origin::Readahead, false, 88, 11_534_336, 31_000, 2_900_000),
        ]),
        ..StackReport::default()
    }
}

fn origin(origin: Origin, is_write: bool, requests: u64, bytes: u64, queue: u64, device: u64) -> OriginReport {
    OriginReport {
        origin,
        is_write,
        requests,
        bytes,
        queue_ns: queue * requests,
        device_ns: device * requests,
    }
}

/// A kernel on which only system calls and the scheduler can be traced.
pub fn bare() -> StackReport {
    let mut stack = database();
    let hidden = [
        Row::Layer(Layer::Vfs),
        Row::Layer(Layer::Ext4),
        Row::Queue,
        Row::Device,
        Row::Journal,
        Row::Lock,
    ];
    for family in &mut stack.families {
        let (mut running, mut waiting) = (0, 0);
        for row in family.rows.iter_mut().filter(|row| hidden.contains(&row.row)) {
            *(if row.is_layer() { &mut running } else { &mut waiting }) += row.ns.unwrap_or(0);
            (row.ns, row.calls) = (None, None);
        }
        for row in &mut family.rows {
            match row.row {
                Row::Layer(Layer::Syscall) => row.ns = row.ns.map(|ns| ns + running),
                Row::Others => row.ns = row.ns.map(|ns| ns + waiting),
                _ => {}
            }
        }
        family.classes.clear();
    }
    stack.not_waited = None;
    let reason = |row| match row {
        Row::Layer(_) => "none of its functions could be probed: the time is in the row kernel (not split)",
        Row::Queue | Row::Device => "the block layer is not measured: waits for requests are in the row of others' I/O",
        _ => "none of its functions could be probed: these waits are in other rows",
    };
    let missing = |row: Row| NotMeasured::new(row.name(), reason(row));
    stack.not_measured = hidden.map(missing).to_vec();
    stack
}

/// A report with counts of inconsistent events, which make its numbers unreliable.
pub fn troubled() -> StackReport {
    StackReport {
        unbalanced: Unbalanced {
            entries: 3,
            returns: 1_204,
            too_deep: 0,
            sleeps: 7,
        },
        ..database()
    }
}

/// Slow calls that were reported individually, except `left_out`.
pub fn slow(threshold_ns: u64, left_out: LeftOut) -> StackReport {
    StackReport {
        slow: Some(SlowReport {
            threshold_ns,
            reported: 483,
            left_out,
        }),
        ..bare()
    }
}

/// A report without any calls.
pub fn idle() -> StackReport {
    StackReport {
        families: Family::ALL.map(unused).to_vec(),
        not_waited: Some(Vec::new()),
        ..StackReport::default()
    }
}
