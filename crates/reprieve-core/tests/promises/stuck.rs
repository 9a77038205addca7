//! Threads that never come back: their slots are replaced, and when half are stuck the worker ends.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use reprieve_core::clock::unix_millis;
use reprieve_core::ledger::{Ledger, Summary};
use reprieve_core::memory::{self, Fault, Faults};
use reprieve_core::ports::Store;
use reprieve_core::telemetry::{ByLayer, ByOutcome};
use reprieve_core::worker::{
    Depends, DrainReport, Limits, Monitor, Settings, StopReason, Stopped, Worker, WorkerBuilder, spare_slots,
    stopping,
};
use reprieve_core::{ErrorKind, Job, JobContext, JobError, JobId, NewJob, Producer, Step};
use tokio::runtime::Runtime;
use tokio::sync::Barrier;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::service::Service;
use crate::support::*;

/// Blocks its thread until the other end is dropped, if its arguments say so.
#[derive(Clone)]
pub(crate) struct Block(Arc<Mutex<mpsc::Receiver<()>>>, Arc<AtomicUsize>);

#[async_trait::async_trait]
impl Job for Block {
    const KIND: &'static str = "block";
    type Args = bool;
    type Checkpoint = ();
    type Output = ();

    fn begin(&self, _: &bool) {}

    async fn step(&self, _: &JobContext, blocks: &bool, (): ()) -> Result<Step<(), ()>, JobError> {
        if *blocks {
            self.1.fetch_add(1, Relaxed);
            let _is_gone = self.0.lock().unwrap().recv();
        }
        Ok(Step::Done(()))
    }
}

/// Waits until as many of its kind as the worker has slots run at once.
#[derive(Clone)]
struct Meet(Arc<Barrier>);

#[async_trait::async_trait]
impl Job for Meet {
    const KIND: &'static str = "meet";
    type Args = ();
    type Checkpoint = ();
    type Output = ();

    fn begin(&self, (): &()) {}

    async fn step(&self, _: &JobContext, (): &(), (): ()) -> Result<Step<(), ()>, JobError> {
        self.0.wait().await;
        Ok(Step::Done(()))
    }
}

/// Computes on its thread and reports progress, until it is to stand still; then it blocks its thread for good.
#[derive(Clone, Default)]
struct Busy {
    stands_still: Arc<AtomicBool>,
    is_over: Arc<AtomicBool>,
    /// How often each of its steps has reported progress.
    reports: Arc<Mutex<Vec<Arc<AtomicU64>>>>,
}

#[async_trait::async_trait]
impl Job for Busy {
    const KIND: &'static str = "busy";
    type Args = ();
    type Checkpoint = ();
    type Output = ();

    fn begin(&self, (): &()) {}

    async fn step(&self, cx: &JobContext, (): &(), (): ()) -> Result<Step<(), ()>, JobError> {
        let reports = Arc::<AtomicU64>::default();
        self.reports.lock().unwrap().push(Arc::clone(&reports));
        while !self.is_over.load(Relaxed) {
            if !self.stands_still.load(Relaxed) {
                cx.progress(reports.fetch_add(1, Relaxed) + 1, 0);
            }
            thread::park_timeout(Duration::from_micros(100));
        }
        Ok(Step::Done(()))
    }
}

impl Busy {
    /// Lets so many seconds pass, in each of which all its threads report progress.
    async fn work_for(&self, seconds: u64) {
        for _ in 0..seconds {
            let before: Vec<_> =
                self.reports.lock().unwrap().iter().map(|it| (Arc::clone(it), it.load(Relaxed))).collect();
            until(|| before.iter().all(|(reports, before)| reports.load(Relaxed) != *before)).await;
            sleep(secs(1)).await;
        }
    }
}

/// A worker whose jobs have real threads; its own clock is paused.
pub(crate) struct Blocking {
    pub(crate) store: Store,
    monitor: Monitor,
    pub(crate) jobs: Runtime,
    pub(crate) unblock: Option<mpsc::Sender<()>>,
    pub(crate) ends: JoinHandle<Stopped>,
    /// Of its store.
    pub(crate) faults: Faults,
    /// How many steps have begun that block.
    pub(crate) blocked: Arc<AtomicUsize>,
}

