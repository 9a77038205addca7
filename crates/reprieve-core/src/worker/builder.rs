//! Builds a worker, and rejects settings under which it could not keep its promises.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio_util::task::AbortOnDropHandle;

use super::bookkeeper::Bookkeeper;
use super::books::{Books, Describing, Notes};
use super::cancels::Cancels;
use super::delivery::Registry;
use super::depends::Depends;
use super::dispatcher::Dispatcher;
use super::elsewhere::Elsewhere;
use super::escalation::Escalation;
use super::fleet_slots::FleetSlots;
use super::isolation::Isolation;
use super::kind::KEPT;
use super::learner::learn;
use super::limits::Limits;
use super::losses::KnownLosses;
use super::machine::watch as watch_machine;
use super::measure::Recent;
use super::pressure::Pressure;
use super::receiver::RELEASES_AT_ONCE;
use super::reporter::{Monitor, Reporter};
use super::settings::{Settings, cores};
use super::shared::{Deferred, Letters, RunningJobs, Shared};
use super::spans::OpenSpans;
use super::states::States;
use super::stop::Stopping;
use crate::dependency::{Count, Dependency, DependencyHandle, Users, keep};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::WorkerId;
use crate::job::Job;
use crate::ledger::Machine;
use crate::ports::{InterruptionSource, Store, WorkerReport};
use crate::pressure;
use crate::process::in_process;
use crate::report::Stopped;
use crate::run_clock::RunClock;
use crate::shared_state::Start;
use crate::telemetry::Telemetry;
use crate::turns::Turns;
use crate::watch;

/// How long a measured settlement predicts the next one. Storage that was slow a minute ago may be
/// fast again.
const SETTLEMENTS_KEPT: Duration = Duration::from_mins(1);

/// A worker that is ready to run.
///
/// # Example: run the jobs of a queue until a stop is requested
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
    registry: Arc<Registry>,
    sources: Vec<Arc<dyn InterruptionSource>>,
    dependencies: Vec<(DependencyHandle, Arc<dyn Dependency>)>,
    watched: Option<Arc<dyn pressure::Machine>>,
    monitor: Monitor,
    reporter: Reporter,
    notes: Notes,
    machine: Describing,
}

impl Worker {
    /// Returns a builder for a worker on `store`.
    #[must_use]
    pub fn builder(store: Store) -> WorkerBuilder {
        WorkerBuilder {
            drain_store: store.clone(),
            escalation: None,
            store,
            settings: Settings::default(),
            registry: Registry::default(),
            states: States::default(),
            sources: Vec::new(),
            dependencies: Vec::new(),
            users: Users::default(),
            watched: None,
            id: WorkerId::unique(),
            vm: String::new(),
            boot: String::new(),
            machine: None,
            queue: String::new(),
            jobs: None,
            telemetry: Arc::default(),
            spans: None,
            faults: Vec::new(),
        }
    }

    /// Returns a view of the worker, for health endpoints and metrics.
    #[must_use]
    pub fn monitor(&self) -> Monitor {
        self.monitor.clone()
    }

    /// Runs until `stopping` requests a stop: through Recover, Resume and Start, and through
    /// Shutdown and back as notices come and go. The calling thread is the control thread; see
    /// [`Threads`](super::Threads).
    ///
    /// # Cancel safety
    /// Dropping the future leaves the held messages to their leases. Request a stop instead.
    pub async fn run(self, stopping: Stopping) -> Stopped {
        let keep = |(handle, it)| AbortOnDropHandle::new(tokio::spawn(in_process(keep(handle, it))));
        let _keepers: Vec<_> = self.dependencies.into_iter().map(keep).collect();
        let looks = self.watched.map(|machine| watch_machine(Arc::clone(&self.shared), machine));
        let _looks = looks.map(|looks| AbortOnDropHandle::new(tokio::spawn(in_process(looks))));
        let (shared, queue) = (Arc::clone(&self.shared), self.reporter.queue());
        let books = Bookkeeper::new(shared, queue, self.notes, self.machine, self.monitor);
        let _bookkeeper = AbortOnDropHandle::new(tokio::spawn(in_process(books.run())));
        let _losses = AbortOnDropHandle::new(tokio::spawn(in_process(learn(Arc::clone(&self.shared)))));
        Dispatcher::new(self.shared, self.registry, self.reporter, self.sources, stopping).run().await
    }
}

