//! The command line as typed.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueHint};

use super::high::{EventForm, When};
use super::shell::Shell;
use super::value::{
    Moment, error, limit, max_size, moment, percent, process_number, replayed_kind, ring, sample, size, slower, speed,
    threshold, time_span, whole_number,
};
use crate::budget::CpuShare;
use crate::catalog::Layer;
use crate::export::Format;
use crate::model::ids::{Family, joined};
use crate::model::recording::Names;
use crate::model::report::group::By;
use crate::model::report::records::Limit;
use crate::model::sample::Sample;
use crate::model::trigger::Trigger;
use crate::playback::Data;
use crate::playback::prepare::Cache;
use crate::playback::run::Timing;
use crate::probe::Choice;
use crate::replay::order::Order;
use crate::serve::Address;
use crate::view::json::Form;

/// Of `-T`.
fn layers_help() -> String {
    format!(
        "Report each of these layers separately: {}. Without -T, or with all: the whole stack, with the mounted file systems (tmpfs \
         only if it is named: all,tmpfs)",
        joined(&Layer::ALL, Layer::name)
    )
}

const EXAMPLES: &str = "\
Examples:
  IOStackBreakdown -T vfs -p 4711          latency of the VFS operations of a process
  IOStackBreakdown -T blk -d nvme0n1 -Q    requests of a disk, time in the queue included
  IOStackBreakdown -T syscall,ext4 1 10    two layers, ten reports, one per second
  IOStackBreakdown -p 4711                 the whole stack: where each call's time goes
  IOStackBreakdown -d nvme0n1 --duration 10s
                                           the same for a disk and its files, for ten seconds
  IOStackBreakdown --slower 10ms           each call of 10 ms or longer, as it ends
  IOStackBreakdown --events --file /srv/shop.db
                                           each call and request on a file, as they come
  IOStackBreakdown --by file -T ext4 -S    operations of each file, those with the most time first
  IOStackBreakdown -- fio job.fio          run a command, trace it and its descendants
  IOStackBreakdown compare BEFORE.json AFTER.json
                                           what differs between two runs saved with --json
  IOStackBreakdown record -o slow.iosb --duration 60s
                                           keep a minute, to report it later
  IOStackBreakdown record --ring 60s --until-slower 500ms,fsync
                                           keep the last minute in memory, and write it when an fsync is slow
  IOStackBreakdown report slow.iosb --from +1s --to +2s
                                           the second one of it
  IOStackBreakdown --live                  a screen that shows each second as it comes
  IOStackBreakdown export slow.iosb --to perfetto -o slow.pftrace
                                           its calls and requests, for ui.perfetto.dev
  IOStackBreakdown replay slow.iosb --into /mnt/new --user postgres
                                           the same calls once more, on files below /mnt/new";

/// How times are written; the manual has it, too.
pub const TIMES: &str = "\
TIME and INTERVAL are numbers with a unit: ns, us, ms, s, m (minutes) or h; decimals are allowed. A number alone is seconds.";

/// One line for each form; the manual has it, too.
pub const USAGE: &str = "IOStackBreakdown [OPTIONS] [INTERVAL [COUNT]] [-- COMMAND...]
       IOStackBreakdown record [OPTIONS] [-- COMMAND...]
       IOStackBreakdown report FILE [OPTIONS] [INTERVAL [COUNT]]
       IOStackBreakdown export FILE --to FORMAT [OPTIONS]
       IOStackBreakdown replay FILE --into DIR [OPTIONS]
       IOStackBreakdown compare BEFORE AFTER [--html FILE]
       IOStackBreakdown help [VERB]";

/// Options on how reports are printed.
const PRINTED: [&str; 5] = ["folded", "oneline", "summary", "milliseconds", "microseconds"];

/// Options on files that have reports, too.
const FILES: [&str; 3] = ["export_json", "html", "svg"];

