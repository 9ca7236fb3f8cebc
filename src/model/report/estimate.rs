//! How far the numbers of a sample may be from those of all calls: intervals that have the true number in 95 of 100
//! runs or more.

use crate::model::histogram::Histogram;
use crate::model::object::objects;
use serde::Deserialize;

/// Of the intervals, in percent.
pub const CONFIDENCE: u64 = 95;
/// The normal distribution is within this many standard deviations with a probability of 0.95.
const DEVIATIONS: f64 = 1.959_964;
/// With fewer measured calls, a mean has no interval: their spread says too little of that of the others.
pub const LEAST_FOR_MEAN: u64 = 100;
/// Calls longer than the longest measured one may have been left out. Their number is up to 3.7 for each call that one
/// measured call stands for, with a probability of 0.975; together they are taken for this many of the longest one.
const UNSEEN: f64 = 5.0;
/// The same for the spread.
const UNSEEN_IN_SPREAD: f64 = 4.0;

objects! {
    /// The intervals of an op or a family, both ends included.
    #[derive(Deserialize)]
    pub struct Estimate {
        /// Of the number of calls.
        pub count_low: u64,
        pub count_high: u64,
        /// Of the mean duration in nanoseconds; `None`: there are fewer than [`LEAST_FOR_MEAN`] measured calls.
        pub avg_low_ns: Option<u64>,
        pub avg_high_ns: Option<u64>,
    }
}

impl Estimate {
    /// `total_ns`: the estimated sum of all durations. `extremes`: the shortest and the longest measured one. `None`:
    /// all calls were measured.
    #[must_use]
    pub fn of(histogram: &Histogram, total_ns: u64, extremes: Option<(u64, u64)>) -> Option<Self> {
        let one_in = histogram.one_in()?;
        let measured = histogram.measured();
        let (count_low, count_high) = count(measured, one_in);
        let mean = extremes.and_then(|extremes| mean(histogram, total_ns, extremes, one_in));
        let (avg_low_ns, avg_high_ns) = mean.unzip();
        Some(Self {
            count_low,
            count_high,
            avg_low_ns,
            avg_high_ns,
        })
    }
}

/// The interval of the number of calls of which `measured` were chosen, each with a probability of 1 in `one_in`.
///
/// The number of chosen calls is binomial. The interval has every number of calls for which `measured` is within
/// [`DEVIATIONS`] standard deviations of the number to be expected, half a call added since both are whole numbers
/// (the score interval with a correction for continuity).
#[must_use]
pub fn count(measured: u64, one_in: u32) -> (u64, u64) {
    let (measured_calls, one_in) = (measured as f64, f64::from(one_in));
    let left_out = 1.0 - 1.0 / one_in;
    let square = DEVIATIONS * DEVIATIONS * left_out;
    let root = |calls: f64| DEVIATIONS * (calls * left_out + square * left_out / 4.0).sqrt();
    let low = (measured_calls - 0.5).max(0.0);
    let high = measured_calls + 0.5;
    // The casts saturate.
    let low = ((low + square / 2.0 - root(low)) * one_in).floor() as u64;
    let high = ((high + square / 2.0 + root(high)) * one_in).ceil() as u64;
    // The measured ones are known.
    (if measured == 0 { 0 } else { low.max(measured) }, high)
}

