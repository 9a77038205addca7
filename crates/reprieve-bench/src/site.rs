//! A storage account on this machine: a fresh Azurite, or a storage double on its own thread.

use std::cell::Cell;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use azure_core::credentials::Secret;
use azure_core::hmac::hmac_sha256;
use reprieve_azurite::{self as azurite, ACCOUNT, KEY};
use reprieve_sim::storage::{Config, Latency, StorageServer};
use reqwest::Url;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

/// A memory file system, where there is one: the disk is not measured.
const MEMORY: &str = "/dev/shm";

/// The kind of server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Azurite,
    /// The storage double with this round-trip time.
    Double(Duration),
}

impl Kind {
    /// A storage double without latency.
    pub(crate) const DOUBLE: Self = Self::Double(Duration::ZERO);

    /// The name in the tables.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Azurite => "Azurite".to_owned(),
            Self::DOUBLE => "the double".to_owned(),
            Self::Double(away) => format!("the double, {} ms away", away.as_millis()),
        }
    }

    /// Starts a server with an empty account.
    pub(crate) async fn start(self, work: &Path) -> Result<Site> {
        match self {
            Self::Azurite => azurite(work).await,
            Self::Double(away) => double(away).await,
        }
    }
}

/// A running storage account. It ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Site {
    blobs: String,
    queues: String,
    server: Server,
    tenants: Cell<u32>,
}

/// The server. Azurite ends before its directory is removed.
#[derive(Debug)]
enum Server {
    Azurite { _running: azurite::Azurite, _directory: TempDir },
    Double { server: StorageServer, runtime: Option<Runtime> },
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Self::Double { runtime, .. } = self
            && let Some(runtime) = runtime.take()
        {
            // An asynchronous task can't be waited for here.
            runtime.shutdown_background();
        }
    }
}

/// Fails with the reason when Azurite can't be started here.
pub(crate) fn azurite_is_there() -> Result<()> {
    ensure!(azurite::is_installed(), "Azurite is not installed; `cargo xtask test` installs it");
    let node = std::process::Command::new("node").arg("--version").output();
    ensure!(
        node.is_ok_and(|node| node.status.success()),
        "there is no node; Azurite needs Node.js 20 or later"
    );
    Ok(())
}

async fn azurite(work: &Path) -> Result<Site> {
    azurite_is_there()?;
    let memory = Path::new(MEMORY);
    let directory = tempfile::tempdir_in(if memory.is_dir() { memory } else { work })?;
    let options = azurite::Options {
        directory: directory.path().to_owned(),
        // Also ends it when this process is killed.
        discard: true,
        ports: azurite::Ports::default(),
        tls: None,
    };
    let running = tokio::task::spawn_blocking(move || azurite::Azurite::start(&options)).await?;
    let running = running.context("Azurite did not start")?;
    let azurite::Ports { blob, queue } = running.ports();
    let url = |port: u16| format!("http://127.0.0.1:{port}/{ACCOUNT}");
    let server = Server::Azurite { _running: running, _directory: directory };
    Ok(Site { blobs: url(blob), queues: url(queue), server, tenants: Cell::new(0) })
}

/// Runs on one thread, so that a core is left for the contestants, as with a remote service.
async fn double(away: Duration) -> Result<Site> {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let fixed_ms = u64::try_from(away.as_millis())?;
    let config = Config { latency: Latency { fixed_ms, ..Latency::default() }, ..Config::default() };
    let server = runtime.spawn(StorageServer::start(config)).await??;
    Ok(Site {
        blobs: server.blob_url(),
        queues: server.queue_url(),
        server: Server::Double { server, runtime: Some(runtime) },
        tenants: Cell::new(0),
    })
}