#[derive(Parser, Debug)]
#[command(
    name = "IOStackBreakdown",
    version,
    about = "Shows where the time of I/O operations goes, layer by layer.",
    after_help = format!("{TIMES}\n\n{EXAMPLES}"),
    override_usage = USAGE,
    max_term_width = 100,
    subcommand_help_heading = "Verbs",
    args_conflicts_with_subcommands = true
)]
pub struct Raw {
    #[command(subcommand)]
    pub verb: Option<Verb>,
    // The help lists the layers of the model.
    #[arg(short = 'T', long = "type", value_name = "LAYER,...", value_delimiter = ',', conflicts_with = "folded", help = layers_help())]
    pub layers: Vec<String>,
    #[command(flatten)]
    pub filters: Filters,
    #[command(flatten)]
    pub output: Output,
    /// Show a screen that follows the whole stack second by second: families, latencies over time, groups, slow calls, disks.
    /// With -o FILE, a recording is also kept, in the new directory FILE
    #[arg(long, conflicts_with_all = PRINTED, conflicts_with_all = ["layers", "json", "interval", "count", "check", "command",
        "from_snapshots", "save_snapshots"])]
    pub live: bool,
    /// With --live: keep earlier seconds in this much memory, such as 256M (default: 64M)
    #[arg(long, value_name = "SIZE", value_parser = size, requires = "live")]
    pub history: Option<u64>,
    /// With --live: mark calls (of a family or a name) and requests (device, queue) that take longer, such as
    /// fsync=50ms,device=20ms
    #[arg(long = "limit", value_name = "WHAT=TIME,...", value_delimiter = ',', value_parser = limit, requires = "live")]
    pub limits: Vec<Limit>,
    /// Serve the counters so far as Prometheus metrics, at ADDR: a port of 127.0.0.1, IP:PORT, unix:PATH, or systemd for a
    /// socket that systemd passes. With --by, each of the first 100 groups has metrics of its own
    #[arg(long, value_name = "ADDR", num_args = 0..=1, require_equals = true, default_missing_value = "19560", conflicts_with_all = ["check", "from_snapshots"])]
    pub metrics: Option<Address>,
    /// Try each probe on files in a new directory (in TMPDIR, otherwise in /var/tmp, /tmp or the current directory), and show which work on this machine
    #[arg(long, conflicts_with_all = PRINTED, conflicts_with_all = FILES, conflicts_with_all = ["pids", "disk", "queued", "cgroup",
        "unit", "pod", "container", "comm", "files", "all_files", "interval", "duration", "command", "json", "output", "by"])]
    pub check: bool,
    /// Measure only 1 of N calls, chosen at random (such as 1/100, up to 1/1000000), which costs less: numbers are estimates, and
    /// reports have their 95 % intervals. Requests (blk) are all counted
    #[arg(long, value_name = "1/N", value_parser = sample, conflicts_with_all = ["check", "from_snapshots"])]
    pub sample: Option<Sample>,
    /// Print each call that took TIME or longer (10ms, 500us; 0: every call) as it ends, and where its time went. A summary
    /// follows at the end, or the whole report with --verbose or --json
    #[arg(long, value_name = "TIME", value_parser = threshold, conflicts_with_all = ["folded", "check"])]
    pub slower: Option<Duration>,
    /// Print each call and request as a line, in the order in which they began, and losses where they were: for people, as the
    /// log of iotracer, or as JSON Lines. --file can be repeated then, and selects requests as well
    #[arg(long, value_name = "FORM", value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "text",
        conflicts_with_all = PRINTED, conflicts_with_all = FILES, conflicts_with_all = ["json", "by", "slower", "interval", "live",
            "metrics", "check", "from_snapshots", "save_snapshots"])]
    pub events: Option<EventForm>,
    /// With --events: print only the last N lines, at the end, and so far at SIGUSR1
    #[arg(long, value_name = "N", requires = "events", value_parser = whole_number::<u32>)]
    pub last: Option<u32>,
    /// With --events: only calls and requests on files below this directory; can be repeated, and beside --file
    #[arg(long = "dir", value_name = "DIR", requires = "events", value_hint = ValueHint::DirPath)]
    pub folders: Vec<PathBuf>,
    /// Print a report every INTERVAL, of that interval only
    #[arg(value_name = "INTERVAL", value_parser = time_span)]
    pub interval: Option<Duration>,
    /// Stop after COUNT reports
    #[arg(value_name = "COUNT", value_parser = whole_number::<u64>)]
    pub count: Option<u64>,
    /// Stop after TIME, such as 10s, 500ms, 2m
    #[arg(long, value_name = "TIME", value_parser = time_span)]
    pub duration: Option<Duration>,
    /// If measuring takes more than PERCENT of one CPU during a second (800 is all of 8 CPUs), detach the layer whose probes
    /// cost most (system calls last), then the next; end the run if that is not enough. Every step is reported when it happens
    #[arg(long, value_name = "PERCENT", value_parser = percent, conflicts_with = "check")]
    pub budget: Option<CpuShare>,
    /// Run COMMAND, trace it and its descendants, and stop when it ends
    #[arg(last = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
    /// Run COMMAND as this user
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Use this kind of hook instead of the cheapest one that loses no calls on this kernel
    #[arg(long, value_enum, default_value_t = Choice::Auto, hide_short_help = true)]
    pub probe: Choice,
    /// Pretend that the kernel lacks FUNCTION (for testing; can be repeated)
    #[arg(long, value_name = "FUNCTION", hide_short_help = true)]
    pub without: Vec<String>,
    /// Read the kernel's symbols from this vmlinux file
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath, hide_short_help = true)]
    pub vmlinux: Option<PathBuf>,
    /// Print a completion script for SHELL; to use it: source <(IOStackBreakdown --completions bash)
    #[arg(long, value_name = "SHELL", value_enum, hide_short_help = true, exclusive = true)]
    pub completions: Option<Shell>,
    /// Keep the start times of calls in a table for N threads
    #[arg(long, value_name = "N", hide = true, value_parser = clap::value_parser!(u32).range(1..))]
    pub starts: Option<u32>,
    /// Load the BPF programs as they were compiled
    #[arg(long, hide = true)]
    pub as_compiled: bool,
    /// Distinguish up to N processes, files, disks or cgroups
    #[arg(long, value_name = "N", hide = true, requires = "by", value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub groups: Option<u32>,
    /// Keep the counters of reports in FILE
    #[arg(long, value_name = "FILE", hide = true, conflicts_with = "check")]
    pub save_snapshots: Option<PathBuf>,
    /// Print the reports of counters that were kept in FILE
    #[arg(long, value_name = "FILE", hide = true, conflicts_with_all = ["check", "save_snapshots", "command"])]
    pub from_snapshots: Option<PathBuf>,
}

