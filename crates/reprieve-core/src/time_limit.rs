//! The timeouts of a job, against the time that it runs.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::mutex::{get, set};

/// How much longer than its timeout a step that blocks its thread may run before its job is given up.
const GRACE: Duration = Duration::from_secs(2);

/// The timeout that has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimedOut {
    /// A step, or the time since it saved.
    Step(Duration),
    /// An attempt of the job.
    Job(Duration),
}

impl TimedOut {
    /// The reason of the failure, in one sentence.
    pub(crate) fn reason(self) -> String {
        match self {
            Self::Step(limit) => format!("a step took longer than its timeout of {limit:?}"),
            Self::Job(limit) => format!("the job ran for longer than its timeout of {limit:?}"),
        }
    }
}

/// How long one run of a job may still take.
#[derive(Debug, Default)]
pub(crate) struct TimeLimit {
    step: Option<Duration>,
    job: Option<Duration>,
    /// How long the attempt ran on other machines, as far as it was saved.
    before: Mutex<Duration>,
    /// When the step that runs must have ended.
    up: Mutex<Option<(Instant, TimedOut)>>,
}

impl TimeLimit {
    pub(crate) const fn new(step: Option<Duration>, job: Option<Duration>) -> Self {
        Self { step, job, before: Mutex::new(Duration::ZERO), up: Mutex::new(None) }
    }

    /// Whether there is a timeout.
    pub(crate) const fn is_some(&self) -> bool {
        self.step.is_some() || self.job.is_some()
    }

    /// Whether the time of an attempt is limited, so that it is to be saved.
    pub(crate) const fn is_of_job(&self) -> bool {
        self.job.is_some()
    }

    /// Notes how long the attempt ran before.
    pub(crate) fn ran_before(&self, before: Duration) {
        set(&self.before, before);
    }

    /// Returns how long the attempt has run, if this run of it began then.
    pub(crate) fn ran(&self, began: Option<Instant>) -> Duration {
        get(&self.before) + began.map_or(Duration::ZERO, |began| began.elapsed())
    }

    /// Begins a step, of a run that began at `began`, or its time anew after it saved. Returns when it must
    /// have ended.
    pub(crate) fn begin_step(&self, began: Option<Instant>) -> Option<Instant> {
        let now = Instant::now();
        let of_step = self.step.map(|limit| (now + limit, TimedOut::Step(limit)));
        let of_job =
            self.job.map(|limit| (now + limit.saturating_sub(self.ran(began)), TimedOut::Job(limit)));
        let up = of_step.into_iter().chain(of_job).min_by_key(|(at, _)| *at);
        set(&self.up, up);
        up.map(|(at, _)| at)
    }

    /// Returns the timeout of the job, if the attempt has run for so long.
    pub(crate) fn of_job_passed(&self, began: Option<Instant>) -> Option<TimedOut> {
        self.job.filter(|limit| self.ran(began) >= *limit).map(TimedOut::Job)
    }

    /// Ends the step.
    pub(crate) fn end_step(&self) {
        set(&self.up, None);
    }

    /// Returns the timeout of the step that runs.
    pub(crate) fn of_step(&self) -> Option<TimedOut> {
        get(&self.up).map(|(_, what)| what)
    }

    /// Returns when the job is given up if its step has not ended.
    pub(crate) fn gives_up_at(&self) -> Option<Instant> {
        get(&self.up).map(|(at, _)| at + GRACE)
    }
}
