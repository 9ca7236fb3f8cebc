//! Text and bars on a screen.

use std::time::Duration;

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Color, Modifier, Style};

use super::Look;
use crate::model::ids::{Layer, NOT_SPLIT, Row};
use crate::number::rounded;
use crate::printable::printable;
use crate::view::text::name::shortened;

/// How a text stands out. Without colours, by brightness and inversion alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    Usual,
    /// The first line.
    Title,
    /// In it, something was lost.
    TitleLost,
    Heading,
    Dim,
    /// The selected line.
    Selected,
    /// Where most of the time was spent, or a limit that is broken.
    Guilty,
    Lost,
    /// What a key did.
    Marked,
    Row(Row),
}

/// A screen that is drawn.
pub struct Canvas<'a> {
    buffer: &'a mut Buffer,
    area: Rect,
    pub look: Look,
}

impl<'a> Canvas<'a> {
    pub fn new(buffer: &'a mut Buffer, area: Rect, look: Look) -> Self {
        Self { buffer, area, look }
    }

    pub fn width(&self) -> u16 {
        self.area.width
    }

    pub fn height(&self) -> u16 {
        self.area.height
    }

    fn style(&self, tone: Tone) -> Style {
        let style = Style::new();
        let colored = |color: Color| if self.look.is_colored { style.fg(color) } else { style };
        match tone {
            Tone::Usual => style,
            Tone::Title => style.add_modifier(Modifier::REVERSED),
            Tone::TitleLost => colored(Color::Red).add_modifier(Modifier::REVERSED | Modifier::BOLD),
            Tone::Heading => style.add_modifier(Modifier::BOLD),
            Tone::Dim => style.add_modifier(Modifier::DIM),
            Tone::Selected => style.add_modifier(Modifier::REVERSED),
            Tone::Guilty => colored(Color::Magenta).add_modifier(Modifier::BOLD),
            Tone::Lost => colored(Color::Red).add_modifier(Modifier::BOLD),
            Tone::Marked => colored(Color::Yellow),
            Tone::Row(row) => colored(color(row)),
        }
    }

    /// Draws a text up to the edge. Returns the column after it.
    pub fn text(&mut self, x: u16, y: u16, text: &str, tone: Tone) -> u16 {
        self.cell(x, y, self.area.width.saturating_sub(x), text, tone)
    }

    /// Draws a text in so many columns, in which it is cut. Returns the column after it.
    pub fn cell(&mut self, x: u16, y: u16, width: u16, text: &str, tone: Tone) -> u16 {
        if x >= self.area.width || y >= self.area.height {
            return x;
        }
        let width = width.min(self.area.width - x);
        let style = self.style(tone);
        let (start, line) = (self.area.x + x, self.area.y + y);
        let end = if text.chars().all(|c| self.fills_a_cell(c)) {
            let mut end = start;
            for (column, c) in (start..start + width).zip(text.chars()) {
                if let Some(cell) = self.buffer.cell_mut((column, line)) {
                    cell.set_char(c);
                }
                end = column + 1;
            }
            end
        } else {
            let text = self.shown(text);
            self.buffer.set_stringn(start, line, text, width.into(), style).0
        };
        // What was there before leaves no trace.
        for column in start..end {
            if let Some(cell) = self.buffer.cell_mut((column, line)) {
                cell.modifier = style.add_modifier;
                cell.fg = style.fg.unwrap_or(Color::Reset);
            }
        }
        end - self.area.x
    }

    /// Draws a sentence up to the edge, where it ends with a whole word and an ellipsis if it is cut.
    pub fn sentence(&mut self, y: u16, text: &str, tone: Tone) {
        let room = usize::from(self.area.width).saturating_sub(2);
        let ellipsis = if self.look.is_utf8 { "…" } else { "..." };
        if text.chars().count() <= room {
            self.text(1, y, text, tone);
            return;
        }
        let kept: String = text
            .chars()
            .take(room.saturating_sub(ellipsis.chars().count()))
            .collect();
        let words = kept.rfind(' ').map_or(&*kept, |end| &kept[..end]);
        self.text(1, y, &format!("{words}{ellipsis}"), tone);
    }

