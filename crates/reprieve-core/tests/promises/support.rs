//! Jobs that behave or misbehave, and a worker to run them, on one paused runtime.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use reprieve_core::checkpoint::CheckpointEvery;
use reprieve_core::clock;
use reprieve_core::interruption::{DuringFreeze, Policy, Stage};
use reprieve_core::ledger::is_entry;
use reprieve_core::memory::{self, ManualNotices, MemoryRecords};
use reprieve_core::ports::{NewMessage, Page, RecordStore, RecordWrite, Store};
use reprieve_core::process::Gate;
use reprieve_core::record::{Record, open, seal};
use reprieve_core::retention::{Cleaner, Keep, Position, Removed};
use reprieve_core::telemetry::ByOutcome;
use reprieve_core::worker::{
    DrainReport, Escalation, Limits, Monitor, Settings, Stopped, Stopper, Worker, WorkerBuilder, stopping,
};
use reprieve_core::{
    Cancel, Job, JobContext, JobEnd, JobError, JobId, NewJob, Notice, NoticeKind, PayloadName, Producer, Step,
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// The behaviour of a [`Steps`] job in its steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Habit {
    /// Waits for the step's time.
    Works,
    /// Waits, and returns early when asked to yield, with the step not counted.
    Watches,
    /// Never returns from this step.
    StuckAt(u32),
    /// Kills its process in this step; see [`Steps::has_killed`].
    KillsAt(u32),
    /// Requests a retry in every n-th step, the first time that it is there.
    FailsOnceEvery(u32),
    /// Panics in this step.
    PanicsAt(u32),
    /// Requests a retry in this step.
    FailsAt(u32),
    /// Requests a retry in this step until [`Steps::heal`] is called.
    FailsUntilHealed(u32),
    /// Fails permanently in this step.
    FatalAt(u32),
    /// Writes an output named after the step.
    Publishes,
    /// Polls with the same state, as often as it has steps.
    Polls,
}

/// A job with this number of steps.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) steps: u32,
    pub(crate) step_ms: u64,
    pub(crate) habit: Habit,
    /// The bytes of state that the job carries beside its step.
    #[serde(default)]
    pub(crate) padding: usize,
}

impl Plan {
    pub(crate) fn new(steps: u32, step_ms: u64) -> Self {
        Self { steps, step_ms, habit: Habit::Works, padding: 0 }
    }

    pub(crate) fn habit(self, habit: Habit) -> Self {
        Self { habit, ..self }
    }
}

/// The state of a [`Steps`] job: its next step, and as many further bytes as its plan has.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum At {
    Step(u32),
    Padded(u32, String),
}

impl At {
    fn new(step: u32, plan: &Plan) -> Self {
        if plan.padding == 0 { Self::Step(step) } else { Self::Padded(step, "x".repeat(plan.padding)) }
    }

    fn step(&self) -> u32 {
        match self {
            Self::Step(step) | Self::Padded(step, _) => *step,
        }
    }
}

/// The finished steps of each job in order, and the time of the last one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trace(Arc<Mutex<BTreeMap<JobId, Vec<u32>>>>, Arc<Mutex<Option<Instant>>>);

impl Trace {
    pub(crate) fn steps(&self, job: &JobId) -> Vec<u32> {
        self.0.lock().unwrap().get(job).cloned().unwrap_or_default()
    }

    /// Returns the number of steps that finished more than once.
    pub(crate) fn redone(&self) -> usize {
        let redone =
            |steps: &Vec<u32>| steps.len() - steps.iter().collect::<std::collections::BTreeSet<_>>().len();
        self.0.lock().unwrap().values().map(redone).sum()
    }

    pub(crate) fn last_step_at(&self) -> Instant {
        self.1.lock().unwrap().expect("a step was finished")
    }

    fn note(&self, job: &JobId, step: u32) {
        *self.1.lock().unwrap() = Some(Instant::now());
        self.0.lock().unwrap().entry(job.clone()).or_default().push(step);
    }
}

