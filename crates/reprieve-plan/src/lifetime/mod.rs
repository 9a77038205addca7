//! How long a Spot machine lives: laws, and the lives of a trace.
//!
//! | file | concept |
//! |---|---|
//! | `fit` | laws from lives, of which some were not seen to end |
//! | `resampled` | lives drawn from a trace, without a law |

mod fit;
mod resampled;

use rand::Rng;
use rand_chacha::ChaCha8Rng;

pub use fit::{FitError, exponential, weibull};
pub use resampled::Resampled;

/// A law of the time from the request for a machine to its eviction.
#[derive(Clone, Debug, PartialEq)]
pub enum Lifetime {
    /// No machine is evicted.
    Endless,
    /// Evictions come at one rate at every age.
    Exponential {
        /// The mean time.
        mean_ms: f64,
    },
    /// The rate follows the age: it falls for a shape below 1, and rises for one above.
    Weibull {
        /// The shape.
        shape: f64,
        /// The age by which 63 % are evicted.
        scale_ms: f64,
    },
    /// Drawn from the lives of a trace.
    Resampled(Resampled),
}

impl Lifetime {
    /// The law of machines of which `share` is evicted in each hour: from 0 up to, but not, 1.
    ///
    /// # Panics
    ///
    /// If the share is not in that range.
    #[must_use]
    pub fn from_hourly_rate(share: f64) -> Self {
        assert!((0.0..1.0).contains(&share), "a rate of evictions has to be below 1");
        if share == 0.0 {
            Self::Endless
        } else {
            Self::Exponential { mean_ms: -3_600_000.0 / (-share).ln_1p() }
        }
    }

    /// Draws a time; `None` if the machine lives longer than anything that the law knows.
    #[must_use]
    pub fn draw_ms(&self, random: &mut ChaCha8Rng) -> Option<u64> {
        match self {
            Self::Endless => None,
            Self::Exponential { mean_ms } => Some(whole_ms(mean_ms * exponential_factor(random))),
            Self::Weibull { shape, scale_ms } => {
                Some(whole_ms(scale_ms * exponential_factor(random).powf(1.0 / shape)))
            }
            Self::Resampled(lives) => lives.draw_ms(random.random()),
        }
    }
}

/// An exponential number with mean 1.
fn exponential_factor(random: &mut ChaCha8Rng) -> f64 {
    // 1 minus a number below 1 is above 0, so the logarithm is finite.
    -(1.0 - random.random::<f64>()).ln()
}

/// The next whole millisecond, at least one.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float saturates, and is not negative"
)]
fn whole_ms(time_ms: f64) -> u64 {
    time_ms.ceil().max(1.0) as u64
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::Lifetime;

    const HOUR_MS: u64 = 3_600_000;

    #[test]
    #[expect(clippy::cast_precision_loss, reason = "a share of draws")]
    fn an_hourly_rate_evicts_its_share_in_the_first_hour() {
        let law = Lifetime::from_hourly_rate(0.2);
        let mut random = ChaCha8Rng::seed_from_u64(1);
        let count = 100_000;
        let evicted = (0..count).filter(|_| law.draw_ms(&mut random).is_some_and(|ms| ms <= HOUR_MS)).count();
        // Four standard deviations of a share of 100,000.
        assert!((evicted as f64 / f64::from(count) - 0.2).abs() < 0.005, "{evicted}");
    }

    #[test]
    fn without_evictions_a_machine_lives_without_limit() {
        let mut random = ChaCha8Rng::seed_from_u64(1);
        assert_eq!(Lifetime::from_hourly_rate(0.0).draw_ms(&mut random), None);
    }
}
