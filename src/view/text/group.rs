//! A report by process, file, disk or control group: a ranking, then the report of each group, as it is printed without
//! `--by`.

use super::color::Mark;
use super::family::print_families;
use super::interval;
use super::number::{BYTE_COLUMNS, TIME_COLUMNS, column_units, percent, thousands, time_sum};
use super::{Page, TextOptions, counted, estimate, print_ops, print_table};
use crate::model::ids::{Layer, Op};
use crate::model::report::group::{By, GroupsReport, Numbers, OthersReport, Who};
use crate::model::report::{LayerReport, OpReport, Report};

/// Columns of names, more if there is room.
const NAMES: usize = 38;

/// Prints everything except what readers must know before they trust it.
pub fn print(report: &Report, groups: &GroupsReport, options: &TextOptions, page: &mut Page) {
    let layers: Vec<Option<Layer>> = match &report.stack {
        Some(_) => vec![None],
        None => {
            let called = report.layers.iter().filter(|layer| has_calls(groups, layer));
            called.map(|layer| Some(layer.layer)).collect()
        }
    };
    for &layer in &layers {
        if let Some(layer) = layer.filter(|_| report.layers.len() > 1) {
            page.line(&format!("layer = {layer}"));
        }
        ranking(groups, layer, page);
        page.blank();
    }
    remarks(report, groups, page);
    estimate::print_sentence(report, page);
    let view = Details {
        report,
        options,
        layers: &layers,
        groups,
    };
    let named = groups.groups.iter().map(|group| {
        let name = format!("{} = {}", groups.by.name(), name_of(&group.who));
        (name, &group.numbers)
    });
    let others = groups.others.iter();
    let others = others.map(|others| (others_name(groups.by, others), &others.numbers));
    let mut explained = String::new();
    for (name, numbers) in named.chain(others) {
        let of_columns = view.print(&name, numbers, page);
        explained = Some(of_columns).filter(|words| !words.is_empty()).unwrap_or(explained);
    }
    if options.is_first && !explained.is_empty() {
        page.line(&explained);
        page.blank();
    }
}

/// As in the other tables that name processes: `dd (PID 339)`.
fn name_of(who: &Who) -> String {
    match who {
        Who::Process { pid, comm } => format!("{comm} (PID {pid})"),
        other => other.name(),
    }
}

/// `others (57 files)`
fn others_name(by: By, others: &OthersReport) -> String {
    match (others.groups, others.no_room) {
        (0, _) => "others".to_owned(),
        (n, 0) => format!("others ({})", many(n, by)),
        (n, _) => format!("others (over {})", many(n, by)),
    }
}

fn many(n: u64, by: By) -> String {
    let what = if n == 1 { by.name() } else { by.plural() };
    format!("{} {what}", thousands(n))
}

/// A line for each group with calls, one for the others, and their sum.
fn ranking(groups: &GroupsReport, layer: Option<Layer>, page: &mut Page) {
    let named = groups.groups.iter().map(|group| (name_of(&group.who), &group.numbers));
    let others = groups.others.as_ref();
    let others = others.map(|others| (others_name(groups.by, others), &others.numbers));
    let total = groups.total.sums(layer);
    let sums = named.chain(others).map(|(name, numbers)| (name, numbers.sums(layer)));
    let sums = sums.filter(|(_, sums)| sums.count > 0);
    let sums: Vec<_> = sums.chain([("all".to_owned(), total)]).collect();
    let time = column_units(TIME_COLUMNS, sums.iter().map(|(_, sums)| sums.ns))[0];
    let bytes = column_units(BYTE_COLUMNS, sums.iter().map(|(_, sums)| sums.bytes))[0];
    let what = if layer == Some(Layer::Blk) { "requests" } else { "calls" };
    let heading = [
        what.to_owned(),
        format!("total {}", time.name),
        "share".to_owned(),
        bytes.name.to_owned(),
    ];
    let rows = sums.into_iter().map(|(name, sums)| {
        let cells = [
            thousands(sums.count),
            time.number(sums.ns),
            percent(sums.ns, total.ns),
            match sums.bytes {
                0 => "-".to_owned(),
                sum => bytes.number(sum),
            },
        ];
        (name, cells)
    });
    let rows: Vec<_> = std::iter::once((groups.by.name().to_owned(), heading))
        .chain(rows)
        .collect();
    print_table(&rows, [9, 9, 7, 8], NAMES, page);
}

/// What calls belong to no group.
fn unowned_calls(by: By) -> &'static str {
    match by {
        By::File | By::Disk | By::Fd => "calls that take a path, failed opens",
        _ => "calls of threads that are not known",
    }
}

/// What requests belong to no group. Records name the process of a request only if it has made a call.
fn unowned_requests(by: By, requests: &[OpReport]) -> &'static str {
    let has_others = requests.iter().any(|op| op.op != Op::Flush && op.count() > 0);
    match by {
        By::File => "direct I/O, metadata of file systems, flushes",
        _ if has_others => "requests whose process is not known; flushes, each of which serves several processes",
        _ => "flushes, each of which serves several processes",
    }
}

