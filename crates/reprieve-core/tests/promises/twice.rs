//! A message that was queued twice because the response to a send was lost completes its job only
//! once.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use reprieve_core::clock::unix_millis;
use reprieve_core::memory::{self, Fault, Faults, ManualNotices, Op};
use reprieve_core::ports::{NewMessage, RecordWrite, Release, Store};
use reprieve_core::record::{Account, Company, Owner, Record, Status, seal};
use reprieve_core::worker::Settings;
use reprieve_core::{BlobName, ErrorKind, Fence, JobId, MessageId, WorkerId, Writer};
use serde_json::json;
use tokio::time::{Instant, timeout};

use crate::support::*;

/// Waits until every message is settled, and checks that the result is as with one message.
async fn ends_well(store: &Store, trace: &Trace, job: &JobId, plan: Plan) {
    let end = Instant::now() + secs(24 * 3600);
    while total(store).await > 0 {
        assert!(Instant::now() < end, "the messages are not settled in time");
        tokio::time::sleep(secs(1)).await;
    }
    assert_eq!(poisoned(store).await, Vec::<String>::new());
    let result = BlobName::parse(format!("results/{job}.json")).unwrap();
    let kept = store.blobs.get(&result).await.unwrap();
    assert_eq!(kept, Some(plan.steps.to_string().into_bytes()));
    let mut steps = trace.steps(job);
    steps.sort_unstable();
    steps.dedup();
    assert_eq!(steps, (0..plan.steps).collect::<Vec<_>>());
    // A worker removes the record just after it settled the message, or keeps it as a mark that the
    // job is done.
    within(secs(5), "no checkpoint", async || {
        let record = record(store, job).await;
        record.is_none_or(|record| record.status == Status::Done && record.checkpoints.is_empty())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_message_queued_twice_is_done_and_both_are_settled() {
    for seed in 0..16 {
        println!("seed {seed}");
        let mut rng = SmallRng::seed_from_u64(seed);
        let (store, job) = (memory::store(), Steps::default());
        let plan = Plan::new(rng.random_range(1..40), rng.random_range(1..4_000));
        let id = send_again_and_again(&store, "j", plan, 2).await;
        let _one = start(&store, &job);
        tokio::time::sleep(ms(rng.random_range(0..30_000))).await;
        let _other = start(&store, &job);
        ends_well(&store, &job.trace, &id, plan).await;
    }
}

/// The first to finish removes the arguments that both refer to.
#[tokio::test(start_paused = true)]
async fn a_message_queued_twice_with_arguments_in_a_blob_is_completed() {
    for workers in [1, 2] {
        let (store, job) = (memory::store(), Steps::default());
        let plan = Plan::new(4, 500);
        let args = BlobName::parse("args/j.json").unwrap();
        store.blobs.put(&args, json!(plan).to_string().into_bytes(), None).await.unwrap();
        let event =
            json!({"specversion": "1.0", "id": "j", "source": "reprieve", "type": "steps", "dataref": args});
        let message = NewMessage { body: event.to_string().into_bytes(), delay: secs(0) };
        store.queue.send(vec![message; 2]).await.unwrap();
        let _workers: Vec<_> = (0..workers).map(|_| start(&store, &job)).collect();
        ends_well(&store, &job.trace, &JobId::parse("j").unwrap(), plan).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_queued_twice_is_done_however_long_its_steps_are() {
    for step_ms in [50_000, 70_000, 180_000, 3_600_000] {
        let (store, job) = (memory::store(), Steps::default());
        let plan = Plan::new(4, step_ms);
        let id = send_again_and_again(&store, "j", plan, 2).await;
        let _one = start(&store, &job);
        let _other = start(&store, &job);
        ends_well(&store, &job.trace, &id, plan).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_queued_twice_is_done_while_workers_are_evicted_and_killed() {
    for seed in 0..12 {
        println!("seed {seed}");
        let mut rng = SmallRng::seed_from_u64(seed);
        let (store, job) = (memory::store(), Steps::default());
        let plan = Plan::new(rng.random_range(20..80), rng.random_range(100..2_000));
        let id = send_again_and_again(&store, "j", plan, 2 + usize::from(seed % 4 == 0)).await;
        for round in 0..8 {
            let (one, other) = (start(&store, &job), start(&store, &job));
            tokio::time::sleep(ms(rng.random_range(0..60_000))).await;
            one.evict(ms(rng.random_range(0..12_000))).await;
            one.kill().await;
            // Three kills in a row at one step would be the job's fault.
            if round % 3 != 0 {
                other.evict(secs(30)).await;
            }
            other.kill().await;
        }
        let _one = start(&store, &job);
        let _other = start(&store, &job);
        ends_well(&store, &job.trace, &id, plan).await;
    }
}

/// The first message has had many evictions, and so a high fence, when the second is received.
#[tokio::test(start_paused = true)]
async fn a_message_that_comes_again_long_after_the_first_was_done_is_settled_too() {
    let (store, job) = (memory::store(), Steps::default());
    let plan = Plan::new(100, 500);
    let id = send_again_and_again(&store, "j", plan, 1).await;
    for _ in 0..30 {
        let worker = start(&store, &job);
        tokio::time::sleep(secs(1)).await;
        worker.evict(secs(30)).await;
        worker.kill().await;
    }
    let worker = start(&store, &job);
    ends_well(&store, &job.trace, &id, plan).await;
    send_again_and_again(&store, "j", plan, 1).await;
    ends_well(&store, &job.trace, &id, plan).await;
    assert_eq!(worker.stop().await.completed, 2);
}

/// A first delivery reads nothing, so a second message of a finished job is recognised at its first
/// save, at its commit, or at a redelivery.
#[tokio::test(start_paused = true)]
async fn a_second_message_of_a_finished_job_is_known_at_its_first_save() {
    let (inner, job) = (memory::store(), Steps::default());
    let (store, faults) = Faults::wrap(inner.clone());
    let plan = Plan::new(40, 500);
    let id = send_again_and_again(&inner, "j", plan, 1).await;
    let worker = start(&store, &job);
    ends_well(&inner, &job.trace, &id, plan).await;
    faults.clear_all();
    let (reads, began) = (faults.calls(Op::Load), Instant::now());
    send_again_and_again(&inner, "j", plan, 1).await;
    tokio::time::sleep(secs(4)).await;
    assert_eq!(faults.calls(Op::Load), reads, "a first delivery reads nothing");
    ends_well(&inner, &job.trace, &id, plan).await;
    // The first save is due after five seconds.
    assert!(began.elapsed() <= secs(7), "{:?}", began.elapsed());
    assert_eq!(worker.ended("deferred"), 0, "nothing waits for minutes");
}

#[tokio::test(start_paused = true)]
async fn a_remembered_job_is_not_run_again_also_without_a_result() {
    let (store, job) = (memory::store(), Steps::default());
    let plan = Plan::new(4, 500);
    let remember = Settings { remember_done: secs(3600), ..settings() };
    let id = send_again_and_again(&store, "j", plan, 1).await;
    let worker = start_with(&store, &job, remember, ManualNotices::answered());
    ends_well(&store, &job.trace, &id, plan).await;
    let result = BlobName::parse("results/j.json").unwrap();
    store.blobs.delete(&result, None).await.unwrap();
    send_again_and_again(&store, "j", plan, 5).await;
    emptied(&store, secs(15)).await;
    assert_eq!((job.trace.redone(), worker.ended("duplicate")), (0, 5));
}

/// The arguments' blob was removed with the first message; only its record proves that the job is
/// done.
#[tokio::test(start_paused = true)]
async fn a_second_message_without_arguments_settles_only_where_the_job_is_known_to_be_completed() {
    let (store, job) = (memory::store(), Steps::default());
    let plan = Plan::new(4, 500);
    let args = BlobName::parse("args/j.json").unwrap();
    let event =
        json!({"specversion": "1.0", "id": "j", "source": "reprieve", "type": "steps", "dataref": args});
    let send = async |store: &Store| {
        let message = NewMessage { body: event.to_string().into_bytes(), delay: secs(0) };
        store.queue.send(vec![message]).await.unwrap();
    };
    store.blobs.put(&args, json!(plan).to_string().into_bytes(), None).await.unwrap();
    send(&store).await;
    let worker = start(&store, &job);
    emptied(&store, secs(15)).await;
    // As if the job had no result.
    store.blobs.delete(&BlobName::parse("results/j.json").unwrap(), None).await.unwrap();
    send(&store).await;
    emptied(&store, secs(15)).await;
    assert_eq!((job.trace.redone(), worker.ended("duplicate"), poisoned(&store).await.len()), (0, 1, 0));

    // The same message with another container, named by mistake.
    let wrong = memory::store();
    send(&wrong).await;
    let _worker = start(&wrong, &job);
    tokio::time::sleep(secs(3600)).await;
    assert_eq!((total(&wrong).await, poisoned(&wrong).await.len()), (1, 0), "the message is not settled");
}

#[tokio::test(start_paused = true)]
async fn a_job_with_a_result_is_settled_and_not_run_again() {
    let (inner, job) = (memory::store(), Steps::default());
    let (store, faults) = Faults::wrap(inner.clone());
    let ids = enqueue(&inner, &[Plan::new(6, 1_000)]).await;
    faults.every_call(Op::Complete, Fault::Fail(ErrorKind::Unavailable));
    let _worker = start(&store, &job);
    tokio::time::sleep(secs(75)).await;
    faults.clear_all();
    emptied(&inner, secs(90)).await;
    assert_eq!((job.trace.redone(), poisoned(&inner).await.len()), (0, 0));
    within(secs(5), "no record", async || record(&inner, &ids[0]).await.is_none()).await;
}

/// Only an output shows that the job ran before: the store refuses an older owner's writes. Where
/// no other owner is left, the job must continue, also when the outputs are of a redriven job.
#[tokio::test(start_paused = true)]
async fn a_message_with_a_refused_output_is_released_at_once_and_completes_later() {
    for fence in [Fence::new(0, 3), Fence::new(0, 4_000), Fence::new(1, 1), Fence::new(2, 4_000)] {
        let (store, job) = (memory::store(), Steps::default());
        let plan = Plan::new(1, 100).habit(Habit::Publishes);
        let id = send_again_and_again(&store, "twice", plan, 1).await;
        let output = BlobName::parse(format!("out/{id}/0")).unwrap();
        let writer = Writer { job: id.clone(), fence };
        store.blobs.put(&output, b"the first message's".to_vec(), Some(&writer)).await.unwrap();
        let worker = start(&store, &job);
        emptied(&store, secs(20)).await;
        assert!(
            job.trace.steps(&id).contains(&0),
            "{fence}: the message is worked on until its owner is the newest"
        );
        assert_eq!(worker.ended("lease_lost"), 0, "{fence}: no lease was lost");
        assert!(worker.ended("deferred") <= 6, "{fence}: few deliveries are enough");
        assert_eq!(poisoned(&store).await, Vec::<String>::new());
    }
}

/// The worker that finished the job died before it deleted the message. The next delivery must keep
/// the record, because messages of an earlier generation may still be in the queue.
#[tokio::test(start_paused = true)]
async fn a_later_generations_record_is_kept_also_by_the_delivery_that_finishes_its_settlement() {
    let (inner, job) = (memory::store(), Steps::default());
    let (store, faults) = Faults::wrap(inner.clone());
    let plan = Plan::new(10, 1_000);
    let id = send_again_and_again(&inner, "j", plan, 1).await;
    let worker = start(&store, &job);
    within(secs(10), "a record", async || record(&inner, &id).await.is_some()).await;
    // As if a second message of the job had taken over.
    rewrite(&inner, &id, |record| record.generation = 1).await;
    faults.every_call(Op::Complete, Fault::Fail(ErrorKind::Unavailable));
    let is_done = async || record(&inner, &id).await.is_some_and(|record| record.status == Status::Done);
    within(secs(60), "the record says done", is_done).await;
    worker.kill().await;
    inner.blobs.delete(&BlobName::parse("results/j.json").unwrap(), None).await.unwrap();
    faults.clear_all();
    let _next = start(&store, &job);
    emptied(&inner, secs(90)).await;
    tokio::time::sleep(secs(30)).await;
    assert!(is_done().await, "the record is kept as a mark that the job is done");
}

/// The first is in a step of an hour, without a save, so only this worker knows of it.
#[tokio::test(start_paused = true)]
async fn a_second_message_waits_while_its_own_worker_runs_the_first() {
    let (store, job) = (memory::store(), Steps::default());
    let plan = Plan::new(3, 3_600_000);
    let id = send_again_and_again(&store, "j", plan, 2).await;
    let _worker = start(&store, &job);
    ends_well(&store, &job.trace, &id, plan).await;
    assert!(job.trace.redone() <= 1, "first deliveries know of nothing: {:?}", job.trace.steps(&id));
}

/// A redriven job's record stays, also when another message of it finds the job done.
#[tokio::test(start_paused = true)]
async fn a_mark_that_a_job_is_done_outlives_its_second_messages() {
    let (store, job) = (memory::store(), Steps::default());
    let plan = Plan::new(4, 500);
    let remember = Settings { remember_done: secs(7 * 24 * 3600), ..settings() };
    let id = send_again_and_again(&store, "j", plan, 1).await;
    let worker = start_with(&store, &job, remember, ManualNotices::answered());
    ends_well(&store, &job.trace, &id, plan).await;
    worker.stop().await;
    // A delivery that is not the first reads the record, so this worker needs no memory of the job.
    send_again_and_again(&store, "j", plan, 1).await;
    store.queue.receive(1, secs(1)).await.unwrap();
    let _other = start(&store, &job);
    emptied(&store, secs(60)).await;
    let mark = record(&store, &id).await.map(|record| record.status);
    assert_eq!((mark, job.trace.redone()), (Some(Status::Done), 0));
}

/// Another message takes over the job while its first message is being settled because of a result.
#[tokio::test(start_paused = true)]
async fn a_mark_is_kept_when_the_generation_rises_during_the_settlement() {
    let (inner, job) = (memory::store(), Steps::default());
    let (store, faults) = Faults::wrap(inner.clone());
    let id = send_again_and_again(&inner, "j", Plan::new(100, 1_000), 1).await;
    let worker = start(&store, &job);
    within(secs(10), "a record", async || record(&inner, &id).await.is_some()).await;
    worker.kill().await;
    // An older owner's complete result.
    let writer = Writer { job: id.clone(), fence: Fence::new(0, 1) };
    let result = BlobName::parse("results/j.json").unwrap();
    inner.blobs.create(&result, b"100".to_vec(), &writer).await.unwrap();
    let saves = faults.calls(Op::Save);
    faults.next_calls(Op::Save, 1, Fault::Delay(secs(2)));
    let _worker = start(&store, &job);
    timeout(secs(120), faults.called(Op::Save, saves + 1)).await.unwrap();
    tokio::time::sleep(ms(500)).await;
    // Another message has taken over the job under generation 1.
    rewrite(&inner, &id, |record| {
        record.generation = 1;
        record.sequence += 1;
        record.owner =
            Owner { message: MessageId::new("t"), nonce: "t-1".into(), count: 1, ..record.owner.clone() };
    })
    .await;
    emptied(&inner, secs(90)).await;
    tokio::time::sleep(secs(30)).await;
    let kept = record(&inner, &id).await;
    assert!(kept.is_some_and(|it| it.status == Status::Done), "a record of generation 1 is kept as a mark");
}

#[tokio::test(start_paused = true)]
async fn a_refused_output_is_overcome_also_on_a_slow_store() {
    let (inner, job) = (memory::store(), Steps::default());
    let (store, faults) = Faults::wrap(inner.clone());
    let id = send_again_and_again(&inner, "twice", Plan::new(1, 100).habit(Habit::Publishes), 1).await;
    let output = BlobName::parse(format!("out/{id}/0")).unwrap();
    let writer = Writer { job: id.clone(), fence: Fence::new(1, 1) };
    inner.blobs.put(&output, b"x".to_vec(), Some(&writer)).await.unwrap();
    faults.every_call(Op::Save, Fault::Delay(ms(1_100)));
    let worker = start(&store, &job);
    emptied(&inner, secs(300)).await;
    assert!(worker.ended("deferred") <= 4, "{} deliveries", worker.ended("deferred"));
}

#[tokio::test(start_paused = true)]
async fn outputs_of_many_generations_ago_cost_few_runs() {
    let (store, job) = (memory::store(), Steps::default());
    let id = send_again_and_again(&store, "twice", Plan::new(1, 3_600_000).habit(Habit::Publishes), 1).await;
    let output = BlobName::parse(format!("out/{id}/0")).unwrap();
    let writer = Writer { job: id.clone(), fence: Fence::new(20, 1) };
    store.blobs.put(&output, b"x".to_vec(), Some(&writer)).await.unwrap();
    let worker = start(&store, &job);
    emptied(&store, secs(8 * 3600)).await;
    assert!(worker.ended("deferred") <= 6, "{}", worker.ended("deferred"));
}

/// The first worker's delete is never applied. When its lease has ended, it finds its receipt void and
/// can't know why: the message may be gone, or belong to another worker, which needs the record.
#[tokio::test(start_paused = true)]
async fn the_record_of_a_done_job_stays_while_another_worker_may_have_its_message() {
    let (inner, job) = (memory::store(), Steps::default());
    let (first, first_faults) = Faults::wrap(inner.clone());
    let (second, second_faults) = Faults::wrap(inner.clone());
    let id = send_again_and_again(&inner, "j", Plan::new(8, 1_000), 1).await;
    first_faults.every_call(Op::Complete, Fault::Hang);
    let _first = start(&first, &job);
    first_faults.called(Op::Complete, 1).await;
    first_faults.every_call(Op::Receive, Fault::Fail(ErrorKind::Unavailable));
    // Only the record shows that the job is done.
    inner.blobs.delete(&BlobName::parse("results/j.json").unwrap(), None).await.unwrap();
    tokio::time::sleep(secs(30)).await;
    second_faults.next_calls(Op::Load, 1, Fault::Delay(secs(3)));
    let _second = start(&second, &job);
    second_faults.called(Op::Load, 1).await;
    first_faults.clear(Op::Complete);
    emptied(&inner, secs(60)).await;
    assert_eq!(job.trace.steps(&id), (0..8).collect::<Vec<_>>(), "no step ran twice");
}

/// A claim lands half a minute late, when its worker had lost the lease and another delivery had come
/// and gone. Then that worker dies.
#[tokio::test(start_paused = true)]
async fn a_claim_that_lands_after_a_later_delivery_proves_no_death() {
    on_one_clock();
    let (store, job) = (memory::store(), Steps::default());
    let id = JobId::parse("j").unwrap();
    let plan = Plan::new(3, 100);
    let ends = |message: &MessageId| {
        let end = json!({"message": message, "count": 3, "how": "crowded", "by": "w", "at": unix_millis()});
        json!([end]).to_string()
    };
    let event = json!({"specversion": "1.0", "id": "j", "source": "reprieve", "type": "steps", "data": plan});
    let body = |event: &serde_json::Value| event.to_string().into_bytes();
    store.queue.send(vec![NewMessage { body: body(&event), delay: secs(0) }]).await.unwrap();
    let mut message = None;
    for delivery in 1..=3 {
        let received = store.queue.receive(1, secs(60)).await.unwrap().remove(0);
        let mut noted = event.clone();
        if delivery == 3 {
            noted["reprieveends"] = ends(&received.id).into();
        }
        let release = Release { body: Some(body(&noted)), delay: secs(5), ..Release::default() };
        store.queue.release(&received.receipt, &release).await.unwrap();
        message = Some(received.id);
        tokio::time::sleep(secs(6)).await;
    }
    // The second delivery's claim, of a suspect that ran alone.
    let owner = Owner {
        message: message.unwrap(),
        count: 2,
        worker: WorkerId::new("dead"),
        nonce: "n".to_owned(),
        company: Company::Alone,
    };
    let record = Record {
        job: id.clone(),
        kind: "steps".to_owned(),
        generation: 0,
        owner,
        status: Status::Running,
        account: Account { vanished: 2, ..Account::default() },
        history: Vec::new(),
        sequence: 1,
        checkpoints: Vec::new(),
        careful_steps: 0,
        went_back: 0,
        ran_ms: 0,
        changed_unix_ms: 0,
        abandoned_after_ms: 60_000,
        expires_unix_ms: None,
        escalated: None,
        args_sha256: None,
        enqueued_unix_ms: 0,
    };
    let write = RecordWrite { record: seal(&record), ..RecordWrite::default() };
    store.records.put(&id, None, write).await.unwrap();
    let worker = start(&store, &job);
    emptied(&store, secs(600)).await;
    assert_eq!(poisoned(&store).await, Vec::<String>::new());
    assert_eq!(job.trace.steps(&id), [0, 1, 2]);
    worker.stop().await;
}
