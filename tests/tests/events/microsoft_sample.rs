//! The approvals of Microsoft's Python sample, by settings alone: every event of a user at once,
//! and freezes that are shorter than nine seconds.
//! <https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events#python-sample>

use std::time::Duration;

use reprieve_azure::scheduled_events::document::EventType;

use crate::support::{QUIET, Set, Walk, by_a_user, drained, event, freeze, secs, stages, stays};

#[tokio::test]
async fn the_approvals_of_microsofts_sample_are_a_matter_of_settings() {
    let set = Set::of(&["set_0", "set_1"]).await;
    let flags = ["--approve", "any", "--approve-user", "at-once", "--approve-freeze-under", "9s"];
    let worker = set.worker("set_0", &[&flags[..], &["--budget", "8s"]].concat());
    let job = set.enqueue(Walk { steps: 100, each_ms: 2_500, tells: false }).await;
    set.stepped(&job, &worker, 1).await;
    let later = Duration::from_mins(15);
    let frozen = |seconds| freeze("set_0", seconds, later);

    // Impactful, and for the application to handle.
    let left = [frozen(Some(9)), frozen(None), event(EventType::Reboot, &["set_0"], later)];
    let left = left.map(|plan| set.announce(&plan));
    let approved = [frozen(Some(0)), frozen(Some(5)), frozen(Some(8))].map(|plan| set.announce(&plan));
    for id in &approved {
        set.approved(id).await;
    }
    stays("the others are not approved", QUIET, || left.iter().all(|id| set.approvers(id).is_empty())).await;
    assert_eq!(stages(&worker), ["resume", "start"]);

    // The sample approves a user's event whatever its type and its VMs.
    let steps = set.steps_by(&job, worker.pid()).len();
    set.stepped(&job, &worker, steps + 1).await;
    let users = set.announce(&by_a_user(event(EventType::Reboot, &["set_1", "set_0"], later)));
    let approved_at = set.approved(&users).await;
    let drain = drained(&worker).await;
    assert!(approved_at < drain.at_unix_ms(), "at once, and not when drained");
    assert!(approved_at < set.event(&users).announced_at_unix_ms + 3_000);
    assert_eq!((drain.number("saved"), drain.number("cut")), (1, 0));
    stays("the others are not approved", secs(1), || left.iter().all(|id| set.approvers(id).is_empty()))
        .await;
}