#[derive(Subcommand, Debug)]
pub enum Verb {
    /// Keep every second's counters, and calls and requests where they are recorded, for reports at any later time
    Record(Box<Record>),
    /// Report what `record` kept
    Report(Box<Report>),
    /// Write the calls and requests of a recording in the format of another tool
    Export(Box<Export>),
    /// Make the calls of a recording once more, on files of their own below a directory
    Replay(Box<Replay>),
    /// Compare two runs saved with --json or --html, or two recordings
    #[command(override_usage = "IOStackBreakdown compare BEFORE AFTER [--html FILE]")]
    Compare {
        /// A report written by --json or --html, or a recording
        #[arg(value_name = "BEFORE", value_hint = ValueHint::FilePath)]
        before: PathBuf,
        /// The report to compare it with
        #[arg(value_name = "AFTER", value_hint = ValueHint::FilePath)]
        after: PathBuf,
        /// Also write the comparison to FILE as a page for browsers, with the latencies of both runs on the same scale
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        html: Option<PathBuf>,
    },
}

/// Options of `record`.
#[derive(Args, Debug)]
#[command(override_usage = "IOStackBreakdown record [OPTIONS] [-- COMMAND...]")]
pub struct Record {
    /// Write the recording to this directory, which must not exist; by default io-HOST-DATE-TIME.iosb here
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::DirPath)]
    pub output: Option<PathBuf>,
    #[arg(short = 'T', long = "type", value_name = "LAYER,...", value_delimiter = ',', help = layers_help())]
    pub layers: Vec<String>,
    #[command(flatten)]
    pub filters: Filters,
    /// Stop after TIME, such as 10s, 500ms, 2m
    #[arg(long, value_name = "TIME", value_parser = time_span)]
    pub duration: Option<Duration>,
    /// Stop when the recording has SIZE, such as 500M or 2G
    #[arg(long, value_name = "SIZE", value_parser = max_size)]
    pub max_size: Option<u64>,
    /// Stop when the file system of the recording has less than SIZE left; by default 1 GiB or 5 % of it, the smaller
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub keep_free: Option<u64>,
    /// Room for records on their way, for all CPUs together, such as 16M; by default 64 MiB, at most a 64th of the memory
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub buffer: Option<u64>,
    /// Write to the disk itself every TIME, so that less is missing after a power failure; by default at the end of each
    /// segment (60 s or 64 MiB)
    #[arg(long, value_name = "TIME", value_parser = time_span)]
    pub sync: Option<Duration>,
    /// Keep only the last TIME, in memory, and at most SIZE of it (by default 256M), at most an eighth of the memory. It is
    /// written when an --until happens, or at once at SIGUSR1. Exit status 4 if nothing was written
    #[arg(long, value_name = "TIME[,SIZE]", value_parser = ring, conflicts_with_all = ["max_size", "sync"])]
    pub ring: Option<(Duration, Option<u64>)>,
    /// With --ring: until a call, or one of a family or a name, takes TIME: 500ms, 500ms,fsync, 20ms,pread64; or a request
    /// does at the device or in the queue: 1s,device (can be repeated)
    #[arg(long, value_name = "TIME[,WHAT]", value_parser = slower, requires = "ring")]
    pub until_slower: Vec<Trigger>,
    /// With --ring: until a call or a request fails with an error: EIO, ENOSPC,write, EIO,device (can be repeated)
    #[arg(long, value_name = "ERROR[,WHAT]", value_parser = error, requires = "ring")]
    pub until_error: Vec<Trigger>,
    /// With --ring: until a call has been under way for TIME and has not returned
    #[arg(long, value_name = "TIME", value_parser = time_span, requires = "ring")]
    pub until_stuck: Option<Duration>,
    /// With --ring: go on recording for TIME after an --until has happened (default 5s), before it is written
    #[arg(long, value_name = "TIME", value_parser = threshold, requires = "ring")]
    pub after: Option<Duration>,
    /// With --ring: end after N recordings (default 1). What is in one is not in the next
    #[arg(long, value_name = "N", value_parser = whole_number::<u32>, requires = "ring")]
    pub repeat: Option<u32>,
    /// How names of files are written: full, hash (each component of a path as a hash of 8 digits) or none (numbers only)
    #[arg(long, value_name = "HOW", value_enum, default_value_t = Names::Full)]
    pub names: Names,
    /// Also split the counters by process, file, disk, cgroup, unit, pod or container. `report` splits by thread, comm, fd
    /// and user without it
    #[arg(long, value_name = "WHAT", value_enum)]
    pub by: Option<By>,
    /// With --by: reports have this many groups, the largest first
    #[arg(long, value_name = "N", default_value_t = 10, requires = "by", value_parser = whole_number::<u32>)]
    pub top: u32,
    /// As without record: detach layers if measuring takes more than PERCENT of one CPU
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub budget: Option<CpuShare>,
    /// Also write a report of the whole run to FILE as JSON Lines
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub export_json: Option<PathBuf>,
    /// Show how each operation is measured
    #[arg(long)]
    pub verbose: bool,
    /// Do not print notes, progress or the remaining time
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Use this kind of hook instead of the cheapest one that loses no calls on this kernel
    #[arg(long, value_enum, default_value_t = Choice::Auto, hide_short_help = true)]
    pub probe: Choice,
    /// Pretend that the kernel lacks FUNCTION (for testing; can be repeated)
    #[arg(long, value_name = "FUNCTION", hide_short_help = true)]
    pub without: Vec<String>,
    /// Run COMMAND as this user
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Run COMMAND, record it and its descendants, and stop when it ends
    #[arg(last = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