fn worker(slots: usize, limits: Limits) -> Blocking {
    start(slots, limits, |worker| worker.job(Meet(Arc::new(Barrier::new(slots)))))
}

pub(crate) fn start(
    slots: usize,
    limits: Limits,
    with: impl FnOnce(WorkerBuilder) -> WorkerBuilder,
) -> Blocking {
    on_one_clock();
    let threads = slots + spare_slots(slots);
    let jobs =
        tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build().unwrap();
    let (unblock, until) = mpsc::channel();
    let store = memory::store();
    let (own, faults) = Faults::wrap(store.clone());
    let blocked = Arc::new(AtomicUsize::new(0));
    let block = Block(Arc::new(Mutex::new(until)), Arc::clone(&blocked));
    let worker = Worker::builder(own)
        .job(block)
        .limits::<Block>(limits)
        .jobs_on(jobs.handle().clone())
        .settings(Settings { concurrency: slots, ..settings() });
    let worker = with(worker).build().unwrap();
    let (monitor, (stopper, stopping)) = (worker.monitor(), stopping());
    let ends = tokio::spawn(async move {
        let end = worker.run(stopping).await;
        drop(stopper);
        end
    });
    Blocking { store, monitor, jobs, unblock: Some(unblock), ends, faults, blocked }
}

/// Waits for real threads: the paused clock stands still while this is never idle.
#[expect(clippy::disallowed_methods, reason = "their time is not the test's")]
pub(crate) async fn until(is_so: impl Fn() -> bool) {
    let begins = std::time::Instant::now();
    while !is_so() {
        assert!(begins.elapsed() < secs(60), "a minute has passed");
        tokio::task::yield_now().await;
    }
}

impl Blocking {
    /// Ends it, whatever its jobs do.
    pub(crate) fn end(self) {
        self.ends.abort();
        drop(self.unblock);
        self.jobs.shutdown_background();
    }

    pub(crate) async fn send(&self, blocks: bool, count: usize) {
        let jobs = (0..count).map(|_| NewJob::of::<Block>(&blocks).unwrap()).collect();
        Producer::new(self.store.clone()).enqueue(jobs).await.unwrap();
    }

    pub(crate) fn done(&self, layer: &'static str, action: &'static str) -> u64 {
        self.monitor.telemetry().healing_actions.get_or_create(&ByLayer { layer, action }).get()
    }

    /// Whether a job was stopped because it made no progress.
    pub(crate) fn has_stopped_a_job(&self) -> bool {
        self.done("job", "stop_job") > 0
    }

    pub(crate) fn last_drain(&self) -> Option<DrainReport> {
        self.monitor.last_drain()
    }

    /// What a report of the ledger says once all is written.
    async fn figures(&self) -> Summary {
        sleep(secs(5)).await;
        let entries = Ledger::new(self.store.records.clone()).read(0).await.unwrap();
        Summary::of(&entries, &[], 0, unix_millis())
    }

    fn ended(&self, outcome: &'static str) -> u64 {
        self.monitor.telemetry().jobs.get_or_create(&ByOutcome { kind: "block".into(), outcome }).get()
    }
}

fn limits() -> Limits {
    Limits { step_timeout: Some(secs(5)), ..Limits::default() }
}

