//! Puts a worker together and refuses one that can't keep its promises.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use super::capacity::RELEASES_AT_ONCE;
use super::control::Control;
use super::delivery::{KEPT, Registry};
use super::isolation::Isolation;
use super::measure::Recent;
use super::monitor::Monitor;
use super::publish::Publisher;
use super::report::Stopped;
use super::settings::Settings;
use super::shared::{Deferred, Roll, Shared};
use super::stop::Stopping;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::WorkerId;
use crate::job::Job;
use crate::ports::{InterruptionSource, Store, WorkerReport};
use crate::telemetry::Telemetry;
use crate::watch;

/// How long a measured settlement says something of the next: storage that was slow a minute ago may be well.
const SETTLEMENTS_KEPT: Duration = Duration::from_mins(1);

/// A worker that is ready to run.
///
/// # Example: run the jobs of a queue until told to stop
/// ```
/// use reprieve_core::worker::{Worker, stopping};
/// use reprieve_core::{Job, JobContext, JobError, Producer, NewJob, Step, memory};
///
/// struct Shout;
///
/// #[async_trait::async_trait]
/// impl Job for Shout {
///     const KIND: &'static str = "shout";
///     type Args = String;
///     type Checkpoint = ();
///     type Output = String;
///
///     fn begin(&self, _: &String) {}
///
///     async fn step(&self, _: &JobContext, word: &String, (): ()) -> Result<Step<(), String>, JobError> {
///         Ok(Step::Done(word.to_uppercase()))
///     }
/// }
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let store = memory::store();
/// let worker = Worker::builder(store.clone()).job(Shout).build()?;
/// let jobs = Producer::new(store.clone()).enqueue(vec![NewJob::of::<Shout>(&"hello".into())?]).await?;
///
/// let (stopper, stopping) = stopping();
/// let running = tokio::spawn(worker.run(stopping));
/// # let name = reprieve_core::BlobName::parse(format!("results/{}.json", jobs[0]))?;
/// # while store.blobs.get(&name).await?.is_none() { tokio::time::sleep(std::time::Duration::from_millis(5)).await }
/// # while store.queue.depth().await?.total > 0 { tokio::time::sleep(std::time::Duration::from_millis(5)).await }
/// stopper.stop();
/// assert_eq!(running.await.unwrap().completed, 1);
/// # Ok::<(), reprieve_core::Error>(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
pub struct Worker {
    shared: Arc<Shared>,
    sources: Vec<Arc<dyn InterruptionSource>>,
    monitor: Monitor,
    publisher: Publisher,
}

impl Worker {
    /// Begins a worker on `store`.
    #[must_use]
    pub fn builder(store: Store) -> WorkerBuilder {
        WorkerBuilder {
            drain_store: store.clone(),
            store,
            settings: Settings::default(),
            registry: Registry::default(),
            sources: Vec::new(),
            id: WorkerId::unique(),
            vm: String::new(),
            queue: String::new(),
            jobs: None,
            telemetry: Arc::default(),
            faults: Vec::new(),
        }
    }

    /// A view of it, for health endpoints and metrics.
    #[must_use]
    pub fn monitor(&self) -> Monitor {
        self.monitor.clone()
    }

    /// Runs until `stopping` says to end: Recover, Resume, Start, and through Shutdown and back as notices come and go.
    /// Whatever calls it is the control thread; see [`Threads`](super::Threads).
    ///
    /// # Cancel safety
    /// Dropping the future leaves what is held to its leases. Ask it to stop instead.
    pub async fn run(self, stopping: Stopping) -> Stopped {
        Control::new(self.shared, self.monitor, self.publisher, self.sources, stopping).run().await
    }
}

/// Collects what a worker needs.
#[derive(Debug)]
pub struct WorkerBuilder {
    store: Store,
    drain_store: Store,
    settings: Settings,
    registry: Registry,
    sources: Vec<Arc<dyn InterruptionSource>>,
    id: WorkerId,
    vm: String,
    queue: String,
    jobs: Option<Handle>,
    telemetry: Arc<Telemetry>,
    faults: Vec<String>,
}

impl WorkerBuilder {
    /// Adds a kind of job.
    #[must_use]
    pub fn job<J: Job>(mut self, job: J) -> Self {
        if !self.registry.add(job) {
            self.faults.push(format!("two jobs have the kind {:?}; give each its own KIND", J::KIND));
        }
        self
    }

