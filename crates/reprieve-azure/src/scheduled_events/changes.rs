//! A subscription to the changes of events, for whoever wants more than the worker does.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, Weak};

use reprieve_core::NoticeId;
use reprieve_core::clock::wall_now;
use tokio::sync::broadcast::{self, error::RecvError};
use tracing::debug;

use super::shared::{Shared, lock};
use super::{EventChange, What, Whose};

/// The changes of this VM's events and, told apart, those of the rest of its set.
///
/// It begins with what stands. From then on every change is told, in order, to readers that keep within 256 changes.
/// One that falls further behind is told the difference instead: what stands now and is not as it was told last, then
/// the endings of what it was told of, each by the phase it was told last. So its memory is bounded, it never goes on
/// believing in an event that is over, and it never misses one that stands; what it misses are events that came and
/// went, and steps between.
#[derive(Debug)]
pub struct Changes {
    shared: Weak<Mutex<Shared>>,
    feed: broadcast::Receiver<Arc<EventChange>>,
    /// To be told before the feed.
    ready: VecDeque<EventChange>,
    /// What was told last of each event that is not told to be over.
    told: BTreeMap<(Whose, NoticeId), EventChange>,
    missed: u64,
}

impl Changes {
    pub(super) fn subscribe(shared: &Arc<Mutex<Shared>>) -> Self {
        let state = lock(shared);
        Self {
            shared: Arc::downgrade(shared),
            feed: state.feed.subscribe(),
            ready: state.standing.changes().collect(),
            told: BTreeMap::new(),
            missed: 0,
        }
    }

    /// The next change, when there is one; `None` once the watcher is gone and all it said has been told.
    ///
    /// # Cancel safety
    /// A change is never lost by dropping the future: the next call returns it.
    pub async fn next(&mut self) -> Option<EventChange> {
        loop {
            if let Some(change) = self.ready.pop_front() {
                self.remember(&change);
                return Some(change);
            }
            match self.feed.recv().await {
                Ok(change) => self.ready.push_back(Arc::unwrap_or_clone(change)),
                Err(RecvError::Lagged(missed)) => {
                    debug!(missed, "a reader of event changes is behind and is told the difference");
                    self.missed += missed;
                    self.catch_up();
                }
                Err(RecvError::Closed) => return None,
            }
        }
    }

    /// How many changes were not told one by one, because the reader was too far behind.
    #[must_use]
    pub const fn missed(&self) -> u64 {
        self.missed
    }

    fn remember(&mut self, change: &EventChange) {
        let key = (change.whose, change.id());
        if change.what.is_over() {
            self.told.remove(&key);
        } else {
            self.told.insert(key, change.clone());
        }
    }

    /// Leaves out what is in the feed, and makes ready what it has come to.
    fn catch_up(&mut self) {
        // Without a watcher nothing is added to the feed, so the rest of it can be read as it is.
        let Some(shared) = self.shared.upgrade() else { return };
        let state = lock(&shared);
        self.missed += self.feed.len() as u64;
        self.feed = state.feed.subscribe();
        let standing: BTreeMap<_, _> =
            state.standing.changes().map(|change| ((change.whose, change.id()), change)).collect();
        drop(state);
        for (key, change) in &standing {
            match self.told.get(key) {
                None => self.ready.push_back(change.clone()),
                Some(told) if told.event == change.event => {}
                Some(told) => {
                    let begun = change.what == What::Started
                        && told.event.event_status.phase() != change.event.event_status.phase();
                    let what = if begun { What::Started } else { What::Changed };
                    self.ready.push_back(EventChange { what, ..change.clone() });
                }
            }
        }
        for (key, told) in &self.told {
            if !standing.contains_key(key) {
                let what = What::ending(told.event.event_status.phase());
                self.ready.push_back(EventChange { what, not_before: None, at: wall_now(), ..told.clone() });
            }
        }
    }
}

#[cfg(test)]
mod tests;
