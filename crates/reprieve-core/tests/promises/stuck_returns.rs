//! Threads of jobs that were given up, once they return or while a drain comes.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use reprieve_core::checkpoint::CheckpointEvery;
use reprieve_core::memory::{Fault, ManualNotices};
use reprieve_core::ports::Ending;
use reprieve_core::worker::{Depends, Limits, Settings};
use reprieve_core::{
    ErrorKind, Job, JobContext, JobError, NewJob, Notice, NoticeId, NoticeKind, Producer, Step,
};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

use crate::service::Service;
use crate::stuck::{Block, jobs_of, start, until};
use crate::support::*;

/// Each step blocks its thread until it gets leave, without a place where it could be dropped.
#[derive(Clone)]
struct Walk(Arc<Mutex<mpsc::Receiver<()>>>, Arc<AtomicUsize>);

#[async_trait::async_trait]
impl Job for Walk {
    const KIND: &'static str = "walk";
    type Args = ();
    type Checkpoint = u32;
    type Output = ();

    fn begin(&self, (): &()) -> u32 {
        0
    }

    async fn step(&self, _: &JobContext, (): &(), at: u32) -> Result<Step<u32, ()>, JobError> {
        self.1.fetch_add(1, Relaxed);
        let _is_gone = self.0.lock().unwrap().recv();
        Ok(Step::Continue(at + 1))
    }
}

/// Runs until it is let go.
#[derive(Clone)]
struct Turn {
    lets_go: Arc<Semaphore>,
    running: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

#[async_trait::async_trait]
impl Job for Turn {
    const KIND: &'static str = "turn";
    type Args = ();
    type Checkpoint = ();
    type Output = ();

    fn begin(&self, (): &()) {}

