//! The command line: raw arguments in, a [`Command`] with validated [`Options`] out.

pub mod complete;
mod high;
mod low;
pub mod shell;
mod value;

use std::borrow::Cow;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser};

use crate::catalog::{Layer, Lives};
use crate::model::report::group::By;
use crate::model::report::records::{Limit, Limited, Questions, SeeksBy};
use crate::model::trigger::Trigger;
use crate::playback::run::How;
use crate::replay::load::Selection;
use crate::view::text::Unit;

use self::low::{Filters, Raw, Verb};
use self::value::{COMM_LENGTH, beginning};

pub use self::high::{
    CommandLine, ControlGroup, Detail, EventForm, Events, Export, Form, Groups, Hooks, Intervals, LiveOptions, Measure,
    Only, Options, Output, Part, Paths, Recording, Replay, Requests, Ring, Scope, Span, Talk, Target, When, Whose,
};
pub use self::low::{TIMES, USAGE};
pub use self::value::Moment;

/// What to do: the verb with its options.
#[derive(Debug)]
pub enum Command {
    /// Measure and report.
    Trace(Options),
    /// `--check`: try every probe.
    Check(Measure),
    /// Print reports of saved counters.
    Print { from: PathBuf, options: Options },
    /// `record`: measure, and keep what was measured.
    Record { recording: Recording, options: Options },
    /// `report`: print reports of a recording.
    Report {
        from: PathBuf,
        part: Part,
        /// Answers from its records, in place of reports; empty: none.
        questions: Questions,
        options: Options,
    },
    /// `export`: write a recording in another format.
    Export { from: PathBuf, export: Export },
    /// `replay`: make the calls of a recording once more.
    Replay { from: PathBuf, replay: Replay },
    /// `compare`: compare two files.
    Compare {
        before: PathBuf,
        after: PathBuf,
        /// The comparison is also written to this file, as a page.
        html: Option<PathBuf>,
    },
    /// A shell asks for completions of the words up to the cursor.
    Complete(Vec<OsString>),
    /// `--help`, `--version` or `--completions`: print this text and exit with status 0.
    Text(String),
}

/// The definition of the command line, for the manual and completions.
#[must_use]
pub fn command() -> clap::Command {
    let mut command = Raw::command();
    // Adds clap's verb `help`.
    command.build();
    command.mut_subcommand("help", |help| help.about("Print this help, or that of a verb"))
}

/// Parses the arguments, the program's name first.
///
/// # Errors
/// Wrong usage, in one line.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Command, String> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    // Those behind the first `--` are of COMMAND, whatever they are.
    let own = arguments.iter().position(|argument| argument == "--");
    if own.is_some_and(|at| at + 1 == arguments.len()) {
        return Err("-- needs a COMMAND after it".to_owned());
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
    match raw.verb.take() {
        Some(Verb::Record(record)) => return recorded(*record),
        Some(Verb::Report(report)) => return reported(*report),
        Some(Verb::Export(export)) => return exported(*export),
        Some(Verb::Replay(replay)) => return replayed(*replay),
        Some(Verb::Compare { before, after, html }) => return Ok(Command::Compare { before, after, html }),
        None => {}
    }
    if let Some(shell) = raw.completions {
        return Ok(Command::Text(shell.script()));
    }
    if let Some(line) = port_as_interval(&arguments[..own.unwrap_or(arguments.len())]) {
        return Err(line);
    }
    let (is_check, from) = (raw.check, raw.from_snapshots.take());
    // With --live, standard output is the screen, and FILE a recording.
    let recording = raw.output.output.clone().filter(|_| raw.live);
    let mut options = measured(raw)?;
    options.output.path = options.output.path.filter(|_| recording.is_none());
    if let Some(path) = recording {
        let recording = Recording {
            path: Some(path),
            ..Recording::default()
        };
        return Ok(Command::Record { recording, options });
    }
    Ok(match from {
        Some(from) => Command::Print { from, options },
        None if is_check => Command::Check(options.measure),
        None => Command::Trace(options),
    })
}

/// The command line without any word: options of verbs are put into it.
fn no_words() -> Result<Raw, String> {
    Raw::try_parse_from(["IOStackBreakdown"]).map_err(|error| one_line(&error))
}

fn recorded(verb: low::Record) -> Result<Command, String> {
    let recording = Recording {
        path: verb.output,
        max_bytes: verb.max_size,
        keep_free: verb.keep_free,
        buffer: verb.buffer,
        sync: verb.sync,
        names: verb.names,
        ring: verb.ring.map(|(span, bytes)| Ring {
            span,
            bytes,
            triggers: triggers(verb.until_slower, verb.until_error, verb.until_stuck),
            after: verb.after.unwrap_or(AFTER),
            repeat: verb.repeat.unwrap_or(1),
        }),
    };
    let raw = Raw {
        layers: verb.layers,
        filters: verb.filters,
        duration: verb.duration,
        budget: verb.budget,
        user: verb.user,
        probe: verb.probe,
        without: verb.without,
        command: verb.command,
        output: low::Output {
            by: verb.by,
            top: verb.by.map(|_| verb.top),
            export_json: verb.export_json,
            quiet: verb.quiet,
            verbose: verb.verbose,
            ..low::Output::default()
        },
        ..no_words()?
    };
    let options = measured(raw)?;
    if let Some(ring) = &recording.ring {
        check_triggers(&ring.triggers, &options.measure.scope)?;
    }
    Ok(Command::Record { recording, options })
}

/// How long a ring goes on after a trigger without `--after`.
const AFTER: Duration = Duration::from_secs(5);

fn triggers(slower: Vec<Trigger>, errors: Vec<Trigger>, stuck: Option<Duration>) -> Vec<Trigger> {
    let stuck = stuck.map(|time| Trigger::Stuck {
        ns: u64::try_from(time.as_nanos()).unwrap_or(u64::MAX),
    });
    slower.into_iter().chain(errors).chain(stuck).collect()
}

/// A trigger that can never happen with these layers would be waited for in vain.
fn check_triggers(triggers: &[Trigger], scope: &Scope) -> Result<(), String> {
    for trigger in triggers {
        let (option, of) = match trigger {
            Trigger::Slower { of, .. } => ("--until-slower", *of),
            // Any: calls or requests, whichever are recorded.
            Trigger::Error { of: None, .. } => continue,
            Trigger::Error { of, .. } => ("--until-error", *of),
            Trigger::Stuck { .. } => ("--until-stuck", None),
        };
        let (layer, records) = match of {
            Some(Limited::Device | Limited::Queue) => (Layer::Blk, "requests"),
            _ => (Layer::Syscall, "calls"),
        };
        if !scope.has(layer) {
            return Err(format!("{option} needs {records}; add {layer} to -T"));
        }
    }
    Ok(())
}

