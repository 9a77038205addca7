//! Recover → Resume → Start → Shutdown and back: when the worker takes jobs, and when not.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use reprieve_core::interruption::Stage;
use reprieve_core::memory::{self, Fault, Faults, ManualNotices, Op};
use reprieve_core::ports::{Ending, Roster, WorkerReport};
use reprieve_core::worker::{DrainReport, StopReason};
use reprieve_core::{ErrorKind, Notice, NoticeKind, Result, WorkerId};

use tokio::time::Instant;

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn no_work_is_taken_before_the_first_answer() {
    let (store, job) = (memory::store(), Steps::default());
    enqueue(&store, &[Plan::new(1, 10)]).await;
    let worker = start_with(&store, &job, settings(), ManualNotices::silent());
    tokio::time::sleep(secs(120)).await;
    assert_eq!((worker.monitor.stage(), ready(&store).await), (Stage::Recover, 1));
    worker.notices.answer();
    emptied(&store, secs(15)).await;
}

#[tokio::test(start_paused = true)]
async fn a_notice_during_recover_keeps_work_from_being_taken_until_it_is_over() {
    let (store, job) = (memory::store(), Steps::default());
    enqueue(&store, &[Plan::new(1, 10)]).await;
    let notices = ManualNotices::silent();
    notices.notice(preempt("standing"));
    notices.answer();
    let worker = start_with(&store, &job, settings(), notices);
    tokio::time::sleep(secs(120)).await;
    assert_eq!((worker.monitor.stage(), ready(&store).await), (Stage::Shutdown, 1));
    worker.notices.over(&preempt("standing").id, Ending::Withdrawn);
    emptied(&store, secs(15)).await;
}

#[tokio::test(start_paused = true)]
async fn a_notice_during_resume_keeps_work_from_being_taken_until_it_is_over() {
    let (inner, job) = (memory::store(), Steps::default());
    let (store, faults) = Faults::wrap(inner.clone());
    faults.every_call(Op::Recover, Fault::Hang);
    enqueue(&inner, &[Plan::new(1, 10)]).await;
    let worker = start(&store, &job);
    worker.monitor.reached(Stage::Resume).await;
    worker.notices.notice(preempt("standing"));
    worker.monitor.reached(Stage::Shutdown).await;
    faults.clear(Op::Recover);
    tokio::time::sleep(secs(60)).await;
    assert_eq!((worker.monitor.stage(), ready(&inner).await), (Stage::Shutdown, 1));
    worker.notices.over(&preempt("standing").id, Ending::Withdrawn);
    emptied(&inner, secs(15)).await;
}

#[tokio::test(start_paused = true)]
async fn resume_waits_for_a_store_that_does_not_answer_yet() {
    let (inner, job) = (memory::store(), Steps::default());
    let (store, faults) = Faults::wrap(inner.clone());
    faults.next_calls(Op::Recover, 7, Fault::Fail(ErrorKind::Denied));
    enqueue(&inner, &[Plan::new(1, 10)]).await;
    let _worker = start(&store, &job);
    emptied(&inner, secs(120)).await;
    assert_eq!(faults.calls(Op::Recover), 8);
}

#[tokio::test(start_paused = true)]
async fn after_a_drain_the_worker_stays_idle_and_goes_on_when_the_notice_is_withdrawn() {
    let (store, job) = (memory::store(), Steps::default());
    let ids = enqueue(&store, &[Plan::new(50, 200)]).await;
    let worker = start(&store, &job);
    within(secs(20), "half way", async || job.trace.steps(&ids[0]).len() == 25).await;
    worker.evict(secs(30)).await;
    assert_eq!(worker.monitor.stage(), Stage::Shutdown);
    tokio::time::sleep(secs(600)).await;
    assert_eq!((worker.monitor.stage(), ready(&store).await), (Stage::Shutdown, 1));

    worker.notices.over(&preempt("evicted").id, Ending::Withdrawn);
    emptied(&store, secs(30)).await;
    assert_eq!(job.trace.redone(), 0, "a drained job that co-operated loses no step");
    assert_eq!(worker.stop().await.completed, 1);
}

#[tokio::test(start_paused = true)]
async fn a_notice_withdrawn_during_its_drain_is_drained_to_the_end_and_then_work_goes_on() {
    let (store, job) = (memory::store(), Steps::default());
    enqueue(&store, &[Plan::new(5, 900)]).await;
    let worker = start(&store, &job);
    within(secs(5), "in flight", async || leased(&store).await == 1).await;
    worker.notices.notice(preempt("brief"));
    worker.notices.over(&preempt("brief").id, Ending::Withdrawn);
    let report = worker.drained().await;
    assert_eq!(report.released_saved + report.released_unstarted, 1, "{report:?}");
    emptied(&store, secs(30)).await;
    assert_eq!(worker.monitor.stage(), Stage::Start);
}

#[tokio::test(start_paused = true)]
async fn work_goes_on_only_when_the_last_of_several_notices_is_over() {
    let (store, job) = (memory::store(), Steps::default());
    let worker = start(&store, &job);
    worker.started().await;
    worker.notices.notice(preempt("one"));
    worker.notices.notice(Notice::now("two", NoticeKind::Manual));
    worker.drained().await;
    enqueue(&store, &[Plan::new(1, 10)]).await;
    worker.notices.over(&preempt("one").id, Ending::Completed);
    tokio::time::sleep(secs(60)).await;
    assert_eq!(ready(&store).await, 1);
    worker.notices.over(&preempt("two").id, Ending::Withdrawn);
    emptied(&store, secs(15)).await;
}

