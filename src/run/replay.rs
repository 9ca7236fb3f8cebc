//! `replay`: makes the calls of a recording once more, on files below a directory of their own.

mod traced;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::statvfs::statvfs;
use nix::unistd::{AccessFlags, access, geteuid};

use crate::args::{Only, Replay};
use crate::catalog::{SYSCALLS, syscall_of};
use crate::cause::Cause;
use crate::command::CommandError;
use crate::compare::{Comparison, Measured, Recorded, Same, TimedCalls};
use crate::event::Signals;
use crate::kernel::privileges;
use crate::limits;
use crate::model::ids::Op;
use crate::model::record::{Kind, Records};
use crate::model::recording::{Meta, Names};
use crate::model::report::replay::{Different, Lateness, NotReplayed, Operation, ReplayReport};
use crate::number::{decimal_bytes, length, thousands};
use crate::playback::confined::Roots;
use crate::playback::manifest::{self, Manifest};
use crate::playback::owners::{self, CAP_CHOWN};
use crate::playback::prepare::{self, Cache, Cleaned, Preparing, Progress};
use crate::playback::run::{self, How, Ran, Timing};
use crate::recording::{Batches, Recording, Unneeded};
use crate::replay::does::{self, Why};
use crate::replay::load::{Loaded, Selection};
use crate::replay::order::Order;
use crate::replay::path;
use crate::replay::plan::Plan;
use crate::replay::results::{Difference, Results, Side};
use crate::replay::{self, Impossible, MOST_THREADS};
use crate::say;
use crate::signals;
use crate::sys::capabilities;
use crate::user::User;
use crate::view::json::replay as json;
use crate::view::text::{counted, replay as text};

use super::progress::Paced;
use super::report::say_damage;
use super::{COULD_NOT_MEASURE, Failure};

/// Descriptors besides the open files of the plan: of each thread, and of the process.
const FOR_A_THREAD: usize = 3;
const FOR_THE_PROCESS: usize = 32;
/// Threads that a message lists.
const THREADS_SHOWN: usize = 5;
/// The exit status with `--strict`, if a result differs.
const DIFFERENT: u8 = 3;

impl From<Cause> for Failure {
    fn from(cause: Cause) -> Self {
        Self::new(COULD_NOT_MEASURE, cause)
    }
}

fn failed(line: String) -> Failure {
    Cause::from(line).into()
}

/// Replays a recording. Returns the exit status.
pub fn replay(from: &Path, wanted: &Replay) -> Result<u8, Failure> {
    let user = user(wanted)?;
    check_owners(wanted)?;
    let recording = Recording::open(from)?;
    check(&recording, from)?;
    let maps = maps(wanted)?;
    if wanted.only == Only::Clean {
        become_user(user.as_ref(), false)?;
        let roots = open_roots(wanted)?;
        let manifest = Manifest::read(&roots)?.ok_or_else(|| {
            failed(format!(
                "'{}' has nothing of a replay: it has no {}",
                wanted.into.display(),
                manifest::NAME
            ))
        })?;
        check_roots(&manifest, wanted)?;
        return clean(&roots, &manifest, wanted);
    }
    let job = Job {
        recording: &recording,
        from,
        wanted,
        maps: &path::Roots::new(maps),
        user: user.as_ref(),
    };
    let (done, comparison) = match job.measure()? {
        Some(measured) => measured,
        None => return Ok(0),
    };
    print(&done.report, comparison.as_ref(), wanted)?;
    Ok(if wanted.strict && done.is_different {
        DIFFERENT
    } else {
        0
    })
}

/// A recording that is to be replayed.
struct Job<'a> {
    recording: &'a Recording,
    from: &'a Path,
    wanted: &'a Replay,
    maps: &'a path::Roots,
    user: Option<&'a User>,
}

/// What came of it.
struct Done {
    report: ReplayReport,
    /// A result differs, or a call was not made.
    is_different: bool,
    /// The calls that were made, as they were timed: in the recording, and in the replay.
    calls: [Vec<TimedCalls>; 2],
}

