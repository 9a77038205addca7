//! A kind at its limit does not hold up another one, however slowly the store answers.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use reprieve_core::memory::{self, Fault, Faults, Op};
use reprieve_core::ports::Store;
use reprieve_core::worker::{Limits, Settings, Worker};
use reprieve_core::{Job, JobContext, JobError, NewJob, Producer, Step};
use tokio::time::{Instant, sleep};

use crate::support::{Running, ms, ready, secs, settings, start_built};

type Begun = Arc<Mutex<Vec<(u64, Instant)>>>;

/// A job with a number that takes so many milliseconds. The first kind has the backlog.
struct Takes<const FIRST: bool>(Begun);

#[async_trait]
impl<const FIRST: bool> Job for Takes<FIRST> {
    const KIND: &'static str = if FIRST { "first" } else { "other" };
    type Args = (u64, u64);
    type Checkpoint = ();
    type Output = ();

    fn begin(&self, _: &(u64, u64)) {}

    async fn step(
        &self,
        _: &JobContext,
        (number, long): &(u64, u64),
        (): (),
    ) -> Result<Step<(), ()>, JobError> {
        self.0.lock().unwrap().push((*number, Instant::now()));
        sleep(ms(*long)).await;
        Ok(Step::Done(()))
    }
}

/// How many run at once in a worker, and in the fleet.
type Most = (Option<usize>, Option<u32>);

const IN_WORKER: Most = (Some(1), None);
const IN_FLEET: Most = (None, Some(1));
const NONE: Most = (None, None);

/// A worker of so many slots whose calls to the store take this long.
fn start(store: &Store, other: &Begun, slots: usize, call: Duration, most: [Most; 2]) -> (Running, Faults) {
    let (slow, faults) = Faults::wrap(store.clone());
    for op in Op::ALL {
        faults.every_call(op, Fault::Delay(call));
    }
    let worker = Worker::builder(slow).settings(Settings { concurrency: slots, ..settings() });
    let worker = worker.job(Takes::<true>(Begun::default())).job(Takes::<false>(Arc::clone(other)));
    let limits = most.map(|(per_worker, in_fleet)| Limits { per_worker, in_fleet, ..Limits::default() });
    let worker = worker.limits::<Takes<true>>(limits[0]).limits::<Takes<false>>(limits[1]);
    (start_built(worker), faults)
}

/// Jobs with these numbers.
async fn send<const FIRST: bool>(store: &Store, numbers: std::ops::Range<u64>, long: Duration) {
    let long = u64::try_from(long.as_millis()).unwrap();
    let jobs = numbers.map(|number| NewJob::of::<Takes<FIRST>>(&(number, long)).unwrap());
    Producer::new(store.clone()).enqueue(jobs.collect()).await.unwrap();
}

/// Few slots receive few at a time, unless the worker sees that most of what it receives goes back.
#[tokio::test(start_paused = true)]
async fn another_kind_is_reached_behind_a_large_backlog_of_a_limited_one_at_a_slow_store() {
    for (most, backlog, slots, call, longest) in [
        (IN_FLEET, 3_000, 2, ms(100), secs(60)),
        (IN_FLEET, 3_000, 4, ms(70), secs(60)),
        (IN_WORKER, 3_000, 2, ms(100), secs(60)),
        // 16 messages can be received and returned in a second.
        (IN_WORKER, 500, 2, secs(1), secs(120)),
        (IN_FLEET, 500, 2, secs(1), secs(180)),
    ] {
        let (store, other) = (memory::store(), Begun::default());
        send::<true>(&store, 0..backlog, secs(36_000)).await;
        send::<false>(&store, 0..1, secs(1)).await;
        let (_worker, faults) = start(&store, &other, slots, call, [most, NONE]);
        let start = Instant::now();
        while other.lock().unwrap().is_empty() {
            let ready = ready(&store).await;
            assert!(start.elapsed() < longest, "{most:?}, {slots} slots, {call:?}: {ready} are ready");
            sleep(secs(1)).await;
        }
        let (took, returns) = (start.elapsed(), faults.calls(Op::Release));
        println!("{most:?}, {slots} slots, {call:?}: {took:?}, {returns} returns");
        assert!(returns < backlog + 32 * (took.as_secs() + 10), "{returns} returns in {took:?}");
    }
}

/// Its own jobs go back, too, where two come at a time: that its place is taken again and again says nothing of whether
/// it is now.
#[tokio::test(start_paused = true)]
async fn a_place_in_the_fleet_that_becomes_free_again_and_again_is_found_behind_the_backlog_of_another_kind()
{
    for (slots, call, longest) in [(2, ms(10), secs(30)), (2, ms(100), secs(60))] {
        let (store, other) = (memory::store(), Begun::default());
        send::<false>(&store, 0..3, secs(1)).await;
        send::<true>(&store, 0..3_000, secs(600)).await;
        let (_worker, _) = start(&store, &other, slots, call, [IN_FLEET, IN_FLEET]);
        let mut sent = vec![Instant::now(); 3];
        for _ in 0..12 {
            let first = sent.len() as u64;
            send::<false>(&store, first..first + 2, secs(1)).await;
            sent.extend([Instant::now(); 2]);
            sleep(secs(10)).await;
        }
        // Whatever is deferred comes back within some seconds.
        sleep(longest).await;
        let begun = other.lock().unwrap();
        let late = |(number, at): &(u64, Instant)| *at - sent[usize::try_from(*number).unwrap()];
        let latest = begun.iter().map(late).max().unwrap();
        println!("{slots} slots, {call:?}: {} of {} began, {latest:?} late", begun.len(), sent.len());
        assert!(
            begun.len() == sent.len() && latest < longest,
            "{call:?}: {} of {} began, {latest:?} late",
            begun.len(),
            sent.len()
        );
    }
}

/// Those that are received together with one that takes the place go back at once, and are no sign that little goes back.
#[tokio::test(start_paused = true)]
async fn jobs_with_one_place_in_the_fleet_follow_each_other_soon_behind_the_backlog_of_another_kind() {
    let (store, other) = (memory::store(), Begun::default());
    send::<true>(&store, 0..3_000, secs(36_000)).await;
    let (_worker, _) = start(&store, &other, 2, ms(100), [IN_FLEET, IN_FLEET]);
    // All of the backlog is away, and comes back.
    sleep(secs(120)).await;
    send::<false>(&store, 0..20, secs(1)).await;
    let sent = Instant::now();
    while other.lock().unwrap().len() < 20 {
        let count = other.lock().unwrap().len();
        assert!(sent.elapsed() < secs(90), "{count} of 20 have begun");
        sleep(ms(100)).await;
    }
    println!("{:?}", sent.elapsed());
}
