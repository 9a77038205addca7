//! What a job enqueues is the same when its step is run again.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use reprieve_core::memory::{self, Fault, Faults, Op};
use reprieve_core::ports::{NewMessage, Store};
use reprieve_core::retention::Keep;
use reprieve_core::worker::{Settings, Worker};
use reprieve_core::{ErrorKind, Job, JobContext, JobEnd, JobError, JobId, NewJob, Producer, Redrive, Step};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::support::*;

/// How often each argument was worked on, by which jobs.
type Worked = Arc<Mutex<BTreeMap<u32, Vec<JobId>>>>;

/// Notes its argument.
#[derive(Debug, Clone, Default)]
struct Leaf(Worked);

#[async_trait]
impl Job for Leaf {
    const KIND: &'static str = "leaf";
    type Args = u32;
    type Checkpoint = ();
    type Output = u32;

    fn begin(&self, _: &u32) {}

    async fn step(&self, cx: &JobContext, args: &u32, (): ()) -> Result<Step<(), u32>, JobError> {
        self.0.lock().unwrap().entry(*args).or_default().push(cx.job().clone());
        Ok(Step::Done(*args))
    }
}

/// Enqueues as many jobs as its argument says in each of three steps, one of them twice; then waits until
/// they are done.
#[derive(Debug, Clone, Default)]
struct Parent {
    /// How often a step was begun.
    begun: Arc<Mutex<u32>>,
    /// The first steps die before their end.
    dying: u32,
}

const STEPS: u32 = 3;

#[async_trait]
impl Job for Parent {
    const KIND: &'static str = "parent";
    type Args = u32;
    type Checkpoint = (u32, Vec<JobId>);
    type Output = usize;

    fn begin(&self, _: &u32) -> (u32, Vec<JobId>) {
        (0, Vec::new())
    }

    async fn step(
        &self,
        cx: &JobContext,
        children: &u32,
        (at, mut ids): (u32, Vec<JobId>),
    ) -> Result<Step<(u32, Vec<JobId>), usize>, JobError> {
        if at == STEPS {
            return Ok(Step::Done(ids.len()));
        }
        let begun = {
            let mut begun = self.begun.lock().unwrap();
            *begun += 1;
            *begun
        };
        let leaves = (0..*children).chain([0]);
        let leaves = leaves.map(|leaf| NewJob::of::<Leaf>(&(at * 1_000 + leaf))).collect::<Result<_, _>>()?;
        ids.extend(cx.enqueue(leaves).await?);
        if begun <= self.dying {
            // Until the worker is killed.
            std::future::pending::<()>().await;
        }
        Ok(Step::Continue((at + 1, ids)))
    }
}

async fn send(store: &Store, children: u32) -> JobId {
    send_args::<Parent>(store, &children).await
}

async fn result(store: &Store, job: &JobId) -> Option<u64> {
    let end = store.end_of::<u64>(job).await.unwrap()?;
    match end {
        reprieve_core::JobEnd::Done(result) => Some(result),
        end => panic!("{end:?}"),
    }
}

/// Each child of each step ran once, and those with the same arguments are two jobs.
fn each_ran_once(worked: &Worked, children: u32) {
    for (leaf, by) in worked.lock().unwrap().iter() {
        let expected = if leaf % 1_000 == 0 { 2 } else { 1 };
        let jobs: std::collections::BTreeSet<_> = by.iter().collect();
        assert_eq!((by.len(), jobs.len()), (expected, expected), "leaf {leaf}: {by:?}");
    }
    assert_eq!(worked.lock().unwrap().len(), (STEPS * children) as usize);
}

#[tokio::test(start_paused = true)]
async fn a_step_that_dies_after_it_enqueued_jobs_enqueues_the_same_ones_again() {
    let (store, leaf) = (memory::store(), Leaf::default());
    let parent = Parent { dying: 2, ..Parent::default() };
    let id = send(&store, 5).await;
    for _ in 0..2 {
        let begun = *parent.begun.lock().unwrap();
        let worker = start_saving(&store, parent.clone());
        within(secs(300), "the next step", async || *parent.begun.lock().unwrap() > begun).await;
        tokio::time::sleep(secs(1)).await;
        worker.kill().await;
    }
    let worker = start_saving(&store, parent.clone());
    within(secs(300), "the parent's result", async || result(&store, &id).await.is_some()).await;
    worker.stop().await;
    let worker = start_saving(&store, leaf.clone());
    emptied(&store, secs(600)).await;
    worker.stop().await;
    assert_eq!(result(&store, &id).await, Some(u64::from(STEPS * 6)));
    each_ran_once(&leaf.0, 5);
}