#[tokio::test(start_paused = true)]
async fn a_freeze_does_not_stop_the_work() {
    let (store, job) = (memory::store(), Steps::default());
    enqueue(&store, &[Plan::new(3, 1000)]).await;
    let worker = start(&store, &job);
    worker.notices.notice(Notice::now("x", NoticeKind::Freeze));
    emptied(&store, secs(15)).await;
    assert_eq!(worker.monitor.last_drain(), None);
}

#[tokio::test(start_paused = true)]
async fn a_stop_drains_and_ends_with_a_report() {
    let (store, job) = (memory::store(), Steps::default());
    enqueue(&store, &[Plan::new(100, 100), Plan::new(1, 10)]).await;
    let worker = start(&store, &job);
    within(secs(5), "one done", async || total(&store).await == 1).await;
    let stopped = worker.stop().await;
    assert_eq!((stopped.reason, stopped.completed, stopped.released), (StopReason::Drained, 1, 1));
    assert!(stopped.budget_left > secs(8), "{stopped:?}");
    assert_eq!(ready(&store).await, 1);
    assert_eq!(
        store.roster.reports(secs(3600)).await.unwrap(),
        [],
        "a worker that ended well leaves the roster"
    );
}

#[tokio::test(start_paused = true)]
async fn a_drains_report_outlives_its_machine() {
    let (store, job) = (memory::store(), Steps::default());
    enqueue(&store, &[Plan::new(100, 100)]).await;
    let worker = start(&store, &job);
    within(secs(5), "in flight", async || leased(&store).await == 1).await;
    let report = worker.evict(secs(30)).await;
    worker.stop().await;
    let kept = store.blobs.list(reprieve_core::worker::DRAINS).await.unwrap();
    let kept = store.blobs.get(&kept[0]).await.unwrap().unwrap();
    assert_eq!(serde_json::from_slice::<DrainReport>(&kept).unwrap(), report);
}

#[tokio::test(start_paused = true)]
async fn a_second_stop_ends_at_once_and_leaves_leases_to_expire() {
    let (store, job) = (memory::store(), Steps::default());
    enqueue(&store, &[Plan::new(2, 1000).habit(Habit::StuckAt(0))]).await;
    let worker = start(&store, &job);
    within(secs(5), "in flight", async || leased(&store).await == 1).await;
    worker.stopper.stop();
    tokio::time::sleep(ms(200)).await;
    let asked = Instant::now();
    let stopped = worker.stop().await;
    assert!(asked.elapsed() < secs(1));
    assert_eq!((stopped.reason, stopped.abandoned), (StopReason::Abandoned, 1));
    assert_eq!(leased(&store).await, 1);
}

#[tokio::test(start_paused = true)]
async fn the_roster_shows_a_jobs_worker_and_progress() {
    let (store, job) = (memory::store(), Steps::default());
    let ids = enqueue(&store, &[Plan::new(100, 500)]).await;
    let _worker = start(&store, &job);
    tokio::time::sleep(secs(11)).await;
    let reports = store.roster.reports(secs(15)).await.unwrap();
    let [report] = &reports[..] else { panic!("{reports:?}") };
    assert_eq!(report.stage, "start");
    assert_eq!(report.in_flight[0].job, ids[0]);
    assert!((18..=22).contains(&report.in_flight[0].progress.done), "{report:?}");
    assert_eq!(report.in_flight[0].progress.total, 100);
}

/// A roster that records its reports.
#[derive(Debug)]
struct Billed {
    inner: Arc<dyn Roster>,
    stages: Mutex<Vec<String>>,
}

#[async_trait]
impl Roster for Billed {
    fn pace(&self) -> Duration {
        secs(60)
    }

    async fn publish(&self, report: &WorkerReport) -> Result<()> {
        self.stages.lock().unwrap().push(report.stage.clone());
        self.inner.publish(report).await
    }

    async fn withdraw(&self, worker: &WorkerId) -> Result<()> {
        self.inner.withdraw(worker).await
    }

    async fn reports(&self, max_age: Duration) -> Result<Vec<WorkerReport>> {
        self.inner.reports(max_age).await
    }
}

#[tokio::test(start_paused = true)]
async fn reports_keep_the_pace_of_the_roster_and_changes_of_stage_do_not_wait_for_it() {
    let (mut store, job) = (memory::store(), Steps::default());
    let billed = Arc::new(Billed { inner: Arc::clone(&store.roster), stages: Mutex::default() });
    store.roster = Arc::clone(&billed) as _;
    enqueue(&store, &[Plan::new(1_000, 1_000)]).await;
    let worker = start(&store, &job);
    tokio::time::sleep(secs(150)).await;
    let stages = std::mem::take(&mut *billed.stages.lock().unwrap());
    let (before, last) = stages.split_last_chunk::<3>().expect("stages, and a report a minute");
    assert_eq!(last, &["start", "start", "start"], "{before:?}");
    assert!(before.iter().all(|stage| stage != "start"), "{before:?}");
    worker.evict(secs(30)).await;
    assert_eq!(billed.stages.lock().unwrap()[0], "shutdown");
}

#[tokio::test(start_paused = true)]
async fn a_second_stop_ends_at_once_also_with_a_store_that_hangs() {
    let (inner, job) = (memory::store(), Steps::default());
    let (store, faults) = Faults::wrap(inner.clone());
    enqueue(&inner, &[Plan::new(2, 1000).habit(Habit::StuckAt(0))]).await;
    let worker = start(&store, &job);
    within(secs(5), "in flight", async || leased(&inner).await == 1).await;
    faults.everything(Fault::Hang);
    worker.stopper.stop();
    tokio::time::sleep(ms(200)).await;
    let asked = Instant::now();
    worker.stop().await;
    assert!(asked.elapsed() < secs(1), "{:?}", asked.elapsed());
}
