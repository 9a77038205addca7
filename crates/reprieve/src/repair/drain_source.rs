//! Lets the worker release everything and rest, as for an event of the platform, while this VM is to be replaced.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use reprieve_core::ports::{Change, Ending, InterruptionSource};
use reprieve_core::{Notice, NoticeId, NoticeKind, Result};
use tokio::sync::Notify;

/// The id of its only notice.
const ID: &str = "unhealthy-vm";

/// A source with one notice, which begins and ends. Clones are handles to the same source.
#[derive(Debug, Clone)]
pub(crate) struct DrainSource(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    changes: Mutex<VecDeque<Change>>,
    changed: Notify,
}

impl Default for DrainSource {
    /// It has answered: nothing is wrong until it is proven.
    fn default() -> Self {
        let changes = Mutex::new([Change::Answered].into());
        Self(Arc::new(Inner { changes, changed: Notify::new() }))
    }
}

impl DrainSource {
    /// Lets the worker release everything, and receive nothing.
    pub(super) fn begin(&self) {
        self.push(Change::Noticed(Notice::now(ID, NoticeKind::Repair)));
    }

    /// Lets the worker work again.
    pub(super) fn end(&self) {
        self.push(Change::Over(NoticeId::new(ID), Ending::Withdrawn));
    }

    fn push(&self, change: Change) {
        self.0.changes.lock().unwrap_or_else(PoisonError::into_inner).push_back(change);
        self.0.changed.notify_one();
    }
}

#[async_trait]
impl InterruptionSource for DrainSource {
    async fn next(&self) -> Change {
        loop {
            let next = self.0.changes.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            if let Some(change) = next {
                return change;
            }
            self.0.changed.notified().await;
        }
    }

    async fn approve(&self, _: &[NoticeId], _: Duration) -> Result<()> {
        // A notice of the process itself needs no approval.
        Ok(())
    }
}
