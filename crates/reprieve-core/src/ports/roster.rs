//! The roster port: the workers' reports, by which operators find their jobs.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::checkpoint::IntervalReport;
use crate::dependency::DependencyReport;
use crate::error::Result;
use crate::ids::{JobId, WorkerId};
use crate::pressure::MachineReport;

/// The progress that a job reported.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Progress {
    /// Units done.
    pub done: u64,
    /// Units in total; 0 when unknown.
    pub total: u64,
}

/// A job that a worker holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InFlight {
    /// The job.
    pub job: JobId,
    /// Its kind.
    pub kind: String,
    /// The number of this delivery: 1 the first time.
    pub delivery: u32,
    /// The progress that the job reported.
    pub progress: Progress,
    /// Steps finished in this delivery.
    pub steps: u64,
    /// When this delivery was received, in milliseconds since the Unix epoch.
    pub since_unix_ms: i64,
    /// When it last made a step, a save or progress, as its worker saw, which looks each second; in milliseconds since the
    /// Unix epoch. `None` before the first look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved_unix_ms: Option<i64>,
    /// Since when the job has made no step, no save and no progress, where that is unusually long; in milliseconds
    /// since the Unix epoch. `None` while it moves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stalled_since_unix_ms: Option<i64>,
    /// Where a job that has not moved for so long is: the number of its step in this delivery, and the span that it
    /// opened last there, if it is known to have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stalled_in: Option<String>,
    /// When it got its slot, in milliseconds since the Unix epoch; `None` while it waits for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began_unix_ms: Option<i64>,
    /// The time from there to its last save, in milliseconds: if the worker dies, the work of this delivery since
    /// then is lost.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub kept_ms: u64,
    /// Why the job was moved here from another queue; `None` for a job that was sent here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub escalated: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[cfg(test)]
impl InFlight {
    /// A first delivery of a job that has done nothing.
    pub(crate) fn for_tests() -> Self {
        Self {
            job: JobId::unique(),
            kind: "steps".to_owned(),
            delivery: 1,
            progress: Progress::default(),
            steps: 0,
            since_unix_ms: 0,
            moved_unix_ms: None,
            stalled_since_unix_ms: None,
            stalled_in: None,
            began_unix_ms: None,
            kept_ms: 0,
            escalated: None,
        }
    }
}

/// A notice that is active for a worker, and the worker's response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActiveNotice {
    /// The notice's id.
    pub id: String,
    /// The notice's kind: `Preempt`, `Reboot`, …
    pub kind: String,
    /// Whether the event has begun.
    pub started: bool,
    /// When the event begins at the earliest, in milliseconds since the Unix epoch, if that is
    /// known.
    pub not_before_unix_ms: Option<i64>,
    /// The worker's response: `going on`, `short jobs only`, `resting`, `finishing`, `draining`.
    pub doing: String,
    /// Whether this worker has approved the event.
    pub approved: bool,
}

/// A message that a worker could not use and deferred.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeferredMessage {
    /// The job's id, or the message's where the job's is unknown.
    pub job: String,
    /// The job's kind; empty when unknown.
    pub kind: String,
    /// Why the worker could not use it.
    pub reason: String,
    /// Since when no worker could use it, in milliseconds since the Unix epoch.
    pub since_unix_ms: i64,
    /// When this worker last received it, in milliseconds since the Unix epoch.
    pub seen_unix_ms: i64,
}

impl DeferredMessage {
    /// How long after it became visible a message may still wait for a worker.
    const LATE: Duration = Duration::from_mins(1);

    /// Returns how long to defer a message that no worker could use for as long as `lasted`: that
    /// long again and 5 s more, at most 5 min.
    pub(crate) fn delay(lasted: Duration) -> Duration {
        lasted.saturating_add(Duration::from_secs(5)).min(Duration::from_mins(5))
    }

    /// Whether this worker would have received the message again by now, if the message were still
    /// in the queue and no other worker had received it.
    #[must_use]
    pub fn is_gone(&self, now_unix_ms: i64) -> bool {
        let lasted = self.seen_unix_ms.saturating_sub(self.since_unix_ms);
        let wait = Self::delay(Duration::from_millis(u64::try_from(lasted).unwrap_or(0))) + Self::LATE;
        let wait = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
        now_unix_ms > self.seen_unix_ms.saturating_add(wait)
    }
}

/// A kind of job with limits of its own, as a worker applies them. Durations are in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitedKind {
    /// The kind.
    pub kind: String,
    /// How many of its jobs the worker runs.
    pub running: u64,
    /// How many messages the worker returned to the queue because of a limit, since it started.
    pub deferred: u64,
    /// How many may run at once in a worker.
    pub per_worker: Option<u64>,
    /// How many may run at once in the fleet.
    pub in_fleet: Option<u32>,
    /// The memory that one of its jobs takes, in bytes, as it is set or measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// How long a step may take.
    pub step_timeout_ms: Option<u64>,
    /// How long an attempt may run.
    pub job_timeout_ms: Option<u64>,
    /// How long a step may make no save and no progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stall_after_ms: Option<u64>,
    /// How many deliveries may fail without progress.
    pub attempts: u32,
    /// The delay after the first failure.
    pub backoff_ms: u64,
    /// The longest delay after a failure.
    pub backoff_max_ms: u64,
}

