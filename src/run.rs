//! A run: from options to reports.

mod answers;
mod banner;
mod budget;
mod check;
mod color;
mod events;
mod export;
mod from_records;
mod how;
mod live;
mod metrics;
mod named;
mod notes;
mod output;
mod prepare;
mod progress;
mod record;
mod refusals;
mod replay;
mod report;
mod ring;
mod selected;
mod session;
mod sinks;
mod subject;
mod unprivileged;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Child;

use libbpf_rs::{MapCore, MapFlags};

use crate::args::{self, CommandLine, Measure, Options, Talk};
use crate::budget::CpuShare;
use crate::catalog::Layer;
use crate::cause::Cause;
use crate::command::{self, CommandError, Waiting};
use crate::compare;
use crate::event::Signals;
use crate::filter::Filter;
use crate::kernel::disk::Disk;
use crate::kernel::disks::{Disks, check_paths};
use crate::kernel::file::FileNumber;
use crate::kernel::{self, cgroup, privileges};
use crate::leave;
use crate::limits;
use crate::model::report::nanoseconds;
use crate::model::report::records::Questions;
use crate::model::run_info::RunInfo;
use crate::model::snapshot::Snapshot;
use crate::probe::attach::{self, Attached};
use crate::probe::program;
use crate::probe::request::{RecordWish, Request, Stage};
use crate::process::{self, Process};
use crate::say;
use crate::serve::Listening;
use crate::signals;
use crate::source::live::{Live, OfRun};
use crate::source::saved::{Keeper, Saved};
use crate::source::{Source, Until};
use crate::view::text::Unit;

use self::banner::{Purpose, banner};
use self::how::report_hooks;
use self::notes::{say_notes, unused};
use self::prepare::{
    Prepared, Wanted, calls_left_out_by_filters, inaccessible_facts, left_out_by_sample, prepare, request,
    retain_mounted,
};
use self::record::Recorder;
use self::refusals::{attach_failure, check_layers, why_uncounted};
use self::selected::path_of;
use self::session::Session;
use self::sinks::Sinks;
use self::subject::{filter, subject};

/// Why a run ended early: one line and the exit status.
#[derive(Debug)]
pub struct Failure {
    pub line: String,
    pub status: u8,
}

impl Failure {
    /// Wrong usage.
    fn usage(line: String) -> Self {
        Self {
            line,
            status: WRONG_USAGE,
        }
    }

    fn new(status: u8, cause: Cause) -> Self {
        Self {
            line: limits::advice(limits::is_reached(cause.errno)).unwrap_or(cause.line),
            status,
        }
    }
}

/// Exit status of a command line that cannot be carried out.
const WRONG_USAGE: u8 = 2;
/// Exit status if the run could not measure.
const COULD_NOT_MEASURE: u8 = 1;
/// The same for a run with a COMMAND, whose own statuses are lower.
const COULD_NOT_MEASURE_COMMAND: u8 = 125;

/// Measures, and returns the exit status of the process. Call it while the process has a single thread, and end the
/// process afterwards with [`crate::leave::leave`]: probes stay attached until then.
///
/// # Errors
/// The cause, in one line.
pub fn trace(options: &Options) -> Result<u8, Failure> {
    let status = match options.measure.target.command() {
        None => COULD_NOT_MEASURE,
        Some(_) => COULD_NOT_MEASURE_COMMAND,
    };
    measure(options, None, &|cause| Failure::new(status, cause))
}

/// Measures, and keeps the run in a recording. Otherwise like [`trace`].
///
/// # Errors
/// The cause, in one line.
pub fn record(recording: &args::Recording, options: &Options) -> Result<u8, Failure> {
    check_sizes(recording, kernel::memory_bytes()).map_err(Failure::usage)?;
    let status = match options.measure.target.command() {
        None => COULD_NOT_MEASURE,
        Some(_) => COULD_NOT_MEASURE_COMMAND,
    };
    measure(options, Some(recording), &|cause| Failure::new(status, cause))
}

