//! Runs one delivery of a job on a job thread: claims it, loads its state, and runs step after
//! step, saving when a save is due, until the job is done, asked to yield, or owned by another
//! worker.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::task::AbortOnDropHandle;

use crate::checkpoint::{CheckpointEvery, SHORTEST};
use crate::codec;
use crate::context::{JobContext, JobRun, get, set};
use crate::envelope::{Data, Misfit};
use crate::error::{Error, ErrorKind, Result};
use crate::job::{Job, JobError, Step};
use crate::ports::{BlobStore, RecordStore};
use crate::process::in_process;
use crate::producer::result_blob;
use crate::record::{Company, Saving, Status, Written};
use crate::retry::{FOR_EVER, LogThrottle, Patience, bounded, may_pass, persist};
use crate::telemetry::ByKind;
use crate::watch;
use crate::worker::isolation::{Alone, Presence};
use crate::worker::shared::{Kind, Rules, Shared, resumed};

/// The longest time for one try of a read or write that the job waits for. It is generous, because
/// a large checkpoint on a slow link is not an error.
pub(super) const TRY: Duration = Duration::from_secs(30);

/// The same during a drain, where two tries must fit before the soft mark.
const DRAIN_TRY: Duration = Duration::from_secs(1);

/// How long a resting job waits before it tries again to save.
const SAVE_AGAIN: Duration = Duration::from_secs(5);

/// The longest that a suspect is alone at first.
const ALONE_FIRST_MAX: Duration = Duration::from_mins(1);

/// The longest that a suspect waits until it can be alone, and the longest that it is alone.
pub(super) const ISOLATION_MAX: Duration = Duration::from_hours(24);

/// How long the other jobs wait until the end of a suspect's run is recorded.
const ACCOUNT_WITHIN: Duration = Duration::from_secs(10);

/// The state of one run of a delivery.
#[derive(Debug)]
pub(crate) struct Execution {
    pub(super) shared: Arc<Shared>,
    pub(super) kind: Arc<Kind>,
    pub(super) run: Arc<JobRun>,
    pub(super) data: Data,
    /// When the job last saved, or tried to.
    tried: Instant,
    /// The fingerprint of the encoded state that was loaded; `None` before anything was loaded, and
    /// once the job has moved.
    loaded: Option<u64>,
    /// Until when every step is saved, because the job vanished before.
    pub(super) careful_until: Option<Instant>,
    /// After how many more steps the job saves each time, because it failed there.
    pub(super) careful_steps: u32,
    /// The arguments could not be read in an earlier delivery either.
    pub(super) unreadable_before: bool,
    /// Whether the job runs alone or beside others. It changes only while the record is locked, so
    /// that the two always agree.
    pub(super) presence: Arc<Mutex<Presence>>,
    /// Lets a job that does not move rejoin the others, even while its step blocks its thread.
    chaperone: Option<AbortOnDropHandle<()>>,
    /// The control thread's runtime.
    control: Handle,
    pub(super) failures: LogThrottle,
    /// Whether jobs are to rest, and which are not to be begun.
    pub(super) rules: watch::Receiver<Rules>,
    /// The value of the rules' save counter that this run has seen last.
    asked_to_save: u64,
}

