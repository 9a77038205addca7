//! A job whose state has a new shape continues from a checkpoint of the old one.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use reprieve_core::memory;
use reprieve_core::{Job, JobContext, JobError, OldState, Step};
use serde::{Deserialize, Serialize};

use crate::support::*;

/// Version 1 counts steps; its state is a number.
#[derive(Debug)]
struct First;

#[async_trait]
impl Job for First {
    const KIND: &'static str = "grows";
    type Args = ();
    type Checkpoint = u32;
    type Output = ();

    fn begin(&self, (): &()) -> u32 {
        0
    }

    async fn step(&self, _: &JobContext, (): &(), at: u32) -> Result<Step<u32, ()>, JobError> {
        tokio::time::sleep(secs(1)).await;
        Ok(if at == 60 { Step::Done(()) } else { Step::Continue(at + 1) })
    }
}

/// Version 2 has a name for the number, and another field.
#[derive(Debug, Clone, Default)]
struct Second {
    resumed_at: Arc<Mutex<Vec<At>>>,
    migrated_from: Arc<AtomicU32>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct At {
    steps: u32,
    best: f64,
}

static MIGRATED_FROM: AtomicU32 = AtomicU32::new(0);

#[async_trait]
impl Job for Second {
    const KIND: &'static str = "grows";
    const SCHEMA: u32 = 2;
    type Args = ();
    type Checkpoint = At;
    type Output = ();

    fn begin(&self, (): &()) -> At {
        At { steps: 0, best: f64::INFINITY }
    }

    fn migrate(from: u32, old: OldState) -> Result<At, JobError> {
        MIGRATED_FROM.store(from, Relaxed);
        Ok(At { steps: old.read()?, best: f64::INFINITY })
    }

    async fn step(&self, cx: &JobContext, (): &(), mut at: At) -> Result<Step<At, ()>, JobError> {
        if cx.steps() == 0 {
            self.resumed_at.lock().unwrap().push(at.clone());
            self.migrated_from.store(MIGRATED_FROM.swap(0, Relaxed), Relaxed);
        }
        tokio::time::sleep(secs(1)).await;
        at.steps += 1;
        Ok(if at.steps >= 60 { Step::Done(()) } else { Step::Continue(at) })
    }
}

/// Version 2 as somebody forgot to migrate: the state does not fit, and the default can't convert it.
#[derive(Debug)]
struct Forgotten;

#[async_trait]
impl Job for Forgotten {
    const KIND: &'static str = "grows";
    const SCHEMA: u32 = 2;
    type Args = ();
    type Checkpoint = At;
    type Output = ();

    fn begin(&self, (): &()) -> At {
        At { steps: 0, best: 0.0 }
    }

    async fn step(&self, _: &JobContext, (): &(), at: At) -> Result<Step<At, ()>, JobError> {
        unreachable!("no step sees {at:?}")
    }
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_of_the_old_shape_is_converted_once_and_saved_in_the_new_one() {
    let (store, job) = (memory::store(), Second::default());
    enqueue_j(&store, First::KIND).await;
    let old = start_job(&store, First);
    tokio::time::sleep(ms(10_500)).await;
    assert_eq!(old.evict(secs(30)).await.released_saved, 1);
    old.kill().await;
    for (delivery, migrated_from) in [(1, 1), (2, 0)] {
        let new = start_job(&store, job.clone());
        within(secs(200), "a delivery", async || job.resumed_at.lock().unwrap().len() == delivery).await;
        assert_eq!(job.migrated_from.load(Relaxed), migrated_from);
        tokio::time::sleep(ms(10_500)).await;
        new.kill().await;
    }
    let resumed = job.resumed_at.lock().unwrap().clone();
    assert_eq!(resumed[0], At { steps: 11, best: f64::INFINITY });
    assert!(resumed[1].steps > 11, "{resumed:?}");
    let _last = start_job(&store, job);
    emptied(&store, secs(200)).await;
    assert_eq!(poisoned(&store).await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_state_that_cannot_be_converted_waits_for_a_worker_that_can() {
    let (store, job) = (memory::store(), Second::default());
    enqueue_j(&store, First::KIND).await;
    let old = start_job(&store, First);
    tokio::time::sleep(ms(10_500)).await;
    assert_eq!(old.evict(secs(30)).await.released_saved, 1);
    old.kill().await;
    let forgotten = start_job(&store, Forgotten);
    tokio::time::sleep(secs(20)).await;
    forgotten.kill().await;
    let _new = start_job(&store, job.clone());
    emptied(&store, secs(600)).await;
    assert_eq!(job.resumed_at.lock().unwrap()[0].steps, 11, "no progress was lost");
    assert_eq!(poisoned(&store).await, Vec::<String>::new());
}

/// Version 2 with a state that can't be read again as long as its list is empty, as it is at first.
#[derive(Debug, Clone, Default)]
struct Omits {
    /// The state at the beginning of each step.
    began: Arc<Mutex<Vec<u32>>>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Listed {
    steps: u32,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    done: Vec<u32>,
}

#[async_trait]
impl Job for Omits {
    const KIND: &'static str = "grows";
    const SCHEMA: u32 = 2;
    type Args = ();
    type Checkpoint = Listed;
    type Output = ();

    fn begin(&self, (): &()) -> Listed {
        Listed { steps: 0, done: Vec::new() }
    }

    fn migrate(_: u32, old: OldState) -> Result<Listed, JobError> {
        Ok(Listed { steps: old.read()?, done: Vec::new() })
    }

    async fn step(&self, cx: &JobContext, (): &(), mut at: Listed) -> Result<Step<Listed, ()>, JobError> {
        self.began.lock().unwrap().push(at.steps);
        tokio::select! {
            () = cx.interrupted() => return Ok(Step::Continue(at)),
            () = tokio::time::sleep(secs(1)) => {}
        }
        at.done.push(at.steps);
        at.steps += 1;
        Ok(if at.steps >= 20 { Step::Done(()) } else { Step::Continue(at) })
    }
}

#[tokio::test(start_paused = true)]
async fn an_eviction_in_the_first_step_after_a_conversion_costs_no_progress() {
    let (store, job) = (memory::store(), Omits::default());
    enqueue_j(&store, First::KIND).await;
    let old = start_job(&store, First);
    tokio::time::sleep(ms(10_500)).await;
    assert_eq!(old.evict(secs(30)).await.released_saved, 1);
    old.kill().await;
    let new = start_job(&store, job.clone());
    within(secs(100), "a step", async || !job.began.lock().unwrap().is_empty()).await;
    new.evict(secs(30)).await;
    new.kill().await;
    let _again = start_job(&store, job.clone());
    emptied(&store, secs(600)).await;
    assert_eq!(poisoned(&store).await, Vec::<String>::new());
    assert_eq!(job.began.lock().unwrap()[..3], [11, 11, 12]);
}