/// Checks what a recording takes of the machine's `memory`, in bytes.
fn check_sizes(recording: &args::Recording, memory: u64) -> Result<(), String> {
    let ring = recording.ring.as_ref().and_then(|ring| ring.bytes);
    let sizes = [
        ("--buffer", recording.buffer, RecordWish::largest_total(memory)),
        ("--ring", ring, ring::most_bytes(memory)),
    ];
    for (option, bytes, most) in sizes {
        if bytes.is_some_and(|bytes| bytes > most) {
            let most = most >> 20;
            return Err(format!(
                "{option}: at most an eighth of the memory, which is {most}M here"
            ));
        }
    }
    Ok(())
}

/// Tries every probe, and prints which ones fire. Otherwise like [`trace`].
///
/// # Errors
/// The cause, in one line.
pub fn check(measure: &Measure) -> Result<u8, Failure> {
    check::check(measure).map_err(|line| Failure::new(COULD_NOT_MEASURE, line))
}

/// Compares two files of `--json` or `--html`, or two recordings: what differs, in lines of `width` columns. `page`: where to
/// write it as a page.
///
/// # Errors
/// The cause, in one line.
pub fn compare(before: &Path, after: &Path, page: Option<&Path>, width: Option<usize>) -> Result<String, Failure> {
    named::check_documents(true, &[("--html", page)]).map_err(Failure::usage)?;
    named::check_all(&[("BEFORE", before), ("AFTER", after)], &[("--html", page)]).map_err(Failure::usage)?;
    compare::compare(before, after, page, width, &mut |line| say!("{line}"))
        .map_err(|line| Failure::new(COULD_NOT_MEASURE, line.into()))
}

/// Prints the reports of saved counters.
///
/// # Errors
/// The cause, in one line.
pub fn print(from: &Path, options: &Options) -> Result<u8, Failure> {
    named::check(options, None, &[("--from-snapshots", from)]).map_err(Failure::usage)?;
    print_kept(from, options).map_err(|line| Failure::new(COULD_NOT_MEASURE, line))
}

/// Answers questions from the records of a recording. Returns the exit status.
///
/// # Errors
/// The cause, in one line.
pub fn answers(from: &Path, part: &args::Part, questions: &Questions, options: &Options) -> Result<u8, Failure> {
    named::check(options, None, &[("FILE", from)]).map_err(Failure::usage)?;
    answers::answers(from, part, questions, options).map_err(|line| Failure::new(COULD_NOT_MEASURE, line))
}

/// Prints the calls and requests of a recording one by one. Returns the exit status.
///
/// # Errors
/// The cause, in one line.
pub fn events(from: &Path, part: &args::Part, events: args::Events, options: &Options) -> Result<u8, Failure> {
    named::check(options, None, &[("FILE", from)]).map_err(Failure::usage)?;
    events::of_recording(from, part, events, options).map_err(|line| Failure::new(COULD_NOT_MEASURE, line))
}

/// Prints reports of a recording.
///
/// # Errors
/// The cause, in one line.
pub fn report(from: &Path, part: &args::Part, options: &Options) -> Result<u8, Failure> {
    named::check(options, None, &[("FILE", from)]).map_err(Failure::usage)?;
    let ended = match &options.output.live {
        Some(live) => live::show_recording(from, part, live, options),
        None => report::report(from, part, options),
    };
    ended.map_err(|line| Failure::new(COULD_NOT_MEASURE, line))
}

/// Writes a recording in the format of another tool.
///
/// # Errors
/// The cause, in one line.
pub fn export(from: &Path, export: &args::Export) -> Result<u8, Failure> {
    named::check_all(&[("FILE", from)], &[("-o", export.path.as_deref())]).map_err(Failure::usage)?;
    export::export(from, export).map_err(|line| Failure::new(COULD_NOT_MEASURE, line))
}

/// Makes the calls of a recording once more. Call it while the process has a single thread.
///
/// # Errors
/// The cause, in one line.
pub fn replay(from: &Path, replay: &args::Replay) -> Result<u8, Failure> {
    replay::replay(from, replay)
}

