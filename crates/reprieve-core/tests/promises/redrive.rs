//! A redriven job resumes at its checkpoint, with any tool, and any number of times.

use reprieve_core::envelope::Envelope;
use reprieve_core::memory::{self, Fault, Faults, Op};
use reprieve_core::ports::{NewMessage, Release, Store};
use reprieve_core::record::Status;
use reprieve_core::worker::{Settings, Worker};
use reprieve_core::{BlobName, ErrorKind, JobId, MessageId, Redrive, Redriven};
use serde_json::json;
use tokio::time::{sleep, timeout};

use crate::support::*;

/// Dead-letters a job that fails at step 30 of 40 until `heals`.
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

/// Returns the body of the only dead letter.
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
    assert_eq!(job.trace.steps(&id).len() - before, 10, "none of the first thirty steps is repeated");
    assert!(is_done(&store, &id).await);
}

#[tokio::test(start_paused = true)]
async fn a_redriven_job_has_all_its_attempts_and_keeps_its_history() {
    let (store, job) = (memory::store(), Steps::default());
    let id = poisoned_at_30(&store, &job).await;
    store.redrive(&Redrive::All).await.unwrap();
    let worker = start(&store, &job);
    within(secs(15), "its first new failure", async || {
        total(&store).await == 1 && record(&store, &id).await.unwrap().owner.count == 1
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

/// Of two copies of one dead letter, one runs and fails again; the other one is older than that and
/// revives nothing.
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
    assert_eq!(store.queue.dead_letters(9).await.unwrap().len(), 1, "the unreadable message stays");
}

/// A tool may move a dead letter back to its queue, where its delivery count restarts.
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
    store
        .queue
        .release(&returned.receipt, &Release { body: None, delay: secs(0), ..Release::default() })
        .await
        .unwrap();
    let _worker = start(&store, &job);
    emptied(&store, secs(15)).await;
    assert!(is_done(&store, &id).await);
}

/// The original message, sent again by another program.
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
    let lost = reprieve_core::telemetry::ByOutcome { kind: "steps".into(), outcome: "lease_lost" };
    assert_eq!(worker.monitor.telemetry().jobs.get_or_create(&lost).get(), 0);
}

/// A dead letter's attributes may be too large for the queue.
#[tokio::test(start_paused = true)]
async fn a_job_with_a_too_large_dead_letter_is_dead_lettered_unchanged_and_redriven() {
    for copy_fits in [true, false] {
        let (store, faults) = Faults::wrap(memory::store());
        let job = Steps::default();
        faults.next_calls(Op::DeadLetter, 1, Fault::Fail(ErrorKind::TooLarge));
        let id = poisoned_at_30(&store, &job).await;
        let body = letter(&store).await;
        assert_eq!(Envelope::read(&body, &MessageId::new("m"), None).unwrap().notes.generation, 0);
        let before = job.trace.steps(&id).len();
        job.heal();
        // Unchanged, it has the record's generation and was sent after the dead letter: that is a
        // redrive, too.
        faults.next_calls(Op::Send, u64::from(!copy_fits), Fault::Fail(ErrorKind::TooLarge));
        let redriven = store.redrive(&Redrive::All).await.unwrap();
        assert_eq!((&redriven.jobs[..], redriven.failures.len()), (std::slice::from_ref(&id), 0));
        let _worker = start(&store, &job);
        emptied(&store, secs(15)).await;
        let done = job.trace.steps(&id).len() - before;
        // A first delivery of generation 0 reads no record: it starts from the beginning until its
        // first save, and then resumes.
        let first_save = if copy_fits { 0 } else { 10 };
        assert_eq!(done, 10 + first_save, "most of the first thirty steps are not repeated");
        assert!(is_done(&store, &id).await);
    }
}

/// A message of an older generation than its job's record would be deleted.
#[tokio::test(start_paused = true)]
async fn a_letter_as_it_came_stays_where_its_generation_is_older_than_the_records() {
    let (store, faults) = Faults::wrap(memory::store());
    let job = Steps::default();
    faults.next_calls(Op::DeadLetter, 1, Fault::Fail(ErrorKind::TooLarge));
    let id = poisoned_at_30(&store, &job).await;
    rewrite(&store, &id, |record| record.generation = 1).await;
    faults.next_calls(Op::Send, 1, Fault::Fail(ErrorKind::TooLarge));
    let redriven = store.redrive(&Redrive::All).await.unwrap();
    assert_eq!((redriven.jobs.len(), redriven.failures.len()), (0, 1));
    assert_eq!(redriven.failures[0].error.kind(), ErrorKind::TooLarge);
    assert_eq!((total(&store).await, poisoned(&store).await.len()), (0, 1));
}

