//! Jobs, sources and queues that misbehave in unusual ways.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use reprieve_core::memory::{self, ManualNotices};
use reprieve_core::ports::{
    Change, DeadLetter, DeadLettered, Delivery, Depth, Ending, InterruptionSource, NewMessage, Queue,
    Receipt, Release, Store,
};
use reprieve_core::worker::{Monitor, Settings, Worker, stopping};
use reprieve_core::{
    Error, ErrorKind, Job, JobContext, JobError, MessageId, NewJob, NoticeId, Producer, Result, Step,
};
use tokio::runtime::Runtime;
use tokio::time::Instant;

use crate::support::*;

/// Reports that it has begun, and blocks its thread until the other sender is dropped.
struct Block {
    begun: mpsc::Sender<()>,
    until: Arc<Mutex<mpsc::Receiver<()>>>,
}

#[async_trait::async_trait]
impl Job for Block {
    const KIND: &'static str = "block";
    type Args = ();
    type Checkpoint = ();
    type Output = ();

    fn begin(&self, (): &()) {}

    async fn step(&self, _: &JobContext, (): &(), (): ()) -> Result<Step<(), ()>, JobError> {
        self.begun.send(()).unwrap();
        let _sender_gone = self.until.lock().unwrap().recv();
        Ok(Step::Done(()))
    }
}

/// A worker with one slot, and one job that blocks it on its own thread.
struct Blocked {
    store: Store,
    monitor: Monitor,
    notices: ManualNotices,
    jobs: Runtime,
    _block: mpsc::Sender<()>,
}

async fn blocked() -> Blocked {
    let jobs = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (block, until) = mpsc::channel();
    let (begun, has_begun) = mpsc::channel();
    let (store, notices) = (memory::store(), ManualNotices::answered());
    let worker = Worker::builder(store.clone())
        .job(Block { begun, until: Arc::new(Mutex::new(until)) })
        .jobs_on(jobs.handle().clone())
        .settings(Settings { concurrency: 1, ..settings() })
        .interruptions(Arc::new(notices.clone()))
        .build()
        .unwrap();
    let monitor = worker.monitor();
    let (_never, stopping) = stopping();
    tokio::spawn(worker.run(stopping));
    Producer::new(store.clone()).enqueue(vec![NewJob::of::<Block>(&()).unwrap()]).await.unwrap();
    within(secs(5), "in flight", async || leased(&store).await == 1).await;
    // The job's thread is a real one; the paused clock waits for it only here.
    tokio::task::spawn_blocking(move || has_begun.recv()).await.unwrap().unwrap();
    Blocked { store, monitor, notices, jobs, _block: block }
}

#[tokio::test(start_paused = true)]
async fn a_worker_with_stuck_slots_holds_no_messages() {
    let blocked = blocked().await;
    let Blocked { store, monitor, notices, .. } = &blocked;
    notices.notice(preempt("a").at(Instant::now() + secs(30)));
    within(secs(60), "drained", async || monitor.last_drain().is_some()).await;
    let report = monitor.last_drain().unwrap();
    assert_eq!((report.released_cut, report.still_running), (1, 1), "{report:?}");
    notices.over(&preempt("a").id, Ending::Withdrawn);
    for _ in 0..60 {
        tokio::time::sleep(secs(10)).await;
        assert_eq!(leased(store).await, 0, "held by a worker that can't run it");
    }
    blocked.jobs.shutdown_background();
}

#[tokio::test(start_paused = true)]
async fn a_released_job_is_not_reported_as_abandoned_when_its_task_runs_on() {
    let blocked = blocked().await;
    let Blocked { store, monitor, notices, .. } = &blocked;
    notices.notice(preempt("a").at(Instant::now() + secs(30)));
    tokio::time::sleep(ms(3_500)).await;
    assert_eq!(ready(store).await, 1);
    notices.notice(preempt("b").at(Instant::now() + secs(1)));
    within(secs(60), "drained", async || monitor.last_drain().is_some()).await;
    let report = monitor.last_drain().unwrap();
    assert_eq!((report.released_cut, report.abandoned, report.still_running), (1, 0, 1), "{report:?}");
    blocked.jobs.shutdown_background();
}

/// A queue with messages that returns none.
#[derive(Debug)]
struct Sick {
    inner: Arc<dyn Queue>,
    receives: AtomicU64,
}

