//! The latencies of a family over time, as a heat map, and beside it the rows of the second that is shown.

use ratatui_core::layout::Rect;

use super::canvas::{Canvas, Tone, label, tiny};
use crate::model::histogram::{STEPS, bounds};
use crate::model::ids::Family;
use crate::model::report::Report;
use crate::number::{percent, thousands};
use crate::view::live::history::FamilyDigest;
use crate::view::live::model::{Model, Shown};

/// Columns of the labels of latencies.
const LABELS: u16 = 7;
/// Columns of the rows, where there is room for both.
const ROWS: u16 = 38;
const BOTH: u16 = 78;

/// Lines that it needs: a heading, one of latencies, and the axis.
pub const LOWEST: u16 = 3;

pub fn draw(model: &Model, canvas: &mut Canvas<'_>, area: Rect) {
    let (Some(shown), Some(family)) = (&model.shown, model.selected_family()) else {
        return;
    };
    if area.height < LOWEST {
        return;
    }
    let has_rows = area.width >= BOTH;
    let map = Rect {
        width: if has_rows { area.width - ROWS } else { area.width },
        ..area
    };
    let scale = model.seconds_per_column();
    canvas.heading(area.y, &format!("latency of {family}: how many calls"));
    heat_map(model, shown, family, canvas, map);
    axis(scale, canvas, map);
    if has_rows {
        let beside = Rect {
            x: area.x + map.width,
            width: ROWS,
            ..area
        };
        rows(&shown.report, family, canvas, beside);
    }
}

/// The steps of the histogram that a line has: `lines` lines, the first of which begins at step `from`, with `each` steps.
struct Lines {
    from: usize,
    each: usize,
}

impl Lines {
    /// Whole powers of two, so that all steps from `low` to `high` fit.
    fn fitting(low: usize, high: usize, lines: usize) -> Self {
        let lines = lines.max(1);
        let each = |each: &usize| {
            let from = low / each * each;
            from + each * lines > high
        };
        // Half a power of two is the finest: the axis would be hard to read below.
        let sizes = (2..=6).map(|power| 1_usize << power);
        let each = sizes.into_iter().find(each).unwrap_or(STEPS);
        Self {
            from: low / each * each,
            each,
        }
    }

    fn line(&self, step: usize) -> usize {
        step.saturating_sub(self.from) / self.each
    }
}

fn heat_map(model: &Model, shown: &Shown, family: Family, canvas: &mut Canvas<'_>, area: Rect) {
    let width = area.width.saturating_sub(LABELS + 2);
    let height = usize::from(area.height.saturating_sub(2));
    let scale = model.seconds_per_column();
    let columns: Vec<Vec<&FamilyDigest>> = (0..width)
        .map(|column| {
            let Some(last) = shown.number.checked_sub(usize::from(width - 1 - column) * scale) else {
                return Vec::new();
            };
            let first = last.saturating_sub(scale - 1);
            let digests = (first..=last).filter_map(|number| model.history.digest(number)?.family(family));
            digests.collect()
        })
        .collect();
    // The steps of a digest ascend.
    let lowest = |digest: &&FamilyDigest| digest.steps.first().map(|(step, _)| usize::from(*step));
    let highest = |digest: &&FamilyDigest| digest.steps.last().map(|(step, _)| usize::from(*step));
    let digests = || columns.iter().flatten();
    let (Some(low), Some(high)) = (digests().filter_map(lowest).min(), digests().filter_map(highest).max()) else {
        return;
    };
    let lines = Lines::fitting(low, high, height);
    // Each step is in many seconds.
    let line_of: Vec<usize> = (0..STEPS).map(|step| lines.line(step)).collect();
    // Column by column.
    let mut cells = vec![0_u64; columns.len() * height];
    for (digests, cells) in columns.iter().zip(cells.chunks_mut(height.max(1))) {
        for (step, calls) in digests.iter().flat_map(|digest| &digest.steps) {
            let line = line_of.get(usize::from(*step));
            if let Some(cell) = line.and_then(|line| cells.get_mut(*line)) {
                *cell = cell.saturating_add(*calls);
            }
        }
    }
    let shades = Shades::up_to(cells.iter().copied().max().unwrap_or(0));
    for line in 0..height {
        let y = area.y + 1 + (height - 1 - line) as u16;
        let (from, _) = bounds((lines.from + line * lines.each).min(STEPS - 1));
        canvas.right(area.x, y, LABELS - 1, &tiny(from), Tone::Dim);
        let cells = cells.iter().skip(line).step_by(height);
        let text: String = cells.map(|calls| canvas.shade(shades.of(*calls))).collect();
        canvas.cell(area.x + LABELS, y, width, &text, Tone::Usual);
    }
}

