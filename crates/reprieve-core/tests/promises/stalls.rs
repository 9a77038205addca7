//! Jobs that stand still are shown, and those that only take long are not.

use std::time::Duration;

use async_trait::async_trait;
use reprieve_core::memory;
use reprieve_core::ports::{InFlight, Store};
use reprieve_core::telemetry::ByKind;
use reprieve_core::{Job, JobContext, JobError, Step};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, advance, sleep};

use crate::support::{Running, secs, send_args, start_job};

/// A job whose steps take these times, in seconds. With `reports_s`, it reports progress that often meanwhile.
#[derive(Debug, Serialize, Deserialize)]
struct Steps {
    takes_s: Vec<u64>,
    reports_s: Option<u64>,
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
            cx.progress((Instant::now() + takes - ends).as_secs(), takes.as_secs());
        }
        Ok(Step::Continue(at + 1))
    }
}

async fn timed(takes_s: &[u64], reports_s: Option<u64>) -> (Store, Running) {
    let store = memory::store();
    let worker = start_job(&store, Timed);
    send_args::<Timed>(&store, &Steps { takes_s: takes_s.to_vec(), reports_s }).await;
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
