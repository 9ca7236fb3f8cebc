//! `replay --measure` with privileges: a process of its own makes the calls, as the user of the replay, and this one traces
//! it. Both talk through a pair of sockets, in lines; nothing of the replay begins before everything is attached.

use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process;

use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid};
use serde::{Deserialize, Serialize};

use crate::analyse;
use crate::args::{self, Options};
use crate::catalog::Layer;
use crate::cause::Cause;
use crate::compare::{Measured, TimedCalls};
use crate::event::{Event, Other, Signals, wait};
use crate::kernel;
use crate::model::recording::Meta;
use crate::model::report::replay::ReplayReport;
use crate::model::snapshot::Snapshot;
use crate::playback::INSIDE;
use crate::say;
use crate::source::live::Live;
use crate::source::{Item, Source, Until};
use crate::view::json::{Form, Json};
use crate::view::{Screen, Sheet, View};

use super::super::notes::say_notes;
use super::super::prepare::prepare;
use super::super::{COULD_NOT_MEASURE, Failure, Targets, attach_all, describe, take_signals};
use super::{Done, Job};

/// What the process that replays says when only the calls are left to be made.
const READY: &str = "ready";

/// What it says at its end.
#[derive(Serialize, Deserialize)]
enum Answer {
    /// The report, whether a result differs, and the calls as they were recorded.
    Done(Box<ReplayReport>, bool, Vec<TimedCalls>),
    Failed {
        line: String,
        status: u8,
    },
}

/// Replays in another process, and traces it.
///
/// # Errors
/// The cause, in one line.
pub fn replay(job: &Job<'_>) -> Result<(Done, Measured), Failure> {
    let (ours, theirs) = UnixStream::pair().map_err(cannot_start)?;
    // SAFETY: this process has a single thread, so that its copy may do whatever it could.
    match unsafe { nix::unistd::fork() }.map_err(|error| cannot_start(error.into()))? {
        ForkResult::Child => {
            drop(ours);
            make_calls(job, &theirs)
        }
        ForkResult::Parent { child } => {
            drop(theirs);
            let traced = trace(job, Pid::as_raw(child).cast_unsigned(), ours);
            // Without our end of the pair it does not begin, or ends.
            let _ = waitpid(child, None);
            traced
        }
    }
}

fn cannot_start(error: io::Error) -> Failure {
    Cause::of("cannot start the process that replays", &error).into()
}

/// The process that replays.
fn make_calls(job: &Job<'_>, tracer: &UnixStream) -> ! {
    if next(tracer).is_err() {
        process::exit(0);
    }
    let mut ready = || {
        end_with_tracer();
        let let_go = writeln!(&mut &*tracer, "{READY}").and_then(|()| next(tracer));
        let_go.map_err(|_| Cause::from("the process that traces has ended".to_owned()))
    };
    let answer = match job.replay(true, &mut ready) {
        Ok(Some(done)) => {
            let [recorded, _] = done.calls;
            Answer::Done(Box::new(done.report), done.is_different, recorded)
        }
        Ok(None) => Answer::Failed {
            line: "nothing was replayed".to_owned(),
            status: COULD_NOT_MEASURE,
        },
        Err(Failure { line, status }) => Answer::Failed { line, status },
    };
    say::erase();
    let text = serde_json::to_string(&answer).unwrap_or_default();
    // Without a reader there is no use for it.
    let _ = writeln!(&mut &*tracer, "{text}");
    process::exit(0)
}

/// Ends this process when its parent does.
fn end_with_tracer() {
    // SAFETY: it takes a number, and changes this process alone. If the parent has ended already, the pair of sockets says so.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) };
}

/// Waits until the tracer lets this process go on.
fn next(tracer: &UnixStream) -> io::Result<()> {
    let mut byte = [0];
    io::Read::read_exact(&mut &*tracer, &mut byte)
}

