//! How many machines are evicted in an hour, as a fleet has shown it.

use super::{Seen, gamma, in_hours, moments};
use crate::words::percent;

/// The chance that the true rate is below the interval, and above it.
const TAIL: f64 = 0.025;

/// The share of machines that is evicted in an hour: what Azure's buckets are of, too.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// The evictions.
    pub evictions: u32,
    /// The moments in which they came.
    pub moments: u32,
    /// For how long machines were seen, summed.
    pub machine_ms: u64,
    /// The chance that a machine is evicted in an hour.
    pub share: f64,
    /// The lower end of the interval in which the true chance is with 95 %.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

/// A bucket in which somebody else says that the rate is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Band {
    /// The lower end, as a share.
    pub low: f64,
    /// The upper end; `None` where it has none.
    pub high: Option<f64>,
}

impl Rate {
    /// The rate of these machines; `None` if they were seen for no time.
    ///
    /// The interval is that of Fay and Feuer (1997) for weighted sums of rare events. The events are the moments of
    /// eviction, each with the number of its machines as its weight: machines are evicted together, and ten of one
    /// moment tell hardly more than one. It supposes that moments come independently, at one rate, and that there is none
    /// with more machines than the largest seen: of fleets whose rare moments take nearly all, it holds the true rate less
    /// often than it says.
    #[must_use]
    pub fn of(seen: &[Seen]) -> Option<Self> {
        let machine_ms = seen.iter().map(Seen::lived_ms).fold(0, u64::saturating_add);
        if machine_ms == 0 {
            return None;
        }
        let moments = moments(seen);
        let time = in_hours(machine_ms);
        let weights: Vec<f64> = moments.iter().map(|(_, count)| f64::from(*count) / time).collect();
        let (rate, variance): (f64, f64) = (weights.iter().sum(), weights.iter().map(|it| it * it).sum());
        // There may have been one moment more, as large as the largest.
        let more = weights.iter().copied().fold(1.0 / time, f64::max);
        let end = |p: f64, rate: f64, variance: f64| {
            if rate > 0.0 { variance / rate * gamma::quantile(p, rate * rate / variance) } else { 0.0 }
        };
        let evictions = moments.iter().map(|(_, count)| *count).sum();
        Some(Self {
            evictions,
            moments: u32::try_from(moments.len()).unwrap_or(u32::MAX),
            machine_ms,
            share: in_an_hour(rate),
            low: in_an_hour(end(TAIL, rate, variance)),
            high: in_an_hour(end(1.0 - TAIL, rate + more, variance + more * more)),
        })
    }

    /// The rate in one sentence beside what Azure says; `None` where that is unknown.
    #[must_use]
    pub fn beside(&self, azure: Option<Band>) -> String {
        let time = in_hours(self.machine_ms).round();
        let [share, low, high] = [self.share, self.low, self.high].map(percent);
        let measured = match self.evictions {
            0 => format!("measured none (0 to {high} % an hour) in {time} h of machines"),
            _ => format!("measured {share} % an hour ({low} to {high}) in {time} h of machines"),
        };
        let Some(band) = azure else { return format!("{measured}, Azure says nothing") };
        let verdict = if band.high.is_some_and(|high| high < self.low) {
            "which is less"
        } else if band.low > self.high {
            "which is more"
        } else if self.low >= band.low && band.high.is_none_or(|high| self.high <= high) {
            "which is the same"
        } else {
            "which may be the same"
        };
        let low = percent(band.low);
        let says = match band.high {
            Some(high) => format!("{low} to {} %", percent(high)),
            None => format!("{low} % or more"),
        };
        format!("{measured}, Azure says {says}, {verdict}")
    }
}

