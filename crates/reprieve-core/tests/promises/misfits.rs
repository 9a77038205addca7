//! A message that this worker can't use may fit another one: it is deferred with growing delays,
//! shown, and dead-lettered with a true reason only after a long time.

use reprieve_core::memory;
use reprieve_core::ports::{NewMessage, Store, WorkerReport};
use reprieve_core::record::Status;
use reprieve_core::worker::{Settings, Worker, stopping};
use reprieve_core::{BlobName, ErrorKind, Job, JobContext, JobError, JobId, Step};
use serde_json::{Value, json};
use tokio::time::Instant;

use reprieve_core::memory::{Fault, Faults, ManualNotices, Op};

use crate::support::*;

async fn send(store: &Store, event: &Value) {
    on_one_clock();
    let body = event.to_string().into_bytes();
    store.queue.send(vec![NewMessage { body, delay: secs(0) }]).await.unwrap();
}

fn unheard_of() -> Value {
    json!({"specversion": "1.0", "id": "a", "source": "reprieve", "type": "unheard-of", "data": 1, "x": 1.5})
}

/// A kind that a rolling update adds.
struct Later;

#[async_trait::async_trait]
impl Job for Later {
    const KIND: &'static str = "unheard-of";
    type Args = u32;
    type Checkpoint = ();
    type Output = u32;
    fn begin(&self, _: &u32) {}
    async fn step(&self, _: &JobContext, number: &u32, (): ()) -> Result<Step<(), u32>, JobError> {
        tokio::time::sleep(secs(3)).await;
        Ok(Step::Done(*number))
    }
}

