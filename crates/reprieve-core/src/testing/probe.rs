//! The job under test as a worker sees it: counts its steps, and strikes at a planned moment.

use std::future::{pending, ready};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use super::clock::{Going, Waits};
use super::points::{Blow, Moment, Point};
use crate::codec;
use crate::context::JobContext;
use crate::job::{Job, JobError, OldState, Step};
use crate::process::Gate;
use crate::watch;

/// What happens in one run, known to all of its workers.
#[derive(Debug, Default)]
pub(super) struct Story {
    point: Option<Point>,
    pub(super) progress: watch::Sender<Progress>,
    /// The number of awaits of each step.
    awaits: Mutex<Vec<u32>>,
}

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Progress {
    /// The number of steps that began, on any worker.
    pub(super) began: u64,
    /// The number of steps that ended on any worker but the first.
    pub(super) ended_elsewhere: u64,
    /// Whether the planned moment has come.
    pub(super) has_struck: bool,
}

impl Story {
    pub(super) fn new(point: Option<Point>) -> Self {
        Self { point, ..Self::default() }
    }

    /// The number of awaits of each step, in the order in which they began.
    pub(super) fn awaits(&self) -> Vec<u32> {
        self.awaits.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn begin(&self) -> u64 {
        self.awaits.lock().unwrap_or_else(PoisonError::into_inner).push(0);
        self.progress.modify(|progress| progress.began += 1);
        self.progress.get().began
    }

    fn note_await(&self, step: u64, number: u32) {
        let mut awaits = self.awaits.lock().unwrap_or_else(PoisonError::into_inner);
        let index = usize::try_from(step).ok().and_then(|step| step.checked_sub(1));
        if let Some(known) = index.and_then(|index| awaits.get_mut(index)) {
            *known = number;
        }
    }

    /// Returns the blow that is planned in this step, at a moment for which `is` holds.
    fn strike(&self, step: u64, is: impl Fn(Moment) -> bool) -> Option<Blow> {
        let point = self.point.filter(|point| point.step == step && is(point.moment))?;
        if self.progress.get().has_struck {
            return None;
        }
        self.progress.modify(|progress| progress.has_struck = true);
        Some(point.blow)
    }
}

/// One worker's part in a run.
#[derive(Debug, Clone)]
pub(super) struct Part {
    pub(super) story: Arc<Story>,
    pub(super) is_first: bool,
    pub(super) gate: Gate,
}

impl Part {
    /// Strikes at an await, if it is the planned one.
    async fn at_await(&self, step: u64, number: u32, cx: &JobContext) -> Going {
        self.story.note_await(step, number);
        match self.story.strike(step, |moment| moment == Moment::Await(number)) {
            None => Going::On,
            Some(Blow::Killed { .. }) => {
                self.gate.freeze();
                Going::Killed
            }
            // What the step waited for may have come meanwhile, and the step goes on before its guardian.
            Some(blow @ (Blow::Evicted | Blow::Frozen { .. })) => {
                self.suffer(blow, cx).await;
                Going::Again
            }
        }
    }

    /// Waits for the notice, freezes the process, or lets it wait for its end.
    async fn suffer(&self, blow: Blow, cx: &JobContext) {
        match blow {
            Blow::Evicted => cx.interrupted().await,
            Blow::Killed { .. } => {
                self.gate.freeze();
                pending::<()>().await;
            }
            Blow::Frozen { .. } => self.gate.freeze_and_continue_first().await,
        }
    }

    fn end(&self) {
        if !self.is_first {
            self.story.progress.modify(|progress| progress.ended_elsewhere += 1);
        }
    }
}

/// A job whose steps run under the watch of a harness.
pub(super) struct Probe<J> {
    pub(super) job: Arc<J>,
    pub(super) waits: Arc<Waits>,
    /// `None` for a job that is not disturbed itself.
    pub(super) part: Option<Part>,
}

impl<J: Job> Probe<J> {
    fn note_end(&self, ended: &Result<Step<J::Checkpoint, J::Output>, JobError>) {
        let is_last = match ended {
            Ok(step) => matches!(step, Step::Done(_)),
            Err(error) => !error.is_retry(),
        };
        if is_last {
            self.waits.note_mark();
        } else if matches!(ended, Ok(Step::Wait(..))) {
            self.waits.note_job_waits();
        }
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods, reason = "what is not passed on would change the job")]
impl<J: Job> Job for Probe<J> {
    const KIND: &'static str = J::KIND;
    const SCHEMA: u32 = J::SCHEMA;
    type Args = J::Args;
    type Checkpoint = J::Checkpoint;
    type Output = J::Output;

    fn begin(&self, args: &J::Args) -> J::Checkpoint {
        self.job.begin(args)
    }

    fn migrate(from: u32, old: OldState) -> Result<J::Checkpoint, JobError> {
        J::migrate(from, old)
    }

    fn remaining(&self, args: &J::Args, at: &J::Checkpoint) -> Option<Duration> {
        self.job.remaining(args, at)
    }

    async fn step(
        &self,
        cx: &JobContext,
        args: &J::Args,
        at: J::Checkpoint,
    ) -> Result<Step<J::Checkpoint, J::Output>, JobError> {
        let whose = (J::KIND, codec::digest(&at).ok());
        let is_saving = || {
            if let Some(state) = cx.run.saves.asked() {
                self.waits.note_save(cx.job(), state);
            }
            cx.run.saves.is_pending()
        };
        self.waits.note_begin(cx.job(), whose.1);
        // The ids of a job's children say when the job was enqueued, which a disturbance of its own parent changes. In
        // the store of a run no other job has had its id.
        cx.run.children.note_since(0);
        let Some(part) = &self.part else {
            let step = self.job.step(cx, args, at);
            let ended = self.waits.drive(whose, step, is_saving, |_| ready(Going::On)).await;
            let Some(ended) = ended else { pending().await };
            self.note_end(&ended);
            return ended;
        };
        let step = part.story.begin();
        if let Some(blow) = part.story.strike(step, |moment| moment == Moment::Before) {
            part.suffer(blow, cx).await;
            if cx.is_interrupted() {
                return Ok(Step::Continue(at));
            }
        }
        let run = self.job.step(cx, args, at);
        let at_await = |number| part.at_await(step, number, cx);
        let ended = self.waits.drive(whose, run, is_saving, at_await).await;
        let Some(ended) = ended else { pending().await };
        self.note_end(&ended);
        part.end();
        if let Some(blow) = part.story.strike(step, |moment| moment != Moment::Before) {
            part.suffer(blow, cx).await;
        }
        ended
    }
}
