//! The interface of a running job to the framework.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Mutex as AsyncMutex, MutexGuard as AsyncMutexGuard};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::child_ids::ChildIds;
use crate::deadline::Deadline;
use crate::dependency::DependencyHandle;
use crate::envelope::Trace;
use crate::error::{Error, ErrorKind, Result};
use crate::estimate::Estimate;
use crate::ids::{Fence, JobId, Writer};
use crate::mutex::{get, set};
use crate::names::{input_blob, output_blob};
use crate::ports::{Progress, Store};
use crate::record::Handle;
use crate::retry::{FOREVER, Patience, may_pass_for_a_job, persist};
use crate::saving::{LOOK_EVERY, StepSaves};
use crate::shared_state::SharedStates;
use crate::telemetry::Telemetry;
use crate::time_limit::TimeLimit;
use crate::turns::Turns;
use crate::wait_time::WaitTime;
use crate::watch;

/// The longest that one blob call may take. The stores set tighter limits, by the size of a blob.
const TRY: Duration = Duration::from_hours(1);

/// A job's view of its delivery: its id and fence, whether it should yield, and its input and
/// output blobs.
pub struct JobContext {
    pub(crate) run: Arc<JobRun>,
}

/// One delivery of one job, shared by the job's task and by the guardian of its lease.
#[derive(Debug)]
pub(crate) struct JobRun {
    pub(crate) job: JobId,
    pub(crate) kind: &'static str,
    pub(crate) delivery: u32,
    /// The job's generation under this owner. A claim may raise it.
    pub(crate) generation: AtomicU32,
    /// The handle to the job's record. Boxed, as `saves` is: allocators are slow with more than a kilobyte.
    pub(crate) record: AsyncMutex<Box<Handle>>,
    pub(crate) store: Arc<Store>,
    /// The same store through clients that give up sooner.
    pub(crate) drain_store: Arc<Store>,
    /// The control thread's runtime; `None` where no worker runs the job.
    pub(crate) control: Option<tokio::runtime::Handle>,
    /// What all jobs of the worker share.
    pub(crate) states: SharedStates,
    /// One for each closure that may compute at once.
    pub(crate) computing: Arc<Turns>,
    /// What the job occupies while it runs.
    pub(crate) slots: OnceLock<Weak<dyn Any + Send + Sync>>,
    /// What the jobs of the worker depend on besides the store.
    pub(crate) dependencies: Arc<[DependencyHandle]>,
    /// What the job was asked to wait for.
    pub(crate) waits_for: OnceLock<DependencyHandle>,
    /// How long it may run.
    pub(crate) time_limit: TimeLimit,
    /// What the ids of its children depend on.
    pub(crate) children: ChildIds,
    /// The trace that the job's message is part of.
    pub(crate) trace: Option<Trace>,
    pub(crate) telemetry: Arc<Telemetry>,
    /// Cancelled when the job should yield.
    pub(crate) interrupted: CancellationToken,
    /// Cancelled when somebody has cancelled the job.
    pub(crate) cancelled: CancellationToken,
    /// Cancelled when this delivery is no longer the owner and may write nothing any more.
    pub(crate) revoked: CancellationToken,
    pub(crate) deadline: Mutex<Option<Deadline>>,
    /// When the lease ends; the guardian updates it.
    pub(crate) lease_ends: watch::Sender<Instant>,
    pub(crate) last_saved: Mutex<Instant>,
    /// When the unanswered save began; `None` when no save is under way.
    pub(crate) unconfirmed: Mutex<Option<Instant>>,
    /// When the try to save that is under way in a drain began, or the drain did, and when it is
    /// given up.
    pub(crate) saving: Mutex<Option<(Instant, Instant)>>,
    /// When the job got its slot.
    pub(crate) began: Mutex<Option<Instant>>,
    /// The same in milliseconds since the Unix epoch.
    pub(crate) began_unix_ms: OnceLock<i64>,
    pub(crate) since_unix_ms: i64,
    /// Since when it has not moved for long, in milliseconds since the Unix epoch; zero while it moves.
    pub(crate) stalled_unix_ms: AtomicI64,
    /// When the worker saw that it had moved, at last; 0 before it looked.
    pub(crate) moved_unix_ms: AtomicI64,
    /// Set when it is to be stopped because it stands still.
    pub(crate) hung: OnceLock<Hang>,
    /// Its step blocked its thread when it was given up.
    pub(crate) blocks: AtomicBool,
    /// It failed, and that is not counted.
    pub(crate) is_excused: AtomicBool,
    /// How long its steps have waited for others.
    pub(crate) wait_time: Arc<WaitTime>,
    /// The span in which its steps run.
    pub(crate) span: OnceLock<tracing::span::Id>,
    /// Why the job was moved to this queue, once that is known.
    pub(crate) escalated: OnceLock<String>,
    /// It resumed at a checkpoint.
    pub(crate) has_resumed: AtomicBool,
    /// Steps finished in this delivery.
    pub(crate) steps: AtomicU64,
    /// Those that were finished when the state was loaded last.
    pub(crate) steps_at_load: AtomicU64,
    /// Steps finished since the last save.
    pub(crate) unsaved_steps: AtomicU32,
    pub(crate) done: AtomicU64,
    pub(crate) total: AtomicU64,
    /// How often it has reported progress, also the same again.
    pub(crate) reports: AtomicU64,
    pub(crate) estimate: Mutex<Estimate>,
    pub(crate) saves: Box<StepSaves>,
}

