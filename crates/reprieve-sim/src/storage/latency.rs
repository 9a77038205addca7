//! A simulated latency: the travel time of requests and answers.

use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

/// The round-trip time of every request; half of it is the way there. The default is zero.
///
/// Opening connections is not slower, and bandwidth has no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Latency {
    /// The minimum, in milliseconds.
    pub fixed_ms: u64,
    /// The maximum of a random addition, in milliseconds, evenly distributed.
    pub jitter_ms: u64,
    /// The seed of the jitter's random numbers.
    pub seed: u64,
}

/// A latency and its random numbers.
#[derive(Debug)]
pub(super) struct TravelTime {
    latency: Latency,
    rng: ChaCha8Rng,
}

impl TravelTime {
    pub(super) fn new(latency: Latency) -> Self {
        Self { latency, rng: ChaCha8Rng::seed_from_u64(latency.seed) }
    }

    pub(super) const fn latency(&self) -> Latency {
        self.latency
    }

    /// Returns half of the next request's round-trip time.
    pub(super) fn one_way(&mut self) -> Duration {
        let Latency { fixed_ms, jitter_ms, .. } = self.latency;
        if fixed_ms == 0 && jitter_ms == 0 {
            return Duration::ZERO;
        }
        let jitter = self.rng.random_range(0..=jitter_ms.saturating_mul(1000));
        (Duration::from_millis(fixed_ms) + Duration::from_micros(jitter)) / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_are_within_their_bounds_and_come_from_the_seed() {
        let latency = Latency { fixed_ms: 40, jitter_ms: 20, seed: 3 };
        let ways = || {
            let mut travel_time = TravelTime::new(latency);
            (0..100).map(|_| travel_time.one_way()).collect::<Vec<_>>()
        };
        let bounds = Duration::from_millis(20)..=Duration::from_millis(30);
        assert!(ways().iter().all(|way| bounds.contains(way)), "{:?}", ways());
        assert_eq!(ways(), ways());
        assert_eq!(TravelTime::new(Latency::default()).one_way(), Duration::ZERO);
    }
}
