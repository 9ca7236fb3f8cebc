//! A run that measures: waits for what happens, and prints what is to be printed on the way.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Child;
use std::time::{Duration, Instant};

use nix::unistd::Pid;

use crate::analyse;
use crate::args::Options;
use crate::catalog::{Layer, Row};
use crate::command;
use crate::event::{Event, Signals, pidfd_of, wait};
use crate::kernel;
use crate::model::abi::{EPOCH_STEP, STOP_CALLS, STOP_REQUESTS};
use crate::model::report::Report;
use crate::model::run_info::RunInfo;
use crate::model::snapshot::{DiskCounters, Snapshot};
use crate::probe::attach::Attached;
use crate::probe::plan::Plan;
use crate::process::Process;
use crate::say;
use crate::source::live::{self, monotonic_ns};
use crate::view::text::notes::notes;
use crate::view::text::oneline;

use super::COULD_NOT_MEASURE_COMMAND;
use super::budget::Keeping;
use super::disks::Disks;
use super::progress;
use super::sinks::Sinks;
use super::slow::Told;
use super::snapshots::Saved;

/// A run that measures.
pub struct Session<'a> {
    pub(super) options: &'a Options,
    pub(super) plan: &'a Plan,
    /// Layers of which nothing is measured, and why not.
    pub(super) refused: BTreeMap<Layer, String>,
    pub(super) attached: ManuallyDrop<Attached>,
    /// What reports have to know beside the counters.
    pub(super) info: RunInfo,
    /// Where the moments are kept, if they are.
    pub(super) saved: Option<Saved>,
    /// Disks whose counters are compared with ours.
    pub(super) disks: Option<Disks>,
    pub(super) epoch: u64,
    /// The kernel counts the runs of programs while this is held, or why it does not. `None`: nobody asked.
    pub(super) _runs: Option<io::Result<OwnedFd>>,
    /// Of slow calls.
    pub(super) told: Told,
    pub(super) began: Instant,
    /// What measuring may take, where somebody has said.
    pub(super) budget: Option<Keeping>,
}

impl Session<'_> {
    /// Starts measuring.
    pub(super) fn begin(&mut self) -> Snapshot {
        let disks = self.read_disks();
        let mut snapshot = live::read(&self.attached, self.plan, self.epoch, self.info.has_runs);
        // Until the programs look, all requests under way are from before; then those are that were started before this.
        self.attached.control(|control| {
            control.began_ns = u64::MAX;
            control.stopped = 0;
        });
        self.attached.control(|control| control.began_ns = monotonic_ns());
        self.began = Instant::now();
        snapshot.at_ns = monotonic_ns();
        snapshot.wall = jiff::Timestamp::now();
        self.info.began_ns = snapshot.at_ns;
        let limit = self.options.budget;
        self.budget = limit.map(|limit| Keeping::new(limit, &self.attached));
        snapshot.disks = disks.zip(self.read_disks()).map(<[DiskCounters; 2]>::from);
        snapshot
    }

    /// What the kernel has counted of the disks so far; `None` when it is not to be compared, or does not tell.
    fn read_disks(&self) -> Option<DiskCounters> {
        self.disks.as_ref()?.read()
    }

    /// Waits for the end and prints what is to be printed on the way. Answers the exit status.
    pub(super) fn watch(
        &mut self,
        mut before: Snapshot,
        processes: Vec<Process>,
        child: Option<Child>,
        signals: &Signals,
        sinks: &mut Sinks,
    ) -> Result<u8, String> {
        let mut watched = Watched::new(self, processes, child)?;
        let status = loop {
            sinks.settle()?;
            if !sinks.is_busy() {
                self.tell_slow(false, sinks)?;
            }
            // A command is not left by itself: its end is waited for.
            if self.keep_to_budget(watched.child.is_some()) {
                break 0;
            }
            // A reader who has not taken the last report yet gets the next one later, of a longer interval.
            let due = watched.next.filter(|_| !sinks.is_busy());
            let event = self.wait(&watched, due, signals, sinks)?;
            let is_over = |moment: Option<Instant>| moment.is_some_and(|moment| Instant::now() >= moment);
            match event {
                Event::Time if is_over(watched.deadline) => break 0,
                Event::Time if is_over(due) => {
                    watched.reports += 1;
                    if self.options.count.is_some_and(|count| watched.reports >= count) {
                        break 0;
                    }
                    before = self.report(&before, false, sinks)?;
                    watched.advance(self.options.interval);
                }
                Event::Time | Event::Written | Event::SlowCalls => {}
                other => {
                    if let Some(status) = watched.end(other) {
                        break status;
                    }
                }
            }
        };
        self.report(&before, true, sinks)?;
        sinks.finish(signals)?;
        sinks.not_written().for_each(|line| say!("{line}"));
        Ok(status)
    }

    /// Waits for whatever comes next. `due`: when the next report is.
    fn wait(&self, watched: &Watched, due: Option<Instant>, signals: &Signals, sinks: &Sinks) -> Result<Event, String> {
        let is_free = !sinks.is_busy();
        let look = self.options.slower.filter(|_| is_free).map(|_| self.told.next());
        let budget = self.budget.as_ref().and_then(Keeping::next);
        // The terminal of a command is its own, and what is written may come to the same one.
        let is_shown = is_free && !self.options.quiet && watched.child.is_none();
        let left = watched.deadline.filter(|_| is_shown).and_then(progress::show_left);
        let wake = [watched.deadline, due, look, budget, left].into_iter().flatten().min();
        let ring = self.attached.stack.as_ref().and_then(|stack| stack.slow.as_ref());
        let ring = ring.filter(|_| is_free).map(AsFd::as_fd);
        let child = watched.child.as_ref().map(|(_, pidfd)| pidfd);
        wait(signals, &watched.processes, child, &sinks.progress(), ring, wake).map_err(|error| error.to_string())
    }

    /// Ends an interval, or with `last` the run: what came since `before`.
    fn end(&mut self, before: &Snapshot, last: bool) -> Snapshot {
        let disks = self.read_disks();
        let epoch = self.epoch;
        self.epoch += u64::from(EPOCH_STEP);
        let next = self.epoch;
        self.attached.control(|control| {
            control.epoch = next;
            // Nothing new is begun; what is under way is reported as such.
            if last {
                control.stopped = STOP_CALLS | STOP_REQUESTS;
            }
        });
        let mut after = live::read(&self.attached, self.plan, epoch, self.info.has_runs);
        after.disks = disks.zip(self.read_disks()).map(<[DiskCounters; 2]>::from);
        after.detached = self
            .budget
            .as_ref()
            .map_or_else(Vec::new, |keeping| keeping.detached().to_vec());
        after.utc_offset = live::utc_offset(after.wall);
        after.hold_back(before);
        after
    }

    /// Prints what came since `before`, and reads on from there.
    fn report(&mut self, before: &Snapshot, last: bool, sinks: &mut Sinks) -> Result<Snapshot, String> {
        let mut after = self.end(before, last);
        // Calls that are in the report are reported before it.
        self.tell_slow(last, sinks)?;
        if last {
            match live::under_way(&self.attached, self.plan) {
                Ok(under_way) => after.under_way = Some(under_way),
                Err(error) => after
                    .warnings
                    .push(format!("calls under way at the end are not known: {error}")),
            }
        }
        self.save(&after)?;
        sinks.report(&analyse::report(&self.info, before, &after))?;
        Ok(after)
    }

    /// Keeps a moment for later, where that was asked for.
    pub(super) fn save(&mut self, moment: &Snapshot) -> Result<(), String> {
        let Some(saved) = &mut self.saved else { return Ok(()) };
        if moment.at_ns == self.info.began_ns {
            saved.run(&self.info)?;
        }
        saved.moment(moment)
    }

    /// Says what will not change, where reports are for people, which do not repeat it then. `first` is a report without numbers.
    pub(super) fn say_notes(&self, mut first: Report) {
        let options = self.options;
        if options.json.is_some() || options.verbose || options.quiet {
            return;
        }
        if let Some(stack) = first.stack.as_mut().filter(|_| !kernel::is_seen_mounted("overlay")) {
            stack.not_measured.retain(|row| row.what != Row::Overlay.name());
        }
        if let Some(stack) = first.stack.as_ref().filter(|_| options.oneline) {
            first.warnings.push(oneline::explained(stack));
        }
        let width = terminal_size::terminal_size_of(io::stderr()).map(|(width, _)| width.0.into());
        notes(&first, width).trim_end().lines().for_each(|line| say!("{line}"));
    }
}

