//! The command line: raw arguments in, a [`Command`] with validated [`Options`] out.

pub mod complete;
pub mod shell;

use std::borrow::Cow;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueHint};

use crate::budget::CpuShare;
use crate::catalog::Layer;
use crate::model::report::group::By;
use crate::probe::Choice;
use crate::view::json::Form;
use crate::view::text::Unit;

use self::shell::Shell;

/// A run, as asked for.
#[derive(Debug, Clone)]
pub struct Options {
    /// In the order of the stack, each once.
    pub layers: Vec<Layer>,
    /// The layers were named: one that cannot be measured is an error, not a remark.
    pub layers_named: bool,
    /// The whole stack's view: none were named.
    pub whole_stack: bool,
    pub pids: Vec<u32>,
    pub follow: bool,
    pub disk: Option<String>,
    /// Times at `blk` include the queue.
    pub queued: bool,
    pub cgroup: Option<PathBuf>,
    /// At most 15 bytes.
    pub comm: Option<String>,
    /// The calls of this file only.
    pub file: Option<PathBuf>,
    /// Calls of this length and more are reported one by one.
    pub slower: Option<Duration>,
    /// What the report is split by.
    pub by: Option<By>,
    /// How many parts have numbers of their own, the largest first; more than 0.
    pub top: usize,
    pub unit: Unit,
    pub summary: bool,
    pub all_files: bool,
    /// More than 0.
    pub interval: Option<Duration>,
    /// More than 0; only with an interval.
    pub count: Option<u64>,
    pub duration: Option<Duration>,
    /// Layers are detached when measuring takes more than that.
    pub budget: Option<CpuShare>,
    pub output: Option<PathBuf>,
    /// Reports are JSON Lines, not text.
    pub json: Option<Form>,
    /// Reports go to this file as JSON Lines, too.
    pub export_json: Option<PathBuf>,
    /// Reports are folded stacks.
    pub folded: bool,
    /// A line for each report; only with an interval.
    pub oneline: bool,
    pub verbose: bool,
    /// No notes, no progress.
    pub quiet: bool,
    pub command: Vec<OsString>,
    pub user: Option<String>,
    pub probe: Choice,
    pub without: Vec<String>,
    pub vmlinux: Option<PathBuf>,
    /// Keep starts in a table of this size even where the kernel has something better.
    pub starts: Option<u32>,
    /// How many parts there is room for, where there is another number than ours to be.
    pub groups: Option<u32>,
    /// Keep the counters of which reports are made in this file.
    pub save_snapshots: Option<PathBuf>,
}

impl Options {
    /// Some of the reports are for programs, which want all that is known.
    #[must_use]
    pub fn has_json(&self) -> bool {
        self.json.is_some() || self.export_json.is_some()
    }
}

