//! The jobs of a batch: they wait for as long as they would work, and save when the worker wants it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use reprieve_core::{Bytes, Job, JobContext, JobError, Step};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};

/// The name of the kind.
pub(super) const KIND: &str = "toil";

/// The length of a state that a store keeps apart from its job's record, and reads when the job is resumed.
const STATE_BYTES: usize = 24 << 10;

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
pub(super) struct Busy {
    running: AtomicU64,
    /// When the last of them ended, in milliseconds since the beginning.
    last_ms: AtomicU64,
}

impl Busy {
    /// Whether no job has run since this time.
    pub(super) fn is_idle_since(&self, since_ms: u64) -> bool {
        self.running.load(Relaxed) == 0 && self.last_ms.load(Relaxed) <= since_ms
    }

    /// Notes that the machine takes jobs from now on.
    pub(super) fn begin(&self, now_ms: u64) {
        self.last_ms.store(now_ms, Relaxed);
    }
}

/// The kind of job on one machine.
#[derive(Debug)]
pub(super) struct Toil {
    pub(super) began: Instant,
    pub(super) counts: Arc<Counts>,
    pub(super) busy: Arc<Busy>,
}

/// A step under way. It counts its work also when it is cut off.
struct Inside<'a> {
    toil: &'a Toil,
    since: Instant,
}

impl<'a> Inside<'a> {
    fn begin(toil: &'a Toil) -> Self {
        toil.busy.running.fetch_add(1, Relaxed);
        Self { toil, since: Instant::now() }
    }

    fn worked_ms(&self) -> u64 {
        whole_ms(self.since.elapsed())
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.toil.counts.worked_ms.fetch_add(self.worked_ms(), Relaxed);
        self.toil.busy.running.fetch_sub(1, Relaxed);
        self.toil.busy.last_ms.store(whole_ms(self.toil.began.elapsed()), Relaxed);
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
        let (inside, left_ms) = (Inside::begin(self), work.ms.saturating_sub(at.done_ms));
        tokio::select! {
            biased;
            () = sleep(Duration::from_millis(left_ms)) => return Ok(Step::Done(())),
            () = cx.interrupted(), if work.is_cut => {}
            () = cx.checkpoint_due(), if work.is_cut => {}
        }
        Ok(Step::Continue(Place { done_ms: at.done_ms + inside.worked_ms().min(left_ms), ..at }))
    }
}
