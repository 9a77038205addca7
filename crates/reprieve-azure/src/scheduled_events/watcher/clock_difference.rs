//! Decides how far the service's clock is ahead of this machine's, by answers that agree.
//!
//! Three clocks are compared: the service's, which `Date` shows; this machine's wall clock, which somebody may
//! set; and the timers' clock, which nobody sets, and which stops while the VM is frozen.

use std::time::{Duration, SystemTime};

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
    /// The timers' clock and the wall clock at the first answer.
    origin: Option<(Instant, SystemTime)>,
    /// How far the wall clock has advanced more than the timers' clock, at the last answer.
    wall: SignedDuration,
    /// The same of the service's clock, as it is believed.
    service: SignedDuration,
    has_dates: bool,
    candidate: Option<Candidate>,
    /// The difference that was logged last, and when.
    logged: Option<(SignedDuration, Instant)>,
}

/// Another advance of the service's clock, which is not believed yet.
#[derive(Debug)]
struct Candidate {
    service: SignedDuration,
    answers: u32,
    since: Instant,
    latest: Instant,
}

impl ClockDifference {
    /// The difference in use: zero if it is below two seconds.
    pub(super) fn ahead(&self) -> SignedDuration {
        let ahead = self.service - self.wall;
        if ahead.abs() < DIFFERS_FROM { SignedDuration::ZERO } else { ahead }
    }

    /// Notes an answer, received at `at` on the timers' clock and at `wall` on this machine's. It shows how far
    /// the service's clock is `ahead`, if it has a `Date`.
    ///
    /// - If the wall clock has jumped and `Date` has not, somebody has set the wall clock: no event is sooner.
    /// - If both have, the VM was frozen: what comes is sooner by so much.
    /// - If `Date` has, answers must agree on it.
    /// - Without `Date`, the wall clock is right.
    pub(super) fn note(&mut self, at: Instant, wall: SystemTime, ahead: Option<SignedDuration>) {
        let (first_at, first_wall) = *self.origin.get_or_insert((at, wall));
        let timers = SignedDuration::try_from(at - first_at).unwrap_or(SignedDuration::MAX);
        let wall = between(first_wall, wall).saturating_sub(timers);
        let jump = wall - std::mem::replace(&mut self.wall, wall);
        let Some(shown) = ahead.map(|ahead| wall.saturating_add(ahead)) else {
            self.service = self.service.saturating_add(jump);
            self.log(at);
            return;
        };
        if !std::mem::replace(&mut self.has_dates, true) {
            // So far the wall clock was believed. Until answers agree, of the two the one by which events are
            // later: what is approved too early can't be undone.
            self.service = wall.min(shown);
            self.candidate = None;
        }
        let was_right = (self.service - (wall - jump)).abs() < DIFFERS_FROM;
        let thawed = self.service.saturating_add(jump);
        let to_shown = |service: SignedDuration| (shown - service).abs();
        let nearer = if to_shown(thawed) < to_shown(self.service) { thawed } else { self.service };
        if was_right && (shown - wall).abs() < DIFFERS_FROM {
            // The wall clock was right and is: it is more exact than `Date`.
            (self.service, self.candidate) = (wall, None);
        } else if !differ(shown, nearer) {
            (self.service, self.candidate) = (nearer, None);
        } else if self.is_confirmed(shown, at) {
            (self.service, self.candidate) = (shown, None);
        }
        self.log(at);
    }

