//! The result of a replay for people.

use std::io;
use std::time::Duration;

use super::number::{percent, share, signed, thousands, time_each};
use super::{Page, counted};
use crate::model::report::replay::{Different, Lateness, ReplayReport};
use crate::view::errno::errno_name;

/// Kinds of differences and operations that are printed.
const MOST: usize = 12;

/// Prints the result, in a single write. `width`: columns of the terminal; `None` if it is not one.
///
/// # Errors
///
/// Any error from writing to `out`.
pub fn print(report: &ReplayReport, width: Option<usize>, out: &mut impl io::Write) -> io::Result<()> {
    let mut page = Page::new(width);
    let left = report.planned.saturating_sub(report.done);
    page.line(&format!(
        "{}: {} done, {} left out, recorded in {}",
        seconds(report.took_ns),
        counted(report.done, "call"),
        thousands(left),
        seconds(report.recorded_ns)
    ));
    if let Some(lateness) = &report.lateness {
        page.line(&format!("  lateness        {}", quantiles(lateness)));
        page.line(&format!("                  {}", causes(lateness)));
        if let Some(ns) = lateness.p50_ns.filter(|ns| *ns >= NOT_KEPT_NS) {
            page.line(&format!(
                "  the times were not kept: half of the calls began {} or more after theirs",
                time_each(ns)
            ));
        }
    }
    results(report, &mut page);
    not_replayed(report, &mut page);
    notes(report, &mut page);
    operations(report, &mut page);
    out.write_all(page.text.as_bytes())
}

/// Half of all calls being later than this means that the disk or the machine is too slow for the recorded times, so that a
/// comparison with the recording is one of other loads.
const NOT_KEPT_NS: u64 = 10_000_000;

fn seconds(ns: u64) -> String {
    let span = Duration::from_nanos(ns);
    if span < Duration::from_secs(100) {
        time_each(ns)
    } else {
        format!("{:.1} s", span.as_secs_f64())
    }
}

/// `p50 41 us   p90 88 us   p99 1.9 ms   max 71 ms`
fn quantiles(lateness: &Lateness) -> String {
    let one = |name: &str, ns: Option<u64>| format!("{name} {}", ns.map_or("-".to_owned(), time_each));
    [
        one("p50", lateness.p50_ns),
        one("p90", lateness.p90_ns),
        one("p99", lateness.p99_ns),
        one("max", Some(lateness.max_ns)),
    ]
    .join("   ")
}

fn causes(lateness: &Lateness) -> String {
    let Lateness {
        timer_ns,
        earlier_call_ns,
        thread_busy_ns,
        ..
    } = *lateness;
    let all = timer_ns.saturating_add(earlier_call_ns).saturating_add(thread_busy_ns);
    format!(
        "(earlier call {}, thread busy {}, timer {})",
        percent(earlier_call_ns, all),
        percent(thread_busy_ns, all),
        percent(timer_ns, all)
    )
}

fn results(report: &ReplayReport, page: &mut Page) {
    page.line(&format!(
        "  results equal   {} ({})",
        thousands(report.equal),
        equal(report)
    ));
    for different in report.different.iter().take(MOST) {
        page.line(&format!("  different       {}", difference(different)));
    }
    let rest = &report.different[report.different.len().min(MOST)..];
    if !rest.is_empty() {
        let calls = rest.iter().map(|one| one.calls).sum();
        page.line(&format!("  different       {} of other kinds", counted(calls, "call")));
    }
}

/// `99.98 %`; never 100 % of calls of which some differ.
fn equal(report: &ReplayReport) -> String {
    let text = share(report.equal, report.done);
    if report.equal < report.done && text == "100.00 %" {
        "> 99.99 %".to_owned()
    } else {
        text
    }
}

/// `unlink 217: ENOENT`, `read 12: fewer bytes`
fn difference(different: &Different) -> String {
    let Different { op, how, errno, calls } = different;
    let name = errno.map(errno_name);
    let how = match (how.as_str(), name) {
        ("failed", Some(name)) => name,
        ("succeeded", Some(name)) => format!("succeeded instead of {name}"),
        ("other", _) => "other result".to_owned(),
        (how, _) => how.to_owned(),
    };
    format!("{op} {}: {how}", thousands(*calls))
}

fn not_replayed(report: &ReplayReport, page: &mut Page) {
    let mut parts: Vec<String> = Vec::new();
    for left in &report.not_replayed {
        parts.push(format!("{} {} ({})", left.op, thousands(left.calls), left.reason));
    }
    if report.asynchronous > 0 {
        parts.push(counted(report.asynchronous, "asynchronous request"));
    }
    if report.faults > 0 {
        parts.push(counted(report.faults, "page fault"));
    }
    for (index, part) in parts.iter().enumerate() {
        let label = if index == 0 { "not replayed" } else { "" };
        page.line(&format!("  {label:<14}  {part}"));
    }
    if report.not_selected > 0 {
        page.line(&format!("  not selected    {}", thousands(report.not_selected)));
    }
}

fn notes(report: &ReplayReport, page: &mut Page) {
    let mut note = |what: &str, n: u64| {
        if n > 0 {
            page.line(&format!("  {what}: {}", thousands(n)));
        }
    };
    note(
        "opened without O_DIRECT, which the file system refuses",
        report.not_direct,
    );
    note("direct I/O rounded to blocks of 4,096 bytes", report.direct_rounded);
    note("not used, since it is no regular file or directory", report.refused);
    note("incomplete: calls that were lost while recording", report.lost_calls);
    if report.was_ended {
        page.line("  ended by a signal");
    }
}

