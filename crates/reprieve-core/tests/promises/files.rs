//! Inputs and outputs as ranges and streams: of one write, in bounded memory, through outages, and
//! never a part of an output.

use std::io::SeekFrom;
use std::ops::{Bound, Range};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use reprieve_core::memory::{self, Fault, Faults, Op};
use reprieve_core::ports::{BlobRange, BlobStore, ListedBlob, PART_BYTES, Page, Store, Upload, Version};
use reprieve_core::process::Gate;
use reprieve_core::worker::Settings;
use reprieve_core::{
    BlobName, Bytes, Error, ErrorKind, Fence, Job, JobContext, JobError, JobId, Result, Step, Writer,
};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncSeekExt, AsyncWriteExt, ReadBuf};

use crate::support::*;

type Stepped<'a> = BoxFuture<'a, Result<(), JobError>>;

type StepOf = dyn for<'a> Fn(&'a JobContext, u32) -> Stepped<'a> + Send + Sync;

/// A job whose steps call this function with their number, the first with 0.
struct Does {
    steps: u32,
    step: Arc<StepOf>,
}

#[async_trait]
impl Job for Does {
    const KIND: &'static str = "does";
    type Args = ();
    type Checkpoint = u32;
    type Output = u32;

    fn begin(&self, (): &()) -> u32 {
        0
    }

    async fn step(&self, cx: &JobContext, (): &(), at: u32) -> Result<Step<u32, u32>, JobError> {
        (self.step)(cx, at).await?;
        Ok(if at + 1 == self.steps { Step::Done(at) } else { Step::Continue(at + 1) })
    }
}

fn does(
    steps: u32,
    step: impl for<'a> Fn(&'a JobContext, u32) -> Stepped<'a> + Send + Sync + 'static,
) -> Does {
    Does { steps, step: Arc::new(step) }
}

/// Runs the job to its end on one worker, and returns how often it was delivered.
async fn run(store: &Store, job: Does) -> u32 {
    let deliveries = Arc::new(AtomicUsize::new(0));
    let (step, count) = (Arc::clone(&job.step), Arc::clone(&deliveries));
    let counted = does(job.steps, move |cx, at| {
        count.fetch_max(cx.delivery() as usize, Relaxed);
        step(cx, at)
    });
    enqueue_j(store, Does::KIND).await;
    let worker = start_job(store, counted);
    emptied(store, secs(600)).await;
    assert_eq!(poisoned(store).await, Vec::<String>::new());
    worker.stop().await;
    u32::try_from(deliveries.load(Relaxed)).unwrap()
}

fn name(name: &str) -> BlobName {
    BlobName::parse(name).unwrap()
}

async fn put(store: &Store, blob: &str, bytes: &[u8]) {
    store.blobs.put(&name(blob), bytes.to_vec(), None).await.unwrap();
}

async fn get(store: &Store, blob: &str) -> Option<Vec<u8>> {
    store.blobs.get(&name(blob)).await.unwrap()
}

/// Bytes of this length in which every part differs from the others.
fn content(length: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from((at * 7 + at / PART_BYTES * 31) % 251).unwrap()).collect()
}

fn names(listed: &[ListedBlob]) -> Vec<(&str, u64)> {
    listed.iter().map(|blob| (blob.name.as_str(), blob.bytes)).collect()
}

const LARGE: usize = 3 * PART_BYTES + 12_345;

