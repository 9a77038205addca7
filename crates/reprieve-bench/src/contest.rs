//! The contestants of the throughput runs: our worker, raw SQLite, and the peers. All are measured
//! the same way.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures_util::future::try_join_all;
use reprieve_core::Producer;
use tokio::time::Instant;

use crate::noop::{Figures, noops};
use crate::peers::Peer;
use crate::place::{Durability, Place};
use crate::process::Process;
use crate::raw_sqlite;
use crate::wait::until;

/// The time limit of one of the worker's drains.
const DRAINING: Duration = Duration::from_mins(3);

/// How often the store is checked: seldom enough to cost nothing, and far less than any drain
/// takes.
const POLL: Duration = Duration::from_millis(5);

/// A contestant.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Contestant<'a> {
    /// Our worker: what its commits survive, and its `--concurrency`.
    Ours(Durability, &'static str),
    /// SQLite by hand, on one thread.
    Raw(Durability),
    Peer(&'a Peer),
}

impl Contestant<'_> {
    /// The name in the tables.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Ours(durability, "auto") => format!("ours, {}, default concurrency", durability.as_str()),
            Self::Ours(durability, _) => format!("ours, {}", durability.as_str()),
            Self::Raw(durability) => format!("raw SQLite, {}", durability.as_str()),
            Self::Peer(peer) => peer.id.clone(),
        }
    }

    pub(crate) const fn is_ours(&self) -> bool {
        matches!(self, Self::Ours(..))
    }

    /// Runs once, in a place of its own.
    pub(crate) async fn run(&self, work: &std::path::Path, jobs: usize, processes: usize) -> Result<Figures> {
        let figures = match self {
            Self::Ours(durability, concurrency) => {
                ours(work, *durability, concurrency, jobs, processes).await?
            }
            Self::Raw(durability) => raw_sqlite::run(&Place::new(work, *durability)?, jobs)?,
            Self::Peer(peer) => {
                let directory = tempfile::tempdir_in(work)?;
                peer.throughput(directory.path(), jobs, processes).await?
            }
        };
        ensure!(figures.completed == jobs, "{} of {jobs} jobs were completed", figures.completed);
        ensure!(
            figures.enqueue_seconds > 0.0 && figures.drain_seconds > 0.0,
            "it measured no time: {figures:?}"
        );
        Ok(figures)
    }
}

async fn ours(
    work: &std::path::Path,
    durability: Durability,
    concurrency: &str,
    jobs: usize,
    processes: usize,
) -> Result<Figures> {
    let enqueue_batch_seconds = Some(enqueue_at_once(&Place::new(work, durability)?, jobs).await?);
    let place = Place::new(work, durability)?;
    let enqueue_seconds = enqueue_singly(&place, jobs).await?;
    let watch = place.watch()?;

    let began = Instant::now();
    let flags = ["--concurrency", concurrency];
    let mut workers = (0..processes).map(|_| place.worker(&flags)).collect::<Result<Vec<_>>>()?;
    let done = || Ok(watch.is_empty()?.then_some(()));
    let drained = until("all jobs are done", DRAINING, POLL, done).await;
    let drain_seconds = began.elapsed().as_secs_f64();
    drained.with_context(|| workers[0].log_tail())?;

    let usage = workers.iter().map(Process::usage).collect::<Result<Vec<_>>>()?;
    try_join_all(workers.iter_mut().map(Process::stop)).await?;
    let completed = workers.iter().map(completed).sum::<Result<usize>>()?;
    Ok(Figures {
        enqueue_seconds,
        enqueue_batch_seconds,
        drain_seconds,
        cpu_seconds: Some(usage.iter().map(|usage| usage.cpu_seconds).sum()),
        server_cpu_seconds: None,
        rss_bytes: usage.iter().map(|usage| usage.resident_bytes_peak).reduce(f64::max),
        completed,
    })
}

/// Each job is on disk before the next one is sent. The store is closed afterwards, as when a
/// producer ends.
async fn enqueue_singly(place: &Place, jobs: usize) -> Result<f64> {
    let jobs = noops(jobs)?;
    let local = place.open().await?;
    let producer = Producer::new(local.store());
    let began = Instant::now();
    for job in jobs {
        producer.enqueue(vec![job]).await?;
    }
    Ok(began.elapsed().as_secs_f64())
}

async fn enqueue_at_once(place: &Place, jobs: usize) -> Result<f64> {
    let jobs = noops(jobs)?;
    let local = place.open().await?;
    let producer = Producer::new(local.store());
    let began = Instant::now();
    producer.enqueue(jobs).await?;
    Ok(began.elapsed().as_secs_f64())
}

/// Returns the number of jobs that a stopped worker reports as completed.
fn completed(worker: &Process) -> Result<usize> {
    let stopped = worker.logged("worker stopped")?.context("a worker did not log how it stopped")?;
    let completed = stopped["completed"].as_u64().context("a worker did not say what it completed")?;
    Ok(completed.try_into()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_figures_can_regress() {
        assert!(Contestant::Ours(Durability::PowerLoss, "64").is_ours());
        assert!(!Contestant::Raw(Durability::PowerLoss).is_ours());
        assert_eq!(Contestant::Ours(Durability::Process, "64").name(), "ours, process");
        assert_eq!(
            Contestant::Ours(Durability::PowerLoss, "auto").name(),
            "ours, power-loss, default concurrency"
        );
    }
}
