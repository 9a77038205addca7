//! The rebalance recommendation: this Spot VM is likelier than others to be evicted.

use std::time::Duration;

use reprieve_azure::scheduled_events::document::EventType;
use reprieve_testkit::Signal;
use reprieve_tests::{Worker, until};
use serde::Deserialize;
use serde_json::json;

use crate::support::{
    ENDLESS, NO_APPROVERS, PATIENCE, Set, Walk, drained, event, logs, secs, stages, walk, works,
};

#[derive(Debug, Deserialize)]
struct Spun {
    pid: u32,
}

#[tokio::test]
async fn an_advice_saves_and_leaves_all_but_short_jobs_to_others_until_an_eviction_follows() {
    let set = Set::of(&["set_0", "set_1"]).await;
    let running = set.enqueue(ENDLESS).await;
    let advised = set.worker("set_0", &["--approve", "any"]);
    set.stepped(&running, &advised, 4).await;
    assert_eq!(set.saved(&running).await, None);
    let ten_minutes = Duration::from_mins(10);
    let advice = set.announce(&event(EventType::SpotRebalanceRecommendation, &["set_0"], ten_minutes));
    until("progress is saved", PATIENCE, async || set.saved(&running).await).await;
    logs(&advised, "starting only jobs that are known to be short").await;

    let short = set.enqueue(Walk { tells: true, ..walk(10) }).await;
    assert_eq!(set.done(&short).await.pid, advised.pid(), "known short jobs are still done");
    let other = another(&set, &advised).await;
    // An hour by its own estimate, and one without an estimate.
    let long = set.enqueue(Walk { steps: 3, each_ms: 1_200_000, tells: true }).await;
    let unknown = set.sandbox.enqueue("spin", [json!({"steps": 1, "each_ms": 10})]).await.remove(0);
    let left = async || (set.sandbox.depth().await.ready == Some(2)).then_some(());
    until("both are in the queue", PATIENCE, left).await;
    let refused = logs(&advised, "releasing the job for another worker").await;
    assert!([&long, &unknown].iter().any(|job| job.as_str() == refused.text("job")), "{refused:?}");
    other.signal(Signal::CONT);
    let spun: Spun = until("the job is done", PATIENCE, async || set.sandbox.result(&unknown).await).await;
    assert_eq!(spun.pid, other.pid());
    set.stepped(&long, &other, 1).await;
    assert!(set.steps_by(&long, advised.pid()).is_empty());
    // The running job continues.
    let before = set.steps_by(&running, advised.pid()).len();
    set.stepped(&running, &advised, before + 3).await;
    assert_eq!(stages(&advised), ["resume", "start"]);

    let eviction = set.announce(&event(EventType::Preempt, &["set_0"], secs(30)));
    let drain = drained(&advised).await;
    assert_eq!((drain.text("notice"), drain.number("held"), drain.number("saved")), ("Preempt", 1, 1));
    set.stepped(&running, &other, 3).await;
    assert_eq!(set.sandbox.journal().redone(), 0);
    for id in [advice, eviction] {
        assert_eq!(set.approvers(&id), NO_APPROVERS);
    }
}

#[tokio::test]
async fn jobs_of_any_length_are_begun_again_when_an_advice_is_withdrawn() {
    let set = Set::of(&["set_0", "set_1"]).await;
    let worker = set.worker("set_0", &[]);
    works(&worker).await;
    let ten_minutes = Duration::from_mins(10);
    let advice = set.announce(&event(EventType::SpotRebalanceRecommendation, &["set_0"], ten_minutes));
    logs(&worker, "starting only jobs that are known to be short").await;
    let other = another(&set, &worker).await;
    let unknown = set.enqueue(walk(4)).await;
    assert_eq!(logs(&worker, "releasing the job for another worker").await.text("job"), unknown.as_str());
    assert!(set.steps_by(&unknown, worker.pid()).is_empty());

    set.withdraw(&advice);
    logs(&worker, "starting jobs of any length again").await;
    let walked = set.done(&unknown).await;
    assert_eq!((walked.sum, walked.pid), (6, worker.pid()));
    assert_eq!(stages(&worker), ["resume", "start"]);
    worker.stop().await;
    other.signal(Signal::CONT);
    other.stop().await;
}

/// Nobody else could begin a long job, so it begins here.
#[tokio::test]
async fn jobs_of_any_length_are_begun_while_no_other_machine_could() {
    let set = Set::of(&["set_0"]).await;
    let worker = set.worker("set_0", &[]);
    works(&worker).await;
    let advice = event(EventType::SpotRebalanceRecommendation, &["set_0"], Duration::from_mins(10));
    set.announce(&advice);
    logs(&worker, "starting only jobs that are known to be short").await;
    let unknown = set.enqueue(walk(4)).await;
    assert_eq!(set.done(&unknown).await.pid, worker.pid());
    worker.stop().await;
}

/// Starts a worker of another machine, which stops when the first one knows of it.
async fn another(set: &Set, first: &Worker) -> Worker {
    let other = set.worker("set_1", &[]);
    works(&other).await;
    logs(first, "another machine could begin long jobs; they are left to it").await;
    other.signal(Signal::STOP);
    other
}
