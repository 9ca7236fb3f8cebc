//! `record`: keeps the counters of each second and the records of a run, and says what it kept.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use jiff::{Timestamp, tz::TimeZone};
use nix::sys::statvfs::statvfs;

use crate::args;
use crate::cause::Cause;
use crate::kernel::description;
use crate::model::abi::ROWS;
use crate::model::ids::{Layer, Row};
use crate::model::record::{Lost, Records};
use crate::model::recording::{Clocks, End, Meta, Names, OwnWrites, SCHEMA};
use crate::model::run_info::RunInfo;
use crate::model::snapshot::Snapshot;
use crate::number::{decimal_bytes, thousands};
use crate::recording::{EXTENSION, Limits, Writer};
use crate::say;
use crate::source::live;
use crate::view::text::counted;
use crate::view::text::number::{length, share};
use crate::view::text::records::without_record;

use super::COULD_NOT_MEASURE;
use super::ring::FlightRecorder;
use super::selected;

/// The time between two readings of the counters.
pub const SECOND: Duration = Duration::from_secs(1);
/// The most space that is left free unless `--keep-free` says otherwise.
const KEEP_FREE: u64 = 1 << 30;
/// Bursts of losses that are named one by one at the end.
const LOSSES_SHOWN: usize = 5;
/// Names that are tried if the first ones exist.
const NAMES: u32 = 1000;
/// The end of a page's name.
pub const PAGE: &str = "html";

/// The recording of a run.
pub enum Recorder {
    /// All of it is written as it arises.
    Whole(Box<WholeRun>),
    /// Its last part is in memory, until something happens.
    Ring(Box<FlightRecorder>),
}

impl Recorder {
    /// Begins a recording of a run whose counters at the start are `first`. `folder`: where all of it is written.
    ///
    /// # Errors
    /// If it cannot be written, in one line.
    pub fn begin(folder: &Path, options: &args::Recording, info: &RunInfo, first: &Snapshot) -> Result<Self, Cause> {
        let meta = meta(info, first);
        match &options.ring {
            Some(wanted) => {
                let recorder = FlightRecorder::begin(options, wanted, meta, first, began(first))?;
                Ok(Self::Ring(Box::new(recorder)))
            }
            None => Ok(Self::Whole(Box::new(WholeRun::begin(folder, options, meta, first)?))),
        }
    }

    /// When something is to be done next; `None`: it has ended.
    pub fn next(&self) -> Option<Instant> {
        match self {
            Self::Whole(whole) => whole.next(),
            Self::Ring(ring) => ring.next(),
        }
    }

    /// Whether the counters are to be read now; if so, they are next to be read a second later.
    pub fn is_due(&mut self) -> bool {
        match self {
            Self::Whole(whole) => whole.is_due(),
            Self::Ring(ring) => ring.is_due(),
        }
    }

    /// Adds records.
    pub fn records(&mut self, records: Records) {
        match self {
            Self::Whole(whole) => whole.records(records),
            Self::Ring(ring) => ring.records(records),
        }
    }

    /// Adds the counters of a second.
    pub fn second(&mut self, snapshot: &Snapshot) {
        match self {
            Self::Whole(whole) => whole.second(snapshot),
            Self::Ring(ring) => ring.second(snapshot),
        }
    }

    /// Does what is due several times a second.
    pub fn tick(&mut self) {
        match self {
            Self::Whole(whole) => whole.tick(),
            Self::Ring(ring) => ring.tick(),
        }
    }

    /// Whether it ends before the run.
    pub fn is_over(&self) -> bool {
        match self {
            Self::Whole(whole) => whole.is_over(),
            Self::Ring(ring) => ring.is_over(),
        }
    }

    /// Completes the recording, if it has not ended.
    pub fn end(&mut self) {
        match self {
            Self::Whole(whole) => whole.end(),
            Self::Ring(ring) => ring.end(),
        }
    }

