//! The command line: raw arguments in, validated [`Options`] out.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::error::{ContextKind, ErrorKind};
use clap::{Args, CommandFactory, FromArgMatches, Parser};

use crate::layer::Layer;
use crate::probe::Choice;
use crate::report::text::Unit;

/// A run, as asked for.
#[derive(Debug, Clone)]
pub struct Options {
    /// In the order of the stack, each once.
    pub layers: Vec<Layer>,
    /// The layers were named: one that cannot be measured is an error, not a remark.
    pub layers_named: bool,
    pub pids: Vec<u32>,
    pub follow: bool,
    pub disk: Option<String>,
    /// Times at `blk` include the queue.
    pub queued: bool,
    pub cgroup: Option<PathBuf>,
    /// At most 15 bytes.
    pub comm: Option<String>,
    pub unit: Unit,
    pub summary: bool,
    pub all_files: bool,
    /// More than 0.
    pub interval: Option<Duration>,
    /// More than 0; only with an interval.
    pub count: Option<u64>,
    pub duration: Option<Duration>,
    pub output: Option<PathBuf>,
    /// Reports are JSON Lines, not text.
    pub json: bool,
    pub verbose: bool,
    /// Try every probe, instead of a run.
    pub check: bool,
    pub command: Vec<OsString>,
    pub user: Option<String>,
    pub probe: Choice,
    pub without: Vec<String>,
    pub vmlinux: Option<PathBuf>,
    /// Keep starts in a table of this size even where the kernel has something better.
    pub starts: Option<u32>,
}

/// What parsing ended with when not with options.
#[derive(Debug)]
pub enum Stop {
    /// `--help` or `--version`: this text, and success.
    Text(String),
    /// Wrong usage: one line.
    Usage(String),
}

const EXAMPLES: &str = "\
Examples:
  IOStackBreakdown -T vfs -p 4711          latency of the VFS operations of a process
  IOStackBreakdown -T blk -d nvme0n1 -Q    requests of a disk, time in the queue included
  IOStackBreakdown -T syscall,ext4 1 10    two layers, ten reports of a second each
  IOStackBreakdown -d nvme0n1 --duration 10s
                                           all layers, one disk and its files, for ten seconds
  IOStackBreakdown -- fio job.fio          run a command and trace all it starts";

#[derive(Parser, Debug)]
#[command(
    name = "IOStackBreakdown",
    version,
    about = "Shows where the time of I/O operations goes, layer by layer.",
    after_help = EXAMPLES,
    override_usage = "IOStackBreakdown [OPTIONS] [INTERVAL [COUNT]] [-- COMMAND...]",
    max_term_width = 100,
    disable_help_subcommand = true
)]
struct Raw {
    /// Layers: syscall, vfs, ext4, blk; a comma list; or all
    #[arg(short = 'T', long = "type", value_name = "LAYER,...", value_delimiter = ',')]
    layers: Vec<String>,
    #[command(flatten)]
    filters: Filters,
    #[command(flatten)]
    output: Output,
    /// Report and start again every INTERVAL seconds (decimals allowed)
    #[arg(value_name = "INTERVAL", value_parser = seconds)]
    interval: Option<Duration>,
    /// Stop after COUNT reports
    #[arg(value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Stop after TIME, such as 10s, 500ms, 2m
    #[arg(long, value_name = "TIME", value_parser = time_span)]
    duration: Option<Duration>,
    /// Start COMMAND, trace it and all it starts, stop when it ends
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
    /// Run COMMAND as this user
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Force a kind of probe
    #[arg(long, value_enum, default_value_t = Choice::Auto, hide_short_help = true)]
    probe: Choice,
    /// Do as if the kernel lacked FUNCTION (can be repeated)
    #[arg(long, value_name = "FUNCTION", hide_short_help = true)]
    without: Vec<String>,
    /// Take symbols from this vmlinux file
    #[arg(long, value_name = "PATH", hide_short_help = true)]
    vmlinux: Option<PathBuf>,
    /// Keep starts in a table with room for N threads
    #[arg(long, value_name = "N", hide = true, value_parser = clap::value_parser!(u32).range(1..))]
    starts: Option<u32>,
}

