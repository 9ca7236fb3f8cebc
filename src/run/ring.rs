//! `record --ring`: keeps the last part of a run in memory, and writes it when something happens.

use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::analyse::trigger::Triggers;
use crate::args;
use crate::cause::Cause;
use crate::kernel;
use crate::model::record::{Call, Mark, Records};
use crate::model::recording::{Clocks, End, Meta};
use crate::model::snapshot::Snapshot;
use crate::model::trigger::{Fired, Trigger};
use crate::number::{decimal_bytes, exact_bytes, length, thousands};
use crate::printable::printable;
use crate::recording::{Kept, Ring, RingLimits};
use crate::say;
use crate::source::live;
use crate::view::text::counted;
use crate::view::text::trigger::{KnownNames, occurrence, unmet};

use super::record::{SECOND, default_free, folder, free_bytes, parent_of, time_of_day, under_free_name};

/// The most memory without `--ring TIME,SIZE`.
const BYTES: u64 = 256 << 20;
/// The most memory, as a part of all.
const PART_OF_MEMORY: u64 = 8;
/// How often calls under way are looked at.
const LOOK: Duration = Duration::from_millis(100);
/// How often at most those of all threads are, which takes a system call.
const LOOK_AT_ALL: Duration = Duration::from_secs(1);

/// Exit status if nothing was written.
const NOT_TRIGGERED: u8 = 4;
/// Exit status if something could not be written.
const NOT_WRITTEN: u8 = 1;

/// The most bytes that a ring has.
pub fn bytes(ring: &args::Ring) -> u64 {
    ring.bytes
        .unwrap_or_else(|| BYTES.min(most_bytes(kernel::memory_bytes()).max(1)))
}

/// The most bytes that a ring may have. `memory`: of the machine, in bytes.
pub const fn most_bytes(memory: u64) -> u64 {
    memory / PART_OF_MEMORY
}

/// Keeps the last part of a run in memory.
pub struct FlightRecorder {
    ring: Ring,
    triggers: Triggers,
    options: args::Recording,
    wanted: args::Ring,
    clocks: Clocks,
    began: Instant,
    /// When counters are to be read.
    next: Instant,
    /// When calls under way are to be looked at.
    look: Instant,
    look_at_all: Instant,
    /// What is to be written, and when.
    due: Option<Due>,
    /// What is being written.
    writing: Option<JoinHandle<Written>>,
    /// How many were begun to be written.
    begun: u32,
    /// The last one that was written.
    last: Option<PathBuf>,
    /// Something could not be recorded or written.
    has_failed: bool,
    has_ended: bool,
}

/// A recording that is to be written.
struct Due {
    at: Instant,
    trigger: String,
    /// When that happened, by the programs' clock.
    at_ns: u64,
}

/// A recording that was written, or was not.
struct Written {
    result: Result<PathBuf, Cause>,
    end: End,
    is_cut_by_size: bool,
}

impl FlightRecorder {
    /// Begins with the counters at the start of a run.
    ///
    /// # Errors
    /// If they cannot be encoded, in one line.
    pub fn begin(
        options: &args::Recording,
        wanted: &args::Ring,
        meta: Meta,
        first: &Snapshot,
        began: Instant,
    ) -> Result<Self, Cause> {
        let limits = RingLimits {
            span: wanted.span,
            bytes: bytes(wanted),
        };
        let now = Instant::now();
        Ok(Self {
            clocks: meta.clocks,
            ring: Ring::new(meta, options.names, limits, first)?,
            triggers: Triggers::new(wanted.triggers.clone()),
            options: options.clone(),
            wanted: wanted.clone(),
            began,
            next: began + SECOND,
            look: now,
            look_at_all: now,
            due: None,
            writing: None,
            begun: 0,
            last: None,
            has_failed: false,
            has_ended: false,
        })
    }

    /// When something is to be done next; `None`: it has ended.
    pub fn next(&self) -> Option<Instant> {
        if self.has_ended {
            return None;
        }
        let look = self.triggers.stuck_ns().map(|_| self.look);
        let due = self.due.as_ref().filter(|_| self.is_free()).map(|due| due.at);
        [Some(self.next), look, due].into_iter().flatten().min()
    }