/// The process that traces another one, which replays.
fn trace(job: &Job<'_>, pid: u32, stream: UnixStream) -> Result<(Done, Measured), Failure> {
    let cannot = |cause: Cause| Failure::new(COULD_NOT_MEASURE, cause);
    let mut options = options(job.recording.meta(), job.from, pid, job.wanted.quiet)?;
    let mut targets = Targets::find(&mut options.measure).map_err(cannot)?;
    // With the hooks of a recording, which has more of them than other runs.
    let prepared = prepare(&options.measure, targets.disk.as_ref(), true).map_err(cannot)?;
    let (attached, refused) = attach_all(&options, None, &prepared, &mut targets, &cannot)?;
    let info = describe(&options.measure, None, &prepared, &targets, &attached, &refused, None);
    let signals = take_signals(&options, None).map_err(cannot)?;
    say::erase();
    let mut process = Process {
        pid,
        signals,
        stream: BufReader::new(stream),
    };
    process.go_on()?;
    let first = process.line()?;
    if first != READY {
        return Err(failure(&first));
    }
    let mut source = Live::begin(attached, prepared.plan, info, prepared.disks, None);
    let before = snapshot(&mut source)?;
    say_notes(analyse::report_of_nothing(source.info(), &before), &options);
    process.go_on()?;
    let last = process.line()?;
    let mut after = snapshot(&mut source)?;
    after.hold_back(&before);
    let done = match serde_json::from_str(&last) {
        Ok(Answer::Done(report, is_different, recorded)) => Done {
            report: *report,
            is_different,
            calls: [recorded, Vec::new()],
        },
        _ => return Err(failure(&last)),
    };
    let mut text = Vec::new();
    let mut sheet = Sheet {
        out: &mut text,
        screen: Screen::default(),
    };
    let printed = Json(Form::Full).report(&analyse::report(source.info(), &before, &after), &mut sheet);
    printed.map_err(|error| cannot(Cause::of("cannot make the report of the replay", &error)))?;
    Ok((done, Measured::Report(text)))
}

/// Why the process that replays ended without a result.
fn failure(line: &str) -> Failure {
    match serde_json::from_str(line) {
        Ok(Answer::Failed { line, status }) => Failure { line, status },
        _ => Failure::new(
            COULD_NOT_MEASURE,
            "the process that replays ended early".to_owned().into(),
        ),
    }
}

/// The next snapshot; the second one is the last.
fn snapshot(source: &mut Live) -> Result<Snapshot, Failure> {
    loop {
        match source
            .next(Until::End)
            .map_err(|error| super::failed(error.to_string()))?
        {
            Item::Snapshot(snapshot) => return Ok(*snapshot),
            Item::Events(_) => {}
            Item::Nothing => return Err(super::failed("the counters of the replay cannot be read".to_owned())),
        }
    }
}

/// The other process, as this one sees it.
struct Process {
    pid: u32,
    signals: Signals,
    stream: BufReader<UnixStream>,
}

impl Process {
    fn go_on(&mut self) -> Result<(), Failure> {
        // If it has ended, its last line or the end of its lines follows.
        match self.stream.get_mut().write_all(&[1]) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(Cause::of("cannot talk to the process that replays", &error).into())
            }
            _ => Ok(()),
        }
    }

    /// Its next line; empty: it has ended. Signals are passed on to it, so that it ends, and says what it has done; a
    /// terminal's Ctrl-C it gets itself.
    fn line(&mut self) -> Result<String, Failure> {
        let cannot = |error: &io::Error| Failure::from(Cause::of("cannot wait for the process that replays", error));
        loop {
            let others = [(Other::Written, self.stream.get_ref().as_fd())];
            match wait(&self.signals, &[], None, &others, None, None).map_err(|error| cannot(&error))? {
                Event::Signal(signal) => {
                    let _ = nix::sys::signal::kill(Pid::from_raw(self.pid.cast_signed()), signal);
                }
                Event::Written => break,
                _ => {}
            }
        }
        let mut line = String::new();
        self.stream.read_line(&mut line).map_err(|error| cannot(&error))?;
        Ok(line.trim_end().to_owned())
    }
}

/// Options that measure what a recording has, of one process.
fn options(meta: &Meta, from: &Path, pid: u32, is_quiet: bool) -> Result<Options, Failure> {
    let recorded = &meta.run;
    let mut words = vec!["IOStackBreakdown".to_owned(), "-p".to_owned(), pid.to_string()];
    words.extend(["--comm".to_owned(), INSIDE.to_string_lossy().into_owned()]);
    if recorded.stack.is_none() {
        // The file systems of the other machine may not exist here.
        let is_here = |layer: &Layer| layer.file_system().is_none_or(kernel::has_mounted);
        let layers = recorded.layers.iter().filter(|layer| layer.refused.is_none());
        let layers = layers.map(|layer| layer.layer).filter(is_here);
        let names: Vec<&str> = layers.map(Layer::name).collect();
        if names.is_empty() {
            return Err(super::failed(format!(
                "'{}' measured no layer that exists here",
                from.display()
            )));
        }
        words.extend(["-T".to_owned(), names.join(",")]);
    }
    let flags = [
        (recorded.filter.queued, "-Q"),
        (recorded.filter.all_files, "--all-files"),
        (is_quiet, "-q"),
    ];
    words.extend(
        flags
            .iter()
            .filter(|(is_set, _)| *is_set)
            .map(|(_, flag)| (*flag).to_owned()),
    );
    match args::parse(words.into_iter().map(Into::into)) {
        Ok(args::Command::Trace(options)) => Ok(options),
        Ok(_) => Err(super::failed("the recording cannot be measured again".to_owned())),
        Err(line) => Err(super::failed(line)),
    }
}
