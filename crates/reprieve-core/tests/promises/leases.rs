//! Leases are renewed however long a step is, and a job with a lost lease is stopped before another
//! worker has it.

use reprieve_core::ErrorKind;
use reprieve_core::memory::{self, Fault, Faults, Op};
use tokio::time::Instant;

use reprieve_core::record::seal;

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn a_step_many_times_longer_than_its_lease_is_delivered_once() {
    let (store, job) = (memory::store(), Steps::default());
    let ids = enqueue(&store, &[Plan::new(1, 3_600_000)]).await;
    let worker = start(&store, &job);
    emptied(&store, secs(3700)).await;
    assert_eq!(job.trace.steps(&ids[0]), [0]);
    let metrics = worker.monitor.telemetry().encode();
    assert!(metrics.contains("reprieve_leases_lost_total 0"), "{metrics}");
}

#[tokio::test(start_paused = true)]
async fn a_job_without_renewals_is_cancelled_before_its_lease_lapses() {
    for fault in [Fault::Fail(ErrorKind::Unavailable), Fault::Hang] {
        let (inner, job) = (memory::store(), Steps::default());
        let (store, faults) = Faults::wrap(inner.clone());
        faults.every_call(Op::Renew, fault);
        enqueue(&inner, &[Plan::new(1000, 500)]).await;
        let began = Instant::now();
        let _partitioned = start(&store, &job);
        within(secs(5), "in flight", async || leased(&inner).await == 1).await;
        faults.every_call(Op::Receive, Fault::Hang);
        tokio::time::sleep(secs(300)).await;
        let stopped_after = job.trace.last_step_at() - began;
        assert!((secs(50)..=secs(55)).contains(&stopped_after), "{fault:?}: stopped after {stopped_after:?}");
        assert_eq!(ready(&inner).await, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn renewals_that_fail_for_a_while_lose_nothing() {
    let (inner, job) = (memory::store(), Steps::default());
    let (store, faults) = Faults::wrap(inner.clone());
    faults.next_calls(Op::Renew, 4, Fault::Fail(ErrorKind::Unavailable));
    let ids = enqueue(&inner, &[Plan::new(300, 500)]).await;
    let _worker = start(&store, &job);
    emptied(&inner, secs(200)).await;
    assert_eq!((job.trace.redone(), job.trace.steps(&ids[0]).len()), (0, 300));
}

#[tokio::test(start_paused = true)]
async fn a_lost_receipt_cancels_the_job_and_settles_nothing() {
    let (inner, job) = (memory::store(), Steps::default());
    let (store, faults) = Faults::wrap(inner.clone());
    // After a renewal with a lost response the worker has an old receipt.
    faults.next_calls(Op::Renew, 1, Fault::LoseAnswer);
    enqueue(&inner, &[Plan::new(400, 500)]).await;
    let worker = start(&store, &job);
    within(secs(60), "the loss", async || {
        worker.monitor.telemetry().encode().contains("reprieve_leases_lost_total 1")
    })
    .await;
    assert_eq!(total(&inner).await, 1);
    emptied(&inner, secs(600)).await;
    assert_eq!(poisoned(&inner).await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_completion_with_a_lost_response_counts_as_completed() {
    let (inner, job) = (memory::store(), Steps::default());
    let (store, faults) = Faults::wrap(inner.clone());
    faults.next_calls(Op::Complete, 1, Fault::LoseAnswer);
    enqueue(&inner, &[Plan::new(2, 10)]).await;
    let worker = start(&store, &job);
    emptied(&inner, secs(15)).await;
    within(secs(5), "the count", async || faults.calls(Op::Complete) == 2).await;
    assert_eq!(worker.stop().await.completed, 1);
}

#[tokio::test(start_paused = true)]
async fn receives_that_fail_are_tried_again_ever_more_rarely() {
    let (inner, job) = (memory::store(), Steps::default());
    let (store, faults) = Faults::wrap(inner.clone());
    faults.every_call(Op::Receive, Fault::Fail(ErrorKind::Unavailable));
    let _worker = start(&store, &job);
    tokio::time::sleep(secs(120)).await;
    let calls = faults.calls(Op::Receive);
    assert!((12..40).contains(&calls), "{calls} receives in two minutes");
    faults.clear_all();
    enqueue(&inner, &[Plan::new(1, 10)]).await;
    emptied(&inner, secs(15)).await;
}

#[tokio::test(start_paused = true)]
async fn a_stale_receipt_does_not_pass_for_a_completion() {
    let (inner, job) = (memory::store(), Steps::default());
    let (store, faults) = Faults::wrap(inner.clone());
    faults.next_calls(Op::Renew, 1, Fault::LoseAnswer);
    faults.next_calls(Op::Complete, 1, Fault::Fail(ErrorKind::TimedOut));
    enqueue(&inner, &[Plan::new(44, 500)]).await;
    let worker = start(&store, &job);
    tokio::time::sleep(secs(30)).await;
    emptied(&inner, secs(600)).await;
    assert!(job.trace.redone() <= 14, "{} steps redone", job.trace.redone());
    assert_eq!(worker.stop().await.completed, 1);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_ended_in_a_drain_is_not_taken_for_settled() {
    let (inner, job) = (memory::store(), Steps::default());
    let (store, faults) = Faults::wrap(inner.clone());
    faults.every_call(Op::Renew, Fault::Fail(ErrorKind::Unavailable));
    faults.every_call(Op::Complete, Fault::Hang);
    let ids = enqueue(&inner, &[Plan::new(108, 500)]).await;
    let worker = start(&store, &job);
    within(secs(5), "in flight", async || leased(&inner).await == 1).await;
    tokio::time::sleep(ms(53_700)).await;
    worker.notices.notice(preempt("x").at(Instant::now() + secs(30)));
    tokio::time::sleep(ms(6_400)).await;
    let other = inner.queue.receive(1, secs(60)).await.unwrap();
    assert_eq!(other[0].dequeue_count, 2);
    // The next owner has claimed the job, as any worker would.
    let mut theirs = record(&inner, &ids[0]).await.unwrap();
    theirs.owner.count = 2;
    theirs.owner.nonce = "theirs".to_owned();
    overwrite(&inner, &ids[0], seal(&theirs)).await;
    faults.clear(Op::Complete);
    tokio::time::sleep(secs(12)).await;
    assert_eq!(record(&inner, &ids[0]).await, Some(theirs), "the successor still owns its record");
}

#[tokio::test(start_paused = true)]
async fn where_the_body_has_no_room_the_record_keeps_how_the_delivery_ended() {
    let (inner, job) = (memory::store(), Steps::default());
    let (store, faults) = Faults::wrap(inner.clone());
    let ids = enqueue(&inner, &[Plan::new(100, 500)]).await;
    let worker = start(&store, &job);
    within(secs(5), "in flight", async || leased(&inner).await == 1).await;
    faults.next_calls(Op::Release, 1, Fault::Fail(ErrorKind::TooLarge));
    let report = worker.evict(secs(30)).await;
    assert_eq!(ready(&inner).await, 1, "{report:?}");
    assert_eq!(record(&inner, &ids[0]).await.unwrap().account.interrupted, 1);
    worker.kill().await;
    let _next = start(&inner, &job);
    within(secs(5), "a claim", async || record(&inner, &ids[0]).await.unwrap().owner.count == 2).await;
    assert_eq!(record(&inner, &ids[0]).await.unwrap().account.vanished, 0);
}

#[tokio::test(start_paused = true)]
async fn receives_with_a_lost_response_do_not_poison() {
    let (inner, job) = (memory::store(), Steps::default());
    let (store, faults) = Faults::wrap(inner.clone());
    faults.next_calls(Op::Receive, 200, Fault::LoseAnswer);
    enqueue(&inner, &[Plan::new(1, 500)]).await;
    let _worker = start(&store, &job);
    within(secs(3600), "done", async || total(&inner).await == 0).await;
    assert_eq!(poisoned(&inner).await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_role_missing_for_a_while_does_not_poison_finished_jobs() {
    let (inner, job) = (memory::store(), Steps::default());
    let (store, faults) = Faults::wrap(inner.clone());
    faults.every_call(Op::Complete, Fault::Fail(ErrorKind::Denied));
    enqueue(&inner, &[Plan::new(1, 500)]).await;
    let _worker = start(&store, &job);
    tokio::time::sleep(secs(150)).await;
    faults.clear_all();
    emptied(&inner, secs(150)).await;
    assert_eq!(poisoned(&inner).await, Vec::<String>::new());
}
