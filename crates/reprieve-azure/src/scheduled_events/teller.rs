//! Takes in the answers, and tells the worker and the subscribers what each changes.

use std::sync::{Arc, Mutex};

use reprieve_core::ports::Change;
use tokio::sync::mpsc;
use tracing::{debug, info};

use super::document::Incarnation;
use super::shared::{Shared, lock};
use super::{Answer, mention};

/// What is known of this VM and of the last answer.
#[derive(Debug)]
pub(super) struct Teller {
    shared: Arc<Mutex<Shared>>,
    /// Unbounded, so that an owner who is busy never delays a poll. An event changes a handful of times in its life.
    worker: mpsc::UnboundedSender<Change>,
    /// What this VM is called in `Resources`.
    name: Option<String>,
    /// The last answer, while the name that says what of it is ours is not known.
    unread: Option<Answer>,
    incarnation: Option<Incarnation>,
    has_answered: bool,
}

impl Teller {
    pub(super) fn new(
        shared: Arc<Mutex<Shared>>,
        worker: mpsc::UnboundedSender<Change>,
        name: Option<String>,
    ) -> Self {
        Self { shared, worker, name, unread: None, incarnation: None, has_answered: false }
    }

    /// Whether both an answer and the name are known.
    pub(super) const fn has_answered(&self) -> bool {
        self.has_answered
    }

    /// Whether this VM's name is not known.
    pub(super) const fn is_nameless(&self) -> bool {
        self.name.is_none()
    }

    /// Whether nothing but the name is missing.
    pub(super) const fn waits_for_the_name(&self) -> bool {
        self.unread.is_some()
    }

    /// This VM is called so.
    pub(super) fn is_called(&mut self, name: String) {
        self.name = Some(name);
        if let Some(answer) = self.unread.take() {
            self.take_in(answer);
        }
    }

    /// Tells what an answer changes.
    pub(super) fn take_in(&mut self, answer: Answer) {
        self.note_incarnation(&answer);
        let Some(name) = &self.name else {
            self.unread = Some(answer);
            return;
        };
        let mut shared = lock(&self.shared);
        for change in shared.standing.update(&answer, name) {
            mention::event(&change);
            if let Some(change) = change.for_worker(name, answer.at) {
                // The receiver is gone only while the watcher is being dropped, which ends the watch too.
                drop(self.worker.send(change));
            }
            // There need not be any subscribers.
            drop(shared.feed.send(Arc::new(change)));
        }
        if !self.has_answered {
            self.has_answered = true;
            drop(self.worker.send(Change::Answered));
        }
        shared.documents.send_modify(|documents| *documents += 1);
    }

    fn note_incarnation(&mut self, answer: &Answer) {
        let incarnation = &answer.document.document_incarnation;
        if self.incarnation.as_ref() == Some(incarnation) {
            return;
        }
        if self.incarnation.as_ref().is_some_and(|before| incarnation.is_reset_from(before)) {
            info!(%incarnation, "the metadata service has started again");
            lock(&self.shared).resets += 1;
        }
        debug!(%incarnation, events = answer.document.events.len(), "another document");
        self.incarnation = Some(incarnation.clone());
    }
}
