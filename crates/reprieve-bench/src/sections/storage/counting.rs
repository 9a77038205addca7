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

/// Where the ledger's entries lie.
const LEDGER: &str = ".reprieve/records/reprieve-ledger.";

/// Counts all requests to a storage double, and those for certain blobs, by rules without an effect.
#[derive(Debug)]
pub(super) struct Counting {
    roster: u64,
    records: u64,
    ledger: u64,
    ledger_writes: u64,
}

/// The counted requests.
#[derive(Debug, Clone, Default)]
pub(super) struct Counted {
    pub(super) all: Counts,
    /// Writes of workers' own reports.
    pub(super) roster: u64,
    /// Writes of jobs' records.
    pub(super) records: u64,
    /// Requests for the ledger, of which so many are writes. It has nothing of jobs that are done.
    ledger: u64,
    ledger_writes: u64,
}

impl Counting {
    /// Starts counting the requests to this tenancy's server, which has no other users.
    pub(super) fn begin(server: &StorageServer, tenancy: &Tenancy<'_>) -> Result<Self> {
        let all = |prefix| Rule {
            prefix: tenancy.blobs(prefix),
            ..Rule::new(Action::Delay { by: Duration::ZERO })
        };
        let writes = |prefix| all(prefix).on(Operation::BlobPut);
        let roster = server.add_fault(writes(".reprieve/workers/"))?;
        let ledger = server.add_fault(all(LEDGER))?;
        let ledger_writes = server.add_fault(writes(LEDGER))?;
        let records = server.add_fault(writes(".reprieve/records/"))?;
        server.reset_counts();
        Ok(Self { roster, records, ledger, ledger_writes })
    }

    pub(super) fn so_far(&self, server: &StorageServer) -> Counted {
        let faults = server.faults();
        let matched = |id| faults.iter().find(|standing| standing.id == id).map_or(0, |found| found.matched);
        let ledger_writes = matched(self.ledger_writes);
        Counted {
            all: server.counts(),
            roster: matched(self.roster),
            records: matched(self.records).saturating_sub(ledger_writes),
            ledger: matched(self.ledger),
            ledger_writes,
        }
    }
}

impl Counted {
    pub(super) fn of(&self, operation: Operation) -> f64 {
        number(self.all.requests(operation))
    }

    /// Returns all requests except those of the worker itself, which are independent of its jobs.
    pub(super) fn by_jobs(&self) -> f64 {
        number(self.all.total().saturating_sub(self.roster + self.ledger))
    }

    /// Returns the requests of the worker itself: its reports, and that its machine lives.
    pub(super) const fn by_worker(&self) -> f64 {
        number(self.roster + self.ledger)
    }

    /// Returns the blobs that were read for jobs: most are looks for cancelled ones.
    pub(super) fn reads_by_jobs(&self) -> f64 {
        let reads = [Operation::BlobGet, Operation::BlobProperties];
        let reads: u64 = reads.iter().map(|operation| self.all.requests(*operation)).sum();
        number(reads.saturating_sub(self.ledger - self.ledger_writes))
    }

    /// Returns the written blobs except those of the worker itself.
    pub(super) fn blobs_by_jobs(&self) -> f64 {
        let blobs = [Operation::BlobPut, Operation::BlockPut, Operation::BlockList];
        let written: u64 = blobs.iter().map(|operation| self.all.requests(*operation)).sum();
        number(written.saturating_sub(self.roster + self.ledger_writes))
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
    use reprieve_core::ledger::{Boot, Entry, Ledger, Machine};
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
        store.blobs.get(&output).await.unwrap();
        let (boot, worker, machine) = ("boot".to_owned(), WorkerId::unique(), Machine::default());
        let (seen_unix_ms, worked_on_unix_ms) = (None, None);
        let boot = Boot { boot, worker, at_unix_ms: 0, machine, seen_unix_ms, worked_on_unix_ms };
        Ledger::new(store.records.clone()).write(Entry::Boot(boot)).await.unwrap();
        let counted = counting.so_far(server);
        assert_eq!((counted.roster, counted.records), (1, 1));
        assert_eq!(counted.all.requests(Operation::BlobPut), 4);
        assert!((counted.blobs_by_jobs() - 2.0).abs() < 1e-9, "{counted:?}");
        assert!((counted.reads_by_jobs() - 1.0).abs() < 1e-9, "{counted:?}");
        assert!((counted.by_worker() - 2.0).abs() < 1e-9, "{counted:?}");
        assert!((of(&counted) - (4.0 * 0.055 + 0.0044) / 1e4).abs() < 0.055 / 1e4 + 1e-12, "{counted:?}");
    }
}
