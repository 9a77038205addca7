//! How many slots the kinds that use what is away leave to others, and how soon they have all of them again.

use std::future::pending;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use reprieve_core::memory;
use reprieve_core::ports::Store;
use reprieve_core::worker::{Depends, Settings, Worker, WorkerBuilder};
use reprieve_core::{JobContext, NewJob, Producer, Step};
use tokio::time::{Instant, advance, sleep, timeout};

use crate::service::{Service, enqueue_of, has_state, job};
use crate::support::{cancel, emptied, ms, secs, settings, start_built, within};

/// How the calls of jobs fare.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Calls {
    Serve,
    Fail,
    /// They are answered, and refused.
    Refuse,
    /// They hang, and the job gives them up.
    GivenUp,
    /// They hang for 20 s, and fail then.
    Hang,
    /// They are answered after 5 s.
    Slow,
    /// They hang for ever.
    HangOn,
}

/// What the jobs that use a service have in common.
struct Using {
    calls: Mutex<Calls>,
    /// For how many seconds a job runs that does without: the least and the most.
    slower: (u64, u64),
    begun: AtomicU64,
    done: AtomicUsize,
    running: AtomicUsize,
}

impl Using {
    fn new(slower: (u64, u64)) -> Arc<Self> {
        let (begun, done, running) = Default::default();
        Arc::new(Self { calls: Mutex::new(Calls::Serve), slower, begun, done, running })
    }

    fn set(&self, calls: Calls) {
        *self.calls.lock().unwrap() = calls;
    }

    async fn run(&self, cx: &JobContext, name: &str) {
        self.running.fetch_add(1, Relaxed);
        let number = self.begun.fetch_add(1, Relaxed);
        let calls = *self.calls.lock().unwrap();
        let handle = cx.dependency(name);
        let has_answer = match calls {
            Calls::Serve => handle.call(async { Ok::<_, String>(()) }, |_| true).await.is_ok(),
            Calls::Fail => handle.call(async { Err::<(), _>("503".to_owned()) }, |_| true).await.is_ok(),
            Calls::Refuse => {
                let called = handle.call(async { Err::<(), _>("busy".to_owned()) }, |_| false).await;
                handle.refused("busy");
                called.is_ok()
            }
            Calls::GivenUp => {
                let call = handle.call(pending::<Result<(), String>>(), |_| true);
                matches!(timeout(ms(500), call).await, Ok(Ok(())))
            }
            Calls::Hang => {
                let call = async {
                    sleep(secs(20)).await;
                    Err::<(), _>("no answer".to_owned())
                };
                handle.call(call, |_| true).await.is_ok()
            }
            Calls::Slow => {
                let call = async {
                    sleep(secs(5)).await;
                    Ok::<_, String>(())
                };
                handle.call(call, |_| true).await.is_ok()
            }
            Calls::HangOn => handle.call(pending::<Result<(), String>>(), |_| true).await.is_ok(),
        };
        // Evenly between the two.
        let slower = self.slower.0 + number * 7919 % (self.slower.1 - self.slower.0 + 1);
        sleep(if has_answer { ms(50) } else { secs(slower) }).await;
        self.done.fetch_add(1, Relaxed);
        self.running.fetch_sub(1, Relaxed);
    }
}

/// Uses nothing.
struct Quick(Arc<AtomicUsize>);
job!(Quick, "quick", |me, _cx| {
    sleep(ms(20)).await;
    me.0.fetch_add(1, Relaxed);
    Ok(Step::Done(()))
});

struct One(Arc<Using>);
job!(One, "one", |me, cx| {
    me.0.run(cx, "one").await;
    Ok(Step::Done(()))
});

struct Other(Arc<Using>);
job!(Other, "other", |me, cx| {
    me.0.run(cx, "other").await;
    Ok(Step::Done(()))
});

/// A backlog of two kinds that use a service each, whose calls fare so from second 2 on.
struct Scene {
    name: &'static str,
    slots: usize,
    calls: Calls,
    are_away: [bool; 2],
    /// Whether there are jobs of both kinds.
    are_both: bool,
    slower: (u64, u64),
    minutes: usize,
    /// How many jobs of each kind may do without, if not half of the slots.
    without: [Option<usize>; 2],
}

