//! `report`: prints reports of a recording.

use std::path::Path;
use std::time::Duration;

use crate::analyse::records::run::{IN_RECORDS, Shown};
use crate::args::{Form, Measure, Moment, Options, Part, Talk};
use crate::cause::Cause;
use crate::filter::Filter;
use crate::model::ids::{By, Layer};
use crate::model::recording::{Clocks, Meta, Names};
use crate::model::report::nanoseconds;
use crate::model::selection::Selection;
use crate::number::decimal_bytes;
use crate::printable::printable;
use crate::recording::{Recording, Replayed, Span};
use crate::say;
use crate::source::{Source, Until};
use crate::view::text::records::{not_written, without_record};
use crate::view::text::{Unit, counted};

use super::answers::screen;
use super::from_records::{FromRecords, Wish};
use super::record::time_of_day;
use super::session::Session;
use super::sinks::Sinks;
use super::{install_signals, selected};

/// Prints what `options` select of a recording. Returns the exit status.
pub fn report(from: &Path, part: &Part, options: &Options) -> Result<u8, Cause> {
    let recording = Recording::open(from)?;
    if part.lost {
        return missing(&recording, options);
    }
    let meta = recording.meta();
    let target = &options.measure.target;
    check_recorded(meta, &options.measure)?;
    check_whole(meta, options)?;
    let selection = selected::selection(meta, target)?;
    let layers = selected::layers(meta, options)?;
    let (start, end) = whole_span(&recording, from)?;
    let span = span(part, meta.clocks, start, end)?;
    let (is_inside, span) = in_seconds(part, span, (start, end), &recording);
    let has_seconds = recording.seconds().next().is_some();
    let groups = options.measure.scope.groups();
    let by = groups.map(|groups| groups.by);
    let needed = Needed {
        selection: (!selection.is_all()).then(|| selected::subject(target)),
        by: by.filter(|by| meta.run.by != Some(*by)),
        is_slower: options.measure.scope.slower().is_some(),
        is_split: meta.run.stack.is_some() && !layers.is_empty(),
        is_inside,
        has_seconds,
    };
    let shown = Shown {
        by,
        top: groups.map_or(meta.run.top, |groups| groups.top),
        slower_ns: options.measure.scope.slower().map(nanoseconds),
        filter: selected::filter(&meta.run.filter, target),
        is_selected: !selection.is_all() || needed.is_without_seconds() || needed.is_split,
        notes: Vec::new(),
        layers,
        subject: subject(options, &recording, &needed),
    };
    let uses_records = needed.check(meta, &shown.layers, from)?;
    if !has_seconds && !uses_records {
        return Err(recording.without_counters());
    }
    let shown = Shown {
        notes: if uses_records { notes(&needed, meta) } else { Vec::new() },
        // What is recorded by groups is reported by groups.
        by: by.or(meta.run.by.filter(|_| !uses_records)),
        is_selected: shown.is_selected && uses_records,
        ..shown
    };
    let mut info = shown.run(&meta.run);
    info.is_without_counters = !has_seconds;
    if needed.is_without_seconds() && uses_records && info.has_runs {
        info.has_runs = false;
        info.no_runs = Some("it is known of whole seconds".to_owned());
    }
    if uses_records {
        let wish = wish(options, selection, span, needed.is_without_seconds());
        let mut source = FromRecords::new(&recording, info, wish).map_err(|error| error.to_string())?;
        if by.is_some_and(By::is_of_cgroups) {
            selected::cgroups_now(meta)
                .into_iter()
                .for_each(|(number, path)| source.define_cgroup(number, path));
        }
        selected::check_found(source.names(), &recording)?;
        if options.measure.talk != Talk::Quiet {
            shown.notes.iter().for_each(|note| say!("note: {note}"));
        }
        print(source, options)?;
    } else {
        let intervals = options.span.intervals;
        let mut source = Replayed::new(&recording, span, intervals.map(|intervals| intervals.length));
        if let Some(count) = intervals.and_then(|intervals| intervals.count) {
            source.limit(count);
        }
        source.set_info(info);
        print(source, options)?;
    }
    say_trigger(&recording);
    say_damage(&recording);
    Ok(0)
}

