//! Groups, open files, slow calls, disks and limits.

use std::time::Duration;

use ratatui_core::layout::Rect;

use super::canvas::{Canvas, Tone, label, per_second, tiny};
use super::time_of_day;
use crate::model::report::slow::SlowCall;
use crate::number::{decimal_bytes, percent, rounded, thousands, time_each};
use crate::view::live::list::{Dimension, Group, OpenFile, Sort, Tail};
use crate::view::live::model::{Model, Pane};

/// The first line that is shown of a list, so that the selected one is visible.
fn first_line(selected: usize, lines: usize, room: usize) -> usize {
    let last = lines.saturating_sub(room);
    selected.saturating_sub(room.saturating_sub(1)).min(last)
}

fn is_selectable(model: &Model, pane: Pane) -> bool {
    model.pane == pane
}

/// A column of numbers: its heading and its width.
type Column = (&'static str, u16);

/// Draws why there is no list under its title.
fn instead(canvas: &mut Canvas<'_>, area: Rect, title: &str, why: &str) {
    canvas.heading(area.y, title);
    canvas.sentence(area.y + 1, why, Tone::Dim);
}

/// Names, and columns of numbers at the right edge.
struct Table<'a> {
    columns: &'a [Column],
    /// The first cell, and the width of the names.
    x: u16,
    names: u16,
}

/// The columns that those of numbers leave to names.
fn room_of_names(area: Rect, columns: &[Column]) -> u16 {
    let numbers: u16 = columns.iter().map(|(_, width)| width).sum();
    area.width.saturating_sub(numbers + 2)
}

/// Draws the headings of a table.
fn headings<'a>(canvas: &mut Canvas<'_>, area: Rect, name: &str, columns: &'a [Column], sorted: &str) -> Table<'a> {
    let names = room_of_names(area, columns);
    canvas.heading(area.y, name);
    let mut x = area.x + 1 + names;
    for (heading, width) in columns {
        let tone = if *heading == sorted {
            Tone::Selected
        } else {
            Tone::Heading
        };
        canvas.cell(
            x,
            area.y,
            *width,
            &format!("{heading:>width$}", width = usize::from(*width)),
            tone,
        );
        x += width;
    }
    let x = area.x;
    Table { columns, x, names }
}

impl Table<'_> {
    /// Draws a line, with a cell for each column.
    fn row(&self, canvas: &mut Canvas<'_>, y: u16, name: &str, cells: &[String], tone: Tone) {
        if tone == Tone::Selected {
            canvas.fill(y, tone);
        }
        let of_names = if tone == Tone::Selected {
            Tone::Selected
        } else {
            Tone::Usual
        };
        let name = canvas.name(name, self.names.into());
        canvas.cell(self.x + 1, y, self.names, &name, of_names);
        let mut at = self.x + 1 + self.names;
        for (cell, (_, width)) in cells.iter().zip(self.columns) {
            canvas.right(at, y, *width, cell, tone);
            at += width;
        }
    }
}

