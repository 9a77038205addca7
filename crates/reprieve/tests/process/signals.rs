//! SIGTERM and SIGINT.

use std::time::Duration;

use reprieve::NewJob;
use reprieve::ports::WorkerReport;
use reprieve_testkit::Signal;
use serde_json::value::RawValue;

use crate::support::{Place, Worker, until};

async fn enqueue(place: &Place, kind: &str, args: &str) -> reprieve::Client {
    let client = place.client().await;
    let args = RawValue::from_string(args.to_owned()).expect("JSON");
    client.producer().enqueue(vec![NewJob::new(kind, args)]).await.expect("it is enqueued");
    client
}

/// Waits until a worker holds a job, and returns its report.
async fn working(client: &reprieve::Client) -> WorkerReport {
    until("a worker holds a job", async || {
        let reports = client.store().roster.reports(Duration::from_mins(1)).await.expect("reports");
        reports.into_iter().find(|report| !report.in_flight.is_empty())
    })
    .await
}

#[tokio::test]
async fn a_first_signal_saves_releases_and_exits_with_0() {
    for signal in [Signal::TERM, Signal::INT] {
        let place = Place::new();
        let client = enqueue(&place, "count-to", "1000000").await;
        let mut worker = place.worker("hello", &[]);
        until("some steps are done", async || (working(&client).await.in_flight[0].steps > 0).then_some(()))
            .await;
        worker.signal(signal);
        let stopped = worker.logs("worker stopped");
        assert_eq!(worker.ends(), Some(0));
        assert_eq!((&stopped["reason"], &stopped["released"]), (&"Drained".into(), &1.into()), "{stopped}");
        let depth = client.store().queue.depth().await.unwrap();
        assert_eq!((depth.total, depth.ready, depth.leased), (1, Some(1), Some(0)));
        assert!(client.store().roster.reports(Duration::from_mins(1)).await.unwrap().is_empty());

        // Another worker resumes the job.
        let _second = place.worker("hello", &[]);
        let resumed = working(&client).await;
        assert_eq!(resumed.in_flight[0].delivery, 2);
        until("the job has resumed past its beginning", async || {
            let job = &working(&client).await.in_flight[0];
            (job.progress.done > job.steps).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn a_second_signal_ends_at_once_with_1_and_the_job_is_not_lost() {
    let place = Place::new();
    let client = enqueue(&place, "command", r#"["sleep", "20"]"#).await;
    let mut worker = place.worker("command", &["--concurrency", "1", "--budget", "30s", "--lease", "60s"]);
    working(&client).await;
    worker.signal(Signal::TERM);
    worker.reaches("shutdown");
    worker.signal(Signal::TERM);
    let stopped = worker.logs("worker stopped");
    assert_eq!((worker.ends(), &stopped["reason"]), (Some(1), &"Abandoned".into()));
    assert_eq!(client.store().queue.depth().await.unwrap().total, 1);
}

#[tokio::test]
async fn a_job_that_blocks_its_thread_is_released_within_the_budget() {
    let place = Place::new();
    let client = enqueue(&place, "command", r#"["sleep", "20"]"#).await;
    let mut worker = place.worker("command", &["--concurrency", "1", "--budget", "2s"]);
    working(&client).await;
    worker.signal(Signal::TERM);
    let drained = worker.logs("drained");
    assert_eq!((&drained["cut"], &drained["abandoned"]), (&1.into(), &0.into()), "{drained}");
    assert!(drained["released_after_ms"].as_u64().unwrap() < 2_000, "{drained}");
    assert_eq!(worker.ends(), Some(0));
    assert_eq!(client.store().queue.depth().await.unwrap().ready, Some(1));
}

#[test]
fn a_signal_during_the_start_ends_with_0() {
    let place = Place::new();
    // A metadata service that takes connections and never answers keeps the worker from taking
    // jobs.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let mut worker =
        Worker::start(place.command("hello", &["--metadata-url", &url, "--listen", "127.0.0.1:0"]));
    worker.logs("listening for health checks");
    worker.signal(Signal::TERM);
    assert_eq!(worker.ends(), Some(0));
}
