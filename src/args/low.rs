//! The command line as typed.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueHint};

use super::shell::Shell;
use super::value::{percent, process_number, threshold, time_span};
use crate::budget::CpuShare;
use crate::catalog::Layer;
use crate::model::ids::joined;
use crate::model::report::group::By;
use crate::probe::Choice;
use crate::view::json::Form;

/// Of `-T`.
fn layers_help() -> String {
    format!(
        "Report these layers one by one: {}. Without it, or with all: the whole stack, of the file systems that are mounted; tmpfs \
         is in it with all,tmpfs",
        joined(&Layer::ALL, Layer::name)
    )
}

const EXAMPLES: &str = "\
Examples:
  IOStackBreakdown -T vfs -p 4711          latency of the VFS operations of a process
  IOStackBreakdown -T blk -d nvme0n1 -Q    requests of a disk, time in the queue included
  IOStackBreakdown -T syscall,ext4 1 10    two layers, ten reports of a second each
  IOStackBreakdown -p 4711                 the whole stack: where each call's time goes
  IOStackBreakdown -d nvme0n1 --duration 10s
                                           the same for a disk and its files, for ten seconds
  IOStackBreakdown --slower 10ms           each call of 10 ms or longer, as it ends
  IOStackBreakdown --by file -T ext4 -S    operations of each file, the busiest first
  IOStackBreakdown -- fio job.fio          run a command, trace it and its descendants
  IOStackBreakdown compare OLD.json NEW.json
                                           what differs between two runs of --json";

/// How times are written; the manual has it, too.
pub const TIMES: &str = "\
TIME and INTERVAL are a number, decimals allowed, with its unit: ns, us, ms, s, m or h. A number alone is seconds.";

/// One line for each form; the manual has it, too.
pub const USAGE: &str = "IOStackBreakdown [OPTIONS] [INTERVAL [COUNT]] [-- COMMAND...]
       IOStackBreakdown compare BEFORE.json AFTER.json
       IOStackBreakdown help [VERB]";

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
    // Its help is made of the layers that there are.
    #[arg(short = 'T', long = "type", value_name = "LAYER,...", value_delimiter = ',', help = layers_help())]
    pub layers: Vec<String>,
    #[command(flatten)]
    pub filters: Filters,
    #[command(flatten)]
    pub output: Output,
    /// Print each call that took TIME or longer, such as 10ms, 500us, as it ends, and where its time went; 0 for all. The run
    /// ends with a summary; with --verbose or --json, with the whole report
    #[arg(long, value_name = "TIME", value_parser = threshold, conflicts_with_all = ["folded", "check"])]
    pub slower: Option<Duration>,
    /// Print a report every INTERVAL; each covers its own interval
    #[arg(value_name = "INTERVAL", value_parser = time_span)]
    pub interval: Option<Duration>,
    /// Stop after COUNT reports
    #[arg(value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Stop after TIME, such as 10s, 500ms, 2m
    #[arg(long, value_name = "TIME", value_parser = time_span)]
    pub duration: Option<Duration>,
    /// When measuring took more than PERCENT of one CPU in a second (800 is all of 8 CPUs), detach the layer that saves most,
    /// and another if that is not enough; end the run when none saves enough. Each is reported at once
    #[arg(long, value_name = "PERCENT", value_parser = percent, conflicts_with = "check")]
    pub budget: Option<CpuShare>,
    /// Run COMMAND, trace it and its descendants, and stop when it ends
    #[arg(last = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
    /// Run COMMAND as this user
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Use this kind of hook instead of the best one for this kernel
    #[arg(long, value_enum, default_value_t = Choice::Auto, hide_short_help = true)]
    pub probe: Choice,
    /// Pretend that the kernel lacks FUNCTION (can be repeated)
    #[arg(long, value_name = "FUNCTION", hide_short_help = true)]
    pub without: Vec<String>,
    /// Take symbols from this vmlinux file
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath, hide_short_help = true)]
    pub vmlinux: Option<PathBuf>,
    /// Print the completions of a shell, as in: source <(IOStackBreakdown --completions bash)
    #[arg(long, value_name = "SHELL", value_enum, hide_short_help = true, exclusive = true)]
    pub completions: Option<Shell>,
    /// Keep starts in a table with room for N threads
    #[arg(long, value_name = "N", hide = true, value_parser = clap::value_parser!(u32).range(1..))]
    pub starts: Option<u32>,
    /// Load the BPF programs as they were compiled
    #[arg(long, hide = true)]
    pub as_compiled: bool,
    /// Have room for N processes, files, disks or control groups
    #[arg(long, value_name = "N", hide = true, requires = "by", value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub groups: Option<u32>,
    /// Keep the counters of reports in FILE
    #[arg(long, value_name = "FILE", hide = true, conflicts_with = "check")]
    pub save_snapshots: Option<PathBuf>,
    /// Print the reports of counters that were kept in FILE
    #[arg(long, value_name = "FILE", hide = true, conflicts_with_all = ["check", "save_snapshots", "command"])]
    pub from_snapshots: Option<PathBuf>,
}

