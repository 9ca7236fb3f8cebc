//! How far disks seek, and whose requests send the head away: `report FILE --seeks`.

use super::super::name::shortened;
use super::super::number::{ColumnUnit, decimal_bytes, percent, thousands, time_sum};
use super::super::{NAMES, Page, bar_length, counted, print_table};
use super::{file, process};
use crate::model::report::records::{DiskSeeks, DiskUsage, Owner, SeekPair, SeekRow, SeekSums, SeeksReport};

const SECTOR: u64 = 512;
/// Stars of a full bar, and the columns of a row without them, for the two widths of bounds.
const STARS: usize = 40;
/// Columns of numbers in the table of pairs.
const WIDTHS: [usize; 3] = [7, 9, 11];
const AFTER: &str = " after ";
const ITSELF: &str = " after itself";
/// Columns of a name in a pair, even on a narrow terminal.
const LEAST: usize = 6;

pub fn print(report: &SeeksReport, page: &mut Page) {
    if report.disks.is_empty() {
        page.line("no requests");
    }
    for disk in &report.disks {
        print_disk(disk, page);
        page.blank();
    }
    if report.out_of_order > 0 {
        page.line(&format!(
            "compared in another order than they were issued, since they took very long: {}",
            thousands(report.out_of_order)
        ));
    }
}

fn print_disk(disk: &DiskSeeks, page: &mut Page) {
    let mean = match disk.sectors.checked_div(disk.seeks) {
        Some(sectors) => {
            let of = disk.disk.bytes.map(|bytes| format!(" of {}", decimal_bytes(bytes)));
            let mean = decimal_bytes(sectors.saturating_mul(SECTOR));
            format!(", mean {mean}{}", of.unwrap_or_default())
        }
        None => String::new(),
    };
    page.line(&format!(
        "disk = {}: {}, {}{mean}",
        disk.disk.shown(),
        counted(disk.requests, "request"),
        counted(disk.seeks, "seek")
    ));
    histogram(&disk.rows, page);
    page.blank();
    if disk.usage.span_ns > 0 {
        page.line(&usage(&disk.usage));
    }
    if disk.left_out > 0 {
        page.line(&format!(
            "left out: {} (flushes, discards, commands of the driver, and those that were never issued)",
            counted(disk.left_out, "request")
        ));
    }
    page.blank();
    pairs(disk, page);
}

/// `at the device: 45.1 % of the time, 0.8 requests on average, 32 at most`
pub fn usage(usage: &DiskUsage) -> String {
    format!(
        "at the device: {} of the time, {} requests on average, {} at most",
        percent(usage.busy_ns, usage.span_ns),
        mean_depth(usage),
        thousands(usage.max_depth)
    )
}

/// The mean number of requests at the device.
pub fn mean_depth(usage: &DiskUsage) -> String {
    let unit = ColumnUnit {
        name: "",
        size: usage.span_ns.max(1),
        decimals: 2,
    };
    unit.number(usage.device_ns)
}

fn histogram(rows: &[SeekRow], page: &mut Page) {
    let most = rows.iter().map(|row| row.count).max().unwrap_or(0);
    if most == 0 {
        return;
    }
    let bounds = rows.iter().flat_map(|row| [row.from, row.to]);
    let bounds = bounds.map(|bound| bound.to_string().len()).max().unwrap_or(0);
    let counts = rows
        .iter()
        .map(|row| thousands(row.count).len())
        .max()
        .unwrap_or(0)
        .max(8);
    // Two bounds with an arrow, a count, and the frame of the bar.
    let others = bounds * 2 + 4 + 3 + counts + 3;
    let stars = STARS.min(page.width.saturating_sub(others));
    page.line(&format!(
        "{:<width$} : {:<counts$} distribution",
        "     sectors (512 B)",
        "count",
        width = bounds * 2 + 4
    ));
    for row in rows {
        let range = if row.from == row.to {
            format!("{:>bounds$}    {:<bounds$}", row.from, "")
        } else {
            format!("{:>bounds$} -> {:<bounds$}", row.from, row.to)
        };
        let bar = "*".repeat(bar_length(row.count, most, stars));
        page.line(&format!("{range} : {:<counts$} |{bar:<stars$}|", thousands(row.count)));
    }
}

/// Who sends the head away.
fn pairs(disk: &DiskSeeks, page: &mut Page) {
    if disk.pairs.is_empty() {
        return;
    }
    let of_numbers: usize = WIDTHS.iter().map(|width| width + 2).sum();
    let room = page.width.saturating_sub(of_numbers);
    let pairs = disk.pairs.iter();
    let mut all: Vec<(String, SeekSums)> = pairs.map(|pair| (name(pair, room), pair.sums)).collect();
    if disk.other_pairs.seeks > 0 {
        all.push(("  others (--top)".to_owned(), disk.other_pairs));
    }
    let heading = ["seeks", "distance", "device time"].map(str::to_owned);
    let title = if room < NAMES {
        "who after whom"
    } else {
        "who sends the head away"
    };
    let rows = all.into_iter().map(|(name, sums)| {
        let distance = decimal_bytes(sums.sectors.saturating_mul(SECTOR));
        (name, [thousands(sums.seeks), distance, time_sum(sums.device_ns)])
    });
    let rows: Vec<_> = std::iter::once((title.to_owned(), heading)).chain(rows).collect();
    print_table(&rows, WIDTHS, NAMES, page);
    page.line("device time: of the requests after these seeks");
}

/// `  tar 812 after postgres 4711`, with each name shortened so that both are in the room.
fn name(pair: &SeekPair, room: usize) -> String {
    let owner = |owner: &Owner| match owner {
        Owner::Process(name) => process(name),
        Owner::File(name) => file(name),
    };
    let mover = owner(&pair.mover);
    if pair.mover == pair.after {
        let room = room.saturating_sub(ITSELF.len() + 2);
        return format!("  {}{ITSELF}", shortened(&mover, room.max(LEAST)));
    }
    let after = owner(&pair.after);
    let room = room.saturating_sub(AFTER.len() + 2).max(2 * LEAST);
    let lengths = [&mover, &after].map(|name| name.chars().count());
    // A short name leaves its room to the other one.
    let of_mover = (room - lengths[1].min(room / 2)).min(lengths[0]);
    format!(
        "  {}{AFTER}{}",
        shortened(&mover, of_mover),
        shortened(&after, room - of_mover)
    )
}
