//! A trial's own queue and container in a storage account, and the real processes that work there.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use reprieve_azure::storage::{Address, AzureStore, ContainerName, Options};
use reprieve_core::ports::Store;
use reprieve_core::{NewJob, Producer, QueueName};
use reqwest::Url;
use tempfile::TempDir;
use tokio::process::Command;
use tokio::time::{Instant, sleep};

use crate::place::beside_this;
use crate::process::Process;
use crate::site::Site;

/// The time limit for emptying a queue.
const DRAINING: Duration = Duration::from_mins(3);

/// A new queue and container. Dropping it removes the directory with the processes' logs.
#[derive(Debug)]
pub(crate) struct Tenancy<'s> {
    site: &'s Site,
    name: String,
    directory: TempDir,
    store: Store,
    started: Cell<usize>,
}

impl<'s> Tenancy<'s> {
    /// Creates a tenancy at `site`, with its directory below `work`.
    pub(crate) async fn new(site: &'s Site, work: &Path) -> Result<Self> {
        let (name, directory) = (site.name(), tempfile::tempdir_in(work)?);
        let store = AzureStore::open(&address(site)?, options(&name)?).await?.store();
        Ok(Self { site, name, directory, store, started: Cell::new(0) })
    }

    /// Opens the store as a producer does.
    pub(crate) const fn store(&self) -> &Store {
        &self.store
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The prefix of this container's blobs, for counting.
    pub(crate) fn blobs(&self, prefix: &str) -> String {
        format!("{}/{prefix}", self.name)
    }

    /// Removes the queue and the container: messages left in one queue slow down all of Azurite's
    /// queues.
    pub(crate) async fn destroy(self) -> Result<()> {
        Ok(AzureStore::destroy(&address(self.site)?, &options(&self.name)?).await?)
    }

    pub(crate) async fn enqueue(&self, jobs: Vec<NewJob>) -> Result<()> {
        Producer::new(self.store.clone()).enqueue(jobs).await?;
        Ok(())
    }

    /// Returns the URL of its queue, with a SAS.
    pub(crate) fn queue_url(&self) -> Result<Url> {
        self.site.queue_url(&self.name)
    }

    /// Returns the number of messages, including leased ones.
    pub(crate) async fn waiting(&self) -> Result<u64> {
        Ok(self.store.queue.depth().await?.total)
    }

    /// Waits until all of `jobs` messages are gone. It polls more often towards the end, because
    /// each poll costs the server as much as a message.
    pub(crate) async fn emptied(&self, jobs: usize) -> Result<()> {
        let (began, jobs) = (Instant::now(), u64::try_from(jobs)?);
        loop {
            let left = self.waiting().await?;
            if left == 0 {
                return Ok(());
            }
            if began.elapsed() > DRAINING {
                bail!("{left} of {jobs} messages are left after {DRAINING:?}");
            }
            #[expect(clippy::cast_precision_loss, reason = "a share of some thousands")]
            let rest = left as f64 / jobs.saturating_sub(left).max(1) as f64;
            let pause = began.elapsed().mul_f64(rest.min(100.0) / 2.0);
            sleep(pause.clamp(Duration::from_millis(1), Duration::from_millis(50))).await;
        }
    }

    /// Starts a worker on the VM with its metadata service at `url`, or without one for `off`.
    /// Settings are the defaults except for `arguments`, and the environment is empty.
    pub(crate) fn worker(&self, url: &str, arguments: &[&str]) -> Result<Process> {
        let mut command = Command::new(beside_this("bench-worker")?);
        command
            .args(["--queue", &self.name, "--container", &self.name, "--metadata-url", url])
            .args(["--log-format", "json"])
            .args(arguments)
            .current_dir(self.directory.path())
            .env_clear()
            .env("REPRIEVE_STORE", self.site.connection_string()?)
            .stdin(Stdio::null());
        self.start(command)
    }

    /// Starts a hand-written loop with this number of messages in flight.
    pub(crate) fn by_hand(&self, way: &str, in_flight: &str) -> Result<Process> {
        let mut command = Command::new(beside_this("bench-by-hand")?);
        command
            .args([way, "--in-flight", in_flight])
            .env_clear()
            .env("BENCH_QUEUE_URL", self.queue_url()?.as_str())
            .stdin(Stdio::null());
        self.start(command)
    }

    /// Starts a process that saves or loads one checkpoint.
    pub(crate) fn checkpoint(&self, what: &str, bytes: usize) -> Result<Process> {
        let mut command = Command::new(beside_this("bench-by-hand")?);
        command
            .args([what, "--queue", &self.name, "--container", &self.name, "--bytes", &bytes.to_string()])
            .env_clear()
            .env("REPRIEVE_STORE", self.site.connection_string()?)
            .stdin(Stdio::null());
        self.start(command)
    }

    fn start(&self, command: Command) -> Result<Process> {
        let number = self.started.replace(self.started.get() + 1);
        Process::start(command, &self.path(&format!("process-{number}.log")))
    }

    /// Receives all messages that are not leased, at most `count`, and returns their number.
    pub(crate) async fn free(&self, count: usize) -> Result<usize> {
        let queue = &self.store.queue;
        let mut free = 0;
        loop {
            let received = queue.receive(queue.batch_max(), Duration::from_mins(1)).await?;
            free += received.len();
            if received.is_empty() {
                break;
            }
            ensure!(free <= count, "more messages are there than there were jobs");
        }
        Ok(free)
    }
}

fn address(site: &Site) -> Result<Address> {
    Address::parse(&site.connection_string()?).context("a connection string of our own")
}

fn options(name: &str) -> Result<Options> {
    Ok(Options::new(vec![QueueName::parse(name)?]).container(ContainerName::parse(name)?))
}
