//! The histogram of one op's times, with the fine steps in which the kernel side counts.
//!
//! The scale is log-linear: 0 to 7 ns have one step each, then each power of two is divided into 8 equal steps up to
//! 2^40 ns (18 minutes), and one last step holds everything above. A step is at most an eighth of its lower bound wide,
//! so quantiles are exact within 12.5 %. `bpf/abi.h` declares the same layout.
//!
//! All arithmetic on counts saturates: a count that does not fit into a `u64` is reported as the maximum, never as a
//! small one.

use serde::{Deserialize, Serialize};

use super::sample::Sample;
use super::steps::Steps;

/// Each power of two has 2^`STEP_BITS` steps.
pub const STEP_BITS: u32 = 3;
/// From 2^`TOP_BIT` ns on, all times share the last step.
pub const TOP_BIT: u32 = 40;
/// Number of steps.
pub const STEPS: usize = (((TOP_BIT - STEP_BITS + 1) << STEP_BITS) + 1) as usize;

/// Quantiles are converted to integer multiples of one over this, so that 0.9 of 10 samples is exactly 9.
const PARTS: u128 = 1_000_000;

/// How many calls took how long.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Histogram {
    /// Calls per step.
    steps: Steps,
    /// Each measured call stands for so many. `None`: all calls were measured.
    sample: Option<Sample>,
}

/// One step with calls in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    /// Shortest time of the step, in nanoseconds.
    pub ge: u64,
    /// First time, in nanoseconds, past the step; `None` for the last step, which has no end.
    pub lt: Option<u64>,
    /// Calls in the step.
    pub count: u64,
}

impl From<Steps> for Histogram {
    fn from(steps: Steps) -> Self {
        Self { steps, sample: None }
    }
}

impl Histogram {
    /// From the number of calls in each step, step 0 first, as [`Steps`] are made from them.
    #[must_use]
    pub fn from_steps(counts: impl AsRef<[u64]>) -> Self {
        Self::from(Steps::from(counts.as_ref()))
    }

    /// The numbers of a sample as estimates for all calls.
    #[must_use]
    pub fn estimated(self, sample: Sample) -> Self {
        Self {
            steps: self.steps.each(|n| sample.scaled(n)),
            sample: Some(sample),
        }
    }

    /// The same without calls.
    #[must_use]
    pub fn emptied(&self) -> Self {
        Self {
            steps: Steps::default(),
            sample: self.sample,
        }
    }

    /// The number of calls that a measured call stands for. `None`: all calls were measured.
    #[must_use]
    pub fn one_in(&self) -> Option<u32> {
        self.sample.map(Sample::one_in)
    }

    /// Calls that were measured, in all steps together.
    #[must_use]
    pub fn measured(&self) -> u64 {
        self.count() / u64::from(self.one_in().unwrap_or(1))
    }

    /// Counts one more call that took `ns` nanoseconds.
    pub fn record(&mut self, ns: u64) {
        self.steps.add(step_of(ns), 1);
    }

