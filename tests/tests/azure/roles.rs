//! Every part with exactly the rights of the table in docs/azure.md: all other requests are refused, as
//! for an identity without the role.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use reprieve_sim::storage::{Action, Operation, Rule, StorageServer};
use reprieve_tests::{Sandbox, Worker, binary};
use rustix::process::Signal;
use serde_json::Value;

use crate::support::{PATIENCE, Walk, begun, double, emptied, worker};

/// `Storage Queue Data Message Sender`.
const SENDER: &[Operation] = &[Operation::Send];

/// `Storage Queue Data Reader`.
const QUEUE_READER: &[Operation] = &[Operation::Peek, Operation::QueueProperties];

/// `Storage Blob Data Reader`.
const BLOB_READER: &[Operation] =
    &[Operation::BlobGet, Operation::BlobProperties, Operation::BlobList, Operation::ContainerProperties];

/// `Storage Blob Data Contributor` on existing containers.
const BLOB_CONTRIBUTOR: &[Operation] = &[
    Operation::BlobGet,
    Operation::BlobProperties,
    Operation::BlobList,
    Operation::ContainerProperties,
    Operation::BlobPut,
    Operation::BlockPut,
    Operation::BlockList,
    Operation::BlobDelete,
];

/// The custom role for messages.
const MESSAGES: &[Operation] = &[
    Operation::QueueProperties,
    Operation::Peek,
    Operation::Send,
    Operation::Receive,
    Operation::Update,
    Operation::Delete,
];

const WALK: Walk = Walk { steps: 6, each_ms: 50 };

/// Refuses all other operations.
fn permit(double: &StorageServer, roles: &[&[Operation]]) {
    double.clear_faults();
    for operation in Operation::ALL.into_iter().filter(|one| !roles.concat().contains(one)) {
        double.add_fault(Rule::new(Action::PermissionMismatch).on(operation)).expect("a fault");
    }
}

/// Runs the command on the sandbox's store.
fn reprieve(sandbox: &Sandbox, args: &[&str]) -> Output {
    let program: PathBuf = binary("reprieve");
    let mut command = Command::new(program);
    command.args(args).env_clear().current_dir(sandbox.directory());
    sandbox.point(&mut command);
    command.output().expect("the command runs")
}