pub fn groups(model: &Model, canvas: &mut Canvas<'_>, area: Rect) {
    let Some(shown) = &model.shown else { return };
    let names = Dimension::ALL.map(|of| {
        if of == model.dimension {
            format!("[{}]", of.name())
        } else {
            of.name().to_owned()
        }
    });
    let title = names.join(" ");
    let all = match model.groups() {
        Ok(all) => all,
        Err(why) => {
            instead(canvas, area, &title, &why);
            return;
        }
    };
    let sorted = match model.sort {
        Sort::Calls => "call/s",
        Sort::Time => "threads",
        Sort::Bytes => "B/s",
        Sort::Tail => "p99",
        Sort::Name => "",
    };
    let is_wide = area.width >= 100;
    let columns: &[Column] = if is_wide {
        &[
            ("call/s", 10),
            ("threads", 9),
            ("share", 8),
            ("B/s", 10),
            ("p99", 8),
            ("mostly", 20),
        ]
    } else {
        &[("call/s", 9), ("threads", 8), ("p99", 7), ("mostly", 18)]
    };
    let title = if title.len() <= usize::from(room_of_names(area, columns)) {
        title
    } else {
        format!("[{}]", model.dimension.name())
    };
    let table = headings(canvas, area, &title, columns, sorted);
    let room = usize::from(area.height.saturating_sub(1));
    let selected = is_selectable(model, Pane::Groups).then(|| {
        let keys: Vec<String> = all.iter().map(|group| group.name.clone()).collect();
        model.selected_line(&keys)
    });
    let first = selected.map_or(0, |selected| first_line(selected, all.len(), room));
    let total: u64 = all.iter().map(|group| group.ns).fold(0, u64::saturating_add);
    let is_split = shown
        .report
        .stack
        .iter()
        .flat_map(|stack| &stack.families)
        .any(|family| family.is_split());
    for (line, group) in all.iter().enumerate().skip(first).take(room) {
        let cells = cells(group, shown.report.length, total, (is_wide, is_split));
        let tone = if Some(line) == selected {
            Tone::Selected
        } else {
            Tone::Usual
        };
        table.row(canvas, area.y + 1 + (line - first) as u16, &group.name, &cells, tone);
    }
    if all.is_empty() {
        canvas.text(1, area.y + 1, "none", Tone::Dim);
    }
}

fn cells(group: &Group, length: Duration, total: u64, (is_wide, is_split): (bool, bool)) -> Vec<String> {
    let threads = rounded(u128::from(group.ns) * 100, length.as_nanos()).unwrap_or(0);
    let tail = match group.tail {
        None => "-".to_owned(),
        Some(Tail::P99(ns)) => tiny(ns),
        Some(Tail::Longest(ns)) => format!("<{}", tiny(ns)),
    };
    let mostly = group.mostly.map_or_else(String::new, |(row, ns)| {
        let share = rounded(u128::from(ns) * 100, group.ns.into()).unwrap_or(0);
        format!("{} {share} %", label(row, is_split))
    });
    let calls = thousands(per_second(group.calls, length));
    let threads = format!("{}.{:02}", threads / 100, threads % 100);
    if !is_wide {
        return vec![calls, threads, tail, mostly];
    }
    let bytes = match group.bytes {
        0 => "-".to_owned(),
        n => decimal_bytes(per_second(n, length)),
    };
    vec![calls, threads, percent(group.ns, total), bytes, tail, mostly]
}

pub fn open_files(model: &Model, (pid, name): (u64, &str), canvas: &mut Canvas<'_>, area: Rect) {
    let Some(shown) = &model.shown else { return };
    let title = format!("open files of {name}");
    let files = match model.open_files(pid) {
        Ok(files) => files,
        Err(why) => {
            instead(canvas, area, &title, &why);
            return;
        }
    };
    let columns: &[Column] = &[
        ("read/s", 10),
        ("write/s", 10),
        ("call/s", 9),
        ("inside", 8),
        ("longest", 8),
    ];
    let sorted = match model.sort {
        Sort::Calls => "call/s",
        Sort::Time => "inside",
        Sort::Tail => "longest",
        Sort::Bytes | Sort::Name => "",
    };
    let table = headings(canvas, area, &title, columns, sorted);
    let room = usize::from(area.height.saturating_sub(1));
    let selected = model.selected_line(&model.keys().unwrap_or_default());
    let first = first_line(selected, files.len(), room);
    let length = shown.report.length;
    for (line, file) in files.iter().enumerate().skip(first).take(room) {
        let cells = file_cells(file, length);
        let fd = file.fd.map_or_else(|| "-".to_owned(), |fd| fd.to_string());
        let tone = if line == selected { Tone::Selected } else { Tone::Usual };
        let name = format!(
            "{fd:>4}  {}",
            canvas.name(&file.name, usize::from(table.names).saturating_sub(6))
        );
        table.row(canvas, area.y + 1 + (line - first) as u16, &name, &cells, tone);
    }
    if files.is_empty() {
        canvas.text(1, area.y + 1, "no calls on open files in this second", Tone::Dim);
    }
}

