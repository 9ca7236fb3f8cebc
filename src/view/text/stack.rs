//! The report of the whole stack: verdicts first, then each family of calls, and finally what readers must know about
//! it.

use std::time::Duration;

use super::color::Mark;
use super::family::{by_time, print_families, sum_of};
use super::number::{length, rounded, share, thousands, time_each, time_sum};
use super::{
    Page, TextOptions, counted, errors, estimate, excluded, group, interval, losses, measured, neighbour, sum,
};
use crate::model::ids::{Hook, Layer, joined};
use crate::model::report::slow::SlowReport;
use crate::model::report::stack::{FamilyReport, StackReport, Unbalanced};
use crate::model::report::{LayerReport, Report};

/// Unpaired entries and returns are reported from this share of calls on, in parts per thousand: rows are about as
/// exact.
const UNBALANCED: u128 = 1;

/// Prints the whole report.
pub fn print(report: &Report, stack: &StackReport, options: &TextOptions, page: &mut Page) {
    let called = by_time(&stack.families);
    page.line(&opening(&called, sum_of(&called), report));
    match &report.groups {
        Some(groups) => {
            page.blank();
            group::print(report, groups, options, page);
        }
        None => print_families(
            &stack.families,
            stack.not_waited.as_deref(),
            report.filter.is_by_process(),
            options,
            page,
        ),
    }
    let estimates: Vec<_> = called
        .iter()
        .map(|family| (family.family.name(), family.estimate()))
        .collect();
    estimate::print_intervals(report, &estimates, page);
    for neighbours in report.layers.iter().filter_map(|layer| layer.neighbours.as_ref()) {
        neighbour::print(neighbours, page);
        page.blank();
    }
    if options.is_brief() {
        return;
    }
    let mut hooks: Vec<Hook> = Vec::new();
    for hook in report.layers.iter().flat_map(|layer| &layer.hooks) {
        if !hooks.contains(hook) {
            hooks.push(*hook);
        }
    }
    if !hooks.is_empty() {
        page.line(&format!("hooks: {}", joined(&hooks, Hook::name)));
    }
    print_trouble(report, stack, options, page);
}

/// Prints how many of the calls were slow, and what readers must know about them.
pub fn print_slow(report: &Report, stack: &StackReport, slow: SlowReport, options: &TextOptions, page: &mut Page) {
    let calls = stack.families.iter().map(FamilyReport::count);
    let calls = calls.fold(0, u64::saturating_add);
    page.line(&match slow.threshold_ns {
        0 if slow.left_out.sum() == 0 => format!("{}, all listed above.", counted(calls, "I/O call")),
        0 => format!("{}.", counted(calls, "I/O call")),
        threshold => format!(
            "{} of {} took {} or longer.",
            thousands(slow.calls()),
            counted(calls, "I/O call"),
            time_each(threshold)
        ),
    });
    print_trouble(report, stack, options, page);
}

/// Prints one line per family, for an interval.
pub fn print_interval(report: &Report, stack: &StackReport, options: &TextOptions, page: &mut Page) {
    let explained = interval::print_lines(report, &stack.families, &stack.families, page);
    if options.is_first && !explained.is_empty() {
        page.line(&explained);
    }
    if options
        .interval
        .is_some_and(|usual| is_other_length(usual, report.length))
    {
        page.line(&format!("(an interval of {})", length(report.length)));
    }
    if !options.is_brief() {
        print_trouble(report, stack, options, page);
    }
}

/// Whether an interval is shorter or longer than usual by more than a twentieth: the last one is, and one after a report that
/// took long to write.
fn is_other_length(usual: Duration, now: Duration) -> bool {
    now.abs_diff(usual) > usual / 20
}

/// `20,684 I/O calls took 3.3 s in total: 0.33 threads were in a call on average.`
pub(super) fn opening(called: &[&FamilyReport], total: u64, report: &Report) -> String {
    if called.is_empty() {
        return "no I/O calls".to_owned();
    }
    let calls = called
        .iter()
        .fold(0_u64, |sum, family| sum.saturating_add(family.count()));
    let inside = rounded(u128::from(total) * 100, report.length.as_nanos()).map_or_else(String::new, |hundredths| {
        let (whole, part) = (hundredths / 100, hundredths % 100);
        format!(": {}.{part:02} threads were in a call on average", thousands(whole))
    });
    format!(
        "{} took {} in total{inside}.",
        counted(calls, "I/O call"),
        time_sum(total)
    )
}

