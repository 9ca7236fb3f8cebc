//! Notes printed once, after the banner, because they do not change during a run, and the line that follows an
//! interval's numbers.

use std::collections::BTreeSet;

use super::color::{Mark, Marked};
use super::stack::{measured_calls, unbalanced_share};
use super::{Page, counted, losses, measured, sum};
use crate::model::ids::{Hook, Layer, joined};
use crate::model::report::stack::StackReport;
use crate::model::report::{Agreement, LayerReport, NotMeasured, Report};
use crate::view::Screen;
use crate::view::text::number::thousands;

/// Notes that have been printed.
#[derive(Debug, Default)]
pub struct Printed(BTreeSet<String>);

impl Printed {
    /// The notes of a report. A run begins with a report without numbers.
    #[must_use]
    pub fn of(report: &Report) -> Self {
        let mut printed = Self::default();
        for layer in &report.layers {
            let name = layer.layer.name();
            layer.hooks.iter().for_each(|hook| printed.add(&[name, hook.name()]));
            layer.queue_from.iter().for_each(|from| printed.add(&[name, from]));
            layer.warnings.iter().for_each(|warning| printed.add(&[name, warning]));
        }
        report.warnings.iter().for_each(|warning| printed.add(&[warning]));
        printed.add_not_measured(report);
        printed
    }

    /// Removes notes from a report that have been printed. What is not measured since a layer was detached counts as
    /// printed from now on; a warning about a span concerns that span only.
    pub fn take_from(&mut self, report: &mut Report) {
        let before = std::mem::take(self);
        let is_new = |words: &[&str]| !before.0.contains(&key(words));
        self.add_not_measured(report);
        let is_missing = |of: &str, missing: &NotMeasured| is_new(&[of, &missing.what, &missing.reason]);
        for layer in &mut report.layers {
            let name = layer.layer.name();
            layer.hooks.retain(|hook| is_new(&[name, hook.name()]));
            layer.queue_from = layer.queue_from.take().filter(|from| is_new(&[name, from]));
            layer.warnings.retain(|warning| is_new(&[name, warning]));
            layer.not_measured.retain(|missing| is_missing(name, missing));
        }
        if let Some(stack) = &mut report.stack {
            stack.not_measured.retain(|missing| is_missing(STACK, missing));
        }
        report.warnings.retain(|warning| is_new(&[warning]));
        self.0.extend(before.0);
    }

    fn add_not_measured(&mut self, report: &Report) {
        for (of, missing) in all_missing(report) {
            self.add(&[of, &missing.what, &missing.reason]);
        }
    }

    fn add(&mut self, words: &[&str]) {
        self.0.insert(key(words));
    }
}

fn key(words: &[&str]) -> String {
    words.join("\n")
}

/// The key for rows of the whole stack, in addition to the layers.
const STACK: &str = "";

/// Everything that is not measured, with its layer.
fn all_missing(report: &Report) -> impl Iterator<Item = (&'static str, &NotMeasured)> {
    let rows = report.stack.iter().flat_map(|stack| &stack.not_measured);
    let layers = report.layers.iter();
    let parts = layers.flat_map(|layer| {
        layer
            .not_measured
            .iter()
            .map(move |missing| (layer.layer.name(), missing))
    });
    rows.map(|missing| (STACK, missing)).chain(parts)
}

