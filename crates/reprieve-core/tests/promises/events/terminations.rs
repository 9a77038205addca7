//! Deletions of the machine.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_termination_lets_jobs_finish_in_time_and_releases_the_others() {
    let (store, job) = (memory::store(), Steps::default());
    enqueue(&store, &[Plan::new(60, 1000), Plan::new(600, 1000)]).await;
    let worker = start(&store, &job);
    sleep(secs(10)).await;
    worker.notices.notice(event(NoticeKind::Terminate, 300));
    sleep(secs(3)).await;
    assert_eq!((total(&store).await, ready(&store).await), (2, 1), "one job was released, one continues");
    enqueue(&store, &[Plan::new(1, 10)]).await;
    sleep(secs(20)).await;
    assert_eq!(ready(&store).await, 2, "no further job is received");
    assert_eq!(worker.notices.approved(), []);

    let drain = worker_drained(&worker, secs(60)).await;
    assert_eq!((drain.finished, drain.released_saved, drain.work_lost_ms), (1, 1, 0));
    assert!(drain.patient_ms > 40_000, "{drain:?}");
    approved(&worker).await;
    assert_eq!(job.trace.redone(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_job_behind_its_estimate_is_released_before_a_termination() {
    /// Always estimates that it is nearly done.
    struct Optimist;
    #[async_trait::async_trait]
    impl Job for Optimist {
        const KIND: &'static str = "optimist";
        type Args = ();
        type Checkpoint = u32;
        type Output = ();
        fn begin(&self, (): &()) -> u32 {
            0
        }
        fn remaining(&self, (): &(), _: &u32) -> Option<std::time::Duration> {
            Some(secs(10))
        }
        async fn step(&self, _: &JobContext, (): &(), at: u32) -> Result<Step<u32, ()>, JobError> {
            sleep(secs(1)).await;
            Ok(Step::Continue(at + 1))
        }
    }
    let store = memory::store();
    Producer::new(store.clone()).enqueue(vec![NewJob::of::<Optimist>(&()).unwrap()]).await.unwrap();
    let notices = ManualNotices::answered();
    let worker = Worker::builder(store.clone()).job(Optimist).interruptions(Arc::new(notices.clone()));
    let worker = worker.settings(settings()).build().unwrap();
    let (monitor, (_stopper, stopping)) = (worker.monitor(), stopping());
    tokio::spawn(worker.run(stopping));
    sleep(secs(5)).await;
    let announced_at = Instant::now();
    notices.notice(event(NoticeKind::Terminate, 300));
    within(secs(300), "a drain", async || monitor.last_drain().is_some()).await;
    let drain = monitor.last_drain().unwrap();
    assert_eq!((drain.released_saved, drain.abandoned), (1, 0), "{drain:?}");
    assert!(
        announced_at.elapsed() > secs(270) && announced_at.elapsed() < secs(295),
        "{:?}",
        announced_at.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn an_eviction_in_the_middle_of_a_patient_drain_ends_all_patience() {
    let (store, job) = (memory::store(), Steps::default());
    enqueue(&store, &[Plan::new(60, 1000)]).await;
    let worker = start(&store, &job);
    sleep(secs(10)).await;
    worker.notices.notice(event(NoticeKind::Terminate, 300));
    sleep(secs(5)).await;
    assert_eq!(worker.monitor.last_drain(), None);
    worker.notices.notice(preempt("sooner").at(Instant::now() + secs(8)));
    let drain = worker_drained(&worker, secs(8)).await;
    assert_eq!((drain.notice.as_str(), drain.released_saved, drain.finished), ("Preempt", 1, 0));
    assert!(drain.released_after_ms < 1500 && drain.patient_ms >= 5000, "{drain:?}");
}
