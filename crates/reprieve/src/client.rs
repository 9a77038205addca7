//! A store for programs that are not workers.

use std::time::Duration;

use reprieve_core::ports::Store;
use reprieve_core::retention::Cleaner;
use reprieve_core::{Cancel, Job, JobEnd, JobId, Producer, Result};
use serde::de::DeserializeOwned;
use tokio::time::sleep;

use crate::queues::Queues;
use crate::settings::{CleanArgs, StoreArgs, read_cleaning, read_store};
use crate::stores::Purpose;

/// The pauses between two looks at a job that somebody waits for: the first, by how much each is longer
/// than the one before, and the longest.
const LOOK_FIRST: Duration = Duration::from_millis(100);
const LOOK_LESS_OFTEN: f64 = 1.5;
const LOOK_LAST: Duration = Duration::from_secs(10);

/// An open store and queue, for enqueueing jobs and for inspecting them.
///
/// # Example: enqueue a job
/// ```
/// # use reprieve::{Job, JobContext, JobError, Step, async_trait};
/// # struct CountTo;
/// # #[async_trait]
/// # impl Job for CountTo {
/// #     const KIND: &'static str = "count-to";
/// #     type Args = u64;
/// #     type Checkpoint = u64;
/// #     type Output = u64;
/// #     fn begin(&self, _to: &u64) -> u64 { 0 }
/// #     async fn step(&self, _: &JobContext, to: &u64, _: u64) -> Result<Step<u64, u64>, JobError> {
/// #         Ok(Step::Done(*to))
/// #     }
/// # }
/// use reprieve::{Client, NewJob, StoreArgs};
///
/// #[derive(clap::Parser)]
/// struct Cli {
///     #[command(flatten)]
///     store: StoreArgs,
/// }
///
/// # let directory = tempfile::tempdir().unwrap();
/// # let store = format!("--store=sqlite:{}/reprieve.db", directory.path().display());
/// # let cli: Cli = clap::Parser::parse_from(["enqueue".to_owned(), store]);
/// reprieve::block_on(async {
///     let client = Client::open(&cli.store).await?;
///     let ids = client.producer().enqueue(vec![NewJob::of::<CountTo>(&1_000)?]).await?;
///     assert_eq!(client.store().queue.depth().await?.total, 1);
///     assert_eq!(client.result::<CountTo>(&ids[0]).await?, None); // no worker has done it yet
///     Ok::<(), reprieve::Error>(())
/// })
/// # .unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct Client {
    store: Store,
    queues: Queues,
}

