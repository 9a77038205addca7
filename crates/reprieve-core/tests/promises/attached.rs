//! Attachments are part of a job's progress: what a resumed job reads is what was attached when its
//! state was saved, only changed chunks are sent, and nothing remains when the job is done.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use async_trait::async_trait;
use reprieve_core::memory::{self, Fault, Faults, Op};
use reprieve_core::ports::{Payload, Store};
use reprieve_core::record::{CHUNK_BYTES, Manifest, Place};
use reprieve_core::{BlobName, Bytes, ErrorKind, Job, JobContext, JobError, JobId, PayloadName, Step};
use tokio::io::{AsyncRead, ReadBuf};

use crate::support::*;

/// Bytes of `chunks` chunks and a bit more. Chunk number i consists of `versions[i]`.
fn grid(versions: &[u8]) -> Vec<u8> {
    let mut grid = Vec::with_capacity(versions.len() * CHUNK_BYTES + 8);
    for (number, version) in versions.iter().enumerate() {
        grid.resize((number + 1) * CHUNK_BYTES, *version);
    }
    grid.extend_from_slice(b"the rest");
    grid
}

/// A job that changes one of three chunks in each of its steps.
#[derive(Debug, Clone, Default)]
struct Grids {
    steps: u8,
    /// The state and the grid at the beginning of each delivery.
    found: Arc<Mutex<Vec<Found>>>,
}

type Found = (u8, Option<Vec<u8>>);

fn versions(step: u8) -> [u8; 3] {
    // The chunks get the versions 1, 2, 3, 4, … in turn.
    let at = |chunk: u8| if step > chunk { (step - 1 - chunk) / 3 * 3 + chunk + 1 } else { 0 };
    [at(0), at(1), at(2)]
}

#[async_trait]
impl Job for Grids {
    const KIND: &'static str = "grids";
    type Args = ();
    type Checkpoint = u8;
    type Output = ();

    fn begin(&self, (): &()) -> u8 {
        0
    }

    async fn step(&self, cx: &JobContext, (): &(), mut at: u8) -> Result<Step<u8, ()>, JobError> {
        if cx.steps() == 0 {
            let mut grid = Vec::new();
            let length = cx.attach("grid").read(&mut grid).await?;
            assert_eq!(length, cx.attach("grid").size().await);
            self.found.lock().unwrap().push((at, length.map(|_| grid)));
        }
        tokio::time::sleep(secs(1)).await;
        at += 1;
        cx.attach("grid").write(&grid(&versions(at))[..]).await?;
        Ok(if at == self.steps { Step::Done(()) } else { Step::Continue(at) })
    }
}

async fn manifests(store: &Store, job: &JobId) -> Vec<Manifest> {
    let record = record(store, job).await.unwrap();
    let mut manifests = Vec::new();
    for checkpoint in record.checkpoints {
        let part = checkpoint.attachments.unwrap();
        let Place::Inside(bytes) = part.place else { panic!("the manifest of three chunks is short") };
        manifests.push(Manifest::decode(&bytes).unwrap());
    }
    manifests
}

#[tokio::test(start_paused = true)]
async fn an_evicted_job_finds_what_it_had_attached_when_its_state_was_saved() {
    let (store, records) = listed_store();
    let job = Grids { steps: 30, ..Grids::default() };
    enqueue_j(&store, Grids::KIND).await;
    for _ in 0..2 {
        let worker = start_job(&store, job.clone());
        tokio::time::sleep(ms(8_500)).await;
        assert_eq!(worker.evict(secs(30)).await.released_saved, 1);
        worker.kill().await;
    }
    let _last = start_job(&store, job.clone());
    emptied(&store, secs(100)).await;
    let found = job.found.lock().unwrap().clone();
    assert_eq!(found.len(), 3);
    assert_eq!(found[0], (0, None));
    for (at, read) in &found[1..] {
        assert!(*at >= 8 && *read == Some(grid(&versions(*at))), "at step {at}");
    }
    assert_eq!(records.payloads(), [], "a finished job leaves nothing");
}

#[tokio::test(start_paused = true)]
async fn a_killed_job_finds_what_belongs_to_its_last_save_and_not_what_it_attached_later() {
    let store = memory::store();
    let job = Grids { steps: 20, ..Grids::default() };
    enqueue_j(&store, Grids::KIND).await;
    let worker = start_job(&store, job.clone());
    tokio::time::sleep(ms(8_500)).await;
    worker.kill().await;
    let _next = start_job(&store, job.clone());
    emptied(&store, secs(300)).await;
    let (at, read) = job.found.lock().unwrap()[1].clone();
    assert!((1..8).contains(&at), "{at}");
    assert_eq!(read, Some(grid(&versions(at))));
}