    /// Removes what was written of it, since the run has not begun.
    pub fn discard(self) {
        if let Self::Whole(whole) = self {
            whole.writer.discard();
        }
    }

    /// One line for a terminal.
    pub fn progress(&self, left: Option<&str>) -> String {
        match self {
            Self::Whole(whole) => whole.progress(left),
            Self::Ring(ring) => ring.progress(left),
        }
    }

    /// Says what was recorded. Returns the exit status.
    pub fn conclude(&self, subject: &str) -> u8 {
        match self {
            Self::Whole(whole) => {
                if whole.conclude(subject) {
                    0
                } else {
                    COULD_NOT_MEASURE
                }
            }
            Self::Ring(ring) => ring.conclude(),
        }
    }
}

/// When a run began whose first counters these are: reading them, and what followed, has taken time.
fn began(first: &Snapshot) -> Instant {
    let passed = Duration::from_nanos(live::monotonic_ns().saturating_sub(first.at_ns));
    let now = Instant::now();
    now.checked_sub(passed).unwrap_or(now)
}

/// A recording of all of a run, which is written as it arises.
pub struct WholeRun {
    writer: Writer,
    began: Instant,
    next: Instant,
    clocks: Clocks,
    /// The tool's own CPU time at the start and at the end of the last second, in nanoseconds.
    own_ns: [u64; 2],
    /// The first losses.
    lost: Vec<Lost>,
    /// Bursts of losses that are not in the list.
    more_lost: usize,
    /// Why it has to end before the run.
    over: Option<String>,
    /// How it ended.
    ended: Option<End>,
    /// Why it could not be written to the end.
    failed: Option<Cause>,
}

impl WholeRun {
    fn begin(folder: &Path, options: &args::Recording, meta: Meta, first: &Snapshot) -> Result<Self, Cause> {
        let clocks = meta.clocks;
        let limits = Limits {
            sync: options.sync,
            max_bytes: options.max_bytes,
            keep_free: options.keep_free.unwrap_or_else(|| default_free(folder)),
        };
        let mut writer = Writer::create(folder, meta, options.names, limits)?;
        if let Err(cause) = writer.second(first) {
            writer.discard();
            return Err(cause);
        }
        let began = began(first);
        Ok(Self {
            writer,
            began,
            next: began + SECOND,
            clocks,
            own_ns: [first.own_ns; 2],
            lost: Vec::new(),
            more_lost: 0,
            over: None,
            ended: None,
            failed: None,
        })
    }

    /// When the counters are to be read; `None`: it has ended.
    pub fn next(&self) -> Option<Instant> {
        self.ended.is_none().then_some(self.next)
    }

    /// Whether the counters are to be read now; if so, they are next to be read a second later.
    pub fn is_due(&mut self) -> bool {
        let now = Instant::now();
        if self.ended.is_some() || now < self.next {
            return false;
        }
        // Seconds in which the machine was suspended are skipped.
        self.next = (self.next + SECOND).max(now);
        true
    }

    /// Adds records. What cannot be written ends the recording, and not the run.
    pub fn records(&mut self, records: Records) {
        if self.ended.is_some() {
            return;
        }
        for lost in &records.lost {
            if self.lost.len() < LOSSES_SHOWN {
                self.lost.push(lost.clone());
            } else {
                self.more_lost += 1;
            }
        }
        let written = self.writer.records(records, live::monotonic_ns());
        self.settle(written);
    }

    /// Adds the counters of a second.
    pub fn second(&mut self, snapshot: &Snapshot) {
        if self.ended.is_some() {
            return;
        }
        self.own_ns[1] = snapshot.own_ns;
        let written = self.writer.second(snapshot);
        self.settle(written);
        if self.over.is_none() {
            self.over = self.writer.is_full(free_bytes(self.writer.folder()));
        }
    }

    /// Writes what has waited for a second.
    pub fn tick(&mut self) {
        if self.ended.is_none() {
            let written = self.writer.tick(live::monotonic_ns());
            self.settle(written);
        }
    }

