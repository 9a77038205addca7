//! `reprieve redrive`.

use std::time::Duration;

use reprieve::ports::{DeadLetter, NewMessage};
use reprieve::{Client, JobId};
use serde_json::Value;

use crate::support::Place;

/// Puts so many jobs, and one message that is no job, into the poison queue.
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
async fn all_jobs_are_sent_again_and_what_is_no_job_stays() {
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
    assert_eq!(ran.err, "1 message in the poison queue can't be read as a job, and stays there\n");
    let depth = client.store().queue.depth().await.expect("counted");
    assert_eq!((depth.ready, depth.poisoned), (Some(40), Some(1)));
    let again = place.run(&["redrive", "--all"]);
    assert_eq!((again.code, again.out.as_str()), (Some(0), ""), "nothing is left to redrive");
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
