//! An id of a producer's own names one job, however often and by whomever it is enqueued.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use reprieve_core::memory::{self, Fault, Faults, Op};
use reprieve_core::ports::Store;
use reprieve_core::record::Status;
use reprieve_core::retention::Keep;
use reprieve_core::worker::Settings;
use reprieve_core::{
    BlobName, ErrorKind, Job, JobContext, JobEnd, JobError, JobId, NewJob, Producer, Redrive, Step,
};
use serde_json::value::to_raw_value;
use tokio::time::Instant;

use crate::support::*;

/// A job without a result, which works for the number of milliseconds in its arguments.
#[derive(Debug, Clone, Default)]
struct Silent {
    begun: Arc<Mutex<BTreeMap<JobId, u32>>>,
}

#[async_trait]
impl Job for Silent {
    const KIND: &'static str = "silent";
    type Args = u64;
    type Checkpoint = ();
    type Output = ();

    fn begin(&self, _: &u64) {}

    async fn step(&self, cx: &JobContext, millis: &u64, (): ()) -> Result<Step<(), ()>, JobError> {
        *self.begun.lock().unwrap().entry(cx.job().clone()).or_default() += 1;
        if *millis == u64::MAX {
            return Err(JobError::fatal("it can't be done"));
        }
        tokio::time::sleep(ms(*millis)).await;
        Ok(Step::Done(()))
    }
}

impl Silent {
    fn times(&self, job: &JobId) -> u32 {
        self.begun.lock().unwrap().get(job).copied().unwrap_or_default()
    }

    fn start(&self, store: &Store) -> Running {
        start_any(store, self.clone(), Settings { concurrency: 4, ..settings() })
    }
}

fn named(id: &str, millis: u64) -> NewJob {
    on_one_clock();
    NewJob::of::<Silent>(&millis).unwrap().with_id(JobId::parse(id).unwrap())
}

async fn enqueue_one(store: &Store, job: NewJob) -> Result<JobId, reprieve_core::Error> {
    Producer::new(store.clone()).enqueue(vec![job]).await.map(|mut ids| ids.remove(0))
}

async fn status(store: &Store, job: &JobId) -> Option<Status> {
    record(store, job).await.map(|record| record.status)
}

#[tokio::test(start_paused = true)]
async fn enqueued_again_it_is_the_same_job_at_every_stage() {
    let (store, jobs) = (memory::store(), Silent::default());
    let id = enqueue_one(&store, named("import-1", 10_000)).await.unwrap();
    assert_eq!(id.as_str(), "import-1");
    assert_eq!(status(&store, &id).await, Some(Status::Enqueued));
    // While it waits: a second message, because the first producer may have died before its own.
    assert_eq!(enqueue_one(&store, named("import-1", 10_000)).await.unwrap(), id);
    let worker = jobs.start(&store);
    within(secs(5), "the job runs", async || status(&store, &id).await == Some(Status::Running)).await;
    let waiting = total(&store).await;
    enqueue_one(&store, named("import-1", 10_000)).await.unwrap();
    assert_eq!(total(&store).await, waiting, "a running job gets no other message");
    emptied(&store, secs(600)).await;
    assert_eq!(jobs.times(&id), 1);
    worker.stop().await;
    // Afterwards, also for a job that has no result, and although the store is cleaned.
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_hours(8 * 24)).await;
        clean(&store, Keep::default(), false).await;
        enqueue_one(&store, named("import-1", 10_000)).await.unwrap();
        assert_eq!((total(&store).await, status(&store, &id).await), (0, Some(Status::Done)));
    }
    assert_eq!(jobs.times(&id), 1);
}