/// Opens a recording that must have single calls and requests. `to`: what is to be done with them.
///
/// # Errors
/// If it cannot be read, or has none, in one line.
pub fn open_records(from: &Path, to: &str) -> Result<Recording, Cause> {
    let recording = Recording::open(from)?;
    if recording.meta().has_records {
        Ok(recording)
    } else {
        let from = from.display();
        Err(format!("'{from}' has the counters of each second, and no single calls and requests to {to}").into())
    }
}

/// The moments from and up to which records are wanted; `None`: from the start, up to the end.
///
/// # Errors
/// If the recording has nothing in between, in one line.
pub fn bounds(part: &Part, recording: &Recording) -> Result<[Option<u64>; 2], Cause> {
    if part.from.is_none() && part.to.is_none() {
        return Ok([None, None]);
    }
    let (start, end) = recording.span();
    let span = span(part, recording.meta().clocks, start, end)?;
    Ok([Some(span.from_ns), Some(span.to_ns)])
}

/// The start and the end of a recording that has seconds.
///
/// # Errors
/// If it has none, in one line.
pub fn whole_span(recording: &Recording, from: &Path) -> Result<(u64, u64), Cause> {
    let (start, end) = recording.span();
    if end <= start && !recording.damage().is_empty() {
        return Err(recording.without_counters());
    }
    if end <= start {
        return Err(format!("'{}' has nothing in it: it was cut in its first second", from.display()).into());
    }
    Ok((start, end))
}

/// What made a ring be written.
fn say_trigger(recording: &Recording) {
    if let Some(end) = recording.end().filter(|end| !end.trigger.is_empty()) {
        say!("triggered by: {}", end.trigger);
    }
}

/// What is made of the records.
fn wish(options: &Options, selection: Selection, span: Span, is_inside: bool) -> Wish {
    let intervals = options.span.intervals;
    let scope = &options.measure.scope;
    Wish {
        selection,
        by: scope.groups().map(|groups| groups.by),
        slower_ns: scope.slower().map(nanoseconds),
        unit_ns: match options.output.unit() {
            Unit::Nanoseconds => 0,
            Unit::Microseconds => 1_000,
            Unit::Milliseconds => 1_000_000,
        },
        span,
        interval: intervals.map(|intervals| intervals.length),
        count: intervals.and_then(|intervals| intervals.count),
        is_inside,
        is_shown: options.measure.talk != Talk::Quiet,
    }
}

/// Until all of the recording was read, a signal ends the process.
fn print<S: Source>(source: S, options: &Options) -> Result<(), Cause> {
    let mut session = Session::begin(source, Filter::default(), Sinks::open(options)?, None)?;
    session.show_beginning(&session.first_report())?;
    session.pass(Until::End)?;
    session.finish(&install_signals()?)
}

/// Why the counters of a recording are not enough.
#[derive(Debug, Default)]
struct Needed {
    /// What is selected, in words; `None`: everything.
    selection: Option<String>,
    by: Option<By>,
    is_slower: bool,
    /// Single layers of a run of the whole stack.
    is_split: bool,
    /// The span does not begin and end with whole seconds.
    is_inside: bool,
    /// The counters of seconds can be read.
    has_seconds: bool,
}

impl Needed {
    /// The counters are made of records, since those of seconds are not those of the span.
    const fn is_without_seconds(&self) -> bool {
        self.is_inside || !self.has_seconds
    }

