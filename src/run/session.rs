//! A session: passes items from a source through the filter to the views, and handles events while it measures.

use std::io::{self, IsTerminal};
use std::os::fd::OwnedFd;
use std::process::Child;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::unistd::Pid;

use crate::analyse;
use crate::args::{self, Intervals, LiveOptions, Options, Talk};
use crate::cause::Cause;
use crate::command;
use crate::event::{Event, Other, Signals, pidfd_of, wait};
use crate::filter::Filter;
use crate::model::events::Events;
use crate::model::report::Report;
use crate::model::run_info::RunInfo;
use crate::model::snapshot::Snapshot;
use crate::process::Process;
use crate::say;
use crate::serve::Listening;
use crate::source::live::{self, Live};
use crate::source::saved::Keeper;
use crate::source::{Item, Source, Until};

use super::budget::Keeping;
use super::events::EventLines;
use super::live::LiveView;
use super::metrics::MetricsServer;
use super::progress;
use super::record::Recorder;
use super::sinks::Sinks;
use super::{COULD_NOT_MEASURE, COULD_NOT_MEASURE_COMMAND};

/// How often a screen shows what the kernel says of probes: that takes a system call for each of them.
const PROBES: Duration = Duration::from_secs(5);

/// The path from a source through the filter to the views.
pub struct Session<S> {
    pub source: S,
    filter: Filter,
    /// The counters are those of what passes the filter.
    has_counters: bool,
    sinks: Sinks,
    /// Saves the items to a file, if requested.
    keeper: Option<Keeper>,
    /// Keeps the run, if requested.
    recorder: Option<Recorder>,
    /// The snapshot at the end of the previous report: reports contain the difference.
    before: Snapshot,
    /// The last second of a run that is recorded, with what it shares with the seconds before.
    second: Option<Snapshot>,
    /// Serves metrics, if requested.
    metrics: Option<MetricsServer>,
    /// Shows each second on a screen, if requested.
    live: Option<LiveView>,
    /// Prints calls and requests one by one, if requested.
    lines: Option<EventLines>,
}

impl<S: Source> Session<S> {
    /// Takes the first snapshot.
    ///
    /// # Errors
    /// If there is no snapshot, or a file cannot be written, in one line.
    pub fn begin(mut source: S, filter: Filter, sinks: Sinks, mut keeper: Option<Keeper>) -> Result<Self, Cause> {
        let Item::Snapshot(first) = source.next(Until::Now).map_err(|error| error.to_string())? else {
            return Err("the saved file is damaged: it has no counters of the start"
                .to_owned()
                .into());
        };
        if let Some(keeper) = &mut keeper {
            keeper.run(source.info())?;
            keeper.snapshot(&first)?;
        }
        Ok(Self {
            has_counters: filter.has_counters(source.info()),
            source,
            filter,
            sinks,
            keeper,
            recorder: None,
            before: *first,
            second: None,
            metrics: None,
            live: None,
            lines: None,
        })
    }

    /// Records what follows. `begin` gets the data of the run and the counters at its start.
    ///
    /// # Errors
    /// Those of `begin`.
    pub fn record(&mut self, begin: impl FnOnce(&RunInfo, &Snapshot) -> Result<Recorder, Cause>) -> Result<(), Cause> {
        self.recorder = Some(begin(self.source.info(), &self.before)?);
        Ok(())
    }

    /// Removes the recording: nothing will be in it.
    pub fn discard_recording(&mut self) {
        if let Some(recorder) = self.recorder.take() {
            recorder.discard();
        }
    }

    /// A report without numbers.
    pub fn first_report(&self) -> Report {
        analyse::report_of_nothing(self.source.info(), &self.before)
    }

    /// Truncates the output files, and shows what does not change during the run. `first` is a report without numbers.
    ///
    /// # Errors
    /// If it cannot be written, in one line.
    pub fn show_beginning(&mut self, first: &Report) -> Result<(), Cause> {
        self.sinks.begin(first)
    }

    /// Passes on all items up to `until`; for [`Until::Now`] the next one, since events may arrive faster than they are passed on,
    /// and the caller has limits and signals to heed.
    ///
    /// # Errors
    /// If they cannot be read or written, in one line.
    pub fn pass(&mut self, until: Until) -> Result<(), Cause> {
        loop {
            match self.source.next(until).map_err(|error| error.to_string())? {
                Item::Nothing => return Ok(()),
                Item::Events(events) => {
                    self.events(events)?;
                    if until == Until::Now {
                        return Ok(());
                    }
                }
                Item::Snapshot(snapshot) if until == Until::Interval && self.recorder.is_some() => {
                    self.second(*snapshot)?;
                }
                Item::Snapshot(snapshot) => self.snapshot(*snapshot)?,
            }
        }
    }