impl Client {
    /// Opens the store and creates it if it does not exist. In Azure, an identity that may only send
    /// messages can open it, too; what else it may not do fails when it is done.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) lists everything that is wrong with the arguments,
    /// the environment and `reprieve.toml`. Other errors are the store's own.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    pub async fn open(args: &StoreArgs) -> Result<Self> {
        let settings = read_store(args)?;
        Ok(Self { store: settings.open(Purpose::Enqueueing).await?.store, queues: settings.queues })
    }

    /// Opens an existing store, for commands that only read.
    ///
    /// # Errors
    /// As for [`open`](Self::open), and [`Invalid`](crate::ErrorKind::Invalid) when the store or
    /// one of its queues does not exist.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    pub async fn open_existing(args: &StoreArgs) -> Result<Self> {
        let settings = read_store(args)?;
        Ok(Self { store: settings.open(Purpose::Reading).await?.store, queues: settings.queues })
    }

    /// Opens an existing store like [`open_existing`](Self::open_existing), and returns what
    /// removes from it what nothing needs any more.
    ///
    /// # Errors
    /// Those of [`open_existing`](Self::open_existing).
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    pub async fn cleaner(args: &CleanArgs) -> Result<Cleaner> {
        let (settings, keep) = read_cleaning(args)?;
        Ok(Cleaner::new(settings.open(Purpose::Reading).await?.store, keep))
    }

    /// The queue's display name: its name, or the list or pattern of names that it consists of.
    #[must_use]
    pub fn queue(&self) -> &str {
        &self.queues.shown
    }

    /// Returns whether the queues displayed as `shown`, as in a worker's report, include one of
    /// this client's queues.
    #[must_use]
    pub fn shares_a_queue_with(&self, shown: &str) -> bool {
        Queues::parse(shown)
            .is_ok_and(|theirs| self.queues.names.iter().any(|name| theirs.names.contains(name)))
    }

    /// Returns a producer, which enqueues jobs.
    #[must_use]
    pub fn producer(&self) -> Producer {
        Producer::new(self.store.clone())
    }

    /// Returns how a job of type `J` ended, with its result; `None` while it waits or runs.
    ///
    /// A job with the output `()` leaves a trace only if it has an
    /// [id of its own](reprieve_core::NewJob::with_id). Results and ids are kept for 30 days by
    /// default.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound) when the job is done and its result was removed,
    /// [`Corrupt`](crate::ErrorKind::Corrupt) when the result is not of this type, and the store's
    /// errors.
    pub async fn result<J: Job>(&self, job: &JobId) -> Result<Option<JobEnd<J::Output>>>
    where
        J::Output: DeserializeOwned,
    {
        self.store.end_of(job).await
    }

    /// Returns how each of these jobs of type `J` ended, with its result, in their order; `None` for one that
    /// waits or runs. For jobs with ids of their own it takes a few requests, whatever their number; see
    /// [`Store::ends_of`].
    ///
    /// # Errors
    /// Those of [`result`](Self::result).
    pub async fn results<J: Job>(&self, jobs: &[JobId]) -> Result<Vec<Option<JobEnd<J::Output>>>>
    where
        J::Output: DeserializeOwned,
    {
        self.store.ends_of(jobs).await
    }

    /// Waits until a job of type `J` has ended, and returns how, with its result. Asks the store
    /// after 0.1 s, and then less often: at last every ten seconds.
    ///
    /// # Errors
    /// Those of [`result`](Self::result), but no temporary ones: it asks again.
    ///
    /// # Cancel safety
    /// Cancel-safe: put it into a `timeout`. For a job that does not exist it waits for ever.
    pub async fn wait<J: Job>(&self, job: &JobId) -> Result<JobEnd<J::Output>>
    where
        J::Output: DeserializeOwned,
    {
        let mut pause = LOOK_FIRST;
        loop {
            match self.result::<J>(job).await {
                Ok(Some(end)) => return Ok(end),
                Err(error) if !error.is_temporary() => return Err(error),
                Ok(None) | Err(_) => {}
            }
            sleep(pause).await;
            pause = pause.mul_f64(LOOK_LESS_OFTEN).min(LOOK_LAST);
        }
    }

    /// Cancels a job: one that waits ends without being run, one that runs is asked to yield and stopped
    /// within ten seconds. See [`Store::cancel`].
    ///
    /// # Errors
    /// The store's errors. Then the job may be cancelled or not; cancel it again.
    ///
    /// # Example: stop a job that nobody needs any more
    /// ```
    /// # use reprieve::{Cancel, Client, Error, JobId};
    /// # async fn stop(client: &Client, job: &JobId) -> Result<(), Error> {
    /// match client.cancel(job).await? {
    ///     Cancel::Over(end) => println!("too late: {end:?}"),
    ///     Cancel::Cancelled | Cancel::Untraced => println!("it ends as cancelled"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn cancel(&self, job: &JobId) -> Result<Cancel> {
        let mut cancels = self.store.cancel(std::slice::from_ref(job)).await?;
        // One answer for each job.
        Ok(cancels.pop().unwrap_or(Cancel::Untraced))
    }

    /// Cancels jobs, 32 at a time, and returns the outcomes in their order.
    ///
    /// # Errors
    /// Those of [`cancel`](Self::cancel).
    pub async fn cancel_all(&self, jobs: &[JobId]) -> Result<Vec<Cancel>> {
        self.store.cancel(jobs).await
    }

    /// The store: the queue, the records, the blobs and the roster.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }
}
