//! The live view of the running kernel and of a recording: brings seconds, keys and signals to the state, and the state
//! to the terminal.

mod console;
mod keep;
mod page;
mod recorded;

use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::time::Instant;

use nix::sys::signal::Signal;

use crate::analyse::records::moment::{Fold, Rules};
use crate::analyse::records::names::Names;
use crate::args::{LiveOptions, Options};
use crate::cause::Cause;
use crate::kernel::diskstats::{Diskstats, Use};
use crate::kernel::{description, disk};
use crate::model::clock::Clock;
use crate::model::events::Events;
use crate::model::ids::joined;
use crate::model::record::Records;
use crate::model::report::moment::DiskUse;
use crate::model::report::slow::SlowCall;
use crate::model::report::stack::StackReport;
use crate::model::report::{Report, nanoseconds};
use crate::model::run_info::RunInfo;
use crate::model::selection::Selection;
use crate::model::snapshot::{Snapshot, StackIncreases};
use crate::say;
use crate::source::Source;
use crate::source::live::Live;
use crate::sys::memory::keep_freed;
use crate::view::live::{Action, Beside, Facts, Model, Shows};
use crate::view::text::notes::rows_not_measured;

use self::console::Console;
use self::keep::KeptSeconds;
use super::notes::Attention;
use super::record;

pub use self::console::check_terminal;
pub use self::recorded::show as show_recording;

/// The live view of the running kernel.
pub struct LiveView {
    model: Model,
    console: Console,
    /// Slow calls of the second that is under way, and how many are not in the list.
    slow: (Vec<SlowCall>, u64),
    disks: DiskReader,
    records: Option<Recorded>,
    kept: KeptSeconds,
    attention: Attention,
}

/// The records of the second that is under way.
struct Recorded {
    rules: Rules,
    names: Names,
    fold: Fold,
}

impl LiveView {
    /// Takes over the terminal. `first` is a report without numbers, `start` has the counters of the start.
    ///
    /// # Errors
    /// If it cannot, in one line.
    pub fn begin(
        live: &LiveOptions,
        options: &Options,
        source: &Live,
        first: &Report,
        start: &Snapshot,
        recording: Option<String>,
    ) -> Result<Self, Cause> {
        let info = source.info();
        let slower_ns = options.measure.scope.slower().map(nanoseconds);
        let utc_offset = crate::source::live::utc_offset(start.wall);
        let facts = Facts {
            shows: Shows::Kernel,
            host: record::host(),
            subject: info.subject.clone(),
            by: info.by,
            slower_ns,
            limits: live.limits.clone(),
            missing: missing(first),
            has_records: recording.is_some(),
            recording,
            utc_offset,
        };
        let wall = i64::try_from(start.wall.as_nanosecond()).unwrap_or_default();
        let clock = Clock {
            zero_ns: wall.wrapping_sub(start.at_ns.cast_signed()),
            utc_offset,
        };
        let records = facts.has_records.then(|| Recorded {
            rules: rules(
                clock,
                info,
                &record::rows(info),
                slower_ns,
                &live.limits,
                &description::disks(),
            ),
            names: names(&description::disks()),
            fold: Fold::begin(start.at_ns),
        });
        let mut kept = KeptSeconds::new(info.clone(), Some(live.history_bytes));
        if !facts.has_records {
            kept.can_be_written(start);
        }
        keep_freed();
        Ok(Self {
            model: Model::new(facts),
            console: Console::open(options.output.color)?,
            slow: (Vec::new(), 0),
            disks: DiskReader::begin(info.filter.disk.as_deref(), source.diskstats()),
            records,
            kept,
            attention: Attention::new(first),
        })
    }

    /// Adds events of the second that is under way.
    pub fn events(&mut self, events: Events) {
        self.slow.0.extend(events.slow_calls);
        self.slow.1 = self.slow.1.saturating_add(events.left_out.sum());
    }

    /// Adds records of the second that is under way.
    pub fn records(&mut self, records: &Records) {
        if let Some(recorded) = &mut self.records {
            recorded.names.learn(records);
            recorded.fold.take(records, &recorded.names, &recorded.rules);
        }
    }

