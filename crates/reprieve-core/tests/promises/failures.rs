//! Failures of the job itself: it is retried with growing delays, then dead-lettered with the
//! reason.

use std::collections::{BTreeMap, HashMap};
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use async_trait::async_trait;
use reprieve_core::memory::{self, Fault, Faults, Op};
use reprieve_core::telemetry::ByOutcome;
use reprieve_core::{BlobName, ErrorKind, Job, JobContext, JobError, Step};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::support::*;

/// Returns the number of the job's deliveries with this end, by the worker's metrics.
fn ended(worker: &Running, outcome: &'static str) -> u64 {
    worker.monitor.telemetry().jobs.get_or_create(&ByOutcome { kind: "steps".into(), outcome }).get()
}

#[tokio::test(start_paused = true)]
async fn a_job_that_fails_is_tried_five_times_and_then_kept_with_the_reason() {
    for (habit, reason) in
        [(Habit::FailsAt(0), "not today"), (Habit::PanicsAt(0), "panicked: step 0 is cursed")]
    {
        let (store, job) = (memory::store(), Steps::default());
        enqueue(&store, &[Plan::new(2, 10).habit(habit)]).await;
        let began = Instant::now();
        let worker = start(&store, &job);
        emptied(&store, secs(600)).await;
        assert_eq!((ended(&worker, "retried"), ended(&worker, "dead_lettered")), (4, 1), "{habit:?}");
        // 1 + 4 + 16 + 64 s between the attempts, plus up to 50 %.
        assert!((secs(85)..secs(160)).contains(&began.elapsed()), "{habit:?} took {:?}", began.elapsed());
        let reasons = poisoned(&store).await;
        assert!(reasons.len() == 1 && reasons[0].contains(reason), "{reasons:?}");
        worker.stop().await;
    }
}

