//! A job that waits at its own request holds nothing, costs nothing, and continues when its time has
//! come.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use reprieve_core::memory::{self, Fault, Faults, Op};
use reprieve_core::ports::{NewMessage, Store};
use reprieve_core::record::Status;
use reprieve_core::worker::Settings;
use reprieve_core::{BlobName, ErrorKind, Job, JobContext, JobError, JobId, NewJob, Producer, Step};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::Instant;

use crate::support::*;

/// One step of a [`Script`] job.
#[derive(Debug, Clone, Serialize, Deserialize)]
enum Act {
    /// Works for this number of seconds.
    Work(u64),
    /// Waits for this number of seconds.
    Wait(u64),
    /// Fails this often, then goes on.
    Fail(u32),
    /// Waits for five seconds as long as this job has no result.
    WaitFor(JobId),
    /// Looks for 50 ms and waits for no time at all, for ever.
    Poll,
}

/// The steps that a job began, each with its time.
type Began = Vec<(u32, Instant)>;

/// A job that does one act after another.
#[derive(Debug, Clone, Default)]
struct Script {
    began: Arc<Mutex<BTreeMap<JobId, Began>>>,
}

#[async_trait]
impl Job for Script {
    const KIND: &'static str = "script";
    type Args = Vec<Act>;
    type Checkpoint = u32;
    type Output = u32;

    fn begin(&self, _: &Vec<Act>) -> u32 {
        0
    }

    async fn step(&self, cx: &JobContext, acts: &Vec<Act>, at: u32) -> Result<Step<u32, u32>, JobError> {
        let Some(act) = acts.get(at as usize) else { return Ok(Step::Done(at)) };
        let times = {
            let mut began = self.began.lock().unwrap();
            let steps = began.entry(cx.job().clone()).or_default();
            steps.push((at, Instant::now()));
            steps.iter().filter(|(step, _)| *step == at).count()
        };
        Ok(match act {
            Act::Work(time) => {
                tokio::time::sleep(secs(*time)).await;
                Step::Continue(at + 1)
            }
            Act::Wait(time) => Step::Wait(at + 1, secs(*time)),
            Act::Fail(often) if times <= *often as usize => return Err(JobError::retry("not yet")),
            Act::Fail(_) => Step::Continue(at + 1),
            Act::WaitFor(child) => match cx.input(&format!("results/{child}.json")).await {
                Ok(_) => Step::Continue(at + 1),
                Err(_) => Step::Wait(at, secs(5)),
            },
            Act::Poll => {
                tokio::time::sleep(ms(50)).await;
                Step::Wait(at, ms(0))
            }
        })
    }
}

impl Script {
    /// The steps that the job began, in order.
    fn steps(&self, job: &JobId) -> Vec<u32> {
        self.began.lock().unwrap().get(job).into_iter().flatten().map(|(step, _)| *step).collect()
    }

    /// When the job began this step for the first time.
    fn began(&self, job: &JobId, step: u32) -> Instant {
        let began = self.began.lock().unwrap();
        began[job].iter().find(|(it, _)| *it == step).expect("the step was begun").1
    }

    fn start(&self, store: &Store) -> Running {
        start_any(store, self.clone(), Settings { concurrency: 1, ..settings() })
    }
}

async fn send(store: &Store, acts: &[Act]) -> JobId {
    on_one_clock();
    let job = NewJob::of::<Script>(&acts.to_vec()).unwrap();
    Producer::new(store.clone()).enqueue(vec![job]).await.unwrap().remove(0)
}

/// Sends a message of the job with this id.
async fn send_as(store: &Store, id: &JobId, acts: &[Act]) {
    on_one_clock();
    let event = json!({"specversion": "1.0", "id": id.as_str(), "source": "reprieve", "type": Script::KIND, "data": acts});
    let message = NewMessage { body: event.to_string().into_bytes(), delay: secs(0) };
    store.queue.send(vec![message]).await.unwrap();
}

async fn is_done(store: &Store, job: &JobId) -> bool {
    store.blobs.exists(&BlobName::parse(format!("results/{job}.json")).unwrap()).await.unwrap()
}

async fn is_waiting(store: &Store, job: &JobId) -> bool {
    record(store, job).await.is_some_and(|record| matches!(record.status, Status::Waiting { .. }))
}

