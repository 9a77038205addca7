//! What jobs depend on besides the store, while it is away and when it comes back.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use reprieve_core::checkpoint::CheckpointEvery;
use reprieve_core::dependency::{Answer, BreakerState, CallError, Dependency, DependencyHandle, Signal};
use reprieve_core::memory::{self, Fault, Faults, Op};
use reprieve_core::ports::Store;
use reprieve_core::worker::{Depends, Limits, Settings, Worker, WorkerBuilder};
use reprieve_core::{Job, JobContext, JobError, NewJob, Producer, Step};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use crate::service::{enqueue_of, has_state};
use crate::support::{Plan, Steps, emptied, ms, poisoned, secs, settings, start_built, within};

/// A cache that can be away, and that announces what the test says.
#[derive(Debug)]
struct Cache {
    serves: AtomicBool,
    hangs: AtomicBool,
    is_full: AtomicBool,
    panics: AtomicBool,
    look_panics: AtomicBool,
    probes: AtomicUsize,
    announced: tokio::sync::Mutex<mpsc::UnboundedReceiver<Signal>>,
    announce: mpsc::UnboundedSender<Signal>,
}

impl Cache {
    fn new() -> Arc<Self> {
        let (announce, announced) = mpsc::unbounded_channel();
        Arc::new(Self {
            serves: AtomicBool::new(true),
            hangs: AtomicBool::new(false),
            is_full: AtomicBool::new(false),
            panics: AtomicBool::new(false),
            look_panics: AtomicBool::new(false),
            probes: AtomicUsize::new(0),
            announced: tokio::sync::Mutex::new(announced),
            announce,
        })
    }

    fn set(&self, serves: bool) {
        self.serves.store(serves, Relaxed);
    }

    fn get(&self) -> Result<(), String> {
        if self.serves.load(Relaxed) { Ok(()) } else { Err("connection refused".to_owned()) }
    }
}

#[async_trait]
impl Dependency for Cache {
    async fn probe(&self) -> Result<(), String> {
        self.probes.fetch_add(1, Relaxed);
        assert!(!self.panics.load(Relaxed), "a defect of the probe");
        if self.hangs.load(Relaxed) {
            std::future::pending::<()>().await;
        }
        self.get()
    }

    async fn refuses(&self) -> Option<String> {
        assert!(!self.look_panics.load(Relaxed), "a defect of the look");
        self.is_full.load(Relaxed).then(|| "it refuses writes".to_owned())
    }

    async fn next_signal(&self) -> Signal {
        assert!(!self.panics.load(Relaxed), "a defect of the watch");
        match self.announced.lock().await.recv().await {
            Some(signal) => signal,
            None => std::future::pending().await,
        }
    }
}

/// A job of ten steps of 300 ms, each of which asks the cache.
#[derive(Debug, Clone)]
struct Asking {
    cache: Arc<Cache>,
    /// How often each step ran.
    ran: Arc<Mutex<HashMap<u32, u32>>>,
    /// Calls that failed, and those that were not made.
    failed: Arc<AtomicUsize>,
    refused: Arc<AtomicUsize>,
}

impl Asking {
    fn new(cache: &Arc<Cache>) -> Self {
        let (ran, failed, refused) = Default::default();
        Self { cache: Arc::clone(cache), ran, failed, refused }
    }
}

const STEPS: u32 = 10;

#[async_trait]
impl Job for Asking {
    const KIND: &'static str = "asking";
    type Args = ();
    type Checkpoint = u32;
    type Output = ();

    fn begin(&self, (): &()) -> u32 {
        0
    }

    async fn step(&self, cx: &JobContext, (): &(), at: u32) -> Result<Step<u32, ()>, JobError> {
        sleep(ms(300)).await;
        *self.ran.lock().unwrap().entry(at).or_default() += 1;
        match cx.dependency("cache").call(async { self.cache.get() }, |_| true).await {
            Ok(()) => {}
            Err(CallError::Open) => {
                self.refused.fetch_add(1, Relaxed);
                return Err(JobError::retry("the cache is away"));
            }
            Err(CallError::Failed(error)) => {
                self.failed.fetch_add(1, Relaxed);
                return Err(JobError::retry(error));
            }
        }
        Ok(if at + 1 == STEPS { Step::Done(()) } else { Step::Continue(at + 1) })
    }
}

