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
        "Without -T, it reports the whole stack: every moment of every I/O system call is in exactly one row, that of the layer in \
         which the thread ran or of what it waited for. With -T, it reports the operations of each layer named, each timed from entry \
         to return.",
    ),
    Text(
        "It measures until Ctrl-C, SIGTERM, or the end of --duration, of COMMAND, or of every process of -p, and then prints a report; \
         with INTERVAL, it prints one after each interval. A second Ctrl-C ends it at once, without a report. Reports go to standard \
         output (with COMMAND to standard error), or to the file of -o; messages always go to standard error.",
    ),
    Text("iostackbreakdown and iosb are the same program."),
];

const REPORT: &[Part] = &[
    Heading("Rows of the whole stack"),
    Text(
        "Calls are in families: read, write, open, fsync, metadata (stat, rename, unlink and their like) and async (io_submit, io_getevents, \
         io_uring_enter). The rows of a family add up to its time. \"-\" is a row that could not be measured.",
    ),
    Item("syscall", "the thread ran in the system call, outside the layers below"),
    Item(
        "kernel (not split)",
        "it ran in the kernel; in place of the layers where only system calls can be measured; \"kernel\" in narrow columns",
    ),
    Item("vfs", "it ran in the virtual file system"),
    Item(
        "ext4, xfs, btrfs, f2fs, nfs, overlay, tmpfs",
        "it ran in that file system; only mounted file systems have rows, and tmpfs only with -T all,tmpfs",
    ),
    Item(
        "queue",
        "it waited for a request of its own that was not yet issued to the device: for a tag, in the I/O scheduler, in the throttle \
         of its cgroup. The column \"queued\" at blk is another span, see there",
    ),
    Item(
        "device",
        "it waited for a request of its own that had been issued to the device",
    ),
    Item(
        "others' I/O",
        "it waited for I/O, and none of its own requests ended meanwhile: a page that another thread is reading, or one under writeback",
    ),
    Item("journal", "it waited for a commit of ext4's journal or of XFS's log"),
    Item("lock", "it waited for a lock held by another thread"),
    Item("other", "it slept for any other reason"),
    Item("run queue", "it could run, and waited for a CPU"),
    Item(
        "calls that reached",
        "how many of the calls reached a layer; the others ended above it",
    ),
    Item("from cache", "reads that got their data from the page cache"),
    Item(
        "own I/O, others' I/O",
        "reads that waited for requests of their own; reads that waited for I/O of other threads",
    ),
    Item(
        "readahead only",
        "reads that only submitted requests that no call waited for",
    ),
    Item("direct", "reads that bypassed the page cache"),
    Heading("Columns of intervals"),
    Item("calls/s", "calls per second"),
    Item(
        "ms/s",
        "time that threads spent inside calls, in milliseconds per second: 1,000 means that one thread was always inside a call",
    ),
    Item(
        "avg, p50, p99, max",
        "the average call, the median, the 99th percentile and the longest call. Quantiles are exact to 12.5 %, and printed only if there are enough calls (2 for p50, 100 for p99)",
    ),
    Item(
        "sys, kernel, vfs, fs, ext4, que, dev, oIO, jou, lck, oth, run, ovl",
        "the rows above, as a percentage of the time of the calls: \".\" none, \"0\" less than half a percent; fs is all file systems \
         together. Wide terminals have the full names",
    ),
    Item(
        "spent in (%)",
        "on narrow terminals, instead of these columns: the rows with the most time, the largest first",
    ),
    Heading("Columns of operations and groups"),
    Item(
        "ns, us, ms, s, B, kB, MB, GB",
        "a unit in a heading holds for the whole column. The column headed by a unit of bytes alone is the amount of data moved",
    ),
    Item("operation", "what was called, or the kind of request"),
    Item("count", "calls or requests that ended"),
    Item("total", "the sum of their times"),
    Item("bytes", "the data that they moved"),
    Item(
        "queued",
        "of requests, with -Q: the share of their time from their creation to their issue. Unlike the row queue, it does not include \
         the time in the throttle of a cgroup, which comes before the request is created",
    ),
    Item(
        "nsecs, usecs, msecs",
        "the steps of a histogram, in the unit of -u and -m, and how many calls are in each",
    ),
    Item(
        "share",
        "with --by: of the time of all groups. Calls and requests without a known group are \"(no file)\", \"(no process)\" and so on, and groups beyond --top are in \"others\". With several layers, groups are \
         ranked by their largest share at any layer",
    ),
    Heading("Columns of --slower"),
    Item(
        "TIME, TOTAL ms, OP, PROCESS",
        "when the call ended, how long it took in milliseconds, the system call, and the thread's name, its process ID, and its thread ID if that differs",
    ),
    Item(
        "OFFSET, BYTES",
        "the position in the file; the bytes moved, or the error",
    ),
    Item(
        "TIME SPENT IN",
        "the rows with most of its time, the largest marked with *",
    ),
    Item("FILE", "its path from the root of its mount namespace"),
    Heading("Columns of --events"),
    Item(
        "TIME, +DELTA, LEVEL, OP, PROCESS",
        "when it began; how long after the one in the line above; call, blk (a request of a disk), async (of io_uring or AIO) or fault (a page of a mapped file); the system call or the kind of request; and the thread's name, its process ID, and its thread ID if that differs",
    ),
    Item(
        "OFFSET/SECTOR, SIZE, TOOK",
        "the position in the file, or the first sector of 512 bytes on the disk; the requested bytes; how long it took, of a request at the device",
    ),
    Item(
        "HOW",
        "cached, missed, others' I/O, read ahead or direct; the row with most of the time; an error; the bytes moved if they are fewer; under way. Of a request: the time in the queue, and its call",
    ),
    Item(
        "LOST",
        "records that the kernel had no room for, in place of their lines",
    ),
    Heading("Columns of compare"),
    Item(
        "before, after, difference",
        "the numbers of both runs, and by how much they differ, computed before rounding. A difference that may be chance, given the number of calls, is marked \"within noise\"",
    ),
    Item(
        "calls/s, bytes, avg, p50, p90, p99",
        "the rates, and the times of calls; below them, the average time of a call in each row of the whole stack",
    ),
    Heading("Columns of --check"),
    Item(
        "layer, op, function, hook, hit",
        "the functions an operation may go through, each with its probe, and whether the probe was hit while the operation was done. The last lines say how many \
         operations of each layer were counted",
    ),
    Heading("The live view"),
    Item(
        "call/s, threads, avg, p99",
        "of each family: calls per second, how many threads were inside a call on average, the average call and the 99th percentile",
    ),
    Item(
        "WHERE THE TIME IS",
        "a bar with a letter for each row, explained below the families; its whole width is as many threads as the number at its end says",
    ),
    Item(
        "mostly",
        "the row with most of a group's time. \"<\" before a time of p99: too few calls, it is the longest one",
    ),
    Item(
        "used, depth, max",
        "of a disk: the share of the time with requests under way, how many there were on average, and at most",
    ),
    Item("?", "shows the keys"),
    Heading("Requests beside the calls"),
    Item(
        "Not waited for by any call",
        "requests that no call slept for, by origin: readahead, reads and writes by traced threads, asynchronous I/O, writeback of what \
         traced threads wrote, the journal, kworkers (the kernel's worker threads) and other kernel threads. The columns queue and device \
         have their average times before and after the issue",
    ),
    Item(
        "Disks served while these waited",
        "which process's requests the disks served while the reported requests waited",
    ),
];

