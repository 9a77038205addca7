//! A kind at its limit behind the backlog of another one in the same queue.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use reprieve_core::memory;
use reprieve_core::worker::{Limits, Settings, Worker};
use reprieve_core::{Job, JobContext, JobError, NewJob, Producer, Step};
use tokio::time::{Instant, sleep};

use crate::support::{ready, secs, settings, start_built};

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
