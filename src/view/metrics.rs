//! Metrics in the text format of Prometheus, from a report of everything since the start of the run.
//!
//! Every counter is one of the kernel side's own, so a scrape costs a read of them. The number of series is bounded: the
//! values of each label come from a fixed list, but for groups, of which at most [`GROUPS`] have series of their own.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use crate::model::cost::SECOND;
use crate::model::histogram::Histogram;
use crate::model::ids::{By, Family, Layer, LossReason, ReadClass, Row};
use crate::model::owner::Pod;
use crate::model::report::group::{GroupsReport, Numbers, Who};
use crate::model::report::stack::FamilyReport;
use crate::model::report::{LayerReport, OpReport, Report};

/// Names of groups that have series of their own. A name that has them keeps them; all others share one set.
pub const GROUPS: usize = 100;

/// The label of all groups without series of their own.
const OTHERS: &str = "others";

/// Longest value of a label, in bytes.
const LONGEST: usize = 256;

/// Upper bounds of histograms: powers of two of a nanosecond, 1.024 us to 34 s, as exponents.
const BOUNDS: std::ops::RangeInclusive<usize> = 10..=35;

/// Writes metrics; remembers what groups have counted under each name, so that no counter goes backwards when one is renamed.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    version: String,
    /// Those with series of their own, and all others together.
    groups: BTreeMap<Labels, Numbers>,
}

impl Metrics {
    /// `version`: of the tool.
    #[must_use]
    pub fn new(version: &str) -> Self {
        Self {
            version: version.to_owned(),
            groups: BTreeMap::new(),
        }
    }

    /// All metrics. `report` covers the run so far, and `latest` is what all of its groups have counted since the last page.
    #[must_use]
    pub fn print(&mut self, report: &Report, latest: Option<&GroupsReport>) -> String {
        let mut page = Page::default();
        self.build_info(report, &mut page);
        sample(report, &mut page);
        if let Some(latest) = latest {
            self.add(latest);
        }
        let groups = self.groups.iter().map(|(labels, numbers)| Group { labels, numbers });
        let groups: Vec<Group<'_>> = groups.collect();
        calls(report, &groups, &mut page);
        operations(report, &mut page);
        requests(report, &groups, &mut page);
        background(report, &mut page);
        served(report, &mut page);
        losses(report, &mut page);
        costs(report, &mut page);
        page.text
    }

    fn build_info(&self, report: &Report, page: &mut Page) {
        let mut hooks: Vec<&str> = report
            .layers
            .iter()
            .flat_map(|layer| layer.hooks.iter().map(|hook| hook.name()))
            .collect();
        hooks.sort_unstable();
        hooks.dedup();
        page.metric(
            "build_info",
            Kind::Gauge,
            "Version of the tool, release of the kernel, and the hooks in use.",
        );
        let labels = [
            ("version", self.version.as_str()),
            ("kernel", &report.kernel),
            ("hook", &hooks.join(" ")),
        ];
        page.sample("", &labels, 1);
    }

    /// Adds what groups have counted to the series of the names that they have now.
    fn add(&mut self, latest: &GroupsReport) {
        let others = vec![(latest.by.name(), OTHERS.to_owned())];
        for group in &latest.groups {
            let labels = labels_of(latest.by, &group.who);
            let named = || self.groups.keys().filter(|known| **known != others).count();
            let has_series = self.groups.contains_key(&labels) || named() < GROUPS;
            let labels = if has_series { labels } else { others.clone() };
            self.groups.entry(labels).or_default().add(&group.numbers);
        }
        if let Some(rest) = &latest.others {
            self.groups.entry(others).or_default().add(&rest.numbers);
        }
    }
}

/// Which part of the calls is measured, if not all are.
fn sample(report: &Report, page: &mut Page) {
    let Some(sample) = report.sample else { return };
    page.metric(
        "sample_ratio",
        Kind::Gauge,
        "The part of the calls that is measured (--sample); numbers of calls are estimates for all of them.",
    );
    page.sample("", &[], 1.0 / f64::from(sample.one_in()));
}