/// The interval of the mean duration, in nanoseconds. `None`: too few calls were measured.
///
/// The mean of the sample is about normal. Durations have long tails, so the upper end allows for calls longer than any
/// that was measured. What is so rare that none was measured cannot be allowed for.
fn mean(histogram: &Histogram, total_ns: u64, (min, max): (u64, u64), one_in: u32) -> Option<(u64, u64)> {
    let measured = histogram.measured();
    if measured < LEAST_FOR_MEAN {
        return None;
    }
    let left_out = 1.0 - 1.0 / f64::from(one_in);
    let (calls, all) = (measured as f64, histogram.count() as f64);
    let (min, max) = (min as f64, max as f64);
    let mean = total_ns as f64 / all;
    let variance = histogram.buckets().fold(0.0, |sum, step| {
        // Each call is taken for that of its step with the largest deviation.
        let ends = [step.ge as f64, step.lt.map_or(max, |lt| lt as f64)];
        let deviation = ends.map(|end| (end.clamp(min.min(max), max) - mean).abs());
        sum + step.count as f64 / all * deviation[0].max(deviation[1]).powi(2)
    });
    let error = |variance: f64| DEVIATIONS * (left_out * variance / calls).sqrt();
    let low = mean - error(variance) - (mean - min).max(0.0) / calls;
    let high = mean + error(variance + UNSEEN_IN_SPREAD * max * max / calls) + UNSEEN * max / calls;
    Some((low.floor() as u64, high.ceil() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::histogram::tests::Samples;
    use crate::model::sample::Sample;

    impl Samples {
        /// Above 0, and below 1.
        fn part(&mut self) -> f64 {
            ((self.next() >> 12) as f64 + 0.5) / (1_u64 << 52) as f64
        }

        fn is_chosen(&mut self, one_in: u32) -> bool {
            self.next().is_multiple_of(u64::from(one_in))
        }
    }

    /// The probability with which an interval has the true number, if it is `calls`: the sum over all numbers of measured
    /// calls that are possible.
    fn coverage(calls: u64, one_in: u32) -> f64 {
        let odds = 1.0 / (f64::from(one_in) - 1.0);
        let mut probability = calls as f64 * (1.0 - 1.0 / f64::from(one_in)).ln();
        let mut sum = 0.0;
        for measured in 0..=calls {
            let (low, high) = count(measured, one_in);
            if (low..=high).contains(&calls) {
                sum += probability.exp();
            } else if low > calls {
                break;
            }
            probability += ((calls - measured) as f64 / (measured + 1) as f64 * odds).ln();
        }
        sum
    }

    #[test]
    fn the_interval_of_a_count_has_the_true_one_in_95_of_100_samples() {
        assert!((coverage(0, 10) - 1.0).abs() < 1e-9);
        let mut checked = 0;
        for one_in in [2, 3, 10, 100, 1000] {
            // Up to 40 measured calls each number, then some.
            let few = (0..40 * u64::from(one_in)).step_by(1 + one_in as usize / 20);
            let many = (1..200).map(|n| u64::from(one_in) * (40 + n * n / 5) + n);
            for calls in few.chain(many) {
                let coverage = coverage(calls, one_in);
                assert!(coverage >= 0.95, "1 in {one_in} of {calls}: {coverage}");
                checked += 1;
            }
        }
        assert!(checked > 3000, "{checked}");
    }

    #[test]
    fn the_interval_of_a_count_is_no_wider_than_it_must_be() {
        assert_eq!(count(0, 100), (0, 476));
        assert_eq!(count(1, 100), (5, 646));
        // 10,000 measured calls: 1.96 standard deviations, which are 1 % each.
        let (low, high) = count(10_000, 100);
        assert!(
            (980_000..981_500).contains(&low) && (1_019_000..1_020_500).contains(&high),
            "{low} {high}"
        );
        // Of two halves one is known.
        assert!(count(10_000, 2).0 > 19_700);
        assert!(count(3, 2).0 >= 3);
        assert_eq!(count(u64::MAX, 1_000_000), (u64::MAX, u64::MAX));
    }

    /// How a duration is drawn.
    type Duration = fn(&mut Samples) -> f64;

    fn of_normal(random: &mut Samples, deviation: f64) -> f64 {
        let angle = std::f64::consts::TAU * random.part();
        1000.0 * (deviation * (-2.0 * random.part().ln()).sqrt() * angle.cos()).exp()
    }

    const DURATIONS: [(&str, Duration); 8] = [
        ("constant", |_| 1000.0),
        ("even", |random| 500.0 + 1000.0 * random.part()),
        ("exponential", |random| -1000.0 * random.part().ln()),
        ("log-normal, 1", |random| of_normal(random, 1.0)),
        ("log-normal, 2", |random| of_normal(random, 2.0)),
        // The variance of these two is infinite.
        ("Pareto, 2", |random| 1000.0 * random.part().powf(-1.0 / 2.0)),
        ("Pareto, 1.5", |random| 1000.0 * random.part().powf(-1.0 / 1.5)),
        // Most of the time is that of few calls.
        (
            "one in 20 is long",
            |random| {
                if random.is_chosen(20) { 1e6 } else { 1000.0 }
            },
        ),
    ];

    /// Whether the interval of a simulated run has the true mean; `None`: there is no interval.
    fn simulated(random: &mut Samples, calls: u64, one_in: u32, duration: Duration) -> Option<bool> {
        let (mut histogram, mut sum, mut all) = (Histogram::default(), 0_u64, 0_u64);
        let mut extremes = (u64::MAX, 0);
        for _ in 0..calls {
            let ns = duration(random) as u64;
            all += ns;
            if random.is_chosen(one_in) {
                histogram.record(ns);
                sum += ns;
                extremes = (extremes.0.min(ns), extremes.1.max(ns));
            }
        }
        let sample = Sample::new(one_in).unwrap();
        let estimate = Estimate::of(&histogram.estimated(sample), sample.scaled(sum), Some(extremes)).unwrap();
        let (low, high) = (estimate.avg_low_ns? as f64, estimate.avg_high_ns? as f64);
        let mean = all as f64 / calls as f64;
        Some(low <= mean && mean <= high)
    }

    #[test]
    fn the_interval_of_a_mean_has_the_true_one_in_95_of_100_runs() {
        const RUNS: u64 = 1000;
        let mut random = Samples(2026);
        for (name, duration) in DURATIONS {
            for (measured, one_in) in [(110, 10), (110, 2), (400, 10)] {
                let runs =
                    (0..RUNS).filter_map(|_| simulated(&mut random, measured * u64::from(one_in), one_in, duration));
                let runs: Vec<bool> = runs.collect();
                let covered = runs.iter().filter(|is_covered| **is_covered).count() as f64 / runs.len() as f64;
                // Three standard deviations of what chance does to so many runs.
                let tolerance = 3.0 * (0.95 * 0.05 / runs.len() as f64).sqrt();
                assert!(runs.len() > RUNS as usize / 2, "{name}: {}", runs.len());
                assert!(
                    covered >= 0.95 - tolerance,
                    "{name}, {measured} measured, 1 in {one_in}: {covered}"
                );
            }
        }
    }

    #[test]
    fn a_mean_needs_its_calls() {
        let sample = Sample::new(10).unwrap();
        let of = |calls: u64| {
            let mut histogram = Histogram::default();
            (0..calls).for_each(|_| histogram.record(1000));
            Estimate::of(&histogram.estimated(sample), 10_000 * calls, Some((1000, 1000))).unwrap()
        };
        assert_eq!((of(99).avg_low_ns, of(99).avg_high_ns), (None, None));
        let least = of(LEAST_FOR_MEAN);
        assert!(
            least.avg_low_ns.is_some_and(|low| (980..=1000).contains(&low)),
            "{least:?}"
        );
        assert!(
            least.avg_high_ns.is_some_and(|high| (1050..1200).contains(&high)),
            "{least:?}"
        );
        let none = Histogram::default();
        assert_eq!(Estimate::of(&none, 0, None), None, "all calls were measured");
        let empty = Estimate::of(&none.estimated(sample), 0, None).unwrap();
        assert_eq!((empty.count_low, empty.count_high, empty.avg_low_ns), (0, 45, None));
    }

    #[test]
    fn impossible_numbers_have_an_interval_nevertheless() {
        let full = Histogram::from_steps([u64::MAX; 305]).estimated(Sample::new(1_000_000).unwrap());
        let estimate = Estimate::of(&full, 0, Some((9, 3))).unwrap();
        assert!(estimate.count_low <= estimate.count_high && estimate.avg_low_ns <= estimate.avg_high_ns);
    }
}
