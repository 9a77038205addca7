//! A store of a test, in a directory of its own.

use std::path::PathBuf;
use std::time::Duration;

use reprieve_core::ports::Store;
use reprieve_core::{BlobName, JobId, PayloadName, WorkerId};
use reprieve_local::{LocalStore, Options, QueueName};
use rusqlite::{Connection, Params};
use tokio::time::Instant;

/// The time limit of any wait, on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) struct Bench {
    directory: tempfile::TempDir,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("reprieve.db")
    }

    /// The files of one kind, such as `blobs`.
    pub(crate) fn files(&self, kind: &str) -> Vec<PathBuf> {
        let directory = self.directory.path().join("reprieve.db.d").join(kind);
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect()
    }

    pub(crate) async fn open(&self) -> Store {
        self.open_with(|options| options).await
    }

    pub(crate) async fn open_worker(&self) -> Store {
        self.open_with(|options| options.owned_by(WorkerId::unique())).await
    }

    pub(crate) async fn open_with(&self, with: impl FnOnce(Options) -> Options) -> Store {
        let options = with(Options::new(QueueName::parse("jobs").unwrap()));
        LocalStore::open(&self.path(), options).await.unwrap().store()
    }

    /// A connection that bypasses the store, as damage does.
    pub(crate) fn conn(&self) -> Connection {
        let conn = Connection::open(self.path()).unwrap();
        conn.busy_timeout(PATIENCE).unwrap();
        conn
    }

    pub(crate) fn number(&self, sql: &str, params: impl Params) -> i64 {
        self.conn().query_row(sql, params, |row| row.get(0)).unwrap()
    }
}

pub(crate) fn blob(name: &str) -> BlobName {
    BlobName::parse(name).unwrap()
}

pub(crate) fn job(id: &str) -> JobId {
    JobId::parse(id).unwrap()
}

pub(crate) fn payload(name: &str) -> PayloadName {
    PayloadName::parse(name).unwrap()
}

/// Waits for a condition that depends on time or on another thread.
pub(crate) async fn eventually(what: &str, condition: impl AsyncFn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition().await {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
