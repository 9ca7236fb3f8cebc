//! One attachment in the kernel: the programs that it runs, and what the kernel counts of them.

use std::os::fd::OwnedFd;
use std::rc::Rc;

use super::PerfHandle;
use crate::catalog::Layer;
use crate::model::snapshot::ProbeCounts;
use crate::probe::{Hook, program};
use crate::sys::perf;

/// Programs on one function, or on many, or on an event.
pub struct Probe {
    /// `None`: it serves several, or none (processes that fork and exit, asynchronous completions).
    pub layer: Option<Layer>,
    /// The layer that it is detached with. Those that stay to the end have none.
    pub goes_with: Option<Layer>,
    pub hook: Hook,
    /// Functions, or the tracepoint.
    pub functions: Vec<String>,
    /// The program at the entry; of a session, at both ends; of an event, the only one.
    pub(super) entry: Option<Rc<OwnedFd>>,
    /// The program at the return.
    pub(super) leave: Option<Rc<OwnedFd>>,
    /// Where the kernel counts what it skipped and nothing else sees.
    pub(super) skips: Vec<SkipSource>,
    /// Of an event of requests: where the kernel counts what it skipped, whether another program sees it or not.
    pub(super) alone: Vec<SkipSource>,
    /// Once it is detached: all that the kernel has counted of it.
    pub(super) last: Option<ProbeCounts>,
}

#[derive(Clone)]
pub(super) enum SkipSource {
    Program(Rc<OwnedFd>),
    /// Of an event that another program sees, too: it is lost when both are skipped, which is no more often than that the
    /// less skipped one is. What the other one has made good is known, if at all, of `block_getrq`.
    Both {
        one: Vec<SkipSource>,
        other: Rc<OwnedFd>,
        is_recovered: bool,
    },
    Perf(PerfHandle),
    Multi(Rc<OwnedFd>),
    /// It was so much when the link was closed that told of it.
    Known(u64),
}

impl SkipSource {
    /// `recovered`: what the second program on `block_getrq` has told.
    fn read(&self, recovered: u64) -> Option<u64> {
        match self {
            Self::Program(program) => program::skipped(program),
            Self::Both {
                one,
                other,
                is_recovered,
            } => {
                let recovered = if *is_recovered { recovered } else { 0 };
                Some(skipped_by_both(
                    skipped(one, recovered)?,
                    program::skipped(other)?,
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

/// How many entries two programs were skipped at, at most: each was skipped so often, and the second one has made good so many
/// skips of the first.
fn skipped_by_both(one: u64, other: u64, recovered: u64) -> u64 {
    one.saturating_sub(recovered).min(other)
}

/// Each source counts other entries than the rest.
fn skipped(sources: &[SkipSource], recovered: u64) -> Option<u64> {
    let counts = sources.iter().filter_map(|source| source.read(recovered));
    counts.reduce(|a, b| a + b)
}

impl Probe {
    /// On an event, whose program libbpf attaches.
    pub(super) fn on_event(layer: Option<Layer>, hook: Hook, event: &str, program: Option<Rc<OwnedFd>>) -> Self {
        Self {
            layer,
            goes_with: layer,
            hook,
            functions: vec![event.to_owned()],
            entry: program,
            leave: None,
            skips: Vec::new(),
            alone: Vec::new(),
            last: None,
        }
    }

    /// How long its programs ran so far, in nanoseconds, of all CPUs together, while the kernel counted that.
    #[must_use]
    pub fn run_ns(&self) -> u64 {
        let programs = self.entry.iter().chain(&self.leave);
        let runs = programs.filter_map(|program| program::runs(program));
        runs.fold(0, |sum, runs| sum.saturating_add(runs.ns))
    }

    /// What it skipped so far, and with `runs` how often its programs ran, and for how long.
    #[must_use]
    pub fn read(&self, runs: bool, recovered: u64) -> ProbeCounts {
        if let Some(last) = self.last {
            return last;
        }
        let runs_of =
            |program: &Option<Rc<OwnedFd>>| program.as_ref().filter(|_| runs).and_then(|fd| program::runs(fd));
        ProbeCounts {
            entry: runs_of(&self.entry),
            leave: runs_of(&self.leave),
            skipped: skipped(&self.skips, recovered),
            skipped_alone: skipped(&self.alone, 0),
        }
    }

    /// Reads what is skipped for the last time, since links that tell of it are to be closed.
    pub(super) fn keep_skips(&mut self, recovered: u64) {
        let known = |sources, recovered| skipped(sources, recovered).map(SkipSource::Known).into_iter().collect();
        (self.skips, self.alone) = (known(&self.skips, recovered), known(&self.alone, 0));
    }

    /// It is detached: reads all for the last time, and lets go of its programs.
    pub(super) fn keep_counts(&mut self, recovered: u64) {
        self.last = Some(self.read(true, recovered));
        (self.entry, self.leave) = (None, None);
        self.skips.clear();
        self.alone.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_good_is_not_lost() {
        assert_eq!(skipped_by_both(5, 3, 0), 3);
        assert_eq!(skipped_by_both(5, 3, 4), 1);
        assert_eq!(skipped_by_both(5, 3, 5), 0);
        // What was counted a moment later than the rest.
        assert_eq!(skipped_by_both(5, 3, 6), 0);
        assert_eq!(skipped_by_both(0, 3, 0), 0);
    }
}