/// What is asked for: the verb, and what it needs.
#[derive(Debug)]
pub enum Command {
    /// Measure, and report.
    Trace(Options),
    /// `--check`: try every probe.
    Check(Options),
    /// Print the reports of counters that were kept.
    Print { from: PathBuf, options: Options },
    /// `compare`: two files instead of a run.
    Compare { before: PathBuf, after: PathBuf },
    /// A shell asks what may stand at the cursor: the words up to there.
    Complete(Vec<OsString>),
    /// `--help`, `--version` or `--completions`: this text, and success.
    Text(String),
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
  IOStackBreakdown -- fio job.fio          run a command, and trace all that it starts
  IOStackBreakdown compare OLD.json NEW.json
                                           what differs between two runs of --json";

/// What the manual says of times, too.
pub const TIMES: &str = "\
TIME and INTERVAL are a number, decimals allowed, with its unit: ns, us, ms, s, m or h. A number alone is seconds.";

/// One line for each form, which the manual has, too.
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
struct Raw {
    #[command(subcommand)]
    verb: Option<Verb>,
    /// Report these layers one by one: syscall, vfs, ext4, xfs, btrfs, f2fs, nfs, blk. Without it, or with all: the whole stack
    #[arg(short = 'T', long = "type", value_name = "LAYER,...", value_delimiter = ',')]
    layers: Vec<String>,
    #[command(flatten)]
    filters: Filters,
    #[command(flatten)]
    output: Output,
    /// Print each call that took TIME or longer, such as 10ms, 500us, as it ends, and where its time went; 0 for all. The run
    /// ends with a summary; with --verbose or --json, with the whole report
    #[arg(long, value_name = "TIME", value_parser = threshold, conflicts_with_all = ["folded", "check"])]
    slower: Option<Duration>,
    /// Print a report every INTERVAL, and start again
    #[arg(value_name = "INTERVAL", value_parser = time_span)]
    interval: Option<Duration>,
    /// Stop after COUNT reports
    #[arg(value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Stop after TIME, such as 10s, 500ms, 2m
    #[arg(long, value_name = "TIME", value_parser = time_span)]
    duration: Option<Duration>,
    /// Detach the layer that saves most when measuring took more than PERCENT of one CPU in a second (on 8 CPUs, 800 are all
    /// of them), and another if it still does; end the run when none saves enough. Each is reported at once
    #[arg(long, value_name = "PERCENT", value_parser = percent, conflicts_with = "check")]
    budget: Option<CpuShare>,
    /// Run COMMAND, trace it and all that it starts, and stop when it ends
    #[arg(last = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
    /// Run COMMAND as this user
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Use this kind of hook, not the one that suits this kernel best
    #[arg(long, value_enum, default_value_t = Choice::Auto, hide_short_help = true)]
    probe: Choice,
    /// Pretend that the kernel lacks FUNCTION (can be repeated)
    #[arg(long, value_name = "FUNCTION", hide_short_help = true)]
    without: Vec<String>,
    /// Take symbols from this vmlinux file
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath, hide_short_help = true)]
    vmlinux: Option<PathBuf>,
    /// Print the completions of a shell, as in: source <(IOStackBreakdown --completions bash)
    #[arg(long, value_name = "SHELL", value_enum, hide_short_help = true, exclusive = true)]
    completions: Option<Shell>,
    /// Keep starts in a table with room for N threads
    #[arg(long, value_name = "N", hide = true, value_parser = clap::value_parser!(u32).range(1..))]
    starts: Option<u32>,
    /// Have room for N processes, files, disks or control groups
    #[arg(long, value_name = "N", hide = true, requires = "by", value_parser = clap::value_parser!(u32).range(1..=65536))]
    groups: Option<u32>,
    /// Keep the counters of reports in FILE
    #[arg(long, value_name = "FILE", hide = true, conflicts_with = "check")]
    save_snapshots: Option<PathBuf>,
    /// Print the reports of counters that were kept in FILE
    #[arg(long, value_name = "FILE", hide = true, conflicts_with_all = ["check", "save_snapshots", "command"])]
    from_snapshots: Option<PathBuf>,
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
enum Verb {
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
struct Filters {
    /// Only these processes
    #[arg(short, long = "pid", value_name = "PID,...", value_delimiter = ',', value_parser = process_number)]
    pids: Vec<u32>,
    /// With -p: also their descendants
    #[arg(short, long)]
    follow: bool,
    /// Only this disk: nvme0n1, /dev/sda1, dm-0, /dev/mapper/NAME
    #[arg(short, long, value_name = "DISK")]
    disk: Option<String>,
    /// Include the time in the kernel's queue in the time of requests
    #[arg(short = 'Q', long)]
    queued: bool,
    /// Only this control group and those below it
    #[arg(long, value_name = "PATH", value_hint = ValueHint::DirPath)]
    cgroup: Option<PathBuf>,
    /// Only threads of this name
    #[arg(long, value_name = "NAME")]
    comm: Option<String>,
    /// Only calls on this file, by whatever name
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    file: Option<PathBuf>,
    /// Also sockets, pipes, terminals and the like
    #[arg(long)]
    all_files: bool,
}

#[derive(Args, Debug)]
struct Output {
    /// Print times in milliseconds
    #[arg(short, long, conflicts_with = "microseconds")]
    milliseconds: bool,
    /// Print times in microseconds
    #[arg(short = 'u', long)]
    microseconds: bool,
    /// Print tables only, no histograms
    #[arg(short = 'S', long)]
    summary: bool,
    /// Write the report to FILE (- for stdout)
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: Option<PathBuf>,
    /// Print JSON Lines, always in nanoseconds and with histograms, whatever -m, -u and -S say; compact: without what was never called
    #[arg(long, value_name = "FORM", value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "full")]
    json: Option<Form>,
    /// Also write the reports to FILE as JSON Lines
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "check")]
    export_json: Option<PathBuf>,
    /// Split the report by process, file, disk or control group (1,024 at most): the largest, and all others together
    #[arg(long, value_name = "WHAT", value_enum, conflicts_with = "check")]
    by: Option<By>,
    /// With --by: how many are reported, the largest first
    #[arg(long, value_name = "N", default_value_t = 10, requires = "by", value_parser = clap::value_parser!(u32).range(1..))]
    top: u32,
    /// Print the whole stack as folded stacks, in nanoseconds, for flame graph tools
    #[arg(long, conflicts_with_all = ["json", "layers"])]
    folded: bool,
    /// With INTERVAL: print one line for each report, as vmstat does, and the heading again on each screen
    #[arg(long, requires = "interval", conflicts_with_all = ["json", "folded", "by", "slower", "verbose", "check"])]
    oneline: bool,
    /// Show how each operation is measured, and what each probe saw and cost
    #[arg(long)]
    verbose: bool,
    /// Leave out notes (how layers are measured, what is not measured), progress and the time left
    #[arg(short, long, conflicts_with = "verbose")]
    quiet: bool,
    /// Try each probe on files in a new directory (in TMPDIR, else /var/tmp, /tmp or here), and show which ones work on this machine
    #[arg(long, conflicts_with_all = ["pids", "disk", "queued", "cgroup", "comm", "file", "all_files", "interval", "duration", "command", "json", "output"])]
    check: bool,
}