    fn settle(&mut self, written: Result<(), Cause>) {
        if let Err(cause) = written {
            self.ended = Some(self.writer.abandon(&cause.line, live::monotonic_ns()));
            self.failed = Some(cause);
        }
    }

    /// Whether it ends before the run.
    pub fn is_over(&self) -> bool {
        self.over.is_some() || self.ended.is_some()
    }

    /// Completes the recording, if it has not ended.
    pub fn end(&mut self) {
        if self.ended.is_some() {
            return;
        }
        let now_ns = live::monotonic_ns();
        let why = self.over.as_deref().unwrap_or("the run ended");
        match self.writer.end(why, now_ns) {
            Ok(end) => self.ended = Some(end),
            Err(cause) => self.settle(Err(cause)),
        }
    }

    /// One line for a terminal.
    pub fn progress(&self, left: Option<&str>) -> String {
        let (calls, requests, bytes) = self.writer.written();
        let mut parts = vec![length(self.began.elapsed())];
        if calls + requests > 0 {
            parts.push(counted(calls, "call"));
            parts.push(counted(requests, "request"));
        }
        parts.push(decimal_bytes(bytes));
        parts.extend(left.map(str::to_owned));
        format!("recording: {}", parts.join(", "))
    }

    /// Says what was recorded. Returns whether all of it is in the recording.
    pub fn conclude(&self, subject: &str) -> bool {
        let folder = crate::printable::printable(&self.writer.folder().display().to_string());
        let Some(end) = &self.ended else { return false };
        if let Some(cause) = &self.failed {
            say!("error: the recording ended early: {cause}; what was written before is good");
        }
        if let Some(over) = &self.over {
            say!("the recording ended early: {over}");
        }
        let span = Duration::from_nanos(end.to_ns.saturating_sub(end.from_ns));
        let time = self.time_of_day(end.to_ns, "%H:%M:%S");
        say!("{}", format!("{time}  {}  {subject}", length(span)).trim_end());
        say!("{}", summary(end));
        for (kind, rows) in &end.not_written {
            say!("{} {kind} could not be written", thousands(*rows));
        }
        say!(
            "{}",
            own(self.own_ns[1].saturating_sub(self.own_ns[0]), span, end.own_writes)
        );
        self.lost.iter().for_each(|lost| say!("{}", self.loss(lost)));
        if self.more_lost > 0 {
            say!(
                "and {} more; report --lost has all",
                counted(self.more_lost as u64, "interval")
            );
        }
        say!("report it: IOStackBreakdown report {folder}");
        self.failed.is_none()
    }

    fn loss(&self, lost: &Lost) -> String {
        let [from, to] = [lost.from_ns, lost.to_ns].map(|at| self.time_of_day(at, "%H:%M:%S%.3f"));
        format!(
            "INCOMPLETE {from}-{to}, CPU {}: {}",
            lost.cpu,
            without_record(lost.records, lost.kind, true)
        )
    }

    fn time_of_day(&self, at_ns: u64, form: &str) -> String {
        time_of_day(self.clocks, at_ns, form)
    }
}

/// A moment by the recorded machine's local clock.
pub fn time_of_day(clocks: Clocks, at_ns: u64, form: &str) -> String {
    let wall = Timestamp::from_nanosecond(clocks.wall_ns(at_ns).into()).unwrap_or_default();
    let offset = jiff::tz::Offset::from_seconds(clocks.utc_offset).unwrap_or(jiff::tz::Offset::UTC);
    wall.to_zoned(TimeZone::fixed(offset)).strftime(form).to_string()
}

