//! Chunks of attachments that are lost while their job runs: what exists is not lost with them, what is
//! gone is not named again, and no job goes round for ever.

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use reprieve_core::checkpoint::CheckpointEvery;
use reprieve_core::memory::{self, Fault, Faults, MemoryRecords, Op};
use reprieve_core::ports::{RecordStore, Store};
use reprieve_core::record::{CHUNK_BYTES, Manifest, Place};
use reprieve_core::retention::Keep;
use reprieve_core::worker::Settings;
use reprieve_core::{BlobName, Job, JobContext, JobError, JobId, PayloadName, Redrive, Step};
use tokio::io::AsyncWriteExt as _;
use tokio::time::advance;

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

    /// Removes from the store what nothing needs.
    async fn clean(&self) {
        let records: Arc<dyn RecordStore> = Arc::clone(&self.records) as _;
        clean(&Store { records, ..memory::store() }, Keep::default(), false).await;
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

/// The second step of each delivery finds the content lost; the first step of a new life fails before
/// anything is saved.
fn moves_then_fails<'a>(job: &'a Acts, cx: &'a JobContext, at: u32) -> BoxFuture<'a, Stepped> {
    async move {
        if at == 0 {
            if job.began().len() > 1 {
                return Err(JobError::retry("the source does not answer"));
            }
            write(cx, "content").await?;
        } else if cx.steps() == 1 {
            job.lose_all().await;
            read(cx).await?;
        }
        Ok(Step::Continue(at + 1))
    }
    .boxed()
}

#[tokio::test(start_paused = true)]
async fn going_back_is_counted_although_the_delivery_fails_before_its_next_save() {
    for every in [0, 10] {
        let (store, job) = Acts::new(moves_then_fails).await;
        let job = Acts { step_ms: 50, ..job };
        let checkpoint_every = CheckpointEvery::Every(secs(every));
        let worker = start_any(&store, job.clone(), Settings { checkpoint_every, ..settings() });
        within(secs(36_000), "a dead letter", async || !poisoned(&store).await.is_empty()).await;
        assert!(job.times(0) <= 26, "it began {} times", job.times(0));
        worker.kill().await;
    }
}

/// Makes its content again whenever that is lost, and never moves.
fn makes_the_same<'a>(job: &'a Acts, cx: &'a JobContext, at: u32) -> BoxFuture<'a, Stepped> {
    async move {
        if cx.steps() == 0 {
            job.lose_all().await;
            if !matches!(cx.attach("a").read(&mut Vec::new()).await, Ok(Some(_))) {
                write(cx, "the same").await?;
            }
        }
        if cx.steps() == 3 {
            return Err(JobError::retry("always"));
        }
        Ok(Step::Continue(at))
    }
    .boxed()
}

#[tokio::test(start_paused = true)]
async fn the_same_content_sent_again_is_no_progress() {
    let (store, job) = Acts::new(makes_the_same).await;
    let worker = start_saving(&store, job.clone());
    within(secs(36_000), "a dead letter", async || !poisoned(&store).await.is_empty()).await;
    assert_eq!(job.began().len(), 5 * 4, "five failures without progress");
    worker.kill().await;
}

/// Its fifth step finds its content damaged, and saves before it returns the error.
fn saves_a_damaged_content<'a>(job: &'a Acts, cx: &'a JobContext, at: u32) -> BoxFuture<'a, Stepped> {
    async move {
        if at == 5 && job.times(5) == 1 {
            job.lose_newest().await;
            let found = read(cx).await;
            assert!(cx.save::<Acts>(&at).await?);
            found?;
        }
        if at == 8 {
            return Ok(Step::Done(at));
        }
        write(cx, &at.to_string()).await?;
        Ok(Step::Continue(at + 1))
    }
    .boxed()
}

#[tokio::test(start_paused = true)]
async fn a_save_of_a_damaged_content_keeps_the_newest_intact_checkpoint() {
    let (store, job) = Acts::new(saves_a_damaged_content).await;
    let worker = start_saving(&store, job.clone());
    emptied(&store, secs(3_600)).await;
    assert_eq!(job.began(), [0, 1, 2, 3, 4, 5, 4, 5, 6, 7, 8]);
    worker.stop().await;
}

/// Writes a whole chunk to `name` in a slow call, and does `meanwhile` once the chunk was taken.
async fn write_slowly<T>(
    cx: &JobContext,
    name: &str,
    rest: &[u8],
    meanwhile: impl Future<Output = T>,
) -> Result<T, JobError> {
    let (mut to, from) = tokio::io::duplex(1 << 16);
    let feed = async {
        to.write_all(&vec![7; CHUNK_BYTES]).await.unwrap();
        to.write_all(rest).await.unwrap();
        tokio::time::sleep(ms(50)).await;
        let done = meanwhile.await;
        drop(to);
        done
    };
    let (written, done) = tokio::join!(cx.attach(name).write(from), feed);
    written?;
    Ok(done)
}

/// A read finds a chunk damaged while a write uses it again. Then both contents are made again.
fn mends_both<'a>(job: &'a Acts, cx: &'a JobContext, at: u32) -> BoxFuture<'a, Stepped> {
    async move {
        let content = vec![7; CHUNK_BYTES];
        if at == 0 {
            cx.attach("a").write(&content[..]).await?;
        }
        if at == 3 && job.times(3) == 1 {
            job.lose_all().await;
            let found = write_slowly(cx, "b", b"", read(cx)).await?;
            assert!(found.is_err());
            cx.attach("a").write(&content[..]).await?;
            cx.attach("b").write(&content[..]).await?;
        }
        Ok(if at == 5 { Step::Done(at) } else { Step::Continue(at + 1) })
    }
    .boxed()
}

#[tokio::test(start_paused = true)]
async fn a_chunk_that_is_found_damaged_during_a_write_is_not_used_again() {
    let (store, job) = Acts::new(mends_both).await;
    let worker = start_saving(&store, job.clone());
    emptied(&store, secs(3_600)).await;
    assert_eq!(job.began(), [0, 1, 2, 3, 4, 5]);
    worker.stop().await;
}

/// Long enough for retention to remove what no record names.
const NINE_DAYS: Duration = Duration::from_hours(9 * 24);

/// Runs the job until it waits, lets the time pass without a worker, and starts another one.
async fn nine_days_later(store: &Store, job: &Acts) -> Running {
    let worker = start_saving(store, job.clone());
    within(secs(60), "the job waits", async || job.times(0) == 1 && leased(store).await == 0).await;
    worker.stop().await;
    advance(NINE_DAYS).await;
    start_saving(store, job.clone())
}

/// Replaces a content after nine days, and then writes the former one `again`. A round of retention
/// comes after that, and before it is read.
async fn writes_again(
    job: &Acts,
    cx: &JobContext,
    at: u32,
    again: impl Future<Output = Result<(), JobError>>,
) -> Stepped {
    match at {
        0 => {
            cx.attach("a").write(&vec![7; CHUNK_BYTES][..]).await?;
            return Ok(Step::Wait(1, NINE_DAYS));
        }
        1 => write(cx, "something else").await?,
        2 => {
            again.await?;
            job.clean().await;
        }
        3 => {
            job.clean().await;
            read(cx).await?;
        }
        _ => return Ok(Step::Done(at)),
    }
    Ok(Step::Continue(at + 1))
}

/// In a call that outlasts the saves that drop its chunk. A round of retention comes during the first
/// such call.
fn writes_for_long<'a>(job: &'a Acts, cx: &'a JobContext, at: u32) -> BoxFuture<'a, Stepped> {
    let again = async move {
        write_slowly(cx, "a", b"x", async {
            for _ in 0..3 {
                assert!(cx.save::<Acts>(&2).await.unwrap());
            }
            if job.times(2) == 1 {
                job.clean().await;
            }
        })
        .await?;
        Ok(())
    };
    writes_again(job, cx, at, again).boxed()
}

#[tokio::test(start_paused = true)]
async fn retention_takes_no_chunk_that_a_write_used_again() {
    let (store, job) = Acts::new(writes_for_long).await;
    let worker = nine_days_later(&store, &job).await;
    emptied(&store, secs(3_600)).await;
    assert_eq!(poisoned(&store).await, [""; 0]);
    // The first call found its chunk removed, and failed.
    assert_eq!(job.began(), [0, 1, 2, 2, 3, 4]);
    worker.stop().await;
}

/// In a call that waits for the save that drops its chunk.
fn writes_beside_a_save<'a>(job: &'a Acts, cx: &'a JobContext, at: u32) -> BoxFuture<'a, Stepped> {
    let again = async move {
        let content = vec![7; CHUNK_BYTES];
        let (saved, written) = tokio::join!(cx.save::<Acts>(&2), cx.attach("a").write(&content[..]));
        assert!(saved.unwrap());
        written?;
        Ok(())
    };
    writes_again(job, cx, at, again).boxed()
}

#[tokio::test(start_paused = true)]
async fn retention_takes_no_chunk_that_a_save_dropped_while_a_write_waited_for_it() {
    let (store, job) = Acts::new(writes_beside_a_save).await;
    let worker = nine_days_later(&store, &job).await;
    emptied(&store, secs(3_600)).await;
    assert_eq!(job.began(), [0, 1, 2, 3, 4]);
    worker.stop().await;
}

/// In a call that outlasts a save that drops its chunk and gets no answer.
fn writes_beside_an_unanswered_save<'a>(
    job: &'a Acts,
    cx: &'a JobContext,
    at: u32,
) -> BoxFuture<'a, Stepped> {
    let again = async move {
        write_slowly(cx, "a", b"x", async {
            job.faults.next_calls(Op::Save, 1, Fault::LoseAnswer);
            assert!(!cx.save::<Acts>(&2).await.unwrap());
            job.clean().await;
        })
        .await?;
        Ok(())
    };
    writes_again(job, cx, at, again).boxed()
}

