//! `reprieve enqueue`.

use std::io::{BufRead, BufReader};

use reprieve::WorkerId;
use reprieve::ports::WorkerReport;
use reprieve_core::envelope::{Data, Envelope};
use serde_json::Value;

use crate::support::{Place, Ran};

/// Returns the kind and the arguments of every job in the queue, in order.
async fn jobs(place: &Place) -> Vec<(String, String)> {
    let queue = &place.client().await.store().queue.clone();
    let mut jobs = Vec::new();
    loop {
        let deliveries = queue.receive(100, reprieve::ports::LEASE_MAX).await.expect("the store works");
        if deliveries.is_empty() {
            return jobs;
        }
        for delivery in deliveries {
            let envelope = Envelope::read(&delivery.body, &delivery.id, None).expect("an envelope");
            let Data::Inline(args) = envelope.data else { panic!("short arguments travel in the message") };
            jobs.push((envelope.kind, args.get().to_owned()));
        }
    }
}

#[tokio::test]
async fn one_job_is_enqueued_with_the_arguments_it_was_given() {
    let place = Place::new();
    place.write("args.json", "{\n  \"size\": 3\n}\n");
    let ids = [
        place.succeeds(&["enqueue", "resize"]),
        place.succeeds(&["enqueue", "resize", "--args", r#"{"size":1}"#]),
        place.succeeds(&["enqueue", "resize", "--args", "-2"]),
        place.succeeds(&["enqueue", "resize", "--args-file", "args.json"]),
        place.run_with_stdin(&["enqueue", "resize", "--args-file", "-"], "4").out,
    ];
    for id in &ids {
        assert!(id.len() == 37 && id.ends_with('\n'), "{id:?} is an id on a line");
    }
    let args: Vec<_> = jobs(&place).await.into_iter().map(|(kind, args)| format!("{kind} {args}")).collect();
    let wanted =
        ["resize null", r#"resize {"size":1}"#, "resize -2", "resize {\n  \"size\": 3\n}", "resize 4"];
    assert_eq!(args, wanted);
}

#[tokio::test]
async fn an_id_of_ones_own_names_one_job() {
    let place = Place::new();
    for _ in 0..2 {
        assert_eq!(place.succeeds(&["enqueue", "resize", "--args", "7", "--id", "film-7"]), "film-7\n");
    }
    let refused = place.run(&["enqueue", "resize", "--args", "8", "--id", "film-7"]);
    assert_eq!((refused.code, refused.out.as_str()), (Some(1), ""));
    assert!(refused.err.contains("the id film-7 is that of a job with other arguments"), "{}", refused.err);
    let wrong = place.run(&["enqueue", "resize", "--id", "a b"]);
    assert_eq!(wrong.code, Some(2));
    assert!(wrong.err.contains("use 1 to 128 of"), "{}", wrong.err);
    // A second message, because the first producer may have died before it sent one.
    assert_eq!(jobs(&place).await, vec![("resize".to_owned(), "7".to_owned()); 2]);
}

#[tokio::test]
async fn a_job_per_line_is_enqueued_in_order_from_a_file_and_from_stdin() {
    let place = Place::new();
    let lines: Vec<_> = (0..1_234).map(|n| n.to_string()).collect();
    place.write("jobs.jsonl", lines.join("\n"));
    let ids = place.succeeds(&["enqueue", "count", "--jsonl", "jobs.jsonl"]);
    assert_eq!(ids.lines().count(), 1_234);
    let ran = place.run_with_stdin(&["enqueue", "count", "--jsonl", "-", "--json"], "1234\n\n1235\n");
    let printed: Vec<Value> = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(printed.len(), 2);
    assert!(printed.iter().all(|job| job["kind"] == "count" && job["id"].is_string()), "{printed:?}");
    let args: Vec<_> = jobs(&place).await.into_iter().map(|(_, args)| args).collect();
    assert_eq!(args, (0..1_236).map(|n| n.to_string()).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_bad_line_is_named_and_the_jobs_before_it_are_enqueued() {
    let place = Place::new();
    place.write("jobs.jsonl", "1\n2\n{\"a\"}\n4\n");
    let Ran { code, out, err } = place.run(&["enqueue", "count", "--jsonl", "jobs.jsonl", "--json"]);
    assert_eq!(code, Some(2));
    let expected = "error: failed to enqueue the jobs: jobs.jsonl line 3 is not JSON: expected `:` at column 5; \
                the 2 jobs before it are enqueued\n";
    assert_eq!(err, expected);
    let printed: Vec<Value> = serde_json::from_str(&out).unwrap();
    assert_eq!((printed.len(), jobs(&place).await.len()), (2, 2));
}

#[test]
fn an_invalid_job_is_refused_before_the_store_is_created() {
    for (args, expected) in [
        (
            &["enqueue", "count", "--args", "{a: 1}"][..],
            "--args is not JSON: key must be a string at column 2",
        ),
        (&["enqueue", "count", "--args", ""], "--args is not JSON: EOF while parsing a value at column 0"),
        (&["enqueue", "", "--args", "1"], "the kind is empty"),
        (&["enqueue", "count", "--jsonl", "missing.jsonl"], "missing.jsonl can't be opened: No such file"),
        (&["enqueue", "count", "--args-file", "."], "can't be read"),
        (&["enqueue", "count", "--delay", "5"], "\"5\" is not a number and a unit"),
        (&["enqueue", "count", "--args", "1", "--jsonl", "x"], "cannot be used with"),
        (&["enqueue"], "required arguments were not provided"),
        (&["enqueue", "count", "--queue", "No"], "--queue: \"No\" may hold only"),
    ] {
        let place = Place::new();
        let ran = place.run(args);
        assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""), "{args:?}: {}", ran.err);
        assert!(ran.err.starts_with("error: ") && ran.err.contains(expected), "{args:?}: {}", ran.err);
        assert!(!place.path("reprieve.db").exists(), "{args:?}");
    }
}

#[test]
fn a_delayed_job_is_not_ready_yet() {
    let place = Place::new();
    place.succeeds(&["enqueue", "count", "--delay", "1h"]);
    let status: Value = serde_json::from_str(&place.succeeds(&["status", "--json"])).unwrap();
    assert_eq!((&status["queue"]["ready"], &status["queue"]["delayed"]), (&0.into(), &1.into()), "{status}");
}

#[tokio::test]
async fn all_jobs_are_enqueued_though_the_output_is_closed() {
    let place = Place::new();
    let lines: Vec<_> = (0..5_000).map(|n| n.to_string()).collect();
    place.write("jobs.jsonl", lines.join("\n"));
    let mut child = place.command(&["enqueue", "count", "--jsonl", "jobs.jsonl"]).spawn().unwrap();
    let mut first = String::new();
    BufReader::with_capacity(64, child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    let ran = Ran::from(child.wait_with_output().unwrap());
    assert_eq!((ran.code, ran.err.as_str(), first.len()), (Some(0), "", 37));
    assert_eq!(place.client().await.store().queue.depth().await.unwrap().total, 5_000);
}

#[tokio::test]
async fn a_kind_that_no_running_worker_of_the_queue_knows_is_refused_unless_forced() {
    let place = Place::new();
    let client = place.client().await;
    let report = |queue: &str, kind: &str| WorkerReport {
        queue: queue.to_owned(),
        kinds: vec![kind.to_owned()],
        pid: 1,
        stage: "start".to_owned(),
        at_unix_ms: reprieve::clock::unix_millis(),
        ..WorkerReport::new(WorkerId::unique())
    };
    client.store().roster.publish(&report("another", "blur")).await.unwrap();
    place.succeeds(&["enqueue", "resise"]);
    client.store().roster.publish(&report("default", "resize")).await.unwrap();
    place.succeeds(&["enqueue", "resize"]);
    let refused = place.run(&["enqueue", "resise"]);
    let expected = "no running worker of queue \"default\" knows kind \"resise\"; known kinds: resize";
    assert!(refused.code == Some(2) && refused.err.contains(expected), "{refused:?}");
    place.succeeds(&["enqueue", "resise", "--force"]);
}