fn reported(mut verb: low::Report) -> Result<Command, String> {
    // On a screen, what breaks a limit is marked.
    let marked = match verb.live {
        true => std::mem::take(&mut verb.limits),
        false => Vec::new(),
    };
    let questions = questions(&mut verb)?;
    let part = Part {
        from: verb.from,
        to: verb.to,
        lost: verb.lost,
    };
    let events = verb.events.map(|form| Events {
        form,
        last: verb.last.map(|last| last as usize),
    });
    let paths = Paths {
        files: std::mem::take(&mut verb.filters.files),
        folders: verb.folders,
    };
    // Records of calls have the disks of their files.
    let disk = verb.filters.disk.take();
    let raw = Raw {
        layers: verb.layers,
        filters: verb.filters,
        output: verb.output,
        slower: verb.slower,
        interval: verb.interval,
        count: verb.count,
        ..no_words()?
    };
    let mut options = validate(raw, paths)?;
    options.measure.target.disk = disk;
    options.events = events;
    options.output.live = verb.live.then_some(LiveOptions {
        history_bytes: usize::MAX,
        limits: marked,
    });
    Ok(Command::Report {
        from: verb.recording,
        part,
        questions,
        options,
    })
}

/// The options of a run that measures.
fn measured(raw: Raw) -> Result<Options, String> {
    let by = raw.output.by.filter(|by| !By::COUNTED.contains(by));
    if let Some(by) = by {
        return Err(format!(
            "--by {by} is made of single calls, which a recording has: record, then report FILE --by {by}"
        ));
    }
    let paths = match raw.events {
        Some(_) => Paths {
            files: raw.filters.files.clone(),
            folders: raw.folders.clone(),
        },
        None => Paths::default(),
    };
    validate(raw, paths)
}

/// What is asked of the records. `--by` and `--top` are about these answers then.
fn questions(verb: &mut low::Report) -> Result<Questions, String> {
    let mut questions = Questions {
        access: verb.access,
        seeks: verb.seeks.then(SeeksBy::default),
        limits: std::mem::take(&mut verb.limits),
        top: 0,
    };
    if questions.is_empty() {
        return Ok(questions);
    }
    // On a screen, limits are no questions, and go with it.
    if verb.slower.is_some() {
        return Err(
            "--slower prints single calls, and --access, --seeks and --limit answer from all of them; remove one of them"
                .to_owned(),
        );
    }
    questions.top = verb.output.top.take().map_or(TOP, |top| top as usize);
    if let Some(by) = verb.output.by.take() {
        let seeks_by = match by {
            By::Process => SeeksBy::Process,
            By::File => SeeksBy::File,
            By::Disk => SeeksBy::Disk,
            other => return Err(format!("--seeks is by process, file or disk, not by {other}")),
        };
        if questions.seeks.is_none() {
            return Err("--by goes with --seeks: --access is by file, --limit by process".to_owned());
        }
        questions.seeks = Some(seeks_by);
    }
    if verb.count.is_some() {
        return Err(
            "--access, --seeks and --limit are about the whole span; select one with --from and --to".to_owned(),
        );
    }
    if questions.seeks.is_some()
        && (!verb.filters.pids.is_empty()
            || verb.filters.comm.is_some()
            || !verb.filters.files.is_empty()
            || !verb.folders.is_empty())
    {
        return Err("--seeks compares the requests of all processes and files; select a disk with -d".to_owned());
    }
    Ok(questions)
}

/// Groups and elements of lists without `--top`.
const TOP: usize = 10;
/// The same for a screen, whose lists can be walked through.
const GROUPS_ON_SCREEN: usize = 100;
/// Calls of this length or longer are listed on a screen.
const SLOW_ON_SCREEN: Duration = Duration::from_millis(10);
/// Memory for the earlier seconds of a screen, in bytes.
const HISTORY: usize = 64 << 20;

fn exported(verb: low::Export) -> Result<Command, String> {
    let format = verb.format;
    let path = verb
        .output
        .filter(|path| path.as_os_str() != "-" || format.is_directory());
    if format.is_directory() && path.as_ref().is_none_or(|path| path.as_os_str() == "-") {
        let name = format.name();
        return Err(format!(
            "--to {name} writes several files; name a new directory for them: -o DIRECTORY"
        ));
    }
    let layers = verb.layers.iter().filter_map(|name| name.parse().ok()).collect();
    Ok(Command::Export {
        from: verb.recording,
        export: Export {
            format,
            path,
            layers,
            pids: verb.pids,
            disk: verb.disk,
            comm: verb.comm,
            file: verb.file,
            part: Part {
                from: verb.from,
                to: verb.to_time,
                lost: false,
            },
            quiet: verb.quiet,
        },
    })
}

fn replayed(verb: low::Replay) -> Result<Command, String> {
    let map = |map: &String| -> Result<(String, PathBuf), String> {
        let parts = map
            .split_once('=')
            .filter(|(old, new)| old.starts_with('/') && !new.is_empty());
        let (old, new) = parts.ok_or_else(|| format!("--map '{map}': not OLD=NEW with an absolute OLD"))?;
        Ok((old.to_owned(), PathBuf::from(new)))
    };
    Ok(Command::Replay {
        from: verb.recording,
        replay: Replay {
            into: verb.into,
            maps: verb.maps.iter().map(map).collect::<Result<_, _>>()?,
            how: How {
                timing: verb.timing,
                speed: (verb.speed > 0.0).then_some(verb.speed),
                data: verb.data,
                is_traced: false,
            },
            order: verb.order,
            cache: verb.cache,
            selection: Selection {
                only: verb.only.into_iter().collect(),
                without: verb.without.into_iter().collect(),
                threads: verb.threads.into_iter().collect(),
                owners: verb.owners,
            },
            only: match (verb.prepare, verb.clean) {
                (true, _) => Only::Prepare,
                (_, true) => Only::Clean,
                _ => Only::All,
            },
            user: verb.user,
            strict: verb.strict,
            measure: verb.measure,
            json: verb.json,
            quiet: verb.quiet,
        },
    })
}

const COMPARE: &str =
    "compare takes two files written by --json or --html, or two recordings: compare BEFORE AFTER [--html FILE]";

/// A better message than clap's, if the mistake is recognised.
fn advice(error: &clap::Error, arguments: &[OsString]) -> Option<String> {
    advice_on(error, arguments, arguments.len())
}

/// Whether an error is that there is no option `--sample`.
fn is_about_sample(error: &clap::Error) -> bool {
    error.kind() == ErrorKind::UnknownArgument
        && matches!(error.get(ContextKind::InvalidArg), Some(ContextValue::String(word)) if word == "--sample")
}

