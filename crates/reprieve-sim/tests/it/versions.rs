//! Every api-version's document, and approvals in every version.

use reprieve_azure::scheduled_events::ApiVersion;
use reprieve_azure::scheduled_events::document::EventType;
use reprieve_sim::metadata::{Announcement, Config, MetadataServer, Scenario, Which};
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{ME, NEIGHBOUR, seconds, server};

/// Returns the answer to a request in this version, with or without the header.
async fn ask(
    server: &MetadataServer,
    method: Method,
    version: ApiVersion,
    header: bool,
    body: String,
) -> (u16, Value) {
    let url = format!("{}/metadata/scheduledevents?api-version={version}", server.url());
    let http = reqwest::Client::builder().no_proxy().build().expect("a client");
    let mut request = http.request(method, url).body(body);
    if header {
        request = request.header("Metadata", "true");
    }
    let answer = request.send().await.expect("an answer");
    let status = answer.status().as_u16();
    (status, answer.json().await.unwrap_or(Value::Null))
}

async fn document(server: &MetadataServer, version: ApiVersion) -> Value {
    let (status, document) = ask(server, Method::GET, version, true, String::new()).await;
    assert_eq!(status, 200, "{version}");
    document
}

fn types(document: &Value) -> Vec<&str> {
    let events = document["Events"].as_array().expect("events");
    events.iter().map(|event| event["EventType"].as_str().expect("a type")).collect()
}

#[tokio::test]
async fn every_version_has_its_own_fields_and_no_others() {
    let server = server().await;
    let all = ["Freeze", "Preempt", "Terminate", "SpotRebalanceRecommendation"];
    for event_type in all {
        let event_type = EventType::from(event_type.to_owned());
        server.announce(Announcement::new(event_type, [ME], Some(seconds(600)))).expect("an event");
    }
    let first = ["EventId", "EventStatus", "EventType", "NotBefore", "ResourceType", "Resources"];
    for (version, known, later) in [
        ("2017-03-01", 1, &[][..]),
        ("2017-08-01", 1, &[]),
        ("2017-11-01", 2, &[]),
        ("2019-01-01", 3, &[]),
        ("2019-04-01", 3, &["Description"]),
        ("2019-08-01", 3, &["Description", "EventSource"]),
        ("2020-07-01", 3, &["Description", "EventSource", "DurationInSeconds"]),
        ("2024-07-09", 4, &["Description", "EventSource", "DurationInSeconds"]),
    ] {
        let document = document(&server, version.parse().expect("a version")).await;
        assert_eq!(types(&document), &all[..known], "{version}");
        assert_eq!(document["DocumentIncarnation"], 5, "{version}");
        let fields = document["Events"][0].as_object().expect("an event");
        let mut fields: Vec<_> = fields.keys().map(String::as_str).collect();
        fields.sort_unstable();
        let mut expected = [&first[..], later].concat();
        expected.sort_unstable();
        assert_eq!(fields, expected, "{version}");
        let name = if version == "2017-03-01" { "_workers_0" } else { "workers_0" };
        assert_eq!(document["Events"][0]["Resources"], json!([name]), "{version}");
    }
}

#[tokio::test]
async fn the_first_version_does_without_the_header() {
    let server = server().await;
    for version in ApiVersion::ALL {
        let (status, _) = ask(&server, Method::GET, version, false, String::new()).await;
        let expected = if version == ApiVersion::V2017_03_01 { 200 } else { 400 };
        assert_eq!(status, expected, "{version}");
    }
}

#[tokio::test]
async fn without_the_preview_its_version_is_not_found() {
    let config = Config { preview: false, ..Config::with_vms([ME]) };
    let server = MetadataServer::start(config).await.expect("a mock");
    for version in ApiVersion::ALL {
        let (status, _) = ask(&server, Method::GET, version, true, String::new()).await;
        let expected = if version == ApiVersion::V2024_07_09 { 404 } else { 200 };
        assert_eq!(status, expected, "{version}");
    }
}

