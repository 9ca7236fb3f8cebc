//! Runs the tool, and parses its text report.

use crate::guest::{Guest, Running, wait_for};
use crate::workload::{Calls, Count, DEVICE, OTHER, PIPE, SOCKET};
use nix::sys::signal::Signal;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::process::Command;
use std::time::Duration;

/// How long the tool may take to begin. All layers are a million instructions for the verifier, which takes minutes to
/// emulate on a busy machine.
const BEGIN_BOUND: Duration = Duration::from_secs(400);
/// How long it may take to end after its signal: a hundred probes take seconds to detach.
const END_BOUND: Duration = Duration::from_secs(120);
/// How many lines of its standard error are shown for a failure.
const SHOWN: usize = 25;
/// The file for its reports. Each check runs by itself.
pub const FILE: &str = "/tmp/report";

/// The running tool. Dropping it kills it.
pub struct Tool {
    running: Running,
    /// The selected layer if there is one: its report does not name it.
    only_layer: String,
}

/// The output of a tool that has ended.
#[derive(Debug)]
pub struct Ended {
    pub reports: Vec<Report>,
    /// The original text.
    pub text: String,
}

impl Tool {
    /// Starts it and waits until it measures. Reports go to a file, with exact totals.
    pub fn start(guest: &Guest, arguments: &[&str]) -> Result<Self, String> {
        Self::start_by(Command::new(guest.tool().ok_or("there is no tool")?), arguments)
    }

    /// The same for a command that executes the tool.
    pub fn start_by(mut command: Command, arguments: &[&str]) -> Result<Self, String> {
        // Removes the file of an earlier check.
        let _ = std::fs::remove_file(FILE);
        let running = Running::start(command.args(["--verbose", "-o", FILE]).args(arguments))?;
        let mut over = false;
        let begun = wait_for("the tool to begin", BEGIN_BOUND, || {
            over = has_ended(&running);
            over || running.stderr().lines().any(|line| line.starts_with("Tracing "))
        });
        match begun {
            // With a short command, it may have begun and ended since the last check.
            Ok(()) if over && !arguments.contains(&"--") => {
                let output = running.finish(END_BOUND)?;
                let last = last_lines(&output.stderr);
                Err(format!("{arguments:?}: {} before it began:\n{last}", output.status))
            }
            Ok(()) => Ok(Self {
                running,
                only_layer: only_layer(arguments),
            }),
            Err(reason) => Err(format!("{arguments:?}: {reason}:\n{}", last_lines(&running.stderr()))),
        }
    }

    /// Sends SIGINT, as Ctrl-C does.
    pub fn interrupt(&self) -> Result<(), String> {
        self.running.signal(Signal::SIGINT)
    }

    /// Its stderr so far.
    pub fn said(&self) -> String {
        self.running.stderr()
    }

    /// Waits for its end, which must be a success.
    pub fn finish(self) -> Result<Ended, String> {
        let only_layer = self.only_layer.clone();
        let text = self.written()?;
        let reports = parse(&text, &only_layer).map_err(|e| format!("{e}, in\n{text}"))?;
        Ok(Ended { reports, text })
    }

    /// The same, with the original text of the reports.
    pub fn written(self) -> Result<String, String> {
        self.end()?;
        std::fs::read_to_string(FILE).map_err(|e| format!("{FILE}: {e}"))
    }

    /// Waits for its end, which must be a success, and leaves its reports in the file.
    pub fn end(self) -> Result<(), String> {
        let output = self.running.finish(END_BOUND)?;
        if output.status.success() {
            Ok(())
        } else {
            Err(format!("the tool: {}\n{}", output.status, last_lines(&output.stderr)))
        }
    }
}

fn only_layer(arguments: &[&str]) -> String {
    let named = arguments.iter().skip_while(|word| **word != "-T").nth(1);
    named
        .filter(|layers| !layers.contains(','))
        .map_or_else(String::new, |layer| (*layer).into())
}

impl Ended {
    /// The report of a run with a single one.
    pub fn report(&self) -> Result<&Report, String> {
        match self.reports.as_slice() {
            [report] => Ok(report),
            all => Err(format!("{} reports instead of one:\n{}", all.len(), self.text)),
        }
    }
}