fn file_cells(file: &OpenFile, length: Duration) -> [String; 5] {
    let bytes = |n: u64| match n {
        0 => "-".to_owned(),
        n => decimal_bytes(per_second(n, length)),
    };
    [
        bytes(file.read_bytes),
        bytes(file.written_bytes),
        thousands(per_second(file.calls, length)),
        tiny(per_second(file.ns, length)),
        tiny(file.longest_ns),
    ]
}

pub fn slow_calls(model: &Model, canvas: &mut Canvas<'_>, area: Rect) {
    let Some(slower_ns) = model.facts.slower_ns else {
        instead(canvas, area, "slow calls", "the recording has no single calls");
        return;
    };
    let (calls, left_out) = model.slow_calls();
    let more = match left_out {
        0 => String::new(),
        n => format!(", {} more not shown", thousands(n)),
    };
    canvas.heading(area.y, &format!("slow calls: {} or longer{more}", time_each(slower_ns)));
    let room = usize::from(area.height.saturating_sub(1));
    let is_list = is_selectable(model, Pane::SlowCalls);
    let selected = model.selected_line(&model.keys().unwrap_or_default());
    let first = if is_list {
        first_line(selected, calls.len(), room)
    } else {
        0
    };
    for (line, call) in calls.iter().enumerate().skip(first).take(room) {
        let y = area.y + 1 + (line - first) as u16;
        let tone = if is_list && line == selected {
            Tone::Selected
        } else {
            Tone::Usual
        };
        if tone == Tone::Selected {
            canvas.fill(y, tone);
        }
        slow_call(call, model.facts.utc_offset, canvas, (area, y), tone);
    }
    if calls.is_empty() {
        canvas.text(1, area.y + 1, "none", Tone::Dim);
    }
}

fn slow_call(call: &SlowCall, utc_offset: i32, canvas: &mut Canvas<'_>, (area, y): (Rect, u16), tone: Tone) {
    // Without milliseconds there is room for the row, which is why the call is listed.
    let (time, names) = match area.width {
        120.. => (12, 24),
        78.. => (12, 16),
        _ => (8, 13),
    };
    let x = canvas.cell(area.x + 1, y, time, &time_of_day(call.ended, utc_offset), tone) + 1;
    canvas.right(x, y, 6, &tiny(call.total_ns), tone);
    let x = x + 7;
    let op = canvas.name(call.op.name(), 11);
    canvas.cell(x, y, 11, &op, tone);
    let x = x + 12;
    let process = format!("{} {}", call.comm, call.pid);
    let process = canvas.name(&process, names.into());
    canvas.cell(x, y, names, &process, tone);
    let x = x + names + 1;
    let largest = call.rows.iter().max_by_key(|row| row.ns);
    let largest = largest.map_or_else(
        || "-".to_owned(),
        |row| {
            let share = rounded(u128::from(row.ns) * 100, call.total_ns.into()).unwrap_or(0);
            format!("*{} {share} %", label(row.row, !call.not_split))
        },
    );
    let guilty = if tone == Tone::Selected { tone } else { Tone::Guilty };
    canvas.cell(x, y, 17, &largest, guilty);
    let x = x + 18;
    let path = call.path.as_ref().map_or("…", |path| &path.text);
    let room = area.width.saturating_sub(x);
    let path = canvas.name(path, room.into());
    canvas.cell(x, y, room, &path, tone);
}