/// A job that stands still for so long that it is to be stopped.
#[derive(Debug)]
pub(crate) struct Hang {
    /// For how long it has made no save and no progress in its step.
    pub(crate) still: Duration,
    /// Where it stood.
    pub(crate) place: String,
}

impl JobRun {
    /// Notes that a save is tried from now on in a drain, for `each` at most.
    pub(crate) fn note_saving(&self, each: Duration) {
        let now = Instant::now();
        set(&self.saving, Some((now, now + each)));
    }

    /// Returns how much work of this delivery is saved: the time from when it got its slot to its last save.
    pub(crate) fn work_kept(&self) -> Duration {
        let began = get(&self.began);
        began.map_or(Duration::ZERO, |began| get(&self.last_saved).saturating_duration_since(began))
    }

    /// Returns the store: in a drain, the one that gives up sooner.
    pub(crate) fn store(&self, draining: bool) -> &Store {
        if draining { &self.drain_store } else { &self.store }
    }

    /// Locks the record for a call of the step, which may await nothing while it holds the lock.
    pub(crate) async fn record_in_step(&self) -> AsyncMutexGuard<'_, Box<Handle>> {
        loop {
            match self.record.try_lock() {
                Ok(record) => return record,
                Err(_) => sleep(LOOK_EVERY).await,
            }
        }
    }

    /// The fence of this owner.
    pub(crate) fn fence(&self) -> Fence {
        Fence::new(self.generation.load(Relaxed), self.delivery)
    }

    pub(crate) fn writer(&self) -> Writer {
        Writer { job: self.job.clone(), fence: self.fence() }
    }

    /// Whether it still occupies its slots: its step blocks its thread, or work that it computes has not returned.
    pub(crate) fn holds_slots(&self) -> bool {
        self.slots.get().is_some_and(|slots| slots.strong_count() > 0)
    }

    /// Waits until it has given its slots back.
    pub(crate) async fn returned(&self) {
        while self.holds_slots() {
            sleep(LOOK_EVERY).await;
        }
    }

    /// Asks the job to yield before `deadline`.
    pub(crate) fn interrupt(&self, deadline: Deadline) {
        set(&self.deadline, Some(deadline));
        self.interrupted.cancel();
    }

    /// Whether it must yield by a certain time. One that is interrupted without a deadline was only asked to, because what it
    /// needs is away: it may hang there for ever.
    pub(crate) fn has_deadline(&self) -> bool {
        get(&self.deadline).is_some()
    }

    /// Waits until this owner may write: at once while its lease holds. If the lease has ended by
    /// this machine's clock, as after a freeze, it waits until the guardian knows whether the
    /// message is still its own.
    ///
    /// # Errors
    /// [`Superseded`](ErrorKind::Superseded) when the job was revoked.
    pub(crate) async fn may_write(&self, operation: &'static str) -> Result<()> {
        let mut lease = self.lease_ends.subscribe();
        tokio::select! {
            biased;
            () = self.revoked.cancelled() => {}
            _ = lease.wait_for(|ends| Instant::now() < ends) => return Ok(()),
        }
        self.telemetry.stale_writes_blocked.inc();
        let message = format!("this worker lost job {}", self.job);
        Err(Error::new(ErrorKind::Superseded, operation, message))
    }

    /// Stops the job if `error` reports that the store refused a write because of a newer owner.
    pub(crate) fn note_refusal(&self, error: &Error) {
        if error.kind() == ErrorKind::Superseded {
            self.telemetry.stale_writes_blocked.inc();
            self.revoked.cancel();
        }
    }

    /// When the job is expected to be done, if it has reported enough for an estimate.
    pub(crate) fn expected_end(&self) -> Option<Instant> {
        let Progress { done, total } = self.progress();
        get(&self.estimate).end(done, total, Instant::now())
    }

    /// Notes that it stands still since then. Returns whether that is new.
    pub(crate) fn stall(&self, since_unix_ms: i64) -> bool {
        self.stalled_unix_ms.compare_exchange(0, since_unix_ms.max(1), Relaxed, Relaxed).is_ok()
    }

    /// Notes that it moves. Returns whether it stood still.
    pub(crate) fn go_on(&self) -> bool {
        self.stalled_unix_ms.swap(0, Relaxed) != 0
    }

    pub(crate) fn stalled_since(&self) -> Option<i64> {
        Some(self.stalled_unix_ms.load(Relaxed)).filter(|since| *since != 0)
    }

    /// Returns when it was seen to move at last.
    pub(crate) fn moved_at(&self) -> Option<i64> {
        Some(self.moved_unix_ms.load(Relaxed)).filter(|at| *at != 0)
    }

    /// Returns where it is, as far as that is known: in which step of this delivery.
    pub(crate) fn place(&self) -> String {
        let steps = self.steps.load(Relaxed);
        match self.time_limit.in_step_since() {
            Some(_) => format!("step {}", steps + 1),
            None if steps == 0 => "before its first step".to_owned(),
            None => format!("after step {steps}"),
        }
    }

    pub(crate) fn progress(&self) -> Progress {
        Progress { done: self.done.load(Relaxed), total: self.total.load(Relaxed) }
    }
}