/// The notes of a report without numbers, printed after the banner. Layers of which nothing is measured are in the
/// banner.
#[must_use]
pub fn notes(report: &Report, screen: Screen) -> String {
    let mut page = Page::colored(screen.width, screen.is_colored);
    let measured = || report.layers.iter().filter(|layer| !layer.ops.is_empty());
    if let Some(hooks) = hooks(measured()) {
        page.line(&hooks);
    }
    for from in report.layers.iter().filter_map(|layer| layer.queue_from.as_ref()) {
        page.line(&format!("queue time begins at: {from}"));
    }
    if !report.filter.all_files && measured().any(|layer| layer.layer != Layer::Blk) {
        page.line("excluded: calls on sockets, pipes, character devices, eventfds (see --all-files)");
    }
    if let Some(stack) = &report.stack {
        let in_banner = report.layers.iter().filter(|layer| layer.ops.is_empty());
        let in_banner = in_banner.flat_map(|layer| layer.not_measured.first());
        let in_banner: Vec<&str> = in_banner.map(|missing| missing.reason.as_str()).collect();
        let rows = rows_not_measured(stack, &in_banner);
        rows.iter().for_each(|line| page.mark(Mark::NotMeasured, line));
    }
    for layer in measured() {
        for missing in &layer.not_measured {
            page.mark(Mark::NotMeasured, &not_measured(layer, missing));
        }
    }
    for warning in report.layers.iter().flat_map(|layer| &layer.warnings) {
        page.mark(Mark::Warning, &format!("warning: {warning}"));
    }
    for warning in &report.warnings {
        page.line(&format!("note: {warning}"));
    }
    page.text
}

/// `hooks: fentry/fexit at syscall, vfs, ext4; tp_btf at blk`
fn hooks<'a>(layers: impl Iterator<Item = &'a LayerReport>) -> Option<String> {
    let mut kinds: Vec<(String, Vec<&str>)> = Vec::new();
    for layer in layers.filter(|layer| !layer.hooks.is_empty()) {
        let hooks = joined(&layer.hooks, Hook::name);
        match kinds.iter_mut().find(|(known, _)| *known == hooks) {
            Some((_, layers)) => layers.push(layer.layer.name()),
            None => kinds.push((hooks, vec![layer.layer.name()])),
        }
    }
    let kinds: Vec<String> = kinds
        .iter()
        .map(|(hooks, layers)| format!("{hooks} at {}", layers.join(", ")))
        .collect();
    (!kinds.is_empty()).then(|| format!("hooks: {}", kinds.join("; ")))
}

/// A line for each reason. `known`: causes that the reader has just read; of a reason that begins with one, only what follows from it
/// is printed.
#[must_use]
pub fn rows_not_measured(stack: &StackReport, known: &[&str]) -> Vec<String> {
    let kinds = stack.not_measured.chunk_by(|a, b| a.reason == b.reason);
    let line = |rows: &[NotMeasured]| {
        let names: Vec<&str> = rows.iter().map(|row| row.what.as_str()).collect();
        let reason = rows[0].reason.as_str();
        let consequence = known
            .iter()
            .find_map(|cause| reason.strip_prefix(cause)?.strip_prefix(": "));
        format!("not measured: {} ({})", names.join(", "), consequence.unwrap_or(reason))
    };
    kinds.map(line).collect()
}

fn not_measured(layer: &LayerReport, missing: &NotMeasured) -> String {
    format!("not measured: {} at {} ({})", missing.what, layer.layer, missing.reason)
}

