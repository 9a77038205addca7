//! A trial's own directory with a store in it, and the real worker processes that run there.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use reprieve_core::{NewJob, Producer};
use reprieve_local::{Address, LocalStore, Options, QueueName};
use serde::Serialize;
use tempfile::TempDir;
use tokio::process::Command;

use crate::process::Process;
use crate::wait::until;
use crate::watch::Watch;

/// The time limit of a worker's start: another section measures the start itself.
const STARTING: Duration = Duration::from_secs(30);

/// The durability of the store's commits, as its address names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    PowerLoss,
    Process,
}

impl Durability {
    pub(crate) const ALL: [Self; 2] = [Self::PowerLoss, Self::Process];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::PowerLoss => "power-loss",
            Self::Process => "process",
        }
    }
}

/// A directory with a store, removed when it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    directory: TempDir,
    durability: Durability,
    started: Cell<usize>,
    environment: &'static [(&'static str, &'static str)],
}

impl Place {
    /// Creates a directory below `work`.
    pub(crate) fn new(work: &Path, durability: Durability) -> Result<Self> {
        let directory = tempfile::tempdir_in(work)
            .with_context(|| format!("no directory can be made in {}", work.display()))?;
        Ok(Self { directory, durability, started: Cell::new(0), environment: &[] })
    }

    /// Gives the workers these environment variables.
    pub(crate) fn with(self, environment: &'static [(&'static str, &'static str)]) -> Self {
        Self { environment, ..self }
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Returns a path in the directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Opens the store as a producer does, and creates it if there is none.
    pub(crate) async fn open(&self) -> Result<LocalStore> {
        let address = Address::parse(&self.address())?;
        let options = Options::new(QueueName::parse("default")?).durability(address.durability);
        Ok(LocalStore::open(&address.path, options).await?)
    }

    /// Opens the store and enqueues these jobs.
    pub(crate) async fn enqueue(&self, jobs: Vec<NewJob>) -> Result<LocalStore> {
        let local = self.open().await?;
        Producer::new(local.store()).enqueue(jobs).await?;
        Ok(local)
    }

    /// Opens the existing store for observation.
    pub(crate) fn watch(&self) -> Result<Watch> {
        Watch::open(&self.path("reprieve.db"))
    }

    /// Starts a worker without a metadata service, with default settings except for `arguments`,
    /// and with an empty environment, but for [`with`](Self::with).
    pub(crate) fn worker(&self, arguments: &[&str]) -> Result<Process> {
        self.spot_worker("off", arguments)
    }

    /// Starts a worker on the VM with its metadata service at `url`.
    pub(crate) fn spot_worker(&self, url: &str, arguments: &[&str]) -> Result<Process> {
        let mut command = Command::new(beside_this("bench-worker")?);
        command
            .args(["--store", &self.address(), "--metadata-url", url, "--log-format", "json"])
            .args(arguments)
            .current_dir(self.directory.path())
            .env_clear()
            .envs(self.environment.iter().copied())
            .stdin(std::process::Stdio::null());
        let number = self.started.replace(self.started.get() + 1);
        Process::start(command, &self.path(&format!("worker-{number}.log")))
    }

    pub(crate) const fn durability(&self) -> Durability {
        self.durability
    }

    fn address(&self) -> String {
        format!("sqlite:{}?durability={}", self.path("reprieve.db").display(), self.durability.as_str())
    }
}

/// Waits until a worker logs that it takes jobs.
pub(crate) async fn started(worker: &Process) -> Result<()> {
    let takes_jobs = || Ok(worker.logged("worker started")?.map(drop));
    let wait = until("the worker has begun", STARTING, Duration::from_millis(5), takes_jobs).await;
    wait.with_context(|| format!("the worker did not start: {}", worker.log_tail()))
}

/// Returns a job of `kind`, due now.
pub(crate) fn job(kind: &str, args: &impl Serialize) -> Result<NewJob> {
    let args = serde_json::value::to_raw_value(args)?;
    Ok(NewJob::new(kind, args))
}

/// Returns the path of a binary in this program's own directory.
pub(crate) fn beside_this(name: &str) -> Result<PathBuf> {
    let this = std::env::current_exe().context("this program can't be found")?;
    let path = this.with_file_name(name);
    anyhow::ensure!(
        path.is_file(),
        "{} is not there; build it, with `cargo build --release --package {}`",
        path.display(),
        if name == "reprieve" { "reprieve-cli" } else { "reprieve-bench" }
    );
    Ok(path)
}
