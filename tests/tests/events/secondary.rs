//! A worker that approves for another VM on which no worker answers.

use reprieve_azure::scheduled_events::document::EventType;
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
