//! A catalogue on workers that are killed, stopped and evicted: its sum is exact, and published once at a
//! time.
#![cfg(unix)]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use reprieve_sim::metadata::{Config, MetadataServer};
use reprieve_testkit::{Lines, Process};
use reprieve_tests::{Sandbox, Worker, until};
use rustix::process::Signal;
use serde::Deserialize;
use serde_json::json;

/// The time limit of any wait. Far longer than needed, because test machines are busy.
const LONG: Duration = Duration::from_secs(120);

/// How often a worker calls the service in a second: often enough for a short test, and seldom enough that
/// it is disturbed in the middle.
const CALLS_PER_SECOND: &str = "150";

#[derive(Debug, Deserialize)]
struct Seen {
    calls: u64,
    failed: u64,
    refused: u64,
    totals: BTreeMap<String, u64>,
}

#[derive(Debug, Deserialize)]
struct Total {
    sum: u64,
    failed: Vec<u64>,
}

/// The service, and its address.
struct Service {
    _process: Process,
    url: String,
}

impl Service {
    async fn start() -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_enrich"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--calls-per-second", "1000000"]);
        let mut process = Process::start(command.stdin(Stdio::null()).stdout(Stdio::piped()));
        let lines = Lines::of(process.stdout());
        let line = until("the service listens", LONG, async || lines.all().pop()).await;
        let url = line.strip_prefix("listening on ").expect("its address").to_owned();
        Self { _process: process, url }
    }

    async fn seen(&self) -> Seen {
        let http = reqwest::Client::builder().no_proxy().build().expect("a client");
        let answer = http.get(format!("{}/seen", self.url)).send().await.expect("an answer");
        answer.json().await.expect("JSON")
    }

    /// Waits until it has so many calls more than now.
    async fn has_calls(&self, more: u64) {
        let before = self.seen().await.calls;
        until("the service is called", LONG, async || {
            (self.seen().await.calls >= before + more).then_some(())
        })
        .await;
    }
}

/// The sum of a catalogue and its items without a price.
fn expected(items: u64) -> (u64, Vec<u64>) {
    let (unknown, known): (Vec<_>, Vec<_>) = (0..items).partition(|item| item % 1_000 == 999);
    (known.iter().map(|item| item * 7_919 % 1_000).sum(), unknown)
}

fn worker(sandbox: &Sandbox, service: &Service, metadata_url: &str) -> Worker {
    let mut arguments = vec!["work", "--service", &service.url, "--calls-per-second", CALLS_PER_SECOND];
    arguments.extend(["--metadata-url", metadata_url, "--concurrency", "16"]);
    arguments.extend(["--lease", "5s", "--budget", "3s"]);
    Worker::start(sandbox, Path::new(env!("CARGO_BIN_EXE_enrich")), arguments)
}

#[tokio::test]
async fn kills_stops_and_evictions_change_no_sum() {
    let sandbox = Sandbox::new().await;
    let service = Service::start().await;
    let mock = MetadataServer::start(Config::with_vms(["spot"])).await.expect("a mock");
    let catalogues = [("spring", 1_300), ("autumn", 60), ("winter", 60)];
    let args = catalogues.map(|(name, items)| json!({"name": name, "items": items}));
    let jobs = sandbox.enqueue("enrich", args).await;

    let steady = worker(&sandbox, &service, "off");
    for disturbance in ["kill", "evict", "stop", "kill"] {
        let url = if disturbance == "evict" { mock.vm_url("spot") } else { "off".to_owned() };
        let mut disturbed = worker(&sandbox, &service, &url);
        disturbed.started(&sandbox).await;
        service.has_calls(100).await;
        match disturbance {
            "kill" => disturbed.kill(),
            "stop" => {
                disturbed.signal(Signal::TERM);
                assert_eq!(disturbed.ended(LONG).await.code(), Some(0));
            }
            _ => {
                mock.evict("spot", Duration::from_secs(5)).expect("an eviction");
                until("the worker has drained", LONG, async || disturbed.log().lines("drained").pop()).await;
                disturbed.kill();
            }
        }
        assert!(sandbox.depth().await.total > 0, "every disturbance is in the middle of the work");
    }

    for ((name, items), job) in catalogues.into_iter().zip(&jobs) {
        let total: Total = until("the job is done", LONG, async || sandbox.result(job).await).await;
        assert_eq!((total.sum, total.failed), expected(items), "{name}");
    }
    let seen = service.seen().await;
    let sums = catalogues.map(|(name, items)| (name.to_owned(), expected(items).0));
    assert_eq!(seen.totals, BTreeMap::from(sums));
    assert!(seen.failed * 5 >= seen.calls - 5, "one call in five failed: {seen:?}");
    assert_eq!(seen.refused, 0, "no two jobs published at once");
    let depth = sandbox.depth().await;
    assert_eq!((depth.total, depth.poisoned), (0, Some(1)), "the item without a price");
    steady.stop().await;
}
