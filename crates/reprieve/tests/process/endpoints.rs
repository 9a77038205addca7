//! The health endpoints over real HTTP, while the metadata service announces and withdraws an
//! eviction.

use std::net::SocketAddr;
use std::time::Duration;

use reprieve_sim::metadata::Which;
use reprieve_sim::metadata::{Config, MetadataServer};
use reprieve_testkit::Signal;

use crate::support::{Place, Worker, get, until};

async fn readiness(address: SocketAddr, status: u16, body: &'static str) {
    until(body, async || {
        let answer = tokio::task::spawn_blocking(move || get(address, "/readyz")).await.expect("no panic");
        (answer.status == status && answer.body == format!("{body}\n")).then_some(())
    })
    .await;
}

#[tokio::test]
async fn endpoints_tell_health_readiness_and_metrics() {
    let metadata = MetadataServer::start(Config::with_vms(["workers_0", "workers_1"])).await.unwrap();
    let place = Place::new();
    let args = ["--metadata-url", &metadata.vm_url("workers_1"), "--listen", "127.0.0.1:0"];
    let command = place.command("hello", &args);
    let (mut worker, address) = tokio::task::spawn_blocking(move || {
        let mut worker = Worker::start(command);
        let address =
            worker.logs("listening for health checks")["address"].as_str().unwrap().parse().unwrap();
        assert_eq!(worker.logs("worker started")["vm"], "workers_1", "the name is the metadata service's");
        let warned = "the store is on this Spot VM's disk, and an eviction deletes it: queue, checkpoints and \
                      results; use a store that other VMs reach: --store azure:ACCOUNT, with a storage account";
        assert_eq!(worker.logs(warned)["level"], "WARN");
        (worker, address)
    })
    .await
    .unwrap();

    readiness(address, 200, "start").await;
    metadata.evict("workers_0", Duration::from_secs(600)).unwrap();
    metadata.evict("workers_1", Duration::from_secs(600)).unwrap();
    readiness(address, 503, "shutdown").await;
    let draining = tokio::task::spawn_blocking(move || get(address, "/healthz")).await.unwrap();
    assert_eq!((draining.status, draining.body.as_str()), (200, r#"{"ApplicationHealthState":"Healthy"}"#));
    metadata.withdraw(&Which::Vm("workers_1".to_owned())).unwrap();
    readiness(address, 200, "start").await;

    tokio::task::spawn_blocking(move || {
        let health = get(address, "/healthz");
        // The body is what the Application Health extension demands, to the letter.
        assert_eq!((health.status, health.body.as_str()), (200, r#"{"ApplicationHealthState":"Healthy"}"#));
        assert!(health.head.contains("content-type: application/json"), "{}", health.head);
        let live = get(address, "/livez");
        assert_eq!((live.status, live.body.as_str()), (200, "ok\n"));
        let metrics = get(address, "/metrics");
        assert!(
            metrics.head.contains("content-type: application/openmetrics-text; version=1.0.0"),
            "{}",
            metrics.head
        );
        assert!(metrics.body.contains("reprieve_stage{stage=\"start\"} 1\n"), "{}", metrics.body);
        assert!(metrics.body.contains("reprieve_notice_to_released_seconds_count 1\n"), "{}", metrics.body);
        assert!(metrics.body.ends_with("# EOF\n"), "{}", metrics.body);
        let staleness =
            metrics.body.lines().find_map(|line| line.strip_prefix("reprieve_metadata_staleness_seconds "));
        let staleness: f64 = staleness.and_then(|age| age.parse().ok()).unwrap();
        assert!(staleness > 0.0 && staleness < 5.0, "{staleness}");
        for line in [
            "reprieve_metadata_version{version=\"2024-07-09\"} 1\n",
            "reprieve_metadata_version{version=\"2020-07-01\"} 0\n",
            "reprieve_metadata_errors_total{reason=\"throttled\"} 0\n",
        ] {
            assert!(metrics.body.contains(line), "{line}: {}", metrics.body);
        }
        assert_eq!(get(address, "/").status, 404);
        worker.signal(Signal::TERM);
        assert_eq!(worker.ends(), Some(0));
    })
    .await
    .unwrap();
}

#[test]
fn a_worker_with_a_silent_metadata_service_is_alive_but_not_ready() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let place = Place::new();
    let mut worker =
        Worker::start(place.command("hello", &["--metadata-url", &url, "--listen", "127.0.0.1:0"]));
    let address = worker.logs("listening for health checks")["address"].as_str().unwrap().parse().unwrap();
    worker.logs("worker started");
    let ready = get(address, "/readyz");
    assert_eq!((ready.status, ready.body.as_str()), (503, "recover\n"));
    assert_eq!(get(address, "/healthz").body, r#"{"ApplicationHealthState":"Healthy"}"#);
    assert_eq!(get(address, "/livez").status, 200);
    assert!(get(address, "/metrics").body.contains("reprieve_metadata_staleness_seconds inf\n"));
}

#[test]
fn one_of_the_workers_of_a_vm_answers_for_all_and_another_takes_over() {
    let place = Place::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    drop(taken);
    let state = place.dir.path().join("state");
    let (listen, state) = (address.to_string(), state.to_str().unwrap().to_owned());
    let mut first = place.worker("hello", &["--listen", &listen, "--state-dir", &state]);
    first.logs("listening for health checks");
    let mut second = place.worker("hello", &["--listen", &listen, "--state-dir", &state]);
    second.logs("another worker answers health checks; taking over when it ends");
    second.reaches("start");
    assert_eq!(get(address, "/healthz").status, 200);
    first.signal(Signal::KILL);
    second.logs("listening for health checks");
    assert_eq!(get(address, "/readyz").body, "start\n");
    // Workers that share nothing may not share an address.
    let (code, stderr) = place.fails(&["--metadata-url", "off", "--listen", &listen]);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("choose another address for --listen"), "{stderr}");
}
