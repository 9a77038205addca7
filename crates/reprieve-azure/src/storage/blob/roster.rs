//! The workers' reports, one blob each. A blob's metadata contains the [`Member`], so that one request
//! lists all of them.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::{FutureExt, StreamExt, stream};
use reprieve_core::ports::{Member, Roster, WorkerReport};
use reprieve_core::{Error, ErrorKind, Result, WorkerId};

use super::blob_store::RESERVED;
use super::container::{Container, Listed, When};

/// The interval of a worker's reports. Each report is a billed write: 240 an hour.
const PACE: Duration = Duration::from_secs(15);

/// How long the last report of a worker that died is kept.
const KEPT: Duration = Duration::from_hours(24);

/// The name of the metadata with the member, as JSON in base64.
const MEMBER: &str = "member";

/// The longest metadata that is written: a blob has room for 8 KiB.
/// <https://learn.microsoft.com/rest/api/storageservices/setting-and-retrieving-properties-and-metadata-for-blob-resources>
const MEMBER_BYTES_MAX: usize = 6 * 1024;

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

    /// Reads these reports.
    async fn read(
        &self,
        operation: &'static str,
        listed: impl Iterator<Item = Listed>,
    ) -> Result<Vec<WorkerReport>> {
        let reads: Vec<_> = listed
            .map(|one| async move { self.container.read(operation, &one.name).await }.boxed())
            .collect();
        let read: Vec<_> = stream::iter(reads).buffered(READS_AT_ONCE).collect().await;
        let mut reports = Vec::with_capacity(read.len());
        for read in read {
            // The worker of a report that is gone has withdrawn; an unreadable report is another
            // version's.
            let report = read?.and_then(|read| serde_json::from_slice::<WorkerReport>(&read.bytes).ok());
            reports.extend(report);
        }
        Ok(reports)
    }

    /// Deletes the reports of workers that died long ago, once for each process.
    async fn sweep(&self) -> Result<()> {
        const OPERATION: &str = "sweep the roster";
        if self.swept.swap(true, Relaxed) {
            return Ok(());
        }
        // Without its last slash, which also shows whether the account has directories.
        let listed = self.container.list(OPERATION, prefix().trim_end_matches('/')).await?;
        for old in listed.iter().filter(|listed| listed.age > KEPT) {
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
        let internal = |error: serde_json::Error| {
            Error::new(ErrorKind::Internal, OPERATION, error.to_string()).with_source(error)
        };
        let json = serde_json::to_vec(report).map_err(internal)?;
        let member = STANDARD.encode(serde_json::to_vec(&Member::from(report)).map_err(internal)?);
        let member = (member.len() <= MEMBER_BYTES_MAX).then(|| [(MEMBER.to_owned(), member)].into());
        self.container.write(OPERATION, &blob(&report.worker), json, member, &When::Always).await?;
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
        let recent = listed.into_iter().filter(|listed| listed.age <= max_age);
        let mut reports = self.read(OPERATION, recent).await?;
        reports.sort_by(|a, b| a.worker.cmp(&b.worker));
        Ok(reports)
    }

    /// Sends one request for up to 5,000 workers, and one more for each worker of an older version or
    /// with very many kinds.
    async fn members(&self, max_age: Duration) -> Result<Vec<Member>> {
        const OPERATION: &str = "list the roster";
        let listed = self.container.list(OPERATION, &prefix()).await?;
        let (mut members, mut unknown) = (Vec::new(), Vec::new());
        for listed in listed.into_iter().filter(|listed| listed.age <= max_age) {
            match member(&listed) {
                Some(member) => members.push(member),
                None => unknown.push(listed),
            }
        }
        let reports = self.read(OPERATION, unknown.into_iter()).await?;
        members.extend(reports.iter().map(Member::from));
        members.sort_by(|a, b| a.worker.cmp(&b.worker));
        Ok(members)
    }
}

/// Returns the member in a report's metadata.
fn member(listed: &Listed) -> Option<Member> {
    let member = listed.metadata.iter().find(|(name, _)| name.eq_ignore_ascii_case(MEMBER))?.1;
    serde_json::from_slice(&STANDARD.decode(member).ok()?).ok()
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
