//! Faults of the metadata service, before an event and in the middle of it.

use std::time::Duration;

use reprieve_azure::scheduled_events::document::EventType;
use reprieve_core::clock::unix_millis;
use reprieve_sim::metadata::{Endpoint, FaultRule, Span};
use reprieve_tests::{Worker, until};

use crate::support::{NO_APPROVERS, PATIENCE, Set, Walk, by_a_user, drained, event, logs, secs, walk, works};

/// Every fault of an answer that costs a second.
const KINDS: [&str; 7] = ["429", "reset", "410", "hang", "500", "empty", "break-off"];

/// Injects that fault into the next request of each of these kinds.
fn fail(set: &Set, endpoint: Endpoint, kinds: &[&str]) {
    for kind in kinds {
        let rule = FaultRule { endpoint, requests: Some(1), ..FaultRule::new(kind) };
        set.mock.add_fault(&rule).expect("a fault");
    }
}

/// A worker that starts during the faults.
fn began_badly(set: &Set) -> Worker {
    fail(set, Endpoint::ScheduledEvents, &["500", "hang"]);
    fail(set, Endpoint::Instance, &["429", "reset"]);
    set.worker("set_0", &["--budget", "8s"])
}

async fn evicted() {
    let set = Set::of(&["set_0"]).await;
    let job = set.enqueue(walk(100_000)).await;
    let worker = began_badly(&set);
    set.stepped(&job, &worker, 4).await;
    fail(&set, Endpoint::ScheduledEvents, &KINDS);
    let id = set.announce(&event(EventType::Preempt, &["set_0"], secs(30)));
    let drain = drained(&worker).await;
    assert_eq!((drain.number("held"), drain.number("saved"), drain.number("abandoned")), (1, 1, 0));
    assert!(set.mock.state().faults.is_empty(), "every fault was met before the notice");
    let took = drain.at_unix_ms() - set.event(&id).announced_at_unix_ms;
    assert!(took < 20_000, "it took {took} ms to drain through {} faults", KINDS.len());
    assert_eq!(set.sandbox.journal().redone(), 0);
    assert_eq!(set.approvers(&id), NO_APPROVERS);
}

async fn restarted() {
    let set = Set::of(&["set_0"]).await;
    // A step takes longer than the notice, so the faults come before the drain has ended.
    let job = set.enqueue(Walk { steps: 100, each_ms: 2_500, tells: false }).await;
    let worker = began_badly(&set);
    set.stepped(&job, &worker, 1).await;
    fail(&set, Endpoint::ScheduledEvents, &["410", "reset"]);
    let passed = async || set.mock.state().faults.is_empty().then_some(());
    until("the faults have passed", PATIENCE, passed).await;
    let steps = set.steps_by(&job, worker.pid()).len();
    set.stepped(&job, &worker, steps + 1).await;
    let restart = by_a_user(event(EventType::Reboot, &["set_0"], Duration::from_mins(15)));
    let id = set.announce(&restart);
    logs(&worker, "received a notice; draining").await;
    // Approvals are refused like every other request.
    let lasts = secs(5);
    set.mock.add_fault(&FaultRule { lasts: Some(Span(lasts)), ..FaultRule::new("500") }).expect("a fault");
    let until_then = unix_millis() + 4_900;
    let drain = drained(&worker).await;
    assert_eq!((drain.number("saved"), drain.number("cut")), (1, 0));
    assert!(drain.at_unix_ms() < until_then, "the drain needs no answer");
    set.approved(&id).await;
    assert_eq!(set.approvers(&id), ["set_0"]);
    let approved_at = set.event(&id).approvals[0].at_unix_ms;
    assert!(approved_at >= until_then, "a refused approval approves nothing, so it was tried again");
    // Jobs continue after the event, which the worker sees when the service answers again.
    set.complete(&id);
    works(&worker).await;
    let steps = set.steps_by(&job, worker.pid()).len();
    set.stepped(&job, &worker, steps + 1).await;
    assert_eq!(set.sandbox.journal().redone(), 0);
}

#[tokio::test]
async fn an_eviction_and_a_restart_are_handled_through_all_that_the_service_does_wrong() {
    // Run the cases at the same time: they mostly wait.
    tokio::join!(evicted(), restarted());
}
