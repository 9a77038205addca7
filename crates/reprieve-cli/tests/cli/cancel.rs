//! `reprieve cancel`.

use std::time::Duration;

use reprieve::ports::DeadLetter;
use reprieve::{JobEnd, JobId};
use serde_json::{Value, json};

use crate::support::Place;

#[tokio::test]
async fn a_waiting_job_is_cancelled_and_stays_so() {
    let place = Place::new();
    let client = place.client().await;
    let id = place.succeeds(&["enqueue", "resize"]).trim().to_owned();
    let ran = place.run(&["cancel", &id]);
    assert_eq!((ran.code, ran.out), (Some(0), format!("{id} cancelled, if it waits or runs\n")));
    assert!(ran.err.contains("the store has no trace of 1 of the jobs"), "{}", ran.err);
    let again = place.run(&["cancel", &id, "--json"]);
    assert_eq!(again.code, Some(0), "{again:?}");
    let answers: Value = serde_json::from_str(&again.out).expect("JSON");
    assert_eq!(answers, json!([{"job": id, "state": "cancelled"}]));
    let job = JobId::parse(id).expect("an id");
    assert_eq!(client.store().end_of::<()>(&job).await.expect("read"), Some(JobEnd::Cancelled));
}

#[tokio::test]
async fn ids_are_read_from_stdin() {
    let place = Place::new();
    drop(place.client().await);
    let own = |id: &str| place.succeeds(&["enqueue", "resize", "--id", id]);
    own("a");
    own("b");
    let ran = place.run_with_stdin(&["cancel", "-"], "a\n\n b \n");
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "a cancelled\nb cancelled\n"), "{ran:?}");
}

#[tokio::test]
async fn a_job_that_has_ended_is_an_error_and_the_others_are_cancelled() {
    let place = Place::new();
    let client = place.client().await;
    let queue = &client.store().queue;
    let own = |id: &str| place.succeeds(&["enqueue", "resize", "--id", id]);
    own("dead");
    own("waits");
    let job = JobId::parse("dead").expect("an id");
    // As a worker dead-letters a job: in the record first.
    let mut record = client.store().record(&job).await.expect("read").expect("a record");
    record.status = reprieve_core::record::Status::DeadLettered { reason: "a test".to_owned() };
    let stored = client.store().records.load(&job).await.expect("read").expect("a record");
    let write = reprieve::ports::RecordWrite {
        record: reprieve_core::record::seal(&record),
        ..reprieve::ports::RecordWrite::default()
    };
    client.store().records.put(&job, Some(&stored.version), write).await.expect("written");
    let held = queue.receive(1, Duration::from_mins(1)).await.expect("received").remove(0);
    queue.dead_letter(&held.receipt, &held.body, &DeadLetter::because("a test")).await.expect("moved");

    let ran = place.run(&["cancel", "dead", "waits", "--json"]);
    let answers: Value = serde_json::from_str(&ran.out).expect("JSON");
    let expected = json!([
        {"job": "dead", "state": "failed", "reason": "a test"},
        {"job": "waits", "state": "cancelled"},
    ]);
    assert_eq!((ran.code, answers), (Some(1), expected));
    assert!(ran.err.contains("job dead had ended before; nothing is changed"), "{}", ran.err);
}

#[test]
fn wrong_usage_is_refused() {
    let place = Place::new();
    for (args, why) in [
        (&["cancel"][..], "<ID>"),
        (&["cancel", "a/b"], "use 1 to 128 of A-Z"),
        (&["cancel", "a", "--queue", "other"], "there is no"),
    ] {
        let ran = place.run(args);
        assert!(ran.code == Some(2) && ran.err.contains(why), "{args:?}: {ran:?}");
    }
}
