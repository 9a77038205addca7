//! Removes from the store what nothing needs any more, in small parts, while the worker is idle.
//!
//! One worker of a store works at a round, a day after the round before. A blob says how far it is,
//! so that another worker continues when the first is evicted or has jobs again.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::shared::Shared;
use crate::chance;
use crate::clock::unix_millis;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::BlobName;
use crate::names::CLEANING;
use crate::process::in_process;
use crate::retention::{Cleaner, Part, Position, Removed};
use crate::telemetry::ByWhat;

/// How long after a round the next one is due.
const ROUND_EVERY: Duration = Duration::from_hours(24);

/// How long after that, or after a round began, a worker with jobs works at it as well: no worker
/// was idle for long enough.
const OVERDUE: Duration = Duration::from_hours(24);

/// How often a worker looks whether a round is due. The first look comes after a random part of it,
/// so that the workers of a fleet do not begin together.
const LOOK_EVERY: Duration = Duration::from_hours(1);

/// How often a worker writes how far a round is, and what it waits at least after an error.
const NOTE_EVERY: Duration = Duration::from_mins(1);

/// How long after the last such note another worker continues the round.
const ABANDONED: Duration = Duration::from_mins(10);

/// A worker rests this many times as long as a part took, so that it uses a tenth of one
/// connection, and at least and at most so long.
const REST_TIMES: u32 = 9;
const REST_MIN: Duration = Duration::from_secs(1);
const REST_MAX: Duration = Duration::from_mins(1);

/// Works at rounds of cleaning.
pub(super) struct Janitor {
    shared: Arc<Shared>,
    task: Option<JoinHandle<State>>,
    state: State,
}

/// The janitor's next action and its time.
struct State {
    at: Instant,
    /// The round that it works at; without one it looks whether one is due.
    round: Option<Round>,
}

/// A round that this worker works at.
struct Round {
    position: Position,
    /// The objects that this worker has removed in it.
    removed: Removed,
    /// When it began, in milliseconds since the Unix epoch.
    since_unix_ms: i64,
    /// When it was last written how far it is.
    noted: Instant,
    /// It waits for so long that this worker works at it beside its jobs.
    is_overdue: bool,
}

/// The blob that says how far the round is.
#[derive(Debug, Serialize, Deserialize)]
struct Note {
    /// When it was written, in milliseconds since the Unix epoch.
    at_unix_ms: i64,
    /// When the round began.
    since_unix_ms: i64,
    /// The part that is next; absent after the round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next: Option<Position>,
}

impl Janitor {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let at = Instant::now() + LOOK_EVERY.mul_f64(chance::fraction());
        Self { shared, task: None, state: State { at, round: None } }
    }

    /// Begins the next part when it is due. Never waits.
    pub(super) fn work(&mut self, is_idle: bool) {
        if let Some(task) = self.task.take_if(|task| task.is_finished()) {
            // A task that panicked leaves its round to another worker.
            let ended = futures_util::FutureExt::now_or_never(task).and_then(Result::ok);
            self.state = ended.unwrap_or_else(State::look_again);
        }
        if self.task.is_some() || Instant::now() < self.state.at {
            return;
        }
        let (shared, round) = (Arc::clone(&self.shared), self.state.round.take());
        self.task = Some(tokio::spawn(in_process(async move {
            let went = match round {
                Some(round) if is_idle || round.is_overdue => work_at(&shared, round).await,
                // The worker has jobs again. Whoever is idle continues.
                Some(round) => round.note(&shared).await.map(|_| State::look_again()),
                None => look(&shared, is_idle).await,
            };
            went.unwrap_or_else(|error| {
                tracing::debug!(%error, "failed to remove expired objects; trying again later");
                State::look_again()
            })
        })));
    }

    /// Gives up what is under way: the machine may disappear. Another worker continues the round.
    pub(super) fn stop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
        self.state = State::look_again();
    }
}

impl State {
    fn look_again() -> Self {
        Self { at: Instant::now() + LOOK_EVERY, round: None }
    }
}