#[async_trait::async_trait]
impl Queue for Sick {
    async fn send(&self, messages: Vec<NewMessage>) -> Result<Vec<MessageId>> {
        self.inner.send(messages).await
    }
    async fn receive(&self, _: usize, _: Duration) -> Result<Vec<Delivery>> {
        assert!(self.receives.fetch_add(1, SeqCst) < 1000, "a thousand receives");
        Err(Error::new(ErrorKind::Unavailable, "receive", "503"))
    }
    async fn renew(&self, receipt: &Receipt, lease: Duration) -> Result<Receipt> {
        self.inner.renew(receipt, lease).await
    }
    async fn complete(&self, receipt: &Receipt) -> Result<()> {
        self.inner.complete(receipt).await
    }
    async fn release(&self, receipt: &Receipt, release: &Release) -> Result<()> {
        self.inner.release(receipt, release).await
    }
    async fn dead_letter(&self, receipt: &Receipt, body: &[u8], letter: &DeadLetter) -> Result<()> {
        self.inner.dead_letter(receipt, body, letter).await
    }
    async fn arrived(&self) {
        self.inner.arrived().await;
    }
    async fn depth(&self) -> Result<Depth> {
        self.inner.depth().await
    }
    async fn dead_letters(&self, max: usize) -> Result<Vec<DeadLettered>> {
        self.inner.dead_letters(max).await
    }
    async fn receive_letters(&self, max: usize, lease: Duration) -> Result<Vec<Delivery>> {
        self.inner.receive_letters(max, lease).await
    }
    async fn remove_letter(&self, receipt: &Receipt) -> Result<()> {
        self.inner.remove_letter(receipt).await
    }
    async fn return_letter(&self, receipt: &Receipt) -> Result<()> {
        self.inner.return_letter(receipt).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_receive_that_fails_backs_off_although_a_message_is_there() {
    let mut store = memory::store();
    let sick = Arc::new(Sick { inner: Arc::clone(&store.queue), receives: AtomicU64::new(0) });
    enqueue(&store, &[Plan::new(1, 1)]).await;
    store.queue = Arc::clone(&sick) as _;
    let worker = start(&store, &Steps::default());
    tokio::time::sleep(secs(60)).await;
    let receives = sick.receives.load(SeqCst);
    assert!(!worker.handle.is_finished() && receives < 40, "{receives} receives in a minute");
}

/// A source that panics at its second call.
#[derive(Debug)]
struct Fragile(AtomicU64, ManualNotices);

#[async_trait::async_trait]
impl InterruptionSource for Fragile {
    async fn next(&self) -> Change {
        match self.0.fetch_add(1, SeqCst) {
            0 => Change::Answered,
            1 => panic!("a bad document"),
            _ => self.1.next().await,
        }
    }
    async fn approve(&self, _: &[NoticeId], _: Duration) -> Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_source_that_panics_once_is_listened_to_again() {
    let (store, job) = (memory::store(), Steps::default());
    enqueue(&store, &[Plan::new(1000, 500)]).await;
    let notices = ManualNotices::answered();
    let worker = Worker::builder(store.clone())
        .job(job)
        .settings(settings())
        .interruptions(Arc::new(Fragile(AtomicU64::new(0), notices.clone())))
        .build()
        .unwrap();
    let monitor = worker.monitor();
    let (_never, stopping) = stopping();
    tokio::spawn(worker.run(stopping));
    within(secs(5), "in flight", async || leased(&store).await == 1).await;
    notices.notice(preempt("x"));
    within(secs(15), "the drain", async || monitor.last_drain().is_some()).await;
}

/// Requests a retry after half an eternity.
struct Late;

#[async_trait::async_trait]
impl Job for Late {
    const KIND: &'static str = "late";
    type Args = ();
    type Checkpoint = ();
    type Output = ();

    fn begin(&self, (): &()) {}

    async fn step(&self, _: &JobContext, (): &(), (): ()) -> Result<Step<(), ()>, JobError> {
        Err(JobError::retry("later").after(Duration::MAX))
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_delay_beyond_reason_is_clamped_and_such_an_enqueue_refused() {
    let store = memory::store();
    let worker = Worker::builder(store.clone()).job(Late).settings(settings()).build().unwrap();
    let (_never, stopping) = stopping();
    tokio::spawn(worker.run(stopping));
    let producer = Producer::new(store.clone());
    producer.enqueue(vec![NewJob::of::<Late>(&()).unwrap()]).await.unwrap();
    tokio::time::sleep(secs(5)).await;
    let depth = store.queue.depth().await.unwrap();
    assert_eq!((depth.delayed, depth.leased), (Some(1), Some(0)));

    let late = NewJob { delay: Duration::MAX, ..NewJob::of::<Late>(&()).unwrap() };
    let refused = producer.enqueue(vec![late]).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
}