#[tokio::test(start_paused = true)]
async fn a_relative_output_lies_below_its_job_and_an_absolute_one_where_it_says() {
    let store = memory::store();
    put(&store, "photos/a", b"input").await;
    let job = does(2, |cx, at| {
        Box::pin(async move {
            if at == 0 {
                cx.put_output("x.txt", b"mine".to_vec()).await?;
                cx.put_output("/shared/x.txt", b"ours".to_vec()).await?;
                cx.output_stream("results/y.txt")?.finish().await?;
                for own in
                    ["/results/y.json", "/args/y", "/drains/y", "/ready/y", "/cleaning.json", "//x", ""]
                {
                    assert_eq!(cx.put_output(own, Vec::new()).await.unwrap_err().kind(), ErrorKind::Invalid);
                    assert_eq!(cx.output_stream(own).unwrap_err().kind(), ErrorKind::Invalid);
                    assert_eq!(cx.delete_output(own).await.unwrap_err().kind(), ErrorKind::Invalid);
                }
                return Ok(());
            }
            // A later step, perhaps on another machine, reads them.
            assert_eq!(cx.input(&cx.output_name("x.txt")?).await?, b"mine");
            assert_eq!(cx.input(&cx.output_name("/shared/x.txt")?).await?, b"ours");
            for input in ["photos/a", "/photos/a"] {
                assert_eq!(cx.input(input).await?, b"input");
                assert_eq!(cx.input_range(input, 1..3).await?, b"np");
                assert!(cx.exists(input).await?);
                assert_eq!(names(&cx.inputs(input).await?), [("photos/a", 5)]);
            }
            let mine = [("jobs/j/results/y.txt", 0), ("jobs/j/x.txt", 4)];
            assert_eq!(names(&cx.outputs("").await?), mine);
            assert_eq!(names(&cx.outputs("x").await?), mine[1..]);
            assert_eq!(names(&cx.outputs("/shared/").await?), [("shared/x.txt", 4)]);
            assert_eq!(names(&cx.inputs("jobs/j/").await?), mine);
            assert!(cx.exists(&cx.output_name("x.txt")?).await? && !cx.exists("x.txt").await?);
            cx.delete_output("x.txt").await?;
            cx.delete_output("x.txt").await?;
            cx.delete_output("/shared/x.txt").await?;
            assert_eq!(names(&cx.outputs("").await?), mine[..1]);
            assert!(!cx.exists("/shared/x.txt").await?);
            Ok(())
        })
    });
    assert_eq!(run(&store, job).await, 1);
    assert_eq!(get(&store, "jobs/j/results/y.txt").await.as_deref(), Some(&b""[..]));
}

#[tokio::test(start_paused = true)]
async fn a_long_list_comes_in_parts_from_any_place() {
    let store = memory::store();
    for number in 0..30 {
        put(&store, &format!("in/{number:02}"), b"x").await;
    }
    let job = does(1, |cx, _| {
        Box::pin(async move {
            assert_eq!(cx.inputs("in/").await?.len(), 30);
            let (mut at, mut found, mut parts) = (None, Vec::new(), 0);
            loop {
                let page = cx.input_page("/in/", at.as_deref()).await?;
                found.extend(page.entries.into_iter().map(|blob| blob.name.to_string()));
                parts += 1;
                at = page.next;
                if at.is_none() {
                    break;
                }
            }
            assert!(parts > 2, "{parts}");
            assert_eq!(found, (0..30).map(|number| format!("in/{number:02}")).collect::<Vec<_>>());
            Ok(())
        })
    });
    run(&store, job).await;
}

