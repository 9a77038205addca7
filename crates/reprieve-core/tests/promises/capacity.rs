//! A worker's concurrency does not fall because storage was slow for a while, and what it reads ahead of its slots
//! does not wait there while another worker is idle.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use reprieve_core::memory::{self, Fault, Faults, ManualNotices, Op};
use reprieve_core::ports::Store;
use reprieve_core::worker::{Settings, Worker};
use reprieve_core::{Job, JobContext, JobError, NewJob, Producer, Step};
use tokio::time::{Instant, sleep};

use crate::support::{Plan, Running, Steps, emptied, enqueue, ms, secs, settings, start_built, start_with};

/// Returns how long sixteen slots need for this number of one-minute jobs, with slow completions in
/// the first `slow_s` seconds.
async fn takes(jobs: usize, slow_s: u64) -> std::time::Duration {
    let (inner, job) = (memory::store(), Steps::default());
    let (store, faults) = Faults::wrap(inner.clone());
    enqueue(&inner, &vec![Plan::new(1, 60_000); jobs]).await;
    let began = Instant::now();
    let wide = Settings { concurrency: 16, ..settings() };
    let worker = start_with(&store, &job, wide, ManualNotices::answered());
    if slow_s > 0 {
        tokio::time::sleep(secs(59)).await;
        faults.every_call(Op::Complete, Fault::Delay(secs(9)));
        tokio::time::sleep(secs(slow_s)).await;
        faults.clear_all();
    }
    emptied(&inner, secs(36_000)).await;
    let took = began.elapsed();
    worker.stop().await;
    took
}

#[tokio::test(start_paused = true)]
async fn completions_that_are_slow_for_a_while_do_not_lower_the_capacity() {
    let undisturbed = takes(320, 0).await;
    let disturbed = takes(320, 20).await;
    assert!(disturbed < undisturbed.mul_f64(1.1), "{disturbed:?} instead of {undisturbed:?}");
}

/// A job that runs for so many milliseconds, and notes when it began.
struct Takes(Arc<Mutex<Vec<(u64, Instant)>>>);

#[async_trait]
impl Job for Takes {
    const KIND: &'static str = "takes";
    type Args = u64;
    type Checkpoint = ();
    type Output = ();

    fn begin(&self, _: &u64) {}

    async fn step(&self, _: &JobContext, long: &u64, (): ()) -> Result<Step<(), ()>, JobError> {
        self.0.lock().unwrap().push((*long, Instant::now()));
        sleep(ms(*long)).await;
        Ok(Step::Done(()))
    }
}

/// A fleet whose calls to the store take 10 ms.
struct Fleet {
    store: Store,
    begun: Arc<Mutex<Vec<(u64, Instant)>>>,
    workers: Vec<(Running, Faults)>,
}

impl Fleet {
    fn start(workers: usize, slots: usize) -> Self {
        let (store, begun) = (memory::store(), Arc::<Mutex<Vec<_>>>::default());
        let start = |_| {
            let (slow, faults) = Faults::wrap(store.clone());
            for op in Op::ALL {
                faults.every_call(op, Fault::Delay(ms(10)));
            }
            let worker = Worker::builder(slow).settings(Settings { concurrency: slots, ..settings() });
            (start_built(worker.job(Takes(Arc::clone(&begun)))), faults)
        };
        let workers = (0..workers).map(start).collect();
        Self { store, begun, workers }
    }

    async fn send(&self, count: usize, long: Duration) {
        let long = u64::try_from(long.as_millis()).unwrap();
        let jobs = vec![NewJob::of::<Takes>(&long).unwrap(); count];
        Producer::new(self.store.clone()).enqueue(jobs).await.unwrap();
    }

    /// How many jobs of this length have begun.
    fn begun(&self, long: Duration) -> usize {
        self.begun.lock().unwrap().iter().filter(|(of, _)| u128::from(*of) == long.as_millis()).count()
    }

    fn calls(&self, op: Op) -> u64 {
        self.workers.iter().map(|(_, faults)| faults.calls(op)).sum()
    }
}

/// What one worker reads ahead, because jobs were short so far, is done by idle workers when it is not.
#[tokio::test(start_paused = true)]
async fn long_jobs_begin_soon_at_an_idle_fleet_that_has_done_short_ones() {
    for (workers, slots, short, pause) in [
        (5, 2, ms(30), secs(1_800)),
        (5, 2, ms(400), secs(20)),
        (10, 1, ms(30), secs(20)),
        (20, 1, ms(100), secs(60)),
        (2, 16, ms(100), secs(20)),
    ] {
        let (fleet, all, long) = (Fleet::start(workers, slots), workers * slots, secs(600));
        fleet.send(all * 20, short).await;
        emptied(&fleet.store, secs(600)).await;
        sleep(pause).await;
        let before = fleet.calls(Op::Release);
        fleet.send(all, long).await;
        let sent = Instant::now();
        while fleet.begun(long) < all {
            sleep(ms(100)).await;
            let begun = fleet.begun(long);
            assert!(
                sent.elapsed() < secs(10),
                "{workers} of {slots}, {short:?}: {begun} of {all} have begun"
            );
        }
        let took = sent.elapsed();
        sleep(secs(60)).await;
        let releases = fleet.calls(Op::Release) - before;
        println!("{workers} of {slots} after jobs of {short:?}: {took:?}, {releases} releases");
        assert!(releases <= (all * workers) as u64, "{releases} releases of {all} jobs");
    }
}

/// Short jobs, and some that take so long.
#[tokio::test(start_paused = true)]
async fn a_fleet_that_has_more_to_do_than_it_can_releases_little_of_what_it_has_read_ahead() {
    for (every, long) in [(5, secs(1)), (10, secs(5)), (50, secs(30))] {
        let fleet = Fleet::start(3, 4);
        for _ in 0..(2_000 / every) {
            fleet.send(every - 1, ms(20)).await;
            fleet.send(1, long).await;
        }
        sleep(secs(60)).await;
        let (begun, releases) = (fleet.begun.lock().unwrap().len(), fleet.calls(Op::Release));
        #[expect(clippy::cast_precision_loss, reason = "is shown")]
        let a_second = releases as f64 / 60.0;
        println!("one of {every} takes {long:?}: {begun} begun, {a_second:.2} releases a second");
        assert!(
            a_second < 6.0,
            "one of {every} takes {long:?}: {a_second} releases a second of three workers"
        );
    }
}

/// One slot that turns over does not hold what waits for the others.
#[tokio::test(start_paused = true)]
async fn what_is_read_ahead_goes_to_an_idle_worker_also_if_one_slot_turns_over() {
    let fleet = Fleet::start(2, 8);
    for _ in 0..20 {
        fleet.send(15, ms(60)).await;
        fleet.send(1, secs(6)).await;
    }
    emptied(&fleet.store, secs(600)).await;
    sleep(secs(20)).await;
    fleet.send(7, secs(600)).await;
    fleet.send(17, ms(1_500)).await;
    let sent = Instant::now();
    while fleet.begun(ms(1_500)) < 17 {
        sleep(ms(100)).await;
        assert!(sent.elapsed() < secs(10), "{} of 17 have begun", fleet.begun(ms(1_500)));
    }
    println!("the last began after {:?}", sent.elapsed());
}
