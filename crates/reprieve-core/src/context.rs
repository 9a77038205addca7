//! What a job can ask and do while it runs.

use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::deadline::Deadline;
use crate::error::{Error, ErrorKind, Result};
use crate::estimate::Estimate;
use crate::ids::{BlobName, Fence, JobId, Writer};
use crate::ports::{BlobStore, Progress};
use crate::record::Handle;
use crate::retry::{FOR_EVER, Patience, persist};
use crate::telemetry::Telemetry;
use crate::watch;

/// The longest that one call for a blob may take. A store bounds its calls itself, by their size.
const TRY: Duration = Duration::from_hours(1);

/// A job's view of its delivery: who it is, whether it should yield, and its input and output blobs.
pub struct JobContext {
    pub(crate) run: Arc<JobRun>,
}

/// One delivery of one job, as its task and the guardian of its lease share it.
#[derive(Debug)]
pub(crate) struct JobRun {
    pub(crate) job: JobId,
    pub(crate) delivery: u32,
    /// The job's generation under this owner, which a claim may raise.
    pub(crate) generation: AtomicU32,
    /// The handle to the job's record.
    pub(crate) record: AsyncMutex<Handle>,
    pub(crate) blobs: Arc<dyn BlobStore>,
    pub(crate) drain_blobs: Arc<dyn BlobStore>,
    pub(crate) telemetry: Arc<Telemetry>,
    /// Asked to yield.
    pub(crate) interrupted: CancellationToken,
    /// No longer the owner: nothing may be written any more.
    pub(crate) revoked: CancellationToken,
    pub(crate) deadline: Mutex<Option<Deadline>>,
    /// When the lease ends; the lease keeper moves it.
    pub(crate) lease_ends: watch::Sender<Instant>,
    pub(crate) last_saved: Mutex<Instant>,
    /// Since when a save is under way that has not been answered.
    pub(crate) unconfirmed: Mutex<Option<Instant>>,
    /// When the job got its slot.
    pub(crate) began: Mutex<Option<Instant>>,
    pub(crate) since_unix_ms: i64,
    pub(crate) steps: AtomicU64,
    /// Steps that were finished since the last save.
    pub(crate) unsaved_steps: AtomicU32,
    pub(crate) done: AtomicU64,
    pub(crate) total: AtomicU64,
    pub(crate) estimate: Mutex<Estimate>,
}

/// Reads a value that is only ever replaced whole, so that a panic elsewhere can't have left half of one.
pub(crate) fn get<T: Copy>(of: &Mutex<T>) -> T {
    *of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Replaces a value that [`get`] reads.
pub(crate) fn set<T>(of: &Mutex<T>, value: T) {
    *of.lock().unwrap_or_else(PoisonError::into_inner) = value;
}

impl JobRun {
    /// Orders this owner among all owners of the job.
    pub(crate) fn fence(&self) -> Fence {
        Fence::new(self.generation.load(Relaxed), self.delivery)
    }

    pub(crate) fn writer(&self) -> Writer {
        Writer { job: self.job.clone(), fence: self.fence() }
    }

    /// Asks the job to yield before `deadline`.
    pub(crate) fn interrupt(&self, deadline: Deadline) {
        set(&self.deadline, Some(deadline));
        self.interrupted.cancel();
    }

    /// Waits until this owner may write: at once while its lease holds. Where the lease has ended by this machine's clock,
    /// as after a freeze, its guardian first finds out whether the message is still its own.
    ///
    /// # Errors
    /// [`Superseded`](ErrorKind::Superseded) when it is not.
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

    /// Notes an error of a write that the store refused because of a newer owner, and stops the job then.
    pub(crate) fn note_refusal(&self, error: &Error) {
        if error.kind() == ErrorKind::Superseded {
            self.telemetry.stale_writes_blocked.inc();
            self.revoked.cancel();
        }
    }

    /// When the job is expected to be done, if it has said anything to tell by.
    pub(crate) fn expected_end(&self) -> Option<Instant> {
        let Progress { done, total } = self.progress();
        get(&self.estimate).end(done, total, Instant::now())
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

    /// Orders this owner of the job among all its owners. Hand it to systems of your own that must refuse an older one.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.run.fence()
    }

    /// Which delivery of the job this is: 1 the first time.
    #[must_use]
    pub fn delivery(&self) -> u32 {
        self.run.delivery
    }

    /// Completes when the job should yield: return [`Step::Continue`](crate::Step::Continue) with what is done so far.
    /// For `select!` inside a long step. Cancel-safe.
    pub async fn interrupted(&self) {
        self.run.interrupted.cancelled().await;
    }

    /// Whether the job should yield, for a loop that does not await.
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        self.run.interrupted.is_cancelled()
    }

    /// How long until whatever still runs is abandoned; `None` while nothing calls for an end.
    #[must_use]
    pub fn time_left(&self) -> Option<Duration> {
        get(&self.run.deadline).map(|deadline| deadline.left())
    }

    /// Says how far the job is, for `reprieve status`. `total` 0 means unknown. Costs nothing.
    ///
    /// From its pace it is also told whether the job will be done before a machine is deleted, unless the job says that
    /// itself by [`Job::remaining`](crate::Job::remaining).
    pub fn progress(&self, done: u64, total: u64) {
        let mut estimate = self.run.estimate.lock().unwrap_or_else(PoisonError::into_inner);
        estimate.progress(done, Instant::now());
        drop(estimate);
        self.run.done.store(done, Relaxed);
        self.run.total.store(total, Relaxed);
    }

    /// Reads an input blob. While the store does not answer this waits, however long that lasts: it is no fault of the job.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound) when there is none of that name; a temporary one only when the job is to yield,
    /// where returning it costs no attempt; and the store's own.
    pub async fn input(&self, name: &str) -> Result<Vec<u8>> {
        const OPERATION: &str = "read an input";
        let name = BlobName::parse(name)?;
        self.outlast(OPERATION, || self.run.blobs.get(&name)).await?.ok_or_else(|| {
            Error::new(ErrorKind::NotFound, OPERATION, format!("there is no blob named {name}"))
        })
    }

    /// Publishes an output blob under this owner's fence, whole or not at all. Writing the same name again replaces it. Waits
    /// as [`input`](Self::input) does while the store does not answer.
    ///
    /// # Errors
    /// [`Superseded`](ErrorKind::Superseded) when the job has a newer owner: return the error, the job is cancelled
    /// anyway; and the store's own.
    pub async fn put_output(&self, name: &str, bytes: Vec<u8>) -> Result<()> {
        const OPERATION: &str = "write an output";
        let name = BlobName::parse(name)?;
        let put = self.outlast(OPERATION, || async {
            self.run.may_write(OPERATION).await?;
            let store = if self.is_interrupted() { &self.run.drain_blobs } else { &self.run.blobs };
            store.put(&name, bytes.clone(), Some(&self.run.writer())).await
        });
        let put = put.await;
        if let Err(error) = &put {
            self.run.note_refusal(error);
        }
        put
    }
}

impl JobContext {
    /// Makes a call that does no harm when it is made twice, until it gets an answer or the job is to yield.
    async fn outlast<T, F: Future<Output = Result<T>>>(
        &self,
        operation: &'static str,
        call: impl FnMut() -> F,
    ) -> Result<T> {
        let again = |error: &Error| error.is_temporary() && !self.is_interrupted();
        persist(operation, Patience::calm(TRY, Instant::now() + FOR_EVER), again, call).await
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
