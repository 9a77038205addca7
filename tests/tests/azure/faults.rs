//! Storage fails now and then in every possible way: nothing is lost, no job is blamed, drains keep
//! their budget.

use std::time::Duration;

use futures_util::future::join_all;
use reprieve_sim::control::evict;
use reprieve_sim::metadata::{Config, MetadataServer};
use reprieve_sim::storage::{Action, Operation, Rule, StorageServer};
use reprieve_tests::Sandbox;
use rustix::process::Signal;

use crate::support::{Walk, begun_by, double, drained, emptied, failures, worker};

const BUDGET: Duration = Duration::from_secs(4);

/// A fault, its probability, and its jobs.
struct Trouble {
    action: Action,
    probability: f64,
    /// The maximum number of injections per operation.
    times: Option<u64>,
    walk: Walk,
    jobs: usize,
}

const BRISK: Walk = Walk { steps: 12, each_ms: 60 };
const SLOW: Walk = Walk { steps: 4, each_ms: 250 };

/// Faults that cost a call little time.
const fn brief(action: Action, probability: f64) -> Trouble {
    Trouble { action, probability, times: None, walk: BRISK, jobs: 24 }
}

/// Faults that cost a call about a second.
const fn long(action: Action, probability: f64) -> Trouble {
    Trouble { action, probability, times: None, walk: SLOW, jobs: 16 }
}

/// Faults that cost a call its whole timeout, once for each operation.
const fn endless(action: Action) -> Trouble {
    Trouble { action, probability: 0.1, times: Some(1), walk: SLOW, jobs: 16 }
}

/// Injects the fault into every call of the workers with its probability.
fn befall(double: &StorageServer, trouble: &Trouble, seed: u64) {
    // One rule per operation: with a single rule, the random numbers would depend on how the
    // workers' calls interleave. The test counts the queue itself.
    let all = Operation::ALL.into_iter().filter(|operation| *operation != Operation::QueueProperties);
    for (number, operation) in (0..).zip(all) {
        let rule = Rule::new(trouble.action.clone()).on(operation);
        let Trouble { probability, times, .. } = *trouble;
        let rule = Rule { probability, times, seed: seed.wrapping_add(number), ..rule };
        double.add_fault(rule).expect("a fault");
    }
}

/// Two workers do all jobs while storage fails; one of them is evicted and replaced.
async fn survived(trouble: Trouble) {
    let seed: u64 = rand::random();
    let name = format!("{:?} at {} %, seed {seed}", trouble.action, trouble.probability * 100.0);
    let double = double().await;
    let sandbox = Sandbox::in_account(&double.connection_string(), 1).await;
    let mock = MetadataServer::start(Config::with_vms(["spot_0", "spot_1", "spot_2"])).await.expect("a mock");
    let start = |vm: &str| {
        let url = mock.vm_url(vm);
        let budget = format!("{}s", BUDGET.as_secs());
        let arguments = ["--metadata-url", &url, "--concurrency", "4", "--budget", &budget];
        worker(&sandbox, &[&arguments[..], &["--checkpoint-every", "0s", "--lease", "6s"]].concat())
    };
    let jobs = trouble.walk.enqueue(&sandbox, trouble.jobs).await;
    let first = start("spot_0");
    begun_by(&sandbox, &first, 1).await;
    befall(&double, &trouble, seed);
    let second = start("spot_1");
    evict(&mock.url(), "spot_0", Duration::from_secs(30)).await.expect("an eviction");
    let drain = drained(&first).await;
    println!("{name}: {drain}");
    assert!(drain.released_after <= BUDGET, "{name}: {drain}");
    let third = start("spot_2");
    emptied(&sandbox, Duration::from_secs(60)).await;
    let injected: u64 = double.faults().iter().map(|fault| fault.injected).sum();
    double.clear_faults();

    let left_over = trouble.walk.check(&sandbox, &jobs).await;
    let redone = sandbox.journal().redone();
    println!("{name}: {injected} faults; {redone} steps redone, {left_over} checkpoints left over");
    assert!(injected > 0, "{name}: no fault was injected");
    for mut worker in [first, second, third] {
        assert_eq!(failures(&worker), 0, "{name}: a fault of the storage was counted against a job");
        // A hanging call may still block the worker for its whole budget. A worker that had to
        // leave a message to its lease does not exit with success.
        worker.signal(Signal::TERM);
        worker.ended(BUDGET + Duration::from_secs(3)).await;
    }
}

/// All at once, each on its own double.
async fn all_survived(troubles: impl IntoIterator<Item = Trouble>) {
    join_all(troubles.into_iter().map(survived)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_on_storage_that_refuses_now_and_then() {
    all_survived([
        brief(Action::ServerBusy { retry_after_seconds: None }, 0.3),
        brief(Action::ServerBusy { retry_after_seconds: Some(1) }, 0.2),
        brief(Action::TooManyRequests { retry_after_seconds: None }, 0.3),
        brief(Action::OperationTimedOut, 0.2),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_on_storage_with_breaking_connections() {
    all_survived([brief(Action::Reset, 0.2), brief(Action::LoseAnswer, 0.1), brief(Action::Truncate, 0.1)])
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_on_storage_that_is_slow_or_does_not_answer() {
    all_survived([
        long(Action::Delay { by: Duration::from_millis(700) }, 0.3),
        long(Action::ApplyLate { by: Duration::from_millis(1_500) }, 0.1),
        endless(Action::Hang { applied: false }),
        endless(Action::Hang { applied: true }),
    ])
    .await;
}