impl Job<'_> {
    /// Replays, and compares with the recording, as far as that is wanted; `None`: no calls were made.
    fn measure(&self) -> Result<Option<(Done, Option<Comparison>)>, Failure> {
        if !self.wanted.measure {
            return Ok(self.replay(false, &mut || Ok(()))?.map(|done| (done, None)));
        }
        // As the user of the replay, it cannot be read.
        let recorded = Recorded::read(self.from).map_err(failed)?;
        let (mut done, measured) = if let Some(missing) = privileges::missing() {
            if !self.wanted.quiet {
                say!("only the times of calls are measured: {missing}");
            }
            let start = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string();
            let Some(mut done) = self.replay(false, &mut || Ok(()))? else {
                return Ok(None);
            };
            let calls = std::mem::take(&mut done.calls[1]);
            (done, Measured::Calls { start, calls })
        } else {
            traced::replay(self)?
        };
        let renamed: BTreeMap<&str, &str> = SYSCALLS
            .iter()
            .map(|call| (call.op.name(), does::made_as(call.op).name()))
            .filter(|(recorded, made)| recorded != made)
            .collect();
        let not_made = not_made(&done.report, &renamed);
        // If calls were left out on purpose, the recording had them all the time.
        let is_all = done.report.not_selected == 0;
        let same = Same {
            renamed: &renamed,
            not_made: &not_made,
            made: std::mem::take(&mut done.calls[0]),
            spans_ns: is_all.then_some([done.report.recorded_ns, done.report.took_ns]),
        };
        let comparison = recorded.beside(measured, same).map_err(failed)?;
        done.report.operations.clear();
        Ok(Some((done, Some(comparison))))
    }

    /// Replays in this process; `None`: no calls were to be made. `ready` is called when only they are left.
    fn replay(&self, is_traced: bool, ready: &mut dyn FnMut() -> Result<(), Cause>) -> Result<Option<Done>, Failure> {
        let Job {
            recording,
            from,
            wanted,
            ..
        } = *self;
        limits::raise();
        let calls = || {
            let calls = recording.calls();
            calls.map_err(|error| Cause::of(format_args!("cannot read '{}'", from.display()), &error))
        };
        let loaded = load(recording, wanted);
        let again = shown(calls()?, wanted, "planning");
        let mut plan = replay::plan(
            loaded,
            again,
            recording.meta(),
            self.maps,
            wanted.maps.len() + 1,
            wanted.order,
        )
        .map_err(|why| {
            say::erase();
            let line = impossible(why, recording, &wanted.selection);
            say_damage(recording);
            failed(line)
        })?;
        say::erase();
        if wanted.cache == Cache::AsRecorded && !plan.has_classes {
            return Err(failed(format!(
                "'{}' does not say which reads came from the page cache: record the whole stack, without -T",
                from.display()
            )));
        }
        say_damage(recording);
        if !wanted.quiet {
            say_unused_maps(&plan, wanted);
        }
        // As the user of the replay, they cannot be read.
        let calls = calls()?;
        become_user(self.user, wanted.selection.owners)?;
        check_descriptors(&plan, recording.segments())?;
        // Its handlers start a thread, and the user of a process with threads changes later than it should.
        let _signals = Signals::install().map_err(|error| Cause::of("cannot take over signals", &error))?;
        let roots = open_roots(wanted)?;
        let manifest = manifest(&roots, wanted, recording.meta())?;
        if !wanted.quiet {
            say_plan(&plan, from, recording.meta());
        }
        check_room(&plan, &manifest, &roots, wanted)?;
        prepare(&plan, &roots, manifest, wanted)?;
        // Which parts of files are read may be more than all else.
        plan.prepared = Vec::new();
        if wanted.only == Only::Prepare {
            return Ok(None);
        }
        let how = How {
            is_traced,
            ..wanted.how
        };
        let ran = make_calls(&plan, calls, &roots, wanted, how, ready)?;
        let report = report(&plan, &ran, wanted);
        let has_gaps = plan.left_out.keys().any(|(_, why)| *why != Why::NotNeeded);
        Ok(Some(Done {
            is_different: report.equal < report.planned || has_gaps || report.lost_calls > 0,
            calls: timed(&ran.results, recording.meta().run.stack.is_some()),
            report,
        }))
    }
}