#[tokio::test(start_paused = true)]
async fn odd_ranges_have_the_bytes_that_there_are() {
    let store = memory::store();
    put(&store, "empty", b"").await;
    put(&store, "ten", b"0123456789").await;
    put(&store, "large", &content(LARGE)).await;
    let job = does(1, |cx, _| {
        Box::pin(async move {
            for range in [0..0, 0..1, 1..u64::MAX, 0..u64::MAX] {
                assert_eq!(cx.input_range("empty", range).await?, b"");
            }
            for (start, end, bytes) in [
                (0, 0, &b""[..]),
                (0, 4, b"0123"),
                (9, 10, b"9"),
                (9, 11, b"9"),
                (10, 11, b""),
                (11, u64::MAX, b""),
                (5, 3, b""),
                (20, 3, b""),
                (u64::MAX, 0, b""),
            ] {
                assert_eq!(cx.input_range("ten", start..end).await?, bytes, "{start}..{end}");
            }
            assert_eq!(cx.input_range("ten", ..).await?, b"0123456789");
            assert_eq!(cx.input_range("ten", 7..).await?, b"789");
            assert_eq!(cx.input_range("ten", ..=2).await?, b"012");
            assert_eq!(cx.input_range("ten", (Bound::Excluded(7), Bound::Included(u64::MAX))).await?, b"89");
            let (whole, part) = (content(LARGE), PART_BYTES as u64);
            for range in [part - 1..part + 1, 5..2 * part + 7, 0..LARGE as u64 + 1, part..part] {
                let expected = &whole[usize::try_from(range.start).unwrap()
                    ..whole.len().min(usize::try_from(range.end).unwrap())];
                assert!(cx.input_range("large", range.clone()).await? == expected, "{range:?}");
            }
            assert_eq!(cx.input_range("none", 0..1).await.unwrap_err().kind(), ErrorKind::NotFound);
            Ok(())
        })
    });
    run(&store, job).await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_read_from_any_place() {
    let store = memory::store();
    put(&store, "empty", b"").await;
    put(&store, "lines", b"one\ntwo\nthree").await;
    put(&store, "large", &content(LARGE)).await;
    let job = does(1, |cx, _| {
        Box::pin(async move {
            let mut none = Vec::new();
            assert_eq!(cx.input_stream("empty").await?.read_to_end(&mut none).await.unwrap(), 0);
            assert_eq!(cx.input_stream("none").await.unwrap_err().kind(), ErrorKind::NotFound);
            let mut lines = cx.input_stream("lines").await?.lines();
            for line in ["one", "two", "three"] {
                assert_eq!(lines.next_line().await.unwrap().unwrap(), line);
            }
            let whole = content(LARGE);
            let mut stream = cx.input_stream("large").await?;
            assert_eq!((stream.length(), stream.position()), (LARGE as u64, 0));
            let part = PART_BYTES as u64;
            for (seek, at) in [
                (SeekFrom::Start(part + 5), part + 5),
                (SeekFrom::Current(100), part + 205),
                (SeekFrom::Current(-150), part + 155),
                (SeekFrom::Start(0), 0),
                (SeekFrom::End(-10), LARGE as u64 - 10),
                (SeekFrom::Start(2 * part - 3), 2 * part - 3),
                (SeekFrom::Current(7), 2 * part + 104),
            ] {
                assert_eq!(stream.seek(seek).await.unwrap(), at, "{seek:?}");
                let mut bytes = vec![0; 100.min(LARGE - usize::try_from(at).unwrap())];
                stream.read_exact(&mut bytes).await.unwrap();
                let at = usize::try_from(at).unwrap();
                assert!(bytes == whole[at..at + bytes.len()], "{seek:?}");
            }
            assert_eq!(stream.seek(SeekFrom::End(5)).await.unwrap(), LARGE as u64 + 5);
            assert_eq!(stream.read(&mut [0; 10]).await.unwrap(), 0);
            assert!(stream.seek(SeekFrom::End(-(i64::MAX))).await.is_err());
            assert_eq!(stream.seek(SeekFrom::Start(1)).await.unwrap(), 1);
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).await.unwrap();
            assert!(rest == whole[1..]);
            Ok(())
        })
    });
    run(&store, job).await;
}

/// Counts the bytes that were read from a store and are still held, the parts that are being sent, and
/// reads and writes of whole blobs.
#[derive(Debug)]
struct Counting {
    blobs: Arc<dyn BlobStore>,
    held: Arc<AtomicUsize>,
    held_max: AtomicUsize,
    sending: AtomicUsize,
    sending_max: AtomicUsize,
    whole_max: AtomicUsize,
}

struct Held {
    bytes: Bytes,
    held: Arc<AtomicUsize>,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.held.fetch_sub(self.bytes.len(), Relaxed);
    }
}

