//! Simulations on workers that are killed, stopped and evicted: their results have the bits of an
//! undisturbed one.
#![cfg(unix)]

use std::path::Path;
use std::time::Duration;

use reprieve::JobId;
use reprieve_sim::metadata::{Config, MetadataServer};
use reprieve_tests::{Sandbox, Worker, until};
use rustix::process::Signal;
use serde_json::json;

/// The time limit of any wait. Far longer than needed, because test machines are busy.
const LONG: Duration = Duration::from_secs(60);

/// The length of a side. The state of 360 KB is a file of the store, as that of a large plate is.
const SIDE: u64 = 200;

/// How many time steps: a few seconds of work.
const STEPS: u64 = 40_000;

fn worker(sandbox: &Sandbox, metadata_url: &str) -> Worker {
    let arguments = ["--metadata-url", metadata_url, "--checkpoint-every", "100ms"];
    Worker::start(sandbox, Path::new(env!("CARGO_BIN_EXE_simulation")), arguments)
}

async fn enqueue(sandbox: &Sandbox) -> JobId {
    sandbox.enqueue("heat", [json!({"side": SIDE, "steps": STEPS, "seed": 7})]).await.remove(0)
}

/// Returns the bytes of the result. The job is done then, and nothing of its state is left.
async fn result(sandbox: &Sandbox, job: &JobId) -> String {
    until("the job is done", LONG, async || (sandbox.depth().await.total == 0).then_some(())).await;
    assert_eq!(sandbox.depth().await.poisoned, Some(0), "{:?}", sandbox.dead_letters().await);
    // The worker removes the record right after the message.
    until("nothing is left", LONG, async || sandbox.record(job).await.is_none().then_some(())).await;
    let result = sandbox.blob(&format!("results/{job}.json")).await.expect("the job has a result");
    String::from_utf8(result).expect("JSON")
}

/// The number of the write that made the job's newest checkpoint; 0 while there is none.
async fn newest(sandbox: &Sandbox, job: &JobId) -> u64 {
    let record = sandbox.record(job).await;
    record.and_then(|record| Some(record.checkpoints.first()?.sequence)).unwrap_or_default()
}

/// Checks that the worker's one job was saved in a drain, and not dropped.
async fn drained(worker: &Worker) {
    let drain = until("the worker has drained", LONG, async || worker.log().lines("drained").pop()).await;
    let counts = ["held", "saved", "work_lost_ms"].map(|count| drain.number(count));
    assert_eq!(counts, [1, 1, 0], "{drain:?}");
}

/// The ends of a worker in the middle of the job.
#[derive(Debug, PartialEq)]
enum Disturbance {
    Kill,
    Stop,
    Evict,
}

#[tokio::test]
async fn kills_stops_and_evictions_change_no_bit_of_the_result() {
    use Disturbance::{Evict, Kill, Stop};
    let undisturbed = Sandbox::new().await;
    let job = enqueue(&undisturbed).await;
    let quiet = worker(&undisturbed, "off");
    let expected = result(&undisturbed, &job).await;
    quiet.stop().await;

    let sandbox = Sandbox::new().await;
    let mock = MetadataServer::start(Config::with_vms(["spot"])).await.expect("a mock");
    let job = enqueue(&sandbox).await;
    for (number, disturbance) in [Kill, Evict, Kill, Stop, Kill, Stop].into_iter().enumerate() {
        let before = newest(&sandbox, &job).await;
        let metadata_url = if disturbance == Evict { mock.vm_url("spot") } else { "off".to_owned() };
        let mut worker = worker(&sandbox, &metadata_url);
        let saved = async || (newest(&sandbox, &job).await > before).then_some(());
        until("the worker has saved a checkpoint", LONG, saved).await;
        assert_eq!(worker.log().lines("resuming at a checkpoint").len(), usize::from(number > 0));
        match disturbance {
            Kill => worker.kill(),
            Stop => {
                worker.signal(Signal::TERM);
                assert_eq!(worker.ended(LONG).await.code(), Some(0));
                drained(&worker).await;
            }
            Evict => {
                mock.evict("spot", Duration::from_secs(5)).expect("an eviction");
                drained(&worker).await;
                worker.kill();
            }
        }
    }
    assert!(newest(&sandbox, &job).await > 0, "every disturbance was in the middle of the job");
    let last = worker(&sandbox, "off");
    assert_eq!(result(&sandbox, &job).await, expected);
    last.stop().await;
}

#[tokio::test]
async fn a_plate_without_cells_is_refused() {
    let sandbox = Sandbox::new().await;
    sandbox.enqueue("heat", [json!({"side": 0, "steps": 1, "seed": 1})]).await;
    let worker = worker(&sandbox, "off");
    let letter = until("the job is dead-lettered", LONG, async || sandbox.dead_letters().await.pop()).await;
    assert_eq!(letter.reason.as_deref(), Some("side must be 1 to 10000, not 0"));
    worker.stop().await;
}
