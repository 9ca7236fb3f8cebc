//! A run of the tool on a command, with the exact numbers of `--verbose`.

use crate::guest::{Guest, run};
use std::process::Command;
use std::time::Duration;

/// Longer than any of these runs takes on the slowest guest.
const LIMIT: Duration = Duration::from_secs(90);
const REPORT: &str = "/tmp/exact";

/// Its output.
#[derive(Debug)]
pub struct Traced {
    /// The report with its long lines joined.
    pub report: String,
    pub stderr: String,
}

/// An op of a layer.
#[derive(Debug, Default, PartialEq)]
pub struct Op {
    pub calls: u64,
    pub bytes: u64,
    pub total: Duration,
    pub min: Duration,
    pub max: Duration,
}

/// Runs it to its end, which must be a success. The last arguments are the command.
pub fn trace(guest: &Guest, arguments: &[&str]) -> Result<Traced, String> {
    let mut tool = Command::new(guest.tool().ok_or("there is no tool")?);
    trace_by(&mut tool, REPORT, arguments)
}

/// The same as another user, who can write the report to this file.
pub fn trace_by(tool: &mut Command, report: &str, arguments: &[&str]) -> Result<Traced, String> {
    let output = run(tool.args(["--verbose", "-o", report]).args(arguments), LIMIT)?.success()?;
    let text = std::fs::read_to_string(report).map_err(|e| format!("{report}: {e}"))?;
    std::fs::remove_file(report).map_err(|e| format!("{report}: {e}"))?;
    Ok(Traced {
        report: unfold(&text),
        stderr: output.stderr,
    })
}

/// Joins wrapped lines, which continue after two blanks. A histogram's rows are indented by more, or not at all.
fn unfold(text: &str) -> String {
    let mut joined = String::new();
    for line in text.lines() {
        let rest = line.strip_prefix("  ").filter(|rest| !rest.starts_with(' '));
        match rest {
            Some(rest) => {
                joined.push(' ');
                joined.push_str(rest);
            }
            None => {
                joined.push('\n');
                joined.push_str(line);
            }
        }
    }
    joined
}

impl Traced {
    /// The report's part about a layer. A report of a single layer does not name it.
    pub fn layer(&self, name: &str) -> &str {
        let part = self.report.split(&format!("layer = {name}\n")).nth(1);
        part.map_or(&self.report, |part| part.split("layer = ").next().unwrap_or(part))
    }

    /// An op's numbers, 0 if it was not called.
    pub fn op(&self, layer: &str, op: &str) -> Result<Op, String> {
        let line = self
            .layer(layer)
            .lines()
            .find_map(|line| line.strip_prefix(&format!("exact: {op} ")));
        let Some(line) = line else { return Ok(Op::default()) };
        let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        let [calls, total, bytes, min, max] = numbers[..] else {
            return Err(format!("not exact: {line:?}"));
        };
        let [total, min, max] = [total, min, max].map(Duration::from_nanos);
        Ok(Op {
            calls,
            bytes,
            total,
            min,
            max,
        })
    }

    /// The rest of lines that begin with this word.
    pub fn lines(&self, start: &str) -> Vec<&str> {
        self.report
            .lines()
            .filter_map(|line| line.strip_prefix(start))
            .collect()
    }

    /// The whole output, for debugging.
    pub fn all(&self) -> String {
        format!("{}{}", self.report, self.stderr)
    }
}
