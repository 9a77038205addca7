//! Restarts and moves of the machine.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_reboot_saves_at_once_goes_on_and_is_drained_for_in_time_and_approved() {
    for kind in [NoticeKind::Reboot, NoticeKind::Redeploy] {
        let (store, job) = (memory::store(), Steps::default());
        let long = enqueue(&store, &[Plan::new(10_000, 1000)]).await.remove(0);
        let worker = start_with(&store, &job, saving_never(), ManualNotices::answered());
        sleep(secs(30)).await;
        let noticed = Instant::now();
        worker.notices.notice(event(kind, 900));
        sleep(secs(3)).await;
        assert!(is_saved(&store, &long).await, "progress is saved at the notice");
        enqueue(&store, &[Plan::new(1, 10)]).await;
        within(secs(30), "the new job's end", async || total(&store).await == 1).await;
        assert_eq!(worker.monitor.last_drain(), None);

        let drain = worker_drained(&worker, secs(900)).await;
        assert_eq!((drain.held, drain.released_saved, drain.patient_ms), (1, 1, 0));
        assert!(noticed.elapsed() >= secs(884) && noticed.elapsed() < secs(890), "{:?}", noticed.elapsed());
        approved(&worker).await;
        assert_eq!(worker.monitor.stage(), Stage::Shutdown);
        assert_eq!(job.trace.redone(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_reboot_that_a_user_waits_for_is_drained_for_and_approved_at_once() {
    let (store, job) = (memory::store(), Steps::default());
    enqueue(&store, &[Plan::new(100, 100)]).await;
    let worker = start(&store, &job);
    sleep(secs(1)).await;
    let noticed = Instant::now();
    worker.notices.notice(Notice { initiator: Initiator::User, ..event(NoticeKind::Reboot, 900) });
    approved(&worker).await;
    assert!(noticed.elapsed() < secs(1), "{:?}", noticed.elapsed());
    assert_eq!(ready(&store).await, 1, "the job is released before the approval");
}

#[tokio::test(start_paused = true)]
async fn a_predicted_failure_is_worked_through_or_drained_for_as_set() {
    const WEEK: u64 = 7 * 24 * 3600;
    let (store, job) = (memory::store(), Steps::default());
    let worker = start(&store, &job);
    worker.notices.notice(event(NoticeKind::Redeploy, WEEK));
    sleep(secs(3600)).await;
    enqueue(&store, &[Plan::new(1, 10)]).await;
    emptied(&store, secs(30)).await;
    assert_eq!(worker.notices.approved(), []);
    worker.stop().await;

    let policy = Policy { predicted_failure: PredictedFailure::Drain, ..Policy::default() };
    let worker = start_with(&store, &job, with(policy), ManualNotices::answered());
    worker.started().await;
    worker.notices.notice(event(NoticeKind::Redeploy, WEEK));
    approved(&worker).await;
    assert_eq!(worker.monitor.stage(), Stage::Shutdown);
}

#[tokio::test(start_paused = true)]
async fn a_kill_after_a_restart_was_noticed_costs_no_more_than_the_steps_since() {
    let (store, job) = (memory::store(), Steps::default());
    enqueue(&store, &[Plan::new(60, 1000)]).await;
    let worker = start_with(&store, &job, saving_never(), ManualNotices::answered());
    sleep(secs(30)).await;
    worker.notices.notice(event(NoticeKind::Reboot, 900));
    sleep(secs(3)).await;
    let redone = redone_after_a_kill(worker, &store, &job).await;
    assert!(redone <= 3, "{redone} steps were done again");
}