#[tokio::test(start_paused = true)]
async fn a_dead_lettered_job_is_not_enqueued_again() {
    let (store, jobs) = (memory::store(), Silent::default());
    let id = enqueue_one(&store, named("import-1", u64::MAX)).await.unwrap();
    let worker = jobs.start(&store);
    within(secs(5), "the dead letter", async || !poisoned(&store).await.is_empty()).await;
    enqueue_one(&store, named("import-1", u64::MAX)).await.unwrap();
    assert_eq!((total(&store).await, poisoned(&store).await.len(), jobs.times(&id)), (0, 1, 1));
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn another_kind_or_other_arguments_under_an_id_are_refused() {
    let (store, jobs) = (memory::store(), Silent::default());
    let text = r#"{ "b": 1.50, "a": [1, 2] }"#;
    let sent = |kind: &str, args: &str| {
        let args = to_raw_value(&serde_json::from_str::<serde_json::Value>(args).unwrap()).unwrap();
        enqueue_one(&store, NewJob::new(kind, args).with_id(JobId::parse("j").unwrap()))
    };
    sent("silent", text).await.unwrap();
    sent("silent", r#"{"a":[1,2],"b":1.5}"#).await.expect("the same arguments, written otherwise");
    let before = total(&store).await;
    for (kind, args, part) in [
        ("loud", text, "is that of a job of kind \"silent\""),
        ("silent", r#"{"a":[2,1],"b":1.5}"#, "is that of a job with other arguments"),
        ("silent", "null", "is that of a job with other arguments"),
    ] {
        let refused = sent(kind, args).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Conflict);
        assert!(refused.to_string().contains(part), "{refused}");
    }
    assert_eq!(total(&store).await, before);
    // Also when it is over.
    let id = enqueue_one(&store, named("k", 5)).await.unwrap();
    let worker = jobs.start(&store);
    within(secs(5), "the end", async || status(&store, &id).await == Some(Status::Done)).await;
    assert_eq!(enqueue_one(&store, named("k", 6)).await.unwrap_err().kind(), ErrorKind::Conflict);
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn refused_arguments_do_not_replace_those_of_the_job() {
    let store = memory::store();
    let long = |letter: &str| {
        let args = to_raw_value(&letter.repeat(40_000)).unwrap();
        NewJob::new("silent", args).with_id(JobId::parse("j").unwrap())
    };
    enqueue_one(&store, long("a")).await.unwrap();
    let name = store.blobs.list("args/").await.unwrap().remove(0);
    let before = store.blobs.get(&name).await.unwrap();
    enqueue_one(&store, long("b")).await.unwrap_err();
    assert_eq!(store.blobs.get(&name).await.unwrap(), before);
}

/// A producer fails or dies at any of its calls, and enqueues the same jobs again.
#[tokio::test(start_paused = true)]
async fn a_producer_that_dies_and_enqueues_again_enqueues_each_job_once() {
    for seed in 0..16 {
        println!("seed {seed}");
        let mut rng = SmallRng::seed_from_u64(seed);
        let (inner, jobs) = (memory::store(), Silent::default());
        let (store, faults) = Faults::wrap(inner.clone());
        let names: Vec<_> = (0..rng.random_range(1..20)).map(|n| format!("child-{n}")).collect();
        let batch = || names.iter().map(|name| named(name, 700)).collect::<Vec<_>>();
        let workers: Vec<_> = (0..2).map(|_| jobs.start(&inner)).collect();
        let mut enqueued = Vec::new();
        for _ in 0..rng.random_range(1..6) {
            let op = [Op::Put, Op::Save, Op::Send][rng.random_range(0..3)];
            let fault =
                [Fault::Fail(ErrorKind::Unavailable), Fault::LoseAnswer, Fault::Hang][rng.random_range(0..3)];
            faults.next_calls(op, 1, fault);
            let producer = Producer::new(store.clone());
            let patience = ms(rng.random_range(1..3_000));
            if let Ok(Ok(ids)) = tokio::time::timeout(patience, producer.enqueue(batch())).await {
                enqueued = ids;
            }
            tokio::time::sleep(ms(rng.random_range(0..5_000))).await;
        }
        if enqueued.is_empty() {
            enqueued = Producer::new(inner.clone()).enqueue(batch()).await.unwrap();
        }
        emptied(&inner, secs(3_600)).await;
        for id in &enqueued {
            assert_eq!(jobs.times(id), 1, "{id}");
            assert_eq!(status(&inner, id).await, Some(Status::Done));
        }
        assert_eq!(enqueued.len(), names.len());
        for worker in workers {
            worker.stop().await;
        }
    }
}

/// The worker dies while the job runs: the death is charged to its delivery, and not to the producer.
#[tokio::test(start_paused = true)]
async fn its_deliveries_are_accounted_as_those_of_any_job() {
    let (store, jobs) = (memory::store(), Silent::default());
    let id = enqueue_one(&store, named("j", 30_000)).await.unwrap();
    for deaths in 0..2 {
        let worker = jobs.start(&store);
        within(secs(300), "the job runs", async || jobs.times(&id) > deaths).await;
        worker.kill().await;
    }
    assert_eq!(record(&store, &id).await.unwrap().account.vanished, 1, "the second is not known yet");
    let worker = jobs.start(&store);
    emptied(&store, secs(600)).await;
    assert_eq!(status(&store, &id).await, Some(Status::Done));
    worker.stop().await;
}

/// A job with a result that is its argument.
#[derive(Debug, Clone)]
struct Echo;

#[async_trait]
impl Job for Echo {
    const KIND: &'static str = "echo";
    type Args = f64;
    type Checkpoint = ();
    type Output = f64;

    fn begin(&self, _: &f64) {}

    async fn step(&self, _: &JobContext, value: &f64, (): ()) -> Result<Step<(), f64>, JobError> {
        Ok(Step::Done(*value))
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_job_is_known_to_whoever_enqueued_it() {
    let (store, jobs) = (memory::store(), Silent::default());
    let silent = enqueue_one(&store, named("silent", 10_000)).await.unwrap();
    let failing = enqueue_one(&store, named("failing", u64::MAX)).await.unwrap();
    assert_eq!(store.end_of::<()>(&silent).await.unwrap(), None);
    let worker = jobs.start(&store);
    within(secs(5), "the job runs", async || jobs.times(&silent) == 1).await;
    assert_eq!(store.end_of::<()>(&silent).await.unwrap(), None);
    emptied(&store, secs(60)).await;
    within(secs(5), "the dead letter", async || !poisoned(&store).await.is_empty()).await;
    worker.stop().await;
    assert_eq!(store.end_of::<()>(&silent).await.unwrap(), Some(JobEnd::Done(())));
    let failed = store.end_of::<()>(&failing).await.unwrap();
    assert_eq!(failed, Some(JobEnd::Failed("it can't be done".to_owned())));
    store.redrive(&Redrive::All).await.unwrap();
    assert_eq!(poisoned(&store).await, [""; 0]);

    let worker = start_any(&store, Echo, settings());
    let echo = enqueue_one(&store, NewJob::of::<Echo>(&0.1).unwrap()).await.unwrap();
    within(secs(5), "the result", async || store.end_of::<f64>(&echo).await.unwrap().is_some()).await;
    assert_eq!(store.end_of::<f64>(&echo).await.unwrap(), Some(JobEnd::Done(0.1)));
    let wrong = store.end_of::<Vec<u8>>(&echo).await.unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::Corrupt, "{wrong}");
    let job = NewJob::of::<Echo>(&2.5).unwrap().with_id(JobId::parse("e").unwrap());
    let named = enqueue_one(&store, job).await.unwrap();
    within(secs(5), "the end", async || status(&store, &named).await == Some(Status::Done)).await;
    store.blobs.delete(&BlobName::parse("results/e.json").unwrap(), None).await.unwrap();
    assert_eq!(store.end_of::<f64>(&named).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(store.end_of::<f64>(&JobId::parse("unheard-of").unwrap()).await.unwrap(), None);
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_job_that_no_worker_knows_has_ended_when_it_is_dead_lettered() {
    let (store, jobs) = (memory::store(), Silent::default());
    let id = enqueue_one(&store, named("j", 600_000)).await.unwrap();
    let others = start(&store, &Steps::default());
    within(secs(50 * 3_600), "the dead letter", async || !poisoned(&store).await.is_empty()).await;
    others.stop().await;
    assert!(matches!(store.end_of::<()>(&id).await.unwrap(), Some(JobEnd::Failed(_))));
    enqueue_one(&store, named("j", 600_000)).await.unwrap();
    assert_eq!(total(&store).await, 0);
    let worker = jobs.start(&store);
    store.redrive(&Redrive::All).await.unwrap();
    emptied(&store, secs(7_200)).await;
    assert_eq!((jobs.times(&id), status(&store, &id).await), (1, Some(Status::Done)));
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_id_is_remembered_as_long_as_its_result() {
    on_one_clock();
    let store = memory::store();
    let keep = Keep { results: Some(Duration::from_hours(24 * 90)), ..Keep::default() };
    let worker = start_any(&store, Echo, Settings { keep, ..settings() });
    let job = |value: f64| NewJob::of::<Echo>(&value).unwrap().with_id(JobId::parse("monthly").unwrap());
    let id = enqueue_one(&store, job(1.0)).await.unwrap();
    within(secs(60), "the end", async || status(&store, &id).await == Some(Status::Done)).await;
    worker.stop().await;
    let day = async || {
        tokio::time::sleep(Duration::from_hours(24)).await;
        clean(&store, keep, false).await;
    };
    for _ in 0..33 {
        day().await;
    }
    assert_eq!(enqueue_one(&store, job(2.0)).await.unwrap_err().kind(), ErrorKind::Conflict);
    for _ in 0..70 {
        day().await;
    }
    enqueue_one(&store, job(2.0)).await.unwrap();
    let worker = start_any(&store, Echo, Settings { keep, ..settings() });
    within(secs(60), "the end", async || status(&store, &id).await == Some(Status::Done)).await;
    assert_eq!(store.end_of::<f64>(&id).await.unwrap(), Some(JobEnd::Done(2.0)));
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_record_is_damaged_or_removed_keeps_its_id() {
    for is_removed in [false, true] {
        let (store, jobs) = (memory::store(), Silent::default());
        let id = enqueue_one(&store, named("j", 1_000)).await.unwrap();
        if is_removed {
            let stored = store.records.load(&id).await.unwrap().unwrap();
            store.records.remove(&id, &stored.version, &[]).await.unwrap();
        } else {
            overwrite(&store, &id, b"junk".to_vec()).await;
        }
        let worker = jobs.start(&store);
        emptied(&store, secs(600)).await;
        enqueue_one(&store, named("j", 1_000)).await.unwrap();
        assert_eq!((total(&store).await, jobs.times(&id)), (0, 1), "removed: {is_removed}");
        worker.stop().await;
    }
}

/// Of a producer that was away for days, the age of its first try is not that of the job.
#[tokio::test(start_paused = true)]
async fn a_job_that_is_enqueued_again_is_as_old_as_its_last_message() {
    let (inner, jobs) = (memory::store(), Silent::default());
    let (store, faults) = Faults::wrap(inner.clone());
    faults.next_calls(Op::Send, 1, Fault::Fail(ErrorKind::Unavailable));
    enqueue_one(&store, named("j", 30_000)).await.unwrap_err();
    tokio::time::sleep(Duration::from_hours(24 * 12)).await;
    let id = enqueue_one(&store, named("j", 30_000)).await.unwrap();
    let keep = Keep { unfinished: Some(Duration::from_hours(24 * 10)), ..Keep::default() };
    clean(&inner, keep, false).await;
    let worker = jobs.start(&inner);
    within(secs(60), "the job runs", async || jobs.times(&id) == 1).await;
    enqueue_one(&store, named("j", 30_000)).await.unwrap();
    emptied(&inner, secs(600)).await;
    assert_eq!(jobs.times(&id), 1);
    worker.stop().await;
}

/// A job that fails, and asks to be tried again in an hour.
#[derive(Debug, Clone, Default)]
struct Hourly(Arc<Mutex<Vec<Instant>>>);

#[async_trait]
impl Job for Hourly {
    const KIND: &'static str = "hourly";
    type Args = ();
    type Checkpoint = ();
    type Output = ();

    fn begin(&self, (): &()) {}

    async fn step(&self, _: &JobContext, (): &(), (): ()) -> Result<Step<(), ()>, JobError> {
        self.0.lock().unwrap().push(Instant::now());
        Err(JobError::retry("later").after(secs(3_600)))
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_message_does_not_shorten_the_delay_of_a_retry() {
    for messages in [1, 2, 4] {
        on_one_clock();
        let (store, job) = (memory::store(), Hourly::default());
        let new = || NewJob::of::<Hourly>(&()).unwrap().with_id(JobId::parse("j").unwrap());
        for _ in 0..messages {
            enqueue_one(&store, new()).await.unwrap();
        }
        let worker = start_any(&store, job.clone(), settings());
        emptied(&store, secs(40 * 3_600)).await;
        let began = job.0.lock().unwrap().clone();
        assert_eq!(began.len(), 5, "{messages} messages");
        assert!(began.windows(2).all(|pair| pair[1] - pair[0] >= secs(3_600)), "{began:?}");
        worker.stop().await;
    }
}
