//! The commands to a terminal (ECMA-48) that change one screen to another.

use std::fmt::Write;

use ratatui_core::buffer::Buffer;
use ratatui_core::style::{Color, Modifier};

/// Appends the commands. Both screens have the same size; the cursor is hidden.
pub fn change(before: &Buffer, after: &Buffer, out: &mut String) {
    // Where the cursor is, and how it writes.
    let mut at = None;
    let mut style = (Modifier::empty(), Color::Reset);
    for (x, y, cell) in before.diff_iter(after) {
        let of = (cell.modifier, cell.fg);
        if at != Some((x, y)) {
            // Writing into a string cannot fail.
            let _ = write!(out, "\x1b[{};{}H", y + 1, x + 1);
        }
        if of != style {
            out.push_str("\x1b[0");
            push_style(of, out);
            out.push('m');
            style = of;
        }
        out.push_str(cell.symbol());
        // A wide character moves the cursor by two columns: it is set again for what follows.
        at = cell.symbol().is_ascii().then_some((x + 1, y));
    }
    if style != (Modifier::empty(), Color::Reset) {
        out.push_str("\x1b[0m");
    }
}

/// Appends the parameters of SGR, each after a semicolon.
fn push_style((modifier, color): (Modifier, Color), out: &mut String) {
    let modifiers = [(Modifier::BOLD, 1), (Modifier::DIM, 2), (Modifier::REVERSED, 7)];
    for (_, number) in modifiers.iter().filter(|(known, _)| modifier.contains(*known)) {
        let _ = write!(out, ";{number}");
    }
    let number = match color {
        Color::Red => 31,
        Color::Green => 32,
        Color::Yellow => 33,
        Color::Blue => 34,
        Color::Magenta => 35,
        Color::Cyan => 36,
        Color::DarkGray => 90,
        Color::LightRed => 91,
        Color::LightYellow => 93,
        Color::LightMagenta => 95,
        _ => return,
    };
    let _ = write!(out, ";{number}");
}

#[cfg(test)]
mod tests {
    use ratatui_core::layout::Rect;

    use super::super::example;
    use super::super::key::Key;
    use super::super::{Look, Model, draw};
    use super::*;

    const SIZE: (u16, u16) = (100, 30);

    fn drawn(model: &Model) -> Buffer {
        let area = Rect::new(0, 0, SIZE.0, SIZE.1);
        let mut buffer = Buffer::empty(area);
        let look = Look {
            is_utf8: true,
            is_colored: true,
        };
        draw(model, look, area, &mut buffer);
        buffer
    }

    /// A terminal that was given only the differences shows each screen.
    #[test]
    fn a_terminal_shows_what_was_drawn() {
        let mut model = example::model(20);
        let mut terminal = vt100::Parser::new(SIZE.1, SIZE.0, 0);
        let mut before = Buffer::empty(Rect::new(0, 0, SIZE.0, SIZE.1));
        let keys = "2 3j4?x5612+-h1"
            .chars()
            .map(Key::Char)
            .chain([Key::Enter, Key::Escape]);
        for key in keys {
            let after = drawn(&model);
            let mut out = String::new();
            change(&before, &after, &mut out);
            terminal.process(out.as_bytes());
            for y in 0..SIZE.1 {
                for x in 0..SIZE.0 {
                    let (shown, drawn) = (terminal.screen().cell(y, x).unwrap(), &after[(x, y)]);
                    let text = if shown.has_contents() { shown.contents() } else { " " };
                    assert_eq!(text, drawn.symbol(), "{x} {y} after {key:?}");
                    if text != " " {
                        assert_eq!(shown.inverse(), drawn.modifier.contains(Modifier::REVERSED), "{x} {y}");
                        assert_eq!(shown.bold(), drawn.modifier.contains(Modifier::BOLD), "{x} {y}");
                        let is_colored = shown.fgcolor() != vt100::Color::Default;
                        assert_eq!(is_colored, drawn.fg != Color::Reset, "{x} {y}");
                    }
                }
            }
            before = after;
            model.handle(key);
        }
    }

    #[test]
    fn nothing_is_sent_if_nothing_changed() {
        let screen = drawn(&example::model(5));
        let mut out = String::new();
        change(&screen, &screen, &mut out);
        assert_eq!(out, "");
    }
}
