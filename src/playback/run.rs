//! Runs the threads of a replay.

use std::io;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use super::calls::{Caller, Files, Ready};
use super::confined::Roots;
use super::data::{Data, Memory, Source};
use super::manifest::Manifest;
use super::owners::Owners;
use super::wait::{Made, Mark, Timer, now_ns};
use crate::cause::Cause;
use crate::replay::does::Does;
use crate::replay::flags;
use crate::replay::path::Spot;
use crate::replay::plan::{Action, Plan, Thread};
use crate::replay::results::{Cause as Why, Results};

/// How often it is looked whether all threads have ended, or are to end.
const STEP: Duration = Duration::from_millis(5);
/// Between the moment at which all threads are ready and the first call, in nanoseconds.
const HEAD_START: u64 = 5_000_000;
/// Room for what calls return: states of files, texts of links, entries of directories.
const LEAST: u64 = 1 << 20;
/// Stack of a thread, in bytes: it holds no buffers.
const STACK: usize = 256 << 10;

/// When calls begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Timing {
    /// At their time in the recording, counted from its start and divided by the speed
    Schedule,
    /// After the previous call of their thread, as long as the program waited then, divided by the speed
    Think,
}

/// How the calls are made.
#[derive(Debug, Clone, Copy)]
pub struct How {
    pub timing: Timing,
    /// `None`: without waiting for any moment.
    pub speed: Option<f64>,
    pub data: Data,
    /// The replay is traced.
    pub is_traced: bool,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Ran {
    pub results: Results,
    /// From the time of the first call to the end of the last one, in nanoseconds.
    pub took_ns: u64,
    /// A signal ended it.
    pub was_ended: bool,
}

/// What all threads share.
struct Shared<'a> {
    files: Files<'a>,
    how: How,
    timer: Timer,
    made: Vec<Made>,
    stop: AtomicBool,
    /// All threads exist, and the moment of the first call is known.
    started: Made,
    start_ns: AtomicU64,
}

/// Makes all calls. `ready` is called when only the calls are left to be made. `watch` gets how many were made, and returns
/// whether to go on.
///
/// # Errors
/// If a file that has to be open at the start cannot be opened, or a thread cannot be made, in one line; those of `ready`.
pub fn run(
    plan: &Plan,
    roots: &Roots,
    how: How,
    ready: &mut dyn FnMut() -> Result<(), Cause>,
    watch: &mut dyn FnMut(u64) -> bool,
) -> Result<Ran, Cause> {
    let files = files(plan, roots)?;
    let cpus = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let shared = Shared {
        files,
        how,
        timer: Timer::new(cpus),
        made: plan.threads.iter().map(|_| Made::default()).collect(),
        stop: AtomicBool::new(false),
        started: Made::default(),
        start_ns: AtomicU64::new(0),
    };
    let largest = |thread: &Thread, is: fn(Does) -> bool| {
        let sizes = thread.actions.iter().filter(|action| is(action.does));
        sizes
            .map(|action| action.size.saturating_add(2 * LEAST))
            .max()
            .unwrap_or(0)
    };
    let mut callers = Vec::with_capacity(plan.threads.len());
    for (index, thread) in plan.threads.iter().enumerate() {
        let source = Source::new(how.data, index as u64 + (1 << 32), largest(thread, Does::writes));
        let memory = Memory::new(LEAST.max(largest(thread, Does::reads)));
        callers.push(source.and_then(|source| Ok((source, memory?))).map_err(cannot)?);
    }
    let shared = &shared;
    let mut ran = Ran::default();
    let ended: Result<Vec<(Results, u64)>, Cause> = thread::scope(|scope| {
        let mut running = Vec::with_capacity(callers.len());
        for (index, (source, memory)) in callers.into_iter().enumerate() {
            let caller = Caller {
                files: &shared.files,
                source,
                memory,
                results: Results::default(),
                mark: Mark {
                    is_traced: how.is_traced,
                },
            };
            let spawned = thread::Builder::new()
                .stack_size(STACK)
                .name(format!("replay-{}", plan.threads[index].tid))
                .spawn_scoped(scope, move || shared.thread(index, caller));
            match spawned {
                Ok(thread) => running.push(thread),
                Err(error) => {
                    shared.stop.store(true, Ordering::Relaxed);
                    return Err(cannot(error));
                }
            }
        }
        if let Err(cause) = ready() {
            shared.stop.store(true, Ordering::Relaxed);
            return Err(cause);
        }
        shared.start_ns.store(now_ns() + HEAD_START, Ordering::Release);
        shared.started.add();
        while running.iter().any(|thread| !thread.is_finished()) {
            let made = shared.made.iter().map(|made| u64::from(made.calls()));
            let of = plan.threads.iter().map(|thread| thread.actions.len() as u64);
            if !watch(made.zip(of).map(|(made, of)| made.min(of)).sum()) {
                ran.was_ended = true;
                shared.stop.store(true, Ordering::Relaxed);
            }
            thread::sleep(STEP);
        }
        let ended = running.into_iter().map(|thread| thread.join());
        Ok(ended.filter_map(Result::ok).collect())
    });
    let set_back = shared.files.owners.set_back();
    set_back.map_err(|error| Cause::of("cannot give files back to the user of the replay", &error))?;
    let start_ns = shared.start_ns.load(Ordering::Acquire);
    let mut last_ns = start_ns;
    for (results, end_ns) in ended? {
        ran.results.append(results);
        last_ns = last_ns.max(end_ns);
    }
    ran.took_ns = last_ns - start_ns;
    Ok(ran)
}

