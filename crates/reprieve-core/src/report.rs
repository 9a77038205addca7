//! Reports of a drain and of a worker's end: logged, stored and returned, not only counted.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The counts and times of one drain. All times are in milliseconds since jobs were asked to yield:
/// at the notice, unless the notice left time before the drain.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DrainReport {
    /// The worker's queue; empty when unknown.
    pub queue: String,
    /// The notice's kind: `Preempt`, `Signal`, …
    pub notice: String,
    /// When the drain began, in milliseconds since the Unix epoch.
    pub at_unix_ms: i64,
    /// The lead time that the notice gave: from its receipt to its `NotBefore`. Zero of an event that had begun;
    /// `None` where nothing was announced, as of a signal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lead_ms: Option<u64>,
    /// Deliveries held when it began.
    pub held: u64,
    /// Released before any of their steps had run in this delivery.
    pub released_unstarted: u64,
    /// Released after their step yielded and their progress was saved.
    pub released_saved: u64,
    /// Released without a save, because they had not yielded by the soft mark or could not save;
    /// they resume at their last checkpoint.
    pub released_cut: u64,
    /// Released while a save had not been answered: their progress may be saved or not.
    pub released_unconfirmed: u64,
    /// Jobs that ended by themselves during the drain.
    pub finished: u64,
    /// Deliveries that lost their lease before they could be released: another worker has them, or
    /// will.
    pub leases_lost: u64,
    /// Deliveries that could not be released in time; their leases end by themselves.
    pub abandoned: u64,
    /// Tasks still running at the hard mark although their messages are released: they never
    /// yielded.
    pub still_running: u64,
    /// Work since the last checkpoint of the jobs that were cut, in milliseconds, summed.
    pub work_lost_ms: u64,
    /// Work since the last confirmed checkpoint of jobs with an unanswered save, in milliseconds,
    /// summed. It may be saved, and is not counted as lost.
    pub work_unconfirmed_ms: u64,
    /// Work of the released jobs, in these deliveries, that is saved, in milliseconds, summed.
    pub work_kept_ms: u64,
    /// How long jobs that would be done in time were left to finish before the rest of the drain.
    pub patient_ms: u64,
    /// When the last delivery was released or abandoned.
    pub released_after_ms: u64,
    /// When the last task had stopped or was abandoned.
    pub quiesced_after_ms: u64,
    /// The rest of the budget at that time.
    pub budget_left_ms: u64,
}

/// The reason why a worker ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StopReason {
    /// A stop was requested, and the drain ended.
    Drained,
    /// A second stop was requested: the held messages were left to their leases.
    Abandoned,
    /// Half of the worker's slots are stuck, or stuck ones hold the places of a kind with a limit: everything else was
    /// released, and the process should be started again. A slot of the fleet is free only when the process has ended.
    Stuck,
}

/// How a worker ended, and what it left behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stopped {
    /// The reason.
    pub reason: StopReason,
    /// Jobs completed since it began.
    pub completed: u64,
    /// Deliveries released in drains since it began.
    pub released: u64,
    /// Deliveries left to their leases since it began.
    pub abandoned: u64,
    /// The rest of the last drain's budget.
    pub budget_left: Duration,
    /// Entries of the ledger that this worker has not written as far as it knows, so that reports lack them: what failed in
    /// an outage that outlived the worker, what was not answered when it ended, and workers that may have died, at whom
    /// it could not look.
    pub missing_entries: u64,
}