    /// Calls in all steps together.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.steps.sum()
    }

    /// Adds the calls of `other`.
    pub fn add(&mut self, other: &Self) {
        self.steps.add_all(&other.steps);
        self.sample = self.sample.or(other.sample);
    }

    /// What was counted since `earlier`, an older reading of the same counters. A step that went backwards, which
    /// counters that only grow cannot, is empty.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            steps: self.steps.combined(&earlier.steps, u64::saturating_sub),
            sample: self.sample,
        }
    }

    /// The steps with calls in them, shortest times first.
    pub fn buckets(&self) -> impl DoubleEndedIterator<Item = Bucket> + '_ {
        self.steps.iter().map(|(step, count)| {
            let (ge, lt) = bounds(step);
            Bucket { ge, lt, count }
        })
    }

    /// The classic histogram: element k is the calls of 2^k to 2^(k+1) - 1 ns, element 0 those of 0 and 1 ns, the last
    /// one, `TOP_BIT`, those of 2^40 ns and all longer ones.
    #[must_use]
    pub fn powers_of_two(&self) -> Vec<u64> {
        let mut slots = vec![0_u64; TOP_BIT as usize + 1];
        for bucket in self.buckets() {
            // A step never crosses a power of two, so its lower bound is enough.
            let slot = bucket.ge.checked_ilog2().unwrap_or(0) as usize;
            slots[slot] = slots[slot].saturating_add(bucket.count);
        }
        slots
    }

    /// The time, in nanoseconds, that the share `q` of the calls did not exceed (nearest rank); `None` with fewer than
    /// 1/(1-q) measured calls, when it would be the longest call.
    ///
    /// It is the middle of the step that holds that call, limited by the shortest and longest call if these
    /// `extremes` are known: within 12.5 % of the exact value. In the last step, which has no middle, it is a lower
    /// bound. `q` has a resolution of six decimals.
    #[must_use]
    pub fn quantile(&self, q: f64, extremes: Option<(u64, u64)>) -> Option<u64> {
        if self.measured() < least_calls(q)? {
            return None;
        }
        let count: u128 = self.steps.iter().map(|(_, n)| u128::from(n)).sum();
        let rank = (count * parts_of(q)).div_ceil(PARTS).max(1);
        let mut seen = 0;
        let bucket = self.buckets().find(|bucket| {
            seen += u128::from(bucket.count);
            seen >= rank
        })?;
        let middle = bucket.lt.map_or(bucket.ge, |lt| bucket.ge + (lt - bucket.ge) / 2);
        // Not `clamp`, which panics if the extremes are inverted.
        Some(extremes.map_or(middle, |(min, max)| middle.max(min).min(max)))
    }
}

/// The fewest measured calls of which [`Histogram::quantile`] is known: with fewer than 1/(1-q) it would be the longest call.
/// `None`: it never is.
#[must_use]
pub fn least_calls(q: f64) -> Option<u64> {
    let beyond = PARTS.checked_sub(parts_of(q)).filter(|beyond| *beyond > 0)?;
    u64::try_from(PARTS.div_ceil(beyond)).ok()
}

fn parts_of(q: f64) -> u128 {
    // The cast saturates, and turns NaN into 0.
    u128::from((q * PARTS as f64).round() as u64)
}

/// The step for a time of `ns` nanoseconds, as computed by `step_of` of `bpf/steps.bpf.h`.
#[must_use]
pub const fn step_of(ns: u64) -> usize {
    if ns < 1 << STEP_BITS {
        return ns as usize;
    }
    let bit = ns.ilog2();
    if bit >= TOP_BIT {
        return STEPS - 1;
    }
    let within = ns >> (bit - STEP_BITS) & ((1 << STEP_BITS) - 1);
    ((bit - STEP_BITS + 1) << STEP_BITS) as usize + within as usize
}

/// The lower bound of a step and the first time past it, in nanoseconds. The last step has no end; larger indices are
/// treated as the last one.
#[must_use]
pub const fn bounds(step: usize) -> (u64, Option<u64>) {
    if step >= STEPS - 1 {
        return (1 << TOP_BIT, None);
    }
    let per_power = 1_u64 << STEP_BITS;
    let step = step as u64;
    if step < per_power {
        return (step, Some(step + 1));
    }
    let width = 1_u64 << ((step >> STEP_BITS) - 1);
    let ge = (per_power + step % per_power) * width;
    (ge, Some(ge + width))
}

/// The shortest and the longest time of two such pairs.
#[must_use]
pub fn widest(a: (u64, u64), b: (u64, u64)) -> (u64, u64) {
    (a.0.min(b.0), a.1.max(b.1))
}

