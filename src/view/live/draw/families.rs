//! The table of families: their rates, a stacked bar of where their time was spent, and p99 over time.

use super::canvas::{Canvas, Tone, first_that_fits, label, letter, per_second, tiny};
use crate::model::ids::{Family, Row};
use crate::model::report::Report;
use crate::model::report::stack::FamilyReport;
use crate::number::{rounded, thousands};
use crate::view::live::model::{Model, Pane};
use crate::view::text::label::{FILE_SYSTEMS, short};

/// Columns before the bar.
const BEFORE: u16 = 41;

/// Draws it from a line on. Returns the line below it.
pub fn draw(model: &Model, report: &Report, canvas: &mut Canvas<'_>, y: u16) -> u16 {
    let families = model.families();
    let reports: Vec<Option<&FamilyReport>> = families.iter().map(|family| of(report, *family)).collect();
    let most = reports
        .iter()
        .flatten()
        .map(|family| family.total_ns)
        .max()
        .unwrap_or(0);
    // Whole threads, so that the scale seldom changes.
    let length = u64::try_from(report.length.as_nanos()).unwrap_or(u64::MAX).max(1);
    let threads = most.div_ceil(length).max(1);
    let [bar, spark] = columns(canvas.width());
    let seconds = spark.1 as usize * model.seconds_per_column();
    canvas.text(1, y, "FAMILY      call/s threads   avg   p99", Tone::Heading);
    let scale = format!("0..{threads}");
    let left = usize::from(bar.1).saturating_sub(scale.len() + 1);
    canvas.text(
        bar.0,
        y,
        first_that_fits(["WHERE THE TIME IS", "WHERE"], left),
        Tone::Heading,
    );
    canvas.right(bar.0, y, bar.1, &scale, Tone::Dim);
    let [long, short] = [format!("p99, last {seconds} s"), format!("p99 {seconds} s")];
    let over_time = first_that_fits([&long, &short], spark.1.into());
    canvas.cell(spark.0, y, spark.1, over_time, Tone::Heading);
    let selected = model.selected_family();
    let mut line = y + 1;
    for (family, of) in families.iter().zip(reports) {
        let is_selected = Some(*family) == selected && matches!(model.pane, Pane::Overview | Pane::Latency);
        let mark = if is_selected { ">" } else { " " };
        let name = if is_selected { Tone::Selected } else { Tone::Usual };
        canvas.text(0, line, mark, Tone::Usual);
        canvas.cell(1, line, 9, &format!("{:<9}", family.name()), name);
        numbers(of, report, canvas, line);
        if model.is_broken(*family) {
            canvas.text(BEFORE - 2, line, "!", Tone::Guilty);
        }
        if let Some(of) = of {
            stacked(of, threads.saturating_mul(length), canvas, (bar.0, bar.1, line));
        }
        sparkline(model, *family, canvas, (spark.0, spark.1, line));
        line += 1;
    }
    if report.stack.is_none() {
        return y + 1;
    }
    if families.is_empty() {
        canvas.text(1, line, "no I/O calls", Tone::Dim);
        return line + 1;
    }
    legend(report, canvas, line);
    line + 1
}

/// The bars, and p99 over time: first column and width.
fn columns(width: u16) -> [(u16, u16); 2] {
    let room = width.saturating_sub(BEFORE + 1);
    let bar = room * 3 / 5;
    [(BEFORE, bar), (BEFORE + bar + 1, room - bar)]
}

fn of(report: &Report, family: Family) -> Option<&FamilyReport> {
    let stack = report.stack.as_ref()?;
    stack
        .families
        .iter()
        .find(|known| known.family == family && known.count() > 0)
}

fn numbers(of: Option<&FamilyReport>, report: &Report, canvas: &mut Canvas<'_>, y: u16) {
    let Some(of) = of else {
        canvas.right(10, y, 9, "0", Tone::Dim);
        return;
    };
    let time = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), tiny);
    let threads = rounded(u128::from(of.total_ns) * 100, report.length.as_nanos()).unwrap_or(0);
    let threads = format!("{}.{:02}", threads / 100, threads % 100);
    canvas.right(10, y, 9, &thousands(per_second(of.count(), report.length)), Tone::Usual);
    canvas.right(19, y, 8, &threads, Tone::Usual);
    let average = rounded(of.total_ns.into(), of.count().into());
    canvas.right(27, y, 6, &time(average), Tone::Usual);
    canvas.right(33, y, 6, &time(of.histogram.quantile(0.99, of.extremes)), Tone::Usual);
}

