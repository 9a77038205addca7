//! Reads a store from outside, bypassing the measured code. A read is cheap: one or two lookups in
//! one small SQLite transaction.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use rusqlite::{Connection, OpenFlags};

/// Reads the store's messages. Only for stores with one queue and an empty poison queue.
#[derive(Debug)]
pub(crate) struct Watch(Connection);

impl Watch {
    /// Opens the existing store in `database`.
    pub(crate) fn open(database: &Path) -> Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let conn = Connection::open_with_flags(database, flags)
            .with_context(|| format!("{} can't be looked at", database.display()))?;
        conn.busy_timeout(Duration::from_secs(5))?;
        conn.execute_batch("PRAGMA query_only = ON")?;
        Ok(Self(conn))
    }

    /// Whether every message is completed.
    pub(crate) fn is_empty(&self) -> Result<bool> {
        self.one("SELECT NOT EXISTS(SELECT 1 FROM msg)")
    }

    /// Returns the number of the oldest message. Messages are numbered from 1 in the order of
    /// sending, which is the order of receiving. So one less is the number of completed messages,
    /// except for the few in flight.
    pub(crate) fn oldest(&self) -> Result<Option<u64>> {
        let oldest: Option<i64> = self.one("SELECT min(id) FROM body")?;
        Ok(oldest.map(i64::unsigned_abs))
    }

    /// Returns the number of messages without a lease.
    pub(crate) fn free(&self) -> Result<usize> {
        let free: i64 = self.one("SELECT count(*) FROM msg WHERE holder IS NULL")?;
        Ok(usize::try_from(free)?)
    }

    fn one<T: rusqlite::types::FromSql>(&self, sql: &str) -> Result<T> {
        Ok(self.0.prepare_cached(sql)?.query_row([], |row| row.get(0))?)
    }
}

#[cfg(test)]
mod tests {
    use reprieve_core::WorkerId;
    use reprieve_core::ports::NewMessage;
    use reprieve_local::{LocalStore, Options, QueueName};

    use super::*;

    /// The queries depend on the store's tables, which are private: this test fails when they
    /// change.
    #[tokio::test]
    async fn a_look_tells_what_is_done_and_what_is_held() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("reprieve.db");
        let options = Options::new(QueueName::parse("default").unwrap()).owned_by(WorkerId::unique());
        let local = LocalStore::open(&path, options).await.unwrap();
        let queue = local.store().queue;
        let watch = Watch::open(&path).unwrap();
        assert_eq!((watch.is_empty().unwrap(), watch.oldest().unwrap()), (true, None));
        queue.send(vec![NewMessage { body: b"x".to_vec(), delay: Duration::ZERO }; 3]).await.unwrap();
        let held = queue.receive(2, Duration::from_secs(60)).await.unwrap();
        assert_eq!((watch.oldest().unwrap(), watch.free().unwrap()), (Some(1), 1));
        queue.complete(&held[0].receipt).await.unwrap();
        assert_eq!((watch.oldest().unwrap(), watch.free().unwrap()), (Some(2), 1));
        queue.release(&held[1].receipt, &reprieve_core::ports::Release::default()).await.unwrap();
        assert_eq!((watch.is_empty().unwrap(), watch.free().unwrap()), (false, 2));
    }
}
