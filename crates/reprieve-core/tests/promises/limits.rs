//! Limits of a kind of job: how many run at once, how long, and how often they fail.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use reprieve_core::memory::{self, Fault, Faults, Op};
use reprieve_core::ports::Store;
use reprieve_core::retention::Keep;
use reprieve_core::worker::{Limits, Settings, Worker, WorkerBuilder};
use reprieve_core::{ErrorKind, Job, JobContext, JobEnd, JobError, JobId, NewJob, Producer, Step};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};

use crate::support::*;

/// What jobs did, by kind.
#[derive(Debug, Clone, Default)]
struct Seen(Arc<Mutex<BTreeMap<&'static str, Counts>>>);

#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    now: usize,
    most: usize,
    ended: usize,
}

impl Seen {
    fn of(&self, kind: &'static str) -> Counts {
        self.0.lock().unwrap().get(kind).copied().unwrap_or_default()
    }

    fn enter(&self, kind: &'static str) -> Inside {
        let mut all = self.0.lock().unwrap();
        let counts = all.entry(kind).or_default();
        counts.now += 1;
        counts.most = counts.most.max(counts.now);
        Inside(self.clone(), kind)
    }
}

/// A step that runs, until it ends or is dropped.
struct Inside(Seen, &'static str);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.0.lock().unwrap().get_mut(self.1).unwrap().now -= 1;
    }
}

/// Steps that work for so many milliseconds each.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Work {
    steps: u32,
    step_ms: u64,
}

/// A job of a kind with limits.
#[derive(Debug, Clone)]
struct Limited(Seen);

/// A job of a kind without.
#[derive(Debug, Clone)]
struct Free(Seen);

async fn work(seen: &Seen, kind: &'static str, work: &Work, at: u32) -> Step<u32, u32> {
    let inside = seen.enter(kind);
    sleep(ms(work.step_ms)).await;
    drop(inside);
    if at + 1 < work.steps {
        return Step::Continue(at + 1);
    }
    seen.0.lock().unwrap().entry(kind).or_default().ended += 1;
    Step::Done(at + 1)
}

macro_rules! job {
    ($job:ident, $kind:literal) => {
        #[async_trait]
        impl Job for $job {
            const KIND: &'static str = $kind;
            type Args = Work;
            type Checkpoint = u32;
            type Output = u32;

            fn begin(&self, _: &Work) -> u32 {
                0
            }

            async fn step(&self, _: &JobContext, args: &Work, at: u32) -> Result<Step<u32, u32>, JobError> {
                Ok(work(&self.0, $kind, args, at).await)
            }
        }
    };
}

job!(Limited, "limited");
job!(Free, "free");

fn worker(store: &Store, seen: &Seen, limits: Limits) -> WorkerBuilder {
    let settings = Settings { concurrency: 8, ..settings() };
    let worker = Worker::builder(store.clone()).settings(settings);
    worker.job(Limited(seen.clone())).job(Free(seen.clone())).limits::<Limited>(limits)
}

