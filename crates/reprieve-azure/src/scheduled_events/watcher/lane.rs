//! The polls of one lane: which are under way, when the next is due, and whether they fail.
//!
//! A watch has two lanes side by side, because either api-version may fail alone: the newest one,
//! and the newest documented one or what the service supports instead.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::Instant;
use tracing::{debug, info};

use super::log::{self, LogThrottle};
use super::negotiation::{Negotiation, Refusal};
use crate::scheduled_events::client::{Failure, FailureKind};
use crate::scheduled_events::document::ApiVersion;

/// The timeout of a poll while an older one still waits. Slow answers of up to 6 s have been seen;
/// one poll at a time may take longer, see [`PATIENCE`].
pub(super) const POLL_TIMEOUT: Duration = Duration::from_secs(3);

/// The timeout of the one most patient poll under way. A VM's first request may take two minutes,
/// and giving up earlier might restart the two minutes.
/// <https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events#enabling-and-disabling-scheduled-events>
const PATIENCE: Duration = Duration::from_secs(130);

/// How many polls may be under way: the patient one, one for each second of [`POLL_TIMEOUT`], and
/// one that is just timing out.
const IN_FLIGHT_MAX: usize = 5;

/// How old its last answer may be for a lane to count as answering.
const ANSWERS_WITHIN: Duration = Duration::from_secs(3);

/// How old its last answer may be for another lane to rest: the interval of the polls, and some delay.
const STEADY_WITHIN: Duration = Duration::from_millis(1_200);

/// How long a lane may fail before it rests, if the other one answers.
const FAILS_LASTINGLY: Duration = Duration::from_secs(10);

/// The interval between the polls of a lane that rests.
const REST: Duration = Duration::from_secs(30);

/// The polls of one lane.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(super) struct Lane {
    pub(super) negotiation: Negotiation,
    pub(super) is_probing: bool,
    /// The other lane is enough where the service does not support this one's version.
    is_optional: bool,
    polls: Polls,
    began: Instant,
    polled_at: Option<Instant>,
    answered_at: Option<Instant>,
    /// The latest request that was answered.
    newest_sent: Option<Instant>,
    /// A poll has failed since the last answer.
    has_failed: bool,
    is_resting: bool,
    /// That it rests was logged since its last answer.
    rest_logged: bool,
    /// The last failure was a 429: the processes of this VM send too many requests.
    is_throttled: bool,
    failures: LogThrottle,
    /// The last failure.
    error: String,
}

impl Lane {
    fn new(negotiation: Negotiation, is_optional: bool, began: Instant) -> Self {
        Self {
            negotiation,
            is_probing: false,
            is_optional,
            polls: Polls::default(),
            began,
            polled_at: None,
            answered_at: None,
            newest_sent: None,
            has_failed: false,
            is_resting: false,
            rest_logged: false,
            is_throttled: false,
            failures: LogThrottle::default(),
            error: String::new(),
        }
    }

    /// Returns the lanes of a watch: one if the version is pinned.
    pub(super) fn all(pinned: Option<ApiVersion>, now: Instant) -> Vec<Self> {
        match pinned {
            Some(version) => vec![Self::new(Negotiation::pinned(version, now), false, now)],
            None => vec![
                Self::new(Negotiation::pinned(ApiVersion::NEWEST, now), true, now),
                Self::new(Negotiation::from(ApiVersion::DOCUMENTED, now), false, now),
            ],
        }
    }

    /// The version of the next poll.
    pub(super) const fn version(&self) -> ApiVersion {
        self.negotiation.version()
    }

    /// Whether the lane has had an answer lately.
    pub(super) fn answers(&self, now: Instant) -> bool {
        self.answered_at.is_some_and(|at| now.saturating_duration_since(at) < ANSWERS_WITHIN)
    }

    /// Until when another lane may rest: this one's next answer is due then. `None` when its last poll
    /// failed.
    pub(super) fn steady_until(&self) -> Option<Instant> {
        self.answered_at.filter(|_| !self.has_failed).map(|at| at + STEADY_WITHIN)
    }

    /// Whether another lane may rest because of this one.
    pub(super) fn state(&self, now: Instant) -> LaneState {
        if self.steady_until().is_some_and(|until| now < until) {
            LaneState::Steady
        } else if self.is_throttled && self.answers(now) {
            LaneState::Throttled
        } else {
            LaneState::Fails
        }
    }

