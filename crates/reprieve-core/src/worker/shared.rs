//! The state that all parts of one worker share.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use super::capacity::Capacity;
use super::delivery::{Registry, RunningJob};
use super::isolation::Isolation;
use super::measure::Recent;
use super::rules::Rules;
use super::settings::Settings;
use crate::ids::WorkerId;
use crate::ports::{DeferredMessage, Store};
use crate::telemetry::Telemetry;
use crate::watch;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) worker: WorkerId,
    pub(super) settings: Settings,
    pub(super) store: Store,
    /// The store for drains, through clients that give up sooner.
    pub(super) drain_store: Store,
    pub(super) registry: Registry,
    pub(super) telemetry: Arc<Telemetry>,
    /// The runtime for jobs.
    pub(super) jobs: Handle,
    /// One permit for each job that may run at once. A job's task holds it until the task really
    /// ends.
    pub(super) slots: Arc<Semaphore>,
    /// Guardians with a job in a slot. Any further slot in use belongs to a task that was given up
    /// and still runs.
    pub(super) guarded: AtomicUsize,
    /// For each part of the queue, one permit for each release that may be under way at once in a
    /// drain. A part that does not answer does not delay the others.
    pub(super) releases: Vec<Arc<Semaphore>>,
    /// Lets a job run alone.
    pub(super) isolation: Arc<Isolation>,
    /// The number of deliveries that were numbered.
    pub(super) numbers: AtomicU64,
    /// Messages that this worker could not use.
    pub(super) deferred: Deferred,
    /// The times of single calls that settled a message.
    pub(super) settlements: Recent,
    /// The run times of jobs that finished in their first delivery.
    pub(super) runs: Recent,
    /// The deliveries in flight, for the roster.
    pub(super) roll: Roll,
    /// The current rules for running jobs and held leases.
    pub(super) rules: watch::Sender<Rules>,
}

impl Shared {
    /// Returns the number of slots occupied by tasks that were given up and have not ended.
    pub(super) fn stuck(&self) -> usize {
        let taken = self.settings.concurrency.saturating_sub(self.slots.available_permits());
        taken.saturating_sub(self.guarded.load(Relaxed))
    }

    /// Returns a number for a delivery, unique in this worker.
    pub(super) fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Relaxed)
    }

    /// Returns the length of a lease that is taken or renewed now.
    pub(super) fn lease(&self) -> std::time::Duration {
        self.rules.get().lease(&self.settings)
    }

    /// Returns the inputs of the worker's capacity when `slow` of the running jobs are long ones.
    pub(super) fn capacity(&self, slow: usize) -> Capacity {
        Capacity {
            concurrency: self.settings.concurrency.saturating_sub(self.stuck()),
            slow,
            batch: self.store.queue.batch_max(),
            budget: self.settings.budget,
            release: self.settlements.p95(),
            run: self.runs.mean(),
        }
    }
}

/// The deliveries in flight.
#[derive(Debug, Default)]
pub(super) struct Roll(Mutex<(u64, BTreeMap<u64, RunningJob>)>);

/// A delivery's entry among those in flight, removed when dropped.
#[derive(Debug)]
pub(super) struct Place {
    shared: Arc<Shared>,
    number: u64,
}

impl Roll {
    fn lock(&self) -> MutexGuard<'_, (u64, BTreeMap<u64, RunningJob>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns their number.
    pub(super) fn len(&self) -> usize {
        self.lock().1.len()
    }

    /// Applies `look` to every running job.
    pub(super) fn cards<T>(&self, look: impl Fn(&RunningJob) -> T) -> Vec<T> {
        self.lock().1.values().map(look).collect()
    }
}

impl Place {
    pub(super) fn take(shared: &Arc<Shared>, job: RunningJob) -> Self {
        // If this worker can't use the message again, it is noted again.
        shared.deferred.forget(job.in_flight().job.as_str());
        let mut roll = shared.roll.lock();
        roll.0 += 1;
        let number = roll.0;
        roll.1.insert(number, job);
        drop(roll);
        Self { shared: Arc::clone(shared), number }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shared.roll.lock().1.remove(&self.number);
    }
}

/// The messages that this worker received recently and could not use, for the roster.
#[derive(Debug, Default)]
pub(super) struct Deferred(Mutex<BTreeMap<String, DeferredMessage>>);

/// The most deferred messages that a worker shows.
const DEFERRED_MAX: usize = 32;

impl Deferred {
    pub(super) fn note(&self, message: DeferredMessage) {
        let mut messages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if messages.len() < DEFERRED_MAX || messages.contains_key(&message.job) {
            messages.insert(message.job.clone(), message);
        }
    }

    /// Removes the message of a job that is running or settled.
    pub(super) fn forget(&self, job: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(job);
    }

    /// Returns the messages to show.
    pub(super) fn shown(&self, now_unix_ms: i64) -> Vec<DeferredMessage> {
        let mut messages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        messages.retain(|_, message| !message.is_gone(now_unix_ms));
        messages.values().cloned().collect()
    }
}
