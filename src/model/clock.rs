//! The relation of the programs' clock to the wall clock.

use jiff::Timestamp;
use jiff::tz::Offset;
use serde::{Deserialize, Serialize};

/// Converts moments of the programs' clock (`CLOCK_MONOTONIC`) to the time of day. The offset is that of one moment of the
/// run, so that differences stay exact.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clock {
    /// Nanoseconds since the epoch at the moment 0 of the programs' clock.
    pub zero_ns: i64,
    /// The local time zone's offset, in seconds east of UTC.
    pub utc_offset: i32,
}

impl Clock {
    /// A moment by the wall clock.
    #[must_use]
    pub fn wall(self, at_ns: u64) -> Timestamp {
        let at_ns = i128::from(self.zero_ns) + i128::from(at_ns);
        Timestamp::from_nanosecond(at_ns).unwrap_or(Timestamp::MAX)
    }

    /// The time of day with microseconds, in the time zone of the run: `12:03:07.120431`.
    #[must_use]
    pub fn time_of_day(self, at_ns: u64) -> String {
        self.formatted(at_ns, "%H:%M:%S%.6f")
    }

    /// The time of day with milliseconds: `12:03:07.120`.
    #[must_use]
    pub fn milliseconds(self, at_ns: u64) -> String {
        self.formatted(at_ns, "%H:%M:%S%.3f")
    }

    fn formatted(self, at_ns: u64, format: &str) -> String {
        let zone = Offset::from_seconds(self.utc_offset).unwrap_or(Offset::UTC);
        zone.to_datetime(self.wall(at_ns)).strftime(format).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_a_time_of_day_in_the_zone_of_the_run() {
        let clock = Clock {
            zero_ns: 1_795_615_200_000_000_000,
            utc_offset: 3600,
        };
        assert_eq!(clock.time_of_day(7_120_431_999), "15:00:07.120431");
        assert_eq!(clock.milliseconds(7_120_431_999), "15:00:07.120");
        let extreme = Clock {
            zero_ns: i64::MAX,
            utc_offset: i32::MAX,
        };
        assert!(!extreme.time_of_day(u64::MAX).is_empty());
    }
}
