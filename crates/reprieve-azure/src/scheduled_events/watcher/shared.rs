//! State that a watch shares with its owner and its subscribers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{broadcast, watch};
use tokio::time::Instant;

use super::rate_limit::Pace;
use crate::scheduled_events::active_events::Standing;
use crate::scheduled_events::change::EventChange;
use crate::scheduled_events::client::Failures;
use crate::scheduled_events::document::ApiVersion;

/// How many changes a subscriber may be behind before it gets the difference instead. An event
/// changes only a few times in its life, and a set has only a few events.
pub(super) const BEHIND_MAX: usize = 256;

/// The state of a watch.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) standing: Standing,
    pub(super) polls: u64,
    pub(super) errors: u64,
    pub(super) failures: Failures,
    pub(super) approvals: u64,
    pub(super) resets: u64,
    pub(super) answered_at: Option<Instant>,
    pub(super) version: ApiVersion,
    pub(super) pace: Pace,
    /// Every change. Sent while the lock is held, so that a subscriber sees each once: in its
    /// initial state or in the feed.
    pub(super) feed: broadcast::Sender<Arc<EventChange>>,
    /// How many documents have been applied.
    pub(super) documents: watch::Sender<u64>,
}

impl Shared {
    pub(super) fn new(version: ApiVersion) -> Self {
        Self {
            standing: Standing::default(),
            polls: 0,
            errors: 0,
            failures: Failures::default(),
            approvals: 0,
            resets: 0,
            answered_at: None,
            version,
            pace: Pace::default(),
            feed: broadcast::Sender::new(BEHIND_MAX),
            documents: watch::Sender::new(0),
        }
    }
}

/// Locks the state. No code panics while it holds the lock, and every field is consistent between
/// two statements.
pub(super) fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