/// The names, in the replay, of operations of which no call was replayed.
fn not_made<'a>(report: &'a ReplayReport, renamed: &BTreeMap<&'a str, &'a str>) -> Vec<&'a str> {
    let name = |op: &'a String| renamed.get(op.as_str()).copied().unwrap_or(op);
    let made: BTreeSet<&str> = report.operations.iter().map(|it| name(&it.op)).collect();
    let left_out = report.not_replayed.iter().map(|it| name(&it.op));
    left_out.filter(|op| !made.contains(op)).collect()
}

/// The calls that were made, by family or operation: as they were recorded, and as they were replayed.
fn timed(results: &Results, by_family: bool) -> [Vec<TimedCalls>; 2] {
    let family = |op: Op| syscall_of(op)?.family.filter(|_| by_family);
    let name = |op: Op| family(op).map_or_else(|| does::made_as(op).name(), |family| family.name());
    let timed = |op: Op, calls: u64, side: &Side| TimedCalls {
        name: name(op).to_owned(),
        calls,
        bytes: side.bytes,
        total_ns: side.total_ns,
        max_ns: side.most_ns,
        buckets: side.times.buckets().collect(),
    };
    let all = results.families.iter();
    all.map(|(op, it)| (timed(*op, it.calls, &it.recorded), timed(*op, it.calls, &it.replayed)))
        .unzip::<_, _, Vec<_>, Vec<_>>()
        .into()
}

/// Checks that owners can be changed, if they are to be.
fn check_owners(wanted: &Replay) -> Result<(), Failure> {
    let has = || capabilities::get().is_ok_and(|sets| sets.permitted >> CAP_CHOWN & 1 == 1);
    if wanted.selection.owners && !has() {
        return Err(failed(
            "--owners needs CAP_CHOWN, which this process does not have: run it as root with --user, or without --owners"
                .to_owned(),
        ));
    }
    Ok(())
}

/// Whose calls they are.
fn user(wanted: &Replay) -> Result<Option<User>, Failure> {
    match &wanted.user {
        Some(name) => {
            let user = User::find(name);
            let user = user.ok_or_else(|| failed(CommandError::NoUser(name.clone()).to_string()))?;
            Ok(Some(user))
        }
        None if geteuid().is_root() => Err(Failure::usage(
            "a replay makes the calls of others: as root, name the user who makes them: --user NAME".to_owned(),
        )),
        None => Ok(None),
    }
}

/// `owners`: the process may change those of files, and nothing else that the user may not.
fn become_user(user: Option<&User>, owners: bool) -> Result<(), Failure> {
    let become_it = |user: &User| -> io::Result<()> {
        if geteuid().is_root() {
            nix::unistd::setgroups(&user.groups)?;
        }
        // Without it, another user has none of root's privileges.
        nix::sys::prctl::set_keepcaps(owners)?;
        nix::unistd::setgid(user.gid)?;
        Ok(nix::unistd::setuid(user.uid)?)
    };
    if let Some(user) = user {
        become_it(user).map_err(|error| Cause::of(format_args!("cannot run as user {}", user.uid), &error))?;
    }
    if owners {
        owners::keep().map_err(|error| Cause::of("cannot give up privileges", &error))?;
    }
    Ok(())
}

fn check(recording: &Recording, from: &Path) -> Result<(), Failure> {
    let from = from.display();
    let meta = recording.meta();
    if !meta.has_records {
        return Err(failed(format!(
            "'{from}' has the counters of each second, and no single calls to replay"
        )));
    }
    if meta.names == Names::None {
        return Err(failed(format!(
            "'{from}' has no names of files: it was recorded with --names none"
        )));
    }
    Ok(())
}

