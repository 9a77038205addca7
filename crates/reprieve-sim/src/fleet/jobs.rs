//! The simulated jobs: they run step by step, according to their plan.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use reprieve_core::{Fence, Job, JobContext, JobError, Step};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use super::history::{Cause, What};
use super::plan::{JobPlan, Nature, Where};
use super::process::Process;

/// The kinds of job. Old binaries lack the last.
pub(super) const KINDS: [&str; 3] = ["walk", "stroll", "hike"];

/// The checkpoint of a job.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct At {
    #[serde(rename = "at")]
    step: u32,
    /// Computed from the finished steps, in order.
    sum: u64,
    padding: String,
}

/// A kind of job in one process, with a binary that reads states up to `SCHEMA`.
#[derive(Debug)]
pub(super) struct Walk<const KIND: usize, const SCHEMA: u32>(Arc<Process>);

impl<const KIND: usize, const SCHEMA: u32> Walk<KIND, SCHEMA> {
    pub(super) fn new(process: &Arc<Process>) -> Self {
        Self(Arc::clone(process))
    }
}

/// Returns the sum after step `at`.
fn after(sum: u64, at: u32) -> u64 {
    sum.wrapping_mul(31).wrapping_add(u64::from(at) + 1)
}

/// Returns the result of a job with this many steps.
pub(super) fn result(steps: u32) -> u64 {
    (0..steps).fold(0, after)
}

/// Notes that a step is left, however it ends.
struct Inside<'a> {
    process: &'a Process,
    job: usize,
    fence: Fence,
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        if !self.process.has_ended() {
            self.process.link.note(What::StepLeft { job: self.job, fence: self.fence });
        }
    }
}

#[async_trait::async_trait]
impl<const KIND: usize, const SCHEMA: u32> Job for Walk<KIND, SCHEMA> {
    const KIND: &'static str = KINDS[KIND];
    const SCHEMA: u32 = SCHEMA;
    type Args = JobPlan;
    type Checkpoint = At;
    type Output = Option<u64>;

    fn begin(&self, plan: &JobPlan) -> At {
        if self.0.has_ended() {
            // The process has ended; this is the job's last poll.
        } else if plan.nature == Nature::Kills(Where::Begin) {
            self.0.end(Cause::Job(plan.number));
        } else {
            self.0.link.note(What::Began { job: plan.number });
        }
        At { step: 0, sum: 0, padding: "x".repeat(plan.state_bytes) }
    }

    async fn step(
        &self,
        cx: &JobContext,
        plan: &JobPlan,
        mut at: At,
    ) -> Result<Step<At, Option<u64>>, JobError> {
        let (process, job, fence) = (&self.0, plan.number, cx.fence());
        if process.has_ended() {
            pending::<()>().await;
        }
        process.link.note(What::StepBegan { job, fence, at: at.step });
        let _left = Inside { process, job, fence };
        if let Nature::Kills(Where::Step(step, after_ms)) = plan.nature
            && step == at.step
        {
            sleep(Duration::from_millis(after_ms)).await;
            process.die_of(job).await;
        }
        if process.village.fails(plan, at.step) {
            sleep(plan.step(at.step) / 2).await;
            process.link.note(What::StepFailed { job, fence, at: at.step });
            return Err(JobError::retry("this step fails"));
        }
        // Some jobs keep their sum in an attachment, so that a wrong one makes a wrong result.
        let attaches = job % 5 == 2;
        if attaches && cx.steps() == 0 {
            let mut sum = Vec::new();
            cx.attach("sum").read(&mut sum).await?;
            at.sum = sum.try_into().map_or(0, u64::from_le_bytes);
        }
        // Some save in the middle of a step.
        if job % 4 == 3 {
            cx.save::<Self>(&at).await?;
        }
        tokio::select! {
            biased;
            () = sleep(plan.step(at.step)) => {}
            // Some jobs yield in the middle of a step.
            () = cx.interrupted(), if job % 3 == 1 => return Ok(Step::Continue(at)),
        }
        let is_last = at.step + 1 >= plan.steps;
        if is_last && !plan.result {
            cx.put_output(&format!("/out/{}", plan.id()), fence.to_string().into_bytes()).await?;
        }
        process.link.note(What::StepEnded { job, fence, at: at.step });
        let at = At { step: at.step + 1, sum: after(at.sum, at.step), ..at };
        if attaches && !is_last {
            cx.attach("sum").write(&at.sum.to_le_bytes()[..]).await?;
        }
        Ok(match plan.waits {
            _ if is_last => Step::Done(plan.result.then_some(at.sum)),
            Some((step, time_ms)) if step + 1 == at.step => Step::Wait(at, Duration::from_millis(time_ms)),
            _ => Step::Continue(at),
        })
    }
}