/// What the command line may have, for manuals and completions.
#[must_use]
pub fn command() -> clap::Command {
    let mut command = Raw::command();
    // The verb that clap adds.
    command.build();
    command.mut_subcommand("help", |help| help.about("Print this help, or that of a verb"))
}

/// Parses the arguments, the program's name first.
///
/// # Errors
/// One line, of wrong usage.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Command, String> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    if arguments.last().is_some_and(|last| last == "--") {
        return Err("there is no COMMAND after --".to_owned());
    }
    if arguments.get(1).is_some_and(|first| first == shell::QUESTION) {
        return Ok(Command::Complete(arguments[2..].to_vec()));
    }
    let raw = command()
        .try_get_matches_from(&arguments)
        .and_then(|mut matches| Raw::from_arg_matches_mut(&mut matches));
    let mut raw = match raw {
        Ok(raw) => raw,
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            return Ok(Command::Text(error.to_string()));
        }
        Err(error) => return Err(advice(&error, &arguments).unwrap_or_else(|| one_line(&error))),
    };
    if let Some(Verb::Compare { before, after }) = raw.verb {
        return Ok(Command::Compare { before, after });
    }
    if let Some(shell) = raw.completions {
        return Ok(Command::Text(shell.script()));
    }
    let (is_check, from) = (raw.output.check, raw.from_snapshots.take());
    let options = validate(raw)?;
    Ok(match from {
        Some(from) => Command::Print { from, options },
        None if is_check => Command::Check(options),
        None => Command::Trace(options),
    })
}

const COMPARE: &str = "compare takes two files written by --json: compare BEFORE.json AFTER.json";