    fn events(&mut self, mut events: Events) -> Result<(), Cause> {
        if let Some(keeper) = &mut self.keeper {
            keeper.events(&events)?;
        }
        if let Some(live) = &mut self.live {
            live.records(&events.records);
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.records(std::mem::take(&mut events.records));
        }
        if let Some(lines) = &mut self.lines {
            lines.take(*std::mem::take(&mut events.records));
        }
        self.filter.events(&mut events);
        if events.is_empty() {
            return Ok(());
        }
        self.sinks.events(&events)?;
        if let Some(live) = &mut self.live {
            live.events(events);
        }
        Ok(())
    }

    /// Adds the counters of a second to the recording.
    fn second(&mut self, mut after: Snapshot) -> Result<(), Cause> {
        let last = self.second.as_ref().unwrap_or(&self.before);
        after.hold_back(last);
        if let Some(recorder) = &mut self.recorder {
            recorder.second(&after);
        }
        if let Some(live) = &mut self.live {
            let stacks = after
                .groups
                .as_ref()
                .map(|groups| groups.stacks.clone())
                .unwrap_or_default();
            let info = self.source.info();
            let report = analyse::report_of_largest(info, (last, &after), &stacks, live.named_groups(info.top));
            live.second(report, (last, &after), stacks)?;
        }
        if let Some(last) = self.second.take() {
            after.widen(last);
        }
        self.second = Some(after);
        Ok(())
    }

    fn snapshot(&mut self, mut after: Snapshot) -> Result<(), Cause> {
        if self.recorder.is_some() {
            self.second(after)?;
            // It is that of the last second now, which ends the run.
            after = self.second.take().unwrap_or_else(|| self.before.clone());
        } else {
            after.hold_back(&self.before);
        }
        if let Some(keeper) = &mut self.keeper {
            keeper.snapshot(&after)?;
        }
        let stacks = after.take_stacks();
        let info = self.source.info();
        let live = self.live.as_ref();
        let top = live.map_or(info.top, |live| live.named_groups(info.top));
        let report = self
            .has_counters
            .then(|| analyse::report_of_largest(info, (&self.before, &after), &stacks, top));
        let before = std::mem::replace(&mut self.before, after);
        let Some(report) = report else { return Ok(()) };
        if let Some(lines) = &mut self.lines {
            lines.report(&report);
        }
        self.sinks.report(&report)?;
        match &mut self.live {
            Some(live) if self.recorder.is_none() => live.second(report, (&before, &self.before), stacks),
            _ => Ok(()),
        }
    }

    /// Waits until all output is written.
    ///
    /// # Errors
    /// If it cannot be written, in one line.
    pub fn finish(&mut self, signals: &Signals) -> Result<(), Cause> {
        self.sinks.finish(signals)?;
        self.sinks.not_written().for_each(|line| say!("{line}"));
        Ok(())
    }
}

impl Session<Live> {
    /// Serves metrics from now on.
    ///
    /// # Errors
    /// If there can be no thread, in one line.
    pub fn serve(&mut self, listening: Listening) -> Result<(), Cause> {
        self.metrics = Some(MetricsServer::start(listening, &self.source, &self.before)?);
        Ok(())
    }

    /// Shows each second on a screen from now on. `first` is a report without numbers, `recording` the name of the
    /// recording that is written.
    ///
    /// # Errors
    /// If there is no terminal for it, in one line.
    pub fn show_live(
        &mut self,
        live: &LiveOptions,
        options: &Options,
        first: &Report,
        recording: Option<String>,
    ) -> Result<(), Cause> {
        self.source.look_at_probes_every(PROBES);
        let view = LiveView::begin(live, options, &self.source, first, &self.before, recording)?;
        self.live = Some(view);
        Ok(())
    }

    /// Prints calls and requests one by one from now on, and no reports. `first` is a report without numbers.
    ///
    /// # Errors
    /// If a file that is selected is not there, in one line.
    pub fn print_events(&mut self, events: args::Events, options: &Options, first: &Report) -> Result<(), Cause> {
        let width = self.sinks.width();
        let lines = EventLines::begin(events, options, self.source.info(), first, &self.before, width)?;
        self.lines = Some(lines);
        Ok(())
    }