const MESSAGES: &[Part] = &[
    Text("Lines below the numbers say what they do not include."),
    Item(
        "lost",
        "the last line: lost calls, unfinished calls at the start and at the end, and the CPU time of this process; with --verbose, --json or --budget also that of its probes",
    ),
    Item(
        "LOST",
        "calls or requests that are in none of the numbers, and why: the kernel skipped a probe, or had no memory or no slot for the start time",
    ),
    Item("lost at", "the same by operation, with --verbose"),
    Item(
        "UNBALANCED",
        "the share of calls with entries and returns that did not pair up: part of their time may be in an adjacent row. Below 0.1 % \
         it is reported with --verbose only",
    ),
    Item(
        "NO ROOM",
        "there were more groups than --by can distinguish (1,024): the calls of the rest are in \"others\"",
    ),
    Item(
        "NOT SHOWN",
        "slow calls over the limit of 1,000 per second, or for which the buffer had no room: they are only counted",
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
        "requests that were submitted at a layer, and whose completion cannot be seen there. They are not timed",
    ),
    Item(
        "unfinished",
        "calls or requests that had begun and not ended at the start or the end of the report: not timed",
    ),
    Item(
        "hooks",
        "how the kernel calls the probes; --verbose has it for each function",
    ),
    Item(
        "probe",
        "with --verbose: how often the kernel ran a probe, how long that took, and how often it skipped it",
    ),
    Item(
        "exact",
        "with --verbose: the numbers of an operation to the last digit, without separators, for programs",
    ),
    Item(
        "queue time begins at",
        "the event at which the queue time of requests begins",
    ),
    Item(
        "diskstats agrees, diskstats differs, diskstats not compared",
        "whether the kernel's own counters in /proc/diskstats increased by the same numbers",
    ),
    Item(
        "unfinished at start",
        "requests that were issued before the run began, and ended in it: not timed",
    ),
    Item(
        "never issued",
        "writes without data, which only request a flush; other requests that the driver refused",
    ),
    Item(
        "kernel threads",
        "requests that kernel threads submitted, which filters by process exclude",
    ),
    Item(
        "not attributed",
        "flushes: the kernel sends one for all processes that wait for one",
    ),
    Item("not timed", "requests whose queue time has no known start"),
    Item("note", "how the options or the machine limit the run, after the banner"),
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
        "Each call of 10 ms or longer by threads of that name, as it ends.",
    ),
    Item(
        "IOStackBreakdown --events=iotracer --file /srv/shop.db --last 1000",
        "The last thousand accesses of a file and of its disk, at Ctrl-C or SIGUSR1.",
    ),
    Item(
        "IOStackBreakdown -T blk -d nvme0n1 -Q",
        "Requests of a disk, with the time in the queue.",
    ),
    Item(
        "IOStackBreakdown -T syscall,ext4 -u 1 10",
        "Two layers in microseconds, ten reports, one per second.",
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
        "IOStackBreakdown --json -o before.json -- make test",
        "The report as JSON, into a file.",
    ),
    Item(
        "IOStackBreakdown compare before.json after.json",
        "What differs between two such runs.",
    ),
    Item(
        "IOStackBreakdown record -o slow.iosb --duration 60s",
        "Keeps a minute in a directory, to report it later.",
    ),
    Item(
        "IOStackBreakdown record --ring 60s --until-slower 500ms,fsync",
        "Keeps the last minute in memory, and writes it when an fsync takes 500 ms.",
    ),
    Item(
        "IOStackBreakdown report slow.iosb --from +1s --to +2s",
        "The report of a part of it.",
    ),
    Item(
        "IOStackBreakdown export slow.iosb --to perfetto -o slow.pftrace",
        "Its calls and requests, for ui.perfetto.dev.",
    ),
    Item(
        "IOStackBreakdown replay slow.iosb --into /mnt/new --user postgres",
        "Makes its calls once more, on files below /mnt/new.",
    ),
    Item("IOStackBreakdown --check", "Tries every probe on this machine."),
];