    /// Listens to `source` for notices. Any number; no work is taken before each has answered. Default: none, so only a
    /// stop is a notice.
    #[must_use]
    pub fn interruptions(mut self, source: Arc<dyn InterruptionSource>) -> Self {
        self.sources.push(source);
        self
    }

    /// Replaces the settings.
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// The store as a drain uses it: the same one through clients that give up sooner. Default: the same.
    #[must_use]
    pub fn drain_store(mut self, store: Store) -> Self {
        self.drain_store = store;
        self
    }

    /// The worker's id, where the store knows it already. Default: a new one.
    #[must_use]
    pub fn id(mut self, id: WorkerId) -> Self {
        self.id = id;
        self
    }

    /// What the platform calls this machine, for reports. Default: empty.
    #[must_use]
    pub fn vm(mut self, vm: impl Into<String>) -> Self {
        self.vm = vm.into();
        self
    }

    /// What people call the queue it takes jobs from, for reports. Default: empty.
    #[must_use]
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = queue.into();
        self
    }

    /// Where jobs run. Default: on the runtime that the worker runs on, which is right for tests; a worker whose promises
    /// must hold against jobs that block needs [`Threads`](super::Threads).
    #[must_use]
    pub fn jobs_on(mut self, runtime: Handle) -> Self {
        self.jobs = Some(runtime);
        self
    }

    /// Where its metrics go. Default: its own.
    #[must_use]
    pub fn telemetry(mut self, telemetry: Arc<Telemetry>) -> Self {
        self.telemetry = telemetry;
        self
    }

    /// Checks everything and puts the worker together. Must be called on a Tokio runtime unless
    /// [`jobs_on`](Self::jobs_on) was.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid), naming every fault at once.
    pub fn build(self) -> Result<Worker> {
        let mut faults = self.faults;
        faults.extend(self.settings.check());
        if self.registry.names().next().is_none() {
            faults.push("the worker knows no job; add one with .job(…)".to_owned());
        }
        if let Some(kind) =
            self.settings.default_kind.as_deref().filter(|kind| self.registry.get(kind).is_none())
        {
            faults.push(format!("the default kind is {kind:?}, which none of the worker's jobs has"));
        }
        let jobs = self.jobs.or_else(|| Handle::try_current().ok());
        if jobs.is_none() {
            faults.push(
                "there is no Tokio runtime here for jobs to run on; name one with .jobs_on(…)".to_owned(),
            );
        }
        let (Some(jobs), true) = (jobs, faults.is_empty()) else {
            return Err(Error::new(ErrorKind::Invalid, "set up a worker", faults.join("; ")));
        };
        let part = |_| Arc::new(Semaphore::new(RELEASES_AT_ONCE));
        let shared = Shared {
            worker: self.id.clone(),
            releases: (0..self.store.queue.parts()).map(part).collect(),
            isolation: Arc::new(Isolation::default()),
            numbers: AtomicU64::new(0),
            deferred: Deferred::default(),
            slots: Arc::new(Semaphore::new(self.settings.concurrency)),
            settings: self.settings,
            drain_store: self.drain_store,
            registry: self.registry,
            telemetry: Arc::clone(&self.telemetry),
            jobs,
            settlements: Recent::new(SETTLEMENTS_KEPT),
            runs: Recent::new(KEPT),
            guarded: AtomicUsize::new(0),
            roll: Roll::default(),
            rules: watch::Sender::default(),
            store: self.store,
        };
        let who = WorkerReport {
            worker: self.id.clone(),
            queue: self.queue,
            kinds: shared.registry.names().map(str::to_owned).collect(),
            vm: self.vm,
            pid: std::process::id(),
            stage: String::new(),
            at_unix_ms: 0,
            completed: 0,
            in_flight: Vec::new(),
            notices: Vec::new(),
            deferred: Vec::new(),
            last_drain: None,
        };
        let publisher = Publisher::new(Arc::clone(&shared.store.roster), who);
        let monitor = Monitor::new(self.id, self.telemetry);
        Ok(Worker { shared: Arc::new(shared), sources: self.sources, monitor, publisher })
    }
}
