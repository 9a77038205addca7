//! States with the same short checksum: all data of one length that end with their own CRC-32, as many
//! formats do, have the same CRC-32. And states that are equal in another order.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use reprieve_core::checkpoint::CheckpointEvery;
use reprieve_core::memory;
use reprieve_core::ports::Payload;
use reprieve_core::record::Place;
use reprieve_core::worker::Settings;
use reprieve_core::{Bytes, Job, JobContext, JobError, Step};

use crate::support::*;

/// A snapshot of `length` bytes, followed by its CRC-32.
fn snapshot(step: u32, length: usize) -> Bytes {
    let mut bytes = step.to_le_bytes().to_vec();
    bytes.resize(length, step.to_le_bytes()[0]);
    bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
    bytes.into()
}

fn step_of(at: &Bytes) -> u32 {
    u32::from_le_bytes(at[..4].try_into().unwrap())
}

/// A job with such states and an attachment with the step's number.
#[derive(Debug, Clone, Default)]
struct Snapshots {
    steps: u32,
    length: usize,
    /// Fails once at each of these steps.
    fails_every: Option<u32>,
    failed: Arc<Mutex<BTreeSet<u32>>>,
    ran: Arc<AtomicU32>,
    mixed: Arc<AtomicU32>,
}

#[async_trait]
impl Job for Snapshots {
    const KIND: &'static str = "snapshots";
    type Args = ();
    type Checkpoint = Bytes;
    type Output = ();

    fn begin(&self, (): &()) -> Bytes {
        snapshot(0, self.length)
    }

    async fn step(&self, cx: &JobContext, (): &(), at: Bytes) -> Result<Step<Bytes, ()>, JobError> {
        let step = step_of(&at);
        let mut attached = Vec::new();
        cx.attach("step").read(&mut attached).await?;
        self.mixed.fetch_add(u32::from(step > 0 && attached != step.to_le_bytes()), Relaxed);
        tokio::time::sleep(secs(1)).await;
        self.ran.fetch_add(1, Relaxed);
        let fails = self.fails_every.is_some_and(|every| (step + 1).is_multiple_of(every));
        if fails && self.failed.lock().unwrap().insert(step) {
            return Err(JobError::retry("503"));
        }
        if step + 1 == self.steps {
            return Ok(Step::Done(()));
        }
        cx.attach("step").write(&(step + 1).to_le_bytes()[..]).await?;
        Ok(Step::Continue(snapshot(step + 1, self.length)))
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_saves_a_state_that_ends_with_its_own_checksum() {
    let store = memory::store();
    let job = Snapshots { steps: 60, length: 1_000, ..Snapshots::default() };
    enqueue_j(&store, Snapshots::KIND).await;
    let settings = || Settings { checkpoint_every: CheckpointEvery::Auto, ..settings() };
    for _ in 0..3 {
        let worker = start_any(&store, job.clone(), settings());
        tokio::time::sleep(secs(18)).await;
        assert_eq!(worker.evict(secs(30)).await.released_saved, 1);
        worker.kill().await;
    }
    let _last = start_any(&store, job.clone(), settings());
    emptied(&store, secs(100)).await;
    assert_eq!(job.ran.load(Relaxed), 60, "no step is done twice");
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_states_end_with_their_checksums_moves() {
    let store = memory::store();
    let job = Snapshots { steps: 100, length: 1_000, fails_every: Some(10), ..Snapshots::default() };
    enqueue_j(&store, Snapshots::KIND).await;
    let _worker = start_saving(&store, job.clone());
    emptied(&store, secs(2_000)).await;
    assert_eq!(poisoned(&store).await, Vec::<String>::new());
}

/// Such as a file that was restored under another name.
#[tokio::test(start_paused = true)]
async fn a_payload_with_the_bytes_of_an_older_one_is_no_checkpoint() {
    let store = memory::store();
    let job = Snapshots { steps: 12, length: 50_000, ..Snapshots::default() };
    let id = enqueue_j(&store, Snapshots::KIND).await;
    let worker = start_saving(&store, job.clone());
    tokio::time::sleep(ms(5_500)).await;
    worker.kill().await;
    let checkpoints = record(&store, &id).await.unwrap().checkpoints;
    let names: Vec<_> = checkpoints.into_iter().map(|checkpoint| checkpoint.place).collect();
    let [Place::Payload(newest), Place::Payload(older)] = &names[..] else { panic!("{names:?}") };
    let bytes = store.records.payload(&id, older).await.unwrap().unwrap();
    store.records.store_payload(&id, Payload { name: newest.clone(), bytes }).await.unwrap();
    let _next = start_saving(&store, job.clone());
    emptied(&store, secs(300)).await;
    assert_eq!(job.mixed.load(Relaxed), 0, "a state is never beside the attachment of another one");
}

/// A job that puts its state together anew in each delivery, and fails in the next step.
#[derive(Debug, Clone)]
struct Rebuilds {
    entries: u32,
    ran: Arc<AtomicU32>,
}

#[async_trait]
impl Job for Rebuilds {
    const KIND: &'static str = "rebuilds";
    type Args = ();
    type Checkpoint = HashMap<u32, u32>;
    type Output = ();

    fn begin(&self, (): &()) -> HashMap<u32, u32> {
        (0..self.entries).map(|number| (number, number)).collect()
    }

    async fn step(
        &self,
        cx: &JobContext,
        (): &(),
        at: HashMap<u32, u32>,
    ) -> Result<Step<HashMap<u32, u32>, ()>, JobError> {
        self.ran.fetch_add(1, Relaxed);
        tokio::time::sleep(ms(100)).await;
        if cx.steps() == 1 {
            return Err(JobError::retry("always"));
        }
        Ok(Step::Continue(at.into_iter().collect()))
    }
}

#[tokio::test(start_paused = true)]
async fn an_equal_state_in_another_order_is_no_movement() {
    for entries in [1, 2, 3, 4, 20, 30_000] {
        let store = memory::store();
        let job = Rebuilds { entries, ran: Arc::default() };
        enqueue_j(&store, Rebuilds::KIND).await;
        let _worker = start_saving(&store, job.clone());
        within(secs(7_200), "the poison queue", async || poisoned(&store).await.len() == 1).await;
        let ran = job.ran.load(Relaxed);
        assert!(ran <= 10, "{entries} entries: {ran} steps");
    }
}
