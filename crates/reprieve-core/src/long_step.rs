//! Saves in the middle of a long step, at the step's own request.

use std::sync::atomic::Ordering::Relaxed;

use crate::codec;
use crate::context::JobContext;
use crate::error::{Error, ErrorKind, Result};
use crate::job::Job;

impl JobContext {
    /// Completes when the job's progress should be saved, for a step that takes longer than the
    /// checkpoint interval. Then call [`save`](Self::save), which makes the next save due an
    /// interval later. Between steps the framework saves by itself. Cancel-safe.
    ///
    /// # Example: ten minutes of work in one step
    /// ```
    /// # use reprieve_core::{Job, JobContext, JobError, Step};
    /// # struct Sum;
    /// # #[async_trait::async_trait]
    /// # impl Job for Sum {
    /// #     const KIND: &'static str = "sum";
    /// #     type Args = u64;
    /// #     type Checkpoint = (u64, u64);
    /// #     type Output = u64;
    /// #     fn begin(&self, _: &u64) -> (u64, u64) { (0, 0) }
    /// async fn step(&self, cx: &JobContext, to: &u64, mut at: (u64, u64)) -> Result<Step<(u64, u64), u64>, JobError> {
    ///     while at.0 < *to {
    ///         at = (at.0 + 1, at.1 + at.0);
    ///         if cx.is_interrupted() {
    ///             return Ok(Step::Continue(at));
    ///         }
    ///         if cx.is_checkpoint_due() {
    ///             cx.save::<Self>(&at).await?;
    ///         }
    ///     }
    ///     Ok(Step::Done(at.1))
    /// }
    /// # }
    /// ```
    pub async fn checkpoint_due(&self) {
        self.run.saves.due().await;
    }

    /// Whether a save is due, for a loop that does not await; see
    /// [`checkpoint_due`](Self::checkpoint_due).
    #[must_use]
    pub fn is_checkpoint_due(&self) -> bool {
        self.run.saves.is_due()
    }

    /// Saves `at` in the middle of a step, so that the job continues from there if its worker dies.
    /// `J` is the job itself: `cx.save::<Self>(&at)`.
    ///
    /// Returns whether the state is saved now. A store that does not answer is no failure of the
    /// job: the call then returns false, the next save is due an interval later, and the job goes
    /// on. While jobs are to rest, for example because the machine is about to be frozen, the call
    /// returns when the rest is over.
    ///
    /// Await it in the step itself. The worker saves while the step waits, so a call in a spawned
    /// task or under `block_on` would wait without limit.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) when the state can't be encoded, or would come back as
    /// another one, and when `J` is another kind of job. Return the error; it fails the job, with
    /// the path of the value.
    ///
    /// # Cancel safety
    /// A dropped call may have saved the state; it saves nothing later.
    pub async fn save<J: Job>(&self, at: &J::Checkpoint) -> Result<bool> {
        if J::KIND != self.run.kind {
            let message = format!(
                "`save` was called for kind {:?} in a job of kind {:?}; call `cx.save::<Self>`",
                J::KIND,
                self.run.kind
            );
            return Err(Error::new(ErrorKind::Invalid, "save a checkpoint", message));
        }
        let is_checked = self.run.saves.checked.load(Relaxed) || self.is_interrupted();
        let encoded = match (is_checked, self.run.saves.packs()) {
            (false, _) => codec::encode_checked(at),
            (true, false) => codec::encode_state(at),
            (true, true) => codec::encode_packed(at),
        };
        let state = encoded.map_err(|why| {
            Error::new(
                ErrorKind::Invalid,
                "save a checkpoint",
                format!("the checkpoint can't be saved: {why}"),
            )
        })?;
        self.run.saves.checked.store(true, Relaxed);
        Ok(self.run.saves.save(state).await)
    }
}
