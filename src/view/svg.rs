//! The icicle of a run as a picture of its own: `--svg FILE`. It makes no requests, and is readable on light and dark
//! screens.

use std::fmt::Write as _;
use std::io;

use super::icicle;
use super::markup::{COLOURS, escaped};
use super::text::number::{length, percent, time_sum};
use super::text::{conditions, opening, verdicts};
use super::{Sheet, View};
use crate::model::report::Report;

/// Dimensions in the units of the picture.
const MARGIN: f64 = 20.0;
const LINE: f64 = 19.0;
/// Entries of the legend in a line, and the characters of a line of text.
const LEGEND: usize = 5;
const CHARACTERS: usize = 165;

/// Draws the sum of all reports of a run at its end.
#[derive(Debug, Default)]
pub struct Svg {
    sum: Option<Box<Report>>,
}

impl View for Svg {
    fn report(&mut self, report: &Report, _: &mut Sheet<'_>) -> io::Result<()> {
        match &mut self.sum {
            Some(sum) => sum.add(report),
            None => self.sum = Some(Box::new(report.clone())),
        }
        Ok(())
    }

    fn end(&mut self, sheet: &mut Sheet<'_>) -> io::Result<()> {
        let Some(sum) = self.sum.take() else { return Ok(()) };
        sheet.out.write_all(svg(&sum).as_bytes())
    }
}

/// The picture of a report of the whole stack.
#[must_use]
pub fn svg(report: &Report) -> String {
    let mut page = Page {
        y: MARGIN / 2.0,
        ..Page::default()
    };
    let subject = if report.subject.is_empty() {
        "all processes"
    } else {
        &report.subject
    };
    let start = report.start.strftime("%Y-%m-%d %H:%M:%S UTC");
    page.text("title", subject);
    page.text(
        "dim",
        &format!("{start}, {}, Linux {}", length(report.length), report.kernel),
    );
    page.y += LINE / 2.0;
    page.text("strong", &opening(report));
    let families = report.stack.as_ref().map_or(&[][..], |stack| &stack.families);
    for (family, verdict) in verdicts(report) {
        page.text(
            "",
            &format!("{}: {}, {verdict}", family.family, time_sum(family.total_ns)),
        );
    }
    page.y += LINE / 2.0;
    let (boxes, height) = icicle::boxes(families);
    let _ = writeln!(
        page.body,
        "<g transform=\"translate({MARGIN} {})\">\n{boxes}</g>",
        page.y
    );
    page.y += height + LINE;
    page.legend(&icicle::sums(families));
    for line in conditions(report) {
        page.text("dim", &line);
    }
    page.finish()
}

/// A picture that grows downwards.
#[derive(Default)]
struct Page {
    body: String,
    /// The upper edge of what comes next.
    y: f64,
}

impl Page {
    /// A line of text, wrapped at words.
    fn text(&mut self, class: &str, line: &str) {
        for part in wrapped(line) {
            self.y += LINE;
            // Writing to a String cannot fail.
            let _ = writeln!(
                self.body,
                "<text class=\"t {class}\" x=\"{MARGIN}\" y=\"{:.1}\">{}</text>",
                self.y,
                escaped(&part)
            );
        }
    }

    /// The time of each row, beside its colour.
    fn legend(&mut self, sums: &[(&'static str, &'static str, u64)]) {
        let total = sums.iter().fold(0_u64, |sum, (.., ns)| sum.saturating_add(*ns));
        for line in sums.chunks(LEGEND) {
            for (index, (name, class, ns)) in line.iter().enumerate() {
                let x = MARGIN + index as f64 * icicle::WIDTH / LEGEND as f64;
                let _ = writeln!(
                    self.body,
                    "<rect class=\"{class}\" x=\"{x:.0}\" y=\"{:.1}\" width=\"12\" height=\"12\"/>\
                     <text class=\"t\" x=\"{:.0}\" y=\"{:.1}\">{}</text>",
                    self.y,
                    x + 18.0,
                    self.y + 11.0,
                    escaped(&format!("{name} {} {}", time_sum(*ns), percent(*ns, total)))
                );
            }
            self.y += LINE;
        }
    }

    fn finish(self) -> String {
        let (width, height) = (icicle::WIDTH + 2.0 * MARGIN, self.y + MARGIN);
        let colours: String = COLOURS
            .iter()
            .map(|(class, colour)| format!(".{class}{{fill:{colour}}}"))
            .collect();
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
             viewBox=\"0 0 {width:.0} {height:.0}\">\n<title>Where the time of I/O calls was spent</title>\n<style>\n\
             text{{font:12px system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif;white-space:pre}}\n\
             g rect{{stroke:#000;stroke-opacity:.3;stroke-width:.5}}.page{{fill:#fff}}.t{{fill:#1d2329}}.dim{{fill:#59636e}}.in{{fill:#111}}\
             .title{{font-size:17px;font-weight:bold}}.strong{{font-size:14px;font-weight:bold}}\n{colours}\n\
             @media(prefers-color-scheme:dark){{.page{{fill:#14181d}}.t{{fill:#e3e8ee}}.dim{{fill:#98a3af}}}}\n\
             </style>\n<rect class=\"page\" width=\"{width:.0}\" height=\"{height:.0}\"/>\n{}</svg>\n",
            self.body
        )
    }
}

/// Lines of at most [`CHARACTERS`], broken at words; a longer word is cut.
fn wrapped(line: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut columns = 0;
    for word in line.split_inclusive(' ') {
        let word: String = word.chars().take(CHARACTERS).collect();
        let length = word.chars().count();
        if columns > 0 && columns + length > CHARACTERS {
            lines.push(String::new());
            columns = 0;
        }
        if let Some(last) = lines.last_mut() {
            last.push_str(&word);
        }
        columns += length;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_wrapped_and_endless_words_are_cut() {
        let words = "word ".repeat(100);
        let lines = wrapped(&words);
        assert!(lines.len() > 1 && lines.iter().all(|line| line.chars().count() <= CHARACTERS));
        assert_eq!(lines.concat(), words);
        assert_eq!(wrapped(&"x".repeat(1000)), ["x".repeat(CHARACTERS)]);
    }
}