/// What an option needs that was not given, or a verb: `--top needs --by`, `replay needs FILE and --into DIR`.
fn needs(error: &clap::Error, arguments: &[OsString]) -> Option<String> {
    const NEEDED: [(&str, &[&str]); 5] = [
        ("INTERVAL", &["--oneline"]),
        ("--by", &["--top", "--groups"]),
        ("--events", &["--last", "--dir"]),
        ("--live", &["--history", "--limit"]),
        (
            "--ring TIME",
            &[
                "--until-slower",
                "--until-error",
                "--until-stuck",
                "--after",
                "--repeat",
            ],
        ),
    ];
    let Some(ContextValue::Strings(missing)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let mut missing: Vec<String> = missing.iter().map(|name| name.replace(['<', '>'], "")).collect();
    let words = || arguments.iter().filter_map(|word| word.to_str()?.split('=').next());
    for (needed, options) in NEEDED {
        let is_missing = missing.iter().any(|name| name.contains(needed));
        if let Some(option) = words().find(|word| is_missing && options.contains(word)) {
            return Some(format!("{option} needs {needed}"));
        }
    }
    // What stands first on the command line is last.
    missing.reverse();
    let verb = arguments.get(1)?.to_str()?;
    Some(format!("{verb} needs {} (see --help)", missing.join(" and ")))
}

/// `parsed`: the error is of the first arguments, so many.
fn advice_on(error: &clap::Error, arguments: &[OsString], parsed: usize) -> Option<String> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    match arguments.get(1).and_then(|verb| verb.to_str()) {
        Some("compare") => return Some(COMPARE.to_owned()),
        _ if error.kind() == ErrorKind::MissingRequiredArgument => return needs(error, arguments),
        // clap's message names what is wrong with the options of a verb.
        Some("record") if is_about_sample(error) => {
            return Some("record keeps every call, and --sample leaves most of them out; remove it".to_owned());
        }
        Some("report") => {
            let word = [ContextKind::InvalidValue, ContextKind::InvalidArg]
                .into_iter()
                .find_map(text)?;
            let at = arguments.iter().position(|argument| argument == word)?;
            return option_with_equals(arguments, at).map(|option| not_an_interval(option, word));
        }
        Some("record" | "export" | "replay") => return None,
        _ => {}
    }
    if error.kind() == ErrorKind::InvalidSubcommand {
        let word = text(ContextKind::InvalidSubcommand)?;
        return Some(format!(
            "unknown verb '{word}'; verbs are record, report, export, replay, compare and help"
        ));
    }
    let word = match (error.kind(), text(ContextKind::InvalidArg)?) {
        (ErrorKind::ValueValidation, "[INTERVAL]" | "[COUNT]") => text(ContextKind::InvalidValue)?,
        (ErrorKind::UnknownArgument, option) if option.starts_with('-') => {
            // The word may be an option of a command that precedes it.
            let at = arguments[..parsed]
                .iter()
                .position(|argument| argument.to_string_lossy().starts_with(option))?;
            let error = command().try_get_matches_from(&arguments[..at]).err()?;
            return advice_on(&error, arguments, at);
        }
        (ErrorKind::UnknownArgument, word) => word,
        _ => return None,
    };
    let is_command =
        word.starts_with(|c: char| c.is_alphabetic() || "/.~_".contains(c)) && word.parse::<f64>().is_err();
    if command().get_subcommands().any(|verb| verb.get_name() == word) {
        return Some(match word {
            "record" => format!("'{word}' must be the first word, before its options"),
            "report" => format!("'{word}' must be the first word, before its options: report FILE"),
            "export" => format!("'{word}' must be the first word, before its options: export FILE --to FORMAT"),
            "replay" => format!("'{word}' must be the first word, before its options: replay FILE --into DIR"),
            "compare" => {
                format!(
                    "'{word}' must be the first word, and takes no other options: compare BEFORE AFTER [--html FILE]"
                )
            }
            _ => format!("'{word}' must be the first word, and takes no options"),
        });
    }
    let first = arguments.iter().position(|argument| argument == word)?;
    if let Some(option) = option_with_equals(arguments, first) {
        return Some(not_an_interval(option, word));
    }
    let words: Vec<Cow<'_, str>> = arguments[first..].iter().map(|word| word.to_string_lossy()).collect();
    is_command.then(|| {
        let instead = match word {
            "check" => "to try every probe: --check".to_owned(),
            "completions" => "for a completion script: --completions SHELL".to_owned(),
            _ => format!("to run and trace a command: -- {}", words.join(" ")),
        };
        format!("'{word}' is neither a verb nor an INTERVAL; {instead}")
    })
}

fn not_an_interval(option: &str, word: &str) -> String {
    format!("'{word}' is no INTERVAL; did you mean {option}={word}?")
}

/// The option before the word at `at` if it only takes a value that follows `=`.
fn option_with_equals(arguments: &[OsString], at: usize) -> Option<&str> {
    let option = arguments.get(at.checked_sub(1)?)?.to_str()?;
    let name = option.strip_prefix("--")?;
    let is_meant = |argument: &clap::Arg| argument.get_long() == Some(name) && argument.is_require_equals_set();
    command().get_arguments().any(is_meant).then_some(option)
}

