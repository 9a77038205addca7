//! What all jobs of a worker share is made once before the first job, and dropped in order at the end.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use reprieve_core::interruption::Stage;
use reprieve_core::memory::{self, ManualNotices};
use reprieve_core::ports::Ending;
use reprieve_core::worker::{Limits, Settings, Worker, WorkerBuilder};
use reprieve_core::{Job, JobContext, JobError, NewJob, Producer, Step};
use tokio::time::{Instant, sleep};

use crate::support::*;

type Log = Arc<Mutex<Vec<String>>>;

/// A value that notes when it is dropped.
struct Value<const N: u32>(Log);

impl<const N: u32> Drop for Value<N> {
    fn drop(&mut self) {
        self.0.lock().unwrap().push(format!("drop {N}"));
    }
}

#[derive(Debug)]
struct Uses(Log);

#[async_trait]
impl Job for Uses {
    const KIND: &'static str = "uses";
    type Args = ();
    type Checkpoint = ();
    type Output = ();

    fn begin(&self, (): &()) {}

    async fn step(&self, cx: &JobContext, (): &(), (): ()) -> Result<Step<(), ()>, JobError> {
        let (_, _) = (cx.shared::<Value<1>>(), cx.shared::<Value<2>>());
        self.0.lock().unwrap().push("use".to_owned());
        Ok(Step::Done(()))
    }
}

fn sharing(log: &Log, worker: WorkerBuilder) -> WorkerBuilder {
    let (first, second) = (Arc::clone(log), Arc::clone(log));
    worker
        .share(move |_| {
            let log = Arc::clone(&first);
            async move {
                log.lock().unwrap().push("make 1".to_owned());
                Ok::<_, io::Error>(Value::<1>(log))
            }
        })
        .share(move |start| {
            let log = Arc::clone(&second);
            async move {
                let _first: &Value<1> = start.shared();
                log.lock().unwrap().push(format!("make 2 for {}", start.concurrency()));
                Ok::<_, io::Error>(Value::<2>(log))
            }
        })
}