impl JobContext {
    /// The job's id.
    #[must_use]
    pub fn job(&self) -> &JobId {
        &self.run.job
    }

    /// The fence of this owner, greater than that of every earlier one. Pass it to your own systems
    /// that must reject writes of an earlier owner.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.run.fence()
    }

    /// What all jobs of this worker share; see
    /// [`WorkerBuilder::share`](crate::worker::WorkerBuilder::share).
    ///
    /// # Panics
    /// When the worker shares no `T`.
    #[must_use]
    pub fn shared<T: Send + Sync + 'static>(&self) -> &T {
        self.run.states.get()
    }

    /// A dependency of the worker, by its name in the settings: whether to call it now, and where to note how
    /// calls fared. See [`WorkerBuilder::dependency`](crate::worker::WorkerBuilder::dependency).
    ///
    /// # Panics
    /// When the worker has no such dependency. A kind that [depends](crate::worker::Depends) on it is
    /// refused when the worker is built.
    #[must_use]
    pub fn dependency(&self, name: &str) -> &DependencyHandle {
        let found = self.run.dependencies.iter().find(|handle| handle.name() == name);
        found.unwrap_or_else(|| panic!("the worker has no dependency {name:?}; add it with .dependency(…)"))
    }

    /// The number of this delivery of the message: 1 the first time.
    #[must_use]
    pub fn delivery(&self) -> u32 {
        self.run.delivery
    }

    /// The number of steps that ended since the state was loaded: 0 in the first step on this
    /// machine, which opens files and fills caches, and again in the step after an attachment was
    /// found damaged, which continues from the checkpoint before.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.run.steps.load(Relaxed) - self.run.steps_at_load.load(Relaxed)
    }

    /// Completes when the job should yield. Then return [`Step::Continue`](crate::Step::Continue)
    /// with the state so far. Meant for `select!` inside a long step. Cancel-safe.
    pub async fn interrupted(&self) {
        self.run.interrupted.cancelled().await;
    }

    /// Whether the job should yield, for a loop that does not await.
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        self.run.interrupted.is_cancelled()
    }

    /// Completes when somebody has cancelled the job: [`interrupted`](Self::interrupted) does, too, and
    /// nothing that the step returns or saves from now on is used. For a step that has something to clean
    /// up outside: it has three seconds, then it is dropped at its next `.await`. Cancel-safe.
    pub async fn cancelled(&self) {
        self.run.cancelled.cancelled().await;
    }

    /// Whether somebody has cancelled the job, for a loop that does not await.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.run.cancelled.is_cancelled()
    }

    /// How long until the job is abandoned if it still runs; `None` while no drain concerns it.
    #[must_use]
    pub fn time_left(&self) -> Option<Duration> {
        get(&self.run.deadline).map(|deadline| deadline.left())
    }

    /// Reports the job's progress, for `reprieve status`. `total` 0 means unknown. The call is
    /// cheap. Each call shows that the step does not stand still
    /// ([`stall_after`](crate::worker::Limits::stall_after)), also one with the same numbers.
    ///
    /// Unless the job implements [`Job::remaining`](crate::Job::remaining), the worker also
    /// estimates from the rate of progress whether the job will be done before its machine is
    /// deleted.
    pub fn progress(&self, done: u64, total: u64) {
        let mut estimate = self.run.estimate.lock().unwrap_or_else(PoisonError::into_inner);
        estimate.progress(done, Instant::now());
        drop(estimate);
        self.run.done.store(done, Relaxed);
        self.run.total.store(total, Relaxed);
        self.run.reports.fetch_add(1, Relaxed);
    }

    /// Reads an input blob, which is named from the root, with or without `/`. For a large one, see
    /// [`input_stream`](Self::input_stream). While the store does not answer, this waits without limit:
    /// an outage is not a failure of the job.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound) when there is no such blob. A temporary error only when
    /// the job should yield; a step that returns it then is not charged with a failure. The store's
    /// other errors.
    pub async fn input(&self, name: &str) -> Result<Vec<u8>> {
        const OPERATION: &str = "read an input";
        let name = input_blob(name)?;
        self.outlast(OPERATION, || self.run.store.blobs.get(&name)).await?.ok_or_else(|| {
            Error::new(ErrorKind::NotFound, OPERATION, format!("there is no blob named {name}"))
        })
    }

    /// Writes an output blob under this owner's fence, whole or not at all: `x.png` below
    /// `jobs/<job id>/`, and `/thumbs/x.png` as `thumbs/x.png`. Writing the same name again replaces it.
    /// For a large one, see [`output_stream`](Self::output_stream). While the store does not answer,
    /// this waits as [`input`](Self::input) does.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) for a name that no blob can have, and for an absolute one of
    /// Reprieve's own blobs. [`Superseded`](ErrorKind::Superseded) when the job has a newer owner:
    /// return the error, the job is cancelled anyway. The store's other errors.
    pub async fn put_output(&self, name: &str, bytes: Vec<u8>) -> Result<()> {
        const OPERATION: &str = "write an output";
        let name = output_blob(OPERATION, self.job(), name)?;
        let put = self.outlast(OPERATION, || async {
            self.run.may_write(OPERATION).await?;
            let store = self.run.store(self.is_interrupted());
            store.blobs.put(&name, bytes.clone(), Some(&self.run.writer())).await
        });
        let put = put.await;
        if let Err(error) = &put {
            self.run.note_refusal(error);
        }
        put
    }
}

impl JobContext {
    /// Repeats an idempotent call until it is answered or the job should yield.
    pub(crate) async fn outlast<T, F: Future<Output = Result<T>>>(
        &self,
        operation: &'static str,
        call: impl FnMut() -> F,
    ) -> Result<T> {
        let under_way = self.run.wait_time.begin();
        let again = |error: &Error| {
            under_way.failed();
            may_pass_for_a_job(error) && !self.is_interrupted()
        };
        persist(operation, Patience::calm(TRY, Instant::now() + FOREVER), again, call).await
    }
}

impl fmt::Debug for JobContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobContext")
            .field("job", self.job())
            .field("fence", &self.fence())
            .field("interrupted", &self.is_interrupted())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The allocator of glibc keeps freed blocks of up to 1,032 bytes at hand, and searches for larger ones.
    #[test]
    fn a_run_and_its_counts_are_a_small_block() {
        assert!(size_of::<JobRun>() + 2 * size_of::<usize>() <= 1_032, "{} bytes", size_of::<JobRun>());
    }
}
