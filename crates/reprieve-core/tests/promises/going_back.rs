//! A job goes back to an older state because a chunk of its attachments is lost, with a record and without.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use async_trait::async_trait;
use reprieve_core::memory::{Fault, Faults, MemoryRecords, Op};
use reprieve_core::ports::Store;
use reprieve_core::{BlobName, Job, JobContext, JobError, Step};

use crate::support::*;

/// Counts its steps in an attachment. In its third step it loses its cache, without which it is only slower.
#[derive(Debug, Clone)]
struct Counts {
    records: Arc<MemoryRecords>,
    loses: Arc<AtomicBool>,
}

#[async_trait]
impl Job for Counts {
    const KIND: &'static str = "counts";
    type Args = ();
    type Checkpoint = u32;
    type Output = u64;

    fn begin(&self, (): &()) -> u32 {
        0
    }

    async fn step(&self, cx: &JobContext, (): &(), at: u32) -> Result<Step<u32, u64>, JobError> {
        let mut bytes = Vec::new();
        cx.attach("count").read(&mut bytes).await?;
        let count = bytes.try_into().map_or(0, u64::from_le_bytes);
        if at == 0 {
            cx.attach("cache").write(&b"cache"[..]).await?;
        }
        if at == 2 {
            if self.loses.swap(false, Relaxed) {
                remove(&self.records, &by_age(&self.records)[0]).await;
            }
            let _slower = cx.attach("cache").read(&mut Vec::new()).await;
        }
        if at == 5 {
            return Ok(Step::Done(count));
        }
        cx.attach("count").write(&(count + 1).to_le_bytes()[..]).await?;
        Ok(Step::Continue(at + 1))
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_begins_again_finds_no_attachment_of_its_former_life() {
    for (loses, saves) in [(false, false), (true, true), (true, false)] {
        let (store, records) = listed_store();
        let job = Counts { records, loses: Arc::new(AtomicBool::new(loses)) };
        let id = enqueue_j(&store, Counts::KIND).await;
        let _worker = if saves { start_saving(&store, job) } else { start_job(&store, job) };
        emptied(&store, secs(60)).await;
        let result = BlobName::parse(format!("results/{id}.json")).unwrap();
        let result = store.blobs.get(&result).await.unwrap().unwrap();
        assert_eq!(result, b"5", "loses: {loses}, saves: {saves}");
    }
}

/// In its fourth step it loses all chunks, and needs one.
#[derive(Debug, Clone)]
struct Loses {
    records: Arc<MemoryRecords>,
    begun: Arc<AtomicU32>,
}

#[async_trait]
impl Job for Loses {
    const KIND: &'static str = "loses";
    type Args = ();
    type Checkpoint = u32;
    type Output = ();

    fn begin(&self, (): &()) -> u32 {
        self.begun.fetch_add(1, Relaxed);
        0
    }

    async fn step(&self, cx: &JobContext, (): &(), at: u32) -> Result<Step<u32, ()>, JobError> {
        tokio::time::sleep(ms(10)).await;
        if at == 0 {
            cx.attach("content").write(&b"content"[..]).await?;
        }
        if at == 3 {
            for payload in by_age(&self.records) {
                remove(&self.records, &payload).await;
            }
            cx.attach("content").read(&mut Vec::new()).await?;
        }
        Ok(Step::Continue(at + 1))
    }
}

/// Such as a scanner that removes what it takes for malware.
#[tokio::test(start_paused = true)]
async fn a_job_whose_content_is_lost_each_time_is_dead_lettered() {
    let (store, records) = listed_store();
    let job = Loses { records, begun: Arc::default() };
    enqueue_j(&store, Loses::KIND).await;
    let _worker = start_saving(&store, job.clone());
    within(secs(3_600), "the poison queue", async || poisoned(&store).await.len() == 1).await;
    let reason = poisoned(&store).await.remove(0);
    assert!(reason.contains("damaged or missing"), "{reason}");
    assert!(job.begun.load(Relaxed) < 40, "it began {} times", job.begun.load(Relaxed));
}

/// Loses a chunk of a save that got no answer.
#[derive(Debug, Clone)]
struct Unanswered {
    records: Arc<MemoryRecords>,
    faults: Faults,
    once: Arc<AtomicBool>,
    last_delivery: Arc<AtomicU32>,
}

#[async_trait]
impl Job for Unanswered {
    const KIND: &'static str = "unanswered";
    type Args = ();
    type Checkpoint = u8;
    type Output = ();

    fn begin(&self, (): &()) -> u8 {
        0
    }

    async fn step(&self, cx: &JobContext, (): &(), at: u8) -> Result<Step<u8, ()>, JobError> {
        self.last_delivery.store(cx.delivery(), Relaxed);
        cx.attach("content").write(&[at; 8][..]).await?;
        if at == 3 && !self.once.swap(true, Relaxed) {
            self.faults.next_calls(Op::Save, 1, Fault::LoseAnswer);
            assert!(!cx.save::<Self>(&4).await?);
            remove(&self.records, by_age(&self.records).last().unwrap()).await;
            cx.attach("content").read(&mut Vec::new()).await?;
        }
        Ok(if at == 6 { Step::Done(()) } else { Step::Continue(at + 1) })
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_chunk_of_a_save_without_an_answer_is_no_failure_of_the_job() {
    let (inner, records): (Store, _) = listed_store();
    let (store, faults) = Faults::wrap(inner);
    let (once, last_delivery) = (Arc::default(), Arc::default());
    let job = Unanswered { records, faults, once, last_delivery };
    enqueue_j(&store, Unanswered::KIND).await;
    let _worker = start_saving(&store, job.clone());
    emptied(&store, secs(600)).await;
    assert_eq!(job.last_delivery.load(Relaxed), 1);
}
