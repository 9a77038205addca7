//! Promise 2: from a notice to the last released lease, under a second for jobs that co-operate,
//! ten seconds always.

use async_trait::async_trait;
use reprieve_core::checkpoint::CheckpointEvery;
use reprieve_core::memory::{self, Fault, Faults, ManualNotices, Op};
use reprieve_core::worker::{Settings, Worker};
use reprieve_core::{BlobName, ErrorKind, Fence, Job, JobContext, JobError, Step, Writer};
use tokio::time::{Instant, sleep};

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn jobs_that_co_operate_are_released_within_a_second_of_the_notice() {
    let (store, job) = (memory::store(), Steps::default());
    enqueue(&store, &[Plan::new(1000, 300); 4]).await;
    let worker = start(&store, &job);
    within(secs(5), "all in flight", async || leased(&store).await == 4).await;
    tokio::time::sleep(secs(8)).await;

    let report = worker.evict(secs(30)).await;
    assert_eq!((report.held, report.released_saved), (4, 4), "{report:?}");
    assert!(report.released_after_ms < 1000, "{report:?}");
    assert_eq!(ready(&store).await, 4, "every message can be received at once");
}

#[tokio::test(start_paused = true)]
async fn a_long_step_that_watches_for_the_interruption_is_released_at_once() {
    let (store, job) = (memory::store(), Steps::default());
    enqueue(&store, &[Plan::new(3, 3_600_000).habit(Habit::Watches)]).await;
    let worker = start(&store, &job);
    within(secs(5), "in flight", async || leased(&store).await == 1).await;

    let report = worker.evict(secs(30)).await;
    assert!(report.released_after_ms < 100, "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn unstarted_jobs_are_released_first_and_cost_no_attempt() {
    let (store, job) = (memory::store(), Steps::default());
    // Short jobs, so that the worker prefetches, then long ones that fill its slots.
    enqueue(&store, &[Plan::new(1, 1); 64]).await;
    let worker = start(&store, &job);
    emptied(&store, secs(30)).await;
    enqueue(&store, &[Plan::new(2, 2_500); 36]).await;
    within(secs(20), "reading ahead", async || leased(&store).await > 4).await;

    worker.notices.notice(preempt("evicted").at(Instant::now() + secs(30)));
    tokio::time::sleep(ms(100)).await;
    assert_eq!(leased(&store).await, 4, "only running jobs are still leased");
    let report = worker.drained().await;
    assert!(report.released_unstarted > 0, "{report:?}");
    assert_eq!(total(&store).await, 36);

    let again = start(&store, &job);
    emptied(&store, secs(300)).await;
    assert_eq!(poisoned(&store).await, Vec::<String>::new());
    again.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_short_rest_of_a_resumed_job_is_no_reason_to_read_ahead() {
    let (store, job) = (memory::store(), Steps::default());
    let ids = enqueue(&store, &[Plan::new(20, 100)]).await;
    let worker = start(&store, &job);
    within(secs(30), "nearly done", async || job.trace.steps(&ids[0]).len() == 18).await;
    worker.evict(secs(30)).await;
    worker.stop().await;

    let fresh = start(&store, &job);
    emptied(&store, secs(30)).await;
    enqueue(&store, &[Plan::new(2, 2_500); 36]).await;
    within(secs(20), "at work", async || leased(&store).await == 4).await;
    for _ in 0..40 {
        tokio::time::sleep(ms(100)).await;
        assert!(leased(&store).await <= 4, "this worker holds jobs that another could run");
    }
    fresh.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_job_that_never_yields_is_released_at_the_soft_mark_on_its_last_checkpoint() {
    let (store, job) = (memory::store(), Steps::default());
    let ids = enqueue(&store, &[Plan::new(20, 1000).habit(Habit::StuckAt(12))]).await;
    let worker = start(&store, &job);
    within(secs(30), "stuck", async || job.trace.steps(&ids[0]).len() == 12).await;
    tokio::time::sleep(secs(1)).await;

    let report = worker.evict(secs(30)).await;
    assert_eq!(report.released_cut, 1, "{report:?}");
    assert!((3000..3500).contains(&report.released_after_ms), "{report:?}");
    assert!(
        report.work_lost_ms <= 5000 + 1000 + 3000,
        "one interval, one step and the soft mark: {report:?}"
    );
    assert_eq!(ready(&store).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_storage_that_answers_503_for_seconds_delays_the_release_but_not_past_the_budget() {
    let (inner, job) = (memory::store(), Steps::default());
    let (store, faults) = Faults::wrap(inner.clone());
    enqueue(&inner, &[Plan::new(1000, 100); 4]).await;
    let worker = start(&store, &job);
    within(secs(5), "all in flight", async || leased(&inner).await == 4).await;

    faults.everything(Fault::Fail(ErrorKind::Unavailable));
    let began = Instant::now();
    worker.notices.notice(preempt("evicted").at(began + secs(30)));
    tokio::time::sleep(secs(5)).await;
    assert_eq!(leased(&inner).await, 4);
    faults.clear_all();
    let report = worker.drained().await;
    assert_eq!(leased(&inner).await, 0, "{report:?}");
    assert!(report.released_after_ms < 10_000, "{report:?}");
    assert_eq!(report.abandoned, 0, "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn one_try_that_gets_no_answer_does_not_cost_the_others_their_time() {
    let (inner, job) = (memory::store(), Steps::default());
    let (store, faults) = Faults::wrap(inner.clone());
    enqueue(&inner, &[Plan::new(1000, 100); 4]).await;
    let worker = start(&store, &job);
    within(secs(5), "all in flight", async || leased(&inner).await == 4).await;

    faults.next_calls(Op::Release, 2, Fault::Hang);
    let report = worker.evict(secs(30)).await;
    assert_eq!(leased(&inner).await, 0, "{report:?}");
    assert!((1000..2500).contains(&report.released_after_ms), "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn silent_storage_ends_the_drain_at_its_deadline_with_the_abandoned_jobs_reported() {
    let (inner, job) = (memory::store(), Steps::default());
    let (store, faults) = Faults::wrap(inner.clone());
    enqueue(&inner, &[Plan::new(1000, 100); 4]).await;
    let worker = start(&store, &job);
    within(secs(5), "all in flight", async || leased(&inner).await == 4).await;

    faults.everything(Fault::Hang);
    let began = Instant::now();
    let report = worker.evict(secs(30)).await;
    assert!(began.elapsed() <= secs(11), "the drain took {:?}", began.elapsed());
    assert_eq!(report.abandoned, 4, "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn a_notice_shorter_than_the_budget_is_kept() {
    for notice in [ms(500), secs(2), secs(5)] {
        let (store, job) = (memory::store(), Steps::default());
        enqueue(&store, &[Plan::new(10, 1000).habit(Habit::StuckAt(1))]).await;
        let worker = start(&store, &job);
        within(secs(5), "in flight", async || leased(&store).await == 1).await;
        tokio::time::sleep(secs(2)).await;

        let report = worker.evict(notice).await;
        let limit = u64::try_from(notice.as_millis()).unwrap();
        assert!(report.released_after_ms < limit, "a notice of {notice:?}: {report:?}");
        assert_eq!((ready(&store).await, report.released_cut), (1, 1), "{report:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_notice_already_started_leaves_the_budget_to_be_used() {
    let (store, job) = (memory::store(), Steps::default());
    enqueue(&store, &[Plan::new(100, 900)]).await;
    let worker = start(&store, &job);
    within(secs(5), "in flight", async || leased(&store).await == 1).await;
    worker.notices.notice(preempt("already"));
    let report = worker.drained().await;
    assert_eq!(report.released_saved, 1, "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn a_second_notice_never_extends_the_deadline_and_an_earlier_one_shortens_it() {
    for (second, released) in [(secs(30), 3000..3500), (secs(2), 1100..2000)] {
        let (store, job) = (memory::store(), Steps::default());
        enqueue(&store, &[Plan::new(10, 1000).habit(Habit::StuckAt(0))]).await;
        let worker = start(&store, &job);
        within(secs(5), "in flight", async || leased(&store).await == 1).await;

        worker.notices.notice(preempt("first").at(Instant::now() + secs(20)));
        tokio::time::sleep(ms(500)).await;
        worker.notices.notice(preempt("second").at(Instant::now() + second));
        let report = worker.drained().await;
        assert!(released.contains(&report.released_after_ms), "{second:?}: {report:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_ends_during_the_drain_is_completed_not_released() {
    let (store, job) = (memory::store(), Steps::default());
    enqueue(&store, &[Plan::new(1, 2000)]).await;
    let worker = start(&store, &job);
    within(secs(5), "in flight", async || leased(&store).await == 1).await;
    tokio::time::sleep(secs(1)).await;
    let report = worker.evict(secs(30)).await;
    assert_eq!((report.finished, total(&store).await), (1, 0), "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn a_notice_while_a_checkpoint_is_waited_for_gives_the_message_back_at_once() {
    let (inner, job) = (memory::store(), Steps::default());
    enqueue(&inner, &[Plan::new(60, 500)]).await;
    let first = start(&inner, &job);
    tokio::time::sleep(secs(10)).await;
    first.kill().await;
    let (store, faults) = Faults::wrap(inner.clone());
    faults.every_call(Op::Load, Fault::Hang);
    let next = start(&store, &job);
    faults.called(Op::Load, 1).await;
    let report = next.evict(secs(30)).await;
    assert!(report.released_after_ms < 1000 && report.released_unstarted == 1, "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn a_renewal_without_an_answer_in_a_drain_does_not_cost_the_release() {
    let (inner, job) = (memory::store(), Steps::default());
    let (store, faults) = Faults::wrap(inner.clone());
    enqueue(&inner, &[Plan::new(100, 2_300)]).await;
    let worker = start(&store, &job);
    within(secs(5), "in flight", async || leased(&inner).await == 1).await;
    tokio::time::sleep(ms(18_500)).await;
    faults.next_calls(Op::Renew, 1, Fault::Hang);
    tokio::time::sleep(ms(1_000)).await;
    let report = worker.evict(secs(30)).await; // notice at 19.5, renewal at 20
    assert!(report.released_after_ms < 4000 && report.abandoned == 0, "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn a_settlement_under_way_when_a_notice_comes_hurries_too() {
    let (inner, job) = (memory::store(), Steps::default());
    let (store, faults) = Faults::wrap(inner.clone());
    enqueue(&inner, &[Plan::new(1, 1_000)]).await;
    faults.next_calls(Op::Complete, 1, Fault::Hang);
    let worker = start(&store, &job);
    faults.called(Op::Complete, 1).await;
    let report = worker.evict(secs(5)).await;
    assert_eq!((report.abandoned, total(&inner).await), (0, 0), "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn a_completion_that_is_applied_when_a_notice_comes_and_answered_later_is_counted() {
    for late_ms in [20, 700, 3_000] {
        let (inner, job) = (memory::store(), Steps::default());
        let (store, faults) = Faults::wrap(inner.clone());
        enqueue(&inner, &[Plan::new(1, 1_000)]).await;
        faults.next_calls(Op::Complete, 1, Fault::LateAnswer(ms(late_ms)));
        let worker = start(&store, &job);
        within(secs(5), "the message is gone", async || total(&inner).await == 0).await;
        let report = worker.evict(secs(30)).await;
        assert_eq!((report.finished, report.leases_lost), (1, 0), "{late_ms} ms late: {report:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_records_removal_is_unanswered_at_the_notice_counts_as_finished() {
    for fault in [Fault::LateAnswer(secs(8)), Fault::Hang] {
        let (inner, job) = (memory::store(), Steps::default());
        let (store, faults) = Faults::wrap(inner.clone());
        enqueue(&inner, &[Plan::new(8, 1_000)]).await;
        faults.next_calls(Op::Remove, 1, fault);
        let worker = start(&store, &job);
        faults.called(Op::Remove, 1).await;
        assert_eq!(total(&inner).await, 0, "the message is gone");
        let report = worker.evict(secs(5)).await;
        assert_eq!((report.abandoned, report.finished), (0, 1), "{fault:?}: {report:?}");
        assert!(report.released_after_ms < 2_000, "{fault:?}: {report:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_final_status_that_is_unanswered_at_the_notice_is_written_again_by_the_drain() {
    for habit in [Habit::Works, Habit::FatalAt(7)] {
        for fault in [Fault::LateAnswer(secs(8)), Fault::Hang] {
            for notice in [secs(5), secs(30)] {
                let (inner, job) = (memory::store(), Steps::default());
                let (store, faults) = Faults::wrap(inner.clone());
                enqueue(&inner, &[Plan::new(8, 1_000).habit(habit)]).await;
                let worker = start(&store, &job);
                within(secs(20), "its first save", async || faults.calls(Op::Save) == 1).await;
                faults.next_calls(Op::Save, 1, fault);
                faults.called(Op::Save, 2).await;
                let report = worker.evict(notice).await;
                assert_eq!((report.abandoned, report.finished), (0, 1), "{habit:?} {fault:?}: {report:?}");
                assert!(report.released_after_ms < 2_000, "{habit:?} {fault:?}: {report:?}");
            }
        }
    }
}

/// Its output was refused, and the record's next generation is being written at the notice.
#[tokio::test(start_paused = true)]
async fn a_generation_that_is_unanswered_at_the_notice_is_written_again_by_the_drain() {
    for fault in [Fault::LateAnswer(secs(8)), Fault::Hang] {
        let (inner, job) = (memory::store(), Steps::default());
        let (store, faults) = Faults::wrap(inner.clone());
        let ids = enqueue(&inner, &[Plan::new(12, 1_000).habit(Habit::Publishes)]).await;
        let output = BlobName::parse(format!("out/{}/7", ids[0])).unwrap();
        let writer = Writer { job: ids[0].clone(), fence: Fence::new(3, 3) };
        inner.blobs.put(&output, b"another owner's".to_vec(), Some(&writer)).await.unwrap();
        let worker = start(&store, &job);
        within(secs(20), "its first save", async || faults.calls(Op::Save) == 1).await;
        faults.next_calls(Op::Save, 1, fault);
        faults.called(Op::Save, 2).await;
        let report = worker.evict(secs(30)).await;
        assert_eq!((report.abandoned, leased(&inner).await), (0, 0), "{fault:?}: {report:?}");
        assert!(report.released_after_ms < 2_000, "{fault:?}: {report:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn releases_go_out_soon_after_storage_answers_again() {
    for _ in 0..5 {
        let (inner, job) = (memory::store(), Steps::default());
        let (store, faults) = Faults::wrap(inner.clone());
        enqueue(&inner, &[Plan::new(1000, 100); 4]).await;
        let worker = start(&store, &job);
        within(secs(5), "all in flight", async || leased(&inner).await == 4).await;
        faults.every_call(Op::Release, Fault::Fail(ErrorKind::Unavailable));
        worker.notices.notice(preempt("evicted").at(Instant::now() + secs(30)));
        tokio::time::sleep(ms(5_500)).await;
        faults.clear_all();
        let report = worker.drained().await;
        assert!(report.abandoned == 0 && report.released_after_ms < 7_000, "{report:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_known_to_take_long_is_waited_for_in_a_drain() {
    let (inner, job) = (memory::store(), Steps::default());
    let (store, faults) = Faults::wrap(inner.clone());
    faults.every_call(Op::Save, Fault::Delay(ms(1500)));
    enqueue(&inner, &[Plan::new(100, 200)]).await;
    let every = Settings { checkpoint_every: CheckpointEvery::Every(secs(5)), ..settings() };
    let worker = start_with(&store, &job, every, ManualNotices::answered());
    within(secs(60), "some saves", async || faults.calls(Op::Save) > 3).await;
    tokio::time::sleep(secs(3)).await;
    let report = worker.evict(secs(30)).await;
    assert_eq!((report.released_saved, report.released_cut), (1, 0), "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn a_first_checkpoint_that_takes_long_is_waited_for_in_a_drain() {
    let (inner, job) = (memory::store(), Steps::default());
    let (store, faults) = Faults::wrap(inner.clone());
    // As for a state of some 100 MB: no save of this worker has shown how long one takes.
    faults.every_call(Op::Save, Fault::Delay(ms(1500)));
    let ids = enqueue(&inner, &[Plan::new(100, 200)]).await;
    let every = Settings { checkpoint_every: CheckpointEvery::Every(secs(30)), ..settings() };
    let worker = start_with(&store, &job, every, ManualNotices::answered());
    within(secs(20), "some steps", async || job.trace.steps(&ids[0]).len() == 50).await;
    let report = worker.evict(secs(30)).await;
    assert_eq!((report.released_saved, report.released_cut), (1, 0), "{report:?}");
}

/// A store that never answers a save must not keep the messages: they go at the soft mark, or at the end
/// of a try that began before it.
#[tokio::test(start_paused = true)]
async fn a_save_that_is_never_answered_delays_the_release_by_one_try_at_most() {
    let (inner, job) = (memory::store(), Steps::default());
    let (store, faults) = Faults::wrap(inner.clone());
    let ids =
        enqueue(&inner, &[Plan { padding: 60_000_000, ..Plan::new(100, 200) }, Plan::new(100, 200)]).await;
    let every = Settings { checkpoint_every: CheckpointEvery::Every(secs(30)), concurrency: 2, ..settings() };
    let worker = start_with(&store, &job, every, ManualNotices::answered());
    within(secs(20), "some steps", async || ids.iter().all(|id| job.trace.steps(id).len() >= 5)).await;
    faults.every_call(Op::Save, Fault::Hang);
    let report = worker.evict(secs(30)).await;
    assert_eq!((report.released_unconfirmed, report.abandoned), (2, 0), "{report:?}");
    assert!((3_000..6_100).contains(&report.released_after_ms), "{report:?}");
    assert_eq!(leased(&inner).await, 0);
}

/// The time of a try counts only while it is under way.
#[tokio::test(start_paused = true)]
async fn saves_that_fail_at_once_delay_no_release() {
    for (kind, padding) in
        [(ErrorKind::Unavailable, 10), (ErrorKind::Unavailable, 60_000_000), (ErrorKind::TimedOut, 10)]
    {
        let (inner, job) = (memory::store(), Steps::default());
        let (store, faults) = Faults::wrap(inner.clone());
        enqueue(&inner, &[Plan { padding, ..Plan::new(1_000, 100) }]).await;
        let every = Settings { checkpoint_every: CheckpointEvery::Every(secs(60)), ..settings() };
        let worker = start_with(&store, &job, every, ManualNotices::answered());
        within(secs(20), "in flight", async || leased(&inner).await == 1).await;
        tokio::time::sleep(ms(700)).await;
        faults.every_call(Op::Save, Fault::Fail(kind));
        let report = worker.evict(secs(30)).await;
        assert!(report.released_after_ms <= 3_100, "{kind:?}, {padding} bytes: {report:?}");
    }
}

/// A save of 60 MB that is under way at the notice has as much time as one that begins then.
#[tokio::test(start_paused = true)]
async fn a_first_save_that_is_under_way_at_the_notice_has_the_time_of_its_length() {
    for notice_after_ms in [4_000, 6_000] {
        let (inner, job) = (memory::store(), Steps::default());
        let (store, faults) = Faults::wrap(inner.clone());
        faults.every_call(Op::Save, Fault::Delay(ms(3_900)));
        enqueue(&inner, &[Plan { padding: 100_000_000, ..Plan::new(1_000, 200) }]).await;
        let every = Settings { checkpoint_every: CheckpointEvery::Every(secs(5)), ..settings() };
        let worker = start_with(&store, &job, every, ManualNotices::answered());
        worker.started().await;
        tokio::time::sleep(ms(notice_after_ms)).await;
        let report = worker.evict(secs(30)).await;
        assert_eq!(report.released_saved, 1, "notice after {notice_after_ms} ms: {report:?}");
    }
}

/// A release comes before the hard mark whatever the notice, the size and the store's answer.
#[tokio::test(start_paused = true)]
async fn no_message_is_held_past_the_hard_mark() {
    for notice_ms in [300, 5_000, 30_000] {
        for fault in [Fault::Hang, Fault::Delay(ms(2_900)), Fault::LoseAnswer] {
            for padding in [10, 60_000_000] {
                let (inner, job) = (memory::store(), Steps::default());
                let (store, faults) = Faults::wrap(inner.clone());
                enqueue(&inner, &[Plan { padding, ..Plan::new(1_000, 100) }]).await;
                let every = Settings { checkpoint_every: CheckpointEvery::Every(secs(60)), ..settings() };
                let worker = start_with(&store, &job, every, ManualNotices::answered());
                within(secs(20), "in flight", async || leased(&store).await == 1).await;
                tokio::time::sleep(ms(700)).await;
                faults.every_call(Op::Save, fault);
                let report = worker.evict(ms(notice_ms)).await;
                let limit = notice_ms.clamp(2_000, 10_000) * 6 / 10 + 200;
                assert!(report.abandoned == 0 && report.released_after_ms <= limit, "{report:?}");
                worker.kill().await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn messages_that_arrive_in_a_drain_are_not_begun() {
    let (inner, job) = (memory::store(), Steps::default());
    let (store, faults) = Faults::wrap(inner.clone());
    faults.every_call(Op::Receive, Fault::Delay(ms(800)));
    enqueue(&inner, &[Plan::new(10, 1000); 3]).await;
    let worker = start(&store, &job);
    worker.started().await;
    faults.called(Op::Receive, 1).await;
    let report = worker.evict(secs(30)).await;
    assert_eq!((report.held, report.released_unstarted), (3, 3), "{report:?}");
    assert_eq!((faults.calls(Op::Save), ready(&inner).await), (0, 3));
}

#[tokio::test(start_paused = true)]
async fn the_in_flight_gauge_is_zero_after_a_drain_that_abandoned() {
    let (inner, job) = (memory::store(), Steps::default());
    let (store, faults) = Faults::wrap(inner.clone());
    enqueue(&inner, &[Plan::new(1, 1_000)]).await;
    faults.next_calls(Op::Complete, 1, Fault::Hang);
    let worker = start(&store, &job);
    faults.called(Op::Complete, 1).await;
    worker.evict(secs(5)).await;
    assert_eq!(worker.monitor.telemetry().in_flight.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_fails_in_a_drain_is_no_failure_of_the_job() {
    let (inner, job) = (memory::store(), Steps::default());
    let (store, faults) = Faults::wrap(inner.clone());
    enqueue(&inner, &[Plan::new(1000, 700).habit(Habit::Publishes)]).await;
    let worker = start(&store, &job);
    tokio::time::sleep(ms(2_300)).await;
    faults.every_call(Op::Put, Fault::Fail(ErrorKind::Unavailable));
    let _ = worker.evict(secs(30)).await;
    tokio::time::sleep(secs(3)).await;
    let held = inner.queue.receive(1, secs(60)).await.unwrap();
    let body = String::from_utf8(held[0].body.clone()).unwrap();
    assert!(!body.contains("failed"), "{body}");
}

#[tokio::test(start_paused = true)]
async fn a_result_without_an_answer_at_the_notice_is_written_again_by_the_drain() {
    let (inner, job) = (memory::store(), Steps::default());
    let (store, faults) = Faults::wrap(inner.clone());
    enqueue(&inner, &[Plan::new(1, 1_000)]).await;
    faults.next_calls(Op::Put, 1, Fault::Hang);
    let worker = start(&store, &job);
    faults.called(Op::Put, 1).await;
    let report = worker.evict(secs(30)).await;
    assert_eq!((report.finished, report.released_cut), (1, 0), "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_is_applied_at_once_and_answered_late_does_not_strand_the_lease() {
    for late_ms in [300, 1_500, 4_000] {
        let (inner, job) = (memory::store(), Steps::default());
        let (store, faults) = Faults::wrap(inner.clone());
        enqueue(&inner, &[Plan::new(1_000, 100); 4]).await;
        let worker = start(&store, &job);
        within(secs(5), "all in flight", async || leased(&inner).await == 4).await;
        faults.next_calls(Op::Renew, 4, Fault::LateAnswer(ms(late_ms)));
        faults.called(Op::Renew, 4).await;
        let report = worker.evict(secs(30)).await;
        assert_eq!((report.released_saved, leased(&inner).await), (4, 0), "{late_ms} ms late: {report:?}");
        assert!(report.released_after_ms < late_ms + 500, "{late_ms} ms late: {report:?}");
    }
}

/// Slower than the first timeout of a call.
#[tokio::test(start_paused = true)]
async fn a_store_that_takes_seconds_for_each_call_still_gets_its_messages_back() {
    for delay_ms in [900, 1_100, 1_900, 2_900] {
        for (fault, what) in
            [(Fault::Delay(ms(delay_ms)), "slow"), (Fault::LateAnswer(ms(delay_ms)), "answers late")]
        {
            let (inner, job) = (memory::store(), Steps::default());
            let (store, faults) = Faults::wrap(inner.clone());
            enqueue(&inner, &[Plan::new(1000, 300); 4]).await;
            let worker = start(&store, &job);
            within(secs(5), "all in flight", async || leased(&inner).await == 4).await;
            tokio::time::sleep(secs(8)).await;
            faults.every_call(Op::Release, fault);
            let report = worker.evict(secs(30)).await;
            assert_eq!(
                (report.abandoned, ready(&inner).await),
                (0, 4),
                "{what} by {delay_ms} ms: {report:?}"
            );
        }
    }
}

/// An earlier save may have been applied, whatever the result of the next one.
#[tokio::test(start_paused = true)]
async fn a_save_that_was_not_answered_stays_unknown_when_the_next_one_fails() {
    for kind in [ErrorKind::Unavailable, ErrorKind::Denied] {
        let (inner, job) = (memory::store(), Steps::default());
        let (store, faults) = Faults::wrap(inner.clone());
        enqueue(&inner, &[Plan::new(1000, 300); 2]).await;
        let worker = start(&store, &job);
        within(secs(5), "all in flight", async || leased(&inner).await == 2).await;
        tokio::time::sleep(secs(8)).await;
        faults.next_calls(Op::Save, 2, Fault::LoseAnswer);
        faults.every_call(Op::Save, Fault::Fail(kind));
        let report = worker.evict(secs(30)).await;
        assert_eq!((report.released_unconfirmed, report.work_lost_ms), (2, 0), "{kind:?}: {report:?}");
    }
}

/// Whether the machine was frozen for a moment or for minutes at its hard mark.
#[tokio::test(start_paused = true)]
async fn a_freeze_over_the_hard_mark_abandons_nothing() {
    for frozen_ms in [9_800, 10_100, 11_000, 11_900, 12_500, 20_000] {
        let (store, job) = (memory::store(), Steps::default());
        enqueue(&store, &[Plan::new(1000, 300); 4]).await;
        let gate = reprieve_core::process::Gate::new();
        let worker = start_in(&gate, &store, &job, settings());
        within(secs(5), "all in flight", async || leased(&store).await == 4).await;
        tokio::time::sleep(secs(8)).await;
        worker.notices.notice(preempt("evicted").at(Instant::now() + secs(40)));
        tokio::time::sleep(ms(20)).await;
        gate.freeze();
        tokio::time::sleep(ms(frozen_ms)).await;
        gate.thaw();
        let report = worker.drained().await;
        assert_eq!((report.abandoned, ready(&store).await), (0, 4), "frozen {frozen_ms} ms: {report:?}");
    }
}

/// Waits until it is asked to yield. Then it fails for good, or saves.
struct Asked;

#[async_trait]
impl Job for Asked {
    const KIND: &'static str = "asked";
    type Args = bool;
    type Checkpoint = ();
    type Output = ();

    fn begin(&self, _: &bool) {}

    async fn step(&self, cx: &JobContext, fails: &bool, (): ()) -> Result<Step<(), ()>, JobError> {
        cx.interrupted().await;
        if *fails { Err(JobError::fatal("it can't be resumed")) } else { Ok(Step::Continue(())) }
    }
}

/// The letter is sent before the message is removed, so a try that is given up may have sent it.
#[tokio::test(start_paused = true)]
async fn a_dead_letter_that_begins_in_a_drain_is_sent_in_one_try_though_it_takes_seconds() {
    for slow in [ms(900), ms(2_000), secs(6)] {
        let (store, faults) = Faults::wrap(memory::store());
        send_args::<Asked>(&store, &true).await;
        let worker = start_any(&store, Asked, settings());
        worker.started().await;
        within(secs(5), "in flight", async || leased(&store).await == 1).await;
        // It begins a turn of the loop later.
        sleep(ms(1)).await;
        faults.every_call(Op::DeadLetter, Fault::Delay(slow));
        worker.stop().await;
        assert_eq!(faults.calls(Op::DeadLetter), 1, "a letter takes {slow:?}");
        assert_eq!(poisoned(&store).await.len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn no_dead_letter_of_a_drain_is_sent_twice_however_many_there_are_and_none_begins_that_can_not_end() {
    // 64 are under way at a time, and a drain has ten seconds.
    for (letters, slow, sent) in [
        (65, ms(4_000), 65),
        (128, ms(4_500), 128),
        (192, ms(3_000), 192),
        (320, ms(3_000), 192),
        (130, secs(6), 64),
    ] {
        let (store, faults) = Faults::wrap(memory::store());
        for _ in 0..letters {
            send_args::<Asked>(&store, &true).await;
        }
        let worker = start_any(&store, Asked, Settings { concurrency: letters, ..settings() });
        worker.started().await;
        within(secs(5), "in flight", async || leased(&store).await == letters as u64).await;
        // Each has begun.
        sleep(secs(2)).await;
        faults.every_call(Op::DeadLetter, Fault::Delay(slow));
        worker.stop().await;
        assert_eq!(faults.calls(Op::DeadLetter), sent, "{letters} letters of {slow:?}");
        let dead = store.queue.dead_letters(1_000).await.unwrap().len();
        assert_eq!(dead as u64, sent, "{letters} letters of {slow:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_that_hangs_in_a_patient_drain_is_sent_again_when_an_eviction_is_announced() {
    let (store, faults) = Faults::wrap(memory::store());
    send_args::<Asked>(&store, &true).await;
    let worker = start_any(&store, Asked, settings());
    worker.started().await;
    within(secs(5), "in flight", async || leased(&store).await == 1).await;
    faults.next_calls(Op::DeadLetter, 1, Fault::Hang);
    worker.notices.notice(
        reprieve_core::Notice::now("terminate", reprieve_core::NoticeKind::Terminate)
            .at(Instant::now() + secs(300)),
    );
    sleep(secs(5)).await;
    let report = worker.evict(secs(30)).await;
    assert_eq!((report.abandoned, poisoned(&store).await.len()), (0, 1), "{report:?}");
    assert!(report.released_after_ms < 20_000, "{report:?}");
}

/// A worker whose jobs end in letters, in a drain or before.
fn start_asked_and_steps(store: &reprieve_core::ports::Store, concurrency: usize) -> Running {
    let worker = Worker::builder(store.clone()).job(Asked).job(Steps::default());
    start_built(worker.settings(Settings { concurrency, ..settings() }))
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_is_shorter_than_a_letter_takes_sends_each_once_at_most() {
    // Whether letters of seconds were sent before, or none.
    for before in [true, false] {
        let (store, faults) = Faults::wrap(memory::store());
        faults.every_call(Op::DeadLetter, Fault::LateAnswer(secs(6)));
        let fails_now = Plan::new(1, 1).habit(Habit::FatalAt(0));
        if before {
            enqueue(&store, &[fails_now; 5]).await;
        }
        for _ in 0..10 {
            send_args::<Asked>(&store, &true).await;
        }
        let worker = start_asked_and_steps(&store, 20);
        worker.started().await;
        sleep(secs(15)).await;
        let calls = faults.calls(Op::DeadLetter);
        worker.evict(secs(5)).await;
        let begun = faults.calls(Op::DeadLetter) - calls;
        assert_eq!(begun, if before { 0 } else { 10 }, "letters before: {before}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_dead_letter_that_was_slow_keeps_no_others_from_being_sent_in_a_short_drain() {
    for quick_before in [0, 1, 4] {
        let (store, faults) = Faults::wrap(memory::store());
        faults.next_calls(Op::DeadLetter, 1, Fault::LateAnswer(secs(9)));
        let fails_now = Plan::new(1, 1).habit(Habit::FatalAt(0));
        enqueue(&store, &[fails_now]).await;
        let worker = start_asked_and_steps(&store, 40);
        worker.started().await;
        sleep(secs(15)).await;
        enqueue(&store, &vec![fails_now; quick_before]).await;
        for _ in 0..20 {
            send_args::<Asked>(&store, &true).await;
        }
        sleep(secs(15)).await;
        assert_eq!((worker.ended("dead_lettered"), leased(&store).await), (1 + quick_before as u64, 20));
        faults.every_call(Op::DeadLetter, Fault::LateAnswer(ms(60)));
        let report = worker.evict(secs(5)).await;
        assert_eq!(report.abandoned, 0, "{quick_before} quick ones before: {report:?}");
        assert_eq!(faults.calls(Op::DeadLetter), 21 + quick_before as u64, "each is sent once");
    }
}

/// Only the letter that finds out that it is slow is begun, and may be sent twice.
#[tokio::test(start_paused = true)]
async fn where_one_slow_dead_letter_is_known_one_more_is_begun_in_a_drain_that_is_too_short() {
    let (store, faults) = Faults::wrap(memory::store());
    faults.every_call(Op::DeadLetter, Fault::LateAnswer(secs(6)));
    enqueue(&store, &[Plan::new(1, 1).habit(Habit::FatalAt(0))]).await;
    for _ in 0..10 {
        send_args::<Asked>(&store, &true).await;
    }
    let worker = start_asked_and_steps(&store, 20);
    worker.started().await;
    sleep(secs(15)).await;
    let calls = faults.calls(Op::DeadLetter);
    worker.evict(secs(5)).await;
    assert_eq!((calls, faults.calls(Op::DeadLetter) - calls), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_that_hangs_in_a_drain_that_tightens_twice_is_sent_again() {
    let (store, faults) = Faults::wrap(memory::store());
    send_args::<Asked>(&store, &true).await;
    let worker = start_any(&store, Asked, settings());
    worker.started().await;
    within(secs(5), "in flight", async || leased(&store).await == 1).await;
    faults.next_calls(Op::DeadLetter, 1, Fault::Hang);
    let notice = |id, kind, within| {
        worker.notices.notice(reprieve_core::Notice::now(id, kind).at(Instant::now() + within));
    };
    notice("terminate", reprieve_core::NoticeKind::Terminate, secs(300));
    sleep(secs(5)).await;
    notice("evicted", reprieve_core::NoticeKind::Preempt, secs(30));
    sleep(secs(1)).await;
    notice("sooner", reprieve_core::NoticeKind::Preempt, secs(5));
    let report = worker.drained().await;
    assert_eq!((report.abandoned, poisoned(&store).await.len()), (0, 1), "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn dead_letters_that_hang_hold_up_no_release() {
    let (store, faults) = Faults::wrap(memory::store());
    for number in 0..320 {
        send_args::<Asked>(&store, &(number % 2 == 0)).await;
    }
    let worker = start_any(&store, Asked, Settings { concurrency: 320, ..settings() });
    worker.started().await;
    within(secs(5), "in flight", async || leased(&store).await == 320).await;
    // They begin a turn of the loop later.
    sleep(ms(1)).await;
    faults.every_call(Op::DeadLetter, Fault::Hang);
    worker.notices.notice(preempt("evicted").at(Instant::now() + secs(30)));
    sleep(secs(2)).await;
    assert_eq!(ready(&store).await, 160);
}