    /// Passes on what there is now. `is_woken`: a ring of records has filled up so far that it is to be read.
    fn drain(&mut self, is_woken: bool) -> Result<(), Cause> {
        let Some(lines) = &mut self.lines else {
            return self.pass(Until::Now);
        };
        let is_due = self.source.look_at().is_none_or(|at| Instant::now() >= at);
        if !is_due && !is_woken && !lines.is_asked() {
            return Ok(());
        }
        let now_ns = live::monotonic_ns();
        if let Some(of_all) = lines.looks_for_calls(now_ns) {
            let calls = self.source.under_way(u64::MAX, of_all);
            lines.under_way(&calls.map_err(|error| error.to_string())?);
        }
        self.pass(Until::Now)?;
        let text = self.lines.as_mut().map(|lines| lines.text(now_ns)).transpose();
        let text = text.map_err(|error| Cause::of("cannot make lines", &error))?;
        text.map_or(Ok(()), |text| self.sinks.lines(text))
    }

    /// Prints the rest of the lines, and says what is not in them.
    fn end_lines(&mut self, signals: &Signals, talk: Talk) -> Result<(), Cause> {
        let rest = self.lines.as_mut().map(EventLines::rest).transpose();
        let rest = rest.map_err(|error| Cause::of("cannot make lines", &error))?;
        let Some((text, left)) = rest else {
            return self.finish(signals);
        };
        self.sinks.lines(text)?;
        self.finish(signals)?;
        if let Some(lines) = &self.lines {
            lines.conclude(&left, talk == Talk::Quiet);
        }
        Ok(())
    }

    /// Waits for the end of the run, and prints the reports that are due before it. Returns the exit status.
    ///
    /// # Errors
    /// The cause, in one line, if the run cannot continue.
    pub fn watch(
        &mut self,
        options: &Options,
        processes: Vec<Process>,
        child: Option<Child>,
        signals: &Signals,
    ) -> Result<u8, Cause> {
        let mut watched = Watched::new(options, self.source.began(), processes, child)?;
        let limit = options.span.budget;
        let is_whole = options.measure.scope.is_whole_stack();
        let mut budget = limit.map(|limit| Keeping::new(limit, is_whole, &self.source));
        if self.live.is_some() && self.recorder.is_some() {
            // The seconds of the recording are shown.
            watched.next = None;
        }
        let status = self.until_the_end(&mut watched, &mut budget, signals, options.measure.talk);
        if let Some(live) = self.live.take() {
            live.close();
        }
        let ended = status.and_then(|status| {
            self.pass(Until::End)?;
            self.end_lines(signals, options.measure.talk)?;
            Ok(status)
        });
        let mut concluded = 0;
        if let Some(recorder) = &mut self.recorder {
            // Whatever else failed, what was recorded is to be complete.
            recorder.end();
            say::erase();
            concluded = recorder.conclude(&self.source.info().subject);
        }
        if self.sinks.has_failed() {
            concluded = COULD_NOT_MEASURE;
        }
        Ok(status_of(watched.child.is_some(), ended?, concluded))
    }