/// A worker's report about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerReport {
    /// The worker's id.
    pub worker: WorkerId,
    /// The queue from which it receives; empty when unknown.
    #[serde(default)]
    pub queue: String,
    /// The kinds of job that it can run.
    #[serde(default)]
    pub kinds: Vec<String>,
    /// Its machine, by the platform's name; empty when unknown.
    pub vm: String,
    /// The id of its machine's present boot; empty when unknown. Workers with the same id are on
    /// the same machine.
    #[serde(default)]
    pub boot: String,
    /// Whether it has no source of interruptions: it hears of no event of its machine, and never learns
    /// its machine's name.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub without_sources: bool,
    /// The fault of its machine that it has proven, or sees without a proof since it began; `None` while there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// The directories to which it has written, or an earlier worker has in this boot; the first few of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub written: Vec<String>,
    /// Its process id.
    pub pid: u32,
    /// Its stage: `recover`, `resume`, `start`, `shutdown`.
    pub stage: String,
    /// When the report was made, in milliseconds since the Unix epoch.
    pub at_unix_ms: i64,
    /// Jobs completed since the worker started.
    pub completed: u64,
    /// The jobs that it holds.
    pub in_flight: Vec<InFlight>,
    /// The notices that are active for it.
    #[serde(default)]
    pub notices: Vec<ActiveNotice>,
    /// The messages that it could not use and deferred.
    #[serde(default)]
    pub deferred: Vec<DeferredMessage>,
    /// The kinds that have other limits than the default.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<LimitedKind>,
    /// What its jobs depend on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dependencies: Vec<DependencyReport>,
    /// How often it saves the progress of its jobs, and why; `None` of an older version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intervals: Option<IntervalReport>,
    /// The state of its machine; `None` where it is not looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<MachineReport>,
    /// The report of its last drain; `None` before the first.
    pub last_drain: Option<crate::report::DrainReport>,
}

impl WorkerReport {
    /// The report of a worker in this process that holds nothing; every other text is empty, and the
    /// time is 0.
    #[must_use]
    pub fn new(worker: WorkerId) -> Self {
        Self {
            worker,
            queue: String::new(),
            kinds: Vec::new(),
            vm: String::new(),
            boot: String::new(),
            without_sources: false,
            fault: None,
            written: Vec::new(),
            pid: std::process::id(),
            stage: String::new(),
            at_unix_ms: 0,
            completed: 0,
            in_flight: Vec::new(),
            notices: Vec::new(),
            deferred: Vec::new(),
            limits: Vec::new(),
            dependencies: Vec::new(),
            intervals: None,
            machine: None,
            last_drain: None,
        }
    }
}

/// A worker in the roster, without the jobs that it holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The worker's id.
    pub worker: WorkerId,
    /// The queue from which it receives; empty when unknown.
    pub queue: String,
    /// The kinds of job that it can run.
    pub kinds: Vec<String>,
    /// Its machine, by the platform's name; empty when unknown.
    pub vm: String,
    /// The id of its machine's present boot; empty when unknown.
    pub boot: String,
    /// Whether it has no source of interruptions.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub without_sources: bool,
}

impl From<&WorkerReport> for Member {
    fn from(report: &WorkerReport) -> Self {
        Self {
            worker: report.worker.clone(),
            queue: report.queue.clone(),
            kinds: report.kinds.clone(),
            vm: report.vm.clone(),
            boot: report.boot.clone(),
            without_sources: report.without_sources,
        }
    }
}

/// Stores the workers' reports. Only people read them: a lost report costs a line on a screen.
#[async_trait]
pub trait Roster: fmt::Debug + Send + Sync + 'static {
    /// The shortest time between two reports of a worker that stays in its stage, for stores that
    /// bill each write. Default: one second.
    fn pace(&self) -> Duration {
        Duration::from_secs(1)
    }

    /// Replaces the last report of `report.worker`.
    async fn publish(&self, report: &WorkerReport) -> Result<()>;

    /// Removes the report of a worker that has stopped.
    async fn withdraw(&self, worker: &WorkerId) -> Result<()>;

    /// Returns every report no older than `max_age`, ordered by worker id.
    async fn reports(&self, max_age: Duration) -> Result<Vec<WorkerReport>>;

    /// Returns the last reports of workers that the store knows to have died without withdrawing them, if it leaves
    /// those out of [`reports`](Self::reports). Default: none; a store that can't tell shows them there until they are
    /// too old.
    async fn departed(&self, max_age: Duration) -> Result<Vec<WorkerReport>> {
        let _of_any_age = max_age;
        Ok(Vec::new())
    }

    /// Returns the workers whose report is no older than `max_age`, ordered by worker id. A store
    /// that bills each read answers with as few as it can. Default: reads every report.
    async fn members(&self, max_age: Duration) -> Result<Vec<Member>> {
        Ok(self.reports(max_age).await?.iter().map(Member::from).collect())
    }
}
