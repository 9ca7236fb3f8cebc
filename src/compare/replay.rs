//! A recording and its replay: the recorded run is the one before, the replay the one after.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::lines::Lines;
use super::{Group, MOST, Run, report_of, run_of, sections, text};
use crate::model::histogram;
use crate::model::ids::Layer;
use crate::model::report::replay::{Compared, ComparedRow};
use crate::view::json::form::Bucket;

/// What a replay measured.
pub enum Measured {
    /// All that the recording measured: a line of `--json`.
    Report(Vec<u8>),
    /// The times of its calls alone. `start` is a moment as in reports.
    Calls { start: String, calls: Vec<TimedCalls> },
}

/// Calls as their caller timed them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TimedCalls {
    /// Their family in a report of the whole stack, or their operation.
    pub name: String,
    pub calls: u64,
    pub bytes: u64,
    /// Nanoseconds.
    pub total_ns: u64,
    pub max_ns: u64,
    pub buckets: Vec<histogram::Bucket>,
}

/// What is the same in a recording and its replay.
pub struct Same<'a> {
    /// The names of the operations by which recorded ones are replayed.
    pub renamed: &'a BTreeMap<&'a str, &'a str>,
    /// Those of operations of which no call was replayed, so that the replay has no numbers of them.
    pub not_made: &'a [&'a str],
    /// The calls that were replayed, as they were recorded.
    pub made: Vec<TimedCalls>,
    /// How long the calls took in the recording and in the replay, from the first begin to the last end; `None`: the runs took
    /// as long as they were measured.
    pub spans_ns: Option<[u64; 2]>,
}

/// What a recording has.
#[derive(Debug)]
pub struct Recorded {
    run: Run,
    /// A line of `--json`.
    report: Vec<u8>,
}

/// A recording beside its replay.
#[derive(Debug)]
pub struct Comparison {
    recorded: Run,
    replayed: Run,
    /// Their reports, as lines of `--json`; `None`: the replay has none.
    reports: (Vec<u8>, Option<Vec<u8>>),
}

impl Recorded {
    /// # Errors
    /// One line: what cannot be read.
    pub fn read(recording: &Path) -> Result<Self, String> {
        let (report, _) = report_of(recording)?;
        Ok(Self {
            run: run_of(Lines::of(recording, report.clone()))?,
            report,
        })
    }

    /// Compares it with its replay.
    ///
    /// # Errors
    /// One line: what cannot be read.
    pub fn beside(self, measured: Measured, same: Same<'_>) -> Result<Comparison, String> {
        let mut recorded = self.run;
        recorded.rename(same.renamed);
        recorded.keep_made(same.made);
        let (mut replayed, of_replay) = match measured {
            Measured::Report(line) => (run_of(Lines::of(Path::new("the replay"), line.clone()))?, Some(line)),
            Measured::Calls { start, calls } => (Run::of_calls(start, calls, &recorded), None),
        };
        replayed.leave_out(same.not_made);
        if let Some([of_recording, of_replay]) = same.spans_ns {
            (recorded.duration_ns, replayed.duration_ns) = (of_recording, of_replay);
        }
        "the replay".clone_into(&mut replayed.subject);
        Ok(Comparison {
            recorded,
            replayed,
            reports: (self.report, of_replay),
        })
    }
}

impl Comparison {
    /// In lines of `width` columns: those of the terminal, `None` if there is none.
    #[must_use]
    pub fn text(&self, width: Option<usize>) -> String {
        text(&self.recorded, &self.replayed, width)
    }

    /// The reports of the recording and of the replay, as lines of `--json`.
    #[must_use]
    pub fn reports(&self) -> (&[u8], Option<&[u8]>) {
        (&self.reports.0, self.reports.1.as_deref())
    }

