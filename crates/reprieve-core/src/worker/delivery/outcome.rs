//! The outcome of one delivery, for reports and metrics.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::executor::RunOutcome;
use crate::chance;
use crate::error::{ErrorKind, Result};

/// The outcome of a delivery, for metrics and reports. Only `Retried` and `DeadLettered` are
/// failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// The job is finished and its message deleted.
    Completed,
    /// A second message of a job that is settled; it is deleted.
    Duplicate,
    /// A step failed; the job is tried again.
    Retried,
    /// The message is in the poison queue.
    DeadLettered,
    /// Released before any step had run.
    Unstarted,
    /// Released with its progress saved.
    Saved,
    /// Released without a save; it resumes at its last checkpoint.
    Cut,
    /// Released while a save had not been answered: the progress may be saved or not.
    Unconfirmed,
    /// Released with a delay: a newer binary must run the job, another message of the job is being
    /// worked on, or the job takes longer than this machine may last.
    Deferred,
    /// The lease was lost, and nothing was settled.
    LeaseLost,
    /// Could not be settled; the message returns when its lease ends.
    Abandoned,
}

impl Outcome {
    /// Returns the outcome's metric label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Duplicate => "duplicate",
            Self::Retried => "retried",
            Self::DeadLettered => "dead_lettered",
            Self::Unstarted => "unstarted",
            Self::Saved => "saved",
            Self::Cut => "cut",
            Self::Unconfirmed => "unconfirmed",
            Self::Deferred => "deferred",
            Self::LeaseLost => "lease_lost",
            Self::Abandoned => "abandoned",
        }
    }
}

/// The writes that remain when a guardian has ended.
pub(super) type Epilogue = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A guardian's report to the dispatcher when it ends.
pub(in crate::worker) struct DeliveryReport {
    pub(in crate::worker) kind: String,
    pub(in crate::worker) outcome: Outcome,
    /// When the message was settled or given up.
    pub(in crate::worker) settled_at: Instant,
    /// The job's task, when it was given up and may still run.
    pub(in crate::worker) task: Option<JoinHandle<RunOutcome>>,
    /// Work that was not saved, or is not known to be saved.
    pub(in crate::worker) work_at_stake: Duration,
    /// The job takes longer than this machine may last.
    pub(in crate::worker) too_long: bool,
    /// The remaining writes, which the worker does not wait for.
    pub(in crate::worker) epilogue: Option<Epilogue>,
}

impl DeliveryReport {
    /// Returns a report with `outcome` if the message was settled, else with the outcome of the
    /// failure.
    pub(super) fn new(kind: &str, outcome: Outcome, settled: &Result<()>) -> Self {
        match settled {
            Ok(()) => Self::ended(kind, outcome),
            Err(error) if error.kind() == ErrorKind::LeaseLost => Self::ended(kind, Outcome::LeaseLost),
            Err(_) => Self::ended(kind, Outcome::Abandoned),
        }
    }

    /// Returns a report with `outcome`.
    pub(super) fn ended(kind: &str, outcome: Outcome) -> Self {
        Self {
            kind: kind.to_owned(),
            outcome,
            settled_at: Instant::now(),
            task: None,
            work_at_stake: Duration::ZERO,
            too_long: false,
            epilogue: None,
        }
    }
}

impl fmt::Debug for DeliveryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeliveryReport")
            .field("kind", &self.kind)
            .field("outcome", &self.outcome)
            .finish_non_exhaustive()
    }
}

/// Returns how long a job waits before its next try after its `failed`-th failure: 1 s, 4 s, 16 s,
/// 64 s, at most 5 min, and up to half of it more at random, so that jobs that failed together do
/// not return together.
pub(super) fn retry_delay(failed: u32) -> Duration {
    let base = Duration::from_secs(1).saturating_mul(4_u32.saturating_pow(failed.saturating_sub(1)));
    base.min(Duration::from_mins(5)).mul_f64(1.0 + chance::fraction() / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_come_later_and_later_but_never_much_over_five_minutes() {
        for (failed, least) in [(0, 1), (1, 1), (2, 4), (3, 16), (4, 64), (5, 256), (6, 300), (u32::MAX, 300)]
        {
            let delay = retry_delay(failed);
            let least = Duration::from_secs(least);
            assert!((least..=least.mul_f64(1.5)).contains(&delay), "after {failed} failures: {delay:?}");
        }
    }
}