impl Counting {
    fn wrap(store: &Store) -> (Store, Arc<Self>) {
        let counting = Arc::new(Self {
            blobs: Arc::clone(&store.blobs),
            held: Arc::default(),
            held_max: AtomicUsize::new(0),
            sending: AtomicUsize::new(0),
            sending_max: AtomicUsize::new(0),
            whole_max: AtomicUsize::new(0),
        });
        (Store { blobs: Arc::clone(&counting) as _, ..store.clone() }, counting)
    }
}

#[async_trait]
impl BlobStore for Counting {
    async fn get(&self, name: &BlobName) -> Result<Option<Vec<u8>>> {
        let bytes = self.blobs.get(name).await?;
        self.whole_max.fetch_max(bytes.as_ref().map_or(0, Vec::len), Relaxed);
        Ok(bytes)
    }

    async fn get_range(
        &self,
        name: &BlobName,
        range: Range<u64>,
        version: Option<&Version>,
    ) -> Result<Option<BlobRange>> {
        tokio::time::sleep(ms(10)).await;
        let Some(BlobRange { bytes, length, version }) = self.blobs.get_range(name, range, version).await?
        else {
            return Ok(None);
        };
        let held = self.held.fetch_add(bytes.len(), Relaxed) + bytes.len();
        self.held_max.fetch_max(held, Relaxed);
        let bytes = Bytes::from_owner(Held { bytes, held: Arc::clone(&self.held) });
        Ok(Some(BlobRange { bytes, length, version }))
    }

    async fn put(&self, name: &BlobName, bytes: Vec<u8>, writer: Option<&Writer>) -> Result<()> {
        self.whole_max.fetch_max(bytes.len(), Relaxed);
        self.blobs.put(name, bytes, writer).await
    }

    async fn put_part(&self, name: &BlobName, upload: &Upload, number: u32, bytes: Bytes) -> Result<()> {
        assert!(bytes.len() <= PART_BYTES);
        let sending = self.sending.fetch_add(1, Relaxed) + 1;
        self.sending_max.fetch_max(sending, Relaxed);
        tokio::time::sleep(ms(30)).await;
        self.sending.fetch_sub(1, Relaxed);
        self.blobs.put_part(name, upload, number, bytes).await
    }

    async fn put_parts(
        &self,
        name: &BlobName,
        upload: &Upload,
        length: u64,
        writer: Option<&Writer>,
    ) -> Result<()> {
        self.blobs.put_parts(name, upload, length, writer).await
    }