    /// The numbers.
    #[must_use]
    pub fn compared(&self) -> Vec<Compared> {
        let calls = |run: &Run, name: &str| run.group(name).map(|group| group.count);
        let sections = sections(&self.recorded, &self.replayed).into_iter();
        let compared = sections.map(|section| Compared {
            recorded_calls: calls(&self.recorded, &section.name),
            replayed_calls: calls(&self.replayed, &section.name),
            rows: section
                .rows
                .into_iter()
                .map(|row| ComparedRow {
                    row: row.name,
                    recorded: row.numbers[0],
                    replayed: row.numbers[1],
                    within_noise: row.difference.map(|difference| difference.is_noise),
                })
                .collect(),
            name: section.name,
        });
        compared.collect()
    }
}

impl Run {
    /// Gives the system calls of this run the names of those by which they are replayed.
    fn rename(&mut self, renamed: &BTreeMap<&str, &str>) {
        let layer = Layer::Syscall.name();
        let new = |name: &str| {
            let op = name.strip_prefix(layer)?.strip_prefix(' ')?;
            Some(format!("{layer} {}", renamed.get(op)?))
        };
        for mut group in std::mem::take(&mut self.groups) {
            group.name = new(&group.name).unwrap_or(group.name);
            self.add_group(group);
        }
    }

    /// Gives operations of which only some calls were replayed the numbers of those: what else was recorded has nothing to be
    /// compared with. Families of the whole stack keep all, since the times of single calls in its rows are not known.
    fn keep_made(&mut self, made: Vec<TimedCalls>) {
        if self.has_stack {
            return;
        }
        let mut of_made = Self::default();
        made.into_iter()
            .take(MOST)
            .for_each(|timed| of_made.add_group(timed.of_syscall()));
        for group in of_made.groups {
            match self.groups.iter_mut().find(|all| all.name == group.name) {
                Some(all) if all.count > group.count => *all = group,
                _ => {}
            }
        }
    }

    /// These system calls were not measured.
    fn leave_out(&mut self, ops: &[&str]) {
        let names: BTreeSet<String> = ops.iter().map(|op| format!("{} {op}", Layer::Syscall.name())).collect();
        self.groups.retain(|group| !names.contains(&group.name));
        self.missing.extend(names);
    }

    /// The calls of a replay that nothing traced, beside the recorded run: whatever else that has is not measured.
    fn of_calls(start: String, calls: Vec<TimedCalls>, recorded: &Self) -> Self {
        let layer = Layer::Syscall.name();
        let mut run = Self {
            start,
            has_stack: recorded.has_stack,
            ..Self::default()
        };
        for group in &recorded.groups {
            run.missing.extend(group.rows.iter().map(|(row, _)| row.clone()));
            match group.name.split_once(' ') {
                Some((of, _)) if !recorded.has_stack && of != layer => run.missing.insert(group.name.clone()),
                _ => true,
            };
        }
        for timed in calls.into_iter().take(MOST) {
            run.add_group(if recorded.has_stack {
                timed.group()
            } else {
                timed.of_syscall()
            });
        }
        run
    }
}

impl TimedCalls {
    /// As calls that are compared.
    fn group(self) -> Group {
        let bucket = |bucket: histogram::Bucket| Bucket {
            ge_ns: bucket.ge,
            lt_ns: bucket.lt,
            count: bucket.count,
        };
        Group {
            name: self.name,
            count: self.calls,
            bytes: self.bytes,
            total_ns: self.total_ns,
            max_ns: self.max_ns,
            buckets: self.buckets.into_iter().map(bucket).collect(),
            ..Group::default()
        }
    }