/// Prints everything that readers must know before they trust the rows above.
pub(super) fn print_trouble(report: &Report, stack: &StackReport, options: &TextOptions, page: &mut Page) {
    if let Some(slow) = stack.slow.filter(|slow| slow.left_out.sum() > 0) {
        let line = format!(
            "NOT SHOWN: {} of {} ({})",
            thousands(slow.left_out.sum()),
            counted(slow.calls(), "slow call"),
            super::slow::why(slow.left_out)
        );
        page.mark(Mark::Lost, &line);
    }
    if let Some(calls) = report.layers.first() {
        let failed: Vec<String> = calls.ops.iter().filter_map(errors).collect();
        if !failed.is_empty() {
            page.line(&format!("errors: {}", failed.join("; ")));
        }
        if let Some(excluded) = excluded(calls.excluded) {
            page.line(&excluded);
        }
    }
    for missing in stack.not_measured.chunk_by(|a, b| a.reason == b.reason) {
        let rows: Vec<&str> = missing.iter().map(|row| row.what.as_str()).collect();
        let line = format!("not measured: {} ({})", rows.join(", "), missing[0].reason);
        page.mark(Mark::NotMeasured, &line);
    }
    for LayerReport {
        layer, not_measured, ..
    } in report.layers.iter().filter(|layer| !layer.ops.is_empty())
    {
        for missing in not_measured {
            let line = format!("not measured: {} at {layer} ({})", missing.what, missing.reason);
            page.mark(Mark::NotMeasured, &line);
        }
    }
    for layer in &report.layers {
        // Calls are counted by family. Functions below them have rows, and counts only if those are needed.
        let seen = if layer.layer == Layer::Syscall {
            Some(measured_calls(stack))
        } else {
            Some(measured(layer)).filter(|_| layer.layer == Layer::Blk)
        };
        if let Some(lost) = losses(layer, seen) {
            page.mark(Mark::Lost, &format!("{}: {lost}", layer.layer));
        }
    }
    if let Some(line) = unbalanced(stack.unbalanced, measured_calls(stack), options.verbose) {
        page.mark(Mark::Lost, &line);
    }
    for layer in &report.layers {
        super::print_warnings(&layer.warnings, page);
    }
}

/// The calls that were measured.
pub fn measured_calls(stack: &StackReport) -> u64 {
    sum(stack.families.iter().map(|family| family.histogram.measured()))
}

/// `5.87 %: 1,214 in 20,685 calls`, of those that were measured; `None` if it is negligible. Without calls there are no
/// rows in which time could be wrong.
pub fn unbalanced_share(unbalanced: Unbalanced, calls: u64, always: bool) -> Option<String> {
    let all = unbalanced.sum();
    let matters = always || u128::from(all) * 1000 >= u128::from(calls) * UNBALANCED;
    (all > 0 && calls > 0 && matters).then(|| {
        let share = share(all, calls);
        format!("{share}: {} in {}", thousands(all), counted(calls, "call"))
    })
}

/// `UNBALANCED 5.87 %: 1,214 in 20,685 calls (3 entries without a return, ...)`, and what it means.
fn unbalanced(unbalanced: Unbalanced, calls: u64, always: bool) -> Option<String> {
    let share = unbalanced_share(unbalanced, calls, always)?;
    let kinds = [
        (
            unbalanced.entries,
            ["entry without a return", "entries without a return"],
        ),
        (
            unbalanced.returns,
            ["return without an entry", "returns without an entry"],
        ),
        (
            unbalanced.too_deep,
            ["call nested too deeply", "calls nested too deeply"],
        ),
        (unbalanced.sleeps, ["sleep without an end", "sleeps without an end"]),
    ];
    let kinds = kinds.iter().filter(|(n, _)| *n > 0);
    let kinds: Vec<String> = kinds
        .map(|(n, [one, many])| format!("{} {}", thousands(*n), if *n == 1 { one } else { many }))
        .collect();
    Some(format!(
        "UNBALANCED {share} ({}). The rows still add up, but part of the time of these calls may be in an \
         adjacent row.",
        kinds.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_in_pairs_is_reported_where_it_matters() {
        let few = Unbalanced {
            returns: 1,
            ..Unbalanced::default()
        };
        assert_eq!(unbalanced(few, 1001, false), None);
        assert_eq!(unbalanced(Unbalanced::default(), 0, true), None);
        assert_eq!(unbalanced(few, 0, false), None, "there are no calls");
        for (calls, always) in [(1000, false), (1001, true)] {
            let line = unbalanced(few, calls, always).unwrap_or_default();
            let expected = format!(
                "UNBALANCED 0.10 %: 1 in {} calls (1 return without an entry).",
                thousands(calls)
            );
            assert!(line.starts_with(&expected), "{line}");
        }
        let many = Unbalanced {
            entries: 3,
            returns: 1_204,
            too_deep: 0,
            sleeps: 7,
        };
        let line = unbalanced(many, 20_685, false).unwrap_or_default();
        assert!(
            line.starts_with(
                "UNBALANCED 5.87 %: 1,214 in 20,685 calls (3 entries without a return, 1,204 returns without an entry, 7 \
                 sleeps without an end). "
            ),
            "{line}"
        );
    }
}
