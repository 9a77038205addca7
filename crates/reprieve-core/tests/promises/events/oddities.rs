//! Unexpected contents of events and estimates, and their limited effects.

use std::time::Duration;

use super::*;

/// A job with this estimate of its duration. Each of its 40 steps takes a second.
#[derive(Debug, Clone, Copy)]
struct Boaster {
    remaining: Option<Duration>,
    total: u64,
}

#[async_trait::async_trait]
impl Job for Boaster {
    const KIND: &'static str = "boaster";
    type Args = ();
    type Checkpoint = u32;
    type Output = ();
    fn begin(&self, (): &()) -> u32 {
        0
    }
    fn remaining(&self, (): &(), _: &u32) -> Option<Duration> {
        self.remaining
    }
    async fn step(&self, cx: &JobContext, (): &(), at: u32) -> Result<Step<u32, ()>, JobError> {
        sleep(secs(1)).await;
        cx.progress(u64::from(at) + 1, self.total);
        Ok(if at == 40 { Step::Done(()) } else { Step::Continue(at + 1) })
    }
}

/// Starts a worker for one `job` on `store`.
async fn boasting(store: &Store, job: Boaster) -> Running {
    Producer::new(store.clone()).enqueue(vec![NewJob::of::<Boaster>(&()).unwrap()]).await.unwrap();
    let notices = ManualNotices::answered();
    let worker = Worker::builder(store.clone()).job(job).interruptions(Arc::new(notices.clone()));
    let worker = worker.settings(settings()).build().unwrap();
    let (monitor, (stopper, stopping)) = (worker.monitor(), stopping());
    let gate = reprieve_core::process::Gate::new();
    let handle = tokio::spawn(gate.clone().run(worker.run(stopping)));
    Running { monitor, notices, stopper, gate, handle }
}

