//! Storage outages: workers wait for it, drains end without it, and nothing is lost.

use std::time::Duration;

use reprieve_sim::storage::{Action, Operation, Rule, StorageServer};
use reprieve_tests::azurite::Azurite;
use reprieve_tests::{Sandbox, Worker};
use rustix::process::Signal;
use tokio::time::Instant;

use crate::support::{PATIENCE, Walk, begun, begun_by, double, drained, emptied, failures, worker};

const BUDGET: Duration = Duration::from_secs(3);

/// How long a worker may take to end beyond its budget. It writes its last report for two seconds,
/// on a machine that may be busy.
const GRACE: Duration = Duration::from_millis(2_500);

/// Stops a worker that can't reach its storage, and checks that it ends in time and logs what it
/// left.
async fn ends_without_storage(what: &str, mut worker: Worker, held: u64) {
    let asked = Instant::now();
    worker.signal(Signal::TERM);
    let status = worker.ended(PATIENCE).await;
    let took = asked.elapsed();
    let drain = drained(&worker).await;
    println!("{what}: SIGTERM to exit {} ms; {drain}", took.as_millis());
    assert!(took < BUDGET + GRACE, "it took {took:?}");
    assert_eq!(status.code(), Some(1), "its message was not released, so it exits with 1");
    assert_eq!((drain.held, drain.abandoned), (held, held), "{drain}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_waits_for_an_azurite_that_is_restarted_and_another_ends_without_it() {
    const WALK: Walk = Walk { steps: 30, each_ms: 200 };
    const SLOTS: usize = 4;
    let Some(mut azurite) = Azurite::own() else { return };
    let sandbox = Sandbox::in_account(&azurite.connection_string(), 1).await;
    // More jobs than slots, so that there is a message to receive after the outage.
    let jobs = WALK.enqueue(&sandbox, 2 * SLOTS + 4).await;
    let common = ["--concurrency", "4", "--checkpoint-every", "500ms"];
    let patient = worker(&sandbox, &common);
    let leaving = worker(&sandbox, &[&common[..], &["--lease", "6s", "--budget", "3s"]].concat());
    begun_by(&sandbox, &patient, SLOTS).await;
    begun_by(&sandbox, &leaving, SLOTS).await;

    let gone = Instant::now();
    azurite.stop();
    ends_without_storage("Azurite is away", leaving, SLOTS as u64).await;
    azurite.start();
    println!("Azurite was away for {} ms", gone.elapsed().as_millis());
    emptied(&sandbox, Duration::from_secs(60)).await;

    assert_eq!(WALK.check(&sandbox, &jobs).await, 0, "checkpoints left over");
    assert_eq!(failures(&patient), 0, "a storage outage does not count against a job");
    assert!(
        !patient.log().text().contains("lease was lost"),
        "the worker lost a job: {}",
        patient.log().text()
    );
    patient.stop().await;
}

/// The ways in which storage does nothing.
fn dead(action: &Action, double: &StorageServer) {
    // The test itself still counts the queue's messages.
    for operation in Operation::ALL.into_iter().filter(|operation| *operation != Operation::QueueProperties) {
        double.add_fault(Rule::new(action.clone()).on(operation)).expect("a fault");
    }
}

/// Drains a worker during this outage, and lets another one do the rest.
async fn drained_on(action: Action) {
    const WALK: Walk = Walk { steps: 20, each_ms: 200 };
    let double = double().await;
    let sandbox = Sandbox::in_account(&double.connection_string(), 1).await;
    let jobs = WALK.enqueue(&sandbox, 8).await;
    let arguments = ["--concurrency", "4", "--checkpoint-every", "0s", "--lease", "6s", "--budget", "3s"];
    let first = worker(&sandbox, &arguments);
    begun(&sandbox, 4).await;

    let what = format!("{action:?}");
    dead(&action, &double);
    ends_without_storage(&what, first, 4).await;
    double.clear_faults();
    let second = worker(&sandbox, &arguments);
    emptied(&sandbox, PATIENCE).await;
    assert_eq!(WALK.check(&sandbox, &jobs).await, 0, "checkpoints left over");
    assert_eq!(failures(&second), 0);
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_ends_while_storage_is_busy_silent_or_resets_every_connection() {
    tokio::join!(
        drained_on(Action::ServerBusy { retry_after_seconds: Some(30) }),
        drained_on(Action::Hang { applied: false }),
        drained_on(Action::Reset),
    );
}
