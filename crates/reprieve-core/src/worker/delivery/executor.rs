//! Runs one delivery of a job on a job thread: reads its arguments, and runs step after step, until
//! the job is done, asked to yield, or owned by another worker. A redelivered job is claimed and
//! loaded before, which is `resume`'s part; `save` saves.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::save::{DRAIN_TRY, Loaded, Saved, Saver, TRY};
use crate::clock::unix_millis_after;
use crate::codec::{self, Encoded, Fingerprint, without_value};
use crate::context::{JobContext, JobRun};
use crate::dependency::DependencyHandle;
use crate::envelope::{Data, Misfit};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{BlobName, Fence};
use crate::job::{Job, JobError, Step};
use crate::names::result_blob;
use crate::ports::BlobStore;
use crate::process::in_process;
use crate::record::{Company, Look, Status, Written};
use crate::retry::{FOREVER, Patience, bounded, may_pass, persist};
use crate::time_limit::TimedOut;
use crate::watch;
use crate::worker::cancels::ASK_WITHIN;
use crate::worker::isolation::Presence;
use crate::worker::kind::Kind;
use crate::worker::shared::{Rules, Shared, resumed};

/// How long a resting job waits before it tries again to save.
const SAVE_AGAIN: Duration = Duration::from_secs(5);

/// How long the other jobs wait until the end of a suspect's run is recorded.
const ACCOUNT_WITHIN: Duration = Duration::from_secs(10);

/// How long a job waits in its slot for arguments that a blob store does not return.
const ARGS_WITHIN: Duration = Duration::from_secs(10);

/// How often a job goes back in one delivery because of damaged chunks. A store that loses the same
/// chunk each time must not keep it going for ever.
const GOING_BACK_MAX: u32 = 3;

/// How often it does so in its life. Each time, it may have made progress before it comes to the same
/// place, so that failures are forgiven.
const GOING_BACK_EVER_MAX: u32 = 20;

/// The same for arguments that could not be read in an earlier delivery either.
const ARGS_AGAIN_WITHIN: Duration = Duration::from_secs(2);

/// The state of one run of a delivery.
#[derive(Debug)]
pub(crate) struct Execution {
    pub(super) shared: Arc<Shared>,
    pub(super) kind: Arc<Kind>,
    pub(super) run: Arc<JobRun>,
    pub(super) data: Data,
    pub(super) saver: Saver,
    /// The arguments could not be read in an earlier delivery either.
    pub(super) unreadable_before: bool,
    /// Whether the job was enqueued under an id of its producer's own, and so has a record.
    pub(super) has_own_id: bool,
    /// It counts under no limit, because it was taken for cancelled.
    pub(super) has_no_place: bool,
    /// Whether the job runs alone or beside others. It changes only while the record is locked, so
    /// that the two always agree.
    pub(super) presence: Arc<Mutex<Presence>>,
    /// Lets a job that does not move rejoin the others, even while its step blocks its thread.
    pub(super) chaperone: Option<AbortOnDropHandle<()>>,
    /// The control thread's runtime.
    pub(super) control: Handle,
    /// Whether jobs are to rest, and which are not to be begun.
    pub(super) rules: watch::Receiver<Rules>,
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
    /// A step, or the job, took longer than its timeout.
    TimedOut(TimedOut),
    /// The job can never run. Contains the reason for the poison queue.
    Refused(String),
    /// The message does not belong to the job that has the record. Contains the reason for the
    /// poison queue.
    Foreign(String),
    /// This worker can't run the job, another one may. Contains the reason.
    Misfit(Misfit, String),
    /// The job waits at its own request, until this time in milliseconds since the Unix epoch.
    Waiting(i64),
    /// Another delivery of the job is running, or the job was moved away.
    Later(Duration, &'static str),
    /// The job moves to the queue for jobs that interruptions keep from moving on. Contains the reason.
    Escalated(String),
    /// The job must run alone, and the others did not pause in time.
    Crowded,
    /// The job takes longer than this machine may last. Contains the reason.
    TooLong(String),
    /// Another owner has the job now.
    Lost,
}

/// Runs `job` until it ends or must stop.
pub(crate) async fn execute<J: Job>(job: &J, mut execution: Box<Execution>) -> RunOutcome {
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

/// A step that has not ended by itself. Dropped before it, this says that calls which are dropped with it were not given up.
struct DroppedStep<'a>(&'a JobRun);

impl Drop for DroppedStep<'_> {
    fn drop(&mut self) {
        self.0.dependencies.iter().for_each(DependencyHandle::drop_step);
    }
}

