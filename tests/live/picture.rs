//! A screen of the terminal emulator as SVG.

use std::fmt::Write;

/// The size of a character.
const WIDTH: f64 = 8.4;
const HEIGHT: f64 = 18.0;
const MARGIN: f64 = 12.0;
const BACKGROUND: &str = "#1b1d23";
const TEXT: &str = "#d6d8de";

/// The colours of a usual terminal, by their numbers.
const COLORS: [&str; 16] = [
    "#1b1d23", "#e5534b", "#6bc46d", "#d9a441", "#5b9bf0", "#c678dd", "#4fb8c4", "#d6d8de", "#767b88", "#ff938a",
    "#8ddb8c", "#f0c674", "#6cb6ff", "#dcbdfb", "#76d4e0", "#ffffff",
];

fn color(of: vt100::Color, default: &'static str) -> &'static str {
    match of {
        vt100::Color::Idx(number) => COLORS.get(usize::from(number)).copied().unwrap_or(default),
        vt100::Color::Default | vt100::Color::Rgb(..) => default,
    }
}

/// How a run of characters is drawn.
#[derive(PartialEq, Eq, Clone, Copy)]
struct Style {
    front: &'static str,
    back: &'static str,
    is_bold: bool,
    is_dim: bool,
}

fn style(cell: &vt100::Cell) -> Style {
    let (front, back) = (color(cell.fgcolor(), TEXT), color(cell.bgcolor(), BACKGROUND));
    let (front, back) = if cell.inverse() { (back, front) } else { (front, back) };
    Style {
        front,
        back,
        is_bold: cell.bold(),
        is_dim: cell.dim(),
    }
}

/// Draws each word where it is on the screen, since the width of blanks depends on the viewer.
fn words(text: &str, of: Style, (x, y): (f64, f64), out: &mut String) {
    let weight = if of.is_bold { " font-weight=\"bold\"" } else { "" };
    let dim = if of.is_dim { " opacity=\"0.6\"" } else { "" };
    let mut column = 0;
    for word in text.split(' ') {
        let length = word.chars().count();
        if length > 0 {
            let escaped = word.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
            // Writing into a string cannot fail.
            let _ = writeln!(
                out,
                "<text x=\"{:.1}\" y=\"{:.1}\" textLength=\"{:.1}\" lengthAdjust=\"spacingAndGlyphs\" fill=\"{}\"{weight}{dim}>{escaped}</text>",
                x + column as f64 * WIDTH,
                y + 13.5,
                length as f64 * WIDTH,
                of.front
            );
        }
        column += length + 1;
    }
}

/// Draws it. `title` says what it is.
pub fn svg(screen: &vt100::Screen, title: &str) -> String {
    let (rows, columns) = screen.size();
    let (width, height) = (
        f64::from(columns) * WIDTH + 2.0 * MARGIN,
        f64::from(rows) * HEIGHT + 2.0 * MARGIN,
    );
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" height=\"{height:.0}\">\n\
         <title>{title}</title>\n<rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"{BACKGROUND}\"/>\n\
         <g font-family=\"ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace\" font-size=\"14\">\n"
    );
    for row in 0..rows {
        let y = MARGIN + f64::from(row) * HEIGHT;
        let mut column = 0;
        while column < columns {
            let Some(first) = screen.cell(row, column) else { break };
            let of = style(first);
            let start = column;
            let mut text = String::new();
            while let Some(cell) = screen
                .cell(row, column)
                .filter(|cell| column < columns && style(cell) == of)
            {
                text.push_str(if cell.has_contents() { cell.contents() } else { " " });
                column += 1;
            }
            let (x, length) = (MARGIN + f64::from(start) * WIDTH, f64::from(column - start) * WIDTH);
            if of.back != BACKGROUND {
                let _ = writeln!(
                    out,
                    "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{length:.1}\" height=\"{HEIGHT}\" fill=\"{}\"/>",
                    of.back
                );
            }
            words(&text, of, (x, y), &mut out);
        }
    }
    out.push_str("</g>\n</svg>\n");
    out
}
