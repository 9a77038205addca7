//! The roster port: one row per worker, removed when the worker stops, and kept for a day when it died.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use reprieve_core::clock::unix_millis;
use reprieve_core::ports::{Roster, WorkerReport};
use reprieve_core::{ErrorKind, Result, WorkerId};

use crate::damaged::Text;
use crate::failure::Failure;
use crate::store::{Ports, blocking};
use crate::writer::Tx;

#[async_trait]
impl Roster for Ports {
    async fn publish(&self, report: &WorkerReport) -> Result<()> {
        const OPERATION: &str = "publish a worker's report";
        let (worker, at) = (report.worker.as_str().to_owned(), report.at_unix_ms);
        let json = serde_json::to_string(report)
            .map_err(|error| Failure::new(ErrorKind::Internal, error.to_string()).during(OPERATION))?;
        let apply = move |tx: &Tx<'_>| {
            tx.execute(
                "INSERT INTO report(worker, at, json) VALUES(?1, ?2, ?3)
                 ON CONFLICT(worker) DO UPDATE SET at = excluded.at, json = excluded.json",
                (&worker, at, &json),
            )?;
            Ok(())
        };
        self.shared.writer.call(0, apply, Ok).await.map_err(|failure| failure.during(OPERATION))
    }

    async fn withdraw(&self, worker: &WorkerId) -> Result<()> {
        let worker = worker.as_str().to_owned();
        let apply = move |tx: &Tx<'_>| {
            tx.execute("DELETE FROM report WHERE worker = ?1", [&worker])?;
            Ok(())
        };
        let withdrawn = self.shared.writer.call(0, apply, Ok).await;
        withdrawn.map_err(|failure| failure.during("withdraw a worker's report"))
    }

    async fn reports(&self, max_age: Duration) -> Result<Vec<WorkerReport>> {
        self.read_reports("SELECT worker, json FROM report WHERE at >= ?1 ORDER BY worker", max_age).await
    }

    async fn departed(&self, max_age: Duration) -> Result<Vec<WorkerReport>> {
        const DIED: &str = "SELECT worker, json FROM report WHERE at < 0 AND -at >= ?1 ORDER BY worker";
        self.read_reports(DIED, max_age).await
    }
}

impl Ports {
    async fn read_reports(&self, sql: &'static str, max_age: Duration) -> Result<Vec<WorkerReport>> {
        let shared = Arc::clone(&self.shared);
        let max_age = i64::try_from(max_age.as_millis()).unwrap_or(i64::MAX);
        let oldest = unix_millis().saturating_sub(max_age);
        let rows = blocking(move || {
            shared.reader.rows(sql, [oldest], |row| Ok((row.get::<_, Text>(0)?.0, row.get::<_, Text>(1)?.0)))
        });
        let rows = rows.await.map_err(|failure| failure.during("read the workers' reports"))?;
        Ok(rows.iter().filter_map(|(worker, json)| read(worker, json)).collect())
    }
}

/// A report by another version may be unreadable. It is skipped, because reports are only shown.
fn read(worker: &str, json: &str) -> Option<WorkerReport> {
    serde_json::from_str(json)
        .inspect_err(|error| tracing::debug!(worker, %error, "failed to read a worker's report; ignoring it"))
        .ok()
}