async fn send<J: Job<Args = ()>>(store: &reprieve_core::ports::Store, jobs: usize) {
    on_one_clock();
    let jobs = (0..jobs).map(|_| NewJob::of::<J>(&()).unwrap()).collect();
    Producer::new(store.clone()).enqueue(jobs).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn values_are_made_in_order_before_the_first_job_and_dropped_in_the_reverse_order_at_the_end() {
    let (store, log) = (memory::store(), Log::default());
    send::<Uses>(&store, 2).await;
    let worker = start_built(sharing(
        &log,
        Worker::builder(store.clone()).job(Uses(log.clone())).settings(settings()),
    ));
    emptied(&store, secs(60)).await;
    worker.stop().await;
    let expected = ["make 1", "make 2 for 4", "use", "use", "drop 2", "drop 1"];
    assert_eq!(*log.lock().unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn values_are_made_once_also_when_the_worker_starts_again_after_a_drain() {
    let (store, log) = (memory::store(), Log::default());
    let notices = ManualNotices::answered();
    let builder = Worker::builder(store.clone()).job(Uses(log.clone())).settings(settings());
    let worker = start_built_with(sharing(&log, builder), notices.clone());
    worker.started().await;
    worker.evict(secs(30)).await;
    notices.over(&preempt("evicted").id, Ending::Withdrawn);
    worker.started().await;
    send::<Uses>(&store, 1).await;
    emptied(&store, secs(60)).await;
    worker.stop().await;
    assert_eq!(*log.lock().unwrap(), ["make 1", "make 2 for 4", "use", "drop 2", "drop 1"]);
}

#[tokio::test(start_paused = true)]
async fn a_value_that_can_not_be_made_is_tried_again_and_no_message_is_received_before() {
    let (store, log, tries) = (memory::store(), Log::default(), Arc::new(AtomicU32::new(0)));
    send::<Uses>(&store, 1).await;
    let counted = Arc::clone(&tries);
    let builder = Worker::builder(store.clone()).job(Uses(log.clone())).settings(settings());
    let builder = sharing(&log, builder).share(move |_| {
        let tries = Arc::clone(&counted);
        async move {
            match tries.fetch_add(1, Relaxed) {
                0 => panic!("no such file"),
                1..4 => Err(io::Error::other("refused")),
                tries => Ok(tries),
            }
        }
    });
    let (worker, began) = (start_built(builder), Instant::now());
    within(secs(60), "the third try", async || tries.load(Relaxed) == 4).await;
    assert_eq!((worker.monitor.stage(), leased(&store).await), (Stage::Resume, 0));
    emptied(&store, secs(60)).await;
    assert!((secs(15)..secs(17)).contains(&began.elapsed()), "{:?}", began.elapsed());
    worker.stop().await;
    assert_eq!(*log.lock().unwrap(), ["make 1", "make 2 for 4", "use", "drop 2", "drop 1"]);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_still_makes_its_values_can_be_stopped() {
    let (store, log) = (memory::store(), Log::default());
    let builder = Worker::builder(store).job(Uses(log.clone())).settings(settings());
    let builder =
        sharing(&log, builder).share(async |_| std::future::pending::<Result<u32, io::Error>>().await);
    let worker = start_built(builder);
    within(secs(5), "the second value", async || log.lock().unwrap().len() == 2).await;
    worker.stop().await;
    assert_eq!(*log.lock().unwrap(), ["make 1", "make 2 for 4", "drop 2", "drop 1"]);
}

#[tokio::test]
async fn two_values_of_one_type_are_refused() {
    let builder = Worker::builder(memory::store()).job(Uses(Log::default()));
    let builder =
        builder.share(async |_| Ok::<_, io::Error>(1_u32)).share(async |_| Ok::<_, io::Error>(2_u32));
    let refused = builder.build().unwrap_err();
    assert!(refused.to_string().contains("two shared values have the type u32"), "{refused}");
}

/// Computes on a thread of its own, until it is asked to yield.
#[derive(Debug, Clone, Default)]
struct Computes {
    /// Most closures that ran at once.
    most: Arc<AtomicU32>,
    running: Arc<AtomicU32>,
    yielded: Arc<AtomicBool>,
}

#[async_trait]
impl Job for Computes {
    const KIND: &'static str = "computes";
    type Args = ();
    type Checkpoint = u64;
    type Output = u64;

    fn begin(&self, (): &()) -> u64 {
        0
    }

    async fn step(&self, cx: &JobContext, (): &(), at: u64) -> Result<Step<u64, u64>, JobError> {
        if at > 0 && cx.delivery() > 1 {
            return Ok(Step::Done(at));
        }
        let (this, stop) = (self.clone(), cx.stop_flag());
        let next = cx.compute(move || {
            this.most.fetch_max(this.running.fetch_add(1, Relaxed) + 1, Relaxed);
            while !stop.is_set() {
                std::thread::yield_now();
            }
            this.running.fetch_sub(1, Relaxed);
            this.yielded.store(true, Relaxed);
            at + 1
        });
        // The step's own thread is free meanwhile.
        tokio::select! {
            next = next => Ok(Step::Continue(next)),
            () = async { cx.interrupted().await; std::future::pending().await } => unreachable!(),
        }
    }
}

/// On a real clock: the paused one stands still while a closure computes.
#[tokio::test]
async fn closures_compute_beside_the_runtime_as_many_at_once_as_there_are_cores_and_yield() {
    let (store, job) = (memory::store(), Computes::default());
    send::<Computes>(&store, 16).await;
    let worker = start_any(&store, job.clone(), Settings { concurrency: 16, ..settings() });
    let cores = u32::try_from(std::thread::available_parallelism().unwrap().get()).unwrap();
    within(secs(20), "work on all cores", async || job.running.load(Relaxed) == cores.min(16)).await;
    // This one thread has the worker, too, so a closure on it would stop everything.
    let report = worker.evict(secs(30)).await;
    assert_eq!((report.held, report.released_saved, report.still_running), (16, 16, 0), "{report:?}");
    assert!(job.yielded.load(Relaxed) && job.most.load(Relaxed) <= cores);
    worker.stop().await;
}

#[derive(Debug)]
struct PanicsInside;

#[async_trait]
impl Job for PanicsInside {
    const KIND: &'static str = "panics-inside";
    type Args = ();
    type Checkpoint = ();
    type Output = ();

    fn begin(&self, (): &()) {}

    async fn step(&self, cx: &JobContext, (): &(), (): ()) -> Result<Step<(), ()>, JobError> {
        cx.compute(|| panic!("division by zero")).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_a_closure_is_the_jobs_failure() {
    let store = memory::store();
    send::<PanicsInside>(&store, 1).await;
    let worker = start_job(&store, PanicsInside);
    within(secs(7_200), "the dead letter", async || !poisoned(&store).await.is_empty()).await;
    let reasons = poisoned(&store).await;
    assert!(
        reasons[0].contains("the job panicked") && reasons[0].contains("division by zero"),
        "{reasons:?}"
    );
    worker.stop().await;
}

/// Computes until it is told to end, and does not look at the stop flag.
#[derive(Debug, Clone, Default)]
struct Stubborn {
    may_end: Arc<AtomicBool>,
    running: Arc<AtomicU32>,
    most: Arc<AtomicU32>,
}

#[async_trait]
impl Job for Stubborn {
    const KIND: &'static str = "stubborn";
    type Args = ();
    type Checkpoint = ();
    type Output = ();

    fn begin(&self, (): &()) {}

    async fn step(&self, cx: &JobContext, (): &(), (): ()) -> Result<Step<(), ()>, JobError> {
        let this = self.clone();
        cx.compute(move || {
            this.most.fetch_max(this.running.fetch_add(1, Relaxed) + 1, Relaxed);
            while !this.may_end.load(Relaxed) {
                std::thread::yield_now();
            }
            this.running.fetch_sub(1, Relaxed);
        })
        .await;
        Ok(Step::Done(()))
    }
}

#[derive(Debug)]
struct Brief;

#[async_trait]
impl Job for Brief {
    const KIND: &'static str = "brief";
    type Args = ();
    type Checkpoint = ();
    type Output = ();

    fn begin(&self, (): &()) {}

    async fn step(&self, cx: &JobContext, (): &(), (): ()) -> Result<Step<(), ()>, JobError> {
        cx.compute(|| ()).await;
        Ok(Step::Done(()))
    }
}

/// On a real clock. As many never end as the machine has cores.
#[tokio::test]
async fn what_computes_past_its_timeout_keeps_its_slot_and_no_other_job_from_computing() {
    let (store, job) = (memory::store(), Stubborn::default());
    let cores = std::thread::available_parallelism().unwrap().get();
    send::<Stubborn>(&store, cores).await;
    let limits = Limits { step_timeout: Some(secs(1)), attempts: 1, ..Limits::default() };
    let settings = Settings { concurrency: cores + 1, ..settings() };
    let builder = Worker::builder(store.clone()).settings(settings).job(job.clone()).job(Brief);
    let worker = start_built(builder.limits::<Stubborn>(limits));
    within(secs(20), "the timeouts", async || poisoned(&store).await.len() == cores).await;
    assert_eq!(job.running.load(Relaxed) as usize, cores);
    send::<Brief>(&store, 20).await;
    within(secs(20), "the others", async || total(&store).await == 0).await;
    job.may_end.store(true, Relaxed);
    worker.stop().await;
}

/// On a real clock.
#[tokio::test]
async fn what_computes_past_its_timeout_counts_under_the_limits_of_its_kind() {
    let (store, job) = (memory::store(), Stubborn::default());
    send::<Stubborn>(&store, 2).await;
    let step_timeout = Some(secs(1));
    let limits =
        Limits { per_worker: Some(1), in_fleet: Some(1), step_timeout, attempts: 1, ..Limits::default() };
    let settings = Settings { concurrency: 4, ..settings() };
    let builder = Worker::builder(store.clone()).settings(settings).job(job.clone());
    let worker = start_built(builder.limits::<Stubborn>(limits));
    within(secs(20), "the timeout", async || poisoned(&store).await.len() == 1).await;
    // The other one's message returns after about five seconds.
    sleep(secs(8)).await;
    assert_eq!((job.running.load(Relaxed), job.most.load(Relaxed)), (1, 1));
    job.may_end.store(true, Relaxed);
    worker.stop().await;
}
