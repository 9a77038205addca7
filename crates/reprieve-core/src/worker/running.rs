//! The jobs that this worker runs now, and the measured times of each kind.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::measure::Recent;
use crate::context::{JobRun, get};
use crate::ids::JobId;
use crate::ports::InFlight;

/// How long a kind's measurements count: longer than the longest time between two saves.
pub(super) const KEPT: Duration = Duration::from_hours(1);

/// One kind of job.
#[derive(Debug)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) schema: u32,
    /// The measured times of checkpoint saves of this kind.
    pub(crate) saves: Recent,
    /// The run times of this kind's jobs that finished in their first delivery.
    pub(crate) runs: Recent,
}

impl Kind {
    pub(super) fn new(name: &'static str, schema: u32) -> Self {
        Self { name, schema, saves: Recent::new(KEPT), runs: Recent::new(KEPT) }
    }
}

/// A delivery in flight, as the worker shows it.
#[derive(Debug)]
pub(super) struct RunningJob {
    kind: Arc<Kind>,
    run: Arc<JobRun>,
}

impl RunningJob {
    pub(super) fn new(kind: &Arc<Kind>, run: &Arc<JobRun>) -> Self {
        Self { kind: Arc::clone(kind), run: Arc::clone(run) }
    }

    pub(super) fn in_flight(&self) -> InFlight {
        InFlight {
            job: self.run.job.clone(),
            kind: self.kind.name.to_owned(),
            delivery: self.run.delivery,
            progress: self.run.progress(),
            steps: self.run.steps.load(Relaxed),
            since_unix_ms: self.run.since_unix_ms,
        }
    }

    pub(super) fn is_of(&self, job: &JobId) -> bool {
        self.run.job == *job
    }

    /// Returns when its lease ends.
    pub(super) fn lease_ends(&self) -> Instant {
        self.run.lease_ends.get()
    }

    /// Returns the job's kind.
    pub(super) fn kind(&self) -> &'static str {
        self.kind.name
    }

    /// Reports whether the job has been running for longer than `time`.
    pub(super) fn runs_longer_than(&self, time: Duration) -> bool {
        get(&self.run.began).is_some_and(|began| began.elapsed() > time)
    }
}

/// The deliveries in flight with readable messages, by number.
#[derive(Debug, Default)]
pub(super) struct RunningJobs(Mutex<(u64, BTreeMap<u64, RunningJob>)>);

impl RunningJobs {
    fn lock(&self) -> MutexGuard<'_, (u64, BTreeMap<u64, RunningJob>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns their number.
    pub(super) fn len(&self) -> usize {
        self.lock().1.len()
    }

    /// Applies `look` to each.
    pub(super) fn map<T>(&self, look: impl Fn(&RunningJob) -> T) -> Vec<T> {
        self.lock().1.values().map(look).collect()
    }

    /// Returns how many fulfil `condition`.
    pub(super) fn count(&self, condition: impl Fn(&RunningJob) -> bool) -> usize {
        self.lock().1.values().filter(|job| condition(job)).count()
    }

    /// Adds a job, and returns the number under which to remove it.
    pub(super) fn add(&self, job: RunningJob) -> u64 {
        let mut jobs = self.lock();
        jobs.0 += 1;
        let number = jobs.0;
        jobs.1.insert(number, job);
        number
    }

    pub(super) fn remove(&self, number: u64) {
        self.lock().1.remove(&number);
    }
}