#[tokio::test(start_paused = true)]
async fn a_job_with_an_overflowing_estimate_is_released_and_not_blamed() {
    for job in [
        Boaster { remaining: Some(Duration::MAX), total: 0 },
        Boaster { remaining: None, total: u64::MAX },
        Boaster { remaining: None, total: 4_000_000_000_000_000_000 },
    ] {
        let store = memory::store();
        let worker = boasting(&store, job).await;
        sleep(secs(10)).await;
        worker.notices.notice(event(NoticeKind::Terminate, 300));
        let drain = worker_drained(&worker, secs(10)).await;
        assert_eq!((drain.released_saved, drain.abandoned), (1, 0), "{job:?}: {drain:?}");
        worker.notices.over(&NoticeId::new("event"), Ending::Withdrawn);
        emptied(&store, secs(120)).await;
        assert_eq!(poisoned(&store).await, [""; 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_freeze_of_a_length_that_cannot_be_holds_no_lease_for_ever() {
    for seconds in [u64::MAX, u64::MAX / 2, u64::MAX / 4, 7 * 24 * 3600] {
        let (store, job) = (memory::store(), Steps::default());
        enqueue(&store, &[Plan::new(60, 1000)]).await;
        let worker = start(&store, &job);
        sleep(secs(5)).await;
        worker.notices.notice(freeze(Some(seconds), 30));
        sleep(secs(5)).await;
        worker.notices.notice(started(freeze(Some(seconds), 0)));
        sleep(secs(5)).await;
        worker.kill().await;
        within(secs(2 * 3600), "the lease's end", async || ready(&store).await == 1).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_due_just_after_its_notice_leaves_the_budget() {
    let (store, job) = (memory::store(), Steps::default());
    enqueue(&store, &[Plan::new(600, 100)]).await;
    let worker = start(&store, &job);
    sleep(secs(5)).await;
    // A time in the past is read as the present, which is later than the time of the response.
    let notice = Notice { received: Instant::now() - ms(3), ..event(NoticeKind::Preempt, 0) };
    worker.notices.notice(notice);
    let drain = worker_drained(&worker, secs(10)).await;
    assert_eq!((drain.released_saved, drain.abandoned), (1, 0), "{drain:?}");
}

#[tokio::test(start_paused = true)]
async fn a_termination_that_is_put_off_abandons_no_job_that_falls_behind() {
    /// Estimates that it is nearly done, and then takes ten minutes.
    struct Late;
    #[async_trait::async_trait]
    impl Job for Late {
        const KIND: &'static str = "late";
        type Args = ();
        type Checkpoint = u32;
        type Output = ();
        fn begin(&self, (): &()) -> u32 {
            0
        }
        fn remaining(&self, (): &(), _: &u32) -> Option<Duration> {
            Some(secs(10))
        }
        async fn step(&self, cx: &JobContext, (): &(), at: u32) -> Result<Step<u32, ()>, JobError> {
            tokio::select! {
                () = sleep(secs(if at == 5 { 900 } else { 1 })) => Ok(Step::Continue(at + 1)),
                () = cx.interrupted() => Ok(Step::Continue(at)),
            }
        }
    }
    for turned in [Some(event(NoticeKind::Terminate, 900)), None] {
        let store = memory::store();
        Producer::new(store.clone()).enqueue(vec![NewJob::of::<Late>(&()).unwrap()]).await.unwrap();
        let notices = ManualNotices::answered();
        let worker = Worker::builder(store.clone()).job(Late).interruptions(Arc::new(notices.clone()));
        let worker = worker.settings(settings()).build().unwrap();
        let (monitor, (_stopper, stopping)) = (worker.monitor(), stopping());
        tokio::spawn(worker.run(stopping));
        sleep(secs(3)).await;
        notices.notice(event(NoticeKind::Terminate, 300));
        sleep(secs(60)).await;
        match turned {
            Some(later) => notices.notice(later),
            None => notices.over(&NoticeId::new("event"), Ending::Withdrawn),
        }
        within(secs(300), "a drain", async || monitor.last_drain().is_some()).await;
        let drain = monitor.last_drain().unwrap();
        assert_eq!((drain.released_saved, drain.abandoned), (1, 0), "{drain:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_termination_that_is_withdrawn_keeps_no_worker_from_its_work() {
    for changes in [false, true] {
        let (store, job) = (memory::store(), Steps::default());
        enqueue(&store, &[Plan::new(600, 1000)]).await;
        let worker = start(&store, &job);
        sleep(secs(10)).await;
        worker.notices.notice(event(NoticeKind::Terminate, 900));
        sleep(secs(10)).await;
        enqueue(&store, &[Plan::new(1, 10)]).await;
        sleep(secs(10)).await;
        assert_eq!(total(&store).await, 2, "nothing is received");
        if changes {
            worker.notices.notice(event(NoticeKind::Reboot, 36_000));
        } else {
            worker.notices.over(&NoticeId::new("event"), Ending::Withdrawn);
        }
        within(secs(20), "the short job's end", async || total(&store).await == 1).await;
        emptied(&store, secs(700)).await;
        assert_eq!((job.trace.redone(), poisoned(&store).await), (0, vec![]));
    }
}

#[tokio::test(start_paused = true)]
async fn an_id_that_two_sources_use_is_two_events() {
    let (store, job) = (memory::store(), Steps::default());
    let sources = [ManualNotices::answered(), ManualNotices::answered()];
    let worker = Worker::builder(store.clone()).job(job.clone()).settings(settings());
    let worker = sources.iter().fold(worker, |worker, source| worker.interruptions(Arc::new(source.clone())));
    let worker = worker.build().unwrap();
    let (monitor, (_stopper, stopping)) = (worker.monitor(), stopping());
    tokio::spawn(worker.run(stopping));
    monitor.reached(Stage::Start).await;
    sources[0].notice(event(NoticeKind::Preempt, 30));
    sources[1].notice(event(NoticeKind::Terminate, 900));
    sleep(secs(5)).await;
    assert_eq!(sources.each_ref().map(ManualNotices::approved), [vec![], vec![NoticeId::new("event")]]);
    sources[1].over(&NoticeId::new("event"), Ending::Withdrawn);
    enqueue(&store, &[Plan::new(1, 10)]).await;
    sleep(secs(60)).await;
    assert_eq!((monitor.stage(), total(&store).await), (Stage::Shutdown, 1), "the eviction is still active");
    sources[0].over(&NoticeId::new("event"), Ending::Withdrawn);
    emptied(&store, secs(30)).await;
}

#[tokio::test(start_paused = true)]
async fn a_short_freeze_waits_for_a_lease_that_is_only_being_taken() {
    let (store, faults) = Faults::wrap(memory::store());
    let job = Steps::default();
    let settings = Settings { budget: secs(2), lease: secs(12), ..settings() };
    faults.every_call(Op::Receive, Fault::Delay(secs(3)));
    enqueue(&store, &[Plan::new(200, 1000)]).await;
    let worker = start_with(&store, &job, settings, ManualNotices::answered());
    worker.started().await;
    faults.called(Op::Receive, 1).await;
    worker.notices.notice(freeze(Some(9), 900));
    within(secs(60), "an approval", async || !worker.notices.approved().is_empty()).await;
    assert_eq!(leased(&store).await, 1, "the job was received before");
    worker.kill().await;
    sleep(secs(20)).await;
    assert_eq!(ready(&store).await, 0, "its lease outlasts the freeze");
}

#[tokio::test(start_paused = true)]
async fn a_rest_that_could_not_be_saved_at_first_is_saved_later() {
    let (store, faults) = Faults::wrap(memory::store());
    let job = Steps::default();
    enqueue(&store, &[Plan::new(60, 1000)]).await;
    let worker = start_with(&store, &job, saving_never(), ManualNotices::answered());
    sleep(secs(30)).await;
    faults.every_call(Op::Save, Fault::Fail(reprieve_core::ErrorKind::Unavailable));
    worker.notices.notice(started(freeze(None, 0)));
    sleep(secs(10)).await;
    faults.clear(Op::Save);
    sleep(secs(30)).await;
    assert_eq!(redone_after_a_kill(worker, &store, &job).await, 0);
    assert!(faults.calls(Op::Save) < 20, "{} saves", faults.calls(Op::Save));
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_left_to_others_is_not_blamed() {
    let (store, faults) = Faults::wrap(memory::store());
    let job = Steps::default();
    let worker = start(&store, &job);
    worker.started().await;
    show_calm_worker(&store);
    worker.notices.notice(event(NoticeKind::Rebalance, 0));
    // The worker asks the roster within a second.
    sleep(secs(2)).await;
    let ids = enqueue(&store, &[Plan::new(60, 1000)]).await;
    sleep(secs(300)).await;
    assert!(faults.calls(Op::Release) >= 20, "the job is still checked now and then");
    let account = record(&store, &ids[0]).await.expect("a redelivery claims").account;
    assert_eq!((account.failed, account.vanished, account.vanished_unproved), (0, 0, 0), "{account:?}");
    emptied(&store, secs(400)).await;
    assert_eq!(poisoned(&store).await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_predicted_failure_that_others_approve_idles_no_worker() {
    let policy = Policy { predicted_failure: PredictedFailure::Drain, ..Policy::default() };
    let (store, job) = (memory::store(), Steps::default());
    let worker = start_with(&store, &job, with(policy), ManualNotices::answered());
    worker.started().await;
    let notice = event(NoticeKind::Redeploy, 7 * 24 * 3600).of(["vm_0", "vm_1"], "vm_0");
    worker.notices.notice(notice);
    enqueue(&store, &[Plan::new(1, 10)]).await;
    emptied(&store, secs(60)).await;
}
