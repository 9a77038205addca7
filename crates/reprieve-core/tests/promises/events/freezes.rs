//! Freezes of the machine.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_short_freeze_is_approved_once_every_lease_outlasts_it_and_disturbs_nothing() {
    let (inner, job) = (memory::store(), Steps::default());
    let (store, faults) = Faults::wrap(inner);
    enqueue(&store, &[Plan::new(200, 1000)]).await;
    let settings = Settings { budget: secs(2), lease: secs(12), ..settings() };
    let worker = start_with(&store, &job, settings, ManualNotices::answered());
    sleep(secs(10)).await;
    faults.every_call(Op::Renew, Fault::Fail(reprieve_core::ErrorKind::Unavailable));
    worker.notices.notice(freeze(Some(9), 900));
    sleep(secs(2)).await;
    assert_eq!(worker.notices.approved(), [], "no lease of 12 s outlasts it, and none could be renewed");
    faults.clear(Op::Renew);
    approved(&worker).await;
    worker.notices.notice(started(freeze(Some(9), 900)));
    sleep(secs(30)).await;
    worker.notices.over(&NoticeId::new("event"), Ending::Completed);
    emptied(&store, secs(200)).await;
    assert_eq!((job.trace.redone(), worker.monitor.last_drain()), (0, None));
}

#[tokio::test(start_paused = true)]
async fn jobs_continue_during_a_long_freeze_and_its_leases_outlast_it() {
    for duration in [None, Some(30)] {
        let (store, job) = (memory::store(), Steps::default());
        let id = enqueue(&store, &[Plan::new(100, 1000)]).await.remove(0);
        let settings = Settings { budget: secs(2), lease: secs(12), ..settings() };
        let worker = start_with(&store, &job, settings, ManualNotices::answered());
        sleep(secs(10)).await;
        worker.notices.notice(freeze(duration, 30));
        sleep(secs(10)).await;
        worker.notices.notice(started(freeze(duration, 30)));
        let before = job.trace.steps(&id).len();
        sleep(secs(20)).await;
        assert!(job.trace.steps(&id).len() >= before + 19, "no pause");
        assert_eq!(worker.notices.approved(), [], "it begins by itself");
        // The freeze itself: the machine is away for 30 s, and another worker receives nothing.
        worker.gate.freeze();
        let other = start(&store, &job);
        sleep(secs(30)).await;
        worker.gate.thaw();
        worker.notices.over(&NoticeId::new("event"), Ending::Completed);
        emptied(&store, secs(120)).await;
        assert_eq!((job.trace.redone(), worker.monitor.last_drain()), (0, None));
        assert_eq!(other.ended("completed"), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn jobs_pause_between_steps_if_set_while_a_long_freeze_is_started_and_then_continue() {
    for duration in [None, Some(30)] {
        let (store, job) = (memory::store(), Steps::default());
        let id = enqueue(&store, &[Plan::new(100, 1000)]).await.remove(0);
        let worker = start_with(&store, &job, pausing(saving_never()), ManualNotices::answered());
        sleep(secs(10)).await;
        worker.notices.notice(freeze(duration, 300));
        sleep(secs(10)).await;
        let before = job.trace.steps(&id).len();
        assert!(before >= 19, "it goes on until it has started: {before}");

        worker.notices.notice(started(freeze(duration, 300)));
        sleep(secs(2)).await;
        let resting = job.trace.steps(&id).len();
        enqueue(&store, &[Plan::new(1, 10)]).await;
        sleep(secs(120)).await;
        assert_eq!(job.trace.steps(&id).len(), resting);
        assert_eq!(ready(&store).await, 1, "nothing is received");
        assert!(is_saved(&store, &id).await, "no progress is lost if the machine does not come back");

        worker.notices.over(&NoticeId::new("event"), Ending::Completed);
        emptied(&store, secs(120)).await;
        assert_eq!((job.trace.redone(), worker.monitor.last_drain()), (0, None));
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_ends_by_itself_when_a_freeze_never_ends() {
    let (store, job) = (memory::store(), Steps::default());
    enqueue(&store, &[Plan::new(10, 1000)]).await;
    let worker = start_with(&store, &job, pausing(settings()), ManualNotices::answered());
    worker.notices.notice(started(freeze(None, 0)));
    sleep(secs(800)).await;
    assert_eq!(total(&store).await, 1);
    emptied(&store, secs(200)).await;
}

#[tokio::test(start_paused = true)]
async fn a_paused_job_is_released_at_an_eviction() {
    let (store, job) = (memory::store(), Steps::default());
    enqueue(&store, &[Plan::new(100, 100)]).await;
    let worker = start_with(&store, &job, pausing(settings()), ManualNotices::answered());
    sleep(secs(5)).await;
    worker.notices.notice(started(freeze(None, 0)));
    sleep(secs(5)).await;
    let drain = worker.evict(secs(30)).await;
    assert_eq!(drain.released_saved, 1);
    assert!(drain.released_after_ms < 100, "{drain:?}");
}

#[tokio::test(start_paused = true)]
async fn every_lease_is_verified_after_a_freeze_and_a_lost_one_ends_its_job() {
    let (inner, job) = (memory::store(), Steps::default());
    let (store, faults) = Faults::wrap(inner.clone());
    enqueue(&store, &[Plan::new(1000, 100)]).await;
    let worker = start(&store, &job);
    sleep(secs(1)).await;
    worker.notices.notice(started(freeze(Some(3), 0)));
    sleep(secs(1)).await;
    faults.every_call(Op::Renew, Fault::Fail(reprieve_core::ErrorKind::LeaseLost));
    worker.notices.over(&NoticeId::new("event"), Ending::Completed);
    let lost = || worker.monitor.telemetry().leases_lost.get();
    within(secs(1), "the loss is seen", async || lost() == 1).await;
}
