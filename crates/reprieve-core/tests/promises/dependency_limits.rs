//! What a dependency that is away, or a job that fails because of it, may take from others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use reprieve_core::dependency::{CallError, Dependency};
use reprieve_core::memory;
use reprieve_core::worker::{Depends, Limits, Settings, Worker};
use reprieve_core::{JobContext, JobError, NewJob, Producer, Step};
use tokio::time::{Instant, sleep};

use crate::service::{Service, enqueue_of, job};
use crate::support::{emptied, ms, poisoned, secs, settings, start_built, within};

/// Depends on nothing.
struct Quick(Arc<AtomicUsize>);
job!(Quick, "quick", |me, _cx| {
    sleep(ms(20)).await;
    me.0.fetch_add(1, Relaxed);
    Ok(Step::Done(()))
});

/// Reads a slow store while the cache is away. The others of both kinds that run, and the most that did.
#[derive(Clone, Default)]
struct Slow {
    cache: Arc<Service>,
    running: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl Slow {
    async fn run(&self, cx: &JobContext) {
        let call = cx.dependency("cache").call(self.cache.probe(), |_| true);
        let is_open = call.await == Err(CallError::Open);
        let running = self.running.fetch_add(1, Relaxed) + 1;
        if is_open {
            self.most.fetch_max(running, Relaxed);
        }
        sleep(if is_open { secs(2) } else { ms(50) }).await;
        self.running.fetch_sub(1, Relaxed);
    }
}

struct One(Slow);
job!(One, "one", |me, cx| {
    me.0.run(cx).await;
    Ok(Step::Done(()))
});
struct Other(Slow);
job!(Other, "other", |me, cx| {
    me.0.run(cx).await;
    Ok(Step::Done(()))
});

#[tokio::test(start_paused = true)]
async fn kinds_that_do_without_the_same_share_half_of_the_slots() {
    let (store, quick, slow) = (memory::store(), Arc::default(), Slow::default());
    let cache = Arc::clone(&slow.cache);
    let worker = Worker::builder(store.clone()).settings(Settings { concurrency: 8, ..settings() });
    let worker = worker.dependency("cache", cache.clone()).job(Quick(Arc::clone(&quick)));
    let worker = worker.job(One(slow.clone())).depends::<One>(Depends::uses(["cache"]));
    let worker = worker.job(Other(slow.clone())).depends::<Other>(Depends::uses(["cache"]));
    let _worker = start_built(worker);
    sleep(secs(2)).await;
    // Some are read ahead when it goes.
    enqueue_of::<One>(&store, 600).await;
    enqueue_of::<Other>(&store, 600).await;
    sleep(secs(1)).await;
    cache.set_away(true);
    sleep(secs(4)).await;
    slow.most.store(0, Relaxed);
    let mut sent = 0;
    for round in 0..300 {
        enqueue_of::<Quick>(&store, 10).await;
        sent += 10;
        sleep(ms(200)).await;
        let behind = sent - quick.load(Relaxed);
        // At first the backlog lies before them, and goes back.
        assert!(round < 100 || behind < 100, "{behind} of another kind wait, of which 50 come in a second");
    }
    assert_eq!(slow.most.load(Relaxed), 4);
    cache.set_away(false);
    emptied(&store, secs(600)).await;
    assert_eq!(poisoned(&store).await, Vec::<String>::new());
}

/// Takes long where its call is not made or fails. Those that do so at once, and the most that did.
#[derive(Clone, Default)]
struct Flapping {
    cache: Arc<Service>,
    calls_fail: Arc<AtomicBool>,
    slow: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
    done: Arc<AtomicUsize>,
}
job!(Flapping, "flapping", |me, cx| {
    let get =
        async { if me.calls_fail.load(Relaxed) { Err("503".to_owned()) } else { me.cache.probe().await } };
    if cx.dependency("cache").call(get, |_| true).await.is_err() {
        me.most.fetch_max(me.slow.fetch_add(1, Relaxed) + 1, Relaxed);
        // The breaker may be closed by its probes alone meanwhile.
        sleep(secs(10)).await;
        me.slow.fetch_sub(1, Relaxed);
    } else {
        sleep(ms(50)).await;
    }
    me.done.fetch_add(1, Relaxed);
    Ok(Step::Done(()))
});

#[tokio::test(start_paused = true)]
async fn jobs_that_use_what_comes_and_goes_leave_half_of_the_slots_to_others() {
    for (name, probe_serves) in
        [("it serves for two of five seconds", false), ("its probe alone serves", true)]
    {
        let (store, quick, flapping) = (memory::store(), Arc::<AtomicUsize>::default(), Flapping::default());
        let cache = Arc::clone(&flapping.cache);
        let worker = Worker::builder(store.clone()).settings(Settings { concurrency: 8, ..settings() });
        let worker = worker.dependency("cache", cache.clone()).job(Quick(Arc::clone(&quick)));
        let worker = worker.job(flapping.clone()).depends::<Flapping>(Depends::uses(["cache"]));
        let _worker = start_built(worker);
        sleep(secs(2)).await;
        flapping.calls_fail.store(probe_serves, Relaxed);
        cache.set_away(!probe_serves);
        enqueue_of::<Flapping>(&store, 1_000).await;
        sleep(secs(20)).await;
        flapping.most.store(0, Relaxed);
        let mut sent = 0;
        for round in 0..100 {
            cache.set_away(!probe_serves && round % 25 < 15);
            enqueue_of::<Quick>(&store, 10).await;
            sent += 10;
            sleep(ms(200)).await;
            let behind = sent - quick.load(Relaxed);
            assert!(behind < 100, "{name}: {behind} of another kind wait, of which 50 come in a second");
        }
        // Some may have begun while it served.
        let most = flapping.most.load(Relaxed);
        assert!(most <= if probe_serves { 4 } else { 7 }, "{name}: {most} did without it at once");
    }
}

#[tokio::test(start_paused = true)]
async fn jobs_that_hold_their_slots_after_few_failed_calls_leave_half_of_them_to_others() {
    // The probe serves all the time. Calls fail in so many of five seconds.
    for (slots, bad) in [(2, 5), (4, 5), (8, 2), (8, 3)] {
        let (store, quick, flapping) = (memory::store(), Arc::<AtomicUsize>::default(), Flapping::default());
        let worker = Worker::builder(store.clone()).settings(Settings { concurrency: slots, ..settings() });
        let worker = worker.dependency("cache", flapping.cache.clone()).job(Quick(Arc::clone(&quick)));
        let worker = worker.job(flapping.clone()).depends::<Flapping>(Depends::uses(["cache"]));
        let _worker = start_built(worker);
        sleep(secs(2)).await;
        let (mut sent, mut used) = (0, 0);
        for second in 0..200 {
            flapping.calls_fail.store(second % 5 < bad, Relaxed);
            // There is always one that waits.
            if used < 200 + flapping.done.load(Relaxed) {
                enqueue_of::<Flapping>(&store, 200).await;
                used += 200;
            }
            if second >= 60 {
                enqueue_of::<Quick>(&store, 2).await;
                sent += 2;
            }
            sleep(secs(1)).await;
            let behind = sent - quick.load(Relaxed);
            assert!(behind <= 2, "{bad} of 5 s, {slots} slots, at {second} s: {behind} of another kind wait");
        }
    }
}

/// Fails because of the cache, which is away for four seconds because of the job.
struct Poison {
    cache: Arc<Service>,
    runs: Arc<AtomicUsize>,
}
job!(Poison, "poison", |me, _cx| {
    me.runs.fetch_add(1, Relaxed);
    me.cache.set_away(true);
    let cache = Arc::clone(&me.cache);
    tokio::spawn(async move {
        sleep(secs(4)).await;
        cache.set_away(false);
    });
    sleep(ms(500)).await;
    Err(JobError::retry("no answer in time"))
});

#[tokio::test(start_paused = true)]
async fn a_job_that_keeps_what_it_needs_from_serving_is_charged_after_a_night() {
    let (store, cache, runs) = (memory::store(), Arc::new(Service::default()), Arc::default());
    let limits = Limits { attempts: 3, ..Limits::default() };
    let poison = Poison { cache: Arc::clone(&cache), runs: Arc::clone(&runs) };
    let worker = Worker::builder(store.clone()).settings(settings()).dependency("cache", cache);
    let worker = worker.job(poison).limits::<Poison>(limits).depends::<Poison>(Depends::needs(["cache"]));
    let _worker = start_built(worker);
    enqueue_of::<Poison>(&store, 1).await;
    let began = Instant::now();
    within(secs(24 * 3600), "it is dead-lettered", async || !poisoned(&store).await.is_empty()).await;
    // A message does not remember every run among its many deferrals, so there are some more than a hundred: up to 126 were seen.
    assert!((100 + 3..=150).contains(&runs.load(Relaxed)), "{}", runs.load(Relaxed));
    assert!(began.elapsed() > secs(8 * 3600), "{:?}", began.elapsed());
    assert!(poisoned(&store).await[0].contains("no answer in time"));
}

/// Works for a minute, and fails if the cache is away then.
struct Long(Arc<Service>, Arc<AtomicUsize>);
job!(Long, "long", |me, _cx| {
    me.1.fetch_add(1, Relaxed);
    sleep(secs(60)).await;
    if me.0.is_away() { Err(JobError::retry("connection refused")) } else { Ok(Step::Done(())) }
});

#[tokio::test(start_paused = true)]
async fn a_job_is_not_charged_for_outages_of_a_night() {
    for (outages, away, serves) in [(1, secs(12 * 3600), secs(30)), (90, secs(600), secs(15))] {
        let (store, cache, runs) = (memory::store(), Arc::new(Service::default()), Arc::default());
        let limits = Limits { attempts: 1, ..Limits::default() };
        let job = Long(Arc::clone(&cache), Arc::clone(&runs));
        let worker = Worker::builder(store.clone()).settings(settings()).dependency("cache", cache.clone());
        let worker = worker.job(job).limits::<Long>(limits).depends::<Long>(Depends::needs(["cache"]));
        let _worker = start_built(worker);
        enqueue_of::<Long>(&store, 8).await;
        for _ in 0..outages {
            sleep(serves).await;
            cache.set_away(true);
            sleep(away).await;
            cache.set_away(false);
        }
        emptied(&store, secs(1_200)).await;
        assert_eq!(poisoned(&store).await, Vec::<String>::new());
        assert!(runs.load(Relaxed) > 8, "no run failed");
    }
}

/// Waits for an answer of the cache, by a client of its own that has no limit.
struct Waiting(Arc<Service>);
job!(Waiting, "waiting", |me, _cx| {
    loop {
        sleep(ms(100)).await;
        if !me.0.is_away() {
            return Ok(Step::Done(()));
        }
    }
});

#[tokio::test(start_paused = true)]
async fn a_job_that_stands_still_because_what_it_needs_hangs_is_not_charged() {
    // A probe may find that it is away before, and have the job yield.
    for _ in 0..4 {
        let (store, cache) = (memory::store(), Arc::new(Service::default()));
        let limits = Limits { attempts: 1, stall_after: Some(secs(10)), ..Limits::default() };
        let worker = Worker::builder(store.clone()).settings(settings()).dependency("cache", cache.clone());
        let worker = worker.job(Waiting(cache.clone())).limits::<Waiting>(limits);
        let _worker = start_built(worker.depends::<Waiting>(Depends::needs(["cache"])));
        sleep(secs(1)).await;
        cache.set_away(true);
        enqueue_of::<Waiting>(&store, 1).await;
        sleep(secs(30)).await;
        cache.set_away(false);
        emptied(&store, secs(300)).await;
        assert_eq!(poisoned(&store).await, Vec::<String>::new());
    }
}

/// Fails by its own fault.
struct Failing;
job!(Failing, "failing", |_me, _cx| Err(JobError::retry("a defect of its own")));

#[tokio::test(start_paused = true)]
async fn jobs_that_fail_by_their_own_fault_while_what_they_need_serves_slow_no_other_kind() {
    let (store, cache, quick) =
        (memory::store(), Arc::new(Service::default()), Arc::<AtomicUsize>::default());
    let worker = Worker::builder(store.clone()).settings(Settings { concurrency: 8, ..settings() });
    let worker = worker.dependency("cache", cache).job(Quick(Arc::clone(&quick)));
    let worker = worker.job(Failing).depends::<Failing>(Depends::needs(["cache"]));
    let mut jobs = Vec::new();
    for _ in 0..200 {
        jobs.push(NewJob::of::<Failing>(&()).unwrap());
        jobs.extend(vec![NewJob::of::<Quick>(&()).unwrap(); 4]);
    }
    Producer::new(store.clone()).enqueue(jobs).await.unwrap();
    let _worker = start_built(worker);
    let began = Instant::now();
    within(secs(120), "all of the other kind are done", async || quick.load(Relaxed) == 800).await;
    // Two seconds, if they were alone.
    assert!(began.elapsed() < secs(8), "{:?}", began.elapsed());
}

/// Notes whether it begins after the cache is known to be away.
struct Looking {
    begun: Arc<AtomicUsize>,
    in_vain: Arc<AtomicUsize>,
}
job!(Looking, "looking", |me, cx| {
    me.begun.fetch_add(1, Relaxed);
    let cache = cx.dependency("cache");
    if cache.is_open() && cache.state_age() > ms(0) {
        me.in_vain.fetch_add(1, Relaxed);
    }
    sleep(ms(200)).await;
    Ok(Step::Done(()))
});

#[tokio::test(start_paused = true)]
async fn a_job_that_waits_for_a_slot_when_what_it_needs_goes_is_not_begun() {
    let (store, cache) = (memory::store(), Arc::new(Service::default()));
    let looking = Looking { begun: Arc::default(), in_vain: Arc::default() };
    let (begun, in_vain) = (Arc::clone(&looking.begun), Arc::clone(&looking.in_vain));
    let worker = Worker::builder(store.clone()).settings(Settings { concurrency: 8, ..settings() });
    let worker = worker.dependency("cache", cache.clone());
    let _worker = start_built(worker.job(looking).depends::<Looking>(Depends::needs(["cache"])));
    enqueue_of::<Looking>(&store, 4_000).await;
    for _ in 0..3 {
        sleep(secs(12)).await;
        let before = begun.load(Relaxed);
        assert!(before > 100, "{before} have begun");
        cache.set_away(true);
        sleep(secs(20)).await;
        cache.set_away(false);
    }
    assert_eq!(in_vain.load(Relaxed), 0);
    assert_eq!(poisoned(&store).await, Vec::<String>::new());
}
