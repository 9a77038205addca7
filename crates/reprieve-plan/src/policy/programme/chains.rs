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

    /// The mean of the rates that the history leaves possible: with the prior, gamma distributions.
    pub(super) fn estimate(history: &History) -> Self {
        Self {
            loss: posterior_mean(history.losses, history.up_ms),
            back: posterior_mean(history.returns, history.down_ms),
        }
    }

    /// The four solved chains around this one, by their index in [`Self::all`], and their weights.
    pub(super) fn neighbours(&self) -> [(usize, f64); 4] {
        let ((loss, loss_part), (back, back_part)) = (position(self.loss), position(self.back));
        [
            (loss * MEANS + back, (1.0 - loss_part) * (1.0 - back_part)),
            (loss * MEANS + back + 1, (1.0 - loss_part) * back_part),
            ((loss + 1) * MEANS + back, loss_part * (1.0 - back_part)),
            ((loss + 1) * MEANS + back + 1, loss_part * back_part),
        ]
    }
}

fn rates() -> impl Iterator<Item = f64> {
    std::iter::successors(Some(1.0 / SHORTEST_MS), |rate| Some(rate / FACTOR)).take(MEANS)
}

#[expect(clippy::cast_precision_loss, reason = "an estimate")]
fn posterior_mean(changes: u32, time_ms: u64) -> f64 {
    (PRIOR_CHANGES + f64::from(changes)) / (PRIOR_MS + time_ms as f64)
}

/// The last solved rate that is not below `rate`, but not the last of all, and the way from it to the next.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "clamped to the few solved rates"
)]
fn position(rate: f64) -> (usize, f64) {
    let position = (-(rate * SHORTEST_MS).ln() / FACTOR.ln()).clamp(0.0, (MEANS - 1) as f64);
    let index = (position as usize).min(MEANS - 2);
    (index, position - index as f64)
}

#[cfg(test)]
mod tests {
    use super::{Chain, PRIOR_CHANGES, PRIOR_MS};
    use crate::history::History;

    const HOUR_MS: u64 = 3_600_000;

    #[test]
    fn without_history_the_prior_is_the_estimate() {
        let chain = Chain::estimate(&History::default());
        assert_eq!(chain, Chain { loss: PRIOR_CHANGES / PRIOR_MS, back: PRIOR_CHANGES / PRIOR_MS });
    }

    #[test]
    fn a_long_history_outweighs_the_prior() {
        let history = History {
            up_ms: 500 * HOUR_MS,
            down_ms: 1000 * HOUR_MS,
            losses: 100,
            returns: 100,
            ..History::default()
        };
        let chain = Chain::estimate(&history);
        assert!((chain.loss * 5.0 * 3.6e6 - 1.0).abs() < 0.02, "{chain:?}");
        assert!((chain.back * 10.0 * 3.6e6 - 1.0).abs() < 0.02, "{chain:?}");
    }

    #[test]
    fn a_solved_chain_is_its_own_neighbour() {
        for (index, chain) in Chain::all().enumerate() {
            let own: f64 = chain
                .neighbours()
                .iter()
                .filter(|(other, _)| *other == index)
                .map(|(_, weight)| weight)
                .sum();
            assert!((own - 1.0).abs() < 1e-9, "{index}: {:?}", chain.neighbours());
        }
    }

    #[test]
    fn chains_beyond_the_solved_ones_are_the_nearest() {
        let (fast, slow) = (Chain { loss: 1.0, back: 1.0 }, Chain { loss: 1e-12, back: 1e-12 });
        assert_eq!(fast.neighbours()[0], (0, 1.0));
        assert_eq!(slow.neighbours()[3], (48, 1.0));
    }
}
