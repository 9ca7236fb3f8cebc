//! `report` with `--access`, `--seeks` or `--limit`: answers from the records of a recording.

use std::io::IsTerminal;
use std::path::Path;

use crate::analyse::records::Answers;
use crate::analyse::records::names::Names;
use crate::args::{Form, Options, Part, Talk};
use crate::cause::Cause;
use crate::model::clock::Clock;
use crate::model::ids::{Layer, joined};
use crate::model::report::Filter;
use crate::model::report::records::{Limited, Questions};
use crate::number::thousands;
use crate::recording::Unneeded;
use crate::say;
use crate::view::Screen;
use crate::view::json::records as json;
use crate::view::text::records as text;

use super::color;
use super::progress::Paced;
use super::report::{open_records, say_damage, span, write};
use super::selected;

/// The exit status if a limit is broken.
const BROKEN: u8 = 3;

/// Prints the answers to `questions`. Returns the exit status.
pub fn answers(from: &Path, part: &Part, questions: &Questions, options: &Options) -> Result<u8, Cause> {
    let recording = open_records(from, "look at")?;
    let meta = recording.meta();
    let selection = selected::selection(meta, &options.measure.target)?;
    if options.measure.scope.is_named() {
        return Err("-T selects reports; the answers have all levels".to_owned().into());
    }
    let layers: Vec<Layer> = meta.run.layers.iter().map(|info| info.layer).collect();
    check_recorded(questions, &layers)?;
    let (start, end) = recording.span();
    let span = span(part, meta.clocks, start, end)?;
    let mut names = Names::of(meta, selection);
    if !names.selection().is_all() {
        recording.definitions().for_each(|records| names.learn(&records));
        selected::check_found(&names, &recording)?;
    }
    let mut answers = Answers::new(questions, names);
    answers.set_span(span.from_ns.max(start), span.to_ns.min(end));
    let mut counted = 0;
    let mut shown = Paced::new(options.measure.talk != Talk::Quiet);
    let batches = recording.batches(Some(span.from_ns), Some(span.to_ns));
    for records in batches.without(&[Unneeded::Waits, Unneeded::Sleeps]).ahead() {
        counted += records.len() as u64;
        answers.take(&records);
        shown.show(|| format!("reading: {} records", thousands(counted)));
    }
    say::erase();
    let report = answers.finish();
    let clock = Clock {
        zero_ns: meta.clocks.offset_ns,
        utc_offset: meta.clocks.utc_offset,
    };
    let mut out = Vec::new();
    let printed = match options.output.form {
        Form::Json(_) => json::print(&report, clock, &mut out),
        Form::Text { .. } | Form::Folded => text::print(&report, clock, screen(options), &mut out),
    };
    printed.map_err(|error| Cause::of("cannot make the report", &error))?;
    write(&out, options)?;
    if questions.seeks.is_some() || !questions.limits.is_empty() {
        say_filtered(&meta.run.filter);
    }
    say_damage(&recording);
    let is_broken = report.limits.is_some_and(|limits| limits.is_broken());
    Ok(if is_broken { BROKEN } else { 0 })
}

/// Whether what is asked about is among the recorded layers. None of an earlier version's recording are known.
///
/// # Errors
/// If not, in one line: that nothing was found would look like an answer.
fn check_recorded(questions: &Questions, layers: &[Layer]) -> Result<(), Cause> {
    let of_limits = questions.limits.iter().map(|limit| match limit.of {
        Limited::Queue | Limited::Device => (Layer::Blk, "requests"),
        Limited::Family(_) | Limited::Op(_) => (Layer::Syscall, "calls"),
    });
    let of_seeks = questions.seeks.map(|_| (Layer::Blk, "requests"));
    let mut needed = of_limits.chain(of_seeks);
    match needed.find(|(layer, _)| !layers.is_empty() && !layers.contains(layer)) {
        Some((_, what)) => {
            let recorded = joined(layers, Layer::name).replace(", ", ",");
            Err(format!("recorded with -T {recorded}: {what} are not in it").into())
        }
        None => Ok(()),
    }
}

/// The terminal that the answers go to, if they go to one.
pub fn screen(options: &Options) -> Screen {
    let stdout = std::io::stdout();
    let is_screen = options
        .output
        .path
        .as_deref()
        .is_none_or(|path| path.as_os_str() == "-");
    let width = is_screen.then(|| terminal_size::terminal_size_of(&stdout)).flatten();
    Screen {
        width: width.map(|(width, _)| width.0.into()),
        height: None,
        is_colored: color::is_colored(options.output.color, is_screen && stdout.is_terminal()),
    }
}

/// Requests of others are needed to know distances and what disks served.
fn say_filtered(filter: &Filter) {
    if filter.is_by_process() {
        say!(
            "note: only selected processes were recorded: requests of others are in no distance, and are not among what was served"
        );
    }
}