/// A better line than clap's, where what was meant can be seen.
fn advice(error: &clap::Error, arguments: &[OsString]) -> Option<String> {
    if arguments.get(1).is_some_and(|verb| verb == "compare") {
        return Some(COMPARE.to_owned());
    }
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let word = match (error.kind(), text(ContextKind::InvalidArg)?) {
        (ErrorKind::ValueValidation, "[INTERVAL]" | "[COUNT]") => text(ContextKind::InvalidValue)?,
        (ErrorKind::UnknownArgument, option) if option.starts_with('-') => {
            // It may be the option of a command that stands before it.
            let at = arguments
                .iter()
                .position(|argument| argument.to_string_lossy().starts_with(option))?;
            let error = command().try_get_matches_from(&arguments[..at]).err()?;
            return advice(&error, arguments);
        }
        (ErrorKind::UnknownArgument, word) => word,
        _ => return None,
    };
    let is_command =
        word.starts_with(|c: char| c.is_alphabetic() || "/.~_".contains(c)) && word.parse::<f64>().is_err();
    if command().get_subcommands().any(|verb| verb.get_name() == word) {
        return Some(format!("a verb is the first word and takes no options: {word}"));
    }
    let first = arguments.iter().position(|argument| argument == word)?;
    let words: Vec<Cow<'_, str>> = arguments[first..].iter().map(|word| word.to_string_lossy()).collect();
    is_command.then(|| {
        format!(
            "'{word}' is neither a verb nor a time; to run a command and trace it: -- {}",
            words.join(" ")
        )
    })
}

/// clap's message without its usage block.
fn one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let first = text.lines().next().unwrap_or_default();
    let mut line = first.strip_prefix("error: ").unwrap_or(first).to_owned();
    if let Some(choices) = error
        .get(ContextKind::ValidValue)
        .filter(|choices| error.kind() == ErrorKind::InvalidValue && !choices.to_string().is_empty())
    {
        line = format!("{line}; it is one of {choices}");
    }
    if let Some(similar) = error.get(ContextKind::SuggestedArg) {
        line = format!("{line}; did you mean {similar}?");
    }
    if line.ends_with(':') {
        // The names are on the lines that follow.
        let rest: Vec<&str> = text
            .lines()
            .skip(1)
            .take_while(|line| line.starts_with(' '))
            .map(str::trim)
            .collect();
        line = format!("{line} {}", rest.join(", "));
    }
    format!("{line} (see --help)")
}

fn validate(raw: Raw) -> Result<Options, String> {
    let (layers, layers_named) = layers(&raw.layers)?;
    if raw.filters.queued && !layers.contains(&Layer::Blk) {
        return Err("-Q applies to the block layer; use it with -T blk".to_owned());
    }
    if raw.filters.disk.is_some() && layers == [Layer::Syscall] {
        return Err(
            "-d needs a layer that knows disks or files, and syscall alone does not; add vfs, blk or a file system to -T"
                .into(),
        );
    }
    if raw.filters.disk.is_some() && layers_named && layers.contains(&Layer::Nfs) {
        return Err("-d selects files on a disk, and those of nfs are on none; leave out -d or nfs".to_owned());
    }
    if raw.filters.file.is_some() && layers_named && layers.contains(&Layer::Blk) {
        return Err("--file needs calls, and requests at blk do not know their file; leave blk out".to_owned());
    }
    if raw.slower.is_some() && raw.output.by.is_some() {
        return Err("--slower reports the process and the file of each call; leave --by out".to_owned());
    }
    if raw.slower.is_some() && layers_named {
        return Err("--slower reports where a call's time went in the whole stack; leave -T out".to_owned());
    }
    if raw.filters.follow && raw.filters.pids.is_empty() {
        return Err(
            "-f follows the descendants of -p; name a process (with -- COMMAND all descendants are traced)".into(),
        );
    }
    if raw.user.is_some() && raw.command.is_empty() {
        return Err("--user is for the command; add -- COMMAND".to_owned());
    }
    if !raw.command.is_empty() && !raw.filters.pids.is_empty() {
        return Err(
            "-p and -- COMMAND cannot be combined: with a command, it and its descendants are traced".to_owned(),
        );
    }
    if let Some(comm) = &raw.filters.comm
        && (comm.is_empty() || comm.len() > COMM_LENGTH)
    {
        return Err(format!("--comm '{comm}': a thread name has 1 to {COMM_LENGTH} bytes"));
    }
    if raw.command.first().is_some_and(|program| program.is_empty()) {
        return Err("the command after -- is empty".to_owned());
    }
    let unit = match (raw.output.milliseconds, raw.output.microseconds) {
        _ if raw.output.json.is_some() => Unit::Nanoseconds,
        (true, _) => Unit::Milliseconds,
        (_, true) => Unit::Microseconds,
        _ => Unit::Nanoseconds,
    };
    let mut pids = raw.filters.pids;
    pids.sort_unstable();
    pids.dedup();
    Ok(Options {
        layers,
        layers_named,
        whole_stack: !layers_named && !raw.output.check,
        pids,
        follow: raw.filters.follow || !raw.command.is_empty(),
        disk: raw.filters.disk,
        queued: raw.filters.queued,
        cgroup: raw.filters.cgroup,
        comm: raw.filters.comm,
        file: raw.filters.file,
        slower: raw.slower,
        by: raw.output.by,
        top: raw.output.top as usize,
        unit,
        summary: raw.output.summary,
        all_files: raw.filters.all_files,
        interval: raw.interval,
        count: raw.count,
        duration: raw.duration,
        budget: raw.budget,
        output: raw.output.output,
        json: raw.output.json,
        export_json: raw.output.export_json,
        folded: raw.output.folded,
        oneline: raw.output.oneline,
        verbose: raw.output.verbose,
        quiet: raw.output.quiet,
        command: raw.command,
        user: raw.user,
        probe: raw.probe,
        without: raw.without,
        vmlinux: raw.vmlinux,
        starts: raw.starts,
        groups: raw.groups,
        save_snapshots: raw.save_snapshots,
    })
}

