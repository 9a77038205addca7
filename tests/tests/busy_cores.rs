//! Jobs that keep every core busy and never await: leases and notices have their own thread.

use std::path::Path;
use std::time::Duration;

use reprieve_core::worker::DrainReport;
use reprieve_sim::control::evict;
use reprieve_sim::metadata::{Config, MetadataServer, Which};
use reprieve_tests::{Sandbox, Worker, until};
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;

const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, Deserialize)]
struct Spun {
    delivery: u32,
}

fn worker(sandbox: &Sandbox, mock: &MetadataServer, vm: &str) -> Worker {
    let url = mock.vm_url(vm);
    let arguments = ["--metadata-url", &url, "--lease", "3s", "--budget", "2s"];
    Worker::start(sandbox, Path::new(env!("CARGO_BIN_EXE_test-jobs")), arguments)
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Evicts the VM of `worker`. Returns the report of its drain, and the time from the announcement
/// to the report.
async fn evicted(
    sandbox: &Sandbox,
    mock: &MetadataServer,
    worker: &Worker,
    vm: &str,
) -> (DrainReport, Duration) {
    let announced = Instant::now();
    evict(&mock.url(), vm, Duration::from_secs(30)).await.expect("an eviction");
    let report =
        worker.reports(sandbox, "the worker has drained", |report| report.last_drain.is_some()).await;
    (report.last_drain.expect("a drain"), announced.elapsed())
}

#[tokio::test]
async fn no_lease_lapses_while_every_core_spins_for_twenty_seconds() {
    let sandbox = Sandbox::new().await;
    let mock = MetadataServer::start(Config::with_vms(["spot_0", "spot_1"])).await.unwrap();
    let jobs = sandbox.enqueue("spin", vec![json!({"steps": 1, "each_ms": 20_000}); cores()]).await;
    let spinning = worker(&sandbox, &mock, "spot_0");
    let all = |report: &reprieve_core::ports::WorkerReport| report.in_flight.len() == cores();
    spinning.reports(&sandbox, "every core spins", all).await;
    // This worker receives every message with a lapsed lease.
    let idle = worker(&sandbox, &mock, "spot_1");

    for job in &jobs {
        let spun: Spun = until("the job is done", PATIENCE, async || sandbox.result(job).await).await;
        assert_eq!(spun.delivery, 1, "its lease lapsed and another worker received it");
    }
    for worker in [spinning, idle] {
        assert!(!worker.log().text().contains("lease was lost"), "{}", worker.log().text());
        worker.stop().await;
    }
}

/// A job has a thread of its own: it need not wait until another one yields.
#[tokio::test]
async fn every_job_that_is_held_begins_though_the_others_never_yield() {
    let sandbox = Sandbox::new().await;
    let many = 24;
    sandbox.enqueue("spin", vec![json!({"steps": 6_000, "each_ms": 100}); many]).await;
    let arguments = ["--metadata-url", "off", "--concurrency", "24"];
    let mut worker = Worker::start(&sandbox, Path::new(env!("CARGO_BIN_EXE_test-jobs")), arguments);
    let all = |report: &reprieve_core::ports::WorkerReport| {
        report.in_flight.iter().filter(|job| job.steps > 0).count() == many
    };
    worker.reports(&sandbox, "all jobs have done a step", all).await;
    worker.kill();
}

#[tokio::test]
async fn a_notice_is_acted_on_within_a_second_while_every_core_spins() {
    let sandbox = Sandbox::new().await;
    let mock = MetadataServer::start(Config::with_vms(["spot_0", "spot_1"])).await.unwrap();
    let jobs = sandbox.enqueue("spin", vec![json!({"steps": 60, "each_ms": 100}); 2 * cores()]).await;
    let first = worker(&sandbox, &mock, "spot_0");
    let under_way = |report: &reprieve_core::ports::WorkerReport| {
        report.in_flight.iter().filter(|job| job.steps > 0).count() == cores()
    };
    first.reports(&sandbox, "every core spins", under_way).await;

    let (drain, whole) = evicted(&sandbox, &mock, &first, "spot_0").await;
    println!(
        "notice to released: {} ms; announcement to report: {} ms",
        drain.released_after_ms,
        whole.as_millis()
    );
    assert_eq!((drain.held, drain.released_saved), (cores() as u64, cores() as u64), "{drain:?}");
    assert!(drain.released_after_ms < 1000, "{drain:?}");
    assert_eq!((drain.abandoned, drain.work_lost_ms), (0, 0), "{drain:?}");

    let second = worker(&sandbox, &mock, "spot_1");
    for job in &jobs {
        let spun: Spun = until("the job is done", PATIENCE, async || sandbox.result(job).await).await;
        assert!(spun.delivery <= 2, "{spun:?}");
    }
    first.stop().await;
    second.stop().await;
}

#[tokio::test]
async fn a_job_that_never_yields_is_released_all_the_same() {
    let sandbox = Sandbox::new().await;
    let mock = MetadataServer::start(Config::with_vms(["spot_0"])).await.unwrap();
    sandbox.enqueue("spin", vec![json!({"steps": 1, "each_ms": 600_000}); cores()]).await;
    let url = mock.vm_url("spot_0");
    let arguments = ["--metadata-url", &url, "--lease", "3s", "--budget", "2s", "--listen", "127.0.0.1:0"];
    let stubborn = Worker::start(&sandbox, Path::new(env!("CARGO_BIN_EXE_test-jobs")), arguments);
    stubborn.reports(&sandbox, "every core spins", |report| report.in_flight.len() == cores()).await;

    let (drain, _) = evicted(&sandbox, &mock, &stubborn, "spot_0").await;
    println!("notice to released: {} ms", drain.released_after_ms);
    let all = cores() as u64;
    assert_eq!(
        (drain.held, drain.released_cut, drain.still_running, drain.abandoned),
        (all, all, all, 0),
        "{drain:?}"
    );
    // The soft mark is 60 % of the budget of two seconds; the rest of that is for the release.
    assert!(drain.released_after_ms < 2000, "{drain:?}");
    let depth = sandbox.depth().await;
    assert_eq!((depth.ready, depth.leased), (Some(all), Some(0)));

    // The notice passes; the slots stay occupied.
    mock.withdraw(&Which::Vm("spot_0".to_owned())).expect("a withdrawal");
    until("the worker says that it is stuck", PATIENCE, async || {
        let lines = stubborn.log().lines(
            "every slot is occupied by a job that was given up and does not end; this worker can run nothing \
             until it is restarted",
        );
        (lines.len() == 1).then_some(())
    })
    .await;
    let answer = stubborn.get("/readyz").expect("an answer");
    assert!(answer.starts_with("HTTP/1.0 503") && answer.ends_with("stuck\n"), "{answer}");
    stubborn.stop().await;
}