fn cannot(error: io::Error) -> Cause {
    Cause::of("cannot start the threads of the replay", &error)
}

/// Opens what was open before the recording.
fn files<'a>(plan: &'a Plan, roots: &Roots) -> Result<Files<'a>, Cause> {
    // No call reaches the list of what the replay made.
    let target = |spot: &Spot| (!Manifest::is_own(spot)).then(|| roots.target(spot)).flatten();
    let targets: Vec<_> = plan.spots.iter().map(target).collect();
    let mut fds = Vec::with_capacity(plan.files.len());
    for file in &plan.files {
        let target = targets.get(file.spot as usize).and_then(Option::as_ref);
        let (Some(found), Some(target)) = (file.found, target) else {
            fds.push(AtomicI32::new(-1));
            continue;
        };
        let flags = flags::of_machine(found, std::env::consts::ARCH).cast_signed() | libc::O_NONBLOCK;
        let opened = match target.open(flags, 0) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => target.open(flags & !libc::O_DIRECT, 0),
            other => other,
        };
        let opened = opened.map_err(|error| {
            let path = &plan.spots[file.spot as usize].inside;
            Cause::of(
                format_args!("cannot open '{path}', which was open when recording began"),
                &error,
            )
        })?;
        // SAFETY: the descriptor is open.
        unsafe { libc::lseek64(opened.as_raw_fd(), file.position.cast_signed(), libc::SEEK_SET) };
        fds.push(AtomicI32::new(opened.into_raw_fd()));
    }
    let nowhere = std::fs::OpenOptions::new().write(true).open("/dev/null");
    let nowhere: OwnedFd = nowhere
        .map_err(|error| Cause::of("cannot open /dev/null", &error))?
        .into();
    Ok(Files {
        plan,
        targets,
        left: plan.files.iter().map(|file| AtomicU32::new(file.uses)).collect(),
        fds,
        root: roots.fd(0).unwrap_or(-1),
        nowhere,
        owners: Owners::default(),
    })
}

impl Shared<'_> {
    /// Makes the calls of a thread. Returns what they returned, and when the last one ended.
    fn thread<'a>(&'a self, index: usize, mut caller: Caller<'a>) -> (Results, u64) {
        Timer::prepare_thread();
        // SAFETY: it only separates the working directory of this thread from those of the others. If it cannot, relative
        // paths are not used either.
        unsafe { libc::unshare(libc::CLONE_FS) };
        caller.mark.aside();
        self.started.wait(0, &self.stop);
        let plan = self.files.plan;
        let mut previous: Option<(&Action, u64)> = None;
        for action in &plan.threads[index].actions {
            let free_ns = now_ns();
            let mut waited = false;
            for edge in plan.edges_of(action) {
                if let Some(made) = self.made.get(edge.thread as usize) {
                    waited |= made.wait(edge.number, &self.stop);
                }
            }
            let ready_ns = if waited { now_ns() } else { free_ns };
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            let target_ns = self.target_ns(action, previous);
            let ready = caller.ready(action);
            if let Some(target_ns) = target_ns {
                self.timer.until(target_ns, &self.stop);
                if self.stop.load(Ordering::Relaxed) {
                    break;
                }
            }
            caller.mark.inside();
            let begin_ns = now_ns();
            let value = match &ready {
                Ok(ready) => caller.call(action, ready),
                Err(error) => -i64::from(error.raw_os_error().unwrap_or(libc::EIO)),
            };
            let end_ns = now_ns();
            caller.mark.aside();
            drop::<io::Result<Ready<'_>>>(ready);
            if let Some(target_ns) = target_ns {
                let why = match () {
                    () if waited && ready_ns > target_ns => Why::Earlier,
                    () if free_ns > target_ns => Why::Busy,
                    () => Why::Timer,
                };
                caller.results.began(begin_ns.saturating_sub(target_ns), why);
            }
            caller.results.add(action, value, end_ns - begin_ns);
            self.files.release(action);
            self.made[index].add();
            previous = Some((action, end_ns));
        }
        self.made[index].end();
        (caller.results, previous.map_or(0, |(_, end_ns)| end_ns))
    }

    /// When a call is to begin; `None`: at once.
    fn target_ns(&self, action: &Action, previous: Option<(&Action, u64)>) -> Option<u64> {
        let scaled = |ns: u64| Some((ns as f64 / self.how.speed?) as u64);
        match (self.how.timing, previous) {
            (Timing::Think, Some((before, end_ns))) => {
                let recorded_end = before.begin_ns.saturating_add(before.took_ns);
                Some(end_ns + scaled(action.begin_ns.saturating_sub(recorded_end))?)
            }
            _ => Some(
                self.start_ns
                    .load(Ordering::Relaxed)
                    .saturating_add(scaled(action.begin_ns)?),
            ),
        }
    }
}
