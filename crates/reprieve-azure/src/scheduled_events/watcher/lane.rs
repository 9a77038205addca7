//! One lane: the polls in one api-version, and whether they are answered.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::Instant;
use tracing::{debug, info};

use super::log::{self, LogThrottle};
use crate::scheduled_events::client::{Failure, FailureKind};
use crate::scheduled_events::document::ApiVersion;

/// The timeout of a poll while an older one still waits: longer than the slowest answers that have
/// been seen (6 s), because an answer that is late each time must be heard as late as it is, no later.
/// One poll at a time may take longer, see [`PATIENCE`].
pub(super) const POLL_TIMEOUT: Duration = Duration::from_secs(10);

/// The timeout of the one most patient poll under way. A VM's first request may take two minutes,
/// and giving up earlier might restart the two minutes.
/// <https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events#enabling-and-disabling-scheduled-events>
const PATIENCE: Duration = Duration::from_secs(130);

/// How many polls may be under way: the patient one, one for each second of [`POLL_TIMEOUT`], and
/// one that is just timing out.
const IN_FLIGHT_MAX: usize = 12;

/// How old its last answer may be for a lane to count as answering.
const ANSWERS_WITHIN: Duration = Duration::from_secs(3);

/// How old its last answer may be for other lanes to rest: the longest interval of the polls, and some
/// delay.
const STEADY_WITHIN: Duration = Duration::from_millis(1_300);

/// How long a lane may fail before it rests, if another one answers.
const FAILS_LASTINGLY: Duration = Duration::from_secs(10);

/// For how long a 429 shows that the number of requests is what the service refuses, and not the version.
const THROTTLED_RECENTLY: Duration = Duration::from_mins(1);

/// For how long a refusal shows that the service looks at requests, and does not only count them.
const REFUSED_JUST_NOW: Duration = Duration::from_secs(3);

/// For how long a refusal of a version that has never answered is expected: the service may not
/// support it, and another version answers or is looked for.
const REFUSAL_EXPECTED: Duration = Duration::from_secs(5);

/// The part of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Polled each second. The version is a preview, so the documented one is enough where the service
    /// does not support it.
    Newest,
    /// Polled each second.
    Documented,
    /// Polled only while neither of those answers.
    Older,
}

/// The polls in one api-version.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(super) struct Lane {
    pub(super) version: ApiVersion,
    pub(super) role: Role,
    polls: Polls,
    began: Instant,
    polled_at: Option<Instant>,
    /// When this process last tried it while another one polled.
    tried_at: Option<Instant>,
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
    /// When the service last refused this version for another reason.
    refused_at: Option<Instant>,
    throttled_at: Option<Instant>,
    failures: LogThrottle,
    /// The last failure.
    error: String,
}

impl Lane {
    pub(super) fn new(version: ApiVersion, role: Role, began: Instant) -> Self {
        Self {
            version,
            role,
            polls: Polls::default(),
            began,
            polled_at: None,
            tried_at: None,
            answered_at: None,
            newest_sent: None,
            has_failed: false,
            is_resting: false,
            rest_logged: false,
            is_throttled: false,
            refused_at: None,
            throttled_at: None,
            failures: LogThrottle::default(),
            error: String::new(),
        }
    }

    /// Whether it is polled each second while all is well.
    pub(super) fn is_main(&self) -> bool {
        self.role != Role::Older
    }

    /// Whether the lane has had an answer lately.
    pub(super) fn answers(&self, now: Instant) -> bool {
        self.answered_at.is_some_and(|at| now.saturating_duration_since(at) < ANSWERS_WITHIN)
    }

    /// Until when others may rely on this lane: its next answer is due then. `None` when its last poll
    /// failed, and for an older version without an answer.
    pub(super) fn steady_until(&self) -> Option<Instant> {
        let first = self.is_main().then_some(self.began);
        self.answered_at.or(first).filter(|_| !self.has_failed).map(|at| at + STEADY_WITHIN)
    }

    /// Whether others may rely on this lane.
    pub(super) fn is_steady(&self, now: Instant) -> bool {
        self.steady_until().is_some_and(|until| now < until)
    }

    /// Whether the last failure was a 429, and no answer has come since.
    pub(super) const fn is_throttled(&self) -> bool {
        self.is_throttled
    }

    /// Whether it was not polled again after a 429.
    pub(super) fn is_yet_to_be_asked(&self) -> bool {
        self.is_throttled && self.polled_at <= self.throttled_at
    }

    /// Notes that this process did nothing for so long.
    pub(super) fn slept(&mut self, time: Duration) {
        self.answered_at = self.answered_at.map(|at| at + time);
    }

    /// Whether a poll got a 429 in the last minute, also if others were answered.
    pub(super) fn was_throttled(&self, now: Instant) -> bool {
        self.throttled_at.is_some_and(|at| now.saturating_duration_since(at) <= THROTTLED_RECENTLY)
    }

    /// Whether the service has just refused this version for another reason.
    pub(super) fn was_refused(&self, now: Instant) -> bool {
        !self.is_throttled
            && self.refused_at.is_some_and(|at| now.saturating_duration_since(at) <= REFUSED_JUST_NOW)
    }

