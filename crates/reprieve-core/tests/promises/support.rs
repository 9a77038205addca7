//! Jobs that behave, or do not, and a worker to run them, on one paused runtime.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use reprieve_core::checkpoint::CheckpointEvery;
use reprieve_core::lifecycle::Stage;
use reprieve_core::memory::ManualNotices;
use reprieve_core::ports::Store;
use reprieve_core::worker::{DrainReport, Monitor, Settings, Stopped, Stopper, Worker, stopping};
use reprieve_core::{Job, JobContext, JobError, JobId, NewJob, Notice, NoticeKind, Producer, Step};
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;
use tokio::time::Instant;

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// What a [`Steps`] job does in each step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Habit {
    /// Waits for the step's time.
    Works,
    /// Waits, and returns early when asked to yield, with the step not counted.
    Watches,
    /// Never returns from this step.
    StuckAt(u32),
    /// Panics in this step.
    PanicsAt(u32),
    /// Asks for another try in this step.
    FailsAt(u32),
    /// Fails for good in this step.
    FatalAt(u32),
    /// Writes an output named after the step.
    Publishes,
}

/// A job of so many steps.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) steps: u32,
    pub(crate) step_ms: u64,
    pub(crate) habit: Habit,
}

impl Plan {
    pub(crate) fn new(steps: u32, step_ms: u64) -> Self {
        Self { steps, step_ms, habit: Habit::Works }
    }

    pub(crate) fn habit(self, habit: Habit) -> Self {
        Self { habit, ..self }
    }
}

/// Which steps of which job were finished, in order, and when the last one was.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trace(Arc<Mutex<BTreeMap<JobId, Vec<u32>>>>, Arc<Mutex<Option<Instant>>>);

impl Trace {
    pub(crate) fn steps(&self, job: &JobId) -> Vec<u32> {
        self.0.lock().unwrap().get(job).cloned().unwrap_or_default()
    }

    /// Steps that were finished more than once.
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

/// The job that all tests run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Steps {
    pub(crate) trace: Trace,
}

#[async_trait::async_trait]
impl Job for Steps {
    const KIND: &'static str = "steps";
    type Args = Plan;
    type Checkpoint = u32;
    type Output = u32;

    fn begin(&self, _: &Plan) -> u32 {
        0
    }

    async fn step(&self, cx: &JobContext, plan: &Plan, at: u32) -> Result<Step<u32, u32>, JobError> {
        let work = tokio::time::sleep(ms(plan.step_ms));
        match plan.habit {
            Habit::StuckAt(step) if step == at => std::future::pending().await,
            Habit::PanicsAt(step) if step == at => panic!("step {at} is cursed"),
            Habit::FailsAt(step) if step == at => return Err(JobError::retry("not today")),
            Habit::FatalAt(step) if step == at => return Err(JobError::fatal("never")),
            Habit::Watches => tokio::select! {
                () = work => {}
                () = cx.interrupted() => return Ok(Step::Continue(at)),
            },
            Habit::Publishes => {
                work.await;
                cx.put_output(&format!("out/{}/{at}", cx.job()), cx.fence().to_string().into_bytes()).await?;
            }
            _ => work.await,
        }
        self.trace.note(cx.job(), at);
        cx.progress(u64::from(at) + 1, u64::from(plan.steps));
        Ok(if at + 1 == plan.steps { Step::Done(plan.steps) } else { Step::Continue(at + 1) })
    }
}

pub(crate) fn settings() -> Settings {
    Settings { concurrency: 4, checkpoint_every: CheckpointEvery::Every(secs(5)), ..Settings::default() }
}

/// A worker that runs in the background.
pub(crate) struct Running {
    pub(crate) monitor: Monitor,
    pub(crate) notices: ManualNotices,
    pub(crate) stopper: Stopper,
    pub(crate) handle: JoinHandle<Stopped>,
}

pub(crate) fn start(store: &Store, job: &Steps) -> Running {
    start_with(store, job, settings(), ManualNotices::answered())
}

pub(crate) fn start_with(store: &Store, job: &Steps, settings: Settings, notices: ManualNotices) -> Running {
    let worker = Worker::builder(store.clone())
        .job(job.clone())
        .settings(settings)
        .interruptions(Arc::new(notices.clone()))
        .build()
        .unwrap();
    let monitor = worker.monitor();
    let (stopper, stopping) = stopping();
    Running { monitor, notices, stopper, handle: tokio::spawn(worker.run(stopping)) }
}

impl Running {
    /// Gives notice of a preemption, `in_` from now, and returns what the drain reports.
    pub(crate) async fn evict(&self, in_: Duration) -> DrainReport {
        self.notices.notice(preempt("evicted").at(Instant::now() + in_));
        self.drained().await
    }

    /// Waits until the present drain has ended.
    pub(crate) async fn drained(&self) -> DrainReport {
        let before = self.monitor.last_drain();
        within(secs(60), "the drain's end", async || self.monitor.last_drain() != before).await;
        self.monitor.last_drain().unwrap()
    }

    /// Kills it as SIGKILL would: nothing of it runs on, and nothing is given back.
    pub(crate) async fn kill(self) {
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

pub(crate) fn preempt(id: &str) -> Notice {
    Notice::now(id, NoticeKind::Preempt)
}

pub(crate) async fn enqueue(store: &Store, plans: &[Plan]) -> Vec<JobId> {
    let jobs = plans.iter().map(|plan| NewJob::of::<Steps>(plan).unwrap()).collect();
    Producer::new(store.clone()).enqueue(jobs).await.unwrap()
}

/// Waits until `condition` holds, looking every few milliseconds of paused time.
pub(crate) async fn within(limit: Duration, what: &str, condition: impl AsyncFn() -> bool) {
    let end = Instant::now() + limit;
    while !condition().await {
        assert!(Instant::now() < end, "{what} did not come within {limit:?}");
        tokio::time::sleep(ms(5)).await;
    }
}

pub(crate) async fn emptied(store: &Store, limit: Duration) {
    within(limit, "an empty queue", async || total(store).await == 0).await;
}

pub(crate) async fn total(store: &Store) -> u64 {
    store.queue.depth().await.unwrap().total
}

/// How many messages could be received this instant.
pub(crate) async fn ready(store: &Store) -> u64 {
    store.queue.depth().await.unwrap().ready.unwrap()
}

pub(crate) async fn leased(store: &Store) -> u64 {
    store.queue.depth().await.unwrap().leased.unwrap()
}

/// The reasons in the poison queue.
pub(crate) async fn poisoned(store: &Store) -> Vec<String> {
    let letters = store.queue.dead_letters(32).await.unwrap();
    letters.into_iter().map(|letter| letter.reason.unwrap_or_default()).collect()
}