/// Collects the parts of a worker.
#[derive(Debug)]
pub struct WorkerBuilder {
    store: Store,
    drain_store: Store,
    escalation: Option<Escalation>,
    settings: Settings,
    registry: Registry,
    states: States,
    sources: Vec<Arc<dyn InterruptionSource>>,
    dependencies: Vec<(DependencyHandle, Arc<dyn Dependency>)>,
    /// The jobs that use any of them.
    users: Users,
    watched: Option<Arc<dyn pressure::Machine>>,
    id: WorkerId,
    vm: String,
    boot: String,
    machine: Option<Describing>,
    queue: String,
    jobs: Option<Handle>,
    telemetry: Arc<Telemetry>,
    spans: Option<Arc<dyn OpenSpans>>,
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

    /// Limits the jobs of type `J`, which was added before: how many run at once, how long, and how often
    /// they fail. Default: see [`Limits`].
    ///
    /// # Example: one at a time in the whole fleet, for a minute at most
    /// ```
    /// # use std::time::Duration;
    /// # use reprieve_core::worker::{Limits, Worker};
    /// # use reprieve_core::{Job, JobContext, JobError, Step, memory};
    /// # struct Reindex;
    /// # #[async_trait::async_trait]
    /// # impl Job for Reindex {
    /// #     const KIND: &'static str = "reindex";
    /// #     type Args = ();
    /// #     type Checkpoint = ();
    /// #     type Output = ();
    /// #     fn begin(&self, _: &()) {}
    /// #     async fn step(&self, _: &JobContext, _: &(), _: ()) -> Result<Step<(), ()>, JobError> { Ok(Step::Done(())) }
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let limits =
    ///     Limits { in_fleet: Some(1), job_timeout: Some(Duration::from_secs(60)), ..Limits::default() };
    /// let worker = Worker::builder(memory::store()).job(Reindex).limits::<Reindex>(limits).build()?;
    /// # Ok::<(), reprieve_core::Error>(())
    /// # }).unwrap();
    /// ```
    #[must_use]
    pub fn limits<J: Job>(self, limits: Limits) -> Self {
        self.change_limits(J::KIND, |it| *it = limits)
    }

    /// Changes the limits of a kind of job, by its name: for settings of the operator.
    #[must_use]
    pub fn change_limits(mut self, kind: &str, change: impl FnOnce(&mut Limits)) -> Self {
        if let Some(kind) = self.registry.kind_mut(kind) {
            change(&mut kind.limits);
        } else {
            let known: Vec<_> = self.registry.names().collect();
            let known = known.join(", ");
            self.add_fault(format!("there are settings for kind {kind:?}, and the worker knows {known}"));
        }
        self
    }

    /// Notes a fault, once.
    fn add_fault(&mut self, fault: String) {
        if !self.faults.contains(&fault) {
            self.faults.push(fault);
        }
    }