impl Default for Scene {
    fn default() -> Self {
        let (name, slots, calls, slower, minutes) = ("", 8, Calls::Serve, A_MINUTE, 5);
        Self {
            name,
            slots,
            calls,
            are_away: [false; 2],
            are_both: false,
            slower,
            minutes,
            without: [None; 2],
        }
    }
}

impl Scene {
    /// Two jobs that use nothing come in a second, from second 60 on. None of them waits for long.
    async fn others_have_slots(&self) {
        let (store, quick, using) = (memory::store(), Arc::<AtomicUsize>::default(), Using::new(self.slower));
        let services = [Arc::new(Service::default()), Arc::new(Service::default())];
        let settings = Settings { concurrency: self.slots, ..settings() };
        let worker = Worker::builder(store.clone()).settings(settings).job(Quick(Arc::clone(&quick)));
        let worker = worker.dependency("one", services[0].clone()).dependency("other", services[1].clone());
        let [one, other] = ["one", "other"].map(|name| Depends::uses([name]));
        let worker =
            worker.job(One(using.clone())).depends::<One>(Depends { without: self.without[0], ..one });
        let worker =
            worker.job(Other(using.clone())).depends::<Other>(Depends { without: self.without[1], ..other });
        let _worker = start_built(worker);
        sleep(secs(2)).await;
        using.set(self.calls);
        services.iter().zip(self.are_away).for_each(|(service, away)| service.set_away(away));
        sleep(secs(5)).await;
        let (mut sent, mut used, mut slow_seconds) = (0, 0, 0);
        for second in 0..60 + self.minutes * 60 {
            // Some wait always.
            if used < 200 + using.done.load(Relaxed) {
                for _ in 0..100 {
                    enqueue_of::<One>(&store, 1).await;
                    if self.are_both {
                        enqueue_of::<Other>(&store, 1).await;
                    } else {
                        enqueue_of::<One>(&store, 1).await;
                    }
                }
                used += 200;
            }
            if second >= 60 {
                enqueue_of::<Quick>(&store, 2).await;
                sent += 2;
            }
            sleep(secs(1)).await;
            slow_seconds += usize::from(sent - quick.load(Relaxed) > 2);
        }
        let done = quick.load(Relaxed);
        assert!(sent - done <= 2, "{}, {} slots: {done} of {sent}", self.name, self.slots);
        assert!(slow_seconds <= 5, "{}, {} slots: some waited in {slow_seconds} s", self.name, self.slots);
    }
}

const A_MINUTE: (u64, u64) = (60, 90);

#[tokio::test(start_paused = true)]
async fn kinds_that_do_without_different_services_share_half_of_the_slots() {
    for (slots, are_away) in [(4, [true, true]), (8, [true, true]), (8, [false, false]), (8, [true, false])] {
        let name = "two services, and no call is answered";
        let calls = Calls::Fail;
        Scene { name, slots, calls, are_away, are_both: true, ..Scene::default() }.others_have_slots().await;
    }
}

#[tokio::test(start_paused = true)]
async fn jobs_whose_calls_are_refused_leave_half_of_the_slots_to_others() {
    for slots in [4, 8] {
        let (name, calls) = ("each call is refused", Calls::Refuse);
        Scene { name, slots, calls, ..Scene::default() }.others_have_slots().await;
    }
}

#[tokio::test(start_paused = true)]
async fn jobs_that_give_up_their_calls_leave_half_of_the_slots_to_others() {
    for slots in [2, 8] {
        let (name, calls) = ("each call is given up", Calls::GivenUp);
        Scene { name, slots, calls, ..Scene::default() }.others_have_slots().await;
    }
}

#[tokio::test(start_paused = true)]
async fn jobs_whose_calls_hang_leave_half_of_the_slots_to_others() {
    for slots in [2, 4] {
        let (name, calls) = ("each call hangs for 20 s", Calls::Hang);
        Scene { name, slots, calls, slower: (1, 1), ..Scene::default() }.others_have_slots().await;
    }
}

