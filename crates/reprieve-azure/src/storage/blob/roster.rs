//! The workers' reports, one blob each.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::{FutureExt, StreamExt, stream};
use jiff::{SignedDuration, Timestamp};
use reprieve_core::ports::{Roster, WorkerReport};
use reprieve_core::{Error, ErrorKind, Result, WorkerId, clock};

use super::blob_store::RESERVED;
use super::container::{Container, Listed, When};

/// The interval of a worker's reports. Each report is a billed write: 240 an hour.
const PACE: Duration = Duration::from_secs(15);

/// How long the last report of a worker that died is kept.
const KEPT: Duration = Duration::from_hours(24);

/// How many reports are read concurrently.
const READS_AT_ONCE: usize = 16;

/// The workers' reports in a container.
pub(crate) struct AzureRoster {
    container: Container,
    swept: AtomicBool,
}

impl AzureRoster {
    pub(crate) fn new(container: Container) -> Self {
        Self { container, swept: AtomicBool::new(false) }
    }

    /// Deletes the reports of workers that died long ago, once for each process.
    async fn sweep(&self) -> Result<()> {
        const OPERATION: &str = "sweep the roster";
        if self.swept.swap(true, Relaxed) {
            return Ok(());
        }
        let listed = self.container.list(OPERATION, &prefix()).await?;
        for old in listed.iter().filter(|listed| !is_recent(listed, KEPT)) {
            self.container.delete(OPERATION, &old.name).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl Roster for AzureRoster {
    fn pace(&self) -> Duration {
        PACE
    }

    async fn publish(&self, report: &WorkerReport) -> Result<()> {
        const OPERATION: &str = "publish a report";
        let json = serde_json::to_vec(report).map_err(|error| {
            Error::new(ErrorKind::Internal, OPERATION, error.to_string()).with_source(error)
        })?;
        self.container.write(OPERATION, &blob(&report.worker), json, None, &When::Always).await?;
        if let Err(error) = self.sweep().await {
            tracing::debug!(%error, "failed to remove the reports of workers that died long ago");
        }
        Ok(())
    }

    async fn withdraw(&self, worker: &WorkerId) -> Result<()> {
        self.container.delete("withdraw from the roster", &blob(worker)).await
    }

    async fn reports(&self, max_age: Duration) -> Result<Vec<WorkerReport>> {
        const OPERATION: &str = "read the roster";
        let listed = self.container.list(OPERATION, &prefix()).await?;
        let recent = listed.into_iter().filter(|listed| is_recent(listed, max_age));
        let reads: Vec<_> = recent
            .map(|one| async move { self.container.read(OPERATION, &one.name).await }.boxed())
            .collect();
        let read: Vec<_> = stream::iter(reads).buffered(READS_AT_ONCE).collect().await;
        let mut reports = Vec::with_capacity(read.len());
        for read in read {
            // The worker of a report that is gone has withdrawn; an unreadable report is another
            // version's.
            let report = read?.and_then(|read| serde_json::from_slice::<WorkerReport>(&read.bytes).ok());
            reports.extend(report);
        }
        reports.sort_by(|a, b| a.worker.cmp(&b.worker));
        Ok(reports)
    }
}

impl fmt::Debug for AzureRoster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AzureRoster").field(self.container.name()).finish()
    }
}

fn prefix() -> String {
    format!("{RESERVED}workers/")
}

fn blob(worker: &WorkerId) -> String {
    format!("{}{worker}.json", prefix())
}

/// Whether the blob was written no longer than `age` ago, as far as this machine's clock and the
/// service's agree.
fn is_recent(listed: &Listed, age: Duration) -> bool {
    let now = Timestamp::try_from(clock::wall_now()).unwrap_or_default();
    let age = SignedDuration::try_from(age).unwrap_or(SignedDuration::MAX);
    listed.modified.is_none_or(|modified| now.duration_since(modified) <= age)
}
