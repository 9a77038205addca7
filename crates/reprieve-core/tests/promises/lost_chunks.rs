//! Chunks of attachments that are lost while their job runs: what exists is not lost with them, what is
//! gone is not named again, and no job goes round for ever.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use reprieve_core::checkpoint::CheckpointEvery;
use reprieve_core::memory::{Fault, Faults, MemoryRecords, Op};
use reprieve_core::ports::Store;
use reprieve_core::record::{Manifest, Place};
use reprieve_core::worker::Settings;
use reprieve_core::{BlobName, Job, JobContext, JobError, JobId, PayloadName, Step};

use crate::support::*;

type Stepped = Result<Step<u32, u32>, JobError>;

/// A job of numbered steps, each of which does as this function says.
#[derive(Clone)]
struct Acts {
    act: for<'a> fn(&'a Self, &'a JobContext, u32) -> BoxFuture<'a, Stepped>,
    step_ms: u64,
    records: Arc<MemoryRecords>,
    faults: Faults,
    /// The steps that began, in order.
    began: Arc<Mutex<Vec<u32>>>,
}

#[async_trait]
impl Job for Acts {
    const KIND: &'static str = "acts";
    type Args = ();
    type Checkpoint = u32;
    type Output = u32;

    fn begin(&self, (): &()) -> u32 {
        0
    }

    async fn step(&self, cx: &JobContext, (): &(), at: u32) -> Stepped {
        tokio::time::sleep(ms(self.step_ms)).await;
        self.began.lock().unwrap().push(at);
        (self.act)(self, cx, at).await
    }
}

impl Acts {
    async fn new(act: for<'a> fn(&'a Self, &'a JobContext, u32) -> BoxFuture<'a, Stepped>) -> (Store, Self) {
        let (inner, records) = listed_store();
        let (store, faults) = Faults::wrap(inner);
        enqueue_j(&store, Self::KIND).await;
        (store, Self { act, step_ms: 100, records, faults, began: Arc::default() })
    }

    fn times(&self, step: u32) -> usize {
        self.began.lock().unwrap().iter().filter(|at| **at == step).count()
    }

    fn began(&self) -> Vec<u32> {
        self.began.lock().unwrap().clone()
    }

    async fn lose_newest(&self) {
        remove(&self.records, by_age(&self.records).last().unwrap()).await;
    }

    async fn lose_all(&self) {
        for payload in by_age(&self.records) {
            remove(&self.records, &payload).await;
        }
    }

    /// The chunks that a checkpoint names and that do not exist.
    async fn missing(&self, store: &Store) -> Vec<PayloadName> {
        let record = record(store, &JobId::parse("j").unwrap()).await.unwrap();
        let places =
            record.checkpoints.iter().filter_map(|it| it.attachments.as_ref().map(|part| &part.place));
        let manifests = places.map(|place| match place {
            Place::Inside(bytes) => Manifest::decode(bytes).unwrap(),
            Place::Payload(name) => panic!("{name} is no short manifest"),
        });
        let named: Vec<_> = manifests.flat_map(|it| it.payloads().cloned().collect::<Vec<_>>()).collect();
        let stored = self.records.payloads();
        named.into_iter().filter(|name| stored.iter().all(|(_, it)| it != name)).collect()
    }

    /// Runs the job for two seconds and evicts its worker, then finishes it on another one. Returns the
    /// steps that the second delivery began.
    async fn evicted_once(&self, store: &Store) -> Vec<u32> {
        let worker = start_saving(store, self.clone());
        tokio::time::sleep(ms(2_050)).await;
        worker.evict(secs(30)).await;
        assert_eq!(self.missing(store).await, []);
        worker.kill().await;
        let before = self.began().len();
        let _worker = start_saving(store, self.clone());
        emptied(store, secs(600)).await;
        assert_eq!(poisoned(store).await, [""; 0]);
        self.began().split_off(before)
    }
}

async fn write(cx: &JobContext, content: &str) -> Result<(), JobError> {
    cx.attach("a").write(content.as_bytes()).await?;
    Ok(())
}

async fn read(cx: &JobContext) -> Result<(), JobError> {
    cx.attach("a").read(&mut Vec::new()).await?;
    Ok(())
}

/// Attaches A, then B, then C. The save with C gets no answer and its chunk is lost; after that, A.
fn reuses<'a>(job: &'a Acts, cx: &'a JobContext, at: u32) -> BoxFuture<'a, Stepped> {
    async move {
        if cx.steps() == 0 && at > 0 {
            read(cx).await?;
        }
        match at {
            0 => write(cx, "A").await?,
            1 => write(cx, "B").await?,
            2 if job.times(2) == 1 => {
                write(cx, "C").await?;
                job.faults.next_calls(Op::Save, 1, Fault::LoseAnswer);
                assert!(!cx.save::<Acts>(&3).await?);
                job.lose_newest().await;
                read(cx).await?;
            }
            30 => return Ok(Step::Done(at)),
            _ => write(cx, "A").await?,
        }
        Ok(Step::Continue(at + 1))
    }
    .boxed()
}