    /// Whether a poll is due. While it fails lastingly and another lane is steady, it rests; so does
    /// the optional lane after a 429.
    pub(super) fn is_due(&mut self, now: Instant, another: LaneState) -> bool {
        let silent = now.saturating_duration_since(self.answered_at.unwrap_or(self.began));
        let yields = self.is_optional && self.is_throttled;
        let rests = match another {
            LaneState::Steady => yields || silent >= FAILS_LASTINGLY,
            LaneState::Throttled => yields,
            LaneState::Fails => false,
        };
        if rests && !self.rest_logged {
            self.rest_logged = true;
            info!(
                version = %self.version(),
                error = self.error,
                "this api-version of scheduled events fails; another one answers, and this one is tried every 30 s"
            );
        }
        self.is_resting = rests;
        !rests || self.polled_at.is_none_or(|at| now.saturating_duration_since(at) >= REST)
    }

    pub(super) const fn is_resting(&self) -> bool {
        self.is_resting
    }

    /// Returns the number and timeout of the next poll; `None` while the maximum is under way.
    pub(super) fn next_poll(&mut self, now: Instant) -> Option<(u64, Duration)> {
        let next = self.polls.next()?;
        self.polled_at = Some(now);
        Some(next)
    }

    /// Notes that poll `number` runs as `request`.
    pub(super) fn started(&mut self, number: u64, request: AbortHandle) {
        self.polls.started(number, request);
    }

    /// Notes the answer to poll `number`, which was requested at `sent`: before the poll, if another
    /// process requested it. Returns whether it counts.
    pub(super) fn answered(&mut self, number: u64, sent: Instant, at: Instant) -> bool {
        if self.newest_sent.is_some_and(|newest| sent < newest) || !self.polls.counts(number) {
            debug!(number, "ignored an answer that came after a later request's");
            return false;
        }
        (self.newest_sent, self.has_failed) = (Some(sent), false);
        (self.answered_at, self.rest_logged, self.is_throttled) = (Some(at), false, false);
        log::recovery(&mut self.failures, self.negotiation.version(), at);
        true
    }

    /// Notes that a poll failed. Returns the consequence.
    pub(super) fn failed(&mut self, version: ApiVersion, sent: Instant, failure: &Failure) -> Failed {
        let (at, error) = (Instant::now(), &failure.error);
        (self.error, self.has_failed) = (error.to_string(), true);
        self.is_throttled = failure.kind == FailureKind::Throttled;
        let is_first = self.answered_at.is_none() && at.saturating_duration_since(self.began) < PATIENCE;
        if is_first && failure.kind == FailureKind::TimedOut {
            debug!(%version, %error, "the first answer is not there yet; polling continues");
            return Failed::Expected;
        }
        if self.is_optional {
            debug!(%version, %error, "failed to poll scheduled events in this api-version; polling continues");
            return if failure.may_mean_the_version() { Failed::Expected } else { Failed::Counts };
        }
        if failure.may_mean_the_version() && self.negotiation.refused(version, sent, at) == Refusal::Searched
        {
            debug!(%version, %error, "this api-version was refused; an older one is tried");
            return if version > self.version() { Failed::TryOlder } else { Failed::Expected };
        }
        log::failure(&mut self.failures, at, error, "failed to poll scheduled events; polling continues");
        Failed::Counts
    }
}

/// Whether another lane may rest because of this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LaneState {
    /// Its last poll failed, or its answer is overdue.
    Fails,
    /// Its last poll got a 429, but it had an answer just before. More requests would make it worse.
    Throttled,
    /// It answers each second.
    Steady,
}

/// The consequence of a failed poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failed {
    /// An older version is to be tried.
    TryOlder,
    /// Nothing: the other lane is enough, or the lane searches or starts slowly.
    Expected,
    /// It counts as an error.
    Counts,
}

/// The polls under way, in the order in which they were sent.
///
/// A slow answer must not delay the next poll, so polls overlap, and their answers may arrive out
/// of order. An answer counts only if its request is later than any answered before. It makes all
/// earlier requests obsolete.
#[derive(Debug, Default)]
struct Polls {
    sent: u64,
    newest_answered: u64,
    under_way: BTreeMap<u64, AbortHandle>,
    patient: u64,
}

impl Polls {
    /// Returns the number and timeout of the next poll; `None` while the maximum is under way.
    fn next(&mut self) -> Option<(u64, Duration)> {
        self.under_way.retain(|_, request| !request.is_finished());
        if self.under_way.len() >= IN_FLIGHT_MAX {
            return None;
        }
        self.sent += 1;
        if self.under_way.contains_key(&self.patient) {
            Some((self.sent, POLL_TIMEOUT))
        } else {
            self.patient = self.sent;
            Some((self.sent, PATIENCE))
        }
    }

