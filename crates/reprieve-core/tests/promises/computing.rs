//! Turns to compute: as many as the machine has cores.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use futures_util::future::join_all;
use reprieve_core::memory;
use reprieve_core::worker::{Limits, Settings, Worker};
use reprieve_core::{Job, JobContext, JobError, NewJob, Producer, Step};
use serde::Serialize;
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::sleep;

use crate::stuck::{Blocking, jobs_of, start, until};
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

/// Computes so many things at once, which all wait for leave.
#[derive(Clone)]
struct Many(Compute<false>);

#[async_trait::async_trait]
impl Job for Many {
    const KIND: &'static str = "many";
    type Args = usize;
    type Checkpoint = ();
    type Output = ();

    fn begin(&self, _: &usize) {}

    async fn step(&self, cx: &JobContext, count: &usize, (): ()) -> Result<Step<(), ()>, JobError> {
        join_all((0..*count).map(|_| self.0.step(cx, &(), ()))).await;
        Ok(Step::Done(()))
    }
}

async fn send<J: Job>(blocking: &Blocking, args: &J::Args, count: usize)
where
    J::Args: Serialize,
{
    let all = vec![NewJob::of::<J>(args).unwrap(); count];
    Producer::new(blocking.store.clone()).enqueue(all).await.unwrap();
}

/// Jobs that compute for long, jobs that compute for an instant, and the leave of the former.
fn long_and_short() -> (Compute<false>, Compute<true>, mpsc::Sender<()>) {
    let (leave, until_leave) = mpsc::channel();
    let (until_leave, begun) = (Arc::new(Mutex::new(until_leave)), Arc::new(AtomicUsize::new(0)));
    (Compute(Arc::clone(&until_leave), Arc::clone(&begun)), Compute(until_leave, begun), leave)
}

#[tokio::test(start_paused = true)]
async fn steps_that_time_out_begin_nothing_that_waited_and_others_compute_in_their_place_soon() {
    let turns = thread::available_parallelism().unwrap().get();
    let (long, short, leave) = long_and_short();
    let begun = Arc::clone(&long.1);
    let limits = Limits { step_timeout: Some(secs(5)), attempts: 1, ..Limits::default() };
    let blocking = start(4 * turns, Limits::default(), |worker| {
        worker.job(Many(long)).limits::<Many>(limits).job(short)
    });
    send::<Many>(&blocking, &30, 2 * turns).await;
    until(|| begun.load(Relaxed) == turns).await;
    within(secs(60), "the timeouts", async || poisoned(&blocking.store).await.len() == 2 * turns).await;
    assert_eq!(begun.load(Relaxed), turns);
    send::<Compute<true>>(&blocking, &(), 10).await;
    emptied(&blocking.store, secs(60)).await;
    assert_eq!(begun.load(Relaxed), turns + 10);
    drop(leave);
    blocking.end();
}

/// Those that wait for the turns of others are stopped when they have got them.
#[tokio::test(start_paused = true)]
async fn a_job_that_waits_for_a_turn_while_its_own_work_does_not_return_stands_still() {
    let turns = thread::available_parallelism().unwrap().get();
    for (jobs, count) in [(1, turns + 1), (2 * turns, 2)] {
        let (long, short, leave) = long_and_short();
        let limits = Limits { stall_after: Some(secs(10)), attempts: 1, ..Limits::default() };
        let blocking = start(8 * turns, Limits::default(), |worker| {
            worker.job(Many(long)).limits::<Many>(limits).job(short)
        });
        send::<Many>(&blocking, &count, jobs).await;
        within(secs(120), "the ends", async || poisoned(&blocking.store).await.len() == jobs).await;
        send::<Compute<true>>(&blocking, &(), 10).await;
        emptied(&blocking.store, secs(60)).await;
        drop(leave);
        blocking.end();
    }
}

/// No machine has room for the stack of a thread of this runtime. Its jobs run on a thread that it did not make.
#[tokio::test(start_paused = true)]
async fn a_machine_without_a_thread_for_a_computation_fails_that_job_and_no_other() {
    on_one_clock();
    let jobs = Builder::new_current_thread().thread_stack_size(1 << 60).enable_all().build().unwrap();
    let (handle, (ends, until_end)) = (jobs.handle().clone(), oneshot::channel::<()>());
    let thread = thread::spawn(move || jobs.block_on(until_end));
    let (_, short, _leave) = long_and_short();
    let store = memory::store();
    let limits = Limits { attempts: 2, ..Limits::default() };
    let worker = Worker::builder(store.clone()).job(short).limits::<Compute<true>>(limits);
    let (worker, plain) = (worker.jobs_on(handle), Steps::default());
    let worker = start_built(worker.job(plain).settings(Settings { concurrency: 8, ..settings() }));
    let all = vec![NewJob::of::<Compute<true>>(&()).unwrap(); 4];
    Producer::new(store.clone()).enqueue(all).await.unwrap();
    enqueue(&store, &[Plan::new(3, 10)]).await;
    emptied(&store, secs(3_600)).await;
    let reasons = poisoned(&store).await;
    assert_eq!(reasons.len(), 4);
    for reason in reasons {
        assert!(reason.contains("the job panicked: OS can't spawn worker thread"), "{reason}");
    }
    worker.stop().await;
    drop(ends);
    assert!(thread.join().unwrap().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_job_that_waits_for_its_turn_to_compute_does_not_stand_still() {
    let turns = thread::available_parallelism().unwrap().get();
    let (long, short, leave) = long_and_short();
    let begun = Arc::clone(&long.1);
    let blocking = start(2 * turns, Limits::default(), |worker| {
        let limits = Limits { stall_after: Some(secs(10)), ..Limits::default() };
        worker.job(long).job(short).limits::<Compute<true>>(limits)
    });
    send::<Compute<false>>(&blocking, &(), turns).await;
    within(secs(60), "the first jobs", async || jobs_of(&blocking).await.len() == turns).await;
    until(|| begun.load(Relaxed) == turns).await;
    send::<Compute<true>>(&blocking, &(), turns).await;
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
    send::<Pair>(&blocking, &(), jobs).await;
    within(secs(60), "all", async || jobs_of(&blocking).await.len() == jobs).await;
    until(|| job.waiting.load(Relaxed) == jobs).await;
    drop(leave);
    until(|| job.done.load(Relaxed) == jobs).await;
    blocking.end();
}