/// Remarks that readers of the table need.
fn remarks(report: &Report, groups: &GroupsReport, page: &mut Page) {
    let mut all = groups.groups.iter();
    let unowned = all.find(|group| matches!(group.who, Who::Unknown(_)));
    if let Some(unowned) = unowned {
        let has_calls = unowned.numbers.layers.iter().any(|(layer, _)| *layer != Layer::Blk);
        let has_calls = has_calls || !unowned.numbers.families.is_empty();
        let has_requests = !unowned.numbers.ops(Layer::Blk).is_empty() || !unowned.numbers.not_waited.is_empty();
        let calls = unowned_calls(groups.by);
        let requests = unowned_requests(groups.by, unowned.numbers.ops(Layer::Blk));
        let what: Vec<&str> = [(has_calls, calls), (has_requests, requests)]
            .into_iter()
            .filter_map(|(has, what)| has.then_some(what))
            .collect();
        page.line(&format!("{}: {}", unowned.who.name(), what.join("; ")));
    }
    if let Some(others) = groups.others.as_ref().filter(|others| others.no_room > 0) {
        let line = format!(
            "NO ROOM: {} in others without a name: more {} than can be distinguished; select fewer (-p, -d, --cgroup)",
            if report.stack.is_none() && report.layers.iter().all(|layer| layer.layer == Layer::Blk) {
                format!("{} are", counted(others.no_room, "request"))
            } else if others.no_room == 1 {
                "1 call is".to_owned()
            } else {
                format!("{} are", counted(others.no_room, "call"))
            },
            groups.by.plural()
        );
        page.mark(Mark::Lost, &line);
    }
    page.blank();
}

/// What the reports of all groups have in common.
struct Details<'a> {
    report: &'a Report,
    options: &'a TextOptions,
    layers: &'a [Option<Layer>],
    groups: &'a GroupsReport,
}

impl Details<'_> {
    /// Returns the legend of an interval's columns.
    fn print(&self, name: &str, numbers: &Numbers, page: &mut Page) -> String {
        let mut explained = String::new();
        // A name stays unbroken, since a user may want to copy it.
        match self.sums(numbers) {
            Some(sums) if name.chars().count() + sums.chars().count() + 2 > page.width => {
                page.whole(name);
                page.line(&format!("  {sums}"));
            }
            Some(sums) => page.line(&format!("{name}: {sums}")),
            None => page.whole(name),
        }
        if let Some(stack) = &self.report.stack {
            if self.options.interval.is_some() {
                let families = &stack.families;
                explained = interval::print_lines(self.report, families, &numbers.families, page);
            } else {
                let not_waited = stack.not_waited.as_ref().map(|_| &numbers.not_waited[..]);
                let is_by_process = self.report.filter.is_by_process();
                print_families(&numbers.families, not_waited, is_by_process, self.options, page);
            }
            page.blank();
            return explained;
        }
        for &layer in self.layers.iter().flatten() {
            let ops: Vec<&OpReport> = numbers.ops(layer).iter().collect();
            if ops.is_empty() {
                continue;
            }
            if self.report.layers.len() > 1 {
                page.line(&format!("layer = {layer}"));
            }
            print_ops(&ops, self.options, page);
        }
        page.blank();
        explained
    }

    /// `12,384 calls, 1.8 s, 55.9 %`; with several layers these are in the tables above.
    fn sums(&self, numbers: &Numbers) -> Option<String> {
        let &[layer] = self.layers else {
            return None;
        };
        let (sums, total) = (numbers.sums(layer), self.groups.total.sums(layer));
        if sums.count == 0 {
            return Some(format!(
                "no {}s",
                if layer == Some(Layer::Blk) {
                    "request"
                } else {
                    "I/O call"
                }
            ));
        }
        let what = if layer == Some(Layer::Blk) { "request" } else { "call" };
        Some(format!(
            "{}, {}, {}",
            counted(sums.count, what),
            time_sum(sums.ns),
            percent(sums.ns, total.ns)
        ))
    }
}

/// Whether any of a layer's calls belong to a group.
pub fn has_calls(groups: &GroupsReport, layer: &LayerReport) -> bool {
    groups.total.sums(Some(layer.layer)).count > 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::histogram::Histogram;

    #[test]
    fn calls_without_a_user_may_have_a_file() {
        assert_eq!(unowned_calls(By::File), "calls that take a path, failed opens");
        assert_eq!(unowned_calls(By::User), "calls of threads that are not known");
    }

    #[test]
    fn reads_of_no_process_are_not_flushes() {
        let ended = |op| {
            let mut histogram = Histogram::default();
            histogram.record(1);
            OpReport {
                histogram,
                ..OpReport::new(op)
            }
        };
        let flush = ended(Op::Flush);
        let only_flushes = unowned_requests(By::Process, &[OpReport::new(Op::Read), flush.clone()]);
        assert_eq!(only_flushes, "flushes, each of which serves several processes");
        let with_reads = unowned_requests(By::Process, &[ended(Op::Read), flush]);
        assert!(
            with_reads.starts_with("requests whose process is not known; "),
            "{with_reads}"
        );
    }
}
