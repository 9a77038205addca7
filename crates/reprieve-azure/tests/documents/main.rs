//! A worker with random documents in random order: it does nothing after a drain, approves only its
//! own events, and never waits without limit.

mod job;
mod script;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::select_all;
use proptest::prelude::*;
use reprieve_core::checkpoint::CheckpointEvery;
use reprieve_core::interruption::Stage;
use reprieve_core::interruption::{Approve, ApproveUser, Policy, PredictedFailure};
use reprieve_core::memory;
use reprieve_core::ports::Store;
use reprieve_core::worker::{Monitor, Settings, Worker, stopping};
use reprieve_core::{NewJob, Producer};
use tokio::time::{Instant, sleep, timeout};

use job::{Walk, Walked};
use script::{Script, TimedDocument, documents};

/// This VM's name.
const NAME: &str = "vm_0";

/// The time after a drain's start by which every step must have seen it: a step that begins at the
/// same moment may not have.
const SEEN: Duration = Duration::from_millis(200);

/// Longer than any document of a script can keep a worker idle: the latest `NotBefore`, and half an
/// hour.
const FOREVER: Duration = Duration::from_hours(2);

fn policy() -> impl Strategy<Value = Policy> {
    let approve =
        prop_oneof![Just(Approve::Never), Just(Approve::Sole), Just(Approve::Leader), Just(Approve::Any)];
    let approve_user = prop_oneof![Just(ApproveUser::Drained), Just(ApproveUser::AtOnce)];
    let predicted = prop_oneof![Just(PredictedFailure::Warn), Just(PredictedFailure::Drain)];
    (approve, approve_user, predicted, 0..20_u64).prop_map(
        |(approve, approve_user, predicted_failure, under)| Policy {
            approve,
            approve_user,
            predicted_failure,
            approve_freeze_under: Duration::from_secs(under),
            ..Policy::default()
        },
    )
}

/// Every stage of the worker, and its time.
async fn stages(monitor: Monitor, seen: Arc<Mutex<Vec<(Instant, Stage)>>>) {
    loop {
        let stage = monitor.stage();
        seen.lock().unwrap_or_else(PoisonError::into_inner).push((Instant::now(), stage));
        let others = [Stage::Recover, Stage::Resume, Stage::Start, Stage::Shutdown, Stage::Stopped];
        let others = others.into_iter().filter(|other| *other != stage);
        select_all(others.map(|other| Box::pin(monitor.reached(other)))).await;
    }
}

async fn enqueue(store: &Store) {
    let job = NewJob::of::<Walk>(&30).expect("a job");
    Producer::new(store.clone()).enqueue(vec![job]).await.expect("enqueued");
}

async fn emptied(store: &Store) {
    while store.queue.depth().await.expect("a depth").total > 0 {
        sleep(Duration::from_secs(1)).await;
    }
}

async fn lives_through(script: Vec<TimedDocument>, policy: Policy, ends: bool) -> Result<(), TestCaseError> {
    let (store, walked) = (memory::store(), Walked::default());
    let source = Arc::new(Script::new(NAME, policy.approve));
    let settings = Settings {
        concurrency: 2,
        checkpoint_every: CheckpointEvery::Every(Duration::from_secs(5)),
        policy,
        ..Settings::default()
    };
    let worker = Worker::builder(store.clone()).job(Walk(walked.clone())).vm(NAME).settings(settings);
    let worker = worker.interruptions(Arc::clone(&source) as _).build().expect("a worker");
    let seen = Arc::<Mutex<Vec<_>>>::default();
    let watching = tokio::spawn(stages(worker.monitor(), Arc::clone(&seen)));
    let (stopper, stopping) = stopping();
    let running = tokio::spawn(worker.run(stopping));

    let mut patience = Vec::new();
    for TimedDocument { document, wait } in script {
        enqueue(&store).await;
        patience.push((Instant::now(), source.has_patience(&document)));
        source.set_answer(document);
        sleep(wait).await;
    }
    if ends {
        source.set_answer(script::nothing());
    }
    enqueue(&store).await;
    let done = timeout(FOREVER, emptied(&store)).await;
    prop_assert!(done.is_ok(), "jobs wait without end under {:?}", source.document());
    watching.abort();
    stopper.stop();
    let ended = timeout(Duration::from_secs(30), running).await;
    prop_assert!(ended.is_ok(), "the worker does not end");

    let stages = seen.lock().unwrap_or_else(PoisonError::into_inner);
    for began in walked.begun() {
        let stage = stages.iter().rfind(|(at, _)| *at <= began);
        let drained_since = stage.filter(|(_, stage)| *stage == Stage::Shutdown);
        let is_late = drained_since.is_some_and(|(at, _)| began > *at + SEEN);
        // The end of the waiting time is seen a little later, too.
        let before = patience.iter().rfind(|(at, _)| *at + SEEN <= began);
        let since = patience.iter().filter(|(at, _)| *at <= began && *at + SEEN > began);
        let patient = before.into_iter().chain(since).any(|(_, patient)| *patient);
        prop_assert!(
            !is_late || patient,
            "a step began {:?} after a drain",
            drained_since.map(|(at, _)| began - *at)
        );
    }
    let faults = source.faults();
    prop_assert!(faults.is_empty(), "{}", faults.join("; "));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn no_sequence_of_documents_is_too_much(script in documents(), policy in policy(), ends in any::<bool>()) {
        let clock = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        clock.expect("a runtime").block_on(lives_through(script, policy, ends))?;
    }
}
