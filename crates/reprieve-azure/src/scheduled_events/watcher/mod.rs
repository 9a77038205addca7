//! Polls Scheduled Events until it is dropped, and reports the changes for this VM to the worker.

mod approvals;
mod changes;
mod clock_difference;
mod lane;
mod lanes;
mod log;
mod neighbours;
mod poller;
mod publisher;
mod rate_limit;
mod throttle;

use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use jiff::SignedDuration;
use reprieve_core::ports::{Change, InterruptionSource};
use reprieve_core::{NoticeId, Result};
use tokio::sync::{broadcast, mpsc, watch};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;
use tracing::error;

use self::approvals::Approvals;
pub use self::changes::Changes;
use self::poller::Poller;
use self::rate_limit::RateLimit;
use crate::scheduled_events::active_events::{ActiveEvents, EventChange};
use crate::scheduled_events::client::{Client, Failures, deadline_in};
use crate::scheduled_events::document::ApiVersion;

/// The [`InterruptionSource`] that watches the metadata service.
///
/// It polls once per second in two [`ApiVersion`]s side by side: the newest, and the newest that is
/// documented as generally available. Either is enough: an event is active while one of them lists it. A
/// version that has failed for 10 s, or got a 429, is tried every 30 s while another one answers. While
/// neither answers, the older versions that list evictions are asked at once, and the newest of those that
/// answer is polled each second. A client that is [pinned](Client::with_version) uses its version only.
///
/// So an event is reported within 1.5 s while any version that lists it answers; where answers are late, as
/// much later. Slow answers overlap with later polls. Where the service answers five requests in a second and
/// all versions but 2017-11-01 begin to fail, that one is asked a second later. While all versions are
/// answered with 429, the polls pause: a quarter of a second, one and a half, and then three, or for
/// `Retry-After`, up to eight.
///
/// Errors are counted and logged (the first, then one a minute, and the recovery), and never end the
/// watch. With its other requests it sends at most three requests in a second, at most five in one with
/// approvals, and six in one in which both versions begin to fail. Only [subscribers](Self::changes) see
/// events for other VMs of the set.
///
/// It reports [`Change::Answered`] once both a document and this VM's name are known, after every
/// notice that is active in that document.
///
/// Dropping it ends the watch.
#[derive(Debug)]
pub struct Watcher {
    client: Client,
    shared: Arc<Mutex<WatchState>>,
    changes: tokio::sync::Mutex<mpsc::UnboundedReceiver<Change>>,
    end_logged: Once,
    _task: AbortOnDropHandle<()>,
}

/// The watch's counters and state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Polls sent.
    pub polls: u64,
    /// Polls that failed or got an answer that is not a document. Those in older api-versions are not
    /// counted, and neither are refusals of versions that the service may not support.
    pub errors: u64,
    /// The same errors by kind.
    pub failures: Failures,
    /// The time since the last document; `None` before the first. More than a few seconds mean that
    /// a notice could be missed.
    pub answer_age: Option<Duration>,
    /// The newest api-version that answers; the newest of all while none does.
    pub version: ApiVersion,
    /// Approvals that the service accepted, one for each event.
    pub approvals: u64,
    /// The number of times the incarnation decreased, as it does when the service restarts.
    pub resets: u64,
    /// How far the service's clock is ahead of this machine's: zero if by less than 2 s, and if the
    /// service does not tell. A new difference counts once consecutive answers of two seconds agree on it.
    pub ahead: SignedDuration,
}

