//! The limits of one kind of job: how many run at once, how long, and how often they fail.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::fleet_slots::SLOTS_MAX;
use crate::chance;
use crate::ports::LEASE_MAX;
use crate::record::FAILED_MAX;

/// The shortest timeout: a worker looks at its jobs about once a second.
const TIMEOUT_MIN: Duration = Duration::from_secs(1);

/// How many messages over a limit a worker wants to see again in a second at least, so that a slot that
/// becomes free is soon taken.
const SEEN_AGAIN: f64 = 5.0;

/// How many more than its jobs end in a second at most. These find no place: half of what [`RETURNS`] allows, and
/// the other half is for those that it has not seen yet.
const IN_VAIN_MOST: f64 = 150.0;

/// How many messages over a limit a worker returns in a second at most. It costs a request each. Few of them come
/// back in a second, because they are deferred for long; the others are new to it, and all that lies behind them
/// waits for this.
const RETURNS: u32 = 300;

/// The mean time for which messages over a limit are deferred, unless more than [`SEEN_AGAIN_MAX`] would
/// return in a second then.
const DEFER_SHORT: Duration = Duration::from_mins(1);
const SEEN_AGAIN_MAX: f64 = 8.0;

/// The shortest `stall_after`: a look each second, and a pause between two moves that is no stall.
const STALL_MIN: Duration = Duration::from_secs(10);

/// The longest timeout.
const TIMEOUT_MAX: Duration = Duration::from_hours(365 * 24);

/// About the shortest, and the longest mean time for which a message over a limit is deferred.
const DEFER_MIN: Duration = Duration::from_secs(5);
const DEFER_MAX: Duration = Duration::from_hours(24);

/// The limits of one kind of job. Set with
/// [`WorkerBuilder::limits`](super::WorkerBuilder::limits).
///
/// A message of a job that is over a limit is not held: it goes back to the queue and returns after a while,
/// at least five seconds, and longer the more of them were deferred, so that about eight come back in a second,
/// whatever the backlog, or two to five times as many as jobs of the kind end, and at most 150 more than end. A worker
/// returns no more than 300 in a second, and one for each message that it does not return. It costs the job no attempt. A limited kind with a large backlog is better off in a queue of its own: a
/// worker that has only kinds at their limits receives nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// How many jobs of this kind run at once in this worker. Default: `None`, as many as it has slots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_worker: Option<usize>,
    /// How many run at once in all workers of the store, 1 to 1,000. Default: `None`. Each running job holds
    /// one of as many slots in the store, by a lease as long as that of its message; the slot of a worker
    /// that died is free when that has ended. It costs three requests for each job, and one for each renewal.
    /// All workers must agree on the number: while they don't, the largest counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_fleet: Option<u32>,
    /// The memory that one job takes at most, in bytes. Default: `None`. It is no limit that is enforced: with
    /// [`Settings::memory_reserve`](super::Settings::memory_reserve), no job begins whose memory would not leave
    /// the reserve. Without it, what jobs of the kind take is measured, by the memory of this process: set it for
    /// jobs that start other processes, or that take their memory late.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// How long one step may take. Default: `None`. A step that takes longer is dropped at its next `.await`,
    /// and its job fails with its progress up to the last save. One that blocks its thread writes nothing
    /// any more, and keeps its slot until it returns. At least 1 s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_timeout: Option<Duration>,
    /// How long an attempt of a job may run, over all machines, without the time in which it waits.
    /// Default: `None`. Then it fails, and the next attempt continues from its last save with the time anew.
    /// Unlike other failures, these are counted even if the job makes progress. At least 1 s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_timeout: Option<Duration>,
    /// How long a step may make no save and no progress. Default: `None`: a job that stands still is shown, and
    /// nothing is done to it. Then the job is asked to yield, is saved if it does within three seconds, and cut off
    /// else; its delivery has failed. Only time in steps counts, and none in which a call to the store fails: a
    /// step that calls [`JobContext::progress`](crate::JobContext::progress) more often may take as long as it
    /// likes. At least 10 s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stall_after: Option<Duration>,
    /// How many deliveries may fail without progress before the job goes to the poison queue. Default: 5. At
    /// least 1.
    pub attempts: u32,
    /// The delay after the first failure. After each further one it is four times as long, and up to half of
    /// it more at random. Default: 1 s.
    pub backoff: Duration,
    /// The longest of these delays. Default: 5 min. At most seven days.
    pub backoff_max: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            per_worker: None,
            in_fleet: None,
            memory: None,
            step_timeout: None,
            job_timeout: None,
            stall_after: None,
            attempts: FAILED_MAX,
            backoff: Duration::from_secs(1),
            backoff_max: Duration::from_mins(5),
        }
    }
}

