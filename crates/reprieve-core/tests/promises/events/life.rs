//! Rules for every event.

use super::*;

#[tokio::test(start_paused = true)]
async fn an_eviction_and_an_event_of_unknown_scope_are_never_approved() {
    let policy = Policy { approve: Approve::Any, ..Policy::default() };
    let worker = start_with(&memory::store(), &Steps::default(), with(policy), ManualNotices::answered());
    worker.started().await;
    worker.notices.notice(event(NoticeKind::Preempt, 30));
    worker
        .notices
        .notice(Notice { id: NoticeId::new("unnamed"), ..event(NoticeKind::Terminate, 30) }.of([], ""));
    sleep(secs(60)).await;
    assert_eq!((worker.monitor.stage(), worker.notices.approved()), (Stage::Shutdown, vec![]));
}

#[tokio::test(start_paused = true)]
async fn work_goes_on_after_a_withdrawal_through_recover_and_resume() {
    for kind in [NoticeKind::Terminate, NoticeKind::Preempt, NoticeKind::Reboot] {
        let (store, job) = (memory::store(), Steps::default());
        enqueue(&store, &[Plan::new(600, 1000)]).await;
        let worker = start(&store, &job);
        sleep(secs(10)).await;
        worker.notices.notice(event(kind.clone(), 20));
        worker_drained(&worker, secs(20)).await;
        worker.notices.over(&NoticeId::new("event"), Ending::Withdrawn);
        worker.started().await;
        emptied(&store, secs(700)).await;
        assert_eq!(job.trace.redone(), 0, "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_platform_that_never_takes_an_event_back_keeps_no_machine_idle_for_ever() {
    let (store, job) = (memory::store(), Steps::default());
    enqueue(&store, &[Plan::new(60, 1000)]).await;
    let worker = start(&store, &job);
    sleep(secs(10)).await;
    worker.notices.notice(started(event(NoticeKind::Reboot, 0)));
    worker_drained(&worker, secs(10)).await;
    sleep(secs(1700)).await;
    assert_eq!(total(&store).await, 1);
    emptied(&store, secs(300)).await;
    worker.notices.notice(event(NoticeKind::Preempt, 30));
    within(secs(5), "the next drain", async || worker.monitor.stage() == Stage::Shutdown).await;
}

#[tokio::test(start_paused = true)]
async fn work_goes_on_when_an_event_turns_into_one_that_needs_no_drain() {
    for turned in [event(NoticeKind::Freeze, 900), event(NoticeKind::Reboot, 36_000)] {
        let (store, job) = (memory::store(), Steps::default());
        enqueue(&store, &[Plan::new(60, 1000)]).await;
        let worker = start(&store, &job);
        sleep(secs(10)).await;
        worker.notices.notice(event(NoticeKind::Reboot, 5));
        worker_drained(&worker, secs(10)).await;
        worker.notices.notice(turned);
        emptied(&store, secs(100)).await;
        assert_eq!(job.trace.redone(), 0);
    }
}
