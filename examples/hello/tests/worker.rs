//! The first job, as in its README: a client enqueues it, worker processes run it, and one of them
//! is killed.

use std::path::Path;
use std::time::Duration;

use clap::Parser;
use reprieve::{Client, JobId, NewJob, StoreArgs};
use reprieve_tests::{Sandbox, Worker, until};

/// The time limit of any wait. Far longer than needed, because test machines are busy.
const LONG: Duration = Duration::from_secs(60);

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    store: StoreArgs,
}

async fn enqueue(sandbox: &Sandbox, to: u64) -> JobId {
    let cli = Cli::parse_from(["test", "--store", &sandbox.address(), "--queue", "default"]);
    let client = Client::open(&cli.store).await.expect("a store");
    let args = serde_json::value::to_raw_value(&to).expect("JSON");
    client.producer().enqueue(vec![NewJob::new("count-to", args)]).await.expect("an enqueued job").remove(0)
}

fn worker(sandbox: &Sandbox) -> Worker {
    let arguments = ["--metadata-url", "off", "--checkpoint-every", "100ms"];
    Worker::start(sandbox, Path::new(env!("CARGO_BIN_EXE_hello")), arguments)
}

async fn result(sandbox: &Sandbox, job: &JobId) -> u64 {
    until("the job has a result", LONG, async || sandbox.result(job).await).await
}

#[tokio::test]
async fn a_job_that_is_enqueued_is_done_and_its_result_is_kept() {
    let sandbox = Sandbox::new().await;
    let job = enqueue(&sandbox, 20).await;
    let worker = worker(&sandbox);
    assert_eq!(result(&sandbox, &job).await, 20);
    until("the message is settled", LONG, async || (sandbox.depth().await.total == 0).then_some(())).await;
    worker.stop().await;
}

#[tokio::test]
async fn when_a_worker_is_killed_another_goes_on_from_its_last_checkpoint() {
    let sandbox = Sandbox::new().await;
    // At least five seconds of counting: the kill comes after the first.
    let job = enqueue(&sandbox, 500).await;
    let mut first = worker(&sandbox);
    let saved = |steps: u64| {
        move |report: &reprieve::ports::WorkerReport| report.in_flight.iter().any(|job| job.steps >= steps)
    };
    first.reports(&sandbox, "fifty steps are done, and five checkpoints due", saved(50)).await;
    first.kill();

    let second = worker(&sandbox);
    let report = second.reports(&sandbox, "the second worker counts", saved(1)).await;
    let resumed = &report.in_flight[0];
    assert_eq!(resumed.delivery, 2);
    assert!(resumed.progress.done > resumed.steps + 20, "it began near zero: {resumed:?}");
    assert_eq!(result(&sandbox, &job).await, 500);
    second.stop().await;
}
