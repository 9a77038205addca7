//! A mock with two VMs.

use std::time::Duration;

use reprieve_azure::scheduled_events::Client;
use reprieve_sim::metadata::{Config, MetadataServer};

pub(crate) const ME: &str = "workers_0";
pub(crate) const NEIGHBOUR: &str = "workers_1";
pub(crate) const NOTICE: Duration = Duration::from_secs(30);

pub(crate) const fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

pub(crate) async fn server() -> MetadataServer {
    MetadataServer::start(Config::with_vms([ME, NEIGHBOUR])).await.expect("a mock")
}

pub(crate) fn client(server: &MetadataServer) -> Client {
    Client::new(&server.vm_url(ME)).expect("a base URL")
}
