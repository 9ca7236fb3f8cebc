//! The live view of a recording: all of its seconds, and the records of the one that is shown.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::analyse;
use crate::analyse::records::moment::{Fold, Rules};
use crate::args::{LiveOptions, Measure, Options, Part};
use crate::cause::Cause;
use crate::event::{Event, Other, wait};
use crate::model::clock::Clock;
use crate::model::recording::Meta;
use crate::model::report::moment::Moment;
use crate::model::report::nanoseconds;
use crate::model::snapshot::Snapshot;
use crate::number::thousands;
use crate::recording::{Recording, Replayed};
use crate::run::report::{check_recorded, in_seconds, say_damage, span, whole_span};
use crate::run::selected;
use crate::say;
use crate::source::{Item, Source, Until};
use crate::view::live::{Beside, Facts, Model, Shows};

use super::console::{Console, check_terminal};
use super::keep::KeptSeconds;
use super::{Attention, handle_keys, missing, names, rules, settle, without_stack};

/// The length of a second.
const SECOND: Duration = Duration::from_secs(1);
/// Calls of this length or longer are listed unless `--slower` says otherwise.
const SLOWER: Duration = Duration::from_millis(10);
/// Seconds whose records are remembered.
const REMEMBERED: usize = 64;

/// Shows a recording until a key ends it. Returns the exit status.
///
/// # Errors
/// If it cannot be read or shown, in one line.
pub fn show(from: &Path, part: &Part, live: &LiveOptions, options: &Options) -> Result<u8, Cause> {
    check_terminal()?;
    let recording = Recording::open(from)?;
    let meta = recording.meta();
    check_selection(meta, &options.measure)?;
    let (start, end) = whole_span(&recording, from)?;
    let span = span(part, meta.clocks, start, end)?;
    let (_, span) = in_seconds(part, span, (start, end), &recording);
    let slower = options.measure.scope.slower().unwrap_or(SLOWER);
    let slower_ns = meta.has_records.then(|| nanoseconds(slower));
    let name = from
        .file_name()
        .map_or_else(|| from.display().to_string(), |name| name.display().to_string());
    let facts = Facts {
        shows: Shows::Recording(name),
        host: meta.host.clone(),
        subject: meta.run.subject.clone(),
        by: meta.run.by,
        slower_ns,
        limits: live.limits.clone(),
        missing: None,
        recording: None,
        has_records: meta.has_records,
        utc_offset: meta.clocks.utc_offset,
    };
    let clock = Clock {
        zero_ns: meta.clocks.offset_ns,
        utc_offset: meta.clocks.utc_offset,
    };
    let source = Replayed::new(&recording, span, Some(SECOND));
    let mut seconds = Seconds {
        kept: KeptSeconds::new(source.info().clone(), None),
        model: Model::new(facts),
        rules: rules(clock, &meta.run, &meta.rows, slower_ns, &live.limits, &meta.disks),
        spans: Vec::new(),
        remembered: BTreeMap::new(),
        recording: &recording,
    };
    seconds.read(source)?;
    let shown = seconds.run(options);
    say_damage(&recording);
    shown
}

/// The seconds of a recording.
struct Seconds<'a> {
    model: Model,
    kept: KeptSeconds,
    rules: Rules,
    /// By number, by the programs' clock.
    spans: Vec<(u64, u64)>,
    remembered: BTreeMap<usize, Moment>,
    recording: &'a Recording,
}