#[track_caller]
fn succeeds(sandbox: &Sandbox, args: &[&str]) -> String {
    let output = reprieve(sandbox, args);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_producer_needs_to_send_only() {
    let double = double().await;
    let sandbox = Sandbox::in_account(&double.connection_string(), 1).await;
    permit(&double, &[SENDER]);
    let ids = succeeds(&sandbox, &["enqueue", "walk", "--args", r#"{"steps": 1, "each_ms": 0}"#]);
    assert_eq!(ids.lines().count(), 1, "{ids}");
    // Long arguments are a blob.
    let long = format!("\"{}\"", "a".repeat(60_000));
    std::fs::write(sandbox.path("long.json"), &long).expect("a file");
    let refused = reprieve(&sandbox, &["enqueue", "walk", "--args-file", "long.json"]);
    let error = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && error.contains("write a blob"), "{error}");
    permit(&double, &[SENDER, BLOB_CONTRIBUTOR]);
    succeeds(&sandbox, &["enqueue", "walk", "--args-file", "long.json"]);
    double.clear_faults();
    assert_eq!(sandbox.depth().await.total, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_producer_that_may_not_even_send_is_told_so() {
    let double = double().await;
    let sandbox = Sandbox::in_account(&double.connection_string(), 1).await;
    permit(&double, &[]);
    let refused = reprieve(&sandbox, &["enqueue", "walk"]);
    let error = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{error}");
    assert!(error.contains("send a message") && error.contains("403"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_may_not_create_anything_does_and_drains_its_jobs() {
    let double = double().await;
    let sandbox = Sandbox::in_account(&double.connection_string(), 1).await;
    let jobs = WALK.enqueue(&sandbox, 4).await;
    let unknown = sandbox.enqueue("nobody-knows-it", [Value::Null]).await;
    permit(&double, &[MESSAGES, BLOB_CONTRIBUTOR]);
    let flags = ["--concurrency", "2", "--checkpoint-every", "0s", "--unknown-kind-after", "1s"];
    let mut first: Worker = worker(&sandbox, &flags);
    begun(&sandbox, 1).await;
    first.signal(Signal::TERM);
    let ended = first.ended(PATIENCE).await;
    assert!(ended.success() || ended.code() == Some(143), "{ended:?}");
    let second = worker(&sandbox, &flags);
    emptied(&sandbox, Duration::from_secs(60)).await;
    second.stop().await;
    double.clear_faults();
    let letters = sandbox.dead_letters().await;
    assert_eq!(letters.len(), unknown.len(), "{letters:?}");
    for job in &jobs {
        assert!(sandbox.result::<Value>(job).await.is_some(), "{job}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_needs_to_read_only() {
    let double = double().await;
    let sandbox = Sandbox::in_account(&double.connection_string(), 1).await;
    sandbox.enqueue("walk", [Value::Null]).await;
    let worker = worker(&sandbox, &[]);
    worker.started(&sandbox).await;
    permit(&double, &[QUEUE_READER, BLOB_READER]);
    let page = succeeds(&sandbox, &["status"]);
    assert!(page.contains("WORKER") && page.contains("1 job"), "{page}");
    let listed = succeeds(&sandbox, &["blobs", "list"]);
    assert!(!listed.contains(".reprieve"), "{listed}");
    double.clear_faults();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_reads_what_each_worker_reports_once() {
    const WORKERS: usize = 3;
    let double = double().await;
    let sandbox = Sandbox::in_account(&double.connection_string(), 1).await;
    let mut workers = Vec::new();
    for _ in 0..WORKERS {
        let worker = worker(&sandbox, &[]);
        worker.started(&sandbox).await;
        workers.push(worker);
    }
    // Their own requests are others.
    for worker in &workers {
        worker.signal(Signal::STOP);
    }
    double.reset_counts();
    let page = succeeds(&sandbox, &["status"]);
    assert!(page.contains("WORKER"), "{page}");
    let counts = double.counts();
    assert_eq!(counts.requests(Operation::BlobGet), WORKERS as u64, "{counts:?}");
    for worker in &workers {
        worker.signal(Signal::CONT);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_needs_what_it_is_to_check() {
    let double = double().await;
    let sandbox = Sandbox::in_account(&double.connection_string(), 1).await;
    permit(&double, &[MESSAGES, BLOB_CONTRIBUTOR]);
    let page = succeeds(&sandbox, &["doctor", "--metadata-url", "off"]);
    assert!(page.contains("may not create queues"), "{page}");
    // With a producer's rights it says what a worker lacks, and does not fail in another way.
    permit(&double, &[SENDER]);
    let refused = reprieve(&sandbox, &["doctor", "--metadata-url", "off"]);
    let page = String::from_utf8_lossy(&refused.stdout);
    assert_eq!(refused.status.code(), Some(1), "{page}");
    assert!(page.contains("may send") && page.contains("queue roles: renew"), "{page}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redriving_and_cleaning_need_a_workers_rights() {
    let double = double().await;
    let sandbox = Sandbox::in_account(&double.connection_string(), 1).await;
    sandbox.enqueue("nobody-knows-it", [Value::Null]).await;
    permit(&double, &[MESSAGES, BLOB_CONTRIBUTOR]);
    let worker = worker(&sandbox, &["--unknown-kind-after", "0s"]);
    emptied(&sandbox, Duration::from_secs(60)).await;
    worker.stop().await;
    let redriven = succeeds(&sandbox, &["redrive", "--all"]);
    assert_eq!(redriven.lines().count(), 1, "{redriven}");
    permit(&double, &[QUEUE_READER, BLOB_CONTRIBUTOR]);
    succeeds(&sandbox, &["clean", "--dry-run"]);
    succeeds(&sandbox, &["clean"]);
    double.clear_faults();
    assert_eq!(sandbox.depth().await.total, 1);
}