/// Options of `report` that print something else than answers from records, beside those of reports.
const OTHER_FORMS: [&str; 3] = ["lost", "interval", "events"];

/// Options that select from a recording: what is missing from it has no process, no file and no disk.
const SELECTIONS: [&str; 12] = [
    "pids",
    "follow",
    "disk",
    "queued",
    "cgroup",
    "unit",
    "pod",
    "container",
    "comm",
    "files",
    "folders",
    "all_files",
];

/// Options of `report`.
#[derive(Args, Debug)]
#[command(override_usage = "IOStackBreakdown report [OPTIONS] FILE [INTERVAL [COUNT]]")]
pub struct Report {
    /// A recording
    #[arg(value_name = "FILE", value_hint = ValueHint::DirPath)]
    pub recording: PathBuf,
    /// Report only these of the recorded layers, each separately. Of a recording of the whole stack: syscall, blk
    #[arg(short = 'T', long = "type", value_name = "LAYER,...", value_delimiter = ',', conflicts_with_all = ["folded", "lost"])]
    pub layers: Vec<String>,
    #[command(flatten)]
    pub filters: Filters,
    /// Only calls and requests on files below this directory; can be repeated, and beside --file
    #[arg(long = "dir", value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub folders: Vec<PathBuf>,
    #[command(flatten)]
    pub output: Output,
    /// Report from this moment on: 12:03:07, 12:03:07.5, +10s after the start, -10s before the end
    #[arg(long, value_name = "MOMENT", value_parser = moment, allow_hyphen_values = true)]
    pub from: Option<Moment>,
    /// Report up to this moment
    #[arg(long, value_name = "MOMENT", value_parser = moment, allow_hyphen_values = true)]
    pub to: Option<Moment>,
    /// Print only what is missing from the recording: records that were lost, and damage
    #[arg(long, conflicts_with_all = PRINTED, conflicts_with_all = FILES, conflicts_with_all = SELECTIONS,
        conflicts_with_all = ["json", "by", "from", "to", "interval"])]
    pub lost: bool,
    /// Print each call that took TIME or longer
    #[arg(long, value_name = "TIME", value_parser = threshold, conflicts_with_all = ["folded", "lost"])]
    pub slower: Option<Duration>,
    /// Print each call and request as a line, in the order in which they began, and losses where they were: for people, as the
    /// log of iotracer, or as JSON Lines
    #[arg(long, value_name = "FORM", value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "text",
        conflicts_with_all = PRINTED, conflicts_with_all = FILES,
        conflicts_with_all = ["json", "by", "lost", "slower", "interval"])]
    pub events: Option<EventForm>,
    /// With --events: print only the last N lines
    #[arg(long, value_name = "N", requires = "events", value_parser = whole_number::<u32>)]
    pub last: Option<u32>,
    /// Print for each file whether it is read and written sequentially, at the levels VFS (bytes) and BLK (sectors)
    #[arg(long, conflicts_with_all = PRINTED, conflicts_with_all = FILES, conflicts_with_all = OTHER_FORMS)]
    pub access: bool,
    /// Print the distances between successive requests of each disk (-d: of this one), and whose requests send the head away:
    /// with --by, those of a process (default) or on a file; disk: distances only
    #[arg(long, conflicts_with_all = PRINTED, conflicts_with_all = FILES, conflicts_with_all = OTHER_FORMS)]
    pub seeks: bool,
    /// Print how often calls (of a family or a name) or requests (device, queue) took longer than a limit, such as
    /// read=10ms,fsync=50ms,device=20ms, who waited, and who was served meanwhile. Exit status 3 if a limit is broken
    #[arg(long = "limit", value_name = "WHAT=TIME,...", value_delimiter = ',', value_parser = limit,
        conflicts_with_all = PRINTED, conflicts_with_all = FILES, conflicts_with_all = OTHER_FORMS)]
    pub limits: Vec<Limit>,
    /// Show the recording on a screen, second by second: step through it, or play it at its recorded speed. With --limit,
    /// what takes longer is marked
    #[arg(long, conflicts_with_all = PRINTED, conflicts_with_all = FILES, conflicts_with_all = ["layers", "json", "output", "lost",
        "access", "seeks", "events", "interval"])]
    pub live: bool,
    /// Print a report for every INTERVAL, rounded up to whole seconds
    #[arg(value_name = "INTERVAL", value_parser = time_span)]
    pub interval: Option<Duration>,
    /// Stop after COUNT reports
    #[arg(value_name = "COUNT", value_parser = whole_number::<u64>)]
    pub count: Option<u64>,
}