/// Shades on a logarithmic scale: 0 is empty, 4 is the largest number of calls.
struct Shades {
    /// The most calls that still have shades 1, 2 and 3, plus 1.
    up_to: [f64; 3],
}

impl Shades {
    fn up_to(most: u64) -> Self {
        let quarter = (most.max(1) as f64 + 1.0).sqrt().sqrt();
        Self {
            up_to: [1, 2, 3].map(|quarters| quarter.powi(quarters)),
        }
    }

    fn of(&self, calls: u64) -> usize {
        if calls == 0 {
            return 0;
        }
        1 + self.up_to.iter().filter(|most| calls as f64 + 1.0 > **most).count()
    }
}

/// `-60 s    -45 s     now`
fn axis(scale: usize, canvas: &mut Canvas<'_>, area: Rect) {
    let y = area.y + area.height - 1;
    let width = area.width.saturating_sub(LABELS + 2);
    canvas.right(area.x + LABELS, y, width, "now", Tone::Dim);
    for back in (15..width).step_by(15) {
        let text = format!("-{} s", usize::from(back) * scale);
        let end = width - back;
        // The number ends in the column that it names.
        if usize::from(end) > text.len() {
            canvas.right(area.x + LABELS, y, end, &text, Tone::Dim);
        }
    }
}

/// The rows of the second that is shown, in the order of the stack.
fn rows(report: &Report, family: Family, canvas: &mut Canvas<'_>, area: Rect) {
    let stack = report.stack.iter().flat_map(|stack| &stack.families);
    let Some(of) = stack.into_iter().find(|known| known.family == family) else {
        return;
    };
    let is_split = of.is_split();
    let largest = of.rows.iter().filter_map(|row| row.ns).max().filter(|ns| *ns > 0);
    canvas.cell(
        area.x,
        area.y,
        area.width,
        &format!(" {family}: {} calls ", thousands(of.count())),
        Tone::Heading,
    );
    let mut shown: Vec<_> = of.rows.iter().filter(|row| row.ns != Some(0)).collect();
    // The largest are shown if there is no room for all.
    if shown.len() + 1 > usize::from(area.height) {
        shown.sort_by_key(|row| std::cmp::Reverse(row.ns));
    }
    for (line, row) in shown
        .iter()
        .take(usize::from(area.height.saturating_sub(1)))
        .enumerate()
    {
        let y = area.y + 1 + line as u16;
        let name = label(row.row, is_split);
        match row.ns {
            None => {
                canvas.cell(area.x + 1, y, 12, name, Tone::Dim);
                canvas.cell(area.x + 14, y, 14, "not measured", Tone::Dim);
            }
            Some(ns) => {
                let is_largest = largest == Some(ns);
                canvas.cell(
                    area.x + 1,
                    y,
                    12,
                    name,
                    if is_largest { Tone::Guilty } else { Tone::Usual },
                );
                canvas.right(area.x + 13, y, 8, &percent(ns, of.total_ns), Tone::Usual);
                let part = ns as f64 / of.total_ns.max(1) as f64;
                canvas.bar(area.x + 22, y, area.width.saturating_sub(23), part, Tone::Row(row.row));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_hold_all_steps_and_are_as_fine_as_possible() {
        for (low, high, lines) in [
            (80, 95, 5),
            (80, 200, 5),
            (0, STEPS - 1, 3),
            (100, 100, 1),
            (100, 180, 40),
        ] {
            let of = Lines::fitting(low, high, lines);
            assert!(
                of.from <= low && of.from + of.each * lines > high,
                "{low} {high} {lines}"
            );
        }
        assert_eq!(Lines::fitting(80, 95, 5).each, 4);
        assert_eq!(Lines::fitting(80, 119, 5).each, 8);
    }

    #[test]
    fn shades_are_logarithmic_and_one_call_is_seen() {
        let shades = |most, calls: [u64; 5]| calls.map(|calls| Shades::up_to(most).of(calls));
        assert_eq!(shades(1000, [0, 1, 10, 100, 1000]), [0, 1, 2, 3, 4]);
        // 2^k - 1 calls are k quarters of 15.
        assert_eq!(shades(15, [1, 2, 3, 7, 15]), [1, 2, 2, 3, 4]);
        assert_eq!(Shades::up_to(u64::MAX).of(1), 1);
        assert_eq!(Shades::up_to(1).of(1), 4);
    }
}
