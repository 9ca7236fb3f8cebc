//! What the disks did while the requests waited, a line for each whose requests were served.

use super::number::{decimal_bytes, percent, thousands, time_sum};
use super::{Page, counted};
use crate::report::neighbour::{Neighbour, Neighbours};

/// Others that have a line of their own.
const SHOWN: usize = 5;
/// Columns of a name.
const NAME: usize = 34;

pub fn print(neighbours: &Neighbours, page: &mut Page) {
    if neighbours.unseen > 0 {
        page.line(&format!(
            "not told whose requests were served: {} on more disks than there is room for",
            counted(neighbours.unseen, "request")
        ));
    }
    if neighbours.waited_ns == 0 {
        return;
    }
    let whole = neighbours.waited_ns;
    page.line(&format!(
        "{:<NAME$}{:>9} {:>8} {:>10} {:>9}",
        "While they waited, disks served",
        time_sum(whole),
        "",
        "requests",
        "bytes"
    ));
    let line = |name: &str, ns: u64, requests: &str, bytes: &str| {
        let name: String = name.chars().take(NAME - 3).collect();
        format!(
            "  {name:<0$}{1:>9} {2:>8} {requests:>10} {bytes:>9}",
            NAME - 2,
            time_sum(ns),
            percent(ns, whole)
        )
    };
    let own = thousands(neighbours.own_requests);
    page.line(&line("these requests", neighbours.own_ns, &own, ""));
    let (shown, rest) = neighbours.others.split_at(neighbours.others.len().min(SHOWN));
    for other in shown {
        page.line(&line(
            &name(other),
            other.ns,
            &thousands(other.requests),
            &decimal_bytes(other.bytes),
        ));
    }
    if !rest.is_empty() {
        let sum = |of: fn(&Neighbour) -> u64| rest.iter().map(of).fold(0, u64::saturating_add);
        page.line(&line(
            &format!("{} others", thousands(rest.len() as u64)),
            sum(|other| other.ns),
            &thousands(sum(|other| other.requests)),
            &decimal_bytes(sum(|other| other.bytes)),
        ));
    }
    if neighbours.untold_ns > 0 {
        page.line(&line("not known: too many ended", neighbours.untold_ns, "", ""));
    }
    if neighbours.idle_ns() > 0 {
        page.line(&line("none: nothing was issued", neighbours.idle_ns(), "", ""));
    }
}

/// `rsync (PID 991)`; a kernel thread as `ps` has it: `[jbd2/sda1-8] (PID 211)`
fn name(other: &Neighbour) -> String {
    match (other.pid, &other.comm) {
        (Some(pid), Some(comm)) if other.is_kernel_thread => format!("[{comm}] (PID {pid})"),
        (Some(pid), Some(comm)) => format!("{comm} (PID {pid})"),
        _ => "somebody, not known who".to_owned(),
    }
}