#[tokio::test(start_paused = true)]
async fn a_slot_whose_thread_does_not_return_is_replaced_until_it_does_and_its_job_is_poisoned_after_three() {
    let mut blocking = worker(8, limits());
    blocking.send(true, 1).await;
    within(secs(600), "the dead letter", async || blocking.ended("dead_lettered") == 1).await;
    let reason = poisoned(&blocking.store).await.remove(0);
    assert_eq!(reason, "a step took longer than its timeout of 5s, and its thread did not return, 3 times");
    within(secs(600), "replacements", async || blocking.done("slot", "replace_slot") == 3).await;
    assert_eq!((blocking.done("slot", "mark_stuck"), blocking.done("worker", "restart")), (3, 0));
    let figures = blocking.figures().await;
    let failures: Vec<_> = figures.failures.iter().map(|group| (group.count, group.poisoned)).collect();
    let mut healed: Vec<_> =
        figures.healings.iter().map(|it| (it.layer.as_str(), it.action.as_str(), it.count)).collect();
    healed.sort_unstable();
    assert_eq!(failures, [(3, 1)], "{figures:?}");
    assert_eq!(healed, [("slot", "mark_stuck", 3), ("slot", "replace_slot", 3)], "{figures:?}");
    // The worker runs as many jobs at once as before.
    let together = (0..8).map(|_| NewJob::of::<Meet>(&()).unwrap()).collect();
    Producer::new(blocking.store.clone()).enqueue(together).await.unwrap();
    emptied(&blocking.store, secs(3_600)).await;
    assert!(!blocking.monitor.is_stuck() && !blocking.ends.is_finished());
    drop(blocking.unblock.take());
    let tasks = || blocking.jobs.metrics().num_alive_tasks();
    within(secs(3_600), "the threads", async || tasks() == 0).await;
    sleep(secs(5)).await;
    assert!(!blocking.ends.is_finished());
    blocking.end();
}

#[tokio::test(start_paused = true)]
async fn a_stuck_slot_is_none_of_those_that_do_without_what_is_away() {
    let cache = Arc::new(Service::default());
    let blocking = start(8, limits(), |worker| {
        // Without it, half of the slots may begin jobs that use it, and as many of these as are stuck later.
        let worker = worker.dependency("cache", cache.clone()).job(Meet(Arc::new(Barrier::new(4))));
        let uses = || Depends::uses(["cache"]);
        worker.depends::<Block>(Depends { without: Some(3), ..uses() }).depends::<Meet>(uses())
    });
    blocking.send(true, 1).await;
    within(secs(600), "replacements", async || blocking.done("slot", "replace_slot") == 3).await;
    cache.set_away(true);
    sleep(secs(20)).await;
    let together = (0..8).map(|_| NewJob::of::<Meet>(&()).unwrap()).collect();
    Producer::new(blocking.store.clone()).enqueue(together).await.unwrap();
    blocking.send(false, 8).await;
    emptied(&blocking.store, secs(600)).await;
    blocking.end();
}

#[tokio::test(start_paused = true)]
async fn a_worker_with_half_of_its_slots_stuck_releases_the_rest_and_ends_without_waiting_for_them() {
    let blocking = worker(4, limits());
    blocking.send(true, 1).await;
    let began = Instant::now();
    let stopped = blocking.ends.await.unwrap();
    assert_eq!((stopped.reason, stopped.abandoned), (StopReason::Stuck, 0));
    // Two stuck slots: the first attempt, its delay, the second, and a minute. The paused clock runs on while the
    // jobs' threads begin.
    assert!((secs(60)..secs(600)).contains(&began.elapsed()), "{:?}", began.elapsed());
    assert_eq!(leased(&blocking.store).await, 0);
    blocking.jobs.shutdown_background();
}

/// Four threads that block, and jobs of a limit of a minute that need a cache.
async fn blocked(cache: &Arc<Service>) -> Blocking {
    let limits = Limits { step_timeout: Some(secs(60)), ..limits() };
    let blocking = start(4, limits, |worker| {
        worker.dependency("cache", cache.clone()).depends::<Block>(Depends::needs(["cache"]))
    });
    sleep(secs(20)).await;
    blocking.send(true, 4).await;
    within(secs(60), "four jobs", async || jobs_of(&blocking).await.len() == 4).await;
    until(|| blocking.blocked.load(Relaxed) >= 4).await;
    blocking
}

/// The jobs that have begun.
pub(crate) async fn jobs_of(blocking: &Blocking) -> Vec<JobId> {
    let reports = blocking.store.roster.reports(secs(60)).await.unwrap();
    let begun = reports.into_iter().flat_map(|report| report.in_flight);
    begun.filter(|job| job.began_unix_ms.is_some()).map(|job| job.job).collect()
}