fn print_kept(from: &Path, options: &Options) -> Result<u8, Cause> {
    let signals = install_signals()?;
    let sinks = Sinks::open(options)?;
    let source = Saved::open(from);
    let source = source.map_err(|error| Cause::of(format_args!("cannot read '{}'", from.display()), &error))?;
    let filter = Filter {
        pids: options.measure.target.pids().to_vec(),
        comm: options.measure.target.comm.clone(),
        slower_ns: options.measure.scope.slower().map(nanoseconds),
    };
    filter.check(source.info())?;
    if !filter.has_counters(source.info()) {
        say!("these options do not apply to saved counters: only slow calls are printed");
    }
    let mut session = Session::begin(source, filter, sinks, None)?;
    session.show_beginning(&session.first_report())?;
    session.pass(Until::End)?;
    session.finish(&signals)?;
    Ok(0)
}

fn install_signals() -> Result<Signals, Cause> {
    Signals::install().map_err(|error| Cause::of("cannot handle signals", &error))
}

/// Whether the run does something at SIGUSR1.
fn handles_user_signal(options: &Options, recording: Option<&args::Recording>) -> bool {
    options.events.is_some() || recording.is_some_and(|recording| recording.ring.is_some())
}

/// Ignores SIGUSR1 until the run handles it: by default it would end the process while that prepares.
fn ignore_user_signal(options: &Options, recording: Option<&args::Recording>) -> Result<(), Cause> {
    if !handles_user_signal(options, recording) {
        return Ok(());
    }
    signals::ignore_user().map_err(|error| Cause::of("cannot handle signals", &error))
}

/// Handles the signals that this run needs.
fn take_signals(options: &Options, recording: Option<&args::Recording>) -> Result<Signals, Cause> {
    let mut signals = install_signals()?;
    let mut take = || {
        if handles_user_signal(options, recording) {
            signals.take_user()?;
        }
        if options.output.live.is_some() {
            signals.watch_terminal()?;
        }
        Ok(())
    };
    let taken: io::Result<()> = take();
    taken.map_err(|error| Cause::of("cannot handle signals", &error))?;
    Ok(signals)
}

/// Gives up what serving clients does not need. A command would inherit what is left.
fn give_up_privileges(options: &Options, attached: &Attached) -> Result<(), Cause> {
    if options.output.metrics.is_none() || options.measure.target.command().is_some() {
        return Ok(());
    }
    let traced = &attached.skeleton.maps.traced;
    let may_read = || {
        let read = traced.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY);
        !read.is_err_and(|error| error.kind() == libbpf_rs::ErrorKind::PermissionDenied)
    };
    unprivileged::give_up(may_read).map_err(|error| Cause::of("cannot give up privileges", &error))
}