    /// As those of an operation of the layer `syscall`.
    fn of_syscall(self) -> Group {
        let mut group = self.group();
        group.name = format!("{} {}", Layer::Syscall.name(), group.name);
        group
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(name: &str, count: u64, rows: &[&str]) -> Group {
        Group {
            name: name.to_owned(),
            count,
            total_ns: count * 1000,
            max_ns: 2000,
            rows: rows.iter().map(|row| ((*row).to_owned(), 5)).collect(),
            ..Group::default()
        }
    }

    fn timed(name: &str, calls: u64) -> TimedCalls {
        TimedCalls {
            name: name.to_owned(),
            calls,
            total_ns: calls * 500,
            max_ns: 900,
            ..TimedCalls::default()
        }
    }

    fn comparison(recorded: Run, calls: Vec<TimedCalls>) -> Vec<Compared> {
        let replayed = Run::of_calls(String::new(), calls, &recorded);
        let comparison = Comparison {
            recorded,
            replayed,
            reports: Default::default(),
        };
        comparison.compared()
    }

    #[test]
    fn calls_that_are_replayed_by_one_operation_are_one() {
        let mut run = Run {
            groups: vec![
                group("syscall openat", 3, &[]),
                group("syscall read", 5, &[]),
                group("syscall open", 2, &[]),
                group("blk openat", 1, &[]),
            ],
            ..Run::default()
        };
        run.rename(&BTreeMap::from([("open", "openat2"), ("openat", "openat2")]));
        let counts: Vec<(&str, u64)> = run
            .groups
            .iter()
            .map(|group| (group.name.as_str(), group.count))
            .collect();
        assert_eq!(counts, [("syscall openat2", 5), ("syscall read", 5), ("blk openat", 1)]);
    }

    #[test]
    fn calls_that_are_not_replayed_are_not_compared() {
        let mut run = Run {
            groups: vec![group("syscall openat2", 5, &[]), group("syscall read", 5, &[])],
            ..Run::default()
        };
        run.keep_made(vec![timed("openat2", 1), timed("openat2", 2), timed("read", 5)]);
        let numbers: Vec<(u64, u64)> = run.groups.iter().map(|group| (group.count, group.total_ns)).collect();
        assert_eq!(numbers, [(3, 1500), (5, 5000)]);
        let mut stack = Run {
            has_stack: true,
            groups: vec![group("read", 5, &["device"])],
            ..Run::default()
        };
        stack.keep_made(vec![timed("read", 1)]);
        assert_eq!(stack.groups[0].count, 5);
    }

    #[test]
    fn calls_that_are_not_replayed_are_no_difference() {
        let recorded = Run {
            groups: vec![group("syscall read", 5, &[]), group("syscall mmap", 9, &[])],
            ..Run::default()
        };
        let mut replayed = Run {
            groups: vec![group("syscall read", 5, &[]), group("syscall mmap", 1, &[])],
            ..Run::default()
        };
        replayed.leave_out(&["mmap", "dup2"]);
        let comparison = Comparison {
            recorded,
            replayed,
            reports: Default::default(),
        };
        let compared = comparison.compared();
        let calls: Vec<_> = compared
            .iter()
            .map(|it| (it.recorded_calls, it.replayed_calls))
            .collect();
        assert_eq!(calls, [(Some(5), Some(5)), (Some(9), None)]);
        assert_eq!((compared[1].rows.len(), compared[1].rows[0].within_noise), (1, None));
    }

    #[test]
    fn without_tracing_only_times_of_calls_are_compared() {
        let layers = Run {
            groups: vec![group("syscall read", 5, &[]), group("blk read", 4, &[])],
            ..Run::default()
        };
        let compared = comparison(layers, vec![timed("read", 5)]);
        let counts: Vec<_> = compared
            .iter()
            .map(|one| (one.recorded_calls, one.replayed_calls))
            .collect();
        assert_eq!(counts, [(Some(5), Some(5)), (Some(4), None)]);
        let avg = &compared[0].rows[1];
        assert_eq!(
            (avg.row.as_str(), avg.recorded, avg.replayed),
            ("avg", Some(1000.0), Some(500.0))
        );
        let stack = Run {
            has_stack: true,
            groups: vec![group("read", 5, &["device"])],
            ..Run::default()
        };
        let compared = comparison(stack, vec![timed("read", 5)]);
        let device = compared[0].rows.last().unwrap();
        assert_eq!(
            (
                device.row.as_str(),
                device.recorded,
                device.replayed,
                device.within_noise
            ),
            ("device", Some(1.0), None, None)
        );
    }
}
