//! Polls Scheduled Events for as long as it lives, and tells the worker what changes for this VM.

use std::sync::{Arc, Mutex, Once};
use std::time::Duration;

use async_trait::async_trait;
use reprieve_core::ports::{Change, InterruptionSource};
use reprieve_core::{NoticeId, Result};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;
use tracing::error;

use super::Client;
use super::watch::{Shared, Watch, lock};

/// How long one approval may take. It is sent while a drain ends, when seconds count.
const APPROVE_TIMEOUT: Duration = Duration::from_secs(2);

/// The [`InterruptionSource`] that watches the metadata service.
///
/// It polls once per second whatever happens: slow answers overlap with later polls, errors are counted, logged (the
/// first, then one a minute, and the recovery) and survived. Events for other VMs of the set are ignored.
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
pub struct Stats {
    /// Polls sent.
    pub polls: u64,
    /// Polls that failed or were answered with something else than a document.
    pub errors: u64,
    /// How long ago the last document came; `None` before the first. More than a few seconds means that a notice could
    /// be missed.
    pub answer_age: Option<Duration>,
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
        let shared = Arc::default();
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
            answer_age: shared.answered_at.map(|at| at.elapsed()),
        }
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

    /// Approves the event. Succeeds when it is over already.
    ///
    /// # Errors
    /// [`Invalid`](reprieve_core::ErrorKind::Invalid) for an event that names other VMs too, which would begin on them
    /// as well; otherwise as [`Client`] says.
    async fn acknowledge(&self, notices: &[NoticeId], within: Duration) -> Result<()> {
        for notice in notices {
            let event_id = lock(&self.shared).standing.approval(notice)?.map(str::to_owned);
            if let Some(event_id) = event_id {
                self.client.approve(&[&event_id], within.min(APPROVE_TIMEOUT)).await?;
            }
        }
        Ok(())
    }
}
