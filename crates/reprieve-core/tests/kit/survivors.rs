//! Jobs that survive.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::mem;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use reprieve_core::testing::Harness;
use reprieve_core::{Job, JobContext, JobEnd, JobError, JobId, NewJob, Step};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::support::Steps;

/// Adds up, writes an output in every step, and sets a row of a table outside.
fn good(rows: Arc<Mutex<BTreeMap<u64, u64>>>) -> Steps<u64, HashMap<String, u64>, HashMap<String, u64>> {
    Steps::new(HashMap::new, move |cx, to, mut at| {
        let rows = Arc::clone(&rows);
        Box::pin(async move {
            let next = at.get("next").copied().unwrap_or_default();
            if next == *to {
                return Ok(Step::Done(at));
            }
            sleep(Duration::from_millis(300)).await;
            let input = cx.input("numbers").await?;
            rows.lock().unwrap().insert(next, u64::from(input[0]) * next);
            cx.put_output(&format!("out/{next}"), vec![0, 255, input[0]]).await?;
            at.insert("next".to_owned(), next + 1);
            *at.entry("sum".to_owned()).or_default() += next;
            Ok(Step::Continue(at))
        })
    })
}

#[test]
fn a_good_job_passes_and_the_report_says_what_was_done() {
    let rows = Arc::default();
    let report = Harness::new(good(Arc::clone(&rows)))
        .args(&5)
        .input("numbers", [7])
        .observe(|_| mem::take(&mut *rows.lock().unwrap()))
        .check();
    assert_eq!((report.steps(), report.is_limited()), (6, false));
    // Each of five steps sleeps and calls the store twice, which is two awaits; before, in and after a
    // step; two kinds of kills and freezes.
    let points = (1 + 5 * 5 + 6) + 2 * (5 * 5 + 6) + 2 * (5 * 5 + 6) + 10;
    assert_eq!(report.runs(), 2 + points, "{report}");
    assert!(report.to_string().ends_with("frozen: 62 points; failing store: 10 points"), "{report}");
}

#[tokio::test]
async fn a_check_also_works_in_an_async_test() {
    let report =
        Harness::new(good(Arc::default())).args(&2).input("numbers", [7]).evicted_at_every_step().check();
    assert_eq!(report.runs(), 2 + 1 + 2 * 5 + 3);
}

#[test]
fn a_step_that_saves_itself_passes_on_a_failing_store() {
    let job = || -> Steps<(), u32, u32> {
        Steps::new(
            || 0,
            |cx, (), mut at| {
                Box::pin(async move {
                    while at < 3 {
                        at += 1;
                        cx.save::<Steps<(), u32, u32>>(&at).await?;
                        sleep(Duration::from_millis(5)).await;
                    }
                    Ok(Step::Done(at))
                })
            },
        )
    };
    for seed in 1..=3 {
        Harness::new(job()).failing_store(seed).check();
    }
}

#[test]
fn many_steps_are_disturbed_at_some_points() {
    let job: Steps<(), u32, u32> = Steps::new(
        || 0,
        |_, (), at| {
            Box::pin(async move { Ok(if at < 199 { Step::Continue(at + 1) } else { Step::Done(at) }) })
        },
    );
    let report = Harness::new(job).evicted_at_every_step().killed_at_every_step().points(10).seed(3).check();
    assert!(report.is_limited());
    assert_eq!(
        report.to_string(),
        "the job \"steps\" survives: 200 steps, 22 runs; evicted: 10 points of 201, chosen by seed 3; \
         killed: 10 points of 400, chosen by seed 3"
    );
}

#[test]
fn a_step_that_sleeps_for_an_hour_is_quick() {
    #[expect(clippy::disallowed_methods, reason = "real time is measured")]
    let now = std::time::Instant::now;
    let began = now();
    let job: Steps<(), (), ()> = Steps::new(
        || (),
        |_, (), ()| {
            Box::pin(async move {
                let began = Instant::now();
                sleep(Duration::from_hours(1)).await;
                assert!(began.elapsed() < Duration::from_secs(3_601), "{:?}", began.elapsed());
                Ok(Step::Done(()))
            })
        },
    );
    let report = Harness::new(job).evicted_at_every_step().check();
    let took = began.elapsed();
    println!("{} runs of an hour or more in {took:?}", report.runs());
    assert!(took < Duration::from_secs(60), "{took:?}");
}

#[test]
fn a_job_that_waits_at_its_own_request_survives() {
    let job: Steps<(), u32, serde_json::Value> = Steps::new(
        || 0,
        |_, (), at| {
            Box::pin(async move {
                let week = Duration::from_hours(24 * 7);
                Ok(if at < 2 { Step::Wait(at + 1, week) } else { Step::Done(json!({"at": at})) })
            })
        },
    );
    assert_eq!(Harness::new(job).check().steps(), 3);
}