/// The recorded directories of `--map`.
fn maps(wanted: &Replay) -> Result<Vec<path::Components>, Failure> {
    let map = |(old, _): &(String, PathBuf)| {
        path::canonical(old).map_err(|_| Failure::usage(format!("--map '{old}=...': OLD is a path without '..'")))
    };
    wanted.maps.iter().map(map).collect()
}

/// Reads batches, and shows how far they were read.
fn shown(batches: Batches, wanted: &Replay, why: &'static str) -> impl Iterator<Item = Records> {
    let mut shown = Paced::new(!wanted.quiet);
    let mut calls = 0;
    batches.ahead().inspect(move |batch| {
        calls += batch.calls.len() as u64;
        shown.show(|| format!("{why}: {} calls", thousands(calls)));
    })
}

fn load(recording: &Recording, wanted: &Replay) -> Loaded {
    let batches = recording.batches(None, None);
    let batches = batches.without(&[Unneeded::Waits, Unneeded::Requests, Unneeded::Sleeps]);
    let mut loaded = Loaded::new(wanted.selection.clone());
    shown(batches, wanted, "reading").for_each(|batch| loaded.take(batch));
    loaded.finish();
    loaded
}

fn impossible(why: Impossible, recording: &Recording, selection: &Selection) -> String {
    match why {
        Impossible::Nothing => nothing(recording, selection),
        Impossible::Threads(threads) => format!(
            "{} threads were inside calls at the same time, and a replay has up to {}; select some with --threads",
            thousands(threads as u64),
            thousands(MOST_THREADS as u64)
        ),
    }
}

/// Why no call can be replayed.
fn nothing(recording: &Recording, selection: &Selection) -> String {
    let from = recording.folder().display();
    let (mut threads, mut has_requests) = (BTreeSet::new(), false);
    let batches = recording.batches(None, None);
    for records in batches.without(&[Unneeded::Waits, Unneeded::Sleeps]) {
        threads.extend(records.calls.iter().map(|call| call.tid));
        has_requests |= !records.requests.is_empty();
    }
    if threads.is_empty() {
        return match (recording.damage().is_empty(), has_requests) {
            (true, true) => {
                format!("'{from}' has no calls; its requests can be replayed: export --to blktrace, then fio")
            }
            (true, false) => format!("'{from}' has no calls"),
            (false, _) => format!("'{from}' has no calls that can be read"),
        };
    }
    let list = |threads: &BTreeSet<u32>| {
        let shown = threads.iter().take(THREADS_SHOWN).map(u32::to_string);
        let more = (threads.len() > THREADS_SHOWN).then(|| "...".to_owned());
        shown.chain(more).collect::<Vec<_>>().join(", ")
    };
    let wanted = &selection.threads;
    if !wanted.is_empty() && wanted.is_disjoint(&threads) {
        let s = if wanted.len() == 1 { "" } else { "s" };
        return format!(
            "no calls of thread{s} {}; threads with calls are {}",
            list(wanted),
            list(&threads)
        );
    }
    let is_all = wanted.is_empty() && selection.only.is_empty() && selection.without.is_empty();
    let of_these = if is_all { "" } else { " of those that are selected" };
    format!("'{from}' has no calls that can be replayed{of_these}")
}

/// `segments`: files of the recording that are open.
fn check_descriptors(plan: &Plan, segments: usize) -> Result<(), Failure> {
    let of_threads = plan.threads.len() * FOR_A_THREAD;
    let needed = plan.most_open + plan.changes_of_owners + of_threads + segments + FOR_THE_PROCESS;
    let (limit, _) =
        getrlimit(Resource::RLIMIT_NOFILE).map_err(|error| Cause::of("cannot read limits", &error.into()))?;
    if limit < needed as u64 {
        return Err(failed(format!(
            "{} open at the same time and {}; RLIMIT_NOFILE is {}, and {} are needed",
            counted(plan.most_open as u64, "file"),
            counted(plan.threads.len() as u64, "thread"),
            thousands(limit),
            thousands(needed as u64)
        )));
    }
    Ok(())
}