/// The layers named, in the order of the stack; and whether any was.
fn layers(names: &[String]) -> Result<(Vec<Layer>, bool), String> {
    let is_all = |name: &String| name == "all";
    let known = Layer::ALL.map(Layer::name).join(", ");
    for name in names.iter().filter(|name| !is_all(name)) {
        if !Layer::ALL.iter().any(|layer| layer.name() == name) {
            let hint = if name.parse::<f64>().is_ok() {
                "bcc's -T is a timestamp; interval reports have one".to_owned()
            } else {
                format!("it is one of {known}, all")
            };
            return Err(format!("unknown layer '{name}' ({hint})"));
        }
    }
    if names.is_empty() || names.iter().any(is_all) {
        return Ok((Layer::ALL.to_vec(), false));
    }
    let named = Layer::ALL
        .into_iter()
        .filter(|layer| names.iter().any(|name| name == layer.name()));
    Ok((named.collect(), true))
}

const UNITS: [(&str, f64); 7] = [
    ("ns", 1e-9),
    ("us", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("m", 60.0),
    ("h", 3600.0),
    // As BCC's interval.
    ("", 1.0),
];

/// A number with its unit, decimals allowed: `500ms`, `10s`, `2m`, `1h`. Without one it is seconds.
fn time(text: &str) -> Option<Duration> {
    let seconds = |(unit, factor): &(&str, f64)| Some(text.strip_suffix(unit)?.parse::<f64>().ok()? * factor);
    Duration::try_from_secs_f64(UNITS.iter().find_map(seconds)?).ok()
}

const NO_TIME: &str = "not a time above 0, such as 10s, 500ms or 2m; a number alone is seconds";

/// How long something goes on.
fn time_span(text: &str) -> Result<Duration, &'static str> {
    time(text).filter(|span| !span.is_zero()).ok_or(NO_TIME)
}

/// A time, or 0: everything.
fn threshold(text: &str) -> Result<Duration, &'static str> {
    let span = time(text).ok_or(NO_TIME)?;
    // What is less than a nanosecond was not meant as 0.
    let is_zero = !text.contains(|c: char| ('1'..='9').contains(&c));
    if span.is_zero() && !is_zero {
        Err(NO_TIME)
    } else {
        Ok(span)
    }
}

/// A process, by its number.
fn process_number(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(number) if number > 0 => Ok(number),
        Err(_) if text.starts_with(|c: char| c.is_alphabetic()) => {
            // The kernel keeps that much of a name.
            let name: String = text
                .char_indices()
                .take_while(|(at, c)| at + c.len_utf8() <= COMM_LENGTH)
                .map(|(_, c)| c)
                .collect();
            Err(format!(
                "not the number of a process; for threads of this name: --comm {name}"
            ))
        }
        _ => Err("not the number of a process".to_owned()),
    }
}

