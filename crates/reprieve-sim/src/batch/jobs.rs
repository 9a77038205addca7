//! The jobs of a batch: they wait for as long as they would work, and save when the worker wants it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use reprieve_core::{Bytes, Job, JobContext, JobError, Step};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};

/// The name of the kind.
pub(super) const KIND: &str = "toil";

/// The length of a state that a store keeps apart from its job's record, and reads when the job is resumed.
const STATE_BYTES: usize = 24 << 10;

/// The shortest time between two saves of a job that is saved more often, because its worker died.
const CAREFUL_MS: u64 = 5_000;

/// A job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Work {
    /// How long it works.
    pub(super) ms: u64,
    /// Whether it can be cut into steps.
    pub(super) is_cut: bool,
}

/// How far it is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Place {
    done_ms: u64,
    rest: Bytes,
}

/// What jobs went through.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// The work of all steps, also of those whose work was lost.
    pub(super) worked_ms: AtomicU64,
    pub(super) saves: AtomicU64,
}

/// The jobs of one machine that run a step.
#[derive(Debug, Default)]
pub(super) struct Busy(Mutex<Running>);

#[derive(Debug, Default)]
struct Running {
    /// When each step began, and until when it computes at least, by the job.
    steps: BTreeMap<String, (Instant, u64)>,
    /// When the first step of each job began here.
    since_ms: BTreeMap<String, u64>,
    /// When the last step ended.
    last_ms: u64,
}

impl Busy {
    fn lock(&self) -> MutexGuard<'_, Running> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether no job has run since this time.
    pub(super) fn is_idle_since(&self, since_ms: u64) -> bool {
        let running = self.lock();
        running.steps.is_empty() && running.last_ms <= since_ms
    }

    /// Notes that the machine takes jobs from now on.
    pub(super) fn begin(&self, now_ms: u64) {
        self.lock().last_ms = now_ms;
    }

    /// Counts the work of the steps that the end of the machine cuts off.
    pub(super) fn cut_off(&self, counts: &Counts) {
        for (since, _) in self.lock().steps.values() {
            counts.worked_ms.fetch_add(whole_ms(since.elapsed()), Relaxed);
        }
    }

    /// Until when the jobs of all `slots` compute; `None` while a slot has none that does.
    pub(super) fn computes_until_ms(&self, slots: usize) -> Option<u64> {
        let running = self.lock();
        running.steps.values().map(|(_, until_ms)| *until_ms).min().filter(|_| running.steps.len() == slots)
    }
}

/// The kind of job on one machine.
#[derive(Debug)]
pub(super) struct Toil {
    pub(super) began: Instant,
    /// The checkpoint interval.
    pub(super) interval: Duration,
    pub(super) counts: Arc<Counts>,
    pub(super) busy: Arc<Busy>,
}

/// A step under way. It counts its work also when it is cut off.
struct Inside<'a> {
    toil: &'a Toil,
    job: String,
    since: Instant,
}

impl<'a> Inside<'a> {
    fn begin(toil: &'a Toil, cx: &JobContext, left_ms: u64) -> Self {
        let (job, now_ms) = (cx.job().to_string(), whole_ms(toil.began.elapsed()));
        let mut running = toil.busy.lock();
        let since_ms = *running.since_ms.entry(job.clone()).or_insert(now_ms);
        let interval_ms = whole_ms(toil.interval);
        // A worker that took over from one that died saves more often for an interval.
        let is_careful = cx.delivery() > 1 && now_ms < since_ms + interval_ms;
        let least_ms = if is_careful { CAREFUL_MS } else { interval_ms };
        running.steps.insert(job.clone(), (Instant::now(), now_ms + left_ms.min(least_ms)));
        drop(running);
        Self { toil, job, since: Instant::now() }
    }

    fn worked_ms(&self) -> u64 {
        whole_ms(self.since.elapsed())
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.toil.counts.worked_ms.fetch_add(self.worked_ms(), Relaxed);
        let mut running = self.toil.busy.lock();
        running.steps.remove(&self.job);
        running.last_ms = whole_ms(self.toil.began.elapsed());
    }
}

/// Time in whole milliseconds, as the paused clock has them.
pub(super) fn whole_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[async_trait::async_trait]
impl Job for Toil {
    const KIND: &'static str = KIND;
    type Args = Work;
    type Checkpoint = Place;
    type Output = ();

    fn begin(&self, _: &Work) -> Place {
        Place { done_ms: 0, rest: vec![7; STATE_BYTES].into() }
    }

    async fn step(&self, cx: &JobContext, work: &Work, at: Place) -> Result<Step<Place, ()>, JobError> {
        let left_ms = work.ms.saturating_sub(at.done_ms);
        let inside = Inside::begin(self, cx, left_ms);
        tokio::select! {
            biased;
            () = sleep(Duration::from_millis(left_ms)) => return Ok(Step::Done(())),
            () = cx.interrupted(), if work.is_cut => {}
            () = cx.checkpoint_due(), if work.is_cut => {}
        }
        Ok(Step::Continue(Place { done_ms: at.done_ms + inside.worked_ms().min(left_ms), ..at }))
    }
}
