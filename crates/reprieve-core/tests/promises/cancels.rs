//! A job that somebody cancels ends as cancelled: one that waits without being run, one that runs within
//! ten seconds. It is in no poison queue, and nobody continues it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use async_trait::async_trait;
use reprieve_core::checkpoint::CheckpointEvery;
use reprieve_core::memory::{self, Fault, Faults, ManualNotices, MemoryQueue, Op};
use reprieve_core::ports::{Release, Store};
use reprieve_core::record::Status;
use reprieve_core::retention::Keep;
use reprieve_core::worker::{Escalation, Limits, Settings};
use reprieve_core::{BlobName, Cancel, ErrorKind, Job, JobContext, JobEnd, JobError, JobId, Redrive, Step};
use tokio::time::{Instant, sleep};

use crate::support::*;

/// The time in which a running job has ended after it was cancelled.
const SOON: u64 = 10;

/// Asserts that the job ended as cancelled, after it was run as far as `steps`.
async fn is_cancelled(store: &Store, job: &Steps, id: &JobId, steps: &[u32]) {
    assert_eq!(total(store).await, 0);
    assert_eq!(poisoned(store).await, Vec::<String>::new());
    assert_eq!(end(store, id).await, Some(JobEnd::Cancelled));
    assert_eq!(job.trace.steps(id), steps);
    let left = record(store, id).await.unwrap();
    assert_eq!((left.status, left.checkpoints.len()), (Status::Cancelled, 0));
    assert!(left.expires_unix_ms.is_some());
    assert!(store.blobs.list("args/").await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_job_that_waits_for_a_worker_ends_without_being_run() {
    let (store, job) = (memory::store(), Steps::default());
    let ids = enqueue(&store, &[Plan::new(3, 10), Plan::new(3, 10)]).await;
    assert_eq!(cancel(&store, &ids[0]).await, Cancel::Untraced);
    assert_eq!(end(&store, &ids[0]).await, Some(JobEnd::Cancelled));
    let worker = start(&store, &job);
    emptied(&store, secs(60)).await;
    assert_eq!(job.trace.steps(&ids[1]), [0, 1, 2]);
    is_cancelled(&store, &job, &ids[0], &[]).await;
    assert_eq!((worker.ended("cancelled"), worker.ended("completed")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn so_does_one_that_is_cancelled_beside_a_worker_with_jobs() {
    let (store, job) = (memory::store(), Steps::default());
    let wide = Settings { concurrency: 1, ..settings() };
    let worker = start_with(&store, &job, wide, ManualNotices::answered());
    enqueue(&store, &[Plan::new(60, 1_000)]).await;
    worker.started().await;
    let waits = enqueue(&store, &[Plan::new(3, 10)]).await.remove(0);
    sleep(secs(30)).await;
    cancel(&store, &waits).await;
    emptied(&store, secs(60)).await;
    is_cancelled(&store, &job, &waits, &[]).await;
}

#[tokio::test(start_paused = true)]
async fn one_with_an_id_of_its_own_is_not_enqueued_again() {
    let (store, job) = (memory::store(), Steps::default());
    let id = enqueue_as(&store, "import", Plan::new(3, 10)).await;
    assert_eq!(cancel(&store, &id).await, Cancel::Cancelled);
    assert_eq!(enqueue_as(&store, "import", Plan::new(3, 10)).await, id);
    let early = JobId::parse("export").unwrap();
    assert_eq!(cancel(&store, &early).await, Cancel::Untraced);
    assert_eq!(enqueue_as(&store, "export", Plan::new(3, 10)).await, early);
    let worker = start(&store, &job);
    emptied(&store, secs(60)).await;
    is_cancelled(&store, &job, &id, &[]).await;
    enqueue_as(&store, "import", Plan::new(3, 10)).await;
    assert_eq!((total(&store).await, worker.ended("cancelled")), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_running_job_is_asked_to_yield_and_has_ended_within_ten_seconds() {
    for (habit, step_ms) in
        [(Habit::Works, 700), (Habit::Watches, 3_600_000), (Habit::StuckAt(5), 100), (Habit::Publishes, 50)]
    {
        for own_id in [false, true] {
            let (store, job) = (memory::store(), Steps::default());
            let plan = Plan { padding: 40_000, ..Plan::new(10_000, step_ms).habit(habit) };
            let id = if own_id {
                enqueue_as(&store, "mine", plan).await
            } else {
                enqueue(&store, &[plan]).await.remove(0)
            };
            let worker = start(&store, &job);
            sleep(secs(33)).await;
            let (cancelled, before) = (Instant::now(), job.trace.steps(&id).len());
            cancel(&store, &id).await;
            emptied(&store, secs(SOON)).await;
            let took = cancelled.elapsed();
            sleep(secs(120)).await;
            let steps = job.trace.steps(&id);
            assert!(steps.len() <= before + usize::try_from(took.as_millis()).unwrap() / 50 + 1, "{habit:?}");
            is_cancelled(&store, &job, &id, &steps).await;
            assert_eq!(worker.ended("cancelled"), 1, "{habit:?}");
            assert!(store.records.payload_page(None).await.unwrap().entries.is_empty());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_waits_at_its_own_request_ends_at_once_and_its_message_when_it_returns() {
    let (store, job) = (memory::store(), Steps::default());
    let id = enqueue(&store, &[Plan::new(10, 10).habit(Habit::FailsAt(4))]).await.remove(0);
    let worker = start(&store, &job);
    within(secs(10), "a failure", async || worker.ended("retried") > 0).await;
    cancel(&store, &id).await;
    assert_eq!(end(&store, &id).await, Some(JobEnd::Cancelled));
    emptied(&store, secs(600)).await;
    is_cancelled(&store, &job, &id, &[0, 1, 2, 3]).await;
    assert_eq!(worker.ended("dead_lettered"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_is_cut_off_stops_at_its_leases_end_and_nobody_continues_the_job() {
    for (away_s, stops_within) in [(30, 45), (300, 75)] {
        let (inner, job) = (memory::store(), Steps::default());
        let (store, faults) = Faults::wrap(inner.clone());
        let id = enqueue(&inner, &[Plan { padding: 40_000, ..Plan::new(10_000, 500) }]).await.remove(0);
        let cut_off = start(&store, &job);
        sleep(secs(60)).await;
        faults.everything(Fault::Fail(ErrorKind::Unavailable));
        cancel(&inner, &id).await;
        let other = start(&inner, &job);
        sleep(secs(away_s)).await;
        faults.clear_all();
        within(secs(120), "the end", async || total(&inner).await == 0).await;
        let last = job.trace.last_step_at();
        sleep(secs(300)).await;
        assert_eq!(job.trace.last_step_at(), last);
        let since_cancelled = last + secs(300) + secs(away_s) - Instant::now() + secs(120);
        assert!(since_cancelled <= secs(stops_within + 120), "{since_cancelled:?}");
        let steps = job.trace.steps(&id);
        is_cancelled(&inner, &job, &id, &steps).await;
        assert_eq!(cut_off.ended("cancelled") + other.ended("cancelled"), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_failed_half_way_is_completed_by_the_next_one() {
    for failing in 0..2 {
        let (inner, job) = (memory::store(), Steps::default());
        let (store, faults) = Faults::wrap(inner.clone());
        let id = enqueue(&inner, &[Plan::new(10_000, 500)]).await.remove(0);
        let _worker = start(&inner, &job);
        sleep(secs(60)).await;
        faults.next_calls(Op::Put, failing, Fault::Delay(ms(1)));
        faults.next_calls(Op::Put, 1, Fault::Fail(ErrorKind::Unavailable));
        store.cancel(std::slice::from_ref(&id)).await.unwrap_err();
        assert_eq!(cancel(&store, &id).await, Cancel::Cancelled);
        emptied(&inner, secs(SOON)).await;
        assert_eq!(end(&inner, &id).await, Some(JobEnd::Cancelled));
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_has_ended_stays_as_it_is() {
    let (store, job) = (memory::store(), Steps::default());
    let ids = enqueue(&store, &[Plan::new(2, 10), Plan::new(9, 10).habit(Habit::FatalAt(3))]).await;
    let own = enqueue_as(&store, "own", Plan::new(2, 10)).await;
    let _worker = start(&store, &job);
    emptied(&store, secs(60)).await;
    assert_eq!(cancel(&store, &ids[0]).await, Cancel::Over(JobEnd::Done(())));
    assert_eq!(cancel(&store, &own).await, Cancel::Over(JobEnd::Done(())));
    let Cancel::Over(JobEnd::Failed(why)) = cancel(&store, &ids[1]).await else { panic!("it failed") };
    assert!(why.contains("never"), "{why}");
    assert_eq!(end(&store, &own).await, Some(JobEnd::Done(2)));
    assert_eq!(poisoned(&store).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_ends_before_it_hears_of_it_is_done() {
    let (store, job) = (memory::store(), Steps::default());
    let id = enqueue(&store, &[Plan::new(100, 1_000)]).await.remove(0);
    let worker = start(&store, &job);
    within(secs(200), "the last step", async || job.trace.steps(&id).len() == 99).await;
    cancel(&store, &id).await;
    emptied(&store, secs(60)).await;
    if worker.ended("completed") == 1 {
        assert_eq!(end(&store, &id).await, Some(JobEnd::Done(100)));
    } else {
        assert_eq!(end(&store, &id).await, Some(JobEnd::Cancelled));
    }
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_jobs_are_cancelled_at_once() {
    let (store, job) = (memory::store(), Steps::default());
    let ids = enqueue(&store, &vec![Plan::new(1, 1); 10_000]).await;
    let requested = store.cancel(&ids[..9_999]).await.unwrap();
    assert!(requested.iter().all(|cancel| *cancel == Cancel::Untraced));
    let worker = start(&store, &job);
    emptied(&store, secs(600)).await;
    assert_eq!((worker.ended("cancelled"), worker.ended("completed")), (9_999, 1));
}

/// The list has ten parts, each of which takes a quarter of a second, as one of 50,000 does in Azure.
#[tokio::test(start_paused = true)]
async fn a_long_list_of_cancelled_jobs_is_read_to_its_end() {
    let (store, faults) = Faults::wrap(memory::store());
    let others = enqueue(&store, &vec![Plan::new(1, 1); 80]).await;
    store.cancel(&others).await.unwrap();
    faults.every_call(Op::BlobPage, Fault::Delay(ms(250)));
    let job = Steps::default();
    let _worker = start(&store, &job);
    emptied(&store, secs(300)).await;
    let running = enqueue(&store, &[Plan::new(600, 1_000)]).await.remove(0);
    sleep(secs(30)).await;
    let waiting = enqueue(&store, &[Plan::new(600, 1_000)]).await.remove(0);
    let both = [running, waiting];
    store.cancel(&both).await.unwrap();
    emptied(&store, secs(15)).await;
    assert_eq!(
        store.ends_of::<u32>(&both).await.unwrap(),
        [Some(JobEnd::Cancelled), Some(JobEnd::Cancelled)]
    );
}

#[tokio::test(start_paused = true)]
async fn a_job_with_a_damaged_record_keeps_no_other_one_from_being_cancelled() {
    let (store, job) = (memory::store(), Steps::default());
    let ids = enqueue(&store, &[Plan::new(600, 1_000), Plan::new(600, 1_000)]).await;
    let settings = Settings { concurrency: 2, ..settings() };
    let _worker = start_any(&store, job, settings);
    sleep(secs(10)).await;
    overwrite(&store, &ids[1], b"rubbish".to_vec()).await;
    store.cancel(&ids).await.unwrap();
    emptied(&store, secs(15)).await;
    for id in &ids {
        assert_eq!(end(&store, id).await, Some(JobEnd::Cancelled));
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_waits_with_a_damaged_record_is_cancelled() {
    let (store, job) = (memory::store(), Steps::default());
    let id = enqueue_as(&store, "mine", Plan::new(5, 1_000)).await;
    overwrite(&store, &id, b"rubbish".to_vec()).await;
    assert_eq!(cancel(&store, &id).await, Cancel::Cancelled);
    let _worker = start(&store, &job);
    emptied(&store, secs(60)).await;
    assert_eq!((end(&store, &id).await, job.trace.steps(&id).len()), (Some(JobEnd::Cancelled), 0));
}

/// A job without a result: its arguments are its steps and their length in milliseconds.
#[derive(Debug, Clone, Default)]
struct NoResult(Arc<AtomicU32>);

#[async_trait]
impl Job for NoResult {
    const KIND: &'static str = "no-result";
    type Args = (u32, u64);
    type Checkpoint = u32;
    type Output = ();

    fn begin(&self, _: &(u32, u64)) -> u32 {
        0
    }

    async fn step(&self, _: &JobContext, args: &(u32, u64), at: u32) -> Result<Step<u32, ()>, JobError> {
        sleep(ms(args.1)).await;
        self.0.fetch_add(1, Relaxed);
        Ok(if at + 1 == args.0 { Step::Done(()) } else { Step::Continue(at + 1) })
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_cancelled_a_job_in_its_last_seconds_learns_how_it_ended() {
    for (steps, offset) in [(19, 100), (19, 500), (19, 900), (17, 100), (16, 500), (15, 500)] {
        for every in [1_000, 5_000, 3_600_000] {
            let (store, job) = (memory::store(), NoResult::default());
            let id = send_args::<NoResult>(&store, &(20, 1_000)).await;
            let settings = Settings { checkpoint_every: CheckpointEvery::Every(ms(every)), ..settings() };
            let _worker = start_any(&store, job.clone(), settings);
            within(secs(100), "steps", async || job.0.load(Relaxed) == steps).await;
            sleep(ms(offset)).await;
            let cancelled = cancel(&store, &id).await;
            emptied(&store, secs(60)).await;
            sleep(secs(60)).await;
            let end = store.end_of::<()>(&id).await.unwrap();
            assert!(
                end.is_some(),
                "{cancelled:?} after {steps} steps and {offset} ms, saved every {every} ms"
            );
        }
    }
}

/// Whoever cancels is 20 ms away from the store.
#[tokio::test(start_paused = true)]
async fn workers_hear_of_the_first_of_a_long_list_before_the_last_is_cancelled() {
    let (store, job) = (memory::store(), Steps::default());
    let running = enqueue(&store, &[Plan::new(100, 3_600_000).habit(Habit::Watches)]).await.remove(0);
    let _worker = start(&store, &job);
    sleep(secs(20)).await;
    let others = (0..20_000).map(|number| JobId::parse(format!("other-{number}")).unwrap());
    let all: Vec<_> = [running.clone()].into_iter().chain(others).collect();
    let (far, faults) = Faults::wrap(store.clone());
    faults.everything(Fault::Delay(ms(20)));
    let began = Instant::now();
    let cancelling = tokio::spawn(async move { far.cancel(&all).await.map(|all| all.len()) });
    within(secs(15), "it stops", async || total(&store).await == 0).await;
    assert_eq!(cancelling.await.unwrap().unwrap(), 20_001);
    assert!(began.elapsed() > secs(20), "{:?}", began.elapsed());
}

/// It is done before it hears of it: then it is done for everybody, and leaves nothing.
#[tokio::test(start_paused = true)]
async fn a_job_that_is_cancelled_in_its_last_step_leaves_no_state_behind() {
    for offset in [100, 500, 900] {
        let (store, records) = listed_store();
        let job = Steps::default();
        let id = enqueue(&store, &[Plan { padding: 40_000, ..Plan::new(20, 1_000) }]).await.remove(0);
        let _worker = start(&store, &job);
        within(secs(100), "the last step", async || job.trace.steps(&id).len() == 19).await;
        sleep(ms(offset)).await;
        store.cancel(std::slice::from_ref(&id)).await.unwrap();
        emptied(&store, secs(60)).await;
        sleep(secs(60)).await;
        assert_eq!(records.payloads(), [], "{offset}: {:?}", end(&store, &id).await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_redriven_job_that_waits_is_cancelled() {
    let (store, job) = (memory::store(), Steps::default());
    let id = enqueue(&store, &[Plan::new(9, 10).habit(Habit::FatalAt(3))]).await.remove(0);
    let worker = start(&store, &job);
    within(secs(60), "a dead letter", async || !poisoned(&store).await.is_empty()).await;
    worker.stop().await;
    store.redrive(&Redrive::All).await.unwrap();
    assert_eq!(end(&store, &id).await, None, "it waits");
    assert_eq!(cancel(&store, &id).await, Cancel::Cancelled);
    let steps = job.trace.steps(&id);
    let _worker = start(&store, &job);
    emptied(&store, secs(60)).await;
    is_cancelled(&store, &job, &id, &steps).await;
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_job_that_no_worker_knows_is_in_no_poison_queue() {
    for is_early in [true, false] {
        let store = memory::store();
        let id = enqueue_as(&store, "foreign", Plan::new(9, 10)).await;
        if is_early {
            cancel(&store, &id).await;
        }
        let settings = Settings { unknown_kind_after: secs(600), ..settings() };
        let _worker = start_any(&store, Other, settings);
        sleep(secs(100)).await;
        if !is_early {
            cancel(&store, &id).await;
        }
        emptied(&store, secs(600)).await;
        is_cancelled(&store, &Steps::default(), &id, &[]).await;
    }
}

/// Whoever cancels it is so far from the store that the record has changed whenever its write arrives.
#[tokio::test(start_paused = true)]
async fn a_job_that_saves_all_the_time_is_cancelled_from_far_away() {
    let (inner, job) = (memory::store(), Steps::default());
    let (far, faults) = Faults::wrap(inner.clone());
    let id = enqueue(&inner, &[Plan::new(1_000_000, 10)]).await.remove(0);
    let every_step = Settings { checkpoint_every: CheckpointEvery::Every(ms(10)), ..settings() };
    let worker = start_with(&inner, &job, every_step, ManualNotices::answered());
    sleep(secs(20)).await;
    faults.everything(Fault::Delay(ms(25)));
    assert_eq!(cancel(&far, &id).await, Cancel::Cancelled);
    emptied(&inner, secs(SOON)).await;
    let steps = job.trace.steps(&id);
    is_cancelled(&inner, &job, &id, &steps).await;
    assert_eq!(worker.ended("cancelled"), 1);
}

/// The one who cancelled it died between the mark and the record.
#[tokio::test(start_paused = true)]
async fn a_mark_alone_cancels_the_job() {
    for running in [false, true] {
        let (store, job) = (memory::store(), Steps::default());
        let id = enqueue(&store, &[Plan::new(1_000, 1_000)]).await.remove(0);
        let mut worker = None;
        if running {
            worker = Some(start(&store, &job));
            sleep(secs(60)).await;
        }
        let mark = BlobName::parse(format!("cancelled/{id}.json")).unwrap();
        store.blobs.put(&mark, Vec::new(), None).await.unwrap();
        store.blobs.put(&BlobName::parse("cancelled.json").unwrap(), b"news".to_vec(), None).await.unwrap();
        let _worker = worker.unwrap_or_else(|| start(&store, &job));
        emptied(&store, secs(SOON)).await;
        let steps = job.trace.steps(&id);
        assert_eq!(steps.is_empty(), !running);
        is_cancelled(&store, &job, &id, &steps).await;
    }
}

/// A worker remembers a mark until it hears of others.
#[tokio::test(start_paused = true)]
async fn a_job_under_the_id_of_a_cancelled_one_that_was_forgotten_is_run() {
    let (store, job) = (memory::store(), Steps::default());
    let id = enqueue_as(&store, "again", Plan::new(3, 10)).await;
    cancel(&store, &id).await;
    let _worker = start(&store, &job);
    emptied(&store, secs(60)).await;
    // As a round of cleaning does.
    rewrite(&store, &id, |record| record.expires_unix_ms = Some(0)).await;
    tokio::time::advance(secs(40 * 86_400)).await;
    clean(&store, Keep::default(), false).await;
    assert_eq!(store.blobs.list("cancelled/").await.unwrap(), []);
    enqueue_as(&store, "again", Plan::new(3, 10)).await;
    emptied(&store, secs(60)).await;
    assert_eq!(end(&store, &id).await, Some(JobEnd::Done(3)));
}

#[tokio::test(start_paused = true)]
async fn the_id_of_a_slot_is_refused() {
    let (store, job) = (memory::store(), Steps::default());
    let id = enqueue(&store, &[Plan::new(1_000, 1_000)]).await.remove(0);
    let slot = JobId::parse("reprieve-slot.0123456789abcdef.0000").unwrap();
    let error = store.cancel(&[id, slot]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    let _worker = start(&store, &job);
    sleep(secs(60)).await;
    assert_eq!(store.blobs.list("cancelled/").await.unwrap(), []);
}

/// The job fails while the mark is being written. The answer is `Over(Failed)`, "nothing is changed".
#[tokio::test(start_paused = true)]
async fn a_job_that_could_not_be_cancelled_because_it_had_failed_is_done_after_its_redrive() {
    let (inner, job) = (memory::store(), Steps::default());
    let (slow, faults) = Faults::wrap(inner.clone());
    let id = enqueue(&inner, &[Plan::new(9, 1_000).habit(Habit::FailsUntilHealed(5))]).await.remove(0);
    let limits = Limits { attempts: 1, ..Limits::default() };
    let worker = start_built(limited(&inner, &job, limits));
    within(secs(30), "four steps", async || job.trace.steps(&id).len() == 4).await;
    faults.next_calls(Op::Put, 1, Fault::Delay(secs(2)));
    let first = cancel(&slow, &id).await;
    assert!(matches!(first, Cancel::Over(JobEnd::Failed(_))), "{first:?}");
    worker.stop().await;
    // Somebody cancels another job, at any time.
    cancel(&inner, &JobId::parse("another").unwrap()).await;
    job.heal();
    assert_eq!(inner.redrive(&Redrive::All).await.unwrap().jobs, std::slice::from_ref(&id));
    let _worker = start_built(limited(&inner, &job, limits));
    emptied(&inner, secs(120)).await;
    assert_eq!(end(&inner, &id).await, Some(JobEnd::Done(9)));
}

/// Whoever cancels it is 25 ms away, the job saves every 10 ms, and fails before it hears of it.
#[tokio::test(start_paused = true)]
async fn a_job_that_saves_all_the_time_and_fails_is_cancelled() {
    for fatal_at in (2_050..2_450).step_by(25) {
        let (inner, job) = (memory::store(), Steps::default());
        let (far, faults) = Faults::wrap(inner.clone());
        let plan = Plan::new(1_000_000, 10).habit(Habit::FatalAt(fatal_at));
        let id = enqueue(&inner, &[plan]).await.remove(0);
        let every_step = Settings { checkpoint_every: CheckpointEvery::Every(ms(10)), ..settings() };
        let worker = start_with(&inner, &job, every_step, ManualNotices::answered());
        within(secs(60), "it runs", async || job.trace.steps(&id).len() >= 2_000).await;
        faults.everything(Fault::Delay(ms(25)));
        let cancelled = cancel(&far, &id).await;
        emptied(&inner, secs(120)).await;
        let end = end(&inner, &id).await;
        worker.stop().await;
        if cancelled == Cancel::Cancelled {
            assert_eq!(end, Some(JobEnd::Cancelled));
        }
    }
}

/// The list of cancelled jobs has twelve parts of a quarter of a second, and the worker has just started.
#[tokio::test(start_paused = true)]
async fn a_waiting_job_is_not_run_although_the_list_of_cancelled_jobs_is_long() {
    let (store, faults) = Faults::wrap(memory::store());
    let others: Vec<_> = (0..88).map(|number| JobId::parse(format!("other{number}")).unwrap()).collect();
    store.cancel(&others).await.unwrap();
    faults.every_call(Op::BlobPage, Fault::Delay(ms(250)));
    let job = Steps::default();
    let id = enqueue(&store, &[Plan::new(3, 50)]).await.remove(0);
    cancel(&store, &id).await;
    sleep(secs(30)).await;
    let _worker = start(&store, &job);
    emptied(&store, secs(300)).await;
    assert_eq!(end(&store, &id).await, Some(JobEnd::Cancelled), "cancelled long before a worker received it");
}

/// Jobs that were done before they heard of it.
#[tokio::test(start_paused = true)]
async fn a_job_that_was_done_does_not_end_as_cancelled() {
    let (store, job) = (memory::store(), Steps::default());
    let mut ids = Vec::new();
    for number in 0..12 {
        ids.push(send_again_and_again(&store, &format!("batch.{number}"), Plan::new(3, 1_000), 1).await);
    }
    let _worker = start_any(&store, job.clone(), Settings { concurrency: 16, ..settings() });
    within(secs(60), "two steps", async || job.trace.steps(&ids[11]).len() == 2).await;
    store.cancel(&ids).await.unwrap();
    emptied(&store, secs(60)).await;
    assert_eq!(end(&store, &ids[0]).await, Some(JobEnd::Done(3)));
    assert_eq!(store.ends_of::<u32>(&ids).await.unwrap(), vec![Some(JobEnd::Done(3)); 12]);
}

/// The canceller died between the mark and the record.
#[tokio::test(start_paused = true)]
async fn a_mark_alone_keeps_a_job_of_an_unknown_kind_out_of_the_poison_queue() {
    let store = memory::store();
    let id = enqueue(&store, &[Plan::new(9, 10)]).await.remove(0);
    let (dying, faults) = Faults::wrap(store.clone());
    faults.next_calls(Op::Save, 1, Fault::Fail(ErrorKind::Unavailable));
    dying.cancel(std::slice::from_ref(&id)).await.unwrap_err();
    let settings = Settings { unknown_kind_after: secs(600), ..settings() };
    let _worker = start_any(&store, Other, settings);
    emptied(&store, secs(1_200)).await;
    assert_eq!(poisoned(&store).await, Vec::<String>::new());
}

/// It is in the poison queue, and whoever waits for its end waits for ever.
#[tokio::test(start_paused = true)]
async fn a_job_that_no_worker_knows_any_more_has_failed() {
    let mut ends = Vec::new();
    for redriven in [true, false] {
        let (store, job) = (memory::store(), Steps::default());
        let plan = Plan::new(100, 1_000);
        let id = if redriven {
            enqueue(&store, &[plan.habit(Habit::FatalAt(3))]).await.remove(0)
        } else {
            enqueue_as(&store, "own", plan).await
        };
        let worker = start(&store, &job);
        sleep(secs(20)).await;
        worker.stop().await;
        if redriven {
            assert!(matches!(end(&store, &id).await, Some(JobEnd::Failed(_))));
            store.redrive(&Redrive::All).await.unwrap();
        }
        // Only workers of another kind run from now on.
        let settings = Settings { unknown_kind_after: secs(600), ..settings() };
        let _worker = start_any(&store, Other, settings);
        within(secs(1_200), "a dead letter", async || !poisoned(&store).await.is_empty()).await;
        emptied(&store, secs(60)).await;
        ends.push(end(&store, &id).await);
    }
    assert!(ends.iter().all(|end| matches!(end, Some(JobEnd::Failed(_)))), "redriven, own id: {ends:?}");
}

#[tokio::test(start_paused = true)]
async fn an_obsolete_message_does_not_fail_a_redriven_job() {
    let (store, job) = (memory::store(), Steps::default());
    let id = enqueue_as(&store, "mine", Plan::new(9, 10).habit(Habit::FailsUntilHealed(3))).await;
    // The producer lost the answer and enqueued it again: there are two messages.
    assert_eq!(enqueue_as(&store, "mine", Plan::new(9, 10).habit(Habit::FailsUntilHealed(3))).await, id);
    assert_eq!(total(&store).await, 2);
    // A worker of another deployment receives one of them, and defers it.
    let unknown = Settings { concurrency: 1, unknown_kind_after: secs(3_000), ..settings() };
    let old = start_any(&store, Other, unknown);
    sleep(secs(2_000)).await;
    old.stop().await;
    let held = loop {
        let mut got = store.queue.receive(1, secs(3_600)).await.unwrap();
        if let Some(got) = got.pop() {
            break got;
        }
        sleep(secs(1)).await;
    };
    let worker = start(&store, &job);
    within(secs(3_000), "a letter", async || !poisoned(&store).await.is_empty()).await;
    worker.stop().await;
    job.heal();
    store.redrive(&Redrive::All).await.unwrap();
    store.queue.release(&held.receipt, &Release::default()).await.unwrap();
    let unknown = Settings { unknown_kind_after: secs(3_000), ..settings() };
    let other = start_any(&store, Other, unknown);
    within(secs(4_000), "one is lettered", async || !poisoned(&store).await.is_empty()).await;
    other.stop().await;
    let _worker = start(&store, &job);
    emptied(&store, secs(1_000)).await;
    assert_eq!(end(&store, &id).await, Some(JobEnd::Done(9)));
}

#[tokio::test(start_paused = true)]
async fn a_done_job_is_not_failed_by_a_worker_that_does_not_know_it() {
    let (inner, job) = (memory::store(), Steps::default());
    let (store, faults) = Faults::wrap(inner.clone());
    let id = enqueue_as(&inner, "mine", Plan::new(3, 2_000)).await;
    let more: Vec<_> = (0..9).map(|n| JobId::parse(format!("mine{n}")).unwrap()).collect();
    for n in &more {
        enqueue_as(&inner, n.as_str(), Plan::new(1, 1)).await;
    }
    for n in &more {
        cancel(&inner, n).await;
    }
    let worker = start(&store, &job);
    within(secs(20), "a step", async || job.trace.steps(&id).len() == 2).await;
    faults.every_call(Op::Save, Fault::Hang);
    within(secs(20), "the result", async || end(&inner, &id).await == Some(JobEnd::Done(3))).await;
    worker.kill().await;
    let settings = Settings { unknown_kind_after: secs(600), ..settings() };
    let _worker = start_any(&inner, Other, settings);
    within(secs(3_600), "a letter", async || total(&inner).await == 0).await;
    sleep(secs(60)).await;
    let all: Vec<_> = std::iter::once(id.clone()).chain(more).collect();
    let ends = inner.ends_of::<u32>(&all).await.unwrap();
    assert_eq!(ends[0], end(&inner, &id).await);
    assert_eq!(end(&inner, &id).await, Some(JobEnd::Done(3)));
}

#[tokio::test(start_paused = true)]
async fn a_moved_job_that_nobody_knows_has_failed() {
    let (spot, job) = (memory::store(), Steps::default());
    let regular = Store { queue: Arc::new(MemoryQueue::named("regular")), ..spot.clone() };
    let id = enqueue_as(&spot, "mine", Plan::new(1, 60_000)).await;
    let escalation = Escalation {
        queue: Arc::clone(&regular.queue),
        name: "regular".to_owned(),
        after: Escalation::AFTER,
    };
    for _ in 0..10 {
        let worker = start_escalating(&spot, &job, settings(), ManualNotices::answered(), escalation.clone());
        sleep(secs(15)).await;
        if total(&spot).await > 0 {
            worker.evict(secs(30)).await;
        }
        worker.stop().await;
        if total(&spot).await == 0 {
            break;
        }
    }
    assert_eq!((total(&spot).await, total(&regular).await), (0, 1));
    let settings = Settings { unknown_kind_after: secs(600), ..settings() };
    let _worker = start_any(&regular, Other, settings);
    within(secs(3_600), "a letter", async || !poisoned(&regular).await.is_empty()).await;
    sleep(secs(60)).await;
    assert!(matches!(end(&spot, &id).await, Some(JobEnd::Failed(_))), "{:?}", end(&spot, &id).await);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_failed_just_before_a_drain_is_settled_within_its_budget() {
    let (inner, job) = (memory::store(), Steps::default());
    let (store, faults) = Faults::wrap(inner.clone());
    let id = enqueue(&inner, &[Plan::new(3, 100).habit(Habit::FatalAt(1))]).await.remove(0);
    let _ = id;
    faults.every_call(Op::Exists, Fault::Hang);
    let worker = start(&store, &job);
    within(secs(10), "a lease", async || leased(&inner).await == 1).await;
    sleep(secs(1)).await;
    let report = worker.evict(secs(5)).await;
    assert_eq!(report.abandoned, 0);
}

#[tokio::test(start_paused = true)]
async fn a_redrive_leaves_the_mark_of_a_job_that_runs() {
    let (inner, job) = (memory::store(), Steps::default());
    let (store, faults) = Faults::wrap(inner.clone());
    let id = enqueue(&inner, &[Plan::new(2, 1_200_000).habit(Habit::FailsUntilHealed(0))]).await.remove(0);
    let worker = start(&inner, &job);
    within(secs(3_000), "a letter", async || !poisoned(&inner).await.is_empty()).await;
    worker.stop().await;
    job.heal();
    // The redrive's process dies before it removes the letter.
    faults.every_call(Op::RemoveLetter, Fault::Fail(ErrorKind::Unavailable));
    store.redrive(&Redrive::All).await.unwrap();
    assert_eq!(poisoned(&inner).await.len(), 1);
    let _worker = start(&inner, &job);
    sleep(secs(60)).await;
    assert_eq!(record(&inner, &id).await.unwrap().status, Status::Running);
    faults.clear_all();
    // The operator redrives the rest; it reads the record, and the job is cancelled before it goes on.
    faults.every_call(Op::Delete, Fault::Delay(ms(500)));
    let redrive = tokio::spawn({
        let store = store.clone();
        async move { store.redrive(&Redrive::All).await }
    });
    sleep(ms(100)).await;
    assert_eq!(cancel(&inner, &id).await, Cancel::Cancelled);
    redrive.await.unwrap().unwrap();
    let cancelled = Instant::now();
    within(secs(10_000), "its end", async || total(&inner).await == 0).await;
    assert!(cancelled.elapsed() < secs(70), "{:?} {:?}", cancelled.elapsed(), end(&inner, &id).await);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_dead_letter_that_is_redriven_is_deleted() {
    let store = memory::store();
    let id = enqueue(&store, &[Plan::new(9, 10)]).await.remove(0);
    let settings = Settings { unknown_kind_after: secs(600), ..settings() };
    let _worker = start_any(&store, Other, settings);
    within(secs(3_600), "a letter", async || !poisoned(&store).await.is_empty()).await;
    cancel(&store, &id).await;
    store.redrive(&Redrive::All).await.unwrap();
    within(secs(3_600), "its end", async || total(&store).await == 0).await;
    assert_eq!(poisoned(&store).await, Vec::<String>::new());
}