/// An INTERVAL after `--metrics` that is meant as the port: `--metrics 9100`.
fn port_as_interval(arguments: &[OsString]) -> Option<String> {
    let pairs = arguments.windows(2);
    let after = pairs
        .filter(|pair| pair[0] == "--metrics")
        .find_map(|pair| pair[1].to_str());
    // Lower ports are reserved, and are likely to be seconds.
    let port = after.filter(|word| word.parse::<u16>().is_ok_and(|port| port >= 1024))?;
    Some(format!(
        "--metrics takes its port after '=': --metrics={port}; for reports each {port} s: --metrics {port}s"
    ))
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
        line = format!("{line}; use one of {choices}");
    }
    if let Some(similar) = error.get(ContextKind::SuggestedArg) {
        line = format!("{line}; did you mean {similar}?");
    }
    if line.ends_with(':') {
        // The names are on the following lines.
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

/// The control group that is selected; there is one at most.
fn control_group(filters: &mut low::Filters) -> Option<ControlGroup> {
    let owners = [
        (By::Unit, filters.unit.take()),
        (By::Pod, filters.pod.take()),
        (By::Container, filters.container.take()),
    ];
    let mut owners = owners.into_iter().filter_map(|(by, name)| Some((by, name?)));
    let owner = owners.next().map(|(by, name)| ControlGroup::Owned { by, name });
    owner.or(filters.cgroup.take().map(ControlGroup::Path))
}

/// Turns the raw arguments into options, unless they contradict each other. `paths`: what is selected of records.
fn validate(mut raw: Raw, paths: Paths) -> Result<Options, String> {
    if raw.output.top.is_some() && raw.output.by.is_none() {
        return Err("--top needs --by".to_owned());
    }
    let Named { layers, beside_all } = layers(&raw.layers)?;
    let is_all_named = layers.is_none() && !raw.layers.is_empty();
    check_scope(&raw, layers.as_deref())?;
    check_sample(&raw, layers.as_deref())?;
    let detail = detail(&raw, layers.is_some());
    let intervals = intervals(&raw);
    let whose = whose(&raw.filters, raw.command, raw.user)?;
    check_comm(raw.filters.comm.as_deref())?;
    let live = raw.live.then(|| LiveOptions {
        history_bytes: (raw.history).map_or(HISTORY, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX)),
        limits: raw.limits,
    });
    let layers = layers.unwrap_or_else(|| whole_stack(&beside_all));
    let queued = raw.filters.queued;
    let measure = Measure {
        scope: Scope {
            requests: layers.contains(&Layer::Blk).then_some(Requests { queued }),
            upper: layers.into_iter().filter(|layer| *layer != Layer::Blk).collect(),
            is_all_named,
            beside_all,
            sample: raw.sample,
            detail,
        },
        target: Target {
            whose,
            cgroup: control_group(&mut raw.filters),
            comm: raw.filters.comm,
            disk: raw.filters.disk,
            file: only_file(raw.filters.files, &paths),
            paths,
            all_files: raw.filters.all_files,
        },
        hooks: Hooks {
            choice: raw.probe,
            without: raw.without,
            vmlinux: raw.vmlinux,
            starts: raw.starts,
            as_compiled: raw.as_compiled,
        },
        talk: match (raw.output.quiet, raw.output.verbose) {
            (true, _) => Talk::Quiet,
            (_, true) => Talk::Verbose,
            _ => Talk::Usual,
        },
    };
    Ok(Options {
        measure,
        span: Span {
            intervals,
            duration: raw.duration,
            budget: raw.budget,
        },
        events: raw.events.map(|form| Events {
            form,
            last: raw.last.map(|last| last as usize),
        }),
        output: Output {
            form: form(&raw.output),
            color: raw.output.color,
            path: raw.output.output,
            export_json: raw.output.export_json,
            metrics: raw.metrics,
            svg: raw.output.svg,
            html: raw.output.html,
            save_snapshots: raw.save_snapshots,
            live,
        },
    })
}

/// The file that the programs select: of several, all calls are recorded, and then selected.
fn only_file(mut files: Vec<PathBuf>, paths: &Paths) -> Option<PathBuf> {
    let is_only = files.len() == 1 && paths.folders.is_empty();
    files.pop().filter(|_| is_only)
}

/// Checks the name of threads.
fn check_comm(comm: Option<&str>) -> Result<(), String> {
    let Some(comm) = comm.filter(|comm| comm.is_empty() || comm.len() > COMM_LENGTH) else {
        return Ok(());
    };
    let instead = match beginning(comm) {
        "" => String::new(),
        beginning => format!("; give its beginning: --comm {beginning}"),
    };
    Err(format!(
        "--comm '{comm}': a thread name has 1 to {COMM_LENGTH} bytes{instead}"
    ))
}

/// How much is reported. `is_named`: layers were named.
fn detail(raw: &Raw, is_named: bool) -> Detail {
    let usual = if raw.live { GROUPS_ON_SCREEN } else { TOP };
    let top = raw.output.top.map_or(usual, |top| top as usize);
    let groups = |by| Groups {
        by,
        top,
        room: raw.groups,
    };
    let by = raw.output.by;
    match raw.slower {
        slower if raw.live => Detail::Live(groups(by.unwrap_or(By::Process)), slower.unwrap_or(SLOW_ON_SCREEN)),
        _ if is_named => Detail::Named(by.map(groups)),
        _ if raw.check => Detail::Each,
        Some(slower) => Detail::SlowCalls(slower),
        None => Detail::WholeStack(by.map(groups)),
    }
}

/// A screen shows each second.
fn intervals(raw: &Raw) -> Option<Intervals> {
    let (length, count) = match raw.live {
        true => (Some(Duration::from_secs(1)), None),
        false => (raw.interval, raw.count),
    };
    length.map(|length| Intervals { length, count })
}

/// Checks which options the layers allow. `layers`: the named ones.
fn check_scope(raw: &Raw, layers: Option<&[Layer]>) -> Result<(), String> {
    let names = |layer| layers.is_some_and(|layers| layers.contains(&layer));
    if raw.filters.queued && layers.is_some() && !names(Layer::Blk) {
        return Err("-Q applies to the block layer; add blk to -T".to_owned());
    }
    if raw.filters.disk.is_some() && layers == Some(&[Layer::Syscall]) {
        return Err(
            "-d needs a layer with disks or files, and syscall alone has neither; add vfs, blk or a file system to -T"
                .into(),
        );
    }
    let is_on_none = |layer: &Layer| layer.lives().is_some_and(|lives| lives != Lives::Disk);
    let elsewhere = layers.and_then(|layers| layers.iter().find(|layer| is_on_none(layer)));
    if let Some(layer) = elsewhere.filter(|_| raw.filters.disk.is_some()) {
        return Err(format!(
            "-d selects files on a disk, and those of {layer} are on no local disk; leave out -d or {layer}"
        ));
    }
    if let ([_, second, ..], None) = (&raw.filters.files[..], raw.events) {
        return Err(format!(
            "--file selects one file while a run measures; '{}' as well: with --events, or record, then report with each --file",
            second.display()
        ));
    }
    if !raw.filters.files.is_empty() && names(Layer::Blk) && raw.events.is_none() {
        return Err("--file cannot select requests, since blk does not know their file; remove blk from -T".to_owned());
    }
    if raw.output.svg.is_some() && layers.is_some() {
        return Err("--svg draws the whole stack, and -T measures single layers; remove one of them".to_owned());
    }
    let is_single = |limit: &Limit| matches!(limit.of, Limited::Op(_) | Limited::Queue);
    if let Some(limit) = raw
        .limits
        .iter()
        .find(|limit| is_single(limit) && raw.output.output.is_none())
    {
        let of = limit.of.name();
        return Err(format!(
            "--limit {of} needs records of single calls and requests: --live -o FILE; without them limits are on families and on device"
        ));
    }
    if raw.slower.is_some() && raw.output.by.is_some() && !raw.live {
        return Err(
            "--slower and --by cannot be combined: --slower already names the process and the file of each call"
                .to_owned(),
        );
    }
    if raw.slower.is_some() && layers.is_some() {
        return Err("--slower and -T cannot be combined: --slower always measures the whole stack".to_owned());
    }
    Ok(())
}