#[tokio::test(start_paused = true)]
async fn only_changed_chunks_are_sent_and_those_of_the_last_two_checkpoints_kept() {
    let (inner, records) = listed_store();
    let (store, faults) = Faults::wrap(inner);
    let job = Grids { steps: 60, ..Grids::default() };
    let id = enqueue_j(&store, Grids::KIND).await;
    let _worker = start_job(&store, job);
    tokio::time::sleep(ms(20_500)).await;
    let before = faults.calls(Op::StorePayload);
    tokio::time::sleep(secs(20)).await;
    let sent = faults.calls(Op::StorePayload) - before;
    assert!((18..=22).contains(&sent), "one chunk changes in each of 20 steps: {sent} were sent");
    let named: Vec<_> = manifests(&store, &id).await.iter().flat_map(Manifest::payloads).cloned().collect();
    let stored = records.payloads();
    assert!(
        named.iter().all(|name| stored.contains(&(id.clone(), name.clone()))),
        "all that is named is there"
    );
    // Two checkpoints name at most 7 chunks, and each of five steps since the last save sent one.
    assert!(stored.len() <= 13, "{} payloads", stored.len());
}

/// What may happen to a chunk of the newest checkpoint.
const HARMS: [fn(Vec<u8>) -> Vec<u8>; 4] = [
    |_| Vec::new(),
    |bytes| bytes[..bytes.len() / 2].to_vec(),
    |mut bytes| {
        bytes[77] ^= 1;
        bytes
    },
    |_| grid(&[9])[..CHUNK_BYTES].to_vec(),
];

#[tokio::test(start_paused = true)]
async fn a_damaged_chunk_costs_the_steps_since_the_checkpoint_before_it() {
    for (number, harm) in HARMS.iter().enumerate() {
        let store = memory::store();
        let job = Grids { steps: 20, ..Grids::default() };
        let id = enqueue_j(&store, Grids::KIND).await;
        let worker = start_job(&store, job.clone());
        tokio::time::sleep(ms(11_500)).await;
        worker.kill().await;
        let [newest, before] = &manifests(&store, &id).await[..] else { panic!("two checkpoints") };
        let old: Vec<&PayloadName> = before.payloads().collect();
        let fresh = newest.payloads().find(|name| !old.contains(name)).unwrap();
        let bytes = store.records.payload(&id, fresh).await.unwrap().unwrap().to_vec();
        let payload = Payload { name: fresh.clone(), bytes: harm(bytes).into() };
        store.records.store_payload(&id, payload).await.unwrap();

        let _next = start_job(&store, job.clone());
        emptied(&store, secs(300)).await;
        let found = job.found.lock().unwrap().clone();
        let (at, read) = found.last().unwrap();
        assert!(*at >= 1 && *read == Some(grid(&versions(*at))), "harm {number}: resumed at {at}");
        assert_eq!(poisoned(&store).await, Vec::<String>::new());
    }
}