/// What a run lasts for.
struct Watched {
    processes: Vec<Process>,
    /// The command, and what is readable when it has ended.
    child: Option<(Child, OwnedFd)>,
    deadline: Option<Instant>,
    /// When the next report is due, where there are several.
    next: Option<Instant>,
    /// So many were printed.
    reports: u64,
}

impl Watched {
    fn new(session: &Session<'_>, processes: Vec<Process>, child: Option<Child>) -> Result<Self, String> {
        let child = child.map(|child| {
            let pidfd = pidfd_of(&child).map_err(|error| format!("the command cannot be watched: {error}"))?;
            Ok::<_, String>((child, pidfd))
        });
        // A time beyond what the clock can count never comes.
        let after = |time: Option<Duration>| time.and_then(|time| session.began.checked_add(time));
        Ok(Self {
            processes,
            child: child.transpose()?,
            deadline: after(session.options.duration),
            next: after(session.options.interval),
            reports: 0,
        })
    }

    /// A machine that was asleep owes no reports.
    fn advance(&mut self, interval: Option<Duration>) {
        let next = self
            .next
            .zip(interval)
            .and_then(|(at, interval)| at.checked_add(interval));
        self.next = next.map(|at| at.max(Instant::now()));
    }

    /// What a signal or the end of a process means for the run: its exit status where it is over.
    fn end(&mut self, event: Event) -> Option<u8> {
        match event {
            // The command gets a terminal's Ctrl-C too, and the report waits for it.
            Event::Interrupt if self.child.is_some() => None,
            Event::Interrupt => {
                // The terminal shows the ^C where the report would begin.
                if io::stderr().is_terminal() {
                    say!("");
                }
                Some(0)
            }
            Event::Signal(signal) => match &self.child {
                Some((child, _)) => {
                    // It may have ended already, which the next wait tells.
                    let _ = nix::sys::signal::kill(Pid::from_raw(child.id() as i32), signal);
                    None
                }
                None => Some(0),
            },
            Event::ProcessEnded(index) => {
                // The kernel side has taken its number out of the set: a system call that changes a map keeps other
                // programs of its CPU from running (bpf_disable_instrumentation).
                self.processes.swap_remove(index);
                self.processes.is_empty().then_some(0)
            }
            Event::ChildEnded => {
                let (child, _) = self.child.as_mut()?;
                Some(child.wait().map_or(COULD_NOT_MEASURE_COMMAND, command::exit_status))
            }
            Event::Time | Event::Written | Event::SlowCalls => None,
        }
    }
}
