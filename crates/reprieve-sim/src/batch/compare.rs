//! The two simulations side by side: many runs, their means and percentiles, and how far these are apart.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use reprieve_core::Result;
use reprieve_plan::fleet::{Outcome, Spread, simulate};

use super::scenarios::Scenario;
use super::{Played, play};

/// How far apart the means of the cost, and the 95th percentiles of the finish, may be.
pub const WITHIN_PERCENT: f64 = 10.0;

/// How often the runs are resampled for an interval.
const RESAMPLES: usize = 2_000;

/// A scenario, simulated twice with the same seeds.
#[derive(Debug, Clone)]
pub struct Compared {
    /// What the model says, by the seed.
    pub modelled: Vec<Outcome>,
    /// What came of real workers, by the seed.
    pub played: Vec<Played>,
    limit_ms: u64,
}

/// A figure of the workers as a multiple of the model's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    /// The ratio.
    pub value: f64,
    /// The ends of its 95 % interval.
    pub low: f64,
    /// See `low`.
    pub high: f64,
}

impl Ratio {
    /// Whether it is within [`WITHIN_PERCENT`] of one.
    #[must_use]
    pub fn is_within(self) -> bool {
        (self.value - 1.0).abs() * 100.0 <= WITHIN_PERCENT
    }
}

impl Compared {
    /// Simulates a scenario with the seeds from zero up to `runs`.
    ///
    /// # Errors
    /// Fails when a runtime or a worker can't be set up.
    pub fn new(scenario: &Scenario, runs: u32) -> Result<Self> {
        let Scenario { model, strategy, .. } = scenario;
        let (mut modelled, mut played) = (Vec::new(), Vec::new());
        for seed in 0..runs {
            modelled.push(simulate(model, strategy, u64::from(seed)));
            played.push(play(model, strategy, u64::from(seed))?);
        }
        Ok(Self { modelled, played, limit_ms: model.limit_ms })
    }

    /// The costs of the runs in millionths of the currency: the model's, and the workers'.
    #[must_use]
    pub fn costs_micros(&self) -> [Vec<u64>; 2] {
        let modelled = self
            .modelled
            .iter()
            .map(|outcome| u64::try_from(outcome.cost.total().micros()).unwrap_or(u64::MAX));
        [modelled.collect(), self.played.iter().map(|played| played.cost_micros).collect()]
    }

    /// The times until the jobs were done. A run that did not finish has the limit.
    #[must_use]
    pub fn finishes_ms(&self) -> [Vec<u64>; 2] {
        let finish = |finished_ms: Option<u64>| finished_ms.unwrap_or(self.limit_ms);
        let modelled = self.modelled.iter().map(|outcome| finish(outcome.finished_ms));
        [modelled.collect(), self.played.iter().map(|played| finish(played.finished_ms)).collect()]
    }

    /// The mean cost of the workers as a multiple of the model's.
    #[must_use]
    pub fn cost(&self) -> Ratio {
        ratio(&self.costs_micros(), |costs| Spread::new(costs.iter().copied()).mean)
    }

    /// The 95th percentile of the workers' finish as a multiple of the model's.
    #[must_use]
    pub fn finish(&self) -> Ratio {
        ratio(&self.finishes_ms(), |finishes| as_f64(Spread::new(finishes.iter().copied()).p95))
    }
}

/// The ratio of a figure of both simulations, and its interval: the runs are resampled by their seeds.
fn ratio([modelled, played]: &[Vec<u64>; 2], figure: impl Fn(&[u64]) -> f64) -> Ratio {
    let of = |modelled: &[u64], played: &[u64]| figure(played) / figure(modelled);
    let value = of(modelled, played);
    let mut random = SmallRng::seed_from_u64(95);
    let resampled = (0..RESAMPLES).map(|_| {
        let runs: Vec<_> = (0..played.len()).map(|_| random.random_range(0..played.len())).collect();
        let [modelled, played] =
            [modelled, played].map(|values| runs.iter().map(|run| values[*run]).collect::<Vec<_>>());
        of(&modelled, &played)
    });
    let mut ratios: Vec<_> = resampled.collect();
    ratios.sort_unstable_by(f64::total_cmp);
    let at = |share: usize| ratios.get(RESAMPLES * share / 1_000).copied().unwrap_or(value);
    Ratio { value, low: at(25), high: at(975) }
}

#[expect(clippy::cast_precision_loss, reason = "a time of less than ten years")]
const fn as_f64(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::ratio;

    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    fn mean(values: &[u64]) -> f64 {
        values.iter().sum::<u64>() as f64 / values.len() as f64
    }

    #[test]
    fn what_both_simulations_share_does_not_widen_the_interval() {
        let modelled: Vec<u64> = (1_000..1_200).map(|value| value * 10).collect();
        let played = modelled.iter().map(|value| value * 11 / 10).collect();
        let same = ratio(&[modelled.clone(), played], mean);
        assert!((same.value - 1.1).abs() < 1e-3 && same.high - same.low < 1e-3, "{same:?}");
        let reversed = modelled.iter().rev().copied().collect();
        let other = ratio(&[modelled, reversed], mean);
        assert!(other.low < 0.995 && (other.value - 1.0).abs() < 1e-9 && other.high > 1.005, "{other:?}");
    }
}