    pub(super) const fn is_resting(&self) -> bool {
        self.is_resting
    }

    /// When it was answered last.
    pub(super) const fn answered_at(&self) -> Option<Instant> {
        self.answered_at
    }

    /// When this process last tried it while another one polled.
    pub(super) const fn tried_at(&self) -> Option<Instant> {
        self.tried_at
    }

    /// Notes that this process tries it while another one polls.
    pub(super) const fn tries(&mut self, now: Instant) {
        self.tried_at = Some(now);
    }

    /// When it was polled last.
    pub(super) const fn polled_at(&self) -> Option<Instant> {
        self.polled_at
    }

    /// Whether it was not polled for this long.
    pub(super) fn is_unpolled_for(&self, span: Duration, now: Instant) -> bool {
        self.polled_at.is_none_or(|at| now.saturating_duration_since(at) >= span)
    }

    /// Decides whether a lane that is polled each second rests: while it fails lastingly, or got a 429,
    /// and another lane is steady. Returns the decision.
    pub(super) fn rests(&mut self, now: Instant, another_is_steady: bool) -> bool {
        let silent = now.saturating_duration_since(self.answered_at.unwrap_or(self.began));
        let fails = self.is_throttled || silent >= FAILS_LASTINGLY;
        self.is_resting = fails && another_is_steady;
        if self.is_resting && !self.rest_logged {
            self.rest_logged = true;
            info!(
                version = %self.version,
                error = self.error,
                "this api-version of scheduled events fails; another one answers, and this one is tried every 30 s"
            );
        }
        self.is_resting
    }

    /// Returns the number and timeout of the next poll; `None` while the maximum is under way.
    pub(super) fn next_poll(&mut self, now: Instant) -> Option<(u64, Duration)> {
        let next = self.polls.next()?;
        (self.polled_at, self.is_resting) = (Some(now), false);
        Some(next)
    }

    /// Notes that poll `number` runs as `request`.
    pub(super) fn started(&mut self, number: u64, request: AbortHandle) {
        self.polls.started(number, request);
    }

    /// Notes that another process polled.
    pub(super) fn polled_by_another(&mut self, at: Instant) {
        self.polled_at = self.polled_at.max(Some(at));
    }

    /// Notes the answer to a request at `sent`, this process's poll `number` or another process's. Returns
    /// whether it counts.
    pub(super) fn answered(&mut self, number: Option<u64>, sent: Instant, at: Instant) -> bool {
        if self.newest_sent.is_some_and(|newest| sent < newest)
            || number.is_some_and(|number| !self.polls.counts(number))
        {
            debug!(number, "ignored an answer that came after a later request's");
            return false;
        }
        if self.answered_at.is_none() {
            info!(version = %self.version, "scheduled events are read in this api-version");
        }
        (self.newest_sent, self.has_failed) = (Some(sent), false);
        (self.answered_at, self.rest_logged, self.is_throttled) = (Some(at), false, false);
        log::recovery(&mut self.failures, self.version, at);
        true
    }

    /// Notes that a poll failed. Returns whether that counts as an error.
    pub(super) fn failed(&mut self, failure: &Failure, another_is_steady: bool, at: Instant) -> bool {
        let (version, error) = (self.version, &failure.error);
        (self.error, self.has_failed) = (error.to_string(), true);
        self.is_throttled = failure.kind == FailureKind::Throttled;
        match failure.kind {
            FailureKind::Throttled => self.throttled_at = Some(at),
            FailureKind::Refused | FailureKind::Server => self.refused_at = Some(at),
            _ => {}
        }
        let alive = at.saturating_duration_since(self.began);
        if self.answered_at.is_none() && failure.kind == FailureKind::TimedOut && alive < PATIENCE {
            debug!(%version, %error, "the first answer is not there yet; polling continues");
            return false;
        }
        let is_optional = self.role != Role::Documented;
        let is_expected =
            is_optional || another_is_steady || self.answered_at.is_none() && alive < REFUSAL_EXPECTED;
        if self.role == Role::Older || failure.may_mean_the_version() && is_expected {
            debug!(%version, %error, "this api-version was refused or failed; polling continues");
            return false;
        }
        if is_optional {
            debug!(%version, %error, "failed to poll scheduled events in this api-version; polling continues");
        } else {
            log::failure(&mut self.failures, at, error, "failed to poll scheduled events; polling continues");
        }
        true
    }
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

    #[test]
    fn an_answer_to_an_earlier_request_than_another_process_had_answered_does_not_count() {
        let now = Instant::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        let mut lane = Lane::new(ApiVersion::NEWEST, Role::Newest, now);
        for _ in 0..2 {
            lane.next_poll(now);
        }
        assert!(lane.answered(None, at(6), at(7)));
        assert!(!lane.answered(Some(1), at(2), at(8)), "this process was stopped");
        assert!(lane.answered(None, at(7), at(8)));
        assert!(lane.answered(Some(2), at(7), at(8)));
        assert!(!lane.answered(None, at(6), at(9)));
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
