//! A worker is killed in the middle of one call, before or after the call is applied: its job still
//! completes.

use futures_util::future::join_all;
use reprieve_sim::storage::{Action, Operation, Rule, StorageServer};
use reprieve_tests::{Sandbox, until};

use crate::support::{PATIENCE, Walk, double, emptied, worker};

/// Long enough for a renewal of its lease.
const WALK: Walk = Walk { steps: 12, each_ms: 120 };

/// A call during which a worker is killed.
#[derive(Debug, Clone, Copy)]
struct Middle {
    call: &'static str,
    operation: Operation,
    /// The prefix of the resource's name, after the container's; empty for all.
    blobs: &'static str,
    /// The number of such calls that succeed first.
    skip: u64,
}

const MIDDLES: [Middle; 7] = [
    Middle { call: "the receive", operation: Operation::Receive, blobs: "", skip: 0 },
    Middle { call: "a renewal", operation: Operation::Update, blobs: "", skip: 0 },
    Middle {
        call: "the first checkpoint",
        operation: Operation::BlobPut,
        blobs: "/.reprieve/records/",
        skip: 0,
    },
    Middle {
        call: "a later checkpoint",
        operation: Operation::BlobPut,
        blobs: "/.reprieve/records/",
        skip: 5,
    },
    Middle { call: "the result", operation: Operation::BlobPut, blobs: "/results/", skip: 0 },
    Middle { call: "the completion", operation: Operation::Delete, blobs: "", skip: 0 },
    Middle {
        call: "the tidying up",
        operation: Operation::BlobDelete,
        blobs: "/.reprieve/records/",
        skip: 0,
    },
];

/// Kills a worker when its call hangs, and lets another one resume the job.
async fn killed_in(middle: Middle, applied: bool) {
    // Each has its own double, so that no other call is hit.
    let double = double().await;
    let sandbox = Sandbox::in_account(&double.connection_string(), 1).await;
    let jobs = WALK.enqueue(&sandbox, 1).await;
    let prefix = if middle.blobs.is_empty() {
        String::new()
    } else {
        format!("{}{}", sandbox.container(), middle.blobs)
    };
    let hang = Rule::new(Action::Hang { applied }).on(middle.operation).times(1);
    double.add_fault(Rule { prefix, skip: middle.skip, ..hang }).expect("a fault");

    let arguments = ["--concurrency", "1", "--checkpoint-every", "0s", "--lease", "2s", "--budget", "1s"];
    let mut victim = worker(&sandbox, &arguments);
    until(&format!("the worker is in the middle of {}", middle.call), PATIENCE, async || {
        any_fault_injected(&double).then_some(())
    })
    .await;
    victim.kill();
    let successor = worker(&sandbox, &arguments);
    emptied(&sandbox, PATIENCE).await;

    // In these two the job's message is gone, so its checkpoints stay.
    let last_words = matches!(middle.operation, Operation::Delete | Operation::BlobDelete);
    let gone =
        middle.operation == Operation::BlobDelete || (middle.operation == Operation::Delete && applied);
    let left_over = WALK.check(&sandbox, &jobs).await;
    assert!(
        left_over == 0 || (last_words && gone),
        "{middle:?} {applied}: {left_over} checkpoints left over"
    );
    let redone = sandbox.journal().redone();
    assert!(redone <= 1, "{middle:?}, applied: {applied}: {redone} steps redone");
    println!(
        "killed in {}, applied: {applied}; {redone} steps redone, {left_over} checkpoints left over",
        middle.call
    );
    successor.stop().await;
}

fn any_fault_injected(double: &StorageServer) -> bool {
    double.faults().iter().any(|fault| fault.injected > 0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_killed_in_the_middle_of_any_call_loses_nothing() {
    // All at once: they mostly wait for leases to end.
    let all = MIDDLES.iter().flat_map(|middle| [killed_in(*middle, false), killed_in(*middle, true)]);
    join_all(all).await;
}