    /// A name in at most so many columns, in which it is shortened. Without UTF-8, the ellipsis is three points: a single
    /// character could be part of the name.
    pub fn name(&self, name: &str, room: usize) -> String {
        if self.look.is_utf8 {
            return shortened(name, room);
        }
        let plain = |text: &str| text.replace('…', "...");
        let whole = plain(name);
        if whole.chars().count() <= room {
            return whole;
        }
        plain(&shortened(name, room.saturating_sub(2)))
    }

    /// Draws a text at the right edge of so many columns.
    pub fn right(&mut self, x: u16, y: u16, width: u16, text: &str, tone: Tone) {
        let length = text.chars().count() as u16;
        self.cell(x + width.saturating_sub(length), y, width, text, tone);
    }

    /// Gives a whole line a tone.
    pub fn fill(&mut self, y: u16, tone: Tone) {
        if y < self.area.height {
            let line = Rect {
                x: self.area.x,
                y: self.area.y + y,
                width: self.area.width,
                height: 1,
            };
            let style = self.style(tone);
            self.buffer.set_style(line, style);
        }
    }

    /// Draws a heading and a rule to the edge.
    pub fn heading(&mut self, y: u16, text: &str) {
        let end = self.text(1, y, text, Tone::Heading) + 1;
        let rule = if self.look.is_utf8 { "─" } else { "-" };
        let left = self.area.width.saturating_sub(end + 1);
        self.text(end, y, &rule.repeat(left.into()), Tone::Dim);
    }

    /// Whether a character is shown as it is, in a cell of its own: most are, and need not be looked up in the tables of
    /// Unicode. Rules, bars and shades are in its blocks Box Drawing and Block Elements.
    fn fills_a_cell(&self, c: char) -> bool {
        matches!(c, ' '..='~') || (self.look.is_utf8 && matches!(c, '\u{2500}'..='\u{259f}'))
    }

    /// A text as the terminal can show it.
    fn shown(&self, text: &str) -> String {
        let text = printable(text);
        if self.look.is_utf8 {
            return text;
        }
        let ascii = |c: char| if c.is_ascii() { c } else { '?' };
        text.chars().map(ascii).collect()
    }

    /// A part of a whole, in eighths of a full cell: for bars of one column each.
    pub fn level(&self, part: f64) -> char {
        let levels: [char; 8] = if self.look.is_utf8 {
            ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█']
        } else {
            ['.', ':', '-', '=', '+', '*', '#', '@']
        };
        levels[((part.clamp(0.0, 1.0) * 8.0) as usize).min(7)]
    }

    /// The shade of a cell of a heat map; level 0 is empty, 4 is full.
    pub fn shade(&self, level: usize) -> char {
        let shades: [char; 5] = if self.look.is_utf8 {
            [' ', '░', '▒', '▓', '█']
        } else {
            [' ', '.', ':', '+', '#']
        };
        shades[level.min(4)]
    }

    /// A horizontal bar.
    pub fn bar(&mut self, x: u16, y: u16, width: u16, part: f64, tone: Tone) {
        let cells = (part.clamp(0.0, 1.0) * f64::from(width)).round() as usize;
        let full = if self.look.is_utf8 { "▇" } else { "#" };
        self.cell(x, y, width, &full.repeat(cells), tone);
    }
}

/// The first of these texts that has room; empty: neither.
pub fn first_that_fits(texts: [&str; 2], room: usize) -> &str {
    texts.into_iter().find(|text| text.len() <= room).unwrap_or_default()
}