/// Measures until the end of the run. `cannot` turns a cause into a failure.
fn measure(options: &Options, recording: Option<&args::Recording>, cannot: Cannot<'_>) -> Result<u8, Failure> {
    named::check(options, recording, &[]).map_err(Failure::usage)?;
    ignore_user_signal(options, recording).map_err(cannot)?;
    if options.output.live.is_some() {
        live::check_terminal().map_err(cannot)?;
    }
    let folder = recording.map(|recording| record::folder(recording, &record::now_in_name()));
    // Before files are made that would be left behind.
    if let Some(folder) = &folder {
        record::check_folder(folder).map_err(cannot)?;
    }
    let has_report = recording.is_none() && options.output.live.is_none();
    let sinks = Sinks::open_with(options, has_report).map_err(cannot)?;
    let listening = options.output.metrics.as_ref().map(Listening::open);
    let listening = listening.transpose().map_err(cannot)?;
    let mut options = options.clone();
    let mut targets = Targets::find(&mut options.measure).map_err(cannot)?;
    let options = &options;
    if let Some(line) = privileges::missing() {
        return Err(cannot(line.into()));
    }
    if options.measure.talk != Talk::Quiet {
        progress::show(Stage::Looking);
    }
    let is_recorded = recording.is_some() || options.events.is_some();
    let prepared = prepare(&options.measure, targets.disk.as_ref(), is_recorded).map_err(cannot)?;
    let runs = count_runs(options).map_err(cannot)?;
    let (mut attached, refused) = attach_all(options, recording, &prepared, &mut targets, cannot)?;
    // Before signals are handled, in a thread that inherits what this one has.
    give_up_privileges(options, &attached).map_err(cannot)?;
    let signals = take_signals(options, recording).map_err(cannot)?;
    let command = options.measure.target.command();
    let waiting = command
        .map(|command| fork_command(command, &mut attached, cannot))
        .transpose()?;
    let info = describe(
        &options.measure,
        options.span.budget,
        &prepared,
        &targets,
        &attached,
        &refused,
        runs.as_ref(),
    );
    let keeper = options.output.save_snapshots.as_deref().map(Keeper::create).transpose();
    let keeper = keeper.map_err(cannot)?;
    let live = Live::begin(attached, prepared.plan, info, prepared.disks, runs);
    let session = Session::begin(live, Filter::default(), sinks, keeper);
    let mut session = session.map_err(cannot)?;
    if let (Some(folder), Some(recording)) = (&folder, recording) {
        let begin = |info: &RunInfo, first: &Snapshot| Recorder::begin(folder, recording, info, first);
        session.record(begin).map_err(cannot)?;
    }
    // The banner is printed only when everything that follows it is measured.
    say!(
        "{}",
        banner(
            &session.source.info().subject,
            &options.measure.scope,
            &refused,
            &unused(),
            purpose(folder.as_deref(), recording, options),
        )
    );
    let first = session.first_report();
    say_notes(first.clone(), options);
    if let Some(events) = options.events {
        session.print_events(events, options, &first).map_err(cannot)?;
    }
    let child = waiting.zip(command).map(|(waiting, command)| start(waiting, command));
    let child = child.transpose().inspect_err(|_| session.discard_recording())?;
    // Not before: if there is no such command, the files keep what they have.
    session.show_beginning(&first).map_err(cannot)?;
    if let Some(listening) = listening {
        say!("metrics: {}", listening.address);
        session.serve(listening).map_err(cannot)?;
    }
    if let Some(live) = &options.output.live {
        let name = folder.as_ref().map(|folder| folder.display().to_string());
        session.show_live(live, options, &first, name).map_err(cannot)?;
    }
    session
        .watch(options, targets.processes, child, &signals)
        .map_err(cannot)
}

/// What the run is for.
fn purpose<'a>(folder: Option<&'a Path>, recording: Option<&'a args::Recording>, options: &Options) -> Purpose<'a> {
    match (folder, recording.and_then(|recording| recording.ring.as_ref())) {
        (_, Some(ring)) => Purpose::Ring {
            span: ring.span,
            bytes: ring::bytes(ring),
            triggers: &ring.triggers,
        },
        (Some(folder), None) => Purpose::Recording(folder),
        (None, None) if options.events.is_some() => Purpose::Lines,
        (None, None) => Purpose::Reports,
    }
}

/// Turns a cause into a failure with its exit status.
type Cannot<'a> = &'a dyn Fn(Cause) -> Failure;

/// The disk, file, processes and control group to be measured.
#[derive(Default)]
struct Targets {
    disk: Option<Disk>,
    file: Option<FileNumber>,
    processes: Vec<Process>,
    cgroup: Option<OwnedFd>,
    /// Notes about them for readers of the reports.
    notes: Vec<String>,
}

impl Targets {
    /// Finds them. Removes layers from `measure` that cannot be measured on them, unless they were named.
    fn find(measure: &mut Measure) -> Result<Self, Cause> {
        let Measure { scope, target, .. } = measure;
        let disk = target.disk.as_deref().map(Disk::find).transpose()?;
        let mut notes = Vec::new();
        notes.extend(retain_mounted(scope));
        if let Some(requests) = scope.requests
            && let Err(line) = check_paths(disk.as_ref())
        {
            if scope.is_named() || requests.queued {
                return Err(line.into());
            }
            scope.requests = None;
            notes.push(format!("blk is not measured: {line}"));
        }
        let file = target.file.as_deref().map(|path| {
            let found = FileNumber::find(path);
            found.map_err(|error| Cause::of(format_args!("cannot examine '{}'", path.display()), &error))
        });
        let file = file.transpose()?;
        notes.extend(file.as_ref().and_then(|file| file.note.clone()));
        if let Some(path) = target.file.as_deref().filter(|path| path.is_dir()) {
            notes.push(format!(
                "'{}' is a directory, and files in it are not selected: that does --dir, of --events and of report FILE",
                path.display()
            ));
        }
        let processes = process::find(target.pids())?;
        let cgroup = target
            .cgroup
            .as_ref()
            .map(|group| cgroup::open(&path_of(group)?))
            .transpose()?;
        Ok(Self {
            disk,
            file,
            processes,
            cgroup,
            notes,
        })
    }
}