impl Limits {
    /// Returns every fault at once, one sentence each; empty when the limits are valid.
    #[must_use]
    pub fn check(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.per_worker == Some(0) {
            faults.push("per-worker is 0, and must be at least 1".to_owned());
        }
        if let Some(count) = self.in_fleet.filter(|count| !(1..=SLOTS_MAX).contains(count)) {
            faults.push(format!("in-fleet is {count}, and must be from 1 to {SLOTS_MAX}"));
        }
        for (name, timeout) in [("step-timeout", self.step_timeout), ("job-timeout", self.job_timeout)] {
            if let Some(timeout) = timeout.filter(|timeout| !(TIMEOUT_MIN..=TIMEOUT_MAX).contains(timeout)) {
                faults.push(format!("{name} is {timeout:?}, and must be from 1s to 365 days"));
            }
        }
        if let Some(after) = self.stall_after.filter(|after| !(STALL_MIN..=TIMEOUT_MAX).contains(after)) {
            faults.push(format!("stall-after is {after:?}, and must be from 10s to 365 days"));
        }
        if self.attempts == 0 {
            faults.push("attempts is 0, and must be at least 1".to_owned());
        }
        if self.backoff > self.backoff_max || self.backoff_max > LEASE_MAX {
            faults.push(format!(
                "backoff is {:?} and backoff-max {:?}; they must be in this order, and at most 7 days",
                self.backoff, self.backoff_max
            ));
        }
        faults
    }

    /// Returns how long a job waits before its next try after `failed` failures and one more.
    pub(super) fn delay_after(&self, failed: u32) -> Duration {
        let base = self.backoff.saturating_mul(4_u32.saturating_pow(failed)).min(self.backoff_max);
        base.mul_f64(1.0 + chance::fraction() / 2.0).min(LEASE_MAX)
    }
}

/// How long the worker receives nothing for each message over a limit that it returned, so that it returns
/// no more than it should.
pub(super) const PAUSE_AFTER_RETURN: Duration = Duration::from_secs(1).checked_div(RETURNS).unwrap();

/// The messages of one kind that this worker has deferred because of a limit and that have not returned,
/// by when they do.
#[derive(Debug, Default)]
pub(super) struct Backlog(Mutex<BinaryHeap<Reverse<Instant>>>);

