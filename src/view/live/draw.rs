//! Draws the state. All names pass the filter for terminals; in a terminal without UTF-8, everything is ASCII.

mod canvas;
mod families;
mod help;
mod latency;
mod lists;

use jiff::tz::Offset;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;

use self::canvas::{Canvas, Tone, first_that_fits};
use super::model::{Model, Pane, Shows};
use crate::model::report::Report;
use crate::number::thousands;

/// What the terminal can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    pub is_utf8: bool,
    pub is_colored: bool,
}

/// The smallest screen on which something can be seen.
pub const SMALLEST: (u16, u16) = (60, 14);

/// Draws the whole screen.
pub fn draw(model: &Model, look: Look, area: Rect, buffer: &mut Buffer) {
    let mut canvas = Canvas::new(buffer, area, look);
    if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
        let needed = format!("{} x {} is needed; q quits", SMALLEST.0, SMALLEST.1);
        let line = format!("{} x {} is too small: {needed}", area.width, area.height);
        canvas.text(0, 0, first_that_fits([&line, &needed], area.width.into()), Tone::Lost);
        return;
    }
    if model.has_help {
        help::draw(model, &mut canvas);
        return;
    }
    header(model, &mut canvas);
    let below = match &model.shown {
        Some(shown) => {
            let at = families::draw(model, &shown.report, &mut canvas, 1);
            missing(model, &mut canvas, at)
        }
        None => {
            canvas.text(2, 1, "the first second is being measured...", Tone::Dim);
            2
        }
    };
    let rest = Rect {
        x: 0,
        y: below,
        width: area.width,
        height: area.height.saturating_sub(below + 1),
    };
    if model.shown.is_some() {
        panes(model, &mut canvas, rest);
    }
    footer(model, &mut canvas);
}

/// What is not measured, in one line, and what is incomplete by losses, in another one. Returns the line below them.
fn missing(model: &Model, canvas: &mut Canvas<'_>, y: u16) -> u16 {
    let moment = model.shown.as_ref().and_then(|shown| shown.beside.moment.as_ref());
    let lost = moment.map_or(0, |moment| moment.lost);
    let trouble = model.shown.as_ref().and_then(|shown| shown.beside.trouble.as_ref());
    let y = match trouble {
        None => y,
        Some(trouble) => {
            canvas.sentence(y, trouble, Tone::Lost);
            y + 1
        }
    };
    let y = match lost {
        0 => y,
        lost => {
            let line = format!(
                "INCOMPLETE: {} records of this second were lost; families are exact, slow calls and disks are not",
                thousands(lost)
            );
            canvas.sentence(y, &line, Tone::Lost);
            y + 1
        }
    };
    let Some(missing) = &model.facts.missing else { return y };
    canvas.sentence(y, missing, Tone::Dim);
    y + 1
}

/// The lines of the overview's parts: latencies, groups, slow calls and disks. A part that is too low for its contents is
/// left out, and the groups have its lines.
fn heights(all: u16) -> [u16; 4] {
    let disks = if all >= 20 { (all / 8).clamp(3, 8) } else { 0 };
    let slow = if all >= 4 { (all / 5).clamp(2, 12) } else { 0 };
    let groups = (all / 4).clamp(2, 14);
    let latency = all.saturating_sub(groups + slow + disks);
    let latency = if latency < latency::LOWEST { 0 } else { latency };
    [latency, all - latency - slow - disks, slow, disks]
}

/// The overview gives each list its part; any other pane has all of the room.
fn panes(model: &Model, canvas: &mut Canvas<'_>, area: Rect) {
    let part = |y: u16, height: u16| Rect { y, height, ..area };
    match model.pane {
        Pane::Overview => {
            let [latency, groups, slow, disks] = heights(area.height);
            let mut y = area.y;
            let mut next = |height: u16| {
                y += height;
                part(y - height, height)
            };
            latency::draw(model, canvas, next(latency));
            lists::groups(model, canvas, next(groups));
            if slow > 0 {
                lists::slow_calls(model, canvas, next(slow));
            }
            if disks > 0 {
                lists::disks(model, canvas, next(disks));
            }
        }
        Pane::Latency => latency::draw(model, canvas, area),
        Pane::Groups => match &model.opened {
            Some((pid, name)) => lists::open_files(model, (*pid, name), canvas, area),
            None => lists::groups(model, canvas, area),
        },
        Pane::SlowCalls => lists::slow_calls(model, canvas, area),
        Pane::Disks => lists::disks(model, canvas, area),
        Pane::Limits => lists::limits(model, canvas, area),
    }
}