/// The job of all tests.
#[derive(Debug, Clone, Default)]
pub(crate) struct Steps {
    pub(crate) trace: Trace,
    healed: Arc<AtomicBool>,
    /// The number of processes that jobs have killed.
    deaths: watch::Sender<u32>,
    failed: Arc<Mutex<BTreeSet<(JobId, u32)>>>,
}

impl Steps {
    /// Completes when a job kills another process by [`Habit::KillsAt`].
    pub(crate) async fn has_killed(&self) {
        let mut deaths = self.deaths.subscribe();
        let before = *deaths.borrow_and_update();
        deaths.wait_for(|deaths| *deaths > before).await.unwrap();
    }

    fn is_first_time(&self, job: &JobId, step: u32) -> bool {
        self.failed.lock().unwrap().insert((job.clone(), step))
    }

    /// Makes [`Habit::FailsUntilHealed`] succeed from now on.
    pub(crate) fn heal(&self) {
        self.healed.store(true, Relaxed);
    }
}

#[async_trait::async_trait]
impl Job for Steps {
    const KIND: &'static str = "steps";
    type Args = Plan;
    type Checkpoint = At;
    type Output = u32;

    fn begin(&self, plan: &Plan) -> At {
        At::new(0, plan)
    }

    async fn step(&self, cx: &JobContext, plan: &Plan, at: At) -> Result<Step<At, u32>, JobError> {
        let at = at.step();
        let work = tokio::time::sleep(ms(plan.step_ms));
        match plan.habit {
            Habit::StuckAt(step) if step == at => std::future::pending().await,
            Habit::KillsAt(step) if step == at => {
                // The process dies in the middle of the step.
                work.await;
                self.deaths.send_modify(|deaths| *deaths += 1);
                std::future::pending::<()>().await;
            }
            Habit::FailsOnceEvery(steps)
                if (at + 1).is_multiple_of(steps) && self.is_first_time(cx.job(), at) =>
            {
                return Err(JobError::retry("503"));
            }
            Habit::PanicsAt(step) if step == at => panic!("step {at} is cursed"),
            Habit::FailsAt(step) if step == at => return Err(JobError::retry("not today")),
            Habit::FailsUntilHealed(step) if step == at && !self.healed.load(Relaxed) => {
                return Err(JobError::retry("not yet"));
            }
            Habit::FatalAt(step) if step == at => return Err(JobError::fatal("never")),
            Habit::Watches => tokio::select! {
                () = work => {}
                () = cx.interrupted() => return Ok(Step::Continue(At::new(at, plan))),
            },
            Habit::Polls => {
                work.await;
                self.trace.note(cx.job(), at);
                let is_last = self.trace.steps(cx.job()).len() >= plan.steps as usize;
                return Ok(if is_last { Step::Done(plan.steps) } else { Step::Continue(At::new(at, plan)) });
            }
            Habit::Publishes => {
                work.await;
                cx.put_output(&format!("/out/{}/{at}", cx.job()), cx.fence().to_string().into_bytes())
                    .await?;
            }
            _ => work.await,
        }
        self.trace.note(cx.job(), at);
        cx.progress(u64::from(at) + 1, u64::from(plan.steps));
        Ok(if at + 1 == plan.steps { Step::Done(plan.steps) } else { Step::Continue(At::new(at + 1, plan)) })
    }
}

pub(crate) fn settings() -> Settings {
    Settings { concurrency: 4, checkpoint_every: CheckpointEvery::Every(secs(5)), ..Settings::default() }
}

/// A worker in the background.
pub(crate) struct Running {
    pub(crate) monitor: Monitor,
    pub(crate) notices: ManualNotices,
    pub(crate) stopper: Stopper,
    pub(crate) gate: Gate,
    pub(crate) handle: JoinHandle<Stopped>,
}

pub(crate) fn start(store: &Store, job: &Steps) -> Running {
    start_with(store, job, settings(), ManualNotices::answered())
}

thread_local! {
    static SIMULATED: Cell<bool> = const { Cell::new(false) };
}