#[tokio::test(start_paused = true)]
async fn retention_takes_no_chunk_that_a_save_without_an_answer_dropped() {
    let (store, job) = Acts::new(writes_beside_an_unanswered_save).await;
    let worker = nine_days_later(&store, &job).await;
    emptied(&store, secs(3_600)).await;
    let began = job.began();
    assert!(began == [0, 1, 2, 3, 4] || began == [0, 1, 2, 2, 3, 4], "{began:?}");
    worker.stop().await;
}

/// Loses its content in the sixth step, makes it again, and fails for good in the next one.
fn mends_and_fails<'a>(job: &'a Acts, cx: &'a JobContext, at: u32) -> BoxFuture<'a, Stepped> {
    async move {
        match at {
            0 => write(cx, "content").await?,
            6 if job.times(6) == 1 => {
                job.lose_all().await;
                assert!(read(cx).await.is_err());
                write(cx, "content").await?;
            }
            7 if job.times(7) == 1 => return Err(JobError::fatal("a bug, to be mended")),
            9 => return Ok(Step::Done(at)),
            _ => {}
        }
        Ok(Step::Continue(at + 1))
    }
    .boxed()
}

#[tokio::test(start_paused = true)]
async fn a_job_that_makes_its_content_again_and_fails_keeps_its_checkpoints() {
    let (store, job) = Acts::new(mends_and_fails).await;
    let job = Acts { step_ms: 1_000, ..job };
    let checkpoint_every = CheckpointEvery::Every(secs(4));
    let worker = start_any(&store, job.clone(), Settings { checkpoint_every, ..settings() });
    within(secs(600), "the dead letter", async || !poisoned(&store).await.is_empty()).await;
    store.redrive(&Redrive::All).await.unwrap();
    emptied(&store, secs(600)).await;
    assert_eq!(job.times(0), 1, "{:?}", job.began());
    worker.stop().await;
}

/// Goes back once, while the store loses the answers of its writes.
fn goes_back_once<'a>(job: &'a Acts, cx: &'a JobContext, at: u32) -> BoxFuture<'a, Stepped> {
    async move {
        if at == 0 {
            write(cx, "content").await?;
        }
        if at == 5 && job.times(5) == 1 {
            job.lose_all().await;
            job.faults.every_call(Op::Save, Fault::LoseAnswer);
            let faults = job.faults.clone();
            tokio::spawn(async move {
                tokio::time::sleep(secs(80)).await;
                faults.clear(Op::Save);
            });
            read(cx).await?;
        }
        Ok(if at == 9 { Step::Done(at) } else { Step::Continue(at + 1) })
    }
    .boxed()
}

#[tokio::test(start_paused = true)]
async fn going_back_is_counted_once_however_many_answers_are_lost() {
    let (store, job) = Acts::new(goes_back_once).await;
    let worker = start_saving(&store, job.clone());
    emptied(&store, secs(3_600)).await;
    assert_eq!(poisoned(&store).await, [""; 0]);
    worker.stop().await;
}