/// The numbers of one group, or of all without series of their own.
struct Group<'a> {
    labels: &'a Labels,
    numbers: &'a Numbers,
}

/// Names and values.
type Labels = Vec<(&'static str, String)>;

/// The labels of a group. Processes of one name share them: numbers of processes are not bounded. So do groups whose names
/// differ only in what is not printed: a page may have no two series with the same labels.
fn labels_of(by: By, who: &Who) -> Labels {
    let labels = whole_labels_of(by, who).into_iter();
    labels.map(|(name, value)| (name, cleaned(&value))).collect()
}

fn whole_labels_of(by: By, who: &Who) -> Labels {
    let of_pod = |pod: &Pod| [("namespace", pod.namespace.clone()), ("pod", pod.name.clone())];
    match who {
        Who::Process { comm, .. } => vec![(by.name(), comm.clone())],
        Who::Pod(pod) => of_pod(pod).into(),
        Who::Container(container) => {
            let pod = container.pod.iter().flat_map(of_pod);
            pod.chain([(by.name(), container.name.clone())]).collect()
        }
        other => vec![(by.name(), other.name())],
    }
}

/// The families of calls, with the label of their group if there are groups.
fn families<'a>(report: &'a Report, groups: &'a [Group<'a>]) -> Vec<(Option<&'a Group<'a>>, &'a FamilyReport)> {
    let Some(stack) = &report.stack else {
        return Vec::new();
    };
    if groups.is_empty() {
        return stack.families.iter().map(|family| (None, family)).collect();
    }
    let of_group = |group: &'a Group<'a>| group.numbers.families.iter().map(move |family| (Some(group), family));
    groups.iter().flat_map(of_group).collect()
}

/// `labels`, and that of the group.
fn with_group<'a>(labels: &[(&'a str, &'a str)], group: Option<&'a Group<'a>>) -> Vec<(&'a str, &'a str)> {
    let of_group = group.into_iter().flat_map(|group| group.labels);
    let of_group = of_group.map(|(name, value)| (*name, value.as_str()));
    labels.iter().copied().chain(of_group).collect()
}

/// The whole stack's calls.
fn calls(report: &Report, groups: &[Group<'_>], page: &mut Page) {
    let families = families(report, groups);
    let Some(stack) = &report.stack else { return };
    page.metric(
        "call_row_seconds_total",
        Kind::Counter,
        "Time of I/O system calls by where it was spent; the rows of a family add up to the time of its calls.",
    );
    for (group, family) in &families {
        for row in &family.rows {
            let Some(ns) = row.ns else { continue };
            let kind = if row.row.is_wait() { "wait" } else { "layer" };
            let labels = [
                ("family", family.family.name()),
                ("row", row_name(row.row)),
                ("kind", kind),
            ];
            page.sample("", &with_group(&labels, *group), Seconds(ns));
        }
    }
    type Of = fn(&FamilyReport) -> u64;
    let counters: [(&str, &str, Of); 3] = [
        ("calls_total", "I/O system calls that returned.", FamilyReport::count),
        ("call_errors_total", "I/O system calls that failed.", |family| {
            family.errors
        }),
        ("call_bytes_total", "Bytes that I/O system calls moved.", |family| {
            family.bytes
        }),
    ];
    for (name, help, of) in counters {
        page.metric(name, Kind::Counter, help);
        for (group, family) in &families {
            let labels = [("family", family.family.name())];
            page.sample("", &with_group(&labels, *group), of(family));
        }
    }
    page.metric(
        "call_duration_seconds",
        Kind::Histogram,
        "Durations of I/O system calls.",
    );
    for family in &stack.families {
        let labels = [("family", family.family.name())];
        page.histogram(&labels, &family.histogram, family.total_ns);
    }
    page.metric("reads_total", Kind::Counter, "Reads by where their data came from.");
    let read = stack.families.iter().find(|family| family.family == Family::Read);
    for class in read.map_or(&[][..], |read| &read.classes) {
        page.sample("", &[("source", source_name(class.class))], class.calls);
    }
}

/// A row's name without blanks and apostrophes.
fn row_name(row: Row) -> &'static str {
    match row {
        Row::Others => "others_io",
        Row::RunQueue => "run_queue",
        row => row.name(),
    }
}