#[derive(Args, Debug)]
struct Filters {
    /// These processes only
    #[arg(short, long = "pid", value_name = "PID,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    pids: Vec<u32>,
    /// With -p: their descendants too
    #[arg(short, long)]
    follow: bool,
    /// This disk only: nvme0n1, /dev/sda1, dm-0, /dev/mapper/NAME
    #[arg(short, long, value_name = "DISK")]
    disk: Option<String>,
    /// Block time includes the time queued in the kernel
    #[arg(short = 'Q', long)]
    queued: bool,
    /// This control group and those below it only
    #[arg(long, value_name = "PATH")]
    cgroup: Option<PathBuf>,
    /// Threads of this name only
    #[arg(long, value_name = "NAME")]
    comm: Option<String>,
    /// Sockets, pipes, ttys and the like too
    #[arg(long)]
    all_files: bool,
}

#[derive(Args, Debug)]
struct Output {
    /// In milliseconds
    #[arg(short, long, conflicts_with = "microseconds")]
    milliseconds: bool,
    /// In microseconds
    #[arg(short = 'u', long)]
    microseconds: bool,
    /// Tables only, no histograms
    #[arg(short = 'S', long)]
    summary: bool,
    /// Report to FILE (- for stdout)
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Report as JSON Lines, always in nanoseconds and with histograms, whatever -m, -u and -S say
    #[arg(long)]
    json: bool,
    /// Tell how each operation is measured, and what each probe saw and cost
    #[arg(long)]
    verbose: bool,
    /// Try each probe on a file of its own (in TMPDIR, /var/tmp or /tmp), and tell which ones work here
    #[arg(long, conflicts_with_all = ["pids", "disk", "queued", "cgroup", "comm", "all_files", "interval", "duration", "command", "json", "output"])]
    check: bool,
}

/// Parses the arguments, the program's name first.
///
/// # Errors
/// See [`Stop`].
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Options, Stop> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    if arguments.last().is_some_and(|last| last == "--") {
        return Err(Stop::Usage("there is no COMMAND after --".to_owned()));
    }
    let raw = Raw::command()
        .try_get_matches_from(arguments)
        .and_then(|mut matches| Raw::from_arg_matches_mut(&mut matches))
        .map_err(|error| match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Stop::Text(error.to_string()),
            _ => Stop::Usage(one_line(&error)),
        })?;
    validate(raw).map_err(Stop::Usage)
}

/// clap's message without its usage block.
fn one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let first = text.lines().next().unwrap_or_default();
    let mut line = first.strip_prefix("error: ").unwrap_or(first).to_owned();
    if let Some(choices) = error
        .get(ContextKind::ValidValue)
        .filter(|_| error.kind() == ErrorKind::InvalidValue)
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
        return Err("-Q is about the block layer; use it with -T blk".to_owned());
    }
    if raw.filters.disk.is_some() && layers == [Layer::Syscall] {
        return Err(
            "-d is about files and disks, which system calls alone do not tell; use it with -T vfs, ext4 or blk".into(),
        );
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
            "-p and -- COMMAND exclude each other: the command and its descendants are what is traced".to_owned(),
        );
    }
    if let Some(comm) = &raw.filters.comm
        && (comm.is_empty() || comm.len() > 15)
    {
        return Err(format!("--comm '{comm}': a thread name has 1 to 15 bytes"));
    }
    if raw.command.first().is_some_and(|program| program.is_empty()) {
        return Err("the command after -- is empty".to_owned());
    }
    let unit = match (raw.output.milliseconds, raw.output.microseconds) {
        _ if raw.output.json => Unit::Nanoseconds,
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
        pids,
        follow: raw.filters.follow || !raw.command.is_empty(),
        disk: raw.filters.disk,
        queued: raw.filters.queued,
        cgroup: raw.filters.cgroup,
        comm: raw.filters.comm,
        unit,
        summary: raw.output.summary,
        all_files: raw.filters.all_files,
        interval: raw.interval,
        count: raw.count,
        duration: raw.duration,
        output: raw.output.output,
        json: raw.output.json,
        verbose: raw.output.verbose,
        check: raw.output.check,
        command: raw.command,
        user: raw.user,
        probe: raw.probe,
        without: raw.without,
        vmlinux: raw.vmlinux,
        starts: raw.starts,
    })
}