async fn send<J: Job<Args = Work>>(store: &Store, count: usize, steps: u32, step_ms: u64) -> Vec<JobId> {
    on_one_clock();
    let job = NewJob::of::<J>(&Work { steps, step_ms }).unwrap();
    Producer::new(store.clone()).enqueue(vec![job; count]).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn no_more_jobs_of_a_kind_run_in_a_worker_than_it_may_and_others_go_on() {
    let (store, seen) = (memory::store(), Seen::default());
    let limits = Limits { per_worker: Some(2), ..Limits::default() };
    send::<Limited>(&store, 30, 2, 500).await;
    send::<Free>(&store, 30, 2, 500).await;
    let worker = start_built(worker(&store, &seen, limits));
    within(secs(30), "the free jobs", async || seen.of("free").ended == 30).await;
    assert_eq!(seen.of("limited").most, 2);
    emptied(&store, secs(120)).await;
    assert_eq!((seen.of("limited").ended, seen.of("limited").most), (30, 2));
    assert_eq!(worker.stop().await.completed, 60);
    assert_eq!(poisoned(&store).await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn no_more_jobs_of_a_kind_run_in_the_fleet_than_may() {
    for most in [1, 3] {
        let (store, seen) = (memory::store(), Seen::default());
        let limits = Limits { in_fleet: Some(most), ..Limits::default() };
        send::<Limited>(&store, 24, 2, 1_000).await;
        send::<Free>(&store, 24, 2, 1_000).await;
        let workers: Vec<_> = (0..4).map(|_| start_built(worker(&store, &seen, limits))).collect();
        within(secs(60), "the free jobs", async || seen.of("free").ended == 24).await;
        emptied(&store, secs(600)).await;
        assert_eq!((seen.of("limited").ended, seen.of("limited").most), (24, most as usize));
        for worker in workers {
            worker.stop().await;
        }
        let left = store.records.page("reprieve-slot.", None).await.unwrap().entries;
        assert!(left.is_empty(), "every slot is given back: {left:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_with_limited_kinds_alone_holds_nothing_that_it_does_not_run() {
    let (inner, seen) = (memory::store(), Seen::default());
    let (store, faults) = Faults::wrap(inner.clone());
    send::<Limited>(&inner, 2_000, 1, 1_000).await;
    let limits = Limits { per_worker: Some(2), ..Limits::default() };
    let alone = Worker::builder(store).settings(Settings { concurrency: 8, ..settings() });
    let _worker = start_built(alone.job(Limited(seen.clone())).limits::<Limited>(limits));
    sleep(secs(100)).await;
    assert!(seen.of("limited").ended >= 195, "{:?}", seen.of("limited"));
    assert_eq!(faults.calls(Op::Release), 0);
    assert!(leased(&inner).await <= 2);
}

#[tokio::test(start_paused = true)]
async fn the_slot_of_a_worker_that_died_is_taken_over_and_never_before_its_lease_ends() {
    let (store, seen) = (memory::store(), Seen::default());
    let limits = Limits { in_fleet: Some(1), ..Limits::default() };
    send::<Limited>(&store, 1, 1, 3_600_000).await;
    let first = start_built(worker(&store, &seen, limits));
    within(secs(10), "the first job", async || seen.of("limited").now == 1).await;
    let second = start_built(worker(&store, &seen, limits));
    send::<Limited>(&store, 1, 1, 10).await;
    sleep(secs(300)).await;
    assert_eq!(seen.of("limited").ended, 0, "one runs");
    let died = Instant::now();
    first.kill().await;
    // The other one, or the same one again.
    let begun = async || seen.of("limited").ended == 1 || seen.of("limited").now == 2;
    within(secs(180), "a second run", begun).await;
    let (took, lease) = (died.elapsed(), settings().lease);
    assert!(took >= lease * 2 / 3 && took <= lease * 2 + secs(15), "{took:?} at a lease of {lease:?}");
    second.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_job_stops_before_its_slot_is_taken_over_where_its_worker_can_not_renew_it() {
    for fault in [Fault::Fail(ErrorKind::Unavailable), Fault::Hang, Fault::LoseAnswer] {
        let (inner, seen) = (memory::store(), Seen::default());
        let (store, faults) = Faults::wrap(inner.clone());
        let limits = Limits { in_fleet: Some(1), ..Limits::default() };
        send::<Limited>(&inner, 1, 2_000, 100).await;
        let cut_off = start_built(worker(&store, &seen, limits));
        within(secs(10), "the first job", async || seen.of("limited").now == 1).await;
        let other = start_built(worker(&inner, &seen, limits));
        send::<Limited>(&inner, 5, 1, 10).await;
        sleep(secs(120)).await;
        // Its queue answers, so that its message's lease holds.
        for op in [Op::Save, Op::RecordPage, Op::Load, Op::Remove] {
            faults.every_call(op, fault);
        }
        sleep(secs(600)).await;
        assert_eq!(seen.of("limited").most, 1, "{fault:?}");
        if fault != Fault::LoseAnswer {
            assert_eq!(seen.of("limited").ended, 6, "{fault:?}: it and the others ran elsewhere");
        }
        drop((cut_off, other));
    }
}

#[tokio::test(start_paused = true)]
async fn a_backlog_over_its_limit_costs_a_bounded_number_of_requests_and_starves_nobody() {
    let (inner, seen) = (memory::store(), Seen::default());
    let (store, faults) = Faults::wrap(inner.clone());
    let limits = Limits { per_worker: Some(1), ..Limits::default() };
    let began = Instant::now();
    send::<Limited>(&inner, 6_000, 1, 20_000).await;
    send::<Free>(&inner, 50, 1, 100).await;
    let _worker = start_built(worker(&store, &seen, limits));
    let mut most = 0;
    for _ in 0..240 {
        let before = faults.calls(Op::Release);
        sleep(secs(1)).await;
        most = most.max(faults.calls(Op::Release) - before);
    }
    // What a second allows, and as many at once.
    assert!(most <= 2 * 320, "{most} returns in a second");
    let all = faults.calls(Op::Release);
    assert!(
        all <= 6_000 + 240 * 40,
        "{all} returns in four minutes: more than one of each, and 32 come back in a second"
    );
    within(secs(300), "the free jobs", async || seen.of("free").ended == 50).await;
    // Later ones, too, although thousands return before them.
    send::<Free>(&inner, 50, 1, 100).await;
    within(secs(1_800), "the free jobs", async || seen.of("free").ended == 100).await;
    let before = faults.calls(Op::Release);
    sleep(secs(300)).await;
    let returns = faults.calls(Op::Release) - before;
    assert!(returns <= 300 * 40, "{returns} returns in five minutes, once all have been seen");
    let (ended, fit) = (seen.of("limited").ended, began.elapsed().as_secs() / 20);
    assert!(ended as u64 >= fit * 8 / 10, "{ended} of {fit}: its slot is hardly ever free");
}

/// A worker with jobs of one second has always a hundred of them before it.
#[tokio::test(start_paused = true)]
async fn a_kind_that_never_runs_dry_lets_every_job_of_another_have_its_turn() {
    let (store, seen) = (memory::store(), Seen::default());
    for limits in [Limits::default(), Limits { per_worker: Some(4), ..Limits::default() }] {
        let feeding = tokio::spawn({
            let store = store.clone();
            async move {
                loop {
                    let missing = 100_usize.saturating_sub(usize::try_from(ready(&store).await).unwrap());
                    send::<Limited>(&store, missing, 1, 1_000).await;
                    sleep(ms(200)).await;
                }
            }
        });
        let worker = start_built(worker(&store, &seen, limits));
        sleep(secs(60)).await;
        for round in 0..10 {
            let before = seen.of("free").ended;
            send::<Free>(&store, 3, 1, 1_000).await;
            let began = Instant::now();
            within(secs(120), "three jobs", async || seen.of("free").ended == before + 3).await;
            // The hundred before them take 13 s without a limit. With one, they are passed over.
            let most = if limits.per_worker.is_none() { secs(20) } else { secs(60) };
            assert!(began.elapsed() <= most, "{round}, {limits:?}: {:?}", began.elapsed());
        }
        assert!(seen.of("limited").ended > 400, "{:?}", seen.of("limited"));
        feeding.abort();
        worker.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_step_that_takes_too_long_fails_and_the_progress_stays() {
    let (store, job) = (memory::store(), Steps::default());
    let limits = Limits { step_timeout: Some(secs(30)), attempts: 3, ..Limits::default() };
    let id = enqueue(&store, &[Plan::new(9, 1_000).habit(Habit::StuckAt(6))]).await.remove(0);
    let began = Instant::now();
    let settings = Settings { concurrency: 1, ..settings() };
    let built = Worker::builder(store.clone()).settings(settings).job(job.clone()).limits::<Steps>(limits);
    let worker = start_built(built);
    emptied(&store, secs(300)).await;
    assert!(began.elapsed() <= secs(4 * 36 + 30), "{:?}", began.elapsed());
    let reasons = poisoned(&store).await;
    assert!(
        reasons[0].contains("failed too often, at last with: a step took longer than its timeout of 30s")
    );
    // The first attempt had saved nothing, so the second one moved.
    assert_eq!((worker.ended("retried"), worker.ended("dead_lettered")), (3, 1));
    assert!(job.trace.steps(&id).len() <= 12, "{:?}", job.trace.steps(&id));
}

#[tokio::test(start_paused = true)]
async fn a_step_that_works_and_saves_does_not_time_out() {
    let (store, job) = (memory::store(), Steps::default());
    let limits = Limits { step_timeout: Some(secs(3)), job_timeout: Some(secs(200)), ..Limits::default() };
    enqueue(&store, &[Plan::new(90, 2_000)]).await;
    let built = Worker::builder(store.clone()).settings(settings()).job(job).limits::<Steps>(limits);
    let worker = start_built(built);
    emptied(&store, secs(300)).await;
    assert_eq!(worker.ended("completed"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_runs_too_long_over_all_machines_fails_and_these_failures_count_whatever_it_does() {
    let (store, job) = (memory::store(), Steps::default());
    let limits = Limits { job_timeout: Some(secs(100)), attempts: 3, ..Limits::default() };
    let id = enqueue(&store, &[Plan::new(100_000, 1_000)]).await.remove(0);
    let build = || {
        let worker = Worker::builder(store.clone()).settings(settings()).job(job.clone());
        start_built(worker.limits::<Steps>(limits))
    };
    let (began, first) = (Instant::now(), build());
    sleep(secs(60)).await;
    first.evict(secs(30)).await;
    first.stop().await;
    let second = build();
    within(secs(60), "a timeout", async || second.ended("retried") == 1).await;
    assert!((secs(98)..=secs(115)).contains(&began.elapsed()), "{:?}", began.elapsed());
    emptied(&store, secs(400)).await;
    assert_eq!((second.ended("retried"), second.ended("dead_lettered")), (2, 1));
    assert!(poisoned(&store).await[0].contains("ran for longer than its timeout of 100s, 3 times"));
    let steps = job.trace.steps(&id);
    assert!(steps.last() > Some(&200), "it went on from its progress: {:?}", steps.last());
    // A redrive begins anew.
    store.redrive(&reprieve_core::Redrive::Job(id.clone())).await.unwrap();
    within(secs(60), "more steps", async || job.trace.steps(&id).len() > steps.len() + 30).await;
}

#[tokio::test(start_paused = true)]
async fn attempts_and_delays_are_those_of_the_kind() {
    let (store, job) = (memory::store(), Steps::default());
    let limits = Limits { attempts: 7, backoff: secs(10), backoff_max: secs(60), ..Limits::default() };
    enqueue(&store, &[Plan::new(3, 1).habit(Habit::FailsAt(0))]).await;
    let began = Instant::now();
    let built = Worker::builder(store.clone()).settings(settings()).job(job).limits::<Steps>(limits);
    let worker = start_built(built);
    emptied(&store, secs(900)).await;
    assert_eq!((worker.ended("retried"), worker.ended("dead_lettered")), (6, 1));
    let least = secs(10 + 40 + 4 * 60);
    assert!(began.elapsed() >= least && began.elapsed() <= least * 2, "{:?}", began.elapsed());
    let one = Limits { attempts: 1, ..Limits::default() };
    enqueue(&store, &[Plan::new(3, 1).habit(Habit::FailsAt(0))]).await;
    worker.stop().await;
    let built = Worker::builder(store.clone()).settings(settings()).job(Steps::default());
    let worker = start_built(built.limits::<Steps>(one));
    emptied(&store, secs(10)).await;
    assert_eq!(worker.ended("dead_lettered"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_job_over_its_limit_that_is_cancelled_ends_without_being_run() {
    let (store, seen) = (memory::store(), Seen::default());
    let limits = Limits { per_worker: Some(1), ..Limits::default() };
    let first = send::<Limited>(&store, 1, 1, 20_000).await;
    let second = send::<Limited>(&store, 1, 1, 10).await;
    let _worker = start_built(worker(&store, &seen, limits));
    sleep(secs(10)).await;
    store.cancel(&second).await.unwrap();
    emptied(&store, secs(60)).await;
    assert_eq!(store.end_of::<u32>(&second[0]).await.unwrap(), Some(JobEnd::Cancelled));
    assert_eq!(store.end_of::<u32>(&first[0]).await.unwrap(), Some(JobEnd::Done(1)));
    assert_eq!(seen.of("limited").ended, 1);
}

#[test]
fn bad_limits_are_refused_with_their_kind() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let _inside = runtime.enter();
    let limits = Limits { per_worker: Some(0), step_timeout: Some(Duration::ZERO), ..Limits::default() };
    let built = Worker::builder(memory::store()).job(Steps::default()).limits::<Steps>(limits);
    let error = built.change_limits("stepz", |_| {}).build().unwrap_err();
    for fault in [
        "kind \"steps\": per-worker is 0, and must be at least 1",
        "kind \"steps\": step-timeout is 0ns, and must be from 1s to 365 days",
        "there are settings for kind \"stepz\", and the worker knows steps",
    ] {
        assert!(error.message().contains(fault), "{error}");
    }
}

/// Its slot is free soon after, however many others are in the queue, or are to run tomorrow.
#[tokio::test(start_paused = true)]
async fn a_place_that_becomes_free_is_taken_soon_whatever_else_the_queue_has() {
    let (store, seen) = (memory::store(), Seen::default());
    let limits = Limits { per_worker: Some(1), ..Limits::default() };
    on_one_clock();
    let tomorrow = NewJob::of::<Free>(&Work { steps: 1, step_ms: 10 }).unwrap().after(secs(86_400));
    Producer::new(store.clone()).enqueue(vec![tomorrow; 3_000]).await.unwrap();
    send::<Limited>(&store, 6, 1, 1_000).await;
    send::<Free>(&store, 3_000, 1, 10).await;
    let _worker = start_built(worker(&store, &seen, limits));
    within(secs(120), "the limited jobs", async || seen.of("limited").ended == 6).await;
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_usually_short_costs_no_more_returns_than_another() {
    let (inner, seen) = (memory::store(), Seen::default());
    let (store, faults) = Faults::wrap(inner.clone());
    let limits = Limits { per_worker: Some(4), ..Limits::default() };
    send::<Limited>(&inner, 64, 1, 1).await;
    let _worker = start_built(worker(&store, &seen, limits));
    emptied(&inner, secs(600)).await;
    send::<Limited>(&inner, 4, 1, 36_000_000).await;
    sleep(secs(15)).await;
    send::<Limited>(&inner, 2_000, 1, 1).await;
    sleep(secs(30)).await;
    let before = faults.calls(Op::Release);
    sleep(secs(20)).await;
    let returns = faults.calls(Op::Release) - before;
    assert!(returns <= 20 * 32, "{returns} in 20 s");
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_finds_every_slot_of_the_fleet_taken_asks_little() {
    let (inner, seen) = (memory::store(), Seen::default());
    let limits = Limits { in_fleet: Some(100), ..Limits::default() };
    send::<Limited>(&inner, 100, 1, 36_000_000).await;
    let build = |store: &Store, concurrency| {
        let settings = Settings { concurrency, ..settings() };
        let worker = Worker::builder(store.clone()).settings(settings).job(Limited(seen.clone()));
        start_built(worker.limits::<Limited>(limits))
    };
    let _holder = build(&inner, 100);
    within(secs(600), "all slots are taken", async || seen.of("limited").now == 100).await;
    let (store, faults) = Faults::wrap(inner.clone());
    send::<Limited>(&inner, 300, 1, 1_000).await;
    let _other = build(&store, 32);
    sleep(secs(60)).await;
    let count = || [Op::Load, Op::RecordPage, Op::Receive].map(|op| faults.calls(op));
    let before = count();
    sleep(secs(60)).await;
    let after = count();
    let [loads, pages, receives] = [0, 1, 2].map(|at| after[at] - before[at]);
    // A list of 100 slots has several parts in this store.
    assert!(loads <= 60 && pages <= 1_000, "{loads} loads, {pages} pages, {receives} receives");
}

/// A job whose steps compute for a tenth of a second of real time, without awaiting.
#[derive(Debug, Clone, Default)]
struct NeverAwaits(Arc<Mutex<u32>>);

#[async_trait]
impl Job for NeverAwaits {
    const KIND: &'static str = "never-awaits";
    type Args = ();
    type Checkpoint = u32;
    type Output = u32;

    fn begin(&self, (): &()) -> u32 {
        0
    }

    async fn step(&self, _: &JobContext, (): &(), at: u32) -> Result<Step<u32, u32>, JobError> {
        let began = Instant::now();
        while began.elapsed() < ms(100) {
            std::hint::spin_loop();
        }
        *self.0.lock().unwrap() += 1;
        Ok(if at < 100 { Step::Continue(at + 1) } else { Step::Done(at) })
    }
}

#[tokio::test]
async fn a_job_whose_steps_never_await_times_out_between_them() {
    let (store, job) = (memory::store(), NeverAwaits::default());
    enqueue_j(&store, NeverAwaits::KIND).await;
    let limits = Limits { job_timeout: Some(secs(1)), attempts: 1, ..Limits::default() };
    let built =
        Worker::builder(store.clone()).settings(settings()).job(job.clone()).limits::<NeverAwaits>(limits);
    let _worker = start_built(built);
    within(secs(30), "a dead letter", async || !poisoned(&store).await.is_empty()).await;
    // Steps of 100 ms or, on a busy machine, longer ones.
    assert!((1..30).contains(&*job.0.lock().unwrap()), "{job:?}");
}

/// One step that saves itself every three seconds.
#[derive(Debug, Clone)]
struct SavesItself;

#[async_trait]
impl Job for SavesItself {
    const KIND: &'static str = "saves-itself";
    type Args = ();
    type Checkpoint = u32;
    type Output = u32;

    fn begin(&self, (): &()) -> u32 {
        0
    }

    async fn step(&self, cx: &JobContext, (): &(), mut at: u32) -> Result<Step<u32, u32>, JobError> {
        while at < 20 {
            sleep(secs(3)).await;
            at += 1;
            cx.save::<Self>(&at).await?;
        }
        Ok(Step::Done(at))
    }
}

#[tokio::test(start_paused = true)]
async fn a_save_that_takes_long_is_no_part_of_a_steps_time() {
    let inner = memory::store();
    let (store, faults) = Faults::wrap(inner.clone());
    enqueue_j(&inner, SavesItself::KIND).await;
    faults.every_call(Op::Save, Fault::Delay(secs(12)));
    let limits = Limits { step_timeout: Some(secs(8)), ..Limits::default() };
    let built = Worker::builder(store).settings(settings()).job(SavesItself).limits::<SavesItself>(limits);
    let (began, _worker) = (Instant::now(), start_built(built));
    emptied(&inner, secs(7_200)).await;
    assert_eq!(poisoned(&inner).await, Vec::<String>::new());
    assert!(began.elapsed() <= secs(20 * 15 + 60), "it began again: {:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn the_time_of_an_attempt_counts_although_evictions_find_its_state_saved() {
    let (store, job) = (memory::store(), Steps::default());
    let limits = Limits { job_timeout: Some(secs(100)), attempts: 1, ..Limits::default() };
    enqueue(&store, &[Plan::new(10, 3_600_000).habit(Habit::Watches)]).await;
    let mut deliveries = 0;
    while poisoned(&store).await.is_empty() {
        deliveries += 1;
        assert!(deliveries <= 4, "it has run for over {} s", 40 * (deliveries - 1));
        let built =
            Worker::builder(store.clone()).settings(settings()).job(job.clone()).limits::<Steps>(limits);
        let worker = start_built(built);
        sleep(secs(40)).await;
        worker.evict(secs(30)).await;
        worker.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_has_its_time_anew_although_the_message_has_no_room_for_the_one_before() {
    let (inner, job) = (memory::store(), Steps::default());
    let (store, faults) = Faults::wrap(inner);
    let limits = Limits { job_timeout: Some(secs(100)), attempts: 3, ..Limits::default() };
    let id = enqueue(&store, &[Plan::new(100_000, 1_000)]).await.remove(0);
    let built = Worker::builder(store.clone()).settings(settings()).job(job.clone()).limits::<Steps>(limits);
    let _worker = start_built(built);
    let refusing = tokio::spawn(async move {
        loop {
            // Every release with a body is too large; the one without goes through.
            let before = faults.calls(Op::Release);
            faults.next_calls(Op::Release, 1, Fault::Fail(ErrorKind::TooLarge));
            faults.called(Op::Release, before + 2).await;
        }
    });
    within(secs(600), "a dead letter", async || !poisoned(&store).await.is_empty()).await;
    refusing.abort();
    let steps = job.trace.steps(&id).len();
    assert!(steps > 250, "{steps} steps in three attempts of 100 s");
}

#[tokio::test(start_paused = true)]
async fn a_job_over_its_limit_is_not_unknown_because_another_worker_does_not_know_it() {
    let (store, seen) = (memory::store(), Seen::default());
    let limits = Limits { per_worker: Some(1), ..Limits::default() };
    send::<Limited>(&store, 4, 1, 3_600_000).await;
    let settings = Settings { unknown_kind_after: secs(5_400), ..settings() };
    let _knows = start_built(worker(&store, &seen, limits).settings(settings.clone()));
    let _does_not = start_built(Worker::builder(store.clone()).settings(settings).job(Free(seen.clone())));
    within(secs(6 * 3_600), "all jobs", async || seen.of("limited").ended == 4).await;
    assert_eq!(poisoned(&store).await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_job_over_a_limit_ends_without_a_place() {
    for limits in [
        Limits { per_worker: Some(1), ..Limits::default() },
        Limits { in_fleet: Some(1), ..Limits::default() },
    ] {
        let (store, seen) = (memory::store(), Seen::default());
        send::<Limited>(&store, 1, 1, 36_000_000).await;
        let _worker = start_built(worker(&store, &seen, limits));
        sleep(secs(5)).await;
        let waiting = send::<Limited>(&store, 100, 1, 10).await;
        sleep(secs(30)).await;
        store.cancel(&waiting).await.unwrap();
        within(secs(180), "only the one that runs is left", async || total(&store).await == 1).await;
        assert_eq!(seen.of("limited").ended, 0);
    }
}

/// Its first message stays invisible for longer than an owner may be silent.
#[tokio::test(start_paused = true)]
async fn a_second_message_does_not_shorten_the_delay_after_a_jobs_timeout() {
    let (store, job) = (memory::store(), Steps::default());
    let hour = secs(3600);
    let limits =
        Limits { job_timeout: Some(secs(20)), backoff: hour, backoff_max: hour, ..Limits::default() };
    let plan = Plan::new(100_000, 1_000);
    let id = send_again_and_again(&store, "twins", plan, 1).await;
    let worker = Worker::builder(store.clone()).settings(settings()).job(job.clone());
    let worker = start_built(worker.limits::<Steps>(limits));
    within(secs(30), "a timeout", async || worker.ended("retried") == 1).await;
    let reached = || job.trace.steps(&id).into_iter().max();
    let before = reached();
    // It begins the job anew, and learns of the other when it saves.
    send_again_and_again(&store, "twins", plan, 1).await;
    sleep(secs(25 * 60)).await;
    assert_eq!(reached(), before, "the second message took the job over");
    // Up to half of the delay is added to it at random.
    within(hour * 3 / 2, "more steps", async || reached() > before).await;
}

/// A job that never ends or yields, with the times at which it worked, and the worker on which it did.
#[derive(Debug, Clone)]
struct Ticks(Arc<Mutex<Vec<(&'static str, Instant)>>>, &'static str);

#[async_trait]
impl Job for Ticks {
    const KIND: &'static str = "ticks";
    type Args = ();
    type Checkpoint = ();
    type Output = ();

    fn begin(&self, (): &()) {}

    async fn step(&self, _: &JobContext, (): &(), (): ()) -> Result<Step<(), ()>, JobError> {
        loop {
            sleep(ms(10)).await;
            self.0.lock().unwrap().push((self.1, Instant::now()));
        }
    }
}

/// Its queue answers, so that the lease of its message holds; the records fail. Or it is frozen as well,
/// until long after its slot was taken over.
#[tokio::test(start_paused = true)]
async fn a_job_has_stopped_when_another_worker_has_its_slot() {
    for (lease, failing, frozen) in [(60, 0, 90), (60, 40, 59), (60, 30, 300), (15, 600, 0), (15, 6, 14)] {
        let (inner, ticks) = (memory::store(), Arc::default());
        let (store, faults) = Faults::wrap(inner.clone());
        enqueue_j(&inner, Ticks::KIND).await;
        enqueue_j(&inner, Ticks::KIND).await;
        let limits = Limits { in_fleet: Some(1), ..Limits::default() };
        let build = |store: &Store, name| {
            let settings = Settings { lease: secs(lease), ..settings() };
            let worker = Worker::builder(store.clone()).settings(settings);
            start_built(worker.job(Ticks(Arc::clone(&ticks), name)).limits::<Ticks>(limits))
        };
        let first = build(&store, "first");
        within(secs(10), "a tick", async || !ticks.lock().unwrap().is_empty()).await;
        let _second = build(&inner, "second");
        sleep(secs(100)).await;
        for op in [Op::Save, Op::RecordPage, Op::Load, Op::Remove] {
            faults.every_call(op, Fault::Fail(ErrorKind::Unavailable));
        }
        sleep(secs(failing)).await;
        first.gate.freeze();
        sleep(secs(frozen)).await;
        first.gate.thaw();
        let thawed = Instant::now();
        sleep(secs(200)).await;
        let ticks = ticks.lock().unwrap();
        let other = ticks.iter().find(|(worker, _)| *worker == "second").map(|(_, at)| *at);
        let other = other.expect("the slot was not taken over");
        // What a process was about to do when it was frozen, it does before it can notice.
        let noticed = other.max(thawed + ms(1));
        let late = ticks.iter().filter(|(worker, at)| *worker == "first" && *at > noticed).count();
        assert_eq!(late, 0, "two worked at once: lease {lease} s, failing {failing} s, frozen {frozen} s");
    }
}

/// The release fails for a moment, or a renewal was applied without an answer just before.
#[tokio::test(start_paused = true)]
async fn a_slot_is_free_soon_although_its_release_fails_at_first() {
    for op in [Op::Remove, Op::Save] {
        let (inner, seen) = (memory::store(), Seen::default());
        let (store, faults) = Faults::wrap(inner.clone());
        let limits = Limits { in_fleet: Some(1), ..Limits::default() };
        send::<Limited>(&inner, 2, 1, 25_000).await;
        let _worker = start_built(worker(&store, &seen, limits));
        within(secs(10), "the first job", async || seen.of("limited").now == 1).await;
        match op {
            Op::Remove => faults.next_calls(Op::Remove, 2, Fault::Fail(ErrorKind::Unavailable)),
            // The renewal after 20 s, of which the answer comes when the job has ended.
            _ => faults.next_calls(Op::Save, 1, Fault::LoseAnswer),
        }
        within(secs(45), "the second job", async || {
            seen.of("limited").ended == 1 && seen.of("limited").now == 1
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_after_a_failure_has_its_time_anew() {
    let (store, job) = (memory::store(), Steps::default());
    let limits = Limits { job_timeout: Some(secs(100)), attempts: 3, ..Limits::default() };
    let id = enqueue(&store, &[Plan::new(150, 1_000).habit(Habit::FailsOnceEvery(60))]).await.remove(0);
    let built = Worker::builder(store.clone()).settings(settings()).job(job.clone()).limits::<Steps>(limits);
    let worker = start_built(built);
    emptied(&store, secs(600)).await;
    assert_eq!(
        (worker.ended("completed"), worker.ended("retried")),
        (1, 2),
        "{:?}",
        record(&store, &id).await
    );
}

/// The backlog lies between them in the queue.
#[tokio::test(start_paused = true)]
async fn short_jobs_do_not_wait_for_the_returns_of_a_kind_at_its_limit() {
    let (store, seen) = (memory::store(), Seen::default());
    let limits = Limits { per_worker: Some(1), ..Limits::default() };
    send::<Limited>(&store, 1, 1, 3_600_000).await;
    let _worker = start_built(worker(&store, &seen, limits));
    within(secs(10), "the limited job", async || seen.of("limited").now == 1).await;
    let began = Instant::now();
    for _ in 0..300 {
        send::<Free>(&store, 10, 1, 10).await;
        send::<Limited>(&store, 10, 1, 10).await;
    }
    within(secs(120), "the free jobs", async || seen.of("free").ended == 3_000).await;
    let took = began.elapsed();
    assert!(took < secs(20), "{took:?} for 4 s of work");
}

/// Four workers, and a hundred seconds of work in one slot.
#[tokio::test(start_paused = true)]
async fn short_jobs_use_a_third_of_their_slot_in_the_fleet_at_least() {
    let (store, seen) = (memory::store(), Seen::default());
    let limits = Limits { in_fleet: Some(1), ..Limits::default() };
    send::<Limited>(&store, 1_000, 1, 100).await;
    let began = Instant::now();
    let _workers: Vec<_> = (0..4).map(|_| start_built(worker(&store, &seen, limits))).collect();
    within(secs(1_000), "the jobs", async || seen.of("limited").ended == 1_000).await;
    let took = began.elapsed();
    assert!(took < secs(300), "{took:?}");
}

/// One freeze of 75 s, in a kind with a slot of the fleet and a timeout of ten hours.
#[tokio::test(start_paused = true)]
async fn a_slot_that_ended_in_a_freeze_is_no_timeout() {
    let mut letters = Vec::new();
    for step in [true, false] {
        let ten_hours = Some(secs(36_000));
        // One attempt, so that one failure shows.
        let limits = Limits { in_fleet: Some(1), attempts: 1, ..Limits::default() };
        let limits = if step {
            Limits { step_timeout: ten_hours, ..limits }
        } else {
            Limits { job_timeout: ten_hours, ..limits }
        };
        let (store, job) = (memory::store(), Steps::default());
        enqueue(&store, &[Plan::new(3, 200_000)]).await;
        let worker = start_built(limited(&store, &job, limits));
        sleep(secs(61)).await;
        worker.gate.freeze();
        sleep(secs(75)).await;
        worker.gate.thaw();
        sleep(secs(20)).await;
        letters.extend(poisoned(&store).await);
    }
    assert_eq!(letters, Vec::<String>::new());
}

/// Steps of eight seconds that never sleep for long at once.
#[derive(Debug, Clone)]
struct Naps;

#[async_trait]
impl Job for Naps {
    const KIND: &'static str = "naps";
    type Args = ();
    type Checkpoint = u32;
    type Output = u32;

    fn begin(&self, (): &()) -> u32 {
        0
    }

    async fn step(&self, _: &JobContext, (): &(), at: u32) -> Result<Step<u32, u32>, JobError> {
        for _ in 0..80 {
            sleep(ms(100)).await;
        }
        Ok(if at < 4 { Step::Continue(at + 1) } else { Step::Done(at) })
    }
}

/// Three freezes of 15 s, in a job of five steps of 8 s.
#[tokio::test(start_paused = true)]
async fn a_freeze_of_the_machine_is_no_time_of_a_step_or_a_job() {
    let of_step = Limits { step_timeout: Some(secs(10)), attempts: 1, ..Limits::default() };
    let of_job = Limits { job_timeout: Some(secs(45)), attempts: 1, ..Limits::default() };
    for limits in [of_step, of_job] {
        let store = memory::store();
        enqueue_j(&store, Naps::KIND).await;
        let built = Worker::builder(store.clone()).settings(settings()).job(Naps).limits::<Naps>(limits);
        let worker = start_built(built);
        for _ in 0..3 {
            sleep(secs(9)).await;
            worker.gate.freeze();
            sleep(secs(15)).await;
            worker.gate.thaw();
        }
        emptied(&store, secs(60)).await;
        assert_eq!(poisoned(&store).await, Vec::<String>::new(), "{limits:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_step_that_was_frozen_times_out_when_it_has_run_for_its_timeout() {
    let store = memory::store();
    let limits = Limits { step_timeout: Some(secs(6)), attempts: 1, ..Limits::default() };
    enqueue_j(&store, Naps::KIND).await;
    let worker =
        start_built(Worker::builder(store.clone()).settings(settings()).job(Naps).limits::<Naps>(limits));
    sleep(secs(4)).await;
    worker.gate.freeze();
    sleep(secs(15)).await;
    worker.gate.thaw();
    let thawed = Instant::now();
    emptied(&store, secs(60)).await;
    assert!(poisoned(&store).await[0].contains("a step took longer than its timeout of 6s"));
    assert!((secs(1)..secs(6)).contains(&thawed.elapsed()), "{:?}", thawed.elapsed());
}

/// A step that hangs, on machines that never last as long as the timeout.
#[tokio::test(start_paused = true)]
async fn a_job_that_hangs_times_out_although_its_machines_are_evicted() {
    let (store, job) = (memory::store(), Steps::default());
    let limits = Limits { job_timeout: Some(secs(150)), attempts: 1, ..Limits::default() };
    enqueue(&store, &[Plan::new(9, 1_000).habit(Habit::StuckAt(3))]).await;
    for _ in 0..20 {
        let worker = start_built(limited(&store, &job, limits));
        sleep(secs(90)).await;
        worker.evict(secs(30)).await;
        worker.stop().await;
    }
    assert_eq!(poisoned(&store).await.len(), 1, "it never timed out");
}

/// One answer is lost, or the worker is evicted in the 50 ms in which it takes a slot.
#[tokio::test(start_paused = true)]
async fn a_slot_that_was_taken_without_an_answer_is_free_soon() {
    let mut took = Vec::new();
    for evicted in [false, true] {
        let (inner, job) = (memory::store(), Steps::default());
        let (store, faults) = Faults::wrap(inner.clone());
        let limits = Limits { in_fleet: Some(1), ..Limits::default() };
        faults.next_calls(Op::Save, 1, if evicted { Fault::LateAnswer(ms(50)) } else { Fault::LoseAnswer });
        let worker = start_built(limited(&store, &job, limits));
        worker.started().await;
        let id = enqueue(&inner, &[Plan::new(3, 100)]).await.remove(0);
        let slots = async || inner.records.page("reprieve-slot.", None).await.unwrap().entries.len();
        within(secs(60), "a slot", async || slots().await == 1).await;
        if evicted {
            sleep(ms(10)).await;
            worker.evict(secs(30)).await;
        }
        let began = Instant::now();
        let _other = start_built(limited(&inner, &job, limits));
        within(secs(300), "its end", async || end(&inner, &id).await.is_some()).await;
        took.push(began.elapsed());
    }
    assert!(took.iter().all(|took| *took < secs(20)), "{took:?}");
}

macro_rules! kinds {
    ($($job:ident $kind:literal),*) => {$(
        #[derive(Debug, Clone, Default)]
        struct $job(Arc<Mutex<Vec<Duration>>>);

        #[async_trait]
        impl Job for $job {
            const KIND: &'static str = $kind;
            type Args = (u64, i64);
            type Checkpoint = ();
            type Output = ();

            fn begin(&self, _: &(u64, i64)) {}

            async fn step(&self, _: &JobContext, args: &(u64, i64), (): ()) -> Result<Step<(), ()>, JobError> {
                let waited = reprieve_core::clock::unix_millis() - args.1;
                self.0.lock().unwrap().push(ms(u64::try_from(waited).unwrap()));
                sleep(ms(args.0)).await;
                Ok(Step::Done(()))
            }
        }
    )*};
}

kinds!(K0 "k0", K1 "k1", K2 "k2", K3 "k3", K4 "k4", K5 "k5", K6 "k6", K7 "k7", Quick "quick");

async fn send_kind<J: Job<Args = (u64, i64)>>(store: &Store, count: usize, step_ms: u64) {
    on_one_clock();
    let job = NewJob::of::<J>(&(step_ms, reprieve_core::clock::unix_millis())).unwrap();
    Producer::new(store.clone()).enqueue(vec![job; count]).await.unwrap();
}

/// Eight kinds at their limits with 700 jobs each. With one kind of 5,600, no other job waits at all.
#[tokio::test(start_paused = true)]
async fn other_jobs_do_not_wait_behind_several_kinds_at_their_limits() {
    let (inner, quick) = (memory::store(), Quick::default());
    let (store, faults) = Faults::wrap(inner.clone());
    let one = Limits { per_worker: Some(1), ..Limits::default() };
    let worker =
        Worker::builder(store).settings(Settings { concurrency: 16, ..settings() }).job(quick.clone());
    let worker = worker.job(K0::default()).job(K1::default()).job(K2::default()).job(K3::default());
    let worker = worker.job(K4::default()).job(K5::default()).job(K6::default()).job(K7::default());
    let worker = worker.limits::<K0>(one).limits::<K1>(one).limits::<K2>(one).limits::<K3>(one);
    let worker = worker.limits::<K4>(one).limits::<K5>(one).limits::<K6>(one).limits::<K7>(one);
    send_kind::<K0>(&inner, 700, 600_000).await;
    send_kind::<K1>(&inner, 700, 600_000).await;
    send_kind::<K2>(&inner, 700, 600_000).await;
    send_kind::<K3>(&inner, 700, 600_000).await;
    send_kind::<K4>(&inner, 700, 600_000).await;
    send_kind::<K5>(&inner, 700, 600_000).await;
    send_kind::<K6>(&inner, 700, 600_000).await;
    send_kind::<K7>(&inner, 700, 600_000).await;
    let _worker = start_built(worker);
    // Every message has been seen several times.
    sleep(secs(1_200)).await;
    let before = faults.calls(Op::Release);
    for _ in 0..40 {
        send_kind::<Quick>(&inner, 1, 10).await;
        sleep(secs(10)).await;
    }
    let returns = (faults.calls(Op::Release) - before) / 400;
    let waits = quick.0.lock().unwrap().clone();
    println!("{} of 40 ran, the last after {:?}; {returns} returns a second", waits.len(), waits.last());
    assert!(waits.iter().all(|wait| *wait < secs(60)), "{waits:?}");
}

/// A worker's list of cancelled jobs is older than the second life of an id.
#[tokio::test(start_paused = true)]
async fn a_stale_list_of_cancelled_jobs_lets_no_two_jobs_run_at_once() {
    let (store, job) = (memory::store(), Steps::default());
    let limits = Limits { in_fleet: Some(1), ..Limits::default() };
    let (far, faults) = Faults::wrap(store.clone());
    let id = enqueue_as(&store, "again", Plan::new(300, 1_000)).await;
    cancel(&store, &id).await;
    let _long_lived = start_built(limited(&far, &job, limits));
    emptied(&store, secs(60)).await;
    // As a round of cleaning does.
    rewrite(&store, &id, |record| record.expires_unix_ms = Some(0)).await;
    tokio::time::advance(secs(40 * 86_400)).await;
    clean(&store, Keep::default(), false).await;
    assert_eq!(store.blobs.list("cancelled/").await.unwrap(), []);
    // Another worker runs a job of the kind.
    faults.every_call(Op::Receive, Fault::Fail(ErrorKind::Unavailable));
    let _other = start_built(limited(&store, &job, limits));
    let long = enqueue(&store, &[Plan::new(3_000, 1_000)]).await.remove(0);
    within(secs(60), "it runs", async || job.trace.steps(&long).len() > 5).await;
    faults.clear_all();
    sleep(secs(30)).await;
    // Another cancellation, and the id again, before the idle worker asks.
    cancel(&store, &JobId::parse("another").unwrap()).await;
    enqueue_as(&store, "again", Plan::new(300, 1_000)).await;
    sleep(secs(100)).await;
    let before = (job.trace.steps(&long).len(), job.trace.steps(&id).len());
    sleep(secs(20)).await;
    let after = (job.trace.steps(&long).len(), job.trace.steps(&id).len());
    assert!(after.0 == before.0 || after.1 == before.1, "both jobs of in-fleet = 1 ran in the same 20 s");
}

#[tokio::test(start_paused = true)]
async fn a_short_notice_releases_a_limited_job_too() {
    for (timed, first) in [(false, true), (true, true), (false, false), (true, false)] {
        let (inner, job) = (memory::store(), Steps::default());
        let (store, faults) = Faults::wrap(inner.clone());
        let id = if first {
            enqueue(&inner, &[Plan::new(3, 10).habit(Habit::StuckAt(0))]).await.remove(0)
        } else {
            enqueue_as(&inner, "mine", Plan::new(3, 10).habit(Habit::StuckAt(0))).await
        };
        let limits = Limits { job_timeout: timed.then_some(secs(3_600)), ..Limits::default() };
        let worker = start_built(limited(&store, &job, limits));
        sleep(secs(20)).await;
        let _ = &id;
        faults.every_call(Op::Save, Fault::Hang);
        faults.every_call(Op::Load, Fault::Hang);
        let report = worker.evict(secs(2)).await;
        assert_eq!(report.abandoned, 0, "timed {timed} first {first}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_not_forgotten_at_a_cut_before_the_claim() {
    for timed in [false, true] {
        let (inner, job) = (memory::store(), Steps::default());
        let (store, faults) = Faults::wrap(inner.clone());
        let id = enqueue(&inner, &[Plan::new(3, 10).habit(Habit::FailsAt(0))]).await.remove(0);
        let limits = Limits {
            attempts: 5,
            backoff: secs(20),
            job_timeout: timed.then_some(secs(3_600)),
            ..Limits::default()
        };
        let worker = start_built(limited(&store, &job, limits));
        within(secs(10), "a failure", async || worker.ended("retried") > 0).await;
        assert!(record(&inner, &id).await.is_none());
        worker.stop().await;
        faults.every_call(Op::Get, Fault::Hang);
        let worker = start_built(limited(&store, &job, limits));
        within(secs(60), "its delivery", async || leased(&inner).await == 1).await;
        worker.evict(ms(1_500)).await;
        worker.stop().await;
        faults.clear_all();
        let worker = start_built(limited(&inner, &job, limits));
        within(secs(100), "a failure", async || worker.ended("retried") > 0).await;
        sleep(secs(1)).await;
        worker.stop().await;
        let worker = start_built(limited(&inner, &job, limits));
        within(secs(1_000), "a claim", async || record(&inner, &id).await.unwrap().account.failed >= 2).await;
        sleep(secs(1)).await;
        within(secs(5_000), "the letter", async || !poisoned(&inner).await.is_empty()).await;
        assert_eq!(worker.ended("retried"), 2, "timed: {timed}: 5 attempts: 1 + 0 + 1 + 2 + the last");
    }
}

/// A job that hangs in a worker that loses its lease again and again.
#[tokio::test(start_paused = true)]
async fn a_jobs_timeout_counts_the_time_before_a_lost_lease() {
    let (inner, job) = (memory::store(), Steps::default());
    let (store, faults) = Faults::wrap(inner.clone());
    let limits = Limits { job_timeout: Some(secs(150)), attempts: 1, ..Limits::default() };
    let id = enqueue(&inner, &[Plan::new(9, 1_000).habit(Habit::StuckAt(3))]).await.remove(0);
    let _worker = start_built(limited(&store, &job, limits));
    let mut rounds = 0;
    while poisoned(&inner).await.is_empty() {
        rounds += 1;
        assert!(rounds < 8, "{:?}", record(&inner, &id).await);
        sleep(secs(60)).await;
        for op in [Op::Renew, Op::Release, Op::Receive] {
            faults.every_call(op, Fault::Fail(ErrorKind::Unavailable));
        }
        sleep(secs(70)).await;
        faults.clear_all();
    }
    assert!(poisoned(&inner).await[0].contains("150"), "{:?}", poisoned(&inner).await);
}
