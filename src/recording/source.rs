//! A recorded run as a source of reports.

use std::collections::VecDeque;
use std::time::Duration;

use crate::model::run_info::RunInfo;
use crate::model::snapshot::Snapshot;
use crate::source::{Item, Source, SourceError, Until};

use super::{Recording, Seconds};

/// A span of a recording, by the programs' clock in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    pub from_ns: u64,
    pub to_ns: u64,
}

impl Span {
    /// All of it.
    pub const ALL: Self = Self {
        from_ns: 0,
        to_ns: u64::MAX,
    };
}

/// The seconds of a recording as the snapshots of a run: that of the start, and one for each interval.
pub struct Replayed {
    info: RunInfo,
    seconds: Seconds,
    span: Span,
    /// `None`: one report of the whole span.
    interval: Option<Duration>,
    /// The start of the next report.
    start: Option<u64>,
    /// Ready to be returned.
    ready: VecDeque<Snapshot>,
    /// The last snapshot before the span.
    before: Option<Snapshot>,
    /// What the next report ends with, as far as it is read.
    pending: Option<Snapshot>,
    /// Reports that may follow.
    left: u64,
    is_over: bool,
}

impl Replayed {
    #[must_use]
    pub fn new(recording: &Recording, span: Span, interval: Option<Duration>) -> Self {
        Self {
            info: recording.meta().run.clone(),
            seconds: recording.seconds(),
            span,
            interval,
            start: None,
            ready: VecDeque::new(),
            before: None,
            pending: None,
            left: u64::MAX,
            is_over: false,
        }
    }

    /// Ends after this many reports.
    pub fn limit(&mut self, reports: u64) {
        self.left = reports;
    }

    /// Replaces what the reports are said to be of, and what they show.
    pub fn set_info(&mut self, info: RunInfo) {
        self.info = info;
    }

    /// Reads seconds until a snapshot is ready, or there are no more.
    fn read(&mut self) {
        while self.ready.is_empty() && !self.is_over {
            match self.seconds.next() {
                Some(second) => self.second(second),
                None => {
                    self.is_over = true;
                    self.ready.extend(self.before.take());
                    self.ready.extend(self.pending.take());
                }
            }
        }
    }

    fn second(&mut self, mut second: Snapshot) {
        let Some(start) = self.start else {
            // The counters of whole seconds: the span begins with the last one before it.
            if second.at_ns <= self.span.from_ns {
                second.take_stacks();
                self.before = Some(second);
                return;
            }
            let mut first = self.before.take().unwrap_or_else(|| second.clone());
            let is_start = first.at_ns == second.at_ns;
            first.take_stacks();
            self.start = Some(first.at_ns);
            self.ready.push_back(first);
            if !is_start {
                self.second(second);
            }
            return;
        };
        if let Some(pending) = self.pending.take() {
            second.widen(pending);
        }
        let is_due = self.interval.is_some_and(|interval| {
            let length = second.at_ns.saturating_sub(start).saturating_add(ROUNDING_NS);
            u128::from(length) >= interval.as_nanos()
        });
        // The span ends with the second that its end is in.
        let is_last = second.at_ns >= self.span.to_ns;
        if is_due || is_last {
            self.is_over |= is_last || self.left <= 1;
            self.start = Some(second.at_ns);
            self.ready.push_back(second);
            self.left = self.left.saturating_sub(1);
        } else {
            self.pending = Some(second);
        }
    }
}

/// How much a second may be shorter than it should: it is read when its timer has expired, and a moment later.
const ROUNDING_NS: u64 = 100_000_000;

impl Source for Replayed {
    fn info(&self) -> &RunInfo {
        &self.info
    }

    /// Ignores `until`, since the run is over.
    fn next(&mut self, _: Until) -> Result<Item, SourceError> {
        self.read();
        Ok(self
            .ready
            .pop_front()
            .map_or(Item::Nothing, |snapshot| Item::Snapshot(Box::new(snapshot))))
    }
}
