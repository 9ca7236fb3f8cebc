//! The runner's output, and its counts.

use super::times::{Moment, Span, Times};
use crate::figures::Figures;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::ops::AddAssign;
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Clone, Copy, Default)]
pub struct Tally {
    pub passed: usize,
    pub failed: usize,
}

impl Tally {
    pub const PASSED: Self = Self { passed: 1, failed: 0 };
    pub const FAILED: Self = Self { passed: 0, failed: 1 };
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

/// Prints the output of several guests at the same time, a whole message at once.
pub struct Report {
    width: usize,
    /// With one guest and `--exec`, stdout only gets its output.
    bare: bool,
    turn: Mutex<()>,
    /// Failures, one line each, to be repeated at the end: they may be thousands of lines above.
    failures: Mutex<Vec<String>>,
    /// Figures measured by guests.
    figures: Mutex<Figures>,
    /// Checks with a verdict.
    run: Mutex<BTreeSet<String>>,
    times: Mutex<Times>,
}

/// How much of a failure's reason is repeated, in characters.
const REMINDER: usize = 300;

impl Report {
    pub fn new(width: usize, bare: bool) -> Self {
        Self {
            width,
            bare,
            turn: Mutex::new(()),
            failures: Mutex::default(),
            figures: Mutex::default(),
            run: Mutex::default(),
            times: Mutex::default(),
        }
    }

    /// A figure for the kernel of this configuration.
    pub fn measured(&self, configuration: &str, figure: String, value: u64) {
        self.line(configuration, &format!("note  {figure}: {value}"));
        let kernel = configuration.split(' ').next().unwrap_or_default();
        let mut figures = self.figures.lock().unwrap_or_else(PoisonError::into_inner);
        figures.insert((kernel.into(), figure), value);
    }

    pub fn figures(&self) -> Figures {
        self.figures.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether a check has a verdict in any configuration.
    pub fn has_run(&self, check: &str) -> bool {
        let run = self.run.lock().unwrap_or_else(PoisonError::into_inner);
        run.contains(check)
    }

    fn has_verdict(&self, check: &str) {
        let mut run = self.run.lock().unwrap_or_else(PoisonError::into_inner);
        run.insert(check.into());
    }

    /// Prints the result of a guest.
    pub fn guest(&self, configuration: &str, start: Moment, boot: Span, whole: Span) {
        self.times().guest(configuration, start, boot, whole);
    }

    fn times(&self) -> MutexGuard<'_, Times> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn passed(&self, configuration: &str, check: &str, span: Span) -> Tally {
        self.has_verdict(check);
        self.times().check(configuration, check, span);
        self.line(configuration, &format!("ok    {check}  ({})", seconds(span)));
        Tally::PASSED
    }

    pub fn failed(&self, configuration: &str, check: &str, reason: &str, span: Option<Span>) -> Tally {
        self.has_verdict(check);
        let mut text = format!("FAIL  {check}: {}", indented(reason));
        if let Some(span) = span {
            self.times().check(configuration, check, span);
            let _ = write!(text, "  ({})", seconds(span));
        }
        self.line(configuration, &text);
        let reminder: String = text.lines().next().unwrap_or_default().chars().take(REMINDER).collect();
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        failures.push(format!("{configuration:<width$}  {reminder}\n", width = self.width));
        Tally::FAILED
    }

    /// Repeats the failures.
    pub fn remind(&self) {
        let failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        self.print(&failures.concat(), !self.bare);
    }

    /// Prints how long guests and checks took, with this many guests at a time.
    pub fn tell_times(&self, jobs: usize) {
        let summary = self.times().summary(jobs);
        self.print(&summary, !self.bare);
    }

    pub fn note(&self, configuration: &str, text: &str) {
        self.line(configuration, &format!("note  {}", indented(text)));
    }

    /// A line that an `--exec` command printed.
    pub fn output(&self, configuration: &str, text: &str) {
        if self.bare {
            self.print(&format!("{text}\n"), true)
        } else {
            self.line(configuration, &format!("| {text}"))
        }
    }

    fn line(&self, configuration: &str, text: &str) {
        self.print(
            &format!("{configuration:<width$}  {text}\n", width = self.width),
            !self.bare,
        );
    }

    /// A closed stdout does not stop the guests: the exit status still shows the result.
    fn print(&self, text: &str, stdout: bool) {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = if stdout {
            std::io::stdout().write_all(text.as_bytes())
        } else {
            std::io::stderr().write_all(text.as_bytes())
        };
    }
}

fn seconds(span: Span) -> String {
    format!("{:.1} s, CPU {:.1} s", span.took.as_secs_f64(), span.used.as_secs_f64())
}

/// Indents all lines after the first one.
fn indented(text: &str) -> String {
    text.trim_end().replace('\n', "\n        ")
}
