//! A job that was dead-lettered goes on from its checkpoint when it is sent again, by whatever tool, and however often.

use reprieve_core::memory;
use reprieve_core::ports::{NewMessage, Release, Store};
use reprieve_core::record::Status;
use reprieve_core::{BlobName, JobId, Redrive};

use crate::support::*;

/// A job that fails at step 30 of 40 until `heals`, in the poison queue.
async fn poisoned_at_30(store: &Store, job: &Steps) -> JobId {
    let ids = enqueue(store, &[Plan::new(40, 500).habit(Habit::FailsUntilHealed(30))]).await;
    let worker = start(store, job);
    within(secs(900), "the poison queue", async || poisoned(store).await.len() == 1).await;
    worker.stop().await;
    let record = record(store, &ids[0]).await.expect("it stays");
    assert!(matches!(record.status, Status::DeadLettered { .. }), "{record:?}");
    ids[0].clone()
}

async fn is_done(store: &Store, job: &JobId) -> bool {
    let result = BlobName::parse(format!("results/{job}.json")).unwrap();
    store.blobs.exists(&result).await.unwrap()
}

/// The body of the one dead letter.
async fn letter(store: &Store) -> Vec<u8> {
    store.queue.dead_letters(1).await.unwrap().remove(0).body
}

async fn send(store: &Store, body: Vec<u8>) {
    store.queue.send(vec![NewMessage { body, delay: secs(0) }]).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_redriven_job_goes_on_from_its_checkpoint_at_once() {
    let (store, job) = (memory::store(), Steps::default());
    let id = poisoned_at_30(&store, &job).await;
    let before = job.trace.steps(&id).len();
    job.heal();
    let redriven = store.redrive(&Redrive::Job(id.clone())).await.unwrap();
    assert_eq!(redriven.jobs, std::slice::from_ref(&id));
    assert_eq!(poisoned(&store).await, Vec::<String>::new());
    let _worker = start(&store, &job);
    emptied(&store, secs(15)).await;
    assert_eq!(job.trace.steps(&id).len() - before, 10, "none of the first thirty is done again");
    assert!(is_done(&store, &id).await);
}

#[tokio::test(start_paused = true)]
async fn a_redriven_job_has_all_its_attempts_and_keeps_its_history() {
    let (store, job) = (memory::store(), Steps::default());
    let id = poisoned_at_30(&store, &job).await;
    store.redrive(&Redrive::All).await.unwrap();
    let worker = start(&store, &job);
    within(secs(15), "its first new failure", async || {
        total(&store).await == 1 && record(&store, &id).await.unwrap().generation == 1
    })
    .await;
    let claimed = record(&store, &id).await.unwrap();
    assert_eq!((claimed.account.failed, claimed.owner.count), (0, 1), "{claimed:?}");
    assert!(claimed.history.len() >= 4, "{:?}", claimed.history);
    within(secs(900), "the poison queue again", async || poisoned(&store).await.len() == 1).await;
    worker.stop().await;
    assert_eq!(record(&store, &id).await.unwrap().generation, 1);
}

#[tokio::test(start_paused = true)]
async fn a_letter_that_another_tool_sends_again_is_redriven_too() {
    for times in [1, 2, 3] {
        let (store, job) = (memory::store(), Steps::default());
        let id = poisoned_at_30(&store, &job).await;
        let before = job.trace.steps(&id).len();
        job.heal();
        for _ in 0..times {
            let body = letter(&store).await;
            send(&store, body).await;
        }
        let workers = [start(&store, &job), start(&store, &job)];
        emptied(&store, secs(300)).await;
        assert_eq!(job.trace.steps(&id).len() - before, 10, "sent {times} times");
        assert!(is_done(&store, &id).await);
        drop(workers);
    }
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_comes_after_the_redriven_job_is_done_runs_nothing() {
    let (store, job) = (memory::store(), Steps::default());
    let id = poisoned_at_30(&store, &job).await;
    let body = letter(&store).await;
    job.heal();
    store.redrive(&Redrive::All).await.unwrap();
    let _worker = start(&store, &job);
    emptied(&store, secs(15)).await;
    let (before, copies) = (job.trace.steps(&id).len(), 3);
    for _ in 0..copies {
        send(&store, body.clone()).await;
    }
    emptied(&store, secs(15)).await;
    assert_eq!(job.trace.steps(&id).len(), before);
    assert_eq!(poisoned(&store).await, Vec::<String>::new());
}

/// Of two copies of one letter, one is worked on and fails again; the other, which is older than that, revives nothing.
#[tokio::test(start_paused = true)]
async fn a_second_copy_older_than_the_new_letter_revives_nothing() {
    let (store, job) = (memory::store(), Steps::default());
    let id = poisoned_at_30(&store, &job).await;
    let body = letter(&store).await;
    store.redrive(&Redrive::All).await.unwrap();
    // The second copy waits until the first has failed again.
    store.queue.send(vec![NewMessage { body, delay: secs(1_200) }]).await.unwrap();
    let _worker = start(&store, &job);
    within(secs(1_100), "the poison queue", async || poisoned(&store).await.len() == 1).await;
    emptied(&store, secs(1_300)).await;
    assert_eq!(poisoned(&store).await.len(), 1, "one letter");
    assert_eq!(record(&store, &id).await.unwrap().generation, 1);
}

#[tokio::test(start_paused = true)]
async fn one_job_is_redriven_and_the_other_letters_stay() {
    let (store, job) = (memory::store(), Steps::default());
    let plans = [Plan::new(3, 10).habit(Habit::FatalAt(1)); 40];
    let ids = enqueue(&store, &plans).await;
    send(&store, b"no job at all".to_vec()).await;
    let worker = start(&store, &job);
    emptied(&store, secs(60)).await;
    worker.stop().await;
    let redriven = store.redrive(&Redrive::Job(ids[20].clone())).await.unwrap();
    assert_eq!((redriven.jobs, redriven.unreadable), (vec![ids[20].clone()], 1));
    assert_eq!((store.queue.depth().await.unwrap().poisoned, total(&store).await), (Some(40), 1));
    let none = store.redrive(&Redrive::Job(JobId::parse("unheard-of").unwrap())).await.unwrap();
    assert_eq!(none.jobs, []);
    assert_eq!(store.redrive(&Redrive::All).await.unwrap().jobs.len(), 39);
    assert_eq!(store.queue.dead_letters(9).await.unwrap().len(), 1, "what is no job stays");
}

/// A tool may move a letter back to the queue that it came from, where its count begins again.
#[tokio::test(start_paused = true)]
async fn a_letter_that_comes_back_with_its_old_id_and_a_new_count_is_claimed_at_once() {
    let (store, job) = (memory::store(), Steps::default());
    let id = poisoned_at_30(&store, &job).await;
    job.heal();
    let letters = store.queue.receive_letters(1, secs(60)).await.unwrap();
    let body = letters[0].body.clone();
    send(&store, body).await;
    let returned = store.queue.receive(1, secs(60)).await.unwrap().remove(0);
    rewrite(&store, &id, |record| record.owner.message = returned.id.clone()).await;
    store.queue.release(&returned.receipt, &Release { body: None, delay: secs(0) }).await.unwrap();
    let _worker = start(&store, &job);
    emptied(&store, secs(15)).await;
    assert!(is_done(&store, &id).await);
}

/// The original message, sent again by whoever keeps it.
#[tokio::test(start_paused = true)]
async fn an_original_message_that_is_sent_again_after_the_letter_takes_over_without_waiting_for_a_lease() {
    let (store, job) = (memory::store(), Steps::default());
    let id = poisoned_at_30(&store, &job).await;
    job.heal();
    let plan = Plan::new(40, 500).habit(Habit::FailsUntilHealed(30));
    let event = serde_json::json!({
        "specversion": "1.0", "id": id.as_str(), "source": "reprieve", "type": "steps", "data": plan,
    });
    send(&store, event.to_string().into_bytes()).await;
    let worker = start(&store, &job);
    within(secs(20), "its result", async || is_done(&store, &id).await).await;
    let lost = reprieve_core::telemetry::ByOutcome { kind: "steps".to_owned(), outcome: "lease_lost" };
    assert_eq!(worker.monitor.telemetry().jobs.get_or_create(&lost).get(), 0);
}