pub fn disks(model: &Model, canvas: &mut Canvas<'_>, area: Rect) {
    let Some(shown) = &model.shown else { return };
    let moment = shown.beside.moment.as_ref().map(|moment| &moment.disks);
    let disks = shown.beside.disks.as_ref().or(moment);
    let Some(disks) = disks else {
        instead(
            canvas,
            area,
            "disks",
            "the recording has no single requests: their use is not known",
        );
        return;
    };
    let is_wide = area.width >= 100;
    let columns: &[Column] = if is_wide {
        &[
            ("requests/s", 12),
            ("read/s", 11),
            ("write/s", 11),
            ("depth", 8),
            ("max", 6),
            ("used", 8),
        ]
    } else {
        &[("requests/s", 12), ("depth", 8), ("used", 8)]
    };
    let table = headings(canvas, area, "disks", columns, "");
    let room = usize::from(area.height.saturating_sub(1));
    // The busiest first; those that were never used are counted.
    let mut busy: Vec<_> = disks
        .iter()
        .filter(|disk| disk.requests > 0 || disk.busy_ns > 0)
        .collect();
    busy.sort_by(|a, b| b.busy_ns.cmp(&a.busy_ns).then_with(|| a.name.cmp(&b.name)));
    for (line, disk) in busy.iter().take(room).enumerate() {
        let y = area.y + 1 + line as u16;
        let span = Duration::from_nanos(disk.span_ns);
        let bytes = |n: Option<u64>| n.map_or_else(|| "-".to_owned(), |n| decimal_bytes(per_second(n, span)));
        let depth = rounded(u128::from(disk.requests_ns) * 100, disk.span_ns.into()).unwrap_or(0);
        let depth = format!("{}.{:02}", depth / 100, depth % 100);
        let requests = thousands(per_second(disk.requests, span));
        let used = percent(disk.busy_ns.min(disk.span_ns), disk.span_ns);
        let cells = if is_wide {
            let max = disk.max_depth.map_or_else(|| "-".to_owned(), thousands);
            vec![
                requests,
                bytes(disk.read_bytes),
                bytes(disk.written_bytes),
                depth,
                max,
                used,
            ]
        } else {
            vec![requests, depth, used]
        };
        table.row(canvas, y, &disk.name, &cells, Tone::Usual);
        let name = disk.name.chars().count() as u16 + 3;
        let part = disk.busy_ns as f64 / disk.span_ns.max(1) as f64;
        canvas.bar(area.x + name, y, table.names.saturating_sub(name + 1), part, Tone::Dim);
    }
    if busy.is_empty() {
        canvas.text(1, area.y + 1, "no requests", Tone::Dim);
    }
}

pub fn limits(model: &Model, canvas: &mut Canvas<'_>, area: Rect) {
    if model.facts.limits.is_empty() {
        let how = "none; --limit read=10ms,fsync=50ms,device=20ms marks what takes longer";
        instead(canvas, area, "limits", how);
        return;
    }
    let columns: &[Column] = &[("limit", 10), ("broken", 12), ("of", 12)];
    let table = headings(canvas, area, "limits, in this second", columns, "");
    let mut is_counted = false;
    for (index, limit) in model
        .facts
        .limits
        .iter()
        .enumerate()
        .take(usize::from(area.height.saturating_sub(2)))
    {
        let y = area.y + 1 + index as u16;
        let (broken, of, tone) = match model.broken(index) {
            None => ("-".to_owned(), "-".to_owned(), Tone::Dim),
            Some((broken, all, is_exact)) => {
                is_counted |= !is_exact;
                let tone = if broken > 0 { Tone::Guilty } else { Tone::Usual };
                (thousands(broken), thousands(all), tone)
            }
        };
        let cells = [tiny(limit.ns), broken, of];
        table.row(canvas, y, limit.of.name(), &cells, tone);
    }
    if is_counted {
        let line = "from counters: those in the limit's step of the histogram do not count";
        canvas.sentence(area.y + area.height - 1, line, Tone::Dim);
    }
}

#[cfg(test)]
mod tests {
    use super::first_line;

    #[test]
    fn the_selected_line_is_visible() {
        for lines in 0..20 {
            for room in 1..8 {
                for selected in 0..lines {
                    let first = first_line(selected, lines, room);
                    assert!(
                        (first..first + room).contains(&selected),
                        "{selected} of {lines} in {room}"
                    );
                    assert!(first + room <= lines.max(room));
                }
            }
        }
    }
}