/// Workers die, calls fail and answers are lost while parents enqueue and children run.
#[tokio::test(start_paused = true)]
async fn no_child_is_lost_or_run_under_another_id_whatever_fails() {
    for seed in 0..12 {
        println!("seed {seed}");
        let mut rng = SmallRng::seed_from_u64(seed);
        let (inner, leaf) = (memory::store(), Leaf::default());
        let (store, faults) = Faults::wrap(inner.clone());
        let parent = Parent::default();
        let id = send(&inner, 7).await;
        for _ in 0..6 {
            let worker = both(&store, &parent, &leaf);
            for _ in 0..3 {
                let op = [Op::Put, Op::Save, Op::Send, Op::Get][rng.random_range(0..4)];
                let fault = [Fault::Fail(ErrorKind::Unavailable), Fault::LoseAnswer, Fault::Hang];
                faults.next_calls(op, 1, fault[rng.random_range(0..3)]);
                tokio::time::sleep(ms(rng.random_range(0..2_000))).await;
            }
            worker.kill().await;
        }
        let worker = both(&inner, &parent, &leaf);
        within(Duration::from_hours(2), "the parent's result", async || result(&inner, &id).await.is_some())
            .await;
        emptied(&inner, Duration::from_hours(2)).await;
        worker.stop().await;
        // A leaf may have been run again after a kill, but under its own id.
        for (leaf, by) in leaf.0.lock().unwrap().iter() {
            let jobs: std::collections::BTreeSet<_> = by.iter().collect();
            assert_eq!(jobs.len(), if leaf % 1_000 == 0 { 2 } else { 1 }, "leaf {leaf}: {by:?}");
        }
        assert_eq!(leaf.0.lock().unwrap().len(), 21);
    }
}

fn both(store: &Store, parent: &Parent, leaf: &Leaf) -> Running {
    let settings = Settings {
        checkpoint_every: reprieve_core::checkpoint::CheckpointEvery::Every(secs(0)),
        ..settings()
    };
    let worker = Worker::builder(store.clone()).job(parent.clone()).job(leaf.clone()).settings(settings);
    start_built(worker)
}

#[tokio::test(start_paused = true)]
async fn children_are_part_of_their_parents_trace() {
    on_one_clock();
    let (store, parent) = (memory::store(), Parent::default());
    let event = json!({
        "specversion": "1.0", "id": "j", "source": "reprieve", "type": Parent::KIND, "data": 1,
        "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "tracestate": "a=b",
    });
    let message = NewMessage { body: event.to_string().into_bytes(), delay: secs(0) };
    store.queue.send(vec![message]).await.unwrap();
    let worker = start_saving(&store, parent);
    let id = JobId::parse("j").unwrap();
    within(secs(5), "the parent's result", async || result(&store, &id).await.is_some()).await;
    worker.stop().await;
    // This worker did not know their kind, and deferred them.
    tokio::time::sleep(secs(600)).await;
    let children = store.queue.receive(32, secs(60)).await.unwrap();
    assert_eq!(children.len(), 6);
    for child in children {
        let body = String::from_utf8(child.body).unwrap();
        for kept in [r#""traceparent":"00-4bf92f35"#, r#""tracestate":"a=b""#] {
            assert!(body.contains(kept), "{body}");
        }
    }
}

/// Ends as its argument says; healed, it waits instead of failing.
#[derive(Debug, Default)]
struct EndsAs {
    healed: bool,
}

#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
enum As {
    Value(u32),
    Long(usize),
    Nothing,
    Failure(String),
    Never,
}

#[async_trait]
impl Job for EndsAs {
    const KIND: &'static str = "ends-as";
    type Args = As;
    type Checkpoint = ();
    type Output = serde_json::Value;

    fn begin(&self, _: &As) {}