    /// Whether the counters are to be read now; if so, they are next to be read a second later.
    pub fn is_due(&mut self) -> bool {
        let now = Instant::now();
        if self.has_ended || now < self.next {
            return false;
        }
        self.next = (self.next + SECOND).max(now);
        true
    }

    /// Adds records, and sees whether they are what is waited for.
    pub fn records(&mut self, records: Records) {
        if self.has_ended {
            return;
        }
        let fired = self.triggers.records(&records);
        self.add(records);
        if let Some(fired) = fired {
            self.fire(&fired);
        }
    }

    fn add(&mut self, records: Records) {
        let added = self.ring.records(records, live::monotonic_ns());
        self.settle(added);
    }

    /// Adds the counters of a second.
    pub fn second(&mut self, snapshot: &Snapshot) {
        if !self.has_ended {
            let added = self.ring.second(snapshot);
            self.settle(added);
        }
    }

    /// Encodes what has waited for a second, and reports what was written.
    pub fn tick(&mut self) {
        if self.has_ended {
            return;
        }
        let encoded = self.ring.tick(live::monotonic_ns());
        self.settle(encoded);
        if self.writing.as_ref().is_some_and(JoinHandle::is_finished) {
            self.join();
        }
    }

    fn settle(&mut self, added: Result<(), Cause>) {
        if let Err(cause) = added {
            say!("error: the recording ended early: {cause}");
            self.has_failed = true;
            self.has_ended = true;
        }
    }

    /// If calls under way are to be looked at now: before which moment they must have begun, and whether those of all
    /// threads are to be read.
    pub fn look(&mut self) -> Option<(u64, bool)> {
        let stuck_ns = self.triggers.stuck_ns()?;
        let now = Instant::now();
        if self.has_ended || now < self.look {
            return None;
        }
        self.look = now + LOOK;
        let is_of_all = now >= self.look_at_all;
        if is_of_all {
            let often = Duration::from_nanos(stuck_ns / 10).clamp(LOOK, LOOK_AT_ALL);
            self.look_at_all = now + often;
        }
        Some((live::monotonic_ns().saturating_sub(stuck_ns), is_of_all))
    }

    /// Sees whether one of these calls has been under way for too long; see [`Triggers::under_way`].
    pub fn under_way(&mut self, calls: &[Call], is_of_all: bool, is_real: impl Fn(&Call) -> bool) {
        let now_ns = live::monotonic_ns();
        if let Some(fired) = self.triggers.under_way(calls, is_of_all, now_ns, is_real) {
            self.fire(&fired);
        }
    }

    /// What is waited for has happened, unless something else already has.
    fn fire(&mut self, fired: &Fired) {
        if self.due.is_some() || self.has_ended {
            return;
        }
        let meta = self.ring.meta();
        let disk = |number| meta.disks.iter().find(|disk| disk.number == number);
        let path = self.ring.file(fired.file).and_then(|file| file.path.as_ref());
        let names = KnownNames {
            comm: self.ring.thread(fired.tid).map(|thread| &*thread.comm),
            path: path.map(|path| &*path.text),
            disk: fired.disk.and_then(disk).map(|disk| &*disk.name),
            row: fired.row.and_then(|(slot, _)| meta.rows.get(slot)).map(String::as_str),
        };
        let trigger = occurrence(fired, names);
        let time = time_of_day(self.clocks, fired.at_ns, "%H:%M:%S%.3f");
        let more = match self.wanted.after {
            Duration::ZERO => String::new(),
            after => format!(". {} more...", length(after)),
        };
        say!("{time}  {}{more}", printable(&trigger));
        self.write_after(self.wanted.after, fired.at_ns, trigger);
    }

    /// SIGUSR1: it is to be written at once.
    pub fn signal(&mut self) {
        if self.has_ended {
            return;
        }
        match &mut self.due {
            Some(due) => due.at = Instant::now(),
            None => self.write_after(Duration::ZERO, live::monotonic_ns(), "SIGUSR1".to_owned()),
        }
    }

