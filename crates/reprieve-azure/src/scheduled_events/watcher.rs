//! Polls Scheduled Events for as long as it lives, and tells the worker what changes for this VM.

use std::sync::{Arc, Mutex, Once};
use std::time::Duration;

use async_trait::async_trait;
use reprieve_core::ports::{Change, InterruptionSource};
use reprieve_core::{NoticeId, Result};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;
use tracing::error;

use super::approvals::{Approvals, deadline_in};
use super::failure::Failures;
use super::shared::{Shared, lock};
use super::watch::Watch;
use super::{ApiVersion, Changes, Client, EventChange};

/// The [`InterruptionSource`] that watches the metadata service.
///
/// It polls once per second whatever happens: slow answers overlap with later polls, errors are counted, logged (the
/// first, then one a minute, and the recovery) and survived. Together with what it asks besides, it sends no more than
/// two requests in any second, and four in one with approvals. Events for other VMs of the set are told to
/// [subscribers](Self::changes) only.
///
/// It asks in the newest [`ApiVersion`] that the service has, and tries newer ones again every hour.
///
/// [`Change::Answered`] is told once both a document and this VM's name are known, after every notice that stood in
/// that document.
///
/// Dropping it ends the watch.
#[derive(Debug)]
pub struct Watcher {
    client: Client,
    shared: Arc<Mutex<Shared>>,
    changes: tokio::sync::Mutex<mpsc::UnboundedReceiver<Change>>,
    end_mentioned: Once,
    _task: AbortOnDropHandle<()>,
}

/// How the watch is going.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Polls sent.
    pub polls: u64,
    /// Polls that failed or were answered with something else than a document. The refusals by which an older
    /// api-version is found are not among them.
    pub errors: u64,
    /// The same by what went wrong.
    pub failures: Failures,
    /// How long ago the last document came; `None` before the first. More than a few seconds means that a notice could
    /// be missed.
    pub answer_age: Option<Duration>,
    /// The api-version in use.
    pub version: ApiVersion,
    /// Approvals that the service took, one for each event.
    pub approvals: u64,
    /// How often the document's incarnation went back, as it does when the service starts again.
    pub resets: u64,
}

impl Watcher {
    /// Begins to watch for the VM called `name`, or, without a name, for the one that the metadata service says this is.
    ///
    /// The watch is a task of the current runtime, which should be one that no job can block.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[must_use]
    pub fn spawn(client: Client, name: Option<String>) -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        let version = client.pinned().unwrap_or(ApiVersion::NEWEST);
        let shared = Arc::new(Mutex::new(Shared::new(version)));
        // A blank name would match no event, ever.
        let name = name.filter(|name| !name.trim().is_empty());
        let watch = Watch::new(client.clone(), name, Arc::clone(&shared), sender);
        let task = AbortOnDropHandle::new(tokio::spawn(watch.run()));
        Self {
            client,
            shared,
            changes: tokio::sync::Mutex::new(receiver),
            end_mentioned: Once::new(),
            _task: task,
        }
    }

    /// How the watch is going.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let shared = lock(&self.shared);
        Stats {
            polls: shared.polls,
            errors: shared.errors,
            failures: shared.failures,
            answer_age: shared.answered_at.map(|at| at.elapsed()),
            version: shared.version,
            approvals: shared.approvals,
            resets: shared.resets,
        }
    }

    /// A subscription to all changes from now on, beginning with what stands. There may be any number of them, and they
    /// take nothing from [`next`](InterruptionSource::next), which keeps what it has to tell until it is called.
    #[must_use]
    pub fn changes(&self) -> Changes {
        Changes::subscribe(&self.shared)
    }

    /// What stands, for this VM and then for the rest of its set, as if it had just been noticed.
    #[must_use]
    pub fn standing(&self) -> Vec<EventChange> {
        lock(&self.shared).standing.changes().collect()
    }

    /// Waits until both a document and this VM's name are known, so that [`standing`](Self::standing) means something.
    /// Returns at once from then on.
    ///
    /// # Cancel safety
    /// Dropping the future has no effect.
    pub async fn answered(&self) {
        let mut documents = lock(&self.shared).documents.subscribe();
        // The sender lives as long as this watcher does, so this can't fail.
        drop(documents.wait_for(|documents| *documents > 0).await);
    }
}

#[async_trait]
impl InterruptionSource for Watcher {
    async fn next(&self) -> Change {
        if let Some(change) = self.changes.lock().await.recv().await {
            return change;
        }
        // The watch only ends with its runtime, or by a fault of its own that must not look like calm.
        self.end_mentioned.call_once(|| error!("the watch has ended; no notice will be received"));
        std::future::pending().await
    }

    /// Approves the events: in one request, or each for itself where the service refuses them together. Succeeds for
    /// those that are over already. What may pass (410, 429, 5xx, no answer) is tried again within `within`.
    ///
    /// # Errors
    /// [`Invalid`](reprieve_core::ErrorKind::Invalid), before anything is sent, for an advice and for an event that is
    /// other VMs' only; and for one that the service refuses though it stands. Otherwise as [`Client`] says. The
    /// others have been approved also when one of them is refused.
    ///
    /// # Cancel safety
    /// Dropping the future leaves it open which events are approved; approving them again does no harm.
    async fn acknowledge(&self, notices: &[NoticeId], within: Duration) -> Result<()> {
        Approvals::new(&self.client, &self.shared, deadline_in(within)).all(notices).await
    }
}
