//! A kind at its limit behind the backlog of another one in the same queue, and in front of it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use reprieve_core::memory::{self, Fault, Faults, Op};
use reprieve_core::ports::Store;
use reprieve_core::worker::{Limits, Settings, Worker};
use reprieve_core::{Job, JobContext, JobError, NewJob, Producer, Step};
use tokio::time::{Instant, sleep};

use crate::support::{Running, ms, ready, secs, settings, start_built};

/// Five minutes of work for eight slots.
const BACKLOG: usize = 1_200;
const LIMITED: u32 = 40;

struct Plain;

#[async_trait]
impl Job for Plain {
    const KIND: &'static str = "plain";
    type Args = ();
    type Checkpoint = ();
    type Output = ();

    fn begin(&self, (): &()) {}

    async fn step(&self, _: &JobContext, (): &(), (): ()) -> Result<Step<(), ()>, JobError> {
        sleep(secs(2)).await;
        Ok(Step::Done(()))
    }
}

struct One(Arc<Mutex<usize>>);

#[async_trait]
impl Job for One {
    const KIND: &'static str = "one";
    type Args = u32;
    type Checkpoint = ();
    type Output = ();

    fn begin(&self, _: &u32) {}

    async fn step(&self, _: &JobContext, _: &u32, (): ()) -> Result<Step<(), ()>, JobError> {
        *self.0.lock().unwrap() += 1;
        sleep(secs(2)).await;
        Ok(Step::Done(()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_becomes_free_does_not_wait_for_the_backlog_of_another_kind() {
    for limits in [
        Limits { in_fleet: Some(1), ..Limits::default() },
        Limits { per_worker: Some(1), ..Limits::default() },
    ] {
        let (store, runs) = (memory::store(), Arc::new(Mutex::new(0)));
        let producer = Producer::new(store.clone());
        let plain = |count| vec![NewJob::of::<Plain>(&()).unwrap(); count];
        producer.enqueue(plain(BACKLOG)).await.unwrap();
        let limited = (0..LIMITED).map(|n| NewJob::of::<One>(&n).unwrap()).collect();
        producer.enqueue(limited).await.unwrap();
        let worker = Worker::builder(store.clone()).settings(Settings { concurrency: 8, ..settings() });
        let _worker = start_built(worker.job(Plain).job(One(Arc::clone(&runs))).limits::<One>(limits));
        let start = Instant::now();
        while *runs.lock().unwrap() < LIMITED as usize {
            let ready = usize::try_from(ready(&store).await).unwrap();
            if ready < BACKLOG {
                producer.enqueue(plain(BACKLOG - ready)).await.unwrap();
            }
            sleep(secs(5)).await;
            let runs = *runs.lock().unwrap();
            assert!(start.elapsed() < secs(800), "{limits:?}: {runs} of {LIMITED} have begun");
        }
    }
}

/// A job of no time at all, which notes when it began.
struct Noted(Arc<Mutex<Vec<(u64, Instant)>>>);

#[async_trait]
impl Job for Noted {
    const KIND: &'static str = "noted";
    type Args = u64;
    type Checkpoint = ();
    type Output = ();

    fn begin(&self, _: &u64) {}

    async fn step(&self, _: &JobContext, number: &u64, (): ()) -> Result<Step<(), ()>, JobError> {
        self.0.lock().unwrap().push((*number, Instant::now()));
        Ok(Step::Done(()))
    }
}

fn one_in_fleet() -> Limits {
    Limits { in_fleet: Some(1), ..Limits::default() }
}

/// A worker of so many slots whose calls to the store take this long.
fn start_slow(
    store: &Store,
    begun: &Arc<Mutex<Vec<(u64, Instant)>>>,
    slots: usize,
    call: Duration,
) -> Running {
    let (slow, faults) = Faults::wrap(store.clone());
    for op in Op::ALL {
        faults.every_call(op, Fault::Delay(call));
    }
    let worker = Worker::builder(slow).settings(Settings { concurrency: slots, ..settings() });
    let worker = worker.job(Noted(Arc::clone(begun))).job(One(Arc::default()));
    start_built(worker.limits::<One>(one_in_fleet()))
}

#[tokio::test(start_paused = true)]
async fn another_kind_is_not_held_up_where_more_jobs_of_a_limited_kind_arrive_than_may_run() {
    for (per_second, seconds, slots, call) in
        [(25, 200, 8, ms(0)), (100, 60, 8, ms(10)), (50, 120, 2, ms(10))]
    {
        let (store, begun) = (memory::store(), Arc::<Mutex<Vec<_>>>::default());
        let producer = Producer::new(store.clone());
        let _worker = start_slow(&store, &begun, slots, call);
        let start = Instant::now();
        for second in 0..seconds {
            let limited = (0..per_second).map(|n| NewJob::of::<One>(&n).unwrap());
            producer.enqueue(limited.collect()).await.unwrap();
            producer.enqueue(vec![NewJob::of::<Noted>(&second).unwrap()]).await.unwrap();
            sleep(secs(1)).await;
        }
        sleep(secs(15)).await;
        let begun = begun.lock().unwrap();
        let late = |(second, at): &(u64, Instant)| at.saturating_duration_since(start + secs(*second));
        let latest = begun.iter().map(late).max().unwrap();
        println!("{per_second} a second, {slots} slots: {} of {seconds} began, {latest:?} late", begun.len());
        assert!(begun.len() as u64 == seconds && latest < secs(15), "{} began, {latest:?}", begun.len());
    }
}

#[tokio::test(start_paused = true)]
async fn another_kind_is_reached_behind_a_large_backlog_of_a_limited_one_at_a_bounded_number_of_returns() {
    for (in_front, received_before, slots, call) in
        [(6_000, false, 8, ms(0)), (3_000, false, 2, ms(10)), (3_000, true, 8, ms(10))]
    {
        let (store, begun) = (memory::store(), Arc::<Mutex<Vec<_>>>::default());
        let producer = Producer::new(store.clone());
        producer.enqueue((0..in_front).map(|n| NewJob::of::<One>(&n).unwrap()).collect()).await.unwrap();
        if received_before {
            // By a worker that is gone.
            while !store.queue.receive(32, secs(1)).await.unwrap().is_empty() {}
            sleep(secs(2)).await;
        }
        producer.enqueue(vec![NewJob::of::<Noted>(&0).unwrap()]).await.unwrap();
        let _worker = start_slow(&store, &begun, slots, call);
        let start = Instant::now();
        while begun.lock().unwrap().is_empty() {
            assert!(start.elapsed() < secs(60), "{slots} slots: {} are ready", ready(&store).await);
            sleep(secs(1)).await;
        }
        println!("{in_front} in front, {slots} slots: {:?}", start.elapsed());
        // 300 a second at the most, and as many at once.
        assert!(start.elapsed() > secs(u64::from(in_front) / 300 - 2), "{:?}", start.elapsed());
    }
}

/// A free place in the fleet is worth as much as no limit, as long as none of its jobs went back.
#[tokio::test(start_paused = true)]
async fn a_kind_with_a_free_place_in_the_fleet_is_reached_behind_the_backlog_of_another_such_kind() {
    for call in [ms(10), ms(30)] {
        let (store, begun) = (memory::store(), Begun::default());
        let producer = Producer::new(store.clone());
        producer.enqueue(vec![NewJob::of::<Takes<true>>(&60_000).unwrap(); 3_000]).await.unwrap();
        producer.enqueue(vec![NewJob::of::<Takes<false>>(&1_000).unwrap()]).await.unwrap();
        let (slow, faults) = Faults::wrap(store.clone());
        for op in Op::ALL {
            faults.every_call(op, Fault::Delay(call));
        }
        let worker = Worker::builder(slow).settings(Settings { concurrency: 8, ..settings() });
        let worker = worker.job(Takes::<true>(Arc::clone(&begun.limited)));
        let worker = worker.job(Takes::<false>(Arc::clone(&begun.free)));
        let worker = worker.limits::<Takes<true>>(one_in_fleet()).limits::<Takes<false>>(one_in_fleet());
        let _worker = start_built(worker);
        let start = Instant::now();
        while begun.free.lock().unwrap().is_empty() {
            assert!(start.elapsed() < secs(120), "calls of {call:?}: {} are ready", ready(&store).await);
            sleep(secs(1)).await;
        }
        println!("calls of {call:?}: {:?}", start.elapsed());
    }
}

/// A job of either kind that runs for so many milliseconds.
struct Takes<const LIMITED: bool>(Arc<Mutex<Vec<Instant>>>);

#[async_trait]
impl<const LIMITED: bool> Job for Takes<LIMITED> {
    const KIND: &'static str = if LIMITED { "limited" } else { "free" };
    type Args = u64;
    type Checkpoint = ();
    type Output = ();

    fn begin(&self, _: &u64) {}

    async fn step(&self, _: &JobContext, long: &u64, (): ()) -> Result<Step<(), ()>, JobError> {
        self.0.lock().unwrap().push(Instant::now());
        sleep(ms(*long)).await;
        Ok(Step::Done(()))
    }
}

/// When jobs of the two kinds began.
#[derive(Default)]
struct Begun {
    limited: Arc<Mutex<Vec<Instant>>>,
    free: Arc<Mutex<Vec<Instant>>>,
}

impl Begun {
    /// A worker of so many slots, whose calls to the store take 10 ms.
    fn start(&self, store: &Store, slots: usize, limits: Limits, has_free: bool) -> (Running, Faults) {
        let (slow, faults) = Faults::wrap(store.clone());
        for op in Op::ALL {
            faults.every_call(op, Fault::Delay(ms(10)));
        }
        let worker = Worker::builder(slow).settings(Settings { concurrency: slots, ..settings() });
        let worker = worker.job(Takes::<true>(Arc::clone(&self.limited))).limits::<Takes<true>>(limits);
        let worker = if has_free { worker.job(Takes::<false>(Arc::clone(&self.free))) } else { worker };
        (start_built(worker), faults)
    }
}

async fn enqueue<const LIMITED: bool>(store: &Store, count: usize, long: Duration) {
    let long = u64::try_from(long.as_millis()).unwrap();
    let jobs = vec![NewJob::of::<Takes<LIMITED>>(&long).unwrap(); count];
    Producer::new(store.clone()).enqueue(jobs).await.unwrap();
}

/// A worker that receives a batch, because most messages were over a limit, leaves to the others what is not.
#[tokio::test(start_paused = true)]
async fn jobs_begin_at_once_at_an_idle_fleet_that_has_just_deferred_a_backlog_of_a_limited_kind() {
    // While it is being deferred, and when all of it is.
    for (workers, slots, after) in [(11, 1, secs(120)), (4, 8, secs(60)), (4, 8, secs(1)), (10, 3, secs(3))] {
        let (store, begun) = (memory::store(), Begun::default());
        enqueue::<true>(&store, 2_000, secs(36_000)).await;
        let start = |_| begun.start(&store, slots, one_in_fleet(), true);
        let _fleet: Vec<_> = (0..workers).map(start).collect();
        sleep(after).await;
        // The limited job has one of the slots.
        let free = workers * slots - 1;
        enqueue::<false>(&store, free, secs(600)).await;
        let sent = Instant::now();
        while begun.free.lock().unwrap().len() < free {
            sleep(ms(100)).await;
            let count = begun.free.lock().unwrap().len();
            // The rest of the backlog is in front of them.
            let longest = if after < secs(10) { secs(10) } else { secs(1) };
            assert!(
                sent.elapsed() < longest,
                "{workers} of {slots}, {after:?}: {count} of {free} have begun"
            );
        }
        println!("{workers} of {slots}, {after:?}: {:?}", sent.elapsed());
        sleep(ms(100)).await;
        // More are left to whoever has a slot, and held by nobody.
        enqueue::<false>(&store, 40, secs(600)).await;
        sleep(secs(3)).await;
        let depth = store.queue.depth().await.unwrap();
        assert_eq!(depth.leased, Some(free as u64 + 1), "{depth:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_fleet_that_has_only_limited_kinds_leaves_their_backlog_where_it_is() {
    for workers in [1, 5] {
        let (store, begun) = (memory::store(), Begun::default());
        enqueue::<true>(&store, 2_000, secs(60)).await;
        let fleet: Vec<_> = (0..workers).map(|_| begun.start(&store, 8, one_in_fleet(), false)).collect();
        sleep(secs(300)).await;
        let calls = |op| fleet.iter().map(|(_, faults)| faults.calls(op)).sum::<u64>();
        let (receives, releases, count) =
            (calls(Op::Receive), calls(Op::Release), begun.limited.lock().unwrap().len());
        println!("{workers} workers: {receives} receives and {releases} releases; {count} began");
        // Each looks about every two seconds.
        assert!(receives < 200 * workers && releases < 200 * workers, "{receives} and {releases}");
        assert!(count >= 5, "{count} have begun");
    }
}

#[tokio::test(start_paused = true)]
async fn places_that_become_free_often_are_taken_as_often() {
    let (per_worker, in_fleet) = (Some(8), Some(8));
    for limits in [Limits { per_worker, ..Limits::default() }, Limits { in_fleet, ..Limits::default() }] {
        // They take about 120 ms each, so a minute in eight places.
        let (jobs, slots) = (4_000, 16);
        let (store, begun) = (memory::store(), Begun::default());
        enqueue::<true>(&store, jobs, ms(100)).await;
        let (_worker, faults) = begun.start(&store, slots, limits, true);
        let start = Instant::now();
        while begun.limited.lock().unwrap().len() < jobs {
            sleep(secs(1)).await;
            let count = begun.limited.lock().unwrap().len();
            assert!(start.elapsed() < secs(130), "{limits:?}: {count} of {jobs} have begun");
        }
        let (took, releases) = (start.elapsed(), faults.calls(Op::Release));
        println!("{jobs} jobs on {slots} slots: {took:?}, {releases} returns");
        assert!(releases < 300 * took.as_secs(), "{releases} returns");
    }
}

/// A backlog is deferred within seconds, before it is known how often a place becomes free.
#[tokio::test(start_paused = true)]
async fn a_small_backlog_of_short_jobs_takes_little_longer_than_its_places_allow() {
    for (jobs, long, per_worker, ideal) in
        [(300, ms(100), 4, secs(10)), (300, ms(100), 1, secs(39)), (300, ms(1_000), 4, secs(77))]
    {
        let (store, begun) = (memory::store(), Begun::default());
        enqueue::<true>(&store, jobs, long).await;
        let limits = Limits { per_worker: Some(per_worker), ..Limits::default() };
        let (_worker, _) = begun.start(&store, 8, limits, true);
        let start = Instant::now();
        while begun.limited.lock().unwrap().len() < jobs {
            sleep(ms(100)).await;
            let count = begun.limited.lock().unwrap().len();
            assert!(
                start.elapsed() < ideal.mul_f64(1.5) + secs(5),
                "{count} of {jobs} of {long:?} have begun"
            );
        }
        println!("{jobs} of {long:?} in {per_worker} places: {:?} instead of {ideal:?}", start.elapsed());
    }
}

/// A message can't be called back once it is deferred, and the whole backlog is while the first jobs take long.
#[tokio::test(start_paused = true)]
async fn a_backlog_that_was_deferred_while_all_places_were_blocked_comes_back_32_in_a_second() {
    for (jobs, blocked) in [(2_000, secs(30)), (5_000, secs(60))] {
        let (store, begun) = (memory::store(), Begun::default());
        enqueue::<true>(&store, 8, blocked).await;
        enqueue::<true>(&store, jobs, ms(100)).await;
        let limits = Limits { per_worker: Some(8), ..Limits::default() };
        let (_worker, _) = begun.start(&store, 16, limits, true);
        let start = Instant::now();
        let longest = blocked * 2 + secs(60) * u32::try_from(jobs).unwrap() / (60 * 24);
        while begun.limited.lock().unwrap().len() < jobs + 8 {
            sleep(secs(1)).await;
            let count = begun.limited.lock().unwrap().len();
            assert!(start.elapsed() < longest, "{count} of {jobs} have begun in {longest:?}");
        }
        println!("{jobs} after {blocked:?}: {:?}, at most {longest:?}", start.elapsed());
    }
}

/// What finds no place in the fleet comes back no more often than places become free, however many workers there are.
#[tokio::test(start_paused = true)]
async fn short_jobs_in_places_of_the_fleet_cost_few_returns() {
    for (workers, in_fleet, jobs) in [(1, 4, 600), (5, 1, 200), (5, 4, 600), (20, 4, 600), (5, 16, 2_000)] {
        let (store, begun) = (memory::store(), Begun::default());
        enqueue::<true>(&store, jobs, ms(100)).await;
        let limits = Limits { in_fleet: Some(in_fleet), ..Limits::default() };
        let fleet: Vec<_> = (0..workers).map(|_| begun.start(&store, 8, limits, true)).collect();
        let start = Instant::now();
        while begun.limited.lock().unwrap().len() < jobs {
            sleep(secs(1)).await;
            let count = begun.limited.lock().unwrap().len();
            assert!(
                start.elapsed() < secs(600),
                "{workers} workers, {in_fleet}: {count} of {jobs} have begun"
            );
        }
        let took = start.elapsed();
        let releases: u64 = fleet.iter().map(|(_, faults)| faults.calls(Op::Release)).sum();
        #[expect(clippy::cast_precision_loss, reason = "is shown")]
        let (a_second, a_job) = (releases as f64 / took.as_secs_f64(), releases as f64 / jobs as f64);
        println!(
            "{workers} workers, {in_fleet} places: {took:?}, {a_second:.0} returns a second, {a_job:.1} a job"
        );
        // Nobody is told when a place becomes free.
        let ideal = ms(120) * u32::try_from(jobs).unwrap() / in_fleet;
        assert!(a_job < 20.0 && took < ideal * 5 + secs(5), "{took:?} instead of {ideal:?}");
    }
}