/// A kind may have one slot, or another one all.
async fn kinds_of_other_shares_leave_slots(calls: Calls) {
    for (name, without) in
        [("a small share", [Some(1), None]), ("a kind without jobs may have all", [None, Some(8)])]
    {
        Scene { name, calls, without, minutes: 10, ..Scene::default() }.others_have_slots().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_refused_and_may_have_fewer_or_more_slots_takes_none_from_others_but_its_own() {
    kinds_of_other_shares_leave_slots(Calls::Refuse).await;
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_gives_up_calls_and_may_have_fewer_or_more_slots_takes_none_from_others_but_its_own() {
    kinds_of_other_shares_leave_slots(Calls::GivenUp).await;
}

/// Two jobs that use nothing come in a second, in so many seconds. None waits for more than one, but in so few.
async fn none_waits(
    store: &Store,
    done: &AtomicUsize,
    (seconds, most_slow): (usize, usize),
    mut each_second: impl AsyncFnMut(usize),
) {
    let (mut sent, mut slow_seconds) = (0, 0);
    for second in 0..seconds {
        each_second(second).await;
        enqueue_of::<Quick>(store, 2).await;
        sent += 2;
        sleep(secs(1)).await;
        slow_seconds += usize::from(sent - done.load(Relaxed) > 2);
    }
    assert!(slow_seconds <= most_slow, "some waited in {slow_seconds} of {seconds} s");
    assert!(sent - done.load(Relaxed) <= 2, "{} of {sent}", done.load(Relaxed));
}

#[tokio::test(start_paused = true)]
async fn jobs_of_hours_that_do_without_one_give_those_that_use_another_no_more_than_half_of_the_slots() {
    for calls in [Calls::Refuse, Calls::GivenUp] {
        let (store, quick, long) = (memory::store(), Arc::<AtomicUsize>::default(), Using::new(A_MINUTE));
        let (using, away) = (Using::new(A_MINUTE), Arc::new(Service::default()));
        let worker = Worker::builder(store.clone()).settings(Settings { concurrency: 8, ..settings() });
        let worker = worker.dependency("one", away.clone()).dependency("other", Arc::new(Service::default()));
        let worker = worker.job(Quick(Arc::clone(&quick)));
        let worker = worker.job(Long(long.clone())).depends::<Long>(Depends::uses(["one"]));
        let worker = worker.job(Other(using.clone())).depends::<Other>(Depends::uses(["other"]));
        let _worker = start_built(worker);
        away.set_away(true);
        long.set(Calls::Fail);
        using.set(calls);
        sleep(secs(20)).await;
        enqueue_of::<Long>(&store, 8).await;
        within(secs(60), "half of the slots are taken", async || long.running.load(Relaxed) == 4).await;
        enqueue_of::<Other>(&store, 200).await;
        // The first ones that use the other take what is free: nothing is known of it yet.
        sleep(secs(120)).await;
        none_waits(&store, &quick, (1_200, 5), async |_| {}).await;
        assert!(using.done.load(Relaxed) > 10, "one more is tried each minute");
    }
}

#[tokio::test(start_paused = true)]
async fn services_that_come_and_go_by_turns_leave_half_of_the_slots_to_others() {
    for slots in [2, 8] {
        let (store, quick) = (memory::store(), Arc::<AtomicUsize>::default());
        let [one, other] = [(); 2].map(|()| Using::new((20, 30)));
        let service = || Arc::new(Service::default());
        let worker = Worker::builder(store.clone()).settings(Settings { concurrency: slots, ..settings() });
        let worker = worker.dependency("one", service()).dependency("other", service());
        let worker = worker.job(Quick(Arc::clone(&quick)));
        let worker = worker.job(One(one.clone())).depends::<One>(Depends::uses(["one"]));
        let worker = worker.job(Other(other.clone())).depends::<Other>(Depends::uses(["other"]));
        let _worker = start_built(worker);
        let (mut one_sent, mut other_sent) = (0, 0);
        let mut feed = async |second: usize| {
            let calls = [Calls::Refuse, Calls::Serve];
            one.set(calls[second / 2 % 2]);
            other.set(calls[(second / 2 + 1) % 2]);
            // Some wait always.
            if one_sent < one.done.load(Relaxed) + 40 {
                one_sent += 40;
                enqueue_of::<One>(&store, 40).await;
            }
            if other_sent < other.done.load(Relaxed) + 40 {
                other_sent += 40;
                enqueue_of::<Other>(&store, 40).await;
            }
        };
        for second in 0..90 {
            feed(second).await;
            sleep(secs(1)).await;
        }
        // Now and then both serve all the calls of ten seconds, and the next time is a first one.
        none_waits(&store, &quick, (600, 60), feed).await;
    }
}

/// A worker of eight slots whose jobs use one service.
fn worker_of_one(store: &Store, using: &Arc<Using>) -> WorkerBuilder {
    let worker = Worker::builder(store.clone()).settings(Settings { concurrency: 8, ..settings() });
    let worker = worker.dependency("one", Arc::new(Service::default()));
    worker.job(One(Arc::clone(using))).depends::<One>(Depends::uses(["one"]))
}

#[tokio::test(start_paused = true)]
async fn while_jobs_that_do_without_hold_their_slots_for_long_the_report_and_the_metrics_say_so() {
    let (store, using) = (memory::store(), Using::new((20, 30)));
    let worker = start_built(worker_of_one(&store, &using));
    let shown = async || {
        let reports = store.roster.reports(secs(60)).await.unwrap();
        reports.first().and_then(|report| report.dependencies.first().cloned())
    };
    let is_in = |state, is| has_state(&worker.monitor, "one", state, is);
    within(secs(30), "it is shown", async || shown().await.is_some()).await;
    sleep(secs(10)).await;
    let before = shown().await.unwrap();
    assert_eq!((before.shown().0, before.limited_since_unix_ms), ("closed", None));
    using.set(Calls::Refuse);
    enqueue_of::<One>(&store, 40).await;
    within(secs(30), "it is limited", async || shown().await.unwrap().limited_since_unix_ms.is_some()).await;
    let first = shown().await.unwrap();
    let (state, since) = first.shown();
    assert!(state == "limited" && since >= before.since_unix_ms + 2_000, "{first:?}");
    assert!(is_in("limited", 1) && is_in("closed", 0), "{}", worker.monitor.telemetry().encode());
    sleep(secs(10)).await;
    // A freeze of the machine.
    advance(secs(10)).await;
    sleep(secs(10)).await;
    assert_eq!(shown().await.unwrap(), first, "it is told once");
    using.set(Calls::Serve);
    within(secs(600), "it serves", async || shown().await.unwrap().shown().0 == "closed").await;
    within(secs(5), "the metrics agree", async || is_in("closed", 1) && is_in("limited", 0)).await;
}

#[tokio::test(start_paused = true)]
async fn a_freeze_of_the_machine_limits_no_job() {
    let (store, using) = (memory::store(), Using::new((1, 1)));
    let worker = start_built(worker_of_one(&store, &using));
    using.set(Calls::Refuse);
    enqueue_of::<One>(&store, 800).await;
    for freeze in [0, 2, 4, 15] {
        advance(secs(freeze)).await;
        let begun = using.begun.load(Relaxed);
        for second in 0..20 {
            sleep(secs(1)).await;
            let is_limited = has_state(&worker.monitor, "one", "limited", 1);
            assert!(!is_limited, "{second} s after a freeze of {freeze} s");
        }
        assert!(using.begun.load(Relaxed) >= begun + 100, "all slots are used");
    }
}

#[tokio::test(start_paused = true)]
async fn calls_that_are_dropped_with_their_jobs_take_no_slots_from_the_next_ones() {
    let (store, using) = (memory::store(), Using::new(A_MINUTE));
    let _worker = start_built(worker_of_one(&store, &using));
    using.set(Calls::HangOn);
    let jobs = vec![NewJob::of::<One>(&()).unwrap(); 8];
    let jobs = Producer::new(store.clone()).enqueue(jobs).await.unwrap();
    within(secs(10), "all have begun", async || using.running.load(Relaxed) == 8).await;
    sleep(secs(10)).await;
    for job in &jobs {
        let _cancelled = cancel(&store, job).await;
    }
    emptied(&store, secs(60)).await;
    using.set(Calls::Slow);
    let began = Instant::now();
    enqueue_of::<One>(&store, 24).await;
    within(secs(60), "all are done", async || using.done.load(Relaxed) == 24).await;
    assert!(began.elapsed() < secs(18), "{:?} for three times five seconds", began.elapsed());
}

/// Makes one call, and works for hours then, whether or not it was answered.
struct Long(Arc<Using>);
job!(Long, "long", |me, cx| {
    me.0.running.fetch_add(1, Relaxed);
    let number = me.0.begun.fetch_add(1, Relaxed);
    let fails = *me.0.calls.lock().unwrap() == Calls::Fail;
    let call = async { if fails { Err("refused".to_owned()) } else { Ok(()) } };
    let _answer = cx.dependency("one").call(call, |_| true).await;
    sleep(secs(60 * (30 + number * 37 % 61))).await;
    me.0.running.fetch_sub(1, Relaxed);
    Ok(Step::Done(()))
});

#[tokio::test(start_paused = true)]
async fn after_an_outage_all_slots_are_used_although_jobs_that_did_without_run_on() {
    let (store, using, service) = (memory::store(), Using::new(A_MINUTE), Arc::new(Service::default()));
    let worker = Worker::builder(store.clone()).settings(Settings { concurrency: 8, ..settings() });
    let worker = worker.dependency("one", service.clone());
    let worker = worker.job(Long(using.clone())).depends::<Long>(Depends::uses(["one"]));
    let _worker = start_built(worker);
    sleep(secs(2)).await;
    using.set(Calls::Fail);
    enqueue_of::<Long>(&store, 100).await;
    sleep(secs(1)).await;
    service.set_away(true);
    sleep(secs(5)).await;
    service.set_away(false);
    using.set(Calls::Serve);
    let mut idle = Vec::new();
    for minute in 1..180 {
        sleep(secs(60)).await;
        if using.running.load(Relaxed) < 8 {
            idle.push(minute);
        }
    }
    // From the end of the first job to that of the second: all others do without.
    assert!(idle.iter().all(|minute| (30..=33).contains(minute)), "{idle:?}");
}

/// Calls when its work of 30 s is done.
struct Last(Arc<Using>);
job!(Last, "last", |me, cx| {
    me.0.running.fetch_add(1, Relaxed);
    sleep(secs(30)).await;
    let _answer = cx.dependency("one").call(async { Ok::<_, String>(()) }, |_| true).await;
    me.0.running.fetch_sub(1, Relaxed);
    Ok(Step::Done(()))
});

#[tokio::test(start_paused = true)]
async fn after_an_outage_jobs_that_call_at_their_end_have_all_slots_within_minutes() {
    let (store, long, last) = (memory::store(), Using::new(A_MINUTE), Using::new(A_MINUTE));
    let service = Arc::new(Service::default());
    let worker = Worker::builder(store.clone()).settings(Settings { concurrency: 8, ..settings() });
    let worker = worker.dependency("one", service.clone());
    let worker = worker.job(Long(long.clone())).depends::<Long>(Depends::uses(["one"]));
    let worker = worker.job(Last(last.clone())).depends::<Last>(Depends::uses(["one"]));
    let _worker = start_built(worker);
    sleep(secs(2)).await;
    long.set(Calls::Fail);
    enqueue_of::<Long>(&store, 2).await;
    sleep(secs(1)).await;
    service.set_away(true);
    sleep(secs(5)).await;
    service.set_away(false);
    enqueue_of::<Last>(&store, 400).await;
    sleep(secs(8 * 60)).await;
    assert_eq!(long.running.load(Relaxed), 2, "those that did without run on");
    for minute in 0..10 {
        assert_eq!(last.running.load(Relaxed), 6, "minute {minute}");
        sleep(secs(61)).await;
    }
}
