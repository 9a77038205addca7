//! The running double: listens on its two ports, owns the stored data, and stops.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use reprieve_core::{Error, ErrorKind, Result};
use tokio::net::TcpListener;
use tokio_util::sync::DropGuard;
use tokio_util::task::TaskTracker;
use tracing::info;

use super::app::App;
use super::call;
use super::config::Config;
use super::counts::Counts;
use super::faults::ActiveFault;
use super::latency::Latency;
use super::route::Service;
use super::rule::Rule;
use crate::connection::{self, Answered, accept, closed};

/// The account in the double's URLs and connection string: Azurite's. Other accounts exist as well,
/// with data of their own.
pub const ACCOUNT: &str = "devstoreaccount1";
/// Signatures are not checked, so any key works. This one is base64 for "no signature is checked".
const KEY: &str = "bm8rc2lnbmF0dXJlK2lzK2NoZWNrZWQ=";

/// A running double. When dropped, it stops and loses its data; [`stop`](Self::stop) waits until it
/// has stopped.
#[derive(Debug)]
pub struct StorageServer {
    app: Arc<App>,
    blob_addr: SocketAddr,
    queue_addr: SocketAddr,
    tasks: TaskTracker,
    _stop: DropGuard,
}

impl StorageServer {
    /// Starts a double on the current runtime.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable) when a port is taken.
    pub async fn start(config: Config) -> Result<Self> {
        let (blobs, blob_addr) = listen(config.ip, config.blob_port).await?;
        let (queues, queue_addr) = listen(config.ip, config.queue_port).await?;
        let app = Arc::new(App::new(&config));
        let stop = app.stop.clone().drop_guard();
        let tasks = TaskTracker::new();
        for (listener, service) in [(blobs, Service::Blob), (queues, Service::Queue)] {
            let shared = Arc::clone(&app);
            let answer =
                move |request| -> Answered { Box::pin(call::answer(Arc::clone(&shared), service, request)) };
            tasks.spawn(accept(listener, answer, app.stop.clone(), tasks.clone()));
        }
        tasks.close();
        info!(%blob_addr, %queue_addr, "mock storage service listens");
        Ok(Self { app, blob_addr, queue_addr, tasks, _stop: stop })
    }

    /// Returns the base URL of the blob service, with the account.
    #[must_use]
    pub fn blob_url(&self) -> String {
        format!("http://{}/{ACCOUNT}", self.blob_addr)
    }

    /// Returns the base URL of the queue service, with the account.
    #[must_use]
    pub fn queue_url(&self) -> String {
        format!("http://{}/{ACCOUNT}", self.queue_addr)
    }

    /// Returns the URL of the control API, for [`crate::storage::client`] and other clients.
    #[must_use]
    pub fn control_url(&self) -> String {
        format!("http://{}", self.queue_addr)
    }

    /// Returns a connection string, as for Azurite on other ports. It contains no secret.
    #[must_use]
    pub fn connection_string(&self) -> String {
        format!(
            "DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};BlobEndpoint={};QueueEndpoint={};",
            self.blob_url(),
            self.queue_url()
        )
    }

    /// Adds a fault and returns its number.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) for an invalid rule.
    pub fn add_fault(&self, rule: Rule) -> Result<u64> {
        self.app.faults().add(rule)
    }

    /// Removes a fault.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound) when there is no such fault.
    pub fn remove_fault(&self, id: u64) -> Result<()> {
        self.app.faults().remove(id)
    }

    /// Removes all faults.
    pub fn clear_faults(&self) {
        self.app.faults().clear();
    }

    /// Returns the faults, and how often each was injected.
    #[must_use]
    pub fn faults(&self) -> Vec<ActiveFault> {
        self.app.faults().list()
    }

    /// Returns the requests since the start, or since the counts were reset.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.app.counts().clone()
    }

    /// Resets the counts.
    pub fn reset_counts(&self) {
        self.app.reset_counts();
    }

    /// Changes the simulated latency.
    pub fn set_latency(&self, latency: Latency) {
        self.app.set_latency(latency);
    }

    /// Stops the double as a crash would: closes connections at once. Its ports are free when this
    /// returns.
    pub async fn stop(self) {
        self.app.stop.cancel();
        closed(&self.tasks, "the mock storage service").await;
    }
}

async fn listen(ip: IpAddr, port: u16) -> Result<(TcpListener, SocketAddr)> {
    let addr = SocketAddr::new(ip, port);
    connection::listen(addr).await.map_err(|error| {
        let message = format!("can't listen on {addr}: {error}; choose another port");
        Error::new(ErrorKind::Unavailable, "start the mock storage service", message).with_source(error)
    })
}
