//! The Markov chains that the programme is solved for, and the estimate of the present one.

use crate::history::History;

/// The mean times that are solved, with Spot and without it: 10 minutes, and 2.5 times as much each,
/// to 41 hours. Shorter ones are of no use after a boot, and longer ones look alike to a task of
/// days.
const MEANS: usize = 7;
const SHORTEST_MS: f64 = 600_000.0;
const FACTOR: f64 = 2.5;

/// The prior: one change seen in 45 minutes, of each kind.
///
/// It is as weak as a whole number of changes can be, because a task of hours sees few itself. Its
/// time is short enough not to trust a market that changes every half hour for too long. An hour
/// costs 0.1 % less in the mean of the measured settings, but more than 1 % more than greedy
/// in the worst of them.
const PRIOR_CHANGES: f64 = 1.0;
const PRIOR_MS: f64 = 2_700_000.0;

/// How many points of its distribution stand for a rate from one that is solved to the next.
const POINTS: usize = 4;

/// Less weight of a rate, or of a chain, than that is none. A decision looks at a dozen chains then, and not at 49.
const LITTLE: f64 = 0.05;
const LITTLE_OF_CHAIN: f64 = 0.02;

/// The logarithm of a part that is not worth an exponential.
const FAR: f64 = -7.0;

/// A two-state chain by its rates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Chain {
    /// Losses of Spot per millisecond in which it is available.
    pub loss: f64,
    /// Returns of Spot per millisecond in which it is not.
    pub back: f64,
}

impl Chain {
    /// The solved chains.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        rates().flat_map(|loss| rates().map(move |back| Self { loss, back }))
    }

    /// The solved chains that the history and the prior leave likely, by their index in [`Self::all`], and their
    /// weights.
    pub(super) fn likely(history: &History) -> impl Iterator<Item = (usize, f64)> {
        let back = weights(history.returns, history.down_ms);
        let losses = weights(history.losses, history.up_ms).into_iter().enumerate();
        let both = losses.flat_map(move |(row, loss)| {
            back.into_iter().enumerate().map(move |(column, back)| (row * MEANS + column, loss * back))
        });
        both.filter(|(_, weight)| *weight > LITTLE_OF_CHAIN)
    }
}

fn rates() -> impl Iterator<Item = f64> {
    std::iter::successors(Some(1.0 / SHORTEST_MS), |rate| Some(rate / FACTOR)).take(MEANS)
}

/// The weights of the solved rates after `changes` in a time, with the prior: a gamma distribution of the logarithm, at four
/// points from each solved rate to the next, each shared by the two. Little weights are left out, for the speed of it.
///
/// Costs are averaged, and not rates: a market that may be calm is not the same as one that is half as calm for sure.
#[expect(clippy::cast_precision_loss, reason = "an estimate")]
fn weights(changes: u32, time_ms: u64) -> [f64; MEANS] {
    let (changes, time_ms) = (PRIOR_CHANGES + f64::from(changes), PRIOR_MS + time_ms as f64);
    let (mut rate_times_time, mut log) = (time_ms / SHORTEST_MS, (time_ms / SHORTEST_MS).ln());
    let log_step = -FACTOR.ln() / POINTS as f64;
    let step = log_step.exp();
    let likelihoods: [f64; (MEANS - 1) * POINTS + 1] = std::array::from_fn(|_| {
        let likelihood = changes * log - rate_times_time;
        rate_times_time *= step;
        log += log_step;
        likelihood
    });
    let most = likelihoods.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mut weights = [0.0; MEANS];
    for (point, likelihood) in likelihoods.iter().enumerate() {
        let (index, to_next) = (point / POINTS, (point % POINTS) as f64 / POINTS as f64);
        let likely = if likelihood - most < FAR { 0.0 } else { (likelihood - most).exp() };
        weights[index] += likely * (1.0 - to_next);
        if let Some(next) = weights.get_mut(index + 1) {
            *next += likely * to_next;
        }
    }
    let sum: f64 = weights.iter().sum();
    weights.map(|weight| if weight < sum * LITTLE { 0.0 } else { weight / sum })
}

#[cfg(test)]
mod tests {
    use super::Chain;
    use crate::history::History;

    const HOUR_MS: u64 = 3_600_000;

    /// The mean times with Spot and without it that a history leaves, by the weights of the solved chains.
    fn means_h(history: &History) -> [f64; 2] {
        let chains: Vec<_> = Chain::all().collect();
        let mean = |rate: fn(&Chain) -> f64| {
            let log: f64 =
                Chain::likely(history).map(|(index, weight)| weight * rate(&chains[index]).ln()).sum();
            (-log).exp() / 3.6e6
        };
        [mean(|chain| chain.loss), mean(|chain| chain.back)]
    }

    #[test]
    fn most_of_the_weight_is_kept_whatever_the_history() {
        for (changes, time_ms) in [(0, 0), (0, u64::MAX), (u32::MAX, 0), (u32::MAX, u64::MAX), (7, HOUR_MS)] {
            let (losses, returns, up_ms, down_ms) = (changes, changes, time_ms, time_ms);
            let history = History { up_ms, down_ms, losses, returns, ..History::default() };
            let weights: Vec<f64> = Chain::likely(&history).map(|(_, weight)| weight).collect();
            let sum: f64 = weights.iter().sum();
            assert!((0.7..1.000_001).contains(&sum), "{changes} in {time_ms}: {weights:?}");
        }
    }

    #[test]
    fn without_history_most_chains_are_likely() {
        let history = History::default();
        let [up, down] = means_h(&history);
        assert!((up - down).abs() < 1e-9, "{up} h and {down} h");
        let likely = Chain::likely(&history).count();
        assert!(likely > 12, "{likely} of 49");
    }

    #[test]
    fn a_long_history_outweighs_the_prior_and_leaves_little_doubt() {
        let (losses, returns) = (100, 100);
        let history =
            History { up_ms: 500 * HOUR_MS, down_ms: 1000 * HOUR_MS, losses, returns, ..History::default() };
        let [up, down] = means_h(&history);
        assert!((up / 5.0 - 1.0).abs() < 0.02 && (down / 10.0 - 1.0).abs() < 0.02, "{up} {down}");
        assert!(Chain::likely(&history).count() <= 9);
    }
}