    /// Handles events until one ends the run. Returns the exit status.
    fn until_the_end(
        &mut self,
        watched: &mut Watched,
        budget: &mut Option<Keeping>,
        signals: &Signals,
        talk: Talk,
    ) -> Result<u8, Cause> {
        let mut is_woken = false;
        Ok(loop {
            self.keep_recording(watched.child.is_some())?;
            if watched.child.is_none() && self.recorder.as_ref().is_some_and(Recorder::is_over) {
                break 0;
            }
            self.sinks.settle()?;
            if self.live.as_mut().is_some_and(LiveView::show) {
                break 0;
            }
            if !self.sinks.is_busy() && !self.is_by_second() {
                self.drain(is_woken)?;
            }
            // The run waits for the end of a command.
            let has_command = watched.child.is_some();
            if self.sinks.is_closed() && !has_command {
                break 0;
            }
            if budget
                .as_mut()
                .is_some_and(|budget| budget.look(&mut self.source, has_command))
            {
                break 0;
            }
            // If the previous report is still being written, the next one is delayed and covers a longer interval.
            let due = watched.next.filter(|_| !self.sinks.is_busy());
            let look = budget.as_ref().and_then(Keeping::next);
            let second = self.recorder.as_ref().and_then(Recorder::next);
            let screen = self.live.as_ref().and_then(LiveView::wake);
            let event = self.wait(watched, [due, look, second, screen], signals, talk)?;
            is_woken = event == Event::SlowCalls;
            let is_over = |moment: Option<Instant>| moment.is_some_and(|moment| Instant::now() >= moment);
            match event {
                Event::Time if is_over(watched.deadline) => break 0,
                Event::Time if is_over(due) => {
                    watched.reports += 1;
                    if watched.is_last_report() {
                        break 0;
                    }
                    self.pass(Until::Interval)?;
                    watched.advance();
                }
                Event::Metrics => {
                    if let Some(metrics) = &mut self.metrics {
                        metrics.answer(&self.source);
                    }
                }
                Event::Keys => {
                    if self.live.as_mut().is_some_and(LiveView::keys) {
                        break 0;
                    }
                }
                Event::Signal(signal) if self.live.as_mut().is_some_and(|live| live.signal(signal)) => {}
                Event::Time | Event::Written | Event::SlowCalls => {}
                Event::Signal(Signal::SIGUSR1) => {
                    if let Some(Recorder::Ring(ring)) = &mut self.recorder {
                        ring.signal();
                    }
                    if let Some(lines) = &mut self.lines {
                        lines.ask();
                    }
                }
                other => {
                    if let Some(status) = watched.end(other) {
                        break status;
                    }
                }
            }
        })
    }

    /// Reads the counters of a second if one has passed. A recording that is over is completed while a command still
    /// runs; otherwise the run ends with it.
    fn keep_recording(&mut self, has_command: bool) -> Result<(), Cause> {
        let Some(recorder) = &mut self.recorder else {
            return Ok(());
        };
        recorder.tick();
        if recorder.is_due() {
            self.pass(Until::Interval)?;
        }
        self.keep_ring(has_command)?;
        if let Some(recorder) = self
            .recorder
            .as_mut()
            .filter(|recorder| has_command && recorder.is_over())
        {
            recorder.end();
        }
        Ok(())
    }

    /// Looks at the calls under way if they may be what a ring waits for, and writes it if that is due and the run goes on.
    fn keep_ring(&mut self, has_command: bool) -> Result<(), Cause> {
        let Some(Recorder::Ring(ring)) = &mut self.recorder else {
            return Ok(());
        };
        if let Some((before_ns, is_of_all)) = ring.look() {
            let calls = self.source.under_way(before_ns, is_of_all);
            let calls = calls.map_err(|error| error.to_string())?;
            ring.under_way(&calls, is_of_all, |call| self.source.may_be_under_way(call));
        }
        if ring.is_write_due() && (has_command || !ring.is_last()) {
            self.pass(Until::Interval)?;
            let open = self.source.under_way(u64::MAX, true);
            let open = open.map_err(|error| error.to_string())?;
            if let Some(Recorder::Ring(ring)) = &mut self.recorder {
                ring.write(open);
            }
        }
        Ok(())
    }

    /// Whether events are passed on by the second: a screen shows slow calls so, and until then their ring has room for them.
    fn is_by_second(&self) -> bool {
        self.live.is_some() && self.recorder.is_none()
    }

    /// Waits for the next event, at most until one of `moments`.
    fn wait(
        &self,
        watched: &Watched,
        moments: [Option<Instant>; 4],
        signals: &Signals,
        talk: Talk,
    ) -> Result<Event, Cause> {
        let is_free = !self.sinks.is_busy();
        let is_by_second = self.is_by_second();
        let look = self.source.look_at().filter(|_| is_free && !is_by_second);
        // The terminal belongs to the command, and reports may go to the same one.
        let is_among_lines = self.lines.as_ref().is_some_and(EventLines::is_printed_as_it_comes);
        let is_shown = is_free && talk != Talk::Quiet && watched.child.is_none() && !is_among_lines;
        let left = match &self.recorder {
            Some(recorder) if is_shown => {
                progress::show_recording(recorder, watched.deadline);
                None
            }
            Some(_) => None,
            None => watched.deadline.filter(|_| is_shown).and_then(progress::show_left),
        };
        let wake = [watched.deadline, look, left]
            .into_iter()
            .chain(moments)
            .flatten()
            .min();
        let events = self.source.ready().filter(|_| is_free && !is_by_second);
        let child = watched.child.as_ref().map(|(_, pidfd)| pidfd);
        let written = self.sinks.progress().into_iter().map(|fd| (Other::Written, fd));
        let metrics = self.metrics.as_ref().map(|metrics| (Other::Metrics, metrics.ready()));
        let keys = self.live.as_ref().and_then(LiveView::keys_fd);
        let keys = keys.map(|fd| (Other::Keys, fd));
        let frame = self
            .live
            .as_ref()
            .and_then(LiveView::progress)
            .map(|fd| (Other::Written, fd));
        let others: Vec<_> = written.chain(metrics).chain(keys).chain(frame).collect();
        wait(signals, &watched.processes, child, &others, events, wake)
            .map_err(|error| Cause::of("cannot wait for events", &error))
    }
}