const PRIVILEGES: &[Part] = &[
    Text(
        "Root, or CAP_BPF, CAP_PERFMON and CAP_DAC_READ_SEARCH; before Linux 5.11 also CAP_SYS_RESOURCE, for the memory of \
         BPF programs. CAP_SYS_ADMIN is needed for perf's kprobes and tracepoints while kernel.perf_event_paranoid is 2 or more, for file \
         systems in modules, and for --budget. CAP_DAC_OVERRIDE, which includes CAP_DAC_READ_SEARCH, is needed for kprobe events. A seccomp filter, as containers have, must allow bpf(2) and \
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
         one CPU, in each second. For this, the kernel counts the runs of BPF programs, which adds two readings of the clock to each run.",
    ),
    Text(
        "--sample measures only 1 of N calls, chosen at random, which costs less. Numbers of calls are then estimates, with their 95 % \
         intervals; shortest and longest call and losses are those of the measured ones, and requests are all counted.",
    ),
];

const ENVIRONMENT: &[Part] = &[
    Item(
        "TMPDIR",
        "where --check creates its files; otherwise in /var/tmp, /tmp or the current directory",
    ),
    Item("TZ", "the time zone of the times in reports"),
    Item("PATH", "where COMMAND is searched for"),
    Item("NO_COLOR", "if it is set, there are no colours unless --color says so"),
    Item(
        "TERM",
        "if it is dumb, there are no colours and no progress lines, and no --live",
    ),
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
    Item(
        "io-HOST-DATE-TIME.iosb",
        "what record writes: a directory of tables in the Arrow IPC format",
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
        "could not measure, compare, read or export a recording, or a recording ended early because it could not be written; one line on standard error says why, and what to do. With --check: a layer counted nothing, or the kernel refused a probe",
    ),
    Item("2", "wrong usage"),
    Item(
        "3",
        "report --limit: a limit is broken; replay --strict: something differs from the recording",
    ),
    Item(
        "4",
        "record --ring: nothing was written, since no --until happened and no SIGUSR1 came",
    ),
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
        ("ACCURACY AND COST", TRUST),
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
    roff.control("PP", []);
    roff.text([
        bold("IOStackBreakdown help VERB"),
        roman(" explains the options of a verb."),
    ]);
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