    /// Whether the report is made of records.
    ///
    /// # Errors
    /// If it would have to be, and the recording does not have them, in one line.
    fn check(&self, meta: &Meta, layers: &[Layer], from: &Path) -> Result<bool, Cause> {
        let must = self.selection.is_some() || self.by.is_some() || self.is_slower || self.is_split;
        let is_shown = |layer: Layer| layers.is_empty() || layers.contains(&layer);
        let recorded = || meta.run.layers.iter().map(|info| info.layer);
        let is_whole = meta.run.stack.is_some() && layers.is_empty();
        let elsewhere = recorded().find(|layer| !is_whole && is_shown(*layer) && !IN_RECORDS.contains(layer));
        let has_calls = recorded().any(|layer| layer == Layer::Syscall);
        match (must, meta.has_records, elsewhere) {
            (true, false, _) => Err(format!(
                "'{}' has the counters of each second, and no single calls and requests: {}",
                from.display(),
                self.instead()
            )
            .into()),
            (true, true, Some(layer)) => Err(format!(
                "records have no operations of {layer}: {}, or select -T syscall,blk of what was recorded",
                self.instead()
            )
            .into()),
            (true, true, None) if self.is_slower && !has_calls => {
                Err("recorded with -T blk: calls are not in it".to_owned().into())
            }
            (true, ..) => Ok(true),
            (false, true, None) => Ok(self.is_without_seconds()),
            (false, ..) => {
                if self.is_inside {
                    say!("note: --from and --to are extended to whole seconds, which the recording has counters of");
                }
                Ok(false)
            }
        }
    }

    /// How to record so that the counters are enough.
    fn instead(&self) -> String {
        match (&self.selection, self.by) {
            (Some(_), _) => "record with the same selection".to_owned(),
            (None, Some(by)) if By::COUNTED.contains(&by) => format!("record with --by {by}"),
            (None, Some(by)) => format!("--by {by} is made of them"),
            (None, None) if self.is_slower => "--slower is made of them".to_owned(),
            (None, None) => "record with -T".to_owned(),
        }
    }
}

/// What readers have to know about numbers that are made of records.
fn notes(needed: &Needed, meta: &Meta) -> Vec<String> {
    let mut notes = Vec::new();
    if !needed.has_seconds {
        notes.push(
            "the counters of each second cannot be read: numbers are made of records, and the own cost is not known"
                .to_owned(),
        );
    } else if needed.is_inside {
        notes.push(
            "this part does not begin and end with seconds of the recording: its numbers are made of records, and the own cost is \
             the average of the seconds around it"
                .to_owned(),
        );
    }
    if needed.selection.is_some() || needed.is_without_seconds() || needed.is_split {
        notes.push(
            "made of records, which have no calls and requests that are excluded or not timed; losses of samples are those of all \
             that was recorded"
                .to_owned(),
        );
    }
    if needed.selection.is_some() && meta.names != Names::Full {
        notes.push(format!(
            "recorded with --names {}: names of files are not those of the machine",
            meta.names.name()
        ));
    }
    notes
}

/// The span of a part, and whether it begins or ends inside a second of the recording. See [`inside`].
pub fn in_seconds(part: &Part, span: Span, whole: (u64, u64), recording: &Recording) -> (bool, Span) {
    if part.from.is_none() && part.to.is_none() {
        return (false, span);
    }
    let seconds: Vec<u64> = recording.seconds().map(|second| second.at_ns).collect();
    inside(part, span, whole, &seconds)
}

/// Whether a part begins or ends inside a second of the recording, and its span: seconds begin and end when their counters were
/// read (`seconds`). An end that is meant to be that of a second is exactly that one, so that no call is in two parts that
/// follow each other. `start`, `end`: of the recording.
fn inside(part: &Part, span: Span, (start, end): (u64, u64), seconds: &[u64]) -> (bool, Span) {
    let second = |moment: Option<Moment>, at_ns: u64| {
        // A second that is to last until +10s is read a moment later.
        let rounding = match moment {
            Some(Moment::AfterStart(after)) if after.subsec_nanos() == 0 => WHOLE,
            _ => EXACT,
        };
        if at_ns <= start || at_ns >= end {
            return Some(at_ns.clamp(start, end));
        }
        let nearest = seconds.iter().min_by_key(|read| read.abs_diff(at_ns));
        nearest.copied().filter(|read| read.abs_diff(at_ns) <= rounding)
    };
    let (from, to) = (second(part.from, span.from_ns), second(part.to, span.to_ns));
    let (from_ns, to_ns) = (from.unwrap_or(span.from_ns), to.unwrap_or(span.to_ns));
    // A part may be shorter than the time that reading took.
    if from_ns >= to_ns {
        return (true, span);
    }
    (from.is_none() || to.is_none(), Span { from_ns, to_ns })
}

