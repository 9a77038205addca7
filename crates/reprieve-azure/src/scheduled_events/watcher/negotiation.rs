//! Chooses the api-version of a lane of polls: the newest for which the service returns a document.

use std::time::Duration;

use tokio::time::Instant;

use crate::scheduled_events::client::PROBE_EVERY;
use crate::scheduled_events::document::{ApiVersion, EventType};

/// How soon newer versions are tried again after an older one was accepted: the refusal may have
/// been temporary, and an old version leaves out later types of events. A version that leaves out
/// evictions is probed at once.
const PROBE_SOON: Duration = Duration::from_secs(10);

/// How soon newer versions are tried again after an inconclusive probe, such as a 429.
const PROBE_AGAIN: Duration = Duration::from_mins(1);

/// The version in use, and the version to try next.
///
/// ```text
///            refused: the next older            refused: all versions are probed
///              ┌───┐                                ┌────────────┐
///              │   ▼          a document            │            ▼
///   start ──► Searching ─────────────────────► Settled ◄────── Failing ◄─┐
///                 │                                  a document      │   │ refused
///                 │ the oldest is refused too: the newest is kept    └───┘
///                 └────────────────────────────────────────────────► Failing
/// ```
///
/// Polls use the version in use. Probes are requests besides the polls, and no poll waits for them.
/// A version that has worked is replaced by an older one only when a probe of that one was answered
/// and a poll sent after the answer is refused again. A cause that refuses all versions for a while
/// (a proxy, a service that starts) must not lead to an old version: it lacks later types, so their
/// events would seem withdrawn. Versions that were refused in such a while are tried again soon.
#[derive(Debug)]
pub(super) struct Negotiation {
    pinned: bool,
    /// The newest version that is tried.
    newest: ApiVersion,
    version: ApiVersion,
    stage: Stage,
    /// When newer versions are probed next, while settled on an older one.
    probe_at: Instant,
    /// The version to probe next; `None` while no probing is due.
    probe: Option<ApiVersion>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// No version has been accepted yet, and not all have been refused.
    Searching,
    /// The version in use works.
    Settled,
    /// The version in use is refused.
    Failing {
        /// Whether it has ever worked.
        worked: bool,
        /// The newest older version that was accepted meanwhile, and the time of its last answer.
        instead: Option<(ApiVersion, Instant)>,
    },
}

/// The effect of a refused poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(super) enum Refusal {
    /// Part of the search: the next poll uses another version.
    Searched,
    /// Counts as an error, like any other failure.
    Counts,
}

impl Negotiation {
    /// Uses this version only.
    pub(super) fn pinned(version: ApiVersion, now: Instant) -> Self {
        Self { pinned: true, ..Self::from(version, now) }
    }

    /// Begins with this version, and never uses a newer one.
    pub(super) fn from(newest: ApiVersion, now: Instant) -> Self {
        Self { pinned: false, newest, version: newest, stage: Stage::Searching, probe_at: now, probe: None }
    }

    /// The version in use.
    pub(super) const fn version(&self) -> ApiVersion {
        self.version
    }

    /// Notes that a request in `version` returned a document. Returns whether this changed the
    /// version in use.
    pub(super) fn accepted(&mut self, version: ApiVersion, now: Instant) -> bool {
        if self.pinned {
            return false;
        }
        match &mut self.stage {
            // A poll in a version that was replaced meanwhile, or a probe of an older version.
            Stage::Settled if version < self.version => false,
            Stage::Failing { worked: true, instead } if version < self.version => {
                let best = instead.map_or(version, |(other, _)| other.max(version));
                *instead = Some((best, now));
                false
            }
            Stage::Searching | Stage::Settled | Stage::Failing { .. } => {
                let first = self.stage == Stage::Searching;
                let other = version != self.version;
                // A probe under way continues while the version in use works.
                if self.stage != Stage::Settled || other {
                    self.settle(version, now);
                }
                first || other
            }
        }
    }

    fn settle(&mut self, version: ApiVersion, now: Instant) {
        (self.version, self.stage, self.probe) = (version, Stage::Settled, None);
        let hides_evictions = !version.knows(&EventType::Preempt);
        self.probe_at = if hides_evictions { now } else { now + PROBE_SOON };
    }

    /// Notes that a poll in `version`, sent at `sent`, was refused with a status that may mean the
    /// version.
    pub(super) fn refused(&mut self, version: ApiVersion, sent: Instant, now: Instant) -> Refusal {
        if self.pinned {
            return Refusal::Counts;
        }
        if version != self.version {
            // The poll was sent before the version in use changed.
            return Refusal::Searched;
        }
        match self.stage {
            Stage::Searching => {
                if let Some(older) = version.older() {
                    self.version = older;
                    return Refusal::Searched;
                }
                self.version = self.newest;
                self.fails(false);
            }
            Stage::Settled => self.fails(true),
            // A poll sent before that answer is older evidence: until then all versions may have
            // been refused.
            Stage::Failing { instead: Some((instead, answered)), .. } if sent > answered => {
                self.settle(instead, now);
            }
            Stage::Failing { .. } => {}
        }
        Refusal::Counts
    }

    fn fails(&mut self, worked: bool) {
        self.stage = Stage::Failing { worked, instead: None };
        self.probe = Some(self.newest);
    }

    /// The version to probe now, if any.
    pub(super) fn next_probe(&mut self, now: Instant) -> Option<ApiVersion> {
        if self.pinned {
            return None;
        }
        match self.stage {
            Stage::Searching => None,
            // Probes one version after the other, and starts over after the oldest.
            Stage::Failing { .. } => {
                let newest = self.newest;
                let wrapped = |version: Option<ApiVersion>| version.unwrap_or(newest);
                let mut probe = wrapped(self.probe);
                if probe == self.version {
                    probe = wrapped(probe.older());
                }
                self.probe = probe.older();
                Some(probe)
            }
            Stage::Settled => {
                if self.version == self.newest || self.probe.is_none() && now < self.probe_at {
                    return None;
                }
                let probe = self.probe.unwrap_or(self.newest);
                self.probe = probe.older().filter(|older| *older > self.version);
                if self.probe.is_none() {
                    self.probe_at = now + PROBE_EVERY;
                }
                Some(probe)
            }
        }
    }

    /// Notes that a probe ended without a result about its version.
    pub(super) fn probed_in_vain(&mut self, now: Instant) {
        if self.stage == Stage::Settled {
            self.probe = None;
            self.probe_at = now + PROBE_AGAIN;
        }
    }
}

#[cfg(test)]
mod tests;