/// `1,204,331 calls, 48,210 requests, 51,877 sleeps, 412 files in 19.4 MB: 16.1 bytes a call`
fn summary(end: &End) -> String {
    let of = |table: &str| end.rows.get(table).copied().unwrap_or(0);
    let kinds = [
        ("calls", "call"),
        ("requests", "request"),
        ("sleeps", "sleep"),
        ("files", "file"),
    ];
    let parts: Vec<String> = kinds
        .into_iter()
        .filter(|(table, _)| of(table) > 0)
        .map(|(table, one)| counted(of(table), one))
        .collect();
    let bytes = decimal_bytes(end.bytes);
    let calls = of("calls");
    match (parts.is_empty(), calls) {
        (true, _) => format!("the counters of each second in {bytes}"),
        (false, 0) => format!("{} in {bytes}", parts.join(", ")),
        (false, calls) => {
            format!(
                "{} in {bytes}: {:.1} bytes a call",
                parts.join(", "),
                end.bytes as f64 / calls as f64
            )
        }
    }
}

/// `own process 3.1 % of a CPU; own writes: 41 requests of 19.4 MB, which have no records`
fn own(cpu_ns: u64, span: Duration, writes: OwnWrites) -> String {
    let length_ns = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
    let mut line = format!("own process {} of a CPU", share(cpu_ns, length_ns));
    if writes.requests > 0 {
        let requests = counted(writes.requests, "request");
        let bytes = decimal_bytes(writes.bytes);
        line += &format!("; own writes: {requests} of {bytes}, which have no records");
    }
    line
}

/// The time of now in names.
pub fn now_in_name() -> String {
    jiff::Zoned::now().strftime("%Y%m%d-%H%M%S").to_string()
}

/// Checks that a recording can be written to this directory later, as far as that can be known now.
///
/// # Errors
/// If it exists, or its parent does not, or cannot be written to, in one line.
pub fn check_folder(folder: &Path) -> Result<(), Cause> {
    if folder.symlink_metadata().is_ok() {
        return Err(crate::recording::exists(folder));
    }
    let parent = parent_of(folder);
    nix::unistd::access(parent, nix::unistd::AccessFlags::W_OK | nix::unistd::AccessFlags::X_OK)
        .map_err(|error| Cause::of(format_args!("cannot write to '{}'", parent.display()), &error.into()))
}

/// The directory of a recording: the given one, or one named by host and time.
pub fn folder(options: &args::Recording, now: &str) -> PathBuf {
    options.path.clone().unwrap_or_else(|| named_by_host(now, EXTENSION))
}

/// The name of what is made now, without one given. `end`: of the name.
pub fn named_by_host(now: &str, end: &str) -> PathBuf {
    PathBuf::from(format!("io-{}-{now}.{end}", host_in_names()))
}