/// Jobs that have failed for good, in the poison queue, in the order of their letters.
async fn poisoned_jobs(store: &Store, jobs: usize) -> Vec<JobId> {
    let plans = vec![Plan::new(3, 10).habit(Habit::FatalAt(1)); jobs];
    enqueue(store, &plans).await;
    let worker = start(store, &Steps::default());
    emptied(store, secs(60)).await;
    worker.stop().await;
    let letters = store.queue.dead_letters(jobs).await.unwrap();
    letters.iter().map(|letter| Envelope::read(&letter.body, &letter.id, None).unwrap().job).collect()
}

/// A record in a later format: only its first line is known.
const NEWER: &[u8] = b"reprieve-record da470dd2 2 whatever\n";

#[tokio::test(start_paused = true)]
async fn one_record_that_cannot_be_read_keeps_no_other_job_from_being_redriven() {
    let store = memory::store();
    let ids = poisoned_jobs(&store, 40).await;
    overwrite(&store, &ids[0], NEWER.to_vec()).await;
    overwrite(&store, &ids[1], b"damaged".to_vec()).await;
    let redriven = store.redrive(&Redrive::All).await.unwrap();
    assert_eq!(redriven.jobs, ids[1..]);
    let failed: Vec<_> =
        redriven.failures.iter().map(|failure| (failure.job.clone(), failure.error.kind())).collect();
    assert_eq!(failed, [(Some(ids[0].clone()), ErrorKind::Incompatible)]);
    let letters = store.queue.receive_letters(32, secs(1)).await.unwrap();
    assert_eq!(letters.len(), 1, "the letter of the job with the newer record is there, and no longer held");
}

#[tokio::test(start_paused = true)]
async fn a_job_with_a_damaged_record_is_redriven_and_begins_again() {
    let (store, job) = (memory::store(), Steps::default());
    let id = poisoned_at_30(&store, &job).await;
    overwrite(&store, &id, b"damaged".to_vec()).await;
    let before = job.trace.steps(&id).len();
    job.heal();
    let redriven = store.redrive(&Redrive::Job(id.clone())).await.unwrap();
    assert_eq!((&redriven.jobs[..], redriven.failures.len()), (std::slice::from_ref(&id), 0));
    let _worker = start(&store, &job);
    emptied(&store, secs(60)).await;
    assert_eq!(job.trace.steps(&id).len() - before, 40, "all of its steps are repeated");
    assert!(is_done(&store, &id).await);
}

#[tokio::test(start_paused = true)]
async fn jobs_sent_before_the_store_failed_are_listed() {
    for op in [Op::Load, Op::Send, Op::RemoveLetter] {
        let (store, faults) = Faults::wrap(memory::store());
        let ids = poisoned_jobs(&store, 5).await;
        faults.next_calls(op, 2, Fault::Delay(ms(1)));
        faults.next_calls(op, 1, Fault::Fail(ErrorKind::Denied));
        let redriven = store.redrive(&Redrive::All).await.unwrap();
        let sent = if op == Op::RemoveLetter { 3 } else { 2 };
        assert_eq!((&redriven.jobs[..], total(&store).await), (&ids[..sent], sent as u64), "{op:?}");
        assert_eq!(redriven.failures.len(), 1, "{op:?}: {redriven:?}");
        assert_eq!(redriven.failures[0].job.as_ref(), Some(&ids[2]), "{op:?}");
        let letters = store.queue.receive_letters(32, secs(1)).await.unwrap();
        assert_eq!(letters.len(), 3, "{op:?}: the others can be received at once");
    }
    let (store, faults) = Faults::wrap(memory::store());
    poisoned_jobs(&store, 1).await;
    faults.next_calls(Op::ReceiveLetters, 1, Fault::Fail(ErrorKind::Denied));
    assert_eq!(store.redrive(&Redrive::All).await.unwrap_err().kind(), ErrorKind::Denied);
}