#[tokio::test(start_paused = true)]
async fn a_waiting_job_leaves_its_slot_and_continues_when_its_time_has_come() {
    let (store, jobs) = (memory::store(), Script::default());
    let first = send(&store, &[Act::Work(1), Act::Wait(600), Act::Work(1)]).await;
    let second = send(&store, &[Act::Work(100)]).await;
    let worker = jobs.start(&store);
    within(secs(10), "the second's begin", async || jobs.steps(&second) == [0]).await;
    assert!(is_waiting(&store, &first).await);
    assert_eq!((leased(&store).await, total(&store).await), (1, 2), "only the second is held");
    emptied(&store, secs(700)).await;
    let waited = jobs.began(&first, 2) - jobs.began(&first, 1);
    assert!((secs(600)..secs(602)).contains(&waited), "{waited:?}");
    assert_eq!(jobs.steps(&first), [0, 1, 2]);
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_wait_costs_no_attempt_and_forgives_earlier_failures() {
    let (store, jobs) = (memory::store(), Script::default());
    let fails = [Act::Fail(4), Act::Wait(1), Act::Fail(4), Act::Wait(1), Act::Fail(4), Act::Wait(1)];
    let flaky = send(&store, &fails).await;
    let polls = send(&store, &vec![Act::Wait(10); 200]).await;
    let worker = jobs.start(&store);
    emptied(&store, secs(36_000)).await;
    assert_eq!(poisoned(&store).await, [""; 0]);
    assert!(is_done(&store, &flaky).await && is_done(&store, &polls).await);
    assert_eq!(jobs.steps(&flaky).len(), 3 * 5 + 3);
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_worker_dies_before_it_releases_the_message_waits_nevertheless() {
    let (store, faults) = Faults::wrap(memory::store());
    let jobs = Script::default();
    let id = send(&store, &[Act::Wait(600), Act::Work(1)]).await;
    faults.every_call(Op::Release, Fault::Hang);
    let worker = jobs.start(&store);
    within(secs(10), "its save", async || is_waiting(&store, &id).await).await;
    worker.kill().await;
    faults.clear_all();
    let successor = jobs.start(&store);
    emptied(&store, secs(700)).await;
    assert_eq!(jobs.steps(&id), [0, 1]);
    let waited = jobs.began(&id, 1) - jobs.began(&id, 0);
    assert!((secs(600)..secs(602)).contains(&waited), "{waited:?}");
    successor.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_wait_of_weeks_is_longer_than_a_queue_can_hide_a_message() {
    const DAY: u64 = 24 * 3_600;
    let (store, jobs) = (memory::store(), Script::default());
    let id = send(&store, &[Act::Wait(20 * DAY), Act::Work(1)]).await;
    for days in [0, 7, 14] {
        let worker = jobs.start(&store);
        tokio::time::sleep(secs(60)).await;
        assert_eq!((jobs.steps(&id), leased(&store).await), (vec![0], 0), "after {days} days");
        worker.stop().await;
        assert_eq!(ready(&store).await, 0);
        tokio::time::sleep(secs(7 * DAY - 60)).await;
    }
    let worker = jobs.start(&store);
    emptied(&store, secs(60)).await;
    assert!(jobs.began(&id, 1) - jobs.began(&id, 0) >= secs(20 * DAY));
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_interrupted_while_its_wait_is_saved_waits() {
    let (store, faults) = Faults::wrap(memory::store());
    let jobs = Script::default();
    let id = send(&store, &[Act::Work(1), Act::Wait(600), Act::Work(1)]).await;
    let worker = jobs.start(&store);
    within(secs(10), "its first step", async || jobs.steps(&id) == [0]).await;
    faults.every_call(Op::Save, Fault::Fail(ErrorKind::Unavailable));
    tokio::time::sleep(secs(3)).await;
    faults.clear_all();
    let drain = worker.evict(secs(30)).await;
    assert_eq!((drain.finished, drain.released_cut, drain.work_lost_ms), (1, 0, 0), "{drain:?}");
    worker.stop().await;
    let successor = jobs.start(&store);
    emptied(&store, secs(700)).await;
    assert_eq!(jobs.steps(&id), [0, 1, 2]);
    assert!(jobs.began(&id, 2) - jobs.began(&id, 1) >= secs(600));
    successor.stop().await;
}

#[tokio::test(start_paused = true)]
async fn parents_that_wait_for_children_cant_block_the_only_slot() {
    let (store, jobs) = (memory::store(), Script::default());
    let children = [JobId::parse("a").unwrap(), JobId::parse("b").unwrap()];
    let mut parents = Vec::new();
    for child in &children {
        parents.push(send(&store, &[Act::WaitFor(child.clone())]).await);
    }
    let worker = jobs.start(&store);
    within(secs(10), "waiting parents", async || {
        is_waiting(&store, &parents[0]).await && is_waiting(&store, &parents[1]).await
    })
    .await;
    for child in children {
        send_as(&store, &child, &[Act::Work(20)]).await;
    }
    emptied(&store, secs(120)).await;
    for parent in &parents {
        assert!(is_done(&store, parent).await);
    }
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_second_message_of_a_waiting_job_does_not_end_its_wait() {
    let (store, jobs) = (memory::store(), Script::default());
    let acts = [Act::Wait(3_600), Act::Work(1)];
    let id = JobId::parse("twin").unwrap();
    send_as(&store, &id, &acts).await;
    let worker = jobs.start(&store);
    within(secs(10), "its wait", async || is_waiting(&store, &id).await).await;
    send_as(&store, &id, &acts).await;
    emptied(&store, secs(8_000)).await;
    // A first delivery reads no record: the second message's step is refused at its save.
    let again = jobs.steps(&id).iter().filter(|step| **step == 1).count();
    assert_eq!(again, 1, "{:?}", jobs.steps(&id));
    assert!(jobs.began(&id, 1) - jobs.began(&id, 0) >= secs(3_600));
    worker.stop().await;
}

/// Jobs that look and wait again at once, more than the worker has slots, would always be the first in line.
#[tokio::test(start_paused = true)]
async fn jobs_that_wait_for_no_time_at_all_let_later_ones_run() {
    let (store, jobs) = (memory::store(), Script::default());
    let mut pollers = Vec::new();
    for _ in 0..5 {
        pollers.push(send(&store, &[Act::Poll]).await);
    }
    let worker = jobs.start(&store);
    within(secs(10), "polls", async || jobs.steps(&pollers[4]).len() > 3).await;
    let polls = || pollers.iter().map(|poller| jobs.steps(poller).len()).collect::<Vec<_>>();
    let before = polls();
    let mut later = Vec::new();
    for _ in 0..20 {
        later.push(send(&store, &[Act::Work(1)]).await);
    }
    within(secs(600), "the later jobs", async || {
        for job in &later {
            if !is_done(&store, job).await {
                return false;
            }
        }
        true
    })
    .await;
    let after = polls();
    assert!(after.iter().zip(&before).all(|(after, before)| after > before), "{before:?} to {after:?}");
    assert!(after.iter().all(|polls| *polls > 3), "{after:?}");
    drop(worker);
}
