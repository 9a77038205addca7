//! Evictions.

use reprieve_azure::scheduled_events::document::EventType;

use crate::support::{QUIET, Set, drained, event, secs, stages, stays, walk, works};

#[tokio::test]
async fn an_eviction_is_drained_for_at_once_and_never_approved() {
    let set = Set::of(&["set_0", "set_1"]).await;
    let job = set.enqueue(walk(60)).await;
    // Even where every other event is approved at once.
    let worker = set.worker("set_0", &["--approve", "any", "--approve-user", "at-once"]);
    set.stepped(&job, &worker, 10).await;
    let eviction = set.announce(&event(EventType::Preempt, &["set_0"], secs(30)));
    let drain = drained(&worker).await;
    assert_eq!(drain.text("notice"), "Preempt");
    assert_eq!((drain.number("held"), drain.number("saved"), drain.number("work_lost_ms")), (1, 1, 0));

    // Another machine resumes the job, and the rest of the notice passes without an approval.
    let successor = set.worker("set_1", &[]);
    let walked = set.done(&job).await;
    assert_eq!((walked.sum, walked.delivery, walked.pid), (59 * 60 / 2, 2, successor.pid()));
    assert_eq!(set.sandbox.journal().redone(), 0);
    set.begin(&eviction);
    stays("no worker approves an eviction", QUIET, || set.approvers(&eviction).is_empty()).await;
    assert_eq!(stages(&worker).last().map(String::as_str), Some("shutdown"));
}

#[tokio::test]
async fn work_goes_on_through_recover_and_resume_when_an_eviction_is_withdrawn() {
    let set = Set::of(&["set_0"]).await;
    let job = set.enqueue(walk(60)).await;
    let worker = set.worker("set_0", &[]);
    set.stepped(&job, &worker, 10).await;
    let eviction = set.announce(&event(EventType::Preempt, &["set_0"], secs(30)));
    drained(&worker).await;
    set.withdraw(&eviction);
    works(&worker).await;
    assert_eq!(stages(&worker), ["resume", "start", "shutdown", "recover", "resume", "start"]);
    let walked = set.done(&job).await;
    assert_eq!((walked.sum, walked.delivery, walked.pid), (59 * 60 / 2, 2, worker.pid()));
    assert_eq!(set.sandbox.journal().redone(), 0);
    worker.stop().await;
}
