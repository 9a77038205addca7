//! Events for several VMs: an approval starts the event for all of them.

use std::time::Duration;

use reprieve_azure::scheduled_events::document::EventType;
use reprieve_sim::metadata::EventPlan;
use reprieve_tests::until;

use crate::support::{ENDLESS, PATIENCE, QUIET, Set, Walk, by_a_user, drained, event, logs, stays};

const QUARTER: Duration = Duration::from_mins(15);

/// A restart of these VMs that a user waits for: each worker is ready as soon as possible.
fn restart(vms: &[&str]) -> EventPlan {
    by_a_user(event(EventType::Reboot, vms, QUARTER))
}

async fn by_default() {
    let set = Set::of(&["set_0", "set_1"]).await;
    let workers = ["set_0", "set_1"].map(|vm| set.worker(vm, &[]));
    let job = set.enqueue(ENDLESS).await;
    until("the job has begun", PATIENCE, async || set.sandbox.journal().read().pop()).await;
    let id = set.announce(&restart(&["set_0", "set_1"]));
    for worker in &workers {
        drained(worker).await;
    }
    stays("neither approves", QUIET, || set.approvers(&id).is_empty()).await;
    assert!(set.saved(&job).await.is_some());
}

async fn whoever_it_names() {
    let set = Set::of(&["set_0", "set_1"]).await;
    let worker = set.worker("set_1", &["--approve", "any"]);
    // No worker runs on the other VM, and none is waited for.
    let id = set.announce(&restart(&["set_0", "set_1"]));
    let approved = set.approved(&id).await;
    assert!(drained(&worker).await.at_unix_ms() <= approved, "the worker itself is ready");
    assert_eq!(set.approvers(&id), ["set_1"]);
}

async fn the_neighbours() {
    let set = Set::of(&["set_0", "set_1"]).await;
    let worker = set.worker("set_0", &["--approve", "any", "--approve-user", "at-once"]);
    crate::support::works(&worker).await;
    let id = set.announce(&restart(&["set_1"]));
    stays("it is none of its business", QUIET, || set.approvers(&id).is_empty()).await;
    assert_eq!(crate::support::stages(&worker), ["resume", "start"]);
}

#[tokio::test]
async fn an_event_for_several_machines_is_approved_by_none_of_them_unless_set() {
    // Run the cases at the same time: they mostly wait.
    tokio::join!(by_default(), whoever_it_names(), the_neighbours());
}

#[tokio::test]
async fn the_first_named_machine_approves_once_every_one_is_ready() {
    const NAMES: [&str; 3] = ["set_1", "set_0", "set_2"];
    let set = Set::of(&["set_0", "set_1", "set_2"]).await;
    // One worker releases its job late: its steps are long, and its budget allows it.
    let flags = ["--approve", "leader", "--budget", "8s"];
    let slow = set.worker("set_0", &flags);
    let job = set.enqueue(Walk { steps: 100, each_ms: 2_500, tells: false }).await;
    set.stepped(&job, &slow, 1).await;
    let quick = ["set_1", "set_2"].map(|vm| set.worker(vm, &flags));
    for worker in &quick {
        crate::support::works(worker).await;
    }
    let steps = set.steps_by(&job, slow.pid()).len();
    set.stepped(&job, &slow, steps + 1).await;

    let id = set.announce(&restart(&NAMES));
    set.were_ready(&id, &["set_0", "set_1", "set_2"]).await;
    for worker in &quick {
        drained(worker).await;
    }
    let drain = drained(&slow).await;
    let approved = set.approved(&id).await;
    assert_eq!((drain.number("saved"), drain.number("cut")), (1, 0));
    assert!(drain.at_unix_ms() <= approved, "not before all of them are ready");
    assert_eq!(set.approvers(&id), ["set_1"]);
    // The other two do not approve.
    stays("it stays the only approval", QUIET, || set.approvers(&id) == ["set_1"]).await;
    for worker in quick.iter().skip(1).chain([&slow]) {
        assert_eq!(worker.log().lines("approving the events").len(), 0);
    }
    assert_eq!(set.sandbox.journal().redone(), 0);
}

#[tokio::test]
async fn a_machine_that_never_is_ready_leaves_the_event_to_begin_by_itself() {
    let set = Set::of(&["set_0", "set_1"]).await;
    let worker = set.worker("set_0", &["--approve", "leader", "--approve-wait", "1s"]);
    let id = set.announce(&restart(&["set_0", "set_1"]));
    drained(&worker).await;
    let gave_up = logs(&worker, "not all workers were ready in time; the event begins at its own time").await;
    assert!(gave_up.text("missing").contains("set_1"), "{gave_up:?}");
    stays("no worker approves", QUIET, || set.approvers(&id).is_empty()).await;
}