/// The directories of the replay: DIR, and those of `--map`.
fn directories(wanted: &Replay) -> Vec<&Path> {
    let mapped = wanted.maps.iter().map(|(_, new)| new.as_path());
    std::iter::once(wanted.into.as_path()).chain(mapped).collect()
}

fn open_roots(wanted: &Replay) -> Result<Roots, Failure> {
    let paths = directories(wanted);
    let cannot = |path: &Path, error: &io::Error| {
        Failure::from(Cause::of(format_args!("cannot use '{}'", path.display()), error))
    };
    let top = std::fs::metadata("/").ok().map(|top| (top.dev(), top.ino()));
    for path in &paths {
        let state = std::fs::metadata(path).map_err(|error| cannot(path, &error))?;
        if top == Some((state.dev(), state.ino())) {
            return Err(failed(format!(
                "'{}' is the root of this machine: choose an empty directory",
                path.display()
            )));
        }
        match access(*path, AccessFlags::R_OK | AccessFlags::W_OK | AccessFlags::X_OK) {
            Err(Errno::EACCES) => {
                return Err(failed(format!(
                    "user {}, who makes the calls, cannot write to '{}': give it to that user (chown), or name another one \
                     (--user)",
                    geteuid(),
                    path.display()
                )));
            }
            other => other.map_err(|error| cannot(path, &error.into()))?,
        }
    }
    Roots::open(&paths).map_err(|(index, error)| cannot(paths[index], &error))
}

/// The manifest of an earlier replay of this recording, or a new one for empty directories.
fn manifest(roots: &Roots, wanted: &Replay, meta: &Meta) -> Result<Manifest, Failure> {
    let recording = format!("{} {} {}", meta.host, meta.boot_id, meta.run.began_ns);
    let into = wanted.into.display();
    if let Some(before) = Manifest::read(roots)? {
        check_roots(&before, wanted)?;
        if before.head.recording != recording {
            return Err(failed(format!(
                "'{into}' has the files of another recording: remove them with --clean, or choose an empty directory"
            )));
        }
        return Ok(before);
    }
    for path in directories(wanted) {
        let mut entries = std::fs::read_dir(path)
            .map_err(|error| Cause::of(format_args!("cannot read '{}'", path.display()), &error))?;
        // A file system of its own has it, and it is no file of anybody.
        if entries.any(|entry| entry.is_ok_and(|entry| entry.file_name() != "lost+found")) {
            return Err(failed(format!(
                "'{}' is not empty and has no {}: choose an empty directory",
                path.display(),
                manifest::NAME
            )));
        }
    }
    Ok(Manifest::new(recording, named(wanted)))
}

/// The directories by their whole paths.
fn named(wanted: &Replay) -> Vec<String> {
    let whole = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    directories(wanted)
        .into_iter()
        .map(|path| whole(path).display().to_string())
        .collect()
}

fn check_roots(before: &Manifest, wanted: &Replay) -> Result<(), Failure> {
    // DIR itself may have been mounted elsewhere since.
    let (now, then) = (named(wanted), &before.head.roots);
    if now.len() == then.len() && now.iter().skip(1).eq(then.iter().skip(1)) {
        return Ok(());
    }
    let maps: Vec<&str> = then.iter().skip(1).map(String::as_str).collect();
    let maps = if maps.is_empty() {
        "without --map".to_owned()
    } else {
        format!("with --map to {}", maps.join(", "))
    };
    Err(failed(format!(
        "'{}' has the files of a replay {maps}: use the same, or another directory",
        wanted.into.display()
    )))
}

/// The room that a directory has, and needs for what is prepared and written, in bytes.
struct Room {
    device: u64,
    free: u64,
    needed: u64,
    /// Of an earlier run.
    there: u64,
}