/// A job of another kind, which depends on nothing.
struct Plain(Arc<AtomicUsize>);

#[async_trait]
impl Job for Plain {
    const KIND: &'static str = "plain";
    type Args = ();
    type Checkpoint = ();
    type Output = ();

    fn begin(&self, (): &()) {}

    async fn step(&self, _: &JobContext, (): &(), (): ()) -> Result<Step<(), ()>, JobError> {
        sleep(secs(1)).await;
        self.0.fetch_add(1, Relaxed);
        Ok(Step::Done(()))
    }
}

/// A worker of four slots whose jobs may fail once, and need the cache.
fn needing(store: &Store, job: &Asking) -> WorkerBuilder {
    let once = Limits { attempts: 1, ..Limits::default() };
    Worker::builder(store.clone())
        .settings(Settings { concurrency: 4, ..settings() })
        .dependency("cache", job.cache.clone())
        .job(job.clone())
        .limits::<Asking>(once)
        .depends::<Asking>(Depends::needs(["cache"]))
}

#[tokio::test(start_paused = true)]
async fn jobs_that_need_what_is_away_wait_without_an_attempt_and_other_kinds_go_on() {
    let (store, cache) = (memory::store(), Cache::new());
    let (job, plain) = (Asking::new(&cache), Arc::new(AtomicUsize::new(0)));
    cache.set(false);
    let _worker = start_built(needing(&store, &job).job(Plain(Arc::clone(&plain))));
    sleep(secs(3)).await;
    enqueue_of::<Asking>(&store, 20).await;
    enqueue_of::<Plain>(&store, 20).await;
    within(secs(60), "the other kind is done", async || plain.load(Relaxed) == 20).await;
    sleep(secs(600)).await;
    assert!(job.ran.lock().unwrap().is_empty(), "nothing that needs the cache has begun");
    assert_eq!(poisoned(&store).await, Vec::<String>::new());
    cache.set(true);
    emptied(&store, secs(180)).await;
    assert_eq!(poisoned(&store).await, Vec::<String>::new());
    assert_eq!(job.ran.lock().unwrap().values().copied().collect::<Vec<_>>(), [20; STEPS as usize]);
}

#[tokio::test(start_paused = true)]
async fn running_jobs_save_and_wait_while_what_they_need_is_announced_to_go() {
    let (store, cache) = (memory::store(), Cache::new());
    let job = Asking::new(&cache);
    let worker = start_built(needing(&store, &job));
    enqueue_of::<Asking>(&store, 4).await;
    sleep(ms(1_000)).await;
    cache.announce.send(Signal::Begins).unwrap();
    sleep(ms(400)).await;
    let ran = job.ran.lock().unwrap().values().sum::<u32>();
    // It goes when the worker's jobs have stopped to ask it.
    cache.set(false);
    sleep(secs(20)).await;
    assert_eq!(job.ran.lock().unwrap().values().sum::<u32>(), ran, "they wait");
    cache.set(true);
    cache.announce.send(Signal::Switched).unwrap();
    let back = Instant::now();
    emptied(&store, secs(60)).await;
    assert!(back.elapsed() < secs(45), "{:?}", back.elapsed());
    assert_eq!((job.failed.load(Relaxed), job.refused.load(Relaxed)), (0, 0), "no call failed");
    assert_eq!(
        job.ran.lock().unwrap().values().copied().collect::<Vec<_>>(),
        [4; STEPS as usize],
        "no step twice"
    );
    assert_eq!(worker.stop().await.completed, 4);
}

