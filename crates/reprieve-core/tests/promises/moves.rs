//! A job makes progress when its state is another one than the state that was loaded. The same state in
//! another random order is no progress.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use async_trait::async_trait;
use reprieve_core::{BlobName, Job, JobContext, JobError, Step, memory};
use serde::{Deserialize, Serialize};

use crate::support::*;

/// Sorts a list: each step swaps two numbers, and the second step of each delivery fails.
#[derive(Debug)]
struct Sorts;

#[async_trait]
impl Job for Sorts {
    const KIND: &'static str = "sorts";
    type Args = ();
    type Checkpoint = Vec<u32>;
    type Output = Vec<u32>;

    fn begin(&self, (): &()) -> Vec<u32> {
        (0..10).rev().collect()
    }

    async fn step(
        &self,
        cx: &JobContext,
        (): &(),
        mut at: Vec<u32>,
    ) -> Result<Step<Vec<u32>, Vec<u32>>, JobError> {
        tokio::time::sleep(ms(100)).await;
        let Some(n) = (1..at.len()).find(|n| at[n - 1] > at[*n]) else { return Ok(Step::Done(at)) };
        if cx.steps() == 1 {
            return Err(JobError::retry("once in each delivery"));
        }
        at.swap(n - 1, n);
        Ok(Step::Continue(at))
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_only_reorders_its_state_makes_progress() {
    let store = memory::store();
    let id = enqueue_j(&store, Sorts::KIND).await;
    let _worker = start_saving(&store, Sorts);
    emptied(&store, secs(36_000)).await;
    assert_eq!(poisoned(&store).await, [""; 0]);
    let result = BlobName::parse(format!("results/{id}.json")).unwrap();
    assert_eq!(store.blobs.get(&result).await.unwrap().as_deref(), Some(&b"[0,1,2,3,4,5,6,7,8,9]"[..]));
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
    for numbers in [1, 3_000] {
        // Two elements have the same order by chance every other time.
        for _ in 0..8 {
            let (store, job) = (memory::store(), Stays { numbers, deliveries: Arc::default() });
            enqueue_j(&store, Stays::KIND).await;
            while poisoned(&store).await.is_empty() {
                let worker = start_saving(&store, job.clone());
                tokio::time::sleep(secs(1)).await;
                worker.stop().await;
                tokio::time::sleep(secs(600)).await;
            }
            assert_eq!(job.deliveries.load(Relaxed), 5, "beside {numbers} numbers");
        }
    }
}
