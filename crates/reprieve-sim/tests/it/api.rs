//! The control API: through the client, and over plain HTTP.

use reprieve_azure::scheduled_events::document::EventType;
use reprieve_core::ErrorKind;
use reprieve_sim::control;
use reprieve_sim::metadata::{EventPlan, Scenario, Status, What, Which};
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{ME, NEIGHBOUR, server};

/// Returns the status and body of a request to the control API.
async fn ask(url: &str, method: Method, path: &str, body: &str, content_type: &str) -> (u16, Value) {
    let http = reqwest::Client::builder().no_proxy().build().expect("a client");
    let request = http.request(method, format!("{url}/control/{path}"));
    let request = request.header("Content-Type", content_type).body(body.to_owned());
    let answer = request.send().await.expect("an answer");
    (answer.status().as_u16(), answer.json().await.unwrap_or(Value::Null))
}

#[tokio::test]
async fn an_event_goes_through_its_life_on_demand() {
    let server = server().await;
    let url = server.url();
    let plan = EventPlan::new(EventType::Reboot, ["@all"]);
    let event = control::announce(&url, &plan).await.expect("an event");
    assert_eq!(event.resources, [ME, NEIGHBOUR]);
    let which = Which::EventId(event.event_id.clone());
    let early = control::complete(&url, &which).await.expect_err("it has not begun");
    assert_eq!(early.kind(), ErrorKind::Conflict);
    assert_eq!(control::start(&url, &which).await.expect("an active event"), [event.event_id.as_str()]);
    let late = control::withdraw(&url, &which).await.expect_err("it has begun");
    assert_eq!(late.kind(), ErrorKind::Conflict);
    control::complete(&url, &which).await.expect("it has begun");
    let state = control::state(&url).await.expect("a state");
    assert_eq!(state, server.state());
    let [over] = &state.events[..] else { panic!("{state:?}") };
    assert_eq!((over.status, over.event_id.as_str()), (Status::Completed, event.event_id.as_str()));
    let whats: Vec<_> = state.timeline.iter().map(|entry| entry.what).collect();
    assert_eq!(whats, [What::VmAdded, What::VmAdded, What::Announced, What::Started, What::Completed]);
    let entry = state.timeline.last().expect("a line");
    assert_eq!(entry.vms, [ME, NEIGHBOUR]);
    assert_eq!(
        (entry.event_id.as_ref(), entry.event_type.as_deref()),
        (Some(&event.event_id), Some("Reboot"))
    );
}

#[tokio::test]
async fn scenarios_are_added_read_and_run() {
    let server = server().await;
    let url = server.url();
    assert_eq!(control::scenarios(&url).await.expect("a list").len(), Scenario::built_in().len());
    let text = control::scenario(&url, "preempt").await.expect("a file").replace("preempt", "mine");
    let mine = control::add_scenario(&url, &text).await.expect("a scenario");
    assert_eq!(mine.name, "mine");
    assert_eq!(control::run_scenario(&url, "mine", None).await.expect("a known scenario"), ME);
    assert_eq!(
        control::run_scenario(&url, "mine", Some("WORKERS_1")).await.expect("a known scenario"),
        NEIGHBOUR
    );
    assert_eq!(server.state().document.events.len(), 2);
    for (name, vm) in [("nothing", None), ("mine", Some("workers_9"))] {
        let error = control::run_scenario(&url, name, vm).await.expect_err("unknown");
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    }
    let error = control::add_scenario(&url, "name = 'x'").await.expect_err("no scenario");
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
}

#[tokio::test]
async fn every_mistake_is_answered_in_a_sentence_of_json() {
    let server = server().await;
    for (method, path, body, status, expected) in [
        (Method::POST, "evict", r#"{"vm":"workers_0","notice":"soon"}"#, 400, "is not a number and a unit"),
        (Method::POST, "evict", r#"{"vm":"workers_0","notise":"1s"}"#, 400, "unknown field `notise`"),
        (Method::POST, "evict", "{", 400, "EOF while parsing"),
        (Method::POST, "evict", r#"{"vm":"nobody"}"#, 404, "there is no VM called"),
        (Method::POST, "announce", r#"{"type":"Freeze","vms":[]}"#, 400, "at least one VM"),
        (
            Method::POST,
            "announce",
            r#"{"type":"Freeze","vms":["@target"]}"#,
            400,
            "only a scenario has a @target",
        ),
        (Method::POST, "start", r#"{"event_id":"?"}"#, 404, "there is no such event"),
        (Method::PUT, "speed", r#"{"speed":0}"#, 400, "nonzero"),
        (Method::POST, "faults", r#"{"kind":"explode"}"#, 400, "no kind of fault"),
        (Method::DELETE, "faults/x", "", 400, "is not a fault's number"),
        (Method::GET, "scenarios/nothing", "", 404, "there is no scenario"),
    ] {
        let (answered, body) = ask(&server.url(), method, path, body, "application/json").await;
        let error = body["error"].as_str().unwrap_or_default();
        assert!(answered == status && error.contains(expected), "{path}: {answered} {body}");
    }
    // Requests as a page of another site could send them are refused.
    let body = r#"{"vm":"workers_0"}"#;
    let (status, answer) = ask(&server.url(), Method::POST, "evict", body, "text/plain").await;
    assert!(status == 400 && answer["error"].is_string(), "{answer}");
    assert_eq!(server.state().events, []);
}

#[tokio::test]
async fn the_speed_and_the_incarnation_are_set() {
    let server = server().await;
    let url = server.url();
    let sixty = std::num::NonZeroU32::new(60).expect("not zero");
    control::set_speed(&url, sixty).await.expect("a speed");
    let (status, announced) =
        ask(&url, Method::POST, "announce", r#"{"type":"Freeze","vms":["@first"]}"#, "application/json")
            .await;
    assert_eq!((status, &announced["Resources"]), (200, &json!([ME])));
    let event = &server.state().events[0];
    let notice = event.starts_at_unix_ms.map(|starts| starts - event.announced_at_unix_ms);
    assert_eq!(notice, Some(15_000), "15 minutes, 60 times faster");
    control::restart(&url).await.expect("it restarts");
    let state = server.state();
    assert_eq!((state.speed, state.document.document_incarnation.to_string()), (sixty, "1".to_owned()));
    assert_eq!(state.document.events.len(), 1);
}
