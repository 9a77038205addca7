//! `reprieve redrive`.

use std::time::Duration;

use reprieve::ports::{DeadLetter, NewMessage, RecordWrite};
use reprieve::{Client, JobId};
use reprieve_core::envelope::Envelope;
use serde_json::Value;

use crate::support::Place;

/// Puts this number of jobs, and one message that is no job, into the poison queue.
async fn poison(place: &Place, client: &Client, jobs: usize) -> Vec<String> {
    let ids: Vec<_> = (0..jobs).map(|_| place.succeeds(&["enqueue", "resize"]).trim().to_owned()).collect();
    let queue = &client.store().queue;
    let noise = NewMessage { body: b"no job".to_vec(), delay: Duration::ZERO };
    queue.send(vec![noise]).await.expect("sent");
    for held in queue.receive(jobs + 1, Duration::from_mins(1)).await.expect("received") {
        queue.dead_letter(&held.receipt, &held.body, &DeadLetter::because("a test")).await.expect("moved");
    }
    ids
}

#[tokio::test]
async fn one_job_is_sent_again_and_the_others_stay() {
    let place = Place::new();
    let client = place.client().await;
    let ids = poison(&place, &client, 3).await;
    assert_eq!(place.succeeds(&["redrive", &ids[1]]), format!("{}\n", ids[1]));
    let depth = client.store().queue.depth().await.expect("counted");
    assert_eq!((depth.ready, depth.poisoned), (Some(1), Some(3)));

    let ran = place.run(&["redrive", &ids[1]]);
    let missing = format!("job {} is not in the poison queue of default; `reprieve status`", ids[1]);
    assert!(ran.code == Some(1) && ran.out.is_empty() && ran.err.contains(&missing), "{ran:?}");
}

#[tokio::test]
async fn all_jobs_are_redriven_and_unreadable_messages_stay() {
    let place = Place::new();
    let client = place.client().await;
    let ids = poison(&place, &client, 40).await;
    let ran = place.run(&["redrive", "--all", "--json"]);
    let redriven: Value = serde_json::from_str(&ran.out).expect("JSON");
    let mut jobs: Vec<_> =
        redriven["jobs"].as_array().expect("jobs").iter().filter_map(Value::as_str).collect();
    jobs.sort_unstable();
    let mut expected: Vec<_> = ids.iter().map(String::as_str).collect();
    expected.sort_unstable();
    assert_eq!((jobs, &redriven["unreadable"]), (expected, &1.into()));
    assert_eq!(ran.err, "1 message in the poison queue can't be read as a job and stays there\n");
    let depth = client.store().queue.depth().await.expect("counted");
    assert_eq!((depth.ready, depth.poisoned), (Some(40), Some(1)));
    let again = place.run(&["redrive", "--all"]);
    assert_eq!((again.code, again.out.as_str()), (Some(0), ""), "nothing is left to redrive");
}

/// Leaves the store as after a killed redrive.
#[tokio::test]
async fn letters_that_another_redrive_holds_are_reported_and_are_an_error() {
    let place = Place::new();
    let client = place.client().await;
    poison(&place, &client, 4).await;
    let queue = &client.store().queue;
    let held = queue.receive_letters(2, Duration::from_mins(2)).await.expect("received");
    let reason = "2 dead letters are held by another redrive, which may have died; try again in 2 minutes";
    let ran = place.run(&["redrive", "--all"]);
    let jobs = ran.out.lines().count();
    assert!((2..=3).contains(&jobs) && ran.code == Some(1), "{ran:?}");
    assert!(ran.err.ends_with(&format!("error: failed to redrive all jobs: {reason}\n")), "{ran:?}");

    let one = held.iter().find_map(|letter| Envelope::read(&letter.body, &letter.id, None).ok());
    let id = one.expect("a job is among them").job;
    let ran = place.run(&["redrive", id.as_str()]);
    assert!(ran.code == Some(1) && ran.out.is_empty(), "{ran:?}");
    let may_be =
        format!("error: failed to redrive a job: job {id} may be one that can't be received now: {reason}\n");
    assert_eq!(ran.err, may_be);
    for letter in &held {
        queue.return_letter(&letter.receipt).await.expect("returned");
    }
    place.succeeds(&["redrive", id.as_str()]);
}

/// Replaces a job's record by bytes that this version can't read.
async fn write_record(client: &Client, job: &str, bytes: &[u8]) {
    let write = RecordWrite { record: bytes.to_vec(), ..RecordWrite::default() };
    let job = JobId::parse(job).expect("an id");
    client.store().records.put(&job, None, write).await.expect("a record");
}

#[tokio::test]
async fn redriven_jobs_are_printed_although_one_job_could_not_be_sent() {
    let place = Place::new();
    let client = place.client().await;
    let ids = poison(&place, &client, 3).await;
    write_record(&client, &ids[0], b"reprieve-record da470dd2 2 whatever\n").await;
    write_record(&client, &ids[1], b"damaged").await;
    let ran = place.run(&["redrive", "--all"]);
    let mut sent: Vec<_> = ran.out.lines().collect();
    sent.sort_unstable();
    let mut expected = [ids[1].as_str(), ids[2].as_str()];
    expected.sort_unstable();
    assert_eq!((ran.code, sent), (Some(1), expected.to_vec()), "{}", ran.err);
    let reason = format!("error: failed to redrive a job: job {}: the record has format 2", ids[0]);
    assert!(ran.err.contains(&reason) && ran.err.contains("redrive it with a newer version"), "{}", ran.err);
    assert!(ran.err.contains("begins again"), "{}", ran.err);
    let depth = client.store().queue.depth().await.expect("counted");
    assert_eq!((depth.ready, depth.poisoned), (Some(2), Some(2)));

    let again = place.run(&["redrive", &ids[0], "--json"]);
    let redriven: Value = serde_json::from_str(&again.out).expect("JSON");
    assert_eq!(
        (again.code, &redriven["failures"][0]["job"]),
        (Some(1), &ids[0].as_str().into()),
        "{redriven}"
    );
}

#[test]
fn wrong_usage_is_refused() {
    let place = Place::new();
    place.succeeds(&["enqueue", "resize"]);
    for (args, wanted) in [
        (&["redrive"][..], "<ID>"),
        (&["redrive", "--all", "x"], "cannot be used with"),
        (&["redrive", "a/b"], "use 1 to 128 of A-Z"),
        (&["redrive", "--all", "--queue", "other"], "there is no queue \"other\""),
    ] {
        let ran = place.run(args);
        assert!(ran.code == Some(2) && ran.out.is_empty() && ran.err.contains(wanted), "{args:?}: {ran:?}");
    }
    assert!(JobId::parse("a/b").is_err());
}