    /// How many groups the report of the second that is under way is to name; `all`: the most.
    pub fn named_groups(&self, all: usize) -> usize {
        self.model.named_groups(all)
    }

    /// Ends a second, with the counters at its start and at its end, and what groups have counted in it.
    ///
    /// # Errors
    /// If it cannot be kept, in one line.
    pub fn second(
        &mut self,
        mut report: Report,
        (before, after): (&Snapshot, &Snapshot),
        stacks: StackIncreases,
    ) -> Result<(), Cause> {
        let at_ns = after.at_ns;
        if let Some(written) = self.kept.written() {
            say_written(&mut self.console, &mut self.model, written);
        }
        let moment = self.records.as_mut().map(|recorded| {
            let fold = std::mem::replace(&mut recorded.fold, Fold::begin(at_ns));
            fold.finish(at_ns, &recorded.names, &recorded.rules)
        });
        let beside = Beside {
            // The view has no other notes of a report.
            trouble: self.attention.take_from(&mut report),
            disks: self.disks.second(nanoseconds(report.length)),
            moment,
        };
        let slow = std::mem::take(&mut self.slow);
        self.kept.second((before, after), stacks, &beside)?;
        self.model.second(report, slow, beside);
        self.kept.fit(&mut self.model.history);
        // What would have been printed is shown, and printed at the end.
        if let Some(line) = say::last_held() {
            self.model.message = Some(line);
        }
        self.console.touch();
        Ok(())
    }

    /// Readable when keys were pressed; `None`: in the background.
    pub fn keys_fd(&self) -> Option<BorrowedFd<'_>> {
        self.console.keys_fd()
    }

    /// A descriptor to poll while a frame waits for the one that is being written.
    pub fn progress(&self) -> Option<BorrowedFd<'_>> {
        self.console.progress()
    }

    /// When something is to be done even if nothing happens.
    pub fn wake(&self) -> Option<Instant> {
        self.console.wake()
    }

    /// Handles keys. Returns whether the run is over.
    pub fn keys(&mut self) -> bool {
        handle_keys(&mut self.console, &mut self.model, &mut self.kept)
    }

    /// Draws what has changed. Returns whether the run is over, because the terminal is closed.
    pub fn show(&mut self) -> bool {
        settle(&mut self.console, &mut self.model, &mut self.kept) || self.console.show(&self.model).is_err()
    }

    /// Handles a signal that concerns the terminal. Returns whether it was one.
    pub fn signal(&mut self, signal: Signal) -> bool {
        self.console.signal(signal).unwrap_or(false)
    }

    /// Gives the terminal back, and completes what is being written.
    pub fn close(mut self) {
        self.console.close(&self.model);
        match self.kept.finish() {
            Some(Ok(written)) => say!("{written}"),
            Some(Err(cause)) => say!("error: {cause}"),
            None => {}
        }
    }
}

/// Returns whether the view is over.
fn handle_keys(console: &mut Console, model: &mut Model, kept: &mut KeptSeconds) -> bool {
    let Some(keys) = console.keys() else { return true };
    keys.into_iter().any(|key| is_last(key, console, model, kept))
}

/// Handles an ESC that nothing followed, and gives the view the second that it needs. Returns whether the view is over.
fn settle(console: &mut Console, model: &mut Model, kept: &mut KeptSeconds) -> bool {
    let keys = console.late_keys();
    let is_over = keys.into_iter().any(|key| is_last(key, console, model, kept));
    give_second(model, kept);
    is_over
}

/// Gives the view the second that it needs.
fn give_second(model: &mut Model, kept: &KeptSeconds) {
    let Some(number) = model.needs_second() else { return };
    match kept.shown(number) {
        Ok(Some((report, beside))) => model.give_second(number, report, beside),
        Ok(None) => {}
        Err(cause) => model.message = Some(result(Err(cause))),
    }
}