/// Ties the wall clock to the paused clock from now on: records and messages have times.
pub(crate) fn on_one_clock() {
    if !SIMULATED.replace(true) {
        clock::simulate(clock::wall_now());
    }
}

/// A worker in a process that can be frozen.
pub(crate) fn start_in(gate: &Gate, store: &Store, job: &Steps, settings: Settings) -> Running {
    run_in(gate.clone(), store, job.clone(), settings, ManualNotices::answered())
}

pub(crate) fn start_with(store: &Store, job: &Steps, settings: Settings, notices: ManualNotices) -> Running {
    run_in(Gate::new(), store, job.clone(), settings, notices)
}

/// Starts a worker with any job.
pub(crate) fn start_job(store: &Store, job: impl Job) -> Running {
    run_in(Gate::new(), store, job, settings(), ManualNotices::answered())
}

/// Starts a worker with any job and these settings.
pub(crate) fn start_any(store: &Store, job: impl Job, settings: Settings) -> Running {
    run_in(Gate::new(), store, job, settings, ManualNotices::answered())
}

/// Starts a worker with any job and these settings, in a process that can be frozen.
pub(crate) fn start_any_in(gate: &Gate, store: &Store, job: impl Job, settings: Settings) -> Running {
    run_in(gate.clone(), store, job, settings, ManualNotices::answered())
}

/// Starts a worker with any job, which is saved after every step.
pub(crate) fn start_saving(store: &Store, job: impl Job) -> Running {
    let settings = Settings { checkpoint_every: CheckpointEvery::Every(Duration::ZERO), ..settings() };
    run_in(Gate::new(), store, job, settings, ManualNotices::answered())
}

/// Starts a worker with any job, which pauses during freezes.
pub(crate) fn start_pausing(store: &Store, job: impl Job) -> Running {
    run_in(Gate::new(), store, job, pausing(settings()), ManualNotices::answered())
}

/// The same settings, by which jobs pause during freezes.
pub(crate) fn pausing(settings: Settings) -> Settings {
    let policy = Policy { during_freeze: DuringFreeze::Pause, ..settings.policy };
    Settings { policy, ..settings }
}

/// Starts a worker that moves jobs to another queue.
pub(crate) fn start_escalating(
    store: &Store,
    job: &Steps,
    settings: Settings,
    notices: ManualNotices,
    escalation: Escalation,
) -> Running {
    run(Gate::new(), store, job.clone(), settings, notices, Some(escalation))
}

fn run_in(gate: Gate, store: &Store, job: impl Job, settings: Settings, notices: ManualNotices) -> Running {
    run(gate, store, job, settings, notices, None)
}

fn run(
    gate: Gate,
    store: &Store,
    job: impl Job,
    settings: Settings,
    notices: ManualNotices,
    escalation: Option<Escalation>,
) -> Running {
    let worker = Worker::builder(store.clone()).job(job).settings(settings);
    let worker = match escalation {
        Some(escalation) => worker.escalate(escalation),
        None => worker,
    };
    build(gate, worker, notices)
}

/// A worker for [`Steps`] with these limits.
pub(crate) fn limited(store: &Store, job: &Steps, limits: Limits) -> WorkerBuilder {
    Worker::builder(store.clone()).settings(settings()).job(job.clone()).limits::<Steps>(limits)
}

/// Starts this worker.
pub(crate) fn start_built(worker: WorkerBuilder) -> Running {
    start_built_with(worker, ManualNotices::answered())
}

/// Starts this worker with this source of notices.
pub(crate) fn start_built_with(worker: WorkerBuilder, notices: ManualNotices) -> Running {
    build(Gate::new(), worker, notices)
}

fn build(gate: Gate, worker: WorkerBuilder, notices: ManualNotices) -> Running {
    on_one_clock();
    let worker = worker.interruptions(Arc::new(notices.clone())).build().unwrap();
    let monitor = worker.monitor();
    let (stopper, stopping) = stopping();
    let handle = tokio::spawn(gate.clone().run(worker.run(stopping)));
    Running { monitor, notices, stopper, gate, handle }
}

