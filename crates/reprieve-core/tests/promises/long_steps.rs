//! A step that takes longer than the checkpoint interval saves for itself, and loses an interval when
//! its worker dies, not the step.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use reprieve_core::checkpoint::CheckpointEvery;
use reprieve_core::memory::{self, Fault, Faults, Op};
use reprieve_core::ports::Ending;
use reprieve_core::worker::Settings;
use reprieve_core::{ErrorKind, Job, JobContext, JobError, Notice, NoticeId, NoticeKind, Phase, Step};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::support::*;

/// A job with a single step of 100 seconds.
#[derive(Debug, Clone, Default)]
struct Long {
    /// The seconds at which a step began, and what each save returned.
    began: Arc<Mutex<Vec<u32>>>,
    saved: Arc<Mutex<Vec<(u32, bool)>>>,
    /// Saves this instead, which does not come back from its encoding.
    forgetful: bool,
}

/// `Some` of it comes back as `None`.
type Unit = ();

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct At {
    second: u32,
    label: Option<Unit>,
}

#[async_trait]
impl Job for Long {
    const KIND: &'static str = "long";
    type Args = ();
    type Checkpoint = At;
    type Output = ();

    fn begin(&self, (): &()) -> At {
        At { second: 0, label: None }
    }

    async fn step(&self, cx: &JobContext, (): &(), mut at: At) -> Result<Step<At, ()>, JobError> {
        self.began.lock().unwrap().push(at.second);
        let mut seconds = tokio::time::interval_at(Instant::now() + secs(1), secs(1));
        while at.second < 100 {
            tokio::select! {
                _ = seconds.tick() => at.second += 1,
                () = cx.interrupted() => return Ok(Step::Continue(at)),
                () = cx.checkpoint_due() => {
                    at.label = self.forgetful.then_some(());
                    let saved = cx.save::<Self>(&at).await?;
                    self.saved.lock().unwrap().push((at.second, saved));
                }
            }
        }
        Ok(Step::Done(()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_kill_in_the_middle_of_a_long_step_costs_an_interval() {
    let (store, job) = (memory::store(), Long::default());
    enqueue_j(&store, Long::KIND).await;
    let first = start_job(&store, job.clone());
    tokio::time::sleep(secs(48)).await;
    first.kill().await;
    let _second = start_job(&store, job.clone());
    emptied(&store, secs(300)).await;
    let began = job.began.lock().unwrap().clone();
    assert!(matches!(began[..], [0, 43..=48]), "{began:?}");
    assert_eq!(poisoned(&store).await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn saves_within_a_step_keep_the_interval() {
    let (store, job) = (memory::store(), Long::default());
    enqueue_j(&store, Long::KIND).await;
    let _worker = start_job(&store, job.clone());
    emptied(&store, secs(200)).await;
    let saved = job.saved.lock().unwrap().clone();
    assert!((18..=20).contains(&saved.len()), "every five seconds: {saved:?}");
    assert!(saved.iter().all(|(_, saved)| *saved), "{saved:?}");
}

#[tokio::test(start_paused = true)]
async fn a_job_that_died_saves_within_its_step_every_five_seconds_and_no_more_often() {
    let (store, job) = (memory::store(), Long::default());
    enqueue_j(&store, Long::KIND).await;
    start_job(&store, job.clone()).kill().await;
    let first = start_job(&store, job.clone());
    tokio::time::sleep(secs(30)).await;
    first.kill().await;
    job.saved.lock().unwrap().clear();
    let _second = start_job(&store, job.clone());
    emptied(&store, secs(300)).await;
    let saved = job.saved.lock().unwrap().len();
    assert!((10..=22).contains(&saved), "{saved} saves");
}

#[tokio::test(start_paused = true)]
async fn an_eviction_after_a_save_within_a_step_loses_nothing() {
    let (store, job) = (memory::store(), Long::default());
    enqueue_j(&store, Long::KIND).await;
    let first = start_job(&store, job.clone());
    tokio::time::sleep(secs(48)).await;
    let report = first.evict(secs(30)).await;
    assert_eq!(report.released_saved, 1, "{report:?}");
    first.kill().await;
    let _second = start_job(&store, job.clone());
    emptied(&store, secs(300)).await;
    let began = job.began.lock().unwrap().clone();
    assert!(matches!(began[..], [0, 47..=48]), "{began:?}");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_does_not_answer_fails_no_step() {
    let (store, faults) = Faults::wrap(memory::store());
    let job = Long::default();
    enqueue_j(&store, Long::KIND).await;
    faults.every_call(Op::Save, Fault::Fail(ErrorKind::Unavailable));
    let _worker = start_job(&store, job.clone());
    tokio::time::sleep(secs(30)).await;
    let saved = job.saved.lock().unwrap().clone();
    assert!(!saved.is_empty() && saved.iter().all(|(_, saved)| !saved), "{saved:?}");
    faults.clear(Op::Save);
    emptied(&store, secs(300)).await;
    assert_eq!(*job.began.lock().unwrap(), [0], "the step was not disturbed");
    assert_eq!(poisoned(&store).await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_state_that_cannot_be_saved_fails_the_job_at_its_first_save() {
    let (store, job) = (memory::store(), Long { forgetful: true, ..Long::default() });
    enqueue_j(&store, Long::KIND).await;
    let _worker = start_job(&store, job.clone());
    emptied(&store, secs(10)).await;
    let reasons = poisoned(&store).await;
    assert!(reasons[0].contains("label: `Some` of `None`"), "{reasons:?}");
}

#[tokio::test(start_paused = true)]
async fn a_step_that_saves_rests_when_jobs_are_to_rest() {
    let (store, job) = (memory::store(), Long::default());
    enqueue_j(&store, Long::KIND).await;
    let worker = start_pausing(&store, job.clone());
    tokio::time::sleep(secs(12)).await;
    let freeze = Notice::now("freeze", NoticeKind::Freeze);
    worker.notices.notice(Notice { phase: Phase::Started, ..freeze });
    tokio::time::sleep(secs(30)).await;
    let (second, saved) = *job.saved.lock().unwrap().last().unwrap();
    assert!(second <= 13 && saved, "the job rests in its save since second {second}");
    worker.notices.over(&NoticeId::new("freeze"), Ending::Completed);
    emptied(&store, secs(300)).await;
    assert_eq!(*job.began.lock().unwrap(), [0], "the step goes on");
}

/// A job that asks for a save in its step and stops waiting for it.
#[derive(Debug, Clone, Default)]
struct Hasty {
    /// The states at the beginning of each step, with the delivery.
    began: Arc<Mutex<Vec<(u32, u32)>>>,
}

#[async_trait]
impl Job for Hasty {
    const KIND: &'static str = "hasty";
    type Args = ();
    type Checkpoint = u32;
    type Output = ();

    fn begin(&self, (): &()) -> u32 {
        0
    }

    async fn step(&self, cx: &JobContext, (): &(), at: u32) -> Result<Step<u32, ()>, JobError> {
        self.began.lock().unwrap().push((cx.delivery(), at));
        let work = tokio::time::sleep(secs(1));
        tokio::pin!(work);
        tokio::select! {
            biased;
            saved = async { tokio::time::sleep(secs(1)).await; cx.save::<Self>(&at).await } => { saved?; }
            () = &mut work => {}
        }
        Ok(if at == 20 { Step::Done(()) } else { Step::Continue(at + 1) })
    }
}

#[tokio::test(start_paused = true)]
async fn a_save_that_its_step_did_not_wait_for_never_replaces_a_later_state() {
    let (store, job) = (memory::store(), Hasty::default());
    enqueue_j(&store, Hasty::KIND).await;
    let first = start_saving(&store, job.clone());
    tokio::time::sleep(ms(9_500)).await;
    first.kill().await;
    let _second = start_saving(&store, job.clone());
    emptied(&store, secs(300)).await;
    let began = job.began.lock().unwrap().clone();
    let last = began.iter().rfind(|(delivery, _)| *delivery == 1).unwrap().1;
    let resumed = began.iter().find(|(delivery, _)| *delivery > 1).unwrap().1;
    assert_eq!(resumed, last, "the state before the step that was killed was saved: {began:?}");
}

/// A job that saves the state of another kind of job.
#[derive(Debug, Clone)]
struct Mistaken;

#[async_trait]
impl Job for Mistaken {
    const KIND: &'static str = "mistaken";
    type Args = ();
    type Checkpoint = u32;
    type Output = ();

    fn begin(&self, (): &()) -> u32 {
        0
    }

    async fn step(&self, cx: &JobContext, (): &(), at: u32) -> Result<Step<u32, ()>, JobError> {
        if cx.steps() > 0 {
            cx.save::<Long>(&At { second: at, label: None }).await?;
        }
        Ok(Step::Continue(at + 1))
    }
}

#[tokio::test(start_paused = true)]
async fn the_state_of_another_kind_is_refused() {
    let store = memory::store();
    enqueue_j(&store, Mistaken::KIND).await;
    let _worker = start_job(&store, Mistaken);
    emptied(&store, secs(100)).await;
    let reasons = poisoned(&store).await;
    assert!(reasons.len() == 1 && reasons[0].contains("call `cx.save::<Self>`"), "{reasons:?}");
}

/// A job of 100 seconds whose step returns when a save is due, so that the worker saves.
#[derive(Debug, Clone, Default)]
struct Returning {
    steps: Arc<Mutex<u32>>,
}

#[async_trait]
impl Job for Returning {
    const KIND: &'static str = "returning";
    type Args = ();
    type Checkpoint = u32;
    type Output = ();

    fn begin(&self, (): &()) -> u32 {
        0
    }

    async fn step(&self, cx: &JobContext, (): &(), mut second: u32) -> Result<Step<u32, ()>, JobError> {
        let count = {
            let mut steps = self.steps.lock().unwrap();
            *steps += 1;
            *steps
        };
        if count > 1_000 {
            return Err(JobError::fatal("its steps take no time"));
        }
        let mut seconds = tokio::time::interval_at(Instant::now() + secs(1), secs(1));
        while second < 100 {
            tokio::select! {
                biased;
                () = cx.checkpoint_due() => return Ok(Step::Continue(second)),
                _ = seconds.tick() => second += 1,
            }
        }
        Ok(Step::Done(()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_step_that_returns_because_a_save_is_due_is_saved_also_when_the_careful_time_has_ended() {
    let (store, job) = (memory::store(), Returning::default());
    enqueue_j(&store, Returning::KIND).await;
    let every_18_s = Settings { checkpoint_every: CheckpointEvery::Every(secs(18)), ..settings() };
    let first = start_any(&store, job.clone(), every_18_s.clone());
    tokio::time::sleep(secs(2)).await;
    first.kill().await;
    let _second = start_any(&store, job.clone(), every_18_s);
    emptied(&store, secs(300)).await;
    assert_eq!(poisoned(&store).await, Vec::<String>::new());
    let steps = *job.steps.lock().unwrap();
    assert!(steps < 20, "{steps} steps");
}