fn is_last(key: crate::view::live::key::Key, console: &mut Console, model: &mut Model, kept: &mut KeptSeconds) -> bool {
    console.touch();
    match model.handle(key) {
        None => false,
        Some(Action::Quit) => true,
        Some(Action::Suspend) => console.suspend().is_err(),
        Some(Action::Redraw) => {
            console.redraw();
            false
        }
        Some(Action::Html) => {
            let written = page::write(model, kept);
            say_written(console, model, written);
            false
        }
        Some(Action::Record) => {
            model.message = Some(result(kept.write()));
            false
        }
    }
}

/// Shows what was written, or why not: now, and after the view.
fn say_written(console: &mut Console, model: &mut Model, written: Result<String, Cause>) {
    let line = result(written);
    console.print_at_end(line.clone());
    model.message = Some(line);
}

/// What was done, or why not, in one line.
fn result(of: Result<String, Cause>) -> String {
    of.unwrap_or_else(|cause| format!("error: {}", cause.line))
}

/// What is not measured, in one line.
fn missing(first: &Report) -> Option<String> {
    let rows = first
        .stack
        .as_ref()
        .map(|stack| rows_not_measured(stack, &[]))
        .unwrap_or_default();
    let silent: Vec<_> = first
        .layers
        .iter()
        .filter(|layer| layer.ops.is_empty())
        .map(|layer| layer.layer)
        .collect();
    let mut lines = rows;
    if lines.is_empty() && !silent.is_empty() {
        lines.push(format!(
            "not measured: {}",
            joined(&silent, crate::model::ids::Layer::name)
        ));
    }
    (!lines.is_empty()).then(|| lines.join("; "))
}

/// Says that there is no whole stack.
fn without_stack(stack: Option<&StackReport>) -> Option<String> {
    stack.is_none().then(|| {
        "recorded without the whole stack: there are no families, only what single calls and requests have".to_owned()
    })
}

fn rules(
    clock: Clock,
    run: &RunInfo,
    rows: &[String],
    slower_ns: Option<u64>,
    limits: &[crate::model::report::records::Limit],
    disks: &[crate::model::recording::Disk],
) -> Rules {
    let mut rules = Rules::new(clock, run, rows, slower_ns.unwrap_or(u64::MAX), limits);
    for disk in disks {
        rules.disks.insert(disk.number, disk.number);
        let partitions = disk.partitions.iter();
        rules
            .disks
            .extend(partitions.map(|partition| (partition.number, disk.number)));
    }
    rules
}

/// The names of disks, to which those of files and processes are added.
fn names(disks: &[crate::model::recording::Disk]) -> Names {
    let mut names = Names::new(Selection::default());
    for disk in disks {
        names.define_disk(disk.number, disk.name.clone(), None);
    }
    names
}

/// Reads how busy disks are, second by second.
struct DiskReader {
    /// The disks that are read; empty: none.
    names: Vec<String>,
    /// `None`: the kernel does not say how they are used.
    stats: Option<Rc<Diskstats>>,
    /// The source of the run reads them at the end of each second.
    is_shared: bool,
    before: Vec<Use>,
}

impl DiskReader {
    /// `shared`: what the source of the run reads.
    fn begin(only: Option<&str>, shared: Option<Rc<Diskstats>>) -> Self {
        let all = disk::with_requests().into_iter().map(|(name, _)| name);
        let names: Vec<String> = match only {
            Some(only) => vec![only.to_owned()],
            None => all.collect(),
        };
        let is_shared = shared.is_some();
        let mut reader = Self {
            names,
            stats: shared.or_else(|| Diskstats::open().ok().map(Rc::new)),
            is_shared,
            before: Vec::new(),
        };
        reader.before = reader.used().unwrap_or_default();
        reader
    }

    fn used(&self) -> Option<Vec<Use>> {
        let stats = self.stats.as_ref()?;
        if !self.is_shared {
            stats.read().ok()?;
        }
        Some(stats.used(&self.names))
    }

    /// The use since the last time; `None`: the kernel does not say.
    fn second(&mut self, span_ns: u64) -> Option<Vec<DiskUse>> {
        let now = self.used()?;
        let before = std::mem::replace(&mut self.before, now);
        let uses = self.before.iter().filter_map(|now| {
            let before = before.iter().find(|before| before.name == now.name)?;
            Some(now.since(before, span_ns))
        });
        Some(uses.collect())
    }
}