/// Checks what a sample of the calls is enough for. `layers`: the named ones.
fn check_sample(raw: &Raw, layers: Option<&[Layer]>) -> Result<(), String> {
    if raw.sample.is_none() {
        return Ok(());
    }
    let single = [
        (raw.slower.is_some(), "--slower prints"),
        (raw.events.is_some(), "--events prints"),
        (raw.live, "--live lists"),
    ];
    if let Some((_, option)) = single.iter().find(|(is_used, _)| *is_used) {
        return Err(format!(
            "{option} single calls, and --sample leaves most of them out; remove one of them"
        ));
    }
    if layers == Some(&[Layer::Blk]) {
        return Err(
            "--sample is about calls, and the requests of blk are always all counted; remove it, or name another layer"
                .to_owned(),
        );
    }
    Ok(())
}

fn whose(filters: &Filters, command: Vec<OsString>, user: Option<String>) -> Result<Whose, String> {
    let mut pids = filters.pids.clone();
    pids.sort_unstable();
    pids.dedup();
    if filters.follow && pids.is_empty() {
        return Err("-f needs -p; with -- COMMAND, descendants are always traced".into());
    }
    let mut words = command.into_iter();
    let Some(program) = words.next() else {
        return match user {
            Some(_) => Err("--user needs -- COMMAND".to_owned()),
            None if pids.is_empty() => Ok(Whose::Everybody),
            None => Ok(Whose::Processes {
                pids,
                follow: filters.follow,
            }),
        };
    };
    if !pids.is_empty() {
        return Err(
            "-p and -- COMMAND cannot be combined: with a command, it and its descendants are traced".to_owned(),
        );
    }
    if program.is_empty() {
        return Err("the COMMAND after -- is an empty word".to_owned());
    }
    Ok(Whose::Command(CommandLine {
        program,
        arguments: words.collect(),
        user,
    }))
}

fn form(output: &low::Output) -> Form {
    match output.json {
        Some(form) => Form::Json(form),
        None if output.folded => Form::Folded,
        None => Form::Text {
            unit: match (output.milliseconds, output.microseconds) {
                (true, _) => Unit::Milliseconds,
                (_, true) => Unit::Microseconds,
                _ => Unit::Nanoseconds,
            },
            summary: output.summary,
            oneline: output.oneline,
        },
    }
}

/// The layers named by `-T`, in stack order.
struct Named {
    /// `None` for none or `all`.
    layers: Option<Vec<Layer>>,
    /// Layers named in addition to `all`.
    beside_all: Vec<Layer>,
}

/// The layers of the whole stack.
fn whole_stack(beside_all: &[Layer]) -> Vec<Layer> {
    let is_usual = |layer: &Layer| layer.lives() != Some(Lives::Memory) || beside_all.contains(layer);
    Layer::ALL.into_iter().filter(is_usual).collect()
}

