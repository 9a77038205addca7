//! Evictions of several machines at a moment, resampled from the losses of a fleet.

use rand::Rng;
use rand_chacha::ChaCha8Rng;

use crate::availability::Loss;

/// Losses to draw from, each with the time before it.
///
/// A draw is one loss of the trace: the time before it, and the share of the machines that it took. So losses are as
/// large and as frequent as in the trace. That a loss follows another one soon is kept only as far as short times are
/// frequent: draws do not depend on each other.
#[derive(Clone, Debug, PartialEq)]
pub struct Bursts {
    losses: Vec<Loss>,
    /// What times are multiplied with.
    stretch: f64,
}

impl Bursts {
    /// Losses as they were.
    ///
    /// # Panics
    ///
    /// If there are none, or if they take no time or no machine.
    #[must_use]
    pub fn new(losses: Vec<Loss>) -> Self {
        let bursts = Self { losses, stretch: 1.0 };
        let rate = bursts.rate_per_ms();
        assert!(rate.is_finite() && rate > 0.0, "losses need time and machines");
        bursts
    }

    /// The same losses, more or less often, so that a machine is evicted in an hour with the chance `share`.
    ///
    /// # Panics
    ///
    /// If the share is not above 0 and below 1.
    #[must_use]
    pub fn at_hourly_rate(mut self, share: f64) -> Self {
        assert!(share > 0.0 && share < 1.0, "a rate of evictions has to be above 0 and below 1");
        let wanted = -(-share).ln_1p() / 3_600_000.0;
        self.stretch *= self.rate_per_ms() / wanted;
        self
    }

    /// How often one machine is evicted.
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    fn rate_per_ms(&self) -> f64 {
        let time_ms: f64 = self.losses.iter().map(|loss| loss.after_ms as f64).sum();
        // A loss of all machines at once counts as one for each of them.
        let lost: f64 = self.losses.iter().map(share).sum();
        lost / (time_ms * self.stretch)
    }

    /// The time until the next loss, and the share of machines that it takes.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "a float saturates, and is not negative"
    )]
    pub(super) fn draw(&self, random: &mut ChaCha8Rng) -> (u64, f64) {
        let loss = &self.losses[random.random_range(0..self.losses.len())];
        (((loss.after_ms as f64 * self.stretch) as u64).max(1), share(loss))
    }
}

fn share(loss: &Loss) -> f64 {
    f64::from(loss.lost) / f64::from(loss.of.max(1))
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::Bursts;
    use crate::availability::Loss;

    const HOUR_MS: u64 = 3_600_000;

    #[test]
    fn a_rate_stretches_the_time_between_losses() {
        // Half of the machines twice in 10 h: 0.1 an hour.
        let loss = Loss { after_ms: 5 * HOUR_MS, lost: 2, of: 4 };
        let bursts = Bursts::new(vec![loss; 2]);
        let mut random = ChaCha8Rng::seed_from_u64(1);
        assert_eq!(bursts.draw(&mut random), (5 * HOUR_MS, 0.5));
        // To 0.2 an hour: the chance in one is 1 - e^-0.2.
        let faster = bursts.at_hourly_rate(1.0 - (-0.2_f64).exp());
        let (after_ms, share) = faster.draw(&mut random);
        assert!(after_ms.abs_diff(5 * HOUR_MS / 2) < 10, "{after_ms}");
        assert!((share - 0.5).abs() < 1e-12, "{share}");
    }
}