    async fn step(&self, _: &JobContext, (): &(), (): ()) -> Result<Step<(), ()>, JobError> {
        let running = self.running.fetch_add(1, Relaxed) + 1;
        self.most.fetch_max(running, Relaxed);
        self.lets_go.acquire().await.unwrap().forget();
        self.running.fetch_sub(1, Relaxed);
        Ok(Step::Done(()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_lease_was_lost_begins_no_further_step() {
    let (leave, until_leave) = mpsc::channel();
    let begun = Arc::new(AtomicUsize::new(0));
    let job = Walk(Arc::new(Mutex::new(until_leave)), Arc::clone(&begun));
    let blocking = start(2, Limits::default(), |worker| {
        let rarely = CheckpointEvery::Every(secs(86_400));
        worker.job(job).settings(Settings { concurrency: 2, checkpoint_every: rarely, ..settings() })
    });
    Producer::new(blocking.store.clone()).enqueue(vec![NewJob::of::<Walk>(&()).unwrap()]).await.unwrap();
    within(secs(60), "the job", async || jobs_of(&blocking).await.len() == 1).await;
    until(|| begun.load(Relaxed) == 1).await;
    blocking.faults.everything(Fault::Fail(ErrorKind::Unavailable));
    sleep(secs(200)).await;
    for _ in 0..10 {
        leave.send(()).unwrap();
    }
    until(|| blocking.jobs.metrics().num_alive_tasks() == 0).await;
    assert_eq!(begun.load(Relaxed), 1, "another worker may run the job");
    blocking.end();
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_stopped_because_it_stands_still_is_released_in_time_when_a_notice_comes_meanwhile() {
    for tenths in 0..40 {
        let notices = ManualNotices::answered();
        let source = Arc::new(notices.clone());
        let stalls = Limits { stall_after: Some(secs(10)), ..Limits::default() };
        let blocking = start(4, stalls, |worker| worker.interruptions(source));
        blocking.send(true, 1).await;
        within(secs(60), "the job", async || jobs_of(&blocking).await.len() == 1).await;
        until(|| blocking.blocked.load(Relaxed) == 1).await;
        within(secs(60), "its end", async || blocking.has_stopped_a_job()).await;
        sleep(Duration::from_millis(100) * tenths).await;
        notices.notice(preempt("e").at(Instant::now() + secs(2)));
        within(secs(60), "the drain", async || blocking.last_drain().is_some()).await;
        let drain = blocking.last_drain().unwrap();
        assert_eq!(
            (drain.abandoned, drain.leases_lost),
            (0, 0),
            "after {tenths} tenths of a second: {drain:?}"
        );
        assert_eq!(leased(&blocking.store).await, 0, "after {tenths} tenths of a second: {drain:?}");
        blocking.end();
    }
}

/// The drain does not wait to see whether the thread returns, and the job is excused.
#[tokio::test(start_paused = true)]
async fn a_thread_that_blocks_is_a_stuck_slot_also_where_what_it_needs_is_away_and_a_notice_comes() {
    for tenths in [115, 125, 135] {
        let (cache, notices) = (Arc::new(Service::default()), ManualNotices::answered());
        let stalls = Limits { stall_after: Some(secs(10)), ..Limits::default() };
        let blocking = start(2, stalls, |worker| {
            let worker = worker.interruptions(Arc::new(notices.clone())).dependency("cache", cache.clone());
            worker.depends::<Block>(Depends::needs(["cache"]))
        });
        sleep(secs(20)).await;
        blocking.send(true, 1).await;
        within(secs(60), "the job", async || jobs_of(&blocking).await.len() == 1).await;
        until(|| blocking.blocked.load(Relaxed) == 1).await;
        cache.set_away(true);
        sleep(Duration::from_millis(100) * tenths).await;
        notices.notice(Notice::now("e", NoticeKind::Redeploy));
        sleep(secs(20)).await;
        notices.over(&NoticeId::new("e"), Ending::Withdrawn);
        within(secs(600), "the end of the worker", async || blocking.ends.is_finished()).await;
        blocking.end();
    }
}

#[tokio::test(start_paused = true)]
async fn slots_whose_threads_return_leave_no_more_than_there_were() {
    let turn = Turn { lets_go: Arc::new(Semaphore::new(0)), running: Arc::default(), most: Arc::default() };
    let job = turn.clone();
    let limits = Limits { step_timeout: Some(secs(5)), attempts: 1, ..Limits::default() };
    let mut blocking = start(8, limits, |worker| worker.job(job));
    blocking.send(true, 3).await;
    within(secs(600), "replacements", async || blocking.done("slot", "replace_slot") == 3).await;
    // Many short ones, so that the next are read ahead and wait for a slot.
    turn.lets_go.add_permits(100);
    let backlog = (0..140).map(|_| NewJob::of::<Turn>(&()).unwrap()).collect();
    Producer::new(blocking.store.clone()).enqueue(backlog).await.unwrap();
    let running = || turn.running.load(Relaxed);
    let has_let_go = || turn.lets_go.available_permits() == 0;
    until(|| has_let_go() && running() == 8).await;
    let alive = || blocking.jobs.metrics().num_alive_tasks();
    drop(blocking.unblock.take());
    until(|| alive() == 8).await;
    for left in (0..40).rev() {
        sleep(secs(2)).await;
        turn.lets_go.add_permits(1);
        within(secs(60), "the next job", async || running() == left.min(8)).await;
    }
    assert_eq!(turn.most.load(Relaxed), 8);
    emptied(&blocking.store, secs(60)).await;
    blocking.end();
}

#[tokio::test(start_paused = true)]
async fn a_job_that_blocks_its_thread_is_charged_also_under_the_shortest_lease() {
    let limits = Limits { step_timeout: Some(secs(5)), ..Limits::default() };
    let (lease, budget) = (secs(1), Duration::from_millis(600));
    let blocking =
        start(8, limits, |worker| worker.settings(Settings { concurrency: 8, lease, budget, ..settings() }));
    blocking.send(true, 1).await;
    within(secs(600), "the dead letter", async || poisoned(&blocking.store).await.len() == 1).await;
    assert_eq!(blocking.blocked.load(Relaxed), 3);
    blocking.end();
}