/// The same if either may have had no call.
#[must_use]
pub fn wider(a: Option<(u64, u64)>, b: Option<(u64, u64)>) -> Option<(u64, u64)> {
    match (a, b) {
        (Some(a), Some(b)) => Some(widest(a, b)),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// splitmix64: the same samples in every run, without a dependency.
    pub struct Samples(pub u64);

    impl Samples {
        pub fn next(&mut self) -> u64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ z >> 31
        }

        fn below(&mut self, limit: u64) -> u64 {
            self.next() % limit
        }
    }

    fn of(times: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        times.iter().for_each(|ns| histogram.record(*ns));
        histogram
    }

    #[test]
    fn steps_tile_the_scale() {
        assert_eq!(STEPS, 305);
        assert_eq!(bounds(0), (0, Some(1)));
        assert_eq!(bounds(8), (8, Some(9)));
        assert_eq!(bounds(16), (16, Some(18)));
        assert_eq!(bounds(303), ((1 << 40) - (1 << 36), Some(1 << 40)));
        assert_eq!(bounds(304), (1 << 40, None));
        assert_eq!(bounds(usize::MAX), (1 << 40, None));
        for step in 0..STEPS - 1 {
            let (ge, lt) = bounds(step);
            let lt = lt.expect("only the last step has no end");
            assert_eq!(bounds(step + 1).0, lt, "no gap after step {step}");
            assert_eq!(step_of(ge), step);
            assert_eq!(step_of(lt - 1), step);
            assert_eq!(step_of(lt), step + 1);
            assert!(lt - ge == 1 || (lt - ge) * 8 <= ge, "step {step} is wider than 12.5 %");
        }
        for ns in [1 << 40, (1 << 40) + 1, (1 << 41) - 1, 1 << 41, u64::MAX] {
            assert_eq!(step_of(ns), STEPS - 1);
        }
    }

    #[test]
    fn kernel_values_of_step_of() {
        // Computed by hand from the C function.
        for (ns, step) in [
            (0, 0),
            (7, 7),
            (8, 8),
            (15, 15),
            (16, 16),
            (17, 16),
            (18, 17),
            (31, 23),
            (32, 24),
            (1000, 63),
        ] {
            assert_eq!(step_of(ns), step, "{ns} ns");
        }
        assert_eq!(step_of(1024), 64);
        assert_eq!(step_of((1 << 40) - 1), 303);
    }

    #[test]
    fn equal_whatever_their_history() {
        let mut grown = of(&[3, 900]);
        assert_eq!(grown.since(&of(&[900])), of(&[3]));
        assert_eq!(grown.since(&grown), Histogram::default());
        assert_eq!(Histogram::from_steps([0; STEPS]), Histogram::default());
        grown.add(&of(&[5]));
        assert_eq!(grown, of(&[5, 900, 3]));
        assert_eq!(grown.count(), 3);
    }

    #[test]
    fn what_does_not_fit_saturates() {
        let full = Histogram::from_steps([u64::MAX; STEPS]);
        assert_eq!(full.count(), u64::MAX);
        let mut twice = full.clone();
        twice.add(&full);
        assert_eq!(twice, full);
        twice.record(u64::MAX);
        assert_eq!(twice, full);
        assert_eq!(full.powers_of_two(), vec![u64::MAX; 41]);
        assert!(full.quantile(0.999_999, None).is_some());
        assert_eq!(of(&[1]).since(&of(&[1, 1, 40])), Histogram::default());

        let mut long = [0; STEPS + 2];
        long[STEPS - 1] = 1;
        long[STEPS + 1] = u64::MAX - 3;
        assert_eq!(
            Histogram::from_steps(long).buckets().last().map(|b| (b.lt, b.count)),
            Some((None, u64::MAX - 2))
        );
    }

    #[test]
    fn powers_of_two_are_sums_of_steps() {
        let slots = of(&[
            0,
            1,
            2,
            3,
            4,
            7,
            8,
            15,
            16,
            1 << 20,
            (1 << 21) - 1,
            1 << 21,
            1 << 40,
            u64::MAX,
        ])
        .powers_of_two();
        let used: Vec<_> = slots
            .iter()
            .enumerate()
            .filter(|(_, n)| **n > 0)
            .map(|(k, n)| (k, *n))
            .collect();
        assert_eq!(
            used,
            [(0, 2), (1, 2), (2, 2), (3, 2), (4, 1), (20, 2), (21, 1), (40, 2)]
        );
        assert_eq!(Histogram::default().powers_of_two(), vec![0; 41]);
    }

    #[test]
    fn buckets_are_the_steps_in_use() {
        let buckets: Vec<_> = of(&[1030, 1100, 1200, u64::MAX]).buckets().collect();
        let expected = [
            Bucket {
                ge: 1024,
                lt: Some(1152),
                count: 2,
            },
            Bucket {
                ge: 1152,
                lt: Some(1280),
                count: 1,
            },
            Bucket {
                ge: 1 << 40,
                lt: None,
                count: 1,
            },
        ];
        assert_eq!(buckets, expected);
    }

    #[test]
    fn a_quantile_needs_its_samples() {
        for (q, needed) in [(0.5, 2), (0.9, 10), (0.95, 20), (0.99, 100), (0.999, 1000)] {
            assert_eq!(
                of(&vec![5; needed - 1]).quantile(q, None),
                None,
                "{q} of {}",
                needed - 1
            );
            assert_eq!(of(&vec![5; needed]).quantile(q, None), Some(5), "{q} of {needed}");
        }
        let many = of(&[5; 1000]);
        assert_eq!(many.quantile(1.0, None), None);
        assert_eq!(many.quantile(f64::INFINITY, None), None);
        assert_eq!(many.quantile(-1.0, None), Some(5));
        assert_eq!(many.quantile(f64::NAN, None), Some(5));
    }

    #[test]
    fn a_quantile_stays_within_the_extremes() {
        let close = of(&[1_000_000; 200]);
        assert_eq!(close.quantile(0.5, None), Some(1_015_808));
        assert_eq!(close.quantile(0.5, Some((1_000_000, 1_000_000))), Some(1_000_000));
        assert_eq!(close.quantile(0.5, Some((1_020_000, 1_030_000))), Some(1_020_000));
        assert!(
            close.quantile(0.5, Some((9, 3))).is_some(),
            "extremes the wrong way round do not panic"
        );
        let endless = of(&[u64::MAX; 2]);
        assert_eq!(endless.quantile(0.5, None), Some(1 << 40));
        assert_eq!(endless.quantile(0.5, Some((u64::MAX, u64::MAX))), Some(u64::MAX));
    }

    #[test]
    fn quantiles_are_within_an_eighth_of_the_exact_ones() {
        let mut samples = Samples(2026);
        let mut checked = 0;
        for round in 0..400 {
            let size = 1 + samples.below(if round % 4 == 0 { 5000 } else { 150 });
            let widest = 1 + samples.below(40);
            let mut times: Vec<u64> = (0..size)
                .map(|_| match round % 3 {
                    0 => samples.below(1 << widest),                                 // even
                    1 => samples.next() >> (64 - widest.min(1 + samples.below(40))), // over many powers of two
                    _ => (1 << (widest - 1)) + samples.below(20),                    // close together
                })
                .collect();
            let histogram = of(&times);
            assert_eq!(histogram.count(), size);
            times.sort_unstable();
            let extremes = (times[0], times[times.len() - 1]);
            for percent in [1_u64, 10, 25, 50, 75, 90, 95, 99] {
                let q = percent as f64 / 100.0;
                let enough = size * (100 - percent) >= 100;
                let rank = (size * percent).div_ceil(100).max(1);
                let exact = times[rank as usize - 1];
                for known in [None, Some(extremes)] {
                    let reported = histogram.quantile(q, known);
                    assert_eq!(reported.is_some(), enough, "p{percent} of {size}");
                    let Some(reported) = reported else { continue };
                    assert!(
                        reported.abs_diff(exact) * 8 <= exact,
                        "p{percent} of {size}: reported {reported}, exact {exact}"
                    );
                    if known.is_some() {
                        assert!((extremes.0..=extremes.1).contains(&reported));
                    }
                    checked += 1;
                }
            }
        }
        assert!(checked > 3000, "the generator makes enough samples: {checked}");
    }
}