/// The file system that is too small, with the bytes that all directories on it need together.
fn too_small(rooms: &[Room]) -> Option<(u64, u64)> {
    let needed = |device: u64| {
        let on_it = rooms.iter().filter(|room| room.device == device);
        let sums = on_it.fold((0_u64, 0_u64), |(needed, there), room| {
            (needed.saturating_add(room.needed), there.saturating_add(room.there))
        });
        sums.0.saturating_sub(sums.1)
    };
    let all = rooms.iter().map(|room| (room, needed(room.device)));
    let mut short = all.filter(|(room, needed)| *needed > room.free);
    short.next().map(|(room, needed)| (room.device, needed))
}

/// Whether the directories have room for what is prepared and written.
fn check_room(plan: &Plan, before: &Manifest, roots: &Roots, wanted: &Replay) -> Result<(), Failure> {
    let directories = directories(wanted);
    let there = before.there(roots);
    let mut rooms = Vec::new();
    for (root, path) in directories.iter().enumerate() {
        let cannot = |error: &io::Error| Cause::of(format_args!("cannot use '{}'", path.display()), error);
        let state = statvfs(*path).map_err(|error| cannot(&error.into()))?;
        #[allow(clippy::unnecessary_cast, reason = "the types differ between architectures")]
        let free = (state.blocks_available() as u64).saturating_mul(state.fragment_size() as u64);
        let of = |sums: &[u64]| sums.get(root).copied().unwrap_or(0);
        let room = Room {
            device: std::fs::metadata(path).map_err(|error| cannot(&error))?.dev(),
            free,
            needed: of(&plan.needed),
            there: of(&there),
        };
        let files = plan
            .prepared
            .iter()
            .filter(|one| plan.spots[one.spot as usize].root as usize == root)
            .count();
        if !wanted.quiet {
            say!(
                "{} has {} free; needed: {} ({})",
                path.display(),
                decimal_bytes(free),
                decimal_bytes(room.needed.saturating_sub(room.there)),
                counted(files as u64, "prepared path")
            );
        }
        rooms.push(room);
    }
    let Some((device, needed)) = too_small(&rooms) else {
        return Ok(());
    };
    let on_it = directories.iter().zip(&rooms).filter(|(_, room)| room.device == device);
    let free = on_it.clone().map(|(_, room)| room.free).min().unwrap_or(0);
    let names: Vec<String> = on_it.map(|(path, _)| format!("'{}'", path.display())).collect();
    Err(failed(format!(
        "{} {} too small: {} are needed, and {} are free",
        names.join(" and "),
        if names.len() == 1 { "is" } else { "together are" },
        decimal_bytes(needed),
        decimal_bytes(free)
    )))
}

/// A directory that no path is below may be misspelt, and the replay would use another disk than was meant.
fn say_unused_maps(plan: &Plan, wanted: &Replay) {
    let used: BTreeSet<u32> = plan.spots.iter().map(|spot| spot.root).collect();
    for ((old, new), root) in wanted.maps.iter().zip(1..) {
        if !used.contains(&root) {
            let new = new.display();
            say!("--map {old}={new}: no path of the recording is below '{old}', so nothing is made below '{new}'");
        }
    }
}

fn say_plan(plan: &Plan, from: &Path, meta: &Meta) {
    let lost = lost(plan);
    let incomplete = if lost > 0 {
        format!("; {} were lost, so it is incomplete", counted(lost, "call"))
    } else {
        String::new()
    };
    say!(
        "{}: {}, {} of {} on {}, recorded on {}, {}{incomplete}",
        from.display(),
        length(Duration::from_nanos(plan.span_ns)),
        counted(plan.calls(), "call"),
        counted(plan.threads.len() as u64, "thread"),
        counted(plan.files.len() as u64, "open file"),
        meta.host,
        meta.kernel
    );
}

fn lost(plan: &Plan) -> u64 {
    plan.lost.get(&Kind::Call).copied().unwrap_or(0)
}

