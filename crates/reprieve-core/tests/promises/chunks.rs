//! Chunks of attachments under every disturbance: damaged, replaced while they are read, named by a save
//! without an answer. What a job finds is what was attached when its state was saved.
#![expect(clippy::cast_possible_truncation, reason = "random numbers")]

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use reprieve_core::checkpoint::CheckpointEvery;
use reprieve_core::memory::{self, Fault, Faults, ManualNotices, Op};
use reprieve_core::ports::{Payload, Store};
use reprieve_core::record::{CHUNK_BYTES, Manifest, Place};
use reprieve_core::retention::Keep;
use reprieve_core::worker::Settings;
use reprieve_core::{Bytes, Job, JobContext, JobError, JobId, PayloadName, Step};
use tokio::io::AsyncWrite;
use tokio::sync::Notify;
use tokio::time::advance;

use crate::support::*;

const DAY: Duration = Duration::from_hours(24);

async fn manifests(store: &Store, job: &JobId) -> Vec<Manifest> {
    let mut manifests = Vec::new();
    for checkpoint in record(store, job).await.unwrap().checkpoints {
        let Place::Inside(bytes) = checkpoint.attachments.unwrap().place else { panic!("it is short") };
        manifests.push(Manifest::decode(&bytes).unwrap());
    }
    manifests
}

async fn damage(store: &Store, job: &JobId, name: &PayloadName) {
    let payload = Payload { name: name.clone(), bytes: Bytes::from_static(b"damaged") };
    store.records.store_payload(job, payload).await.unwrap();
}

/// One attachment that never changes, one for each step so far that stays as it is, and one that always
/// changes. All are read at the beginning of a delivery.
#[derive(Debug, Clone, Default)]
struct Keeper {
    steps: u32,
    reads: Arc<AtomicU32>,
    found: Arc<Mutex<Vec<u32>>>,
}

#[async_trait]
impl Job for Keeper {
    const KIND: &'static str = "keeper";
    type Args = ();
    type Checkpoint = u32;
    type Output = ();

    fn begin(&self, (): &()) -> u32 {
        0
    }

    async fn step(&self, cx: &JobContext, (): &(), mut at: u32) -> Result<Step<u32, ()>, JobError> {
        if cx.steps() == 0 {
            if self.reads.fetch_add(1, Relaxed) > 50 {
                // Otherwise the paused clock would never advance.
                std::future::pending::<()>().await;
            }
            let mut all = Vec::new();
            for part in 0..at {
                cx.attach(&format!("part-{part}")).read(&mut all).await?;
            }
            cx.attach("constant").read(&mut all).await?;
            cx.attach("changing").read(&mut all).await?;
            self.found.lock().unwrap().push(at);
        }
        tokio::time::sleep(secs(1)).await;
        cx.attach("constant").write(&b"always the same"[..]).await?;
        cx.attach(&format!("part-{at}")).write(format!("part {at}").as_bytes()).await?;
        at += 1;
        cx.attach("changing").write(format!("step {at}").as_bytes()).await?;
        Ok(if at == self.steps { Step::Done(()) } else { Step::Continue(at) })
    }
}

/// Runs the job until it has two checkpoints, and evicts its worker.
async fn evicted_after_two_saves(store: &Store, job: &Keeper) -> JobId {
    let id = enqueue_j(store, Keeper::KIND).await;
    let worker = start_job(store, job.clone());
    tokio::time::sleep(ms(12_500)).await;
    assert_eq!(worker.evict(secs(30)).await.released_saved, 1);
    worker.kill().await;
    id
}

/// Runs the job until it has two checkpoints, and kills its worker.
async fn killed_after_two_saves(store: &Store, job: &Keeper) -> JobId {
    let id = enqueue_j(store, Keeper::KIND).await;
    let worker = start_job(store, job.clone());
    tokio::time::sleep(ms(11_500)).await;
    worker.kill().await;
    id
}

