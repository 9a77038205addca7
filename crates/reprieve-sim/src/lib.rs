//! A local mock of Azure: its metadata service, in [`storage`] its queues and blobs, and in [`prices`] its
//! price list.
//!
//! [`MetadataServer`] answers like the real service, and evicts VMs on demand.
//!
//! It is faithful in everything that a worker uses: Scheduled Events in every version, the instance
//! document, and tokens of managed identities, with their rules, refusals and timing. Each of its
//! VMs has its own base URL, `http://127.0.0.1:8169/vm/NAME`, because the real service identifies
//! the calling VM by its network card and the mock cannot; or [a port of its
//! own](metadata::Config::one_port_each). All VMs see all events, as in a real scale set. Without a
//! prefix the mock answers as it would the first VM.
//!
//! Calls, [scenarios](metadata::Scenario) and [faults](metadata::FaultRule) control the mock;
//! faults imitate an unreliable service. [`control`] drives a running mock over HTTP, from a
//! command line or another process.
//!
//! # Example: an eviction, seen by the client
//!
//! ```
//! use std::time::Duration;
//! use reprieve_azure::scheduled_events::Client;
//! use reprieve_sim::metadata::{Config, MetadataServer};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> reprieve_core::Result<()> {
//! let server = MetadataServer::start(Config::with_vms(["workers_0", "workers_1"])).await?;
//! server.evict("workers_1", Duration::from_secs(30))?;
//!
//! let client = Client::new(&server.vm_url("workers_0"))?;
//! let document = client.document(Duration::from_secs(5)).await?;
//! assert_eq!(document.events[0].resources, ["workers_1"]);
//! server.stop().await;
//! # Ok(())
//! # }
//! ```

#[cfg(feature = "fleet")]
pub mod batch;
mod connection;
pub mod control;
mod control_call;
#[cfg(feature = "fleet")]
pub mod fleet;
pub mod management;
pub mod metadata;
pub mod prices;
#[cfg(feature = "fleet")]
pub mod replay;
pub mod storage;
#[cfg(feature = "fleet")]
pub mod survival;

use std::net::{Ipv4Addr, SocketAddr};

use reprieve_core::Result;

use metadata::{Config, MetadataServer};

/// The mock's default port. No other use of it is known.
pub const DEFAULT_PORT: u16 = 8169;

/// Starts a mock with these VMs on `port` of this machine only. It runs until it is stopped or
/// dropped.
///
/// # Errors
/// The errors of [`MetadataServer::start`].
pub async fn serve(port: u16, vms: impl IntoIterator<Item = impl Into<String>>) -> Result<MetadataServer> {
    let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    MetadataServer::start(Config { addr, ..Config::with_vms(vms) }).await
}