/// It has no deadline: its first save may take as long as another save.
#[tokio::test(start_paused = true)]
async fn a_job_saves_and_waits_for_what_it_needs_also_where_a_save_takes_long() {
    for takes in [ms(4_000), secs(20)] {
        let (inner, cache, steps) = (memory::store(), Cache::new(), Steps::default());
        let (store, faults) = Faults::wrap(inner.clone());
        faults.every_call(Op::Save, Fault::Delay(takes));
        let settings = Settings { checkpoint_every: CheckpointEvery::Auto, ..settings() };
        let worker = Worker::builder(store).settings(settings).dependency("cache", cache.clone()).job(steps);
        let _worker = start_built(worker.depends::<Steps>(Depends::needs(["cache"])));
        crate::support::enqueue(&inner, &[Plan::new(120, 1_000)]).await;
        sleep(secs(20)).await;
        cache.serves.store(false, Relaxed);
        sleep(secs(60)).await;
        cache.serves.store(true, Relaxed);
        emptied(&inner, secs(400)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_step_that_fails_because_what_it_needs_is_away_costs_no_attempt() {
    let (store, cache) = (memory::store(), Cache::new());
    let job = Asking::new(&cache);
    let _worker = start_built(needing(&store, &job));
    enqueue_of::<Asking>(&store, 8).await;
    for away in [5, 70, 600] {
        sleep(ms(1_130)).await;
        cache.set(false);
        sleep(secs(away)).await;
        cache.set(true);
    }
    emptied(&store, secs(180)).await;
    assert_eq!(poisoned(&store).await, Vec::<String>::new());
    assert!(job.failed.load(Relaxed) > 0, "no call failed");
    assert!(job.failed.load(Relaxed) <= 3 * 4 + 3, "{}", job.failed.load(Relaxed));
}

/// A job that works for a second and then writes into the cache, which is not away when it is full.
struct Writing {
    cache: Arc<Cache>,
    runs: Arc<AtomicUsize>,
}

impl Writing {
    fn new(cache: &Arc<Cache>) -> Self {
        Self { cache: Arc::clone(cache), runs: Arc::default() }
    }
}

#[async_trait]
impl Job for Writing {
    const KIND: &'static str = "writing";
    type Args = ();
    type Checkpoint = ();
    type Output = ();

    fn begin(&self, (): &()) {}

    async fn step(&self, cx: &JobContext, (): &(), (): ()) -> Result<Step<(), ()>, JobError> {
        self.runs.fetch_add(1, Relaxed);
        sleep(secs(1)).await;
        if self.cache.is_full.load(Relaxed) {
            cx.dependency("cache").refused("OOM");
            return Err(JobError::retry("there is no room"));
        }
        Ok(Step::Done(()))
    }
}

/// A worker of eight slots whose jobs write into the cache that they need, and another kind.
#[tokio::test(start_paused = true)]
async fn jobs_that_need_what_refuses_writes_wait_without_an_attempt_and_other_kinds_go_on() {
    let (store, cache) = (memory::store(), Cache::new());
    cache.is_full.store(true, Relaxed);
    let (job, plain) = (Writing::new(&cache), Arc::new(AtomicUsize::new(0)));
    let runs = Arc::clone(&job.runs);
    let worker = Worker::builder(store.clone()).settings(Settings { concurrency: 8, ..settings() }).job(job);
    let worker = worker.dependency("cache", cache.clone()).depends::<Writing>(Depends::needs(["cache"]));
    let _worker = start_built(worker.job(Plain(Arc::clone(&plain))));
    enqueue_of::<Writing>(&store, 60).await;
    enqueue_of::<Plain>(&store, 20).await;
    within(secs(60), "the other kind is done", async || plain.load(Relaxed) == 20).await;
    sleep(secs(900)).await;
    assert!(runs.load(Relaxed) <= 2 * 8, "{} runs in vain", runs.load(Relaxed));
    assert_eq!(poisoned(&store).await, Vec::<String>::new());
    cache.is_full.store(false, Relaxed);
    emptied(&store, secs(400)).await;
    assert_eq!(poisoned(&store).await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_job_that_only_uses_what_refuses_writes_is_begun() {
    let (store, cache) = (memory::store(), Cache::new());
    cache.is_full.store(true, Relaxed);
    let (needing, plain) = (Writing::new(&cache), Arc::new(AtomicUsize::new(0)));
    let runs = Arc::clone(&needing.runs);
    let worker = Worker::builder(store.clone()).settings(settings()).dependency("cache", cache.clone());
    let worker = worker.job(needing).depends::<Writing>(Depends::needs(["cache"]));
    let worker = worker.job(Plain(Arc::clone(&plain))).depends::<Plain>(Depends::uses(["cache"]));
    let _worker = start_built(worker);
    enqueue_of::<Writing>(&store, 1).await;
    within(secs(60), "a job has failed", async || runs.load(Relaxed) == 1).await;
    sleep(secs(5)).await;
    enqueue_of::<Plain>(&store, 20).await;
    within(secs(60), "all are done", async || plain.load(Relaxed) == 20).await;
}

/// What a step meets.
#[derive(Debug, Clone, Copy)]
enum Met {
    Refused,
    /// Its own client's call fails, and it says so.
    Reported,
    /// It goes on, and the next call is answered.
    Overcome,
    /// Another call is answered that was under way.
    Beside,
    /// A call fails, and a later one of those that the step makes side by side is answered.
    FailedBeside,
}

impl Met {
    async fn meet(self, cache: &DependencyHandle) {
        let answered = cache.call(
            async {
                sleep(ms(50)).await;
                Ok::<_, String>(())
            },
            |_| true,
        );
        match self {
            Self::Refused => cache.refused("OOM"),
            Self::Reported => cache.report(&Answer::Failed("broken pipe".to_owned())),
            Self::FailedBeside => {
                let failed = cache.call(async { Err::<(), _>("broken pipe") }, |_| true);
                failed.await.unwrap_err();
                answered.await.unwrap();
            }
            Self::Overcome => {
                cache.refused("NOPERM");
                answered.await.unwrap();
            }
            Self::Beside => {
                let refused = async {
                    sleep(ms(20)).await;
                    cache.refused("OOM");
                };
                tokio::join!(answered, refused).0.unwrap();
            }
        }
    }
}

/// A job of two steps whose own calls the cache refuses, although no look at it shows why.
struct Refused {
    met: Met,
    /// How many of its runs are refused.
    times: usize,
    runs: Arc<AtomicUsize>,
}

#[async_trait]
impl Job for Refused {
    const KIND: &'static str = "refused";
    type Args = ();
    type Checkpoint = u32;
    type Output = ();

    fn begin(&self, (): &()) -> u32 {
        0
    }

    async fn step(&self, cx: &JobContext, (): &(), at: u32) -> Result<Step<u32, ()>, JobError> {
        if at == 1 {
            // What an earlier step met is no excuse.
            return Err(JobError::retry("a defect of its own"));
        }
        self.met.meet(cx.dependency("cache")).await;
        if self.runs.fetch_add(1, Relaxed) < self.times {
            return Err(JobError::retry("there is no room"));
        }
        Ok(Step::Continue(1))
    }
}

/// Runs a job to its dead letter. Returns how often it ran, why it ended, and after what time.
async fn run_refused(
    met: Met,
    times: usize,
    attempts: u32,
    depends: Depends,
) -> (usize, String, std::time::Duration) {
    let (store, cache, runs) = (memory::store(), Cache::new(), Arc::new(AtomicUsize::new(0)));
    let worker = Worker::builder(store.clone()).settings(settings()).dependency("cache", cache);
    let limits = Limits { attempts, ..Limits::default() };
    let job = Refused { met, times, runs: Arc::clone(&runs) };
    let _worker = start_built(worker.job(job).limits::<Refused>(limits).depends::<Refused>(depends));
    let began = Instant::now();
    enqueue_of::<Refused>(&store, 1).await;
    within(secs(24 * 3600), "it is dead-lettered", async || !poisoned(&store).await.is_empty()).await;
    (runs.load(Relaxed), poisoned(&store).await.remove(0), began.elapsed())
}

#[tokio::test(start_paused = true)]
async fn a_step_that_fails_because_its_own_call_was_refused_costs_no_attempt() {
    for met in [Met::Refused, Met::Reported, Met::Beside, Met::FailedBeside] {
        let (_, why, _) = run_refused(met, 6, 1, Depends::needs(["cache"])).await;
        assert!(why.contains("a defect of its own"), "{met:?}: {why}");
    }
    let (runs, why, _) = run_refused(Met::Refused, 20, 3, Depends::uses(["cache"])).await;
    assert!(why.contains("there is no room"), "its attempts count where it could do without: {why}");
    assert_eq!(runs, 3);
}

#[tokio::test(start_paused = true)]
async fn a_step_that_went_on_without_what_was_refused_fails_by_its_own_fault() {
    let (runs, why, _) = run_refused(Met::Overcome, 20, 3, Depends::needs(["cache"])).await;
    assert!(why.contains("there is no room"), "{why}");
    assert_eq!(runs, 3);
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_calls_are_refused_for_ever_is_charged_after_a_night() {
    let (runs, why, took) = run_refused(Met::Refused, usize::MAX, 3, Depends::needs(["cache"])).await;
    assert!(why.contains("there is no room"), "{why}");
    assert_eq!(runs, 100 + 3);
    assert!((secs(8 * 3600)..secs(16 * 3600)).contains(&took), "{took:?}");
}

/// A job that fails by itself, whatever the cache does.
struct Failing;

#[async_trait]
impl Job for Failing {
    const KIND: &'static str = "failing";
    type Args = ();
    type Checkpoint = ();
    type Output = ();

    fn begin(&self, (): &()) {}

    async fn step(&self, _: &JobContext, (): &(), (): ()) -> Result<Step<(), ()>, JobError> {
        Err(JobError::retry("a defect of its own"))
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_while_what_the_job_needs_serves_is_its_own() {
    let (store, cache) = (memory::store(), Cache::new());
    let limits = Limits { attempts: 3, ..Limits::default() };
    let worker = Worker::builder(store.clone()).settings(settings()).dependency("cache", cache.clone());
    let worker = worker.job(Failing).limits::<Failing>(limits).depends::<Failing>(Depends::needs(["cache"]));
    let _worker = start_built(worker);
    enqueue_of::<Failing>(&store, 1).await;
    within(secs(60), "it is dead-lettered", async || poisoned(&store).await.len() == 1).await;
    assert!(poisoned(&store).await[0].contains("a defect of its own"));
}

/// Jobs that only read, and one that reads and fails.
#[tokio::test(start_paused = true)]
async fn a_job_that_fails_by_its_own_fault_stops_no_others_although_writes_are_refused() {
    let (store, cache, plain) = (memory::store(), Cache::new(), Arc::new(AtomicUsize::new(0)));
    cache.is_full.store(true, Relaxed);
    let worker = Worker::builder(store.clone()).settings(settings()).dependency("cache", cache.clone());
    let worker = worker.job(Failing).depends::<Failing>(Depends::needs(["cache"]));
    let worker = worker.job(Plain(Arc::clone(&plain))).depends::<Plain>(Depends::needs(["cache"]));
    let _worker = start_built(worker);
    enqueue_of::<Failing>(&store, 1).await;
    sleep(secs(3)).await;
    enqueue_of::<Plain>(&store, 20).await;
    within(secs(60), "all that read are done", async || plain.load(Relaxed) == 20).await;
    within(secs(600), "its attempts count", async || poisoned(&store).await.len() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_dependency_that_panics_for_a_while_is_away_for_that_time() {
    let (store, cache) = (memory::store(), Cache::new());
    let job = Asking::new(&cache);
    let _worker = start_built(needing(&store, &job));
    sleep(secs(1)).await;
    cache.panics.store(true, Relaxed);
    cache.announce.send(Signal::Disconnected).unwrap();
    sleep(secs(20)).await;
    enqueue_of::<Asking>(&store, 8).await;
    sleep(secs(20)).await;
    assert!(job.ran.lock().unwrap().is_empty(), "none has begun");
    let shown = async || store.roster.reports(secs(60)).await.unwrap()[0].dependencies[0].clone();
    within(secs(60), "it is shown", async || {
        let why = shown().await.why.unwrap_or_default();
        why.starts_with("a probe failed: the probe panicked") && why.ends_with("a defect of the probe")
    })
    .await;
    cache.panics.store(false, Relaxed);
    emptied(&store, secs(120)).await;
    assert_eq!(poisoned(&store).await, Vec::<String>::new());
    // It is heard again, too.
    cache.set(false);
    cache.announce.send(Signal::Begins).unwrap();
    within(secs(15), "an announcement is heard", async || shown().await.state == BreakerState::Open).await;
}

/// Its call was refused, so it is looked at.
#[tokio::test(start_paused = true)]
async fn a_look_that_panics_finds_that_all_is_refused() {
    let (store, cache) = (memory::store(), Cache::new());
    let (job, runs) = (Writing::new(&cache), Arc::<AtomicUsize>::default());
    let job = Writing { runs: Arc::clone(&runs), ..job };
    let once = Limits { attempts: 1, ..Limits::default() };
    let worker = Worker::builder(store.clone()).settings(settings()).dependency("cache", cache.clone());
    let worker = worker.job(job).limits::<Writing>(once).depends::<Writing>(Depends::needs(["cache"]));
    let _worker = start_built(worker);
    cache.is_full.store(true, Relaxed);
    enqueue_of::<Writing>(&store, 1).await;
    within(secs(60), "it has begun", async || runs.load(Relaxed) == 1).await;
    cache.look_panics.store(true, Relaxed);
    sleep(secs(120)).await;
    assert_eq!(runs.load(Relaxed), 1);
    cache.look_panics.store(false, Relaxed);
    cache.is_full.store(false, Relaxed);
    emptied(&store, secs(60)).await;
    assert_eq!(poisoned(&store).await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_worker_all_of_whose_kinds_wait_receives_nothing() {
    let (store, faults) = Faults::wrap(memory::store());
    let cache = Cache::new();
    cache.set(false);
    let job = Asking::new(&cache);
    let _worker = start_built(needing(&store, &job));
    sleep(secs(5)).await;
    enqueue_of::<Asking>(&store, 100).await;
    let received = faults.calls(Op::Receive);
    sleep(secs(300)).await;
    assert_eq!(faults.calls(Op::Receive), received);
    assert!(cache.probes.load(Relaxed) < 60, "{} probes", cache.probes.load(Relaxed));
    cache.set(true);
    emptied(&store, secs(180)).await;
}

/// A job that reads the cache, or a slow database while the cache is away.
#[derive(Clone)]
struct Reading {
    cache: Arc<Cache>,
    running: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
    failed: Arc<AtomicUsize>,
    from_database: Arc<AtomicUsize>,
}

#[async_trait]
impl Job for Reading {
    const KIND: &'static str = "reading";
    type Args = ();
    type Checkpoint = ();
    type Output = ();

    fn begin(&self, (): &()) {}

    async fn step(&self, cx: &JobContext, (): &(), (): ()) -> Result<Step<(), ()>, JobError> {
        let running = self.running.fetch_add(1, Relaxed) + 1;
        let cache = cx.dependency("cache");
        if cache.is_open() {
            self.most.fetch_max(running, Relaxed);
        }
        if let Err(error) = cache.call(async { self.cache.get() }, |_| true).await {
            self.failed.fetch_add(usize::from(error != CallError::Open), Relaxed);
            self.from_database.fetch_add(1, Relaxed);
            sleep(secs(2)).await;
        }
        sleep(ms(100)).await;
        self.running.fetch_sub(1, Relaxed);
        Ok(Step::Done(()))
    }
}

#[tokio::test(start_paused = true)]
async fn jobs_that_only_use_what_is_away_go_on_in_half_of_the_slots() {
    for (without, most) in [(None, 4), (Some(1), 1)] {
        let (store, cache) = (memory::store(), Cache::new());
        let (running, most_running, failed, from_database) = Default::default();
        let job = Reading { cache: cache.clone(), running, most: most_running, failed, from_database };
        let depends = Depends { without, ..Depends::uses(["cache"]) };
        let worker = Worker::builder(store.clone()).settings(Settings { concurrency: 8, ..settings() });
        let worker = worker.dependency("cache", cache.clone()).job(job.clone()).depends::<Reading>(depends);
        let _worker = start_built(worker);
        sleep(secs(1)).await;
        cache.announce.send(Signal::Begins).unwrap();
        sleep(ms(100)).await;
        cache.set(false);
        enqueue_of::<Reading>(&store, 20).await;
        sleep(secs(55)).await;
        cache.set(true);
        emptied(&store, secs(120)).await;
        assert_eq!(job.failed.load(Relaxed), 0, "no call was made in vain");
        assert!(job.from_database.load(Relaxed) > 0);
        assert_eq!(job.most.load(Relaxed), most);
        assert_eq!(poisoned(&store).await, Vec::<String>::new());
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_is_as_fast_while_what_the_jobs_need_is_away() {
    let (store, cache) = (memory::store(), Cache::new());
    let job = Asking::new(&cache);
    let worker = start_built(needing(&store, &job));
    enqueue_of::<Asking>(&store, 4).await;
    sleep(ms(1_000)).await;
    cache.announce.send(Signal::Begins).unwrap();
    sleep(ms(10)).await;
    let began = Instant::now();
    let report = worker.evict(secs(30)).await;
    assert!(began.elapsed() < secs(1), "{:?}", began.elapsed());
    // Those that were asked to wait before may be back in the queue.
    assert!(report.released_saved + report.released_unstarted == report.held, "{report:?}");
    assert_eq!((report.released_cut, report.abandoned, report.leases_lost), (0, 0, 0), "{report:?}");
}

/// A step has failed, and whether that is its own fault takes the look of a hanging cache.
#[tokio::test(start_paused = true)]
async fn a_drain_does_not_wait_for_a_look_at_what_hangs() {
    let (store, cache) = (memory::store(), Cache::new());
    cache.hangs.store(true, Relaxed);
    let worker = Worker::builder(store.clone()).settings(settings()).dependency("cache", cache.clone());
    let worker = start_built(worker.job(Failing).depends::<Failing>(Depends::needs(["cache"])));
    enqueue_of::<Failing>(&store, 1).await;
    sleep(ms(500)).await;
    let began = Instant::now();
    let report = worker.evict(secs(30)).await;
    assert!(began.elapsed() < ms(500) && report.held == 1, "{:?} {report:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn the_state_of_a_dependency_is_in_the_workers_report() {
    let (store, cache) = (memory::store(), Cache::new());
    let _worker = start_built(needing(&store, &Asking::new(&cache)));
    let shown = async || {
        let reports = store.roster.reports(secs(60)).await.unwrap();
        reports.first().and_then(|report| report.dependencies.first().cloned())
    };
    within(secs(60), "it is shown", async || shown().await.is_some()).await;
    assert_eq!(shown().await.unwrap().state, BreakerState::Closed);
    cache.set(false);
    cache.announce.send(Signal::Disconnected).unwrap();
    within(secs(60), "it is open", async || {
        let shown = shown().await.unwrap();
        shown.name == "cache" && shown.state == BreakerState::Open && shown.next_look_unix_ms.is_some()
    })
    .await;
    assert_eq!(shown().await.unwrap().why.as_deref(), Some("a probe failed: connection refused"));
}

#[tokio::test(start_paused = true)]
async fn what_a_dependency_refuses_is_in_the_workers_report() {
    let (store, cache) = (memory::store(), Cache::new());
    cache.is_full.store(true, Relaxed);
    let worker = Worker::builder(store.clone()).settings(settings()).dependency("cache", cache.clone());
    let worker = worker.job(Writing::new(&cache)).depends::<Writing>(Depends::needs(["cache"]));
    let worker = start_built(worker);
    sleep(secs(40)).await;
    enqueue_of::<Writing>(&store, 1).await;
    let shown = async || {
        let reports = store.roster.reports(secs(60)).await.unwrap();
        reports.first().and_then(|report| report.dependencies.first().cloned())
    };
    let refuses = async || shown().await.and_then(|shown| shown.refuses);
    within(secs(60), "it is shown", async || refuses().await.is_some()).await;
    let seen = shown().await.unwrap();
    assert_eq!((seen.state, seen.refuses.as_deref()), (BreakerState::Closed, Some("it refuses writes")));
    assert!(seen.next_look_unix_ms.is_some());
    let (state, since) = seen.shown();
    assert!(state == "refuses" && since >= seen.since_unix_ms + 30_000, "{seen:?}");
    for (state, is) in [("refuses", 1), ("closed", 0)] {
        let metrics = worker.monitor.telemetry().encode();
        assert!(has_state(&worker.monitor, "cache", state, is), "{state} {is}: {metrics}");
    }
    cache.is_full.store(false, Relaxed);
    within(secs(60), "it refuses nothing", async || refuses().await.is_none()).await;
}

#[tokio::test]
async fn a_kind_that_depends_on_what_the_worker_does_not_have_is_refused() {
    let cache = Cache::new();
    let worker = Worker::builder(memory::store()).job(Failing).dependency("cache", cache.clone());
    let depends = Depends { uses: vec!["cache".into()], without: Some(0), ..Depends::needs(["db", "cache"]) };
    let error =
        worker.dependency("cache", cache).depends::<Failing>(depends).build().unwrap_err().to_string();
    for fault in ["\"db\"", "without is 0", "both needs and uses \"cache\"", "two dependencies"] {
        assert!(error.contains(fault), "{fault}: {error}");
    }
}

/// A job of 100 ms that needs the cache, and does not call it.
struct Short(Arc<AtomicUsize>);

#[async_trait]
impl Job for Short {
    const KIND: &'static str = "short";
    type Args = ();
    type Checkpoint = ();
    type Output = ();

    fn begin(&self, (): &()) {}

    async fn step(&self, _: &JobContext, (): &(), (): ()) -> Result<Step<(), ()>, JobError> {
        self.0.fetch_add(1, Relaxed);
        sleep(ms(100)).await;
        Ok(Step::Done(()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_backlog_that_waited_for_a_dependency_is_back_soon_after_it_serves_again() {
    // Half an hour of work for a worker of two slots, and some minutes for one of eight.
    for (jobs, slots, outage) in [(4_000, 8, secs(60)), (4_000, 8, secs(20)), (2_000, 8, secs(1_800))] {
        let (store, begun, cache) = (memory::store(), Arc::<AtomicUsize>::default(), Cache::new());
        let new = vec![NewJob::of::<Short>(&()).unwrap(); jobs];
        Producer::new(store.clone()).enqueue(new).await.unwrap();
        let (counted, faults) = Faults::wrap(store.clone());
        let worker = Worker::builder(counted).settings(Settings { concurrency: slots, ..settings() });
        // The other kind has nothing to do, so the worker goes on to receive.
        let worker = worker.job(Short(Arc::clone(&begun))).job(Plain(Arc::default()));
        let worker = worker.dependency("cache", Arc::clone(&cache) as _);
        let _worker = start_built(worker.depends::<Short>(Depends::needs(["cache"])));
        sleep(secs(5)).await;
        cache.set(false);
        sleep(outage).await;
        cache.set(true);
        let (before, returns) = (begun.load(Relaxed), faults.calls(Op::Release));
        assert!(returns < 300 * (outage.as_secs() + 10), "{returns} returns in {outage:?}");
        let served = Instant::now();
        // Their work, and as long again as the outage was, but five minutes at most.
        let work = secs(((jobs - before) / (slots * 10)) as u64);
        let longest = work * 3 / 2 + outage.min(secs(300)) + secs(20);
        while begun.load(Relaxed) < jobs {
            sleep(secs(1)).await;
            let count = begun.load(Relaxed);
            assert!(served.elapsed() < longest, "{outage:?}: {count} of {jobs} have begun");
        }
        println!("away for {outage:?}: {returns} returns, all began within {:?}", served.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_backlog_of_jobs_that_do_without_is_back_soon_after_what_they_use_serves_again() {
    // Without it they take twenty times as long, in half of the slots.
    for (jobs, outage) in [(2_000, secs(5)), (3_000, secs(15)), (2_000, secs(60))] {
        let (slots, store, cache) = (8, memory::store(), Cache::new());
        let (running, most, failed, from_database) = Default::default();
        let job = Reading { cache: cache.clone(), running, most, failed, from_database };
        enqueue_of::<Reading>(&store, jobs).await;
        let (counted, faults) = Faults::wrap(store.clone());
        let worker = Worker::builder(counted).settings(Settings { concurrency: slots, ..settings() });
        let worker = worker.dependency("cache", Arc::clone(&cache) as _).job(job);
        let _worker = start_built(worker.depends::<Reading>(Depends::uses(["cache"])));
        sleep(secs(5)).await;
        cache.set(false);
        sleep(outage).await;
        cache.set(true);
        let returns = faults.calls(Op::Release);
        assert!(returns < 300 * (outage.as_secs() + 10), "{returns} returns in {outage:?}");
        let left = async || usize::try_from(store.queue.depth().await.unwrap().total).unwrap();
        let (served, work) = (Instant::now(), secs((left().await / (slots * 10)) as u64));
        // Their work, and as long again as the outage was, but five minutes at most.
        let longest = work * 3 / 2 + outage.min(secs(300)) + secs(20);
        while left().await > 0 {
            sleep(secs(1)).await;
            assert!(served.elapsed() < longest, "{outage:?}: {} of {jobs} are left", left().await);
        }
        println!(
            "away for {outage:?}: {returns} returns, {work:?} of work ended within {:?}",
            served.elapsed()
        );
    }
}
