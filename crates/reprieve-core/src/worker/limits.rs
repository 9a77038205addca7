//! The limits of one kind of job: how many run at once, how long, and how often they fail.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::fleet_slots::SLOTS_MAX;
use super::shared::Kind;
use crate::chance;
use crate::context::{get, set};
use crate::ports::{LEASE_MAX, LimitedKind, Queue};
use crate::record::FAILED_MAX;
use crate::retry::bounded;

/// The shortest timeout: a worker looks at its jobs about once a second.
const TIMEOUT_MIN: Duration = Duration::from_secs(1);

/// How many messages over a limit a worker wants to see again in a second at least, so that a slot that
/// becomes free is soon taken.
const SEEN_AGAIN: f64 = 5.0;

/// How many messages over a limit a worker returns in a second at most. It costs a request each.
const RETURNS: f64 = 30.0;

/// About the shortest, and the longest mean time for which a message over a limit is deferred.
const DEFER_MIN: Duration = Duration::from_secs(5);
const DEFER_MAX: Duration = Duration::from_hours(24);

/// How often the worker asks how many messages the queue has, while it defers some.
const COUNT_EVERY: Duration = Duration::from_secs(30);

/// The longest wait for that number.
const COUNT_TRY: Duration = Duration::from_secs(2);

/// The limits of one kind of job. Set with
/// [`WorkerBuilder::limits`](super::WorkerBuilder::limits).
///
/// A message of a job that is over a limit is not held: it goes back to the queue and returns after a while,
/// at least five seconds, and longer the more messages wait, so that a worker returns no more than about 30
/// in a second, whatever the backlog. It costs the job no attempt. A limited kind with a large backlog is
/// better off in a queue of its own: a worker that has only kinds at their limits receives nothing.
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
            step_timeout: None,
            job_timeout: None,
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
            if let Some(timeout) = timeout.filter(|timeout| *timeout < TIMEOUT_MIN) {
                faults.push(format!("{name} is {timeout:?}, and must be at least 1s"));
            }
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

/// The jobs of one kind that hold a place under the limit of this worker.
#[derive(Debug, Default)]
pub(super) struct Gate {
    taken: AtomicUsize,
    /// How many messages went back because of a limit.
    deferred: AtomicU64,
}

/// A place under the limit of this worker, until it is dropped.
#[derive(Debug)]
pub(super) struct Place(Arc<Kind>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.gate.taken.fetch_sub(1, Relaxed);
    }
}

impl Kind {
    /// Takes a place; `None` if as many jobs run as may run in this worker.
    pub(super) fn take_place(self: &Arc<Self>) -> Option<Place> {
        let most = self.limits.per_worker.unwrap_or(usize::MAX);
        let more = |taken| (taken < most).then_some(taken + 1);
        self.gate.taken.fetch_update(Relaxed, Relaxed, more).ok().map(|_| Place(Arc::clone(self)))
    }

    /// Counts a message that went back because of a limit.
    pub(super) fn note_deferral(&self) {
        self.gate.deferred.fetch_add(1, Relaxed);
    }

    /// Returns its limits and how many jobs are under them; `None` for a kind with the default limits.
    pub(super) fn limited(&self) -> Option<LimitedKind> {
        if self.limits == Limits::default() {
            return None;
        }
        let Limits { per_worker, in_fleet, step_timeout, job_timeout, attempts, backoff, backoff_max } =
            self.limits;
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Some(LimitedKind {
            kind: self.name.to_owned(),
            running: self.gate.taken.load(Relaxed) as u64,
            deferred: self.gate.deferred.load(Relaxed),
            per_worker: per_worker.map(|most| most as u64),
            in_fleet,
            step_timeout_ms: step_timeout.map(millis),
            job_timeout_ms: job_timeout.map(millis),
            attempts,
            backoff_ms: millis(backoff),
            backoff_max_ms: millis(backoff_max),
        })
    }

    /// Returns how many jobs of this kind may be held now; `None` without a limit.
    fn open(&self) -> Option<usize> {
        let in_fleet = self.fleet.as_ref().zip(self.limits.in_fleet).map(|(slots, most)| {
            let taken = self.gate.taken.load(Relaxed);
            if slots.is_closed() { taken } else { usize::try_from(most).unwrap_or(usize::MAX) }
        });
        self.limits.per_worker.into_iter().chain(in_fleet).min()
    }

    /// Returns how many messages over a limit should return in a second: twice as many as jobs may end.
    pub(super) fn seen_again(&self) -> f64 {
        let most = self.limits.per_worker.into_iter().chain(self.limits.in_fleet.map(|most| most as usize));
        let (Some(most), Some(run)) = (most.min(), self.runs.mean()) else { return SEEN_AGAIN };
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let ends = most as f64 / run.as_secs_f64().max(0.001);
        (2.0 * ends).max(SEEN_AGAIN)
    }
}

/// Returns how many jobs of these kinds may be held at once; `None` if any kind has no limit.
pub(super) fn open(kinds: &[Arc<Kind>]) -> Option<usize> {
    kinds.iter().try_fold(0_usize, |sum, kind| Some(sum.saturating_add(kind.open()?)))
}

/// Returns how long the worker receives nothing for each message over a limit that it returned, so that it
/// returns no more than it should.
pub(super) fn pause_after_return(seen_again: f64) -> Duration {
    Duration::from_secs_f64(1.0 / RETURNS.max(2.0 * seen_again))
}

/// How many messages the queue has, asked now and then.
#[derive(Debug, Default)]
pub(super) struct Backlog(Mutex<Option<(Instant, u64)>>);

impl Backlog {
    /// Returns for how long a message over a limit is deferred, if so many are to return in a second.
    pub(super) async fn deferral(&self, queue: &dyn Queue, seen_again: f64) -> Duration {
        let known = get(&self.0);
        let count = match known {
            Some((at, count)) if at.elapsed() < COUNT_EVERY => count,
            _ => {
                let asked = bounded("count the messages", COUNT_TRY, queue.depth()).await;
                let count = asked.map_or(known.map_or(0, |(_, count)| count), |depth| depth.total);
                set(&self.0, Some((Instant::now(), count)));
                count
            }
        };
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let mean = (count as f64 / seen_again).min(DEFER_MAX.as_secs_f64());
        // Over the whole time, so that some of those that are deferred together return soon.
        DEFER_MIN.mul_f64(0.8 + 0.4 * chance::fraction())
            + Duration::from_secs_f64(2.0 * mean * chance::fraction())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_is_named() {
        assert_eq!(Limits::default().check(), Vec::<String>::new());
        let short = Some(Duration::from_millis(999));
        let bad = Limits {
            per_worker: Some(0),
            in_fleet: Some(1_001),
            step_timeout: short,
            job_timeout: short,
            attempts: 0,
            backoff: Duration::from_secs(2),
            backoff_max: Duration::from_secs(1),
        };
        assert_eq!(bad.check().len(), 6, "{:?}", bad.check());
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

    #[test]
    fn a_place_is_free_again_when_it_is_dropped() {
        let limits = Limits { per_worker: Some(2), ..Limits::default() };
        let kind = Arc::new(Kind::new("k", 1, limits));
        let (first, _second) = (kind.take_place().unwrap(), kind.take_place().unwrap());
        assert!(kind.take_place().is_none());
        assert_eq!(open(std::slice::from_ref(&kind)), Some(2));
        drop(first);
        assert!(kind.take_place().is_some());
        let other = Arc::new(Kind::new("o", 1, Limits::default()));
        assert_eq!(open(&[kind, other]), None, "an unlimited kind");
    }
}
