//! Jobs that were queued twice because the response to a send was lost still complete once, and dead letters are sent once.

use std::time::Duration;

use reprieve_sim::storage::{Action, Latency, Operation, Rule};
use reprieve_tests::{Sandbox, Walked, until};
use serde_json::json;

use crate::support::{PATIENCE, Walk, double, emptied, failures, worker};

const WALK: Walk = Walk { steps: 5, each_ms: 20 };
const JOBS: usize = 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_that_were_sent_twice_come_out_right() {
    let seed: u64 = rand::random();
    println!("seed {seed}");
    let double = double().await;
    let sandbox = Sandbox::in_account(&double.connection_string(), 1).await;
    let lost = Rule::new(Action::LoseAnswer).on(Operation::Send);
    double.add_fault(Rule { probability: 0.4, seed, ..lost }).expect("a fault");
    let jobs = WALK.enqueue(&sandbox, JOBS).await;
    double.clear_faults();
    let messages = sandbox.depth().await.total;
    println!("{messages} messages for {JOBS} jobs");
    assert!(messages > JOBS as u64, "no response was lost");

    let arguments = ["--concurrency", "4", "--checkpoint-every", "0s"];
    let workers = [worker(&sandbox, &arguments), worker(&sandbox, &arguments)];
    for job in &jobs {
        let walked: Walked = until("the job is done", PATIENCE, async || sandbox.result(job).await).await;
        assert_eq!(walked.sum, WALK.sum());
    }
    // A second message is deferred by at most a minute while the first is processed; then the job's
    // result identifies it.
    emptied(&sandbox, Duration::from_secs(120)).await;
    for worker in workers {
        assert_eq!(failures(&worker), 0);
        worker.stop().await;
    }
    assert_eq!(WALK.check(&sandbox, &jobs).await, 0, "records left over");
}

/// The letter is sent before the message is removed, and a stop may fall between the two.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_stopped_while_it_dead_letters_sends_each_letter_once() {
    for began in [8, 16, 24, 32] {
        let double = double().await;
        let sandbox = Sandbox::in_account(&double.connection_string(), 1).await;
        let args = json!({"fatal": true, "journal": sandbox.journal().path()});
        sandbox.enqueue("fail", vec![args; 32]).await;
        double.set_latency(Latency { fixed_ms: 30, ..Latency::default() });
        let stopped = worker(&sandbox, &["--concurrency", "16"]);
        until("jobs have failed", PATIENCE, async || (sandbox.journal().read().len() >= began).then_some(()))
            .await;
        stopped.stop().await;
        double.set_latency(Latency::default());
        let last = worker(&sandbox, &[]);
        emptied(&sandbox, PATIENCE).await;
        last.stop().await;
        assert_eq!(sandbox.depth().await.poisoned, Some(32), "stopped after {began} jobs had failed");
    }
}
