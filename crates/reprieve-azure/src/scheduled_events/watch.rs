//! The task behind a [`Watcher`](super::Watcher): sends the polls, takes their answers, tells the changes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use reprieve_core::ports::Change;
use reprieve_core::{Error, Result};
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tracing::{debug, error, info, warn};

use super::document::{Document, Incarnation};
use super::polls::Polls;
use super::trouble::Trouble;
use super::{Client, Compute, Standing};

/// How often the service is asked: as
/// [Azure recommends](https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events#polling-frequency),
/// because a Spot VM may have only seconds. It allows five requests per second to all processes of a VM together.
const POLL_EVERY: Duration = Duration::from_secs(1);

/// How long one request for this VM's name may take; the next is sent when it has failed.
const NAME_TIMEOUT: Duration = Duration::from_secs(10);

/// After how long without a first answer a warning says what might be wrong.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// All that the task knows.
#[derive(Debug)]
pub(super) struct Watch {
    client: Client,
    shared: Arc<Mutex<Shared>>,
    /// Unbounded, so that an owner who is busy never delays a poll. An event changes a handful of times in its life.
    changes: mpsc::UnboundedSender<Change>,
    requests: JoinSet<Answer>,
    polls: Polls,
    poll_trouble: Trouble,
    name: Name,
    name_trouble: Trouble,
    began: Instant,
    answered: bool,
    silence_mentioned: bool,
    incarnation: Option<Incarnation>,
    /// The last document, while the name that says what of it is ours is not known.
    unread: Option<(Document, Instant)>,
}

/// What this VM is called in `Resources`.
#[derive(Debug)]
enum Name {
    Unknown,
    Asked,
    Known(String),
}

/// How a request ended.
#[derive(Debug)]
enum Answer {
    Document { poll: u64, at: Instant, result: Result<Document> },
    Compute { at: Instant, result: Result<Compute> },
}

impl Watch {
    pub(super) fn new(
        client: Client,
        name: Option<String>,
        shared: Arc<Mutex<Shared>>,
        changes: mpsc::UnboundedSender<Change>,
    ) -> Self {
        Self {
            client,
            shared,
            changes,
            requests: JoinSet::new(),
            polls: Polls::default(),
            poll_trouble: Trouble::default(),
            name: name.map_or(Name::Unknown, Name::Known),
            name_trouble: Trouble::default(),
            began: Instant::now(),
            answered: false,
            silence_mentioned: false,
            incarnation: None,
            unread: None,
        }
    }

    pub(super) async fn run(mut self) {
        let mut tick = interval(POLL_EVERY);
        // After the VM has been frozen, one poll now says as much as one for every second missed.
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            // Both are cancel-safe: a tick or an ended request that is not taken now is taken the next time.
            let ended = tokio::select! {
                _ = tick.tick() => None,
                Some(ended) = self.requests.join_next() => Some(ended),
            };
            match ended {
                None => self.tick(),
                Some(Ok(Answer::Document { poll, at, result })) => self.document_or_not(poll, at, result),
                Some(Ok(Answer::Compute { at, result })) => self.name_or_not(at, result),
                // It was given up because a later one was answered first.
                Some(Err(error)) if error.is_cancelled() => {}
                Some(Err(error)) => self.panicked(&error),
            }
        }
    }

    fn tick(&mut self) {
        self.poll();
        if matches!(self.name, Name::Unknown) {
            self.ask_name();
        }
        if !self.answered && !self.silence_mentioned && self.began.elapsed() >= SILENCE_MAX {
            self.silence_mentioned = true;
            self.mention_silence();
        }
    }

    fn poll(&mut self) {
        let Some((poll, within)) = self.polls.next() else { return };
        let client = self.client.clone();
        let request = self.requests.spawn(async move {
            let result = client.document(within).await;
            Answer::Document { poll, at: Instant::now(), result }
        });
        self.polls.is_under_way(poll, request);
        lock(&self.shared).polls = self.polls.sent();
    }

    fn ask_name(&mut self) {
        let client = self.client.clone();
        self.requests.spawn(async move {
            let result = client.compute(NAME_TIMEOUT).await;
            Answer::Compute { at: Instant::now(), result }
        });
        self.name = Name::Asked;
    }

    fn document_or_not(&mut self, poll: u64, at: Instant, result: Result<Document>) {
        match result {
            Ok(document) if self.polls.is_news(poll) => {
                lock(&self.shared).answered_at = Some(at);
                if let Some(lasted) = self.poll_trouble.worked(at) {
                    info!(
                        failures = lasted.failures,
                        seconds = lasted.since.as_secs(),
                        "scheduled events are answered again"
                    );
                }
                self.take_in(document, at);
            }
            Ok(_) => debug!(poll, "a later poll was answered before this one"),
            Err(error) => {
                lock(&self.shared).errors += 1;
                mention_failure(
                    &mut self.poll_trouble,
                    at,
                    &error,
                    "scheduled events were not answered; polling goes on",
                );
            }
        }
    }

    fn name_or_not(&mut self, at: Instant, result: Result<Compute>) {
        match result {
            Ok(compute) => {
                info!(
                    name = compute.name,
                    vm_id = compute.vm_id,
                    set = compute.vm_scale_set_name,
                    "this VM's name"
                );
                self.name = Name::Known(compute.name);
                if let Some((document, at)) = self.unread.take() {
                    self.take_in(document, at);
                }
            }
            Err(error) => {
                self.name = Name::Unknown;
                mention_failure(
                    &mut self.name_trouble,
                    at,
                    &error,
                    "this VM's name was not answered; it is asked again",
                );
            }
        }
    }

    /// A fault in the code of one request must not end the watch.
    fn panicked(&mut self, error: &JoinError) {
        error!(%error, "a request to the metadata service panicked; polling goes on");
        lock(&self.shared).errors += 1;
        if matches!(self.name, Name::Asked) {
            self.name = Name::Unknown;
        }
    }

    /// Tells what `document`, received at `at`, changes.
    fn take_in(&mut self, document: Document, at: Instant) {
        if self.incarnation.as_ref() != Some(&document.document_incarnation) {
            debug!(incarnation = %document.document_incarnation, events = document.events.len(), "another document");
            self.incarnation = Some(document.document_incarnation.clone());
        }
        let Name::Known(name) = &self.name else {
            self.unread = Some((document, at));
            return;
        };
        let mut changes = lock(&self.shared).standing.update(&document, name, at);
        if !self.answered {
            self.answered = true;
            changes.push(Change::Answered);
        }
        for change in changes {
            // The receiver is gone only while the watcher is being dropped, which ends this task too.
            drop(self.changes.send(change));
        }
    }

    fn mention_silence(&self) {
        if self.unread.is_some() {
            warn!(
                url = self.client.base(),
                "the metadata service does not say what this VM is called, so no work is taken; set --vm-name"
            );
        } else {
            warn!(
                url = self.client.base(),
                "no answer from the metadata service for 5 s, so no work is taken; a new Azure VM may need two minutes, \
                 outside Azure set --metadata-url off"
            );
        }
    }
}

fn mention_failure(trouble: &mut Trouble, at: Instant, error: &Error, what: &'static str) {
    if let Some(lasted) = trouble.failed(at) {
        warn!(%error, failures = lasted.failures, seconds = lasted.since.as_secs(), "{what}");
    } else {
        debug!(%error, "{what}");
    }
}

/// What the watch and its owner both look at.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) standing: Standing,
    pub(super) polls: u64,
    pub(super) errors: u64,
    pub(super) answered_at: Option<Instant>,
}

/// Nothing panics while it holds the lock, and every field is whole between two statements.
pub(super) fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
