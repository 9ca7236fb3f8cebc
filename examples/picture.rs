//! Draws README's picture, a terminal with the beginning of the first report of docs/investigations.md:
//! `cargo run --example picture`.
//!
//! `tests/docs.rs` fails when the picture and that report differ. The text keeps its columns in any font, since each line is
//! drawn at a length of its own.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::{fs, io};

const PAGE: &str = "docs/investigations.md";
pub const PICTURE: &str = "docs/report.svg";

const FONT: f64 = 13.0;
/// Width of a column in most monospaced fonts.
const WIDTH: f64 = FONT * 0.6;
const HEIGHT: f64 = 17.0;
/// Between the text and the window's edges.
const MARGIN: f64 = 16.0;
/// The window's bar, with its buttons.
const BAR: f64 = 28.0;

/// A page's first run of the tool, with its command.
pub fn run(page: &str) -> Option<&str> {
    const FENCE: &str = "\n```\n";
    let run = page.find("\n```\n# IOStackBreakdown ")?;
    page[run + FENCE.len()..].split(FENCE).next()
}

/// The part of a run that is shown: up to the end of its first block of rows.
pub fn screen(run: &str) -> Option<&str> {
    let bars = run.find('|')?;
    let end = run[bars..].find("\n\n")?;
    Some(&run[..bars + end])
}

/// The screen as SVG with a background of its own, readable on light and dark pages.
pub fn svg(screen: &str) -> String {
    let lines: Vec<&str> = screen.lines().collect();
    let columns = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
    let width = 2.0 * MARGIN + columns as f64 * WIDTH;
    let height = BAR + 2.0 * MARGIN + lines.len() as f64 * HEIGHT;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\">\n\
         <title>A report of IOStackBreakdown in a terminal</title>\n\
         <style>text {{ font: {FONT}px ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', 'Liberation Mono', monospace; \
         fill: #d7dce2; white-space: pre }} .command {{ fill: #ffffff; font-weight: bold }}</style>\n\
         <rect x=\"0.5\" y=\"0.5\" width=\"{:.0}\" height=\"{:.0}\" rx=\"8\" fill=\"#161b22\" stroke=\"#6e7681\"/>\n",
        width - 1.0,
        height - 1.0,
    );
    for (nth, colour) in ["#ff5f57", "#febc2e", "#28c840"].iter().enumerate() {
        let x = MARGIN + 4.0 + nth as f64 * 18.0;
        let _ = writeln!(
            svg,
            "<circle cx=\"{x}\" cy=\"{}\" r=\"5\" fill=\"{colour}\"/>",
            BAR / 2.0 + 2.0
        );
    }
    for (nth, line) in lines.iter().enumerate().filter(|(_, line)| !line.is_empty()) {
        let class = if line.starts_with("# ") {
            " class=\"command\""
        } else {
            ""
        };
        let y = BAR + MARGIN + (nth as f64 + 0.75) * HEIGHT;
        let length = line.chars().count() as f64 * WIDTH;
        let _ = writeln!(
            svg,
            "<text x=\"{MARGIN}\" y=\"{y:.1}\" textLength=\"{length:.1}\" xml:space=\"preserve\"{class}>{}</text>",
            escaped(line)
        );
    }
    svg.push_str("</svg>\n");
    svg
}

fn escaped(line: &str) -> String {
    line.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn draw(root: &Path) -> io::Result<()> {
    let page = fs::read_to_string(root.join(PAGE))?;
    let screen = run(&page).and_then(screen);
    let screen = screen.ok_or_else(|| io::Error::other(format!("{PAGE} has no report")))?;
    fs::write(root.join(PICTURE), svg(screen))
}

#[allow(dead_code, reason = "the tests of the documentation use the rest")]
fn main() -> ExitCode {
    match draw(Path::new(env!("CARGO_MANIFEST_DIR"))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {PICTURE}: {error}");
            ExitCode::FAILURE
        }
    }
}
