//! What a job can ask and do while it runs.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::error::{Error, ErrorKind, Result};
use crate::ids::{BlobName, Fence, JobId, Writer};
use crate::notice::Deadline;
use crate::ports::{BlobStore, Progress};
use crate::telemetry::Telemetry;

/// A job's view of its delivery: who it is, whether it should yield, and its input and output blobs.
pub struct JobContext {
    pub(crate) tenure: Arc<Tenure>,
}

/// One owner's time with one job, as its task and the guardian of its lease both see it.
#[derive(Debug)]
pub(crate) struct Tenure {
    pub(crate) writer: Writer,
    pub(crate) delivery: u32,
    pub(crate) blobs: Arc<dyn BlobStore>,
    pub(crate) drain_blobs: Arc<dyn BlobStore>,
    pub(crate) telemetry: Arc<Telemetry>,
    /// Asked to yield.
    pub(crate) interrupted: CancellationToken,
    /// No longer the owner: nothing may be written any more.
    pub(crate) revoked: CancellationToken,
    pub(crate) deadline: Mutex<Option<Deadline>>,
    /// When the lease ends; the lease keeper moves it.
    pub(crate) lease_ends: Arc<Mutex<Instant>>,
    pub(crate) last_saved: Mutex<Instant>,
    /// When the job got its slot.
    pub(crate) began: Mutex<Option<Instant>>,
    pub(crate) since_unix_ms: i64,
    pub(crate) steps: AtomicU64,
    pub(crate) done: AtomicU64,
    pub(crate) total: AtomicU64,
}

/// Reads a value that is only ever replaced whole, so that a panic elsewhere can't have left half of one.
pub(crate) fn get<T: Copy>(of: &Mutex<T>) -> T {
    *of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Replaces a value that [`get`] reads.
pub(crate) fn set<T>(of: &Mutex<T>, value: T) {
    *of.lock().unwrap_or_else(PoisonError::into_inner) = value;
}

impl Tenure {
    /// Asks the job to yield before `deadline`.
    pub(crate) fn interrupt(&self, deadline: Deadline) {
        set(&self.deadline, Some(deadline));
        self.interrupted.cancel();
    }

    /// Fails when this owner may not write any more, as far as this process can know: it was told so, or its lease
    /// has run out (which it finds first when the machine had been frozen).
    pub(crate) fn check(&self, operation: &'static str) -> Result<()> {
        if self.revoked.is_cancelled() || Instant::now() >= get(&self.lease_ends) {
            self.revoked.cancel();
            self.telemetry.stale_writes_blocked.inc();
            let Writer { job, .. } = &self.writer;
            return Err(Error::new(ErrorKind::Superseded, operation, format!("this worker lost job {job}")));
        }
        Ok(())
    }

    /// Notes an error of a write that the store refused because of a newer owner, and stops the job then.
    pub(crate) fn note_refusal(&self, error: &Error) {
        if error.kind() == ErrorKind::Superseded {
            self.telemetry.stale_writes_blocked.inc();
            self.revoked.cancel();
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
        &self.tenure.writer.job
    }

    /// Orders this owner of the job among all its owners. Hand it to systems of your own that must refuse an older one.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.tenure.writer.fence
    }

    /// Which delivery of the job this is: 1 the first time.
    #[must_use]
    pub fn delivery(&self) -> u32 {
        self.tenure.delivery
    }

    /// Completes when the job should yield: return [`Step::Continue`](crate::Step::Continue) with what is done so far.
    /// For `select!` inside a long step. Cancel-safe.
    pub async fn interrupted(&self) {
        self.tenure.interrupted.cancelled().await;
    }

    /// Whether the job should yield, for a loop that does not await.
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        self.tenure.interrupted.is_cancelled()
    }

    /// How long until whatever still runs is abandoned; `None` while nothing calls for an end.
    #[must_use]
    pub fn time_left(&self) -> Option<Duration> {
        get(&self.tenure.deadline).map(|deadline| deadline.left())
    }

    /// Says how far the job is, for `reprieve status`. `total` 0 means unknown. Costs nothing.
    pub fn progress(&self, done: u64, total: u64) {
        self.tenure.done.store(done, Relaxed);
        self.tenure.total.store(total, Relaxed);
    }

    /// Reads an input blob.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound) when there is none of that name, and the store's own.
    pub async fn input(&self, name: &str) -> Result<Vec<u8>> {
        let name = BlobName::parse(name)?;
        self.tenure.blobs.get(&name).await?.ok_or_else(|| {
            Error::new(ErrorKind::NotFound, "read an input", format!("there is no blob named {name}"))
        })
    }

    /// Publishes an output blob under this owner's fence, whole or not at all. Writing the same name again replaces it.
    ///
    /// # Errors
    /// [`Superseded`](ErrorKind::Superseded) when the job has a newer owner: return the error, the job is cancelled
    /// anyway; and the store's own.
    pub async fn put_output(&self, name: &str, bytes: Vec<u8>) -> Result<()> {
        let name = BlobName::parse(name)?;
        self.tenure.check("write an output")?;
        let store = if self.is_interrupted() { &self.tenure.drain_blobs } else { &self.tenure.blobs };
        let put = store.put(&name, bytes, Some(&self.tenure.writer)).await;
        if let Err(error) = &put {
            self.tenure.note_refusal(error);
        }
        put
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
