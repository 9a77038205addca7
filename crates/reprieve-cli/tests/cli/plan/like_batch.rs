//! `reprieve plan --like-batch`, on the store of a real worker.

use std::time::Duration;

use reprieve::worker::{Worker, stopping};
use reprieve::{Job, JobContext, JobError, NewJob, Step, async_trait};

use super::{PRICES, json};
use crate::support::{Place, until};

/// A job of three short steps, with a result.
#[derive(Debug)]
struct Quick;

#[async_trait]
impl Job for Quick {
    const KIND: &'static str = "quick";
    type Args = u32;
    type Checkpoint = u32;
    type Output = u32;

    fn begin(&self, _: &u32) -> u32 {
        0
    }

    async fn step(&self, _: &JobContext, args: &u32, at: u32) -> Result<Step<u32, u32>, JobError> {
        tokio::time::sleep(Duration::from_millis(20)).await;
        Ok(if at < 2 { Step::Continue(at + 1) } else { Step::Done(*args) })
    }
}

#[tokio::test]
async fn a_plan_like_a_batch_has_the_jobs_and_times_of_the_store() {
    let place = Place::new();
    let client = place.client().await;
    let like = [&["plan", "--like-batch", "--json", "--runs", "2", "--vms", "2"], &PRICES[..]].concat();
    let nothing = place.run(&like);
    assert_eq!(nothing.code, Some(2), "{nothing:?}");
    assert!(nothing.err.contains("no job was done in this store in the last 7d"), "{nothing:?}");

    let jobs = (0..12).map(|number| NewJob::of::<Quick>(&number).expect("arguments")).collect();
    client.producer().enqueue(jobs).await.expect("enqueued");
    let worker =
        Worker::builder(client.store().clone()).vm("workers_7").job(Quick).build().expect("a worker");
    let (stopper, stopping) = stopping();
    let running = tokio::spawn(worker.run(stopping));
    let store = client.store();
    until("all are done", async || {
        let results = store.blobs.list("results/").await.expect("a list");
        (results.len() == 12).then_some(())
    })
    .await;
    stopper.stop();
    running.await.expect("no panic");

    let ran = place.run(&like);
    let found = json(&ran);
    assert_eq!(found["jobs"], 12);
    let job_ms = found["tables"][0]["job_ms"].as_u64().unwrap();
    assert!((1..10_000).contains(&job_ms), "{job_ms}");
    let jobs = found["assumptions"].as_array().unwrap().iter().find(|it| it["subject"] == "jobs").unwrap();
    assert_eq!(jobs["kind"], "measured");
    assert!(jobs["source"].as_str().unwrap().starts_with("this store: 12 jobs in "), "{jobs}");
    // What is given comes first.
    let given = json(
        &place.run(&[&like[..], &["--job-time", "1h", "--jobs", "3", "--eviction-rate", "5%"]].concat()),
    );
    assert_eq!((&given["jobs"], &given["tables"][0]["job_ms"]), (&3.into(), &3_600_000.into()));
    assert_eq!(given["tables"][0]["worlds"][0]["name"], "5 % evicted an hour");
    // Both are named by what they are from.
    for (more, kind, end) in [
        (&["--jobs", "3"][..], "measured", "waiting and saves included; their number is given"),
        (&["--job-time", "1h"], "measured", "this store: 12 jobs; their time is given"),
        (&["--job-time", "1h", "--jobs", "3"], "given", ""),
    ] {
        let found = json(&place.run(&[&like[..], more].concat()));
        let all = found["assumptions"].as_array().expect("assumptions");
        let jobs = all.iter().find(|it| it["subject"] == "jobs").expect("jobs");
        assert_eq!(jobs["kind"], kind, "{jobs}");
        assert!(jobs["source"].as_str().is_some_and(|source| source.ends_with(end)), "{jobs}");
    }

    // The ledger can be given as a file, too.
    for (form, file) in [("--json", "ledger.json"), ("--csv", "ledger.csv")] {
        place.write(file, place.succeeds(&["report", form]));
        let args = ["plan", "--jobs", "4", "--job-time", "1m", "--runs", "2", "--json", "--trace", file];
        let found = json(&place.run(&[&args[..], &PRICES[..]].concat()));
        // It is of some seconds, which is no knowledge of evictions: none, and many.
        let worlds = found["tables"][0]["worlds"].as_array().expect("worlds");
        assert_eq!(worlds.len(), 2, "{file}: {worlds:?}");
    }
}