/// Options of `export`.
#[derive(Args, Debug)]
#[command(override_usage = "IOStackBreakdown export FILE --to FORMAT [OPTIONS]")]
pub struct Export {
    /// A recording
    #[arg(value_name = "FILE", value_hint = ValueHint::DirPath)]
    pub recording: PathBuf,
    /// jsonl: JSON Lines. iotracer: its log. perfetto: for ui.perfetto.dev. Directories: fio (a job), blktrace (for blkparse,
    /// btt), ctf (for babeltrace2, Trace Compass, LTTng's analyses)
    #[arg(long = "to", value_name = "FORMAT", value_enum)]
    pub format: Format,
    /// Write to PATH (- for stdout): a file, or for fio, blktrace and ctf a new directory
    #[arg(short, long, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub output: Option<PathBuf>,
    /// Only calls (syscall) or only requests (blk)
    #[arg(short = 'T', long = "type", value_name = "LAYER,...", value_delimiter = ',', value_parser = ["syscall", "blk"])]
    pub layers: Vec<String>,
    /// Only these processes
    #[arg(short, long = "pid", value_name = "PID,...", value_delimiter = ',', value_parser = process_number)]
    pub pids: Vec<u32>,
    /// Only requests of this disk or partition, and calls on files on it, by its name when it was recorded
    #[arg(short, long, value_name = "DISK")]
    pub disk: Option<String>,
    /// Only threads of this name
    #[arg(long, value_name = "NAME")]
    pub comm: Option<String>,
    /// Only calls and requests on the file that had this path when it was recorded
    #[arg(long, value_name = "PATH")]
    pub file: Option<String>,
    /// Only what ended from this moment on: 12:03:07, 12:03:07.5, +10s after the start, -10s before the end
    #[arg(long, value_name = "MOMENT", value_parser = moment, allow_hyphen_values = true)]
    pub from: Option<Moment>,
    /// Only what ended before this moment
    #[arg(long, value_name = "MOMENT", value_parser = moment, allow_hyphen_values = true)]
    pub to_time: Option<Moment>,
    /// Do not print progress and what was exported
    #[arg(short, long)]
    pub quiet: bool,
}