/// What deserves attention in an interval, in one line; `None`: nothing. Notes that have been printed are no longer in
/// the report. `errors`: include failed calls.
pub fn changes(report: &Report, errors: bool) -> Option<Marked> {
    let mut parts: Vec<(String, Option<Mark>)> = Vec::new();
    for layer in &report.layers {
        let of = |part: String| match report.layers.len() {
            1 => part,
            _ => format!("{}: {part}", layer.layer),
        };
        // For the whole stack, errors are those of system calls.
        let is_stack = report.stack.is_some();
        if errors && (!is_stack || layer.layer == Layer::Syscall) {
            let failed: Vec<String> = (layer.ops.iter().filter(|op| op.error_count() > 0))
                .map(|op| format!("{} {}", op.op, thousands(op.error_count())))
                .collect();
            if !failed.is_empty() {
                let failed = format!("errors: {}", failed.join(", "));
                parts.push((if is_stack { failed } else { of(failed) }, None));
            }
        }
        let seen = (!is_stack || layer.layer == Layer::Blk).then(|| measured(layer));
        if let Some(lost) = losses(layer, seen) {
            let lost = lost
                .trim_end_matches(" Times do not include them.")
                .trim_end_matches(" Times do not include it.")
                .trim_end_matches('.');
            parts.push((of(lost.to_owned()), Some(Mark::Lost)));
        }
        if let Some(differs) = layer.diskstats.as_ref().and_then(|stats| match &stats.agreement {
            Agreement::Differs(how) => Some(how),
            _ => None,
        }) {
            parts.push((format!("diskstats differs: {differs}"), Some(Mark::Warning)));
        }
        let queued = sum(layer.ops.iter().map(|op| op.queued));
        if queued > 0 && !is_stack {
            let queued = counted(queued, "call");
            parts.push((of(format!("asynchronous: {queued} submitted, not timed")), None));
        }
        let untimed = sum(layer.ops.iter().map(|op| op.set_aside.untimed));
        if untimed > 0 {
            parts.push((format!("not timed: {}", counted(untimed, "request")), None));
        }
        let missing = layer.not_measured.iter().filter(|_| !is_stack);
        parts.extend(missing.map(|missing| (not_measured(layer, missing), Some(Mark::NotMeasured))));
        parts.extend(layer.warnings.iter().map(warning));
    }
    if let Some(stack) = &report.stack {
        let missing = rows_not_measured(stack, &[]).into_iter();
        parts.extend(missing.map(|line| (line, Some(Mark::NotMeasured))));
        let unbalanced = unbalanced_share(stack.unbalanced, measured_calls(stack), false);
        parts.extend(unbalanced.map(|share| (format!("UNBALANCED {share}"), Some(Mark::Lost))));
    }
    parts.extend(report.warnings.iter().map(warning));
    if let [_, Some(under_way)] = report.under_way()
        && under_way > 0
    {
        let is_blk = report.layers.iter().all(|layer| layer.layer == Layer::Blk);
        let what = if is_blk { "request" } else { "call" };
        parts.push((format!("unfinished: {}", counted(under_way, what)), None));
    }
    let mut line = Marked::default();
    for (index, (part, mark)) in parts.iter().enumerate() {
        line.push(if index > 0 { "; " } else { "" }, None);
        line.push(part, *mark);
    }
    (!parts.is_empty()).then_some(line)
}

