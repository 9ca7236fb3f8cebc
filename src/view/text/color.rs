//! Colour in reports for people: what is marked, and how. Marks change no width and no character of a line.

use std::ops::Range;

/// Why a part of a line is marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// What most of the time was spent in, or a limit that is broken.
    Guilty,
    /// Something is missing from the numbers.
    Lost,
    /// Could not be measured.
    NotMeasured,
    /// Limits how far the numbers can be trusted.
    Warning,
}

impl Mark {
    /// The command to a terminal (ECMA-48, SGR). The colours are readable on dark and on light backgrounds.
    const fn begin(self) -> &'static str {
        match self {
            Self::Guilty => "\x1b[1;35m",
            Self::Lost => "\x1b[1;31m",
            Self::NotMeasured => "\x1b[2m",
            Self::Warning => "\x1b[33m",
        }
    }
}

/// Ends any of them.
const END: &str = "\x1b[0m";

/// A line with marked parts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Marked {
    pub text: String,
    /// In characters, in order and without overlaps.
    marks: Vec<(Range<usize>, Mark)>,
}

impl Marked {
    /// A line that is marked as a whole.
    pub fn all(mark: Mark, text: impl Into<String>) -> Self {
        let mut line = Self::default();
        line.push(&text.into(), Some(mark));
        line
    }

    /// Appends a part.
    pub fn push(&mut self, part: &str, mark: Option<Mark>) {
        let start = self.width();
        self.text.push_str(part);
        if let Some(mark) = mark.filter(|_| !part.is_empty()) {
            self.marks.push((start..self.width(), mark));
        }
    }

    /// Appends another line.
    pub fn append(&mut self, other: &Self) {
        let start = self.width();
        self.text.push_str(&other.text);
        let marks = other.marks.iter();
        self.marks
            .extend(marks.map(|(range, mark)| (range.start + start..range.end + start, *mark)));
    }

    /// Columns.
    pub fn width(&self) -> usize {
        self.text.chars().count()
    }

    /// The marks as ranges of bytes of `clean`, which has as many characters as the text.
    pub fn in_bytes(&self, clean: &str) -> Vec<(Range<usize>, Mark)> {
        let byte = |column: usize| clean.char_indices().nth(column).map_or(clean.len(), |(at, _)| at);
        let marks = self.marks.iter();
        marks
            .map(|(range, mark)| (byte(range.start)..byte(range.end), *mark))
            .collect()
    }

    /// The line for a terminal, without its end. Call it only for text that contains no commands to a terminal.
    pub fn shown(&self, is_colored: bool) -> String {
        let mut text = String::new();
        let marks = if is_colored {
            self.in_bytes(&self.text)
        } else {
            Vec::new()
        };
        push(&mut text, &self.text, 0..self.text.len(), &marks);
        text
    }
}

impl From<String> for Marked {
    fn from(text: String) -> Self {
        Self {
            text,
            marks: Vec::new(),
        }
    }
}

/// Appends a part of `line`, with the commands for `marks`. All ranges are in bytes of `line`.
pub fn push(text: &mut String, line: &str, part: Range<usize>, marks: &[(Range<usize>, Mark)]) {
    let mut at = part.start;
    for (range, mark) in marks {
        let (mut start, mut end) = (range.start.max(at), range.end.min(part.end));
        if start < end {
            // Blanks have no colour.
            let marked = &line[start..end];
            start += marked.len() - marked.trim_start().len();
            end = start + marked.trim().len();
        }
        if start < end {
            text.push_str(&line[at..start]);
            text.push_str(mark.begin());
            text.push_str(&line[start..end]);
            text.push_str(END);
            at = end;
        }
    }
    text.push_str(&line[at..part.end]);
}

/// A text without the commands of marks.
#[cfg(test)]
pub(crate) fn without_marks(text: &str) -> String {
    let all = [Mark::Guilty, Mark::Lost, Mark::NotMeasured, Mark::Warning];
    all.iter()
        .fold(text.replace(END, ""), |text, mark| text.replace(mark.begin(), ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_surround_their_parts() {
        let mut line = Marked::from("ä ".to_owned());
        line.push("device", Some(Mark::Guilty));
        line.push(" - ", None);
        line.append(&Marked::all(Mark::Lost, "LOST"));
        assert_eq!(line.shown(false), "ä device - LOST");
        assert_eq!(line.shown(true), "ä \x1b[1;35mdevice\x1b[0m - \x1b[1;31mLOST\x1b[0m");
        assert_eq!(without_marks(&line.shown(true)), line.text);
    }

    #[test]
    fn a_part_of_a_line_has_its_part_of_the_marks() {
        let mut line = Marked::from("one ".to_owned());
        line.push("two three", Some(Mark::Warning));
        let marks = line.in_bytes(&line.text);
        let part = |range| {
            let mut text = String::new();
            push(&mut text, &line.text, range, &marks);
            text
        };
        assert_eq!(part(0..3), "one");
        assert_eq!(part(0..7), "one \x1b[33mtwo\x1b[0m");
        assert_eq!(part(8..13), "\x1b[33mthree\x1b[0m");
        assert_eq!(part(3..9), " \x1b[33mtwo t\x1b[0m");
        assert_eq!(part(7..8), " ");
    }
}
