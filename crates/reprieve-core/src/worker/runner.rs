//! Runs one delivery of a job on a job thread: its arguments, its checkpoint, then step after step, saving when that is
//! due, until it is done, asked to yield, or no longer ours.

mod cursor;
mod length;
mod resume;
mod trouble;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

pub(crate) use cursor::Cursor;
pub(crate) use trouble::Trouble;

use super::registry::Kind;
use super::rules::{Rules, resumed};
use crate::attempts::Attempts;
use crate::checkpoint::{CheckpointEvery, Checkpoints};
use crate::context::{JobContext, Tenure, get, set};
use crate::envelope::Data;
use crate::error::{Error, ErrorKind, Result};
use crate::job::{Job, JobError, Step};
use crate::ports::{BlobStore, CheckpointStore};
use crate::producer::result_blob;
use crate::retry::{FOR_EVER, Patience, bounded, may_pass, persist};
use crate::telemetry::ByKind;

/// One try of a read or write that the job waits for, before it counts as unanswered: generous, because a large
/// checkpoint on a slow link is not an error.
const TRY: Duration = Duration::from_secs(30);

/// The same during a drain, where two tries must fit before the soft mark.
const DRAIN_TRY: Duration = Duration::from_secs(1);

/// After how long a job that rests tries again to save what it could not.
const SAVE_AGAIN: Duration = Duration::from_secs(5);

/// All that running one delivery takes.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) kind: Arc<Kind>,
    pub(crate) tenure: Arc<Tenure>,
    pub(crate) data: Data,
    pub(crate) attempts: Attempts,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) drain_store: Arc<dyn CheckpointStore>,
    pub(crate) every: CheckpointEvery,
    /// When the job last saved, or tried to.
    pub(crate) tried: Instant,
    /// Where the job was last saved, and what the counts were when it first got there.
    pub(crate) cursor: Cursor,
    pub(crate) trouble: Trouble,
    /// Whether it is to rest, and what is not to be begun.
    pub(crate) rules: watch::Receiver<Rules>,
    /// Which of the rules' wishes to save was the last.
    pub(crate) asked_to_save: u64,
}

/// How the run ended.
#[derive(Debug)]
pub(crate) enum Ran {
    /// Finished, and its output is committed. The checkpoints are to be cleared after the message is settled.
    Done(Box<Checkpoints>),
    /// Finished before, by way of another message of the same job.
    DoneBefore,
    /// Asked to yield, and its progress is saved.
    Yielded,
    /// Asked to yield, and its progress since the last checkpoint is lost: why.
    CutShort(String),
    /// A step failed.
    Failed(JobError),
    /// It can never run: the reason for the poison queue.
    Refused(String),
    /// Its checkpoint is from a newer binary: it is for another worker.
    Newer(String),
    /// It takes longer than this machine may be there: why.
    TooLong(String),
    /// Somebody else owns the job now.
    Lost,
}

/// Runs `job` until it ends or has to stop.
pub(crate) async fn drive<J: Job>(job: &J, mut run: Run) -> Ran {
    let revoked = run.tenure.revoked.clone();
    // Losing the job ends every wait at once; a step is dropped at its next await.
    let ran = tokio::select! {
        biased;
        () = revoked.cancelled() => Err(Ran::Lost),
        ran = run.whole(job) => ran,
    };
    match ran {
        Ok(()) => Ran::Done(Box::new(run.checkpoints)),
        Err(ended) => ended,
    }
}

impl Run {
    /// Runs to the end, with the output committed; any other end is the error.
    async fn whole<J: Job>(&mut self, job: &J) -> Result<(), Ran> {
        let args: J::Args = self.args().await?;
        let at = self.resume_at(job, &args).await?;
        self.tried = Instant::now();
        set(&self.tenure.last_saved, self.tried);
        self.steps(job, &args, at).await
    }

    /// The loop that the framework owns.
    async fn steps<J: Job>(&mut self, job: &J, args: &J::Args, mut at: J::Checkpoint) -> Result<(), Ran> {
        let cx = JobContext { tenure: Arc::clone(&self.tenure) };
        loop {
            // A step that never awaits must not keep its thread from the other jobs.
            tokio::task::consume_budget().await;
            if cx.is_interrupted() {
                let payload = encode(&at)?;
                return Err(self.save_and_yield(&payload).await);
            }
            if self.rules.borrow().conduct.paused {
                self.rest(&encode(&at)?).await?;
                continue;
            }
            match job.step(&cx, args, at).await {
                Ok(Step::Continue(next)) => {
                    self.tenure.steps.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    self.estimate(job, args, &next);
                    if !cx.is_interrupted() && self.save_is_due() {
                        let payload = encode(&next)?;
                        self.save_in_passing(&payload).await?;
                    }
                    at = next;
                }
                Ok(Step::Done(output)) => {
                    self.tenure.steps.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    return self.commit(encode(&output)?).await;
                }
                // A job whose write was refused returns that as its own error; it is not one.
                Err(_) if self.tenure.revoked.is_cancelled() => return Err(Ran::Lost),
                // In a drain the stores are impatient, and a write that they cut off is no fault of the job.
                Err(error) if error.is_retry() && cx.is_interrupted() => {
                    return Err(Ran::CutShort(error.to_string()));
                }
                Err(error) => return Err(Ran::Failed(error)),
            }
        }
    }

    fn save_is_due(&mut self) -> bool {
        let asked = self.rules.borrow().saves;
        std::mem::replace(&mut self.asked_to_save, asked) != asked
            || self.tried.elapsed() >= self.every.interval(self.kind.saves.mean())
    }

