//! Jobs that were queued twice because the response to a send was lost still complete once.

use std::time::Duration;

use reprieve_sim::storage::{Action, Operation, Rule};
use reprieve_tests::{Sandbox, Walked, until};

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