/// Options of `replay`.
#[derive(Args, Debug)]
#[command(override_usage = "IOStackBreakdown replay FILE --into DIR [OPTIONS]")]
#[allow(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub struct Replay {
    /// A recording
    #[arg(value_name = "FILE", value_hint = ValueHint::DirPath)]
    pub recording: PathBuf,
    /// Make all files below this directory, which is empty or has those of an earlier replay of this recording
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub into: PathBuf,
    /// Run at this multiple of the recorded speed: 2 is twice as fast, 0.5 half as fast; 0: without waiting for any moment
    #[arg(short, long, value_name = "SPEED", default_value = "1", value_parser = speed)]
    pub speed: f64,
    /// When calls begin
    #[arg(long, value_name = "HOW", value_enum, default_value_t = Timing::Schedule)]
    pub timing: Timing,
    /// Which calls wait for those that had ended before them
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = Order::Files)]
    pub order: Order,
    /// Make what was recorded below the directory OLD below the directory NEW; can be repeated
    #[arg(long = "map", value_name = "OLD=NEW")]
    pub maps: Vec<String>,
    /// Only make the files, and restore those that an earlier replay changed
    #[arg(long, conflicts_with_all = ["clean", "json", "strict"])]
    pub prepare: bool,
    /// Remove all that replays have made below DIR, and nothing else
    #[arg(long, conflicts_with_all = ["json", "strict"])]
    pub clean: bool,
    /// What the page cache has of these files when the calls begin
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = Cache::Cold)]
    pub cache: Cache,
    /// What files contain, and writes write: random, zero, or a number from 1 on by which it can be compressed
    #[arg(long, value_name = "WHAT", default_value = "random", value_parser = |text: &str| text.parse::<Data>())]
    pub data: Data,
    /// Only calls of these kinds: read, write, open, fsync, metadata. Files are open when they are needed
    #[arg(long, value_name = "KIND,...", value_delimiter = ',', value_parser = replayed_kind)]
    pub only: Vec<Family>,
    /// No calls of these kinds
    #[arg(long, value_name = "KIND,...", value_delimiter = ',', value_parser = replayed_kind, conflicts_with = "only")]
    pub without: Vec<Family>,
    /// Only calls of these recorded threads
    #[arg(long, value_name = "TID,...", value_delimiter = ',', value_parser = whole_number::<u32>)]
    pub threads: Vec<u32>,
    /// Change owners of files as in the recording, until the replay ends
    #[arg(long, conflicts_with_all = ["prepare", "clean"])]
    pub owners: bool,
    /// Run as this user; required for root
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Exit with status 3 if a call returned something else than in the recording, or was not made
    #[arg(long)]
    pub strict: bool,
    /// Measure the replay as the recording was measured, and compare the two; without privileges, only the times of calls
    #[arg(long, conflicts_with_all = ["prepare", "clean"])]
    pub measure: bool,
    /// Print the result as one line of JSON
    #[arg(long)]
    pub json: bool,
    /// Do not print notes and progress
    #[arg(short, long)]
    pub quiet: bool,
}

