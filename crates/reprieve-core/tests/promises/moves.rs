//! A job makes progress when its state is another one than the state that was loaded. The same state in
//! another order is no progress.

use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, HashSet};
use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use async_trait::async_trait;
use reprieve_core::ports::Store;
use reprieve_core::{Job, JobContext, JobError, Step, memory};
use serde::{Deserialize, Serialize};

use crate::support::*;

/// Runs until the job is dead-lettered, a worker for each delivery; returns the number of deliveries.
async fn deliveries<J: Job + Clone>(store: &Store, job: &J, count: &AtomicU32) -> u32 {
    while poisoned(store).await.is_empty() {
        assert!(count.load(Relaxed) < 40, "it does not end");
        let worker = start_saving(store, job.clone());
        tokio::time::sleep(secs(1)).await;
        worker.stop().await;
        tokio::time::sleep(secs(600)).await;
    }
    count.load(Relaxed)
}

/// Makes no progress: each step makes a set with hashing anew, beside this many numbers.
#[derive(Debug, Clone)]
struct Stays {
    numbers: u64,
    deliveries: Arc<AtomicU32>,
}

#[derive(Debug, Serialize, Deserialize)]
struct State {
    numbers: Vec<u64>,
    tags: HashSet<String>,
}

#[async_trait]
impl Job for Stays {
    const KIND: &'static str = "stays";
    type Args = ();
    type Checkpoint = State;
    type Output = ();

    fn begin(&self, (): &()) -> State {
        let numbers = (0..self.numbers).map(|number| number << 32).collect();
        State { numbers, tags: ["a".to_owned(), "b".to_owned()].into() }
    }

    async fn step(&self, cx: &JobContext, (): &(), at: State) -> Result<Step<State, ()>, JobError> {
        tokio::time::sleep(ms(100)).await;
        if cx.steps() == 0 {
            self.deliveries.fetch_add(1, Relaxed);
        }
        if cx.steps() == 3 {
            return Err(JobError::retry("always"));
        }
        let State { numbers, tags } = at;
        Ok(Step::Continue(State { numbers, tags: tags.into_iter().collect() }))
    }
}

#[tokio::test(start_paused = true)]
async fn a_set_in_another_order_is_no_progress_at_any_size() {
    for (numbers, trials) in [(1, 8), (3_000, 8), (60_000, 2)] {
        // Two elements have the same order by chance every other time.
        for _ in 0..trials {
            let (store, job) = (memory::store(), Stays { numbers, deliveries: Arc::default() });
            enqueue_j(&store, Stays::KIND).await;
            assert_eq!(deliveries(&store, &job, &job.deliveries).await, 5, "beside {numbers} numbers");
        }
    }
}

/// A map with the same hasher in every process. Its order depends on what it had room for.
type Fixed = HashMap<u64, u64, BuildHasherDefault<DefaultHasher>>;

/// Makes no progress: each step puts entries into a map and takes them out again.
#[derive(Debug, Clone)]
struct FixedHasher(Arc<AtomicU32>);

#[async_trait]
impl Job for FixedHasher {
    const KIND: &'static str = "fixed-hasher";
    type Args = ();
    type Checkpoint = Fixed;
    type Output = ();

    fn begin(&self, (): &()) -> Fixed {
        (0..10).map(|n| (n, n)).collect()
    }

    async fn step(&self, cx: &JobContext, (): &(), mut at: Fixed) -> Result<Step<Fixed, ()>, JobError> {
        tokio::time::sleep(ms(100)).await;
        if cx.steps() == 0 {
            self.0.fetch_add(1, Relaxed);
        }
        if cx.steps() == 3 {
            return Err(JobError::retry("always"));
        }
        at.extend((1_000..2_000).map(|n| (n, n)));
        at.retain(|key, _| *key < 1_000);
        Ok(Step::Continue(at))
    }
}

#[tokio::test(start_paused = true)]
async fn a_map_with_a_fixed_hasher_in_another_order_is_no_progress() {
    let (store, job) = (memory::store(), FixedHasher(Arc::default()));
    enqueue_j(&store, FixedHasher::KIND).await;
    assert_eq!(deliveries(&store, &job, &job.0).await, 5);
}
