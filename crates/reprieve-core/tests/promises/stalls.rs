//! Jobs that stand still are shown, and stopped where their kind says after how long; those that only take long are
//! neither.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use reprieve_core::ledger::Ledger;
use reprieve_core::memory::{self, Fault, Faults, Op};
use reprieve_core::ports::{InFlight, Store};
use reprieve_core::telemetry::{ByKind, ByLayer};
use reprieve_core::worker::{Depends, Limits, Worker};
use reprieve_core::{BlobName, ErrorKind, Job, JobContext, JobError, Step};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, advance, sleep};

use crate::service::Service;
use crate::support::{
    Running, emptied, leased, poisoned, record, secs, send_args, settings, start_built, start_job, within,
};

/// A job whose steps take these times, in seconds. With `reports_s`, it reports progress that often meanwhile: of so many
/// `parts` of a step.
#[derive(Debug, Serialize, Deserialize)]
struct Steps {
    takes_s: Vec<u64>,
    reports_s: Option<u64>,
    parts: Option<u64>,
}

struct Timed;

#[async_trait]
impl Job for Timed {
    const KIND: &'static str = "timed";
    type Args = Steps;
    type Checkpoint = usize;
    type Output = ();

    fn begin(&self, _: &Steps) -> usize {
        0
    }

    async fn step(&self, cx: &JobContext, steps: &Steps, at: usize) -> Result<Step<usize, ()>, JobError> {
        let Some(takes) = steps.takes_s.get(at).copied().map(secs) else { return Ok(Step::Done(())) };
        let (ends, every) = (Instant::now() + takes, steps.reports_s.map_or(takes, secs));
        while Instant::now() < ends {
            sleep(every.min(ends - Instant::now())).await;
            let (done, parts) =
                ((Instant::now() + takes - ends).as_secs(), steps.parts.unwrap_or(takes.as_secs()));
            cx.progress(done * parts / takes.as_secs(), parts);
        }
        Ok(Step::Continue(at + 1))
    }
}

async fn timed(takes_s: &[u64], reports_s: Option<u64>) -> (Store, Running) {
    let store = memory::store();
    let worker = start_job(&store, Timed);
    send_args::<Timed>(&store, &Steps { takes_s: takes_s.to_vec(), reports_s, parts: None }).await;
    (store, worker)
}

async fn shown(store: &Store) -> InFlight {
    store.roster.reports(secs(60)).await.unwrap().remove(0).in_flight.remove(0)
}

fn stalled(worker: &Running) -> i64 {
    worker.monitor.telemetry().stalled_jobs.get_or_create(&ByKind { kind: "timed".to_owned() }).get()
}

/// Sleeps until this time after the beginning, and returns whether the job is shown as stalled.
async fn is_stalled_after(time: Duration, began: Instant, store: &Store, worker: &Running) -> bool {
    tokio::time::sleep_until(began + time).await;
    let is_shown = shown(store).await.stalled_since_unix_ms.is_some();
    assert_eq!(stalled(worker), i64::from(is_shown));
    is_shown
}

#[tokio::test(start_paused = true)]
async fn a_job_that_stands_still_is_shown_after_five_minutes_until_it_moves() {
    let (store, worker) = timed(&[2, 2, 2, 900, 60], None).await;
    let began = Instant::now();
    for (after, is_stalled) in [(290, false), (330, true), (890, true), (940, false)] {
        assert_eq!(is_stalled_after(secs(after), began, &store, &worker).await, is_stalled, "{after} s");
    }
}

