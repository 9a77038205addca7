//! Events that are already started when they are first seen, as after a hardware failure.

use reprieve_azure::scheduled_events::document::EventType;
use reprieve_sim::metadata::EventPlan;

use crate::support::{NO_APPROVERS, Set, drained, logs, walk};

async fn begun(event_type: EventType) {
    let set = Set::of(&["set_0"]).await;
    let job = set.enqueue(walk(40)).await;
    let worker = set.worker("set_0", &["--approve", "any", "--during-freeze", "pause"]);
    set.stepped(&job, &worker, 4).await;
    let rests = event_type == EventType::Freeze;
    let id = set.announce(&EventPlan { started: true, ..EventPlan::new(event_type.clone(), ["set_0"]) });
    let acted = if rests {
        logs(&worker, "pausing all jobs until the freeze has ended").await
    } else {
        let drain = drained(&worker).await;
        assert_eq!(drain.text("notice"), event_type.as_str());
        assert_eq!((drain.number("held"), drain.number("saved"), drain.number("work_lost_ms")), (1, 1, 0));
        drain
    };
    let took = acted.at_unix_ms() - set.event(&id).announced_at_unix_ms;
    // A second until the worker sees it, and the current step.
    assert!(took < 5_000, "it took {took} ms to act on {event_type:?}");
    assert_eq!(set.approvers(&id), NO_APPROVERS, "a started event needs no approval");

    set.complete(&id);
    let walked = set.done(&job).await;
    assert_eq!((walked.sum, walked.pid), (39 * 40 / 2, worker.pid()));
    assert_eq!(walked.delivery, if rests { 1 } else { 2 });
    assert_eq!(set.sandbox.journal().redone(), 0);
    worker.stop().await;
}

#[tokio::test]
async fn an_event_that_has_begun_unannounced_is_acted_on_at_once() {
    // Run the cases at the same time: they mostly wait.
    tokio::join!(
        begun(EventType::Preempt),
        begun(EventType::Terminate),
        begun(EventType::Reboot),
        begun(EventType::Redeploy),
        begun(EventType::Freeze)
    );
}
