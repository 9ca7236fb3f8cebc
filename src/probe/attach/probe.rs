//! An attachment: its programs, and the kernel's counts of their runs and skipped runs.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;

use super::PerfHandle;
use crate::catalog::Layer;
use crate::model::snapshot::ProbeCounts;
use crate::probe::{Hook, program};
use crate::sys::perf;

/// Programs on a function, on several functions, or on a tracepoint.
pub struct Probe {
    /// `None`: it serves several layers, or none (process events, completions of asynchronous requests).
    pub layer: Option<Layer>,
    /// The layer with which it is detached. `None`: it stays until the end.
    pub goes_with: Option<Layer>,
    pub hook: Hook,
    /// Functions, or the tracepoint.
    pub functions: Vec<String>,
    /// The program at the entry; for a session hook, at both ends; for a tracepoint, the only program.
    pub(super) entry: Option<Rc<OwnedFd>>,
    /// The program at the return.
    pub(super) leave: Option<Rc<OwnedFd>>,
    /// Counters of events that the kernel skipped and no other program saw.
    pub(super) skips: Vec<SkipSource>,
    /// For a program of the block layer: counters of the events that the kernel skipped, whether or not another program
    /// saw them.
    pub(super) alone: Vec<SkipSource>,
    /// Once it is detached: its final counts.
    pub(super) last: Option<ProbeCounts>,
}

/// A kernel counter of skipped runs.
#[derive(Clone)]
pub(super) enum SkipSource {
    Program(Rc<OwnedFd>),
    /// Of an event that another program sees, too: it is lost if both are skipped, which is at most the smaller of the
    /// two counts. The number of events that the other program has recovered is known only for `block_getrq`.
    Both {
        one: Vec<SkipSource>,
        other: Rc<OwnedFd>,
        is_recovered: bool,
    },
    Perf(PerfHandle),
    Multi(Rc<OwnedFd>),
    /// The count before the link that had the counter was closed.
    Known(u64),
}

/// How often the kernel skipped programs, each of which is asked once, whichever probes it serves.
#[derive(Default)]
pub struct Skipped(RefCell<BTreeMap<RawFd, Option<u64>>>);

impl Skipped {
    fn of(&self, program: &OwnedFd) -> Option<u64> {
        let mut known = self.0.borrow_mut();
        let number = program.as_raw_fd();
        *known.entry(number).or_insert_with(|| program::skipped(program))
    }
}

impl SkipSource {
    /// `recovered`: the number of events that the second program on `block_getrq` has recovered.
    fn read(&self, recovered: u64, programs: &Skipped) -> Option<u64> {
        match self {
            Self::Program(program) => programs.of(program),
            Self::Both {
                one,
                other,
                is_recovered,
            } => {
                let recovered = if *is_recovered { recovered } else { 0 };
                Some(skipped_by_both(
                    skipped(one, recovered, programs)?,
                    programs.of(other)?,
                    recovered,
                ))
            }
            Self::Perf(link) => link.missed(),
            Self::Known(skipped) => Some(*skipped),
            Self::Multi(link) => {
                let info = perf::link_info(link)?;
                // SAFETY: the link is a kprobe.multi one; `missed` is 0 on kernels that do not fill it (before 6.7).
                Some(unsafe { info.__bindgen_anon_1.kprobe_multi.missed })
            }
        }
    }
}

/// The maximum number of events at which both programs were skipped, from the skips of each and the number of skips of
/// the first one that the second one has recovered.
fn skipped_by_both(one: u64, other: u64, recovered: u64) -> u64 {
    one.saturating_sub(recovered).min(other)
}

/// The sum of the counters, which never count the same event. `None`: the kernel has none of them.
fn skipped(sources: &[SkipSource], recovered: u64, programs: &Skipped) -> Option<u64> {
    let counts = sources.iter().filter_map(|source| source.read(recovered, programs));
    counts.reduce(|a, b| a + b)
}

impl Probe {
    /// A probe with a single program: on a tracepoint, or on the entries of functions.
    pub(super) fn on_event(layer: Option<Layer>, hook: Hook, events: &[&str], program: Option<Rc<OwnedFd>>) -> Self {
        Self {
            layer,
            goes_with: layer,
            hook,
            functions: events.iter().map(|&name| name.to_owned()).collect(),
            entry: program,
            leave: None,
            skips: Vec::new(),
            alone: Vec::new(),
            last: None,
        }
    }

    /// How long its programs ran so far, in nanoseconds on all CPUs, while the kernel counted runs.
    #[must_use]
    pub fn run_ns(&self) -> u64 {
        let programs = self.entry.iter().chain(&self.leave);
        let runs = programs.filter_map(|program| program::runs(program));
        runs.fold(0, |sum, runs| sum.saturating_add(runs.ns))
    }

    /// Its skipped events so far, and with `runs` how often and how long its programs ran. `programs`: those of one moment.
    #[must_use]
    pub fn read(&self, runs: bool, recovered: u64, programs: &Skipped) -> ProbeCounts {
        if let Some(last) = self.last {
            return last;
        }
        let runs_of =
            |program: &Option<Rc<OwnedFd>>| program.as_ref().filter(|_| runs).and_then(|fd| program::runs(fd));
        ProbeCounts {
            entry: runs_of(&self.entry),
            leave: runs_of(&self.leave),
            skipped: skipped(&self.skips, recovered, programs),
            skipped_alone: skipped(&self.alone, 0, programs),
        }
    }

    /// Stores the counts of skipped events before the links that have them are closed.
    pub(super) fn keep_skips(&mut self, recovered: u64) {
        let programs = Skipped::default();
        let known = |sources, recovered| {
            let count = skipped(sources, recovered, &programs);
            count.map(SkipSource::Known).into_iter().collect()
        };
        (self.skips, self.alone) = (known(&self.skips, recovered), known(&self.alone, 0));
    }

    /// Stores all counts and releases the programs, since the probe is detached.
    pub(super) fn keep_counts(&mut self, recovered: u64) {
        self.last = Some(self.read(true, recovered, &Skipped::default()));
        (self.entry, self.leave) = (None, None);
        self.skips.clear();
        self.alone.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recovered_events_are_not_lost() {
        assert_eq!(skipped_by_both(5, 3, 0), 3);
        assert_eq!(skipped_by_both(5, 3, 4), 1);
        assert_eq!(skipped_by_both(5, 3, 5), 0);
        // More were recovered than skipped, because the counters are not read at the same time.
        assert_eq!(skipped_by_both(5, 3, 6), 0);
        assert_eq!(skipped_by_both(0, 3, 0), 0);
    }
}