fn prepare(plan: &Plan, roots: &Roots, manifest: Manifest, wanted: &Replay) -> Result<(), Failure> {
    let begun = Instant::now();
    let mut shown = Paced::new(!wanted.quiet);
    let mut watch = |progress: Progress| {
        shown.show(|| preparing(progress));
        !signals::is_ending()
    };
    let preparing = Preparing {
        plan,
        roots,
        manifest,
        data: wanted.how.data,
        cache: wanted.cache,
    };
    let done = preparing.prepare(&mut watch);
    say::erase();
    let done = done?;
    if !wanted.quiet {
        say!(
            "Prepared {} in {}, {} and {} ({}); {} unchanged, {} removed",
            decimal_bytes(done.bytes),
            counted(done.files, "file"),
            if done.folders == 1 {
                "1 directory".to_owned()
            } else {
                format!("{} directories", thousands(done.folders))
            },
            counted(done.links, "link"),
            length(begun.elapsed()),
            thousands(done.kept),
            thousands(done.removed)
        );
    }
    Ok(())
}

/// `preparing: 12 of 412 paths, 1.2 GB`
fn preparing(progress: Progress) -> String {
    if progress.of_paths == 0 {
        return "preparing: writing to the disk".to_owned();
    }
    format!(
        "preparing: {} of {} paths, {} written",
        thousands(progress.paths),
        thousands(progress.of_paths),
        decimal_bytes(progress.bytes)
    )
}

fn make_calls(
    plan: &Plan,
    calls: Batches,
    roots: &Roots,
    wanted: &Replay,
    how: How,
    ready: &mut dyn FnMut() -> Result<(), Cause>,
) -> Result<Ran, Failure> {
    if !wanted.quiet {
        let speed = wanted
            .how
            .speed
            .map_or("as fast as possible".to_owned(), |speed| format!("at speed {speed}"));
        say!(
            "Replaying {speed}, order by {}... Hit Ctrl-C to end.",
            order(wanted.order)
        );
    }
    let all = plan.calls();
    let begun = Instant::now();
    let mut shown = Paced::new(!wanted.quiet);
    let mut watch = |made: u64| {
        shown.show(|| {
            let [made, all] = [made, all].map(thousands);
            format!("replaying: {made} of {all} calls, {}", length(begun.elapsed()))
        });
        !signals::is_ending()
    };
    let mut windows = plan.windows(calls.ahead());
    let ran = run::run(plan, &mut windows, roots, how, ready, &mut watch);
    say::erase();
    let ran = ran?;
    if let Some(first) = ran.not_opened.first().filter(|_| !wanted.quiet) {
        let others = match ran.not_opened.len() - 1 {
            0 => String::new(),
            others => format!(" (and {} more)", thousands(others as u64)),
        };
        say!("{first}{others}: calls on it failed with EBADF, and are among those that differ");
    }
    Ok(ran)
}

fn order(order: Order) -> &'static str {
    match order {
        Order::Files => "files",
        Order::Threads => "threads",
        Order::Total => "total",
    }
}

fn clean(roots: &Roots, manifest: &Manifest, wanted: &Replay) -> Result<u8, Failure> {
    let Cleaned { removed, left } = prepare::clean(roots, manifest)?;
    if !wanted.quiet {
        say!("Removed {} that replays had made", counted(removed, "path"));
    }
    if left > 0 {
        say!(
            "left: {} in which something else is",
            if left == 1 {
                "1 directory".to_owned()
            } else {
                format!("{} directories", thousands(left))
            }
        );
    }
    Ok(0)
}

