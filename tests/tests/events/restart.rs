//! Restarts, and moves to other hardware.

use std::time::Duration;

use reprieve_azure::scheduled_events::document::EventType;
use reprieve_core::JobId;
use reprieve_tests::{Worker, until};

use crate::support::{
    ENDLESS, NO_APPROVERS, PATIENCE, QUIET, Set, by_a_user, drained, event, logs, secs, stages, stays, walk,
    works,
};

/// Starts the approved event: the worker's process and its memory are gone. Its successor resumes
/// the job.
async fn restart(set: &Set, id: &str, mut worker: Worker, job: &JobId) {
    let started = async || {
        set.event(id).starts_at_unix_ms.filter(|_| set.mock.state().document.events[0].not_before.is_empty())
    };
    until("the event begins, because it is approved", PATIENCE, started).await;
    worker.kill();
    let saved = set.saved(job).await.expect("its progress");
    set.complete(id);
    let successor = set.worker("set_0", &[]);
    set.stepped(job, &successor, 3).await;
    assert_eq!(set.steps_by(job, successor.pid())[0], saved);
    assert_eq!(set.sandbox.journal().redone(), 0);
    successor.stop().await;
}

/// An event of this type by the platform, ten seconds ahead.
async fn by_the_platform(event_type: EventType) {
    let set = Set::of(&["set_0"]).await;
    let job = set.enqueue(ENDLESS).await;
    let worker = set.worker("set_0", &[]);
    set.stepped(&job, &worker, 4).await;
    assert_eq!(set.saved(&job).await, None, "only a notice makes it save");
    let id = set.announce(&event(event_type, &["set_0"], secs(10)));
    until("progress is saved", PATIENCE, async || set.saved(&job).await).await;
    // The worker continues, with this job and with new ones.
    let next = set.enqueue(walk(4)).await;
    let walked = set.done(&next).await;
    assert_eq!((walked.sum, walked.delivery, walked.pid), (6, 1, worker.pid()));
    assert_eq!(stages(&worker), ["resume", "start"], "no drain has begun");
    assert_eq!(set.approvers(&id), NO_APPROVERS);

    let drain = drained(&worker).await;
    assert_eq!((drain.number("held"), drain.number("saved"), drain.number("work_lost_ms")), (1, 1, 0));
    let announced = set.event(&id).announced_at_unix_ms;
    // `NotBefore` has whole seconds: it may be nearly a second early.
    let began = logs(&worker, "received a notice; draining").await.at_unix_ms() - announced;
    assert!(
        (2_900..5_000).contains(&began),
        "the budget and 5 s before its time, not {began} ms after the notice"
    );
    let approved = set.approved(&id).await;
    assert!(
        drain.at_unix_ms() <= approved && approved < announced + 9_000,
        "when drained, and before its time"
    );
    restart(&set, &id, worker, &job).await;
}

/// An event of this type by a user.
async fn asked_for(event_type: EventType) {
    let set = Set::of(&["set_0"]).await;
    let job = set.enqueue(ENDLESS).await;
    let worker = set.worker("set_0", &[]);
    set.stepped(&job, &worker, 4).await;
    let id = set.announce(&by_a_user(event(event_type, &["set_0"], Duration::from_mins(15))));
    let drain = drained(&worker).await;
    assert_eq!((drain.number("held"), drain.number("saved"), drain.number("work_lost_ms")), (1, 1, 0));
    let approved = set.approved(&id).await;
    assert!(drain.at_unix_ms() <= approved, "when drained");
    assert!(approved < set.event(&id).announced_at_unix_ms + 10_000, "at once then");
    restart(&set, &id, worker, &job).await;
}

#[tokio::test]
async fn a_restart_is_saved_for_at_once_drained_for_in_time_and_approved() {
    // Run the cases at the same time, here and below: they mostly wait.
    tokio::join!(by_the_platform(EventType::Reboot), by_the_platform(EventType::Redeploy));
}

#[tokio::test]
async fn a_restart_that_a_user_waits_for_is_drained_for_and_approved_at_once() {
    tokio::join!(asked_for(EventType::Reboot), asked_for(EventType::Redeploy));
}

const DAYS: Duration = Duration::from_hours(7 * 24);

async fn warned_of() {
    let set = Set::of(&["set_0"]).await;
    let job = set.enqueue(walk(60)).await;
    let worker = set.worker("set_0", &[]);
    set.stepped(&job, &worker, 4).await;
    let id = set.announce(&event(EventType::Redeploy, &["set_0"], DAYS));
    until("progress is saved", PATIENCE, async || set.saved(&job).await).await;
    let advice = until("the worker logs its advice", PATIENCE, async || {
        worker.log().text().lines().find(|line| line.contains("predicted to fail")).map(str::to_owned)
    })
    .await;
    assert!(advice.contains("az vm redeploy") && advice.contains("WARN"), "{advice}");
    let walked = set.done(&job).await;
    assert_eq!((walked.delivery, walked.pid), (1, worker.pid()));
    stays("no worker approves", QUIET, || set.approvers(&id).is_empty()).await;
    assert_eq!(stages(&worker), ["resume", "start"]);
    assert_eq!(worker.log().text().matches("predicted to fail").count(), 1, "once is enough");
    worker.stop().await;
}

async fn drained_for() {
    let set = Set::of(&["set_0"]).await;
    let job = set.enqueue(ENDLESS).await;
    let worker = set.worker("set_0", &["--predicted-failure", "drain"]);
    set.stepped(&job, &worker, 4).await;
    let id = set.announce(&event(EventType::Redeploy, &["set_0"], DAYS));
    let drain = drained(&worker).await;
    assert_eq!((drain.number("held"), drain.number("saved")), (1, 1));
    assert!(drain.at_unix_ms() <= set.approved(&id).await);
    set.complete(&id);
    // After the move it works again.
    works(&worker).await;
    let before = set.steps_by(&job, worker.pid()).len();
    set.stepped(&job, &worker, before + 3).await;
    assert_eq!(set.sandbox.journal().redone(), 0);
    worker.stop().await;
}

#[tokio::test]
async fn a_move_off_a_host_that_will_fail_is_warned_of_or_as_set_drained_for_and_approved() {
    tokio::join!(warned_of(), drained_for());
}
