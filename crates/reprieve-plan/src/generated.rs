//! Availability that is made up from a seed.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::availability::Series;

/// Spot as a two-state Markov chain: times with and without it are independent and exponential.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Markov {
    /// The share of the time in which Spot is available, above 0 and below 1.
    pub available: f64,
    /// The mean length of a stretch in which it is.
    pub mean_up_ms: u64,
}

/// Spot with times of plenty and of scarcity, as real traces have them.
///
/// Each regime is a chain of its own. No policy here assumes such a thing, so this shows what an
/// estimate is worth that the world does not follow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Regimes {
    /// The two chains.
    pub chains: [Markov; 2],
    /// The mean length of a regime.
    pub mean_ms: u64,
}

impl Markov {
    /// A series of `length_ms`, the same for the same seed.
    ///
    /// # Panics
    ///
    /// If the share is not between 0 and 1, or a time is zero.
    #[must_use]
    pub fn series(&self, length_ms: u64, seed: u64) -> Series {
        // A regime that never ends.
        walk(&[*self], f64::INFINITY, length_ms, seed)
    }

    #[expect(clippy::cast_precision_loss, reason = "a mean of random times")]
    fn mean_ms(&self, up: bool) -> f64 {
        let up_ms = self.mean_up_ms as f64;
        if up { up_ms } else { up_ms * (1.0 - self.available) / self.available }
    }
}

impl Regimes {
    /// A series of `length_ms`, the same for the same seed.
    ///
    /// # Panics
    ///
    /// If a share is not between 0 and 1, or a time is zero.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a mean of random times")]
    pub fn series(&self, length_ms: u64, seed: u64) -> Series {
        walk(&self.chains, self.mean_ms as f64, length_ms, seed)
    }
}

/// Follows one chain after the other. Exponential times have no memory, so where a regime ends the
/// time to the next change is drawn anew.
fn walk(chains: &[Markov], regime_ms: f64, length_ms: u64, seed: u64) -> Series {
    for chain in chains {
        assert!(chain.available > 0.0 && chain.available < 1.0, "a share has to be between 0 and 1");
        assert!(chain.mean_up_ms > 0, "a mean time has to be above zero");
    }
    assert!(length_ms > 0 && regime_ms > 0.0, "a length of time has to be above zero");
    // ChaCha, because its numbers are the same on every machine and in every version.
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut regime = random.random_range(0..chains.len());
    let mut up = random.random_bool(chains[regime].available);
    let (mut at_ms, mut counts) = (0, Vec::new());
    while at_ms < length_ms {
        counts.push((at_ms, u32::from(up)));
        let change_ms = exponential_ms(&mut random, chains[regime].mean_ms(up));
        let switch_ms = exponential_ms(&mut random, regime_ms);
        if switch_ms < change_ms {
            regime = (regime + 1) % chains.len();
        } else {
            up = !up;
        }
        at_ms = at_ms.saturating_add(change_ms.min(switch_ms));
    }
    Series::from_counts(counts, length_ms).expect("the series begins at zero")
}

/// An exponential time, at least a millisecond.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float saturates, and is not negative"
)]
fn exponential_ms(random: &mut ChaCha8Rng, mean_ms: f64) -> u64 {
    // 1 minus a number below 1 is above 0, so the logarithm is finite.
    let factor = -(1.0 - random.random::<f64>()).ln();
    if mean_ms.is_finite() { (mean_ms * factor).ceil().max(1.0) as u64 } else { u64::MAX }
}

#[cfg(test)]
mod tests {
    use super::{Markov, Regimes};

    const HOUR_MS: u64 = 3_600_000;

    #[test]
    fn a_chain_has_its_share_and_its_mean_time() {
        let chain = Markov { available: 0.3, mean_up_ms: HOUR_MS };
        let series = chain.series(20_000 * HOUR_MS, 1);
        assert!((series.share(1) - 0.3).abs() < 0.01, "{}", series.share(1));
        let losses = series.window(0, 20_000 * HOUR_MS, 1).changes().count() / 2;
        // 20,000 h hold 6,000 stretches of an hour, within four standard deviations.
        assert!((5_600..6_400).contains(&losses), "{losses}");
    }

    #[test]
    fn the_same_seed_gives_the_same_series() {
        let chain = Markov { available: 0.5, mean_up_ms: HOUR_MS };
        assert_eq!(chain.series(100 * HOUR_MS, 3), chain.series(100 * HOUR_MS, 3));
        assert_ne!(chain.series(100 * HOUR_MS, 3), chain.series(100 * HOUR_MS, 4));
    }

    #[test]
    fn regimes_take_turns() {
        let chains = [0.05, 0.9].map(|available| Markov { available, mean_up_ms: HOUR_MS });
        let series = Regimes { chains, mean_ms: 200 * HOUR_MS }.series(40_000 * HOUR_MS, 2);
        assert!((series.share(1) - 0.475).abs() < 0.1, "{}", series.share(1));
        let shares: Vec<_> =
            (0..400).map(|n| series.window(n * 100 * HOUR_MS, 100 * HOUR_MS, 1).changes().count()).collect();
        assert!(shares.iter().any(|changes| *changes < 5), "no time of scarcity: {shares:?}");
    }
}