/// How far the end of a second may be from the moment that is meant, in nanoseconds: of whole seconds after the start, and
/// of other moments.
const WHOLE: u64 = 100_000_000;
const EXACT: u64 = 1_000_000;

/// What reports in text are of: what is selected, and where it was recorded.
fn subject(options: &Options, recording: &Recording, needed: &Needed) -> String {
    let meta = recording.meta();
    let selected = needed.selection.clone().unwrap_or_default();
    let whose = [selected.as_str(), &meta.run.subject];
    let whose: Vec<&str> = whose.into_iter().filter(|part| !part.is_empty()).collect();
    let whose = whose.join(" of ");
    if matches!(options.output.form, Form::Text { .. }) && options.output.export_json.is_none() {
        heading(meta, &whose)
    } else {
        whose
    }
}

/// `PID 4711 (postgres), recorded on db7, 6.1.0-50-amd64`
fn heading(meta: &Meta, whose: &str) -> String {
    let of = |text: &str| printable(text);
    let whose = match whose {
        "" => String::new(),
        whose => format!("{whose}, "),
    };
    format!("{whose}recorded on {}, {}", of(&meta.host), of(&meta.kernel))
}

/// The span that is selected, by the programs' clock.
pub fn span(part: &Part, clocks: Clocks, start: u64, end: u64) -> Result<Span, Cause> {
    let at = |moment: Option<Moment>, default| moment.map_or(default, |moment| position(moment, clocks, start, end));
    let (from_ns, to_ns) = (at(part.from, 0), at(part.to, u64::MAX));
    let recorded = || {
        let [start, end] = [start, end].map(|at| time_of_day(clocks, at, "%H:%M:%S"));
        format!("recorded are {start} to {end}")
    };
    if from_ns >= end || to_ns <= start {
        return Err(format!("nothing was recorded then; {}", recorded()).into());
    }
    if from_ns >= to_ns {
        return Err(format!("--from is not before --to; {}", recorded()).into());
    }
    Ok(Span { from_ns, to_ns })
}

/// A moment by the programs' clock.
fn position(moment: Moment, clocks: Clocks, start: u64, end: u64) -> u64 {
    let ns = |span: Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
    match moment {
        Moment::AfterStart(span) => start.saturating_add(ns(span)),
        Moment::BeforeEnd(span) => end.saturating_sub(ns(span)),
        Moment::OfDay(time) => {
            const DAY: i64 = 86_400_000_000_000;
            let local = |at| {
                clocks
                    .wall_ns(at)
                    .wrapping_add(i64::from(clocks.utc_offset) * 1_000_000_000)
            };
            let midnight = local(start).div_euclid(DAY) * DAY;
            let after = |days: i64| {
                let wall = midnight
                    .saturating_add(days * DAY)
                    .saturating_add(ns(time).cast_signed());
                start.saturating_add_signed(wall.saturating_sub(local(start)))
            };
            // A recording that goes past midnight has early times on its next day.
            let is_next_day = after(0) < start && after(1) <= end;
            after(i64::from(is_next_day))
        }
    }
}

/// Checks that the recording was made with options that cannot be selected afterwards.
///
/// # Errors
/// The option that it was made without, in one line.
pub fn check_recorded(meta: &Meta, measure: &Measure) -> Result<(), Cause> {
    let recorded = &meta.run.filter;
    if measure.scope.is_queued() && !recorded.queued {
        return Err("recorded without -Q: times in the queue are not in it"
            .to_owned()
            .into());
    }
    if measure.target.all_files && !recorded.all_files {
        return Err(
            "recorded without --all-files: sockets, pipes and terminals are not in it"
                .to_owned()
                .into(),
        );
    }
    Ok(())
}

