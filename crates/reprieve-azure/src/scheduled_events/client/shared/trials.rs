//! Finds out whether the process that polls is the only one that gets no answers: its own network may be broken.
//!
//! When nobody has heard an answer for [`TRY_AFTER`], the others send single polls, one a second, by the process that
//! has not tried for longest, in the version that was not tried for longest. A readable answer is written for all, and
//! its process claims the polls. If none is answered, the service is away, and nothing changes.

use std::time::Duration;

use reprieve_core::clock::unix_millis;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::LOOK_EVERY;
use crate::scheduled_events::document::ApiVersion;

/// After this time without an answer the others try whether they get one.
pub(super) const TRY_AFTER: Duration = Duration::from_secs(2);

/// How long after one of them the next one is sent, whether or not the first has ended: the service allows five
/// requests a second, and the process that polls sends three while it gets no answer.
/// With what looks and turns add, that is one a second.
const TRY_EVERY: Duration = Duration::from_millis(900);

/// The same while the service answers, but not with evictions: after a 429 it wants fewer requests, and the process
/// that polls sends four while only versions answer that list none. A Preempt leaves 30 s.
const TRY_AFTER_OTHERWISE: Duration = Duration::from_secs(10);
const TRY_EVERY_OTHERWISE: Duration = Duration::from_secs(5);

/// How long ago such an answer may be: longer than the longest pause after a 429.
const OTHERWISE_FOR: Duration = Duration::from_secs(10);

/// How much later a process tries that has tried in this silence, because others may not have; and again for each
/// other one that has not tried for longer, because it may be gone.
const LATER: Duration = LOOK_EVERY;

/// How long the others leave the polls to the process that has claimed them: it takes a lock that they give up for
/// its own before they find that those that poll are silent.
const CLAIMED_FOR: Duration = Duration::from_secs(2);

/// What a process knows of the answers that it and the others get.
#[derive(Debug)]
pub(super) struct Trials {
    /// The id of this process.
    id: u64,
    /// When an answer was last heard that would list an eviction, whoever polled.
    answered_at: Instant,
    /// When there was last another answer since: a 429, or a document in a version that lists no evictions.
    answered_otherwise_at: Option<Instant>,
    /// When this process tried last.
    tried_at: Option<Instant>,
    /// The id of the last claim; `None` before the first look.
    claim: Option<u64>,
    /// When it was made, and whether by this process.
    claimed_at: Option<(Instant, bool)>,
}

impl Trials {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            id: rand::random(),
            answered_at: now,
            answered_otherwise_at: None,
            tried_at: None,
            claim: None,
            claimed_at: None,
        }
    }

    /// The id of this process: unique also among containers.
    pub(super) const fn id(&self) -> u64 {
        self.id
    }

    /// Notes that an answer was heard, or that this process could hear none.
    pub(super) fn heard(&mut self, now: Instant) {
        (self.answered_at, self.answered_otherwise_at) = (now, None);
    }

    /// Notes an answer that would list no eviction.
    pub(super) fn answered_otherwise(&mut self, now: Instant) {
        self.answered_otherwise_at = Some(now);
    }

    /// Whether there was no answer for so long that one of the others is to try.
    pub(super) fn is_silent(&self, now: Instant) -> bool {
        now - self.answered_at >= self.pace(now).0
    }

    /// Returns what was tried before in this silence, if this process is to try now. `last` is the last trial.
    pub(super) fn takes_turn(&mut self, last: Option<Turn>, now: Instant) -> Option<Turn> {
        let silence = now - self.answered_at;
        let mut last = last.filter(|last| last.age().is_some_and(|age| age < silence)).unwrap_or_default();
        let earlier = last.processes.iter().position(|id| *id == self.id);
        let later =
            earlier.map_or(Duration::ZERO, |earlier| LATER * u32::try_from(earlier + 1).unwrap_or(u32::MAX));
        // Where nothing can be written, this process's own trial may be another one.
        let ago = last.age().into_iter().chain(self.tried_at.map(|at| now - at)).min();
        if ago.is_some_and(|ago| ago < self.pace(now).1 + later) {
            return None;
        }
        self.tried_at = Some(now);
        last.processes.drain(..earlier.map_or(0, |earlier| earlier + 1));
        last.processes.push(self.id);
        Some(last)
    }

    /// The silence before the first trial, and the time between two.
    fn pace(&self, now: Instant) -> (Duration, Duration) {
        match self.answered_otherwise_at {
            Some(at) if now - at < OTHERWISE_FOR => (TRY_AFTER_OTHERWISE, TRY_EVERY_OTHERWISE),
            _ => (TRY_AFTER, TRY_EVERY),
        }
    }

    /// Returns the id of the claim that this process is to make because a poll of its own was answered: if it was
    /// sent in a silence, and nobody has heard an answer since.
    pub(super) fn claims(&mut self, sent: Instant, now: Instant) -> Option<u64> {
        if sent.saturating_duration_since(self.answered_at) < TRY_AFTER {
            return None;
        }
        let id = rand::random::<u64>().max(1);
        (self.claim, self.claimed_at) = (Some(id), Some((now, true)));
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
            self.claimed_at = Some((now, false));
        }
        is_new
    }

    /// Whether another process has just claimed the polls.
    pub(super) fn is_claimed(&self, now: Instant) -> bool {
        self.claimed_at.is_some_and(|(at, is_own)| !is_own && now - at < CLAIMED_FOR)
    }

    /// Notes that the process has died that has just claimed the polls.
    pub(super) fn claimant_died(&mut self) {
        self.claimed_at = None;
    }

    /// Whether this process has just claimed the polls.
    pub(super) fn has_claimed(&self, now: Instant) -> bool {
        self.claimed_at.is_some_and(|(at, is_own)| is_own && now - at < CLAIMED_FOR)
    }
}

/// The last trial, as its process writes it for the others.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Turn {
    /// When it began, in milliseconds since the Unix epoch.
    at_ms: i64,
    /// The versions that were tried in this silence, the last one at the end.
    versions: Vec<String>,
    /// The processes that tried, in the same order.
    processes: Vec<u64>,
}

impl Turn {
    /// Without those that this Reprieve does not know.
    pub(super) fn versions(&self) -> Vec<ApiVersion> {
        self.versions.iter().filter_map(|version| version.parse().ok()).collect()
    }

    /// Begins now, with this version.
    pub(super) fn begin(&mut self, version: ApiVersion) {
        let version = version.to_string();
        self.versions.retain(|it| *it != version);
        self.versions.push(version);
        self.at_ms = unix_millis();
    }

    /// The time since it began; `None` if that seems to be in the future, because the clock was set.
    fn age(&self) -> Option<Duration> {
        u64::try_from(unix_millis().saturating_sub(self.at_ms)).ok().map(Duration::from_millis)
    }
}
