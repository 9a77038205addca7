//! Announced deletions.

use reprieve_azure::scheduled_events::document::EventType;
use reprieve_tests::until;

use crate::support::{PATIENCE, Set, Walk, drained, event, secs, walk};

#[tokio::test]
async fn a_termination_lets_a_job_finish_in_time_and_releases_the_others() {
    let set = Set::of(&["set_0"]).await;
    // Four seconds by its own estimate, and ten minutes by its reported progress.
    let short = set.enqueue(Walk { tells: true, ..walk(80) }).await;
    let long = set.enqueue(walk(12_000)).await;
    let worker = set.worker("set_0", &[]);
    set.stepped(&short, &worker, 4).await;
    set.stepped(&long, &worker, 4).await;
    let event = set.announce(&event(EventType::Terminate, &["set_0"], secs(30)));
    let released = async || (set.sandbox.depth().await.ready == Some(1)).then_some(());
    until("the long job is released", PATIENCE, released).await;
    let saved = set.saved(&long).await.expect("its progress");
    assert_eq!(saved, set.steps_by(&long, worker.pid()).len() as u64, "all of it");
    assert!(set.sandbox.result::<serde_json::Value>(&short).await.is_none(), "the short one still runs");
    let late = set.enqueue(walk(1)).await;

    let walked = set.done(&short).await;
    assert_eq!((walked.sum, walked.delivery, walked.pid), (79 * 80 / 2, 1, worker.pid()));
    let drain = drained(&worker).await;
    assert_eq!((drain.number("finished"), drain.number("saved"), drain.number("abandoned")), (1, 1, 0));
    assert_eq!(set.sandbox.journal().redone(), 0);
    assert!(set.steps_by(&late, worker.pid()).is_empty(), "no further job was received");
    assert_eq!(set.sandbox.depth().await.ready, Some(2));

    let approved = set.approved(&event).await;
    assert!(drain.at_unix_ms() <= approved, "the machine was not ready before");
    let event = set.event(&event);
    assert!(approved < event.announced_at_unix_ms + 29_000, "it need not wait for its time");
}
