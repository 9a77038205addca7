//! A kind at its limit behind the backlog of another one in the same queue, and in front of it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use reprieve_core::memory::{self, Fault, Faults, Op};
use reprieve_core::ports::Store;
use reprieve_core::worker::{Limits, Settings, Worker};
use reprieve_core::{Job, JobContext, JobError, NewJob, Producer, Step};
use tokio::time::{Instant, sleep};

use crate::support::{Running, ms, ready, secs, settings, start_built};

/// Five minutes of work for eight slots.
const BACKLOG: usize = 1_200;
const LIMITED: u32 = 40;

struct Plain;

#[async_trait]
impl Job for Plain {
    const KIND: &'static str = "plain";
    type Args = ();
    type Checkpoint = ();
    type Output = ();

    fn begin(&self, (): &()) {}

    async fn step(&self, _: &JobContext, (): &(), (): ()) -> Result<Step<(), ()>, JobError> {
        sleep(secs(2)).await;
        Ok(Step::Done(()))
    }
}

struct One(Arc<Mutex<usize>>);

#[async_trait]
impl Job for One {
    const KIND: &'static str = "one";
    type Args = u32;
    type Checkpoint = ();
    type Output = ();

    fn begin(&self, _: &u32) {}

    async fn step(&self, _: &JobContext, _: &u32, (): ()) -> Result<Step<(), ()>, JobError> {
        *self.0.lock().unwrap() += 1;
        sleep(secs(2)).await;
        Ok(Step::Done(()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_becomes_free_does_not_wait_for_the_backlog_of_another_kind() {
    for limits in [
        Limits { in_fleet: Some(1), ..Limits::default() },
        Limits { per_worker: Some(1), ..Limits::default() },
    ] {
        let (store, runs) = (memory::store(), Arc::new(Mutex::new(0)));
        let producer = Producer::new(store.clone());
        let plain = |count| vec![NewJob::of::<Plain>(&()).unwrap(); count];
        producer.enqueue(plain(BACKLOG)).await.unwrap();
        let limited = (0..LIMITED).map(|n| NewJob::of::<One>(&n).unwrap()).collect();
        producer.enqueue(limited).await.unwrap();
        let worker = Worker::builder(store.clone()).settings(Settings { concurrency: 8, ..settings() });
        let _worker = start_built(worker.job(Plain).job(One(Arc::clone(&runs))).limits::<One>(limits));
        let start = Instant::now();
        while *runs.lock().unwrap() < LIMITED as usize {
            let ready = usize::try_from(ready(&store).await).unwrap();
            if ready < BACKLOG {
                producer.enqueue(plain(BACKLOG - ready)).await.unwrap();
            }
            sleep(secs(5)).await;
            let runs = *runs.lock().unwrap();
            assert!(start.elapsed() < secs(800), "{limits:?}: {runs} of {LIMITED} have begun");
        }
    }
}

/// A job of no time at all, which notes when it began.
struct Noted(Arc<Mutex<Vec<(u64, Instant)>>>);

#[async_trait]
impl Job for Noted {
    const KIND: &'static str = "noted";
    type Args = u64;
    type Checkpoint = ();
    type Output = ();

    fn begin(&self, _: &u64) {}

    async fn step(&self, _: &JobContext, number: &u64, (): ()) -> Result<Step<(), ()>, JobError> {
        self.0.lock().unwrap().push((*number, Instant::now()));
        Ok(Step::Done(()))
    }
}

fn one_in_fleet() -> Limits {
    Limits { in_fleet: Some(1), ..Limits::default() }
}

/// A worker of so many slots whose calls to the store take this long.
fn start_slow(
    store: &Store,
    begun: &Arc<Mutex<Vec<(u64, Instant)>>>,
    slots: usize,
    call: Duration,
) -> Running {
    let (slow, faults) = Faults::wrap(store.clone());
    for op in Op::ALL {
        faults.every_call(op, Fault::Delay(call));
    }
    let worker = Worker::builder(slow).settings(Settings { concurrency: slots, ..settings() });
    let worker = worker.job(Noted(Arc::clone(begun))).job(One(Arc::default()));
    start_built(worker.limits::<One>(one_in_fleet()))
}

#[tokio::test(start_paused = true)]
async fn another_kind_is_not_held_up_where_more_jobs_of_a_limited_kind_arrive_than_may_run() {
    for (per_second, seconds, slots, call) in
        [(25, 200, 8, ms(0)), (100, 60, 8, ms(10)), (50, 120, 2, ms(10))]
    {
        let (store, begun) = (memory::store(), Arc::<Mutex<Vec<_>>>::default());
        let producer = Producer::new(store.clone());
        let _worker = start_slow(&store, &begun, slots, call);
        let start = Instant::now();
        for second in 0..seconds {
            let limited = (0..per_second).map(|n| NewJob::of::<One>(&n).unwrap());
            producer.enqueue(limited.collect()).await.unwrap();
            producer.enqueue(vec![NewJob::of::<Noted>(&second).unwrap()]).await.unwrap();
            sleep(secs(1)).await;
        }
        sleep(secs(15)).await;
        let begun = begun.lock().unwrap();
        let late = |(second, at): &(u64, Instant)| at.saturating_duration_since(start + secs(*second));
        let latest = begun.iter().map(late).max().unwrap();
        println!("{per_second} a second, {slots} slots: {} of {seconds} began, {latest:?} late", begun.len());
        assert!(begun.len() as u64 == seconds && latest < secs(15), "{} began, {latest:?}", begun.len());
    }
}

#[tokio::test(start_paused = true)]
async fn another_kind_is_reached_behind_a_large_backlog_of_a_limited_one_at_a_bounded_number_of_returns() {
    for (in_front, received_before, slots, call) in
        [(6_000, false, 8, ms(0)), (3_000, false, 2, ms(10)), (3_000, true, 8, ms(10))]
    {
        let (store, begun) = (memory::store(), Arc::<Mutex<Vec<_>>>::default());
        let producer = Producer::new(store.clone());
        producer.enqueue((0..in_front).map(|n| NewJob::of::<One>(&n).unwrap()).collect()).await.unwrap();
        if received_before {
            // By a worker that is gone.
            while !store.queue.receive(32, secs(1)).await.unwrap().is_empty() {}
            sleep(secs(2)).await;
        }
        producer.enqueue(vec![NewJob::of::<Noted>(&0).unwrap()]).await.unwrap();
        let _worker = start_slow(&store, &begun, slots, call);
        let start = Instant::now();
        while begun.lock().unwrap().is_empty() {
            assert!(start.elapsed() < secs(60), "{slots} slots: {} are ready", ready(&store).await);
            sleep(secs(1)).await;
        }
        println!("{in_front} in front, {slots} slots: {:?}", start.elapsed());
        // 300 a second at the most, and as many at once.
        assert!(start.elapsed() > secs(u64::from(in_front) / 300 - 2), "{:?}", start.elapsed());
    }
}