impl Execution {
    /// Must be called on the control thread. Boxed, because several futures take it over.
    pub(super) fn new(shared: &Arc<Shared>, kind: &Arc<Kind>, run: &Arc<JobRun>, data: Data) -> Box<Self> {
        let presence = Arc::default();
        Box::new(Self {
            shared: Arc::clone(shared),
            kind: Arc::clone(kind),
            run: Arc::clone(run),
            data,
            saver: Saver::new(shared, kind, run, &presence),
            unreadable_before: false,
            has_own_id: false,
            has_no_place: false,
            presence,
            chaperone: None,
            control: Handle::current(),
            rules: shared.rules.subscribe(),
        })
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
            let _written = timeout(ACCOUNT_WITHIN, Box::pin(record.mark(Company::Resting))).await;
        }
    }

    /// Reports whether to look for a record. A first delivery reads and writes nothing, unless
    /// finished jobs are remembered, the job has an id of its producer's own, or it was cancelled.
    fn needs_claim(&self) -> bool {
        !self.is_first()
            || self.has_own_id
            || !self.shared.settings.remember_done.is_zero()
            || self.shared.cancels.contains(&self.run.job)
    }

    /// Makes sure that it is known which jobs were cancelled; returns false if that takes too long. The
    /// control thread asks, so that no job that computes without yielding keeps the answer from the others.
    async fn know_cancels(&self) -> bool {
        if self.shared.cancels.are_known() {
            return true;
        }
        let shared = Arc::clone(&self.shared);
        let knowing = self.control.spawn(in_process(async move { shared.know_cancels().await }));
        // It goes on if that takes longer, and tells the job then.
        timeout(ASK_WITHIN, knowing).await.is_ok()
    }

    /// Looks whether the job was cancelled although its record does not say so. Without an answer it goes on.
    ///
    /// # Errors
    /// How the run ends then. A job that got no place because it was taken for cancelled is released: its next
    /// delivery counts under the limits of its kind.
    async fn look_for_mark(&self) -> Result<(), RunOutcome> {
        let run = &self.run;
        let marked = run.store.is_marked_as_cancelled(&run.job);
        match bounded("look for the mark of a cancelled job", ASK_WITHIN, marked).await {
            Ok(true) => return Err(RunOutcome::Unfinished(Status::Cancelled)),
            Ok(false) => self.shared.cancels.forget(&run.job),
            Err(error) => {
                tracing::debug!(job = %run.job, %error, "failed to look for the mark of a cancelled job");
            }
        }
        if self.has_no_place { Err(RunOutcome::Yielded) } else { Ok(()) }
    }

    /// Reports whether this is the first delivery of the message.
    pub(super) fn is_first(&self) -> bool {
        self.run.fence() <= Fence::new(0, 1)
    }

    /// Runs to the end and commits the result; any other end is the error. What a short job never
    /// does is boxed, so that its run reserves no memory for it.
    async fn whole<J: Job>(&mut self, job: &J) -> Result<(), RunOutcome> {
        let are_known = self.know_cancels().await;
        let record = if self.needs_claim() { Box::pin(self.claim()).await? } else { None };
        if !are_known || self.has_no_place || self.shared.cancels.contains(&self.run.job) {
            Box::pin(self.look_for_mark()).await?;
        }
        // Nothing is begun while a suspect runs alone. From here on this job can rest.
        self.begin().await?;
        let args: J::Args = self.args().await?;
        let at = match &record {
            Some(record) => Box::pin(self.load::<J>(record)).await?,
            None => None,
        };
        let at = at.unwrap_or_else(|| job.begin(&args));
        self.estimate(job, &args, &at);
        self.fits()?;
        self.saver.begin(record.is_some().then(|| loaded(&at)).transpose()?);
        self.steps(job, &args, at).await
    }

    /// Counts this job as active, unless it already is or it runs alone. Waits while a suspect runs
    /// alone.
    pub(super) async fn begin(&mut self) -> Result<(), RunOutcome> {
        if !matches!(*Presence::lock(&self.presence), Presence::NotBegun) {
            return Ok(());
        }
        tokio::select! {
            biased;
            active = self.shared.isolation.begin() => *Presence::lock(&self.presence) = Presence::Beside { _active: active },
            () = self.run.interrupted.cancelled() => return Err(RunOutcome::Yielded),
        }
        Ok(())
    }

    /// Reads the arguments, from the message or from their blob.
    pub(super) async fn args<A: DeserializeOwned>(&self) -> Result<A, RunOutcome> {
        let read = match &self.data {
            Data::Inline(json) => serde_json::from_str(json.get()),
            Data::Blob(name) => serde_json::from_slice(&Box::pin(self.args_blob(name)).await?),
        };
        read.map_err(|error| {
            let reason =
                format!("the arguments do not fit kind {:?}: {}", self.kind.name, without_value(&error));
            RunOutcome::Misfit(Misfit::Shape, reason)
        })
    }

    /// Reads the arguments from a blob. A finished job may have none any more, which its result or
    /// its record proves.
    async fn args_blob(&self, name: &BlobName) -> Result<Vec<u8>, RunOutcome> {
        let run = Arc::clone(&self.run);
        // Unreadable arguments must not occupy the slot for long: many jobs may have them.
        let within = if self.unreadable_before { ARGS_AGAIN_WITHIN } else { ARGS_WITHIN };
        let patience = Patience::calm(TRY, Instant::now() + within.min(self.shared.settings.lease));
        let read = tokio::select! {
            biased;
            read = persist("read arguments", patience, Error::is_temporary, || run.store.blobs.get(name)) => read,
            () = self.run.interrupted.cancelled() => return Err(RunOutcome::Yielded),
        };
        match read {
            Ok(Some(json)) => return Ok(json),
            Ok(None) => {}
            Err(error) => {
                let reason = format!("the blob {name} with the job's arguments could not be read: {error}");
                return Err(RunOutcome::Misfit(Misfit::Unreadable, reason));
            }
        }
        if self.run.record.lock().await.own().is_none() {
            let (look, has_result) = self.look().await?;
            if has_result || matches!(look, Look::Found(_)) {
                self.decide(&look, has_result).await?;
            }
        }
        let reason = format!(
            "there is no blob {name} with the job's arguments; it may be in another container or store"
        );
        Err(RunOutcome::Misfit(Misfit::Unreadable, reason))
    }

    /// Runs step after step until the job ends.
    async fn steps<J: Job>(
        &mut self,
        job: &J,
        args: &J::Args,
        mut at: J::Checkpoint,
    ) -> Result<(), RunOutcome> {
        let cx = JobContext { run: Arc::clone(&self.run) };
        let mut went_back = 0;
        loop {
            // A step that never awaits must not keep its thread from the other jobs.
            tokio::task::consume_budget().await;
            // A step that never awaits is not dropped, and another worker may run the job.
            if self.run.revoked.is_cancelled() {
                return Err(RunOutcome::Lost);
            }
            if cx.is_interrupted() {
                return Err(Box::pin(self.save_and_yield(&self.encode(&at)?)).await);
            }
            // It meets no timer either.
            if let Some(timed_out) = self.run.time_limit.of_job_passed() {
                return Err(RunOutcome::TimedOut(timed_out));
            }
            if self.rules.get().throttle.paused {
                Box::pin(self.rest(&self.encode(&at)?)).await?;
                continue;
            }
            if self.shared.isolation.is_wanted() && !self.is_alone() {
                Box::pin(self.rest_for_suspect(&self.encode(&at)?)).await?;
                // An interruption ends the rest, and no step may begin in one.
                if cx.is_interrupted() {
                    continue;
                }
            }
            let ended = self.step(job, &cx, args, at).await?;
            let damaged = cx.run.saves.take_damaged();
            // A finished job has no next checkpoint.
            let is_done = matches!(ended, Ok(Step::Done(_)));
            if !damaged.is_empty() && !is_done && Box::pin(self.drop_damaged(&damaged, ended.is_err())).await
            {
                went_back += 1;
                if Box::pin(self.count_going_back()).await? > GOING_BACK_EVER_MAX {
                    return Err(RunOutcome::Refused(format!(
                        "chunks of the job's attachments were damaged or missing more than {GOING_BACK_EVER_MAX} times"
                    )));
                }
                if went_back > GOING_BACK_MAX {
                    return Err(RunOutcome::Failed(JobError::retry(
                        "chunks of the job's attachments are damaged or missing again and again",
                    )));
                }
                let back = Box::pin(self.go_back::<J>()).await?;
                at = back.unwrap_or_else(|| job.begin(args));
                self.saver.go_back(loaded(&at)?);
                // What the job keeps beside its state is loaded anew.
                self.run.steps_at_load.store(self.run.steps.load(Relaxed), Relaxed);
                continue;
            }
            match ended {
                Ok(Step::Continue(next)) => {
                    at = self.count_step(next)?;
                    self.estimate(job, args, &at);
                    if self.saver.is_due_after_step() && !cx.is_interrupted() {
                        Box::pin(self.save(&self.encode(&at)?, Company::Shared)).await?;
                    }
                }
                Ok(Step::Wait(next, delay)) => {
                    let next = self.count_step(next)?;
                    return Err(Box::pin(self.wait(&self.encode(&next)?, delay)).await);
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

    /// Counts a step, and returns the state after it. After the first step of a delivery that is the
    /// state as it comes back from a save.
    fn count_step<C: Serialize + DeserializeOwned + 'static>(&mut self, next: C) -> Result<C, RunOutcome> {
        let is_first = self.run.steps.load(Relaxed) == self.run.steps_at_load.load(Relaxed);
        self.run.steps.fetch_add(1, Relaxed);
        self.run.unsaved_steps.fetch_add(1, Relaxed);
        self.run.children.end_step();
        if !is_first || self.run.interrupted.is_cancelled() {
            return Ok(next);
        }
        // Without a look at the state where nothing was loaded.
        let is_loaded = self.saver.is_at_rest() && self.saver.has_loaded(fingerprint(&next)?);
        let next = rehearse(next)?;
        if is_loaded {
            // The order of a map with hashing is another one now.
            self.saver.reload(fingerprint(&next)?);
        }
        self.run.saves.checked.store(true, Relaxed);
        Ok(next)
    }

    /// Saves, with the time at which the job wants to continue. Tries until that succeeds or the job
    /// must yield.
    async fn wait(&mut self, state: &Encoded, delay: Duration) -> RunOutcome {
        let due = unix_millis_after(delay);
        self.saver.wait_until(due);
        self.run.children.note_wait();
        let interrupted = self.run.interrupted.clone();
        while !interrupted.is_cancelled() {
            match self.save(state, Company::Shared).await {
                Ok(true) => return RunOutcome::Waiting(due),
                Ok(false) => drop(timeout(SAVE_AGAIN, interrupted.cancelled()).await),
                Err(ended) => return ended,
            }
        }
        match self.save_and_yield(state).await {
            RunOutcome::Yielded => RunOutcome::Waiting(due),
            ended => ended,
        }
    }

    /// Stores the job's own estimate of its remaining time at `at`.
    pub(super) fn estimate<J: Job>(&self, job: &J, args: &J::Args, at: &J::Checkpoint) {
        let remaining = job.remaining(args, at);
        self.run.estimate.lock().unwrap_or_else(PoisonError::into_inner).update(remaining, Instant::now());
    }

    /// Reports whether the job may be begun here. Before an event it had better end, or begin on another machine if
    /// there is one for which none is announced. While only short jobs may begin, the latter also holds for one of
    /// unknown length.
    ///
    /// # Errors
    /// [`RunOutcome::TooLong`].
    pub(super) fn fits(&self) -> Result<(), RunOutcome> {
        let throttle = self.rules.get().throttle;
        let left = throttle.ends_at.map(|ends| ends.saturating_duration_since(Instant::now()));
        let Some(limit) = throttle.below.into_iter().chain(left).min() else { return Ok(()) };
        if !self.shared.elsewhere.serves(self.kind.name) {
            return Ok(());
        }
        let expected = self.run.expected_end().map(|end| end.saturating_duration_since(Instant::now()));
        // A whole run of its kind is an upper bound for the rest of this one.
        match expected.or_else(|| self.kind.runs.p95()) {
            Some(length) if length <= limit => Ok(()),
            Some(length) => Err(RunOutcome::TooLong(format!(
                "the job is expected to take {length:.0?}, and this VM's work may end within {limit:.0?}"
            ))),
            None if throttle.below.is_none() => Ok(()),
            None => Err(RunOutcome::TooLong(format!(
                "the job's duration is unknown, and this VM may be evicted within {limit:.0?}"
            ))),
        }
    }

    pub(super) fn is_alone(&self) -> bool {
        Presence::lock(&self.presence).is_alone()
    }

    /// Runs one step, and saves whenever the step asks for it.
    async fn step<J: Job>(
        &mut self,
        job: &J,
        cx: &JobContext,
        args: &J::Args,
        at: J::Checkpoint,
    ) -> Result<std::result::Result<Step<J::Checkpoint, J::Output>, JobError>, RunOutcome> {
        self.run.dependencies.iter().for_each(DependencyHandle::begin_step);
        let (mut step, run) = (job.step(cx, args, at), Arc::clone(&self.run));
        let dropped = DroppedStep(&run);
        let mut time_up = run.time_limit.begin_step();
        loop {
            let request = tokio::select! {
                biased;
                ended = &mut step => {
                    std::mem::forget(dropped);
                    run.time_limit.end_step();
                    return Ok(ended);
                }
                // The step makes its requests while it is polled.
                request = run.saves.requested() => request,
                () = self.rules.changed() => {
                    self.saver.look_at_rules();
                    continue;
                }
                () = sleep_until(time_up.unwrap_or_else(Instant::now)), if time_up.is_some() => {
                    if let Some(timed_out) = run.time_limit.of_step() {
                        return Err(RunOutcome::TimedOut(timed_out));
                    }
                    // The machine was frozen meanwhile.
                    time_up = run.time_limit.look_at();
                    continue;
                }
            };
            // A save takes as long as the store does, and a rest as long as the notice.
            run.time_limit.end_step();
            let saved = Box::pin(self.save_in_step(&request.state)).await?;
            request.answer(saved);
            time_up = run.time_limit.begin_step();
        }
    }

    /// Saves in the middle of a step, which is a moment like that between two steps: the job rests
    /// if it is to rest. Returns whether the state was saved.
    async fn save_in_step(&mut self, state: &Encoded) -> Result<bool, RunOutcome> {
        if self.run.interrupted.is_cancelled() {
            return match self.save_and_yield(state).await {
                RunOutcome::Yielded => Ok(true),
                ended => Err(ended),
            };
        }
        if self.rules.get().throttle.paused {
            return self.rest(state).await;
        }
        if self.shared.isolation.is_wanted() && !self.is_alone() {
            return self.rest_for_suspect(state).await;
        }
        self.save(state, Company::Shared).await
    }

    /// Encodes a state for saving, compressed where that pays.
    fn encode<C: Serialize>(&self, state: &C) -> Result<Encoded, RunOutcome> {
        let packs = self.kind.packing.is_on();
        let encoded = if packs { codec::encode_packed(state) } else { codec::encode_state(state) };
        encoded.map_err(|error| {
            RunOutcome::Failed(JobError::fatal(format!("the checkpoint can't be saved: {error}")))
        })
    }

    /// Saves without ending the run, and returns whether that succeeded.
    async fn save(&mut self, state: &Encoded, company: Company) -> Result<bool, RunOutcome> {
        match self.saver.save_in_passing(state, company).await {
            Saved::Yes => Ok(true),
            Saved::No(_) => Ok(false),
            Saved::Refused => Err(self.refused().await),
            Saved::Lost => Err(RunOutcome::Lost),
        }
    }

    /// Saves because the job was asked to yield.
    async fn save_and_yield(&mut self, state: &Encoded) -> RunOutcome {
        match self.saver.save_in_drain(state).await {
            Saved::Yes => RunOutcome::Yielded,
            Saved::No(reason) => RunOutcome::CutShort(reason),
            Saved::Refused => self.refused().await,
            Saved::Lost => RunOutcome::Lost,
        }
    }

    /// Saves and rests until the rest ends or the job is asked to yield. If the save failed, the
    /// rest ends when another try is due. Returns whether the state was saved.
    async fn rest(&mut self, state: &Encoded) -> Result<bool, RunOutcome> {
        let is_saved = self.save(state, Company::Shared).await?;
        let interrupted = self.run.interrupted.clone();
        tokio::select! {
            biased;
            () = interrupted.cancelled() => {}
            () = resumed(&mut self.rules) => {}
            () = tokio::time::sleep(SAVE_AGAIN), if !is_saved => {}
        }
        Ok(is_saved)
    }

    /// Saves and rests while a suspect runs alone, so that its death is not charged to this job. A
    /// job that can't save now does not rest; it is asked again after its next step. Returns whether
    /// the state was saved.
    async fn rest_for_suspect(&mut self, state: &Encoded) -> Result<bool, RunOutcome> {
        if !self.save(state, Company::Resting).await? {
            return Ok(false);
        }
        let (isolation, interrupted) = (Arc::clone(&self.shared), self.run.interrupted.clone());
        tokio::select! {
            biased;
            () = interrupted.cancelled() => return Ok(true),
            () = isolation.isolation.rest() => {}
        }
        self.mark(Company::Shared).await?;
        Ok(true)
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
        let patience = Patience::calm(TRY, Instant::now() + FOREVER);
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

    /// Stores the job's result before its message is settled. A `null` result is not written. The
    /// first complete result wins, even if an older owner wrote it.
    async fn commit(&self, json: Vec<u8>) -> Result<(), RunOutcome> {
        if json == b"null" && !self.has_own_id {
            return Ok(());
        }
        Box::pin(self.write_result(json)).await
    }

    async fn write_result(&self, json: Vec<u8>) -> Result<(), RunOutcome> {
        // The result of an older owner may be another one.
        let is_first = json == b"null" || self.create_result(&json).await?;
        if self.has_own_id
            && is_first
            && let Ok(result) = serde_json::from_slice(&json)
        {
            self.run.record.lock().await.note_result(result);
        }
        Ok(())
    }

    /// Stores the result; returns false if there is one.
    async fn create_result(&self, json: &[u8]) -> Result<bool, RunOutcome> {
        const OPERATION: &str = "write a result";
        self.run.may_write(OPERATION).await.map_err(|_| RunOutcome::Lost)?;
        let run = Arc::clone(&self.run);
        let name = result_blob(&run.job).map_err(|error| RunOutcome::Refused(error.to_string()))?;
        let until = Instant::now() + FOREVER;
        let create = |blobs: &Arc<dyn BlobStore>| {
            let (blobs, name, json, run) = (Arc::clone(blobs), name.clone(), json.to_vec(), Arc::clone(&run));
            async move { blobs.create(&name, json, &run.writer()).await }
        };
        let calm = || create(&run.store.blobs);
        let hurried = || create(&run.drain_store.blobs);
        let committed = tokio::select! {
            biased;
            done = persist(OPERATION, Patience::calm(TRY, until), may_pass, calm) => done,
            // Does not wait for a try under way: the call may be made twice.
            () = run.interrupted.cancelled() => {
                persist(OPERATION, Patience::hurried(DRAIN_TRY, until), may_pass, hurried).await
            }
        };
        committed.map_err(|error| self.halt_on(error))
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
fn rehearse<C: Serialize + DeserializeOwned + 'static>(state: C) -> Result<C, RunOutcome> {
    codec::round_trip(state).map_err(|error| {
        RunOutcome::Failed(JobError::fatal(format!("the checkpoint can't be resumed: {error}")))
    })
}

/// Returns the fingerprint of a state that was loaded.
fn fingerprint<C: Serialize>(state: &C) -> Result<Fingerprint, RunOutcome> {
    codec::fingerprint(state).map_err(|error| not_savable(&error))
}

fn not_savable(error: &str) -> RunOutcome {
    RunOutcome::Failed(JobError::fatal(format!("the checkpoint can't be saved again: {error}")))
}

/// Returns the identity of a state.
fn loaded<C: Serialize>(at: &C) -> Result<Loaded, RunOutcome> {
    Loaded::new(at).map_err(|error| not_savable(&error))
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
