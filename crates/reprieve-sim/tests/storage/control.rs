//! Another process controls a double over HTTP.

use std::time::Duration;

use reprieve_core::ErrorKind;
use reprieve_sim::storage::client;
use reprieve_sim::storage::{Action, Config, Latency, Operation, Rule, StorageServer};
use serde_json::{Value, json};

use crate::support::{Double, refused, send};

#[tokio::test]
async fn faults_are_added_listed_and_removed() {
    let double = Double::start().await;
    let queue = double.queue("work").await;
    let rule = Rule::new(Action::OperationTimedOut).on(Operation::Receive).times(1);
    for url in [double.server.queue_url(), double.server.blob_url()] {
        let id = client::add_fault(&url, &rule).await.expect("a rule that can be");
        let listed = client::faults(&url).await.unwrap();
        assert_eq!(listed, double.server.faults());
        assert_eq!((listed[0].id, &listed[0].rule), (id, &rule));
        assert_eq!(refused(queue.receive_messages(None).await).0, 500);
        queue.receive_messages(None).await.expect("it happens once");
        client::remove_fault(&url, id).await.unwrap();
        let again = client::remove_fault(&url, id).await.unwrap_err();
        assert_eq!(again.kind(), ErrorKind::NotFound);
    }
    client::add_fault(&double.server.control_url(), &rule).await.unwrap();
    client::clear_faults(&double.server.control_url()).await.unwrap();
    assert!(double.server.faults().is_empty());
    let never = Rule { probability: 2.0, ..rule };
    let refused = client::add_fault(&double.server.control_url(), &never).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert_eq!(refused.to_string(), "add a fault: a probability is from 0 to 1, not 2");
}

#[tokio::test]
async fn counts_are_read_and_reset() {
    let double = Double::start().await;
    let (queue, url) = (double.queue("work").await, double.server.control_url());
    send(&queue, "a").await;
    queue.delete_message("no-id", "AgAAAAAAAAAAAAAAAAAAAAAAAAA=", None).await.unwrap_err();
    let counts = client::counts(&url).await.unwrap();
    assert_eq!(counts, double.server.counts());
    assert_eq!(counts.total(), 3);
    assert_eq!(counts.answered(Operation::Delete, 404), 1);
    let raw: Value =
        double.http.get(format!("{url}/_control/counts")).send().await.unwrap().json().await.unwrap();
    assert_eq!(raw["operations"]["send"], json!({"requests": 1, "statuses": {"201": 1}}));
    client::reset_counts(&url).await.unwrap();
    assert_eq!(client::counts(&url).await.unwrap().total(), 0, "control requests are not counted");
}

#[tokio::test]
async fn faults_and_latency_are_set_without_a_client_of_ours() {
    let double = Double::start().await;
    let url = format!("{}/_control", double.server.control_url());
    let fault = r#"{"operation":"send","prefix":"wo","skip":1,"times":2,"action":{"kind":"server-busy"}}"#;
    let added = double.http.post(format!("{url}/faults")).body(fault).send().await.unwrap();
    assert_eq!(added.json::<Value>().await.unwrap(), json!({"id": 1}));
    let latency = double.http.put(format!("{url}/latency")).body(r#"{"fixed_ms":1}"#).send().await.unwrap();
    assert_eq!(latency.status(), 204);
    let set: Latency = double.http.get(format!("{url}/latency")).send().await.unwrap().json().await.unwrap();
    assert_eq!(set, Latency { fixed_ms: 1, ..Latency::default() });
    let wrong = double.http.post(format!("{url}/faults")).body("{}").send().await.unwrap();
    assert_eq!(wrong.status(), 400);
    assert!(wrong.text().await.unwrap().contains("missing field `action`"));
    let unknown = double.http.get(format!("{url}/nothing")).send().await.unwrap();
    assert_eq!(unknown.status(), 404);
}

#[tokio::test]
async fn a_double_that_is_missing_or_cannot_start_is_reported() {
    let double = Double::start().await;
    let (url, port) = (
        double.server.control_url(),
        double.server.control_url().rsplit(':').next().unwrap().parse().unwrap(),
    );
    let taken = StorageServer::start(Config { queue_port: port, ..Config::default() }).await.unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::Unavailable);
    assert!(taken.to_string().ends_with("choose another port"), "{taken}");
    double.server.stop().await;
    let away = client::counts(&url).await.unwrap_err();
    assert_eq!(away.kind(), ErrorKind::Unavailable);
    assert!(away.to_string().ends_with("start one with `reprieve storage serve`"), "{away}");
    assert_eq!(client::counts("localhost").await.unwrap_err().kind(), ErrorKind::Invalid);
    // The port is free: another double can start there.
    let free = StorageServer::start(Config { queue_port: port, ..Config::default() });
    tokio::time::timeout(Duration::from_secs(5), free).await.unwrap().unwrap();
}