fn layers(names: &[String]) -> Result<Named, String> {
    let is_all = |name: &String| name == "all";
    let known = Layer::ALL.map(Layer::name).join(", ");
    for name in names.iter().filter(|name| !is_all(name)) {
        if !Layer::ALL.iter().any(|layer| layer.name() == name) {
            let hint = if name.parse::<f64>().is_ok() {
                "BCC's -T prints time stamps; here they are always printed: leave out -T".to_owned()
            } else {
                format!("layers are {known}, all")
            };
            return Err(format!("unknown layer '{name}' ({hint})"));
        }
    }
    let named = Layer::ALL
        .into_iter()
        .filter(|layer| names.iter().any(|name| name == layer.name()));
    let named: Vec<Layer> = named.collect();
    let is_whole_stack = names.is_empty() || names.iter().any(is_all);
    let (layers, beside_all) = if is_whole_stack {
        (None, named)
    } else {
        (Some(named), Vec::new())
    };
    Ok(Named { layers, beside_all })
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use proptest::prelude::*;

    use super::value::{process_number, threshold, time_span};
    use super::*;
    use crate::export::Format;
    use crate::fuzz;
    use crate::model::ids::Family;
    use crate::model::recording::Names;
    use crate::model::report::group::By;
    use crate::model::sample::Sample;
    use crate::playback::run::Timing;
    use crate::replay::order::Order;
    use crate::view::json;

    fn command_of(words: &str) -> Result<Command, String> {
        parse(
            std::iter::once("IOStackBreakdown")
                .chain(words.split_whitespace())
                .map(OsString::from),
        )
    }

    fn parse_words(words: &str) -> Result<Options, String> {
        match command_of(words)? {
            Command::Trace(options)
            | Command::Print { options, .. }
            | Command::Record { options, .. }
            | Command::Report { options, .. } => Ok(options),
            other => panic!("{words}: {other:?}"),
        }
    }

    fn usage(words: &str) -> String {
        parse_words(words).unwrap_err()
    }

    #[test]
    fn a_sample_is_one_in_n() {
        let sample = |words: &str| parse_words(words).map(|options| options.measure.scope.sample);
        assert_eq!(sample("-T vfs --sample 1/100"), Ok(Sample::new(100)));
        assert_eq!(sample("--sample 1/2 --by process --metrics"), Ok(Sample::new(2)));
        assert_eq!(
            sample("-T syscall,blk --sample 1/1000000 1 10"),
            Ok(Sample::new(1_000_000))
        );
        assert_eq!(sample("-T vfs"), Ok(None));
        for wrong in [
            "100",
            "1/1",
            "1/0",
            "1/1000001",
            "1/+5",
            "1/1e3",
            "1/",
            "2/100",
            "0.01",
            "1%",
            "1/99999999999",
        ] {
            let line = usage(&format!("-T vfs --sample {wrong}"));
            let expected = "not 1/N, such as 1/100, with a whole number N from 2 to 1,000,000";
            assert!(line.contains(expected) && line.contains(wrong), "{line}");
        }
    }

    #[test]
    fn a_sample_is_refused_where_single_calls_are_wanted() {
        for words in [
            "--slower 1ms",
            "--events",
            "--live",
            "--live -o x",
            "--live --slower 5ms",
        ] {
            let line = usage(&format!("--sample 1/100 {words}"));
            assert!(
                line.ends_with("single calls, and --sample leaves most of them out; remove one of them"),
                "{line}"
            );
        }
        assert_eq!(
            usage("record --sample 1/100"),
            "record keeps every call, and --sample leaves most of them out; remove it"
        );
        assert_eq!(
            usage("-T blk --sample 1/100"),
            "--sample is about calls, and the requests of blk are always all counted; remove it, or name another layer"
        );
        assert!(usage("--check --sample 1/100").contains("cannot be used with"));
        assert!(usage("report x --sample 1/100").contains("--sample"));
    }

    #[test]
    fn the_live_view_refuses_what_it_would_ignore() {
        for option in ["-m", "-u", "-S", "--json", "-T blk", "5"] {
            for live in ["--live", "report x --live"] {
                let line = usage(&format!("{live} {option}"));
                assert!(line.contains("'--live' cannot be used with"), "{line}");
            }
        }
    }

    #[test]
    fn the_classic_forms_are_understood() {
        let options = parse_words("-T vfs -p 4711").unwrap();
        assert_eq!(options.measure.scope.layers(), [Layer::Vfs]);
        assert_eq!(options.measure.target.pids(), [4711]);
        let options = parse_words("-T ext4,syscall -p 7,5,7 0.5 3").unwrap();
        assert_eq!(options.measure.scope.layers(), [Layer::Syscall, Layer::Ext4]);
        assert_eq!(options.measure.target.pids(), [5, 7]);
        let intervals = Intervals {
            length: Duration::from_millis(500),
            count: Some(3),
        };
        assert_eq!(options.span.intervals, Some(intervals));
        let scope = |words| parse_words(words).unwrap().measure.scope;
        assert!(options.measure.scope.is_named() && !scope("").is_named());
        assert_eq!(scope("-T all").layers(), whole_stack(&[]));
        assert!(scope("-T all").is_all_named && !scope("").is_all_named && !scope("-T vfs").is_all_named);
        let without = Layer::ALL.into_iter().filter(|layer| *layer != Layer::Tmpfs);
        assert_eq!(whole_stack(&[]), without.collect::<Vec<_>>());
        let with_tmpfs = scope("-T tmpfs,all");
        assert!(!with_tmpfs.is_named() && with_tmpfs.beside_all == [Layer::Tmpfs]);
        assert_eq!(with_tmpfs.layers(), Layer::ALL);
        assert!(scope("-T all -Q").is_queued() && scope("-T blk -Q").is_queued() && !scope("").is_queued());
    }

    #[test]
    fn an_unknown_option_in_a_group_of_them_is_looked_up_once() {
        assert!(usage("-Sa x -ab").contains("-a"));
    }

    #[test]
    fn a_command_is_followed() {
        let options = parse_words("-u -- fio -p 3").unwrap();
        let target = &options.measure.target;
        assert!(target.follows() && target.pids().is_empty());
        let words: Vec<&OsString> = target.command().unwrap().words().collect();
        assert_eq!(words, ["fio", "-p", "3"]);
        assert_eq!(options.output.unit(), Unit::Microseconds);
    }

    #[test]
    fn json_is_in_nanoseconds_whatever_the_text_would_be_in() {
        for words in ["--json", "--json -m", "-u --json", "-S -m --json"] {
            let output = parse_words(words).unwrap().output;
            assert_eq!(output.form, Form::Json(json::Form::Full), "{words}");
            assert_eq!(output.unit(), Unit::Nanoseconds, "{words}");
        }
        let form = |words| parse_words(words).unwrap().output.form;
        assert!(matches!(form(""), Form::Text { oneline: false, .. }));
        assert_eq!(form("--json=full"), Form::Json(json::Form::Full));
        assert_eq!(form("--json=compact -m"), Form::Json(json::Form::Compact));
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

    /// A number alone has the same unit in every option that takes a time.
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
                [
                    options.span.duration,
                    options.measure.scope.slower(),
                    options.span.intervals.map(|intervals| intervals.length)
                ],
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
        assert_eq!(options.span.budget.map(|share| share.ns_per_s), Some(25_000_000));
        assert_eq!(parse_words("-T vfs").unwrap().span.budget, None);
        let line = usage("--budget 0");
        assert!(
            line.contains("invalid value '0' for '--budget <PERCENT>': not a percentage above 0"),
            "{line}"
        );
    }

    #[test]
    fn wrong_usage_is_one_line_with_a_way_out() {
        assert_eq!(
            usage("-T 1"),
            "unknown layer '1' (BCC's -T prints time stamps; here they are always printed: leave out -T)"
        );
        assert_eq!(
            usage("-T xfsx"),
            "unknown layer 'xfsx' (layers are syscall, vfs, ext4, xfs, btrfs, f2fs, nfs, overlay, tmpfs, blk, all)"
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
    fn a_screen_shows_the_whole_stack_by_process_with_slow_calls() {
        let options = parse_words("--live -p 7 --limit fsync=20ms --history 128M").unwrap();
        let Detail::Live(groups, slower) = options.measure.scope.detail else {
            panic!("{options:?}");
        };
        assert_eq!(
            (groups.by, groups.top, slower),
            (By::Process, 100, Duration::from_millis(10))
        );
        assert!(options.measure.scope.is_whole_stack() && !options.measure.scope.is_named());
        assert_eq!(
            options.span.intervals.map(|every| every.length),
            Some(Duration::from_secs(1))
        );
        let live = options.output.live.unwrap();
        assert_eq!((live.history_bytes, live.limits.len()), (128 << 20, 1));
        let options = parse_words("--live --by file --top 7 --slower 1ms").unwrap();
        let Detail::Live(groups, slower) = options.measure.scope.detail else {
            panic!("{options:?}");
        };
        assert_eq!((groups.by, groups.top, slower), (By::File, 7, Duration::from_millis(1)));
        // A file is a recording.
        assert!(matches!(
            command_of("--live -o x.iosb --limit pread64=1ms"),
            Ok(Command::Record { recording, options }) if recording.path == Some(PathBuf::from("x.iosb")) && options.output.path.is_none()
        ));
        assert!(usage("--live --limit pread64=1ms").contains("--live -o FILE"));
        for wrong in [
            "--live 1",
            "--live --json",
            "--live -T blk",
            "--live -- true",
            "--live --check",
            "--history 1M",
            "--limit fsync=1ms",
            "report x --live --json",
            "report x --live 1",
            "report x --live -T blk",
            "report x --slower 1ms --limit fsync=1ms",
            "report x --slower 1ms --access",
        ] {
            assert!(command_of(wrong).is_err(), "{wrong}");
        }
        let Ok(Command::Report { questions, options, .. }) = command_of("report x --live --limit pread64=1ms") else {
            panic!("report");
        };
        assert!(questions.is_empty());
        assert_eq!(options.output.live.map(|live| live.limits.len()), Some(1));
        let both = "report x --live --slower 5ms --limit fsync=50ms,device=20ms";
        let Ok(Command::Report { options, .. }) = command_of(both) else {
            panic!("report");
        };
        assert_eq!(options.measure.scope.slower(), Some(Duration::from_millis(5)));
        assert_eq!(options.output.live.map(|live| live.limits.len()), Some(2));
    }

    #[test]
    fn reports_are_split_as_requested() {
        let groups = |words| parse_words(words).unwrap().measure.scope.groups();
        let (top, room) = (10, None);
        let by = By::Cgroup;
        assert_eq!(groups("--by cgroup"), Some(Groups { by, top, room }));
        let (by, top) = (By::Disk, 3);
        assert_eq!(groups("-T blk --by disk --top 3"), Some(Groups { by, top, room }));
        assert_eq!(groups("-p 3"), None);
    }

    #[test]
    fn two_files_are_compared() {
        let parsed = command_of("compare a.json b.json");
        assert!(
            matches!(&parsed, Ok(Command::Compare { before, after, html: None }) if before.as_os_str() == "a.json" && after.as_os_str() == "b.json"),
            "{parsed:?}"
        );
    }

    #[test]
    fn the_whole_stack_is_what_no_layer_was_named_of() {
        let is_whole = |words| parse_words(words).unwrap().measure.scope.is_whole_stack();
        assert!(is_whole("--folded") && is_whole("-T all") && is_whole("--slower 1ms") && !is_whole("-T blk"));
        let check = |words| match command_of(words) {
            Ok(Command::Check(measure)) => measure.scope.detail,
            other => panic!("{words}: {other:?}"),
        };
        assert_eq!(check("--check"), Detail::Each);
        assert_eq!(check("--check -T vfs"), Detail::Named(None));
    }

    #[test]
    fn help_and_version_are_not_errors() {
        assert!(matches!(command_of("--help"), Ok(Command::Text(text)) if text.contains("--duration")));
        assert!(matches!(command_of("-h"), Ok(Command::Text(text)) if !text.contains("--vmlinux")));
        assert!(matches!(command_of("--version"), Ok(Command::Text(_))));
        for words in ["compare --help", "compare -h", "help compare"] {
            assert!(
                matches!(command_of(words), Ok(Command::Text(text)) if text.contains("Usage: IOStackBreakdown compare BEFORE AFTER [--html FILE]")),
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

    #[test]
    fn a_recording_is_exported_by_a_verb() {
        let words = "export x.iosb --to ctf -o out -p 7,8 -d sda --comm tar --file /a -T blk --from +1s --to-time -2s";
        let Ok(Command::Export { from, export }) = command_of(words) else {
            panic!("export");
        };
        assert_eq!(from, PathBuf::from("x.iosb"));
        assert_eq!((export.format, export.path), (Format::Ctf, Some(PathBuf::from("out"))));
        assert_eq!((export.pids, export.layers), (vec![7, 8], vec![Layer::Blk]));
        assert_eq!(export.part.to, Some(Moment::BeforeEnd(Duration::from_secs(2))));
        let to_stdout = |words| match command_of(words) {
            Ok(Command::Export { export, .. }) => export.path.is_none(),
            other => panic!("{other:?}"),
        };
        assert!(to_stdout("export x --to jsonl") && to_stdout("export x --to jsonl -o -"));
        for format in ["ctf", "fio", "blktrace"] {
            assert_eq!(
                usage(&format!("export x --to {format} -o -")),
                format!("--to {format} writes several files; name a new directory for them: -o DIRECTORY")
            );
        }
        assert!(usage("export x").contains("--to"));
        assert!(usage("export x --to otf").contains("perfetto"), "the formats are named");
    }

    #[test]
    fn a_recording_is_made_and_reported_by_verbs() {
        let Ok(Command::Record { recording, options }) = command_of(
            "record -o x.iosb -T syscall,blk -p 7 --max-size 1.5M --keep-free 2GB --buffer 64k --sync 5s --names hash --duration 60s",
        ) else {
            panic!("record");
        };
        assert_eq!(
            (recording.max_bytes, recording.keep_free, recording.buffer),
            (Some(3 << 19), Some(2_000_000_000), Some(64 << 10))
        );
        assert_eq!(
            (recording.sync, recording.names),
            (Some(Duration::from_secs(5)), Names::Hash)
        );
        assert_eq!(options.measure.scope.layers(), [Layer::Syscall, Layer::Blk]);
        assert_eq!(options.span.duration, Some(Duration::from_secs(60)));
        let Ok(Command::Report {
            from, part, options, ..
        }) = command_of("report x.iosb --from 12:03:07.5 --to -10s 5 2 --json=compact")
        else {
            panic!("report");
        };
        assert_eq!(from, PathBuf::from("x.iosb"));
        let noon = Duration::from_secs(12 * 3600 + 187) + Duration::from_millis(500);
        assert_eq!(part.from, Some(Moment::OfDay(noon)));
        assert_eq!(part.to, Some(Moment::BeforeEnd(Duration::from_secs(10))));
        assert_eq!(options.span.intervals.and_then(|intervals| intervals.count), Some(2));
        for wrong in [
            "record x.iosb",
            "record --json",
            "record 1",
            "record --max-size 1x",
            "record --max-size 0",
            "record --max-size 1",
            "record --until-stuck 5s",
            "record --after 5s",
            "record --ring 60s,1k",
            "record --ring 60s,",
            "record --ring 0",
            "record --ring 60s --max-size 1M",
            "record --ring 60s --sync 5s",
            "record --ring 60s --repeat 0",
            "record --ring 60s --until-slower 0",
            "record --ring 60s --until-slower 1s,flush",
            "record --ring 60s --until-slower 1s,",
            "record --ring 60s --until-error EWRONG",
            "record --ring 60s --until-error EIO,queue",
            "record --ring 60s --until-stuck 5s -T blk",
            "record --ring 60s --until-slower 1s -T vfs,blk",
            "record --ring 60s --until-slower 1s,device -T syscall",
            "record --top 3",
            "report",
            "report x --from 25:00:00",
            "report x --from 12:3",
            "report x --to +",
            "report x --lost --json",
            "report x -- true",
            "-T blk record",
        ] {
            assert!(command_of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_missing_cannot_be_selected() {
        assert!(command_of("report x --lost").is_ok());
        for selection in [
            "-p 1",
            "-p 1 -f",
            "-d sda",
            "-Q",
            "--cgroup /a",
            "--unit a",
            "--pod a/b",
            "--container a",
            "--comm a",
            "--file /a",
            "--dir /a",
            "--all-files",
        ] {
            assert!(command_of(&format!("report x {selection}")).is_ok(), "{selection}");
            let refused = command_of(&format!("report x --lost {selection}")).unwrap_err();
            assert!(refused.contains("cannot be used with"), "{selection}: {refused}");
        }
    }

    #[test]
    fn a_ring_has_its_size_and_its_triggers() {
        let ring_of = |words: &str| match command_of(&format!("record {words}")) {
            Ok(Command::Record { recording, .. }) => recording.ring.unwrap(),
            other => panic!("{words}: {other:?}"),
        };
        let ring = ring_of("--ring 60s");
        assert_eq!((ring.span, ring.bytes), (Duration::from_secs(60), None));
        assert_eq!((ring.after, ring.repeat), (Duration::from_secs(5), 1));
        assert!(ring.triggers.is_empty());
        let ring = ring_of(
            "--ring 5m,64M --until-slower 500ms,fsync --until-slower 20ms,pread64 --until-slower 1s,device \
             --until-error EIO --until-error 28,write --until-stuck 5s --after 0 --repeat 3",
        );
        assert_eq!((ring.span, ring.bytes), (Duration::from_secs(300), Some(64 << 20)));
        assert_eq!((ring.after, ring.repeat), (Duration::ZERO, 3));
        let slower = |ms: u64, of| Trigger::Slower { ns: ms * 1_000_000, of };
        let expected = [
            slower(500, "fsync".parse().ok()),
            slower(20, "pread64".parse().ok()),
            slower(1000, Some(Limited::Device)),
            Trigger::Error { errno: 5, of: None },
            Trigger::Error {
                errno: 28,
                of: "write".parse().ok(),
            },
            Trigger::Stuck { ns: 5_000_000_000 },
        ];
        assert_eq!(ring.triggers, expected);
        // An error may be of either kind of records.
        assert_eq!(ring_of("--ring 1s --until-error EIO -T blk").triggers.len(), 1);
        assert_eq!(
            command_of("record --ring 60s --until-stuck 5s -T blk").unwrap_err(),
            "--until-stuck needs calls; add syscall to -T"
        );
    }

    #[test]
    fn a_replay_is_as_its_options_say() {
        let Ok(Command::Replay { from, replay }) = command_of(
            "replay x.iosb --into /mnt/new -s 0.5 --timing think --order total --map /srv/db=/mnt/db --only read,fsync --threads 7,8 --data 2.5 --measure",
        ) else {
            panic!()
        };
        assert_eq!(
            (from, &replay.into),
            (PathBuf::from("x.iosb"), &PathBuf::from("/mnt/new"))
        );
        assert_eq!((replay.how.speed, replay.how.timing), (Some(0.5), Timing::Think));
        assert_eq!((replay.order, replay.only), (Order::Total, Only::All));
        assert!(replay.measure && !replay.how.is_traced);
        assert_eq!(replay.maps, [("/srv/db".to_owned(), PathBuf::from("/mnt/db"))]);
        assert_eq!(replay.selection.only, [Family::Read, Family::Fsync].into());
        assert_eq!(replay.selection.threads, [7, 8].into());
        let Ok(Command::Replay { replay, .. }) = command_of("replay x.iosb --into d -s 0 --clean") else {
            panic!()
        };
        assert_eq!((replay.how.speed, replay.only), (None, Only::Clean));
        for wrong in [
            "replay x.iosb",
            "replay --into d",
            "replay x.iosb --into d -s -1",
            "replay x.iosb --into d -s nan",
            "replay x.iosb --into d --prepare --clean",
            "replay x.iosb --into d --prepare --measure",
            "replay x.iosb --into d --only async",
            "replay x.iosb --into d --only read --without write",
            "replay x.iosb --into d --map srv=/mnt",
            "replay x.iosb --into d --map /srv",
            "replay x.iosb --into d --threads 0",
            "replay x.iosb --into d --data 0.5",
        ] {
            let line = command_of(wrong).unwrap_err();
            assert!(!line.is_empty() && !line.contains('\n'), "{wrong}: {line}");
        }
    }

    #[test]
    fn records_are_selected_by_more_than_a_run() {
        let Ok(Command::Report { options, .. }) =
            command_of("report x -T syscall,blk -d sda --file a --file b --dir /srv --by fd --top 3")
        else {
            panic!("report");
        };
        let target = &options.measure.target;
        assert_eq!((target.disk.as_deref(), &target.file), (Some("sda"), &None));
        let paths = Paths {
            files: vec!["a".into(), "b".into()],
            folders: vec!["/srv".into()],
        };
        assert_eq!(target.paths, paths);
        assert_eq!(options.measure.scope.groups().map(|groups| groups.by), Some(By::Fd));
        let events = |words: &str| parse_words(words).map(|options| options.events);
        let text = Events {
            form: EventForm::Text,
            last: None,
        };
        assert_eq!(events("report x --events"), Ok(Some(text)));
        let last = Events {
            form: EventForm::Iotracer,
            last: Some(3),
        };
        assert_eq!(events("report x --events=iotracer --last 3"), Ok(Some(last)));
        for wrong in [
            "--by thread",
            "record --by user",
            "--file a --file b",
            "--dir /srv",
            "report x --last 3",
            "report x --events --json",
            "report x --events --by file",
            "report x --events=xml",
            "report x --events 1",
            "report x --seeks --dir /srv",
            "report x --seeks --by fd",
        ] {
            assert!(command_of(wrong).is_err(), "{wrong}");
        }
        assert!(usage("--by fd").contains("report FILE --by fd"));
    }

    proptest! {
        #![proptest_config(fuzz::config())]

        #[test]
        fn any_arguments_are_understood_or_refused(arguments in arguments()) {
            match parse(arguments) {
                Ok(
                    Command::Trace(options)
                    | Command::Print { options, .. }
                    | Command::Record { options, .. }
                    | Command::Report { options, .. },
                ) => {
                    prop_assert!(!options.measure.scope.layers().is_empty());
                    prop_assert!(options.span.intervals.is_none_or(|intervals| !intervals.length.is_zero()));
                }
                Ok(Command::Check(measure)) => prop_assert!(!measure.scope.layers().is_empty()),
                Ok(Command::Text(text)) => prop_assert!(!text.is_empty()),
                Ok(Command::Compare { .. } | Command::Export { .. } | Command::Replay { .. } | Command::Complete(_)) => {}
                Err(line) => prop_assert!(!line.is_empty()),
            }
        }

        #[test]
        fn any_time_is_read(text in fuzz::text_like("10.5ms")) {
            let _ = (time_span(&text), threshold(&text), process_number(&text));
        }
    }

    /// Options followed by valid values, other options, text, or bytes that are not text.
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