fn source_name(class: ReadClass) -> &'static str {
    match class {
        ReadClass::FromCache => "cache",
        ReadClass::WaitedForOwn => "own_io",
        ReadClass::WaitedForOthers => "others_io",
        ReadClass::ReadAheadOnly => "readahead",
        ReadClass::Direct => "direct",
    }
}

/// The layers measured one by one (`-T`), above the block layer.
fn operations(report: &Report, page: &mut Page) {
    if report.stack.is_some() {
        return;
    }
    page.metric(
        "operation_duration_seconds",
        Kind::Histogram,
        "Durations of the operations of a layer, those of the layers below included.",
    );
    for layer in report.layers.iter().filter(|layer| layer.layer != Layer::Blk) {
        for op in layer.ops.iter().filter(|op| op.count() > 0) {
            let labels = [("layer", layer.layer.name()), ("operation", op.op.name())];
            page.histogram(&labels, &op.histogram, op.total_ns);
        }
    }
}

/// The requests of a disk, or of all disks.
struct Requests<'a> {
    device: &'a str,
    ops: &'a [OpReport],
}

fn requests_of<'a>(report: &'a Report, groups: &'a [Group<'a>]) -> Vec<Requests<'a>> {
    let by_disk = report.groups.as_ref().is_some_and(|groups| groups.by == By::Disk);
    if by_disk && report.stack.is_none() {
        let of = |group: &'a Group<'a>| {
            let (_, device) = group.labels.first()?;
            let ops = group.numbers.ops(Layer::Blk);
            Some(Requests { device, ops })
        };
        return groups.iter().filter_map(of).collect();
    }
    let blk = report.layers.iter().find(|layer| layer.layer == Layer::Blk);
    let device = report.filter.disk.as_deref().unwrap_or("all");
    blk.map(|blk| Requests { device, ops: &blk.ops }).into_iter().collect()
}

