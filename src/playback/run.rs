//! Runs the threads of a replay.

use std::io;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;
use std::time::Duration;

use super::calls::{self, Caller, Files, Ready};
use super::confined::Roots;
use super::data::{Data, Memory, Source};
use super::manifest::Manifest;
use super::owners::Owners;
use super::wait::{Made, Mark, Timer};
use crate::cause::Cause;
use crate::replay::flags;
use crate::replay::path::Spot;
use crate::replay::plan::{Action, Part, Plan};
use crate::replay::results::{Cause as Why, Results};
use crate::replay::windows::Window;
use crate::sys::clock::monotonic_ns;

/// How often it is looked whether all threads have ended, or are to end.
const STEP: Duration = Duration::from_millis(5);
/// Between the moment at which all threads are ready and the first call, in nanoseconds, if calls have a time.
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
    /// Open files that were not used, since they are neither a regular file nor a directory.
    pub refused: u64,
    /// Why files that were open when recording began could not be opened. Their calls failed with EBADF.
    pub not_opened: Vec<Cause>,
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

/// The calls of a plan, window by window.
pub type Windows<'a> = dyn Iterator<Item = Window> + Send + 'a;

/// Makes all calls. `ready` is called when only the calls are left to be made. `watch` gets how many were made, and returns
/// whether to go on.
///
/// # Errors
/// If a thread cannot be made, in one line; those of `ready`.
pub fn run(
    plan: &Plan,
    windows: &mut Windows<'_>,
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
    let shared = &shared;
    let callers = shared.callers(plan)?;
    let mut ran = Ran::default();
    let ended: Result<Vec<(Results, u64)>, Cause> = thread::scope(|scope| {
        let mut feeder = Feeder::new(windows, &shared.made);
        let mut running = Vec::with_capacity(callers.len());
        let (preparing, prepared) = channel();
        for (index, caller) in callers.into_iter().enumerate() {
            let queue = feeder.queue();
            let preparing = preparing.clone();
            let spawned = thread::Builder::new()
                .stack_size(STACK)
                .name(format!("replay-{}", plan.threads[index].tid))
                .spawn_scoped(scope, move || shared.thread(index, caller, &queue, preparing));
            match spawned {
                Ok(thread) => running.push(thread),
                Err(error) => {
                    shared.stop.store(true, Ordering::Relaxed);
                    return Err(cannot(error));
                }
            }
        }
        drop(preparing);
        // It fails when each thread has prepared itself. Before, none gets copies of the descriptors of others.
        let _: Result<(), _> = prepared.recv();
        open_found(plan, &shared.files, &mut ran);
        // A replay of few calls is not disturbed by making its plan.
        feeder.feed(&shared.stop);
        feeder.feed(&shared.stop);
        if let Err(cause) = ready() {
            shared.stop.store(true, Ordering::Relaxed);
            return Err(cause);
        }
        let head_start = how.speed.map_or(0, |_| HEAD_START);
        shared.start_ns.store(monotonic_ns() + head_start, Ordering::Release);
        shared.started.add();
        let spawned = thread::Builder::new()
            .name("iosb-plan".to_owned())
            .spawn_scoped(scope, move || while feeder.feed(&shared.stop) {});
        if let Err(error) = spawned {
            shared.stop.store(true, Ordering::Relaxed);
            return Err(cannot(error));
        }
        while running.iter().any(|thread| !thread.is_finished()) {
            let made = shared.made.iter().map(|made| u64::from(made.calls()));
            let of = plan.threads.iter().map(|thread| u64::from(thread.calls));
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
    ran.refused = shared.files.refused();
    Ok(ran)
}

/// Hands windows of calls to the threads.
struct Feeder<'a, 'w> {
    windows: &'a mut Windows<'w>,
    made: &'a [Made],
    queues: Vec<Sender<Part>>,
}

impl<'a, 'w> Feeder<'a, 'w> {
    fn new(windows: &'a mut Windows<'w>, made: &'a [Made]) -> Self {
        Self {
            windows,
            made,
            queues: Vec::new(),
        }
    }

    /// The queue of the next thread. It ends when there are no more calls.
    fn queue(&mut self) -> Receiver<Part> {
        let (sender, receiver) = channel();
        self.queues.push(sender);
        receiver
    }

    /// Makes the next window, and hands it over when what precedes it has been made. Returns whether there was one.
    fn feed(&mut self, stop: &AtomicBool) -> bool {
        let Some(Window { after, parts }) = self.windows.next() else {
            return false;
        };
        for (made, calls) in self.made.iter().zip(after) {
            if let Some(last) = calls.checked_sub(1) {
                made.wait(last, stop);
            }
        }
        if stop.load(Ordering::Relaxed) {
            return false;
        }
        for part in parts {
            if let Some(queue) = self.queues.get(part.thread as usize) {
                // A thread that has ended makes no more calls.
                let _ = queue.send(part);
            }
        }
        true
    }
}

fn cannot(error: io::Error) -> Cause {
    Cause::of("cannot start the threads of the replay", &error)
}

/// The files of a plan. None is open.
fn files<'a>(plan: &'a Plan, roots: &Roots) -> Result<Files<'a>, Cause> {
    // No call reaches the list of what the replay made.
    let target = |spot: &Spot| (!Manifest::is_own(spot)).then(|| roots.target(spot)).flatten();
    let nowhere = std::fs::OpenOptions::new().write(true).open("/dev/null");
    let nowhere: OwnedFd = nowhere
        .map_err(|error| Cause::of("cannot open /dev/null", &error))?
        .into();
    Ok(Files {
        plan,
        targets: plan.spots.iter().map(target).collect(),
        left: plan.files.iter().map(|file| AtomicU32::new(file.uses)).collect(),
        fds: plan.files.iter().map(|_| AtomicI32::new(-1)).collect(),
        kinds: plan.files.iter().map(|_| AtomicU8::new(calls::UNKNOWN)).collect(),
        root: roots.fd(0).unwrap_or(-1),
        nowhere,
        owners: Owners::default(),
    })
}

/// Opens what was open before the recording.
fn open_found(plan: &Plan, files: &Files<'_>, ran: &mut Ran) {
    for (file, fd) in plan.files.iter().zip(&files.fds) {
        let target = files.targets.get(file.spot as usize).and_then(Option::as_ref);
        let (Some(found), Some(target)) = (&file.found, target) else {
            continue;
        };
        let flags = flags::of_machine(found.flags, std::env::consts::ARCH).cast_signed() | libc::O_NONBLOCK;
        let (opened, is_refused) = match target.open_maybe_direct(flags, 0) {
            Ok(opened) => opened,
            Err(error) => {
                let path = &plan.spots[file.spot as usize].inside;
                let what = format_args!("cannot open '{path}', which was open when recording began");
                ran.not_opened.push(Cause::of(what, &error));
                continue;
            }
        };
        ran.results.not_direct += u64::from(is_refused);
        // SAFETY: the descriptor is open.
        unsafe { libc::lseek64(opened.as_raw_fd(), found.position.cast_signed(), libc::SEEK_SET) };
        fd.store(opened.into_raw_fd(), Ordering::Release);
    }
}

impl<'p> Shared<'p> {
    /// What each thread makes its calls with.
    fn callers(&self, plan: &Plan) -> Result<Vec<Caller<'_>>, Cause> {
        let mut callers = Vec::with_capacity(plan.threads.len());
        for (index, thread) in plan.threads.iter().enumerate() {
            let room = |bytes: u64| if bytes == 0 { 0 } else { bytes.saturating_add(2 * LEAST) };
            let seed = index as u64 + (1 << 32);
            callers.push(Caller {
                files: &self.files,
                source: Source::new(self.how.data, seed, room(thread.largest_write)).map_err(cannot)?,
                memory: Memory::new(LEAST.max(room(thread.largest_read))).map_err(cannot)?,
                results: Results::default(),
                mark: Mark {
                    is_traced: self.how.is_traced,
                },
            });
        }
        Ok(callers)
    }

    /// Makes the calls of a thread. `preparing` is dropped when it is ready for them. Returns what they returned, and when the
    /// last one ended.
    fn thread<'a>(
        &'a self,
        index: usize,
        mut caller: Caller<'a>,
        queue: &Receiver<Part>,
        preparing: Sender<()>,
    ) -> (Results, u64) {
        Timer::prepare_thread();
        // A descriptor of several threads takes longer to use than one of a program with a single thread.
        let descriptors = if self.files.plan.threads[index].is_alone {
            libc::CLONE_FILES
        } else {
            0
        };
        // SAFETY: it only separates the working directory of this thread from those of the others, and its descriptors, if
        // only it uses them. If it cannot, they are shared: relative paths are not used, and descriptors differ.
        unsafe { libc::unshare(libc::CLONE_FS | descriptors) };
        caller.mark.aside();
        drop(preparing);
        self.started.wait(0, &self.stop);
        let mut previous: Option<Previous> = None;
        let mut free_ns = monotonic_ns();
        while let Some((part, mut waited)) = next(queue) {
            for action in &part.actions {
                for edge in part.edges_of(action) {
                    if let Some(made) = self.made.get(edge.thread as usize) {
                        waited |= made.wait(edge.number, &self.stop);
                    }
                }
                if self.stop.load(Ordering::Relaxed) {
                    break;
                }
                let free = Free {
                    since_ns: free_ns,
                    waited_until: waited.then(monotonic_ns),
                };
                let target = self.target(action, previous.as_ref());
                let Some((end_ns, late_ns)) = self.make(&mut caller, action, target.map(|it| it.at_ns), &free) else {
                    break;
                };
                self.made[index].add();
                previous = Some(Previous {
                    recorded_end_ns: action.begin_ns.saturating_add(action.took_ns),
                    end_ns,
                    owed_ns: target.map_or(0, |it| it.owed_ns) + late_ns,
                });
                waited = false;
                free_ns = monotonic_ns();
            }
        }
        self.made[index].end();
        (caller.results, previous.map_or(0, |previous| previous.end_ns))
    }

    /// Makes a call at its time. Returns when it ended, and how long after its time this thread began it, but for calls of others;
    /// `None`: the replay is to end.
    fn make<'a>(
        &'a self,
        caller: &mut Caller<'a>,
        action: &Action,
        target_ns: Option<u64>,
        free: &Free,
    ) -> Option<(u64, u64)> {
        let ready = caller.ready(action);
        // Before the wait, so that the call itself is on time. Waiting is no call that is measured.
        caller.mark.inside();
        if let Some(target_ns) = target_ns {
            self.timer.until(target_ns, &self.stop);
            if self.stop.load(Ordering::Relaxed) {
                return None;
            }
        }
        let begin_ns = monotonic_ns();
        let value = match &ready {
            Ok(ready) => caller.call(action, ready),
            Err(error) => calls::failed(error),
        };
        let end_ns = monotonic_ns();
        caller.mark.aside();
        drop::<io::Result<Ready<'_>>>(ready);
        let mut late_ns = 0;
        if let Some(target_ns) = target_ns {
            let after_ns = begin_ns.saturating_sub(target_ns);
            let why = match () {
                () if free.waited_until.is_some_and(|until_ns| until_ns > target_ns) => Why::Earlier,
                () if free.since_ns > target_ns => Why::Busy,
                () => Why::Timer,
            };
            caller.results.began(after_ns, why);
            late_ns = if why == Why::Earlier { 0 } else { after_ns };
        }
        caller.results.add(action, value, end_ns - begin_ns);
        self.files.release(action);
        Some((end_ns, late_ns))
    }

    /// When a call is to begin; `None`: at once.
    fn target(&self, action: &Action, previous: Option<&Previous>) -> Option<Target> {
        let scaled = |ns: u64| Some((ns as f64 / self.how.speed?) as u64);
        match (self.how.timing, previous) {
            (Timing::Think, Some(previous)) => {
                Some(previous.think(scaled(action.begin_ns.saturating_sub(previous.recorded_end_ns))?))
            }
            _ => Some(Target {
                at_ns: self
                    .start_ns
                    .load(Ordering::Relaxed)
                    .saturating_add(scaled(action.begin_ns)?),
                owed_ns: 0,
            }),
        }
    }
}