#[tokio::test(start_paused = true)]
async fn without_an_intact_checkpoint_the_job_begins_again() {
    let store = memory::store();
    let job = Grids { steps: 20, ..Grids::default() };
    let id = enqueue_j(&store, Grids::KIND).await;
    let worker = start_job(&store, job.clone());
    tokio::time::sleep(ms(11_500)).await;
    worker.kill().await;
    for manifest in manifests(&store, &id).await {
        for name in manifest.payloads() {
            let gone = Payload { name: name.clone(), bytes: Bytes::new() };
            store.records.store_payload(&id, gone).await.unwrap();
        }
    }
    let _next = start_job(&store, job.clone());
    emptied(&store, secs(300)).await;
    let found = job.found.lock().unwrap().clone();
    assert_eq!(found.last(), Some(&(0, None)));
    assert_eq!(poisoned(&store).await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn an_outage_while_attaching_fails_no_step() {
    let (store, faults) = Faults::wrap(memory::store());
    let job = Grids { steps: 10, ..Grids::default() };
    enqueue_j(&store, Grids::KIND).await;
    faults.every_call(Op::StorePayload, Fault::Fail(ErrorKind::Unavailable));
    let _worker = start_job(&store, job.clone());
    tokio::time::sleep(secs(40)).await;
    assert_eq!(total(&store).await, 1);
    faults.clear(Op::StorePayload);
    emptied(&store, secs(100)).await;
    assert_eq!(poisoned(&store).await, Vec::<String>::new());
    assert_eq!(job.found.lock().unwrap().len(), 1, "one delivery");
}

/// Yields this many bytes and counts them, without holding them.
struct Source {
    left: u64,
    /// It never yields its end.
    stalls: bool,
}

impl AsyncRead for Source {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.left == 0 && self.stalls {
            return Poll::Pending;
        }
        let now = usize::try_from(self.left).unwrap_or(usize::MAX).min(buf.remaining()).min(100_000);
        // Every chunk is another one.
        let byte = (self.left / CHUNK_BYTES as u64 % 251) as u8;
        buf.initialize_unfilled_to(now).fill(byte);
        buf.advance(now);
        self.left -= now as u64;
        Poll::Ready(Ok(()))
    }
}

/// Attaches this number of bytes, and tries what a step may do wrong.
#[derive(Debug, Clone, Default)]
struct Odd {
    seen: Arc<Mutex<Vec<String>>>,
}

#[async_trait]
impl Job for Odd {
    const KIND: &'static str = "odd";
    type Args = ();
    type Checkpoint = u32;
    type Output = ();

    fn begin(&self, (): &()) -> u32 {
        0
    }

    async fn step(&self, cx: &JobContext, (): &(), at: u32) -> Result<Step<u32, ()>, JobError> {
        let bad = cx.attach("").write(&b"x"[..]).await.unwrap_err();
        self.seen.lock().unwrap().push(bad.to_string());
        assert_eq!(cx.attach("empty").write(&b""[..]).await?, 0);
        let mut nothing = Vec::new();
        assert_eq!(cx.attach("empty").read(&mut nothing).await?, Some(0));
        let length = 3 * CHUNK_BYTES as u64 + 17;
        assert_eq!(cx.attach("large").write(Source { left: length, stalls: false }).await?, length);
        assert!(cx.save::<Self>(&at).await?);
        let mut read = Vec::new();
        assert_eq!(cx.attach("large").read(&mut read).await?, Some(length));
        assert_eq!(read.len() as u64, length);
        assert!(cx.attach("large").remove().await && !cx.attach("large").remove().await);
        assert_eq!(cx.attach("large").read(&mut read).await?, None);
        // A write that is dropped changes nothing.
        tokio::select! {
            biased;
            _ = cx.attach("empty").write(Source { left: length, stalls: true }) => unreachable!("it has no end"),
            () = tokio::time::sleep(ms(1)) => {}
        }
        assert_eq!(cx.attach("empty").size().await, Some(0));
        Ok(Step::Done(()))
    }
}

#[tokio::test(start_paused = true)]
async fn contents_of_any_length_can_be_attached_read_and_removed_within_a_step() {
    let (store, records) = listed_store();
    let job = Odd::default();
    enqueue_j(&store, Odd::KIND).await;
    let _worker = start_job(&store, job.clone());
    emptied(&store, secs(100)).await;
    assert_eq!(poisoned(&store).await, Vec::<String>::new());
    assert_eq!(
        *job.seen.lock().unwrap(),
        ["write an attachment: the name of an attachment has 1 to 240 bytes"]
    );
    assert_eq!(records.payloads(), []);
}

/// A job that attaches the next state's content while it saves a state. At the end of its life it
/// waits to be killed.
#[derive(Debug, Clone, Default)]
struct Overlaps {
    found: Arc<Mutex<Vec<Resumed>>>,
}

/// The state and the content.
type Resumed = (u8, Vec<u8>);

#[async_trait]
impl Job for Overlaps {
    const KIND: &'static str = "overlaps";
    type Args = ();
    type Checkpoint = u8;
    type Output = ();

    fn begin(&self, (): &()) -> u8 {
        0
    }

    async fn step(&self, cx: &JobContext, (): &(), mut at: u8) -> Result<Step<u8, ()>, JobError> {
        // Two contents in turn, so that a write sends nothing and never waits.
        let content = |at: u8| [at % 2; 8];
        if cx.steps() == 0 && at > 0 {
            let mut found = Vec::new();
            cx.attach("content").read(&mut found).await?;
            self.found.lock().unwrap().push((at, found));
            return Ok(Step::Done(()));
        }
        if cx.steps() < 4 {
            at += 1;
            cx.attach("content").write(&content(at)[..]).await?;
            return Ok(Step::Continue(at));
        }
        let next = content(at + 1);
        let (saved, written) =
            tokio::join!(biased; cx.save::<Self>(&at), cx.attach("content").write(&next[..]));
        assert!(saved? && written? == 8);
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn a_save_that_begins_before_a_write_ends_saves_the_former_content() {
    let (store, job) = (memory::store(), Overlaps::default());
    enqueue_j(&store, Overlaps::KIND).await;
    let first = start_job(&store, job.clone());
    tokio::time::sleep(secs(10)).await;
    first.kill().await;
    let _second = start_job(&store, job.clone());
    emptied(&store, secs(300)).await;
    assert_eq!(*job.found.lock().unwrap(), [(4, vec![0; 8])]);
}

/// A job that keeps a number beside its state, which it loads in its first step. Its log is damaged
/// once.
#[derive(Debug, Clone)]
struct Keeps {
    store: Store,
    beside: Arc<Mutex<u8>>,
    damages: Arc<Mutex<u8>>,
}

#[async_trait]
impl Job for Keeps {
    const KIND: &'static str = "keeps";
    type Args = ();
    type Checkpoint = u8;
    type Output = u8;

    fn begin(&self, (): &()) -> u8 {
        0
    }

    async fn step(&self, cx: &JobContext, (): &(), mut at: u8) -> Result<Step<u8, u8>, JobError> {
        if cx.steps() == 0 {
            let mut number = Vec::new();
            cx.attach("number").read(&mut number).await?;
            *self.beside.lock().unwrap() = number.first().copied().unwrap_or_default();
        }
        if at == 6 {
            let is_first = std::mem::take(&mut *self.damages.lock().unwrap()) > 0;
            if is_first {
                let newest = manifests(&self.store, cx.job()).await.remove(0);
                // That of the log: manifests are in the order of names.
                let chunk = newest.payloads().next().unwrap().clone();
                self.store.records.remove_payloads(cx.job(), &[chunk]).await?;
            }
            cx.attach("log").read(&mut Vec::new()).await?;
        }
        at += 1;
        let number = {
            let mut beside = self.beside.lock().unwrap();
            *beside += 1;
            *beside
        };
        cx.attach("number").write(&[number][..]).await?;
        cx.attach("log").write(&[b'l', at][..]).await?;
        Ok(if at == 10 { Step::Done(number) } else { Step::Continue(at) })
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_goes_back_loads_again_what_it_keeps_beside_its_state() {
    let store = memory::store();
    let job = Keeps { store: store.clone(), beside: Arc::default(), damages: Arc::new(Mutex::new(1)) };
    enqueue_j(&store, Keeps::KIND).await;
    let _worker = start_saving(&store, job.clone());
    emptied(&store, secs(100)).await;
    assert_eq!(*job.damages.lock().unwrap(), 0, "it went back");
    let result = store.blobs.get(&BlobName::parse("results/j.json").unwrap()).await.unwrap();
    assert_eq!(result.as_deref(), Some(&b"10"[..]));
}

/// A job that stops polling a write, which waits for a save, and saves again.
#[derive(Debug, Clone)]
struct Selects;

#[async_trait]
impl Job for Selects {
    const KIND: &'static str = "selects";
    type Args = ();
    type Checkpoint = u8;
    type Output = ();

    fn begin(&self, (): &()) -> u8 {
        0
    }

    async fn step(&self, cx: &JobContext, (): &(), at: u8) -> Result<Step<u8, ()>, JobError> {
        if at == 0 {
            cx.attach("content").write(&b"known"[..]).await?;
            return Ok(Step::Continue(1));
        }
        let mut save = std::pin::pin!(cx.save::<Self>(&at));
        let mut write = std::pin::pin!(cx.attach("content").write(&b"known"[..]));
        tokio::select! {
            biased;
            saved = &mut save => {
                assert!(saved? && cx.save::<Self>(&at).await?);
                cx.attach("other").write(&b"known"[..]).await?;
                cx.attach("other").remove().await;
            }
            _ = &mut write => panic!("it waits for the save"),
        }
        Ok(Step::Done(()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_its_step_stops_polling_blocks_no_later_call() {
    let store = memory::store();
    enqueue_j(&store, Selects::KIND).await;
    let _worker = start_job(&store, Selects);
    emptied(&store, secs(20)).await;
    assert_eq!(poisoned(&store).await, Vec::<String>::new());
}

/// A file that grows: it has a few more bytes whenever its end was reached.
struct Growing {
    left: usize,
    ends: usize,
}

impl AsyncRead for Growing {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let now = self.left.min(buf.remaining());
        buf.initialize_unfilled_to(now).fill(b'x');
        buf.advance(now);
        self.left -= now;
        // Not without end: a write that reads on must end, too.
        if now == 0 && self.ends < 10 {
            self.ends += 1;
            self.left = 16;
        }
        Poll::Ready(Ok(()))
    }
}

#[derive(Debug, Clone, Default)]
struct Tails {
    written: Arc<Mutex<Vec<u64>>>,
}

#[async_trait]
impl Job for Tails {
    const KIND: &'static str = "tails";
    type Args = ();
    type Checkpoint = u8;
    type Output = ();

    fn begin(&self, (): &()) -> u8 {
        0
    }

    async fn step(&self, cx: &JobContext, (): &(), _: u8) -> Result<Step<u8, ()>, JobError> {
        for bytes in LOGS {
            let written = cx.attach("log").write(Growing { left: bytes, ends: 0 }).await?;
            self.written.lock().unwrap().push(written);
        }
        Ok(Step::Done(()))
    }
}

/// Less than a chunk, and more.
const LOGS: [usize; 2] = [1_000, CHUNK_BYTES + 1_000];

#[tokio::test(start_paused = true)]
async fn a_file_that_grows_is_attached_up_to_the_end_that_is_reached_first() {
    let (store, job) = (memory::store(), Tails::default());
    enqueue_j(&store, Tails::KIND).await;
    let _worker = start_job(&store, job.clone());
    emptied(&store, secs(20)).await;
    assert_eq!(*job.written.lock().unwrap(), LOGS.map(|bytes| bytes as u64));
}

/// A job that attaches, and then fails or ends before anything of it is saved.
#[derive(Debug)]
struct EndsAtOnce {
    failures: u32,
    saves: bool,
}

#[async_trait]
impl Job for EndsAtOnce {
    const KIND: &'static str = "ends-at-once";
    type Args = ();
    type Checkpoint = u8;
    type Output = ();

    fn begin(&self, (): &()) -> u8 {
        0
    }

    async fn step(&self, cx: &JobContext, (): &(), at: u8) -> Result<Step<u8, ()>, JobError> {
        cx.attach("grid").write(&grid(&[1, 2])[..]).await?;
        if self.saves && at == 0 {
            cx.save::<Self>(&1).await?;
            cx.attach("grid").write(&grid(&[1, 3, 4])[..]).await?;
        }
        if cx.delivery() <= self.failures {
            return Err(JobError::retry("not yet"));
        }
        if self.failures == u32::MAX {
            return Err(JobError::fatal("never"));
        }
        Ok(Step::Done(()))
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_job_attached_and_never_saved_is_removed_when_its_delivery_ends() {
    for (failures, saves) in [(0, false), (3, false), (0, true), (3, true)] {
        let (store, records) = listed_store();
        enqueue_j(&store, EndsAtOnce::KIND).await;
        let worker = start_job(&store, EndsAtOnce { failures, saves });
        within(secs(600), "an empty queue", async || {
            let between =
                record(&store, &JobId::parse("j").unwrap()).await.is_some_and(|it| it.account.failed > 0);
            if between && leased(&store).await == 0 {
                // Three chunks of the saved state, and none of the step that failed.
                assert!(records.payloads().len() <= 3, "{:?}", records.payloads());
            }
            total(&store).await == 0
        })
        .await;
        worker.stop().await;
        assert_eq!(records.payloads(), [], "{failures} failures, saves: {saves}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_dead_lettered_job_keeps_what_its_checkpoints_name_and_nothing_else() {
    for saves in [false, true] {
        let (store, records) = listed_store();
        let job = enqueue_j(&store, EndsAtOnce::KIND).await;
        let worker = start_job(&store, EndsAtOnce { failures: u32::MAX, saves });
        within(secs(7_200), "the dead letter", async || !poisoned(&store).await.is_empty()).await;
        worker.stop().await;
        let named: Vec<_> =
            manifests(&store, &job).await.iter().flat_map(Manifest::payloads).cloned().collect();
        let stored: Vec<_> = records.payloads().into_iter().map(|(_, name)| name).collect();
        assert_eq!(stored, named, "saves: {saves}");
        assert_eq!(stored.len(), if saves { 3 } else { 0 });
    }
}
