//! What took how long, how much of it the host's CPUs had to do with it, and how much of it was others' doing.

use std::cmp::Reverse;
use std::fmt::Write as _;
use std::fs;
use std::time::{Duration, Instant};

/// How many of the slowest checks are told.
const SLOWEST: usize = 15;

/// A point in time, and what a process had had of the CPUs by then.
#[derive(Clone, Copy)]
pub struct Moment {
    at: Instant,
    had: Had,
}

/// What threads have had of the CPUs.
#[derive(Clone, Copy, Default)]
struct Had {
    /// All of them together.
    used: Duration,
    /// How long the busiest one, which is the guest's CPUs, could have run and had to wait.
    held_up: Duration,
}

impl Moment {
    /// Of a process that has not been waited for.
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

    /// The time of the later one, and what of either is more.
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

/// A thread's nanoseconds on a CPU and in wait for one.
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

/// Columns of the summary, in seconds: all of it, what of it was in wait for the host's CPUs, and their time.
fn columns(span: Span) -> String {
    let [took, held_up, used] = [span.took, span.held_up, span.used].map(|time| time.as_secs_f64());
    format!("{took:>8.1}{held_up:>8.1}{used:>8.1}")
}

/// A guest, from its start to its end.
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

    /// `boot` is all of its time when it never came up.
    pub fn guest(&mut self, configuration: &str, start: Moment, boot: Span, whole: Span) {
        self.guests.push(Guest {
            configuration: configuration.into(),
            start: start.at,
            boot,
            whole,
        });
    }

    /// A table of guests, one of the slowest checks, and how long guests could have run and had ended: of so many at a time.
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
            "{:<width$}{:>8}{}  and {:.1} with no guest left for one of {jobs} places\n\nthe slowest checks",
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