async fn report(store: &Store) -> WorkerReport {
    store.roster.reports(secs(60)).await.unwrap().remove(0)
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_no_worker_knows_is_deferred_ever_longer_and_shown() {
    let (inner, job) = (memory::store(), Steps::default());
    let (store, faults) = Faults::wrap(inner.clone());
    send(&inner, &unheard_of()).await;
    let _worker = start(&store, &job);
    tokio::time::sleep(secs(60)).await;
    let releases = faults.calls(Op::Release);
    assert!((4..=6).contains(&releases), "5, 10, 20, … s: {releases} releases in a minute");
    tokio::time::sleep(secs(22 * 3600)).await;
    let releases = faults.calls(Op::Release);
    assert!((250..320).contains(&releases), "every five minutes: {releases} releases in 22 hours");
    assert_eq!((total(&inner).await, poisoned(&inner).await.len()), (1, 0));
    let shown = report(&inner).await.deferred;
    assert_eq!((shown[0].job.as_str(), shown[0].kind.as_str()), ("a", "unheard-of"));
    assert!(shown[0].reason.contains("the last one knows steps"), "{shown:?}");
    emptied(&inner, secs(3 * 3600)).await;
    let letters = inner.queue.dead_letters(2).await.unwrap();
    let reason = letters[0].reason.clone().unwrap();
    assert!(reason.contains("no worker that received it knows kind \"unheard-of\""), "{reason}");
    let kept: Value = serde_json::from_slice(&letters[0].body).unwrap();
    assert_eq!((&kept["x"], &kept["type"], &kept["data"]), (&json!(1.5), &json!("unheard-of"), &json!(1)));
    tokio::time::sleep(secs(400)).await;
    assert_eq!(report(&inner).await.deferred, [], "a message that is gone is not shown for long");
}

#[tokio::test(start_paused = true)]
async fn a_message_is_shown_for_as_long_as_it_is_deferred() {
    let (store, job) = (memory::store(), Steps::default());
    send(&store, &unheard_of()).await;
    let _worker = start(&store, &job);
    for _ in 0..720 {
        tokio::time::sleep(secs(5)).await;
        assert_eq!(report(&store).await.deferred.len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_another_worker_took_is_not_shown_for_long() {
    let (inner, job) = (memory::store(), Steps::default());
    let (store, faults) = Faults::wrap(inner.clone());
    send(&inner, &unheard_of()).await;
    let _old = start(&store, &job);
    tokio::time::sleep(secs(20)).await;
    faults.every_call(Op::Receive, Fault::Fail(ErrorKind::Unavailable));
    assert_eq!(report(&inner).await.deferred.len(), 1);
    let new = Worker::builder(inner.clone()).job(Later).settings(settings()).build().unwrap();
    let (_stopper, never) = stopping();
    tokio::spawn(new.run(never));
    emptied(&inner, secs(60)).await;
    tokio::time::sleep(secs(120)).await;
    let reports = inner.roster.reports(secs(60)).await.unwrap();
    assert!(reports.len() == 2 && reports.iter().all(|report| report.deferred.is_empty()), "{reports:?}");
}

#[tokio::test(start_paused = true)]
async fn a_deferred_job_that_this_worker_runs_is_no_longer_shown() {
    let (store, job) = (memory::store(), Steps::default());
    let event = json!({
        "specversion": "1.0", "id": "a", "source": "reprieve", "type": "steps", "dataref": "args/a.json",
    });
    send(&store, &event).await;
    let _worker = start(&store, &job);
    tokio::time::sleep(secs(60)).await;
    assert_eq!(report(&store).await.deferred.len(), 1);
    let args = serde_json::to_vec(&Plan::new(60, 1_000)).unwrap();
    store.blobs.put(&BlobName::parse("args/a.json").unwrap(), args, None).await.unwrap();
    let id = JobId::parse("a").unwrap();
    within(secs(120), "its first steps", async || job.trace.steps(&id).len() > 20).await;
    assert_eq!(report(&store).await.deferred, []);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_knows_the_kind_takes_it_when_it_comes() {
    let (store, job) = (memory::store(), Steps::default());
    send(&store, &unheard_of()).await;
    let _old = start(&store, &job);
    tokio::time::sleep(secs(3600)).await;
    let new =
        Worker::builder(store.clone()).job(Later).job(job.clone()).settings(settings()).build().unwrap();
    let (_stopper, never) = stopping();
    tokio::spawn(new.run(never));
    // Each time the message is due, by now every five minutes, one of the two workers receives it
    // first.
    let id = JobId::parse("a").unwrap();
    within(secs(6 * 3600), "a claim", async || record(&store, &id).await.is_some()).await;
    let account = record(&store, &id).await.unwrap().account;
    assert_eq!(account.vanished, 0, "no worker died: {account:?}");
    assert!(account.deferred > 0, "{account:?}");
    emptied(&store, secs(6 * 3600)).await;
    let result = BlobName::parse("results/a.json").unwrap();
    assert_eq!(store.blobs.get(&result).await.unwrap(), Some(b"1".to_vec()));
}

#[tokio::test(start_paused = true)]
async fn how_long_a_kind_may_be_unknown_is_a_setting_and_bad_json_does_not_wait() {
    let (store, job) = (memory::store(), Steps::default());
    send(&store, &unheard_of()).await;
    store.queue.send(vec![NewMessage { body: b"{".to_vec(), delay: secs(0) }]).await.unwrap();
    let impatient = Settings { unknown_kind_after: secs(120), ..settings() };
    let _worker = start_with(&store, &job, impatient, ManualNotices::answered());
    within(secs(5), "bad JSON in the poison queue", async || poisoned(&store).await.len() == 1).await;
    tokio::time::sleep(secs(100)).await;
    assert_eq!(total(&store).await, 1);
    emptied(&store, secs(60)).await;
}

#[tokio::test(start_paused = true)]
async fn arguments_that_do_not_fit_their_kind_are_deferred_for_ten_minutes() {
    let (store, job) = (memory::store(), Steps::default());
    let event = json!({"specversion": "1.0", "id": "a", "source": "reprieve", "type": "steps", "data": {"steps": "many"}});
    send(&store, &event).await;
    let began = Instant::now();
    let _worker = start(&store, &job);
    emptied(&store, secs(1_200)).await;
    assert!((secs(600)..secs(920)).contains(&began.elapsed()), "{:?}", began.elapsed());
    let reasons = poisoned(&store).await;
    assert!(reasons[0].contains("do not fit kind \"steps\""), "{reasons:?}");
    assert!(!reasons[0].contains("many"), "the values are the user's: {reasons:?}");
}

/// One worker lacks the kind, another has other arguments: each reason has its own time. They look by turns, each at least
/// once in eight minutes.
#[tokio::test(start_paused = true)]
async fn reasons_that_alternate_do_not_begin_the_time_again() {
    let (store, job) = (memory::store(), Steps::default());
    let event =
        json!({"specversion": "1.0", "id": "a", "source": "reprieve", "type": "unheard-of", "data": "one"});
    send(&store, &event).await;
    for has_kind in [false, true, false, true] {
        assert_eq!(total(&store).await, 1);
        let worker = if has_kind { start_job(&store, Later) } else { start(&store, &job) };
        tokio::time::sleep(secs(500)).await;
        worker.kill().await;
    }
    assert_eq!(total(&store).await, 0, "ten minutes had passed when the second one looked again");
    let reasons = poisoned(&store).await;
    assert!(reasons[0].contains("do not fit kind"), "{reasons:?}");
}

/// An eviction gives no information about such messages.
#[tokio::test(start_paused = true)]
async fn an_eviction_does_not_begin_the_time_of_unreadable_arguments_again() {
    let (inner, job) = (memory::store(), Steps::default());
    let (store, faults) = Faults::wrap(inner.clone());
    faults.every_call(Op::Get, Fault::Fail(ErrorKind::Unavailable));
    let event = json!({"specversion": "1.0", "id": "a", "source": "reprieve", "type": "steps", "dataref": "args/a.json"});
    send(&inner, &event).await;
    let began = Instant::now();
    for _ in 0..3 {
        let worker = start(&store, &job);
        tokio::time::sleep(secs(7 * 3600)).await;
        faults.called(Op::Get, faults.calls(Op::Get) + 1).await;
        worker.evict(secs(30)).await;
        worker.kill().await;
    }
    let _last = start(&store, &job);
    emptied(&inner, secs(4 * 3600)).await;
    assert!(began.elapsed() >= secs(24 * 3600), "{:?}", began.elapsed());
}

/// They are retried only for a moment, and not at all where the store refuses access.
#[tokio::test(start_paused = true)]
async fn jobs_with_unreadable_arguments_do_not_keep_sound_ones_waiting() {
    for kind in [ErrorKind::Unavailable, ErrorKind::Denied] {
        let (inner, job) = (memory::store(), Steps::default());
        let (store, faults) = Faults::wrap(inner.clone());
        faults.every_call(Op::Get, Fault::Fail(kind));
        for bad in 0..24 {
            let blob = format!("args/{bad}.json");
            let id = bad.to_string();
            send(&inner, &json!({"specversion": "1.0", "id": id, "source": "reprieve", "type": "steps", "dataref": blob}))
                .await;
        }
        let _worker = start(&store, &job);
        tokio::time::sleep(secs(600)).await;
        for _ in 0..60 {
            let ids = enqueue(&inner, &[Plan::new(1, 1_000)]).await;
            let sent = Instant::now();
            within(secs(60), "a sound job", async || !job.trace.steps(&ids[0]).is_empty()).await;
            assert!(sent.elapsed() < secs(30), "{kind:?}: it took {:?}", sent.elapsed());
            tokio::time::sleep(secs(20)).await;
        }
    }
}

/// A wrong container, or storage that refuses access: another worker may have more success.
#[tokio::test(start_paused = true)]
async fn arguments_in_a_blob_that_cannot_be_read_are_deferred_with_their_own_reason() {
    for (fault, wanted) in
        [(None, "there is no blob args/a.json"), (Some(ErrorKind::Denied), "could not be read")]
    {
        let (inner, job) = (memory::store(), Steps::default());
        let (store, faults) = Faults::wrap(inner.clone());
        if let Some(kind) = fault {
            faults.every_call(Op::Get, Fault::Fail(kind));
        }
        let event = json!({
            "specversion": "1.0", "id": "a", "source": "reprieve", "type": "steps", "dataref": "args/a.json",
        });
        send(&inner, &event).await;
        let _worker = start(&store, &job);
        tokio::time::sleep(secs(23 * 3600)).await;
        assert_eq!((total(&inner).await, poisoned(&inner).await.len()), (1, 0), "{fault:?}");
        let shown = report(&inner).await.deferred;
        assert!(shown[0].reason.contains(wanted), "{shown:?}");
        assert!(faults.calls(Op::Release) < 400, "{} releases", faults.calls(Op::Release));
        emptied(&inner, secs(3 * 3600)).await;
        assert!(poisoned(&inner).await[0].contains(wanted), "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_state_no_worker_can_read_is_dead_lettered_in_the_end() {
    let (store, job) = (memory::store(), Steps::default());
    let id = enqueue(&store, &[Plan::new(100, 1_000)]).await.remove(0);
    let worker = start_saving(&store, job.clone());
    within(secs(60), "some steps", async || job.trace.steps(&id).len() > 5).await;
    worker.kill().await;
    rewrite(&store, &id, |record| record.checkpoints.iter_mut().for_each(|it| it.schema = 9)).await;
    let settings = Settings { unknown_kind_after: secs(600), ..settings() };
    let worker = start_any(&store, job.clone(), settings);
    within(secs(3 * 3_600), "the dead letter", async || !poisoned(&store).await.is_empty()).await;
    let record = record(&store, &id).await.unwrap();
    assert!(matches!(record.status, Status::DeadLettered { .. }), "{:?}", record.status);
    assert_eq!(record.checkpoints.len(), 2, "a newer worker continues it after a redrive");
    worker.stop().await;
}
