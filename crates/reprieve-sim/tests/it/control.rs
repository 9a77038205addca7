//! Another process controls a mock over HTTP.

use crate::support::{ME, NEIGHBOUR, NOTICE, server};
use reprieve_azure::scheduled_events::document::EventStatus;
use reprieve_core::ErrorKind;
use reprieve_sim::control::{self, Which};

#[tokio::test]
async fn evictions_are_announced_and_withdrawn() {
    let server = server().await;
    let url = server.url();
    let evicted = control::evict(&url, ME, NOTICE).await.expect("a known VM");
    let state = control::state(&server.vm_url(ME)).await.expect("a state, whatever the path");
    assert_eq!(state, server.state());
    let [event] = &state.document.events[..] else { panic!("{state:?}") };
    assert_eq!((&event.event_id, &event.not_before), (&evicted.event_id, &evicted.not_before));
    assert_eq!((evicted.vm.as_str(), &event.event_status), (ME, &EventStatus::Scheduled));

    let again = control::evict(&url, ME, NOTICE).await.expect_err("it is being evicted");
    assert_eq!(again.kind(), ErrorKind::Conflict);
    assert!(again.to_string().contains(&evicted.event_id), "{again}");

    let gone =
        control::withdraw(&url, &Which::EventId(evicted.event_id.clone())).await.expect("an active event");
    assert_eq!(gone, [evicted.event_id]);
    let none = control::withdraw(&url, &Which::Vm(ME.to_owned())).await.expect_err("no active event");
    assert_eq!(none.kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn vms_come_and_go() {
    let server = server().await;
    let url = server.url();
    control::add_vm(&url, "workers_7").await.expect("a free name");
    assert_eq!(control::add_vm(&url, "workers_7").await.expect_err("taken").kind(), ErrorKind::Conflict);
    assert_eq!(control::add_vm(&url, "no way").await.expect_err("bad").kind(), ErrorKind::Invalid);
    control::remove_vm(&url, ME).await.expect("a known VM");
    assert_eq!(control::remove_vm(&url, ME).await.expect_err("gone").kind(), ErrorKind::NotFound);
    let state = control::state(&url).await.expect("a state");
    let names: Vec<_> = state.vms.iter().map(|vm| (vm.name.as_str(), vm.path.as_str())).collect();
    assert_eq!(names, [(NEIGHBOUR, "/vm/workers_1"), ("workers_7", "/vm/workers_7")]);
}

#[tokio::test]
async fn mistakes_are_answered_in_a_sentence() {
    let server = server().await;
    let unknown = control::evict(&server.url(), "nobody", NOTICE).await.expect_err("unknown");
    assert_eq!(unknown.kind(), ErrorKind::NotFound);
    assert_eq!(
        unknown.to_string(),
        r#"evict a VM: there is no VM called "nobody"; there are: workers_0, workers_1"#
    );
    let url = server.url();
    server.stop().await;
    let away = control::state(&url).await.expect_err("nothing listens there");
    assert_eq!(away.kind(), ErrorKind::Unavailable);
    assert!(away.to_string().ends_with("start one with `reprieve metadata serve`"), "{away}");
    assert_eq!(control::state("localhost").await.expect_err("no URL").kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn a_taken_port_is_reported() {
    let server = server().await;
    let taken = reprieve_sim::serve(server.addr().port(), [ME]).await.expect_err("taken");
    assert_eq!(taken.kind(), ErrorKind::Unavailable);
    assert!(taken.to_string().contains(&server.addr().to_string()), "{taken}");
}
