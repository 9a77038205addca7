//! A worker's settings, with every bound and its reason.

use std::time::Duration;

use crate::checkpoint::CheckpointEvery;
use crate::interruption::Policy;
use crate::ports::{LEASE_MAX, LEASE_MIN};
use crate::pressure::{MemoryReserve, OnPressure};
use crate::retention::Keep;

/// The longest time for which a message that no worker can use may be deferred: 30 days.
const UNKNOWN_KIND_AFTER_MAX: Duration = Duration::from_hours(720);

/// The longest time for which finished jobs may be remembered: a year.
const REMEMBER_DONE_MAX: Duration = Duration::from_hours(8760);

/// How long a job with arguments or state that do not fit its kind is deferred: as long as a
/// rolling update takes.
const MISFIT_AFTER: Duration = Duration::from_mins(10);

/// A worker's settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The number of jobs that run at once. Default: the number of cores, for jobs that compute. 1
    /// to 4,096.
    pub concurrency: usize,
    /// The longest time that a drain may take after a notice, even when the notice leaves more.
    /// Default: 10 s, which the guide to Spot workloads recommends, because a 30-second notice is
    /// often much shorter. At least 100 ms.
    pub budget: Duration,
    /// How long a message stays leased after its last renewal. Default: 60 s, which is how long a
    /// job waits after an unannounced death; it costs one renewal per 20 s. Between 1 s and 7 days,
    /// and at least 1.5 times the budget, because a lease renewed a third of its length ago must
    /// outlast a drain.
    pub lease: Duration,
    /// How often progress is saved. Default: [`Auto`](CheckpointEvery::Auto), by the cost of a
    /// save.
    pub checkpoint_every: CheckpointEvery,
    /// The kind of messages that are bare JSON. Default: none; such messages are dead-lettered.
    pub default_kind: Option<String>,
    /// How long a message of unknown kind, or with an unreadable body, is deferred before it is
    /// dead-lettered. Default: 24 h, so that a worker that knows the kind can still be deployed. A
    /// job with arguments or state that do not fit its kind is dead-lettered after ten minutes, or
    /// after this time if it is shorter.
    pub unknown_kind_after: Duration,
    /// What to do with messages of other programs that expire. Default: [`Replace`](Expiring::Replace).
    pub expiring: Expiring,
    /// How long a finished job is remembered, so that a second message of it is deleted and not run
    /// again, even when the job has no result. Costs a read before and a write after every job.
    /// Default: zero, which disables it.
    pub remember_done: Duration,
    /// For how long the store keeps what is of use to people only. An idle worker removes the rest.
    /// Default: see [`Keep`].
    pub keep: Keep,
    /// What the worker does under pressure on its machine. Default: [`Save`](OnPressure::Save). Without a
    /// [`Machine`](crate::pressure::Machine) there is none.
    pub on_pressure: OnPressure,
    /// The memory that no further job may take, so that the kernel kills none. Default: `None`, which begins
    /// jobs whatever they take. See [`Limits::memory`](super::Limits::memory).
    pub memory_reserve: Option<MemoryReserve>,
    /// The worker's reactions to the platform's events. Default: see [`Policy`].
    pub policy: Policy,
}

/// What to do with a message that another program sent with a time to live. The queue deletes it when
/// that ends, also while its job runs; a Storage queue's default is seven days.
/// <https://learn.microsoft.com/rest/api/storageservices/put-message>
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Expiring {
    /// Replaces it by one that does not expire before its job begins: the same job in the next
    /// generation, as after a redrive. This takes seven more requests, and the job's record is kept for a
    /// week. A second message of a job that another one has is left as it is.
    #[default]
    Replace,
    /// Runs its job as it is, and logs how long it has left.
    Keep,
}

/// The number of cores of this machine, or of its share that this process may use.
pub(super) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            concurrency: cores(),
            budget: Duration::from_secs(10),
            lease: Duration::from_mins(1),
            checkpoint_every: CheckpointEvery::Auto,
            default_kind: None,
            unknown_kind_after: Duration::from_hours(24),
            expiring: Expiring::default(),
            remember_done: Duration::ZERO,
            keep: Keep::default(),
            on_pressure: OnPressure::default(),
            memory_reserve: None,
            policy: Policy::default(),
        }
    }
}

impl Settings {
    /// Returns how long a job with arguments or state that do not fit its kind is deferred.
    pub(super) fn misfit_after(&self) -> Duration {
        self.unknown_kind_after.min(MISFIT_AFTER)
    }

    /// Returns every fault at once, one sentence each; empty when the settings are valid.
    #[must_use]
    pub fn check(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if !(1..=4096).contains(&self.concurrency) {
            faults.push(format!("concurrency is {}, and must be from 1 to 4096", self.concurrency));
        }
        if self.budget < Duration::from_millis(100) {
            faults.push(format!("budget is {:?}, and must be at least 100ms", self.budget));
        }
        if !(LEASE_MIN..=LEASE_MAX).contains(&self.lease) {
            faults.push(format!("lease is {:?}, and must be from 1s to 7 days", self.lease));
        } else if self.lease < self.budget.saturating_add(self.budget / 2) {
            faults.push(format!(
                "lease is {:?}, and must be at least 1.5 times the budget of {:?} to outlast a drain",
                self.lease, self.budget
            ));
        }
        if let CheckpointEvery::Every(every) = self.checkpoint_every
            && every > Duration::from_hours(24)
        {
            faults.push(format!("checkpoint-every is {every:?}, and must be at most a day"));
        }
        if self.unknown_kind_after > UNKNOWN_KIND_AFTER_MAX {
            faults.push(format!(
                "unknown-kind-after is {:?}, and must be at most 720h",
                self.unknown_kind_after
            ));
        }
        if self.remember_done > REMEMBER_DONE_MAX {
            faults.push(format!("remember-done is {:?}, and must be at most 8760h", self.remember_done));
        }
        if let Some(MemoryReserve::Percent(percent)) = self.memory_reserve
            && percent > 90
        {
            faults.push(format!("memory-reserve is {percent}%, and must be at most 90%"));
        }
        faults.extend(self.keep.check());
        faults.extend(self.policy.check());
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_good_and_every_fault_is_named_at_once() {
        assert_eq!(Settings::default().check(), Vec::<String>::new());
        let bad = Settings {
            concurrency: 0,
            budget: Duration::ZERO,
            lease: Duration::from_millis(10),
            unknown_kind_after: Duration::from_hours(721),
            remember_done: Duration::from_hours(9_000),
            checkpoint_every: CheckpointEvery::Every(Duration::from_secs(86_401)),
            policy: Policy { approve_wait: Duration::from_hours(2), ..Policy::default() },
            ..Settings::default()
        };
        assert_eq!(bad.check().len(), 7);
        let short = Settings { lease: Duration::from_secs(14), ..Settings::default() };
        assert!(short.check()[0].contains("1.5 times the budget"), "{:?}", short.check());
    }
}