/// Looks whether a round is due, or was abandoned, and takes it.
async fn look(shared: &Shared, is_idle: bool) -> Result<State> {
    let found = shared.store.blobs.get(&BlobName::parse(CLEANING)?).await?;
    // A note that can't be read, or is from the future, is as none.
    let found = found.and_then(|json| serde_json::from_slice::<Note>(&json).ok());
    let now = unix_millis();
    let Some(note) = found.filter(|note| note.at_unix_ms <= now + millis(ROUND_EVERY)) else {
        let round = Round::begin(false);
        // Without any worker that is idle, the first round is overdue at some time, too.
        return if is_idle { round.take(shared).await } else { round.end(shared).await };
    };
    let due = note.at_unix_ms + millis(if note.next.is_some() { ABANDONED } else { ROUND_EVERY });
    let is_overdue = now >= note.since_unix_ms + millis(ROUND_EVERY + OVERDUE);
    if now < due || !is_idle && !is_overdue {
        return Ok(State::look_again());
    }
    match note.next {
        Some(position) => {
            let since_unix_ms = note.since_unix_ms;
            Round { position, since_unix_ms, ..Round::begin(is_overdue) }.take(shared).await
        }
        None => Round::begin(is_overdue).take(shared).await,
    }
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// Cleans one part, and writes now and then how far the round is.
async fn work_at(shared: &Shared, mut round: Round) -> Result<State> {
    let began = Instant::now();
    let cleaner = Cleaner::new((*shared.store).clone(), shared.settings.keep);
    let Part { removed, next } = match cleaner.clean(&round.position).await {
        Ok(part) => part,
        // A place in a list may be of another version. The next round begins at the first part.
        Err(error) if !error.is_temporary() => {
            tracing::warn!(%error, "failed to remove expired objects; trying again tomorrow");
            return round.end(shared).await;
        }
        Err(error) => return Err(error),
    };
    round.removed += removed;
    for (what, count) in removed.counts() {
        if count > 0 {
            shared.telemetry.cleaned.get_or_create(&ByWhat { what }).inc_by(count);
        }
    }
    let Some(next) = next else {
        let Removed { arguments, records, payloads, results, drains, marks, ledger, bytes } = round.removed;
        if !round.removed.is_nothing() {
            tracing::info!(
                arguments,
                records,
                payloads,
                results,
                drains,
                marks,
                ledger,
                bytes,
                "removed expired objects"
            );
        }
        return round.end(shared).await;
    };
    round.position = next;
    if round.noted.elapsed() >= NOTE_EVERY {
        round = round.note(shared).await?;
    }
    let rest = (began.elapsed() * REST_TIMES).clamp(REST_MIN, REST_MAX);
    Ok(State { at: Instant::now() + rest, round: Some(round) })
}

impl Round {
    fn begin(is_overdue: bool) -> Self {
        Self {
            position: Position::default(),
            removed: Removed::default(),
            since_unix_ms: unix_millis(),
            noted: Instant::now(),
            is_overdue,
        }
    }

    /// Writes that this worker works at it.
    async fn take(self, shared: &Shared) -> Result<State> {
        let round = self.note(shared).await?;
        Ok(State { at: Instant::now() + REST_MIN, round: Some(round) })
    }

    /// Writes how far the round is.
    async fn note(mut self, shared: &Shared) -> Result<Self> {
        self.write(shared, Some(self.position.clone())).await?;
        self.noted = Instant::now();
        Ok(self)
    }

    /// Writes that the round is over.
    async fn end(self, shared: &Shared) -> Result<State> {
        self.write(shared, None).await?;
        Ok(State::look_again())
    }

    async fn write(&self, shared: &Shared, next: Option<Position>) -> Result<()> {
        let note = Note { at_unix_ms: unix_millis(), since_unix_ms: self.since_unix_ms, next };
        let json = serde_json::to_vec(&note).map_err(|error| {
            Error::new(ErrorKind::Internal, "write how far the cleaning is", error.to_string())
                .with_source(error)
        })?;
        shared.store.blobs.put(&BlobName::parse(CLEANING)?, json, None).await
    }
}
