//! `--sample`: only some calls are measured, chosen at random.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Of how many calls one is measured, on average.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Sample(u32);

impl Sample {
    /// Below, every call would be measured.
    pub const LEAST: u32 = 2;
    /// Beyond, a million calls a second would leave one.
    pub const MOST: u32 = 1_000_000;

    /// `None`: `one_in` is out of range.
    #[must_use]
    pub const fn new(one_in: u32) -> Option<Self> {
        if one_in < Self::LEAST || one_in > Self::MOST {
            return None;
        }
        Some(Self(one_in))
    }

    /// The number of calls that one measured call stands for. A damaged file may have any number, but never 0 here.
    #[must_use]
    pub const fn one_in(self) -> u32 {
        if self.0 == 0 { 1 } else { self.0 }
    }

    /// A call is measured if a random number of 32 bits is below this. It is rounded: the probability differs from
    /// 1/N by less than 1 in 100,000 of itself.
    #[must_use]
    pub const fn threshold(self) -> u32 {
        let one_in = self.one_in() as u64;
        let threshold = ((1 << 32) + one_in / 2) / one_in;
        if threshold > u32::MAX as u64 {
            return u32::MAX;
        }
        threshold as u32
    }

    /// A number of measured calls, or a sum over them, as an estimate for all calls.
    #[must_use]
    pub const fn scaled(self, n: u64) -> u64 {
        n.saturating_mul(self.one_in() as u64)
    }
}

/// `1/100`, as on the command line.
impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1/{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_is_that_part_of_all_numbers() {
        assert_eq!(Sample::new(2).unwrap().threshold(), 1 << 31);
        assert_eq!(Sample::new(3).unwrap().threshold(), 1_431_655_765);
        for one_in in [2, 3, 7, 10, 99, 100, 4096, 123_457, 999_999, 1_000_000] {
            let threshold = Sample::new(one_in).unwrap().threshold();
            let probability = f64::from(threshold) / 4_294_967_296.0;
            let error = (probability * f64::from(one_in) - 1.0).abs();
            assert!(error < 1e-4 / 10.0, "1/{one_in}: {error}");
        }
    }

    #[test]
    fn numbers_out_of_range_are_no_sample() {
        for one_in in [0, 1, 1_000_001, u32::MAX] {
            assert_eq!(Sample::new(one_in), None);
        }
        let damaged: Sample = serde_json::from_str("0").unwrap();
        assert_eq!((damaged.one_in(), damaged.threshold()), (1, u32::MAX));
        assert_eq!(Sample::new(100).unwrap().scaled(u64::MAX), u64::MAX);
    }
}
