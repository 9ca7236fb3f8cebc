//! All keys.

use super::canvas::{Canvas, Tone};
use crate::view::live::model::{Model, Shows};

/// A key, and what it does.
const KEYS: [(&str, &str); 13] = [
    ("q  Ctrl-C", "quit (Ctrl-Z: stop; Ctrl-L: draw again)"),
    ("space  p", "pause, and follow; measuring goes on"),
    ("left right  h l", "a second back or forward (Shift: ten)"),
    ("Home  End", "the first second that is kept; the newest"),
    ("up down  k j", "select a family, or a line of a list"),
    ("Tab  1..6", "overview latency groups slow disks limits"),
    ("Enter", "files of a process, latencies of a family"),
    ("Esc  Backspace", "back; removes the filter"),
    ("g", "group by file, process, disk, cgroup, unit"),
    ("/", "show only names that contain a text"),
    ("s  < >", "sort by time, calls, bytes, longest, name"),
    ("+ -", "seconds per column of the pictures"),
    ("w  H", "write what is kept: a recording, a page"),
];
/// The first column of what a key does.
const TEXT: u16 = 18;

pub fn draw(model: &Model, canvas: &mut Canvas<'_>) {
    canvas.fill(0, Tone::Title);
    canvas.text(0, 0, " IOStackBreakdown: keys (any but q goes back)", Tone::Title);
    let recorded = ("space  p", "play at recorded speed, and pause");
    let is_recording = matches!(model.facts.shows, Shows::Recording(_));
    for (line, (key, what)) in (1..canvas.height()).zip(KEYS) {
        let (key, what) = if is_recording && key == recorded.0 {
            recorded
        } else {
            (key, what)
        };
        canvas.cell(1, line, 16, key, Tone::Heading);
        canvas.text(TEXT, line, what, Tone::Usual);
    }
    let below = [
        "threads: inside a call, on average",
        "letters in bars: the rows that are named below the families",
        "p99 with <: too few calls for it, the longest one instead",
    ];
    let start = KEYS.len() as u16 + 2;
    for (line, text) in (start..canvas.height()).zip(below) {
        canvas.text(1, line, text, Tone::Dim);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::live::SMALLEST;

    #[test]
    fn all_keys_fit_the_smallest_terminal() {
        assert!(KEYS.len() < usize::from(SMALLEST.1));
        for (key, what) in KEYS {
            assert!(key.len() <= 16, "{key}");
            assert!(what.len() <= usize::from(SMALLEST.0 - TEXT), "{what}");
        }
    }
}
