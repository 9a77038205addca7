//! Kill a worker in the middle of one call, before or after it was applied: its job still completes.

use futures_util::future::join_all;
use reprieve_sim::storage::{Action, Operation, Rule, StorageServer};
use reprieve_tests::{Sandbox, until};

use crate::support::{PATIENCE, Walk, double, emptied, worker};

/// Long enough that its lease is renewed.
const WALK: Walk = Walk { steps: 12, each_ms: 120 };

/// A call that a worker is killed in.
#[derive(Debug, Clone, Copy)]
struct Middle {
    call: &'static str,
    operation: Operation,
    /// What of it is meant: what comes after the name of the container; all of them where it is empty.
    blobs: &'static str,
    /// So many such calls go well first.
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

/// Kills a worker when its call hangs, and lets another one go on.
async fn killed_in(middle: Middle, applied: bool) {
    // A double for each, so that nobody else's call is hit.
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
        befell(&double).then_some(())
    })
    .await;
    victim.kill();
    let successor = worker(&sandbox, &arguments);
    emptied(&sandbox, PATIENCE).await;

    // In these two the job's message is gone, and nobody knows of its checkpoints any more.
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

fn befell(double: &StorageServer) -> bool {
    double.faults().iter().any(|fault| fault.befell > 0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_killed_in_the_middle_of_any_call_loses_nothing() {
    // All at once: they wait for leases to end, most of the time.
    let all = MIDDLES.iter().flat_map(|middle| [killed_in(*middle, false), killed_in(*middle, true)]);
    join_all(all).await;
}