    /// Notes that poll `number` runs as `request`.
    fn started(&mut self, number: u64, request: AbortHandle) {
        self.under_way.insert(number, request);
    }

    /// Returns whether the answer to poll `number` counts. If it does, aborts earlier polls.
    fn counts(&mut self, number: u64) -> bool {
        if number <= self.newest_answered {
            return false;
        }
        self.newest_answered = number;
        let later = self.under_way.split_off(&number);
        for (_, request) in std::mem::replace(&mut self.under_way, later) {
            request.abort();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use reprieve_core::{Error, ErrorKind};

    use super::*;

    /// Starts a poll that lasts until it is aborted; returns its limit.
    fn start(polls: &mut Polls) -> Option<Duration> {
        let (number, limit) = polls.next()?;
        polls.started(number, tokio::spawn(std::future::pending::<()>()).abort_handle());
        Some(limit)
    }

    #[tokio::test(start_paused = true)]
    async fn one_poll_is_patient_and_the_number_under_way_is_bounded() {
        let mut polls = Polls::default();
        assert_eq!(start(&mut polls), Some(PATIENCE));
        for _ in 1..IN_FLIGHT_MAX {
            assert_eq!(start(&mut polls), Some(POLL_TIMEOUT));
        }
        assert_eq!(start(&mut polls), None);
        assert_eq!(polls.sent, IN_FLIGHT_MAX as u64);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_makes_earlier_polls_pointless_and_leaves_later_ones() {
        let mut polls = Polls::default();
        for _ in 0..3 {
            start(&mut polls);
        }
        let earlier = polls.under_way[&1].clone();
        assert!(polls.counts(2));
        tokio::task::yield_now().await;
        assert!(earlier.is_finished());
        assert!(!polls.counts(1), "an earlier request's answer is no news");
        assert!(!polls.counts(2));
        assert_eq!(polls.under_way.keys().copied().collect::<Vec<_>>(), [2, 3]);
        assert!(polls.counts(3));
    }

    /// Asks a lane each second for five minutes while it fails; another lane fails in this second.
    /// Returns the seconds of the polls.
    fn polled(fails: impl Fn(u64) -> bool) -> Vec<u64> {
        let began = Instant::now();
        let at = |second| began + Duration::from_secs(second);
        let failure = Failure::new(FailureKind::Server, Error::new(ErrorKind::Unavailable, "ask", "no"));
        let mut lanes = Lane::all(None, began);
        let (failing, other) = lanes.split_at_mut(1);
        let (failing, other) = (&mut failing[0], &mut other[0]);
        let mut polled = Vec::new();
        for second in 0..300 {
            if failing.is_due(at(second), other.state(at(second))) {
                let version = failing.version();
                failing.next_poll(at(second));
                let _ = failing.failed(version, at(second), &failure);
                polled.push(second);
            }
            if fails(second) {
                let _ = other.failed(other.version(), at(second), &failure);
            } else {
                other.answered(second + 1, at(second), at(second));
            }
        }
        polled
    }

    #[test]
    fn a_lane_that_fails_is_asked_every_30_s_while_the_other_answers() {
        let mut expected: Vec<u64> = (0..10).collect();
        expected.extend((39..300).step_by(30));
        assert_eq!(polled(|_| false), expected);
    }

    #[test]
    fn the_other_lanes_first_failure_ends_the_rest_until_it_answers() {
        let polled = polled(|second| (100..104).contains(&second));
        let (during, after): (Vec<u64>, Vec<u64>) =
            polled.into_iter().filter(|second| *second > 99).partition(|second| *second < 105);
        assert_eq!(during, [101, 102, 103, 104]);
        assert_eq!(after, [134, 164, 194, 224, 254, 284]);
    }

    #[test]
    fn an_answer_to_an_earlier_request_of_another_process_does_not_count() {
        let now = Instant::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        let mut lane = Lane::all(None, now).remove(0);
        for _ in 0..4 {
            lane.next_poll(now);
        }
        assert!(lane.answered(1, at(6), at(7)));
        assert!(!lane.answered(3, at(2), at(8)), "the other process was stopped");
        assert!(lane.answered(2, at(7), at(8)), "which aborts no other poll");
        assert!(lane.answered(4, at(7), at(8)));
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_poll_is_patient_when_the_patient_one_has_ended() {
        let mut polls = Polls::default();
        start(&mut polls);
        start(&mut polls);
        polls.under_way[&1].abort();
        tokio::task::yield_now().await;
        assert_eq!(start(&mut polls), Some(PATIENCE));
        assert_eq!(start(&mut polls), Some(POLL_TIMEOUT));
    }
}
