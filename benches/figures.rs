//! The figures of the table of costs, with their targets and limits, a line each.
//!
//! The guest runner (`tests/vm`) measures them, in `checks/costs.rs`. A figure has the unit of its row.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// How far a figure may exceed its pinned value: counts repeat within 1 %, and compilers make a small difference.
const MARGIN_PERCENT: u64 = 3;

/// Figures by kernel and name. Those measured on the machine itself have the kernel [`HERE`].
pub type Figures = BTreeMap<(String, String), u64>;
pub const HERE: &str = "here";

/// The last deliberate value of each figure. Pin a lower result anew; a higher one needs a reason in the commit that
/// raises it.
#[rustfmt::skip]
const PINNED: &[(&str, &str, u64)] = &[
    ("6.1", "vfs fentry", 590),
    ("6.1", "ext4 fentry", 594),
    ("6.1", "vfs kprobe", 1_188),
    ("6.1", "vfs another", 344),
    ("6.1", "all layers", 1_690),
    ("6.1", "all layers recorded", 1_929),
    ("6.1", "blk", 708),
    ("6.1", "blk recorded", 1_149),
    ("6.1", "start syscall", 125),
    ("6.1", "start blk", 172),
    ("6.1", "start ext4", 493),
    ("6.1", "start", 531),
    ("6.1", "start all fentry", 1_770),
    ("6.1", "start all kprobe", 2_029),
    ("6.1", "memory", 9_364),
    ("6.1", "size", 7_139),
    ("7", "vfs fsession", 464),
    ("7", "vfs lossless", 1_019),
    ("7", "all layers", 3_150),
    ("7", "start all", 825),
    ("7", "start all by file", 941),
    ("7", "start all slower", 906),
];

/// How users say which processes are measured. What is pinned for the first one is the limit of all.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Selection {
    Process,
    Command,
    Descendants,
    All,
}

impl Selection {
    /// In the order of the columns.
    pub const EACH: [Self; 4] = [Self::Process, Self::Command, Self::Descendants, Self::All];

    /// The head of its column.
    fn head(self) -> &'static str {
        match self {
            Self::Process => "-p PID",
            Self::Command => "-- COMMAND",
            Self::Descendants => "-p PID -f",
            Self::All => "no filter",
        }
    }

    /// How the names of its figures end.
    pub fn end(self) -> &'static str {
        match self {
            Self::Process => "",
            Self::Command => " command",
            Self::Descendants => " -f",
            Self::All => " of all",
        }
    }

    /// Its words, which come last.
    pub fn words<'a>(self, pid: &'a str, command: &[&'a str]) -> Vec<&'a str> {
        match self {
            Self::Process => vec!["-p", pid],
            Self::Command => [&["--"], command].concat(),
            Self::Descendants => vec!["-p", pid, "-f"],
            Self::All => Vec::new(),
        }
    }
}

/// An error if a figure exceeds its limit.
pub fn gate(kernel: &str, figure: &str, value: u64) -> Result<(), String> {
    let is_of = |pinned: &str| {
        let mut ends = Selection::EACH.into_iter().map(Selection::end);
        ends.any(|end| figure.strip_suffix(end) == Some(pinned))
    };
    let mut pinned = PINNED.iter().filter(|(k, f, _)| *k == kernel && is_of(f));
    match pinned.next() {
        Some((_, _, limit)) if value * 100 > limit * (100 + MARGIN_PERCENT) => Err(format!(
            "{value}, which is more than {MARGIN_PERCENT} % over the {limit} that benches/figures.rs has"
        )),
        _ => Ok(()),
    }
}

