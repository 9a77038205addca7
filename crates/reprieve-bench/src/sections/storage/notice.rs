//! From a notice until all leases are released, on storage: 64 jobs in flight that yield, and 32 that wait.
//!
//! The worker reads ahead only what it will begin soon. After a wave of no-op jobs it takes the next ones for short,
//! and returns what it has read when it finds that they are long. So at the notice it holds none of the 32, or some.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rand::Rng;
use reprieve_sim::metadata::{Config, MetadataServer};
use rustix::process::Signal;
use tokio::time::sleep;

use crate::journal;
use crate::measure::{Kind, Of};
use crate::noop::noops;
use crate::place::{job, started};
use crate::process::Process;
use crate::sections::{Bench, say};
use crate::site::{self, Site};
use crate::tenancy::Tenancy;
use crate::wait::until;

const SECTION: &str = "storage notice";
const ROUNDS: usize = 20;
const IN_FLIGHT: usize = 64;
const WAITING: usize = 32;

/// The longest notice that Azure gives a Spot VM.
const NOTICE: Duration = Duration::from_secs(30);

/// The goal, at p99.
const RELEASED_MS: f64 = 1_000.0;

const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(10);
const VM: &str = "bench_0";

pub(super) async fn run(bench: &mut Bench, azurite: Option<site::Kind>) -> Result<()> {
    let away = [5, 20].map(|ms| site::Kind::Double(Duration::from_millis(ms)));
    for kind in azurite.into_iter().chain(away) {
        let site = kind.start(&bench.work).await?;
        for round in 0..bench.rounds(ROUNDS) {
            say(&format!("{SECTION}, round {}: on {}", round + 1, kind.name()));
            let released = trial(bench, &site).await?;
            let name =
                format!("{}, {IN_FLIGHT} in flight: notice received until all are released", kind.name());
            bench.add(Kind::lower(SECTION, name, "ms").goal(Of::P99, RELEASED_MS), released);
        }
    }
    Ok(())
}

/// Returns the worker's own time in milliseconds. The messages that can be received afterwards
/// confirm it.
async fn trial(bench: &mut Bench, site: &Site) -> Result<f64> {
    let tenancy = Tenancy::new(site, &bench.work).await?;
    let mock = MetadataServer::start(Config::with_vms([VM])).await?;
    let worker = tenancy.worker(&mock.vm_url(VM), &["--concurrency", &IN_FLIGHT.to_string()])?;
    started(&worker).await?;
    tenancy.enqueue(noops(IN_FLIGHT)?).await?;
    tenancy.emptied(IN_FLIGHT).await?;

    let noted = tenancy.path("journal");
    let all = IN_FLIGHT + WAITING;
    // The worker is stopped meanwhile, so that it finds whole batches.
    worker.signal_all(Signal::STOP)?;
    tenancy.enqueue((0..all).map(|_| job("yields", &noted)).collect::<Result<_>>()?).await?;
    worker.signal_all(Signal::CONT)?;
    let running = || Ok((journal::read(&noted)?.len() >= IN_FLIGHT).then_some(()));
    until("all jobs run", PATIENCE, POLL, running).await.with_context(|| worker.log_tail())?;
    // Announce at a random moment between two polls.
    sleep(Duration::from_millis(bench.random.random_range(1_000..2_000))).await;

    mock.evict(VM, NOTICE)?;
    let released = drained(&worker).await?;
    let free = tenancy.free(all).await?;
    ensure!(free == all, "{free} of {all} messages were free after the drain");
    worker.kill().await?;
    mock.stop().await;
    tenancy.destroy().await?;
    Ok(released)
}

async fn drained(worker: &Process) -> Result<f64> {
    let report = until("the drain has ended", PATIENCE, POLL, || worker.logged("drained")).await?;
    let count =
        |field: &str| report[field].as_u64().with_context(|| format!("a drain did not log its {field}"));
    let (saved, held) = (count("saved")?, count("saved")? + count("unstarted")?);
    ensure!(
        saved == IN_FLIGHT as u64 && count("held")? == held,
        "not {IN_FLIGHT} were saved, and the others released unstarted: {report}"
    );
    Ok(f64::from(u32::try_from(count("released_after_ms")?)?))
}