/// Makes the kernel count the runs of programs, if their cost is needed; otherwise returns why it does not.
fn count_runs(options: &Options) -> Result<Option<io::Result<OwnedFd>>, Cause> {
    let is_verbose = options.measure.talk == Talk::Verbose;
    let is_wanted = is_verbose || options.output.has_json() || options.span.budget.is_some();
    let runs = is_wanted.then(program::count_runs);
    match (&runs, options.span.budget) {
        (Some(Err(error)), Some(_)) => Err(format!(
            "--budget needs the run times of BPF programs, which the kernel does not count here: {}",
            why_uncounted(error)
        )
        .into()),
        _ => Ok(runs),
    }
}

/// Loads and attaches the programs, and returns for each unmeasured layer why nothing is attached.
fn attach_all(
    options: &Options,
    recording: Option<&args::Recording>,
    prepared: &Prepared,
    targets: &mut Targets,
    cannot: Cannot<'_>,
) -> Result<(ManuallyDrop<Attached>, BTreeMap<Layer, String>), Failure> {
    let Prepared {
        facts, plan, narrowing, ..
    } = prepared;
    let measure = &options.measure;
    let wanted = Wanted {
        unit_ns: match options.output.unit() {
            Unit::Nanoseconds => 0,
            Unit::Microseconds => 1_000,
            Unit::Milliseconds => 1_000_000,
        },
        one_report: options.span.intervals.is_none() && recording.is_none(),
        records: (recording.is_some() || options.events.is_some()).then(|| {
            RecordWish::new(
                recording.map_or(Some(events::BUFFER), |recording| recording.buffer),
                kernel::online_cpus(),
                kernel::memory_bytes(),
            )
        }),
        operations: options.output.has_json(),
    };
    let request = Request {
        progress: (measure.talk != Talk::Quiet).then_some(progress::show),
        ..request(measure, &wanted, prepared, targets)
    };
    let attached = attach::attach(plan, facts, &request);
    let attached = attached.map_err(|error| cannot(attach_failure(measure.hooks.choice, &error).into()))?;
    // Detaching takes seconds, so it is left to the end of the process, in the background (`crate::leave`).
    let mut attached = ManuallyDrop::new(attached);
    if let Some(hold) = attached.hold.take() {
        leave::close_last(move || hold.link());
    }
    let refused = check_layers(measure, plan, &attached).map_err(|line| cannot(line.into()))?;
    if measure.talk == Talk::Verbose {
        report_hooks(facts, plan, &attached, narrowing);
    }
    drop_ended(&mut attached, &targets.processes).map_err(|line| cannot(line.into()))?;
    if measure.target.follows() {
        let roots: Vec<u32> = targets.processes.iter().map(|process| process.pid).collect();
        follow_existing(&mut attached, &roots).map_err(|line| cannot(line.into()))?;
    }
    Ok((attached, refused))
}

/// Forks the command, which waits until everything is attached.
fn fork_command(command: &CommandLine, attached: &mut Attached, cannot: Cannot<'_>) -> Result<Waiting, Failure> {
    let waiting = command::fork(&command.program, &command.arguments, command.user.as_deref());
    let waiting = waiting.map_err(command_failure)?;
    let tgid = process::global_number(waiting.pid).map_err(|error| cannot(error.into()))?;
    attached.control(|control| control.command_tgid = tgid);
    Ok(waiting)
}