/// Values of options are the names of these types.
macro_rules! values_by_name {
    ($($Type:ty),*) => {$(
        impl clap::ValueEnum for $Type {
            fn value_variants<'a>() -> &'a [Self] {
                &Self::ALL
            }

            fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
                Some(clap::builder::PossibleValue::new(self.name()))
            }
        }
    )*};
}

values_by_name!(By, EventForm, Format, Names);

#[derive(Args, Debug)]
pub struct Filters {
    /// Only these processes, with all their threads
    #[arg(short, long = "pid", value_name = "PID,...", value_delimiter = ',', value_parser = process_number)]
    pub pids: Vec<u32>,
    /// With -p: also their descendants
    #[arg(short, long)]
    pub follow: bool,
    /// Only this disk or partition, and calls on files on it: nvme0n1, /dev/sda1, dm-0, /dev/mapper/NAME
    #[arg(short, long, value_name = "DISK")]
    pub disk: Option<String>,
    /// At blk: count the time that a request waits in the kernel's queue, too: from its creation to its issue. Unlike the row queue of the
    /// whole stack, without the time in the throttle of a cgroup
    #[arg(short = 'Q', long)]
    pub queued: bool,
    /// Only this cgroup and those below it
    #[arg(long, value_name = "PATH", value_hint = ValueHint::DirPath)]
    pub cgroup: Option<PathBuf>,
    /// Only this unit of systemd: nginx.service, or nginx
    #[arg(long, value_name = "NAME", conflicts_with = "cgroup")]
    pub unit: Option<String>,
    /// Only this pod of Kubernetes
    #[arg(long, value_name = "NAMESPACE/NAME", conflicts_with_all = ["cgroup", "unit"])]
    pub pod: Option<String>,
    /// Only this container, by its name: of Docker and Podman NAME, of Kubernetes NAMESPACE/POD/NAME
    #[arg(long, value_name = "NAME", conflicts_with_all = ["cgroup", "unit", "pod"])]
    pub container: Option<String>,
    /// Only threads of this name
    #[arg(long, value_name = "NAME")]
    pub comm: Option<String>,
    /// Only calls on this file, under any of its names (hard links). In a recording: under the name that it had; can be
    /// repeated there, and with --events
    #[arg(long = "file", value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub files: Vec<PathBuf>,
    /// Include calls on sockets, pipes, character devices (terminals) and eventfds
    #[arg(long)]
    pub all_files: bool,
}

