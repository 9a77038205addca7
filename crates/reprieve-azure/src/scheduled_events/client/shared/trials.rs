//! Finds out whether the process that polls is the only one that gets no answers: its own network may be broken.
//!
//! When nobody has heard an answer for [`TRY_AFTER`], the others send a single poll, one after the other. One that
//! is answered, while the one that polls still is not, claims the polls. If none is answered, the service is away,
//! and nothing changes.

use std::time::Duration;

use tokio::time::Instant;

use super::ask_lock::AskLock;

/// After this time without an answer another process tries whether it gets one.
const TRY_AFTER: Duration = Duration::from_secs(2);

/// The timeout of such a poll.
pub(crate) const TRY_WITHIN: Duration = Duration::from_secs(3);

/// How long after one of them the next one is sent at least: the service allows five requests a second, and the
/// process that polls sends three while it gets no answer.
const TRY_EVERY: Duration = Duration::from_secs(1);

/// How soon the same process tries again, up to half as much longer at random.
const SAME_AGAIN: Duration = Duration::from_secs(4);

/// After this time in which others tried all the time a process tries beside them: one may be stopped in its trial.
const BLOCKED_MAX: Duration = Duration::from_secs(15);

/// For how long nobody tries after a 429: that is an answer, and the service wants fewer requests.
const THROTTLED_FOR: Duration = Duration::from_secs(10);

/// How long the others leave the polls to the process that has claimed them.
const CLAIMED_FOR: Duration = Duration::from_millis(500);

/// What a process knows of the answers that it and the others get.
#[derive(Debug)]
pub(super) struct Trials {
    /// When an answer was last heard, whoever polled.
    answered_at: Instant,
    throttled_at: Option<Instant>,
    /// When this process may try next.
    next_at: Instant,
    /// The trial of this process, which keeps the others from theirs.
    present: Option<Trial>,
    /// Since when others have kept this process from its trial.
    blocked_since: Option<Instant>,
    /// The id of the last claim; `None` before the first look.
    claim: Option<u64>,
    /// When another process last claimed the polls.
    claimed_at: Option<Instant>,
}

#[derive(Debug)]
struct Trial {
    _lock: Option<AskLock>,
    began: Instant,
    has_ended: bool,
}

impl Trials {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            answered_at: now,
            throttled_at: None,
            next_at: now,
            present: None,
            blocked_since: None,
            claim: None,
            claimed_at: None,
        }
    }

    /// Notes that an answer was heard, or that this process could hear none.
    pub(super) fn heard(&mut self, now: Instant) {
        self.answered_at = now;
    }

    /// Notes that the service answered 429.
    pub(super) fn throttled(&mut self, now: Instant) {
        self.throttled_at = Some(now);
    }

    /// Lets the others try when this process's trial is over.
    pub(super) fn look(&mut self, now: Instant) {
        self.present.take_if(|trial| {
            let at_least = if trial.has_ended { TRY_EVERY } else { 2 * TRY_WITHIN };
            now - trial.began >= at_least
        });
    }

    /// Whether to try now, as far as this process knows.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.present.is_none()
            && now >= self.next_at
            && now - self.answered_at >= TRY_AFTER
            && self.throttled_at.is_none_or(|at| now - at >= THROTTLED_FOR);
        if !is_due {
            self.blocked_since = None;
        }
        is_due
    }

    /// Notes that another process tries. Returns whether to try beside it.
    pub(super) fn is_blocked_for_long(&mut self, now: Instant) -> bool {
        now - *self.blocked_since.get_or_insert(now) >= BLOCKED_MAX
    }

    /// Notes that this process tries. Without a lock, where none can be had.
    pub(super) fn began(&mut self, lock: Option<AskLock>, now: Instant) {
        self.present = Some(Trial { _lock: lock, began: now, has_ended: false });
        self.blocked_since = None;
        self.next_at = now + SAME_AGAIN.mul_f64(rand::random_range(1.0..1.5));
    }

    /// Notes that the trial has ended, and whether it was answered. Returns the id of the claim that this process is
    /// to make: if nobody has heard an answer since the trial began.
    pub(super) fn ended(&mut self, is_answered: bool) -> Option<u64> {
        let trial = self.present.as_mut()?;
        trial.has_ended = true;
        if !is_answered || self.answered_at >= trial.began {
            return None;
        }
        let id = rand::random::<u64>().max(1);
        self.claim = Some(id);
        Some(id)
    }

    /// Notes the id of the last claim in the directory. Returns whether it is a new one of another process.
    pub(super) fn on_claim(&mut self, id: u64, now: Instant) -> bool {
        if id == 0 {
            // There is none, or it could not be written.
            self.claim.get_or_insert(0);
            return false;
        }
        let is_new = self.claim.replace(id).is_some_and(|known| known != id);
        if is_new {
            self.claimed_at = Some(now);
        }
        is_new
    }

    /// Whether another process has just claimed the polls.
    pub(super) fn is_claimed(&self, now: Instant) -> bool {
        self.claimed_at.is_some_and(|at| now - at < CLAIMED_FOR)
    }
}