impl Seconds<'_> {
    /// Reads the counters of all seconds.
    fn read(&mut self, mut source: Replayed) -> Result<(), Cause> {
        let mut before: Option<Box<Snapshot>> = None;
        let mut attention = None;
        loop {
            let mut after = match source.next(Until::End).map_err(|error| error.to_string())? {
                Item::Snapshot(after) => after,
                Item::Events(_) => continue,
                Item::Nothing => break,
            };
            if let Some(before) = &before {
                after.hold_back(before);
                let stacks = after.take_stacks();
                let mut report = analyse::report_with(source.info(), before, &after, &stacks);
                if self.spans.is_empty() {
                    self.model.facts.missing = without_stack(report.stack.as_ref()).or_else(|| missing(&report));
                }
                self.spans.push((before.at_ns, after.at_ns));
                let attention =
                    attention.get_or_insert_with(|| Attention::new(&analyse::report_of_nothing(source.info(), before)));
                let beside = Beside {
                    trouble: attention.take_from(&mut report),
                    ..Beside::default()
                };
                self.kept.second((before, &after), stacks, &beside)?;
                self.model.second(report, (Vec::new(), 0), beside);
                if self.spans.len().is_multiple_of(100) && say::can_erase() {
                    say::status(&format!("reading: {} seconds", thousands(self.spans.len() as u64)));
                }
            }
            before = Some(after);
        }
        say::erase();
        if self.spans.is_empty() && self.recording.seconds().next().is_none() {
            return Err(self.recording.without_counters());
        }
        if self.spans.is_empty() {
            return Err("the recording has less than a second".to_owned().into());
        }
        Ok(())
    }

    /// Waits for keys, signals and the next second.
    fn run(&mut self, options: &Options) -> Result<u8, Cause> {
        let mut signals = crate::run::install_signals()?;
        signals
            .watch_terminal()
            .map_err(|error| Cause::of("cannot handle signals", &error))?;
        let mut console = Console::open(options.output.color)?;
        let mut next = Instant::now() + SECOND;
        loop {
            if settle(&mut console, &mut self.model, &mut self.kept) {
                break;
            }
            self.give_records();
            if console.show(&self.model).is_err() {
                break;
            }
            if !self.model.is_playing {
                next = Instant::now() + self.length();
            }
            let due = self.model.is_playing.then_some(next);
            let wake = [due, console.wake()].into_iter().flatten().min();
            let written = console.progress().map(|fd| (Other::Written, fd));
            let keys = console.keys_fd().map(|fd| (Other::Keys, fd));
            let others: Vec<_> = written.into_iter().chain(keys).collect();
            let event = wait(&signals, &[], None, &others, None, wake);
            match event.map_err(|error| Cause::of("cannot wait for events", &error))? {
                Event::Keys => {
                    if handle_keys(&mut console, &mut self.model, &mut self.kept) {
                        break;
                    }
                }
                Event::Signal(signal) => {
                    if !console.signal(signal).unwrap_or(false) {
                        break;
                    }
                }
                Event::Interrupt => break,
                Event::Time | Event::Written => {}
                Event::ProcessEnded(_) | Event::ChildEnded | Event::Metrics | Event::SlowCalls => {}
            }
            if self.model.is_playing && Instant::now() >= next {
                self.model.tick();
                console.touch();
                next += self.length();
            }
        }
        console.close(&self.model);
        Ok(0)
    }

    /// How long the second that is shown took.
    fn length(&self) -> Duration {
        let shown = self.model.shown.as_ref();
        let span = shown.and_then(|shown| self.spans.get(shown.number));
        span.map_or(SECOND, |(from, to)| Duration::from_nanos(to.saturating_sub(*from)))
    }

    /// Reads the records of the second that is shown, if they are needed.
    fn give_records(&mut self) {
        let Some(number) = self.model.needs_records_of() else {
            return;
        };
        let Some(&span) = self.spans.get(number) else { return };
        let moment = match self.remembered.get(&number) {
            Some(moment) => moment.clone(),
            None => self.moment(span),
        };
        if self.remembered.len() >= REMEMBERED {
            self.remembered.clear();
        }
        self.remembered.insert(number, moment.clone());
        self.model.give_records(number, moment);
    }

    fn moment(&self, span: (u64, u64)) -> Moment {
        let mut names = names(&self.recording.meta().disks);
        let mut fold = Fold::begin(span.0);
        for records in self.recording.batches(Some(span.0), Some(span.1)) {
            names.learn(&records);
            fold.take(&records, &names, &self.rules);
        }
        fold.finish(span.1, &names, &self.rules)
    }
}

/// Checks that nothing is selected: the seconds that are shown are those of all that was recorded.
fn check_selection(meta: &Meta, measure: &Measure) -> Result<(), Cause> {
    check_recorded(meta, measure)?;
    if !selected::selection(meta, &measure.target)?.is_all() {
        return Err(
            "--live shows all of a recording: press / on a list to search it, or select without --live"
                .to_owned()
                .into(),
        );
    }
    let by = measure.scope.groups().map(|groups| groups.by);
    if let Some(by) = by.filter(|by| meta.run.by != Some(*by)) {
        return Err(format!("--live has the groups that were recorded: record --by {by}, or leave --live out").into());
    }
    if measure.scope.slower().is_some() && !meta.has_records {
        return Err(
            "--slower needs single calls, and the recording has only the counters of each second"
                .to_owned()
                .into(),
        );
    }
    Ok(())
}