#[tokio::test(start_paused = true)]
async fn a_chunk_that_an_unanswered_save_removed_is_not_named_again() {
    let (store, job) = Acts::new(reuses).await;
    let resumed = job.evicted_once(&store).await;
    assert!(resumed[0] > 10, "{resumed:?}");
    assert_eq!(job.times(2), 2, "it went back by a step");
}

/// The first save gets no answer, and its chunk is lost.
fn loses_the_first<'a>(job: &'a Acts, cx: &'a JobContext, at: u32) -> BoxFuture<'a, Stepped> {
    async move {
        if cx.steps() == 0 && at > 0 {
            read(cx).await?;
        }
        if at == 0 && job.times(0) == 1 {
            write(cx, "A").await?;
            job.faults.next_calls(Op::Save, 1, Fault::LoseAnswer);
            assert!(!cx.save::<Acts>(&1).await?);
            job.lose_newest().await;
            read(cx).await?;
        }
        write(cx, "A").await?;
        Ok(if at == 30 { Step::Done(at) } else { Step::Continue(at + 1) })
    }
    .boxed()
}

#[tokio::test(start_paused = true)]
async fn a_lost_chunk_of_a_first_save_without_an_answer_is_not_named_again() {
    let (store, job) = Acts::new(loses_the_first).await;
    let resumed = job.evicted_once(&store).await;
    assert!(resumed[0] > 10, "{resumed:?}");
}

/// A cache that is only nice to have is lost each time; the last step notices it and is done.
fn done_anyway<'a>(job: &'a Acts, cx: &'a JobContext, at: u32) -> BoxFuture<'a, Stepped> {
    async move {
        if at == 0 {
            write(cx, "cache").await?;
        }
        if at < 9 {
            return Ok(Step::Continue(at + 1));
        }
        job.lose_all().await;
        assert!(read(cx).await.is_err());
        Ok(Step::Done(42))
    }
    .boxed()
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_done_without_its_lost_attachment_is_done() {
    let (store, job) = Acts::new(done_anyway).await;
    let _worker = start_saving(&store, job.clone());
    emptied(&store, secs(600)).await;
    let result = store.blobs.get(&BlobName::parse("results/j.json").unwrap()).await.unwrap();
    assert_eq!((result.as_deref(), job.began()), (Some(&b"42"[..]), (0..10).collect()));
}

/// A step finds its cache lost, saves, makes it again, and saves.
fn makes_again<'a>(job: &'a Acts, cx: &'a JobContext, at: u32) -> BoxFuture<'a, Stepped> {
    async move {
        if at == 0 {
            write(cx, "cache").await?;
        }
        if at == 6 && job.times(6) == 1 {
            job.lose_all().await;
            assert!(read(cx).await.is_err());
            assert!(cx.save::<Acts>(&at).await?);
            write(cx, "cache").await?;
            assert!(cx.save::<Acts>(&at).await?);
            read(cx).await?;
        }
        Ok(if at == 9 { Step::Done(at) } else { Step::Continue(at + 1) })
    }
    .boxed()
}

#[tokio::test(start_paused = true)]
async fn a_step_that_saves_before_it_replaces_what_is_lost_goes_on() {
    let (store, job) = Acts::new(makes_again).await;
    let _worker = start_saving(&store, job.clone());
    emptied(&store, secs(600)).await;
    assert_eq!(job.began(), (0..10).collect::<Vec<_>>());
}

/// A content is lost each time, in the eighth step.
fn loses_it_each_time<'a>(job: &'a Acts, cx: &'a JobContext, at: u32) -> BoxFuture<'a, Stepped> {
    async move {
        if at == 0 {
            write(cx, "content").await?;
        }
        if at == 7 {
            job.lose_all().await;
            read(cx).await?;
        }
        Ok(Step::Continue(at + 1))
    }
    .boxed()
}

/// The same, and it waits in between.
fn loses_it_and_waits<'a>(job: &'a Acts, cx: &'a JobContext, at: u32) -> BoxFuture<'a, Stepped> {
    async move {
        if at == 3 {
            return Ok(Step::Wait(at + 1, secs(10)));
        }
        loses_it_each_time(job, cx, at).await
    }
    .boxed()
}

#[tokio::test(start_paused = true)]
async fn a_job_that_loses_the_same_content_each_time_ends_in_the_poison_queue() {
    for every in [0, 5, 7, 13] {
        for act in [loses_it_each_time, loses_it_and_waits] {
            let (store, job) = Acts::new(act).await;
            let job = Acts { step_ms: 2_000, ..job };
            let checkpoint_every = CheckpointEvery::Every(secs(every));
            let worker = start_any(&store, job.clone(), Settings { checkpoint_every, ..settings() });
            within(secs(7_200), "a dead letter", async || !poisoned(&store).await.is_empty()).await;
            let reason = poisoned(&store).await.remove(0);
            assert!(reason.contains("damaged or missing"), "{reason}");
            assert!(job.times(0) <= 21, "it began {} times", job.times(0));
            worker.kill().await;
        }
    }
}