fn warning(warning: &String) -> (String, Option<Mark>) {
    (format!("warning: {warning}"), Some(Mark::Warning))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ids::Op;
    use crate::model::report::stack::Unbalanced;
    use crate::model::report::{Filter, Loss, LossReason, OpReport};

    fn layer(layer: Layer, hook: Hook) -> LayerReport {
        LayerReport {
            ops: vec![OpReport::new(Op::Read)],
            hooks: vec![hook],
            ..LayerReport::new(layer)
        }
    }

    fn report() -> Report {
        let vfs = LayerReport {
            not_measured: vec![NotMeasured::new("fsync", "refused")],
            warnings: vec!["kprobe at vfs can lose calls".to_owned()],
            ..layer(Layer::Vfs, Hook::Kprobe)
        };
        Report {
            layers: vec![
                layer(Layer::Syscall, Hook::Kprobe),
                vfs,
                layer(Layer::Blk, Hook::RawTracepoint),
            ],
            warnings: vec!["tracefs is not mounted".to_owned()],
            ..Report::default()
        }
    }

    #[test]
    fn what_does_not_change_is_listed() {
        assert_eq!(
            notes(&report(), Screen::default()),
            "hooks: kprobe/kretprobe at syscall, vfs; tp_btf at blk\n\
             excluded: calls on sockets, pipes, character devices, eventfds (see --all-files)\n\
             not measured: fsync at vfs (refused)\n\
             warning: kprobe at vfs can lose calls\n\
             note: tracefs is not mounted\n"
        );
        let requests = Report {
            layers: vec![layer(Layer::Blk, Hook::RawTracepoint)],
            ..Report::default()
        };
        assert_eq!(notes(&requests, Screen::default()), "hooks: tp_btf at blk\n");
        let all_files = Report {
            filter: Filter {
                all_files: true,
                ..Filter::default()
            },
            layers: vec![layer(Layer::Vfs, Hook::Fentry)],
            ..Report::default()
        };
        assert_eq!(notes(&all_files, Screen::default()), "hooks: fentry/fexit at vfs\n");
    }

    #[test]
    fn rows_that_are_missing_for_one_reason_are_one_note() {
        let stack = StackReport {
            not_measured: vec![
                NotMeasured::new("vfs", "x"),
                NotMeasured::new("ext4", "x"),
                NotMeasured::new("lock", "y"),
            ],
            ..StackReport::default()
        };
        let report = Report {
            stack: Some(stack),
            ..Report::default()
        };
        assert_eq!(
            notes(&report, Screen::default()),
            "not measured: vfs, ext4 (x)\nnot measured: lock (y)\n"
        );
    }

    fn changes_of(report: &Report, errors: bool) -> Option<String> {
        changes(report, errors).map(|line| line.text)
    }

    #[test]
    fn a_cause_that_the_banner_names_is_not_repeated() {
        let vfs = LayerReport {
            not_measured: vec![NotMeasured::new("everything", "refused")],
            ..LayerReport::new(Layer::Vfs)
        };
        let stack = StackReport {
            not_measured: vec![
                NotMeasured::new("vfs", "refused: the time is in the row kernel"),
                NotMeasured::new("lock", "refused by another"),
                NotMeasured::new("queue", "refused"),
            ],
            ..StackReport::default()
        };
        let report = Report {
            stack: Some(stack),
            layers: vec![layer(Layer::Syscall, Hook::Kprobe), vfs],
            ..Report::default()
        };
        assert!(
            notes(&report, Screen::default()).ends_with(
                "not measured: vfs (the time is in the row kernel)\n\
                 not measured: lock (refused by another)\n\
                 not measured: queue (refused)\n"
            ),
            "{}",
            notes(&report, Screen::default())
        );
    }

    #[test]
    fn a_note_is_printed_once() {
        let mut printed = Printed::of(&report());
        let mut quiet = report();
        printed.take_from(&mut quiet);
        assert_eq!(changes_of(&quiet, true), None);
        assert!(quiet.layers.iter().all(|layer| layer.hooks.is_empty()));

        let change = || {
            let mut report = report();
            report.layers[0]
                .not_measured
                .push(NotMeasured::new("everything", "detached"));
            report.warnings.push("3 child processes were not followed".to_owned());
            report
        };
        let mut first = change();
        printed.take_from(&mut first);
        assert_eq!(
            changes_of(&first, true).as_deref(),
            Some("not measured: everything at syscall (detached); warning: 3 child processes were not followed")
        );
        // Three more in a later span are not a repetition.
        let mut second = change();
        printed.take_from(&mut second);
        assert_eq!(
            changes_of(&second, true).as_deref(),
            Some("warning: 3 child processes were not followed")
        );
    }

    #[test]
    fn an_interval_has_its_trouble_in_one_line() {
        let mut report = report();
        Printed::of(&report).take_from(&mut report);
        report.layers[0].ops[0].errors = vec![(5, 2), (11, 1)];
        report.layers[1].ops[0].errors = vec![(5, 2)];
        report.layers[2].losses = vec![Loss {
            reason: LossReason::TableFull,
            count: 3,
            up_to: false,
            cause: None,
        }];
        let line = changes_of(&report, true).unwrap();
        assert!(
            line.starts_with("syscall: errors: read 3; vfs: errors: read 2; blk: LOST 3 of 3 requests (100.00 %)"),
            "{line}"
        );
        assert!(line.contains("table full") && !line.ends_with('.'), "{line}");
        let line = changes_of(&report, false).unwrap();
        assert!(line.starts_with("blk: LOST 3"), "{line}");
        report.stack = Some(StackReport {
            unbalanced: Unbalanced {
                sleeps: 1,
                ..Unbalanced::default()
            },
            ..StackReport::default()
        });
        let line = changes_of(&report, true).unwrap();
        assert!(
            line.starts_with("errors: read 3; blk: LOST 3") && !line.contains("UNBALANCED"),
            "{line}"
        );
    }
}