impl Watcher {
    /// Starts to watch for the VM called `name`. Without a name, the watcher asks the metadata
    /// service for this VM's name.
    ///
    /// The watch is a task of the current runtime. Choose a runtime that no job can block.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    #[must_use]
    pub fn spawn(client: Client, name: Option<String>) -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        let version = client.pinned().unwrap_or(ApiVersion::NEWEST);
        let shared = Arc::new(Mutex::new(WatchState::new(version)));
        // A blank name would match no event.
        let name = name.filter(|name| !name.trim().is_empty());
        let poller = Poller::new(client.clone(), name, Arc::clone(&shared), sender);
        let task = AbortOnDropHandle::new(tokio::spawn(poller.run()));
        Self {
            client,
            shared,
            changes: tokio::sync::Mutex::new(receiver),
            end_logged: Once::new(),
            _task: task,
        }
    }

    /// Returns the watch's counters and state.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let shared = lock(&self.shared);
        Stats {
            polls: shared.polls,
            errors: shared.errors,
            failures: shared.failures,
            answer_age: shared.answered_at.map(|at| at.elapsed()),
            version: shared.newest_version(),
            approvals: shared.approvals,
            resets: shared.resets,
            ahead: shared.ahead,
        }
    }

    /// Subscribes to all changes from now on, beginning with the active events. There may be any
    /// number of subscriptions. They take nothing from [`next`](InterruptionSource::next), which
    /// keeps its changes until it is called.
    #[must_use]
    pub fn changes(&self) -> Changes {
        Changes::subscribe(&self.shared)
    }

    /// The active events, this VM's first and then those for the rest of its set, as if they were
    /// new.
    #[must_use]
    pub fn active_events(&self) -> Vec<EventChange> {
        lock(&self.shared).active_events.changes().collect()
    }

    /// Waits until both a document and this VM's name are known; before that,
    /// [`active_events`](Self::active_events) is empty. Afterwards it returns at once.
    ///
    /// # Cancel safety
    /// Dropping the future has no effect.
    pub async fn answered(&self) {
        let mut documents = lock(&self.shared).documents.subscribe();
        // The sender lives as long as this watcher, so this can't fail.
        drop(documents.wait_for(|documents| *documents > 0).await);
    }
}

#[async_trait]
impl InterruptionSource for Watcher {
    async fn next(&self) -> Change {
        if let Some(change) = self.changes.lock().await.recv().await {
            return change;
        }
        // The watch ends only with its runtime or by a bug of its own. The log line keeps that from
        // looking like an absence of events.
        self.end_logged.call_once(|| error!("the watcher has ended; the worker will receive no notices"));
        std::future::pending().await
    }

    /// Approves the events in one request, or one by one when the service refuses them together.
    /// Succeeds for events that have already ended. Temporary failures (410, 429, 5xx, no answer)
    /// are tried again within `within`.
    ///
    /// # Errors
    /// [`Invalid`](reprieve_core::ErrorKind::Invalid), before anything is sent, for a
    /// recommendation and for an event that concerns other VMs only; and for an active event that
    /// the service refuses. Otherwise as for [`Client`]. When one event is refused, the others are
    /// approved all the same.
    ///
    /// # Cancel safety
    /// If the future is dropped, any of the events may be approved. Approving them again is
    /// harmless.
    async fn approve(&self, notices: &[NoticeId], within: Duration) -> Result<()> {
        Approvals::new(&self.client, &self.shared, deadline_in(within)).all(notices).await
    }
}

/// How many changes a subscriber may be behind before it gets the difference instead. An event
/// changes only a few times in its life, and a set has only a few events.
const BEHIND_MAX: usize = 256;

/// The state of a watch.
#[derive(Debug)]
struct WatchState {
    active_events: ActiveEvents,
    polls: u64,
    errors: u64,
    failures: Failures,
    approvals: u64,
    resets: u64,
    ahead: SignedDuration,
    answered_at: Option<Instant>,
    /// The api-versions in use, the newest first. There is at least one.
    versions: Vec<ApiVersion>,
    rate_limit: RateLimit,
    /// Every change. Sent while the lock is held, so that a subscriber sees each once: in its
    /// initial state or in the feed.
    feed: broadcast::Sender<Arc<EventChange>>,
    /// How many documents have been applied.
    documents: watch::Sender<u64>,
}

impl WatchState {
    fn new(version: ApiVersion) -> Self {
        Self {
            active_events: ActiveEvents::default(),
            polls: 0,
            errors: 0,
            failures: Failures::default(),
            approvals: 0,
            resets: 0,
            ahead: SignedDuration::ZERO,
            answered_at: None,
            versions: vec![version],
            rate_limit: RateLimit::default(),
            feed: broadcast::Sender::new(BEHIND_MAX),
            documents: watch::Sender::new(0),
        }
    }
}

impl WatchState {
    /// The newest version in use.
    fn newest_version(&self) -> ApiVersion {
        self.versions.first().copied().unwrap_or(ApiVersion::NEWEST)
    }
}

/// Locks the state. No code panics while it holds the lock, and every field is consistent between
/// two statements.
fn lock(shared: &Mutex<WatchState>) -> MutexGuard<'_, WatchState> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
