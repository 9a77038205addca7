//! A worker that approves for another VM on which no worker answers.

use reprieve_azure::scheduled_events::document::EventType;
use reprieve_core::WorkerId;
use reprieve_core::clock::unix_millis;
use reprieve_core::ports::WorkerReport;
use tokio::time::sleep;

use crate::support::{NO_APPROVERS, QUIET, Set, by_a_user, event, logs, secs};

const FLAGS: [&str; 4] = ["--approve-for", "set_0", "--approve-wait", "1s"];

#[tokio::test]
async fn a_secondary_approves_for_a_primary_that_does_not_answer() {
    let set = Set::of(&["set_0", "set_1", "set_2"]).await;
    let secondary = set.worker("set_1", &FLAGS);
    secondary.started(&set.sandbox).await;
    let id = set.announce(&by_a_user(event(EventType::Reboot, &["set_0"], secs(600))));
    // Others are none of its business: a third VM, an eviction, and an event that names more VMs.
    let others = [
        set.announce(&event(EventType::Reboot, &["set_2"], secs(600))),
        set.announce(&event(EventType::Preempt, &["set_0"], secs(600))),
        set.announce(&event(EventType::Redeploy, &["set_0", "set_2"], secs(600))),
    ];
    logs(&secondary, "approved an event for other VMs, on which no worker answers").await;
    assert_eq!(set.approvers(&id), ["set_1"]);
    sleep(QUIET * 2).await;
    for other in others {
        assert_eq!(set.approvers(&other), NO_APPROVERS);
    }
    secondary.stop().await;
}

#[tokio::test]
async fn a_secondary_leaves_the_approval_to_a_primary_that_answers() {
    let set = Set::of(&["set_0", "set_1"]).await;
    let primary = set.worker("set_0", &["--approve", "never"]);
    let secondary = set.worker("set_1", &FLAGS);
    primary.started(&set.sandbox).await;
    secondary.started(&set.sandbox).await;
    let id = set.announce(&event(EventType::Reboot, &["set_0"], secs(600)));
    sleep(QUIET * 4).await;
    assert_eq!(set.approvers(&id), NO_APPROVERS);
    primary.stop().await;
    secondary.stop().await;
}

#[tokio::test]
async fn a_worker_without_a_metadata_service_does_not_keep_a_secondary_from_approving() {
    let set = Set::of(&["set_0", "set_1"]).await;
    // As on another machine.
    let report = WorkerReport {
        boot: "another".to_owned(),
        at_unix_ms: unix_millis(),
        stage: "start".to_owned(),
        ..WorkerReport::new(WorkerId::unique())
    };
    let roster = &set.sandbox.store().roster;
    let developer = WorkerReport { without_sources: true, ..report.clone() };
    let reporting = async {
        loop {
            let report = WorkerReport { at_unix_ms: unix_millis(), ..developer.clone() };
            roster.publish(&report).await.expect("a report");
            sleep(QUIET / 3).await;
        }
    };
    let secondary = set.worker("set_1", &FLAGS);
    secondary.started(&set.sandbox).await;
    let id = set.announce(&event(EventType::Reboot, &["set_0"], secs(600)));
    tokio::select! {
        _ = reporting => {}
        _ = logs(&secondary, "approved an event for other VMs, on which no worker answers") => {}
    }
    assert_eq!(set.approvers(&id), ["set_1"]);
    // One that does not know its name yet may be on any VM.
    let unnamed = WorkerReport { worker: WorkerId::unique(), at_unix_ms: unix_millis(), ..report };
    roster.publish(&unnamed).await.expect("a report");
    let id = set.announce(&event(EventType::Redeploy, &["set_0"], secs(600)));
    let why = "not approving an event for other VMs: a worker is on one of them, or its VM is not known yet";
    let line = logs(&secondary, why).await;
    assert_eq!(line.text("worker"), unnamed.worker.as_str());
    assert_eq!(set.approvers(&id), NO_APPROVERS);
    secondary.stop().await;
}