/// Checks that the recording has the whole stack if it is to be reported or drawn.
///
/// # Errors
/// The layers that it was made of, in one line.
fn check_whole(meta: &Meta, options: &Options) -> Result<(), Cause> {
    let output = &options.output;
    let wish = match (output.form, &output.svg) {
        (Form::Folded, _) => "--folded prints",
        (_, Some(_)) => "--svg draws",
        _ if options.measure.scope.is_all_named => "-T all reports",
        _ => return Ok(()),
    };
    if meta.run.stack.is_some() {
        return Ok(());
    }
    let layers: Vec<&str> = meta.run.layers.iter().map(|info| info.layer.name()).collect();
    let layers = layers.join(",");
    Err(format!("recorded with -T {layers}: the whole stack, which {wish}, is not in it; record without -T").into())
}

/// Writes to `-o`, or to standard output, where a closed pipe is not an error.
pub(super) fn write(text: &[u8], options: &Options) -> Result<(), Cause> {
    use std::io::Write;

    match options.output.path.as_deref().filter(|path| path.as_os_str() != "-") {
        Some(path) => std::fs::write(path, text)
            .map_err(|error| Cause::of(format_args!("cannot write '{}'", path.display()), &error)),
        None => match std::io::stdout().write_all(text) {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
                Err(Cause::of("cannot write the report to stdout", &error))
            }
            _ => Ok(()),
        },
    }
}

/// `--lost`: reads all of the recording, and prints what is missing from it.
fn missing(recording: &Recording, options: &Options) -> Result<u8, Cause> {
    let clocks = recording.meta().clocks;
    let time = |at| time_of_day(clocks, at, "%H:%M:%S%.3f");
    let mut lines = Vec::new();
    for records in recording.batches(None, None) {
        for lost in &records.lost {
            lines.push(format!(
                "{}-{}  CPU {}  {}",
                time(lost.from_ns),
                time(lost.to_ns),
                lost.cpu,
                without_record(lost.records, lost.kind, true)
            ));
        }
    }
    // The first one is the start.
    let seconds = recording.seconds().skip(1).count();
    if let Some(end) = recording.end().filter(|end| end.own_writes.requests > 0) {
        lines.push(format!(
            "{} of {} wrote the recording itself: {}",
            counted(end.own_writes.requests, "request"),
            decimal_bytes(end.own_writes.bytes),
            if end.own_writes.requests == 1 {
                "it has no record, and is in the totals"
            } else {
                "they have no record, and are in the totals"
            }
        ));
    }
    lines.extend(remarks(recording));
    if lines.is_empty() {
        lines.push(format!("nothing is missing from {}", counted(seconds as u64, "second")));
    }
    let width = screen(options).width;
    let text: String = lines.iter().map(|line| fitted(line, width) + "\n").collect();
    write(text.as_bytes(), options)?;
    Ok(0)
}

/// A line as the terminal of this width shows it; `None`: it goes to none.
fn fitted(line: &str, width: Option<usize>) -> String {
    let line = printable(line);
    width.map_or_else(|| line.clone(), |width| say::wrapped(&line, width))
}

/// Prints what is wrong with a recording.
pub fn say_damage(recording: &Recording) {
    remarks(recording).iter().for_each(|line| say!("{line}"));
}