/// The letter of a row in stacked bars, so that no colour is needed.
pub fn letter(row: Row, is_split: bool) -> char {
    match row {
        Row::Layer(Layer::Syscall) if !is_split => 'k',
        Row::Layer(Layer::Syscall) => 's',
        Row::Layer(Layer::Vfs) => 'v',
        Row::Layer(_) => 'f',
        Row::Queue => 'q',
        Row::Device => 'D',
        Row::Others => 'o',
        Row::Journal => 'J',
        Row::Lock => 'L',
        Row::Other => '.',
        Row::RunQueue => 'r',
    }
}

/// The name of a row in the legend.
pub fn label(row: Row, is_split: bool) -> &'static str {
    match row.label(is_split) {
        NOT_SPLIT => "kernel",
        label => label,
    }
}

fn color(row: Row) -> Color {
    match row {
        Row::Layer(Layer::Syscall) => Color::Blue,
        Row::Layer(Layer::Vfs) => Color::Cyan,
        Row::Layer(_) => Color::Green,
        Row::Queue => Color::Yellow,
        Row::Device => Color::Red,
        Row::Others => Color::LightRed,
        Row::Journal => Color::Magenta,
        Row::Lock => Color::LightMagenta,
        Row::Other => Color::DarkGray,
        Row::RunQueue => Color::LightYellow,
    }
}

/// A number of a span, per second.
pub fn per_second(n: u64, span: Duration) -> u64 {
    rounded(u128::from(n) * 1_000_000_000, span.as_nanos()).unwrap_or(0)
}

/// A time in at most five columns: `834us`, `3.0ms`, `12s`.
pub fn tiny(ns: u64) -> String {
    let units = [
        (1_u64, "ns"),
        (1_000, "us"),
        (1_000_000, "ms"),
        (1_000_000_000, "s"),
        (60_000_000_000, "m"),
        (3_600_000_000_000, "h"),
    ];
    let fits = |(size, _): &&(u64, &str)| ns < size.saturating_mul(1000) - size / 2;
    let (size, name) = units.iter().find(fits).unwrap_or(&units[5]);
    let tenths = rounded(u128::from(ns) * 10, (*size).into()).unwrap_or(0);
    if tenths < 100 && *size > 1 {
        format!("{}.{}{name}", tenths / 10, tenths % 10)
    } else {
        format!("{}{name}", rounded(ns.into(), (*size).into()).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fills_a_cell_is_drawn_as_the_tables_of_unicode_say() {
        let area = Rect::new(0, 0, 3, 1);
        for is_utf8 in [true, false] {
            let look = Look {
                is_utf8,
                is_colored: false,
            };
            let (mut drawn, mut expected) = (Buffer::empty(area), Buffer::empty(area));
            let canvas = Canvas::new(&mut drawn, area, look);
            let known: Vec<char> = ('\0'..=char::MAX).filter(|c| canvas.fills_a_cell(*c)).collect();
            assert_eq!(known.len(), if is_utf8 { 95 + 0xa0 } else { 95 });
            for c in known {
                let text = format!("a{c}b");
                Canvas::new(&mut drawn, area, look).text(0, 0, &text, Tone::Usual);
                expected.set_string(0, 0, &text, Style::new());
                assert_eq!(drawn, expected, "{c}");
            }
        }
    }

    #[test]
    fn times_have_at_most_five_columns() {
        let times = [
            (0, "0ns"),
            (999, "999ns"),
            (1_000, "1.0us"),
            (9_950, "10us"),
            (834_000, "834us"),
            (999_499, "999us"),
            (999_500, "1.0ms"),
            (3_040_000, "3.0ms"),
            (12_000_000_000, "12s"),
            (3_600_000_000_000, "60m"),
        ];
        for (ns, text) in times {
            assert_eq!(tiny(ns), text);
        }
        // Up to 999 hours.
        for ns in (0..30).map(|power| 3_u64.pow(power / 2) << power) {
            assert!(tiny(ns).len() <= 5, "{ns}: {}", tiny(ns));
        }
    }
}
