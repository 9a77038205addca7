//! Storage that goes wrong now and then, in every way there is: nothing is lost, no job is blamed, drains keep their budget.

use std::time::Duration;

use futures_util::future::join_all;
use reprieve_sim::control::evict;
use reprieve_sim::metadata::{Config, MetadataServer};
use reprieve_sim::storage::{Action, Operation, Rule, StorageServer};
use reprieve_tests::Sandbox;
use rustix::process::Signal;

use crate::support::{Walk, begun_by, double, drained, emptied, failures, worker};

const BUDGET: Duration = Duration::from_secs(4);

/// A way to go wrong, how often, and for which jobs.
struct Trouble {
    action: Action,
    probability: f64,
    walk: Walk,
    jobs: usize,
}

/// Trouble that costs a call little time.
const fn brief(action: Action, probability: f64) -> Trouble {
    Trouble { action, probability, walk: Walk { steps: 12, each_ms: 60 }, jobs: 24 }
}

/// Trouble that costs a call up to the ten seconds that it is waited for.
const fn long(action: Action, probability: f64) -> Trouble {
    Trouble { action, probability, walk: Walk { steps: 5, each_ms: 200 }, jobs: 16 }
}

/// Lets every call of the workers go wrong as often as is said.
fn befall(double: &StorageServer, trouble: &Trouble, seed: u64) {
    // Of one rule for all calls the dice would depend on how the workers' calls mix. The test counts the queue itself.
    let all = Operation::ALL.into_iter().filter(|operation| *operation != Operation::QueueProperties);
    for (number, operation) in (0..).zip(all) {
        let rule = Rule::new(trouble.action.clone()).on(operation);
        let rule = Rule { probability: trouble.probability, seed: seed.wrapping_add(number), ..rule };
        double.add_fault(rule).expect("a fault");
    }
}

/// Two workers do all jobs while storage goes wrong; one of them is evicted and replaced.
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
    befall(&double, &trouble, seed);
    let (first, second) = (start("spot_0"), start("spot_1"));
    begun_by(&sandbox, &first, 1).await;
    evict(&mock.url(), "spot_0", Duration::from_secs(30)).await.expect("an eviction");
    let drain = drained(&first).await;
    println!("{name}: {drain}");
    assert!(drain.released_after <= BUDGET, "{name}: {drain}");
    let third = start("spot_2");
    emptied(&sandbox, Duration::from_secs(60)).await;
    let befell: u64 = double.faults().iter().map(|fault| fault.befell).sum();
    double.clear_faults();

    let left_over = trouble.walk.check(&sandbox, &jobs).await;
    let redone = sandbox.journal().redone();
    println!("{name}: {befell} faults; {redone} steps redone, {left_over} checkpoints left over");
    assert!(befell >= 3, "{name}: only {befell} faults");
    for mut worker in [first, second, third] {
        assert_eq!(failures(&worker), 0, "{name}: a fault of the storage was counted against a job");
        // One that had to leave a message to its lease in between does not end with success.
        worker.signal(Signal::TERM);
        worker.ended(BUDGET).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_on_storage_that_refuses_now_and_then() {
    join_all([
        survived(brief(Action::ServerBusy { retry_after_seconds: None }, 0.3)),
        survived(brief(Action::ServerBusy { retry_after_seconds: Some(1) }, 0.2)),
        survived(brief(Action::TooManyRequests { retry_after_seconds: None }, 0.3)),
        survived(brief(Action::OperationTimedOut, 0.2)),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_on_storage_whose_connections_break() {
    join_all([
        survived(brief(Action::Reset, 0.2)),
        survived(brief(Action::LoseAnswer, 0.1)),
        survived(brief(Action::Truncate, 0.1)),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_on_storage_that_is_slow_or_does_not_answer() {
    join_all([
        survived(long(Action::Delay { by: Duration::from_millis(700) }, 0.3)),
        survived(long(Action::ApplyLate { by: Duration::from_millis(1_500) }, 0.1)),
        survived(long(Action::Hang { applied: false }, 0.03)),
        survived(long(Action::Hang { applied: true }, 0.03)),
    ])
    .await;
}