/// The chance of an eviction in an hour, of machines that are evicted at this rate an hour.
pub(super) fn in_an_hour(rate: f64) -> f64 {
    // Never below zero, not even a zero.
    (-rate).exp_m1().abs()
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::{Band, Rate, Seen};

    const HOUR_MS: i64 = 3_600_000;

    /// So many machines, each seen for ten hours; those of a moment are evicted together, far from the next.
    fn fleet(machines: usize, moments: &[usize]) -> Vec<Seen> {
        let mut seen = Vec::new();
        for (moment, count) in (0..).zip(moments) {
            let from_ms = moment * 20 * HOUR_MS;
            let life = Seen { from_ms, until_ms: from_ms + 10 * HOUR_MS, evicted: true };
            seen.extend(vec![life; *count]);
        }
        assert!(seen.len() <= machines);
        seen.resize(machines, Seen { from_ms: 0, until_ms: 10 * HOUR_MS, evicted: false });
        seen
    }

    fn rate(machines: usize, moments: &[usize]) -> Rate {
        Rate::of(&fleet(machines, moments)).expect("time")
    }

    #[track_caller]
    fn is_near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 0.000_05, "{found} for {expected}");
    }

    #[test]
    fn machines_that_go_alone_have_the_exact_interval_of_a_count() {
        // Ten evictions in 1,000 h: 4.795 to 18.390 by Garwood's table.
        let rate = rate(100, &[1; 10]);
        assert_eq!((rate.evictions, rate.moments, rate.machine_ms), (10, 10, 1_000 * 3_600_000));
        is_near(rate.share, 1.0 - (-0.01_f64).exp());
        is_near(rate.low, 1.0 - (-0.004_795_f64).exp());
        is_near(rate.high, 1.0 - (-0.018_390_f64).exp());
    }

    #[test]
    fn no_eviction_is_no_rate_of_zero() {
        // 3.689 in 100 h.
        let rate = rate(10, &[]);
        assert_eq!((rate.share.to_bits(), rate.low.to_bits()), (0, 0));
        is_near(rate.high, 1.0 - (-0.036_89_f64).exp());
        assert_eq!(
            rate.beside(None),
            "measured none (0 to 3.6 % an hour) in 100 h of machines, Azure says nothing"
        );
        assert_eq!(Rate::of(&[]), None);
        assert_eq!(Rate::of(&[Seen { from_ms: 9, until_ms: 3, evicted: true }]), None);
    }

    #[test]
    fn ten_of_one_moment_tell_hardly_more_than_one() {
        let (alone, together) = (rate(100, &[1; 10]), rate(100, &[10]));
        is_near(together.share, alone.share);
        assert!(together.low < alone.low / 5.0 && together.high > alone.high * 2.0, "{together:?}");
        assert_eq!((together.evictions, together.moments), (10, 1));
    }

    #[test]
    fn azure_is_called_the_same_only_where_the_interval_is_in_its_bucket() {
        let band = |low: f64, high| Some(Band { low, high });
        let ends = |azure| rate(100, &[1; 10]).beside(azure);
        let measured = "measured 1 % an hour (0.5 to 1.8) in 1000 h of machines";
        for (azure, says) in [
            (band(0.0, Some(0.05)), "0 to 5 %, which is the same"),
            (band(0.01, Some(0.05)), "1 to 5 %, which may be the same"),
            (band(0.05, Some(0.1)), "5 to 10 %, which is more"),
            (band(0.2, None), "20 % or more, which is more"),
            (band(0.0, Some(0.004)), "0 to 0.4 %, which is less"),
            (band(0.001, None), "0.1 % or more, which is the same"),
        ] {
            assert_eq!(ends(azure), format!("{measured}, Azure says {says}"));
        }
    }

    /// Forty places for machines over so many hours. Machines end alone at a rate, and at moments that strike each
    /// machine with a chance.
    fn generated(number: u64, hours: f64, alone: f64, moments: f64, struck: f64) -> Vec<Seen> {
        let mut random = ChaCha8Rng::seed_from_u64(number);
        let mut times = Vec::new();
        let mut at = 0.0;
        while moments > 0.0 && at < hours {
            at += wait(&mut random, moments);
            times.push(at);
        }
        let mut seen = Vec::new();
        for _ in 0..40 {
            let mut from = 0.0;
            while from < hours {
                let mut until = from + wait(&mut random, alone);
                for at in times.iter().filter(|at| **at > from) {
                    if *at < until && random.random::<f64>() < struck {
                        until = *at;
                    }
                }
                let evicted = until < hours;
                until = until.min(hours);
                let ms = |at: f64| whole(at * 3_600_000.0);
                seen.push(Seen { from_ms: ms(from), until_ms: ms(until), evicted });
                from = until;
            }
        }
        seen
    }

    fn wait(random: &mut ChaCha8Rng, rate: f64) -> f64 {
        -(1.0 - random.random::<f64>()).ln() / rate
    }

    #[expect(clippy::cast_possible_truncation, reason = "days in milliseconds")]
    fn whole(ms: f64) -> i64 {
        ms as i64
    }

    #[test]
    fn the_interval_holds_the_true_rate_in_more_than_nine_of_ten_fleets() {
        for (hours, alone, moments, struck) in [
            (24.0, 0.05, 0.0, 0.0),
            (72.0, 0.025, 0.125, 0.4),
            (168.0, 0.001, 0.05, 0.3),
            (12.0, 0.002, 0.0, 0.0),
        ] {
            let truth = 1.0 - f64::exp(-(alone + moments * struck));
            let held = (0..200).filter(|seed| {
                let rate = Rate::of(&generated(*seed, hours, alone, moments, struck)).expect("time");
                (rate.low..=rate.high).contains(&truth)
            });
            let held = held.count();
            assert!(held >= 185, "{held} of 200 for {alone} alone and {moments} moments of {struck}");
        }
    }
}
