//! Runs one delivery of a job on a job thread: its arguments, its checkpoint, then step after step, saving when that is
//! due, until it is done, asked to yield, or no longer ours.

use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::registry::Kind;
use crate::attempts::{Attempts, Baseline};
use crate::checkpoint::{CheckpointEvery, Checkpoints, Found, Loaded, Unreadable};
use crate::context::{JobContext, Tenure, set};
use crate::envelope::Data;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::Fence;
use crate::job::{Job, JobError, Step};
use crate::ports::{BlobStore, CheckpointStore};
use crate::producer::result_blob;
use crate::retry::{Patience, may_pass, persist};
use crate::telemetry::ByKind;

/// One try of a read or write that the job waits for, before it counts as unanswered: generous, because a large
/// checkpoint on a slow link is not an error.
const TRY: Duration = Duration::from_secs(30);

/// The same during a drain, where two tries must fit before the soft mark.
const DRAIN_TRY: Duration = Duration::from_secs(1);

/// Longer than anything runs: tries go on until the job is interrupted or loses its lease.
const FOR_EVER: Duration = Duration::from_hours(10 * 365 * 24);

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
}

/// Tells a job that moves from one that only comes back.
#[derive(Debug, Default)]
pub(crate) struct Cursor {
    at: Option<u64>,
    since: Baseline,
}

impl Cursor {
    /// The baseline to save with `payload`: that of now when the job has moved, the old one when it has not.
    fn baseline(&self, payload: &[u8], now: Baseline) -> Self {
        let at = Some(hash(payload));
        Self { at, since: if self.at == at { self.since } else { now } }
    }
}

fn hash(payload: &[u8]) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    payload.hash(&mut hasher);
    hasher.finish()
}

/// How the run ended.
#[derive(Debug)]
pub(crate) enum Ran {
    /// Finished, and its output is committed. The checkpoints are to be cleared after the message is settled.
    Done(Box<Checkpoints>),
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
    /// Somebody else owns the job now.
    Lost,
}

/// Runs `job` until it ends or has to stop.
pub(crate) async fn drive<J: Job>(job: &J, mut run: Run) -> Ran {
    let revoked = run.tenure.revoked.clone();
    // Losing the job ends every wait at once; a step is dropped at its next await.
    tokio::select! {
        biased;
        () = revoked.cancelled() => Ran::Lost,
        ran = run.whole(job) => ran.unwrap_or_else(|ended| ended),
    }
}

impl Run {
    async fn whole<J: Job>(&mut self, job: &J) -> Result<Ran, Ran> {
        let args: J::Args = self.args().await?;
        let at = self.resume_at(job, &args).await?;
        self.tried = Instant::now();
        set(&self.tenure.last_saved, self.tried);
        self.steps(job, &args, at).await
    }

    /// Reads the arguments, from the message or from their blob.
    async fn args<A: DeserializeOwned>(&mut self) -> Result<A, Ran> {
        let json = match &self.data {
            Data::Inline(json) => json.get().as_bytes().to_vec(),
            Data::Blob(name) => {
                let tenure = Arc::clone(&self.tenure);
                let read = self.wait_for("read arguments", || tenure.blobs.get(name)).await?;
                read.ok_or_else(|| Ran::Refused(format!("the blob {name} with its arguments is gone")))?
            }
        };
        serde_json::from_slice(&json).map_err(|error| {
            Ran::Refused(format!("the arguments do not fit kind {:?}: {error}", self.kind.name))
        })
    }

    /// Finds where to go on: at the newest checkpoint that is whole, or at the beginning. A first delivery looks nowhere.
    async fn resume_at<J: Job>(&mut self, job: &J, args: &J::Args) -> Result<J::Checkpoint, Ran> {
        if self.tenure.writer.fence <= Fence::new(0, 1) {
            return Ok(job.begin(args));
        }
        let found = self.load().await?;
        let at = self.choose(&found)?;
        let since = self.attempts.begun(self.last(&found));
        self.attempts.judge(since).map_err(Ran::Refused)?;
        let at = at.unwrap_or_else(|| job.begin(args));
        let payload = encode(&at)?;
        self.cursor = Cursor { at: Some(hash(&payload)), since };
        self.claim(&payload, since).await?;
        Ok(at)
    }

