//! Injected faults: for which VM, how often, how long.

use std::time::Duration;

use reprieve_azure::scheduled_events::Client;
use reprieve_core::ErrorKind;
use reprieve_sim::control;
use reprieve_sim::metadata::{FaultRule, MetadataServer, Span};

use crate::support::{ME, NEIGHBOUR, client, seconds, server};

/// Returns the status of a request as this VM, or its error.
async fn status(server: &MetadataServer, vm: &str) -> Result<u16, reqwest::Error> {
    let url = format!("{}/metadata/scheduledevents?api-version=2020-07-01", server.vm_url(vm));
    let http = reqwest::Client::builder().no_proxy().build().expect("a client");
    Ok(http.get(url).header("Metadata", "true").send().await?.status().as_u16())
}

#[tokio::test(start_paused = true)]
async fn a_fault_may_last_for_a_time() {
    let server = server().await;
    server.add_fault(&FaultRule { lasts: Some(Span(seconds(70))), ..FaultRule::new("410") }).expect("a rule");
    for _ in 0..3 {
        assert_eq!(status(&server, ME).await.expect("an answer"), 410);
    }
    tokio::time::advance(Duration::from_millis(69_900)).await;
    assert_eq!(status(&server, ME).await.expect("an answer"), 410);
    tokio::time::advance(Duration::from_millis(100)).await;
    assert_eq!(status(&server, ME).await.expect("an answer"), 200);
    assert_eq!(server.state().faults, []);
}

#[tokio::test]
async fn a_fault_may_be_for_one_vm_and_one_endpoint_only() {
    let server = server().await;
    let id = control::add_fault(
        &server.url(),
        &FaultRule { vm: Some("WORKERS_1".to_owned()), ..FaultRule::new("500") },
    )
    .await
    .expect("a rule");
    assert_eq!(status(&server, NEIGHBOUR).await.expect("an answer"), 500);
    assert_eq!(status(&server, ME).await.expect("an answer"), 200);
    client(&server).compute(seconds(5)).await.expect("the instance is another endpoint");
    let [fault] = &control::faults(&server.url()).await.expect("a list")[..] else { panic!("one fault") };
    assert_eq!((fault.id, fault.vm.as_deref(), fault.injected), (id, Some(NEIGHBOUR), 1));
    control::remove_fault(&server.url(), id).await.expect("it is there");
    assert_eq!(status(&server, NEIGHBOUR).await.expect("an answer"), 200);
    let again = control::remove_fault(&server.url(), id).await.expect_err("gone");
    assert_eq!(again.kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn faults_befall_requests_in_their_order_and_are_cleared() {
    let server = server().await;
    for (kind, requests) in [("429", 2), ("none", 1), ("503", 9)] {
        server.add_fault(&FaultRule { requests: Some(requests), ..FaultRule::new(kind) }).expect("a rule");
    }
    for expected in [429, 429, 200, 503] {
        assert_eq!(status(&server, ME).await.expect("an answer"), expected);
    }
    control::clear_faults(&server.url()).await.expect("they are there");
    assert_eq!(status(&server, ME).await.expect("an answer"), 200);
}

#[tokio::test]
async fn a_reset_connection_has_no_answer() {
    let server = server().await;
    server.add_fault(&FaultRule { requests: Some(1), ..FaultRule::new("reset") }).expect("a rule");
    let error = status(&server, ME).await.expect_err("no answer");
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    let mut reset = false;
    while let Some(error) = cause {
        let io = error.downcast_ref::<std::io::Error>();
        reset |= io.is_some_and(|io| io.kind() == std::io::ErrorKind::ConnectionReset);
        cause = error.source();
    }
    assert!(reset, "{error:?}");
    assert_eq!(status(&server, ME).await.expect("an answer"), 200);
}

#[tokio::test]
async fn a_refused_approval_approves_nothing_and_one_with_a_lost_response_does() {
    let server = server().await;
    let id = server.evict(ME, seconds(60)).expect("an event").event_id;
    let approvals = || server.state().events[0].approvals.len();
    for (kind, approved) in [("500", 0), ("429", 0), ("reset", 0), ("break-off", 1)] {
        server.add_fault(&FaultRule { requests: Some(1), ..FaultRule::new(kind) }).expect("a rule");
        let url = format!("{}/metadata/scheduledevents?api-version=2020-07-01", server.vm_url(ME));
        let http = reqwest::Client::builder().no_proxy().build().expect("a client");
        let body = format!("{{\"StartRequests\":[{{\"EventId\":\"{id}\"}}]}}");
        // The answer, if any, is the fault's.
        let _answer = http.post(url).header("Metadata", "true").body(body).send().await;
        assert_eq!(approvals(), approved, "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_answer_has_the_state_of_the_time_of_the_request() {
    let server = server().await;
    server
        .add_fault(&FaultRule { after: Some(Span(seconds(3))), requests: Some(2), ..FaultRule::new("slow") })
        .expect("a rule");
    let began = tokio::time::Instant::now();
    let client = Client::new(&server.vm_url(ME)).expect("a base URL");
    client.document(seconds(30)).await.expect("a document");
    assert!(began.elapsed() >= seconds(3), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_rule_that_is_none_is_refused_in_a_sentence() {
    let server = server().await;
    for (wrong, expected) in [
        (FaultRule::new("200"), "is no kind of fault; there are 400 to 599, hang"),
        (
            FaultRule { after: Some(Span(seconds(1))), ..FaultRule::new("hang") },
            "only a slow answer has an \"after\"",
        ),
        (FaultRule { words: Some("?".to_owned()), ..FaultRule::new("empty") }, "only garbage has \"words\""),
    ] {
        let error = control::add_fault(&server.url(), &wrong).await.expect_err("no rule");
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(expected), "{error}");
    }
    let unknown = FaultRule { vm: Some("nobody".to_owned()), ..FaultRule::new("hang") };
    let error = control::add_fault(&server.url(), &unknown).await.expect_err("no such VM");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(server.state().faults, []);
}
