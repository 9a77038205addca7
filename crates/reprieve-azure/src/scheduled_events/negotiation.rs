//! Decides in which api-version a watch asks: the newest that is answered with a document.

use std::time::Duration;

use tokio::time::Instant;

use super::ApiVersion;
use super::client::PROBE_EVERY;
use super::document::EventType;

/// How soon after an older version was accepted the newer ones are tried again: a refusal may have been a passing one,
/// and an old version keeps silent about later types of events. Where it is silent about evictions, that is at once.
const PROBE_SOON: Duration = Duration::from_secs(10);

/// How soon newer versions are tried again when the last try said nothing about them, such as a 429.
const PROBE_AGAIN: Duration = Duration::from_mins(1);

/// Which version is in use, and which is tried next.
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
/// Polls ask in the version in use. Probes are requests besides the polls, which no poll waits for. A version that has
/// worked is left for an older one only when that one was answered and a poll sent after that is refused once more: what
/// refuses all versions for a while (a proxy, a service that starts) must not end in an old one, whose documents lack
/// later types and so look as if events had been withdrawn. Whatever was refused in such a while is tried again soon.
#[derive(Debug)]
pub(super) struct Negotiation {
    pinned: bool,
    version: ApiVersion,
    stage: Stage,
    /// When newer versions are probed next, while settled on one that is not the newest.
    probe_at: Instant,
    /// The version to probe next; `None` while no probing is due.
    probe: Option<ApiVersion>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// No version has been answered yet, and not all have been refused.
    Searching,
    /// The version in use works.
    Settled,
    /// The version in use is refused.
    Failing {
        /// Whether it has ever worked.
        worked: bool,
        /// The newest older version that was answered meanwhile, and when that last was.
        instead: Option<(ApiVersion, Instant)>,
    },
}

/// What the refusal of a poll comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(super) enum Refusal {
    /// Part of the search: the next poll asks in another version.
    Searched,
    /// Trouble, like any other failure.
    Counts,
}

impl Negotiation {
    pub(super) fn new(pinned: Option<ApiVersion>, now: Instant) -> Self {
        Self {
            pinned: pinned.is_some(),
            version: pinned.unwrap_or(ApiVersion::NEWEST),
            stage: Stage::Searching,
            probe_at: now,
            probe: None,
        }
    }

    /// The version in use.
    pub(super) const fn version(&self) -> ApiVersion {
        self.version
    }

    /// A request in `version` was answered with a document; says whether this changed the version in use.
    pub(super) fn accepted(&mut self, version: ApiVersion, now: Instant) -> bool {
        if self.pinned {
            return false;
        }
        match &mut self.stage {
            // A poll sent in a version that was given up meanwhile, or a probe of an older one.
            Stage::Settled if version < self.version => false,
            Stage::Failing { worked: true, instead } if version < self.version => {
                let best = instead.map_or(version, |(other, _)| other.max(version));
                *instead = Some((best, now));
                false
            }
            Stage::Searching | Stage::Settled | Stage::Failing { .. } => {
                let first = self.stage == Stage::Searching;
                let other = version != self.version;
                // What is being probed while the version in use works goes on.
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

    /// A poll in `version` that was sent at `sent` has now been refused for what may be its version.
    pub(super) fn refused(&mut self, version: ApiVersion, sent: Instant, now: Instant) -> Refusal {
        if self.pinned {
            return Refusal::Counts;
        }
        if version != self.version {
            // A poll sent before the version in use was changed.
            return Refusal::Searched;
        }
        match self.stage {
            Stage::Searching => {
                if let Some(older) = version.older() {
                    self.version = older;
                    return Refusal::Searched;
                }
                self.version = ApiVersion::NEWEST;
                self.fails(false);
            }
            Stage::Settled => self.fails(true),
            // One that was sent before is older news than that answer: all may have been refused until then.
            Stage::Failing { instead: Some((instead, answered)), .. } if sent > answered => {
                self.settle(instead, now);
            }
            Stage::Failing { .. } => {}
        }
        Refusal::Counts
    }

    fn fails(&mut self, worked: bool) {
        self.stage = Stage::Failing { worked, instead: None };
        self.probe = Some(ApiVersion::NEWEST);
    }

    /// The version to ask in now, besides the polls, if any.
    pub(super) fn next_probe(&mut self, now: Instant) -> Option<ApiVersion> {
        if self.pinned {
            return None;
        }
        match self.stage {
            Stage::Searching => None,
            // One version after the other, round and round.
            Stage::Failing { .. } => {
                let wrapped = |version: Option<ApiVersion>| version.unwrap_or(ApiVersion::NEWEST);
                let mut probe = wrapped(self.probe);
                if probe == self.version {
                    probe = wrapped(probe.older());
                }
                self.probe = probe.older();
                Some(probe)
            }
            Stage::Settled => {
                if self.version == ApiVersion::NEWEST || self.probe.is_none() && now < self.probe_at {
                    return None;
                }
                let probe = self.probe.unwrap_or(ApiVersion::NEWEST);
                self.probe = probe.older().filter(|older| *older > self.version);
                if self.probe.is_none() {
                    self.probe_at = now + PROBE_EVERY;
                }
                Some(probe)
            }
        }
    }

    /// A probe ended in a way that says nothing about its version.
    pub(super) fn probed_in_vain(&mut self, now: Instant) {
        if self.stage == Stage::Settled {
            self.probe = None;
            self.probe_at = now + PROBE_AGAIN;
        }
    }
}

#[cfg(test)]
mod tests;