impl Running {
    /// Returns the number of deliveries that ended so.
    pub(crate) fn ended(&self, outcome: &'static str) -> u64 {
        let label = ByOutcome { kind: "steps".into(), outcome };
        self.monitor.telemetry().jobs.get_or_create(&label).get()
    }

    /// Announces a preemption in `in_`, and returns the drain's report.
    pub(crate) async fn evict(&self, in_: Duration) -> DrainReport {
        self.notices.notice(preempt("evicted").at(Instant::now() + in_));
        self.drained().await
    }

    /// Waits until the current drain has ended.
    pub(crate) async fn drained(&self) -> DrainReport {
        let before = self.monitor.last_drain();
        within(secs(60), "the drain's end", async || self.monitor.last_drain() != before).await;
        self.monitor.last_drain().unwrap()
    }

    /// Kills it as SIGKILL would: nothing of it continues, and no lease is released.
    pub(crate) async fn kill(self) {
        self.gate.freeze();
        self.handle.abort();
        assert!(self.handle.await.unwrap_err().is_cancelled());
    }

    pub(crate) async fn stop(self) -> Stopped {
        self.stopper.stop();
        self.handle.await.unwrap()
    }

    pub(crate) async fn started(&self) {
        self.monitor.reached(Stage::Start).await;
    }
}

/// An in-memory store whose payloads can be listed.
pub(crate) fn listed_store() -> (Store, Arc<MemoryRecords>) {
    let records = Arc::new(MemoryRecords::new());
    (Store { records: records.clone(), ..memory::store() }, records)
}

/// Returns the payloads, oldest first.
pub(crate) fn by_age(records: &MemoryRecords) -> Vec<(JobId, PayloadName)> {
    let number = |name: &PayloadName| name.as_str().rsplit('-').next().unwrap().parse::<u64>().unwrap();
    let mut payloads = records.payloads();
    payloads.sort_by_key(|(_, name)| number(name));
    payloads
}

/// Loses a payload.
pub(crate) async fn remove(records: &MemoryRecords, (job, name): &(JobId, PayloadName)) {
    records.remove_payloads(job, std::slice::from_ref(name)).await.unwrap();
}

pub(crate) fn preempt(id: &str) -> Notice {
    Notice::now(id, NoticeKind::Preempt)
}

pub(crate) async fn enqueue(store: &Store, plans: &[Plan]) -> Vec<JobId> {
    on_one_clock();
    let jobs = plans.iter().map(|plan| NewJob::of::<Steps>(plan).unwrap()).collect();
    Producer::new(store.clone()).enqueue(jobs).await.unwrap()
}

/// Sends the same event this many times.
pub(crate) async fn send_again_and_again(store: &Store, job: &str, plan: Plan, times: usize) -> JobId {
    on_one_clock();
    let event = json!({"specversion": "1.0", "id": job, "source": "reprieve", "type": "steps", "data": plan});
    let message = NewMessage { body: event.to_string().into_bytes(), delay: secs(0) };
    store.queue.send(vec![message; times]).await.unwrap();
    JobId::parse(job).unwrap()
}

/// Enqueues one job of this kind.
pub(crate) async fn send_args<J: Job>(store: &Store, args: &J::Args) -> JobId
where
    J::Args: Serialize,
{
    on_one_clock();
    let job = NewJob::of::<J>(args).unwrap();
    Producer::new(store.clone()).enqueue(vec![job]).await.unwrap().remove(0)
}

pub(crate) async fn cancel(store: &Store, job: &JobId) -> Cancel {
    store.cancel(std::slice::from_ref(job)).await.unwrap().remove(0)
}

pub(crate) async fn end(store: &Store, job: &JobId) -> Option<JobEnd<u32>> {
    store.end_of(job).await.unwrap()
}

/// Enqueues a job under an id of its producer's own.
pub(crate) async fn enqueue_as(store: &Store, id: &str, plan: Plan) -> JobId {
    on_one_clock();
    let job = NewJob::of::<Steps>(&plan).unwrap().with_id(JobId::parse(id).unwrap());
    Producer::new(store.clone()).enqueue(vec![job]).await.unwrap().remove(0)
}