    /// Shares a value among all jobs of the worker, such as a pool of connections, a client with a rate
    /// limit, or a model: [`JobContext::shared`](crate::JobContext::shared) returns it.
    ///
    /// `make` is called once, on the job threads, before the worker receives its first message. If it
    /// fails, that is logged and it is called again, after a second and then less often, up to every 30 s;
    /// the worker is not ready meanwhile. If an eviction interrupts it, it begins again should the machine
    /// stay. Values are made in the order of these calls, and dropped in the reverse order when the
    /// worker has stopped, on a job thread; the worker waits for that for as long as a drain may take.
    ///
    /// # Example
    /// ```
    /// # use reprieve_core::worker::Worker;
    /// struct Pool;
    ///
    /// impl Pool {
    ///     async fn connect(connections: usize) -> Result<Self, std::io::Error> {
    ///         # let _ = connections;
    ///         Ok(Self)
    ///     }
    /// }
    ///
    /// # let builder = Worker::builder(reprieve_core::memory::store());
    /// let builder = builder.share(async |start| Pool::connect(start.concurrency()).await);
    /// // In a step: cx.shared::<Pool>()
    /// ```
    #[must_use]
    pub fn share<T, E, F>(mut self, make: impl Fn(Start) -> F + Send + Sync + 'static) -> Self
    where
        T: Send + Sync + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
        F: Future<Output = std::result::Result<T, E>> + Send + 'static,
    {
        if !self.states.add(make) {
            let name = std::any::type_name::<T>();
            self.faults.push(format!("two shared values have the type {name}; give each a type of its own"));
        }
        self
    }

    /// Names something that jobs depend on besides the store, and that the worker looks after. See
    /// [`dependency`](crate::dependency).
    #[must_use]
    pub fn dependency(mut self, name: impl Into<String>, dependency: Arc<dyn Dependency>) -> Self {
        let name = name.into();
        if self.dependencies.iter().any(|(known, _)| known.name() == name) {
            self.faults.push(format!("two dependencies have the name {name:?}; give each its own"));
        }
        let handle = DependencyHandle::new(name, Arc::clone(&dependency), &self.users);
        self.dependencies.push((handle, dependency));
        self
    }

    /// Says what the jobs of type `J`, which was added before, depend on. Default: nothing.
    #[must_use]
    pub fn depends<J: Job>(self, depends: Depends) -> Self {
        self.change_depends(J::KIND, |it| *it = depends)
    }

    /// Changes what a kind of job depends on, by its name: for settings of the operator.
    #[must_use]
    pub fn change_depends(mut self, kind: &str, change: impl FnOnce(&mut Depends)) -> Self {
        if let Some(kind) = self.registry.kind_mut(kind) {
            change(&mut kind.depends);
        } else {
            let known: Vec<_> = self.registry.names().collect();
            let known = known.join(", ");
            self.add_fault(format!("there are settings for kind {kind:?}, and the worker knows {known}"));
        }
        self
    }

    /// Adds a source of notices. Any number is allowed; the worker takes no job before every source
    /// has answered. Default: none, so that only a stop request is a notice.
    #[must_use]
    pub fn interruptions(mut self, source: Arc<dyn InterruptionSource>) -> Self {
        self.sources.push(source);
        self
    }

    /// Lets the worker look at its machine, to save and to take no new work before memory or disk run out. See
    /// [`pressure`](crate::pressure). Default: it looks at none.
    #[must_use]
    pub fn pressure_of(mut self, machine: Arc<dyn pressure::Machine>) -> Self {
        self.watched = Some(machine);
        self
    }

    /// Replaces the settings.
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Sets the store that a drain uses: the same store through clients that give up sooner.
    /// Default: the worker's store.
    #[must_use]
    pub fn drain_store(mut self, store: Store) -> Self {
        self.drain_store = store;
        self
    }

    /// Moves jobs that interruptions keep from moving on to another queue, which calmer machines
    /// serve. A job continues there from its last checkpoint, with all its attempts, and stays there.
    /// Default: they stay here.
    #[must_use]
    pub fn escalate(mut self, escalation: Escalation) -> Self {
        self.escalation = Some(escalation);
        self
    }

    /// Sets who knows the spans that jobs open in their steps, so that a job that stands still is shown with the one
    /// in which it does. Default: nobody.
    #[must_use]
    pub fn spans(mut self, spans: Arc<dyn OpenSpans>) -> Self {
        self.spans = Some(spans);
        self
    }

    /// Sets the worker's id, where the store already knows it. Default: a new one.
    #[must_use]
    pub fn id(mut self, id: WorkerId) -> Self {
        self.id = id;
        self
    }

    /// Sets the platform's name of this machine, for reports. Default: empty.
    #[must_use]
    pub fn vm(mut self, vm: impl Into<String>) -> Self {
        self.vm = vm.into();
        self
    }

    /// Sets the id of this machine's present boot, by which workers on one machine know each other
    /// before they know its name. Default: empty.
    #[must_use]
    pub fn boot(mut self, boot: impl Into<String>) -> Self {
        self.boot = boot.into();
        self
    }

    /// Sets the description of this machine for the ledger, as soon as it is known; the worker does not wait for it.
    /// Default: its [name](Self::vm) only.
    #[must_use]
    pub fn machine(mut self, machine: impl Future<Output = Machine> + Send + 'static) -> Self {
        self.machine = Some(Describing::new(machine));
        self
    }

    /// Sets the name of the worker's queue, for reports. Default: empty.
    #[must_use]
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = queue.into();
        self
    }

    /// Sets the runtime for jobs. Default: the worker's own runtime, which is right for tests. A
    /// worker that must keep its promises while jobs block needs [`Threads`](super::Threads).
    #[must_use]
    pub fn jobs_on(mut self, runtime: Handle) -> Self {
        self.jobs = Some(runtime);
        self
    }

    /// Sets the registry of the worker's metrics. Default: its own.
    #[must_use]
    pub fn telemetry(mut self, telemetry: Arc<Telemetry>) -> Self {
        self.telemetry = telemetry;
        self
    }

