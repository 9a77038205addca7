//! The pauses of a watch while the service answers 429 and no api-version answers, and for a while after
//! that.

use std::time::Duration;

use tokio::time::Instant;

/// The pauses after consecutive rounds of requests that got only 429.
///
/// The first is short, because another version may answer: with it, a notice is heard within 1.5 s, also
/// where polls come every 1.25 s. The last is the longest that a notice can bear: a Preempt comes 30 s
/// before the eviction at the least, and a worker that learns of it 3 s late still has 27 s to save. One
/// worker then sends one or two requests in three seconds, so even eight that do not share their answers
/// stay below the limit of five a second.
const PAUSES: [Duration; 3] =
    [Duration::from_millis(250), Duration::from_millis(1_500), Duration::from_secs(3)];

/// The longest `Retry-After` that is obeyed, for the same reason.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(8);

/// How long a round may take before the next one begins.
const ROUND_MAX: Duration = Duration::from_secs(3);

/// From this step on, polls stay slow after an answer. If they did not, the few processes that got an
/// answer would use up what the service answers, and the others would hear nothing.
const SLOW_FROM: usize = 2;

/// After so many answers, the pause is a step shorter.
const ANSWERS_A_STEP: u32 = 4;

/// The part of a pause that is the same in all processes; the rest is random.
const FIXED_SHARE: f64 = 0.75;

/// The growing pause while only 429 is answered. The steps go down with the answers, one by one, so that
/// processes which together send too many requests share what the service answers.
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
    /// The number of answers since the step changed.
    answers: u32,
}

impl Throttle {
    /// When the next round of requests begins; `None` while polls have their normal interval.
    pub(super) const fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Whether polls come in rounds even if a version answers.
    pub(super) const fn is_slow(&self) -> bool {
        self.until.is_some() && self.step >= SLOW_FROM
    }

    /// Begins a round. Returns whether an older version may be asked, too.
    pub(super) fn begin_round(&mut self, now: Instant) -> bool {
        self.in_round = true;
        self.until = Some(now + ROUND_MAX);
        self.rounds += 1;
        self.rounds.is_multiple_of(2)
    }

    /// Whether there was an answer after the last 429.
    pub(super) const fn is_answered(&self) -> bool {
        self.answers > 0
    }

    /// Notes a 429 while no version answers. Of each round only the first counts. The next round begins at
    /// the `earliest` then. `random` is between 0 and 1.
    pub(super) fn throttled(
        &mut self,
        now: Instant,
        earliest: Instant,
        retry_after: Option<Duration>,
        random: f64,
    ) {
        if self.until.is_some() && !self.in_round {
            return;
        }
        (self.in_round, self.answers) = (false, 0);
        self.step = (self.step + 1).min(PAUSES.len());
        let pause = self.pause(random);
        // Before the second round not all versions have been tried.
        let asked = retry_after.filter(|_| self.step > 1).unwrap_or_default();
        self.until = Some(earliest.max(now + pause.max(asked.min(RETRY_AFTER_MAX))));
    }

    /// Ends the pauses.
    pub(super) fn end(&mut self) {
        (self.until, self.in_round, self.answers) = (None, false, 0);
        self.step = self.step.saturating_sub(1);
    }

    /// Notes an answer. Unless polls stay slow, they have their normal interval again. `random` is between 0
    /// and 1.
    pub(super) fn answered(&mut self, now: Instant, random: f64) {
        if !self.is_slow() {
            return self.end();
        }
        self.in_round = false;
        self.answers += 1;
        if self.answers >= ANSWERS_A_STEP {
            (self.step, self.answers) = (self.step - 1, 0);
        }
        self.until = (self.step >= SLOW_FROM).then(|| now + self.pause(random));
    }

    /// The pause of the present step, which is at least 1.
    fn pause(&self, random: f64) -> Duration {
        PAUSES[self.step - 1].mul_f64(FIXED_SHARE + (1.0 - FIXED_SHARE) * random)
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
            throttle.throttled(now, now, retry_after, 1.0);
            throttle.throttled(now, now, retry_after, 1.0);
            let until = throttle.until().expect("a pause");
            pauses.push((until - now).as_millis());
            now = until;
            throttle.begin_round(now);
        }
        pauses
    }

    #[test]
    fn the_pause_grows_with_each_round_and_not_with_each_429() {
        assert_eq!(pauses(&mut Throttle::default(), None, 5), [250, 1_500, 3_000, 3_000, 3_000]);
    }

    #[test]
    fn retry_after_is_obeyed_up_to_a_bound_once_a_second_round_was_refused() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(pauses(&mut Throttle::default(), seconds(30), 3), [250, 8_000, 8_000]);
        assert_eq!(pauses(&mut Throttle::default(), seconds(3), 3), [250, 3_000, 3_000]);
        assert_eq!(pauses(&mut Throttle::default(), seconds(0), 3), [250, 1_500, 3_000]);
    }

    #[test]
    fn an_answer_after_one_refused_round_ends_the_pause() {
        let (mut throttle, now) = (Throttle::default(), Instant::now());
        pauses(&mut throttle, None, 1);
        throttle.answered(now, 1.0);
        assert_eq!((throttle.until(), throttle.is_slow()), (None, false));
        assert_eq!(pauses(&mut throttle, None, 1), [250]);
    }

    #[test]
    fn after_more_refused_rounds_the_pauses_shrink_by_a_step_for_every_four_answers() {
        let (mut throttle, now) = (Throttle::default(), Instant::now());
        pauses(&mut throttle, None, 3);
        let after_answers = |throttle: &mut Throttle| {
            throttle.answered(now, 1.0);
            throttle.until().map(|until| (until - now).as_millis())
        };
        let all: Vec<_> = (0..8).map(|_| after_answers(&mut throttle)).collect();
        let (slow, less, normal) = (Some(3_000), Some(1_500), None);
        assert_eq!(all, [slow, slow, slow, less, less, less, less, normal]);
    }

    #[test]
    fn a_429_makes_them_grow_again() {
        let (mut throttle, now) = (Throttle::default(), Instant::now());
        pauses(&mut throttle, None, 2);
        (0..3).for_each(|_| throttle.answered(now, 1.0));
        throttle.begin_round(now);
        throttle.throttled(now, now, None, 1.0);
        assert_eq!(throttle.until(), Some(now + Duration::from_secs(3)));
        assert!(throttle.is_slow());
    }

    #[test]
    fn a_part_of_each_pause_is_random() {
        let now = Instant::now();
        let pause = |random| {
            let mut throttle = Throttle { step: 2, ..Throttle::default() };
            throttle.throttled(now, now, None, random);
            throttle.until().expect("a pause") - now
        };
        assert_eq!(pause(0.0), Duration::from_millis(2_250));
        assert_eq!(pause(0.5), Duration::from_millis(2_625));
    }

    #[test]
    fn a_round_that_fails_otherwise_ends_the_pauses() {
        let mut throttle = Throttle::default();
        throttle.throttled(Instant::now(), Instant::now(), None, 0.0);
        throttle.failed_otherwise();
        assert!(throttle.until().is_some(), "a late failure of the round before");
        throttle.begin_round(Instant::now());
        throttle.failed_otherwise();
        assert_eq!(throttle.until(), None);
    }
}