impl clap::ValueEnum for By {
    fn value_variants<'a>() -> &'a [Self] {
        &Self::ALL
    }

    fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
        Some(clap::builder::PossibleValue::new(self.name()))
    }
}

#[derive(Subcommand, Debug)]
pub enum Verb {
    /// Show what differs between two runs of --json
    Compare {
        /// A report written by --json
        #[arg(value_name = "BEFORE.json", value_hint = ValueHint::FilePath)]
        before: PathBuf,
        /// The report to compare it with
        #[arg(value_name = "AFTER.json", value_hint = ValueHint::FilePath)]
        after: PathBuf,
    },
}

#[derive(Args, Debug)]
pub struct Filters {
    /// Only these processes
    #[arg(short, long = "pid", value_name = "PID,...", value_delimiter = ',', value_parser = process_number)]
    pub pids: Vec<u32>,
    /// With -p: also their descendants
    #[arg(short, long)]
    pub follow: bool,
    /// Only this disk: nvme0n1, /dev/sda1, dm-0, /dev/mapper/NAME
    #[arg(short, long, value_name = "DISK")]
    pub disk: Option<String>,
    /// Include the time in the kernel's queue in the time of requests
    #[arg(short = 'Q', long)]
    pub queued: bool,
    /// Only this control group and those below it
    #[arg(long, value_name = "PATH", value_hint = ValueHint::DirPath)]
    pub cgroup: Option<PathBuf>,
    /// Only threads of this name
    #[arg(long, value_name = "NAME")]
    pub comm: Option<String>,
    /// Only calls on this file, by whatever name
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub file: Option<PathBuf>,
    /// Include sockets, pipes, terminals and the like
    #[arg(long)]
    pub all_files: bool,
}

#[derive(Args, Debug)]
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
    /// Print JSON Lines, always in nanoseconds and with histograms, whatever -m, -u and -S say; compact: leave out what was never called
    #[arg(long, value_name = "FORM", value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "full")]
    pub json: Option<Form>,
    /// Also write the reports to FILE as JSON Lines
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "check")]
    pub export_json: Option<PathBuf>,
    /// Split the report by process, file, disk or control group (1,024 at most): one report for each of the largest, and one for all others
    #[arg(long, value_name = "WHAT", value_enum, conflicts_with = "check")]
    pub by: Option<By>,
    /// With --by: report this many groups, the largest first
    #[arg(long, value_name = "N", default_value_t = 10, requires = "by", value_parser = clap::value_parser!(u32).range(1..))]
    pub top: u32,
    /// Print the whole stack as folded stacks, in nanoseconds, for flame graph tools
    #[arg(long, conflicts_with_all = ["json", "layers"])]
    pub folded: bool,
    /// With INTERVAL: print one line for each report, as vmstat does, and repeat the heading on each screen
    #[arg(long, requires = "interval", conflicts_with_all = ["json", "folded", "by", "slower", "verbose", "check"])]
    pub oneline: bool,
    /// Show how each operation is measured, and how often each probe ran and what it cost
    #[arg(long)]
    pub verbose: bool,
    /// Leave out notes (how layers are measured, what is not measured), progress and the time left
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Try each probe on files in a new directory (in TMPDIR, else /var/tmp, /tmp or the current one), and show which work on this machine
    #[arg(long, conflicts_with_all = ["pids", "disk", "queued", "cgroup", "comm", "file", "all_files", "interval", "duration", "command", "json", "output"])]
    pub check: bool,
}