/// When a call is to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Target {
    at_ns: u64,
    /// What is still to be taken off the times that follow.
    owed_ns: u64,
}

/// The previous call of a thread.
#[derive(Debug, Clone, Copy)]
struct Previous {
    /// In the recording.
    recorded_end_ns: u64,
    end_ns: u64,
    /// By how much the replay's own work, or a busy CPU, made the calls so far begin too late.
    owed_ns: u64,
}

impl Previous {
    /// When the next call begins, if the program thought for so long. What the replay itself took before its calls is taken
    /// off: the program did not wait for it, and over many short times it would add up.
    fn think(&self, thought_ns: u64) -> Target {
        Target {
            at_ns: self.end_ns.saturating_add(thought_ns.saturating_sub(self.owed_ns)),
            owed_ns: self.owed_ns.saturating_sub(thought_ns),
        }
    }
}

/// Since when a thread may make its next call.
struct Free {
    /// Its previous one had ended.
    since_ns: u64,
    /// It had to wait for calls of others, until then.
    waited_until: Option<u64>,
}

/// The next calls of a thread, and whether it had to wait for them: until others have made theirs. `None`: there are no more.
fn next(queue: &Receiver<Part>) -> Option<(Part, bool)> {
    match queue.try_recv() {
        Ok(part) => Some((part, false)),
        Err(TryRecvError::Empty) => Some((queue.recv().ok()?, true)),
        Err(TryRecvError::Disconnected) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::model::ids::Op;
    use crate::model::record::{Call, GivenPath, OpenFile, Records};
    use crate::model::recording::Meta;
    use crate::model::report::slow::CallPath;
    use crate::playback::prepare::{Cache, Preparing};
    use crate::replay::load::{Loaded, Selection};
    use crate::replay::order::Order;
    use crate::replay::path;
    use crate::replay::results::Difference;

    #[test]
    fn a_window_is_handed_over_when_what_precedes_it_was_made() {
        let made = [Made::default()];
        let window = |after: u32| Window {
            after: vec![after],
            parts: vec![Part::new(0)],
        };
        let fed = |stop: bool| {
            let mut windows = [window(0), window(1)].into_iter();
            let mut feeder = Feeder::new(&mut windows, &made);
            let queue = feeder.queue();
            let fed = [false, stop].map(|stop| feeder.feed(&AtomicBool::new(stop)));
            drop(feeder);
            (fed, queue.iter().count())
        };
        // It waits until the replay is to end.
        assert_eq!(fed(true), ([true, false], 1));
        made[0].add();
        assert_eq!(fed(false), ([true, true], 2));
    }

    #[test]
    fn what_a_replay_took_itself_is_taken_off_the_times_between_calls() {
        let think = |owed_ns, thought_ns| {
            let previous = Previous {
                recorded_end_ns: 0,
                end_ns: 1000,
                owed_ns,
            };
            let Target { at_ns, owed_ns } = previous.think(thought_ns);
            (at_ns, owed_ns)
        };
        assert_eq!(think(0, 500), (1500, 0));
        assert_eq!(think(200, 500), (1300, 0));
        assert_eq!(think(700, 500), (1000, 200));
        assert_eq!(think(0, u64::MAX), (u64::MAX, 0));
    }

    /// A file that is opened first and used by four threads in turn, which wait for each other, and by one at the end.
    fn records() -> Records {
        let mut records = Records::default();
        let mut call = |tid: u32, op: Op, offset: Option<u64>, value: i64| {
            let begin_ns = 1000 + 100 * records.calls.len() as u64;
            records.calls.push(Call {
                tid,
                pid: 1,
                begin_ns,
                end_ns: Some(begin_ns + 50),
                op,
                value,
                files: [5, 0],
                offset,
                size: offset.map(|_| 512),
                ..Call::default()
            });
        };
        call(1, Op::Openat, None, 3);
        for at in 0..200_u64 {
            let op = if at % 3 == 0 { Op::Pread64 } else { Op::Pwrite64 };
            call((at % 4 + 1) as u32, op, Some(at % 5 * 512), 512);
        }
        for at in 0..10 {
            call(9, Op::Pread64, Some(at * 512), 512);
        }
        records.calls[0].extra = 2;
        records.calls[0].paths.get_or_insert_default().first = Some(GivenPath::new("/f", 0));
        records.files.push(OpenFile {
            number: 5,
            at_ns: 1010,
            mode: 0o100_644,
            links: 1,
            size: 1 << 16,
            path: Some(CallPath::whole("/f")),
            ..OpenFile::default()
        });
        records
    }

    /// Prepares calls in a new directory.
    fn prepared(name: &str, records: &Records) -> (std::path::PathBuf, Plan, Roots) {
        let folder = std::env::temp_dir().join(format!("iosb-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut loaded = Loaded::new(Selection::default());
        loaded.take(records.clone());
        loaded.finish();
        let maps = path::Roots::default();
        let again = std::iter::once(records.clone());
        let plan = crate::replay::plan(loaded, again, &Meta::default(), &maps, 1, Order::Files).unwrap();
        let roots = Roots::open(&[&folder]).unwrap();
        let preparing = Preparing {
            plan: &plan,
            roots: &roots,
            manifest: Manifest::new("test".to_owned(), Vec::new()),
            data: Data::Zero,
            cache: Cache::Leave,
        };
        preparing.prepare(&mut |_| true).unwrap();
        (folder, plan, roots)
    }

    /// Makes them as fast as they can be made.
    fn ran(plan: &Plan, roots: &Roots, records: Records, window: usize) -> Ran {
        let how = How {
            timing: Timing::Schedule,
            speed: None,
            data: Data::Zero,
            is_traced: false,
        };
        let mut windows = plan.windows(std::iter::once(records)).of(window);
        run(plan, &mut windows, roots, how, &mut || Ok(()), &mut |_| true).unwrap()
    }

    #[test]
    fn what_is_no_file_any_more_is_opened_and_not_used() {
        let (folder, plan, roots) = prepared("other", &records());
        let file = folder.join("f");
        assert!(std::fs::remove_file(&file).is_ok());
        nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let ran = ran(&plan, &roots, records(), 1000);
        std::fs::remove_dir_all(folder).unwrap();
        // Only the open returns what it returned in the recording.
        assert_eq!((ran.results.done, ran.results.equal, ran.refused), (211, 1, 1));
        let failed =
            |((_, why), calls): (&(Op, Difference), &u64)| (*why == Difference::Failed(libc::EPERM)).then_some(*calls);
        let calls: u64 = ran.results.different.iter().filter_map(failed).sum();
        assert_eq!(calls, 210);
    }

    #[test]
    fn what_was_open_before_and_refuses_direct_io_is_counted() {
        let mut records = records();
        // No file system has direct I/O on directories.
        (records.files[0].mode, records.files[0].flags) = (0o040_755, flags::DIRECT);
        records.calls.truncate(1);
        let call = &mut records.calls[0];
        (call.op, call.value, call.extra, call.paths) = (Op::Fstat, 0, 0, None);
        let (folder, plan, roots) = prepared("direct", &records);
        let results = ran(&plan, &roots, records, 1000).results;
        std::fs::remove_dir_all(folder).unwrap();
        assert_eq!((results.done, results.equal, results.not_direct), (1, 1, 1));
    }

    #[test]
    fn calls_on_what_cannot_be_opened_at_the_start_differ() {
        let mut records = records();
        // Only the open is missing.
        records.calls.remove(0);
        let (folder, plan, roots) = prepared("missing", &records);
        assert!(std::fs::remove_file(folder.join("f")).is_ok());
        let ran = ran(&plan, &roots, records, 1000);
        std::fs::remove_dir_all(folder).unwrap();
        assert_eq!((ran.results.done, ran.results.equal, ran.not_opened.len()), (210, 0, 1));
        let all_differ = |(_, why): &(Op, Difference)| *why == Difference::Failed(libc::EBADF);
        assert!(ran.results.different.keys().all(all_differ), "{ran:?}");
    }

    #[test]
    fn a_write_has_the_flags_of_the_recorded_one() {
        /// `RWF_APPEND` (include/uapi/linux/fs.h).
        const APPEND: u64 = 0x10;
        let mut records = records();
        records.calls.truncate(2);
        let call = &mut records.calls[1];
        (call.op, call.offset, call.size, call.extra) = (Op::Pwritev2, Some(0), None, APPEND);
        let (folder, plan, roots) = prepared("flags", &records);
        let results = ran(&plan, &roots, records, 1000).results;
        let size = std::fs::metadata(folder.join("f")).map(|state| state.len());
        std::fs::remove_dir_all(folder).unwrap();
        assert_eq!((results.equal, size.ok()), (2, Some((1 << 16) + 512)));
    }

    #[test]
    fn calls_are_made_whatever_the_size_of_windows() {
        let (folder, plan, roots) = prepared("windows", &records());
        assert_eq!((plan.threads.len(), plan.calls()), (5, 211));
        let mut counts = BTreeSet::new();
        for size in [1, 2, 7, 1000] {
            let ran = ran(&plan, &roots, records(), size);
            counts.insert((ran.results.done, ran.results.equal, ran.refused));
        }
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(counts, [(211, 211, 0)].into());
    }

    /// Whether this thread's process has the file open, and whether any of its threads has, while a thread with this number
    /// makes the second call on the file that thread 1 opened.
    fn while_open(second: u32) -> (bool, bool) {
        let mut records = records();
        records.calls.truncate(2);
        let call = &mut records.calls[1];
        call.tid = second;
        (call.begin_ns, call.end_ns) = (500_000_000, Some(500_000_100));
        let (folder, plan, roots) = prepared(&format!("alone-{second}"), &records);
        let how = How {
            timing: Timing::Schedule,
            speed: Some(1.0),
            data: Data::Zero,
            is_traced: false,
        };
        let file = folder.join("f");
        let has = |thread: &std::path::Path| {
            let fds = thread.join("fd").read_dir().into_iter().flatten().flatten();
            fds.filter_map(|fd| fd.path().read_link().ok()).any(|path| path == file)
        };
        let mut seen = (false, false);
        let mut watch = |_: u64| {
            seen.0 |= has(std::path::Path::new("/proc/thread-self"));
            let threads = std::path::Path::new("/proc/self/task").read_dir();
            seen.1 |= threads
                .into_iter()
                .flatten()
                .flatten()
                .any(|thread| has(&thread.path()));
            !seen.1
        };
        let mut windows = plan.windows(std::iter::once(records));
        run(&plan, &mut windows, &roots, how, &mut || Ok(()), &mut watch).unwrap();
        std::fs::remove_dir_all(folder).unwrap();
        seen
    }

    #[test]
    fn a_thread_that_is_alone_has_descriptors_of_its_own() {
        assert_eq!(while_open(1), (false, true));
        assert_eq!(while_open(2), (true, true));
    }
}