#[derive(Args, Debug, Default)]
pub struct Output {
    /// Print times in milliseconds
    #[arg(short, long, conflicts_with = "microseconds")]
    pub milliseconds: bool,
    /// Print times in microseconds
    #[arg(short = 'u', long)]
    pub microseconds: bool,
    /// Print tables only, no histograms
    #[arg(short = 'S', long)]
    pub summary: bool,
    /// Write the report to FILE (- for stdout)
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
    /// Print JSON Lines: always in nanoseconds, with histograms (-m, -u and -S have no effect). compact: without operations that were never called
    #[arg(long, value_name = "FORM", value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "full")]
    pub json: Option<Form>,
    /// Also write the reports to FILE as JSON Lines
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub export_json: Option<PathBuf>,
    /// Also write the report to FILE at the end, as a page for browsers: tables, and with INTERVAL pictures over time
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub html: Option<PathBuf>,
    /// Also draw the whole stack of the run as a picture, an icicle of layers and waits, and write it to FILE as SVG at the end
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub svg: Option<PathBuf>,
    /// Split the report by process, file, disk, cgroup, unit, pod or container, or in a recording by thread, comm, fd or user: one part for each of the --top
    /// largest, one for all others (at most 1,024 groups; 4,096 of a recording)
    #[arg(long, value_name = "WHAT", value_enum)]
    pub by: Option<By>,
    /// With --by: report this many groups, the largest first (default: 10)
    #[arg(long, value_name = "N", value_parser = whole_number::<u32>)]
    pub top: Option<u32>,
    /// Print the whole stack as folded stacks, in nanoseconds, for flame graph tools
    #[arg(long, conflicts_with = "json")]
    pub folded: bool,
    /// With INTERVAL: print one line per report, like vmstat, and the heading once per screenful
    #[arg(long, requires = "interval", conflicts_with_all = ["json", "folded", "by", "slower", "verbose"])]
    pub oneline: bool,
    /// Mark the largest rows, losses and what is not measured with colours: on a terminal (auto; not if NO_COLOR is set),
    /// always, or never
    #[arg(long, value_name = "WHEN", value_enum, hide_possible_values = true, default_value_t = When::Auto)]
    pub color: When,
    /// Show how each operation is measured, and how often each probe ran and what it cost
    #[arg(long)]
    pub verbose: bool,
    /// Do not print notes (hooks, what is not measured), progress or the remaining time
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,
}
