//! Lines that only the block layer has: requests counted separately, and the comparison with the kernel's own counters.

use super::color::Mark;
use super::neighbour;
use super::number::thousands;
use super::{Page, counted, sum};
use crate::model::ids::Op;
use crate::model::report::{Agreement, Diskstats, LayerReport, OpReport, SetAside};

pub fn print(layer: &LayerReport, page: &mut Page) {
    if let Some(from) = &layer.queue_from {
        page.line(&format!("queue time begins at: {from}"));
    }
    let at_start = sum(layer.ops.iter().map(|op| op.set_aside.at_start));
    let in_flight = match at_start {
        0 => String::new(),
        n => format!(" ({} unfinished at start)", thousands(n)),
    };
    let is_write = |op: &OpReport| op.op == Op::Write;
    let writes = layer.ops.iter().filter(|op| is_write(op));
    let never_issued = sum(writes.map(|op| op.set_aside.never_issued));
    match &layer.diskstats {
        Some(diskstats) => {
            let line = format!("{}{in_flight}", compared(diskstats, never_issued));
            match diskstats.agreement {
                Agreement::Differs(_) => page.mark(Mark::Warning, &line),
                Agreement::Agrees | Agreement::NotComparable(_) => page.line(&line),
            }
        }
        None => {
            if at_start > 0 {
                page.line(&format!("unfinished at start: {}", counted(at_start, "request")));
            }
            if never_issued > 0 {
                page.line(&format!(
                    "never issued: {} without data, which only request a flush",
                    counted(never_issued, "write")
                ));
            }
        }
    }
    let refused = layer.ops.iter().filter(|op| !is_write(op));
    each(refused, page, "never issued", "the driver refused them", |counts| {
        counts.never_issued
    });
    let by_kernel = sum(layer.ops.iter().map(|op| op.set_aside.by_kernel));
    if by_kernel > 0 {
        page.line(&format!(
            "kernel threads: {}, not counted here",
            counted(by_kernel, "further request")
        ));
    }
    each(
        layer.ops.iter(),
        page,
        "not attributed",
        "one serves several processes",
        |counts| counts.unowned,
    );
    each(
        layer.ops.iter(),
        page,
        "not timed",
        "the start of their queue time is unknown",
        |counts| counts.untimed,
    );
    print_neighbours(layer, page);
}

/// Whose requests the disks served while these waited.
pub fn print_neighbours(layer: &LayerReport, page: &mut Page) {
    if let Some(neighbours) = &layer.neighbours {
        page.blank();
        neighbour::print(neighbours, page);
        page.blank();
    }
}

/// A line for those ops that have any.
fn each<'a>(
    ops: impl Iterator<Item = &'a OpReport>,
    page: &mut Page,
    what: &str,
    why: &str,
    get: fn(&SetAside) -> u64,
) {
    let some = ops.filter(|op| get(&op.set_aside) > 0);
    let ops: Vec<String> = some
        .map(|op| format!("{} {}", op.op, thousands(get(&op.set_aside))))
        .collect();
    if !ops.is_empty() {
        page.line(&format!("{what}: {} ({why})", ops.join(", ")));
    }
}

/// `diskstats agrees: 3,860 reads, 412 writes (24 of them never issued), 24 flushes`
fn compared(diskstats: &Diskstats, never_issued: u64) -> String {
    let of_them = match never_issued {
        0 => String::new(),
        n => format!(" ({} of them never issued)", thousands(n)),
    };
    let mut counts = vec![
        counted(diskstats.reads, "read"),
        format!("{}{of_them}", counted(diskstats.writes, "write")),
    ];
    if diskstats.discards > 0 {
        counts.push(counted(diskstats.discards, "discard"));
    }
    match diskstats.flushes {
        None | Some(0) => {}
        Some(1) => counts.push("1 flush".to_owned()),
        Some(n) => counts.push(format!("{} flushes", thousands(n))),
    }
    let counts = counts.join(", ");
    let note = match never_issued {
        0 => String::new(),
        n => format!("; {} never issued", counted(n, "write")),
    };
    match &diskstats.agreement {
        Agreement::Agrees => format!("diskstats agrees: {counts}"),
        Agreement::Differs(how) => format!("diskstats differs: {how}{note}"),
        Agreement::NotComparable(why) => format!("diskstats not compared: {why}{note}"),
    }
}
