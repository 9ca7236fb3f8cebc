//! Slow calls, printed as they end.

use std::time::{Duration, Instant};

use super::session::Session;
use super::sinks::Sinks;
use crate::model::report::slow::LeftOut;
use crate::source::live::{self, Clocks};
use crate::view::SlowCalls;

/// How often at most it is told that some were left out.
const PAUSE: Duration = Duration::from_secs(1);

/// What was told of those that were left out.
#[derive(Debug, Default)]
pub struct Told {
    left_out: LeftOut,
    at: Option<Instant>,
}

impl Told {
    /// When to look again.
    pub fn next(&self) -> Instant {
        let now = Instant::now();
        self.at
            .and_then(|at| at.checked_add(PAUSE))
            .map_or(now, |at| at.max(now))
    }
}

impl Session<'_> {
    /// Prints the slow calls that have ended, and, not too often, how many were left out. `last`: it is told now or never.
    pub(super) fn tell_slow(&mut self, last: bool, sinks: &mut Sinks) -> Result<(), String> {
        if self.options.slower.is_none() {
            return Ok(());
        }
        let clocks = Clocks {
            wall: jiff::Timestamp::now(),
            monotonic_ns: live::monotonic_ns(),
        };
        let calls = live::slow_calls(&self.attached, &self.info, &clocks)
            .map_err(|error| format!("slow calls cannot be read: {error}"))?;
        let mut left_out = LeftOut::default();
        if last || self.told.next() <= Instant::now() {
            let all = live::slow_left_out(&self.attached);
            left_out = all.since(self.told.left_out);
            self.told = Told {
                left_out: all,
                at: Some(Instant::now()),
            };
        }
        if calls.is_empty() && left_out.sum() == 0 {
            return Ok(());
        }
        sinks.slow_calls(&SlowCalls { calls, left_out })
    }
}
