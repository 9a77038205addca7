//! Several events at once.

use std::time::Duration;

use reprieve_azure::scheduled_events::document::EventType;

use crate::support::{
    NO_APPROVERS, QUIET, Set, by_a_user, drained, event, freeze, logs, secs, stages, stays, walk, works,
};

#[tokio::test]
async fn of_several_events_the_hardest_counts_and_work_goes_on_when_all_are_over() {
    let set = Set::of(&["set_0"]).await;
    let job = set.enqueue(walk(50)).await;
    let worker = set.worker("set_0", &["--approve", "never"]);
    set.stepped(&job, &worker, 4).await;
    let quarter = Duration::from_mins(15);
    let frozen = set.announce(&freeze("set_0", None, quarter));
    let moved = set.announce(&event(EventType::Redeploy, &["set_0"], quarter));
    logs(&worker, "received a notice; continuing to work").await;
    set.stepped(&job, &worker, 8).await;
    assert_eq!(stages(&worker), ["resume", "start"], "neither is due");

    let evicted = set.announce(&event(EventType::Preempt, &["set_0"], secs(20)));
    let drain = drained(&worker).await;
    assert_eq!((drain.text("notice"), drain.number("saved")), ("Preempt", 1));
    let restarted = set.announce(&by_a_user(event(EventType::Reboot, &["set_0"], quarter)));
    let rests = || stages(&worker).last().is_some_and(|stage| stage == "shutdown");
    set.begin(&frozen);
    set.withdraw(&evicted);
    stays("the worker holds no job while the user's restart is active", QUIET, rests).await;
    set.withdraw(&restarted);
    works(&worker).await;
    // The remaining events are not due, so the worker takes jobs after the freeze.
    set.complete(&frozen);
    let walked = set.done(&job).await;
    assert_eq!((walked.sum, walked.delivery, walked.pid), (49 * 50 / 2, 2, worker.pid()));
    assert_eq!(set.sandbox.journal().redone(), 0);
    for id in [frozen, moved, evicted, restarted] {
        assert_eq!(set.approvers(&id), NO_APPROVERS);
    }
    worker.stop().await;
}
