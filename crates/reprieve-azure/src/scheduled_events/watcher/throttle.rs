//! The pauses of a watch while the service answers 429 and no api-version answers.

use std::time::Duration;

use tokio::time::Instant;

/// The pauses after consecutive rounds of requests that got only 429.
///
/// The first is short, because another version may answer. The last is the longest that a notice can
/// bear: a Preempt comes 30 s before the eviction at the least, and a worker that learns of it 3 s
/// late still has 27 s to save. One worker then sends one or two requests in three seconds, so even
/// eight that do not share their answers stay below the limit of five a second.
const PAUSES: [Duration; 3] =
    [Duration::from_millis(500), Duration::from_millis(1_500), Duration::from_secs(3)];

/// The longest `Retry-After` that is obeyed, for the same reason.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(8);

/// How long a round may take before the next one begins.
const ROUND_MAX: Duration = Duration::from_secs(3);

/// The part of a pause that is the same in all processes; the rest is random.
const FIXED_SHARE: f64 = 0.75;

/// The growing pause while only 429 is answered. The steps go down with each answer, one by one, so
/// that processes which together send too many requests stay slow.
#[derive(Debug, Default)]
pub(super) struct Throttle {
    /// The number of the last pause, from 1.
    step: usize,
    /// When the next round begins; `None` while no pause is due.
    until: Option<Instant>,
    /// The round under way has not got a 429 yet.
    in_round: bool,
    /// The number of rounds.
    rounds: u64,
}

impl Throttle {
    /// When the next round of requests begins; `None` while polls have their normal interval.
    pub(super) const fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Begins a round. Returns its number.
    pub(super) fn begin_round(&mut self, now: Instant) -> u64 {
        self.in_round = true;
        self.until = Some(now + ROUND_MAX);
        self.rounds += 1;
        self.rounds
    }

    /// Notes a 429 while no version answers. Of each round only the first counts. `random` is between 0
    /// and 1.
    pub(super) fn throttled(&mut self, now: Instant, retry_after: Option<Duration>, random: f64) {
        if self.until.is_some() && !self.in_round {
            return;
        }
        self.in_round = false;
        self.step = (self.step + 1).min(PAUSES.len());
        let pause = PAUSES[self.step - 1].mul_f64(FIXED_SHARE + (1.0 - FIXED_SHARE) * random);
        // Before the second round not all versions have been tried.
        let asked = retry_after.filter(|_| self.step > 1).unwrap_or_default();
        self.until = Some(now + pause.max(asked.min(RETRY_AFTER_MAX)));
    }

    /// Notes an answer: the polls have their normal interval again.
    pub(super) fn answered(&mut self) {
        (self.until, self.in_round) = (None, false);
        self.step = self.step.saturating_sub(1);
    }

    /// Notes another failure than a 429: it says nothing about the number of requests.
    pub(super) fn failed_otherwise(&mut self) {
        if self.in_round {
            (self.until, self.in_round) = (None, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Throttles round after round. Returns the pauses in milliseconds.
    fn pauses(throttle: &mut Throttle, retry_after: Option<Duration>, rounds: usize) -> Vec<u128> {
        let mut now = Instant::now();
        let mut pauses = Vec::new();
        for _ in 0..rounds {
            throttle.throttled(now, retry_after, 1.0);
            throttle.throttled(now, retry_after, 1.0);
            let until = throttle.until().expect("a pause");
            pauses.push((until - now).as_millis());
            now = until;
            throttle.begin_round(now);
        }
        pauses
    }

    #[test]
    fn the_pause_grows_with_each_round_and_not_with_each_429() {
        assert_eq!(pauses(&mut Throttle::default(), None, 5), [500, 1_500, 3_000, 3_000, 3_000]);
    }

    #[test]
    fn retry_after_is_obeyed_up_to_a_bound_once_a_second_round_was_refused() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(pauses(&mut Throttle::default(), seconds(30), 3), [500, 8_000, 8_000]);
        assert_eq!(pauses(&mut Throttle::default(), seconds(3), 3), [500, 3_000, 3_000]);
        assert_eq!(pauses(&mut Throttle::default(), seconds(0), 3), [500, 1_500, 3_000]);
    }

    #[test]
    fn an_answer_ends_the_pause_and_lowers_the_next_one_by_a_step() {
        let mut throttle = Throttle::default();
        pauses(&mut throttle, None, 3);
        throttle.answered();
        assert_eq!(throttle.until(), None);
        assert_eq!(pauses(&mut throttle, None, 1), [3_000]);
        (0..4).for_each(|_| throttle.answered());
        assert_eq!(pauses(&mut throttle, None, 1), [500]);
    }

    #[test]
    fn a_part_of_each_pause_is_random() {
        let now = Instant::now();
        let pause = |random| {
            let mut throttle = Throttle { step: 2, ..Throttle::default() };
            throttle.throttled(now, None, random);
            throttle.until().expect("a pause") - now
        };
        assert_eq!(pause(0.0), Duration::from_millis(2_250));
        assert_eq!(pause(0.5), Duration::from_millis(2_625));
    }

    #[test]
    fn a_round_that_fails_otherwise_ends_the_pauses() {
        let mut throttle = Throttle::default();
        throttle.throttled(Instant::now(), None, 0.0);
        throttle.failed_otherwise();
        assert!(throttle.until().is_some(), "a late failure of the round before");
        throttle.begin_round(Instant::now());
        throttle.failed_otherwise();
        assert_eq!(throttle.until(), None);
    }
}