/// They are asked to yield, without a deadline.
#[tokio::test(start_paused = true)]
async fn threads_that_block_are_stuck_slots_also_where_what_their_jobs_need_goes_away() {
    let cache = Arc::new(Service::default());
    let blocking = blocked(&cache).await;
    cache.set_away(true);
    sleep(secs(60)).await;
    cache.set_away(false);
    ends_as_stuck(blocking).await;
}

#[tokio::test(start_paused = true)]
async fn threads_that_block_are_stuck_slots_also_where_their_jobs_are_cancelled_before_their_limit() {
    let blocking = blocked(&Arc::default()).await;
    for job in jobs_of(&blocking).await {
        cancel(&blocking.store, &job).await;
    }
    ends_as_stuck(blocking).await;
}

#[tokio::test(start_paused = true)]
async fn threads_that_block_are_stuck_slots_also_where_their_leases_are_lost_before_their_limit() {
    let blocking = blocked(&Arc::default()).await;
    blocking.faults.everything(Fault::Fail(ErrorKind::Unavailable));
    sleep(secs(200)).await;
    blocking.faults.clear_all();
    ends_as_stuck(blocking).await;
}

#[tokio::test(start_paused = true)]
async fn a_thread_that_makes_progress_is_no_stuck_slot_until_it_stands_still_however_its_job_was_cut_off() {
    let own = |step_timeout| Limits { stall_after: Some(secs(60)), step_timeout, ..Limits::default() };
    for limits in [own(None), own(Some(secs(86_400)))] {
        for is_cancelled in [true, false] {
            let busy = Busy::default();
            let job = busy.clone();
            let blocking = start(2, Limits::default(), |worker| worker.job(job).limits::<Busy>(limits));
            Producer::new(blocking.store.clone())
                .enqueue(vec![NewJob::of::<Busy>(&()).unwrap()])
                .await
                .unwrap();
            within(secs(60), "the job", async || jobs_of(&blocking).await.len() == 1).await;
            until(|| !busy.reports.lock().unwrap().is_empty()).await;
            if is_cancelled {
                cancel(&blocking.store, &jobs_of(&blocking).await[0]).await;
            } else {
                blocking.faults.everything(Fault::Fail(ErrorKind::Unavailable));
                busy.work_for(200).await;
                blocking.faults.clear_all();
            }
            busy.work_for(300).await;
            assert_eq!(
                (blocking.done("slot", "mark_stuck"), blocking.ends.is_finished()),
                (0, false),
                "{limits:?}"
            );
            let begun = if is_cancelled { 1 } else { 2 };
            assert_eq!(busy.reports.lock().unwrap().len(), begun, "lost or cancelled");
            busy.stands_still.store(true, Relaxed);
            within(secs(600), "the end of the worker", async || blocking.ends.is_finished()).await;
            busy.is_over.store(true, Relaxed);
            assert_eq!(blocking.ends.await.unwrap().reason, StopReason::Stuck);
            blocking.jobs.shutdown_background();
        }
    }
}

async fn ends_as_stuck(blocking: Blocking) {
    within(secs(1_800), "the end of the worker", async || blocking.ends.is_finished()).await;
    assert!(blocking.done("slot", "mark_stuck") >= 2);
    assert_eq!(blocking.ends.await.unwrap().reason, StopReason::Stuck);
    blocking.jobs.shutdown_background();
}

#[tokio::test(start_paused = true)]
async fn a_worker_whose_jobs_may_compute_for_long_is_never_restarted() {
    // No limit, so nothing says that a step takes too long; a drain gives it up nevertheless.
    // Far more than the paused clock is ahead of the jobs' own.
    let patient = Limits { step_timeout: Some(secs(86_400)), ..Limits::default() };
    for limits in [Limits::default(), patient] {
        let mut blocking = worker(2, limits);
        blocking.send(true, 2).await;
        sleep(secs(1_800)).await;
        assert!(!blocking.ends.is_finished());
        assert_eq!((blocking.done("slot", "mark_stuck"), blocking.ended("retried")), (0, 0));
        drop(blocking.unblock.take());
        within(secs(3_600), "both", async || blocking.ended("completed") == 2).await;
        blocking.end();
    }
}