fn has_ended(process: &Running) -> bool {
    let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    !matches!(waitid(Id::Pid(process.pid()), look), Ok(WaitStatus::StillAlive))
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(SHOWN)..].join("\n")
}

#[derive(Debug, Default)]
pub struct Report {
    pub layers: Vec<Layer>,
}

#[derive(Debug, Default)]
pub struct Layer {
    pub name: String,
    pub ops: BTreeMap<String, Op>,
    pub hooks: Vec<String>,
    /// By kind, with the names of JSON reports.
    pub excluded: BTreeMap<String, u64>,
    /// Calls under way at the end.
    pub unfinished: u64,
    /// The text after `LOST`, and its number.
    pub lost: Option<(u64, String)>,
    pub not_measured: Vec<String>,
    pub warnings: Vec<String>,
    /// At blk: the text after `diskstats`, such as `agrees: 3 reads, 1 write`.
    pub diskstats: Option<String>,
    /// Requests of kernel threads, which were not counted.
    pub of_kernel_threads: Option<u64>,
    pub not_attributed: Option<String>,
    pub not_timed: Option<String>,
    /// Requests whose completion is not seen, by op.
    pub submitted_alone: Option<String>,
}

#[derive(Debug, Default, Clone)]
pub struct Op {
    pub count: Count,
    /// The count of each error.
    pub errors: BTreeMap<String, u64>,
    /// At blk, if it is measured and known.
    pub queued_ns: Option<u64>,
    pub total_ns: u64,
    pub min_ns: u64,
    pub max_ns: u64,
    /// The histogram's rows: the lower edge of each in the chosen unit, and its count.
    pub rows: BTreeMap<u64, u64>,
}

/// Lines that the tool wraps if they are longer than the screen.
const FOLDED: [&str; 13] = [
    "exact: ",
    "hooks: ",
    "errors: ",
    "excluded: ",
    "LOST ",
    "not measured: ",
    "unfinished: ",
    "warning: ",
    "diskstats ",
    "kernel threads: ",
    "not attributed: ",
    "not timed: ",
    "queue time begins at: ",
];

/// Every report of a run. A report that contradicts itself is an error.
fn parse(text: &str, only_layer: &str) -> Result<Vec<Report>, String> {
    let mut reports: Vec<Report> = Vec::new();
    let mut histogram = String::new();
    for line in unfold(text) {
        if is_heading(&line) {
            let layer = Layer {
                name: only_layer.into(),
                ..Layer::default()
            };
            reports.push(Report { layers: vec![layer] });
            continue;
        }
        let layers = &mut reports
            .last_mut()
            .ok_or_else(|| format!("no heading before {line:?}"))?
            .layers;
        if let Some(name) = line.strip_prefix("layer = ") {
            // The report that the heading began is this one.
            layers.retain(|layer| !layer.name.is_empty());
            layers.push(Layer {
                name: name.into(),
                ..Layer::default()
            });
            continue;
        }
        let layer = layers.last_mut().ok_or("no layer")?;
        if let Some(op) = line.strip_prefix("operation = ") {
            histogram = op.into();
        } else if let Some((from, (_, row))) = row_of(&line) {
            let count = row.split('|').next().unwrap_or_default();
            let op = layer.ops.entry(histogram.clone()).or_default();
            op.rows.insert(number(from)?, number(count)?);
        } else {
            take(&line, layer).map_err(|e| format!("{line:?}: {e}"))?;
        }
    }
    for (name, op) in reports
        .iter()
        .flat_map(|report| &report.layers)
        .flat_map(|layer| &layer.ops)
    {
        let Op {
            count,
            total_ns,
            min_ns,
            max_ns,
            rows,
            ..
        } = op;
        let bounds = u128::from(*min_ns) * u128::from(count.calls)..=u128::from(*max_ns) * u128::from(count.calls);
        if count.calls != rows.values().sum::<u64>() || !bounds.contains(&u128::from(*total_ns)) {
            return Err(format!("{name} contradicts itself: {op:?}"));
        }
    }
    Ok(reports)
}

/// `     65536 -> 131071     : 1532     |****`: the edges, and the rest.
fn row_of(line: &str) -> Option<(&str, (&str, &str))> {
    let (from, rest) = line.split_once(" -> ")?;
    Some((from, rest.split_once(" : ")?))
}

