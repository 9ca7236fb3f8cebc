//! The cost of measuring.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::ids::Layer;
use super::object::objects;

/// Nanoseconds in a second.
pub const SECOND: u64 = 1_000_000_000;

objects! {
    /// Runs of a program, and their total time in nanoseconds.
    #[derive(Copy, Deserialize)]
    pub struct Runs {
        pub count: u64,
        pub ns: u64,
    }
}

/// A share of one CPU: 100 % is all of one, 200 % all of two.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CpuShare {
    /// CPU time per second, in nanoseconds.
    pub ns_per_s: u64,
}

impl CpuShare {
    /// The share that `ns` of CPU time are of a span; the maximum for an empty span.
    #[must_use]
    pub fn of(ns: u64, span: Duration) -> Self {
        let per_second = (u128::from(ns) * u128::from(SECOND)).checked_div(span.as_nanos());
        let ns_per_s = match per_second {
            Some(per_second) => u64::try_from(per_second).unwrap_or(u64::MAX),
            None if ns == 0 => 0,
            None => u64::MAX,
        };
        Self { ns_per_s }
    }

    /// Parses a percentage above 0 and of at most all of this many CPUs.
    ///
    /// # Errors
    /// What is wrong, in one line.
    pub fn parse(percent: &str, cpus: u64) -> Result<Self, String> {
        let most = cpus.saturating_mul(100);
        let number: Option<f64> = percent.parse().ok();
        // Finer than any reported share.
        let ns_per_s = number.map_or(0.0, |number| (number * (SECOND / 100) as f64).round());
        if ns_per_s >= 1.0 && ns_per_s <= (most as f64) * (SECOND / 100) as f64 {
            Ok(Self {
                ns_per_s: ns_per_s as u64,
            })
        } else {
            Err(format!(
                "not a percentage above 0 and up to {most} (100 for each CPU), without the sign %"
            ))
        }
    }

    /// In percent, with all its digits.
    #[must_use]
    pub fn exactly(self) -> String {
        format!("{} %", self.ns_per_s as f64 / (SECOND / 100) as f64)
    }
}

/// A layer that was detached before the end of the run. Times are relative to its start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Detached {
    pub layer: Layer,
    /// From here on, calls may be missing.
    pub after: Duration,
    /// From here on, no calls are counted. `None`: calls under way may still return.
    pub until: Option<Duration>,
    /// The cost of its probes at the last check.
    pub of_layer: CpuShare,
    /// The whole cost at that time.
    pub of_all: CpuShare,
    /// Calls or requests under way at `until`. `None`: not known.
    pub under_way: Option<u64>,
}