    async fn create(&self, name: &BlobName, bytes: Vec<u8>, writer: &Writer) -> Result<bool> {
        self.blobs.create(name, bytes, writer).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<BlobName>> {
        self.blobs.list(prefix).await
    }

    async fn page(&self, prefix: &str, at: Option<&str>) -> Result<Page<ListedBlob>> {
        self.blobs.page(prefix, at).await
    }

    async fn delete(&self, name: &BlobName, writer: Option<&Writer>) -> Result<()> {
        self.blobs.delete(name, writer).await
    }

    async fn delete_version(&self, name: &BlobName, version: &Version) -> Result<bool> {
        self.blobs.delete_version(name, version).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_copy_of_any_size_holds_three_parts_of_the_input_and_sends_two_of_the_output() {
    let inner = memory::store();
    let bytes = content(11 * PART_BYTES + 17);
    put(&inner, "in", &bytes).await;
    let (store, counting) = Counting::wrap(&inner);
    let job = does(1, |cx, _| {
        Box::pin(async move {
            let (mut from, mut to) = (cx.input_stream("in").await?, cx.output_stream("copy")?);
            assert_eq!(tokio::io::copy(&mut from, &mut to).await.unwrap(), from.length());
            assert_eq!(to.finish().await?, from.length());
            Ok(())
        })
    });
    run(&store, job).await;
    assert!(get(&inner, "jobs/j/copy").await == Some(bytes));
    let most = |count: &AtomicUsize| count.load(Relaxed);
    assert!(most(&counting.held_max) <= 3 * PART_BYTES, "{} bytes", most(&counting.held_max));
    assert_eq!(most(&counting.sending_max), 2, "parts are sent while others are read");
    assert_eq!(most(&counting.whole_max), 0, "nothing is read or written as a whole");
    assert_eq!(most(&counting.held), 0);
}

/// A file on a disk that fails.
struct Unreadable;

impl AsyncRead for Unreadable {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Poll::Ready(Err(std::io::Error::other("the disk")))
    }
}

#[tokio::test(start_paused = true)]
async fn a_program_writes_and_reads_a_blob_of_any_size_in_parts() {
    for length in [0, 1, PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, 11 * PART_BYTES, 11 * PART_BYTES + 17] {
        let inner = memory::store();
        let (store, counting) = Counting::wrap(&inner);
        let bytes = content(length);
        let producer = reprieve_core::Producer::new(store.clone());
        assert_eq!(producer.write_input("in", &bytes[..]).await.unwrap(), length as u64);
        assert!(get(&inner, "in").await.as_ref() == Some(&bytes), "{length}");
        let mut blob = store.open_blob(&BlobName::parse("in").unwrap()).await.unwrap().expect("a blob");
        assert_eq!(blob.length(), length as u64);
        let mut read = Vec::new();
        while let Some(part) = blob.next().await.unwrap() {
            assert!(!part.is_empty() && part.len() <= PART_BYTES);
            read.extend_from_slice(&part);
        }
        assert!(read == bytes, "{length}");
        let whole = counting.whole_max.load(Relaxed);
        assert!(whole < PART_BYTES, "{whole} bytes at once");
    }
}

#[tokio::test(start_paused = true)]
async fn a_program_never_reads_bytes_of_two_writes_of_a_blob() {
    let store = memory::store();
    put(&store, "in", &content(2 * PART_BYTES)).await;
    let mut blob = store.open_blob(&BlobName::parse("in").unwrap()).await.unwrap().unwrap();
    assert_eq!(blob.next().await.unwrap().unwrap().len(), PART_BYTES);
    put(&store, "in", &vec![0; 2 * PART_BYTES]).await;
    assert_eq!(blob.next().await.unwrap_err().kind(), ErrorKind::Conflict);
    store.blobs.delete(&BlobName::parse("in").unwrap(), None).await.unwrap();
    assert_eq!(blob.next().await.unwrap_err().kind(), ErrorKind::Conflict);
    assert!(store.open_blob(&BlobName::parse("in").unwrap()).await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_file_that_can_not_be_read_to_its_end_stores_nothing() {
    let store = memory::store();
    let producer = reprieve_core::Producer::new(store.clone());
    for length in [0, 1, 2 * PART_BYTES] {
        let begins = content(length);
        let error = producer.write_input("in", (&begins[..]).chain(Unreadable)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal, "{error}");
        assert!(get(&store, "in").await.is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_reads_ahead_while_the_step_computes_but_not_without_limit() {
    let inner = memory::store();
    put(&inner, "in", &content(11 * PART_BYTES)).await;
    let (store, counting) = Counting::wrap(&inner);
    let (store, faults) = Faults::wrap(store);
    let calls = faults.clone();
    let job = does(1, move |cx, _| {
        let calls = calls.clone();
        Box::pin(async move {
            let mut stream = cx.input_stream("in").await?;
            let mut byte = [0];
            for _ in 0..3 {
                stream.read_exact(&mut byte).await.unwrap();
                tokio::time::sleep(secs(10)).await;
                assert_eq!(calls.calls(Op::GetRange), 3, "the first part, and two ahead");
            }
            // They are here: the read of two more parts waits for none.
            let began = tokio::time::Instant::now();
            let mut parts = vec![0; 2 * PART_BYTES];
            stream.read_exact(&mut parts).await.unwrap();
            assert!(began.elapsed() < ms(1), "{:?}", began.elapsed());
            Ok(())
        })
    });
    assert_eq!(run(&store, job).await, 1);
    assert!(counting.held_max.load(Relaxed) <= 3 * PART_BYTES);
    assert_eq!(counting.held.load(Relaxed), 0, "a stream that is dropped holds nothing");
}

#[tokio::test(start_paused = true)]
async fn an_outage_delays_streams_and_fails_no_step() {
    let inner = memory::store();
    put(&inner, "in", &content(LARGE)).await;
    let (store, faults) = Faults::wrap(inner.clone());
    for op in [Op::GetRange, Op::PutPart, Op::PutParts] {
        faults.next_calls(op, 1, Fault::LoseAnswer);
        faults.next_calls(op, 9, Fault::Fail(ErrorKind::Unavailable));
        faults.next_calls(op, 1, Fault::LateAnswer(secs(20)));
        faults.next_calls(op, 2, Fault::LoseAnswer);
    }
    let job = does(1, |cx, _| {
        Box::pin(async move {
            let to = cx.input_stream("in").await?;
            assert_eq!(cx.write_output("copy", to).await?, LARGE as u64);
            Ok(())
        })
    });
    assert_eq!(run(&store, job).await, 1, "an outage costs no delivery");
    assert!(get(&inner, "jobs/j/copy").await == Some(content(LARGE)));
}

#[tokio::test(start_paused = true)]
async fn a_job_that_should_yield_is_not_charged_for_streams_that_an_outage_stops() {
    for op in [Op::GetRange, Op::PutPart, Op::PutParts] {
        let inner = memory::store();
        put(&inner, "in", &content(LARGE)).await;
        let (store, faults) = Faults::wrap(inner.clone());
        faults.every_call(op, Fault::Fail(ErrorKind::Unavailable));
        enqueue_j(&store, Does::KIND).await;
        let copy = || {
            does(1, |cx, _| {
                Box::pin(async move {
                    let mut from = cx.input_stream("in").await?;
                    let mut to = cx.output_stream("copy")?;
                    tokio::io::copy(&mut from, &mut to).await.map_err(JobError::retry)?;
                    to.finish().await?;
                    Ok(())
                })
            })
        };
        let worker = start_job(&store, copy());
        faults.called(op, 3).await;
        let report = worker.evict(secs(30)).await;
        assert_eq!((report.abandoned, leased(&inner).await), (0, 0), "{op:?}: {report:?}");
        assert!(report.released_after_ms < 3_500, "{op:?}: {report:?}");
        worker.stop().await;
        assert_eq!(get(&inner, "jobs/j/copy").await, None);
        faults.clear_all();
        let _next = start_job(&store, copy());
        emptied(&inner, secs(60)).await;
        assert_eq!(poisoned(&inner).await, Vec::<String>::new());
        assert!(get(&inner, "jobs/j/copy").await == Some(content(LARGE)), "{op:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_input_that_is_replaced_or_removed_while_it_is_read_is_an_error_and_never_a_mixture() {
    for replaces in [true, false] {
        let store = memory::store();
        put(&store, "in", &vec![1; 8 * PART_BYTES]).await;
        let (blobs, tries) = (Arc::clone(&store.blobs), AtomicUsize::new(0));
        let job = does(1, move |cx, _| {
            let (blobs, is_first) = (Arc::clone(&blobs), tries.fetch_add(1, Relaxed) == 0);
            Box::pin(async move {
                let mut stream = cx.input_stream("in").await?;
                let version = stream.version().to_owned();
                let mut some = vec![0; 1_000];
                stream.read_exact(&mut some).await.unwrap();
                if !is_first {
                    assert_eq!((some[0], stream.length()), (2, 2 * PART_BYTES as u64));
                    return Ok(());
                }
                if replaces {
                    blobs.put(&name("in"), vec![2; 2 * PART_BYTES], None).await.unwrap();
                } else {
                    blobs.delete(&name("in"), None).await.unwrap();
                }
                let mut rest = Vec::new();
                let error = stream.read_to_end(&mut rest).await.unwrap_err();
                assert!(rest.len() < 4 * PART_BYTES && rest.iter().all(|byte| *byte == 1), "a mixture");
                let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<Error>()).unwrap();
                assert_eq!(cause.kind(), ErrorKind::Conflict, "{cause}");
                assert!(cause.to_string().contains("while it was read"), "{cause}");
                // The same if it is tried again.
                assert!(stream.read(&mut some).await.is_err());
                if replaces {
                    assert_ne!(cx.input_stream("in").await?.version(), version);
                } else {
                    blobs.put(&name("in"), vec![2; 2 * PART_BYTES], None).await.unwrap();
                }
                Err(JobError::retry(error))
            })
        });
        assert_eq!(run(&store, job).await, 2);
    }
}

#[tokio::test(start_paused = true)]
async fn an_output_that_is_not_finished_is_never_seen() {
    let store = memory::store();
    put(&store, "jobs/j/old", b"old").await;
    let job = does(1, |cx, _| {
        Box::pin(async move {
            for output in ["new", "old"] {
                let mut stream = cx.output_stream(output)?;
                stream.write_all(&content(LARGE)).await.unwrap();
                stream.flush().await.unwrap();
                stream.shutdown().await.unwrap();
                assert_eq!(stream.length(), LARGE as u64);
                drop(stream);
                // A call that is dropped, while its content stalls.
                let (mut to, stalls) = tokio::io::duplex(1 << 20);
                to.write_all(&vec![7; 1 << 20]).await.unwrap();
                assert!(tokio::time::timeout(secs(5), cx.write_output(output, stalls)).await.is_err());
            }
            assert_eq!(names(&cx.outputs("").await?), [("jobs/j/old", 3)]);
            // A writer of any chunks.
            let (mut stream, bytes) = (cx.output_stream("new")?, content(LARGE));
            for piece in bytes.chunks(1_234_567) {
                stream.write_all(piece).await.unwrap();
            }
            assert_eq!(stream.finish().await?, LARGE as u64);
            for length in [0, 1, PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, 2 * PART_BYTES] {
                let bytes = content(length);
                assert_eq!(cx.write_output("exact", &bytes[..]).await?, length as u64);
                assert!(cx.input(&cx.output_name("exact")?).await? == bytes, "{length}");
            }
            let broken = a_source_that_fails();
            let error = cx.write_output("old", broken).await.unwrap_err();
            assert_eq!((error.kind(), error.message()), (ErrorKind::Internal, "the source is gone"));
            assert_eq!(cx.input(&cx.output_name("old")?).await?, b"old");
            let mut to = Vec::new();
            assert_eq!(cx.read_input("jobs/j/new", &mut to).await?, LARGE as u64);
            assert!(to == bytes);
            Ok(())
        })
    });
    assert_eq!(run(&store, job).await, 1);
}

/// Yields a part and a bit, and then fails.
fn a_source_that_fails() -> impl tokio::io::AsyncRead + Send + Unpin {
    struct Gone;
    impl tokio::io::AsyncRead for Gone {
        fn poll_read(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
            _: &mut tokio::io::ReadBuf<'_>,
        ) -> std::task::Poll<std::io::Result<()>> {
            std::task::Poll::Ready(Err(std::io::Error::other("the source is gone")))
        }
    }
    std::io::Cursor::new(content(PART_BYTES + 1)).chain(Gone)
}

#[tokio::test(start_paused = true)]
async fn an_output_and_a_delete_of_an_earlier_owner_are_refused() {
    for deletes in [false, true] {
        let store = memory::store();
        let later = Writer { job: JobId::parse("j").unwrap(), fence: Fence::new(3, 3) };
        let (blobs, refused) = (Arc::clone(&store.blobs), Arc::new(AtomicBool::new(false)));
        let seen = Arc::clone(&refused);
        let job = does(1, move |cx, _| {
            let (blobs, seen, later) = (Arc::clone(&blobs), Arc::clone(&seen), later.clone());
            Box::pin(async move {
                let mut stream = cx.output_stream("x")?;
                stream.write_all(&content(LARGE)).await.unwrap();
                if cx.fence() < later.fence {
                    blobs.put(&cx.output_name("x")?, b"later".to_vec(), Some(&later)).await.unwrap();
                    let done =
                        if deletes { cx.delete_output("x").await } else { stream.finish().await.map(drop) };
                    assert_eq!(done.as_ref().unwrap_err().kind(), ErrorKind::Superseded);
                    assert_eq!(blobs.get(&cx.output_name("x")?).await.unwrap().unwrap(), b"later");
                    seen.store(true, Relaxed);
                    done?;
                }
                Ok(())
            })
        });
        run(&store, job).await;
        assert!(refused.load(Relaxed));
        assert_eq!(get(&store, "jobs/j/x").await.as_deref(), Some(&b"later"[..]));
    }
}

/// The first owner's VM is frozen in the middle of its output, and goes on after the next owner's is
/// published.
#[tokio::test(start_paused = true)]
async fn a_frozen_owner_does_not_publish_its_output_after_its_successor() {
    let store = memory::store();
    enqueue_j(&store, Does::KIND).await;
    let slow = |mark: u8, pause_ms: u64| {
        does(1, move |cx, _| {
            Box::pin(async move {
                let mut stream = cx.output_stream("x")?;
                for _ in 0..8 {
                    stream.write_all(&vec![mark; PART_BYTES / 2]).await.map_err(JobError::retry)?;
                    tokio::time::sleep(ms(pause_ms)).await;
                }
                stream.finish().await?;
                Ok(())
            })
        })
    };
    let settings = Settings { lease: secs(6), budget: secs(3), ..settings() };
    let gate = Gate::new();
    let first = start_any_in(&gate, &store, slow(1, 1_000), settings.clone());
    tokio::time::sleep(ms(7_500)).await;
    gate.freeze();
    tokio::time::sleep(secs(10)).await;
    let second = start_any(&store, slow(2, 10), settings);
    emptied(&store, secs(30)).await;
    let published = || async { get(&store, "jobs/j/x").await };
    assert!(published().await == Some(vec![2; 4 * PART_BYTES]));
    gate.thaw();
    tokio::time::sleep(secs(60)).await;
    assert!(published().await == Some(vec![2; 4 * PART_BYTES]), "the earlier owner's is published");
    assert_eq!(second.stop().await.completed, 1);
    assert_eq!(first.stop().await.completed, 0);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_is_killed_in_the_middle_of_an_output_leaves_none() {
    let inner = memory::store();
    let (store, faults) = Faults::wrap(inner.clone());
    enqueue_j(&inner, Does::KIND).await;
    let parts = Arc::new(Mutex::new(Vec::new()));
    let slow = || {
        let parts = Arc::clone(&parts);
        does(1, move |cx, _| {
            let parts = Arc::clone(&parts);
            Box::pin(async move {
                let mut stream = cx.output_stream("x")?;
                for _ in 0..4 {
                    stream.write_all(&vec![7; PART_BYTES]).await.map_err(JobError::retry)?;
                    stream.write_all(b"x").await.map_err(JobError::retry)?;
                    tokio::time::sleep(secs(1)).await;
                }
                let length = stream.finish().await?;
                parts.lock().unwrap().push(length);
                Ok(())
            })
        })
    };
    let worker = start_job(&store, slow());
    faults.called(Op::PutPart, 2).await;
    worker.kill().await;
    tokio::time::sleep(secs(300)).await;
    assert_eq!(faults.calls(Op::PutPart), 2, "a killed worker sends nothing");
    assert_eq!(get(&inner, "jobs/j/x").await, None);
    let _next = start_job(&store, slow());
    emptied(&inner, secs(300)).await;
    assert_eq!(*parts.lock().unwrap(), [4 * PART_BYTES as u64 + 4]);
    assert_eq!(get(&inner, "jobs/j/x").await.unwrap().len(), 4 * PART_BYTES + 4);
}