    async fn load(&mut self) -> Result<Found, Ran> {
        let interrupted = self.tenure.interrupted.clone();
        loop {
            let loaded = tokio::select! {
                loaded = bounded("load a checkpoint", TRY, self.checkpoints.load()) => loaded,
                () = interrupted.cancelled() => return Err(Ran::Yielded),
            };
            match loaded {
                Ok(found) => return Ok(found),
                Err(error) => self.pause_after(error).await?,
            }
        }
    }

    /// What is remembered of earlier deliveries. A redrive begins a new account, and so does the loss of the old one.
    fn last(&self, found: &Found) -> Option<Baseline> {
        let generation = self.tenure.writer.fence.generation();
        match &found.newest {
            Some(newest) => {
                (newest.header.fence.generation() == generation).then(|| newest.header.baseline())
            }
            None if found.unreadable.is_empty() => None,
            None => Some(self.attempts.moved()),
        }
    }

    /// The newest checkpoint that this binary can use. Says so in the log when an older one had to do.
    fn choose<C: DeserializeOwned>(&self, found: &Found) -> Result<Option<C>, Ran> {
        let job = &self.tenure.writer.job;
        for unreadable in &found.unreadable {
            if let Unreadable::NewerFormat(_) = unreadable {
                return Err(Ran::Newer(format!("its checkpoint can't be used: {unreadable}")));
            }
            let another = found.newest.is_some();
            tracing::warn!(%job, %unreadable, another, "a checkpoint is unreadable; using the one before, if there is another");
        }
        let Some(Loaded { header, payload }) = &found.newest else { return Ok(None) };
        if header.kind != self.kind.name {
            return Err(Ran::Refused(format!(
                "its checkpoint was saved by kind {:?}: two jobs have its id",
                header.kind
            )));
        }
        if header.schema > self.kind.schema {
            let (theirs, ours) = (header.schema, self.kind.schema);
            return Err(Ran::Newer(format!("its checkpoint has schema {theirs}, this binary's is {ours}")));
        }
        let at = serde_json::from_slice(payload).map_err(|error| {
            // It is whole, so another build of this kind wrote it. Beginning again would throw days away unasked.
            Ran::Failed(JobError::retry(format!(
                "checkpoint {} (schema {}) does not fit this binary: {error}; \
                 raise SCHEMA when the shape changes, and read the old one",
                header.sequence, header.schema
            )))
        })?;
        tracing::info!(%job, from = %header.fence, sequence = header.sequence, "resuming at a checkpoint");
        Ok(Some(at))
    }

    /// Saves the starting point under this owner's fence, so that an owner before it, should it still run, is refused
    /// from now on.
    async fn claim(&mut self, payload: &[u8], since: Baseline) -> Result<(), Ran> {
        let interrupted = self.tenure.interrupted.clone();
        loop {
            let claimed = tokio::select! {
                claimed = bounded("claim a job", TRY, self.checkpoints.save(payload, since)) => claimed,
                () = interrupted.cancelled() => return Err(Ran::Yielded),
            };
            match claimed {
                Ok(()) => return Ok(()),
                Err(error) => self.pause_after(error).await?,
            }
        }
    }