/// The layers named, in the order of the stack; and whether any was.
fn layers(names: &[String]) -> Result<(Vec<Layer>, bool), String> {
    if names.is_empty() || names.iter().any(|name| name == "all") {
        return Ok((Layer::ALL.to_vec(), false));
    }
    let known = Layer::ALL.map(Layer::name).join(", ");
    for name in names {
        if !Layer::ALL.iter().any(|layer| layer.name() == name) {
            let hint = if name.parse::<f64>().is_ok() {
                "bcc's -T is a timestamp; interval reports have one".to_owned()
            } else {
                format!("it is one of {known}, all")
            };
            return Err(format!("unknown layer '{name}' ({hint})"));
        }
    }
    let named = Layer::ALL
        .into_iter()
        .filter(|layer| names.iter().any(|name| name == layer.name()));
    Ok((named.collect(), true))
}

/// Seconds, decimals allowed, more than 0, as BCC's positional interval.
fn seconds(text: &str) -> Result<Duration, String> {
    let wrong = || format!("'{text}' is not a number of seconds above 0");
    let number: f64 = text.parse().map_err(|_| wrong())?;
    let span = Duration::try_from_secs_f64(number).map_err(|_| wrong())?;
    if span.is_zero() { Err(wrong()) } else { Ok(span) }
}

/// A number with its unit: `500ms`, `10s`, `2m`, `1h`; a bare number is seconds.
fn time_span(text: &str) -> Result<Duration, String> {
    let wrong = || format!("'{text}' is not a time such as 10s, 500ms, 2m");
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" | "" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(wrong()),
    };
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let span = Duration::try_from_secs_f64(number * factor).map_err(|_| wrong())?;
    if span.is_zero() { Err(wrong()) } else { Ok(span) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_words(words: &str) -> Result<Options, Stop> {
        parse(
            std::iter::once("IOStackBreakdown")
                .chain(words.split_whitespace())
                .map(OsString::from),
        )
    }

    fn usage(words: &str) -> String {
        match parse_words(words) {
            Err(Stop::Usage(line)) => line,
            other => panic!("{words}: {other:?}"),
        }
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
            assert!(options.json, "{words}");
            assert_eq!(options.unit, Unit::Nanoseconds, "{words}");
        }
        assert!(!parse_words("").unwrap().json);
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
        for text in ["", "0", "0s", "-1s", "10x", "s", "1e400s", "nan"] {
            assert!(time_span(text).is_err(), "{text}");
        }
        for text in ["0", "-1", "x", "inf", "nan", "1e300"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn wrong_usage_is_one_line_with_a_way_out() {
        assert_eq!(
            usage("-T 1"),
            "unknown layer '1' (bcc's -T is a timestamp; interval reports have one)"
        );
        assert_eq!(
            usage("-T xfsx"),
            "unknown layer 'xfsx' (it is one of syscall, vfs, ext4, blk, all)"
        );
        for words in [
            "-T vfs -Q",
            "-T syscall -d sda",
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
        ] {
            let line = usage(words);
            assert!(!line.contains('\n') && !line.is_empty(), "{words}: {line}");
        }
    }

    #[test]
    fn help_and_version_are_not_errors() {
        assert!(matches!(parse_words("--help"), Err(Stop::Text(text)) if text.contains("--duration")));
        assert!(matches!(parse_words("-h"), Err(Stop::Text(text)) if !text.contains("--vmlinux")));
        assert!(matches!(parse_words("--version"), Err(Stop::Text(_))));
    }
}