    /// Whether enough answers have shown this.
    fn is_confirmed(&mut self, shown: SignedDuration, at: Instant) -> bool {
        let agrees = |it: &Candidate| !differ(shown, it.service) && at - it.latest <= PAUSE_MAX;
        let before = self.candidate.take().filter(agrees);
        let mut candidate = before.unwrap_or(Candidate { service: shown, answers: 0, since: at, latest: at });
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

fn between(from: SystemTime, to: SystemTime) -> SignedDuration {
    let signed = |duration| SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX);
    to.duration_since(from).map_or_else(|before| -signed(before.duration()), signed)
}

fn differ(one: SignedDuration, other: SignedDuration) -> bool {
    (one - other).abs() >= DIFFERS_FROM
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000;

    /// Notes answers: the second of the timers' clock, how far the wall clock is set, and the difference that
    /// `Date` shows, in milliseconds. Returns how far the service's clock has advanced more than the timers', as
    /// events are timed, in seconds.
    fn believed(answers: &[(u64, i64, Option<i64>)]) -> Vec<i64> {
        let (mut clocks, began) = (ClockDifference::default(), Instant::now());
        let epoch = SystemTime::UNIX_EPOCH + Duration::from_hours(24 * 365 * 50);
        let believed = answers.iter().map(|&(second, set, ahead)| {
            let timers = Duration::from_secs(second);
            let by = Duration::from_millis(set.unsigned_abs());
            let wall = if set < 0 { epoch + timers - by } else { epoch + timers + by };
            clocks.note(began + timers, wall, ahead.map(SignedDuration::from_millis));
            (SignedDuration::from_millis(set) + clocks.ahead()).as_secs()
        });
        believed.collect()
    }

    /// The same for a wall clock that nobody sets, with two answers each second.
    fn used(shown: &[i64]) -> Vec<i64> {
        let answers = shown.iter().zip([0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]);
        believed(&answers.map(|(ahead, second)| (second, 0, Some(*ahead))).collect::<Vec<_>>())
    }

    #[test]
    fn the_first_difference_makes_no_event_sooner_until_answers_agree() {
        assert_eq!(used(&[50_000, 50_000, 50_000, 50_000, 50_000]), [0, 0, 0, 0, 50]);
        assert_eq!(used(&[-50_000]), [-50]);
        assert_eq!(used(&[1_500, -1_500]), [0, 0], "too small a difference");
        assert_eq!(used(&[HOUR, 0, 0, 0, 0, 0]), [0; 6], "wrong once");
        assert_eq!(used(&[-HOUR, 0, 0, 0, 0, 0]), [-3_600, -3_600, -3_600, -3_600, 0, 0]);
    }

    #[test]
    fn a_date_that_jumps_for_a_second_changes_nothing() {
        assert_eq!(used(&[0, 0, HOUR, HOUR, 0, 0, -HOUR, -HOUR, HOUR, HOUR, 0, 0]), [0; 12]);
    }

    #[test]
    fn a_new_difference_is_used_when_answers_agree_on_it() {
        assert_eq!(used(&[0, 0, HOUR, HOUR, HOUR, HOUR + 900, HOUR]), [0, 0, 0, 0, 0, 0, 3_600]);
        let back = [-HOUR, -HOUR, 0, 500, 0, 500, 0];
        assert_eq!(used(&back), [-3_600, -3_600, -3_600, -3_600, -3_600, -3_600, 0]);
    }

    #[test]
    fn answers_that_are_far_apart_do_not_agree() {
        let answers = [(0, 0), (1, 60), (12, 60), (23, 60)];
        assert_eq!(believed(&answers.map(|(second, ahead)| (second, 0, Some(ahead * 1_000)))), [0; 4]);
    }

    #[test]
    fn a_wall_clock_that_somebody_sets_moves_no_event() {
        for by in [1_200_000, 20_000, 2_500, -2_500, -20_000, -1_200_000] {
            // It was wrong, and is corrected.
            let shown = Some(by);
            let mut answers = vec![
                (0, 0, shown),
                (1, 0, shown),
                (2, 0, shown),
                (3, 0, shown),
                (4, by, Some(0)),
                (5, by, Some(400)),
            ];
            let [.., before, after, later] = believed(&answers)[..] else { panic!("six answers") };
            assert_eq!((before, after, later), (by / 1_000, by / 1_000, by / 1_000), "{by}");
            // It was right, and is set wrong.
            answers = vec![
                (0, 0, Some(0)),
                (1, 0, Some(0)),
                (2, by, Some(-by)),
                (3, by, Some(-by)),
                (4, by, Some(-by)),
            ];
            assert!(believed(&answers).iter().all(|it| it.abs() < 2), "{by}: {:?}", believed(&answers));
        }
    }

    #[test]
    fn a_freeze_is_believed_at_once_if_both_clocks_show_it() {
        assert_eq!(believed(&[(0, 0, Some(0)), (1, 30_000, Some(0)), (2, 30_000, Some(0))]), [0, 30, 30]);
        // The wall clock is behind, and stays so.
        let behind = Some(-20_000);
        assert_eq!(believed(&[(0, 0, behind), (1, 0, behind), (2, 30_000, behind)]), [-20, -20, 10]);
        // The wall clock was frozen too.
        let late = Some(30_000);
        assert_eq!(believed(&[(0, 0, Some(0)), (1, 0, late), (2, 0, late), (3, 0, late)]), [0, 0, 0, 30]);
    }

    #[test]
    fn without_a_date_the_wall_clock_is_believed() {
        assert_eq!(believed(&[(0, 0, None), (1, 30_000, None), (2, -5_000, None)]), [0, 30, -5]);
        // The service has stopped to send it.
        let behind = Some(-20_000);
        assert_eq!(believed(&[(0, 0, behind), (1, 0, None), (2, 30_000, None)]), [-20, -20, 10]);
    }
}