    async fn step(&self, _: &JobContext, args: &As, (): ()) -> Result<Step<(), serde_json::Value>, JobError> {
        Ok(Step::Done(match args {
            As::Value(value) => json!({"is": value}),
            As::Long(length) => json!("x".repeat(*length)),
            As::Nothing => json!(null),
            As::Failure(_) if self.healed => return Ok(Step::Wait((), secs(3_600))),
            As::Failure(why) => return Err(JobError::fatal(why.clone())),
            As::Never => return Ok(Step::Wait((), secs(3_600))),
        }))
    }
}

async fn ends(store: &Store, jobs: &[JobId]) -> Vec<Option<JobEnd<serde_json::Value>>> {
    store.ends_of(jobs).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_look_at_many_jobs_lists_their_ends_and_results() {
    on_one_clock();
    let (inner, mut jobs, mut expected) = (memory::store(), Vec::new(), Vec::new());
    let mut add = |end: As, seen: Option<JobEnd<serde_json::Value>>| {
        jobs.push(
            NewJob::of::<EndsAs>(&end)
                .unwrap()
                .with_id(JobId::parse(format!("item-{}", jobs.len())).unwrap()),
        );
        expected.push(seen);
    };
    for value in 0..150 {
        add(As::Value(value), Some(JobEnd::Done(json!({"is": value}))));
    }
    add(As::Nothing, Some(JobEnd::Done(json!(null))));
    add(As::Failure("bad".into()), Some(JobEnd::Failed("bad".into())));
    add(As::Never, None);
    add(As::Long(5_000), Some(JobEnd::Done(json!("x".repeat(5_000)))));
    let last = jobs.len() - 1;
    let ids = Producer::new(inner.clone()).enqueue(jobs).await.unwrap();
    let (store, faults) = Faults::wrap(inner.clone());
    assert_eq!(ends(&store, &ids).await, vec![None; ids.len()]);
    let worker = start_job(&inner, EndsAs::default());
    within(secs(600), "only the waiting job", async || total(&inner).await == 1).await;
    let pages = faults.calls(Op::RecordPage);
    assert_eq!(ends(&store, &ids).await, expected);
    // The in-memory store has eight records in each part of a list.
    assert_eq!(faults.calls(Op::RecordPage) - pages, ids.len() as u64 / 8 + 1);
    assert_eq!(
        (faults.calls(Op::Load), faults.calls(Op::Get)),
        (1, 1),
        "only the long result is read by itself"
    );
    // In any order, and with others among them.
    let unknown = JobId::parse("item-unknown").unwrap();
    let mixed = [ids[last].clone(), unknown, ids[3].clone(), JobId::unique(), ids[152].clone()];
    let seen = [expected[last].clone(), None, expected[3].clone(), None, None];
    assert_eq!(ends(&store, &mixed).await, seen);
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_redriven_job_has_not_ended_once_a_worker_has_begun_it() {
    on_one_clock();
    let store = memory::store();
    let failing = |n: u32| NewJob::of::<EndsAs>(&As::Failure(n.to_string())).unwrap();
    let jobs = (0..9).map(|n| failing(n).with_id(JobId::parse(format!("i-{n}")).unwrap())).collect();
    let ids = Producer::new(store.clone()).enqueue(jobs).await.unwrap();
    let worker = start_job(&store, EndsAs::default());
    within(secs(60), "nine letters", async || poisoned(&store).await.len() == 9).await;
    worker.stop().await;
    let failed = |n: u32| Some(JobEnd::Failed(n.to_string()));
    assert_eq!(ends(&store, &ids).await, (0..9).map(failed).collect::<Vec<_>>());
    store.redrive(&Redrive::Job(ids[4].clone())).await.unwrap();
    let worker = start_job(&store, EndsAs { healed: true });
    within(secs(60), "the wait", async || ends(&store, &ids[4..5]).await == [None]).await;
    let expected: Vec<_> = (0..9).map(|n| failed(n).filter(|_| n != 4)).collect();
    assert_eq!(ends(&store, &ids).await, expected);
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_look_at_few_jobs_among_many_others_does_not_list_them_all() {
    on_one_clock();
    let inner = memory::store();
    let job = |n: usize| NewJob::of::<Leaf>(&0).unwrap().with_id(JobId::parse(format!("{n}")).unwrap());
    // The records of ten thousand others are listed, and no more.
    let ids = Producer::new(inner.clone()).enqueue((10_000..31_000).map(job).collect()).await.unwrap();
    let (store, faults) = Faults::wrap(inner);
    let some: Vec<_> = ids.iter().step_by(2_500).cloned().collect();
    assert_eq!(store.ends_of::<u32>(&some).await.unwrap(), vec![None; 9]);
    assert!(faults.calls(Op::RecordPage) <= 10_100 / 8, "{}", faults.calls(Op::RecordPage));
    // Those that were not among them are looked at one by one.
    assert!(faults.calls(Op::Load) < 9);
}

/// Runs the leaves, and returns those that ran under two ids.
async fn twice(store: &Store) -> Vec<u32> {
    let leaf = Leaf::default();
    let _leaves = start_built(Worker::builder(store.clone()).settings(settings()).job(leaf.clone()));
    emptied(store, secs(600)).await;
    leaf.0.lock().unwrap().iter().filter(|(_, jobs)| jobs.len() != 1).map(|(item, _)| *item).collect()
}

/// Enqueues a job for each item, as many in a step as fit into a second.
#[derive(Debug, Clone, Default)]
struct Slices {
    pace_ms: Arc<AtomicU32>,
    at: Arc<AtomicU32>,
}

#[async_trait]
impl Job for Slices {
    const KIND: &'static str = "slices";
    type Args = ();
    type Checkpoint = u32;
    type Output = u32;

    fn begin(&self, (): &()) -> u32 {
        0
    }

    async fn step(&self, cx: &JobContext, (): &(), mut at: u32) -> Result<Step<u32, u32>, JobError> {
        let began = Instant::now();
        while at < 60 && began.elapsed() < secs(1) {
            cx.enqueue(vec![NewJob::of::<Leaf>(&at).unwrap()]).await?;
            sleep(ms(self.pace_ms.load(Relaxed).into())).await;
            at += 1;
            self.at.store(at, Relaxed);
        }
        Ok(if at < 60 { Step::Continue(at) } else { Step::Done(at) })
    }
}

/// The only fault is one kill.
#[tokio::test(start_paused = true)]
async fn children_of_steps_of_a_second_are_the_same_on_a_faster_machine() {
    let (store, slices) = (memory::store(), Slices::default());
    let id = enqueue_j(&store, "slices").await;
    slices.pace_ms.store(250, Relaxed);
    let first = start_any(&store, slices.clone(), settings());
    within(secs(60), "38 items", async || slices.at.load(Relaxed) == 38).await;
    first.kill().await;
    slices.pace_ms.store(50, Relaxed);
    let second = start_any(&store, slices.clone(), settings());
    within(secs(600), "its end", async || store.end_of::<u32>(&id).await.unwrap().is_some()).await;
    second.stop().await;
    assert_eq!(twice(&store).await, [] as [u32; 0], "items whose children ran under two ids");
}

/// Enqueues a job for each item in one long step, and saves when that is due, as the documentation of
/// `checkpoint_due` shows.
#[derive(Debug, Clone, Default)]
struct Long {
    pace_ms: Arc<AtomicU32>,
    at: Arc<AtomicU32>,
}

#[async_trait]
impl Job for Long {
    const KIND: &'static str = "long";
    type Args = ();
    type Checkpoint = u32;
    type Output = u32;

    fn begin(&self, (): &()) -> u32 {
        0
    }

    async fn step(&self, cx: &JobContext, (): &(), mut at: u32) -> Result<Step<u32, u32>, JobError> {
        while at < 20 {
            cx.enqueue(vec![NewJob::of::<Leaf>(&at).unwrap()]).await?;
            sleep(ms(self.pace_ms.load(Relaxed).into())).await;
            at += 1;
            self.at.store(at, Relaxed);
            if cx.is_interrupted() {
                return Ok(Step::Continue(at));
            }
            if cx.is_checkpoint_due() {
                cx.save::<Self>(&at).await?;
            }
        }
        Ok(Step::Done(at))
    }
}

/// One save fails, or the newest checkpoint can't be read; then the worker dies.
#[tokio::test(start_paused = true)]
async fn children_after_a_failed_save_or_an_older_checkpoint_are_the_same() {
    let mut bad = Vec::new();
    for going_back in [false, true] {
        let (inner, long) = (memory::store(), Long::default());
        let (store, faults) = Faults::wrap(inner.clone());
        let id = enqueue_j(&inner, "long").await;
        long.pace_ms.store(1_000, Relaxed);
        let first = start_any(&store, long.clone(), settings());
        within(secs(60), "four items", async || long.at.load(Relaxed) == 4).await;
        sleep(ms(500)).await;
        if !going_back {
            faults.next_calls(Op::Save, 1, Fault::Fail(ErrorKind::Unavailable));
        }
        let at = if going_back { 13 } else { 8 };
        within(secs(60), "more items", async || long.at.load(Relaxed) == at).await;
        first.kill().await;
        if going_back {
            // As if its state could not be read.
            rewrite(&inner, &id, |record| drop(record.checkpoints.remove(0))).await;
        }
        // The other machine is faster.
        long.pace_ms.store(100, Relaxed);
        let second = start_any(&inner, long.clone(), settings());
        within(secs(600), "its end", async || inner.end_of::<u32>(&id).await.unwrap().is_some()).await;
        second.stop().await;
        bad.push(twice(&inner).await);
    }
    assert_eq!(bad, [[] as [u32; 0]; 2], "items whose children ran under two ids");
}

/// Enqueues equal jobs by two calls.
#[derive(Debug, Clone, Default)]
struct Twice;

#[async_trait]
impl Job for Twice {
    const KIND: &'static str = "twice";
    type Args = ();
    type Checkpoint = ();
    type Output = Vec<JobId>;

    fn begin(&self, (): &()) {}

    async fn step(&self, cx: &JobContext, (): &(), (): ()) -> Result<Step<(), Vec<JobId>>, JobError> {
        let leaf = |args: u32| vec![NewJob::of::<Leaf>(&args).unwrap()];
        let (one, other) = tokio::join!(cx.enqueue(leaf(1)), cx.enqueue(leaf(1)));
        let error = other.unwrap_err();
        assert!(error.kind() == ErrorKind::Invalid && error.message().contains("\"leaf\""), "{error}");
        let both = cx.enqueue([leaf(2), leaf(2)].concat()).await?;
        cx.enqueue([leaf(3), leaf(1)].concat()).await.unwrap_err();
        Ok(Step::Done([one?, both, cx.enqueue(leaf(3)).await?].concat()))
    }
}

#[tokio::test(start_paused = true)]
async fn equal_children_of_two_calls_need_ids_of_their_own() {
    let store = memory::store();
    let id = enqueue_j(&store, "twice").await;
    let (far, faults) = Faults::wrap(store.clone());
    faults.every_call(Op::Send, Fault::Delay(ms(5)));
    let _worker = start_any(&far, Twice, settings());
    within(secs(60), "its end", async || store.end_of::<Vec<JobId>>(&id).await.unwrap().is_some()).await;
    let Some(JobEnd::Done(ids)) = store.end_of::<Vec<JobId>>(&id).await.unwrap() else { panic!("it failed") };
    assert_eq!(ids.iter().collect::<std::collections::BTreeSet<_>>().len(), 4, "{ids:?}");
}

/// Enqueues a job that begins five days later, and is done.
#[derive(Debug, Clone, Default)]
struct Founder;

#[async_trait]
impl Job for Founder {
    const KIND: &'static str = "founder";
    type Args = u32;
    type Checkpoint = ();
    type Output = u32;

    fn begin(&self, _: &u32) {}

    async fn step(&self, cx: &JobContext, args: &u32, (): ()) -> Result<Step<(), u32>, JobError> {
        cx.enqueue(vec![NewJob::of::<Leaf>(&7)?.after(secs(5 * 86_400))]).await?;
        Ok(Step::Done(*args))
    }
}

/// The children of a job whose id is free again, and of the next one of this id.
#[tokio::test(start_paused = true)]
async fn a_later_job_of_an_id_has_children_of_its_own() {
    on_one_clock();
    let (store, leaf) = (memory::store(), Leaf::default());
    let run = async |args: u32| {
        let new = NewJob::of::<Founder>(&args).unwrap().with_id(JobId::parse("mine").unwrap());
        Producer::new(store.clone()).enqueue(vec![new]).await.unwrap();
        let worker =
            start_built(Worker::builder(store.clone()).job(Founder).job(leaf.clone()).settings(settings()));
        within(secs(60), "it is done", async || ready(&store).await == 0 && leased(&store).await == 0).await;
        worker.stop().await;
        tokio::time::advance(secs(6 * 86_400)).await;
        let worker =
            start_built(Worker::builder(store.clone()).job(Founder).job(leaf.clone()).settings(settings()));
        emptied(&store, secs(60)).await;
        worker.stop().await;
    };
    run(1).await;
    assert_eq!(leaf.0.lock().unwrap()[&7].len(), 1);
    while record(&store, &JobId::parse("mine").unwrap()).await.is_some() {
        tokio::time::advance(secs(86_400)).await;
        clean(&store, Keep::default(), false).await;
    }
    run(2).await;
    assert_eq!(leaf.0.lock().unwrap()[&7].len(), 2, "the later job's child was not run");
}

/// It begins again, and its message knows when it was enqueued.
#[tokio::test(start_paused = true)]
async fn children_of_a_job_with_a_damaged_record_are_the_same() {
    let (store, long) = (memory::store(), Long::default());
    on_one_clock();
    let new = NewJob::of::<Long>(&()).unwrap().with_id(JobId::parse("mine").unwrap());
    let id = Producer::new(store.clone()).enqueue(vec![new]).await.unwrap().remove(0);
    long.pace_ms.store(1_000, Relaxed);
    let first = start_any(&store, long.clone(), settings());
    within(secs(60), "eight items", async || long.at.load(Relaxed) == 8).await;
    first.kill().await;
    overwrite(&store, &id, b"rubbish".to_vec()).await;
    let second = start_any(&store, long.clone(), settings());
    within(secs(600), "its end", async || store.end_of::<u32>(&id).await.unwrap_or(None).is_some()).await;
    second.stop().await;
    assert_eq!(twice(&store).await, [] as [u32; 0], "items whose children ran under two ids");
}

/// Enqueues an equal child in each of two steps.
#[derive(Debug, Clone)]
struct EqualChildren;

#[async_trait]
impl Job for EqualChildren {
    const KIND: &'static str = "equal-children";
    type Args = ();
    type Checkpoint = bool;
    type Output = ();

    fn begin(&self, (): &()) -> bool {
        false
    }

    async fn step(&self, cx: &JobContext, (): &(), is_second: bool) -> Result<Step<bool, ()>, JobError> {
        sleep(secs(10)).await;
        cx.enqueue(vec![NewJob::of::<Leaf>(&1).unwrap()]).await?;
        Ok(if is_second { Step::Done(()) } else { Step::Continue(true) })
    }
}

#[tokio::test(start_paused = true)]
async fn an_equal_child_of_a_later_step_is_refused_however_the_job_was_interrupted() {
    for how in ["not at all", "evicted", "frozen", "redriven"] {
        let (store, worked) = (memory::store(), Worked::default());
        let id = send_args::<EqualChildren>(&store, &()).await;
        let start = || {
            let builder = Worker::builder(store.clone()).settings(settings());
            start_built(builder.job(EqualChildren).job(Leaf(Arc::clone(&worked))))
        };
        let first = start();
        sleep(secs(15)).await;
        let _second = match how {
            "evicted" => {
                first.evict(secs(30)).await;
                Some(start())
            }
            "frozen" => {
                first.gate.freeze();
                let second = start();
                sleep(secs(200)).await;
                first.gate.thaw();
                Some(second)
            }
            _ => None,
        };
        if how == "redriven" {
            within(secs(60), "a dead letter", async || !poisoned(&store).await.is_empty()).await;
            store.redrive(&Redrive::All).await.unwrap();
        }
        within(secs(600), "the end", async || total(&store).await == 0).await;
        let end = store.end_of::<()>(&id).await.unwrap();
        assert!(
            matches!(&end, Some(JobEnd::Failed(why)) if why.contains("same arguments before")),
            "{how}: {end:?}"
        );
    }
}
