//! The client's errors and documents.

use std::time::Duration;

use reprieve_core::ErrorKind;
use reprieve_sim::metadata::{Endpoint, Fault};

use crate::support::{ME, client, seconds, server};

#[tokio::test]
async fn failures_differ_in_kind() {
    let server = server().await;
    let client = client(&server);
    for (fault, kind) in [
        (Fault::Status(429), ErrorKind::Unavailable),
        (Fault::Status(410), ErrorKind::Unavailable),
        (Fault::Status(404), ErrorKind::Unavailable),
        (Fault::Status(500), ErrorKind::Unavailable),
        (Fault::Status(400), ErrorKind::Invalid),
        (Fault::Hang, ErrorKind::TimedOut),
        (Fault::BreakOff, ErrorKind::Unavailable),
        (Fault::Empty, ErrorKind::Unavailable),
        (Fault::Garbage("no".to_owned()), ErrorKind::Corrupt),
        (Fault::Garbage("x".repeat((1 << 20) + 1)), ErrorKind::TooLarge),
    ] {
        server.inject(Endpoint::ScheduledEvents, &fault, 2);
        let error = client.document(Duration::from_millis(500)).await.expect_err("a fault");
        assert_eq!(error.kind(), kind, "{error}");
        assert!(!error.to_string().contains('\n'), "{error}");
    }
    client.document(seconds(5)).await.expect("the faults are over");
    server.stop().await;
    let error = client.document(seconds(5)).await.expect_err("nothing listens there");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("can't be reached"), "{error}");
}

#[tokio::test]
async fn an_approval_of_an_unknown_event_is_invalid() {
    let server = server().await;
    let error = client(&server).approve(&["no-such-event"], seconds(5)).await.expect_err("unknown");
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn this_vm_is_identified_by_its_own_document() {
    let server = server().await;
    let compute = client(&server).compute(seconds(5)).await.expect("a document");
    assert_eq!(compute.name, ME);
    assert_eq!(compute.vm_scale_set_name.as_deref(), Some("workers"));
    assert_eq!(compute.vm_id, Some(server.state().vms[0].vm_id.clone()));
    assert_eq!(compute.priority.as_deref(), Some("Spot"));
}

#[tokio::test]
async fn a_client_and_its_clones_request_the_vm_once() {
    let server = server().await;
    let client = client(&server);
    let first = client.compute_once(seconds(5)).await.expect("a document");
    server.inject(Endpoint::Instance, &Fault::Status(429), 1);
    let again = client.clone().compute_once(seconds(5)).await.expect("what is known");
    assert_eq!(first.name, again.name);
    let error = client.compute(seconds(5)).await.expect_err("this one asks");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}