/// A letter for each part of the time: the rows in the order of the stack. `full`: the time of a bar that fills the room.
fn stacked(of: &FamilyReport, full: u64, canvas: &mut Canvas<'_>, (x, width, y): (u16, u16, u16)) {
    let is_split = of.is_split();
    let cells = |ns: u64| rounded(u128::from(ns) * u128::from(width), full.into()).unwrap_or(0) as u16;
    let mut sum = 0_u64;
    let mut at = 0;
    for row in &of.rows {
        sum = sum.saturating_add(row.ns.unwrap_or(0));
        let end = cells(sum).min(width);
        let text = letter(row.row, is_split)
            .to_string()
            .repeat(usize::from(end.saturating_sub(at)));
        canvas.cell(x + at, y, width - at, &text, Tone::Row(row.row));
        at = at.max(end);
    }
}

/// p99 of each column of time, on a logarithmic scale from the smallest to the largest one.
fn sparkline(model: &Model, family: Family, canvas: &mut Canvas<'_>, (x, width, y): (u16, u16, u16)) {
    let Some(shown) = &model.shown else { return };
    let scale = model.seconds_per_column();
    // The largest p99 of the seconds of a column: of several seconds together it is not known.
    let value = |column: u16| {
        let last = shown.number.checked_sub(usize::from(width - 1 - column) * scale)?;
        let first = last.saturating_sub(scale - 1);
        let digests = (first..=last).filter_map(|number| model.history.digest(number)?.family(family)?.p99);
        digests.max()
    };
    let values: Vec<Option<u64>> = (0..width).map(value).collect();
    let known = || values.iter().flatten();
    let (Some(least), Some(most)) = (known().min(), known().max()) else {
        return;
    };
    let log = |ns: u64| (ns.max(1) as f64).ln();
    let (low, high) = (log(*least), log(*most));
    let text = values.iter().map(|value| match value {
        None => ' ',
        // Equal ones are a line at the bottom.
        Some(_) if high - low < 0.01 => canvas.level(0.0),
        Some(ns) => canvas.level((log(*ns) - low) / (high - low)),
    });
    let text: String = text.collect();
    canvas.cell(x, y, width, &text, Tone::Usual);
}

/// What the letters mean: of all rows that are measured.
fn legend(report: &Report, canvas: &mut Canvas<'_>, y: u16) {
    let Some(family) = report.stack.as_ref().and_then(|stack| stack.families.first()) else {
        return;
    };
    let is_split = family.is_split();
    let mut known: Vec<(char, Row)> = Vec::new();
    for row in family.rows.iter().filter(|row| row.ns.is_some()) {
        let letter = letter(row.row, is_split);
        if known.iter().all(|(seen, _)| *seen != letter) {
            known.push((letter, row.row));
        }
    }
    let names = |form: Form| -> Vec<&'static str> {
        let name = |(letter, row): &(char, Row)| match letter {
            'f' => form(*letter, file_systems(family)),
            _ => form(*letter, label(*row, is_split)),
        };
        known.iter().map(name).collect()
    };
    // Each with its letter, and a blank after both.
    let columns = |names: &[&str]| names.iter().map(|name| name.len() + 3).sum::<usize>();
    let fits = |names: &Vec<&str>| columns(names) <= usize::from(canvas.width());
    let forms: [Form; 2] = [|_, name| name, shorter];
    let names = forms
        .into_iter()
        .map(names)
        .find(fits)
        .unwrap_or_else(|| names(shortest));
    let mut x = 1;
    for ((letter, row), name) in known.iter().zip(names) {
        x = canvas.text(x, y, &letter.to_string(), Tone::Row(*row));
        x = canvas.text(x + 1, y, name, Tone::Dim) + 1;
    }
}

/// A form of a row's name: of its letter and its whole name.
type Form = fn(char, &'static str) -> &'static str;

/// Of two words, one.
fn shorter(_: char, name: &'static str) -> &'static str {
    match name {
        "others' I/O" => "others",
        "run queue" => "run",
        name => name,
    }
}

/// As in the headings of reports.
fn shortest(letter: char, name: &'static str) -> &'static str {
    match letter {
        'f' => FILE_SYSTEMS,
        _ => short(name),
    }
}

/// All file systems have one letter.
fn file_systems(family: &FamilyReport) -> &'static str {
    let measured = family
        .rows
        .iter()
        .filter(|row| row.ns.is_some() && letter(row.row, true) == 'f');
    match measured.map(|row| row.row.name()).collect::<Vec<_>>()[..] {
        [one] => one,
        _ => "file system",
    }
}
