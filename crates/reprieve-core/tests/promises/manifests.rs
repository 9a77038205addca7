//! Manifests of attachments: one that is too long for the record, one that is saved without an answer, and
//! two that name equal chunks differently.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use reprieve_core::memory::{self, Fault, Faults, Op};
use reprieve_core::record::Place;
use reprieve_core::{ErrorKind, Job, JobContext, JobError, Step};

use crate::support::*;

/// A job that attaches many short contents in its first step, and nothing later. Its first delivery waits
/// for an eviction in the end.
#[derive(Debug, Clone, Default)]
struct Collects {
    /// The state at the beginning of each delivery, and how many contents were as they were written.
    found: Arc<Mutex<Vec<(u32, u32)>>>,
}

/// So many that their manifest does not fit into a record.
const CONTENTS: u32 = 500;

#[async_trait]
impl Job for Collects {
    const KIND: &'static str = "collects";
    type Args = ();
    type Checkpoint = u32;
    type Output = ();

    fn begin(&self, (): &()) -> u32 {
        0
    }

    async fn step(&self, cx: &JobContext, (): &(), at: u32) -> Result<Step<u32, ()>, JobError> {
        let content = |number: u32| (format!("name {number}"), format!("content {number}").into_bytes());
        if cx.steps() == 0 {
            let mut intact = 0;
            for (name, content) in (0..CONTENTS).map(content) {
                let mut read = Vec::new();
                let length = cx.attach(&name).read(&mut read).await?;
                intact += u32::from(length.is_some() && read == content);
            }
            self.found.lock().unwrap().push((at, intact));
        }
        match at {
            0 => {
                for (name, content) in (0..CONTENTS).map(content) {
                    cx.attach(&name).write(&content[..]).await?;
                }
            }
            4 if cx.delivery() == 1 => {
                cx.interrupted().await;
                return Ok(Step::Continue(at));
            }
            4 => return Ok(Step::Done(())),
            _ => {}
        }
        Ok(Step::Continue(at + 1))
    }
}

#[tokio::test(start_paused = true)]
async fn an_evicted_job_finds_more_attachments_than_its_record_can_list() {
    let (store, records) = listed_store();
    let job = Collects::default();
    let id = enqueue_j(&store, Collects::KIND).await;
    let worker = start_saving(&store, job.clone());
    tokio::time::sleep(secs(10)).await;
    assert_eq!(worker.evict(secs(30)).await.released_saved, 1);
    worker.kill().await;
    let newest = record(&store, &id).await.unwrap().checkpoints.remove(0);
    assert!(matches!(newest.attachments.unwrap().place, Place::Payload(_)), "the manifest is long");
    let _next = start_saving(&store, job.clone());
    emptied(&store, secs(300)).await;
    assert_eq!(*job.found.lock().unwrap(), [(0, 0), (4, CONTENTS)]);
    assert_eq!(records.payloads(), [], "a finished job leaves nothing");
}

/// A job with many attachments that keeps saving.
#[derive(Debug)]
struct Continues;

#[async_trait]
impl Job for Continues {
    const KIND: &'static str = "continues";
    type Args = ();
    type Checkpoint = u32;
    type Output = ();

    fn begin(&self, (): &()) -> u32 {
        0
    }

    async fn step(&self, cx: &JobContext, (): &(), at: u32) -> Result<Step<u32, ()>, JobError> {
        if at == 0 {
            for number in 0..CONTENTS {
                cx.attach(&format!("name {number}")).write(&number.to_le_bytes()[..]).await?;
            }
        }
        tokio::time::sleep(secs(5)).await;
        Ok(if at == 1_000 { Step::Done(()) } else { Step::Continue(at + 1) })
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_an_hour_leaves_no_more_manifests_than_a_short_one() {
    for fault in [Fault::Fail(ErrorKind::Unavailable), Fault::LoseAnswer] {
        let (inner, records) = listed_store();
        let (store, faults) = Faults::wrap(inner);
        enqueue_j(&store, Continues::KIND).await;
        let _worker = start_saving(&store, Continues);
        tokio::time::sleep(secs(30)).await;
        let before = records.payloads().len();
        faults.every_call(Op::Save, fault);
        tokio::time::sleep(secs(3_600)).await;
        let more = records.payloads().len() - before;
        assert!(more <= 2, "{fault:?}: {more} more payloads than {before}");
        faults.clear_all();
        emptied(&store, secs(10_000)).await;
        assert_eq!(records.payloads(), [], "{fault:?}");
    }
}

/// A job that replaces its attachment in each step.
#[derive(Debug)]
struct Replaces;

#[async_trait]
impl Job for Replaces {
    const KIND: &'static str = "replaces";
    type Args = ();
    type Checkpoint = u32;
    type Output = ();

    fn begin(&self, (): &()) -> u32 {
        0
    }

    async fn step(&self, cx: &JobContext, (): &(), at: u32) -> Result<Step<u32, ()>, JobError> {
        tokio::time::sleep(secs(1)).await;
        cx.attach("content").write(format!("content {at}").as_bytes()).await?;
        Ok(if at == 10 { Step::Done(()) } else { Step::Continue(at + 1) })
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_remains_of_a_job_whose_save_got_no_answer() {
    for after in 1..8 {
        let (inner, records) = listed_store();
        let (store, faults) = Faults::wrap(inner);
        enqueue_j(&store, Replaces::KIND).await;
        let _worker = start_saving(&store, Replaces);
        tokio::time::sleep(ms(after * 1_000 + 500)).await;
        faults.next_calls(Op::Save, 1, Fault::LoseAnswer);
        emptied(&store, secs(100)).await;
        assert_eq!(records.payloads(), [], "the answer was lost after {after} s");
    }
}

/// A job that attaches one content under two names of chunks: a save fails while another one is in its
/// place. From then on the first step of a delivery attaches the same again, and the second one fails.
#[derive(Debug, Clone)]
struct Repeats {
    faults: Faults,
    deliveries: Arc<AtomicU32>,
}

#[async_trait]
impl Job for Repeats {
    const KIND: &'static str = "repeats";
    type Args = ();
    type Checkpoint = u32;
    type Output = ();

    fn begin(&self, (): &()) -> u32 {
        0
    }

    async fn step(&self, cx: &JobContext, (): &(), at: u32) -> Result<Step<u32, ()>, JobError> {
        let model = cx.attach("model");
        match at {
            0 => drop(model.write(&b"same"[..]).await?),
            1 => {
                model.write(&b"other"[..]).await?;
                self.faults.next_calls(Op::Save, 1, Fault::Fail(ErrorKind::Unavailable));
                assert!(!cx.save::<Self>(&at).await?);
                model.write(&b"same"[..]).await?;
            }
            _ if cx.steps() == 0 => {
                self.deliveries.fetch_add(1, Relaxed);
                model.write(&b"same"[..]).await?;
                return Ok(Step::Continue(at));
            }
            _ => return Err(JobError::retry("always")),
        }
        Ok(Step::Continue(at + 1))
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_only_attaches_again_what_is_attached_has_not_moved() {
    let (store, faults) = Faults::wrap(memory::store());
    let job = Repeats { faults, deliveries: Arc::default() };
    enqueue_j(&store, Repeats::KIND).await;
    let _worker = start_saving(&store, job.clone());
    tokio::time::sleep(secs(3_600)).await;
    let deliveries = job.deliveries.load(Relaxed);
    assert_eq!(poisoned(&store).await.len(), 1, "{deliveries} deliveries in an hour");
}
