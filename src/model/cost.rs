//! What measuring takes of the machine.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::ids::Layer;
use super::object::objects;

/// Nanoseconds in a second.
pub const SECOND: u64 = 1_000_000_000;

objects! {
    /// Runs of a program, and how long they took together, in nanoseconds.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Runs {
        pub count: u64,
        pub ns: u64,
    }
}

/// A share of one CPU: 100 % are all of one, 200 % all of two.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CpuShare {
    /// CPU time in each second, in nanoseconds.
    pub ns_per_s: u64,
}

impl CpuShare {
    /// What `ns` of CPU time are in a span. Of no span at all it is as much as can be.
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

    /// More than 0 percent, and no more than all of so many CPUs.
    ///
    /// # Errors
    /// What is wrong, in one line.
    pub fn parse(percent: &str, cpus: u64) -> Result<Self, String> {
        let most = cpus.saturating_mul(100);
        let number: Option<f64> = percent.parse().ok();
        // Finer than a share is ever reported.
        let ns_per_s = number.map_or(0.0, |number| (number * (SECOND / 100) as f64).round());
        if ns_per_s >= 1.0 && ns_per_s <= (most as f64) * (SECOND / 100) as f64 {
            Ok(Self {
                ns_per_s: ns_per_s as u64,
            })
        } else {
            Err(format!(
                "'{percent}' is not a number of percent of a CPU above 0, and up to {most} on this machine"
            ))
        }
    }

    /// In percent, with all the digits that it has.
    #[must_use]
    pub fn exactly(self) -> String {
        format!("{} %", self.ns_per_s as f64 / (SECOND / 100) as f64)
    }
}

/// A layer that was detached before the run's end. Times are from the beginning of the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Detached {
    pub layer: Layer,
    /// From here on not all of its calls are counted.
    pub after: Duration,
    /// From here on nothing of it is. `None`: calls under way may still return.
    pub until: Option<Duration>,
    /// What its probes took in the last look before.
    pub of_layer: CpuShare,
    /// What all of it took then.
    pub of_all: CpuShare,
    /// Calls, or requests, that were under way at `until`. `None`: not known.
    pub under_way: Option<u64>,
}
