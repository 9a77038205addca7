//! How one delivery ended.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::runner::Ran;
use crate::settle::Settled;

/// How a delivery ended, for metrics and reports. Only `Retried` and `DeadLettered` are failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// The job is finished and its message deleted.
    Completed,
    /// A step failed; the job is tried again.
    Retried,
    /// The message is in the poison queue.
    DeadLettered,
    /// Given back before a step of it had run.
    Unstarted,
    /// Given back with its progress saved.
    Saved,
    /// Given back on its last checkpoint.
    Cut,
    /// Put back: it is for a newer binary, or the job has another message that is being worked on, or it takes longer than
    /// this machine may be there.
    Deferred,
    /// The lease was lost; nothing was settled.
    LeaseLost,
    /// Could not be settled; the message comes back when its lease ends.
    Abandoned,
}

impl Outcome {
    /// The outcome as it is written in metric labels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Retried => "retried",
            Self::DeadLettered => "dead_lettered",
            Self::Unstarted => "unstarted",
            Self::Saved => "saved",
            Self::Cut => "cut",
            Self::Deferred => "deferred",
            Self::LeaseLost => "lease_lost",
            Self::Abandoned => "abandoned",
        }
    }
}

/// What the control loop is told when a guardian ends.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) kind: String,
    pub(super) outcome: Outcome,
    /// When the message was settled or given up.
    pub(super) settled_at: Instant,
    /// The job's task, when it was given up and may run on.
    pub(super) task: Option<JoinHandle<Ran>>,
    /// Work that was not saved.
    pub(super) work_lost: Duration,
    /// The job takes longer than this machine may be there.
    pub(super) too_long: bool,
}

impl Ended {
    /// An end with `outcome`, if the settling of it worked.
    pub(super) fn new(kind: &str, outcome: Outcome, settled: &Settled) -> Self {
        let outcome = match settled {
            Settled::Done => outcome,
            Settled::LeaseLost => Outcome::LeaseLost,
            Settled::GaveUp(_) => Outcome::Abandoned,
        };
        Self {
            kind: kind.to_owned(),
            outcome,
            settled_at: Instant::now(),
            task: None,
            work_lost: Duration::ZERO,
            too_long: false,
        }
    }
}

/// How long a job waits before its next try after its `failed`-th failure: 1 s, 4 s, 16 s, 64 s, never over five
/// minutes, and up to half of it more at random so that jobs that failed together do not come back together.
pub(super) fn retry_delay(failed: u32) -> Duration {
    let base = Duration::from_secs(1).saturating_mul(4_u32.saturating_pow(failed.saturating_sub(1)));
    base.min(Duration::from_mins(5)).mul_f64(1.0 + rand::random::<f64>() / 2.0)
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
