//! The manual page: options and verbs from the definition of the command line, and the sections that it does not have.

use std::io;

use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, roman};
use iostackbreakdown::args;

/// The parts of a section, in order.
enum Part {
    Text(&'static str),
    /// A term of the reports or a file, and its meaning.
    Item(&'static str, &'static str),
    /// The heading of a subsection.
    Heading(&'static str),
    /// Lines that are not filled.
    Lines(&'static str),
}
use Part::{Heading, Item, Lines, Text};

const DESCRIPTION: &[Part] = &[
    Text(
        "Without -T, the report is that of the whole stack: each moment between the entry and the return of each I/O system call is \
         in exactly one row: that of the layer in which the thread ran, or of what it waited for. With -T, it has the times of each \
         operation of these layers, from entry to return.",
    ),
    Text(
        "It measures until Ctrl-C, SIGTERM, the end of --duration, of COMMAND or of all processes of -p, and then prints a report; \
         with INTERVAL, it prints one after each interval. A second Ctrl-C ends it at once. Reports go to standard output, with COMMAND to standard \
         error; everything else goes to standard error.",
    ),
    Text("iostackbreakdown and iosb are the same program."),
];

const REPORT: &[Part] = &[
    Heading("Rows of the whole stack"),
    Text(
        "Calls are in families: read, write, open, fsync, metadata (stat, rename, unlink and their like) and async (the calls of io_uring and \
         libaio themselves). The rows of a family add up to its time. \"-\" is a row that could not be measured.",
    ),
    Item("syscall", "the thread ran in the system call, outside the layers below"),
    Item(
        "in the kernel, not split",
        "it ran in the kernel, where no layer below the system calls can be measured; \"kernel\" in narrow columns",
    ),
    Item("vfs", "it ran in the virtual file system"),
    Item(
        "ext4, xfs, btrfs, f2fs, nfs, overlay, tmpfs",
        "it ran in that file system; those that are mounted have rows, tmpfs with -T all,tmpfs",
    ),
    Item(
        "queue",
        "it waited for a request of its own that was not yet issued to the device: for a tag, in the I/O scheduler, in the throttle \
         of its control group. Also used at blk",
    ),
    Item("device", "it waited for a request of its own that was issued"),
    Item(
        "others' I/O",
        "it waited for I/O, and none of its own requests ended meanwhile: a page that another thread is reading, or one under writeback",
    ),
    Item("journal", "it waited for a commit of ext4's journal or of XFS's log"),
    Item("lock", "it waited for a lock that another thread held"),
    Item("other", "it slept for any other reason"),
    Item("run queue", "it could run, and waited for a CPU"),
    Item(
        "reached",
        "how many of the calls reached a layer; the others ended above it",
    ),
    Item(
        "from cache, waited for own I/O, for others', read ahead only, direct",
        "how many reads got their data from the page cache; waited for requests of their own; waited for those of others; only \
         submitted requests that no call waited for; bypassed the page cache",
    ),
    Heading("Columns of intervals"),
    Item("call/s", "calls in a second"),
    Item(
        "ms/s",
        "milliseconds that threads were inside calls, in each second: 1,000 is one thread always inside a call",
    ),
    Item(
        "avg, p50, p99, max",
        "the mean call, the median, the 99th percentile and the longest. A quantile is printed when there are calls beyond it, within 12.5 %",
    ),
    Item(
        "sys, kernel, vfs, fs, ext4, que, dev, oIO, jou, lck, oth, run, ovl",
        "the rows above (fs: all file systems), in percent of the calls' time: \".\" none, \"0\" less than half a percent. Wide terminals \
         have the full names",
    ),
    Item(
        "time spent in, %",
        "where not all of these fit: those with most of a line's time, the largest first",
    ),
    Heading("Columns of operations and groups"),
    Item(
        "ns, us, ms, s, B, kB, MB, GB",
        "the unit of all numbers below; alone it is the heading of bytes",
    ),
    Item(
        "operation, count, total, bytes",
        "calls or requests that ended, the sum of their times, and the bytes they moved",
    ),
    Item(
        "queued",
        "of requests, with -Q: the share of the time before they were issued",
    ),
    Item(
        "nsecs, usecs, msecs",
        "the steps of a histogram, in the unit of -u and -m, and how many calls are in each",
    ),
    Item(
        "share",
        "with --by: of the time of all groups. Calls and requests without a known group are \"(no file)\" or the like, and groups beyond --top are in \"others\"",
    ),
    Heading("Columns of --slower"),
    Item(
        "TIME, TOTAL ms, OP, PROCESS",
        "when the call ended, how long it took in milliseconds, the system call, and the thread's name with its numbers",
    ),
    Item("OFFSET, BYTES", "where in the file, and the bytes moved, or the error"),
    Item("TIME SPENT IN", "the rows with most of its time; the largest is marked"),
    Item("FILE", "its path from the root of its mount namespace"),
    Heading("Columns of compare"),
    Item(
        "before, after, difference",
        "the numbers of both runs, and by how much they differ. A difference that may be chance, given the number of calls, is marked as within noise",
    ),
    Heading("Columns of --check"),
    Item(
        "layer, op, function, hook, fires",
        "the functions an operation may go through, each with its probe, and whether the probe was hit while the operation was tried. Below, how many \
         operations of each layer were counted",
    ),
    Heading("What no call waited for"),
    Item(
        "Not waited for here",
        "requests by origin: readahead, writes under way, asynchronous I/O, writeback of what was written, the journal, other \
         kernel threads. Their mean times before the issue are below \"queue\", those after it below \"device\"",
    ),
    Item(
        "Meanwhile, disks served",
        "whose requests the disks served while the reported ones waited",
    ),
];

const MESSAGES: &[Part] = &[
    Text("Lines below the numbers say what they do not include."),
    Item(
        "lost",
        "the last line: calls whose time is missing, calls under way at the start and the end (\"unfinished\"), and the cost of measuring: that of the process, and with --verbose or --budget that of its probes",
    ),
    Item(
        "LOST",
        "calls that were counted without their time, and why: returns or entries that the kernel skipped, no room. Totals do not include them",
    ),
    Item("lost of", "the same by operation, with --verbose"),
    Item(
        "UNBALANCED",
        "the share of calls with entries and returns that did not pair up: some of their time may be in the row above. Below 0.1 % \
         it is reported with --verbose only",
    ),
    Item(
        "NO ROOM",
        "more groups than --by has room for: their calls are in \"others\"",
    ),
    Item(
        "NOT SHOWN",
        "slow calls beyond 1,000 in a second, which are counted only",
    ),
    Item(
        "not measured",
        "an operation, a row or a layer that cannot be measured on this kernel, and the reason",
    ),
    Item("errors", "calls that failed, by error; their time is in the report"),
    Item(
        "excluded",
        "calls on sockets, pipes, character devices (terminals, /dev/zero) and files of no file system (eventfds \
         and the like), by kind; --all-files includes them",
    ),
    Item(
        "asynchronous",
        "requests that were submitted at a layer, and whose completion cannot be seen there",
    ),
    Item("unfinished", "calls or requests under way at the end"),
    Item(
        "hook",
        "how the kernel calls the probes; --verbose has it for each function",
    ),
    Item(
        "probe",
        "with --verbose: how often the kernel ran a probe, how long that took, and how often it skipped it",
    ),
    Item("exact", "with --verbose: the numbers of an operation to the last digit"),
    Item(
        "queue time from",
        "the event at which the queue time of requests begins",
    ),
    Item(
        "diskstats agrees, diskstats differs, diskstats cannot tell",
        "whether the kernel's own counters in /proc/diskstats increased by the same numbers",
    ),
    Item(
        "in flight at start",
        "requests that were issued before the run began, which have no time",
    ),
    Item("never issued", "requests that only ask for a flush, and carry no data"),
    Item(
        "kernel threads",
        "requests on the disk that kernel threads submitted, which filters by process leave out",
    ),
    Item(
        "not attributed",
        "flushes, each of which the kernel sends for several processes",
    ),
    Item("not timed", "requests whose queue time has no known start"),
    Item("warning", "anything else that affects the numbers"),
];

const EXAMPLES: &[Part] = &[
    Item(
        "IOStackBreakdown -p 4711 --duration 10s",
        "Where the time of a process's I/O goes, for ten seconds.",
    ),
    Item(
        "IOStackBreakdown -f -p 4711 1",
        "The same each second, with its descendants.",
    ),
    Item(
        "IOStackBreakdown --slower 10ms --comm postgres",
        "Each call of threads of that name that took 10 ms or longer, as it ends.",
    ),
    Item(
        "IOStackBreakdown -T blk -d nvme0n1 -Q",
        "Requests of a disk, with the time in the queue.",
    ),
    Item(
        "IOStackBreakdown -T syscall,ext4 -u 1 10",
        "Two layers in microseconds, ten reports of a second each.",
    ),
    Item(
        "IOStackBreakdown --by file --top 5 -T ext4 -S",
        "The five files with most of the time, without histograms.",
    ),
    Item("IOStackBreakdown --file /srv/shop.db", "Calls on one file."),
    Item(
        "IOStackBreakdown -- fio job.fio",
        "Starts a command, and traces it and its descendants.",
    ),
    Item(
        "IOStackBreakdown --json -o old.json -- make test",
        "The report as JSON, into a file.",
    ),
    Item(
        "IOStackBreakdown compare old.json new.json",
        "What differs between two such runs.",
    ),
    Item("IOStackBreakdown --check", "Which probes work on this machine?"),
];

const PRIVILEGES: &[Part] = &[
    Text(
        "Root, or CAP_BPF, CAP_PERFMON and CAP_DAC_READ_SEARCH; before Linux 5.11 also CAP_SYS_RESOURCE, for the memory of \
         programs. For perf's kprobes and tracepoints while kernel.perf_event_paranoid is above 1, types of modules, and \
         --budget: CAP_SYS_ADMIN. For kprobe events: CAP_DAC_OVERRIDE. A seccomp filter, as containers have, must allow bpf(2) and \
         perf_event_open(2).",
    ),
    Text("Without root, give the capabilities to the binary:"),
    Lines("setcap cap_bpf,cap_perfmon,cap_dac_override,cap_sys_admin,cap_sys_resource=ep /usr/bin/IOStackBreakdown"),
    Text("COMMAND inherits none of them. The kernel must be 5.10 or later and have BTF."),
];

const TRUST: &[Part] = &[
    Text(
        "Losses are counted and printed; what could not be measured is named, and never printed as 0. --check tries every \
         probe and prints which ones work here.",
    ),
    Text(
        "--budget limits what measuring may cost: the run time of its programs in the kernel and its own CPU time, in percent of \
         one CPU, in each second. For this, the kernel counts the runs of BPF programs, which costs each run two readings of the clock.",
    ),
];

const ENVIRONMENT: &[Part] = &[
    Item(
        "TMPDIR",
        "where --check creates its files; otherwise in /var/tmp, /tmp or the current directory",
    ),
    Item("TZ", "the time zone of the times in reports"),
    Item("PATH", "where COMMAND is searched"),
    Text(
        "For a binary with file capabilities, the C library removes TMPDIR, LD_* and others from the environment. --check still finds \
         TMPDIR, and COMMAND gets all of them, unless --user names another user.",
    ),
];

const FILES: &[Part] = &[
    Item("/sys/kernel/btf/vmlinux", "the kernel's types; required"),
    Item(
        "/sys/kernel/tracing",
        "tracefs: tracepoints, and kprobe events where tasks are preempted inside the kernel",
    ),
    Item(
        "/sys/kernel/debug/sched/preempt",
        "how this kernel preempts tasks; if it cannot be read, /boot/config-* and /proc/config.gz",
    ),
    Item("/proc/kallsyms", "the functions of the kernel"),
    Item(
        "/proc/diskstats",
        "the kernel's own counts of requests, for comparison with those of the report",
    ),
    Item(
        "/usr/share/doc/iostackbreakdown",
        "the meaning of each number, costs, limits, and examples",
    ),
];

const STATUSES: &[Part] = &[
    Item("0", "done"),
    Item(
        "1",
        "could not measure; one line on standard error says why, and what to do. With --check: a layer counted nothing, or the kernel refused a probe",
    ),
    Item("2", "wrong usage"),
    Item("130", "ended at once, by a second Ctrl-C"),
    Item(
        "125, 126, 127",
        "with COMMAND: could not measure, cannot be executed, not found",
    ),
    Item(
        "others",
        "with COMMAND: its own status, or 128 + the signal that ended it",
    ),
];

const SEE_ALSO: &[Part] = &[Text(
    "iostat(1), strace(1), perf(1), bpftrace(8), biolatency-bpfcc(8), ext4slower-bpfcc(8), setcap(8), capabilities(7), bpf(2)",
)];

/// The page as roff source.
pub fn page() -> io::Result<Vec<u8>> {
    let command = args::command();
    // Options hidden from the short help would otherwise have no text.
    let shown = command.clone().mut_args(|arg| arg.hide_short_help(false));
    let man = Man::new(shown).section("8");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    synopsis().to_writer(&mut page)?;
    section("DESCRIPTION", DESCRIPTION).to_writer(&mut page)?;
    man.render_options_section(&mut page)?;
    let mut times = Roff::new();
    times.control("PP", []);
    times.text([roman(args::TIMES)]);
    times.to_writer(&mut page)?;
    verbs(&command).to_writer(&mut page)?;
    for (heading, parts) in [
        ("EXAMPLES", EXAMPLES),
        ("REPORT", REPORT),
        ("MESSAGES", MESSAGES),
        ("TRUST", TRUST),
        ("PRIVILEGES", PRIVILEGES),
        ("ENVIRONMENT", ENVIRONMENT),
        ("FILES", FILES),
        ("EXIT STATUS", STATUSES),
        ("SEE ALSO", SEE_ALSO),
    ] {
        section(heading, parts).to_writer(&mut page)?;
    }
    Ok(page)
}

/// The usage lines, with the verbs and COMMAND.
fn synopsis() -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]);
    for line in args::USAGE.lines() {
        let words = line.trim().split(' ');
        let is_name = |word: &str| word.chars().all(|c| c.is_alphabetic()) && word.contains(char::is_lowercase);
        let inlines: Vec<Inline> = words
            .flat_map(|word| [if is_name(word) { bold(word) } else { roman(word) }, roman(" ")])
            .collect();
        roff.text(inlines);
        roff.control("br", []);
    }
    roff
}

fn verbs(command: &clap::Command) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["VERBS"]);
    for verb in command.get_subcommands() {
        roff.control("TP", []);
        roff.text([bold(verb.get_name())]);
        roff.text([roman(verb.get_about().map(ToString::to_string).unwrap_or_default())]);
    }
    roff
}

fn section(heading: &str, parts: &[Part]) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", [heading]);
    for part in parts {
        match part {
            Text(text) => {
                roff.control("PP", []);
                roff.text([roman(*text)]);
            }
            Item(term, meaning) => {
                roff.control("TP", []);
                roff.text([bold(*term)]);
                roff.text([roman(*meaning)]);
            }
            Heading(heading) => {
                roff.control("SS", [*heading]);
            }
            Lines(lines) => {
                roff.control("PP", []);
                roff.control("RS", ["4"]);
                roff.control("nf", []);
                roff.text([roman(*lines)]);
                roff.control("fi", []);
                roff.control("RE", []);
            }
        }
    }
    roff
}
