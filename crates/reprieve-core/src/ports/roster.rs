//! The roster port: what each worker says of itself, for people who ask where a job is.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::ids::{JobId, WorkerId};

/// How far a job says it is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Progress {
    /// Units done.
    pub done: u64,
    /// Units in all; 0 when unknown.
    pub total: u64,
}

/// A job that a worker holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InFlight {
    /// The job.
    pub job: JobId,
    /// Its kind.
    pub kind: String,
    /// Which delivery of it this is: 1 the first time.
    pub delivery: u32,
    /// How far it says it is.
    pub progress: Progress,
    /// Steps finished in this delivery.
    pub steps: u64,
    /// When this delivery was received, in milliseconds since the Unix epoch.
    pub since_unix_ms: i64,
}

/// A notice that stands for a worker, and what it does about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StandingNotice {
    /// Its id.
    pub id: String,
    /// Its kind: `Preempt`, `Reboot`, …
    pub kind: String,
    /// Whether it has begun.
    pub started: bool,
    /// When it begins at the earliest, in milliseconds since the Unix epoch, while that is known.
    pub not_before_unix_ms: Option<i64>,
    /// What the worker does: `going on`, `short jobs only`, `resting`, `finishing`, `draining`.
    pub doing: String,
    /// Whether this worker has approved it.
    pub approved: bool,
}

/// A message that a worker could not use, and deferred.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeferredMessage {
    /// The job's id; the message's where the job's is unknown.
    pub job: String,
    /// The job's kind; empty when unknown.
    pub kind: String,
    /// Why it could not be used.
    pub reason: String,
    /// Since when no worker could, in milliseconds since the Unix epoch.
    pub since_unix_ms: i64,
    /// When this worker last received it, in milliseconds since the Unix epoch.
    pub seen_unix_ms: i64,
}

impl DeferredMessage {
    /// The shortest and the longest time for which a message is deferred.
    const DELAY_MS: (i64, i64) = (5_000, 5 * 60_000);

    /// How long after it was due a message may still be waiting for a worker.
    const LATE_MS: i64 = 60_000;

    /// Whether this worker would have received the message again by now, if it were still in the queue and no other
    /// worker had received it.
    #[must_use]
    pub fn is_gone(&self, now_unix_ms: i64) -> bool {
        // Each time it is deferred for as long as it has been in all, and five seconds more.
        let (least, most) = Self::DELAY_MS;
        let lasted = self.seen_unix_ms.saturating_sub(self.since_unix_ms).clamp(0, most);
        let due = self.seen_unix_ms.saturating_add((least + lasted).min(most));
        now_unix_ms > due.saturating_add(Self::LATE_MS)
    }
}

/// What a worker says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerReport {
    /// The worker.
    pub worker: WorkerId,
    /// The queue it takes jobs from; empty when unknown.
    #[serde(default)]
    pub queue: String,
    /// The kinds of job it knows.
    #[serde(default)]
    pub kinds: Vec<String>,
    /// The machine it runs on, as the platform names it; empty when unknown.
    pub vm: String,
    /// Its process id.
    pub pid: u32,
    /// Its stage: `recover`, `resume`, `start`, `shutdown`.
    pub stage: String,
    /// When this was said, in milliseconds since the Unix epoch.
    pub at_unix_ms: i64,
    /// Jobs completed since it began.
    pub completed: u64,
    /// What it holds.
    pub in_flight: Vec<InFlight>,
    /// The notices that stand for it.
    #[serde(default)]
    pub notices: Vec<StandingNotice>,
    /// The messages that it could not use.
    #[serde(default)]
    pub deferred: Vec<DeferredMessage>,
    /// What its last drain did; `None` before the first.
    pub last_drain: Option<crate::worker::DrainReport>,
}

/// Where workers say what they do. Nothing depends on it but people: a lost report costs a line on a screen.
#[async_trait]
pub trait Roster: fmt::Debug + Send + Sync + 'static {
    /// The least time between two reports of a worker that stays in its stage, for stores that bill each. Default: one
    /// second.
    fn pace(&self) -> Duration {
        Duration::from_secs(1)
    }

    /// Replaces what `report.worker` last said.
    async fn publish(&self, report: &WorkerReport) -> Result<()>;

    /// Forgets a worker that ended well.
    async fn withdraw(&self, worker: &WorkerId) -> Result<()>;

    /// Every report not older than `max_age`, in the order of worker ids.
    async fn reports(&self, max_age: Duration) -> Result<Vec<WorkerReport>>;
}
