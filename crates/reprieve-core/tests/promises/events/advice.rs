//! The rebalance recommendation: the machine may be evicted soon.

use reprieve_core::telemetry::ByOutcome;

use super::*;

#[tokio::test(start_paused = true)]
async fn an_advice_saves_and_takes_only_jobs_that_are_known_to_be_short_until_ten_quiet_minutes_have_passed()
{
    let (store, job) = (memory::store(), Steps::default());
    let running = enqueue(&store, &[Plan::new(100, 1000)]).await.remove(0);
    let settings = Settings { concurrency: 2, ..saving_never() };
    let worker = start_with(&store, &job, settings, ManualNotices::answered());
    show_calm_worker(&store);
    sleep(secs(5)).await;
    let noticed = Instant::now();
    worker.notices.notice(event(NoticeKind::Rebalance, 0));
    sleep(secs(2)).await;
    assert!(is_saved(&store, &running).await);
    enqueue(&store, &[Plan::new(60, 1000)]).await;
    within(secs(120), "the running job's end", async || total(&store).await == 1).await;
    sleep(secs(300)).await;
    assert_eq!(total(&store).await, 1, "how long such jobs take is known now: too long");
    emptied(&store, secs(600)).await;
    assert!(noticed.elapsed() >= secs(600), "{:?}", noticed.elapsed());
    assert_eq!((worker.notices.approved(), worker.monitor.last_drain()), (vec![], None));
    assert_eq!(job.trace.redone(), 0);
}

#[tokio::test(start_paused = true)]
async fn short_jobs_are_done_under_an_advice_and_another_worker_takes_the_long_ones() {
    let (store, job) = (memory::store(), Steps::default());
    let short: Vec<_> = (0..20).map(|_| Plan::new(1, 10)).collect();
    enqueue(&store, &short).await;
    let worker = start(&store, &job);
    show_calm_worker(&store);
    emptied(&store, secs(30)).await;
    worker.notices.notice(event(NoticeKind::Rebalance, 0));
    enqueue(&store, &short).await;
    emptied(&store, secs(30)).await;

    // Now nearly all such jobs are known to take minutes.
    worker.notices.over(&NoticeId::new("event"), Ending::Withdrawn);
    enqueue(&store, &[Plan::new(100, 1000); 8]).await;
    emptied(&store, secs(300)).await;
    worker.notices.notice(event(NoticeKind::Rebalance, 0));
    // The worker asks the roster within a second.
    sleep(secs(2)).await;
    enqueue(&store, &[Plan::new(100, 1000); 8]).await;
    sleep(secs(60)).await;
    assert_eq!(total(&store).await, 8, "this machine may be gone before the jobs finish");
    let _another = start(&store, &job);
    emptied(&store, secs(300)).await;
    assert_eq!(worker.monitor.telemetry().jobs.get_or_create(&completed()).get(), 48);
}

fn completed() -> ByOutcome {
    ByOutcome { kind: Steps::KIND.into(), outcome: "completed" }
}
