//! Messages that another program sent with a time to live shorter than their jobs.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use reprieve_sim::storage::{Action, Operation, Rule, StorageServer};
use reprieve_tests::{Sandbox, Walked, until};
use serde_json::json;

use crate::support::{PATIENCE, Walk, double, emptied, worker};

/// Longer than its message lives.
const WALK: Walk = Walk { steps: 30, each_ms: 200 };
const LIVES_SECONDS: u32 = 3;

/// Sends a job as another program does: with a time to live.
fn put(double: &StorageServer, queue: &str, job: &str, sandbox: &Sandbox) {
    let event = json!({
        "specversion": "1.0", "id": job, "source": "another program", "type": "walk",
        "data": {"steps": WALK.steps, "each_ms": WALK.each_ms, "journal": sandbox.journal().path()},
    });
    let text = event.to_string().replace('&', "&amp;").replace('<', "&lt;");
    let body = format!("<QueueMessage><MessageText>{text}</MessageText></QueueMessage>");
    let url = double.queue_url();
    let (host, account) = url.strip_prefix("http://").and_then(|url| url.split_once('/')).expect("a URL");
    let mut stream = TcpStream::connect(host).expect("a connection");
    write!(
        stream,
        "POST /{account}/{queue}/messages?messagettl={LIVES_SECONDS}&sv=2026-04-06&sig=any HTTP/1.1\r\nHost: {host}\r\n\
         Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_outlives_the_message_that_another_program_sent() {
    let double = double().await;
    let sandbox = Sandbox::in_account(&double.connection_string(), 1).await;
    let worker = worker(&sandbox, &["--checkpoint-every", "0s", "--lease", "15s"]);
    worker.started(&sandbox).await;
    put(&double, sandbox.queue(), "theirs", &sandbox);
    let results = until("the job is done", PATIENCE, async || {
        Some(sandbox.blobs("results/").await).filter(|results| !results.is_empty())
    })
    .await;
    let walked: Walked = serde_json::from_slice(results.values().next().expect("a result")).expect("JSON");
    assert_eq!(walked.sum, WALK.sum());
    emptied(&sandbox, Duration::from_secs(10)).await;
    assert_eq!(sandbox.journal().read().len() as u64, WALK.steps, "it ran once");
    worker.stop().await;
}

/// Waits until the only job is done, and returns in how many steps.
async fn steps_until_done(sandbox: &Sandbox) -> u64 {
    until("the job is done", PATIENCE, async || (!sandbox.blobs("results/").await.is_empty()).then_some(()))
        .await;
    emptied(sandbox, Duration::from_secs(40)).await;
    sandbox.journal().read().len() as u64
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_outlives_its_message_although_the_first_try_to_replace_it_fails() {
    let refusals = [
        Action::ServerBusy { retry_after_seconds: None },
        Action::TooManyRequests { retry_after_seconds: None },
        Action::OperationTimedOut,
        // Two copies are sent; the second message of the job waits, and is deleted.
        Action::LoseAnswer,
    ];
    for refusal in refusals {
        let double = double().await;
        let sandbox = Sandbox::in_account(&double.connection_string(), 1).await;
        put(&double, sandbox.queue(), "theirs", &sandbox);
        let rule = Rule::new(refusal.clone()).on(Operation::Send).times(1);
        double.add_fault(rule).expect("a fault");
        let worker = worker(&sandbox, &["--checkpoint-every", "0s", "--lease", "9s", "--budget", "2s"]);
        assert_eq!(steps_until_done(&sandbox).await, WALK.steps, "{refusal:?}");
        worker.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_outlives_its_message_that_somebody_else_received_before() {
    let double = double().await;
    let sandbox = Sandbox::in_account(&double.connection_string(), 1).await;
    put(&double, sandbox.queue(), "theirs", &sandbox);
    let received = sandbox.store().queue.receive(1, Duration::from_secs(1)).await.expect("a message");
    assert_eq!(received.len(), 1);
    let worker = worker(&sandbox, &["--checkpoint-every", "0s", "--lease", "9s", "--budget", "2s"]);
    assert_eq!(steps_until_done(&sandbox).await, WALK.steps);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_message_that_expires_does_not_take_a_job_from_its_living_owner() {
    let double = double().await;
    let sandbox = Sandbox::in_account(&double.connection_string(), 1).await;
    let arguments = ["--checkpoint-every", "0s", "--lease", "9s", "--budget", "2s"];
    put(&double, sandbox.queue(), "theirs", &sandbox);
    let first = worker(&sandbox, &arguments);
    until("the job runs", PATIENCE, async || (sandbox.journal().read().len() > 3).then_some(())).await;
    let second = worker(&sandbox, &arguments);
    second.started(&sandbox).await;
    put(&double, sandbox.queue(), "theirs", &sandbox);
    let steps = steps_until_done(&sandbox).await;
    // A first delivery of a message begins without a look at the record, and is refused at its first save.
    assert!(steps <= WALK.steps + 1, "{steps} steps");
    first.stop().await;
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_is_kept_is_logged_with_the_time_it_has_left() {
    let double = double().await;
    let sandbox = Sandbox::in_account(&double.connection_string(), 1).await;
    let worker = worker(&sandbox, &["--expiring-messages", "keep", "--lease", "15s"]);
    worker.started(&sandbox).await;
    put(&double, sandbox.queue(), "theirs", &sandbox);
    let line = until("it is logged", PATIENCE, async || {
        worker.log().lines("another program's message expires, also while its job runs").pop()
    })
    .await;
    assert!(line.number("left_s") <= u64::from(LIVES_SECONDS), "{line:?}");
}