/// What is wrong with a recording: what it had no space for, what is damaged, and where it was cut.
fn remarks(recording: &Recording) -> Vec<String> {
    let without_space = recording.end().into_iter().flat_map(|end| &end.not_written);
    let mut lines: Vec<String> = without_space.map(|(kind, rows)| not_written(*rows, *kind)).collect();
    lines.extend(recording.remarks());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn at(moment: Moment, offset_ns: i64) -> u64 {
        let clocks = Clocks {
            offset_ns,
            utc_offset: 3600,
        };
        position(moment, clocks, 1000 * SECOND, 1060 * SECOND)
    }

    #[test]
    fn a_moment_is_found_from_the_start_the_end_and_the_time_of_day() {
        let second = Duration::from_secs(1);
        assert_eq!(at(Moment::AfterStart(second * 10), 0), 1010 * SECOND);
        assert_eq!(at(Moment::BeforeEnd(second * 10), 0), 1050 * SECOND);
        // Began at 01:16:40 local time.
        assert_eq!(at(Moment::OfDay(second * (3600 + 16 * 60 + 50)), 0), 1010 * SECOND);
        // Began at 23:59:30.
        let offset = (86_400 - 30 - 3600 - 1000) * SECOND.cast_signed();
        assert_eq!(at(Moment::OfDay(second * 86_390), offset), 1020 * SECOND);
        assert_eq!(at(Moment::OfDay(second * 10), offset), 1040 * SECOND);
    }

    #[test]
    fn parts_that_follow_each_other_meet_where_counters_were_read() {
        // The second second was read 90 ms, and the third one 300 ms after its end; then the run ended.
        let [start, first, second, end] = [0, 1_002, 2_090, 3_300].map(|ms| 1000 * SECOND + ms * 1_000_000);
        let inner = |from: Option<f64>, to: Option<f64>| {
            let after = |seconds: f64| Moment::AfterStart(Duration::from_secs_f64(seconds));
            let part = Part {
                from: from.map(after),
                to: to.map(after),
                lost: false,
            };
            let wanted = span(&part, Clocks::default(), start, end)
                .map_err(|cause| cause.line)
                .unwrap();
            let (is_inside, span) = inside(&part, wanted, (start, end), &[start, first, second, end]);
            (is_inside, span.from_ns, span.to_ns)
        };
        let at = |ms: u64| start + ms * 1_000_000;
        assert_eq!(inner(None, Some(1.0)), (false, start, first));
        assert_eq!(inner(Some(1.0), Some(1.3)), (true, first, at(1_300)));
        assert_eq!(inner(Some(1.3), Some(2.0)), (true, at(1_300), second));
        assert_eq!(inner(Some(1.3), None), (true, at(1_300), end));
        assert_eq!(inner(None, Some(1.3)), (true, start, at(1_300)));
        assert_eq!(inner(Some(1.0), Some(2.0)), (false, first, second));
        // Too far from any.
        assert_eq!(inner(Some(2.0), Some(3.0)), (true, second, at(3_000)));
        assert_eq!(
            inner(Some(2.0), Some(2.05)),
            (true, at(2_000), at(2_050)),
            "before it was read"
        );
        // Both ends are close to the same one.
        assert_eq!(
            inner(Some(1.0015), Some(1.0025)),
            (true, at(1_001) + 500_000, at(1_002) + 500_000)
        );
        assert_eq!(inner(Some(0.0), Some(0.001)), (true, start, at(1)));
    }

    #[test]
    fn a_span_outside_the_recording_is_refused_with_what_there_is() {
        let clocks = Clocks::default();
        let part = |from, to| Part { from, to, lost: false };
        let after = |seconds| Some(Moment::AfterStart(Duration::from_secs(seconds)));
        let span = |part: &Part| span(part, clocks, 1000 * SECOND, 1060 * SECOND).map_err(|cause| cause.line);
        assert_eq!(span(&part(None, None)), Ok(Span::ALL));
        assert_eq!(
            span(&part(after(60), None)),
            Err("nothing was recorded then; recorded are 00:16:40 to 00:17:40".to_owned())
        );
        assert!(
            span(&part(after(5), after(5)))
                .unwrap_err()
                .starts_with("--from is not before --to")
        );
        assert_eq!(
            span(&part(after(5), after(6))),
            Ok(Span {
                from_ns: 1005 * SECOND,
                to_ns: 1006 * SECOND
            })
        );
    }
}
