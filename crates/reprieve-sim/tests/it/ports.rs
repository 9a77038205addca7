//! One port for each VM, and one for all.

use reprieve_azure::scheduled_events::Client;
use reprieve_core::ErrorKind;
use reprieve_sim::control;
use reprieve_sim::metadata::{Config, MetadataServer, Which};

use crate::support::{ME, NEIGHBOUR, NOTICE, seconds};

async fn port_each() -> MetadataServer {
    let config = Config { one_port_each: true, ..Config::with_vms([ME, NEIGHBOUR]) };
    MetadataServer::start(config).await.expect("a mock")
}

async fn name_at(url: &str) -> String {
    Client::new(url).expect("a base URL").compute(seconds(5)).await.expect("a document").name
}

#[tokio::test]
async fn a_vm_with_a_port_of_its_own_needs_no_prefix() {
    let server = port_each().await;
    let urls: Vec<_> = server.state().vms.into_iter().map(|vm| (vm.name, vm.url)).collect();
    assert_eq!(urls.len(), 2);
    assert_ne!(urls[0].1, urls[1].1);
    for (name, url) in &urls {
        assert_eq!(&server.vm_url(name), url);
        assert_eq!(url.matches('/').count(), 2, "{url}");
        assert_eq!(&name_at(url).await, name);
        assert_eq!(name_at(&format!("{url}/vm/{ME}")).await, ME, "prefixes are understood all the same");
    }
    // It approves as itself, and its polls are counted.
    let evicted = control::evict(&urls[1].1, ME, NOTICE).await.expect("every port has the control API");
    let neighbour = Client::new(&urls[1].1).expect("a base URL");
    neighbour.document(seconds(5)).await.expect("a document");
    neighbour.approve(&[&evicted.event_id], seconds(5)).await.expect("an active event");
    let state = server.state();
    assert_eq!(state.events[0].approvals[0].vm, NEIGHBOUR);
    assert_eq!(state.vms.iter().map(|vm| vm.polls).collect::<Vec<_>>(), [0, 2]);
    assert!(state.vms[1].last_poll_unix_ms.is_some());
}

#[tokio::test]
async fn a_removed_vm_does_not_answer_at_its_port() {
    let server = port_each().await;
    let url = server.vm_url(NEIGHBOUR);
    server.remove_vm(NEIGHBOUR).expect("it is there");
    let error = Client::new(&url).expect("a base URL").compute(seconds(5)).await.expect_err("gone");
    assert!(error.to_string().contains("404"), "{error}");
    assert_eq!(name_at(&server.vm_url(ME)).await, ME);
}

#[tokio::test]
async fn a_vm_that_comes_later_is_found_below_the_first_port() {
    let server = port_each().await;
    server.add_vm("workers_7").expect("a free name");
    assert_eq!(server.vm_url("workers_7"), format!("{}/vm/workers_7", server.url()));
    assert_eq!(name_at(&server.vm_url("workers_7")).await, "workers_7");
    server.evict("workers_7", NOTICE).expect("it is there");
    server.withdraw(&Which::Vm("workers_7".to_owned())).expect("an active event");
}

#[tokio::test]
async fn names_and_ports_that_cannot_be_are_wrong() {
    let twice = MetadataServer::start(Config::with_vms(["a", "A"])).await.expect_err("twice");
    assert_eq!(twice.kind(), ErrorKind::Invalid, "{twice}");
    let config = Config {
        addr: ([127, 0, 0, 1], 65_535).into(),
        one_port_each: true,
        ..Config::with_vms([ME, NEIGHBOUR])
    };
    let error = MetadataServer::start(config).await.expect_err("no port is left");
    // Another process may have the last port.
    assert!(matches!(error.kind(), ErrorKind::Invalid | ErrorKind::Unavailable), "{error}");
}
