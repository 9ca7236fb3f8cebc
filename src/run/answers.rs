//! `report` with `--access`, `--seeks` or `--limit`: answers from the records of a recording.

use std::io::IsTerminal;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::analyse::records::Answers;
use crate::analyse::records::names::{Names, Selection};
use crate::args::{Form, Options, Part, Talk, Target};
use crate::cause::Cause;
use crate::model::clock::Clock;
use crate::model::recording::Meta;
use crate::model::report::Filter;
use crate::model::report::records::Questions;
use crate::number::thousands;
use crate::recording::Recording;
use crate::say;
use crate::view::Screen;
use crate::view::json::records as json;
use crate::view::text::records as text;

use super::color;
use super::report::{say_damage, span, write};
use super::selected;

/// Sectors of disks have 512 bytes, whatever the disk itself uses.
const SECTOR: u64 = 512;
/// How often progress is shown.
const STEP: Duration = Duration::from_millis(200);
/// The exit status if a limit is broken.
const BROKEN: u8 = 3;

/// Prints the answers to `questions`. Returns the exit status.
pub fn answers(from: &Path, part: &Part, questions: &Questions, options: &Options) -> Result<u8, Cause> {
    let recording = Recording::open(from)?;
    let meta = recording.meta();
    if !meta.has_records {
        return Err(format!(
            "'{}' has the counters of each second, and no single calls and requests to look at",
            from.display()
        )
        .into());
    }
    let selection = selection(meta, &options.measure.target)?;
    let (start, end) = recording.span();
    let span = span(part, meta.clocks, start, end)?;
    let mut names = Names::new(selection);
    for disk in &meta.disks {
        names.define_disk(
            disk.number,
            disk.name.clone(),
            Some(disk.sectors.saturating_mul(SECTOR)),
        );
    }
    let mut answers = Answers::new(questions, names);
    answers.set_span(span.from_ns.max(start), span.to_ns.min(end));
    let mut counted = 0;
    let mut shown = Instant::now();
    let is_shown = options.measure.talk != Talk::Quiet && say::can_erase();
    for records in recording.batches(Some(span.from_ns), Some(span.to_ns)) {
        counted += records.len() as u64;
        answers.take(&records);
        if is_shown && shown.elapsed() >= STEP {
            shown = Instant::now();
            say::status(&format!("reading: {} records", thousands(counted)));
        }
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
    printed.map_err(|error| Cause::of("cannot write the report", &error))?;
    write(&out, options)?;
    if questions.seeks.is_some() || !questions.limits.is_empty() {
        say_filtered(&meta.run.filter);
    }
    say_damage(&recording);
    let is_broken = report.limits.is_some_and(|limits| limits.is_broken());
    Ok(if is_broken { BROKEN } else { 0 })
}

/// The terminal that the answers go to, if they go to one.
fn screen(options: &Options) -> Screen {
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

/// What is selected, if the recording has it.
fn selection(meta: &Meta, target: &Target) -> Result<Selection, Cause> {
    let pids = selected::pids(meta, target.pids())?;
    if target.cgroup.is_some() {
        return Err("records cannot be selected by --cgroup; record with it"
            .to_owned()
            .into());
    }
    selected::check("--comm", target.comm.as_deref(), meta.run.filter.comm.as_deref())?;
    Ok(Selection {
        pids,
        comm: target.comm.clone(),
        file: target.file.as_ref().map(|path| path.display().to_string()),
        devices: selected::devices(meta, target.disk.as_deref())?,
    })
}