/// docs/checkpoints.md: "The job then continues from the checkpoint before, and begins again when that one
/// needs the same chunk."
#[tokio::test(start_paused = true)]
async fn a_damaged_chunk_of_both_checkpoints_lets_the_job_begin_again() {
    let store = memory::store();
    let job = Keeper { steps: 20, ..Keeper::default() };
    let id = killed_after_two_saves(&store, &job).await;
    let [newest, before] = &manifests(&store, &id).await[..] else { panic!("two checkpoints") };
    let old: Vec<_> = before.payloads().collect();
    let shared = newest.payloads().find(|name| old.contains(name)).unwrap();
    damage(&store, &id, shared).await;
    let before = job.reads.load(Relaxed);
    let _next = start_job(&store, job.clone());
    within(secs(1_000), "the end, or many tries", async || {
        total(&store).await == 0 || job.reads.load(Relaxed) > 50
    })
    .await;
    let reads = job.reads.load(Relaxed) - before;
    assert!(reads <= 4, "the step was begun {reads} times and never got on; resumed at {:?}", job.found);
}

/// A chunk that was found damaged is not used again for a new checkpoint.
#[tokio::test(start_paused = true)]
async fn a_damaged_chunk_is_sent_again_when_its_content_is_attached_again() {
    let store = memory::store();
    let job = Keeper { steps: 100, ..Keeper::default() };
    let id = evicted_after_two_saves(&store, &job).await;
    let [newest, before] = &manifests(&store, &id).await[..] else { panic!("two checkpoints") };
    let old: Vec<_> = before.payloads().collect();
    // A part that only the newest has.
    let mut fresh = Vec::new();
    for name in newest.payloads().filter(|name| !old.contains(name)) {
        let bytes = store.records.payload(&id, name).await.unwrap().unwrap();
        fresh.extend(bytes.starts_with(b"part 11").then_some(name));
    }
    let fresh = fresh[0];
    damage(&store, &id, fresh).await;
    let next = start_job(&store, job.clone());
    tokio::time::sleep(ms(8_500)).await;
    next.kill().await;
    assert_eq!(job.found.lock().unwrap().len(), 2, "it resumed at the checkpoint before, once");
    let found = job.found.lock().unwrap().clone();
    let steps: Vec<_> = record(&store, &id).await.unwrap().checkpoints.iter().map(|it| it.sequence).collect();
    for manifest in manifests(&store, &id).await {
        for name in manifest.payloads() {
            let bytes = store.records.payload(&id, name).await.unwrap();
            assert_ne!(
                bytes.as_deref(),
                Some(&b"damaged"[..]),
                "the new checkpoints {steps:?} name the damaged chunk {name}; deliveries resumed at {found:?}"
            );
        }
    }
}

/// Removes the chunks of the newest checkpoint.
async fn lose(store: &Store, job: &JobId) {
    let newest = record(store, job).await.unwrap().checkpoints.remove(0);
    let Place::Inside(bytes) = newest.attachments.unwrap().place else { panic!("it is short") };
    let chunks: Vec<_> = Manifest::decode(&bytes).unwrap().payloads().cloned().collect();
    store.records.remove_payloads(job, &chunks).await.unwrap();
}

/// Attaches two contents in turn. Before step 4, that of the checkpoint before the last one is lost.
#[derive(Debug, Clone)]
struct Alternates {
    store: Store,
    /// The state at the beginning of each step.
    began: Arc<Mutex<Vec<u32>>>,
}

#[async_trait]
impl Job for Alternates {
    const KIND: &'static str = "alternates";
    type Args = ();
    type Checkpoint = u32;
    type Output = ();

    fn begin(&self, (): &()) -> u32 {
        0
    }

