//! Laws fitted to lives by maximum likelihood. Those that were not seen to end count with the time they lived.

use std::fmt;

use super::Lifetime;
use crate::availability::Life;

/// The shapes among which the fit looks. Outside, a law says no more than "all at once" or "at no time".
const SHAPES: (f64, f64) = (0.05, 50.0);

/// How often the range of shapes is halved: to less than a billionth.
const HALVINGS: u32 = 60;

/// A reason why no law can be fitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FitError {
    /// No machine was evicted, so nothing bounds how long they live.
    NoEviction,
    /// No machine lived for any time.
    NoTime,
    /// The lives are all of one length, or follow no such law.
    NoShape,
}

/// The exponential law of `lives`: its mean is the time of all machines for each eviction.
///
/// # Errors
///
/// Lives without an eviction, or without time.
#[expect(clippy::cast_precision_loss, reason = "an estimate")]
pub fn exponential(lives: &[Life]) -> Result<Lifetime, FitError> {
    let evicted = count_evicted(lives)?;
    let total_ms: f64 = lives.iter().map(|life| life.lived_ms as f64).sum();
    if total_ms > 0.0 {
        Ok(Lifetime::Exponential { mean_ms: total_ms / evicted })
    } else {
        Err(FitError::NoTime)
    }
}

/// The Weibull law of `lives`.
///
/// # Errors
///
/// Lives without an eviction, without time, or all of one length.
pub fn weibull(lives: &[Life]) -> Result<Lifetime, FitError> {
    let evicted = count_evicted(lives)?;
    let sample = Sample::new(lives, evicted)?;
    let (mut low, mut high) = SHAPES;
    // The slope falls as the shape rises, so there is one zero at most.
    if sample.slope(low) <= 0.0 || sample.slope(high) >= 0.0 {
        return Err(FitError::NoShape);
    }
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        if sample.slope(middle) > 0.0 { low = middle } else { high = middle }
    }
    let shape = f64::midpoint(low, high);
    Ok(Lifetime::Weibull { shape, scale_ms: sample.scale_ms(shape) })
}

#[expect(clippy::cast_precision_loss, reason = "a number of machines")]
fn count_evicted(lives: &[Life]) -> Result<f64, FitError> {
    match lives.iter().filter(|life| life.evicted).count() {
        0 => Err(FitError::NoEviction),
        count => Ok(count as f64),
    }
}

/// Lives as shares of the longest, so that no power overflows.
struct Sample {
    longest_ms: f64,
    evicted: f64,
    logs: Vec<f64>,
    /// The mean logarithm of the lives that ended.
    mean_log: f64,
}

impl Sample {
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    fn new(lives: &[Life], evicted: f64) -> Result<Self, FitError> {
        let longest_ms = lives.iter().map(|life| life.lived_ms).max().unwrap_or_default() as f64;
        if longest_ms == 0.0 {
            return Err(FitError::NoTime);
        }
        let log = |life: &Life| (life.lived_ms.max(1) as f64 / longest_ms).ln();
        let mean_log = lives.iter().filter(|life| life.evicted).map(log).sum::<f64>() / evicted;
        Ok(Self { longest_ms, evicted, logs: lives.iter().map(log).collect(), mean_log })
    }

    /// The derivative of the likelihood by the shape, with the best scale for it.
    fn slope(&self, shape: f64) -> f64 {
        let (mut powers, mut weighted) = (0.0, 0.0);
        for log in &self.logs {
            let power = (shape * log).exp();
            powers += power;
            weighted += power * log;
        }
        1.0 / shape + self.mean_log - weighted / powers
    }

    fn scale_ms(&self, shape: f64) -> f64 {
        let powers: f64 = self.logs.iter().map(|log| (shape * log).exp()).sum();
        self.longest_ms * (powers / self.evicted).powf(1.0 / shape)
    }
}

impl fmt::Display for FitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoEviction => "no machine of the trace was evicted: give a longer trace, or a rate",
            Self::NoTime => "the machines of the trace lived for no time: check its unit of time",
            Self::NoShape => {
                "the lives of the trace follow no Weibull law: resample them, or fit an exponential one"
            }
        })
    }
}

impl std::error::Error for FitError {}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::{FitError, exponential, weibull};
    use crate::availability::Life;
    use crate::lifetime::Lifetime;

    const HOUR_MS: f64 = 3_600_000.0;
    const COUNT: usize = 20_000;

    /// Lives by `law`, each watched for a time of its own up to `watched_ms`.
    fn lives(law: &Lifetime, watched_ms: u64) -> Vec<Life> {
        let mut random = ChaCha8Rng::seed_from_u64(5);
        let life = |_| {
            let (ends_ms, seen_ms) = (law.draw_ms(&mut random).unwrap(), random.random_range(1..watched_ms));
            Life { lived_ms: ends_ms.min(seen_ms), evicted: ends_ms <= seen_ms }
        };
        (0..COUNT).map(life).collect()
    }

    #[test]
    fn an_exponential_law_is_found_behind_censoring() {
        let lives = lives(&Lifetime::Exponential { mean_ms: 10.0 * HOUR_MS }, 36_000_000);
        let evicted = lives.iter().filter(|life| life.evicted).count();
        assert!(evicted < COUNT / 2, "most are censored: {evicted}");
        let Lifetime::Exponential { mean_ms } = exponential(&lives).unwrap() else { panic!("another law") };
        // The estimate's deviation is 1/√evicted, 1.2 %: four of them.
        assert!((mean_ms / (10.0 * HOUR_MS) - 1.0).abs() < 0.05, "{}", mean_ms / HOUR_MS);
    }

    #[test]
    fn weibull_laws_are_found_behind_censoring() {
        for (shape, scale_hours) in [(0.7, 8.0), (1.0, 5.0), (2.5, 6.0)] {
            let law = Lifetime::Weibull { shape, scale_ms: scale_hours * HOUR_MS };
            let found = weibull(&lives(&law, 43_200_000)).unwrap();
            let Lifetime::Weibull { shape: found, scale_ms } = found else { panic!("another law") };
            assert!((found / shape - 1.0).abs() < 0.04, "shape {found} for {shape}");
            assert!((scale_ms / HOUR_MS / scale_hours - 1.0).abs() < 0.06, "scale {}", scale_ms / HOUR_MS);
        }
    }

    #[test]
    fn lives_that_bound_nothing_are_refused() {
        let censored = [Life { lived_ms: 9, evicted: false }];
        assert_eq!(exponential(&censored), Err(FitError::NoEviction));
        assert_eq!(weibull(&censored), Err(FitError::NoEviction));
        let none = [Life { lived_ms: 0, evicted: true }];
        assert_eq!((exponential(&none), weibull(&none)), (Err(FitError::NoTime), Err(FitError::NoTime)));
        assert_eq!(weibull(&[Life { lived_ms: 9, evicted: true }; 3]), Err(FitError::NoShape));
    }
}
