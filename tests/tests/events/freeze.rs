//! Freezes: the VM pauses for a while, and keeps its memory.

use std::time::Duration;

use reprieve_core::clock::unix_millis;
use reprieve_tests::until;
use rustix::process::Signal;
use tokio::time::sleep;

use crate::support::{
    NO_APPROVERS, PATIENCE, QUIET, Set, freeze, logs, secs, sees_the_start, stages, stays, walk,
};

/// As long as several renewals, so that a freeze outlasts a lease that is not renewed for it.
const LEASE: [&str; 2] = ["--lease", "3s"];

const VERIFYING: &str = "the freeze has ended; verifying every lease";

#[tokio::test]
async fn a_short_freeze_is_approved_once_the_leases_outlast_it_and_disturbs_no_job() {
    let set = Set::of(&["set_0", "set_1"]).await;
    let job = set.enqueue(walk(80)).await;
    let worker = set.worker("set_0", &LEASE);
    set.stepped(&job, &worker, 4).await;
    // This worker would get the job if the lease ended.
    let other = set.worker("set_1", &LEASE);
    assert!(set.leases().iter().all(|end| *end < unix_millis() + 3_000));

    let id = set.announce(&freeze("set_0", Some(4), Duration::from_mins(15)));
    let approved = set.approved(&id).await;
    let lasts = set.leases().into_iter().min().expect("a lease") - approved;
    // Twice the announced duration, for a second freeze, and some seconds more.
    assert!(lasts >= 13_000 - 1_000, "the lease lasts only {lasts} ms from the approval on");
    assert!(set.sandbox.result::<serde_json::Value>(&job).await.is_none(), "the job still runs");
    // This is the freeze. The worker sees its start only after its end, for some minutes.
    worker.signal(Signal::STOP);
    sleep(secs(4)).await;
    worker.signal(Signal::CONT);
    sees_the_start(&worker).await;
    set.complete(&id);

    let verified = logs(&worker, VERIFYING).await;
    assert_eq!(verified.number("leases"), 1);
    let walked = set.done(&job).await;
    assert_eq!((walked.sum, walked.delivery, walked.pid), (79 * 80 / 2, 1, worker.pid()));
    assert_eq!(set.sandbox.journal().redone(), 0);
    assert_eq!(stages(&worker), ["resume", "start"]);
    assert_eq!(worker.log().lines("pausing all jobs until the freeze has ended").len(), 0);
    worker.stop().await;
    other.stop().await;
}

/// Announces a freeze in a second, of this many seconds or of unknown duration.
async fn rested_through(seconds: Option<u64>) {
    let set = Set::of(&["set_0", "set_1"]).await;
    let job = set.enqueue(walk(80)).await;
    let flags = [&LEASE[..], &["--approve", "any", "--during-freeze", "pause"]].concat();
    let worker = set.worker("set_0", &flags);
    set.stepped(&job, &worker, 4).await;
    let other = set.worker("set_1", &LEASE);
    let id = set.announce(&freeze("set_0", seconds, secs(1)));
    logs(&worker, "pausing all jobs until the freeze has ended").await;
    // The current step ends, and then the job is saved.
    let rests_at = until("progress is saved", PATIENCE, async || set.saved(&job).await).await;
    let lasts = set.leases().into_iter().min().expect("a lease") - unix_millis();
    let needed = i64::try_from(seconds.unwrap_or(60) * 2 * 1_000).expect("a time");
    assert!(lasts >= needed, "the lease lasts only {lasts} ms");
    let begun = || set.steps_by(&job, worker.pid()).len() as u64;
    stays("no step is begun", QUIET, || begun() == rests_at).await;
    // Longer than the remaining lease.
    worker.signal(Signal::STOP);
    sleep(secs(4)).await;
    worker.signal(Signal::CONT);
    stays("no step is begun", secs(1), || begun() == rests_at).await;

    set.complete(&id);
    logs(&worker, VERIFYING).await;
    logs(&worker, "resuming the paused jobs").await;
    let walked = set.done(&job).await;
    assert_eq!((walked.sum, walked.delivery, walked.pid), (79 * 80 / 2, 1, worker.pid()));
    assert_eq!(set.sandbox.journal().redone(), 0);
    assert_eq!(set.approvers(&id), NO_APPROVERS, "the event began by itself");
    assert_eq!(stages(&worker), ["resume", "start"]);
    worker.stop().await;
    other.stop().await;
}

#[tokio::test]
async fn jobs_pause_between_steps_if_set_while_a_long_freeze_lasts_and_then_continue() {
    // Run the cases at the same time: they mostly wait.
    tokio::join!(rested_through(None), rested_through(Some(30)));
}

#[tokio::test]
async fn a_freeze_that_is_withdrawn_changes_nothing() {
    let set = Set::of(&["set_0"]).await;
    let job = set.enqueue(walk(45)).await;
    let worker = set.worker("set_0", &[]);
    set.stepped(&job, &worker, 4).await;
    let id = set.announce(&freeze("set_0", None, secs(30)));
    logs(&worker, "received a notice; continuing to work").await;
    set.withdraw(&id);
    logs(&worker, "a notice is no longer active").await;
    let walked = set.done(&job).await;
    assert_eq!((walked.sum, walked.delivery, walked.pid), (44 * 45 / 2, 1, worker.pid()));
    assert_eq!(stages(&worker), ["resume", "start"]);
    for message in ["pausing all jobs until the freeze has ended", VERIFYING] {
        assert_eq!(worker.log().lines(message).len(), 0, "{message}");
    }
    worker.stop().await;
}