/// Enqueues two jobs, looks every five seconds whether they are done, and then does so with two more.
#[test]
fn a_job_of_two_stages_whose_children_take_longer_where_they_are_disturbed_survives() {
    type At = (u32, Vec<JobId>);
    let job: Steps<(), At, Vec<JobId>> = Steps::new(Default::default, |cx, (), (stage, mut ids): At| {
        Box::pin(async move {
            if cx.results::<u32>(&ids).await?.iter().any(Option::is_none) {
                return Ok(Step::Wait((stage, ids), Duration::from_secs(5)));
            }
            if stage == 2 {
                return Ok(Step::Done(ids));
            }
            let items = [10, 11].map(|item| NewJob::of::<Slow>(&(item + stage)).unwrap());
            ids = cx.enqueue(items.into()).await?;
            Ok(Step::Wait((stage + 1, ids), Duration::from_secs(5)))
        })
    });
    Harness::new(job).also(Slow).killed_at_every_step().evicted_at_every_step().check();
}

/// Enqueues two jobs, saves them within the step, and waits; then does so with two equal ones.
#[test]
fn a_job_of_two_equal_stages_that_saves_its_children_within_a_step_survives() {
    type At = (usize, bool, Vec<JobId>);
    type Twice = Steps<(), At, usize>;
    let job: Twice = Steps::new(Default::default, |cx, (), (stage, has_waited, mut ids): At| {
        Box::pin(async move {
            if ids.len() == 2 * stage + 2 {
                if !has_waited {
                    return Ok(Step::Wait((stage, true, ids), Duration::from_secs(5)));
                }
                if cx.results::<u32>(&ids).await?.iter().any(Option::is_none) {
                    return Ok(Step::Wait((stage, true, ids), Duration::from_secs(5)));
                }
                return Ok(Step::Continue((stage + 1, false, ids)));
            }
            if stage == 2 {
                return Ok(Step::Done(ids.iter().collect::<BTreeSet<_>>().len()));
            }
            let items = [10, 11].map(|item| NewJob::of::<Slow>(&item).unwrap());
            ids.extend(cx.enqueue(items.into()).await?);
            cx.save::<Twice>(&(stage, false, ids.clone())).await?;
            sleep(Duration::from_secs(3)).await;
            Ok(Step::Wait((stage, true, ids), Duration::from_secs(5)))
        })
    });
    Harness::new(job).also(Slow).killed_at_every_step().evicted_at_every_step().check();
}

/// Takes twelve seconds.
#[derive(Debug)]
struct Slow;

#[async_trait]
impl Job for Slow {
    const KIND: &'static str = "slow";
    type Args = u32;
    type Checkpoint = ();
    type Output = u32;

    fn begin(&self, _: &u32) {}

    async fn step(&self, cx: &JobContext, args: &u32, (): ()) -> Result<Step<(), u32>, JobError> {
        sleep(Duration::from_secs(12)).await;
        cx.put_output("out", vec![1]).await?;
        Ok(Step::Done(*args))
    }
}

/// Fails for the argument 1.
#[derive(Debug)]
struct Item;

#[async_trait]
impl Job for Item {
    const KIND: &'static str = "item";
    type Args = u32;
    type Checkpoint = ();
    type Output = u32;

    fn begin(&self, _: &u32) {}

    async fn step(&self, _: &JobContext, args: &u32, (): ()) -> Result<Step<(), u32>, JobError> {
        if *args == 1 { Err(JobError::fatal("this item is bad")) } else { Ok(Step::Done(*args)) }
    }
}

#[test]
fn a_job_that_bears_the_failures_of_its_children_survives() {
    let job: Steps<(), Vec<JobId>, usize> = Steps::new(Vec::new, |cx, (), mut ids| {
        Box::pin(async move {
            if ids.is_empty() {
                let items = (0..3).map(|item| NewJob::of::<Item>(&item).unwrap());
                ids = cx.enqueue(items.collect()).await?;
            }
            let ends = cx.results::<u32>(&ids).await?;
            if ends.iter().any(Option::is_none) {
                return Ok(Step::Wait(ids, Duration::from_secs(5)));
            }
            let failed = ends.iter().filter(|end| matches!(end, Some(JobEnd::Failed(_))));
            Ok(Step::Done(failed.count()))
        })
    });
    Harness::new(job).also(Item).evicted_at_every_step().killed_at_every_step().check();
}

/// Enqueues the next one below itself, and returns its id; the one at 0 writes an output.
#[derive(Debug)]
struct Level;

#[async_trait]
impl Job for Level {
    const KIND: &'static str = "level";
    type Args = u32;
    type Checkpoint = ();
    type Output = Vec<JobId>;

    fn begin(&self, _: &u32) {}

    async fn step(&self, cx: &JobContext, level: &u32, (): ()) -> Result<Step<(), Vec<JobId>>, JobError> {
        if *level == 0 {
            cx.put_output("leaf", vec![1]).await?;
            return Ok(Step::Done(Vec::new()));
        }
        Ok(Step::Done(cx.enqueue(vec![NewJob::of::<Self>(&(level - 1))?]).await?))
    }
}

/// Where its parent was disturbed, a child is enqueued later, and its own children are the same all the same.
#[test]
fn a_job_with_grandchildren_survives() {
    let top: Steps<(), (), Vec<JobId>> = Steps::new(
        || (),
        |cx, (), ()| Box::pin(async { Ok(Step::Done(cx.enqueue(vec![NewJob::of::<Level>(&2)?]).await?)) }),
    );
    Harness::new(top).also(Level).evicted_at_every_step().killed_at_every_step().points(10).check();
    Harness::new(Level).args(&2).evicted_at_every_step().killed_at_every_step().points(10).check();
}