/// Enqueues the job `j` of this kind, with `null` as its arguments.
pub(crate) async fn enqueue_j(store: &Store, kind: &str) -> JobId {
    on_one_clock();
    let event = json!({"specversion": "1.0", "id": "j", "source": "reprieve", "type": kind, "data": null});
    let message = NewMessage { body: event.to_string().into_bytes(), delay: secs(0) };
    store.queue.send(vec![message]).await.unwrap();
    JobId::parse("j").unwrap()
}

/// Waits until `condition` holds, polling every few milliseconds of paused time.
pub(crate) async fn within(limit: Duration, what: &str, condition: impl AsyncFn() -> bool) {
    let end = Instant::now() + limit;
    // A poll costs real time even while the clock is paused, so a wait of days polls less often.
    let pause = ms(5).max(limit / 20_000);
    while !condition().await {
        assert!(Instant::now() < end, "{what} did not come within {limit:?}");
        tokio::time::sleep(pause).await;
    }
}

pub(crate) async fn emptied(store: &Store, limit: Duration) {
    within(limit, "an empty queue", async || total(store).await == 0).await;
}

pub(crate) async fn total(store: &Store) -> u64 {
    store.queue.depth().await.unwrap().total
}

/// Returns the number of messages that can be received now.
pub(crate) async fn ready(store: &Store) -> u64 {
    store.queue.depth().await.unwrap().ready.unwrap()
}

pub(crate) async fn leased(store: &Store) -> u64 {
    store.queue.depth().await.unwrap().leased.unwrap()
}

/// Returns the reasons in the poison queue.
pub(crate) async fn poisoned(store: &Store) -> Vec<String> {
    let letters = store.queue.dead_letters(32).await.unwrap();
    letters.into_iter().map(|letter| letter.reason.unwrap_or_default()).collect()
}

/// Returns the job's record.
pub(crate) async fn record(store: &Store, job: &JobId) -> Option<Record> {
    let stored = store.records.load(job).await.unwrap();
    stored.map(|stored| open(&stored.bytes).unwrap())
}

/// Returns the ids of the jobs that have a record.
pub(crate) async fn jobs_with_records(store: &Store) -> BTreeSet<String> {
    let records = Page::all(|at| async move { store.records.page("", at.as_deref()).await });
    let jobs = records.await.unwrap().into_iter().filter(|entry| !is_entry(&entry.job));
    jobs.map(|entry| entry.job.to_string()).collect()
}

/// Replaces the bytes of the job's record.
pub(crate) async fn overwrite(store: &Store, job: &JobId, record: Vec<u8>) {
    let version = store.records.load(job).await.unwrap().map(|stored| stored.version);
    let write = RecordWrite { record, ..RecordWrite::default() };
    store.records.put(job, version.as_ref(), write).await.unwrap();
}

/// Changes the job's record.
pub(crate) async fn rewrite(store: &Store, job: &JobId, change: impl FnOnce(&mut Record)) {
    let mut changed = record(store, job).await.expect("there is a record");
    change(&mut changed);
    overwrite(store, job, seal(&changed)).await;
}

/// Removes what nothing needs: a whole round.
pub(crate) async fn clean(store: &Store, keep: Keep, dry_run: bool) -> Removed {
    let cleaner = Cleaner::new(store.clone(), keep).dry_run(dry_run);
    let (mut removed, mut position) = (Removed::default(), Some(Position::default()));
    while let Some(at) = position {
        let part = cleaner.clean(&at).await.unwrap();
        removed += part.removed;
        position = part.next;
    }
    removed
}

/// A job of another kind, that is done at once.
#[derive(Debug)]
pub(crate) struct Other;

#[async_trait]
impl Job for Other {
    const KIND: &'static str = "other";
    type Args = ();
    type Checkpoint = ();
    type Output = ();

    fn begin(&self, (): &()) {}

    async fn step(&self, _: &JobContext, (): &(), (): ()) -> Result<Step<(), ()>, JobError> {
        Ok(Step::Done(()))
    }
}
