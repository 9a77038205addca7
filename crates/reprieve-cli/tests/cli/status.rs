//! `reprieve status`.

use std::io::{BufRead, BufReader};

use reprieve::ports::{DeadLetter, InFlight, Progress, WorkerReport};
use reprieve::{JobId, WorkerId};
use serde_json::Value;

use crate::support::{Place, Working, until};

async fn status(place: &Place) -> Value {
    let mut command = place.command(&["status", "--json"]);
    let output =
        tokio::task::spawn_blocking(move || command.output()).await.expect("no panic").expect("it runs");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

async fn page(place: &Place) -> String {
    let mut command = place.command(&["status"]);
    let output =
        tokio::task::spawn_blocking(move || command.output()).await.expect("no panic").expect("it runs");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn a_store_that_is_not_there_is_an_error_and_is_not_made() {
    let place = Place::new();
    let ran = place.run(&["status"]);
    let expected = "error: failed to open the store: there is no store at reprieve.db; check --store, or create it by \
                enqueueing a job\n";
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (Some(2), "", expected));
    assert!(!place.path("reprieve.db").exists() && !place.path("reprieve.db.d").exists());
}

#[test]
fn a_mistyped_queue_is_an_error_that_names_those_there_are() {
    let place = Place::new();
    place.succeeds(&["enqueue", "resize"]);
    let ran = place.run(&["status", "--queue", "defualt"]);
    let is_named = ran.err.contains("there is no queue \"defualt\"") && ran.err.contains("default");
    assert!(ran.code == Some(2) && ran.out.is_empty() && is_named, "{ran:?}");
}

#[tokio::test]
async fn a_held_job_is_shown_with_its_progress_and_its_worker() {
    let place = Place::new();
    let client = place.client().await;
    let working = Working::on(&client);
    let id = place.succeeds(&["enqueue", "stay"]);
    let status = until("the job is at 3 of 8", async || {
        let status = status(&place).await;
        (status["workers"][0]["in_flight"][0]["progress"]["done"] == 3).then_some(status)
    })
    .await;
    let worker = &status["workers"][0];
    assert_eq!(worker["worker"], working.monitor.worker().as_str());
    assert_eq!((&worker["vm"], &worker["stage"]), (&"workers_7".into(), &"start".into()));
    assert_eq!(worker["in_flight"][0]["job"], id.trim());
    assert_eq!((&status["queue"]["leased"], &status["queue"]["ready"]), (&1.into(), &0.into()));

    let page = page(&place).await;
    assert!(page.starts_with("1 job · 0 ready · 1 leased · 0 delayed · 0 poisoned\n"), "{page}");
    let line = page.lines().find(|line| line.starts_with(id.trim())).expect("a line for the job");
    assert!(line.contains("stay") && line.contains("3/8 37%"), "{line}");

    working.stop().await;
    let status = self::status(&place).await;
    assert_eq!(status["workers"], Value::Array(Vec::new()), "a stopped worker is not listed");
    let drain = &status["drains"][0];
    assert_eq!((&drain["notice"], &drain["released_saved"]), (&"Signal".into(), &1.into()), "{drain}");
    assert!(self::page(&place).await.contains("Signal"));
}

#[tokio::test]
async fn a_job_that_no_worker_knows_is_shown_as_deferred_with_the_reason() {
    let place = Place::new();
    let client = place.client().await;
    let working = Working::on(&client);
    let id = place.succeeds(&["enqueue", "saty", "--args", "1"]);
    let status = until("the job is deferred", async || {
        let status = status(&place).await;
        (!status["workers"][0]["deferred"].as_array()?.is_empty()).then_some(status)
    })
    .await;
    let deferred = &status["workers"][0]["deferred"][0];
    assert_eq!((&deferred["job"], &deferred["kind"]), (&id.trim().into(), &"saty".into()), "{deferred}");
    let reason = deferred["reason"].as_str().expect("a reason");
    assert!(reason.contains("saty"), "{reason}");
    let page = page(&place).await;
    assert!(page.contains("DEFERRED"), "{page}");
    assert!(page.lines().any(|line| line.starts_with(id.trim()) && line.ends_with(reason)), "{page}");
    working.stop().await;
}

#[tokio::test]
async fn a_dead_letter_is_shown_with_the_reason() {
    let place = Place::new();
    let client = place.client().await;
    let id = place.succeeds(&["enqueue", "stay", "--args", "1"]);
    let queue = &client.store().queue;
    let held = queue.receive(1, std::time::Duration::from_secs(60)).await.expect("received").remove(0);
    queue.dead_letter(&held.receipt, &held.body, &DeadLetter::because("it never ends")).await.expect("moved");
    let dead = &status(&place).await["dead_letters"][0];
    assert_eq!((&dead["job"], &dead["kind"]), (&id.trim().into(), &"stay".into()), "{dead}");
    let page = page(&place).await;
    assert!(page.lines().any(|line| line.starts_with(id.trim()) && line.contains("it never ends")), "{page}");
}

/// A worker's report is up to ten seconds old, so the worker may hold other jobs by now.
#[tokio::test]
async fn the_page_shows_the_reports_age_where_they_and_the_queue_disagree() {
    let place = Place::new();
    let client = place.client().await;
    place.succeeds(&["enqueue", "stay"]);
    let report = WorkerReport {
        queue: "default".to_owned(),
        pid: 1,
        stage: "start".to_owned(),
        at_unix_ms: reprieve::clock::unix_millis() - 4_000,
        in_flight: vec![InFlight {
            job: JobId::unique(),
            kind: "stay".to_owned(),
            delivery: 1,
            progress: Progress::default(),
            steps: 0,
            since_unix_ms: 0,
            moved_unix_ms: None,
            stalled_since_unix_ms: None,
            stalled_in: None,
            began_unix_ms: None,
            kept_ms: 0,
            escalated: None,
        }],
        ..WorkerReport::new(WorkerId::unique())
    };
    client.store().roster.publish(&report).await.expect("published");
    let page = page(&place).await;
    assert!(page.starts_with("1 job · 1 ready · 0 leased"), "{page}");
    assert!(page.contains("workers report 1 held, in reports up to 4s old"), "{page}");
}

#[test]
fn a_watch_goes_on_until_its_reader_has_gone() {
    let place = Place::new();
    place.succeeds(&["enqueue", "stay"]);
    let mut child = place.command(&["status", "--watch", "--json"]).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for line in lines.take(2) {
        let status: Value = serde_json::from_str(&line.unwrap()).unwrap();
        assert_eq!(status["queue"]["ready"], 1);
    }
    // The reader is dropped by now.
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_watch_of_people_who_do_not_look_at_a_terminal_is_plain() {
    let place = Place::new();
    place.succeeds(&["enqueue", "stay"]);
    let mut child = place.command(&["status", "--watch", "1"]).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let lines: Vec<_> = lines.map_while(Result::ok).take(5).collect();
    let depth = "1 job · 1 ready · 0 leased · 0 delayed · 0 poisoned";
    assert_eq!(lines, [depth, "", "no workers", "", depth]);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn wrong_usage_exits_with_2() {
    let place = Place::new();
    for args in
        [&["status", "--watch", "0"][..], &["status", "--wach"], &["stauts"], &["status", "--watch=-1"]]
    {
        let ran = place.run(args);
        assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""), "{args:?}");
        assert!(ran.err.starts_with("error: "), "{args:?}: {}", ran.err);
    }
}