fn requests(report: &Report, groups: &[Group<'_>], page: &mut Page) {
    let disks = requests_of(report, groups);
    if disks.is_empty() {
        return;
    }
    let used = || {
        let ops = disks
            .iter()
            .flat_map(|disk| disk.ops.iter().map(|op| (disk.device, op)));
        ops.filter(|(_, op)| op.count() > 0)
    };
    page.metric(
        "request_duration_seconds",
        Kind::Histogram,
        "Durations of requests: of the device, and with --queued of the queue, too.",
    );
    for (device, op) in used() {
        let labels = [("device", device), ("operation", op.op.name())];
        page.histogram(&labels, &op.histogram, op.total_ns);
    }
    page.metric(
        "request_queue_seconds_total",
        Kind::Counter,
        "The part of the durations of requests that is in the queue (--queued).",
    );
    for (device, op) in used() {
        if let Some(ns) = op.queue_ns {
            page.sample("", &[("device", device), ("operation", op.op.name())], Seconds(ns));
        }
    }
    page.metric("request_bytes_total", Kind::Counter, "Bytes that requests moved.");
    for (device, op) in used() {
        if let Some(bytes) = op.bytes {
            page.sample("", &[("device", device), ("operation", op.op.name())], bytes);
        }
    }
}

/// Requests that no call waited for.
fn background(report: &Report, page: &mut Page) {
    let Some(origins) = report.stack.as_ref().and_then(|stack| stack.not_waited.as_ref()) else {
        return;
    };
    let direction = |is_write: bool| if is_write { "write" } else { "read" };
    page.metric(
        "background_requests_total",
        Kind::Counter,
        "Requests that no call waited for, by who submitted them.",
    );
    for origin in origins {
        let labels = [
            ("origin", origin.origin.name()),
            ("direction", direction(origin.is_write)),
        ];
        page.sample("", &labels, origin.requests);
    }
    page.metric(
        "background_requests_seconds_total",
        Kind::Counter,
        "Time at the device of requests that no call waited for.",
    );
    for origin in origins {
        let labels = [
            ("origin", origin.origin.name()),
            ("direction", direction(origin.is_write)),
        ];
        page.sample("", &labels, Seconds(origin.device_ns));
    }
}

/// What disks served while the measured requests waited.
fn served(report: &Report, page: &mut Page) {
    let layers = report.layers.iter();
    let Some(neighbours) = layers.filter_map(|layer| layer.neighbours.as_ref()).next() else {
        return;
    };
    page.metric(
        "served_while_waiting_seconds_total",
        Kind::Counter,
        "What the disks served while the measured requests waited: these requests themselves, others, or none.",
    );
    let device = report.filter.disk.as_deref().unwrap_or("all");
    let others = neighbours.others.iter().map(|other| other.ns);
    let others = others.fold(neighbours.untold_ns, u64::saturating_add);
    for (whose, ns) in [
        ("own", neighbours.own_ns),
        ("others", others),
        ("idle", neighbours.idle_ns),
    ] {
        page.sample("", &[("device", device), ("whose", whose)], Seconds(ns));
    }
}

fn losses(report: &Report, page: &mut Page) {
    page.metric(
        "lost_events_total",
        Kind::Counter,
        "Calls and requests that are in no histogram, by layer and reason.",
    );
    for layer in &report.layers {
        for (reason, count) in lost(layer) {
            page.sample("", &[("layer", layer.layer.name()), ("reason", reason)], count);
        }
    }
    let Some(stack) = &report.stack else { return };
    page.metric(
        "unbalanced_total",
        Kind::Counter,
        "Events without their counterpart; the rows add up nevertheless.",
    );
    let unbalanced = &stack.unbalanced;
    for (reason, count) in [
        ("entry", unbalanced.entries),
        ("return", unbalanced.returns),
        ("too_deep", unbalanced.too_deep),
        ("sleep", unbalanced.sleeps),
    ] {
        page.sample("", &[("reason", reason)], count);
    }
}

/// Lost samples by reason: 0 for each that is counted, since a counter that begins with its first loss has no increase.
fn lost(layer: &LayerReport) -> BTreeMap<&'static str, u64> {
    let is_unknown = |reason: &LossReason| layer.skips_unknown && *reason == LossReason::EntryMissed;
    let counted = LossReason::ALL.into_iter().filter(|_| !layer.ops.is_empty());
    let counted = counted.filter(|reason| !is_unknown(reason));
    let mut sums: BTreeMap<&'static str, u64> = counted.map(|reason| (reason.name(), 0)).collect();
    for loss in &layer.losses {
        let sum = sums.entry(loss.reason.name()).or_default();
        *sum = sum.saturating_add(loss.count);
    }
    sums
}

