//! The timeouts of a job, against the time that it runs.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::mutex::get;
use crate::run_clock::RunClock;

/// How much longer than its timeout a step that blocks its thread may run before its job is given up.
const GRACE: Duration = Duration::from_secs(2);

/// The timeout that has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimedOut {
    /// A step, or the time since it saved.
    Step(Duration),
    /// An attempt of the job.
    Job(Duration),
    /// The time in which a step made neither a save nor progress.
    Stall(Duration),
}

impl TimedOut {
    /// The reason of the failure, in one sentence.
    pub(crate) fn reason(self) -> String {
        match self {
            Self::Step(limit) => format!("a step took longer than its timeout of {limit:?}"),
            Self::Job(limit) => format!("the job ran for longer than its timeout of {limit:?}"),
            Self::Stall(still) => {
                format!("stalled: a step made no save and no progress for {} s", still.as_secs())
            }
        }
    }
}

/// How long one run of a job may still take. Only its steps count: a save takes as long as the store does,
/// and a rest as long as the notice. A freeze of the machine does not count either.
#[derive(Debug, Default)]
pub(crate) struct TimeLimit {
    step: Option<Duration>,
    job: Option<Duration>,
    clock: RunClock,
    attempt: Mutex<Attempt>,
}

/// How long the attempt runs.
#[derive(Debug, Clone, Copy, Default)]
struct Attempt {
    /// In steps that have ended, also on other machines as far as it was saved.
    before: Duration,
    /// The step that runs.
    running: Option<Running>,
}

impl Attempt {
    fn ran(self, now: Duration) -> Duration {
        self.before + self.running.map_or(Duration::ZERO, |step| now.saturating_sub(step.since))
    }
}

/// A step that runs, or its part since it saved, by the worker's clock.
#[derive(Debug, Clone, Copy)]
struct Running {
    since: Duration,
    /// When it must have ended.
    up: Option<(Duration, TimedOut)>,
}

impl TimeLimit {
    pub(crate) fn new(step: Option<Duration>, job: Option<Duration>, clock: RunClock) -> Self {
        Self { step, job, clock, attempt: Mutex::default() }
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
        self.change(|attempt| attempt.before = before);
    }

    /// Returns how long the attempt has run.
    pub(crate) fn ran(&self) -> Duration {
        get(&self.attempt).ran(self.clock.now())
    }

    /// The same in milliseconds, as records have it.
    pub(crate) fn ran_ms(&self) -> u64 {
        u64::try_from(self.ran().as_millis()).unwrap_or(u64::MAX)
    }

    /// Begins a step, or its time anew after it saved. Returns when it is to be looked at, as
    /// [`look_at`](Self::look_at) does.
    pub(crate) fn begin_step(&self) -> Option<Instant> {
        let since = self.clock.now();
        let of_step = self.step.map(|limit| (since + limit, TimedOut::Step(limit)));
        self.change(|attempt| {
            let left = |limit: Duration| limit.saturating_sub(attempt.ran(since));
            let of_job = self.job.map(|limit| (since + left(limit), TimedOut::Job(limit)));
            let up = of_step.into_iter().chain(of_job).min_by_key(|(at, _)| *at);
            attempt.running = Some(Running { since, up });
            up.map(|(at, _)| Instant::now() + at.saturating_sub(since))
        })
    }

    /// Returns when the step that runs has passed its timeout, unless the machine is frozen meanwhile.
    pub(crate) fn look_at(&self) -> Option<Instant> {
        let (at, _) = get(&self.attempt).running?.up?;
        Some(Instant::now() + at.saturating_sub(self.clock.now()))
    }

    /// Returns the timeout of the job, if the attempt has run for so long.
    pub(crate) fn of_job_passed(&self) -> Option<TimedOut> {
        self.job.filter(|limit| self.ran() >= *limit).map(TimedOut::Job)
    }

    /// Ends the step.
    pub(crate) fn end_step(&self) {
        let now = self.clock.now();
        self.change(|attempt| *attempt = Attempt { before: attempt.ran(now), running: None });
    }

    /// Changes it at once, since a guardian may ask for it meanwhile.
    fn change<T>(&self, change: impl FnOnce(&mut Attempt) -> T) -> T {
        change(&mut self.attempt.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the timeout that the step that runs has passed.
    pub(crate) fn of_step(&self) -> Option<TimedOut> {
        let up = get(&self.attempt).running.and_then(|step| step.up);
        up.filter(|(at, _)| *at <= self.clock.now()).map(|(_, what)| what)
    }

    /// Returns since when the step that runs does, or its part since it saved, by the worker's clock; `None` between
    /// two steps, and while the job saves or rests.
    pub(crate) fn in_step_since(&self) -> Option<Duration> {
        get(&self.attempt).running.map(|step| step.since)
    }

    /// Whether the step that runs has passed its timeout for so long that the job is given up.
    pub(crate) fn is_to_be_given_up(&self) -> bool {
        let up = get(&self.attempt).running.and_then(|step| step.up);
        up.is_some_and(|(at, _)| at + GRACE <= self.clock.now())
    }
}
