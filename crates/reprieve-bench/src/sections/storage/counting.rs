//! Counts storage transactions at the server, and their cost at list prices.
//!
//! The prices are for a general-purpose v2 account in East US, locally redundant, hot. They come
//! from public price lists of 2024 and are an assumption: they differ by region and seldom change.
//! Check <https://azure.microsoft.com/pricing/details/storage/queues/> and
//! <https://azure.microsoft.com/pricing/details/storage/blobs/>. Stored data and traffic out of the
//! region cost extra.

use std::time::Duration;

use anyhow::Result;
use reprieve_sim::storage::{Action, Counts, Operation, Rule, StorageServer};

use crate::tenancy::Tenancy;

/// Counts all requests to a storage double, and those for certain blobs.
#[derive(Debug)]
pub(super) struct Counting {
    roster: u64,
    records: u64,
}

/// The counted requests.
#[derive(Debug, Clone, Default)]
pub(super) struct Counted {
    pub(super) all: Counts,
    /// Writes of workers' own reports.
    pub(super) roster: u64,
    /// Writes of jobs' records.
    pub(super) records: u64,
}

impl Counting {
    /// Starts counting the requests to this tenancy's server, which has no other users.
    pub(super) fn begin(server: &StorageServer, tenancy: &Tenancy<'_>) -> Result<Self> {
        // Rules without an effect count the requests that they match.
        let nothing = |prefix| Rule {
            prefix: tenancy.blobs(prefix),
            ..Rule::new(Action::Delay { by: Duration::ZERO }).on(Operation::BlobPut)
        };
        let roster = server.add_fault(nothing(".reprieve/workers/"))?;
        let records = server.add_fault(nothing(".reprieve/records/"))?;
        server.reset_counts();
        Ok(Self { roster, records })
    }

    pub(super) fn so_far(&self, server: &StorageServer) -> Counted {
        let faults = server.faults();
        let matched = |id| faults.iter().find(|standing| standing.id == id).map_or(0, |found| found.matched);
        Counted { all: server.counts(), roster: matched(self.roster), records: matched(self.records) }
    }
}

impl Counted {
    pub(super) fn of(&self, operation: Operation) -> f64 {
        number(self.all.requests(operation))
    }

    /// Returns all requests except those of the worker's report, which is independent of the jobs.
    pub(super) fn by_jobs(&self) -> f64 {
        number(self.all.total() - self.roster)
    }

    /// Returns the requests of the worker's reports.
    pub(super) const fn by_worker(&self) -> f64 {
        number(self.roster)
    }

    /// Returns the written blobs except the worker's reports.
    pub(super) fn blobs_by_jobs(&self) -> f64 {
        let blobs = [Operation::BlobPut, Operation::BlockPut, Operation::BlockList];
        number(blobs.iter().map(|operation| self.all.requests(*operation)).sum::<u64>() - self.roster)
    }
}

#[expect(clippy::cast_precision_loss, reason = "some thousands")]
const fn number(count: u64) -> f64 {
    count as f64
}

/// Queue requests.
pub(super) const SEND: f64 = 0.004 / 10_000.0;

/// Blob and block writes, and listings.
const WRITE: f64 = 0.055 / 10_000.0;

/// Blob reads, and all others except deletes, which are free.
const READ: f64 = 0.0044 / 10_000.0;

/// Returns the cost of all requests, in dollars.
pub(super) fn of(counted: &Counted) -> f64 {
    counted.all.operations.iter().map(|(operation, asked)| one(*operation) * number(asked.requests)).sum()
}

fn one(operation: Operation) -> f64 {
    use Operation as O;
    match operation {
        O::QueueCreate
        | O::QueueDelete
        | O::QueueProperties
        | O::QueueMetadata
        | O::Send
        | O::Receive
        | O::Peek
        | O::Update
        | O::Delete
        | O::Clear => SEND,
        O::ContainerCreate | O::BlobPut | O::BlockPut | O::BlockList | O::BlobList => WRITE,
        O::BlobDelete | O::ContainerDelete => 0.0,
        _ => READ,
    }
}

#[cfg(test)]
mod tests {
    use reprieve_core::ports::{RecordWrite, WorkerReport};
    use reprieve_core::{BlobName, JobId, WorkerId};

    use super::*;
    use crate::site;

    #[tokio::test]
    async fn a_worker_s_own_reports_do_not_count_as_its_jobs_transactions() {
        let work = tempfile::tempdir().unwrap();
        let site = site::Kind::DOUBLE.start(work.path()).await.unwrap();
        let tenancy = Tenancy::new(&site, work.path()).await.unwrap();
        let server = site.counting().unwrap();
        let counting = Counting::begin(server, &tenancy).unwrap();
        let store = tenancy.store();
        let report =
            WorkerReport { pid: 1, stage: "start".to_owned(), ..WorkerReport::new(WorkerId::unique()) };
        store.roster.publish(&report).await.unwrap();
        let write = RecordWrite { record: b"at".to_vec(), ..RecordWrite::default() };
        store.records.put(&JobId::parse("job").unwrap(), None, write).await.unwrap();
        let output = BlobName::parse("output").unwrap();
        store.blobs.put(&output, b"done".to_vec(), None).await.unwrap();
        let counted = counting.so_far(server);
        assert_eq!((counted.roster, counted.records), (1, 1));
        assert_eq!(counted.all.requests(Operation::BlobPut), 3);
        assert!((counted.blobs_by_jobs() - 2.0).abs() < 1e-9, "{counted:?}");
        assert!((of(&counted) - 3.0 * 0.055 / 1e4).abs() < 0.055 / 1e4 + 1e-12, "{counted:?}");
    }
}