/// The exit status of a run that has come to its end. `ended`: that of the command, if there is one; `concluded`: that of what
/// was to be kept of the run. The status of a command is the run's, unless it hides that something is missing.
fn status_of(has_command: bool, ended: u8, concluded: u8) -> u8 {
    match (has_command, ended) {
        (true, 0) if concluded == COULD_NOT_MEASURE => COULD_NOT_MEASURE_COMMAND,
        (true, _) => ended,
        (false, _) => concluded.max(ended),
    }
}

/// What a run waits for.
struct Watched {
    processes: Vec<Process>,
    /// The command, and a descriptor that is readable when it has ended.
    child: Option<(Child, OwnedFd)>,
    deadline: Option<Instant>,
    intervals: Option<Intervals>,
    /// When the next report is due, if there are several.
    next: Option<Instant>,
    /// The number of reports printed.
    reports: u64,
    /// The terminal is used as a whole.
    is_on_screen: bool,
}

impl Watched {
    fn new(options: &Options, began: Instant, processes: Vec<Process>, child: Option<Child>) -> Result<Self, Cause> {
        let child = child.map(|child| {
            let pidfd = pidfd_of(&child).map_err(|error| Cause::of("cannot watch the command", &error))?;
            Ok::<_, Cause>((child, pidfd))
        });
        // A time that the clock cannot represent never comes.
        let after = |time: Option<Duration>| time.and_then(|time| began.checked_add(time));
        Ok(Self {
            processes,
            child: child.transpose()?,
            deadline: after(options.span.duration),
            intervals: options.span.intervals,
            next: after(options.span.intervals.map(|intervals| intervals.length)),
            reports: 0,
            is_on_screen: options.output.live.is_some(),
        })
    }

    /// Whether the next report is the last one.
    fn is_last_report(&self) -> bool {
        let count = self.intervals.and_then(|intervals| intervals.count);
        count.is_some_and(|count| self.reports >= count)
    }

    /// Skips reports that were due while the machine was suspended.
    fn advance(&mut self) {
        let next = self
            .next
            .zip(self.intervals)
            .and_then(|(at, intervals)| at.checked_add(intervals.length));
        self.next = next.map(|at| at.max(Instant::now()));
    }

    /// The effect of a signal or the end of a process on the run: the exit status if it is over.
    fn end(&mut self, event: Event) -> Option<u8> {
        match event {
            // The command gets the terminal's Ctrl-C as well, and the run waits for its end.
            Event::Interrupt if self.child.is_some() => None,
            Event::Interrupt => {
                // The terminal echoes ^C where the report would begin.
                if io::stderr().is_terminal() && !self.is_on_screen {
                    say!("");
                }
                Some(0)
            }
            Event::Signal(signal) => match &self.child {
                Some((child, _)) => {
                    // It may have ended already, which the next wait reports.
                    let _ = nix::sys::signal::kill(Pid::from_raw(child.id() as i32), signal);
                    None
                }
                None => Some(0),
            },
            Event::ProcessEnded(index) => {
                // The kernel side has removed its number from the set: a system call that changes a map keeps other
                // programs on its CPU from running (bpf_disable_instrumentation).
                self.processes.swap_remove(index);
                self.processes.is_empty().then_some(0)
            }
            Event::ChildEnded => {
                let (child, _) = self.child.as_mut()?;
                Some(child.wait().map_or(COULD_NOT_MEASURE_COMMAND, command::exit_status))
            }
            Event::Time | Event::Written | Event::Metrics | Event::Keys | Event::SlowCalls => None,
        }
    }
}