    fn write_after(&mut self, after: Duration, at_ns: u64, trigger: String) {
        self.ring.hold(at_ns);
        self.add(Records {
            marks: vec![Mark {
                at_ns,
                text: trigger.clone(),
            }],
            ..Records::default()
        });
        let now = Instant::now();
        // A time that the clock cannot represent never comes: the end of the run does.
        let at = now
            .checked_add(after)
            .unwrap_or(now + Duration::from_secs(u64::from(u32::MAX)));
        self.due = Some(Due { at, trigger, at_ns });
    }

    /// Whether nothing is being written.
    fn is_free(&self) -> bool {
        self.writing.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Whether it is to be written now.
    pub fn is_write_due(&self) -> bool {
        let is_due = self.due.as_ref().is_some_and(|due| Instant::now() >= due.at);
        is_due && !self.has_ended && self.is_free()
    }

    /// Whether what is written now, or next, is the last one.
    pub fn is_last(&self) -> bool {
        self.begun.saturating_add(1) >= self.wanted.repeat
    }

    /// Whether it ends before the run.
    pub fn is_over(&self) -> bool {
        self.has_ended || self.begun >= self.wanted.repeat || (self.is_write_due() && self.is_last())
    }

    /// Writes what is due, in a thread: a disk may take its time, in which records would be lost. `open`: the calls under
    /// way.
    pub fn write(&mut self, open: Vec<Call>) {
        self.join();
        self.add(Records {
            calls: open,
            ..Records::default()
        });
        let Some((kept, path)) = self.cut() else { return };
        let options = self.options.clone();
        let spawned = thread::Builder::new()
            .name("iosb-ring".to_owned())
            .spawn(move || write(&kept, &path, &options, |_| ()));
        match spawned {
            Ok(writing) => self.writing = Some(writing),
            Err(error) => {
                say!("error: the recording cannot be written: {error}");
                self.has_failed = true;
            }
        }
    }

    /// Takes what is due out of the ring. Returns where to write it as well: a given directory, or one named by the time.
    fn cut(&mut self) -> Option<(Kept, PathBuf)> {
        let due = self.due.take()?;
        self.begun += 1;
        let name = time_of_day(self.clocks, due.at_ns, "%Y%m%d-%H%M%S");
        match self.ring.cut(&due.trigger) {
            Ok(kept) => Some((kept, folder(&self.options, &name))),
            Err(cause) => {
                self.settle(Err(cause));
                None
            }
        }
    }

    /// Waits for what is being written, and reports it.
    fn join(&mut self) {
        let Some(writing) = self.writing.take() else { return };
        match writing.join() {
            Ok(written) => self.report(written),
            Err(_) => {
                say!("error: the thread that writes recordings has failed");
                self.has_failed = true;
            }
        }
    }

    /// `02:14:56  65.0 s in io-db7-20261125-021456.iosb (88.1 MB): 6,911,204 calls, nothing lost`
    fn report(&mut self, written: Written) {
        let Written {
            result,
            end,
            is_cut_by_size,
        } = written;
        let path = match result {
            Ok(path) => path,
            Err(cause) => {
                say!("error: {cause}");
                self.has_failed = true;
                return;
            }
        };
        let time = time_of_day(self.clocks, end.to_ns, "%H:%M:%S");
        let span = length(Duration::from_nanos(end.to_ns.saturating_sub(end.from_ns)));
        say!(
            "{time}  {span} in {} ({}): {}, {}",
            printable(&path.display().to_string()),
            decimal_bytes(end.bytes),
            rows(&end),
            lost(&end)
        );
        if is_cut_by_size {
            let [size, wanted] = [exact_bytes(bytes(&self.wanted)), length(self.wanted.span)];
            say!(
                "it is shorter than {wanted}, since {size} were full (--ring {wanted},SIZE)",
                wanted = wanted.replace(' ', "")
            );
        }
        self.last = Some(path);
    }

    /// Writes what is still due, and ends.
    pub fn end(&mut self) {
        if self.has_ended {
            return;
        }
        self.join();
        if let Some((kept, path)) = self.cut() {
            let options = self.options.clone();
            let all = kept.end.bytes;
            let written = write(&kept, &path, &options, |bytes| {
                if say::can_erase() {
                    say::status(&format!("writing: {} of {}", decimal_bytes(bytes), decimal_bytes(all)));
                }
            });
            say::erase();
            self.report(written);
        }
        self.has_ended = true;
    }

    /// One line for a terminal.
    pub fn progress(&self, left: Option<&str>) -> String {
        let (from_ns, calls, requests, kept) = self.ring.contents();
        let span = Duration::from_nanos(live::monotonic_ns().saturating_sub(from_ns));
        let mut parts = vec![length(span.min(self.began.elapsed()))];
        if calls + requests > 0 {
            parts.push(counted(calls, "call"));
            parts.push(counted(requests, "request"));
        }
        parts.push(format!(
            "{} of {}",
            decimal_bytes(kept),
            decimal_bytes(bytes(&self.wanted))
        ));
        if self.begun > 0 {
            parts.push(format!("{} of {} written", self.begun, self.wanted.repeat));
        }
        parts.extend(left.map(str::to_owned));
        format!("kept: {}", parts.join(", "))
    }

    /// Says how to report what was written, or that nothing was. Returns the exit status.
    pub fn conclude(&self) -> u8 {
        if let Some(last) = &self.last {
            let last = printable(&last.display().to_string());
            say!("report it: IOStackBreakdown report {last}");
        }
        if self.has_failed {
            return NOT_WRITTEN;
        }
        if self.last.is_some() {
            return 0;
        }
        let seen: Vec<(Trigger, u64)> = self.triggers.seen().collect();
        if seen.is_empty() {
            say!("nothing was written: there was no SIGUSR1");
        }
        for (trigger, longest_ns) in seen {
            say!("nothing was written: {}", unmet(trigger, longest_ns));
        }
        NOT_TRIGGERED
    }
}

/// `6,911,204 calls, 48,210 requests`
fn rows(end: &End) -> String {
    let of = |table: &str| end.rows.get(table).copied().unwrap_or(0);
    let requests = Some(of("requests")).filter(|requests| *requests > 0);
    let requests = requests.map_or_else(String::new, |requests| format!(", {}", counted(requests, "request")));
    format!("{}{requests}", counted(of("calls"), "call"))
}

/// `nothing lost`, `LOST 2,113 calls, 12 sleeps`
fn lost(end: &End) -> String {
    if end.lost.is_empty() {
        return "nothing lost".to_owned();
    }
    let kinds: Vec<String> = end
        .lost
        .iter()
        .map(|(kind, records)| format!("{} {kind}", thousands(*records)))
        .collect();
    format!("LOST {} (report --lost has the intervals)", kinds.join(", "))
}

/// Writes it under the first name that is free, if there is enough space.
fn write(kept: &Kept, path: &Path, options: &args::Recording, mut progress: impl FnMut(u64)) -> Written {
    let has_space = check_space(kept, path, options);
    Written {
        result: has_space.and_then(|()| under_free_name(path, |path| kept.write(path, &mut progress))),
        end: kept.end.clone(),
        is_cut_by_size: kept.is_cut_by_size,
    }
}

fn check_space(kept: &Kept, path: &Path, options: &args::Recording) -> Result<(), Cause> {
    let keep_free = options.keep_free.unwrap_or_else(|| default_free(path));
    match free_bytes(parent_of(path)) {
        Some(free) if free < keep_free.saturating_add(kept.end.bytes) => Err(Cause::from(format!(
            "cannot write '{}': it has {}, its file system has {} left, and --keep-free is {}",
            path.display(),
            decimal_bytes(kept.end.bytes),
            decimal_bytes(free),
            decimal_bytes(keep_free)
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::record::Kind;

    #[test]
    fn what_was_lost_is_in_the_line() {
        let mut end = End::default();
        end.rows.insert("calls".to_owned(), 6_911_204);
        assert_eq!(
            (rows(&end), lost(&end)),
            ("6,911,204 calls".into(), "nothing lost".into())
        );
        end.rows.insert("requests".to_owned(), 1);
        end.lost.insert(Kind::Call, 2113);
        end.lost.insert(Kind::Sleep, 12);
        assert_eq!(rows(&end), "6,911,204 calls, 1 request");
        assert_eq!(
            lost(&end),
            "LOST 2,113 calls, 12 sleeps (report --lost has the intervals)"
        );
    }
}