/// Dead letters that a killed redrive still holds.
#[tokio::test(start_paused = true)]
async fn letters_that_another_redrive_holds_are_counted_and_redriven_when_it_has_ended() {
    let store = memory::store();
    let ids = poisoned_jobs(&store, 5).await;
    send(&store, b"no job at all".to_vec()).await;
    store.queue.receive_letters(3, secs(120)).await.unwrap();
    let redriven = store.redrive(&Redrive::Job(ids[0].clone())).await.unwrap();
    assert_eq!((redriven.jobs, redriven.held), (vec![], Some(3)));
    let redriven = store.redrive(&Redrive::All).await.unwrap();
    assert_eq!((&redriven.jobs[..], redriven.held), (&ids[3..], Some(3)));
    tokio::time::sleep(Redriven::RETRY_AFTER).await;
    let redriven = store.redrive(&Redrive::All).await.unwrap();
    assert_eq!((&redriven.jobs[..], redriven.held), (&ids[..3], Some(0)));
}

#[tokio::test(start_paused = true)]
async fn dead_letters_that_are_not_selected_keep_no_lease() {
    let store = memory::store();
    let ids = poisoned_jobs(&store, 5).await;
    let redriven = store.redrive(&Redrive::Job(ids[1].clone())).await.unwrap();
    assert_eq!((&redriven.jobs[..], redriven.held), (&ids[1..2], Some(0)));
}

#[tokio::test(start_paused = true)]
async fn a_letter_that_shows_in_a_moment_is_redriven_too() {
    let store = memory::store();
    poisoned_jobs(&store, 2).await;
    store.queue.receive_letters(1, secs(1)).await.unwrap();
    let redriven = store.redrive(&Redrive::All).await.unwrap();
    assert_eq!((redriven.jobs.len(), redriven.held), (2, Some(0)));
}

#[tokio::test(start_paused = true)]
async fn a_redrive_ends_where_the_job_fails_again() {
    let (store, job) = (memory::store(), Steps::default());
    enqueue(&store, &[Plan::new(3, 10).habit(Habit::FatalAt(0))]).await;
    let _worker = start(&store, &job);
    within(secs(60), "a letter", async || !poisoned(&store).await.is_empty()).await;
    let (far, faults) = Faults::wrap(store.clone());
    for op in [Op::Send, Op::Load, Op::Save, Op::Delete, Op::ReceiveLetters, Op::RemoveLetter] {
        faults.every_call(op, Fault::Delay(ms(20)));
    }
    let ended = timeout(secs(600), far.redrive(&Redrive::All)).await;
    assert!(ended.is_ok());
}

/// Redrives all from 20 ms away, as in Azure, while a worker dead-letters again what it gets. Returns how many
/// messages were sent.
async fn redriven_from_afar(store: &Store) -> u64 {
    let (far, faults) = Faults::wrap(store.clone());
    faults.everything(Fault::Delay(ms(20)));
    let redriven = timeout(secs(600), far.redrive(&Redrive::All)).await.expect("it ends").unwrap();
    assert_eq!(redriven.failures.len(), 0, "{redriven:?}");
    within(secs(60), "the letter again", async || poisoned(store).await.len() == 1).await;
    faults.calls(Op::Send)
}

/// Its letter keeps its body, with its generation.
#[tokio::test(start_paused = true)]
async fn a_redrive_of_a_message_with_the_id_of_another_job_ends() {
    let (store, job) = (memory::store(), Steps::default());
    enqueue_as(&store, "mine", Plan::new(2, 1_000_000)).await;
    let settings = Settings { remember_done: secs(3_600), ..settings() };
    let builder = Worker::builder(store.clone()).settings(settings);
    let _worker = start_built(builder.job(job.clone()).job(Other));
    sleep(secs(5)).await;
    let foreign =
        json!({"specversion": "1.0", "id": "mine", "source": "reprieve", "type": "other", "data": null});
    send(&store, foreign.to_string().into_bytes()).await;
    within(secs(60), "a dead letter", async || !poisoned(&store).await.is_empty()).await;
    assert_eq!(redriven_from_afar(&store).await, 1);
}

/// Its letter is the message as it came.
#[tokio::test(start_paused = true)]
async fn a_redrive_of_a_letter_that_is_too_large_for_its_next_generation_ends() {
    let (store, faults) = Faults::wrap(memory::store());
    let job = Steps::default();
    for _ in 0..100 {
        faults.next_calls(Op::DeadLetter, 1, Fault::Fail(ErrorKind::TooLarge));
        faults.next_calls(Op::DeadLetter, 1, Fault::Delay(ms(1)));
    }
    enqueue(&store, &[Plan::new(3, 10).habit(Habit::FatalAt(1))]).await;
    let _worker = start(&store, &job);
    within(secs(60), "a dead letter", async || !poisoned(&store).await.is_empty()).await;
    assert_eq!(redriven_from_afar(&store).await, 1);
}