fn costs(report: &Report, page: &mut Page) {
    page.metric(
        "own_cpu_seconds_total",
        Kind::Counter,
        "CPU time of the tool's own process.",
    );
    page.sample("", &[], Seconds(nanoseconds(report.cost.process)));
    if report.cost.has_runs {
        page.metric(
            "probe_seconds_total",
            Kind::Counter,
            "CPU time of the programs in the kernel, by the layer that they serve.",
        );
        let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
        for probe in &report.probes {
            let runs = [probe.entry, probe.leave].into_iter().flatten();
            let ns = runs.fold(0, |sum: u64, runs| sum.saturating_add(runs.ns));
            let sum = sums.entry(probe.layer.map_or("several", Layer::name)).or_default();
            *sum = sum.saturating_add(ns);
        }
        for (layer, ns) in sums {
            page.sample("", &[("layer", layer)], Seconds(ns));
        }
    }
    if let Some(budget) = &report.cost.budget {
        page.metric(
            "budget_cpus",
            Kind::Gauge,
            "CPU time per second that --budget allows: 0.05 is 5 % of one CPU.",
        );
        page.sample("", &[], Seconds(budget.limit.ns_per_s));
    }
    page.metric(
        "detached",
        Kind::Gauge,
        "1 if a layer was detached to keep the limit of --budget: its counters stay as they were then.",
    );
    let detached = report.cost.budget.as_ref().map_or(&[][..], |budget| &budget.detached);
    for layer in &report.layers {
        let is_detached = detached.iter().any(|one| one.layer == layer.layer);
        page.sample("", &[("layer", layer.layer.name())], u64::from(is_detached));
    }
}

fn nanoseconds(time: std::time::Duration) -> u64 {
    crate::model::report::nanoseconds(time)
}

/// The type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// Nanoseconds, written in seconds with all their digits.
struct Seconds(u64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / SECOND, self.0 % SECOND);
        if rest == 0 {
            return write!(f, "{whole}");
        }
        let digits = format!("{rest:09}");
        write!(f, "{whole}.{}", digits.trim_end_matches('0'))
    }
}

/// The metrics written so far.
#[derive(Debug, Default)]
struct Page {
    text: String,
    /// The name of the current metric.
    name: String,
}

impl Page {
    /// Begins a metric. Its samples follow.
    fn metric(&mut self, name: &str, kind: Kind, help: &str) {
        self.name = format!("iostack_{name}");
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let name = &self.name;
        let _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    /// A sample of the current metric. Its value has no more digits than a reader keeps (2^53) in any run of up to
    /// hundred days.
    fn sample(&mut self, suffix: &str, labels: &[(&str, &str)], value: impl fmt::Display) {
        self.text.push_str(&self.name);
        self.text.push_str(suffix);
        for (index, (label, value)) in labels.iter().enumerate() {
            let before = if index == 0 { '{' } else { ',' };
            let _ = write!(self.text, "{before}{label}=\"{}\"", escaped(value));
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }

    /// A histogram of the current metric. A call of exactly a bound is counted above it, since steps begin there.
    fn histogram(&mut self, labels: &[(&str, &str)], histogram: &Histogram, total_ns: u64) {
        let slots = histogram.powers_of_two();
        let mut sum = slots
            .iter()
            .take(*BOUNDS.start())
            .fold(0, |sum: u64, n| sum.saturating_add(*n));
        for exponent in BOUNDS {
            let bound = Seconds(1 << exponent).to_string();
            let with_bound: Vec<_> = labels.iter().copied().chain([("le", bound.as_str())]).collect();
            self.sample("_bucket", &with_bound, sum);
            sum = sum.saturating_add(slots.get(exponent).copied().unwrap_or(0));
        }
        let count = histogram.count();
        let all: Vec<_> = labels.iter().copied().chain([("le", "+Inf")]).collect();
        self.sample("_bucket", &all, count);
        self.sample("_sum", labels, Seconds(total_ns));
        self.sample("_count", labels, count);
    }
}

/// A label's value, quoted as the format wants it.
fn escaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for c in cleaned(value).chars() {
        match c {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            c => text.push(c),
        }
    }
    text
}

/// A value without control characters but line feeds, of at most [`LONGEST`] bytes. Doing it twice changes nothing more.
fn cleaned(value: &str) -> String {
    const CUT: char = '…';
    let replaced = |c: char| {
        if c.is_control() && c != '\n' {
            char::REPLACEMENT_CHARACTER
        } else {
            c
        }
    };
    let mut text: String = value.chars().map(replaced).collect();
    if text.len() > LONGEST {
        text.truncate(text.floor_char_boundary(LONGEST - CUT.len_utf8()));
        text.push(CUT);
    }
    text
}
