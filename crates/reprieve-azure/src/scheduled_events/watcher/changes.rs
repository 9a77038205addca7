//! A subscription to the changes of all events, this VM's and other VMs'.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, Weak};

use reprieve_core::NoticeId;
use reprieve_core::clock::wall_now;
use tokio::sync::broadcast::{self, error::RecvError};
use tracing::debug;

use super::{WatchState, lock};
use crate::scheduled_events::active_events::{ChangeKind, EventChange, Scope};

/// The changes of this VM's events and, marked as such, of the events for the rest of its set.
///
/// A subscription begins with the active events. After that it yields every change in order, as
/// long as the reader is at most 256 changes behind. A reader that falls further behind gets the
/// difference instead: first the active events that it does not know in their present state, then
/// the endings of the others that it knows, each by the phase that it saw last. So its memory is
/// bounded, no ended event stays active for it, and it never misses an active one. It misses only
/// events that began and ended in between, and intermediate changes.
#[derive(Debug)]
pub struct Changes {
    shared: Weak<Mutex<WatchState>>,
    feed: broadcast::Receiver<Arc<EventChange>>,
    /// Changes to return before the feed's.
    ready: VecDeque<EventChange>,
    /// The last returned change of each event that has not been returned as ended.
    known: BTreeMap<(Scope, NoticeId), EventChange>,
    missed: u64,
}

impl Changes {
    pub(super) fn subscribe(shared: &Arc<Mutex<WatchState>>) -> Self {
        let state = lock(shared);
        Self {
            shared: Arc::downgrade(shared),
            feed: state.feed.subscribe(),
            ready: state.active_events.changes().collect(),
            known: BTreeMap::new(),
            missed: 0,
        }
    }

    /// Waits for the next change. Returns `None` once the watcher was dropped and all its changes
    /// were returned.
    ///
    /// # Cancel safety
    /// Dropping the future loses no change: the next call returns it.
    pub async fn next(&mut self) -> Option<EventChange> {
        loop {
            if let Some(change) = self.ready.pop_front() {
                self.remember(&change);
                return Some(change);
            }
            match self.feed.recv().await {
                Ok(change) => self.ready.push_back(Arc::unwrap_or_clone(change)),
                Err(RecvError::Lagged(missed)) => {
                    debug!(missed, "a reader of event changes is too far behind; it gets the difference");
                    self.missed += missed;
                    self.catch_up();
                }
                Err(RecvError::Closed) => return None,
            }
        }
    }

    /// How many changes were skipped because the reader was too far behind.
    #[must_use]
    pub const fn missed(&self) -> u64 {
        self.missed
    }

    fn remember(&mut self, change: &EventChange) {
        let key = (change.scope, change.id());
        if change.kind.has_ended() {
            self.known.remove(&key);
        } else {
            self.known.insert(key, change.clone());
        }
    }

    /// Skips the feed and queues the difference to the current state.
    fn catch_up(&mut self) {
        // Without a watcher the feed no longer grows, so the rest of it can be read normally.
        let Some(shared) = self.shared.upgrade() else { return };
        let state = lock(&shared);
        self.missed += self.feed.len() as u64;
        self.feed = state.feed.subscribe();
        let active: BTreeMap<_, _> =
            state.active_events.changes().map(|change| ((change.scope, change.id()), change)).collect();
        drop(state);
        for (key, change) in &active {
            match self.known.get(key) {
                None => self.ready.push_back(change.clone()),
                Some(known) if known.event == change.event => {}
                Some(known) => {
                    let begun = change.kind == ChangeKind::Started
                        && known.event.event_status.phase() != change.event.event_status.phase();
                    let kind = if begun { ChangeKind::Started } else { ChangeKind::Changed };
                    self.ready.push_back(EventChange { kind, ..change.clone() });
                }
            }
        }
        for (key, known) in &self.known {
            if !active.contains_key(key) {
                let kind = ChangeKind::ending(known.event.event_status.phase());
                self.ready.push_back(EventChange { kind, not_before: None, at: wall_now(), ..known.clone() });
            }
        }
    }
}

#[cfg(test)]
mod tests;
