//! What a drain did and how a worker ended: logged, stored and returned, never only counted.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What one drain did and how long each part took. All times are milliseconds after jobs were asked to yield, which is when
/// the notice was received, unless it left time before the drain.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DrainReport {
    /// The queue the worker takes jobs from; empty when unknown.
    pub queue: String,
    /// The notice's kind: `Preempt`, `Signal`, …
    pub notice: String,
    /// When it began, in milliseconds since the Unix epoch.
    pub at_unix_ms: i64,
    /// Deliveries held when it began.
    pub held: u64,
    /// Released before any step of them had run in this delivery.
    pub released_unstarted: u64,
    /// Released after their step yielded and their progress was saved.
    pub released_saved: u64,
    /// Released on their last checkpoint, because they had not yielded by the soft mark or could not save.
    pub released_cut: u64,
    /// Released while a save of theirs had not been answered: their progress may be saved, or not.
    pub released_unconfirmed: u64,
    /// Jobs that ended by themselves during the drain.
    pub finished: u64,
    /// Deliveries whose lease was lost before they could be released: somebody else has them, or will.
    pub leases_lost: u64,
    /// Deliveries that could not be released in time; their leases end by themselves.
    pub abandoned: u64,
    /// Tasks still running at the hard mark, though their messages are released: they never yielded.
    pub still_running: u64,
    /// Work since the last checkpoint of the jobs that were cut, in milliseconds, summed.
    pub work_lost_ms: u64,
    /// Work since the last confirmed checkpoint of the jobs whose save had not been answered, in milliseconds, summed. It may
    /// be saved, and is not counted as lost.
    pub work_unconfirmed_ms: u64,
    /// How long jobs that would be done in time were left to finish before the rest of it.
    pub patient_ms: u64,
    /// When the last delivery was released or given up.
    pub released_after_ms: u64,
    /// When the last task had stopped or was abandoned.
    pub quiesced_after_ms: u64,
    /// What was left of the budget then.
    pub budget_left_ms: u64,
}

/// Why a worker ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StopReason {
    /// A stop was asked for, and the drain ended.
    Drained,
    /// A second stop was asked for: what was held is left to its leases.
    Abandoned,
}

/// How a worker ended, and what it left behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stopped {
    /// Why.
    pub reason: StopReason,
    /// Jobs completed since it began.
    pub completed: u64,
    /// Deliveries released in drains since it began.
    pub released: u64,
    /// Deliveries left to their leases since it began.
    pub abandoned: u64,
    /// What was left of the last drain's budget.
    pub budget_left: Duration,
}