/// Times by operation: of the kernel in the recording, of the caller in the replay.
fn operations(report: &ReplayReport, page: &mut Page) {
    if report.operations.is_empty() {
        return;
    }
    page.blank();
    page.line(&format!(
        "{:<18} {:>12} {:>12} {:>12} {:>11}",
        "operation", "calls", "recorded", "replayed", "difference"
    ));
    for one in report.operations.iter().take(MOST) {
        let each = |sum: u64| sum.checked_div(one.calls).unwrap_or(0);
        let (before, after) = (each(one.recorded_ns), each(one.replayed_ns));
        page.line(&format!(
            "{:<18} {:>12} {:>12} {:>12} {:>11}",
            one.op,
            thousands(one.calls),
            time_each(before),
            time_each(after),
            change(before, after)
        ));
    }
    let more = report.operations.len().saturating_sub(MOST);
    if more > 0 {
        page.line(&format!(
            "({} took less time in the recording: --json has all)",
            counted(more as u64, "other operation")
        ));
    }
}

/// `+1,004.5 %`; `-`: of nothing.
fn change(before: u64, after: u64) -> String {
    let sign = if after < before { "-" } else { "+" };
    signed(sign, percent(after.abs_diff(before), before))
}

/// A result with everything.
#[cfg(test)]
pub(crate) fn example() -> ReplayReport {
    use crate::model::report::replay::{NotReplayed, Operation};
    let different = |op: &str, how: &str, errno, calls| Different {
        op: op.to_owned(),
        how: how.to_owned(),
        errno,
        calls,
    };
    ReplayReport {
        recorded_ns: 60_000_000_000,
        took_ns: 60_400_000_000,
        speed: 1.0,
        timing: "schedule".to_owned(),
        order: "files".to_owned(),
        recorded_calls: 1_204_400,
        not_selected: 25,
        planned: 1_204_331,
        done: 1_204_331,
        threads: 14,
        open_files: 412,
        lost_calls: 2_113,
        not_replayed: vec![NotReplayed {
            op: "chown".to_owned(),
            reason: "needs --owners".to_owned(),
            calls: 41,
        }],
        asynchronous: 3,
        faults: 1,
        lateness: Some(Lateness {
            p50_ns: Some(41_000),
            p90_ns: Some(88_000),
            p99_ns: None,
            max_ns: 71_000_000,
            timer_ns: 9,
            earlier_call_ns: 31,
            thread_busy_ns: 960,
            buckets: Vec::new(),
        }),
        equal: 1_204_102,
        different: vec![
            different("read", "fewer bytes", None, 12),
            different("unlink", "failed", Some(2), 217),
            different("stat", "succeeded", Some(2), 1),
        ],
        operations: vec![Operation {
            op: "pread64".to_owned(),
            calls: 1000,
            recorded_ns: 149_000_000,
            replayed_ns: 38_000_000,
        }],
        not_direct: 1,
        direct_rounded: 2,
        refused: 3,
        was_ended: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replay_that_does_not_keep_the_times_says_so() {
        let text = |p50_ns| {
            let mut report = example();
            report.lateness = report.lateness.map(|lateness| Lateness {
                p50_ns: Some(p50_ns),
                ..lateness
            });
            let mut out = Vec::new();
            print(&report, Some(80), &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert!(!text(NOT_KEPT_NS - 1).contains("not kept"));
        let slow = text(176_000_000);
        assert!(
            slow.contains("\n  the times were not kept: half of the calls began 176 ms or more after theirs\n"),
            "{slow}"
        );
        assert!(slow.lines().all(|line| line.chars().count() <= 80), "{slow}");
    }

    #[test]
    fn changes_have_a_sign_and_thousands() {
        let all = [(200, 149), (200, 200), (100_000, 100_001), (623, 6_881), (0, 5)];
        let all = all.map(|(before, after)| change(before, after));
        assert_eq!(all, ["-25.5 %", "0.0 %", "0.0 %", "+1,004.5 %", "-"]);
    }

    #[test]
    fn operations_that_are_not_printed_are_counted() {
        let mut report = example();
        let one = report.operations[0].clone();
        report.operations = (0..MOST + 3).map(|_| one.clone()).collect();
        let mut out = Vec::new();
        print(&report, Some(80), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let last = "(3 other operations took less time in the recording: --json has all)";
        assert_eq!(text.lines().last(), Some(last), "{text}");
    }

    #[test]
    fn nothing_that_differs_goes_unreported() {
        let mut out = Vec::new();
        print(&example(), Some(80), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        for line in [
            "60.4 s: 1,204,331 calls done, 0 left out, recorded in 60.0 s",
            "  lateness        p50 41.0 us   p90 88.0 us   p99 -   max 71.0 ms",
            "                  (earlier call 3.1 %, thread busy 96.0 %, timer 0.9 %)",
            "  results equal   1,204,102 (99.98 %)",
            "  different       read 12: fewer bytes",
            "  different       unlink 217: ENOENT",
            "  different       stat 1: succeeded instead of ENOENT",
            "  not replayed    chown 41 (needs --owners)",
            "                  3 asynchronous requests",
            "                  1 page fault",
            "  not selected    25",
            "  incomplete: calls that were lost while recording: 2,113",
            "  opened without O_DIRECT, which the file system refuses: 1",
            "  ended by a signal",
            "pread64                   1,000       149 us      38.0 us     -74.5 %",
        ] {
            assert!(text.lines().any(|printed| printed == line), "{line}\n{text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }
}
