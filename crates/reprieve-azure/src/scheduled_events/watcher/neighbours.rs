//! Shares the polls with the other watchers of this VM, on a thread of its own: the disk of their directory may
//! hang, and must not stop the watch.

use std::future::pending;

use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::Instant;
use tracing::{error, info, warn};

use crate::scheduled_events::client::{HANGS_AFTER, Look, Note, SharedPolls};
use crate::scheduled_events::document::ApiVersion;

/// The polls that a watcher shares with the others of its VM. One thread at most works with them.
#[derive(Debug)]
pub(super) struct Neighbours {
    /// `None` while a look is under way.
    polls: Option<SharedPolls>,
    look: Option<JoinHandle<(SharedPolls, Look)>>,
    /// When the last look began.
    began: Instant,
    /// For the next look.
    notes: Vec<Note>,
    /// That a look hangs was logged.
    logged: bool,
}

impl Neighbours {
    pub(super) fn new(polls: SharedPolls) -> Self {
        Self { polls: Some(polls), look: None, began: Instant::now(), notes: Vec::new(), logged: false }
    }

    /// Whether the look under way takes so long that this watcher is to poll for itself.
    pub(super) fn hangs(&mut self) -> bool {
        let hangs = self.look.is_some() && self.began.elapsed() >= HANGS_AFTER;
        if hangs && !std::mem::replace(&mut self.logged, true) {
            warn!(
                "the disk of --state-dir does not answer; this worker polls the metadata service for itself"
            );
        }
        hangs
    }

    /// Notes what the next look shares. After a look that hangs it would be outdated.
    pub(super) fn note(&mut self, note: Note) {
        if !self.hangs() {
            self.notes.push(note);
        }
    }

    /// Whether the next look has something to share.
    pub(super) const fn has_notes(&self) -> bool {
        !self.notes.is_empty()
    }

    /// Begins a look unless one is under way. `next` is the version to try after those that were tried.
    pub(super) fn begin(&mut self, next: impl FnOnce(&[ApiVersion]) -> ApiVersion + Send + 'static) {
        let Some(mut polls) = self.polls.take() else { return };
        let notes = std::mem::take(&mut self.notes);
        self.began = Instant::now();
        self.look = Some(spawn_blocking(move || {
            let look = polls.work(notes, next);
            (polls, look)
        }));
    }

    /// Waits for the end of the look under way.
    ///
    /// # Cancel safety
    /// A look that is not taken now is taken the next time.
    pub(super) async fn looked(&mut self) -> Look {
        let Some(look) = &mut self.look else { return pending().await };
        let ended = look.await;
        self.look = None;
        if std::mem::take(&mut self.logged) {
            info!("the disk of --state-dir answers again");
        }
        match ended {
            Ok((polls, look)) => {
                self.polls = Some(polls);
                look
            }
            Err(error) => {
                error!(%error, "a look at the other workers' polls panicked; this worker polls for itself");
                Look { polls: true, news: Vec::new(), trial: None }
            }
        }
    }
}