/// `11:05:10  12.4 s  nvme0n1`
fn is_heading(line: &str) -> bool {
    let shape = |byte: u8| if byte.is_ascii_digit() { b'0' } else { byte };
    let start: Vec<u8> = line.bytes().take(10).map(shape).collect();
    start == b"00:00:00  "
}

/// Joins the lines that the tool wrapped.
pub fn unfold(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        let open = lines
            .last_mut()
            .filter(|last| FOLDED.iter().any(|start| last.starts_with(start)));
        match (open, line.strip_prefix("  ")) {
            (Some(last), Some(rest)) => {
                last.push(' ');
                last.push_str(rest);
            }
            _ => lines.push(line.into()),
        }
    }
    lines
}

/// A line about a layer as a whole, or the exact numbers of an op.
fn take(line: &str, layer: &mut Layer) -> Result<(), String> {
    if let Some(rest) = line.strip_prefix("exact: ") {
        let words: Vec<&str> = rest.split(' ').collect();
        let (words, queued) = match words.as_slice() {
            [words @ .., queued, "queued"] => (words, Some(number(queued)?)),
            words => (words, None),
        };
        let &[op, calls, "calls", ns, "ns", bytes, "bytes", min, "min", max, "max"] = words else {
            return Err("not the exact numbers of an operation".into());
        };
        let op = layer.ops.entry(op.into()).or_default();
        op.queued_ns = queued;
        (op.count.calls, op.count.bytes) = (number(calls)?, number(bytes)?);
        (op.total_ns, op.min_ns, op.max_ns) = (number(ns)?, number(min)?, number(max)?);
    } else if let Some(rest) = line.strip_prefix("hooks: ") {
        layer.hooks = rest.split(", ").map(Into::into).collect();
    } else if let Some(rest) = line.strip_prefix("errors: ") {
        // read 3 (EIO 2, EAGAIN 1); write 1 (EIO 1)
        for part in rest.split("; ") {
            let (op, rest) = part.split_once(' ').ok_or("no operation")?;
            let (errors, each) = rest.split_once(" (").ok_or("no errors by name")?;
            let op = layer.ops.entry(op.into()).or_default();
            op.count.errors = number(errors)?;
            for error in each.trim_end_matches(')').split(", ") {
                let (name, times) = error.split_once(' ').ok_or("no error's number")?;
                op.errors.insert(name.into(), number(times)?);
            }
        }
    } else if let Some(rest) = line.strip_prefix("excluded: ") {
        layer.excluded = excluded(rest)?;
    } else if let Some(rest) = line.strip_prefix("unfinished: ") {
        layer.unfinished = number(rest.split(' ').next().unwrap_or_default())?;
    } else if let Some(rest) = line.strip_prefix("LOST ") {
        let count = rest.strip_prefix("up to ").unwrap_or(rest);
        layer.lost = Some((number(count.split(' ').next().unwrap_or_default())?, rest.into()));
    } else if let Some(rest) = line.strip_prefix("not measured: ") {
        layer.not_measured.push(rest.into());
    } else if let Some(rest) = line.strip_prefix("warning: ") {
        layer.warnings.push(rest.into());
    } else if let Some(rest) = line.strip_prefix("diskstats ") {
        layer.diskstats = Some(rest.into());
    } else if let Some(rest) = line.strip_prefix("kernel threads: ") {
        layer.of_kernel_threads = Some(number(rest.split(' ').next().unwrap_or_default())?);
    } else if let Some(rest) = line.strip_prefix("not attributed: ") {
        layer.not_attributed = Some(rest.into());
    } else if let Some(rest) = line.strip_prefix("not timed: ") {
        layer.not_timed = Some(rest.into());
    } else if let Some(rest) = line.strip_prefix("asynchronous: ") {
        layer.submitted_alone = Some(rest.into());
    }
    Ok(())
}