fn report(plan: &Plan, ran: &Ran, wanted: &Replay) -> ReplayReport {
    let results = &ran.results;
    let not_replayed = plan.left_out.iter().map(|((op, why), calls)| NotReplayed {
        op: op.name().to_owned(),
        reason: why.name().to_owned(),
        calls: *calls,
    });
    let mut different: Vec<Different> = results
        .different
        .iter()
        .map(|((op, difference), calls)| {
            let (how, errno) = match difference {
                Difference::FewerBytes => ("fewer bytes", None),
                Difference::MoreBytes => ("more bytes", None),
                Difference::Failed(errno) => ("failed", Some(*errno)),
                Difference::Succeeded(errno) => ("succeeded", Some(*errno)),
                Difference::Other => ("other", None),
            };
            Different {
                op: op.name().to_owned(),
                how: how.to_owned(),
                errno,
                calls: *calls,
            }
        })
        .collect();
    different.sort_by_key(|one| std::cmp::Reverse(one.calls));
    let mut operations: Vec<Operation> = results
        .families
        .iter()
        .map(|(op, times)| Operation {
            op: op.name().to_owned(),
            calls: times.calls,
            recorded_ns: times.recorded.total_ns,
            replayed_ns: times.replayed.total_ns,
        })
        .collect();
    operations.sort_by_key(|one| std::cmp::Reverse(one.recorded_ns));
    let [timer_ns, earlier_call_ns, thread_busy_ns] = results.causes;
    let quantile = |q| results.lateness.quantile(q, Some((0, results.most_ns)));
    ReplayReport {
        recorded_ns: plan.span_ns,
        took_ns: ran.took_ns,
        speed: wanted.how.speed.unwrap_or(0.0),
        timing: match wanted.how.timing {
            Timing::Schedule => "schedule".to_owned(),
            Timing::Think => "think".to_owned(),
        },
        order: order(wanted.order).to_owned(),
        recorded_calls: plan.recorded,
        not_selected: plan.not_selected,
        planned: plan.calls(),
        done: results.done,
        threads: plan.threads.len() as u64,
        open_files: plan.files.len() as u64,
        lost_calls: lost(plan),
        not_replayed: not_replayed.collect(),
        asynchronous: plan.asynchronous,
        faults: plan.faults,
        lateness: wanted.how.speed.map(|_| Lateness {
            p50_ns: quantile(0.5),
            p90_ns: quantile(0.9),
            p99_ns: quantile(0.99),
            max_ns: results.most_ns,
            timer_ns,
            earlier_call_ns,
            thread_busy_ns,
            buckets: results.lateness.buckets().collect(),
        }),
        equal: results.equal,
        different,
        operations,
        not_direct: results.not_direct,
        direct_rounded: results.direct_rounded,
        refused: ran.refused,
        was_ended: ran.was_ended,
    }
}

fn print(report: &ReplayReport, comparison: Option<&Comparison>, wanted: &Replay) -> Result<(), Failure> {
    use std::io::Write;
    let mut out = Vec::new();
    let printed = if wanted.json {
        let measured = comparison.map(|comparison| json::Measured::new(comparison.reports(), comparison.compared()));
        measured
            .transpose()
            .and_then(|measured| json::print(report, measured.as_ref(), &mut out))
    } else {
        let width = terminal_size::terminal_size_of(io::stdout());
        let width = width.map(|(width, _)| width.0.into());
        let printed = text::print(report, width, &mut out);
        let compared = comparison.map_or_else(String::new, |comparison| format!("\n{}", comparison.text(width)));
        printed.and_then(|()| out.write_all(compared.as_bytes()))
    };
    match printed.and_then(|()| io::stdout().write_all(&out)) {
        // A closed pipe is not an error.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Cause::of("cannot write to standard output", &error).into())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_of_one_file_system_share_its_room() {
        let room = |device, needed, there| Room {
            device,
            free: 100,
            needed,
            there,
        };
        assert_eq!(too_small(&[room(1, 60, 0), room(2, 60, 0)]), None);
        assert_eq!(
            too_small(&[room(1, 60, 0), room(2, 9, 0), room(1, 60, 0)]),
            Some((1, 120))
        );
        assert_eq!(too_small(&[room(1, 60, 0), room(1, 60, 20)]), None);
        assert_eq!(too_small(&[room(1, 60, 0), room(2, 201, 100)]), Some((2, 101)));
    }
}
