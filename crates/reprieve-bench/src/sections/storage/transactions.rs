//! What short jobs cost in storage transactions, counted at the server.

use std::time::Duration;

use anyhow::{Context, Result};
use reprieve_sim::storage::{Action, Counts, Operation, Rule, StorageServer};
use rustix::process::Signal;

use super::counting;
use crate::contest::noops;
use crate::measure::{Kind, Of};
use crate::place::started;
use crate::sections::{Bench, say};
use crate::site;
use crate::tenancy::Tenancy;
use crate::wait::until;

pub(super) const SECTION: &str = "storage transactions";
const ROUNDS: usize = 3;
const JOBS: usize = 10_000;

/// One delete, and a tenth for all else but a share of a full batch's receive.
const OF_A_SHORT_JOB: f64 = 1.1 + 1.0 / 32.0;

/// Counts what a double is asked, and what of it is about which blobs.
#[derive(Debug)]
pub(super) struct Counting {
    roster: u64,
    records: u64,
}

/// Requests.
#[derive(Debug, Clone, Default)]
pub(super) struct Counted {
    pub(super) all: Counts,
    /// Of these, writes of workers' own reports.
    pub(super) roster: u64,
    /// Of these, writes of jobs' records.
    pub(super) records: u64,
}

impl Counting {
    /// Begins to count what is asked of this tenancy's server, which nobody else uses.
    pub(super) fn begin(server: &StorageServer, tenancy: &Tenancy<'_>) -> Result<Self> {
        // Rules that do nothing count the requests that they match.
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

    /// All of them, but for the worker's reports, which it makes whatever it does.
    pub(super) fn by_jobs(&self) -> f64 {
        number(self.all.total() - self.roster)
    }

    /// The worker's reports.
    pub(super) const fn by_worker(&self) -> f64 {
        number(self.roster)
    }

    /// Blobs that were written, but for the worker's reports.
    pub(super) fn blobs_by_jobs(&self) -> f64 {
        let blobs = [Operation::BlobPut, Operation::BlockPut, Operation::BlockList];
        number(blobs.iter().map(|operation| self.all.requests(*operation)).sum::<u64>() - self.roster)
    }
}

#[expect(clippy::cast_precision_loss, reason = "some thousands")]
pub(super) const fn number(count: u64) -> f64 {
    count as f64
}

pub(super) async fn run(bench: &mut Bench) -> Result<()> {
    let jobs = bench.amount(JOBS, 500);
    for round in 0..bench.rounds(ROUNDS) {
        for concurrency in ["64", "auto"] {
            say(&format!("{SECTION}, round {}: short jobs, concurrency {concurrency}", round + 1));
            let counted = short(bench, jobs, concurrency).await?;
            note(bench, jobs, concurrency, &counted);
        }
    }
    Ok(())
}

/// What a worker asks for while it does so many no-op jobs, which are there when it begins.
async fn short(bench: &Bench, jobs: usize, concurrency: &str) -> Result<Counted> {
    let site = site::Kind::DOUBLE.start(&bench.work).await?;
    let (tenancy, server) = (Tenancy::new(&site, &bench.work).await?, site.counting()?);
    let worker = tenancy.worker("off", &["--concurrency", concurrency])?;
    started(&worker).await?;
    worker.signal_all(Signal::STOP)?;
    tenancy.enqueue(noops(jobs)?).await?;
    let counting = Counting::begin(server, &tenancy)?;
    worker.signal_all(Signal::CONT)?;
    let done = until("all jobs are done", Duration::from_mins(3), Duration::from_millis(1), || {
        let counted = counting.so_far(server);
        Ok((counted.all.answered(Operation::Delete, 204) >= u64::try_from(jobs)?).then_some(counted))
    });
    let counted = done.await.with_context(|| worker.last_words())?;
    worker.kill().await?;
    Ok(counted)
}

fn note(bench: &mut Bench, jobs: usize, concurrency: &str, counted: &Counted) {
    let which = if concurrency == "auto" {
        "default concurrency".to_owned()
    } else {
        format!("{concurrency} in flight")
    };
    let name = |what: &str| format!("a short job, {which}: {what}");
    #[expect(clippy::cast_precision_loss, reason = "some thousands")]
    let jobs = jobs as f64;
    let all = Kind::lower(SECTION, name("all"), "transactions").goal(Of::Median, OF_A_SHORT_JOB);
    bench.add(all, counted.by_jobs() / jobs);
    for (what, operation) in
        [("receives", Operation::Receive), ("deletes", Operation::Delete), ("renewals", Operation::Update)]
    {
        bench.add(Kind::lower(SECTION, name(what), "transactions"), counted.of(operation) / jobs);
    }
    let blobs = Kind::lower(SECTION, name("blobs written"), "transactions").goal(Of::Worst, 0.0);
    bench.add(blobs, counted.blobs_by_jobs() / jobs);
    let million = (counting::of(counted) / jobs + counting::SEND) * 1e6;
    bench.add(
        Kind::lower(SECTION, name("a million of them, enqueueing included, at list prices"), "$"),
        million,
    );
}

#[cfg(test)]
mod tests {
    use reprieve_core::ports::{RecordWrite, WorkerReport};
    use reprieve_core::{BlobName, JobId, WorkerId};

    use super::*;

    #[tokio::test]
    async fn what_a_worker_says_of_itself_is_no_job_s_doing() {
        let work = tempfile::tempdir().unwrap();
        let site = site::Kind::DOUBLE.start(work.path()).await.unwrap();
        let tenancy = Tenancy::new(&site, work.path()).await.unwrap();
        let server = site.counting().unwrap();
        let counting = Counting::begin(server, &tenancy).unwrap();
        let store = tenancy.store();
        let report = WorkerReport {
            worker: WorkerId::unique(),
            queue: String::new(),
            kinds: Vec::new(),
            vm: String::new(),
            pid: 1,
            stage: "start".to_owned(),
            at_unix_ms: 0,
            completed: 0,
            in_flight: Vec::new(),
            notices: Vec::new(),
            deferred: Vec::new(),
            last_drain: None,
        };
        store.roster.publish(&report).await.unwrap();
        let write = RecordWrite { record: b"at".to_vec(), ..RecordWrite::default() };
        store.records.put(&JobId::parse("job").unwrap(), None, write).await.unwrap();
        let output = BlobName::parse("output").unwrap();
        store.blobs.put(&output, b"done".to_vec(), None).await.unwrap();
        let counted = counting.so_far(server);
        assert_eq!((counted.roster, counted.records), (1, 1));
        assert_eq!(counted.all.requests(Operation::BlobPut), 3);
        assert!((counted.blobs_by_jobs() - 2.0).abs() < 1e-9, "{counted:?}");
        assert!((counting::of(&counted) - 3.0 * 0.055 / 1e4).abs() < 0.055 / 1e4 + 1e-12, "{counted:?}");
    }
}
