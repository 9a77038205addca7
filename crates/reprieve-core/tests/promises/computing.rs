//! Turns to compute: as many as the machine has cores.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use reprieve_core::worker::Limits;
use reprieve_core::{Job, JobContext, JobError, NewJob, Producer, Step};
use tokio::task::yield_now;
use tokio::time::sleep;

use crate::stuck::{jobs_of, start, until};
use crate::support::*;

/// Computes until it is let go, or for an instant.
#[derive(Clone)]
struct Compute<const SHORT: bool>(Arc<Mutex<mpsc::Receiver<()>>>, Arc<AtomicUsize>);

#[async_trait::async_trait]
impl<const SHORT: bool> Job for Compute<SHORT> {
    const KIND: &'static str = if SHORT { "short" } else { "long" };
    type Args = ();
    type Checkpoint = ();
    type Output = ();

    fn begin(&self, (): &()) {}

    async fn step(&self, cx: &JobContext, (): &(), (): ()) -> Result<Step<(), ()>, JobError> {
        let Self(leave, begun) = self.clone();
        cx.compute(move || {
            begun.fetch_add(1, Relaxed);
            if !SHORT {
                let _is_gone = leave.lock().unwrap().recv();
            }
        })
        .await;
        Ok(Step::Done(()))
    }
}

/// Waits for a second computation before it goes on with a first one, which waits for leave.
#[derive(Clone)]
struct Pair {
    leave: Arc<Mutex<mpsc::Receiver<()>>>,
    waiting: Arc<AtomicUsize>,
    done: Arc<AtomicUsize>,
}

#[async_trait::async_trait]
impl Job for Pair {
    const KIND: &'static str = "pair";
    type Args = ();
    type Checkpoint = ();
    type Output = ();

    fn begin(&self, (): &()) {}

    async fn step(&self, cx: &JobContext, (): &(), (): ()) -> Result<Step<(), ()>, JobError> {
        let leave = Arc::clone(&self.leave);
        let mut first = pin!(cx.compute(move || {
            let _is_gone = leave.lock().unwrap().recv();
        }));
        tokio::select! {
            biased;
            () = &mut first => panic!("it has no leave yet"),
            () = yield_now() => {}
        }
        self.waiting.fetch_add(1, Relaxed);
        cx.compute(|| ()).await;
        first.await;
        self.done.fetch_add(1, Relaxed);
        Ok(Step::Done(()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_waits_for_its_turn_to_compute_does_not_stand_still() {
    let turns = thread::available_parallelism().unwrap().get();
    let (leave, until_leave) = mpsc::channel();
    let (until_leave, begun) = (Arc::new(Mutex::new(until_leave)), Arc::new(AtomicUsize::new(0)));
    let long = Compute::<false>(Arc::clone(&until_leave), Arc::clone(&begun));
    let short = Compute::<true>(until_leave, Arc::clone(&begun));
    let blocking = start(2 * turns, Limits::default(), |worker| {
        let limits = Limits { stall_after: Some(secs(10)), ..Limits::default() };
        worker.job(long).job(short).limits::<Compute<true>>(limits)
    });
    let enqueue = async |job: NewJob| {
        Producer::new(blocking.store.clone()).enqueue(vec![job; turns]).await.unwrap();
    };
    enqueue(NewJob::of::<Compute<false>>(&()).unwrap()).await;
    within(secs(60), "the first jobs", async || jobs_of(&blocking).await.len() == turns).await;
    until(|| begun.load(Relaxed) == turns).await;
    enqueue(NewJob::of::<Compute<true>>(&()).unwrap()).await;
    within(secs(60), "the others", async || jobs_of(&blocking).await.len() == 2 * turns).await;
    // Their threads have another clock, by which they show that they are there; without that it counts for an hour.
    sleep(secs(3_000)).await;
    assert!(!blocking.has_stopped_a_job());
    assert_eq!(begun.load(Relaxed), turns);
    drop(leave);
    emptied(&blocking.store, secs(600)).await;
    assert_eq!((begun.load(Relaxed), poisoned(&blocking.store).await.len()), (2 * turns, 0));
    blocking.end();
}

/// It has its turn, or comes to it, while nothing polls it.
#[tokio::test(start_paused = true)]
async fn a_computation_that_its_step_does_not_wait_for_yet_takes_no_turn_from_others_when_it_has_ended() {
    let jobs = 2 * thread::available_parallelism().unwrap().get();
    let (leave, until_leave) = mpsc::channel();
    let leaves = Arc::new(Mutex::new(until_leave));
    let job = Pair { leave: leaves, waiting: Arc::default(), done: Arc::default() };
    let pair = job.clone();
    let blocking = start(jobs, Limits::default(), |worker| worker.job(pair));
    let all = vec![NewJob::of::<Pair>(&()).unwrap(); jobs];
    Producer::new(blocking.store.clone()).enqueue(all).await.unwrap();
    within(secs(60), "all", async || jobs_of(&blocking).await.len() == jobs).await;
    until(|| job.waiting.load(Relaxed) == jobs).await;
    drop(leave);
    until(|| job.done.load(Relaxed) == jobs).await;
    blocking.end();
}
