//! All keys.

use super::canvas::{Canvas, Tone};
use crate::view::live::model::{Model, Shows};

/// A key, and what it does.
const KEYS: [(&str, &str); 17] = [
    ("q  Ctrl-C", "quit; the last screen stays"),
    ("space  p", "pause, and follow what comes; measuring goes on"),
    ("left right  h l", "a second back or forward (Shift: ten); pauses"),
    ("Home  End", "the first second that is kept; the newest one"),
    ("up down  k j", "select a family, or a line of a list"),
    ("Tab  1..6", "overview, latency, groups, slow calls, disks, limits"),
    ("Enter", "of a process: its open files; of a family: its latencies"),
    ("Esc  Backspace", "back; removes the filter"),
    ("g", "group by file, process, disk, cgroup, unit"),
    ("/", "show only names that contain a text"),
    ("s  < >", "sort by time, calls, bytes, longest, name"),
    ("+ -", "seconds per column of the pictures"),
    ("w", "write the seconds that are kept as a recording"),
    ("H", "write the seconds that are kept as a page for browsers"),
    ("Ctrl-L", "draw the screen again"),
    ("Ctrl-Z", "stop, as in a shell"),
    ("?", "this help; any key goes back"),
];

pub fn draw(model: &Model, canvas: &mut Canvas<'_>) {
    canvas.fill(0, Tone::Title);
    canvas.text(0, 0, " IOStackBreakdown: keys", Tone::Title);
    let recorded = ("space  p", "play at recorded speed, and pause");
    let is_recording = matches!(model.facts.shows, Shows::Recording(_));
    for (line, (key, what)) in (1..canvas.height()).zip(KEYS) {
        let (key, what) = if is_recording && key == recorded.0 {
            recorded
        } else {
            (key, what)
        };
        canvas.cell(1, line, 16, key, Tone::Heading);
        canvas.text(18, line, what, Tone::Usual);
    }
    let below = [
        "threads: inside a call, on average; bars have a letter for each row",
        "p99 with <: too few calls for it, the longest one instead",
    ];
    let start = KEYS.len() as u16 + 2;
    for (line, text) in (start..canvas.height()).zip(below) {
        canvas.text(1, line, text, Tone::Dim);
    }
}