    async fn step(&self, cx: &JobContext, (): &(), at: u32) -> Result<Step<u32, ()>, JobError> {
        let is_first_time = {
            let mut began = self.began.lock().unwrap();
            began.push(at);
            began.iter().filter(|step| **step == at).count() == 1
        };
        if at == 4 && is_first_time {
            let [newest, before] = &manifests(&self.store, cx.job()).await[..] else {
                panic!("two checkpoints")
            };
            let newest: Vec<_> = newest.payloads().collect();
            let old: Vec<_> = before.payloads().filter(|name| !newest.contains(name)).cloned().collect();
            assert_eq!(old.len(), 1);
            self.store.records.remove_payloads(cx.job(), &old).await?;
        }
        let content = if at.is_multiple_of(2) { "even" } else { "odd" };
        cx.attach("content").write(content.as_bytes()).await?;
        let mut read = Vec::new();
        cx.attach("content").read(&mut read).await?;
        assert_eq!(read, content.as_bytes());
        Ok(if at == 6 { Step::Done(()) } else { Step::Continue(at + 1) })
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_chunk_of_the_checkpoint_before_costs_only_the_current_step() {
    let store = memory::store();
    let job = Alternates { store: store.clone(), began: Arc::default() };
    enqueue_j(&store, Alternates::KIND).await;
    let _worker = start_saving(&store, job.clone());
    emptied(&store, secs(100)).await;
    assert_eq!(*job.began.lock().unwrap(), [0, 1, 2, 3, 4, 4, 5, 6]);
}

/// Attaches a cache, which is lost before step 4. The job makes it again, and saves it.
#[derive(Debug, Clone)]
struct Rebuilds {
    store: Store,
    /// The state at the beginning of each step.
    began: Arc<Mutex<Vec<u32>>>,
}

#[async_trait]
impl Job for Rebuilds {
    const KIND: &'static str = "rebuilds";
    type Args = ();
    type Checkpoint = u32;
    type Output = ();

    fn begin(&self, (): &()) -> u32 {
        0
    }

    async fn step(&self, cx: &JobContext, (): &(), at: u32) -> Result<Step<u32, ()>, JobError> {
        self.began.lock().unwrap().push(at);
        let cache = cx.attach("cache");
        if at == 4 && self.began.lock().unwrap().len() == 5 {
            lose(&self.store, cx.job()).await;
            assert!(cache.read(&mut Vec::new()).await.is_err());
            cache.write(&b"made again"[..]).await?;
            assert!(cx.save::<Self>(&at).await?);
        }
        cache.write(format!("cache {at}").as_bytes()).await?;
        Ok(if at == 6 { Step::Done(()) } else { Step::Continue(at + 1) })
    }
}

#[tokio::test(start_paused = true)]
async fn a_step_that_replaces_a_lost_content_and_saves_is_not_done_again() {
    let store = memory::store();
    let job = Rebuilds { store: store.clone(), began: Arc::default() };
    enqueue_j(&store, Rebuilds::KIND).await;
    let _worker = start_saving(&store, job.clone());
    emptied(&store, secs(100)).await;
    assert_eq!(*job.began.lock().unwrap(), [0, 1, 2, 3, 4, 5, 6]);
}

/// Attaches something for its third state, which is lost: it goes back, comes to that state again without
/// it, and waits there for an eviction.
#[derive(Debug, Clone)]
struct Loses {
    store: Store,
    /// The number of the delivery, the state and the size of the attachment at the beginning of each step.
    began: Arc<Mutex<Vec<Began>>>,
}

type Began = (u32, u32, Option<u64>);

#[async_trait]
impl Job for Loses {
    const KIND: &'static str = "loses";
    type Args = ();
    type Checkpoint = u32;
    type Output = ();

    fn begin(&self, (): &()) -> u32 {
        0
    }

    async fn step(&self, cx: &JobContext, (): &(), at: u32) -> Result<Step<u32, ()>, JobError> {
        let extra = cx.attach("extra");
        let size = extra.size().await;
        self.began.lock().unwrap().push((cx.delivery(), at, size));
        match at {
            0 => assert!(cx.save::<Self>(&1).await?),
            1 if self.began.lock().unwrap().len() == 2 => {
                extra.write(&b"extra"[..]).await?;
                assert!(cx.save::<Self>(&2).await?);
            }
            2 if size.is_some() => {
                lose(&self.store, cx.job()).await;
                extra.read(&mut Vec::new()).await?;
            }
            2 if cx.delivery() == 1 => {
                cx.interrupted().await;
                return Ok(Step::Continue(2));
            }
            2 => return Ok(Step::Done(())),
            _ => {}
        }
        Ok(Step::Continue(at + 1))
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_went_back_is_saved_when_it_is_evicted_where_it_was_before() {
    let store = memory::store();
    let job = Loses { store: store.clone(), began: Arc::default() };
    enqueue_j(&store, Loses::KIND).await;
    let first = start_job(&store, job.clone());
    tokio::time::sleep(ms(500)).await;
    assert_eq!(first.evict(secs(30)).await.released_saved, 1);
    first.kill().await;
    let _second = start_job(&store, job.clone());
    emptied(&store, secs(100)).await;
    let began = job.began.lock().unwrap().clone();
    assert_eq!(
        began,
        [(1, 0, None), (1, 1, None), (1, 2, Some(5)), (1, 1, None), (1, 2, None), (2, 2, None)]
    );
}

/// Writes slowly: stops after the first chunk until it is let go.
struct Gated<'a>(usize, &'a Notify, &'a AtomicBool, Option<Pin<Box<dyn Future<Output = ()> + Send + 'a>>>);

impl AsyncWrite for Gated<'_> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        if self.0 > 0 && !self.2.load(Relaxed) {
            let notify = self.1;
            let wait = self.3.get_or_insert_with(|| Box::pin(notify.notified()));
            if wait.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
        self.0 += bytes.len();
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Reads an attachment while it is replaced and saved twice.
#[derive(Debug, Clone, Default)]
struct ReadsWhileWriting(Arc<Mutex<Vec<String>>>);

#[async_trait]
impl Job for ReadsWhileWriting {
    const KIND: &'static str = "reads-while-writing";
    type Args = ();
    type Checkpoint = u32;
    type Output = ();

    fn begin(&self, (): &()) -> u32 {
        0
    }

    async fn step(&self, cx: &JobContext, (): &(), at: u32) -> Result<Step<u32, ()>, JobError> {
        let mut old = vec![0_u8; 8 * CHUNK_BYTES];
        for (number, chunk) in old.chunks_mut(CHUNK_BYTES).enumerate() {
            chunk[0] = u8::try_from(number).unwrap();
        }
        cx.attach("grid").write(&old[..]).await?;
        cx.save::<Self>(&at).await?;
        let (go, free) = (Notify::new(), AtomicBool::new(false));
        let replace = async {
            for new in 1..=2 {
                cx.attach("grid").write(format!("new {new}").as_bytes()).await.unwrap();
                cx.save::<Self>(&(at + new)).await.unwrap();
            }
            free.store(true, Relaxed);
            go.notify_waiters();
        };
        let (read, ()) = tokio::join!(cx.attach("grid").read(Gated(0, &go, &free, None)), replace);
        self.0.lock().unwrap().push(format!("{read:?}"));
        read?;
        Ok(Step::Done(()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_under_way_survives_that_its_content_is_replaced_and_saved() {
    let (store, job) = (memory::store(), ReadsWhileWriting::default());
    enqueue_j(&store, ReadsWhileWriting::KIND).await;
    let _worker = start_job(&store, job.clone());
    within(secs(100), "a read", async || !job.0.lock().unwrap().is_empty()).await;
    let reads = job.0.lock().unwrap().clone();
    assert!(reads[0].starts_with("Ok"), "{reads:?}");
}

/// Attaches these contents, one in each step.
#[derive(Debug, Clone, Default)]
struct Toggles {
    contents: Vec<&'static str>,
    found: Arc<Mutex<Vec<(usize, String)>>>,
    /// Attaches another content first in the step of this number.
    first: Option<(usize, &'static str)>,
}

#[async_trait]
impl Job for Toggles {
    const KIND: &'static str = "toggles";
    type Args = ();
    type Checkpoint = usize;
    type Output = ();

    fn begin(&self, (): &()) -> usize {
        0
    }

    async fn step(&self, cx: &JobContext, (): &(), at: usize) -> Result<Step<usize, ()>, JobError> {
        if cx.steps() == 0 && at > 0 {
            if self.found.lock().unwrap().len() > 50 {
                // Otherwise the paused clock would never advance.
                std::future::pending::<()>().await;
            }
            let mut read = Vec::new();
            let ended = cx.attach("toggle").read(&mut read).await;
            let text = ended.as_ref().map_or_else(ToString::to_string, |_| String::from_utf8(read).unwrap());
            self.found.lock().unwrap().push((at, text));
            ended?;
        }
        tokio::time::sleep(secs(1)).await;
        let Some(content) = self.contents.get(at) else { return Ok(Step::Done(())) };
        if let Some((step, other)) = self.first
            && step == at
        {
            cx.attach("toggle").write(other.as_bytes()).await?;
        }
        cx.attach("toggle").write(content.as_bytes()).await?;
        Ok(Step::Continue(at + 1))
    }
}

/// The answer to the save of step `lost` is lost, and the worker dies after step 5.
async fn with_a_lost_answer(job: &Toggles, lost: u64) {
    let (inner, every) =
        (memory::store(), Settings { checkpoint_every: CheckpointEvery::Every(secs(0)), ..settings() });
    let (store, faults) = Faults::wrap(inner.clone());
    enqueue_j(&store, Toggles::KIND).await;
    for save in 1..=5 {
        faults.next_calls(Op::Save, 1, if save == lost { Fault::LoseAnswer } else { Fault::Delay(ms(0)) });
    }
    on_one_clock();
    let run = async |store: &Store| {
        let worker = reprieve_core::worker::Worker::builder(store.clone())
            .job(job.clone())
            .settings(every.clone())
            .interruptions(Arc::new(ManualNotices::answered()))
            .build()
            .unwrap();
        let (stopper, stopping) = reprieve_core::worker::stopping();
        (tokio::spawn(worker.run(stopping)), stopper)
    };
    let (first, _keep) = run(&store).await;
    tokio::time::sleep(ms(5_500)).await;
    first.abort();
    let (_next, _keep) = run(&inner).await;
    within(secs(1_000), "the end, or many tries", async || {
        total(&inner).await == 0 || job.found.lock().unwrap().len() > 50
    })
    .await;
    let found = job.found.lock().unwrap().clone();
    assert_eq!(poisoned(&inner).await, Vec::<String>::new(), "{found:?}");
    assert_eq!(found.len(), 1, "nothing of the store was damaged: {found:?}");
}

/// A content comes back that the checkpoint before the last one had.
#[tokio::test(start_paused = true)]
async fn a_content_that_comes_back_after_a_lost_answer_is_there() {
    let contents = vec!["one", "two", "three", "one", "one", "one", "one", "one"];
    with_a_lost_answer(&Toggles { contents, ..Toggles::default() }, 3).await;
}

/// A content comes back that was replaced before it was saved.
#[tokio::test(start_paused = true)]
async fn a_content_that_was_replaced_before_a_lost_answer_is_there_again() {
    let contents = vec!["one", "two", "three", "draft", "draft", "draft", "draft"];
    with_a_lost_answer(&Toggles { contents, first: Some((2, "draft")), ..Toggles::default() }, 3).await;
}

/// The control: no answer is lost.
#[tokio::test(start_paused = true)]
async fn a_content_that_comes_back_is_there() {
    let contents = vec!["one", "two", "three", "one", "one", "one", "one", "one"];
    with_a_lost_answer(&Toggles { contents, ..Toggles::default() }, 99).await;
}

/// Writes an attachment in the background of its step, and saves when that is due.
#[derive(Debug, Clone, Default)]
struct SavesBesideAWrite(Arc<Mutex<Vec<&'static str>>>);

/// Yields one byte a second.
struct Slow(u32, Pin<Box<tokio::time::Sleep>>);

impl tokio::io::AsyncRead for Slow {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut tokio::io::ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        if self.0 == 0 {
            return Poll::Ready(Ok(()));
        }
        std::task::ready!(self.1.as_mut().poll(cx));
        self.1 = Box::pin(tokio::time::sleep(secs(1)));
        self.0 -= 1;
        buf.put_slice(b"x");
        Poll::Ready(Ok(()))
    }
}

#[async_trait]
impl Job for SavesBesideAWrite {
    const KIND: &'static str = "saves-beside-a-write";
    type Args = ();
    type Checkpoint = u32;
    type Output = ();

    fn begin(&self, (): &()) -> u32 {
        0
    }

    async fn step(&self, cx: &JobContext, (): &(), at: u32) -> Result<Step<u32, ()>, JobError> {
        let mut write =
            std::pin::pin!(cx.attach("log").write(Slow(20, Box::pin(tokio::time::sleep(secs(1))))));
        loop {
            tokio::select! {
                written = &mut write => {
                    written?;
                    self.0.lock().unwrap().push("written");
                    return Ok(Step::Done(()));
                }
                () = cx.checkpoint_due() => {
                    self.0.lock().unwrap().push("due");
                    cx.save::<Self>(&at).await?;
                    self.0.lock().unwrap().push("saved");
                }
            }
        }
    }
}

/// docs/checkpoints.md advises `cx.checkpoint_due()` "in a `select!`". Beside a write it never returns.
#[tokio::test(start_paused = true)]
async fn a_save_beside_the_write_of_an_attachment_does_not_hang() {
    let (store, job) = (memory::store(), SavesBesideAWrite::default());
    enqueue_j(&store, SavesBesideAWrite::KIND).await;
    let _worker = start_job(&store, job.clone());
    tokio::time::sleep(secs(3_600)).await;
    assert_eq!(total(&store).await, 0, "an hour later: {:?}", job.0.lock().unwrap());
}

/// Three attachments with contents that come back often, and a check of them at the beginning of each
/// delivery.
#[derive(Debug, Clone)]
struct Random {
    seed: u64,
    steps: u32,
    deliveries: Arc<AtomicU32>,
    wrong: Arc<Mutex<Vec<String>>>,
}

fn mix(seed: u64, step: u32, what: u64) -> u64 {
    let mut x = seed ^ (u64::from(step) << 32) ^ (what << 17);
    for _ in 0..3 {
        x ^= x >> 30;
        x = x.wrapping_mul(0xBF58_476D_1CE4_E5B9).rotate_left(31);
    }
    x >> 5
}

/// The content at a state; `None` where there is no attachment.
fn content(seed: u64, at: u32, name: u64) -> Option<String> {
    let number = if at == 0 { 0 } else { mix(seed, at, name) % 5 };
    (number > 0).then(|| format!("content {number}"))
}

#[async_trait]
impl Job for Random {
    const KIND: &'static str = "random";
    type Args = ();
    type Checkpoint = (u32, Vec<u8>);
    type Output = ();

    fn begin(&self, (): &()) -> (u32, Vec<u8>) {
        (0, vec![0])
    }

    async fn step(
        &self,
        cx: &JobContext,
        (): &(),
        (at, _): (u32, Vec<u8>),
    ) -> Result<Step<(u32, Vec<u8>), ()>, JobError> {
        let seed = self.seed;
        if cx.steps() == 0 {
            let delivery = self.deliveries.fetch_add(1, Relaxed);
            if self.wrong.lock().unwrap().len() > 20 {
                std::future::pending::<()>().await;
            }
            for name in 0..3 {
                let mut read = Vec::new();
                let length = cx.attach(&format!("{name}")).read(&mut read).await;
                let text = match &length {
                    Ok(length) => Ok(length.map(|_| String::from_utf8(read.clone()).unwrap())),
                    Err(error) if error.is_temporary() => Ok(content(seed, at, name)),
                    Err(error) => Err(error.to_string()),
                };
                if text != Ok(content(seed, at, name)) {
                    self.wrong
                        .lock()
                        .unwrap()
                        .push(format!("beginning {delivery}, step {at}, {name}: {text:?}"));
                }
                length?;
            }
        }
        tokio::time::sleep(ms(50 + mix(seed, at, 50) % 900)).await;
        let next = at + 1;
        for name in 0..3 {
            let attachment = format!("{name}");
            if mix(seed, next, name + 10).is_multiple_of(4) {
                cx.attach(&attachment)
                    .write(format!("content {}", mix(seed, next, name + 20) % 5).as_bytes())
                    .await?;
            }
            match content(seed, next, name) {
                Some(text) => drop(cx.attach(&attachment).write(text.as_bytes()).await?),
                None => drop(cx.attach(&attachment).remove().await),
            }
        }
        // Inside the record, in a payload, and in between.
        let state = (next, vec![7; [10, 19_000, 30_000][mix(seed, next, 30) as usize % 3]]);
        if mix(seed, next, 40).is_multiple_of(3) {
            cx.save::<Self>(&state).await?;
        }
        Ok(if next == self.steps { Step::Done(()) } else { Step::Continue(state) })
    }
}

/// Starts a worker whose gate can be closed.
fn start_gated<J: Job>(
    store: &Store,
    job: J,
    every: Duration,
) -> (reprieve_core::process::Gate, ManualNotices) {
    on_one_clock();
    let (gate, notices) = (reprieve_core::process::Gate::new(), ManualNotices::answered());
    let worker = reprieve_core::worker::Worker::builder(store.clone())
        .job(job)
        .settings(Settings { checkpoint_every: CheckpointEvery::Every(every), ..settings() })
        .interruptions(Arc::new(notices.clone()))
        .build()
        .unwrap();
    let (stopper, stopping) = reprieve_core::worker::stopping();
    let running = gate.clone().run(worker.run(stopping));
    tokio::spawn(async move {
        Box::pin(running).await;
        drop(stopper);
    });
    (gate, notices)
}

/// Runs seeds of it on workers that are evicted and killed, over a store with these faults.
async fn run_seeds(seeds: std::ops::Range<u64>, faults_of: impl Fn(u64) -> Vec<(Op, Fault)>) {
    run_seeds_for_days(seeds, faults_of, false).await;
}

/// With `days`, more than a week passes after each end of a worker, the store is cleaned, and workers
/// that were frozen weeks ago go on.
async fn run_seeds_for_days(
    seeds: std::ops::Range<u64>,
    faults_of: impl Fn(u64) -> Vec<(Op, Fault)>,
    days: bool,
) {
    let mut wrong = Vec::new();
    let mut deliveries = 0;
    for seed in seeds {
        let inner = memory::store();
        let (store, faults) = Faults::wrap(inner.clone());
        let job = Random { seed, steps: 60, deliveries: Arc::default(), wrong: Arc::default() };
        enqueue_j(&inner, Random::KIND).await;
        let every = [secs(0), secs(1), secs(5)][seed as usize % 3];
        let mut frozen = Vec::new();
        for round in 0..12 {
            let (gate, notices) = start_gated(&store, job.clone(), every);
            for slice in 0..=mix(seed, round, 60) % 8 {
                for (op, fault) in faults_of(mix(seed, round, 61 + slice)) {
                    faults.next_calls(op, 1, fault);
                }
                tokio::time::sleep(ms(1_100)).await;
            }
            if mix(seed, round, 70).is_multiple_of(2) {
                notices.notice(preempt("evicted"));
                tokio::time::sleep(secs(11)).await;
            }
            gate.freeze();
            frozen.push(gate);
            tokio::time::sleep(secs(61)).await;
            if total(&inner).await == 0 {
                break;
            }
            if days {
                advance(DAY * (5 + mix(seed, round, 80) as u32 % 9)).await;
                let removed = clean(&inner, Keep::default(), false).await;
                if mix(seed, round, 81).is_multiple_of(3) {
                    let thawed = frozen.swap_remove(mix(seed, round, 82) as usize % frozen.len());
                    thawed.thaw();
                    tokio::time::sleep(ms(mix(seed, round, 83) % 5_000)).await;
                    if mix(seed, round, 84).is_multiple_of(2) {
                        thawed.freeze();
                    }
                }
                assert_eq!((removed.records, removed.arguments), (0, 0), "seed {seed}: {removed:?}");
            }
        }
        deliveries += job.deliveries.load(Relaxed);
        let found = job.wrong.lock().unwrap().clone();
        wrong.extend(found.into_iter().take(2).map(|what| format!("seed {seed}: {what}")));
        // A job that was killed again and again before it could save is rightly given up.
        let letters = poisoned(&inner).await;
        let wrongly = letters.iter().any(|reason| !reason.contains("deliveries ended with the death"));
        wrong.extend(wrongly.then(|| format!("seed {seed}: {letters:?}")));
        if total(&inner).await == 0 && letters.is_empty() {
            // What a killed worker had sent ahead goes later.
            advance(9 * DAY).await;
            clean(&inner, Keep::default(), false).await;
            let left = inner.records.payload_page(None).await.unwrap().entries.len()
                + jobs_with_records(&inner).await.len();
            wrong.extend((left > 0).then(|| format!("seed {seed}: {left} payloads are left")));
        }
    }
    assert!(wrong.is_empty(), "{} wrong of {deliveries} beginnings: {wrong:#?}", wrong.len());
}

#[tokio::test(start_paused = true)]
async fn after_evictions_and_kills_a_job_finds_what_it_had_attached() {
    run_seeds(0..12, |_| Vec::new()).await;
}

#[tokio::test(start_paused = true)]
async fn after_weeks_cleanings_and_freezes_a_job_finds_what_it_had_attached() {
    run_seeds_for_days(500..512, |_| Vec::new(), true).await;
}

#[tokio::test(start_paused = true)]
async fn after_failures_of_the_store_a_job_finds_what_it_had_attached() {
    use reprieve_core::ErrorKind::Unavailable;
    run_seeds(100..112, |random| match random % 4 {
        0 => vec![(Op::Save, Fault::Fail(Unavailable))],
        1 => vec![(Op::StorePayload, Fault::Fail(Unavailable))],
        2 => vec![(Op::Save, Fault::Delay(ms(700))), (Op::Payload, Fault::Fail(Unavailable))],
        _ => vec![],
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn after_lost_answers_of_uploads_a_job_finds_what_it_had_attached() {
    run_seeds(200..212, |random| match random % 4 {
        0 => vec![(Op::StorePayload, Fault::LoseAnswer)],
        1 => vec![(Op::Release, Fault::LoseAnswer), (Op::Load, Fault::LoseAnswer)],
        2 => vec![(Op::Complete, Fault::LoseAnswer), (Op::Renew, Fault::LoseAnswer)],
        _ => vec![],
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn after_lost_answers_of_saves_a_job_finds_what_it_had_attached() {
    run_seeds(
        300..312,
        |random| if random.is_multiple_of(3) { vec![(Op::Save, Fault::LoseAnswer)] } else { vec![] },
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn after_late_answers_of_saves_a_job_finds_what_it_had_attached() {
    run_seeds(400..412, |random| match random % 6 {
        0 => vec![(Op::Save, Fault::LateAnswer(secs(40)))],
        1 => vec![(Op::Save, Fault::Delay(secs(40)))],
        _ => vec![],
    })
    .await;
}