impl Site {
    /// Returns a value of `REPRIEVE_STORE` with a SAS, so that no contestant has to sign requests.
    pub(crate) fn connection_string(&self) -> Result<String> {
        Ok(format!(
            "AccountName={ACCOUNT};BlobEndpoint={};QueueEndpoint={};SharedAccessSignature={}",
            self.blobs,
            self.queues,
            sas()?
        ))
    }

    /// Returns the URL of one of its queues, with the same SAS.
    pub(crate) fn queue_url(&self, queue: &str) -> Result<Url> {
        Ok(Url::parse(&format!("{}/{queue}?{}", self.queues, sas()?))?)
    }

    /// The URL of Azurite's queues.
    pub(crate) fn queues(&self) -> &str {
        &self.queues
    }

    /// The storage double, which counts requests.
    pub(crate) fn counting(&self) -> Result<&StorageServer> {
        match &self.server {
            Server::Double { server, .. } => Ok(server),
            Server::Azurite { .. } => anyhow::bail!("Azurite does not count"),
        }
    }

    /// Returns a name that is unique here.
    pub(crate) fn name(&self) -> String {
        let number = self.tenants.get();
        self.tenants.set(number + 1);
        format!("bench-{number}")
    }
}

/// Returns a SAS with all permissions and a distant expiry, for machines with Azurite's key.
/// <https://learn.microsoft.com/rest/api/storageservices/create-account-sas>
fn sas() -> Result<String> {
    let [version, services, types, permissions] = ["2022-11-02", "bq", "sco", "rwdlacup"];
    let [end, protocols] = ["2099-01-01T00:00:00Z", "https,http"];
    let signed =
        format!("{ACCOUNT}\n{permissions}\n{services}\n{types}\n\n{end}\n\n{protocols}\n{version}\n\n");
    let signature = hmac_sha256(&signed, &Secret::new(KEY.to_owned()))?;
    let mut url = Url::parse("http://127.0.0.1")?;
    url.query_pairs_mut().extend_pairs([
        ("sv", version),
        ("ss", services),
        ("srt", types),
        ("sp", permissions),
        ("se", end),
        ("spr", protocols),
        ("sig", &signature),
    ]);
    Ok(url.query().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use reprieve_sim::storage::Operation;

    use super::*;
    use crate::noop::noops;
    use crate::tenancy::Tenancy;

    #[tokio::test]
    async fn a_double_is_let_into_by_its_addresses_and_gone_when_it_is_dropped() {
        let work = tempfile::tempdir().unwrap();
        let site = Kind::DOUBLE.start(work.path()).await.unwrap();
        let (one, other) = (
            Tenancy::new(&site, work.path()).await.unwrap(),
            Tenancy::new(&site, work.path()).await.unwrap(),
        );
        one.enqueue(noops(3).unwrap()).await.unwrap();
        assert_eq!((one.waiting().await.unwrap(), other.waiting().await.unwrap()), (3, 0));
        assert_eq!(site.counting().unwrap().counts().requests(Operation::Send), 3);
        assert_eq!(one.free(3).await.unwrap(), 3);
        // Leased messages count as waiting, but not as free.
        assert_eq!((one.waiting().await.unwrap(), one.free(3).await.unwrap()), (3, 0));
        let queue = site.queue_url("bench-0").unwrap();
        let answer = reqwest::get(queue.clone()).await;
        assert!(answer.is_ok(), "{answer:?}");
        drop((one, other));
        drop(site);
        let gone = crate::wait::until("it is gone", Duration::from_secs(5), Duration::from_millis(5), || {
            let at = (queue.host_str().unwrap(), queue.port().unwrap());
            Ok(std::net::TcpStream::connect(at).is_err().then_some(()))
        });
        gone.await.unwrap();
    }

    #[test]
    fn servers_are_named_for_the_tables() {
        assert_eq!(Kind::Azurite.name(), "Azurite");
        assert_eq!(Kind::DOUBLE.name(), "the double");
        assert_eq!(Kind::Double(Duration::from_millis(20)).name(), "the double, 20 ms away");
    }
}