    /// Checks all settings and builds the worker. Must be called on a Tokio runtime, unless
    /// [`jobs_on`](Self::jobs_on) was called.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid), with every fault at once.
    pub fn build(mut self) -> Result<Worker> {
        let mut faults = std::mem::take(&mut self.faults);
        faults.extend(self.settings.check());
        if self.escalation.as_ref().is_some_and(|escalation| escalation.after == 0) {
            faults.push("escalate-after is 0, and must be at least 1".to_owned());
        }
        if self.registry.names().next().is_none() {
            faults.push("the worker knows no job; add one with .job(…)".to_owned());
        }
        if let Some(kind) = self.settings.default_kind.as_deref().filter(|kind| !self.registry.knows(kind)) {
            faults.push(format!("the default kind is {kind:?}, which none of the worker's jobs has"));
        }
        let handles: Vec<_> = self.dependencies.iter().map(|(handle, _)| handle.clone()).collect();
        let names: Vec<_> = self.registry.names().collect();
        for name in names {
            let Some(kind) = self.registry.kind_mut(name) else { continue };
            let unknown = kind.find_dependencies(&handles, self.settings.concurrency);
            let known: Vec<_> = handles.iter().map(DependencyHandle::name).collect();
            let unknown = unknown.into_iter().map(|name| match known.as_slice() {
                [] => format!("it depends on {name:?}, and the worker has no dependency; name it in [dependencies.{name}] or with .dependency(…)"),
                known => format!("it depends on {name:?}, and the worker has {} only", known.join(", ")),
            });
            let of_kind = kind.depends.check().into_iter().chain(unknown);
            faults.extend(of_kind.map(|fault| format!("kind {:?}: {fault}", kind.name)));
            let of_limits = kind.limits.check();
            faults.extend(of_limits.into_iter().map(|fault| format!("kind {:?}: {fault}", kind.name)));
            let (lease, records) = (self.settings.lease, &self.store.records);
            let slots = |count| Arc::new(FleetSlots::new(kind.name, count, lease, Arc::clone(records)));
            kind.fleet = kind.limits.in_fleet.map(slots);
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
        let letters = |_| Arc::new(Letters::new(RELEASES_AT_ONCE));
        let (books, notes) = Books::new(self.id.clone(), self.boot.clone(), Arc::clone(&self.telemetry));
        let books = Arc::new(books);
        let only_named = Machine { vm: self.vm.clone(), ..Machine::default() };
        let machine = self.machine.unwrap_or_else(|| Describing::new(std::future::ready(only_named)));
        let shared = Shared {
            books: Arc::clone(&books),
            worker: self.id.clone(),
            clock: RunClock::default(),
            releases: (0..self.store.queue.parts()).map(part).collect(),
            letters: (0..self.store.queue.parts()).map(letters).collect(),
            isolation: Arc::new(Isolation::default()),
            numbers: AtomicU64::new(0),
            deferred: Deferred::default(),
            slots: Arc::new(Semaphore::new(self.settings.concurrency)),
            settings: self.settings,
            boot: self.boot.clone(),
            drain_store: Arc::new(self.drain_store),
            escalation: self.escalation,
            telemetry: Arc::clone(&self.telemetry),
            spans: self.spans,
            jobs,
            settlements: Recent::new(SETTLEMENTS_KEPT),
            receives: Recent::new(SETTLEMENTS_KEPT),
            runs: Recent::new(KEPT),
            replaced: AtomicUsize::new(0),
            guarded: AtomicUsize::new(0),
            waiting: Count::default(),
            slots_passed_on: AtomicUsize::new(0),
            running: RunningJobs::default(),
            kinds: self.registry.kinds().cloned().collect(),
            cancels: Cancels::default(),
            states: self.states,
            dependencies: handles.into(),
            computing: Arc::new(Turns::new(cores())),
            elsewhere: Elsewhere::default(),
            pressure: Pressure::default(),
            losses: KnownLosses::default(),
            rules: watch::Sender::default(),
            judged: watch::Sender::default(),
            store: Arc::new(self.store),
        };
        let who = WorkerReport {
            queue: self.queue,
            kinds: self.registry.names().map(str::to_owned).collect(),
            vm: self.vm,
            boot: self.boot.clone(),
            without_sources: self.sources.is_empty(),
            ..WorkerReport::new(self.id.clone())
        };
        let monitor = Monitor::new(self.id, self.telemetry, books);
        let reporter = Reporter::new(Arc::clone(&shared.store.roster), who, monitor.clone());
        let (shared, registry) = (Arc::new(shared), Arc::new(self.registry));
        if self.watched.is_some() {
            shared.show_no_pressure();
        } else {
            shared.pressure.note_look();
        }
        let (sources, dependencies, watched) = (self.sources, self.dependencies, self.watched);
        Ok(Worker { shared, registry, sources, dependencies, watched, monitor, reporter, notes, machine })
    }
}