    /// The loop that the framework owns.
    async fn steps<J: Job>(&mut self, job: &J, args: &J::Args, mut at: J::Checkpoint) -> Result<Ran, Ran> {
        let cx = JobContext { tenure: Arc::clone(&self.tenure) };
        loop {
            // A step that never awaits must not keep its thread from the other jobs.
            tokio::task::consume_budget().await;
            if cx.is_interrupted() {
                let payload = encode(&at)?;
                return Ok(self.save_and_yield(&payload).await);
            }
            match job.step(&cx, args, at).await {
                Ok(Step::Continue(next)) => {
                    self.tenure.steps.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    if !cx.is_interrupted() && self.save_is_due() {
                        let payload = encode(&next)?;
                        self.save_in_passing(&payload).await?;
                    }
                    at = next;
                }
                Ok(Step::Done(output)) => {
                    self.tenure.steps.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    self.commit(encode(&output)?).await?;
                    return Ok(Ran::Done(Box::new(self.take_checkpoints())));
                }
                // A job whose write was refused returns that as its own error; it is not one.
                Err(_) if self.tenure.revoked.is_cancelled() => return Ok(Ran::Lost),
                // In a drain the stores are impatient, and a write that they cut off is no fault of the job.
                Err(error) if error.is_retry() && cx.is_interrupted() => {
                    return Ok(Ran::CutShort(error.to_string()));
                }
                Err(error) => return Ok(Ran::Failed(error)),
            }
        }
    }

    fn save_is_due(&self) -> bool {
        self.tried.elapsed() >= self.every.interval(self.kind.saves.mean())
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
        let cursor = self.cursor.baseline(payload, self.attempts.moved());
        let saved =
            tokio::time::timeout(each, self.checkpoints.save(payload, cursor.since)).await.unwrap_or_else(
                |_| Err(Error::new(ErrorKind::TimedOut, "save a checkpoint", "no answer in time")),
            );
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

    /// Reads something the job can't begin without, for as long as it takes; being asked to yield ends the wait.
    async fn wait_for<T, F>(&self, operation: &'static str, op: impl FnMut() -> F) -> Result<T, Ran>
    where
        F: Future<Output = Result<T>>,
    {
        let patience = Patience::calm(TRY, Instant::now() + FOR_EVER);
        tokio::select! {
            done = persist(operation, patience, may_pass, op) => done.map_err(|error| self.halt_on(error)),
            () = self.tenure.interrupted.cancelled() => Err(Ran::Yielded),
        }
    }

    /// Waits a little after an error that may pass, before the job has begun; an interruption ends the wait.
    async fn pause_after(&self, error: Error) -> Result<(), Ran> {
        if !may_pass(&error) {
            return Err(self.halt_on(error));
        }
        tracing::warn!(job = %self.tenure.writer.job, %error, "waiting for the checkpoint store");
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(1)) => Ok(()),
            () = self.tenure.interrupted.cancelled() => Err(Ran::Yielded),
        }
    }

    /// What an error that will not pass means for the delivery.
    fn halt_on(&self, error: Error) -> Ran {
        self.tenure.note_refusal(&error);
        match error.kind() {
            ErrorKind::Superseded | ErrorKind::LeaseLost => Ran::Lost,
            _ => Ran::Failed(JobError::from(error)),
        }
    }

    fn take_checkpoints(&mut self) -> Checkpoints {
        let empty = Checkpoints::new(
            Arc::clone(&self.drain_store),
            self.tenure.writer.clone(),
            self.kind.name,
            self.kind.schema,
        );
        std::mem::replace(&mut self.checkpoints, empty)
    }
}

/// A call that counts as unanswered after `each`.
async fn bounded<T>(
    operation: &'static str,
    each: Duration,
    call: impl Future<Output = Result<T>>,
) -> Result<T> {
    let unanswered = |_| Err(Error::new(ErrorKind::TimedOut, operation, "no answer in time"));
    tokio::time::timeout(each, call).await.unwrap_or_else(unanswered)
}

fn encode<T: serde::Serialize>(value: &T) -> Result<Vec<u8>, Ran> {
    serde_json::to_vec(value).map_err(|error| {
        Ran::Failed(JobError::fatal(format!("its checkpoint or output has no JSON form: {error}")))
    })
}