/// The directory that a file is in.
pub fn parent_of(path: &Path) -> &Path {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

/// Writes under the first name that is free: `x.iosb`, `x-2.iosb`, `x-3.iosb`. Returns it.
///
/// # Errors
/// The cause why it cannot; that a name exists has the `errno` `EEXIST`.
pub fn under_free_name(path: &Path, mut write: impl FnMut(&Path) -> Result<(), Cause>) -> Result<PathBuf, Cause> {
    let mut number = 1;
    loop {
        let path = numbered(path, number);
        match write(&path) {
            Err(cause) if cause.errno == Some(libc::EEXIST) && number < NAMES => number += 1,
            written => return written.map(|()| path),
        }
    }
}

fn numbered(path: &Path, number: u32) -> PathBuf {
    if number == 1 {
        return path.to_owned();
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = match name.rsplit_once('.') {
        Some((stem, end)) if [EXTENSION, PAGE].contains(&end) => format!("{stem}-{number}.{end}"),
        _ => format!("{name}-{number}"),
    };
    path.with_file_name(name)
}

/// The host's name without characters that are unusual in names of files.
fn host_in_names() -> String {
    let is_usual = |c: &char| c.is_ascii_alphanumeric() || "-_.".contains(*c);
    host().chars().filter(is_usual).collect()
}

/// The host's name; empty: unknown.
pub fn host() -> String {
    let name = nix::unistd::gethostname().ok();
    name.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Bytes that are free for the tool on the file system of a path, or of its parent.
pub fn free_bytes(path: &Path) -> Option<u64> {
    let free = statvfs(path).ok()?;
    Some(free.blocks_available().saturating_mul(free.fragment_size()))
}

pub fn default_free(folder: &Path) -> u64 {
    let Ok(all) = statvfs(parent_of(folder)) else {
        return 0;
    };
    let size = all.blocks().saturating_mul(all.fragment_size());
    KEEP_FREE.min(size / 20)
}

/// What is known of a run before its first record.
pub fn meta(info: &RunInfo, first: &Snapshot) -> Meta {
    let wall = i64::try_from(first.wall.as_nanosecond()).unwrap_or_default();
    let mut hooks = std::collections::BTreeMap::<String, Vec<String>>::new();
    for op in &info.ops {
        for point in &*op.points {
            let ops = hooks.entry(point.hook.name().to_owned()).or_default();
            let name = format!("{}/{}", op.layer, op.op);
            if !ops.contains(&name) {
                ops.push(name);
            }
        }
    }
    Meta {
        schema: SCHEMA,
        tool: env!("CARGO_PKG_VERSION").to_owned(),
        kernel: info.kernel.clone(),
        host: host(),
        boot_id: description::boot_id(),
        cpus: crate::kernel::possible_cpus().map_or(0, |cpus| cpus.len() as u32),
        machine: std::env::consts::ARCH.to_owned(),
        command_line: std::env::args_os()
            .map(|word| word.to_string_lossy().into_owned())
            .collect(),
        hooks,
        disks: description::disks(),
        mounts: description::mounts(),
        clocks: Clocks {
            offset_ns: wall.wrapping_sub(first.at_ns.cast_signed()),
            utc_offset: live::utc_offset(first.wall),
        },
        names: Names::Full,
        rows: rows(info),
        has_records: true,
        run: with_whole_path(info),
    }
}

/// The description of the run, in which a file has its whole path: the current directory is another one later.
fn with_whole_path(info: &RunInfo) -> RunInfo {
    let mut run = info.clone();
    run.filter.file = run
        .filter
        .file
        .as_deref()
        .map(|file| selected::whole_path(file.as_ref()));
    run
}

/// The names of a call's rows by slot; empty: the slot is unused.
pub fn rows(info: &RunInfo) -> Vec<String> {
    let mut names = vec![String::new(); ROWS as usize];
    let layers: Vec<Layer> = info
        .stack
        .iter()
        .flat_map(|stack| &stack.layers)
        .map(|(layer, _)| *layer)
        .collect();
    let below = layers.iter().copied().filter(|layer| layer.lives().is_some());
    let all = [Layer::Syscall, Layer::Vfs]
        .into_iter()
        .chain(below)
        .map(Row::Layer)
        .chain(Row::WAITS);
    for row in all {
        if let Some(name) = row.slot(layers.iter().copied()).and_then(|slot| names.get_mut(slot)) {
            row.name().clone_into(name);
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::report::Filter;

    #[test]
    fn names_that_exist_get_a_number() {
        let named = |path: &str, number| numbered(Path::new(path), number).display().to_string();
        assert_eq!(named("/a/x.iosb", 1), "/a/x.iosb");
        assert_eq!(named("/a/x.iosb", 2), "/a/x-2.iosb");
        assert_eq!(named("x.1.html", 3), "x.1-3.html");
        assert_eq!((named("x", 12), named("x.1", 12)), ("x-12".into(), "x.1-12".into()));
    }

    #[test]
    fn the_path_of_the_recorded_file_is_whole() {
        let of = |file: &str| {
            let filter = Filter {
                file: Some(file.to_owned()),
                ..Filter::default()
            };
            let run = RunInfo {
                filter,
                ..RunInfo::default()
            };
            with_whole_path(&run).filter.file.unwrap()
        };
        let here = std::env::current_dir().unwrap();
        assert_eq!(of("./db"), here.join("db").display().to_string());
        assert_eq!(of("/srv/db"), "/srv/db");
    }
}