impl Backlog {
    /// Returns those that have not returned.
    fn away(&self) -> MutexGuard<'_, BinaryHeap<Reverse<Instant>>> {
        let mut returns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        while returns.peek().is_some_and(|first| first.0 <= now) {
            returns.pop();
        }
        returns
    }

    /// Whether all have returned.
    pub(super) fn is_empty(&self) -> bool {
        self.away().is_empty()
    }

    /// Returns for how long one more message is deferred, where `kinds` kinds have some that are: `ends` jobs
    /// of this one ended in a second lately, and `limit` may run at once. At most for `longest`.
    pub(super) fn deferral(&self, ends: f64, limit: usize, kinds: usize, longest: Duration) -> Duration {
        let (now, mut returns) = (Instant::now(), self.away());
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let (away, kinds) = (returns.len() as f64, kinds.max(1) as f64);
        let few = SEEN_AGAIN.max((away / DEFER_SHORT.as_secs_f64()).min(SEEN_AGAIN_MAX)) / kinds;
        let rate = few.max(keeping_up(ends, limit).min(ends + IN_VAIN_MOST / kinds));
        let mean = (away / rate).min(DEFER_MAX.as_secs_f64());
        // Over the whole time, so that some of those that are deferred together return soon.
        let delay = DEFER_MIN.mul_f64(0.8 + 0.4 * chance::fraction())
            + Duration::from_secs_f64(2.0 * mean * chance::fraction());
        let delay = delay.min(longest);
        returns.push(Reverse(now + delay));
        delay
    }
}

/// Returns how many messages must return in a second, at random, so that at least five of six times a place
/// that becomes free is taken before the time of one more job has passed: if one job may run at a time, five for
/// each that ends, and if many may, two. By the loss formula of Erlang.
fn keeping_up(ends: f64, limit: usize) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    let more = 4.0 / limit.max(1) as f64;
    ends * (1.0 + more.max(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The messages that return in the second half of the time, in a second, of 2,000 that were deferred.
    fn returning(ends: f64, limit: usize, kinds: usize) -> f64 {
        let backlog = Backlog::default();
        for _ in 0..2_000 {
            let _delay = backlog.deferral(ends, limit, kinds, LEASE_MAX);
        }
        let last = backlog.deferral(ends, limit, kinds, LEASE_MAX);
        let longest = backlog.away().iter().map(|at| at.0 - Instant::now()).max().unwrap();
        assert!(last <= longest);
        4_000.0 / (longest.as_secs_f64() - DEFER_MIN.as_secs_f64())
    }

    #[tokio::test(start_paused = true)]
    async fn as_many_return_as_places_become_free_and_a_bounded_number_more() {
        for (ends, limit, kinds, rate) in [
            (0.0, 1, 1, 8.0),
            (0.5, 1, 1, 8.0),
            (0.0, 1, 2, 4.0),
            (8.0, 1, 1, 40.0),
            (8.0, 8, 1, 16.0),
            (80.0, 8, 1, 160.0),
            (80.0, 8, 3, 130.0),
            (500.0, 32, 1, 650.0),
        ] {
            let seen = returning(ends, limit, kinds);
            assert!((rate * 0.6..rate * 1.3).contains(&seen), "{ends} end, {limit} at once, {kinds}: {seen}");
        }
    }

    #[test]
    fn every_fault_is_named() {
        assert_eq!(Limits::default().check(), Vec::<String>::new());
        let short = Some(Duration::from_millis(999));
        let bad = Limits {
            per_worker: Some(0),
            in_fleet: Some(1_001),
            memory: None,
            step_timeout: short,
            job_timeout: short,
            stall_after: short,
            attempts: 0,
            backoff: Duration::from_secs(2),
            backoff_max: Duration::from_secs(1),
        };
        assert_eq!(bad.check().len(), 7, "{:?}", bad.check());
    }

    #[test]
    fn the_delay_grows_fourfold_up_to_its_limit() {
        let twice = Limits { backoff: Duration::from_secs(2), ..Limits::default() };
        let cases = [
            (Limits::default(), [(0, 1), (1, 4), (2, 16), (3, 64), (4, 256), (5, 300), (u32::MAX, 300)]),
            (twice, [(0, 2), (1, 8), (2, 32), (3, 128), (4, 300), (5, 300), (u32::MAX, 300)]),
        ];
        for (limits, delays) in cases {
            for (failed, base) in delays {
                let (delay, base) = (limits.delay_after(failed), Duration::from_secs(base));
                assert!((base..=base.mul_f64(1.5)).contains(&delay), "{failed}: {delay:?}");
            }
        }
    }
}
