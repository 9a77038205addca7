//! Bad input is kept with a clear reason: it is in the poison queue, byte for byte, and disturbs
//! nothing else.

use std::path::Path;
use std::time::Duration;

use reprieve_core::ErrorKind;
use reprieve_core::ports::NewMessage;
use reprieve_tests::{Sandbox, Worker, until};
use serde_json::json;

const JOBS: &str = env!("CARGO_BIN_EXE_test-jobs");
/// The longest body that the embedded store accepts.
const BODY_BYTES_MAX: usize = 1 << 20;

const PATIENCE: Duration = Duration::from_secs(30);

fn worker(sandbox: &Sandbox) -> Worker {
    Worker::start(sandbox, Path::new(JOBS), ["--metadata-url", "off"])
}

#[tokio::test]
async fn an_unreadable_message_is_dead_lettered_with_the_reason() {
    let sandbox = Sandbox::new().await;
    let bodies = [
        (b"half a {".to_vec(), "neither JSON nor base64 of JSON"),
        (b"".to_vec(), "neither JSON nor base64 of JSON"),
        (vec![0, 159, 146, 150], "neither JSON nor base64 of JSON"),
        (b"{\"a\":1}".to_vec(), "no specversion"),
        (vec![b'x'; BODY_BYTES_MAX], "neither JSON nor base64 of JSON"),
    ];
    let messages = bodies.iter().map(|(body, _)| NewMessage { body: body.clone(), delay: Duration::ZERO });
    sandbox.store().queue.send(messages.collect()).await.unwrap();
    let walk = json!({"steps": 3, "each_ms": 1, "journal": sandbox.journal().path()});
    let good = sandbox.enqueue("walk", [walk]).await.remove(0);
    let running = worker(&sandbox);

    until("the queue is empty", PATIENCE, async || (sandbox.depth().await.total == 0).then_some(())).await;
    let letters = sandbox.dead_letters().await;
    assert_eq!(letters.len(), bodies.len());
    for (body, reason) in bodies {
        let letter = letters.iter().find(|letter| letter.body == body);
        let actual = letter.expect("the body as it was sent").reason.clone().unwrap_or_default();
        assert!(actual.contains(reason), "{:.60} gave {actual:?}", String::from_utf8_lossy(&body));
    }
    assert!(sandbox.result::<serde_json::Value>(&good).await.is_some(), "the good job is done");
    running.stop().await;
}

/// Another worker might know the kind, so the messages are deferred first, here by at most a
/// second.
#[tokio::test]
async fn an_unusable_message_is_dead_lettered_with_its_attributes_and_the_reason() {
    let sandbox = Sandbox::new().await;
    let envelope = |id: &str, kind: &str, data| json!({"specversion": "1.0", "id": id, "type": kind, "data": data, "x": [1.50]});
    let events = [
        (envelope("a", "sing", json!(1)), r#"no worker that received it knows kind "sing""#),
        (envelope("b", "walk", json!({"steps": -1})), r#"the arguments do not fit kind "walk""#),
    ];
    let message =
        |event: &serde_json::Value| NewMessage { body: event.to_string().into(), delay: Duration::ZERO };
    sandbox.store().queue.send(events.iter().map(|(event, _)| message(event)).collect()).await.unwrap();
    let arguments = ["--metadata-url", "off", "--unknown-kind-after", "1s"];
    let running = Worker::start(&sandbox, Path::new(JOBS), arguments);
    until("the queue is empty", PATIENCE, async || (sandbox.depth().await.total == 0).then_some(())).await;
    let letters = sandbox.dead_letters().await;
    for (event, reason) in events {
        let kept = |letter: &&reprieve_core::ports::DeadLettered| {
            let mut body: serde_json::Value = serde_json::from_slice(&letter.body).unwrap();
            // A dead letter carries the generation under which it is the same job again.
            let generation = body.as_object_mut().unwrap().remove("reprievegeneration");
            generation == Some(json!(1)) && body == event
        };
        let letter = letters.iter().find(kept).unwrap_or_else(|| panic!("{event} is kept: {letters:?}"));
        let given = letter.reason.clone().unwrap_or_default();
        assert!(given.contains(reason), "{event} gave {given:?}");
    }
    running.stop().await;
}

#[tokio::test]
async fn a_body_that_no_queue_could_keep_is_refused_where_it_is_sent_with_all_that_came_with_it() {
    let sandbox = Sandbox::new().await;
    let message = |len: usize| NewMessage { body: vec![b'x'; len], delay: Duration::ZERO };
    let sent = sandbox.store().queue.send(vec![message(1), message(BODY_BYTES_MAX + 1)]).await;
    let refused = sent.expect_err("a body that is too long");
    assert_eq!(refused.kind(), ErrorKind::TooLarge);
    assert!(refused.to_string().contains("put it in a blob"), "{refused}");
    assert_eq!(sandbox.depth().await.total, 0);
}

#[tokio::test]
async fn a_job_that_fails_for_good_is_kept_at_once_and_one_that_might_not_after_five_tries() {
    let sandbox = Sandbox::new().await;
    let args = |fatal| json!({"fatal": fatal, "journal": sandbox.journal().path()});
    let jobs = sandbox.enqueue("fail", [args(true), args(false)]).await;
    let running = worker(&sandbox);

    until("the queue is empty", PATIENCE, async || (sandbox.depth().await.total == 0).then_some(())).await;
    let tries = |job: usize| {
        let tried = sandbox.journal().read();
        tried.iter().filter(|stepped| stepped.job == jobs[job].as_str()).count()
    };
    assert_eq!((tries(0), tries(1)), (1, 5));
    let mut reasons: Vec<_> =
        sandbox.dead_letters().await.into_iter().filter_map(|letter| letter.reason).collect();
    reasons.sort();
    assert_eq!(reasons, ["failed too often, at last with: not yet", "this can't be done"]);
    running.stop().await;
}

#[tokio::test]
async fn a_panic_costs_a_try_and_not_the_worker() {
    let sandbox = Sandbox::new().await;
    let job = sandbox.enqueue("panic-once", [()]).await.remove(0);
    let running = worker(&sandbox);
    let deliveries: u32 = until("the job is done", PATIENCE, async || sandbox.result(&job).await).await;
    assert_eq!(deliveries, 2);
    let failed = running.log().lines("a job failed; retrying it");
    let place = "tests/src/bin/test-jobs.rs:";
    assert_eq!(failed.len(), 1);
    let reason = failed[0].text("error");
    assert!(
        reason.contains(&format!("panicked at {place}")) && reason.ends_with(": panicking as asked"),
        "{reason}"
    );
    // The panic is in the log like all else, with its place and its job.
    let panics = running.log().lines("a thread panicked");
    assert_eq!((panics.len(), panics[0].text("panic")), (1, "panicking as asked"));
    assert!(panics[0].text("place").starts_with(place), "{panics:?}");
    assert_eq!(panics[0].span("id"), job.as_str());
    let text = running.log().text();
    assert!(text.lines().all(|line| line.starts_with('{')), "{text}");
    // The result is there before the run has ended.
    let ended = until("both runs have ended", PATIENCE, async || {
        let ended = running.log().lines("the job's run ended");
        (ended.len() > 1).then_some(ended)
    });
    let ended = ended.await;
    let ended: Vec<_> = ended.iter().map(|line| (line.text("outcome"), line.number("delivery"))).collect();
    assert_eq!(ended, [("retried", 1), ("completed", 2)]);
    running.stop().await;
}
