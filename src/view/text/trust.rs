//! How far a report can be trusted: its last line, and with `--verbose` the kernel's statistics of each probe.

use super::color::{Mark, Marked};
use super::number::{length as span, share, thousands};
use super::{Page, TextOptions, counted, print_warnings};
use crate::model::report::{LayerReport, Probe, Report, Runs, nanoseconds};

/// Prints the last line, and before it the statistics of probes shared by layers.
pub fn print(report: &Report, options: &TextOptions, page: &mut Page) {
    if options.verbose {
        for probe in report.probes.iter().filter(|probe| probe.layer.is_none()) {
            page.line(&describe(probe, report.cost.has_runs));
        }
    }
    if let Some(reason) = &report.cost.no_runs {
        let warning = format!("the cost of the probes is not measured: {reason}");
        print_warnings(&[warning], page);
    }
    page.blank();
    page.marked(&verdict(report));
}

/// With `--verbose`: a layer's probes, and the lost samples by op. `has_runs`: the kernel counted their runs.
pub fn print_probes<'a>(
    layer: &LayerReport,
    probes: impl Iterator<Item = &'a Probe>,
    has_runs: bool,
    options: &TextOptions,
    page: &mut Page,
) {
    if !options.verbose {
        return;
    }
    probes.for_each(|probe| page.line(&describe(probe, has_runs)));
    for op in layer.ops.iter().filter(|op| !op.losses.is_empty()) {
        let reasons = op.losses.iter();
        let reasons: Vec<String> = reasons
            .map(|loss| format!("{} {}", thousands(loss.count), loss.reason.describe(loss.count)))
            .collect();
        page.line(&format!("lost at {}: {}", op.op, reasons.join(", ")));
    }
    page.blank();
}

/// `probe: fentry/fexit on vfs_read: 840 entries, 840 returns, 41 ns per entry, 52 ns per return, 0 skipped`
///
/// `has_runs`: the kernel counted runs; those of a program that serves several layers are in a line of their own.
fn describe(probe: &Probe, has_runs: bool) -> String {
    let of = match probe.functions.as_slice() {
        [] => String::new(),
        [one] => one.clone(),
        [first, rest @ ..] => format!("{first} and {} more", rest.len()),
    };
    let each = |runs: Runs| runs.ns.checked_div(runs.count).unwrap_or(0);
    let ran = match (probe.entry, probe.leave) {
        (None, None) if has_runs => "its program serves other layers, too".to_owned(),
        (None, None) => "runs not counted".to_owned(),
        (Some(Runs { count: 0, .. }), None | Some(Runs { count: 0, .. })) | (None, Some(Runs { count: 0, .. })) => {
            "never ran".to_owned()
        }
        (Some(one), None) | (None, Some(one)) => format!("{}, {} ns each", counted(one.count, "run"), each(one)),
        (Some(entry), Some(leave)) => format!(
            "{}, {}, {} ns per entry, {} ns per return",
            counted(entry.count, "entry"),
            counted(leave.count, "return"),
            each(entry),
            each(leave)
        ),
    };
    let skipped = probe
        .skipped
        .map_or_else(String::new, |n| format!(", {} skipped", thousands(n)));
    format!("probe: {} on {of}: {ran}{skipped}", probe.hook)
}

/// `lost 0; unfinished: 1 at start, 0 at end; own process 0.02 % of a CPU, probes 0.18 %`. Shares are of one CPU.
fn verdict(report: &Report) -> Marked {
    let measured = || report.layers.iter().filter(|layer| !layer.ops.is_empty());
    let known = |n: Option<u64>| n.map_or_else(|| String::from("unknown"), thousands);
    let is_known = !measured().any(|layer| layer.losses_unknown);
    let lost = measured().map(LayerReport::lost).reduce(u64::saturating_add);
    let lost = lost.filter(|_| is_known);
    let up_to = measured().any(|layer| layer.losses.iter().any(|loss| loss.up_to && loss.count > 0));
    let up_to = if up_to { "up to " } else { "" };
    let unknown = measured().any(|layer| layer.skips_unknown);
    let unknown = if unknown {
        " (this kernel does not count skipped probes)"
    } else {
        ""
    };
    let [start, end] = report.under_way();
    let unfinished = match (start, end) {
        (None, None) => known(None),
        _ => format!("{} at start, {} at end", known(start), known(end)),
    };
    let length = nanoseconds(report.length);
    // If the cost of the probes was not measured, it is not shown as 0.
    let probes = report
        .probes_cost()
        .map_or_else(String::new, |runs| format!(", probes {}", share(runs.ns, length)));
    let cost = match report.process_cost() {
        Some(process) => format!("own process {} of a CPU{probes}", share(nanoseconds(process), length)),
        None => "own cost unknown".to_owned(),
    };
    let detached = report.cost.budget.iter().flat_map(|budget| &budget.detached);
    let without = detached.map(|detached| format!("{} at {}", detached.layer.name(), span(detached.after)));
    let without: Vec<String> = without.collect();
    let without = if without.is_empty() {
        String::new()
    } else {
        format!("; detached: {}", without.join(", "))
    };
    let mut line = Marked::default();
    let is_lost = lost.is_some_and(|lost| lost > 0);
    line.push(&format!("lost {up_to}{}", known(lost)), is_lost.then_some(Mark::Lost));
    line.push(&format!("{unknown}; unfinished: {unfinished}; {cost}"), None);
    line.push(&without, Some(Mark::Lost));
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Layer;
    use crate::model::ids::Hook;

    #[test]
    fn runs_of_a_program_that_serves_several_layers_are_not_missed_at_each() {
        let link = Probe {
            layer: Some(Layer::Ext4),
            hook: Hook::Session,
            functions: vec!["ext4_sync_file".to_owned()],
            entry: None,
            leave: None,
            skipped: Some(0),
        };
        let at = "probe: kprobe.session on ext4_sync_file";
        assert_eq!(
            describe(&link, true),
            format!("{at}: its program serves other layers, too, 0 skipped")
        );
        assert_eq!(describe(&link, false), format!("{at}: runs not counted, 0 skipped"));
    }
}