/// The second delivery saves the steps before the failure, which counts as movement; from there on
/// the limit counts.
#[tokio::test(start_paused = true)]
async fn a_job_that_always_fails_at_a_later_step_is_kept_too() {
    for step in [1, 7, 30] {
        let (store, job) = (memory::store(), Steps::default());
        let ids = enqueue(&store, &[Plan::new(40, 100).habit(Habit::FailsAt(step))]).await;
        let worker = start(&store, &job);
        emptied(&store, secs(900)).await;
        assert_eq!((ended(&worker, "retried"), ended(&worker, "dead_lettered")), (5, 1), "at step {step}");
        let redone = job.trace.steps(&ids[0]).len() - usize::try_from(step).unwrap();
        assert_eq!(
            redone,
            usize::try_from(step).unwrap(),
            "what was not saved is done once more, and then saved"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_fatal_failure_is_not_tried_again() {
    let (store, job) = (memory::store(), Steps::default());
    let ids = enqueue(&store, &[Plan::new(3, 10).habit(Habit::FatalAt(2))]).await;
    let _worker = start(&store, &job);
    emptied(&store, secs(15)).await;
    assert_eq!((job.trace.steps(&ids[0]).len(), poisoned(&store).await), (2, vec!["never".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn a_panic_affects_no_other_job() {
    let (store, job) = (memory::store(), Steps::default());
    let ids = enqueue(&store, &[Plan::new(2, 10).habit(Habit::PanicsAt(0)), Plan::new(30, 100)]).await;
    let _worker = start(&store, &job);
    within(secs(15), "the other job's end", async || job.trace.steps(&ids[1]).len() == 30).await;
    assert_eq!(job.trace.redone(), 0);
}

#[tokio::test(start_paused = true)]
async fn failures_and_interruptions_are_counted_apart() {
    let (store, job) = (memory::store(), Steps::default());
    enqueue(&store, &[Plan::new(50, 400).habit(Habit::FailsAt(30))]).await;
    // Six interruptions on the way to the failing step, more than the limit of five failures.
    for _ in 0..6 {
        let worker = start(&store, &job);
        tokio::time::sleep(secs(2)).await;
        worker.evict(secs(30)).await;
        worker.kill().await;
    }
    assert_eq!(poisoned(&store).await, Vec::<String>::new());
    let _worker = start(&store, &job);
    within(secs(900), "the poison queue", async || poisoned(&store).await.len() == 1).await;
    assert!(poisoned(&store).await[0].contains("failed too often"));
}

#[tokio::test(start_paused = true)]
async fn a_blob_store_that_is_down_for_an_hour_fails_no_job() {
    let (inner, job) = (memory::store(), Steps::default());
    let (store, faults) = Faults::wrap(inner.clone());
    let ids = enqueue(&inner, &[Plan::new(1, 10).habit(Habit::Publishes)]).await;
    for kind in [ErrorKind::Unavailable, ErrorKind::TimedOut] {
        faults.every_call(Op::Put, Fault::Fail(kind));
        let worker = start(&store, &job);
        tokio::time::sleep(secs(1_800)).await;
        assert_eq!((leased(&inner).await, poisoned(&inner).await.len()), (1, 0), "the job waits in its step");
        worker.evict(secs(30)).await;
        worker.kill().await;
    }
    faults.clear_all();
    let _worker = start(&store, &job);
    emptied(&inner, secs(15)).await;
    assert_eq!(poisoned(&inner).await, Vec::<String>::new());
    let output = BlobName::parse(format!("out/{}/0", ids[0])).unwrap();
    assert!(inner.blobs.get(&output).await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn failures_that_heal_at_one_retry_poison_no_job_however_many_there_are() {
    // A 503 once an hour, and a 429 every half minute.
    for (steps, step_ms, every) in [(1_300, 20_000, 180), (600, 1_000, 30)] {
        let (store, job) = (memory::store(), Steps::default());
        let ids = enqueue(&store, &[Plan::new(steps, step_ms).habit(Habit::FailsOnceEvery(every))]).await;
        let worker = start(&store, &job);
        emptied(&store, secs(40_000)).await;
        assert_eq!(poisoned(&store).await, Vec::<String>::new(), "every {every} steps");
        assert_eq!(ended(&worker, "retried"), u64::from(steps / every));
        // Each failure repeats only the unsaved steps, once.
        let redone = job.trace.steps(&ids[0]).len() - usize::try_from(steps).unwrap();
        assert!(redone <= usize::try_from(steps / every * 5).unwrap(), "{redone} steps redone");
    }
}

/// A job with a map as its state. The first step of a delivery changes nothing, and the second one fails.
#[derive(Debug)]
struct Stands<M> {
    deliveries: Arc<AtomicU32>,
    map: PhantomData<fn() -> M>,
}

#[async_trait]
impl<M> Job for Stands<M>
where
    M: FromIterator<(u32, u32)> + Serialize + DeserializeOwned + Send + Sync + 'static,
{
    const KIND: &'static str = "stands";
    type Args = ();
    type Checkpoint = M;
    type Output = ();

    fn begin(&self, (): &()) -> M {
        (0..40).map(|number| (number, number)).collect()
    }

    async fn step(&self, cx: &JobContext, (): &(), at: M) -> Result<Step<M, ()>, JobError> {
        if cx.steps() == 0 {
            self.deliveries.fetch_add(1, Relaxed);
            return Ok(Step::Continue(at));
        }
        Err(JobError::retry("always"))
    }
}

/// Runs it for an hour; returns its deliveries and the reasons in the poison queue.
async fn an_hour_of<M>() -> (u32, Vec<String>)
where
    Stands<M>: Job,
{
    let (store, deliveries) = (memory::store(), Arc::<AtomicU32>::default());
    enqueue_j(&store, Stands::<M>::KIND).await;
    let _worker = start_job(&store, Stands::<M> { deliveries: deliveries.clone(), map: PhantomData });
    tokio::time::sleep(secs(3_600)).await;
    (deliveries.load(Relaxed), poisoned(&store).await)
}

/// A map with hashing has another order whenever it is loaded.
#[tokio::test(start_paused = true)]
async fn a_job_that_never_moves_is_kept_whatever_the_order_of_its_map() {
    let (tree, hashing) = (an_hour_of::<BTreeMap<u32, u32>>().await, an_hour_of::<HashMap<u32, u32>>().await);
    assert_eq!(tree.1.len(), 1, "{tree:?}");
    assert_eq!(hashing, tree);
}
