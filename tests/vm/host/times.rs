//! How long guests and checks took, how much of it was CPU time of the host, and how much was waiting for its CPUs.

use std::cmp::Reverse;
use std::fmt::Write as _;
use std::fs;
use std::time::{Duration, Instant};

/// The number of slowest checks to list.
const SLOWEST: usize = 15;

/// A point in time, with the CPU statistics of a process.
#[derive(Clone, Copy)]
pub struct Moment {
    at: Instant,
    had: Had,
}

/// CPU statistics of threads.
#[derive(Clone, Copy, Default)]
struct Had {
    /// The sum over all threads.
    used: Duration,
    /// How long the busiest thread, which runs the guest's CPUs, was ready to run but waited.
    held_up: Duration,
}

impl Moment {
    /// Statistics of a process that has not been reaped.
    pub fn of(pid: u32) -> Self {
        let tasks = fs::read_dir(format!("/proc/{pid}/task"))
            .into_iter()
            .flatten()
            .flatten();
        let threads: Vec<Had> = tasks
            .filter_map(|task| thread(&fs::read_to_string(task.path().join("schedstat")).ok()?))
            .collect();
        let busiest = threads.iter().max_by_key(|thread| thread.used);
        Self {
            at: Instant::now(),
            had: Had {
                used: threads.iter().map(|thread| thread.used).sum(),
                held_up: busiest.map_or(Duration::ZERO, |thread| thread.held_up),
            },
        }
    }

    /// The time of the later one, and the maximum of each statistic.
    pub fn later(self, other: Self) -> Self {
        Self {
            at: self.at.max(other.at),
            had: Had {
                used: self.had.used.max(other.had.used),
                held_up: self.had.held_up.max(other.had.held_up),
            },
        }
    }

    pub fn until(self, end: Self) -> Span {
        Span {
            took: end.at.saturating_duration_since(self.at),
            used: end.had.used.saturating_sub(self.had.used),
            held_up: end.had.held_up.saturating_sub(self.had.held_up),
        }
    }
}

/// A thread's nanoseconds on a CPU, and waiting for one.
fn thread(schedstat: &str) -> Option<Had> {
    let mut fields = schedstat.split_whitespace();
    let mut time = || Some(Duration::from_nanos(fields.next()?.parse().ok()?));
    Some(Had {
        used: time()?,
        held_up: time()?,
    })
}

#[derive(Clone, Copy, Default)]
pub struct Span {
    pub took: Duration,
    pub used: Duration,
    pub held_up: Duration,
}

/// Columns of the summary, in seconds: total, waiting for the host's CPUs, and CPU time.
fn columns(span: Span) -> String {
    let [took, held_up, used] = [span.took, span.held_up, span.used].map(|time| time.as_secs_f64());
    format!("{took:>8.1}{held_up:>8.1}{used:>8.1}")
}

/// A guest, from start to end.
struct Guest {
    configuration: String,
    start: Instant,
    boot: Span,
    whole: Span,
}

/// A check in a guest.
struct Check {
    configuration: String,
    name: String,
    span: Span,
}

#[derive(Default)]
pub struct Times {
    guests: Vec<Guest>,
    checks: Vec<Check>,
}

impl Times {
    pub fn check(&mut self, configuration: &str, name: &str, span: Span) {
        self.checks.push(Check {
            configuration: configuration.into(),
            name: name.into(),
            span,
        });
    }

    /// `boot` is the total if it never came up.
    pub fn guest(&mut self, configuration: &str, start: Moment, boot: Span, whole: Span) {
        self.guests.push(Guest {
            configuration: configuration.into(),
            start: start.at,
            boot,
            whole,
        });
    }

    /// The summary: a table of guests, one of the slowest checks, and how long guests could have run after others had
    /// ended, with this many at a time.
    pub fn summary(&self, jobs: usize) -> String {
        let first = self.guests.iter().map(|guest| guest.start).min();
        let end = self.guests.iter().map(|guest| guest.start + guest.whole.took).max();
        let (Some(first), Some(end)) = (first, end) else {
            return String::new();
        };
        let names = self.guests.iter().map(|guest| guest.configuration.len());
        let width = names.max().unwrap_or(0).max("seconds".len());
        let mut text = format!(
            "\n{:<width$}{:>8}{:>8}{:>8}{:>8}{:>8}  checks\n",
            "seconds", "start", "took", "held up", "CPU", "boot"
        );
        for guest in &self.guests {
            let mine = self
                .checks
                .iter()
                .filter(|check| check.configuration == guest.configuration);
            let _ = writeln!(
                text,
                "{:<width$}{:>8.1}{}{:>8.1}{:>8}",
                guest.configuration,
                guest.start.duration_since(first).as_secs_f64(),
                columns(guest.whole),
                guest.boot.took.as_secs_f64(),
                mine.count(),
            );
        }
        let sum = |part: fn(&Span) -> Duration| self.guests.iter().map(|guest| part(&guest.whole)).sum();
        let busy: Duration = sum(|span| span.took);
        let all = Span {
            took: end.duration_since(first),
            used: sum(|span| span.used),
            held_up: sum(|span| span.held_up),
        };
        let places = all.took * u32::try_from(jobs).unwrap_or(1);
        let _ = writeln!(
            text,
            "{:<width$}{:>8}{}  and {:.1} with no guest left for one of {jobs} slots\n\nthe slowest checks",
            "all",
            "",
            columns(all),
            places.saturating_sub(busy).as_secs_f64(),
        );
        let mut slowest: Vec<&Check> = self.checks.iter().collect();
        slowest.sort_by_key(|check| Reverse(check.span.took));
        for check in slowest.into_iter().take(SLOWEST) {
            let _ = writeln!(
                text,
                "{:<width$}{:>8}{}  {}",
                check.configuration,
                "",
                columns(check.span),
                check.name
            );
        }
        text
    }
}
