//! Where each check runs by default. Running all of them on every kernel takes hours; `--every` does that, and so does
//! a check selected by name.
//!
//! Checks of what differs between kernels (functions, hooks, layouts) run on all of them. Others run where they are
//! most likely to fail: with kprobes on the oldest kernel, which is also the fastest in a guest, with the newest hooks
//! on the newest kernel, and in between with what only those kernels have.

const ALL: &[&str] = &[
    "5.10",
    "6.1",
    "6.1 preempt=full",
    "6.1-full",
    "6.12",
    "6.12 preempt=full",
    "7",
    "7 preempt=full",
];
const AS_BOOTED: &[&str] = &["5.10", "6.1", "6.12", "7"];
const BY_BUILD: &[&str] = &["5.10", "6.1", "6.1-full", "6.12", "7"];
const BY_PREEMPTION: &[&str] = &[
    "5.10",
    "6.1",
    "6.1 preempt=full",
    "6.12",
    "6.12 preempt=full",
    "7 preempt=full",
];
const ENDS: &[&str] = &["5.10", "7"];

/// Beginnings of checks' names, and the configurations that run them.
type Line = (&'static str, &'static [&'static str]);

/// The longest matching beginning decides.
#[rustfmt::skip]
const SELECTION: &[Line] = &[
    ("guest: ", ALL),
    // It is the same kernel, however it preempts.
    ("guest: the kernel refuses no program", BY_BUILD),
    ("counts: ", &["6.1"]),
    ("counts: -p, auto", ALL),
    ("counts: -p, kprobe-event", &["5.10"]),
    ("counts: -p, kprobe-session", &["7"]),
    ("counts: -p, fsession", &["7"]),
    ("counts: -p, tracepoint", ENDS),
    ("counts: -p, raw-tracepoint", &["5.10"]),
    ("counts: splice", ENDS),
    // The contents of a report do not depend on the kernel.
    ("snapshots: ", ENDS),
    ("snapshots: every golden scene", &["5.10", "6.1", "7"]),
    ("asynchronous: ", &["6.1"]),
    ("asynchronous: 10,000 io_uring reads, -p", &["6.1", "7"]),
    ("asynchronous: requests done at once, each way, -p", &["6.1", "7"]),
    ("asynchronous: registered buffers and files, -p", &["5.10", "6.1", "7", "7 preempt=full"]),
    ("asynchronous: registered buffers, by kprobes, -p", &["7"]),
    ("asynchronous: links, whole and broken, -p", ENDS),
    ("asynchronous: requests that may not wait, -p", ENDS),
    ("asynchronous: polled requests, -p", &["6.1", "7"]),
    ("asynchronous: requests that are cancelled, -p", &["6.1", "6.1 preempt=full", "7"]),
    ("asynchronous: requests that a process leaves behind", &["6.1", "6.1 preempt=full", "7"]),
    ("asynchronous: direct reads through overlayfs, -p", &["6.1", "7"]),
    ("filesystems: ", &["5.10"]),
    ("filesystems: btrfs", &["7"]),
    ("filesystems: tmpfs", AS_BOOTED),
    ("filesystems: tmpfs is in the whole stack where it is named", &["6.1"]),
    ("filesystems: overlay", AS_BOOTED),
    ("filesystems: overlay, and ext4 below it", &["6.1", "6.12", "7"]),
    ("filesystems: ext4 and xfs are distinguished", &["6.1-full", "7 preempt=full"]),
    ("filesystems: f2fs", &["6.1-full"]),
    ("filters: ", &["6.1"]),
    ("dimensions: ", &["5.10"]),
    ("dimensions: three processes, each with its own calls", &["5.10", "6.1-full", "7"]),
    ("dimensions: requests by process, file and disk", ENDS),
    ("dimensions: two control groups of version 2", ENDS),
    ("json: ", &["6.1"]),
    ("sample: ", &["5.10", "6.1", "7"]),
    ("traps: ", BY_PREEMPTION),
    ("traps: 64 threads asleep beside the detaching of the last run, auto", &["5.10", "6.1"]),
    ("loss: another tool is detached from the same functions", &["5.10", "6.1"]),
    ("loss: a table of starts that is too small", &["5.10", "6.12", "7 preempt=full"]),
    ("loss: fentry where tasks are preempted", &["6.1 preempt=full", "7"]),
    ("loss: fsession where tasks are preempted", &["7", "7 preempt=full"]),
    ("loss: kprobe with", &["5.10", "6.1 preempt=full", "7"]),
    ("loss: kprobe-", &["6.12"]),
    ("intervals: ", &["6.1"]),
    ("trust: --check, auto", ALL),
    ("trust: --check, kprobe", AS_BOOTED),
    ("trust: --check, fsession", &["7"]),
    ("trust: the calls of --check", AS_BOOTED),
    ("times: ", &["5.10", "6.1 preempt=full", "7"]),
    ("overload: counted and lost are what was done, auto", &["5.10", "6.1", "7 preempt=full"]),
    ("overload: counted and lost are what was done, fentry", &["7"]),
    ("overload: counted and lost are what was done, kprobe", &["5.10"]),
    ("block: ", &["7"]),
    ("block: 5 processes read, write and discard, ", AS_BOOTED),
    ("block: flushes and FUA writes of a disk without FUA, kprobe", &["5.10"]),
    ("block: every read takes the disk's 50 ms, kprobe", &["5.10"]),
    ("block: queue times with each scheduler, and without iostats, kprobe", &["5.10"]),
    ("block: 8 processes at once, auto", &["6.1 preempt=full", "7"]),
    ("block: 8 processes at once, kprobe", &["5.10"]),
    ("block: 8 processes on two disks at once", ENDS),
    ("block: direct reads of a file, with the layers above", ENDS),
    ("block: -p", ENDS),
    ("block: requests under way at the start are counted separately", ENDS),
    ("block: errors have their names, kprobe", &["5.10"]),
    ("block: requests that wait at the start are counted once", &["6.12"]),
    ("neighbours: ", &["7"]),
    ("neighbours: two readers of one disk, auto", &["5.10", "6.1", "6.12 preempt=full", "7"]),
    ("hard: ", &["5.10"]),
    ("hard: O_SYNC, O_DSYNC and flags of single calls", ENDS),
    ("hard: processes killed inside their calls", ENDS),
    ("hard: 512 threads, each of them all calls", &["7"]),
    ("hard: -- COMMAND with a storm of forks and execs", &["7"]),
    ("hard: memory is short", &["7"]),
    ("hard: CPUs go and come back", &["7"]),
    ("hard: a disk is taken away under its readers", ENDS),
    ("hard: calls by the 32-bit table are what that table says", ENDS),
    ("delays: ", &["6.1"]),
    ("peers: ", &["6.1"]),
    ("peers: ext4dist", &["6.1", "6.1 preempt=full"]),
    ("peers: ftrace's histograms", &["6.1", "7"]),
    ("replay: ", &["7"]),
    ("folding: ", &["5.10", "6.1", "7"]),
    // Minutes of an emulated CPU each: programs as they were compiled take long to verify.
    ("folding: the whole stack", &["7"]),
    ("folding: the whole stack by file", &["5.10"]),
    ("folding: the whole stack with slow calls", &["6.1"]),
    ("folding: calls, fentry", &["6.1"]),
    ("folding: calls, kprobe-event", &["5.10"]),
    ("stack: ", ENDS),
    ("stack: the text has every call", &["6.1", "7"]),
    ("slow: ", &["6.1", "7 preempt=full"]),
    ("slow: one file's calls, on overlayfs and btrfs", &["6.12"]),
    // Half a minute of an emulated CPU each, to attach the whole stack.
    ("events: ", &["7"]),
    ("events: each call once, auto", ENDS),
    ("events: requests", ENDS),
    ("events: files that are opened and closed", &["5.10"]),
    ("events: a line for each call", &["5.10"]),
    ("events: calls on excluded files", ENDS),
    ("events: positions, descriptors and mappings", &["6.12"]),
    ("events: positions, descriptors and mappings, tracepoint", ENDS),
    ("events: requests of io_uring and AIO, kprobe", &["6.1", "6.12"]),
    ("events: page faults", &["5.10"]),
    ("events: page faults, kprobe", &["6.1", "6.12", "7"]),
    ("events: each call once, fentry", &["6.1"]),
    ("events: each call once, kprobe", &["6.12"]),
    ("events: each call once, kprobe-event", &["5.10"]),
    ("events: each call once, kprobe-session", &["7"]),
    ("events: each call once, tracepoint", ENDS),
    ("events: each call once, raw-tracepoint", &["6.1"]),
    ("ring: ", AS_BOOTED),
    ("ring: an fsync that takes 800 ms, by the whole stack", &["6.12"]),
    ("matrix: ", &["6.1"]),
    ("seeks: ", AS_BOOTED),
    ("costs: ", &["6.1 counted"]),
    // Measured for the table of costs.
    ("scaling: ", &[]),
    ("budget: ", &["6.1", "7"]),
    ("budget: the costliest layer of two, kprobe", &["5.10"]),
    ("fallback: ", &["6.1"]),
    ("fallback: ext4 reads, recognised by the kernel's symbols", &["5.10", "6.1", "6.1-full"]),
    ("fallback: counters of more CPUs than one value has room for", &["5.10 possible_cpus=64"]),
    ("fallback: other candidates count, or it says that none does", ENDS),
    ("cleanup: many runs leave nothing", ENDS),
    ("cleanup: SIGKILL, auto", ENDS),
    ("cleanup: SIGKILL, fentry", &["6.1"]),
    ("cleanup: SIGKILL, kprobe", &["6.12"]),
    ("cleanup: SIGKILL, kprobe-event", &["5.10"]),
    ("cleanup: SIGKILL of the keeper of events, too", &["5.10"]),
    ("cleanup: the detaching process holds all functions", &["7"]),
    ("cleanup: a run starts as fast while another one is detached", &["6.1", "6.1-rt"]),
    ("errors: ", &["6.1"]),
    ("errors: a hook that this kernel lacks", ENDS),
    ("privileges: ", ENDS),
    ("container: ", &["6.1"]),
    ("container: without debugfs and tracefs it says so", &["6.12"]),
    ("docs: ", &["6.12"]),
];

/// They take minutes of an emulated CPU, and something alike runs always: with another hook, another view, or natively.
const LONG: &[&str] = &[
    "asynchronous: registered buffers, by kprobes, -p",
    "cleanup: a run starts as fast while another one is detached",
    "cleanup: many runs leave nothing",
    "costs: the start, all layers by fentry",
    "dimensions: three processes, each with its own calls, by kprobes",
    "docs: every command that probes functions runs",
    "events: each call once, fentry",
    "events: each call once, kprobe",
    "events: each call once, kprobe-event",
    "events: each call once, kprobe-session",
    "events: each call once, raw-tracepoint",
    "filesystems: tmpfs is in the whole stack where it is named",
    "folding: calls, fentry",
    "folding: calls, kprobe-event",
    "folding: the whole stack",
    "folding: the whole stack by file",
    "folding: the whole stack with slow calls",
    "overload: counted and lost are what was done, fentry",
    "overload: counted and lost are what was done, kprobe",
    "trust: --check, fsession",
    "trust: --check, kprobe",
];

/// What they look for differs between kernels, and one of them does not stand for another: each of the table's
/// configurations runs them, even if other checks run in one only.
const EVERYWHERE: &[&str] = &["guest: the kernel refuses no program"];

/// Whether a check is left out if each runs in one configuration only.
pub fn is_long(check: &str) -> bool {
    LONG.contains(&check)
}

/// Whether this configuration runs the check by default. `once`: if each runs in one configuration only, which its name
/// decides, so that all configurations have their share ([`EVERYWHERE`] has the exceptions).
pub fn is_selected(check: &str, configuration: &str, once: bool) -> bool {
    let places = places_of(check);
    if !once || places.is_empty() || EVERYWHERE.contains(&check) {
        return places.contains(&configuration);
    }
    let sum: usize = check.bytes().map(usize::from).sum();
    !is_long(check) && places[sum % places.len()] == configuration
}

/// The configurations in which a check runs; none if the table lacks it.
pub fn places_of(check: &str) -> &'static [&'static str] {
    deciding(check).map_or(&[], |(_, places)| places)
}

/// Lines of the table that match no check, or name no configuration.
pub fn mistakes(checks: &[&str], configurations: &[String]) -> Vec<String> {
    let mut wrong = Vec::new();
    let strangers = LONG.iter().chain(EVERYWHERE).filter(|named| !checks.contains(named));
    wrong.extend(strangers.map(|name| format!("there is no check {name:?}")));
    for line in SELECTION {
        let (beginning, places) = line;
        if !checks.iter().any(|check| deciding(check) == Some(line)) {
            wrong.push(format!("{beginning:?} decides about no check"));
        }
        let strangers = places
            .iter()
            .filter(|place| !configurations.iter().any(|name| name == *place));
        wrong.extend(strangers.map(|name| format!("{beginning:?}: there is no configuration {name:?}")));
    }
    wrong
}

fn deciding(check: &str) -> Option<&'static Line> {
    let fitting = SELECTION.iter().filter(|(beginning, _)| check.starts_with(beginning));
    fitting.max_by_key(|(beginning, _)| beginning.len())
}