/// The data that reports need in addition to the counters.
fn describe(
    measure: &Measure,
    budget: Option<CpuShare>,
    prepared: &Prepared,
    targets: &Targets,
    attached: &Attached,
    refused: &BTreeMap<Layer, String>,
    runs: Option<&io::Result<OwnedFd>>,
) -> RunInfo {
    let of_run = OfRun {
        facts: &prepared.facts,
        plan: &prepared.plan,
        attached,
        refused,
        queued: measure.scope.is_queued(),
    };
    let notes = targets.notes.iter().cloned();
    let notes = notes
        .chain(inaccessible_facts(&prepared.facts))
        .chain(calls_left_out_by_filters(measure))
        .chain(left_out_by_sample(&measure.scope));
    let run_info = RunInfo {
        kernel: crate::kernel::release(),
        subject: subject(&measure.target, &targets.processes, targets.disk.as_ref()),
        filter: filter(measure, targets.disk.as_ref()),
        notes: notes.collect(),
        is_filtered: measure.target.is_filtered() || measure.scope.sample.is_some(),
        sample: measure.scope.sample,
        slower_ns: measure.scope.slower().map(nanoseconds),
        top: measure.scope.groups().map_or(0, |groups| groups.top),
        has_runs: matches!(runs, Some(Ok(_))),
        no_runs: runs.and_then(|runs| Some(why_uncounted(runs.as_ref().err()?))),
        budget,
        disks: prepared.disks.as_ref().map(Disks::info),
        ..RunInfo::default()
    };
    crate::source::live::describe(&of_run, run_info)
}

fn start(waiting: Waiting, command: &CommandLine) -> Result<Child, Failure> {
    waiting.release(&command.program).map_err(command_failure)
}

fn command_failure(error: CommandError) -> Failure {
    Failure::new(error.exit_status(), (&error).into())
}

/// Stops tracing those whose exit was before the programs could see it, such as zombies: their numbers may select other
/// processes later. The run of a single process needs it less, since it ends with the process.
fn drop_ended(attached: &mut Attached, processes: &[Process]) -> Result<(), String> {
    for process in processes.iter().filter(|process| process.is_ending()) {
        stop_tracing(attached, process.global)?;
    }
    Ok(())
}

fn stop_tracing(attached: &mut Attached, tgid: u32) -> Result<(), String> {
    let stopped = attached.stop_tracing(tgid);
    stopped.map_err(|error| format!("cannot remove process {tgid}, which has ended, from those traced: {error}"))
}

/// Adds the descendants that existed before forks were traced. If a descendant that is not yet in the set forks
/// meanwhile, the next round finds the child.
fn follow_existing(attached: &mut Attached, roots: &[u32]) -> Result<(), String> {
    let mut known = BTreeSet::new();
    loop {
        let found = process::descendants(roots);
        let new: Vec<u32> = found.difference(&known).copied().collect();
        if new.is_empty() {
            return Ok(());
        }
        for pid in new {
            known.insert(pid);
            // A process that has ended meanwhile has no number.
            let Ok(global) = process::global_number(pid) else {
                continue;
            };
            let added = attached.trace(global);
            added.map_err(|error| format!("too many descendants to follow ({error}); name fewer processes with -p"))?;
            // Looked at afterwards: the exit of one that is alive here will be seen.
            if process::is_exiting(pid).unwrap_or(true) {
                stop_tracing(attached, global)?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_takes_an_eighth_of_the_memory_at_most() {
        let memory = 8 << 30;
        let check = |buffer, bytes| {
            let ring = args::Ring {
                bytes,
                ..args::Ring::default()
            };
            let recording = args::Recording {
                buffer,
                ring: Some(ring),
                ..args::Recording::default()
            };
            check_sizes(&recording, memory)
        };
        let (eighth, more) = (Some(1 << 30), Some((1 << 30) + 1));
        assert_eq!(check(None, None), Ok(()));
        assert_eq!(check(eighth, eighth), Ok(()));
        let refused = |option| format!("{option}: at most an eighth of the memory, which is 1024M here");
        assert_eq!(check(more, None), Err(refused("--buffer")));
        assert_eq!(check(None, more), Err(refused("--ring")));
    }
}