/// The outcome of a run.
#[derive(Debug)]
pub(crate) enum RunOutcome {
    /// Finished, and the result is committed.
    Done,
    /// Finished before, by another delivery: the result exists.
    DoneBefore,
    /// The job is settled, and this message with it. Contains the reason.
    Duplicate(&'static str),
    /// The record has the job's final status; an earlier owner's process died before it settled the
    /// message.
    Unfinished(Status),
    /// Asked to yield, and the progress is saved.
    Yielded,
    /// Asked to yield, and the progress since the last checkpoint is lost. Contains the reason.
    CutShort(String),
    /// A step failed.
    Failed(JobError),
    /// The job can never run. Contains the reason for the poison queue.
    Refused(String),
    /// The message does not belong to the job that has the record. Contains the reason for the
    /// poison queue.
    Foreign(String),
    /// This worker can't run the job, another one may. Contains the reason.
    Misfit(Misfit, String),
    /// Another delivery of the job is running, or the job was moved away.
    Later(Duration, &'static str),
    /// The job must run alone, and the others did not pause in time.
    Crowded,
    /// The job takes longer than this machine may last. Contains the reason.
    TooLong(String),
    /// Another owner has the job now.
    Lost,
}

/// Runs `job` until it ends or must stop.
pub(crate) async fn execute<J: Job>(job: &J, mut execution: Execution) -> RunOutcome {
    let revoked = execution.run.revoked.clone();
    // Losing the job ends every wait at once; a step is dropped at its next await.
    let ended = tokio::select! {
        biased;
        () = revoked.cancelled() => Err(RunOutcome::Lost),
        ended = execution.whole(job) => ended,
    };
    execution.account().await;
    ended.err().unwrap_or(RunOutcome::Done)
}

impl Execution {
    /// Must be called on the control thread.
    pub(super) fn new(shared: &Arc<Shared>, kind: &Arc<Kind>, run: &Arc<JobRun>, data: Data) -> Self {
        Self {
            shared: Arc::clone(shared),
            kind: Arc::clone(kind),
            run: Arc::clone(run),
            data,
            tried: Instant::now(),
            loaded: None,
            careful_until: None,
            careful_steps: 0,
            unreadable_before: false,
            presence: Arc::default(),
            chaperone: None,
            control: Handle::current(),
            failures: LogThrottle::default(),
            rules: shared.rules.subscribe(),
            asked_to_save: shared.rules.get().saves,
        }
    }

    /// Records that a suspect's run has ended, before the others go on. If this process dies later,
    /// the death is not charged to the suspect, although its message is not settled yet.
    async fn account(&self) {
        if !self.is_alone() {
            return;
        }
        let mut record = self.run.record.lock().await;
        if self.is_alone() && record.own().is_some() {
            // If the write is refused or unanswered, the settlement finds out.
            let _written = timeout(ACCOUNT_WITHIN, record.mark(Company::Resting)).await;
        }
    }

    /// Runs to the end and commits the result; any other end is the error. What a short job never
    /// does is boxed, so that its run reserves no memory for it.
    async fn whole<J: Job>(&mut self, job: &J) -> Result<(), RunOutcome> {
        let record = if self.needs_claim() { Box::pin(self.claim()).await? } else { None };
        // Nothing is begun while a suspect runs alone. From here on this job can rest.
        self.begin().await?;
        let args: J::Args = self.args().await?;
        let at = match &record {
            Some(record) => Box::pin(self.load(record)).await?,
            None => None,
        };
        let at = at.unwrap_or_else(|| job.begin(&args));
        self.estimate(job, &args, &at);
        self.fits()?;
        if record.is_some() {
            self.loaded = Some(fingerprint(&encode(&at)?));
        }
        self.tried = Instant::now();
        set(&self.run.last_saved, self.tried);
        self.steps(job, &args, at).await
    }

    /// Runs step after step until the job ends.
    async fn steps<J: Job>(
        &mut self,
        job: &J,
        args: &J::Args,
        mut at: J::Checkpoint,
    ) -> Result<(), RunOutcome> {
        let cx = JobContext { run: Arc::clone(&self.run) };
        loop {
            // A step that never awaits must not keep its thread from the other jobs.
            tokio::task::consume_budget().await;
            if cx.is_interrupted() {
                return Err(Box::pin(self.save_and_yield(&encode(&at)?)).await);
            }
            if self.rules.get().throttle.paused {
                Box::pin(self.rest(&encode(&at)?)).await?;
                continue;
            }
            if self.shared.isolation.is_wanted() && !self.is_alone() {
                Box::pin(self.make_way(&encode(&at)?)).await?;
                // An interruption ends the rest, and no step may begin in one.
                if cx.is_interrupted() {
                    continue;
                }
            }
            match job.step(&cx, args, at).await {
                Ok(Step::Continue(mut next)) => {
                    let steps_before = self.run.steps.fetch_add(1, Relaxed);
                    self.run.unsaved_steps.fetch_add(1, Relaxed);
                    if steps_before == 0 && !cx.is_interrupted() {
                        next = rehearse(next)?;
                    }
                    self.estimate(job, args, &next);
                    if !cx.is_interrupted() && self.save_is_due() {
                        Box::pin(self.save_in_passing(&encode(&next)?)).await?;
                    }
                    self.careful_steps = self.careful_steps.saturating_sub(1);
                    at = next;
                }
                Ok(Step::Done(output)) => {
                    self.run.steps.fetch_add(1, Relaxed);
                    return self.commit(encode_result(&output)?).await;
                }
                // A job returns the refusal of its write as its own error; it is not a failure of
                // the job.
                Err(_) if self.run.revoked.is_cancelled() => return Err(RunOutcome::Lost),
                // In a drain the stores are impatient, and a write that they cut off is no fault of
                // the job.
                Err(error) if error.is_retry() && cx.is_interrupted() => {
                    return Err(RunOutcome::CutShort(error.to_string()));
                }
                Err(error) => return Err(RunOutcome::Failed(error)),
            }
        }
    }

    /// Stores the job's own estimate of its remaining time at `at`.
    pub(super) fn estimate<J: Job>(&self, job: &J, args: &J::Args, at: &J::Checkpoint) {
        let remaining = job.remaining(args, at);
        self.run.estimate.lock().unwrap_or_else(PoisonError::into_inner).update(remaining, Instant::now());
    }

    /// Reports whether the job may be begun here. If only short jobs may begin, fails for a longer
    /// one and for one of unknown length.
    ///
    /// # Errors
    /// [`RunOutcome::TooLong`].
    pub(super) fn fits(&self) -> Result<(), RunOutcome> {
        let Some(limit) = self.rules.get().throttle.below else { return Ok(()) };
        let expected = self.run.expected_end().map(|end| end.saturating_duration_since(Instant::now()));
        // A whole run of its kind is an upper bound for the rest of this one.
        match expected.or_else(|| self.kind.runs.p95()) {
            Some(length) if length <= limit => Ok(()),
            Some(length) => {
                let reason = format!(
                    "the job is expected to take {length:.0?}, and this VM may be evicted within {limit:.0?}"
                );
                Err(RunOutcome::TooLong(reason))
            }
            None => {
                let reason =
                    format!("the job's duration is unknown, and this VM may be evicted within {limit:.0?}");
                Err(RunOutcome::TooLong(reason))
            }
        }
    }

    pub(super) fn is_alone(&self) -> bool {
        lock(&self.presence).is_alone()
    }

    /// Returns how long a suspect runs alone: a checkpoint interval, but at least [`SHORTEST`], which
    /// is enough to prove something, and at most a minute. After deaths that proved nothing, `times`
    /// as long.
    pub(super) fn time_alone(&self, times: u32) -> Duration {
        self.interval().clamp(SHORTEST, ALONE_FIRST_MAX).saturating_mul(times).min(ISOLATION_MAX)
    }

    /// Lets the job run alone for at most `time`.
    pub(super) fn run_alone(&mut self, alone: Alone, time: Duration) {
        *lock(&self.presence) = Presence::Alone(alone);
        let (run, presence) = (Arc::clone(&self.run), Arc::clone(&self.presence));
        let until = Instant::now() + time;
        let chaperone = self.control.spawn(in_process(async move {
            sleep_until(until).await;
            let patience = Patience::calm(TRY, Instant::now() + FOR_EVER);
            let joined = persist("write a record", patience, may_pass, || async {
                run.may_write("write a record").await?;
                let mut record = run.record.lock().await;
                if lock(&presence).is_alone() {
                    // If the record has another owner by now, the next save finds out.
                    let _written = record.survived().await?;
                    lock(&presence).join_others();
                }
                Ok(())
            });
            if let Err(error) = joined.await {
                tracing::debug!(job = %run.job, %error, "the job runs alone until its next save");
            }
        }));
        self.chaperone = Some(AbortOnDropHandle::new(chaperone));
    }

    fn save_is_due(&mut self) -> bool {
        let asked = self.rules.get().saves;
        let asked = std::mem::replace(&mut self.asked_to_save, asked) != asked;
        let careful =
            self.careful_steps > 0 || self.careful_until.is_some_and(|until| Instant::now() < until);
        asked || careful || self.tried.elapsed() >= self.interval()
    }

    /// Returns how often progress is saved when nothing else calls for a save.
    pub(super) fn interval(&self) -> Duration {
        let every: CheckpointEvery = self.shared.settings.checkpoint_every;
        every.interval(self.kind.saves.mean())
    }

    /// Saves and rests until the rest ends or the job is asked to yield. If the save failed, the
    /// rest ends when another try is due.
    async fn rest(&mut self, state: &[u8]) -> Result<(), RunOutcome> {
        self.asked_to_save = self.rules.get().saves;
        let is_saved = self.save_in_passing(state).await?;
        let interrupted = self.run.interrupted.clone();
        tokio::select! {
            biased;
            () = interrupted.cancelled() => {}
            () = resumed(&mut self.rules) => {}
            () = tokio::time::sleep(SAVE_AGAIN), if !is_saved => {}
        }
        Ok(())
    }

    /// Saves and rests while a suspect runs alone, so that its death is not charged to this job. A
    /// job that can't save now does not rest; it is asked again after its next step.
    async fn make_way(&mut self, state: &[u8]) -> Result<(), RunOutcome> {
        if !self.save_as(state, Company::Resting).await? {
            return Ok(());
        }
        let (isolation, interrupted) = (Arc::clone(&self.shared), self.run.interrupted.clone());
        tokio::select! {
            biased;
            () = interrupted.cancelled() => return Ok(()),
            () = isolation.isolation.rest() => {}
        }
        self.mark(Company::Shared).await
    }

    /// Writes into the record whether the job runs alone. Tries without limit; a request to yield
    /// ends the wait.
    async fn mark(&mut self, company: Company) -> Result<(), RunOutcome> {
        const OPERATION: &str = "write a record";
        let (run, interrupted) = (Arc::clone(&self.run), self.run.interrupted.clone());
        let write = || async {
            run.may_write(OPERATION).await?;
            run.record.lock().await.mark(company).await
        };
        let patience = Patience::calm(TRY, Instant::now() + FOR_EVER);
        tokio::select! {
            biased;
            () = interrupted.cancelled() => Ok(()),
            marked = persist(OPERATION, patience, may_pass, write) => match marked {
                Ok(Written::Taken) => Ok(()),
                Ok(Written::Refused) => Err(self.refused().await),
                Err(error) => Err(self.halt_on(error)),
            }
        }
    }

    /// Saves between two steps, and returns whether that succeeded.
    async fn save_in_passing(&mut self, state: &[u8]) -> Result<bool, RunOutcome> {
        self.save_as(state, Company::Shared).await
    }

    /// Saves between two steps. A failure is counted and the job goes on: it only puts more work at
    /// stake until the next save.
    async fn save_as(&mut self, state: &[u8], company: Company) -> Result<bool, RunOutcome> {
        // An interruption needs the save just as much, but under the drain's patience.
        let (interrupted, drain_try) = (self.run.interrupted.clone(), self.drain_try());
        let saved = tokio::select! {
            biased;
            saved = self.save(state, company, TRY) => saved,
            () = async { interrupted.cancelled().await; tokio::time::sleep(drain_try).await } => return Ok(false),
        };
        match saved {
            Ok(Written::Taken) => Ok(true),
            Ok(Written::Refused) => Err(self.refused().await),
            Err(error) if error.kind() == ErrorKind::Superseded => Err(RunOutcome::Lost),
            Err(error) => {
                let job = &self.run.job;
                if self.failures.is_news() {
                    tracing::warn!(
                        %job,
                        %error,
                        "failed to save a checkpoint; the job continues, and the next save is at the usual time"
                    );
                } else {
                    tracing::debug!(%job, %error, "failed to save a checkpoint");
                }
                Ok(false)
            }
        }
    }

    /// Saves because the job was asked to yield. Tries until the guardian revokes the job at the
    /// soft mark.
    async fn save_and_yield(&mut self, state: &[u8]) -> RunOutcome {
        let store: Arc<dyn RecordStore> = Arc::clone(&self.shared.drain_store.records);
        self.run.record.lock().await.use_store(store);
        loop {
            match self.save(state, Company::Shared, self.drain_try()).await {
                Ok(Written::Taken) => return RunOutcome::Yielded,
                Ok(Written::Refused) => return self.refused().await,
                Err(error) if error.kind() == ErrorKind::Superseded => return RunOutcome::Lost,
                Err(error) if error.is_temporary() => tokio::time::sleep(Duration::from_millis(50)).await,
                Err(error) => return RunOutcome::CutShort(error.to_string()),
            }
        }
    }

    /// Returns how long one save may take in a drain: a second, or twice the 95th percentile of
    /// this kind's saves if that is longer.
    fn drain_try(&self) -> Duration {
        DRAIN_TRY.max(self.kind.saves.p95().unwrap_or_default() * 2)
    }

    /// Saves once, and bounds, measures and counts the save.
    async fn save(&mut self, state: &[u8], company: Company, each: Duration) -> Result<Written> {
        const OPERATION: &str = "save a checkpoint";
        self.run.may_write(OPERATION).await?;
        let began = Instant::now();
        // Set before the outcome is known, so that a broken store is not asked after every step.
        self.tried = began;
        let moved = self.loaded.is_none_or(|loaded| loaded != fingerprint(state));
        let careful_steps = self.careful_steps.saturating_sub(1);
        let unanswered = get(&self.run.unconfirmed);
        set(&self.run.unconfirmed, unanswered.or(Some(began)));
        let (run, presence) = (Arc::clone(&self.run), Arc::clone(&self.presence));
        let save = async {
            // Without a record, only the job's result shows that the job is done.
            let is_first = run.record.lock().await.own().is_none() && !run.interrupted.is_cancelled();
            if is_first {
                if run.blobs.exists(&result_blob(&run.job)?).await? {
                    return Ok(Written::Refused);
                }
                // The machine may have been frozen meanwhile.
                run.may_write(OPERATION).await?;
            }
            let mut record = run.record.lock().await;
            let is_alone = !moved && lock(&presence).is_alone();
            let company = if is_alone { Company::Alone } else { company };
            let saved = record.save(state, Saving { moved, company, careful_steps }).await;
            if moved && matches!(saved, Ok(Written::Taken)) {
                lock(&presence).join_others();
            }
            saved
        };
        let saved = bounded(OPERATION, each, save).await;
        match &saved {
            Ok(_) => set(&self.run.unconfirmed, None),
            Err(error) if error.kind() == ErrorKind::TimedOut => {}
            // An earlier unanswered save is as uncertain as before.
            Err(_) => set(&self.run.unconfirmed, unanswered),
        }
        let telemetry = &self.run.telemetry;
        let kind = ByKind { kind: self.kind.name.to_owned() };
        match &saved {
            Ok(Written::Taken) => {
                let took = began.elapsed();
                set(&self.run.last_saved, began);
                self.run.unsaved_steps.store(0, Relaxed);
                self.kind.saves.note(took);
                telemetry.checkpoint_seconds.get_or_create(&kind).observe(took.as_secs_f64());
                #[expect(clippy::cast_precision_loss, reason = "a histogram's bucket needs no more")]
                telemetry.checkpoint_bytes.get_or_create(&kind).observe(state.len() as f64);
                if moved {
                    // The job has moved past the step that it vanished in, so that step did not
                    // kill it.
                    self.loaded = None;
                    self.chaperone = None;
                }
            }
            Ok(Written::Refused) => {
                telemetry.stale_writes_blocked.inc();
            }
            Err(_) => {
                telemetry.checkpoint_errors.get_or_create(&kind).inc();
            }
        }
        saved
    }

    /// Stores the job's result before its message is settled. A `null` result is not written. The
    /// first complete result wins, even if an older owner wrote it.
    async fn commit(&self, json: Vec<u8>) -> Result<(), RunOutcome> {
        if json == b"null" {
            return Ok(());
        }
        Box::pin(self.write_result(json)).await
    }

    async fn write_result(&self, json: Vec<u8>) -> Result<(), RunOutcome> {
        const OPERATION: &str = "write a result";
        self.run.may_write(OPERATION).await.map_err(|_| RunOutcome::Lost)?;
        let run = Arc::clone(&self.run);
        let name = result_blob(&run.job).map_err(|error| RunOutcome::Refused(error.to_string()))?;
        let until = Instant::now() + FOR_EVER;
        let create = |blobs: &Arc<dyn BlobStore>| {
            let (blobs, name, json, run) = (Arc::clone(blobs), name.clone(), json.clone(), Arc::clone(&run));
            async move { blobs.create(&name, json, &run.writer()).await }
        };
        let calm = || create(&run.blobs);
        let hurried = || create(&run.drain_blobs);
        let committed = tokio::select! {
            biased;
            done = persist(OPERATION, Patience::calm(TRY, until), may_pass, calm) => done,
            // Does not wait for a try under way: the call may be made twice.
            () = run.interrupted.cancelled() => {
                persist(OPERATION, Patience::hurried(DRAIN_TRY, until), may_pass, hurried).await
            }
        };
        committed.map(drop).map_err(|error| self.halt_on(error))
    }

    /// Maps an error that will not pass to an outcome of the run.
    pub(super) fn halt_on(&self, error: Error) -> RunOutcome {
        self.run.note_refusal(&error);
        match error.kind() {
            ErrorKind::Superseded | ErrorKind::LeaseLost => RunOutcome::Lost,
            _ => RunOutcome::Failed(JobError::from(error)),
        }
    }
}

fn encode_result<O: Serialize>(output: &O) -> Result<Vec<u8>, RunOutcome> {
    codec::encode_json(output)
        .map(|json| String::from(Box::<str>::from(json)).into_bytes())
        .map_err(|error| RunOutcome::Failed(JobError::fatal(format!("the result can't be stored: {error}"))))
}

/// Saves and loads a state in memory, so that a state that can't be resumed fails its job after the
/// first step, not at the first eviction.
fn rehearse<C: Serialize + DeserializeOwned>(state: C) -> Result<C, RunOutcome> {
    codec::round_trip(state).map_err(|error| {
        RunOutcome::Failed(JobError::fatal(format!("the checkpoint can't be resumed: {error}")))
    })
}

/// Encodes a state for saving.
fn encode<C: Serialize>(state: &C) -> Result<Vec<u8>, RunOutcome> {
    codec::encode_state(state).map_err(|error| {
        RunOutcome::Failed(JobError::fatal(format!("the checkpoint can't be saved: {error}")))
    })
}

pub(super) fn lock(presence: &Mutex<Presence>) -> MutexGuard<'_, Presence> {
    presence.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a fingerprint of an encoded state, to detect changes. Only states that one process
/// encoded are compared.
fn fingerprint(state: &[u8]) -> u64 {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::JobContext;

    #[derive(Debug)]
    struct Noop;

    #[async_trait::async_trait]
    impl Job for Noop {
        const KIND: &'static str = "noop";
        type Args = ();
        type Checkpoint = ();
        type Output = ();

        fn begin(&self, (): &()) {}

        async fn step(&self, _: &JobContext, (): &(), (): ()) -> std::result::Result<Step<(), ()>, JobError> {
            Ok(Step::Done(()))
        }
    }

    fn size_of_future<A, B, F: Future>(_: impl Fn(A, B) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn a_run_reserves_no_memory_for_what_short_jobs_never_do() {
        let size = size_of_future(execute::<Noop>);
        assert!(size < 2 * 1024, "{size} bytes");
    }
}
