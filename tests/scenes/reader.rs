//! Runs the tool with `--from-snapshots`: without privileges, with output to a pipe or a terminal.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use iostackbreakdown::view::json::{Form, Json};
use iostackbreakdown::view::text::{TextOptions, Unit};
use iostackbreakdown::view::{Screen, Sheet, Text, View};
use nix::pty::{Winsize, openpty};

use super::Part;
use super::kept::Kept;

/// The user and the group `nobody`.
const NOBODY: u32 = 65_534;
/// The height of the terminal.
const ROWS: u16 = 24;

/// The format of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Text,
    /// The same with colours.
    Colored,
    Json(Form),
}

impl Way {
    pub const ALL: [Self; 4] = [
        Self::Text,
        Self::Colored,
        Self::Json(Form::Full),
        Self::Json(Form::Compact),
    ];

    fn is_text(self) -> bool {
        matches!(self, Self::Text | Self::Colored)
    }
}

/// The expected output for a part: that of the tool's views, called directly with the same counters.
pub fn expected(part: &Part, kept: &Kept, way: Way) -> String {
    let mut view: Box<dyn View> = match way {
        Way::Text | Way::Colored => Box::new(Text::new(part.options, false)),
        Way::Json(form) => Box::new(Json(form)),
    };
    let mut out = Vec::new();
    let screen = Screen {
        width: part.options.width.filter(|_| way.is_text()),
        height: None,
        is_colored: way == Way::Colored,
    };
    let mut sheet = Sheet { out: &mut out, screen };
    view.begin(&kept.first_report(), &mut sheet).unwrap();
    view.report(&kept.report(), &mut sheet).unwrap();
    view.end(&mut sheet).unwrap();
    String::from_utf8(out).unwrap()
}

/// The output of the tool for a file of counters. If the test runs as root, the tool runs as `nobody`.
pub fn printed(tool: &Path, saved: &Path, part: &Part, way: Way) -> Result<String, String> {
    let mut command = Command::new(tool);
    command
        .arg("--from-snapshots")
        .arg(saved)
        .args(arguments(part.options, way));
    if nix::unistd::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    match part.options.width.filter(|_| way.is_text()) {
        Some(width) => on_terminal(command, width),
        None => {
            let output = command.output().map_err(|error| error.to_string())?;
            match output.status.success() && output.stderr.is_empty() {
                true => String::from_utf8(output.stdout).map_err(|error| error.to_string()),
                false => Err(format!(
                    "{}: {}",
                    output.status,
                    String::from_utf8_lossy(&output.stderr)
                )),
            }
        }
    }
}

fn arguments(options: TextOptions, way: Way) -> Vec<&'static str> {
    match way {
        Way::Json(Form::Full) => return vec!["--json"],
        Way::Json(Form::Compact) => return vec!["--json=compact"],
        Way::Text | Way::Colored => {}
    }
    let flags = [
        (way == Way::Colored, "--color=always"),
        (way == Way::Text && options.width.is_some(), "--color=never"),
        (options.unit == Unit::Microseconds, "-u"),
        (options.unit == Unit::Milliseconds, "-m"),
        (options.summary_only, "-S"),
        (options.verbose, "--verbose"),
        (options.interval.is_some(), "12.412"),
    ];
    flags
        .into_iter()
        .filter_map(|(is_set, flag)| is_set.then_some(flag))
        .collect()
}

/// The output of a command on a terminal, with its `\r\n` line ends replaced by `\n`.
fn on_terminal(mut command: Command, columns: usize) -> Result<String, String> {
    let (mut shown, end) = terminal(columns)?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(end)
        .spawn()
        .map_err(|error| error.to_string())?;
    // The command's descriptor of the terminal would prevent the end of file.
    drop(command);
    let mut text = Vec::new();
    // The end of file of a terminal that no process has open is an error, EIO.
    let _ = shown.read_to_end(&mut text);
    let status = child.wait().map_err(|error| error.to_string())?;
    let text = String::from_utf8(text)
        .map_err(|error| error.to_string())?
        .replace("\r\n", "\n");
    match status.success() {
        true => Ok(text),
        false => Err(format!("{status}: {text}")),
    }
}

/// A pseudoterminal: its master, from which output is read, and its slave, to which programs write.
fn terminal(columns: usize) -> Result<(File, OwnedFd), String> {
    let size = Winsize {
        ws_row: ROWS,
        ws_col: columns as u16,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let opened = openpty(&size, None).map_err(|error| format!("no terminal can be opened: {error}"))?;
    Ok((File::from(opened.master), opened.slave))
}
