//! Promises 1, 3 and 5: nothing is lost, little is redone, and interruptions are not failures.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use reprieve_core::memory::{self, ManualNotices};
use reprieve_core::ports::{NewMessage, Queue, Release, Store};
use reprieve_core::record::Status;
use reprieve_core::worker::Settings;
use reprieve_core::{BlobName, ErrorKind, JobId};

use reprieve_core::memory::{Fault, Faults, Op};
use serde_json::json;

use crate::support::*;

async fn result_of(store: &Store, job: &JobId) -> Option<Vec<u8>> {
    store.blobs.get(&BlobName::parse(format!("results/{job}.json")).unwrap()).await.unwrap()
}

/// Kills and evicts workers at random times until every job has completed.
#[tokio::test(start_paused = true)]
async fn workers_killed_and_evicted_at_any_instant_lose_nothing() {
    for seed in 0..40 {
        println!("seed {seed}");
        let mut rng = SmallRng::seed_from_u64(seed);
        let (store, job) = (memory::store(), Steps::default());
        let plans: Vec<_> =
            (0..12).map(|_| Plan::new(rng.random_range(1..60), rng.random_range(1..900))).collect();
        let ids = enqueue(&store, &plans).await;
        for round in 0..12 {
            let worker = start(&store, &job);
            tokio::time::sleep(ms(rng.random_range(0..40_000))).await;
            if round % 3 == 0 {
                worker.kill().await;
            } else {
                worker.evict(ms(rng.random_range(0..12_000))).await;
                worker.kill().await;
            }
        }
        let last = start(&store, &job);
        emptied(&store, secs(3600)).await;
        last.stop().await;
        assert_eq!(poisoned(&store).await, Vec::<String>::new());
        for (id, plan) in ids.iter().zip(&plans) {
            assert_eq!(
                result_of(&store, id).await,
                Some(plan.steps.to_string().into_bytes()),
                "{id} {plan:?}"
            );
            let mut steps = job.trace.steps(id);
            steps.sort_unstable();
            steps.dedup();
            assert_eq!(steps, (0..plan.steps).collect::<Vec<_>>(), "{id} skipped a step");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_is_deleted_only_after_its_job_finished_and_its_result_is_kept() {
    let (store, job) = (memory::store(), Steps::default());
    let ids = enqueue(&store, &[Plan::new(10, 1000)]).await;
    let _worker = start(&store, &job);
    tokio::time::sleep(ms(9_900)).await;
    assert_eq!((total(&store).await, result_of(&store, &ids[0]).await), (1, None));
    emptied(&store, secs(2)).await;
    assert_eq!(result_of(&store, &ids[0]).await, Some(b"10".to_vec()));
}

#[tokio::test(start_paused = true)]
async fn an_unannounced_kill_costs_at_most_one_step_and_one_interval() {
    for at_ms in [4_900, 5_100, 7_777, 12_345, 30_000] {
        let (store, job) = (memory::store(), Steps::default());
        enqueue(&store, &[Plan::new(100, 400)]).await;
        let worker = start(&store, &job);
        tokio::time::sleep(ms(at_ms)).await;
        worker.kill().await;
        let _next = start(&store, &job);
        emptied(&store, secs(300)).await;
        // An interval of 5 s is 13 steps of 400 ms, plus the step in progress.
        assert!(job.trace.redone() <= 14, "killed at {at_ms} ms: {} steps redone", job.trace.redone());
    }
}

#[tokio::test(start_paused = true)]
async fn an_announced_eviction_of_a_job_that_co_operates_costs_nothing() {
    let (store, job) = (memory::store(), Steps::default());
    enqueue(&store, &[Plan::new(40, 700); 4]).await;
    for _ in 0..3 {
        let worker = start(&store, &job);
        tokio::time::sleep(secs(8)).await;
        worker.evict(secs(30)).await;
        worker.kill().await;
    }
    let _last = start(&store, &job);
    emptied(&store, secs(300)).await;
    assert_eq!(job.trace.redone(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_hundred_evictions_never_poison_a_job_that_keeps_moving() {
    let (store, job) = (memory::store(), Steps::default());
    let ids = enqueue(&store, &[Plan::new(400, 600)]).await;
    for round in 0..100 {
        let worker = start(&store, &job);
        let before = job.trace.steps(&ids[0]).len();
        within(secs(30), "a step", async || job.trace.steps(&ids[0]).len() > before).await;
        worker.evict(secs(30)).await;
        worker.kill().await;
        assert_eq!(total(&store).await, 1, "gone after {round} evictions: {:?}", poisoned(&store).await);
    }
    let _last = start(&store, &job);
    emptied(&store, secs(600)).await;
    assert_eq!(poisoned(&store).await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_interrupted_at_the_same_place_however_often_is_never_poisoned() {
    // One is cut off in its long step each time; the other yields at once, but makes no progress
    // either.
    for habit in [Habit::Works, Habit::Watches] {
        let (store, job) = (memory::store(), Steps::default());
        let ids = enqueue(&store, &[Plan::new(3, 20_000).habit(habit)]).await;
        for _ in 0..30 {
            let worker = start(&store, &job);
            tokio::time::sleep(secs(15)).await;
            worker.evict(secs(30)).await;
            worker.kill().await;
        }
        assert_eq!(poisoned(&store).await, Vec::<String>::new(), "{habit:?}");
        let _last = start(&store, &job);
        within(secs(30), "a claim", async || {
            record(&store, &ids[0]).await.is_some_and(|record| record.account.interrupted == 30)
        })
        .await;
        emptied(&store, secs(120)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_kills_its_worker_each_time_is_dead_lettered_and_kept() {
    let (store, job) = (memory::store(), Steps::default());
    enqueue(&store, &[Plan::new(3, 10_000)]).await;
    for _ in 0..3 {
        let worker = start(&store, &job);
        within(secs(90), "in flight", async || worker.monitor.telemetry().in_flight.get() == 1).await;
        tokio::time::sleep(secs(2)).await;
        worker.kill().await;
    }
    let worker = start(&store, &job);
    emptied(&store, secs(120)).await;
    let reasons = poisoned(&store).await;
    assert!(reasons.len() == 1 && reasons[0].contains("the death of their worker"), "{reasons:?}");
    assert_eq!(worker.stop().await.completed, 0);
}

#[tokio::test(start_paused = true)]
async fn an_interruption_is_noted_in_the_message_itself_and_then_in_the_record() {
    let (store, job) = (memory::store(), Steps::default());
    let ids = enqueue(&store, &[Plan::new(100, 500)]).await;
    let worker = start(&store, &job);
    tokio::time::sleep(secs(3)).await;
    worker.evict(secs(30)).await;
    let held = store.queue.receive(1, secs(1)).await.unwrap();
    let body = String::from_utf8(held[0].body.clone()).unwrap();
    assert!(body.contains("interrupted") && !body.contains("failed"), "{body}");
    worker.kill().await;
    tokio::time::sleep(secs(2)).await;
    let _next = start(&store, &job);
    within(secs(5), "a claim", async || record(&store, &ids[0]).await.unwrap().owner.count == 3).await;
    let account = record(&store, &ids[0]).await.unwrap().account;
    assert_eq!((account.interrupted, account.vanished), (1, 0), "{account:?}");
}

/// A worker never holds more than it can release inside the budget, even for short jobs in a deep
/// queue.
#[tokio::test(start_paused = true)]
async fn a_worker_holds_no_more_than_it_can_release() {
    let (store, job) = (memory::store(), Steps::default());
    enqueue(&store, &vec![Plan::new(1, 20); 500]).await;
    let few = Settings { concurrency: 2, ..settings() };
    let _worker = start_with(&store, &job, few, ManualNotices::answered());
    let mut most = 0;
    while total(&store).await > 0 {
        most = most.max(leased(&store).await);
        tokio::time::sleep(ms(3)).await;
    }
    assert!((3..=34).contains(&most), "held {most} at once");
}

/// Another handle to the same queue, as another tool has it.
#[tokio::test(start_paused = true)]
async fn a_message_that_another_worker_deferred_is_completed_when_it_returns() {
    let (store, job) = (memory::store(), Steps::default());
    enqueue(&store, &[Plan::new(1, 10)]).await;
    let queue: &dyn Queue = &*store.queue;
    let held = queue.receive(1, secs(30)).await.unwrap();
    queue
        .release(&held[0].receipt, &Release { body: None, delay: secs(40), ..Release::default() })
        .await
        .unwrap();
    queue.send(vec![NewMessage { body: b"{}".to_vec(), delay: secs(0) }]).await.unwrap();
    let _worker = start(&store, &job);
    emptied(&store, secs(60)).await;
    assert_eq!(poisoned(&store).await.len(), 1, "the foreign body is kept");
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_store_that_does_not_answer_once_is_asked_again() {
    for op in [Op::Load, Op::Save, Op::Exists] {
        let (inner, job) = (memory::store(), Steps::default());
        enqueue(&inner, &[Plan::new(60, 500)]).await;
        let first = start(&inner, &job);
        tokio::time::sleep(secs(10)).await;
        first.kill().await;
        let (store, faults) = Faults::wrap(inner.clone());
        faults.next_calls(op, 1, Fault::Hang);
        let _next = start(&store, &job);
        emptied(&inner, secs(3600)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_does_not_wait_here_while_another_worker_is_idle() {
    let (store, job) = (memory::store(), Steps::default());
    enqueue(&store, &[Plan::new(1, 1); 64]).await;
    let _busy = start(&store, &job);
    emptied(&store, secs(30)).await;
    let ids = enqueue(&store, &[Plan::new(3600, 1000); 8]).await;
    tokio::time::sleep(secs(1)).await;
    let _idle = start(&store, &job);
    tokio::time::sleep(secs(600)).await;
    let running = ids.iter().filter(|id| !job.trace.steps(id).is_empty()).count();
    assert_eq!(running, 8);
}

#[tokio::test(start_paused = true)]
async fn events_of_two_sources_with_one_id_are_two_jobs() {
    let (store, job) = (memory::store(), Steps::default());
    for (source, steps) in [("/a", 3), ("/b", 5)] {
        let body =
            json!({"specversion":"1.0","id":"1","source":source,"type":"steps","data":Plan::new(steps, 10)})
                .to_string();
        store.queue.send(vec![NewMessage { body: body.into_bytes(), delay: secs(0) }]).await.unwrap();
    }
    let _worker = start(&store, &job);
    emptied(&store, secs(30)).await;
    assert_eq!(store.blobs.list("results/").await.unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn four_kills_while_merely_waiting_for_a_slot_do_not_poison() {
    let (store, job) = (memory::store(), Steps::default());
    enqueue(&store, &[Plan::new(1, 1); 64]).await;
    let worker = start(&store, &job);
    emptied(&store, secs(30)).await;
    enqueue(&store, &[Plan::new(2, 60_000); 12]).await;
    tokio::time::sleep(secs(1)).await;
    worker.kill().await;
    for _ in 0..3 {
        tokio::time::sleep(secs(61)).await;
        enqueue(&store, &[Plan::new(1, 1); 64]).await;
        let worker = start(&store, &job);
        tokio::time::sleep(secs(5)).await;
        worker.kill().await;
    }
    let _last = start(&store, &job);
    tokio::time::sleep(secs(400)).await;
    // A job that ran alone at its third death, as a worker's first suspect does, looks like a
    // killer.
    let reasons = poisoned(&store).await;
    assert!(reasons.len() <= 2 && reasons.iter().all(|reason| reason.contains("ran alone")), "{reasons:?}");
}

#[tokio::test(start_paused = true)]
async fn a_finished_job_leaves_no_running_record_when_the_answer_to_its_only_save_was_lost() {
    let inner = memory::store();
    let (store, faults) = Faults::wrap(inner.clone());
    faults.next_calls(Op::Save, 1, Fault::LoseAnswer);
    let worker = start(&store, &Steps::default());
    let ids = enqueue(&inner, &[Plan::new(8, 1000)]).await;
    emptied(&inner, secs(60)).await;
    worker.stop().await;
    assert_eq!(record(&inner, &ids[0]).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_record_that_lands_after_its_job_was_finished_finds_it_done() {
    let inner = memory::store();
    let (store, faults) = Faults::wrap(inner.clone());
    // The call takes longer than the job's timeout, and the store applies it in the end.
    faults.next_calls(Op::Save, 1, Fault::Fail(ErrorKind::TimedOut));
    let worker = start(&store, &Steps::default());
    let ids = enqueue(&inner, &[Plan::new(8, 1000)]).await;
    emptied(&inner, secs(60)).await;
    worker.stop().await;
    let done = record(&inner, &ids[0]).await.expect("a mark that the late write meets");
    assert_eq!(done.status, Status::Done);
    assert!(done.expires_unix_ms.is_some());
}
