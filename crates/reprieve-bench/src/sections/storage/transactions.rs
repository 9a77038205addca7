//! The storage transactions of short jobs, counted at the server.

use std::time::Duration;

use anyhow::{Context, Result};
use reprieve_sim::storage::Operation;
use rustix::process::Signal;

use super::counting::{self, Counted, Counting};
use crate::measure::{Kind, Of};
use crate::noop::noops;
use crate::place::started;
use crate::sections::{Bench, say};
use crate::site;
use crate::tenancy::Tenancy;
use crate::wait::until;

pub(super) const SECTION: &str = "storage transactions";
const ROUNDS: usize = 3;
const JOBS: usize = 10_000;

/// One delete, and a tenth for everything else, including a share of a full batch's receive.
const OF_A_SHORT_JOB: f64 = 1.1 + 1.0 / 32.0;

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

/// Returns the worker's requests for this number of no-op jobs, which wait when it starts.
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
    let counted = done.await.with_context(|| worker.log_tail())?;
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