/// ` IOStackBreakdown  db7  PID 4711 (postgres)      03:32:41 LIVE  lost 0`
fn header(model: &Model, canvas: &mut Canvas<'_>) {
    canvas.fill(0, Tone::Title);
    let lost = model.shown.as_ref().and_then(|shown| lost(&shown.report));
    let lost_text = match lost {
        Some(lost) => format!("lost {}", thousands(lost)),
        None => "lost unknown".to_owned(),
    };
    let time = model
        .shown
        .as_ref()
        .map_or_else(String::new, |shown| format!("{} ", shown.report.time_of_day));
    let recording = model.facts.recording.as_ref().map_or("", |_| "REC  ");
    let right = format!("{time}{}  {recording}{lost_text} ", state(model));
    let width = canvas.width();
    let start = width.saturating_sub(right.chars().count() as u16);
    let whose = match (&model.facts.shows, &*model.facts.subject) {
        (Shows::Kernel, "") => "all processes".to_owned(),
        (Shows::Kernel, subject) => subject.to_owned(),
        (Shows::Recording(name), "") => name.clone(),
        (Shows::Recording(name), subject) => format!("{name}  {subject}"),
    };
    let short = format!(" {}  {whose}", model.facts.host);
    let mut left = format!(" IOStackBreakdown {short}");
    if left.chars().count() >= usize::from(start) {
        left = short;
    }
    if let Some(sums) = model.shown.as_ref().and_then(|shown| sums(&shown.report)) {
        let longer = format!("{left}  {sums}");
        if longer.chars().count() + 2 <= usize::from(start) {
            left = longer;
        }
    }
    canvas.cell(0, 0, start.saturating_sub(1), &left, Tone::Title);
    let tone = if lost.is_some_and(|lost| lost > 0) {
        Tone::TitleLost
    } else {
        Tone::Title
    };
    canvas.text(start, 0, &right, tone);
}

/// Whether time goes on, and which second is shown.
fn state(model: &Model) -> String {
    let Some((first, last)) = model.history.range() else {
        return "WAIT".to_owned();
    };
    let shown = model.shown.as_ref().map_or(0, |shown| shown.number);
    match model.facts.shows {
        Shows::Kernel if model.is_following() => "LIVE".to_owned(),
        Shows::Kernel => format!("PAUSED -{} s", model.behind()),
        Shows::Recording(_) => {
            let state = if model.is_playing { "PLAY" } else { "PAUSED" };
            format!("{state} {}/{}", shown - first + 1, last - first + 1)
        }
    }
}

/// Calls and bytes of all families together: `5,695 calls/s  12.4 MB/s`. `None`: there are no families.
fn sums(report: &Report) -> Option<String> {
    let families = &report.stack.as_ref()?.families;
    let sums = families.iter().fold((0_u64, 0_u64), |(calls, bytes), family| {
        (calls.saturating_add(family.count()), bytes.saturating_add(family.bytes))
    });
    let rate = |n| canvas::per_second(n, report.length);
    Some(format!(
        "{} calls/s  {}/s",
        thousands(rate(sums.0)),
        crate::number::decimal_bytes(rate(sums.1))
    ))
}

/// Calls and requests that are in none of the numbers of the second.
fn lost(report: &Report) -> Option<u64> {
    let measured = report.layers.iter().filter(|layer| !layer.ops.is_empty());
    measured.map(|layer| layer.lost()).reduce(u64::saturating_add)
}

/// The filter that is being typed, a message, or the keys.
fn footer(model: &Model, canvas: &mut Canvas<'_>) {
    let y = canvas.height() - 1;
    // Where there is no room for a list, its heading may be here.
    canvas.text(0, y, &" ".repeat(canvas.width().into()), Tone::Usual);
    if model.is_typing {
        canvas.text(
            1,
            y,
            &format!("filter: {}_   (Enter keeps it, Esc removes it)", model.filter),
            Tone::Marked,
        );
        return;
    }
    if let Some(message) = &model.message {
        canvas.sentence(y, message, Tone::Marked);
        return;
    }
    let keys = [
        "q quit",
        "? help",
        "space pause",
        "<- -> step",
        "Tab view",
        "Enter in",
        "Esc back",
        "g group",
        "/ filter",
        "s sort",
        "w record",
        "H page",
    ];
    let mut end = canvas.width();
    if !model.filter.is_empty() {
        let filter = format!("filter: {}", model.filter);
        let start = canvas.width().saturating_sub(filter.chars().count() as u16 + 1);
        canvas.text(start, y, &filter, Tone::Marked);
        end = start.saturating_sub(2);
    }
    let mut x = 1;
    for key in keys {
        let width = key.chars().count() as u16;
        if x + width > end {
            break;
        }
        x = canvas.text(x, y, key, Tone::Dim) + 2;
    }
}

/// The time of day of a moment, with milliseconds.
fn time_of_day(at: jiff::Timestamp, utc_offset: i32) -> String {
    let zone = Offset::from_seconds(utc_offset).unwrap_or(Offset::UTC);
    zone.to_datetime(at).strftime("%H:%M:%S%.3f").to_string()
}

#[cfg(test)]
mod tests;
