//! What the disks served while the requests waited, with a line for each process.

use super::number::{BYTE_COLUMNS, TIME_COLUMNS, column_units, percent, thousands};
use super::{NAMES, Page, WIDTH, counted, print_table};
use crate::model::report::neighbour::{Neighbour, Neighbours};

/// Other processes that have a line of their own.
const SHOWN: usize = 5;

pub fn print(neighbours: &Neighbours, page: &mut Page) {
    if neighbours.unseen > 0 {
        page.line(&format!(
            "unknown whose requests were served: {} on more disks than can be observed; select one with -d",
            counted(neighbours.unseen, "request")
        ));
    }
    if neighbours.waited_ns == 0 {
        return;
    }
    let whole = neighbours.waited_ns;
    let (shown, rest) = neighbours.others.split_at(neighbours.others.len().min(SHOWN));
    let mut parts = vec![Part {
        name: "the reported requests".to_owned(),
        ns: neighbours.own_ns,
        requests: Some(neighbours.own_requests),
        bytes: None,
    }];
    parts.extend(shown.iter().map(|other| Part {
        name: name(other),
        ns: other.ns,
        requests: Some(other.requests),
        bytes: Some(other.bytes),
    }));
    if !rest.is_empty() {
        let sum = |of: fn(&Neighbour) -> u64| rest.iter().map(of).fold(0, u64::saturating_add);
        parts.push(Part {
            name: match rest.len() {
                1 => "1 other process".to_owned(),
                n => format!("{} other processes", thousands(n as u64)),
            },
            ns: sum(|other| other.ns),
            requests: Some(sum(|other| other.requests)),
            bytes: Some(sum(|other| other.bytes)),
        });
    }
    let without_requests = |name: &str, ns| Part {
        name: name.to_owned(),
        ns,
        requests: None,
        bytes: None,
    };
    if neighbours.untold_ns > 0 {
        parts.push(without_requests("unknown: too many ended", neighbours.untold_ns));
    }
    if neighbours.idle_ns > 0 {
        parts.push(without_requests("idle: nothing issued", neighbours.idle_ns));
    }
    print_parts(whole, &parts, page);
}

/// What a disk did for some of the time.
struct Part {
    name: String,
    ns: u64,
    requests: Option<u64>,
    bytes: Option<u64>,
}

fn print_parts(whole: u64, parts: &[Part], page: &mut Page) {
    let time = column_units(TIME_COLUMNS, parts.iter().map(|part| part.ns))[0];
    let bytes = column_units(BYTE_COLUMNS, parts.iter().filter_map(|part| part.bytes))[0];
    let has_bytes = parts.iter().any(|part| part.bytes.is_some());
    let bytes_name = if has_bytes { bytes.name } else { "" };
    let heading = [&format!("time {}", time.name), "share", "requests", bytes_name].map(str::to_owned);
    let rows = parts.iter().map(|part| {
        let cells = [
            time.number(part.ns),
            percent(part.ns, whole),
            part.requests.map(thousands).unwrap_or_default(),
            part.bytes.map(|sum| bytes.number(sum)).unwrap_or_default(),
        ];
        (format!("  {}", part.name), cells)
    });
    let title = if page.width < WIDTH {
        "Disks served meanwhile"
    } else {
        "Disks served while these waited"
    };
    let all = [time.number(whole), percent(whole, whole), String::new(), String::new()];
    let rows = std::iter::once((title.to_owned(), heading)).chain(rows);
    let rows: Vec<_> = rows.chain([("  all".to_owned(), all)]).collect();
    print_table(&rows, [9, 8, 8, 7], NAMES, page);
}

/// `rsync (PID 991)`; a kernel thread as shown by `ps`: `[jbd2/sda1-8] (PID 211)`
fn name(other: &Neighbour) -> String {
    match (other.pid, &other.comm) {
        (Some(pid), Some(comm)) if other.is_kernel_thread => format!("[{comm}] (PID {pid})"),
        (Some(pid), Some(comm)) => format!("{comm} (PID {pid})"),
        _ => "an unknown process".to_owned(),
    }
}
