//! Decides how far the service's clock is ahead of this machine's, by answers that agree.

use std::time::Duration;

use jiff::SignedDuration;
use tokio::time::Instant;
use tracing::{info, warn};

/// How far the clocks must differ, or the difference from what it was, to be used: `Date` has whole
/// seconds.
const DIFFERS_FROM: SignedDuration = SignedDuration::from_secs(2);

/// How many consecutive answers must agree on a new difference. `Date` is not documented, and a wrong
/// one moves the deadline of every event.
const AGREE: u32 = 3;

/// For how long they must agree: the answers in two api-versions come at once.
const AGREE_FOR: Duration = Duration::from_millis(1_500);

/// The longest pause between answers that agree.
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// How often a new difference is logged.
const LOG_EVERY: Duration = Duration::from_mins(1);

/// How far the service's clock is ahead of this machine's.
#[derive(Debug, Default)]
pub(super) struct ClockDifference {
    /// The difference in use; `None` before the first answer that shows one.
    used: Option<SignedDuration>,
    candidate: Option<Candidate>,
    /// The difference that was logged last, and when.
    logged: Option<(SignedDuration, Instant)>,
}

/// A new difference, which is not used yet.
#[derive(Debug)]
struct Candidate {
    ahead: SignedDuration,
    answers: u32,
    since: Instant,
    latest: Instant,
}

impl ClockDifference {
    /// The difference in use: zero if it is below two seconds.
    pub(super) fn ahead(&self) -> SignedDuration {
        self.used.unwrap_or_default()
    }

    /// Notes the difference that an answer shows, received at `at`. The first one is used at once,
    /// because the deadline of an event that is already active depends on it.
    pub(super) fn note(&mut self, ahead: SignedDuration, at: Instant) {
        if self.used.is_none_or(|_| self.is_confirmed(ahead, at)) {
            self.used = Some(if ahead.abs() < DIFFERS_FROM { SignedDuration::ZERO } else { ahead });
            self.candidate = None;
        }
        self.log(at);
    }

    /// Whether enough answers have shown this new difference.
    fn is_confirmed(&mut self, ahead: SignedDuration, at: Instant) -> bool {
        if !differ(ahead, self.ahead()) {
            self.candidate = None;
            return false;
        }
        let agrees = |it: &Candidate| !differ(ahead, it.ahead) && at - it.latest <= PAUSE_MAX;
        let before = self.candidate.take().filter(agrees);
        let mut candidate = before.unwrap_or(Candidate { ahead, answers: 0, since: at, latest: at });
        (candidate.answers, candidate.latest) = (candidate.answers + 1, at);
        let is_confirmed = candidate.answers >= AGREE && at - candidate.since >= AGREE_FOR;
        self.candidate = Some(candidate);
        is_confirmed
    }

    /// Logs a difference that was not logged, at most once a minute.
    fn log(&mut self, at: Instant) {
        let ahead = self.ahead();
        let logged = self.logged.map_or(SignedDuration::ZERO, |(logged, _)| logged);
        if !differ(ahead, logged) || self.logged.is_some_and(|(_, last)| at - last < LOG_EVERY) {
            return;
        }
        self.logged = Some((ahead, at));
        if ahead.is_zero() {
            info!("this VM's clock is like the metadata service's again");
            return;
        }
        let side = if ahead.is_negative() { "behind" } else { "ahead of" };
        warn!(
            difference_s = ahead.unsigned_abs().as_secs_f64(),
            "the metadata service's clock is {side} this VM's; events' times are read by the service's; \
             synchronise this VM's clock"
        );
    }
}

fn differ(one: SignedDuration, other: SignedDuration) -> bool {
    (one - other).abs() >= DIFFERS_FROM
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000;

    /// Notes differences in milliseconds, two each second. Returns those in use in seconds.
    fn used(shown: &[i64]) -> Vec<i64> {
        let (mut clocks, began) = (ClockDifference::default(), Instant::now());
        let answers = shown.iter().zip([0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]);
        let used = answers.map(|(ahead, second)| {
            clocks.note(SignedDuration::from_millis(*ahead), began + Duration::from_secs(second));
            clocks.ahead().as_secs()
        });
        used.collect()
    }

    #[test]
    fn the_first_difference_is_used_at_once() {
        assert_eq!(used(&[50_000]), [50]);
        assert_eq!(used(&[-50_000]), [-50]);
        assert_eq!(used(&[1_500, -1_500]), [0, 0], "too small a difference");
    }

    #[test]
    fn a_date_that_jumps_for_a_second_changes_nothing() {
        assert_eq!(used(&[0, 0, HOUR, HOUR, 0, 0, -HOUR, -HOUR, HOUR, HOUR, 0, 0]), [0; 12]);
    }

    #[test]
    fn a_new_difference_is_used_when_answers_agree_on_it() {
        assert_eq!(used(&[0, 0, HOUR, HOUR, HOUR, HOUR + 900, HOUR]), [0, 0, 0, 0, 0, 0, 3_600]);
        let back = [HOUR, HOUR, 0, 500, 0, 500, 0];
        assert_eq!(used(&back), [3_600, 3_600, 3_600, 3_600, 3_600, 3_600, 0]);
    }

    #[test]
    fn answers_that_are_far_apart_do_not_agree() {
        let (mut clocks, began) = (ClockDifference::default(), Instant::now());
        for (second, ahead) in [(0, 0), (1, 60), (12, 60), (23, 60)] {
            clocks.note(SignedDuration::from_secs(ahead), began + Duration::from_secs(second));
            assert!(clocks.ahead().is_zero(), "after {second} s");
        }
    }
}
