//! A test's own directory, with a store in it or in a storage account.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use reprieve_core::ports::{DeadLettered, Depth, Store, WorkerReport};
use reprieve_core::record::{Record, open};
use reprieve_core::{BlobName, JobId, NewJob, Producer};
use reprieve_local::{LocalStore, Options, QueueName};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tempfile::TempDir;

use crate::account::Account;
use crate::journal::Journal;

/// A temporary directory and a store, accessed through the same ports as by the workers.
#[derive(Debug)]
pub struct Sandbox {
    directory: TempDir,
    store: Store,
    /// The store's account, if the store is not in the directory.
    account: Option<Account>,
}

/// The number of poison messages that are read.
const LETTERS: usize = 100;

impl Sandbox {
    /// Creates a sandbox with an embedded store.
    ///
    /// # Panics
    /// When the disk fails.
    pub async fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let queue = QueueName::parse("default").expect("a queue's name");
        let path = directory.path().join("reprieve.db");
        let store = LocalStore::open(&path, Options::new(queue)).await.expect("a store").store();
        Self { directory, store, account: None }
    }

    /// Creates a sandbox with `queues` queues that are used as one, and a container, in the storage
    /// account of this connection string. They are removed with the sandbox.
    ///
    /// # Panics
    /// When the account refuses.
    pub async fn in_account(connection_string: &str, queues: usize) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let account = Account::new(connection_string, queues);
        let store = account.open().await;
        Self { directory, store, account: Some(account) }
    }

    /// Returns the record of a job, if it has one.
    ///
    /// # Panics
    /// When the store or the record can't be read.
    pub async fn record(&self, job: &JobId) -> Option<Record> {
        let stored = self.store.records.load(job).await.expect("a look at a record");
        stored.map(|stored| open(&stored.bytes).expect("a whole record"))
    }

    /// Returns a path in the directory.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns the directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Returns the value of `--store` for the embedded store.
    #[must_use]
    pub fn address(&self) -> String {
        format!("sqlite:{}", self.path("reprieve.db").display())
    }

    /// Returns the name of the container in the account.
    ///
    /// # Panics
    /// When the store is not in an account.
    #[must_use]
    pub fn container(&self) -> &str {
        self.account.as_ref().expect("an account").container()
    }

    /// Returns the name of the account's first queue.
    ///
    /// # Panics
    /// When the store is embedded.
    #[must_use]
    pub fn queue(&self) -> &str {
        self.account.as_ref().expect("an account").queue()
    }

    /// Points a worker's command at the store.
    pub fn point(&self, command: &mut Command) {
        match &self.account {
            Some(account) => account.point(command),
            None => drop(command.args(["--store", &self.address()])),
        }
    }

    /// Opens the store, as a process that is no worker does.
    #[must_use]
    pub const fn store(&self) -> &Store {
        &self.store
    }

    /// Returns the journal of this sandbox's jobs.
    #[must_use]
    pub fn journal(&self) -> Journal {
        Journal::new(self.path("journal"))
    }

    /// Enqueues a job of `kind` for each of `args`.
    ///
    /// # Panics
    /// When the store fails.
    pub async fn enqueue<A: Serialize>(&self, kind: &str, args: impl IntoIterator<Item = A>) -> Vec<JobId> {
        let job = |args: A| NewJob::new(kind, serde_json::value::to_raw_value(&args).expect("JSON"));
        let jobs = args.into_iter().map(job).collect();
        Producer::new(self.store.clone()).enqueue(jobs).await.expect("enqueued jobs")
    }

    /// Returns a job's result; `None` while there is none.
    ///
    /// # Panics
    /// When it is no serialized `T`.
    pub async fn result<T: DeserializeOwned>(&self, job: &JobId) -> Option<T> {
        let json = self.blob(&format!("results/{job}.json")).await?;
        Some(serde_json::from_slice(&json).expect("a result"))
    }

    /// Returns a blob's bytes.
    ///
    /// # Panics
    /// When the store fails.
    pub async fn blob(&self, name: &str) -> Option<Vec<u8>> {
        let name = BlobName::parse(name).expect("a blob's name");
        self.store.blobs.get(&name).await.expect("a blob")
    }

    /// Returns the number of blobs with names that begin with `prefix`.
    ///
    /// # Panics
    /// When the store fails.
    pub async fn count(&self, prefix: &str) -> usize {
        self.store.blobs.list(prefix).await.expect("names of blobs").len()
    }

    /// Returns the blobs with names that begin with `prefix`, without those that are removed meanwhile.
    ///
    /// # Panics
    /// When the store fails.
    pub async fn blobs(&self, prefix: &str) -> BTreeMap<String, Vec<u8>> {
        let mut blobs = BTreeMap::new();
        for name in self.store.blobs.list(prefix).await.expect("names of blobs") {
            if let Some(bytes) = self.store.blobs.get(&name).await.expect("a blob") {
                blobs.insert(name.to_string(), bytes);
            }
        }
        blobs
    }

    /// Returns the counts of the queue.
    ///
    /// # Panics
    /// When the store fails.
    pub async fn depth(&self) -> Depth {
        self.store.queue.depth().await.expect("a depth")
    }

    /// Opens the poison queue.
    ///
    /// # Panics
    /// When the store fails.
    pub async fn dead_letters(&self) -> Vec<DeadLettered> {
        self.store.queue.dead_letters(LETTERS).await.expect("dead letters")
    }

    /// Returns the last report of the worker with this process id.
    ///
    /// # Panics
    /// When the store fails.
    pub async fn report(&self, pid: u32) -> Option<WorkerReport> {
        let hour = std::time::Duration::from_hours(1);
        let reports = self.store.roster.reports(hour).await.expect("reports");
        reports.into_iter().find(|report| report.pid == pid)
    }
}