    /// Rests until that is over or the job is to yield, with its progress saved; where it could not be, until another try
    /// is due.
    async fn rest(&mut self, payload: &[u8]) -> Result<(), Ran> {
        self.asked_to_save = self.rules.borrow().saves;
        self.save_in_passing(payload).await?;
        let interrupted = self.tenure.interrupted.clone();
        let is_saved = get(&self.tenure.last_saved) == self.tried;
        tokio::select! {
            () = resumed(&mut self.rules) => {}
            () = interrupted.cancelled() => {}
            () = tokio::time::sleep(SAVE_AGAIN), if !is_saved => {}
        }
        Ok(())
    }

    /// Saves between two steps. A failure is counted and the job goes on: it is only more work at stake until the next.
    async fn save_in_passing(&mut self, payload: &[u8]) -> Result<(), Ran> {
        // An interruption needs the save no less, but under the drain's patience.
        let (interrupted, drain_try) = (self.tenure.interrupted.clone(), self.drain_try());
        let saved = tokio::select! {
            saved = self.save(payload, TRY) => saved,
            () = async { interrupted.cancelled().await; tokio::time::sleep(drain_try).await } => return Ok(()),
        };
        match saved {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == ErrorKind::Superseded => Err(Ran::Lost),
            Err(error) => {
                let job = &self.tenure.writer.job;
                if !self.trouble.is_news() {
                    tracing::debug!(%job, %error, "could not save a checkpoint");
                    return Ok(());
                }
                tracing::warn!(%job, %error, "could not save a checkpoint; going on, and trying again when the next is due");
                Ok(())
            }
        }
    }

    /// Saves because the job was asked to yield. It goes on trying until the guardian ends it at the soft mark.
    async fn save_and_yield(&mut self, payload: &[u8]) -> Ran {
        self.checkpoints.use_store(Arc::clone(&self.drain_store));
        loop {
            match self.save(payload, self.drain_try()).await {
                Ok(()) => return Ran::Yielded,
                Err(error) if error.kind() == ErrorKind::Superseded => return Ran::Lost,
                Err(error) if error.is_temporary() => tokio::time::sleep(Duration::from_millis(50)).await,
                Err(error) => return Ran::CutShort(error.to_string()),
            }
        }
    }

    /// How long one save may take in a drain: a second, or more where saves of this kind are known to need it.
    fn drain_try(&self) -> Duration {
        DRAIN_TRY.max(self.kind.saves.p95().unwrap_or_default() * 2)
    }

    /// One save, bounded, measured and counted.
    async fn save(&mut self, payload: &[u8], each: Duration) -> Result<()> {
        self.tenure.check("save a checkpoint")?;
        let began = Instant::now();
        // Also when it fails, so that a broken store is not asked after every step.
        self.tried = began;
        let cursor = self.cursor.saved(payload, self.attempts.moved());
        let saved = bounded("save a checkpoint", each, self.checkpoints.save(payload, cursor.since())).await;
        let telemetry = &self.tenure.telemetry;
        let kind = ByKind { kind: self.kind.name.to_owned() };
        match &saved {
            Ok(()) => {
                let took = began.elapsed();
                set(&self.tenure.last_saved, began);
                self.cursor = cursor;
                self.kind.saves.note(took);
                telemetry.checkpoint_seconds.get_or_create(&kind).observe(took.as_secs_f64());
                #[expect(clippy::cast_precision_loss, reason = "a histogram's bucket needs no more")]
                telemetry.checkpoint_bytes.get_or_create(&kind).observe(payload.len() as f64);
            }
            Err(error) => {
                telemetry.checkpoint_errors.get_or_create(&kind).inc();
                self.tenure.note_refusal(error);
            }
        }
        saved
    }

    /// Keeps the job's result before its message is settled. A result of nothing is not written.
    async fn commit(&mut self, json: Vec<u8>) -> Result<(), Ran> {
        if json == b"null" {
            return Ok(());
        }
        self.tenure.check("write a result").map_err(|_| Ran::Lost)?;
        let tenure = Arc::clone(&self.tenure);
        let name = result_blob(&tenure.writer.job).map_err(|error| Ran::Refused(error.to_string()))?;
        let until = Instant::now() + FOR_EVER;
        let put = |blobs: &Arc<dyn BlobStore>| {
            let (blobs, name, json, tenure) =
                (Arc::clone(blobs), name.clone(), json.clone(), Arc::clone(&tenure));
            async move { blobs.put(&name, json, Some(&tenure.writer)).await }
        };
        let calm = || put(&tenure.blobs);
        let hurried = || put(&tenure.drain_blobs);
        let committed = tokio::select! {
            done = persist("write a result", Patience::calm(TRY, until), may_pass, calm) => done,
            // A try under way is not waited for: the same bytes under the same fence may be put twice.
            () = tenure.interrupted.cancelled() => {
                persist("write a result", Patience::hurried(DRAIN_TRY, until), may_pass, hurried).await
            }
        };
        committed.map_err(|error| self.halt_on(error))
    }

    /// What an error that will not pass means for the delivery.
    fn halt_on(&self, error: Error) -> Ran {
        self.tenure.note_refusal(&error);
        match error.kind() {
            ErrorKind::Superseded | ErrorKind::LeaseLost => Ran::Lost,
            _ => Ran::Failed(JobError::from(error)),
        }
    }
}

fn encode<T: serde::Serialize>(value: &T) -> Result<Vec<u8>, Ran> {
    serde_json::to_vec(value).map_err(|error| {
        Ran::Failed(JobError::fatal(format!("its checkpoint or output has no JSON form: {error}")))
    })
}
