//! What can be set about a worker, with every bound and its reason.

use std::time::Duration;

use crate::checkpoint::CheckpointEvery;
use crate::policy::Policy;

/// The longest lease: a Storage queue's longest visibility timeout is seven days.
/// <https://learn.microsoft.com/rest/api/storageservices/get-messages>
pub const LEASE_MAX: Duration = Duration::from_hours(7 * 24);

/// The shortest lease: a Storage queue's shortest visibility timeout.
pub const LEASE_MIN: Duration = Duration::from_secs(1);

/// A worker's settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// How many jobs run at once. Default: the number of cores, for jobs that compute. 1 to 4,096.
    pub concurrency: usize,
    /// The longest a drain may take after a notice, even when the notice leaves more. Default: 10 s, the time the guide
    /// to Spot workloads says to aim at, because a 30-second notice is often much shorter. At least 100 ms.
    pub budget: Duration,
    /// How long a message stays held after its last renewal. Default: 60 s: what an unannounced death costs the job in
    /// waiting, against one renewal per 20 s. Between 1 s and 7 days, and at least 1.5 times the budget, because a
    /// lease renewed a third of its length ago must outlast a drain.
    pub lease: Duration,
    /// How often progress is saved. Default: by what a save costs.
    pub checkpoint_every: CheckpointEvery,
    /// The kind of messages that are bare JSON. Default: none; they are dead-lettered.
    pub default_kind: Option<String>,
    /// What is done about the platform's events. Default: as [`Policy`] says.
    pub policy: Policy,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            concurrency: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            budget: Duration::from_secs(10),
            lease: Duration::from_mins(1),
            checkpoint_every: CheckpointEvery::Auto,
            default_kind: None,
            policy: Policy::default(),
        }
    }
}

impl Settings {
    /// Every fault at once, one sentence each; none when the settings are good.
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
            checkpoint_every: CheckpointEvery::Every(Duration::from_secs(86_401)),
            default_kind: None,
            policy: Policy { approve_wait: Duration::from_hours(2), ..Policy::default() },
        };
        assert_eq!(bad.check().len(), 5);
        let short = Settings { lease: Duration::from_secs(14), ..Settings::default() };
        assert!(short.check()[0].contains("1.5 times the budget"), "{:?}", short.check());
    }
}
