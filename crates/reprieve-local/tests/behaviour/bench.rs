//! A store of a test, in a directory of its own.

use std::path::PathBuf;
use std::time::Duration;

use reprieve_core::WorkerId;
use reprieve_core::ports::Store;
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

/// Waits for a condition that depends on time or on another thread.
pub(crate) async fn eventually(what: &str, condition: impl AsyncFn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition().await {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