#[tokio::test(start_paused = true)]
async fn ten_times_the_longest_time_between_two_moves_is_usual() {
    let (store, worker) = timed(&[60, 60, 560, 60, 6_000], None).await;
    let began = Instant::now();
    for (after, is_stalled) in [(660, false), (720, false), (6_200, false), (6_500, true)] {
        let after_s = secs(after);
        assert_eq!(is_stalled_after(after_s, began, &store, &worker).await, is_stalled, "{after} s");
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_step_that_reports_progress_or_is_the_first_of_its_kind_is_not_shown() {
    for (takes, reports_s) in [(vec![2, 2, 7_000], Some(240)), (vec![3_500], None)] {
        let (store, worker) = timed(&takes, reports_s).await;
        let began = Instant::now();
        for after in (60..3_400).step_by(60) {
            assert!(!is_stalled_after(secs(after), began, &store, &worker).await, "{after} s");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_was_frozen_shows_no_job_as_stalled() {
    let (store, worker) = timed(&[2, 2, 400], None).await;
    sleep(secs(60)).await;
    advance(secs(290)).await;
    sleep(secs(30)).await;
    assert_eq!((shown(&store).await.stalled_since_unix_ms, stalled(&worker)), (None, 0));
}

/// A job that makes these steps of two seconds, and hangs in the next one: as long as it is not asked to yield, or,
/// if it is `deaf`, for ever.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Hangs {
    after: u32,
    deaf: bool,
}

struct Hanging;

#[async_trait]
impl Job for Hanging {
    const KIND: &'static str = "hanging";
    type Args = Hangs;
    type Checkpoint = u32;
    type Output = ();

    fn begin(&self, _: &Hangs) -> u32 {
        0
    }

    async fn step(&self, cx: &JobContext, hangs: &Hangs, at: u32) -> Result<Step<u32, ()>, JobError> {
        if at < hangs.after {
            sleep(secs(2)).await;
            cx.progress(u64::from(at) + 1, 9);
            return Ok(Step::Continue(at + 1));
        }
        if hangs.deaf {
            std::future::pending::<()>().await;
        }
        cx.interrupted().await;
        Ok(Step::Continue(at))
    }
}

fn hanging(store: &Store, stall_after: Option<Duration>) -> Running {
    let limits = Limits { stall_after, attempts: 3, ..Limits::default() };
    start_built(Worker::builder(store.clone()).settings(settings()).job(Hanging).limits::<Hanging>(limits))
}

fn stopped(worker: &Running) -> u64 {
    let of_job = ByLayer { layer: "job", action: "stop_job" };
    worker.monitor.telemetry().healing_actions.get_or_create(&of_job).get()
}

#[tokio::test(start_paused = true)]
async fn a_job_that_stands_still_for_its_limit_fails_with_its_place_and_keeps_its_checkpoint() {
    for deaf in [false, true] {
        let store = memory::store();
        let worker = hanging(&store, Some(secs(60)));
        let began = Instant::now();
        let id = send_args::<Hanging>(&store, &Hangs { after: 3, deaf }).await;
        within(secs(90), "the first stop", async || stopped(&worker) == 1).await;
        // Three steps of two seconds, a minute, and a look each second.
        assert!((secs(65)..=secs(69)).contains(&began.elapsed()), "{:?}", began.elapsed());
        within(secs(6), "its release", async || leased(&store).await == 0).await;
        let noted = Ledger::new(store.records.clone()).read(0).await.unwrap().healings;
        assert_eq!(noted.len(), 1, "{noted:?}");
        assert!((60_000..=62_000).contains(&noted[0].found_after_ms.unwrap()), "{noted:?}");
        let kept = record(&store, &id).await.expect("it is saved");
        assert!(!kept.checkpoints.is_empty());
        emptied(&store, secs(600)).await;
        let reason = poisoned(&store).await.remove(0);
        let expected =
            "failed too often, at last with: stalled: a step made no save and no progress for 60 s (step 1)";
        assert!(reason.starts_with(expected), "{reason}");
        // The first attempt moved, the others did not.
        assert!((3..=4).contains(&stopped(&worker)), "{}", stopped(&worker));
        assert!(began.elapsed() < secs(5 * 75), "{:?}", began.elapsed());
    }
}

/// It is asked to yield when that goes away, and hangs in a call to it.
#[tokio::test(start_paused = true)]
async fn a_job_that_hangs_is_stopped_also_where_what_it_needs_goes_away_meanwhile() {
    for back_after in [None, Some(secs(60))] {
        let (store, cache) = (memory::store(), Arc::new(Service::default()));
        let limits = Limits { stall_after: Some(secs(60)), attempts: 3, ..Limits::default() };
        let worker = Worker::builder(store.clone()).settings(settings()).dependency("cache", cache.clone());
        let worker =
            worker.job(Hanging).limits::<Hanging>(limits).depends::<Hanging>(Depends::needs(["cache"]));
        let worker = start_built(worker);
        send_args::<Hanging>(&store, &Hangs { after: 1, deaf: true }).await;
        sleep(secs(30)).await;
        cache.set_away(true);
        sleep(back_after.unwrap_or(secs(120))).await;
        cache.set_away(back_after.is_none());
        within(secs(120), "its stop", async || stopped(&worker) == 1 && leased(&store).await == 0).await;
        worker.kill().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_stands_still_is_left_alone_without_a_limit() {
    let store = memory::store();
    let worker = hanging(&store, None);
    send_args::<Hanging>(&store, &Hangs { after: 3, deaf: false }).await;
    sleep(secs(7_200)).await;
    let shown = shown(&store).await;
    assert_eq!(shown.stalled_in.as_deref(), Some("step 4"));
    assert_eq!((shown.delivery, stopped(&worker)), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_slow_job_that_reports_progress_even_the_same_again_or_moves_between_its_steps_is_not_stopped() {
    let every_ten = |parts| (vec![7_200], Some(10), Some(parts));
    for (takes_s, reports_s, parts) in
        [(vec![3_000, 3_000], Some(50), None), (vec![55; 60], None, None), every_ten(100), every_ten(1)]
    {
        let store = memory::store();
        let limits = Limits { stall_after: Some(secs(60)), ..Limits::default() };
        let worker = start_built(
            Worker::builder(store.clone()).settings(settings()).job(Timed).limits::<Timed>(limits),
        );
        send_args::<Timed>(&store, &Steps { takes_s, reports_s, parts }).await;
        emptied(&store, secs(7_300)).await;
        assert_eq!(stopped(&worker), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_freeze_of_the_machine_stops_no_job() {
    let store = memory::store();
    let limits = Limits { stall_after: Some(secs(60)), ..Limits::default() };
    let worker =
        start_built(Worker::builder(store.clone()).settings(settings()).job(Timed).limits::<Timed>(limits));
    send_args::<Timed>(&store, &Steps { takes_s: vec![85], reports_s: None, parts: None }).await;
    sleep(secs(30)).await;
    advance(secs(40)).await;
    emptied(&store, secs(60)).await;
    assert_eq!(stopped(&worker), 0);
}

/// A job whose only step reads an input.
struct Reads;

#[async_trait]
impl Job for Reads {
    const KIND: &'static str = "reads";
    type Args = ();
    type Checkpoint = ();
    type Output = ();

    fn begin(&self, (): &()) {}

    async fn step(&self, cx: &JobContext, (): &(), (): ()) -> Result<Step<(), ()>, JobError> {
        cx.input("photos/1").await?;
        Ok(Step::Done(()))
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_the_store_that_a_step_waits_for_stops_no_job() {
    let healthy = memory::store();
    let name = BlobName::parse("photos/1").unwrap();
    healthy.blobs.put(&name, vec![1], None).await.unwrap();
    let (store, faults) = Faults::wrap(healthy.clone());
    let limits = Limits { stall_after: Some(secs(60)), ..Limits::default() };
    let worker =
        start_built(Worker::builder(store.clone()).settings(settings()).job(Reads).limits::<Reads>(limits));
    worker.started().await;
    faults.every_call(Op::Get, Fault::Fail(ErrorKind::Unavailable));
    send_args::<Reads>(&healthy, &()).await;
    sleep(secs(3_600)).await;
    assert_eq!((stopped(&worker), leased(&healthy).await), (0, 1));
    faults.clear_all();
    emptied(&healthy, secs(120)).await;
}

/// A job whose steps write an output, and which stands still in the last one if it `hangs`.
struct Writes;

#[async_trait]
impl Job for Writes {
    const KIND: &'static str = "writes";
    type Args = bool;
    type Checkpoint = u32;
    type Output = ();

    fn begin(&self, _: &bool) -> u32 {
        0
    }

    async fn step(&self, cx: &JobContext, hangs: &bool, at: u32) -> Result<Step<u32, ()>, JobError> {
        cx.put_output(&at.to_string(), vec![1]).await?;
        if at < 3 {
            return Ok(Step::Continue(at + 1));
        }
        if *hangs {
            std::future::pending::<()>().await;
        }
        Ok(Step::Done(()))
    }
}

/// A worker whose store takes 50 s for each output, with a job of [`Writes`].
async fn slow_writes(hangs: bool) -> (Store, Running) {
    let (healthy, limits) =
        (memory::store(), Limits { stall_after: Some(secs(30)), attempts: 1, ..Limits::default() });
    let (store, faults) = Faults::wrap(healthy.clone());
    faults.every_call(Op::Put, Fault::Delay(secs(50)));
    send_args::<Writes>(&healthy, &hangs).await;
    let worker =
        start_built(Worker::builder(store).settings(settings()).job(Writes).limits::<Writes>(limits));
    (healthy, worker)
}

#[tokio::test(start_paused = true)]
async fn a_call_that_the_store_takes_long_for_stops_no_job() {
    let (store, worker) = slow_writes(false).await;
    emptied(&store, secs(300)).await;
    assert_eq!((stopped(&worker), poisoned(&store).await.len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_job_that_stands_still_after_a_long_call_to_the_store_is_stopped() {
    let (store, worker) = slow_writes(true).await;
    let began = Instant::now();
    emptied(&store, secs(400)).await;
    assert_eq!((stopped(&worker), poisoned(&store).await.len()), (1, 1));
    // Four calls, its limit, the looks and its stop.
    assert!((secs(229)..secs(245)).contains(&began.elapsed()), "{:?}", began.elapsed());
}