/// What a row shows.
enum Shown {
    Figure(&'static str),
    /// By how much a figure exceeds another.
    Over(&'static str, &'static str),
    /// A figure in relation to another.
    Ratio(&'static str, &'static str),
    /// A figure in relation to a published one.
    RatioTo(&'static str, u64),
    /// A figure of a selection in relation to that of the first.
    ToFirst(&'static str),
}
use Shown::{Figure, Over, Ratio, RatioTo, ToFirst};

struct Row {
    kernel: &'static str,
    what: &'static str,
    shown: Shown,
    unit: &'static str,
    /// The target, as a maximum.
    target: Option<f64>,
}

const fn row(kernel: &'static str, what: &'static str, shown: Shown, unit: &'static str, target: f64) -> Row {
    Row {
        kernel,
        what,
        shown,
        unit,
        target: Some(target),
    }
}

/// A row for comparison.
const fn beside(kernel: &'static str, what: &'static str, shown: Shown, unit: &'static str) -> Row {
    Row {
        kernel,
        what,
        shown,
        unit,
        target: None,
    }
}

/// Instructions added to a cached read by the original script, at one layer on 6.1 (BCC 0.26).
const SCRIPT: u64 = 2_215;

const INSTRUCTIONS: &str = "instr.";
const MILLIONS: &str = "M instr.";
const TIMES: &str = "times";

#[rustfmt::skip]
const ROWS: &[Row] = &[
    beside("6.1", "cached 1-byte pread, nothing attached", Figure("pread"), INSTRUCTIONS),
    beside("6.1", "  an empty fentry/fexit pair adds", Figure("floor"), INSTRUCTIONS),
    beside("6.1", "  an empty kprobe pair adds", Figure("floor kprobe"), INSTRUCTIONS),
    row("6.1", "  -T vfs -p PID by fentry adds", Figure("vfs fentry"), INSTRUCTIONS, 740.0),
    row("6.1", "    relative to the BCC script (2,215)", RatioTo("vfs fentry", SCRIPT), TIMES, 0.34),
    beside("6.1", "  ext4dist adds", Figure("ext4dist"), INSTRUCTIONS),
    beside("6.1", "  -T ext4 -p PID by fentry adds", Figure("ext4 fentry"), INSTRUCTIONS),
    row("6.1", "    of ext4dist", Ratio("ext4 fentry", "ext4dist"), TIMES, 0.54),
    row("6.1", "  -T vfs -p PID by kprobe pairs adds", Figure("vfs kprobe"), INSTRUCTIONS, 1_270.0),
    beside("6.1", "  -T vfs -p PID --sample 1/1000 adds", Figure("vfs sampled"), INSTRUCTIONS),
    beside("6.1", "  -T vfs -p PID --by process adds", Figure("vfs by process"), INSTRUCTIONS),
    beside("6.1", "  -T vfs -p PID --by file adds", Figure("vfs by file"), INSTRUCTIONS),
    beside("6.1", "  -T vfs --cgroup GROUP adds", Figure("vfs cgroup"), INSTRUCTIONS),
    beside("6.1", "  -T vfs -p ANOTHER adds", Figure("vfs another"), INSTRUCTIONS),
    row("6.1", "    of the empty pair", Ratio("vfs another", "floor"), TIMES, 1.2),
    row("6.1", "    with 1,000 threads, relative to one", Ratio("vfs 1000 threads", "vfs 1 threads"), TIMES, 1.1),
    row("6.12", "    on each of 8 CPUs, relative to one", Ratio("vfs 8 CPUs", "vfs 1 CPUs"), TIMES, 1.1),
    row("6.1", "    with blk as well, relative to vfs alone", Ratio("-T vfs,blk", "-T vfs"), TIMES, 1.1),
    row("6.1", "  all layers, -p PID, add", Figure("all layers"), INSTRUCTIONS, 1_800.0),
    beside("6.1", "    with --json", Figure("all layers json"), INSTRUCTIONS),
    beside("6.1", "    with --sample 1/1000", Figure("all layers sampled"), INSTRUCTIONS),
    beside("6.1", "    of a control group", Figure("all layers cgroup"), INSTRUCTIONS),
    row("6.1", "    recorded, more than not", Over("all layers recorded", "all layers"), INSTRUCTIONS, 320.0),
    beside("6.1", "      the kernel's ring buffer would take", Figure("floor ring"), INSTRUCTIONS),
    beside("7", "  an empty fentry/fexit pair adds", Figure("floor"), INSTRUCTIONS),
    beside("7", "  an empty fsession adds", Figure("floor fsession"), INSTRUCTIONS),
    beside("7", "  two empty fsessions add", Figure("floor fsessions"), INSTRUCTIONS),
    beside("7", "  an empty kprobe.session adds", Figure("floor session"), INSTRUCTIONS),
    beside("7", "  an empty kprobe.multi pair adds", Figure("floor multi"), INSTRUCTIONS),
    beside("7", "  an empty kprobe pair adds", Figure("floor kprobe"), INSTRUCTIONS),
    beside("7", "  an empty kprobe.multi at the entry alone adds", Figure("floor multi entry"), INSTRUCTIONS),
    beside("7", "  an empty kprobe at the entry alone adds", Figure("floor kprobe entry"), INSTRUCTIONS),
    beside("7", "  empty raw tracepoints of system calls add", Figure("floor raw tracepoint"), INSTRUCTIONS),
    beside("7", "  empty tracepoints of system calls add", Figure("floor tracepoint"), INSTRUCTIONS),
    beside("7", "  -T vfs -p PID by fentry adds", Figure("vfs fentry"), INSTRUCTIONS),
    row("7", "  -T vfs -p PID by fsession adds", Figure("vfs fsession"), INSTRUCTIONS, 500.0),
    row("7", "  -T vfs -p PID, losing nothing, adds", Figure("vfs lossless"), INSTRUCTIONS, 1_020.0),
    beside("7", "    with --sample 1/1000", Figure("vfs sampled"), INSTRUCTIONS),
    beside("7", "  -T vfs -p PID --by process adds", Figure("vfs by process"), INSTRUCTIONS),
    beside("7", "  -T vfs -p PID --by file adds", Figure("vfs by file"), INSTRUCTIONS),
    beside("7", "  -T vfs --cgroup GROUP adds", Figure("vfs cgroup"), INSTRUCTIONS),
    row("7", "  all layers, -p PID, losing nothing, add", Figure("all layers"), INSTRUCTIONS, 3_200.0),
    beside("7", "    with --sample 1/1000", Figure("all layers sampled"), INSTRUCTIONS),
    beside("7", "    of a control group", Figure("all layers cgroup"), INSTRUCTIONS),
    row("7", "    recorded, more than not", Over("all layers recorded", "all layers"), INSTRUCTIONS, 320.0),
    beside("7", "      the kernel's ring buffer would take", Figure("floor ring"), INSTRUCTIONS),
    beside("6.1", "4 KiB O_DIRECT read of null_blk: biolatency adds", Figure("biolatency"), INSTRUCTIONS),
    beside("6.1", "  -T blk adds", Figure("blk"), INSTRUCTIONS),
    row("6.1", "    of biolatency", Ratio("blk", "biolatency"), TIMES, 0.7),
    beside("6.1", "  -T blk -Q --by disk adds", Figure("blk queue by disk"), INSTRUCTIONS),
    row("6.1", "    recorded, more than not", Over("blk recorded", "blk"), INSTRUCTIONS, 450.0),
    beside("6.1", "      of which empty programs at the submission take", Figure("floor blk recorded"), INSTRUCTIONS),
    beside("6.1", "  -T blk -p PID adds", Figure("blk -p"), INSTRUCTIONS),
    row("6.1", "    recorded, more than not", Over("blk -p recorded", "blk -p"), INSTRUCTIONS, 450.0),
    beside("7", "4 KiB O_DIRECT read of null_blk: biolatency adds", Figure("biolatency"), INSTRUCTIONS),
    beside("7", "  -T blk, losing nothing, adds", Figure("blk"), INSTRUCTIONS),
    row("7", "    of biolatency", Ratio("blk", "biolatency"), TIMES, 0.7),
    beside("7", "  -T blk -Q --by disk adds", Figure("blk queue by disk"), INSTRUCTIONS),
    row("7", "    recorded, more than not", Over("blk recorded", "blk"), INSTRUCTIONS, 450.0),
    beside("7", "      of which empty programs at the submission take", Figure("floor blk recorded"), INSTRUCTIONS),
    beside("7", "  -T blk -p PID adds", Figure("blk -p"), INSTRUCTIONS),
    row("7", "    recorded, more than not", Over("blk -p recorded", "blk -p"), INSTRUCTIONS, 450.0),
    row("7", "attach and detach, all layers, guest's clock", Figure("attach and detach"), "ms", 1_000.0),
    beside("7", "  with the start before it", Figure("start and detach"), "ms"),
    row("6.1", "attach and detach, all layers, guest's clock", Figure("attach and detach"), "ms", 6_000.0),
    beside("6.1", "  detaching empty programs from the same functions takes", Figure("floor detach"), "ms"),
    row("6.1", "Ctrl-C to the prompt, all layers, guest's clock", Figure("prompt"), "ms", 1_000.0),
    row("6.1", "peak resident memory, all layers", Figure("memory"), "KiB", 8.0 * 1024.0),
    row("6.1", "the executable", Figure("size"), "KiB", 7.0 * 1024.0),
    beside(HERE, "pread, nothing attached", Figure("pread"), "ns"),
    beside(HERE, "  strace -c adds", Figure("strace -c"), "ns"),
    beside(HERE, "  perf trace -s adds", Figure("perf trace -s"), "ns"),
    beside(HERE, "  syscount -L adds", Figure("syscount -L"), "ns"),
    beside(HERE, "  -T syscall -p PID adds", Figure("-T syscall"), "ns"),
    row(HERE, "    of syscount -L", Ratio("-T syscall", "syscount -L"), TIMES, 0.6),
    beside(HERE, "  -T syscall -p PID --sample 1/1000 adds", Figure("-T syscall --sample"), "ns"),
    beside(HERE, "  -T syscall -p PID adds, on each of two CPUs", Figure("-T syscall on two CPUs"), "ns"),
];

/// Rows with a column for each selection. Those of empty programs have one value.
#[rustfmt::skip]
const SELECTED: &[Row] = &[
    row("6.1", "cached pread, -T vfs adds", Figure("vfs fentry"), INSTRUCTIONS, 740.0),
    row("6.1", "  relative to -p", ToFirst("vfs fentry"), TIMES, 1.03),
    row("6.1", "cached pread, all layers add", Figure("all layers"), INSTRUCTIONS, 1_800.0),
    row("6.1", "  relative to -p", ToFirst("all layers"), TIMES, 1.03),
    row("6.1", "  with --by process, to without", Ratio("all layers by process", "all layers"), TIMES, 1.15),
    row("6.1", "  with --by file, to without", Ratio("all layers by file", "all layers"), TIMES, 1.15),
    row("6.1", "  with --slower 1s, to without", Ratio("all layers slower", "all layers"), TIMES, 1.15),
    row("7", "cached pread, -T vfs adds", Figure("vfs lossless"), INSTRUCTIONS, 1_020.0),
    row("7", "  relative to -p", ToFirst("vfs lossless"), TIMES, 1.03),
    row("7", "cached pread, all layers add", Figure("all layers"), INSTRUCTIONS, 3_200.0),
    row("7", "  relative to -p", ToFirst("all layers"), TIMES, 1.03),
    row("7", "  with --by process, to without", Ratio("all layers by process", "all layers"), TIMES, 1.15),
    row("7", "  with --by file, to without", Ratio("all layers by file", "all layers"), TIMES, 1.15),
    row("7", "  with --slower 1s, to without", Ratio("all layers slower", "all layers"), TIMES, 1.15),
    beside("6.1", "libbpf reading the kernel's types", Figure("floor start types"), MILLIONS),
    row("6.1", "start, -T syscall", Figure("start syscall"), MILLIONS, 300.0),
    row("6.1", "start, -T blk", Figure("start blk"), MILLIONS, 300.0),
    row("6.1", "start, -T ext4", Figure("start ext4"), MILLIONS, 300.0),
    beside("6.1", "  empty programs at these functions", Figure("floor start ext4"), MILLIONS),
    row("6.1", "start, -T vfs", Figure("start"), MILLIONS, 350.0),
    beside("6.1", "  empty programs at these functions", Figure("floor start"), MILLIONS),
    row("6.1", "start, all layers, fentry", Figure("start all fentry"), MILLIONS, 900.0),
    beside("6.1", "  empty programs at these functions", Figure("floor start all fentry"), MILLIONS),
    row("6.1", "start, all layers, kprobes", Figure("start all kprobe"), MILLIONS, 500.0),
    beside("6.1", "  empty programs at these functions", Figure("floor start all kprobe"), MILLIONS),
    beside("7", "libbpf reading the kernel's types", Figure("floor start types"), MILLIONS),
    row("7", "start, all layers, kprobe.session", Figure("start all"), MILLIONS, 800.0),
    beside("7", "  empty programs at these functions", Figure("floor start all"), MILLIONS),
    row("7", "start, all layers, --by file", Figure("start all by file"), MILLIONS, 1_500.0),
    row("7", "start, all layers, --slower 1s", Figure("start all slower"), MILLIONS, 1_000.0),
    row(HERE, "start, all layers it allows", Figure("start"), "ms", 400.0),
    row(HERE, "start, -T syscall", Figure("start syscall"), "ms", 100.0),
];

/// The tables, and the missing figures.
pub fn tables(figures: &Figures) -> (String, Vec<String>) {
    let mut missing = Vec::new();
    let mut text = format!("{:<6}  {:<52} {:>19} {:>9}\n", "kernel", "what", "measured", "at most");
    for row in ROWS {
        match value(figures, row, "") {
            Ok(value) => {
                let line = format!(
                    "{:<6}  {:<52} {:>10} {:<8}",
                    row.kernel,
                    row.what,
                    shown(row, value),
                    row.unit
                );
                let _ = writeln!(text, "{}", format!("{line}{}", verdict(row, value)).trim_end());
            }
            Err(name) => missing.push(name),
        }
    }
    let heads: String = Selection::EACH
        .map(|of| format!(" {:>10}", of.head()))
        .into_iter()
        .collect();
    let _ = writeln!(
        text,
        "\n{:<6}  {:<35}{heads}          {:>9}",
        "kernel", "what", "at most"
    );
    for row in SELECTED {
        let columns = if row.target.is_some() { Selection::EACH.len() } else { 1 };
        let ends = Selection::EACH.iter().take(columns).map(|of| of.end());
        let values: Result<Vec<f64>, String> = ends.map(|end| value(figures, row, end)).collect();
        match values {
            Ok(values) => {
                let cells: String = values
                    .iter()
                    .map(|&value| format!(" {:>10}", shown(row, value)))
                    .collect();
                let worst = values.into_iter().fold(0.0, f64::max);
                let line = format!("{:<6}  {:<35}{cells:<44} {:<8}", row.kernel, row.what, row.unit);
                let _ = writeln!(text, "{}", format!("{line}{}", verdict(row, worst)).trim_end());
            }
            Err(name) => missing.push(name),
        }
    }
    (text, missing)
}

/// What a row shows for the selection whose figures end like this; the name of what was not measured otherwise.
fn value(figures: &Figures, row: &Row, end: &str) -> Result<f64, String> {
    let get = |name: &str| {
        let figure = figures.get(&(row.kernel.to_owned(), name.to_owned()));
        figure
            .map(|&value| value as f64)
            .ok_or_else(|| format!("{name} on {}", row.kernel))
    };
    let of = |name: &str| get(&format!("{name}{end}"));
    Ok(match row.shown {
        Figure(name) => of(name)?,
        Over(name, to) => of(name)? - of(to)?,
        Ratio(name, to) => of(name)? / of(to)?,
        RatioTo(name, to) => of(name)? / to as f64,
        ToFirst(name) => of(name)? / get(name)?,
    })
}

fn shown(row: &Row, value: f64) -> String {
    match row.unit {
        TIMES => format!("{value:.2}"),
        _ => in_thousands(value as u64),
    }
}

/// The target, and whether the value reaches it; empty without one.
fn verdict(row: &Row, value: f64) -> String {
    row.target.map_or_else(String::new, |target| {
        let verdict = if value <= target { "reached" } else { "MISSED" };
        format!(" {:>9}  {verdict}", shown(row, target))
    })
}

/// A number with a comma after every three digits.
fn in_thousands(n: u64) -> String {
    let (rest, last) = (n / 1000, n % 1000);
    if rest == 0 {
        return last.to_string();
    }
    format!("{},{last:03}", in_thousands(rest))
}
