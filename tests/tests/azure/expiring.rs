//! Messages that another program sent with a time to live shorter than their jobs.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use reprieve_sim::storage::StorageServer;
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
