//! `report`: prints reports of a recording.

use std::path::Path;
use std::time::Duration;

use crate::args::{Form, Measure, Moment, Options, Part};
use crate::cause::Cause;
use crate::filter::Filter;
use crate::model::recording::{Clocks, Meta};
use crate::number::thousands;
use crate::recording::{Recording, Replayed, Span};
use crate::say;
use crate::source::Until;
use crate::view::text::counted;
use crate::view::text::number::length;

use super::install_signals;
use super::record::time_of_day;
use super::session::Session;
use super::sinks::Sinks;

/// Prints what `options` select of a recording. Returns the exit status.
pub fn report(from: &Path, part: &Part, options: &Options) -> Result<u8, Cause> {
    let signals = install_signals()?;
    let recording = Recording::open(from)?;
    if part.lost {
        return missing(&recording, options);
    }
    check_selection(recording.meta(), &options.measure)?;
    let sinks = Sinks::open(options)?;
    let (start, end) = recording.span();
    if end <= start {
        return Err(format!("'{}' has nothing in it: it was cut in its first second", from.display()).into());
    }
    let span = span(part, recording.meta().clocks, start, end)?;
    let interval = options.span.intervals.map(|intervals| intervals.length);
    let mut source = Replayed::new(&recording, span, interval);
    if let Some(count) = options.span.intervals.and_then(|intervals| intervals.count) {
        source.limit(count);
    }
    if matches!(options.output.form, Form::Text { .. }) && options.output.export_json.is_none() {
        source.set_subject(heading(recording.meta()));
    }
    let mut session = Session::begin(source, Filter::default(), sinks, None)?;
    session.show_beginning(&session.first_report())?;
    session.pass(Until::End)?;
    session.finish(&signals)?;
    say_trigger(&recording);
    say_damage(&recording);
    Ok(0)
}

/// What made a ring be written.
fn say_trigger(recording: &Recording) {
    if let Some(end) = recording.end().filter(|end| !end.trigger.is_empty()) {
        say!("triggered by: {}", end.trigger);
    }
}

/// `PID 4711 (postgres), recorded on db7, 6.1.0-50-amd64`
fn heading(meta: &Meta) -> String {
    let of = |text: &str| crate::printable::printable(text);
    let whose = match &*meta.run.subject {
        "" => String::new(),
        subject => format!("{subject}, "),
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

/// Checks that the recording has what is selected: its counters are those of all that was recorded.
fn check_selection(meta: &Meta, measure: &Measure) -> Result<(), Cause> {
    let recorded = &meta.run.filter;
    let target = &measure.target;
    let text = |path: &Option<std::path::PathBuf>| path.as_ref().map(|path| path.display().to_string());
    let numbers = |pids: &[u32]| pids.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let pids = (!target.pids().is_empty()).then(|| numbers(target.pids()));
    let recorded_pids = (!recorded.pids.is_empty()).then(|| numbers(&recorded.pids));
    let choices = [
        ("-p", pids, recorded_pids),
        ("-d", target.disk.clone(), recorded.disk.clone()),
        ("--cgroup", text(&target.cgroup), recorded.cgroup.clone()),
        ("--comm", target.comm.clone(), recorded.comm.clone()),
        ("--file", text(&target.file), recorded.file.clone()),
    ];
    for (option, wanted, recorded) in choices {
        let Some(wanted) = wanted else { continue };
        match recorded {
            Some(recorded) if recorded == wanted => {}
            Some(recorded) => {
                return Err(format!("recorded with {option} {recorded}: others are not in it").into());
            }
            None => {
                return Err(format!(
                    "{option} {wanted} cannot be selected: the recording has the counters of each second, and no single calls; \
                     record with {option} {wanted}"
                )
                .into());
            }
        }
    }
    if measure.scope.is_queued() && !recorded.queued {
        return Err("recorded without -Q: times in the queue are not in it"
            .to_owned()
            .into());
    }
    if target.all_files && !recorded.all_files {
        return Err(
            "recorded without --all-files: sockets, pipes and terminals are not in it"
                .to_owned()
                .into(),
        );
    }
    if let Some(groups) = measure.scope.groups()
        && meta.run.by != Some(groups.by)
    {
        return Err(match meta.run.by {
            Some(by) => format!(
                "recorded with --by {by}: --by {} needs a recording of its own",
                groups.by
            ),
            None => format!("recorded without --by {}: record with it", groups.by),
        }
        .into());
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

/// Writes to `-o`, or to standard output, where a closed pipe is not an error.
pub(super) fn write(text: &[u8], options: &Options) -> Result<(), Cause> {
    use std::io::Write;

    let cannot = |error: &std::io::Error| Cause::of("cannot write the report", error);
    match options.output.path.as_deref().filter(|path| path.as_os_str() != "-") {
        Some(path) => std::fs::write(path, text).map_err(|error| cannot(&error)),
        None => match std::io::stdout().write_all(text) {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(cannot(&error)),
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
                "{}-{}  CPU {}  {} {} have no record; they are in the totals",
                time(lost.from_ns),
                time(lost.to_ns),
                lost.cpu,
                thousands(lost.records),
                lost.kind
            ));
        }
    }
    // The first one is the start.
    let seconds = recording.seconds().skip(1).count();
    if let Some(end) = recording.end() {
        for (kind, rows) in &end.not_written {
            lines.push(format!("at the end: {} {kind} could not be written", thousands(*rows)));
        }
    }
    lines.extend(damage(recording));
    if lines.is_empty() {
        lines.push(format!("nothing is missing from {}", counted(seconds as u64, "second")));
    }
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    write(text.as_bytes(), options)?;
    Ok(0)
}

/// What is wrong with a recording, in lines.
fn damage(recording: &Recording) -> Vec<String> {
    let clocks = recording.meta().clocks;
    let mut lines = Vec::new();
    for damage in recording.damage() {
        let span = damage.span.map_or_else(String::new, |(from, to)| {
            let [from, to] = [from, to].map(|at| time_of_day(clocks, at, "%H:%M:%S%.3f"));
            format!(" ({from} to {to})")
        });
        lines.push(format!("{}: {}{span}", damage.file, damage.what));
    }
    if recording.is_cut() {
        let (start, end) = recording.span();
        lines.push(format!(
            "the recording was cut: it has {} up to {}",
            length(Duration::from_nanos(end.saturating_sub(start))),
            time_of_day(clocks, end, "%H:%M:%S%.3f")
        ));
    }
    lines
}

/// Prints what is wrong with a recording.
pub fn say_damage(recording: &Recording) {
    damage(recording).iter().for_each(|line| say!("{line}"));
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