/// Bytes of a thread's name, at most.
const COMM_LENGTH: usize = 15;

/// Of one CPU, at most all that there are.
fn percent(text: &str) -> Result<CpuShare, String> {
    let online = nix::unistd::sysconf(nix::unistd::SysconfVar::_NPROCESSORS_ONLN);
    let cpus = online.ok().flatten().and_then(|cpus| u64::try_from(cpus).ok());
    CpuShare::parse(text, cpus.unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use proptest::prelude::*;

    use super::*;
    use crate::fuzz;

    fn command_of(words: &str) -> Result<Command, String> {
        parse(
            std::iter::once("IOStackBreakdown")
                .chain(words.split_whitespace())
                .map(OsString::from),
        )
    }

    fn parse_words(words: &str) -> Result<Options, String> {
        match command_of(words)? {
            Command::Trace(options) | Command::Check(options) | Command::Print { options, .. } => Ok(options),
            other => panic!("{words}: {other:?}"),
        }
    }

    fn usage(words: &str) -> String {
        parse_words(words).unwrap_err()
    }

    #[test]
    fn the_classic_forms_are_understood() {
        let options = parse_words("-T vfs -p 4711").unwrap();
        assert_eq!((options.layers, options.pids), (vec![Layer::Vfs], vec![4711]));
        let options = parse_words("-T ext4,syscall -p 7,5,7 0.5 3").unwrap();
        assert_eq!(options.layers, [Layer::Syscall, Layer::Ext4]);
        assert_eq!(options.pids, [5, 7]);
        assert_eq!(
            (options.interval, options.count),
            (Some(Duration::from_millis(500)), Some(3))
        );
        assert!(options.layers_named && !parse_words("").unwrap().layers_named);
        assert_eq!(parse_words("-T all").unwrap().layers, Layer::ALL);
    }

    #[test]
    fn a_command_is_followed() {
        let options = parse_words("-u -- fio -p 3").unwrap();
        assert!(options.follow && options.pids.is_empty());
        assert_eq!(options.command, ["fio", "-p", "3"]);
        assert_eq!(options.unit, Unit::Microseconds);
    }

    #[test]
    fn json_is_in_nanoseconds_whatever_the_text_would_be_in() {
        for words in ["--json", "--json -m", "-u --json", "-S -m --json"] {
            let options = parse_words(words).unwrap();
            assert_eq!(options.json, Some(Form::Full), "{words}");
            assert_eq!(options.unit, Unit::Nanoseconds, "{words}");
        }
        assert_eq!(parse_words("").unwrap().json, None);
        assert_eq!(parse_words("--json=full").unwrap().json, Some(Form::Full));
        assert_eq!(parse_words("--json=compact -m").unwrap().json, Some(Form::Compact));
        assert!(parse_words("--json=small").is_err());
    }

    #[test]
    fn times_have_units() {
        for (text, expected) in [
            ("500ms", 500),
            ("10s", 10_000),
            ("2m", 120_000),
            ("1.5", 1_500),
            ("1h", 3_600_000),
        ] {
            assert_eq!(time_span(text), Ok(Duration::from_millis(expected)), "{text}");
        }
        for text in [
            "", "0", "0s", "-1s", "-1", "10x", "x", "s", "1e400s", "nan", "inf", "infs", "1e300", "1 s", "0.1ns",
        ] {
            assert!(time_span(text).is_err(), "{text}");
            assert!(threshold(text).is_err() || text.starts_with('0'), "{text}");
        }
    }

    /// A number alone is the same length of time wherever a time is asked for.
    #[test]
    fn every_time_is_written_the_same_way() {
        for (text, expected) in [
            ("5", 5_000),
            ("0.5", 500),
            ("10ms", 10),
            ("2m", 120_000),
            ("1e1s", 10_000),
        ] {
            let options = parse_words(&format!("--duration {text} --slower {text} {text}")).unwrap();
            let expected = Some(Duration::from_millis(expected));
            assert_eq!(
                [options.duration, options.slower, options.interval],
                [expected; 3],
                "{text}"
            );
        }
        for words in ["--duration 1x", "--slower 1x", "1x"] {
            let line = usage(words);
            assert!(line.contains("a number alone is seconds"), "{line}");
        }
    }

    #[test]
    fn a_threshold_of_0_is_every_call() {
        for text in ["0", "0ms", "0.0"] {
            assert_eq!(threshold(text), Ok(Duration::ZERO), "{text}");
        }
        assert!(threshold("0.1ns").is_err());
    }

    #[test]
    fn what_was_meant_is_suggested() {
        for (words, suggestion) in [
            ("-p postgres", "--comm postgres (see --help)"),
            ("-p 1,a-name-of-more-than-15", "--comm a-name-of-more- (see --help)"),
            ("ls", "-- ls"),
            ("ls -l /", "-- ls -l /"),
            ("-p 3 1 ./run", "-- ./run"),
            ("-T blk 1 2 fio x.fio", "-- fio x.fio"),
        ] {
            let line = usage(words);
            assert!(line.ends_with(suggestion), "{words}: {line}");
        }
        for words in ["1x", "1 2x", "-p 3x", "-p ,", "1 2 3", "-S compare a b"] {
            let line = usage(words);
            assert!(!line.contains("--comm") && !line.contains("-- "), "{words}: {line}");
        }
    }

    #[test]
    fn a_budget_is_a_share_of_one_cpu() {
        let options = parse_words("--budget 2.5 -T vfs").unwrap();
        assert_eq!(options.budget.map(|share| share.ns_per_s), Some(25_000_000));
        assert_eq!(parse_words("-T vfs").unwrap().budget, None);
        let line = usage("--budget 0");
        assert!(
            line.contains("'0' is not a number of percent of a CPU above 0"),
            "{line}"
        );
    }

    #[test]
    fn wrong_usage_is_one_line_with_a_way_out() {
        assert_eq!(
            usage("-T 1"),
            "unknown layer '1' (bcc's -T is a timestamp; interval reports have one)"
        );
        assert_eq!(
            usage("-T xfsx"),
            "unknown layer 'xfsx' (it is one of syscall, vfs, ext4, xfs, btrfs, f2fs, nfs, blk, all)"
        );
        for words in [
            "-T all,foo",
            "-T foo,all",
            "-T vfs -Q",
            "-T syscall -d sda",
            "-T ext4,nfs -d sda",
            "-f",
            "--user nobody",
            "-p 3 -- true",
            "--comm 0123456789abcdef",
            "-p 0",
            "-p x",
            "-p 99999999999",
            "0",
            "1 0",
            "1 2 3",
            "-m -u",
            "--check -p 3",
            "--check 1",
            "--check -- true",
            "--probe magic",
            "--duration soon",
            "--nonsense",
            "-T",
            "--",
            "-T vfs --",
            "--folded -T vfs",
            "--folded --json",
            "--folded --slower 1ms",
            "--oneline",
            "--oneline --json 1",
            "--oneline --by file 1",
            "--quiet --verbose",
            "--check --slower 1ms",
            "-T vfs --slower 1ms",
            "--slower soon",
            "--completions",
            "--completions tcsh",
            "--completions bash -S",
            "help nonsense",
            "-S compare a.json b.json",
            "compare a.json b.json -S",
            "--budget",
            "--budget 0",
            "--budget -1",
            "--budget 1e9",
            "--budget 5%",
            "--check --budget 5",
            "--by size",
            "--by",
            "--by file --top 0",
            "--top 3",
            "--groups 3",
            "--by file --slower 1ms",
            "--by file --check",
            "-T blk --file /etc/passwd",
            "compare",
            "compare a.json",
            "compare a.json b.json c.json",
            "compare --json a.json",
        ] {
            let line = usage(words);
            assert!(!line.contains('\n') && !line.is_empty(), "{words}: {line}");
        }
    }

    #[test]
    fn reports_are_split_by_what_is_asked_for() {
        let options = parse_words("--by cgroup").unwrap();
        assert_eq!((options.by, options.top, options.groups), (Some(By::Cgroup), 10, None));
        let options = parse_words("-T blk --by disk --top 3").unwrap();
        assert_eq!((options.by, options.top), (Some(By::Disk), 3));
        assert_eq!(parse_words("-p 3").unwrap().by, None);
    }

    #[test]
    fn two_files_are_compared() {
        let parsed = command_of("compare a.json b.json");
        assert!(
            matches!(&parsed, Ok(Command::Compare { before, after }) if before.as_os_str() == "a.json" && after.as_os_str() == "b.json"),
            "{parsed:?}"
        );
        assert!(parse_words("--folded").is_ok_and(|options| options.folded && options.whole_stack));
        assert!(parse_words("-T all").is_ok_and(|options| options.whole_stack));
        assert!(parse_words("-T blk").is_ok_and(|options| !options.whole_stack));
    }

    #[test]
    fn help_and_version_are_not_errors() {
        assert!(matches!(command_of("--help"), Ok(Command::Text(text)) if text.contains("--duration")));
        assert!(matches!(command_of("-h"), Ok(Command::Text(text)) if !text.contains("--vmlinux")));
        assert!(matches!(command_of("--version"), Ok(Command::Text(_))));
        for words in ["compare --help", "compare -h", "help compare"] {
            assert!(
                matches!(command_of(words), Ok(Command::Text(text)) if text.contains("compare <BEFORE.json>")),
                "{words}"
            );
        }
        let text = |words: &str| match command_of(words) {
            Ok(Command::Text(text)) => text,
            other => panic!("{words}: {other:?}"),
        };
        assert_eq!(text("help"), text("--help"));
        for usage in USAGE.lines() {
            assert!(text("--help").contains(usage) && text("-h").contains(usage), "{usage}");
        }
    }

    proptest! {
        #![proptest_config(fuzz::config())]

        #[test]
        fn any_arguments_are_understood_or_refused(arguments in arguments()) {
            match parse(arguments) {
                Ok(Command::Trace(options) | Command::Check(options) | Command::Print { options, .. }) => {
                    prop_assert!(!options.layers.is_empty());
                    prop_assert!(options.interval.is_none_or(|span| !span.is_zero()));
                }
                Ok(Command::Text(text)) => prop_assert!(!text.is_empty()),
                Ok(Command::Compare { .. } | Command::Complete(_)) => {}
                Err(line) => prop_assert!(!line.is_empty()),
            }
        }

        #[test]
        fn any_time_is_read(text in fuzz::text_like("10.5ms")) {
            let _ = (time_span(&text), threshold(&text), process_number(&text));
        }
    }

    /// Options with what they may or may not be followed by, any text, and what is no text.
    fn arguments() -> impl Strategy<Value = Vec<OsString>> {
        let known = prop::sample::select(vec![
            "-T",
            "vfs",
            "all",
            "blk,ext4",
            "-p",
            "4711",
            "1,2",
            "-f",
            "-d",
            "sda",
            "-Q",
            "--cgroup",
            "/",
            "--comm",
            "x",
            "--all-files",
            "--folded",
            "--oneline",
            "-q",
            "--slower",
            "10ms",
            "--file",
            "compare",
            "help",
            "--completions",
            "--complete",
            "-m",
            "-u",
            "-S",
            "-o",
            "-",
            "--json",
            "--verbose",
            "--duration",
            "10s",
            "--budget",
            "--user",
            "root",
            "--probe",
            "auto",
            "kprobe",
            "--without",
            "--vmlinux",
            "--starts",
            "--",
            "1",
            "0.5",
            "-h",
            "--help",
            "-V",
            "--type=",
            "--pid=",
            "-T=",
            "-pq",
            "",
        ]);
        let word = prop_oneof![
            8 => known.prop_map(OsString::from),
            1 => fuzz::text_like("--duration=10s").prop_map(OsString::from),
            1 => proptest::collection::vec(any::<u8>(), 0..20).prop_map(OsString::from_vec),
        ];
        proptest::collection::vec(word, 0..8)
    }
}