#[tokio::test]
async fn an_approval_counts_in_every_version_that_tells_of_the_event() {
    for version in ApiVersion::ALL {
        let server = server().await;
        let event = Announcement::new(EventType::Terminate, [ME], Some(seconds(600)));
        let id = server.announce(event).expect("an event").event_id.to_lowercase();
        let body = json!({ "StartRequests": [{ "EventId": id }], "DocumentIncarnation": 2, "More": {} });
        let (status, _) = ask(&server, Method::POST, version, true, body.to_string()).await;
        let tells = version >= ApiVersion::V2019_01_01;
        assert_eq!(status, if tells { 200 } else { 400 }, "{version}");
        let [event] = &server.state().events[..] else { panic!("{:?}", server.state().events) };
        assert_eq!(event.approvals.len(), usize::from(tells), "{version}");
        assert_eq!(server.state().document.events[0].not_before.is_empty(), tells, "{version}");
    }
}

/// <https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events#example-of-events>, as it was published.
#[tokio::test(start_paused = true)]
async fn the_published_live_migration_is_replayed_word_for_word() {
    const SCENARIO: &str = r#"
name = "published"
description = "The events that two VMs saw which were live migrated to another host."

[[steps]]
action = "announce"
type = "Freeze"
vms = ["@all"]
notice = "15m"
duration = "5s"
started_for = "5m"
description = "Virtual machine is being paused because of a memory-preserving Live Migration operation."
event_id = "C7061BAC-AFDC-4513-B24B-AA5F13A16123"
not_before = "Mon, 11 Apr 2022 22:26:58 GMT"
"#;
    let config = Config {
        scenarios: vec![Scenario::read(SCENARIO).expect("a scenario")],
        ..Config::with_vms(["WestNO_0", "WestNO_1"])
    };
    let server = MetadataServer::start(config).await.expect("a mock");
    let published = |incarnation: u64, status: Option<(&str, &str)>| {
        let events: Vec<_> = status
            .into_iter()
            .map(|(status, not_before)| {
                json!({
                    "EventId": "C7061BAC-AFDC-4513-B24B-AA5F13A16123",
                    "EventStatus": status,
                    "EventType": "Freeze",
                    "ResourceType": "VirtualMachine",
                    "Resources": ["WestNO_0", "WestNO_1"],
                    "NotBefore": not_before,
                    "Description": "Virtual machine is being paused because of a memory-preserving Live Migration operation.",
                    "EventSource": "Platform",
                    "DurationInSeconds": 5,
                })
            })
            .collect();
        json!({ "DocumentIncarnation": incarnation, "Events": events })
    };
    let current = async || document(&server, ApiVersion::V2020_07_01).await;
    assert_eq!(current().await, published(1, None));
    server.run("published", None).expect("a scenario");
    let scheduled = published(2, Some(("Scheduled", "Mon, 11 Apr 2022 22:26:58 GMT")));
    assert_eq!(current().await, scheduled);
    tokio::time::advance(seconds(15 * 60 - 1)).await;
    assert_eq!(current().await, scheduled);
    tokio::time::advance(seconds(1)).await;
    assert_eq!(current().await, published(3, Some(("Started", ""))));
    tokio::time::advance(seconds(5 * 60)).await;
    assert_eq!(current().await, published(4, None));
}

#[tokio::test]
async fn who_approved_is_remembered_when_the_event_is_over() {
    let server = server().await;
    let event = Announcement::new(EventType::Reboot, [ME], Some(seconds(600)));
    let id = server.announce(event).expect("an event").event_id;
    let client =
        reprieve_azure::scheduled_events::Client::new(&server.vm_url(NEIGHBOUR)).expect("a base URL");
    client.approve(&[&id], seconds(5)).await.expect("a VM of the set");
    server.complete(&Which::EventId(id)).expect("it has begun");
    let state = server.state();
    assert!(state.document.events.is_empty());
    assert_eq!(state.events[0].approvals[0].vm, NEIGHBOUR);
}