/// `5 calls: 3 on sockets, 2 on pipes (--all-files)`, `1 call on a pipe (--all-files)`.
fn excluded(line: &str) -> Result<BTreeMap<String, u64>, String> {
    const KINDS: [(&str, &str); 4] = [
        ("socket", SOCKET),
        ("pipe", PIPE),
        ("character device", DEVICE),
        ("eventfd", OTHER),
    ];
    let wrong = || format!("{line:?} has no kinds");
    let reported = line.strip_suffix(" (--all-files)").ok_or_else(wrong)?;
    let (all, parts) = reported.split_once(": ").unwrap_or((reported, reported));
    let mut kinds = BTreeMap::new();
    for part in parts.split(", ") {
        let (calls, on) = part.split_once(" on ").ok_or_else(wrong)?;
        let calls = number(calls.split(' ').next().unwrap_or_default())?;
        let (_, kind) = KINDS.iter().find(|(name, _)| on.contains(name)).ok_or_else(wrong)?;
        if calls == 0 || kinds.insert((*kind).into(), calls).is_some() {
            return Err(wrong());
        }
    }
    if number(all.split(' ').next().unwrap_or_default())? != kinds.values().sum::<u64>() {
        return Err(format!("{line:?} does not add up"));
    }
    Ok(kinds)
}

/// A number as reports write it, with commas.
pub fn number(text: &str) -> Result<u64, String> {
    text.trim()
        .replace(',', "")
        .parse()
        .map_err(|_| format!("{text:?} is no number"))
}

impl Report {
    pub fn layer(&self, name: &str) -> Result<&Layer, String> {
        let found = self.layers.iter().find(|layer| layer.name == name);
        found.ok_or_else(|| format!("no layer {name} in the report"))
    }

    pub fn calls(&self) -> Calls {
        let mut calls = Calls::default();
        for layer in &self.layers {
            let ops = layer
                .ops
                .iter()
                .map(|(op, reported)| ((layer.name.clone(), op.clone()), reported.count.clone()));
            calls.ops.extend(ops);
            let kinds = layer.excluded.iter();
            let kinds = kinds.map(|(kind, &excluded)| ((layer.name.clone(), kind.clone()), excluded));
            calls.excluded.extend(kinds);
        }
        calls
    }

    /// Whether the layers report exactly the truth, and nothing as missing.
    pub fn is_exactly(&self, truth: &Calls) -> Result<(), String> {
        let reported = self.calls();
        let mut wrong = String::new();
        for layer in &self.layers {
            let name = &layer.name;
            let ops: BTreeSet<&(String, String)> = reported.ops.keys().chain(truth.ops.keys()).collect();
            for op in ops.into_iter().filter(|(layer, _)| layer == name) {
                let [reported, is] = [&reported, truth].map(|calls| calls.ops.get(op).cloned().unwrap_or_default());
                if reported != is {
                    let _ = writeln!(wrong, "{name} {}: reported {reported:?}, is {is:?}", op.1);
                }
            }
            let [reported, is] = [&reported, truth].map(|calls| {
                let excluded = calls.excluded.iter().filter(|((layer, _), _)| layer == name);
                excluded.collect::<BTreeMap<_, _>>()
            });
            if reported != is {
                let _ = writeln!(wrong, "{name}: reported {reported:?} excluded, is {is:?}");
            }
            if let Some((_, lost)) = &layer.lost {
                let _ = writeln!(wrong, "{name}: LOST {lost}");
            }
            if layer.unfinished > 0 {
                let _ = writeln!(wrong, "{name}: {} unfinished", layer.unfinished);
            }
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong) }
    }
}

impl Layer {
    pub fn count(&self, op: &str) -> Count {
        self.ops.get(op).map(|op| op.count.clone()).unwrap_or_default()
    }

    pub fn says_of_diskstats(&self, start: &str) -> bool {
        self.diskstats.as_deref().is_some_and(|line| line.starts_with(start))
    }

    /// Writes that were never issued, from the line about diskstats: `24` in `(24 of them never issued)`.
    pub fn never_issued(&self) -> u64 {
        let forms = [" of them never issued", " writes never issued", " write never issued"];
        forms.iter().map(|words| self.in_diskstats(words)).sum()
    }

    /// The number before these words in the line about diskstats: `7` in ` (7 unfinished at start)`.
    pub fn in_diskstats(&self, words: &str) -> u64 {
        let before = self
            .diskstats
            .as_deref()
            .and_then(|line| Some(line.split_once(words)?.0));
        let number = |before: &str| number(before.rsplit([' ', '(']).next()?).ok();
        before.and_then(number).unwrap_or(0)
    }
}
